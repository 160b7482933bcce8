//! A web server in the process that answers as a closure says: what stands in for the hub, for what the hub sends to, and
//! for any server of files.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};

/// A request without a body.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// As sent.
    pub(crate) path: String,
    pub(crate) query: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| pair.split_once('=').filter(|(key, _)| *key == name)).map(|(_, v)| v)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
    /// Whether its length is told; else the connection ends with it.
    length: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into(), length: true }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn without_length(mut self) -> Self {
        self.length = false;
        self
    }

    /// All of `body`, or the part that was asked for.
    pub(crate) fn file(request: &Request, body: &Bytes) -> Self {
        let size = body.len();
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let Some((first, last)) = range else {
            return Self::new(200, body.clone()).with("accept-ranges", "bytes");
        };
        let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first, (last + 1).min(size)),
            (Ok(first), Err(_)) => (first, size),
            (Err(_), Ok(last)) => (size.saturating_sub(last), size),
            _ => (1, 0),
        };
        if first >= last {
            return Self::new(416, "");
        }
        Self::new(206, body.slice(first..last)).with("content-range", format!("bytes {first}-{}/{size}", last - 1))
    }
}

/// A running server; dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Web {
    endpoint: String,
    log: Arc<Mutex<Vec<Request>>>,
    runtime: Option<Runtime>,
}

impl Web {
    /// Starts on a free port of 127.0.0.1, on a thread of its own.
    pub(crate) fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be non-blocking");
        let endpoint = format!("http://{}", listener.local_addr().expect("a bound socket has an address"));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("web-server")
            .enable_all()
            .build()
            .expect("a runtime");
        let (log, answer) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::new(answer));
        let noted = Arc::clone(&log);
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).expect("inside the runtime");
            while let Ok((stream, _)) = listener.accept().await {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                tokio::spawn(async move {
                    let note = |request: &Request| {
                        noted.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                        answer(request)
                    };
                    let _ = serve(stream, note).await;
                });
            }
        });
        Self { endpoint, log, runtime: Some(runtime) }
    }

    /// `http://127.0.0.1:PORT`
    pub(crate) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// All requests so far.
    pub(crate) fn log(&self) -> Vec<Request> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn forget(&self) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(mut stream: TcpStream, answer: impl Fn(&Request) -> Answer) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = BytesMut::new();
    loop {
        let end = loop {
            if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
        buffer.advance(end);
        let mut lines = head.split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (method, target) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let request = Request { method: method.to_owned(), path: path.to_owned(), query: query.to_owned(), headers };
        let Answer { status, headers, body, length } = answer(&request);
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        if length {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        } else {
            head.push_str("connection: close\r\n");
        }
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let mut all = BytesMut::from(head.as_bytes());
        if request.method != "HEAD" {
            all.extend_from_slice(&body);
        }
        stream.write_all(&all).await?;
        if !length {
            return Ok(());
        }
    }
}

/// `a%20b` is `a b`.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| str::from_utf8(hex).ok());
        let value = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
