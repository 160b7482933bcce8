//! One epoch, as a stream and as burn's iterator.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use burn_core::{
    data::{
        dataloader::{DataLoaderIterator, Progress},
        dataset::DatasetError,
    },
    tensor::Device,
};
use futures::{Stream, StreamExt, stream::FusedStream};
use infeed::{Batch, Error, Result};

use crate::place::{Ahead, Make, Shared};

/// The batches of one epoch; made by [`InfeedLoader::stream`](crate::InfeedLoader::stream).
///
/// Yields an error once, then ends. **Cancel safe**, as [`infeed::BatchStream`]. If it is dropped before its last
/// batch, the rest of the epoch is skipped, and the next iterator is the next epoch.
#[must_use = "dropping it leaves the epoch out"]
pub struct Epoch<O> {
    shared: Arc<Shared>,
    make: Make<O>,
    device: Device,
    epoch: u64,
    /// `None` after the last batch.
    ahead: Option<Ahead>,
    /// Yielded instead of the first batch.
    error: Option<Error>,
    samples: u64,
    of: u64,
}

impl<O> Epoch<O> {
    pub(crate) fn begin(shared: &Arc<Shared>, make: &Make<O>, device: &Device) -> Self {
        let of = shared.loader.samples_per_epoch();
        let (epoch, samples, ahead, error) = match shared.begin() {
            Ok((epoch, done, ahead)) => (epoch, done.min(of), Some(ahead), None),
            Err(error) => (u64::MAX, of, None, Some(error)),
        };
        Self {
            shared: Arc::clone(shared),
            make: Arc::clone(make),
            device: device.clone(),
            epoch,
            ahead,
            error,
            samples,
            of,
        }
    }

    /// Samples handed over so far, and samples of the whole epoch. Equal after the last batch, even if bad samples were
    /// skipped.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress::new(self.samples as usize, self.of as usize, Some("items".to_owned()))
    }

    /// Converts an item of the stream, which may already belong to the next epoch.
    fn given(&mut self, next: Option<Result<Batch>>) -> Option<Result<O>> {
        match next {
            Some(Ok(batch)) if batch.epoch() > self.epoch => {
                // No sample of the epoch's last batch was good.
                self.end(Some(batch));
                None
            }
            Some(Ok(batch)) => Some(self.hand_over(&batch)),
            Some(Err(error)) => {
                self.ahead = None;
                Some(Err(error))
            }
            None => {
                self.end(None);
                self.error.take().map(Err)
            }
        }
    }

    fn hand_over(&mut self, batch: &Batch) -> Result<O> {
        self.shared.passed(batch);
        self.samples = self.of.min(self.samples + batch.valid() as u64);
        // burn's loops check at the last batch whether the progress is complete.
        if batch.state().epoch > self.epoch {
            self.end(None);
        }
        let made = (self.make)(batch, &self.device);
        if made.is_err() {
            self.ahead = None;
        }
        made
    }

    /// The epoch is over. Keeps the stream for the next one.
    fn end(&mut self, batch: Option<Batch>) {
        self.samples = self.of;
        if let Some(ahead) = self.ahead.take() {
            self.shared.end(self.epoch, Ahead { batch, ..ahead });
        }
    }
}

impl<O> Stream for Epoch<O> {
    type Item = Result<O>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let next = match &mut this.ahead {
            Some(Ahead { stream, batch: None }) => ready!(stream.poll_next_unpin(cx)),
            ahead => first_of(ahead),
        };
        Poll::Ready(this.given(next))
    }
}

/// The batch that was already taken from the stream, if there is one.
fn first_of(ahead: &mut Option<Ahead>) -> Option<Result<Batch>> {
    ahead.as_mut()?.batch.take().map(Ok)
}

impl<O> FusedStream for Epoch<O> {
    fn is_terminated(&self) -> bool {
        self.ahead.is_none() && self.error.is_none()
    }
}

impl<O> fmt::Debug for Epoch<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("epoch", &self.epoch).field("progress", &self.progress()).finish_non_exhaustive()
    }
}

/// The epoch as a blocking iterator, for loops without a runtime.
pub(crate) struct BlockingEpoch<O>(pub(crate) Epoch<O>);

impl<O> Iterator for BlockingEpoch<O> {
    type Item = std::result::Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = match &mut self.0.ahead {
            Some(Ahead { stream, batch: None }) => stream.next_blocking(),
            ahead => first_of(ahead),
        };
        Some(self.0.given(next)?.map_err(DatasetError::new))
    }
}

impl<O> DataLoaderIterator<O> for BlockingEpoch<O> {
    fn progress(&self) -> Progress {
        self.0.progress()
    }
}
