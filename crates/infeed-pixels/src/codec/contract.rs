//! The contract of every [`ImageCodec`], as a check that implementers call from their tests.

use std::ops::Range;

use infeed_core::{error::Result, random::SampleRng, types::ImageInfo};

use super::{ImageCodec, ImageHeader, PixelBuffer, Window};
use crate::kernels::{Plane, Planes};

/// Damaged headers that claim more bytes are not decoded: the loader refuses them by `max_image_bytes`.
const MOST_BYTES: u64 = 64 << 20;

/// Checks a codec with good files (name and bytes) of its kind.
///
/// - It recognises the files by at most 64 bytes, and does not recognise an empty file.
/// - `decode` gives the pixels that the header and the requested rows announce.
/// - Pixels that it finds [in place](ImageCodec::in_place) equal the decoded ones.
/// - Any range of rows equals those rows of the whole image, also in a buffer that held another image.
/// - A window with columns, at any scale, covers what was requested, and its planes hold the values of the whole
///   image's planes.
/// - An empty or truncated file is an error, or gives the same pixels if the missing bytes held none.
/// - Damaged bytes give errors or pixels, never a panic.
///
/// A few files of 100 KB take about two seconds in an optimised build: each file is decoded about 800 times.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # let mut file = std::io::Cursor::new(Vec::new());
/// # let image = image::RgbImage::from_fn(9, 7, |x, y| image::Rgb([x as u8, y as u8, 9]));
/// # image.write_to(&mut file, image::ImageFormat::Png).unwrap();
/// # let file = file.into_inner();
/// use infeed::codec::{Png, codec_contract};
///
/// codec_contract(&Png, &[("9x7.png", &file)]);
/// # }
/// ```
///
/// # Panics
/// If the codec breaks a promise; the message names the file.
pub fn codec_contract(codec: &dyn ImageCodec, files: &[(&str, &[u8])]) {
    let kind = codec.name();
    assert!(!codec.recognises(b""), "{kind}: recognises an empty file");
    assert!(codec.header(b"").is_err(), "{kind}: gives a size for an empty file");
    let mut used = PixelBuffer::default();
    for (name, file) in files {
        assert!(codec.recognises(&file[..file.len().min(64)]), "{kind}: does not recognise {name}");
        let info = codec.header(file).unwrap_or_else(|e| panic!("{kind}: no header of {name}: {e:#}"));
        assert!(codec.info(file).is_ok_and(|found| found == info.info), "{kind}: two sizes of {name}");
        let whole = decode(codec, file, &info, 0..info.height, &mut PixelBuffer::default());
        let whole = whole.unwrap_or_else(|e| panic!("{kind}: does not decode {name}: {e:#}"));

        let in_place = codec.in_place(file).unwrap_or_else(|e| panic!("{kind}: in_place of {name}: {e:#}"));
        if let Some((found, at)) = in_place {
            assert!(found == info.info, "{kind}: {name} is {found:?} in place, {:?} decoded", info.info);
            let same = file.get(at).is_some_and(|pixels| pixels == &whole[..]);
            assert!(same, "{kind}: pixels of {name} in place differ from the decoded ones");
        }

        for rows in windows(info.height) {
            let some = decode(codec, file, &info, rows.clone(), &mut used);
            let some = some.unwrap_or_else(|e| panic!("{kind}: rows {rows:?} of {name}: {e:#}"));
            assert!(
                some == *part(&whole, &info, &rows),
                "{kind}: rows {rows:?} of {name} differ from the whole image's"
            );
        }
        check_windows(codec, name, file, &info, &whole, &mut used);
        check_cut(codec, name, file, &whole, &mut used);
        check_damaged(codec, name, file, &mut used);
    }
}

fn check_windows(
    codec: &dyn ImageCodec,
    name: &str,
    file: &[u8],
    info: &ImageHeader,
    pixels: &[u8],
    used: &mut PixelBuffer,
) {
    let kind = codec.name();
    let ask = |window: &Window, out: &mut PixelBuffer| {
        codec.window(file, info, window, out).unwrap_or_else(|e| panic!("{kind}: {window:?} of {name}: {e:#}"));
    };
    for scale in [1, 2, 4, 8] {
        let all = Window { scale, ..Window::of_rows(info, 0..info.height) };
        let mut whole = PixelBuffer::default();
        ask(&all, &mut whole);
        for rows in windows(info.height) {
            let third = info.width / 3;
            for cols in [0..info.width, third..info.width.min(third + 9), info.width - 1..info.width] {
                for within in [all.within.clone(), [rows.clone(), cols.clone()]] {
                    let window = Window { rows: rows.clone(), cols: cols.clone(), within, scale };
                    ask(&window, used);
                    let Some(planes) = used.planes(info) else {
                        let held = used.rows.clone();
                        assert!(
                            held.start <= rows.start && rows.end <= held.end,
                            "{kind}: {window:?} of {name}: {held:?}"
                        );
                        let held_info = ImageInfo { height: held.len() as u32, ..info.info };
                        let decoded = &used.data[..held_info.len_bytes() as usize];
                        // Only the window must be valid.
                        let decoded = part(decoded, &held_info, &(rows.start - held.start..rows.end - held.start));
                        let same =
                            of_columns(&decoded, info, &cols) == of_columns(&part(pixels, info, &rows), info, &cols);
                        assert!(same, "{kind}: {window:?} of {name} has other pixels");
                        continue;
                    };
                    let whole = whole.planes(info).expect("planes for the whole image if for a part");
                    same_planes(&planes, &whole, &window)
                        .unwrap_or_else(|e| panic!("{kind}: {window:?} of {name}: {e}"));
                }
            }
        }
    }
}

/// The pixels of some columns. Planar pixels are compared whole.
fn of_columns(pixels: &[u8], info: &ImageInfo, cols: &Range<u32>) -> Vec<u8> {
    if info.planar {
        return pixels.to_vec();
    }
    let pixel = usize::from(info.channels) * info.dtype.size();
    let within = cols.start as usize * pixel..cols.end as usize * pixel;
    pixels.chunks(info.width as usize * pixel).flat_map(|row| row[within.clone()].to_vec()).collect()
}

/// Whether planes cover a window and hold the same values as the planes of the whole image.
fn same_planes(some: &Planes<'_>, whole: &Planes<'_>, window: &Window) -> Result<(), String> {
    let covers = |held: &Range<u32>, step: u32, need: &Range<u32>| {
        held.start * step <= need.start && need.end <= held.end.saturating_mul(step)
    };
    if (some.planes.len(), some.ycbcr) != (whole.planes.len(), whole.ycbcr) {
        return Err("other planes than those of the whole image".into());
    }
    for (part, all) in some.planes.iter().zip(whole.planes) {
        let [down, across] = part.step;
        if part.step != all.step || down > 4 * window.scale || across > 4 * window.scale {
            return Err(format!("steps {:?} and {:?}", part.step, all.step));
        }
        if !covers(&part.rows, down, &window.rows) || !covers(&part.cols, across, &window.cols) {
            return Err(format!("{part:?} does not cover it"));
        }
        let values = |planes: &Planes<'_>, plane: &Plane, y: u32| {
            let at = plane.at + (y - plane.rows.start) as usize * plane.pitch;
            let (from, to) = (part.cols.start - plane.cols.start, part.cols.end - plane.cols.start);
            planes.data[at + from as usize..at + to as usize].to_vec()
        };
        if let Some(y) = part.rows.clone().find(|&y| values(some, part, y) != values(whole, all, y)) {
            return Err(format!("row {y} of {part:?} has other values"));
        }
    }
    Ok(())
}

fn check_cut(codec: &dyn ImageCodec, name: &str, file: &[u8], whole: &[u8], used: &mut PixelBuffer) {
    let kind = codec.name();
    let cuts = (0..64).map(|n| file.len() * n / 64).chain((1..=8).map(|n| file.len().saturating_sub(n)));
    for cut in cuts {
        let file = &file[..cut];
        if let Ok(Some((_, at))) = codec.in_place(file) {
            assert!(
                file.get(at).is_some_and(|pixels| pixels == whole),
                "{kind}: {name} cut after {cut} bytes, in place"
            );
        }
        let Ok(info) = codec.header(file) else { continue };
        // A window in the upper half: whether a file is bad must not depend on which part is read.
        for rows in [0..info.height.div_ceil(2), 0..info.height] {
            if let Ok(pixels) = decode(codec, file, &info, rows.clone(), used) {
                let same = pixels == *part(whole, &info, &rows);
                assert!(same, "{kind}: {name} cut after {cut} bytes gives other pixels instead of an error");
            }
        }
    }
}

fn check_damaged(codec: &dyn ImageCodec, name: &str, file: &[u8], used: &mut PixelBuffer) {
    for n in 0..200 {
        let mut draws = SampleRng::new(7, 0, n).op(0);
        let mut file = file.to_vec();
        for _ in 0..=draws.below(4) {
            // Headers are a small part of a file and the larger part of a codec's code, so half of the damage goes
            // there.
            let reach = if draws.chance(0.5) { file.len().min(700) } else { file.len() };
            let at = draws.below(reach as u64) as usize;
            match draws.below(3) {
                0 => file[at] ^= 1 << draws.below(8),
                1 => file[at] = draws.bits() as u8,
                _ => file[at] = [0x00, 0xff][draws.below(2) as usize],
            }
        }
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            if let Ok(Some((info, at))) = codec.in_place(&file) {
                assert!(file.get(at).is_some_and(|pixels| pixels.len() as u64 == info.len_bytes()));
            }
            let info = codec.header(&file).ok()?;
            let fits = info.peak_bytes <= MOST_BYTES;
            fits.then(|| {
                let whole = decode(codec, &file, &info, 0..info.height, used).map(drop);
                let window = Window { scale: 1 << (n % 4), ..Window::of_rows(&info, info.height / 2..info.height) };
                whole.and(codec.window(&file, &info, &window, used))
            })
        }));
        assert!(shown.is_ok(), "{}: panics on damaged copy {n} of {name}", codec.name());
    }
}

/// Rows at the edges of the blocks in which codecs work, and ordinary ones.
fn windows(height: u32) -> Vec<Range<u32>> {
    let ends = [1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, height / 2, height.saturating_sub(1), height];
    let mut windows: Vec<_> = ends.into_iter().filter(|end| (1..=height).contains(end)).map(|end| 0..end).collect();
    windows.extend([height / 3..height.div_ceil(2), height - 1..height].into_iter().filter(|w| !w.is_empty()));
    windows
}

/// The requested rows, checked against the announced sizes.
fn decode(
    codec: &dyn ImageCodec,
    file: &[u8],
    info: &ImageHeader,
    rows: Range<u32>,
    out: &mut PixelBuffer,
) -> Result<Vec<u8>> {
    codec.decode(file, info, rows.clone(), out)?;
    let held = out.rows.clone();
    assert!(held.start <= rows.start && rows.end <= held.end, "{}: gives rows {held:?}, not {rows:?}", codec.name());
    assert!(held.end <= info.height, "{}: gives rows {held:?} of {}", codec.name(), info.height);
    let held = ImageInfo { height: held.end - held.start, ..info.info };
    let pixels = out.data.get(..held.len_bytes() as usize);
    let pixels = pixels.unwrap_or_else(|| panic!("{}: gives fewer bytes than it announces", codec.name()));
    let rows = rows.start - out.rows.start..rows.end - out.rows.start;
    Ok(part(pixels, &held, &rows))
}

fn part(pixels: &[u8], info: &ImageInfo, rows: &Range<u32>) -> Vec<u8> {
    let planes = if info.planar { usize::from(info.channels) } else { 1 };
    let row = (ImageInfo { height: 1, ..*info }).len_bytes() as usize / planes;
    let plane = pixels.chunks_exact(row * info.height as usize);
    plane.flat_map(|plane| &plane[row * rows.start as usize..row * rows.end as usize]).copied().collect()
}
