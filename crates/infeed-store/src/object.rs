//! An entry of a listing.

/// One object found by [`Source::list`](super::Source::list).
///
/// ```
/// # futures::executor::block_on(async {
/// use futures::TryStreamExt;
/// use infeed::source::{Object, Source};
/// # use object_store::{ObjectStoreExt, path::Path};
///
/// # let store = Source::memory("doc-object");
/// # store.put(&Path::parse("cats/1.jpg").unwrap(), "not really".into()).await.unwrap();
/// let source = Source::parse("memory://doc-object")?;
/// let objects: Vec<Object> = source.list().try_collect().await?;
/// assert_eq!((objects[0].name.as_str(), objects[0].size), ("cats/1.jpg", 10));
/// assert_eq!(objects[0].extent(&source).read().await?, "not really");
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
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

    /// Whether this is still the object that had this size and tag. If one of the two has no tag, as a copy elsewhere
    /// may, the size decides.
    #[doc(hidden)]
    #[must_use]
    pub fn is_still(&self, size: u64, etag: Option<&str>) -> bool {
        let other_tag = self.etag.as_deref().zip(etag).is_some_and(|(here, then)| here != then);
        self.size == size && !other_tag
    }
}
