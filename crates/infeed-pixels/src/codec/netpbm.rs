//! Netpbm images (`.ppm`, `.pgm`, `.pbm`): a short header, then pixels in binary or as text.

use std::ops::Range;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

use super::{ImageCodec, ImageHeader, PixelBuffer, corrupt, packed::indices, unsupported};

/// Netpbm: PBM, PGM and PPM, binary (`P4` to `P6`) and plain (`P1` to `P3`); only the first image of a file. Values are
/// scaled to the full range of u8 or u16, whatever the file's largest value is. Values of masks are not scaled, and a
/// white bit is 1.
///
/// ```
/// use infeed::codec::{ImageCodec, Netpbm, PixelBuffer};
///
/// // Two gray pixels, in a file whose largest value is 15.
/// let file = b"P5 2 1 15 \x00\x0f";
/// let header = Netpbm.header(file)?;
/// let mut pixels = PixelBuffer::default();
/// Netpbm.decode(file, &header, 0..1, &mut pixels)?;
/// assert_eq!((header.height, header.width, &pixels.data[..]), (1, 2, &[0, 255][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Netpbm;

impl ImageCodec for Netpbm {
    fn name(&self) -> &'static str {
        "netpbm"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        matches!(head, [b'P', b'1'..=b'7', space, ..] if space.is_ascii_whitespace())
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let layout = parse(bytes)?;
        Ok(ImageHeader::from(layout.info).with_own(layout))
    }

    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let layout = Layout { labels: true, ..parse(bytes)? };
        Ok(ImageHeader::from(layout.info).with_own(layout))
    }

    fn in_place(&self, bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        let Layout { info, kind, most, at, .. } = parse(bytes)?;
        let as_they_are = matches!(kind, PixelCoding::Bytes) && most == 255;
        Ok(as_they_are.then(|| (info, at..at + info.len_bytes() as usize)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let layout: &Layout = header.own()?;
        if layout.info != header.info || rows.start > rows.end || rows.end > header.height {
            return Err(Error::new(ErrorKind::Internal, "the header belongs to another PNM file"));
        }
        let pixels = bytes.get(layout.at..).unwrap_or_default();
        match layout.kind {
            PixelCoding::Bits | PixelCoding::Bytes => layout.unpack(pixels, rows, out),
            PixelCoding::Digits | PixelCoding::Numbers => layout.read(pixels, out),
        }
    }
}

/// How pixels are stored.
#[derive(Clone, Copy, Debug)]
enum PixelCoding {
    /// Eight pixels in a byte; each row begins a new byte.
    Bits,
    /// A value in one byte, or in two with the higher byte first.
    Bytes,
    /// Characters 0 and 1, with or without spaces between them.
    Digits,
    /// Decimal numbers, separated by spaces.
    Numbers,
}

#[derive(Clone, Copy, Debug)]
struct Layout {
    info: ImageInfo,
    kind: PixelCoding,
    /// The largest value.
    most: u32,
    /// Byte at which the pixels begin.
    at: usize,
    /// Whether values are given unscaled.
    labels: bool,
}

fn parse(file: &[u8]) -> Result<Layout> {
    let [b'P', letter @ b'1'..=b'7', ..] = *file else {
        return Err(corrupt("a PNM file that does not begin with P1 to P6"));
    };
    let (kind, channels) = match letter {
        b'1' => (PixelCoding::Digits, 1),
        b'2' => (PixelCoding::Numbers, 1),
        b'3' => (PixelCoding::Numbers, 3),
        b'4' => (PixelCoding::Bits, 1),
        b'5' => (PixelCoding::Bytes, 1),
        b'6' => (PixelCoding::Bytes, 3),
        _ => return Err(unsupported("a PNM file of P7 (PAM)")),
    };
    let bits = matches!(kind, PixelCoding::Bits | PixelCoding::Digits);
    let mut at = 2;
    let mut numbers = [0, 0, 1];
    for number in &mut numbers[..if bits { 2 } else { 3 }] {
        *number = next_number(file, &mut at)
            .filter(|_| file.get(at).is_some_and(u8::is_ascii_whitespace))
            .ok_or_else(|| corrupt("a PNM file whose header is damaged"))?;
    }
    let [width, height, most] = numbers;
    if !(1..=65_535).contains(&most) {
        return Err(corrupt(format!("a PNM file whose largest value is {most}; it must be 1 to 65535")));
    }
    // One whitespace byte ends the header.
    at += 1;
    let dtype = if most > 255 { DType::U16 } else { DType::U8 };
    let info = ImageInfo { height, width, channels, dtype, planar: false };
    // The least that a row takes: numbers may be longer and have spaces between them.
    let row = match kind {
        PixelCoding::Bits => u64::from(width.div_ceil(8)),
        PixelCoding::Digits | PixelCoding::Numbers => u64::from(width) * u64::from(channels),
        PixelCoding::Bytes => u64::from(width) * u64::from(channels) * dtype.size() as u64,
    };
    let there = file.len().saturating_sub(at) as u64;
    if row.checked_mul(height.into()).is_none_or(|length| length == 0 || length > there) {
        return Err(corrupt(format!("a PNM file with {there} bytes of pixels; {width} x {height} need more or none")));
    }
    Ok(Layout { info, kind, most, at, labels: false })
}

impl Layout {
    /// Rows of a binary file; all pixels are there.
    fn unpack(&self, pixels: &[u8], rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let Self { info, kind, .. } = *self;
        let values = info.width as usize * usize::from(info.channels);
        let (from, to) = match kind {
            PixelCoding::Bits => (values.div_ceil(8), values),
            _ => (values * info.dtype.size(), values * info.dtype.size()),
        };
        let [start, end] = [rows.start, rows.end].map(|row| row as usize);
        let pixels = pixels.get(start * from..end * from).ok_or_else(|| corrupt("a PNM file that ends early"))?;
        let out = out.hold(rows, (end - start) * to)?;
        for (out, row) in out.chunks_exact_mut(to).zip(pixels.chunks_exact(from)) {
            match (kind, info.dtype) {
                (PixelCoding::Bits, _) => {
                    out.iter_mut().zip(indices(row, 1)).for_each(|(out, bit)| *out = self.white(bit))
                }
                (_, DType::U16) => {
                    for (out, pair) in out.as_chunks_mut().0.iter_mut().zip(row.as_chunks().0) {
                        *out = (self.value(u16::from_be_bytes(*pair).into()) as u16).to_ne_bytes();
                    }
                }
                _ => out.iter_mut().zip(row).for_each(|(out, value)| *out = self.value((*value).into()) as u8),
            }
        }
        Ok(())
    }

    /// All pixels of a plain file.
    fn read(&self, text: &[u8], out: &mut PixelBuffer) -> Result<()> {
        let Self { info, kind, .. } = *self;
        let count = info.len_bytes() as usize / info.dtype.size();
        let ends = |n: usize| move || corrupt(format!("a PNM file with {n} of its {count} values"));
        let out = out.hold(0..info.height, info.len_bytes() as usize)?;
        let mut at = 0;
        for n in 0..count {
            let value = match kind {
                PixelCoding::Digits => {
                    let digit = next_digit(text, &mut at).ok_or_else(ends(n))?;
                    at += 1;
                    u32::from(self.white(digit))
                }
                _ => self.value(next_number(text, &mut at).ok_or_else(ends(n))?),
            };
            match info.dtype {
                DType::U16 => out[2 * n..2 * n + 2].copy_from_slice(&(value as u16).to_ne_bytes()),
                _ => out[n] = value as u8,
            }
        }
        Ok(())
    }

    /// The value of a bit; a set bit is black.
    const fn white(&self, bit: u8) -> u8 {
        match (bit, self.labels) {
            (0, false) => 255,
            (0, true) => 1,
            _ => 0,
        }
    }

    /// Scaled to 0 to 255 or 65,535, rounded.
    fn value(&self, stored: u32) -> u32 {
        let (stored, most) = (stored.min(self.most), self.most);
        let white = if most > 255 { 65_535 } else { 255 };
        if self.labels || most == white {
            return stored;
        }
        // At most 65,535 * 65,535 plus half of 65,535.
        ((u64::from(stored) * u64::from(white) + u64::from(most / 2)) / u64::from(most)) as u32
    }
}

/// Skips whitespace and comments.
fn skip(file: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        match *file.get(*at)? {
            b'#' => *at += file[*at..].iter().position(|b| *b == b'\n')?,
            b if b.is_ascii_whitespace() => *at += 1,
            b => return Some(b),
        }
    }
}

fn next_digit(file: &[u8], at: &mut usize) -> Option<u8> {
    skip(file, at).filter(|b| matches!(b, b'0' | b'1')).map(|b| b - b'0')
}

fn next_number(file: &[u8], at: &mut usize) -> Option<u32> {
    skip(file, at)?;
    let digits = file[*at..].iter().take(10).take_while(|b| b.is_ascii_digit()).count();
    let number = str::from_utf8(&file[*at..*at + digits]).ok()?.parse().ok()?;
    *at += digits;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::codec_contract;

    fn decoded(file: &[u8], mask: bool) -> Result<(ImageInfo, Vec<u8>)> {
        let header = if mask { Netpbm.mask_header(file) } else { Netpbm.header(file) }?;
        let mut out = PixelBuffer::default();
        Netpbm.decode(file, &header, 0..header.height, &mut out)?;
        Ok((header.info, out.data))
    }

    fn pixels(file: &[u8]) -> (u32, u32, u8, DType, Vec<u8>) {
        let (info, data) = decoded(file, false).unwrap();
        (info.width, info.height, info.channels, info.dtype, data)
    }

    #[test]
    fn files_are_pixels() {
        assert_eq!(pixels(b"P6\n1 2\n255\nabcdef"), (1, 2, 3, DType::U8, b"abcdef".to_vec()));
        assert_eq!(pixels(b"P5 # made by hand\n2 1 # size\n15 \x00\x0f"), (2, 1, 1, DType::U8, vec![0, 255]));
        let wide = [0u16, 65_535].map(u16::to_ne_bytes).concat();
        assert_eq!(pixels(b"P5\n2 1\n1023\n\x00\x00\x03\xff"), (2, 1, 1, DType::U16, wide.clone()));
        assert_eq!(pixels(b"P4\n9 1\n\x80\x00"), (9, 1, 1, DType::U8, [&[0][..], &[255; 8]].concat()));
        assert_eq!(pixels(b"P1\n3 2\n101\n0 1 # more\n0\n"), (3, 2, 1, DType::U8, vec![0, 255, 0, 255, 0, 255]));
        assert_eq!(pixels(b"P2 2 1 1023 0 1023"), (2, 1, 1, DType::U16, wide));
        assert_eq!(pixels(b"P3\n1 1\n255\n1 2 3"), (1, 1, 3, DType::U8, vec![1, 2, 3]));
        for (file, says) in [
            (&b"P7\nWIDTH 1\n"[..], "P7"),
            (b"P3\n1 1\n255\n1 2 x", "2 of its 3 values"),
            (b"P1\n2 1\n1 2", "1 of its 2 values"),
            (b"P6\n1 2\n255\nabcde", "5 bytes of pixels"),
            (b"P6\n0 2\n255\nabcde", "need more or none"),
            (b"P6\n4294967295 4294967295\n65535\nabc", "need more or none"),
            (b"P6\n4294967296 1\n255\nabc", "damaged"),
            (b"P5\n1 1\n0\na", "largest value is 0"),
            (b"P5\n1", "damaged"),
            (b"P5", "damaged"),
            (b"GIF89a", "does not begin"),
        ] {
            let error = decoded(file, false).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn labels_are_as_they_are_stored() {
        for (file, labels) in [
            (&b"P5 3 1 20 \x00\x07\x14"[..], &[0, 7, 20][..]),
            (b"P2 3 1 20 0 7 20", &[0, 7, 20]),
            (b"P4\n3 1\n\x40", &[1, 0, 1]),
            (b"P1\n3 1\n010", &[1, 0, 1]),
        ] {
            assert_eq!(decoded(file, true).unwrap().1, labels);
        }
        let wide = decoded(b"P5 1 1 1000 \x01\x02", true).unwrap();
        assert_eq!((wide.0.dtype, wide.1), (DType::U16, 0x102u16.to_ne_bytes().to_vec()));
    }

    #[test]
    fn files_keep_the_contract() {
        let noise: Vec<u8> = (0..7 * 5 * 6u32).map(|n| (n * 37 % 251) as u8).collect();
        let made = |head: &str, len: usize| [head.as_bytes(), &noise[..len]].concat();
        // All numbers have one digit, since a cut within the last number can't be detected.
        let words = |head: &str, count: usize| {
            let numbers = noise[..count].iter().map(|n| format!(" {}", n % 10));
            [head.to_owned(), numbers.collect()].concat().into_bytes()
        };
        let files = [
            ("P6", made("P6\n7 5\n255\n", 105)),
            ("P6 of 16 bits", made("P6\n7 5\n999\n", 210)),
            ("P5", made("P5 7 5 99 ", 35)),
            ("P4", made("P4 7 5 ", 5)),
            ("P3", words("P3 7 5 9", 105)),
            ("P1", [&b"P1 7 5 "[..], &[b'0', b'1'].repeat(18)[..35]].concat()),
        ];
        codec_contract(&Netpbm, &files.each_ref().map(|(name, file)| (*name, &file[..])));
    }
}
