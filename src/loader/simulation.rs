//! Simulates the whole engine with a seeded scheduler and a virtual clock: rare interleavings of threads occur within
//! seconds, and can be repeated with the same seed.
//!
//! ```text
//! seed ─▶ settings, weather ─▶ loader ─▶ one step at a time: a task of the runtime, a job of a decode thread, a poll of the
//!                                        trainer, some time that passes, a stream dropped and resumed with other settings
//! ```
//!
//! Nothing runs by itself: decode threads are simulated, the I/O runtime runs on this thread, and time passes only in a
//! step. After each batch the promises are checked:
//!
//! - The batch equals the batch that one thread makes of data in memory, whatever the store did.
//! - No request begins after its stream was dropped, and requests stay below their limit.
//! - An outage ends a run only if it was longer than the patience.
//! - There is always progress.
//!
//! `INFEED_SIMULATION_STEPS` (2,000,000) bounds the work; `INFEED_SIMULATION_SEED` runs one seed, as a failure prints
//! it.

#![expect(clippy::future_not_send, reason = "one thread does everything, by hand")]

use std::{
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream::BoxStream};
use infeed_core::{
    random::{hash64, repeat_jitter},
    types::Device,
};
use infeed_data::sampler::{LastBatch, LoaderState, Shard};
use infeed_store::{Refusal, Source};
use object_store::{
    CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, path::Path,
};
use tokio::time::Instant;

use super::{
    BatchStream, Loader, OnBadSample,
    numbers::{IN_PART, Layout, Numbers, content, part_content},
};
use crate::{
    Batch, ErrorKind, Result,
    engine::{Hands, IoRuntime},
};

const STEPS: u64 = 2_000_000;
/// How long an outage of the store may last.
const PATIENCE: Duration = Duration::from_secs(60);
/// Virtual time without a batch after which there is no progress: an outage, its patience, a deadline, a back-off.
const STUCK: Duration = Duration::from_secs(900);

/// Draws that depend only on the seed.
#[derive(Clone, Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash64(self.0) % sides
    }

    fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.roll(range.end - range.start)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.roll(n) == 0
    }
}

/// The faults of a store.
#[derive(Debug)]
struct Sky {
    dice: Dice,
    /// One in this many requests has a fault; 0 for no faults.
    fault_in: u64,
    /// Times from the start in which the store does not answer.
    outages: Vec<Range<Duration>>,
    began: Instant,
    in_flight: usize,
    most_in_flight: usize,
    requests: u64,
    /// Objects whose answer was cut short: once each, because a proxy that cuts all answers is not a temporary fault.
    cut: std::collections::HashSet<String>,
}

enum Fault {
    Refused(u16),
    Broken,
    Cut,
    Silent,
    Slow,
}

/// Records that repeat their number, in a simulated remote store.
struct Store(Mutex<Sky>);

impl Store {
    fn sky(&self) -> MutexGuard<'_, Sky> {
        self.0.lock().expect("nobody panics under a sky")
    }

    async fn get(self: &Arc<Self>, location: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        let (latency, fault, _flying) = {
            let mut sky = self.sky();
            sky.requests += 1;
            sky.in_flight += 1;
            sky.most_in_flight = sky.most_in_flight.max(sky.in_flight);
            let at = sky.began.elapsed();
            let out = sky.outages.iter().any(|outage| outage.contains(&at));
            let bad = out
                || sky.fault_in > 0 && {
                    let n = sky.fault_in;
                    sky.dice.one_in(n)
                };
            let fault = bad.then(|| match sky.dice.roll(10) {
                0..3 => Fault::Refused(503),
                3..5 => Fault::Refused(500),
                5..7 => Fault::Broken,
                7 => Fault::Silent,
                8 if !out && sky.cut.insert(location.to_string()) => Fault::Cut,
                _ if out => Fault::Broken,
                _ => Fault::Slow,
            });
            (Duration::from_micros(sky.dice.within(100..40_000)), fault, Flying(Arc::clone(self)))
        };
        tokio::time::sleep(latency).await;
        let broken = || StoreError::Generic { store: "simulation", source: std::io::Error::other("reset").into() };
        let refusal = |status| StoreError::Generic { store: "simulation", source: Refusal::new(status).into() };
        let number = |digits: &str| digits.parse().expect("names are numbers");
        let name = location.as_ref();
        let mut body =
            name.strip_prefix("part-").map_or_else(|| content(number(name)), |part| part_content(number(part)));
        let size = body.len() as u64;
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => range.clone(),
            _ => 0..size,
        };
        body = body.slice(range.start as usize..range.end as usize);
        let half = body.slice(..body.len() / 2);
        let frames: BoxStream<'static, object_store::Result<Bytes>> = match fault {
            Some(Fault::Refused(status)) => return Err(refusal(status)),
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Broken) => futures::stream::iter([Ok(half), Err(broken())]).boxed(),
            Some(Fault::Cut) => futures::stream::iter([Ok(half)]).boxed(),
            Some(Fault::Slow) => {
                let late = async { tokio::time::sleep(Duration::from_secs(3)).await };
                futures::stream::once(late).map(move |()| Ok(body.clone())).boxed()
            }
            None => futures::stream::iter([Ok(body)]).boxed(),
        };
        let meta = ObjectMeta {
            location: location.clone(),
            last_modified: Default::default(),
            size,
            e_tag: None,
            version: None,
        };
        Ok(GetResult {
            payload: GetResultPayload::Stream(frames),
            meta,
            range,
            attributes: Default::default(),
            extensions: Default::default(),
        })
    }
}

/// A request in progress.
struct Flying(Arc<Store>);

impl Drop for Flying {
    fn drop(&mut self) {
        self.0.sky().in_flight -= 1;
    }
}

#[derive(Clone)]
struct Remote(Arc<Store>);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Simulation")
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulation")
    }
}

/// The type that `async_trait` makes of an `async fn`.
type Answer<'a, T> = Pin<Box<dyn Future<Output = object_store::Result<T>> + Send + 'a>>;

fn no<T>() -> object_store::Result<T> {
    Err(StoreError::NotImplemented { operation: "anything but reads".into(), implementer: "simulation".into() })
}

impl ObjectStore for Remote {
    fn put_opts<'a, 'b, 'c>(&'a self, _: &'b Path, _: PutPayload, _: PutOptions) -> Answer<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async { no() })
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        _: &'b Path,
        _: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async { no() })
    }

    fn get_opts<'a, 'b, 'c>(&'a self, location: &'b Path, options: GetOptions) -> Answer<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async move { self.0.get(location, options).await })
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        futures::stream::once(async { no() }).boxed()
    }

    fn list(&self, _: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        futures::stream::once(async { no() }).boxed()
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, _: Option<&'b Path>) -> Answer<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
    {
        Box::pin(async { no() })
    }

    fn copy_opts<'a, 'b, 'd, 'c>(&'a self, _: &'b Path, _: &'d Path, _: CopyOptions) -> Answer<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        'd: 'c,
    {
        Box::pin(async { no() })
    }
}

/// Settings that determine the batches.
#[derive(Clone, Debug)]
struct Settings {
    records: u64,
    batch: usize,
    shuffle: Option<u64>,
    shard: Shard,
    last: LastBatch,
    bad_in: u64,
    bad_parts: bool,
    on_bad: OnBadSample,
    epochs: u64,
}

impl Settings {
    fn draw(dice: &mut Dice) -> Self {
        let world = dice.within(1..4) as u32;
        let bad_in = if dice.one_in(3) { dice.within(5..40) } else { 0 };
        let at_most = u64::MAX;
        Self {
            records: dice.within(60..400),
            batch: dice.within(1..17) as usize,
            shuffle: (!dice.one_in(4)).then(|| dice.roll(1000)),
            shard: Shard::new(dice.roll(u64::from(world)) as u32, world).expect("a rank within the world"),
            last: [LastBatch::Drop, LastBatch::Partial, LastBatch::Pad][dice.roll(3) as usize],
            bad_in,
            bad_parts: bad_in > 0 && dice.one_in(3),
            on_bad: if dice.one_in(2) { OnBadSample::SkipPadded { at_most } } else { OnBadSample::Substitute },
            epochs: dice.within(1..4),
        }
    }

    fn loader(&self, source: Option<Source>, how: &How, io: &IoRuntime) -> Loader {
        let builder = || self.builder(source.clone(), how, io);
        let builder = if how.tight { builder().memory_budget(least(builder())) } else { builder() };
        builder.build_blocking().expect("settings that can be")
    }

    fn builder(&self, source: Option<Source>, how: &How, io: &IoRuntime) -> super::LoaderBuilder {
        let bad = (0..self.records).filter(|record| self.bad_in > 0 && hash64(*record).is_multiple_of(self.bad_in));
        let parts = (0..self.records / IN_PART).filter(|part| self.bad_parts && hash64(*part).is_multiple_of(7));
        let (bad, bad_parts) = (bad.collect(), parts.collect());
        let numbers = Numbers { layout: how.layout, bad, bad_parts, ..Numbers::new(source, self.records) };
        let builder = Loader::builder(Arc::new(numbers)).device(Device::Cpu).io_runtime(io);
        let builder = builder.batch_size(self.batch).shard(self.shard).last_batch(self.last).on_bad_sample(self.on_bad);
        let builder = self.shuffle.into_iter().fold(builder, super::LoaderBuilder::shuffle);
        let builder = builder.workers(how.workers).prefetch(how.prefetch);
        how.requests.into_iter().fold(builder, super::LoaderBuilder::io_concurrency)
    }
}

/// The smallest memory budget of a loader, from its own error for a budget of 0.
fn least(builder: super::LoaderBuilder) -> u64 {
    let error = builder.memory_budget(1).build_blocking().expect_err("one byte is too little").to_string();
    let (_, least) = error.split_once("the least that works is ").expect("it says what it needs");
    let mut words = least.split(' ');
    let number: u64 = words.next().and_then(|number| number.parse().ok()).expect("a number");
    match words.next() {
        Some("MiB") => number << 20,
        Some("KiB") => number << 10,
        _ => number,
    }
}

/// Settings that must not affect the batches.
#[derive(Clone, Debug)]
struct How {
    workers: usize,
    prefetch: usize,
    requests: Option<usize>,
    /// Only the minimum of memory: parts are evicted, reads wait for one another.
    tight: bool,
    layout: Layout,
}

impl How {
    const PLAIN: Self = Self { workers: 1, prefetch: 1, requests: None, tight: false, layout: Layout::Objects };

    fn draw(dice: &mut Dice) -> Self {
        let layout = [Layout::Objects, Layout::Parts, Layout::Parts, Layout::Calls][dice.roll(4) as usize];
        Self {
            workers: dice.within(1..5) as usize,
            prefetch: dice.within(1..6) as usize,
            requests: dice.one_in(2).then(|| dice.within(1..12) as usize),
            // A thread would wait for a part that was evicted before its use, and simulated threads cannot wait.
            tight: layout != Layout::Parts && dice.one_in(3),
            layout,
        }
    }
}

/// The whole content of a batch.
#[derive(Clone, Debug, PartialEq)]
struct Plain {
    epoch: u64,
    records: Vec<u64>,
    positions: Vec<u64>,
    bytes: Vec<u8>,
    bad: Vec<u64>,
    state: LoaderState,
}

impl Plain {
    fn of(batch: &Batch) -> Self {
        Self {
            epoch: batch.epoch(),
            records: batch.records().to_vec(),
            positions: batch.positions().to_vec(),
            bytes: batch["number"].bytes().expect("host memory").to_vec(),
            bad: batch.bad_samples().iter().map(|bad| bad.record).collect(),
            state: batch.state().clone(),
        }
    }
}

/// The run of one seed.
struct Simulation {
    dice: Dice,
    hands: Hands,
    steps: u64,
}

impl Simulation {
    fn poll(&self, stream: &mut BatchStream) -> Poll<Option<Result<Batch>>> {
        Pin::new(stream).poll_next(&mut Context::from_waker(Waker::noop()))
    }

    /// An event outside the trainer. Returns whether it was a job.
    async fn happen(&mut self) -> bool {
        self.steps += 1;
        match self.dice.roll(20) {
            0..10 if self.hands.len() > 0 => {
                let n = self.dice.roll(self.hands.len() as u64) as usize;
                let each = Duration::from_micros(self.dice.within(30..900));
                return self.hands.step(n, each);
            }
            0..16 => tokio::task::yield_now().await,
            16..19 => {
                let most = if self.dice.one_in(8) { 2_000_000 } else { 5_000 };
                let time = Duration::from_micros(self.dice.roll(most));
                tokio::time::advance(time).await;
            }
            // Advance the clock to the next timer.
            _ => tokio::time::sleep(Duration::from_millis(self.dice.within(1..50))).await,
        }
        false
    }

    /// Runs until the trainer has its batch.
    async fn next(&mut self, stream: &mut BatchStream, settings: &Settings) -> Option<Result<Batch>> {
        let began = Instant::now();
        loop {
            if self.dice.one_in(4)
                && let Poll::Ready(next) = self.poll(stream)
            {
                return next;
            }
            self.happen().await;
            let waited = began.elapsed();
            assert!(waited < STUCK, "nobody makes progress: {waited:?} without a batch, {settings:?}");
        }
    }

    /// The batches that one thread makes of data in memory. `None` if a batch has no good row, which is an error.
    async fn expected(&mut self, settings: &Settings, io: &IoRuntime) -> Option<Vec<Plain>> {
        let loader = settings.loader(None, &How::PLAIN, io);
        let mut stream = loader.epochs(0..settings.epochs);
        let mut all = Vec::new();
        while let Some(batch) = self.next(&mut stream, settings).await {
            match batch {
                Ok(batch) => all.push(Plain::of(&batch)),
                Err(error) => {
                    assert!(settings.bad_in > 0 && error.is_sample(), "nothing else fails in memory: {error:#}");
                    return None;
                }
            }
        }
        drop((stream, loader));
        self.hands.clear();
        Some(all)
    }

    async fn run(&mut self, io: &IoRuntime) {
        let settings = Settings::draw(&mut self.dice);
        if settings.records / u64::from(settings.shard.world()) < settings.batch as u64 {
            return;
        }
        let Some(expected) = self.expected(&settings, io).await else { return };
        let mut sky = Sky {
            dice: Dice(self.dice.roll(u64::MAX)),
            fault_in: [0, 50, 10, 6][self.dice.roll(4) as usize],
            outages: Vec::new(),
            began: Instant::now(),
            in_flight: 0,
            most_in_flight: 0,
            requests: 0,
            cut: Default::default(),
        };
        let mut at = 0;
        for _ in 0..self.dice.roll(4) {
            at += self.dice.roll(4_000);
            let long = self.dice.one_in(4);
            let lasts = if long { self.dice.within(70_000..150_000) } else { self.dice.within(100..6_000) };
            sky.outages.push(Duration::from_millis(at)..Duration::from_millis(at + lasts));
            at += lasts;
        }
        // Between two outages there may be no time for an answer, and around them some requests get none for 10 s each.
        let span = sky.outages.first().zip(sky.outages.last()).map(|(first, last)| last.end - first.start);
        let may_end = span.is_some_and(|span| span + Duration::from_secs(30) > PATIENCE);
        let store = Arc::new(Store(Mutex::new(sky)));
        let remote = !self.dice.one_in(6);
        let mut state: Option<LoaderState> = None;
        let mut got = 0;
        loop {
            let how = How::draw(&mut self.dice);
            let source = remote.then(|| {
                Source::from_store(Arc::new(Remote(Arc::clone(&store))), Path::default(), "simulation://")
                    .with_patience(PATIENCE)
            });
            let loader = settings.loader(source, &how, io);
            store.sky().most_in_flight = 0;
            let mut stream = match &state {
                Some(state) => loader.resume_epochs(state, ..settings.epochs).expect("a state of ours"),
                None => loader.epochs(0..settings.epochs),
            };
            // One in three streams is dropped somewhere.
            let keep = if self.dice.one_in(3) { self.dice.roll(30) } else { u64::MAX };
            let mut batches = 0;
            let ended = loop {
                if batches == keep {
                    break false;
                }
                match self.next(&mut stream, &settings).await {
                    Some(Ok(batch)) => {
                        let batch = Plain::of(&batch);
                        assert!(
                            Some(&batch) == expected.get(got),
                            "batch {got} is {batch:?}, not {:?}",
                            expected.get(got)
                        );
                        (state, got, batches) = (Some(batch.state), got + 1, batches + 1);
                    }
                    Some(Err(error)) => {
                        let text = error.to_string();
                        let out = error.kind() == ErrorKind::Io && text.contains("the store ");
                        assert!(may_end && out && text.contains("for 60 s"), "{error:#}, {settings:?}");
                        break false;
                    }
                    None => break true,
                }
            };
            if let Some(most) = how.requests {
                let seen = store.sky().most_in_flight;
                assert!(seen <= most, "{seen} requests in flight, {most} allowed");
            }
            for _ in 0..self.dice.roll(40) {
                self.happen().await;
            }
            drop(stream);
            let asked = store.sky().requests;
            for _ in 0..200 {
                self.happen().await;
            }
            let sky = store.sky();
            assert_eq!((sky.requests, sky.in_flight), (asked, 0), "a stream that was dropped asks for nothing");
            drop(sky);
            drop(loader);
            self.hands.clear();
            if ended {
                break;
            }
        }
        assert_eq!(got, expected.len(), "the run ended early, {settings:?}");
    }
}

/// Runs a seed; returns the number of steps.
fn simulate(seed: u64) -> u64 {
    repeat_jitter();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let io = IoRuntime::from_handle(tokio::runtime::Handle::current());
        let mut simulation = Simulation { dice: Dice(hash64(seed)), hands: Hands::new(), steps: 0 };
        simulation.run(&io).await;
        simulation.steps
    })
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn whatever_happens_in_whatever_order_batches_are_the_same() {
    if let Some(seed) = variable("INFEED_SIMULATION_SEED") {
        simulate(seed);
        return;
    }
    let most = variable("INFEED_SIMULATION_STEPS").unwrap_or(STEPS);
    let (mut steps, mut seed) = (0, 0);
    while steps < most {
        let run = std::panic::catch_unwind(|| simulate(seed));
        steps += run.unwrap_or_else(|_| {
            panic!(
                "seed {seed} failed after {steps} steps of others: INFEED_SIMULATION_SEED={seed} cargo test --lib simulation"
            )
        });
        seed += 1;
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in 0..20 {
        assert_eq!(simulate(seed), simulate(seed), "seed {seed}");
    }
}
