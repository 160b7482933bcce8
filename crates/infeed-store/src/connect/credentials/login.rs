//! Keys of a console session, kept by `aws login`: valid for 15 minutes, renewable for 12 hours.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-login-credentials.html>
//!
//! They are kept and renewed as botocore does it (`LoginCredentialFetcher`). A renewal proves possession of the private
//! key kept next to them (RFC 9449, DPoP), and stores the new keys for other processes.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use infeed_core::error::{Error, ErrorKind, Result};
use reqwest::{Method, header::HeaderValue};
use rustls::{
    SignatureScheme,
    crypto::ring::sign::any_ecdsa_type,
    pki_types::{PrivateKeyDer, pem::PemObject},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    super::{
        pages::wrap,
        profile::{Profile, expand, home},
    },
    renewed::{Issued, Issuer, MARGIN, odd},
    service::{Chain, Client, request, secret},
    sso::save,
};
use crate::{
    answer::{Answer, Remedy},
    checksum::hex,
};

#[derive(Debug)]
pub(super) struct Login {
    client: Client,
    profile: String,
    renewals: String,
    kept: PathBuf,
}

impl Login {
    pub(super) fn new(session: &str, profile: &Profile, chain: &Chain<'_>) -> Result<Self> {
        let signin = chain.endpoint("signin", "signin", chain.region)?;
        let home = home(chain.vars);
        let folder = chain.vars.get("AWS_LOGIN_CACHE_DIRECTORY").map(|folder| expand(folder, home));
        let folder = folder.unwrap_or_else(|| Path::new(home.unwrap_or_default()).join(".aws/login/cache"));
        Ok(Self {
            client: chain.client()?,
            profile: profile.name.clone(),
            renewals: format!("{signin}/v1/token"),
            kept: folder.join(format!("{}.json", hex(&Sha256::digest(session)))),
        })
    }

    fn log_in(&self, what: &str) -> Error {
        Error::new(ErrorKind::Denied, format!("the profile `{}` uses a console login, {what}", self.profile))
            .at_object(self.kept.display().to_string())
            .with_hint(format!("run `aws login --profile {}`", self.profile))
    }

    async fn read(&self) -> Result<(Map<String, Value>, Issued)> {
        let text = tokio::fs::read(&self.kept).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.log_in("but nobody has logged in"),
            _ => self.log_in("but its file cannot be read").with_source(error),
        })?;
        let values: Option<Map<String, Value>> = serde_json::from_slice(&text).ok();
        let kept = values.and_then(|values| {
            let issued = Issued::of_json(values.get("accessToken")?).ok()?;
            issued.ends.map(|_| (values, issued))
        });
        kept.ok_or_else(|| self.log_in("but its file contains none"))
    }

    async fn renew(&self, mut values: Map<String, Value>) -> object_store::Result<Issued> {
        let get = |name: &str| values.get(name).and_then(Value::as_str);
        let (Some(id), Some(refresh), Some(key)) = (get("clientId"), get("refreshToken"), get("dpopKey")) else {
            return Err(wrap(self.log_in("but its file lacks what is needed to renew it")));
        };
        let proof = proof(key, &self.renewals).ok_or_else(|| wrap(self.log_in("but its key is not valid")))?;
        let headers = [
            ("content-type", HeaderValue::from_static("application/json")),
            ("dpop", secret(&proof, "the proof of a key").map_err(wrap)?),
        ];
        let asked = json!({"clientId": id, "grantType": "refresh_token", "refreshToken": refresh}).to_string();
        let answer = self.client.send(request(Method::POST, &self.renewals, headers, asked)?).await?;
        let mut answer: Map<String, Value> = serde_json::from_slice(&answer).map_err(|_| odd("it is not JSON"))?;
        let seconds = answer.get("expiresIn").and_then(Value::as_u64);
        let ends = seconds.and_then(|seconds| SystemTime::now().checked_add(Duration::from_secs(seconds)));
        let ends = ends.ok_or_else(|| odd("it has no expiresIn"))?;
        let Some(Value::Object(mut keys)) = answer.remove("accessToken") else {
            return Err(odd("it has no accessToken"));
        };
        keys.insert("expiresAt".into(), humantime::format_rfc3339_seconds(ends).to_string().into());
        if let Some(account) = values.get("accessToken").and_then(|old| old.get("accountId")) {
            keys.insert("accountId".into(), account.clone());
        }
        let keys = Value::Object(keys);
        let issued = Issued::of_json(&keys).map_err(odd)?;
        values.insert("accessToken".into(), keys);
        values.extend(answer.remove_entry("refreshToken"));
        if let Err(error) = save(&self.kept, &values) {
            let file = self.kept.display();
            tracing::warn!(%file, %error, "a renewed login cannot be kept: log in again when it expires");
        }
        Ok(issued)
    }
}

#[async_trait]
impl Issuer for Login {
    async fn issue(&self) -> object_store::Result<Issued> {
        let left = |issued: &Issued| issued.ends.and_then(|ends| ends.duration_since(SystemTime::now()).ok());
        let (values, issued) = self.read().await.map_err(wrap)?;
        if left(&issued).is_some_and(|left| left > MARGIN) {
            return Ok(issued);
        }
        let error = match self.renew(values).await {
            Ok(issued) => return Ok(issued),
            Err(error) => error,
        };
        // Another process may have renewed it in the meantime.
        let (_, issued) = self.read().await.map_err(wrap)?;
        match Answer::of(&error) {
            _ if left(&issued).is_some() => Ok(issued),
            Some(answer) if answer.remedy() == Remedy::None => {
                Err(wrap(answer.cause_of(self.log_in("but it has expired"))))
            }
            _ => Err(error),
        }
    }
}

/// A signed proof of possession of this key for this url; `None` if the key has another form.
fn proof(pem: &str, url: &str) -> Option<String> {
    let key = any_ecdsa_type(&PrivateKeyDer::from_pem_slice(pem.as_bytes()).ok()?).ok()?;
    let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256])?;
    let public = key.public_key()?;
    // The public key ends with 4, x, y.
    let [4, point @ ..] = public.as_ref().last_chunk::<65>()? else { return None };
    let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let (x, y) = point.split_at(32);
    let jwk = json!({"kty": "EC", "x": encode(x), "y": encode(y), "crv": "P-256"});
    let head = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk});
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Must never repeat.
    let once = format!("{:016x}{:016x}", RandomState::new().hash_one(now), RandomState::new().hash_one(url));
    let claims = json!({"htm": "POST", "htu": url, "iat": now.as_secs(), "jti": once});
    let text = [head, claims].map(|part| encode(part.to_string().as_bytes())).join(".");
    let signature = plain(&signer.sign(text.as_bytes()).ok()?)?;
    Some(format!("{text}.{}", encode(&signature)))
}

/// The two numbers of a signature, one after the other, from ASN.1: `30 length 02 length r 02 length s`.
fn plain(signature: &[u8]) -> Option<Vec<u8>> {
    let mut rest = signature.strip_prefix(&[0x30])?.get(1..)?;
    let mut both = Vec::new();
    for _ in 0..2 {
        let (&[2, length], tail) = rest.split_first_chunk()? else { return None };
        let (number, tail) = tail.split_at_checked(length.into())?;
        let zeros = number.iter().take_while(|byte| **byte == 0).count();
        let number = &number[zeros..];
        both.resize(both.len() + 32_usize.checked_sub(number.len())?, 0);
        both.extend_from_slice(number);
        rest = tail;
    }
    Some(both)
}
