//! Tests invalid answers, with a server that writes arbitrary bytes.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use futures::TryStreamExt;
use infeed_core::error::{Error, ErrorKind, Result};

use crate::{Extent, Object, Source};

/// The content of each object.
const OBJECT: &[u8] = b"0123456789";

struct Server {
    endpoint: String,
    requests: Arc<AtomicUsize>,
    /// Bytes of bodies sent.
    sent: Arc<AtomicU64>,
}

/// What is written before the connection is closed: a head, a body, and whether the body goes on forever.
type Answer = (String, Vec<u8>, bool);

impl Server {
    /// Calls `answer` with the head of each request.
    fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { endpoint, requests: Arc::default(), sent: Arc::default() };
        let (answer, requests, sent) = (Arc::new(answer), Arc::clone(&server.requests), Arc::clone(&server.sent));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), answer, sent) = (stream, Arc::clone(&answer), Arc::clone(&sent)) else { continue };
                let requests = Arc::clone(&requests);
                // The client may be gone: that is what is tested.
                std::thread::spawn(move || _ = serve(stream, &*answer, &requests, &sent));
            }
        });
        server
    }

    fn source(&self) -> Source {
        let vars = [
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "us-east-1"),
        ];
        Source::parse_with("s3://bucket/p", vars.map(|(name, value)| (name, value.to_owned()))).unwrap()
    }

    /// Reads the whole object, with the length from a listing.
    async fn whole(&self) -> Result<bytes::Bytes> {
        Extent::whole(&self.source(), "a", OBJECT.len() as u64).read().await
    }
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&str) -> Answer,
    requests: &AtomicUsize,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    requests.fetch_add(1, Relaxed);
    let (head, body, endless) = answer(&String::from_utf8_lossy(&head));
    stream.write_all(format!("{head}\r\n\r\n").as_bytes())?;
    stream.write_all(&body)?;
    let block = vec![b'Z'; 1 << 16];
    if !endless {
        return Ok(());
    }
    loop {
        stream.write_all(&block)?;
        sent.fetch_add(block.len() as u64, Relaxed);
    }
}

/// A head without a length: the body ends with the connection.
fn head(status: &str, headers: &str) -> String {
    format!("HTTP/1.1 {status}\r\nConnection: close\r\nETag: \"x\"{headers}")
}

/// Sent but not read: what fits into the buffers of the two sockets.
const BUFFERS: u64 = 32 << 20;

fn says(error: &Error, words: &[&str]) {
    let text = format!("{error:#}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[tokio::test]
async fn a_refusal_that_never_ends_is_read_in_part() {
    let begin = b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>";
    let server = Server::start(|_| (head("403 Forbidden", ""), begin.to_vec(), true));
    let error = server.whole().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    says(&error, &["403 AccessDenied: not you"]);
    assert!(server.sent.load(Relaxed) < BUFFERS);
}

#[tokio::test]
async fn a_page_of_a_listing_that_never_ends_is_an_error() {
    let server = Server::start(|_| (head("200 OK", ""), b"<ListBucketResult>".to_vec(), true));
    let error = server.source().list().try_collect::<Vec<_>>().await.unwrap_err();
    says(&error, &["longer than 64 MiB", "check the endpoint"]);
    assert!(server.sent.load(Relaxed) < (64 << 20) + BUFFERS);
    assert_eq!(server.requests.load(Relaxed), 1, "asked once: it would be the same again");
}

#[tokio::test]
async fn bytes_that_never_end_are_counted() {
    let server = Server::start(|_| (head("200 OK", ""), Vec::new(), true));
    says(&server.whole().await.unwrap_err(), &["more than the 10 bytes asked for"]);
    assert!(server.sent.load(Relaxed) < 8 * BUFFERS);
}

/// In chunks or until the connection closes, with 1.1 and with 1.0, whole and in parts.
#[tokio::test]
async fn answers_without_a_length_are_read_where_it_is_known() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        for chunked in [false, true] {
            // HTTP/1.0 has no chunks.
            if chunked && version == "HTTP/1.0" {
                continue;
            }
            let server = Server::start(move |asked| {
                let part = asked.to_lowercase().contains("range: bytes=2-4");
                let (status, range, bytes) = match part {
                    true => ("206 Partial Content", "\r\nContent-Range: bytes 2-4/10", &OBJECT[2..5]),
                    false => ("200 OK", "", OBJECT),
                };
                let coding = if chunked { "\r\nTransfer-Encoding: chunked" } else { "" };
                let head = head(status, &format!("{range}{coding}")).replace("HTTP/1.1", version);
                let body = match chunked {
                    true => [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n0\r\n\r\n"].concat(),
                    false => bytes.to_vec(),
                };
                (head, body, false)
            });
            assert_eq!(server.whole().await.unwrap(), OBJECT, "{version} {chunked}");
            assert_eq!(server.source().read("a", 2..5).await.unwrap(), &OBJECT[2..5], "{version} {chunked}");
            assert_eq!(server.requests.load(Relaxed), 2);
        }
    }
}

#[tokio::test]
async fn what_asking_again_would_find_again_is_asked_for_once() {
    let many = (0..200).map(|n| format!("\r\nX-{n}: v")).collect::<String>();
    for (headers, words) in
        [(many, "more than 100 headers"), ("\r\nETag: \"ä\"".into(), "`etag` of the answer is not ASCII")]
    {
        let server = Server::start(move |_| {
            let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 10{headers}");
            (head, OBJECT.to_vec(), false)
        });
        let error = server.whole().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        says(&error, &[words, "check the endpoint"]);
        assert_eq!(server.requests.load(Relaxed), 1);
    }
}

#[tokio::test]
async fn headers_for_which_nobody_asks_may_be_anything() {
    let odd = "\r\nContent-Length: 10\r\nContent-Disposition: inline; filename=\"größe.jpg\"\r\nx-amz-meta-a: ä";
    let server = Server::start(move |_| (head("200 OK", odd), OBJECT.to_vec(), false));
    assert_eq!(server.whole().await.unwrap(), OBJECT);
    assert_eq!(server.requests.load(Relaxed), 1);
}

/// A tag in a listing may be any text, but a request header may not.
#[tokio::test]
async fn a_listed_tag_that_is_not_ascii_is_compared_here() {
    let server = Server::start(|_| (head("200 OK", "\r\nContent-Length: 10"), OBJECT.to_vec(), false));
    let object = Object { name: "a".into(), size: 10, etag: Some("\"ä\"".into()) };
    let error = object.extent(&server.source()).read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    says(&error, &["another version"]);
    assert_eq!(server.requests.load(Relaxed), 1);
}
