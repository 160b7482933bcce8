//! What a store's refusal means, and what to do about it.

use std::{error::Error as StdError, fmt, io};

use object_store::client::{HttpError, HttpErrorKind};

use super::{Connection, watch::Refused};
use crate::error::{Error, ErrorKind};

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Reading,
    Listing,
}

/// What can be told from an error of object_store, which has the answer's text alone.
#[derive(Debug, Default)]
pub(super) struct Facts {
    status: Option<u16>,
    code: Option<String>,
    message: Option<String>,
    request: Option<String>,
    pub(super) region: Option<String>,
    redirect: bool,
    transport: Option<(HttpErrorKind, String)>,
    file: Option<String>,
}

impl Facts {
    pub(super) fn of(error: &object_store::Error) -> Self {
        let mut facts = Self::default();
        let mut next: Option<&(dyn StdError + 'static)> = Some(error);
        while let Some(error) = next {
            if let Some(http) = error.downcast_ref::<HttpError>() {
                facts.transport = Some((http.kind(), chain(http)));
                break;
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                facts.file.get_or_insert_with(|| error.to_string());
            }
            facts.read(&error.to_string());
            next = error.source();
        }
        facts
    }

    fn read(&mut self, text: &str) {
        self.redirect |= text.contains("redirect without LOCATION");
        let element = |name: &str| {
            let (_, rest) = text.split_once(&format!("<{name}>"))?;
            Some(rest.split_once('<')?.0.chars().take(300).collect::<String>())
        };
        if let Some(rest) = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)) {
            self.status = self.status.or_else(|| rest.parse().ok());
        }
        self.code = self.code.take().or_else(|| element("Code"));
        self.message = self.message.take().or_else(|| element("Message"));
        self.request = self.request.take().or_else(|| element("RequestId"));
        self.region = self.region.take().or_else(|| element("Region"));
    }

    fn is(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }

    pub(super) fn expired(&self) -> bool {
        self.is(&["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"])
    }

    /// The region that was asked is not the bucket's.
    pub(super) fn misdirected(&self, connection: &Connection, refused: &Refused) -> bool {
        let other = |region: &Option<String>| region.as_ref().is_some_and(|region| *region != connection.region);
        // An answer to HEAD has no code.
        let told = self.status == Some(400) && self.code.is_none() && other(&refused.region);
        self.redirect
            || told
            || self.is(&["PermanentRedirect", "TemporaryRedirect", "IncorrectEndpoint"])
            || (self.is(&["AuthorizationHeaderMalformed"]) && (other(&self.region) || other(&refused.region)))
    }
}

/// The words of an error and its causes, each once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

/// The cause that an error keeps: what the store said, without what it repeated of the request.
#[derive(Debug)]
pub(super) struct Cause(String);

impl Cause {
    pub(super) fn of(error: &object_store::Error) -> Self {
        Facts::of(error).cause()
    }
}

impl Facts {
    fn cause(&self) -> Cause {
        let Self { status, code, message, request, redirect, transport, file, .. } = self;
        if let Some((_, text)) = transport {
            return Cause(text.clone());
        }
        if status.is_none() && code.is_none() {
            return Cause(match (file, redirect) {
                (Some(text), _) => text.clone(),
                (None, true) => "the store answered with a redirect to nowhere".into(),
                (None, false) => "the answer could not be understood".into(),
            });
        }
        let mut text = "the store answered".to_owned();
        for part in [status.map(|status| status.to_string()), code.clone()].into_iter().flatten() {
            text = format!("{text} {part}");
        }
        if let Some(message) = message {
            text = format!("{text}: {message}");
        }
        if let Some(request) = request {
            text = format!("{text} (request {request})");
        }
        Cause(text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Cause {}

/// What to tell the user. `None` for errors that object_store's kinds describe well: missing and changed objects,
/// overload, broken connections in the middle.
pub(super) fn explain(
    facts: &Facts,
    doing: Doing,
    bucket: &str,
    connection: &Connection,
    refused: &Refused,
) -> Option<Error> {
    let Connection { provider, region, endpoint, .. } = connection;
    let denied = |what: String| Error::new(ErrorKind::Denied, what);
    let error = if facts.expired() {
        denied("the session token has expired".into())
            .hint(format!("get new credentials and open the dataset again (they came from: {provider})"))
    } else if facts.misdirected(connection, refused) {
        match facts.region.as_ref().or(refused.region.as_ref()).filter(|right| *right != region) {
            Some(right) => Error::config(format!("the bucket `{bucket}` is in the region {right}, not in {region}"))
                .hint(format!(
                    "set AWS_REGION={right}, and AWS_ENDPOINT_URL to an endpoint of that region or to nothing"
                )),
            None => Error::config(format!(
                "the bucket `{bucket}` is not in the region {region}, and the store does not say where"
            ))
            .hint(format!("set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL if {endpoint} is wrong")),
        }
    } else if facts.is(&["SignatureDoesNotMatch"]) {
        denied("the secret access key is wrong: the signature does not match".into())
            .hint(format!("check the secret of: {provider}"))
    } else if facts.is(&["InvalidAccessKeyId"]) {
        denied("the store does not know the access key".into())
            .hint(format!("check the key of: {provider}, and that {endpoint} is the right store"))
    } else if facts.is(&["InvalidToken", "UnrecognizedClientException"]) {
        denied("the session token is wrong or missing".into()).hint(format!(
            "set AWS_SESSION_TOKEN with temporary keys, unset it with lasting ones (provider: {provider})"
        ))
    } else if facts.is(&["RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpired"]) {
        let now = refused.date.as_deref().map_or(String::new(), |date| format!("; there it is {date}"));
        denied(format!("this machine's clock is more than 15 minutes off the store's{now}"))
            .hint("set the clock, then open the dataset again")
    } else if facts.is(&["NoSuchBucket"]) {
        Error::new(ErrorKind::NotFound, format!("there is no bucket `{bucket}` at {endpoint}"))
            .hint("check the name, and AWS_ENDPOINT_URL")
    } else if facts.is(&["InvalidBucketName"]) {
        Error::config(format!("`{bucket}` is not a bucket's name to this store")).hint("write s3://bucket/prefix")
    } else if let Some((HttpErrorKind::Connect, text)) = &facts.transport {
        let error = Error::new(ErrorKind::Io, format!("the endpoint {endpoint} cannot be reached"));
        match text.to_ascii_lowercase().contains("certificate") {
            true => error.hint("set AWS_CA_BUNDLE to the file of the authority that signed the endpoint's certificate"),
            false => error.hint("check AWS_ENDPOINT_URL, AWS_REGION and the network"),
        }
    } else if facts.status == Some(403) || facts.status == Some(401) {
        match doing {
            Doing::Listing => denied(format!("listing the bucket `{bucket}` is not allowed"))
                .hint("allow s3:ListBucket on it; set AWS_REQUEST_PAYER=requester if it is a requester-pays bucket"),
            Doing::Reading => denied("reading is not allowed, or there is no such object".into()).hint(
                "allow s3:GetObject; with s3:ListBucket the store tells which; set AWS_REQUEST_PAYER=requester if it \
                 is a requester-pays bucket",
            ),
        }
    } else if facts.status == Some(400) {
        Error::new(ErrorKind::Unsupported, "the store does not understand the request")
            .hint(format!("check that {endpoint} speaks S3"))
    } else {
        return None;
    };
    Some(error.with_source(facts.cause()))
}
