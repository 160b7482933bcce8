//! A store that writes down what is asked of it, and misbehaves on command.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use futures::{FutureExt, StreamExt, stream::BoxStream};
use infeed::source::{Refusal, Source};
use object_store::{
    CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, memory::InMemory,
    path::Path,
};
use tokio::sync::Semaphore;

/// What goes wrong with an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The object is gone.
    NotFound,
    /// Access is refused.
    Denied,
    /// Any other failure, with this text.
    Io(&'static str),
    /// The store answers with this status.
    Answer(u16),
    /// The store asks for fewer requests.
    SlowDown,
    /// This process may open no more files, and so has no connection to ask by.
    NoFiles,
    /// The answer looks right and its body ends after this many bytes.
    Short(usize),
    /// The answer looks right and the connection breaks after this many bytes.
    Reset(usize),
    /// The answer looks right and begins with these bytes instead of its own.
    Begins(&'static [u8]),
    /// The answer looks right and nothing comes after this many bytes.
    Stall(usize),
    /// There is no answer at all.
    Silence,
    /// The answer comes this much later. Needs a tokio runtime with timers.
    Delay(Duration),
}

/// One request for bytes, written down when it starts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) name: String,
    /// `None`: the whole object.
    pub(crate) range: Option<Range<u64>>,
}

/// How long the answer to the n-th request takes, from 0.
struct Latency(Box<dyn Fn(usize) -> Duration + Send>);

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Latency")
    }
}

/// What the n-th request meets, from 0, at this time since the first.
struct Weather(Box<dyn Fn(usize, Duration) -> Option<Fault> + Send>);

impl fmt::Debug for Weather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Weather")
    }
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Request>,
    lists: u64,
    bytes: u64,
    in_flight: usize,
    most_in_flight: usize,
    /// When each request started, on tokio's clock.
    begun_at: Vec<tokio::time::Instant>,
    /// With how many requests each fault is to be met; `None`: all.
    faults: HashMap<String, (Fault, Option<usize>)>,
    latency: Option<Latency>,
    weather: Option<Weather>,
    /// More requests in flight are refused.
    refuse_above: Option<(usize, Fault)>,
    refused: usize,
    /// Bodies come in pieces of so many bytes.
    frame: Option<usize>,
    ignores_if_match: bool,
    list_fault: Option<Fault>,
    gated: bool,
}

/// Wraps a store: counts requests and bytes, records names in order, injects faults, holds answers behind a gate.
#[derive(Debug)]
pub(crate) struct Tracker {
    inner: Arc<dyn ObjectStore>,
    log: Mutex<Log>,
    changed: Condvar,
    gate: Semaphore,
}

impl Tracker {
    pub(crate) fn new(inner: Arc<dyn ObjectStore>) -> Arc<Self> {
        Arc::new(Self { inner, log: Mutex::default(), changed: Condvar::new(), gate: Semaphore::new(0) })
    }

    /// Over a fresh in-memory store that holds `objects`.
    pub(crate) fn holding<N: AsRef<str>, B: Into<PutPayload>>(objects: impl IntoIterator<Item = (N, B)>) -> Arc<Self> {
        let store = InMemory::new();
        for (name, bytes) in objects {
            let path = Path::parse(name.as_ref()).expect("a test's object names are valid");
            let put = store.put(&path, bytes.into());
            put.now_or_never().expect("an in-memory store answers at once").expect("an in-memory store takes all");
        }
        Self::new(Arc::new(store))
    }

    /// The store as a source whose reads go through a runtime, as those of a bucket do.
    pub(crate) fn source(self: &Arc<Self>) -> Source {
        let store: Arc<dyn ObjectStore> = Arc::<Self>::clone(self);
        Source::from_store(store, Path::default(), "tracked://store")
    }

    /// The store as a source whose reads are done by the decode workers, as those of local files are.
    pub(crate) fn inline_source(self: &Arc<Self>) -> Source {
        self.source().inline()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().expect("no test panics while it holds the log")
    }

    /// Requests for bytes that have started.
    pub(crate) fn requests(&self) -> usize {
        self.log().requests.len()
    }

    /// Requests for bytes in the order in which they started.
    pub(crate) fn log_of_requests(&self) -> Vec<Request> {
        self.log().requests.clone()
    }

    /// Names of the objects read, in the order in which the reads started.
    pub(crate) fn names(&self) -> Vec<String> {
        self.log().requests.iter().map(|r| r.name.clone()).collect()
    }

    /// Listings that have started.
    pub(crate) fn lists(&self) -> u64 {
        self.log().lists
    }

    /// Bytes that were answered.
    pub(crate) fn bytes(&self) -> u64 {
        self.log().bytes
    }

    /// Requests that have started and not been answered or dropped.
    pub(crate) fn in_flight(&self) -> usize {
        self.log().in_flight
    }

    /// The most requests that were in flight together.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.log().most_in_flight
    }

    /// Forgets what was counted; faults and the gate stay.
    pub(crate) fn reset(&self) {
        let mut log = self.log();
        log.requests.clear();
        (log.lists, log.bytes, log.most_in_flight) = (0, 0, log.in_flight);
    }

    /// From now on each request for `name` meets `fault`.
    pub(crate) fn fail(&self, name: &str, fault: Fault) {
        self.log().faults.insert(name.to_owned(), (fault, None));
    }

    /// The next `n` requests for `name` meet `fault`.
    pub(crate) fn fail_times(&self, name: &str, n: usize, fault: Fault) {
        self.log().faults.insert(name.to_owned(), (fault, Some(n)));
    }

    /// From now on the n-th request (from 0) is answered after `latency(n)`, on tokio's clock.
    pub(crate) fn latency(&self, latency: impl Fn(usize) -> Duration + Send + 'static) {
        self.log().latency = Some(Latency(Box::new(latency)));
    }

    /// From now on requests are refused while so many others are in flight.
    pub(crate) fn refuse_above(&self, in_flight: usize) {
        self.log().refuse_above = Some((in_flight, Fault::SlowDown));
    }

    /// From now on there are files for so many requests in flight, and for no more.
    pub(crate) fn no_files_above(&self, in_flight: usize) {
        self.log().refuse_above = Some((in_flight, Fault::NoFiles));
    }

    /// From now on the n-th request (from 0), at so long after the first on tokio's clock, meets what `weather` says.
    pub(crate) fn weather(&self, weather: impl Fn(usize, Duration) -> Option<Fault> + Send + 'static) {
        self.log().weather = Some(Weather(Box::new(weather)));
    }

    /// Requests that were refused for being too many.
    pub(crate) fn refused(&self) -> usize {
        self.log().refused
    }

    /// From now on bodies come in pieces of so many bytes.
    pub(crate) fn in_frames(&self, bytes: usize) {
        self.log().frame = Some(bytes);
    }

    /// From now on `If-Match` is not looked at, as some servers do.
    pub(crate) fn ignore_if_match(&self) {
        self.log().ignores_if_match = true;
    }

    /// Puts another version of an object.
    pub(crate) fn replace(&self, name: &str, bytes: impl Into<PutPayload>) {
        let path = Path::parse(name).expect("a test's object names are valid");
        let put = self.inner.put(&path, bytes.into());
        put.now_or_never().expect("an in-memory store answers at once").expect("an in-memory store takes all");
    }

    /// When requests for bytes started, on tokio's clock.
    pub(crate) fn begun_at(&self) -> Vec<tokio::time::Instant> {
        self.log().begun_at.clone()
    }

    /// From now on listings meet `fault`, one that is an error.
    pub(crate) fn fail_list(&self, fault: Fault) {
        self.log().list_fault = Some(fault);
    }

    /// Requests for `name` succeed again.
    pub(crate) fn heal(&self, name: &str) {
        self.log().faults.remove(name);
    }

    /// From now on requests start, and are answered only as [`let_through`](Self::let_through) says.
    pub(crate) fn close_gate(&self) {
        self.log().gated = true;
    }

    /// Answers the next `n` requests, waiting ones first, in the order in which they came.
    pub(crate) fn let_through(&self, n: usize) {
        self.gate.add_permits(n);
    }

    /// Answers all requests, those that wait and those to come.
    pub(crate) fn open_gate(&self) {
        self.log().gated = false;
        // More than any test has in flight; `close_gate` afterwards would find the rest, so a gate opens once.
        self.gate.add_permits(1 << 20);
    }

    /// Blocks until `n` requests have started, at most `limit`; says whether they have.
    pub(crate) fn wait_for_requests(&self, n: usize, limit: Duration) -> bool {
        self.wait_until(limit, |log| log.requests.len() >= n)
    }

    /// Blocks until no request is in flight, at most `limit`; says whether that came.
    pub(crate) fn wait_until_idle(&self, limit: Duration) -> bool {
        self.wait_until(limit, |log| log.in_flight == 0)
    }

    fn wait_until(&self, limit: Duration, done: impl Fn(&Log) -> bool) -> bool {
        let end = Instant::now() + limit;
        let mut log = self.log();
        while !done(&log) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            log = self.changed.wait_timeout(log, left).expect("no test panics while it holds the log").0;
        }
        true
    }

    /// Writes a request down.
    fn begin(&self, request: Request) -> Begun<'_> {
        let mut log = self.log();
        let mut fault = None;
        if let Some((kind, left)) = log.faults.get_mut(&request.name)
            && *left != Some(0)
        {
            *left = left.map(|left| left - 1);
            fault = Some(kind.clone());
        }
        if let Some((_, refusal)) = log.refuse_above.clone().filter(|(most, _)| log.in_flight >= *most) {
            log.refused += 1;
            fault = Some(refusal);
        }
        let now = tokio::time::Instant::now();
        if let Some(Weather(weather)) = &log.weather {
            let first = log.begun_at.first().copied().unwrap_or(now);
            fault = fault.or(weather(log.requests.len(), now - first));
        }
        let latency = log.latency.as_ref().map(|latency| latency.0(log.requests.len()));
        log.requests.push(request);
        log.begun_at.push(now);
        log.in_flight += 1;
        log.most_in_flight = log.most_in_flight.max(log.in_flight);
        self.changed.notify_all();
        let (gated, frame, ignores_if_match) = (log.gated, log.frame, log.ignores_if_match);
        Begun { fault, latency, gated, frame, ignores_if_match, _in_flight: InFlight(self) }
    }

    async fn get(&self, location: &Path, mut options: GetOptions) -> Result<GetResult> {
        let range = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        let Begun { fault, latency, gated, frame, ignores_if_match, _in_flight } =
            self.begin(Request { name: location.to_string(), range });
        if gated {
            self.gate.acquire().await.expect("the gate is never closed for good").forget();
        }
        if let Some(latency) = latency {
            tokio::time::sleep(latency).await;
        }
        match fault {
            Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
            Some(Fault::Silence) => std::future::pending().await,
            Some(Fault::Short(_) | Fault::Reset(_) | Fault::Stall(_) | Fault::Begins(_)) | None => {}
            Some(fault) => return Err(fault.error(location)),
        }
        if ignores_if_match {
            options.if_match = None;
        }
        let mut result = self.inner.get_opts(location, options).await?;
        if frame.is_some() || fault.is_some() {
            let range = result.range.clone();
            let meta = result.meta.clone();
            let mut body = result.bytes().await?;
            if let Some(Fault::Short(length) | Fault::Reset(length) | Fault::Stall(length)) = fault {
                body.truncate(length);
            }
            if let Some(Fault::Begins(other)) = fault {
                body = [other, &body[other.len()..]].concat().into();
            }
            let mut frames = Vec::new();
            while !body.is_empty() {
                frames.push(Ok(body.split_to(frame.unwrap_or(body.len()).min(body.len()))));
            }
            let frames = futures::stream::iter(frames);
            let stream = match fault {
                Some(Fault::Reset(_)) => {
                    let source = std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
                    let broken = Err(Error::Generic { store: "Tracker", source });
                    frames.chain(futures::stream::iter([broken])).boxed()
                }
                Some(Fault::Stall(_)) => frames.chain(futures::stream::pending()).boxed(),
                _ => frames.boxed(),
            };
            result = GetResult {
                payload: GetResultPayload::Stream(stream),
                meta,
                range,
                attributes: Default::default(),
                extensions: Default::default(),
            };
        }
        self.log().bytes += result.range.end - result.range.start;
        Ok(result)
    }
}

/// A request that was written down, and what is to happen to it.
struct Begun<'a> {
    fault: Option<Fault>,
    latency: Option<Duration>,
    gated: bool,
    frame: Option<usize>,
    ignores_if_match: bool,
    _in_flight: InFlight<'a>,
}

/// Counts down when the answer is there or the request is dropped.
struct InFlight<'a>(&'a Tracker);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.log().in_flight -= 1;
        self.0.changed.notify_all();
    }
}

impl Fault {
    fn error(&self, location: &Path) -> Error {
        let path = location.to_string();
        match self {
            Self::NotFound => Error::NotFound { path, source: "the test says so".into() },
            Self::Denied => Error::PermissionDenied { path, source: "the test says so".into() },
            Self::Io(text) => Error::Generic { store: "Tracker", source: (*text).into() },
            Self::SlowDown => {
                Error::Generic { store: "Tracker", source: Refusal::new(503).with_code("SlowDown").into() }
            }
            Self::NoFiles => {
                Error::Generic { store: "Tracker", source: Box::new(std::io::Error::from_raw_os_error(24)) }
            }
            Self::Answer(status) => Error::Generic { store: "Tracker", source: Refusal::new(*status).into() },
            Self::Short(_) | Self::Reset(_) | Self::Begins(_) | Self::Stall(_) | Self::Silence | Self::Delay(_) => {
                unreachable!("not an error")
            }
        }
    }
}

impl fmt::Display for Tracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tracker({})", self.inner)
    }
}

/// What `async_trait` makes of an `async fn`; written out so that the tests need no crate for it.
type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

impl ObjectStore for Tracker {
    fn put_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Answer<'c, PutResult>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.put_opts(location, payload, opts)
    }

    fn put_multipart_opts<'a, 'b, 'c>(
        &'a self,
        location: &'b Path,
        opts: PutMultipartOptions,
    ) -> Answer<'c, Box<dyn MultipartUpload>>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.put_multipart_opts(location, opts)
    }

    fn get_opts<'a, 'b, 'c>(&'a self, location: &'b Path, options: GetOptions) -> Answer<'c, GetResult>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        Box::pin(self.get(location, options))
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let mut log = self.log();
        log.lists += 1;
        match &log.list_fault {
            Some(fault) => futures::stream::iter([Err(fault.error(prefix.unwrap_or(&Path::ROOT)))]).boxed(),
            None => self.inner.list(prefix),
        }
    }

    fn list_with_delimiter<'a, 'b, 'c>(&'a self, prefix: Option<&'b Path>) -> Answer<'c, ListResult>
    where
        'a: 'c,
        'b: 'c,
        Self: 'c,
    {
        self.inner.list_with_delimiter(prefix)
    }

    fn copy_opts<'a, 'b, 'd, 'c>(&'a self, from: &'b Path, to: &'d Path, options: CopyOptions) -> Answer<'c, ()>
    where
        'a: 'c,
        'b: 'c,
        'd: 'c,
        Self: 'c,
    {
        self.inner.copy_opts(from, to, options)
    }
}
