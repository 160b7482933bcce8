//! EXIF data in image files: a small TIFF, of which only the orientation is used.

use crate::tiff::{is_tiff, orientation_of};

/// The EXIF data of a JPEG, PNG or WebP.
#[must_use]
pub fn exif_of(file: &[u8]) -> Option<&[u8]> {
    match file {
        [0xff, 0xd8, rest @ ..] => of_jpeg(rest),
        [0x89, b'P', b'N', b'G', _, _, _, _, rest @ ..] => of_png(rest),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', rest @ ..] => of_webp(rest),
        _ => None,
    }
}

/// That of a segment before the data of the image.
fn of_jpeg(mut rest: &[u8]) -> Option<&[u8]> {
    while let [0xff, marker, high, low, ..] = *rest
        && marker != 0xda
    {
        let end = 2 + usize::from(u16::from_be_bytes([high, low]));
        match rest.get(4..end)?.strip_prefix(b"Exif\0\0") {
            Some(exif) if marker == 0xe1 => return Some(exif),
            _ => rest = &rest[end..],
        }
    }
    None
}

/// That of a chunk, which may follow the pixels.
fn of_png(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some(([a, b, c, d, kind @ ..], body)) = rest.split_first_chunk::<8>() {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        match (kind, body.get(..len)) {
            (b"eXIf", Some(exif)) => return Some(exif),
            (b"IEND", _) => break,
            _ => {}
        }
        // Skip the checksum.
        rest = body.get(len.saturating_add(4)..).unwrap_or_default();
    }
    None
}

/// That of a chunk. Some writers begin it with the prefix that JPEG uses.
fn of_webp(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some(([kind @ .., a, b, c, d], body)) = rest.split_first_chunk::<8>() {
        let len = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        if let (b"EXIF", Some(exif)) = (kind, body.get(..len)) {
            return Some(exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
        }
        rest = body.get(len.saturating_add(len % 2)..).unwrap_or_default();
    }
    None
}

/// Whether a file says that its image lies on a side: that height and width are exchanged when it is turned upright.
pub(crate) fn is_on_a_side(file: &[u8]) -> bool {
    let tiff = if is_tiff(file) { Some(file) } else { exif_of(file) };
    tiff.and_then(orientation_of).is_some_and(|orientation| (5..=8).contains(&orientation))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_on_a_side_are_known_in_each_kind_of_file_and_damage_is_none() {
        let exif = |orientation: u8| {
            [&b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"[..], &[orientation, 0, 0, 0], &[0; 4]].concat()
        };
        let prefixed = |tiff: &[u8]| [b"Exif\0\0", tiff].concat();
        let jpeg = |tiff: &[u8]| {
            let body = prefixed(tiff);
            let length = (body.len() as u16 + 2).to_be_bytes();
            [&b"\xff\xd8\xff\xe0\0\x04ab\xff\xe1"[..], &length, &body, b"\xff\xda\0\x02"].concat()
        };
        let png = |tiff: &[u8]| {
            let length = (tiff.len() as u32).to_be_bytes();
            [&b"\x89PNG\r\n\x1a\n\0\0\0\x01tEXtxcrc!"[..], &length, b"eXIf", tiff, b"crc!\0\0\0\0IENDcrc!"].concat()
        };
        let webp = |body: &[u8]| {
            let length = (body.len() as u32).to_le_bytes();
            [&b"RIFF....WEBPVP8 \x01\0\0\0x\0EXIF"[..], &length, body].concat()
        };
        for orientation in 1..=8 {
            let tiff = exif(orientation);
            for file in [jpeg(&tiff), png(&tiff), webp(&tiff), webp(&prefixed(&tiff)), tiff.clone()] {
                assert_eq!(is_on_a_side(&file), orientation > 4, "{orientation} {file:?}");
                (0..file.len()).for_each(|end| _ = is_on_a_side(&file[..end]));
            }
        }
        assert!(!is_on_a_side(b"\xff\xd8\xff\xda") && !is_on_a_side(b"BM") && !is_on_a_side(b""));
    }
}
