//! The kind of a value by its first bytes, if neither a name nor metadata show that it is an image.
//!
//! Formats that hold plain bytes (MDS, TFRecord, Parquet) use this: a picture taken for plain bytes would be left out
//! of batches without a warning. Texts must not be taken for pictures, so two letters alone are never enough.

use infeed_core::{error::Result, types::DType};

use super::tiff::{is_tiff, parse_tiff};

/// A kind of image, and whether one of our codecs reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Picture {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub is_read: bool,
}

/// The kind of image that begins with these bytes; 32 are enough.
pub fn picture(head: &[u8]) -> Option<Picture> {
    let begins = |beginning: &[u8]| head.starts_with(beginning);
    let brand =
        |brands: &[&[u8]]| head.get(4..8) == Some(b"ftyp") && head.get(8..12).is_some_and(|b| brands.contains(&b));
    let known = |name| Some(Picture { name, is_read: true });
    let foreign = |name| Some(Picture { name, is_read: false });
    match () {
        () if begins(b"\xff\xd8\xff") => known("JPEG"),
        () if begins(b"\x89PNG\r\n\x1a\n") => known("PNG"),
        () if begins(b"RIFF") && head.get(8..12) == Some(b"WEBP") => known("WebP"),
        () if is_bmp(head) => known("BMP"),
        () if [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"].iter().any(|beginning| begins(*beginning)) => known("TIFF"),
        () if begins(b"GIF87a") || begins(b"GIF89a") => known("GIF"),
        () if brand(&[b"avif", b"avis"]) => foreign("AVIF"),
        () if brand(&[b"heic", b"heix", b"mif1", b"msf1"]) => foreign("HEIF"),
        () if begins(b"\0\0\0\x0cjP  \r\n\x87\n") || begins(b"\xff\x4f\xff\x51") => foreign("JPEG 2000"),
        () if begins(b"\0\0\0\x0cJXL \r\n\x87\n") => foreign("JPEG XL"),
        () if is_netpbm(head) && head[1] != b'7' => known("PNM"),
        () if is_netpbm(head) => foreign("PAM"),
        () => None,
    }
}

/// The type of the labels in a mask's file: more than 8 bits are possible in PNG, Netpbm and TIFF files. Nothing is
/// decoded.
///
/// # Errors
/// Those of a damaged TIFF.
pub fn depth(file: &[u8]) -> Result<DType> {
    let wide = match file {
        _ if is_tiff(file) => return Ok(parse_tiff(file)?.labels().info.dtype),
        // Signature, length and name of the first chunk, width, height, bits.
        [0x89, b'P', b'N', b'G', rest @ ..] => rest.get(20) == Some(&16),
        [b'P', b'2' | b'3' | b'5' | b'6', ..] => netpbm_most(file).is_some_and(|most| most > 255),
        _ => false,
    };
    Ok(if wide { DType::U16 } else { DType::U8 })
}

/// The type of the labels in some files of a field: the first that is not u8. A damaged file is a bad sample when it is
/// read.
pub fn depth_of<'a>(files: impl IntoIterator<Item = &'a [u8]>) -> DType {
    let known = files.into_iter().filter_map(|file| depth(file).ok());
    known.reduce(wider).unwrap_or(DType::U8)
}

/// The type for labels of both types: they keep their values in one that is larger than u8.
pub fn wider(a: DType, b: DType) -> DType {
    if a == DType::U8 { b } else { a }
}

/// The greatest value of a Netpbm file: the third number, comments skipped.
fn netpbm_most(file: &[u8]) -> Option<u32> {
    let head = file.get(2..file.len().min(4096))?;
    let lines = head.split(|b| *b == b'\n').map(|line| line.split(|b| *b == b'#').next().unwrap_or_default());
    let mut words = lines.flat_map(|line| line.split(u8::is_ascii_whitespace)).filter(|word| !word.is_empty());
    str::from_utf8(words.nth(2)?).ok()?.parse().ok()
}

/// Many texts begin with `BM`, so the bytes after it have to be a valid header too.
fn is_bmp(head: &[u8]) -> bool {
    let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (Some(pixels), Some(header)) = (word(10), word(14)) else { return false };
    head.starts_with(b"BM")
        && matches!(header, 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124)
        && (26..1 << 20).contains(&pixels)
}

/// `P6`, then a line end or a space, then two numbers; or a comment, or the words of `P7`.
fn is_netpbm(head: &[u8]) -> bool {
    let [b'P', kind @ b'1'..=b'7', space, rest @ ..] = head else { return false };
    if !space.is_ascii_whitespace() {
        return false;
    }
    let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    match (kind, words.next()) {
        (b'7', Some(word)) => word.iter().all(u8::is_ascii_uppercase) || word[0] == b'#',
        (_, Some([b'#', ..])) => *space == b'\n',
        (_, Some(width)) => number(width) && words.next().is_some_and(number),
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_known_by_their_first_bytes_and_texts_are_none() {
        let bmp = [&b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"[..], &[0; 40]].concat();
        for (head, name, is_read) in [
            (&b"\xff\xd8\xff\xe0\0\x10JFIF"[..], "JPEG", true),
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG", true),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP", true),
            (&bmp, "BMP", true),
            (b"II*\0\x08\0\0\0", "TIFF", true),
            (b"MM\0+\0\x08\0\0", "TIFF", true),
            (b"GIF89a\x01\0", "GIF", true),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "AVIF", false),
            (b"P6\n4 3\n255\n", "PNM", true),
            (b"P5\n# made by hand\n4 3\n255\n", "PNM", true),
            (b"P7\nWIDTH 4\n", "PAM", false),
        ] {
            assert_eq!(picture(head), Some(Picture { name, is_read }), "{name}");
        }
        for text in [
            &b""[..],
            b"BM",
            b"BMW 320 d touring, blue metallic",
            b"P6 is a street",
            b"P1 2 bedrooms",
            b"P7 is a street",
            b"II*",
            b"RIFF and raff, WEBP",
            b"GIF",
        ] {
            assert_eq!(picture(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
