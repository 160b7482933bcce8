#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| infeed_fuzz::read_all(&[("x.jsonl", bytes)]));
