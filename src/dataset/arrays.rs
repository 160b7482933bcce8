//! Numpy's `.npy` and `.npz`, and safetensors.
//!
//! ```text
//! one file       ─ each array in it is a field, its first axis counts the records: a record's part is read by range
//! many .npy      ─ each file is a record, with one field `array`; class folders give labels
//! ```
//!
//! Headers are read at opening, here and nowhere else: names, types, shapes, and where the numbers lie.

mod header;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use smallvec::smallvec;

use super::{
    Dataset, Field, FieldKind, Format, OpenOptions, ReadPlan, Sample, Schema, Value, folder::classes_of, index,
    open::nothing_to_read,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    source::{Extent, Object, Source},
    types::DType,
};
#[cfg(feature = "prepare")]
pub(crate) use header::npy_header;
pub(crate) use header::{Array, parse_directory, parse_end, parse_local, parse_npy, parse_safetensors};

/// Bytes of a file that hold an npy header in all but odd cases; the rest is read when it does not.
const HEAD: u64 = 4 << 10;
/// The most that a header may take: safetensors' own bound.
const LONGEST: u64 = 100 << 20;

/// See the head of this file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrays;

fn has_end(name: &str, end: &str) -> bool {
    let start = name.len().checked_sub(end.len());
    start.and_then(|start| name.get(start..)).is_some_and(|found| found.eq_ignore_ascii_case(end))
}

fn is_array(name: &str) -> bool {
    [".npy", ".npz", ".safetensors"].into_iter().any(|end| has_end(name, end))
}

impl Format for Arrays {
    fn name(&self) -> &'static str {
        "arrays"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_array(&o.name)) && !objects.iter().any(|o| super::folder::is_image(&o.name))
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let files: Vec<Object> = objects.iter().filter(|o| is_array(&o.name)).cloned().collect();
            match &files[..] {
                [] => Err(nothing_to_read(source, &objects, "arrays")),
                [only] => Ok(Arc::new(Columns::open(source, only).await?) as Arc<dyn Dataset>),
                many => match many.iter().find(|o| !has_end(&o.name, ".npy")) {
                    None => {
                        Ok(Arc::new(Files::open(source, files, options.classes.clone()).await?) as Arc<dyn Dataset>)
                    }
                    Some(other) => {
                        let what = format!("{} files of arrays, such as `{}`", many.len(), other.name);
                        Err(Error::config(what).at_object(source.url()).hint(
                            "open one of them; each .npy of a folder may be a record, .npz and .safetensors may not",
                        ))
                    }
                },
            }
        }
        .boxed()
    }
}

/// Arrays whose first axis is the record.
#[derive(Debug)]
struct Columns {
    source: Source,
    object: Object,
    columns: Vec<Column>,
    len: u64,
    schema: Schema,
    fingerprint: Fingerprint,
}

#[derive(Debug)]
struct Column {
    /// Where the numbers of record 0 begin.
    start: u64,
    row_bytes: u64,
    /// Bytes of an element that has to be turned round.
    swap: Option<usize>,
}

async fn read(source: &Source, object: &Object, range: Range<u64>) -> Result<Bytes> {
    let part = Extent { range, ..object.extent(source) };
    part.read().await
}

/// An npy header that begins at `at`, with its data's range in the object.
pub(super) async fn npy_at(source: &Source, object: &Object, at: u64, end: u64) -> Result<Array> {
    let mut len = HEAD;
    loop {
        let head = read(source, object, at..at.saturating_add(len).min(end)).await?;
        match parse_npy(&head) {
            // The header says how long it is.
            Ok(Err(needed)) if needed > head.len() as u64 && needed <= LONGEST && at.saturating_add(needed) <= end => {
                len = needed;
            }
            Ok(Ok(mut array)) => {
                array.data = array.data.start + at..array.data.end.saturating_add(at);
                if array.data.end > end {
                    let (want, have) = (array.data.end - array.data.start, end.saturating_sub(array.data.start));
                    return Err(Error::corrupt(format!("{have} bytes of numbers where the header says {want}"))
                        .hint("the file is cut: fetch it again"));
                }
                return Ok(array);
            }
            Ok(Err(_)) => return Err(Error::corrupt("the header is cut").hint("fetch the file again")),
            Err(error) => return Err(error),
        }
    }
}

/// Names and arrays of a zip file, which numpy stores without packing them.
async fn npz(source: &Source, object: &Object) -> Result<Vec<(String, Array)>> {
    let size = object.size;
    // The end record, with the longest comment, and the one for large files before it.
    let tail_start = size.saturating_sub(64 * 1024 + 22 + 20 + 56);
    let tail = read(source, object, tail_start..size).await?;
    let directory = parse_end(&tail, tail_start, size)?;
    if directory.end - directory.start > LONGEST {
        return Err(Error::corrupt("a directory of more than 100 MiB").hint("fetch the file again"));
    }
    let entries = parse_directory(&read(source, object, directory.clone()).await?)?;
    let mut arrays = Vec::new();
    for entry in entries {
        let Some(name) = entry.name.strip_suffix(".npy").filter(|name| !name.is_empty()) else { continue };
        let named = |e: Error| e.at_object(format!("{}[{name}]", source.display_name(&object.name)));
        if entry.packed {
            let what = format!("the array `{name}` is compressed: records can't be read out of it");
            return Err(named(
                Error::new(ErrorKind::Unsupported, what).hint("save it with numpy.savez instead of savez_compressed"),
            ));
        }
        let local = read(source, object, entry.at..entry.at.saturating_add(30).min(directory.start)).await?;
        let start = entry.at + parse_local(&local).map_err(named)?;
        let end = start.checked_add(entry.size).filter(|end| *end <= directory.start);
        let end = end.ok_or_else(|| named(Error::corrupt("the array reaches beyond its file")))?;
        arrays.push((name.to_owned(), npy_at(source, object, start, end).await.map_err(named)?));
    }
    Ok(arrays)
}

async fn safetensors(source: &Source, object: &Object) -> Result<Vec<(String, Array)>> {
    let head = read(source, object, 0..object.size.min(8)).await?;
    let bytes: [u8; 8] = head[..].try_into().map_err(|_| Error::corrupt("no safetensors file: it has no header"))?;
    let len = u64::from_le_bytes(bytes);
    if len > LONGEST || len > object.size.saturating_sub(8) {
        let what = format!("a header of {len} bytes in a file of {}", object.size);
        return Err(Error::corrupt(what).hint("it is no safetensors file, or cut: fetch it again"));
    }
    let header = read(source, object, 8..8 + len).await?;
    let mut arrays = parse_safetensors(&header, object.size - 8 - len)?;
    for (_, array) in &mut arrays {
        array.data = array.data.start + 8 + len..array.data.end + 8 + len;
    }
    Ok(arrays)
}

fn stem(name: &str) -> &str {
    let base = name.rsplit('/').next().unwrap_or(name);
    base.rfind('.').map_or(base, |dot| &base[..dot])
}

impl Columns {
    async fn open(source: &Source, object: &Object) -> Result<Self> {
        let arrays = if has_end(&object.name, ".npz") {
            npz(source, object).await
        } else if has_end(&object.name, ".safetensors") {
            safetensors(source, object).await
        } else {
            let name = match stem(&object.name) {
                "" => "array".to_owned(),
                name => name.to_owned(),
            };
            npy_at(source, object, 0, object.size).await.map(|array| vec![(name, array)])
        };
        let at = |e: Error| e.at_object(source.display_name(&object.name));
        Self::new(source, object, arrays.map_err(at)?).map_err(at)
    }

    fn new(source: &Source, object: &Object, arrays: Vec<(String, Array)>) -> Result<Self> {
        let Some((first, len)) = arrays.first().map(|(name, array)| (name, array.shape.first().copied())) else {
            return Err(Error::new(ErrorKind::NotFound, "no arrays in it"));
        };
        let mut print = Fingerprint::of("arrays").text(&object.name).number(object.size);
        let (mut columns, mut fields) = (Vec::new(), Vec::new());
        for (name, array) in &arrays {
            let Some((n, row)) = array.shape.split_first() else {
                return Err(Error::config(format!("`{name}` is one number: it has no axis of records")));
            };
            if Some(*n) != len {
                let (a, b) = (len.unwrap_or(0), n);
                return Err(Error::config(format!("`{first}` has {a} records, `{name}` {b}"))
                    .hint("save arrays with the same first axis"));
            }
            if row.contains(&0) {
                return Err(Error::config(format!(
                    "records of `{name}` have no values: its shape is {:?}",
                    array.shape
                )));
            }
            // Checked by the parser: the data have as many bytes as the shape says.
            let row_bytes = row.iter().product::<usize>() as u64 * array.dtype.size() as u64;
            print = print.text(name).text(array.dtype.name()).number(array.data.start).number(row_bytes);
            let swap = array.swapped.then_some(array.dtype.size());
            columns.push(Column { start: array.data.start, row_bytes, swap });
            fields.push(Field::new(name, FieldKind::Array { dtype: array.dtype, shape: row.to_vec() }));
        }
        let len = len.unwrap_or(0) as u64;
        let (source, object) = (source.clone(), object.clone());
        let fingerprint = print.number(len).finish();
        Ok(Self { source, object, columns, len, schema: Schema::new(fields), fingerprint })
    }
}

/// Type, shape and numbers of a whole `.npy` file: a slice of it, turned round where this machine's order is another.
pub(super) fn npy_of(file: &Bytes) -> Result<(DType, Vec<usize>, Bytes)> {
    let cut = |needed: u64| {
        Error::corrupt(format!("an array that ends after {} of {needed} bytes", file.len()))
            .hint("fetch the file again, or save it again")
    };
    let Array { dtype, shape, data, swapped } = parse_npy(file)?.map_err(cut)?;
    let range = usize::try_from(data.start).ok().zip(usize::try_from(data.end).ok());
    let range = range.filter(|(start, end)| start <= end && *end <= file.len());
    let (start, end) = range.ok_or_else(|| cut(data.end))?;
    Ok((dtype, shape, in_order(&file.slice(start..end), swapped.then_some(dtype.size()))))
}

/// The same numbers in the machine's order.
fn in_order(bytes: &Bytes, swap: Option<usize>) -> Bytes {
    match swap {
        None => bytes.clone(),
        Some(size) => {
            let mut turned = bytes.to_vec();
            turned.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            turned.into()
        }
    }
}

impl Dataset for Columns {
    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "arrays"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        index(record, usize::try_from(self.len).unwrap_or(usize::MAX))?;
        let whole = self.object.extent(&self.source);
        let part = |column: &Column| {
            let start = column.start + record * column.row_bytes;
            Extent { range: start..start + column.row_bytes, ..whole.clone() }
        };
        Ok(ReadPlan::new(self.columns.iter().map(part)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        index(record, usize::try_from(self.len).unwrap_or(usize::MAX))?;
        let fits = |(column, bytes): (&Column, &Bytes)| column.row_bytes == bytes.len() as u64;
        if bytes.len() != self.columns.len() || !self.columns.iter().zip(bytes).all(fits) {
            return Err(Error::corrupt("other bytes than the plan asked for").at_record(record));
        }
        let values = self.columns.iter().zip(bytes).map(|(column, bytes)| Value::Array(in_order(bytes, column.swap)));
        Ok(Sample::new(values))
    }

    fn object(&self, _record: u64) -> String {
        self.source.display_name(&self.object.name)
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.columns.iter().map(|column| column.row_bytes).sum()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// A file for each record, all of the first one's type and shape.
#[derive(Debug)]
struct Files {
    source: Source,
    objects: Vec<Object>,
    labels: Option<Vec<i64>>,
    first: Array,
    schema: Schema,
    fingerprint: Fingerprint,
}

impl Files {
    async fn open(source: &Source, objects: Vec<Object>, classes: Option<Arc<[String]>>) -> Result<Self> {
        let names: Vec<&str> = objects.iter().map(|o| o.name.as_str()).collect();
        let (labels, classes) = classes_of(&names, source, classes)?;
        let first = npy_at(source, &objects[0], 0, objects[0].size).await;
        let first = first.map_err(|e| e.at_object(source.display_name(&objects[0].name)))?;
        if first.shape.contains(&0) {
            return Err(Error::config(format!("the first array has no values: its shape is {:?}", first.shape))
                .at_object(source.display_name(&objects[0].name)));
        }
        let array = FieldKind::Array { dtype: first.dtype, shape: first.shape.clone() };
        let mut fields = vec![Field::new("array", array)];
        fields.extend(labels.is_some().then(Field::label));
        let print = Fingerprint::of("arrays").number(objects.len() as u64);
        let print = objects.iter().fold(print, |print, o| print.text(&o.name).number(o.size));
        let (source, schema) = (source.clone(), Schema::new(fields).with_classes(classes));
        Ok(Self { source, objects, labels, first, schema, fingerprint: print.finish() })
    }
}

impl Dataset for Files {
    fn len(&self) -> u64 {
        self.objects.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "arrays"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::one(self.objects[index(record, self.objects.len())?].extent(&self.source)))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.objects.len())?;
        let [file] = bytes else {
            return Err(Error::new(ErrorKind::Internal, "a record is one file").at_record(record));
        };
        let (dtype, shape, data) = npy_of(file).map_err(|e| e.at_record(record))?;
        if (dtype, &shape) != (self.first.dtype, &self.first.shape) {
            let Array { dtype: first, shape: of, .. } = &self.first;
            let what = format!("an array {shape:?} of {dtype} where the first is {of:?} of {first}");
            return Err(Error::corrupt(what).at_record(record).hint("save arrays of one shape and type"));
        }
        let mut values = smallvec![Value::Array(data)];
        values.extend(self.labels.as_ref().map(|labels| Value::Label(labels[i])));
        Ok(Sample { values })
    }

    fn object(&self, record: u64) -> String {
        let name = index(record, self.objects.len()).map_or("", |i| self.objects[i].name.as_str());
        self.source.display_name(name)
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.objects.iter().map(|o| o.size).max().unwrap_or(0)
    }

    fn resident_bytes(&self) -> u64 {
        let of = |o: &Object| (o.name.len() + o.etag.as_ref().map_or(0, String::len) + size_of::<Object>()) as u64;
        self.objects.iter().map(of).sum::<u64>() + self.labels.as_ref().map_or(0, |l| l.len() as u64 * 8)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
