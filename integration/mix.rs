//! MixUp, CutMix and smoothed labels: what torchvision and timm would make of the batch that is not mixed, the same for
//! whoever makes it and wherever it goes on.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use infeed::{
    Batch, DType, Dataset, ErrorKind, LastBatch, Layout, Loader, LoaderBuilder, LoaderConfig, OnBadSample, Result,
    Shard, Transform,
    dataset::{Field, FieldKind, Fingerprint, MemoryDataset, ReadPlan, Sample, SampleRng, Schema},
    report::Stage,
    transform::augment::{Mix, PerMix},
};

use crate::support::{Plain, builder, drain, plain};

const CLASSES: usize = 12;
const SIDES: [usize; 2] = [10, 14];

fn label_of(record: u64) -> usize {
    (record * 7 % CLASSES as u64) as usize
}

fn named(classes: usize) -> Vec<String> {
    (0..classes).map(|class| format!("class {class}")).collect()
}

/// `n` pictures of noise, in twelve classes.
fn noise(n: usize) -> Arc<dyn Dataset> {
    let [h, w] = SIDES;
    let mut draws = SampleRng::new(1, 2, 3).op(0);
    let pixels: Vec<u8> = (0..n * h * w * 3).map(|_| draws.bits() as u8).collect();
    let labels = (0..n as u64).map(|record| label_of(record) as i64).collect();
    let images = MemoryDataset::builder().images_u8(pixels, n, h as u32, w as u32, 3, false);
    Arc::new(images.labels(labels).classes(named(CLASSES)).build().unwrap())
}

/// The same as files, those of `bad` broken.
fn files(n: usize, bad: &[usize]) -> Arc<dyn Dataset> {
    let [h, w] = SIDES;
    let mut draws = SampleRng::new(4, 5, 6).op(0);
    let mut file = |i: usize| -> Bytes {
        let mut file = std::io::Cursor::new(Vec::new());
        let picture =
            image::RgbImage::from_fn(w as u32, h as u32, |_, _| image::Rgb([0; 3].map(|_| draws.bits() as u8)));
        picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
        if bad.contains(&i) { Bytes::from_static(b"no picture") } else { file.into_inner().into() }
    };
    let pictures = (0..n).map(&mut file).collect();
    let labels = (0..n as u64).map(|record| label_of(record) as i64).collect();
    let images = MemoryDataset::builder().encoded_images(pictures);
    Arc::new(images.labels(labels).classes(named(CLASSES)).build().unwrap())
}

fn both() -> Mix {
    Mix { mixup: 0.8, cutmix: 1.0, ..Mix::default() }
}

fn floats(transform: Transform, dtype: DType) -> Transform {
    if dtype == DType::U8 { transform } else { transform.to_float() }
}

/// A loader that mixes, and one that does nothing else otherwise.
fn loaders(
    dataset: &Arc<dyn Dataset>,
    mix: &Mix,
    (dtype, layout): (DType, Layout),
    set: impl Fn(LoaderBuilder) -> LoaderBuilder,
) -> [Loader; 2] {
    let transform = floats(Transform::new().resize_exact(10, 14).horizontal_flip(0.5), dtype);
    let base = || {
        let builder = builder(Arc::clone(dataset)).batch_size(8).shuffle(5).workers(2).dtype(dtype).layout(layout);
        set(builder.transform(transform.clone()))
    };
    [base().mix(mix.clone()), base()].map(|builder| builder.build_blocking().unwrap())
}

/// Values of a row, and the bits they are stored in.
fn row(batch: &Batch, n: usize) -> Vec<f32> {
    let image = &batch["image"];
    let bytes = &image.bytes().unwrap()[n * image.row_bytes()..][..image.row_bytes()];
    let pairs = || bytes.as_chunks::<2>().0.iter().copied();
    match image.dtype() {
        DType::F32 => bytes.as_chunks::<4>().0.iter().map(|v| f32::from_ne_bytes(*v)).collect(),
        DType::F16 => pairs().map(|v| half::f16::from_ne_bytes(v).to_f32()).collect(),
        DType::Bf16 => pairs().map(|v| half::bf16::from_ne_bytes(v).to_f32()).collect(),
        _ => bytes.iter().map(|v| f32::from(*v)).collect(),
    }
}

fn rounded(value: f32, dtype: DType) -> f32 {
    match dtype {
        DType::F16 => half::f16::from_f32(value).to_f32(),
        DType::Bf16 => half::bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

fn weights(batch: &Batch, n: usize) -> &[f32] {
    &batch["label"].as_slice::<f32>().unwrap()[n * CLASSES..][..CLASSES]
}

/// What was done to a row.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Done {
    Nothing,
    MixUp,
    CutMix,
}

/// Checks a row of a batch against the batch that is not mixed, its partner's row with it, and the parts of both.
fn check_row(mixed: &Batch, plain: &Batch, (n, partner): (usize, usize), [own, other]: [f32; 2]) -> Done {
    let (dtype, layout) =
        (mixed["image"].dtype(), if mixed["image"].shape()[1] == 3 { Layout::Nchw } else { Layout::Nhwc });
    let (got, a, b) = (row(mixed, n), row(plain, n), row(plain, partner));
    let blended = |i: usize| rounded(a[i] * own + b[i] * other, dtype);
    let ([h, w], mut done) = (SIDES, Done::Nothing);
    if got != a {
        done =
            if dtype != DType::U8 && (0..a.len()).all(|i| got[i] == blended(i)) { Done::MixUp } else { Done::CutMix };
    }
    if done == Done::CutMix {
        let at = |y: usize, x: usize, c: usize| match layout {
            Layout::Nchw => (c * h + y) * w + x,
            Layout::Nhwc => (y * w + x) * 3 + c,
        };
        let pasted = |y: usize, x: usize| (0..3).any(|c| got[at(y, x, c)] != a[at(y, x, c)]);
        let places: Vec<(usize, usize)> =
            (0..h).flat_map(|y| (0..w).map(move |x| (y, x))).filter(|(y, x)| pasted(*y, *x)).collect();
        let range = |of: &dyn Fn(&(usize, usize)) -> usize| -> Range<usize> {
            places.iter().map(of).min().unwrap()..places.iter().map(of).max().unwrap() + 1
        };
        let (ys, xs) = (range(&|place| place.0), range(&|place| place.1));
        assert_eq!(places.len(), ys.len() * xs.len(), "a rectangle: {ys:?} {xs:?}");
        for (y, x) in &places {
            (0..3).for_each(|c| assert_eq!(got[at(*y, *x, c)], b[at(*y, *x, c)]));
        }
        let cut = places.len() as f64 / (h * w) as f64;
        assert_eq!((own, other), ((1.0 - cut) as f32, (1.0 - (1.0 - cut)) as f32), "the label tells the area");
    }
    done
}

/// Checks a batch against the one that is not mixed; gives what was done to each row.
fn check(mixed: &Batch, plain: &Batch, mix: &Mix) -> Vec<Done> {
    assert_eq!(
        (mixed.records(), mixed.positions(), mixed.valid()),
        (plain.records(), plain.positions(), plain.valid())
    );
    assert_eq!(mixed["label"].shape(), [mixed.len(), CLASSES]);
    assert_eq!(mixed["label"].dtype(), DType::F32);
    let (valid, filled) = (mixed.valid(), mixed.records().len());
    let smoothing = f64::from(mix.label_smoothing);
    let off = smoothing / CLASSES as f64;
    let [off, on] = [off, 1.0 - smoothing + off].map(|weight| weight as f32);
    let one_hot = |class: usize| -> Vec<f32> { (0..CLASSES).map(|c| if c == class { on } else { off }).collect() };
    let class = |n: usize| label_of(mixed.records()[n]);
    let partner = |n: usize| match mix.per {
        PerMix::Pair => valid - 1 - n,
        _ => (n + valid - 1) % valid,
    };
    // The parts of a row, where its label tells them.
    let told = |n: usize| -> Option<[f32; 2]> {
        let (a, b) = (class(n), class(partner(n)));
        let part = |weight: f32| (f64::from(weight) - f64::from(off)) / (f64::from(on) - f64::from(off));
        (a != b).then(|| [part(weights(mixed, n)[a]) as f32, part(weights(mixed, n)[b]) as f32])
    };
    let mut done = Vec::new();
    for n in 0..mixed.len() {
        let label = weights(mixed, n);
        if n >= filled {
            assert!(row(mixed, n).iter().chain(label).all(|value| *value == 0.0), "a row of zeros");
            continue;
        }
        assert!((label.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{label:?}");
        if n >= valid {
            assert_eq!((row(mixed, n), label), (row(plain, n), &one_hot(class(n))[..]), "a copy that pads");
            continue;
        }
        let alike = match mix.per {
            PerMix::Pair => told(n),
            // One draw for all.
            _ => (0..valid).find_map(told),
        };
        let Some(parts) = alike else { continue };
        let [own, other] = parts;
        for (c, got) in label.iter().enumerate() {
            let of = |class: usize| if c == class { on } else { off };
            let want = of(class(n)) * own + of(class(partner(n))) * other;
            assert!((got - want).abs() < 1e-6, "{got} {want}");
        }
        // With smoothing the parts that the label tells are rounded: pixels are checked without.
        if mix.label_smoothing == 0.0 {
            done.push(check_row(mixed, plain, (n, partner(n)), parts));
        }
    }
    done
}

fn check_all(loaders: &[Loader; 2], mix: &Mix) -> Vec<Vec<Done>> {
    let [mixed, plain] = loaders.each_ref().map(|loader| drain(loader.epochs(0..3)).unwrap());
    assert_eq!(mixed.len(), plain.len());
    mixed.iter().zip(&plain).map(|(mixed, plain)| check(mixed, plain, mix)).collect()
}

#[test]
fn batches_are_mixed_as_torchvision_mixes_them() {
    let dataset = noise(200);
    for how in [
        (DType::F32, Layout::Nchw),
        (DType::F32, Layout::Nhwc),
        (DType::F16, Layout::Nchw),
        (DType::Bf16, Layout::Nhwc),
    ] {
        let done = check_all(&loaders(&dataset, &both(), how, |b| b), &both()).concat();
        let count = |what| done.iter().filter(|done| **done == what).count();
        assert!(
            count(Done::MixUp) > 150 && count(Done::CutMix) > 150,
            "{how:?}: {} of {}",
            count(Done::MixUp),
            done.len()
        );
    }
    let cutmix = Mix { cutmix: 1.0, ..Mix::default() };
    let bytes = check_all(&loaders(&dataset, &cutmix, (DType::U8, Layout::Nchw), |b| b), &cutmix).concat();
    assert!(bytes.iter().all(|done| *done != Done::MixUp) && bytes.contains(&Done::CutMix));
}

#[test]
fn pairs_are_mixed_as_timm_mixes_them() {
    let dataset = noise(200);
    for batch_size in [8, 7] {
        let mix = Mix { per: PerMix::Pair, ..both() };
        let how = (DType::F32, Layout::Nchw);
        let batches = check_all(&loaders(&dataset, &mix, how, |b| b.batch_size(batch_size)), &mix);
        let several = batches.iter().filter(|rows| rows.contains(&Done::MixUp) && rows.contains(&Done::CutMix)).count();
        assert!(several > batches.len() / 2, "each pair draws by itself: {several} of {}", batches.len());
    }
}

#[test]
fn samples_alone_are_mixed() {
    for per in [PerMix::Batch, PerMix::Pair] {
        let (mix, how) = (Mix { per, ..both() }, (DType::F32, Layout::Nchw));
        // Three samples in the last batch, one, and fewer than there are ranks.
        for (n, world) in [(27, 1), (25, 1), (33, 2), (48, 3)] {
            for rank in 0..world {
                let shard = Shard::new(rank, world).unwrap();
                for last in [LastBatch::Pad, LastBatch::Partial] {
                    check_all(&loaders(&noise(n), &mix, how, |b| b.last_batch(last).shard(shard)), &mix);
                }
            }
        }
        let damaged = files(48, &[0, 1, 9, 30, 31, 32, 47]);
        for policy in
            [OnBadSample::Skip { at_most: 99 }, OnBadSample::SkipPadded { at_most: 99 }, OnBadSample::Substitute]
        {
            let last = LastBatch::Pad;
            let done = check_all(
                &loaders(&damaged, &mix, how, |b| b.batch_size(9).last_batch(last).on_bad_sample(policy)),
                &mix,
            );
            assert!(done.concat().contains(&Done::MixUp), "{policy:?}");
        }
    }
}

#[test]
fn smoothed_labels_sum_to_one() {
    let dataset = noise(64);
    for per in [PerMix::Batch, PerMix::Pair] {
        for mix in [
            Mix { label_smoothing: 0.1, per, ..both() },
            Mix { label_smoothing: 0.1, per, ..Mix::default() },
            Mix { per, ..Mix::default() },
        ] {
            check_all(&loaders(&dataset, &mix, (DType::F32, Layout::Nchw), |b| b), &mix);
        }
    }
    let smooth = Mix { label_smoothing: 0.12, ..Mix::default() };
    let [loader, _] = loaders(&dataset, &smooth, (DType::U8, Layout::Nchw), |b| b);
    let batch = &drain(loader.epoch(0)).unwrap()[0];
    let class = label_of(batch.records()[0]);
    let want: Vec<f32> = (0..CLASSES).map(|c| if c == class { 0.89 } else { 0.01 }).collect();
    assert_eq!(weights(batch, 0), want);
    // More classes than the dataset names, and labels without a picture.
    let labels = MemoryDataset::builder().labels(vec![1, 0]).classes(named(2)).build().unwrap();
    let five = Mix { num_classes: Some(5), ..Mix::default() };
    let batch =
        &drain(builder(Arc::new(labels)).batch_size(2).mix(five).build_blocking().unwrap().epoch(0)).unwrap()[0];
    assert_eq!(batch["label"].as_slice::<f32>().unwrap(), [0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn probabilities_are_kept() {
    let dataset = noise(800);
    let how = (DType::F32, Layout::Nchw);
    let share = |mix: Mix, what: Done| {
        let done = check_all(&loaders(&dataset, &mix, how, |b| b.batch_size(4)), &mix).concat();
        done.iter().filter(|done| **done == what).count() as f64 / done.len() as f64
    };
    for per in [PerMix::Batch, PerMix::Pair] {
        let mix = Mix { mixup: 1.0, cutmix: 0.0, per, ..Mix::default() };
        assert!(share(mix.clone(), Done::MixUp) > 0.99);
        assert_eq!(share(Mix { prob: 0.0, ..mix.clone() }, Done::Nothing), 1.0);
        // 600 batches, 1200 pairs: four deviations are 8 %.
        let half = share(Mix { prob: 0.5, ..mix.clone() }, Done::MixUp);
        assert!((0.42..0.58).contains(&half), "{half}");
        let both = Mix { cutmix: 1.0, ..mix };
        assert_eq!(share(Mix { switch_prob: 1.0, ..both.clone() }, Done::MixUp), 0.0);
        assert_eq!(share(Mix { switch_prob: 0.0, ..both.clone() }, Done::CutMix), 0.0);
        let quarter = share(Mix { switch_prob: 0.25, ..both }, Done::MixUp);
        assert!((0.68..0.82).contains(&quarter), "{quarter}");
    }
}

#[test]
fn nothing_but_batches_and_seed_decides_what_is_mixed() {
    let dataset = noise(101);
    for per in [PerMix::Batch, PerMix::Pair] {
        let mix = Mix { per, label_smoothing: 0.1, ..both() };
        let all = |set: &dyn Fn(LoaderBuilder) -> LoaderBuilder| -> Vec<Plain> {
            let [loader, _] =
                loaders(&dataset, &mix, (DType::F32, Layout::Nchw), |b| set(b.last_batch(LastBatch::Partial)));
            drain(loader.epochs(3..5)).unwrap().iter().map(plain).collect()
        };
        let want = all(&|b| b.workers(1).prefetch(1));
        assert_eq!(want, all(&|b| b.workers(4).prefetch(9)));
        assert_ne!(want, all(&|b| b.seed(6)));
        // In the middle of an epoch, and at its end.
        let [loader, _] = loaders(&dataset, &mix, (DType::F32, Layout::Nchw), |b| b.last_batch(LastBatch::Partial));
        let batches = drain(loader.epochs(3..5)).unwrap();
        for cut in [0, 4, 12, 13] {
            let rest = drain(loader.resume_epochs(batches[cut].state(), ..5).unwrap()).unwrap();
            assert_eq!(rest.iter().map(plain).collect::<Vec<_>>(), want[cut + 1..]);
        }
    }
}

#[test]
fn ranks_and_steps_draw_for_themselves() {
    let (mix, how) = (Mix { mixup: 1.0, ..Mix::default() }, (DType::F32, Layout::Nchw));
    let mut parts = Vec::new();
    for rank in 0..2 {
        let [loader, _] = loaders(&noise(160), &mix, how, |b| b.shard(Shard::new(rank, 2).unwrap()));
        for batch in drain(loader.epochs(0..2)).unwrap() {
            parts.extend(weights(&batch, 0).iter().filter(|w| **w > 0.0).map(|w| w.to_bits()).min());
        }
    }
    let all = parts.len();
    parts.sort_unstable();
    parts.dedup();
    assert!(all == 40 && parts.len() > 34, "{} of {all}", parts.len());
}

#[test]
fn a_label_that_is_no_class_is_a_bad_sample() {
    let pixels = vec![7; 16 * 4 * 4 * 3];
    let labels = (0..16).map(|n| if n == 3 { -1 } else { n % 11 }).collect();
    let dataset: Arc<dyn Dataset> =
        Arc::new(MemoryDataset::builder().images_u8(pixels, 16, 4, 4, 3, false).labels(labels).build().unwrap());
    let mix = Mix { num_classes: Some(10), ..both() };
    let loader = |policy| {
        let builder = builder(Arc::clone(&dataset)).batch_size(8).transform(Transform::new().to_float());
        builder.mix(mix.clone()).on_bad_sample(policy).build_blocking().unwrap()
    };
    let error = drain(loader(OnBadSample::Stop).epoch(0)).unwrap_err();
    assert_eq!((error.kind(), error.context().record), (ErrorKind::Corrupt, Some(3)));
    assert!(error.to_string().contains("label -1 of `label` is not among the 10 classes"), "{error}");
    let batches = drain(loader(OnBadSample::Skip { at_most: 5 }).epoch(0)).unwrap();
    assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), [7, 7]);
    assert!(batches.iter().all(|batch| !batch.records().contains(&3) && !batch.records().contains(&10)));
}

#[test]
fn weights_of_labels_count_in_the_memory_budget() {
    let labels = || Arc::new(MemoryDataset::builder().labels(vec![0, 1]).build().unwrap());
    let mix = || Mix { num_classes: Some(1 << 18), ..Mix::default() };
    let build = |budget| builder(labels()).batch_size(2).mix(mix()).memory_budget(budget).build_blocking();
    let error = build(3 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("2 batches of 2049 KiB"), "{error}");
    assert_eq!(drain(build(64 << 20).unwrap().epoch(0)).unwrap()[0]["label"].shape(), [2, 1 << 18]);
}

#[test]
fn the_report_has_a_stage_only_where_batches_are_mixed() {
    let [mixed, plain] = loaders(&noise(64), &both(), (DType::F32, Layout::Nchw), |b| b);
    for (loader, mixes) in [(mixed, true), (plain, false)] {
        let mut batches = loader.epoch(0).blocking();
        assert!(batches.by_ref().all(|batch| batch.is_ok()));
        let report = batches.report();
        let stage = report.stages.iter().find(|stage| stage.stage == Stage::Mix);
        assert_eq!(stage.is_some(), mixes);
        assert_eq!(serde_json::to_string(&report).unwrap().contains(r#""name":"mix""#), mixes);
        if let Some(stage) = stage {
            assert_eq!((stage.calls, stage.items), (8, 64));
            assert!(!stage.busy.is_zero() && stage.bytes > 64 * CLASSES as u64 * 4);
        }
    }
}

#[test]
fn the_settings_are_written_only_when_they_are_set() {
    let text = serde_json::to_string(&LoaderConfig::default()).unwrap();
    assert!(!text.contains("mix"), "{text}");
    let config = r#"{ "mix": { "mixup": 0.2, "per": "pair", "classes": 10 } }"#;
    let config: LoaderConfig = serde_json::from_str(config).unwrap();
    let mix = Mix { mixup: 0.2, per: PerMix::Pair, num_classes: Some(10), ..Mix::default() };
    assert_eq!(config.mix, Some(mix));
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<LoaderConfig>(&text).unwrap().mix, config.mix);
    let toml: LoaderConfig = toml::from_str("[mix]\nmixup = 0.2\nper = 'pair'\nclasses = 10\n").unwrap();
    assert_eq!(toml.mix, config.mix);
    assert!(serde_json::from_str::<LoaderConfig>(r#"{ "mix": { "alpha": 1 } }"#).is_err());
}

/// A dataset of these fields, none of which is ever read.
#[derive(Debug)]
struct Fields(Schema);

impl Dataset for Fields {
    fn len(&self) -> u64 {
        8
    }
    fn schema(&self) -> &Schema {
        &self.0
    }
    fn format(&self) -> &str {
        "fields"
    }
    fn plan(&self, _record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::new([]))
    }
    fn parse(&self, _record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        Ok(Sample::new([]))
    }
    fn object(&self, record: u64) -> String {
        record.to_string()
    }
    fn largest_read(&self) -> u64 {
        0
    }
    fn needs_fetch(&self) -> bool {
        false
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("fields").finish()
    }
}

fn picture(name: &str, side: u32) -> Field {
    Field::new(name, FieldKind::Image { channels: 3, size: Some((side, side)), dtype: Some(DType::U8) })
}

#[test]
fn what_can_not_be_mixed_is_refused_by_name() {
    let usual = || vec![picture("image", 8), Field::label(), Field::bytes("words", 9)];
    let (nan, nan64) = (f32::NAN, f64::NAN);
    let with = |fields: Vec<Field>, more: Vec<Field>| [fields, more].concat();
    let seg = Field::mask("seg", FieldKind::Image { channels: 1, size: Some((8, 8)), dtype: Some(DType::U8) });
    let volume = Field::new("ct", FieldKind::Volume { channels: 1, size: Some([4; 3]), mask: None });
    let cases: Vec<(&str, Vec<Field>, Mix, DType)> = vec![
        ("mixup -1", usual(), Mix { mixup: -1.0, ..both() }, DType::F32),
        ("mixup NaN", usual(), Mix { mixup: nan64, ..both() }, DType::F32),
        ("cutmix inf", usual(), Mix { cutmix: f64::INFINITY, ..both() }, DType::F32),
        ("mix has prob 1.5", usual(), Mix { prob: 1.5, ..both() }, DType::F32),
        ("mix has prob NaN", usual(), Mix { prob: nan, ..both() }, DType::F32),
        ("mix has switch_prob -0.1", usual(), Mix { switch_prob: -0.1, ..both() }, DType::F32),
        ("label_smoothing 2", usual(), Mix { label_smoothing: 2.0, ..both() }, DType::F32),
        ("label_smoothing NaN", usual(), Mix { label_smoothing: nan, ..both() }, DType::F32),
        ("for 0 classes", usual(), Mix { num_classes: Some(0), ..both() }, DType::F32),
        ("for 4 classes, the dataset has 5", usual(), Mix { num_classes: Some(4), ..both() }, DType::F32),
        ("without a label", vec![picture("image", 8)], both(), DType::F32),
        (
            "several labels: label, coarse",
            with(usual(), vec![Field::new("coarse", FieldKind::Label)]),
            both(),
            DType::F32,
        ),
        ("without images", vec![Field::label()], both(), DType::F32),
        ("`seg`, a mask", with(usual(), vec![seg]), both(), DType::F32),
        ("`ct`, a volume", with(vec![Field::label()], vec![volume]), both(), DType::F32),
        ("cutmix on images of 8x8 and 4x4", with(usual(), vec![picture("thumb", 4)]), both(), DType::F32),
        ("mixup on images of u8", usual(), both(), DType::U8),
    ];
    for (what, fields, mix, dtype) in cases {
        let mut schema = Schema::new(fields);
        schema.classes = Some(named(5).into());
        let builder = builder(Arc::new(Fields(schema))).batch_size(2).dtype(dtype).mix(mix);
        let transform = if dtype == DType::U8 { Transform::new() } else { Transform::new().to_float() };
        let error = builder.transform(if what.contains("without images") || what.contains("volume") {
            Transform::new()
        } else {
            transform
        });
        let error = error.build_blocking().expect_err(what);
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains(what) && error.to_string().contains("; "), "{error}: not {what}");
    }
    let unnamed = || Arc::new(Fields(Schema::new(usual())));
    let error = builder(unnamed()).batch_size(2).mix(both()).build_blocking().unwrap_err();
    assert!(error.to_string().contains("does not name its classes; set num_classes"), "{error}");
    let mix = || Mix { num_classes: Some(5), ..both() };
    // MixUp takes images of several sizes, and so does smoothing alone.
    let sizes = || Arc::new(Fields(Schema::new(with(usual(), vec![picture("thumb", 4)]))));
    for mix in [Mix { cutmix: 0.0, ..mix() }, Mix { mixup: 0.0, cutmix: 0.0, ..mix() }] {
        builder(sizes()).batch_size(2).transform(Transform::new().to_float()).mix(mix).build_blocking().unwrap();
    }
}
