//! The place of a trainer in its loader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::tensor::Device;
use infeed::{Batch, BatchStream, Error, Loader, LoaderState, Result, loader::Monitor};

/// Converts a loader's batch to the trainer's type.
pub(crate) type Make<O> = Arc<dyn Fn(&Batch, &Device) -> Result<O> + Send + Sync>;

/// A loader, and the place of its trainer.
pub(crate) struct Shared {
    pub(crate) loader: Loader,
    place: Mutex<Place>,
}

pub(crate) struct Place {
    /// The epoch of the next iterator.
    pub(crate) next: u64,
    /// The end (exclusive) of all epochs, if the trainer set it.
    pub(crate) end: Option<u64>,
    /// The state after the last batch that was handed over.
    pub(crate) state: LoaderState,
    /// Whether the trainer resumed at a state.
    pub(crate) resumed: bool,
    /// A stream whose next batch is in epoch `next`.
    pub(crate) ahead: Option<Ahead>,
    /// The monitor of the latest stream.
    pub(crate) monitor: Option<Monitor>,
}

/// A stream between two iterators.
pub(crate) struct Ahead {
    pub(crate) stream: BatchStream,
    /// The next batch, if it was taken to find out that the epoch before it is over.
    pub(crate) batch: Option<Batch>,
}

impl Shared {
    pub(crate) fn new(loader: Loader) -> Self {
        let state = loader.state_before(0);
        let place = Place { next: 0, end: None, state, resumed: false, ahead: None, monitor: None };
        Self { loader, place: Mutex::new(place) }
    }

    /// For another loader, with the epochs of `other`.
    pub(crate) fn like(loader: Loader, other: &Self) -> Self {
        let shared = Self::new(loader);
        {
            let (mut place, other) = (shared.place(), other.place());
            (place.next, place.end, place.state) = (other.next, other.end, shared.loader.state_before(other.next));
        }
        shared
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        // A panic leaves the place consistent, so poisoning does not matter.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next epoch, the number of its samples that are done (after a resume), and a stream of the rest.
    pub(crate) fn begin(&self) -> Result<(u64, u64, Ahead)> {
        let mut place = self.place();
        let epoch = place.next;
        let end = place.end.unwrap_or(epoch.saturating_add(1));
        if epoch >= end {
            return Err(Error::config(format!("the epochs end before {end}, and all of them were iterated over"))
                .with_hint("give InfeedLoader::epochs as many epochs as the trainer runs"));
        }
        let position = if place.state.epoch == epoch { place.state.position } else { 0 };
        let ahead = match place.ahead.take() {
            Some(ahead) => ahead,
            None => {
                let resumed = (position > 0).then(|| self.loader.resume_epochs(&place.state, ..end)).transpose()?;
                let stream = resumed.unwrap_or_else(|| self.loader.epochs(epoch..end));
                place.monitor = Some(stream.monitor());
                Ahead { stream, batch: None }
            }
        };
        place.next += 1;
        let done = position / u64::from(self.loader.config().shard.world());
        Ok((epoch, done, ahead))
    }

    /// A batch was handed over.
    pub(crate) fn passed(&self, batch: &Batch) {
        self.place().state.clone_from(batch.state());
    }

    /// `epoch` is over. Keeps the stream for the next epoch, unless another iterator has begun that epoch meanwhile.
    pub(crate) fn end(&self, epoch: u64, ahead: Ahead) {
        let mut place = self.place();
        if place.next == epoch + 1 && place.end.is_some_and(|end| place.next < end) {
            place.ahead = Some(ahead);
        }
    }
}
