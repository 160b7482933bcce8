//! Requests to services that give credentials: small, repeated a few times, and never told in full.

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

/// Of an answer: the largest tokens are of some kilobytes.
const MOST: usize = 64 << 10;
/// Requests for one answer.
const TRIES: u32 = 3;
/// No other try begins after so long: all of connecting has 10 s.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);

/// How regions begin, and the domains where people sign in there.
const SIGN_IN: [(&str, &str); 3] =
    [("cn-", "amazonaws.cn"), ("us-gov-", "amazonaws-us-gov.com"), ("eusc-", "amazonaws-eusc.eu")];

/// What those that give credentials are made of.
pub(super) struct Chain<'a> {
    pub(super) vars: &'a Vars,
    /// The one that is chosen.
    pub(super) profile: Option<&'a Profile>,
    pub(super) region: &'a str,
    pub(super) client: ClientOptions,
    pub(super) connector: &'a Connector,
}

impl Chain<'_> {
    pub(super) fn client(&self) -> Result<Client> {
        Client::new(&self.client, self.connector)
    }

    /// Where a service is: as it is set, or where AWS has it in a region. `AWS_ENDPOINT_URL` is the store's.
    pub(super) fn endpoint(&self, service: &str, name: &str, region: &str) -> Result<String> {
        // It becomes part of a name and of a signature.
        if region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            return Err(
                Error::config(format!("{region:?} is no region of AWS")).hint("set AWS_REGION, as in us-east-1")
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
            // The one service with domains of its own.
            () if name == "signin" && !fips => {
                let own = SIGN_IN.into_iter().find(|(start, _)| region.starts_with(start));
                let domain = own.map_or("aws.amazon.com", |(_, domain)| domain);
                return Ok(format!("https://{region}.signin.{domain}"));
            }
            () => plain,
        };
        // There, all are.
        let fips = if fips && !region.starts_with("us-gov-") { "-fips" } else { "" };
        Ok(format!("https://{name}{fips}.{region}.{domain}"))
    }

    /// A variable, or else the key of the profile that is called like it.
    pub(super) fn flag(&self, variable: &'static str) -> Result<bool> {
        let of_profile = || self.profile?.get(&variable.strip_prefix("AWS_")?.to_ascii_lowercase());
        match self.vars.get(variable) {
            Some(_) => self.vars.flag(variable),
            None => [(variable, of_profile().unwrap_or("false"))].into_iter().collect::<Vars>().flag(variable),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Client(HttpClient);

impl Client {
    pub(super) fn new(options: &ClientOptions, connector: &Connector) -> Result<Self> {
        let bad = |error| Error::config("a client for the services of credentials cannot be made").with_source(error);
        connector.connect(options).map(Self).map_err(bad)
    }

    /// The body of a good answer. Errors carry what was answered otherwise.
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
            // What it says is noted already, and becomes the cause of this.
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

/// A request. Values of headers may be secret: none is told.
pub(super) fn request(
    method: Method,
    url: &str,
    headers: impl IntoIterator<Item = (&'static str, HeaderValue)>,
    body: impl Into<HttpRequestBody>,
) -> object_store::Result<HttpRequest> {
    let mut request = HttpRequest::new(body.into());
    *request.method_mut() = method;
    // Held by what made it to be a url.
    let bad = |_| wrap(Error::config("a url of a service of credentials cannot be asked for"));
    *request.uri_mut() = url.parse().map_err(bad)?;
    for (name, value) in headers {
        request.headers_mut().insert(name, value);
    }
    Ok(request)
}

/// A secret for a header, which no `Debug` shows.
pub(super) fn secret(text: &str, what: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Error::config(format!("{what} holds line breaks or other letters that no token has")))?;
    value.set_sensitive(true);
    Ok(value)
}
