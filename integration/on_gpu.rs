//! What a loader promises, on the GPU of this machine. Without one, the mock GPU stands in, so that these tests are
//! known to be sound before they meet a real one; `integration/gpu/run.py` runs them there, each in its own process.
//!
//! nvJPEG's pixels are not the CPU decoder's to the bit. How far apart they may be is said by [`Bound`]; on the mock,
//! whose nvJPEG is the CPU's decoder, they are equal. Lines that begin with `figure` are collected by the script.
//!
//! A decoder may give files away (4:4:0, restart markers, small pictures: NVIDIA says little of what engines take). What it gave
//! away is decoded by the next, so refusals of a real GPU are a figure, never a failure; the mock refuses nothing.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    fs,
    future::IntoFuture as _,
    path::Path,
    ptr,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

use image::{ExtendedColorType, ImageEncoder};
use infeed::{
    DType, Device, ErrorKind, IMAGENET_MEAN, IMAGENET_STD, LastBatch, Layout, Loader, LoaderBuilder, OnBadSample,
    Transform,
    codec::{GpuSplit, ImageCodec, Jpeg, PixelBuffer, codecs},
    dataset::{Dataset, FieldKind, MemoryBuilder, MemoryDataset, SampleRng},
    internal::{
        cuda::{Context, Copies, Kernels, Meter},
        kernels::{RowScratch, RowWork},
        nvjpeg::{BatchDecoder, Coded, Failure, Hardware, HardwareSize, Staged},
        process,
        rows::Pool,
    },
    spi::Sampling,
    transform::{
        Draws, Interpolation, PRESETS, RowView, View,
        augment::{Erasing, Mix, Noise, PerMix, Policy, RandomAffine, RandomErasing},
    },
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::{
    device::{GPU, Trainer, agree, images, loader, pictures},
    mock::ok,
    nvjpeg::{AsPixels, CPU, HARDWARE, HYBRID, Watched, dataset, options, rows},
    support::{
        mock::{Mock, on_mock},
        skipped, until,
    },
};

/// The GPU that a test runs on.
struct At<'a> {
    mock: Option<&'a Mock>,
}

impl At<'_> {
    /// How much to do: on a real GPU, on the mock.
    fn of<T>(&self, real: T, mock: T) -> T {
        if self.mock.is_some() { mock } else { real }
    }
}

#[expect(clippy::print_stderr, reason = "figures for the script")]
fn figure(name: &str, value: impl serde::Serialize) {
    eprintln!("figure {}", serde_json::json!({ "name": name, "value": value }));
}

/// Runs `body` on this machine's GPU, or on the mock. `test` is the test's path.
fn on_gpu(test: &str, body: impl FnOnce(&At<'_>)) {
    let gpus = infeed::device::devices().gpus;
    if gpus.first().is_none_or(|gpu| gpu.name.contains("mock")) {
        return on_mock(test, &[], |mock| {
            mock.allow_leaks_of("context");
            mock.register_decoder();
            body(&At { mock: Some(mock) });
        });
    }
    // Some tests look at how much memory is left.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    figure("gpu", &gpus[0].name);
    body(&At { mock: None });
}

/// Sides of pictures that engines are known to take.
const ENGINES_FROM: u32 = 256;

/// What engines did not take, and in which words.
#[derive(Debug, Default, serde::Serialize)]
struct Refusals {
    offered: usize,
    refused: usize,
    why: BTreeMap<String, usize>,
}

impl Refusals {
    fn refuse(&mut self, why: impl std::fmt::Display) {
        self.refused += 1;
        *self.why.entry(why.to_string()).or_default() += 1;
    }
}

/// Decodes the files one by one and forgets the pixels.
fn refusals(engines: &mut Hardware, files: &[Vec<u8>]) -> Refusals {
    let mut refusals = Refusals { offered: files.len(), ..Refusals::default() };
    for file in files {
        let coded = Coded::parse(file).expect("a sequential JPEG");
        match engines.stage(&coded, coded.height).unwrap() {
            Staged::Refused(why) => refusals.refuse(format_args!("before decoding: {why:#}")),
            staged => {
                assert!(matches!(staged, Staged::Taken(0)), "{staged:?}");
                match engines.decode() {
                    Ok(()) => {
                        let ticket = engines.launch().unwrap();
                        if !engines.unwritten(ticket).unwrap().is_empty() {
                            refusals.refuse("not written, and no error told");
                        }
                    }
                    Err(why) => refusals.refuse(format_args!("by decoding: {:#}", of_images(why))),
                }
            }
        }
    }
    refusals
}

/// The error of a batch that failed. A lost GPU fails the test.
fn of_images(failure: Failure) -> infeed::Error {
    match failure {
        Failure::Images(error) => error,
        Failure::Lost(error) => panic!("the GPU is lost: {error:#}"),
    }
}

/// How far rows of two decoders may be apart, in levels of 255.
#[derive(Clone, Copy, Debug)]
struct Bound {
    mean: f64,
    psnr: f64,
}

/// What two right decoders of one file are within, whatever they interpolate chroma by. A row of another image is some 40
/// levels away.
const ALIKE: Bound = Bound { mean: 3.0, psnr: 30.0 };
/// Ink is turned into light by formulas that differ: only an inverted or mixed-up channel is caught.
const INK: Bound = Bound { mean: 6.0, psnr: 26.0 };

/// Of all values of two lists of rows.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Difference {
    rows: usize,
    mean: f64,
    max: u8,
    psnr: f64,
}

fn difference(found: &[Vec<u8>], expected: &[Vec<u8>]) -> Difference {
    assert_eq!(found.len(), expected.len());
    let (mut sum, mut squares, mut max, mut count) = (0u64, 0u64, 0, 0u64);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            let apart = a.abs_diff(*b);
            max = max.max(apart);
            sum += u64::from(apart);
            squares += u64::from(apart) * u64::from(apart);
        }
        count += found.len() as u64;
    }
    let mean_square = squares as f64 / count.max(1) as f64;
    // Equal rows have no noise at all: a number that JSON can hold.
    let psnr = if squares == 0 { 99.0 } else { 10.0 * (255.0f64 * 255.0 / mean_square).log10() };
    Difference { rows: found.len(), mean: sum as f64 / count.max(1) as f64, max, psnr }
}

impl Difference {
    fn is_within(&self, bound: Bound) -> bool {
        self.mean <= bound.mean && self.psnr >= bound.psnr
    }
}

/// A picture with soft shapes and a little grain, as photographs have, that depends on `salt`.
fn scene(width: u32, height: u32, channels: u32, salt: u32) -> Vec<u8> {
    let mut draws = SampleRng::new(7, 0, salt.into()).op(0);
    let [a, b, c] = [0; 3].map(|_: i32| 20.0 + 40.0 * draws.unit());
    let mut pixels = Vec::with_capacity((width * height * channels) as usize);
    for y in 0..height {
        for x in 0..width {
            let (x, y) = (x as f32, y as f32);
            let light = 128.0 + 60.0 * (x / a).sin() * (y / b).cos() + 3.0 * draws.unit();
            for channel in 0..channels {
                let tint = 30.0 * ((x + y) / (c * 2.0) + channel as f32 * 2.0).sin();
                pixels.push((light + tint).clamp(0.0, 255.0) as u8);
            }
        }
    }
    pixels
}

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    colour: ColorType,
    sampling: SamplingFactor,
    progressive: bool,
    restarts: u16,
    bound: Bound,
}

const PLAIN: Kind = Kind {
    name: "4:2:0",
    colour: ColorType::Rgb,
    sampling: SamplingFactor::F_2_2,
    progressive: false,
    restarts: 0,
    bound: ALIKE,
};

/// What engines take.
const ORDINARY: [Kind; 6] = [
    PLAIN,
    Kind { name: "4:4:4", sampling: SamplingFactor::F_1_1, ..PLAIN },
    Kind { name: "4:2:2", sampling: SamplingFactor::F_2_1, ..PLAIN },
    Kind { name: "4:4:0", sampling: SamplingFactor::F_1_2, ..PLAIN },
    Kind { name: "gray", colour: ColorType::Luma, ..PLAIN },
    Kind { name: "4:2:0 with restarts", restarts: 3, ..PLAIN },
];

/// What only hybrid takes.
const ODD: [Kind; 5] = [
    Kind { name: "progressive", progressive: true, ..PLAIN },
    Kind { name: "progressive 4:4:4", progressive: true, sampling: SamplingFactor::F_1_1, ..PLAIN },
    Kind { name: "progressive 4:1:1", progressive: true, sampling: SamplingFactor::F_4_1, ..PLAIN },
    Kind { name: "CMYK", colour: ColorType::Cmyk, sampling: SamplingFactor::F_1_1, bound: INK, ..PLAIN },
    Kind { name: "YCCK", colour: ColorType::CmykAsYcck, sampling: SamplingFactor::F_1_1, bound: INK, ..PLAIN },
];

impl Kind {
    fn file(&self, width: u32, height: u32, salt: u32) -> Vec<u8> {
        let channels = match self.colour {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        };
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(self.sampling);
        encoder.set_progressive(self.progressive);
        if self.restarts > 0 {
            encoder.set_restart_interval(self.restarts);
        }
        let pixels = scene(width, height, channels, salt);
        encoder.encode(&pixels, width as u16, height as u16, self.colour).unwrap();
        file
    }

    /// Files of many sizes, all above [`ENGINES_FROM`] on a real GPU.
    fn files(&self, count: u32, at: &At<'_>) -> Vec<Vec<u8>> {
        let (w, h) = at.of((400, 300), (60, 50));
        (0..count).map(|n| self.file(w + n * 37 % 120, h + n * 53 % 140, n)).collect()
    }

    /// Files of sizes that engines may refuse.
    fn small_files(&self) -> Vec<Vec<u8>> {
        let sides = [255, 17, 200, 128, 64, 96, 250, 33];
        (0..sides.len() as u32).map(|n| self.file(sides[n as usize], sides[n as usize * 3 % sides.len()], n)).collect()
    }
}

/// Photographs of `INFEED_PHOTOS`, if that is a folder: sequential JPEGs only.
fn photographs(most: usize) -> Vec<Vec<u8>> {
    fn collect(folder: &Path, most: usize, files: &mut Vec<Vec<u8>>) {
        let mut paths: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            if path.is_dir() {
                collect(&path, most, files);
            } else if files.len() < most {
                files.extend(fs::read(path).ok().filter(|file| Coded::parse(file).is_some()));
            }
        }
    }
    let mut files = Vec::new();
    if let Some(folder) = std::env::var_os("INFEED_PHOTOS") {
        collect(Path::new(&folder), most, &mut files);
    }
    files
}

fn jpegs(files: &[Vec<u8>], size: u32) -> LoaderBuilder {
    let crop = Transform::new().random_resized_crop(size).horizontal_flip(0.5);
    Loader::builder(dataset(files))
        .device_auto()
        .batch_size(16)
        .last_batch(LastBatch::Partial)
        .transform(crop)
        .seed(3)
        .dtype(DType::U8)
}

fn rows_of(builder: LoaderBuilder) -> Vec<Vec<u8>> {
    rows(&builder.build_blocking().unwrap()).unwrap()
}

// ---- pixels -----------------------------------------------------------------------------------------------------

#[test]
fn pixels_from_memory_are_the_cpus_to_the_bit() {
    on_gpu("on_gpu::pixels_from_memory_are_the_cpus_to_the_bit", |at| {
        let (mut cases, mut run) = (0, 0);
        for preset in PRESETS {
            let (channels, height, width) = match preset {
                "cells" => (5, 50, 50),
                "none" => (4, 37, 61),
                name if name.starts_with("cifar") => (3, 32, 32),
                _ => (3, 270, 310),
            };
            let values = 3 * usize::from(channels) * (height * width) as usize;
            let noise = |i: usize| (i.wrapping_mul(2_654_435_761) >> 11) as u16;
            let sources: [(&str, Arc<dyn Dataset>); 4] = [
                ("u8 interleaved", {
                    let data: Vec<u8> = (0..values).map(|i| noise(i) as u8).collect();
                    Arc::new(
                        MemoryDataset::builder().images_u8(data, 3, height, width, channels, false).build().unwrap(),
                    )
                }),
                ("u8 planar", {
                    let data: Vec<u8> = (0..values).map(|i| noise(i) as u8).collect();
                    Arc::new(
                        MemoryDataset::builder().images_u8(data, 3, height, width, channels, true).build().unwrap(),
                    )
                }),
                ("u16", {
                    let data = (0..values).map(noise).collect();
                    Arc::new(
                        MemoryDataset::builder().images_u16(data, 3, height, width, channels, true).build().unwrap(),
                    )
                }),
                ("f32", {
                    let data = (0..values).map(|i| f32::from(noise(i)) / 9000.0 - 2.0).collect();
                    Arc::new(
                        MemoryDataset::builder().images_f32(data, 3, height, width, channels, false).build().unwrap(),
                    )
                }),
            ];
            let whole = if preset == "none" { Some(DType::U8) } else { None };
            for (name, source) in &sources {
                for dtype in [DType::F32, DType::F16, DType::Bf16].into_iter().chain(whole) {
                    for layout in [Layout::Nchw, Layout::Nhwc] {
                        cases += 1;
                        // The mock takes a second for a few hundred rows.
                        if cases % at.of(1, 7) != 0 {
                            continue;
                        }
                        run += 1;
                        let transform = Transform::preset(preset).unwrap();
                        let settings =
                            |b: LoaderBuilder| b.batch_size(3).transform(transform.clone()).dtype(dtype).layout(layout);
                        let agrees = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| agree(source, settings)));
                        assert!(agrees.is_ok(), "{preset} of {name} as {dtype} {layout:?} differs from the CPU's");
                    }
                }
            }
        }
        figure("combinations of preset, source, type and layout", run);
    });
}

/// Recipes with steps on pictures, for images of about this size.
fn recipes(size: u32) -> Vec<(&'static str, Transform)> {
    let crop = || Transform::new().random_resized_crop(size).horizontal_flip(0.5);
    let bicubic = || Transform::new().random_resized_crop(size).interpolation(Interpolation::Bicubic);
    let normal = |t: Transform| t.normalize(IMAGENET_MEAN, IMAGENET_STD);
    vec![
        ("trivial_augment_wide", normal(crop().trivial_augment_wide()).random_erasing(0.5)),
        ("rand_augment", normal(crop().rand_augment(2, 9))),
        ("auto_augment", normal(crop().auto_augment(Policy::Imagenet))),
        ("augmix", normal(crop().aug_mix())),
        (
            "noise",
            normal(crop().random_grayscale(0.3)).push(RandomErasing {
                p: 0.8,
                count: 3,
                value: Erasing::Noise(Noise::Random),
                ..RandomErasing::default()
            }),
        ),
        ("simclr", crop().color_jitter(0.8, 0.8, 0.8, 0.2).random_grayscale(0.2).gaussian_blur(size / 10 * 2 + 1)),
        ("erased, then turned", normal(crop().random_erasing(0.9).random_rotation(30.0))),
        ("of 0 to 1", crop().to_float().color_jitter(0.4, 0.4, 0.4, 0.1).random_equalize(0.5).random_autocontrast(0.5)),
        ("gray", crop().color_jitter(0.4, 0.4, 0.4, 0.1).grayscale(1).random_adjust_sharpness(2.0, 0.7)),
        ("twice", crop().random_solarize(0.5, 0.5).resize_exact(size / 2, size).random_perspective(0.6, 1.0)),
        (
            "bicubic",
            normal(bicubic().push(RandomAffine { interpolation: Sampling::Bicubic, ..RandomAffine::new(25.0) })),
        ),
    ]
}

#[test]
fn steps_on_pictures_are_the_cpus_to_the_bit() {
    on_gpu("on_gpu::steps_on_pictures_are_the_cpus_to_the_bit", |at| {
        let (height, width) = at.of((256, 250), (40, 45));
        let size = at.of(224, 24);
        let values = 20 * (height * width * 3) as usize;
        let noise = |i: usize| ((i / 7 * 31 + i.wrapping_mul(2_654_435_761)) >> 21) as u16;
        let of = |builder: MemoryBuilder| -> Arc<dyn Dataset> { Arc::new(builder.build().unwrap()) };
        let build = MemoryDataset::builder;
        let sources = [
            (
                "u8",
                of(build().images_u8(
                    (0..values).map(|i| noise(i) as u8).collect::<Vec<_>>(),
                    20,
                    height,
                    width,
                    3,
                    false,
                )),
            ),
            ("u16", of(build().images_u16((0..values).map(noise).collect(), 20, height, width, 3, true))),
            (
                "f32",
                of(build().images_f32(
                    (0..values).map(|i| f32::from(noise(i)) / 65_535.0).collect(),
                    20,
                    height,
                    width,
                    3,
                    false,
                )),
            ),
        ];
        let dtypes = [DType::F32, DType::F16, DType::Bf16, DType::U8];
        let mut run = 0;
        for (recipe, transform) in recipes(size) {
            for (n, (source, images)) in sources.iter().enumerate() {
                let floats = recipe != "simclr" && recipe != "gray" && recipe != "twice";
                let dtype = dtypes[(run + n) % if floats { 3 } else { 4 }];
                let layout = if run % 2 == 0 { Layout::Nchw } else { Layout::Nhwc };
                let set = |b: LoaderBuilder| b.batch_size(8).transform(transform.clone()).dtype(dtype).layout(layout);
                let agrees = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| agree(images, set)));
                assert!(agrees.is_ok(), "{recipe} of {source} as {dtype} {layout:?} differs from the CPU's");
                run += 1;
            }
        }
        if let Some(mock) = at.mock {
            let counts = mock.counts();
            let (pictures, fills) = (counts.total("kernels picture"), counts.total("kernels fill"));
            assert!(pictures > 40 && fills > 4, "they were done there: {pictures} and {fills} launches");
        }
        figure("combinations of recipe, source, type and layout", run);
    });
}

#[test]
fn custom_steps_and_pictures_without_bounds_are_the_cpus() {
    on_gpu("on_gpu::custom_steps_and_pictures_without_bounds_are_the_cpus", |at| {
        let images = pictures(30, 30, 40);
        let before = at.mock.map(|mock| mock.counts().total("kernels picture"));
        let crop = || Transform::new().random_resized_crop(16);
        let swap = |row: &mut RowView<'_>, _: Draws| {
            row.bytes_mut().reverse();
            Ok(())
        };
        for transform in [
            // Before the crop: pictures are as large as images.
            Transform::new().random_solarize(0.5, 0.5).random_resized_crop(16),
            crop().color_jitter(0.4, 0.4, 0.4, 0.1).custom("reversed", swap).random_solarize(0.5, 0.5),
        ] {
            agree(&images, |b| b.batch_size(8).transform(transform.clone()));
        }
        if let (Some(mock), Some(before)) = (at.mock, before) {
            assert_eq!(mock.counts().total("kernels picture"), before);
        }
    });
}

#[test]
fn mixed_batches_are_the_cpus_to_the_bit() {
    on_gpu("on_gpu::mixed_batches_are_the_cpus_to_the_bit", |at| {
        let images = pictures(61, 20, 24);
        let mix = Mix { mixup: 0.8, cutmix: 1.0, num_classes: Some(61), label_smoothing: 0.1, ..Mix::default() };
        let mut run = 0;
        for per in [PerMix::Batch, PerMix::Pair] {
            for dtype in [DType::F32, DType::F16, DType::Bf16, DType::U8] {
                let mix = Mix { per, mixup: if dtype == DType::U8 { 0.0 } else { 0.8 }, ..mix.clone() };
                let layout = if run % 2 == 0 { Layout::Nchw } else { Layout::Nhwc };
                for last in [LastBatch::Partial, LastBatch::Pad] {
                    let crop = Transform::new().random_crop(12, 2).horizontal_flip(0.5);
                    agree(&images, |b| {
                        b.batch_size(9)
                            .transform(crop.clone())
                            .dtype(dtype)
                            .layout(layout)
                            .last_batch(last)
                            .mix(mix.clone())
                    });
                    run += 1;
                }
            }
        }
        if let Some(mock) = at.mock {
            let counts = mock.counts();
            let (rolled, swapped) = (counts.total("kernels roll"), counts.total("kernels swap"));
            assert!(rolled > 20 && swapped > 20, "{rolled} and {swapped} launches");
        }
        figure("combinations of type, layout and way of mixing", run);
    });
}

#[test]
fn jpegs_with_steps_and_views_are_one_decode_of_nvjpeg() {
    on_gpu("on_gpu::jpegs_with_steps_and_views_are_one_decode_of_nvjpeg", |at| {
        let files = PLAIN.files(at.of(48, 14), at);
        let size = at.of(224, 24);
        let mut outside = Vec::new();
        for class in [HARDWARE, HYBRID] {
            let mut check = |name: &str, set: &dyn Fn(LoaderBuilder) -> LoaderBuilder, exact: bool| {
                let decoder = Watched::with_steps(Some(class));
                if !decoder.names().contains(&class) {
                    return skipped(&format!("this GPU has no class {class}"));
                }
                let all = |builder: LoaderBuilder| views_of(&set(builder).build_blocking().unwrap());
                let expected = all(jpegs(&files, size).device(Device::Cpu).codec(Arc::new(AsPixels::new())));
                let found = all(jpegs(&files, size).decoder(Arc::<Watched>::clone(&decoder)));
                let difference = difference(&found, &expected);
                let done = decoder.count(class, "done");
                figure(&format!("{class}, {name}: {done} of {} decoded there", files.len()), difference);
                if exact && (done < files.len() || difference.max > 0) {
                    outside.push(format!("{name}: {difference:?}, {done} of {} by {class}", files.len()));
                }
            };
            // Steps such as equalize make much of a level that another decoder gives: of them the figure alone is told.
            let exact = at.mock.is_some();
            for (name, transform) in recipes(size) {
                let dtype = if name == "simclr" || name == "gray" || name == "twice" { DType::U8 } else { DType::F32 };
                check(name, &|b| b.transform(transform.clone()).dtype(dtype), exact);
            }
            let [global, local] = [size, size / 2].map(|size| {
                Transform::new().random_resized_crop(size).color_jitter(0.4, 0.4, 0.2, 0.1).gaussian_blur(5)
            });
            let views =
                || vec![View::new("global", global.clone()).count(2), View::new("local", local.clone()).count(6)];
            check("dino's views", &|b| b.transform(Transform::new()).views(views()), exact);
        }
        assert!(outside.is_empty(), "{}", outside.join("\n"));
    });
}

/// The rows of all image fields of an epoch.
fn views_of(loader: &Loader) -> Vec<Vec<u8>> {
    let batches = loader.epoch(0).blocking().map(|batch| batch.unwrap());
    let rows = |batch: infeed::Batch| {
        let fields = batch.fields().filter(|(name, _)| name.starts_with("image"));
        let tensors: Vec<_> = fields.map(|(_, tensor)| tensor.to_host().unwrap()).collect();
        let rows =
            tensors.iter().flat_map(|tensor| tensor.bytes().unwrap().chunks(tensor.row_bytes()).map(<[u8]>::to_vec));
        rows.collect::<Vec<_>>()
    };
    batches.flat_map(rows).collect()
}

#[test]
fn files_that_the_cpu_decodes_are_the_cpus_to_the_bit() {
    on_gpu("on_gpu::files_that_the_cpu_decodes_are_the_cpus_to_the_bit", |at| {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("a");
        fs::create_dir(&class).unwrap();
        let kinds = [
            ExtendedColorType::L8,
            ExtendedColorType::La8,
            ExtendedColorType::Rgb8,
            ExtendedColorType::Rgba8,
            ExtendedColorType::Rgb16,
            ExtendedColorType::L16,
        ];
        for n in 0..24u32 {
            let (height, width) = (140 + n, 160 - n);
            let kind = kinds[n as usize % kinds.len()];
            let len = (height * width) as usize * usize::from(kind.bits_per_pixel()) / 8;
            let bytes: Vec<u8> = (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
            let mut file = Vec::new();
            image::codecs::png::PngEncoder::new(&mut file).write_image(&bytes, width, height, kind).unwrap();
            fs::write(class.join(format!("{n:02}.png")), file).unwrap();
            let rgb = scene(width, height, 3, n);
            let (mut webp, mut bmp) = (Vec::new(), std::io::Cursor::new(Vec::new()));
            let eight = ExtendedColorType::Rgb8;
            image::codecs::webp::WebPEncoder::new_lossless(&mut webp).write_image(&rgb, width, height, eight).unwrap();
            image::codecs::bmp::BmpEncoder::new(&mut bmp).write_image(&rgb, width, height, eight).unwrap();
            fs::write(class.join(format!("{n:02}.webp")), webp).unwrap();
            fs::write(class.join(format!("{n:02}.bmp")), bmp.into_inner()).unwrap();
        }
        let url = folder.path().to_str().unwrap().to_owned();
        let files = futures::executor::block_on(infeed::open(url).into_future()).unwrap();
        // Rows that are larger than their sources, and smaller: the smaller of the two travels.
        for (transform, dtype) in [
            (Transform::new().random_resized_crop(at.of(224, 40)).horizontal_flip(0.5).to_float(), DType::F32),
            (Transform::new().resize_exact(8, 8), DType::U8),
        ] {
            agree(&files, |b| b.batch_size(8).transform(transform.clone()).dtype(dtype));
        }
    });
}

/// Each class of the decoder against the CPU, by kind of JPEG.
fn classes_agree(class: &'static str, kinds: &[Kind], at: &At<'_>) {
    let mut outside = Vec::new();
    let mut check = |name: &str, files: &[Vec<u8>], bound: Bound| {
        let size = at.of(224, 24);
        // The CPU's rows to the bit are those that it makes of planes; of nvJPEG's pixels, those of pixels are as near.
        let on_cpu = jpegs(files, size).device(Device::Cpu);
        let (decoder, on_cpu) = if class == CPU {
            (Watched::with_codecs(codecs(), Some(class)), on_cpu)
        } else {
            (Watched::new(2, options(), Some(class)), on_cpu.codec(Arc::new(AsPixels::new())))
        };
        if !decoder.names().contains(&class) {
            return skipped(&format!("this GPU has no class {class}"));
        }
        let expected = rows_of(on_cpu);
        let found = rows_of(jpegs(files, size).decoder(Arc::<Watched>::clone(&decoder)));
        let difference = difference(&found, &expected);
        let done = decoder.count(class, "done");
        figure(&format!("{class}, {name}: {done} of {} decoded there", files.len()), difference);
        if !difference.is_within(bound) || done < files.len() && at.mock.is_some() {
            outside.push(format!("{name}: {difference:?}, {done} of {} by {class}, bound {bound:?}", files.len()));
        }
        if at.mock.is_some() && difference.max > 0 {
            outside.push(format!("{name}: not equal on the mock, {difference:?}"));
        }
    };
    for kind in kinds {
        // To make a loader takes nvJPEG seconds: one for files of all sizes.
        check(kind.name, &[kind.files(at.of(48, 10), at), kind.small_files()].concat(), kind.bound);
    }
    let photographs = photographs(64);
    if !photographs.is_empty() && class != CPU && at.mock.is_none() {
        check("photographs", &photographs, ALIKE);
    }
    assert!(outside.is_empty(), "{}", outside.join("\n"));
}

#[test]
fn jpegs_of_the_engines_are_close_to_the_cpus() {
    on_gpu("on_gpu::jpegs_of_the_engines_are_close_to_the_cpus", |at| {
        let kernels = Kernels::load(&Context::open(0).unwrap()).unwrap();
        let size = HardwareSize { images: 1, arena_bytes: 8 << 20, pinned_bytes: 2 << 20 };
        if let Ok(mut engines) =
            Hardware::open(&kernels, BatchDecoder::Engines, size, RowScratch::default(), &[]).unwrap()
        {
            for kind in ORDINARY {
                let refused = refusals(&mut engines, &kind.small_files());
                figure(&format!("{}, a side below {ENGINES_FROM}: refused by the engines", kind.name), &refused);
                // The mock takes them, and so it is known that they are taken where nobody refuses.
                assert!(at.mock.is_none() || refused.refused == 0, "{refused:?}");
            }
        }
        classes_agree(HARDWARE, &ORDINARY, at);
    });
}

#[test]
fn jpegs_of_the_hybrid_decoder_are_close_to_the_cpus() {
    on_gpu("on_gpu::jpegs_of_the_hybrid_decoder_are_close_to_the_cpus", |at| {
        classes_agree(HYBRID, &[&ODD[..], &ORDINARY[..]].concat(), at);
    });
}

#[test]
fn jpegs_of_the_cpu_class_are_the_cpus_to_the_bit() {
    on_gpu("on_gpu::jpegs_of_the_cpu_class_are_the_cpus_to_the_bit", |at| {
        let exact = Bound { mean: 0.0, psnr: 99.0 };
        let kinds: Vec<Kind> = ORDINARY.iter().chain(&ODD).map(|kind| Kind { bound: exact, ..*kind }).collect();
        classes_agree(CPU, &kinds, at);
    });
}

/// The height in the header is that of the crop's last row; what is above it must not change.
#[test]
fn a_cut_height_changes_no_pixel_of_the_crop() {
    on_gpu("on_gpu::a_cut_height_changes_no_pixel_of_the_crop", |at| {
        let kernels = Kernels::load(&Context::open(0).unwrap()).unwrap();
        let field = FieldKind::Image { channels: 3, size: None, dtype: None };
        let size = at.of(224, 24);
        let crop = Transform::new().random_resized_crop(size);
        let lowered = crop.lower(&field, DType::U8, Layout::Nchw).unwrap();
        let batch = HardwareSize { images: 2, arena_bytes: 32 << 20, pinned_bytes: 8 << 20 };
        let engines =
            Hardware::open(&kernels, BatchDecoder::Engines, batch, RowScratch::default(), &[lowered.table(DType::U8)])
                .unwrap();
        let mut engines = match engines {
            Ok(engines) => engines,
            Err(why) => return skipped(&why),
        };
        let len = lowered.row().len_bytes();
        // High enough that most are still of a usual size when they are cut.
        let (w, h) = at.of((400, 560), (60, 50));
        let file = |kind: &Kind, n: u32| kind.file(w + n * 37 % 120, h + n * 53 % 140, n);
        let files = ORDINARY[..5].iter().flat_map(|kind| (0..at.of(12, 3)).map(move |n| file(kind, n)));
        let files: Vec<Vec<u8>> = files.chain(photographs(at.of(40, 0))).collect();
        let mut refused = Refusals { offered: files.len(), ..Refusals::default() };
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        for (n, file) in files.iter().enumerate() {
            let coded = Coded::parse(file).unwrap();
            let info = Jpeg::new().info(file).unwrap();
            let params = lowered.params(&info, SampleRng::new(5, 0, n as u64)).unwrap();
            let cut = (params.y.reads(size, params.filter).end.next_multiple_of(16) + 16).min(coded.height);
            let mut refuse = |why: String| refused.refuse(why);
            match engines.stage(&coded, coded.height).unwrap() {
                Staged::Taken(0) => {}
                Staged::Refused(why) => {
                    refuse(format!("the whole file, before decoding: {why:#}"));
                    continue;
                }
                other => panic!("file {n}: {other:?}"),
            }
            let images = match engines.stage(&coded, cut).unwrap() {
                Staged::Taken(1) => 2,
                Staged::Refused(why) => {
                    refuse(format!("before decoding: {why:#}"));
                    1
                }
                other => panic!("file {n}: {other:?}"),
            };
            if let Err(why) = engines.decode() {
                refuse(format!("by decoding: {:#}", of_images(why)));
                continue;
            }
            let pool = Pool::on_device(kernels.context(), 2, len, 1).unwrap();
            let out = pool.try_take(2, len).unwrap().unwrap();
            for image in 0..images {
                engines.row(image, &RowWork::resample(params, 0, *lowered.row()), &out, image).unwrap();
            }
            let ticket = engines.launch().unwrap();
            let unwritten = engines.unwritten(ticket).unwrap();
            if !unwritten.is_empty() {
                refuse(format!("images {unwritten:?} of whole and cut: not written, and no error told"));
                continue;
            }
            if images < 2 {
                continue;
            }
            let mut bytes = vec![0; 2 * len];
            out.freeze().download(&mut bytes).unwrap();
            expected.push(bytes[..len].to_vec());
            found.push(bytes[len..].to_vec());
        }
        let difference = difference(&found, &expected);
        figure("rows from a cut file against the whole file", difference);
        figure("refused by the engines", &refused);
        assert!(at.mock.is_none() || refused.refused == 0, "{refused:?}");
        assert!(difference.rows > files.len() / 2, "the engines took {} of {} files", difference.rows, files.len());
        assert_eq!(difference.max, 0, "{difference:?}");
    });
}

#[test]
fn a_fixed_split_repeats_to_the_byte() {
    on_gpu("on_gpu::a_fixed_split_repeats_to_the_byte", |at| {
        let mut files: Vec<Vec<u8>> = ORDINARY.iter().flat_map(|kind| kind.files(at.of(40, 4), at)).collect();
        files.extend(ODD.iter().flat_map(|kind| kind.files(2, at)));
        let run = |workers, prefetch| {
            let builder = jpegs(&files, at.of(224, 24)).shuffle(3).device(GPU).gpu_split(GpuSplit::Fixed);
            rows_of(builder.workers(workers).prefetch(prefetch))
        };
        let first = run(2, 3);
        // How many threads there are is part of the split, how far they run ahead is not.
        for prefetch in [3, 1, 4] {
            assert!(run(2, prefetch) == first, "a second run made other bytes, prefetch {prefetch}");
        }
    });
}

// ---- memory that is used again ----------------------------------------------------------------------------------

/// A file of one colour, and the colour as the CPU decodes it. Colours of neighbours are far apart.
fn flat(n: u32, width: u32, height: u32) -> (Vec<u8>, [u8; 3]) {
    let colour = [n * 53, n * 101 + 40, n * 29 + 90].map(|value| (value % 256) as u8);
    let pixels: Vec<u8> = std::iter::repeat_n(colour, (width * height) as usize).flatten().collect();
    let mut file = Vec::new();
    Encoder::new(&mut file, 95).encode(&pixels, width as u16, height as u16, ColorType::Rgb).unwrap();
    let mut pixels = PixelBuffer::default();
    let info = Jpeg::new().header(&file).unwrap();
    Jpeg::new().decode(&file, &info, 0..1, &mut pixels).unwrap();
    let colour = [pixels.data[0], pixels.data[1], pixels.data[2]];
    (file, colour)
}

/// Engines of Hopper GPUs write when they are called, whatever their stream waits for. Hundreds of batches through
/// three arenas, with nobody who asks whether one is done: each row must show its own image.
#[test]
fn arenas_are_written_only_when_nobody_reads_them() {
    on_gpu("on_gpu::arenas_are_written_only_when_nobody_reads_them", |at| {
        let kernels = Kernels::load(&Context::open(0).unwrap()).unwrap();
        let mut wrong = Vec::new();
        // Rows larger than the images: the more there is to resample of a batch, the sooner a decode that waits for
        // nobody is seen. Most of all with small images, if engines take them.
        for (source, side, count) in at.of(vec![(ENGINES_FROM, 512, 350), (64, 256, 700)], vec![(64, 12, 42)]) {
            for images in [1usize, 4, 7] {
                match show_their_own(&kernels, images, source, side, count / images) {
                    Ok(found) => {
                        figure(&format!("rows that show their own image, batches of {images} of {source}"), found.rows);
                        wrong.extend(found.wrong);
                    }
                    Err(why) if source < ENGINES_FROM && at.mock.is_none() => {
                        figure(&format!("images of {source}: refused by the engines"), why);
                    }
                    Err(why) => wrong.push(why),
                }
            }
        }
        assert!(wrong.is_empty(), "{} rows show other images: {:?}", wrong.len(), &wrong[..wrong.len().min(8)]);
    });
}

/// What rows of [`show_their_own`] showed.
struct Shown {
    rows: usize,
    wrong: Vec<String>,
}

/// So many batches of square images of one colour each, one after the other, looked at when all are done. The error is why the
/// engines do not take them.
fn show_their_own(
    kernels: &Arc<Kernels>,
    images: usize,
    source: u32,
    side: u32,
    batches: usize,
) -> Result<Shown, String> {
    let field = FieldKind::Image { channels: 3, size: None, dtype: None };
    let lowered = Transform::new().resize_exact(side, side).lower(&field, DType::F32, Layout::Nchw).unwrap();
    // A quarter of an arena must hold an image.
    let arena = (images.max(4) * (source * source * 3) as usize).next_multiple_of(4096);
    let size = HardwareSize { images, arena_bytes: arena, pinned_bytes: 256 << 10 };
    let mut engines =
        match Hardware::open(kernels, BatchDecoder::Engines, size, RowScratch::default(), &[lowered.table(DType::U8)])
            .unwrap()
        {
            Ok(engines) => engines,
            Err(why) => {
                skipped(&why);
                return Ok(Shown { rows: 0, wrong: Vec::new() });
            }
        };
    let len = lowered.row().len_bytes();
    let count = batches * images;
    let pool = Pool::on_device(kernels.context(), count, len, 1).unwrap();
    let out = pool.try_take(count, len).unwrap().unwrap();
    let files: Vec<_> = (0..count as u32).map(|n| flat(n, source, source)).collect();
    let mut last = None;
    for (n, batch) in files.chunks(images).enumerate() {
        for (i, (file, _)) in batch.iter().enumerate() {
            let coded = Coded::parse(file).unwrap();
            match engines.stage(&coded, coded.height).unwrap() {
                Staged::Refused(why) => return Err(format!("before decoding: {why:#}")),
                staged => assert!(matches!(staged, Staged::Taken(at) if at == i), "{staged:?}"),
            }
        }
        engines.decode().map_err(|why| format!("by decoding: {:#}", of_images(why)))?;
        for (i, (file, _)) in batch.iter().enumerate() {
            let params = lowered.params(&Jpeg::new().info(file).unwrap(), SampleRng::new(0, 0, 0)).unwrap();
            engines.row(i, &RowWork::resample(params, 0, *lowered.row()), &out, images * n + i).unwrap();
        }
        last = Some(engines.launch().unwrap());
    }
    engines.wait(last.unwrap()).unwrap();
    let mut bytes = vec![0; count * len];
    out.freeze().download(&mut bytes).unwrap();
    let mut wrong = Vec::new();
    for (n, (row, (_, colour))) in bytes.chunks_exact(len).zip(&files).enumerate() {
        for (plane, expected) in row.chunks_exact(len / 3).zip(colour) {
            let values = plane.as_chunks::<4>().0.iter().map(|value| f32::from_ne_bytes(*value));
            let apart = values.map(|value| (value - f32::from(*expected)).abs()).fold(0.0, f32::max);
            if apart > 4.0 {
                wrong.push(format!("image {n} of batches of {images}: {apart} from its colour"));
                break;
            }
        }
    }
    Ok(Shown { rows: count, wrong })
}

/// A trainer queues work on each batch behind a lot of other work, drops the batch at once and goes on.
#[test]
fn a_batch_is_reused_only_behind_a_trainer_that_is_late() {
    on_gpu("on_gpu::a_batch_is_reused_only_behind_a_trainer_that_is_late", |at| {
        let side = at.of(128, 12);
        let dataset = pictures(at.of(1000, 120), 16, 16);
        let transform = || Transform::new().resize_exact(side, side).horizontal_flip(0.5).to_float();
        let settings = |b: LoaderBuilder| b.batch_size(20).transform(transform()).prefetch(2);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        let trainer = Trainer::new();
        // Milliseconds of copies before each batch is read, on the trainer's stream.
        let busy = at.of(256usize << 20, 1 << 12);
        let mut meter = Meter::new(&Context::open(0).unwrap(), busy).unwrap();
        // Page-locked once: to lock memory waits for the GPU.
        let total = want.iter().map(Vec::len).sum();
        let mut copies: *mut c_void = ptr::null_mut();
        ok!(cuMemHostAlloc(&raw mut copies, total, 0));
        let mut end = 0;
        for (n, batch) in on_gpu.epoch(0).blocking().enumerate() {
            let batch = batch.unwrap();
            let tensor = &batch["image"];
            let len = tensor.len() * tensor.dtype().size();
            meter.start(Copies::Within, busy, 8).unwrap();
            let from = tensor.device_ptr(meter.stream()).unwrap().as_raw();
            assert!(end + len <= total, "more bytes than on the CPU");
            ok!(cuMemcpyDtoHAsync_v2(copies.wrapping_byte_add(end), from, len, meter.stream().as_raw().cast()));
            end += len;
            drop(batch);
            if n % 16 == 15 {
                meter.wait().unwrap();
            }
        }
        meter.wait().unwrap();
        let seen = trainer.take(copies, total);
        trainer.end();
        if let Some(mock) = at.mock {
            // The meter's own stream is never destroyed.
            mock.allow_leaks_of("stream");
        }
        let want = want.concat();
        assert!(seen == want, "a batch was overwritten before the trainer had read it");
    });
}

// ---- what goes wrong --------------------------------------------------------------------------------------------

/// Spoils a file.
type Damage = fn(&mut Vec<u8>);

/// Rows by record.
fn by_record(loader: &Loader) -> infeed::Result<BTreeMap<u64, Vec<u8>>> {
    let mut rows = BTreeMap::new();
    for batch in loader.epoch(0).blocking() {
        let batch = batch?;
        let image = batch["image"].to_host()?;
        let bytes = image.bytes().unwrap().chunks_exact(image.row_bytes());
        rows.extend(batch.records()[..batch.valid()].iter().copied().zip(bytes.map(<[u8]>::to_vec)));
    }
    Ok(rows)
}

#[test]
fn a_damaged_image_anywhere_costs_nobody_else_a_row() {
    on_gpu("on_gpu::a_damaged_image_anywhere_costs_nobody_else_a_row", |at| {
        let damages: [(&str, Damage); 5] = [
            ("cut in the middle", |file| file.truncate(file.len() / 2)),
            ("no end", |file| file.truncate(file.len() - 30)),
            ("bits flipped in the scan", |file| {
                let len = file.len();
                (len / 2..len / 2 + 40).for_each(|at| file[at] ^= 0x35);
            }),
            ("a stretch of zeros in the scan", |file| {
                let len = file.len();
                file[len / 3..len / 2].fill(0);
            }),
            ("other tables", |file| {
                let table = file.windows(2).position(|pair| pair == [0xff, 0xc4]).unwrap();
                file[table + 5] ^= 0x1f;
            }),
        ];
        let good = PLAIN.files(40, at);
        let size = at.of(96, 16);
        let want = by_record(
            &jpegs(&good, size).device(Device::Cpu).codec(Arc::new(AsPixels::new())).build_blocking().unwrap(),
        )
        .unwrap();
        for (name, damage) in damages {
            // To make a loader takes nvJPEG a second.
            for place in [0, 17] {
                let mut files = good.clone();
                damage(&mut files[place]);
                let fixed = (place == 17).then_some(GpuSplit::Fixed);
                for split in [Some(GpuSplit::Adaptive), fixed].into_iter().flatten() {
                    let skip = OnBadSample::Skip { at_most: 1 };
                    let builder = jpegs(&files, size).device(GPU).gpu_split(split).on_bad_sample(skip);
                    let mut found = by_record(&builder.build_blocking().unwrap()).unwrap();
                    let damaged = place as u64;
                    found.remove(&damaged);
                    assert_eq!(found.len(), 39, "{name} at {place}");
                    let (found, expected): (Vec<_>, Vec<_>) =
                        found.into_iter().map(|(record, row)| (row, want[&record].clone())).unzip();
                    let difference = difference(&found, &expected);
                    assert!(difference.is_within(ALIKE), "{name} at {place}, {split:?}: {difference:?}");
                }
            }
        }
        // What a header shows is the same error as on the CPU.
        let mut files = good.clone();
        damages[0].1(&mut files[21]);
        let error = rows(&jpegs(&files, size).device(GPU).build_blocking().unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.context().record), (ErrorKind::Corrupt, Some(21)), "{error:#}");
    });
}

#[test]
fn a_stream_dropped_in_mid_batch_leaves_a_loader_that_works() {
    on_gpu("on_gpu::a_stream_dropped_in_mid_batch_leaves_a_loader_that_works", |at| {
        let files = PLAIN.files(at.of(320, 48), at);
        let loader =
            jpegs(&files, at.of(96, 16)).device(GPU).gpu_split(GpuSplit::Fixed).workers(2).build_blocking().unwrap();
        let whole = by_record(&loader).unwrap();
        for taken in 0..at.of(12, 4) {
            let mut batches = loader.epoch(0).blocking();
            assert!(batches.by_ref().take(taken % 5).all(|batch| batch.is_ok()));
            drop(batches);
        }
        assert!(by_record(&loader).unwrap() == whole, "after streams were dropped, rows are others");
    });
}

#[test]
fn device_memory_may_end_and_comes_back() {
    on_gpu("on_gpu::device_memory_may_end_and_comes_back", |at| {
        let dataset = pictures(at.of(4096, 4000), 16, 16);
        let side = at.of(512, 12);
        let transform = Transform::new().resize_exact(side, side).to_float();
        // 805 MB a batch; 69 KB on the mock.
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(at.of(256, 40)).transform(transform).prefetch(2));
        if let Some(mock) = at.mock {
            mock.memory_limit(mock.counts().total("device_bytes") as usize + 8 * 69_120);
        }
        let mut batches = on_gpu.epochs(0..1000).blocking();
        let (mut kept, mut error) = (Vec::new(), None);
        while kept.len() < 600 && error.is_none() {
            match batches.next() {
                Some(Ok(batch)) => kept.push(batch),
                Some(Err(e)) => error = Some(e),
                None => break,
            }
        }
        figure("batches kept until memory ended", kept.len());
        let error = error.expect("600 batches of 805 MB fit no GPU");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error:#}");
        assert!(error.to_string().contains("out of device memory"), "{error}");
        drop(batches);
        drop(kept);
        let mut again = on_gpu.epoch(1).blocking();
        for _ in 0..5 {
            again.next().expect("an epoch has more").expect("there is memory again");
        }
    });
}

#[test]
fn a_budget_that_is_too_small_is_refused() {
    on_gpu("on_gpu::a_budget_that_is_too_small_is_refused", |_| {
        let dataset = pictures(400, 16, 16);
        let crop = Transform::new().random_resized_crop(128);
        let builder = Loader::builder(dataset).device(GPU).batch_size(32).transform(crop).workers(1);
        let error = builder.device_budget(8 << 20).build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("device_budget is 8192 KiB"), "{error}");
    });
}

/// Physical memory of this process.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

#[test]
fn a_thousand_batches_and_many_loaders_leave_nothing_behind() {
    on_gpu("on_gpu::a_thousand_batches_and_many_loaders_leave_nothing_behind", |at| {
        let context = Context::open(0).unwrap();
        // Workers end by themselves after their loader was dropped: free memory grows until they have.
        let ended = || process::threads().iter().all(|thread| !thread.name.starts_with("infeed-"));
        let free = |all_dropped: bool| {
            if let Some(mock) = at.mock {
                // A process of its own: all threads are this test's.
                until("threads of loaders that were dropped do not end", || !all_dropped || ended());
                mock.settle();
                return context.memory().unwrap().0;
            }
            let mut last = 0;
            loop {
                let now = context.memory().unwrap().0;
                if now <= last {
                    return now;
                }
                last = now;
                thread::sleep(Duration::from_millis(300));
            }
        };
        let mut files: Vec<Vec<u8>> = ORDINARY.iter().flat_map(|kind| kind.files(at.of(40, 4), at)).collect();
        files.extend(ODD.iter().flat_map(|kind| kind.files(2, at)));
        let build = || jpegs(&files, at.of(96, 16)).shuffle(3).device(GPU).streams(2).build_blocking().unwrap();
        let loader = build();
        let run = |batches: usize| {
            let mut stream = loader.epochs(0..u64::MAX).blocking();
            assert!(stream.by_ref().take(batches).all(|batch| batch.is_ok()));
        };
        let (warm, many) = at.of((150, 1000), (3, 6));
        run(warm);
        let (before, host) = (free(false), resident_bytes());
        run(many);
        let lost = before.saturating_sub(free(false));
        let grown = resident_bytes().saturating_sub(host);
        figure("device bytes lost in all batches", lost);
        figure("host bytes grown in all batches", grown);
        drop(loader);
        let loaders = at.of(6, 2);
        drop(build());
        let before = free(true);
        for _ in 0..loaders {
            let loader = build();
            assert!(loader.epoch(0).blocking().take(2).all(|batch| batch.is_ok()));
        }
        let kept = before.saturating_sub(free(true));
        figure("device bytes lost in all loaders", kept);
        // The driver takes memory in steps of 2 MiB and nvJPEG grows its buffers to the largest image.
        assert!(lost <= 64 << 20, "{lost} device bytes were lost in {many} batches");
        assert!(grown <= 256 << 20, "{grown} host bytes were lost in {many} batches");
        assert!(kept <= 64 << 20, "{kept} device bytes were lost in {loaders} loaders");
    });
}
