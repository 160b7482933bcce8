//! Datasets of columns in memory, such as Arrow's. Reading them needs no Python code.

use std::sync::Arc;

use bytes::Bytes;
use engine::{
    DType,
    dataset::{Dataset as _, Field, FieldKind, MemoryDataset, declare, subset as subset_of},
    sampler::Fingerprint,
};
use infeed as engine;
use pyo3::{
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
    types::PyTuple,
};

use crate::{
    dataset::Dataset,
    errors,
    held::HeldObject,
    objects::{is_photograph, may_be_mask},
    tensor,
};

/// An Arrow array of binaries: offsets, bytes per offset, values, first index, number of values.
type Chunk<'py> = (Bound<'py, PyAny>, usize, Bound<'py, PyAny>, usize, usize);

/// An Arrow array of lists of binaries: the offsets of the lists, bytes per offset, and the binaries of all.
type Nested<'py> = (Bound<'py, PyAny>, usize, Chunk<'py>);

/// A dataset of columns. Each has a name, a kind and its memory: `image` (a mask if its name is that of a mask), `bytes`
/// and `text` have chunks of binaries; `images` (likewise) and `texts` have chunks of lists of them; `list` has a type,
/// the shape of an item and chunks; `label` has a view of i64 and class names; `array` has a type, the shape of a record
/// and a view. `made` makes the dataset again.
#[pyfunction]
pub(crate) fn columns(
    columns: Vec<(String, String, Bound<'_, PyAny>)>,
    identity: &str,
    name: String,
    made: (Bound<'_, PyAny>, Bound<'_, PyTuple>),
) -> PyResult<Dataset> {
    let py = made.0.py();
    let mut builder = MemoryDataset::builder();
    for (column, kind, memory) in columns {
        builder = match &*kind {
            "image" => {
                let is_mask = Field::picture(&*column).mask;
                let builder = builder.encoded_images(binaries(&memory, 1)?).named(column);
                if is_mask { builder.mask() } else { builder }
            }
            "images" => {
                let is_mask = Field::picture(&*column).mask;
                let builder = builder.image_lists(column, nested(&memory)?);
                if is_mask { builder.mask() } else { builder }
            }
            "texts" => builder.text_lists(column, nested(&memory)?),
            "bytes" => builder.bytes(column, binaries(&memory, 1)?),
            "text" => builder.texts(column, binaries(&memory, 1)?),
            "list" => {
                let (dtype, item, chunks): (String, Vec<usize>, Bound<'_, PyAny>) = memory.extract()?;
                let dtype = known(&column, &dtype)?;
                let each = dtype.size() * item.iter().product::<usize>();
                builder.list_bytes(column, dtype, item, binaries(&chunks, each)?)
            }
            "label" => {
                let (view, names): (Bound<'_, PyAny>, Option<Vec<String>>) = memory.extract()?;
                let bytes = HeldObject::view(&view)?;
                let labels = bytes.chunks_exact(8).map(|label| i64::from_ne_bytes(label.try_into().expect("eight")));
                let builder = builder.labels(labels.collect()).named(&column);
                match names {
                    Some(names) if column == "label" => builder.classes(names),
                    Some(names) => builder.names(column, names),
                    None => builder,
                }
            }
            _ => {
                let (dtype, shape, view): (String, Vec<usize>, Bound<'_, PyAny>) = memory.extract()?;
                let dtype = known(&column, &dtype)?;
                builder.array(column, dtype, shape, HeldObject::view(&view)?)
            }
        };
    }
    let print = Fingerprint::of("columns").text(identity).finish();
    let opened = builder.fingerprint(print).mapped().build().map_err(|error| errors::raise(py, &error))?;
    let fields = &opened.schema().fields;
    let is_mask = |field: &&Field| match &field.kind {
        FieldKind::Array { dtype, shape } => may_be_mask(&field.name, *dtype, shape),
        _ => false,
    };
    let masks: Vec<(String, &str)> = match fields.iter().any(is_photograph) {
        true => fields.iter().filter(is_mask).map(|field| (field.name.to_string(), "mask")).collect(),
        false => Vec::new(),
    };
    let opened = declare(Arc::new(opened), masks).map_err(|error| errors::raise(py, &error))?;
    Ok(Dataset::new(opened, name, (&made.0, &made.1), None))
}

fn known(column: &str, dtype: &str) -> PyResult<DType> {
    tensor::dtype(dtype).ok_or_else(|| PyValueError::new_err(format!("column {column:?} of {dtype}")))
}

/// Where value `at` begins and ends, by offsets of `width` bytes, among `most` items.
fn range(offsets: &[u8], width: usize, at: usize, most: usize) -> PyResult<std::ops::Range<usize>> {
    let offset = |at: usize| -> Option<usize> {
        let bytes = offsets.get(at * width..(at + 1) * width)?;
        match width {
            4 => usize::try_from(i32::from_ne_bytes(bytes.try_into().ok()?)).ok(),
            _ => usize::try_from(i64::from_ne_bytes(bytes.try_into().ok()?)).ok(),
        }
    };
    let range = offset(at).zip(offset(at + 1)).filter(|(from, to)| from <= to && *to <= most);
    let damaged = || PyValueError::new_err(format!("the offsets of value {at} are damaged"));
    range.map(|(from, to)| from..to).ok_or_else(damaged)
}

/// The values of Arrow chunks, as slices of Arrow's memory. Offsets count items of `each` bytes.
fn binaries(chunks: &Bound<'_, PyAny>, each: usize) -> PyResult<Vec<Bytes>> {
    let chunks: Vec<Chunk<'_>> = chunks.extract()?;
    let mut values = Vec::with_capacity(chunks.iter().map(|chunk| chunk.4).sum());
    for chunk in chunks {
        values.extend(of_chunk(chunk, each)?);
    }
    Ok(values)
}

fn of_chunk((offsets, width, data, first, len): Chunk<'_>, each: usize) -> PyResult<Vec<Bytes>> {
    let (offsets, data) = (HeldObject::view(&offsets)?, HeldObject::view(&data)?);
    let items = data.len().checked_div(each).unwrap_or(0);
    let value = |at| range(&offsets, width, at, items).map(|own| data.slice(own.start * each..own.end * each));
    (first..first + len).map(value).collect()
}

/// The lists of Arrow chunks of lists of binaries.
fn nested(chunks: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<Bytes>>> {
    let chunks: Vec<Nested<'_>> = chunks.extract()?;
    let mut lists = Vec::new();
    for (offsets, width, values) in chunks {
        let (offsets, values) = (HeldObject::view(&offsets)?, of_chunk(values, 1)?);
        let rows = (offsets.len() / width).saturating_sub(1);
        for row in 0..rows {
            lists.push(values[range(&offsets, width, row, values.len())?].to_vec());
        }
    }
    Ok(lists)
}

/// Some records of a dataset, in this order. `made` makes the subset again; by default from `dataset` and `records`.
#[pyfunction]
#[pyo3(signature = (dataset, records, made=None))]
pub(crate) fn subset(
    py: Python<'_>,
    dataset: &Bound<'_, Dataset>,
    records: Vec<u64>,
    made: Option<(Bound<'_, PyAny>, Bound<'_, PyTuple>)>,
) -> PyResult<Dataset> {
    let inner = dataset.get();
    let len = inner.opened.len();
    if let Some(record) = records.iter().find(|record| **record >= len) {
        return Err(PyIndexError::new_err(format!("record {record} of {len}")));
    }
    let (function, made) = match made {
        Some(made) => made,
        None => (
            py.import("infeed._native")?.getattr("subset")?,
            PyTuple::new(py, [dataset.as_any().clone(), records.clone().into_pyobject(py)?.into_any()])?,
        ),
    };
    let name = format!("{} records of {}", records.len(), inner.named());
    let opened = subset_of(Arc::clone(&inner.opened), records).map_err(|error| errors::raise(py, &error))?;
    Ok(Dataset::new(opened, name, (&function, &made), inner.called(py)))
}
