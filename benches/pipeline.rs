//! The whole way from files to `.next().await`: images a second, and the wait of a trainer that is slower.
//!
//! `cargo bench --bench pipeline`. `INFEED_PHOTOS=DIR` takes class folders of your own (warm, from a RAM disk, to
//! compare with other loaders); without it pictures are generated into the temp folder.

#![allow(clippy::print_stderr, reason = "percentiles beside criterion's mean")]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use infeed::{
    BatchStream, Dataset, Loader, LoaderBuilder, dataset::MemoryDataset, internal::Clock, open, report::Times,
    transform::Transform,
};
use tokio::runtime::Runtime;

/// A folder of JPEGs of ImageNet's sizes, and the guard that removes it.
fn photographs(runtime: &Runtime) -> (Arc<dyn Dataset>, Option<tempfile::TempDir>) {
    if let Some(folder) = std::env::var_os("INFEED_PHOTOS") {
        let url = PathBuf::from(folder).display().to_string();
        return (runtime.block_on(open(url).into_future()).expect("INFEED_PHOTOS holds images"), None);
    }
    let folder = tempfile::tempdir().expect("a temp folder");
    for n in 0..512u32 {
        let (w, h) = (480 + (n % 3) * 20, 340 + (n % 5) * 20);
        // Smooth shapes with some grain: about 0.4 bytes a pixel at quality 90, as photographs have.
        let pixels: Vec<u8> = (0..h * w)
            .flat_map(|i| {
                let (x, y) = ((i % w) as f32, (i / w) as f32);
                let grain = (i.wrapping_mul(2_654_435_761).wrapping_add(n) >> 27) as f32;
                let wave = |p: f32| 110.0 + 70.0 * (x / (17.0 + p)).sin() * (y / (23.0 + n as f32 % 7.0)).cos() + grain;
                [wave(0.0) as u8, wave(5.0) as u8, wave(9.0) as u8]
            })
            .collect();
        let class = folder.path().join(format!("class{:02}", n % 10));
        std::fs::create_dir_all(&class).expect("a class folder");
        let encoder = jpeg_encoder::Encoder::new_file(class.join(format!("{n}.jpg")), 90).expect("a file");
        encoder.encode(&pixels, w as u16, h as u16, jpeg_encoder::ColorType::Rgb).expect("a JPEG");
    }
    let url = folder.path().display().to_string();
    (runtime.block_on(open(url).into_future()).expect("the folder was just made"), Some(folder))
}

/// 20,000 records of CIFAR's shape.
fn cifar() -> Arc<dyn Dataset> {
    let n = 20_000;
    let pixels: Vec<u8> = (0..n * 3072).map(|i| (i * 31 + i / 3072) as u8).collect();
    let labels = (0..n as i64).map(|i| i % 10).collect();
    Arc::new(MemoryDataset::builder().images_u8(pixels, n, 32, 32, 3, true).labels(labels).build().expect("sizes fit"))
}

fn loader(runtime: &Runtime, builder: LoaderBuilder) -> Loader {
    runtime.block_on(builder.build()).expect("settings fit")
}

fn throughput(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let mut group = c.benchmark_group("pipeline");
    group.sample_size(10).measurement_time(Duration::from_secs(12));
    let (photos, _guard) = photographs(&runtime);
    let sets = [("imagenet-train", photos, 64), ("cifar-train", cifar(), 256)];
    for (preset, dataset, batch) in &sets {
        for workers in [1, 2] {
            let transform = Transform::preset(preset).expect("a preset");
            let builder = Loader::builder(Arc::clone(dataset)).batch_size(*batch).shuffle(1);
            let loader = loader(&runtime, builder.transform(transform).workers(workers));
            group.throughput(Throughput::Elements(loader.batches_per_epoch() * *batch as u64));
            group.bench_function(BenchmarkId::new(*preset, format!("workers={workers}")), |b| {
                let mut epoch = 0;
                b.to_async(&runtime).iter(|| {
                    epoch += 1;
                    let mut batches = loader.epoch(epoch);
                    async move {
                        while let Some(batch) = batches.next().await {
                            batch.expect("a batch");
                        }
                    }
                });
            });
        }
    }
    group.finish();
}

/// Time inside `.next().await` when the trainer takes longer than the loader: the number that should be near zero.
/// Criterion shows the mean; the percentiles over all steps are printed beside it.
fn wait(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let (photos, _guard) = photographs(&runtime);
    let sets = [("imagenet-train", photos, 64, 60), ("cifar-train", cifar(), 256, 5)];
    let mut group = c.benchmark_group("next_await");
    group.sample_size(10).measurement_time(Duration::from_secs(10));
    for (preset, dataset, batch, millis) in sets {
        let transform = Transform::preset(preset).expect("a preset");
        let builder = Loader::builder(dataset).batch_size(batch).shuffle(1).transform(transform);
        let loader = loader(&runtime, builder);
        for (name, blocks) in [("sleeps", false), ("blocks its thread", true)] {
            let mut waits = Clock::default();
            group.bench_function(format!("{preset}/step {name} {millis} ms"), |b| {
                b.iter_custom(|n| {
                    let trainer = trainer(loader.epochs(0..u64::MAX), n, Duration::from_millis(millis), blocks);
                    let waited = runtime.block_on(async { tokio::spawn(trainer).await.expect("the trainer ends") });
                    waited.iter().for_each(|wait| waits.record(*wait));
                    waited.iter().sum()
                });
            });
            let Times { p50, p99, max, count, .. } = waits.times();
            eprintln!("    {count} steps: wait p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?}");
        }
    }
    group.finish();
}

/// A trainer in a task of its own: how long each of `n` steps waited for its batch.
async fn trainer(mut batches: BatchStream, n: u64, step: Duration, blocks: bool) -> Vec<Duration> {
    batches.next().await.expect("endless").expect("a batch");
    let mut waits = Vec::new();
    for _ in 0..n {
        if blocks {
            std::thread::sleep(step);
        } else {
            tokio::time::sleep(step).await;
        }
        let began = Instant::now();
        let batch = batches.next().await.expect("endless").expect("a batch");
        waits.push(began.elapsed());
        drop(batch);
    }
    waits
}

criterion_group!(benches, throughput, wait);
criterion_main!(benches);
