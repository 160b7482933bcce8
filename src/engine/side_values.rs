//! Values that are not in rows, because their length differs from record to record: they travel with their samples.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::error::Result;
use infeed_data::{Instances, Sample, Value};

use super::{
    batch::SideFields,
    fields::{FieldRows, Side},
    instances::BatchInstances,
};

/// The values of one sample that are not in rows.
#[derive(Debug, Default)]
pub(super) struct SideValues {
    /// For each field of bytes, text or lists of items.
    pub(super) bytes: Vec<Bytes>,
    /// For each field of texts.
    texts: Vec<Arc<[Bytes]>>,
    /// For each field of instances.
    pub(super) instances: Vec<Instances>,
}

impl SideValues {
    /// The values of the fields of bytes, copied, so that a key does not keep the buffer of an image next to it.
    pub(super) fn own(sample: &Sample, instances: Vec<Instances>) -> Self {
        let own = |bytes: &Bytes| if bytes.is_unique() { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
        let mut values = Self { instances, ..Self::default() };
        for value in &sample.values {
            match value {
                Value::Bytes(bytes) | Value::List(bytes) => values.bytes.push(own(bytes)),
                Value::Texts(texts) => values.texts.push(texts.iter().map(own).collect()),
                _ => {}
            }
        }
        values
    }
}

/// The values of a batch that are not in rows.
#[derive(Debug, Default)]
pub(super) struct BatchSideValues {
    /// For each field of bytes, text or lists of items, one value per row.
    pub(super) bytes: Vec<Vec<Bytes>>,
    /// For each field of texts, those of each row.
    texts: Vec<Vec<Arc<[Bytes]>>>,
    /// For each field of instances, the instances of each row; `None` for rows of zeros.
    instances: Vec<Vec<Option<Arc<Instances>>>>,
}

impl BatchSideValues {
    pub(super) fn new(fields: &[FieldRows], rows: usize) -> Self {
        let mut values = Self::default();
        for side in fields.iter().filter_map(|field| field.side.as_ref()) {
            match side {
                Side::Instances(_) => values.instances.push(vec![None; rows]),
                Side::Texts(_) => values.texts.push(vec![Arc::default(); rows]),
                Side::Bytes(_) | Side::Text(_) | Side::List(_) => values.bytes.push(vec![Bytes::new(); rows]),
            }
        }
        values
    }

    pub(super) fn set(&mut self, row: usize, values: SideValues) {
        for (field, value) in self.bytes.iter_mut().zip(values.bytes) {
            field[row] = value;
        }
        for (field, value) in self.texts.iter_mut().zip(values.texts) {
            field[row] = value;
        }
        for (field, value) in self.instances.iter_mut().zip(values.instances) {
            field[row] = Some(Arc::new(value));
        }
    }

    pub(super) fn copy(&mut self, from: usize, to: usize) {
        self.bytes.iter_mut().for_each(|field| field[to] = field[from].clone());
        self.texts.iter_mut().for_each(|field| field[to] = Arc::clone(&field[from]));
        self.instances.iter_mut().for_each(|field| field[to] = field[from].clone());
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.bytes.iter_mut().for_each(|field| field.truncate(rows));
        self.texts.iter_mut().for_each(|field| field.truncate(rows));
        self.instances.iter_mut().for_each(|field| field.truncate(rows));
    }

    pub(super) fn clear_from(&mut self, row: usize) {
        self.bytes.iter_mut().for_each(|field| field[row..].fill(Bytes::new()));
        self.texts.iter_mut().for_each(|field| field[row..].fill(Arc::default()));
        self.instances.iter_mut().for_each(|field| field[row..].fill(None));
    }

    /// The values of a batch by the names of their fields.
    pub(super) fn seal(self, fields: &[FieldRows]) -> Result<SideFields> {
        let mut sealed = SideFields::default();
        let (mut bytes, mut texts) = (self.bytes.into_iter(), self.texts.into_iter());
        let mut instances = self.instances.into_iter();
        for field in fields {
            let Some(side) = &field.side else { continue };
            let name = || field.name.clone();
            let mut rows = || bytes.next().unwrap_or_default();
            match side {
                Side::Instances(of) => {
                    let rows = instances.next().unwrap_or_default();
                    sealed.instances.push((name(), BatchInstances::new(&of.lowered, &rows)?));
                }
                Side::Texts(_) => sealed.text_lists.push((name(), texts.next().unwrap_or_default())),
                Side::List(list) => match &list.pad {
                    None => sealed.lists.push((name(), list.gather(rows())?)),
                    Some(number) => {
                        let (values, lengths) = list.fill(rows(), number)?;
                        sealed.padded.push((name(), values));
                        sealed.padded.push((lengths_of(&field.name), lengths));
                    }
                },
                Side::Text(_) => {
                    sealed.texts.push(name());
                    sealed.bytes.push((name(), rows()));
                }
                Side::Bytes(_) => sealed.bytes.push((name(), rows())),
            }
        }
        Ok(sealed)
    }
}

/// The name of the tensor with the lengths of a padded field.
pub(crate) fn lengths_of(field: &str) -> String {
    format!("{field}.lengths")
}
