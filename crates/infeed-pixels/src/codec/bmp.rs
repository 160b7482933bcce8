//! BMP: our own parser of Windows' `BITMAPINFOHEADER` family and OS/2's first header.
//!
//! `image` reads all kinds, but brings a colour engine and the formats of a whole editor (an eighth of this crate's
//! first build); the tests compare with it, pixel by pixel. `zune-bmp` 0.5.2 gave other pixels than `image` for made-up
//! files of 1, 2 and 4 bits whose rows end within a byte, and of 16 bits; it refused runs of 4 bits. Neither gives the
//! indices of a palette, which are the labels of a mask.

use std::ops::Range;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

use super::{ImageCodec, ImageHeader, PixelBuffer, corrupt, packed::indices, unsupported};

/// BMP: 1 to 32 bits, palettes, run lengths, bit fields. Gives RGB, or RGBA if the file has an alpha mask.
///
/// ```
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::from_pixel(4, 2, image::Rgb([10, 20, 30])).write_to(&mut file, image::ImageFormat::Bmp).unwrap();
/// # let file = file.into_inner();
/// use infeed::codec::{Bmp, ImageCodec, PixelBuffer};
///
/// // A file of 2 rows of 4 pixels.
/// let header = Bmp.header(&file)?;
/// let mut pixels = PixelBuffer::default();
/// Bmp.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!((header.height, header.width, &pixels.data[..3]), (2, 4, &[10, 20, 30][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Bmp;

impl ImageCodec for Bmp {
    fn name(&self) -> &'static str {
        "bmp"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"BM")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let layout = parse(bytes)?;
        Ok(ImageHeader::from(layout.info).with_own(layout))
    }

    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let mut layout = parse(bytes)?;
        if matches!(layout.coding, Coding::Indices { .. } | Coding::RunLengths { .. }) {
            layout.info.channels = 1;
        }
        Ok(ImageHeader::from(layout.info).with_own(layout))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let layout: &Layout = header.own()?;
        if layout.info != header.info || rows.start > rows.end || rows.end > header.height {
            return Err(Error::new(ErrorKind::Internal, "the header belongs to another BMP"));
        }
        match layout.coding {
            Coding::RunLengths { bits } if layout.info.channels == 1 => unpack_runs(bytes, layout, bits, |n| [n], out),
            Coding::RunLengths { bits } => unpack_runs(bytes, layout, bits, |n| layout.palette[usize::from(n)], out),
            _ => unpack_rows(bytes, layout, rows, out),
        }
    }
}

/// Where things are in a file, and what its bits mean.
#[derive(Clone, Debug)]
struct Layout {
    info: ImageInfo,
    coding: Coding,
    /// Whether the file's first row is the first of the image (otherwise it is the last).
    top_down: bool,
    /// Byte at which the pixels begin.
    pixels_at: usize,
    /// Entries beyond the file's palette are black.
    palette: Box<[[u8; 3]]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Palette indices of 1, 2, 4 or 8 bits.
    Indices { bits: u32 },
    /// Palette indices in runs, 4 or 8 bits each.
    RunLengths { bits: u32 },
    /// Blue, green, red, and an unused byte if there are four.
    Bytes { each: usize },
    /// Words of two or four bytes with bits for red, green, blue and alpha.
    Words { each: usize, fields: [Field; 4] },
}

/// Some of a word's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    shift: u32,
    /// 0 to 8: of longer fields, the upper eight bits are used.
    bits: u32,
}

impl Field {
    fn of(mask: u32) -> Result<Self> {
        if mask == 0 {
            return Ok(Self { shift: 0, bits: 0 });
        }
        let shift = mask.trailing_zeros();
        let bits = (mask >> shift).trailing_ones();
        if bits != mask.count_ones() {
            return Err(corrupt(format!("BMP whose colour mask {mask:#010x} has a gap")));
        }
        let beyond = bits.saturating_sub(8);
        Ok(Self { shift: shift + beyond, bits: bits - beyond })
    }

    /// The field's value, scaled to 0 to 255 and rounded.
    fn value(self, word: u32) -> u8 {
        let most = (1u32 << self.bits) - 1;
        let value = (word >> self.shift) & most;
        ((value * 510 + most) / (2 * most)) as u8
    }
}

/// Longest side that is accepted; other readers have the same limit.
const MAX_SIDE: i32 = 0xffff;

const FILE_HEADER: usize = 14;

fn parse(file: &[u8]) -> Result<Layout> {
    let reader = Reader { file };
    if !file.starts_with(b"BM") {
        return Err(corrupt("BMP without its signature `BM`"));
    }
    let pixels_at = reader.u32(10)? as usize;
    let header = FILE_HEADER;
    let header_len = reader.u32(header)? as usize;
    let old = header_len == 12;
    if !matches!(header_len, 12 | 40 | 52 | 56 | 108 | 124) {
        return Err(unsupported(format!("BMP with a header of {header_len} bytes")));
    }
    let (width, height, planes, bits) = if old {
        let [width, height] = [reader.u16(header + 4)?, reader.u16(header + 6)?].map(i32::from);
        (width, height, reader.u16(header + 8)?, u32::from(reader.u16(header + 10)?))
    } else {
        let [width, height] = [reader.u32(header + 4)?, reader.u32(header + 8)?].map(|side| side as i32);
        (width, height, reader.u16(header + 12)?, u32::from(reader.u16(header + 14)?))
    };
    let (compression, colours) =
        if old { (0, 0) } else { (reader.u32(header + 16)?, reader.u32(header + 32)? as usize) };
    let top_down = height < 0;
    let height = height.checked_abs().unwrap_or(0);
    if width <= 0 || height == 0 || width > MAX_SIDE || height > MAX_SIDE {
        return Err(corrupt(format!("BMP of {width}x{height} pixels; sides are 1 to {MAX_SIDE}")));
    }
    if planes != 1 {
        return Err(corrupt(format!("BMP of {planes} planes; it must be 1")));
    }
    if top_down && !matches!(compression, 0 | 3) {
        return Err(corrupt(format!("BMP of compression {compression} from the top down; only 0 and 3 are allowed")));
    }
    let mut palette_at = header + header_len;
    let coding = match (compression, bits) {
        (0, 1 | 2 | 4 | 8) => Coding::Indices { bits },
        (0, 16) if !old => Coding::Words { each: 2, fields: fields([0x7c00, 0x03e0, 0x001f, 0])? },
        (0, 24) => Coding::Bytes { each: 3 },
        (0, 32) if !old => Coding::Bytes { each: 4 },
        (1, 8) | (2, 4) => Coding::RunLengths { bits },
        (3, 16 | 32) => {
            // After the oldest header, inside the others: the same place.
            let at = header + 40;
            let alpha = if header_len >= 56 { reader.u32(at + 12)? } else { 0 };
            let masks = [reader.u32(at)?, reader.u32(at + 4)?, reader.u32(at + 8)?, alpha];
            if bits == 16 && masks.iter().any(|&mask| mask > 0xffff) {
                return Err(corrupt("BMP of 16 bits a pixel with a colour mask of more bits"));
            }
            if masks[..3].contains(&0) {
                return Err(corrupt("BMP without a mask for each of its colours"));
            }
            palette_at = palette_at.max(at + 12);
            Coding::Words { each: bits as usize / 8, fields: fields(masks)? }
        }
        (4, _) => return Err(unsupported("BMP that holds a JPEG")),
        (5, _) => return Err(unsupported("BMP that holds a PNG")),
        (11..=13, _) => return Err(unsupported("BMP in CMYK")),
        (0..=3, _) => return Err(corrupt(format!("BMP of {bits} bits a pixel in compression {compression}"))),
        _ => return Err(unsupported(format!("BMP of compression {compression}"))),
    };
    let mut palette = Vec::new();
    if let Coding::Indices { bits } | Coding::RunLengths { bits } = coding {
        let most = 1 << bits;
        if colours > most {
            return Err(corrupt(format!("BMP with {colours} colours for {bits} bits a pixel")));
        }
        let (count, each) = (if colours == 0 { most } else { colours }, if old { 3 } else { 4 });
        let entries = reader.bytes(palette_at, count * each)?;
        palette.extend(entries.chunks_exact(each).map(|entry| [entry[2], entry[1], entry[0]]));
        palette.resize(256, [0; 3]);
    }
    let channels = match coding {
        Coding::Words { fields, .. } if fields[3].bits > 0 => 4,
        _ => 3,
    };
    let info = ImageInfo { height: height as u32, width: width as u32, channels, dtype: DType::U8, planar: false };
    Ok(Layout { info, coding, top_down, pixels_at, palette: palette.into() })
}

fn fields(masks: [u32; 4]) -> Result<[Field; 4]> {
    let [red, green, blue, alpha] = masks.map(Field::of);
    Ok([red?, green?, blue?, alpha?])
}

/// Rows of equal length, each at a multiple of four bytes.
fn unpack_rows(file: &[u8], layout: &Layout, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
    let Layout { info, coding, top_down, palette, .. } = layout;
    let reader = Reader { file };
    let width = info.width as usize;
    let bits = match *coding {
        Coding::Indices { bits } | Coding::RunLengths { bits } => bits as usize,
        Coding::Bytes { each } | Coding::Words { each, .. } => 8 * each,
    };
    let (used, pitch) = ((width * bits).div_ceil(8), (width * bits).div_ceil(32) * 4);
    let height = info.height as usize;
    // The whole image must be there, whichever rows are requested. Sides are below 65,536.
    let len = pitch as u64 * (height as u64 - 1) + used as u64;
    let pixels = usize::try_from(len).map_err(|_| cut(file)).and_then(|len| reader.bytes(layout.pixels_at, len))?;
    let row_len = width * usize::from(info.channels);
    let out = out.hold(rows.clone(), rows.len() * row_len)?;
    for (y, out) in rows.map(|y| y as usize).zip(out.chunks_exact_mut(row_len)) {
        let at = if *top_down { y } else { height - 1 - y };
        let row = &pixels[at * pitch..][..used];
        match *coding {
            Coding::Indices { bits } if info.channels == 1 => {
                out.iter_mut().zip(indices(row, bits)).for_each(|(out, index)| *out = index);
            }
            Coding::Indices { bits } => {
                let (out, index) = (out.as_chunks_mut::<3>().0, indices(row, bits));
                out.iter_mut().zip(index).for_each(|(out, index)| *out = palette[usize::from(index)]);
            }
            Coding::Bytes { each } => {
                let (out, pixels) = (out.as_chunks_mut::<3>().0, row.chunks_exact(each));
                out.iter_mut().zip(pixels).for_each(|(out, pixel)| *out = [pixel[2], pixel[1], pixel[0]]);
            }
            Coding::Words { each, fields } => {
                let channels = usize::from(info.channels);
                for (out, word) in out.chunks_exact_mut(channels).zip(row.chunks_exact(each)) {
                    let mut bytes = [0; 4];
                    bytes[..each].copy_from_slice(word);
                    let word = u32::from_le_bytes(bytes);
                    out.iter_mut().zip(fields).for_each(|(out, field)| *out = field.value(word));
                }
            }
            Coding::RunLengths { .. } => {
                return Err(Error::new(ErrorKind::Internal, "run lengths can't be read as rows"));
            }
        }
    }
    Ok(())
}

/// Runs and literal stretches. Pixels outside of both are black.
fn unpack_runs<const N: usize>(
    file: &[u8],
    layout: &Layout,
    bits: u32,
    of: impl Fn(u8) -> [u8; N],
    out: &mut PixelBuffer,
) -> Result<()> {
    let info = &layout.info;
    let (width, height) = (info.width as usize, info.height as usize);
    let out = out.hold(0..info.height, width * height * N)?.as_chunks_mut::<N>().0;
    out.fill([0; N]);
    let reader = Reader { file };
    let mut at = layout.pixels_at;
    // Column, and row from the bottom.
    let (mut x, mut y) = (0, 0);
    while y < height {
        let row = &mut out[(height - 1 - y) * width..][..width];
        let &[count, value] = reader.pair(at)?;
        at += 2;
        let end = x + usize::from(if count > 0 { count } else { value });
        match (count, value) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => return Ok(()),
            (0, 2) => {
                let &[right, up] = reader.pair(at)?;
                at += 2;
                (x, y) = (x + usize::from(right), y + usize::from(up));
                if x > width || y >= height {
                    return Err(corrupt(format!("BMP whose runs leave the image before byte {at}")));
                }
            }
            (0, count) => {
                let len = (usize::from(count) * bits as usize).div_ceil(8);
                let literal = reader.bytes(at, len)?;
                // Padded to whole words.
                at += len.next_multiple_of(2);
                let row = row.get_mut(x..end).ok_or_else(|| beyond(at))?;
                row.iter_mut().zip(indices(literal, bits)).for_each(|(out, n)| *out = of(n));
                x = end;
            }
            (_, value) => {
                // A run of 4 bits alternates between two colours.
                let [one, two] = if bits == 8 { [value, value] } else { [value >> 4, value & 15] };
                let row = row.get_mut(x..end).ok_or_else(|| beyond(at))?;
                let values = [one, two].map(&of);
                row.iter_mut().zip(values.iter().cycle()).for_each(|(out, value)| *out = *value);
                x = end;
            }
        }
    }
    Ok(())
}

fn beyond(at: usize) -> Error {
    corrupt(format!("BMP with a run beyond its row before byte {at}"))
}

/// Reads numbers from a file.
#[derive(Clone, Copy, Debug)]
struct Reader<'a> {
    file: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(self, at: usize, len: usize) -> Result<&'a [u8]> {
        self.file.get(at..).and_then(|rest| rest.get(..len)).ok_or_else(|| cut(self.file))
    }

    fn pair(self, at: usize) -> Result<&'a [u8; 2]> {
        self.file.get(at..).and_then(<[u8]>::first_chunk).ok_or_else(|| cut(self.file))
    }

    fn u16(self, at: usize) -> Result<u16> {
        self.pair(at).copied().map(u16::from_le_bytes)
    }

    fn u32(self, at: usize) -> Result<u32> {
        let bytes = self.file.get(at..).and_then(<[u8]>::first_chunk);
        bytes.copied().map(u32::from_le_bytes).ok_or_else(|| cut(self.file))
    }
}

fn cut(file: &[u8]) -> Error {
    corrupt(format!("BMP ends after {} bytes, before its image is complete", file.len()))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use image::{ImageDecoder, codecs::bmp::BmpDecoder};
    use proptest::prelude::*;

    use super::*;
    use crate::codec::codec_contract;

    /// The pixels that another reader gives.
    fn theirs(file: &[u8]) -> Option<(ImageInfo, Vec<u8>)> {
        let decoder = BmpDecoder::new(Cursor::new(file)).ok()?;
        let (width, height) = decoder.dimensions();
        let channels = decoder.color_type().channel_count();
        let info = ImageInfo { height, width, channels, dtype: DType::U8, planar: false };
        let mut pixels = vec![0; usize::try_from(decoder.total_bytes()).ok().filter(|&len| len < 1 << 20)?];
        decoder.read_image(&mut pixels).ok()?;
        Some((info, pixels))
    }

    fn ours(file: &[u8], rows: Option<Range<u32>>) -> Result<(ImageInfo, Vec<u8>)> {
        let header = Bmp.header(file)?;
        let rows = rows.unwrap_or(0..header.height);
        let row_len = header.width as usize * usize::from(header.channels);
        let mut out = PixelBuffer::default();
        Bmp.decode(file, &header, rows.clone(), &mut out)?;
        let skipped = (rows.start - out.rows.start) as usize * row_len;
        Ok((header.info, out.data[skipped..][..rows.len() * row_len].to_vec()))
    }

    /// A generated file of any kind.
    #[derive(Clone, Debug)]
    struct Made {
        header_len: u32,
        width: i32,
        height: i32,
        bits: u16,
        compression: u32,
        colours: u32,
        masks: [u32; 4],
        noise: Vec<u8>,
    }

    impl Made {
        fn file(&self) -> Vec<u8> {
            let mut header = self.header_len.to_le_bytes().to_vec();
            if self.header_len == 12 {
                for value in [self.width as u16, self.height as u16, 1, self.bits] {
                    header.extend(value.to_le_bytes());
                }
            } else {
                header.extend(self.width.to_le_bytes());
                header.extend(self.height.to_le_bytes());
                header.extend(1u16.to_le_bytes());
                header.extend(self.bits.to_le_bytes());
                for value in [self.compression, 0, 0, 0, self.colours, 0] {
                    header.extend(value.to_le_bytes());
                }
                self.masks.iter().for_each(|mask| header.extend(mask.to_le_bytes()));
                let masks = if self.header_len == 40 && self.compression == 3 { 12 } else { 0 };
                header.resize(self.header_len as usize + masks, 0);
            }
            let mut noise = self.noise.iter().copied().cycle();
            let colours = match (self.bits, self.colours) {
                (16.., _) => 0,
                (bits, 0) => 1 << bits,
                (_, colours) => colours,
            };
            header.extend(noise.by_ref().take(colours as usize * if self.header_len == 12 { 3 } else { 4 }));
            let pixels_at = (FILE_HEADER + header.len()) as u32;
            let pixels = if matches!(self.compression, 1 | 2) {
                self.runs()
            } else {
                let pitch = (self.width as usize * usize::from(self.bits)).div_ceil(32) * 4;
                noise.take(pitch * self.height.unsigned_abs() as usize).collect()
            };
            let mut file = b"BM\0\0\0\0\0\0\0\0".to_vec();
            file.extend(pixels_at.to_le_bytes());
            file.extend(header);
            file.extend(pixels);
            file
        }

        /// Random runs, stretches, jumps and ends of rows that stay within the image.
        fn runs(&self) -> Vec<u8> {
            let mut noise = self.noise.iter().copied().cycle();
            let mut draw = |below: i32| i32::from(noise.next().unwrap_or(0)) % below.max(1);
            let (mut x, mut y, mut out) = (0, 0, Vec::new());
            while y < self.height {
                let left = self.width - x;
                match draw(8) {
                    0 => {
                        out.extend([0, 0]);
                        (x, y) = (0, y + 1);
                    }
                    1 if draw(4) == 0 => {
                        out.extend([0, 1]);
                        return out;
                    }
                    2 => {
                        let (right, up) = (draw(left), draw((self.height - y).min(3)));
                        out.extend([0, 2, right as u8, up as u8]);
                        (x, y) = (x + right, y + up);
                    }
                    3 | 4 if left > 3 => {
                        let count = 3 + draw(left - 3);
                        let len = (count as usize * usize::from(self.bits)).div_ceil(8);
                        out.extend([0, count as u8]);
                        out.extend((0..len).map(|_| draw(256) as u8));
                        out.extend((len % 2 == 1).then_some(0));
                        x += count;
                    }
                    _ if left > 0 => {
                        let count = 1 + draw(left);
                        out.extend([count as u8, draw(256) as u8]);
                        x += count;
                    }
                    _ => {}
                }
            }
            out
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        let kinds = prop_oneof![
            Just((12, 0)).prop_flat_map(|kind| (Just(kind), prop_oneof![Just(1), Just(4), Just(8), Just(24)])),
            Just((40, 0)).prop_flat_map(|kind| {
                (Just(kind), prop_oneof![Just(1), Just(2), Just(4), Just(8), Just(16), Just(24), Just(32)])
            }),
            prop_oneof![Just(((40, 1), 8)), Just(((40, 2), 4)), Just(((108, 1), 8)), Just(((124, 2), 4))],
            prop_oneof![Just(40), Just(52), Just(56), Just(108), Just(124)]
                .prop_flat_map(|len| (Just((len, 3)), prop_oneof![Just(16), Just(32)])),
        ];
        let field = (0..9u32, 1..9u32);
        (kinds, 1..40i32, 1..12i32, any::<bool>(), 0..3u32, [field.clone(), field.clone(), field.clone(), field])
            .prop_flat_map(|(((header_len, compression), bits), width, height, down, colours, fields)| {
                let noise = proptest::collection::vec(any::<u8>(), 200..400);
                let height = if down && header_len != 12 && matches!(compression, 0 | 3) { -height } else { height };
                let colours = if bits <= 8 && header_len != 12 { colours.min(1 << bits) } else { 0 };
                // Contiguous bits, anywhere in the word.
                let masks =
                    fields.map(|(shift, len)| ((1u32 << len) - 1) << (shift * u32::from(bits == 32) * 2 + shift % 9));
                let masks = if bits == 16 { masks.map(|mask| (mask & 0xffff).max(1)) } else { masks };
                noise.prop_map(move |noise| Made {
                    header_len,
                    width,
                    height,
                    bits,
                    compression,
                    colours,
                    masks,
                    noise,
                })
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn another_reader_gives_the_same_pixels(made in made()) {
            let file = made.file();
            let found = ours(&file, None);
            prop_assert!(found.is_ok(), "{found:?}");
            prop_assert_eq!(found.ok(), theirs(&file));
        }

        #[test]
        fn damaged_files_are_errors_or_the_pixels_of_another_reader(
            made in made(),
            places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut file = made.file();
            for (place, value) in places {
                let place = place.index(file.len().min(80));
                file[place] = value;
            }
            if let Some(cut) = cut {
                file.truncate(cut.index(file.len()));
            }
            let small = |info: &ImageHeader| info.len_bytes() < 1 << 20;
            if Bmp.header(&file).is_ok_and(|info| small(&info))
                && let (Ok(ours), Some(theirs)) = (ours(&file, None), theirs(&file))
            {
                prop_assert_eq!(ours, theirs);
            }
        }

        #[test]
        fn rows_are_those_of_the_whole_image(made in made(), ends in any::<[prop::sample::Index; 2]>()) {
            let file = made.file();
            let (info, whole) = ours(&file, None).unwrap();
            let mut ends = ends.map(|end| end.index(info.height as usize + 1) as u32);
            ends.sort_unstable();
            let row_len = info.width as usize * usize::from(info.channels);
            let (_, part) = ours(&file, Some(ends[0]..ends[1])).unwrap();
            prop_assert!(part == whole[ends[0] as usize * row_len..][..part.len()]);
            prop_assert_eq!(part.len(), (ends[1] - ends[0]) as usize * row_len);
        }
    }

    #[test]
    fn a_file_of_each_kind_keeps_the_contract() {
        let noise: Vec<u8> = (0..=255u8).map(|n| n.wrapping_mul(37) ^ (n >> 3)).collect();
        let kinds =
            [(12, 0, 4), (40, 0, 1), (40, 0, 8), (40, 1, 8), (108, 2, 4), (40, 0, 24), (56, 3, 16), (124, 3, 32)];
        let files = kinds.map(|(header_len, compression, bits)| {
            let masks = if bits == 16 { [0xf800, 0x07e0, 0x001f, 0] } else { [0xff, 0xff00, 0xff_0000, 0xff00_0000] };
            let made =
                Made { header_len, width: 29, height: 17, bits, compression, colours: 0, masks, noise: noise.clone() };
            (format!("{bits} bits, compression {compression}, header of {header_len}"), made.file())
        });
        let named: Vec<_> = files.iter().map(|(name, file)| (name.as_str(), file.as_slice())).collect();
        codec_contract(&Bmp, &named);
    }

    #[test]
    fn damage_is_named() {
        let good = Made {
            header_len: 40,
            width: 5,
            height: 3,
            bits: 8,
            compression: 1,
            colours: 0,
            masks: [0; 4],
            noise: (0..=255).collect(),
        };
        let with = |at: usize, value: &[u8]| {
            let mut file = good.file();
            file[at..at + value.len()].copy_from_slice(value);
            file
        };
        let pixels_at = 14 + 40 + 1024;
        for (file, words) in [
            (with(14, &[41]), "header of 41 bytes"),
            (with(18, &[0, 0, 0, 0]), "0x3 pixels"),
            (with(26, &[2]), "2 planes"),
            (with(28, &[7]), "7 bits a pixel"),
            (with(30, &[4]), "holds a JPEG"),
            (with(30, &[99]), "compression 99"),
            (with(46, &[1, 1]), "257 colours"),
            (with(22, &(-3i32).to_le_bytes()), "from the top down"),
            (with(pixels_at, &[200, 1]), "beyond its row before byte 1080"),
            (good.file()[..pixels_at + 1].to_vec(), "ends after 1079 bytes"),
        ] {
            let found = ours(&file, None).unwrap_err().to_string();
            assert!(found.contains(words), "{found}");
        }
    }
}
