//! When work runs, and in which order.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{AtomicU32, Ordering},
};

use cudarc::driver::sys::{CUfunction, CUmodule, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus};

use super::{Gpu, code, ok};
use crate::support::{
    mock::{Mock, fails_on_mock, on_mock},
    until,
};

const LEN: usize = 1000;
/// What fresh device memory holds.
const FRESH: u8 = 0xcd;

#[test]
fn queued_work_does_nothing_until_somebody_waits() {
    on_mock("mock::driver::queued_work_does_nothing_until_somebody_waits", &[], |mock| {
        let gpu = Gpu::new();
        let (stream, memory) = (gpu.stream(), gpu.memory(LEN));
        let out = gpu.pinned(LEN, 0);
        gpu.fill(memory, 7, LEN, stream);
        ok!(cuMemcpyDtoHAsync_v2(out.at(), memory, LEN, stream));
        assert_eq!(out.get(), [0; LEN]);
        assert_eq!(mock.counts().total("pending"), 2);
        gpu.wait(stream);
        assert_eq!(out.get(), [7; LEN]);
        out.free();
        gpu.free(&[stream], &[], &[memory]);
        gpu.end();
    });
}

#[test]
fn a_synchronise_without_effect_leaves_stale_bytes() {
    let test = "mock::driver::a_synchronise_without_effect_leaves_stale_bytes";
    fails_on_mock(test, &[("INFEED_MOCK_IGNORE", "cuStreamSynchronize:1")], "stale", |mock| {
        mock.allow_leaks();
        let gpu = Gpu::new();
        let (stream, memory) = (gpu.stream(), gpu.memory(LEN));
        let out = gpu.pinned(LEN, 0);
        gpu.fill(memory, 7, LEN, stream);
        ok!(cuMemcpyDtoHAsync_v2(out.at(), memory, LEN, stream));
        gpu.wait(stream);
        assert_eq!(mock.counts().total("ignored_waits"), 1);
        assert_eq!(out.get(), [7; LEN], "stale");
    });
}

#[test]
fn pinned_sources_are_read_late_and_other_sources_at_the_call() {
    on_mock("mock::driver::pinned_sources_are_read_late_and_other_sources_at_the_call", &[], |_| {
        let gpu = Gpu::new();
        let (stream, late, early) = (gpu.stream(), gpu.memory(LEN), gpu.memory(LEN));
        let mut pinned = gpu.pinned(LEN, 1);
        let mut paged = vec![1u8; LEN];
        ok!(cuMemcpyHtoDAsync_v2(late, pinned.at(), LEN, stream));
        ok!(cuMemcpyHtoDAsync_v2(early, paged.as_ptr().cast(), LEN, stream));
        pinned.set(2);
        paged.fill(2);
        assert_eq!(gpu.read(late, LEN, stream), [2; LEN]);
        assert_eq!(gpu.read(early, LEN, stream), [1; LEN]);
        pinned.free();
        gpu.free(&[stream], &[], &[late, early]);
        gpu.end();
    });
}

/// What stream `b` reads of what stream `a` wrote.
fn read_across(gpu: &Gpu, wait: bool) -> Vec<u8> {
    let (a, b, event, memory) = (gpu.stream(), gpu.stream(), gpu.event(), gpu.memory(LEN));
    gpu.fill(memory, 1, LEN, a);
    gpu.record(event, a);
    // Behind the record, so nobody waits for it.
    gpu.fill(memory, 2, LEN, a);
    if wait {
        ok!(cuStreamWaitEvent(b, event, 0));
    }
    let seen = gpu.read(memory, LEN, b);
    gpu.wait(a);
    gpu.free(&[a, b], &[event], &[memory]);
    seen
}

#[test]
fn a_wait_runs_the_other_stream_up_to_its_event_and_no_further() {
    on_mock("mock::driver::a_wait_runs_the_other_stream_up_to_its_event_and_no_further", &[], |_| {
        let gpu = Gpu::new();
        assert_eq!(read_across(&gpu, true), [1; LEN]);
        assert_eq!(read_across(&gpu, false), [FRESH; LEN]);
        gpu.end();
    });
}

#[test]
fn a_wait_that_was_removed_shows() {
    on_mock("mock::driver::a_wait_that_was_removed_shows", &[], |mock| {
        let gpu = Gpu::new();
        mock.ignore_wait("cuStreamWaitEvent", 2);
        assert_eq!(read_across(&gpu, true), [1; LEN]);
        assert_eq!(mock.counts().total("ignored_waits"), 0);
        assert_eq!(read_across(&gpu, true), [FRESH; LEN]);
        assert_eq!(mock.counts().total("ignored_waits"), 1);
        assert_eq!(read_across(&gpu, true), [1; LEN]);
        gpu.end();
    });
}

#[test]
fn a_wait_is_for_the_record_of_its_own_time() {
    on_mock("mock::driver::a_wait_is_for_the_record_of_its_own_time", &[], |_| {
        let gpu = Gpu::new();
        let (a, b, event, memory) = (gpu.stream(), gpu.stream(), gpu.event(), gpu.memory(LEN));
        // Never recorded: complete.
        ok!(cuStreamWaitEvent(b, event, 0));
        ok!(cuEventSynchronize(event));
        ok!(cuEventQuery(event));
        gpu.fill(memory, 1, LEN, a);
        gpu.record(event, a);
        ok!(cuStreamWaitEvent(b, event, 0));
        gpu.fill(memory, 2, LEN, a);
        gpu.record(event, a);
        assert_eq!(gpu.read(memory, LEN, b), [1; LEN]);
        ok!(cuStreamWaitEvent(b, event, 0));
        assert_eq!(gpu.read(memory, LEN, b), [2; LEN]);
        gpu.free(&[a, b], &[event], &[memory]);
        gpu.end();
    });
}

#[test]
fn who_polls_is_told_not_ready_at_first_and_ready_in_the_end() {
    on_mock("mock::driver::who_polls_is_told_not_ready_at_first_and_ready_in_the_end", &[], |mock| {
        let gpu = Gpu::new();
        let (stream, event, memory) = (gpu.stream(), gpu.event(), gpu.memory(LEN));
        gpu.fill(memory, 1, LEN, stream);
        gpu.record(event, stream);
        assert_eq!(code!(cuEventQuery(event)), CUresult::CUDA_ERROR_NOT_READY);
        let polls = (0..100).take_while(|_| code!(cuEventQuery(event)) != CUresult::CUDA_SUCCESS).count();
        assert!(polls < 10, "{polls}");
        gpu.fill(memory, 2, LEN, stream);
        assert_eq!(code!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_NOT_READY);
        mock.ignore_wait("cuStreamQuery", 1);
        ok!(cuStreamQuery(stream));
        assert_eq!(mock.counts().total("pending"), 1, "ready was a lie");
        gpu.wait(stream);
        gpu.free(&[stream], &[event], &[memory]);
        gpu.end();
    });
}

#[test]
fn work_of_a_destroyed_stream_still_runs() {
    on_mock("mock::driver::work_of_a_destroyed_stream_still_runs", &[], |_| {
        let gpu = Gpu::new();
        let (stream, other, event, memory) = (gpu.stream(), gpu.stream(), gpu.event(), gpu.memory(LEN));
        gpu.fill(memory, 1, LEN, stream);
        gpu.record(event, stream);
        gpu.free(&[stream], &[], &[]);
        ok!(cuStreamWaitEvent(other, event, 0));
        assert_eq!(gpu.read(memory, LEN, other), [1; LEN]);
        gpu.free(&[other], &[event], &[memory]);
        gpu.end();
    });
}

#[test]
fn host_functions_run_without_being_asked() {
    static RUN: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn run(amount: *mut c_void) {
        RUN.fetch_add(amount.addr() as u32, Ordering::SeqCst);
    }
    on_mock("mock::driver::host_functions_run_without_being_asked", &[], |_| {
        let gpu = Gpu::new();
        let (a, b, event) = (gpu.stream(), gpu.stream(), gpu.event());
        gpu.record(event, a);
        ok!(cuStreamWaitEvent(b, event, 0));
        ok!(cuLaunchHostFunc(b, Some(run), ptr::without_provenance_mut(3)));
        until("nobody runs it", || RUN.load(Ordering::SeqCst) != 0);
        assert_eq!(RUN.load(Ordering::SeqCst), 3);
        ok!(cuLaunchHostFunc(b, Some(run), ptr::without_provenance_mut(4)));
        gpu.wait(b);
        assert_eq!(RUN.load(Ordering::SeqCst), 7);
        gpu.free(&[a, b], &[event], &[]);
        gpu.end();
    });
}

/// Begins a capture on `stream` in this mode (0 global, 1 of this thread, 2 relaxed), lets another thread allocate in `mode`
/// of its own, and ends it: what the allocation and the end gave.
fn capture_beside(stream: CUstream, captured: u32, mode: u32) -> (CUresult, CUresult) {
    let modes = [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ];
    ok!(cuStreamBeginCapture_v2(stream, modes[captured as usize]));
    let allocated = std::thread::scope(|scope| {
        let beside = || {
            let (_gpu, mut mode, mut memory) = (Gpu::new(), modes[mode as usize], 0);
            ok!(cuThreadExchangeStreamCaptureMode(&raw mut mode));
            assert_eq!(mode, modes[0], "threads begin in the strictest mode");
            let allocated = code!(cuMemAlloc_v2(&raw mut memory, 10));
            if allocated == CUresult::CUDA_SUCCESS {
                ok!(cuMemFree_v2(memory));
            }
            ok!(cuDevicePrimaryCtxRelease_v2(0));
            allocated
        };
        scope.spawn(beside).join().expect("no panic")
    });
    let mut graph = ptr::null_mut();
    (allocated, code!(cuStreamEndCapture(stream, &raw mut graph)))
}

#[test]
fn a_capture_forbids_what_may_disturb_it_to_threads_that_do_not_stand_aside() {
    let test = "mock::driver::a_capture_forbids_what_may_disturb_it_to_threads_that_do_not_stand_aside";
    on_mock(test, &[], |_| {
        const FINE: (CUresult, CUresult) = (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS);
        const SPOILT: (CUresult, CUresult) =
            (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        let gpu = Gpu::new();
        let stream = gpu.stream();
        // By the mode of the capture and that of the thread beside it.
        for (captured, mode, end) in [(0, 0, SPOILT), (0, 1, FINE), (0, 2, FINE), (1, 0, FINE), (2, 0, FINE)] {
            assert_eq!(capture_beside(stream, captured, mode), end, "{captured} {mode}");
        }
        gpu.free(&[stream], &[], &[]);
        gpu.end();
    });
}

#[test]
fn an_event_of_a_capture_draws_nobody_in_and_never_passes() {
    on_mock("mock::driver::an_event_of_a_capture_draws_nobody_in_and_never_passes", &[], |mock| {
        let gpu = Gpu::new();
        let (stream, other, event) = (gpu.stream(), gpu.stream(), gpu.event());
        let (mut status, mut graph) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, ptr::null_mut());
        ok!(cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED));
        ok!(cuStreamIsCapturing(stream, &raw mut status));
        assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        gpu.record(event, stream);
        assert_eq!(code!(cuStreamWaitEvent(other, event, 0)), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        mock.expect_violations(1, "drew a stream into a capture");
        assert_eq!(code!(cuEventQuery(event)), CUresult::CUDA_ERROR_CAPTURED_EVENT);
        ok!(cuStreamEndCapture(stream, &raw mut graph));
        gpu.record(event, stream);
        ok!(cuEventSynchronize(event));
        gpu.free(&[stream, other], &[event], &[]);
        gpu.end();
    });
}

#[test]
fn default_streams_of_threads_are_apart_and_the_legacy_one_waits_for_all() {
    on_mock("mock::driver::default_streams_of_threads_are_apart_and_the_legacy_one_waits_for_all", &[], |_| {
        let gpu = Gpu::new();
        let memory = gpu.memory(LEN);
        let (own, legacy): (CUstream, CUstream) = (ptr::without_provenance_mut(2), ptr::null_mut());
        let event = gpu.event();
        gpu.fill(memory, 1, LEN, own);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let gpu = Gpu::new();
                // Nothing was ever queued on this thread's stream.
                gpu.wait(ptr::without_provenance_mut(2));
                ok!(cuDevicePrimaryCtxRelease_v2(0));
            });
        });
        assert_eq!(mock_bytes(memory), [FRESH; LEN]);
        gpu.record(event, legacy);
        ok!(cuEventSynchronize(event));
        assert_eq!(mock_bytes(memory), [1; LEN]);
        gpu.free(&[], &[event], &[memory]);
        gpu.end();
    });
}

/// Device memory as it is now: the mock's is memory of the host.
fn mock_bytes(memory: u64) -> Vec<u8> {
    // SAFETY: a live allocation of the mock, which nothing writes meanwhile.
    unsafe { std::slice::from_raw_parts(ptr::with_exposed_provenance::<u8>(memory as usize), LEN) }.to_vec()
}

/// A module with the mock's own kernel.
fn module() -> CUmodule {
    let ptx = c".version 8.0\n.target sm_70\n.visible .entry infeed_mock_probe(\n.visible .entry nowhere(\n";
    let mut module = ptr::null_mut();
    ok!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()));
    module
}

fn probe(module: CUmodule) -> CUfunction {
    let mut function = ptr::null_mut();
    ok!(cuModuleGetFunction(&raw mut function, module, c"infeed_mock_probe".as_ptr()));
    function
}

/// Queues `to[i] = from[i] + 1`.
fn launch(function: CUfunction, (mut to, mut from, mut len): (u64, u64, u32), stream: CUstream) -> CUresult {
    let mut arguments = [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut len).cast::<c_void>()];
    let code = code!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, arguments.as_mut_ptr(), ptr::null_mut()));
    // The driver has copied them.
    (to, from, len) = (0, 0, 0);
    let _ = (to, from, len);
    code
}

#[test]
fn kernels_run_in_their_turn_with_the_arguments_of_the_call() {
    on_mock("mock::driver::kernels_run_in_their_turn_with_the_arguments_of_the_call", &[], |mock| {
        let gpu = Gpu::new();
        let (stream, a, b) = (gpu.stream(), gpu.memory(LEN), gpu.memory(LEN));
        let (module, mut function) = (module(), ptr::null_mut());
        let probe = probe(module);
        gpu.fill(a, 1, LEN, stream);
        assert_eq!(launch(probe, (b, a, LEN as u32), stream), CUresult::CUDA_SUCCESS);
        assert_eq!(launch(probe, (a, b, LEN as u32), stream), CUresult::CUDA_SUCCESS);
        assert_eq!(gpu.read(a, LEN, stream), [3; LEN]);
        assert_eq!(gpu.read(b, LEN, stream), [2; LEN]);
        assert_eq!(mock.counts().total("kernels"), 2);

        // In the PTX but not compiled for the CPU; and the other way round.
        for name in [c"nowhere", c"resample_u8_to_f32"] {
            let code = code!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
            assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND, "{name:?}");
        }
        let mut broken = ptr::null_mut();
        let code = code!(cuModuleLoadData(&raw mut broken, c"no PTX".as_ptr().cast()));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
        ok!(cuModuleUnload(module));
        gpu.free(&[stream], &[], &[a, b]);
        gpu.end();
    });
}

#[test]
fn memory_of_the_stream_is_there_from_its_allocation_to_its_free() {
    on_mock("mock::driver::memory_of_the_stream_is_there_from_its_allocation_to_its_free", &[], |mock| {
        let gpu = Gpu::new();
        let (a, b) = (gpu.stream(), gpu.stream());
        let mut memory = 0;
        ok!(cuMemAllocAsync(&raw mut memory, LEN, a));
        // Another stream that did not wait.
        gpu.fill(memory, 1, LEN, b);
        gpu.wait(b);
        mock.expect_violations(1, "before its memory was there");
        gpu.fill(memory, 2, LEN, a);
        assert_eq!(gpu.read(memory, LEN, a), [2; LEN]);
        gpu.fill(memory, 3, LEN, b);
        ok!(cuMemFreeAsync(memory, a));
        gpu.wait(a);
        gpu.wait(b);
        mock.expect_violations(1, "is freed");
        gpu.free(&[a, b], &[], &[]);
        gpu.end();
    });
}

/// Three streams that hand a buffer round, with all the waits that it takes.
fn relay(gpu: &Gpu) -> Vec<u8> {
    let module = module();
    let probe = probe(module);
    let streams = [gpu.stream(), gpu.stream(), gpu.stream()];
    let event = gpu.event();
    let memory = gpu.memory(LEN);
    gpu.fill(memory, 0, LEN, streams[0]);
    gpu.record(event, streams[0]);
    for i in 1..60 {
        let stream = streams[i * i % 3];
        ok!(cuStreamWaitEvent(stream, event, 0));
        assert_eq!(launch(probe, (memory, memory, LEN as u32), stream), CUresult::CUDA_SUCCESS);
        gpu.record(event, stream);
    }
    ok!(cuEventSynchronize(event));
    let seen = gpu.read(memory, LEN, streams[2]);
    gpu.free(&streams, &[event], &[memory]);
    ok!(cuModuleUnload(module));
    seen
}

#[test]
fn a_program_with_all_its_waits_gives_the_same_in_any_schedule() {
    let test = "mock::driver::a_program_with_all_its_waits_gives_the_same_in_any_schedule";
    for seed in ["0", "1", "2", "3"] {
        on_mock(test, &[("INFEED_MOCK_SEED", seed)], |_: &Mock| {
            let gpu = Gpu::new();
            assert_eq!(relay(&gpu), [59; LEN]);
            gpu.end();
        });
    }
}

#[test]
fn threads_with_their_own_streams_do_not_disturb_each_other() {
    on_mock(
        "mock::driver::threads_with_their_own_streams_do_not_disturb_each_other",
        &[("INFEED_MOCK_SEED", "5")],
        |_| {
            let gpu = Gpu::new();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let gpu = Gpu::new();
                        for _ in 0..5 {
                            assert_eq!(relay(&gpu), [59; LEN]);
                        }
                        gpu.end();
                    });
                }
            });
            gpu.end();
        },
    );
}
