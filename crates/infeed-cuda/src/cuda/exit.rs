//! The end of the process, which may come while our threads are in the driver or in nvJPEG.
//!
//! Both take themselves down when the process exits, by handlers of their own; a thread of ours that is in them then, or comes
//! later, may crash a program that had done all it should (torchcodec leaks its decoders for that reason). So every call is
//! counted, which [`bind`](super::Context) does. At exit no new one is let in, and those that are in are waited for, shortly:
//! whatever threads own from there on is the system's to take back.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use infeed_core::error::{Error, ErrorKind, Result};

/// Calls that are under way.
static INSIDE: AtomicUsize = AtomicUsize::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);
/// A call that takes longer will never end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call is under way until this is dropped.
pub(super) struct Inside(());

/// Lets a call in.
///
/// # Errors
/// `Device`: the process is ending.
pub(super) fn enter() -> Result<Inside> {
    // Counted before the look, as the handler looks after it has told: one of the two sees the other.
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

/// To be called behind the loading of each library: handlers run in the reverse order of their registration.
pub(crate) fn register() {
    extern "C" fn end() {
        ENDED.store(true, Ordering::SeqCst);
        let begin = Instant::now();
        while INSIDE.load(Ordering::SeqCst) > 0 && begin.elapsed() < PATIENCE {
            thread::sleep(Duration::from_micros(100));
        }
    }
    // SAFETY: the handler takes nothing, touches statics alone and does not unwind.
    if unsafe { libc::atexit(end) } != 0 {
        tracing::debug!("the system takes no more exit handlers");
    }
}
