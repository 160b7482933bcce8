use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::*;
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
    let info = Jpeg.info(file).unwrap();
    Jpeg.decode(file, &info, 0..info.height, &mut out).unwrap();
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
        let file = file(height, width, quality, sampling, |encoder| {
            // Not both: this encoder counts the codes of an image without restarts.
            encoder.set_optimized_huffman_tables(n % 5 > 1 && n % 3 == 0);
            if n % 5 < 2 {
                encoder.set_restart_interval(1 + n as u16 % 7);
            }
        });
        let ours = ours(&file);
        zune::decode(&file, &Header::parse(&file).unwrap(), &mut theirs).unwrap();
        let apart: Vec<u8> = ours.iter().zip(&theirs.data).map(|(a, b)| a.abs_diff(*b)).collect();
        let mean = apart.iter().map(|&d| f64::from(d)).sum::<f64>() / apart.len() as f64;
        // Other roundings; zune interpolates colour a little differently at some edges.
        assert!(mean < 1.0, "{height}x{width} {sampling:?} {quality}: {mean:.2}, {:?}", apart.iter().max());
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
            let info = Jpeg.info(&file).unwrap();
            Jpeg.decode(&file, &info, 0..info.height, &mut out).unwrap();
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
    let info = Jpeg.info(&good).unwrap();
    Jpeg.decode(&good, &info, 0..20, &mut out).unwrap();
    let error = Jpeg.decode(&bad, &info, 0..20, &mut out).unwrap_err().to_string();
    assert!(error.contains("JPEG lacks Huffman table "), "{error}");
    Jpeg.decode(&good, &info, 0..20, &mut out).unwrap();
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
        let info = Jpeg.info(&file).unwrap();
        let mut out = PixelBuffer::default();
        Jpeg.window(&file, &info, &Window { scale, ..Window::of_rows(&info, 0..height) }, &mut out).unwrap();
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
