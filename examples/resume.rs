//! Stops in the middle of an epoch, saves the state, and resumes with another number of workers and another world size.
//!
//! `cargo run --release --example resume`
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::collections::BTreeSet;

use futures::StreamExt;
use infeed::{
    Loader, Result, open,
    sampler::{LastBatch, LoaderState, Shard},
};

const RECORDS: u64 = 1000;

async fn loader(rank: u32, world: u32, batch: usize, workers: usize) -> Result<Loader> {
    let dataset = open(format!("synthetic://?count={RECORDS}&height=32&width=32&classes=10")).await?;
    Loader::builder(dataset)
        .batch_size(batch)
        .shuffle(7)
        .shard(Shard::new(rank, world)?)
        .last_batch(LastBatch::Partial)
        .workers(workers)
        .build()
        .await
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut seen = BTreeSet::new();

    // One process with batches of 64. It stops after five.
    let mut batches = loader(0, 1, 64, 2).await?.epoch(0);
    let mut saved = None;
    for _ in 0..5 {
        let Some(batch) = batches.next().await.transpose()? else { break };
        seen.extend(batch.records().iter().copied());
        // The state belongs to the batch: prefetched records do not count as seen.
        saved = Some(batch.state().to_json());
    }
    drop(batches);
    let saved = saved.expect("the epoch has more than five batches");
    println!("{} records seen, state saved: {saved}", seen.len());

    // Three processes, each with batches of 50 and one worker, resume from the file.
    for rank in 0..3 {
        let state = LoaderState::from_json(&saved)?;
        let mut rest = loader(rank, 3, 50, 1).await?.resume_epoch(&state)?;
        while let Some(batch) = rest.next().await {
            for record in batch?.records() {
                assert!(seen.insert(*record), "record {record} came twice");
            }
        }
    }
    assert_eq!(seen.len() as u64, RECORDS);
    println!("each of {RECORDS} records was seen exactly once");
    Ok(())
}
