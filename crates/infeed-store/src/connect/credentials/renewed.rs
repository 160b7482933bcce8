//! Renews credentials before they expire.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{CredentialProvider, aws::AwsCredential};
use reqwest::header::HeaderValue;
use serde_json::Value;
use tokio::time::Instant;

use super::super::pages::wrap;

/// Time before the expiry, as in `object_store` and the SDKs: a request that is signed now may be sent a while later.
pub(super) const MARGIN: Duration = Duration::from_secs(300);
/// Time between two attempts while the old credentials are still valid or about to expire.
const PAUSES: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30);

/// Credentials from a service or a program.
pub(super) struct Issued {
    pub(super) credential: AwsCredential,
    /// `None`: they do not expire.
    pub(super) ends: Option<SystemTime>,
}

impl Issued {
    /// Parses the JSON of containers, programs and single sign-on portals. An error names what is missing, but no
    /// value.
    pub(super) fn of_json(answer: &Value) -> Result<Self, String> {
        let text = |names: &[&str]| names.iter().find_map(|name| answer.get(name)?.as_str()).filter(|t| !t.is_empty());
        let needed = |names: &[&str]| text(names).map(str::to_owned).ok_or_else(|| format!("it has no {}", names[0]));
        let credential = AwsCredential {
            key_id: needed(&["AccessKeyId", "accessKeyId"])?,
            secret_key: needed(&["SecretAccessKey", "secretAccessKey"])?,
            token: text(&["Token", "SessionToken", "sessionToken"]).map(str::to_owned),
        };
        let ends = ["Expiration", "expiration", "expiresAt"].iter().find_map(|name| answer.get(name));
        let ends = match ends.filter(|ends| !ends.is_null()) {
            None => None,
            Some(Value::Number(milliseconds)) => milliseconds
                .as_u64()
                .and_then(|number| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(number))),
            Some(ends) => Some(ends.as_str().and_then(time).ok_or("its Expiration is not a time")?),
        };
        Ok(Self { credential, ends })
    }
}

/// Parses RFC 3339, also with an offset, or with the `UTC` that older AWS command lines wrote.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    let text = text.trim().trim_end_matches("UTC");
    let date = "2026-11-27T".len();
    let zone = text.get(date..)?.find(['+', '-']).map_or(text.len(), |at| date + at);
    let (local, zone) = text.split_at(zone);
    let local = humantime::parse_rfc3339_weak(local).ok()?;
    if zone.is_empty() {
        return Some(local);
    }
    let digits = zone[1..].replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2).filter(|(_, minutes)| minutes.len() == 2)?;
    let offset = Duration::from_secs(hours.parse::<u64>().ok()? * 3600 + minutes.parse::<u64>().ok()? * 60);
    if zone.starts_with('+') { local.checked_sub(offset) } else { local.checked_add(offset) }
}

/// The code that signs assumes that these fit into a header, and would end the process if they do not.
pub(super) fn check(credential: &AwsCredential) -> Result<()> {
    let AwsCredential { key_id, token, .. } = credential;
    for (what, text) in [("access key", Some(key_id)), ("session token", token.as_ref())] {
        if text.is_some_and(|text| HeaderValue::from_str(text).is_err()) {
            return Err(Error::config(format!("the {what} contains line breaks or other invalid characters"))
                .with_hint("set it as it was issued, on one line"));
        }
    }
    Ok(())
}

/// A source of credentials. infeed's own errors are passed on unchanged.
#[async_trait]
pub(super) trait Issuer: fmt::Debug + Send + Sync {
    async fn issue(&self) -> object_store::Result<Issued>;
}

/// The credentials that were issued last.
struct Kept {
    credential: Arc<AwsCredential>,
    ends: Option<Instant>,
    renew: Option<Instant>,
}

impl Kept {
    fn new(issued: Issued) -> Result<Self> {
        check(&issued.credential)?;
        let now = Instant::now();
        let left = issued.ends.map(|ends| ends.duration_since(SystemTime::now()).unwrap_or_default());
        // Credentials that last only minutes are not requested with every request.
        let renew = left.map(|left| left.saturating_sub(MARGIN.min(left / 2)).max(*PAUSES.start()));
        let after = |time: Option<Duration>| time.and_then(|time| now.checked_add(time));
        Ok(Self { credential: Arc::new(issued.credential), ends: after(left), renew: after(renew) })
    }
}

/// Without the secrets.
impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("ends", &self.ends).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Renewed<I> {
    issuer: I,
    kept: tokio::sync::Mutex<Option<Kept>>,
}

impl<I> Renewed<I> {
    pub(super) fn new(issuer: I) -> Self {
        Self { issuer, kept: tokio::sync::Mutex::default() }
    }
}

#[async_trait]
impl<I: Issuer> CredentialProvider for Renewed<I> {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut last = self.kept.lock().await;
        if let Some(kept) = last.as_ref().filter(|kept| kept.renew.is_none_or(|renew| Instant::now() < renew)) {
            return Ok(Arc::clone(&kept.credential));
        }
        let issued = self.issuer.issue().await.and_then(|issued| Kept::new(issued).map_err(wrap));
        match (issued, last.as_mut()) {
            (Ok(fresh), _) => Ok(Arc::clone(&last.insert(fresh).credential)),
            // While the old credentials are valid, an outage of their source is no failure of the store.
            (Err(error), Some(Kept { credential, ends: Some(ends), renew })) if *ends > Instant::now() => {
                let left = ends.duration_since(Instant::now());
                *renew = Some(Instant::now() + (left / 2).clamp(*PAUSES.start(), *PAUSES.end()));
                tracing::warn!(seconds = left.as_secs(), %error, "credentials are not renewed yet; trying again");
                Ok(Arc::clone(credential))
            }
            (Err(error), _) => Err(error),
        }
    }
}

/// An error for an answer of an unexpected form.
pub(super) fn odd(what: impl fmt::Display) -> object_store::Error {
    wrap(Error::new(ErrorKind::Denied, format!("the credentials have an unknown form: {what}")))
}
