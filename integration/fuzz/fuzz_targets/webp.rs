//! Any bytes are an image or an error, in libwebp and in Rust; rows of an image are the same rows alone.
#![no_main]

use infeed::codec::{ImageCodec, PixelBuffer, RustWebp, Webp};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    infeed_fuzz::decode(&RustWebp, file);
    let Ok(header) = Webp.header(file) else { return };
    if header.peak_bytes > 16 << 20 {
        return;
    }
    let (mut whole, mut some) = (PixelBuffer::default(), PixelBuffer::default());
    if Webp.decode(file, &header, 0..header.height, &mut whole).is_ok() {
        let rows = header.height / 3..header.height.div_ceil(2);
        Webp.decode(file, &header, rows.clone(), &mut some).expect("the whole image was decoded");
        let pitch = header.width as usize * usize::from(header.channels);
        let of = |out: &PixelBuffer| {
            let at = |row: u32| (row - out.rows.start) as usize * pitch;
            out.data[at(rows.start)..at(rows.end)].to_vec()
        };
        assert!(of(&whole) == of(&some), "rows {rows:?} differ from those of the whole image");
    }
});
