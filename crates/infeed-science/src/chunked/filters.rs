//! Undoes the filters that were applied to a chunk before it was stored.

use bytes::Bytes;
use infeed_core::error::Result;
use infeed_data::packed::{self, Packing};

use super::{
    blosc,
    errors::damaged,
    of_hdf5,
    steps::{lz4, unshuffle, zeros},
};

/// A filter to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Packed(Packing),
    /// A length and a block of LZ4, as numcodecs writes it.
    #[cfg_attr(not(feature = "zarr"), expect(dead_code, reason = "only Zarr has it"))]
    Lz4,
    /// Blocks of LZ4, as the HDF5 filter writes them.
    #[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "only HDF5 has it"))]
    Lz4Blocks,
    /// LZF, h5py's own format.
    #[cfg_attr(not(feature = "hdf5"), expect(dead_code, reason = "only HDF5 has it"))]
    Lzf,
    /// Blosc's container, with any of its codecs.
    Blosc,
    /// Byte shuffle for elements of this many bytes: all first bytes, then all second ones.
    Shuffle(usize),
    /// A CRC-32C after the bytes.
    #[cfg_attr(not(feature = "zarr"), expect(dead_code, reason = "only Zarr has it"))]
    Crc32c,
    /// A Fletcher-32 after the bytes.
    Fletcher32,
}

impl Filter {
    /// Whether the length of the output does not follow from that of the input.
    pub(crate) const fn packs(self) -> bool {
        matches!(self, Self::Packed(_) | Self::Lz4 | Self::Lz4Blocks | Self::Lzf | Self::Blosc)
    }

    /// Bytes that undoing it removes.
    pub(super) const fn takes_off(self) -> usize {
        match self {
            Self::Crc32c | Self::Fletcher32 => 4,
            Self::Packed(_) | Self::Lz4 | Self::Lz4Blocks | Self::Lzf | Self::Blosc | Self::Shuffle(_) => 0,
        }
    }

    /// Undoes the filter: exactly `length` bytes, or an error.
    pub(super) fn undo(self, bytes: &Bytes, length: usize) -> Result<Bytes> {
        Ok(match self {
            Self::Packed(packing) => packed::unpack(packing, bytes, length)?.into(),
            Self::Lz4 => {
                let (head, block) = bytes.split_first_chunk::<4>().ok_or_else(|| damaged("LZ4 without a length"))?;
                let found = u32::from_le_bytes(*head) as usize;
                if found != length {
                    return Err(damaged(format!("LZ4 of {found} bytes, but {length} are expected")));
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
                    return Err(damaged("the chunk ends before its crc32c"));
                };
                if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
                    return Err(damaged("its crc32c is wrong"));
                }
                bytes.slice(..content.len())
            }
        })
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
