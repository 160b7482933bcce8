//! What was done to a chunk before it was stored, undone.

use bytes::Bytes;

use super::{ChunkedArray, Place, blosc, damaged, of_hdf5};
use crate::{
    dataset::packed::{self, Packing, no_memory},
    error::Result,
};

/// One step of the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::dataset) enum Filter {
    Packed(Packing),
    /// A block of LZ4 behind its length, as numcodecs writes it.
    #[cfg_attr(not(feature = "zarr"), expect(dead_code, reason = "only Zarr has it"))]
    Lz4,
    /// Blocks of LZ4, as the filter of HDF5 writes them.
    #[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "only HDF5 has it"))]
    Lz4Blocks,
    /// LZF, h5py's own.
    #[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "only HDF5 has it"))]
    Lzf,
    /// Blosc's container, with any of its codecs.
    Blosc,
    /// The bytes of elements of this size, first all first bytes, then all second ones.
    Shuffle(usize),
    /// A CRC-32C behind the bytes.
    #[cfg_attr(not(feature = "zarr"), expect(dead_code, reason = "only Zarr has it"))]
    Crc32c,
    /// A Fletcher-32 behind the bytes.
    #[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "only HDF5 has it"))]
    Fletcher32,
}

impl Filter {
    /// Whether the length of what comes out does not follow from that of what goes in.
    pub(in crate::dataset) const fn packs(self) -> bool {
        matches!(self, Self::Packed(_) | Self::Lz4 | Self::Lz4Blocks | Self::Lzf | Self::Blosc)
    }

    /// Bytes that it takes off.
    const fn takes_off(self) -> usize {
        match self {
            Self::Crc32c | Self::Fletcher32 => 4,
            Self::Packed(_) | Self::Lz4 | Self::Lz4Blocks | Self::Lzf | Self::Blosc | Self::Shuffle(_) => 0,
        }
    }

    /// Exactly `length` bytes, or an error.
    fn undo(self, bytes: &Bytes, length: usize) -> Result<Bytes> {
        Ok(match self {
            Self::Packed(packing) => packed::unpack(packing, bytes, length)?.into(),
            Self::Lz4 => {
                let (head, block) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged("LZ4 without a length"))?;
                let found = u32::from_le_bytes(*head) as usize;
                if found != length {
                    return Err(damaged(format!("LZ4 of {found} bytes, {length} belong there")));
                }
                let mut out = Vec::new();
                lz4(block, length, &mut out)?;
                out.into()
            }
            Self::Lz4Blocks => of_hdf5::lz4_blocks(bytes, length)?.into(),
            Self::Lzf => of_hdf5::lzf(bytes, length)?.into(),
            Self::Fletcher32 => bytes.slice(..of_hdf5::fletcher32(bytes)?.len()),
            Self::Blosc => blosc::unpack(bytes, length)?.into(),
            Self::Shuffle(size) => {
                let mut out = zeros(bytes.len())?;
                unshuffle(size, bytes, &mut out);
                out.into()
            }
            Self::Crc32c => {
                let Some((content, sum)) = bytes.split_last_chunk::<4>() else {
                    return Err(damaged("a chunk that ends before its crc32c"));
                };
                if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
                    return Err(damaged("its crc32c is wrong"));
                }
                bytes.slice(..content.len())
            }
        })
    }
}

/// As many zeros, all of which will be written over: no more than there are bytes of input for.
pub(super) fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| no_memory(len))?;
    out.resize(len, 0);
    Ok(out)
}

/// Puts a block of LZ4, which holds exactly `length` bytes, behind `out`.
pub(super) fn lz4(block: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    // A byte gives 255 at most.
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
        false => Err(damaged(format!("LZ4 of {found} bytes, {length} belong there"))),
    }
}

/// Puts the bytes of each element together again; `out` is as long as `bytes`. Bytes behind the last whole element stay.
pub(super) fn unshuffle(size: usize, bytes: &[u8], out: &mut [u8]) {
    let count = bytes.len() / size.max(1);
    if size < 2 || count == 0 {
        out.copy_from_slice(bytes);
        return;
    }
    let (planes, rest) = bytes.split_at(count * size);
    let (elements, end) = out.split_at_mut(count * size);
    end.copy_from_slice(rest);
    // A size that the compiler knows makes a loop that it turns into vectors.
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

impl ChunkedArray {
    /// Whether a chunk is stored as its numbers are, in C order: rows of it can be read by range.
    pub(super) fn is_plain(&self) -> bool {
        self.filters.is_empty() && self.in_c_order()
    }

    /// The most bytes that decoding a chunk takes: itself, and what one step makes for the next.
    pub(super) fn decoding_bytes(&self) -> u64 {
        let steps = self.filters.len() + usize::from(!self.in_c_order());
        // A block of Blosc is unpacked beside what it becomes.
        let twice = steps > 1 || self.filters.contains(&Filter::Blosc);
        self.chunk_bytes().saturating_mul(if twice { 2 } else { 1 })
    }

    /// The numbers of a chunk in C order, as this machine has them. Without filters the rows behind the array's end may be
    /// missing.
    pub(super) fn decode(&self, place: &Place, bytes: &Bytes) -> Result<Bytes> {
        let left_out = |at: usize| place.skipped.checked_shr(at as u32).is_some_and(|bits| bits & 1 == 1);
        let filters = || self.filters.iter().enumerate().filter(|(at, _)| !left_out(*at)).map(|(_, filter)| *filter);
        let length = usize::try_from(self.chunk_bytes()).map_err(|_| no_memory(usize::MAX))?;
        let mut bytes = bytes.clone();
        for (done, filter) in filters().enumerate() {
            // What the steps behind it take off is still to come out of this one.
            let length = filters().skip(done + 1).fold(length, |length, next| length + next.takes_off());
            bytes = filter.undo(&bytes, length)?;
        }
        let plain = self.is_plain();
        let least = if plain { (self.rows_in(place.number) * self.chunk_row_bytes()) as usize } else { length };
        if bytes.len() < least || bytes.len() > length {
            return Err(damaged(format!("{} bytes in a chunk of {length}", bytes.len())));
        }
        if !self.in_c_order() {
            bytes = self.in_order(&bytes)?.into();
        }
        Ok(self.turned(bytes))
    }

    /// In the machine's order of bytes.
    pub(super) fn turned(&self, bytes: Bytes) -> Bytes {
        if !self.swapped || self.dtype.size() == 1 {
            return bytes;
        }
        // What nobody else holds is turned round where it is.
        let mut turned = bytes.try_into_mut().map_or_else(|bytes| bytes.to_vec(), Vec::from);
        turned.chunks_exact_mut(self.dtype.size()).for_each(<[u8]>::reverse);
        turned.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_elements_are_put_together_whatever_their_size() {
        for size in [1, 2, 3, 4, 8, 16] {
            for len in [0, 1, size, 7 * size, 7 * size + size / 2] {
                let want: Vec<u8> = (0..len as u8).collect();
                let count = len / size;
                let mut shuffled = vec![0; len];
                for (at, byte) in want.iter().enumerate() {
                    let whole = at < count * size;
                    shuffled[if whole { at % size * count + at / size } else { at }] = *byte;
                }
                let mut out = vec![0; len];
                unshuffle(size, &shuffled, &mut out);
                assert_eq!(out, want, "{len} bytes of {size}");
            }
        }
    }
}
