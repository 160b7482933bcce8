//! Which objects there are below a source.
//!
//! ```text
//! Source::list, objects ─┬ a folder of this machine ─ local/    each file is looked up; with a manifest, each folder
//!  (source.rs)           ├ a bucket ─ bucket.rs               with a manifest, 16 of its pages are compared
//!                        └ any other store                    its own listing
//! SharedList (shared.rs): rank 0 lists and writes a file, the others read it
//! ```
//!
//! `format.rs` is the form in which a bucket's listing is kept. `connect/keys.rs` refuses listings that repeat keys or
//! never end.

#[cfg(feature = "s3")]
mod bucket;
mod format;
pub(crate) mod local;
mod shared;
mod source;

use std::sync::Arc;

use infeed_core::error::Result;

use crate::{Object, ObjectTable};

pub(crate) use format::{MAGIC, decode};
pub(crate) use local::{KEPT, check_kept};
pub use shared::SharedList;

/// The objects of a place, or where they are kept.
#[derive(Debug)]
pub struct Listing {
    objects: Option<Vec<Object>>,
    kept: Option<KeptFiles>,
}

/// The files of a local folder, which a manifest keeps, in the order of names.
#[derive(Clone, Debug)]
pub struct KeptFiles {
    /// The files.
    pub table: Arc<ObjectTable>,
    /// The identity of the names and sizes of all files, and of the state of all folders.
    pub identity: u128,
}

impl Listing {
    /// These files, if a manifest has them and their folders are unchanged.
    #[must_use]
    pub const fn kept(&self) -> Option<&KeptFiles> {
        self.kept.as_ref()
    }

    /// All objects, ordered by name.
    ///
    /// # Errors
    /// `Corrupt` if the manifest is damaged; it is removed.
    pub fn into_objects(self) -> Result<Vec<Object>> {
        match (self.objects, self.kept) {
            (Some(objects), _) => Ok(objects),
            (None, Some(KeptFiles { table, .. })) => {
                table.fold(Vec::with_capacity(table.len()), |mut objects, name, size| {
                    objects.push(Object::new(name, size));
                    objects
                })
            }
            (None, None) => Ok(Vec::new()),
        }
    }
}

impl From<Vec<Object>> for Listing {
    fn from(objects: Vec<Object>) -> Self {
        Self { objects: Some(objects), kept: None }
    }
}
