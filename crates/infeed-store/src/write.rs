//! Writing objects that appear at once and whole: for what infeed prepares, never while it reads.

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
};
use object_store::{MultipartUpload, ObjectStoreExt};

use super::{
    Object, Parts, Source,
    answer::with_answer,
    errors::{io_kind, store_error},
};

/// Parts of an upload: stores take 10,000 of them at most, so a shard may have 160 GB.
const PART: usize = 16 << 20;
/// Parts on their way.
const IN_FLIGHT: usize = 4;

impl Source {
    /// [`parse`](Self::parse) for a place to write to: a local folder is made when it is not there.
    ///
    /// # Errors
    /// As `parse`; `Config` for the path of a file.
    pub fn create(url: &str) -> Result<Self> {
        let local = match url.contains("://") {
            true => url.starts_with("file://").then(|| url::Url::parse(url).ok()?.to_file_path().ok()).flatten(),
            false => Some(url.into()),
        };
        if let Some(folder) = local {
            fs::create_dir_all(folder).map_err(|e| unwritable(e, "cannot be made").at_object(url))?;
        }
        let source = Self::parse(url)?;
        match source.only() {
            None => Ok(source),
            Some(_) => Err(Error::config("a file, where a folder belongs").at_object(url)),
        }
    }

    /// The file of an object, for many small reads of it; `None` where there is no such thing.
    #[doc(hidden)]
    pub fn open_file(&self, name: &str) -> Option<Result<File>> {
        let folder = self.0.folder.as_ref()?;
        let open = || {
            self.path(name)?;
            let failed = |e: io::Error| Error::new(io_kind(&e), "cannot be read").with_source(e);
            File::open(folder.join(name)).map_err(failed)
        };
        Some(open())
    }

    /// Where an object that is being written lies: hidden, beside where it will be; under one name for each object, so that
    /// the next try writes over it, unless the try has a name of its own.
    fn aside(&self, name: &str, own: &str) -> Result<Option<[PathBuf; 2]>> {
        self.path(name)?;
        let Some(folder) = &self.0.folder else { return Ok(None) };
        let path = folder.join(name);
        let hidden = format!(".{}{own}.part", name.rsplit('/').next().unwrap_or_default());
        Ok(Some([path.with_file_name(hidden), path]))
    }

    /// Writes a small object, which others may be writing too.
    #[doc(hidden)]
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<Object> {
        let mut writer = self.write_aside(name, &own_name())?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// [`put`](Self::put) for what may be larger than memory.
    #[doc(hidden)]
    pub async fn put_parts(&self, name: &str, parts: &Parts) -> Result<Object> {
        let mut writer = self.write_aside(name, &own_name())?;
        for piece in parts.pieces() {
            writer.write(piece.map_err(|e| unwritable(e, "cannot be copied"))?).await?;
        }
        writer.finish().await
    }

    /// Begins an object; it appears with [`Writer::finish`], and not at all without.
    #[doc(hidden)]
    pub fn writer(&self, name: &str) -> Result<Writer> {
        self.write_aside(name, "")
    }

    fn write_aside(&self, name: &str, own: &str) -> Result<Writer> {
        let placed = |e: Error| e.at_stage(Stage::Write).at_object(self.display_name(name));
        let body = match self.aside(name, own)? {
            Some([aside, path]) => {
                let parent = path.parent().unwrap_or(&path);
                let file = fs::create_dir_all(parent).and_then(|()| File::create(&aside));
                let file = file.map_err(|e| placed(unwritable(e, "cannot be written")))?;
                Body::File { file, aside: Aside(aside), path }
            }
            None => Body::Parts { upload: None, in_flight: FuturesUnordered::new() },
        };
        Ok(Writer { source: self.clone(), name: name.to_owned(), body, buffer: Vec::new(), size: 0 })
    }
}

/// What no other try to write the same object is called.
fn own_name() -> String {
    static TRY: AtomicU64 = AtomicU64::new(0);
    format!(".{}-{}", std::process::id(), TRY.fetch_add(1, Ordering::Relaxed))
}

type InFlight = FuturesUnordered<BoxFuture<'static, object_store::Result<()>>>;

/// An object on its way.
pub struct Writer {
    source: Source,
    name: String,
    body: Body,
    buffer: Vec<u8>,
    size: u64,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({}, {} bytes)", self.source.display_name(&self.name), self.size)
    }
}

/// A hidden file, which goes when nobody writes to it any more; empty when it has its place.
struct Aside(PathBuf);

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.0);
        }
    }
}

enum Body {
    File {
        file: File,
        aside: Aside,
        path: PathBuf,
    },
    /// Nothing is uploaded before the first part is full: small objects are one request.
    Parts {
        upload: Option<Box<dyn MultipartUpload>>,
        in_flight: InFlight,
    },
}

impl Writer {
    fn placed(&self, error: Error) -> Error {
        error.at_stage(Stage::Write).at_object(self.source.display_name(&self.name))
    }

    #[doc(hidden)]
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let bytes = bytes.as_ref();
        self.size += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PART { self.flush().await } else { Ok(()) }
    }

    /// Uploads what is on its way, for as long as this is polled; ends with an error only.
    pub async fn advance(&mut self) -> Error {
        if let Body::Parts { in_flight, .. } = &mut self.body {
            while let Some(part) = arrived(in_flight).await {
                if let Err(error) = part {
                    return self.placed(error);
                }
            }
        }
        std::future::pending().await
    }

    async fn flush(&mut self) -> Result<()> {
        let full = std::mem::take(&mut self.buffer);
        let done = match &mut self.body {
            Body::File { file, .. } => {
                let written = file.write_all(&full).map_err(|e| unwritable(e, "cannot be written"));
                self.buffer = full;
                self.buffer.clear();
                written
            }
            Body::Parts { upload, in_flight } => {
                let failed = |e| store_error(e, "cannot be written");
                async {
                    if upload.is_none() {
                        let path = self.source.path(&self.name)?;
                        *upload = Some(with_answer(self.source.0.store.put_multipart(&path)).await.map_err(failed)?);
                    }
                    let upload = upload.as_mut().expect("it has just begun");
                    while in_flight.len() >= IN_FLIGHT {
                        arrived(in_flight).await.transpose()?;
                    }
                    in_flight.push(Box::pin(with_answer(upload.put_part(full.into()))));
                    Ok(())
                }
                .await
            }
        };
        done.map_err(|e| self.placed(e))
    }

    /// Makes the object visible.
    pub async fn finish(mut self) -> Result<Object> {
        if matches!(self.body, Body::File { .. } | Body::Parts { upload: Some(_), .. }) && !self.buffer.is_empty() {
            self.flush().await?;
        }
        let failed = |e| store_error(e, "cannot be written");
        let done = match &mut self.body {
            Body::File { file, aside, path } => {
                // A name must not stand for bytes that a crash can still lose.
                let renamed = file.sync_all().and_then(|()| fs::rename(&aside.0, path)).map(|()| aside.0.clear());
                renamed.map(|()| None).map_err(|e| unwritable(e, "cannot be written"))
            }
            Body::Parts { upload: Some(upload), in_flight } => {
                async {
                    while let Some(part) = arrived(in_flight).await {
                        part?;
                    }
                    Ok(with_answer(upload.complete()).await.map_err(failed)?.e_tag)
                }
                .await
            }
            Body::Parts { upload: None, .. } => {
                let bytes = std::mem::take(&mut self.buffer);
                async {
                    let path = self.source.path(&self.name)?;
                    let put = with_answer(self.source.0.store.put(&path, bytes.into())).await;
                    Ok(put.map_err(failed)?.e_tag)
                }
                .await
            }
        };
        let etag = done.map_err(|e| self.placed(e))?;
        Ok(Object { name: self.name, size: self.size, etag })
    }
}

/// The next part that is there.
async fn arrived(in_flight: &mut InFlight) -> Option<Result<()>> {
    Some(in_flight.next().await?.map_err(|e| store_error(e, "cannot be written")))
}

fn unwritable(error: io::Error, what: &'static str) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        _ => ErrorKind::Io,
    };
    Error::new(kind, what).with_source(error)
}
