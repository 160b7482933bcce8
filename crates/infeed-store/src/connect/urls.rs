//! Checks the url of a store.

#[cfg(feature = "s3")]
use infeed_core::error::Result;
use infeed_core::error::{Error, ErrorKind};

#[cfg(feature = "s3")]
use super::BucketKind;

/// Splits the part after `s3://` into bucket and prefix. The ARN of an access point contains a slash itself.
#[cfg(feature = "s3")]
pub(crate) fn halves(rest: &str) -> (&str, &str) {
    const BEFORE: &str = ":accesspoint/";
    let arn = rest.strip_prefix("arn:").and_then(|arn| Some("arn:".len() + arn.find(BEFORE)? + BEFORE.len()));
    let start = arn.unwrap_or(0);
    match rest[start..].find('/') {
        Some(slash) => (&rest[..start + slash], &rest[start + slash + 1..]),
        None => (rest, ""),
    }
}

/// Checks a bucket's name by the rules that all stores share, which detects most mistyped urls.
#[cfg(feature = "s3")]
pub(crate) fn check_bucket(bucket: &str, url: &str) -> Result<()> {
    let bad = |what: String, hint: String| Err(Error::config(what).at_object(url).with_hint(hint));
    if bucket.starts_with("arn:") {
        return BucketKind::of(bucket).map(drop).map_err(|error| error.at_object(url));
    }
    if bucket.contains(|c: char| c.is_ascii_uppercase()) && !bucket.contains('@') {
        let lower = bucket.to_ascii_lowercase();
        return bad(format!("the bucket's name `{bucket}` has upper-case letters"), format!("write s3://{lower}/…"));
    }
    if bucket.contains('@') {
        // Not repeated in the message: the part before it may be a password.
        return Err(Error::config("the url of a bucket cannot contain `@`")
            .with_hint("write s3://bucket/prefix, and set the AWS_* variables to the credentials"));
    }
    if let Some(wrong) = bucket.chars().find(|c| !c.is_ascii_lowercase() && !c.is_ascii_digit() && !".-_".contains(*c))
    {
        let hint = match wrong {
            ':' => "write s3://bucket/prefix; an endpoint goes into AWS_ENDPOINT_URL",
            _ => "write s3://bucket/prefix",
        };
        return bad(format!("a bucket's name cannot contain `{wrong}`"), hint.to_owned());
    }
    if !(3..=63).contains(&bucket.len()) {
        return bad(
            format!("the bucket's name has {} characters; 3 to 63 are allowed", bucket.len()),
            "write s3://bucket/prefix".into(),
        );
    }
    BucketKind::of(bucket).map(drop).map_err(|error| error.at_object(url))
}

/// An error that names the missing feature.
pub(crate) fn lacks(scheme: &str) -> Error {
    let feature = match scheme.to_ascii_lowercase().as_str() {
        "s3" => "s3",
        "gs" => "gcs",
        "az" => "azure",
        // Includes `hf`.
        _ => "http",
    };
    Error::new(
        ErrorKind::Unsupported,
        format!("{scheme}:// needs the feature `{feature}`, which this build does not have"),
    )
    .with_hint(format!("build infeed with `--features {feature}`"))
}
