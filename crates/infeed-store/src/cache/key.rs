//! The key of a cache entry.

use xxhash_rust::xxh3::xxh3_128;

use crate::Extent;

/// Bytes after an entry's data: a mark, the length, the hash.
pub(super) const FOOTER: u64 = 24;

/// The key of a cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Hash of store, name and version.
    pub(super) object: u128,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Key {
    /// `None` if there is nothing to keep, or no version that identifies the object.
    pub(super) fn of(extent: &Extent) -> Option<Self> {
        let etag = extent.etag.as_deref()?;
        if extent.is_empty() {
            return None;
        }
        let name = extent.source.display_name(&extent.name);
        // With lengths between the parts, so that `a` and `bc` differ from `ab` and `c`.
        let text = format!("{}\0{name}\0{etag}\0{}", extent.source.store(), name.len());
        Some(Self { object: xxh3_128(text.as_bytes()), start: extent.range.start, end: extent.range.end })
    }

    pub(super) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes on the disk, including the checksum.
    pub(super) const fn disk_bytes(&self) -> u64 {
        self.len() + FOOTER
    }
}
