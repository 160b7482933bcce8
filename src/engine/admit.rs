//! The task of a stream that admits batches, in plan order.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    assembly::Assembly,
    batch_rows::{row_permit, take_rows},
    fetch::Fetcher,
    fields::BatchRows,
    plan::{BatchPlan, Planner},
    stream::{Sealed, Seat, StreamShared},
    task::{Task, Work},
    workers::Workers,
};

/// Walks the plan until it ends, the stream is dropped, or an error ends the run.
pub(super) async fn admit(
    stream: Arc<StreamShared>,
    workers: Arc<Workers>,
    planner: Planner,
    announce: mpsc::Sender<Seat>,
) {
    if let Some(decoded) = stream.loader.decoded.clone() {
        // Concurrently with the first reads, because it may list a large folder.
        drop(tokio::task::spawn_blocking(move || decoded.refresh()));
    }
    let mut fetcher = stream.loader.reads_ahead().then(|| Fetcher::new(&stream, &workers));
    for mut plan in planner {
        // There are more seats than batches that may own rows, so this usually waits for rows.
        let permit = match &fetcher {
            None => {
                let Some(permit) = row_permit(&stream, &mut plan).await else { return };
                Some(permit)
            }
            Some(_) => None,
        };
        let began = Instant::now();
        let Ok(seat) = announce.reserve().await else { return };
        plan.waits.permit(began);
        let (batch, receiver) = oneshot::channel::<Sealed>();
        seat.send(receiver);
        match (&mut fetcher, permit) {
            (Some(fetcher), _) => fetcher.admit(plan, batch).await,
            (None, Some(permit)) => place(&stream, &workers, plan, batch, permit).await,
            (None, None) => return,
        }
    }
    stream.planned.store(true, Ordering::Release);
    // Fetches belong to this task, so that its abort ends them: stay until they are done.
    if let Some(fetcher) = fetcher {
        fetcher.finish().await;
    }
}

/// Gives a batch its rows and all its jobs at once, because the decode threads read the records.
async fn place(
    stream: &Arc<StreamShared>,
    workers: &Workers,
    plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    permit: OwnedSemaphorePermit,
) {
    let count = plan.records.len();
    let BatchRows { rows: mut fields, uploads } = match take_rows(stream, &plan).await {
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
    let chunk = stream.loader.chunk.get(count);
    let mut first = 0;
    while first < count {
        let rows = chunk.min(count - first);
        let part = fields.iter_mut().map(|field| field.split_to(rows)).collect();
        if first + rows == count {
            // The empty rest still holds the memory, which must belong to the trainer alone once the batch is complete.
            fields.clear();
        }
        workers.submit(Work::Rows(Task::new(&assembly, first, part)));
        first += rows;
    }
}
