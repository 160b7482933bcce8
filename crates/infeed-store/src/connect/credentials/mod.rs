//! Finds credentials in the order of the AWS SDKs: environment, web identity, profile, container, instance.
//!
//! ```text
//! find ─▶ environment | web identity | profile | container | instance
//!                                        │ role_arn: source_profile (a profile), credential_source
//!                                        └ web_identity_token_file, sso_*, keys, login_session, credential_process
//! ```
//!
//! `aws-config` could do this. It costs 44 crates that the feature `s3` does not bring by itself (`aws-config` 1.13
//! with `sso`, `credentials-process` and its HTTPS client, by `cargo tree`), among them clients of three services and a
//! second HTTP stack. It would replace the files of this folder and `profile.rs`, 1,600 lines. These sign with
//! `object_store`'s signer and use the store's HTTP client, with its certificates and without redirects.
//!
//! Credentials that expire are renewed before that ([`renewed`]), and once more after the store has refused them
//! (`Remote::heal`, which finds credentials again).

mod container;
mod login;
mod process;
mod renewed;
mod service;
mod sso;
mod sts;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{
    BackoffConfig, ClientOptions, CredentialProvider, RetryConfig,
    aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider},
};

use self::service::Chain;
use super::{
    Connector, Vars,
    explain::Cause,
    profile::{Profile, expand, home},
};
use crate::answer::{Answer, Remedy, our_error, with_answer};

/// Where credentials come from.
pub(super) struct FoundCredentials {
    /// `None`: requests are not signed.
    pub(super) credentials: Option<AwsCredentialProvider>,
    /// As [`Connection::provider`](super::Connection::provider) shows it.
    pub(super) provider: String,
}

/// Tries the providers and waits for a first answer. `region` is only for the token service.
///
/// # Errors
/// `Denied` if no provider has credentials (lists those that were tried), `Unsupported` for profiles that need an MFA
/// code, `Config` for half a configuration.
pub(super) async fn find(
    vars: &Vars,
    profile: Option<&Profile>,
    region: Option<&str>,
    client: &ClientOptions,
    connector: &Connector,
) -> Result<FoundCredentials> {
    if vars.flag("AWS_SKIP_SIGNATURE")? {
        return Ok(FoundCredentials { credentials: None, provider: "none (AWS_SKIP_SIGNATURE)".into() });
    }
    let client = client.clone().with_connect_timeout(Duration::from_secs(2)).with_timeout(Duration::from_secs(5));
    let chain = Chain { vars, profile, region: region.unwrap_or("us-east-1"), client, connector };
    let mut tried = Vec::new();

    let of_profile = || profile.map(|profile| chain.profile(profile, &[])).transpose();
    // The SDKs would sign with the keys of the environment, and ignore the profile that uses these keys to assume a
    // role.
    if profile.is_some_and(takes_environment)
        && let Some(Some(found)) = of_profile()?
    {
        return found.asked_once().await;
    }
    if let Some(found) = chain.environment()? {
        return Ok(found);
    }
    tried.push("the environment (no AWS_ACCESS_KEY_ID)".to_owned());

    if let (Some(file), Some(role)) = (vars.get("AWS_WEB_IDENTITY_TOKEN_FILE"), vars.get("AWS_ROLE_ARN")) {
        let role = sts::Role { arn: role.into(), ..chain.role(None, sts::By::Token(file.into()))? };
        return FoundCredentials::by("web identity (AWS_WEB_IDENTITY_TOKEN_FILE)".into(), role).asked_once().await;
    }
    tried.push("web identity (no AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN)".into());

    match of_profile()? {
        None => tried.push("the files ~/.aws/credentials and ~/.aws/config (no default profile)".into()),
        Some(Some(found)) => return found.asked_once().await,
        Some(None) => {
            let described = profile.map(Profile::describe).unwrap_or_default();
            tried.push(format!("the {described} (no credentials in it)"));
        }
    }

    if let Some(found) = chain.container()? {
        return found.asked_once().await;
    }
    tried.push("the container (no AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI)".into());

    let Some(found) = chain.instance()? else {
        tried.push("the instance (AWS_EC2_METADATA_DISABLED)".into());
        return Err(none(vars, &tried));
    };
    found.asked_once().await.map_err(|error| {
        // Not an instance: the important fact is that nothing is configured.
        tried.push("the instance (its metadata service does not answer)".into());
        none(vars, &tried).with_source(error)
    })
}

/// Whether a profile, or a profile that it refers to, uses keys of the environment.
fn takes_environment(profile: &Profile) -> bool {
    let source = |profile: &Profile| profile.other(profile.get("source_profile")?);
    // Cycles are detected later.
    let mut all = std::iter::successors(Some(profile.clone()), source).take(16);
    all.any(|profile| profile.get("credential_source") == Some("Environment"))
}

impl FoundCredentials {
    fn by(provider: String, issuer: impl renewed::Issuer + 'static) -> Self {
        let credentials = asked(provider.clone(), Arc::new(renewed::Renewed::new(issuer)));
        Self { credentials: Some(credentials), provider }
    }

    fn fixed(provider: String, key: &str, secret: &str, token: Option<&str>) -> Result<Self> {
        let credential =
            AwsCredential { key_id: key.to_owned(), secret_key: secret.to_owned(), token: token.map(str::to_owned) };
        renewed::check(&credential).map_err(|error| error.at_object(provider.as_str()))?;
        let credentials = Arc::new(object_store::StaticCredentialProvider::new(credential));
        Ok(Self { credentials: Some(credentials), provider })
    }

    async fn asked_once(self) -> Result<Self> {
        if let Some(credentials) = &self.credentials {
            let refused = |error| our_error(&error).cloned().unwrap_or_else(|| refused(&self.provider, &error));
            with_answer(credentials.get_credential()).await.map_err(refused)?;
        }
        Ok(self)
    }
}

impl Chain<'_> {
    fn environment(&self) -> Result<Option<FoundCredentials>> {
        let vars = self.vars;
        match (vars.get("AWS_ACCESS_KEY_ID"), vars.get("AWS_SECRET_ACCESS_KEY")) {
            (Some(key), Some(secret)) => {
                let provider = "environment (AWS_ACCESS_KEY_ID)".into();
                FoundCredentials::fixed(provider, key, secret, vars.get("AWS_SESSION_TOKEN")).map(Some)
            }
            (None, None) => Ok(None),
            (key, _) => {
                let (there, missing) = match key {
                    Some(_) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
                    None => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
                };
                Err(Error::config(format!("{there} is set, {missing} is not")).with_hint("set both, or neither"))
            }
        }
    }

    /// `None` if it has no credentials. `through` are the profiles that refer to this one.
    fn profile(&self, profile: &Profile, through: &[&str]) -> Result<Option<FoundCredentials>> {
        let keys = self.keys(profile)?;
        let described = profile.describe();
        match (profile.get("role_arn"), profile.get("web_identity_token_file")) {
            (Some(role), Some(file)) => {
                let by = sts::By::Token(expand(file, home(self.vars)));
                let role = sts::Role { arn: role.into(), ..self.role(Some(profile), by)? };
                return Ok(Some(FoundCredentials::by(format!("web identity of the {described}"), role)));
            }
            // As in the SDKs, a profile that others refer to uses its own keys first.
            (Some(role), None) if through.is_empty() || keys.is_none() => {
                return self.assumed(profile, role, keys, through).map(Some);
            }
            (None, Some(_)) => return Err(wrong(profile, "has a web_identity_token_file and no role_arn")),
            _ => {}
        }
        if profile.get("sso_account_id").or(profile.get("sso_role_name")).is_some() {
            let sso = sso::Sso::new(profile, self)?;
            return Ok(Some(FoundCredentials::by(format!("single sign-on of the {described}"), sso)));
        }
        if keys.is_some() {
            return Ok(keys);
        }
        if let Some(session) = profile.get("login_session") {
            let login = login::Login::new(session, profile, self)?;
            return Ok(Some(FoundCredentials::by(format!("login of the {described}"), login)));
        }
        if let Some(command) = profile.get("credential_process") {
            let process = process::Process::new(command, profile)?;
            return Ok(Some(FoundCredentials::by(format!("credential_process of the {described}"), process)));
        }
        // These keys refer to a way of getting credentials whose other half is missing.
        for (key, lacks) in [
            ("source_profile", "role_arn"),
            ("credential_source", "role_arn"),
            ("sso_session", "sso_account_id and sso_role_name"),
            ("sso_start_url", "sso_account_id and sso_role_name"),
        ] {
            if profile.get(key).is_some() {
                return Err(wrong(profile, &format!("has {key} and no {lacks}")));
            }
        }
        Ok(None)
    }

    fn keys(&self, profile: &Profile) -> Result<Option<FoundCredentials>> {
        match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
            (Some(key), Some(secret)) => {
                FoundCredentials::fixed(profile.describe(), key, secret, profile.get("aws_session_token")).map(Some)
            }
            (None, None) => Ok(None),
            (key, _) => {
                let missing = if key.is_some() { "aws_secret_access_key" } else { "aws_access_key_id" };
                Err(wrong(profile, &format!("has no {missing}")))
            }
        }
    }

    /// The role of a profile, with the profile's settings for it.
    fn assumed(
        &self,
        profile: &Profile,
        role: &str,
        keys: Option<FoundCredentials>,
        through: &[&str],
    ) -> Result<FoundCredentials> {
        let Profile { name, .. } = profile;
        if profile.get("mfa_serial").is_some() {
            let what = format!("the profile `{name}` needs an MFA code (`mfa_serial`), which cannot be entered here");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(profile.file.display().to_string())
                .with_hint(format!(
                    "run `aws configure export-credentials --profile {name} --format env` and set what it prints"
                )));
        }
        let source = match (profile.get("source_profile"), profile.get("credential_source")) {
            (Some(_), Some(_)) => return Err(wrong(profile, "has both source_profile and credential_source")),
            (None, None) => {
                return Err(wrong(profile, &format!("has role_arn = {role}, but no credentials to assume it with"))
                    .with_hint(format!("add source_profile (it may be `{name}` itself) or credential_source")));
            }
            (Some(source), None) => {
                let through: Vec<&str> = through.iter().copied().chain([name.as_str()]).collect();
                match keys {
                    Some(keys) if source == name => Some(keys),
                    _ if through.contains(&source) => {
                        let round = format!("takes its credentials from itself: {} -> {source}", through.join(" -> "));
                        return Err(wrong(profile, &round).with_hint("add keys to the last one"));
                    }
                    _ => {
                        let other = profile.other(source).ok_or_else(|| {
                            wrong(profile, &format!("has source_profile = {source}, and there is no such profile"))
                        })?;
                        self.profile(&other, &through)?
                    }
                }
            }
            (None, Some("Environment")) => self.environment()?,
            (None, Some("EcsContainer")) => self.container()?,
            (None, Some("Ec2InstanceMetadata")) => self.instance()?,
            (None, Some(other)) => {
                return Err(wrong(profile, &format!("has credential_source = {other}"))
                    .with_hint("write Environment, EcsContainer or Ec2InstanceMetadata"));
            }
        };
        let Some(FoundCredentials { credentials: Some(source), provider }) = source else {
            let from = profile.get("source_profile").or(profile.get("credential_source")).unwrap_or_default();
            return Err(wrong(profile, &format!("takes its credentials from {from}, where there are none")));
        };
        let role = sts::Role { arn: role.into(), ..self.role(Some(profile), sts::By::Credentials(source))? };
        Ok(FoundCredentials::by(format!("role {} of the {}, by {provider}", role.arn, profile.describe()), role))
    }

    /// A role without its ARN.
    fn role(&self, profile: Option<&Profile>, by: sts::By) -> Result<sts::Role> {
        let get = |key| profile?.get(key).map(str::to_owned);
        let seconds = match (profile, get("duration_seconds")) {
            (Some(profile), Some(text)) => Some(text.parse().map_err(|_| {
                wrong(profile, &format!("has duration_seconds = {text}")).with_hint("write seconds, such as 3600")
            })?),
            _ => None,
        };
        Ok(sts::Role {
            client: self.client()?,
            endpoint: self.endpoint("sts", "sts", self.region)?,
            region: self.region.to_owned(),
            arn: String::new(),
            by,
            session: get("role_session_name").or_else(|| self.vars.get("AWS_ROLE_SESSION_NAME").map(str::to_owned)),
            external_id: get("external_id"),
            seconds,
        })
    }

    fn container(&self) -> Result<Option<FoundCredentials>> {
        let vars = self.vars;
        let (name, url) = match (
            vars.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
            vars.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"),
        ) {
            (Some(path), _) => {
                let name = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
                let bad = |_| Error::config(format!("{name} is not a path")).with_hint("begin it with a `/`");
                let joined = match path.starts_with('/') {
                    true => format!("http://169.254.170.2{path}"),
                    false => String::new(),
                };
                (name, joined.parse().map_err(bad)?)
            }
            (None, Some(url)) => ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container::full_url(url)?),
            (None, None) => return Ok(None),
        };
        let token = "AWS_CONTAINER_AUTHORIZATION_TOKEN";
        let token = match (vars.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"), vars.get(token)) {
            (Some(file), _) => container::Token::File(file.into()),
            (None, Some(given)) => container::Token::Given(service::secret(given, token)?),
            (None, None) => container::Token::None,
        };
        // The allowed addresses do not encrypt, and a proxy would see the token.
        let options = self.client.clone().with_allow_http(true);
        let client = service::Client::new(&options, &self.connector.clone().direct())?;
        Ok(Some(FoundCredentials::by(format!("container ({name})"), container::Container { client, url, token })))
    }

    /// `None` if the instance must not be asked.
    fn instance(&self) -> Result<Option<FoundCredentials>> {
        if self.flag("AWS_EC2_METADATA_DISABLED")? {
            return Ok(None);
        }
        // Long enough for a busy service, but shorter than PATIENCE.
        let retry = RetryConfig {
            max_retries: 2,
            retry_timeout: Duration::from_secs(6),
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(1),
                base: 2.0,
            },
        };
        let builder = AmazonS3Builder::new().with_bucket_name("unused").with_retry(retry);
        let connector = self.connector.clone().direct();
        let builder = builder.with_client_options(self.client.clone()).with_http_connector(connector);
        let get = |variable, key| self.vars.get(variable).or_else(|| self.profile?.get(key));
        let metadata = self.vars.get("AWS_METADATA_ENDPOINT");
        let metadata =
            metadata.or(get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "ec2_metadata_service_endpoint")).or_else(|| {
                get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ec2_metadata_service_endpoint_mode")
                    .is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"))
                    .then_some("http://[fd00:ec2::254]")
            });
        let metadata = metadata.map(|at| at.trim_end_matches('/'));
        let mut builder = metadata.into_iter().fold(builder, |builder, at| builder.with_metadata_endpoint(at));
        if self.vars.flag("AWS_IMDSV1_FALLBACK")? {
            builder = builder.with_imdsv1_fallback();
        }
        let provider = "instance role".to_owned();
        let built = builder.build().map_err(|error| refused(&provider, &error))?;
        Ok(Some(FoundCredentials {
            credentials: Some(asked(provider.clone(), Arc::clone(built.credentials()))),
            provider,
        }))
    }
}

/// An error for an invalid profile.
fn wrong(profile: &Profile, what: &str) -> Error {
    Error::config(format!("the profile `{}` {what}", profile.name)).at_object(profile.file.display().to_string())
}

fn refused(provider: &str, error: &object_store::Error) -> Error {
    Error::new(ErrorKind::Denied, format!("cannot get credentials from: {provider}"))
        .with_hint("check the provider, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        .with_source(Cause::of(error))
}

/// Credentials that are requested again before they expire, during a run. An answer of their service must not be
/// mistaken for an answer of the store.
#[derive(Debug)]
struct Asked {
    provider: String,
    inner: AwsCredentialProvider,
}

pub(super) fn asked(provider: String, inner: AwsCredentialProvider) -> AwsCredentialProvider {
    Arc::new(Asked { provider, inner })
}

#[async_trait]
impl CredentialProvider for Asked {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        with_answer(self.inner.get_credential()).await.map_err(|error| {
            if our_error(&error).is_some() {
                return error;
            }
            let passes = Answer::of(&error).is_some_and(|answer| answer.remedy() != Remedy::None);
            let error = match passes {
                // Reads are retried after errors of this kind.
                true => Error::new(ErrorKind::Io, format!("credentials do not come from: {}", self.provider))
                    .with_hint("check the provider and the network")
                    .with_source(Cause::of(&error)),
                false => refused(&self.provider, &error),
            };
            object_store::Error::Generic { store: "S3", source: Box::new(error) }
        })
    }
}

fn none(vars: &Vars, tried: &[String]) -> Error {
    let hint = if vars.get("SM_CURRENT_HOST").or(vars.get("SM_HOSTS")).is_some() {
        "in SageMaker, network isolation removes the role, and MPI launchers must be told to pass on \
         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
    } else {
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_SKIP_SIGNATURE=true reads a public bucket"
    };
    Error::new(ErrorKind::Denied, format!("no credentials were found; tried {}", tried.join(", "))).with_hint(hint)
}
