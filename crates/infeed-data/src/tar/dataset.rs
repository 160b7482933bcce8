//! Samples of tar shards as records: which members are read, and what they become.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, SKIP},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    types::{DType, ImageInfo},
};
use infeed_store::{Object, Source};
use smallvec::SmallVec;

use super::{
    columns::{Column, Kind, array_of, columns_of, field_of},
    header::{self, BLOCK},
    shard::{Member, Shard},
};
use crate::arrays;
use crate::{
    format::OpenOptions,
    names::base,
    record::{Dataset, ReadPlan, Sample, Value},
    schema::{Field, Schema},
    sizes::Sizes,
    table::{ShardTable, Stored},
};

/// Members of a record that lie nearer than this are read in one go.
const NEAR: u64 = 64 << 10;

/// What is known of a shard, and for each of its extensions the column.
struct Indexed {
    shard: Shard,
    columns: Vec<Option<u8>>,
}

/// See [`Tar`](super::Tar).
#[derive(Debug)]
pub(super) struct TarDataset {
    shards: ShardTable<Indexed>,
    columns: Vec<Column>,
    with_keys: bool,
    schema: Schema,
    sizes: Sizes,
    resident: u64,
    fingerprint: Fingerprint,
}

/// Where the wanted members of a record lie: in the order of the tar, and which reads cover them.
struct Places<'a> {
    stored: &'a Stored<Indexed>,
    /// Sample within the shard.
    sample: usize,
    members: SmallVec<[(u8, Member); 4]>,
    reads: SmallVec<[Range<u64>; 1]>,
}

impl TarDataset {
    pub(super) async fn new(
        source: &Source,
        shards: Vec<Shard>,
        classes: Vec<String>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let shards: Vec<Shard> = shards.into_iter().filter(|shard| shard.len() > 0).collect();
        let count: u64 = shards.iter().map(|shard| shard.len() as u64).sum();
        if count == 0 {
            return Err(Error::new(ErrorKind::NotFound, "the shards hold no samples")
                .at_object(source.url())
                .hint("members are called KEY.EXTENSION, such as 000017.jpg"));
        }
        let mut columns = columns_of(source, &shards, options)?;
        for column in columns.iter_mut().filter(|column| column.kind == Kind::Numbers) {
            column.array = Some(array_of(source, &shards, column).await?);
        }
        let classes = match (&options.classes, classes.is_empty()) {
            (Some(given), false) if given[..] != classes[..] => {
                let differs = given.iter().zip(&classes).find(|(a, b)| a != b);
                let what = differs.map_or_else(
                    || format!("{} classes given, the shards have {}", given.len(), classes.len()),
                    |(a, b)| format!("class `{b}` is called `{a}` in the classes given"),
                );
                return Err(Error::config(what).at_object(source.url()).hint("open it without classes"));
            }
            (Some(given), _) => Some(Arc::clone(given)),
            (None, false) => Some(classes.into()),
            (None, true) => None,
        };
        let with_keys = columns.iter().all(|column| column.name != "key");
        let wanted = |name: &str| options.columns.as_ref().is_none_or(|fields| fields.iter().any(|f| f == name));
        let with_keys = with_keys && wanted("key");
        let mut fields: Vec<Field> = columns.iter().map(Column::field).collect();
        if with_keys {
            let keys = shards.iter().flat_map(|shard| (0..shard.len()).map(|i| shard.key(i).len()));
            fields.push(Field::bytes("key", keys.max().unwrap_or(0)));
        }
        let index = |shard: Shard| {
            let column = |extension: &String| {
                let (name, _) = field_of(extension);
                columns.iter().position(|column| column.name == name).map(|at| at as u8)
            };
            let mut object = Object::new(&*shard.name, shard.size);
            object.etag = shard.etag.as_deref().map(Into::into);
            let columns = shard.extensions.iter().map(column).collect();
            Stored::new(&object, shard.len() as u64, Indexed { columns, shard })
        };
        let shards = ShardTable::new(source, shards.into_iter().map(index));
        let print =
            shards.print("tar", |print, shard| print.text(base(&shard.name)).number(shard.size).number(shard.count()));
        let print = fields.iter().fold(print, |print, field| print.text(&field.name));
        let resident = shards.shards().iter().map(|stored| stored.of.shard.resident_bytes() as u64).sum();
        let schema = Schema::new(fields).with_classes(classes);
        let fingerprint = print.finish();
        let mut dataset = Self { shards, columns, with_keys, schema, sizes: Sizes::default(), resident, fingerprint };
        let bytes = |record| Ok(dataset.places(record)?.reads.iter().map(|read| read.end - read.start).sum());
        dataset.sizes = (0..count).map(bytes).collect::<Result<Sizes>>()?;
        Ok(dataset)
    }

    fn places(&self, record: u64) -> Result<Places<'_>> {
        let (stored, sample) = self.shards.find(record)?;
        let Indexed { shard, columns } = &stored.of;
        let wanted = shard.members(sample).iter();
        let wanted = wanted.filter_map(|member| Some((columns[usize::from(member.extension)]?, *member)));
        let mut members: SmallVec<[(u8, Member); 4]> = wanted.collect();
        members.sort_unstable_by_key(|(_, member)| member.block);
        let named = |column: usize| &self.columns[column].name;
        let wrong = |what: String| {
            let key = shard.key(sample);
            let object = self.shards.name_of(stored);
            Error::corrupt(format!("{what} for key `{key}`")).at_object(object).at_record(record)
        };
        for column in 0..self.columns.len() {
            match members.iter().filter(|(of, _)| usize::from(*of) == column).count() {
                1 => {}
                0 => {
                    return Err(wrong(format!("no `{}`", named(column)))
                        .hint(format!("name the fields that all samples have with {COLUMNS}")));
                }
                n => return Err(wrong(format!("{n} members that are `{}`", named(column))).hint("leave one of each")),
            }
        }
        let mut reads: SmallVec<[Range<u64>; 1]> = SmallVec::new();
        for (_, member) in &members {
            // With its header, which tells whether the index is right.
            let range = member.start() - BLOCK..member.end();
            match reads.last_mut() {
                Some(last) if range.start <= last.end + NEAR => last.end = last.end.max(range.end),
                _ => reads.push(range),
            }
        }
        Ok(Places { stored, sample, members, reads })
    }

    fn value(&self, column: &Column, content: Bytes) -> Result<Value> {
        Ok(match column.kind {
            Kind::Image => Value::Encoded(content),
            Kind::Label => Value::Label(self.label(&content)?),
            Kind::Bytes | Kind::Unknown => Value::Bytes(content),
            Kind::Pixels => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let (height, width, channels) = match shape[..] {
                    [height, width] => (height, width, 1),
                    [height, width, channels] => (height, width, channels),
                    _ => (0, 0, 0),
                };
                let (Ok(height), Ok(width), Ok(channels @ (1 | 3 | 4))) =
                    (u32::try_from(height), u32::try_from(width), u8::try_from(channels))
                else {
                    let what = format!("pixels of shape {shape:?}, rows, columns and 1, 3 or 4 channels belong there");
                    return Err(Error::new(ErrorKind::Unsupported, what));
                };
                if !matches!(dtype, DType::U8 | DType::U16 | DType::F32) {
                    let what = format!("pixels of {dtype}");
                    return Err(Error::new(ErrorKind::Unsupported, what).hint("save them as u8, u16 or f32"));
                }
                let info = ImageInfo { height, width, channels, dtype, planar: false };
                if info.len_bytes() == 0 {
                    return Err(Error::corrupt("an image without pixels"));
                }
                Value::Pixels { info, data }
            }
            Kind::Numbers => {
                let (dtype, shape, data) = arrays::npy_of(&content)?;
                let here = (dtype, shape);
                if column.array.as_ref() != Some(&here) {
                    let first = column.array.clone().unwrap_or((DType::U8, vec![]));
                    let what =
                        format!("numbers of {} {:?}, the first record has {} {:?}", here.0, here.1, first.0, first.1);
                    return Err(Error::new(ErrorKind::Unsupported, what).hint("arrays of one shape make a batch"));
                }
                Value::Array(data)
            }
        })
    }

    fn label(&self, content: &[u8]) -> Result<i64> {
        let text = str::from_utf8(content).unwrap_or_default().trim();
        let classes = self.schema.classes.as_deref();
        if let Ok(label) = text.parse::<i64>() {
            let known = classes.is_none_or(|classes| usize::try_from(label).is_ok_and(|label| label < classes.len()));
            let count = classes.map_or(0, <[_]>::len);
            return match known {
                true => Ok(label),
                false => Err(Error::corrupt(format!("label {label}, there are {count} classes"))),
            };
        }
        let named = classes.and_then(|classes| classes.iter().position(|class| class == text));
        named.map(|label| label as i64).ok_or_else(|| {
            let shown: String = String::from_utf8_lossy(content).chars().take(40).collect();
            Error::corrupt(format!("`{}` is no class index", shown.escape_debug()))
                .hint("a .cls file holds a number, or a name of the classes that are given")
        })
    }
}

impl Dataset for TarDataset {
    fn len(&self) -> u64 {
        self.shards.len()
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "tar"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let Places { stored, reads, .. } = self.places(record)?;
        Ok(ReadPlan::new(reads.into_iter().map(|range| self.shards.extent(stored, range))))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let Places { stored, sample, members, reads } = self.places(record)?;
        let shard = &stored.of.shard;
        let mut values: SmallVec<[Option<Value>; 4]> = SmallVec::from_elem(None, self.columns.len());
        for (column, member) in members {
            let at = |e: Error| {
                let range = member.start() - BLOCK..member.end();
                e.at_stage(Stage::Parse).at_object(self.shards.name_of(stored)).at_range(range)
            };
            let read =
                reads.iter().zip(bytes).find(|(read, _)| read.start < member.start() && member.end() <= read.end);
            let cut = read.and_then(|(read, bytes)| {
                let start = (member.start() - read.start) as usize;
                let end = start + member.size as usize;
                (end <= bytes.len()).then(|| (&bytes[start - BLOCK as usize..start], bytes.slice(start..end)))
            });
            let (head, content) = cut.ok_or_else(|| at(Error::corrupt("the record is cut")))?;
            check(shard, sample, &member, head, &content).map_err(at)?;
            let column = usize::from(column);
            values[column] = Some(self.value(&self.columns[column], content).map_err(at)?);
        }
        let mut values: SmallVec<[Value; 2]> = values.into_iter().flatten().collect();
        if self.with_keys {
            values.push(Value::Bytes(Bytes::copy_from_slice(shard.key(sample).as_bytes())));
        }
        Ok(Sample { values })
    }

    fn object(&self, record: u64) -> String {
        self.shards.object(record, "tar")
    }

    fn needs_fetch(&self) -> bool {
        self.shards.needs_fetch()
    }

    fn largest_read(&self) -> u64 {
        self.sizes.largest
    }

    fn usual_read(&self) -> u64 {
        self.sizes.usual
    }

    fn resident_bytes(&self) -> u64 {
        self.resident
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        Some(self.shards.groups())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// Whether the tar has the member where the index says, and whole.
fn check(shard: &Shard, sample: usize, member: &Member, head: &[u8], content: &[u8]) -> Result<()> {
    let stale = |what: String| {
        Error::corrupt(format!("the index does not fit the tar: {what}"))
            .hint("remove the index (.infeed, .idx), or pack the tar anew")
    };
    let found = header::parse_header(head).map_err(|_| stale("there is no header".into()))?;
    let found =
        found.filter(|found| found.kind == header::Kind::File).ok_or_else(|| stale("there is no file".into()))?;
    let (key, extension) = (shard.key(sample), &shard.extensions[usize::from(member.extension)]);
    if found.size != u64::from(member.size) {
        return Err(stale(format!("`{key}.{extension}` has {} bytes, not {}", found.size, member.size)));
    }
    // Long names are cut in their header, and those of other alphabets may be spelt otherwise.
    if key.len() + extension.len() < 99 && found.name.len() < 100 && found.name.is_ascii() && key.is_ascii() {
        let name = String::from_utf8_lossy(&found.name);
        let fits = header::split_name(&name).is_some_and(|(k, e)| k == key && e == *extension);
        if !fits {
            return Err(stale(format!("`{name}` is where `{key}.{extension}` belongs")));
        }
    }
    if shard.has_crc && crc32c::crc32c(content) != member.crc {
        return Err(Error::corrupt(format!("`{key}.{extension}` is damaged: its crc32c is wrong"))
            .hint(format!("fetch the tar again or set {SKIP}")));
    }
    Ok(())
}
