//! From encoded bytes to finished rows.
//!
//! ```text
//! engine queue ─ Job (some rows of one batch) ─▶ Worker::submit … Worker::poll ─▶ Finished (rows + one outcome each)
//!                                                  │ CPU: ImageCodec (JPEG, PNG, …) → pixels → resample into the row
//!                                                  └ GPU: bitstream or pixels up, decode and resample on one stream
//! ```

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use crate::{
    dataset::Sample,
    error::{Error, Result},
    random::SampleRng,
    sys::rows::Rows,
    transform::Lowered,
    types::{Device, ImageInfo},
};

/// A set of worker classes of one decoder, by index; at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSet(pub u32);

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self(u32::MAX);
    /// Whether `class` is in the set.
    #[must_use]
    pub const fn contains(self, class: usize) -> bool {
        class < 32 && self.0 & (1 << class) != 0
    }
    /// The classes in both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
    /// The set without `class`.
    #[must_use]
    pub const fn without(self, class: usize) -> Self {
        Self(self.0 & !(1 << class))
    }
}

/// A kind of worker: CPU threads, the thread of a hardware engine, …
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Class {
    /// For reports and thread names.
    pub name: &'static str,
    /// Where its rows are made.
    pub device: Device,
    /// Threads.
    pub workers: NonZeroUsize,
    /// Jobs that one worker takes at a time, at most.
    pub batch: NonZeroUsize,
}

/// A recipe for workers, shared by all threads.
pub trait Decoder: Debug + Send + Sync + 'static {
    /// Short name for reports.
    fn name(&self) -> &'static str;
    /// The kinds of workers it runs.
    fn classes(&self) -> &[Class];
    /// Which classes may take this sample.
    fn route(&self, _sample: &Sample) -> ClassSet {
        ClassSet::ALL
    }
    /// Most bytes of scratch that one worker of `class` holds; counted in `memory_budget`.
    fn scratch_bytes(&self, class: usize) -> u64;
    /// Makes worker `n` of `class`, on the thread that will use it. `programs` has an entry for each field of the
    /// schema: the lowered transform of images, `None` for the rest (the engine writes those itself).
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>>;
}

/// Does jobs on one thread. Not `Send`: born, used and dropped there.
pub trait Worker {
    /// Takes a job. May do it at once or start it.
    fn submit(&mut self, job: Job);
    /// Gives back finished jobs, in any order. With [`Wait::Block`] waits for one unless none is in progress.
    fn poll(&mut self, wait: Wait) -> Vec<Finished>;
}

/// Whether [`Worker::poll`] may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return what is finished.
    Now,
    /// Wait for at least one job in progress.
    Block,
}

/// Some rows of one batch.
#[derive(Debug)]
#[non_exhaustive]
pub struct Job {
    /// Told back in [`Finished`].
    pub tag: u64,
    /// What to decode, in row order.
    pub items: Vec<Item>,
    /// For each field of the schema, the rows to write: row `i` belongs to `items[i]`.
    pub rows: Vec<Rows>,
}

/// One sample of a [`Job`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Item {
    /// Index in the dataset.
    pub record: u64,
    /// Draws for this sample in this epoch.
    pub rng: SampleRng,
    /// Its fields; a failed read is an error that the worker passes through as the outcome.
    pub sample: Result<Sample>,
}

/// A job that is done, rows and all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The job, with its rows written where the outcome says `Done`.
    pub job: Job,
    /// One for each item.
    pub outcomes: Vec<Outcome>,
    /// Time spent decoding, summed over items.
    pub decode: Duration,
    /// Time spent resampling, summed over items.
    pub transform: Duration,
}

/// What became of one row.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Every image field is written.
    Done,
    /// The sample can't be used; the row's bytes are unspecified.
    Failed(Error),
    /// Try again with these classes.
    Elsewhere(ClassSet),
}

/// Turns one kind of image file into pixels on the CPU. One file in this folder each; add your own with
/// `LoaderBuilder::codec`.
pub trait ImageCodec: Debug + Send + Sync + 'static {
    /// Short lower-case name: `jpeg`.
    fn name(&self) -> &'static str;
    /// Whether a file that begins with these bytes (up to 64) is of this kind.
    fn recognises(&self, head: &[u8]) -> bool;
    /// Reads the header. `channels` and `dtype` are what `decode` will give.
    fn info(&self, bytes: &[u8]) -> Result<ImageInfo>;
    /// Decodes at least `rows` of the image into `out` (reusing its memory), all columns, interleaved.
    fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: std::ops::Range<u32>, out: &mut PixelBuffer) -> Result<()>;
}

/// Memory for decoded pixels, reused from image to image.
#[derive(Debug, Default)]
pub struct PixelBuffer {
    /// The rows of the image that are held, all columns.
    pub rows: std::ops::Range<u32>,
    /// Interleaved pixels in the machine's byte order.
    pub data: Vec<u8>,
}

impl Class {
    /// A class whose workers take one job at a time.
    #[must_use]
    pub const fn new(name: &'static str, device: Device, workers: NonZeroUsize) -> Self {
        Self { name, device, workers, batch: NonZeroUsize::MIN }
    }
}

impl Finished {
    /// A job with one outcome for each of its items; the times are zero until set.
    #[must_use]
    pub const fn new(job: Job, outcomes: Vec<Outcome>) -> Self {
        Self { job, outcomes, decode: Duration::ZERO, transform: Duration::ZERO }
    }
}
/// stub
#[derive(Debug)]
pub struct Cpu(Vec<Class>);
impl Cpu { pub fn new(n: NonZeroUsize, _: u64) -> Self { Self(vec![Class::new("cpu", Device::Cpu, n)]) } pub fn codecs(self, _: Vec<Arc<dyn ImageCodec>>) -> Self { self } }
impl Decoder for Cpu {
    fn name(&self) -> &'static str { "cpu" }
    fn classes(&self) -> &[Class] { &self.0 }
    fn scratch_bytes(&self, _class: usize) -> u64 { 0 }
    fn worker(&self, _class: usize, _n: usize, _programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> { Ok(Box::new(W(vec![]))) }
}
struct W(Vec<Finished>);
impl Worker for W {
    fn submit(&mut self, job: Job) { let o = job.items.iter().map(|i| match &i.sample { Ok(_) => Outcome::Done, Err(e) => Outcome::Failed(e.clone()) }).collect(); self.0.push(Finished::new(job, o)); }
    fn poll(&mut self, _: Wait) -> Vec<Finished> { std::mem::take(&mut self.0) }
}
