//! Decoders alone: the engines, the hybrid decoder, the CPU. What the loader can reach at most.

use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
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
        kernels::{Pixels, Resampler},
        nvjpeg::{self, BatchDecoder, Failure, Hardware, HardwareSize, Hybrid, HybridSize, Staged},
        rows::Pool,
    },
    transform::Lowered,
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

/// The engines, with photographs that lie in page-locked memory already: nothing but decoding is timed.
pub(super) fn engines(bench: &mut Bench, out: &mut Out) -> Result<()> {
    let context = Context::open(0)?;
    let kernels = Kernels::load(&context)?;
    match nvjpeg::engines(&context)? {
        Ok(engines) => out.note("engines", json!({ "engines": engines.engines, "cores": engines.cores })),
        Err(why) => {
            out.note("engines", json!(why));
            return Ok(());
        }
    }
    let files = bench.photos.files()?;
    let scale = bench.scale;
    for cut in [false, true] {
        for images in scale.of(vec![16, 28, 32, 56, 64, 96, 128], vec![16, 32, 64, 128], vec![4]) {
            for states in [1, 2] {
                let how = if cut { "height cut to the crop" } else { "whole" };
                let name = format!("hardware {how} batch={images} states={states}");
                let mut alone = match Alone::open(&kernels, images)? {
                    Ok(alone) => alone,
                    Err(why) => {
                        out.error(&name, &why);
                        return Ok(());
                    }
                };
                out.figure(&name, "images/s", json!({ "images": images, "states": states, "cut": cut }), || {
                    alone.rate(&files, states, cut, scale)
                });
            }
        }
    }
    Ok(())
}

/// The engines without a loader.
struct Alone {
    hardware: Hardware,
    lowered: Lowered,
    images: usize,
    /// The next photograph, so that each run decodes others.
    next: usize,
}

impl Alone {
    fn open(kernels: &Arc<Kernels>, images: usize) -> Result<std::result::Result<Self, String>> {
        let size = HardwareSize {
            images,
            arena_bytes: (images << 20).max(48 << 20),
            pinned_bytes: (images * (256 << 10)).max(8 << 20),
        };
        let lowered = imagenet()?;
        let hardware = Hardware::open(kernels, BatchDecoder::Engines, size, &[lowered.table(DType::U8)])?;
        Ok(hardware.map(|hardware| Self { hardware, lowered, images, next: 0 }))
    }

    /// Images a second of one batch, decoded again and again.
    fn rate(&mut self, files: &[Photo], states: usize, cut: bool, scale: Scale) -> Result<f64> {
        self.stage(files, cut)?;
        let before = self.hardware.measure(2, states).map_err(of_failure)? / 2;
        let staged = self.stage(files, cut)?;
        let time = scale.of(0.4, 0.2, 0.001);
        let times = (time / before.as_secs_f64().max(1e-6)).ceil().clamp(2.0, 2000.0) as usize;
        let times = if scale == Scale::Tiny { 2 } else { times };
        let time = self.hardware.measure(times, states).map_err(of_failure)?;
        Ok((staged * times) as f64 / time.as_secs_f64().max(1e-9))
    }

    /// Fills a batch; how many photographs it holds.
    fn stage(&mut self, files: &[Photo], cut: bool) -> Result<usize> {
        let mut refused = None;
        for _ in 0..self.images + files.len() {
            let photo = &files[self.next % files.len()];
            self.next += 1;
            let rows = if cut {
                let params = self.lowered.params(&photo.header.info, SampleRng::new(1, 0, self.next as u64))?;
                // Whole blocks, and one more for chroma that is interpolated.
                params.y.reads(self.lowered.row().height).end.next_multiple_of(16) + 16
            } else {
                photo.header.info.height
            };
            match self.hardware.stage(&photo.coded(), rows, 0).map_err(of_failure)? {
                Staged::Taken(_) => {}
                Staged::Full => {
                    self.next -= 1;
                    break;
                }
                Staged::Refused(why) => refused = Some(why),
            }
            if self.hardware.staged() >= self.images {
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

/// The fastest way to run the engines, in short: for shares that are measured in one process. 0 without engines.
pub(super) fn bare_engines(kernels: &Arc<Kernels>, photos: &mut Photos, cut: bool, scale: Scale) -> Result<f64> {
    let files = photos.files()?;
    let mut best = 0.0f64;
    for images in scale.of(vec![32, 64, 128], vec![32, 64], vec![4]) {
        let Ok(mut alone) = Alone::open(kernels, images)? else { return Ok(0.0) };
        let mut rates = (0..4).map(|_| alone.rate(&files, 2, cut, scale)).collect::<Result<Vec<_>>>()?;
        // The first one warms up.
        rates.remove(0);
        rates.sort_by(f64::total_cmp);
        best = best.max(rates[1]);
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
        let mut decoder = Hybrid::open(kernels, size, &[lowered.table(DType::U8)])?;
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
            let ticket = decoder.decode(&photo.coded(), on_gpu, &params, 0, &row, &out, 0).map_err(of_failure)?;
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
            let rows = params.y.reads(lowered.row().height);
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
