//! Functions that several filters share.

use infeed_core::error::Result;
use infeed_data::packed::no_memory;

use super::errors::damaged;

/// Allocates `len` zeros, to be overwritten. The caller has checked `len` against the input.
pub(super) fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| no_memory(len))?;
    out.resize(len, 0);
    Ok(out)
}

/// Decodes a block of LZ4 to exactly `length` bytes, and appends them to `out`.
pub(super) fn lz4(block: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    // An input byte gives at most 255 bytes.
    if length / 256 > block.len() {
        return Err(damaged(format!("LZ4 of {length} bytes in {}", block.len())));
    }
    let start = out.len();
    out.try_reserve_exact(length).map_err(|_| no_memory(length))?;
    out.resize(start + length, 0);
    let found = lz4_flex::block::decompress_into(block, &mut out[start..]);
    let found = found.map_err(|e| damaged("damaged LZ4").with_source(e))?;
    match found == length {
        true => Ok(()),
        false => Err(damaged(format!("LZ4 of {found} bytes, but {length} are expected"))),
    }
}

/// Undoes the byte shuffle; `out` is as long as `bytes`. Bytes after the last whole element are not shuffled.
pub(super) fn unshuffle(size: usize, bytes: &[u8], out: &mut [u8]) {
    let count = bytes.len() / size.max(1);
    if size < 2 || count == 0 {
        out.copy_from_slice(bytes);
        return;
    }
    let (planes, rest) = bytes.split_at(count * size);
    let (elements, end) = out.split_at_mut(count * size);
    end.copy_from_slice(rest);
    // With a constant size the compiler vectorises the loop.
    match size {
        2 => unshuffle_of::<2>(planes, elements),
        4 => unshuffle_of::<4>(planes, elements),
        8 => unshuffle_of::<8>(planes, elements),
        _ => {
            for (at, plane) in planes.chunks_exact(count).enumerate() {
                elements[at..].iter_mut().step_by(size).zip(plane).for_each(|(to, from)| *to = *from);
            }
        }
    }
}

fn unshuffle_of<const SIZE: usize>(planes: &[u8], elements: &mut [u8]) {
    let count = planes.len() / SIZE;
    let planes: [&[u8]; SIZE] = std::array::from_fn(|at| &planes[at * count..][..count]);
    let (elements, _) = elements.as_chunks_mut::<SIZE>();
    for (i, element) in elements.iter_mut().enumerate() {
        *element = std::array::from_fn(|at| planes[at][i]);
    }
}
