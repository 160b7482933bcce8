//! The 512-byte header of a tar member: reading and writing.
//!
//! Reads ustar, GNU (long names, sizes in base 256), pax (path and size) and the old form before ustar. Links, folders
//! and devices are recognised and skipped.

use infeed_core::error::{Error, Result};

/// Bytes of a block: a header is one block, contents are padded to whole blocks.
pub const BLOCK: u64 = 512;

/// The most bytes of a long name or a set of pax records. Names usually have a few hundred bytes.
pub(super) const LONGEST_EXTRA: u64 = 1 << 20;

/// The content of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The name in the header itself; a long name before it takes precedence.
    pub(super) name: Vec<u8>,
    /// Bytes that follow, without padding.
    pub(super) size: u64,
    pub(super) kind: MemberKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberKind {
    File,
    /// GNU: the name of the next member follows.
    LongName,
    /// The pax records of the next member follow.
    Pax,
    /// A file with holes.
    Sparse,
    /// Another name for the bytes of a member or of a file elsewhere.
    Link,
    /// A folder, a device, records for all members.
    Other,
}

fn bad(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint("fetch the tar again, or pack it again")
}

/// Reads a block. `None`: zeros, which end a tar.
pub(super) fn parse_header(block: &[u8]) -> Result<Option<Header>> {
    let Some(block) = block.get(..BLOCK as usize) else {
        return Err(bad(format!("a header of {} bytes instead of 512", block.len())));
    };
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let stated = number(&block[148..156]);
    let of = |bytes: &[u8]| -> u64 { bytes.iter().map(|byte| u64::from(*byte)).sum() };
    // The checksum's own bytes count as spaces.
    let sum = of(block) - of(&block[148..156]) + 8 * u64::from(b' ');
    let high = || block[..148].iter().chain(&block[156..]).filter(|byte| !byte.is_ascii()).count() as u64;
    // Some old writers summed signed bytes.
    let fits = |stated: u64| {
        stated == sum || (high() > 0 && i64::try_from(stated).is_ok_and(|s| s == sum as i64 - 256 * high() as i64))
    };
    if !stated.is_some_and(fits) {
        return Err(bad(match block {
            [0x1f, 0x8b, ..] => "this is gzip, not a plain tar",
            [0x28, 0xb5, 0x2f, 0xfd, ..] => "this is zstd, not a plain tar",
            _ => "no tar header: its checksum is wrong",
        }));
    }
    let size = number(&block[124..136]).ok_or_else(|| bad("a tar header without a size"))?;
    let text = |field: &[u8]| field.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    let (mut name, prefix) = (text(&block[..100]), text(&block[345..500]));
    if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
        name = [&prefix[..], b"/", &name].concat();
    }
    let kind = match block[156] {
        // The oldest tars store folders as files whose name ends in `/`. `split_name` skips these by their full name;
        // here the name may be truncated, and end in `/` by chance.
        b'0' | 0 | b'7' => MemberKind::File,
        b'L' => MemberKind::LongName,
        b'x' | b'X' => MemberKind::Pax,
        b'S' => MemberKind::Sparse,
        b'1' | b'2' => MemberKind::Link,
        _ => MemberKind::Other,
    };
    // Links and folders have no bytes, whatever their header says.
    let size = if (b'1'..=b'6').contains(&block[156]) { 0 } else { size };
    Ok(Some(Header { name, size, kind }))
}

/// Octal digits between spaces and zeros, or a large number in base 256.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (first, rest) = field.split_first()?;
        return rest.iter().try_fold(u64::from(first & 0x7f), |value, byte| {
            value.checked_mul(256).map(|value| value + u64::from(*byte))
        });
    }
    let digits = field.iter().skip_while(|byte| **byte == b' ').take_while(|byte| !matches!(**byte, 0 | b' '));
    digits.into_iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'7' => value.checked_mul(8).map(|value| value + u64::from(byte - b'0')),
        _ => None,
    })
}

/// The values of pax records for the next member.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) sparse: bool,
}

/// Reads records of the form `length key=value\n`.
pub(super) fn parse_pax(mut bytes: &[u8]) -> Result<Pax> {
    let mut pax = Pax::default();
    let odd = || bad("invalid pax records");
    // Some writers pad them with zeros.
    while bytes.first().is_some_and(|byte| *byte != 0) {
        let space = bytes.iter().take(20).position(|byte| *byte == b' ').ok_or_else(odd)?;
        let length: usize = str::from_utf8(&bytes[..space]).ok().and_then(|n| n.parse().ok()).ok_or_else(odd)?;
        if length <= space + 1 || length > bytes.len() {
            return Err(odd());
        }
        let (record, rest) = bytes.split_at(length);
        bytes = rest;
        let record = record[space + 1..].strip_suffix(b"\n").ok_or_else(odd)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(odd)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => pax.path = Some(value.to_vec()),
            b"size" => pax.size = Some(str::from_utf8(value).ok().and_then(|n| n.parse().ok()).ok_or_else(odd)?),
            _ => pax.sparse |= key.starts_with(b"GNU.sparse."),
        }
    }
    Ok(pax)
}

/// A ustar header of a file; the same on every machine and day.
///
/// # Errors
/// `Config` for a name above 100 bytes, or a file of 8 GiB or more.
pub fn header(name: &str, size: u64) -> Result<[u8; BLOCK as usize]> {
    if name.len() > 100 || size >= 1 << 33 {
        let what = format!("a member of {size} bytes called `{name}` does not fit a tar header");
        return Err(Error::config(what).with_hint("names have 100 bytes at most, members 8 GiB"));
    }
    let mut block = [0; BLOCK as usize];
    block[..name.len()].copy_from_slice(name.as_bytes());
    let mut octal = |at: usize, digits: usize, value: u64| {
        let text = format!("{value:0digits$o}");
        block[at..at + digits].copy_from_slice(text.as_bytes());
    };
    octal(100, 7, 0o644);
    octal(108, 7, 0);
    octal(116, 7, 0);
    octal(124, 11, size);
    octal(136, 11, 0);
    block[156] = b'0';
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].copy_from_slice(b"        ");
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[148..154].copy_from_slice(format!("{sum:06o}").as_bytes());
    block[154] = 0;
    Ok(block)
}

/// Bytes including padding.
pub const fn padded(size: u64) -> u64 {
    size.saturating_add(BLOCK - 1) / BLOCK * BLOCK
}

/// Key and extension of a member, by WebDataset's rule: split at the first dot of the last part of the name; the
/// extension keeps its case. `None` for names without an extension, hidden files and `__meta__` files.
pub(super) fn split_name(name: &str) -> Option<(&str, &str)> {
    let name = name.trim_start_matches("./");
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name[base..].find('.')?;
    let meta = name.starts_with("__") && name.ends_with("__");
    let found = dot > base && dot + 1 < name.len() && !meta;
    found.then(|| (&name[..dot], &name[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(name: &str, size: u64) -> Header {
        Header { name: name.into(), size, kind: MemberKind::File }
    }

    /// Sets the checksum right again.
    fn signed(mut block: [u8; 512]) -> [u8; 512] {
        block[148..156].copy_from_slice(b"        ");
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }

    #[test]
    fn what_is_written_is_read() {
        for (name, size) in [("a.jpg", 0), ("a/b.seg.png", 12345), (&*"x".repeat(100), (1 << 33) - 1)] {
            assert_eq!(parse_header(&header(name, size).unwrap()).unwrap(), Some(plain(name, size)));
        }
        assert!(header(&"x".repeat(101), 1).is_err() && header("x", 1 << 33).is_err());
        assert_eq!(parse_header(&[0; 512]).unwrap(), None);
    }

    #[test]
    fn the_forms_of_other_writers_are_read() {
        let base = header("name.txt", 5).unwrap();
        let mut prefixed = base;
        prefixed[345..350].copy_from_slice(b"a/b/c");
        assert_eq!(parse_header(&signed(prefixed)).unwrap(), Some(plain("a/b/c/name.txt", 5)));
        let mut gnu = prefixed;
        gnu[257..265].copy_from_slice(b"ustar  \0");
        assert_eq!(parse_header(&signed(gnu)).unwrap(), Some(plain("name.txt", 5)), "GNU keeps other things there");
        let mut large = base;
        large[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1]);
        assert_eq!(parse_header(&signed(large)).unwrap(), Some(plain("name.txt", (3 << 32) + 1)));
        let mut spaced = base;
        spaced[124..136].copy_from_slice(b"       17 \0\0");
        assert_eq!(parse_header(&signed(spaced)).unwrap(), Some(plain("name.txt", 15)));
        for (flag, kind, size) in [
            (b'5', MemberKind::Other, 0),
            (b'2', MemberKind::Link, 0),
            (b'g', MemberKind::Other, 5),
            (b'L', MemberKind::LongName, 5),
        ] {
            let mut other = base;
            other[156] = flag;
            let read = parse_header(&signed(other)).unwrap().unwrap();
            assert_eq!((read.kind, read.size), (kind, size), "{}", flag as char);
        }
        let mut negative = base;
        negative[0] = 0xe4;
        negative[148..156].copy_from_slice(b"        ");
        let sum: i64 = negative.iter().map(|byte| i64::from(*byte as i8)).sum();
        negative[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        assert!(parse_header(&negative).is_ok(), "a sum of signed bytes");
    }

    #[test]
    fn pax_records_name_and_size_the_next_member() {
        let records = b"30 mtime=1700000000.123456789\n15 path=a/b.x\n\n13 size=1234\n\0\0";
        let pax = parse_pax(records).unwrap();
        assert_eq!(pax, Pax { path: Some(b"a/b.x\n".to_vec()), size: Some(1234), sparse: false });
        assert!(parse_pax(b"22 GNU.sparse.major=1\n").unwrap().sparse);
        for bad in [&b"5"[..], b"99 a=b\n", b"2 a=b\n", b"6 a=b-\n", b"6 abc\n", b"x a=b\n", b"12 size=1x3\n"] {
            assert!(parse_pax(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_are_cut_as_webdataset_cuts_them() {
        let cut = |name| split_name(name).map(|(key, extension)| format!("{key}|{extension}"));
        for (name, want) in [
            ("a/b.seg.png", Some("a/b|seg.png")),
            ("./000.JPG", Some("000|JPG")),
            ("a.b/c.txt", Some("a.b/c|txt")),
            ("a.b/c", None),
            ("x/.hidden.jpg", None),
            ("._x.jpg", None),
            ("plain", None),
            ("end.", None),
            ("__info.x__", None),
        ] {
            assert_eq!(cut(name).as_deref(), want, "{name}");
        }
    }

    #[test]
    fn what_is_no_tar_is_told_apart() {
        let error = |start: &[u8]| {
            let mut block = [7; 512];
            block[..start.len()].copy_from_slice(start);
            parse_header(&block).unwrap_err().to_string()
        };
        assert!(error(&[0x1f, 0x8b]).contains("gzip") && error(&[0x28, 0xb5, 0x2f, 0xfd]).contains("zstd"));
        assert!(error(b"what").contains("its checksum is wrong"));
        assert!(parse_header(&[1; 100]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..600), at in 0usize..512, flip in any::<u8>(),
        ) {
            let _ = parse_header(&bytes);
            let _ = parse_pax(&bytes);
            let mut block = header("a.jpg", 77).unwrap();
            block[at] ^= flip;
            let _ = parse_header(&signed(block));
        }
    }
}
