//! Keeps our threads out of the driver and of nvJPEG while the process exits.
//!
//! Both libraries shut down in their own exit handlers. A thread of ours that is in them then, or calls them later, may
//! crash a program that has already finished its work (torchcodec leaks its decoders for this reason). So
//! [`bind`](super::Context) counts every call. At exit, new calls are refused, and the handler waits up to 2 seconds
//! for the running ones. What threads still own after that is left to the operating system.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use infeed_core::error::{Error, ErrorKind, Result};

/// Number of calls that are running.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
/// The longest wait for running calls: one that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call is counted as running until this is dropped.
pub(super) struct Inside(());

/// Counts a call, unless the process is ending.
///
/// # Errors
/// `Device`: the process is ending.
pub(super) fn enter() -> Result<Inside> {
    // Count first, then check `ENDED`. The handler sets `ENDED` first, then reads the count: so one of them sees the
    // other.
    INSIDE.fetch_add(1, Ordering::SeqCst);
    let inside = Inside(());
    if ENDED.load(Ordering::SeqCst) {
        return Err(Error::new(ErrorKind::Device, "the process is ending"));
    }
    Ok(inside)
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers the exit handler. To be called after loading each library, as handlers run in the reverse order of
/// registration.
pub(crate) fn register() {
    extern "C" fn end() {
        ENDED.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_micros(100));
        }
    }
    // SAFETY: the handler takes no arguments, uses only statics and does not unwind.
    if unsafe { libc::atexit(end) } != 0 {
        tracing::debug!("the system accepts no more exit handlers");
    }
}
