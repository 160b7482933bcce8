#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: (&str, &[u8])| infeed_fuzz::read_all(&[("index.json", parts.0.as_bytes()), ("a.mds", parts.1)]));
