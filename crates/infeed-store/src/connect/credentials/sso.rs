//! Roles of IAM Identity Center (single sign-on), obtained with the token that `aws sso login` keeps.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-sso-credentials.html>
//!
//! The token of a `[sso-session NAME]` lasts for an hour. It is renewed with a refresh token that is kept next to it
//! and changes with each renewal: the new ones replace the old ones in the file, for the command line and other
//! processes. If two processes renew at the same time, the one that fails reads the file again. The token of a profile
//! with its own `sso_start_url` is never renewed.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::client::HttpRequestBody;
use reqwest::{Method, header::HeaderValue};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};
use url::Url;

use super::{
    super::{
        pages::wrap,
        profile::{Profile, filled, home},
    },
    renewed::{Issued, Issuer, MARGIN, odd, time},
    service::{Chain, Client, request, secret},
};
use crate::{
    answer::{Answer, Remedy},
    checksum::hex,
};

#[derive(Debug)]
pub(super) struct Sso {
    client: Client,
    profile: String,
    /// The address that returns credentials for roles.
    portal: Url,
    /// Where tokens are renewed; `None` if they can't be renewed.
    renewals: Option<String>,
    /// The file that keeps the token.
    kept: PathBuf,
}

impl Sso {
    pub(super) fn new(profile: &Profile, chain: &Chain<'_>) -> Result<Self> {
        let lacks = |key: &str, whose: String| {
            Error::config(format!("{whose} has no {key}"))
                .at_object(profile.file.display().to_string())
                .with_hint(format!("run `aws configure sso --profile {}`", profile.name))
        };
        let of_profile = |key| profile.get(key).ok_or_else(|| lacks(key, format!("the profile `{}`", profile.name)));
        let (account, role) = (of_profile("sso_account_id")?, of_profile("sso_role_name")?);
        let session = profile.get("sso_session");
        let (name, region) = match session {
            None => (of_profile("sso_start_url")?, of_profile("sso_region")?),
            Some(name) => {
                let section = format!("[sso-session {name}]");
                let of = profile.sso_session(name).ok_or_else(|| {
                    let what = format!("the profile `{}` names {section}, which does not exist", profile.name);
                    Error::config(what)
                        .with_hint("add the section to ~/.aws/config, or run `aws configure sso-session`")
                })?;
                let get = |key| filled(of, key).ok_or_else(|| lacks(key, section.clone()));
                get("sso_start_url")?;
                (name, get("sso_region")?)
            }
        };
        let at = |service, name| chain.endpoint(service, name, region);
        let mut portal =
            format!("{}/federation/credentials", at("sso", "portal.sso")?).parse::<Url>().map_err(|_| {
                Error::config("the endpoint of single sign-on is not a url").with_hint("unset AWS_ENDPOINT_URL_SSO")
            })?;
        portal.query_pairs_mut().append_pair("role_name", role).append_pair("account_id", account);
        let renewals = session.map(|_| at("sso_oidc", "oidc")).transpose()?;
        let kept = format!("{}.json", hex(&Sha1::digest(name)));
        let kept = Path::new(home(chain.vars).unwrap_or_default()).join(".aws/sso/cache").join(kept);
        Ok(Self { client: chain.client()?, profile: profile.name.clone(), portal, renewals, kept })
    }

    fn log_in(&self, what: &str) -> Error {
        Error::new(ErrorKind::Denied, format!("the profile `{}` uses single sign-on, {what}", self.profile))
            .at_object(self.kept.display().to_string())
            .with_hint(format!("run `aws sso login --profile {}`", self.profile))
    }

    async fn read(&self) -> Result<Kept> {
        let text = tokio::fs::read(&self.kept).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.log_in("but nobody has logged in"),
            _ => self.log_in("but its token cannot be read").with_source(error),
        })?;
        let kept = serde_json::from_slice(&text).ok().and_then(|values| {
            let kept = Kept { values, ends: SystemTime::UNIX_EPOCH };
            let ends = time(kept.get("expiresAt")?)?;
            kept.get("accessToken")?;
            Some(Kept { ends, ..kept })
        });
        kept.ok_or_else(|| self.log_in("but its token file contains no token"))
    }

    /// A token that is valid for some time.
    async fn token(&self) -> object_store::Result<Kept> {
        let kept = self.read().await.map_err(wrap)?;
        if kept.left() > MARGIN {
            return Ok(kept);
        }
        let mut failed = None;
        if let Some(endpoint) = &self.renewals {
            match self.renew(endpoint, &kept).await {
                Ok(Some(fresh)) => return Ok(fresh),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        // Another process may have renewed it in the meantime, which makes the kept refresh token invalid.
        match (self.read().await.map_err(wrap)?, failed) {
            (kept, _) if !kept.left().is_zero() => Ok(kept),
            (_, Some(error)) if Answer::of(&error).is_some_and(|answer| answer.remedy() != Remedy::None) => Err(error),
            _ => Err(wrap(self.log_in("but its token has expired"))),
        }
    }

    /// `None` if nothing is kept to renew it with.
    async fn renew(&self, endpoint: &str, kept: &Kept) -> object_store::Result<Option<Kept>> {
        let (Some(id), Some(hush), Some(refresh)) =
            (kept.get("clientId"), kept.get("clientSecret"), kept.get("refreshToken"))
        else {
            return Ok(None);
        };
        let asked = json!({
            "clientId": id, "clientSecret": hush, "grantType": "refresh_token", "refreshToken": refresh,
        });
        let kind = ("content-type", HeaderValue::from_static("application/json"));
        let request = request(Method::POST, &format!("{endpoint}/token"), [kind], asked.to_string())?;
        let answer: Map<String, Value> =
            serde_json::from_slice(&self.client.send(request).await?).map_err(|_| odd("it is not JSON"))?;
        let seconds = answer.get("expiresIn").and_then(Value::as_u64);
        let ends = seconds.and_then(|seconds| SystemTime::now().checked_add(Duration::from_secs(seconds)));
        let ends = ends.ok_or_else(|| odd("it has no expiresIn"))?;
        let mut values = kept.values.clone();
        for name in ["accessToken", "refreshToken"] {
            if let Some(value) = answer.get(name).filter(|value| value.is_string()) {
                values.insert(name.into(), value.clone());
            } else if name == "accessToken" {
                return Err(odd("it has no accessToken"));
            }
        }
        values.insert("expiresAt".into(), humantime::format_rfc3339_seconds(ends).to_string().into());
        if let Err(error) = save(&self.kept, &values) {
            let file = self.kept.display();
            tracing::warn!(%file, %error, "the renewed login cannot be kept: log in again when it expires");
        }
        Ok(Some(Kept { values, ends }))
    }
}

/// The content of a token's file. Other programs write more fields than are read here.
struct Kept {
    values: Map<String, Value>,
    ends: SystemTime,
}

impl Kept {
    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_str()
    }

    fn left(&self) -> Duration {
        self.ends.duration_since(SystemTime::now()).unwrap_or_default()
    }
}

/// Writes the file atomically, readable only by its owner. Not on a separate thread: if the task is dropped meanwhile,
/// the refresh token for the next renewal would be lost.
pub(super) fn save(file: &Path, values: &Map<String, Value>) -> io::Result<()> {
    let aside = file.with_extension(format!("{}.part", std::process::id()));
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let written = options
        .open(&aside)
        .and_then(|mut aside| io::Write::write_all(&mut aside, Value::Object(values.clone()).to_string().as_bytes()))
        .and_then(|()| fs::rename(&aside, file));
    if written.is_err() {
        _ = fs::remove_file(&aside);
    }
    written
}

#[async_trait]
impl Issuer for Sso {
    async fn issue(&self) -> object_store::Result<Issued> {
        let token = self.token().await?;
        let token =
            secret(token.get("accessToken").unwrap_or_default(), "the token of single sign-on").map_err(wrap)?;
        let header = ("x-amz-sso_bearer_token", token);
        let request = request(Method::GET, self.portal.as_str(), [header], HttpRequestBody::empty())?;
        let answer = self.client.send(request).await.map_err(|error| match Answer::of(&error) {
            Some(Answer::Refused(refusal)) if refusal.status == 401 => {
                wrap(self.log_in("but its token is no longer accepted").with_source(refusal))
            }
            _ => error,
        })?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|_| odd("it is not JSON"))?;
        Issued::of_json(answer.get("roleCredentials").unwrap_or(&Value::Null)).map_err(odd)
    }
}
