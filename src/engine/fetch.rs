//! Reading ahead, from a remote store or by a dataset that reads itself: bytes first, rows later.
//!
//! Encoded bytes are small and slow to come, rows are large and quick to fill. So bytes are admitted far ahead, chunk
//! by chunk, and a batch takes its rows only when its first chunk is there and all batches before it have theirs.

use std::{
    future::{Future, poll_fn},
    num::NonZeroUsize,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use infeed_core::{error::Result, report::Stage, rows::Rows};
use infeed_data::ReadPlan;
use infeed_store::{Extent, Keep, Merged, Reader, Verify, Writer, merge};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{JoinSet, coop::unconstrained},
};
use tracing::{Instrument, Span};

use super::{
    assembly::Assembly,
    batch_rows::{row_permit, take_rows},
    cached::{self, Piece},
    dataset_reads::{self, Read},
    encoded::Encoded,
    fields::BatchRows,
    permits::{UNIT, units},
    plan::BatchPlan,
    stream::{Sealed, StreamShared},
    task::Task,
    timeline::{FetchTimes, LastRead},
    workers::Workers,
};

/// Batches that may be asked for with each one that is handed over: what is read ahead grows by one batch each time, until
/// its bytes or seats are taken. A whole window of 250 MB asked for at once keeps link and cores from the first batch, which
/// then came after 1.3 to 2.1 s in some cold rounds, 0.2 to 0.8 s with this (benches/tail.rs, dev build, other work on the
/// machine). 2 rather than 3 is a choice: the runs that compared them were too disturbed to tell.
pub(super) const RAMP: usize = 2;

/// Batches that may be asked for at the start: two, or 256 records where batches are small.
pub(super) fn first_batches(batch_size: NonZeroUsize) -> usize {
    256_usize.div_ceil(batch_size.get()).max(2)
}
/// Records that follow one another in an object are read together up to this: from 8 MiB on a request's latency no longer
/// counts.
const TOGETHER: u64 = 8 << 20;

/// The reads ahead of one stream.
pub(super) struct Fetcher {
    stream: Arc<StreamShared>,
    workers: Arc<Workers>,
    encoded: Arc<Semaphore>,
    encoded_units: u32,
    reader: Reader,
    /// Batches admitted so far.
    batches: u64,
    /// Ends when the batch before has its rows.
    turn: oneshot::Receiver<()>,
    tasks: JoinSet<()>,
    /// Dropping it ends the task.
    _watchdog: JoinSet<()>,
}

/// Some rows of a batch whose bytes have come.
struct Fetched {
    first: usize,
    bytes: Vec<Result<Vec<Piece>>>,
    times: FetchTimes,
    encoded: Encoded,
}

impl Fetcher {
    pub(super) fn new(stream: &Arc<StreamShared>, workers: &Arc<Workers>) -> Self {
        let limits = stream.loader.limits;
        let encoded_units = units(limits.encoded);
        stream.encoded.add_permits(encoded_units as usize);
        let (first, turn) = oneshot::channel();
        // The first batch waits for nobody.
        let _ = first.send(());
        let mut watchdog = JoinSet::new();
        watchdog.spawn(watch(Arc::clone(stream)));
        Self {
            stream: Arc::clone(stream),
            workers: Arc::clone(workers),
            encoded: Arc::clone(&stream.encoded),
            encoded_units,
            reader: stream.reader.clone(),
            batches: 0,
            turn,
            tasks: JoinSet::new(),
            _watchdog: watchdog,
        }
    }

    /// Starts the reads of a batch as there are permits for its bytes; returns when all have been admitted.
    pub(super) async fn admit(&mut self, mut plan: BatchPlan, batch: oneshot::Sender<Sealed>) {
        let began = Instant::now();
        let Ok(ramp) = self.stream.ramp.acquire().await else { return };
        ramp.forget();
        plan.waits.permit(began);
        // Finished tasks are reaped here, so that the set stays small.
        while self.tasks.try_join_next().is_some() {}
        let count = plan.records.len();
        let dataset = &self.stream.loader.dataset;
        let limits = &self.stream.loader.limits;
        let plans = (0..count).map(|row| {
            let record = plan.records[row];
            let read = dataset.plan(record, plan.rng(row)).and_then(|plan| limits.admit(plan));
            match &self.stream.loader.decoded {
                // Its job takes it from there.
                Some(decoded) if read.as_ref().is_ok_and(|read| decoded.holds(record, read)) => Ok(ReadPlan::default()),
                _ => read,
            }
        });
        let plans: Vec<Result<ReadPlan>> = plans.collect();
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (taken, next_turn) = oneshot::channel();
        let turn = std::mem::replace(&mut self.turn, next_turn);
        let epoch = plan.epoch;
        let records = plan.records.clone();
        let span = plan.span.clone();
        self.tasks.spawn(place(
            Arc::clone(&self.stream),
            Arc::clone(&self.workers),
            plan,
            batch,
            arrivals,
            turn,
            taken,
        ));

        self.batches += 1;
        let reader = self.reader.of_batch(self.batches);
        let chunk = self.stream.loader.chunk.get(count);
        // A chunk takes at most a quarter of the window, so that several are in flight.
        let most = u64::from((self.encoded_units / 4).max(1)) * UNIT;
        let mut first = 0;
        let mut plans = plans.into_iter().peekable();
        while let Some(next) = plans.peek() {
            let by_dataset = is_by_dataset(next);
            let in_call = if by_dataset { chunk.min(self.stream.loader.read_slots.in_call(count)) } else { chunk };
            let mut chunk_plans = Vec::new();
            let mut bytes = 0;
            while let Some(next) = plans.peek() {
                let more = next.as_ref().map_or(0, ReadPlan::len_bytes);
                let full = chunk_plans.len() >= in_call
                    && (by_dataset || bytes + more > TOGETHER || !follows(chunk_plans.last(), next));
                if full || (!chunk_plans.is_empty() && (bytes + more > most || is_by_dataset(next) != by_dataset)) {
                    break;
                }
                bytes += more;
                chunk_plans.extend(plans.next());
            }
            let rows = chunk_plans.len();
            if by_dataset {
                let records = records[first..first + rows].to_vec();
                let Some(()) = self.call(first, records, bytes, &arrived, &span).await else { return };
                first += rows;
                continue;
            }
            let reads = ChunkReads::new(&self.stream, &reader, epoch, &records[first..], chunk_plans);
            let Some(permit) = self.permits(reads.bytes()).await else { return };
            let permit = Arc::new(permit);
            let (stream, reader, arrived) = (Arc::clone(&self.stream), reader.clone(), arrived.clone());
            let chunk = async move {
                let Some((bytes, times, writers)) = reads.fetch(&stream, &reader, &permit).await else { return };
                // The placing task is gone only with the stream.
                let _ = arrived.send(Fetched { first, bytes, times, encoded: Encoded::new(permit) });
                cached::write(&stream, writers).await;
            };
            self.start(chunk.instrument(span.clone())).await;
            first += rows;
        }
    }

    /// Permits for so many bytes, or all there are. `None`: the stream is gone.
    async fn permits(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        // Taken in plan order: the head batch always gets its bytes, so it can never starve. `build` made
        // the window at least as large as the largest record, so the cut never bites but for merged gaps.
        let want = units(bytes).min(self.encoded_units);
        let began = Instant::now();
        let permit = Arc::clone(&self.encoded).acquire_many_owned(want).await.ok()?;
        self.stream.recorder.blocked(Stage::Fetch, began.elapsed());
        Some(permit)
    }

    /// Lets the dataset read these records, the first of which is row `first`. Returns when it may begin. `None`: the
    /// stream is gone.
    async fn call(
        &mut self,
        first: usize,
        records: Vec<u64>,
        expected: u64,
        arrived: &mpsc::UnboundedSender<Fetched>,
        span: &Span,
    ) -> Option<()> {
        let permit = (self.permits(expected).await?, self.encoded_units);
        // Not before the permits: other streams may be waiting for it, and these may be long in coming.
        let asked = Instant::now();
        let slot = self.stream.loader.read_slots.slot().await?;
        let (stream, batch, arrived) = (Arc::clone(&self.stream), self.batches, arrived.clone());
        let call = async move {
            let read = dataset_reads::read(&stream, (batch, records), expected, permit, (slot, asked)).await;
            let Some(Read { bytes, times, encoded, rest }) = read else { return };
            let _ = arrived.send(Fetched { first, bytes, times, encoded });
            // It may take long, and the batch is not to wait for it.
            drop(arrived);
            rest.done().await;
        };
        self.tasks.spawn(call.instrument(span.clone()));
        Some(())
    }

    /// Spawns a chunk's reads, once they stand in the queues for requests.
    async fn start(&mut self, chunk: impl Future<Output = ()> + Send + 'static) {
        // The queues are in the order of the calls, tasks are not in the order in which they are spawned: several threads run
        // them side by side, and one that has used up tokio's budget for a turn goes behind the others. With two requests
        // in flight and two threads, the second batch was asked for beside the first.
        let mut chunk = Box::pin(chunk);
        let begun = unconstrained(poll_fn(|context| Poll::Ready(chunk.as_mut().poll(context))));
        if begun.await.is_pending() {
            self.tasks.spawn(chunk);
        }
    }

    /// Waits until every read and placement is done.
    pub(super) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Whether the dataset reads a record itself.
fn is_by_dataset(plan: &Result<ReadPlan>) -> bool {
    plan.as_ref().is_ok_and(|plan| plan.by_dataset.is_some())
}

/// Whether a record lies right behind another.
fn follows(last: Option<&Result<ReadPlan>>, next: &Result<ReadPlan>) -> bool {
    let (Some(Ok(last)), Ok(next)) = (last, next) else { return false };
    let (Some(last), Some(next)) = (last.extents.last(), next.extents.first()) else { return false };
    let gap = next.range.start.checked_sub(last.range.end);
    gap.is_some_and(|gap| gap <= UNIT) && last.source.identity() == next.source.identity() && last.name == next.name
}

/// How a read ended.
enum Came {
    /// Another read of the same bytes came first.
    Near(Piece),
    Read(Result<Bytes>, Extent),
}

/// The reads of some records: near extents of one object are one read, and what the cache has is none.
struct ChunkReads {
    /// For each record how many extents it has, or why it has none.
    records: Vec<Result<usize>>,
    /// For each extent what the cache has of it.
    cached: Vec<Option<Piece>>,
    merged: Vec<Merged>,
    /// For each extent that is to be read: which it is, and whether the cache wants it.
    wanted: Vec<(usize, Option<Keep>)>,
}

impl ChunkReads {
    fn new(stream: &StreamShared, reader: &Reader, epoch: u64, numbers: &[u64], plans: Vec<Result<ReadPlan>>) -> Self {
        let mut cached = Vec::new();
        let mut wanted = Vec::new();
        let mut extents = Vec::with_capacity(plans.len());
        let mut records = Vec::with_capacity(plans.len());
        for (plan, number) in plans.into_iter().zip(numbers) {
            let Ok(plan) = plan.map_err(|error| records.push(Err(error))) else { continue };
            records.push(Ok(plan.extents.len()));
            for extent in plan.extents {
                let looked = cached::look(stream, &extent, epoch, *number);
                let piece = cached::piece(stream, looked, &extent, reader);
                cached.push(piece.map_or_else(
                    |keep| {
                        wanted.push((cached.len(), keep));
                        extents.push(extent);
                        None
                    },
                    Some,
                ));
            }
        }
        Self { records, cached, merged: merge(extents), wanted }
    }

    /// Bytes to read, those between near extents included.
    fn bytes(&self) -> u64 {
        let cached: u64 = self.cached.iter().flatten().map(Piece::len).sum();
        cached + self.merged.iter().map(|read| read.extent.len()).sum::<u64>()
    }

    /// Reads everything; requests begin in plan order, as far as their limits allow. Gives the cache's writers, too.
    /// `None`: the stream is gone.
    async fn fetch(
        self,
        stream: &StreamShared,
        reader: &Reader,
        permit: &Arc<OwnedSemaphorePermit>,
    ) -> Option<(Vec<Result<Vec<Piece>>>, FetchTimes, Vec<Writer>)> {
        let began = Instant::now();
        let Self { records, cached, merged, wanted } = self;
        let mut pieces: Vec<Option<Result<Piece>>> = cached.into_iter().map(|piece| piece.map(Ok)).collect();
        let wanted = &wanted;
        let one = |Merged { extent, parts }: Merged| async move {
            let mut flight = None;
            match (&parts[..], parts.first().and_then(|(first, _)| wanted[*first].1)) {
                ([_], Some(keep)) => match cached::join_flight(stream, &extent, &keep, reader).await {
                    Ok(piece) => return Some((Came::Near(piece), parts, Vec::new())),
                    Err(own) => flight = own,
                },
                // Parts of a larger read are read together again, whoever reads one of them meanwhile.
                _ => parts.iter().filter(|(i, _)| wanted[*i].1.is_some()).for_each(|_| stream.cache_recorder.miss()),
            }
            let object = extent.clone();
            // A cache would keep what is damaged, for all epochs.
            let kept = parts.iter().any(|(i, _)| wanted[*i].1.is_some());
            let strict = kept.then(|| reader.clone().verifying(Verify::Auto));
            let bytes = stream.gate.read(strict.as_ref().unwrap_or(reader), extent).await?;
            let keep = |bytes: &Bytes| {
                let keeps = parts.iter().filter_map(|(i, place)| Some((wanted[*i].1?, bytes.slice(place.clone()))));
                keeps.filter_map(|(keep, bytes)| cached::keep(stream, keep, &bytes, permit)).collect()
            };
            let writers: Vec<Writer> = bytes.as_ref().map_or_else(|_| Vec::new(), keep);
            // At once, not with the chunk: another chunk may wait for it that this one waits for.
            drop(flight);
            Some((Came::Read(bytes, object), parts, writers))
        };
        let mut reads: FuturesUnordered<_> = merged.into_iter().map(one).collect();
        let mut total = 0;
        let mut writers = Vec::new();
        let mut last = None;
        while let Some(read) = reads.next().await {
            let (came, parts, more) = read?;
            writers.extend(more);
            let bytes = match came {
                Came::Near(piece) => {
                    pieces[wanted[parts[0].0].0] = Some(Ok(piece));
                    continue;
                }
                Came::Read(bytes, object) => {
                    last = Some(LastRead::Extent(object));
                    bytes
                }
            };
            total += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
            for (i, place) in parts {
                pieces[wanted[i].0] = Some(bytes.clone().map(|bytes| Piece::Bytes(bytes.slice(place))));
            }
        }
        let came = Instant::now();
        stream.recorder.busy(Stage::Fetch, came - began, records.len() as u64, total);
        let mut pieces = pieces.into_iter().flatten();
        let take = |count: usize| {
            // All are taken, also behind an error: they belong to this record.
            let own: Vec<Result<Piece>> = pieces.by_ref().take(count).collect();
            own.into_iter().map(|read| read.map_err(|error| error.at_stage(Stage::Fetch))).collect::<Result<Vec<_>>>()
        };
        let mut take = take;
        let records = records.into_iter().map(|record| record.and_then(&mut take)).collect();
        Some((records, FetchTimes { began, came, last }, writers))
    }
}

/// Says, at most once a minute, which object a batch waits for that should have been there long ago.
async fn watch(stream: Arc<StreamShared>) {
    const LATE: Duration = Duration::from_secs(5);
    const AGAIN: Duration = Duration::from_secs(60);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let Some(slow) = stream.requests.late(tokio::time::Instant::now().into_std(), LATE) else { continue };
        tracing::warn!(
            object = %slow.object,
            start = slow.range.start,
            len = slow.range.end - slow.range.start,
            waited_s = slow.time.as_secs(),
            attempt = slow.attempts,
            "a batch is late: a read does not come"
        );
        tokio::time::sleep(AGAIN).await;
    }
}

/// Gives a batch its rows when its first bytes have come and the batch before has its own; then a job for each chunk
/// that arrives.
async fn place(
    stream: Arc<StreamShared>,
    workers: Arc<Workers>,
    mut plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    mut arrivals: mpsc::UnboundedReceiver<Fetched>,
    turn: oneshot::Receiver<()>,
    taken: oneshot::Sender<()>,
) {
    let count = plan.records.len();
    let mut next = arrivals.recv().await;
    // In plan order: rows that a later batch held could never be freed before the head's.
    let began = Instant::now();
    if turn.await.is_err() {
        return;
    }
    plan.waits.permit(began);
    let Some(permit) = row_permit(&stream, &mut plan).await else { return };
    let BatchRows { rows: mut fields, uploads } = match take_rows(&stream, &plan).await {
        Ok(taken) => taken,
        Err(error) => {
            let _ = batch.send(Sealed::failed(error, permit));
            return;
        }
    };
    // Only now, so that memory too is taken in plan order.
    let _ = taken.send(());
    let assembly = Assembly::new(&stream, plan, batch, permit, uploads);
    if count == 0 {
        return assembly.deliver(0, fields, [], None);
    }
    // Chunks come in any order: cut the batch into single rows, join those of a chunk when it is there.
    let mut cut: Vec<Vec<Option<Rows>>> =
        fields.iter_mut().map(|field| (0..count).map(|_| Some(field.split_to(1))).collect()).collect();
    // What is left has no rows, but a hold on the memory, which is the trainer's alone once the batch is whole.
    drop(fields);
    while let Some(Fetched { first, bytes, times, encoded }) = next {
        // What was read together is decoded by as many threads as there are.
        let mut first = first;
        let mut bytes = bytes.into_iter();
        while bytes.len() > 0 {
            let bytes: Vec<_> = bytes.by_ref().take(stream.loader.chunk.get(count)).collect();
            let range = first..first + bytes.len();
            let take = |field: &mut Vec<Option<Rows>>| {
                let rows = field[range.clone()].iter_mut().filter_map(Option::take);
                rows.reduce(|a, b| a.join(b).expect("rows of one field are neighbours"))
            };
            let part: Vec<Rows> = cut.iter_mut().filter_map(take).collect();
            workers.submit(Task::new(&assembly, first, part).fetched(bytes, times.clone(), encoded.clone()));
            first = range.end;
        }
        // Before the wait: the next chunk may be waiting for this one's permits.
        drop(encoded);
        next = arrivals.recv().await;
    }
}
