//! GIF by the `gif` crate.

use std::{io::Cursor, ops::Range};

use gif::{ColorOutput, DecodeOptions, Decoder, DecodingError, MemoryLimit};
use infeed_core::{
    error::{Error, Result},
    types::{DType, ImageInfo},
};

use super::{ImageCodec, ImageHeader, PixelBuffer, still};

/// GIF: the first picture of an animation, as RGB. Parts of the screen that the picture does not cover have the
/// picture's transparent colour, or the palette's first colour if it has none.
///
/// ```
/// # let mut file = Vec::new();
/// # let mut encoder = gif::Encoder::new(&mut file, 4, 2, &[0, 0, 0, 10, 20, 30]).unwrap();
/// # let frame = gif::Frame { width: 4, height: 2, buffer: vec![1; 8].into(), ..gif::Frame::default() };
/// # encoder.write_frame(&frame).unwrap();
/// # drop(encoder);
/// use infeed::codec::{Gif, ImageCodec, PixelBuffer};
///
/// // A file of 2 rows of 4 pixels.
/// let header = Gif.header(&file)?;
/// let mut pixels = PixelBuffer::default();
/// Gif.decode(&file, &header, 0..header.height, &mut pixels)?;
/// assert_eq!((header.height, header.width, &pixels.data[..3]), (2, 4, &[10, 20, 30][..]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Gif;

impl ImageCodec for Gif {
    fn name(&self) -> &'static str {
        "gif"
    }

    fn identity(&self) -> Option<String> {
        Some(self.name().to_owned())
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a")
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        header_of(bytes, 3)
    }

    fn mask_header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        header_of(bytes, 1)
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, _rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let mut first = First::open(bytes, header.channels)?;
        let mut indices = std::mem::take(&mut out.scratch);
        let pixels = still::hold("GIF", first.info, header, out)?;
        indices.clear();
        indices.resize(first.decoder.buffer_size(), 0);
        let done = first.decoder.read_into_buffer(&mut indices).map_err(|found| error(bytes, found));
        if done.is_ok() {
            match header.channels {
                1 => first.draw(&indices, |index| [index], pixels),
                _ => {
                    let palette = first.decoder.palette().unwrap_or_default();
                    let palette: Vec<[u8; 3]> = palette.as_chunks().0.to_vec();
                    first.draw(&indices, |index| palette.get(usize::from(index)).copied().unwrap_or_default(), pixels);
                }
            }
        }
        out.scratch = indices;
        done
    }
}

fn header_of(file: &[u8], channels: u8) -> Result<ImageHeader> {
    let First { info, decoder, .. } = First::open(file, channels)?;
    let peak = info.len_bytes().saturating_add(decoder.buffer_size() as u64);
    Ok(ImageHeader::from(info).with_peak_bytes(peak))
}

/// A file, read up to the pixels of its first picture.
struct First<'a> {
    decoder: Decoder<Cursor<&'a [u8]>>,
    info: ImageInfo,
    /// Position of the picture on the screen: left, top, width.
    place: [usize; 3],
    transparent: Option<u8>,
}

impl<'a> First<'a> {
    fn open(file: &'a [u8], channels: u8) -> Result<Self> {
        let mut options = DecodeOptions::new();
        options.set_color_output(ColorOutput::Indexed);
        // The caller compares the needed memory with the limit for an image.
        options.set_memory_limit(MemoryLimit::Unlimited);
        let mut decoder = options.read_info(Cursor::new(file)).map_err(|found| error(file, found))?;
        let frame = decoder.next_frame_info().map_err(|found| error(file, found))?;
        let frame = frame.ok_or_else(|| still::damaged("GIF"))?;
        let [left, top, width, height] = [frame.left, frame.top, frame.width, frame.height].map(u32::from);
        let transparent = frame.transparent;
        // A picture beyond the screen makes the screen larger, as in other readers.
        let [across, down] =
            [u32::from(decoder.width()).max(left + width), u32::from(decoder.height()).max(top + height)];
        let info = ImageInfo { height: down, width: across, channels, dtype: DType::U8, planar: false };
        if width == 0 || height == 0 {
            return Err(still::damaged("GIF"));
        }
        let place = [left, top, width].map(|side| side as usize);
        Ok(Self { decoder, info: still::checked(info)?, place, transparent })
    }

    /// Draws the picture on the screen.
    fn draw<const N: usize>(&self, indices: &[u8], of: impl Fn(u8) -> [u8; N], pixels: &mut [u8]) {
        let [left, top, width] = self.place;
        let pixels = pixels.as_chunks_mut::<N>().0;
        let across = self.info.width as usize;
        if indices.len() < pixels.len() {
            pixels.fill(of(self.transparent.unwrap_or(0)));
        }
        for (row, indices) in pixels.chunks_exact_mut(across).skip(top).zip(indices.chunks_exact(width)) {
            row[left..left + width].iter_mut().zip(indices).for_each(|(pixel, index)| *pixel = of(*index));
        }
    }
}

fn error(file: &[u8], found: DecodingError) -> Error {
    let ours = match &found {
        DecodingError::MemoryLimit | DecodingError::OutOfMemory => still::too_large("GIF"),
        DecodingError::UnexpectedEof => still::cut("GIF", file),
        DecodingError::Io(io) if io.kind() == std::io::ErrorKind::UnexpectedEof => still::cut("GIF", file),
        _ => still::damaged("GIF"),
    };
    still::because(ours, &found)
}

#[cfg(test)]
mod tests {
    use gif::{Encoder, Frame};

    use super::*;
    use crate::codec::codec_contract;

    const COLOURS: [u8; 12] = [0, 0, 0, 255, 0, 0, 0, 255, 0, 9, 8, 7];

    fn file(screen: [u16; 2], frames: &[Frame<'_>]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, screen[0], screen[1], &COLOURS).unwrap();
        frames.iter().for_each(|frame| encoder.write_frame(frame).unwrap());
        drop(encoder);
        file
    }

    fn frame(left: u16, top: u16, width: u16, indices: &[u8]) -> Frame<'_> {
        let height = indices.len() as u16 / width;
        Frame { left, top, width, height, buffer: indices.into(), ..Frame::default() }
    }

    fn decoded(file: &[u8], mask: bool) -> (u32, u32, u8, Vec<u8>) {
        let header = if mask { Gif.mask_header(file) } else { Gif.header(file) }.unwrap();
        let mut out = PixelBuffer::default();
        Gif.decode(file, &header, 0..header.height, &mut out).unwrap();
        (header.height, header.width, header.channels, out.data[..header.len_bytes() as usize].to_vec())
    }

    #[test]
    fn the_first_picture_is_rgb_and_of_masks_the_indices() {
        let indices = [0, 1, 2, 3, 3, 2];
        let plain = file([3, 2], &[frame(0, 0, 3, &indices), frame(0, 0, 3, &[1; 6])]);
        let colours: Vec<u8> = indices.iter().flat_map(|n| COLOURS[usize::from(*n) * 3..][..3].to_vec()).collect();
        assert_eq!(decoded(&plain, false), (2, 3, 3, colours));
        assert_eq!(decoded(&plain, true), (2, 3, 1, indices.to_vec()));
        // Interlaced files store their rows in another order.
        let rows: Vec<u8> = (0..20).map(|n| n % 4).collect();
        let mut lines = frame(0, 0, 2, &rows);
        lines.interlaced = true;
        assert_eq!(decoded(&file([2, 10], &[lines]), true).3.len(), 20);
    }

    #[test]
    fn a_picture_smaller_than_the_screen_lies_where_it_says() {
        let small = frame(1, 1, 2, &[1, 2]);
        assert_eq!(decoded(&file([4, 3], std::slice::from_ref(&small)), true).3, [0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0]);
        let clear = Frame { transparent: Some(3), ..small };
        assert_eq!(decoded(&file([4, 3], &[clear]), true).3, [3, 3, 3, 3, 3, 1, 2, 3, 3, 3, 3, 3]);
        // A picture that reaches beyond the screen makes it larger.
        assert_eq!(decoded(&file([1, 1], &[frame(1, 0, 2, &[1, 2])]), true), (1, 3, 1, vec![0, 1, 2]));
    }

    #[test]
    fn files_keep_the_contract() {
        let noise: Vec<u8> = (0..23 * 17).map(|n| (n * 7 % 11 % 4) as u8).collect();
        let files = [file([23, 17], &[frame(0, 0, 23, &noise)]), file([9, 9], &[frame(2, 3, 4, &[1; 12])])];
        let named = [("noise", &files[0][..]), ("small", &files[1][..])];
        codec_contract(&Gif, &named);
    }
}
