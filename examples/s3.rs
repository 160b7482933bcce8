//! Trains two epochs directly from a bucket; prints the connection and the statistics of the requests.
//!
//! `cargo run --release --example s3 -- s3://bucket/prefix [CACHE]`, with credentials in the `AWS_*` variables or
//! `~/.aws`, as for other programs. CACHE (`/scratch/cache:50GB` or `ram:4GiB`) keeps the bytes read for the second
//! epoch.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{process::ExitCode, time::Duration};

use futures::StreamExt;
use infeed::{Loader, Result, Transform, dataset::open_source, source::Source};

async fn train(url: &str, cache: Option<&str>) -> Result<()> {
    // Credentials are looked up once, here. A wrong secret, region or bucket is an error here, not in the first epoch.
    let source = Source::parse(url)?;
    source.connect().await?;
    if let Some(connection) = source.connection() {
        println!("{connection}");
    }
    let dataset = open_source(source).await?;
    println!("{} records", dataset.len());

    let mut builder =
        Loader::builder(dataset).batch_size(64).shuffle(1).transform(Transform::preset("caltech").expect("a preset"));
    if let Some(cache) = cache {
        builder = builder.cache(cache.parse()?);
    }
    let loader = builder.build().await?;
    for epoch in 0..2 {
        let mut batches = loader.epoch(epoch);
        while let Some(batch) = batches.next().await {
            let batch = batch?;
            // The training step. Meanwhile the next batches are read and decoded.
            tokio::time::sleep(Duration::from_millis(50)).await;
            drop(batch);
        }
        let report = batches.report();
        println!("epoch {epoch}: waited for data {:?} of {:?}", report.data_wait.sum, report.step.sum);
        if let Some(requests) = &report.requests {
            println!(
                "    {} requests, {} repeated, {} second copies, {} bytes, p50 {:?}, p99 {:?}",
                requests.requests,
                requests.retries,
                requests.hedges,
                requests.bytes,
                requests.time.p50,
                requests.time.p99
            );
            if let Some(cost) = requests.cost_estimate(url, 1.0) {
                println!("    about {:.6} dollars for these requests at list price", cost.usd_per_epoch);
            }
        }
        if let Some(cache) = &report.cache {
            println!("    {} reads from the cache, {} from the bucket", cache.hits, cache.misses);
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(url) = args.first() else {
        println!("usage: s3 s3://bucket/prefix [DIR:SIZE|ram:SIZE]");
        return ExitCode::from(2);
    };
    match train(url, args.get(1).map(String::as_str)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
