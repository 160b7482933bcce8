//! Roles from AWS's token service.
//!
//! <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>,
//! <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRoleWithWebIdentity.html>

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind};
use object_store::aws::{AwsAuthorizer, AwsCredential, AwsCredentialProvider};
use reqwest::{Method, header::HeaderValue};
use url::form_urlencoded::Serializer;

use super::{
    super::{connector::element, pages::wrap},
    renewed::{Issued, Issuer, odd, time},
    service::{Client, request},
};

/// What authorizes the request for the role.
#[derive(Debug)]
pub(super) enum By {
    Credentials(AwsCredentialProvider),
    /// A token in a file, which is rewritten from time to time.
    Token(PathBuf),
}

#[derive(Debug)]
pub(super) struct Role {
    pub(super) client: Client,
    pub(super) endpoint: String,
    pub(super) region: String,
    pub(super) arn: String,
    pub(super) by: By,
    pub(super) session: Option<String>,
    pub(super) external_id: Option<String>,
    pub(super) seconds: Option<u32>,
}

impl Role {
    fn form(&self, token: Option<&str>) -> String {
        let mut form = Serializer::new(String::new());
        let session = self.session.clone().unwrap_or_else(|| {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            format!("infeed-{}", now.as_secs())
        });
        let action = if token.is_some() { "AssumeRoleWithWebIdentity" } else { "AssumeRole" };
        form.append_pair("Action", action).append_pair("Version", "2011-06-15");
        form.append_pair("RoleArn", &self.arn).append_pair("RoleSessionName", &session);
        let seconds = self.seconds.map(|seconds| seconds.to_string());
        for (name, value) in [
            ("DurationSeconds", seconds.as_deref()),
            ("ExternalId", self.external_id.as_deref()),
            ("WebIdentityToken", token),
        ] {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        form.finish()
    }
}

#[async_trait]
impl Issuer for Role {
    async fn issue(&self) -> object_store::Result<Issued> {
        let (form, signer) = match &self.by {
            By::Credentials(source) => (self.form(None), Some(source.get_credential().await?)),
            By::Token(file) => {
                let token = tokio::fs::read_to_string(file).await.map_err(|error| {
                    let at = file.display().to_string();
                    wrap(
                        Error::new(ErrorKind::Denied, "the web identity token file cannot be read")
                            .at_object(at)
                            .with_source(error),
                    )
                })?;
                (self.form(Some(token.trim())), None)
            }
        };
        let kind = ("content-type", HeaderValue::from_static("application/x-www-form-urlencoded"));
        let mut request = request(Method::POST, &format!("{}/", self.endpoint), [kind], form)?;
        if let Some(signer) = signer {
            AwsAuthorizer::new(&signer, "sts", &self.region).try_authorize(&mut request, None)?;
        }
        let answer = self.client.send(request).await?;
        let needed = |name| element(&answer, name).ok_or_else(|| odd(format_args!("it has no {name}")));
        let credential = AwsCredential {
            key_id: needed("AccessKeyId")?,
            secret_key: needed("SecretAccessKey")?,
            token: Some(needed("SessionToken")?),
        };
        let ends = time(&needed("Expiration")?).ok_or_else(|| odd("its Expiration is not a time"))?;
        Ok(Issued { credential, ends: Some(ends) })
    }
}
