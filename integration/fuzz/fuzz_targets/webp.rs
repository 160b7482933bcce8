#![no_main]

use infeed::codec::Webp;

libfuzzer_sys::fuzz_target!(|file: &[u8]| infeed_fuzz::decode(&Webp, file));
