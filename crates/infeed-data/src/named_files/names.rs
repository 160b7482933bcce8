//! The fields that name files, and the files of all records by number.

use infeed_core::error::{Error, ErrorKind, Result};

use crate::{
    record::Value,
    schema::{FieldKind, Schema},
};

/// A field whose texts name images.
#[derive(Debug)]
pub(crate) struct NameField {
    /// Its name in the table.
    pub(crate) name: String,
    /// The name of the field of images.
    pub(crate) becomes: String,
    /// Whether it stays a field of texts if there are no such files.
    pub(crate) if_there: bool,
}

/// The index of the field in a schema.
///
/// # Errors
/// `NotFound` if it is not there, `Unsupported` if it has no texts.
pub(super) fn column_of(schema: &Schema, field: &str) -> Result<usize> {
    let Some(at) = schema.fields.iter().position(|of| of.name == field) else {
        let all: Vec<&str> = schema.fields.iter().map(|of| of.name.as_str()).collect();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no field `{field}` with names of files"))
            .with_hint(format!("there are {}", all.join(", "))));
    };
    match &schema.fields[at].kind {
        FieldKind::Text { .. } | FieldKind::Bytes { .. } | FieldKind::Texts { .. } => Ok(at),
        kind => {
            let what = format!("the field `{field}` is {}, not names of files", kind.name());
            Err(Error::new(ErrorKind::Unsupported, what).with_hint("names of files are texts or lists of texts"))
        }
    }
}

/// The texts that are not empty.
pub(super) fn texts_of(value: &Value) -> Vec<&[u8]> {
    let texts = match value {
        Value::Bytes(text) => std::slice::from_ref(text),
        Value::Texts(texts) => texts,
        _ => &[],
    };
    texts.iter().map(|text| &**text).filter(|text| !text.is_empty()).collect()
}

/// The number of a file that is not there.
pub(super) const MISSING: u32 = u32::MAX;

/// The files of all records.
#[derive(Debug)]
pub(super) struct FileNumbers {
    /// Of each record, those of each field.
    files: Vec<u32>,
    /// Their end in `files`, for each field of each record.
    ends: Vec<u32>,
    fields: usize,
}

impl FileNumbers {
    /// No records yet, with so many fields each.
    pub(super) const fn new(fields: usize) -> Self {
        Self { files: Vec::new(), ends: Vec::new(), fields }
    }

    /// Adds the files of the next field; fields come record by record.
    ///
    /// # Errors
    /// `Unsupported` for more than 4 billion files.
    pub(super) fn push(&mut self, files: impl IntoIterator<Item = u32>) -> Result<()> {
        self.files.extend(files);
        let end = u32::try_from(self.files.len());
        let end = end.map_err(|_| Error::new(ErrorKind::Unsupported, "more than 4 billion names of files"))?;
        self.ends.push(end);
        Ok(())
    }

    /// Other files in the place of all, as many.
    pub(super) fn replace(&mut self, files: Vec<u32>) {
        debug_assert_eq!(files.len(), self.files.len());
        self.files = files;
    }

    /// The number of records.
    pub(super) fn records(&self) -> u64 {
        (self.ends.len() / self.fields) as u64
    }

    /// The files of a record in a field; none beyond the last record.
    pub(super) fn of(&self, record: u64, field: usize) -> &[u32] {
        let at = usize::try_from(record).unwrap_or(usize::MAX).saturating_mul(self.fields).saturating_add(field);
        let end = |at: usize| self.ends.get(at).copied().unwrap_or(0) as usize;
        let start = at.checked_sub(1).map_or(0, end);
        self.files.get(start..end(at)).unwrap_or_default()
    }

    /// The files of a record in all fields.
    pub(super) fn of_record(&self, record: u64) -> impl Iterator<Item = u32> {
        (0..self.fields).flat_map(move |field| self.of(record, field).iter().copied())
    }

    /// The files of a field in all records.
    pub(super) fn of_field(&self, field: usize) -> impl Iterator<Item = &[u32]> {
        (0..self.records()).map(move |record| self.of(record, field))
    }

    /// Those of the fields to keep.
    pub(super) fn only(self, keep: &[bool]) -> Self {
        if keep.iter().all(|keep| *keep) {
            return self;
        }
        let mut kept = Self::new(keep.iter().filter(|keep| **keep).count());
        for (at, end) in self.ends.iter().enumerate().filter(|(at, _)| keep[at % self.fields]) {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            kept.files.extend_from_slice(&self.files[start as usize..*end as usize]);
            kept.ends.push(kept.files.len() as u32);
        }
        kept
    }

    /// Numbers the files anew, without those that no record has. Returns the old numbers of those that are left.
    pub(super) fn renumber(&mut self, files: usize) -> Vec<usize> {
        let mut new = vec![MISSING; files];
        let there = |file: &&mut u32| **file != MISSING;
        self.files.iter_mut().filter(there).for_each(|file| new[*file as usize] = 0);
        let left: Vec<usize> = (0..files).filter(|file| new[*file] != MISSING).collect();
        left.iter().zip(0..).for_each(|(file, number)| new[*file] = number);
        self.files.iter_mut().filter(there).for_each(|file| *file = new[*file as usize]);
        left
    }

    /// All of it, for a fingerprint.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.files.iter().chain(&self.ends).copied()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        ((self.files.len() + self.ends.len()) * size_of::<u32>()) as u64
    }
}
