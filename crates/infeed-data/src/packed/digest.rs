//! Hashes, by the names that Python's `hashlib` and `xxhash` give them.

use std::fmt::Write;

use ::sha2::Digest as _;

/// A hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    Xxh32,
    Xxh64,
    Xxh3,
    Xxh128,
}

impl Digest {
    /// `None` for a hash that is not implemented here.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "md5" => Self::Md5,
            "sha1" => Self::Sha1,
            "sha224" => Self::Sha224,
            "sha256" => Self::Sha256,
            "sha384" => Self::Sha384,
            "sha512" => Self::Sha512,
            "xxh32" => Self::Xxh32,
            "xxh64" => Self::Xxh64,
            "xxh3_64" => Self::Xxh3,
            "xxh128" | "xxh3_128" => Self::Xxh128,
            _ => return None,
        })
    }

    /// The hash as lower-case hexadecimal digits, like `hexdigest`.
    pub fn hex(self, bytes: &[u8]) -> String {
        fn digits(bytes: impl AsRef<[u8]>) -> String {
            bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        }
        match self {
            Self::Md5 => digits(::md5::Md5::digest(bytes)),
            Self::Sha1 => digits(::sha1::Sha1::digest(bytes)),
            Self::Sha224 => digits(::sha2::Sha224::digest(bytes)),
            Self::Sha256 => digits(::sha2::Sha256::digest(bytes)),
            Self::Sha384 => digits(::sha2::Sha384::digest(bytes)),
            Self::Sha512 => digits(::sha2::Sha512::digest(bytes)),
            Self::Xxh32 => format!("{:08x}", xxhash_rust::xxh32::xxh32(bytes, 0)),
            Self::Xxh64 => format!("{:016x}", xxhash_rust::xxh64::xxh64(bytes, 0)),
            Self::Xxh3 => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes)),
            Self::Xxh128 => format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_that_python_gives() {
        // hashlib.new(name, b"infeed").hexdigest(), and xxhash's.
        for (name, want) in [
            ("md5", "d9929fa165917a67651b03c5f3b8fbe8"),
            ("sha1", "e5d22b50d4370058f2d2bb5bc5e0742cfefad1c1"),
            ("sha224", "9c2ca3509da8311836a0a212ca3205e6c945f7c2d6490608f4a11091"),
            ("sha256", "4ed0dd395cb19c8683f40db1589777261b2ce3cc20177b6c336450e48cb747ad"),
            (
                "sha384",
                "e88e18673473c410137450aff07ff70be1c9f4655ad0cd7125934bad9ced11b44b73c6bc12bca87fe330e6f4a58e236b",
            ),
            (
                "sha512",
                "dd41319905ba66ded73e912a599096ac69b9a5d1cfc7134f52dc31e468563e851a7b4f1acf0e81cefb72018474d10448eb740f9cae2e9e5cc3474367ce891787",
            ),
            ("xxh32", "2558c3ef"),
            ("xxh64", "1f627264b77c01f5"),
            ("xxh3_64", "132c4abe5beb94f1"),
            ("xxh128", "0ff945cca7e06ff05e0ac20502c690bb"),
            ("xxh3_128", "0ff945cca7e06ff05e0ac20502c690bb"),
        ] {
            assert_eq!(Digest::parse(name).map(|digest| digest.hex(b"infeed")).as_deref(), Some(want), "{name}");
        }
        assert_eq!(Digest::parse("blake2b"), None);
    }
}
