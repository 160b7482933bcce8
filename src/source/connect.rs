//! From a url of a bucket to a store that answers.
//!
//! ```text
//! Source::parse ─▶ variables ─ connect ─▶ credentials ─▶ region ─▶ a client for each runtime ─▶ requests
//!                                ▲                                                                 │
//!                                └───── once more: expired token, bucket in another region ────────┘
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **An answer of a store holds secrets.** `SignatureDoesNotMatch` repeats the request that was signed, session token
//!   included. So the text of a refusal never becomes the cause of an error: what [`Connector`] notes of it does, which
//!   is status, code, message and the request's name.
//! - **A client belongs to a runtime.** Its idle connections are driven by tasks of the runtime that made them, and hang
//!   when that one is not polled, as after `runtime.block_on(infeed::open(..))`. So each runtime gets its own.
//! - **Nothing configured means a metadata service is asked**, which takes up to a minute to fail by itself. All of
//!   connecting together has [`PATIENCE`].

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
mod connector;
#[cfg(feature = "s3")]
mod credentials;
#[cfg(feature = "s3")]
mod explain;
#[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
mod others;
#[cfg(feature = "s3")]
mod pages;
#[cfg(feature = "s3")]
mod profile;
#[cfg(feature = "s3")]
mod s3;

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::Serialize;

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub use connector::Connector;
#[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
pub(super) use others::open as open_other;
#[cfg(feature = "s3")]
pub(super) use s3::Remote;

use crate::error::{Error, Result};

/// Credentials and region, in all.
#[cfg(feature = "s3")]
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// How a bucket was reached. Holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Where the credentials came from, such as `environment` or ``profile `ml` of /home/me/.aws/credentials``.
    pub provider: String,
    /// The bucket's region.
    pub region: String,
    /// Where requests go.
    pub endpoint: String,
    /// Whether the bucket is part of the path rather than of the host.
    pub path_style: bool,
    /// Whether requests say that their sender pays.
    pub requester_pays: bool,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, region, endpoint, path_style, requester_pays } = self;
        write!(f, "{endpoint}, region {region}, credentials: {provider}")?;
        f.write_str(if *path_style { "" } else { ", virtual-hosted" })?;
        f.write_str(if *requester_pays { ", requester pays" } else { "" })
    }
}

/// The variables that say how to reach a store: a snapshot of the environment, or what the caller gave instead.
/// Cloning gives another handle. Debug shows names only.
#[derive(Clone)]
pub(super) struct Vars(Arc<BTreeMap<String, String>>);

impl Vars {
    /// The environment of this process. Names and values that are not Unicode are left out.
    pub(super) fn process() -> Self {
        Self(Arc::new(
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect(),
        ))
    }

    /// `None` for an empty value too: launchers write `AWS_PROFILE=` to mean nothing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).map(str::trim).filter(|value| !value.is_empty())
    }

    #[cfg(feature = "s3")]
    fn first(&self, names: &[&str]) -> Option<&str> {
        names.iter().find_map(|name| self.get(name))
    }

    /// `true`, `1`, `yes`, `on` or their opposites.
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    fn flag(&self, name: &'static str) -> Result<bool> {
        match self.get(name).unwrap_or("false").to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" | "y" | "t" => Ok(true),
            "false" | "0" | "no" | "off" | "n" | "f" => Ok(false),
            _ => Err(Error::config(format!("{name} is neither true nor false")).hint(format!("set {name}=true"))),
        }
    }

    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure"))]
    fn starting_with(&self, start: &'static str) -> impl Iterator<Item = (&str, &str)> {
        let names = self.0.keys().filter(move |name| name.starts_with(start));
        names.filter_map(|name| Some((name.as_str(), self.get(name)?)))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Vars {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(variables: I) -> Self {
        Self(Arc::new(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect()))
    }
}

impl fmt::Debug for Vars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// Checks a bucket's name by the rules that all stores share, which finds most typos of urls.
pub(super) fn check_bucket(bucket: &str, url: &str) -> Result<()> {
    let bad = |what: String, hint: String| Err(Error::config(what).at_object(url).hint(hint));
    if bucket.contains(|c: char| c.is_ascii_uppercase()) && !bucket.contains('@') {
        let lower = bucket.to_ascii_lowercase();
        return bad(format!("the bucket's name `{bucket}` has upper-case letters"), format!("write s3://{lower}/…"));
    }
    if bucket.contains('@') {
        // Not repeated: what stands before it may be a password.
        return Err(Error::config("the url of a bucket cannot hold `@`")
            .hint("a url holds no credentials; write s3://bucket/prefix and set the AWS_* variables"));
    }
    if let Some(wrong) = bucket.chars().find(|c| !c.is_ascii_lowercase() && !c.is_ascii_digit() && !".-_".contains(*c))
    {
        let hint = match wrong {
            ':' => "write s3://bucket/prefix; an endpoint goes into AWS_ENDPOINT_URL",
            _ => "write s3://bucket/prefix",
        };
        return bad(format!("a bucket's name cannot hold `{wrong}`"), hint.to_owned());
    }
    if !(3..=63).contains(&bucket.len()) {
        return bad(
            format!("the bucket's name has {} letters; names have 3 to 63", bucket.len()),
            "write s3://bucket/prefix".into(),
        );
    }
    Ok(())
}

#[cfg(all(test, feature = "s3"))]
mod tests;
