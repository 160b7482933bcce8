//! A benchmark to copy: a pipeline of yours under criterion, and what the loader itself tells of the same run.
//!
//! `cargo bench -p infeed-benches --bench your_pipeline`. `PICTURES=DIR` takes class folders of yours; without it JPEGs are made
//! into a temporary folder. Warm: after the first epoch files come from the system's memory.
//!
//! In a package of yours: a `[[bench]]` with `harness = false`; dev-dependencies `criterion` (feature `async_tokio`), `tokio`
//! (`rt-multi-thread`), `futures`; `jpeg-encoder` and `tempfile` for the made-up pictures.

#![allow(clippy::print_stderr, reason = "a report beside criterion's numbers")]

use std::{env, fs, hint::black_box, path::Path, time::Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::StreamExt;
use infeed::{BatchStream, Loader, Report, Transform, open};
use jpeg_encoder::{ColorType, Encoder};
use tokio::runtime::Runtime;

const BATCH: usize = 32;
/// Enough for several batches an epoch; few enough to be made in two seconds.
const PICTURES: u32 = 256;

/// The pipeline to be measured: put yours here, with the settings of your training.
async fn loader(folder: &Path) -> infeed::Result<Loader> {
    let transform = Transform::new().random_resized_crop(224).horizontal_flip(0.5).to_float();
    let dataset = open(folder.display().to_string()).await?;
    Loader::builder(dataset).batch_size(BATCH).shuffle(1).transform(transform).build().await
}

/// `n` batches, as a trainer that only takes. Dropped one by one, as there: their memory is used again.
async fn take(batches: &mut BatchStream, n: u64) {
    for _ in 0..n {
        black_box(batches.next().await.expect("the stream has more").expect("a batch"));
    }
}

/// A batch of a stream that runs: what a training of hours gets.
fn steady_state(c: &mut Criterion, runtime: &Runtime, loader: &Loader) {
    // One stream over endless epochs: criterion asks for any number of batches, an epoch's end makes no gap in it, and its first
    // batch comes before the measured time. So it is `iter_custom`, and blocks on what it measures itself.
    let mut batches = loader.epochs(0..u64::MAX);
    let mut group = c.benchmark_group("your_pipeline");
    // An iteration is a batch: criterion then shows images a second.
    group.sample_size(20).throughput(Throughput::Elements(BATCH as u64));
    group.bench_function("batch of a running stream", |b| {
        b.iter_custom(|n| {
            runtime.block_on(async {
                // While criterion computed, the loader read ahead: taken first, or they would count as if they took no time.
                let ahead = batches.report().autotune.prefetch.now;
                take(&mut batches, ahead as u64).await;
                let began = Instant::now();
                take(&mut batches, n).await;
                began.elapsed()
            })
        });
    });
    group.finish();
    tell("running stream", &batches.report());
}

/// A whole epoch, started anew: what a short job, a validation, or a resume gets. Its first batch has nothing ahead of it.
fn whole_epoch(c: &mut Criterion, runtime: &Runtime, loader: &Loader) {
    let steps = loader.batches_per_epoch();
    let mut group = c.benchmark_group("your_pipeline");
    // An iteration is an epoch, however many times criterion runs it: 10 samples are the fewest that it takes.
    group.sample_size(10).throughput(Throughput::Elements(steps * BATCH as u64));
    let (mut epoch, mut last) = (0, None);
    group.bench_function("epoch from its start", |b| {
        b.to_async(runtime).iter(|| {
            // Another one each time: crops and order differ, as they do in a training.
            epoch += 1;
            let mut batches = loader.epoch(epoch);
            last = Some(batches.monitor());
            // The drop of the stream, at the end of this, is part of an epoch.
            async move { take(&mut batches, steps).await }
        });
    });
    group.finish();
    // A monitor tells of a stream that is gone.
    last.iter().for_each(|monitor| tell("last epoch", &monitor.report()));
}

/// The loader's own figures. Criterion has the mean of all; a trainer feels the late ones.
fn tell(what: &str, report: &Report) {
    let wait = &report.data_wait;
    eprintln!("{what}: {} batches, first after {:.1?}", report.batches, report.first_batch.unwrap_or_default());
    eprintln!("    wait for a batch: median {:.2?}, p99 {:.2?}, longest {:.2?}", wait.p50, wait.p99, wait.max);
    let late: Vec<_> =
        report.late_causes.iter().map(|late| format!("{} {}", late.batches, late.cause.name())).collect();
    eprintln!("    late batches: {}; bottleneck: {:?}\n", late.join(", "), report.bottleneck());
}

/// JPEGs of waves and grain in ten class folders.
fn pictures(folder: &Path) -> &Path {
    for n in 0..PICTURES {
        let (width, height) = (480 + n % 3 * 20, 340 + n % 5 * 20);
        let value = |i: u32| 110.0 + 70.0 * ((i / 3 % width) as f32 / 17.0).sin() + (i % 31) as f32;
        let pixels: Vec<u8> = (0..3 * width * height).map(|i| value(i) as u8).collect();
        let class = folder.join(format!("class{}", n % 10));
        fs::create_dir_all(&class).expect("a class folder");
        let encoder = Encoder::new_file(class.join(format!("{n}.jpg")), 90).expect("a file");
        encoder.encode(&pixels, width as u16, height as u16, ColorType::Rgb).expect("a JPEG");
    }
    folder
}

fn all(c: &mut Criterion) {
    // Built once, with several threads as a training has it. It only polls: the loader's threads are its own.
    let runtime = Runtime::new().expect("a runtime");
    let made = tempfile::tempdir().expect("a temporary folder");
    let yours = env::var_os("PICTURES");
    let folder = yours.as_deref().map_or_else(|| pictures(made.path()), Path::new);
    // One loader for both: threads and buffers are begun once, and what is on `auto` has settled.
    let loader = runtime.block_on(loader(folder)).expect("the folder holds images");
    steady_state(c, &runtime, &loader);
    whole_epoch(c, &runtime, &loader);
}

criterion_group!(benches, all);
criterion_main!(benches);
