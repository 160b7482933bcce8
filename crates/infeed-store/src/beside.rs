//! Files that accompany the data and are read whole: labels, annotations, indices, lists, settings, states. Their
//! content is not trusted, so each is refused by its size before memory is allocated for it.
//!
//! | bound | applies to | bytes, unless `INFEED_SIDE_FILE_LIMIT` sets another number |
//! |---|---|---|
//! | [`Beside::Table`] | files with a line or an entry for each record or shard; footers of Parquet | 1 GiB |
//! | [`Beside::Note`] | files about one record, one run or one user | 64 MiB |

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use infeed_core::error::{Error, ErrorKind, Result};

use super::cache::parse_size;

/// The most bytes of either kind of file, such as `4GiB`.
const VARIABLE: &str = "INFEED_SIDE_FILE_LIMIT";

/// The kind of a file that accompanies the data, which determines how large it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// A file with a line or an entry for each record or shard.
    Table,
    /// A file about one record, one run or one user.
    Note,
}

impl Beside {
    const fn usual(self) -> u64 {
        match self {
            Self::Table => 1 << 30,
            Self::Note => 64 << 20,
        }
    }

    fn most(self, told: Option<&str>) -> Result<u64> {
        let Some(told) = told else { return Ok(self.usual()) };
        parse_size(told).map_err(|wrong| {
            Error::config(format!("{VARIABLE} is {told:?}: {wrong}"))
                .with_hint(format!("set {VARIABLE}=4GiB, or unset it"))
        })
    }

    fn limit(self) -> Result<u64> {
        self.most(std::env::var_os(VARIABLE).map(|told| told.to_string_lossy().into_owned()).as_deref())
    }

    /// Refuses a file that is too large.
    ///
    /// # Errors
    /// `Unsupported`, with the bound and how to raise it.
    pub fn check(self, size: u64) -> Result<()> {
        self.check_part("file", size)
    }

    /// Refuses a part of a file, such as its footer, that is too large.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn check_part(self, part: &str, size: u64) -> Result<()> {
        let most = self.limit()?;
        if size <= most { Ok(()) } else { Err(too_large(part, &format!("{size} bytes"), size, most)) }
    }

    /// Reads a local file.
    ///
    /// # Errors
    /// Those of the system; `FileTooLarge` for a file that is too large.
    pub fn read_file(self, path: &Path) -> io::Result<Vec<u8>> {
        self.read_open(&mut File::open(path)?)
    }

    /// Reads a local text file.
    ///
    /// # Errors
    /// Those of [`read_file`](Self::read_file), and `InvalidData` if the text is not UTF-8.
    pub fn read_text(self, path: &Path) -> io::Result<String> {
        String::from_utf8(self.read_file(path)?)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))
    }

    /// Reads the rest of a local file.
    ///
    /// # Errors
    /// Those of [`read_file`](Self::read_file).
    pub fn read_open(self, file: &mut File) -> io::Result<Vec<u8>> {
        let refused = |error: Error| io::Error::new(io::ErrorKind::FileTooLarge, error);
        let most = self.limit().map_err(io::Error::other)?;
        // A pipe or a device has no length, so the bytes read are counted too.
        let size = file.metadata()?.len();
        if size > most {
            return Err(refused(too_large("file", &format!("{size} bytes"), size, most)));
        }
        // Grows fallibly, so that too little memory is an error.
        let mut bytes = Vec::new();
        file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > most {
            true => Err(refused(too_large("file", &format!("more than {most} bytes"), most + 1, most))),
            false => Ok(bytes),
        }
    }
}

fn too_large(part: &str, found: &str, size: u64, most: u64) -> Error {
    let enough = size.div_ceil(1 << 30);
    Error::new(ErrorKind::Unsupported, format!("the {part} has {found}; the limit is {most} bytes")).with_hint(format!(
        "check that it is the right file; set {VARIABLE}={enough}GiB to read it, if there is enough memory"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_file_is_refused_before_there_is_memory_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("huge");
        File::create(&path).unwrap().set_len(6 << 40).unwrap();
        for kind in [Beside::Table, Beside::Note] {
            let error = kind.read_file(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            let words = error.to_string();
            assert!(
                words.contains("6597069766656 bytes") && words.contains("INFEED_SIDE_FILE_LIMIT=6144GiB"),
                "{words}"
            );
            assert!(words.contains(&kind.usual().to_string()), "{words}");
        }
    }

    /// A file whose reported length is 0.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_never_ends_is_refused_too() {
        let error = Beside::Note.read_file(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("more than 67108864 bytes"), "{error}");
    }

    #[test]
    fn one_variable_says_how_much_and_a_wrong_one_is_named() {
        for (told, most) in [(None, 1 << 30), (Some("2KiB"), 2048), (Some("4 GB"), 4_000_000_000)] {
            assert_eq!(Beside::Table.most(told).unwrap(), most);
        }
        assert_eq!(Beside::Note.most(None).unwrap(), 64 << 20);
        let error = Beside::Table.most(Some("lots")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("INFEED_SIDE_FILE_LIMIT is \"lots\""), "{error}");
    }
}
