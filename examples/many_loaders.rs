//! A long-lived process that builds and drops loaders with settings drawn from a seed, and prints the resources it
//! holds.
//!
//! `cargo run --release --example many_loaders -- URL SECONDS SEED` prints a line of JSON for each loader: resident
//! memory, threads, open handles, and whether an epoch had the right records. Exits with 1 if an epoch was incomplete.
//! `integration/soak/run.py` draws a chart of it.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its reader")]

use std::{
    env,
    process::ExitCode,
    time::{Duration, Instant},
};

use futures::executor::block_on;
use infeed::{Device, Loader, Result, Transform, internal::process, open, sampler::LastBatch};

/// Random numbers from a seed: SplitMix64, <https://prng.di.unimi.it/splitmix64.c>.
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// Whether every epoch was complete.
fn come_and_go(url: &str, time: Duration, seed: u64) -> Result<bool> {
    let dataset = block_on(async { open(url).await })?;
    let all = dataset.len();
    let (mut draws, began, mut whole) = (Draws(seed), Instant::now(), true);
    for n in 0.. {
        if began.elapsed() > time {
            break;
        }
        let batch = 1 + draws.below(48) as usize;
        let mut builder = Loader::builder(std::sync::Arc::clone(&dataset))
            .device(Device::Cpu)
            .batch_size(batch)
            .shuffle(draws.below(1000))
            .last_batch(LastBatch::Partial)
            .transform(Transform::preset("imagenet-train").expect("a preset"));
        // Half of the loaders choose these themselves.
        if draws.below(2) == 0 {
            builder = builder.workers(1 + draws.below(6) as usize).prefetch(1 + draws.below(6) as usize);
        }
        let loader = builder.build_blocking()?;
        // A third of the streams are dropped in the middle.
        let most = if draws.below(3) == 0 { draws.below(5) as usize } else { usize::MAX };
        let (mut records, mut samples) = (0u64, 0);
        for result in loader.epoch(n).blocking().take(most) {
            let rows = result?;
            samples += rows.len() as u64;
            records += rows.records().iter().sum::<u64>();
        }
        let full = most == usize::MAX;
        let right = !full || (samples, records) == (all, all * (all - 1) / 2);
        whole &= right;
        drop(loader);
        let resident = process::usage().resident.unwrap_or(0);
        let handles = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        println!(
            "{{\"seconds\":{:.3},\"loader\":{n},\"batch\":{batch},\"samples\":{samples},\"full\":{full},\"right\":{right},\"rss\":{resident},\
             \"threads\":{},\"handles\":{handles}}}",
            began.elapsed().as_secs_f64(),
            process::threads().len(),
        );
    }
    Ok(whole)
}

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let numbers = || Some((args.get(1)?.parse().ok()?, args.get(2)?.parse().ok()?));
    let Some((seconds, seed)) = numbers() else {
        eprintln!("usage: many_loaders URL SECONDS SEED");
        return ExitCode::from(2);
    };
    match come_and_go(&args[0], Duration::from_secs(seconds), seed) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
