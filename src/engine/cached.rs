//! Bytes that lie in the cache, on their way into and out of it.
//!
//! The fetching task has them looked up, some records at a time, on a thread that may wait for a disk; the decode threads read
//! them: a hit is a local file, and a thread that blocks on one is cheaper than two hops through the blocking pool.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use infeed_core::{
    error::{self, Error},
    random::SampleRng,
    report::Stage,
};
use infeed_data::Dataset;
use infeed_store::{Cache, Doubted, Extent, Flight, Keep, Looked, Member, NextUse, Reader, Use, Verify, Writer};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task,
};

use super::{
    gate::answered,
    pieces::{Cached, Fetched, Piece},
    stream::StreamShared,
};

/// What the cache has of an extent that `record` reads in `epoch`.
pub(super) fn look(stream: &StreamShared, extent: &Extent, epoch: u64, record: u64) -> Looked {
    let Some(cache) = &stream.loader.cache else { return Looked::Miss(None) };
    let looked = cache.look(extent, Use { now: epoch, next: next_use(stream, epoch, record) }, record);
    if matches!(looked, Looked::Miss(None)) {
        stream.cache_recorder.miss();
        stream.cache_recorder.not_kept();
    }
    looked
}

/// A piece that the cache has, or what it wants of the store.
pub(super) fn piece(
    stream: &StreamShared,
    looked: Looked,
    extent: &Extent,
    reader: &Reader,
) -> Result<Piece, Option<Keep>> {
    match looked {
        Looked::Memory(bytes) => {
            stream.cache_recorder.hit(bytes.len() as u64);
            Ok(Piece::Bytes(bytes))
        }
        Looked::File(keep) => {
            Ok(Piece::Cached(Box::new(Cached { extent: extent.clone(), keep, reader: reader.clone() })))
        }
        Looked::Miss(keep) => Err(keep),
    }
}

/// What a record that failed is read from anew: the cache had bytes of it, and has dropped them. Its checksum is of what
/// came from the store, and of parts of objects nobody knows whether they came whole. Only for what was not read anew.
pub(super) fn doubt(
    stream: &StreamShared,
    dataset: &dyn Dataset,
    epoch: u64,
    (record, rng): (u64, SampleRng),
    error: &Error,
) -> Option<Fetched> {
    let cache = stream.loader.cache.as_ref()?;
    if !error.is_sample() || error.is_unreadable() {
        return None;
    }
    let plan = dataset.plan(record, rng).and_then(|plan| stream.loader.limits.admit(plan)).ok()?;
    let coming = Use { now: epoch, next: next_use(stream, epoch, record) };
    let keep = |extent: &Extent| Cache::keep_of(extent, coming, record);
    let own: Option<Vec<Keep>> = plan.extents.iter().map(keep).collect();
    let own = own?;
    // All of them: which of several is damaged nobody knows.
    let shared = plan.shared.iter().flat_map(|part| &part.extents).filter_map(keep);
    let all = own.iter().copied().chain(shared);
    let doubts: Vec<Doubted> = all.map(|keep| cache.doubt(&keep, &stream.cache_recorder)).collect();
    let dropped = doubts.contains(&Doubted::Now);
    if dropped {
        let object = dataset.object(record);
        let error = format!("{error:#}");
        tracing::warn!(record, object, error, "what the cache has does not decode: removed, read from the store");
    } else if !doubts.contains(&Doubted::Before) {
        return None;
    }
    // Its thread reads them from the store.
    plan.shared.iter().for_each(|part| stream.loader.shared_parts.doubt(part.key));
    let piece = |(extent, keep): (&Extent, Keep)| {
        let cached = Box::new(Cached { extent: extent.clone(), keep, reader: stream.reader.clone() });
        if dropped { Piece::Anew(cached) } else { Piece::Cached(cached) }
    };
    let pieces = plan.extents.iter().zip(own).map(piece).collect();
    Some(Fetched { plan, pieces: Some(pieces) })
}

/// Before a read of the store: waits for one of the same bytes that is under way, of an epoch before or of another
/// stream. `Err`: read them.
pub(super) async fn join_flight(
    stream: &StreamShared,
    extent: &Extent,
    keep: &Keep,
    reader: &Reader,
) -> Result<Piece, Option<Flight>> {
    let Some(cache) = &stream.loader.cache else { return Err(None) };
    loop {
        let flight = match cache.begin(keep) {
            Ok(flight) => Some(flight),
            Err(other) => {
                other.await;
                None
            }
        };
        // Again, also before a read of one's own: since the plan was made another one may have begun and ended.
        if let Ok(piece) = piece(stream, cache.look_again(keep), extent, reader) {
            return Ok(piece);
        }
        if flight.is_some() {
            stream.cache_recorder.miss();
            return Err(flight);
        }
    }
}

/// When those who share the cache read a record again after `epoch`.
fn next_use(stream: &StreamShared, epoch: u64, record: u64) -> NextUse {
    // Beyond it, one epoch is as far as another: with 64 machines it is the rule. Each step is one inverse.
    const FAR: u64 = 8;
    let shard = stream.loader.shard;
    // Not by this rank's number: launchers deal ranks out over machines in many ways.
    let here = stream.loader.cache_member.as_ref().map(Member::ranks);
    let is_here = |rank: u64| match &here {
        Some(ranks) => u32::try_from(rank).is_ok_and(|rank| ranks.binary_search(&rank).is_ok()),
        None => rank == u64::from(shard.rank()),
    };
    let mut comes = false;
    for next in 1..=FAR {
        let next = epoch.saturating_add(next);
        // An order that repeats records leaves others out of an epoch.
        let Some(position) = stream.sampler.position(next, record) else { continue };
        comes = true;
        let rank = position % u64::from(shard.world());
        if is_here(rank) {
            return NextUse { epoch: next, position };
        }
    }
    // Without an inverse all that is known is that it may come in the next epoch.
    NextUse { epoch: epoch.saturating_add(if comes { FAR + 1 } else { 1 }), position: 0 }
}

/// Gives fresh bytes to the cache; a writer when it wants one more thread to write with.
pub(super) fn keep(
    stream: &StreamShared,
    keep: Keep,
    bytes: &Bytes,
    permit: &Arc<OwnedSemaphorePermit>,
) -> Option<Writer> {
    // What waits to be written keeps its permits: with more than half of the window, reading would wait for the disk.
    let most = stream.loader.limits.encoded / 2;
    stream.loader.cache.as_ref()?.keep(keep, bytes, permit, most, &stream.cache_recorder)
}

/// Writes what the cache was given, a thread for each writer; ends when they find nothing more.
pub(super) async fn write(stream: &Arc<StreamShared>, writers: impl IntoIterator<Item = Writer>) {
    let write = |writer: Writer| {
        let stream = Arc::clone(stream);
        task::spawn_blocking(move || writer.run(&|epoch, record| next_use(&stream, epoch, record)))
    };
    let writing: Vec<_> = writers.into_iter().map(write).collect();
    for writer in writing {
        // A panic's message is on stderr; the cache is the worse for it, not the run.
        let _ = writer.await;
    }
}

impl Cached {
    /// Reads the bytes on this thread; `Some(false)`: they are not there any more. `None`: the stream is gone.
    pub(super) fn read(&self, stream: &StreamShared, buffer: &mut BytesMut) -> Option<bool> {
        if stream.gate.is_closed() {
            return None;
        }
        let cache = stream.loader.cache.as_ref()?;
        let there = cache.read(&self.keep, buffer, &stream.cache_recorder);
        if there {
            stream.cache_recorder.hit(self.extent.len());
        } else {
            stream.cache_recorder.miss();
        }
        Some(there)
    }

    /// Reads the bytes from the store while this thread waits; rare. `None`: the stream is gone.
    pub(super) fn read_again(self, stream: &Arc<StreamShared>) -> Option<error::Result<Bytes>> {
        let Self { extent, keep: wanted, reader } = self;
        let (done, answer) = mpsc::channel();
        let (for_task, io) = (Arc::clone(stream), stream.loader.io.clone());
        io.spawn(async move {
            let stream = for_task;
            let reader = reader.verifying(Verify::Auto);
            let Some(bytes) = stream.gate.read(&reader, extent).await else { return };
            let _ = done.send(bytes.clone());
            let Ok(bytes) = bytes else { return };
            // Its row holds the permits for these bytes; what little this adds is not counted.
            let Ok(permit) = Arc::new(Semaphore::new(1)).acquire_owned().await else { return };
            write(&stream, keep(&stream, wanted, &bytes, &Arc::new(permit))).await;
        });
        let bytes = answered(&stream.gate, &answer)?;
        if let Ok(bytes) = &bytes {
            stream.recorder.busy(Stage::Fetch, Duration::ZERO, 0, bytes.len() as u64);
        }
        Some(bytes)
    }
}
