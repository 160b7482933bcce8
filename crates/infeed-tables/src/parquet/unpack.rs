//! Decompression of pages.

use std::io::Read;

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::packed::Zstd;

use super::wire::damaged;

/// Largest ratio of decompressed to compressed bytes for which memory is reserved: gzip's limit.
pub(super) const MOST_RATIO: usize = 1032;

/// The compression of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Lz4,
    Zstd,
}

/// Appends exactly `length` bytes to `out`. Reserves at most the memory that the input can fill.
pub(super) fn unpack(codec: Codec, input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let wrong = |found: usize| damaged(format!("a page of {found} bytes unpacked, but {length} by its header"));
    let failed = |name: &str, e: &dyn std::error::Error| damaged(format!("a page is not valid {name}: {e}"));
    // For a page of only null values.
    if length == 0 && input.is_empty() {
        return Ok(());
    }
    let reserve = |out: &mut Vec<u8>, bytes: usize| out.try_reserve_exact(bytes).map_err(|_| no_memory(bytes));
    match codec {
        Codec::None => {
            if input.len() != length {
                return Err(wrong(input.len()));
            }
            reserve(out, length)?;
            out.extend_from_slice(input);
        }
        Codec::Snappy => {
            let found = snap::raw::decompress_len(input).map_err(|e| failed("Snappy", &e))?;
            // 3 bytes give at most 64.
            if found != length || found / 32 > input.len() {
                return Err(wrong(found));
            }
            reserve(out, length)?;
            out.resize(start + length, 0);
            let found = snap::raw::Decoder::new().decompress(input, &mut out[start..]);
            let found = found.map_err(|e| failed("Snappy", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
        Codec::Lz4 => {
            // A byte gives at most 255.
            if length / 256 > input.len() {
                return Err(wrong(length));
            }
            reserve(out, length)?;
            out.resize(start + length, 0);
            let found = lz4_flex::block::decompress_into(input, &mut out[start..]);
            let found = found.map_err(|e| failed("LZ4", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
        Codec::Gzip => {
            reserve(out, length.min(input.len().saturating_mul(MOST_RATIO)))?;
            let inflated = flate2::bufread::MultiGzDecoder::new(input).take(length as u64 + 1).read_to_end(out);
            let found = inflated.map_err(|e| failed("gzip", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
        Codec::Zstd => {
            reserve(out, length.min(input.len().saturating_mul(MOST_RATIO)))?;
            let unpacked = Zstd::new(input, length as u64).take(length as u64 + 1).read_to_end(out);
            let found = unpacked.map_err(|e| failed("zstd", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
    }
    Ok(())
}

pub(super) fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes of a row group"))
        .with_hint("write the file with smaller row groups")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_codec_gives_back_what_was_packed_and_no_more() {
        let text: Vec<u8> = (0..5000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, &text).unwrap();
            encoder.finish().unwrap()
        };
        let packed = [
            (Codec::None, text.clone()),
            (Codec::Snappy, snap::raw::Encoder::new().compress_vec(&text).unwrap()),
            (Codec::Lz4, lz4_flex::block::compress(&text)),
            (Codec::Gzip, gzip),
            (Codec::Zstd, ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest)),
        ];
        for (codec, packed) in packed {
            let mut out = vec![9];
            unpack(codec, &packed, text.len(), &mut out).unwrap();
            assert!(out[0] == 9 && out[1..] == text[..], "{codec:?}");
            for length in [0, text.len() - 1, text.len() + 1, usize::MAX >> 8] {
                let mut out = Vec::new();
                assert!(unpack(codec, &packed, length, &mut out).is_err(), "{codec:?} {length}");
                assert!(out.capacity() <= MOST_RATIO * packed.len(), "{codec:?} set {} bytes aside", out.capacity());
            }
            assert!(unpack(codec, &packed[..packed.len() / 2], text.len(), &mut Vec::new()).is_err(), "{codec:?} cut");
        }
    }

    #[test]
    fn pages_of_several_frames_are_whole() {
        let frame = |part: &[u8]| ruzstd::encoding::compress_to_vec(part, ruzstd::encoding::CompressionLevel::Fastest);
        let frames = [frame(b"one and "), frame(&[b'2'; 3000])].concat();
        let mut out = Vec::new();
        unpack(Codec::Zstd, &frames, 3008, &mut out).unwrap();
        assert_eq!(out, [&b"one and "[..], &[b'2'; 3000]].concat());
        for length in [8, 3007] {
            assert!(unpack(Codec::Zstd, &frames, length, &mut Vec::new()).is_err(), "{length}");
        }
    }
}
