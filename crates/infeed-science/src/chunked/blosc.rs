//! Blosc's container, version 1 and 2 of its format: blocks, split or not, shuffled by bytes or bits.
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
/// Blocks whose elements have more bytes are not split, nor those with shorter streams: as c-blosc has it.
const MOST_SPLITS: usize = 16;
const LEAST_STREAM: usize = 128;

/// The codecs, by the upper three bits of the flags.
#[derive(Clone, Copy, Debug)]
enum Codec {
    BloscLz,
    Lz4,
    Packed(Packing),
}

/// How the bytes of a block's elements lie.
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

/// All of it: exactly `length` bytes, or an error.
pub(super) fn unpack(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let cut = || damaged(format!("Blosc that is cut: {} bytes", bytes.len()));
    let &[version, _, flags, size, ..] = bytes else { return Err(cut()) };
    let (Some(found), Some(block)) = (word(bytes, 4), word(bytes, 8)) else { return Err(cut()) };
    let size = usize::from(size).max(1);
    if !(1..=2).contains(&version) {
        return Err(unsupported(format!("Blosc of format {version}")).hint("write it with Blosc 1"));
    }
    if found != length {
        return Err(damaged(format!("Blosc of {found} bytes, {length} belong there")));
    }
    let mut out = Vec::new();
    if length == 0 {
        return Ok(out);
    }
    if flags & 2 != 0 {
        // Stored as it was, and not shuffled.
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
        other => return Err(unsupported(format!("Blosc's codec {other}")).hint("write it with lz4 or zstd")),
    };
    let shuffle = match (flags & 1 != 0 && size > 1, flags & 4 != 0) {
        (true, _) => Shuffle::Bytes,
        (_, true) => Shuffle::Bits,
        _ => Shuffle::None,
    };
    let split = flags & 0x10 == 0 && size <= MOST_SPLITS && block / size >= LEAST_STREAM;
    if block == 0 || block > length {
        return Err(damaged(format!("Blosc's blocks of {block} bytes in {length}")));
    }
    // Each block has a place, and each stream at least a length: none of these counts is beyond the bytes.
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
        // Splits are of equal lengths: what a block has beyond them is not split.
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
            return Err(damaged(format!("a block of {} bytes, {len} belong there", packed.len())));
        }
        // Grows as blocks come.
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

/// Puts the bits of each element together again: first came all first bits. Blocks whose elements are no multiple of 8 were
/// left as they are.
fn unshuffle_bits(size: usize, bytes: &[u8], out: &mut [u8]) -> Result<()> {
    let count = bytes.len() / size;
    if !count.is_multiple_of(8) || count == 0 {
        out.copy_from_slice(bytes);
        return Ok(());
    }
    let whole = count * size;
    out[whole..].copy_from_slice(&bytes[whole..]);
    // Bits to bytes, 8 elements at a time; then as bytes are shuffled.
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

/// A matrix of 8 x 8 bits, turned over (Hacker's Delight, 7-3).
const fn transposed(x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00aa_00aa_00aa_00aa;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_cccc_0000_cccc;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_f0f0_f0f0;
    x ^ t ^ (t << 28)
}

/// Puts a stream of BloscLZ, which holds exactly `length` bytes, behind `out`: literals, and copies of what came before.
fn blosclz(stream: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    /// Copies of more have their distance in two further bytes.
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
    // The first byte has a version in its upper bits.
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
            // What is copied may be what this copy writes.
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

    /// A container of one block that is not split.
    fn container(flags: u8, size: u8, length: usize, stream: &[u8]) -> Vec<u8> {
        let words = [length, length, HEAD + 8 + stream.len(), HEAD + 4, stream.len()];
        let words = words.iter().flat_map(|word| (*word as u32).to_le_bytes());
        [2, 1, flags, size].into_iter().chain(words).chain(stream.iter().copied()).collect()
    }

    /// Wheels of numcodecs come without it: the other codecs are in the goldens.
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
            // Blocks of a byte: more places than there are bytes.
            lies[8..12].copy_from_slice(&1u32.to_le_bytes());
            assert!(unpack(&lies, huge).is_err(), "flags {flags:#x}");
            lies[8..12].fill(0);
            assert!(unpack(&lies, huge).is_err(), "flags {flags:#x}");
        }
        let sound = container(0x30, 1, 4, b"\x40abcd");
        assert_eq!(unpack(&sound, 4).unwrap(), b"abcd");
        assert!(unpack(&sound, 5).unwrap_err().to_string().contains("Blosc of 4 bytes, 5 belong there"));
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
        // From a distance of 4, which is before the stream.
        assert!(unpacked(b"\x02abc\xa0\x03\0d", 11).is_err());
        for length in [10, 12] {
            assert!(unpacked(b"\x02abc\xa0\x02\0d", length).is_err());
        }
        // A length that goes on and on.
        assert!(unpacked(&[&b"\0a\xe0"[..], &[255; 100]].concat(), 20).is_err());
        for end in 0..8 {
            assert!(unpacked(&b"\x02abc\xa0\x02\0d"[..end], 11).is_err());
        }
    }
}
