//! Orders that are given as lists: any length, any records, other ones in each epoch, in batches of any sizes.

use std::{collections::HashMap, sync::Arc};

use futures::Stream as _;
use infeed::{
    Batch, ErrorKind, Loader, LoaderBuilder, Result,
    dataset::{Dataset, MemoryDataset},
    sampler::{Batches, Fingerprint, LastBatch, ListSampler, LoaderState, Sampler, Shard},
    transform::Transform,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::{
    properties::properties,
    support::{
        Plain, builder, drain, plain,
        records::{Records, record_of},
    },
};

const RECORDS: u64 = 50;

/// Pictures whose pixels depend on record and place.
fn pictures() -> Arc<dyn Dataset> {
    let (n, h, w) = (RECORDS as usize, 12, 12);
    let pixels: Vec<u8> = (0..n * h * w * 3).map(|i| (i * 7 + i / 432 * 13) as u8).collect();
    let builder = MemoryDataset::builder().images_u8(pixels, n, h as u32, w as u32, 3, false);
    Arc::new(builder.labels((0..RECORDS as i64).collect()).build().unwrap())
}

fn loader(settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let augmented = Transform::new().random_crop(8, 2).horizontal_flip(0.5).to_float();
    settings(builder(pictures()).seed(5).transform(augmented)).build_blocking().unwrap()
}

fn list(records: &[u64]) -> Arc<dyn Sampler> {
    Arc::new(ListSampler::new(RECORDS, records).unwrap())
}

fn listed(batches: &[Vec<u64>]) -> Arc<dyn Sampler> {
    let list = ListSampler::new(RECORDS, batches.concat()).unwrap();
    Arc::new(list.with_batches(batches.iter().map(Vec::len)).unwrap())
}

fn records(batches: &[Batch]) -> Vec<Vec<u64>> {
    batches.iter().map(|batch| batch.records().to_vec()).collect()
}

fn plains(batches: &[Batch]) -> Vec<Plain> {
    batches.iter().map(plain).collect()
}

/// One or more records, many of them several times.
fn lists() -> impl Strategy<Value = Vec<u64>> {
    vec(0..RECORDS, 1..120)
}

/// One or more batches of up to 9 rows.
fn batch_lists() -> impl Strategy<Value = Vec<Vec<u64>>> {
    vec(vec(0..RECORDS, 1..10), 1..20)
}

fn policies() -> impl Strategy<Value = LastBatch> {
    prop_oneof![Just(LastBatch::Drop), Just(LastBatch::Partial), Just(LastBatch::Pad)]
}

proptest! {
    #![proptest_config(properties(48, 2000))]

    #[test]
    fn a_list_comes_as_it_is_and_a_resume_skips_what_came(
        list_of in lists(), batch in 1usize..20, workers in (1usize..4, 1usize..4), last in policies(), cut in any::<Index>(),
    ) {
        // An epoch without a batch is refused.
        prop_assume!(last != LastBatch::Drop || list_of.len() >= batch);
        let built = |workers| loader(|b| b.batch_size(batch).last_batch(last).workers(workers).sampler(list(&list_of)));
        let first = built(workers.0);
        let batches = drain(first.epochs(2..4)).unwrap();
        let all: Vec<u64> = batches[..batches.len() / 2].iter().flat_map(|b| b.records()[..b.valid()].to_vec()).collect();
        let kept = if last == LastBatch::Drop { list_of.len() / batch * batch } else { list_of.len() };
        prop_assert_eq!(&all, &list_of[..kept]);
        prop_assert_eq!(first.batches_per_epoch() * 2, batches.len() as u64);

        let cut = cut.index(batches.len());
        let state = LoaderState::from_json(&batches[cut].state().to_json()).unwrap();
        let rest = built(workers.1).resume_epochs(&state, ..4).unwrap();
        prop_assert_eq!(rest.size_hint().1, Some(batches.len() - cut - 1));
        prop_assert_eq!(plains(&drain(rest).unwrap()), plains(&batches[cut + 1..]));
    }

    #[test]
    fn listed_batches_come_as_they_are_and_a_resume_skips_what_came(
        batches_of in batch_lists(), room in 0usize..5, workers in (1usize..4, 1usize..4), last in policies(), cut in any::<Index>(),
    ) {
        let batch = batches_of.iter().map(Vec::len).max().unwrap_or(1) + room;
        let built = |workers| loader(|b| b.batch_size(batch).last_batch(last).workers(workers).sampler(listed(&batches_of)));
        let first = built(workers.0);
        let batches = drain(first.epochs(2..4)).unwrap();
        prop_assert_eq!(records(&batches), [&batches_of[..], &batches_of].concat());
        prop_assert_eq!(first.batches_per_epoch(), batches_of.len() as u64);

        let cut = cut.index(batches.len());
        let rest = built(workers.1).resume_epochs(batches[cut].state(), ..4).unwrap();
        prop_assert_eq!(rest.size_hint().1, Some(batches.len() - cut - 1));
        prop_assert_eq!(plains(&drain(rest).unwrap()), plains(&batches[cut + 1..]));
    }

    /// As a run goes on with another batch size.
    #[test]
    fn batches_may_be_cut_otherwise_on_resume(batches_of in batch_lists(), batch in 1usize..12, cut in any::<Index>()) {
        let flat = batches_of.concat();
        let even = loader(|b| b.batch_size(batch).last_batch(LastBatch::Partial).sampler(list(&flat)));
        let cut_otherwise = loader(|b| b.batch_size(9).sampler(listed(&batches_of)));
        for (from, to) in [(&even, &cut_otherwise), (&cut_otherwise, &even)] {
            let batches = drain(from.epoch(1)).unwrap();
            // After any batch but the last, which leads to the next epoch.
            let cut = cut.index(batches.len());
            let state = batches[cut].state();
            prop_assume!(state.epoch == 1);
            let rest = drain(to.resume_epoch(state).unwrap()).unwrap();
            prop_assert_eq!(records(&rest).concat(), &flat[state.position as usize..]);
        }
    }

    /// Of one record the first draws are those of an order in which it comes once.
    #[test]
    fn a_record_that_comes_again_draws_again(list_of in lists()) {
        let sampler = ListSampler::new(RECORDS, &list_of[..]).unwrap();
        let mut came = HashMap::new();
        for (position, record) in (0..).zip(&list_of) {
            let times = came.entry(*record).or_insert(0u64);
            prop_assert_eq!((sampler.record(9, position), sampler.occurrence(9, position)), (*record, *times));
            *times += 1;
        }
        let is_bijection = came.len() as u64 == RECORDS && came.values().all(|times| *times == 1);
        prop_assert_eq!((sampler.len(), sampler.is_bijection()), (list_of.len() as u64, is_bijection));
    }
}

#[test]
fn samples_that_repeat_differ_and_the_first_is_the_usual_one() {
    let one_by_one = |sampler| drain(loader(|b| b.batch_size(1).sampler(sampler)).epoch(3)).unwrap();
    let usual = one_by_one(list(&[7]));
    let image = |batch: &Batch| batch["image"].bytes().expect("host memory").to_vec();
    let again = one_by_one(list(&[3, 7, 7, 7, 7]));
    let images: Vec<_> = again[1..].iter().map(image).collect();
    assert_eq!(images[0], image(&usual[0]));
    assert!(images[1..].iter().any(|other| *other != images[0]), "four times the same crop and flip");
}

#[test]
fn each_epoch_has_the_list_that_it_is_given() {
    let base = loader(|b| b.batch_size(4).last_batch(LastBatch::Partial));
    let lists: [&[u64]; 3] = [&[1, 2, 3, 4, 5], &[9], &[0, 0, 7, 8, 8, 8, 6, 5, 4]];
    // Streams of all of them run at the same time.
    let streams: Vec<_> =
        (0..).zip(lists).map(|(epoch, of)| base.with_sampler(list(of)).unwrap().epoch(epoch)).collect();
    for (stream, of) in streams.into_iter().zip(lists) {
        assert_eq!(stream.size_hint().1, Some(of.len().div_ceil(4)));
        assert_eq!(records(&drain(stream).unwrap()).concat(), of);
    }
    let batches = drain(base.with_sampler(listed(&[vec![1], vec![2, 3, 4]])).unwrap().epoch(5)).unwrap();
    assert_eq!(records(&batches), [vec![1], vec![2, 3, 4]]);
    assert_eq!(
        records(&drain(base.epoch(0)).unwrap()).concat(),
        (0..RECORDS).collect::<Vec<_>>(),
        "the loader's own order"
    );
}

#[test]
fn a_run_of_lists_goes_on_within_an_epoch_and_behind_it() {
    let base = loader(|b| b.batch_size(4).last_batch(LastBatch::Partial));
    let lists: [&[u64]; 2] = [&[1, 2, 3, 4, 5, 6], &[9, 8, 7, 6, 5, 4, 3, 2, 1]];
    let of = |epoch: u64| base.with_sampler(list(lists[epoch as usize])).unwrap();
    let all: Vec<Batch> = (0..2).flat_map(|epoch| drain(of(epoch).epoch(epoch)).unwrap()).collect();
    for (cut, batch) in all[..all.len() - 1].iter().enumerate() {
        let state = batch.state();
        let mut rest = Vec::new();
        for epoch in state.epoch..2 {
            let there = of(epoch);
            let state = if epoch == state.epoch { state.clone() } else { there.state_before(epoch) };
            let state = state.for_order(&there.state_before(epoch)).unwrap();
            rest.extend(drain(there.resume_epoch(&state).unwrap()).unwrap());
        }
        assert_eq!(plains(&rest), plains(&all[cut + 1..]), "behind batch {cut}");
    }
    // Without being told, a resume takes no other order; within an epoch it takes none in any case.
    let (within, behind) = (all[0].state(), all[1].state());
    assert_eq!(of(1).resume_epoch(behind).unwrap_err().kind(), ErrorKind::State);
    let error = of(1).resume_epoch(&within.for_order(&of(1).state_before(0)).unwrap()).unwrap_err();
    assert!(
        error.to_string().contains("order is a list of 9 records, the state was saved with a list of 6"),
        "{error}"
    );
    // Another list of the same length.
    let other = base.with_sampler(list(&[1, 2, 3, 4, 6, 5])).unwrap();
    let error = other.resume_epoch(within).unwrap_err().to_string();
    assert!(error.contains("order has fingerprint") && error.contains("list it was saved with"), "{error}");
}

/// Positions and batches of whatever lengths it says.
#[derive(Debug)]
struct Odd(u64, Batches);

impl Sampler for Odd {
    fn len(&self) -> u64 {
        self.0
    }
    fn records(&self) -> u64 {
        RECORDS
    }
    fn record(&self, _epoch: u64, position: u64) -> u64 {
        position
    }
    fn position(&self, _epoch: u64, record: u64) -> Option<u64> {
        Some(record)
    }
    fn batches(&self) -> Option<&Batches> {
        Some(&self.1)
    }
    fn describe(&self) -> String {
        "odd".into()
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("odd").finish()
    }
}

#[test]
fn lists_that_can_not_be_are_refused_when_they_are_given() {
    let base = loader(|b| b.batch_size(3));
    let too_long: Arc<dyn Sampler> = Arc::new(Odd(6, Batches::new([3, 4]).unwrap()));
    let cases: [(Arc<dyn Sampler>, ErrorKind, &str); 5] = [
        (
            listed(&[vec![1], vec![2, 3, 4, 5]]),
            ErrorKind::Config,
            "batch 1 of the sampler has 4 rows, batch_size is 3; set batch_size to 4",
        ),
        (too_long, ErrorKind::Config, "the sampler's batches have 7 rows, its epoch 6"),
        (
            Arc::new(ListSampler::new(9, [1, 2, 3]).unwrap()),
            ErrorKind::Config,
            "draws from 9 records, the dataset has 50",
        ),
        (list(&[1, 2]), ErrorKind::Empty, "2 records do not fill one batch of 3"),
        (listed(&[]), ErrorKind::Empty, "use a sampler that draws records"),
    ];
    for (sampler, kind, words) in cases {
        let built = builder(pictures()).batch_size(3).sampler(Arc::clone(&sampler)).build_blocking();
        for error in [base.with_sampler(sampler).unwrap_err(), built.unwrap_err()] {
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let shared = loader(|b| b.batch_size(3).shard(Shard::new(1, 4).unwrap()));
    let error = shared.with_sampler(listed(&[vec![1, 2]])).unwrap_err();
    assert!(error.to_string().contains("lists its batches, which 4 ranks can't share"), "{error}");
    // Even ones they can.
    let even = shared.with_sampler(list(&(0..24).collect::<Vec<_>>())).unwrap();
    assert_eq!(records(&drain(even.epoch(0)).unwrap()), [[1, 5, 9], [13, 17, 21]]);
}

#[test]
fn listed_batches_are_read_from_a_store_too() -> Result<()> {
    let (dataset, tracker) = Records::remote(RECORDS);
    let batches_of = [vec![3, 3, 40], vec![7], vec![40, 1, 0, 2, 9], vec![8, 8]];
    let loader = builder(dataset).batch_size(5).sampler(listed(&batches_of)).build_blocking()?;
    let batches = drain(loader.epochs(0..2))?;
    assert_eq!(records(&batches), [&batches_of[..], &batches_of].concat());
    for batch in &batches {
        let rows = batch["bytes"].bytes().expect("host memory").chunks(batch["bytes"].row_bytes());
        assert_eq!(rows.map(record_of).collect::<Vec<_>>(), batch.records());
    }
    assert!(tracker.requests() > 0);
    Ok(())
}
