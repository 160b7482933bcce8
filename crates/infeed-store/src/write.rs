//! Writes objects that appear at once and complete. Used by `prepare`, never while a dataset is read.

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

/// Size of the parts of an upload. Stores accept at most 10,000 parts, so a shard may have 160 GB.
const PART: usize = 16 << 20;
/// The most parts in flight.
const IN_FLIGHT: usize = 4;

impl Source {
    /// [`parse`](Self::parse) for a place to write to: a local folder is created if it does not exist.
    ///
    /// # Errors
    /// Those of `parse`; `Config` for the path of a file.
    pub fn create(url: &str) -> Result<Self> {
        let local = match url.contains("://") {
            true => url.starts_with("file://").then(|| url::Url::parse(url).ok()?.to_file_path().ok()).flatten(),
            false => Some(url.into()),
        };
        if let Some(folder) = local {
            fs::create_dir_all(folder).map_err(|e| unwritable(e, "cannot be created").at_object(url))?;
        }
        let source = Self::parse(url)?;
        match source.only() {
            None => Ok(source),
            Some(_) => Err(Error::config("this is a file; name a folder").at_object(url)),
        }
    }

    /// The file of an object, for many small reads of it; `None` if the source is not a local folder.
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

    /// The path of an object that is being written: hidden, next to its final path. Each object has one such name, so
    /// that a second attempt overwrites the first; `own` makes the name unique to an attempt.
    fn aside(&self, name: &str, own: &str) -> Result<Option<[PathBuf; 2]>> {
        self.path(name)?;
        let Some(folder) = &self.0.folder else { return Ok(None) };
        let path = folder.join(name);
        let hidden = format!(".{}{own}.part", name.rsplit('/').next().unwrap_or_default());
        Ok(Some([path.with_file_name(hidden), path]))
    }

    /// Writes a small object, which other processes may be writing too.
    #[doc(hidden)]
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<Object> {
        let mut writer = self.write_aside(name, &own_name())?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// [`put`](Self::put) for objects that may be larger than memory.
    #[doc(hidden)]
    pub async fn put_parts(&self, name: &str, parts: &Parts) -> Result<Object> {
        let mut writer = self.write_aside(name, &own_name())?;
        for piece in parts.pieces() {
            writer.write(piece.map_err(|e| unwritable(e, "cannot be copied"))?).await?;
        }
        writer.finish().await
    }

    /// Begins an object. It appears with [`Writer::finish`]; without that call it never appears.
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

/// A suffix that no other attempt to write the same object has.
fn own_name() -> String {
    static TRY: AtomicU64 = AtomicU64::new(0);
    format!(".{}-{}", std::process::id(), TRY.fetch_add(1, Ordering::Relaxed))
}

type InFlight = FuturesUnordered<BoxFuture<'static, object_store::Result<()>>>;

/// An object being written.
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

/// A hidden file, removed when its writer is dropped; the path is empty once the file has its final name.
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
    /// Nothing is uploaded before the first part is full: a small object takes one request.
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

    /// Continues the uploads in flight for as long as this is polled. Ends only with an error.
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
                // Synced first, so that a crash can't leave the name without its bytes.
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

/// The next part that has been uploaded.
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
