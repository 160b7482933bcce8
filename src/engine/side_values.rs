//! Values that are not in rows, because their length differs from record to record: they travel with their samples.

use std::sync::Arc;

use bytes::Bytes;
use infeed_core::error::Result;
use infeed_data::{Instances, Sample, Value};

use super::{fields::FieldRows, instances::BatchInstances};

/// The values of one sample that are not in rows.
#[derive(Debug, Default)]
pub(super) struct SideValues {
    /// For each field of bytes.
    pub(super) bytes: Vec<Bytes>,
    /// For each field of instances.
    pub(super) instances: Vec<Instances>,
}

impl SideValues {
    /// The values of the fields of bytes, copied, so that a key does not keep the buffer of an image next to it.
    pub(super) fn own(sample: &Sample, instances: Vec<Instances>) -> Self {
        let own = |bytes: &Bytes| if bytes.is_unique() { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
        let bytes = |value: &Value| if let Value::Bytes(bytes) = value { Some(own(bytes)) } else { None };
        Self { bytes: sample.values.iter().filter_map(bytes).collect(), instances }
    }
}

/// The values of a batch that are not in rows.
#[derive(Debug, Default)]
pub(super) struct BatchSideValues {
    /// For each field of bytes, one value per row.
    pub(super) bytes: Vec<Vec<Bytes>>,
    /// For each field of instances, the instances of each row; `None` for rows of zeros.
    instances: Vec<Vec<Option<Arc<Instances>>>>,
}

impl BatchSideValues {
    pub(super) fn new(fields: &[FieldRows], rows: usize) -> Self {
        let side_fields = || fields.iter().filter(|field| field.most.is_some());
        let bytes = side_fields().filter(|field| field.instances.is_none()).map(|_| vec![Bytes::new(); rows]).collect();
        let instances = side_fields().filter(|field| field.instances.is_some()).map(|_| vec![None; rows]).collect();
        Self { bytes, instances }
    }

    pub(super) fn set(&mut self, row: usize, values: SideValues) {
        for (field, value) in self.bytes.iter_mut().zip(values.bytes) {
            field[row] = value;
        }
        for (field, value) in self.instances.iter_mut().zip(values.instances) {
            field[row] = Some(Arc::new(value));
        }
    }

    pub(super) fn copy(&mut self, from: usize, to: usize) {
        self.bytes.iter_mut().for_each(|field| field[to] = field[from].clone());
        self.instances.iter_mut().for_each(|field| field[to] = field[from].clone());
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.bytes.iter_mut().for_each(|field| field.truncate(rows));
        self.instances.iter_mut().for_each(|field| field.truncate(rows));
    }

    pub(super) fn clear_from(&mut self, row: usize) {
        self.bytes.iter_mut().for_each(|field| field[row..].fill(Bytes::new()));
        self.instances.iter_mut().for_each(|field| field[row..].fill(None));
    }

    /// The bytes and instances of a batch, with the names of their fields.
    #[expect(clippy::type_complexity, reason = "the two lists of a batch")]
    pub(super) fn seal(
        self,
        fields: &[FieldRows],
    ) -> Result<(Vec<(String, Vec<Bytes>)>, Vec<(String, BatchInstances)>)> {
        let side_fields = || fields.iter().filter(|field| field.most.is_some());
        let of_bytes = side_fields().filter(|field| field.instances.is_none());
        let bytes = of_bytes.zip(self.bytes).map(|(field, values)| (field.name.clone(), values)).collect();
        let of_instances = side_fields().filter_map(|field| Some((&field.instances.as_ref()?.lowered, &field.name)));
        let gathered = of_instances.zip(self.instances);
        let instances =
            gathered.map(|((lowered, name), rows)| Ok((name.clone(), BatchInstances::new(lowered, &rows)?)));
        Ok((bytes, instances.collect::<Result<_>>()?))
    }
}
