//! The HTTP client of all stores. It records what each answer was, and the checksums by which an object's bytes can be
//! checked.

use std::{
    error::Error as StdError,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
        ReqwestConnector,
    },
};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue, LAST_MODIFIED};
use tokio::runtime::{Handle, Id};

use super::{client, keys, listed};
use crate::{
    answer::{Answer, Broken, Phase, Refusal, expected, note, page},
    checksum::SentChecksums,
    errors::no_files,
};

/// The most characters of a message that are shown.
const MESSAGE: usize = 300;
/// The most bytes of a refusal that are read. Its beginning contains the cause.
const REFUSAL: usize = 64 << 10;
/// The most bytes of any other answer that is held whole, such as a page of a listing: a thousand of S3's longest keys,
/// each byte of them escaped, are 6 MB.
pub(super) const PAGE: usize = 64 << 20;
/// The most clients that are kept, one per tokio runtime.
const CLIENTS: usize = 8;

/// `object_store`'s HTTP connector as infeed uses it. If you build a store yourself, pass it to the builder
/// (`with_http_connector(Connector::default())`). Then reads slow down when the store asks for it, bytes are compared
/// with the checksums that come with them, and impossible listings are errors.
///
/// It follows no redirects: a signed request, and above all a session token, must not reach another host. An answer
/// that redirects is an error that names the host.
///
/// `ClientOptions` with root certificates are refused, because the connector can't read them. Pass the certificates to
/// [`with_root_certificates`](Self::with_root_certificates) instead.
///
/// ```no_run
/// # #[cfg(feature = "s3")]
/// # async fn open() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
///
/// use infeed::{dataset::open_source, source::{Connector, Source}};
/// use object_store::{RetryConfig, aws::AmazonS3Builder, path::Path};
///
/// let store = AmazonS3Builder::from_env()
///     .with_bucket_name("photos")
///     .with_http_connector(Connector::default())
///     .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() }) // infeed's own are enough.
///     .build()?;
/// let source = Source::from_store(Arc::new(store), Path::from("train"), "s3://photos/train");
/// let dataset = open_source(source).await?;
/// # drop(dataset); Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Connector {
    roots: Vec<reqwest::Certificate>,
    /// For stores whose requests are not signed: redirects are followed.
    follows: bool,
    /// Query appended to each url: a signature, or how to hand a file out.
    query: Option<Arc<str>>,
    /// Whether ETags are those of S3, for signed and unsigned requests.
    s3: bool,
    /// Whether to bypass any proxy.
    direct: bool,
    /// Replaces the network, for tests.
    #[cfg(test)]
    answers: Option<HttpClient>,
}

impl Connector {
    /// Trusts these authorities as well, given as PEM text.
    ///
    /// # Errors
    /// `Config` if the text contains no certificate.
    pub fn with_root_certificates(mut self, pem: &[u8]) -> Result<Self> {
        let certificates = reqwest::Certificate::from_pem_bundle(pem).unwrap_or_default();
        if certificates.is_empty() {
            return Err(Error::config("the text contains no certificate").with_hint("give certificates as PEM text"));
        }
        self.roots.extend(certificates);
        Ok(self)
    }

    /// For requests that are not signed, or only by `query`.
    #[cfg(feature = "http")]
    pub(super) fn following(query: Option<&str>) -> Self {
        Self { follows: true, query: query.map(Arc::from), ..Self::default() }
    }

    #[cfg(feature = "s3")]
    pub(super) fn of_s3(mut self) -> Self {
        self.s3 = true;
        self
    }

    /// For servers on this machine, or others that no proxy reaches.
    #[cfg(feature = "s3")]
    pub(super) fn direct(mut self) -> Self {
        self.direct = true;
        self
    }

    #[cfg(test)]
    pub(super) fn answered_by(mut self, answers: Option<HttpClient>) -> Self {
        self.answers = answers;
        self
    }

    /// A client whose answers are not recorded.
    pub(super) fn plain(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        #[cfg(test)]
        if let Some(answers) = &self.answers {
            return Ok(answers.clone());
        }
        super::tls::provide();
        if self.follows {
            return ReqwestConnector::default().connect(options);
        }
        if client::holds_certificates(options) {
            let error = Error::config("the client's options hold root certificates, which a connector cannot read")
                .with_hint("give them to Connector::with_root_certificates instead");
            return Err(object_store::Error::Generic { store: "HTTP client", source: Box::new(error) });
        }
        Ok(HttpClient::new(client::build(options, &self.roots, self.direct)?))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = PerRuntime {
            first: self.plain(options)?,
            of: self.clone(),
            options: options.clone(),
            others: Mutex::default(),
        };
        Ok(HttpClient::new(Listening {
            inner: HttpClient::new(inner),
            s3: self.s3,
            web: self.follows,
            query: self.query.clone(),
        }))
    }
}

/// One client per runtime: idle connections are driven by the runtime that created them, and hang when it is not
/// polled.
#[derive(Debug)]
struct PerRuntime {
    /// Used if no other client can be built.
    first: HttpClient,
    of: Connector,
    options: ClientOptions,
    others: Mutex<Vec<(Id, HttpClient)>>,
}

impl PerRuntime {
    fn client(&self) -> HttpClient {
        let Ok(runtime) = Handle::try_current() else { return self.first.clone() };
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = others.iter().find(|(of, _)| *of == runtime.id()) {
            return client.clone();
        }
        // The same options built a client before, so this is not expected to fail.
        let client = self.of.plain(&self.options).unwrap_or_else(|_| self.first.clone());
        if others.len() == CLIENTS {
            others.remove(0);
        }
        others.push((runtime.id(), client.clone()));
        client
    }

    /// False only for the answers of tests.
    const fn needs_runtime(&self) -> bool {
        #[cfg(test)]
        if self.of.answers.is_some() {
            return false;
        }
        true
    }
}

#[async_trait]
impl HttpService for PerRuntime {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // The client's sockets and timers are tokio's, so it would panic.
        if Handle::try_current().is_err() && self.needs_runtime() {
            let error = Error::config("a request to a store needs a tokio runtime with I/O and time enabled")
                .with_hint(
                    "await it inside tokio, or use a Loader; to open a dataset without tokio, use Open::blocking",
                );
            return Err(for_good(error));
        }
        self.client().execute(request).await
    }
}

#[derive(Debug)]
struct Listening {
    inner: HttpClient,
    s3: bool,
    /// Any web server: it may support HTTP only in part.
    web: bool,
    query: Option<Arc<str>>,
}

/// `%2F`, escaped once more. Some APIs name an object by one part of a path (`/o/images%2F1.jpg?alt=media`), where an
/// escaped slash is another character than a slash.
pub(super) const ESCAPED_SLASH: &str = "%252F";

/// Asks for escaped slashes as the user wrote them.
fn unescape_slashes(request: &mut HttpRequest) {
    let url = request.uri().to_string();
    if let Some(Ok(uri)) = url.contains(ESCAPED_SLASH).then(|| url.replace(ESCAPED_SLASH, "%2F").parse()) {
        *request.uri_mut() = uri;
    }
}

/// Adds the query. Errors of the client above never contain it. A HEAD request becomes a GET of the first byte: a
/// signature is valid for GET only, and the answer contains the length too. Returns whether that was done.
fn add_query(request: &mut HttpRequest, query: &str) -> Result<bool, HttpError> {
    let bad = |error: Box<dyn StdError + Send + Sync>| HttpError::new(HttpErrorKind::Unknown, io::Error::other(error));
    let plain = request.uri().to_string();
    *request.uri_mut() = format!("{plain}?{query}").parse().map_err(|_| bad("the url's query is not valid".into()))?;
    if request.method() != reqwest::Method::HEAD {
        return Ok(false);
    }
    *request.method_mut() = reqwest::Method::GET;
    request.headers_mut().insert(reqwest::header::RANGE, HeaderValue::from_static("bytes=0-0"));
    Ok(true)
}

/// Turns the answer to a request for the first byte into the answer to a HEAD.
fn as_head(response: HttpResponse) -> HttpResponse {
    let (mut parts, _) = response.into_parts();
    // bytes 0-0/1234
    let range = parts.headers.remove(CONTENT_RANGE);
    let total = range.as_ref().and_then(|range| range.to_str().ok()?.rsplit_once('/')?.1.parse::<u64>().ok());
    if let Some(total) = total {
        parts.headers.insert(CONTENT_LENGTH, total.into());
    }
    parts.status = reqwest::StatusCode::OK;
    HttpResponse::from_parts(parts, Bytes::new().into())
}

/// Reads a body up to `most` bytes plus the rest of the last frame. Also returns how it ended.
pub(super) async fn gather(body: HttpResponseBody, most: usize) -> (Bytes, Result<(), HttpError>) {
    let (mut frames, mut all) = (body.bytes_stream(), BytesMut::new());
    while all.len() <= most {
        match frames.next().await {
            Some(Ok(frame)) => all.extend_from_slice(&frame),
            Some(Err(error)) => return (all.freeze(), Err(error)),
            None => return (all.freeze(), Ok(())),
        }
    }
    let error = Error::new(ErrorKind::Unsupported, format!("the answer is longer than {} MiB", most >> 20))
        .with_hint("check the endpoint, and whether there is a proxy in between: no page of a listing is that long");
    (all.freeze(), Err(for_good(error)))
}

/// Marks an error that a repeated request would not cure, so that the client does not repeat it.
fn for_good(error: Error) -> HttpError {
    HttpError::new(HttpErrorKind::Decode, error)
}

/// Finds errors about an answer that can't be read and would be the same when repeated.
fn understood(error: HttpError) -> HttpError {
    let whole = std::iter::successors(Some(&error as &(dyn StdError + 'static)), |error| cause(*error));
    let too_large =
        whole.filter_map(|error| error.downcast_ref::<hyper::Error>()).any(hyper::Error::is_parse_too_large);
    match too_large {
        true => for_good(
            Error::new(
                ErrorKind::Unsupported,
                "the headers of the answer are too large: more than 100 headers, or more than 400 KB",
            )
            .with_hint("check the endpoint, and what the store or a proxy in front of it adds to its answers"),
        ),
        false => error,
    }
}

/// Changes an answer with bytes so that `object_store` can read it: `object_store` requires a length, and fails if any
/// header is not ASCII.
///
/// # Errors
/// `Unsupported` if a required header is not ASCII.
fn readable(headers: &mut HeaderMap) -> Result<()> {
    let odd = |value: &HeaderValue| value.to_str().is_err();
    // Checked first, because hardly any answer has such a header.
    if headers.values().any(odd) {
        let names: Vec<_> = headers.iter().filter(|(_, value)| odd(value)).map(|(name, _)| name.clone()).collect();
        for name in names {
            let Some(value) = headers.remove(&name) else { continue };
            // Other headers hold the file's name or user metadata, which infeed does not use.
            if [CONTENT_LENGTH, CONTENT_RANGE, ETAG, LAST_MODIFIED].contains(&name) {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("the header `{name}` of the answer is not ASCII: {value:?}"),
                )
                .with_hint("check the endpoint, and what the store or a proxy in front of it writes there"));
            }
        }
    }
    if !headers.contains_key(CONTENT_LENGTH) {
        // Sent in chunks, or until the connection ends. The reader counts the bytes.
        let told = headers.get(CONTENT_RANGE).and_then(|range| length_of(range.to_str().ok()?));
        if let Some(length) = told.or_else(expected) {
            headers.insert(CONTENT_LENGTH, length.into());
        }
    }
    Ok(())
}

/// The length of a range such as `bytes 3-9/1234`.
fn length_of(range: &str) -> Option<u64> {
    let (first, last) = range.strip_prefix("bytes ")?.split_once('/')?.0.split_once('-')?;
    last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
}

/// Checks that a file server supports what infeed needs. Otherwise its answers would be misread.
fn check_web(method: &str, ranged: bool, response: &HttpResponse) -> Result<()> {
    let status = response.status().as_u16();
    if method == "HEAD" && !response.headers().contains_key("content-length") {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the server does not send the length of the file (Content-Length)",
        )
        .with_hint("use a server that does, or copy the files to this machine"));
    }
    if ranged && status == 200 {
        return Err(Error::new(
            ErrorKind::Unsupported,
            "the server sends no parts of files: it answers a Range request with the whole file",
        )
        .with_hint("use a server that does, or copy the files to this machine"));
    }
    Ok(())
}

#[async_trait]
impl HttpService for Listening {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if self.web {
            unescape_slashes(&mut request);
        }
        let looks = match &self.query {
            Some(query) => add_query(&mut request, query)?,
            None => false,
        };
        let headers = request.headers();
        // ETags of S3 Express are not hashes.
        let s3 = (self.s3 || headers.contains_key("x-amz-date")) && !headers.contains_key("x-amz-s3session-token");
        let lists = self.query.is_none()
            && request.method().as_str() == "GET"
            && listed::asks(request.uri().query().unwrap_or_default());
        let answered = |error| {
            note(Some(Answer::Broken(broken(&error))));
            understood(error)
        };
        let (method, ranged) = (request.method().as_str().to_owned(), request.headers().contains_key("range"));
        let by_tls = request.uri().scheme_str() == Some("https");
        let response = self.inner.execute(request).await.map_err(answered)?;
        let success = response.status().is_success();
        if self.web && success {
            check_web(&method, ranged, &response).map_err(for_good)?;
        }
        if looks && success {
            note(None);
            return Ok(as_head(response));
        }
        let (mut parts, body) = response.into_parts();
        if self.web && method == "PROPFIND" && parts.status.as_u16() == 501 {
            // Servers without this method answer 501 or 405. After a 501 the client would try five more times.
            parts.status = reqwest::StatusCode::METHOD_NOT_ALLOWED;
        }
        let reads = matches!(&*method, "GET" | "HEAD");
        if success && !lists && reads {
            note(None);
            readable(&mut parts.headers).map_err(for_good)?;
            // Stores send no checksums for a part of an object.
            if parts.status.as_u16() == 200 {
                // Iterated once, because each of the dozen look-ups would hash a name.
                let all: Vec<(&str, &str)> = parts
                    .headers
                    .iter()
                    .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
                    .collect();
                let header = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
                parts.extensions.insert(SentChecksums { by_tls, ..SentChecksums::by(header, s3) });
            }
            return Ok(HttpResponse::from_parts(parts, body));
        }
        if success {
            let (body, ended) = gather(body, PAGE).await;
            ended.map_err(answered)?;
            note(None);
            if !lists {
                return Ok(HttpResponse::from_parts(parts, body.into()));
            }
            // A server that sends nonsense would send it again.
            let checked = listed::check(&body).map_err(for_good)?;
            keys::check_pages(page(listed::is_empty(&body))).map_err(for_good)?;
            if checked.is_some() {
                // Its length has changed.
                parts.headers.remove(CONTENT_LENGTH);
            }
            let body = checked.map_or(body, Bytes::from);
            return Ok(HttpResponse::from_parts(parts, body.into()));
        }
        // The status and headers count, even if the connection breaks after them.
        let (body, _) = gather(body, REFUSAL).await;
        let header = |name| parts.headers.get(name)?.to_str().ok().map(str::to_owned);
        note(Some(Answer::Refused(refusal(parts.status.as_u16(), header, &body))));
        Ok(HttpResponse::from_parts(parts, body.into()))
    }
}

pub(super) fn refusal(status: u16, header: impl Fn(&'static str) -> Option<String>, body: &Bytes) -> Refusal {
    let said = |xml: &str, json: &str| element(body, xml).or_else(|| member(body, json));
    let redirect = (300..400).contains(&status);
    let location = header("location").filter(|_| redirect);
    let sends_to = location.as_deref().map(host);
    Refusal {
        status,
        code: header("x-ms-error-code").or_else(|| said("Code", "code")),
        // Only the first line: after it, the token service repeats what was signed.
        message: said("Message", "message")
            .map(|text| text.lines().next().unwrap_or_default().chars().take(MESSAGE).collect()),
        request: element(body, "RequestId")
            .or_else(|| header("x-amz-request-id"))
            .or_else(|| header("x-ms-request-id")),
        // The body names the region that was meant, the header that of the bucket. If both are present, they agree.
        region: element(body, "Region")
            .or_else(|| header("x-amz-bucket-region"))
            .or_else(|| region(sends_to.as_deref()?)),
        date: header("date"),
        to_nowhere: redirect && location.is_none(),
        sends_to,
    }
}

/// Host and port of a `Location`. What follows them may contain a signature, which is secret.
fn host(location: &str) -> String {
    let url = url::Url::parse(location).ok();
    let host = url.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.unwrap_or_else(|| "another path of the same host".into())
}

/// The region in an AWS host name: `bucket.s3.eu-west-1.amazonaws.com`, `s3-eu-west-1.amazonaws.com`,
/// `s3.dualstack.eu-west-1.amazonaws.com`.
fn region(host: &str) -> Option<String> {
    let host = host.strip_suffix(".cn").unwrap_or(host).strip_suffix(".amazonaws.com")?;
    let last = host.rsplit('.').next()?;
    let region = last.strip_prefix("s3-").unwrap_or(last);
    let parts: Vec<_> = region.split('-').collect();
    let number = parts.last().is_some_and(|part| part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty());
    (parts.len() >= 3 && number).then(|| region.to_owned())
}

/// The text of the first element with this name. S3, its token service, Google and Azure write a few plain elements
/// without attributes, and no name twice.
pub(super) fn element(xml: &[u8], name: &str) -> Option<String> {
    let text = str::from_utf8(xml).ok()?;
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once("</")?;
    // `&amp;` last, so that an escaped entity stays text.
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let text = plain.into_iter().fold(text.trim().to_owned(), |text, (escaped, plain)| text.replace(escaped, plain));
    Some(text).filter(|text| !text.is_empty())
}

/// A text member of a JSON object, or of the object `error` in it, in upper or lower case: the form in which credential
/// services answer.
fn member(json: &[u8], name: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(json).ok()?;
    let object = answer.get("error").and_then(serde_json::Value::as_object).or(answer.as_object())?;
    let (_, value) = object.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    value.as_str().map(str::to_owned)
}

fn broken(error: &HttpError) -> Broken {
    let phase = match error.kind() {
        _ if of_the_system(error).any(no_files) => Phase::NoFiles,
        HttpErrorKind::Connect if handshake(error) => Phase::Handshake,
        HttpErrorKind::Connect => Phase::Connecting,
        _ => Phase::Later,
    };
    Broken { phase, words: each_once(error) }
}

/// The cause of an error, including one wrapped in an I/O error.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// Whether TLS failed. Its library reports what it finds wrong as invalid data, and no other part of connecting reads
/// data.
fn handshake(error: &(dyn StdError + 'static)) -> bool {
    of_the_system(error).any(|error| error.kind() == io::ErrorKind::InvalidData)
}

/// The I/O errors in the chain of causes.
fn of_the_system<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a io::Error> {
    std::iter::successors(Some(error), |error| cause(*error)).filter_map(|error| error.downcast_ref::<io::Error>())
}

/// The messages of an error and its causes, each once.
fn each_once(error: &(dyn StdError + 'static)) -> String {
    std::iter::successors(Some(error), |error| (*error).source()).map(ToString::to_string).fold(
        String::new(),
        |told, words| match told.contains(&words) {
            true => told,
            false if told.is_empty() => words,
            false => format!("{told}: {words}"),
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, headers: &[(&str, &str)], body: &'static str) -> Refusal {
        let header = |name: &str| headers.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        refusal(status, header, &Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn answers_are_read_as_the_services_write_them() {
        let s3 = read(
            403,
            &[("date", "now"), ("x-amz-request-id", "R2")],
            "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code><Message>not &lt;you&gt; &amp;quot;</Message>\
             <RequestId>R1</RequestId></Error>",
        );
        assert_eq!(s3.to_string(), "the store answered 403 AccessDenied: not <you> &quot; (request R1)");
        assert_eq!(s3.date.as_deref(), Some("now"));
        let moved = read(301, &[("x-amz-bucket-region", "eu")], "<Error><Code>PermanentRedirect</Code></Error>");
        assert_eq!((moved.region.as_deref(), moved.to_nowhere), (Some("eu"), true));
        assert!(!read(307, &[("location", "http://x")], "").to_nowhere);
        let named = read(400, &[("x-amz-bucket-region", "eu")], "<Error><Region>us</Region></Error>");
        assert_eq!(named.region.as_deref(), Some("us"));
        let sts = read(
            400,
            &[],
            "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code></Error></ErrorResponse>",
        );
        assert_eq!(sts.code.as_deref(), Some("ExpiredTokenException"));
        assert_eq!(read(409, &[("x-ms-error-code", "LeaseLost")], "").code.as_deref(), Some("LeaseLost"));
        let container = read(400, &[], r#"{"code":"NoRole","message":"there is none"}"#);
        assert_eq!(container.to_string(), "the store answered 400 NoRole: there is none");
        let google = read(403, &[], r#"{"error":{"code":403,"message":"no","errors":[]}}"#);
        assert_eq!((google.code, google.message.as_deref()), (None, Some("no")));
        for odd in ["", "<Code>", "<Code></Code>", "{", "[]", "\u{0}", "<Code>x"] {
            let refusal = read(500, &[], odd);
            assert_eq!(refusal.code, None, "{odd:?}");
        }
        assert_eq!(refusal(500, |_| None, &Bytes::from_static(b"\xff<Code>x</Code>")).code, None);
    }

    /// A store that lists some empty pages, one page with an entry, and again.
    #[derive(Debug)]
    struct Lists {
        pages: std::sync::atomic::AtomicUsize,
        something_each: usize,
        page: &'static str,
    }

    #[async_trait]
    impl HttpService for Lists {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let page = self.pages.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
            let page = if page.is_multiple_of(self.something_each) { self.page } else { "" };
            let google = page.is_empty() || page.starts_with("<C");
            let root = if google { "ListBucketResult" } else { "EnumerationResults" };
            Ok(HttpResponse::new(Bytes::from(format!("<{root}>{page}<NextMarker>x</NextMarker></{root}>")).into()))
        }
    }

    /// `object_store` requests the pages of Google's and Azure's listings, so they can be counted only here.
    #[tokio::test]
    async fn a_listing_that_gives_nothing_for_ever_ends() {
        for (page, query) in [
            ("<Contents><Key>a</Key></Contents>", "list-type=2"),
            ("<CommonPrefixes><Prefix>a/</Prefix></CommonPrefixes>", "list-type=2"),
            ("<Blobs><Blob><Name>a</Name></Blob></Blobs>", "restype=container&comp=list"),
            ("<Blobs><BlobPrefix><Name>a/</Name></BlobPrefix></Blobs>", "restype=container&comp=list"),
        ] {
            for (something_each, ends) in [(99, None), (usize::MAX, Some(99))] {
                let lists = Lists { pages: 0.into(), something_each, page };
                let client = Listening { inner: HttpClient::new(lists), s3: false, web: false, query: None };
                let all = crate::answer::with_answer(async {
                    for n in 0..300 {
                        let mut request = HttpRequest::new(object_store::client::HttpRequestBody::empty());
                        *request.uri_mut() = format!("http://store/?{query}").parse().unwrap();
                        if let Err(error) = client.call(request).await {
                            let words = format!("{:#}", error.source().expect("it is ours"));
                            assert!(words.contains("100 pages without a key"), "{words}");
                            return Ok(Some(n));
                        }
                    }
                    Ok(None)
                });
                assert_eq!(all.await.unwrap(), ends, "{page}");
            }
        }
    }

    #[test]
    fn a_redirect_tells_its_host_and_nothing_that_is_signed() {
        for (location, sends_to, region) in [
            (
                "https://b.s3.eu-west-1.amazonaws.com/x?X-Amz-Signature=hush",
                "b.s3.eu-west-1.amazonaws.com",
                Some("eu-west-1"),
            ),
            ("https://s3-us-west-2.amazonaws.com/b", "s3-us-west-2.amazonaws.com", Some("us-west-2")),
            (
                "https://s3.dualstack.us-east-2.amazonaws.com/b",
                "s3.dualstack.us-east-2.amazonaws.com",
                Some("us-east-2"),
            ),
            ("https://s3.cn-north-1.amazonaws.com.cn/b", "s3.cn-north-1.amazonaws.com.cn", Some("cn-north-1")),
            ("https://b.s3.amazonaws.com/", "b.s3.amazonaws.com", None),
            ("http://me:hush@elsewhere:8080/?hush", "elsewhere:8080", None),
            ("/login?hush", "another path of the same host", None),
        ] {
            let refusal = read(307, &[("location", location)], "");
            assert_eq!(refusal.sends_to.as_deref(), Some(sends_to), "{location}");
            assert_eq!(refusal.region.as_deref(), region, "{location}");
            assert!(!format!("{refusal} {refusal:?}").contains("hush"), "{refusal:?}");
        }
        assert_eq!(read(200, &[("location", "http://x")], "").sends_to, None);
    }

    #[test]
    fn a_message_is_told_in_part_only() {
        let long = format!("<Message>{}</Message>", "ä".repeat(1000));
        let refusal = refusal(400, |_| None, &Bytes::from(long));
        assert_eq!(refusal.message.map(|text| text.chars().count()), Some(MESSAGE));
    }

    #[test]
    fn a_handshake_is_told_by_the_kind_of_error_and_not_by_its_words() {
        let io = |kind, inner: io::Error| io::Error::new(kind, inner);
        let tls = || io::Error::new(io::ErrorKind::InvalidData, "aucune confiance");
        for (kind, source, phase) in [
            (HttpErrorKind::Connect, tls(), Phase::Handshake),
            (HttpErrorKind::Connect, io(io::ErrorKind::Other, tls()), Phase::Handshake),
            (
                HttpErrorKind::Connect,
                io(io::ErrorKind::ConnectionRefused, io::Error::other("certificate")),
                Phase::Connecting,
            ),
            (HttpErrorKind::Request, tls(), Phase::Later),
            (HttpErrorKind::Connect, io::Error::from_raw_os_error(24), Phase::NoFiles),
        ] {
            let error = HttpError::new(kind, source);
            assert_eq!(broken(&error).phase, phase, "{error}");
        }
    }

    #[test]
    fn words_are_told_once() {
        #[derive(Debug)]
        struct Layer(&'static str, Option<Box<Self>>);
        impl std::fmt::Display for Layer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.0)
            }
        }
        impl StdError for Layer {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                self.1.as_deref().map(|inner| inner as _)
            }
        }
        let layers = Layer("sending: refused", Some(Box::new(Layer("refused", Some(Box::new(Layer("os 111", None)))))));
        assert_eq!(each_once(&layers), "sending: refused: os 111");
    }
}
