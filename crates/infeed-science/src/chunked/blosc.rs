//! Decodes Blosc's container, versions 1 and 2 of its format: blocks, split or not, shuffled by bytes or bits.
//!
//! <https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst>

use infeed_core::error::{Error, Result};
use infeed_data::packed::{self, Packing, no_memory};

use super::{
    errors::{damaged, unsupported},
    steps::{lz4, unshuffle, zeros},
};

/// Bytes of the header.
const HEAD: usize = 16;
/// Blocks are not split if elements have more bytes than this, or if streams would be shorter than `LEAST_STREAM`, as
/// in c-blosc.
const MOST_SPLITS: usize = 16;
const LEAST_STREAM: usize = 128;

/// The codecs, by the upper three bits of the flags.
#[derive(Clone, Copy, Debug)]
enum Codec {
    BloscLz,
    Lz4,
    Packed(Packing),
}

/// How the bytes of a block's elements are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shuffle {
    None,
    Bytes,
    Bits,
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word) as usize)
}

/// Decodes a container to exactly `length` bytes; anything else is an error.
pub(super) fn unpack(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let cut = || damaged(format!("Blosc that is cut off: {} bytes", bytes.len()));
    let &[version, _, flags, size, ..] = bytes else { return Err(cut()) };
    let (Some(found), Some(block)) = (word(bytes, 4), word(bytes, 8)) else { return Err(cut()) };
    let size = usize::from(size).max(1);
    if !(1..=2).contains(&version) {
        return Err(unsupported(format!("Blosc of format {version}")).with_hint("write it with Blosc 1"));
    }
    if found != length {
        return Err(damaged(format!("Blosc of {found} bytes, but {length} are expected")));
    }
    let mut out = Vec::new();
    if length == 0 {
        return Ok(out);
    }
    if flags & 2 != 0 {
        // Stored uncompressed and not shuffled.
        out.try_reserve_exact(length.min(bytes.len())).map_err(|_| no_memory(length))?;
        out.extend_from_slice(bytes.get(HEAD..HEAD + length).ok_or_else(cut)?);
        return Ok(out);
    }
    let codec = match flags >> 5 {
        0 => Codec::BloscLz,
        1 => Codec::Lz4,
        2 => Codec::Packed(Packing::Snappy),
        3 => Codec::Packed(Packing::Zlib),
        4 => Codec::Packed(Packing::Zstd),
        other => return Err(unsupported(format!("Blosc's codec {other}")).with_hint("write it with lz4 or zstd")),
    };
    let shuffle = match (flags & 1 != 0 && size > 1, flags & 4 != 0) {
        (true, _) => Shuffle::Bytes,
        (_, true) => Shuffle::Bits,
        _ => Shuffle::None,
    };
    let split = flags & 0x10 == 0 && size <= MOST_SPLITS && block / size >= LEAST_STREAM;
    if block == 0 || block > length {
        return Err(damaged(format!("Blosc blocks of {block} bytes in {length}")));
    }
    // Each block has a 4-byte offset and each stream a 4-byte length, so the input bounds these counts.
    if length.div_ceil(block) > bytes.len() / 4 {
        return Err(cut());
    }
    let mut packed = Vec::new();
    for number in 0..length.div_ceil(block) {
        let start = number * block;
        let len = block.min(length - start);
        let streams = if split && len == block { size } else { 1 };
        let mut at = word(bytes, HEAD + 4 * number).ok_or_else(cut)?;
        packed.clear();
        // Splits have equal lengths. The rest of a block, if any, is not split.
        let each = len / streams;
        for _ in 0..streams {
            let stored = word(bytes, at).ok_or_else(cut)?;
            at += 4;
            let stream = bytes.get(at..).and_then(|rest| rest.get(..stored)).ok_or_else(cut)?;
            at += stored;
            if stored == each {
                packed.extend_from_slice(stream);
                continue;
            }
            match codec {
                Codec::Lz4 => lz4(stream, each, &mut packed)?,
                Codec::BloscLz => blosclz(stream, each, &mut packed)?,
                Codec::Packed(packing) => packed.extend_from_slice(&packed::unpack(packing, stream, each)?),
            }
        }
        if packed.len() != len {
            return Err(damaged(format!("a block of {} bytes, but {len} are expected", packed.len())));
        }
        // Grows with the blocks, not to the length in the header.
        out.try_reserve(len).map_err(|_| no_memory(length))?;
        match shuffle {
            Shuffle::None => out.extend_from_slice(&packed),
            Shuffle::Bytes | Shuffle::Bits => {
                out.resize(start + len, 0);
                let to = &mut out[start..];
                if shuffle == Shuffle::Bytes {
                    unshuffle(size, &packed, to)
                } else {
                    unshuffle_bits(size, &packed, to)?
                }
            }
        }
    }
    Ok(out)
}

/// Undoes the bit shuffle, in which all first bits come first. A block whose number of elements is not a multiple of 8
/// is not shuffled.
fn unshuffle_bits(size: usize, bytes: &[u8], out: &mut [u8]) -> Result<()> {
    let count = bytes.len() / size;
    if !count.is_multiple_of(8) || count == 0 {
        out.copy_from_slice(bytes);
        return Ok(());
    }
    let whole = count * size;
    out[whole..].copy_from_slice(&bytes[whole..]);
    // First from bits to bytes, 8 elements at a time; then undo the byte shuffle.
    let mut planes = zeros(whole)?;
    let row = count / 8;
    for (eight, plane) in bytes[..whole].chunks_exact(8 * row).zip(planes.chunks_exact_mut(count)) {
        for (i, elements) in plane.chunks_exact_mut(8).enumerate() {
            let bits: [u8; 8] = std::array::from_fn(|bit| eight[bit * row + i]);
            elements.copy_from_slice(&transposed(u64::from_le_bytes(bits)).to_le_bytes());
        }
    }
    unshuffle(size, &planes, &mut out[..whole]);
    Ok(())
}

/// Transposes a matrix of 8 x 8 bits (Hacker's Delight, 7-3).
const fn transposed(x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

/// Decodes a stream of BloscLZ (literals, and copies of earlier bytes) to exactly `length` bytes, and appends them to
/// `out`.
fn blosclz(stream: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    /// Copies from farther back have their distance in two further bytes.
    const NEAR: usize = 8191;
    let wrong = || damaged("damaged BloscLZ");
    let begin = out.len();
    let end = begin + length;
    let mut rest = stream;
    let byte = |rest: &mut &[u8]| {
        let (first, behind) = rest.split_first().ok_or_else(wrong)?;
        *rest = behind;
        Ok::<_, Error>(usize::from(*first))
    };
    // The upper bits of the first byte are a version.
    let mut token = byte(&mut rest)? & 31;
    loop {
        if token < 32 {
            let (literals, behind) = rest.split_at_checked(token + 1).ok_or_else(wrong)?;
            out.extend_from_slice(literals);
            rest = behind;
        } else {
            let mut count = (token >> 5) + 2;
            if token >> 5 == 7 {
                loop {
                    let more = byte(&mut rest)?;
                    count += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let (high, low) = ((token & 31) << 8, byte(&mut rest)?);
            let far = low == 255 && high == 31 << 8;
            let near = if far { (byte(&mut rest)? << 8) + byte(&mut rest)? + NEAR } else { high + low };
            let distance = near + 1;
            if distance > out.len() - begin || count > end - out.len() {
                return Err(wrong());
            }
            let from = out.len() - distance;
            // A copy may overlap with the bytes that it writes.
            (from..from + count).for_each(|at| out.push(out[at]));
        }
        if out.len() > end {
            return Err(wrong());
        }
        match rest.is_empty() {
            false => token = byte(&mut rest)?,
            true if out.len() == end => return Ok(()),
            true => return Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::ErrorKind;

    /// A container with one block, not split.
    fn container(flags: u8, size: u8, length: usize, stream: &[u8]) -> Vec<u8> {
        let words = [length, length, HEAD + 8 + stream.len(), HEAD + 4, stream.len()];
        let words = words.iter().flat_map(|word| (*word as u32).to_le_bytes());
        [2, 1, flags, size].into_iter().chain(words).chain(stream.iter().copied()).collect()
    }

    /// Wheels of numcodecs lack Snappy, so it is tested here. The golden files cover the other codecs.
    #[test]
    fn snappy_is_unpacked() {
        let text: Vec<u8> = (0..3000u32).flat_map(|n| (n / 5).to_le_bytes()).collect();
        let packed = snap::raw::Encoder::new().compress_vec(&text).unwrap();
        let sound = container(2 << 5 | 0x10, 4, text.len(), &packed);
        assert_eq!(unpack(&sound, text.len()).unwrap(), text);
        for at in 0..HEAD + 8 {
            for bit in 0..8 {
                let mut damaged = sound.clone();
                damaged[at] ^= 1 << bit;
                let _ = unpack(&damaged, text.len());
            }
        }
    }

    #[test]
    fn headers_that_lie_are_errors_and_set_nothing_aside() {
        let huge = u32::MAX as usize;
        for flags in [0, 1, 2, 4, 0x10, 0x20, 0x21, 0x60, 0x80] {
            let mut lies = container(flags, 4, huge, &[7; 40]);
            assert!(unpack(&lies, huge).is_err(), "flags {flags:#x}");
            // Blocks of one byte: more offsets than the input has bytes.
            lies[8..12].copy_from_slice(&1u32.to_le_bytes());
            assert!(unpack(&lies, huge).is_err(), "flags {flags:#x}");
            lies[8..12].fill(0);
            assert!(unpack(&lies, huge).is_err(), "flags {flags:#x}");
        }
        let sound = container(0x30, 1, 4, b"\x40abcd");
        assert_eq!(unpack(&sound, 4).unwrap(), b"abcd");
        assert!(unpack(&sound, 5).unwrap_err().to_string().contains("Blosc of 4 bytes, but 5 are expected"));
        for end in 0..sound.len() {
            assert!(unpack(&sound[..end], 4).is_err());
        }
        let unknown = [&[2, 1, 7 << 5][..], &sound[3..]].concat();
        assert_eq!(unpack(&unknown, 4).unwrap_err().kind(), ErrorKind::Unsupported);
        let newer = [&[5][..], &sound[1..]].concat();
        assert!(unpack(&newer, 4).unwrap_err().to_string().contains("format 5"));
        assert!(unpack(&container(0, 1, 0, &[]), 0).unwrap().is_empty());
    }

    #[test]
    fn blosclz_copies_what_it_has_written_and_nothing_before() {
        let unpacked = |stream: &[u8], length: usize| {
            let mut out = b"before".to_vec();
            blosclz(stream, length, &mut out).map(|()| out.split_off(6))
        };
        // Three literals, then seven from a distance of 3 (4 + 3), then one literal.
        assert_eq!(unpacked(b"\x02abc\xa0\x02\0d", 11).unwrap(), b"abcabcabcad");
        // A distance of 4, which is before the start of the stream.
        assert!(unpacked(b"\x02abc\xa0\x03\0d", 11).is_err());
        for length in [10, 12] {
            assert!(unpacked(b"\x02abc\xa0\x02\0d", length).is_err());
        }
        // A length whose encoding does not end.
        assert!(unpacked(&[&b"\0a\xe0"[..], &[255; 100]].concat(), 20).is_err());
        for end in 0..8 {
            assert!(unpacked(&b"\x02abc\xa0\x02\0d"[..end], 11).is_err());
        }
    }
}
