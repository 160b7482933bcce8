//! Mixtures: each part gives its share of every epoch, no record comes before its time, on any ranks, after any resume.

use std::{collections::HashMap, sync::Arc};

use infeed::{
    Batch, ErrorKind, Loader, Order, Result,
    dataset::{Dataset, MemoryDataset, concat, subset},
    sampler::{LastBatch, LoaderState, Mixture, Sampler, Shard, Share},
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    properties::properties,
    support::{builder, drain, plain},
};

/// Parts of some records each, by proportion or not.
fn mixtures() -> impl Strategy<Value = Mixture> {
    let relative = (vec((1..40u64, 1..50u32), 1..6), proptest::option::of(60..200u64)).prop_map(|(parts, samples)| {
        let shares = parts.iter().map(|(records, weight)| (*records, Share::Proportion(f64::from(*weight) / 10.0)));
        let mixture = mixed(&shares.collect::<Vec<_>>());
        // Long enough for a sample of the smallest one.
        let least =
            parts.iter().map(|part| part.1).sum::<u32>().div_ceil(parts.iter().map(|part| part.1).min().unwrap());
        let all = parts.iter().map(|part| part.0).sum::<u64>();
        mixture.samples(samples.unwrap_or(all).max(u64::from(least)))
    });
    let share =
        prop_oneof![(1..40u32).prop_map(|n| Share::Repeat(f64::from(n) / 8.0)), (1..60u64).prop_map(Share::Choose)];
    // 16 records twice an eighth are two samples: none gives nothing.
    let absolute = vec((16..40u64, share), 1..6).prop_map(|parts| mixed(&parts));
    (prop_oneof![relative, absolute], any::<u64>()).prop_map(|(mut mixture, seed)| {
        mixture.seed = seed;
        mixture
    })
}

fn mixed(parts: &[(u64, Share)]) -> Mixture {
    let mixture = parts.iter().fold(Mixture::new(0), |all, (_, share)| all.part("", *share));
    mixture.with_records(&parts.iter().map(|part| part.0).collect::<Vec<_>>()).unwrap()
}

fn sizes(mixture: &Mixture) -> Vec<u64> {
    mixture.parts.iter().map(|part| part.records.unwrap()).collect()
}

fn sampler(mixture: &Mixture) -> Arc<dyn Sampler> {
    Order::Mixture(mixture.clone()).sampler(sizes(mixture).iter().sum(), None, 1).unwrap()
}

fn part_of(mixture: &Mixture, record: u64) -> usize {
    let ends = sizes(mixture)
        .into_iter()
        .scan(0, |at, size| {
            Some({
                *at += size;
                *at
            })
        })
        .collect::<Vec<_>>();
    ends.partition_point(|end| *end <= record)
}

fn epoch_of(sampler: &dyn Sampler, epoch: u64) -> Vec<u64> {
    (0..sampler.len()).map(|position| sampler.record(epoch, position)).collect()
}

/// Labels that tell the record of the whole, in a dataset of the mixture's parts.
fn labelled(sizes: &[u64]) -> Arc<dyn Dataset> {
    let mut first = 0;
    let parts = sizes.iter().map(|size| -> Arc<dyn Dataset> {
        let labels = (first..first + *size as i64).collect();
        first += *size as i64;
        Arc::new(MemoryDataset::builder().labels(labels).build().unwrap())
    });
    concat(parts.collect::<Vec<_>>()).unwrap()
}

fn loader(mixture: &Mixture, (rank, world): (u32, u32), batch: usize) -> Loader {
    let builder = builder(labelled(&sizes(mixture))).order(Order::Mixture(mixture.clone())).batch_size(batch);
    builder.shard(Shard::new(rank, world).unwrap()).last_batch(LastBatch::Partial).workers(1).build_blocking().unwrap()
}

/// Labels, of which the loader must not say other records.
fn labels(batch: &Batch) -> Vec<u64> {
    let labels: Vec<u64> = batch["label"].as_slice::<i64>().unwrap().iter().map(|label| *label as u64).collect();
    assert_eq!(labels, batch.records());
    labels
}

fn sorted(mut list: Vec<u64>) -> Vec<u64> {
    list.sort_unstable();
    list
}

proptest! {
    #![proptest_config(properties(64, 2000))]

    #[test]
    fn each_part_gives_its_share_and_no_record_comes_before_its_time(mixture in mixtures(), epochs in 1..7u64) {
        let (sampler, sizes) = (sampler(&mixture), sizes(&mixture));
        let weight = |part: usize| match mixture.parts[part].share {
            // In tenths.
            Share::Proportion(weight) => (weight * 10.0).round() as u64,
            _ => mixture.counts(0).unwrap()[part],
        };
        let total: u64 = (0..sizes.len()).map(weight).sum();
        let mut times: HashMap<u64, u64> = HashMap::new();
        for epoch in 0..epochs {
            let records = epoch_of(&*sampler, epoch);
            let mut counts = vec![0; sizes.len()];
            for record in &records {
                *times.entry(*record).or_default() += 1;
                counts[part_of(&mixture, *record)] += 1;
            }
            prop_assert_eq!(&counts, &mixture.counts(epoch).unwrap());
            let mut first = 0;
            for (part, size) in sizes.iter().enumerate() {
                let of_part = (first..first + size).map(|record| times.get(&record).copied().unwrap_or(0));
                let (least, most) = (of_part.clone().min().unwrap(), of_part.clone().max().unwrap());
                prop_assert!(most - least <= 1, "part {part} of {mixture}: {least} and {most} times");
                // So far: the share of all, rounded up or down; in whole numbers.
                let (given, want) = (of_part.sum::<u64>() * total, (epoch + 1) * sampler.len() * weight(part));
                prop_assert!(given.abs_diff(want) < total, "part {part} of {mixture}: {given} for {want}");
                if let Share::Choose(samples) = mixture.parts[part].share {
                    prop_assert_eq!(counts[part], samples);
                }
                first += size;
            }
        }
    }

    #[test]
    fn a_record_is_found_where_it_comes_first_and_draws_anew_each_time(mixture in mixtures(), epoch in any::<u64>()) {
        let sampler = sampler(&mixture);
        let records = epoch_of(&*sampler, epoch);
        let mut first = HashMap::new();
        let mut times: HashMap<u64, Vec<u64>> = HashMap::new();
        for (position, record) in (0..).zip(&records) {
            first.entry(*record).or_insert(position);
            times.entry(*record).or_default().push(sampler.occurrence(epoch, position));
        }
        for record in 0..sampler.records() + 2 {
            prop_assert_eq!(sampler.position(epoch, record), first.get(&record).copied(), "record {} of {}", record, mixture);
        }
        for times in times.into_values() {
            let count = times.len();
            let mut times = sorted(times);
            times.dedup();
            prop_assert_eq!(times.len(), count, "two times of a record draw alike");
        }
        // A share that is off by little shows when it adds up to a sample: after as many epochs as the weights' sum at most, which
        // is five times 49.
        prop_assert_eq!(sampler.is_bijection(), (0..=245).all(|epoch| {
            sorted(epoch_of(&*sampler, epoch)) == (0..sampler.records()).collect::<Vec<_>>()
        }));
    }

    /// What all ranks saw before the stop and after it is the epoch, each sample of it once.
    #[test]
    fn another_world_goes_on_with_exactly_the_rest(
        mixture in mixtures(), worlds in (1u32..5, 1u32..5), batches in (1usize..9, 1usize..9), stop in any::<Index>(),
    ) {
        let want = sorted(epoch_of(&*sampler(&mixture), 3));
        let mut ranks: Vec<Vec<Batch>> = Vec::new();
        for rank in 0..worlds.0 {
            ranks.push(drain(loader(&mixture, (rank, worlds.0), batches.0).epoch(3)).unwrap());
        }
        let whole = ranks.iter().flatten().flat_map(labels).collect();
        prop_assert_eq!(sorted(whole), want.clone(), "ranks together");

        let stop = stop.index(ranks[0].len());
        let mut seen: Vec<u64> = ranks.iter().flat_map(|batches| &batches[..=stop]).flat_map(labels).collect();
        let state = ranks[0][stop].state();
        if state.epoch == 3 {
            for rank in 0..worlds.1 {
                let rest = drain(loader(&mixture, (rank, worlds.1), batches.1).resume_epoch(state).unwrap()).unwrap();
                seen.extend(rest.iter().flat_map(labels));
            }
        }
        prop_assert_eq!(sorted(seen), want);
    }
}

/// Three datasets over three ranks, stopped in the second epoch and gone on with on two: 70, 20 and 10 of each hundred.
#[test]
fn three_datasets_on_three_ranks_go_on_on_two() -> Result<()> {
    let sizes = [1000, 37, 5];
    let mixture = Mixture::new(42)
        .part("web", Share::Proportion(0.7))
        .part("books", Share::Proportion(0.2))
        .part("code", Share::Proportion(0.1))
        .samples(1200);
    let run = |rank, world, batch| {
        let builder = builder(labelled(&sizes)).order(Order::Mixture(mixture.clone())).batch_size(batch);
        builder.shard(Shard::new(rank, world).unwrap()).last_batch(LastBatch::Partial).build_blocking()
    };
    let mut epochs: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut states = Vec::new();
    for rank in 0..3 {
        // An epoch has 50 steps of 3 times 8 rows.
        for batch in run(rank, 3, 8)?.epochs(0..3).blocking().take(50 + 17) {
            let batch = batch?;
            epochs.entry(batch.epoch()).or_default().extend(labels(&batch));
            states.push((batch.epoch(), batch.step(), batch.state().to_json()));
        }
    }
    let state = states.iter().find(|(epoch, step, _)| (*epoch, *step) == (1, 16)).unwrap();
    assert!(states.iter().filter(|other| (other.0, other.1) == (1, 16)).all(|other| other == state), "ranks disagree");
    let state = LoaderState::from_json(&state.2)?;
    for rank in 0..2 {
        for batch in run(rank, 2, 13)?.resume_epochs(&state, ..3)?.blocking() {
            let batch = batch?;
            epochs.entry(batch.epoch()).or_default().extend(labels(&batch));
        }
    }
    let of = |labels: &[u64], range: std::ops::Range<u64>| labels.iter().filter(|label| range.contains(label)).count();
    let mut times = HashMap::new();
    for epoch in 0..3 {
        let labels = &epochs[&epoch];
        assert_eq!(
            [of(labels, 0..1000), of(labels, 1000..1037), of(labels, 1037..1042)],
            [840, 240, 120],
            "epoch {epoch}"
        );
        labels.iter().for_each(|label| *times.entry(*label).or_insert(0) += 1);
    }
    let counts = |range: std::ops::Range<u64>, times: &HashMap<u64, i32>| -> Vec<i32> {
        let mut counts: Vec<i32> = range.map(|record| times[&record]).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    };
    // 2520 of 1000, 720 of 37, 360 of 5.
    assert_eq!(counts(0..1000, &times), [2, 3]);
    assert_eq!(counts(1000..1037, &times), [19, 20]);
    assert_eq!(counts(1037..1042, &times), [72]);
    Ok(())
}

#[test]
fn the_dataset_says_how_long_its_parts_are_and_the_settings_tell_it() {
    let mixture = Mixture::new(1).part("a", Share::Repeat(2.0)).part("b", Share::Choose(3));
    let loader = builder(labelled(&[4, 6])).order(Order::Mixture(mixture)).batch_size(2).build_blocking().unwrap();
    assert_eq!((loader.batches_per_epoch(), loader.config().seed), (5, Some(1)));
    let Order::Mixture(mixture) = &loader.config().order else { panic!("{:?}", loader.config().order) };
    assert_eq!((sizes(mixture), mixture.counts(0).unwrap()), (vec![4, 6], vec![8, 3]));
    assert_eq!(
        serde_json::to_value(&mixture.parts[1]).unwrap(),
        serde_json::json!({ "name": "b", "records": 6, "choose": 3 })
    );
}

#[test]
fn samples_of_one_record_are_augmented_anew_and_a_repeated_run_is_equal() {
    use infeed::transform::Transform;
    let pixels: Vec<u8> = (0..3 * 32 * 32 * 3).map(|i| (i * 31 % 251) as u8).collect();
    let pictures = MemoryDataset::builder().images_u8(pixels, 3, 32, 32, 3, false).build().unwrap();
    let mixture = Mixture::new(5).part("", Share::Repeat(4.0));
    let augmented = Transform::new().random_crop(16, 0).to_float();
    let builder = builder(Arc::new(pictures)).order(Order::Mixture(mixture)).transform(augmented);
    let loader = builder.batch_size(12).build_blocking().unwrap();
    let runs: Vec<_> = (0..2).map(|_| drain(loader.epoch(0)).unwrap()).collect();
    assert_eq!(plain(&runs[0][0]), plain(&runs[1][0]));
    let bytes = runs[0][0]["image"].bytes().unwrap();
    let rows: std::collections::HashSet<_> = bytes.chunks(bytes.len() / 12).collect();
    // Of 289 crops each, four of a picture are hardly ever equal.
    assert!(rows.len() > 9, "{} of 12 rows differ", rows.len());
}

#[test]
fn a_state_of_another_mixture_is_refused() {
    let run = |weights: [f64; 2], sizes: &[u64], seed| {
        let mixture =
            Mixture::new(seed).part("", Share::Proportion(weights[0])).part("", Share::Proportion(weights[1]));
        let builder = builder(labelled(sizes)).order(Order::Mixture(mixture.samples(100))).batch_size(10);
        builder.seed(0).build_blocking().unwrap()
    };
    let base = run([0.7, 0.3], &[30, 60], 1);
    let state = base.state_before(1);
    assert_eq!(drain(base.resume_epoch(&state).unwrap()).unwrap().len(), 10);
    for (other, want) in [
        (
            run([0.6, 0.4], &[30, 60], 1),
            "order is mixture of proportion=0.6 + proportion=0.4, seed 1, the state was saved with",
        ),
        (
            run([0.7, 0.3], &[30, 60], 2),
            "seed 2, the state was saved with mixture of proportion=0.7 + proportion=0.3, seed 1",
        ),
        (run([0.7, 0.3], &[31, 60], 1), "91 records"),
        (run([0.7, 0.3], &[60, 30], 1), "names and sizes"),
    ] {
        let error = other.resume_epoch(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State);
        assert!(error.to_string().contains(want), "{error}");
    }
}

#[test]
fn a_mixture_that_does_not_fit_its_dataset_is_refused() {
    let two = Mixture::new(0).part("a", Share::Choose(3)).part("b", Share::Choose(3));
    let build = |dataset| builder(dataset).order(Order::Mixture(two.clone())).batch_size(1).build_blocking();
    build(labelled(&[2, 2])).unwrap();
    // Chosen records are of the parts that they come from, in the order of the parts.
    let two_of_three = subset(labelled(&[2, 2]), 0..3).unwrap();
    build(two_of_three).unwrap();
    let back_and_forth = subset(labelled(&[2, 2]), vec![3, 0]).unwrap();
    for (dataset, want) in [
        (labelled(&[2, 2, 2]), "the mixture has 2 parts, the dataset 3"),
        (back_and_forth, "the mixture has 2 parts, the dataset 1"),
        (labelled(&[2, 0]), "part `b` of the mixture has no records"),
    ] {
        let error = build(dataset).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(want), "{error}");
    }
}
