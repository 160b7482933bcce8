//! TIFF with any number of channels: our own parser of its layout (`dataset::tiff`), our own LZW and JPEG, crates for
//! Deflate and Zstandard.
//!
//! Why not the `tiff` crate: it gives only the first plane of planar files, and reads pages one by one. The tests
//! compare both.

use std::{io::Read, ops::Range, sync::Once};

use half::f16;
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    types::{DType, ImageInfo},
};
use infeed_data::tiff::{Colours, Compression, Page, Predictor, Stored, Tiff as Layout, is_tiff, parse_tiff};

use super::{
    ImageCodec, ImageHeader, PixelBuffer, cause, corrupt,
    lzw::{Damage, Lzw},
    unsupported,
};

/// TIFF and BigTIFF: 1 to 255 channels; interleaved, planar or one page for each channel; strips and tiles; plain, LZW,
/// Deflate, PackBits, Zstandard, JPEG (with the feature `jpeg`); predictors; both byte orders.
///
/// Values of u8, u16 and f32 are given as they are stored. Other types are converted:
///
/// - i8, i16 and f16 become f32, without loss.
/// - i32, u32, i64 and u64 become f32. A value that f32 can't hold makes the file unsupported; all values up to 2^24
///   fit.
/// - f64 is rounded to f32.
/// - Values of 1, 2 and 4 bits become u8, scaled to 0 to 255.
/// - Gray images in which 0 is white are inverted, palettes become RGB, and colours that were multiplied by their alpha
///   are divided by it.
///
/// CMYK, Lab and other colours are refused, and so are stacks: files whose metadata (OME-XML, ImageJ, tifffile) says
/// that their pages are slices or time points.
///
/// A plain file in the machine's byte order is read [in place](ImageCodec::in_place).
///
/// ```
/// # let mut file = b"II*\0\x08\0\0\0".to_vec();
/// # let entries = [[256, 2], [257, 2], [258, 8], [259, 1], [262, 1], [273, 122], [277, 1], [278, 2], [279, 4]];
/// # file.extend((entries.len() as u16).to_le_bytes());
/// # for [tag, value] in entries {
/// #     file.extend([tag as u16, 3].map(u16::to_le_bytes).concat());
/// #     file.extend([1, value].map(u32::to_le_bytes).concat());
/// # }
/// # file.extend([0, 0, 0, 0, 11, 12, 21, 22]);
/// use infeed::codec::{ImageCodec, Tiff};
///
/// // Two rows of two gray values, uncompressed: they are read in place.
/// let (info, at) = Tiff.in_place(&file)?.expect("a plain file");
/// assert_eq!((info.height, info.width, info.channels), (2, 2, 1));
/// assert_eq!(file[at], [11, 12, 21, 22]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiff;

impl ImageCodec for Tiff {
    fn name(&self) -> &'static str {
        "tiff"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        is_tiff(head)
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        Ok(header_of(parse_tiff(bytes)?, bytes))
    }

    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        Ok(header_of(parse_tiff(bytes)?.labels(), bytes))
    }

    fn in_place(&self, bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        let layout = parse_tiff(bytes)?;
        Ok(layout.in_place(bytes).map(|pixels| (layout.info, pixels)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let layout: &Layout = header.own()?;
        if layout.info != header.info || rows.start > rows.end || rows.end > header.height {
            return Err(Error::new(ErrorKind::Internal, "the header belongs to another TIFF"));
        }
        let scratch = std::mem::take(&mut out.scratch);
        let mut unpacker = Unpacker { chunk: scratch, ..Unpacker::default() };
        let done = decode(bytes, layout, rows, &mut unpacker, out);
        out.scratch = unpacker.chunk;
        done
    }
}

fn header_of(layout: Layout, bytes: &[u8]) -> ImageHeader {
    // Warn once: a dataset has thousands of them.
    static ROUNDED: Once = Once::new();
    if layout.stored == Stored::Whole(DType::F64) {
        ROUNDED.call_once(|| tracing::warn!("TIFFs hold f64 values: they are rounded to f32"));
    }
    let info = layout.info;
    // Whole chunks of rows, and one unpacked chunk. A JPEG chunk is copied together with its tables, and needs planes
    // or coefficients of twice the size.
    let jpeg = layout.pages.iter().any(|page| page.compression == Compression::Jpeg);
    let (chunks, copies) = if jpeg { (5, 4) } else { (2, 0) };
    let beside = layout.chunk_bytes().saturating_mul(chunks).saturating_add(copies * bytes.len() as u64);
    let peak_bytes = info.len_bytes().saturating_add(beside);
    ImageHeader::from(info).with_peak_bytes(peak_bytes).with_own(layout)
}

/// Fills `out` with `rows` of each plane.
fn decode(
    file: &[u8],
    layout: &Layout,
    rows: Range<u32>,
    unpacker: &mut Unpacker,
    out: &mut PixelBuffer,
) -> Result<()> {
    let info = &layout.info;
    let (pixel, held) = (layout.pixel_bytes(), rows.len());
    let pitch = info.width as usize * pixel;
    let pixels = out.hold(rows.clone(), held * pitch * layout.planes())?;
    if held == 0 {
        return Ok(());
    }
    for (plane, pixels) in pixels.chunks_exact_mut(held * pitch).enumerate() {
        let (page, first) = layout.plane(plane);
        let across = page.across();
        for y in rows.start / page.chunk_height..rows.end.div_ceil(page.chunk_height) {
            let chunk_rows = layout.chunk_rows(page, y);
            let top = y * page.chunk_height;
            // The requested part of the chunk. In the last tile, row numbers may exceed u32.
            let wanted = rows.start.max(top)..rows.end.min(top.saturating_add(chunk_rows));
            for x in 0..across {
                let n = first + y as usize * across + x;
                let packed = page.chunk(file, layout.big_endian, n).and_then(|at| file.get(at));
                let packed = packed.ok_or_else(|| corrupt("a TIFF whose pixels are beyond its end"))?;
                let chunk_pitch = page.chunk_pitch() as usize;
                let left = x * page.chunk_width as usize * pixel;
                let len = (page.chunk_width as usize * pixel).min(pitch - left);
                let chunk = unpacker.unpack(file, page, packed, chunk_rows)?;
                if let Stored::Whole(dtype) = layout.stored {
                    undo(page.predictor, chunk, chunk_pitch, page.chunk_samples(), dtype, layout.big_endian);
                }
                for row in wanted.clone() {
                    let from = &chunk[(row - top) as usize * chunk_pitch..][..chunk_pitch];
                    let to = (row - rows.start) as usize * pitch + left;
                    widen(layout.stored, &layout.colours, from, &mut pixels[to..to + len])?;
                }
            }
        }
    }
    match layout.colours {
        // Also right for u16: all bits of the largest value are ones.
        Colours::Inverted => pixels.iter_mut().for_each(|byte| *byte = !*byte),
        Colours::Premultiplied(colours) => divide_by_alpha(info, colours.into(), pixels),
        Colours::Plain | Colours::Palette(_) | Colours::Labels(_) => {}
    }
    Ok(())
}

/// Converts the stored values of a row; `out` may end before the row does.
fn widen(stored: Stored, colours: &Colours, row: &[u8], out: &mut [u8]) -> Result<()> {
    let floats = |out: &mut [u8], value: &dyn Fn(usize) -> f32| {
        for (n, out) in out.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            *out = value(n).to_ne_bytes();
        }
    };
    match (stored, colours) {
        (Stored::Whole(DType::U8), Colours::Palette(palette)) => {
            out.as_chunks_mut::<3>().0.iter_mut().zip(row).for_each(|(out, at)| *out = palette[usize::from(*at)]);
        }
        (Stored::Bits(bits), colours) => {
            let each = usize::from(8 / bits);
            let most = u8::MAX >> (8 - bits);
            let value = |n: usize| row[n / each] >> (usize::from(bits) * (each - 1 - n % each)) & most;
            match colours {
                Colours::Palette(palette) => {
                    let pixels = out.as_chunks_mut::<3>().0.iter_mut().enumerate();
                    pixels.for_each(|(n, out)| *out = palette[usize::from(value(n))]);
                }
                Colours::Labels(flipped) => out.iter_mut().enumerate().for_each(|(n, out)| *out = value(n) ^ flipped),
                // The largest values 1, 3 and 15 divide 255.
                _ => out.iter_mut().enumerate().for_each(|(n, out)| *out = value(n) * (255 / most)),
            }
        }
        (Stored::Whole(DType::I8), _) => floats(out, &|n| f32::from(row[n] as i8)),
        (Stored::Whole(DType::I16), _) => floats(out, &|n| f32::from(i16::from_ne_bytes([row[2 * n], row[2 * n + 1]]))),
        (Stored::Whole(DType::F16), _) => floats(out, &|n| f16::from_ne_bytes([row[2 * n], row[2 * n + 1]]).to_f32()),
        (Stored::Whole(DType::I32), _) => return wide(row, out, |bytes| exact(i32::from_ne_bytes(bytes).into())),
        (Stored::Whole(DType::U32), _) => return wide(row, out, |bytes| exact(u32::from_ne_bytes(bytes).into())),
        (Stored::Whole(DType::I64), _) => return wide(row, out, |bytes| exact(i64::from_ne_bytes(bytes).into())),
        (Stored::Whole(DType::U64), _) => return wide(row, out, |bytes| exact(u64::from_ne_bytes(bytes).into())),
        (Stored::Whole(DType::F64), _) => {
            return wide(row, out, |bytes| {
                let value = f64::from_ne_bytes(bytes);
                let rounded = value as f32;
                (rounded.is_finite() || !value.is_finite()).then_some(rounded).ok_or_else(|| format!("{value:e}"))
            });
        }
        (Stored::Whole(_), _) => out.copy_from_slice(&row[..out.len()]),
    }
    Ok(())
}

/// Values of a row as f32; `of` converts one from its `N` bytes. Fails with the first value that f32 can't hold.
fn wide<const N: usize>(row: &[u8], out: &mut [u8], of: impl Fn([u8; N]) -> Result<f32, String>) -> Result<()> {
    for (out, value) in out.as_chunks_mut::<4>().0.iter_mut().zip(row.as_chunks::<N>().0) {
        let value = of(*value).map_err(|value| {
            Error::new(ErrorKind::Unsupported, format!("a TIFF with the value {value}, which f32 does not hold"))
                .with_hint(format!(
                    "f32 holds whole numbers up to 2^24: renumber the labels, scale the values, or set {SKIP}"
                ))
        })?;
        *out = value.to_ne_bytes();
    }
    Ok(())
}

/// A whole number of at most 64 bits, if f32 holds it exactly.
fn exact(value: i128) -> Result<f32, String> {
    let float = value as f32;
    (float as i128 == value).then_some(float).ok_or_else(|| value.to_string())
}

/// Undoes the multiplication of colours by their alpha, the last channel; black if the alpha is 0.
fn divide_by_alpha(info: &ImageInfo, colours: usize, pixels: &mut [u8]) {
    let (size, channels) = (info.dtype.size(), usize::from(info.channels));
    let count = pixels.len() / (size * channels);
    let at = |pixel: usize, channel: usize| {
        size * if info.planar { channel * count + pixel } else { pixel * channels + channel }
    };
    for pixel in 0..count {
        let alpha = at(pixel, colours);
        for colour in (0..colours).map(|colour| at(pixel, colour)) {
            match info.dtype {
                DType::U8 => {
                    let (value, alpha) = (u32::from(pixels[colour]), u32::from(pixels[alpha]));
                    pixels[colour] = (value * 255 + alpha / 2).checked_div(alpha).unwrap_or(0).min(255) as u8;
                }
                DType::U16 => {
                    let [value, alpha] =
                        [colour, alpha].map(|at| u64::from(u16::from_ne_bytes([pixels[at], pixels[at + 1]])));
                    let value = (value * 65_535 + alpha / 2).checked_div(alpha).unwrap_or(0).min(65_535) as u16;
                    pixels[colour..colour + 2].copy_from_slice(&value.to_ne_bytes());
                }
                _ => {
                    let float = |at: usize| pixels[at..].first_chunk().map_or(0.0, |bytes| f32::from_ne_bytes(*bytes));
                    let value = if float(alpha) == 0.0 { 0.0 } else { float(colour) / float(alpha) };
                    pixels[colour..colour + 4].copy_from_slice(&value.to_ne_bytes());
                }
            }
        }
    }
}

/// Unpacks chunks, in memory that is kept from chunk to chunk.
#[derive(Default)]
struct Unpacker {
    chunk: Vec<u8>,
    lzw: Option<Lzw>,
    inflate: Option<flate2::Decompress>,
    zstd: Option<Box<ruzstd::decoding::FrameDecoder>>,
    #[cfg(feature = "jpeg")]
    jpeg: Jpegs,
}

impl Unpacker {
    /// The first `rows` rows of `packed`, a chunk of a page of the file.
    fn unpack(&mut self, file: &[u8], page: &Page, packed: &[u8], rows: u32) -> Result<&mut [u8]> {
        let len = rows as usize * page.chunk_pitch() as usize;
        if self.chunk.len() < len {
            self.chunk.resize(len, 0);
        }
        let Self { chunk, lzw, inflate, zstd, .. } = self;
        let out = &mut chunk[..len];
        let filled = match page.compression {
            Compression::None => {
                let n = packed.len().min(len);
                out[..n].copy_from_slice(&packed[..n]);
                n
            }
            Compression::PackBits => unpack_bits(packed, out),
            Compression::Lzw => lzw.get_or_insert_default().unpack(packed, out).map_err(|damage| match damage {
                Damage::Old => unsupported("a TIFF with LZW codes in the bit order from before TIFF 6.0"),
                Damage::NoEntry { code, byte } => corrupt(format!(
                    "a TIFF with damaged LZW data: the code {code} near byte {byte} of a chunk is not in the table"
                )),
            })?,
            Compression::Deflate => {
                let decoder = inflate.get_or_insert_with(|| flate2::Decompress::new(true));
                decoder.reset(true);
                let status = decoder.decompress(packed, out, flate2::FlushDecompress::Finish);
                status.map_err(|e| corrupt("a TIFF with damaged Deflate data").with_source(cause(e.to_string())))?;
                decoder.total_out() as usize
            }
            Compression::Zstd => {
                let wrong = |words: String| corrupt("a TIFF with damaged Zstandard data").with_source(cause(words));
                let decoder = zstd.get_or_insert_default();
                // A frame refers back within this window. It needs no more than the chunk, whatever the frame claims,
                // but at least the size that Zstandard's writers use.
                decoder.set_max_window_size((len as u64).max(8 << 20));
                let mut packed = packed;
                let frame = ruzstd::decoding::StreamingDecoder::new_with_decoder(&mut packed, &mut **decoder);
                let mut frame = frame.map_err(|e| wrong(e.to_string()))?;
                let mut filled = 0;
                while filled < len {
                    match frame.read(&mut out[filled..]).map_err(|e| wrong(e.to_string()))? {
                        0 => break,
                        n => filled += n,
                    }
                }
                filled
            }
            #[cfg(feature = "jpeg")]
            Compression::Jpeg => {
                let tables = page.jpeg_tables.clone().and_then(|at| file.get(at)).unwrap_or_default();
                self.jpeg.unpack(tables, page, packed, rows, out)?;
                len
            }
            #[cfg(not(feature = "jpeg"))]
            Compression::Jpeg => {
                let _ = (file, &page.jpeg_tables, page.ycbcr);
                return Err(unsupported("a TIFF packed as JPEG, in a build without the feature `jpeg`"));
            }
        };
        if filled < len {
            return Err(corrupt(format!("a TIFF with a chunk of {filled} bytes, but {len} are needed")));
        }
        Ok(&mut self.chunk[..len])
    }
}

/// Chunks that are JPEGs (TIFF Technical Note 2). Their tables are stored once for all chunks.
#[cfg(feature = "jpeg")]
#[derive(Default)]
struct Jpegs {
    /// A chunk together with its tables.
    whole: Vec<u8>,
    scratch: infeed_jpeg::Scratch,
}

#[cfg(feature = "jpeg")]
impl Jpegs {
    fn unpack(&mut self, tables: &[u8], page: &Page, packed: &[u8], rows: u32, out: &mut [u8]) -> Result<()> {
        let wrong = |what: String| corrupt(format!("a TIFF with a chunk that is not the right JPEG: {what}"));
        let inside = |file: &[u8]| file.strip_prefix(&[0xff, 0xd8]).unwrap_or(file).to_vec();
        let tables = inside(tables);
        let Self { whole, scratch } = self;
        whole.clear();
        whole.extend([0xff, 0xd8]);
        // The TIFF declares the colours: a JFIF marker for YCbCr, Adobe's marker for colours as they are stored.
        match page.ycbcr {
            true => whole.extend(b"\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
            false => whole.extend(b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0"),
        }
        whole.extend(tables.strip_suffix(&[0xff, 0xd9]).unwrap_or(&tables));
        whole.extend(inside(packed));
        let failed = |error: infeed_jpeg::Error| wrong(error.to_string()).with_source(error);
        let header = infeed_jpeg::Header::parse(whole).map_err(failed)?;
        let channels = page.chunk_samples();
        let colour = match channels {
            1 => infeed_jpeg::Colour::Gray,
            _ if page.ycbcr => infeed_jpeg::Colour::YCbCr,
            _ => infeed_jpeg::Colour::Rgb,
        };
        let size = [header.width(), header.height()];
        if header.colour() != colour || header.channels() != channels || size[0] != page.chunk_width || size[1] < rows {
            let (here, width) = (header.colour(), page.chunk_width);
            let [w, h] = size;
            return Err(wrong(format!("{here:?} of {w}x{h} pixels, where {colour:?} of {width}x{rows} is needed")));
        }
        infeed_jpeg::Decoder::new().pixels(whole, &header, 0..rows, scratch, out).map_err(failed)
    }
}

/// PackBits (TIFF 6.0, section 9). Returns the number of bytes, at most as many as `out` holds.
fn unpack_bits(mut packed: &[u8], out: &mut [u8]) -> usize {
    let mut filled = 0;
    while let [head, rest @ ..] = packed {
        let free = out.len() - filled;
        if free == 0 {
            break;
        }
        match *head as i8 {
            // A no-op, used as padding.
            -128 => packed = rest,
            n @ 0.. => {
                let len = (n as usize + 1).min(rest.len());
                let take = len.min(free);
                out[filled..filled + take].copy_from_slice(&rest[..take]);
                (filled, packed) = (filled + take, &rest[len..]);
            }
            n => {
                let Some((byte, rest)) = rest.split_first() else { break };
                let take = (1 - isize::from(n)).unsigned_abs().min(free);
                out[filled..filled + take].fill(*byte);
                (filled, packed) = (filled + take, rest);
            }
        }
    }
    filled
}

/// Converts stored values of a chunk to native ones: byte order, then the predictor.
fn undo(predictor: Predictor, chunk: &mut [u8], pitch: usize, samples: usize, dtype: DType, big_endian: bool) {
    let size = dtype.size();
    if predictor == Predictor::Float {
        let mut bytes = vec![0; pitch];
        for row in chunk.chunks_exact_mut(pitch) {
            match size {
                2 => undo_float::<2>(row, samples, &mut bytes),
                4 => undo_float::<4>(row, samples, &mut bytes),
                _ => undo_float::<8>(row, samples, &mut bytes),
            }
        }
        return;
    }
    if size > 1 && big_endian != cfg!(target_endian = "big") {
        chunk.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if predictor == Predictor::Horizontal {
        for row in chunk.chunks_exact_mut(pitch) {
            match size {
                1 => (samples..row.len()).for_each(|i| row[i] = row[i].wrapping_add(row[i - samples])),
                2 => add_left::<2>(row, samples, |a, b| {
                    u16::from_ne_bytes(a).wrapping_add(u16::from_ne_bytes(b)).to_ne_bytes()
                }),
                4 => add_left::<4>(row, samples, |a, b| {
                    u32::from_ne_bytes(a).wrapping_add(u32::from_ne_bytes(b)).to_ne_bytes()
                }),
                _ => add_left::<8>(row, samples, |a, b| {
                    u64::from_ne_bytes(a).wrapping_add(u64::from_ne_bytes(b)).to_ne_bytes()
                }),
            }
        }
    }
}

fn add_left<const N: usize>(row: &mut [u8], samples: usize, add: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let values = row.as_chunks_mut::<N>().0;
    (samples..values.len()).for_each(|i| values[i] = add(values[i], values[i - samples]));
}

/// The floating-point predictor (Adobe's Photoshop TIFF Technical Note 3): a row holds the highest bytes of all values,
/// then the next bytes, and so on. Each byte is a difference to the byte `samples` before it.
fn undo_float<const N: usize>(row: &mut [u8], samples: usize, bytes: &mut [u8]) {
    (samples..row.len()).for_each(|i| row[i] = row[i].wrapping_add(row[i - samples]));
    bytes.copy_from_slice(row);
    let count = row.len() / N;
    for (i, value) in row.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *value = std::array::from_fn(|significance| bytes[significance * count + i]);
        if cfg!(target_endian = "little") {
            value.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_unpacked_as_in_the_specification() {
        // The example of TIFF 6.0, page 42.
        let packed = [0xfe, 0xaa, 0x02, 0x80, 0x00, 0x2a, 0xfd, 0xaa, 0x03, 0x80, 0x00, 0x2a, 0x22, 0xf7, 0xaa];
        let mut out = [0; 24];
        assert_eq!(unpack_bits(&packed, &mut out), 24);
        let mut expected = vec![0xaa, 0xaa, 0xaa, 0x80, 0x00, 0x2a, 0xaa, 0xaa, 0xaa, 0xaa, 0x80, 0x00, 0x2a, 0x22];
        expected.extend([0xaa; 10]);
        assert_eq!(out[..], expected[..]);
        // No output, no input.
        assert_eq!(unpack_bits(&packed, &mut [0; 5]), 5);
        assert_eq!(unpack_bits(&[0x7f, 1], &mut out), 1);
        assert_eq!(unpack_bits(&[0x80, 0x80, 0x81], &mut out), 0);
    }

    #[test]
    fn float_predictions_are_undone() {
        let values = [1.5f32, -2.25, 1e30, 0.0, f32::MIN_POSITIVE, 7.0];
        for samples in [1, 2, 3] {
            let mut row: Vec<u8> = (0..4).flat_map(|byte| values.iter().map(move |v| v.to_be_bytes()[byte])).collect();
            for i in (samples..row.len()).rev() {
                row[i] = row[i].wrapping_sub(row[i - samples]);
            }
            undo(Predictor::Float, &mut row, 24, samples, DType::F32, samples == 2);
            let back: Vec<f32> = row.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
            assert_eq!(back, values);
        }
        // The same for eight bytes.
        let values = [1.5f64, -2.25, 1e300, 0.0];
        let mut row: Vec<u8> = (0..8).flat_map(|byte| values.iter().map(move |v| v.to_be_bytes()[byte])).collect();
        (1..row.len()).rev().for_each(|i| row[i] = row[i].wrapping_sub(row[i - 1]));
        undo(Predictor::Float, &mut row, 32, 1, DType::F64, false);
        assert_eq!(row.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect::<Vec<_>>(), values);
    }

    #[test]
    fn numbers_of_more_bits_are_those_of_f32_or_refused() {
        let widened = |dtype: DType, row: &[u8]| {
            let mut out = vec![0; row.len() / dtype.size() * 4];
            widen(Stored::Whole(dtype), &Colours::Plain, row, &mut out)?;
            Ok(out.as_chunks().0.iter().map(|b| f32::from_ne_bytes(*b)).collect::<Vec<_>>())
        };
        let text = |found: Result<Vec<f32>>| found.unwrap_err().to_string();
        let of = |values: &[i32]| values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(
            widened(DType::I32, &of(&[-7, 0, 1 << 24, i32::MIN])).unwrap(),
            [-7.0, 0.0, 16_777_216.0, -2f32.powi(31)]
        );
        assert!(
            text(widened(DType::I32, &of(&[3, 16_777_217]))).contains("the value 16777217, which f32 does not hold")
        );
        assert_eq!(widened(DType::U32, &of(&[-1 << 31, 9])).unwrap(), [2f32.powi(31), 9.0]);
        assert!(text(widened(DType::U32, &of(&[-1]))).contains("4294967295"));
        assert_eq!(widened(DType::I64, &(-5i64).to_ne_bytes()).unwrap(), [-5.0]);
        assert!(text(widened(DType::U64, &u64::MAX.to_ne_bytes())).contains("18446744073709551615"));
        assert_eq!(widened(DType::F64, &0.1f64.to_ne_bytes()).unwrap(), [0.1]);
        assert!(widened(DType::F64, &f64::NAN.to_ne_bytes()).unwrap()[0].is_nan());
        assert!(text(widened(DType::F64, &1e300f64.to_ne_bytes())).contains("1e300"));
    }
}
