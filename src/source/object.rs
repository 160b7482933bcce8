//! What a listing finds.

/// One object found by [`Source::list`](super::Source::list).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Object {
    /// Name relative to the source's prefix, with `/` between parts.
    pub name: String,
    /// Length in bytes.
    pub size: u64,
    /// The store's version tag, if it has one.
    pub etag: Option<String>,
}

impl Object {
    /// An object without a version tag.
    #[must_use]
    pub fn new(name: impl Into<String>, size: u64) -> Self {
        Self { name: name.into(), size, etag: None }
    }
}
