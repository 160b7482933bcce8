//! A store and a prefix.

use std::{
    fmt,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    report::Stage,
};
use object_store::{ObjectStore, path::Path};

use super::{Connection, Manifest, Requests, checksum::Trust, connect};

/// Long enough for common outages of a store: a restart, a new leader, a moment without network. After that it is
/// better to report an error.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A place that holds objects: a folder, a RAM disk, an in-memory store, a bucket with a prefix. A clone is another
/// handle to the same place.
#[derive(Clone)]
pub struct Source(pub(super) Arc<Inner>);

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// As the user wrote it, without a `/` at the end.
    pub(super) url: String,
    pub(super) inline: bool,
    /// Shared by all readers of this store in this process.
    pub(super) requests: Arc<Requests>,
    /// What this store's ETags are; shared by all readers of this store in this process.
    pub(super) trust: Arc<Trust>,
    /// Identifies the store in caches, in addition to the url: its endpoint.
    pub(super) store_name: Arc<str>,
    /// The folder of `prefix`, if it is on this machine: listed without the store, see `listing`.
    pub(super) folder: Option<PathBuf>,
    /// The manifest from which sizes were taken without checking them. It is discarded if one of them is wrong.
    pub(super) believed: Arc<Mutex<Option<Manifest>>>,
    /// How long to wait for a store that is down.
    pub(super) patience: Duration,
    /// A web server: it serves files, but may not list them.
    pub(super) web: bool,
    /// The only object, if the user named one; `url` ends with it.
    pub(super) only: Option<String>,
    /// The same as `store`, if that is a bucket with its own credentials.
    #[cfg(feature = "s3")]
    pub(super) remote: Option<connect::Remote>,
    /// The same as `store`, if that is a dataset of the hub.
    #[cfg(feature = "http")]
    pub(super) hub: Option<connect::Hub>,
}

impl Source {
    /// Finds the credentials and region of a bucket, or the token and commit of a dataset of the hub. Does nothing for
    /// other sources. Needs a tokio runtime with I/O and time. `open` calls it, and so does the first read; later calls
    /// return at once.
    ///
    /// | what | the first of these that exists |
    /// |---|---|
    /// | credentials | `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` (`AWS_SESSION_TOKEN`); `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`; the profile `AWS_PROFILE`, else `default`, of `~/.aws/credentials` and `~/.aws/config`; `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `_FULL_URI`; the instance's role. None with `AWS_SKIP_SIGNATURE=true` |
    /// | region | an access point's ARN, `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile, a request to the bucket, `us-east-1` |
    /// | endpoint | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile's `services` and `endpoint_url` (none of them with `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true`), AWS. Plain HTTP needs `AWS_ALLOW_HTTP=true` |
    /// | authority | `AWS_CA_BUNDLE`, `SSL_CERT_FILE`, the profile's `ca_bundle`, in addition to the system's |
    ///
    /// `docs/buckets.md` lists the other settings. Any other `AWS_*` variable or profile key that could concern a
    /// bucket is named in a warning. Connecting takes at most 10 seconds in all. If the bucket turns out to be in
    /// another region, it is read there, with a warning. An expired session token is renewed once.
    ///
    /// For `hf://`, the token is `HF_TOKEN`, or the file `HF_TOKEN_PATH`, `$HF_HOME/token` or
    /// `~/.cache/huggingface/token`; without any, public datasets can be read. The endpoint is `HF_ENDPOINT`, or
    /// `https://huggingface.co`; plain HTTP needs `ALLOW_HTTP=true`, except on this machine. The branch is looked up
    /// here. From then on this source and its handles read the [commit](Connection::commit) that was found.
    ///
    /// # Errors
    /// `Denied` without credentials, with the list of what was tried; `Unsupported` for a profile with `mfa_serial`,
    /// with the command that helps; `Config` for invalid variables.
    pub async fn connect(&self) -> Result<()> {
        #[cfg(feature = "s3")]
        if let Some(remote) = &self.0.remote {
            remote.connect().await?;
        }
        #[cfg(feature = "http")]
        if let Some(hub) = &self.0.hub {
            hub.connect().await?;
        }
        Ok(())
    }

    /// How a bucket of `s3://` or a dataset of `hf://` was reached; `None` before [`connect`](Self::connect), and for
    /// other sources.
    #[must_use]
    pub fn connection(&self) -> Option<Connection> {
        #[cfg(feature = "s3")]
        if let Some(remote) = &self.0.remote {
            return remote.connection();
        }
        #[cfg(feature = "http")]
        if let Some(hub) = &self.0.hub {
            return hub.connection();
        }
        None
    }

    /// A store made by the caller; reads run on the engine's runtime. `url` is its name in messages.
    ///
    /// If it is one of `object_store`'s own behind HTTP, build it with [`Connector`](super::Connector) and without
    /// retries. Any other store can report by [`Refusal`](super::Refusal) what it was answered. A failure without such
    /// a report is retried up to seven times.
    #[must_use]
    pub fn from_store(store: Arc<dyn ObjectStore>, prefix: Path, url: &str) -> Self {
        let url = tidy(url);
        Self(Arc::new(Inner {
            store,
            prefix,
            url,
            inline: false,
            requests: Requests::new(),
            trust: Arc::default(),
            store_name: "".into(),
            folder: None,
            believed: Arc::default(),
            patience: PATIENCE,
            web: false,
            only: None,
            #[cfg(feature = "s3")]
            remote: None,
            #[cfg(feature = "http")]
            hub: None,
        }))
    }

    /// How long a store behind a network may give neither bytes nor a clear refusal before a read returns an error.
    /// Default: 60 s. Counted from the last answer that any request of this process got from the store. A request that
    /// fails while the store answers others is retried a few times; then it is an error of its object.
    ///
    /// Until then, reads and listings retry, at most two seconds apart, and so do the writes of `prepare`. A store that
    /// has never answered gets only 10 s, because its endpoint may be mistyped. This does not apply to local files.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        #[cfg(feature = "s3")]
        if let Some(remote) = &self.0.remote {
            remote.set_patience(patience);
        }
        #[cfg(feature = "http")]
        if let Some(hub) = &self.0.hub {
            hub.set_patience(patience);
        }
        Arc::make_mut(&mut self.0).patience = patience;
        self
    }

    /// The value set by [`with_patience`](Self::with_patience).
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.0.patience
    }

    /// The same place, read on the threads that use the bytes. For stores that answer without a runtime and without
    /// long waits, such as files, memory maps and RAM.
    #[must_use]
    pub fn inline(mut self) -> Self {
        Arc::make_mut(&mut self.0).inline = true;
        self
    }

    /// The same place. Its requests share the limits of every other source of this process with the same `store`
    /// (endpoint and bucket).
    pub(crate) fn sharing_requests(mut self, store: &str) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        (inner.requests, inner.store_name) = (Requests::shared(store), store.into());
        inner.trust = Trust::shared(store);
        self
    }

    /// Distinguishes stores with equal urls.
    #[doc(hidden)]
    pub fn store(&self) -> &str {
        &self.0.store_name
    }

    /// Equal for handles to the same place.
    #[doc(hidden)]
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Whether files have to be looked up one by one, because the server may offer no listing.
    #[doc(hidden)]
    pub fn is_web(&self) -> bool {
        self.0.web
    }

    /// Whether its commit may be taken from the job's listing, which saves each rank a look-up.
    #[doc(hidden)]
    pub fn has_commits(&self) -> bool {
        #[cfg(feature = "http")]
        return self.0.hub.is_some();
        #[cfg(not(feature = "http"))]
        false
    }

    /// Reads this commit, unless a commit was found before.
    #[cfg_attr(not(feature = "http"), allow(unused_variables, clippy::unused_self, reason = "there is no hub"))]
    pub(super) fn pin(&self, commit: &str) -> Result<()> {
        #[cfg(feature = "http")]
        if let Some(hub) = &self.0.hub {
            hub.pin(commit)?;
        }
        Ok(())
    }

    /// As the user wrote it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Whether reads should run on the thread that uses their bytes, blocking it (local files), instead of as tasks of
    /// the engine's runtime (everything behind a network).
    #[must_use]
    pub fn reads_inline(&self) -> bool {
        self.0.inline
    }

    /// The only object of this source, if the source was opened by the name of an object.
    #[must_use]
    pub fn only(&self) -> Option<&str> {
        self.0.only.as_deref()
    }

    /// The folder that holds the only object of this source, with everything in it; `None` for any other source.
    #[doc(hidden)]
    #[must_use]
    pub fn around(&self) -> Option<Self> {
        let url = self.0.url.strip_suffix(self.only()?)?;
        let url = url.strip_suffix('/').filter(|url| !url.is_empty() && !url.ends_with('/')).unwrap_or(url).to_owned();
        Some(Self(Arc::new(Inner { only: None, url, ..(*self.0).clone() })))
    }

    /// An object's name as the user would write it, for messages.
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

    /// The local folder of this source, if it has one.
    #[doc(hidden)]
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.0.folder.as_deref()
    }

    /// The part of this source below the folder `name`.
    pub fn child(&self, name: &str) -> Result<Self> {
        let prefix = self.path(name)?;
        let folder = self.0.folder.as_ref().map(|f| f.join(name));
        Ok(Self(Arc::new(Inner { prefix, folder, url: self.display_name(name), ..(*self.0).clone() })))
    }

    /// Whether an object with this name could be read; makes no request. A listing can contain names that can't be
    /// requested.
    #[doc(hidden)]
    pub fn check_name(&self, name: &str) -> Result<()> {
        if is_plain(name) {
            return Ok(());
        }
        self.path(name).map(drop)
    }

    /// Where the store keeps the object. Names are raw: `Path::from` would escape them again.
    pub(super) fn path(&self, name: &str) -> Result<Path> {
        let prefix = self.0.prefix.as_ref();
        let path = if prefix.is_empty() { Path::parse(name) } else { Path::parse(format!("{prefix}/{name}")) };
        path.map_err(|e| {
            Error::new(ErrorKind::Unsupported, "not a name that can be read")
                .at_stage(Stage::Fetch)
                .at_object(self.display_name(name))
                .with_hint("rename it without control characters, `.` and `..`")
                .with_source(e)
        })
    }

    pub(super) fn at(&self, error: Error, name: &str, range: &Range<u64>) -> Error {
        // The file's length differs from the listed one.
        if error.kind() == ErrorKind::Corrupt {
            let believed = self.0.believed.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(manifest) = believed {
                manifest.forget(&format!("{} was written again in its place", self.display_name(name)));
            }
        }
        error.at_stage(Stage::Fetch).at_object(self.display_name(name)).at_range(range.clone())
    }

    /// Remembers to discard `manifest` if a file turns out to have another length, so that the next opening lists
    /// again.
    pub(super) fn believe(&self, manifest: Manifest) {
        *self.0.believed.lock().unwrap_or_else(PoisonError::into_inner) = Some(manifest);
    }

    /// This place, identified in the same way by every process: a folder, or endpoint, bucket and prefix.
    pub(super) fn place(&self) -> Fingerprint {
        if let Some(folder) = self.folder() {
            return Fingerprint::of("folder").bytes(folder.as_os_str().as_encoded_bytes()).finish();
        }
        // A profile may name another endpoint than the variables.
        let endpoint = self.connection().map(|connection| connection.endpoint);
        Fingerprint::of("place").text(endpoint.as_deref().unwrap_or(self.store())).text(self.url()).finish()
    }

    /// Where facts about this place are kept, in `chosen` or where the variables point; `None` if nowhere.
    /// `manifest.rs` describes what is kept and when it is trusted.
    #[doc(hidden)]
    pub fn manifest(&self, kind: &str, chosen: Option<&std::path::Path>) -> Option<Manifest> {
        // Such a store exists in this process only, so no other process could use the facts.
        let passes = self.folder().is_none() && (self.store().is_empty() || self.store().starts_with("memory "));
        if passes && chosen.is_none() {
            return None;
        }
        #[cfg(feature = "s3")]
        let vars = self.0.remote.as_ref().map_or_else(connect::Vars::process, |remote| remote.vars().clone());
        #[cfg(not(feature = "s3"))]
        let vars = connect::Vars::process();
        Manifest::folder(&vars, chosen).map(|dir| Manifest::new(&dir, self.place(), kind))
    }

    /// Where the listing of this local folder is kept, if a place was set for it.
    pub(super) fn folder_manifest(&self, chosen: Option<&std::path::Path>) -> Option<Manifest> {
        let dir = Manifest::named(&connect::Vars::process(), chosen)?;
        Some(Manifest::new(&dir, self.place(), "folder"))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({})", self.url())
    }
}

/// Without the `/` at the end, unless the url is nothing else.
pub(super) fn tidy(url: &str) -> String {
    match url.trim_end_matches('/') {
        "" | "file:" => url.to_owned(),
        tidy => tidy.to_owned(),
    }
}

/// Names that the store would refuse are passed to it, so that the error is the store's.
pub(super) fn is_plain(name: &str) -> bool {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    !name.split('/').any(bad) && !name.bytes().any(|byte| byte.is_ascii_control())
}
