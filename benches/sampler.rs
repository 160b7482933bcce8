//! What it costs to turn a position into a record. The engine asks once a row, so 100 ns are 1 % of a core at 100,000
//! records a second.
//!
//! `cargo bench --bench sampler`

use std::{hint::black_box, sync::Arc};

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use infeed::sampler::{Mixture, Order, Permutation, Sampler, Share, WeightedSampler};

/// Lookups timed together, so that the clock costs nothing.
const LOOKUPS: u64 = 4096;

/// CIFAR, ImageNet, and a web-sized dataset; 40 and 200 take the paths of small sizes.
const SIZES: [u64; 6] = [20, 40, 200, 50_000, 1_281_167, 1_000_000_000];

fn permutation(c: &mut Criterion) {
    let mut group = c.benchmark_group("permutation");
    group.throughput(Throughput::Elements(LOOKUPS));
    for n in SIZES {
        let order = Permutation::new(n, 42);
        group.bench_function(format!("get/{n}"), |b| {
            b.iter(|| (0..LOOKUPS).map(|i| black_box(order).get(i % n)).fold(0, |a, x| a ^ x));
        });
        group.bench_function(format!("inverse/{n}"), |b| {
            b.iter(|| (0..LOOKUPS).map(|i| black_box(order).inverse(i % n)).fold(0, |a, x| a ^ x));
        });
    }
    group.finish();
}

/// Positions spread over the epoch, as a loader meets them in time.
fn lookups(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, sampler: &dyn Sampler) {
    let stride = (sampler.len() / LOOKUPS).max(1);
    group.bench_function(name, |b| {
        b.iter(|| {
            let positions = (0..LOOKUPS).map(|i| i * stride % sampler.len());
            positions.map(|position| sampler.record(black_box(3), position)).fold(0, |a, x| a ^ x)
        });
    });
}

fn orders(c: &mut Criterion) {
    let n = 1_281_167;
    let blocks = Order::Blocks { seed: 42, window: 4096, lanes: Some(8) };
    // Shards of 1,000 to 1,511 records.
    let uneven: Arc<[u64]> =
        std::iter::successors(Some(0), |at| Some(at + 1000 + at % 512)).take_while(|&at| at < n).collect();
    // Five files of 10,000: CIFAR.
    let files: Arc<[u64]> = (0..5).map(|file| file * 10_000).collect();
    let weights: Vec<f64> = (0..n).map(|i| 1.0 + (i % 1000) as f64).collect();

    let mut group = c.benchmark_group("record");
    group.throughput(Throughput::Elements(LOOKUPS));
    let sampler = |order: Order, n, groups| order.sampler(n, groups, 8).expect("a possible order");
    lookups(&mut group, "sequential/1281167", &*sampler(Order::Sequential, n, None));
    lookups(&mut group, "random/1281167", &*sampler(Order::Random { seed: 42 }, n, None));
    lookups(&mut group, "blocks-even/1281167", &*sampler(blocks.clone(), n, None));
    lookups(&mut group, "blocks-uneven/1281167", &*sampler(blocks.clone(), n, Some(uneven)));
    lookups(&mut group, "blocks-5-files/50000", &*sampler(blocks, 50_000, Some(files)));
    let mixture = (0..3).fold(Mixture::new(42), |all, part| all.part("", Share::Proportion(f64::from(part + 1))));
    let mixture = mixture.with_records(&[n - 60_000, 50_000, 10_000]).expect("three parts");
    lookups(&mut group, "mixture-3/1281167", &*sampler(mixture.into(), n, None));
    lookups(&mut group, "weighted/1281167", &WeightedSampler::new(&weights, 42).expect("possible weights"));
    group.finish();

    let mut group = c.benchmark_group("open");
    group.throughput(Throughput::Elements(n));
    group.sample_size(10);
    group.bench_function("weighted/1281167", |b| b.iter(|| WeightedSampler::new(black_box(&weights), 42)));
    group.finish();
}

criterion_group!(benches, permutation, orders);
criterion_main!(benches);
