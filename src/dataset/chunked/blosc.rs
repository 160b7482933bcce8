//! Blosc's container, version 1 and 2 of its format: blocks, split or not, shuffled by bytes or bits.
//!
//! <https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst>

use super::{
    damaged,
    filters::{lz4, unshuffle, zeros},
    unsupported,
};
use crate::{
    dataset::packed::{self, Packing, no_memory},
    error::{Error, Result},
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
    if count % 8 != 0 || count == 0 {
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
