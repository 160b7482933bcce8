//! Roles of containers, obtained from an address near the container.
//!
//! <https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>

use std::path::PathBuf;

use async_trait::async_trait;
use infeed_core::error::{Error, ErrorKind, Result};
use object_store::client::HttpRequestBody;
use reqwest::{Method, header::HeaderValue};
use url::{Host, Url};

use super::{
    super::pages::wrap,
    renewed::{Issued, Issuer, odd},
    service::{Client, request, secret},
};

/// The token that authorizes the request.
#[derive(Debug)]
pub(super) enum Token {
    /// A file that is rewritten from time to time.
    File(PathBuf),
    Given(HeaderValue),
    None,
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) client: Client,
    pub(super) url: Url,
    pub(super) token: Token,
}

/// Checks a url that was set in full. Without encryption, only this machine and the addresses of ECS and EKS are
/// allowed.
pub(super) fn full_url(text: &str) -> Result<Url> {
    let bad = |what: &str| Error::config(format!("AWS_CONTAINER_CREDENTIALS_FULL_URI {what}"));
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| bad("is not a url").with_hint("set it to http://127.0.0.1:PORT/PATH, or unset it"))?;
    let near = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback() || matches!(ip.octets(), [169, 254, 170, 2 | 23]),
        Some(Host::Ipv6(ip)) => ip.is_loopback() || ip.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
        None => false,
    };
    if url.scheme() == "http" && !near {
        return Err(bad("is not encrypted, and its host is neither this machine nor that of ECS or EKS")
            .with_hint("use https://, a loopback address, 169.254.170.2, 169.254.170.23 or [fd00:ec2::23]"));
    }
    Ok(url)
}

#[async_trait]
impl Issuer for Container {
    async fn issue(&self) -> object_store::Result<Issued> {
        let token = match &self.token {
            Token::None => None,
            Token::Given(token) => Some(token.clone()),
            Token::File(file) => {
                let at = file.display().to_string();
                let text = tokio::fs::read_to_string(file).await.map_err(|error| {
                    wrap(
                        Error::new(ErrorKind::Denied, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE cannot be read")
                            .at_object(at.clone())
                            .with_source(error),
                    )
                })?;
                Some(secret(text.trim_end(), "the container's token").map_err(|error| wrap(error.at_object(at)))?)
            }
        };
        let headers = token.map(|token| ("authorization", token));
        let request = request(Method::GET, self.url.as_str(), headers, HttpRequestBody::empty())?;
        let answer = self.client.send(request).await?;
        let answer = serde_json::from_slice(&answer).map_err(|_| odd("it is not JSON"))?;
        Issued::of_json(&answer).map_err(odd)
    }
}
