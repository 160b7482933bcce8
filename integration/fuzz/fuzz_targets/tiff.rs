//! Any bytes are an image or an error.
#![no_main]

use infeed::codec::{ImageCodec, PixelBuffer, Tiff};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let _ = Tiff.in_place(file);
    let Ok(info) = Tiff.header(file) else { return };
    if info.peak_bytes <= 16 << 20 {
        let _ = Tiff.decode(file, &info, 0..info.height, &mut PixelBuffer::default());
    }
});
