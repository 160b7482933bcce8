//! What the engine costs with many decode threads, on however few cores: the decoders are false. They sleep for as long as
//! decoding a photograph takes, or spin for a little, so that 192 threads ask for work as they would on 192 cores, or stand in each
//! other's way as badly as they can.
//!
//! `cargo bench --bench threads -- [IMAGES] [ROUNDS]` (Linux: the counts come from the kernel). Printed for each image, medians of the
//! rounds, which take turns; *bare* is the same sleep or spin in a loop of as many threads that share a counter alone:
//!
//! - µs of CPU, of all threads;
//! - waits: times that a thread gave up its core, for a lock or for work, beyond the decoder's own sleep;
//! - allocations, and hand-overs: how often a thread went from one batch or part of a batch to another.

#![allow(clippy::print_stdout, reason = "a bench talks to its reader")]

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("threads: counts come from Linux");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        alloc::{GlobalAlloc, Layout, System},
        cell::Cell,
        collections::HashMap,
        env,
        ffi::OsString,
        fs,
        ops::Range,
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        thread,
        time::{Duration, Instant},
    };

    use bytes::Bytes;
    use futures::StreamExt;
    use infeed::{
        DType, Loader, Result, Transform,
        codec::{ImageCodec, ImageHeader, ImageInfo, PixelBuffer},
        dataset::MemoryDataset,
        internal::process,
    };
    use tokio::runtime::Runtime;

    /// Counts on top of the system's allocator. A counter for each of some threads: one for all would be what it measures.
    struct Counting;

    #[repr(align(128))]
    struct Counter(AtomicU64);

    static ALLOCATIONS: [Counter; 64] = [const { Counter(AtomicU64::new(0)) }; 64];

    fn count() {
        thread_local! {
            static PLACE: Cell<u8> = const { Cell::new(0) };
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Threads that end allocate still.
        let place = PLACE.try_with(|place| {
            if place.get() == 0 {
                place.set((NEXT.fetch_add(1, Ordering::Relaxed) % 63 + 1) as u8);
            }
            usize::from(place.get())
        });
        ALLOCATIONS[place.unwrap_or(0)].0.fetch_add(1, Ordering::Relaxed);
    }

    // SAFETY: the system's allocator does all of it.
    unsafe impl GlobalAlloc for Counting {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            count();
            // SAFETY: the caller's promises are the same.
            unsafe { System.alloc(layout) }
        }

        unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
            // SAFETY: the caller's promises are the same.
            unsafe { System.dealloc(place, layout) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    fn allocations() -> u64 {
        ALLOCATIONS.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    /// How often each thread of this process gave up its core of its own will.
    fn waits() -> HashMap<OsString, u64> {
        let waits = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("status")).ok()?;
            let number = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((task.file_name(), number.trim().parse().ok()?))
        };
        fs::read_dir("/proc/self/task").into_iter().flatten().flatten().filter_map(waits).collect()
    }

    /// Of all threads that are there, since then.
    fn waits_since(before: &HashMap<OsString, u64>) -> u64 {
        let since = |(task, waits): (OsString, u64)| waits - before.get(&task).copied().unwrap_or(0).min(waits);
        waits().into_iter().map(since).sum()
    }

    /// What a decoder does in place of decoding.
    #[derive(Clone, Copy, Debug)]
    enum Work {
        Sleep(Duration),
        Spin(Duration),
    }

    impl Work {
        fn run(self) {
            match self {
                Self::Sleep(time) => thread::sleep(time),
                Self::Spin(time) => {
                    let start = Instant::now();
                    while start.elapsed() < time {
                        std::hint::spin_loop();
                    }
                }
            }
        }

        /// Waits of its own.
        fn waits(self) -> f64 {
            matches!(self, Self::Sleep(_)).into()
        }
    }

    /// A codec of images that have no pixels worth reading.
    #[derive(Debug)]
    struct False {
        work: Work,
        hand_overs: AtomicU64,
    }

    impl ImageCodec for False {
        fn name(&self) -> &'static str {
            "false"
        }

        fn recognises(&self, head: &[u8]) -> bool {
            head.starts_with(b"false")
        }

        fn header(&self, _bytes: &[u8]) -> Result<ImageHeader> {
            Ok(ImageInfo::interleaved_u8(8, 8, 3).into())
        }

        fn decode(&self, bytes: &[u8], _header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
            thread_local! {
                static LAST: Cell<u64> = const { Cell::new(u64::MAX) };
            }
            // Records of a job follow one another.
            let number = bytes.last_chunk().map_or(0, |n| u64::from_le_bytes(*n));
            if LAST.replace(number).wrapping_add(1) != number {
                self.hand_overs.fetch_add(1, Ordering::Relaxed);
            }
            self.work.run();
            out.hold(rows.clone(), rows.len() * 24)?;
            Ok(())
        }
    }

    /// Of one image.
    #[derive(Clone, Copy, Debug, Default)]
    struct Figures {
        rate: f64,
        cpu: f64,
        waits: f64,
        allocations: f64,
        hand_overs: f64,
    }

    struct Before {
        start: Instant,
        cpu: f64,
        waits: HashMap<OsString, u64>,
        allocations: u64,
    }

    impl Before {
        fn now() -> Self {
            let cpu = process::usage().cpu.map_or(0.0, |time| time.as_secs_f64());
            Self { waits: waits(), allocations: allocations(), cpu, start: Instant::now() }
        }

        fn figures(self, images: u64, work: Work, hand_overs: u64) -> Figures {
            let waits = waits_since(&self.waits);
            let (images, after) = (images as f64, Self::now());
            Figures {
                rate: images / (after.start - self.start).as_secs_f64(),
                cpu: (after.cpu - self.cpu) / images * 1e6,
                waits: waits as f64 / images - work.waits(),
                allocations: (after.allocations - self.allocations) as f64 / images,
                hand_overs: hand_overs as f64 / images,
            }
        }
    }

    fn infeed(runtime: &Runtime, threads: usize, work: Work, images: u64) -> Figures {
        let files = (0..images).map(|n| Bytes::from([&b"false"[..], &n.to_le_bytes()].concat())).collect();
        let dataset = MemoryDataset::builder().encoded_images(files).build().expect("files of one kind");
        let codec = Arc::new(False { work, hand_overs: AtomicU64::new(0) });
        let builder = Loader::builder(Arc::new(dataset))
            .codec(Arc::<False>::clone(&codec))
            .transform(Transform::new().center_crop(8))
            .workers(threads);
        // Batches enough that all threads find something to do.
        let builder = builder.batch_size(256).dtype(DType::U8).prefetch(4 + threads / 32).memory_budget(4 << 30);
        let loader = runtime.block_on(builder.build()).expect("settings fit");
        let run = |epoch| {
            runtime.block_on(async {
                let mut batches = loader.epoch(epoch);
                while let Some(batch) = batches.next().await {
                    batch.expect("nothing is wrong with the images");
                }
            });
        };
        // It learns how many images make a job.
        run(0);
        let (begun, before) = (codec.hand_overs.load(Ordering::Relaxed), Before::now());
        run(1);
        before.figures(images / 256 * 256, work, codec.hand_overs.load(Ordering::Relaxed) - begun)
    }

    fn bare(threads: usize, work: Work, images: u64) -> Figures {
        let (next, ended, left) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            let before = Before::now();
            for _ in 0..threads {
                scope.spawn(|| {
                    while next.fetch_add(1, Ordering::Relaxed) < images {
                        work.run();
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                    // Whoever has ended is not counted.
                    while left.load(Ordering::Relaxed) == 0 {
                        thread::sleep(Duration::from_millis(20));
                    }
                });
            }
            while ended.load(Ordering::Relaxed) < threads as u64 {
                thread::sleep(Duration::from_millis(1));
            }
            let figures = before.figures(images, work, 0);
            left.store(1, Ordering::Relaxed);
            figures
        })
    }

    fn median(rounds: &[Figures], of: fn(&Figures) -> f64) -> f64 {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_unstable_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(0.0)
    }

    pub(crate) fn main() {
        let mut numbers = env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
        let (images, rounds) = (numbers.next().unwrap_or(51_200), numbers.next().unwrap_or(5));
        let runtime = Runtime::new().expect("threads start");
        let cores = infeed::internal::machine::cores();
        println!("{images} images, {rounds} rounds, {cores} cores; for each image:");
        let works = [
            ("sleeps 600 µs", Work::Sleep(Duration::from_micros(600))),
            ("spins 10 µs", Work::Spin(Duration::from_micros(10))),
        ];
        for (name, work) in works {
            let counts = [2, 64, 192];
            let mut found = vec![[Vec::new(), Vec::new()]; counts.len()];
            // Two threads sleep their way through fewer.
            let images = |threads: usize| if threads < 64 { images / 8 } else { images };
            for _ in 0..rounds {
                for (threads, found) in counts.into_iter().zip(&mut found) {
                    found[0].push(infeed(&runtime, threads, work, images(threads)));
                    found[1].push(bare(threads, work, images(threads)));
                }
            }
            for (threads, [ours, bare]) in counts.into_iter().zip(&found) {
                let both = |of: fn(&Figures) -> f64| (median(ours, of), median(bare, of));
                let (rate, cpu, waits) = (both(|f| f.rate), both(|f| f.cpu), both(|f| f.waits));
                println!(
                    "{name}, {threads:3} threads: {:7.0} images/s (bare {:7.0}), {:5.2} µs CPU (bare {:5.2}), {:6.3} waits (bare {:6.3}), \
                     {:.2} allocations, {:.3} hand-overs",
                    rate.0,
                    rate.1,
                    cpu.0,
                    cpu.1,
                    waits.0,
                    waits.1,
                    median(ours, |f| f.allocations),
                    median(ours, |f| f.hand_overs),
                );
            }
        }
    }
}
