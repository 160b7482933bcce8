//! Whole objects and ranges over HTTP: infeed's reads beside a bare loop over `object_store`, in turns.
//!
//! ```text
//! cargo bench --bench requests                                  # the tests' server, in memory, in this process
//! INFEED_S3_URL=s3://bucket/prefix cargo bench --bench requests # objects there, with the AWS_* variables
//! cargo bench --bench requests -- --one infeed small 3000 16    # one figure, for integration/s3/accept.py
//! ```
//!
//! The bare loop is given the best of several numbers of requests in flight; infeed finds its own. Everything runs on one
//! thread, the server in memory on another. CPU is that of the reading thread alone (Linux only).

#![allow(clippy::print_stdout, reason = "the table is the result")]

#[allow(dead_code, reason = "the tests' tool kit")]
#[path = "../integration/support"]
mod support {
    pub(crate) mod s3;
}

use std::{fs, sync::Arc, time::Instant};

use futures::{StreamExt, TryStreamExt, stream};
use infeed::source::{Extent, Source};
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, aws::AmazonS3Builder, path::Path};
use support::s3::{Config, S3Server, Tags};

const ROUNDS: usize = 9;
/// Reads wanted at a time; the engine's read-ahead wants about as many.
const WANTED: usize = 512;
const RANGE: u64 = 8 << 20;

struct Place {
    source: Source,
    bare: Arc<dyn ObjectStore>,
    /// Before each name.
    prefix: String,
    /// Names and sizes.
    objects: Vec<(String, u64)>,
}

/// What is read: of which object, from where.
type Work = Vec<(String, std::ops::Range<u64>, u64)>;

impl Place {
    async fn new(source: Source, bare: Arc<dyn ObjectStore>, prefix: &str) -> Self {
        let listed = source.list().map_ok(|object| (object.name, object.size));
        let objects = listed.try_collect().await.expect("the store lists");
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Self { source, bare, prefix, objects }
    }

    /// `AWS_*` say how to reach it.
    async fn bucket(url: &str) -> Self {
        let source = Source::parse(url).expect("a url of a bucket");
        source.connect().await.expect("the bucket can be reached");
        let (bucket, prefix) = url.trim_start_matches("s3://").split_once('/').unwrap_or((url, ""));
        let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
        let bare = builder.with_client_options(ClientOptions::new().with_allow_http(true)).build();
        Self::new(source, Arc::new(bare.expect("AWS_* are set")), prefix).await
    }

    /// Round and round over the objects until there are `count` requests.
    fn work(&self, count: usize, ranges: bool) -> Work {
        let one = |i: usize| {
            let (name, size) = self.objects[i % self.objects.len()].clone();
            let start = if ranges { (i / self.objects.len()) as u64 * RANGE % size } else { 0 };
            let end = if ranges { (start + RANGE).min(size) } else { size };
            (name, start..end, size)
        };
        (0..count).map(one).collect()
    }

    async fn read(&self, ours: bool, work: &Work, in_flight: usize) -> Figure {
        let (began, cpu) = (Instant::now(), thread_seconds());
        let one = |(name, range, size): &(String, std::ops::Range<u64>, u64)| {
            let (name, range, whole) = (name.clone(), range.clone(), *range == (0..*size));
            let size = *size;
            async move {
                let bytes = match (ours, whole) {
                    (true, true) => Extent::whole(&self.source, name.as_str(), size).read().await.map_err(Into::into),
                    (true, false) => self.source.read(&name, range).await.map_err(Into::into),
                    (false, whole) => {
                        let path = Path::parse(format!("{}{name}", self.prefix)).expect("a listed name");
                        match whole {
                            true => match self.bare.get(&path).await {
                                Ok(answer) => answer.bytes().await,
                                Err(error) => Err(error),
                            },
                            false => self.bare.get_range(&path, range).await,
                        }
                        .map_err(Box::<dyn std::error::Error>::from)
                    }
                };
                bytes.expect("the store answers").len() as u64
            }
        };
        let reads = stream::iter(work.iter().map(one)).buffer_unordered(in_flight);
        let bytes = reads.fold(0, |a, b| async move { a + b }).await;
        Figure {
            requests: work.len(),
            bytes,
            seconds: began.elapsed().as_secs_f64(),
            cpu: thread_seconds().zip(cpu).map(|(after, before)| after - before),
        }
    }
}

struct Figure {
    requests: usize,
    bytes: u64,
    seconds: f64,
    cpu: Option<f64>,
}

/// CPU time of this thread.
fn thread_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

fn spread(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

async fn table(place: &Place, what: &str, count: usize, ranges: bool) {
    let work = place.work(count, ranges);
    let counts: &[usize] = if ranges { &[4, 8, 16] } else { &[8, 16, 32, 64, 128] };
    let mut figures: Vec<Vec<Figure>> = (0..=counts.len()).map(|_| Vec::new()).collect();
    // Warms connections up, and the limit.
    place.read(true, &work, WANTED).await;
    for round in 0..ROUNDS {
        // Each round another one begins.
        for n in (0..figures.len()).map(|n| (n + round) % (counts.len() + 1)) {
            let figure = match counts.get(n) {
                Some(in_flight) => place.read(false, &work, *in_flight).await,
                None => place.read(true, &work, if ranges { 16 } else { WANTED }).await,
            };
            figures[n].push(figure);
        }
    }
    println!("\n{count} {what} from {}, {ROUNDS} rounds, median (range)\n", place.source.url());
    println!("| client | requests/s | CPU us a request |\n|---|---|---|");
    let rates = |of: &[Figure]| spread(of.iter().map(|f| f.requests as f64 / f.seconds).collect());
    let best = (0..counts.len()).max_by(|a, b| rates(&figures[*a]).0.total_cmp(&rates(&figures[*b]).0)).unwrap_or(0);
    for (n, of) in figures.iter().enumerate() {
        let name = match counts.get(n) {
            Some(in_flight) if n == best => format!("bare loop, {in_flight} in flight (best)"),
            Some(in_flight) => format!("bare loop, {in_flight} in flight"),
            None => "infeed".into(),
        };
        let (rate, low, high) = rates(of);
        let cpu = of.iter().filter_map(|f| Some(f.cpu? * 1e6 / f.requests as f64)).collect::<Vec<_>>();
        let cpu = if cpu.is_empty() { (f64::NAN, f64::NAN, f64::NAN) } else { spread(cpu) };
        println!("| {name} | {rate:.0} ({low:.0} to {high:.0}) | {:.1} ({:.1} to {:.1}) |", cpu.0, cpu.1, cpu.2);
    }
    // Of the same round: what disturbs one disturbs the other.
    let pairs = figures[counts.len()].iter().zip(&figures[best]);
    let (ratio, low, high) = spread(pairs.map(|(a, b)| 100.0 * b.seconds / a.seconds).collect());
    println!("\ninfeed reaches {ratio:.1} % ({low:.1} to {high:.1}) of the best bare loop of the same round");
}

async fn one(words: &[String]) {
    let [who, kind, count, in_flight] = words else { panic!("--one WHO KIND COUNT IN_FLIGHT") };
    let url = std::env::var("INFEED_S3_URL").expect("INFEED_S3_URL names the objects");
    let place = Place::bucket(&url).await;
    let work = place.work(count.parse().expect("a number"), kind == "ranges");
    let in_flight = in_flight.parse().expect("a number");
    let warm = work.iter().take(in_flight).cloned().collect();
    place.read(who == "infeed", &warm, in_flight).await;
    let Figure { requests, bytes, seconds, cpu } = place.read(who == "infeed", &work, in_flight).await;
    let cpu = cpu.unwrap_or(f64::NAN);
    println!("RATE {{\"requests\": {requests}, \"bytes\": {bytes}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu}}}");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    // `cargo test --benches` runs this too, without the time for it.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        if let Some(at) = args.iter().position(|arg| arg == "--one") {
            let words: Vec<String> = args[at + 1..].iter().filter(|arg| *arg != "--bench").cloned().collect();
            return one(&words).await;
        }
        if let Ok(url) = std::env::var("INFEED_S3_URL") {
            table(&Place::bucket(&url).await, "objects", 3000, false).await;
            return;
        }
        // ETags that are no MD5, as those of objects that came in parts: the bare loop compares nothing, so neither does infeed.
        let server = S3Server::with(Config { tags: Tags::Parts, ..Config::default() });
        let body: Vec<u8> = (0..32u32 << 20).map(|i| (i * 31) as u8).collect();
        let body = bytes::Bytes::from(body);
        for i in 0..500 {
            server.put(&format!("small/{i:03}"), body.slice(i..i + 107_000));
        }
        for i in 0..4 {
            server.put(&format!("large/{i}"), body.slice(i..));
        }
        let place = async |prefix: &str| Place::new(server.source(prefix), server.store(), prefix).await;
        table(&place("small").await, "objects of 107 KB", 3000, false).await;
        table(&place("large").await, "ranges of 8 MiB", 48, true).await;
        // From here on they are, and infeed compares each.
        server.configure(|config| config.tags = Tags::Md5);
        for i in 0..500 {
            server.put(&format!("summed/{i:03}"), body.slice(i..i + 107_000));
        }
        table(&place("summed").await, "objects of 107 KB with an MD5", 3000, false).await;
    });
}
