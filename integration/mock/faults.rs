//! Mistakes that are told, and failures that are made.

use std::{ptr, time::Duration};

use cudarc::driver::sys::{self as cu, CUresult};
use libloading::Library;

use super::{Gpu, code, ok};
use crate::support::{
    mock::{LIMIT, WITHOUT, fails_on_mock, on_mock},
    until,
};

#[test]
fn a_leak_fails_the_test() {
    fails_on_mock("mock::faults::a_leak_fails_the_test", &[], "(\"stream\", (1, 0))", |_| {
        Gpu::new().stream();
    });
}

#[test]
fn a_context_that_ends_before_its_memory_is_told() {
    on_mock("mock::faults::a_context_that_ends_before_its_memory_is_told", &[], |mock| {
        let gpu = Gpu::new();
        gpu.memory(10);
        gpu.end();
        mock.expect_violations(1, "0 streams, 0 events, 0 modules and 1 pieces of memory alive");
        let mut memory = 0;
        assert_eq!(code!(cuMemAlloc_v2(&raw mut memory, 10)), CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        mock.expect_violations(1, "in a context that was destroyed");
        mock.allow_leaks_of("device memory");
    });
}

#[test]
fn wrong_frees_and_handles_are_told() {
    on_mock("mock::faults::wrong_frees_and_handles_are_told", &[], |mock| {
        let gpu = Gpu::new();
        let (stream, memory) = (gpu.stream(), gpu.memory(100));
        gpu.free(&[], &[], &[memory]);
        assert_eq!(code!(cuMemFree_v2(memory)), CUresult::CUDA_ERROR_INVALID_VALUE);
        mock.expect_violations(1, "twice");
        assert_eq!(code!(cuMemFree_v2(12345)), CUresult::CUDA_ERROR_INVALID_VALUE);
        mock.expect_violations(1, "no allocation");
        assert_eq!(code!(cuMemsetD8Async(memory, 0, 100, stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
        mock.expect_violations(1, "is freed");

        let memory = gpu.memory(100);
        assert_eq!(code!(cuMemsetD8Async(memory + 1, 0, 100, stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
        mock.expect_violations(1, "does not hold the range");
        gpu.fill(memory, 1, 100, stream);
        gpu.free(&[], &[], &[memory]);
        mock.expect_violations(1, "cuMemsetD8Async still uses");

        let (memory, pinned) = (gpu.memory(100), gpu.pinned(100, 1));
        ok!(cuMemcpyHtoDAsync_v2(memory, pinned.at(), 100, stream));
        pinned.free();
        mock.expect_violations(1, "cuMemcpyHtoDAsync_v2 still uses");

        let event = gpu.event();
        gpu.free(&[stream], &[event], &[memory]);
        assert_eq!(code!(cuEventRecord(event, stream)), CUresult::CUDA_ERROR_INVALID_HANDLE);
        mock.expect_violations(2, "destroyed");
        gpu.end();
    });
}

#[test]
fn an_access_to_freed_memory_dies_with_words() {
    let test = "mock::faults::an_access_to_freed_memory_dies_with_words";
    fails_on_mock(test, &[], "(byte 40 of freed pinned memory of 100 bytes)", |mock| {
        mock.allow_leaks();
        let pinned = Gpu::new().pinned(100, 1);
        let at = pinned.start.wrapping_add(40);
        pinned.free();
        // SAFETY: it is not safe: the mock's pages are gone, and the process with them.
        unsafe { at.read_volatile() };
    });
}

#[test]
fn bytes_behind_an_allocation_are_guarded() {
    on_mock("mock::faults::bytes_behind_an_allocation_are_guarded", &[], |mock| {
        let gpu = Gpu::new();
        let memory = gpu.memory(100);
        // SAFETY: device memory of the mock is memory of the host, and it ends at the next multiple of 256.
        unsafe { ptr::with_exposed_provenance_mut::<u8>(memory as usize + 100).write(1) };
        gpu.free(&[], &[], &[memory]);
        mock.expect_violations(1, "bytes after");
        gpu.end();
    });
}

#[test]
fn a_call_without_a_context_is_told() {
    on_mock("mock::faults::a_call_without_a_context_is_told", &[], |mock| {
        let gpu = Gpu::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut memory = 0;
                assert_eq!(code!(cuMemAlloc_v2(&raw mut memory, 10)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
            });
        });
        mock.expect_violations(1, "cuMemAlloc_v2 was called without a current context");
        gpu.end();
    });
}

#[test]
fn memory_ends_where_it_was_told_to() {
    on_mock("mock::faults::memory_ends_where_it_was_told_to", &[("INFEED_MOCK_MEMORY", "1000")], |mock| {
        let gpu = Gpu::new();
        let mut more = 0;
        let first = gpu.memory(600);
        assert_eq!(code!(cuMemAlloc_v2(&raw mut more, 600)), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
        assert_eq!((free, total), (400, 1000));
        mock.memory_limit(1200);
        let second = gpu.memory(600);
        gpu.free(&[], &[], &[first, second]);
        let counts = mock.counts();
        assert_eq!((counts.total("device_bytes"), counts.total("device_bytes_most")), (0, 1200));
        gpu.end();
    });
}

#[test]
fn the_call_that_is_told_to_fail_fails() {
    let env = [("INFEED_MOCK_FAIL", "cuStreamCreateWithPriority:2:2,cuMemHostAlloc:0:1")];
    on_mock("mock::faults::the_call_that_is_told_to_fail_fails", &env, |mock| {
        let gpu = Gpu::new();
        let (mut stream, mut pinned) = (gpu.stream(), ptr::null_mut());
        gpu.free(&[stream], &[], &[]);
        let mut create = || code!(cuStreamCreateWithPriority(&raw mut stream, 1, 0));
        assert_eq!(create(), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(create(), CUresult::CUDA_SUCCESS);
        gpu.free(&[stream], &[], &[]);
        for _ in 0..3 {
            assert_eq!(code!(cuMemHostAlloc(&raw mut pinned, 10, 0)), CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        mock.fail("cuCtxSynchronize", 1, 999);
        assert_eq!(code!(cuCtxSynchronize()), CUresult::CUDA_ERROR_UNKNOWN);
        ok!(cuCtxSynchronize());
        gpu.end();
    });
}

#[test]
fn a_lost_device_loses_its_work_and_answers_no_call_but_lets_go() {
    on_mock("mock::faults::a_lost_device_loses_its_work_and_answers_no_call_but_lets_go", &[], |mock| {
        const LOST: CUresult = CUresult::CUDA_ERROR_LAUNCH_FAILED;
        let gpu = Gpu::new();
        let (stream, event, memory) = (gpu.stream(), gpu.event(), gpu.memory(100));
        let out = gpu.pinned(100, 5);
        ok!(cuMemcpyDtoHAsync_v2(out.at(), memory, 100, stream));
        mock.lose_device(1);
        gpu.record(event, stream);
        assert_eq!(code!(cuEventSynchronize(event)), LOST);
        assert_eq!(code!(cuStreamSynchronize(stream)), LOST);
        assert_eq!(code!(cuMemsetD8Async(memory, 0, 100, stream)), LOST);
        assert_eq!(out.get(), [5; 100]);
        assert_eq!(code!(cuMemFreeHost(out.at())), LOST);
        assert_eq!(code!(cuMemFreeAsync(memory, stream)), LOST);
        assert_eq!(code!(cuEventDestroy_v2(event)), LOST);
        assert_eq!(code!(cuStreamDestroy_v2(stream)), LOST);
        gpu.end();
    });
}

#[test]
fn what_runs_while_a_device_is_lost_keeps_its_memory() {
    on_mock("mock::faults::what_runs_while_a_device_is_lost_keeps_its_memory", &[], |mock| {
        // Long enough to lose the device in the middle.
        const LEN: usize = 128 << 20;
        let gpu = Gpu::new();
        let stream = gpu.stream();
        let mut memory = 0;
        ok!(cuMemAllocAsync(&raw mut memory, LEN, stream));
        gpu.wait(stream);
        gpu.fill(memory, 7, LEN, stream);
        ok!(cuMemFreeAsync(memory, stream));
        std::thread::scope(|scope| {
            let (context, stream) = (gpu.context as usize, stream as usize);
            scope.spawn(move || {
                ok!(cuCtxSetCurrent(context as cu::CUcontext));
                let _ = code!(cuStreamSynchronize(stream as cu::CUstream));
            });
            // SAFETY: this memory is the mock's own, alive until the fill has ended; any value may be read.
            until("the fill has begun", || unsafe { ptr::read_volatile(memory as *const u8) } == 7);
            mock.lose_device(0);
            assert_eq!(code!(cuCtxSynchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        });
        assert_eq!(code!(cuStreamDestroy_v2(stream)), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        gpu.end();
    });
}

#[test]
fn a_function_can_be_missing() {
    on_mock("mock::faults::a_function_can_be_missing", &[(WITHOUT, "cuMemPoolCreate")], |_| {
        // SAFETY: the mock's initialisers do nothing.
        let driver = unsafe { Library::new("libcuda.so.1") }.expect("the mock driver");
        // SAFETY: looked for, not called.
        assert!(unsafe { driver.get::<*const ()>("cuMemPoolCreate") }.is_err());
        // SAFETY: looked for, not called.
        assert!(unsafe { driver.get::<*const ()>("cuMemPoolDestroy") }.is_ok());
        let gpu = Gpu::new();
        gpu.end();
    });
}

#[test]
fn a_crash_is_a_failure() {
    fails_on_mock("mock::faults::a_crash_is_a_failure", &[], "SIGABRT", |_| std::process::abort());
}

#[test]
fn a_hang_is_a_failure() {
    fails_on_mock("mock::faults::a_hang_is_a_failure", &[(LIMIT, "300")], "killed", |_| {
        std::thread::sleep(Duration::from_secs(60));
    });
}

#[test]
fn a_process_that_leaves_early_did_not_pass() {
    fails_on_mock("mock::faults::a_process_that_leaves_early_did_not_pass", &[], "exit status: 0", |_| {
        std::process::exit(0);
    });
}

#[test]
fn a_strict_process_tells_its_mistakes_at_its_end() {
    let test = "mock::faults::a_strict_process_tells_its_mistakes_at_its_end";
    for words in ["mock driver: cuMemFree_v2 was given 0x3039", "exit status: 97"] {
        fails_on_mock(test, &[("INFEED_MOCK_STRICT", "1")], words, |_| {
            let _gpu = Gpu::new();
            assert_eq!(code!(cuMemFree_v2(12345)), CUresult::CUDA_ERROR_INVALID_VALUE);
            std::process::exit(0);
        });
    }
}

#[test]
fn work_of_one_device_with_things_of_another_is_told() {
    let test = "mock::faults::work_of_one_device_with_things_of_another_is_told";
    on_mock(test, &[("INFEED_MOCK_DEVICES", "2")], |mock| {
        let told = |count| mock.expect_violations(count, "mixes cuda:");
        let (one, two) = (Gpu::new(), Gpu::on(1));
        let (stream, event, memory) = (two.stream(), two.event(), two.memory(100));
        one.make_current();
        let (own_stream, own_memory) = (one.stream(), one.memory(100));
        // What is asked for with the stream of another device goes there.
        two.fill(memory, 5, 100, stream);
        assert_eq!(two.read(memory, 100, stream), [5; 100]);
        assert_eq!(code!(cuMemsetD8Async(memory, 0, 100, own_stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
        told(1);
        assert_eq!(code!(cuMemcpyDtoDAsync_v2(memory, own_memory, 100, stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
        told(1);
        assert_eq!(code!(cuEventRecord(event, own_stream)), CUresult::CUDA_ERROR_INVALID_HANDLE);
        told(1);
        assert_eq!(code!(cuMemFreeAsync(memory, own_stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
        told(1);
        // The default stream is that of the current device.
        assert_eq!(code!(cuEventRecord(event, ptr::null_mut())), CUresult::CUDA_ERROR_INVALID_HANDLE);
        told(1);
        two.make_current();
        two.record(event, ptr::null_mut());
        // A device that is waited for does not bring another forward.
        one.fill(own_memory, 7, 100, own_stream);
        ok!(cuCtxSynchronize());
        assert_eq!(mock.counts().total("pending"), 1);
        two.free(&[stream], &[event], &[memory]);
        one.make_current();
        one.free(&[own_stream], &[], &[own_memory]);
        mock.expect_violations(1, "still uses");
        one.end();
        two.end();
    });
}

#[test]
fn one_device_is_lost_and_the_other_is_not() {
    let env = [("INFEED_MOCK_DEVICES", "2"), ("INFEED_MOCK_MEMORY", "1000")];
    on_mock("mock::faults::one_device_is_lost_and_the_other_is_not", &env, |mock| {
        const LOST: CUresult = CUresult::CUDA_ERROR_LAUNCH_FAILED;
        let (one, two) = (Gpu::new(), Gpu::on(1));
        // Each has memory of its own.
        let (stream, memory) = (two.stream(), two.memory(900));
        one.make_current();
        let (own_stream, own_memory) = (one.stream(), one.memory(900));
        assert_eq!(mock.counts().total("device_bytes_most cuda:0"), 900);
        assert_eq!(mock.counts().total("device_bytes_most"), 1800);
        two.fill(memory, 1, 900, stream);
        mock.lose_device_of(1, 0);
        one.fill(own_memory, 2, 900, own_stream);
        one.wait(own_stream);
        two.make_current();
        assert_eq!(code!(cuStreamSynchronize(stream)), LOST);
        assert_eq!(code!(cuMemFree_v2(memory)), LOST);
        assert_eq!(code!(cuStreamDestroy_v2(stream)), LOST);
        two.end();
        one.make_current();
        assert_eq!(one.read(own_memory, 900, own_stream), [2; 900]);
        one.free(&[own_stream], &[], &[own_memory]);
        one.end();
    });
}
