//! What an entry is known by.

use xxhash_rust::xxh3::xxh3_128;

use crate::Extent;

/// What follows an entry's bytes: a mark, their number, their hash.
pub(super) const FOOTER: u64 = 24;

/// What an entry is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// Hash of store, name and version.
    pub(super) object: u128,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Key {
    /// `None`: nothing to keep, or no version by which to know it again.
    pub(super) fn of(extent: &Extent) -> Option<Self> {
        let etag = extent.etag.as_deref()?;
        if extent.is_empty() {
            return None;
        }
        let name = extent.source.display_name(&extent.name);
        // Lengths between the parts: `a` and `bc` are not `ab` and `c`.
        let text = format!("{}\0{name}\0{etag}\0{}", extent.source.store(), name.len());
        Some(Self { object: xxh3_128(text.as_bytes()), start: extent.range.start, end: extent.range.end })
    }

    pub(super) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// What it takes, its checksum included.
    pub(super) const fn disk_bytes(&self) -> u64 {
        self.len() + FOOTER
    }
}
