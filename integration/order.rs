//! The order is a bijection, shards share it out exactly, and a resumed run sees what is left and nothing else.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc};

use infeed::sampler::{DEFAULT_GROUP, LastBatch, Order, Sampler, Schedule, Shard, WeightedSampler};
use proptest::{collection::vec, prelude::*};

use crate::properties::properties;

/// Any order, with groups of any sizes (empty ones too) that add up to the number of records.
fn samplers() -> impl Strategy<Value = Arc<dyn Sampler>> {
    let sizes = prop_oneof![vec(0..40u64, 0..30), (1..20u64, 0..30usize).prop_map(|(size, n)| vec![size; n])];
    let blocks = (any::<u64>(), 1..100u64, 1..40u64, sizes, any::<bool>());
    prop_oneof![
        (0..600u64).prop_map(|n| Order::Sequential.sampler(n, None, 1)),
        (0..600u64, any::<u64>()).prop_map(|(n, seed)| Order::Random { seed }.sampler(n, None, 1)),
        blocks.prop_map(|(seed, window, lanes, sizes, grouped)| {
            let starts = sizes.iter().scan(0, |at, size| Some(std::mem::replace(at, *at + size)));
            let starts: Arc<[u64]> = starts.collect();
            // Without groups, enough records for a few of the default size.
            let n = sizes.iter().sum::<u64>() * if grouped { 1 } else { 3 };
            Order::Blocks { seed, window, lanes: Some(lanes) }.sampler(n, grouped.then_some(starts), 1)
        }),
    ]
    .prop_map(|sampler| sampler.expect("a possible order"))
}

fn policies() -> impl Strategy<Value = LastBatch> {
    prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Partial), Just(LastBatch::Pad)]
}

fn schedule(len: u64, start: u64, batch: usize, rank: u32, world: u32, last: LastBatch) -> Schedule {
    let batch = NonZeroUsize::new(batch).expect("batches hold a row");
    Schedule::new(len, start, batch, Shard::new(rank, world).expect("ranks are below the world size"), last)
}

/// Real positions of all ranks, step by step.
fn seen(len: u64, start: u64, batch: usize, world: u32, last: LastBatch) -> Vec<Vec<u64>> {
    let plan = |rank| schedule(len, start, batch, rank, world, last);
    let of_rank = |rank, step| plan(rank).rows(step).take(plan(rank).rows(step).valid());
    (0..plan(0).steps()).map(|step| (0..world).flat_map(|rank| of_rank(rank, step)).collect()).collect()
}

fn sorted(mut list: Vec<u64>) -> Vec<u64> {
    list.sort_unstable();
    list
}

proptest! {
    #![proptest_config(properties(128, 4096))]

    #[test]
    fn each_record_comes_once_an_epoch_and_has_its_place(sampler in samplers(), epoch in any::<u64>()) {
        let n = sampler.len();
        let records: Vec<u64> = (0..n).map(|position| sampler.record(epoch, position)).collect();
        for (position, &record) in records.iter().enumerate() {
            prop_assert_eq!(sampler.position(epoch, record), Some(position as u64));
        }
        prop_assert_eq!(sorted(records), (0..n).collect::<Vec<_>>());
        prop_assert_eq!(sampler.position(epoch, n), None);
        prop_assert!(sampler.is_bijection());
        prop_assert_eq!(sampler.records(), n);
        prop_assert!((0..n).all(|position| sampler.occurrence(epoch, position) == 0));
    }

    #[test]
    fn ranks_share_an_epoch_without_overlap(
        n in 0..400u64, batch in 1..20usize, world in 1..12u32, last in policies(),
    ) {
        let stride = u64::from(world) * batch as u64;
        let all = sorted(seen(n, 0, batch, world, last).concat());
        let covered = if last == LastBatch::Drop { n - n % stride } else { n };
        prop_assert_eq!(all, (0..covered).collect::<Vec<_>>());
        for rank in 0..world {
            let plan = schedule(n, 0, batch, rank, world, last);
            prop_assert_eq!(plan.steps(), schedule(n, 0, batch, 0, world, last).steps());
            let rows: u64 = (0..plan.steps()).map(|step| plan.rows(step).valid() as u64).sum();
            prop_assert_eq!(rows, plan.rows_of_rank());
        }
    }

    #[test]
    fn batches_have_the_size_that_the_policy_promises(
        n in 0..400u64, batch in 1..20usize, world in 1..12u32, last in policies(),
    ) {
        let steps = schedule(n, 0, batch, 0, world, last).steps();
        for step in 0..steps {
            let plans = (0..world).map(|rank| schedule(n, 0, batch, rank, world, last).rows(step));
            let (rows, valid): (Vec<usize>, Vec<usize>) = plans.map(|rows| (rows.len(), rows.valid())).unzip();
            prop_assert!(valid.iter().max().unwrap() - valid.iter().min().unwrap() <= 1, "{valid:?}");
            match last {
                LastBatch::Drop => prop_assert!(valid.iter().all(|&v| v == batch)),
                LastBatch::Partial => prop_assert_eq!(&rows, &valid),
                LastBatch::Pad => prop_assert!(rows.iter().all(|&r| r == batch)),
            }
            prop_assert!(step + 1 == steps || valid.iter().all(|&v| v == batch), "step {step} of {steps}: {valid:?}");
            for rank in 0..world {
                prop_assert!(schedule(n, 0, batch, rank, world, last).rows(step).all(|position| position < n));
            }
        }
    }

    #[test]
    fn a_resumed_run_sees_what_is_left_in_the_same_order(
        n in 1..400u64, batch in 1..20usize, world in 1..12u32, last in policies(),
        stop in any::<prop::sample::Index>(), batch2 in 1..20usize, world2 in 1..12u32, again in any::<prop::sample::Index>(),
    ) {
        let first = seen(n, 0, batch, world, last);
        prop_assume!(first.len() > 1);
        // After any step but the last, which leads to the next epoch.
        let step = stop.index(first.len() - 1) as u64;
        let plan = schedule(n, 0, batch, 0, world, last);
        let (epoch, place) = plan.place_after(5, step);
        prop_assert_eq!((epoch, place), (5, plan.position_after(step)));
        prop_assert_eq!(plan.place_after(5, plan.steps() - 1), (6, 0));
        let before = first[..=step as usize].concat();

        // With the same world and batch: the very same steps.
        prop_assert_eq!(seen(n, place, batch, world, last), &first[step as usize + 1..]);

        // With others: exactly the rest, and once more from anywhere within that.
        let rest = seen(n, place, batch2, world2, LastBatch::Partial);
        let second = schedule(n, place, batch2, 0, world2, LastBatch::Partial);
        let step2 = again.index(rest.len()) as u64;
        let third = seen(n, second.position_after(step2), batch, world, LastBatch::Pad);
        let all = [before, rest[..=step2 as usize].concat(), third.concat()].concat();
        prop_assert_eq!(sorted(all), (0..n).collect::<Vec<_>>());
    }

    #[test]
    fn a_repeated_record_comes_as_often_as_it_says(
        n in 0..200u64, seed in any::<u64>(), times in 1..7u32, all_records in any::<bool>(), cycle in 0..1u64 << 40,
    ) {
        let sampler = Order::Repeated { seed, times, all_records }.sampler(n, None, 1).unwrap();
        let times = u64::from(times);
        prop_assert_eq!((sampler.records(), sampler.len()), (n, if all_records { n * times } else { n }));
        let epochs = if all_records { cycle..cycle + 1 } else { cycle * times..(cycle + 1) * times };
        let mut seen = Vec::new();
        for epoch in epochs {
            let mut first = HashMap::new();
            for position in 0..sampler.len() {
                let record = sampler.record(epoch, position);
                first.entry(record).or_insert(position);
                seen.push((record, sampler.occurrence(epoch, position)));
                // One after another: only the first and the last of an epoch may have others elsewhere.
                let next = position + 1 < sampler.len() && sampler.record(epoch, position + 1) == record;
                prop_assert_eq!(next, sampler.occurrence(epoch, position) + 1 < times && position + 1 < sampler.len());
            }
            for record in 0..n {
                prop_assert_eq!(sampler.position(epoch, record), first.get(&record).copied());
            }
            prop_assert_eq!(sampler.position(epoch, n), None);
        }
        seen.sort_unstable();
        let all: Vec<(u64, u64)> = (0..n).flat_map(|record| (0..times).map(move |time| (record, time))).collect();
        prop_assert_eq!(seen, all);
    }

    #[test]
    fn blocks_give_whole_lanes_to_ranks(
        seed in any::<u64>(), window in 1..300u64, world in 1..5u32, times in 1..4u32, batch in 1..9usize, n in 1..3000u64,
    ) {
        let lanes = u64::from(world * times);
        let sampler = Order::Blocks { seed, window, lanes: None }.sampler(n, Some((0..n).step_by(50).collect()), lanes).unwrap();
        let mut readers: HashMap<u64, Vec<u32>> = HashMap::new();
        for rank in 0..world {
            let plan = schedule(n, 0, batch, rank, world, LastBatch::Partial);
            for position in (0..plan.steps()).flat_map(|step| plan.rows(step)) {
                readers.entry(sampler.record(1, position) / 50).or_default().push(rank);
            }
        }
        let shared = readers.values_mut().filter_map(|ranks| { ranks.dedup(); (ranks.len() > 1).then_some(()) }).count();
        // Ranks are visited one after another, so `dedup` leaves one entry for each. Only groups over a border are shared.
        prop_assert!(shared < lanes as usize, "{shared} shared groups, {lanes} lanes");
    }
}

#[test]
fn the_smallest_datasets_are_exact_in_every_order() {
    for n in 0..4 {
        for (window, lanes) in [(1, 1), (1, 5), (7, 2), (u64::MAX, u64::MAX)] {
            let blocks = Order::Blocks { seed: 1, window, lanes: Some(lanes) };
            for order in [Order::Sequential, Order::Random { seed: 1 }, blocks] {
                let sampler = order.sampler(n, None, 1).unwrap();
                assert_eq!(sampler.is_empty(), n == 0);
                for epoch in [0, 1, u64::MAX] {
                    let records: Vec<u64> = (0..n).map(|position| sampler.record(epoch, position)).collect();
                    let back: Vec<_> = records.iter().map(|&record| sampler.position(epoch, record)).collect();
                    assert_eq!(back, (0..n).map(Some).collect::<Vec<_>>(), "{order} of {n}");
                    assert_eq!(sorted(records), (0..n).collect::<Vec<_>>(), "{order} of {n}");
                }
            }
        }
    }
}

#[test]
fn imagenet_is_exact_in_every_order() {
    let n = 1_281_167;
    // Classes of 732 to 1300 pictures, as in ImageNet.
    let classes: Arc<[u64]> =
        std::iter::successors(Some(0), |at| Some(at + 732 + at % 569)).take_while(|&at| at < n).collect();
    let blocks = |lanes| Order::Blocks { seed: 3, window: 5000, lanes: Some(lanes) };
    for (order, groups) in
        [(Order::Random { seed: 42 }, None), (blocks(7), None), (blocks(8), Some(Arc::clone(&classes)))]
    {
        let sampler = order.sampler(n, groups, 1).unwrap();
        let mut seen = vec![false; n as usize];
        for position in 0..n {
            let record = sampler.record(2, position);
            assert!(!std::mem::replace(&mut seen[record as usize], true), "{order}: record {record} comes twice");
            // The inverse costs as much again: a sample will do.
            if position % 101 == 0 {
                assert_eq!(sampler.position(2, record), Some(position), "{order}");
            }
        }
    }
}

/// Chi-square over cells that are all expected equally often.
fn chi_square(counts: &[u32]) -> f64 {
    let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
    counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum()
}

fn random(n: u64, seed: u64) -> Arc<dyn Sampler> {
    Order::Random { seed }.sampler(n, None, 1).unwrap()
}

#[test]
fn neighbouring_seeds_and_epochs_have_nothing_in_common() {
    let n = 1000;
    let pairs: [(&str, u64, u64); 3] = [("epoch", 0, 1), ("seed", 1, 0), ("seed up, epoch down", 1, u64::MAX)];
    for (what, seeds, epochs) in pairs {
        let mut gaps = vec![0u32; n as usize];
        for run in 0..100 {
            let (one, other) = (random(n, 40 + run), random(n, 40 + run + seeds));
            for position in 0..n {
                let (a, b) = (one.record(7 + run, position), other.record((7 + run).wrapping_add(epochs), position));
                gaps[((a + n - b) % n) as usize] += 1;
            }
        }
        let chi = chi_square(&gaps);
        assert!(chi < 1143.0, "{what}: chi-square {chi:.0} with 999 degrees of freedom; 99.9 % lie below 1143");
    }
}

#[test]
fn the_first_record_may_be_any_with_equal_chance() {
    let n = 1000;
    let blocks =
        |seed| Order::Blocks { seed, window: 40, lanes: Some(3) }.sampler(n, Some((0..n).step_by(10).collect()), 1);
    for (what, first) in [
        ("random, by epoch", Box::new(|i| random(n, 5).record(i, 0)) as Box<dyn Fn(u64) -> u64>),
        ("random, by seed", Box::new(|i| random(n, i).record(0, 0))),
        ("blocks, by epoch", Box::new(|i| blocks(5).unwrap().record(i, 0))),
        ("blocks, by seed", Box::new(|i| blocks(i).unwrap().record(0, 0))),
    ] {
        let mut counts = vec![0u32; n as usize];
        (0..100_000).for_each(|i| counts[first(i) as usize] += 1);
        let chi = chi_square(&counts);
        assert!(chi < 1143.0, "{what}: chi-square {chi:.0} with 999 degrees of freedom; 99.9 % lie below 1143");
    }
}

#[test]
fn blocks_keep_near_records_near() {
    let (n, lanes) = (100_000, 4);
    let sampler = Order::Blocks { seed: 1, window: 1024, lanes: Some(lanes) }.sampler(n, None, 1).unwrap();
    // The groups that one lane touches within a window's length.
    let mut groups: Vec<u64> = (0..1024).map(|at| sampler.record(0, at * lanes) / DEFAULT_GROUP).collect();
    groups.sort_unstable();
    groups.dedup();
    assert!(groups.len() as u64 <= 1024 / DEFAULT_GROUP + 2, "{} groups in a window of 4", groups.len());
}

#[test]
fn weighted_draws_come_as_often_as_their_weight_says() {
    let weights = [0.0, 1.0, 2.0, 0.5, 0.0, 10.0, 3.5, 3.0];
    let draws = 200_000;
    let sampler = WeightedSampler::new(&weights, 9).unwrap().with_len(draws);
    assert_eq!((sampler.len(), sampler.records(), sampler.is_bijection()), (draws, 8, false));
    for epoch in 0..3 {
        let mut counts = [0u32; 8];
        (0..draws).for_each(|position| counts[sampler.record(epoch, position) as usize] += 1);
        let mut chi = 0.0;
        for (weight, count) in weights.iter().zip(counts) {
            let expected = weight / 20.0 * draws as f64;
            if *weight == 0.0 {
                assert_eq!(count, 0, "a record without weight is drawn");
            } else {
                chi += (f64::from(count) - expected).powi(2) / expected;
            }
        }
        assert!(chi < 20.5, "epoch {epoch}: chi-square {chi:.1} with 5 degrees of freedom; 99.9 % lie below 20.5");
    }
}

#[test]
fn weighted_draws_depend_on_seed_epoch_and_position_only() {
    let weights: Vec<f64> = (1..=500).map(f64::from).collect();
    let draw = |seed, epoch| {
        let sampler = WeightedSampler::new(&weights, seed).unwrap();
        (0..500).map(|position| sampler.record(epoch, position)).collect::<Vec<_>>()
    };
    assert_eq!(draw(1, 2), draw(1, 2));
    let same = |a: Vec<u64>, b: Vec<u64>| a.iter().zip(&b).filter(|(a, b)| a == b).count();
    // Two independent draws agree with probability sum w^2 / (sum w)^2 = 0.27 %.
    assert!(same(draw(1, 2), draw(1, 3)) < 12);
    assert!(same(draw(1, 2), draw(2, 2)) < 12);
    let sampler = WeightedSampler::new(&weights, 1).unwrap();
    assert_eq!(sampler.position(0, sampler.record(0, 0)), None);
}
