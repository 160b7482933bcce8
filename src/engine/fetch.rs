//! Reading ahead, from a remote store or by a dataset that reads itself: bytes first, rows later.
//!
//! Encoded bytes are small and arrive slowly; rows are large and are filled quickly. So bytes are read far ahead, group
//! by group. A batch takes its rows only when its first group has arrived and all earlier batches have their rows.

use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    iter::Peekable,
    num::NonZeroUsize,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use infeed_core::{error::Result, report::Stage, rows::Rows};
use infeed_data::{ReadPlan, SharedRead};
use infeed_store::{Extent, Keep, Merged, Reader, Verify, Writer, merge};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
    task::{self, JoinSet, coop::unconstrained},
};
use tracing::{Instrument, Span};

use super::{
    assembly::Assembly,
    batch_rows::{row_permit, take_rows},
    byte_permits::BytePermits,
    cached, dataset_reads,
    fields::BatchRows,
    loader_shared::LoaderShared,
    permits::{UNIT, units},
    pieces::{Fetched, Piece},
    plan::BatchPlan,
    read_parts::PartJob,
    shared_parts::{Arriving, PartAhead, SharedParts},
    stream::{Sealed, StreamShared},
    task::{Task, Work},
    timeline::{FetchTimes, LastRead},
    workers::Workers,
};

/// Batches whose reads may start for each batch that is handed over, so the read-ahead grows by one batch each time
/// until bytes or seats run out. If a whole window of 250 MB starts at once, it delays the first batch: 1.3 to 2.1 s in
/// some cold rounds, 0.2 to 0.8 s with this (benches/tail.rs, dev build, other work on the machine). 2 rather than 3 is
/// a choice: the measurements were too noisy to decide.
pub(super) const RAMP: usize = 2;

/// Batches whose reads may start at the beginning: two, or 256 records if batches are small.
pub(super) fn first_batches(batch_size: NonZeroUsize) -> usize {
    256_usize.div_ceil(batch_size.get()).max(2)
}
/// Adjacent records of an object are read together up to this size: from 8 MiB on, the latency of a request no longer
/// matters.
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
    /// Resolves when the previous batch has its rows.
    turn: oneshot::Receiver<()>,
    tasks: JoinSet<()>,
    /// Dropping it ends the task.
    _watchdog: JoinSet<()>,
}

/// A record that is to be read.
struct Planned {
    record: u64,
    plan: Result<ReadPlan>,
    /// Whether the decoded cache has it, so that nothing is read.
    is_decoded: bool,
}

/// Records of a batch that are read together.
#[derive(Default)]
struct Group {
    by_dataset: bool,
    records: Vec<Planned>,
    /// Parts that they share with others, by key.
    keys: HashSet<u64>,
    /// Of these, those that are there or on their way.
    ahead: Vec<PartAhead>,
    /// The others, each with the first record that needs it.
    missing: Vec<(u64, SharedRead)>,
    /// To be read.
    bytes: u64,
}

/// Rows of a batch whose bytes have arrived.
struct Arrived {
    first: usize,
    records: Vec<Result<Fetched>>,
    times: FetchTimes,
    encoded: BytePermits,
}

/// A batch whose reads begin.
struct Beginning {
    reader: Reader,
    epoch: u64,
    arrived: mpsc::UnboundedSender<Arrived>,
    span: Span,
}

impl Fetcher {
    pub(super) fn new(stream: &Arc<StreamShared>, workers: &Arc<Workers>) -> Self {
        let limits = stream.loader.limits;
        let encoded_units = units(limits.encoded);
        stream.encoded.add_permits(encoded_units as usize);
        let (first, turn) = oneshot::channel();
        // The first batch has no previous batch.
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

    /// Starts the reads of a batch as permits for its bytes become free; returns when all reads are admitted.
    pub(super) async fn admit(&mut self, mut plan: BatchPlan, batch: oneshot::Sender<Sealed>) {
        let began = Instant::now();
        let Ok(ramp) = self.stream.ramp.acquire().await else { return };
        ramp.forget();
        plan.waits.permit(began);
        // Finished tasks are reaped here, so that the set stays small.
        while self.tasks.try_join_next().is_some() {}
        let stream = Arc::clone(&self.stream);
        let asks = stream.loader.decoded.as_ref().is_some_and(|decoded| decoded.asks_files());
        let planned = move || {
            let planned = (0..plan.records.len()).map(|row| Planned::new(&stream, &plan, row)).collect();
            (plan, planned)
        };
        let planned: Option<(BatchPlan, Vec<Planned>)> = aside(asks, planned).await;
        let Some((plan, planned)) = planned else { return };
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let (taken, next_turn) = oneshot::channel();
        let turn = std::mem::replace(&mut self.turn, next_turn);
        self.batches += 1;
        let beginning = Beginning {
            reader: self.reader.of_batch(self.batches),
            epoch: plan.epoch,
            arrived,
            span: plan.span.clone(),
        };
        self.tasks.spawn(place(
            Arc::clone(&self.stream),
            Arc::clone(&self.workers),
            plan,
            batch,
            arrivals,
            turn,
            taken,
        ));

        let count = planned.len();
        let mut planned = planned.into_iter().peekable();
        let mut first = 0;
        while let Some(group) = self.group(&mut planned, count) {
            let rows = group.records.len();
            let begun = match group.by_dataset {
                true => self.call(first, group, &beginning).await,
                false => self.read(first, group, &beginning).await,
            };
            if begun.is_none() {
                return;
            }
            first += rows;
        }
    }

    /// The next records of a batch of `count` that are read together: one job's, or more that follow one another in an
    /// object.
    fn group(&self, planned: &mut Peekable<impl Iterator<Item = Planned>>, count: usize) -> Option<Group> {
        let by_dataset = planned.peek()?.is_by_dataset();
        let LoaderShared { chunk, read_slots, shared_parts, .. } = &*self.stream.loader;
        let chunk = chunk.get(count);
        let in_call = if by_dataset { chunk.min(read_slots.in_call(count)) } else { chunk };
        // A group takes at most a quarter of the window, so that several are in flight.
        let most = u64::from((self.encoded_units / 4).max(1)) * UNIT;
        let mut group = Group { by_dataset, ..Group::default() };
        while let Some(next) = planned.peek() {
            let (ahead, missing) = group.parts(next, shared_parts);
            let more = next.len_bytes() + missing.iter().map(|(_, part)| part.encoded()).sum::<u64>();
            let full = group.records.len() >= in_call
                && (by_dataset || group.bytes + more > TOGETHER || !follows(group.records.last(), next));
            let other = group.bytes + more > most || next.is_by_dataset() != by_dataset;
            if full || (!group.records.is_empty() && other) {
                break;
            }
            group.keys.extend(next.shared().iter().map(|part| part.key));
            group.ahead.extend(ahead);
            group.missing.extend(missing);
            group.bytes += more;
            group.records.extend(planned.next());
        }
        Some(group)
    }

    /// Reads these records, the first of which is row `first`, and missing parts. Returns when their requests are
    /// queued. `None` if the stream was dropped.
    async fn read(&mut self, first: usize, group: Group, beginning: &Beginning) -> Option<()> {
        let Group { records, mut ahead, missing, .. } = group;
        let (stream, reader, epoch) = (Arc::clone(&self.stream), beginning.reader.clone(), beginning.epoch);
        let asks = stream.loader.cache.as_ref().is_some_and(|cache| cache.asks_files());
        let looks = move || (GroupReads::new(&stream, &reader, epoch, records, &missing), missing);
        let (reads, missing) = aside(asks, looks).await?;
        let permit = Arc::new(self.permits(reads.bytes()).await?);
        // After the permits: other streams that need these parts wait for this one, so it must not wait itself.
        let parts = &self.stream.loader.shared_parts;
        let arriving: Vec<Arriving> = missing.iter().map(|(_, part)| parts.arriving(part.key)).collect();
        ahead.extend(missing.iter().filter_map(|(_, part)| parts.expect(part.key)));
        let ahead: Arc<[PartAhead]> = ahead.into();
        let (stream, workers) = (Arc::clone(&self.stream), Arc::clone(&self.workers));
        let (reader, arrived) = (beginning.reader.clone(), beginning.arrived.clone());
        let group = async move {
            let Some(read) = reads.fetch(&stream, &reader, &permit).await else { return };
            let ReadGroup { records, parts, mut times, writers } = read;
            for ((arriving, (_, part)), pieces) in arriving.into_iter().zip(missing).zip(parts) {
                arriving.came(pieces);
                let (stream, _ahead) = (Arc::clone(&stream), Arc::clone(&ahead));
                workers.submit(Work::Part(PartJob { stream, part, _ahead }));
            }
            for part in ahead.iter() {
                if part.came().await {
                    times.came = Instant::now();
                    times.last = None;
                }
            }
            // The placing task ends only with the stream.
            let _ = arrived.send(Arrived { first, records, times, encoded: BytePermits::new(permit).with(ahead) });
            cached::write(&stream, writers).await;
        };
        self.start(group.instrument(beginning.span.clone())).await;
        Some(())
    }

    /// Permits for this many bytes, at most all that there are. `None` if the stream was dropped.
    async fn permits(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        // Taken in plan order: the head batch always gets its bytes, so it can never starve. `build` made
        // the window at least as large as the largest record, so the cut never bites but for merged gaps.
        let want = units(bytes).min(self.encoded_units);
        let began = Instant::now();
        let permit = Arc::clone(&self.encoded).acquire_many_owned(want).await.ok()?;
        self.stream.recorder.blocked(Stage::Fetch, began.elapsed());
        Some(permit)
    }

    /// Lets the dataset read these records, the first of which is row `first`. Returns when the read may begin. `None`
    /// if the stream was dropped.
    async fn call(&mut self, first: usize, group: Group, beginning: &Beginning) -> Option<()> {
        let expected = group.bytes;
        let permit = (self.permits(expected).await?, self.encoded_units);
        // After the permits, for which this may wait long, and other streams may need the slot.
        let asked = Instant::now();
        let slot = self.stream.loader.read_slots.slot().await?;
        let (stream, batch, arrived) = (Arc::clone(&self.stream), self.batches, beginning.arrived.clone());
        let records =
            group.records.into_iter().filter_map(|planned| Some((planned.record, planned.plan.ok()?))).collect();
        let call = async move {
            let read = dataset_reads::read(&stream, (batch, records), expected, permit, (slot, asked)).await;
            let Some(dataset_reads::Read { records, times, encoded, rest }) = read else { return };
            let _ = arrived.send(Arrived { first, records, times, encoded });
            // May take long, and the batch must not wait for it.
            drop(arrived);
            rest.done().await;
        };
        self.tasks.spawn(call.instrument(beginning.span.clone()));
        Some(())
    }

    /// Spawns a group's reads, after they are in the queues for requests.
    async fn start(&mut self, reads: impl Future<Output = ()> + Send + 'static) {
        // The queues keep the order of the calls. Tasks do not run in the order in which they are spawned: several
        // threads run them at the same time, and a task that has used up tokio's budget goes to the end. With two
        // requests in flight and two threads, the second batch was requested together with the first.
        let mut reads = Box::pin(reads);
        let begun = unconstrained(poll_fn(|context| Poll::Ready(reads.as_mut().poll(context))));
        if begun.await.is_pending() {
            self.tasks.spawn(reads);
        }
    }

    /// Waits until every read and placement is done.
    pub(super) async fn finish(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Runs work that may use a file system: if it does (`asks`), on a thread that may block. `None` if the runtime shuts
/// down.
async fn aside<T: Send + 'static>(asks: bool, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    if !asks {
        return Some(work());
    }
    match task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(error) => error.try_into_panic().ok().map(|panic| std::panic::resume_unwind(panic)),
    }
}

impl Planned {
    /// The reads for a row's record.
    fn new(stream: &StreamShared, batch: &BatchPlan, row: usize) -> Self {
        let LoaderShared { dataset, limits, decoded, .. } = &*stream.loader;
        let record = batch.records[row];
        let plan = dataset.plan(record, batch.rng(row)).and_then(|plan| limits.admit(plan));
        let is_decoded =
            plan.as_ref().is_ok_and(|plan| decoded.as_ref().is_some_and(|decoded| decoded.holds(record, plan)));
        Self { record, plan, is_decoded }
    }

    /// Whether the dataset reads it itself.
    fn is_by_dataset(&self) -> bool {
        !self.is_decoded && self.plan.as_ref().is_ok_and(|plan| plan.by_dataset.is_some())
    }

    fn len_bytes(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| if self.is_decoded { 0 } else { plan.len_bytes() })
    }

    /// Parts that it shares.
    fn shared(&self) -> &[SharedRead] {
        self.plan.as_ref().map_or(&[], |plan| if self.is_decoded { &[] } else { &plan.shared })
    }
}

impl Group {
    /// The parts in a store that another record adds: those that are there or on their way, and those to read.
    fn parts(&self, next: &Planned, parts: &SharedParts) -> (Vec<PartAhead>, Vec<(u64, SharedRead)>) {
        let (mut ahead, mut missing) = (Vec::new(), Vec::<(u64, SharedRead)>::new());
        for part in next.shared() {
            let known = self.keys.contains(&part.key) || missing.iter().any(|(_, other)| other.key == part.key);
            if known || part.extents.iter().all(|extent| extent.source.reads_inline()) {
                continue;
            }
            match parts.expect(part.key) {
                Some(part) => ahead.push(part),
                None => missing.push((next.record, part.clone())),
            }
        }
        (ahead, missing)
    }
}

/// Whether a record directly follows another.
fn follows(last: Option<&Planned>, next: &Planned) -> bool {
    let (Some(Ok(last)), Ok(next)) = (last.map(|last| &last.plan), &next.plan) else { return false };
    let (Some(last), Some(next)) = (last.extents.last(), next.extents.first()) else { return false };
    let gap = next.range.start.checked_sub(last.range.end);
    gap.is_some_and(|gap| gap <= UNIT) && last.source.identity() == next.source.identity() && last.name == next.name
}

/// How a read ended.
enum Came {
    /// Another read of the same bytes was faster.
    Near(Piece),
    Read(Result<Bytes>, Extent),
}

/// The bytes of a group that were read.
struct ReadGroup {
    records: Vec<Result<Fetched>>,
    /// Bytes of the parts that were missing.
    parts: Vec<Result<Vec<Piece>>>,
    times: FetchTimes,
    /// The cache's.
    writers: Vec<Writer>,
}

/// The reads of a group: near extents of one object are one read; extents in the cache are not read.
struct GroupReads {
    /// Each record with the number of its extents that are read, or why it has none; `None`: it is not read.
    records: Vec<Result<(ReadPlan, Option<usize>)>>,
    /// For each part the number of its extents.
    parts: Vec<usize>,
    /// For each extent, those of parts last, what the cache has of it.
    cached: Vec<Option<Piece>>,
    merged: Vec<Merged>,
    /// For each extent that is to be read: which it is, and whether the cache wants it.
    wanted: Vec<(usize, Option<Keep>)>,
}

impl GroupReads {
    fn new(
        stream: &StreamShared,
        reader: &Reader,
        epoch: u64,
        records: Vec<Planned>,
        missing: &[(u64, SharedRead)],
    ) -> Self {
        let mut cached = Vec::new();
        let mut wanted = Vec::new();
        let mut extents = Vec::with_capacity(records.len());
        let mut add = |record: u64, extent: &Extent| {
            let looked = cached::look(stream, extent, epoch, record);
            let piece = cached::piece(stream, looked, extent, reader);
            cached.push(piece.map_or_else(
                |keep| {
                    wanted.push((cached.len(), keep));
                    extents.push(extent.clone());
                    None
                },
                Some,
            ));
        };
        let record = |Planned { record, plan, is_decoded }| {
            let plan: ReadPlan = plan?;
            if is_decoded {
                return Ok((plan, None));
            }
            plan.extents.iter().for_each(|extent| add(record, extent));
            let count = plan.extents.len();
            Ok((plan, Some(count)))
        };
        let records = records.into_iter().map(record).collect();
        missing.iter().for_each(|(record, part)| part.extents.iter().for_each(|extent| add(*record, extent)));
        let parts = missing.iter().map(|(_, part)| part.extents.len()).collect();
        Self { records, parts, cached, merged: merge(extents), wanted }
    }

    /// Bytes to read, those between near extents included.
    fn bytes(&self) -> u64 {
        let cached: u64 = self.cached.iter().flatten().map(Piece::len).sum();
        cached + self.merged.iter().map(|read| read.extent.len()).sum::<u64>()
    }

    /// Reads everything; requests begin in plan order, within their limits. `None` if the stream was dropped.
    async fn fetch(
        self,
        stream: &StreamShared,
        reader: &Reader,
        permit: &Arc<OwnedSemaphorePermit>,
    ) -> Option<ReadGroup> {
        let began = Instant::now();
        let Self { records, parts, cached, merged, wanted } = self;
        let mut pieces: Vec<Option<Result<Piece>>> = cached.into_iter().map(|piece| piece.map(Ok)).collect();
        let wanted = &wanted;
        let one = |Merged { extent, parts }: Merged| async move {
            let mut flight = None;
            match (&parts[..], parts.first().and_then(|(first, _)| wanted[*first].1)) {
                ([_], Some(keep)) => match cached::join_flight(stream, &extent, &keep, reader).await {
                    Ok(piece) => return Some((Came::Near(piece), parts, Vec::new())),
                    Err(own) => flight = own,
                },
                // A part of a larger read is read again with the rest, even if another task reads it now.
                _ => parts.iter().filter(|(i, _)| wanted[*i].1.is_some()).for_each(|_| stream.cache_recorder.miss()),
            }
            let object = extent.clone();
            // Checked here, because a cache would keep damaged bytes for all epochs.
            let kept = parts.iter().any(|(i, _)| wanted[*i].1.is_some());
            let strict = kept.then(|| reader.clone().verifying(Verify::Checksums));
            let bytes = stream.gate.read(strict.as_ref().unwrap_or(reader), extent).await?;
            let keep = |bytes: &Bytes| {
                let keeps = parts.iter().filter_map(|(i, place)| Some((wanted[*i].1?, bytes.slice(place.clone()))));
                keeps.filter_map(|(keep, bytes)| cached::keep(stream, keep, &bytes, permit)).collect()
            };
            let writers: Vec<Writer> = bytes.as_ref().map_or_else(|_| Vec::new(), keep);
            // At once, not with the group: a group that this one waits for may wait for this part.
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
        stream.recorder.busy(Stage::Fetch, came - began, (records.len() + parts.len()) as u64, total);
        let mut pieces = pieces.into_iter().flatten();
        let mut take = |count: usize| {
            // All are taken, also after an error: they belong to this record.
            let own: Vec<Result<Piece>> = pieces.by_ref().take(count).collect();
            own.into_iter().map(|read| read.map_err(|error| error.at_stage(Stage::Fetch))).collect::<Result<Vec<_>>>()
        };
        let mut fetched = |(plan, count): (ReadPlan, Option<usize>)| {
            let pieces = count.map(&mut take).transpose()?;
            Ok(Fetched { plan, pieces })
        };
        let records = records.into_iter().map(|record| record.and_then(&mut fetched)).collect();
        let parts = parts.into_iter().map(take).collect();
        Some(ReadGroup { records, parts, times: FetchTimes { began, came, last }, writers })
    }
}

/// Warns, at most once a minute, about the object for which a late batch waits.
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

/// Gives a batch its rows when its first bytes have arrived and the previous batch has its rows; then makes jobs of
/// each group that arrives.
async fn place(
    stream: Arc<StreamShared>,
    workers: Arc<Workers>,
    mut plan: BatchPlan,
    batch: oneshot::Sender<Sealed>,
    mut arrivals: mpsc::UnboundedReceiver<Arrived>,
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
    // Not earlier, so that memory is taken in plan order, too.
    let _ = taken.send(());
    let assembly = Assembly::new(&stream, plan, batch, permit, uploads);
    if count == 0 {
        return assembly.deliver(0, fields, [], None);
    }
    // Groups arrive in any order: cut the batch into single rows, and join the rows of a job when its group is there.
    let mut cut: Vec<Vec<Option<Rows>>> =
        fields.iter_mut().map(|field| (0..count).map(|_| Some(field.split_to(1))).collect()).collect();
    // The empty rest still holds the memory, which must belong to the trainer alone once the batch is complete.
    drop(fields);
    while let Some(Arrived { mut first, records, times, encoded }) = next {
        // Records that were read together are decoded by all threads.
        let mut records = records.into_iter();
        while records.len() > 0 {
            let records: Vec<_> = records.by_ref().take(stream.loader.chunk.get(count)).collect();
            let range = first..first + records.len();
            let take = |field: &mut Vec<Option<Rows>>| {
                let rows = field[range.clone()].iter_mut().filter_map(Option::take);
                rows.reduce(|a, b| a.join(b).expect("rows of one field are neighbours"))
            };
            let part: Vec<Rows> = cut.iter_mut().filter_map(take).collect();
            let task = Task::new(&assembly, first, part).fetched(records, times.clone(), encoded.clone());
            workers.submit(Work::Rows(task));
            first = range.end;
        }
        // Before the wait: the next group may be waiting for this one's permits.
        drop(encoded);
        next = arrivals.recv().await;
    }
}
