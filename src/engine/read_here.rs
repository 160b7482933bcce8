//! Reads on a decode thread: files, and entries of the cache in files.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use infeed_data::ReadPlan;
use smallvec::SmallVec;

use super::{
    buffers::Buffers,
    pieces::{Cached, Piece},
    stream::StreamShared,
};

/// Reads a record's own bytes on this thread. `None` if the stream was dropped and nothing was read.
pub(super) fn read_own(
    stream: &StreamShared,
    plan: &ReadPlan,
    buffers: &mut Buffers,
    read: &mut u64,
) -> Option<Result<SmallVec<[Bytes; 1]>>> {
    if plan.by_dataset.is_some() {
        let what = "the dataset plans to read a record itself, and concurrent_reads says that it reads none";
        return Some(Err(Error::new(ErrorKind::Internal, what)));
    }
    let mut bytes = SmallVec::new();
    let mut last = None;
    for extent in &plan.extents {
        let mut buffer = buffers.take();
        let done = stream.local.read(extent, &mut buffer, &mut last)?;
        if let Err(error) = done {
            return Some(Err(error.at_stage(Stage::Fetch)));
        }
        *read += buffer.len() as u64;
        bytes.push(buffers.lend(buffer));
    }
    Some(Ok(bytes))
}

/// Bytes of one record; reads entries of the cache on this thread. `None` if the stream was dropped.
pub(super) fn collect(
    stream: &Arc<StreamShared>,
    pieces: Vec<Piece>,
    buffers: &mut Buffers,
) -> Option<Result<SmallVec<[Bytes; 1]>>> {
    let from_store = |cached: Cached| Some(cached.read_again(stream)?.map_err(|error| error.at_stage(Stage::Fetch)));
    let mut all = SmallVec::new();
    for piece in pieces {
        let bytes = match piece {
            Piece::Bytes(bytes) => bytes,
            Piece::Cached(cached) => {
                let mut buffer = buffers.take();
                if cached.read(stream, &mut buffer)? {
                    buffers.lend(buffer)
                } else {
                    match from_store(*cached)? {
                        Ok(bytes) => bytes,
                        Err(error) => return Some(Err(error)),
                    }
                }
            }
            Piece::Anew(cached) => match from_store(*cached)? {
                Ok(bytes) => bytes,
                Err(error) => return Some(Err(error)),
            },
        };
        all.push(bytes);
    }
    Some(Ok(all))
}
