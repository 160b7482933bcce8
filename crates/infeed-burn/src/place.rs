//! Where a trainer is in its loader.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn_core::tensor::Device;
use infeed::{Batch, BatchStream, Error, Loader, LoaderState, Result, loader::Monitor};

/// Makes of a loader's batch what the trainer takes.
pub(crate) type Make<O> = Arc<dyn Fn(&Batch, &Device) -> Result<O> + Send + Sync>;

/// One loader, and where its trainer is in it.
pub(crate) struct Shared {
    pub(crate) loader: Loader,
    place: Mutex<Place>,
}

pub(crate) struct Place {
    /// The epoch that the next iterator is.
    pub(crate) next: u64,
    /// Where all epochs end, if the trainer said so.
    pub(crate) end: Option<u64>,
    /// Behind the last batch that was handed over.
    pub(crate) state: LoaderState,
    /// The state was the trainer's.
    pub(crate) resumed: bool,
    /// A stream that has come to the beginning of `next`, or into it.
    pub(crate) ahead: Option<Ahead>,
    /// Of the latest stream.
    pub(crate) monitor: Option<Monitor>,
}

/// A stream between two iterators.
pub(crate) struct Ahead {
    pub(crate) stream: BatchStream,
    /// The next batch, where it had to be taken to see that the epoch before is over.
    pub(crate) batch: Option<Batch>,
}

impl Shared {
    pub(crate) fn new(loader: Loader) -> Self {
        let state = loader.state_before(0);
        let place = Place { next: 0, end: None, state, resumed: false, ahead: None, monitor: None };
        Self { loader, place: Mutex::new(place) }
    }

    /// Of another loader, whose epochs are those of `other`.
    pub(crate) fn like(loader: Loader, other: &Self) -> Self {
        let shared = Self::new(loader);
        {
            let (mut place, other) = (shared.place(), other.place());
            (place.next, place.end, place.state) = (other.next, other.end, shared.loader.state_before(other.next));
        }
        shared
    }

    pub(crate) fn place(&self) -> MutexGuard<'_, Place> {
        // Each section leaves the place whole.
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next epoch, how many of its samples are done (where it was resumed), and a stream that goes on with it.
    pub(crate) fn begin(&self) -> Result<(u64, u64, Ahead)> {
        let mut place = self.place();
        let epoch = place.next;
        let end = place.end.unwrap_or(epoch.saturating_add(1));
        if epoch >= end {
            return Err(Error::config(format!("the epochs end before {end}, and all of them were iterated over"))
                .hint("give InfeedLoader::epochs as many as the trainer runs"));
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

    /// `epoch` is over, and the stream stands behind it. Another iterator may have begun the next one meanwhile.
    pub(crate) fn end(&self, epoch: u64, ahead: Ahead) {
        let mut place = self.place();
        if place.next == epoch + 1 && place.end.is_some_and(|end| place.next < end) {
            place.ahead = Some(ahead);
        }
    }
}
