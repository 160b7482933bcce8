//! Bad input: one clear error and the end, or the policy that was asked for; never a hang, never a loss.

use std::sync::Arc;

use infeed::{
    Batch, ErrorKind, LastBatch, Loader, LoaderBuilder, OnBadSample, Result,
    dataset::{Dataset, Fingerprint},
    sampler::{ListSampler, Sampler, Shard},
    spi::{Class, Decoder, Finished, Job, Lowered, Wait, Worker},
};

use crate::support::{
    builder,
    clock::Clockwork,
    drain, plain,
    records::{LEN, Obedient, Records, Told, name, record_of},
    store::Fault,
};

/// 50 records, batches of 10, a decoder that fails at these.
fn failing(bad: &'static [u64], settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let script = move |record: u64, _: usize| if bad.contains(&record) { Told::Fail } else { Told::Done };
    let builder = builder(Records::resident(50)).batch_size(10).decoder(Arc::new(Obedient::new(script)));
    settings(builder).build_blocking().unwrap()
}

fn rows(batch: &Batch) -> Vec<u64> {
    batch["bytes"].bytes().unwrap().chunks(LEN).map(record_of).collect()
}

#[test]
fn an_error_comes_once_in_its_place_and_then_the_end() {
    let mut batches = failing(&[23, 27, 41], |b| b).epoch(0).blocking();
    for _ in 0..2 {
        batches.next().unwrap().unwrap();
    }
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.to_string(), "decode: told to fail (record 23, 000023.bin)", "the first bad row of the batch");
    assert!(batches.next().is_none());
}

#[test]
fn substitute_takes_the_nearest_good_row_of_the_batch() {
    let loader = failing(&[10, 15, 16, 49], |b| b.on_bad_sample(OnBadSample::Substitute));
    let stream = loader.epoch(0);
    let batches = drain(stream).unwrap();
    assert_eq!(rows(&batches[1]), [11, 11, 12, 13, 14, 14, 17, 17, 18, 19]);
    assert_eq!(batches[1].records(), [11, 11, 12, 13, 14, 14, 17, 17, 18, 19]);
    assert_eq!(batches[1]["label"].as_slice::<i64>().unwrap()[0], 11);
    assert_eq!(batches[4].records()[9], 48);
    assert!(batches.iter().all(|batch| batch.valid() == 10));
    let bad: Vec<u64> = batches.iter().flat_map(|batch| batch.bad_samples()).map(|bad| bad.record).collect();
    assert_eq!(bad, [10, 15, 16, 49]);
    assert_eq!(batches[4].state().bad_samples, 4);
}

#[test]
fn skip_yields_samples_alone() {
    let loader = failing(&[10, 15, 16, 49], |b| b.on_bad_sample(OnBadSample::Skip { at_most: 4 }));
    let mut batches = loader.epoch(0).blocking();
    let all: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
    assert_eq!(all.iter().map(Batch::len).collect::<Vec<_>>(), [10, 7, 10, 10, 9]);
    for batch in &all {
        let labels: Vec<i64> = batch.records().iter().map(|record| *record as i64).collect();
        assert_eq!((batch.valid(), batch.positions().len()), (batch.len(), batch.len()));
        assert_eq!((batch["bytes"].shape(), batch["label"].shape()), (&[batch.len(), LEN][..], &[batch.len()][..]));
        assert_eq!((rows(batch), batch["label"].to_vec::<i64>()), (batch.records().to_vec(), Some(labels)));
    }
    assert_eq!(all[1].records(), [19, 11, 12, 13, 14, 18, 17]);
    assert_eq!((all[1].bad_samples().len(), all[4].state().bad_samples), (3, 4));
    let report = batches.report();
    assert_eq!((report.samples, report.bad_sample_count), (46, 4));
}

#[test]
fn skip_leaves_copies_that_pad_a_batch_behind_the_samples() {
    // 50 records by 16: the last batch has 48, 49, and copies of 0 to 13.
    let settings = |b: LoaderBuilder| b.batch_size(16).last_batch(LastBatch::Pad);
    let loader = failing(&[3, 48], |b| settings(b).on_bad_sample(OnBadSample::Skip { at_most: 9 }));
    let last = drain(loader.epoch(0)).unwrap().pop().unwrap();
    assert_eq!((last.len(), last.valid()), (14, 1));
    assert_eq!(last.records(), [49, 13, 0, 1, 2, 12, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(rows(&last), last.records());
    let loader = failing(&[3, 48], |b| settings(b).on_bad_sample(OnBadSample::SkipPadded { at_most: 9 }));
    let last = drain(loader.epoch(0)).unwrap().pop().unwrap();
    assert_eq!((last.len(), last.valid(), last.records()), (16, 1, &[49][..]));
    assert_eq!(rows(&last)[1..], [0; 15]);
}

#[test]
fn a_resume_behind_skipped_samples_gives_what_was_left() {
    for policy in [OnBadSample::Skip { at_most: 10 }, OnBadSample::SkipPadded { at_most: 10 }] {
        let loader = failing(&[10, 15, 16, 33, 49], |b| b.shuffle(3).on_bad_sample(policy));
        let whole = drain(loader.epochs(0..2)).unwrap();
        for (at, batch) in whole.iter().enumerate() {
            let rest = drain(loader.resume_epochs(batch.state(), ..2).unwrap()).unwrap();
            assert_eq!(
                rest.iter().map(plain).collect::<Vec<_>>(),
                whole[at + 1..].iter().map(plain).collect::<Vec<_>>()
            );
            assert!(rest.last().is_none_or(|last| last.state() == whole[9].state()));
        }
    }
}

#[test]
fn skip_padded_keeps_the_shape_and_counts_the_real_rows() {
    let loader = failing(&[10, 15, 16, 49], |b| b.on_bad_sample(OnBadSample::SkipPadded { at_most: 4 }));
    let mut batches = loader.epoch(0).blocking();
    let all: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
    let second = &all[1];
    assert_eq!((second.len(), second.valid()), (10, 7));
    assert_eq!(second.records(), [19, 11, 12, 13, 14, 18, 17]);
    assert_eq!(rows(second), [19, 11, 12, 13, 14, 18, 17, 0, 0, 0], "rows behind the samples are zeros");
    let report = batches.report();
    assert_eq!((report.samples, report.bad_sample_count), (46, 4));
    assert_eq!(report.bad_samples[0].object.as_deref(), Some("000010.bin"));
    assert!(report.bad_samples[0].error.contains("told to fail"));
}

#[test]
fn skip_ends_the_run_when_there_are_too_many() {
    for policy in [OnBadSample::Skip { at_most: 2 }, OnBadSample::SkipPadded { at_most: 2 }] {
        let loader = failing(&[10, 15, 16, 49], |b| b.on_bad_sample(policy));
        let results: Vec<_> = loader.epoch(0).blocking().collect();
        assert_eq!(results.len(), 2);
        let error = results[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("3 bad samples, at most 2") && error.contains("record 16"), "{error}");
    }
}

#[test]
fn the_count_of_bad_samples_goes_on_after_a_resume() {
    let skip = |at_most| failing(&[3, 13, 23], |b| b.on_bad_sample(OnBadSample::Skip { at_most }));
    let first = skip(2).epoch(0).blocking().nth(1).unwrap().unwrap();
    assert_eq!(first.state().bad_samples, 2);
    let mut rest = skip(2).resume_epoch(first.state()).unwrap().blocking();
    assert!(rest.next().unwrap().is_err(), "the third bad sample is one too many, resumed or not");
    assert_eq!(skip(3).resume_epoch(first.state()).unwrap().blocking().filter_map(Result::ok).count(), 3);
}

/// 7 records in batches of 3, of which one is bad, in the order of a seed.
fn seven(bad: u64, seed: u64, policy: OnBadSample) -> Loader {
    let script = move |record: u64, _: usize| if record == bad { Told::Fail } else { Told::Done };
    let builder = builder(Records::resident(7)).batch_size(3).last_batch(LastBatch::Partial).shuffle(seed);
    builder.decoder(Arc::new(Obedient::new(script))).on_bad_sample(policy).build_blocking().unwrap()
}

#[test]
fn a_bad_sample_alone_in_the_last_batch_follows_the_policy() {
    for (seed, bad) in (0..10).flat_map(|seed| (0..7).map(move |bad| (seed, bad))) {
        let [skip, padded] = [OnBadSample::Skip { at_most: 3 }, OnBadSample::SkipPadded { at_most: 3 }];
        for policy in [skip, padded, OnBadSample::Substitute] {
            let loader = seven(bad, seed, policy);
            let mut stream = loader.epochs(0..3).blocking();
            let whole: Vec<Batch> = stream.by_ref().map(Result::unwrap).collect();
            assert_eq!(stream.report().bad_sample_count, 3, "{policy:?}, seed {seed}, record {bad}");
            for epoch in 0..3 {
                let batches = whole.iter().filter(|batch| batch.epoch() == epoch);
                let mut records: Vec<u64> = batches.flat_map(|batch| batch.records().to_vec()).collect();
                records.sort_unstable();
                records.dedup();
                assert_eq!(records, (0..7).filter(|record| *record != bad).collect::<Vec<_>>());
            }
            for (at, batch) in whole.iter().enumerate() {
                assert!(!batch.is_empty());
                let rest = drain(loader.resume_epochs(batch.state(), ..3).unwrap()).unwrap();
                let [rest, want] = [&rest, &whole[at + 1..]].map(|some| some.iter().map(plain).collect::<Vec<_>>());
                assert_eq!(rest, want);
            }
        }
        let ends = |loader: Loader| loader.epochs(0..3).blocking().find_map(Result::err).map(|error| error.kind());
        let limit = OnBadSample::Skip { at_most: 2 };
        assert_eq!(ends(seven(bad, seed, limit)), Some(ErrorKind::Corrupt), "the limit counts it");
    }
    // Others may count their steps by it.
    let loader = seven(6, 0, OnBadSample::Skip { at_most: 3 });
    let own = loader.with_sampler(Arc::new(ListSampler::new(7, (0..7).collect::<Vec<u64>>()).unwrap())).unwrap();
    assert!(own.epoch(0).blocking().nth(2).unwrap().is_err());
}

#[test]
fn a_batch_without_a_good_row_is_an_error_unless_it_may_be_padded() {
    let loader = failing(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], |b| b.on_bad_sample(OnBadSample::Substitute));
    assert!(loader.epoch(0).blocking().next().unwrap().is_err());
    let loader = failing(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], |b| b.on_bad_sample(OnBadSample::Skip { at_most: 10 }));
    let mut batches = loader.epoch(0).blocking();
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "corrupt: all 10 samples of a batch are bad (record 0, 000000.bin); repair the data, use a larger batch_size, or \
         set on_bad_sample(SkipPadded), which hands over rows of zeros: decode: told to fail (record 0, 000000.bin)"
    );
    assert!(batches.next().is_none());
    let loader = failing(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], |b| b.on_bad_sample(OnBadSample::SkipPadded { at_most: 10 }));
    let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
    assert_eq!((batch.valid(), batch.len(), batch.records().len()), (0, 10, 0));
}

#[test]
fn an_object_that_cannot_be_read_follows_the_policy_and_is_counted_apart() {
    for fault in [Fault::NotFound, Fault::Denied] {
        for (dataset, tracker) in [Records::remote(50), Records::inline(50)] {
            tracker.fail(&name(12), fault.clone());
            tracker.replace(&name(31), [&b"BAD"[..], &[0; LEN - 3]].concat());
            let build = |policy| builder(Arc::clone(&dataset)).batch_size(10).on_bad_sample(policy);
            let mut batches = build(OnBadSample::Skip { at_most: 2 }).build_blocking().unwrap().epoch(0).blocking();
            let all: Vec<Batch> = batches.by_ref().map(Result::unwrap).collect();
            assert_eq!(all.iter().map(Batch::len).collect::<Vec<_>>(), [10, 9, 10, 9, 10]);
            let report = batches.report();
            assert_eq!((report.bad_sample_count, report.unreadable_count), (2, 1));
            let told: Vec<_> = report.bad_samples.iter().map(|bad| (bad.record, bad.unreadable)).collect();
            assert_eq!(told, [(12, true), (31, false)]);
            assert_eq!(report.bad_samples[0].object.as_deref(), Some("tracked://store/000012.bin"));
            assert_eq!(all[4].state().bad_samples, 2);

            // As before, by default.
            let results: Vec<_> = build(OnBadSample::Stop).build_blocking().unwrap().epoch(0).blocking().collect();
            assert_eq!(results.len(), 2);
            let error = results[1].as_ref().unwrap_err();
            let kind = if fault == Fault::NotFound { ErrorKind::NotFound } else { ErrorKind::Denied };
            assert_eq!((error.kind(), error.context().record), (kind, Some(12)), "{error}");
            assert!(error.is_unreadable() && error.to_string().contains("000012.bin"), "{error}");
        }
    }
}

#[test]
fn a_store_that_does_not_answer_is_no_bad_sample() {
    // It is waited for as long as the patience says.
    let clock = Clockwork::new();
    for (dataset, tracker) in [Records::remote(50), Records::inline(50)] {
        for fault in [Fault::Io("the network is down"), Fault::Answer(500), Fault::Answer(401)] {
            tracker.fail(&name(12), fault.clone());
            let skips = builder(Arc::clone(&dataset)).batch_size(10).on_bad_sample(OnBadSample::Skip { at_most: 50 });
            let results: Vec<_> = skips.io_runtime(&clock.io).build_blocking().unwrap().epoch(0).blocking().collect();
            assert_eq!(results.len(), 2, "{fault:?}");
            let error = results[1].as_ref().unwrap_err();
            assert!(
                error.kind() == ErrorKind::Io && !error.is_unreadable() && !error.is_sample(),
                "{fault:?}: {error}"
            );
            tracker.heal(&name(12));
        }
    }
}

#[test]
fn a_disk_that_is_gone_is_no_heap_of_bad_samples() {
    let (count, gone_from) = (10_000, 3000);
    for (dataset, tracker) in [Records::remote(count), Records::inline(count)] {
        (gone_from..count).for_each(|record| tracker.fail(&name(record), Fault::NotFound));
        let loader = |policy, most: Option<u64>| {
            let builder = builder(Arc::clone(&dataset)).batch_size(10).on_bad_sample(policy);
            most.into_iter().fold(builder, LoaderBuilder::max_unreadable).build_blocking().unwrap()
        };
        let padded = OnBadSample::SkipPadded { at_most: u64::MAX };
        // Batches until the end, and the end: one in a hundred of some 3,000, or what was set.
        for (most, whole) in [(None, 303), (Some(0), 300), (Some(25), 302)] {
            let mut batches = loader(padded, most).epoch(0).blocking();
            let good = batches.by_ref().take_while(Result::is_ok).count();
            assert_eq!(good, whole, "{most:?}");
            assert!(batches.next().is_none());
            let report = batches.report();
            assert_eq!(report.unreadable_count, (whole as u64 - 300 + 1) * 10);
        }
        let end = loader(padded, Some(9)).epoch(0).blocking().find_map(Result::err).unwrap();
        assert_eq!((end.kind(), end.context().record), (ErrorKind::Io, Some(gone_from + 9)));
        let said = end.to_string();
        for words in ["10 of 3010 samples could not be read, at most 9 may", "no such object", "max_unreadable"] {
            assert!(said.contains(words), "{said}: no {words}");
        }
        // Few are few, also at the very beginning: 16.
        let order = (gone_from..gone_from + 16).chain(0..100).collect::<Vec<u64>>();
        let few = infeed::dataset::subset(Arc::clone(&dataset), order).unwrap();
        let loader = builder(few).batch_size(4).on_bad_sample(padded).build_blocking().unwrap();
        assert_eq!(drain(loader.epoch(0)).unwrap().len(), 29);
    }
}

#[test]
fn a_record_that_is_far_too_large_is_a_bad_sample_and_never_read() {
    for (dataset, tracker) in [Records::remote(50), Records::inline(50)] {
        let skips = builder(Arc::clone(&dataset)).batch_size(10).on_bad_sample(OnBadSample::Skip { at_most: 50 });
        // All are too large for this.
        let loader = skips.max_record_bytes(LEN as u64 - 1).build_blocking().unwrap();
        assert_eq!(loader.config().max_record_bytes, Some(LEN as u64 - 1));
        let error = loader.epoch(0).blocking().next().unwrap().unwrap_err();
        let said = format!("{error:#}");
        for words in ["record 0", "64 encoded bytes", "set max_record_bytes to 64"] {
            assert!(said.contains(words), "{said}: no {words}");
        }
        assert_eq!(tracker.requests(), 0);
    }
}

#[test]
fn a_short_answer_is_an_error_and_never_a_short_record() {
    let clock = Clockwork::new();
    for (dataset, tracker) in [Records::remote(50), Records::inline(50)] {
        tracker.fail(&name(3), Fault::Short(17));
        let loader = builder(dataset).batch_size(10).io_runtime(&clock.io).build_blocking().unwrap();
        let error = loader.epoch(0).blocking().next().unwrap().unwrap_err();
        assert_eq!(error.context().record, Some(3), "{error}");
        assert!(error.to_string().contains("17") && error.to_string().contains("64"), "{error}");
    }
}

#[test]
fn a_panicking_decoder_costs_a_batch_and_not_the_process() {
    let script = |record: u64, _: usize| if record == 25 { Told::Panic } else { Told::Done };
    let decoder = Arc::new(Obedient::new(script));
    let loader = builder(Records::resident(50)).batch_size(10).decoder(decoder).build_blocking().unwrap();
    for _ in 0..3 {
        // The threads go on: the second and third epoch find workers too.
        let results: Vec<_> = loader.epoch(0).blocking().collect();
        assert_eq!(results.len(), 3);
        let error = results[2].as_ref().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("panicked"), "{error}");
    }
}

#[test]
fn a_row_that_one_class_gives_back_is_done_by_the_other() {
    // The first class takes only even records, the second only odd ones.
    let script = |record: u64, class: usize| if record % 2 == class as u64 { Told::Done } else { Told::Elsewhere };
    let decoder = Arc::new(Obedient::new(script));
    let loader = builder(Records::resident(50)).batch_size(10).decoder(decoder).build_blocking().unwrap();
    let batches = drain(loader.epoch(0)).unwrap();
    assert_eq!(batches.iter().flat_map(rows).collect::<Vec<_>>(), (0..50).collect::<Vec<u64>>());
}

#[test]
fn a_row_that_no_class_takes_is_a_bad_sample() {
    let script = |record: u64, _: usize| if record == 7 { Told::Elsewhere } else { Told::Done };
    let decoder = Arc::new(Obedient::new(script));
    let builder = builder(Records::resident(50)).batch_size(10).decoder(decoder);
    let loader = builder.on_bad_sample(OnBadSample::Substitute).build_blocking().unwrap();
    let batches = drain(loader.epoch(0)).unwrap();
    assert_eq!(batches[0].records()[7], 6);
    assert_eq!(batches[0].bad_samples()[0].record, 7);
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let dataset: Arc<dyn Dataset> = Records::resident(500);
    let refused = |settings: fn(LoaderBuilder) -> LoaderBuilder| {
        let error = settings(builder(Arc::clone(&dataset))).build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        error.to_string()
    };
    assert_eq!(refused(|b| b.batch_size(0)), "config: batch_size is 0; use 1 or more");
    assert_eq!(refused(|b| b.prefetch(0)), "config: prefetch is 0; use 1 or more");
    assert!(refused(|b| b.workers(0)).contains("workers is 0"));
    assert!(refused(|b| b.io_concurrency(0)).contains("io_concurrency is 0"));
    assert!(refused(|b| b.max_image_bytes(0)).contains("max_image_bytes is 0"));
    assert!(refused(|b| b.max_record_bytes(0)).contains("max_record_bytes is 0"));
    assert!(refused(|b| b.dtype(infeed::DType::I64)).contains("i64"));
    assert!(refused(|b| b.memory_budget(100)).contains("memory_budget"));
    // More than there are, which is no setting that can't be.
    let large = builder(Arc::clone(&dataset)).batch_size(usize::MAX).build_blocking().unwrap_err();
    assert_eq!(large.kind(), ErrorKind::Empty, "{large}");
    assert!(large.to_string().contains("lower batch_size to 500"), "{large}");
    let huge = refused(|b| b.batch_size(usize::MAX).last_batch(LastBatch::Partial).memory_budget(1 << 40));
    assert!(huge.contains("memory_budget"), "{huge}");
    assert_eq!(Shard::new(2, 2).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn the_largest_numbers_are_taken_as_many() {
    let builder = builder(Records::remote(50).0).batch_size(10).prefetch(usize::MAX);
    let loader =
        builder.io_concurrency(usize::MAX).max_image_bytes(u64::MAX >> 8).memory_budget(u64::MAX).build_blocking();
    assert_eq!(drain(loader.unwrap().epoch(0)).unwrap().len(), 5);
}

#[test]
fn an_empty_dataset_is_refused() {
    let error = builder(Records::resident(0)).build_blocking().unwrap_err();
    assert_eq!(error.to_string(), "empty: the dataset has no records; check the path or the subset it was made from");
}

#[test]
fn an_epoch_smaller_than_a_batch_is_refused() {
    let build = |settings: &dyn Fn(LoaderBuilder) -> LoaderBuilder| {
        settings(builder(Records::resident(250)).batch_size(256)).build_blocking()
    };
    let refused = |settings: &dyn Fn(LoaderBuilder) -> LoaderBuilder| {
        let error = build(settings).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
        error.to_string()
    };
    let shard = |world| move |b: LoaderBuilder| b.shard(Shard::new(0, world).unwrap());
    assert_eq!(
        refused(&|b| b),
        "empty: 250 records do not fill one batch of 256; lower batch_size to 250 or less, or set last_batch to partial \
         or pad"
    );
    assert_eq!(
        refused(&|b| shard(4)(b).batch_size(64)),
        "empty: 250 records do not fill one batch of 64 on each of 4 ranks; lower batch_size to 62 or less, or set \
         last_batch to partial or pad"
    );
    assert!(refused(&|b| shard(251)(b).batch_size(1)).contains("use fewer ranks"));
    let steps = |settings: &dyn Fn(LoaderBuilder) -> LoaderBuilder| build(settings).unwrap().batches_per_epoch();
    assert_eq!(steps(&|b| b.batch_size(250)), 1);
    assert_eq!(steps(&|b| shard(4)(b).batch_size(62)), 1);
    for last in [LastBatch::Partial, LastBatch::Pad] {
        assert_eq!(steps(&|b| b.last_batch(last)), 1);
        assert_eq!(steps(&|b| shard(300)(b).last_batch(last)), 1);
    }
}

#[test]
fn a_panicking_sampler_is_an_error_and_no_early_end() {
    #[derive(Debug)]
    struct Broken;
    impl Sampler for Broken {
        fn len(&self) -> u64 {
            50
        }
        fn record(&self, _epoch: u64, position: u64) -> u64 {
            assert!(position < 25, "told to panic at position {position}");
            position
        }
        fn position(&self, _epoch: u64, record: u64) -> Option<u64> {
            Some(record)
        }
        fn describe(&self) -> String {
            "broken".into()
        }
        fn fingerprint(&self) -> Fingerprint {
            Fingerprint::of("broken").finish()
        }
    }
    // What is read over a network ends with the task that planned it, so its batches may be lost too.
    for (dataset, delivered) in [(Records::resident(50), 2..=2), (Records::remote(50).0, 0..=2)] {
        let builder = builder(dataset).sampler(Arc::new(Broken)).batch_size(10);
        let results: Vec<_> = builder.build_blocking().unwrap().epoch(0).blocking().collect();
        let (last, batches) = results.split_last().unwrap();
        assert!(delivered.contains(&batches.len()) && batches.iter().all(Result::is_ok));
        let error = last.as_ref().unwrap_err();
        assert!(error.to_string().contains("planning a batch or putting it together panicked"), "{error}");
    }
}

/// Does what it shall, and calls its jobs otherwise when it gives them back.
#[derive(Debug)]
struct Mislabelling(Obedient);

impl Decoder for Mislabelling {
    fn name(&self) -> &'static str {
        "mislabelling"
    }
    fn classes(&self) -> &[Class] {
        self.0.classes()
    }
    fn scratch_bytes(&self, class: usize) -> u64 {
        self.0.scratch_bytes(class)
    }
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        Ok(Box::new(Relabel(self.0.worker(class, n, programs)?)))
    }
}

struct Relabel(Box<dyn Worker>);

impl Worker for Relabel {
    fn submit(&mut self, job: Job) {
        self.0.submit(job);
    }
    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        let mut finished = self.0.poll(wait);
        finished.iter_mut().for_each(|finished| finished.job.tag = !finished.job.tag);
        finished
    }
}

#[test]
fn a_decoder_that_gives_back_another_job_ends_the_stream() {
    let decoder = Mislabelling(Obedient::new(|_, _| Told::Done));
    let builder = builder(Records::resident(50)).batch_size(10).decoder(Arc::new(decoder));
    let mut batches = builder.build_blocking().unwrap().epoch(0).blocking();
    let error = batches.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(error.to_string().contains("decoder mislabelling gave back a job of the tag"), "{error}");
    assert!(batches.next().is_none());
}
