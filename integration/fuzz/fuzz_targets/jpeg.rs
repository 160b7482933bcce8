#![no_main]
use infeed::codec::{ImageCodec, Jpeg, PixelBuffer, Window};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    let Ok(info) = Jpeg::new().info(file) else { return };
    if Jpeg::new().peak_bytes(file, &info).is_ok_and(|bytes| bytes < 8 << 20) {
        let mut out = PixelBuffer::default();
        let whole = Jpeg::new().decode(file, &info, 0..info.height, &mut out);
        let window = Window::of_rows(&info, info.height / 2..info.height);
        assert!(whole.is_err() || Jpeg::new().window(file, &info, &window, &mut out).is_ok());
    }
});
