//! libwebp's pixels beside those of a decoder in Rust, and both on damaged files.
#![allow(unsafe_code)]

use std::ffi::c_int;

use libwebp_sys::{
    WebPConfig, WebPEncode, WebPMemoryWrite, WebPMemoryWriter, WebPMemoryWriterClear, WebPMemoryWriterInit,
    WebPPicture, WebPPictureFree, WebPPictureImportRGBA,
};

use infeed_core::{error::Result, types::ImageInfo};

use super::*;
use crate::codec::{Draws, ImageCodec, PixelBuffer, SampleRng, codec_contract};

/// A picture with edges, smooth parts and noise, as a WebP with these settings. The alpha is its last channel.
fn file(height: u32, width: u32, alpha: bool, set: impl FnOnce(&mut WebPConfig)) -> Vec<u8> {
    let mut draws = SampleRng::new(3, u64::from(height), u64::from(width)).op(0);
    let pixel = |y: u32, x: u32, draws: &mut Draws| {
        let edge = if (x / 9 + y / 13).is_multiple_of(2) { 60 } else { 0 };
        let noise = draws.below(30) as u8;
        let alpha = if alpha { draws.below(6) as u8 * 40 + 20 } else { 255 };
        [(x * 3) as u8, (y * 5) as u8 / 2 + edge, 90 + noise, alpha]
    };
    let rows = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    let pixels: Vec<u8> = rows.flat_map(|(y, x)| pixel(y, x, &mut draws)).collect();

    let mut config = WebPConfig::new().unwrap();
    set(&mut config);
    let mut picture = WebPPicture::new().unwrap();
    (picture.width, picture.height, picture.use_argb) = (width as c_int, height as c_int, config.lossless);
    let mut writer = WebPMemoryWriter { mem: std::ptr::null_mut(), size: 0, max_size: 0, pad: [0] };
    // SAFETY: the writer is a local that outlives the encoder's calls.
    unsafe { WebPMemoryWriterInit(&raw mut writer) };
    picture.writer = Some(WebPMemoryWrite);
    picture.custom_ptr = (&raw mut writer).cast();
    // SAFETY: there are `height` rows of `4 * width` bytes.
    let taken = unsafe { WebPPictureImportRGBA(&raw mut picture, pixels.as_ptr(), 4 * width as c_int) };
    // SAFETY: both are initialised, and the picture's writer is set.
    let written = unsafe { WebPEncode(&raw const config, &raw mut picture) };
    assert_eq!((taken, written), (1, 1), "{:?}", picture.error_code);
    // SAFETY: the writer holds so many bytes.
    let file = unsafe { std::slice::from_raw_parts(writer.mem, writer.size) }.to_vec();
    // SAFETY: nothing of them is used any more.
    unsafe { WebPMemoryWriterClear(&raw mut writer) };
    // SAFETY: as above.
    unsafe { WebPPictureFree(&raw mut picture) };
    file
}

/// Files of all kinds: filters, sizes, partitions, segments, alpha packed in each way, without loss.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let mut files = vec![
        ("usual", file(75, 101, false, |_| {})),
        ("fine", file(64, 48, false, |c| c.quality = 100.0)),
        ("coarse", file(61, 90, false, |c| (c.quality, c.filter_strength) = (2.0, 100))),
        ("sharp", file(61, 90, false, |c| (c.filter_strength, c.filter_sharpness) = (80, 7))),
        ("simple filter", file(99, 70, false, |c| (c.filter_type, c.filter_strength, c.quality) = (0, 90, 20.0))),
        ("no filter", file(50, 70, false, |c| c.filter_strength = 0)),
        ("partitions", file(160, 64, false, |c| (c.partitions, c.segments) = (3, 4))),
        ("one pixel", file(1, 1, false, |_| {})),
        ("a column", file(37, 1, false, |_| {})),
        ("a row", file(1, 40, false, |_| {})),
        ("without loss", file(53, 71, false, |c| c.lossless = 1)),
        ("without loss, alpha", file(53, 71, true, |c| c.lossless = 1)),
        ("without loss, quick", file(40, 40, true, |c| (c.lossless, c.method, c.quality) = (1, 0, 0.0))),
    ];
    for (name, packed) in [("plain alpha", 0), ("alpha", 1)] {
        files.push((name, file(51, 66, true, |c| (c.alpha_compression, c.alpha_filtering) = (packed, 0))));
    }
    // The first byte of the alpha's chunk says how rows are predicted. With another number it is another valid file.
    let alpha = files[files.len() - 1].1.clone();
    let at = 8 + alpha.windows(4).position(|name| name == b"ALPH").unwrap();
    assert_eq!(alpha[at], 1, "packed, not filtered");
    for (name, filter) in [("horizontal alpha", 1), ("vertical alpha", 2), ("gradient alpha", 3)] {
        let mut file = alpha.clone();
        file[at] |= filter << 2;
        files.push((name, file));
    }
    files.push(("coarse alpha", file(51, 66, true, |c| c.alpha_quality = 20)));
    files
}

fn decoded(codec: &dyn ImageCodec, file: &[u8]) -> Result<(ImageInfo, Vec<u8>)> {
    let header = codec.header(file)?;
    let mut out = PixelBuffer::default();
    codec.decode(file, &header, 0..header.height, &mut out)?;
    out.data.truncate(header.len_bytes() as usize);
    Ok((header.info, out.data))
}

#[test]
fn both_decoders_give_the_same_pixels() {
    for (name, file) in files() {
        let (ours, rust) = (decoded(&Webp, &file).unwrap(), decoded(&RustWebp, &file).unwrap());
        assert_eq!(ours.0, rust.0, "{name}");
        assert!(ours.1 == rust.1, "{name}");
    }
}

#[test]
fn files_keep_the_contract() {
    let files = files();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, file)| (*name, &**file)).collect();
    codec_contract(&Webp, &files);
    codec_contract(&RustWebp, &files);
}

/// An animation of these still pictures, by hand.
fn animation(height: u32, width: u32, stills: &[&[u8]]) -> Vec<u8> {
    let chunk = |name: &[u8; 4], body: &[u8]| {
        let mut chunk = [name.as_slice(), &(body.len() as u32).to_le_bytes(), body].concat();
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    };
    let sides = [(width - 1).to_le_bytes(), (height - 1).to_le_bytes()];
    let sides: Vec<u8> = sides.iter().flat_map(|side| side[..3].to_vec()).collect();
    let mut body = b"WEBP".to_vec();
    body.extend(chunk(b"VP8X", &[&[2, 0, 0, 0], &*sides].concat()));
    body.extend(chunk(b"ANIM", &[255, 255, 255, 255, 0, 0]));
    for still in stills {
        // At the corner, for 100 ms; then the chunk of the still picture.
        body.extend(chunk(b"ANMF", &[&[0; 6], &*sides, &[100, 0, 0, 0], &still[12..]].concat()));
    }
    chunk(b"RIFF", &body)
}

#[test]
fn of_an_animation_the_first_picture_is_read() {
    let [first, second] = [90.0, 10.0].map(|quality| file(40, 30, false, |c| c.quality = quality));
    let film = animation(40, 30, &[&first, &second]);
    let (info, pixels) = decoded(&Webp, &film).unwrap();
    let (_, want) = decoded(&Webp, &first).unwrap();
    assert_eq!((info.height, info.width), (40, 30));
    let colours: Vec<u8> = pixels.chunks(info.channels.into()).flat_map(|pixel| pixel[..3].to_vec()).collect();
    assert!(colours == want);
    codec_contract(&Webp, &[("animation", &film)]);
}

#[test]
fn a_picture_larger_than_its_canvas_is_refused_before_memory_is_taken() {
    for lossless in [0, 1] {
        let still = file(40, 30, false, |c| c.lossless = lossless);
        // The chunk's head is at byte 12; its sides are behind a frame tag and a start code, or behind a signature.
        let mut giant = still.clone();
        match lossless {
            0 => giant[26..30].fill(0x3f),
            _ => giant[21..24].fill(0x7e),
        }
        let film = animation(40, 30, &[&giant]);
        assert!(RustWebp.header(&animation(40, 30, &[&still])).is_ok());
        for codec in [&Webp as &dyn ImageCodec, &RustWebp] {
            assert!(codec.header(&film).is_err(), "{codec:?}");
        }
        // Alone, its size counts.
        assert!(RustWebp.header(&giant).unwrap().peak_bytes > 16 << 20);
        // As a still picture on a canvas.
        let canvas = [&b"VP8X\x0a\0\0\0\0\0\0\0"[..], &[29, 0, 0, 39, 0, 0], &giant[12..]].concat();
        let canvas = [&b"RIFF"[..], &(canvas.len() as u32 + 4).to_le_bytes(), b"WEBP", &canvas].concat();
        for codec in [&Webp as &dyn ImageCodec, &RustWebp] {
            assert!(decoded(codec, &canvas).is_err(), "{codec:?}");
        }
        assert!(RustWebp.header(&canvas).is_err());
    }
}

#[test]
fn a_frame_of_another_size_than_its_picture_is_refused() {
    let still = file(40, 30, true, |_| {});
    // Without the container of a still picture with alpha: behind `VP8X`.
    let bare = [&still[..12], &still[30..]].concat();
    assert!(RustWebp.header(&animation(40, 30, &[&bare])).is_ok());
    for (height, width) in [(41, 30), (40, 31), (39, 30)] {
        let film = animation(height, width, &[&bare]);
        for codec in [&Webp as &dyn ImageCodec, &RustWebp] {
            assert!(codec.header(&film).is_err(), "{codec:?} {height} {width}");
        }
    }
    // Another chunk between a frame's alpha and its picture.
    let mut film = animation(40, 30, &[&bare]);
    let at = film.windows(4).position(|name| name == b"VP8 ").unwrap();
    film[at + 2] = b'4';
    assert!(RustWebp.header(&film).is_err());
}

#[test]
fn damaged_files_are_errors_or_pixels_whatever_is_read_of_them() {
    let files: Vec<_> = files().into_iter().filter(|(_, file)| file.len() < 6000).collect();
    let (mut read, mut refused) = (0, 0);
    for n in 0..8000 {
        let (name, whole) = &files[n as usize % files.len()];
        let mut file = whole.clone();
        let mut draws = SampleRng::new(11, 0, n).op(0);
        for _ in 0..=draws.below(3) {
            // Half of the damage in what comes first: chunks, sizes, tables.
            let reach = if draws.chance(0.5) { file.len().min(60) } else { file.len() };
            let at = draws.below(reach as u64) as usize;
            match draws.below(4) {
                0 => file[at] ^= 1 << draws.below(8),
                1 => file[at] = draws.bits() as u8,
                2 => file.truncate(at.max(1)),
                _ => file.insert(at, file[at]),
            }
        }
        for codec in [&Webp as &dyn ImageCodec, &RustWebp] {
            // As the reader does: what asks for too much memory is not decoded.
            if codec.header(&file).is_ok_and(|header| header.peak_bytes > 8 << 20) {
                continue;
            }
            let Ok((info, pixels)) = decoded(codec, &file) else {
                refused += 1;
                continue;
            };
            read += 1;
            let rows = info.height / 3..info.height.div_ceil(2);
            let mut out = PixelBuffer::default();
            codec.decode(&file, &codec.header(&file).unwrap(), rows.clone(), &mut out).unwrap();
            let pitch = info.width as usize * usize::from(info.channels);
            let of = |pixels: &[u8], first: u32| {
                pixels[(rows.start - first) as usize * pitch..(rows.end - first) as usize * pitch].to_vec()
            };
            assert!(of(&out.data, out.rows.start) == of(&pixels, 0), "copy {n} of {name}");
        }
    }
    assert!(read > 2000 && refused > 2000, "{read} read, {refused} refused");
}
