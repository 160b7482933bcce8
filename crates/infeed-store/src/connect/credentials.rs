//! Which credentials, in the order of the AWS SDKs: environment, web identity, profile, container, instance.
//!
//! `aws-config` would do it, with single sign-on and `credential_process`, which are refused here with the command that
//! helps. Its price: 44 crates that the feature `s3` does not bring by itself (`aws-config` 1.13 with `sso`,
//! `credentials-process` and its HTTPS client, by `cargo tree`), clients of three services and a second stack of HTTP
//! among them. What it would replace are this file and `profile.rs`, 350 lines.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{
    BackoffConfig, ClientOptions, CredentialProvider, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential, AwsCredentialProvider},
};

use super::{Connector, Vars, explain::Cause, profile::Profile};
use crate::answer::{Answer, Remedy, with_answer};

/// Where credentials come from.
pub(super) struct Found {
    /// `None`: requests are not signed.
    pub(super) credentials: Option<AwsCredentialProvider>,
    /// As [`Connection::provider`](super::Connection::provider) shows it.
    pub(super) provider: String,
}

/// Asks the providers and waits for a first answer. `region` is for the token service alone.
///
/// # Errors
/// `Denied` when none has credentials (says which were tried), `Unsupported` for kinds of profiles that we do not run,
/// `Config` for half a configuration.
pub(super) async fn find(
    vars: &Vars,
    profile: Option<&Profile>,
    region: Option<&str>,
    client: &ClientOptions,
    connector: &Connector,
) -> Result<Found> {
    if vars.flag("AWS_SKIP_SIGNATURE")? {
        return Ok(Found { credentials: None, provider: "none (AWS_SKIP_SIGNATURE)".into() });
    }
    let mut tried = Vec::new();
    match (vars.get("AWS_ACCESS_KEY_ID"), vars.get("AWS_SECRET_ACCESS_KEY")) {
        (Some(key), Some(secret)) => {
            return Ok(fixed("environment (AWS_ACCESS_KEY_ID)".into(), key, secret, vars.get("AWS_SESSION_TOKEN")));
        }
        (None, None) => tried.push("the environment (no AWS_ACCESS_KEY_ID)".to_owned()),
        (key, _) => {
            let (there, missing) = match key {
                Some(_) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
                None => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
            };
            return Err(Error::config(format!("{there} is set, {missing} is not")).hint("set both, or neither"));
        }
    }

    // Patient enough for a busy service, and short of PATIENCE.
    let retry = RetryConfig {
        max_retries: 2,
        retry_timeout: Duration::from_secs(6),
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            base: 2.0,
        },
    };
    let builder = || {
        let client = client.clone().with_connect_timeout(Duration::from_secs(2)).with_timeout(Duration::from_secs(5));
        let builder = AmazonS3Builder::new().with_bucket_name("unused").with_retry(retry.clone());
        let builder = builder.with_client_options(client).with_http_connector(connector.clone());
        match region {
            Some(region) => builder.with_region(region),
            None => builder,
        }
    };

    let web = |role: &str, file: &str, session: Option<&str>| {
        let mut builder = builder().with_config(Key::WebIdentityTokenFile, file).with_config(Key::RoleArn, role);
        for (key, value) in [(Key::RoleSessionName, session), (Key::StsEndpoint, vars.get("AWS_ENDPOINT_URL_STS"))] {
            builder = value.into_iter().fold(builder, |builder, value| builder.with_config(key, value));
        }
        builder
    };
    match (vars.get("AWS_WEB_IDENTITY_TOKEN_FILE"), vars.get("AWS_ROLE_ARN")) {
        (Some(file), Some(role)) => {
            let builder = web(role, file, vars.get("AWS_ROLE_SESSION_NAME"));
            return ask(builder, "web identity (AWS_WEB_IDENTITY_TOKEN_FILE)".into()).await;
        }
        _ => tried.push("web identity (no AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN)".into()),
    }

    match profile {
        None => tried.push("the files ~/.aws/credentials and ~/.aws/config (no default profile)".into()),
        Some(profile) => match (profile.get("aws_access_key_id"), profile.get("aws_secret_access_key")) {
            (Some(key), Some(secret)) => {
                return Ok(fixed(profile.describe(), key, secret, profile.get("aws_session_token")));
            }
            (None, None) => {
                if let (Some(file), Some(role)) = (profile.get("web_identity_token_file"), profile.get("role_arn")) {
                    let builder = web(role, file, profile.get("role_session_name"));
                    return ask(builder, format!("web identity of the {}", profile.describe())).await;
                }
                refuse_kinds(profile)?;
                tried.push(format!("the {} (no keys in it)", profile.describe()));
            }
            (key, _) => {
                let missing = if key.is_some() { "aws_secret_access_key" } else { "aws_access_key_id" };
                let what = format!("the profile `{}` has no {missing}", profile.name);
                return Err(Error::config(what).at_object(profile.file.display().to_string()));
            }
        },
    }

    if let Some(uri) = vars.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        let builder = builder().with_config(Key::ContainerCredentialsRelativeUri, uri);
        return ask(builder, "container (AWS_CONTAINER_CREDENTIALS_RELATIVE_URI)".into()).await;
    }
    if let Some(uri) = vars.get("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
        let Some(file) = vars.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") else {
            let what = "AWS_CONTAINER_CREDENTIALS_FULL_URI is set without AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
            return Err(Error::new(ErrorKind::Unsupported, what)
                .hint("set the file too, or set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"));
        };
        let builder = builder()
            .with_config(Key::ContainerCredentialsFullUri, uri)
            .with_config(Key::ContainerAuthorizationTokenFile, file);
        return ask(builder, "container (AWS_CONTAINER_CREDENTIALS_FULL_URI)".into()).await;
    }
    tried.push("the container (no AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI)".into());

    if vars.flag("AWS_EC2_METADATA_DISABLED")? {
        tried.push("the instance (AWS_EC2_METADATA_DISABLED)".into());
        return Err(none(vars, &tried));
    }
    let metadata = vars.first(&["AWS_METADATA_ENDPOINT", "AWS_EC2_METADATA_SERVICE_ENDPOINT"]);
    let mut builder = metadata.into_iter().fold(builder(), |builder, at| builder.with_metadata_endpoint(at));
    if vars.flag("AWS_IMDSV1_FALLBACK")? {
        builder = builder.with_imdsv1_fallback();
    }
    ask(builder, "instance role".into()).await.map_err(|error| {
        // Not an instance: what matters is that nothing is configured.
        tried.push("the instance (its metadata service does not answer)".into());
        none(vars, &tried).with_source(error)
    })
}

fn fixed(provider: String, key: &str, secret: &str, token: Option<&str>) -> Found {
    let credential =
        AwsCredential { key_id: key.to_owned(), secret_key: secret.to_owned(), token: token.map(str::to_owned) };
    let credentials = Arc::new(object_store::StaticCredentialProvider::new(credential));
    Found { credentials: Some(credentials), provider }
}

async fn ask(builder: AmazonS3Builder, provider: String) -> Result<Found> {
    let built = builder.build().map_err(|error| refused(&provider, &error))?;
    let credentials = Arc::clone(built.credentials());
    with_answer(credentials.get_credential()).await.map_err(|error| refused(&provider, &error))?;
    Ok(Found { credentials: Some(asked(provider.clone(), credentials)), provider })
}

fn refused(provider: &str, error: &object_store::Error) -> Error {
    Error::new(ErrorKind::Denied, format!("credentials cannot be had from: {provider}"))
        .hint("check the provider, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        .with_source(Cause::of(error))
}

/// Credentials that are asked for again before they expire, in the middle of a run. What their service says must not be
/// taken for what the store says.
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
            let passes = Answer::of(&error).is_some_and(|answer| answer.remedy() != Remedy::None);
            let error = match passes {
                // Reads are repeated after errors of this kind.
                true => Error::new(ErrorKind::Io, format!("credentials do not come from: {}", self.provider))
                    .hint("check the provider and the network")
                    .with_source(Cause::of(&error)),
                false => refused(&self.provider, &error),
            };
            object_store::Error::Generic { store: "S3", source: Box::new(error) }
        })
    }
}

/// Ways to get credentials that would mean to run a program or a browser.
fn refuse_kinds(profile: &Profile) -> Result<()> {
    let kinds =
        ["credential_process", "sso_session", "sso_start_url", "source_profile", "credential_source", "login_session"];
    let Some(kind) = kinds.into_iter().find(|kind| profile.get(kind).is_some()) else { return Ok(()) };
    let name = &profile.name;
    Err(Error::new(ErrorKind::Unsupported, format!("the profile `{name}` takes its credentials from `{kind}`"))
        .at_object(profile.file.display().to_string())
        .hint(format!("run `aws configure export-credentials --profile {name} --format env` and set what it prints")))
}

fn none(vars: &Vars, tried: &[String]) -> Error {
    let hint = if vars.get("SM_CURRENT_HOST").or(vars.get("SM_HOSTS")).is_some() {
        "in SageMaker, network isolation removes the role, and MPI launchers must be told to pass on \
         AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
    } else {
        "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; AWS_SKIP_SIGNATURE=true reads a public bucket"
    };
    Error::new(ErrorKind::Denied, format!("no credentials were found; tried {}", tried.join(", "))).hint(hint)
}
