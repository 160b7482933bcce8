//! Reads on the thread that needs the bytes: local files, and stores that answer without a runtime.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    path::PathBuf,
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, executor::block_on, stream::BoxStream};
use infeed_core::error::Result;
use object_store::GetResultPayload;

use super::{
    Extent, Source,
    errors::{
        check_range, grown, make_room, open_error, read_error, room, short_answer, shrunk, store_error, too_large,
    },
    handle::is_plain,
    read_at::read_at,
};

impl Extent {
    /// Starts reading the bytes on this thread; see [`Source::open_inline`].
    pub fn open_inline(&self) -> Result<InlineRead> {
        self.source.begin_inline(&self.name, self.range.clone(), self.size)
    }

    /// Opens and reads; `opened` is called between the two steps.
    #[doc(hidden)]
    pub fn read_inline(&self, buffer: &mut BytesMut, opened: impl FnOnce()) -> Result<()> {
        let Self { source, name, range, size, .. } = self;
        let mut body = source.body(name, range, *size)?;
        opened();
        body.read(range, buffer).map_err(|e| source.at(e, name, range))
    }
}

impl Extent {
    /// Distinguishes its content from another of the same name: the version tag, or for a local file its modification
    /// time and length, which takes a file system call. `None` if neither is available.
    #[doc(hidden)]
    pub fn version(&self) -> Option<String> {
        if let Some(etag) = &self.etag {
            return Some(etag.to_string());
        }
        let meta = std::fs::metadata(self.source.local_path(&self.name)?).ok()?;
        let time = meta.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(format!("{}-{}", time.as_nanos(), meta.len()))
    }
}

impl Source {
    /// Starts reading some bytes on this thread, which must not be one of an async runtime.
    ///
    /// In two steps, so that a caller can guarantee that no read *begins* after some moment without holding a lock
    /// while bytes are copied: this method opens the file, [`InlineRead::read_into`] reads it.
    pub fn open_inline(&self, name: &str, range: Range<u64>) -> Result<InlineRead> {
        self.begin_inline(name, range, None)
    }

    /// The file of an object, if this is a local folder. Opening it without the store takes a third of the time: no
    /// path is parsed, escaped and looked up twice.
    pub(super) fn local_path(&self, name: &str) -> Option<PathBuf> {
        let folder = self.0.folder.as_ref().filter(|_| self.0.inline && is_plain(name))?;
        // The folder is that of the prefix.
        Some(folder.join(name))
    }

    fn begin_inline(&self, name: &str, range: Range<u64>, size: Option<u64>) -> Result<InlineRead> {
        let body = self.body(name, &range, size)?;
        Ok(InlineRead { source: self.clone(), name: name.to_owned(), range, body })
    }

    fn body(&self, name: &str, range: &Range<u64>, size: Option<u64>) -> Result<Body> {
        check_range(range, size).map_err(|e| self.at(e, name, range))?;
        Ok(if range.is_empty() && size != Some(0) {
            Body::Nothing
        } else if let Some(path) = self.local_path(name) {
            let file = File::open(path).map_err(|e| self.at(open_error(e), name, range))?;
            Body::Local(file, size)
        } else {
            match block_on(self.request(name, range, size))?.payload {
                GetResultPayload::File(file, _) => Body::File(file),
                GetResultPayload::Stream(stream) => Body::Stream(stream),
            }
        })
    }
}

/// A read that was started on this thread: an open file, or a store's answer.
///
/// ```
/// use bytes::BytesMut;
/// use infeed::source::Source;
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("shard.bin"), "0123456789")?;
/// let source = Source::parse(&folder.path().display().to_string())?;
/// let mut buffer = BytesMut::new(); // Used again for the next record.
/// source.open_inline("shard.bin", 4..7)?.read_into(&mut buffer)?;
/// assert_eq!(buffer, "456");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is read before `read_into`"]
pub struct InlineRead {
    source: Source,
    name: String,
    range: Range<u64>,
    body: Body,
}

enum Body {
    Nothing,
    /// A file, and its expected length.
    Local(File, Option<u64>),
    File(File),
    Stream(BoxStream<'static, object_store::Result<Bytes>>),
}

impl InlineRead {
    /// Reads the bytes into `buffer`, replacing its content and reusing its memory. Blocks this thread.
    ///
    /// # Errors
    /// `Corrupt` if a file is shorter than its expected length, `Io` for any other failure. The buffer's content is
    /// then unspecified.
    pub fn read_into(self, buffer: &mut BytesMut) -> Result<()> {
        let Self { source, name, range, mut body } = self;
        body.read(&range, buffer).map_err(|e| source.at(e, &name, &range))
    }
}

impl std::fmt::Debug for InlineRead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InlineRead({} @ {:?})", self.source.display_name(&self.name), self.range)
    }
}

impl Body {
    fn read(&mut self, range: &Range<u64>, buffer: &mut BytesMut) -> Result<()> {
        let asked = range.end - range.start;
        match self {
            Self::Nothing => buffer.clear(),
            // A read from the beginning also works for files without positioned reads.
            Self::Local(file, size) if range.start == 0 => {
                read_local(file, |mut file, to, _| file.read(to), range, *size, buffer)?;
            }
            Self::Local(file, size) => {
                read_local(file, read_at, range, *size, buffer)?;
            }
            Self::File(file) => {
                file.seek(SeekFrom::Start(range.start)).map_err(read_error)?;
                let length = usize::try_from(asked).map_err(|_| too_large(asked))?;
                make_room(buffer, length)?;
                let mut filled = 0;
                while filled < length {
                    match file.read(&mut buffer[filled..]) {
                        Ok(0) => return Err(shrunk(range.start + filled as u64, range.end)),
                        Ok(n) => filled += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(read_error(e)),
                    }
                }
            }
            Self::Stream(stream) => {
                buffer.clear();
                if (buffer.capacity() as u64) < asked {
                    *buffer = room(asked)?;
                }
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
/// The file's length is not requested. If it matters, one byte more than expected is read. A read that returns less has
/// reached the end of the file.
pub(super) fn read_local(
    file: &File,
    read: impl Fn(&File, &mut [u8], u64) -> io::Result<usize>,
    range: &Range<u64>,
    size: Option<u64>,
    buffer: &mut BytesMut,
) -> Result<()> {
    let asked = range.end - range.start;
    let length = usize::try_from(asked).map_err(|_| too_large(asked))?;
    let past = usize::from(size == Some(range.end));
    make_room(buffer, length + past)?;
    let mut filled = 0;
    while filled < length {
        match read(file, &mut buffer[filled..], range.start + filled as u64) {
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
