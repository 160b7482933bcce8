//! Shards of version 3: objects that hold several chunks, and an index of them.
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v3/codecs/sharding-indexed/index.html>

use infeed_core::error::Result;
use infeed_store::{Object, Source};
use serde_json::Value;

use super::numbers::numbers;
use crate::chunked::{ChunkPlace, damaged, grid, unsupported};

/// How the shards of an array are laid out.
#[derive(Debug)]
pub(super) struct Sharding {
    /// Shape of a chunk.
    pub(super) chunk: Vec<u64>,
    /// Whether the index is at the end of the object, rather than at its beginning.
    at_end: bool,
    big_endian: bool,
    /// Whether a CRC-32C follows the index.
    summed: bool,
}

impl Sharding {
    pub(super) fn parse(config: &Value) -> Result<Self> {
        let chunk = numbers(&config["chunk_shape"]).filter(|chunk| !chunk.contains(&0));
        let chunk = chunk.ok_or_else(|| damaged("shards without a valid chunk_shape"))?;
        let at_end = match config["index_location"].as_str() {
            Some("start") => false,
            Some("end") | None => true,
            Some(_) => return Err(damaged("shards without a valid index_location")),
        };
        let codecs = config["index_codecs"].as_array().map_or(&[][..], |codecs| codecs);
        let is = |codec: &Value, name: &str| codec == name || codec["name"] == name;
        let (bytes, summed) = match codecs {
            [bytes] => (bytes, false),
            [bytes, sum] if is(sum, "crc32c") => (bytes, true),
            _ => (&Value::Null, false),
        };
        if !is(bytes, "bytes") {
            return Err(unsupported("shards whose index is not encoded as bytes and crc32c")
                .with_hint("write them with the usual index_codecs"));
        }
        Ok(Self { chunk, at_end, big_endian: bytes["configuration"]["endian"] == "big", summed })
    }

    /// Checks that shards of this shape hold whole chunks.
    pub(super) fn check(&self, shard: &[u64]) -> Result<()> {
        let whole = self.chunk.len() == shard.len() && shard.iter().zip(&self.chunk).all(|(n, chunk)| n % chunk == 0);
        let wrong = || damaged(format!("chunks of {:?} in shards of {shard:?}", self.chunk));
        if whole { Ok(()) } else { Err(wrong()) }
    }

    /// Reads where the chunks of shard `number` are. The shard is object `at` of the dataset.
    pub(super) async fn places(
        &self,
        source: &Source,
        object: &Object,
        at: u32,
        number: u64,
        grids: &Grids,
    ) -> Result<Vec<ChunkPlace>> {
        let count = grids.within.iter().try_fold(1u64, |count, n| count.checked_mul(*n));
        let sum = if self.summed { 4 } else { 0 };
        let len = count.and_then(|count| count.checked_mul(16)?.checked_add(sum)).filter(|len| *len <= object.size);
        let len = len.ok_or_else(|| damaged(format!("a shard of {} bytes is shorter than its index", object.size)))?;
        let range = if self.at_end { object.size - len..object.size } else { 0..len };
        let bytes = object.extent(source).with_range(range).read().await?;
        self.parse_index(&bytes, object.size, at, number, grids)
    }

    fn parse_index(&self, bytes: &[u8], size: u64, at: u32, number: u64, grids: &Grids) -> Result<Vec<ChunkPlace>> {
        let mut entries = bytes;
        if self.summed {
            let Some((content, sum)) = bytes.split_last_chunk::<4>() else {
                return Err(damaged("an index that is cut off"));
            };
            if crc32c::crc32c(content) != u32::from_le_bytes(*sum) {
                return Err(damaged("the crc32c of the shard's index is wrong"));
            }
            entries = content;
        }
        // This product does not overflow: the length of the index was computed from it.
        let count = grids.within.iter().product::<u64>();
        if entries.len() as u64 / 16 != count || !entries.len().is_multiple_of(16) {
            return Err(damaged(format!("an index of {} bytes for {count} chunks", entries.len())));
        }
        let word = |bytes: [u8; 8]| if self.big_endian { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
        let mut places = Vec::new();
        for (entry, i) in entries.as_chunks::<8>().0.chunks_exact(2).zip(0..) {
            let (start, len) = (word(entry[0]), word(entry[1]));
            if (start, len) == (u64::MAX, u64::MAX) {
                continue;
            }
            if start.checked_add(len).is_none_or(|end| end > size) {
                return Err(damaged(format!("a chunk of {len} bytes at {start} of {size}, by the shard's index")));
            }
            // Chunks beyond the array's end are ignored.
            if let Some(number) = grids.number(number, i) {
                places.push(ChunkPlace { number, start, len, object: at, skipped: 0 });
            }
        }
        Ok(places)
    }
}

/// Numbers of shards, of chunks, and of chunks per shard, along each axis.
#[derive(Debug)]
pub(super) struct Grids {
    shards: Vec<u64>,
    chunks: Vec<u64>,
    within: Vec<u64>,
}

impl Grids {
    pub(super) fn new(shape: &[u64], shard: &[u64], chunk: &[u64]) -> Self {
        Self { shards: grid(shape, shard), chunks: grid(shape, chunk), within: grid(shard, chunk) }
    }

    /// The number, among all chunks, of chunk `i` of a shard; `None` if it is beyond the array's end.
    fn number(&self, mut shard: u64, mut i: u64) -> Option<u64> {
        let (mut number, mut step) = (0u64, 1u64);
        for axis in (0..self.chunks.len()).rev() {
            let [shards, chunks, within] = [&self.shards, &self.chunks, &self.within].map(|grid| grid[axis]);
            let index = (shard % shards).checked_mul(within)?.checked_add(i % within)?;
            (shard, i) = (shard / shards, i / within);
            if index >= chunks {
                return None;
            }
            number = number.checked_add(index.checked_mul(step)?)?;
            step = step.checked_mul(chunks)?;
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_shards_are_numbered_in_the_grid_of_all() {
        // 5 x 7 in chunks of 1 x 2, shards of 2 x 4: 3 x 2 shards of 2 x 2 chunks, 5 x 4 chunks in all.
        let grids = Grids::new(&[5, 7], &[2, 4], &[1, 2]);
        assert_eq!((grids.number(0, 0), grids.number(0, 1), grids.number(0, 2)), (Some(0), Some(1), Some(4)));
        assert_eq!((grids.number(1, 0), grids.number(3, 3)), (Some(2), Some(15)));
        // The second row of chunks of the last shard is beyond the end.
        assert_eq!((grids.number(5, 1), grids.number(5, 2)), (Some(19), None));
    }

    #[test]
    fn an_index_that_lies_is_an_error() {
        let grids = Grids::new(&[4], &[2], &[1]);
        let sharding = Sharding { chunk: vec![1], at_end: true, big_endian: false, summed: true };
        let index = |words: [u64; 4]| {
            let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
            bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
            bytes
        };
        let sound = index([0, 10, u64::MAX, u64::MAX]);
        let places = sharding.parse_index(&sound, 100, 7, 1, &grids).unwrap();
        assert_eq!(places, [ChunkPlace { number: 2, start: 0, len: 10, object: 7, skipped: 0 }]);
        for words in [[0, 101, 0, 1], [u64::MAX, 1, 0, 1], [1, u64::MAX, 0, 1]] {
            let error = sharding.parse_index(&index(words), 100, 7, 1, &grids).unwrap_err();
            assert!(error.to_string().contains("by the shard's index"), "{error}");
        }
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 1;
            assert!(sharding.parse_index(&flipped, 100, 7, 1, &grids).is_err());
            assert!(sharding.parse_index(&sound[..at], 100, 7, 1, &grids).is_err());
        }
    }
}
