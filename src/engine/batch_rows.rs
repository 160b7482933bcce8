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

/// Waits until a batch may own rows. `None` never happens while the task lives; it avoids an `expect`.
pub(super) async fn row_permit(stream: &StreamShared, plan: &mut BatchPlan) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let loader = &stream.loader;
    // Rows of volumes are made without scratch, and are as large as everything else together.
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

/// Memory for the rows of a batch that holds its permit. On a GPU this waits while returned buffers are still being
/// read.
///
/// If the GPU has no memory left, the stream continues, once, with half as many batches ahead. If that does not help
/// and no other batch of this stream can return its memory, the stream ends with the error.
pub(super) async fn take_rows(stream: &StreamShared, plan: &BatchPlan) -> Result<BatchRows> {
    let count = plan.records.len();
    let mut waited = None;
    let mut missed: Option<&Pool> = None;
    loop {
        // Registered before the attempt, so that no change between attempt and wait is missed. Only for this pool:
        // buffers of other pools that the attempt takes and returns are no change.
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
            // The driver can only wake a blocked thread. The wait ends with the reader's work, even if the stream is
            // dropped.
            task::spawn_blocking(|| still_read.wait());
        }
        if pool.has_idle() {
            // A buffer became free since the attempt, and no notification would come for it.
            continue;
        }
        change.await;
    }
}

/// Resolves when a buffer came back to the pool, or the trainer took a batch, which frees a permit.
fn change(stream: &StreamShared, pool: &Pool) -> impl Future<Output = ()> + Send {
    // Registered from now on, polled or not.
    let (handed_over, returned) = (stream.handed_over.notified(), pool.returned());
    async move {
        let (handed_over, returned) = (pin!(handed_over), pin!(returned));
        select(handed_over, returned).await;
    }
}
