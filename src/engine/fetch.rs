//! Reading ahead from a remote store: bytes first, rows later.
//!
//! Encoded bytes are small and slow to come, rows are large and quick to fill. So bytes are admitted far ahead, chunk
//! by chunk, and a batch takes its rows only when its first chunk is there and all batches before it have theirs.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Instant};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesOrdered};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::JoinSet,
};

use super::{
    BatchRows,
    admit::{row_permit, take_rows},
    assembly::Assembly,
    plan::BatchPlan,
    run::{Gate, RunShared, Sealed},
    workers::Task,
};
use crate::{
    dataset::ReadPlan,
    error::{Error, ErrorKind, Result},
    report::Stage,
    source::Extent,
    sys::rows::Rows,
};

/// Encoded bytes are counted in these units: tokio's semaphores take `u32` permits.
const UNIT: u64 = 64 << 10;

/// The remote reads of one stream.
pub(super) struct Fetcher {
    run: Arc<RunShared>,
    rows: Arc<Semaphore>,
    encoded: Arc<Semaphore>,
    encoded_units: u32,
    requests: Arc<Semaphore>,
    /// Ends when the batch before has its rows.
    turn: oneshot::Receiver<()>,
    tasks: JoinSet<()>,
}

/// Some rows of a batch whose bytes have come.
struct Fetched {
    first: usize,
    bytes: Vec<Result<Vec<Bytes>>>,
    permit: OwnedSemaphorePermit,
}

impl Fetcher {
    pub(super) fn new(run: &Arc<RunShared>, rows: &Arc<Semaphore>) -> Self {
        let limits = run.setup.limits;
        let encoded_units = units(limits.encoded);
        let (first, turn) = oneshot::channel();
        // The first batch waits for nobody.
        let _ = first.send(());
        Self {
            run: Arc::clone(run),
            rows: Arc::clone(rows),
            encoded: Arc::new(Semaphore::new(encoded_units as usize)),
            encoded_units,
            requests: Arc::new(Semaphore::new(limits.requests)),
            turn,
            tasks: JoinSet::new(),
        }
    }

    /// Starts the reads of a batch as its bytes find room; returns when all have been admitted.
    pub(super) async fn admit(&mut self, plan: BatchPlan, batch: oneshot::Sender<Sealed>) {
        // Finished tasks are reaped here, so that the set stays small.
        while self.tasks.try_join_next().is_some() {}
        let count = plan.records.len();
        let dataset = &self.run.setup.dataset;
        let plans = (0..count).map(|row| dataset.plan(plan.records[row], plan.rng(row)));
        let plans: Vec<Result<ReadPlan>> = plans.collect();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (taken, next_turn) = oneshot::channel();
        let turn = std::mem::replace(&mut self.turn, next_turn);
        self.tasks.spawn(place(Arc::clone(&self.run), Arc::clone(&self.rows), plan, batch, arrivals, turn, taken));

        let chunk = self.run.setup.workers.chunk(count);
        // A chunk takes at most a quarter of the window, so that several are in flight.
        let most = u64::from((self.encoded_units / 4).max(1)) * UNIT;
        let (mut first, mut plans) = (0, plans.into_iter().peekable());
        while plans.peek().is_some() {
            let (mut chunk_plans, mut bytes) = (Vec::new(), 0);
            while let Some(next) = plans.peek() {
                let more = next.as_ref().map_or(0, read_bytes);
                if chunk_plans.len() == chunk || (!chunk_plans.is_empty() && bytes + more > most) {
                    break;
                }
                bytes += more;
                chunk_plans.extend(plans.next());
            }
            let rows = chunk_plans.len();
            // Taken in plan order: the head batch always gets its bytes, so it can never starve. `build` made
            // the window at least as large as the largest record, so the cut never bites.
            let want = units(bytes).min(self.encoded_units);
            let began = Instant::now();
            let Ok(permit) = Arc::clone(&self.encoded).acquire_many_owned(want).await else { return };
            self.run.recorder.blocked(Stage::Fetch, began.elapsed());
            let (run, requests, arrived) = (Arc::clone(&self.run), Arc::clone(&self.requests), arrived.clone());
            self.tasks.spawn(async move {
                let bytes = fetch(&run, &requests, chunk_plans).await;
                // The placing task is gone only with the stream.
                let _ = arrived.send(Fetched { first, bytes, permit });
            });
            first += rows;
        }
    }

    /// Waits until every read and placement is done.
    pub(super) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT).max(1)).unwrap_or(u32::MAX >> 4)
}

fn read_bytes(plan: &ReadPlan) -> u64 {
    plan.extents.iter().map(|extent| extent.range.end - extent.range.start).sum()
}

/// Reads the extents of some records, all at a time within the request limit.
async fn fetch(run: &RunShared, requests: &Arc<Semaphore>, plans: Vec<Result<ReadPlan>>) -> Vec<Result<Vec<Bytes>>> {
    let began = Instant::now();
    let records = plans.len() as u64;
    let one = |plan: Result<ReadPlan>| async move {
        let mut reads: FuturesOrdered<_> =
            plan?.extents.into_iter().map(|extent| read(&run.gate, requests, extent)).collect();
        let mut bytes = Vec::with_capacity(reads.len());
        while let Some(read) = reads.next().await {
            bytes.push(read.map_err(|error| error.at_stage(Stage::Fetch))?);
        }
        Ok(bytes)
    };
    let mut all: FuturesOrdered<_> = plans.into_iter().map(one).collect();
    let mut fetched: Vec<Result<Vec<Bytes>>> = Vec::with_capacity(all.len());
    while let Some(bytes) = all.next().await {
        fetched.push(bytes);
    }
    let total = fetched.iter().flatten().flatten().map(|bytes| bytes.len() as u64).sum();
    run.recorder.busy(Stage::Fetch, began.elapsed(), records, total);
    fetched
}

async fn read(gate: &Gate, requests: &Semaphore, extent: Extent) -> Result<Bytes> {
    let closed = |_| Error::new(ErrorKind::Internal, "the request limit was closed");
    let _request = requests.acquire().await.map_err(closed)?;
    let mut read = Box::pin(extent.source.read(&extent.name, extent.range.clone()));
    // Each poll passes the gate: a read that a poll would begin does not begin once the stream is dropped. A closed
    // gate never wakes this future again; the task around it is being aborted.
    std::future::poll_fn(move |cx| match gate.pass() {
        Some(_open) => Pin::new(&mut read).poll(cx),
        None => Poll::Pending,
    })
    .await
}

/// Gives a batch its rows when its first bytes have come and the batch before has its own; then a job for each chunk
/// that arrives.
async fn place(
    run: Arc<RunShared>,
    rows: Arc<Semaphore>,
    plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    mut arrivals: mpsc::UnboundedReceiver<Fetched>,
    turn: oneshot::Receiver<()>,
    taken: oneshot::Sender<()>,
) {
    let count = plan.records.len();
    let mut next = arrivals.recv().await;
    // In plan order: rows that a later batch held could never be freed before the head's.
    if turn.await.is_err() {
        return;
    }
    let Some(permit) = row_permit(&run, &rows).await else { return };
    let BatchRows { rows: mut fields, uploads } = match take_rows(&run, &rows, count).await {
        Ok(taken) => taken,
        Err(error) => {
            let _ = batch.send(Sealed { result: Err(error), _permit: permit });
            return;
        }
    };
    // Only now, so that memory too is taken in plan order.
    let _ = taken.send(());
    let assembly = Assembly::new(&run, plan, batch, permit, uploads);
    if count == 0 {
        return assembly.deliver(0, fields, []);
    }
    // Chunks come in any order: cut the batch into single rows, join those of a chunk when it is there.
    let mut cut: Vec<Vec<Option<Rows>>> =
        fields.iter_mut().map(|field| (0..count).map(|_| Some(field.split_to(1))).collect()).collect();
    while let Some(Fetched { first, bytes, permit }) = next {
        let range = first..first + bytes.len();
        let take = |field: &mut Vec<Option<Rows>>| {
            let rows = field[range.clone()].iter_mut().filter_map(Option::take);
            rows.reduce(|a, b| a.join(b).expect("rows of one field are neighbours"))
        };
        let part: Vec<Rows> = cut.iter_mut().filter_map(take).collect();
        run.setup.workers.submit(Task::new(&assembly, first, part).fetched(bytes, Some(permit)));
        next = arrivals.recv().await;
    }
}
