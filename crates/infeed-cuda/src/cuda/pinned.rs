//! The page-locked host memory of one batch, and whether a GPU still copies from it.
//!
//! ```text
//! jobs write on the host ─▶ sealed ─▶ yielded: `lend`; a trainer may start copies that infeed does not see
//!                                         └ dropped: `retire`: an event after all work that the GPU has so far
//! ```
//!
//! A framework tracks copies only from page-locked memory of its own allocator. So if a trainer drops one of our
//! tensors right after it starts an asynchronous copy, infeed would overwrite the memory while the GPU still reads it.
//! The driver solves this: since CUDA 12.5 it can record an event after the work of all streams of a GPU
//! (`cuCtxRecordEvent`). Older drivers are refused.

use std::{
    fmt, mem,
    sync::{Mutex, MutexGuard, PoisonError},
};

use infeed_core::{
    buffer::{PinnedBuffer, ReadBehind},
    error::{Error, ErrorKind, Result},
};

use super::context::{Context, Event, Pinned};

/// One page-locked allocation that the host writes. Always initialised; zeroed when new.
pub(crate) struct PinnedBlock {
    /// `None` if it was leaked.
    memory: Option<Pinned>,
    /// Recorded after the copies from it.
    mark: Event,
    state: Mutex<State>,
}

// SAFETY: plain bytes; `Rows` and `Frozen` control access to them.
unsafe impl Sync for PinnedBlock {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Only infeed uses it.
    Ours,
    /// The trainer has it, and may copy from it.
    Lent,
    /// The trainer has dropped it. Copies from it may run until `mark` has passed.
    Marked,
    /// It is unknown when the copies are done.
    Lost,
}

impl PinnedBlock {
    /// Allocates and page-locks memory: about a millisecond for 3 MB.
    pub(crate) fn new(context: &Context, len: usize) -> Result<Self> {
        let memory = Pinned::new(context, len).map_err(|error| match error.hint() {
            Some(help) if error.kind() == ErrorKind::OutOfMemory => {
                let hint = format!("omit pin_memory, {help}");
                error.with_hint(hint)
            }
            _ => error,
        })?;
        let (memory, mark) = (Some(memory), Event::new(context)?);
        Ok(Self { memory, mark, state: Mutex::new(State::Ours) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each critical section leaves it consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self, error: &Error) -> State {
        let what = "can't determine when a GPU has copied a batch in page-locked memory; the memory is never freed";
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
        // Wait without the lock. The block has no users, so no mark is recorded meanwhile.
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

// SAFETY: one allocation of the requested length, zeroed when it was made, freed when the block is dropped.
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
            // Leak it: a GPU may still copy from it.
            mem::forget(self.memory.take());
        }
    }
}

impl fmt::Debug for PinnedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedBlock({} bytes)", self.len())
    }
}
