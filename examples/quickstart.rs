//! The example of the README: a folder of photographs, streamed into an async training loop.
//!
//! `cargo run --release --example quickstart -- PATH` (a folder of class folders). Without a path it uses made-up
//! images.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use futures::StreamExt;
use infeed::{
    Loader, Result, Tensor, open,
    sampler::Shard,
    transform::{IMAGENET_MEAN, IMAGENET_STD, Transform},
};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or("synthetic://?count=2048&height=300&width=400&classes=10".into());
    let dataset = open(url).await?;
    let transform =
        Transform::new().random_resized_crop(224).horizontal_flip(0.5).normalize(IMAGENET_MEAN, IMAGENET_STD);
    let loader = Loader::builder(dataset)
        .batch_size(64)
        .shuffle(42)
        .shard(Shard::from_env()?)
        .transform(transform)
        .build()
        .await?;
    let mut batches = loader.epoch(0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        step(&batch["image"], batch.get("label")); // [64, 3, 224, 224] f32, [64] i64
    }
    let report = batches.report();
    println!("{} samples, waited {:?} in all", report.samples, report.data_wait.sum);
    Ok(())
}

fn step(image: &Tensor, label: Option<&Tensor>) {
    println!("{:?} {:?} on {}", image.shape(), label.map(Tensor::shape), image.device());
}
