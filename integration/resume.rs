//! A run that stops anywhere and goes on elsewhere sees each record exactly once, and the same bytes.

use std::{collections::BTreeSet, sync::Arc};

use futures::{Stream, StreamExt, stream::FusedStream};
use infeed::{
    ErrorKind, Loader, LoaderBuilder, Result,
    dataset::{Dataset, MemoryDataset},
    sampler::{LastBatch, LoaderState, Order, Shard},
    transform::Transform,
};
use proptest::prelude::*;

use crate::{
    properties::properties,
    support::{
        Plain, builder, drain, plain,
        records::{Records, name},
        store::Fault,
    },
};

/// 97 pictures of 12×12 whose pixels depend on record and place.
fn pictures() -> Arc<dyn Dataset> {
    let (n, h, w) = (97, 12, 12);
    let pixels: Vec<u8> = (0..n * h * w * 3).map(|i| (i * 7 + i / 432 * 13) as u8).collect();
    let labels = (0..n as i64).collect();
    Arc::new(
        MemoryDataset::builder().images_u8(pixels, n, h as u32, w as u32, 3, false).labels(labels).build().unwrap(),
    )
}

fn loader(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    settings(builder(Arc::clone(dataset)).shuffle(5)).build_blocking().unwrap()
}

fn augment() -> Transform {
    Transform::new().random_crop(8, 2).horizontal_flip(0.5).to_float()
}

fn all(loader: &Loader, epochs: std::ops::Range<u64>) -> Vec<Plain> {
    drain(loader.epochs(epochs)).unwrap().iter().map(plain).collect()
}

proptest! {
    #![proptest_config(properties(24, 400))]

    /// Workers, prefetch and budget are about speed alone.
    #[test]
    fn nothing_but_order_and_transform_decides_the_bytes(
        workers in 1usize..5, prefetch in 1usize..17, budget in prop_oneof![Just(None), Just(Some(40u64 << 20)), Just(Some(2 << 30))],
        batch in 1usize..40, last in prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Partial), Just(LastBatch::Pad)],
    ) {
        let dataset = pictures();
        let base = |b: LoaderBuilder| b.batch_size(batch).last_batch(last).transform(augment());
        let want = all(&loader(&dataset, |b| base(b).workers(1).prefetch(1)), 0..2);
        let got = all(&loader(&dataset, |b| {
            let b = base(b).workers(workers).prefetch(prefetch);
            match budget { Some(bytes) => b.memory_budget(bytes), None => b }
        }), 0..2);
        prop_assert_eq!(want, got);
    }

    /// The same for records that come over a network, in whatever order the answers arrive.
    #[test]
    fn stores_make_no_difference(workers in 1usize..4, prefetch in 1usize..6, batch in 1usize..20, requests in 1usize..40) {
        let base = |b: LoaderBuilder| b.batch_size(batch).last_batch(LastBatch::Partial);
        let want = all(&loader(&Records::resident(60), |b| base(b).workers(1)), 0..2);
        for (dataset, _) in [Records::remote(60), Records::inline(60)] {
            let got = all(&loader(&dataset, |b| base(b).workers(workers).prefetch(prefetch).io_concurrency(requests)), 0..2);
            prop_assert_eq!(&want, &got);
        }
    }

    #[test]
    fn resuming_after_any_batch_gives_exactly_what_was_left(batch in 1usize..40, workers in 1usize..4, cut in 0usize..100) {
        let dataset = pictures();
        let settings = |b: LoaderBuilder| b.batch_size(batch).last_batch(LastBatch::Partial).transform(augment());
        let first = loader(&dataset, |b| settings(b).workers(workers));
        let batches = drain(first.epochs(3..5)).unwrap();
        let cut = cut % batches.len();
        let state = LoaderState::from_json(&batches[cut].state().to_json()).unwrap();
        let second = loader(&dataset, |b| settings(b).workers(1).prefetch(1));
        let rest = drain(second.resume_epochs(&state, ..5).unwrap()).unwrap();
        let want: Vec<Plain> = batches[cut + 1..].iter().map(plain).collect();
        prop_assert_eq!(want, rest.iter().map(plain).collect::<Vec<_>>());
    }

    #[test]
    fn another_world_size_takes_over_without_loss_or_repeat(
        worlds in (1u32..5, 1u32..5), batches in (1usize..9, 1usize..9), steps in 0usize..6,
        order in prop_oneof![
            Just(Order::Sequential), Just(Order::Random { seed: 3 }),
            Just(Order::Blocks { seed: 3, window: 2, lanes: Some(4) }),
            // The first run's world, whatever the second one's is.
            Just(Order::Blocks { seed: 3, window: 20, lanes: None }),
        ],
    ) {
        let dataset = pictures();
        let run = |(rank, world, batch)| loader(&dataset, |b| {
            b.order(order.clone()).shard(Shard::new(rank, world).unwrap()).batch_size(batch).last_batch(LastBatch::Partial).workers(1)
        });
        let mut seen = Vec::new();
        let mut states = BTreeSet::new();
        for rank in 0..worlds.0 {
            for batch in run((rank, worlds.0, batches.0)).epoch(0).blocking().take(steps) {
                let batch = batch.unwrap();
                seen.extend_from_slice(batch.records());
                states.insert((batch.step(), batch.state().to_json()));
            }
        }
        prop_assert!(states.iter().map(|(step, _)| step).collect::<BTreeSet<_>>().len() == states.len(), "ranks disagree: {states:?}");
        if let Some((_, state)) = states.last() {
            let state = LoaderState::from_json(state).unwrap();
            if state.epoch == 0 {
                for rank in 0..worlds.1 {
                    let rest = drain(run((rank, worlds.1, batches.1)).resume_epoch(&state).unwrap()).unwrap();
                    seen.extend(rest.iter().flat_map(|batch| batch.records().iter().copied()));
                }
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..97).collect::<Vec<u64>>());
        }
    }
}

#[test]
fn the_last_batch_says_to_go_on_with_the_next_epoch() {
    let dataset = pictures();
    let loader = loader(&dataset, |b| b.batch_size(32));
    let batches = drain(loader.epoch(4)).unwrap();
    let state = batches.last().unwrap().state();
    assert_eq!((state.epoch, state.position), (5, 0));
    assert_eq!(drain(loader.resume_epoch(state).unwrap()).unwrap().len(), 3);
}

#[test]
fn a_state_goes_on_in_its_epoch_or_through_the_epochs_asked_for() {
    let loader = loader(&pictures(), |b| b.batch_size(32));
    let batches = drain(loader.epochs(0..2)).unwrap();
    let lens = |state: &LoaderState| {
        let ends = (0..4).map(|end| drain(loader.resume_epochs(state, ..end).unwrap()).unwrap().len());
        (drain(loader.resume_epoch(state).unwrap()).unwrap().len(), ends.collect::<Vec<_>>())
    };
    assert_eq!(lens(batches[0].state()), (2, vec![0, 2, 5, 8]), "in the middle of epoch 0");
    assert_eq!(lens(batches[2].state()), (3, vec![0, 0, 3, 6]), "at the end of epoch 0, which is the beginning of 1");
    assert_eq!(lens(batches[5].state()), (3, vec![0, 0, 0, 3]));
}

#[test]
fn what_does_not_fill_a_larger_batch_is_no_error_of_a_resume() {
    let dataset = pictures();
    let state = drain(loader(&dataset, |b| b.batch_size(10)).epoch(0)).unwrap()[7].state().clone();
    let larger = loader(&dataset, |b| b.batch_size(40));
    let rest = larger.resume_epoch(&state).unwrap();
    assert_eq!((rest.size_hint(), drain(rest).unwrap().len()), ((0, Some(0)), 0));
    let rest = larger.resume_epochs(&state, ..3).unwrap();
    assert_eq!((rest.size_hint(), drain(rest).unwrap().len()), ((4, Some(4)), 4));
}

#[test]
fn a_stream_tells_how_many_batches_are_left() {
    let loader = loader(&pictures(), |b| b.batch_size(32));
    let mut batches = loader.epochs(2..4);
    let monitor = batches.monitor();
    for left in (0..6).rev() {
        assert_eq!(batches.size_hint(), (left + 1, Some(left + 1)));
        futures::executor::block_on(batches.next()).unwrap().unwrap();
    }
    drop(monitor);
    assert_eq!((batches.size_hint(), batches.is_terminated()), ((0, Some(0)), false));
    for _ in 0..3 {
        assert!(futures::executor::block_on(batches.next()).is_none());
        assert_eq!((batches.size_hint(), batches.is_terminated()), ((0, Some(0)), true));
    }
    #[allow(clippy::reversed_empty_ranges, reason = "a user may ask for one")]
    for (epochs, hint) in
        [(0..0, (0, Some(0))), (3..1, (0, Some(0))), (5..6, (3, Some(3))), (0..u64::MAX, (usize::MAX, None))]
    {
        assert_eq!(loader.epochs(epochs.clone()).size_hint(), hint, "{epochs:?}");
        assert_eq!(loader.epochs(epochs.clone()).blocking().size_hint(), hint, "{epochs:?}");
    }
}

#[test]
fn an_error_ends_what_is_left() {
    let (dataset, tracker) = Records::remote(50);
    tracker.fail(&name(12), Fault::NotFound);
    let mut batches = loader(&dataset, |b| b.order(Order::Sequential).batch_size(10)).epoch(0);
    let mut next = || {
        let item = futures::executor::block_on(batches.next());
        (item.map(|batch| batch.is_ok()), batches.size_hint().1, batches.is_terminated())
    };
    assert_eq!(next(), (Some(true), Some(4), false));
    assert_eq!(next(), (Some(false), Some(0), true));
    assert_eq!(next(), (None, Some(0), true));
}

#[test]
fn read_ahead_does_not_count_as_seen() {
    let loader = loader(&pictures(), |b| b.batch_size(10).prefetch(8));
    let mut batches = loader.epoch(0).blocking();
    let state = batches.next().unwrap().unwrap().state().clone();
    assert_eq!(state.position, 10);
}

#[test]
fn a_state_of_something_else_is_refused_and_the_difference_named() {
    let state = |loader: &Loader| drain(loader.epoch(0)).unwrap()[0].state().clone();
    let build = |settings: fn(LoaderBuilder) -> LoaderBuilder| loader(&pictures(), |b| settings(b.batch_size(8)));
    let base = build(|b| b);
    let refused = |other: &Loader| {
        let error = base.resume_epoch(&state(other)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::State, "{error}");
        error.to_string()
    };
    let other = loader(&Records::resident(97), |b| b.batch_size(8));
    assert!(refused(&other).contains("dataset is memory, the state was saved with records"), "{}", refused(&other));
    let more = loader(&Records::resident(98), |b| b.batch_size(8));
    let error = other.resume_epoch(&state(&more)).unwrap_err().to_string();
    assert!(error.contains("dataset has 97 records, the state was saved with 98"), "{error}");
    let ordered = build(|b| b.order(Order::Sequential).seed(5));
    assert!(refused(&ordered).contains("order"), "{}", refused(&ordered));
    let seeded = build(|b| b.seed(6));
    assert!(refused(&seeded).contains("seed"), "{}", refused(&seeded));
    let mut broken = state(&base);
    broken.position = 1000;
    assert_eq!(base.resume_epoch(&broken).unwrap_err().kind(), ErrorKind::State);
}

#[test]
fn a_weighted_order_resumes_too() -> Result<()> {
    use infeed::sampler::WeightedSampler;
    let weights: Vec<f64> = (0..97).map(f64::from).collect();
    let sampler = Arc::new(WeightedSampler::new(&weights, 11)?);
    let loader = loader(&pictures(), |b| b.sampler(sampler).batch_size(10));
    let whole: Vec<Plain> = drain(loader.epoch(2))?.iter().map(plain).collect();
    let state = drain(loader.epoch(2))?[3].state().clone();
    let rest: Vec<Plain> = drain(loader.resume_epoch(&state)?)?.iter().map(plain).collect();
    assert_eq!(whole[4..], rest[..]);
    assert!(whole.iter().all(|batch| !batch.1.contains(&0)), "a record of weight 0 was drawn");
    Ok(())
}
