//! Netpbm's binary images, as WebDataset writes arrays (`.ppm`, `.pgm`, `.pbm`): pixels behind three numbers.

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    types::{DType, ImageInfo},
};

use super::record::Value;

/// Whether a file begins like one of these.
pub(crate) fn begins(file: &[u8]) -> bool {
    matches!(file, [b'P', b'1'..=b'7', space, ..] if space.is_ascii_whitespace())
}

/// Pixels of a file of `P4`, `P5` or `P6`, brought to all of u8 or u16 as other readers do.
pub(crate) fn parse(file: &Bytes) -> Result<Value> {
    let bad = |what: String| Error::corrupt(what).hint(format!("fetch the file again, or set {SKIP}"));
    let [b'P', kind @ b'1'..=b'7', ..] = file[..] else {
        return Err(bad("no PNM file: it does not begin with P4, P5 or P6".into()));
    };
    let channels = match kind {
        b'4' | b'5' => 1,
        b'6' => 3,
        _ => {
            return Err(Error::new(ErrorKind::Unsupported, format!("a PNM file of P{}", char::from(kind)))
                .hint("write it in binary, as P5 or P6"));
        }
    };
    let mut at = 2;
    let mut numbers = [0, 0, 1];
    for number in &mut numbers[..if kind == b'4' { 2 } else { 3 }] {
        *number = next_number(file, &mut at).ok_or_else(|| bad("the header of a PNM file is damaged".into()))?;
    }
    let [width, height, most] = numbers;
    // One white space ends the header.
    let pixels = file.slice((at + 1).min(file.len())..);
    if !(1..=65_535).contains(&most) {
        return Err(bad(format!("the greatest value is {most}, it is 1 to 65535")));
    }
    let dtype = if most > 255 { DType::U16 } else { DType::U8 };
    let info = ImageInfo { height, width, channels, dtype, planar: false };
    let row =
        if kind == b'4' { (width as usize).div_ceil(8) } else { width as usize * usize::from(channels) * dtype.size() };
    let length = row.checked_mul(height as usize).filter(|length| *length > 0 && *length <= pixels.len());
    let Some(length) = length else {
        return Err(bad(format!("{} bytes of pixels, {width} x {height} take more or none", pixels.len())));
    };
    let pixels = pixels.slice(..length);
    let data = match (kind, most) {
        // A set bit is black.
        (b'4', _) => {
            let of_row = |row: &[u8]| -> Vec<u8> {
                (0..width as usize).map(|x| if row[x / 8] >> (7 - x % 8) & 1 == 1 { 0 } else { 255 }).collect()
            };
            pixels.chunks(row).flat_map(of_row).collect()
        }
        (_, 255) => pixels,
        (_, most) if most < 255 => {
            pixels.iter().map(|v| ((u32::from(*v).min(most) * 255 + most / 2) / most) as u8).collect()
        }
        (_, most) => {
            let wide = |pair: &[u8; 2]| {
                let value = u32::from(u16::from_be_bytes(*pair)).min(most);
                (((u64::from(value) * 65_535) + u64::from(most / 2)) / u64::from(most)) as u16
            };
            pixels.as_chunks::<2>().0.iter().flat_map(|pair| wide(pair).to_ne_bytes()).collect()
        }
    };
    Ok(Value::Pixels { info, data })
}

/// A number behind white space and comments.
fn next_number(file: &[u8], at: &mut usize) -> Option<u32> {
    loop {
        match file.get(*at)? {
            b'#' => *at += file[*at..].iter().position(|b| *b == b'\n')?,
            b if b.is_ascii_whitespace() => *at += 1,
            _ => break,
        }
    }
    let digits = file[*at..].iter().take(10).take_while(|b| b.is_ascii_digit()).count();
    let number = std::str::from_utf8(&file[*at..*at + digits]).ok()?.parse().ok()?;
    *at += digits;
    file.get(*at)?.is_ascii_whitespace().then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pixels(file: &[u8]) -> (u32, u32, u8, DType, Vec<u8>) {
        match parse(&Bytes::copy_from_slice(file)).unwrap() {
            Value::Pixels { info, data } => (info.width, info.height, info.channels, info.dtype, data.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn binary_files_are_pixels() {
        assert_eq!(pixels(b"P6\n1 2\n255\nabcdef"), (1, 2, 3, DType::U8, b"abcdef".to_vec()));
        assert_eq!(pixels(b"P5 # made by hand\n2 1 # size\n15 \x00\x0f"), (2, 1, 1, DType::U8, vec![0, 255]));
        let wide = [0u16, 65_535].map(u16::to_ne_bytes).concat();
        assert_eq!(pixels(b"P5\n2 1\n1023\n\x00\x00\x03\xff"), (2, 1, 1, DType::U16, wide));
        assert_eq!(pixels(b"P4\n9 1\n\x80\x00"), (9, 1, 1, DType::U8, [&[0][..], &[255; 8]].concat()));
        for (file, says) in [
            (&b"P3\n1 1\n255\n1 2 3"[..], "P3"),
            (b"P6\n1 2\n255\nabcde", "5 bytes of pixels"),
            (b"P6\n0 2\n255\nabcde", "take more or none"),
            (b"P6\n4294967295 4294967295\n65535\nabc", "take more or none"),
            (b"P6\n4294967296 1\n255\nabc", "damaged"),
            (b"P5\n1 1\n0\na", "greatest value is 0"),
            (b"P5\n1", "damaged"),
            (b"P5", "damaged"),
            (b"GIF89a", "no PNM"),
        ] {
            let error = parse(&Bytes::from_static(file)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn any_bytes_are_pixels_or_an_error() {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 8).op(0);
        for _ in 0..20_000 {
            let mut bytes = b"P6 # x\n3 2\n255\nabcdefghijklmnopqr".to_vec();
            for _ in 0..1 + draws.below(4) {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] = if draws.chance(0.5) { b'0' + draws.below(10) as u8 } else { draws.bits() as u8 };
            }
            bytes.truncate(draws.below(bytes.len() as u64 + 1) as usize);
            if let Ok(Value::Pixels { info, data }) = parse(&bytes.into()) {
                assert_eq!(data.len() as u64, info.len_bytes());
            }
        }
    }
}
