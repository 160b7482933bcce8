//! A dataset whose records are rows of chunked arrays.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::{Fingerprint, Fingerprinter},
    random::SampleRng,
    report::Stage,
};
use infeed_data::{
    arrays::one_length,
    packed::no_memory,
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value, no_such_record},
    schema::{Field, FieldKind, Schema},
};
use infeed_store::{Extent, Object, Source};

use super::{
    array::{ChunkPlace, ChunkedArray},
    copy::filled,
};

/// Chunks without filters, up to this many bytes, are read whole, once for all their rows. One read of this length
/// costs less than many small ones.
const WHOLE: u64 = 1 << 20;
/// The most groups of records. With more chunks, a group has several of them, so that the table takes at most 8 MiB.
const MOST_GROUPS: u64 = 1 << 20;

/// How the rows of an array are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowRead {
    /// From a decoded chunk, which is shared by all its rows.
    Shared,
    /// From a chunk of one row: read with the record, decoded in `parse`.
    Own,
    /// By range, from a chunk without filters.
    Range,
}

impl RowRead {
    fn of(array: &ChunkedArray) -> Self {
        match array.chunk[0] {
            1 if array.is_plain() => Self::Range,
            1 => Self::Own,
            _ if array.is_plain() && array.chunk_bytes() > WHOLE => Self::Range,
            _ => Self::Shared,
        }
    }
}

#[derive(Debug)]
struct Column {
    array: ChunkedArray,
    way: RowRead,
    /// Key of the shared part for the first chunk; those of the others follow in the order of `places`.
    first_key: u64,
}

/// See the documentation of the module `chunked`.
#[derive(Debug)]
pub(crate) struct ChunkedDataset {
    format: &'static str,
    source: Source,
    objects: Vec<Object>,
    columns: Vec<Column>,
    len: u64,
    schema: Schema,
    shared: SharedBytes,
    largest: u64,
    groups: Option<Arc<[u64]>>,
    fingerprint: Fingerprint,
}

impl ChunkedDataset {
    /// Makes a dataset of `arrays`. `Place::object` is an index into `objects`, which holds no others. `print`: the
    /// fingerprint of what only the format distinguishes. `named`: whether the user chose the arrays.
    ///
    /// # Errors
    /// `NotFound` without arrays; `Config` if arrays have no rows, or different numbers of them; `Corrupt` for shapes
    /// that exceed any memory.
    pub(crate) fn new(
        format: &'static str,
        print: Fingerprinter,
        source: &Source,
        objects: Vec<Object>,
        arrays: Vec<ChunkedArray>,
        named: bool,
    ) -> Result<Self> {
        for array in &arrays {
            array.check()?;
        }
        let Some(first) = arrays.first() else {
            return Err(Error::new(ErrorKind::NotFound, "no arrays in it"));
        };
        let len = first.shape[0];
        let lengths: Vec<(&str, u64)> = arrays.iter().map(|array| (&*array.name, array.shape[0])).collect();
        one_length(&lengths, false, named)?;
        let mut print = print.number(len);
        for array in &arrays {
            print = print.text(&array.name).text(array.dtype.name());
            print = array.shape.iter().chain(&array.chunk).fold(print, |print, n| print.number(*n));
            if let Some(unpacking) = &array.unpacking {
                print = unpacking.numbers().fold(print.text(unpacking.to.name()), |print, n| print.number(n));
            }
            // The chunks that exist and their lengths: a length depends on most of the content.
            print = array.places.iter().fold(print, |print, place| print.number(place.number).number(place.len));
        }
        let shape = |array: &ChunkedArray| array.shape[1..].iter().map(|n| *n as usize).collect();
        let kind = |array: &ChunkedArray| FieldKind::Array { dtype: array.value_dtype(), shape: shape(array) };
        let schema = Schema::new(arrays.iter().map(|array| Field::new(array.name.clone(), kind(array))).collect());

        let mut first_key = 0;
        let column = |array: ChunkedArray| {
            let key = first_key;
            first_key += array.places.len() as u64;
            Column { way: RowRead::of(&array), array, first_key: key }
        };
        let columns: Vec<Column> = arrays.into_iter().map(column).collect();
        let mut shared = SharedBytes::default();
        let mut largest = 0u64;
        for column in &columns {
            let (stored, count) = column.most();
            let decoding = column.array.decoding_bytes();
            match column.way {
                RowRead::Shared => {
                    shared.encoded = shared.encoded.saturating_add(stored);
                    shared.one = shared.one.saturating_add(stored).saturating_add(count.saturating_mul(decoding));
                    let all = decoding.saturating_mul(column.array.places.len() as u64);
                    shared.all = shared.all.saturating_add(all);
                }
                RowRead::Own => largest = largest.saturating_add(stored).saturating_add(decoding),
                RowRead::Range => {
                    largest = largest.saturating_add(count.saturating_mul(column.array.chunk_row_bytes()))
                }
            }
            // The value that is made of these bytes.
            largest = largest.saturating_add(column.array.row_bytes());
            if column.array.unpacking.is_some() {
                largest = largest.saturating_add(column.array.row_bytes().saturating_mul(8));
            }
        }
        let groups = groups(&columns, len);
        let (source, fingerprint) = (source.clone(), print.finish());
        Ok(Self { format, source, objects, columns, len, schema, shared, largest, groups, fingerprint })
    }

    fn check(&self, record: u64) -> Result<()> {
        if record < self.len { Ok(()) } else { Err(no_such_record(record, self.len)) }
    }

    fn extent(&self, place: &ChunkPlace, range: Range<u64>) -> Extent {
        self.objects[place.object as usize].extent(&self.source).with_range(range)
    }

    /// Adds the chunk and the array to an error.
    fn at(&self, error: Error, array: &ChunkedArray, place: &ChunkPlace) -> Error {
        let object = self.source.display_name(&self.objects[place.object as usize].name);
        let mut left = place.number;
        let mut index: Vec<u64> = array.grid().iter().rev().map(|n| (left % n, left /= n).0).collect();
        index.reverse();
        let what = format!("{object}, chunk {index:?} of array {}", array.name);
        error.at_object(what).at_range(place.start..place.start + place.len)
    }

    fn value(&self, column: &Column, record: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let stored = self.stored(column, record, bytes)?;
        match &column.array.unpacking {
            Some(unpacking) => unpacking.values(&stored),
            None => Ok(stored),
        }
    }

    /// The stored numbers of a row, in the machine's byte order.
    fn stored(&self, column: &Column, record: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let Column { array, way, .. } = column;
        let places = column.places(record);
        if places.len() != bytes.len() {
            return Err(Error::new(ErrorKind::Internal, "other chunks than those of the plan"));
        }
        let row = (record % array.chunk[0]) * array.chunk_row_bytes();
        let row_bytes = array.chunk_row_bytes() as usize;
        // The bytes of one row of a chunk, in the machine's byte order.
        let part = |place: &ChunkPlace, bytes: &Bytes| -> Result<Bytes> {
            let cut = || Error::corrupt("a chunk is shorter than its shape").with_hint("fetch the object again");
            match way {
                RowRead::Shared => {
                    let start = usize::try_from(row).map_err(|_| cut())?;
                    let there = start.checked_add(row_bytes).is_some_and(|end| end <= bytes.len());
                    if there { Ok(bytes.slice(start..start + row_bytes)) } else { Err(cut()) }
                }
                RowRead::Own => array.decode(place, bytes),
                RowRead::Range if bytes.len() == row_bytes => Ok(array.turned(bytes.clone())),
                RowRead::Range => Err(cut()),
            }
        };
        let part = |(place, bytes): (&ChunkPlace, &Bytes)| part(place, bytes).map_err(|e| self.at(e, array, place));
        if let [place] = places
            && array.chunk[1..] == array.shape[1..]
        {
            let bytes = part((place, &bytes[0]))?;
            // Copied, so that the chunk can be freed.
            return Ok(if *way == RowRead::Shared { Bytes::copy_from_slice(&bytes) } else { bytes });
        }
        let len = usize::try_from(array.row_bytes()).map_err(|_| no_memory(usize::MAX))?;
        let mut out = filled(&array.fill, len)?;
        for (place, bytes) in places.iter().zip(bytes) {
            let bytes = part((place, bytes))?;
            array.copy_row(&bytes, place.number, &mut out).map_err(|e| self.at(e, array, place))?;
        }
        Ok(out.into())
    }
}

impl Column {
    /// The chunks that exist among those that the record's row intersects.
    fn places(&self, record: u64) -> &[ChunkPlace] {
        let Range { start, end } = self.range(record);
        &self.array.places[start..end]
    }

    fn range(&self, record: u64) -> Range<usize> {
        let across = self.array.across();
        let first = record / self.array.chunk[0] * across;
        let before = |number: u64| self.array.places.partition_point(|place| place.number < number);
        before(first)..before(first + across)
    }

    /// The most stored bytes of the chunks of a row, and the most chunks of a row.
    fn most(&self) -> (u64, u64) {
        let across = self.array.across().max(1);
        let rows = self.array.places.chunk_by(|a, b| a.number / across == b.number / across);
        let sums = rows.map(|row| (row.iter().map(|place| place.len).sum(), row.len() as u64));
        sums.fold((0, 0), |most: (u64, u64), row: (u64, u64)| (most.0.max(row.0), most.1.max(row.1)))
    }
}

/// The first records of the groups that are read together: a group is a chunk of the shared array with the longest
/// rows.
fn groups(columns: &[Column], len: u64) -> Option<Arc<[u64]>> {
    let shared = columns.iter().filter(|column| column.way == RowRead::Shared);
    let chunk = shared.max_by_key(|column| column.array.row_bytes())?.array.chunk[0];
    let count = len.div_ceil(chunk);
    let step = chunk.saturating_mul(count.div_ceil(MOST_GROUPS).max(1));
    Some((0..len.div_ceil(step)).map(|group| group * step).collect())
}

impl Dataset for ChunkedDataset {
    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        self.format
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        self.check(record)?;
        let mut plan = ReadPlan::default();
        for column in &self.columns {
            let array = &column.array;
            let row = (record % array.chunk[0]) * array.chunk_row_bytes();
            for at in column.range(record) {
                let place = &array.places[at];
                let whole = place.start..place.start + place.len;
                match column.way {
                    RowRead::Shared => plan.shared.push(SharedRead::new(
                        column.first_key + at as u64,
                        [self.extent(place, whole)],
                        array.decoding_bytes(),
                    )),
                    RowRead::Own => plan.extents.push(self.extent(place, whole)),
                    RowRead::Range => {
                        // A truncated chunk has fewer bytes; `parse` then returns an error.
                        let start = place.start.saturating_add(row).min(whole.end);
                        let end = start.saturating_add(array.chunk_row_bytes()).min(whole.end);
                        plan.extents.push(self.extent(place, start..end));
                    }
                }
            }
        }
        Ok(plan)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        self.check(record)?;
        let is_shared = |column: &&Column| column.way == RowRead::Shared;
        let own: usize = self.columns.iter().filter(|c| !is_shared(c)).map(|column| column.range(record).len()).sum();
        // The record's own bytes come first, then the shared parts.
        let (mut own, mut shared) = bytes.split_at(own.min(bytes.len()));
        let value = |column: &Column| {
            let from = if is_shared(&column) { &mut shared } else { &mut own };
            let (these, behind) = from.split_at(column.range(record).len().min(from.len()));
            *from = behind;
            self.value(column, record, these).map(Value::Array).map_err(|e| e.at_stage(Stage::Parse).at_record(record))
        };
        Ok(Sample::new(self.columns.iter().map(value).collect::<Result<Vec<_>>>()?))
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        // If several columns have this first key, all but the last have no chunks.
        let column = self.columns.partition_point(|column| column.first_key <= key).checked_sub(1);
        let column = column.map(|at| &self.columns[at]).filter(|column| column.way == RowRead::Shared);
        let place = column.and_then(|column| {
            let at = usize::try_from(key - column.first_key).ok()?;
            Some((&column.array, column.array.places.get(at)?))
        });
        let Some((array, place)) = place else {
            return Err(Error::new(ErrorKind::Internal, format!("the dataset has no chunk {key}")));
        };
        let bytes = bytes.first().ok_or_else(|| Error::new(ErrorKind::Internal, "the chunk was not read"));
        let decoded = bytes.and_then(|bytes| array.decode(place, bytes));
        decoded.map_err(|e| self.at(e.at_stage(Stage::Decode), array, place))
    }

    fn shared_bytes(&self) -> SharedBytes {
        self.shared
    }

    /// The first chunk of the first array that has one; otherwise the name of the array.
    fn object(&self, record: u64) -> String {
        let place = self.columns.iter().filter(|_| record < self.len).find_map(|column| column.places(record).first());
        place.map_or_else(
            || self.source.url().to_owned(),
            |place| self.source.display_name(&self.objects[place.object as usize].name),
        )
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    /// Includes the copied values and the chunks that are decoded with their record: their memory counts as that of
    /// reads.
    fn largest_read(&self) -> u64 {
        self.largest
    }

    fn resident_bytes(&self) -> u64 {
        let object = |o: &Object| (o.name.len() + o.etag.as_ref().map_or(0, String::len) + size_of::<Object>()) as u64;
        let objects: u64 = self.objects.iter().map(object).sum();
        let places: usize = self.columns.iter().map(|column| column.array.places.len() * size_of::<ChunkPlace>()).sum();
        objects + places as u64 + self.groups.as_ref().map_or(0, |groups| groups.len() as u64 * 8)
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        self.groups.clone()
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
