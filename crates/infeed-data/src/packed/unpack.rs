//! Decompression: readers, and whole results.

use std::io::Read;

use infeed_core::error::{Error, Result};

use super::{
    packing::{Packing, no_memory},
    zstd::Zstd,
};

/// Memory is reserved for at most this factor of the input: deflate's limit. With stronger compression the buffer grows
/// as needed.
const MOST_RATIO: usize = 1032;

/// Whether this build decompresses; a build without the feature returns an error.
pub const fn supported(_what: &str) -> Result<()> {
    Ok(())
}

fn damaged(packing: Packing, e: std::io::Error) -> Error {
    Error::corrupt(format!("damaged {}", packing.name())).with_hint("fetch the file again").with_source(e)
}

/// A reader of the content of `bytes`; at most `most` bytes are expected.
pub fn reader<'a>(packing: Packing, bytes: &'a [u8], most: u64) -> Result<Box<dyn Read + 'a>> {
    Ok(match packing {
        Packing::Zstd => Box::new(Zstd::new(bytes, most)),
        Packing::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(bytes)),
        Packing::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(bytes)),
        Packing::Deflate => Box::new(flate2::bufread::DeflateDecoder::new(bytes)),
        Packing::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(bytes)),
        Packing::Snappy => {
            let broken = |e: snap::Error| damaged(packing, std::io::Error::other(e));
            let length = snap::raw::decompress_len(bytes).map_err(broken)?;
            // 3 bytes give at most 64.
            if length as u64 > most || length / 32 > bytes.len() {
                return Err(Error::corrupt(format!(
                    "Snappy data of {length} bytes in {}, but {most} are expected",
                    bytes.len()
                ))
                .with_hint("fetch the file again"));
            }
            Box::new(std::io::Cursor::new(snap::raw::Decoder::new().decompress_vec(bytes).map_err(broken)?))
        }
    })
}

/// The first `length` bytes of the content, if this beginning of the packed bytes gives that many.
pub fn read_head(packing: Packing, bytes: &[u8], length: usize, most: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut left = reader(packing, bytes, most).ok()?.take(length as u64);
    // The beginning ends in the middle, which does not matter if enough came before.
    let _ = left.read_to_end(&mut out);
    (out.len() == length).then_some(out)
}

/// The whole content: exactly `length` bytes, or an error.
pub fn unpack(packing: Packing, bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let reader = reader(packing, bytes, length as u64)?;
    exactly(reader, bytes.len(), length, |e| damaged(packing, e))
}

/// A file of a zip archive, whose directory has its length and CRC-32.
pub fn inflate(bytes: &[u8], length: usize, crc: u32) -> Result<Vec<u8>> {
    let broken = |e| Error::corrupt("the compressed data is damaged").with_hint("fetch the file again").with_source(e);
    let out = exactly(flate2::bufread::DeflateDecoder::new(bytes), bytes.len(), length, broken)?;
    match is_crc(&out, crc) {
        true => Ok(out),
        false => Err(Error::corrupt("its crc32 is wrong").with_hint("fetch the file again")),
    }
}

/// Whether this is the CRC-32 of the bytes.
pub fn is_crc(bytes: &[u8], crc: u32) -> bool {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum() == crc
}

fn exactly(
    reader: impl Read,
    packed: usize,
    length: usize,
    broken: impl Fn(std::io::Error) -> Error,
) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let least = length.min(packed.saturating_mul(MOST_RATIO));
    out.try_reserve_exact(least).map_err(|_| no_memory(least))?;
    // Reading one more byte than expected detects excess, and reaching the end checks the checksums.
    reader.take(length as u64 + 1).read_to_end(&mut out).map_err(broken)?;
    match out.len() == length {
        true => Ok(out),
        false => {
            let found = if out.len() > length { "more".to_owned() } else { format!("only {}", out.len()) };
            Err(Error::corrupt(format!("{found} bytes unpacked, but {length} are expected"))
                .with_hint("fetch the file again"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_was_packed_comes_back_whole_or_not_at_all() {
        let content: Vec<u8> = (0..20_000u32).flat_map(|i| (i % 1000).to_le_bytes()).collect();
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&content).unwrap();
            encoder.finish().unwrap()
        };
        let zlib = {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(&content).unwrap();
            encoder.finish().unwrap()
        };
        let bzip2 = {
            let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
            encoder.write_all(&content).unwrap();
            encoder.finish().unwrap()
        };
        let snappy = snap::raw::Encoder::new().compress_vec(&content).unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(&content[..], ruzstd::encoding::CompressionLevel::Fastest);
        for (packing, bytes) in [
            (Packing::Gzip, gzip),
            (Packing::Zlib, zlib),
            (Packing::Bzip2, bzip2),
            (Packing::Snappy, snappy),
            (Packing::Zstd, zstd),
        ] {
            let name = packing.name();
            assert_eq!(unpack(packing, &bytes, content.len()).unwrap(), content, "{name}");
            assert_eq!(read_head(packing, &bytes, 999, 1 << 20).unwrap(), content[..999], "{name}");
            assert!(read_head(packing, &bytes, content.len() + 1, 1 << 20).is_none(), "{name}");
            for length in [0, content.len() - 1, content.len() + 1] {
                let error = unpack(packing, &bytes, length).unwrap_err().to_string();
                assert!(error.contains("are expected"), "{name}: {error}");
            }
            assert!(unpack(packing, &bytes[..bytes.len() / 2], content.len()).is_err(), "{name}");
            let mut draws = infeed_core::random::SampleRng::new(1, 2, 3).op(0);
            for _ in 0..200 {
                let mut damaged = bytes.clone();
                let at = draws.below(damaged.len() as u64) as usize;
                damaged[at] ^= 1 << draws.below(8);
                let _ = unpack(packing, &damaged, content.len());
            }
        }
    }
}
