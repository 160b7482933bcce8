//! TIFF, for any number of channels: our own reading of its layout (`dataset::tiff`), with crates for LZW and Deflate.
//!
//! Not the `tiff` crate: it gives the first plane of planar files where the others are wanted too, and takes pages one
//! by one. The tests hold the two against each other.

use std::ops::Range;

use super::{ImageCodec, ImageHeader, PixelBuffer, cause, corrupt};
use crate::{
    dataset::tiff::{Compression, Page, Predictor, Tiff as Layout, is_tiff, parse_tiff},
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

/// TIFF and BigTIFF: 1 to 255 channels of u8, u16 or f32; interleaved, planar or one page for each channel; strips and
/// tiles; plain, LZW, Deflate, PackBits; predictors; both byte orders.
///
/// Values are given as they are stored, but for gray images whose 0 is white, which are turned round. A plain file in
/// the machine's byte order is read [in place](ImageCodec::in_place).
#[derive(Clone, Copy, Debug, Default)]
pub struct Tiff;

impl ImageCodec for Tiff {
    fn name(&self) -> &'static str {
        "tiff"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        is_tiff(head)
    }

    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        let layout = parse_tiff(bytes)?;
        let info = layout.info;
        // Whole chunks of rows, and one chunk unpacked beside them.
        let peak_bytes = info.len_bytes().saturating_add(layout.chunk_bytes().saturating_mul(2));
        Ok(ImageHeader::from(info).with_peak_bytes(peak_bytes).with_own(layout))
    }

    fn in_place(&self, bytes: &[u8]) -> Result<Option<(ImageInfo, Range<usize>)>> {
        let layout = parse_tiff(bytes)?;
        Ok(layout.in_place(bytes).map(|pixels| (layout.info, pixels)))
    }

    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let layout: &Layout = header.own()?;
        if layout.info != header.info || rows.start > rows.end || rows.end > header.height {
            return Err(Error::new(ErrorKind::Internal, "the TIFF is not the one that was asked about"));
        }
        let scratch = std::mem::take(&mut out.scratch);
        let mut unpacker = Unpacker { chunk: scratch, lzw: None, inflate: None };
        let done = decode(bytes, layout, rows, &mut unpacker, out);
        out.scratch = unpacker.chunk;
        done
    }
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
    let pixels = out.hold(rows.clone(), held * pitch * layout.planes());
    if held == 0 {
        return Ok(());
    }
    for (plane, pixels) in pixels.chunks_exact_mut(held * pitch).enumerate() {
        let (page, first) = layout.plane(plane);
        let across = page.across();
        for y in rows.start / page.chunk_height..rows.end.div_ceil(page.chunk_height) {
            let chunk_rows = layout.chunk_rows(page, y);
            let top = y * page.chunk_height;
            // The part of the chunk that is wanted.
            // Of the last tile, rows may lie where no number counts them.
            let wanted = rows.start.max(top)..rows.end.min(top.saturating_add(chunk_rows));
            for x in 0..across {
                let n = first + y as usize * across + x;
                let packed = page.chunk(file, layout.big_endian, n).and_then(|at| file.get(at));
                let packed = packed.ok_or_else(|| corrupt("a TIFF whose pixels lie beyond its end"))?;
                let chunk_pitch = page.chunk_width as usize * pixel;
                let left = x * chunk_pitch;
                let len = chunk_pitch.min(pitch - left);
                let chunk = unpacker.unpack(page, packed, chunk_rows as usize * chunk_pitch)?;
                undo(page.predictor, chunk, chunk_pitch, pixel / info.dtype.size(), info.dtype, layout.big_endian);
                for row in wanted.clone() {
                    let from = (row - top) as usize * chunk_pitch;
                    let to = (row - rows.start) as usize * pitch + left;
                    pixels[to..to + len].copy_from_slice(&chunk[from..from + len]);
                }
            }
        }
    }
    if layout.inverted {
        // Of u16 too: all bits of the largest value are ones.
        pixels.iter_mut().for_each(|byte| *byte = !*byte);
    }
    Ok(())
}

/// Undoes the packing of chunks, in memory that is kept from chunk to chunk.
struct Unpacker {
    chunk: Vec<u8>,
    lzw: Option<weezl::decode::Decoder>,
    inflate: Option<flate2::Decompress>,
}

impl Unpacker {
    /// The first `len` bytes that `packed` holds.
    fn unpack(&mut self, page: &Page, packed: &[u8], len: usize) -> Result<&mut [u8]> {
        if self.chunk.len() < len {
            self.chunk.resize(len, 0);
        }
        let Self { chunk, lzw, inflate, .. } = self;
        let out = &mut chunk[..len];
        let filled = match page.compression {
            Compression::None => {
                let n = packed.len().min(len);
                out[..n].copy_from_slice(&packed[..n]);
                n
            }
            Compression::PackBits => unpack_bits(packed, out),
            Compression::Lzw => {
                let new = || weezl::decode::Decoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
                let decoder = lzw.get_or_insert_with(new);
                decoder.reset();
                let (mut read, mut filled) = (0, 0);
                while filled < len {
                    let step = decoder.decode_bytes(&packed[read..], &mut out[filled..]);
                    (read, filled) = (read + step.consumed_in, filled + step.consumed_out);
                    match step.status {
                        Ok(weezl::LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
                        Ok(_) => break,
                        Err(error) => return Err(corrupt("a TIFF with damaged LZW data").with_source(error)),
                    }
                }
                filled
            }
            Compression::Deflate => {
                let decoder = inflate.get_or_insert_with(|| flate2::Decompress::new(true));
                decoder.reset(true);
                let status = decoder.decompress(packed, out, flate2::FlushDecompress::Finish);
                status.map_err(|e| corrupt("a TIFF with damaged Deflate data").with_source(cause(e.to_string())))?;
                decoder.total_out() as usize
            }
        };
        if filled < len {
            return Err(corrupt(format!("a TIFF with a chunk of {filled} bytes, where {len} are needed")));
        }
        Ok(&mut self.chunk[..len])
    }
}

/// Runs of bytes (TIFF 6.0, section 9). Gives how many there were, at most as many as `out` takes.
fn unpack_bits(mut packed: &[u8], out: &mut [u8]) -> usize {
    let mut filled = 0;
    while let [head, rest @ ..] = packed {
        let free = out.len() - filled;
        if free == 0 {
            break;
        }
        match *head as i8 {
            // Nothing: padding.
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

/// Turns stored values of a chunk into those of the machine: byte order, then the predictor.
fn undo(predictor: Predictor, chunk: &mut [u8], pitch: usize, samples: usize, dtype: DType, big_endian: bool) {
    let size = dtype.size();
    if predictor == Predictor::Float {
        let mut bytes = vec![0; pitch];
        for row in chunk.chunks_exact_mut(pitch) {
            undo_float(row, samples, &mut bytes);
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
                _ => add_left::<4>(row, samples, |a, b| {
                    u32::from_ne_bytes(a).wrapping_add(u32::from_ne_bytes(b)).to_ne_bytes()
                }),
            }
        }
    }
}

fn add_left<const N: usize>(row: &mut [u8], samples: usize, add: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let values = row.as_chunks_mut::<N>().0;
    (samples..values.len()).for_each(|i| values[i] = add(values[i], values[i - samples]));
}

/// Floats by significance (Adobe's Photoshop TIFF Technical Note 3): a row holds the highest bytes of all values, then
/// the next ones; each byte less the one `samples` before.
fn undo_float(row: &mut [u8], samples: usize, bytes: &mut [u8]) {
    (samples..row.len()).for_each(|i| row[i] = row[i].wrapping_add(row[i - samples]));
    bytes.copy_from_slice(row);
    let count = row.len() / 4;
    for (i, value) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let of = |significance: usize| bytes[significance * count + i];
        *value = f32::from_be_bytes([of(0), of(1), of(2), of(3)]).to_ne_bytes();
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
        // Nothing to fill, no data.
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
    }
}
