//! What a listing gives.

use std::sync::Arc;

use infeed_core::error::Result;

use super::{Object, ObjectTable};

/// The objects of a place, or where they are kept.
#[derive(Debug)]
pub struct Listing {
    pub(crate) objects: Option<Vec<Object>>,
    pub(crate) kept: Option<KeptFiles>,
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
