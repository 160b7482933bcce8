#![no_main]

use infeed::codec::Png;

libfuzzer_sys::fuzz_target!(|file: &[u8]| infeed_fuzz::decode(&Png, file));
