//! Batches in page-locked host memory are those of pageable memory, and their memory is written again only behind the copies
//! of a trainer that told nobody of them.
//!
//! Everything runs on the mock GPU, where copies from page-locked memory run as late as CUDA allows: an end that is not
//! waited for shows.

use std::ffi::c_void;

use cudarc::driver::sys as cu;
use infeed::{
    Batch, DType, Device, ErrorKind, Loader, LoaderBuilder, OnBadSample,
    internal::{cuda::Context, rows::Pool},
    report::Stage,
    sampler::LastBatch,
    tensor::Tensor,
    transform::{Transform, augment::Mix},
};

use crate::{
    device::{GPU, Trainer, agree, all, augment, loader, pictures},
    mock::{code, ok},
    support::mock::{Mock, WITHOUT, fails_on_mock, on_mock},
};

fn pinned(builder: LoaderBuilder) -> LoaderBuilder {
    builder.pin_memory(true)
}

/// Whether the driver knows it as host memory that it page-locked.
fn is_page_locked(tensor: &Tensor) -> bool {
    const PAGE_LOCKED: u32 = cu::CUmemorytype_enum::CU_MEMORYTYPE_HOST as u32;
    let (mut kind, address) = (0u32, tensor.bytes().expect("host memory").as_ptr().addr() as u64);
    let what = cu::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let code = code!(cuPointerGetAttribute((&raw mut kind).cast::<c_void>(), what, address));
    code == cu::CUresult::CUDA_SUCCESS && kind == PAGE_LOCKED
}

/// The same settings in both kinds of memory.
fn agrees(settings: impl Fn(LoaderBuilder) -> LoaderBuilder) {
    let dataset = pictures(60, 14, 18);
    let want = all(&loader(&dataset, Device::Cpu, &settings), 0..2);
    let there = loader(&dataset, Device::Cpu, |b| pinned(settings(b)));
    assert!(there.config().pin_memory);
    let trainer = Trainer::new();
    for batch in there.epoch(0).blocking() {
        for (name, tensor) in batch.unwrap().fields() {
            assert_eq!(tensor.device(), Device::Cpu);
            assert!(is_page_locked(tensor), "{name}");
        }
    }
    assert!(!want.is_empty());
    assert!(all(&there, 0..2) == want, "the bytes of a batch differ");
    trainer.end();
}

#[test]
fn batches_are_page_locked_and_equal_byte_for_byte() {
    on_mock("pinned::batches_are_page_locked_and_equal_byte_for_byte", &[], |mock| {
        agrees(|b| b.batch_size(16).transform(augment()));
        agrees(|b| b.batch_size(7).dtype(DType::U8).last_batch(LastBatch::Partial).prefetch(1));
        agrees(|b| b.batch_size(9).last_batch(LastBatch::Pad).transform(Transform::new().resize_exact(5, 6)));
        agrees(|b| b.batch_size(8).on_bad_sample(OnBadSample::Skip { at_most: 1 }).workers(1));
        // Labels are made when the batch is whole.
        agrees(|b| {
            b.batch_size(8).transform(augment()).mix(Mix { mixup: 0.4, num_classes: Some(60), ..Mix::default() })
        });
        let counts = mock.counts();
        assert_eq!((counts.total("kernels"), counts.total("device_bytes_most")), (0, 0), "the GPU has nothing to do");
    });
}

/// A trainer queues the copy of each batch, drops the batch at once and goes on; its stream runs late. Gives what arrived.
fn copy_late(loader: &Loader, wait_every: usize) -> Vec<Vec<u8>> {
    let trainer = Trainer::new();
    let mut copies = Vec::new();
    for (n, batch) in loader.epoch(0).blocking().enumerate() {
        let batch = batch.unwrap();
        let bytes = batch["image"].bytes().unwrap();
        let (mut there, len) = (0, bytes.len());
        ok!(cuMemAlloc_v2(&raw mut there, len));
        ok!(cuMemcpyHtoDAsync_v2(there, bytes.as_ptr().cast(), len, trainer.stream));
        copies.push((there, len));
        drop(batch);
        if n % wait_every == wait_every - 1 {
            trainer.wait();
        }
    }
    trainer.wait();
    let mut arrived = Vec::new();
    for (there, len) in copies {
        let back = trainer.read(there, len);
        trainer.wait();
        arrived.push(trainer.take(back, len));
        ok!(cuMemFree_v2(there));
    }
    trainer.end();
    arrived
}

fn images(loader: &Loader) -> Vec<Vec<u8>> {
    let image = |batch: infeed::Result<Batch>| batch.unwrap()["image"].bytes().unwrap().to_vec();
    loader.epoch(0).blocking().map(image).collect()
}

fn small_batches(builder: LoaderBuilder) -> LoaderBuilder {
    builder.batch_size(10).transform(augment()).prefetch(2)
}

#[test]
fn memory_is_written_again_only_behind_copies_that_nobody_named() {
    for seed in ["0", "3", "11"] {
        let test = "pinned::memory_is_written_again_only_behind_copies_that_nobody_named";
        on_mock(test, &[("INFEED_MOCK_SEED", seed)], |mock| {
            let dataset = pictures(300, 16, 16);
            let want = images(&loader(&dataset, Device::Cpu, small_batches));
            let there = loader(&dataset, Device::Cpu, |b| pinned(small_batches(b)));
            assert!(copy_late(&there, 8) == want, "a batch was overwritten before the trainer had copied it");
            let batch = want[0].len() as i64;
            let most = mock.counts().total("pinned_bytes_most");
            // Two ahead, one that comes back, one that was handed over; labels and what was read back beside them.
            assert!(most < 6 * batch, "batches that came back are waited for, not multiplied: {most} bytes of {batch}");
        });
    }
}

/// The test above can fail: without the loader's waits for copies, it does.
#[test]
fn a_copy_that_is_not_waited_for_is_found() {
    fails_on_mock("pinned::a_copy_that_is_not_waited_for_is_found", &[], "overwritten", |mock| {
        let dataset = pictures(300, 16, 16);
        let want = images(&loader(&dataset, Device::Cpu, small_batches));
        let there = loader(&dataset, Device::Cpu, |b| pinned(small_batches(b)));
        mock.ignore_wait("cuEventQuery", 0);
        assert!(copy_late(&there, 100) == want, "a batch was overwritten before the trainer had copied it");
    });
}

/// Takes one, as the engine does: asks again where a GPU still copies from all that came back.
fn take(pool: &Pool) -> infeed::internal::rows::Rows {
    loop {
        if let Some(rows) = pool.try_take(1, 64).unwrap() {
            return rows;
        }
        while let Some(still_read) = pool.still_read() {
            still_read.wait();
        }
    }
}

#[test]
fn buffers_beyond_the_number_go_when_nobody_needs_them() {
    on_mock("pinned::buffers_beyond_the_number_go_when_nobody_needs_them", &[], |mock| {
        let context = Context::open(0).unwrap();
        let pool = Pool::pinned(&context, 1, 64, 2).unwrap();
        let lent: Vec<_> = (0..5).map(|_| take(&pool)).collect();
        let frozen: Vec<_> = lent.into_iter().map(infeed::internal::rows::Rows::freeze).collect();
        let frees = || mock.counts().calls("cuMemFreeHost");
        // On the trainer's thread, where nothing waits.
        drop(frozen);
        assert_eq!((pool.lent(), pool.idle_bytes(), frees()), (0, 5 * 64, 0));
        (0..128).for_each(|_| drop(take(&pool)));
        assert_eq!((pool.idle_bytes(), frees()), (2 * 64, 3));
        // Rows that were not handed over are nobody's to copy.
        let marks = mock.counts().calls("cuCtxRecordEvent");
        (0..5).for_each(|_| drop(take(&pool)));
        assert_eq!(mock.counts().calls("cuCtxRecordEvent"), marks);
        // A trainer that holds more than the pool keeps, and gives all back at once: they are locked once.
        let locked = mock.counts().calls("cuMemHostAlloc");
        for _ in 0..100 {
            drop([(); 6].map(|()| take(&pool).freeze()));
        }
        assert_eq!(mock.counts().calls("cuMemHostAlloc") - locked, 4, "six at a time, of which two were there");
        drop(pool);
        assert_eq!(mock.counts().total("pinned_bytes"), 0);
    });
}

#[test]
fn a_sole_owner_may_write_page_locked_values_too() {
    on_mock("pinned::a_sole_owner_may_write_page_locked_values_too", &[], |_| {
        let there = loader(&pictures(20, 8, 8), Device::Cpu, |b| pinned(b.batch_size(10)));
        let mut batch = there.epoch(0).blocking().next().unwrap().unwrap();
        let mut labels = batch.take("label").expect("a label").try_into_mut().expect("nobody else has it");
        labels.as_mut_slice::<i64>().expect("i64").fill(7);
        assert_eq!(labels.freeze().as_slice::<i64>(), Some(&[7; 10][..]));
    });
}

#[test]
fn a_batch_that_is_dropped_in_a_capture_costs_its_memory_and_nobody_overwrites_it() {
    let test = "pinned::a_batch_that_is_dropped_in_a_capture_costs_its_memory_and_nobody_overwrites_it";
    on_mock(test, &[], |mock| {
        mock.allow_leaks_of("pinned memory");
        let dataset = pictures(80, 8, 8);
        let there = loader(&dataset, Device::Cpu, |b| pinned(b.batch_size(10).prefetch(1)));
        let want = images(&loader(&dataset, Device::Cpu, |b| b.batch_size(10)));
        let trainer = Trainer::new();
        let mut batches = there.epoch(0).blocking();
        let first = batches.next().unwrap().unwrap();
        let (start, len) = (first["image"].bytes().unwrap().as_ptr(), want[0].len());
        ok!(cuStreamBeginCapture_v2(trainer.stream, cu::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        drop(first);
        let mut graph = std::ptr::null_mut();
        let ended = code!(cuStreamEndCapture(trainer.stream, &raw mut graph));
        assert_eq!(ended, cu::CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "as CUDA does it");
        assert_eq!(batches.map(|batch| batch.unwrap().len()).sum::<usize>(), 70);
        // SAFETY: given up, so it is there until the process ends, and nobody writes it.
        assert!(unsafe { std::slice::from_raw_parts(start, len) } == want[0]);
        trainer.end();
    });
}

#[test]
fn rows_on_a_gpu_have_no_use_for_it() {
    on_mock("pinned::rows_on_a_gpu_have_no_use_for_it", &[], |mock| {
        let dataset = pictures(60, 14, 18);
        let settings = |b: LoaderBuilder| b.batch_size(16).transform(augment());
        let mut most = Vec::new();
        for pin in [false, true] {
            let on_gpu = loader(&dataset, GPU, |b| settings(b).pin_memory(pin));
            assert_eq!((on_gpu.config().device, on_gpu.config().pin_memory), (Some(GPU), pin));
            let before = mock.counts().created("pinned memory");
            assert_eq!(all(&on_gpu, 0..1), all(&loader(&dataset, Device::Cpu, settings), 0..1));
            most.push(mock.counts().created("pinned memory") - before);
        }
        assert_eq!(most[0], most[1]);
        agree(&dataset, |b| settings(b).batch_size(7));
    });
}

fn refused(builder: LoaderBuilder) -> infeed::Error {
    builder.pin_memory(true).build_blocking().unwrap_err()
}

#[test]
fn a_driver_that_can_not_tell_when_copies_are_done_is_refused() {
    let test = "pinned::a_driver_that_can_not_tell_when_copies_are_done_is_refused";
    on_mock(test, &[(WITHOUT, "cuCtxRecordEvent")], |_| {
        let error = refused(Loader::builder(pictures(20, 8, 8)).batch_size(10).device(Device::Cpu));
        assert_eq!(error.kind(), ErrorKind::Device);
        let told = error.to_string();
        assert!(told.contains("pin_memory") && told.contains("update it to one for CUDA 12.5"), "{told}");
        // All else works.
        agree(&pictures(20, 8, 8), |b| b.batch_size(10));
    });
}

#[test]
fn memory_that_can_not_be_locked_ends_the_stream_with_what_to_do() {
    on_mock("pinned::memory_that_can_not_be_locked_ends_the_stream_with_what_to_do", &[], |mock: &Mock| {
        const OUT_OF_MEMORY: i32 = 2;
        let there = loader(&pictures(60, 8, 8), Device::Cpu, |b| pinned(b.batch_size(10).prefetch(2)));
        mock.fail("cuMemHostAlloc", 0, OUT_OF_MEMORY);
        let error = there.epoch(0).blocking().find_map(Result::err).expect("there is no memory");
        assert_eq!((error.kind(), error.context().stage), (ErrorKind::OutOfMemory, Some(Stage::Transfer)));
        assert!(error.to_string().contains("cannot page-lock"), "{error}");
        // No limit of locked memory: the driver locks for itself.
        let advice =
            "omit pin_memory, lower memory_budget, prefetch or workers, or raise the memory limit of the container";
        assert!(error.to_string().ends_with(advice), "{error}");
    });
}
