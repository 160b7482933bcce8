//! Explains refusals of a bucket, and what to do about them.

use std::{error::Error as StdError, fmt, io};

use infeed_core::error::{Error, ErrorKind};

use super::Connection;
use crate::{
    answer::{Answer, Phase, Refusal, Remedy},
    errors::files_ran_out,
};

/// What was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Reading,
    Listing,
}

pub(super) fn expired(refusal: &Refusal) -> bool {
    refusal.is(&["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"])
}

/// The request went to a region other than the bucket's.
pub(super) fn misdirected(refusal: &Refusal, connection: &Connection) -> bool {
    let other = refusal.region.as_ref().is_some_and(|region| *region != connection.region);
    // An answer to HEAD has no error code.
    let told = refusal.status == 400 && refusal.code.is_none() && other;
    refusal.to_nowhere
        || refusal.sends_to.is_some()
        || told
        || refusal.is(&["PermanentRedirect", "TemporaryRedirect", "IncorrectEndpoint"])
        || (refusal.is(&["AuthorizationHeaderMalformed"]) && other)
}

/// The error for the user. `None` if object_store's own kinds describe it well: missing and changed objects, overload,
/// connections that broke later.
pub(super) fn explain(answer: &Answer, doing: Doing, bucket: &str, connection: &Connection) -> Option<Error> {
    let error = match answer {
        Answer::Refused(refusal) => refused(refusal, doing, bucket, connection)?,
        Answer::Broken(broken) => {
            let proxy = proxy(&connection.endpoint, |name| std::env::var(name).ok());
            unreached(broken.phase, &connection.endpoint, proxy)?
        }
    };
    Some(answer.clone().cause_of(error))
}

fn refused(refusal: &Refusal, doing: Doing, bucket: &str, connection: &Connection) -> Option<Error> {
    let Connection { provider, region, endpoint, .. } = connection;
    let denied = |what: String| Error::new(ErrorKind::Denied, what);
    Some(if refusal.remedy() == Remedy::FewerRequests {
        return None;
    } else if expired(refusal) {
        denied("the session token has expired".into())
            .with_hint(format!("get new credentials and open the dataset again (they came from: {provider})"))
    } else if misdirected(refusal, connection) {
        match (refusal.region.as_ref().filter(|right| *right != region), &refusal.sends_to) {
            (Some(right), _) => Error::config(format!("the bucket `{bucket}` is in the region {right}, not in {region}"))
                .with_hint(format!(
                    "set AWS_REGION={right}, and set AWS_ENDPOINT_URL to an endpoint of that region or unset it"
                )),
            (None, Some(host)) => Error::config(format!(
                "{endpoint} sends requests for the bucket `{bucket}` on to {host}, which is not followed: it would get what \
                 was signed for {endpoint}, the session token among it"
            ))
            .with_hint(format!(
                "set AWS_REGION to the bucket's region if {region} is wrong, or AWS_ENDPOINT_URL to the right endpoint"
            )),
            (None, None) => Error::config(format!(
                "the bucket `{bucket}` is not in the region {region}, and the store does not report where it is"
            ))
            .with_hint(format!("set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL if {endpoint} is wrong")),
        }
    } else if refusal.is(&["SignatureDoesNotMatch"]) {
        denied("the secret access key is wrong: the signature does not match".into())
            .with_hint(format!("check the secret of: {provider}"))
    } else if refusal.is(&["InvalidAccessKeyId"]) {
        denied("the store does not know the access key".into())
            .with_hint(format!("check the key of: {provider}, and that {endpoint} is the right store"))
    } else if refusal.is(&["InvalidToken", "UnrecognizedClientException"]) {
        denied("the session token is wrong or missing".into()).with_hint(format!(
            "set AWS_SESSION_TOKEN if the keys are temporary, otherwise unset it (provider: {provider})"
        ))
    } else if refusal.is(&["RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpired"]) {
        let now = refusal.date.as_deref().map_or(String::new(), |date| format!("; the store's clock shows {date}"));
        denied(format!("this machine's clock is more than 15 minutes off the store's{now}"))
            .with_hint("set the clock, then open the dataset again")
    } else if refusal.is(&["NoSuchBucket"]) {
        Error::new(ErrorKind::NotFound, format!("there is no bucket `{bucket}` at {endpoint}"))
            .with_hint("check the name, and AWS_ENDPOINT_URL")
    } else if refusal.is(&["InvalidBucketName"]) {
        Error::config(format!("`{bucket}` is not a valid bucket name for this store"))
            .with_hint("write s3://bucket/prefix")
    } else if refusal.is(&["InvalidObjectState"]) {
        // Glacier and similar classes; the status is also 403.
        denied("the object is archived".into())
            .with_hint("restore it first (aws s3api restore-object), or exclude it from the dataset")
            .into_unreadable()
    } else if (refusal.status == 403 || refusal.status == 401) && endpoint.contains(".s3express-") {
        // A session can do everything it was created for, so only creating it can be refused.
        denied(format!("a session for the directory bucket `{bucket}` is not allowed"))
            .with_hint("allow s3express:CreateSession on it, for ReadWrite; s3:GetObject and s3:ListBucket do not help")
    } else if refusal.status == 403 || refusal.status == 401 {
        match doing {
            Doing::Listing => denied(format!("listing the bucket `{bucket}` is not allowed"))
                .with_hint("allow s3:ListBucket on it; set AWS_REQUEST_PAYER=requester if it is a requester-pays bucket"),
            Doing::Reading => denied("reading is not allowed, or there is no such object".into()).with_hint(
                "allow s3:GetObject; with s3:ListBucket the store reports which; set AWS_REQUEST_PAYER=requester if it \
                 is a requester-pays bucket",
            )
            // Wrong keys have error codes of their own, handled above.
            .into_unreadable(),
        }
    } else if refusal.status == 400 {
        Error::new(ErrorKind::Unsupported, "the store does not understand the request")
            .with_hint(format!("check that {endpoint} speaks S3"))
    } else {
        return None;
    })
}

fn unreached(phase: Phase, endpoint: &str, proxy: Option<String>) -> Option<Error> {
    let error = |what: &str| Error::new(ErrorKind::Io, format!("the endpoint {endpoint} cannot be reached{what}"));
    match (phase, proxy) {
        (Phase::Connecting, Some(proxy)) => Some(
            error(&format!(" through the proxy {proxy}"))
                .with_hint("check that the proxy runs, or put the endpoint's host into NO_PROXY"),
        ),
        (Phase::Connecting, None) => Some(error("").with_hint("check AWS_ENDPOINT_URL, AWS_REGION and the network")),
        (Phase::Handshake, _) => Some(error("").with_hint(
            "set AWS_CA_BUNDLE to the file of the authority that signed the endpoint's certificate, or write http:// \
             if it does not encrypt",
        )),
        (Phase::NoFiles, _) => Some(files_ran_out()),
        (Phase::Later, _) => None,
    }
}

/// The proxy that the client uses for this endpoint: its host, without any password, and the variable that names it.
fn proxy(endpoint: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let first = |names: &[&'static str]| {
        names.iter().find_map(|name| Some((*name, variable(name).filter(|value| !value.is_empty())?)))
    };
    let endpoint = url::Url::parse(endpoint).ok()?;
    let host = endpoint.host_str()?;
    let passes = |entry: &str| {
        let entry = entry.trim().trim_start_matches('.');
        entry == "*" || host == entry || host.strip_suffix(entry).is_some_and(|rest| rest.ends_with('.'))
    };
    let of_scheme: &[&str] = match endpoint.scheme() {
        "https" => &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"],
        _ => &["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"],
    };
    let (name, value) = match first(&["AWS_PROXY_URL"]) {
        Some(own) => own,
        None if first(&["NO_PROXY", "no_proxy"]).is_some_and(|(_, all)| all.split(',').any(passes)) => return None,
        None => first(of_scheme)?,
    };
    let whole = if value.contains("://") { value } else { format!("http://{value}") };
    let proxy = url::Url::parse(&whole).ok();
    let at = proxy.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
    });
    Some(at.map_or_else(|| name.to_owned(), |at| format!("{at} ({name})")))
}

/// The cause kept in an error when the original may repeat secrets: facts only, never the text of an answer.
#[derive(Debug)]
pub(super) struct Cause(String);

impl Cause {
    pub(super) fn of(error: &object_store::Error) -> Self {
        let of_the_system = || {
            std::iter::successors(error.source(), |error| (*error).source()).find_map(|e| e.downcast_ref::<io::Error>())
        };
        Self(match (Answer::of(error), of_the_system()) {
            (Some(Answer::Refused(refusal)), _) => refusal.to_string(),
            (Some(Answer::Broken(broken)), _) => broken.to_string(),
            (None, Some(error)) => error.to_string(),
            (None, None) => "the answer could not be understood".into(),
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Cause {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_named_with_its_variable_and_without_its_password() {
        let of = |endpoint: &str, variables: &[(&str, &str)]| {
            proxy(endpoint, |name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned()))
        };
        let (aws, near) = ("https://s3.eu-west-1.amazonaws.com", "http://127.0.0.1:9000");
        assert_eq!(of(aws, &[]), None);
        assert_eq!(of(aws, &[("HTTP_PROXY", "http://p:1")]), None);
        assert_eq!(of(aws, &[("HTTPS_PROXY", "http://me:hush@p:1/x")]).unwrap(), "p:1 (HTTPS_PROXY)");
        assert_eq!(of(near, &[("http_proxy", "p:1")]).unwrap(), "p:1 (http_proxy)");
        assert_eq!(of(near, &[("ALL_PROXY", "socks5://p:1")]).unwrap(), "p:1 (ALL_PROXY)");
        assert_eq!(of(near, &[("HTTP_PROXY", "hush hush")]).unwrap(), "HTTP_PROXY");
        let no = |no| [("NO_PROXY", no), ("HTTPS_PROXY", "http://p:1")];
        for passed in ["*", "x, .amazonaws.com", "amazonaws.com", "s3.eu-west-1.amazonaws.com"] {
            assert_eq!(of(aws, &no(passed)), None, "{passed}");
        }
        assert!(of(aws, &no("onaws.com, 127.0.0.1")).is_some());
        let said = unreached(Phase::Connecting, near, Some("p:1 (http_proxy)".into())).unwrap().to_string();
        assert!(said.contains("through the proxy p:1 (http_proxy)") && said.contains("NO_PROXY"), "{said}");
        let said = unreached(Phase::Handshake, aws, None).unwrap().to_string();
        assert!(said.contains("AWS_CA_BUNDLE"), "{said}");
    }
}
