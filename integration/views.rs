//! Views: several rows of each image, read and decoded once; and records that come several times an epoch.

use std::{
    fs,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use infeed::{
    Batch, DType, Dataset, ErrorKind, LastBatch, Layout, Loader, LoaderBuilder, LoaderConfig, OnBadSample, Order,
    Result, Shard, Transform,
    codec::{ImageCodec, ImageHeader, Jpeg, PixelBuffer, Png, Window},
    dataset::{FieldKind, MemoryDataset, SampleRng},
    report::Stage,
    sampler::WeightedSampler,
    spi::{Decoded, Pixels, RowMaker},
    transform::{ImageInfo, View, augment::Mix},
};

use crate::{
    arrays::tiff,
    support::{Plain, builder, drain, plain},
};

const SIDES: [u32; 2] = [40, 56];

/// Pixels of a record, of colours that change slowly enough for JPEG.
fn pixels(record: u64) -> Vec<u8> {
    let mut draws = SampleRng::new(1, 2, record).op(0);
    let waves: [f64; 6] = std::array::from_fn(|_| draws.between(0.05, 0.4));
    let [h, w] = SIDES;
    let value = |y: u32, x: u32, c: usize| {
        let wave = (f64::from(y) * waves[c] + f64::from(x) * waves[c + 3]).sin();
        (128.0 + 90.0 * wave) as u8
    };
    (0..h).flat_map(|y| (0..w).flat_map(move |x| [0, 1, 2].map(|c| value(y, x, c)))).collect()
}

fn png(record: u64) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let picture = image::RgbImage::from_raw(SIDES[1], SIDES[0], pixels(record)).unwrap();
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

fn jpeg(record: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut file, 90);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_2_2);
    encoder.encode(&pixels(record), SIDES[1] as u16, SIDES[0] as u16, jpeg_encoder::ColorType::Rgb).unwrap();
    file
}

fn in_memory(count: u64) -> Arc<dyn Dataset> {
    let all: Vec<u8> = (0..count).flat_map(pixels).collect();
    let images = MemoryDataset::builder().images_u8(all, count as usize, SIDES[0], SIDES[1], 3, false);
    Arc::new(images.labels((0..count as i64).collect()).build().unwrap())
}

fn files(count: u64, file: impl Fn(u64) -> Vec<u8>) -> Arc<dyn Dataset> {
    let files = (0..count).map(|record| file(record).into()).collect();
    Arc::new(MemoryDataset::builder().encoded_images(files).labels((0..count as i64).collect()).build().unwrap())
}

/// One that folds, one of two resamples with pixels between, one that writes over its row.
fn steps() -> [Transform; 3] {
    let crop = |size| Transform::new().random_resized_crop(size).horizontal_flip(0.5);
    [
        crop(24),
        crop(16).color_jitter(0.4, 0.4, 0.2, 0.1).gaussian_blur(5).random_rotation(20.0),
        crop(12).to_float().random_erasing(0.9),
    ]
}

fn views() -> Vec<View> {
    let [a, b, c] = steps();
    vec![View::new("a", a), View::new("b", b), View::new("c", c).count(2)]
}

const NAMES: [&str; 4] = ["image.a", "image.b", "image.c0", "image.c1"];

fn loader(dataset: &Arc<dyn Dataset>, set: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    set(builder(Arc::clone(dataset)).batch_size(8).shuffle(5).workers(2)).build_blocking().unwrap()
}

/// What a view's steps make of pixels, by themselves.
fn made(steps: &Transform, view: u32, (dtype, layout): (DType, Layout), record: u64) -> Vec<u8> {
    let field = FieldKind::Image { channels: 3, size: Some((SIDES[0], SIDES[1])), dtype: Some(DType::U8) };
    let lowered = steps.lower(&field, dtype, layout).unwrap();
    let info = ImageInfo::interleaved_u8(SIDES[0], SIDES[1], 3);
    let drawn = lowered.draw(&info, SampleRng::new(5, 3, record).view(view)).unwrap();
    let data = pixels(record);
    let src = Pixels { info, rows: 0..info.height, data: &data };
    let mut out = vec![0; lowered.row().len_bytes()];
    RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
    out
}

#[test]
fn a_view_is_what_its_steps_make_by_themselves() {
    for dataset in [in_memory(20), files(20, png)] {
        for (dtype, layout) in [(DType::F32, Layout::Nchw), (DType::F16, Layout::Nhwc)] {
            let loader = loader(&dataset, |b| b.views(views()).dtype(dtype).layout(layout));
            let batches = drain(loader.epoch(3)).unwrap();
            assert_eq!(batches.len(), 2);
            for batch in &batches {
                let names: Vec<_> = batch.fields().map(|(name, _)| name).collect();
                assert_eq!(names, ["image.a", "image.b", "image.c0", "image.c1", "label"]);
                let labels = batch["label"].to_vec::<i64>().unwrap();
                assert!(labels.iter().zip(batch.records()).all(|(label, record)| *label as u64 == *record));
                for (view, name) in (0..).zip(NAMES) {
                    let [a, b, c] = &steps();
                    let steps = [a, b, c, c][view as usize];
                    let bytes = batch[name].bytes().unwrap();
                    for (row, record) in bytes.chunks(bytes.len() / 8).zip(batch.records()) {
                        assert!(row == made(steps, view, (dtype, layout), *record), "{name} of record {record}");
                    }
                }
                assert_ne!(batch["image.c0"].bytes(), batch["image.c1"].bytes(), "each draws for itself");
            }
        }
    }
}

#[test]
fn the_first_view_draws_as_a_transform_alone_and_others_change_nothing() {
    // Also of planes, as long as no view takes blocks of less than full size.
    let dataset = files(16, jpeg);
    let [a, b, _] = steps();
    let alone = drain(loader(&dataset, |set| set.transform(a.clone())).epoch(0)).unwrap();
    let two = vec![View::new("a", a), View::new("b", b)];
    let more = drain(loader(&dataset, |set| set.views(views())).epoch(0)).unwrap();
    let fewer = drain(loader(&dataset, |set| set.views(two)).epoch(0)).unwrap();
    for ((alone, more), fewer) in alone.iter().zip(&more).zip(&fewer) {
        assert!(alone["image"].bytes() == more["image.a"].bytes());
        assert!(fewer["image.a"].bytes() == more["image.a"].bytes());
        assert!(fewer["image.b"].bytes() == more["image.b"].bytes());
    }
}

/// Decodes as another codec does, and counts.
#[derive(Debug)]
struct Counting<C> {
    inner: C,
    headers: Arc<AtomicU64>,
    decodes: Arc<AtomicU64>,
}

impl<C: ImageCodec> ImageCodec for Counting<C> {
    fn name(&self) -> &'static str {
        "counting"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        self.inner.recognises(head)
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        self.headers.fetch_add(1, Ordering::Relaxed);
        self.inner.header(bytes)
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        self.decodes.fetch_add(1, Ordering::Relaxed);
        self.inner.decode(bytes, header, rows, out)
    }
    fn window(&self, bytes: &[u8], header: &ImageHeader, window: &Window, out: &mut PixelBuffer) -> Result<()> {
        self.decodes.fetch_add(1, Ordering::Relaxed);
        self.inner.window(bytes, header, window, out)
    }
}

#[test]
fn an_image_is_read_and_decoded_once_for_all_its_views() {
    let dir = tempfile::tempdir().unwrap();
    let mut bytes = 0;
    for record in 0..24u64 {
        let class = dir.path().join(format!("class {}", record % 3));
        fs::create_dir_all(&class).unwrap();
        let (name, file) = if record % 2 == 0 { ("png", png(record)) } else { ("jpg", jpeg(record)) };
        bytes += file.len() as u64;
        fs::write(class.join(format!("{record}.{name}")), file).unwrap();
    }
    let dataset = infeed::dataset::open(dir.path().to_str().unwrap());
    let dataset = futures::executor::block_on(async { dataset.await }).unwrap();
    let (headers, decodes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counting = |b: LoaderBuilder| {
        let counts = || (Arc::clone(&headers), Arc::clone(&decodes));
        let ((headers, decodes), inner) = (counts(), Jpeg::new());
        let b = b.codec(Arc::new(Counting { inner, headers, decodes }));
        let ((headers, decodes), inner) = (counts(), Png);
        b.codec(Arc::new(Counting { inner, headers, decodes }))
    };
    let views = View::preset("dino").unwrap();
    let loader = loader(&dataset, |b| counting(b).views(views));
    let mut stream = loader.epoch(0).blocking();
    let batches: Vec<Batch> = stream.by_ref().collect::<Result<_>>().unwrap();
    assert_eq!(batches.len(), 3);
    assert_eq!(batches[0].fields().count(), 11);
    assert_eq!(batches[0]["image.global1"].shape(), [8, 3, 224, 224]);
    assert_eq!(batches[0]["image.local7"].shape(), [8, 3, 96, 96]);
    assert_eq!((headers.load(Ordering::Relaxed), decodes.load(Ordering::Relaxed)), (24, 24));
    let report = stream.report();
    let stage = |stage| report.stages.iter().find(|told| told.stage == stage).unwrap();
    assert_eq!(stage(Stage::Fetch).bytes, bytes);
    assert_eq!(stage(Stage::Decode).items, 24, "images decoded");
    assert_eq!(stage(Stage::Transform).items, 24, "samples made");
}

#[test]
fn masks_have_the_views_of_their_images_and_move_alike() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["images", "masks"] {
        fs::create_dir_all(dir.path().join(folder)).unwrap();
    }
    for n in 0..6u32 {
        for (folder, times) in [("images", 10), ("masks", 1)] {
            let values: Vec<u8> = (0..16 * 20).map(|at| ((at % 20 * 3 + at / 20 * 5 + n) % 7) as u8 * times).collect();
            fs::write(dir.path().join(format!("{folder}/{n}.tif")), tiff(16, 20, &values)).unwrap();
        }
    }
    let dataset =
        futures::executor::block_on(infeed::dataset::open(dir.path().to_str().unwrap()).into_future()).unwrap();
    let moved = Transform::new().random_crop(9, 2).horizontal_flip(0.5).vertical_flip(0.5);
    let views = [View::new("x", moved.clone()), View::new("y", moved.center_crop(5))];
    let loader = builder(dataset).batch_size(6).dtype(DType::U8).views(views).build_blocking().unwrap();
    let batch = drain(loader.epoch(0)).unwrap().remove(0);
    let names: Vec<_> = batch.fields().map(|(name, _)| name.to_owned()).collect();
    assert_eq!(names, ["image.x", "image.y", "mask.x", "mask.y"]);
    for view in ["x", "y"] {
        let [image, mask] = ["image", "mask"].map(|field| batch[&*format!("{field}.{view}")].to_vec::<u8>().unwrap());
        assert!(image.iter().zip(&mask).all(|(image, mask)| *image == mask * 10), "view {view}");
        assert!(image.iter().any(|value| *value > 0));
    }
}

#[test]
fn views_are_the_same_for_any_workers_and_after_a_resume() {
    let dataset = files(40, jpeg);
    let all = |workers: usize, prefetch: usize| -> Vec<Plain> {
        let loader = loader(&dataset, |b| b.views(views()).workers(workers).prefetch(prefetch));
        drain(loader.epochs(0..2)).unwrap().iter().map(plain).collect()
    };
    let want = all(1, 1);
    assert!(want == all(3, 4));
    let loader = loader(&dataset, |b| b.views(views()));
    let first = drain(loader.epochs(0..2)).unwrap();
    let rest: Vec<Plain> =
        drain(loader.resume_epochs(first[2].state(), ..2).unwrap()).unwrap().iter().map(plain).collect();
    assert!(rest == want[3..]);
}

#[test]
fn a_broken_image_is_one_bad_sample_whatever_the_views() {
    let dataset = files(16, |record| if record == 5 { b"no picture".to_vec() } else { png(record) });
    let loader = loader(&dataset, |b| b.views(views()).on_bad_sample(OnBadSample::Skip { at_most: 1 }));
    let batches = drain(loader.epoch(0)).unwrap();
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 15);
    let bad: Vec<u64> = batches.iter().flat_map(Batch::bad_samples).map(|bad| bad.record).collect();
    assert_eq!(bad, [5]);
}

#[test]
fn the_rows_of_all_views_count_in_the_memory_budget() {
    let dataset = in_memory(64);
    let side = 512;
    let large = Transform::new().random_resized_crop(side);
    let build = |views: u32| {
        let views = [View::new("v", large.clone()).count(views)];
        builder(Arc::clone(&dataset)).batch_size(4).views(views).memory_budget(64 << 20).build_blocking()
    };
    // Four rows of two views, 3 MiB each as f32, are 24 MiB, and there are two batches at least.
    assert!(build(2).is_ok());
    let error = build(4).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("2 batches of 49 MiB"), "{error}");
}

#[test]
fn views_can_be_mixed_where_they_are_of_one_size() {
    let dataset = in_memory(16);
    let crop = |size| Transform::new().random_resized_crop(size).to_float();
    let mix = Mix { cutmix: 1.0, num_classes: Some(16), ..Mix::default() };
    let same = [View::new("v", crop(20)).count(2)];
    let mixed = loader(&dataset, |b| b.views(same.clone()).mix(mix.clone()));
    let batch = drain(mixed.epoch(0)).unwrap().remove(0);
    assert_eq!(batch["label"].shape(), [8, 16]);
    let other = [View::new("a", crop(20)), View::new("b", crop(12))];
    let error = builder(dataset).batch_size(8).views(other).mix(mix).build_blocking().unwrap_err().to_string();
    assert!(error.contains("cutmix on images of 20x20 and 12x12"), "{error}");
}

#[test]
fn views_that_can_not_be_are_refused_with_the_field_and_the_step() {
    let crop = Transform::new().random_resized_crop(8);
    let labels = || Arc::new(MemoryDataset::builder().labels(vec![1, 2]).build().unwrap()) as Arc<dyn Dataset>;
    /// What is asked for, and words of the answer.
    type Case = (Arc<dyn Dataset>, Vec<View>, Transform, &'static [&'static str]);
    let cases: [Case; 5] = [
        (
            in_memory(2),
            vec![View::new("a", crop.clone()), View::new("a", crop.clone())],
            Transform::new(),
            &["two views are called a"],
        ),
        (in_memory(2), vec![View::new("a", crop.clone())], crop.clone(), &["there are views and a transform"]),
        (labels(), vec![View::new("a", crop.clone())], Transform::new(), &["views of a dataset without images"]),
        (
            in_memory(2),
            vec![View::new("a", crop.clone()), View::new("b", crop.clone().gaussian_blur(4))],
            Transform::new(),
            &["image.b", "step 2", "gaussian_blur"],
        ),
        (
            files(2, png),
            vec![View::new("a", crop), View::new("b", Transform::new())],
            Transform::new(),
            &["image.b", "no fixed size"],
        ),
    ];
    for (dataset, views, transform, want) in cases {
        let error = builder(dataset).batch_size(1).views(views).transform(transform).build_blocking().unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config, "{text}");
        assert!(want.iter().all(|word| text.contains(word)), "{text}, not {want:?}");
    }
}

#[test]
fn views_are_settings_like_others() {
    let text = r#"
        batch_size = 4
        [[views]]
        name = "global"
        transform = [{ op = "random_resized_crop", size = [24, 24] }, { op = "to_float" }]
        [[views]]
        name = "local"
        count = 3
        transform = [{ op = "center_crop", size = [8, 8] }]
    "#;
    let config: LoaderConfig = toml::from_str(text).unwrap();
    let loader = builder(in_memory(8)).config(config.clone()).device(infeed::Device::Cpu).build_blocking().unwrap();
    assert_eq!(loader.config().views, config.views);
    let batch = drain(loader.epoch(0)).unwrap().remove(0);
    assert_eq!(
        (batch["image.global"].shape(), batch["image.local2"].shape()),
        (&[4, 3, 24, 24][..], &[4, 3, 8, 8][..])
    );
    let again: LoaderConfig = serde_json::from_str(&serde_json::to_string(loader.config()).unwrap()).unwrap();
    assert_eq!(again.views, config.views);
    assert!(!serde_json::to_string(&LoaderConfig::default()).unwrap().contains("views"));
}

/// Record, and the row of its picture, of all samples of an epoch.
fn rows(loader: &Loader, epoch: u64) -> Vec<(u64, Vec<u8>)> {
    let rows = |batch: &Batch| -> Vec<(u64, Vec<u8>)> {
        let bytes = batch["image"].bytes().unwrap();
        let each = bytes.len() / batch.len();
        batch.records().iter().copied().zip(bytes.chunks(each).map(<[u8]>::to_vec)).collect()
    };
    drain(loader.epoch(epoch)).unwrap().iter().flat_map(rows).collect()
}

#[test]
fn a_repeated_record_is_augmented_anew_each_time() {
    let dataset = in_memory(24);
    let order = Order::Repeated { seed: 5, times: 3, all_records: false };
    let set = |b: LoaderBuilder| b.order(order.clone()).transform(steps()[0].clone());
    let all = rows(&loader(&dataset, set), 1);
    assert_eq!(all.len(), 24);
    for three in all.chunks(3) {
        assert!(three.iter().all(|(record, _)| *record == three[0].0), "one after another");
        assert!(three[0].1 != three[1].1 && three[1].1 != three[2].1 && three[0].1 != three[2].1);
    }
    // Ranks share them out: each time of a record is another rank's.
    let mut dealt: Vec<Vec<(u64, Vec<u8>)>> = (0..3u32)
        .map(|rank| {
            let shard = Shard::new(rank, 3).unwrap();
            let loader = builder(Arc::clone(&dataset)).batch_size(4).workers(1).shard(shard);
            rows(&set(loader).last_batch(LastBatch::Partial).build_blocking().unwrap(), 1)
        })
        .collect();
    for (at, want) in all.iter().enumerate() {
        assert!(dealt[at % 3].remove(0) == *want, "position {at}");
    }
    // And a resume goes on between two times of one.
    let loader = set(builder(Arc::clone(&dataset)).batch_size(4)).build_blocking().unwrap();
    let first = drain(loader.epoch(1)).unwrap();
    let rest = drain(loader.resume_epoch(first[0].state()).unwrap()).unwrap();
    assert!(rest.iter().map(plain).eq(first[1..].iter().map(plain)));
}

#[test]
fn a_record_that_is_drawn_again_is_augmented_anew() {
    let dataset = in_memory(2);
    let sampler = Arc::new(WeightedSampler::new(&[1.0, 0.0], 3).unwrap().with_len(8));
    let loader = loader(&dataset, |b| b.sampler(sampler).transform(steps()[0].clone()));
    let mut pictures: Vec<Vec<u8>> = rows(&loader, 0).into_iter().map(|(_, row)| row).collect();
    pictures.sort_unstable();
    pictures.dedup();
    assert_eq!(pictures.len(), 8);
}

#[test]
fn impossible_repeats_are_refused() {
    let order = Order::Repeated { seed: 1, times: 0, all_records: true };
    let error = builder(in_memory(2)).order(order).build_blocking().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("0 times"), "{error}");
}

#[cfg(target_os = "linux")]
#[test]
fn views_on_a_gpu_are_those_of_the_cpu() {
    use crate::{device::agree, support::mock::on_mock};
    on_mock("views::views_on_a_gpu_are_those_of_the_cpu", &[], |_| {
        for dataset in [in_memory(40), files(40, png)] {
            agree(&dataset, |b| b.batch_size(6).views(views()));
        }
    });
}
