//! Batches on a GPU are those of the CPU, whole when they are yielded, and their memory is never reused too early.
//!
//! Everything runs on the mock GPU, where work runs as late as CUDA allows: a wait that is missing shows.

use std::{
    ffi::c_void,
    future::IntoFuture as _,
    ops::Range,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use cudarc::driver::sys as cu;
use image::{ExtendedColorType, ImageEncoder};
use infeed::{
    Batch, DType, Device, ErrorKind, Layout, Loader, LoaderBuilder, OnBadSample, Result,
    codec::GpuSplit,
    dataset::{Dataset, MemoryDataset},
    device::{CudaEvent, CudaStream},
    internal::{cuda::Context, rows::Pool},
    report::Stage,
    sampler::LastBatch,
    transform::{IMAGENET_MEAN, IMAGENET_STD, Transform},
};

use crate::{
    mock::{code, ok},
    nvjpeg::AsPixels,
    support::{
        Plain,
        mock::{Mock, fails_on_mock, on_mock},
        records::Records,
        until,
    },
};

pub(crate) const GPU: Device = Device::Cuda(0);

/// Pictures whose pixels depend on record and place, with labels.
pub(crate) fn pictures(count: u64, height: u32, width: u32) -> Arc<dyn Dataset> {
    let bytes = count * u64::from(height * width * 3);
    let pixels: Vec<u8> = (0..bytes).map(|i| (i * 7 + i / 431 * 13) as u8).collect();
    let labels = (0..count as i64).collect();
    let words = (0..count).map(|i| format!("record {i}").into()).collect();
    let builder = MemoryDataset::builder().images_u8(pixels, count as usize, height, width, 3, false);
    Arc::new(builder.labels(labels).bytes("words", words).build().unwrap())
}

pub(crate) fn loader(
    dataset: &Arc<dyn Dataset>,
    device: Device,
    settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder,
) -> Loader {
    let builder = Loader::builder(Arc::clone(dataset)).shuffle(5).workers(2);
    settings(builder).device(device).build_blocking().unwrap()
}

/// A batch's values, wherever it lies.
pub(crate) fn plain(batch: &Batch) -> Plain {
    let mut bytes = Vec::new();
    for (_, tensor) in batch.fields() {
        bytes.extend_from_slice(tensor.to_host().unwrap().bytes().unwrap());
    }
    for (_, values) in batch.byte_fields() {
        values.iter().for_each(|value| bytes.extend_from_slice(value));
    }
    (batch.epoch(), batch.records().to_vec(), batch.positions().to_vec(), batch.valid(), bytes)
}

pub(crate) fn all(loader: &Loader, epochs: Range<u64>) -> Vec<Plain> {
    loader.epochs(epochs).blocking().map(|batch| plain(&batch.unwrap())).collect()
}

/// The same settings on both devices.
pub(crate) fn agree(dataset: &Arc<dyn Dataset>, settings: impl Fn(LoaderBuilder) -> LoaderBuilder) {
    let want = all(&loader(dataset, Device::Cpu, &settings), 0..2);
    let on_gpu = loader(dataset, GPU, &settings);
    assert_eq!(on_gpu.config().device, Some(GPU));
    let got = all(&on_gpu, 0..2);
    assert!(!want.is_empty());
    assert_eq!(want.len(), got.len());
    for (want, got) in want.iter().zip(&got) {
        assert_eq!((&want.0, &want.1, &want.2, &want.3), (&got.0, &got.1, &got.2, &got.3));
        assert!(want.4 == got.4, "the bytes of a batch differ");
    }
}

pub(crate) fn augment() -> Transform {
    Transform::new().random_crop(12, 3).horizontal_flip(0.5).normalize(IMAGENET_MEAN, IMAGENET_STD)
}

#[test]
fn batches_are_equal_to_the_cpus_byte_for_byte() {
    on_mock("device::batches_are_equal_to_the_cpus_byte_for_byte", &[], |_| {
        let dataset = pictures(60, 14, 18);
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            for layout in [Layout::Nchw, Layout::Nhwc] {
                agree(&dataset, |b| b.batch_size(16).transform(augment()).dtype(dtype).layout(layout));
            }
        }
        let grow = || Transform::new().random_resized_crop(31).vertical_flip(0.5).cutout(9);
        agree(&dataset, |b| b.batch_size(7).transform(grow()).dtype(DType::U8).last_batch(LastBatch::Partial));
        agree(&dataset, |b| b.batch_size(9).last_batch(LastBatch::Pad).transform(Transform::new().resize_exact(5, 6)));
    });
}

#[test]
fn delays_and_orders_change_no_byte() {
    for seed in ["1", "7", "23"] {
        let env = [("INFEED_MOCK_SEED", seed)];
        on_mock("device::delays_and_orders_change_no_byte", &env, |_| {
            let dataset = pictures(200, 10, 10);
            agree(&dataset, |b| b.batch_size(12).transform(augment()).prefetch(3).workers(3));
        });
    }
}

/// Class folders with PNGs of several kinds, and rows that are smaller than the pictures.
#[test]
fn files_are_decoded_on_the_cpu_and_their_smaller_side_travels() {
    on_mock("device::files_are_decoded_on_the_cpu_and_their_smaller_side_travels", &[], |mock| {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("a");
        std::fs::create_dir(&class).unwrap();
        for n in 0..12u32 {
            let (height, width) = (40 + n, 60 - n);
            let deep = n % 3 == 0;
            let values = (height * width * 3) as usize;
            let bytes: Vec<u8> = (0..values * if deep { 2 } else { 1 }).map(|i| (i * 31 + n as usize) as u8).collect();
            let mut file = Vec::new();
            let colour = if deep { ExtendedColorType::Rgb16 } else { ExtendedColorType::Rgb8 };
            image::codecs::png::PngEncoder::new(&mut file).write_image(&bytes, width, height, colour).unwrap();
            std::fs::write(class.join(format!("{n:02}.png")), file).unwrap();
        }
        let url = folder.path().to_str().unwrap().to_owned();
        let dataset = futures::executor::block_on(infeed::open(url).into_future()).unwrap();
        // 8x8 of u8 is 192 bytes: finished rows travel. 64x64 of f32 is 49152: pixels do.
        let before = mock.counts().total("kernels");
        let small = Transform::new().resize_exact(8, 8);
        agree(&dataset, |b| b.batch_size(4).transform(small.clone()).dtype(DType::U8));
        assert_eq!(mock.counts().total("kernels"), before, "rows were finished on the CPU");
        let large = Transform::new().random_resized_crop(64).normalize(IMAGENET_MEAN, IMAGENET_STD);
        agree(&dataset, |b| b.batch_size(4).transform(large.clone()));
        assert!(mock.counts().total("kernels") > before, "rows were made on the GPU");
    });
}

/// A trainer's stream.
pub(crate) struct Trainer {
    pub(crate) stream: cu::CUstream,
}

impl Trainer {
    pub(crate) fn new() -> Self {
        let mut context = ptr::null_mut();
        ok!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
        ok!(cuCtxSetCurrent(context));
        let mut stream = ptr::null_mut();
        ok!(cuStreamCreateWithPriority(&raw mut stream, 1, 0));
        Self { stream }
    }
    pub(crate) fn handle(&self) -> CudaStream {
        // SAFETY: destroyed after all tensors are dropped.
        unsafe { CudaStream::from_raw(self.stream.cast()) }
    }
    /// Queues the reading of a tensor; what it read stands in the memory once the stream was waited for.
    pub(crate) fn read(&self, from: u64, len: usize) -> *mut c_void {
        let mut copy: *mut c_void = ptr::null_mut();
        ok!(cuMemHostAlloc(&raw mut copy, len, 0));
        ok!(cuMemcpyDtoHAsync_v2(copy, from, len, self.stream));
        copy
    }
    pub(crate) fn wait(&self) {
        ok!(cuStreamSynchronize(self.stream));
    }
    pub(crate) fn take(&self, copy: *mut c_void, len: usize) -> Vec<u8> {
        // SAFETY: allocated with this length, and no copy into it is queued any more.
        let bytes = unsafe { std::slice::from_raw_parts(copy.cast::<u8>(), len) }.to_vec();
        ok!(cuMemFreeHost(copy));
        bytes
    }
    pub(crate) fn end(self) {
        ok!(cuStreamDestroy_v2(self.stream));
    }
}

/// A trainer queues work on each batch, drops the batch at once and goes on; its stream runs late. Gives what it read.
fn train_late(loader: &Loader, wait_every: usize) -> Vec<Vec<u8>> {
    let trainer = Trainer::new();
    let seen = train_naming(loader, wait_every, &trainer, trainer.handle());
    trainer.end();
    seen
}

/// The same of a trainer that says that it reads on the stream `named`.
fn train_naming(loader: &Loader, wait_every: usize, trainer: &Trainer, named: CudaStream) -> Vec<Vec<u8>> {
    let (mut copies, mut seen) = (Vec::new(), Vec::new());
    for (n, batch) in loader.epoch(0).blocking().enumerate() {
        let batch = batch.unwrap();
        let tensor = &batch["image"];
        let len = tensor.len() * tensor.dtype().size();
        let from = tensor.device_ptr(named).unwrap().as_raw();
        copies.push((trainer.read(from, len), len));
        drop(batch);
        if n % wait_every == wait_every - 1 {
            trainer.wait();
        }
    }
    trainer.wait();
    copies.into_iter().for_each(|(copy, len)| seen.push(trainer.take(copy, len)));
    seen
}

pub(crate) fn images(loader: &Loader) -> Vec<Vec<u8>> {
    let image = |batch: Result<Batch>| batch.unwrap()["image"].to_host().unwrap().bytes().unwrap().to_vec();
    loader.epoch(0).blocking().map(image).collect()
}

/// A buffer that a trainer still reads is not asked about: whoever needs it sleeps in the driver, and is told.
#[test]
fn a_buffer_that_is_still_read_comes_back_by_itself() {
    on_mock("device::a_buffer_that_is_still_read_comes_back_by_itself", &[], |_| {
        let context = Context::open(0).unwrap();
        let pool = Pool::on_device(&context, 1, 64, 1).unwrap();
        let trainer = Trainer::new();
        let batch = pool.try_take(1, 64).unwrap().expect("the first").freeze();
        let copy = trainer.read(batch.address_for(trainer.handle()).expect("on the GPU"), 64);
        let returned = pool.returned();
        drop(batch);
        futures::executor::block_on(returned);
        let still_read = pool.still_read().expect("the trainer reads it");
        assert!(pool.still_read().is_none(), "one buffer, one waiter");
        assert!(pool.try_take(1, 64).unwrap().is_none(), "it is waited for, not multiplied");
        assert_eq!((pool.idle_bytes(), pool.lent()), (64, 0));
        let returned = pool.returned();
        let waiter = std::thread::spawn(move || still_read.wait());
        // Nothing else ends this: there is no clock.
        futures::executor::block_on(returned);
        waiter.join().unwrap();
        drop(pool.try_take(1, 64).unwrap().expect("the trainer has read it"));
        trainer.wait();
        drop(trainer.take(copy, 64));
        trainer.end();
    });
}

#[test]
fn memory_is_reused_only_behind_the_trainers_work() {
    on_mock("device::memory_is_reused_only_behind_the_trainers_work", &[("INFEED_MOCK_SEED", "3")], |mock| {
        let dataset = pictures(300, 16, 16);
        let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).prefetch(2);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        let most = mock.counts().total("device_bytes");
        assert!(train_late(&on_gpu, 8) == want, "a batch was overwritten before the trainer had read it");
        assert!(
            mock.counts().total("device_bytes_most") <= most,
            "batches that came back are waited for, not multiplied"
        );
        // Streams share the GPU's queues: one that waits for a trainer's step would hold up uploads and decodes behind it.
        assert_eq!(mock.counts().total("stream_waits"), 0, "a stream of the loader waited for the trainer's");
    });
}

/// The test above can fail: where the trainer names a stream that it does not read on, it does.
#[test]
fn a_reader_that_is_not_waited_for_is_found() {
    let test = "device::a_reader_that_is_not_waited_for_is_found";
    fails_on_mock(test, &[], "overwritten", |_| {
        let dataset = pictures(300, 16, 16);
        let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).prefetch(2);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        let (trainer, idle) = (Trainer::new(), Trainer::new());
        let seen = train_naming(&on_gpu, 100, &trainer, idle.handle());
        assert!(seen == want, "a batch was overwritten before the trainer had read it");
    });
}

/// A batch is complete when it is yielded; without the worker's wait for its kernels it is not, and that is found.
#[test]
fn a_kernel_that_is_not_waited_for_is_found() {
    let test = "device::a_kernel_that_is_not_waited_for_is_found";
    // Before the pixels are looked at, the times of the launch are asked for.
    fails_on_mock(test, &[], "cuEventElapsedTime returned 600", |mock| {
        let dataset = pictures(40, 16, 16);
        let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment());
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        mock.ignore_wait("cuEventQuery", 1);
        mock.ignore_wait("cuEventSynchronize", 1);
        let trainer = Trainer::new();
        for (batch, want) in on_gpu.epoch(0).blocking().zip(want) {
            let batch = batch.unwrap();
            let from = batch["image"].device_ptr(trainer.handle()).unwrap().as_raw();
            let copy = trainer.read(from, want.len());
            trainer.wait();
            assert!(trainer.take(copy, want.len()) == want, "a batch was not complete when it was yielded");
        }
    });
}

#[test]
fn an_event_keeps_memory_for_streams_that_nobody_named() {
    on_mock("device::an_event_keeps_memory_for_streams_that_nobody_named", &[], |_| {
        let dataset = pictures(120, 16, 16);
        let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).prefetch(1);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        let trainer = Trainer::new();
        let mut copies = Vec::new();
        for (n, batch) in on_gpu.epoch(0).blocking().enumerate() {
            let batch = batch.unwrap();
            let tensor = &batch["image"];
            let len = tensor.len() * tensor.dtype().size();
            // The address is asked for with another stream than the one that reads.
            let from = tensor.device_ptr(CudaStream::DEFAULT).unwrap().as_raw();
            copies.push((trainer.read(from, len), len));
            let mut event = ptr::null_mut();
            ok!(cuEventCreate(&raw mut event, 2));
            ok!(cuEventRecord(event, trainer.stream));
            // SAFETY: a live event of this device.
            tensor.release_after(unsafe { CudaEvent::from_raw(event.cast()) }).unwrap();
            ok!(cuEventDestroy_v2(event));
            drop(batch);
            if n % 2 == 1 {
                trainer.wait();
            }
        }
        trainer.wait();
        let seen: Vec<_> = copies.into_iter().map(|(copy, len)| trainer.take(copy, len)).collect();
        trainer.end();
        assert!(seen == want);
    });
}

/// Ends a capture that nothing must have spoilt.
fn end_capture(stream: cu::CUstream) {
    let mut graph = ptr::null_mut();
    ok!(cuStreamEndCapture(stream, &raw mut graph));
}

/// In the default mode no thread of the process may wait or allocate, unless it stands aside.
#[test]
fn a_graph_may_be_captured_while_batches_are_made() {
    on_mock("device::a_graph_may_be_captured_while_batches_are_made", &[], |mock| {
        mock.register_decoder();
        let files = crate::nvjpeg::mixture();
        let settings = |b: LoaderBuilder| {
            let crop = Transform::new().random_resized_crop(24).horizontal_flip(0.5);
            b.transform(crop).batch_size(16).dtype(DType::U8).codec(AsPixels::for_all()).streams(1)
        };
        let dataset = crate::nvjpeg::dataset(&files);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let _context = Context::open(0).unwrap();
        let trainer = Trainer::new();
        for mode in [
            cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
            cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        ] {
            ok!(cuStreamBeginCapture_v2(trainer.stream, mode));
            // Built, run, looked at and dropped in the middle of it, by the thread that captures and by others.
            let on_gpu = loader(&dataset, GPU, settings);
            let (dropped, batches) = std::sync::mpsc::channel::<Batch>();
            let other = thread::spawn(move || batches.into_iter().for_each(drop));
            let mut found = Vec::new();
            for batch in on_gpu.epoch(0).blocking() {
                let batch = batch.unwrap();
                found.push(batch["image"].to_host().unwrap().bytes().unwrap().to_vec());
                dropped.send(batch).unwrap();
            }
            drop(dropped);
            other.join().unwrap();
            drop(on_gpu);
            end_capture(trainer.stream);
            assert!(found == want, "batches made beside a capture are others");
        }
        let counts = mock.counts();
        assert!(counts.calls("nvjpegDecodeBatchedEx") > 0 && counts.calls("nvjpegDecodeJpegDevice") > 0);
        // The thread is as it was.
        let mut mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
        assert_eq!(mode, cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL);
        trainer.end();
    });
}

#[test]
fn a_batch_that_a_graph_reads_keeps_its_memory() {
    on_mock("device::a_batch_that_a_graph_reads_keeps_its_memory", &[], |mock| {
        let dataset = pictures(120, 16, 16);
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()).prefetch(2));
        let want = images(&loader(&dataset, Device::Cpu, |b| b.batch_size(10).transform(augment())));
        let trainer = Trainer::new();
        let mut batches = on_gpu.epoch(0).blocking();
        let batch = batches.next().unwrap().unwrap();
        let mode = cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        ok!(cuStreamBeginCapture_v2(trainer.stream, mode));
        let tensor = &batch["image"];
        let (from, len) = (tensor.device_ptr(trainer.handle()).unwrap().as_raw(), want[0].len());
        drop(batch);
        end_capture(trainer.stream);
        for (batch, want) in batches.zip(&want[1..]) {
            assert!(batch.unwrap()["image"].to_host().unwrap().bytes().unwrap() == want);
        }
        // What the graph would read when it runs.
        let copy = trainer.read(from, len);
        trainer.wait();
        assert!(trainer.take(copy, len) == want[0], "the memory was used again");
        trainer.end();
        // Given up for good.
        mock.allow_leaks_of("device memory");
    });
}

/// The handle names another stream on each thread.
#[test]
fn a_threads_own_stream_may_be_named_on_one_thread_and_the_batch_dropped_on_another() {
    let test = "device::a_threads_own_stream_may_be_named_on_one_thread_and_the_batch_dropped_on_another";
    on_mock(test, &[], |_| {
        let dataset = pictures(200, 16, 16);
        let settings = |b: LoaderBuilder| b.batch_size(10).transform(augment()).prefetch(1);
        let want = images(&loader(&dataset, Device::Cpu, settings));
        let on_gpu = loader(&dataset, GPU, settings);
        let (read, batches) = std::sync::mpsc::sync_channel::<Batch>(0);
        let trainer = thread::spawn(move || {
            let trainer = Trainer::new();
            let own: cu::CUstream = CudaStream::PER_THREAD.as_raw().cast();
            let mut copies = Vec::new();
            for (n, batch) in on_gpu.epoch(0).blocking().enumerate() {
                let batch = batch.unwrap();
                let tensor = &batch["image"];
                let len = tensor.len() * tensor.dtype().size();
                let from = tensor.device_ptr(CudaStream::PER_THREAD).unwrap().as_raw();
                let mut copy: *mut c_void = ptr::null_mut();
                ok!(cuMemHostAlloc(&raw mut copy, len, 0));
                ok!(cuMemcpyDtoHAsync_v2(copy, from, len, own));
                copies.push((copy, len));
                // Every second one here, the others elsewhere.
                if n % 2 == 1 { drop(batch) } else { read.send(batch).unwrap() }
            }
            ok!(cuStreamSynchronize(own));
            let seen: Vec<_> = copies.into_iter().map(|(copy, len)| trainer.take(copy, len)).collect();
            trainer.end();
            seen
        });
        batches.into_iter().for_each(drop);
        assert!(trainer.join().unwrap() == want, "a batch was overwritten before the trainer had read it");
    });
}

/// Threads that are in the driver, or on their way into it, when the process ends, crash no program.
#[test]
fn a_process_may_end_at_any_time() {
    let slow = [("INFEED_MOCK_STRICT", "1"), ("INFEED_MOCK_SLOW_END", "40")];
    // The child does not come back from its body: status 0 is what there is to see.
    fails_on_mock("device::a_process_may_end_at_any_time", &slow, "exit status: 0", |mock| {
        mock.register_decoder();
        let dataset = crate::nvjpeg::dataset(&crate::nvjpeg::mixture());
        let crop = |b: LoaderBuilder| b.transform(Transform::new().random_resized_crop(24)).batch_size(16);
        // One in the middle of its work, one whose threads take themselves down.
        let running = loader(&dataset, GPU, crop);
        let mut batches = running.epochs(0..1000).blocking();
        batches.next().unwrap().unwrap();
        let ending = loader(&dataset, GPU, crop);
        ending.epoch(0).blocking().next().unwrap().unwrap();
        drop(ending);
        while mock.counts().calls("nvjpegJpegStateDestroy") == 0 {
            thread::yield_now();
        }
        std::process::exit(0);
    });
}

/// The decode threads end after the exit handler: their calls are refused, and work of theirs is still on the GPU. With
/// four loaders, one nearly always has such work.
#[test]
fn loaders_may_be_dropped_while_the_process_ends() {
    const LOADERS: usize = 4;
    static ENDS: AtomicBool = AtomicBool::new(false);
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn end() {
        ENDS.store(true, Ordering::SeqCst);
        while DROPPED.load(Ordering::SeqCst) < LOADERS {
            thread::yield_now();
        }
    }
    unsafe extern "C" {
        fn atexit(end: extern "C" fn()) -> std::ffi::c_int;
    }
    let slow = [("INFEED_MOCK_STRICT", "1"), ("INFEED_MOCK_SLOW_END", "40"), ("INFEED_MOCK_SEED", "7")];
    fails_on_mock("device::loaders_may_be_dropped_while_the_process_ends", &slow, "exit status: 0", |mock| {
        // Before that of the loaders: handlers run in the reverse order.
        // SAFETY: the handler takes no arguments and uses only statics.
        assert_eq!(unsafe { atexit(end) }, 0);
        mock.register_decoder();
        let dataset = crate::nvjpeg::dataset(&crate::nvjpeg::ordinary(200));
        let crop = |b: LoaderBuilder| b.transform(Transform::new().random_resized_crop(24)).batch_size(50).prefetch(8);
        let (batch, batches) = std::sync::mpsc::channel();
        for _ in 0..LOADERS {
            let (loader, batch) = (loader(&dataset, GPU, crop), batch.clone());
            thread::spawn(move || {
                let mut batches = loader.epochs(0..1000).blocking();
                while !ENDS.load(Ordering::SeqCst) {
                    let _ = batch.send(matches!(batches.next(), Some(Ok(_))));
                }
                drop(batches);
                futures::executor::block_on(loader.shutdown());
                DROPPED.fetch_add(1, Ordering::SeqCst);
            });
        }
        for _ in 0..20 {
            assert!(batches.recv().unwrap());
        }
        std::process::exit(0);
    });
}

/// An image from a file is a job of its own; a launch has a copy, a kernel and three events.
#[test]
fn images_that_the_cpu_decodes_share_launches() {
    on_mock("device::images_that_the_cpu_decodes_share_launches", &[("INFEED_NVJPEG", "/nowhere")], |mock| {
        let dataset = crate::nvjpeg::dataset(&crate::nvjpeg::ordinary(200));
        let crop = Transform::new().random_resized_crop(48);
        let pixels = |b: LoaderBuilder| b.transform(crop.clone()).codec(AsPixels::for_all());
        let settings = |b: LoaderBuilder| pixels(b).batch_size(50).workers(2).prefetch(3);
        let found = images(&loader(&dataset, GPU, settings));
        assert_eq!(found.len(), 4);
        let kernels = mock.counts().total("kernels");
        assert!((200 / 8..=120).contains(&kernels), "{kernels} launches for 200 images");
    });
}

#[test]
fn a_stream_dropped_in_the_middle_leaves_nothing_behind() {
    on_mock("device::a_stream_dropped_in_the_middle_leaves_nothing_behind", &[("INFEED_MOCK_SEED", "5")], |_| {
        let dataset = pictures(400, 12, 12);
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(8).transform(augment()).prefetch(4).workers(3));
        for taken in 0..6 {
            let mut batches = on_gpu.epoch(0).blocking();
            let kept: Vec<_> = batches.by_ref().take(taken).collect();
            drop(batches);
            assert!(kept.iter().all(Result::is_ok));
        }
        let whole = all(&on_gpu, 0..1);
        assert_eq!(whole.len(), 50);
        // Tensors outlive the loader.
        let last = on_gpu.epoch(1).blocking().next().unwrap().unwrap();
        drop(on_gpu);
        assert_eq!(last["image"].to_host().unwrap().shape(), [8, 3, 12, 12]);
    });
}

#[test]
fn a_trainer_that_keeps_batches_gets_more_memory_until_there_is_none() {
    let test = "device::a_trainer_that_keeps_batches_gets_more_memory_until_there_is_none";
    on_mock(test, &[], |mock| {
        let dataset = pictures(4000, 16, 16);
        // 40 rows of 12x12 f32: 69,120 bytes.
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(40).transform(augment()).prefetch(4));
        let bytes = mock.counts().total("device_bytes") as usize;
        mock.memory_limit(bytes + 6 * 69_120 + 6 * 320);
        let mut batches = on_gpu.epoch(0).blocking();
        let (mut kept, mut error) = (Vec::new(), None);
        for batch in batches.by_ref() {
            match batch {
                Ok(batch) => kept.push(batch),
                Err(e) => error = Some(e),
            }
        }
        let error = error.expect("the memory ends before the epoch does");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        assert!(error.to_string().contains("out of device memory"), "{error}");
        assert!(error.to_string().contains("lower batch_size"), "{error}");
        assert!(kept.len() >= 9, "{} batches", kept.len());
        // A trainer that gives batches back gets all of them, also after the shortage.
        drop(kept);
        drop(batches);
        assert_eq!(all(&on_gpu, 0..1).len(), 100);
    });
}

#[test]
fn a_small_gpu_gets_fewer_batches_ahead_or_a_clear_refusal() {
    let test = "device::a_small_gpu_gets_fewer_batches_ahead_or_a_clear_refusal";
    on_mock(test, &[("INFEED_MOCK_MEMORY", "67108864")], |_| {
        let dataset = pictures(400, 16, 16);
        let with = |size: usize| {
            let crop = Transform::new().random_resized_crop(size as u32);
            Loader::builder(Arc::clone(&dataset)).device(GPU).batch_size(32).transform(crop).workers(1).prefetch(8)
        };
        // 32 rows of 3x128x128 f32 are 6.3 MB: 8 ahead are more than half of what is free.
        let loader = with(128).build_blocking().unwrap();
        let config = loader.config();
        assert!((1..8).contains(&config.prefetch.unwrap()), "{config:?}");
        assert!(config.device_budget.unwrap() <= 32 << 20, "{config:?}");
        let error = with(512).build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("2 batches of"), "{error}");
        let error = with(128).device_budget(8 << 20).build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("device_budget is 8192 KiB"), "{error}");
    });
}

#[test]
fn memory_that_goes_while_a_loader_is_built_costs_batches_ahead() {
    let test = "device::memory_that_goes_while_a_loader_is_built_costs_batches_ahead";
    on_mock(test, &[("INFEED_MOCK_FAIL", "cuMemAllocAsync:6:2")], |_| {
        let dataset = pictures(100, 16, 16);
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()).prefetch(6));
        assert_eq!(on_gpu.config().prefetch, Some(3));
        assert_eq!(all(&on_gpu, 0..1).len(), 10);
    });
}

#[test]
fn a_lost_gpu_ends_the_stream_with_an_error() {
    for after in [40, 90, 160, 400] {
        let test = "device::a_lost_gpu_ends_the_stream_with_an_error";
        on_mock(test, &[("INFEED_TEST_AFTER", &after.to_string())], |mock| {
            let after = std::env::var("INFEED_TEST_AFTER").unwrap().parse().unwrap();
            // What is alive when a GPU is lost can't be freed.
            mock.allow_leaks();
            let dataset = pictures(2000, 16, 16);
            let policy = OnBadSample::Skip { at_most: u64::MAX };
            let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()).on_bad_sample(policy));
            mock.lose_device(after);
            let mut batches = on_gpu.epochs(0..100).blocking();
            let error = batches.find_map(Result::err).expect("no batch can be made on a lost GPU");
            assert_eq!(error.kind(), ErrorKind::Device, "{error:#}");
            assert!(batches.next().is_none());
        });
    }
}

#[test]
fn a_failing_call_is_named() {
    for call in ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuEventRecord"] {
        on_mock("device::a_failing_call_is_named", &[("INFEED_TEST_CALL", call)], |mock| {
            let call = std::env::var("INFEED_TEST_CALL").unwrap();
            let dataset = pictures(300, 16, 16);
            let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()));
            mock.fail(&call, 20, 719);
            let error = on_gpu.epochs(0..2).blocking().find_map(Result::err).expect("a call failed");
            assert_eq!(error.kind(), ErrorKind::Device, "{error:#}");
            assert!(error.to_string().contains(call.trim_end_matches("_v2")), "{error:#}");
        });
    }
}

#[test]
fn bad_samples_follow_the_policy_on_a_gpu_too() {
    on_mock("device::bad_samples_follow_the_policy_on_a_gpu_too", &[], |_| {
        let folder = tempfile::tempdir().unwrap();
        let class = folder.path().join("a");
        std::fs::create_dir(&class).unwrap();
        for n in 0..20u8 {
            let bytes: Vec<u8> = (0..20 * 20 * 3).map(|i| (i * 7) as u8 ^ n).collect();
            let mut file = Vec::new();
            let encoder = image::codecs::png::PngEncoder::new(&mut file);
            encoder.write_image(&bytes, 20, 20, ExtendedColorType::Rgb8).unwrap();
            if n % 6 == 3 {
                file.truncate(file.len() / 2);
            }
            std::fs::write(class.join(format!("{n:02}.png")), file).unwrap();
        }
        let url = folder.path().to_str().unwrap().to_owned();
        let dataset = futures::executor::block_on(infeed::open(url).into_future()).unwrap();
        let transform = || Transform::new().resize_exact(16, 16).to_float();
        let skips = [OnBadSample::Skip { at_most: 100 }, OnBadSample::SkipPadded { at_most: 100 }];
        for policy in [skips[0], skips[1], OnBadSample::Substitute] {
            agree(&dataset, |b| b.batch_size(5).transform(transform()).on_bad_sample(policy));
        }
        let skips = loader(&dataset, GPU, |b| b.batch_size(5).transform(transform()).on_bad_sample(skips[0]));
        let batches: Vec<Batch> = skips.epoch(0).blocking().map(Result::unwrap).collect();
        for batch in &batches {
            assert_eq!((batch.len(), batch["image"].shape()[0]), (5 - batch.bad_samples().len(), batch.len()));
            assert_eq!((batch.valid(), batch["label"].shape()), (batch.len(), &[batch.len()][..]));
        }
        assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 17, "records 3, 9 and 15 are bad");
        let stops = loader(&dataset, GPU, |b| b.batch_size(5).transform(transform()));
        let error = stops.epoch(0).blocking().find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.context().record.is_some());
    });
}

#[test]
fn arrays_and_remote_records_arrive_on_the_gpu() {
    on_mock("device::arrays_and_remote_records_arrive_on_the_gpu", &[], |_| {
        for dataset in [Records::resident(70), Records::remote(70).0] {
            agree(&dataset, |b| b.batch_size(8).last_batch(LastBatch::Partial));
        }
    });
}

#[test]
fn times_on_the_gpu_and_host_to_device_are_reported() {
    on_mock("device::times_on_the_gpu_and_host_to_device_are_reported", &[], |_| {
        let dataset = pictures(100, 16, 16);
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()));
        let mut batches = on_gpu.epoch(0).blocking();
        assert_eq!(batches.by_ref().count(), 10);
        let report = batches.report();
        let device = |stage| report.stages.iter().find(|s| s.stage == stage).unwrap().device;
        assert!(device(Stage::Transfer) > Duration::ZERO && device(Stage::Transform) > Duration::ZERO, "{report:?}");
    });
}

#[test]
fn a_machine_without_a_usable_gpu_falls_back_or_says_why() {
    let (devices, fail) = ("INFEED_MOCK_DEVICES", "INFEED_MOCK_FAIL");
    let cases = [
        (devices, "0", "the driver sees no GPU", "check nvidia-smi and CUDA_VISIBLE_DEVICES"),
        (fail, "cuInit:1:803", "different versions", "or use device(Cpu)"),
        (fail, "cuDevicePrimaryCtxRetain:0:46", "another process uses the GPU", "end that process, or use another GPU"),
        (fail, "cuDevicePrimaryCtxRetain:0:2", "out of device memory", "nvidia-smi lists its users"),
        (fail, "cuModuleLoadDataEx:0:222", "too old for infeed's kernels", "update the driver to one for CUDA 12.0"),
    ];
    for (name, value, words, advice) in cases {
        let test = "device::a_machine_without_a_usable_gpu_falls_back_or_says_why";
        on_mock(test, &[(name, value), ("INFEED_TEST_WORDS", words), ("INFEED_TEST_ADVICE", advice)], |_| {
            let [words, advice] = ["INFEED_TEST_WORDS", "INFEED_TEST_ADVICE"].map(|name| std::env::var(name).unwrap());
            let dataset = pictures(20, 16, 16);
            let automatic = Loader::builder(Arc::clone(&dataset)).device_auto().batch_size(10).transform(augment());
            assert_eq!(automatic.build_blocking().unwrap().config().device, Some(Device::Cpu));
            let asked = Loader::builder(dataset).batch_size(10).device(GPU).build_blocking().unwrap_err();
            let memory = words.contains("memory");
            assert_eq!(asked.kind(), if memory { ErrorKind::OutOfMemory } else { ErrorKind::Device }, "{asked}");
            assert!(asked.what().contains(&words), "{asked}");
            assert!(asked.hint().is_some_and(|help| help.contains(&advice)), "{asked}");
        });
    }
}

#[test]
fn loaders_of_one_gpu_share_its_kernels() {
    let test = "device::loaders_of_one_gpu_share_its_kernels";
    on_mock(test, &[("INFEED_MOCK_DEVICES", "2")], |mock| {
        let loads = || mock.counts().calls("cuModuleLoadDataEx");
        let dataset = pictures(40, 16, 16);
        let on = |device| loader(&dataset, device, |b| b.batch_size(10).transform(augment()));
        let (first, second) = (on(GPU), on(GPU));
        assert_eq!(loads(), 1, "compiled once");
        // A loader that ends takes nothing from the other.
        let want = all(&first, 0..1);
        drop(first);
        assert!(all(&second, 0..1) == want);
        let other = on(Device::Cuda(1));
        assert_eq!(loads(), 2, "each GPU has its own");
        drop((second, other));
        // Threads may be on their way out.
        until("unloaded with the last", || mock.counts().alive("module") == 0);
        assert!(all(&on(GPU), 0..1) == want);
        assert_eq!(loads(), 3);
    });
}

#[test]
fn kernels_that_can_not_be_compiled_are_an_error_with_the_compilers_words() {
    let test = "device::kernels_that_can_not_be_compiled_are_an_error_with_the_compilers_words";
    let log = "ptxas application ptx input, line 9; fatal   : Unsupported .version 8.0; current version is '7.4'\n\n";
    let cases = [
        ("222", "too old for infeed's kernels", "525 or newer"),
        ("218", "can't compile infeed's kernels", "525 or newer"),
        ("221", "libnvidia-ptxjitcompiler", "NVIDIA_DRIVER_CAPABILITIES"),
        ("223", "set not to compile", "CUDA_DISABLE_PTX_JIT"),
        ("209", "compute capability 7.0", "another GPU"),
        ("2", "out of device memory", "free memory of the GPU"),
    ];
    for (code, what, hint) in cases {
        let fail = format!("cuModuleLoadDataEx:0:{code}");
        let env = [
            ("INFEED_MOCK_FAIL", fail.as_str()),
            ("INFEED_MOCK_JIT", log),
            ("INFEED_TEST_WORDS", what),
            ("INFEED_TEST_HINT", hint),
        ];
        on_mock(test, &env, |_| {
            let asked = Loader::builder(pictures(20, 16, 16)).batch_size(10).device(GPU).build_blocking().unwrap_err();
            let told = format!("{asked:#}");
            for words in ["INFEED_TEST_WORDS", "INFEED_TEST_HINT"].map(|name| std::env::var(name).unwrap()) {
                assert!(told.contains(&words), "{told:?} lacks {words:?}");
            }
            assert!(told.contains("cuda:0") && told.ends_with("current version is '7.4'"), "{told:?}");
        });
    }
}

#[test]
fn auto_takes_the_gpu_of_the_local_rank_and_a_wrong_index_is_named() {
    let test = "device::auto_takes_the_gpu_of_the_local_rank_and_a_wrong_index_is_named";
    on_mock(test, &[("INFEED_MOCK_DEVICES", "2")], |_| {
        let dataset = pictures(40, 16, 16);
        for rank in 0..3 {
            let shard = infeed::Shard::new(rank, 3).unwrap().with_local(rank, 3).unwrap();
            let builder = Loader::builder(Arc::clone(&dataset)).batch_size(5).shard(shard).transform(augment());
            let on_gpu = builder.device_auto().build_blocking().unwrap();
            let batch = on_gpu.epoch(0).blocking().next().unwrap().unwrap();
            assert_eq!(batch["image"].device(), Device::Cuda(rank % 2));
            assert_eq!(batch["label"].device(), Device::Cuda(rank % 2));
        }
        let wrong = Loader::builder(dataset).batch_size(5).device(Device::Cuda(2));
        let error = wrong.build_blocking().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().contains("no cuda:2: this machine has 2 GPUs"), "{error}");
    });
}

#[test]
fn batches_stay_in_host_memory_unless_a_gpu_is_asked_for() {
    on_mock("device::batches_stay_in_host_memory_unless_a_gpu_is_asked_for", &[], |mock| {
        let dataset = pictures(20, 16, 16);
        let builder = || Loader::builder(Arc::clone(&dataset)).batch_size(10).transform(augment());
        let config = |text| builder().config(serde_json::from_str(text).unwrap()).batch_size(10).transform(augment());
        let place = |builder: LoaderBuilder| {
            let loader = builder.build_blocking().unwrap();
            let batch = loader.epoch(0).blocking().next().unwrap().unwrap();
            assert_eq!(loader.config().device, Some(batch["image"].device()));
            batch["image"].device()
        };
        for unsaid in [builder(), config("{}"), builder().device_auto().device(Device::Cpu)] {
            assert_eq!(place(unsaid), Device::Cpu);
        }
        assert_eq!(mock.counts().calls("cuDevicePrimaryCtxRetain"), 0, "a GPU was woken up");
        let asked = [builder().device_auto(), config(r#"{ "device": "auto" }"#), config(r#"{ "device": null }"#)];
        for asked in asked.into_iter().chain([builder().device(GPU), config(r#"{ "device": "cuda" }"#)]) {
            assert_eq!(place(asked), GPU);
        }
    });
}

#[test]
fn tensors_may_be_dropped_on_any_thread_and_the_trainers_context_stays() {
    let test = "device::tensors_may_be_dropped_on_any_thread_and_the_trainers_context_stays";
    on_mock(test, &[], |_| {
        let dataset = pictures(100, 16, 16);
        let on_gpu = loader(&dataset, GPU, |b| b.batch_size(10).transform(augment()));
        let threads: Vec<_> = on_gpu
            .epoch(0)
            .blocking()
            .map(|batch| {
                let batch = batch.unwrap();
                thread::spawn(move || {
                    let _ = batch["image"].device_ptr(CudaStream::DEFAULT);
                    drop(batch);
                    let mut current = ptr::dangling_mut();
                    assert_eq!(code!(cuCtxGetCurrent(&raw mut current)), cu::CUresult::CUDA_SUCCESS);
                    assert!(current.is_null(), "a context was left behind on a thread that had none");
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn a_fixed_split_and_the_cpu_have_one_checksum() {
    on_mock("device::a_fixed_split_and_the_cpu_have_one_checksum", &[], |_: &Mock| {
        let dataset = pictures(60, 14, 18);
        agree(&dataset, |b| b.batch_size(16).transform(augment()).gpu_split(GpuSplit::Fixed));
    });
}
