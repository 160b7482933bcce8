//! The decoder in every way, and the plain decoder of the tests.
#![no_main]

use infeed_fuzz::jpeg_check::check;

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    // Larger images only cost time: this is 150 x 150 pixels or so.
    let _ = check(file, 400 << 10);
});
