//! Encoded bytes to pixels: whole images, and the rows that random crops need.
//!
//! `INFEED_PHOTOS=folder` adds the JPEGs below a folder. Warm: files and buffers are in memory.

use std::{env, fs, hint::black_box, ops::Range, path::Path, time::Duration};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use infeed::{
    ImageInfo, SampleRng,
    codec::{ImageCodec, Jpeg, PixelBuffer, Png},
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Like a photograph: waves, edges and noise, 105 KB as a JPEG.
fn picture(height: u32, width: u32, seed: u64) -> Vec<u8> {
    let mut draws = SampleRng::new(seed, 0, 0).op(0);
    let mut pixels = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let edge = if (x / 40 + y / 25) % 3 == 0 { 40 } else { 0 };
            let noise = draws.below(28) as i32;
            for phase in [0.0, 1.0, 2.0] {
                let wave = (f64::from(x) * 0.03 + f64::from(y) * 0.02 + phase).sin() * 60.0;
                pixels.push((128 + wave as i32 + edge + noise - 14).clamp(0, 255) as u8);
            }
        }
    }
    pixels
}

fn jpeg(height: u32, width: u32, seed: u64, sampling: SamplingFactor) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 88);
    encoder.set_sampling_factor(sampling);
    encoder.encode(&picture(height, width, seed), width as u16, height as u16, ColorType::Rgb).expect("valid sizes");
    file
}

/// The rows of a random resized crop: 8 to 100 % of the area, aspect 3/4 to 4/3, anywhere.
fn crop(info: &ImageInfo, seed: u64) -> Range<u32> {
    let mut draws = SampleRng::new(1, 0, seed).op(0);
    for _ in 0..10 {
        let area = f64::from(info.height) * f64::from(info.width) * draws.between(0.08, 1.0);
        let ratio = draws.between((3.0f64 / 4.0).ln(), (4.0f64 / 3.0).ln()).exp();
        let (width, height) = ((area * ratio).sqrt().round() as u32, (area / ratio).sqrt().round() as u32);
        if (1..=info.width).contains(&width) && (1..=info.height).contains(&height) {
            let top = draws.below(u64::from(info.height - height + 1)) as u32;
            return top..top + height;
        }
    }
    0..info.height
}

fn bench(c: &mut Criterion, codec: &dyn ImageCodec, name: &str, files: &[Vec<u8>]) {
    let sizes: Vec<ImageInfo> = files.iter().map(|file| codec.info(file).expect("a good file")).collect();
    let mut group = c.benchmark_group(format!("decode/{name}"));
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    for crops in [false, true] {
        let all = || files.iter().zip(&sizes).enumerate();
        group.throughput(Throughput::ElementsAndBytes {
            elements: files.len() as u64,
            bytes: files.iter().map(|file| file.len() as u64).sum(),
        });
        let mut out = PixelBuffer::default();
        let mut round = 0;
        group.bench_function(if crops { "needed-rows" } else { "full" }, |b| {
            b.iter_batched(
                || {
                    round += 1;
                    round
                },
                |round| {
                    for (n, (file, info)) in all() {
                        let rows = if crops { crop(info, round << 32 | n as u64) } else { 0..info.height };
                        codec.decode(black_box(file), info, rows, &mut out).expect("a good file");
                    }
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn collect(folder: &Path, files: &mut Vec<Vec<u8>>) {
    let entries = fs::read_dir(folder).expect("INFEED_PHOTOS is a folder").flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if let Some(file) = fs::read(&path).ok().filter(|file| Jpeg.info(file).is_ok()) {
            files.push(file);
        }
    }
}

fn decode(c: &mut Criterion) {
    for (name, sampling) in [("444", SamplingFactor::F_1_1), ("420", SamplingFactor::F_2_2)] {
        let files: Vec<_> = (0..16).map(|seed| jpeg(375, 500, seed, sampling)).collect();
        bench(c, &Jpeg, &format!("jpeg/{name}/500x375"), &files);
    }
    let png = |seed| {
        let image = image::RgbImage::from_raw(500, 375, picture(375, 500, seed)).expect("the right length");
        let mut file = std::io::Cursor::new(Vec::new());
        image.write_to(&mut file, image::ImageFormat::Png).expect("writing to memory");
        file.into_inner()
    };
    bench(c, &Png, "png/500x375", &(0..4).map(png).collect::<Vec<_>>());
    if let Some(folder) = env::var_os("INFEED_PHOTOS") {
        let mut files = Vec::new();
        collect(Path::new(&folder), &mut files);
        bench(c, &Jpeg, "jpeg/photos", &files);
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
