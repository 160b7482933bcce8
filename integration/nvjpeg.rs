//! nvJPEG's classes on the mock GPU: whoever decodes an image, its row has the CPU's bytes; a bad image costs its own
//! row and nobody else's; nothing is overwritten before it was read.

use std::{
    num::NonZeroUsize,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use infeed::{
    DType, Device, ErrorKind, LastBatch, Layout, Loader, LoaderBuilder, OnBadSample, Result, Transform,
    codec::{Decode, GpuSplit, ImageCodec, ImageHeader, Jpeg, PixelBuffer, codecs},
    dataset::{Dataset, FieldKind, MemoryDataset, SampleRng},
    device::devices,
    internal::{
        cuda::{Context, Kernels},
        kernels::{RowScratch, RowWork},
        nvjpeg::{BatchDecoder, Coded, Hardware, HardwareSize, Staged, look_in},
        rows::Pool,
    },
    spi::{
        Class, ClassSet, CudaRaw, Decoder, Finished, Item, Job, Lowered, NvJpeg, NvJpegOptions, NvJpegPlan, Outcome,
        Wait, Worker,
    },
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::support::{
    mock::{Mock, fails_on_mock, mock_apart, on_mock},
    skipped, until,
};

pub(crate) const CPU: &str = "cpu";
pub(crate) const HARDWARE: &str = "nvjpeg-hardware";
pub(crate) const HYBRID: &str = "nvjpeg-hybrid";
const CORES: &str = "nvjpeg-cores";

#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) size: (u16, u16),
    pub(crate) colour: ColorType,
    pub(crate) sampling: SamplingFactor,
    pub(crate) progressive: bool,
    pub(crate) restarts: u16,
}

pub(crate) const PLAIN: Made =
    Made { size: (90, 61), colour: ColorType::Rgb, sampling: SamplingFactor::F_2_2, progressive: false, restarts: 0 };

impl Made {
    /// A file whose pixels depend on `salt`.
    fn file(self, salt: u32) -> Vec<u8> {
        let (width, height) = self.size;
        let channels = match self.colour {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        };
        let mut draws = SampleRng::new(1, 2, salt.into()).op(0);
        let base = draws.below(100) as u32;
        let value = |n: u32| (base + n / channels % u32::from(width) + n % channels * 31 + n / 977 % 13 * 5) as u8;
        let pixels: Vec<u8> = (0..u32::from(width) * u32::from(height) * channels).map(value).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 85);
        encoder.set_sampling_factor(self.sampling);
        encoder.set_progressive(self.progressive);
        if self.restarts > 0 {
            encoder.set_restart_interval(self.restarts);
        }
        encoder.encode(&pixels, width, height, self.colour).unwrap();
        file
    }
}

/// With an order to the mock, in a comment.
fn ordered(file: &[u8], order: &str) -> Vec<u8> {
    let mut made = vec![0xff, 0xd8, 0xff, 0xfe];
    made.extend((order.len() as u16 + 2).to_be_bytes());
    made.extend(order.as_bytes());
    made.extend(&file[2..]);
    made
}

/// Files that engines take, of all kinds and many sizes.
pub(crate) fn ordinary(count: u32) -> Vec<Vec<u8>> {
    let kinds = [
        PLAIN,
        Made { sampling: SamplingFactor::F_1_1, ..PLAIN },
        Made { sampling: SamplingFactor::F_2_1, ..PLAIN },
        Made { sampling: SamplingFactor::F_1_2, ..PLAIN },
        Made { colour: ColorType::Luma, ..PLAIN },
        Made { restarts: 2, ..PLAIN },
    ];
    let size = |n: u32| (40 + (n * 37 % 120) as u16, 33 + (n * 53 % 140) as u16);
    (0..count).map(|n| Made { size: size(n), ..kinds[n as usize % kinds.len()] }.file(n)).collect()
}

/// Files that only hybrid takes.
pub(crate) fn odd() -> Vec<Vec<u8>> {
    let progressive = Made { progressive: true, ..PLAIN };
    let kinds = [
        progressive,
        Made { sampling: SamplingFactor::F_4_1, ..progressive },
        Made { sampling: SamplingFactor::F_4_2, ..progressive },
        Made { colour: ColorType::Luma, ..progressive },
        Made { colour: ColorType::Cmyk, sampling: SamplingFactor::F_1_1, ..PLAIN },
        Made { colour: ColorType::CmykAsYcck, sampling: SamplingFactor::F_1_1, ..PLAIN },
        Made { size: (333, 257), ..progressive },
    ];
    kinds.iter().zip(0..).map(|(made, salt)| made.file(salt)).collect()
}

/// What became of each image, told by the class that had it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    record: u64,
    class: &'static str,
    outcome: &'static str,
}

/// [`NvJpeg`] that tells what happens, and routes everything to one class if told so.
#[derive(Debug)]
pub(crate) struct Watched {
    inner: NvJpeg,
    only: Option<&'static str>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

struct Watching {
    inner: Box<dyn Worker>,
    class: &'static str,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Watched {
    /// Whose rows are the same to the bit on the mock whoever decodes: the CPU gives pixels, too.
    pub(crate) fn new(threads: usize, options: NvJpegOptions, only: Option<&'static str>) -> Arc<Self> {
        Self::make(threads, options, only, as_pixels(), RowScratch::default())
    }

    /// With room for whatever a transform does to pictures of 224x224.
    pub(crate) fn with_steps(only: Option<&'static str>) -> Arc<Self> {
        Self::make(2, options(), only, as_pixels(), RowScratch { scratch: 4 << 20, page: 1 << 20 })
    }

    pub(crate) fn with_codecs(codecs: Vec<Arc<dyn ImageCodec>>, only: Option<&'static str>) -> Arc<Self> {
        Self::make(2, options(), only, codecs, RowScratch::default())
    }

    fn make(
        threads: usize,
        options: NvJpegOptions,
        only: Option<&'static str>,
        codecs: Vec<Arc<dyn ImageCodec>>,
        room: RowScratch,
    ) -> Arc<Self> {
        let context = Context::open(0).unwrap();
        let kernels = Kernels::load(&context).unwrap();
        let threads = NonZeroUsize::new(threads).unwrap();
        let raw = CudaRaw::new(threads, codecs, 64 << 20, &kernels, 1 << 20).with_steps(room);
        let inner = NvJpeg::new(raw, NvJpegPlan::find(&context, options));
        Arc::new(Self { inner, only, seen: Arc::default() })
    }

    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.classes().iter().map(|class| class.name).collect()
    }

    /// In the order of records.
    fn seen(&self) -> Vec<Seen> {
        let mut seen = self.seen.lock().unwrap().clone();
        // Stable: what happened to a record stays in order.
        seen.sort_by_key(|seen| seen.record);
        seen
    }

    pub(crate) fn count(&self, class: &str, outcome: &str) -> usize {
        self.seen().iter().filter(|seen| (seen.class, seen.outcome) == (class, outcome)).count()
    }
}

impl Decoder for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }
    fn classes(&self) -> &[Class] {
        self.inner.classes()
    }
    fn route(&self, item: &mut Item) -> ClassSet {
        let routed = self.inner.route(item);
        match self.only {
            Some(only) => ClassSet::only(self.names().iter().position(|name| *name == only).unwrap()),
            None => routed,
        }
    }
    fn scratch_bytes(&self, class: usize) -> u64 {
        self.inner.scratch_bytes(class)
    }
    fn device_bytes(&self, class: usize) -> u64 {
        self.inner.device_bytes(class)
    }
    fn worker(&self, class: usize, n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        let inner = self.inner.worker(class, n, programs)?;
        Ok(Box::new(Watching { inner, class: self.names()[class], seen: Arc::clone(&self.seen) }))
    }
}

impl Worker for Watching {
    fn submit(&mut self, job: Job) {
        self.inner.submit(job);
    }
    fn poll(&mut self, wait: Wait) -> Vec<Finished> {
        let finished = self.inner.poll(wait);
        let mut seen = self.seen.lock().unwrap();
        for (item, outcome) in finished.iter().flat_map(|done| done.job.items.iter().zip(&done.outcomes)) {
            let outcome = match outcome {
                Outcome::Done => "done",
                Outcome::Failed(_) => "failed",
                _ => "elsewhere",
            };
            seen.push(Seen { record: item.record, class: self.class, outcome });
        }
        finished
    }
}

pub(crate) fn dataset(files: &[Vec<u8>]) -> Arc<dyn Dataset> {
    let labels = (0..files.len() as i64).collect();
    let files = files.iter().map(|file| Bytes::from(file.clone())).collect();
    Arc::new(MemoryDataset::builder().encoded_images(files).labels(labels).build().unwrap())
}

fn crop() -> Transform {
    Transform::new().random_resized_crop(24).horizontal_flip(0.5)
}

fn loader(files: &[Vec<u8>]) -> LoaderBuilder {
    let builder = Loader::builder(dataset(files)).device_auto().batch_size(16).last_batch(LastBatch::Partial);
    builder.transform(crop()).seed(3)
}

/// The bytes of each row.
pub(crate) fn rows(loader: &Loader) -> Result<Vec<Vec<u8>>> {
    let mut rows = Vec::new();
    for batch in loader.epoch(0).blocking() {
        let batch = batch?;
        let image = batch["image"].to_host()?;
        let len = image.row_bytes();
        let bytes = image.bytes().unwrap();
        rows.extend(bytes.chunks_exact(len).take(batch.valid()).map(<[u8]>::to_vec));
    }
    Ok(rows)
}

/// A [`Jpeg`] that gives pixels, as a GPU takes them, where the CPU's resampling takes planes; and may leave its files to
/// the GPU's decoders.
#[derive(Debug)]
pub(crate) struct AsPixels {
    pub(crate) jpeg: Jpeg,
    pub(crate) interchangeable: bool,
}

impl AsPixels {
    /// The built-in one, whose files nobody else decodes.
    pub(crate) const fn new() -> Self {
        Self { jpeg: Jpeg::new(), interchangeable: false }
    }
    /// For loaders of a GPU: rows are the same to the bit on the mock, whoever decodes.
    pub(crate) fn for_all() -> Arc<Self> {
        Arc::new(Self { jpeg: Jpeg::new(), interchangeable: true })
    }
}

impl ImageCodec for AsPixels {
    fn name(&self) -> &'static str {
        "jpeg"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        self.jpeg.recognises(head)
    }
    fn is_interchangeable(&self) -> bool {
        self.interchangeable
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        self.jpeg.header(bytes)
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        self.jpeg.decode(bytes, header, rows, out)
    }
}

/// The built-in codecs, of which that for JPEGs gives pixels.
fn as_pixels() -> Vec<Arc<dyn ImageCodec>> {
    let jpeg: Arc<dyn ImageCodec> = AsPixels::for_all();
    std::iter::once(jpeg).chain(codecs()).collect()
}

/// A user's codec: negatives of JPEGs.
#[derive(Debug)]
struct Inverting;

impl ImageCodec for Inverting {
    fn name(&self) -> &'static str {
        "negative"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        Jpeg::new().recognises(head)
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        Jpeg::new().header(bytes)
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        Jpeg::new().decode(bytes, header, rows, out)?;
        out.data.iter_mut().for_each(|value| *value = !*value);
        Ok(())
    }
}

/// [`Jpeg`] that counts how often it reads a header. Nobody else reads any: what decodes takes them from here.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl ImageCodec for Counting {
    fn name(&self) -> &'static str {
        "jpeg"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        Jpeg::new().recognises(head)
    }
    fn is_interchangeable(&self) -> bool {
        true
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Jpeg::new().header(bytes)
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        Jpeg::new().decode(bytes, header, rows, out)
    }
}

#[test]
fn a_header_is_read_once_on_the_cpu() {
    let counting = Arc::new(Counting::default());
    let files = [ordinary(40), odd()].concat();
    let codec = Arc::clone(&counting) as Arc<dyn ImageCodec>;
    let loader = loader(&files).device(Device::Cpu).codec(codec).workers(2).build_blocking().unwrap();
    assert_eq!(rows(&loader).unwrap().len(), files.len());
    assert_eq!(counting.0.load(Ordering::Relaxed), files.len());
}

#[test]
fn a_header_is_read_once_whoever_decodes_the_image() {
    on_mock("nvjpeg::a_header_is_read_once_whoever_decodes_the_image", &[], |mock| {
        begin(mock);
        let files = mixture();
        // Engines that are offered what they can't do give it away: the header goes with it.
        for only in [None, Some(CPU), Some(HARDWARE), Some(HYBRID)] {
            let counting = Arc::new(Counting::default());
            let decoder = Watched::with_codecs(vec![Arc::clone(&counting) as Arc<dyn ImageCodec>], only);
            assert_eq!(on_gpu(loader(&files), &decoder).unwrap().len(), files.len());
            assert_eq!(counting.0.load(Ordering::Relaxed), files.len(), "{only:?}");
        }
    });
}

fn on_cpu(loader: LoaderBuilder) -> Vec<Vec<u8>> {
    rows(&loader.device(Device::Cpu).codec(Arc::new(AsPixels::new())).workers(1).build_blocking().unwrap()).unwrap()
}

fn on_gpu(loader: LoaderBuilder, decoder: &Arc<Watched>) -> Result<Vec<Vec<u8>>> {
    let decoder: Arc<dyn Decoder> = Arc::<Watched>::clone(decoder);
    rows(&loader.decoder(decoder).build_blocking()?)
}

#[track_caller]
fn same(found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    let other: Vec<usize> = (0..found.len()).filter(|n| found[*n] != expected[*n]).collect();
    assert!(other.is_empty(), "rows {other:?} of {} differ from the CPU's", found.len());
}

/// Runs the files through the decoder and compares with the CPU.
#[track_caller]
fn equal_the_cpu(files: &[Vec<u8>], decoder: &Arc<Watched>) {
    same(&on_gpu(loader(files), decoder).unwrap(), &on_cpu(loader(files)));
}

pub(crate) fn options() -> NvJpegOptions {
    NvJpegOptions::default().with_streams(2).with_engine_threads(NonZeroUsize::MIN)
}

/// Contexts stay until the process ends.
fn begin(mock: &Mock) {
    mock.allow_leaks_of("context");
    mock.register_decoder();
}

#[test]
fn each_class_makes_the_cpus_rows() {
    on_mock("nvjpeg::each_class_makes_the_cpus_rows", &[], |mock| {
        begin(mock);
        let large = Made { size: (1300, 800), ..PLAIN }.file(1);
        let mut hybrid = [odd(), ordinary(6)].concat();
        hybrid.push(large);
        for (class, files) in [(CPU, ordinary(20)), (HARDWARE, ordinary(200)), (HYBRID, hybrid)] {
            let decoder = Watched::new(2, options(), Some(class));
            assert_eq!(decoder.names(), [CPU, HARDWARE, HYBRID]);
            equal_the_cpu(&files, &decoder);
            assert_eq!(decoder.count(class, "done"), files.len(), "{class}: {:?}", decoder.seen());
        }
        let counts = mock.counts();
        let batches = counts.calls("nvjpegDecodeBatchedEx");
        assert!((200 / 35..200).contains(&batches), "{batches} batches of 200 images");
        assert_eq!(counts.total("engine_pixels"), 0, "planes take nvJPEG a fifth of the time");
        assert_eq!(counts.calls("nvjpegDecodeJpegDevice"), 14);
        // One for each backend.
        assert!(counts.calls("nvjpegDecoderCreate") >= 2);
    });
}

/// A mixture, by header and record.
pub(crate) fn mixture() -> Vec<Vec<u8>> {
    let mut files = ordinary(60);
    odd().into_iter().zip(0..).for_each(|(file, n)| files.insert(n * 7, file));
    files
}

fn mixed_files_find_their_way(mock: &Mock) {
    begin(mock);
    let files = mixture();
    for split in [GpuSplit::Adaptive, GpuSplit::Fixed] {
        let decoder = Watched::new(2, options().with_split(split), None);
        equal_the_cpu(&files, &decoder);
        let seen = decoder.seen();
        assert_eq!(seen.len(), files.len(), "no image was given away: {seen:?}");
        assert!(seen.iter().all(|seen| seen.outcome == "done"));
        if split == GpuSplit::Fixed {
            let again = Watched::new(2, options().with_split(split), None);
            equal_the_cpu(&files, &again);
            assert_eq!(seen, again.seen(), "the same class for each image");
            assert!(decoder.count(HARDWARE, "done") > 10 && decoder.count(CPU, "done") > 5, "{seen:?}");
            assert_eq!(decoder.count(HYBRID, "done"), odd().len());
        }
    }
}

#[test]
fn mixed_files_find_their_way_when_work_is_late() {
    on_mock("nvjpeg::mixed_files_find_their_way_when_work_is_late", &[], mixed_files_find_their_way);
}

#[test]
fn mixed_files_find_their_way_when_work_is_early() {
    let env = [("INFEED_MOCK_SEED", "5")];
    on_mock("nvjpeg::mixed_files_find_their_way_when_work_is_early", &env, mixed_files_find_their_way);
}

#[test]
fn a_report_says_which_class_decoded_how_many_images() {
    on_mock("nvjpeg::a_report_says_which_class_decoded_how_many_images", &[], |mock| {
        begin(mock);
        let mut files = mixture();
        // Tried by the engines, and given away.
        files[1] = ordered(&files[1], "mock:unsupported");
        let bad = files.len() - 1;
        let len = files[bad].len();
        files[bad].truncate(len * 2 / 3);
        for (split, accounting) in [(GpuSplit::Adaptive, true), (GpuSplit::Fixed, true), (GpuSplit::Fixed, false)] {
            let loader =
                loader(&files).device(Device::Cuda(0)).gpu_split(split).workers(2).streams(2).accounting(accounting);
            let loader = loader.on_bad_sample(OnBadSample::Skip { at_most: 1 }).build_blocking().unwrap();
            let mut batches = loader.epoch(0).blocking();
            let delivered: u64 = batches.by_ref().map(|batch| batch.unwrap().valid() as u64).sum();
            assert_eq!(delivered, bad as u64);
            let by = batches.report().decoded_by;
            assert_eq!(by.keys().copied().collect::<Vec<_>>(), [CPU, HARDWARE, HYBRID]);
            assert_eq!(by.values().sum::<u64>(), delivered, "{by:?}");
            if split == GpuSplit::Fixed {
                assert!(by[HARDWARE] > 10 && by[CPU] > 5 && by[HYBRID] >= odd().len() as u64, "{by:?}");
            }
        }
    });
}

#[test]
fn engines_are_left_alone_where_cpu_threads_keep_the_trainers_pace() {
    let test = "nvjpeg::engines_are_left_alone_where_cpu_threads_keep_the_trainers_pace";
    on_mock(test, &[], |mock| {
        begin(mock);
        const ROWS: u64 = 2;
        const AHEAD: u64 = 3;
        let calm = |set: &dyn Fn(LoaderBuilder) -> LoaderBuilder| {
            let builder = set(loader(&ordinary(40)).device(Device::Cuda(0)).workers(2));
            let builder = builder.batch_size(ROWS as usize).prefetch(AHEAD as usize);
            let mut batches = builder.build_blocking().unwrap().epochs(0..u64::MAX).blocking();
            let (mut taken, mut since, mut count) = (0, 0, 0);
            // A trainer that comes when all that may be ahead is there.
            while since < 60 && taken < 1000 {
                let made = || batches.report().decoded_by.values().sum::<u64>() >= ROWS * (taken + AHEAD);
                until("all batches ahead are made", made);
                batches.next().unwrap().unwrap();
                taken += 1;
                let now = batches.report().decoded_by[HARDWARE];
                since = if now == count { since + 1 } else { 0 };
                count = now;
            }
            since
        };
        assert_eq!(calm(&|builder| builder), 60, "the engines go on");
        assert!(calm(&|builder| builder.decode(Decode::Gpu)) < 60, "the engines were asked for");
    });
}

/// A loader that makes batches on the GPU with this crate's own decoder.
fn decoded_by(files: &[Vec<u8>], who: Decode) -> LoaderBuilder {
    loader(files).device(Device::Cuda(0)).decode(who).workers(2)
}

#[test]
fn the_cpu_decodes_alone_where_it_is_to() {
    on_mock("nvjpeg::the_cpu_decodes_alone_where_it_is_to", &[], |mock| {
        begin(mock);
        let files = mixture();
        let loader = decoded_by(&files, Decode::Cpu).build_blocking().unwrap();
        let mut batches = loader.epoch(0).blocking();
        batches.by_ref().for_each(|batch| assert_eq!(batch.unwrap()["image"].device(), Device::Cuda(0)));
        assert_eq!(batches.report().decoded_by.into_iter().collect::<Vec<_>>(), [(CPU, files.len() as u64)]);
        // The CPU's rows of batches in host memory, to the bit.
        let in_host_memory = self::loader(&files).device(Device::Cpu).build_blocking().unwrap();
        same(&rows(&loader).unwrap(), &rows(&in_host_memory).unwrap());
        assert_eq!(mock.counts().created("nvjpeg handle"), 0, "nvJPEG was opened");
    });
}

#[test]
fn the_gpu_decodes_where_it_is_to_and_the_cpu_helps() {
    on_mock("nvjpeg::the_gpu_decodes_where_it_is_to_and_the_cpu_helps", &[], |mock| {
        begin(mock);
        let files = mixture();
        for (who, cut) in [(Decode::Auto, true), (Decode::Gpu, true), (Decode::Gpu, false)] {
            let builder = decoded_by(&files, who).codec(AsPixels::for_all());
            let loader = builder.gpu_split(GpuSplit::Fixed).decode_cut(cut).build_blocking().unwrap();
            assert_eq!((loader.config().decode, loader.config().decode_cut), (who, cut));
            same(&rows(&loader).unwrap(), &on_cpu(self::loader(&files)));
            let mut batches = loader.epoch(0).blocking();
            batches.by_ref().for_each(|batch| drop(batch.unwrap()));
            let by = batches.report().decoded_by;
            assert!(by[HARDWARE] > 10 && by[CPU] > 5, "{by:?}");
        }
        let each = decoded_by(&files, Decode::Gpu).build_each_blocking([Device::Cuda(0), Device::Cuda(0)]).unwrap();
        assert_eq!(each.iter().map(|loader| rows(loader).unwrap().len()).sum::<usize>(), files.len());
    });
}

#[test]
fn cut_files_make_engines_decode_fewer_rows() {
    on_mock("nvjpeg::cut_files_make_engines_decode_fewer_rows", &[], |mock| {
        begin(mock);
        let files = ordinary(60);
        let decoded_rows = |cut: bool| {
            let before = mock.counts().total("decoded_rows");
            let loader =
                decoded_by(&files, Decode::Gpu).gpu_split(GpuSplit::Fixed).decode_cut(cut).build_blocking().unwrap();
            rows(&loader).unwrap();
            mock.counts().total("decoded_rows") - before
        };
        let (cut, whole) = (decoded_rows(true), decoded_rows(false));
        assert!(0 < cut && cut < whole, "{cut} rows of cut files, {whole} of whole ones");
    });
}

#[test]
fn a_gpu_that_can_t_decode_is_an_error_where_it_is_to() {
    const WORDS: &str = "INFEED_TEST_WORDS";
    let test = "nvjpeg::a_gpu_that_can_t_decode_is_an_error_where_it_is_to";
    let cases = [
        ("INFEED_NVJPEG", "/nowhere/libnvjpeg.so.13", "/nowhere/libnvjpeg.so.13 not found; name another library"),
        ("INFEED_MOCK_FAIL", "nvjpegCreateEx:0:6", "the driver is too old for it (nvjpegCreateEx returned 6)"),
        ("INFEED_MOCK_ENGINES", "0", "this GPU has no JPEG engine"),
    ];
    for (name, value, words) in cases {
        on_mock(test, &[(name, value), (WORDS, words)], |mock| {
            mock.allow_leaks_of("context");
            mock.allow_leaks_of("nvjpeg handle");
            let words = std::env::var(WORDS).unwrap();
            let files = ordinary(4);
            for build in [
                decoded_by(&files, Decode::Gpu).build_blocking().map(drop),
                decoded_by(&files, Decode::Gpu).build_each_blocking([Device::Cuda(0)]).map(drop),
            ] {
                let error = build.unwrap_err();
                let said = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Device, "{said}");
                assert!(
                    said.contains("decode(Gpu) needs the JPEG engines of cuda:0: ") && said.contains(&words),
                    "{said}"
                );
                assert!(said.contains("leave decode on auto"), "{said}");
            }
            decoded_by(&files, Decode::Auto).build_blocking().unwrap();
        });
    }
}

#[test]
fn without_a_gpu_decoding_there_is_an_error() {
    let env = [("INFEED_MOCK_DEVICES", "0")];
    on_mock("nvjpeg::without_a_gpu_decoding_there_is_an_error", &env, |_| {
        let error = loader(&ordinary(4)).decode(Decode::Gpu).build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        let said = error.to_string();
        assert!(said.contains("decode(Gpu) needs a GPU: the driver sees no GPU"), "{said}");
        assert!(said.contains("leave decode on auto"), "{said}");
    });
}

#[test]
fn settings_that_leave_the_engines_nothing_are_errors_where_they_are_to_decode() {
    on_mock("nvjpeg::settings_that_leave_the_engines_nothing_are_errors_where_they_are_to_decode", &[], |mock| {
        begin(mock);
        let files = ordinary(20);
        let gpu = || decoded_by(&files, Decode::Gpu);
        let own = crop().custom("own", |_, _| Ok(()));
        let decoder: Arc<dyn Decoder> = Watched::new(1, options(), None);
        let on_host = [Device::Cuda(0), Device::Cpu];
        let config = [
            (gpu().device(Device::Cpu).build_blocking().map(drop), "decodes on a GPU, and device is cpu"),
            (gpu().build_each_blocking(on_host).map(drop), "decodes on a GPU, and device is cpu"),
            (
                gpu().codec(Arc::new(Inverting)).build_blocking().map(drop),
                "the codec `negative` decodes JPEGs only on the CPU",
            ),
            (gpu().transform(own).build_blocking().map(drop), "without custom steps"),
            (
                gpu().decoder(decoder).build_blocking().map(drop),
                "decode is for this crate's decoders, and watched is another",
            ),
        ];
        for (built, words) in config {
            let error = built.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{error}");
            assert!(error.to_string().contains(words) && error.to_string().contains("leave decode on auto"), "{error}");
        }
        let little = gpu().device_budget(1 << 20).build_blocking().unwrap_err();
        assert_eq!(little.kind(), ErrorKind::OutOfMemory, "{little}");
        assert!(little.to_string().contains("raise device_budget"), "{little}");
        // The plan holds, and then a thread does not get what it needs.
        mock.fail("nvjpegJpegStateCreate", 1, 6);
        let error = gpu().build_blocking().unwrap_err();
        assert!(error.to_string().contains("needs the JPEG engines of cuda:0: "), "{error}");
        // Nothing to decode is no fault.
        let pixels = infeed::open("synthetic://?count=8&height=8&width=8&classes=2").blocking().unwrap();
        let pixels = Loader::builder(pixels).batch_size(4).device(Device::Cuda(0)).decode(Decode::Gpu);
        assert_eq!(rows(&pixels.build_blocking().unwrap()).unwrap().len(), 8);
    });
}

#[test]
fn an_image_that_fails_costs_its_batch_a_second_try_and_nothing_more() {
    on_mock("nvjpeg::an_image_that_fails_costs_its_batch_a_second_try_and_nothing_more", &[], |mock| {
        begin(mock);
        for order in ["mock:once", "mock:batch", "mock:parse", "mock:unsupported"] {
            for place in [0, 13, 39] {
                let mut files = ordinary(40);
                // "mock:once" is remembered by its whole text.
                let order = if order == "mock:once" { format!("{order} {place}") } else { order.to_owned() };
                files[place] = ordered(&files[place], &order);
                let decoder = Watched::new(2, options(), Some(HARDWARE));
                equal_the_cpu(&files, &decoder);
                let away = decoder.count(HARDWARE, "elsewhere");
                // What fails once may be decoded by the second try, with whole files.
                assert!(away >= 1 || order.starts_with("mock:once"), "{order} at {place}: {:?}", decoder.seen());
                if matches!(&*order, "mock:parse" | "mock:unsupported") {
                    assert_eq!(away, 1, "only the image itself: {:?}", decoder.seen());
                }
                assert_eq!(decoder.count(HARDWARE, "failed") + decoder.count(HYBRID, "failed"), 0);
            }
        }
        let mut files = odd();
        files[2] = ordered(&files[2], "mock:host");
        files[4] = ordered(&files[4], "mock:parse");
        let decoder = Watched::new(2, options(), Some(HYBRID));
        equal_the_cpu(&files, &decoder);
        assert_eq!((decoder.count(HYBRID, "elsewhere"), decoder.count(CPU, "done")), (2, 2));
    });
}

#[test]
fn engines_that_always_fail_are_left_alone() {
    on_mock("nvjpeg::engines_that_always_fail_are_left_alone", &[], |mock| {
        begin(mock);
        mock.fail("nvjpegDecodeBatchedEx", 0, 6);
        let files = ordinary(200);
        // Theirs alone: otherwise the CPU may have decoded all before they failed for the third time.
        let decoder = Watched::new(2, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), 0);
        let calls = mock.counts().calls("nvjpegDecodeBatchedEx");
        assert!((3..=6).contains(&calls), "three batches, each once more with whole files if any was cut: {calls}");
    });
}

#[test]
fn engines_that_want_whole_files_get_them() {
    on_mock("nvjpeg::engines_that_want_whole_files_get_them", &[], |mock| {
        begin(mock);
        // Fails unless the frame is as high as it was.
        let files: Vec<Vec<u8>> = ordinary(200)
            .iter()
            .map(|file| ordered(file, &format!("mock:whole {}", Jpeg::new().info(file).unwrap().height)))
            .collect();
        let decoder = Watched::new(2, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), files.len(), "nothing was given away: {:?}", decoder.seen());
        let first = mock.counts().calls("nvjpegDecodeBatchedEx");
        // Told not to cut: no batch is decoded twice.
        let whole = Watched::new(2, options().with_streams(0).with_cut(false), Some(HARDWARE));
        equal_the_cpu(&files, &whole);
        assert_eq!(whole.count(HARDWARE, "done"), files.len());
        assert!(mock.counts().calls("nvjpegDecodeBatchedEx") <= 2 * first);
    });
}

#[test]
fn images_are_not_cut_to_what_engines_refuse() {
    let env = [("INFEED_MOCK_LEAST_SIDE", "64")];
    on_mock("nvjpeg::images_are_not_cut_to_what_engines_refuse", &env, |mock| {
        begin(mock);
        let size = |n: u16| Made { size: (64 + n % 90, 64 + n * 7 % 200), ..PLAIN };
        let files: Vec<Vec<u8>> = (0..150).map(|n| size(n).file(n.into())).collect();
        let decoder = Watched::new(2, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), files.len(), "{:?}", decoder.seen());
        // What is small from the start is refused, alone.
        let small = ordinary(30);
        let few = Watched::new(2, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&small, &few);
        let refused =
            small.iter().map(|file| Jpeg::new().info(file).unwrap()).filter(|i| i.width < 64 || i.height < 64);
        assert_eq!(few.count(HARDWARE, "elsewhere"), refused.count());
    });
}

#[test]
fn a_bad_image_does_not_end_the_cutting() {
    on_mock("nvjpeg::a_bad_image_does_not_end_the_cutting", &[], |mock| {
        begin(mock);
        let mut files = ordinary(120);
        files[50] = ordered(&files[50], "mock:batch");
        // Takes what is cut to its crop, and nothing else.
        let decoder = Watched::new(1, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&files, &decoder);
        assert!(decoder.count(HARDWARE, "elsewhere") >= 1 && decoder.count(HARDWARE, "done") > 50);
        let pixels = mock.counts().total("decoded_rows");
        let whole = Watched::new(1, options().with_streams(0).with_cut(false), Some(HARDWARE));
        equal_the_cpu(&files, &whole);
        let all = mock.counts().total("decoded_rows") - pixels;
        assert!(pixels < all, "{pixels} rows were decoded, {all} of whole files");
    });
}

#[test]
fn images_that_the_engines_leave_out_are_noticed() {
    on_mock("nvjpeg::images_that_the_engines_leave_out_are_noticed", &[], |mock| {
        begin(mock);
        // In the first batch, and in later ones, whose memory showed images of others.
        let mut files = ordinary(300);
        let places = [0, 33, 150, 151, 299];
        for place in places {
            files[place] = ordered(&files[place], "mock:skip");
        }
        let decoder = Watched::new(2, options(), Some(HARDWARE));
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "elsewhere"), places.len(), "{:?}", decoder.seen());
        // Engines that do nothing but that are left alone.
        let files: Vec<Vec<u8>> = ordinary(300).iter().map(|file| ordered(file, "mock:skip")).collect();
        let decoder = Watched::new(2, options().with_streams(0), Some(HARDWARE));
        let calls = || mock.counts().calls("nvjpegDecodeBatchedEx");
        let before = calls();
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), 0);
        let calls = calls() - before;
        assert!((3..=5).contains(&calls), "three batches, and two that flew when the third had landed: {calls}");
    });
}

#[test]
fn memory_of_a_batch_that_failed_is_left_alone_for_a_while() {
    on_mock("nvjpeg::memory_of_a_batch_that_failed_is_left_alone_for_a_while", &[], |mock| {
        begin(mock);
        let states = || mock.counts().created("nvjpeg state");
        let files = ordinary(200);
        let plain = Watched::new(1, options().with_streams(0), Some(HARDWARE));
        equal_the_cpu(&files, &plain);
        let usual = states();
        for place in [10, 60, 110] {
            let mut files = files.clone();
            files[place] = ordered(&files[place], "mock:batch");
            let decoder = Watched::new(1, options().with_streams(0), Some(HARDWARE));
            let before = states();
            equal_the_cpu(&files, &decoder);
            assert!(states() - before > usual, "the state that failed is used again");
        }
    });
}

#[test]
fn one_handle_is_enough() {
    on_mock("nvjpeg::one_handle_is_enough", &[], |mock| {
        begin(mock);
        let decoder = Watched::new(1, options().with_streams(0), Some(HARDWARE));
        // The plan has made its own; the worker's second is refused.
        mock.fail("nvjpegCreateEx", 2, 5);
        equal_the_cpu(&ordinary(120), &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), 120);
    });
}

#[test]
fn several_threads_may_feed_the_engines() {
    on_mock("nvjpeg::several_threads_may_feed_the_engines", &[], |mock| {
        begin(mock);
        let two = options().with_engine_threads(NonZeroUsize::new(2).unwrap());
        let decoder = Watched::new(2, two, Some(HARDWARE));
        equal_the_cpu(&ordinary(300), &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), 300);
        assert_eq!(decoder.classes()[1].workers.get(), 2);
    });
}

#[test]
fn the_gpus_cores_decode_batches_when_they_are_asked_to() {
    // Batches of 64 take 360 MB, and threads of the decoder before may not be gone yet.
    let env = [("INFEED_MOCK_MEMORY", "8589934592")];
    on_mock("nvjpeg::the_gpus_cores_decode_batches_when_they_are_asked_to", &env, |mock| {
        begin(mock);
        let asked = options().with_cores_batch(64);
        let decoder = Watched::new(2, asked, Some(CORES));
        assert_eq!(decoder.names(), [CPU, HARDWARE, CORES, HYBRID]);
        let mut files = ordinary(300);
        files[100] = ordered(&files[100], "mock:batch");
        equal_the_cpu(&files, &decoder);
        assert!(decoder.count(CORES, "done") > 200, "{:?}", decoder.seen());
        equal_the_cpu(&mixture(), &Watched::new(2, asked, None));
    });
}

#[test]
fn turned_images_of_a_codec_that_turns_them_are_turned_whoever_decodes() {
    on_mock("nvjpeg::turned_images_of_a_codec_that_turns_them_are_turned_whoever_decodes", &[], |mock| {
        begin(mock);
        let exif = |number: u8| {
            let mut segment = b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
            segment.extend([number, 0, 0, 0, 0, 0, 0, 0]);
            segment
        };
        let mut files = ordinary(120);
        for (n, file) in files.iter_mut().enumerate().filter(|(n, _)| n % 3 == 0) {
            file.splice(2..2, exif(1 + (n % 8) as u8));
        }
        let turning = || Arc::new(AsPixels { jpeg: Jpeg::new().orientation(true), interchangeable: true });
        let upright = loader(&files)
            .device(Device::Cpu)
            .codec(Arc::new(AsPixels { jpeg: Jpeg::new().orientation(true), interchangeable: false }));
        let expected = rows(&upright.workers(1).build_blocking().unwrap()).unwrap();
        assert!(expected != on_cpu(loader(&files)), "nothing is turned");
        for split in [GpuSplit::Adaptive, GpuSplit::Fixed] {
            let found = loader(&files).device(Device::Cuda(0)).gpu_split(split).codec(turning()).workers(2);
            same(&rows(&found.build_blocking().unwrap()).unwrap(), &expected);
        }
        // A codec that does more than the format says, and passes on the header of ours.
        let own = || loader(&files).codec(Arc::new(Inverting));
        let expected = rows(&own().device(Device::Cpu).workers(1).build_blocking().unwrap()).unwrap();
        let found = rows(&own().device(Device::Cuda(0)).workers(2).build_blocking().unwrap()).unwrap();
        same(&found, &expected);
    });
}

#[test]
fn an_image_too_large_for_a_batch_goes_elsewhere() {
    on_mock("nvjpeg::an_image_too_large_for_a_batch_goes_elsewhere", &[], |mock| {
        begin(mock);
        let mut files = ordinary(30);
        // 1.2 million bytes of pixels; a batch of at most 4 MB takes images of 1 MB.
        files.insert(7, Made { size: (800, 500), sampling: SamplingFactor::F_1_1, ..PLAIN }.file(7));
        let decoder = Watched::new(2, options().with_streams(0).with_device_bytes(20 << 20), Some(HARDWARE));
        let bytes = decoder.device_bytes(1);
        assert!((10 << 20..=20 << 20).contains(&bytes), "{bytes}");
        let loader = || loader(&files).transform(Transform::new().resize_exact(20, 20));
        same(&on_gpu(loader(), &decoder).unwrap(), &on_cpu(loader()));
        assert_eq!((decoder.count(HARDWARE, "elsewhere"), decoder.count(CPU, "done")), (1, 1));
    });
}

#[test]
fn a_cut_file_is_the_same_error_as_on_the_cpu() {
    on_mock("nvjpeg::a_cut_file_is_the_same_error_as_on_the_cpu", &[], |mock| {
        begin(mock);
        for place in [0, 21, 39] {
            let mut files = ordinary(40);
            let len = files[place].len();
            files[place].truncate(len * 2 / 3);
            let decoder = Watched::new(2, options(), None);
            let found = on_gpu(loader(&files), &decoder).unwrap_err();
            let expected = rows(&loader(&files).device(Device::Cpu).build_blocking().unwrap()).unwrap_err();
            assert_eq!((found.kind(), found.to_string()), (ErrorKind::Corrupt, expected.to_string()));

            let skip = || loader(&files).on_bad_sample(OnBadSample::Skip { at_most: 1 });
            let decoder = Watched::new(2, options(), None);
            let found = on_gpu(skip(), &decoder).unwrap();
            assert_eq!(found.len(), 39);
            same(&found, &on_cpu(skip()));
        }
    });
}

#[test]
fn without_engines_or_library_the_rest_does_the_work() {
    on_mock("nvjpeg::without_engines_or_library_the_rest_does_the_work", &[("INFEED_MOCK_ENGINES", "0")], |mock| {
        begin(mock);
        let decoder = Watched::new(2, options(), None);
        assert_eq!(decoder.names(), [CPU, HYBRID]);
        equal_the_cpu(&mixture(), &decoder);
        let none = Watched::new(2, options().with_streams(0), None);
        assert_eq!(none.names(), [CPU]);
        equal_the_cpu(&mixture(), &none);
    });
}

#[test]
fn without_a_library_the_cpu_does_the_work() {
    let env = [("INFEED_NVJPEG", "/nowhere/libnvjpeg.so.13")];
    on_mock("nvjpeg::without_a_library_the_cpu_does_the_work", &env, |mock| {
        mock.allow_leaks_of("context");
        let decoder = Watched::new(2, options(), None);
        assert_eq!(decoder.names(), [CPU]);
        equal_the_cpu(&ordinary(30), &decoder);
    });
}

/// As torchvision's wheel has it, where the system's loader does not look.
#[test]
fn a_library_in_a_folder_that_was_named_is_found() {
    let root = tempfile::tempdir().unwrap();
    let Some([driver, site]) = mock_apart(root.path(), "libnvjpeg.1b2c3d4e.so.13") else { return };
    let [driver, site] = [&driver, &site].map(|folder| folder.to_str().unwrap());
    let test = "nvjpeg::a_library_in_a_folder_that_was_named_is_found";
    let env = [("LD_LIBRARY_PATH", driver), ("INFEED_NVJPEG", ""), ("INFEED_TEST_SITE", site)];
    on_mock(test, &env, |mock| {
        mock.allow_leaks_of("context");
        if let Some(library) = devices().nvjpeg {
            return skipped(&format!("this machine has {library} of its own"));
        }
        assert_eq!(devices().nvjpeg_note, "libnvjpeg.so.13 not found");
        assert_eq!(Watched::new(1, options(), None).names(), [CPU]);
        let site = PathBuf::from(std::env::var("INFEED_TEST_SITE").unwrap());
        look_in([PathBuf::from("/nowhere"), site.clone()]);
        let library = devices().nvjpeg.expect("it was looked for once more").library;
        assert_eq!(Path::new(&library), site.join("libnvjpeg.1b2c3d4e.so.13"));
        assert_eq!(Watched::new(1, options(), None).names(), [CPU, HARDWARE, HYBRID]);
    });
}

#[test]
fn too_little_device_memory_costs_a_class_and_not_the_run() {
    on_mock("nvjpeg::too_little_device_memory_costs_a_class_and_not_the_run", &[], |mock| {
        begin(mock);
        let little = Watched::new(1, options().with_device_bytes(1 << 20), None);
        assert_eq!(little.names(), [CPU]);
        // There was memory when the plan was made, and there is none when the workers start.
        let files = mixture();
        let cpu = on_cpu(loader(&files));
        let decoder = Watched::new(1, options().with_streams(0), None);
        assert_eq!(decoder.names(), [CPU, HARDWARE]);
        mock.memory_limit(30 << 20);
        same(&on_gpu(loader(&files).device_budget(1 << 30), &decoder).unwrap(), &cpu);
        assert_eq!(decoder.count(HARDWARE, "done"), 0);
    });
}

#[test]
fn steps_that_run_on_the_cpu_keep_their_images_there() {
    on_mock("nvjpeg::steps_that_run_on_the_cpu_keep_their_images_there", &[], |mock| {
        begin(mock);
        let files = mixture();
        let dim = crop().custom("dim", |row, _| {
            row.values_mut::<f32>().into_iter().flatten().for_each(|value| *value *= 0.5);
            Ok(())
        });
        let loader = || loader(&files).transform(dim.clone());
        let decoder = Watched::new(2, options(), None);
        same(&on_gpu(loader(), &decoder).unwrap(), &on_cpu(loader()));
        assert_eq!(decoder.count(CPU, "done"), files.len());
        assert_eq!(decoder.seen().len(), files.len());
    });
}

fn lose_the_gpu(mock: &Mock, class: &'static str) {
    begin(mock);
    let decoder: Arc<dyn Decoder> = Watched::new(2, options(), Some(class));
    let loader = loader(&ordinary(120)).decoder(decoder).build_blocking().unwrap();
    // Few calls make many rows on the engines.
    mock.lose_device(if class == HARDWARE { 60 } else { 400 });
    let error = rows(&loader).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device, "{error:#}");
    mock.allow_leaks();
}

#[test]
fn a_gpu_lost_under_the_engines_ends_the_run() {
    on_mock("nvjpeg::a_gpu_lost_under_the_engines_ends_the_run", &[], |mock| lose_the_gpu(mock, HARDWARE));
}

#[test]
fn a_gpu_lost_under_hybrid_ends_the_run() {
    on_mock("nvjpeg::a_gpu_lost_under_hybrid_ends_the_run", &[], |mock| lose_the_gpu(mock, HYBRID));
}

#[test]
fn calls_that_fail_once_cost_their_batch_a_second_try() {
    let calls = [
        "nvjpegDecodeBatchedInitialize",
        "nvjpegDecodeBatchedEx",
        "nvjpegDecodeBatchedSupportedEx",
        "nvjpegJpegStreamParseHeader",
        "nvjpegJpegStreamParse",
        "nvjpegDecodeJpegHost",
        "nvjpegDecodeJpegTransferToDevice",
        "nvjpegDecodeJpegDevice",
        "nvjpegDecoderStateCreate",
        "nvjpegStateAttachPinnedBuffer",
    ];
    on_mock("nvjpeg::calls_that_fail_once_cost_their_batch_a_second_try", &[], |mock| {
        begin(mock);
        for call in calls {
            for status in [2, 5, 6, 8] {
                let batched = call.contains("Batched") || call.contains("ParseHeader");
                let (class, files) = if batched { (HARDWARE, ordinary(20)) } else { (HYBRID, odd()) };
                // Without a second try of the engines themselves.
                let decoder = Watched::new(1, options().with_cut(false), Some(class));
                let cpu = on_cpu(loader(&files));
                mock.fail(call, 1, status);
                same(&on_gpu(loader(&files), &decoder).unwrap(), &cpu);
                assert!(decoder.count(class, "elsewhere") >= 1, "{call} {status}: {:?}", decoder.seen());
            }
        }
    });
}

#[test]
fn a_class_that_can_t_be_made_is_left_out() {
    on_mock("nvjpeg::a_class_that_can_t_be_made_is_left_out", &[], |mock| {
        begin(mock);
        let files = mixture();
        let cpu = on_cpu(loader(&files));
        for (call, class) in [("nvjpegJpegStateCreate", HARDWARE), ("nvjpegBufferPinnedCreate", HYBRID)] {
            let decoder = Watched::new(1, options().with_streams(1), None);
            mock.fail(call, 1, 6);
            same(&on_gpu(loader(&files), &decoder).unwrap(), &cpu);
            assert_eq!(decoder.count(class, "done"), 0, "{call}");
        }
        // Only a help: nvJPEG allocates later then.
        let decoder = Watched::new(1, options(), Some(HARDWARE));
        mock.fail("nvjpegDecodeBatchedPreAllocate", 0, 5);
        let files = ordinary(20);
        equal_the_cpu(&files, &decoder);
        assert_eq!(decoder.count(HARDWARE, "done"), 20);
    });
}

#[test]
fn a_stream_that_is_dropped_leaves_nothing_behind() {
    on_mock("nvjpeg::a_stream_that_is_dropped_leaves_nothing_behind", &[], |mock| {
        begin(mock);
        for class in [Some(HARDWARE), Some(HYBRID), None] {
            let decoder: Arc<dyn Decoder> = Watched::new(2, options(), class);
            let loader = loader(&ordinary(150)).decoder(decoder).build_blocking().unwrap();
            let mut batches = loader.epoch(0).blocking();
            let first = batches.next().unwrap().unwrap();
            drop(batches);
            drop(loader);
            drop(first);
        }
    });
}

/// Engines with small batches, to be used without a loader.
fn small_engines(kernels: &Arc<Kernels>, lowered: &Lowered) -> Hardware {
    let size = HardwareSize { images: 4, arena_bytes: 1 << 20, pinned_bytes: 1 << 20 };
    Hardware::open(kernels, BatchDecoder::Engines, size, RowScratch::default(), &[lowered.table(DType::U8)])
        .unwrap()
        .unwrap()
}

fn lowered() -> Lowered {
    let field = FieldKind::Image { channels: 3, size: None, dtype: None };
    Transform::new().resize_exact(20, 20).lower(&field, DType::F32, Layout::Nchw).unwrap()
}

#[test]
fn rows_below_the_crop_take_no_room() {
    on_mock("nvjpeg::rows_below_the_crop_take_no_room", &[], |mock| {
        begin(mock);
        let kernels = Kernels::load(&Context::open(0).unwrap()).unwrap();
        let mut engines = small_engines(&kernels, &lowered());
        let file = Made { size: (200, 600), ..PLAIN }.file(1);
        // A quarter of the arena is 256 KiB, the image takes 360 KB, half of it 180 KB.
        assert!(matches!(engines.stage(&Coded::parse(&file).unwrap(), 600).unwrap(), Staged::Refused(_)));
        assert!(matches!(engines.stage(&Coded::parse(&file).unwrap(), 300).unwrap(), Staged::Taken(0)));
        // A header that says something else than the file.
        let lies = Coded { width: 201, ..Coded::parse(&file).unwrap() };
        assert!(matches!(engines.stage(&lies, 300).unwrap(), Staged::Refused(_)));
        let outside = Coded { height_at: usize::MAX, ..Coded::parse(&file).unwrap() };
        assert!(matches!(engines.stage(&outside, 300).unwrap(), Staged::Refused(_)));
        let giant = Coded { width: u32::MAX, height: u32::MAX, ..Coded::parse(&file).unwrap() };
        assert!(matches!(engines.stage(&giant, u32::MAX).unwrap(), Staged::Refused(_)));
        assert_eq!(engines.staged(), 1);
    });
}

/// The end of an arena that is not a whole number of places has no canary, and no memory for one.
#[test]
fn an_image_begins_only_where_a_canary_is() {
    on_mock("nvjpeg::an_image_begins_only_where_a_canary_is", &[], |mock| {
        begin(mock);
        let (lowered, kernels) = (lowered(), Kernels::load(&Context::open(0).unwrap()).unwrap());
        // Places every 512 bytes; behind forty of them are 256 bytes more.
        let size = HardwareSize { images: 5, arena_bytes: 20_736, pinned_bytes: 1 << 20 };
        let tables = [lowered.table(DType::U8)];
        let mut engines =
            Hardware::open(&kernels, BatchDecoder::Engines, size, RowScratch::default(), &tables).unwrap().unwrap();
        let wide = Made { size: (853, 2), ..PLAIN }.file(1);
        let small = Made { size: (9, 9), ..PLAIN }.file(2);
        for _ in 0..4 {
            assert!(matches!(engines.stage(&Coded::parse(&wide).unwrap(), 2).unwrap(), Staged::Taken(_)));
        }
        assert!(matches!(engines.stage(&Coded::parse(&small).unwrap(), 9).unwrap(), Staged::Full));
        engines.decode().unwrap();
        let ticket = engines.launch().unwrap();
        assert_eq!(engines.unwritten(ticket).unwrap(), [0; 0]);
    });
}

/// Nine batches one after another through the engines themselves, with nobody who asks whether one is done: only their
/// own waits keep a batch from being written over the one that is still read.
fn back_to_back() {
    let files = ordinary(36);
    let lowered = lowered();
    let kernels = Kernels::load(&Context::open(0).unwrap()).unwrap();
    let mut engines = small_engines(&kernels, &lowered);
    let len = lowered.row().len_bytes();
    let pool = Pool::on_device(kernels.context(), files.len(), len, 1).unwrap();
    let out = pool.try_take(files.len(), len).unwrap().unwrap();
    let mut last = None;
    for (n, batch) in files.chunks(4).enumerate() {
        for (i, file) in batch.iter().enumerate() {
            let coded = Coded::parse(file).unwrap();
            let staged = engines.stage(&coded, coded.height).unwrap();
            assert!(matches!(staged, Staged::Taken(at) if at == i), "{staged:?}");
        }
        engines.decode().unwrap();
        for (i, file) in batch.iter().enumerate() {
            let params = lowered.params(&Jpeg::new().info(file).unwrap(), SampleRng::new(0, 0, 0)).unwrap();
            engines.row(i, &RowWork::resample(params, 0, *lowered.row()), &out, 4 * n + i).unwrap();
        }
        last = Some(engines.launch().unwrap());
    }
    engines.wait(last.unwrap()).unwrap();
    let mut bytes = vec![0; files.len() * len];
    out.freeze().download(&mut bytes).unwrap();
    let found: Vec<Vec<u8>> = bytes.chunks_exact(len).map(<[u8]>::to_vec).collect();
    same(&found, &on_cpu(loader(&files).transform(Transform::new().resize_exact(20, 20))));
}

/// Engines of Hopper GPUs write when they are called, whatever their stream waits for. The mock's do too.
#[test]
fn engines_write_only_where_the_host_has_seen_the_end_of_the_last_use() {
    on_mock("nvjpeg::engines_write_only_where_the_host_has_seen_the_end_of_the_last_use", &[], |mock| {
        begin(mock);
        back_to_back();
    });
}

#[test]
fn a_batch_that_does_not_wait_for_its_memory_is_found_out() {
    let env = [("INFEED_MOCK_IGNORE", "cuEventSynchronize:0")];
    let words = "cuEventElapsedTime returned 600";
    fails_on_mock("nvjpeg::a_batch_that_does_not_wait_for_its_memory_is_found_out", &env, words, |mock| {
        begin(mock);
        back_to_back();
    });
}

#[test]
fn a_row_that_is_handed_on_too_early_is_found_out() {
    let env = [("INFEED_MOCK_IGNORE", "cuEventSynchronize:0,cuEventQuery:0")];
    // Memory may also go under work that nobody waited for.
    let words = "cuEventElapsedTime returned 600|of freed device memory";
    fails_on_mock("nvjpeg::a_row_that_is_handed_on_too_early_is_found_out", &env, words, |mock| {
        begin(mock);
        equal_the_cpu(&ordinary(200), &Watched::new(1, options(), Some(HARDWARE)));
    });
}
