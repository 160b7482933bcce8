//! The decoded shared parts of a record; their bytes were read ahead, or are read now.

use std::{
    collections::HashMap,
    sync::{Arc, mpsc},
    time::Instant,
};

use bytes::{Bytes, BytesMut};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use infeed_data::{Dataset, ReadPlan, SharedRead};
use infeed_store::Extent;

use super::{
    buffers::Buffers,
    gate::answered,
    read_here::collect,
    shared_parts::{Need, PartAhead},
    stream::StreamShared,
};

/// A part whose bytes were read before a record needs it.
#[derive(Debug)]
pub(super) struct PartJob {
    pub(super) stream: Arc<StreamShared>,
    pub(super) part: SharedRead,
    pub(super) _ahead: Arc<[PartAhead]>,
}

impl PartJob {
    /// Decodes the part, if there is memory for it now; otherwise the thread that needs it does.
    pub(super) fn run(&self, dataset: &dyn Dataset) {
        let Self { stream, part, .. } = self;
        if !stream.gate.is_closed() {
            stream.loader.shared_parts.make_ahead(part.into(), || made_of_ahead(stream, dataset, part));
        }
    }
}

/// The shared parts of a record's plan. `None` if the stream was dropped.
pub(super) fn read_parts(
    stream: &Arc<StreamShared>,
    dataset: &dyn Dataset,
    plan: &ReadPlan,
) -> Option<Result<Vec<Bytes>>> {
    let needs: Vec<Need> = plan.shared.iter().map(Need::from).collect();
    // Network reads of all parts run at the same time, whichever part is made first.
    let mut coming: HashMap<u64, Vec<mpsc::Receiver<Result<Bytes>>>> = HashMap::new();
    let mut begun = false;
    let make = |at: usize, left: &[Need]| {
        let part = &plan.shared[at];
        if let Some(made) = made_of_ahead(stream, dataset, part) {
            return Some(made);
        }
        if !std::mem::replace(&mut begun, true) {
            let ahead = &stream.loader.shared_parts;
            let missing =
                |part: &&SharedRead| left.iter().any(|need| need.key == part.key) && !ahead.has_encoded(part.key);
            for part in plan.shared.iter().filter(missing) {
                let remote = part.extents.iter().filter(|extent| !extent.source.reads_inline());
                coming.insert(part.key, remote.map(|extent| fetch(stream, extent.clone())).collect());
            }
        }
        let began = Instant::now();
        let mut remote = coming.remove(&part.key).unwrap_or_default().into_iter();
        let mut encoded = Vec::with_capacity(part.extents.len());
        for extent in &part.extents {
            let bytes = if extent.source.reads_inline() {
                read_here(stream, extent)?
            } else {
                answered(&stream.gate, &remote.next().unwrap_or_else(|| fetch(stream, extent.clone())))?
            };
            match bytes {
                Ok(bytes) => encoded.push(bytes),
                Err(error) => return Some(Err(error.at_stage(Stage::Fetch))),
            }
        }
        let len = encoded.iter().map(|bytes| bytes.len() as u64).sum();
        stream.recorder.busy(Stage::Fetch, began.elapsed(), 1, len);
        Some(made_of(stream, dataset, part, &encoded))
    };
    stream.loader.shared_parts.take(&needs, || stream.gate.is_closed(), make)
}

/// The part, made from bytes that were read ahead. `None` if there are none, or if the stream was dropped.
fn made_of_ahead(stream: &Arc<StreamShared>, dataset: &dyn Dataset, part: &SharedRead) -> Option<Result<Bytes>> {
    let parts = &stream.loader.shared_parts;
    // Not into the thread's own buffers, because the bytes may be kept.
    let encoded = match parts.take_encoded(part.key)?.map(|pieces| collect(stream, pieces, &mut Buffers::default())) {
        Ok(encoded) => encoded?,
        Err(error) => return Some(Err(error)),
    };
    let made = encoded.and_then(|encoded| made_of(stream, dataset, part, &encoded));
    if let Err(error) = &made {
        parts.is_damaged(part.key, error);
    }
    Some(made)
}

fn made_of(stream: &StreamShared, dataset: &dyn Dataset, part: &SharedRead, encoded: &[Bytes]) -> Result<Bytes> {
    let began = Instant::now();
    let data = dataset.decode_shared(part.key, encoded).and_then(|data| as_promised(dataset, part, data));
    stream.recorder.busy(Stage::Decode, began.elapsed(), 1, data.as_ref().map_or(0, |data| data.len() as u64));
    data
}

/// Checks that a part is not larger than its plan says, because only this memory was reserved.
fn as_promised(dataset: &dyn Dataset, part: &SharedRead, data: Bytes) -> Result<Bytes> {
    if data.len() as u64 <= part.bytes {
        return Ok(data);
    }
    let (format, made, said) = (dataset.format(), data.len(), part.bytes);
    let what =
        format!("a dataset of the format {format} made {made} bytes of a shared part that has {said} by its plan");
    Err(Error::new(ErrorKind::Internal, what)
        .at_stage(Stage::Decode)
        .with_hint("`SharedRead::bytes` is the most of a part"))
}

/// Reads a part's bytes. Not into the thread's own buffers, because they may be kept.
pub(super) fn read_here(stream: &StreamShared, extent: &Extent) -> Option<Result<Bytes>> {
    let mut buffer = BytesMut::new();
    Some(stream.local.read(extent, &mut buffer, &mut None)?.map(|()| buffer.freeze()))
}

/// Reads from a store while this thread does other work.
pub(super) fn fetch(stream: &Arc<StreamShared>, extent: Extent) -> mpsc::Receiver<Result<Bytes>> {
    let (done, answer) = mpsc::channel();
    let (stream, io) = (Arc::clone(stream), stream.loader.io.clone());
    io.spawn(async move {
        if let Some(bytes) = stream.gate.read(&stream.reader, extent).await {
            let _ = done.send(bytes);
        }
    });
    answer
}
