//! One pass over the headers of files, many files at a time: what indexes of shards are made of.

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

/// Files at a time. Of local ones each has a thread, which waits for its disk: of a network's more are worth having than
/// there are cores.
pub const AT_A_TIME: usize = 16;

/// The least that is asked of a remote store at a time: a few headers of small records.
const LEAST: u64 = 256 << 10;
/// With records nearer to each other than `LEAST`, everything is read in ranges of this size: cheaper than a request for
/// each. Sixteen files at a time hold 32 MiB.
const SEQUENTIAL: u64 = 2 << 20;

/// What is read of a local file at a time: a header, and in it or behind it what is small, and the next header.
const PAGE: u64 = 4 << 10;
/// With records nearer to each other than this, a local file is read from beginning to end. With sixteen files at a time a
/// disk gives a header each 5 µs, a file server each 20 µs, and 16 KiB take as long.
const NEAR: u64 = 16 << 10;
/// So much of it at a time.
const STRIDE: u64 = 1 << 20;

/// What `one` gives of each number below `count`, in any order: of local files on threads, of others as many as a store is
/// asked for at a time.
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

/// Bytes of a file around a place that moves on.
#[derive(Debug)]
pub struct Window<'a> {
    from: From<'a>,
    /// Bytes of the file.
    size: u64,
    start: u64,
    held: Bytes,
    /// Records so far, by whose mean size it is chosen how much is read.
    pub passed: u64,
}

#[derive(Debug)]
enum From<'a> {
    File(Parts),
    Store { source: &'a Source, object: &'a Object },
}

impl<'a> Window<'a> {
    /// # Errors
    /// Of opening a local file.
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

    /// Some bytes, which lie within the size that was listed.
    ///
    /// # Errors
    /// As reading.
    pub async fn get(&mut self, at: u64, len: u64) -> Result<Bytes> {
        let held = at >= self.start && at + len <= self.start + self.held.len() as u64;
        if !held {
            // Not while the next is on its way.
            self.held = Bytes::new();
            let stride = at / self.passed.max(1);
            // The first ones tell how large records are.
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
