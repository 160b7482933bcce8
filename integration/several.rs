//! Loaders of several devices in one process: each gives what it would give in a process of its own, they share threads and
//! memory, and none holds up another.
//!
//! Ranks in host memory show it on any machine; on the mock there are four GPUs, which are strict about whose work and
//! memory is whose.

use std::{ops::Range, sync::Arc, thread, time::Duration};

use infeed::{
    Batch, Device, ErrorKind, LastBatch, Loader, LoaderBuilder, LoaderState, Order, Result, Shard, Transform,
    codec::codecs,
    dataset::{Dataset, MemoryDataset},
    loader::Blocking,
    spi::Cpu,
};

use crate::support::{
    PATIENCE, Plain,
    records::{Records, record_of},
};

const CPUS: [Device; 4] = [Device::Cpu; 4];

/// Pictures whose pixels depend on record and place, with labels.
fn pictures(count: usize, height: u32, width: u32) -> Arc<dyn Dataset> {
    let bytes = count * (height * width * 3) as usize;
    let pixels: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 431 * 13) as u8).collect();
    let builder = MemoryDataset::builder().images_u8(pixels, count, height, width, 3, false);
    Arc::new(builder.labels((0..count as i64).collect()).build().unwrap())
}

fn augment() -> Transform {
    Transform::new().random_crop(8, 2).horizontal_flip(0.5).to_float()
}

type Settings<'a> = &'a (dyn Fn(LoaderBuilder) -> LoaderBuilder + Sync);

/// Loaders of one process.
fn together(dataset: &Arc<dyn Dataset>, devices: &[Device], settings: Settings<'_>) -> Vec<Loader> {
    settings(Loader::builder(Arc::clone(dataset))).build_each_blocking(devices.iter().copied()).unwrap()
}

/// The loader of one of as many processes.
fn apart(dataset: &Arc<dyn Dataset>, devices: &[Device], rank: usize, settings: Settings<'_>) -> Loader {
    let shard = Shard::new(rank as u32, devices.len() as u32).unwrap();
    settings(Loader::builder(Arc::clone(dataset))).device(devices[rank]).shard(shard).build_blocking().unwrap()
}

/// A batch's values, wherever it lies, and the state that it carries.
fn plain(batch: &Batch) -> (Plain, LoaderState) {
    let mut bytes = Vec::new();
    for (_, tensor) in batch.fields() {
        bytes.extend_from_slice(tensor.to_host().unwrap().bytes().unwrap());
    }
    let plain = (batch.epoch(), batch.records().to_vec(), batch.positions().to_vec(), batch.valid(), bytes);
    (plain, batch.state().clone())
}

fn drain(batches: Blocking) -> Vec<(Plain, LoaderState)> {
    batches.map(|batch| plain(&batch.unwrap())).collect()
}

/// What trainers get who run at the same time, a thread each.
fn trained<T: Send>(loaders: &[Loader], train: impl Fn(usize, &Loader) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let train = &train;
        let start = |(rank, loader)| scope.spawn(move || train(rank, loader));
        let trainers: Vec<_> = loaders.iter().enumerate().map(start).collect();
        trainers.into_iter().map(|trainer| trainer.join().unwrap()).collect()
    })
}

fn assert_equal(rank: usize, got: &[(Plain, LoaderState)], want: &[(Plain, LoaderState)]) {
    assert_eq!(got.len(), want.len(), "rank {rank}");
    for (step, (got, want)) in got.iter().zip(want).enumerate() {
        let ((epoch, records, positions, valid, bytes), state) = got;
        let ((want_epoch, want_records, want_positions, want_valid, want_bytes), want_state) = want;
        assert_eq!((epoch, records), (want_epoch, want_records), "rank {rank}, step {step}");
        assert_eq!((positions, valid, state), (want_positions, want_valid, want_state), "rank {rank}, step {step}");
        assert!(bytes == want_bytes, "rank {rank}, step {step}: other bytes");
    }
}

/// One process with these devices gives what as many processes give, in two epochs.
fn agree(dataset: &Arc<dyn Dataset>, devices: &[Device], settings: Settings<'_>) {
    let epochs: Range<u64> = 0..2;
    let loaders = together(dataset, devices, settings);
    assert_eq!(loaders.len(), devices.len());
    let got = trained(&loaders, |_, loader| drain(loader.epochs(epochs.clone()).blocking()));
    let mut batches = 0;
    for (rank, got) in got.iter().enumerate() {
        assert_eq!(loaders[rank].config().device, Some(devices[rank]));
        let shard = loaders[rank].config().shard;
        assert_eq!((shard.rank() as usize, shard.world() as usize), (rank, devices.len()));
        let alone = apart(dataset, devices, rank, settings);
        assert_eq!(loaders[rank].batches_per_epoch(), alone.batches_per_epoch());
        assert_equal(rank, got, &drain(alone.epochs(epochs.clone()).blocking()));
        batches += got.len();
    }
    assert!(batches > 0);
}

/// A run on `before` devices that is stopped after `step` batches goes on with `after` devices.
fn resumes(dataset: &Arc<dyn Dataset>, before: &[Device], after: &[Device], step: usize, settings: Settings<'_>) {
    let first = trained(&together(dataset, before, settings), |_, loader| {
        let batches: Vec<_> = loader.epoch(0).blocking().take(step).map(|batch| plain(&batch.unwrap())).collect();
        batches
    });
    let state = first[0][step - 1].1.clone();
    assert!(first.iter().all(|batches| batches[step - 1].1 == state), "all ranks stand at the same place");
    let loaders = together(dataset, after, settings);
    let rest = trained(&loaders, |_, loader| drain(loader.resume_epochs(&state, ..2).unwrap().blocking()));
    for (rank, got) in rest.iter().enumerate() {
        let alone = apart(dataset, after, rank, settings);
        assert_equal(rank, got, &drain(alone.resume_epochs(&state, ..2).unwrap().blocking()));
    }
    let records = |(plain, _): &(Plain, LoaderState)| plain.1[..plain.3].to_vec();
    let in_first_epoch = rest.iter().flatten().filter(|(plain, _)| plain.0 == 0);
    let mut seen: Vec<u64> = first.iter().flatten().chain(in_first_epoch).flat_map(records).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..dataset.len()).collect::<Vec<_>>(), "each record once");
}

fn padded(builder: LoaderBuilder) -> LoaderBuilder {
    builder.batch_size(7).shuffle(5).last_batch(LastBatch::Pad).transform(augment())
}

fn partial(builder: LoaderBuilder) -> LoaderBuilder {
    builder
        .batch_size(6)
        .order(Order::Random { seed: 9 })
        .last_batch(LastBatch::Partial)
        .transform(augment())
        .workers(3)
}

#[test]
fn ranks_of_one_process_get_what_ranks_of_many_get() {
    // 97 records: neither four nor batches of 7 divide them.
    let dataset = pictures(97, 12, 12);
    for settings in [&padded as Settings<'_>, &partial, &|b| b.batch_size(5).prefetch(1).workers(1)] {
        agree(&dataset, &CPUS, settings);
        agree(&dataset, &CPUS[..1], settings);
    }
    let (remote, _) = Records::remote(131);
    agree(&remote, &CPUS, &|b| b.batch_size(4).shuffle(1).last_batch(LastBatch::Partial).io_concurrency(3));
    let (inline, _) = Records::inline(131);
    agree(&inline, &CPUS[..3], &|b| b.batch_size(4).shuffle(1).last_batch(LastBatch::Pad));
}

#[test]
fn a_run_resumes_on_another_number_of_devices() {
    let dataset = pictures(97, 12, 12);
    resumes(&dataset, &CPUS, &CPUS[..2], 2, &partial);
    resumes(&dataset, &CPUS[..2], &CPUS, 5, &partial);
    resumes(&dataset, &CPUS[..1], &CPUS[..3], 4, &partial);
}

#[test]
fn devices_of_several_processes_are_ranks_in_their_order() {
    let dataset = pictures(97, 12, 12);
    let process = Shard::new(1, 3).unwrap().with_local(1, 2).unwrap();
    let builder = partial(Loader::builder(Arc::clone(&dataset))).shard(process);
    let loaders = builder.build_each_blocking([Device::Cpu, Device::Cpu]).unwrap();
    let shards = loaders.iter().map(|loader| {
        let shard = loader.config().shard;
        [shard.rank(), shard.world(), shard.local_rank(), shard.local_world()]
    });
    assert_eq!(shards.collect::<Vec<_>>(), [[2, 6, 2, 4], [3, 6, 3, 4]]);
    for loader in &loaders {
        let rank = loader.config().shard.rank() as usize;
        let alone = apart(&dataset, &[Device::Cpu; 6], rank, &partial);
        assert_equal(rank, &drain(loader.epoch(3).blocking()), &drain(alone.epoch(3).blocking()));
    }
}

#[test]
fn one_budget_and_one_pool_of_threads_serve_all() {
    let dataset = pictures(4000, 16, 16);
    let settings = |b: LoaderBuilder| b.batch_size(50).transform(augment());
    let one = together(&dataset, &CPUS[..1], &settings);
    let four = together(&dataset, &CPUS, &settings);
    let config = |loader: &Loader| {
        let config = loader.config();
        (config.memory_budget.unwrap(), config.workers.unwrap(), config.prefetch.unwrap())
    };
    let (budget, workers, prefetch) = config(&one[0]);
    let all: Vec<_> = four.iter().map(config).collect();
    assert!(all.iter().all(|each| *each == all[0]), "{all:?}");
    assert_eq!((all[0].1, all[0].2), (workers, prefetch));
    // Scratch is there once; so it is far from four budgets.
    assert!(all[0].0 < 2 * budget, "{} and {budget}", all[0].0);
    let small = |b: LoaderBuilder| settings(b).memory_budget(40 << 20).workers(1);
    let given = together(&dataset, &CPUS, &small);
    assert!(given.iter().all(|loader| loader.config().memory_budget == Some(40 << 20)));
    assert_eq!(trained(&given, |_, loader| loader.epoch(0).blocking().map(Result::unwrap).count()), [20; 4]);
}

#[test]
fn a_trainer_that_never_asks_stops_nobody_and_is_read_for_no_further() {
    for requests in [None, Some(2)] {
        for (dataset, tracker) in [Records::inline(400), Records::remote(400)] {
            let settings = |b: LoaderBuilder| {
                let b = b.batch_size(10).prefetch(2).workers(2);
                requests.iter().fold(b, |b, requests| b.io_concurrency(*requests))
            };
            let loaders = together(&dataset, &CPUS, &settings);
            let idle = loaders[1].epochs(0..50);
            let others = [0, 2, 3].map(|rank| loaders[rank].clone());
            let got = trained(&others, |_, loader| drain(loader.epochs(0..3).blocking()));
            assert!(got.iter().all(|batches| batches.len() == 30));
            if !dataset.needs_fetch() {
                assert!(tracker.wait_for_requests(3 * 300 + 20, PATIENCE), "{}", tracker.requests());
                // What else there was to do has been done when another epoch has come to its end.
                trained(&others, |_, loader| drain(loader.epoch(3).blocking()));
                assert_eq!(tracker.requests(), 4 * 300 + 20, "two batches ahead of nobody");
            }
            assert!(tracker.most_in_flight() <= requests.unwrap_or(usize::MAX));
            let batches: Vec<Batch> = idle.blocking().take(12).map(Result::unwrap).collect();
            let records = batches.iter().flat_map(|batch| batch["bytes"].bytes().unwrap().chunks(64).map(record_of));
            assert!(records.eq(batches.iter().flat_map(|batch| batch.records().to_vec())));
        }
    }
}

#[test]
fn trainers_of_any_pace_get_their_own_rows() {
    let dataset = pictures(97, 12, 12);
    let loaders = together(&dataset, &CPUS, &partial);
    let got = trained(&loaders, |rank, loader| {
        let train = |batch: Result<Batch>| {
            thread::sleep(Duration::from_millis([0, 9, 1, 4][rank]));
            plain(&batch.unwrap())
        };
        loader.epochs(0..3).blocking().map(train).collect::<Vec<_>>()
    });
    for (rank, got) in got.iter().enumerate() {
        assert_equal(rank, got, &drain(apart(&dataset, &CPUS, rank, &partial).epochs(0..3).blocking()));
    }
}

#[test]
fn one_loader_may_go_while_the_others_go_on() {
    let dataset = pictures(97, 12, 12);
    let mut loaders = together(&dataset, &CPUS, &partial);
    let mut streams: Vec<Blocking> = loaders.iter().map(|loader| loader.epochs(0..2).blocking()).collect();
    let heads: Vec<_> = streams.iter_mut().map(|stream| plain(&stream.next().unwrap().unwrap())).collect();
    drop((loaders.remove(1), streams.remove(1)));
    for (rank, stream) in [0, 2, 3].into_iter().zip(streams) {
        let got: Vec<_> = [heads[rank].clone()].into_iter().chain(drain(stream)).collect();
        assert_equal(rank, &got, &drain(apart(&dataset, &CPUS, rank, &partial).epochs(0..2).blocking()));
    }
    // A stream holds what it needs.
    let last = loaders.pop().unwrap().epoch(7);
    drop(loaders);
    assert_equal(3, &drain(last.blocking()), &drain(apart(&dataset, &CPUS, 3, &partial).epoch(7).blocking()));
}

#[tokio::test]
async fn they_are_built_and_polled_on_any_runtime() {
    use futures::StreamExt;
    let loaders = partial(Loader::builder(pictures(97, 12, 12))).build_each(CPUS).await.unwrap();
    let streams = loaders.iter().map(|loader| loader.epoch(0).map(|batch| batch.unwrap().len()));
    let samples: usize = futures::stream::select_all(streams.map(Box::pin)).collect::<Vec<_>>().await.iter().sum();
    assert_eq!(samples, 97);
}

#[test]
fn what_can_not_be_served_is_refused() {
    let dataset = pictures(20, 12, 12);
    let builder = || Loader::builder(Arc::clone(&dataset)).batch_size(2).transform(augment());
    let error = builder().build_each_blocking([]).unwrap_err();
    assert_eq!((error.kind(), error.to_string().contains("no devices")), (ErrorKind::Config, true), "{error}");
    let error = builder().batch_size(6).build_each_blocking(CPUS).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("on each of 4 ranks"), "{error}");
    let own = || Arc::new(Cpu::new(std::num::NonZeroUsize::MIN, codecs(), 1 << 20));
    let error = builder().decoder(own()).build_each_blocking([Device::Cpu, Device::Cuda(0)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("decoder cpu makes rows on cpu, device is cuda:0"), "{error}");
    let loaders = builder().decoder(own()).build_each_blocking(CPUS).unwrap();
    assert_eq!(trained(&loaders, |_, loader| loader.epoch(0).blocking().map(Result::unwrap).count()), [2; 4]);
}

#[cfg(target_os = "linux")]
mod gpus {
    use std::io::Write;

    use futures::{FutureExt, executor::block_on};
    use infeed::{OnBadSample, internal::process, open};

    use super::*;
    use crate::{
        nvjpeg,
        support::mock::{Mock, on_mock},
    };

    const GPUS: [Device; 4] = [Device::Cuda(0), Device::Cuda(1), Device::Cuda(2), Device::Cuda(3)];
    const FOUR: (&str, &str) = ("INFEED_MOCK_DEVICES", "4");

    /// JPEGs for engines, for hybrid and for the CPU, in a tar.
    fn photos(dir: &std::path::Path) -> Arc<dyn Dataset> {
        let mut files = nvjpeg::ordinary(90);
        nvjpeg::odd().into_iter().enumerate().for_each(|(n, file)| files.insert(n * 9, file));
        let mut tar = tar::Builder::new(Vec::new());
        for (n, file) in files.iter().enumerate() {
            for (name, bytes) in [(format!("{n:04}.jpg"), &file[..]), (format!("{n:04}.cls"), n.to_string().as_bytes())]
            {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                tar.append_data(&mut header, name, bytes).unwrap();
            }
        }
        let path = dir.join("photos.tar");
        std::fs::File::create(&path).unwrap().write_all(&tar.into_inner().unwrap()).unwrap();
        block_on(open(path.display().to_string()).into_future()).unwrap()
    }

    fn crops(builder: LoaderBuilder) -> LoaderBuilder {
        let transform = Transform::new().random_resized_crop(24).horizontal_flip(0.5);
        let builder = builder.batch_size(6).shuffle(3).last_batch(LastBatch::Partial).transform(transform);
        builder.codec(nvjpeg::AsPixels::for_all()).workers(3).streams(1)
    }

    #[test]
    fn four_gpus_of_one_process_get_what_four_processes_get() {
        for seed in ["0", "11"] {
            let env = [FOUR, ("INFEED_MOCK_SEED", seed)];
            on_mock("several::gpus::four_gpus_of_one_process_get_what_four_processes_get", &env, |mock| {
                mock.register_decoder();
                let dataset = pictures(97, 12, 12);
                agree(&dataset, &GPUS, &padded);
                agree(&dataset, &[GPUS[2], GPUS[0], GPUS[2]], &partial);
                agree(&dataset, &[GPUS[1], Device::Cpu, GPUS[0], Device::Cpu], &partial);
                resumes(&dataset, &GPUS, &GPUS[1..3], 2, &partial);
                agree(&Records::remote(131).0, &GPUS, &|b| b.batch_size(4).shuffle(1).last_batch(LastBatch::Pad));
            });
        }
    }

    #[test]
    fn jpegs_are_shared_by_the_engines_of_all_gpus_and_one_pool_of_threads() {
        for seed in ["0", "5"] {
            let env = [FOUR, ("INFEED_MOCK_SEED", seed)];
            let test = "several::gpus::jpegs_are_shared_by_the_engines_of_all_gpus_and_one_pool_of_threads";
            on_mock(test, &env, |mock| {
                mock.register_decoder();
                let dir = tempfile::tempdir().unwrap();
                let dataset = photos(dir.path());
                agree(&dataset, &GPUS, &crops);
                agree(&dataset, &GPUS[..2], &|b| {
                    crops(b).last_batch(LastBatch::Pad).on_bad_sample(OnBadSample::Substitute)
                });
                resumes(&dataset, &GPUS, &GPUS[2..], 2, &crops);
                let decoded = mock.counts();
                assert!(
                    decoded.calls("nvjpegDecodeBatched") + decoded.calls("nvjpegDecodeBatchedEx") > 0,
                    "{decoded:?}"
                );
                assert!(decoded.calls("nvjpegDecodeJpegHost") > 0, "{decoded:?}");
            });
        }
    }

    /// How many threads of ours there are, by the name of their class.
    fn threads(class: &str) -> usize {
        process::threads().iter().filter(|thread| thread.name.starts_with(class)).count()
    }

    /// How the system schedules a thread: 0 as usual, 3 as one that does long work and gives way.
    fn policy(thread: u64) -> u32 {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // The 41st field; the second, the name, ends with the last parenthesis.
        let after_name = text.rsplit_once(')').unwrap().1;
        after_name.split_whitespace().nth(38).unwrap().parse().unwrap()
    }

    #[test]
    fn threads_that_read_give_way_and_leave_two_cores_where_there_are_engines() {
        let test = "several::gpus::threads_that_read_give_way_and_leave_two_cores_where_there_are_engines";
        on_mock(test, &[], |mock| {
            mock.register_decoder();
            let cores = thread::available_parallelism().unwrap().get();
            let dir = tempfile::tempdir().unwrap();
            let build = |dataset: &Arc<dyn Dataset>| {
                let builder = Loader::builder(Arc::clone(dataset)).batch_size(6).transform(augment());
                builder.device(GPUS[0]).build_blocking().unwrap()
            };
            let with_engines = build(&photos(dir.path()));
            assert_eq!(with_engines.config().workers, Some(cores.saturating_sub(2).max(1)));
            let of_class = |class: &str| -> Vec<u32> {
                let threads = process::threads().into_iter().filter(|thread| thread.name.starts_with(class));
                threads.map(|thread| policy(thread.id)).collect()
            };
            assert_eq!(of_class("infeed-cpu-"), vec![3; cores.saturating_sub(2).max(1)]);
            let engines = [of_class("infeed-har"), of_class("infeed-hyb")].concat();
            assert!(engines.len() >= 2 && engines.iter().all(|policy| *policy == 0), "{engines:?}");
            assert_eq!(build(&pictures(97, 12, 12)).config().workers, Some(cores), "pixels take no engines");
        });
    }

    #[test]
    fn threads_are_those_of_one_loader_and_end_with_the_last() {
        let test = "several::gpus::threads_are_those_of_one_loader_and_end_with_the_last";
        on_mock(test, &[FOUR], |mock| {
            mock.register_decoder();
            let dir = tempfile::tempdir().unwrap();
            let dataset = photos(dir.path());
            let mut loaders = together(&dataset, &GPUS, &crops);
            assert_eq!(
                (threads("infeed-cpu-"), threads("infeed-har"), threads("infeed-hyb")),
                (3, 8, 4),
                "two for seven engines"
            );
            for index in 0..4 {
                assert_eq!((threads(&format!("infeed-har{index}-")), threads(&format!("infeed-hyb{index}-"))), (2, 1));
            }
            let mut stream = loaders.pop().unwrap().epoch(0).blocking();
            drop(loaders);
            assert!(stream.next().unwrap().is_ok());
            assert_eq!((threads("infeed-cpu-"), threads("infeed-io")), (3, 1));
            assert_eq!(drain(stream).len(), 4);
            let ended = (0..PATIENCE.as_millis()).any(|_| {
                thread::sleep(Duration::from_millis(1));
                threads("infeed-") == 0
            });
            assert!(ended, "{:?}", process::threads());
        });
    }

    #[test]
    fn a_trainer_that_never_asks_takes_its_own_gpus_memory_and_no_more() {
        let test = "several::gpus::a_trainer_that_never_asks_takes_its_own_gpus_memory_and_no_more";
        on_mock(test, &[FOUR], |mock| {
            let dataset = pictures(800, 12, 12);
            let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).prefetch(3).workers(2);
            let loaders = together(&dataset, &GPUS, &settings);
            let mut idle = loaders[2].epochs(0..9).blocking();
            let others = [0, 1, 3].map(|rank| loaders[rank].clone());
            assert_eq!(trained(&others, |_, loader| drain(loader.epochs(0..3).blocking()).len()), [60; 3]);
            for (rank, loader) in loaders.iter().enumerate() {
                let most = mock.counts().total(&format!("device_bytes_most cuda:{rank}")) as u64;
                // The channel tables of each thread, tens of bytes, are not counted.
                let budget = loader.config().device_budget.unwrap() + (4 << 10);
                assert!(most > 0 && most <= budget, "cuda:{rank}: {most} of {budget}");
            }
            assert_eq!(idle.by_ref().take(30).map(Result::unwrap).count(), 30);
        });
    }

    #[test]
    fn a_gpu_with_less_memory_sets_the_pace_of_all() {
        on_mock("several::gpus::a_gpu_with_less_memory_sets_the_pace_of_all", &[FOUR], |_| {
            let dataset = pictures(800, 12, 12);
            let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).workers(1);
            // Two ranks on one GPU: half as much for each.
            let crowded = |b: LoaderBuilder| settings(b).device_budget(7 << 20);
            let apart = together(&dataset, &GPUS[..2], &crowded);
            let shared = together(&dataset, &[GPUS[0], GPUS[1], GPUS[1]], &|b| crowded(b).batch_size(1000 / 40));
            let prefetch = |loaders: &[Loader]| -> Vec<_> {
                loaders.iter().map(|loader| loader.config().prefetch.unwrap()).collect()
            };
            assert_eq!(prefetch(&apart)[0], prefetch(&apart)[1]);
            assert!(prefetch(&shared).iter().all(|ahead| *ahead == prefetch(&shared)[0]));
            let error = settings(Loader::builder(Arc::clone(&dataset)))
                .device_budget(1 << 20)
                .build_each_blocking([GPUS[0], GPUS[3]])
                .unwrap_err();
            assert!(error.to_string().contains("cuda:0"), "{error}");
            let error = settings(Loader::builder(dataset)).build_each_blocking([GPUS[0], Device::Cuda(4)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.to_string().contains("no cuda:4: this machine has 4 GPUs"), "{error}");
        });
    }

    #[test]
    fn a_gpu_that_can_not_be_opened_is_named() {
        for (call, code) in [("cuDevicePrimaryCtxRetain:3", "46"), ("cuStreamCreateWithPriority:3", "999")] {
            let fail = format!("{call}:{code}");
            let env = [FOUR, ("INFEED_MOCK_FAIL", fail.as_str())];
            on_mock("several::gpus::a_gpu_that_can_not_be_opened_is_named", &env, |_| {
                let builder = padded(Loader::builder(pictures(97, 12, 12))).workers(1);
                let error = builder.build_each_blocking(GPUS).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Device, "{error:#}");
                assert!(error.to_string().contains("cuda:"), "{error:#}");
            });
        }
    }

    /// GPU 2 fails after so many calls; the others go on to their end.
    fn lose_one(mock: &Mock, dataset: &Arc<dyn Dataset>, settings: Settings<'_>, calls: i32) {
        // What is alive on a GPU that is lost can't be freed.
        mock.allow_leaks();
        let want: Vec<_> =
            [0, 1, 3].map(|rank| (rank, drain(apart(dataset, &GPUS, rank, settings).epochs(0..4).blocking()))).into();
        let loaders = together(dataset, &GPUS, settings);
        mock.lose_device_of(2, calls);
        let got = trained(&loaders, |rank, loader| {
            if rank != 2 {
                return (drain(loader.epochs(0..4).blocking()), None);
            }
            let mut batches = loader.epochs(0..100_000).blocking();
            let error = batches.find_map(Result::err);
            assert!(batches.next().is_none(), "an error is the last that comes");
            (Vec::new(), error)
        });
        let error = got[2].1.as_ref().expect("no batch can be made on a lost GPU");
        assert_eq!(error.kind(), ErrorKind::Device, "{error:#}");
        assert_eq!(error.context().object.as_deref(), Some("cuda:2"), "{error:#}");
        assert!(error.to_string().contains("cuda:2"), "{error}");
        want.iter().for_each(|(rank, want)| assert_equal(*rank, &got[*rank].0, want));
        // A stream that is begun now ends at once, too.
        let error = loaders[2].epoch(0).blocking().find_map(Result::err).expect("it is still lost");
        assert_eq!(error.context().object.as_deref(), Some("cuda:2"), "{error:#}");
    }

    #[test]
    fn a_lost_gpu_names_itself_and_the_others_go_on() {
        for calls in ["0", "30", "75", "200"] {
            let env = [FOUR, ("INFEED_TEST_CALLS", calls)];
            on_mock("several::gpus::a_lost_gpu_names_itself_and_the_others_go_on", &env, |mock| {
                mock.register_decoder();
                let calls = std::env::var("INFEED_TEST_CALLS").unwrap().parse().unwrap();
                let skip = OnBadSample::Skip { at_most: u64::MAX };
                lose_one(mock, &pictures(397, 12, 12), &|b| partial(b).on_bad_sample(skip), calls);
            });
        }
    }

    #[test]
    fn a_lost_gpu_with_engines_names_itself_and_the_others_go_on() {
        for calls in ["0", "50", "160", "400"] {
            let env = [FOUR, ("INFEED_TEST_CALLS", calls)];
            on_mock("several::gpus::a_lost_gpu_with_engines_names_itself_and_the_others_go_on", &env, |mock| {
                mock.register_decoder();
                let calls = std::env::var("INFEED_TEST_CALLS").unwrap().parse().unwrap();
                let dir = tempfile::tempdir().unwrap();
                lose_one(mock, &photos(dir.path()), &crops, calls);
            });
        }
    }

    #[test]
    fn streams_dropped_in_any_order_leave_nothing_behind() {
        on_mock("several::gpus::streams_dropped_in_any_order_leave_nothing_behind", &[FOUR], |mock| {
            mock.register_decoder();
            let dir = tempfile::tempdir().unwrap();
            let dataset = photos(dir.path());
            for round in 0..6 {
                let mut loaders = together(&dataset, &GPUS, &crops);
                let mut streams: Vec<_> = loaders.iter().map(|loader| loader.epochs(0..3)).collect();
                // Whatever is under way: some wait for their first batch, some hold one.
                let mut held: Vec<_> =
                    streams.iter_mut().take(round).map(|s| futures::StreamExt::next(s).now_or_never()).collect();
                loaders.swap_remove(round % 4);
                drop(streams.swap_remove((round + 1) % 4));
                let batches: Vec<_> =
                    streams.into_iter().map(|stream| stream.blocking().take(round + 1).count()).collect();
                assert_eq!(batches, [round + 1; 3]);
                held.truncate(1);
            }
        });
    }
}
