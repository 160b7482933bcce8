//! A file of a series, alone and beside itself.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    infeed_fuzz::read_all(&[("p/a.dcm", bytes)]);
    infeed_fuzz::read_all(&[("p/a.dcm", bytes), ("p/b.dcm", bytes)]);
});
