//! Rows for a batch: first the permit to own some, then their memory.

use std::{future::Future, iter, pin::pin, sync::atomic::Ordering, time::Instant};

use futures::future::select;
use infeed_core::{
    error::{ErrorKind, Result},
    report::Stage,
    rows::Pool,
};
use tokio::{sync::OwnedSemaphorePermit, task};

use super::{
    fields::{BatchRows, MissingRows},
    plan::BatchPlan,
    run_ahead,
    stream::StreamShared,
};

/// Waits until a batch may own rows. `None` never happens while the task lives; it spares an `expect`.
pub(super) async fn row_permit(stream: &StreamShared, plan: &mut BatchPlan) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let loader = &stream.loader;
    // Their rows are made without scratch, and as large as all else together.
    if let Some(last) = loader.fields.iter().rfind(|field| field.volume.is_some()) {
        let count = plan.records.len();
        let jobs = count.div_ceil(loader.chunk.get(count));
        let width = run_ahead::width(loader.tuning.workers(), jobs);
        let (lent, returned) = (|| last.pool.lent() as u64, || last.pool.returned());
        let begun = stream.run_ahead.begin(width, lent, returned, tokio::time::sleep(run_ahead::MOMENT));
        plan.begun = Some(begun.await);
    }
    let permit = stream.row_permits.acquire().await?;
    plan.waits.permit(began);
    Some(permit)
}

/// Memory for the rows of a batch that holds its permit. On a GPU this waits while what came back is still read there.
///
/// When the GPU has no memory left, the stream goes on with half as many batches ahead, once; when that does not help
/// and no other batch of this stream can give its memory back, it ends with the error.
pub(super) async fn take_rows(stream: &StreamShared, plan: &BatchPlan) -> Result<BatchRows> {
    let count = plan.records.len();
    let mut waited = None;
    let mut missed: Option<&Pool> = None;
    loop {
        // Made before the look, so that no change between the look and the wait is missed. Of that pool alone: what the
        // look takes of others and gives back is no change.
        let change = missed.map(|pool| change(stream, pool));
        let MissingRows { pool, error } = match BatchRows::take(&stream.loader.fields, count, plan.size) {
            Ok(taken) => {
                if let Some(began) = waited {
                    stream.recorder.blocked(Stage::Transfer, Instant::elapsed(&began));
                }
                return Ok(taken);
            }
            Err(missing) => missing,
        };
        match error {
            None => {}
            Some(error) if error.kind() == ErrorKind::OutOfMemory => {
                let most = stream.row_permits.size();
                if most > 1 && !stream.gave_up.swap(true, Ordering::Relaxed) {
                    let fewer = most - most / 2;
                    tracing::warn!(prefetch = fewer, %error, "out of memory for rows: fewer batches ahead");
                    stream.row_permits.shrink_to(fewer).await;
                    continue;
                }
                if stream.row_permits.free() + 1 >= most {
                    return Err(error.at_stage(Stage::Transfer));
                }
            }
            Some(error) => return Err(error.at_stage(Stage::Transfer)),
        }
        waited.get_or_insert_with(Instant::now);
        let again = missed.replace(pool).is_some_and(|before| std::ptr::eq(before, pool));
        let Some(change) = change.filter(|_| again) else { continue };
        for still_read in iter::from_fn(|| pool.still_read()) {
            // The driver tells by waking a thread. It ends with the reader's work, also when the stream is gone.
            task::spawn_blocking(|| still_read.wait());
        }
        if pool.has_idle() {
            // Read since the look; nobody waits for it, so nobody would tell.
            continue;
        }
        change.await;
    }
}

/// Ends when a buffer came back to the pool, or the trainer took a batch and with it the permit of another.
fn change(stream: &StreamShared, pool: &Pool) -> impl Future<Output = ()> + Send {
    // They hear from now on, polled or not.
    let (handed_over, returned) = (stream.handed_over.notified(), pool.returned());
    async move {
        let (handed_over, returned) = (pin!(handed_over), pin!(returned));
        select(handed_over, returned).await;
    }
}
