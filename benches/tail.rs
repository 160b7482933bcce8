//! Does the trainer wait when the store is slow? 50 ms for every request, 2 s for one in a hundred, over HTTP.
//!
//! `cargo bench --bench tail`. The server of the tests runs in this process, on one thread of its own, and takes its part
//! of the cores. First the rate that the cores allow without delays is measured; the trainer then takes 1.25 times as
//! long for each batch. The first batch, which nothing can hide, stands apart. `INFEED_PHOTOS=DIR` takes class folders of your own instead of generated pictures.

#![allow(clippy::print_stdout, reason = "the table is the result")]

#[allow(dead_code, reason = "the tests' tool kit")]
#[path = "../integration/support"]
mod support {
    pub(crate) mod s3;
}

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{Device, Loader, Report, Transform, dataset::open_source};
use support::s3::{Fault, Rule, S3Server};

const BATCH: usize = 64;
const OBJECTS: usize = 4096;
const ROUNDS: usize = 3;
/// Steps that a measurement is taken over.
const STEPS: u64 = 500;
/// Reading ahead is begun with little and grows: what a cold start costs is told apart.
const START: u64 = 10;

fn files(folder: &Path, into: &mut Vec<Vec<u8>>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|e| e.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() { files(&path, into) } else { into.push(std::fs::read(path).expect("a file")) }
    }
}

/// 64 pictures of about 100 KB.
fn pictures() -> Vec<Vec<u8>> {
    if let Some(folder) = std::env::var_os("INFEED_PHOTOS") {
        let mut found = Vec::new();
        files(&PathBuf::from(folder), &mut found);
        return found;
    }
    let picture = |n: u32| {
        let (w, h) = (500u32, 375u32);
        let pixels: Vec<u8> = (0..h * w)
            .flat_map(|i| {
                let (x, y) = ((i % w) as f32, (i / w) as f32);
                let grain = (i.wrapping_mul(2_654_435_761).wrapping_add(n) >> 27) as f32;
                let wave = |p: f32| {
                    110.0 + 70.0 * (x / (17.0_f32 + p)).sin() * (y / (23.0_f32 + n as f32 % 7.0)).cos() + grain
                };
                [wave(0.0) as u8, wave(5.0) as u8, wave(9.0) as u8]
            })
            .collect();
        let mut file = Vec::new();
        let encoder = jpeg_encoder::Encoder::new(&mut file, 92);
        encoder.encode(&pixels, w as u16, h as u16, jpeg_encoder::ColorType::Rgb).expect("a JPEG");
        file
    };
    (0..64).map(picture).collect()
}

async fn loader(server: &S3Server) -> Loader {
    let dataset = open_source(server.source("train")).await.expect("the server has a folder");
    let transform = Transform::preset("imagenet-train").expect("a preset");
    let builder = Loader::builder(dataset).batch_size(BATCH).shuffle(1).device(Device::Cpu).transform(transform);
    builder.build().await.expect("settings fit")
}

/// So many steps of a trainer that blocks its thread for `step`.
///
/// How long they took, and how long the trainer waited after the first few.
async fn train(loader: &Loader, steps: u64, step: Duration) -> (Duration, Duration, Report) {
    let mut batches = loader.epochs(0..u64::MAX);
    let mut began = Instant::now();
    let mut waited = Duration::ZERO;
    for n in 0..=steps {
        let asked = Instant::now();
        drop(batches.next().await.expect("endless").expect("a batch"));
        if n > START {
            waited += asked.elapsed();
        }
        if asked.elapsed() > Duration::from_millis(5) && !step.is_zero() {
            println!("    batch {n} was late by {:.0} ms", ms(asked.elapsed()));
        }
        if n == 0 {
            // The first batch is no step.
            began = Instant::now();
        }
        if !step.is_zero() {
            std::thread::sleep(step);
        }
    }
    (began.elapsed() - step, waited, batches.report())
}

fn ms(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

fn main() {
    // `cargo test --benches` runs this too, without the time for it.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let server = S3Server::start();
    let pictures = pictures();
    for n in 0..OBJECTS {
        server.put(&format!("train/{:02}/{n:05}.jpg", n % 10), pictures[n % pictures.len()].clone());
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (took, ..) = runtime.block_on(async { train(&loader(&server).await, STEPS, Duration::ZERO).await });
    let free = took / STEPS as u32;
    let step = free.mul_f64(1.25);
    println!("{BATCH} images take {:.1} ms without delays; the trainer takes {:.1} ms", ms(free), ms(step));
    server.rule(Rule::new(Fault::Delay(Duration::from_millis(50))));
    server.rule(Rule::new(Fault::Delay(Duration::from_secs(2))).one_in(100));
    println!(
        "| round | first batch ms | wait p50 us | p99 us | max ms | wait / step | after {START} steps | requests | second copies | won |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for round in 1..=ROUNDS {
        let (_, waited, report) = runtime.block_on(async { train(&loader(&server).await, STEPS, step).await });
        let (wait, requests) = (&report.data_wait, report.requests.as_ref().expect("a remote store"));
        println!(
            "| {round} | {:.0} | {:.0} | {:.0} | {:.1} | {:.3} % | {:.3} % | {} | {:.2} % | {} |",
            ms(report.first_batch.unwrap_or_default()),
            1e3 * ms(wait.p50),
            1e3 * ms(wait.p99),
            ms(wait.max),
            100.0 * wait.sum.as_secs_f64() / report.step.sum.as_secs_f64(),
            100.0 * waited.as_secs_f64() / (step * (STEPS - START) as u32).as_secs_f64(),
            requests.requests,
            100.0 * requests.hedges as f64 / requests.requests as f64,
            requests.hedges_won,
        );
        for slow in requests.slowest.iter().take(4) {
            println!("    {} took {:.0} ms in {} attempts", slow.object, ms(slow.time), slow.attempts);
        }
    }
}
