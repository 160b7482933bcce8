//! HTTP/1.1 as far as S3 clients speak it, and the faults.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::sleep,
};

use super::{Config, Fault, Seen, Shared, Stored, Tags, list, sign};

/// A request, its body included.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    /// As sent, without the query.
    pub(super) raw_path: String,
    /// Decoded, in the order in which they were sent.
    pub(super) query: Vec<(String, String)>,
    /// Names in lower case.
    pub(super) headers: HashMap<String, String>,
    pub(super) bucket: String,
    pub(super) key: Option<String>,
    body: Bytes,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Bytes,
}

impl Answer {
    pub(super) fn new(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With this message in place of its own, if it has one.
    fn saying(mut self, message: Option<&str>) -> Self {
        let text = str::from_utf8(&self.body).unwrap_or_default();
        if let (Some(message), true) = (message, self.status >= 300)
            && let Some((before, rest)) = text.split_once("<Message>")
            && let Some((_, after)) = rest.split_once("</Message>")
        {
            self.body = format!("{before}<Message>{message}</Message>{after}").into();
        }
        self
    }

    pub(super) fn error(status: u16, code: &str, more: &str) -> Self {
        let xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{code} of the test \
             server</Message>{more}<RequestId>TESTREQUESTID</RequestId></Error>"
        );
        Self::new(status, xml).with("content-type", "application/xml").with("x-amz-request-id", "TESTREQUESTID")
    }
}

pub(super) async fn serve(mut stream: TcpStream, id: u64, shared: Arc<Shared>) {
    // Else a small answer waits 40 ms for the acknowledgement of its head.
    let _ = stream.set_nodelay(true);
    let mut buffer = BytesMut::with_capacity(16 * 1024);
    while let Ok(Some(request)) = read(&mut stream, &mut buffer).await {
        let (index, delay, fault, admitted) = {
            let mut state = shared.state();
            let admitted = state.admits();
            let prefix = request.parameter("prefix").unwrap_or_default();
            let (delay, fault) = state.faults(&request.method, request.key.as_deref(), prefix);
            let seen = Seen {
                method: request.method.clone(),
                bucket: request.bucket.clone(),
                key: request.key.clone(),
                query: request.query.clone(),
                range: request.header("range").map(|r| r.trim_start_matches("bytes=").to_owned()),
                if_match: request.header("if-match").map(str::to_owned),
                at: shared.started.elapsed(),
                connection: id,
                bytes: 0,
                status: 0,
                fault: fault.clone(),
            };
            state.log.push(seen);
            state.in_flight += 1;
            state.most_in_flight = state.most_in_flight.max(state.in_flight);
            (state.log.len() - 1, delay, fault, admitted)
        };
        // Also when the client goes away and the task ends at an await below.
        let _landing = Landing(Arc::clone(&shared));
        if !delay.is_zero() {
            sleep(delay).await;
        }
        if let Some(Fault::Together(count)) = fault {
            shared.together.send_modify(|met| *met += 1);
            let _ = shared.together.subscribe().wait_for(|met| *met >= count).await;
        }
        let answer =
            if admitted { answer(&request, &shared, fault.as_ref()) } else { Answer::error(503, "SlowDown", "") };
        let message = shared.state().config.message;
        let answer = answer.saying(message);
        if let Some(seen) = shared.state().log.get_mut(index) {
            seen.status = answer.status;
            seen.bytes = if request.method == "HEAD" { 0 } else { answer.body.len() as u64 };
        }
        match send(&mut stream, &request, answer, fault).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
    }
}

struct Landing(Arc<Shared>);

impl Drop for Landing {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

/// `None` when the client has closed the connection.
async fn read(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Request>> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
        if buffer.starts_with(b"\x16\x03") {
            // TLS. Servers that do not encrypt answer in plain.
            stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await?;
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.advance(end);
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (first.next().unwrap_or_default().to_owned(), first.next().unwrap_or_default());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length: usize = headers.get("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer.split_to(length).freeze();
    let (raw_path, raw_query) = target.split_once('?').unwrap_or((target, ""));
    let query = raw_query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
        })
        .collect();
    let path = decode(raw_path.trim_start_matches('/'));
    let (bucket, key) = path.split_once('/').unwrap_or((&path, ""));
    let key = (!key.is_empty()).then(|| key.to_owned());
    Ok(Some(Request { method, raw_path: raw_path.to_owned(), query, headers, bucket: bucket.to_owned(), key, body }))
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let value = escaped.and_then(|hex| u8::from_str_radix(str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(*first));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What an undisturbed server says, after what the fault has done to its objects.
fn answer(request: &Request, shared: &Shared, fault: Option<&Fault>) -> Answer {
    let mut state = shared.state();
    if let Some(Fault::Status { status, code, retry_after }) = fault {
        let answer = Answer::error(*status, code, "");
        return match retry_after {
            Some(seconds) => answer.with("retry-after", seconds.to_string()),
            None => answer,
        };
    }
    let config = state.config.clone();
    if let Some(refusal) = refuse(request, &config) {
        return refusal;
    }
    match fault {
        Some(Fault::Redirect { status, location }) => return Answer::new(*status, "").with("location", location),
        Some(Fault::Body(body)) => return Answer::new(200, body.replace("{n}", &state.log.len().to_string())),
        _ => {}
    }
    let Some(bucket) = state.buckets.get_mut(&request.bucket) else {
        return Answer::error(404, "NoSuchBucket", &format!("<BucketName>{}</BucketName>", request.bucket));
    };
    let Some(key) = &request.key else {
        return match request.method.as_str() {
            "HEAD" => Answer::new(200, "").with("x-amz-bucket-region", config.region),
            "GET" if !config.may_list => Answer::error(403, "AccessDenied", ""),
            "GET" => list::page(request, bucket, config.page_size),
            _ => Answer::error(405, "MethodNotAllowed", ""),
        };
    };
    match fault {
        Some(Fault::Replaced) => {
            if let Some(stored) = bucket.get_mut(key) {
                *stored = Stored::new(stored.body.iter().map(|byte| byte ^ 0x55).collect::<Bytes>(), config.tags);
            }
        }
        Some(Fault::Deleted) => _ = bucket.remove(key),
        _ => {}
    }
    let upload = request.query.iter().find(|(name, _)| name == "uploadId").map(|(_, id)| id.clone());
    match (request.method.as_str(), upload) {
        ("POST", None) => {
            let id = format!("upload-{}", state.uploads.len());
            state.uploads.insert(id.clone(), BTreeMap::new());
            let result = "InitiateMultipartUploadResult";
            return Answer::new(200, format!("<{result}><UploadId>{id}</UploadId></{result}>"));
        }
        ("PUT", Some(id)) => {
            let number = request.query.iter().find(|(name, _)| name == "partNumber").and_then(|(_, n)| n.parse().ok());
            let (Some(parts), Some(number)) = (state.uploads.get_mut(&id), number) else {
                return Answer::error(404, "NoSuchUpload", "");
            };
            let stored = Stored::new(request.body.clone(), Tags::Md5);
            parts.insert(number, stored.body);
            return Answer::new(200, "").with("etag", stored.etag);
        }
        // Which parts, the client says in the body: all of them, in the order of their numbers.
        ("POST", Some(id)) => {
            let Some(parts) = state.uploads.remove(&id) else { return Answer::error(404, "NoSuchUpload", "") };
            let whole: Vec<u8> = parts.into_values().flatten().collect();
            let stored = Stored::new(whole.into(), Tags::Parts);
            let result = "CompleteMultipartUploadResult";
            let answer = format!("<{result}><ETag>{}</ETag></{result}>", stored.etag.replace('"', "&quot;"));
            let bucket = state.buckets.get_mut(&request.bucket).expect("it is there");
            bucket.insert(key.clone(), stored);
            return Answer::new(200, answer);
        }
        ("DELETE", Some(id)) => {
            state.uploads.remove(&id);
            return Answer::new(204, "");
        }
        _ => {}
    }
    let bucket = state.buckets.get_mut(&request.bucket).expect("it is there");
    match request.method.as_str() {
        "PUT" => {
            let stored = Stored::new(request.body.clone(), config.tags);
            let etag = stored.etag.clone();
            bucket.insert(key.clone(), stored);
            Answer::new(200, "").with("etag", etag)
        }
        "DELETE" => {
            bucket.remove(key);
            Answer::new(204, "")
        }
        "GET" | "HEAD" if !config.may_get => Answer::error(403, "AccessDenied", ""),
        "GET" | "HEAD" => match bucket.get(key) {
            Some(stored) => object(request, stored, &config),
            // Who may not list may not learn that a key is missing.
            None if !config.may_list => Answer::error(403, "AccessDenied", ""),
            None => Answer::error(404, "NoSuchKey", ""),
        },
        _ => Answer::error(405, "MethodNotAllowed", ""),
    }
}

/// What is wrong with the request whatever it asks for.
fn refuse(request: &Request, config: &Config) -> Option<Answer> {
    let region = || ("x-amz-bucket-region", config.region.clone());
    let Some(signed) = sign::Signed::of(request) else {
        if config.public {
            return None;
        }
        let answer = Answer::error(403, "AccessDenied", "");
        return Some(answer.with(region().0, region().1));
    };
    if signed.region != config.region {
        let answer = if config.redirect_wrong_region {
            Answer::error(301, "PermanentRedirect", "")
        } else {
            let right = format!("<Region>{}</Region>", config.region);
            Answer::error(400, "AuthorizationHeaderMalformed", &right)
        };
        return Some(answer.with(region().0, region().1));
    }
    if signed.access_key != config.access_key {
        return Some(Answer::error(403, "InvalidAccessKeyId", ""));
    }
    let token = request.header("x-amz-security-token");
    if token.is_some() && token == config.expired_token.as_deref() {
        return Some(Answer::error(400, "ExpiredToken", ""));
    }
    if token != config.session_token.as_deref() {
        return Some(Answer::error(403, "InvalidToken", ""));
    }
    if signed.age(config.clock_ahead).unsigned_abs() > 15 * 60 {
        return Some(Answer::error(403, "RequestTimeTooSkewed", ""));
    }
    // All of Amazon's own have to be, or somebody in between could change them.
    if request.headers.keys().any(|name| name.starts_with("x-amz-") && !signed.headers.iter().any(|h| h == name)) {
        return Some(Answer::error(403, "AccessDenied", "<HeadersNotSigned/>"));
    }
    let canonical = sign::canonical(request, &signed);
    if signed.signature != sign::signature(&signed, &config.secret_key, &canonical) {
        // The real one repeats what was signed, the session token among it.
        let more = format!(
            "<AWSAccessKeyId>{}</AWSAccessKeyId><CanonicalRequest>{canonical}</CanonicalRequest>",
            signed.access_key
        );
        return Some(Answer::error(403, "SignatureDoesNotMatch", &more));
    }
    if config.requester_pays && request.header("x-amz-request-payer") != Some("requester") {
        return Some(Answer::error(403, "AccessDenied", ""));
    }
    None
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |three: &[u8]| {
        let value = three.iter().chain([0, 0].iter()).take(3).fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let letter = |n: usize| if n <= three.len() { LETTERS[value >> (18 - 6 * n) & 63] as char } else { '=' };
        [0, 1, 2, 3].map(letter)
    };
    bytes.chunks(3).flat_map(group).collect()
}

fn object(request: &Request, stored: &Stored, config: &Config) -> Answer {
    if request.header("if-match").is_some_and(|wanted| wanted != stored.etag && wanted != "*") {
        return Answer::error(412, "PreconditionFailed", "");
    }
    let length = stored.body.len();
    let answer = |status, body| {
        Answer::new(status, body)
            .with("etag", &stored.etag)
            .with("accept-ranges", "bytes")
            .with("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
    };
    let answer = |status, body| match config.encryption {
        Some(how) => answer(status, body).with("x-amz-server-side-encryption", how),
        None => answer(status, body),
    };
    let Some(range) = request.header("range").and_then(|range| range.strip_prefix("bytes=")) else {
        let told = config.checksums && request.header("x-amz-checksum-mode") == Some("ENABLED");
        let answer = answer(200, stored.body.clone());
        if !told {
            return answer;
        }
        let sum = base64(&crc32c::crc32c(&stored.body).to_be_bytes());
        return answer.with("x-amz-checksum-crc32c", sum).with("x-amz-checksum-type", "FULL_OBJECT");
    };
    let (start, end) = match range.split_once('-') {
        Some(("", last)) => (length - last.parse::<usize>().unwrap_or(0).min(length), length),
        Some((start, "")) => (start.parse().unwrap_or(usize::MAX), length),
        Some((start, last)) => {
            (start.parse().unwrap_or(usize::MAX), last.parse::<usize>().map_or(length, |n| (n + 1).min(length)))
        }
        None => (usize::MAX, length),
    };
    if start >= end {
        return Answer::error(416, "InvalidRange", "");
    }
    answer(206, stored.body.slice(start..end)).with("content-range", format!("bytes {start}-{}/{length}", end - 1))
}

/// Whether the connection may serve another request.
async fn send(stream: &mut TcpStream, request: &Request, answer: Answer, fault: Option<Fault>) -> io::Result<bool> {
    let mut body = answer.body;
    let half = body.len() / 2;
    let mut length = body.len();
    match &fault {
        Some(Fault::Reset) => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
        Some(Fault::Garbage) => {
            stream.write_all(b"\x16\x03\x01 this is not HTTP\r\n\r\n").await?;
            return Ok(false);
        }
        Some(Fault::StallBeforeHead(time)) => {
            sleep(*time).await;
            return Ok(false);
        }
        Some(Fault::Short) => {
            body.truncate(half);
            length = half;
        }
        Some(Fault::FlippedBit) => {
            let mut other = BytesMut::from(&body[..]);
            if let Some(byte) = other.get_mut(half) {
                *byte ^= 1;
            }
            body = other.freeze();
        }
        _ => {}
    }
    let mut head =
        format!("HTTP/1.1 {} S3\r\ncontent-length: {length}\r\ndate: {}\r\n", answer.status, sign::http_date());
    for (name, value) in &answer.headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    if request.method == "HEAD" {
        stream.write_all(head.as_bytes()).await?;
        return Ok(true);
    }
    // One write for the head and a small body: one packet, as servers do.
    let mut first = BytesMut::from(head.as_bytes());
    match fault {
        Some(Fault::Cut | Fault::ResetInBody | Fault::StallInBody(_)) => {
            first.extend_from_slice(&body[..half]);
            stream.write_all(&first).await?;
            match fault {
                Some(Fault::StallInBody(time)) => sleep(time).await,
                Some(Fault::ResetInBody) => {
                    // A reset overtakes what was sent before it.
                    sleep(Duration::from_millis(30)).await;
                    stream.set_zero_linger()?;
                }
                _ => {}
            }
            return Ok(false);
        }
        Some(Fault::Trickle { piece, pause }) => {
            stream.write_all(&first).await?;
            for part in body.chunks(piece.max(1)) {
                sleep(pause).await;
                stream.write_all(part).await?;
            }
        }
        _ if body.len() <= 32 * 1024 => {
            first.extend_from_slice(&body);
            stream.write_all(&first).await?;
        }
        _ => {
            stream.write_all(&first).await?;
            stream.write_all(&body).await?;
        }
    }
    Ok(true)
}
