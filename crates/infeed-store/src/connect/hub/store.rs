//! A dataset of the hub as a read-only store.

use std::{
    collections::HashMap,
    fmt,
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::jitter,
    report::Stage,
};
use object_store::{
    ClientOptions, CopyOptions, Error as StoreError, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody, HttpResponse},
    path::Path,
};
use reqwest::{
    Method,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, RANGE},
};
use tokio::{runtime::Handle, sync::OnceCell, time::Instant};
use url::Url;

use super::{
    super::{
        Connection, Connector, Vars,
        connector::{PAGE, gather},
    },
    name::Repo,
    refusal::{Doing, explain},
    token::{self, Token},
    tree,
};
use crate::{
    answer::{Answer, Refusal, Remedy, note, our_error, with_answer},
    checksum::{SentChecksums, Sum},
    connect::keys::Pages,
};

/// The same as for buckets, in `s3.rs`.
const CONNECT: Duration = Duration::from_secs(3);
const READ: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(120);
const FIRST_CONTACT: Duration = Duration::from_secs(10);
const BACK_OFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// The most redirects followed for one answer: one for a renamed dataset, one for files that the hub stores itself.
const HOPS: usize = 5;
/// The most signed urls kept, of a kilobyte each: needed for files that are read by range again and again, not for
/// files that are read whole.
const TARGETS: usize = 1024;
/// The hub's rate limits have windows of five minutes; even if it asks for more, no pause is longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The most bytes of an answer that comes whole although a part was requested. The hub itself stores files up to 10 MB.
const AT_MOST: usize = 32 << 20;

type Store<T> = object_store::Result<T>;

/// A dataset of the hub. A clone is another handle.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Inner>);

struct Inner {
    repo: Repo,
    url: String,
    endpoint: Url,
    vars: Vars,
    live: OnceCell<Live>,
    client: OnceLock<HttpClient>,
    /// Addresses of files that the hub stores elsewhere.
    targets: Mutex<HashMap<Path, Target>>,
    /// Until when the hub asked to get no requests.
    pause: Mutex<Option<Instant>>,
    /// How long to wait during an outage, in milliseconds.
    patience: AtomicU64,
    /// Whether it has answered any request.
    reached: AtomicBool,
}

/// What all requests need.
struct Live {
    commit: String,
    token: Token,
}

/// A signed url, and the hash of its file.
#[derive(Clone)]
struct Target {
    url: Url,
    tag: Option<String>,
}

/// The hub's answer, after redirects to itself.
struct Answered {
    response: HttpResponse,
    /// Set if it redirects to another host.
    elsewhere: Option<Url>,
    /// The file's hash, if an answer contained it.
    tag: Option<String>,
    size: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wraps one of infeed's errors in object_store's.
fn wrap(error: Error) -> StoreError {
    StoreError::Generic { store: "hub", source: Box::new(error) }
}

fn broken(error: object_store::client::HttpError) -> StoreError {
    StoreError::Generic { store: "hub", source: Box::new(error) }
}

impl Hub {
    /// Sends no request yet.
    ///
    /// # Errors
    /// `Config` for an invalid endpoint.
    pub(crate) fn new(repo: Repo, url: &str, vars: Vars) -> Result<Self> {
        let endpoint = token::endpoint(&vars).map_err(|e| e.at_object(url))?;
        Ok(Self(Arc::new(Inner {
            repo,
            url: url.to_owned(),
            endpoint,
            vars,
            live: OnceCell::new(),
            client: OnceLock::new(),
            targets: Mutex::default(),
            pause: Mutex::default(),
            patience: AtomicU64::new(0),
            reached: AtomicBool::new(false),
        })))
    }

    /// The name under which its requests are limited: the hub limits them per user, not per dataset.
    pub(crate) fn store(&self) -> String {
        format!("hf {}", self.0.endpoint.as_str().trim_end_matches('/'))
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.0.patience.store(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn patience(&self) -> Duration {
        let patience = Duration::from_millis(self.0.patience.load(Ordering::Relaxed));
        if self.0.reached.load(Ordering::Relaxed) { patience } else { patience.min(FIRST_CONTACT) }
    }

    /// Finds the token and the commit, unless they are known already.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.live().await.map(|_| ())
    }

    /// Uses this commit without a request, unless one was found before.
    pub(crate) fn pin(&self, commit: &str) -> Result<()> {
        let token = token::find(&self.0.vars)?;
        // The first caller's commit stays. The listing that is read next shows whether it belongs to that commit.
        let _ = self.0.live.set(Live { commit: commit.to_owned(), token });
        Ok(())
    }

    /// How the hub was reached; `None` before that.
    pub(crate) fn connection(&self) -> Option<Connection> {
        let live = self.0.live.get()?;
        Some(Connection {
            provider: live.token.provider.clone(),
            region: String::new(),
            endpoint: self.endpoint().to_owned(),
            path_style: true,
            requester_pays: false,
            commit: Some(live.commit.clone()),
        })
    }

    async fn live(&self) -> Result<&Live> {
        self.0
            .live
            .get_or_try_init(|| self.look_up())
            .await
            .map_err(|e| e.at_stage(Stage::Open).at_object(self.0.url.as_str()))
    }

    async fn look_up(&self) -> Result<Live> {
        let Inner { repo, vars, .. } = &*self.0;
        let mut live = Live { commit: String::new(), token: token::find(vars)? };
        let url = self.page(&["api", "datasets", &repo.owner, &repo.name, "revision", &repo.revision]);
        let answered = self.ask(&live.token, Method::GET, url, Doing::Revision).await;
        let failed = |error: StoreError| match our_error(&error) {
            Some(ours) => ours.clone(),
            None => Error::new(ErrorKind::Io, format!("the hub {} does not answer", self.endpoint()))
                .with_hint("check HF_ENDPOINT and the network")
                .with_source(error),
        };
        let (body, ended) = gather(answered.map_err(failed)?.response.into_body(), PAGE).await;
        ended.map_err(|e| failed(broken(e)))?;
        let told: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        let commit = told.get("sha").and_then(|sha| sha.as_str()).unwrap_or_default();
        if commit.is_empty() || !commit.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Error::new(ErrorKind::Io, "the hub did not return the commit of the revision")
                .with_hint("check HF_ENDPOINT, and whether there is a proxy or a log-in page in between"));
        }
        commit.clone_into(&mut live.commit);
        let (revision, provider) = (&repo.revision, &live.token.provider);
        tracing::info!(dataset = %repo, revision, commit, token = provider, "the hub returned the commit");
        Ok(live)
    }

    fn endpoint(&self) -> &str {
        self.0.endpoint.as_str().trim_end_matches('/')
    }

    /// The url of a page of the hub. Each part is one segment, in which slashes are escaped.
    fn page(&self, parts: &[&str]) -> Url {
        let mut url = self.0.endpoint.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(parts);
        }
        url
    }

    /// The page of a file or folder at the commit.
    fn page_of(&self, start: &[&str], kind: &str, live: &Live, path: &str) -> Url {
        let Repo { owner, name, .. } = &self.0.repo;
        let mut parts = [start, &["datasets", owner, name, kind, &live.commit]].concat();
        parts.extend(path.split('/').filter(|part| !part.is_empty()));
        self.page(&parts)
    }

    /// Created once. It keeps one client per runtime.
    fn client(&self) -> Store<&HttpClient> {
        if Handle::try_current().is_err() {
            return Err(wrap(
                Error::config("reading hf:// needs a tokio runtime with I/O and time enabled")
                    .with_hint("await it in tokio, or use a Loader"),
            ));
        }
        if let Some(client) = self.0.client.get() {
            return Ok(client);
        }
        let options = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_read_timeout(READ)
            .with_timeout(WHOLE)
            .with_allow_http(self.0.endpoint.scheme() == "http");
        let client = Connector::default().connect(&options)?;
        Ok(self.0.client.get_or_init(|| client))
    }

    fn is_ours(&self, url: &Url) -> bool {
        url.origin() == self.0.endpoint.origin()
    }

    /// Sends one request. The token is sent only to the hub.
    async fn send(&self, token: &Token, method: &Method, url: &Url, range: Option<&str>) -> Store<HttpResponse> {
        let mut request = HttpRequest::new(HttpRequestBody::empty());
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.as_str().parse().map_err(|_| {
            wrap(Error::new(ErrorKind::Io, "the hub redirects to an invalid url").with_hint("check HF_ENDPOINT"))
        })?;
        let headers = request.headers_mut();
        // A compressed answer would have another length.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(range) = range {
            headers.insert(RANGE, HeaderValue::try_from(range).expect("digits and signs"));
        }
        if let (Some(token), true) = (&token.header, self.is_ours(url)) {
            headers.insert(AUTHORIZATION, token.clone());
        }
        let response = self.client()?.execute(request).await.map_err(broken)?;
        if self.is_ours(url) {
            self.0.reached.store(true, Ordering::Relaxed);
            if response.status().as_u16() == 429 {
                let pause = retry_after(response.headers()).unwrap_or_default().min(LONGEST_PAUSE);
                *lock(&self.0.pause) = Some(Instant::now() + pause);
            }
        }
        Ok(response)
    }

    /// How long to wait until the hub may be asked again.
    fn pause(&self) -> Duration {
        lock(&self.0.pause).map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()))
    }

    /// Sends a request to the hub, following redirects within the hub.
    async fn at_home(&self, token: &Token, method: &Method, mut url: Url, range: Option<&str>) -> Store<Answered> {
        let (mut tag, mut size) = (None, None);
        for _ in 0..HOPS {
            if !self.pause().is_zero() {
                note(Some(Answer::Refused(Refusal::new(429))));
                return Err(StoreError::Generic { store: "hub", source: Refusal::new(429).into() });
            }
            let response = self.send(token, method, &url, range).await?;
            let headers = response.headers();
            let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            tag = tag.or_else(|| text("x-linked-etag").map(bare));
            size = size.or_else(|| text("x-linked-size")?.parse().ok());
            if !response.status().is_redirection() {
                let success = response.status().is_success();
                tag = tag.or_else(|| Some(bare(text(ETAG.as_str())?)).filter(|_| success));
                return Ok(Answered { response, elsewhere: None, tag, size });
            }
            let next = text("location").and_then(|to| url.join(to).ok()).ok_or_else(|| {
                wrap(Error::new(ErrorKind::Io, "the hub redirects without a location").with_hint("check HF_ENDPOINT"))
            })?;
            if !self.is_ours(&next) {
                return Ok(Answered { response, elsewhere: Some(next), tag, size });
            }
            url = next;
        }
        Err(wrap(
            Error::new(ErrorKind::Io, format!("the hub redirects in circles, {HOPS} times"))
                .with_hint("check HF_ENDPOINT"),
        ))
    }

    /// The hub's own answer. Retries during an outage and after the hub's rate limit.
    async fn ask(&self, token: &Token, method: Method, url: Url, doing: Doing) -> Store<Answered> {
        let began = Instant::now();
        let (mut tries, mut told) = (0_u32, false);
        loop {
            let error = match with_answer(self.at_home(token, &method, url.clone(), None)).await {
                Ok(answered) if answered.response.status().is_success() => return Ok(answered),
                // A request for a length does not need the address of the bytes.
                Ok(answered) if answered.elsewhere.is_some() && method == Method::HEAD => return Ok(answered),
                Ok(answered) => self.refused(answered, doing, token),
                Err(error) => error,
            };
            let remedy = Answer::of(&error).map_or(Remedy::None, |answer| answer.remedy());
            let pause = (BACK_OFF[0] * (1 << tries.min(8))).min(BACK_OFF[1]).mul_f64(0.5 + jitter(u64::from(tries)));
            let pause = pause.max(self.pause());
            let patience = self.patience();
            if remedy == Remedy::None || our_error(&error).is_some() {
                return Err(error);
            }
            if began.elapsed() + pause > patience {
                return Err(self.gave_up(error, remedy, pause));
            }
            if !told && began.elapsed() + pause > Duration::from_secs(1) {
                let seconds = patience.as_secs();
                tracing::warn!(dataset = %self.0.repo, seconds, %error, "the hub does not answer; still retrying");
                told = true;
            }
            tries += 1;
            tokio::time::sleep(pause).await;
        }
    }

    fn gave_up(&self, error: StoreError, remedy: Remedy, pause: Duration) -> StoreError {
        let ours = match remedy {
            Remedy::FewerRequests => {
                let what = format!("the hub {} receives too many requests", self.endpoint());
                let hint = match pause.as_millis().div_ceil(1000) {
                    0..3 => "wait some minutes; with HF_TOKEN more requests are allowed".to_owned(),
                    seconds => format!("it asks to wait for {seconds} s; with HF_TOKEN more requests are allowed"),
                };
                Error::new(ErrorKind::Io, what).with_hint(hint)
            }
            _ => Error::new(ErrorKind::Io, format!("the hub {} cannot be reached", self.endpoint()))
                .with_hint("check HF_ENDPOINT and the network"),
        };
        wrap(match Answer::of(&error) {
            Some(answer) => answer.cause_of(ours),
            None => ours,
        })
    }

    /// The error for a refusal.
    fn refused(&self, answered: Answered, doing: Doing, token: &Token) -> StoreError {
        let Answered { response, elsewhere, .. } = answered;
        let status = response.status().as_u16();
        let path = || self.0.url.clone();
        let refusal = Refusal::new(status);
        if let Some(host) = elsewhere.as_ref().and_then(Url::host_str) {
            let what = format!("the hub {} redirects its own pages to {host}, which is not followed", self.endpoint());
            return wrap(
                Error::config(what).with_hint("set HF_ENDPOINT to that host if it is right").with_source(refusal),
            );
        }
        match explain(status, response.headers(), doing, &self.0.repo, token, self.endpoint()) {
            Some(ours) => wrap(ours.with_source(refusal)),
            None if status == 404 => StoreError::NotFound { path: path(), source: refusal.into() },
            None => StoreError::Generic { store: "hub", source: refusal.into() },
        }
    }

    /// Looks up a file.
    async fn head(&self, live: &Live, at: &Path, known: Option<String>) -> Store<GetResult> {
        let url = self.page_of(&[], "resolve", live, at.as_ref());
        let Answered { response, tag, size, .. } = self.ask(&live.token, Method::HEAD, url, Doing::Reading).await?;
        let size = size.or_else(|| length(response.headers())).ok_or_else(|| {
            wrap(
                Error::new(ErrorKind::Io, "the hub does not send the length of the file")
                    .with_hint("check HF_ENDPOINT"),
            )
        })?;
        let tag = same(known, tag, at)?;
        let told = with_hash(SentChecksums::default(), tag.as_deref());
        Ok(result(at, size, tag, 0..size, told, Bytes::new()))
    }

    /// Reads a file or a part of it.
    async fn get(&self, live: &Live, at: &Path, range: Option<GetRange>, known: Option<String>) -> Store<GetResult> {
        let asked = range.as_ref().map(|range| match range {
            GetRange::Bounded(range) => format!("bytes={}-{}", range.start, range.end - 1),
            GetRange::Offset(from) => format!("bytes={from}-"),
            GetRange::Suffix(last) => format!("bytes=-{last}"),
        });
        let (response, tag) = self.bytes(live, at, asked.as_deref()).await?;
        let tag = same(known, tag, at)?;
        let told = response.extensions().get::<SentChecksums>().copied();
        let (status, size) = (response.status().as_u16(), length(response.headers()));
        let part = response.headers().get(CONTENT_RANGE).and_then(|value| content_range(value.to_str().ok()?));
        match (status, part, size) {
            (206, Some((range, size)), _) => {
                Ok(result(at, size, tag, range, SentChecksums::default(), response.into_body().bytes_stream()))
            }
            (200, _, Some(size)) if range.is_none() => {
                let told = with_hash(told.unwrap_or_default(), tag.as_deref());
                Ok(result(at, size, tag, 0..size, told, response.into_body().bytes_stream()))
            }
            (200, ..) => {
                let all = at_most(response.into_body().bytes_stream()).await?;
                let size = all.len() as u64;
                let range = match range {
                    None => 0..size,
                    Some(range) => {
                        range.as_range(size).map_err(|e| StoreError::Generic { store: "hub", source: e.into() })?
                    }
                };
                let told = with_hash(told.unwrap_or_default(), tag.as_deref());
                let told = if range == (0..size) { told } else { SentChecksums::default() };
                let part = all.slice(range.start as usize..range.end as usize);
                Ok(result(at, size, tag, range, told, part))
            }
            _ => Err(StoreError::Generic { store: "hub", source: Refusal::new(status).into() }),
        }
    }

    /// An answer with the bytes of a file, wherever it is stored.
    async fn bytes(&self, live: &Live, at: &Path, range: Option<&str>) -> Store<(HttpResponse, Option<String>)> {
        let kept = lock(&self.0.targets).get(at).cloned();
        if let Some(Target { url, tag }) = kept {
            let response = self.send(&live.token, &Method::GET, &url, range).await?;
            let status = response.status().as_u16();
            if response.status().is_success() {
                return Ok((response, tag));
            }
            if !(400..=499).contains(&status) || matches!(status, 408 | 416 | 429) {
                return Err(StoreError::Generic { store: "hub", source: Refusal::new(status).into() });
            }
            // Signed urls expire.
            lock(&self.0.targets).remove(at);
            tracing::debug!(file = %at, status, "the storage refuses the hub's signed url; asking for a new one");
        }
        let page = self.page_of(&[], "resolve", live, at.as_ref());
        let answered = self.at_home(&live.token, &Method::GET, page, range).await?;
        let Some(url) = answered.elsewhere.clone() else {
            return match answered.response.status().is_success() {
                true => Ok((answered.response, answered.tag)),
                false => Err(self.refused(answered, Doing::Reading, &live.token)),
            };
        };
        let (mut at_storage, tag) = (url, answered.tag);
        for _ in 0..HOPS {
            let response = self.send(&live.token, &Method::GET, &at_storage, range).await?;
            let status = response.status();
            if status.is_success() {
                let mut targets = lock(&self.0.targets);
                if targets.len() >= TARGETS && !targets.contains_key(at) {
                    targets.clear();
                }
                targets.insert(at.clone(), Target { url: at_storage, tag: tag.clone() });
                return Ok((response, tag));
            }
            if status.is_redirection()
                && let Some(next) =
                    response.headers().get("location").and_then(|to| at_storage.join(to.to_str().ok()?).ok())
            {
                at_storage = next;
                continue;
            }
            let refusal = Refusal::new(status.as_u16());
            if refusal.remedy() != Remedy::None {
                return Err(StoreError::Generic { store: "hub", source: refusal.into() });
            }
            let host = at_storage.host_str().unwrap_or_default();
            return Err(wrap(
                Error::new(ErrorKind::Denied, format!("{host}, to which the hub redirects for the file, refuses it"))
                    .with_hint("check this machine's clock, and any proxy in between")
                    .with_source(refusal),
            ));
        }
        Err(wrap(Error::new(ErrorKind::Io, "the storage of the hub redirects in circles").with_hint("try again")))
    }
}

/// A tag without the quotes and marks of HTTP: a hash in hex digits.
fn bare(tag: &str) -> String {
    tag.trim_start_matches("W/").trim_matches('"').to_owned()
}

/// The tag to return for a file. The listing's hash is the same, or of another kind.
fn same(known: Option<String>, told: Option<String>, at: &Path) -> Store<Option<String>> {
    let hash = |tag: &str| matches!(tag.len(), 40 | 64) && tag.bytes().all(|b| b.is_ascii_hexdigit());
    match (known, told) {
        (Some(known), Some(told)) if hash(&told) && told.len() == known.len() && told != known => {
            let source = format!("the hub has {told} at this commit").into();
            Err(StoreError::Precondition { path: at.to_string(), source })
        }
        (known, told) => Ok(known.or(told)),
    }
}

/// If the storage sends no checksum, the hash of a large file serves as one.
fn with_hash(told: SentChecksums, tag: Option<&str>) -> SentChecksums {
    let sha256 = tag.filter(|tag| tag.len() == 64).and_then(|hex| {
        let mut hash = [0; 32];
        for (byte, digits) in hash.iter_mut().zip(hex.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Sum::Sha256(hash))
    });
    SentChecksums { sum: told.sum.or(sha256), ..told }
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get("retry-after")?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// `bytes 0-9/100`.
fn content_range(text: &str) -> Option<(Range<u64>, u64)> {
    let (range, size) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    (first <= last && last < size).then(|| (first..last + 1, size))
}

/// The bytes of an answer that is longer than requested.
async fn at_most(mut frames: BoxStream<'static, Result<Bytes, object_store::client::HttpError>>) -> Store<Bytes> {
    let mut all = Vec::new();
    while let Some(frame) = frames.try_next().await.map_err(broken)? {
        if all.len() + frame.len() > AT_MOST {
            return Err(wrap(
                Error::new(ErrorKind::Unsupported, "the storage of the hub sends no parts of files")
                    .with_hint("copy the dataset to this machine with `infeed stage`, or check any proxy in between"),
            ));
        }
        all.extend_from_slice(&frame);
    }
    Ok(all.into())
}

/// A body: available at once, or frame by frame.
trait Body {
    fn payload(self) -> BoxStream<'static, Store<Bytes>>;
}

impl Body for Bytes {
    fn payload(self) -> BoxStream<'static, Store<Bytes>> {
        futures::stream::once(async move { Ok(self) }).boxed()
    }
}

impl Body for BoxStream<'static, Result<Bytes, object_store::client::HttpError>> {
    fn payload(self) -> BoxStream<'static, Store<Bytes>> {
        self.map_err(broken).boxed()
    }
}

fn result(
    at: &Path,
    size: u64,
    tag: Option<String>,
    range: Range<u64>,
    told: SentChecksums,
    body: impl Body,
) -> GetResult {
    let mut extensions = object_store::Extensions::new();
    extensions.insert(told);
    GetResult {
        payload: GetResultPayload::Stream(body.payload()),
        meta: ObjectMeta { location: at.clone(), last_modified: Default::default(), size, e_tag: tag, version: None },
        range,
        attributes: object_store::Attributes::default(),
        extensions,
    }
}

fn read_only<T>() -> Store<T> {
    Err(wrap(
        Error::new(ErrorKind::Unsupported, "the hub can only be read")
            .with_hint("write to a folder or a bucket, and upload it with the hub's own tools"),
    ))
}

#[async_trait]
impl ObjectStore for Hub {
    async fn put_opts(&self, _: &Path, _: PutPayload, _: PutOptions) -> Store<PutResult> {
        read_only()
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Store<Box<dyn MultipartUpload>> {
        read_only()
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Store<GetResult> {
        let live = self.live().await.map_err(wrap)?;
        match options.head {
            true => self.head(live, at, options.if_match).await,
            false => self.get(live, at, options.range, options.if_match).await,
        }
    }

    fn delete_stream(&self, _: BoxStream<'static, Store<Path>>) -> BoxStream<'static, Store<Path>> {
        futures::stream::once(async { read_only() }).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Store<ObjectMeta>> {
        let (hub, folder) = (self.clone(), prefix.map(ToString::to_string).unwrap_or_default());
        async_stream::try_stream! {
            let live = hub.live().await.map_err(wrap)?;
            let page = hub.page_of(&["api"], "tree", live, &folder);
            let (mut query, mut seen) = ("recursive=true&expand=false".to_owned(), Pages::default());
            loop {
                let mut url = page.clone();
                url.set_query(Some(&query));
                let response = match hub.ask(&live.token, Method::GET, url, Doing::Listing).await {
                    Ok(answered) => answered.response,
                    // No such folder; it may be a file.
                    Err(StoreError::NotFound { .. }) => break,
                    Err(error) => Err(error)?,
                };
                let next = response.headers().get("link").and_then(|link| tree::next(link.to_str().ok()?));
                let next = next.map(str::to_owned);
                let (body, ended) = gather(response.into_body(), PAGE).await;
                ended.map_err(broken)?;
                let (entries, files) = tree::parse(&body).map_err(wrap)?;
                for file in files {
                    yield file;
                }
                let Some(next) = next else { break };
                seen.next(&folder, entries, &next).map_err(wrap)?;
                query = next;
            }
        }
        .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Store<ListResult> {
        let start = prefix.filter(|path| !path.is_root()).map_or(String::new(), |path| format!("{path}/"));
        let mut found = ListResult { common_prefixes: Vec::new(), objects: Vec::new(), extensions: Default::default() };
        let mut files = self.list(prefix);
        while let Some(file) = files.try_next().await? {
            let below = file.location.as_ref().strip_prefix(&start).unwrap_or_default();
            match below.split_once('/') {
                None => found.objects.push(file),
                Some((folder, _)) => {
                    let folder = Path::parse(format!("{start}{folder}"))?;
                    if !found.common_prefixes.contains(&folder) {
                        found.common_prefixes.push(folder);
                    }
                }
            }
        }
        Ok(found)
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Store<()> {
        read_only()
    }
}

impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf://datasets/{}", self.0.repo)
    }
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = self.0.live.get().map(|live| &live.commit);
        f.debug_struct("Hub").field("repo", &self.0.repo).field("commit", &commit).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SharedList, Source};

    /// A hub with one file that logs its requests; its branch is at another commit each time.
    #[derive(Clone, Debug, Default)]
    struct Asked(Arc<Mutex<Vec<String>>>);

    #[async_trait]
    impl object_store::client::HttpService for Asked {
        async fn call(
            &self,
            request: HttpRequest,
        ) -> std::result::Result<HttpResponse, object_store::client::HttpError> {
            let mut asked = lock(&self.0);
            asked.push(request.uri().path().to_owned());
            let body = match request.uri().path().contains("/revision/") {
                true => format!("{{\"sha\": \"c{}\"}}", asked.len()),
                false => r#"[{"type": "file", "path": "a/1.jpg", "size": 1, "oid": "0123"}]"#.into(),
            };
            Ok(HttpResponse::new(Bytes::from(body).into()))
        }
    }

    impl Asked {
        fn source(&self) -> Source {
            let (repo, prefix) = Repo::parse("datasets/o/n", "hf://datasets/o/n").unwrap();
            let vars = [("HF_ENDPOINT", "https://hub.example")].into_iter().collect();
            let hub = Hub::new(repo, "hf://datasets/o/n", vars).unwrap();
            hub.0.client.set(HttpClient::new(self.clone())).unwrap();
            let Source(mut inner) = Source::from_store(Arc::new(hub.clone()), prefix, "hf://datasets/o/n");
            Arc::make_mut(&mut inner).hub = Some(hub);
            Source(inner)
        }
    }

    #[tokio::test]
    async fn eight_ranks_with_a_listing_ask_no_more_than_one() {
        let (hub, dir) = (Asked::default(), tempfile::tempdir().unwrap());
        let file = dir.path().join("listing").display().to_string();
        let open = async |rank| {
            let source = hub.source();
            let list = SharedList { file: file.clone(), makes: rank == 0 };
            let objects = list.objects(&source, None).await.map_err(|error| error.to_string())?;
            Ok::<_, String>((objects, source.connection().unwrap().commit.unwrap()))
        };
        // All at once, and again after the branch has moved: the commit is that of the listing.
        let ranks: Vec<_> = futures::future::join_all((0..8).rev().map(open)).await;
        let first = ranks[0].clone().unwrap();
        assert_eq!((first.0.len(), first.1.as_str()), (1, "c1"));
        assert!(ranks.into_iter().all(|rank| rank.unwrap() == first));
        assert_eq!(open(0).await.unwrap(), first);
        assert_eq!(*lock(&hub.0), ["/api/datasets/o/n/revision/main", "/api/datasets/o/n/tree/c1"]);
        // A damaged commit belongs to another listing.
        let bytes = std::fs::read(&file).unwrap();
        for damaged in [&b"commit c2"[..], b"commit \xff1", b"commit  1"] {
            std::fs::write(&file, [damaged, &bytes[damaged.len()..]].concat()).unwrap();
            let wrong = open(1).await.unwrap_err();
            assert!(wrong.contains("the listing can't be used"), "{wrong}");
        }
    }
}
