//! Parses the end of a Parquet file: columns, row groups, and the positions of their chunks.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
};

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Beside, KeptParts, Object, Source};

use ::parquet::{
    basic::{Compression, ConvertedType, Encoding, LogicalType, Repetition, Type},
    file::metadata::{
        ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataOptions, ParquetMetaDataReader, ParquetStatisticsPolicy,
    },
    schema::types::{ColumnDescriptor, Type as SchemaType},
};

use super::{
    chunk::{Chunk, Lists, Physical},
    thrift::check_counts,
    unpack::Codec,
    wire::damaged,
};

const MAGIC: &[u8] = b"PAR1";
/// Bytes of a file's end in the first read.
const TAIL: u64 = 64 << 10;
/// Most rows of a group. A group's tables then need at most 16 bytes per row in addition to the pages.
const MOST_ROWS: i64 = 1 << 24;

/// A column without columns below it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Leaf {
    /// Without the groups that only make a list.
    pub(super) path: Vec<String>,
    pub(super) lists: Option<Lists>,
    /// Its type, or the reason why it is not read.
    pub(super) physical: std::result::Result<Physical, &'static str>,
    pub(super) text: bool,
    /// Dates and times: integers that count from a start.
    pub(super) time: bool,
    /// Bits of its integers, if they are unsigned.
    pub(super) unsigned: Option<u8>,
    /// The definition level of a value that is not null.
    pub(super) defined: u8,
}

/// The range of a column chunk, or the reason why it is not read.
pub(super) type ChunkPlace = std::result::Result<(Chunk, Range<u64>), String>;

/// A row group, with a chunk for each leaf.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) rows: u32,
    pub(super) chunks: Vec<ChunkPlace>,
}

#[derive(Debug)]
pub(super) struct Footer {
    pub(super) leaves: Vec<Leaf>,
    pub(super) groups: Vec<Group>,
    /// Hugging Face's `datasets` metadata about the columns.
    pub(super) features: Option<serde_json::Value>,
}

/// Reads the footer of a file, unless it is kept: one request, or two if it is long.
pub(super) async fn read(kept: &KeptParts, object: &Object) -> Result<Footer> {
    let footer = kept.get(object, "footer", fetch(kept.source(), object)).await?;
    let start = object.size.saturating_sub(8 + footer.len() as u64);
    parse(&footer, start)
}

async fn fetch(source: &Source, object: &Object) -> Result<Bytes> {
    let size = object.size;
    if size < 12 {
        return Err(damaged(format!("{size} bytes are not a Parquet file")));
    }
    let part = |range: Range<u64>| {
        let mut extent = object.extent(source);
        extent.range = range;
        extent
    };
    let mut from = size.saturating_sub(TAIL);
    let mut tail = part(from..size).read().await?;
    let (length, magic) =
        tail[tail.len().saturating_sub(8)..].split_first_chunk::<4>().ok_or_else(|| damaged("cut"))?;
    if magic == b"PARE" {
        return Err(
            Error::new(ErrorKind::Unsupported, "an encrypted Parquet file").with_hint("write it without encryption")
        );
    }
    if magic != MAGIC {
        return Err(damaged("the file does not end as Parquet files do, with PAR1"));
    }
    let length = u64::from(u32::from_le_bytes(*length));
    let start = (size - 8).checked_sub(length).filter(|start| *start >= 4);
    let start = start.ok_or_else(|| damaged(format!("a footer of {length} bytes in a file of {size}")))?;
    // Same limit as for other files next to the data: the footer of 1,000 row groups with ten columns has about 1 MB.
    Beside::Table.check_part("footer", length)?;
    if start < from {
        tail = part(start..size).read().await?;
        from = start;
    }
    Ok(tail.slice((start - from) as usize..(size - 8 - from) as usize))
}

/// Parses a footer. Column chunks have to be before `end`.
pub(super) fn parse(footer: &[u8], end: u64) -> Result<Footer> {
    // The library that builds the schema recurses to its full depth, which catching panics does not stop, and allocates
    // memory for as many row groups as the footer claims.
    check_counts(footer)?;
    // Statistics of values are not needed, and may be most of the footer.
    let none = || ParquetStatisticsPolicy::SkipAll;
    let options = ParquetMetaDataOptions::new().with_column_stats_policy(none()).with_size_stats_policy(none());
    let read = || {
        let metadata = ParquetMetaDataReader::decode_metadata_with_options(footer, Some(&options));
        metadata.map_err(|e| damaged("the footer is invalid").with_source(e)).and_then(|found| cut(&found, end))
    };
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged("the reader of footers panicked")))
}

fn cut(found: &ParquetMetaData, end: u64) -> Result<Footer> {
    let about = found.file_metadata();
    let mut places = Vec::new();
    let root = about.schema_descr().root_schema();
    for field in root.get_fields() {
        Walk::default().down(field, &mut places);
    }
    let columns = about.schema_descr().columns();
    if places.len() != columns.len() {
        return Err(damaged("the schema has other columns than its tree"));
    }
    let leaves: Vec<Leaf> = columns.iter().zip(places).map(|(column, place)| leaf(column, place)).collect();
    let mut groups = Vec::with_capacity(found.num_row_groups());
    let mut all = 0i64;
    for (number, group) in found.row_groups().iter().enumerate() {
        let rows = group.num_rows();
        if rows > MOST_ROWS {
            let what = format!("row group {number} has {rows} rows, but at most {MOST_ROWS} are supported");
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint("write the file with smaller row groups"));
        }
        let sound = u32::try_from(rows).ok().filter(|_| group.num_columns() == leaves.len());
        let rows = sound.ok_or_else(|| damaged(format!("row group {number} has {rows} rows or other columns")))?;
        all += i64::from(rows);
        let chunk = |(column, leaf)| place(column, leaf, rows, end);
        let chunks = group.columns().iter().zip(&leaves).map(chunk).collect();
        groups.push(Group { rows, chunks });
    }
    if all != about.num_rows() {
        return Err(damaged(format!("row groups of {all} rows, but {} by the footer", about.num_rows())));
    }
    let features = about.key_value_metadata().and_then(|pairs| pairs.iter().find(|pair| pair.key == "huggingface"));
    let features = features.and_then(|pair| serde_json::from_str::<serde_json::Value>(pair.value.as_deref()?).ok());
    let features = features.map(|mut told| told["info"]["features"].take()).filter(serde_json::Value::is_object);
    Ok(Footer { leaves, groups, features })
}

/// A way down the tree of a schema.
#[derive(Clone, Default)]
struct Walk {
    path: Vec<String>,
    /// The definition level.
    defined: i16,
    lists: Option<Lists>,
    /// Whether this is the group below a list, or the group of its items: neither has a name of its own.
    part_of_list: bool,
}

impl Walk {
    /// Collects the names and lists of the columns in and below `node`, in the order of the file. The caller has
    /// bounded the depth.
    fn down(mut self, node: &SchemaType, columns: &mut Vec<(Vec<String>, Option<Lists>)>) {
        let about = node.get_basic_info();
        let repetition = if about.has_repetition() { about.repetition() } else { Repetition::REQUIRED };
        if repetition != Repetition::REQUIRED {
            self.defined += 1;
        }
        let is_repeated = repetition == Repetition::REPEATED;
        if is_repeated {
            let item = u8::try_from(self.defined).unwrap_or(u8::MAX);
            let (depth, item) = self.lists.map_or((0, item), |lists| (lists.depth, lists.item));
            let depth = depth.saturating_add(1);
            self.lists = Some(Lists { depth, item, inner: (depth == 1).then_some(1) });
        }
        if !self.part_of_list {
            self.path.push(about.name().to_owned());
        }
        if !node.is_group() {
            columns.push((self.path, self.lists));
            return;
        }
        let fields = node.get_fields();
        // `tokens (LIST) / repeated list / element`, or older: `tokens (LIST) / repeated array { … }`.
        let is_list = about.converted_type() == ConvertedType::LIST
            || matches!(about.logical_type_ref(), Some(LogicalType::List));
        let is_struct = fields.len() != 1 || about.name() == "array" || about.name().ends_with("_tuple");
        let part_of_list = (is_list && fields.len() == 1) || (self.part_of_list && is_repeated && !is_struct);
        for field in fields {
            Self { part_of_list, ..self.clone() }.down(field, columns);
        }
    }
}

fn leaf(column: &ColumnDescriptor, (path, lists): (Vec<String>, Option<Lists>)) -> Leaf {
    let physical = match column.physical_type() {
        _ if lists.map_or(0, |lists| i16::from(lists.depth)) != column.max_rep_level() => Err("nested too deeply"),
        _ if lists.is_some_and(|lists| lists.depth > 2) => Err("a list of lists of lists"),
        // Arrow's type `null`. In a list, such as `[]` in all rows, it is a list without numbers.
        _ if lists.is_none() && matches!(column.logical_type_ref(), Some(LogicalType::Unknown)) => Err("of nulls only"),
        Type::BOOLEAN => Ok(Physical::Bool),
        // Its integers are hundredths or similar; read as integers they would be other numbers.
        Type::INT32 | Type::INT64 if is_decimal(column) && column.type_scale() != 0 => Err("of decimal numbers"),
        Type::INT32 => Ok(Physical::I32),
        Type::INT64 => Ok(Physical::I64),
        Type::FLOAT => Ok(Physical::F32),
        Type::DOUBLE => Ok(Physical::F64),
        // Numbers of any length, whatever their scale.
        Type::BYTE_ARRAY | Type::FIXED_LEN_BYTE_ARRAY if is_decimal(column) => Err("of decimal numbers"),
        Type::BYTE_ARRAY if lists.is_some_and(|lists| lists.depth > 1) => Err("a list of lists of texts or bytes"),
        Type::BYTE_ARRAY => Ok(Physical::Bytes),
        Type::INT96 => Err("INT96"),
        Type::FIXED_LEN_BYTE_ARRAY if is_half(column) => Ok(Physical::F16),
        Type::FIXED_LEN_BYTE_ARRAY => Err("of bytes of fixed length"),
    };
    let text = matches!(column.logical_type_ref(), Some(LogicalType::String | LogicalType::Json | LogicalType::Enum))
        || matches!(column.converted_type(), ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM);
    let defined = u8::try_from(column.max_def_level());
    let physical = if defined.is_err() { Err("too deep") } else { physical };
    Leaf {
        path,
        lists,
        physical,
        text,
        time: is_time(column),
        unsigned: unsigned(column),
        defined: defined.unwrap_or(0),
    }
}

/// Bits of unsigned integers. Older writers use only the converted type.
fn unsigned(column: &ColumnDescriptor) -> Option<u8> {
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Integer(of)), _) => u8::try_from(of.bit_width).ok().filter(|_| !of.is_signed),
        (_, ConvertedType::UINT_8) => Some(8),
        (_, ConvertedType::UINT_16) => Some(16),
        (_, ConvertedType::UINT_32) => Some(32),
        (_, ConvertedType::UINT_64) => Some(64),
        _ => None,
    }
}

fn is_decimal(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Decimal(_)))
        || column.converted_type() == ConvertedType::DECIMAL
}

fn is_time(column: &ColumnDescriptor) -> bool {
    use ConvertedType as Old;
    matches!(column.logical_type_ref(), Some(LogicalType::Date | LogicalType::Time(_) | LogicalType::Timestamp(_)))
        || matches!(
            column.converted_type(),
            Old::DATE | Old::TIME_MILLIS | Old::TIME_MICROS | Old::TIMESTAMP_MILLIS | Old::TIMESTAMP_MICROS
        )
}

fn is_half(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Float16)) && column.type_length() == 2
}

fn place(column: &ColumnChunkMetaData, leaf: &Leaf, rows: u32, end: u64) -> ChunkPlace {
    let physical = leaf.physical.map_err(str::to_owned)?;
    let rewrite =
        |what: String| format!("{what}; write it again, plain or with a dictionary, with Snappy, gzip or zstd");
    let codec = match column.compression() {
        Compression::UNCOMPRESSED => Codec::None,
        Compression::SNAPPY => Codec::Snappy,
        Compression::GZIP(_) => Codec::Gzip,
        Compression::LZ4_RAW => Codec::Lz4,
        Compression::ZSTD(_) => Codec::Zstd,
        other => return Err(rewrite(format!("it is compressed with {other}"))),
    };
    if column.file_path().is_some() {
        return Err("it is in another file".to_owned());
    }
    if column.encodings().any(|encoding| encoding == Encoding::DELTA_BYTE_ARRAY) {
        return Err(rewrite("it is encoded as DELTA_BYTE_ARRAY".to_owned()));
    }
    let data = column.data_page_offset();
    let start = column.dictionary_page_offset().filter(|at| (1..data).contains(at)).unwrap_or(data);
    let (start, length) = (u64::try_from(start).ok(), u64::try_from(column.compressed_size()).ok());
    let range = start.zip(length).and_then(|(start, length)| Some(start..start.checked_add(length)?));
    let range = range.filter(|range| range.start >= 4 && range.end <= end);
    let range = range.ok_or("the footer places it outside of the file; fetch the file again")?;
    let values = u32::try_from(column.num_values()).ok();
    let values = values.filter(|values| *values == rows || (leaf.lists.is_some() && *values > rows));
    let values =
        values.ok_or_else(|| format!("it has {} values for {rows} rows; fetch the file again", column.num_values()))?;
    // Positions in the decoded column have 32 bits.
    let items = if leaf.lists.is_some() { i64::from(values) * physical.size() as i64 } else { 0 };
    let most = i64::from(u32::MAX) - i64::from(rows) * 8 - items;
    let unpacked = Some(column.uncompressed_size()).filter(|size| *size <= most).map(u32::try_from);
    let unpacked = unpacked.ok_or("it has 4 GiB or more; write the file with smaller row groups")?;
    let unpacked = unpacked.map_err(|_| "its size is below 0; fetch the file again")?;
    let Leaf { lists, defined, .. } = *leaf;
    Ok((Chunk { physical, codec, rows, values, lists, defined, unpacked }, range))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Seek, SeekFrom, Write},
        sync::Arc,
    };

    use ::parquet::{data_type::Int32Type, file::writer::SerializedFileWriter, schema::parser::parse_message_type};
    use futures::executor::block_on;
    use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

    use super::*;

    fn footer_of(bytes: Vec<u8>) -> Result<Footer> {
        let object = Object::new("a.parquet", bytes.len() as u64);
        let store = InMemory::new();
        block_on(store.put(&Path::from("a.parquet"), bytes.into())).unwrap();
        let source = Source::from_store(Arc::new(store), Path::default(), "test://x");
        block_on(read(&KeptParts::of(&source, None), &object))
    }

    /// Each group tells the name of its column again: fewer of them do.
    #[test]
    fn a_footer_of_many_row_groups_is_read_whole() {
        const GROUPS: usize = 5000;
        let name = "n".repeat(3500);
        let schema = Arc::new(parse_message_type(&format!("message rows {{ required int32 {name}; }}")).unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::default()).unwrap();
        for number in 0..GROUPS {
            let mut group = writer.next_row_group().unwrap();
            let mut column = group.next_column().unwrap().unwrap();
            column.typed::<Int32Type>().write_batch(&vec![7; 1 + number % 3], None, None).unwrap();
            column.close().unwrap();
            group.close().unwrap();
        }
        let bytes = writer.into_inner().unwrap();
        let length = u32::from_le_bytes(*bytes[bytes.len() - 8..].first_chunk().unwrap());
        assert!(length > 16 << 20, "{length}");
        let footer = footer_of(bytes).unwrap();
        assert_eq!((footer.groups.len(), footer.leaves.len()), (GROUPS, 1));
        assert!(footer.groups.iter().enumerate().all(|(n, group)| group.rows as usize == 1 + n % 3));
    }

    /// Of a file that is long enough, and has no blocks of the disk.
    #[test]
    fn a_footer_that_is_told_longer_than_any_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let size = 6u64 << 30;
        let mut file = File::create(dir.path().join("a.parquet")).unwrap();
        file.seek(SeekFrom::Start(size - 8)).unwrap();
        file.write_all(&[&(3u32 << 30).to_le_bytes()[..], MAGIC].concat()).unwrap();
        let source = Source::parse(dir.path().to_str().unwrap()).unwrap();
        let error = block_on(read(&KeptParts::of(&source, None), &Object::new("a.parquet", size))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        let words = error.to_string();
        assert!(words.contains("the footer has 3221225472 bytes"), "{words}");
        assert!(words.contains("INFEED_SIDE_FILE_LIMIT=3GiB"), "{words}");
    }
}
