//! Undoes the filters that only HDF5 has.

use infeed_core::error::Result;
use infeed_data::packed::no_memory;

use super::{errors::damaged, steps::lz4};

/// Allocates `length` bytes if the input can hold that many, with at most `ratio` output bytes per input byte.
fn room(what: &str, bytes: &[u8], length: usize, ratio: usize) -> Result<Vec<u8>> {
    if length / ratio > bytes.len() {
        return Err(damaged(format!("{what} of {length} bytes in {}", bytes.len())));
    }
    let mut out = Vec::new();
    out.try_reserve_exact(length).map_err(|_| no_memory(length))?;
    Ok(out)
}

/// Decodes LZF as h5py writes it: runs of bytes, and copies of earlier ones.
pub(super) fn lzf(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    // Three bytes copy at most 264: a ratio of 88.
    let mut out = room("LZF", bytes, length, 88)?;
    let mut left = bytes;
    let cut = || damaged("damaged LZF");
    while let Some((control, rest)) = left.split_first() {
        let control = usize::from(*control);
        left = rest;
        let high = control >> 5;
        if high == 0 {
            let (run, rest) = left.split_at_checked(control + 1).ok_or_else(cut)?;
            left = rest;
            if run.len() > length - out.len() {
                return Err(cut());
            }
            out.extend_from_slice(run);
            continue;
        }
        let mut next = || {
            let (byte, rest) = left.split_first().ok_or_else(cut)?;
            left = rest;
            Ok(usize::from(*byte))
        };
        let count = if high == 7 { next()? + 9 } else { high + 2 };
        let back = (control & 31) << 8 | next()?;
        let from = out.len().checked_sub(back + 1).filter(|_| count <= length - out.len()).ok_or_else(cut)?;
        // A copy may overlap with the bytes that it writes.
        for at in from..from + count {
            out.push(out[at]);
        }
    }
    if out.len() == length {
        Ok(out)
    } else {
        Err(damaged(format!("LZF of {} bytes, but {length} are expected", out.len())))
    }
}

/// Decodes LZ4 as the HDF5 filter writes it: the whole length, the length of a block, then blocks, each after its
/// length.
pub(super) fn lz4_blocks(bytes: &[u8], length: usize) -> Result<Vec<u8>> {
    let cut = || damaged("LZ4 that ends too early");
    let (all, rest) = bytes.split_first_chunk::<8>().ok_or_else(cut)?;
    let (block, mut left) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
    let (all, block) = (u64::from_be_bytes(*all), u32::from_be_bytes(*block) as usize);
    if all != length as u64 || block == 0 {
        return Err(damaged(format!("LZ4 of {all} bytes in blocks of {block}, but {length} are expected")));
    }
    let mut out = room("LZ4", bytes, length, 256)?;
    while out.len() < length {
        let (packed, rest) = left.split_first_chunk::<4>().ok_or_else(cut)?;
        let (packed, rest) = rest.split_at_checked(u32::from_be_bytes(*packed) as usize).ok_or_else(cut)?;
        left = rest;
        let count = block.min(length - out.len());
        // A block that does not get smaller is stored uncompressed.
        if packed.len() == count {
            out.extend_from_slice(packed);
        } else {
            lz4(packed, count, &mut out)?;
        }
    }
    Ok(out)
}

/// Verifies the Fletcher-32 checksum, and returns the bytes before it.
pub(super) fn fletcher32(bytes: &[u8]) -> Result<&[u8]> {
    let Some((content, sum)) = bytes.split_last_chunk::<4>() else {
        return Err(damaged("the chunk ends before its fletcher32"));
    };
    let (found, sum) = (fletcher32_of(content), u32::from_le_bytes(*sum));
    // Before version 1.6.3 the HDF5 library wrote the checksum with the bytes of each half swapped.
    let turned = (sum & 0x00ff_00ff) << 8 | sum >> 8 & 0x00ff_00ff;
    if found == sum || found == turned { Ok(content) } else { Err(damaged("its fletcher32 is wrong")) }
}

fn fletcher32_of(bytes: &[u8]) -> u32 {
    let (words, last) = bytes.as_chunks::<2>();
    let fold = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut a, mut b) = (0u32, 0u32);
    // 360 words can be summed before the second sum overflows.
    for words in words.chunks(360) {
        for word in words {
            a += u32::from(u16::from_be_bytes(*word));
            b += a;
        }
        (a, b) = (fold(a), fold(b));
    }
    if let [byte] = last {
        a += u32::from(*byte) << 8;
        b += a;
        (a, b) = (fold(a), fold(b));
    }
    fold(b) << 16 | fold(a)
}
