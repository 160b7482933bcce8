//! What comes from a store is what was stored, goes to nobody else, and is all there is.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use futures::TryStreamExt;
use infeed::{
    Error, ErrorKind,
    dataset::open_source,
    loader::IoRuntime,
    source::{Object, Source, Verify},
};

use crate::support::{
    PATIENCE, builder, drain, noise,
    photos::jpeg,
    s3::{Fault, Rule, S3Server, Tags},
};

async fn listed(source: &Source) -> Vec<Object> {
    let mut objects: Vec<Object> = source.list().try_collect().await.unwrap();
    objects.sort_by(|a, b| a.name.cmp(&b.name));
    objects
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_comes_in_pieces_is_compared_as_a_whole() {
    let bytes = noise(7, 40 << 20);
    for (tags, checksums) in [(Tags::Md5, false), (Tags::Parts, true)] {
        let server = S3Server::start();
        server.configure(|config| (config.tags, config.checksums) = (tags, checksums));
        server.put("big/a.bin", bytes.clone());
        let source = server.source("big");
        let objects = listed(&source).await;
        server.forget();
        server.rule(Rule::new(Fault::FlippedBit).one_in(2).times(1));
        assert!(objects[0].extent(&source).read().await.unwrap() == bytes, "{tags:?}");
        let heads = server.log().iter().filter(|seen| seen.method == "HEAD").count();
        assert_eq!((server.gets(), heads), (6, 2), "{tags:?}: three pieces and a look, twice");
        server.rule(Rule::new(Fault::FlippedBit));
        let error = objects[0].extent(&source).read().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("big/a.bin"), "{error}");
        // Of a part nobody can tell.
        let mut part = objects[0].extent(&source);
        part.range = 100..200;
        assert!(part.read().await.unwrap() != bytes[100..200]);
    }
}

/// A thread beside the one that reads is started only for what blocks or computes.
#[test]
fn the_thread_that_reads_compares_nothing() {
    let server = S3Server::start();
    for n in 0..12 {
        server.put(&format!("x/{}/{n}.jpg", n % 2), jpeg(n, 400, 400));
    }
    for (verify, asides) in [(Verify::Never, 0..1), (Verify::Auto, 1..100)] {
        let started = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&started);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().on_thread_start(move || _ = count.fetch_add(1, Ordering::SeqCst));
        let io = IoRuntime::driving(runtime.build().unwrap()).unwrap();
        let dataset = open_source(server.source("x")).blocking().unwrap();
        let transform = infeed::Transform::preset("imagenet-val").unwrap();
        let loader = builder(dataset).batch_size(4).transform(transform).verify(verify).io_runtime(&io);
        let before = server.source("x").verified().md5;
        assert_eq!(drain(loader.build_blocking().unwrap().epoch(0)).unwrap().len(), 3);
        let compared = server.source("x").verified().md5 - before;
        assert_eq!(compared, if verify == Verify::Never { 0 } else { 12 });
        let started = started.load(Ordering::SeqCst);
        assert!(asides.contains(&started), "{verify:?}: {started} threads beside it");
    }
}

/// A host that takes what comes, counts it, and answers nothing that helps.
fn stranger() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let asked = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n");
        }
    });
    (host, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_to_another_host() {
    for status in [301, 302, 303, 307, 308] {
        let server = S3Server::start();
        server.configure(|config| config.session_token = Some("the-session-token".into()));
        server.put("x/a", "bytes");
        let (host, asked) = stranger();
        let location = format!("http://{host}/infeed-test/x/a?X-Amz-Signature=hush");
        let source = server.source("x");
        let objects = listed(&source).await;
        for (listings, says) in [(false, "a read"), (true, "a listing")] {
            server.heal();
            let rule = Rule::new(Fault::Redirect { status, location: location.clone() });
            server.rule(if listings { rule.listings() } else { rule });
            let error: Error = match listings {
                true => source.list().try_collect::<Vec<_>>().await.unwrap_err(),
                false => objects[0].extent(&source).read().await.unwrap_err(),
            };
            let words = format!("{error:#}");
            assert_eq!(error.kind(), ErrorKind::Config, "{status}, {says}: {words}");
            assert!(words.contains(&host) && words.contains("AWS_ENDPOINT_URL"), "{status}, {says}: {words}");
            assert!(!words.contains("hush") && !words.contains("secret"), "{status}, {says}: {words}");
            assert_eq!(asked.load(Ordering::SeqCst), 0, "{status}, {says}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_to_the_buckets_region_is_understood() {
    let server = S3Server::start();
    server.put("x/a", "bytes");
    let source = server.source("x");
    let objects = listed(&source).await;
    let location = "https://infeed-test.s3.eu-other-7.amazonaws.com/x/a?hush";
    server.rule(Rule::new(Fault::Redirect { status: 307, location: location.into() }));
    // It goes there once more, and is sent on again.
    let error = objects[0].extent(&source).read().await.unwrap_err();
    assert!(error.to_string().contains("eu-other-7"), "{error:#}");
}

async fn listing(body: &'static str, times: u64) -> (Error, usize) {
    let server = S3Server::start();
    server.rule(Rule::new(Fault::Body(body)).listings().times(times));
    let source = server.source("x");
    let listing = tokio::time::timeout(PATIENCE, source.list().try_collect::<Vec<_>>());
    let error = listing.await.expect("the listing ends").unwrap_err();
    assert!(error.context().object.as_deref().is_some_and(|object| object.contains("s3://")), "{error}");
    (error, server.log().len())
}

macro_rules! page {
    ($($inside:tt)*) => {
        concat!("<?xml version=\"1.0\"?><ListBucketResult>", $($inside)*, "</ListBucketResult>")
    };
}
macro_rules! object {
    ($key:literal) => {
        concat!(
            "<Contents><Key>",
            $key,
            "</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>1</Size></Contents>"
        )
    };
}
macro_rules! token {
    ($token:literal) => {
        concat!("<IsTruncated>true</IsTruncated><NextContinuationToken>", $token, "</NextContinuationToken>")
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_that_cannot_be_are_errors() {
    // With so many pages asked for at most: none of them again.
    for (what, body, says, most) in [
        ("a token again", page!(token!("same")), "gave before", 2),
        ("new tokens for ever", page!(token!("{n}")), "pages without a key", 110),
        ("new tokens, old keys", page!(token!("{n}"), object!("x/a"), object!("x/b")), "\"x/a\" twice", 2),
        ("a key twice", page!(object!("x/a"), object!("x/b"), object!("x/a")), "\"x/a\" twice", 1),
        ("no token", page!("<IsTruncated>true</IsTruncated>", object!("x/a")), "breaks off", 1),
        ("HTML", "<!DOCTYPE html><html><body>log in</body></html>", "begins with \"<!DOCTYPE html>", 1),
        ("nothing", "", "is empty", 1),
        ("another prefix", page!(object!("y/a")), "does not begin with it", 1),
    ] {
        let (error, requests) = listing(body, u64::MAX).await;
        let words = format!("{error:#}");
        assert!(words.contains(says), "{what}: {words}");
        assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Unsupported), "{what}: {words}");
        assert!(requests <= most, "{what}: {requests} requests");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_no_name_can_be_read_by_are_left_out_beside_others() {
    let server = S3Server::start();
    let all =
        page!(object!("x/../y"), object!("x/a"), object!("x//b"), object!("/x/y"), object!("x/c"), object!("x/./d"));
    server.rule(Rule::new(Fault::Body(all)).listings());
    let names: Vec<String> = listed(&server.source("x")).await.into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn some_empty_pages_and_any_order_are_fine() {
    let server = S3Server::start();
    server.rule(Rule::new(Fault::Body(page!(token!("{n}")))).listings().times(20));
    server.rule(Rule::new(Fault::Body(page!(object!("x/c"), object!("x/a"), object!("x/b")))).listings());
    let names: Vec<String> = listed(&server.source("x")).await.into_iter().map(|object| object.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
}
