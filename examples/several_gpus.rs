//! Training on all GPUs of a machine from one process: one loader and one thread for each GPU, decode threads shared.
//!
//! `cargo run --release --example several_gpus -- PATH` (a folder of class folders). Without a path it uses made-up
//! images. On a machine without a GPU it prints so and trains two ranks in host memory, with the same code.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    sync::{Barrier, Mutex},
    thread,
};

use futures::executor::block_on;
use infeed::{
    Batch, Device, Error, Loader, Result,
    device::devices,
    open,
    transform::{IMAGENET_MEAN, IMAGENET_STD, Transform},
};

fn main() -> Result<()> {
    let found = devices();
    let devices = match found.gpus.len() {
        0 => {
            println!("{found}; two ranks in host memory instead");
            vec![Device::Cpu; 2]
        }
        _ => found.gpus.iter().map(|gpu| Device::Cuda(gpu.index)).collect(),
    };

    let url = std::env::args().nth(1).unwrap_or("synthetic://?count=2000&height=60&width=80&classes=10".into());
    let dataset = block_on(open(url).into_future())?;
    let transform =
        Transform::new().random_resized_crop(32).horizontal_flip(0.5).normalize(IMAGENET_MEAN, IMAGENET_STD);
    // Each device is a rank. If you run several such processes, add `.shard(Shard::from_env()?)`.
    let loaders = Loader::builder(dataset)
        .batch_size(64)
        .shuffle(42)
        .transform(transform)
        .build_each_blocking(devices.iter().copied())?;

    let together = AllReduce::new(loaders.len());
    let trained: Vec<usize> = thread::scope(|scope| {
        let together = &together;
        let start = |loader| scope.spawn(move || train(loader, together).unwrap_or_else(|error| give_up(&error)));
        let trainers: Vec<_> = loaders.iter().map(start).collect();
        trainers.into_iter().map(|trainer| trainer.join().expect("a trainer does not panic")).collect()
    });
    for (device, samples) in devices.iter().zip(trained) {
        println!("{device}: {samples} samples");
    }
    Ok(())
}

/// Prints the error, which names the device, and ends the process: the other loaders continue, but their trainers would
/// wait forever for the gradients of this one.
fn give_up(error: &Error) -> ! {
    println!("{error:#}");
    std::process::exit(1)
}

/// Trains on one device. Every rank takes the same number of steps, so no rank waits for a gradient that never comes.
fn train(loader: &Loader, together: &AllReduce) -> Result<usize> {
    let mut samples = 0;
    for epoch in 0..2 {
        let mut batches = loader.epoch(epoch).blocking();
        for batch in &mut batches {
            let batch = batch?;
            let loss = together.mean(step(&batch));
            samples += batch.len();
            if loader.config().shard.rank() == 0 && batch.step() == 0 {
                println!("epoch {epoch}: {loss:.3} over {} devices", together.ranks);
            }
        }
        let report = batches.report();
        let device = loader.config().device.unwrap_or_default();
        println!("{device}: waited {:?} in epoch {epoch}", report.data_wait.sum);
    }
    Ok(samples)
}

/// Placeholder for forward and backward, which would run on a stream of the batch's device.
fn step(batch: &Batch) -> f64 {
    let labels = batch["label"].to_host().expect("a copy of 64 numbers");
    let labels: &[i64] = labels.as_slice().expect("labels are i64");
    labels.iter().sum::<i64>() as f64 / labels.len() as f64
}

/// Placeholder for NCCL: every rank gets the mean of all ranks.
struct AllReduce {
    ranks: usize,
    sum: Mutex<f64>,
    all: Barrier,
}

impl AllReduce {
    fn new(ranks: usize) -> Self {
        Self { ranks, sum: Mutex::default(), all: Barrier::new(ranks) }
    }

    fn mean(&self, value: f64) -> f64 {
        *self.sum.lock().expect("nobody panics with it") += value;
        self.all.wait();
        let mean = *self.sum.lock().expect("nobody panics with it") / self.ranks as f64;
        // After all ranks have read it, one of them clears it for the next step.
        if self.all.wait().is_leader() {
            *self.sum.lock().expect("nobody panics with it") = 0.0;
        }
        self.all.wait();
        mean
    }
}
