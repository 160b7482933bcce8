//! `--metrics ADDRESS`: a small HTTP server of [`Metrics`] for Prometheus.

use std::{collections::VecDeque, convert::Infallible, io, net::SocketAddr, time::Duration};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ALLOW, CONTENT_TYPE, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use infeed::{Error, ErrorKind, Result, metrics::Metrics};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
};

/// Longest time for a request to arrive. Scrapes take milliseconds; slower clients would hold connections.
const ASKING: Duration = Duration::from_secs(5);
/// Longest time from the connection to the end of the answer, for clients that read slowly.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most connections at a time; Prometheus makes one. A further connection closes the oldest, so that idle connections
/// cannot keep a scraper out.
const CONNECTIONS: usize = 64;

/// Answers `GET /metrics` as long as it is held.
#[derive(Debug)]
#[must_use = "dropping it ends the server"]
pub(crate) struct Server {
    address: SocketAddr,
    /// Dropping it ends its task, and so all connections.
    _task: JoinSet<()>,
}

impl Server {
    /// Listens at an address, from a task of the current runtime. Port 0 takes any free port. There is no access
    /// control. The server listens when this returns.
    pub(crate) fn start(metrics: Metrics, address: SocketAddr) -> Result<Self> {
        let taken = |error: io::Error| {
            let (kind, what, hint) = match error.kind() {
                io::ErrorKind::AddrInUse => {
                    (ErrorKind::Io, "is in use", "choose another port, or 0 for one that is free")
                }
                io::ErrorKind::PermissionDenied => {
                    (ErrorKind::Denied, "is not allowed", "choose port 1024 or above, or 0 for a free one")
                }
                _ => {
                    (ErrorKind::Io, "can't be listened on", "choose an address of this machine, such as 127.0.0.1:9464")
                }
            };
            Error::new(kind, format!("metrics: {address} {what}")).with_source(error).with_hint(hint)
        };
        let listener = std::net::TcpListener::bind(address).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let listener = TcpListener::from_std(listener).map_err(taken)?;
        let mut task = JoinSet::new();
        task.spawn(accept(listener, metrics));
        Ok(Self { address, _task: task })
    }

    /// The address that it listens on; with the actual port if port 0 was asked for.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, metrics: Metrics) {
    let mut connections = JoinSet::new();
    // In the order of arrival. Handles of connections that have ended stay until they are the oldest.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            // Also a connection that was aborted.
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    open.push_back(connections.spawn(connection(stream, metrics.clone())));
                    if open.len() > CONNECTIONS {
                        open.pop_front().iter().for_each(AbortHandle::abort);
                    }
                }
                // No file handles left, or the connection is already closed: both are temporary.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

async fn connection(stream: TcpStream, metrics: Metrics) {
    let service = service_fn(|request| {
        let answer = answer(&request, &metrics);
        async { Ok::<_, Infallible>(answer) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(ASKING).keep_alive(false);
    let served = http.serve_connection(TokioIo::new(stream), service);
    // A client that disconnects is no error of ours.
    let _ = tokio::time::timeout(PATIENCE, served).await;
}

fn answer(request: &Request<Incoming>, metrics: &Metrics) -> Response<Full<Bytes>> {
    let plain = |status, text: &'static str| {
        let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response
    };
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => {
            // hyper leaves the body out of answers to HEAD.
            let mut response = Response::new(Full::new(metrics.render().into()));
            let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
            response
        }
        (&Method::GET | &Method::HEAD, "/") => plain(StatusCode::OK, "infeed: see /metrics\n"),
        (&Method::GET | &Method::HEAD, _) => plain(StatusCode::NOT_FOUND, "not found: see /metrics\n"),
        _ => {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpStream,
        thread,
    };

    use tokio::task::spawn_blocking;

    use super::*;

    /// If a test waits this long, it hangs.
    const HUNG: Duration = Duration::from_secs(60);

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HUNG)).unwrap();
        stream
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = connect(address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_server_answers_and_ends_with_its_handle() {
        let server = Server::start(Metrics::new(), "127.0.0.1:0".parse().unwrap()).unwrap();
        let get = |path: &str| ask(server.address(), &format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n"));
        let told = get("/metrics");
        assert!(told.starts_with("HTTP/1.1 200") && told.contains("infeed_build_info") && told.ends_with("# EOF\n"));
        assert!(get("/").starts_with("HTTP/1.1 200") && get("/favicon.ico").starts_with("HTTP/1.1 404"));
        let posted = ask(server.address(), "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
        assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
        let head = ask(server.address(), "HEAD /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200") && !head.contains("infeed_build_info"), "{head}");
        assert!(ask(server.address(), "nonsense\r\n\r\n").starts_with("HTTP/1.1 400"));

        let taken = Server::start(Metrics::new(), server.address()).unwrap_err();
        assert!(taken.to_string().contains("is in use; choose another port"), "{taken}");
        let address = server.address();
        drop(server);
        // The thread ends some time later, within a minute.
        let closed = (0..HUNG.as_millis() / 10).any(|_| {
            thread::sleep(Duration::from_millis(10));
            TcpStream::connect(address).is_err()
        });
        assert!(closed, "the address is given back");
    }

    /// With a clock that is paused while a task blocks, and otherwise jumps to the next timer.
    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_or_slowly_keeps_nobody_from_an_answer() {
        const REQUEST: &str = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n";
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(accept(listener, Metrics::new()));
        let closed = |stream: &mut TcpStream| {
            let answer = stream.read(&mut [0; 1]);
            !matches!(answer, Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut))
        };
        // Connections are accepted in order, so the server has handled all earlier ones.
        let is_open = move |stream: &mut TcpStream| {
            assert!(ask(address, REQUEST).ends_with("# EOF\n"));
            stream.set_nonblocking(true).unwrap();
            let open = !closed(stream);
            stream.set_nonblocking(false).unwrap();
            open
        };
        let crowd = spawn_blocking(move || {
            // Far more connections than the limit, half of them in the middle of a request.
            let slow = |n| {
                let mut stream = connect(address);
                if n % 2 == 0 {
                    // The other side may have closed it already.
                    let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nx-slow: ");
                }
                stream
            };
            let mut idle: Vec<TcpStream> = (0..300).map(slow).collect();
            assert!(is_open(&mut idle[299]), "the newest has its time");
            // The newest connections close the oldest.
            assert!(idle[..200].iter_mut().all(closed));
            idle
        });
        let mut idle = crowd.await.unwrap();
        tokio::time::sleep(ASKING - Duration::from_millis(1)).await;
        let still = spawn_blocking(move || is_open(&mut idle[299]).then_some(idle));
        let mut idle = still.await.unwrap().expect("it has its time until it is over");
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(spawn_blocking(move || idle[290..].iter_mut().all(closed)).await.unwrap());
        assert!(!server.is_finished());
    }
}
