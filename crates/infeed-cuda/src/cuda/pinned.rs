//! Page-locked memory of one batch in host memory, and whether a GPU still copies from it.
//!
//! ```text
//! jobs write on the host ─▶ sealed ─▶ yielded: `lend`ed, a trainer may start copies that nobody tells us of
//!                                         └ dropped: `retire`: an event behind all that the GPU was given until now
//! ```
//!
//! A framework's own allocator of such memory sees its copies; ours is foreign to it, so a tensor that is dropped right
//! behind an asynchronous copy would be written again while the GPU still reads it. The driver knows: since CUDA 12.5 it
//! marks what all streams of a GPU were given (`cuCtxRecordEvent`). Older ones can't, and are refused.

use std::{
    fmt, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use infeed_core::{
    buffer::{PinnedBuffer, ReadBehind},
    error::{Error, ErrorKind, Result},
};

use super::context::{Context, Event, Pinned};

/// One page-locked allocation that is written on the host. Always initialised, zeroed when new.
pub(crate) struct PinnedBlock {
    /// `None`: given up.
    memory: Option<Pinned>,
    /// Behind the copies from it.
    mark: Event,
    state: Mutex<State>,
}

// SAFETY: plain bytes; who may touch which of them is decided by `Rows` and `Frozen`.
unsafe impl Sync for PinnedBlock {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nobody but us has it.
    Ours,
    /// The trainer has it, and may copy from it.
    Lent,
    /// It came back, and may still be copied from until `mark` has passed.
    Marked,
    /// Nobody knows when the copies are done.
    Lost,
}

impl PinnedBlock {
    /// Waits until the pages are locked, about a millisecond for three megabytes.
    pub(crate) fn new(context: &Context, len: usize) -> Result<Self> {
        let memory = Pinned::new(context, len).map_err(|error| match error.help() {
            Some(help) if error.kind() == ErrorKind::OutOfMemory => {
                let hint = format!("leave pin_memory out, {help}");
                error.hint(hint)
            }
            _ => error,
        })?;
        let (memory, mark) = (Some(memory), Event::new(context)?);
        Ok(Self { memory, mark, state: Mutex::new(State::Ours) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each section leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, error: &Error) -> State {
        let what = "nobody knows when a GPU has copied a batch in page-locked memory; the memory is given up";
        tracing::warn!(error = %format!("{error:#}"), bytes = self.len(), "{what}");
        State::Lost
    }

    fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Pinned::len)
    }
}

impl ReadBehind for PinnedBlock {
    fn retire(&self) {
        let mut state = self.state();
        if *state != State::Lent {
            return;
        }
        *state = match self.mark.record_all() {
            Ok(()) => State::Marked,
            Err(error) => self.lost(&error),
        };
    }

    fn is_free(&self) -> bool {
        let mut state = self.state();
        if *state == State::Marked && self.mark.is_done().unwrap_or(false) {
            *state = State::Ours;
        }
        *state == State::Ours
    }

    fn wait_until_free(&self) {
        if *self.state() != State::Marked {
            return;
        }
        // Not under the lock. It has no owner, so nobody marks it anew meanwhile.
        let copied = self.mark.sync();
        *self.state() = match copied {
            Ok(()) => State::Ours,
            Err(error) => self.lost(&error),
        };
    }

    fn is_lost(&self) -> bool {
        *self.state() == State::Lost
    }
}

// SAFETY: one allocation of as many bytes as were asked for, zeroed when it was made, freed when the block is dropped.
unsafe impl PinnedBuffer for PinnedBlock {
    fn start(&self) -> *mut u8 {
        self.memory.as_ref().expect("there until the block is dropped").start().cast_mut()
    }

    fn lend(&self) {
        *self.state() = State::Lent;
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        self.wait_until_free();
        if self.is_lost() {
            // Better never freed than while a GPU may copy from it.
            mem::forget(self.memory.take());
        }
    }
}

impl fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBlock({} bytes)", self.len())
    }
}
