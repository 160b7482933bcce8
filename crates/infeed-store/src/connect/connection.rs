//! How a bucket or a dataset of the hub was reached.

use std::fmt;

use serde::Serialize;

/// How a bucket or a dataset of the hub was reached. Contains no secrets.
///
/// ```no_run
/// # async fn open() -> infeed::Result<()> {
/// use infeed::source::Source;
///
/// let source = Source::parse("hf://datasets/ylecun/mnist")?;
/// source.connect().await?;
/// if let Some(connection) = source.connection() {
///     println!("{connection}");
///     // With `@` and the commit, later runs read the same files.
///     println!("read at {}", connection.commit.as_deref().unwrap_or("no commit"));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Connection {
    /// Where the credentials came from, such as `environment` or ``profile `ml` of /home/me/.aws/credentials``.
    pub provider: String,
    /// The bucket's region; empty for the hub.
    pub region: String,
    /// The URL to which requests are sent.
    pub endpoint: String,
    /// Whether the bucket is part of the path rather than of the host.
    pub path_style: bool,
    /// Whether requests declare that the requester pays.
    pub requester_pays: bool,
    /// For a dataset of the hub, the commit that is read. Append `@` and this to the url to pin it.
    pub commit: Option<String>,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, region, endpoint, path_style, requester_pays, commit } = self;
        if let Some(commit) = commit {
            return write!(f, "{endpoint}, commit {commit}, token: {provider}");
        }
        write!(f, "{endpoint}, region {region}, credentials: {provider}")?;
        f.write_str(if *path_style { "" } else { ", virtual-hosted" })?;
        f.write_str(if *requester_pays { ", requester pays" } else { "" })
    }
}
