//! Where bytes come from: an `object_store` and a prefix.

use std::{fmt, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::stream::BoxStream;
use object_store::{ObjectStore, path::Path};

use crate::error::Result;

/// A place that holds objects: a folder, a RAM disk, an in-memory store, a bucket and a prefix. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    url: Arc<str>,
    inline: bool,
}

/// One object found by [`Source::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Name relative to the source's prefix, with `/` between parts.
    pub name: String,
    /// Length in bytes.
    pub size: u64,
    /// The store's version tag, if it has one.
    pub etag: Option<String>,
}

/// One read: some bytes of one object of one source.
#[derive(Clone, Debug)]
pub struct Extent {
    /// Where.
    pub source: Source,
    /// Name relative to the source's prefix.
    pub name: Arc<str>,
    /// Which bytes.
    pub range: Range<u64>,
}

impl Source {
    /// Opens `file://`, a plain path, `memory://` (see docs) …
    pub fn parse(_url: &str) -> Result<Self> {
        unimplemented!()
    }

    /// A store made by the caller; reads go through the engine's runtime.
    #[must_use]
    pub fn from_store(store: Arc<dyn ObjectStore>, prefix: Path, url: &str) -> Self {
        Self { store, prefix, url: url.into(), inline: false }
    }

    /// As the user wrote it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether reads are best done where their bytes are used, blocking that thread (local files), rather than as
    /// tasks of the engine's runtime (everything behind a network).
    #[must_use]
    pub const fn reads_inline(&self) -> bool {
        self.inline
    }

    /// Streams all objects below the prefix, in no promised order.
    pub fn list(&self) -> BoxStream<'static, Result<Object>> {
        let _ = (&self.store, &self.prefix);
        unimplemented!()
    }

    /// Reads some bytes; a short answer is an error. Cancel safe: dropping the future drops the request.
    pub async fn read(&self, _name: &str, _range: Range<u64>) -> Result<Bytes> {
        unimplemented!()
    }

    /// Reads some bytes on this thread into `buffer` (its old content is replaced, its memory reused). `permit` is
    /// called right before the request starts; when it says no, nothing is read and `false` comes back.
    pub fn read_inline(&self, _name: &str, _range: Range<u64>, _buffer: &mut BytesMut) -> Result<()> {
        unimplemented!()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.url)
    }
}
