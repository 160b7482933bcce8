//! Decodes a stored chunk to its numbers.

use bytes::Bytes;
use infeed_core::error::Result;
use infeed_data::packed::no_memory;

use super::{
    array::{ChunkPlace, ChunkedArray},
    errors::damaged,
    filters::Filter,
};

impl ChunkedArray {
    /// Whether a chunk is stored without filters in C order, so that its rows can be read by range.
    pub(super) fn is_plain(&self) -> bool {
        self.filters.is_empty() && self.in_c_order()
    }

    /// The most bytes of memory for decoding a chunk: the chunk, and the output of one step as input of the next.
    pub(super) fn decoding_bytes(&self) -> u64 {
        let steps = self.filters.len() + usize::from(!self.in_c_order());
        // Blosc needs memory for an unpacked block in addition to the output.
        let twice = steps > 1 || self.filters.contains(&Filter::Blosc);
        self.chunk_bytes().saturating_mul(if twice { 2 } else { 1 })
    }

    /// The numbers of a chunk in C order and the machine's byte order. Without filters, rows beyond the array's end may
    /// be missing.
    pub(super) fn decode(&self, place: &ChunkPlace, bytes: &Bytes) -> Result<Bytes> {
        let left_out = |at: usize| place.skipped.checked_shr(at as u32).is_some_and(|bits| bits & 1 == 1);
        let filters = || self.filters.iter().enumerate().filter(|(at, _)| !left_out(*at)).map(|(_, filter)| *filter);
        let length = usize::try_from(self.chunk_bytes()).map_err(|_| no_memory(usize::MAX))?;
        let mut bytes = bytes.clone();
        for (done, filter) in filters().enumerate() {
            // The output of this step still has the checksums that the steps after it remove.
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

    /// Converts numbers to the machine's byte order.
    pub(super) fn turned(&self, bytes: Bytes) -> Bytes {
        if !self.swapped || self.dtype.size() == 1 {
            return bytes;
        }
        // Bytes with no other owner are swapped in place.
        let mut turned = bytes.try_into_mut().map_or_else(|bytes| bytes.to_vec(), Vec::from);
        turned.chunks_exact_mut(self.dtype.size()).for_each(<[u8]>::reverse);
        turned.into()
    }
}
