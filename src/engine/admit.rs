//! The one task that lets batches in, in plan order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    BatchRows,
    assembly::Assembly,
    fetch::Fetcher,
    plan::{BatchPlan, Planner},
    run::{Sealed, Seat, StreamShared},
    workers::Task,
};
use crate::{
    error::{ErrorKind, Result},
    report::Stage,
};

/// Walks the plan until it ends, the stream is gone, or an error ends the run.
pub(super) async fn admit(stream: Arc<StreamShared>, planner: Planner, announce: mpsc::Sender<Seat>) {
    let mut fetcher = stream.loader.dataset.needs_fetch().then(|| Fetcher::new(&stream));
    for mut plan in planner {
        // Seats are more than batches that may own rows: here that is what holds it back.
        let permit = match &fetcher {
            None => {
                let Some(permit) = row_permit(&stream, &mut plan).await else { return };
                Some(permit)
            }
            Some(_) => None,
        };
        let began = Instant::now();
        let Ok(seat) = announce.reserve().await else { return };
        plan.waits.room(began);
        let (batch, receiver) = oneshot::channel::<Sealed>();
        seat.send(receiver);
        match (&mut fetcher, permit) {
            (Some(fetcher), _) => fetcher.admit(plan, batch).await,
            (None, Some(permit)) => place(&stream, plan, batch, permit).await,
            (None, None) => return,
        }
    }
    stream.planned.store(true, Ordering::Release);
    // Fetches belong to this task, so that its abort ends them: stay until they are done.
    if let Some(fetcher) = fetcher {
        fetcher.finish().await;
    }
}

/// Waits until a batch may own rows. `None` never happens while the task lives; it spares an `expect`.
pub(super) async fn row_permit(stream: &StreamShared, plan: &mut BatchPlan) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let permit = stream.row_permits.acquire().await?;
    plan.waits.room(began);
    Some(permit)
}

/// Memory for the rows of a batch that holds its permit. On a GPU this waits while what came back is still read there.
///
/// When the GPU has no memory left, the stream goes on with half as many batches ahead, once; when that does not help
/// and no other batch of this stream can give its memory back, it ends with the error.
pub(super) async fn take_rows(stream: &StreamShared, count: usize) -> Result<BatchRows> {
    // Often enough for a pool of several batches, seldom enough to cost nothing.
    const PAUSE: Duration = Duration::from_millis(1);
    let mut waited = None;
    loop {
        match stream.loader.take_rows(count) {
            Ok(Some(taken)) => {
                if let Some(began) = waited {
                    stream.recorder.blocked(Stage::Transfer, Instant::elapsed(&began));
                }
                return Ok(taken);
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                let most = stream.row_permits.size();
                if most > 1 && !stream.gave_up.swap(true, Ordering::Relaxed) {
                    let fewer = most - most / 2;
                    tracing::warn!(prefetch = fewer, %error, "out of device memory: fewer batches ahead");
                    stream.row_permits.shrink_to(fewer).await;
                    continue;
                }
                if stream.row_permits.free() + 1 >= most {
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
    stream: &Arc<StreamShared>,
    plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    permit: OwnedSemaphorePermit,
) {
    let loader = &stream.loader;
    let count = plan.records.len();
    let BatchRows { rows: mut fields, uploads } = match take_rows(stream, count).await {
        Ok(taken) => taken,
        Err(error) => {
            let _ = batch.send(Sealed::failed(error, permit));
            return;
        }
    };
    let assembly = Assembly::new(stream, plan, batch, permit, uploads);
    if count == 0 {
        // A rank's empty share of a last partial batch.
        return assembly.deliver(0, fields, [], None);
    }
    let chunk = loader.workers.chunk(count);
    let mut first = 0;
    while first < count {
        let rows = chunk.min(count - first);
        let part = fields.iter_mut().map(|field| field.split_to(rows)).collect();
        loader.workers.submit(Task::new(&assembly, first, part));
        first += rows;
    }
}
