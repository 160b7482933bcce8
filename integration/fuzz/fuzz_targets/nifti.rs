#![no_main]
use infeed::dataset::fuzz::{Coding, decode_volume, parse_nifti};
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = parse_nifti(bytes, Coding::Raw) {
        let _ = decode_volume(&header, &[bytes.to_vec().into()]);
    }
});
