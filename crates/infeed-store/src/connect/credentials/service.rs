//! Requests to credential services: small, retried a few times, and never shown in full.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use infeed_core::error::{Error, Result};
use object_store::{
    ClientOptions,
    client::{HttpClient, HttpConnector, HttpRequest, HttpRequestBody},
};
use reqwest::{Method, header::HeaderValue};
use tokio::time::Instant;

use super::{
    super::{Connector, Vars, endpoint, pages::wrap, profile::Profile},
    renewed::odd,
};
use crate::answer::{Answer, Remedy, with_answer};

/// The most bytes of an answer; the largest tokens have some kilobytes.
const MOST: usize = 64 << 10;
/// The most requests for one answer.
const TRIES: u32 = 3;
/// No retry begins after this time, because connecting is limited to 10 s in all.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// Prefixes of regions, with the domains of their sign-in service.
const SIGN_IN: [(&str, &str); 3] =
    [("cn-", "amazonaws.cn"), ("us-gov-", "amazonaws-us-gov.com"), ("eusc-", "amazonaws-eusc.eu")];

/// What the providers of credentials need.
pub(super) struct Chain<'a> {
    pub(super) vars: &'a Vars,
    /// The chosen profile.
    pub(super) profile: Option<&'a Profile>,
    pub(super) region: &'a str,
    pub(super) client: ClientOptions,
    pub(super) connector: &'a Connector,
}

impl Chain<'_> {
    pub(super) fn client(&self) -> Result<Client> {
        Client::new(&self.client, self.connector)
    }

    /// The endpoint of a service: the configured one, or AWS's in a region. `AWS_ENDPOINT_URL` is ignored, because it
    /// is the store's.
    pub(super) fn endpoint(&self, service: &str, name: &str, region: &str) -> Result<String> {
        // It becomes part of a host name and of a signature.
        if region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(
                Error::config(format!("{region:?} is not an AWS region")).with_hint("set AWS_REGION, as in us-east-1")
            );
        }
        if !self.flag("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")? {
            let variable = format!("AWS_ENDPOINT_URL_{}", service.to_ascii_uppercase());
            if let Some(set) = self.vars.get(&variable).or_else(|| self.profile?.endpoint_of(service)) {
                return endpoint::check(set, self.vars).map_err(|error| error.at_object(variable));
            }
        }
        let (plain, dual) = endpoint::domains(region);
        let dual_stack = self.flag("AWS_USE_DUALSTACK_ENDPOINT")?;
        let fips = self.flag("AWS_USE_FIPS_ENDPOINT")?;
        let domain = match () {
            () if dual_stack => dual,
            // The only service with domains of its own.
            () if name == "signin" && !fips => {
                let own = SIGN_IN.into_iter().find(|(start, _)| region.starts_with(start));
                let domain = own.map_or("aws.amazon.com", |(_, domain)| domain);
                return Ok(format!("https://{region}.signin.{domain}"));
            }
            () => plain,
        };
        // In GovCloud all endpoints are FIPS endpoints.
        let fips = if fips && !region.starts_with("us-gov-") { "-fips" } else { "" };
        Ok(format!("https://{name}{fips}.{region}.{domain}"))
    }

    /// The value of a variable, or of the profile key with the corresponding name.
    pub(super) fn flag(&self, variable: &'static str) -> Result<bool> {
        let of_profile = || self.profile?.get(&variable.strip_prefix("AWS_")?.to_ascii_lowercase());
        match self.vars.get(variable) {
            Some(_) => self.vars.flag(variable),
            None => [(variable, of_profile().unwrap_or("false"))].into_iter().collect::<Vars>().flag(variable),
        }
    }
}

/// Sends the requests.
#[derive(Clone, Debug)]
pub(super) struct Client(HttpClient);

impl Client {
    pub(super) fn new(options: &ClientOptions, connector: &Connector) -> Result<Self> {
        let bad = |error| Error::config("cannot create a client for credential services").with_source(error);
        connector.connect(options).map(Self).map_err(bad)
    }

    /// The body of a successful answer. Errors contain any other answer.
    pub(super) async fn send(&self, request: HttpRequest) -> object_store::Result<Bytes> {
        let began = Instant::now();
        for tries in 1.. {
            match with_answer(self.once(request.clone())).await {
                Err(error)
                    if tries < TRIES
                        && began.elapsed() < PATIENCE
                        && Answer::of(&error).is_some_and(|answer| answer.remedy() != Remedy::None) =>
                {
                    tokio::time::sleep(PAUSE * tries).await;
                }
                answer => return answer,
            }
        }
        unreachable!("the last try returns")
    }

    async fn once(&self, request: HttpRequest) -> object_store::Result<Bytes> {
        let failed = |source| object_store::Error::Generic { store: "credentials", source: Box::new(source) };
        let response = self.0.execute(request).await.map_err(failed)?;
        if !response.status().is_success() {
            // The refusal is recorded already, and becomes the cause of this error.
            return Err(object_store::Error::Generic { store: "credentials", source: "refused".into() });
        }
        let mut pieces = response.into_body().bytes_stream();
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(failed)?);
            if body.len() > MOST {
                return Err(odd(format_args!("more than {MOST} bytes")));
            }
        }
        Ok(body.freeze())
    }
}

/// A request. Header values may be secret, so no message contains them.
pub(super) fn request(
    method: Method,
    url: &str,
    headers: impl IntoIterator<Item = (&'static str, HeaderValue)>,
    body: impl Into<HttpRequestBody>,
) -> object_store::Result<HttpRequest> {
    let mut request = HttpRequest::new(body.into());
    *request.method_mut() = method;
    // The caller has built it as a url.
    let bad = |_| wrap(Error::config("the url of a credential service is not valid"));
    *request.uri_mut() = url.parse().map_err(bad)?;
    for (name, value) in headers {
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// A secret for a header, hidden from `Debug`.
pub(super) fn secret(text: &str, what: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::config(format!("{what} contains line breaks or other characters that no token has")))?;
    value.set_sensitive(true);
    Ok(value)
}
