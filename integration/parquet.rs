//! Parquet: files of Arrow's writers, Polars, DuckDB and fastparquet, with each encoding and codec, give the rows that were
//! written; from folders and buckets, in order, resumed; what is damaged or told wrongly is an error that says where.

use std::{
    fs,
    future::IntoFuture,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use ::parquet::{
    basic::{Compression, Encoding},
    data_type::{
        BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, FloatType,
        Int32Type, Int64Type,
    },
    file::{
        metadata::KeyValue,
        properties::{WriterProperties, WriterPropertiesBuilder, WriterVersion},
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use bytes::Bytes;
use infeed::{
    Batch, DType, Error, ErrorKind, LastBatch, Loader, LoaderBuilder, Order, Result, Transform,
    dataset::{Dataset, FieldKind, Open, SampleRng, Value, dataset_contract, open, open_source},
    source::Source,
};
use proptest::prelude::*;

use crate::{
    properties::properties,
    support::{builder, drain, hub::HubServer, plain, repository, s3::S3Server, store::Tracker},
};

const SCHEMA: &str = "message rows {
    optional group image { optional binary bytes; optional binary path (UTF8); }
    optional int64 label; required binary caption (UTF8); optional binary blob; required int32 n; required float score;
    required double weight; required boolean flag; optional group tags (LIST) { repeated group list { optional int32 element; } }
}";

const FEATURES: &str = r#"{"info": {"features": {
    "image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog", "owl"]}
}}}"#;

/// A picture that tells its number.
fn picture(i: usize) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let pixel = image::Rgb([i as u8, (i >> 8) as u8, 7]);
    image::RgbImage::from_pixel(6 + i as u32 % 3, 5, pixel).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

fn caption(i: usize) -> String {
    format!("picture {}{}", i % 4, "x".repeat(i % 4))
}

/// Rows whose blob is not there.
fn blank(i: usize) -> bool {
    i % 3 == 1
}

fn tags(i: usize) -> Vec<Option<i32>> {
    (0..i % 4).map(|k| Some((i * 10 + k) as i32)).collect()
}

/// Definition levels, repetition levels and values of lists. `None` is a list, or a value, that is not there.
fn levels_of<T: Copy>(lists: &[Option<Vec<Option<T>>>]) -> (Vec<i16>, Vec<i16>, Vec<T>) {
    let (mut defined, mut repeated, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for list in lists {
        let items = list.as_deref().unwrap_or_default();
        if items.is_empty() {
            defined.push(i16::from(list.is_some()));
            repeated.push(0);
        }
        for (k, item) in items.iter().enumerate() {
            defined.push(2 + i16::from(item.is_some()));
            repeated.push(i16::from(k > 0));
            values.extend(item);
        }
    }
    (defined, repeated, values)
}

/// A file with row groups of these numbers of rows, which go on counting from `first`.
fn file(first: usize, groups: &[usize], features: Option<&str>, properties: WriterPropertiesBuilder) -> Vec<u8> {
    let pairs = features.map(|text| vec![KeyValue::new("huggingface".to_owned(), text.to_owned())]);
    let properties = properties.set_key_value_metadata(pairs).build();
    let schema = Arc::new(parse_message_type(SCHEMA).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut from = first;
    for rows in groups {
        let (all, count) = (from..from + rows, *rows);
        let mut group = writer.next_row_group().unwrap();
        macro_rules! column {
            ($type:ty, $levels:expr, $values:expr) => {{
                let mut column = group.next_column().unwrap().unwrap();
                let levels: Option<Vec<i16>> = $levels;
                let values: Vec<_> = $values.collect();
                column.typed::<$type>().write_batch(&values, levels.as_deref(), None).unwrap();
                column.close().unwrap();
            }};
        }
        let texts = |text: fn(usize) -> String| all.clone().map(move |i| ByteArray::from(text(i).into_bytes()));
        column!(ByteArrayType, Some(vec![2; count]), all.clone().map(|i| ByteArray::from(picture(i))));
        column!(ByteArrayType, Some(vec![2; count]), texts(|i| format!("{i}.png")));
        column!(Int64Type, Some(vec![1; count]), all.clone().map(|i| i as i64 % 3));
        column!(ByteArrayType, None, texts(caption));
        let levels = all.clone().map(|i| i16::from(!blank(i))).collect();
        let there = all.clone().filter(|i| !blank(*i));
        column!(ByteArrayType, Some(levels), there.map(|i| ByteArray::from(vec![i as u8; i % 9])));
        column!(Int32Type, None, all.clone().map(|i| i as i32 * 1000 - 5000));
        column!(FloatType, None, all.clone().map(|i| i as f32 / 2.0));
        column!(DoubleType, None, all.clone().map(|i| i as f64 / 3.0));
        column!(BoolType, None, all.clone().map(|i| i % 2 == 1));
        let mut column = group.next_column().unwrap().unwrap();
        let (defined, repeated, values) = levels_of(&all.clone().map(|i| Some(tags(i))).collect::<Vec<_>>());
        column.typed::<Int32Type>().write_batch(&values, Some(&defined), Some(&repeated)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        from += rows;
    }
    writer.into_inner().unwrap()
}

/// A file of so many pictures in two row groups, for tests of what reads them.
pub(crate) fn pictures(rows: usize) -> Vec<u8> {
    file(0, &[rows / 2, rows - rows / 2], Some(FEATURES), usual())
}

fn usual() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::SNAPPY)
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    // The reads of a remote source take a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    futures::executor::block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn holding(bytes: &[u8]) -> Source {
    Tracker::holding([("a.parquet", bytes.to_vec())]).inline_source()
}

fn values(dataset: &dyn Dataset, record: u64) -> Result<Vec<Value>> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    assert!(plan.extents.is_empty());
    let part = |part: &infeed::dataset::SharedRead| -> Result<Bytes> {
        let read: Result<Vec<Bytes>> =
            part.extents.iter().map(|extent| futures::executor::block_on(extent.read())).collect();
        let decoded = dataset.decode_shared(part.key, &read?)?;
        assert!(decoded.len() as u64 <= part.bytes, "{} of {} bytes", decoded.len(), part.bytes);
        Ok(decoded)
    };
    let parts = plan.shared.iter().map(part).collect::<Result<Vec<_>>>()?;
    Ok(dataset.parse(record, &plan, &parts)?.values.into_vec())
}

fn names(dataset: &dyn Dataset) -> Vec<&str> {
    dataset.schema().fields.iter().map(|field| field.name.as_str()).collect()
}

const USUAL: [&str; 9] = ["image", "label", "caption", "blob", "n", "score", "weight", "flag", "tags"];

/// Whether all records are the rows that were written, from `first` on.
fn check(dataset: &dyn Dataset, first: usize) {
    for record in 0..dataset.len() {
        let i = first + record as usize;
        let found = values(dataset, record).unwrap();
        let [
            Value::Encoded(image),
            Value::Label(label),
            Value::Bytes(text),
            Value::Bytes(blob),
            Value::Array(n),
            Value::Array(score),
            Value::Array(weight),
            Value::Array(flag),
            Value::List(list),
        ] = &found[..]
        else {
            panic!("other fields: {found:?}")
        };
        assert_eq!((&image[..], *label, &text[..]), (&picture(i)[..], i as i64 % 3, caption(i).as_bytes()));
        let want = if blank(i) { vec![] } else { vec![i as u8; i % 9] };
        assert_eq!((&blob[..], &n[..]), (&want[..], &(i as i32 * 1000 - 5000).to_ne_bytes()[..]));
        assert_eq!(
            (&score[..], &weight[..]),
            (&(i as f32 / 2.0).to_ne_bytes()[..], &(i as f64 / 3.0).to_ne_bytes()[..])
        );
        assert_eq!(flag[..], [u8::from(i % 2 == 1)]);
        assert_eq!(list[..], tags(i).into_iter().flatten().flat_map(i32::to_ne_bytes).collect::<Vec<u8>>());
    }
}

#[test]
fn rows_are_what_was_written_in_each_encoding_and_codec() {
    let path = |name: &str| ColumnPath::from(name);
    let v1 = || usual().set_writer_version(WriterVersion::PARQUET_1_0);
    let v2 = || usual().set_writer_version(WriterVersion::PARQUET_2_0);
    let deltas = |properties: WriterPropertiesBuilder| {
        let bytes = ["image.bytes", "image.path", "caption", "blob"];
        let properties = bytes.into_iter().fold(properties.set_dictionary_enabled(false), |properties, name| {
            let path = ColumnPath::from(name.split('.').map(str::to_owned).collect::<Vec<_>>());
            properties.set_column_encoding(path, Encoding::DELTA_LENGTH_BYTE_ARRAY)
        });
        let numbers = ["label", "n"].into_iter().fold(properties, |properties, name| {
            properties.set_column_encoding(ColumnPath::from(name), Encoding::DELTA_BINARY_PACKED)
        });
        let split = numbers.set_column_encoding(path("score"), Encoding::BYTE_STREAM_SPLIT);
        split
            .set_column_encoding(path("weight"), Encoding::BYTE_STREAM_SPLIT)
            .set_column_encoding(path("flag"), Encoding::RLE)
    };
    let gzip = Compression::GZIP(Default::default());
    let kinds = [
        ("version 1, dictionaries", v1()),
        ("plain", v1().set_dictionary_enabled(false).set_compression(Compression::UNCOMPRESSED)),
        ("small pages", v1().set_data_page_row_count_limit(7).set_write_batch_size(7).set_compression(gzip)),
        ("dictionaries that end", v1().set_dictionary_page_size_limit(20).set_write_batch_size(5)),
        ("deltas", deltas(v1()).set_compression(Compression::LZ4_RAW)),
        ("version 2, deltas", deltas(v2()).set_data_page_row_count_limit(9).set_write_batch_size(9)),
    ];
    for (what, properties) in kinds {
        let bytes = file(3, &[40, 1, 300], Some(FEATURES), properties);
        let dataset = sound(open_source(holding(&bytes)));
        assert_eq!((dataset.format(), dataset.len(), names(&*dataset)), ("parquet", 341, USUAL.to_vec()), "{what}");
        assert_eq!(&dataset.groups().unwrap()[..], [0, 40, 41], "{what}");
        assert_eq!(dataset.schema().classes.as_deref().unwrap(), ["cat", "dog", "owl"]);
        check(&*dataset, 3);
    }
}

fn golden(name: &str) -> Vec<u8> {
    let path = repository().join(format!("integration/golden/parquet/{name}.parquet"));
    fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// What `integration/golden/parquet/generate.py` wrote in row `i`, without what may be none.
fn row(i: usize) -> Vec<Value> {
    let number = i as i64;
    let array = |bytes: &[u8]| Value::Array(Bytes::copy_from_slice(bytes));
    let caption = if i % 5 == 4 { String::new() } else { format!("a picture of {}", "cat".repeat(i % 3)) };
    vec![
        Value::Encoded([&b"\x89PNG\r\n\x1a\n"[..], &vec![i as u8; i * 7]].concat().into()),
        Value::Label(number % 3),
        Value::Bytes(caption.into()),
        array(&(number * 1_000_000_007 - 5).to_ne_bytes()),
        array(&(number as i32 - 3).to_ne_bytes()),
        array(&(i as f32 / 4.0).to_ne_bytes()),
        array(&(i as f64 / 3.0).to_ne_bytes()),
        array(&[u8::from(i % 4 == 1)]),
    ]
}

#[test]
fn files_of_other_writers_give_their_rows() {
    let names = ["image", "label", "caption", "n", "small", "score", "weight", "flag"];
    let files: [(&str, &[u64]); 11] = [
        ("datasets", &[0, 4, 8]),
        ("v1-gzip-plain", &[0, 4, 8]),
        ("v1-none-dictionary", &[0, 4, 8]),
        ("v2-zstd-dictionary", &[0, 4, 8]),
        ("v2-snappy-plain", &[0, 4, 8]),
        ("v2-lz4-deltas", &[0, 4, 8]),
        ("categories", &[0, 4, 8]),
        ("polars-zstd", &[0, 4, 8]),
        ("duckdb-v1-snappy", &[0]),
        ("duckdb-v2-zstd", &[0]),
        ("fastparquet-gzip", &[0, 4, 8]),
    ];
    for (file, groups) in files {
        let open = || open_source(Tracker::holding([("a.parquet", golden(file))]).inline_source());
        let dataset = sound(open().columns(names));
        assert_eq!(self::names(&*dataset), names, "{file}");
        assert_eq!((dataset.len(), &dataset.groups().unwrap()[..]), (10, groups), "{file}");
        // Arrow's files keep what `datasets` said, the others' do not.
        let told = !["polars", "duckdb", "fastparquet"].iter().any(|writer| file.starts_with(writer));
        assert_eq!(dataset.schema().classes.is_some(), told, "{file}");
        for i in 0..10 {
            let found = values(&*dataset, i).unwrap_or_else(|e| panic!("{file}, row {i}: {e}"));
            assert_eq!(format!("{found:?}"), format!("{:?}", row(i as usize)), "{file}, row {i}");
        }
        // A number that is not there is an error that names the column; what is there is read.
        let maybe = opened(open().columns(["maybe"])).unwrap();
        let there = values(&*maybe, 6).unwrap();
        assert!(matches!(&there[..], [Value::Array(six)] if six[..] == 3f64.to_ne_bytes()), "{file}: {there:?}");
        match values(&*maybe, 5) {
            Err(error) => {
                let text = error.to_string();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{file}");
                assert!(text.contains("of the group has no value") && text.contains("column maybe"), "{file}: {text}");
            }
            // It writes none as not-a-number.
            Ok(none) if file.starts_with("fastparquet") => {
                assert!(matches!(&none[..], [Value::Array(nan)] if nan[..] == f64::NAN.to_ne_bytes()), "{none:?}");
            }
            Ok(other) => panic!("{file}: {other:?}"),
        }
    }
    // All columns, of which one has no values at all.
    let all = opened(open_source(holding(&golden("datasets")))).unwrap();
    assert!(self::names(&*all).contains(&"blank") && self::names(&*all).contains(&"maybe"));
    let blank = sound(open_source(holding(&golden("polars-zstd"))).columns(["blank", "image.path"]));
    assert!(
        matches!(&values(&*blank, 7).unwrap()[..], [Value::Bytes(path), Value::Bytes(none)] | [Value::Bytes(none), Value::Bytes(path)]
            if path == "7.png" && none.is_empty())
    );
    let error = fails(&golden("brotli")).to_string();
    assert!(error.contains("is compressed with BROTLI") && error.contains("with Snappy, gzip or zstd"), "{error}");
}

/// A file of one column, of values that are written as they are.
pub(crate) fn one_column<T: DataType>(schema: &str, properties: WriterPropertiesBuilder, values: &[T::T]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// Dictionaries, plain values and deltas, in both versions of pages.
fn encodings(column: &'static str) -> Vec<(&'static str, WriterPropertiesBuilder)> {
    let plain = || usual().set_dictionary_enabled(false);
    let deltas = |version| {
        let properties = plain().set_writer_version(version);
        properties.set_column_encoding(ColumnPath::from(column), Encoding::DELTA_BINARY_PACKED)
    };
    let split = plain().set_column_encoding(ColumnPath::from(column), Encoding::BYTE_STREAM_SPLIT);
    vec![
        ("dictionary", usual()),
        ("plain", plain()),
        ("deltas", deltas(WriterVersion::PARQUET_1_0)),
        ("deltas, version 2", deltas(WriterVersion::PARQUET_2_0)),
        ("split", split.set_writer_version(WriterVersion::PARQUET_2_0)),
    ]
}

#[test]
fn unsigned_integers_stay_what_they_are_in_each_encoding() {
    const LARGE: [u32; 4] = [0, 3_000_000_000, u32::MAX, 7];
    const HUGE: [u64; 4] = [0, 18_000_000_000_000_000_000, u64::MAX, 7];
    let kind_of = |dataset: &dyn Dataset| dataset.schema().fields[0].kind.clone();
    let arrays = |dataset: &dyn Dataset| -> Vec<Bytes> {
        let value = |record| match values(dataset, record).unwrap().remove(0) {
            Value::Array(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        (0..dataset.len()).map(value).collect()
    };
    for (how, properties) in encodings("n") {
        // As logical type and as the converted type of old writers.
        for logical in ["INTEGER(32,false)", "UINT_32"] {
            let bits: Vec<i32> = LARGE.iter().map(|n| *n as i32).collect();
            let file = one_column::<Int32Type>(&format!("required int32 n ({logical});"), properties.clone(), &bits);
            let dataset = sound(open_source(holding(&file)));
            assert_eq!(kind_of(&*dataset), FieldKind::Array { dtype: DType::I64, shape: vec![] });
            let want: Vec<Bytes> = LARGE.iter().map(|n| i64::from(*n).to_ne_bytes().to_vec().into()).collect();
            assert_eq!(arrays(&*dataset), want, "{how}, {logical}");
        }
        for logical in ["INTEGER(64,false)", "UINT_64"] {
            let bits: Vec<i64> = HUGE.iter().map(|n| *n as i64).collect();
            let file = one_column::<Int64Type>(&format!("required int64 n ({logical});"), properties.clone(), &bits);
            let dataset = sound(open_source(holding(&file)));
            assert_eq!(kind_of(&*dataset), FieldKind::Array { dtype: DType::U64, shape: vec![] });
            let want: Vec<Bytes> = HUGE.iter().map(|n| n.to_ne_bytes().to_vec().into()).collect();
            assert_eq!(arrays(&*dataset), want, "{how}, {logical}");
        }
        for (logical, value) in
            [("UINT_8", 200), ("UINT_16", 60_000), ("INT_8", -100), ("INT_16", -30_000), ("INT_32", -5)]
        {
            let file = one_column::<Int32Type>(&format!("required int32 n ({logical});"), properties.clone(), &[value]);
            let dataset = sound(open_source(holding(&file)));
            assert_eq!(kind_of(&*dataset), FieldKind::Array { dtype: DType::I32, shape: vec![] });
            assert_eq!(arrays(&*dataset)[0][..], value.to_ne_bytes(), "{how}, {logical}");
        }
    }
    // Dates and times are counts without their unit, which only somebody who asks for them knows.
    for logical in ["TIMESTAMP(MICROS,true)", "TIMESTAMP_MILLIS", "TIME(NANOS,false)", "TIME_MICROS"] {
        let file = one_column::<Int64Type>(&format!("required int64 n ({logical});"), usual(), &[5]);
        let refused = opened(open_source(holding(&file))).unwrap_err().to_string();
        assert!(
            refused.contains("no columns that can be read among n") && refused.contains("dates and times"),
            "{refused}"
        );
        let dataset = sound(open_source(holding(&file)).columns(["n"]));
        assert_eq!(arrays(&*dataset)[0][..], 5i64.to_ne_bytes(), "{logical}");
    }
    for (how, properties) in encodings("label") {
        let bits: Vec<i32> = LARGE.iter().map(|n| *n as i32).collect();
        let file = one_column::<Int32Type>("required int32 label (UINT_32);", properties.clone(), &bits);
        let dataset = sound(open_source(holding(&file)));
        for (record, want) in LARGE.iter().enumerate() {
            let found = values(&*dataset, record as u64).unwrap();
            assert!(matches!(found[..], [Value::Label(label)] if label == i64::from(*want)), "{how}: {found:?}");
        }
        let bits: Vec<i64> = HUGE.iter().map(|n| *n as i64).collect();
        let file = one_column::<Int64Type>("required int64 label (UINT_64);", properties.clone(), &bits);
        let dataset = opened(open_source(holding(&file))).unwrap();
        assert!(matches!(values(&*dataset, 3).unwrap()[..], [Value::Label(7)]), "{how}");
        let error = values(&*dataset, 1).unwrap_err().to_string();
        assert!(error.contains("label 18000000000000000000 of row 1 of the group is above"), "{how}: {error}");
    }
    // A second file whose integers have a sign is no more of the same.
    let signed = one_column::<Int32Type>("required int32 n (INT_32);", usual(), &[1]);
    let unsigned = one_column::<Int32Type>("required int32 n (UINT_32);", usual(), &[1]);
    let both = Tracker::holding([("a.parquet", unsigned), ("b.parquet", signed)]).inline_source();
    let error = opened(open_source(both)).unwrap_err().to_string();
    assert!(error.contains("column `n` has another type than in the first file"), "{error}");
}

#[test]
fn halves_are_read_and_decimals_are_not_taken_for_integers() {
    for (how, properties) in encodings("n").into_iter().filter(|(how, _)| !how.starts_with("deltas")) {
        let halves = [[0x00, 0x3c], [0x00, 0xc0], [0x01, 0x00]];
        let bits: Vec<FixedLenByteArray> = halves.iter().map(|half| ByteArray::from(half.to_vec()).into()).collect();
        let schema = "required fixed_len_byte_array(2) n (FLOAT16);";
        let dataset = sound(open_source(holding(&one_column::<FixedLenByteArrayType>(schema, properties, &bits))));
        assert_eq!(dataset.schema().fields[0].kind, FieldKind::Array { dtype: DType::F16, shape: vec![] });
        for (record, half) in halves.iter().enumerate() {
            let want = u16::from_le_bytes(*half).to_ne_bytes();
            let found = values(&*dataset, record as u64).unwrap();
            assert!(matches!(&found[..], [Value::Array(bytes)] if bytes[..] == want), "{how}: {found:?}");
        }
    }
    let price = one_column::<Int32Type>("required int32 price (DECIMAL(9,2));", usual(), &[1234]);
    let error = fails(&price).to_string();
    assert!(error.contains("no columns that can be read among price"), "{error}");
    let error = opened(open_source(holding(&price)).columns(["price"])).unwrap_err().to_string();
    assert!(error.contains("column `price` is of decimal numbers, which is not read"), "{error}");
    // The same numbers of any length are no bytes that anybody could read; in those of ints without a fraction are integers.
    for scale in [2, 0] {
        let schema = format!("required binary price (DECIMAL(9,{scale}));");
        let price = one_column::<ByteArrayType>(&schema, usual(), &[ByteArray::from(vec![4, 210])]);
        assert!(fails(&price).to_string().contains("no columns that can be read among price"));
        let schema = format!("required fixed_len_byte_array(2) price (DECIMAL(4,{scale}));");
        let number: FixedLenByteArray = ByteArray::from(vec![4, 210]).into();
        let price = one_column::<FixedLenByteArrayType>(&schema, usual(), &[number]);
        let error = opened(open_source(holding(&price)).columns(["price"])).unwrap_err().to_string();
        assert!(error.contains("column `price` is of decimal numbers, which is not read"), "{error}");
    }
    let count = one_column::<Int32Type>("required int32 count (DECIMAL(9,0));", usual(), &[1234]);
    assert!(
        matches!(&values(&*sound(open_source(holding(&count))), 0).unwrap()[..], [Value::Array(n)] if n[..] == 1234i32.to_ne_bytes())
    );
}

/// A gray picture, 10 above and 0 below.
fn labels_of_pixels() -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let picture = image::GrayImage::from_fn(16, 16, |_, y| image::Luma([if y < 8 { 10 } else { 0 }]));
    picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

#[test]
fn columns_that_are_masks_by_their_name_or_because_somebody_says_so_are_never_blended() {
    let table_of = |names: &[&str], features: Option<&str>, file: &[u8]| {
        let groups = names.iter().map(|name| match features {
            Some(_) => format!("optional group {name} {{ optional binary bytes; optional binary path (UTF8); }}"),
            None => format!("required binary {name};"),
        });
        let schema = format!("message rows {{ {} }}", groups.collect::<Vec<_>>().join(" "));
        let schema = Arc::new(parse_message_type(&schema).unwrap());
        let pairs = features.map(|text| vec![KeyValue::new("huggingface".to_owned(), text.to_owned())]);
        let properties = Arc::new(usual().set_key_value_metadata(pairs).build());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties).unwrap();
        let mut group = writer.next_row_group().unwrap();
        while let Some(mut column) = group.next_column().unwrap() {
            let levels = features.map(|_| vec![2]);
            column
                .typed::<ByteArrayType>()
                .write_batch(&[ByteArray::from(file.to_vec())], levels.as_deref(), None)
                .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        open_source(holding(&writer.into_inner().unwrap()))
    };
    let table = |names: &[&str], features: Option<&str>| table_of(names, features, &labels_of_pixels());
    let values = |open: Open, name: &str| {
        let dataset = sound(open);
        let transform = Transform::new().resize_exact(11, 11).to_float().normalize([0.5; 3], [0.5; 3]);
        let loader = Loader::builder(dataset).batch_size(1).transform(transform).build_blocking().unwrap();
        let batches = drain(loader.epoch(0)).unwrap();
        let tensor = batches[0].get(name).unwrap();
        let bytes = tensor.to_vec::<u8>();
        (tensor.shape().to_vec(), bytes.is_some_and(|bytes| bytes.iter().all(|value| [0, 10].contains(value))))
    };
    let mask = (vec![1, 1, 11, 11], true);
    let image = (vec![1, 3, 11, 11], false);
    let features = r#"{"info": {"features": {"image": {"_type": "Image"}, "NAME": {"_type": "Image"}}}}"#;
    for name in ["mask", "label", "segmentation", "tumor_mask", "annotation"] {
        let features = features.replace("NAME", name);
        for features in [None, Some(&*features)] {
            let open = || table(&["image", name], features);
            assert_eq!(values(open(), name), mask, "{name}");
            assert_eq!(values(open(), "image"), image, "{name}");
            assert_eq!(values(open().field(name, ["image"]), name), image, "{name}");
        }
    }
    // Of 16 bits if the first file is.
    let wide = |name: &str, features: Option<&str>, said: Option<&str>| {
        let mut file = std::io::Cursor::new(Vec::new());
        let picture = image::ImageBuffer::<image::Luma<u16>, _>::from_pixel(4, 4, image::Luma([700]));
        picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
        let mut open = table_of(&["image", name], features, &file.into_inner());
        if let Some(said) = said {
            open = open.field(name, [said]);
        }
        let transform = Transform::new().resize_exact(2, 2);
        let loader = Loader::builder(sound(open)).batch_size(1).transform(transform).build_blocking().unwrap();
        drain(loader.epoch(0)).unwrap()[0].get(name).unwrap().to_vec::<f32>()
    };
    for features in [None, Some(&*features.replace("NAME", "mask"))] {
        assert_eq!(wide("mask", features, None), Some(vec![700.0; 4]));
        assert_eq!(wide("gt", features, Some("mask")), Some(vec![700.0; 4]));
    }
    for name in ["gt", "masked_image", "photo"] {
        assert_eq!(values(table(&["image", name], None), name), image, "{name}");
        assert_eq!(values(table(&["image", name], None).field(name, ["mask"]), name), mask, "{name}");
    }
    let says = |field: &str, words: &[&str]| {
        let open = table(&["image", "gt"], None).field(field, words.iter().copied());
        opened(open).unwrap_err().to_string()
    };
    let error = says("gt", &["masc"]);
    assert!(
        error.contains("`masc` is not a kind that the field `gt` can have") && error.contains("did you mean mask?")
    );
    let error = says("seg", &["mask"]);
    assert!(error.contains("no field `seg`") && error.contains("there are image, gt"), "{error}");
    // A filter opens the columns that it asks for alone, and what was said of others is no matter of it.
    let open = table(&["image", "gt"], None).field("gt", ["bytes"]).filter("gt*=PNG".parse().unwrap());
    assert_eq!(sound(open).len(), 1);
    let open = table(&["image", "gt"], None).field("image", ["mask"]).field("gt", ["bytes"]);
    assert_eq!(sound(open.filter("gt*=PNG".parse().unwrap())).len(), 1);
}

#[test]
fn labels_that_are_kept_secret_stay_what_they_are() {
    let label = |value: i64| {
        let pairs = Some(vec![KeyValue::new("huggingface".to_owned(), FEATURES.to_owned())]);
        let bytes = one_column::<Int64Type>("required int64 label;", usual().set_key_value_metadata(pairs), &[value]);
        values(&*opened(open_source(holding(&bytes))).unwrap(), 0)
    };
    assert!(matches!(&label(-1).unwrap()[..], [Value::Label(-1)]));
    assert!(matches!(&label(2).unwrap()[..], [Value::Label(2)]));
    for wrong in [3, -2] {
        let error = label(wrong).unwrap_err().to_string();
        assert!(error.contains(&format!("label {wrong} of row 0 of the group is not among the classes")), "{error}");
    }
}

#[test]
fn tables_beside_images_and_shards_change_nothing() {
    // As img2dataset leaves its results.
    let table = ("00000.parquet", golden("datasets"));
    let picture = ("00000/1.png", picture(1));
    let folder = opened(open_source(Tracker::holding([table.clone(), picture]).inline_source())).unwrap();
    assert_eq!(folder.format(), "folder");
    let mut shard = vec![0; 2048];
    shard[..5].copy_from_slice(b"1.txt");
    shard[100..108].copy_from_slice(b"0000644\0");
    shard[124..136].copy_from_slice(b"00000000003\0");
    shard[148..156].fill(b' ');
    shard[156] = b'0';
    let sum: u32 = shard[..512].iter().map(|b| u32::from(*b)).sum();
    shard[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    shard[512..515].copy_from_slice(b"cat");
    let both = || Tracker::holding([table.clone(), ("00000.tar", shard.clone())]).inline_source();
    assert_eq!(opened(open_source(both())).unwrap().format(), "tar");
    assert_eq!(opened(open_source(both()).format("parquet")).unwrap().len(), 10);
}

#[test]
fn columns_are_what_their_first_value_says_and_are_chosen_by_name() {
    let bytes = file(0, &[5], None, usual());
    let dataset = sound(open_source(holding(&bytes)));
    assert_eq!(names(&*dataset), USUAL, "without metadata");
    assert_eq!(dataset.schema().classes, None);
    check(&*dataset, 0);
    let some = sound(open_source(holding(&bytes)).columns(["n", "image.path", "image"]));
    assert_eq!(names(&*some), ["image", "image.path", "n"]);
    assert!(matches!(&values(&*some, 4).unwrap()[1], Value::Bytes(path) if path == "4.png"));
    assert!(some.shared_bytes().one < dataset.shared_bytes().one);
    let error = |columns: &[&str]| opened(open_source(holding(&bytes)).columns(columns.iter().copied())).unwrap_err();
    let unknown = error(&["depth"]);
    assert!(unknown.to_string().contains("no column `depth`"), "{unknown}");
    assert!(unknown.to_string().contains("image, image.path, label, caption, blob"), "{unknown}");
    assert!(matches!(&values(&*sound(open_source(holding(&bytes)).columns(["tags"])), 3).unwrap()[..],
        [Value::List(list)] if list.len() == 12));
    assert!(error(&["n", "n"]).to_string().contains("two columns are called `n`"));
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.path().join(name), bytes).unwrap();
    fs::create_dir(dir.path().join("data")).unwrap();
    write("README.md", b"a dataset".to_vec());
    write("data/train-00000-of-00002.parquet", file(0, &[20, 10], Some(FEATURES), usual()));
    write("data/train-00001-of-00002.parquet", file(30, &[7], Some(FEATURES), usual().set_dictionary_enabled(false)));
    write("data/test-00000-of-00001.parquet", file(100, &[3], Some(FEATURES), usual()));
    dir
}

#[test]
fn a_folder_of_files_is_one_dataset() {
    let dir = folder();
    let at = dir.path().display().to_string();
    let train = sound(open(&at).split("train"));
    assert_eq!((train.len(), &train.groups().unwrap()[..]), (37, &[0, 20, 30][..]));
    check(&*train, 0);
    assert!(train.object(36).ends_with("data/train-00001-of-00002.parquet"));
    check(&*sound(open(&at).split("test")), 100);
    let error = opened(open(&at)).unwrap_err();
    assert!(error.to_string().contains("files of several splits: test, train"), "{error}");
    check(&*sound(open(format!("{at}/data/train-{{00000..00001}}-of-00002.parquet"))), 0);
    check(&*sound(open(format!("{at}/data/test-00000-of-00001.parquet"))), 100);
    assert_eq!(train.fingerprint(), sound(open(&at).split("train")).fingerprint());
}

const FIELDS: [&str; 4] = ["image", "label", "n", "caption"];

fn loader(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Loader {
    let order = Order::Blocks { seed: 5, window: 25, lanes: None };
    let base = builder(Arc::clone(dataset)).batch_size(4).order(order).last_batch(LastBatch::Partial);
    settings(base.transform(Transform::new().resize_exact(4, 4))).build_blocking().unwrap()
}

fn rows(batches: &[Batch]) -> Vec<(crate::support::Plain, Option<Vec<Bytes>>)> {
    batches.iter().map(|b| (plain(b), b.bytes("caption").map(<[Bytes]>::to_vec))).collect()
}

fn told(batches: &[Batch]) {
    let mut seen = std::collections::BTreeSet::new();
    for batch in batches {
        let (labels, n) = (batch["label"].as_slice::<i64>().unwrap(), batch["n"].as_slice::<i32>().unwrap());
        assert_eq!((batch["image"].dtype(), batch["n"].shape()), (DType::F32, &[batch.len()][..]));
        for (row, record) in batch.records().iter().enumerate() {
            seen.insert(*record);
            assert_eq!((labels[row], n[row]), (*record as i64 % 3, *record as i32 * 1000 - 5000));
            assert_eq!(batch.bytes("caption").unwrap()[row], caption(*record as usize));
            let red = batch["image"].as_slice::<f32>().unwrap()[row * 48];
            assert!(
                (red - *record as f32).abs() < 0.01 || (red - *record as f32 / 255.0).abs() < 0.01,
                "{red} {record}"
            );
        }
    }
    assert_eq!(seen.len(), 37);
}

#[test]
fn epochs_repeat_and_resume_with_any_workers_and_little_memory() {
    let dir = folder();
    let dataset = sound(open(dir.path().display().to_string()).split("train").columns(FIELDS));
    let first = loader(&dataset, |b| b.workers(1));
    let all = drain(first.epochs(0..2)).unwrap();
    told(&all[..10]);
    let want = rows(&all);
    // The least budget holds one row group.
    let base = builder(Arc::clone(&dataset)).batch_size(4).workers(3).memory_budget(1);
    let least = base.transform(Transform::new().resize_exact(4, 4)).build_blocking().unwrap_err();
    assert!(least.to_string().contains("a row group, which can be written smaller"), "{least}");
    let words = least.to_string();
    let mut words = words.split("the least that works is ").nth(1).unwrap().split(' ');
    let (number, unit) = (words.next().unwrap().parse::<u64>().unwrap(), words.next().unwrap());
    let budget = number << if unit.starts_with("MiB") { 20 } else { 10 };
    for workers in [1, 3] {
        let again = loader(&dataset, |b| b.workers(workers).memory_budget(budget));
        assert!(rows(&drain(again.epochs(0..2)).unwrap()) == want, "{workers} workers");
    }
    let rest = drain(first.resume_epoch(all[6].state()).unwrap()).unwrap();
    assert!(rows(&rest) == want[7..10], "after a state: {} batches", rest.len());
}

#[test]
fn a_bucket_gives_the_same_and_reads_each_group_once() {
    let (dir, server) = (folder(), S3Server::start());
    server.put_folder(dir.path(), "set");
    let local = sound(open(dir.path().display().to_string()).split("train").columns(FIELDS));
    let remote = opened(open_source(server.source("set")).split("train").columns(FIELDS)).unwrap();
    assert_eq!(remote.fingerprint(), local.fingerprint());
    let opening = server.gets();
    assert!(opening <= 2, "a footer of each file: {opening}");
    let want = rows(&drain(loader(&local, |b| b).epoch(0)).unwrap());
    let all = drain(loader(&remote, |b| b).epoch(0)).unwrap();
    assert!(rows(&all) == want);
    assert_eq!(server.gets() - opening, 3, "the columns of a group lie side by side: each group once");
    let resumed = drain(loader(&remote, |b| b).resume_epoch(all[5].state()).unwrap()).unwrap();
    assert!(rows(&resumed) == want[6..]);
}

/// More files than requests at a time, and a column that its first page explains.
#[tokio::test(start_paused = true)]
async fn many_files_of_a_bucket_are_opened() {
    let one = Bytes::from(file(0, &[3], None, usual()));
    let tracker = Tracker::holding((0..40).map(|n| (format!("{n:02}.parquet"), one.clone())));
    tracker.latency(|n| Duration::from_millis(if n == 0 { 1 } else { 20 }));
    let open = open_source(tracker.source()).into_future();
    let dataset = tokio::time::timeout(Duration::from_mins(1), open).await.expect("no read waits for another");
    assert_eq!(dataset.unwrap().len(), 120);
}

/// As it was pushed, and as the hub converts it: other names, the same rows.
#[test]
fn the_hub_gives_the_same_and_resolves_each_file_once() {
    let (dir, server) = (folder(), HubServer::start());
    server.commit_folder(dir.path());
    let local = sound(open(dir.path().display().to_string()).split("train").columns(FIELDS));
    let train = [file(0, &[10], Some(FEATURES), usual()), file(10, &[4], Some(FEATURES), usual())];
    let test = file(90, &[5], Some(FEATURES), usual());
    let names = ["default/train/0000.parquet", "default/train/0001.parquet", "default/test/0000.parquet"];
    server.commit(
        "refs/convert/parquet",
        names.into_iter().zip(train.clone().into_iter().chain([test]).map(Bytes::from)),
    );
    let remote = opened(open_source(server.source("")).split("train").columns(FIELDS)).unwrap();
    assert_eq!(remote.fingerprint(), local.fingerprint());
    let want = rows(&drain(loader(&local, |b| b).epoch(0)).unwrap());
    assert!(rows(&drain(loader(&remote, |b| b).epoch(0)).unwrap()) == want);
    let files = server.requests().iter().filter(|request| request.contains("/resolve/")).count();
    assert!(files <= 2 * names.len(), "{files}: what was signed serves every range");

    let converted = opened(open_source(server.source("@~parquet/default")).split("train").columns(FIELDS)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    (0..2).for_each(|n| fs::write(dir.path().join(format!("000{n}.parquet")), &train[n]).unwrap());
    let local = sound(open(dir.path().display().to_string()).columns(FIELDS));
    let [want, got] = [&local, &converted].map(|dataset| rows(&drain(loader(dataset, |b| b).epoch(0)).unwrap()));
    assert!(got == want && !got.is_empty());
    let error = opened(open_source(server.source("@~parquet"))).unwrap_err();
    assert!(error.to_string().contains("several splits: test, train"), "{error}");
}

fn fails(bytes: &[u8]) -> Error {
    let dataset = match opened(open_source(holding(bytes))) {
        Ok(dataset) => dataset,
        Err(error) => return error,
    };
    let errors = (0..dataset.len()).map(|record| values(&*dataset, record));
    errors.filter_map(Result::err).next().expect("something is wrong")
}

#[test]
fn damage_is_told_with_file_row_group_and_column() {
    let plain = usual().set_compression(Compression::UNCOMPRESSED).set_dictionary_enabled(false);
    let bytes = file(0, &[4, 30], Some(FEATURES), plain);
    let error = fails(&bytes[..bytes.len() - 3]);
    assert!(error.to_string().contains("does not end as Parquet files do") && error.to_string().contains("a.parquet"));
    assert!(fails(b"PAR1").to_string().contains("4 bytes are not a Parquet file"));
    let mut long = bytes.clone();
    let at = long.len() - 8;
    long[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(fails(&long).to_string().contains("a footer of 4294967295 bytes"), "{}", fails(&long));
    let mut noise = bytes.clone();
    let footer = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    noise[at - footer..at].fill(0xff);
    assert!(fails(&noise).to_string().contains("the footer is not valid Thrift"), "{}", fails(&noise));

    // The second group's pages of pictures: the last picture's length, and the header before it.
    let dataset = opened(open_source(holding(&bytes))).unwrap();
    let range = dataset.plan(33, SampleRng::new(0, 0, 33)).unwrap().shared[0].extents[0].range.clone();
    let mut lies = bytes.clone();
    let last = picture(33);
    let place = lies[..range.end as usize].windows(last.len()).rposition(|w| w == last).unwrap();
    lies[place - 4..place].copy_from_slice(&1_000_000u32.to_le_bytes());
    let error = fails(&lies);
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(text.contains("a.parquet, row group 1, column image @") && text.contains("row 29 of the group"), "{text}");
    // As opening finds them, where it looks what a column holds.
    let mut headless = file(0, &[4], None, usual());
    headless[4] = 0xff;
    let text = fails(&headless).to_string();
    assert!(text.contains("a.parquet, column image @ 4..") && text.contains("without a page header"), "{text}");
    let mut headless = bytes.clone();
    headless[range.start as usize] = 0xff;
    let text = fails(&headless).to_string();
    assert!(text.contains("no page header before row 0") && text.contains("row group 1, column image"), "{text}");
}

#[test]
fn what_is_not_read_names_the_way_out() {
    let deltas = usual()
        .set_dictionary_enabled(false)
        .set_column_encoding(ColumnPath::from("caption"), Encoding::DELTA_BYTE_ARRAY);
    let bytes = file(0, &[4], None, deltas);
    let error = fails(&bytes);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.to_string();
    assert!(text.contains("column `caption` of row group 0") && text.contains("DELTA_BYTE_ARRAY"), "{text}");
    check_one(&sound(open_source(holding(&bytes)).columns(["image"])));
    let odd = FEATURES.replace("[\"cat\", \"dog\", \"owl\"]", "[\"cat\"]");
    let error = fails(&file(0, &[4], Some(&odd), usual())).to_string();
    assert!(error.contains("label 1 of row 1 of the group is not among the classes"), "{error}");
    assert!(error.contains("columns([\"image\"])"), "{error}");
    let labels = opened(open_source(holding(&bytes)).labels("x.csv")).unwrap_err().to_string();
    assert!(labels.contains("hold their labels themselves"), "{labels}");
    assert!(fails(&file(0, &[], None, usual())).to_string().contains("hold no rows"));
    let others = || Tracker::holding([("a.parquet", bytes.clone()), ("b.parquet", other())]).inline_source();
    // At another place in the second file.
    sound(open_source(others()).columns(["n"]));
    let error = opened(open_source(others()).columns(["image"])).unwrap_err().to_string();
    assert!(
        error.contains("there is no column `image`, which the first file has") && error.contains("b.parquet"),
        "{error}"
    );
}

/// What `integration/golden/parquet/generate.py` wrote.
#[test]
fn lists_of_other_writers_are_what_they_wrote() {
    for name in ["lists-pyarrow-v2", "lists-polars", "lists-duckdb"] {
        let dataset = sound(open_source(holding(&golden(name))));
        assert_eq!((names(&*dataset), dataset.len()), (vec!["tokens", "boxes", "none"], 10), "{name}");
        for i in 0..10u16 {
            let found = values(&*dataset, i.into()).unwrap();
            let [Value::List(tokens), Value::List(boxes), Value::List(none)] = &found[..] else { panic!("{found:?}") };
            let numbers: Vec<i32> = (0..i % 4).map(|k| i32::from(i * 10 + k)).collect();
            let corners = (0..i % 3).flat_map(|k| [f32::from(i) + f32::from(k) / 4.0; 4]);
            assert_eq!(tokens[..], bytes_of(&numbers), "{name}, row {i}");
            assert_eq!(boxes[..], corners.flat_map(f32::to_ne_bytes).collect::<Vec<u8>>(), "{name}, row {i}");
            let flags = if i % 2 == 1 { vec![] } else { vec![u8::from(i % 3 == 0)] };
            assert_eq!(none[..], flags, "{name}, row {i}");
        }
    }
}

/// A footer has no longest value: a whole column for each row of a batch would be more than any machine has.
#[test]
fn texts_and_lists_of_large_row_groups_fit_into_a_usual_budget() {
    let texts: Vec<ByteArray> = (0..4000).map(|i| ByteArray::from(format!("{i:04000}").into_bytes())).collect();
    let plain = usual().set_dictionary_enabled(false);
    let text = one_column::<ByteArrayType>("required binary text (UTF8);", plain.clone(), &texts);
    let numbers: Vec<i32> = (0..4000 * 500).collect();
    let repeated: Vec<i16> = (0..numbers.len()).map(|at| i16::from(at % 500 > 0)).collect();
    let list = "required group a (LIST) { repeated group list { required int32 element; } }";
    let list = of_lists::<Int32Type>(list, plain, &[(&vec![1; numbers.len()], &repeated, &numbers)]);
    for file in [text, list] {
        let dataset = sound(open_source(holding(&file)));
        let loader = builder(dataset).batch_size(64).memory_budget(96 << 20).build_blocking().unwrap();
        let batches = drain(loader.epoch(0)).unwrap();
        assert_eq!(batches.len(), 62);
    }
}

/// Definition levels, repetition levels and numbers of a row group.
type Group<'a, T> = (&'a [i16], &'a [i16], &'a [T]);

/// A file of one column of lists.
fn of_lists<T: DataType>(schema: &str, properties: WriterPropertiesBuilder, groups: &[Group<'_, T::T>]) -> Vec<u8> {
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {schema} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    for (defined, repeated, values) in groups {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let defined = Some(*defined).filter(|levels| !levels.is_empty());
        column.typed::<T>().write_batch(values, defined, Some(repeated)).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

/// The list of each row, or the error in words.
fn lists(bytes: &[u8]) -> (FieldKind, Vec<std::result::Result<Vec<u8>, String>>) {
    let dataset = opened(open_source(holding(bytes))).unwrap();
    let of = |record| match values(&*dataset, record).map(|mut values| values.remove(0)) {
        Ok(Value::List(list)) => Ok(list.to_vec()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    };
    (dataset.schema().fields[0].kind.clone(), (0..dataset.len()).map(of).collect())
}

fn bytes_of(numbers: &[i32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

proptest! {
    #![proptest_config(properties(40, 1000))]
    #[test]
    fn lists_of_any_length_are_what_was_written_in_each_encoding(
        rows in prop::collection::vec(prop::option::weighted(0.9, prop::collection::vec(
            prop::option::weighted(0.98, -50i32..50), 0..9)), 1..120),
        page in 1usize..40,
        how in 0usize..5,
        version in prop::sample::select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
        compression in prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY]),
    ) {
        let path = ColumnPath::from(["tokens", "list", "element"].map(str::to_owned).to_vec());
        let base = WriterProperties::builder().set_compression(compression).set_writer_version(version);
        let base = base.set_data_page_row_count_limit(page).set_write_batch_size(page);
        let properties = match how {
            0 => base,
            1 => base.set_dictionary_page_size_limit(40),
            2 => base.set_dictionary_enabled(false),
            3 => base.set_dictionary_enabled(false).set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            _ => base.set_dictionary_enabled(false).set_column_encoding(path, Encoding::BYTE_STREAM_SPLIT),
        };
        let half = rows.len() / 2;
        let groups = [levels_of(&rows[..half]), levels_of(&rows[half..])];
        let groups: Vec<_> = groups.iter().filter(|(defined, ..)| !defined.is_empty())
            .map(|(defined, repeated, values)| (&defined[..], &repeated[..], &values[..])).collect();
        let schema = "optional group tokens (LIST) { repeated group list { optional int32 element; } }";
        let (kind, found) = lists(&of_lists::<Int32Type>(schema, properties, &groups));
        let is_list = matches!(kind, FieldKind::List { dtype: DType::I32, ref item, .. } if item.is_empty());
        prop_assert!(is_list, "{:?}", kind);
        prop_assert_eq!(found.len(), rows.len());
        for (found, row) in found.iter().zip(&rows) {
            // A list that is not there has no items; one without a number is an error of its row.
            let want: Option<Vec<i32>> = row.as_deref().unwrap_or_default().iter().copied().collect();
            match want {
                Some(want) => prop_assert_eq!(found.as_ref().unwrap(), &bytes_of(&want)),
                None => prop_assert!(found.as_ref().unwrap_err().contains("a list without a number")),
            }
        }
    }
}

proptest! {
    #![proptest_config(properties(40, 1000))]
    #[test]
    fn lists_of_texts_are_what_was_written_in_each_encoding(
        rows in prop::collection::vec(prop::option::weighted(0.9, prop::collection::vec(
            prop::option::weighted(0.98, 0usize..30), 0..9)), 1..120),
        page in 1usize..40,
        how in 0usize..4,
        version in prop::sample::select(vec![WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0]),
        compression in prop::sample::select(vec![Compression::UNCOMPRESSED, Compression::SNAPPY]),
    ) {
        let path = ColumnPath::from(["texts", "list", "element"].map(str::to_owned).to_vec());
        let base = WriterProperties::builder().set_compression(compression).set_writer_version(version);
        let base = base.set_data_page_row_count_limit(page).set_write_batch_size(page);
        let properties = match how {
            0 => base,
            // Where the dictionary is full.
            1 => base.set_dictionary_page_size_limit(40).set_column_encoding(path, Encoding::PLAIN),
            2 => base.set_dictionary_enabled(false).set_column_encoding(path, Encoding::PLAIN),
            _ => base.set_dictionary_enabled(false).set_column_encoding(path, Encoding::DELTA_LENGTH_BYTE_ARRAY),
        };
        let word = |n: usize| "ä".repeat(n);
        let half = rows.len() / 2;
        let groups: Vec<_> = [&rows[..half], &rows[half..]].into_iter().filter(|rows| !rows.is_empty()).map(levels_of).collect();
        let groups: Vec<_> = groups.iter().map(|(defined, repeated, values)| {
            (defined, repeated, values.iter().map(|n| ByteArray::from(word(*n).into_bytes())).collect::<Vec<_>>())
        }).collect();
        let groups: Vec<_> = groups.iter().map(|(defined, repeated, values)| (&defined[..], &repeated[..], &values[..])).collect();
        let schema = "optional group texts (LIST) { repeated group list { optional binary element (UTF8); } }";
        let dataset = opened(open_source(holding(&of_lists::<ByteArrayType>(schema, properties, &groups)))).unwrap();
        let is_texts = matches!(dataset.schema().fields[0].kind, FieldKind::Texts { .. });
        prop_assert!(is_texts);
        prop_assert_eq!(dataset.len(), rows.len() as u64);
        for (record, row) in (0..).zip(&rows) {
            // A list that is not there has no texts; one of which a text is missing is an error of its row.
            let want: Option<Vec<usize>> = row.as_deref().unwrap_or_default().iter().copied().collect();
            let found = values(&*dataset, record).map(|mut values| values.remove(0));
            match (want, found) {
                (Some(want), Ok(Value::Texts(texts))) => {
                    let want: Vec<Bytes> = want.iter().map(|n| word(*n).into()).collect();
                    prop_assert_eq!(&texts[..], &want[..]);
                }
                (None, Err(error)) => prop_assert!(error.to_string().contains("a list of which a value is missing")),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}

#[test]
fn lists_are_found_however_writers_nest_them() {
    // Three rows: 1 2, nothing, 3.
    for (schema, defined) in [
        ("optional group a (LIST) { repeated group list { optional int32 element; } }", &[3, 3, 1, 3][..]),
        ("optional group a (LIST) { repeated group bag { optional int32 array_element; } }", &[3, 3, 1, 3]),
        ("optional group a (LIST) { repeated int32 array; }", &[2, 2, 1, 2]),
        ("required group a (LIST) { repeated group list { required int32 element; } }", &[1, 1, 0, 1]),
        ("repeated int32 a;", &[1, 1, 0, 1]),
    ] {
        let file = of_lists::<Int32Type>(schema, usual(), &[(defined, &[0, 1, 0, 0], &[1, 2, 3])]);
        let dataset = sound(open_source(holding(&file)));
        assert_eq!(names(&*dataset), ["a"], "{schema}");
        let found = lists(&file).1;
        assert_eq!(found, [Ok(bytes_of(&[1, 2])), Ok(vec![]), Ok(bytes_of(&[3]))], "{schema}");
    }
    // The lists of a struct, and of structs in a list, by their names.
    for schema in [
        "optional group objects { optional group area (LIST) { repeated group list { optional int32 element; } } }",
        "optional group objects (LIST) { repeated group list { optional group element { optional int32 area; } } }",
    ] {
        let file = of_lists::<Int32Type>(schema, usual(), &[(&[4, 4, 4], &[0, 1, 0], &[1, 2, 3])]);
        let dataset = sound(open_source(holding(&file)).columns(["objects.area"]));
        assert!(matches!(&values(&*dataset, 1).unwrap()[..], [Value::List(list)] if list[..] == 3i32.to_ne_bytes()));
    }
    let text = "optional group a (LIST) { repeated group list { optional group element (LIST) {
        repeated group list { optional binary element (UTF8); } } } }";
    let words = [ByteArray::from("one"), ByteArray::from("two")];
    let file = of_lists::<ByteArrayType>(text, usual(), &[(&[5, 5], &[0, 1], &words)]);
    let error = opened(open_source(holding(&file)).columns(["a"])).unwrap_err().to_string();
    assert!(error.contains("column `a` is a list of lists of texts or bytes, which is not read"), "{error}");
}

/// A file of a row group with a column of `datasets`' lists of images, and the path of each.
fn of_images(rows: &[Option<Vec<Option<Bytes>>>], name: &str, features: Option<&str>) -> Vec<u8> {
    let schema = format!(
        "message rows {{ optional group {name} (LIST) {{ repeated group list {{ optional group element {{
            optional binary bytes; optional binary path (UTF8); }} }} }} }}"
    );
    let pairs = features.map(|text| vec![KeyValue::new("huggingface".to_owned(), text.to_owned())]);
    let properties = usual().set_key_value_metadata(pairs).build();
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let borrowed: Vec<Option<Vec<Option<&Bytes>>>> =
        rows.iter().map(|row| row.as_ref().map(|row| row.iter().map(Option::as_ref).collect())).collect();
    let (defined, repeated, files) = levels_of(&borrowed);
    for is_path in [false, true] {
        // The path of an image without bytes is there.
        let one = |level: &i16| {
            if *level < 2 {
                *level
            } else if is_path {
                4
            } else {
                *level + 1
            }
        };
        let (levels, items) =
            (defined.iter().map(one).collect::<Vec<i16>>(), defined.iter().filter(|level| **level > 1));
        let values: Vec<ByteArray> = match is_path {
            true => items.map(|_| ByteArray::from("a.png")).collect(),
            false => files.iter().map(|file| ByteArray::from(file.to_vec())).collect(),
        };
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), Some(&repeated)).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn lists_of_images_are_found_by_their_features_or_their_content() {
    let [a, b, c] = [1, 2, 3].map(|n| Bytes::from(picture(n)));
    let rows = [
        Some(vec![Some(a.clone()), Some(b.clone())]),
        Some(vec![]),
        None,
        Some(vec![Some(c.clone()), None]),
        Some(vec![Some(a.clone())]),
    ];
    let listed = r#"{"info": {"features": {"images": {"feature": {"_type": "Image"}, "_type": "List"}}}}"#;
    let older = r#"{"info": {"features": {"images": [{"_type": "Image"}]}}}"#;
    for (name, features) in [("images", None), ("images", Some(listed)), ("images", Some(older)), ("masks", None)] {
        let dataset = opened(open_source(holding(&of_images(&rows, name, features)))).unwrap();
        let field = &dataset.schema().fields[0];
        assert!(matches!(field.kind, FieldKind::Images { usual: 4, .. }), "{field:?}");
        assert_eq!((names(&*dataset), field.mask), (vec![name], name == "masks"));
        let found = |record| match &values(&*dataset, record).map(|mut values| values.remove(0)) {
            Ok(Value::Images(images)) => images
                .iter()
                .map(|image| match image {
                    Value::Encoded(file) => Ok(file.clone()),
                    other => panic!("{other:?}"),
                })
                .collect::<Result<Vec<_>, String>>(),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        };
        assert_eq!((found(0), found(1), found(2)), (Ok(vec![a.clone(), b.clone()]), Ok(vec![]), Ok(vec![])));
        assert!(found(3).unwrap_err().contains("row 3 of the group has a list of which a value is missing"));
        assert_eq!(found(4), Ok(vec![a.clone()]));
    }
    // Bytes that are no images: left out, or refused by name.
    let other = "optional group a (LIST) { repeated group list { optional binary element; } } required int32 label;";
    let schema = Arc::new(parse_message_type(&format!("message rows {{ {other} }}")).unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(usual().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&[ByteArray::from("x")], Some(&[3]), Some(&[0])).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[7], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    let file = writer.into_inner().unwrap();
    assert_eq!(names(&*sound(open_source(holding(&file)))), ["label"]);
    let error = opened(open_source(holding(&file)).columns(["a"])).unwrap_err().to_string();
    assert!(error.contains("column `a` has lists of bytes, of which the first is no image"), "{error}");
}

#[test]
fn lists_of_unsigned_integers_and_of_other_numbers_keep_their_values() {
    let list = |of: &str| format!("required group a (LIST) {{ repeated group list {{ required {of} element; }} }}");
    let large = [0, 3_000_000_000, u32::MAX].map(|number| number as i32);
    let file = of_lists::<Int32Type>(&list("int32"), usual(), &[(&[1, 1, 1], &[0, 1, 1], &large)]);
    assert_eq!(lists(&file).1[0], Ok(large.iter().flat_map(|n| n.to_ne_bytes()).collect()));
    let unsigned = list("int32").replace("element;", "element (UINT_32);");
    let (kind, found) = lists(&of_lists::<Int32Type>(&unsigned, usual(), &[(&[1, 1, 1], &[0, 1, 1], &large)]));
    assert!(matches!(kind, FieldKind::List { dtype: DType::I64, .. }), "{kind:?}");
    assert_eq!(found[0], Ok(large.iter().flat_map(|n| i64::from(*n as u32).to_ne_bytes()).collect()));
    let file = of_lists::<DoubleType>(&list("double"), usual(), &[(&[1, 1], &[0, 1], &[0.5, -1.0])]);
    assert_eq!(lists(&file).1[0], Ok([0.5f64, -1.0].iter().flat_map(|n| n.to_ne_bytes()).collect()));
    let file = of_lists::<BoolType>(&list("boolean"), usual(), &[(&[1, 1], &[0, 1], &[true, false])]);
    assert_eq!(lists(&file).1[0], Ok(vec![1, 0]));
}

#[test]
fn lists_of_lists_have_items_of_one_length() {
    let schema = "optional group boxes (LIST) { repeated group list { optional group element (LIST) {
        repeated group list { optional int32 element; } } } }";
    // Two boxes; nothing; one box; a box of two numbers; a box without numbers; a box with a number missing.
    let defined = [5, 5, 5, 5, 1, 5, 5, 5, 5, 3, 5, 4];
    let repeated = [0, 2, 1, 2, 0, 0, 2, 0, 1, 0, 0, 2];
    let file = of_lists::<Int32Type>(schema, usual(), &[(&defined, &repeated, &[1, 2, 3, 4, 5, 6, 7, 8, 9])]);
    let (kind, found) = lists(&file);
    assert!(matches!(&kind, FieldKind::List { item, .. } if item[..] == [2]), "{kind:?}");
    assert_eq!(found[..3], [Ok(bytes_of(&[1, 2, 3, 4])), Ok(vec![]), Ok(bytes_of(&[5, 6]))]);
    for error in &found[3..] {
        let error = error.as_ref().unwrap_err();
        assert!(error.contains("a list without a number, or with items of several lengths"), "{error}");
    }
    let empty = of_lists::<Int32Type>(schema, usual(), &[(&[1, 0], &[0, 0], &[])]);
    let error = opened(open_source(holding(&empty))).unwrap_err().to_string();
    assert!(error.contains("no columns that can be read among boxes"), "{error}");
    let error = opened(open_source(holding(&empty)).columns(["boxes"])).unwrap_err().to_string();
    assert!(error.contains("have several lengths, or there are none"), "{error}");
    // Outlines of any number of corners are left out of what can be read.
    let ragged = "optional group outlines (LIST) { repeated group list { optional group element (LIST) {
        repeated group list { optional int32 element; } } } }";
    let uneven = of_lists::<Int32Type>(ragged, usual(), &[(&[5, 5, 5, 5, 5], &[0, 2, 1, 0, 1], &[1, 2, 3, 4, 5])]);
    let error = opened(open_source(holding(&uneven))).unwrap_err().to_string();
    assert!(error.contains("no columns that can be read among outlines"), "{error}");
}

/// A file of one image of `length` zeros after the signature, with `edit` done to it.
fn bomb(compression: Compression, length: usize, edit: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message rows { required binary image; }").unwrap());
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_dictionary_enabled(false)
        .set_statistics_enabled(::parquet::file::properties::EnabledStatistics::None);
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let value = [&b"\x89PNG\r\n\x1a\n"[..], &vec![0; length]].concat();
    column.typed::<ByteArrayType>().write_batch(&[ByteArray::from(value)], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    let mut bytes = writer.into_inner().unwrap();
    edit(&mut bytes);
    bytes
}

/// The varint of a Thrift integer.
fn zigzag(value: u64) -> Vec<u8> {
    let (mut left, mut bytes) = (value << 1, Vec::new());
    while left >= 0x80 {
        bytes.push(left as u8 | 0x80);
        left >>= 7;
    }
    bytes.push(left as u8);
    bytes
}

#[test]
fn pages_that_are_larger_than_they_say_are_not_unpacked() {
    let length = 3_000_000;
    let gzip = || Compression::GZIP(Default::default());
    for compression in [gzip(), Compression::SNAPPY, Compression::LZ4_RAW] {
        let sound = bomb(compression, length, |_| {});
        let dataset = opened(open_source(holding(&sound))).unwrap();
        assert!(matches!(&values(&*dataset, 0).unwrap()[..], [Value::Encoded(all)] if all.len() == length + 8));
        // The size in the page's header, which takes 4 bytes as the others do; the footer keeps the true one.
        let told = zigzag(length as u64 + 12);
        let saying = |size: u64| {
            fails(&bomb(compression, length, |bytes| {
                let at = bytes.windows(4).position(|w| w == told).expect("the page's header");
                bytes[at..at + 4].copy_from_slice(&zigzag(size));
            }))
        };
        let less = saying(2_000_000);
        assert_eq!(less.kind(), ErrorKind::Corrupt, "{compression:?}: {less}");
        assert!(less.to_string().contains("but 2000000 by its header") || less.to_string().contains("LZ4"), "{less}");
        let more = saying(100_000_000).to_string();
        assert!(more.contains("its pages have more than the") && more.contains("bytes in the footer"), "{more}");
    }
}

#[test]
fn a_dictionary_that_lies_about_its_values_sets_nothing_aside() {
    let bytes = file(0, &[4], Some(FEATURES), usual().set_compression(Compression::UNCOMPRESSED));
    let dataset = opened(open_source(holding(&bytes)).columns(["caption"])).unwrap();
    let range = dataset.plan(0, SampleRng::new(0, 0, 0)).unwrap().shared[0].extents[0].range.clone();
    // The dictionary's header: type 2, sizes, then a struct of count (4 values) and encoding.
    let chunk = &bytes[range.start as usize..range.end as usize];
    let at = chunk.windows(4).position(|w| w == [0x4c, 0x15, 8, 0x15]).expect("the dictionary's header") + 2;
    for (count, what) in [(5, "a dictionary of 5 values is truncated"), (63, "a dictionary of 63 values is truncated")]
    {
        let mut lies = bytes.clone();
        lies[range.start as usize + at] = count << 1;
        let error = values(&*opened(open_source(holding(&lies)).columns(["caption"])).unwrap(), 0).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    // Fewer than the rows refer to.
    let mut lies = bytes.clone();
    lies[range.start as usize + at] = 1 << 1;
    let error = values(&*opened(open_source(holding(&lies)).columns(["caption"])).unwrap(), 0).unwrap_err().to_string();
    assert!(error.contains("row 1 of the group has a value beyond its page or its dictionary"), "{error}");
}

#[test]
fn shards_are_prepared_of_row_groups() {
    use infeed::prepare::{Prepare, Store};
    let (dir, out) = (folder(), tempfile::tempdir().unwrap());
    let dataset = sound(open(dir.path().display().to_string()).split("train").columns(["image", "label"]));
    let url = out.path().join("shards").display().to_string();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A few rows in each, as the mean row of the largest group says.
    let most = dataset.largest_read() * 5;
    let prepare = Prepare::new(Arc::clone(&dataset), url.clone()).store(Store::Keep).shard_size(most);
    runtime.block_on(prepare.run()).unwrap();
    let shards =
        fs::read_dir(&url).unwrap().filter(|f| f.as_ref().unwrap().path().extension().is_some_and(|e| e == "tar"));
    assert_eq!(shards.count(), 8, "37 rows by 5");
    let tars = sound(open(&url));
    assert_eq!((tars.format(), tars.len(), &tars.schema().classes), ("tar", 37, &dataset.schema().classes));
    let of_tar = |record: u64| {
        let plan = tars.plan(record, SampleRng::new(0, 0, record)).unwrap();
        let bytes: Vec<Bytes> =
            plan.extents.iter().map(|extent| futures::executor::block_on(extent.read()).unwrap()).collect();
        tars.parse(record, &plan, &bytes).unwrap().values.into_vec()
    };
    for record in 0..37 {
        let found = of_tar(record);
        // Behind them the key.
        let [Value::Encoded(image), Value::Label(label), Value::Bytes(_)] = &found[..] else {
            panic!("other fields: {found:?}")
        };
        assert_eq!((&image[..], *label), (&picture(record as usize)[..], record as i64 % 3));
    }
}

fn check_one(dataset: &Arc<dyn Dataset>) {
    assert!(matches!(&values(&**dataset, 2).unwrap()[..], [Value::Encoded(image)] if image[..] == picture(2)));
}

/// A file with one column.
fn other() -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message rows { required int32 n; }").unwrap());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(usual().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

proptest! {
    #![proptest_config(properties(300, 20_000))]

    /// Flipped bits and cut files: errors or rows, no panic; nothing longer than the plan says.
    #[test]
    fn damage_anywhere_is_an_error_or_rows(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), in_footer: bool,
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()), kind in 0usize..8,
    ) {
        static FILES: std::sync::OnceLock<Vec<Vec<u8>>> = std::sync::OnceLock::new();
        let files = FILES.get_or_init(|| {
            let plain = usual().set_compression(Compression::UNCOMPRESSED);
            let gzip = usual().set_compression(Compression::GZIP(Default::default()));
            let ours = [usual(), plain, gzip].map(|properties| file(0, &[6, 3], Some(FEATURES), properties));
            let others = ["v2-zstd-dictionary", "v2-lz4-deltas", "categories", "duckdb-v2-zstd", "polars-zstd"];
            ours.into_iter().chain(others.map(golden)).collect()
        });
        let mut bytes = files[kind].clone();
        let footer = bytes.len() - 8 - u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
        for (at, flip) in flips {
            let at = if in_footer { footer + at.index(bytes.len() - footer) } else { at.index(footer) };
            bytes[at] ^= flip;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let calm = catch_unwind(AssertUnwindSafe(|| {
            let Ok(dataset) = opened(open_source(holding(&bytes))) else { return };
            for record in 0..dataset.len().min(20) {
                let plan = dataset.plan(record, SampleRng::new(0, 0, record)).unwrap();
                // What a lying footer asks for is refused by the loader's budget.
                if plan.shared.iter().map(|part| part.bytes).sum::<u64>() < 64 << 20 {
                    let _ = values(&*dataset, record);
                }
            }
        }));
        prop_assert!(calm.is_ok());
    }
}

#[test]
fn metadata_of_hugging_face_beside_images_is_read() {
    let schema = "message rows { required binary file_name (UTF8); required binary label (UTF8); required int64 n;
        required double x; required boolean flag; required binary text (UTF8);
        optional group tags (LIST) { repeated group list { optional int32 element; } } }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    // Each row: the number in the file's name.
    let table = |rows: &[i64]| {
        let mut writer = SerializedFileWriter::new(Vec::new(), Arc::clone(&schema), Arc::new(usual().build())).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let texts = |text: fn(i64) -> String| rows.iter().map(|i| ByteArray::from(text(*i).into_bytes())).collect();
        let texts: [Vec<ByteArray>; 3] = [
            texts(|i| format!("{i}.png")),
            texts(|i| ["cat", "dog"][i as usize % 2].to_owned()),
            texts(|i| format!("the image {i}")),
        ];
        let mut texts = texts.iter();
        let tags: Vec<_> = rows.iter().map(|i| Some(vec![Some(*i as i32), Some(7)])).collect();
        let (defined, repeated, tags) = levels_of(&tags);
        for at in 0.. {
            let Some(mut column) = group.next_column().unwrap() else { break };
            match at {
                0 | 1 | 5 => column.typed::<ByteArrayType>().write_batch(texts.next().unwrap(), None, None),
                2 => column.typed::<Int64Type>().write_batch(rows, None, None),
                3 => {
                    let halves: Vec<f64> = rows.iter().map(|i| *i as f64 / 2.0).collect();
                    column.typed::<DoubleType>().write_batch(&halves, None, None)
                }
                4 => {
                    let odd: Vec<bool> = rows.iter().map(|i| i % 2 == 1).collect();
                    column.typed::<BoolType>().write_batch(&odd, None, None)
                }
                _ => column.typed::<Int32Type>().write_batch(&tags, Some(&defined), Some(&repeated)),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
        writer.into_inner().unwrap()
    };
    let lines = |rows: &[i64]| {
        let line = |i: &i64| {
            let label = ["cat", "dog"][*i as usize % 2];
            let (x, flag) = (*i as f64 / 2.0, i % 2 == 1);
            let row = serde_json::json!({"file_name": format!("{i}.png"), "label": label, "n": i, "x": x, "flag": flag,
                "text": format!("the image {i}"), "tags": [i, 7]});
            row.to_string() + "\n"
        };
        rows.iter().map(line).collect::<String>().into_bytes()
    };
    // The fields and values of a folder with tables in each split or at the root.
    let found = |files: &[(&str, Vec<u8>)], split: Option<&str>| {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        let mut open = open(dir.path().to_str().unwrap());
        if let Some(split) = split {
            open = open.split(split);
        }
        let dataset = sound(open);
        assert_eq!(dataset.format(), "folder");
        let mut fields: Vec<_> = dataset.schema().fields.iter().enumerate().collect();
        fields.sort_by_key(|(_, field)| field.name.clone());
        let value = |record: u64| {
            let values = crate::datasets::values(&*dataset, record).unwrap();
            fields.iter().map(|(at, field)| format!("{field:?} {:?}", values[*at])).collect::<Vec<_>>()
        };
        ((0..dataset.len()).map(value).collect::<Vec<_>>(), dataset.schema().classes.clone())
    };
    let images = |folder: &str| (1..4).map(|i| (format!("{folder}{i}.png"), picture(i))).collect::<Vec<_>>();
    for (folders, split) in [(&[""][..], None), (&["train/", "test/"], Some("train"))] {
        let with = |name: &str, table: &dyn Fn(&[i64]) -> Vec<u8>| {
            let mut files = Vec::new();
            for folder in folders {
                files.extend(images(folder));
                files.push((format!("{folder}metadata.{name}"), table(&[3, 1, 2])));
            }
            let files: Vec<_> = files.iter().map(|(name, bytes)| (&**name, bytes.clone())).collect();
            found(&files, split)
        };
        let (rows, classes) = with("parquet", &table);
        assert_eq!((rows.len(), rows[0].len()), (3, 7));
        assert_eq!(classes.as_deref(), Some(&["cat".to_owned(), "dog".to_owned()][..]));
        assert_eq!((rows, classes), with("jsonl", &lines));
    }
}
