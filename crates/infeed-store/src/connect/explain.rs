//! What a bucket's refusal means, and what to do about it.

use std::{error::Error as StdError, fmt, io};

use infeed_core::error::{Error, ErrorKind};

use super::Connection;
use crate::{
    answer::{Answer, Phase, Refusal, Remedy},
    errors::files_ran_out,
};

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Reading,
    Listing,
}

pub(super) fn expired(refusal: &Refusal) -> bool {
    refusal.is(&["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"])
}

/// The region that was asked is not the bucket's.
pub(super) fn misdirected(refusal: &Refusal, connection: &Connection) -> bool {
    let other = refusal.region.as_ref().is_some_and(|region| *region != connection.region);
    // An answer to HEAD has no code.
    let told = refusal.status == 400 && refusal.code.is_none() && other;
    refusal.to_nowhere
        || refusal.sends_to.is_some()
        || told
        || refusal.is(&["PermanentRedirect", "TemporaryRedirect", "IncorrectEndpoint"])
        || (refusal.is(&["AuthorizationHeaderMalformed"]) && other)
}

/// What to tell the user. `None` for errors that object_store's kinds describe well: missing and changed objects,
/// overload, broken connections in the middle.
pub(super) fn explain(answer: &Answer, doing: Doing, bucket: &str, connection: &Connection) -> Option<Error> {
    let error = match answer {
        Answer::Refused(refusal) => refused(refusal, doing, bucket, connection)?,
        Answer::Broken(broken) => unreached(broken.phase, &connection.endpoint)?,
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
            .hint(format!("get new credentials and open the dataset again (they came from: {provider})"))
    } else if misdirected(refusal, connection) {
        match (refusal.region.as_ref().filter(|right| *right != region), &refusal.sends_to) {
            (Some(right), _) => Error::config(format!("the bucket `{bucket}` is in the region {right}, not in {region}"))
                .hint(format!(
                    "set AWS_REGION={right}, and AWS_ENDPOINT_URL to an endpoint of that region or to nothing"
                )),
            (None, Some(host)) => Error::config(format!(
                "{endpoint} sends requests for the bucket `{bucket}` on to {host}, which is not followed: it would get what \
                 was signed for {endpoint}, the session token among it"
            ))
            .hint(format!(
                "set AWS_REGION to the bucket's region if {region} is wrong, or AWS_ENDPOINT_URL to the right endpoint"
            )),
            (None, None) => Error::config(format!(
                "the bucket `{bucket}` is not in the region {region}, and the store does not say where"
            ))
            .hint(format!("set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL if {endpoint} is wrong")),
        }
    } else if refusal.is(&["SignatureDoesNotMatch"]) {
        denied("the secret access key is wrong: the signature does not match".into())
            .hint(format!("check the secret of: {provider}"))
    } else if refusal.is(&["InvalidAccessKeyId"]) {
        denied("the store does not know the access key".into())
            .hint(format!("check the key of: {provider}, and that {endpoint} is the right store"))
    } else if refusal.is(&["InvalidToken", "UnrecognizedClientException"]) {
        denied("the session token is wrong or missing".into()).hint(format!(
            "set AWS_SESSION_TOKEN with temporary keys, unset it with lasting ones (provider: {provider})"
        ))
    } else if refusal.is(&["RequestTimeTooSkewed", "RequestInTheFuture", "RequestExpired"]) {
        let now = refusal.date.as_deref().map_or(String::new(), |date| format!("; there it is {date}"));
        denied(format!("this machine's clock is more than 15 minutes off the store's{now}"))
            .hint("set the clock, then open the dataset again")
    } else if refusal.is(&["NoSuchBucket"]) {
        Error::new(ErrorKind::NotFound, format!("there is no bucket `{bucket}` at {endpoint}"))
            .hint("check the name, and AWS_ENDPOINT_URL")
    } else if refusal.is(&["InvalidBucketName"]) {
        Error::config(format!("`{bucket}` is not a bucket's name to this store")).hint("write s3://bucket/prefix")
    } else if refusal.is(&["InvalidObjectState"]) {
        // Glacier and the like; also answered as 403.
        denied("the object is archived".into())
            .hint("restore it first (aws s3api restore-object), or leave it out of the dataset")
            .unreadable()
    } else if refusal.status == 403 || refusal.status == 401 {
        match doing {
            Doing::Listing => denied(format!("listing the bucket `{bucket}` is not allowed"))
                .hint("allow s3:ListBucket on it; set AWS_REQUEST_PAYER=requester if it is a requester-pays bucket"),
            Doing::Reading => denied("reading is not allowed, or there is no such object".into()).hint(
                "allow s3:GetObject; with s3:ListBucket the store tells which; set AWS_REQUEST_PAYER=requester if it \
                 is a requester-pays bucket",
            )
            // Keys that are wrong altogether have codes of their own, above.
            .unreadable(),
        }
    } else if refusal.status == 400 {
        Error::new(ErrorKind::Unsupported, "the store does not understand the request")
            .hint(format!("check that {endpoint} speaks S3"))
    } else {
        return None;
    })
}

fn unreached(phase: Phase, endpoint: &str) -> Option<Error> {
    let error = Error::new(ErrorKind::Io, format!("the endpoint {endpoint} cannot be reached"));
    match phase {
        Phase::Connecting => Some(error.hint("check AWS_ENDPOINT_URL, AWS_REGION and the network")),
        Phase::Handshake => Some(error.hint(
            "set AWS_CA_BUNDLE to the file of the authority that signed the endpoint's certificate, or write http:// \
             if it does not encrypt",
        )),
        Phase::NoFiles => Some(files_ran_out()),
        Phase::Later => None,
    }
}

/// The cause that an error keeps where what failed may repeat secrets: facts, never the text of an answer.
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
