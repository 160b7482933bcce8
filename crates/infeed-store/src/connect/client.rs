//! The HTTP client of a store, with `object_store`'s options. It follows no redirects.
//!
//! `object_store` builds its client with reqwest's policy, which follows ten redirects. On the way to another host that
//! policy removes `Authorization`, but not `x-amz-security-token`, which it does not recognise: any server that can
//! answer 307 gets a session token. A signature is valid for one host only, so signed requests can't be redirected
//! anyway.

use std::{sync::Arc, time::Duration};

use object_store::{
    ClientConfigKey as Key, ClientOptions, Error as StoreError,
    client::{DnsError, DnsResolver},
};
use reqwest::{
    Certificate, ClientBuilder, NoProxy, Proxy,
    dns::{Addrs, Name, Resolve, Resolving},
    redirect::Policy,
};

const USER_AGENT: &str = concat!("infeed/", env!("CARGO_PKG_VERSION"));

type Result<T> = object_store::Result<T>;
type Take = fn(ClientBuilder, Duration) -> ClientBuilder;

/// A client with these options, except for the certificates, which can't be read from the options; `roots` replaces
/// them. A `direct` client uses no proxy, not even that of the environment.
pub(super) fn build(options: &ClientOptions, roots: &[Certificate], direct: bool) -> Result<reqwest::Client> {
    let settings = Settings { options };
    let mut builder = ClientBuilder::new().redirect(Policy::none());
    builder = builder.user_agent(options.get_config_value(&Key::UserAgent).unwrap_or_else(|| USER_AGENT.into()));
    if let Some(headers) = options.get_default_headers() {
        // `object_store` has already set Amazon's own headers on the request, because they are signed. A header added
        // here is not signed, and would be refused if it began with `x-amz-`.
        let others = headers.iter().filter(|(name, _)| !name.as_str().starts_with("x-amz-"));
        builder = builder.default_headers(others.map(|(name, value)| (name.clone(), value.clone())).collect());
    }
    if direct {
        builder = builder.no_proxy();
    } else if let Some(url) = options.get_config_value(&Key::ProxyUrl) {
        let mut proxy = Proxy::all(url).map_err(failed)?;
        if let Some(pem) = options.get_config_value(&Key::ProxyCaCertificate) {
            builder = builder.tls_certs_merge([Certificate::from_pem(pem.as_bytes()).map_err(failed)?]);
        }
        if let Some(excludes) = options.get_config_value(&Key::ProxyExcludes) {
            proxy = proxy.no_proxy(NoProxy::from_string(&excludes));
        }
        builder = builder.proxy(proxy);
    }
    let roots = roots.iter().cloned();
    builder = match settings.flag(Key::NoSystemCertificates) {
        true => builder.tls_certs_only(roots),
        false => builder.tls_certs_merge(roots),
    };
    let takes: [(Key, Take); 6] = [
        (Key::Timeout, ClientBuilder::timeout),
        (Key::ConnectTimeout, ClientBuilder::connect_timeout),
        (Key::ReadTimeout, ClientBuilder::read_timeout),
        (Key::PoolIdleTimeout, ClientBuilder::pool_idle_timeout),
        (Key::Http2KeepAliveInterval, ClientBuilder::http2_keep_alive_interval),
        (Key::Http2KeepAliveTimeout, ClientBuilder::http2_keep_alive_timeout),
    ];
    for (key, take) in takes {
        if let Some(time) = settings.parsed(key, |text| humantime::parse_duration(text).ok())? {
            builder = take(builder, time);
        }
    }
    if let Some(most) = settings.parsed(Key::PoolMaxIdlePerHost, |text| text.parse().ok())? {
        builder = builder.pool_max_idle_per_host(most);
    }
    if let Some(most) = settings.parsed(Key::Http2MaxFrameSize, |text| text.parse::<u32>().ok())? {
        builder = builder.http2_max_frame_size(Some(most));
    }
    if settings.flag(Key::Http2KeepAliveWhileIdle) {
        builder = builder.http2_keep_alive_while_idle(true);
    }
    if settings.flag(Key::Http1Only) {
        builder = builder.http1_only();
    }
    if settings.flag(Key::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    if settings.flag(Key::AllowInvalidCertificates) {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    let resolver = match options.dns_resolver() {
        Some(theirs) => Some(Resolver::Theirs(Arc::clone(theirs))),
        None => settings.flag(Key::RandomizeAddresses).then_some(Resolver::Shuffling),
    };
    if let Some(resolver) = resolver {
        builder = builder.dns_resolver(Arc::new(resolver));
    }
    // A body that was decompressed on the way would not have the length in its header.
    let builder = builder.no_gzip().no_brotli().no_zstd().no_deflate();
    builder.https_only(!settings.flag(Key::AllowHttp)).build().map_err(failed)
}

/// Whether options hold certificates. Only their `Debug` output reveals it. Without this check a connection would be
/// refused without any mention of the user's certificate.
pub(super) fn holds_certificates(options: &ClientOptions) -> bool {
    format!("{options:?}").contains("root_certificates: [Certificate")
}

fn failed(error: reqwest::Error) -> StoreError {
    StoreError::Generic { store: "HTTP client", source: Box::new(error) }
}

/// Client options, read as text: `ClientOptions` returns them in no other form.
struct Settings<'a> {
    options: &'a ClientOptions,
}

impl Settings<'_> {
    fn flag(&self, key: Key) -> bool {
        self.options
            .get_config_value(&key)
            .is_some_and(|value| matches!(&*value.to_ascii_lowercase(), "true" | "1" | "yes" | "on" | "y"))
    }

    fn parsed<T>(&self, key: Key, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.options.get_config_value(&key) else { return Ok(None) };
        let wrong =
            || StoreError::Generic { store: "HTTP client", source: format!("{}: {text:?}", key.as_ref()).into() };
        parse(&text).map(Some).ok_or_else(wrong)
    }
}

/// How host names are resolved.
enum Resolver {
    Theirs(Arc<dyn DnsResolver>),
    /// Shuffles the addresses each time, so that not all clients of a store use its first machine.
    Shuffling,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        // reqwest sets the port.
        let found = |ips: Vec<std::net::IpAddr>| -> Addrs { Box::new(ips.into_iter().map(|ip| (ip, 0).into())) };
        match self {
            Self::Theirs(theirs) => {
                let theirs = Arc::clone(theirs);
                Box::pin(async move { theirs.resolve(&host).await.map(found) })
            }
            Self::Shuffling => Box::pin(async move {
                let look_up = tokio::net::lookup_host((host, 0)).await.map_err(|error| Box::new(error) as DnsError)?;
                let mut ips: Vec<_> = look_up.map(|at| at.ip()).collect();
                shuffle(&mut ips);
                Ok(found(ips))
            }),
        }
    }
}

fn shuffle<T>(items: &mut [T]) {
    use std::hash::{BuildHasher, RandomState};
    for n in (1..items.len()).rev() {
        items.swap(n, (RandomState::new().hash_one(n) % (n as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBbDCCAROgAwIBAgIUZfjzJmtDUPc8xJtADQn3k+BlXXswCgYIKoZIzj0EAwIw\n\
DDEKMAgGA1UEAwwBdDAeFw0yNjExMjMwOTI0NDBaFw0zNjExMjAwOTI0NDBaMAwx\n\
CjAIBgNVBAMMAXQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASPQ9CzMbLtD2Ar\n\
aG6aPjGOwxWRDEilxS3IfXWg6Mtrnb9kh54v7BE1ItoRecXkhvjYET/MNHzRDxHd\n\
bjBx2fgzo1MwUTAdBgNVHQ4EFgQUwsR06/cNXrtD1tVk+5GBzOdOQzAwHwYDVR0j\n\
BBgwFoAUwsR06/cNXrtD1tVk+5GBzOdOQzAwDwYDVR0TAQH/BAUwAwEB/zAKBggq\n\
hkjOPQQDAgNHADBEAiBhMuNU6ucszSvXZB6AgU61URd25O6NUNOvGiHlUJyhfwIg\n\
dQ/hUTnr/7gGPr2NtKfkE44tPu5iDLSlRfrfOinWiC8=\n\
-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_in_options_are_seen() {
        let options = ClientOptions::new();
        assert!(!holds_certificates(&options));
        let certificates = object_store::Certificate::from_pem_bundle(PEM.as_bytes()).unwrap();
        let options = certificates.into_iter().fold(options, ClientOptions::with_root_certificate);
        assert!(holds_certificates(&options));
    }

    #[test]
    fn every_option_is_understood_and_a_wrong_one_is_named() {
        super::super::tls::provide();
        let options = ClientOptions::new()
            .with_timeout(Duration::from_millis(90_500))
            .with_connect_timeout(Duration::from_secs(3))
            .with_read_timeout(Duration::from_secs(10))
            .with_pool_idle_timeout(Duration::from_secs(3600))
            .with_pool_max_idle_per_host(7)
            .with_http2_max_frame_size(20_000)
            .with_http2_keep_alive_interval(Duration::from_secs(1))
            .with_http2_keep_alive_timeout(Duration::from_secs(2))
            .with_proxy_url("http://127.0.0.1:1")
            .with_allow_http(true);
        build(&options, &[], false).unwrap();
        let options = options.with_config(Key::ReadTimeout, "soon");
        let error = build(&options, &[], false).unwrap_err().to_string();
        assert!(error.contains("read_timeout") && error.contains("soon"), "{error}");
    }

    #[tokio::test]
    async fn a_direct_client_asks_no_proxy() {
        super::super::tls::provide();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Refuses connections, because the listener is closed.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let options = ClientOptions::new().with_allow_http(true).with_proxy_url(format!("http://{gone}"));
        assert!(build(&options, &[], false).unwrap().get(&url).send().await.is_err());
        let client = build(&options, &[], true).unwrap();
        let asked = client.get(&url).send();
        let (asked, ()) = tokio::join!(asked, async {
            let (stream, _) = listener.accept().await.unwrap();
            drop(stream);
        });
        // The request arrived here and got no answer.
        assert!(asked.is_err_and(|error| !error.is_connect()));
    }

    #[test]
    fn shuffling_loses_nothing() {
        let mut items: Vec<_> = (0..20).collect();
        shuffle(&mut items);
        items.sort_unstable();
        assert!(items.into_iter().eq(0..20));
    }
}
