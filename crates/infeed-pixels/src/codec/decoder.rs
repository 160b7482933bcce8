//! Decoders, their classes of workers, and the jobs that the engine gives them.

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
/// use infeed::{Loader, codec::GpuSplit};
///
/// # let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=2").await?;
/// // Two runs shall give the same bytes, also on a GPU.
/// let loader = Loader::builder(dataset).gpu_split(GpuSplit::Fixed).batch_size(16).build().await?;
/// assert_eq!(loader.config().gpu_split, GpuSplit::Fixed);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GpuSplit {
    /// Any idle decoder takes the next image. Fastest. Which decoder made a row can change some of its pixels by a
    /// level or a few.
    #[default]
    Adaptive,
    /// The file's header and the record index alone decide which decoder takes an image: repeated runs on one machine
    /// give the same bytes.
    Fixed,
}

/// What decodes JPEGs when batches are made on a GPU.
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use infeed::{Device, Loader, codec::Decode};
///
/// # let dataset = infeed::open("/data/imagenet/train").await?;
/// // A run that counts on the GPU's JPEG engines must not start without them.
/// let loader = Loader::builder(dataset).device(Device::Cuda(0)).decode(Decode::Gpu).build().await?;
/// println!("{:?}", loader.epoch(0).report().decoded_by);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Decode {
    /// CPU threads decode. While the trainer waits, the GPU's JPEG engines and CUDA streams help, if the machine has
    /// them. What is missing is logged in one line.
    #[default]
    Auto,
    /// The engines decode first; this takes a fifth of the CPU time. If they are not available, `build()` returns an
    /// error that names what is missing. CPU threads help while the trainer waits or no whole batch is ready, and they
    /// decode the JPEGs that nvJPEG does not support. If the engines fail later, the loader warns and goes on, as with
    /// `Auto`.
    Gpu,
    /// Only CPU threads. nvJPEG is not loaded.
    Cpu,
}

/// A set of worker classes of one decoder, by index; at most 32.
///
/// ```
/// use infeed::spi::ClassSet;
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
/// use infeed::{Device, spi::Class};
///
/// let threads = |n| NonZeroUsize::new(n).expect("not 0");
/// // Four threads that read and decode, and one that takes up to 32 jobs which they route to it.
/// let reading = Class::new("cpu", Device::Cpu, threads(4));
/// let mut engine = Class::new("engine", Device::Cpu, threads(1));
/// (engine.batch, engine.reads) = (threads(32), false);
/// assert!(reading.reads);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Class {
    /// Name in reports and thread names.
    pub name: &'static str,
    /// The device on which its rows are made.
    pub device: Device,
    /// Number of threads.
    pub workers: NonZeroUsize,
    /// Most jobs that one worker takes at a time.
    pub batch: NonZeroUsize,
    /// Whether its workers also read records. Workers of other classes get samples that a reading worker has read and
    /// [`route`](Decoder::route)d to them, one sample per job. At least one class of a decoder must read.
    pub reads: bool,
}

impl Class {
    /// A class whose workers take one job at a time.
    #[must_use]
    pub const fn new(name: &'static str, device: Device, workers: NonZeroUsize) -> Self {
        Self { name, device, workers, batch: NonZeroUsize::MIN, reads: true }
    }
}

/// Makes the workers of a loader; all threads share it. Pass your own to `LoaderBuilder::decoder` and check it with
/// [`decoder_contract`](super::decoder_contract()). `examples/custom_decoder.rs` is an example.
///
/// ```
/// # use futures::StreamExt;
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::{codec::codecs, spi::{Class, Cpu, Decoder, Lowered, Worker}};
///
/// /// Decodes as [`Cpu`] does, and prints which threads it starts.
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
    /// The classes of workers that it has.
    fn classes(&self) -> &[Class];
    /// Returns the classes that may take this sample; the first idle one takes it. Called once for each sample that was
    /// read without an error, by the worker that read it, and only if the decoder has several classes. An
    /// implementation that parses the image's header stores it in [`Item::header`], so that it is not parsed again.
    fn route(&self, _item: &mut Item) -> ClassSet {
        ClassSet::ALL
    }
    /// Most bytes of host memory that one worker of `class` holds, including page-locked memory. They count in
    /// `memory_budget`.
    fn scratch_bytes(&self, class: usize) -> u64;
    /// Most bytes of device memory that one worker of `class` holds. They count in `device_budget`.
    fn device_bytes(&self, _class: usize) -> u64 {
        0
    }
    /// Makes worker `n` of `class`; called on the thread that will use it. `programs` has an entry for each field of
    /// the schema: the lowered transform of an image field, or `None` for other fields, which the engine writes itself.
    /// Fields that are [views](Lowered::view) of one image follow one another, and their values are the same file.
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>>;
}

/// Does jobs on one thread. It need not be `Send`: it is made, used and dropped on that thread.
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{codec::codecs, dataset::{Sample, Value}, spi::{Cpu, Decoder, Item, Lowered, Rows, SampleRng}};
/// use std::time::Duration;
///
/// use infeed::spi::{Finished, Job, Wait, Worker};
///
/// /// Measures the time of another worker.
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
    /// Takes a job. It may do the job now or only start it.
    fn submit(&mut self, job: Job);
    /// Returns finished jobs in any order. Their rows are written, also on a GPU. With [`Wait::Block`] it waits for a
    /// job to finish. If it can take more jobs, it waits for at most a fraction of a millisecond and may return none;
    /// the engine then calls it again.
    fn poll(&mut self, wait: Wait) -> Vec<Finished>;
}

/// Whether [`Worker::poll`] may wait.
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{
/// #     codec::codecs,
/// #     dataset::{Sample, Value},
/// #     spi::{Cpu, Decoder, Item, Job, Lowered, Rows, SampleRng},
/// # };
/// use infeed::spi::Wait;
///
/// # let sample = Ok(Sample::new([Value::Label(3)]));
/// # let item = Item::new(0, SampleRng::new(1, 0, 0), sample);
/// # let job = Job::new(7, vec![item], vec![Rows::zeroed(1, 8)?]);
/// # let programs: Arc<[Option<Lowered>]> = vec![None].into();
/// # let mut worker = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20).worker(0, 0, &programs)?;
/// worker.submit(job);
/// // What the engine does when it has no further job for this worker.
/// let finished = worker.poll(Wait::Block);
/// assert_eq!(finished.len(), 1);
/// assert!(worker.poll(Wait::Now).is_empty());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Do not wait: return what is finished.
    Now,
    /// Wait for at least one job in progress.
    Block,
}

/// Some rows of one batch.
///
/// ```
/// use infeed::{dataset::{Sample, Value}, spi::{Item, Job, Rows, SampleRng}};
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
    /// Returned unchanged in [`Finished`].
    pub tag: u64,
    /// The samples to decode, in row order.
    pub items: Vec<Item>,
    /// For each field of the schema, the rows to write: row `i` belongs to `items[i]`.
    pub rows: Vec<Rows>,
}

impl Job {
    /// A job as the engine makes them. `rows` has one entry for each field of the schema, each with as many rows as
    /// there are `items`.
    #[must_use]
    pub const fn new(tag: u64, items: Vec<Item>, rows: Vec<Rows>) -> Self {
        Self { tag, items, rows }
    }
}

/// One sample of a [`Job`].
///
/// ```
/// use infeed::{Error, ErrorKind, spi::{Item, SampleRng}};
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
    /// The values of its fields. If the read failed, the error, which the worker returns as the outcome.
    pub sample: Result<Sample>,
    /// The header of the sample's only image, if [`Decoder::route`] parsed it; made by the codec that will decode the
    /// image.
    pub header: Option<ImageHeader>,
    /// The device on which the batch is made; the same for all items of a job. Only a decoder that serves several
    /// devices needs it.
    pub device: Device,
    /// Height and width of the rows of its batch, if they differ from batch to batch: use [`Lowered::of_size`].
    /// Otherwise `None`.
    pub size: Option<[u32; 2]>,
    /// Receives the sample once its images are decoded whole, if somebody keeps them for later epochs.
    #[doc(hidden)]
    pub keep: Option<Box<dyn KeepPixels>>,
}

/// Keeps samples whose images were decoded whole, for later epochs.
pub trait KeepPixels: Debug + Send {
    /// Takes a sample whose images are now pixels.
    fn keep(&self, sample: &Sample);
}

impl Item {
    /// A sample for a batch in host memory, without a parsed header.
    #[must_use]
    pub const fn new(record: u64, rng: SampleRng, sample: Result<Sample>) -> Self {
        Self { record, rng, sample, header: None, device: Device::Cpu, size: None, keep: None }
    }
}

/// A finished job, with its rows.
///
/// ```
/// # use std::{num::NonZeroUsize, sync::Arc};
/// # use infeed::{
/// #     codec::codecs,
/// #     dataset::{Sample, Value},
/// #     spi::{Cpu, Decoder, Item, Job, Lowered, Rows, SampleRng},
/// # };
/// use infeed::spi::{Finished, Outcome};
///
/// # let sample = Ok(Sample::new([Value::Label(3)]));
/// # let item = Item::new(0, SampleRng::new(1, 0, 0), sample);
/// # let job = Job::new(7, vec![item], vec![Rows::zeroed(1, 8)?]);
/// # let programs: Arc<[Option<Lowered>]> = vec![None].into();
/// // What a worker returns for a job whose rows it has written.
/// let outcomes = job.items.iter().map(|_| Outcome::Done).collect();
/// let finished = Finished::new(job, outcomes);
/// assert_eq!((finished.job.tag, finished.images), (7, 1));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The job. Its rows are written where the outcome is `Done`.
    pub job: Job,
    /// One outcome for each item.
    pub outcomes: Vec<Outcome>,
    /// Number of images that were decoded. `new` sets it to one for each item.
    pub images: u64,
    /// Time spent decoding, summed over items.
    pub decode: Duration,
    /// Time spent resampling, summed over items.
    pub transform: Duration,
    /// GPU time since the worker's last finished job, if any.
    pub device: DeviceTimes,
}

impl Finished {
    /// A finished job with one outcome for each of its items. Its times are zero until you set them.
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
/// use infeed::{Error, spi::{ClassSet, Outcome}};
///
/// /// An engine decodes small images, sends larger ones to the first class, and fails on broken ones.
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
    /// This worker can't decode it: give the sample to one of these classes.
    Elsewhere(ClassSet),
}
