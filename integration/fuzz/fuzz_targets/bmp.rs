#![no_main]

use infeed::codec::Bmp;

libfuzzer_sys::fuzz_target!(|file: &[u8]| infeed_fuzz::decode(&Bmp, file));
