//! A bucket that is listed page by page.

use infeed_core::error::Error;
use object_store::{Result, list::PaginatedListResult};

/// The most folders or ranges listed at a time, which is also the number of pages held.
pub(super) const WIDTH: usize = 16;

/// A bucket that is listed page by page. A clone is another handle.
pub(super) trait Pages: Clone + Send + Sync + 'static {
    /// One page of the keys that begin with `prefix`; with `folders`, deeper objects are represented only by their
    /// folder.
    fn page(
        &self,
        prefix: String,
        after: Option<String>,
        token: Option<String>,
        folders: bool,
    ) -> impl Future<Output = Result<PaginatedListResult>> + Send;

    /// Whether a page can begin after any key.
    fn starts_anywhere(&self) -> bool;
}

/// Wraps one of infeed's errors in object_store's; `errors::store_error` unwraps it.
pub(super) fn wrap(error: Error) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: Box::new(error) }
}
