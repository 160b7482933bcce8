//! Records that their dataset reads itself: blocking calls, ahead of the decode threads.
//!
//! Calls begin in plan order, each when it has permits for its expected bytes and one of the loader's slots. Its
//! records go to the decode threads at once; then it takes permits for bytes beyond the expected ones, before another
//! call gets any. So memory can exceed the window by at most the underestimates of the calls in flight plus one
//! admitted call.
//!
//! A call holds only the dataset and its slot, nothing of the stream. So a call that never returns does not block a
//! drop; the next stream has one slot less.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use futures::FutureExt;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::{Sent, Stage},
};
use infeed_data::ReadPlan;
use tokio::{sync::OwnedSemaphorePermit, task};

use super::{
    byte_permits::{BytePermits, Overdraft},
    permits::units,
    pieces::{Fetched, Piece},
    stream::StreamShared,
    timeline::{FetchTimes, LastRead},
};

/// The result of a call.
pub(super) struct Read {
    pub(super) records: Vec<Result<Fetched>>,
    pub(super) times: FetchTimes,
    pub(super) encoded: BytePermits,
    pub(super) rest: AfterRead,
}

/// The rest of the work after the bytes went to the decode threads.
pub(super) struct AfterRead {
    overdraft: Option<Overdraft>,
    slot: OwnedSemaphorePermit,
}

impl AfterRead {
    /// Takes the missing permits, and lets another call begin.
    pub(super) async fn done(self) {
        let Self { overdraft, slot } = self;
        let Some(overdraft) = overdraft else { return };
        let mut paying = Box::pin(overdraft.pay());
        // Before the next call waits for permits.
        if paying.as_mut().now_or_never().is_none() {
            drop(slot);
            paying.await;
        }
    }
}

/// Reads these records of batch number `batch`, which began to wait for a slot at `asked`; `permit` is for `expected`
/// bytes, of at most `all` units. `None` if the stream was dropped.
pub(super) async fn read(
    stream: &Arc<StreamShared>,
    (batch, planned): (u64, Vec<(u64, ReadPlan)>),
    expected: u64,
    (permit, all): (OwnedSemaphorePermit, u32),
    (slot, asked): (OwnedSemaphorePermit, Instant),
) -> Option<Read> {
    let (records, plans): (Vec<u64>, Vec<ReadPlan>) = planned.into_iter().unzip();
    let (count, first) = (records.len(), *records.first()?);
    let began = Instant::now();
    let slots = &stream.loader.read_slots;
    let object = stream.loader.dataset.object(first);
    let sent = stream.requests.sent(Sent::First, slots.most(), began);
    let waits = stream.requests.reading(batch, object, 0..expected, began);
    // tokio's clock, which tests control.
    let called = tokio::time::Instant::now();
    let (read, slot) = call(stream, records, slot).await?;
    slots.calls.learn(called.elapsed(), count);
    let came = Instant::now();
    drop(waits);
    let bytes_of = |read: &Result<Vec<Bytes>>| read.iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>();
    let total = read.iter().map(bytes_of).sum();
    if read.iter().any(Result::is_ok) {
        sent.answered(came, came - began, total);
    } else {
        sent.failed(false);
    }
    stream.recorder.busy(Stage::Fetch, came - began, count as u64, total);
    let limits = &stream.loader.limits;
    let checked = read.into_iter().zip(plans).map(|(read, plan)| {
        limits.check(bytes_of(&read))?;
        let pieces = read.map_err(|error| error.at_stage(Stage::Fetch))?;
        Ok(Fetched { plan, pieces: Some(pieces.into_iter().map(Piece::Bytes).collect()) })
    });
    let records = checked.collect();
    let (encoded, overdraft) = BytePermits::settled(permit, &stream.encoded, units(total).min(all));
    // With several records it is unknown which one took long.
    let last = (count == 1).then_some(LastRead::Record(first));
    Some(Read { records, times: FetchTimes { began: asked, came, last }, encoded, rest: AfterRead { overdraft, slot } })
}

/// Runs a call on a thread that may block; in a test with simulated threads, later on this thread.
fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> task::JoinHandle<T> {
    #[cfg(test)]
    if super::by_hand::installed() {
        return tokio::spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            call()
        });
    }
    task::spawn_blocking(call)
}

/// Calls the dataset on a thread that may block. Returns the slot with the result; `None` if the stream was dropped.
async fn call(
    stream: &Arc<StreamShared>,
    records: Vec<u64>,
    slot: OwnedSemaphorePermit,
) -> Option<(Vec<Result<Vec<Bytes>>>, OwnedSemaphorePermit)> {
    let count = records.len();
    let (dataset, of) = (Arc::clone(&stream.loader.dataset), Arc::downgrade(stream));
    let call = move || {
        // Checked here, because the thread may start late.
        let lives = of.upgrade().is_some_and(|stream| !stream.gate.is_closed());
        let read = || catch_unwind(AssertUnwindSafe(|| dataset.read(&records)));
        lives.then(|| (read(), slot))
    };
    // No answer: the runtime or the stream is ending.
    let (read, slot) = blocking(call).await.ok()??;
    let broken = match read {
        Ok(read) if read.len() == count => return Some((read, slot)),
        Ok(read) => format!("the dataset read {} records where {count} were asked for", read.len()),
        Err(_) => "the dataset panicked while it read a record".to_owned(),
    };
    let error = Error::new(ErrorKind::Internal, broken).at_stage(Stage::Fetch);
    Some(((0..count).map(|_| Err(error.clone())).collect(), slot))
}
