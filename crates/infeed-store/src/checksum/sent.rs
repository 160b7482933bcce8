//! What a store sends about an object's bytes: checksums, and an ETag that may be one.
//!
//! | header | covers | trusted |
//! |---|---|---|
//! | `x-amz-checksum-crc64nvme`, `-crc32c`, `-crc32`, `-sha256`, `-sha1` | the whole object | unless `x-amz-checksum-type` is `COMPOSITE`, or the value ends with `-N`: checksums of parts |
//! | `x-goog-hash: crc32c=…,md5=…` | the stored bytes | unless Google decompresses them on the way |
//! | `content-md5` | the body | always |
//! | `etag`: 32 hex digits | with S3, the MD5 of the object | for Amazon; for other stores as `verify.rs` decides; never with KMS, SSE-C and S3 Express, which have other ETags |
//!
//! S3 sends checksums only on request (`x-amz-checksum-mode: ENABLED`), and only for whole objects.

use base64::{Engine, prelude::BASE64_STANDARD};

/// One hash of all bytes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sum {
    Crc64Nvme(u64),
    Crc32c(u32),
    Crc32(u32),
    Sha256([u8; 32]),
    Sha1([u8; 20]),
    Md5([u8; 16]),
}

/// The checksums that came with an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SentChecksums {
    /// The cheapest checksum that was sent: all of them detect transmission errors.
    pub(crate) sum: Option<Sum>,
    /// An ETag that has the form of an MD5.
    pub(crate) tag: Option<Tag>,
    /// Whether the bytes came by TLS, which detects transmission errors.
    pub(crate) by_tls: bool,
}

/// An ETag that has the form of an MD5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) md5: [u8; 16],
    /// Whether the ETag is certainly an MD5, as Amazon documents:
    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html>.
    pub(crate) sure: bool,
}

impl SentChecksums {
    /// `s3`: ETags are made as S3 makes them.
    pub(crate) fn by<'a>(header: impl Fn(&str) -> Option<&'a str>, s3: bool) -> Self {
        let composite = header("x-amz-checksum-type").is_some_and(|kind| kind.eq_ignore_ascii_case("composite"));
        let amazon = |name| bytes(header(name).filter(|_| !composite)?);
        // Stored compressed, and perhaps sent decompressed.
        let packed = header("x-goog-stored-content-encoding").is_some_and(|how| how != "identity");
        let google = |name: &str| {
            let all = header("x-goog-hash").filter(|_| !packed)?;
            bytes(all.split(',').find_map(|one| one.trim().strip_prefix(name)?.strip_prefix('='))?)
        };
        let sum = None
            .or_else(|| Some(Sum::Crc64Nvme(u64::from_be_bytes(fixed(amazon("x-amz-checksum-crc64nvme"))?))))
            .or_else(|| Some(Sum::Crc32c(u32::from_be_bytes(fixed(amazon("x-amz-checksum-crc32c"))?))))
            .or_else(|| Some(Sum::Crc32c(u32::from_be_bytes(fixed(google("crc32c"))?))))
            .or_else(|| Some(Sum::Crc32(u32::from_be_bytes(fixed(amazon("x-amz-checksum-crc32"))?))))
            .or_else(|| Some(Sum::Sha1(fixed(amazon("x-amz-checksum-sha1"))?)))
            .or_else(|| Some(Sum::Sha256(fixed(amazon("x-amz-checksum-sha256"))?)))
            .or_else(|| Some(Sum::Md5(fixed(google("md5"))?)))
            .or_else(|| Some(Sum::Md5(fixed(bytes(header("content-md5")?))?)));
        let other = header("x-amz-server-side-encryption").is_some_and(|how| how.starts_with("aws:kms"))
            || header("x-amz-server-side-encryption-customer-algorithm").is_some()
            || header("x-amz-storage-class") == Some("EXPRESS_ONEZONE");
        let md5 = header("etag").filter(|_| s3 && !other).and_then(digits);
        let sure = header("server") == Some("AmazonS3");
        Self { sum, tag: md5.map(|md5| Tag { md5, sure }), by_tls: false }
    }
}

fn bytes(base64: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD.decode(base64.trim()).ok()
}

fn fixed<const N: usize>(bytes: Option<Vec<u8>>) -> Option<[u8; N]> {
    bytes?.try_into().ok()
}

/// The digits of `"32 hex digits"`. A weak tag guarantees nothing about the bytes.
fn digits(etag: &str) -> Option<[u8; 16]> {
    let hex = etag.strip_prefix('"')?.strip_suffix('"')?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(hex, 16).ok()).flatten().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "\"0123456789abcdef0123456789abcdef\"";

    fn told(headers: &[(&str, &'static str)]) -> SentChecksums {
        SentChecksums::by(|name| headers.iter().find(|(known, _)| *known == name).map(|(_, value)| *value), true)
    }

    #[test]
    fn whole_checksums_are_taken_and_those_of_parts_are_not() {
        let crc = ("x-amz-checksum-crc32c", "AAAAAQ==");
        assert_eq!(told(&[crc]).sum, Some(Sum::Crc32c(1)));
        assert_eq!(told(&[crc, ("x-amz-checksum-type", "FULL_OBJECT")]).sum, Some(Sum::Crc32c(1)));
        assert_eq!(told(&[crc, ("x-amz-checksum-type", "COMPOSITE")]).sum, None);
        assert_eq!(told(&[("x-amz-checksum-crc32c", "AAAAAQ==-2")]).sum, None);
        assert_eq!(told(&[("x-amz-checksum-crc32c", "AAAAAAAAAAE=")]).sum, None, "of another length");
        assert_eq!(told(&[crc, ("x-amz-checksum-crc64nvme", "AAAAAAAAAAI=")]).sum, Some(Sum::Crc64Nvme(2)));
        assert_eq!(told(&[("x-amz-checksum-crc32", "AAAAAw==")]).sum, Some(Sum::Crc32(3)));
        let google = ("x-goog-hash", "crc32c=AAAABA==,md5=AAAAAAAAAAAAAAAAAAAAAA==");
        assert_eq!(told(&[google]).sum, Some(Sum::Crc32c(4)));
        assert_eq!(told(&[google, ("x-goog-stored-content-encoding", "gzip")]).sum, None);
        assert_eq!(told(&[("x-goog-hash", "md5=AAAAAAAAAAAAAAAAAAAAAA==")]).sum, Some(Sum::Md5([0; 16])));
        assert_eq!(told(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")]).sum, Some(Sum::Md5([0; 16])));
    }

    #[test]
    fn an_etag_is_an_md5_only_where_it_can_be_one() {
        let etag = ("etag", MD5);
        assert_eq!(told(&[etag]).tag.map(|tag| tag.sure), Some(false));
        assert_eq!(told(&[etag, ("server", "AmazonS3")]).tag.map(|tag| tag.sure), Some(true));
        assert!(told(&[etag, ("x-amz-server-side-encryption", "AES256")]).tag.is_some(), "SSE-S3");
        assert!(
            SentChecksums::by(|name| (name == "etag").then_some(MD5), false).tag.is_none(),
            "another kind of store"
        );
        for other in [
            ("x-amz-server-side-encryption", "aws:kms"),
            ("x-amz-server-side-encryption", "aws:kms:dsse"),
            ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            ("x-amz-storage-class", "EXPRESS_ONEZONE"),
        ] {
            assert_eq!(told(&[etag, other]).tag, None, "{other:?}");
        }
        for tag in [
            "\"0123456789abcdef0123456789abcdef-2\"",
            "W/\"0123456789abcdef0123456789abcdef\"",
            "\"\"",
            "\"+123456789abcdef0123456789abcdef\"",
            "x",
        ] {
            assert_eq!(SentChecksums::by(|name| (name == "etag").then_some(tag), true).tag, None, "{tag}");
        }
    }
}
