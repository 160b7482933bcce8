//! Decoders alone: the engines, the hybrid decoder, the CPU. What the loader can reach at most.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use infeed::{
    DType, Error, ErrorKind, Layout, Result, Transform,
    codec::{ImageCodec, Jpeg, PixelBuffer},
    dataset::{FieldKind, SampleRng},
    internal::{
        cuda::{Context, Kernels},
        kernels::{Pixels, Resampler, RowScratch, RowWork},
        nvjpeg::{self, BatchDecoder, Failure, Hardware, HardwareSize, HostTimes, Hybrid, HybridSize, Staged},
        rows::Pool,
    },
    spi::Lowered,
};
use serde_json::json;

use super::{
    Bench, Scale,
    out::Out,
    photos::{Photo, Photos},
};

fn lower(transform: &Transform, dtype: DType) -> Result<Lowered> {
    transform.lower(&FieldKind::Image { channels: 3, size: None, dtype: None }, dtype, Layout::Nchw)
}

fn imagenet() -> Result<Lowered> {
    lower(&Transform::preset("imagenet-train")?, DType::F16)
}

fn of_failure(failure: Failure) -> Error {
    match failure {
        Failure::Images(error) | Failure::Lost(error) => error,
    }
}

/// How the engines are run without a loader.
#[derive(Clone, Copy, Debug)]
struct Case {
    decoder: BatchDecoder,
    /// Images of a batch.
    images: usize,
    /// Threads, each with handles and batches of its own.
    handles: usize,
    /// Batches of a thread that are under way at a time.
    lanes: usize,
    /// Files end with the crop's last row.
    cut: bool,
}

impl Case {
    fn name(self) -> String {
        let Self { decoder, images, handles, lanes, cut } = self;
        let what = match decoder {
            BatchDecoder::Engines => "hardware",
            BatchDecoder::Cores => "cores",
        };
        let how = if cut { "height cut to the crop" } else { "whole" };
        format!("{what} {how} batch={images} handles={handles} lanes={lanes}")
    }

    fn more(self) -> serde_json::Value {
        let Self { images, handles, lanes, cut, .. } = self;
        json!({ "images": images, "handles": handles, "lanes": lanes, "cut": cut })
    }
}

/// Photographs that lie in page-locked memory already: nothing but decoding is timed. Then what the host does for an image.
fn batches(bench: &mut Bench, out: &mut Out, cases: impl IntoIterator<Item = Case>) -> Result<()> {
    let context = Context::open(0)?;
    let kernels = Kernels::load(&context)?;
    let files = bench.photos.files()?;
    for case in cases {
        let name = case.name();
        match together(&kernels, &files, case, bench.scale, out.runs()) {
            Ok(Ok((rates, times))) => {
                out.values(&name, "images/s", case.more(), rates);
                out.note(&format!("{name}, host µs"), host_times(times));
            }
            Ok(Err(why)) => out.note(&name, json!(why)),
            Err(error) => out.error(&name, &format!("{error:#}")),
        }
    }
    Ok(())
}

/// Microseconds of the host for an image, and for a batch.
fn host_times(times: HostTimes) -> serde_json::Value {
    let HostTimes { images, copy, parse, batches, initialise, decode, .. } = times;
    let each = |time: Duration, count: u64| time.as_secs_f64() * 1e6 / count.max(1) as f64;
    json!({
        "copy_of_an_image": each(copy, images),
        "parse_of_an_image": each(parse, images),
        "initialise_of_a_batch": each(initialise, batches),
        "decode_calls_of_a_batch": each(decode, batches),
    })
}

pub(super) fn engines(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    match nvjpeg::engines(&context)? {
        Ok(engines) => out.note("engines", json!({ "engines": engines.engines, "cores": engines.cores })),
        Err(why) => {
            out.note("engines", json!(why));
            return Ok(());
        }
    }
    let sizes = bench.scale.of(vec![16, 28, 32, 56, 64, 96, 128], vec![32, 128], vec![4]);
    // What the batches of one thread do beside each other, then more threads.
    let threads = bench.scale.of(vec![(1, 1), (1, 2), (2, 2), (4, 2)], vec![(1, 2), (2, 2)], vec![(1, 2), (2, 2)]);
    let mut cases = Vec::new();
    for cut in [false, true] {
        for &images in &sizes {
            for &(handles, lanes) in &threads {
                cases.push(Case { decoder: BatchDecoder::Engines, images, handles, lanes, cut });
            }
        }
    }
    batches(bench, out, cases)
}

/// Batches on the GPU's cores, Huffman decoding included: of more than 50 images, in NVIDIA's words.
pub(super) fn gpu_hybrid(bench: &mut Bench, out: &mut Out) -> Result<()> {
    nvjpeg::usable(&Context::open(0)?)?;
    let mut cases = Vec::new();
    for images in bench.scale.of(vec![32, 64, 128, 256], vec![64, 128], vec![4]) {
        for handles in bench.scale.of(vec![1, 2, 4], vec![1, 2], vec![1]) {
            cases.push(Case { decoder: BatchDecoder::Cores, images, handles, lanes: 2, cut: false });
        }
    }
    batches(bench, out, cases)
}

/// Batches without a loader.
struct Alone {
    hardware: Hardware,
    lowered: Lowered,
    case: Case,
    /// The next photograph, so that each run decodes others.
    next: usize,
}

impl Alone {
    fn open(kernels: &Arc<Kernels>, case: Case, n: usize) -> Result<std::result::Result<Self, String>> {
        let images = case.images;
        let size = HardwareSize {
            images,
            arena_bytes: (images << 20).max(48 << 20),
            pinned_bytes: (images * (256 << 10)).max(8 << 20),
        };
        let lowered = imagenet()?;
        let hardware = Hardware::open(kernels, case.decoder, size, RowScratch::default(), &[lowered.table(DType::U8)])?;
        Ok(hardware.map(|hardware| Self { hardware, lowered, case, next: n * 101 }))
    }

    /// Decodes a staged batch again and again; images and time.
    fn run(&mut self, files: &[Photo], times: usize) -> Result<(usize, Duration)> {
        let staged = self.stage(files)?;
        let time = self.hardware.measure(times, self.case.lanes).map_err(of_failure)?;
        Ok((staged * times, time))
    }

    /// Fills a batch; how many photographs it holds.
    fn stage(&mut self, files: &[Photo]) -> Result<usize> {
        let mut refused = None;
        for _ in 0..self.case.images + files.len() {
            let photo = &files[self.next % files.len()];
            self.next += 1;
            let rows = if self.case.cut {
                let params = self.lowered.params(&photo.header.info, SampleRng::new(1, 0, self.next as u64))?;
                // Whole blocks, and one more for chroma that is interpolated.
                params.y.reads(self.lowered.row().height, params.filter).end.next_multiple_of(16) + 16
            } else {
                photo.header.info.height
            };
            match self.hardware.stage(&photo.coded(), rows).map_err(of_failure)? {
                Staged::Taken(_) => {}
                Staged::Full => {
                    self.next -= 1;
                    break;
                }
                Staged::Refused(why) => refused = Some(why),
            }
            if self.hardware.staged() >= self.case.images {
                break;
            }
        }
        match (self.hardware.staged(), refused) {
            (0, Some(why)) => Err(why),
            (0, None) => Err(Error::new(ErrorKind::Internal, "no photograph fits a batch")),
            (staged, _) => Ok(staged),
        }
    }
}

/// What a case gave: images a second of all handles in each run, and the host's time of one of them.
type Measured = std::result::Result<(Vec<f64>, HostTimes), String>;

/// All handles at once, each on a thread of its own; the inner error is the reason why there is nothing to measure.
fn together(kernels: &Arc<Kernels>, files: &[Photo], case: Case, scale: Scale, runs: usize) -> Result<Measured> {
    let (barrier, broken) = (Barrier::new(case.handles), AtomicBool::new(false));
    let images: Vec<AtomicUsize> = (0..=runs).map(|_| AtomicUsize::new(0)).collect();
    let handle = |n: usize| -> Result<std::result::Result<(Vec<Duration>, HostTimes), String>> {
        // Everybody comes to each barrier, whatever became of his work: nobody waits for ever.
        let mut alone = Alone::open(kernels, case, n);
        let mut failed = None;
        let mut times = 2;
        if let Ok(Ok(alone)) = &mut alone {
            match alone.run(files, 2) {
                Ok((_, time)) => {
                    let wanted = scale.of(0.4, 0.2, 0.001) / (time.as_secs_f64() / 2.0).max(1e-6);
                    times = if scale == Scale::Tiny { 2 } else { wanted.ceil().clamp(2.0, 2000.0) as usize };
                    let _ = alone.hardware.take_host_times();
                }
                Err(error) => failed = Some(error),
            }
        }
        if failed.is_some() || !matches!(alone, Ok(Ok(_))) {
            broken.store(true, Ordering::Relaxed);
        }
        let mut spent = Vec::with_capacity(runs + 1);
        for done in &images {
            barrier.wait();
            let begin = Instant::now();
            if let Ok(Ok(alone)) = &mut alone
                && !broken.load(Ordering::Relaxed)
            {
                match alone.run(files, times) {
                    Ok((images, _)) => {
                        done.fetch_add(images, Ordering::Relaxed);
                    }
                    Err(error) => {
                        failed = Some(error);
                        broken.store(true, Ordering::Relaxed);
                    }
                }
            }
            spent.push(begin.elapsed());
        }
        match (alone, failed) {
            (Err(error), _) | (_, Some(error)) => Err(error),
            (Ok(Err(why)), _) => Ok(Err(why)),
            (Ok(Ok(mut alone)), None) => Ok(Ok((spent, alone.hardware.take_host_times()))),
        }
    };
    let ended = thread::scope(|scope| {
        let threads: Vec<_> = (0..case.handles).map(|n| scope.spawn(move || handle(n))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().map_err(|_| Error::new(ErrorKind::Internal, "a thread panicked"))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let mut handles = Vec::new();
    for end in ended {
        match end? {
            Ok(spent) => handles.push(spent),
            Err(why) => return Ok(Err(why)),
        }
    }
    // The first run warms up.
    let slowest =
        |run: usize| handles.iter().filter_map(|(spent, _)| spent.get(run)).max().copied().unwrap_or_default();
    let rate = |run: usize| images[run].load(Ordering::Relaxed) as f64 / slowest(run).as_secs_f64().max(1e-9);
    let rates = (1..=runs).map(rate).collect();
    Ok(Ok((rates, handles.first().map(|handle| handle.1).unwrap_or_default())))
}

/// The fastest way to run the engines, in short: for shares that are measured in one process. 0 without engines.
pub(super) fn bare_engines(kernels: &Arc<Kernels>, photos: &mut Photos, cut: bool, scale: Scale) -> Result<f64> {
    let files = photos.files()?;
    let mut best = 0.0f64;
    for images in scale.of(vec![32, 64, 128], vec![32, 128], vec![4]) {
        for handles in scale.of(vec![1, 2, 4], vec![1, 2], vec![1, 2]) {
            let case = Case { decoder: BatchDecoder::Engines, images, handles, lanes: 2, cut };
            let Ok((mut rates, _)) = together(kernels, &files, case, scale, 3)? else { return Ok(0.0) };
            rates.sort_by(f64::total_cmp);
            best = best.max(rates[1]);
        }
    }
    Ok(best)
}

/// The hybrid decoder with its threads; the resampling that belongs to it makes rows of 8x8, which cost nothing.
pub(super) fn hybrid(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    nvjpeg::usable(&context)?;
    let kernels = Kernels::load(&context)?;
    let files = bench.photos.files()?;
    let time = Duration::from_secs_f64(bench.scale.of(0.8, 0.5, 0.02));
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    for on_gpu in [false, true] {
        for streams in bench.scale.of(vec![1, 2, 4, 8, 16], vec![1, 4, 16], vec![2]) {
            if streams > 2 * cores {
                continue;
            }
            let how = if on_gpu { "Huffman on the GPU" } else { "Huffman on the CPU" };
            match hybrid_rates(&kernels, &files, streams, on_gpu, time, out.runs()) {
                Ok(rates) => {
                    let name = format!("hybrid, {how}, streams={streams}");
                    out.values(&name, "images/s", json!({ "streams": streams }), rates);
                }
                Err(error) => out.error(&format!("hybrid, {how}, streams={streams}"), &format!("{error:#}")),
            }
        }
    }
    Ok(())
}

fn hybrid_rates(
    kernels: &Arc<Kernels>,
    files: &[Photo],
    streams: usize,
    on_gpu: bool,
    time: Duration,
    runs: usize,
) -> Result<Vec<f64>> {
    let lowered = lower(&Transform::new().resize_exact(8, 8), DType::F16)?;
    in_threads(streams, time, runs, |thread, done| {
        let size = HybridSize { image_bytes: 12 << 20, file_bytes: 4 << 20 };
        let mut decoder = Hybrid::open(kernels, size, RowScratch::default(), &[lowered.table(DType::U8)])?;
        let row = *lowered.row();
        let pool = Pool::on_device(kernels.context(), 1, row.len_bytes(), 1)?;
        let out = pool.try_take(1, row.len_bytes())?;
        let out = out.ok_or_else(|| Error::new(ErrorKind::Internal, "no row"))?;
        let mut next = thread * 7;
        let mut last = None;
        done.run(|| {
            let photo = &files[next % files.len()];
            next += 1;
            let params = lowered.params(&photo.header.info, SampleRng::new(1, 0, 0))?;
            let ticket = decoder
                .decode(&photo.coded(), on_gpu, &[(&RowWork::resample(params, 0, row), &out)], 0)
                .map_err(of_failure)?;
            // All but the last two are done: the decoder waits for its pages.
            last = Some(ticket);
            Ok(())
        })?;
        last.map_or(Ok(()), |ticket| decoder.wait(ticket))
    })
}

/// JPEG decoding and resampling on threads, as the CPU class does it but without a loader.
pub(super) fn cpu(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let files = bench.photos.files()?;
    let time = Duration::from_secs_f64(bench.scale.of(0.8, 0.5, 0.02));
    for resample in [true, false] {
        for &threads in &bench.workers {
            let what = if resample { "decode and resample" } else { "decode" };
            let rates = cpu_rates(&files, threads, resample, time, out.runs())?;
            out.values(&format!("{what} threads={threads}"), "images/s", json!({ "threads": threads }), rates);
        }
    }
    Ok(())
}

/// Images a second of the CPU alone, for shares that are measured in one process.
pub(super) fn bare_cpu(photos: &mut Photos, threads: usize, resample: bool, scale: Scale) -> Result<f64> {
    let time = Duration::from_secs_f64(scale.of(0.8, 0.4, 0.01));
    let mut rates = cpu_rates(&photos.files()?, threads, resample, time, 3)?;
    rates.sort_by(f64::total_cmp);
    Ok(rates[1])
}

fn cpu_rates(files: &[Photo], threads: usize, resample: bool, time: Duration, runs: usize) -> Result<Vec<f64>> {
    let lowered = imagenet()?;
    in_threads(threads, time, runs, |thread, done| {
        let (mut pixels, mut resampler) = (PixelBuffer::default(), Resampler::new());
        let mut row = vec![0; lowered.row().len_bytes()];
        let mut next = thread as u64 * 1_000_003;
        done.run(|| {
            let photo = &files[next as usize % files.len()];
            next += 1;
            let params = lowered.params(&photo.header.info, SampleRng::new(1, 0, next))?;
            let rows = params.y.reads(lowered.row().height, params.filter);
            Jpeg::new().decode(&photo.file, &photo.header, rows, &mut pixels)?;
            if resample {
                let len =
                    photo.header.info.width as usize * usize::from(photo.header.info.channels) * pixels.rows.len();
                let data = &pixels.data[..len];
                let source = Pixels { info: photo.header.info, rows: pixels.rows.clone(), data };
                resampler.run(&source, &params, lowered.table(DType::U8), lowered.row(), &mut row)?;
            }
            Ok(())
        })
    })
}

/// What the threads have done, and whether it is enough.
struct Done {
    /// Threads that are warm, or failed before they were.
    ready: AtomicUsize,
    go: AtomicBool,
    count: AtomicUsize,
    stop: AtomicBool,
}

impl Done {
    /// Two images to warm up; then, when all threads are ready, one after another until it is enough.
    fn run(&self, mut image: impl FnMut() -> Result<()>) -> Result<()> {
        image()?;
        image()?;
        self.ready.fetch_add(1, Ordering::Relaxed);
        while !self.go.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        while !self.stop.load(Ordering::Relaxed) {
            image()?;
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Images a second, in each of `runs` stretches of `time` after one more. Ends when a thread fails.
fn in_threads(
    threads: usize,
    time: Duration,
    runs: usize,
    work: impl Fn(usize, &Done) -> Result<()> + Sync,
) -> Result<Vec<f64>> {
    let flag = || AtomicBool::new(false);
    let done = Done { ready: AtomicUsize::new(0), go: flag(), count: AtomicUsize::new(0), stop: flag() };
    let failed = flag();
    thread::scope(|scope| {
        let (done, work, failed) = (&done, &work, &failed);
        let started: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let result = work(thread, done);
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    result
                })
            })
            .collect();
        // A thread that panicked is neither ready nor failed, but finished.
        let waits = || {
            done.ready.load(Ordering::Relaxed) < threads
                && !failed.load(Ordering::Relaxed)
                && !started.iter().any(thread::ScopedJoinHandle::is_finished)
        };
        while waits() {
            thread::sleep(Duration::from_millis(1));
        }
        done.go.store(true, Ordering::Relaxed);
        let mut rates = Vec::with_capacity(runs);
        for run in 0..=runs {
            let (begin, before) = (Instant::now(), done.count.load(Ordering::Relaxed));
            if failed.load(Ordering::Relaxed) {
                break;
            }
            thread::sleep(time);
            let images = done.count.load(Ordering::Relaxed) - before;
            if run > 0 {
                rates.push(images as f64 / begin.elapsed().as_secs_f64());
            }
        }
        done.stop.store(true, Ordering::Relaxed);
        for thread in started {
            thread.join().map_err(|_| Error::new(ErrorKind::Internal, "a thread panicked"))??;
        }
        Ok(rates)
    })
}
