//! The decoder in every way, the plain decoder of the tests, and zune.
#![no_main]

use std::panic::{AssertUnwindSafe, catch_unwind};

use infeed_fuzz::jpeg_check::{Checked, check};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};

libfuzzer_sys::fuzz_target!(|file: &[u8]| {
    // Larger images only cost time: this is 150 x 150 pixels or so.
    if let Some(Ok(Checked { info, whole: Ok(whole), plain: Ok(plain) })) = check(file, 400 << 10)
        && plain.tame
        && plain.scans == 1
    {
        let space = if info.channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
        let options = DecoderOptions::default().jpeg_set_out_colorspace(space);
        let decode = || {
            let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(file), options);
            let pixels = decoder.decode().ok()?;
            Some((decoder.info()?, pixels))
        };
        // Such files are not given to zune: its panics are its own.
        let Ok(Some((found, theirs))) = catch_unwind(AssertUnwindSafe(decode)) else { return };
        assert_eq!((u32::from(found.height), u32::from(found.width)), (info.height, info.width));
        let apart = |(a, b): (&u8, &u8)| u64::from(a.abs_diff(*b));
        let apart = whole.iter().zip(&theirs).map(apart).sum::<u64>() as f64 / whole.len() as f64;
        // It rounds otherwise, interpolates colour otherwise at edges, and follows other rules about what colours mean.
        if std::env::var_os("INFEED_FUZZ_ZUNE").is_some() {
            assert!(apart < 24.0, "{apart:.1} levels from zune");
        }
    }
});
