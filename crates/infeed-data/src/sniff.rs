//! What a value is by its first bytes, where neither a name nor metadata say that it is an image.
//!
//! Formats that hold plain bytes (MDS, TFRecord, Parquet) ask here: a picture that passed for bytes would be left out of
//! batches without a word. Texts must not pass for pictures, so beginnings of two letters count for nothing alone.

/// What begins so, and whether a codec of ours reads it.
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
        () if begins(b"GIF87a") || begins(b"GIF89a") => foreign("GIF"),
        () if brand(&[b"avif", b"avis"]) => foreign("AVIF"),
        () if brand(&[b"heic", b"heix", b"mif1", b"msf1"]) => foreign("HEIF"),
        () if begins(b"\0\0\0\x0cjP  \r\n\x87\n") || begins(b"\xff\x4f\xff\x51") => foreign("JPEG 2000"),
        () if begins(b"\0\0\0\x0cJXL \r\n\x87\n") => foreign("JPEG XL"),
        () if is_netpbm(head) => foreign("PNM"),
        () => None,
    }
}

/// `BM` begins many a text: what follows has to be a header too.
fn is_bmp(head: &[u8]) -> bool {
    let word = |at: usize| Some(u32::from_le_bytes(*head.get(at..)?.first_chunk()?));
    let (Some(pixels), Some(header)) = (word(10), word(14)) else { return false };
    head.starts_with(b"BM")
        && matches!(header, 12 | 16 | 40 | 52 | 56 | 64 | 108 | 124)
        && (26..1 << 20).contains(&pixels)
}

/// `P6`, a line's end or a space, and a width.
fn is_netpbm(head: &[u8]) -> bool {
    let [b'P', b'1'..=b'7', space, rest @ ..] = head else { return false };
    space.is_ascii_whitespace() && rest.first().is_some_and(|b| b.is_ascii_digit() || *b == b'#')
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
            (b"GIF89a\x01\0", "GIF", false),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "AVIF", false),
            (b"P6\n4 3\n255\n", "PNM", false),
        ] {
            assert_eq!(picture(head), Some(Picture { name, is_read }), "{name}");
        }
        for text in [
            &b""[..],
            b"BM",
            b"BMW 320 d touring, blue metallic",
            b"P6 is a street",
            b"II*",
            b"RIFF and raff, WEBP",
            b"GIF",
        ] {
            assert_eq!(picture(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
