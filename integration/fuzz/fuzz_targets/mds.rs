//! The length of the index (two bytes), the index, a shard: as it is, and as the compressed file that an index may name.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (index, shard) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    infeed_fuzz::read_all(&[("a.mds", shard), ("index.json", index)]);
    infeed_fuzz::read_all(&[("a.mds.zip", shard), ("index.json", index)]);
});
