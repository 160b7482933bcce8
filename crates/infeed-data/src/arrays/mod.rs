//! Numpy's `.npy` and `.npz`, and safetensors.
//!
//! ```text
//! one file       ─ each array in it is a field, its first axis counts the records: a record's part is read by range;
//!                  columns or a split choose some of them
//! many .npy      ─ each file is a record, with one field `array`; class folders give labels; folders that name kinds
//!                  (`images`, `masks`) give fields
//! many others    ─ each file is a record if the user names the format, because their rows may be the records as well
//! ```
//!
//! Headers are read only while the dataset is opened: names, types, shapes, positions of the numbers. If an array is
//! compressed (deflate) or in Fortran order, its records are not stored in one piece. It is then read whole and
//! reordered once for all records, as long as the loader's memory holds it.

mod files;
mod header;
mod lists;
mod read;
mod splits;

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, future::BoxFuture};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FORMAT},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
};
use infeed_store::{Object, Source};

use self::{
    files::Files,
    header::Array,
    read::{Deflated, FoundArray, in_order, npz, numbers, safetensors},
    splits::is_of_split,
};
use crate::{
    format::{Format, OpenOption, OpenOptions},
    layout::stem,
    names::{base, ends_with, is_image},
    objects::nothing_to_read,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value, index},
    schema::{Field, FieldKind, Schema},
};
pub use header::npy_header;
pub use header::numpy_type;
pub use lists::{differ_in_length, is_usual_list};
pub use read::{npy_at, npy_of};
pub use splits::{listed, one_length};

/// The format of these files; see the top of this module.
#[derive(Clone, Copy, Debug)]
pub struct Arrays;

fn is_array(name: &str) -> bool {
    [".npy", ".npz", ".safetensors"].into_iter().any(|end| ends_with(name, end))
}

impl Format for Arrays {
    fn name(&self) -> &'static str {
        "arrays"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_array(&o.name)) && !objects.iter().any(|o| is_image(&o.name))
    }

    fn reads(&self, name: &str) -> bool {
        is_array(name)
    }

    /// `classes` is for arrays in several files, which may be in class folders.
    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Classes, OpenOption::Split, OpenOption::Columns]
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
                [only] => {
                    let at = |e: Error| e.at_object(source.display_name(&only.name));
                    options.only("arrays in one file", &[OpenOption::Split, OpenOption::Columns]).map_err(at)?;
                    if options.format.is_some() && source.only().is_none() {
                        tracing::warn!(
                            file = source.display_name(&only.name),
                            "this is the only file of arrays, so its rows are the records; of several files each is one"
                        );
                    }
                    Ok(Arc::new(Columns::open(source, only, options).await?) as Arc<dyn Dataset>)
                }
                many => {
                    // Their rows may be the records as well.
                    let doubtful =
                        many.iter().find(|o| !ends_with(&o.name, ".npy")).filter(|_| options.format.is_none());
                    if let Some(other) = doubtful {
                        let what = format!("there are {} files of arrays, such as `{}`", many.len(), other.name);
                        return Err(Error::config(what).at_object(source.url()).with_hint(format!(
                            "if each file is a record, set {}; if the rows of a file are records, open one of them, or \
                             several as {}::{}",
                            FORMAT.to("arrays"),
                            source.display_name(&many[0].name),
                            source.display_name(&many[1].name)
                        )));
                    }
                    Ok(Arc::new(Files::open(source, files, options).await?) as Arc<dyn Dataset>)
                }
            }
        }
        .boxed()
    }
}

/// Arrays whose first axis counts the records.
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
    row_bytes: u64,
    way: RowRead,
}

/// How the records of an array are read.
#[derive(Debug)]
enum RowRead {
    Rows {
        /// Position of the numbers of record 0.
        start: u64,
        /// Bytes of an element whose byte order has to be swapped.
        swap: Option<usize>,
    },
    /// The array is read whole, for all records.
    Whole { array: Array, deflated: Option<Deflated> },
}

impl RowRead {
    const fn is_whole(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    /// The range of a whole array, and the most memory that it needs, including conversion.
    fn whole(&self) -> Option<(Range<u64>, u64)> {
        let Self::Whole { array, deflated } = self else { return None };
        let numbers = array.data.end - array.data.start;
        let copy = if array.fortran || array.swapped { numbers } else { 0 };
        Some(match deflated {
            Some(deflated) => (deflated.range.clone(), deflated.length as u64 + copy),
            None => (array.data.clone(), numbers),
        })
    }
}

/// Name, array, and its compression if it has one.
type Chosen = (String, Array, Option<Deflated>);

/// The arrays that become fields, in order. An array without rows of numbers is left out with a warning; it is an error
/// if the user named it or if there is no other.
fn choose(found: Vec<FoundArray>, options: &OpenOptions) -> Result<Vec<Chosen>> {
    let names: Vec<String> = found.iter().map(|found| found.name.clone()).collect();
    let there = || format!("there are {}", listed(&names));
    let mut found: Vec<FoundArray> = match &options.split {
        Some(split) => found.into_iter().filter(|found| is_of_split(&found.name, split)).collect(),
        None => found,
    };
    if let Some(split) = options.split.as_ref().filter(|_| found.is_empty()) {
        let what = format!("no array has the split `{split}` in its name");
        return Err(Error::new(ErrorKind::NotFound, what).with_hint(there()));
    }
    let rows = |FoundArray { name, stored }: FoundArray| match stored {
        Ok((array, _)) if array.shape.is_empty() => {
            Err((name, Error::new(ErrorKind::Unsupported, "one number, without an axis of records")))
        }
        Ok((array, deflated)) => Ok((name, array, deflated)),
        Err(error) => Err((name, error)),
    };
    if let Some(columns) = &options.columns {
        let take = |column: &String| {
            let at = found.iter().position(|found| found.name == *column).ok_or_else(|| {
                let twice = names.contains(column) && options.split.is_none();
                let what = if twice { format!("array `{column}` twice") } else { format!("no array `{column}`") };
                Error::new(if twice { ErrorKind::Config } else { ErrorKind::NotFound }, what).with_hint(there())
            })?;
            rows(found.swap_remove(at)).map_err(|(name, error)| {
                Error::new(ErrorKind::Unsupported, format!("`{name}` can't be read: {}", error.what()))
                    .with_hint(format!("leave it out of {COLUMNS}"))
            })
        };
        return columns.iter().map(take).collect();
    }
    let (mut chosen, mut left) = (Vec::new(), Vec::new());
    for array in found {
        match rows(array) {
            Ok(array) => chosen.push(array),
            Err(other) => left.push(other),
        }
    }
    let why = |(name, error): &(String, Error)| format!("{name} ({})", error.what());
    if chosen.is_empty() && !left.is_empty() {
        let what = format!("no arrays of numbers: {}", listed(left.iter().map(why)));
        return Err(Error::new(ErrorKind::Unsupported, what)
            .with_hint("save numbers of 8 to 64 bits, with a first axis that counts the records"));
    }
    if !left.is_empty() {
        let arrays = left.iter().map(why).collect::<Vec<_>>().join(", ");
        tracing::warn!(arrays, "arrays are left out: they hold no rows of numbers");
    }
    Ok(chosen)
}

impl Columns {
    async fn open(source: &Source, object: &Object, options: &OpenOptions) -> Result<Self> {
        let arrays = if ends_with(&object.name, ".npz") {
            npz(source, object).await
        } else if ends_with(&object.name, ".safetensors") {
            safetensors(source, object).await
        } else {
            let name = match stem(base(&object.name)) {
                "" => "array".to_owned(),
                name => name.to_owned(),
            };
            let stored = npy_at(source, object, 0, object.size).await;
            stored.map(|array| vec![FoundArray { name, stored: Ok((array, None)) }])
        };
        let at = |e: Error| e.at_object(source.display_name(&object.name));
        let chosen = arrays.and_then(|arrays| choose(arrays, options)).map_err(at)?;
        Self::new(source, object, chosen, options.columns.is_some() || options.split.is_some()).map_err(at)
    }

    fn new(source: &Source, object: &Object, arrays: Vec<Chosen>, named: bool) -> Result<Self> {
        // `choose` checked that each has a first axis.
        let lengths: Vec<(&str, u64)> =
            arrays.iter().map(|(name, array, _)| (&**name, array.shape.first().map_or(0, |n| *n as u64))).collect();
        let Some((_, len)) = lengths.first().copied() else {
            return Err(Error::new(ErrorKind::NotFound, "there are no arrays in it"));
        };
        one_length(&lengths, true, named)?;
        let mut print = Fingerprint::of("arrays").text(&object.name).number(object.size);
        let mut columns = Vec::new();
        let mut fields = Vec::new();
        for (name, array, deflated) in arrays {
            let row = array.shape.get(1..).unwrap_or_default();
            if row.contains(&0) {
                let what = format!("records of `{name}` have no values: its shape is {:?}", array.shape);
                return Err(Error::config(what).with_hint(format!("leave it out with {COLUMNS}")));
            }
            // The parser checked that the data have the number of bytes that the shape needs.
            let row_bytes = row.iter().product::<usize>() as u64 * array.dtype.size() as u64;
            let start = deflated.as_ref().map_or(array.data.start, |deflated| deflated.range.start);
            print = print.text(&name).text(array.dtype.name()).number(start).number(row_bytes);
            fields.push(Field::new(name, FieldKind::Array { dtype: array.dtype, shape: row.to_vec() }));
            let way = match deflated.is_some() || array.fortran {
                true => RowRead::Whole { array, deflated },
                false => RowRead::Rows { start, swap: array.swapped.then_some(array.dtype.size()) },
            };
            columns.push(Column { row_bytes, way });
        }
        let source = source.clone();
        let object = object.clone();
        let fingerprint = print.number(len).finish();
        Ok(Self { source, object, columns, len, schema: Schema::new(fields), fingerprint })
    }
}

impl Columns {
    /// Number of columns whose records are read by range.
    fn rows(&self) -> usize {
        self.columns.iter().filter(|column| !column.way.is_whole()).count()
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
        let mut plan = ReadPlan::default();
        for (key, Column { row_bytes, way }) in self.columns.iter().enumerate() {
            if let RowRead::Rows { start, .. } = way {
                let start = start + record * row_bytes;
                plan.extents.push(whole.clone().with_range(start..start + row_bytes));
            } else if let Some((range, bytes)) = way.whole() {
                plan.shared.push(SharedRead::new(key as u64, [whole.clone().with_range(range)], bytes));
            }
        }
        Ok(plan)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        index(record, usize::try_from(self.len).unwrap_or(usize::MAX))?;
        let (rows, whole) = bytes.split_at(self.rows().min(bytes.len()));
        let (mut rows, mut whole) = (rows.iter(), whole.iter());
        let value = |Column { row_bytes, way }: &Column| {
            let row = *row_bytes as usize;
            match way {
                RowRead::Rows { swap, .. } => Some(in_order(rows.next().filter(|bytes| bytes.len() == row)?, *swap)),
                // Copied, so that the array can be freed.
                RowRead::Whole { .. } => {
                    let start = usize::try_from(record).ok()?.checked_mul(row)?;
                    Some(Bytes::copy_from_slice(whole.next()?.get(start..start.checked_add(row)?)?))
                }
            }
        };
        let values: Option<Vec<Bytes>> = self.columns.iter().map(value).collect();
        let values = values.filter(|_| bytes.len() == self.columns.len());
        let values = values.ok_or_else(|| Error::corrupt("the bytes are not those of the plan").at_record(record))?;
        Ok(Sample::new(values.into_iter().map(Value::Array)))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let column =
            usize::try_from(key).ok().and_then(|key| Some((self.schema.fields.get(key)?, self.columns.get(key)?)));
        let Some((field, Column { way: RowRead::Whole { array, deflated }, .. })) = column else {
            return Err(Error::new(ErrorKind::Internal, format!("the dataset has no array {key}")));
        };
        let decode = || {
            let bytes = bytes.first().ok_or_else(|| Error::corrupt("the array was not read"))?;
            let (bytes, range) = match deflated {
                Some(deflated) => (deflated.inflate(bytes)?, array.data.clone()),
                None => (bytes.clone(), 0..array.data.end - array.data.start),
            };
            let range = range.start as usize..range.end as usize;
            let inside = range.end <= bytes.len() && range.start <= range.end;
            match inside {
                true => numbers(array, &bytes.slice(range)),
                false => Err(Error::corrupt("the array is truncated").with_hint("fetch the file again")),
            }
        };
        let name = || format!("{}[{}]", self.source.display_name(&self.object.name), field.name);
        decode().map_err(|e| e.at_stage(Stage::Decode).at_object(name()))
    }

    fn shared_bytes(&self) -> SharedBytes {
        let whole = self.columns.iter().filter_map(|column| column.way.whole());
        whole.fold(SharedBytes::default(), |sum, (range, bytes)| {
            let encoded = range.end - range.start;
            SharedBytes { encoded: sum.encoded + encoded, one: sum.one + bytes + encoded, all: sum.all + bytes }
        })
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
