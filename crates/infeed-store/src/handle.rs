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

use super::{Connection, Manifest, Requests, connect, verify::Trust};

/// Rides out what stores usually do: a restart, a new leader, a moment without network. A trainer would rather know after that.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// A place that holds objects: a folder, a RAM disk, an in-memory store, a bucket and a prefix. Cloning gives another
/// handle.
#[derive(Clone)]
pub struct Source(pub(super) Arc<Inner>);

#[derive(Clone)]
pub(super) struct Inner {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) prefix: Path,
    /// As the user wrote it, without a `/` at the end.
    pub(super) url: String,
    pub(super) inline: bool,
    /// Shared by all who read from this store in this process.
    pub(super) requests: Arc<Requests>,
    /// What its ETags are, known by all who read from this store in this process.
    pub(super) trust: Arc<Trust>,
    /// Names the store to caches, beside the url: its endpoint.
    pub(super) store_name: Arc<str>,
    /// The folder of `prefix`, when it is one of this machine: listed without the store, see `walk`.
    pub(super) folder: Option<PathBuf>,
    /// Where sizes were taken from that nobody has looked up since: forgotten when one of them is wrong.
    pub(super) believed: Arc<Mutex<Option<Manifest>>>,
    /// How long an outage of the store is waited for.
    pub(super) patience: Duration,
    /// A web server: it can be asked for files, and perhaps not for a list of them.
    pub(super) web: bool,
    /// The only object, when the user named one; `url` ends with it.
    pub(super) only: Option<String>,
    /// The same as `store`, where that is a bucket which connects itself.
    #[cfg(feature = "s3")]
    pub(super) remote: Option<connect::Remote>,
    /// The same as `store`, where that is a dataset of the hub.
    #[cfg(feature = "http")]
    pub(super) hub: Option<connect::Hub>,
}

impl Source {
    /// Finds credentials and region of a bucket, token and commit of a dataset of the hub; of everything else, does nothing. Needs a tokio runtime with I/O and
    /// time. `open`) does it, and so does the first read; later calls return at once.
    ///
    /// | what | from, the first that is there |
    /// |---|---|
    /// | credentials | `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY` (`AWS_SESSION_TOKEN`); `AWS_WEB_IDENTITY_TOKEN_FILE` and `AWS_ROLE_ARN`; the profile `AWS_PROFILE`, else `default`, of `~/.aws/credentials` and `~/.aws/config`; `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `_FULL_URI`; the instance's role. None with `AWS_SKIP_SIGNATURE=true` |
    /// | region | an access point's ARN, `AWS_REGION`, `AWS_DEFAULT_REGION`, the profile, the bucket when asked, `us-east-1` |
    /// | endpoint | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, the profile's `services` and `endpoint_url` (none of them with `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS=true`), AWS. Plain HTTP needs `AWS_ALLOW_HTTP=true` |
    /// | authority | `AWS_CA_BUNDLE`, `SSL_CERT_FILE`, the profile's `ca_bundle`: beside the system's |
    ///
    /// `docs/buckets.md` has what counts beside them; any other `AWS_*` variable or key of the profile that could concern a
    /// bucket is named in a warning. Everything together takes
    /// at most 10 seconds. A bucket that turns out to be in another region is read there, with a warning; an expired
    /// session token is asked for once more.
    ///
    /// Of `hf://`: the token is `HF_TOKEN`, else the file `HF_TOKEN_PATH`, `$HF_HOME/token` or
    /// `~/.cache/huggingface/token`, else none, which is enough for what is public. The endpoint is `HF_ENDPOINT`, else
    /// `https://huggingface.co`; plain HTTP needs `ALLOW_HTTP=true` but on this machine. The branch is looked up here, and
    /// the [commit](Connection::commit) that was found is what this source and its handles read from then on.
    ///
    /// # Errors
    /// `Denied` without credentials, with what was tried; `Unsupported` for a profile with `credential_process` or
    /// single sign-on, with the command that helps; `Config` for variables that can't be.
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

    /// How a bucket of `s3://` or a dataset of `hf://` was reached; `None` before [`connect`](Self::connect), and for everything else.
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

    /// A store made by the caller; reads go through the engine's runtime. `url` is what messages call it.
    ///
    /// One of `object_store`'s own behind HTTP is best built with [`Connector`](super::Connector), and without retries;
    /// any other tells by [`Refusal`](super::Refusal) what it was answered. A failure that tells nothing is tried three
    /// times more.
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

    /// How long a store behind a network may give nothing, neither bytes nor a clear no, before whoever waits for it gets
    /// an error. Default: 60 s. Counted from the last answer that anybody in this process got from it; what fails while
    /// others are answered is asked for again some times, and is an error of its object then.
    ///
    /// Until then reads and listings go on asking, every two seconds at most, and so do the writes of
    /// `prepare`. A store that has never answered gets 10 s of it: an endpoint may be mistyped. Local
    /// files are never waited for.
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

    /// See [`with_patience`](Self::with_patience).
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.0.patience
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
        inner.trust = Trust::shared(store);
        self
    }

    /// Tells stores apart whose urls are the same.
    #[doc(hidden)]
    pub fn store(&self) -> &str {
        &self.0.store_name
    }

    /// The same number for handles to the same place.
    #[doc(hidden)]
    pub fn identity(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// Whether files are looked up one by one: a listing may not be had.
    #[doc(hidden)]
    pub fn is_web(&self) -> bool {
        self.0.web
    }

    /// Whether its commit may be taken from a job's listing, which spares each rank to look it up.
    #[doc(hidden)]
    pub fn has_commits(&self) -> bool {
        #[cfg(feature = "http")]
        return self.0.hub.is_some();
        #[cfg(not(feature = "http"))]
        false
    }

    /// Reads this commit, unless one was found before.
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

    /// Whether an object of this name could be read, without asking for it: what a listing gave is not always a name that
    /// can be asked for.
    #[doc(hidden)]
    pub fn check_name(&self, name: &str) -> Result<()> {
        if is_plain(name) {
            return Ok(());
        }
        self.path(name).map(drop)
    }

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
        // Of a file: that it has another length than was listed.
        if error.kind() == ErrorKind::Corrupt {
            let believed = self.0.believed.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(manifest) = believed {
                manifest.forget(&format!("{} was written again in its place", self.display_name(name)));
            }
        }
        error.at_stage(Stage::Fetch).at_object(self.display_name(name)).at_range(range.clone())
    }

    /// Has `manifest` forgotten when a file turns out to have another length, so that the next opening lists again.
    pub(super) fn believe(&self, manifest: Manifest) {
        *self.0.believed.lock().unwrap_or_else(PoisonError::into_inner) = Some(manifest);
    }

    /// This place, as every process calls it: a folder, or the endpoint that was found, bucket and prefix.
    pub(super) fn place(&self) -> Fingerprint {
        if let Some(folder) = self.folder() {
            return Fingerprint::of("folder").bytes(folder.as_os_str().as_encoded_bytes()).finish();
        }
        // A profile may name another endpoint than the variables do.
        let endpoint = self.connection().map(|connection| connection.endpoint);
        Fingerprint::of("place").text(endpoint.as_deref().unwrap_or(self.store())).text(self.url()).finish()
    }

    /// Where what is found out about this place is kept, in `chosen` or where the variables say; `None` for nowhere.
    /// `manifest.rs` says what is kept, and when it is believed.
    #[doc(hidden)]
    pub fn manifest(&self, kind: &str, chosen: Option<&std::path::Path>) -> Option<Manifest> {
        // No other process could know them again.
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

    /// Where the listing of this folder of the machine is kept, if a place was named for it.
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

/// Without the `/` at the end, unless there is nothing else.
pub(super) fn tidy(url: &str) -> String {
    match url.trim_end_matches('/') {
        "" | "file:" => url.to_owned(),
        tidy => tidy.to_owned(),
    }
}

/// Names that the store would refuse are left to it: the error is its own.
pub(super) fn is_plain(name: &str) -> bool {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    !name.split('/').any(bad) && !name.bytes().any(|byte| byte.is_ascii_control())
}
