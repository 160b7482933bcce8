//! Stores that `object_store` configures by itself from variables: Google, Azure, plain HTTP.

use std::{sync::Arc, time::Duration};

use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{ClientOptions, ObjectStore, RetryConfig, path::Path};

use super::{Connector, Vars, connector::ESCAPED_SLASH, lacks};

/// A store, the prefix in it, and the name under which its requests are limited. Web urls have escapes, and may have a
/// query: then they name one file.
pub(crate) fn open(scheme: &str, rest: &str, url: &str, vars: &Vars) -> Result<(Arc<dyn ObjectStore>, Path, String)> {
    let web = scheme.starts_with("http");
    let (rest, query) = match rest.split_once('?').filter(|_| web) {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(Error::config("the url names no host")
            .at_object(url)
            .with_hint(format!("write {scheme}://HOST/prefix")));
    }
    if host.contains('@') || (web && (prefix.contains('#') || query.is_some_and(|query| query.contains('#')))) {
        // Messages would contain the url, and so its secrets.
        return Err(Error::config("a url with credentials or with `#` cannot be a dataset")
            .with_hint("put credentials into variables, and remove the part from `#` on"));
    }
    let parsed = match web {
        // The connector turns it back.
        true => Path::from_url_path(prefix.replace("%2F", ESCAPED_SLASH).replace("%2f", ESCAPED_SLASH)),
        false => Path::parse(prefix),
    };
    let prefix =
        parsed.map_err(|e| Error::config("the prefix is not a valid object name").at_object(url).with_source(e))?;
    let client = ClientOptions::new()
        .with_connect_timeout(Duration::from_secs(3))
        .with_read_timeout(Duration::from_secs(10))
        .with_timeout(Duration::from_secs(120))
        .with_allow_http(scheme == "http" || vars.flag("ALLOW_HTTP")?);
    let retry = RetryConfig { max_retries: 5, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() };
    let store = store(scheme, host, query, vars, client, retry).unwrap_or_else(|| Err(lacks(scheme)))?;
    // So that the cache does not mix files of different queries. A hash, because the query may contain a signature.
    let query = query.map_or(String::new(), |query| format!(" {:016x}", xxhash_rust::xxh3::xxh3_64(query.as_bytes())));
    Ok((store, prefix, format!("{scheme} {host}{query}")))
}

/// `None` if the feature is off.
#[allow(unused_variables, reason = "each feature uses its own")]
fn store(
    scheme: &str,
    host: &str,
    query: Option<&str>,
    vars: &Vars,
    client: ClientOptions,
    retry: RetryConfig,
) -> Option<Result<Arc<dyn ObjectStore>>> {
    #[cfg(feature = "gcs")]
    if scheme == "gs" {
        let builder = vars.starting_with("GOOGLE_").fold(
            object_store::gcp::GoogleCloudStorageBuilder::new(),
            |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            },
        );
        let built = builder
            .with_bucket_name(host)
            .with_client_options(client)
            .with_retry(retry)
            .with_http_connector(Connector::default())
            .build();
        return Some(built.map(|store| Arc::new(store) as _).map_err(|e| bad("GOOGLE_*", &e)));
    }
    #[cfg(feature = "azure")]
    if scheme == "az" {
        let builder = vars.starting_with("AZURE_").fold(
            object_store::azure::MicrosoftAzureBuilder::new(),
            |builder, (name, value)| match name.to_ascii_lowercase().parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            },
        );
        let built = builder
            .with_container_name(host)
            .with_client_options(client)
            .with_retry(retry)
            .with_http_connector(Connector::default())
            .build();
        return Some(built.map(|store| Arc::new(store) as _).map_err(|e| bad("AZURE_*", &e)));
    }
    #[cfg(feature = "http")]
    if scheme.starts_with("http") {
        let builder = object_store::http::HttpBuilder::new().with_url(format!("{scheme}://{host}"));
        let connector = Connector::following(query);
        let built = builder.with_client_options(client).with_retry(retry).with_http_connector(connector).build();
        return Some(built.map(|store| Arc::new(store) as _).map_err(|e| bad("proxy", &e)));
    }
    None
}

/// Without the cause, which may repeat a secret value.
#[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
fn bad(which: &str, error: &object_store::Error) -> Error {
    let what = match error {
        object_store::Error::Generic { store, .. } => format!("{store} cannot be set up"),
        _ => "the store cannot be set up".to_owned(),
    };
    Error::new(ErrorKind::Config, what).with_hint(format!("check the {which} variables"))
}
