//! The mock GPU is as strict as it says: each mistake that it is there to find is made here, and found.
//!
//! Calls go through cudarc and by name into nvJPEG, as the crate's own do. What the crate does on the mock is tested
//! elsewhere; nothing here needs a GPU, and on a machine that has one it is not used.

mod decode;
mod dlpack;
mod driver;
mod faults;

use std::{ffi::c_void, ptr};

use cudarc::driver::sys as cu;

/// Calls the driver; gives the code. The mock checks pointers and handles itself: that is what is tested.
macro_rules! code {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: out-pointers are to locals that outlive the call; the mock refuses any other value that is wrong.
        unsafe { cudarc::driver::sys::$function($($argument),*) }
    }};
}

/// Calls the driver and expects success.
macro_rules! ok {
    ($function:ident($($argument:expr),* $(,)?)) => {
        assert_eq!(
            $crate::mock::code!($function($($argument),*)),
            cudarc::driver::sys::CUresult::CUDA_SUCCESS,
            stringify!($function)
        )
    };
}
pub(crate) use {code, ok};

/// A context that is current on this thread, and what the tests do with it. Frees nothing by itself.
struct Gpu {
    context: cu::CUcontext,
    index: i32,
}

impl Gpu {
    fn new() -> Self {
        Self::on(0)
    }
    fn on(index: i32) -> Self {
        let mut context = ptr::null_mut();
        ok!(cuInit(0));
        ok!(cuDevicePrimaryCtxRetain(&raw mut context, index));
        let gpu = Self { context, index };
        gpu.make_current();
        gpu
    }
    fn make_current(&self) {
        ok!(cuCtxSetCurrent(self.context));
    }
    fn end(self) {
        ok!(cuDevicePrimaryCtxRelease_v2(self.index));
    }
    fn stream(&self) -> cu::CUstream {
        let mut stream = ptr::null_mut();
        ok!(cuStreamCreateWithPriority(&raw mut stream, 1, 0));
        stream
    }
    fn event(&self) -> cu::CUevent {
        let mut event = ptr::null_mut();
        ok!(cuEventCreate(&raw mut event, 0));
        event
    }
    /// Device memory.
    fn memory(&self, len: usize) -> u64 {
        let mut start = 0;
        ok!(cuMemAlloc_v2(&raw mut start, len));
        start
    }
    fn pinned(&self, len: usize, value: u8) -> Pinned {
        let mut start: *mut c_void = ptr::null_mut();
        ok!(cuMemHostAlloc(&raw mut start, len, 0));
        let mut pinned = Pinned { start: start.cast(), len };
        pinned.set(value);
        pinned
    }
    fn record(&self, event: cu::CUevent, stream: cu::CUstream) {
        ok!(cuEventRecord(event, stream));
    }
    fn fill(&self, to: u64, value: u8, len: usize, stream: cu::CUstream) {
        ok!(cuMemsetD8Async(to, value, len, stream));
    }
    fn wait(&self, stream: cu::CUstream) {
        ok!(cuStreamSynchronize(stream));
    }
    /// What stands in device memory once all work of `stream` is done.
    fn read(&self, from: u64, len: usize, stream: cu::CUstream) -> Vec<u8> {
        let mut bytes = vec![0u8; len];
        ok!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), from, len, stream));
        bytes
    }
    fn free(&self, streams: &[cu::CUstream], events: &[cu::CUevent], memory: &[u64]) {
        streams.iter().for_each(|&stream| ok!(cuStreamDestroy_v2(stream)));
        events.iter().for_each(|&event| ok!(cuEventDestroy_v2(event)));
        memory.iter().for_each(|&start| ok!(cuMemFree_v2(start)));
    }
}

/// Page-locked memory. Not a slice: copies that are queued read and write it.
struct Pinned {
    start: *mut u8,
    len: usize,
}

impl Pinned {
    fn at(&self) -> *mut c_void {
        self.start.cast()
    }
    fn set(&mut self, value: u8) {
        // SAFETY: the memory is ours and this long; queued copies run on this thread only.
        unsafe { self.start.write_bytes(value, self.len) };
    }
    fn get(&self) -> Vec<u8> {
        // SAFETY: as in `set`.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }.to_vec()
    }
    fn free(self) {
        ok!(cuMemFreeHost(self.at()));
    }
}
