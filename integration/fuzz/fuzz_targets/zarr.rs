//! The length of the metadata (two bytes), the metadata of an array of v3 or v2, and its chunks, which are all the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (metadata, chunk) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    infeed_fuzz::read_all(&[("x.zarr/c/0/0", chunk), ("x.zarr/c/1/0", chunk), ("x.zarr/zarr.json", metadata)]);
    infeed_fuzz::read_all(&[("x.zarr/.zarray", metadata), ("x.zarr/0.0", chunk), ("x.zarr/1.0", chunk)]);
});
