//! The one task that lets batches in, in plan order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::{
    assembly::Assembly,
    fetch::Fetcher,
    plan::{BatchPlan, Planner},
    run::{RunShared, Sealed, Seat},
    workers::Task,
};
use crate::report::Stage;

/// Walks the plan until it ends, the stream is gone, or an error ends the run.
pub(super) async fn admit(run: Arc<RunShared>, planner: Planner, announce: mpsc::Sender<Seat>) {
    let rows = Arc::new(Semaphore::new(run.setup.limits.prefetch));
    let mut fetcher = run.setup.dataset.needs_fetch().then(|| Fetcher::new(&run, &rows));
    for plan in planner {
        let Ok(seat) = announce.reserve().await else { return };
        let (batch, receiver) = oneshot::channel::<Sealed>();
        seat.send(receiver);
        match &mut fetcher {
            Some(fetcher) => fetcher.admit(plan, batch).await,
            None => {
                let Some(permit) = row_permit(&run, &rows).await else { return };
                place(&run, plan, batch, permit);
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
pub(super) async fn row_permit(run: &RunShared, rows: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let permit = Arc::clone(rows).acquire_owned().await.ok()?;
    run.recorder.blocked(Stage::Decode, began.elapsed());
    Some(permit)
}

/// Gives a batch its rows and its jobs at once: the workers read for themselves.
fn place(run: &Arc<RunShared>, plan: BatchPlan, batch: oneshot::Sender<Sealed>, permit: OwnedSemaphorePermit) {
    let setup = &run.setup;
    let count = plan.records.len();
    let mut fields: Vec<_> = setup.fields.iter().map(|field| field.take(count)).collect();
    let assembly = Assembly::new(run, plan, batch, permit);
    if count == 0 {
        // A rank's empty share of a last partial batch.
        return assembly.deliver(0, fields, []);
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
