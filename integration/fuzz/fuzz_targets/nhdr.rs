//! The length of a detached header (two bytes), the header, and the file `a.raw` that it may name; as they come from names on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (header, data) = rest.split_at(rest.len().min(u16::from_le_bytes(*length).into()));
    infeed_fuzz::read_all(&[("p/a.nhdr", header), ("p/a.raw", data)]);
    infeed_fuzz::read_all(&[("p/a.nii.gz", data)]);
});
