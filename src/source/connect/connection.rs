//! How a bucket was reached.

use std::fmt;

use serde::Serialize;

/// How a bucket was reached. Holds nothing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Where the credentials came from, such as `environment` or ``profile `ml` of /home/me/.aws/credentials``.
    pub provider: String,
    /// The bucket's region.
    pub region: String,
    /// Where requests go.
    pub endpoint: String,
    /// Whether the bucket is part of the path rather than of the host.
    pub path_style: bool,
    /// Whether requests say that their sender pays.
    pub requester_pays: bool,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, region, endpoint, path_style, requester_pays } = self;
        write!(f, "{endpoint}, region {region}, credentials: {provider}")?;
        f.write_str(if *path_style { "" } else { ", virtual-hosted" })?;
        f.write_str(if *requester_pays { ", requester pays" } else { "" })
    }
}
