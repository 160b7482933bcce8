#![no_main]

use infeed::codec::Jxl;

libfuzzer_sys::fuzz_target!(|file: &[u8]| infeed_fuzz::decode(&Jxl, file));
