//! Reads from and writes to the cache of a remote store.
//!
//! The fetching task looks entries up, several records at a time, on a thread that may wait for a disk. The decode
//! threads read them: a hit is a local file, and blocking a decode thread on it costs less than two hops through the
//! blocking pool.

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

/// The lookup of an extent that `record` reads in `epoch`.
pub(super) fn look(stream: &StreamShared, extent: &Extent, epoch: u64, record: u64) -> Looked {
    let Some(cache) = &stream.loader.cache else { return Looked::Miss(None) };
    let looked = cache.look(extent, Use { now: epoch, next: next_use(stream, epoch, record) }, record);
    if matches!(looked, Looked::Miss(None)) {
        stream.cache_recorder.miss();
        stream.cache_recorder.not_kept();
    }
    looked
}

/// A piece in the cache, or the wish of the cache to keep the piece from the store.
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

/// The pieces from which a failed record is read again, if some of its bytes came from the cache; their entries are
/// removed. An entry's checksum only proves that the bytes are as they came from the store, and parts of objects may
/// have come damaged. Only for records that were not read again yet.
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
    // All pieces, because it is unknown which one is damaged.
    let shared = plan.shared.iter().flat_map(|part| &part.extents).filter_map(keep);
    let all = own.iter().copied().chain(shared);
    let doubts: Vec<Doubted> = all.map(|keep| cache.doubt(&keep, &stream.cache_recorder)).collect();
    let dropped = doubts.contains(&Doubted::Now);
    if dropped {
        let object = dataset.object(record);
        let error = format!("{error:#}");
        tracing::warn!(record, object, error, "a cache entry does not decode: it is removed, and read from the store");
    } else if !doubts.contains(&Doubted::Before) {
        return None;
    }
    // The decode thread reads them from the store.
    plan.shared.iter().for_each(|part| stream.loader.shared_parts.doubt(part.key));
    let piece = |(extent, keep): (&Extent, Keep)| {
        let cached = Box::new(Cached { extent: extent.clone(), keep, reader: stream.reader.clone() });
        if dropped { Piece::Anew(cached) } else { Piece::Cached(cached) }
    };
    let pieces = plan.extents.iter().zip(own).map(piece).collect();
    Some(Fetched { plan, pieces: Some(pieces) })
}

/// Before a read from the store: waits for a read of the same bytes in progress, by an earlier epoch or another stream.
/// `Err` if this task must read them.
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
        // Look up again, also before an own read: another read may have begun and ended since the plan was made.
        if let Ok(piece) = piece(stream, cache.look_again(keep), extent, reader) {
            return Ok(piece);
        }
        if flight.is_some() {
            stream.cache_recorder.miss();
            return Err(flight);
        }
    }
}

/// When the ranks that share the cache read a record again after `epoch`.
fn next_use(stream: &StreamShared, epoch: u64, record: u64) -> NextUse {
    // All later epochs count as equally far: with 64 machines most are. Each step is one inverse.
    const FAR: u64 = 8;
    let shard = stream.loader.shard;
    // Independent of this rank's number, because launchers assign ranks to machines in many ways.
    let here = stream.loader.cache_member.as_ref().map(Member::ranks);
    let is_here = |rank: u64| match &here {
        Some(ranks) => u32::try_from(rank).is_ok_and(|rank| ranks.binary_search(&rank).is_ok()),
        None => rank == u64::from(shard.rank()),
    };
    let mut comes = false;
    for next in 1..=FAR {
        let next = epoch.saturating_add(next);
        // If an order repeats records, others are not in the epoch.
        let Some(position) = stream.sampler.position(next, record) else { continue };
        comes = true;
        let rank = position % u64::from(shard.world());
        if is_here(rank) {
            return NextUse { epoch: next, position };
        }
    }
    // Without an inverse it is only known that the record may come in the next epoch.
    NextUse { epoch: epoch.saturating_add(if comes { FAR + 1 } else { 1 }), position: 0 }
}

/// Gives fresh bytes to the cache; returns a writer if the cache wants another writing thread.
pub(super) fn keep(
    stream: &StreamShared,
    keep: Keep,
    bytes: &Bytes,
    permit: &Arc<OwnedSemaphorePermit>,
) -> Option<Writer> {
    // Bytes that wait to be written keep their permits: with more than half of the window, reading would wait for the
    // disk.
    let most = stream.loader.limits.encoded / 2;
    stream.loader.cache.as_ref()?.keep(keep, bytes, permit, most, &stream.cache_recorder)
}

/// Writes the bytes that the cache was given, on one thread for each writer; ends when nothing is left.
pub(super) async fn write(stream: &Arc<StreamShared>, writers: impl IntoIterator<Item = Writer>) {
    let write = |writer: Writer| {
        let stream = Arc::clone(stream);
        task::spawn_blocking(move || writer.run(&|epoch, record| next_use(&stream, epoch, record)))
    };
    let writing: Vec<_> = writers.into_iter().map(write).collect();
    for writer in writing {
        // A panic's message is on stderr. It only affects the cache, so the run continues.
        let _ = writer.await;
    }
}

impl Cached {
    /// Reads the bytes on this thread; `Some(false)` if they are no longer there, `None` if the stream was dropped.
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

    /// Reads the bytes from the store while this thread waits; rare. `None` if the stream was dropped.
    pub(super) fn read_again(self, stream: &Arc<StreamShared>) -> Option<error::Result<Bytes>> {
        let Self { extent, keep: wanted, reader } = self;
        let (done, answer) = mpsc::channel();
        let (for_task, io) = (Arc::clone(stream), stream.loader.io.clone());
        io.spawn(async move {
            let stream = for_task;
            let reader = reader.verifying(Verify::Checksums);
            let Some(bytes) = stream.gate.read(&reader, extent).await else { return };
            let _ = done.send(bytes.clone());
            let Ok(bytes) = bytes else { return };
            // Its row holds the permits for these bytes; the small rest is not counted.
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
