#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(header)) = infeed::dataset::fuzz::parse_nrrd(bytes, true) {
        if header.len_bytes() < 1 << 20 {
            let _ = infeed::dataset::fuzz::decode_volume(&header, &[bytes.to_vec().into()]);
        }
    }
});
