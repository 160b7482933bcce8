//! The files of a dataset: a million of them in little memory.

use std::sync::Arc;

use infeed_core::error::Result;
use infeed_store::{Extent, Object, ObjectTable, Source};

/// Files, in the order of records.
#[derive(Debug)]
pub struct Files {
    pub(crate) source: Source,
    table: Arc<ObjectTable>,
}

impl Files {
    /// These objects, in this order.
    pub(crate) fn of(source: Source, objects: &[&Object]) -> Self {
        Self::kept(source, Arc::new(ObjectTable::of(objects)))
    }

    /// Those of a table.
    pub(crate) const fn kept(source: Source, table: Arc<ObjectTable>) -> Self {
        Self { source, table }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Name and size of file `i`, which is below `len`.
    pub(crate) fn get(&self, i: usize) -> Result<Object> {
        self.table.get(i)
    }

    /// See [`ObjectTable::fold`].
    pub(crate) fn fold<T>(&self, init: T, add: impl FnMut(T, &str, u64) -> T) -> Result<T> {
        self.table.fold(init, add)
    }

    /// A read of the whole file `i`, in the listed version.
    pub(crate) fn extent(&self, i: usize) -> Result<Extent> {
        Ok(self.get(i)?.extent(&self.source))
    }

    /// The name of file `i` in messages.
    pub(crate) fn display(&self, i: usize) -> String {
        // If the table is damaged, the place of the files is all that is known.
        self.get(i).map_or_else(|_| self.source.url().to_owned(), |file| self.source.display_name(&file.name))
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.resident_bytes()
    }
}
