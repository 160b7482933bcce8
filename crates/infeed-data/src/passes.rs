//! One pass over the headers of files, many files at a time. Indexes of shards are made with it.

use std::io;

use bytes::Bytes;
use futures::{
    StreamExt,
    executor::block_on,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Object, Parts, Source, aside, io_kind};

/// Files at a time. Each local file has a thread, which waits for its disk; on a network disk more threads than cores
/// are useful.
pub const AT_A_TIME: usize = 16;

/// Least number of bytes to request from a remote store: a few headers of small records.
const LEAST: u64 = 256 << 10;
/// If the distance between records is less than `LEAST`, everything is read in ranges of this size, which is cheaper
/// than one request per record. Sixteen files at a time hold 32 MiB.
const SEQUENTIAL: u64 = 2 << 20;

/// Bytes to read of a local file: a header, small contents after it, and the next header.
const PAGE: u64 = 4 << 10;
/// If the distance between records is less than this, a local file is read from beginning to end. With sixteen files at
/// a time, a disk returns a header every 5 µs, a file server every 20 µs, and 16 KiB take as long.
pub(crate) const NEAR: u64 = 16 << 10;
/// Bytes per read in that case.
const STRIDE: u64 = 1 << 20;

/// The results of `one` for each number below `count`, in any order: for local files on threads, for others with as
/// many at a time as a store is asked for.
pub fn pass_each<T: Send + 'static>(
    source: &Source,
    count: usize,
    one: impl Fn(usize) -> BoxFuture<'static, Result<T>> + Send + Sync + 'static,
) -> BoxStream<'static, Result<T>> {
    if source.folder().is_none() {
        return stream::iter((0..count).map(one)).buffer_unordered(AT_A_TIME).boxed();
    }
    aside("infeed-index", AT_A_TIME, count, move |i| block_on(one(i)))
        .unwrap_or_else(|error| stream::once(async { Err(error) }).boxed())
}

/// A window into a file that moves forward.
#[derive(Debug)]
pub struct Window<'a> {
    from: From<'a>,
    /// Bytes of the file.
    size: u64,
    start: u64,
    held: Bytes,
    /// Number of records so far; their mean size decides how much is read.
    pub passed: u64,
}

#[derive(Debug)]
enum From<'a> {
    File(Parts),
    Store { source: &'a Source, object: &'a Object },
}

impl<'a> Window<'a> {
    /// # Errors
    /// Those of opening a local file.
    pub fn new(source: &'a Source, object: &'a Object) -> Result<Self> {
        let from = match source.open_file(&object.name) {
            Some(file) => {
                let failed = |e: io::Error| Error::new(io_kind(&e), "cannot be read").with_source(e);
                From::File(Parts::of_file(file?).map_err(failed)?)
            }
            None => From::Store { source, object },
        };
        Ok(Self { from, size: object.size, start: 0, held: Bytes::new(), passed: 0 })
    }

    /// These bytes, which have to be within the listed size.
    ///
    /// # Errors
    /// Those of reading.
    pub async fn get(&mut self, at: u64, len: u64) -> Result<Bytes> {
        let held = at >= self.start && at + len <= self.start + self.held.len() as u64;
        if !held {
            // Freed before the next read starts.
            self.held = Bytes::new();
            let stride = at / self.passed.max(1);
            // After four records the mean distance is known.
            let ask = |near: u64, least: u64, most: u64| if self.passed >= 4 && stride < near { most } else { least };
            let range = |ask: u64| at..(at + ask.max(len)).min(self.size);
            self.held = match &self.from {
                From::File(file) => {
                    let failed = |e: io::Error| match e.kind() {
                        io::ErrorKind::UnexpectedEof => Error::corrupt("it shrank while it was indexed"),
                        _ => Error::new(ErrorKind::Io, "reading broke off").with_source(e),
                    };
                    file.read(range(ask(NEAR, PAGE, STRIDE))).map_err(failed)?.into_owned().into()
                }
                From::Store { source, object } => {
                    let mut extent = object.extent(source);
                    extent.range = range(ask(LEAST, LEAST, SEQUENTIAL));
                    extent.read().await?
                }
            };
            self.start = at;
        }
        let from = (at - self.start) as usize;
        Ok(self.held.slice(from..from + len as usize))
    }
}
