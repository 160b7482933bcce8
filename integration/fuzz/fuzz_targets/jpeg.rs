#![no_main]
use infeed::codec::{ImageCodec, Jpeg, PixelBuffer, Window};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let Ok(info) = Jpeg.info(file) else { return };
    if Jpeg.peak_bytes(file, &info).is_ok_and(|bytes| bytes < 8 << 20) {
        let mut out = PixelBuffer::default();
        let whole = Jpeg.decode(file, &info, 0..info.height, &mut out);
        let window = Window::of_rows(&info, info.height / 2..info.height);
        assert!(whole.is_err() || Jpeg.window(file, &info, &window, &mut out).is_ok());
    }
});
