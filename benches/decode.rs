//! Encoded bytes to pixels, and all the way to rows of a batch: what the training and the validation transform of
//! ImageNet read of each image.
//!
//! `INFEED_PHOTOS=folder` adds the JPEGs below a folder. Warm: files and buffers are in memory.

use std::{env, fs, hint::black_box, path::Path, time::Duration};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use infeed::{
    DType, Layout, Result, Transform,
    codec::{ImageCodec, ImageHeader, Jpeg, PixelBuffer, Png, Window},
    dataset::{FieldKind, ImageInfo, SampleRng},
    internal::kernels::{Pixels, Resampler},
    spi::Lowered,
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

/// A buffer, and what becomes of each file in it.
struct Way<'a> {
    codec: &'a dyn ImageCodec,
    pixels: PixelBuffer,
    resampler: Resampler,
    row: Vec<u8>,
}

impl Way<'_> {
    /// All pixels, interleaved.
    fn full(&mut self, file: &[u8], info: &ImageHeader) -> Result<()> {
        self.codec.decode(black_box(file), info, 0..info.height, &mut self.pixels)
    }

    /// A finished row, as a CPU worker makes it.
    fn row(&mut self, file: &[u8], info: &ImageHeader, lowered: &Lowered, rng: SampleRng) -> Result<()> {
        let (spec, params) = (lowered.row(), lowered.params(info, rng)?);
        self.row.resize(spec.len_bytes(), 0);
        let table = lowered.table(info.dtype);
        self.codec.window(black_box(file), info, &Window::of_params(&params, spec), &mut self.pixels)?;
        if let Some(planes) = self.pixels.planes(info) {
            return self.resampler.run_planes(&planes, &params, table, spec, &mut self.row);
        }
        let rows = self.pixels.rows.clone();
        let held = ImageInfo { height: rows.len() as u32, ..info.info }.len_bytes() as usize;
        let source = Pixels { info: info.info, rows, data: &self.pixels.data[..held] };
        self.resampler.run(&source, &params, table, spec, &mut self.row)
    }
}

fn bench(c: &mut Criterion, codec: &dyn ImageCodec, name: &str, files: &[Vec<u8>]) {
    let infos: Vec<ImageHeader> = files.iter().map(|file| codec.header(file).expect("a good file")).collect();
    let field = FieldKind::Image { channels: 3, size: None, dtype: None };
    let mut way = Way { codec, pixels: PixelBuffer::default(), resampler: Resampler::new(), row: Vec::new() };
    let mut group = c.benchmark_group(format!("decode/{name}"));
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    group.throughput(Throughput::ElementsAndBytes {
        elements: files.len() as u64,
        bytes: files.iter().map(|file| file.len() as u64).sum(),
    });
    group.bench_function("full", |b| {
        b.iter(|| files.iter().zip(&infos).for_each(|(file, info)| way.full(file, info).expect("a good file")));
    });
    for preset in ["imagenet-train", "imagenet-val"] {
        let transform = Transform::preset(preset).expect("a preset");
        let lowered = transform.lower(&field, DType::F32, Layout::Nchw).expect("a field of colours");
        let mut round = 0;
        group.bench_function(preset, |b| {
            b.iter(|| {
                // Other crops in each round, as in each epoch.
                round += 1;
                for ((file, info), n) in files.iter().zip(&infos).zip(0..) {
                    way.row(file, info, &lowered, SampleRng::new(1, round, n)).expect("a good file");
                }
            });
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
        } else if let Some(file) = fs::read(&path).ok().filter(|file| Jpeg::new().info(file).is_ok()) {
            files.push(file);
        }
    }
}

fn decode(c: &mut Criterion) {
    for (name, sampling) in [("444", SamplingFactor::F_1_1), ("420", SamplingFactor::F_2_2)] {
        let files: Vec<_> = (0..16).map(|seed| jpeg(375, 500, seed, sampling)).collect();
        bench(c, &Jpeg::new(), &format!("jpeg/{name}/500x375"), &files);
    }
    let large = vec![jpeg(3000, 4000, 0, SamplingFactor::F_2_2)];
    bench(c, &Jpeg::new(), "jpeg/420/4000x3000", &large);
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
        bench(c, &Jpeg::new(), "jpeg/photos", &files);
    }
}

criterion_group!(benches, decode);
criterion_main!(benches);
