//! PNG by the `png` crate.

use std::{
    io::{Cursor, ErrorKind as IoErrorKind},
    ops::Range,
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};
use png::{BitDepth, ColorType, Decoder, DecodingError, Limits, Reader, Transformations};

use super::{ImageCodec, ImageHeader, PixelBuffer, packed::indices, still};

/// PNG: gray, palette, RGB, alpha, 1 to 16 bits, interlaced. Sixteen bits give `u16` pixels.
///
/// ```
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # let depths = image::ImageBuffer::from_pixel(4, 2, image::Luma([1234u16]));
/// # depths.write_to(&mut file, image::ImageFormat::Png).unwrap();
/// # let file = file.into_inner();
/// use infeed::{
///     DType,
///     codec::{ImageCodec, PixelBuffer, Png},
/// };
///
/// // A depth map of 16 bits.
/// let header = Png.header(&file)?;
/// assert_eq!((header.channels, header.dtype), (1, DType::U16));
/// let mut pixels = PixelBuffer::default();
/// Png.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!(pixels.data[..2], 1234u16.to_ne_bytes());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Png;

impl ImageCodec for Png {
    fn name(&self) -> &'static str {
        "png"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"\x89PNG\r\n\x1a\n")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        info(&open(bytes, 0, Transformations::EXPAND)?).map(|info| ImageHeader::from(info).with_own(Labels(None)))
    }

    /// Values of 2 and 4 bits are gray levels scaled to 255, as in other readers.
    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let reader = open(bytes, 0, Transformations::IDENTITY)?;
        let said = reader.info();
        let bits = match (said.color_type, said.bit_depth) {
            (ColorType::Indexed, depth) => depth as u8,
            (ColorType::Grayscale, BitDepth::One) => 1,
            _ => return self.header(bytes),
        };
        let (width, height) = said.size();
        let info = still::checked(ImageInfo { height, width, channels: 1, dtype: DType::U8, planar: false })?;
        // In addition to the pixels: the rows as they are stored, packed.
        let packed = reader.output_buffer_size().map_or(0, |len| len as u64);
        Ok(ImageHeader::from(info)
            .with_peak_bytes(info.len_bytes().saturating_add(packed))
            .with_own(Labels(Some(bits))))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        if let Labels(Some(bits)) = header.own()? {
            return labels(bytes, header, *bits, out);
        }
        let mut reader = open(bytes, header.len_bytes(), Transformations::EXPAND)?;
        let info = info(&reader)?;
        let pixels = still::hold("PNG", info, header, out)?;
        reader.next_frame(pixels).map_err(|found| error(bytes, found))?;
        if info.dtype == DType::U16 {
            // The file's values are big-endian.
            for value in pixels.as_chunks_mut().0 {
                *value = u16::from_be_bytes(*value).to_ne_bytes();
            }
        }
        Ok(())
    }
}

/// Bits of each label of a mask, if labels are indices or single bits.
struct Labels(Option<u8>);

/// The numbers that the file stores.
fn labels(file: &[u8], header: &ImageHeader, bits: u8, out: &mut PixelBuffer) -> Result<()> {
    let mut reader = open(file, header.len_bytes(), Transformations::IDENTITY)?;
    let (width, height) = reader.info().size();
    let info = ImageInfo { height, width, channels: 1, dtype: DType::U8, planar: false };
    let stored = reader.output_color_type().1 as u8;
    if stored != bits {
        return Err(Error::new(ErrorKind::Internal, "the header belongs to another PNG"));
    }
    let mut packed = std::mem::take(&mut out.scratch);
    let pixels = still::hold("PNG", info, header, out)?;
    let pitch = (width as usize * usize::from(bits)).div_ceil(8);
    packed.clear();
    packed.resize(pitch * height as usize, 0);
    reader.next_frame(&mut packed).map_err(|found| error(file, found))?;
    for (out, row) in pixels.chunks_exact_mut(width as usize).zip(packed.chunks_exact(pitch)) {
        out.iter_mut().zip(indices(row, bits.into())).for_each(|(out, index)| *out = index);
    }
    out.scratch = packed;
    Ok(())
}

/// Reads what precedes the pixels. `len_bytes` is the most that the pixels may take.
fn open(file: &[u8], len_bytes: u64, transformations: Transformations) -> Result<Reader<Cursor<&[u8]>>> {
    // Memory for rows and compressed chunks.
    let most = len_bytes.saturating_mul(2).saturating_add(16 << 20);
    let limits = Limits { bytes: usize::try_from(most).unwrap_or(usize::MAX) };
    let mut decoder = Decoder::new_with_limits(Cursor::new(file), limits);
    // Metadata is ignored: pixels are given as they are stored.
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    // Whether palettes and values of less than eight bits are expanded.
    decoder.set_transformations(transformations);
    decoder.read_info().map_err(|found| error(file, found))
}

fn info(reader: &Reader<Cursor<&[u8]>>) -> Result<ImageInfo> {
    let (width, height) = reader.info().size();
    let (colour, depth) = reader.output_color_type();
    let channels = match colour {
        ColorType::Grayscale => 1,
        ColorType::GrayscaleAlpha => 2,
        // Expanded.
        ColorType::Indexed | ColorType::Rgb => 3,
        ColorType::Rgba => 4,
    };
    let dtype = if depth == BitDepth::Sixteen { DType::U16 } else { DType::U8 };
    still::checked(ImageInfo { height, width, channels, dtype, planar: false })
}

fn error(file: &[u8], found: DecodingError) -> Error {
    let ours = match &found {
        DecodingError::LimitsExceeded => still::too_large("PNG"),
        DecodingError::IoError(io) if io.kind() == IoErrorKind::UnexpectedEof => still::cut("PNG", file),
        _ => still::damaged("PNG"),
    };
    still::because(ours, &found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(width: u32, colour: ColorType, depth: BitDepth, rows: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let pitch = (width as usize * colour.samples() * depth as usize).div_ceil(8);
        let mut encoder = png::Encoder::new(&mut file, width, (rows.len() / pitch) as u32);
        encoder.set_color(colour);
        encoder.set_depth(depth);
        if colour == ColorType::Indexed {
            encoder.set_palette((0..48).map(|n| 255 - n).collect::<Vec<u8>>());
            // With a tRNS chunk, colours become RGBA.
            encoder.set_trns(vec![0, 255, 7]);
        }
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(rows).unwrap();
        drop(writer);
        file
    }

    fn labels(file: &[u8]) -> (u8, DType, Vec<u8>) {
        let header = Png.mask_header(file).unwrap();
        let mut out = PixelBuffer::default();
        // Nothing of the buffer's old content may remain.
        out.hold(0..1, 4000).unwrap().fill(9);
        Png.decode(file, &header, 0..header.height, &mut out).unwrap();
        (header.channels, header.dtype, out.data[..header.len_bytes() as usize].to_vec())
    }

    #[test]
    fn of_masks_a_palette_gives_its_indices_and_a_bit_is_0_or_1() {
        use BitDepth::{Eight, Four, One, Sixteen, Two};
        use ColorType::{Grayscale, Indexed, Rgb};
        for (colour, depth, rows, values) in [
            (Indexed, Eight, &[0, 15, 9, 1, 2, 3][..], &[0, 15, 9, 1, 2, 3][..]),
            (Indexed, Four, &[0x0f, 0x90, 0x12, 0x30], &[0, 15, 9, 1, 2, 3]),
            (Indexed, Two, &[0b00_11_10_00, 0b01_00_11_00], &[0, 3, 2, 1, 0, 3]),
            (Indexed, One, &[0b0110_0000, 0b1000_0000], &[0, 1, 1, 1, 0, 0]),
            (Grayscale, One, &[0b0110_0000, 0b1000_0000], &[0, 1, 1, 1, 0, 0]),
            // Gray levels.
            (Grayscale, Two, &[0b00_11_10_00, 0b01_00_11_00], &[0, 255, 170, 85, 0, 255]),
            (Grayscale, Eight, &[0, 200, 9, 1, 2, 3], &[0, 200, 9, 1, 2, 3]),
        ] {
            let file = file(3, colour, depth, rows);
            assert_eq!(labels(&file), (1, DType::U8, values.to_vec()), "{colour:?} {depth:?}");
        }
        let wide = labels(&file(1, Grayscale, Sixteen, &[1, 2]));
        assert_eq!(wide, (1, DType::U16, 258u16.to_ne_bytes().to_vec()));
        assert_eq!(labels(&file(1, Rgb, Eight, &[1, 2, 3])), (3, DType::U8, vec![1, 2, 3]));
        // A truncated file is an error.
        let whole = file(3, Indexed, Four, &[0x0f, 0x90, 0x12, 0x30]);
        let cut = &whole[..whole.len() - 30];
        let header = Png.mask_header(cut).unwrap();
        Png.decode(cut, &header, 0..2, &mut PixelBuffer::default()).unwrap_err();
    }
}
