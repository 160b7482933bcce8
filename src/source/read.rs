//! Reading a range, with its length checked.

use std::{
    error::Error as StdError,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::PathBuf,
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, executor::block_on, stream::BoxStream};
use object_store::{GetOptions, GetRange, GetResult, GetResultPayload, ObjectMeta, path::Path};

use super::{
    Extent, Reader, Source,
    answer::{Answer, our_error, with_answer},
    requests,
};
use crate::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};

pub(super) const CHANGED: &str = "it changed since it was listed: open the dataset again";

impl Source {
    /// Where the store keeps the object. Names are raw: `Path::from` would escape them once more.
    pub(super) fn path(&self, name: &str) -> Result<Path> {
        let prefix = self.0.prefix.as_ref();
        let path = if prefix.is_empty() { Path::parse(name) } else { Path::parse(format!("{prefix}/{name}")) };
        path.map_err(|e| {
            Error::new(ErrorKind::Unsupported, "not a name that can be read")
                .at_stage(Stage::Fetch)
                .at_object(self.display_name(name))
                .hint("rename it without control characters, `.` and `..`")
                .with_source(e)
        })
    }

    pub(super) fn at(&self, error: Error, name: &str, range: &Range<u64>) -> Error {
        error.at_stage(Stage::Fetch).at_object(self.display_name(name)).at_range(range.clone())
    }

    /// Starts a request and checks what the store says before the body.
    async fn request(&self, name: &str, range: &Range<u64>, size: Option<u64>) -> Result<GetResult> {
        let whole = size == Some(range.end) && range.start == 0;
        let part = (!whole).then(|| GetRange::Bounded(range.clone()));
        let options = GetOptions { range: part, ..GetOptions::default() };
        let result = with_answer(self.0.store.get_opts(&self.path(name)?, options)).await;
        let result = result.map_err(|e| self.at(store_error(e, "cannot be read"), name, range))?;
        check_size(&result.meta, range, size).map_err(|e| self.at(e, name, range))?;
        Ok(result)
    }

    /// Reads an extent of this source: behind a network with all that `requests` does.
    pub(crate) async fn fetch(&self, extent: &Extent, reader: &Reader) -> Result<Bytes> {
        let Extent { name, range, size, .. } = extent;
        check_range(range, *size).map_err(|e| self.at(e, name, range))?;
        // Stores refuse to read nothing of something; reading all of nothing is a plain request.
        if range.is_empty() && *size != Some(0) {
            return Ok(Bytes::new());
        }
        if !self.0.inline {
            return requests::read(extent, &self.0.requests, reader).await;
        }
        let result = self.request(name, range, *size).await?;
        let bytes = result.bytes().await;
        let bytes = bytes.map_err(|e| self.at(store_error(e, "reading broke off"), name, range))?;
        let asked = range.end - range.start;
        if bytes.len() as u64 != asked {
            return Err(self.at(short_answer(bytes.len() as u64, asked), name, range));
        }
        Ok(bytes)
    }

    /// The file of an object, when this is a folder of this machine. Opening it without the store takes a third of the
    /// time: no path is parsed, escaped and looked up twice.
    fn local_path(&self, name: &str) -> Option<PathBuf> {
        let folder = self.0.folder.as_ref().filter(|_| self.0.inline && is_plain(name))?;
        // The folder is that of the prefix.
        Some(folder.join(name))
    }

    pub(super) fn begin_inline(&self, name: &str, range: Range<u64>, size: Option<u64>) -> Result<InlineRead> {
        check_range(&range, size).map_err(|e| self.at(e, name, &range))?;
        let body = if range.is_empty() && size != Some(0) {
            Body::Nothing
        } else if let Some(path) = self.local_path(name) {
            let file = File::open(path).map_err(|e| self.at(open_error(e), name, &range))?;
            Body::Local(file, size, false)
        } else {
            match block_on(self.request(name, &range, size))?.payload {
                GetResultPayload::File(file, _) => Body::File(file),
                GetResultPayload::Stream(stream) => Body::Stream(stream),
            }
        };
        Ok(InlineRead { source: self.clone(), name: name.to_owned(), range, body })
    }
}

/// Names that the store would refuse are left to it: the error is its own.
fn is_plain(name: &str) -> bool {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    !name.split('/').any(bad) && !name.bytes().any(|byte| byte.is_ascii_control())
}

/// A read that has started on this thread: an open file, or a store's answer.
#[must_use = "nothing is read before `read_into`"]
pub struct InlineRead {
    source: Source,
    name: String,
    range: Range<u64>,
    body: Body,
}

enum Body {
    Nothing,
    /// A file, the length that it should have, and whether it was read from.
    Local(File, Option<u64>, bool),
    File(File),
    Stream(BoxStream<'static, object_store::Result<Bytes>>),
}

impl InlineRead {
    /// Reads the bytes into `buffer`: its old content is replaced, its memory reused. Blocks this thread.
    ///
    /// # Errors
    /// `Corrupt` when a file turns out shorter than it was, `Io` for everything else. The buffer's content is
    /// unspecified then.
    pub fn read_into(self, buffer: &mut BytesMut) -> Result<()> {
        let Self { source, name, range, mut body } = self;
        body.read(&range, buffer).map_err(|e| source.at(e, &name, &range))
    }

    /// Reads the bytes of `extent` instead, when it is of the same file; `None` when it has to be opened. For many
    /// small pieces, opening takes longer than reading.
    pub(crate) fn read_other(&mut self, extent: &Extent, buffer: &mut BytesMut) -> Option<Result<()>> {
        let same = extent.source.identity() == self.source.identity() && *extent.name == *self.name;
        if !same || !matches!(self.body, Body::File(_) | Body::Local(..)) {
            return None;
        }
        let read = check_range(&extent.range, extent.size).and_then(|()| self.body.read(&extent.range, buffer));
        Some(read.map_err(|e| self.source.at(e, &self.name, &extent.range)))
    }
}

impl std::fmt::Debug for InlineRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InlineRead({} @ {:?})", self.source.display_name(&self.name), self.range)
    }
}

impl Body {
    fn read(&mut self, range: &Range<u64>, buffer: &mut BytesMut) -> Result<()> {
        let failed = |e: io::Error| Error::new(io_kind(&e), "reading broke off").with_source(e);
        let asked = range.end - range.start;
        match self {
            Self::Nothing => buffer.clear(),
            Self::Local(file, size, moved) => {
                read_local(file, std::mem::replace(moved, true), range, *size, buffer)?;
            }
            Self::File(file) => {
                file.seek(SeekFrom::Start(range.start)).map_err(failed)?;
                let length = usize::try_from(asked).map_err(|_| too_large(asked))?;
                buffer.clear();
                // Zeroing is what safe code pays for reading into fresh memory: 3 µs for 100 KB.
                buffer.resize(length, 0);
                let mut filled = 0;
                while filled < length {
                    match file.read(&mut buffer[filled..]) {
                        Ok(0) => return Err(shrunk(range.start + filled as u64, range.end)),
                        Ok(n) => filled += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(failed(e)),
                    }
                }
            }
            Self::Stream(stream) => {
                buffer.clear();
                while let Some(frame) = block_on(stream.next()) {
                    buffer.extend_from_slice(&frame.map_err(|e| store_error(e, "reading broke off"))?);
                }
                if buffer.len() as u64 != asked {
                    return Err(short_answer(buffer.len() as u64, asked));
                }
            }
        }
        Ok(())
    }
}

/// Reads a range of a local file.
///
/// The length is not asked for: where it matters, one byte more than there should be is read. A read that gives less
/// has come to the file's end.
fn read_local(
    file: &mut File,
    moved: bool,
    range: &Range<u64>,
    size: Option<u64>,
    buffer: &mut BytesMut,
) -> Result<()> {
    let asked = range.end - range.start;
    let length = usize::try_from(asked).map_err(|_| too_large(asked))?;
    let past = usize::from(size == Some(range.end));
    if moved || range.start > 0 {
        file.seek(SeekFrom::Start(range.start)).map_err(read_error)?;
    }
    buffer.clear();
    buffer.resize(length + past, 0);
    let mut filled = 0;
    while filled < length {
        match file.read(&mut buffer[filled..]) {
            Ok(0) => return Err(shrunk(range.start + filled as u64, range.end)),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(read_error(e)),
        }
    }
    if filled > length {
        let found = file.metadata().map_or(range.end + 1, |meta| meta.len());
        return Err(grown(found, range.end));
    }
    buffer.truncate(length);
    Ok(())
}

fn read_error(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::IsADirectory => Error::new(ErrorKind::NotFound, "no such object").with_source(error),
        _ => Error::new(io_kind(&error), "reading broke off").with_source(error),
    }
}

fn open_error(error: io::Error) -> Error {
    let kind = io_kind(&error);
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ => "cannot be read",
    };
    Error::new(kind, what).with_source(error)
}

fn grown(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object has {found} bytes, {expected} when it was listed")).hint(CHANGED)
}

fn check_range(range: &Range<u64>, size: Option<u64>) -> Result<()> {
    if range.start > range.end || size.is_some_and(|size| range.end > size) {
        let of = size.map(|size| format!(" of {size} bytes")).unwrap_or_default();
        let what = format!("no such range{of}");
        return Err(Error::new(ErrorKind::Internal, what).hint("the dataset plans reads that can't be"));
    }
    Ok(())
}

/// Compares an object with what is known of it. A property of the object, not of this request: reading again would
/// find the same, so a sample of it is bad and the run may go on.
pub(super) fn check_size(meta: &ObjectMeta, range: &Range<u64>, size: Option<u64>) -> Result<()> {
    match size {
        Some(size) if meta.size > size => Err(grown(meta.size, size)),
        Some(size) if meta.size < size => Err(shrunk(meta.size, size)),
        _ if meta.size < range.end => Err(shrunk(meta.size, range.end)),
        _ => Ok(()),
    }
}

fn shrunk(found: u64, expected: u64) -> Error {
    Error::corrupt(format!("the object ends after {found} of {expected} bytes")).hint(CHANGED)
}

/// Unlike [`shrunk`], the store claims to have it all: a broken connection or proxy, worth another try.
pub(super) fn short_answer(got: u64, asked: u64) -> Error {
    Error::new(ErrorKind::Io, format!("the answer holds {got} of the {asked} bytes asked for")).hint("try again")
}

fn too_large(asked: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{asked} bytes do not fit this machine's memory"))
}

/// What kind of error an error of the system is.
pub(crate) fn io_kind(error: &io::Error) -> ErrorKind {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::Denied,
        _ => ErrorKind::Io,
    }
}

/// Keeps what the store said as the cause and finds out what the caller can do about it.
pub(super) fn store_error(error: object_store::Error, what: &'static str) -> Error {
    use object_store::Error as E;
    // A bucket's own words, which say more than the kinds below.
    if let Some(ours) = our_error(&error) {
        return ours.clone();
    }
    let kind = match &error {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::PermissionDenied { .. } | E::Unauthenticated { .. } => ErrorKind::Denied,
        E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Unsupported,
        E::UnknownConfigurationKey { .. } => ErrorKind::Config,
        // The local store wraps what the system said.
        _ => std::iter::successors(error.source(), |error| (*error).source())
            .find_map(|error| error.downcast_ref::<io::Error>())
            .map_or(ErrorKind::Io, io_kind),
    };
    let what = match kind {
        ErrorKind::NotFound => "no such object",
        ErrorKind::Denied => "access is refused",
        _ => what,
    };
    because(Error::new(kind, what), error)
}

/// Gives an error its cause: what the store answered, where that is known, instead of what `object_store` makes of it.
pub(super) fn because(error: Error, cause: object_store::Error) -> Error {
    match Answer::of(&cause) {
        Some(answer) => answer.cause_of(error),
        None => error.with_source(cause),
    }
}
