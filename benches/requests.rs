//! Small objects over a network: infeed's reads against a bare loop over the same store, in turns.
//!
//! `cargo bench --bench requests`. Without settings the store is in memory and answers after a millisecond, on one
//! thread, as the engine's. `INFEED_S3_URL=s3://bucket/prefix` (with the `AWS_*` variables) reads the objects there
//! instead. The bare loop is given the best of several numbers of requests in flight; infeed finds its own.

#![allow(clippy::print_stdout, reason = "the table is the result")]

#[allow(dead_code, reason = "the tests' tool kit")]
#[path = "../integration/support/store.rs"]
mod store;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use infeed::source::{Object, Source};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

const ROUNDS: usize = 7;
/// Reads wanted at a time; the engine's read-ahead wants about as many.
const WANTED: usize = 512;

struct Place {
    source: Source,
    bare: Arc<dyn ObjectStore>,
    /// Before each name.
    prefix: String,
    objects: Vec<Object>,
    /// The store in memory, if it is that.
    tracker: Option<Arc<store::Tracker>>,
}

async fn in_memory() -> Place {
    let image: Vec<u8> = (0..107_000u32).map(|i| (i * 31) as u8).collect();
    let tracker = store::Tracker::holding((0..2000).map(|n| (format!("{n:06}"), image.clone())));
    tracker.latency(|_| Duration::from_millis(1));
    // As a connection does.
    tracker.in_frames(16 << 10);
    let source = tracker.source();
    let objects = source.list().try_collect().await.expect("a store in memory lists");
    Place {
        source,
        bare: Arc::<store::Tracker>::clone(&tracker),
        prefix: String::new(),
        objects,
        tracker: Some(tracker),
    }
}

#[cfg(feature = "s3")]
async fn bucket(url: &str) -> Place {
    let source = infeed::Source::parse(url).expect("INFEED_S3_URL is a url");
    let (bucket, prefix) = url.trim_start_matches("s3://").split_once('/').unwrap_or((url, ""));
    let bare = object_store::aws::AmazonS3Builder::from_env().with_bucket_name(bucket).build().expect("AWS_* are set");
    let objects: Vec<Object> = source.list().try_collect().await.expect("INFEED_S3_URL can be listed");
    let prefix = prefix.trim_end_matches('/');
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    Place { source, bare: Arc::new(bare), prefix, objects: objects.into_iter().take(4000).collect(), tracker: None }
}

#[cfg(not(feature = "s3"))]
async fn bucket(_url: &str) -> Place {
    panic!("INFEED_S3_URL needs --features s3")
}

/// Objects a second.
async fn bare(place: &Place, in_flight: usize) -> f64 {
    let began = Instant::now();
    let one = |object: &Object| {
        let path = Path::parse(format!("{}{}", place.prefix, object.name)).expect("a listed name");
        async move { place.bare.get(&path).await?.bytes().await }
    };
    let reads = stream::iter(place.objects.iter().map(one)).buffer_unordered(in_flight);
    let bytes: usize =
        reads.map(|bytes| bytes.expect("the store answers").len()).fold(0, |a, b| async move { a + b }).await;
    assert!(bytes > 0);
    place.objects.len() as f64 / began.elapsed().as_secs_f64()
}

async fn infeed(place: &Place) -> f64 {
    let began = Instant::now();
    let one = |object: &Object| {
        let extent = object.extent(&place.source);
        async move { extent.read().await }
    };
    let reads = stream::iter(place.objects.iter().map(one)).buffer_unordered(WANTED);
    let bytes: usize =
        reads.map(|bytes| bytes.expect("the store answers").len()).fold(0, |a, b| async move { a + b }).await;
    assert!(bytes > 0);
    place.objects.len() as f64 / began.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    // `cargo test --benches` runs this too, without the time for it.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let place = match std::env::var("INFEED_S3_URL") {
            Ok(url) => bucket(&url).await,
            Err(_) => in_memory().await,
        };
        let counts = [8, 16, 32, 64, 128, 256];
        let mut loops: Vec<Vec<f64>> = vec![Vec::new(); counts.len()];
        let mut ours = Vec::new();
        // Warms connections up, and the limit.
        for _ in 0..ROUNDS {
            infeed(&place).await;
        }
        for round in 0..=ROUNDS {
            for (count, rates) in counts.iter().zip(&mut loops) {
                let rate = bare(&place, *count).await;
                rates.extend((round > 0).then_some(rate));
            }
            if let Some(tracker) = &place.tracker {
                tracker.reset();
            }
            let rate = infeed(&place).await;
            ours.extend((round > 0).then_some(rate));
        }
        println!("{} objects from {}, {ROUNDS} rounds, median objects/s", place.objects.len(), place.source.url());
        let mut best: f64 = 0.0;
        for (count, rates) in counts.iter().zip(loops) {
            let rate = median(rates);
            best = best.max(rate);
            println!("bare, {count:3} in flight {rate:10.0}");
        }
        let ours = median(ours);
        println!("infeed             {ours:10.0}  {:.1} % of the best", 100.0 * ours / best);
        if let Some(tracker) = &place.tracker {
            println!("infeed had at most {} requests in flight", tracker.most_in_flight());
        }
    });
}
