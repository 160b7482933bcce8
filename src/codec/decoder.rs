//! What makes rows: decoders, their classes of workers, and the jobs between them and the engine.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use super::ImageHeader;
use crate::{
    dataset::Sample,
    error::{Error, Result},
    random::SampleRng,
    report::DeviceTimes,
    sys::rows::Rows,
    transform::Lowered,
    types::Device,
};

/// How decoders of different kinds share the images that several of them can decode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Whoever is idle takes the next image. Fastest; which decoder made a row decides the last level of its pixels.
    #[default]
    Adaptive,
    /// By the file's header and the record alone: runs on one machine repeat to the byte.
    Fixed,
}

/// A set of worker classes of one decoder, by index; at most 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSet(pub u32);

impl ClassSet {
    /// Every class.
    pub const ALL: Self = Self(u32::MAX);
    /// No class.
    pub const NONE: Self = Self(0);
    /// One class.
    #[must_use]
    pub const fn only(class: usize) -> Self {
        Self(1 << class)
    }
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
    /// Whether its workers take records that nobody has read yet. The others get samples, one to a job, that such a
    /// worker has read and [`route`](Decoder::route)d to them. At least one class of a decoder reads.
    pub reads: bool,
}

impl Class {
    /// A class whose workers take one job at a time.
    #[must_use]
    pub const fn new(name: &'static str, device: Device, workers: NonZeroUsize) -> Self {
        Self { name, device, workers, batch: NonZeroUsize::MIN, reads: true }
    }
}

/// A recipe for workers, shared by all threads. Give yours to `LoaderBuilder::decoder`, and let
/// [`decoder_contract`](super::decoder_contract()) check it. `examples/custom_decoder.rs` has one.
pub trait Decoder: Debug + Send + Sync + 'static {
    /// Short name for reports.
    fn name(&self) -> &'static str;
    /// The kinds of workers it runs.
    fn classes(&self) -> &[Class];
    /// Which classes may take this sample, which was read without an error. Asked once for each sample when there are
    /// several, by the worker that read it: of the classes in the set, whichever is idle first takes it. What it has read
    /// of the image's header it leaves in [`Item::header`], so that nobody reads it again.
    fn route(&self, _item: &mut Item) -> ClassSet {
        ClassSet::ALL
    }
    /// Most bytes of host memory that one worker of `class` holds, page-locked bytes included; counted in
    /// `memory_budget`.
    fn scratch_bytes(&self, class: usize) -> u64;
    /// Most bytes of device memory that one worker of `class` holds; counted in `device_budget`.
    fn device_bytes(&self, _class: usize) -> u64 {
        0
    }
    /// Makes worker `n` of `class`, on the thread that will use it. `programs` has an entry for each field of the
    /// schema: the lowered transform of images, `None` for the rest (the engine writes those itself). Fields that are
    /// [views](Lowered::view) of one image follow one another, and their values are the same file.
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>>;
}

/// Does jobs on one thread. Not `Send`: born, used and dropped there.
pub trait Worker {
    /// Takes a job. May do it at once or start it.
    fn submit(&mut self, job: Job);
    /// Gives back finished jobs, in any order; their rows are written, on a GPU too. With [`Wait::Block`] waits for
    /// one, though not longer than a fraction of a millisecond when it can take more jobs: it may return none, and
    /// is asked again.
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

impl Job {
    /// A job as the engine makes them: for each field of the schema rows of as many samples as there are `items`.
    #[must_use]
    pub const fn new(tag: u64, items: Vec<Item>, rows: Vec<Rows>) -> Self {
        Self { tag, items, rows }
    }
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
    /// What [`Decoder::route`] has read of the header of the sample's only image, by the codec that decodes it.
    pub header: Option<ImageHeader>,
    /// Where its batch is made; the same for all items of a job. Of interest to a decoder that serves several devices.
    pub device: Device,
    /// Height and width of its batch's rows, where those of each batch have their own: make them with
    /// [`Lowered::of_size`].
    pub size: Option<[u32; 2]>,
    /// Who wants all pixels of its images.
    pub(crate) keep: Option<Box<dyn KeepPixels>>,
}

/// Takes samples whose images were decoded whole, for later epochs.
pub(crate) trait KeepPixels: Debug + Send {
    /// Takes a sample whose images are pixels.
    fn keep(&self, sample: &Sample);
}

impl Item {
    /// A sample whose header nobody has read yet, for a batch in host memory.
    #[must_use]
    pub const fn new(record: u64, rng: SampleRng, sample: Result<Sample>) -> Self {
        Self { record, rng, sample, header: None, device: Device::Cpu, size: None, keep: None }
    }
}

/// A job that is done, rows and all.
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The job, with its rows written where the outcome says `Done`.
    pub job: Job,
    /// One for each item.
    pub outcomes: Vec<Outcome>,
    /// Images that were decoded; one for each item until set.
    pub images: u64,
    /// Time spent decoding, summed over items.
    pub decode: Duration,
    /// Time spent resampling, summed over items.
    pub transform: Duration,
    /// Time on the GPU, if there was any since the worker's last finished job.
    pub device: DeviceTimes,
}

impl Finished {
    /// A job with one outcome for each of its items; the times are zero until set.
    #[must_use]
    pub const fn new(job: Job, outcomes: Vec<Outcome>) -> Self {
        let (decode, transform) = (Duration::ZERO, Duration::ZERO);
        let images = job.items.len() as u64;
        Self { job, outcomes, images, decode, transform, device: DeviceTimes::ZERO }
    }
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
