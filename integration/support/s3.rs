//! An S3 server in the process, with faults on command.
//!
//! Written by hand rather than taken from a crate: its faults are about the bytes on the wire (a Content-Length that
//! lies, half a body and a reset), which a library's server is built to prevent; objects stay in memory, so that the
//! client is what gets measured; and it costs the tests no dependency. What an independent server says is checked by
//! `integration/s3/`.
//!
//! ```text
//! let server = S3Server::start();
//! server.put("train/a/1.jpg", bytes);
//! let dataset = infeed::dataset::open_source(server.source("train")).await?;        // or a child with server.env()
//! server.fault(Fault::Reset);                                             // the next read of an object
//! server.rule(Rule::new(Fault::Delay(TWO_SECONDS)).one_in(100));          // each hundredth
//! assert_eq!(server.log().len(), 3);
//! ```

mod http;
mod list;
mod sign;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed::source::Source;
use md5::{Digest, Md5};
use object_store::{
    ClientOptions, ObjectStore, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
    path::Path,
};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};
use xxhash_rust::xxh3::xxh3_128;

/// The bucket that `put` and `source` mean.
pub(crate) const BUCKET: &str = "infeed-test";
pub(crate) const ACCESS_KEY: &str = "AKIAINFEEDTESTKEY000";
pub(crate) const SECRET_KEY: &str = "SeCrEt/of+the/tests0123456789abcdefABCDE";

/// What goes wrong with a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// This much later than otherwise. Adds to whatever else goes wrong.
    Delay(Duration),
    /// Once so many requests have met this: a client that asks for fewer at a time waits in vain.
    Together(usize),
    /// This status with this `<Code>`, and `Retry-After` if given.
    Status { status: u16, code: &'static str, retry_after: Option<u64> },
    /// The connection is reset before any byte of the answer.
    Reset,
    /// Reset after half of the body.
    ResetInBody,
    /// Bytes that are not HTTP.
    Garbage,
    /// Nothing at all for this long, then the connection closes.
    StallBeforeHead(Duration),
    /// Half of the body, then nothing for this long, then the connection closes.
    StallInBody(Duration),
    /// Content-Length is right, half of the body comes, then the connection closes.
    Cut,
    /// Half of the body with a Content-Length that says so: nothing looks wrong.
    Short,
    /// The body in pieces of so many bytes with a pause before each.
    Trickle { piece: usize, pause: Duration },
    /// One bit of the body is another.
    FlippedBit,
    /// This status with this Location, and no body.
    Redirect { status: u16, location: String },
    /// This body instead, as if nothing was wrong; `{n}` in it becomes the number of the request.
    Body(&'static str),
    /// From this request on the object has other bytes (of the same length) and another ETag.
    Replaced,
    /// From this request on there is no such object.
    Deleted,
}

impl Fault {
    /// What S3 says when it is asked for too much.
    pub(crate) const fn slow_down() -> Self {
        Self::Status { status: 503, code: "SlowDown", retry_after: None }
    }

    pub(crate) const fn expired_token() -> Self {
        Self::Status { status: 400, code: "ExpiredToken", retry_after: None }
    }
}

/// A fault and the requests it meets: reads (GET) of objects, unless told otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    fault: Fault,
    method: Option<&'static str>,
    listings: bool,
    key: Option<String>,
    one_in: u64,
    times: u64,
    seen: u64,
}

impl Rule {
    pub(crate) const fn new(fault: Fault) -> Self {
        Self { fault, method: Some("GET"), listings: false, key: None, one_in: 1, times: u64::MAX, seen: 0 }
    }

    /// Only requests for keys, or listings of prefixes, that contain this.
    pub(crate) fn key(mut self, part: &str) -> Self {
        self.key = Some(part.to_owned());
        self
    }

    /// Another method.
    pub(crate) const fn method(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Listings instead of objects.
    pub(crate) const fn listings(mut self) -> Self {
        self.listings = true;
        self
    }

    /// Every request: any method, objects and listings.
    pub(crate) const fn everything(mut self) -> Self {
        self.method = None;
        self
    }

    /// The n-th, 2n-th, … of the requests that match.
    pub(crate) const fn one_in(mut self, n: u64) -> Self {
        self.one_in = n;
        self
    }

    /// Ends after so many faults.
    pub(crate) const fn times(mut self, n: u64) -> Self {
        self.times = n;
        self
    }

    fn meets(&mut self, method: &str, key: Option<&str>, prefix: &str) -> bool {
        let kind = match self.method {
            None => true,
            Some(wanted) => wanted == method && self.listings == key.is_none(),
        };
        if !kind || self.times == 0 || self.key.as_deref().is_some_and(|part| !key.unwrap_or(prefix).contains(part)) {
            return false;
        }
        self.seen += 1;
        let hit = self.seen.is_multiple_of(self.one_in);
        self.times -= u64::from(hit);
        hit
    }
}

/// How the server behaves when nothing goes wrong.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) region: String,
    /// What is said to a request for another region: 301 without Location, or 400 AuthorizationHeaderMalformed.
    pub(crate) redirect_wrong_region: bool,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    /// Needed when set.
    pub(crate) session_token: Option<String>,
    /// Answered with `ExpiredToken`.
    pub(crate) expired_token: Option<String>,
    /// Reads without a signature are allowed.
    pub(crate) public: bool,
    pub(crate) may_list: bool,
    pub(crate) may_get: bool,
    pub(crate) requester_pays: bool,
    /// How far the server's clock is ahead, in seconds.
    pub(crate) clock_ahead: i64,
    pub(crate) page_size: usize,
    /// Requests a second and burst; above, 503 SlowDown.
    pub(crate) throttle: Option<(f64, f64)>,
    /// What refusals say to people, instead of their code.
    pub(crate) message: Option<&'static str>,
    /// What the ETags of objects are that are put from now on.
    pub(crate) tags: Tags,
    /// Whether checksums are told to those who ask for them.
    pub(crate) checksums: bool,
    /// How objects are said to be encrypted.
    pub(crate) encryption: Option<&'static str>,
}

/// What an ETag is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tags {
    Md5,
    /// 32 hex digits, which are something else.
    Other,
    /// `…-N`, as of objects that came in parts.
    Parts,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            region: "eu-test-1".into(),
            redirect_wrong_region: false,
            access_key: ACCESS_KEY.into(),
            secret_key: SECRET_KEY.into(),
            session_token: None,
            expired_token: None,
            public: false,
            may_list: true,
            may_get: true,
            requester_pays: false,
            clock_ahead: 0,
            page_size: 1000,
            throttle: None,
            message: None,
            tags: Tags::Md5,
            checksums: false,
            encryption: None,
        }
    }
}

/// One request, as the server saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) bucket: String,
    /// `None` for listings and whatever else concerns the bucket.
    pub(crate) key: Option<String>,
    pub(crate) query: Vec<(String, String)>,
    /// The `Range` header, without `bytes=`.
    pub(crate) range: Option<String>,
    pub(crate) if_match: Option<String>,
    /// Since the server started.
    pub(crate) at: Duration,
    /// Which connection, counted from 0.
    pub(crate) connection: u64,
    /// Bytes of the body that were to be sent. 0 until the answer is begun.
    pub(crate) bytes: u64,
    /// 0 until the answer is begun, and where there is none.
    pub(crate) status: u16,
    pub(crate) fault: Option<Fault>,
}

#[derive(Clone, Debug)]
struct Stored {
    body: Bytes,
    etag: String,
}

impl Stored {
    fn new(body: Bytes, tags: Tags) -> Self {
        let md5 = || u128::from_be_bytes(Md5::digest(&body).into());
        let etag = match tags {
            Tags::Md5 => format!("\"{:032x}\"", md5()),
            Tags::Other => format!("\"{:032x}\"", xxh3_128(&body)),
            Tags::Parts => format!("\"{:032x}-2\"", md5()),
        };
        Self { body, etag }
    }
}

#[derive(Debug, Default)]
struct State {
    config: Config,
    buckets: BTreeMap<String, BTreeMap<String, Stored>>,
    /// Parts that have come, by upload and number.
    uploads: BTreeMap<String, BTreeMap<u32, Bytes>>,
    queue: VecDeque<Fault>,
    rules: Vec<Rule>,
    log: Vec<Seen>,
    in_flight: usize,
    most_in_flight: usize,
    tokens: f64,
    refilled: Option<Instant>,
}

impl State {
    /// Whether the token bucket still holds a token, which is taken.
    fn admits(&mut self) -> bool {
        let Some((rate, burst)) = self.config.throttle else { return true };
        let now = Instant::now();
        match self.refilled.replace(now) {
            None => self.tokens = burst,
            Some(before) => self.tokens = (self.tokens + (now - before).as_secs_f64() * rate).min(burst),
        }
        let admitted = self.tokens >= 1.0;
        self.tokens -= f64::from(u8::from(admitted));
        admitted
    }

    /// The delay and the first other fault of this request; `prefix`: of a listing.
    fn faults(&mut self, method: &str, key: Option<&str>, prefix: &str) -> (Duration, Option<Fault>) {
        let mut delay = Duration::ZERO;
        let mut fault = None;
        let mut take = |next: Fault| match next {
            Fault::Delay(more) => delay += more,
            other => _ = fault.get_or_insert(other),
        };
        if method == "GET" && key.is_some() {
            self.queue.pop_front().map(&mut take);
        }
        for rule in &mut self.rules {
            if rule.meets(method, key, prefix) {
                take(rule.fault.clone());
            }
        }
        (delay, fault)
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    started: Instant,
    connections: AtomicU64,
    /// Requests that met [`Fault::Together`].
    together: watch::Sender<usize>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running server; dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct S3Server {
    shared: Arc<Shared>,
    endpoint: String,
    runtime: Option<Runtime>,
}

impl S3Server {
    /// Starts on a free port of 127.0.0.1, on a thread of its own. Call it from async code too: it does not block.
    pub(crate) fn start() -> Self {
        Self::with(Config::default())
    }

    pub(crate) fn with(config: Config) -> Self {
        let state = State { config, buckets: [(BUCKET.to_owned(), BTreeMap::new())].into(), ..State::default() };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            started: Instant::now(),
            connections: AtomicU64::new(0),
            together: watch::Sender::new(0),
        });
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("s3-server")
            .enable_all()
            .build()
            .expect("a runtime");
        let accepting = Arc::clone(&shared);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("inside the runtime");
            while let Ok((stream, _)) = listener.accept().await {
                let id = accepting.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(http::serve(stream, id, Arc::clone(&accepting)));
            }
        });
        Self { shared, endpoint, runtime: Some(runtime) }
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Changes how it behaves from now on.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut Config)) {
        change(&mut self.shared.state().config);
    }

    /// Stores an object, without a request.
    pub(crate) fn put(&self, key: &str, body: impl Into<Bytes>) {
        self.put_in(BUCKET, key, body);
    }

    /// Stores an object in a bucket, which is made if need be.
    pub(crate) fn put_in(&self, bucket: &str, key: &str, body: impl Into<Bytes>) {
        let mut state = self.shared.state();
        let stored = Stored::new(body.into(), state.config.tags);
        state.buckets.entry(bucket.to_owned()).or_default().insert(key.to_owned(), stored);
    }

    /// Stores every file below a folder as `prefix/…`.
    pub(crate) fn put_folder(&self, folder: impl AsRef<std::path::Path>, prefix: &str) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let name = format!("{prefix}/{}", entry.file_name().to_str().expect("a plain name"));
            if entry.path().is_dir() {
                self.put_folder(entry.path(), &name);
            } else {
                self.put(&name, std::fs::read(entry.path()).expect("a file"));
            }
        }
    }

    /// The bytes of an object.
    pub(crate) fn get(&self, key: &str) -> Option<Bytes> {
        self.shared.state().buckets[BUCKET].get(key).map(|stored| stored.body.clone())
    }

    /// Keys of the requests that wrote, in the order in which they came.
    pub(crate) fn writes(&self) -> Vec<String> {
        let writes = |seen: &&Seen| matches!(seen.method.as_str(), "PUT" | "POST");
        self.shared.state().log.iter().filter(writes).filter_map(|seen| seen.key.clone()).collect()
    }

    pub(crate) fn delete(&self, key: &str) {
        self.shared.state().buckets.get_mut(BUCKET).expect("the bucket").remove(key);
    }

    /// The ETag of an object, quotes included.
    pub(crate) fn etag(&self, key: &str) -> String {
        self.shared.state().buckets[BUCKET][key].etag.clone()
    }

    /// The `AWS_*` variables of a client: for a child process, or for [`Source::parse_with`].
    pub(crate) fn env(&self) -> Vec<(String, String)> {
        let state = self.shared.state();
        let config = &state.config;
        let mut env = vec![
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_REGION", config.region.clone()),
            ("AWS_ACCESS_KEY_ID", config.access_key.clone()),
            ("AWS_SECRET_ACCESS_KEY", config.secret_key.clone()),
        ];
        env.extend(config.session_token.clone().map(|token| ("AWS_SESSION_TOKEN", token)));
        env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// `s3://BUCKET/prefix`
    pub(crate) fn url(&self, prefix: &str) -> String {
        format!("s3://{BUCKET}/{prefix}")
    }

    /// A bare object_store client without retries, for comparisons.
    pub(crate) fn store(&self) -> Arc<AmazonS3> {
        // The program's part, which infeed does for its own clients. Refused when infeed was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = AmazonS3Builder::new().with_bucket_name(BUCKET);
        for (name, value) in self.env() {
            builder = builder.with_config(name.to_ascii_lowercase().parse().expect("a known variable"), value);
        }
        let client = ClientOptions::new().with_allow_http(true).with_read_timeout(Duration::from_secs(10));
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        Arc::new(builder.with_client_options(client).with_retry(retry).build().expect("a client"))
    }

    /// What `infeed::open` reads at `url(prefix)` with `env()` set.
    pub(crate) fn source(&self, prefix: &str) -> Source {
        Source::parse_with(&self.url(prefix), self.env()).expect("a url of ours")
    }

    /// The same through [`store`](Self::store), which retries nothing.
    pub(crate) fn bare_source(&self, prefix: &str) -> Source {
        let store: Arc<dyn ObjectStore> = self.store();
        Source::from_store(store, Path::parse(prefix).expect("a prefix"), &self.url(prefix))
    }

    /// Meets the next read of an object that no earlier call of this has met.
    pub(crate) fn fault(&self, fault: Fault) {
        self.shared.state().queue.push_back(fault);
    }

    /// Meets requests as the rule says, until [`heal`](Self::heal).
    pub(crate) fn rule(&self, rule: Rule) {
        self.shared.state().rules.push(rule);
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        let mut state = self.shared.state();
        state.queue.clear();
        state.rules.clear();
        self.shared.together.send_replace(0);
    }

    /// All requests so far, or since [`forget`](Self::forget), in the order in which they came.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.shared.state().log.clone()
    }

    /// Reads of objects so far.
    pub(crate) fn gets(&self) -> usize {
        self.shared.state().log.iter().filter(|seen| seen.method == "GET" && seen.key.is_some()).count()
    }

    /// Whether so many reads were asked for, each once: a read that takes long, as on a busy machine, may be asked for a second
    /// time, one in twenty at most.
    pub(crate) fn asked_once(&self, reads: usize) -> bool {
        (reads..=reads + reads / 20).contains(&self.gets())
    }

    /// The most requests that were being answered at one time.
    pub(crate) fn most_in_flight(&self) -> usize {
        self.shared.state().most_in_flight
    }

    /// Connections made so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Empties the log and the high-water mark.
    pub(crate) fn forget(&self) {
        let mut state = self.shared.state();
        state.log.clear();
        state.most_in_flight = state.in_flight;
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        // Not a plain drop: that blocks, which a thread of another runtime must not.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
