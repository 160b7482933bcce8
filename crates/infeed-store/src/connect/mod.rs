//! Connects the url of a bucket to a store that answers.
//!
//! ```text
//! Source::parse ─▶ variables ─ connect ─▶ credentials ─▶ region ─▶ a client for each runtime ─▶ requests
//!                                ▲                                                                 │
//!                                └───── once more: expired token, bucket in another region ────────┘
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **An answer of a store contains secrets.** `SignatureDoesNotMatch` repeats the request that was signed, including
//!   the session token. So the text of a refusal never becomes the cause of an error. The cause is what [`Connector`]
//!   records of it: status, code, message and request id.
//! - **A client belongs to a runtime.** Its idle connections are driven by tasks of the runtime that created them, and
//!   hang when that runtime is not polled, as after `runtime.block_on(infeed::open(..))`. So each runtime gets its own
//!   client.
//! - **Without any configuration a metadata service is contacted**, which by itself takes up to a minute to fail. All
//!   of connecting is limited to 10 seconds.

#[cfg(feature = "tls")]
mod client;
mod connection;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
mod connector;
#[cfg(feature = "s3")]
mod credentials;
#[cfg(feature = "s3")]
mod endpoint;
#[cfg(feature = "s3")]
mod explain;
#[cfg(feature = "s3")]
mod folders;
#[cfg(feature = "http")]
mod hub;
pub(crate) mod keys;
#[cfg(feature = "tls")]
mod listed;
#[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
mod others;
#[cfg(feature = "s3")]
mod pages;
#[cfg(feature = "s3")]
mod profile;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "s3")]
mod split;
#[cfg(feature = "tls")]
mod tls;
mod urls;
#[cfg(feature = "s3")]
mod used;
mod vars;

pub use connection::Connection;
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub use connector::Connector;
#[cfg(feature = "s3")]
pub(super) use endpoint::BucketKind;
#[cfg(feature = "http")]
pub(super) use hub::{Hub, Repo};
#[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
pub(super) use others::open as open_other;
#[cfg(feature = "s3")]
pub(super) use s3::Remote;
pub(super) use urls::lacks;
#[cfg(feature = "s3")]
pub(super) use urls::{check_bucket, halves};
pub(super) use vars::Vars;

#[cfg(all(test, feature = "s3"))]
mod kinds;
#[cfg(all(test, feature = "s3"))]
mod raw;
#[cfg(all(test, feature = "s3"))]
mod tests;
