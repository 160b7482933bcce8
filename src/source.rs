//! Where bytes come from: stores, requests, caches, listings.

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
#[doc(inline)]
pub use infeed_store::Connector;
#[doc(inline)]
pub use infeed_store::{CacheSpec, Connection, Extent, InlineRead, Object, Refusal, Source, Verify};
#[doc(hidden)]
pub use infeed_store::{Check, Verified};
