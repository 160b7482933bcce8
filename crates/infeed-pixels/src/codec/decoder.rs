//! What makes rows: decoders, their classes of workers, and the jobs between them and the engine.

use std::{fmt::Debug, num::NonZeroUsize, sync::Arc, time::Duration};

use infeed_core::{
    error::{Error, Result},
    random::SampleRng,
    report::DeviceTimes,
    rows::Rows,
    types::Device,
};
use infeed_data::Sample;

use super::ImageHeader;
use crate::transform::Lowered;

/// How decoders of different kinds share the images that several of them can decode.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Loader, codec::Split};
///
/// # let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=2").await?;
/// // Runs that are to repeat to the byte, on a GPU too.
/// let loader = Loader::builder(dataset).split(Split::Fixed).batch_size(16).build().await?;
/// assert_eq!(loader.config().split, Split::Fixed);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Whoever is idle takes the next image. Fastest; which decoder made a row decides a level or a few of its pixels.
    #[default]
    Adaptive,
    /// By the file's header and the record alone: runs on one machine repeat to the byte.
    Fixed,
}

/// Who decodes JPEGs where batches are made on a GPU.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Device, Loader, codec::Decode};
///
/// # let dataset = infeed::open("/data/imagenet/train").await?;
/// // A run that is planned with the engines, and is not to begin without them.
/// let loader = Loader::builder(dataset).device(Device::Cuda(0)).decode(Decode::Gpu).build().await?;
/// println!("{:?}", loader.epoch(0).report().decoded_by);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Decode {
    /// CPU threads as long as they keep the trainer's pace; beside them, while it waits, the GPU's JPEG engines and CUDA
    /// streams as far as they are there. What is missing is a line in the log.
    #[default]
    Auto,
    /// The engines first, for a fifth of the CPU time; a loader that can't have them is not built, and the error says what is
    /// missing. CPU threads help while the trainer waits or has no whole batch at hand, and have the JPEGs that nvJPEG does not
    /// take; engines that fail later are a warning, as on `Auto`.
    Gpu,
    /// CPU threads alone. nvJPEG is not even looked for.
    Cpu,
}

/// A set of worker classes of one decoder, by index; at most 32.
///
/// ```
/// use infeed::codec::ClassSet;
///
/// // Any class but the second.
/// let classes = ClassSet::ALL.without(1);
/// assert!(classes.contains(0) && !classes.contains(1));
/// assert_eq!(classes.and(ClassSet::only(1)), ClassSet::NONE);
/// ```
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
///
/// ```
/// use std::num::NonZeroUsize;
///
/// use infeed::{Device, codec::Class};
///
/// let threads = |n| NonZeroUsize::new(n).expect("not 0");
/// // Threads that read and decode, and one that takes up to 32 of what they leave to it.
/// let reading = Class::new("cpu", Device::Cpu, threads(4));
/// let mut engine = Class::new("engine", Device::Cpu, threads(1));
/// (engine.batch, engine.reads) = (threads(32), false);
/// assert!(reading.reads);
/// ```
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
///
/// ```
/// # use futures::StreamExt;
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::codec::{Class, Cpu, Decoder, Lowered, Worker, codecs};
///
/// /// Decodes as [`Cpu`] does, and tells of its threads.
/// #[derive(Debug)]
/// struct Told(Cpu);
///
/// impl Decoder for Told {
///     fn name(&self) -> &'static str {
///         "told"
///     }
///     fn classes(&self) -> &[Class] {
///         self.0.classes()
///     }
///     fn scratch_bytes(&self, class: usize) -> u64 {
///         self.0.scratch_bytes(class)
///     }
///     fn worker(&self, class: usize, n: usize, fields: &Arc<[Option<Lowered>]>) -> infeed::Result<Box<dyn Worker>> {
///         println!("thread {n} of {}", self.classes()[class].name);
///         self.0.worker(class, n, fields)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=2").await?;
/// let decoder = Told(Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20));
/// let loader = infeed::Loader::builder(dataset).decoder(Arc::new(decoder)).batch_size(16).build().await?;
/// # assert!(loader.epoch(0).next().await.is_some());
/// # Ok(()) }
/// ```
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
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{codec::{Cpu, Decoder, Item, Lowered, Rows, SampleRng, codecs}, dataset::{Sample, Value}};
/// use std::time::Duration;
///
/// use infeed::codec::{Finished, Job, Wait, Worker};
///
/// /// Measures another worker.
/// struct Timed {
///     worker: Box<dyn Worker>,
///     decode: Duration,
///     images: u64,
/// }
///
/// impl Worker for Timed {
///     fn submit(&mut self, job: Job) {
///         self.worker.submit(job);
///     }
///     fn poll(&mut self, wait: Wait) -> Vec<Finished> {
///         let finished = self.worker.poll(wait);
///         self.decode += finished.iter().map(|job| job.decode).sum::<Duration>();
///         self.images += finished.iter().map(|job| job.images).sum::<u64>();
///         finished
///     }
/// }
/// # let sample = Ok(Sample::new([Value::Label(3)]));
/// # let item = Item::new(0, SampleRng::new(1, 0, 0), sample);
/// # let job = Job::new(7, vec![item], vec![Rows::zeroed(1, 8)?]);
/// # let programs: Arc<[Option<Lowered>]> = vec![None].into();
/// # let worker = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20).worker(0, 0, &programs)?;
/// # let mut timed = Timed { worker, decode: Duration::ZERO, images: 0 };
/// # timed.submit(job);
/// # assert_eq!(timed.poll(Wait::Block).len(), 1);
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait Worker {
    /// Takes a job. May do it at once or start it.
    fn submit(&mut self, job: Job);
    /// Gives back finished jobs, in any order; their rows are written, on a GPU too. With [`Wait::Block`] waits for
    /// one, though not longer than a fraction of a millisecond when it can take more jobs: it may return none, and
    /// is asked again.
    fn poll(&mut self, wait: Wait) -> Vec<Finished>;
}

/// Whether [`Worker::poll`] may wait.
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{codec::{Cpu, Decoder, Item, Job, Lowered, Rows, SampleRng, codecs}, dataset::{Sample, Value}};
/// use infeed::codec::Wait;
///
/// # let sample = Ok(Sample::new([Value::Label(3)]));
/// # let item = Item::new(0, SampleRng::new(1, 0, 0), sample);
/// # let job = Job::new(7, vec![item], vec![Rows::zeroed(1, 8)?]);
/// # let programs: Arc<[Option<Lowered>]> = vec![None].into();
/// # let mut worker = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20).worker(0, 0, &programs)?;
/// worker.submit(job);
/// // What the engine does where it has no further job for this worker.
/// let finished = worker.poll(Wait::Block);
/// assert_eq!(finished.len(), 1);
/// assert!(worker.poll(Wait::Now).is_empty());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return what is finished.
    Now,
    /// Wait for at least one job in progress.
    Block,
}

/// Some rows of one batch.
///
/// ```
/// use infeed::{
///     codec::{Item, Job, Rows, SampleRng},
///     dataset::{Sample, Value},
/// };
///
/// // Two samples of a dataset whose only field is a label, as a test of a worker makes them.
/// let item = |record| {
///     let sample = Sample::new([Value::Label(3)]);
///     Item::new(record, SampleRng::new(1, 0, record), Ok(sample))
/// };
/// let rows = Rows::zeroed(2, 8)?;
/// let job = Job::new(7, vec![item(40), item(41)], vec![rows]);
/// assert_eq!(job.rows[0].rows(), job.items.len());
/// # Ok::<(), infeed::Error>(())
/// ```
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
///
/// ```
/// use infeed::{
///     Error, ErrorKind,
///     codec::{Item, SampleRng},
/// };
///
/// // A record that could not be read: a worker passes its error through.
/// let read = Err(Error::new(ErrorKind::NotFound, "the file is gone"));
/// let item = Item::new(40, SampleRng::new(1, 0, 40), read);
/// let error = item.sample.expect_err("it could not be read").at_record(item.record);
/// assert_eq!(error.to_string(), "not found: the file is gone (record 40)");
/// ```
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
    #[doc(hidden)]
    pub keep: Option<Box<dyn KeepPixels>>,
}

/// Takes samples whose images were decoded whole, for later epochs.
pub trait KeepPixels: Debug + Send {
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
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{codec::{Cpu, Decoder, Item, Job, Lowered, Rows, SampleRng, codecs}, dataset::{Sample, Value}};
/// use infeed::codec::{Finished, Outcome};
///
/// # let sample = Ok(Sample::new([Value::Label(3)]));
/// # let item = Item::new(0, SampleRng::new(1, 0, 0), sample);
/// # let job = Job::new(7, vec![item], vec![Rows::zeroed(1, 8)?]);
/// # let programs: Arc<[Option<Lowered>]> = vec![None].into();
/// // What a worker gives back of a job whose rows it has written.
/// let outcomes = job.items.iter().map(|_| Outcome::Done).collect();
/// let finished = Finished::new(job, outcomes);
/// assert_eq!((finished.job.tag, finished.images), (7, 1));
/// # Ok::<(), infeed::Error>(())
/// ```
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
///
/// ```
/// use infeed::{
///     Error,
///     codec::{ClassSet, Outcome},
/// };
///
/// /// An engine takes small pictures; larger ones go to the class that is the first, broken ones nowhere.
/// fn outcome(pixels: infeed::Result<u64>) -> Outcome {
///     match pixels {
///         Ok(0..=1_000_000) => Outcome::Done,
///         Ok(_) => Outcome::Elsewhere(ClassSet::only(0)),
///         Err(error) => Outcome::Failed(error),
///     }
/// }
/// assert!(matches!(outcome(Ok(640 * 480)), Outcome::Done));
/// assert!(matches!(outcome(Err(Error::corrupt("no size"))), Outcome::Failed(_)));
/// ```
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
