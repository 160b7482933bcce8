//! Computes the numbers of a loader from settings and facts: values of `auto`, the division of memory, errors. Only
//! arithmetic: no device access, no file is read, no thread is started.
//!
//! ```text
//! LoaderConfig ─▶ check ─┐
//! Facts ─────────────────┴▶ resolve ─▶ Resolved ─▶ start (start.rs): threads, pools, cache
//!   │ dataset: records, reads, shared parts, bytes of a batch
//!   │ machine: cores, memory
//!   │ device:  free memory, what decoding takes there
//!   └ decoder: threads that read, scratch for a largest image
//! ```

use std::{fmt, num::NonZeroUsize};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{
            BATCH_SIZE, DTYPE, FILL_LAST, IO_CONCURRENCY, MAX_IMAGE_BYTES, MAX_RECORD_BYTES, PREFETCH, Setting, WORKERS,
        },
    },
    types::{DType, Device},
};
use infeed_data::{
    SharedBytes,
    sampler::{Batches, Sampler, Steps},
};
use infeed_store::Verify;

use super::{
    LoaderConfig, OnBadSample,
    memory::{self, Needs, Shares},
};
use crate::engine::{self, BadRows, Limits, Range, Scope};

/// The largest decoded image that `auto` allows: 111 megapixels of RGB; or half as many for a JPEG without subsampled
/// colour, which needs planes and pixels.
const MAX_IMAGE: u64 = 320 << 20;
/// Images get this much before batches get more: 16 megapixels of RGB.
const USUAL_IMAGE: u64 = 48 << 20;
/// The smallest sensible limit of an image: 1.4 megapixels of RGB.
const MIN_IMAGE: u64 = 4 << 20;
/// Encoded bytes read ahead from a remote store; hides 2 s of small images (256 MB at 128 MB/s).
const WINDOW: u64 = 256 << 20;
/// Batches of a remote store that may be announced, and whose reads may start, beyond those that have rows.
const READ_AHEAD: usize = 64;

/// Facts that are known before memory is divided.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) records: u64,
    /// Whether bytes come from a store, or from a dataset that reads itself; otherwise the decode threads read.
    pub(super) reads_ahead: bool,
    /// Largest record in encoded bytes; 0 if nothing is read.
    pub(super) largest_read: u64,
    /// Largest usual record: without outliers.
    pub(super) usual_read: u64,
    /// Parts that records share.
    pub(super) shared: SharedBytes,
    /// Whether there are image files of unknown size to decode.
    pub(super) has_files: bool,
    /// One batch of each rank, summed.
    pub(super) batch: BatchBytes,
    pub(super) machine: Machine,
    /// Ranks of this process, one for each of its devices.
    pub(super) ranks: usize,
    /// Each GPU once. Empty if batches are made in host memory.
    pub(super) devices: Vec<DeviceFacts>,
    pub(super) decoder: DecoderFacts<'a>,
}

/// Bytes of one batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchBytes {
    /// Rows that are written in host memory, including fields of bytes.
    pub(super) on_host: u64,
    /// The part of fields of bytes in it, at most.
    pub(super) of_bytes: u64,
    /// Rows on the device, including rows that are copied there at the end.
    pub(super) on_device: u64,
}

impl BatchBytes {
    /// The sum of both.
    pub(super) const fn and(self, other: Self) -> Self {
        Self {
            on_host: self.on_host.saturating_add(other.on_host),
            of_bytes: self.of_bytes.saturating_add(other.of_bytes),
            on_device: self.on_device.saturating_add(other.on_device),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// Cores that this process may use.
    pub(super) cores: NonZeroUsize,
    /// Memory in bytes.
    pub(super) memory: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceFacts {
    /// CUDA's index of the device.
    pub(super) index: u32,
    /// Free bytes.
    pub(super) free: u64,
    /// Bytes of one batch of each rank on the device.
    pub(super) batch: u64,
    /// Bytes of all workers of the decoder on the device.
    pub(super) decoding: u64,
}

#[derive(Clone, Copy)]
pub(super) struct DecoderFacts<'a> {
    /// Whether it is a built-in decoder: then the largest image determines its scratch, and autotune may change its
    /// threads. A user's decoder has its own number of threads.
    pub(super) built_in: bool,
    /// Threads of the classes that read.
    pub(super) reading: usize,
    /// Host memory of all its workers if images may have this size.
    pub(super) scratch: &'a dyn Fn(u64) -> u64,
    /// Bytes of samples on their way between classes.
    pub(super) ready: u64,
}

impl fmt::Debug for DecoderFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { built_in, reading, ready, .. } = self;
        f.debug_struct("DecoderFacts")
            .field("built_in", built_in)
            .field("reading", reading)
            .field("ready", ready)
            .finish()
    }
}

/// Valid settings, before the machine is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checked {
    pub(super) batch_size: NonZeroUsize,
    /// Decode threads as set.
    pub(super) workers: Option<NonZeroUsize>,
    /// Seed of augmentation.
    pub(super) seed: u64,
}

/// All numbers with which a loader starts.
#[derive(Clone, Debug)]
pub(super) struct Resolved {
    /// How the memory is divided.
    pub(super) shares: Shares,
    /// Batches that may own rows.
    pub(super) prefetch: usize,
    /// For each device, in the order of the facts.
    pub(super) device_budgets: Vec<u64>,
    /// The largest image that the decoder takes; for a user's decoder the setting, which it may ignore.
    pub(super) max_image: Option<u64>,
    /// The largest record that is read.
    pub(super) max_record: u64,
    /// Bytes of `shares.more` for one more decode thread.
    pub(super) thread_bytes: u64,
    /// Bytes of `shares.more` for one more batch.
    pub(super) batch_bytes: u64,
    pub(super) reading: usize,
    growth: Growth,
    ranks: usize,
    /// Batches announced beyond those that have rows; `None` if nothing is fetched.
    read_ahead: Option<usize>,
    requests: Option<usize>,
    verify: Verify,
}

/// Limits of settings on `auto`.
#[derive(Clone, Copy, Debug)]
struct Growth {
    cores: usize,
    /// Whether the decode threads wait for files.
    reads: bool,
    on_device: bool,
    /// Whether autotune changes them, and the maximum.
    workers: Option<usize>,
    prefetch: Option<usize>,
}

/// Rejects settings that are invalid on every machine.
pub(super) fn check(config: &LoaderConfig, records: u64) -> Result<Checked> {
    let zero = |name: Setting| Error::config(format!("{name} is 0")).with_hint("use 1 or more");
    let given = [
        (PREFETCH, config.prefetch == Some(0)),
        (IO_CONCURRENCY, config.io_concurrency == Some(0)),
        (MAX_IMAGE_BYTES, config.max_image_bytes == Some(0)),
        (MAX_RECORD_BYTES, config.max_record_bytes == Some(0)),
    ];
    if let Some((name, _)) = given.into_iter().find(|(_, is_zero)| *is_zero) {
        return Err(zero(name));
    }
    if !matches!(config.dtype, DType::F32 | DType::F16 | DType::Bf16 | DType::U8 | DType::I16) {
        return Err(Error::config(format!("{DTYPE} {} is not a type of images", config.dtype))
            .with_hint("use f32, f16, bf16, u8, or for volumes i16"));
    }
    let no_threads = || Error::config(format!("{WORKERS} is 0")).with_hint("use 1 or more, or leave it on auto");
    let workers = config.workers.map(|workers| NonZeroUsize::new(workers).ok_or_else(no_threads)).transpose()?;
    let batch_size = NonZeroUsize::new(config.batch_size).ok_or_else(|| zero(BATCH_SIZE))?;
    if records == 0 {
        return Err(Error::new(ErrorKind::Empty, "the dataset has no records")
            .with_hint("check the path or the subset it was made from"));
    }
    let seed = config.seed.or(config.order.seed()).unwrap_or(0);
    Ok(Checked { batch_size, workers, seed })
}

impl Checked {
    /// Decode threads at first.
    pub(super) fn threads(&self, cores: NonZeroUsize, has_engines: bool) -> NonZeroUsize {
        // One for each core, not one more: a decode thread only waits for memory.
        let auto = match has_engines {
            false => cores,
            // Engines do the work of many threads and need a core for the thread that feeds them; the trainer needs a
            // core to give work to the GPU. If decode threads are missing, autotune adds some.
            true => NonZeroUsize::new(cores.get().saturating_sub(2)).unwrap_or(NonZeroUsize::MIN),
        };
        self.workers.unwrap_or(auto)
    }

    /// The maximum number of threads, if each holds memory of a GPU.
    pub(super) fn most_threads(&self, cores: NonZeroUsize) -> NonZeroUsize {
        self.workers.unwrap_or(cores)
    }
}

/// Rejects an epoch without a batch (a training without steps would look successful) and invalid listed batches.
pub(super) fn check_steps(sampler: &dyn Sampler, batch_size: NonZeroUsize, config: &LoaderConfig) -> Result<()> {
    let (positions, world) = (sampler.len(), config.shard.world());
    if let Some(batches) = sampler.batches() {
        check_batches(batches, positions, batch_size, world)?;
    }
    if Steps::of(sampler, 0, batch_size, config.shard, config.last_batch).count() > 0 {
        return Ok(());
    }
    let ranks = if world == 1 { String::new() } else { format!(" on each of {world} ranks") };
    let error =
        Error::new(ErrorKind::Empty, format!("{positions} records do not fill one batch of {batch_size}{ranks}"));
    Err(match positions / u64::from(world) {
        0 if positions == 0 => error.with_hint("use a sampler that draws records"),
        0 => error.with_hint(format!("use fewer ranks, or set {FILL_LAST}")),
        most => error.with_hint(format!("lower {BATCH_SIZE} to {most} or less, or set {FILL_LAST}")),
    })
}

/// Checks listed batches: memory is reserved for `batch_size` rows, and ranks divide positions in even steps.
fn check_batches(batches: &Batches, positions: u64, batch_size: NonZeroUsize, world: u32) -> Result<()> {
    if world > 1 && !batches.is_for_ranks() {
        return Err(Error::config(format!("the sampler lists its batches, which {world} ranks can't share"))
            .with_hint("give each rank a sampler of its own, in a loader without a shard"));
    }
    if batches.positions() != positions {
        let what = format!("the sampler's batches have {} rows, its epoch {positions}", batches.positions());
        return Err(Error::config(what).with_hint("list batches that cover exactly one epoch"));
    }
    let most = batch_size.get() as u64;
    match batches.sizes().enumerate().find(|(_, rows)| *rows > most) {
        None => Ok(()),
        Some((batch, rows)) => {
            Err(Error::config(format!("batch {batch} of the sampler has {rows} rows, {BATCH_SIZE} is {most}"))
                .with_hint(format!("set {BATCH_SIZE} to {rows} or more, or list smaller batches")))
        }
    }
}

/// Divides the memory.
pub(super) fn resolve(config: &LoaderConfig, facts: &Facts<'_>) -> Result<Resolved> {
    let workers = facts.decoder.reading.max(1);
    let ranks = facts.ranks.max(1) as u64;
    // A thread reads one record, or a few small ones, at a time.
    let reads_inline = !facts.reads_ahead && facts.largest_read > 0;
    let max_record = max_record(config, facts, if reads_inline { workers as u64 } else { ranks });
    let largest_read = facts.largest_read.min(max_record);
    let reads = if reads_inline { largest_read.max(engine::READ_BYTES).saturating_mul(workers as u64) } else { 0 };
    // A record's own bytes, and the bytes of its shared parts.
    let window = largest_read.saturating_add(facts.shared.encoded).checked_next_multiple_of(64 << 10);
    let window = if facts.reads_ahead { window.unwrap_or(u64::MAX) } else { 0 };
    let needs = Needs {
        machine: facts.machine.memory,
        batch: facts.batch.on_host,
        ranks,
        of_bytes: facts.batch.of_bytes,
        reads,
        // A separate window for each rank: a trainer that pauses must not hold the window of the others.
        window: window.saturating_mul(ranks),
        scratch: 0,
        shared: facts.shared.one,
        // One record more, because the last one is made while all others exist.
        all_shared: facts.shared.all.saturating_add(facts.shared.one),
        more: 0,
        // The ranks of this process share one budget.
        processes: u64::from(config.shard.local_world()) / ranks,
    };
    let growth = Growth::new(config, facts, &needs, reads_inline);
    // On a GPU all fields end on the device. The GPU with the least memory determines the batches ahead for all GPUs,
    // so that all are fed evenly.
    let divide = |prefetch| -> Result<(Vec<u64>, Vec<usize>)> {
        let on = |device: &DeviceFacts| {
            let &DeviceFacts { index, free, batch, decoding } = device;
            memory::divide_device(config.device_budget, free, batch, decoding, prefetch)
                .map_err(|error| error.at_object(Device::Cuda(index).to_string()))
        };
        facts.devices.iter().map(on).collect::<Result<Vec<_>>>().map(|divided| divided.into_iter().unzip())
    };
    let (_, ahead) = divide(config.prefetch)?;
    let prefetch = ahead.into_iter().min().or(config.prefetch);
    let (device_budgets, _) = divide(prefetch)?;
    let (shares, max_image) = share(config, facts, needs, growth, (workers, prefetch))?;
    Ok(Resolved {
        shares,
        prefetch: shares.prefetch,
        device_budgets,
        max_image,
        max_record,
        thread_bytes: (shares.scratch + reads) / workers as u64,
        batch_bytes: needs.batch,
        reading: facts.decoder.reading,
        growth,
        ranks: facts.ranks.max(1),
        read_ahead: facts.reads_ahead.then(|| fetched_ahead(config, facts.records)),
        requests: config.io_concurrency,
        verify: config.verify,
    })
}

/// The largest record that one of `readers` reads. At least the usual records, whatever their size, because without
/// memory for these there is no training. Outliers get an eighth of the budget, so that images and batches keep enough
/// memory; and at most the size of the largest image, because a larger file could not be decoded.
fn max_record(config: &LoaderConfig, facts: &Facts<'_>, readers: u64) -> u64 {
    let budget = config.memory_budget.unwrap_or(facts.machine.memory / 4);
    config.max_record_bytes.unwrap_or_else(|| (budget / 8 / readers.max(1)).clamp(1, MAX_IMAGE).max(facts.usual_read))
}

/// The parts of the memory, and the largest image: for the CPU's decoder, as large as the budget allows.
fn share(
    config: &LoaderConfig,
    facts: &Facts<'_>,
    mut needs: Needs,
    growth: Growth,
    (workers, prefetch): (usize, Option<usize>),
) -> Result<(Shares, Option<u64>)> {
    let decoder = &facts.decoder;
    let scratch = |max_image: u64| (decoder.scratch)(max_image);
    needs.more = growth.bytes(&needs, scratch(config.max_image_bytes.unwrap_or(MAX_IMAGE)), workers);
    // Samples that wait for classes that do not read.
    needs.reads = needs.reads.saturating_add(decoder.ready);
    if !decoder.built_in {
        needs.scratch = scratch(0);
        let shares = needs.divide(config.memory_budget, prefetch, [needs.scratch; 2], WINDOW)?;
        return Ok((shares, config.max_image_bytes));
    }
    let (min, max) = match config.max_image_bytes {
        Some(fixed) => (fixed, fixed),
        None if facts.has_files => (MIN_IMAGE, MAX_IMAGE),
        // Images that are pixels already need no scratch for decoding.
        None => (64 << 10, MAX_IMAGE),
    };
    let (least, most) = (scratch(min), scratch(max));
    needs.scratch = least;
    let shares = needs.divide(config.memory_budget, prefetch, [scratch(max.min(USUAL_IMAGE)), most], WINDOW)?;
    // Scratch grows in proportion to the largest image: find the image for which the share is enough.
    let image = if most > least {
        min + ((max - min) as u128 * (shares.scratch - least) as u128 / (most - least) as u128) as u64
    } else {
        max
    };
    Ok((shares, Some(image)))
}

/// The largest image of a list, where the largest of the decoder's images is `max_image`: 0 if the decoder has no such
/// limit.
pub(super) const fn largest_listed(max_image: u64) -> u64 {
    if max_image == 0 { USUAL_IMAGE } else { max_image }
}

/// Batches that are read ahead of those that have rows.
fn fetched_ahead(config: &LoaderConfig, records: u64) -> usize {
    if config.cache.is_none() {
        return READ_AHEAD;
    }
    // If the next epoch reads a record ahead before this epoch has read it into the cache, the store is read again. So
    // with a cache the read-ahead is only part of an epoch.
    let in_batch = u64::from(config.shard.world()).saturating_mul(config.batch_size as u64).max(1);
    usize::try_from(records / in_batch / 8).map_or(READ_AHEAD, |batches| batches.clamp(1, READ_AHEAD))
}

impl Growth {
    fn new(config: &LoaderConfig, facts: &Facts<'_>, needs: &Needs, reads_inline: bool) -> Self {
        let cores = facts.machine.cores.get();
        let on_device = !facts.devices.is_empty();
        let caches = [&config.cache, &config.decoded_cache];
        let reads = reads_inline || caches.into_iter().flatten().any(|cache| !cache.is_ram());
        // A user's decoder has its own number of threads; a decoder on a GPU holds memory there for each thread.
        let follows = config.autotune && config.workers.is_none() && facts.decoder.built_in;
        // A file on a network takes 10 ms and its decoding 1 ms: then about eight threads keep a core busy. It may also
        // take 300 ms; then the number of waiting threads does not depend on cores.
        let most = if reads && !on_device { (8 * cores).clamp(64, 128).max(cores) } else { cores };
        // Device memory for batches is allocated when the loader is built, so that a trainer which takes the rest
        // afterwards cannot break an epoch in the middle. With several ranks, all get the same.
        let ahead = config.autotune && config.prefetch.is_none() && !on_device && facts.ranks <= 1;
        let workers = follows.then_some(most);
        let prefetch = ahead.then(|| needs.most_prefetch());
        Self { cores, reads, on_device, workers, prefetch }
    }

    /// Memory for the maximum of all; `scratch` and `needs.reads` are for `workers` threads.
    fn bytes(&self, needs: &Needs, scratch: u64, workers: usize) -> u64 {
        let thread = (scratch + needs.reads) / workers.max(1) as u64;
        let threads = self.workers.map_or(0, |most| most.saturating_sub(workers)) as u64;
        let batches = self.prefetch.map_or(0, |most| most.saturating_sub(needs.auto_prefetch())) as u64;
        threads.saturating_mul(thread).saturating_add(batches.saturating_mul(needs.batch))
    }
}

impl Resolved {
    /// Limits of `auto`.
    pub(super) fn scope(&self) -> Scope {
        let range = |start: usize, least, most: Option<usize>| match most {
            Some(most) => Range { start, least, most: most.max(start) },
            None => Range::fixed(start),
        };
        // Batches are announced before they have rows; no more of them than may be announced.
        let announced = self.read_ahead.map(|_| self.prefetch + READ_AHEAD);
        let most = self.growth.prefetch.map(|most| announced.map_or(most, |announced| most.min(announced)));
        Scope {
            cores: self.growth.cores,
            reads: self.growth.reads,
            computes: !self.growth.on_device,
            workers: range(self.reading, 1, self.growth.workers),
            prefetch: range(self.prefetch, self.prefetch, most),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            // Bytes are read further ahead than rows are made; the window of bytes is the true limit.
            seats: self.read_ahead.map_or(self.scope().prefetch.most, |ahead| self.prefetch + ahead),
            encoded: self.shares.window / self.ranks as u64,
            requests: self.requests,
            verify: self.verify,
            record: self.max_record,
        }
    }

    /// The settings in force: `config` with nothing left on `auto`. `budget` is that of the device.
    pub(super) fn in_force(
        &self,
        config: LoaderConfig,
        checked: &Checked,
        (device, budget): (Device, Option<u64>),
    ) -> LoaderConfig {
        LoaderConfig {
            device: Some(device),
            seed: Some(checked.seed),
            workers: Some(self.reading),
            prefetch: Some(self.prefetch),
            memory_budget: Some(self.shares.budget),
            device_budget: budget,
            max_image_bytes: self.max_image,
            max_record_bytes: Some(self.max_record),
            decode_index_bytes: Some(config.index_bytes()),
            ..config
        }
    }
}

/// What the engine does with bad rows.
pub(super) const fn bad_rows(policy: OnBadSample) -> BadRows {
    match policy {
        OnBadSample::Stop => BadRows::Stop,
        OnBadSample::Skip { .. } => BadRows::Skip,
        OnBadSample::SkipPadded { .. } => BadRows::SkipPadded,
        OnBadSample::Substitute => BadRows::Substitute,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_data::sampler::{LastBatch, Order, Shard};

    const MIB: u64 = 1 << 20;

    /// Four cores, 16 GiB, batches of 10 MiB of image files that lie in memory.
    fn facts<'a>() -> Facts<'a> {
        Facts {
            records: 1000,
            reads_ahead: false,
            largest_read: 0,
            usual_read: 0,
            shared: SharedBytes::default(),
            has_files: true,
            batch: BatchBytes { on_host: 10 * MIB, of_bytes: 0, on_device: 0 },
            machine: Machine { cores: NonZeroUsize::new(4).unwrap(), memory: 16 << 30 },
            ranks: 1,
            devices: Vec::new(),
            // Four threads.
            decoder: DecoderFacts { built_in: true, reading: 4, scratch: &|most| 4 * most, ready: 0 },
        }
    }

    fn remote(facts: &mut Facts<'_>) {
        (facts.reads_ahead, facts.largest_read, facts.usual_read) = (true, 2 * MIB, 2 * MIB);
    }

    fn gpu(facts: &mut Facts<'_>) {
        facts.devices = vec![DeviceFacts { index: 1, free: 2000 * MIB, batch: 50 * MIB, decoding: 100 * MIB }];
        facts.batch = BatchBytes { on_host: MIB, of_bytes: 0, on_device: 50 * MIB };
        facts.decoder = DecoderFacts { ready: 32 * MIB, ..facts.decoder };
    }

    fn resolved(config: &LoaderConfig, facts: &Facts<'_>) -> Result<Resolved> {
        let checked = check(config, facts.records)?;
        check_steps(&*config.order.sampler(facts.records, None, 1)?, checked.batch_size, config)?;
        resolve(config, facts)
    }

    /// What a case is about.
    #[derive(Debug, PartialEq, Eq)]
    struct Outcome {
        /// Threads at first and at most.
        workers: (usize, usize),
        /// Batches ahead at first and at most.
        prefetch: (usize, usize),
        seats: usize,
        /// In MiB: the budget, the largest image, and what is left to grow.
        budget: u64,
        image: Option<u64>,
        more: u64,
    }

    fn outcome(resolved: &Resolved) -> Outcome {
        let scope = resolved.scope();
        Outcome {
            workers: (scope.workers.start, scope.workers.most),
            prefetch: (scope.prefetch.start, scope.prefetch.most),
            seats: resolved.limits().seats,
            budget: resolved.shares.budget / MIB,
            image: resolved.max_image.map(|image| image / MIB),
            more: resolved.shares.more / MIB,
        }
    }

    #[test]
    fn numbers_follow_from_settings_and_facts() {
        type Change = fn(&mut LoaderConfig, &mut Facts<'_>);
        // All on `auto`, in memory: 16 batches of 10 MiB and room for 102, images of 320 MiB in each of four threads.
        let auto =
            || Outcome { workers: (4, 4), prefetch: (16, 102), seats: 102, budget: 2566, image: Some(320), more: 1116 };
        let cases: Vec<(&str, Change, Outcome)> = vec![
            ("all on auto", |_, _| {}, auto()),
            (
                "nothing follows the run",
                |config, _| config.autotune = false,
                Outcome { prefetch: (16, 16), seats: 16, budget: 1706, more: 256, ..auto() },
            ),
            (
                "numbers that were set stay",
                |config, _| (config.workers, config.prefetch) = (Some(4), Some(3)),
                Outcome { prefetch: (3, 3), seats: 3, budget: 1576, more: 256, ..auto() },
            ),
            (
                "threads that read may be more than cores",
                |_, facts| (facts.largest_read, facts.usual_read) = (MIB, MIB),
                // 28 more threads of 324 MiB would be 9 GiB: as much as a quarter of the machine leaves.
                Outcome { workers: (4, 64), budget: 4096, more: 2630, ..auto() },
            ),
            (
                "a remote store is read further ahead",
                |_, facts| remote(facts),
                Outcome { prefetch: (16, 80), seats: 80, more: 860, ..auto() },
            ),
            (
                "with a cache only a part of an epoch",
                |config, facts| {
                    remote(facts);
                    (config.batch_size, config.cache) = (10, Some("ram:1GiB".parse().unwrap()));
                },
                Outcome { prefetch: (16, 80), seats: 28, more: 860, ..auto() },
            ),
            (
                "pixels that need no decoding need no scratch",
                |_, facts| {
                    facts.has_files = false;
                    facts.decoder.scratch = &|_| 0;
                },
                Outcome { budget: 1286, ..auto() },
            ),
            (
                "a largest image that was set",
                |config, _| config.max_image_bytes = Some(8 * MIB),
                Outcome { budget: 1318, image: Some(8), ..auto() },
            ),
            (
                "a budget is divided: usual images first, then batches",
                |config, _| config.memory_budget = Some(300 * MIB),
                Outcome { prefetch: (9, 102), seats: 102, budget: 300, image: Some(48), more: 0, ..auto() },
            ),
            (
                "ranks of one machine share what may grow",
                |config, facts| {
                    facts.records = 4000;
                    config.shard = Shard::new(0, 4).unwrap().with_local(0, 4).unwrap();
                },
                Outcome { budget: 1706, more: 256, ..auto() },
            ),
            (
                "a decoder of the user's has the threads that it says",
                |_, facts| facts.decoder = DecoderFacts { built_in: false, reading: 2, ..facts.decoder },
                Outcome { workers: (2, 2), budget: 1286, image: None, ..auto() },
            ),
            (
                "on a GPU batches ahead are taken at once and stay",
                |_, facts| gpu(facts),
                Outcome { workers: (4, 4), prefetch: (5, 5), seats: 5, budget: 1574, image: Some(320), more: 256 },
            ),
        ];
        for (name, change, want) in cases {
            let (mut config, mut facts) = (LoaderConfig::default(), facts());
            change(&mut config, &mut facts);
            let resolved = resolved(&config, &facts).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(outcome(&resolved), want, "{name}");
        }
    }

    #[test]
    fn threads_leave_two_cores_to_engines_and_trainer_at_first() {
        let number = |n| NonZeroUsize::new(n).unwrap();
        let threads = |workers, cores, has_engines| {
            let config = LoaderConfig { workers, ..LoaderConfig::default() };
            let checked = check(&config, 10).unwrap();
            (checked.threads(number(cores), has_engines).get(), checked.most_threads(number(cores)).get())
        };
        let cases = [(None, 16), (None, 3), (None, 2), (None, 1), (Some(5), 16), (Some(16), 4)];
        assert_eq!(cases.map(|(workers, cores)| threads(workers, cores, false).0), [16, 3, 2, 1, 5, 16]);
        assert_eq!(
            cases.map(|(workers, cores)| threads(workers, cores, true)),
            [(14, 16), (1, 3), (1, 2), (1, 1), (5, 5), (16, 16)]
        );
        // The run may take them all.
        let mut facts = facts();
        gpu(&mut facts);
        facts.decoder = DecoderFacts { reading: 2, scratch: &|most| 2 * most, ..facts.decoder };
        let range = |config: &LoaderConfig| {
            let scope = resolved(config, &facts).unwrap().scope();
            (scope.workers.start, scope.workers.most)
        };
        assert_eq!(range(&LoaderConfig::default()), (2, 4));
        assert_eq!(range(&LoaderConfig { autotune: false, ..LoaderConfig::default() }), (2, 2));
        assert_eq!(range(&LoaderConfig { workers: Some(2), ..LoaderConfig::default() }), (2, 2));
    }

    #[test]
    fn four_ranks_of_one_process_have_one_budget() {
        // Batches of 10 MiB each, in host memory, from afar; as many ahead of each trainer as if it were alone.
        let config =
            || LoaderConfig { shard: Shard::new(0, 4).unwrap().with_local(0, 4).unwrap(), ..Default::default() };
        let mut facts = facts();
        remote(&mut facts);
        facts.records = 4000;
        let alone = resolved(&LoaderConfig { shard: Shard::default(), ..config() }, &facts).unwrap();
        (facts.ranks, facts.batch.on_host) = (4, 40 * MIB);
        let four = resolved(&config(), &facts).unwrap();
        assert_eq!(
            (alone.prefetch, four.prefetch, four.scope().prefetch.most),
            (16, 16, 16),
            "none may outgrow another"
        );
        let rows = 17 * 10 * MIB;
        let (one, all) = (alone.shares, four.shares);
        assert_eq!(all.budget - all.more - (one.budget - one.more), 3 * rows, "only rows are there four times");
        assert_eq!((all.window, four.limits().encoded), (WINDOW, WINDOW / 4));
        assert_eq!((alone.limits().encoded, alone.reading, four.reading), (WINDOW, 4, 4));
        // The least holds a record for each rank.
        let least = LoaderConfig { memory_budget: Some(103 * MIB), ..config() };
        let error = resolved(&least, &facts).unwrap_err().to_string();
        assert!(error.contains("the least that works is 104 MiB"), "{error}");
    }

    #[test]
    fn devices_are_fed_evenly_by_the_one_with_the_least_memory() {
        let mut facts = facts();
        gpu(&mut facts);
        let other = DeviceFacts { index: 0, free: 700 * MIB, ..facts.devices[0] };
        facts.ranks = 3;
        // Two ranks have their batches on the second.
        facts.devices.push(DeviceFacts { index: 2, batch: 100 * MIB, ..other });
        let config = LoaderConfig::default();
        let three = resolved(&config, &facts).unwrap();
        // 1000 - 100 would hold 17 batches, 350 - 100 hold two of each rank: one ahead, one that comes back.
        assert_eq!((three.prefetch, &three.device_budgets[..]), (1, &[200 * MIB, 300 * MIB][..]));
        facts.devices[1].free = 250 * MIB;
        let error = resolved(&config, &facts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("the least that works is 300 MiB"), "{error}");
        assert!(error.to_string().contains("(cuda:2)"), "{error}");
    }

    #[test]
    fn what_can_not_be_is_refused_by_name() {
        type Change = fn(&mut LoaderConfig, &mut Facts<'_>);
        let cases: [(&str, Change); 15] = [
            ("config: prefetch is 0; use 1 or more", |config, _| config.prefetch = Some(0)),
            ("config: io_concurrency is 0; use 1 or more", |config, _| config.io_concurrency = Some(0)),
            ("config: max_image_bytes is 0; use 1 or more", |config, _| config.max_image_bytes = Some(0)),
            ("config: workers is 0; use 1 or more, or leave it on auto", |config, _| config.workers = Some(0)),
            ("config: batch_size is 0; use 1 or more", |config, _| config.batch_size = 0),
            ("config: dtype i64 is not a type of images", |config, _| config.dtype = DType::I64),
            ("empty: the dataset has no records", |_, facts| facts.records = 0),
            (
                "empty: 250 records do not fill one batch of 256; lower batch_size to 250 or less, or set last_batch to",
                |_, facts| facts.records = 250,
            ),
            (
                "empty: 1000 records do not fill one batch of 256 on each of 4 ranks; lower batch_size to 250 or less",
                |config, _| config.shard = Shard::new(3, 4).unwrap(),
            ),
            ("use fewer ranks, or set last_batch to partial or pad", |config, _| {
                config.shard = Shard::new(3, 1001).unwrap();
            }),
            ("config: memory_budget is 30 MiB, the least that works is 36 MiB", |config, _| {
                config.memory_budget = Some(30 * MIB);
            }),
            ("the machine has 16384 MiB", |_, facts| facts.batch.on_host = 9 << 30),
            ("the machine has 16384 MiB", |_, facts| facts.batch.on_host = u64::MAX),
            ("config: device_budget is 150 MiB, the least that works is 200 MiB", |config, facts| {
                gpu(facts);
                config.device_budget = Some(150 * MIB);
            }),
            ("150 MiB of device memory are free, the least that works is 200 MiB", |_, facts| {
                gpu(facts);
                facts.devices[0].free = 150 * MIB;
            }),
        ];
        for (want, change) in cases {
            let (mut config, mut facts) = (LoaderConfig::default(), facts());
            change(&mut config, &mut facts);
            let error = resolved(&config, &facts).expect_err(want);
            assert!(matches!(error.kind(), ErrorKind::Config | ErrorKind::Empty | ErrorKind::OutOfMemory));
            assert!(error.to_string().contains(want), "{error}: not {want}");
        }
    }

    #[test]
    fn an_outlier_takes_nothing_of_what_the_others_need() {
        let sizes =
            |usual, largest| move |facts: &mut Facts<'_>| (facts.usual_read, facts.largest_read) = (usual, largest);
        let of = |budget: Option<u64>, remote: bool, change: &dyn Fn(&mut Facts<'_>)| {
            let (config, mut facts) = (LoaderConfig { memory_budget: budget, ..LoaderConfig::default() }, facts());
            facts.reads_ahead = remote;
            change(&mut facts);
            let resolved = resolved(&config, &facts).unwrap();
            (resolved.max_record / MIB, resolved.max_image.unwrap() / MIB, resolved.prefetch)
        };
        for remote in [false, true] {
            for budget in [None, Some(300 * MIB), Some(600 * MIB), Some(4 << 30)] {
                let (_, image, prefetch) = of(budget, remote, &sizes(MIB, MIB));
                let (record, beside, ahead) = of(budget, remote, &sizes(MIB, 3 << 30));
                let readers = if remote { 1 } else { 4 };
                assert_eq!(record, (budget.unwrap_or(4 << 30) / 8 / readers).min(MAX_IMAGE) / MIB);
                // What it may read is an eighth.
                assert!(
                    beside >= image * 3 / 4 && ahead + 4 >= prefetch,
                    "{budget:?}: {beside} {ahead}, {image} {prefetch}"
                );
                assert!(beside >= 16, "{budget:?}: {beside}");
            }
            // Where all are large there is no way around it.
            assert_eq!(of(None, remote, &sizes(700 * MIB, 700 * MIB)).0, 700);
        }
        let fixed = LoaderConfig { max_record_bytes: Some(5 * MIB), ..LoaderConfig::default() };
        let mut facts = facts();
        sizes(MIB, 3 << 30)(&mut facts);
        assert_eq!(resolved(&fixed, &facts).unwrap().max_record, 5 * MIB);
    }

    #[test]
    fn an_epoch_of_less_than_a_batch_may_be_partial_or_padded() {
        for last_batch in [LastBatch::Partial, LastBatch::Pad] {
            let config = LoaderConfig { last_batch, shard: Shard::new(1, 2000).unwrap(), ..LoaderConfig::default() };
            resolved(&config, &facts()).unwrap();
        }
    }

    #[test]
    fn fewer_batches_than_resolved_lower_what_follows_from_them() {
        let mut facts = facts();
        gpu(&mut facts);
        let mut resolved = resolved(&LoaderConfig::default(), &facts).unwrap();
        resolved.prefetch = 2;
        assert_eq!((outcome(&resolved).prefetch, outcome(&resolved).seats), ((2, 2), 2));
    }

    #[test]
    fn settings_in_force_leave_nothing_on_auto() {
        let mut facts = facts();
        gpu(&mut facts);
        let config = LoaderConfig { order: Order::Random { seed: 9 }, ..LoaderConfig::default() };
        let checked = check(&config, facts.records).unwrap();
        let resolved = resolve(&config, &facts).unwrap();
        let config = resolved.in_force(config, &checked, (Device::Cuda(1), Some(resolved.device_budgets[0])));
        assert_eq!((config.device, config.seed, config.workers), (Some(Device::Cuda(1)), Some(9), Some(4)));
        assert!(config.prefetch.is_some() && config.memory_budget.is_some() && config.device_budget.is_some());
        assert!(config.max_image_bytes.is_some());
    }
}
