//! The one task that lets batches in, in plan order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    BatchRows,
    assembly::Assembly,
    fetch::Fetcher,
    plan::{BatchPlan, Planner},
    run::{RunShared, Sealed, Seat},
    workers::Task,
};
use crate::{
    error::{ErrorKind, Result},
    report::Stage,
};

/// Walks the plan until it ends, the stream is gone, or an error ends the run.
pub(super) async fn admit(run: Arc<RunShared>, planner: Planner, announce: mpsc::Sender<Seat>) {
    let rows = Arc::new(Semaphore::new(run.setup.limits.prefetch));
    let mut fetcher = run.setup.dataset.needs_fetch().then(|| Fetcher::new(&run, &rows));
    for mut plan in planner {
        let began = Instant::now();
        let Ok(seat) = announce.reserve().await else { return };
        plan.waits.room(began);
        let (batch, receiver) = oneshot::channel::<Sealed>();
        seat.send(receiver);
        match &mut fetcher {
            Some(fetcher) => fetcher.admit(plan, batch).await,
            None => {
                let Some(permit) = row_permit(&run, &rows, &mut plan).await else { return };
                place(&run, &rows, plan, batch, permit).await;
            }
        }
    }
    run.planned.store(true, Ordering::Release);
    // Fetches belong to this task, so that its abort ends them: stay until they are done.
    if let Some(fetcher) = fetcher {
        fetcher.finish().await;
    }
}

/// Waits until a batch may own rows. `None` never happens while the task lives; it spares an `expect`.
pub(super) async fn row_permit(
    run: &RunShared,
    rows: &Arc<Semaphore>,
    plan: &mut BatchPlan,
) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let permit = Arc::clone(rows).acquire_owned().await.ok()?;
    plan.waits.room(began);
    run.recorder.blocked(Stage::Decode, began.elapsed());
    Some(permit)
}

/// Memory for the rows of a batch that holds its permit. On a GPU this waits while what came back is still read there.
///
/// When the GPU has no memory left, the stream goes on with half as many batches ahead, once; when that does not help
/// and no other batch of this stream can give its memory back, it ends with the error.
pub(super) async fn take_rows(run: &RunShared, rows: &Arc<Semaphore>, count: usize) -> Result<BatchRows> {
    // Often enough for a pool of several batches, seldom enough to cost nothing.
    const PAUSE: Duration = Duration::from_millis(1);
    let mut waited = None;
    loop {
        match run.setup.take_rows(count) {
            Ok(Some(taken)) => {
                if let Some(began) = waited {
                    run.recorder.blocked(Stage::Transfer, Instant::elapsed(&began));
                }
                return Ok(taken);
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                let most = run.setup.limits.prefetch;
                let forgotten = run.given_up.load(Ordering::Relaxed);
                if forgotten == 0 && most > 1 {
                    let fewer = most / 2;
                    run.given_up.store(fewer, Ordering::Relaxed);
                    tracing::warn!(prefetch = most - fewer, %error, "out of device memory: fewer batches ahead");
                    let fewer = u32::try_from(fewer).unwrap_or(u32::MAX);
                    // Waits until the trainer has taken that many.
                    if let Ok(permits) = Arc::clone(rows).acquire_many_owned(fewer).await {
                        permits.forget();
                    }
                    continue;
                }
                if rows.available_permits() + 1 >= most - forgotten {
                    return Err(error.at_stage(Stage::Transfer));
                }
            }
            Err(error) => return Err(error.at_stage(Stage::Transfer)),
        }
        waited.get_or_insert_with(Instant::now);
        tokio::time::sleep(PAUSE).await;
    }
}

/// Gives a batch its rows and its jobs at once: the workers read for themselves.
async fn place(
    run: &Arc<RunShared>,
    row_permits: &Arc<Semaphore>,
    plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    permit: OwnedSemaphorePermit,
) {
    let setup = &run.setup;
    let count = plan.records.len();
    let BatchRows { rows: mut fields, uploads } = match take_rows(run, row_permits, count).await {
        Ok(taken) => taken,
        Err(error) => {
            let _ = batch.send(Sealed::failed(error, permit));
            return;
        }
    };
    let assembly = Assembly::new(run, plan, batch, permit, uploads);
    if count == 0 {
        // A rank's empty share of a last partial batch.
        return assembly.deliver(0, fields, [], None);
    }
    let chunk = setup.workers.chunk(count);
    let mut first = 0;
    while first < count {
        let rows = chunk.min(count - first);
        let part = fields.iter_mut().map(|field| field.split_to(rows)).collect();
        setup.workers.submit(Task::new(&assembly, first, part));
        first += rows;
    }
}
