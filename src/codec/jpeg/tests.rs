use std::sync::atomic::Ordering;

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::{header::SOS, turn::tests::exif, *};
use crate::random::SampleRng;

/// Waves with a little noise.
fn picture(height: u32, width: u32) -> Vec<u8> {
    let mut draws = SampleRng::new(3, 0, 0).op(0);
    let mut value = |y: u32, x: u32, c: u32| {
        let at = f64::from(y) * 0.21 + f64::from(x) * 0.13 + f64::from(c * 2);
        (128.0 + 90.0 * at.sin() + draws.unit() as f64 * 12.0) as u8
    };
    let mut pixels = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        pixels.extend([0, 1, 2].map(|c| value(y, x, c)));
    }
    pixels
}

fn file(
    height: u32,
    width: u32,
    quality: u8,
    sampling: SamplingFactor,
    change: impl Fn(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(sampling);
    change(&mut encoder);
    encoder.encode(&picture(height, width), width as u16, height as u16, ColorType::Rgb).unwrap();
    file
}

fn ours(file: &[u8]) -> Vec<u8> {
    let mut out = PixelBuffer::default();
    let info = Jpeg::new().info(file).unwrap();
    Jpeg::new().decode(file, &info, 0..info.height, &mut out).unwrap();
    out.data[..info.len_bytes() as usize].to_vec()
}

const SAMPLINGS: [SamplingFactor; 4] =
    [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2];

#[test]
fn pixels_are_those_of_zune() {
    let mut theirs = PixelBuffer::default();
    let mut sizes: Vec<(u32, u32)> = (1..=40).map(|n| (n, 41 - n)).collect();
    sizes.extend((1..=40).step_by(3).map(|n| (n, n)));
    for ((n, (height, width)), sampling) in sizes.into_iter().enumerate().flat_map(|s| SAMPLINGS.map(|f| (s, f))) {
        let quality = [15, 50, 75, 98][n % 4];
        let plain = file(height, width, quality, sampling, |encoder| {
            if n % 5 < 2 {
                encoder.set_restart_interval(1 + n as u16 % 7);
            }
        });
        let ours = ours(&plain);
        zune::decode(&plain, &Header::parse(&plain).unwrap(), false, &mut theirs).unwrap();
        let apart: Vec<u8> = ours.iter().zip(&theirs.data).map(|(a, b)| a.abs_diff(*b)).collect();
        let mean = apart.iter().map(|&d| f64::from(d)).sum::<f64>() / apart.len() as f64;
        // Other roundings; zune interpolates colour a little differently at edges, which are all of a small image.
        let most = if width.min(height) < 8 { 8.0 } else { 1.0 };
        assert!(mean < most, "{height}x{width} {sampling:?} {quality}: {mean:.2}, {:?}", apart.iter().max());
    }
}

#[test]
fn separate_scans_and_tables_of_ones_own_change_nothing() {
    for (n, sampling) in (1..=40).flat_map(|n| SAMPLINGS.map(|f| (n, f))) {
        let (height, width, quality) = (n, 41 - n, [15, 50, 75, 98][n as usize % 4]);
        let plain = file(height, width, quality, sampling, |_| {});
        // This encoder then writes a scan for each component.
        let apart = file(height, width, quality, sampling, |encoder| encoder.set_optimized_huffman_tables(true));
        assert_eq!(apart.windows(2).filter(|pair| pair == &[0xff, SOS]).count(), 3);
        assert!(ours(&plain) == ours(&apart), "{height}x{width} {sampling:?} {quality}");
    }
}

#[test]
fn a_buffer_that_held_other_images_changes_nothing() {
    // Tables are kept from image to image: other tables, the same, and other again.
    let mut out = PixelBuffer::default();
    for round in 0..3 {
        for (n, sampling) in SAMPLINGS.into_iter().enumerate() {
            let file = file(37 + n as u32, 50, 40 + 10 * n as u8, sampling, |encoder| {
                encoder.set_optimized_huffman_tables((n + round) % 2 == 0);
            });
            let info = Jpeg::new().info(&file).unwrap();
            Jpeg::new().decode(&file, &info, 0..info.height, &mut out).unwrap();
            assert!(out.data[..info.len_bytes() as usize] == ours(&file), "round {round}, {sampling:?}");
        }
    }
}

#[test]
fn a_table_of_the_last_image_is_none_of_this_one() {
    let good = file(20, 20, 80, SamplingFactor::F_1_1, |_| {});
    let mut bad = good.clone();
    let table = bad.windows(2).position(|pair| pair == [0xff, 0xc4]).unwrap();
    bad[table + 1] = 0xfe;
    let mut out = PixelBuffer::default();
    let info = Jpeg::new().info(&good).unwrap();
    Jpeg::new().decode(&good, &info, 0..20, &mut out).unwrap();
    let error = Jpeg::new().decode(&bad, &info, 0..20, &mut out).unwrap_err().to_string();
    assert!(error.contains("JPEG lacks Huffman table "), "{error}");
    Jpeg::new().decode(&good, &info, 0..20, &mut out).unwrap();
}

#[test]
fn a_window_at_a_scale_looks_like_the_image_shrunk() {
    for (sampling, scale) in SAMPLINGS.into_iter().flat_map(|s| [2, 4, 8].map(|scale| (s, scale))) {
        let (height, width) = (96, 128);
        let smooth: Vec<u8> =
            (0..height * width).flat_map(|n| [(n % width) as u8, (n / width) as u8 * 2, 90]).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 95);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&smooth, width as u16, height as u16, ColorType::Rgb).unwrap();
        let info = Jpeg::new().info(&file).unwrap();
        let mut out = PixelBuffer::default();
        Jpeg::new().window(&file, &info, &Window { scale, ..Window::of_rows(&info, 0..height) }, &mut out).unwrap();
        let planes = out.planes(&info).unwrap();
        assert_eq!(planes.planes[0].step, [scale; 2]);
        assert!(planes.planes[1..].iter().all(|plane| plane.step[1] == scale), "colour as wide as brightness");
        let luma = |y: u32, x: u32| {
            let at = 3 * (y * width + x) as usize;
            0.299 * f64::from(smooth[at]) + 0.587 * f64::from(smooth[at + 1]) + 0.114 * f64::from(smooth[at + 2])
        };
        for (y, x) in (0..height / scale).flat_map(|y| (0..width / scale).map(move |x| (y, x))) {
            let mut mean = 0.0;
            for (dy, dx) in (0..scale).flat_map(|dy| (0..scale).map(move |dx| (dy, dx))) {
                mean += luma(y * scale + dy, x * scale + dx) / f64::from(scale * scale);
            }
            let plane = &planes.planes[0];
            let found = planes.data[plane.at + y as usize * plane.pitch + x as usize];
            assert!((f64::from(found) - mean).abs() < 3.0, "{sampling:?} {scale}: {found} not {mean:.1} at {y}, {x}");
        }
    }
}

/// The planes of a window, without what lies beside them.
fn planes(codec: &Jpeg, file: &[u8], window: &Window, out: &mut PixelBuffer) -> Result<Vec<Vec<u8>>> {
    let info = codec.info(file)?;
    codec.window(file, &info, window, out)?;
    let planes = out.planes(&info).unwrap();
    let held = planes.planes.iter().map(|plane| {
        let lines = plane.rows.clone().enumerate();
        let line = |(n, _)| &planes.data[plane.at + n * plane.pitch..][..plane.cols.len()];
        lines.flat_map(line).copied().collect()
    });
    Ok(held.collect())
}

fn windows(height: u32, width: u32, seed: u64) -> impl Iterator<Item = Window> {
    let mut draws = SampleRng::new(seed, 0, 0).op(0);
    let mut range = move |size: u32| {
        let [a, b] = [0; 2].map(|_| draws.below(size.into()) as u32);
        a.min(b)..a.max(b) + 1
    };
    let info = ImageInfo::interleaved_u8(height, width, 3);
    std::iter::from_fn(move || {
        let (rows, cols) = (range(height), range(width));
        let scale = [1, 1, 2, 4, 8][(rows.start % 5) as usize];
        Some(Window { cols, scale, ..Window::of_rows(&info, rows) })
    })
}

#[test]
fn what_is_known_of_a_file_changes_no_pixel() {
    let index = DecodeIndex::new(1 << 20);
    let indexed = Jpeg::new().index(index.clone());
    let (mut with, mut without) = (PixelBuffer::default(), PixelBuffer::default());
    for (n, sampling) in SAMPLINGS.into_iter().enumerate() {
        // Wider than the distance of two points, and not a multiple of it.
        let (height, width) = (150, 700 + 13 * n as u32);
        for optimised in [false, true] {
            let file = file(height, width, 85, sampling, |encoder| encoder.set_optimized_huffman_tables(optimised));
            for window in windows(height, width, n as u64).take(60) {
                let expected = planes(&Jpeg::new(), &file, &window, &mut without).unwrap();
                assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
            }
        }
    }
    assert_eq!(index.len(), 4, "one of each kind: files with separate scans are not in it");
    assert!(index.bytes() > 4 * 8 * 10, "{index:?}");
}

#[test]
fn a_whole_file_is_known_once_its_last_row_was_read() {
    let index = DecodeIndex::new(1 << 20);
    let indexed = Jpeg::new().index(index.clone());
    let file = file(160, 520, 90, SamplingFactor::F_1_1, |_| {});
    let info = indexed.info(&file).unwrap();
    let points = |index: &DecodeIndex| index.find(DecodeIndex::key(&file)).map_or(0, |known| known.points.len());
    let mut out = PixelBuffer::default();
    indexed.decode(&file, &info, 0..80, &mut out).unwrap();
    // 65 units a row: five points. The last of a row is the first of the next.
    assert_eq!(points(&index), 51);
    indexed.decode(&file, &info, 0..80, &mut out).unwrap();
    indexed.decode(&file, &info, 8..16, &mut out).unwrap();
    assert_eq!(points(&index), 51);
    indexed.decode(&file, &info, 100..101, &mut out).unwrap();
    assert_eq!(points(&index), 13 * 5 + 1);
    indexed.decode(&file, &info, 0..160, &mut out).unwrap();
    assert_eq!(points(&index), 101);
    // Without an end it is not known, and no less an error.
    let cut = &file[..file.len() - 2];
    indexed.decode(cut, &info, 0..160, &mut out).unwrap();
    assert_eq!(index.len(), 1);
}

#[test]
fn an_index_that_lies_is_not_believed() {
    let file = file(96, 96, 90, SamplingFactor::F_2_2, |_| {});
    let info = Jpeg::new().info(&file).unwrap();
    let mut out = PixelBuffer::default();
    let mut draws = SampleRng::new(1, 0, 0).op(0);
    for n in 0..400 {
        let window = Window { cols: 20..40, scale: [1, 4, 8][n % 3], ..Window::of_rows(&info, 50..60) };
        let index = DecodeIndex::new(1 << 20);
        index.lie(&file, 7, 216 - n % 2, || draws.below(1 << 58));
        // Any pixels or an error: what is promised is that it ends, within bounds.
        let _ = planes(&Jpeg::new().index(index), &file, &window, &mut out);
    }
}

#[test]
fn lengths_of_blocks_that_are_wrong_change_no_pixel() {
    let mut draws = SampleRng::new(2, 0, 0).op(0);
    let (mut with, mut without) = (PixelBuffer::default(), PixelBuffer::default());
    for sampling in SAMPLINGS {
        let file = file(96, 400, 90, sampling, |_| {});
        let info = Jpeg::new().info(&file).unwrap();
        let [units, blocks] = match sampling {
            SamplingFactor::F_1_1 => [12 * 50, 3],
            SamplingFactor::F_2_1 => [12 * 25, 4],
            SamplingFactor::F_1_2 => [6 * 50, 4],
            _ => [6 * 25, 6],
        };
        for n in 0..30 {
            let window = Window { cols: 20..340, scale: [4, 8][n % 2], ..Window::of_rows(&info, 30..60 + n as u32) };
            let index = DecodeIndex::new(1 << 20);
            let indexed = Jpeg::new().index(index.clone());
            let expected = planes(&Jpeg::new(), &file, &window, &mut without).unwrap();
            // All points and lengths are known, and then one is another.
            indexed.window(&file, &info, &Window { scale: 8, ..Window::of_rows(&info, 0..96) }, &mut with).unwrap();
            assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
            let lengths = index.lengths(DecodeIndex::key(&file), units * blocks).expect("they were noted");
            assert!(lengths.from(0).iter().filter(|l| l.load(Ordering::Relaxed) > 0).count() > units * blocks / 2);
            let broken = &lengths.from(units / 2 * blocks + draws.below(units as u64 / 4) as usize)[0];
            broken.store(broken.load(Ordering::Relaxed).wrapping_add(1 + draws.below(254) as u8), Ordering::Relaxed);
            assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
        }
    }
}

#[test]
fn images_are_turned_only_if_asked() {
    let lying = file(21, 34, 90, SamplingFactor::F_2_2, |encoder| encoder.add_app_segment(1, exif(6, true)).unwrap());
    let (as_is, upright) = (Jpeg::new(), Jpeg::new().orientation(true));
    let stored = ours(&lying);
    let info = upright.info(&lying).unwrap();
    assert_eq!((info.height, info.width), (34, 21));
    assert_eq!(as_is.info(&lying).unwrap().height, 21);
    let mut out = PixelBuffer::default();
    upright.decode(&lying, &info, 3..5, &mut out).unwrap();
    let at = |data: &[u8], width: usize, y: usize, x: usize| data[3 * (y * width + x)..][..3].to_vec();
    for (y, x) in (0..34).flat_map(|y| (0..21).map(move |x| (y, x))) {
        assert_eq!(at(&out.data, 21, y, x), at(&stored, 34, 20 - x, y));
    }
    upright.window(&lying, &info, &Window::of_rows(&info, 0..34), &mut out).unwrap();
    assert!(out.planes(&info).is_none() && at(&out.data, 21, 0, 0) == at(&stored, 34, 20, 0));
}

#[test]
fn what_is_missing_is_gray_only_if_asked() {
    let whole = file(64, 64, 90, SamplingFactor::F_1_1, |_| {});
    let cut = &whole[..whole.len() * 2 / 3];
    let info = Jpeg::new().info(cut).unwrap();
    let mut out = PixelBuffer::default();
    let error = Jpeg::new().decode(cut, &info, 0..64, &mut out).unwrap_err().to_string();
    assert!(error.contains("JPEG ends after "), "{error}");
    Jpeg::new().fill(true).decode(cut, &info, 0..64, &mut out).unwrap();
    let right = ours(&whole);
    assert!(out.data[..3 * 64 * 24] == right[..3 * 64 * 24], "rows before the cut");
    assert!(out.data[3 * 64 * 56..3 * 64 * 64].iter().all(|&value| value == 128), "rows behind it");
    // Headers are not made up.
    assert!(Jpeg::new().fill(true).info(&whole[..100]).is_err());
}
