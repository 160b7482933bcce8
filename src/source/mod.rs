//! Where bytes come from: an `object_store` and a prefix.
//!
//! ```text
//! url ─ Source::parse ─▶ Source ─ list ─▶ Object (name, size) ─ dataset ─▶ Extent ─┬ read: a future (networks)
//!                                                                       (or what   └ open_inline, read_into: on
//!                                                                      the cache has) the thread that decodes (files)
//! ```
//!
//! A bucket finds its credentials in [`Source::connect`], and its listing may be kept in a manifest (`known.rs` says when
//! it is believed).
//!
//! Three things that are easy to get wrong:
//!
//! - **Names are raw.** `Path::from("a%b")` escapes, `Path::parse` does not. Everything here goes through `parse`, so a
//!   name that came from a listing reads back as the same object, whatever characters it has.
//! - **A short answer is not an error to `object_store`**, nor is another version. Each read here counts its bytes; remote
//!   ones compare the version and are limited, repeated and hedged, see `requests`.
//! - **Local files are read by whoever needs them**, on a plain thread. Inside tokio each read would hop through the
//!   blocking pool, at three times the cost.
#![forbid(unsafe_code)]

mod answer;
mod cache;
mod connect;
mod extent;
#[cfg(feature = "s3")]
mod known;
#[cfg(feature = "s3")]
mod listing;
mod manifest;
mod parse;
mod read;
mod requests;
mod walk;
mod write;

use std::{fmt, ops::Range, path::PathBuf, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use object_store::{ObjectStore, ObjectStoreExt, path::Path};

pub use answer::Refusal;
pub use cache::CacheSpec;
pub(crate) use cache::{Cache, Flight, Keep, Looked, NextUse, Use, Writer};
pub use connect::Connection;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub use connect::Connector;
pub use extent::Extent;
pub(crate) use extent::{Merged, merge};
pub(crate) use manifest::{Manifest, Rest, body, number, seal, text, unsealed};
pub use read::InlineRead;
#[cfg(feature = "jpeg")]
pub(crate) use read::io_kind;
pub(crate) use requests::Reader;
#[cfg(feature = "prepare")]
pub(crate) use write::Writer as ObjectWriter;

use self::requests::Requests;
use crate::{error::Result, fingerprint::Fingerprint};

/// A place that holds objects: a folder, a RAM disk, an in-memory store, a bucket and a prefix. Cloning gives another
/// handle.
#[derive(Clone)]
pub struct Source(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// As the user wrote it, without a `/` at the end.
    url: String,
    inline: bool,
    /// Shared by all who read from this store in this process.
    requests: Arc<Requests>,
    /// Names the store to caches, beside the url: its endpoint.
    store_name: Arc<str>,
    /// The folder of `prefix`, when it is one of this machine: listed without the store, see [`walk`].
    folder: Option<PathBuf>,
    /// The only object, when the user named one; `url` ends with it.
    only: Option<String>,
    /// The same as `store`, where that is a bucket which connects itself.
    #[cfg(feature = "s3")]
    remote: Option<connect::Remote>,
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

impl Object {
    /// An object without a version tag.
    #[must_use]
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, etag: None }
    }

    /// A read of all of it, in the version that was listed.
    #[must_use]
    pub fn extent(&self, source: &Source) -> Extent {
        Extent::whole(source, self.name.as_str(), self.size).with_etag(self.etag.as_deref())
    }
}

impl Source {
    /// Opens `url`; nothing is read yet, a path of this machine is looked up.
    ///
    /// | url | is |
    /// |---|---|
    /// | `data/train`, `/data/train` | a folder; every character counts as it stands |
    /// | `data/train/a.jpg` | the folder `data/train`, of which only `a.jpg` is seen |
    /// | `file:///data/my%20set` | an absolute path in URL form, with `%` escapes |
    /// | `memory://NAME/prefix` | objects below `prefix` of the store that [`Source::memory`] made |
    /// | `s3://bucket/prefix` | objects of a bucket (feature `s3`), see [`connect`](Self::connect) |
    /// | `gs://bucket/prefix` | the same at Google (feature `gcs`), set up by the `GOOGLE_*` variables |
    /// | `az://container/prefix` | the same at Azure (feature `azure`), set up by the `AZURE_*` variables |
    /// | `https://host/folder` | files of a WebDAV server; of any other, one file (feature `http`) |
    ///
    /// # Errors
    /// `Config` for a scheme that is none of these, `NotFound` and `Denied` for paths, `Unsupported` without the
    /// feature.
    pub fn parse(url: &str) -> Result<Self> {
        parse::parse(url, connect::Vars::process)
    }

    /// [`parse`](Self::parse) with these variables in place of the environment of this process: for two stores with
    /// different credentials in one program, and for tests.
    ///
    /// ```
    /// # use infeed::source::Source;
    /// let keys = [("AWS_ENDPOINT_URL", "https://minio.example:9000"), ("AWS_PROFILE", "lab")];
    /// # #[cfg(feature = "s3")]
    /// let source = Source::parse_with("s3://photos/train", keys).unwrap();
    /// ```
    pub fn parse_with<K: Into<String>, V: Into<String>>(
        url: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        parse::parse(url, || variables.into_iter().collect())
    }

    /// Finds credentials and region of a bucket; of everything else, does nothing. Needs a tokio runtime with I/O and
    /// time. [`open`](crate::open()) does it, and so does the first read; later calls return at once.
    ///
    /// | what | from, the first that is there |
    /// |---|---|
    /// | credentials | `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` (`AWS_SESSION_TOKEN`); `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`; the profile `AWS_PROFILE`, else `default`, of `~/.aws/credentials` and `~/.aws/config`; `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `_FULL_URI`; the instance's role. None with `AWS_SKIP_SIGNATURE=true` |
    /// | region | `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile, the bucket when asked, `us-east-1` |
    /// | endpoint | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile, AWS. Plain HTTP needs `AWS_ALLOW_HTTP=true` |
    /// | authority | `AWS_CA_BUNDLE`, `SSL_CERT_FILE`, the profile's `ca_bundle`: beside the system's |
    ///
    /// `AWS_REQUEST_PAYER=requester` and `AWS_VIRTUAL_HOSTED_STYLE_REQUEST=true` count too. Everything together takes
    /// at most 10 seconds. A bucket that turns out to be in another region is read there, with a warning; an expired
    /// session token is asked for once more.
    ///
    /// # Errors
    /// `Denied` without credentials, with what was tried; `Unsupported` for a profile with `credential_process` or
    /// single sign-on, with the command that helps; `Config` for variables that can't be.
    pub async fn connect(&self) -> Result<()> {
        #[cfg(feature = "s3")]
        if let Some(remote) = &self.0.remote {
            remote.connect().await?;
        }
        Ok(())
    }

    /// How a bucket of `s3://` was reached; `None` before [`connect`](Self::connect), and for everything else.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        #[cfg(feature = "s3")]
        if let Some(remote) = &self.0.remote {
            return remote.connection();
        }
        None
    }

    /// The in-memory store with this name, made at the first call; `memory://name` reads from it.
    ///
    /// It lives as long as the process. Its objects are the caller's to put and to delete.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use infeed::source::Source;
    /// use object_store::{ObjectStoreExt, path::Path};
    ///
    /// let store = Source::memory("doc-example");
    /// store.put(&Path::parse("cats/1.jpg").unwrap(), "not really".into()).await.unwrap();
    /// let source = Source::parse("memory://doc-example").unwrap();
    /// assert_eq!(source.read("cats/1.jpg", 0..3).await.unwrap(), "not");
    /// # });
    /// ```
    #[must_use]
    pub fn memory(name: &str) -> Arc<dyn ObjectStore> {
        parse::memory(name)
    }

    /// A store made by the caller; reads go through the engine's runtime. `url` is what messages call it.
    ///
    /// One of `object_store`'s own behind HTTP is best built with [`Connector`], and without retries; any other tells by
    /// [`Refusal`] what it was answered. A failure that tells nothing is tried three times more.
    #[must_use]
    pub fn from_store(store: Arc<dyn ObjectStore>, prefix: Path, url: &str) -> Self {
        let url = parse::tidy(url);
        Self(Arc::new(Inner {
            store,
            prefix,
            url,
            inline: false,
            requests: Requests::new(),
            store_name: "".into(),
            folder: None,
            only: None,
            #[cfg(feature = "s3")]
            remote: None,
        }))
    }

    /// The same place, read on the threads that use the bytes. For stores that answer without a runtime and without
    /// much waiting, such as files, maps of memory and RAM.
    #[must_use]
    pub fn inline(mut self) -> Self {
        Arc::make_mut(&mut self.0).inline = true;
        self
    }

    /// The same place, whose requests count together with those of every other source of this process with the same
    /// `store` (endpoint and bucket).
    pub(crate) fn sharing_requests(mut self, store: &str) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        (inner.requests, inner.store_name) = (Requests::shared(store), store.into());
        self
    }

    /// Tells stores apart whose urls are the same.
    pub(crate) fn store(&self) -> &str {
        &self.0.store_name
    }

    /// The same number for handles to the same place.
    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// As the user wrote it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Whether reads are best done where their bytes are used, blocking that thread (local files), rather than as
    /// tasks of the engine's runtime (everything behind a network).
    #[must_use]
    pub fn reads_inline(&self) -> bool {
        self.0.inline
    }

    /// The only object that this source shows, when it was opened by the name of an object.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        self.0.only.as_deref()
    }

    /// An object's name as the user would type it, for messages.
    #[must_use]
    pub fn display_name(&self, name: &str) -> String {
        match self.only() {
            _ if name.is_empty() => self.0.url.clone(),
            Some(only) if only == name => self.0.url.clone(),
            Some(only) => format!("{}{name}", self.0.url.strip_suffix(only).unwrap_or_default()),
            None if self.0.url.ends_with('/') => format!("{}{name}", self.0.url),
            None => format!("{}/{name}", self.0.url),
        }
    }

    /// The local folder that this source is, if it is one.
    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        self.0.folder.as_deref()
    }

    /// The part of this source below the folder `name`.
    pub fn child(&self, name: &str) -> Result<Self> {
        let prefix = self.path(name)?;
        let folder = self.0.folder.as_ref().map(|f| f.join(name));
        Ok(Self(Arc::new(Inner { prefix, folder, url: self.display_name(name), ..(*self.0).clone() })))
    }

    /// This source as one object, when its prefix names an object rather than a folder. (For paths,
    /// [`parse`](Self::parse) has looked already.)
    pub async fn as_object(&self) -> Result<Option<Self>> {
        let Inner { store, prefix, folder, only, .. } = &*self.0;
        if only.is_some() {
            return Ok(Some(self.clone()));
        }
        let (None, Some(parent), Some(name)) = (folder, prefix.parent(), prefix.filename()) else { return Ok(None) };
        match answer::with_answer(store.head(prefix)).await {
            Ok(_) => {
                let only = Some(name.to_owned());
                Ok(Some(Self(Arc::new(Inner { prefix: parent, only, ..(*self.0).clone() }))))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(read::store_error(error, "cannot be looked up").at_object(self.url())),
        }
    }

    /// Streams all objects below the prefix, in no promised order. Folders of a bucket are listed 16 at a time.
    ///
    /// Objects whose name has a part that begins with a dot are left out; empty ones are not. In a local folder, links
    /// to files and folders are followed, except links that lead back into their own path.
    /// Costs one look-up per file: 10,000 files take about 30 ms when the folder is warm.
    pub fn list(&self) -> BoxStream<'static, Result<Object>> {
        let source = self.clone();
        async_stream::try_stream! {
            if let Some(name) = source.only() {
                let path = source.path(name)?;
                let head = answer::with_answer(source.0.store.head(&path)).await;
                let meta = head.map_err(|e| read::store_error(e, "cannot be looked up").at_object(source.url()))?;
                yield Object { name: name.to_owned(), size: meta.size, etag: meta.e_tag };
            } else if let Some(folder) = &source.0.folder {
                for (count, object) in walk::Walk::new(folder.clone(), source.clone()).enumerate() {
                    yield object?;
                    // About a millisecond of a warm disk: whoever opens a dataset shares its runtime with others.
                    if count % 256 == 255 {
                        tokio::task::yield_now().await;
                    }
                }
            } else {
                let prefix = &source.0.prefix;
                let mut metas = source.0.store.list((!prefix.is_root()).then_some(prefix));
                loop {
                    let next = answer::with_answer(metas.try_next()).await;
                    let next = next.map_err(|e| read::store_error(e, "cannot be listed").at_object(source.url()))?;
                    let Some(meta) = next else { break };
                    if let Some(object) = source.shown(meta) {
                        yield object;
                    }
                }
            }
        }
        .boxed()
    }

    /// Everything that [`list`](Self::list) gives, in the order of names; of a bucket, from the manifest if that is
    /// right, which is kept in `manifests` or where the variables say.
    pub(crate) async fn objects(&self, manifests: Option<&std::path::Path>) -> Result<Vec<Object>> {
        #[cfg(feature = "s3")]
        if let (Some(remote), None) = (&self.0.remote, self.only()) {
            return known::objects(self, remote, manifests).await;
        }
        let _ = manifests;
        let mut objects: Vec<Object> = self.list().try_collect().await?;
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    /// This place, as every process calls it: a folder, or the endpoint that was found, bucket and prefix.
    fn place(&self) -> Fingerprint {
        if let Some(folder) = self.folder() {
            return Fingerprint::of("folder").bytes(folder.as_os_str().as_encoded_bytes()).finish();
        }
        // A profile may name another endpoint than the variables do.
        let endpoint = self.connection().map(|connection| connection.endpoint);
        Fingerprint::of("place").text(endpoint.as_deref().unwrap_or(self.store())).text(self.url()).finish()
    }

    /// Where what is found out about this place is kept, in `chosen` or where the variables say; `None` for nowhere.
    /// `manifest.rs` says what is kept, and when it is believed.
    pub(crate) fn manifest(&self, kind: &str, chosen: Option<&std::path::Path>) -> Option<Manifest> {
        // No other process could know them again.
        let passes = self.folder().is_none() && (self.store().is_empty() || self.store().starts_with("memory "));
        if passes && chosen.is_none() {
            return None;
        }
        #[cfg(feature = "s3")]
        let own = self.0.remote.as_ref().map(|remote| remote.vars().clone());
        #[cfg(not(feature = "s3"))]
        let own = None;
        let vars = own.unwrap_or_else(connect::Vars::process);
        Manifest::folder(&vars, chosen).map(|dir| Manifest::new(&dir, self.place(), kind))
    }

    /// What a listing shows of an object of the store, if it does.
    fn shown(&self, meta: object_store::ObjectMeta) -> Option<Object> {
        let location = meta.location.as_ref();
        let name = location.strip_prefix(self.0.prefix.as_ref()).unwrap_or(location).trim_start_matches('/');
        let hidden = name.is_empty() || name.split('/').any(|part| part.starts_with('.'));
        (!hidden).then(|| Object { name: name.to_owned(), size: meta.size, etag: meta.e_tag })
    }

    /// Reads some bytes of an object.
    ///
    /// Behind a network the request waits for its turn under the store's limit; it is repeated up to three times after
    /// a failure, a short answer or a deadline (10 s, more for large ranges), and gets a second copy when it takes much
    /// longer than usual. This needs a tokio runtime with timers.
    ///
    /// # Errors
    /// An answer that stays short is an `Io` error that names object and range, a missing object `NotFound`, a refused
    /// one `Denied`. Cancel safe: dropping the future drops its requests.
    pub async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        Extent::part(self, name, range).read().await
    }

    /// Starts reading some bytes on this thread, which must not be one of an async runtime.
    ///
    /// In two steps, so that a caller can promise that no read *begins* after some moment and yet not hold a lock
    /// while bytes are copied: this one opens the file, [`InlineRead::read_into`] reads it.
    pub fn open_inline(&self, name: &str, range: Range<u64>) -> Result<InlineRead> {
        self.begin_inline(name, range, None)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.url())
    }
}

#[cfg(test)]
mod tests;
