use std::{future::IntoFuture, sync::Arc};

use ::parquet::{
    basic::{LogicalType, Repetition, Type},
    data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    file::{metadata::KeyValue, properties::WriterProperties, writer::SerializedFileWriter},
    schema::types::Type as SchemaType,
};
use futures::executor::block_on;
use infeed_data::read_one::read;
use infeed_store::Source;
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

use super::*;

/// The states of old runs hold it: written out, so that no change here changes it.
#[test]
fn the_identity_is_that_which_states_hold() {
    let identity = |files: &[(&str, Vec<u8>)]| {
        let store = InMemory::new();
        for (name, bytes) in files {
            block_on(store.put(&Path::from(*name), bytes.clone().into())).unwrap();
        }
        let source = Source::from_store(Arc::new(store), Path::default(), "test://x");
        let dataset = block_on(crate::open_source(source).into_future()).unwrap();
        (dataset.fingerprint(), dataset)
    };
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../integration/golden/parquet/polars-zstd.parquet");
    let bytes = std::fs::read(file).unwrap();
    let size = bytes.len() as u64;
    let (parquet, dataset) = identity(&[("d/a.parquet", bytes.clone()), ("d/b.parquet", bytes)]);
    let starts = [&dataset.groups().unwrap()[..], &[dataset.len()]].concat();
    let rows: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut want = Fingerprint::of("parquet").number(2);
    for (name, rows) in ["d/a.parquet", "d/b.parquet"].into_iter().zip(rows.chunks(rows.len() / 2)) {
        want = rows.iter().fold(want.text(name).number(size), |want, rows| want.number(*rows));
    }
    assert_eq!(parquet, want.finish());
}

/// The files `0.parquet`, `1.parquet` and so on.
fn files(files: &[Vec<u8>]) -> infeed_data::Open {
    let store = InMemory::new();
    for (i, bytes) in files.iter().enumerate() {
        block_on(store.put(&Path::from(format!("{i}.parquet")), bytes.clone().into())).unwrap();
    }
    crate::open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))
}

/// A file of one column, which is not null anywhere.
fn column<T: DataType>(schema: SchemaType, features: Option<String>, values: &[T::T]) -> Vec<u8> {
    let root = SchemaType::group_type_builder("rows").with_fields(vec![Arc::new(schema)]).build().unwrap();
    let pairs = features.map(|text| vec![KeyValue::new("huggingface".to_owned(), text)]);
    let properties = WriterProperties::builder().set_key_value_metadata(pairs).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(root), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<T>().write_batch(values, None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

fn required(name: &str, of: Type, kind: Option<LogicalType>) -> SchemaType {
    let builder = SchemaType::primitive_type_builder(name, of).with_repetition(Repetition::REQUIRED);
    builder.with_logical_type(kind).build().unwrap()
}

/// A file of integer labels whose metadata name their classes.
fn labels(column_name: &str, names: &[&str], values: &[i64]) -> Vec<u8> {
    let features = serde_json::json!({column_name: {"_type": "ClassLabel", "names": names}});
    let features = serde_json::json!({"info": {"features": features}}).to_string();
    column::<Int64Type>(required(column_name, Type::INT64, None), Some(features), values)
}

/// A file of texts, with a dictionary as writers usually make one.
fn texts(name: &str, values: &[&str]) -> Vec<u8> {
    let values: Vec<ByteArray> = values.iter().map(|text| ByteArray::from(*text)).collect();
    column::<ByteArrayType>(required(name, Type::BYTE_ARRAY, Some(LogicalType::String)), None, &values)
}

fn given(classes: &[&str]) -> Arc<[String]> {
    classes.iter().map(|class| (*class).to_owned()).collect()
}

fn refused(open: infeed_data::Open) -> String {
    block_on(open.into_future()).unwrap_err().to_string()
}

fn shown(dataset: &dyn Dataset) -> Vec<String> {
    let one = |record| match read(dataset, record).map(|sample| sample.values) {
        Ok(values) => match &values[0] {
            Value::Label(label) => label.to_string(),
            other => format!("{other:?}"),
        },
        Err(error) => error.to_string(),
    };
    (0..dataset.len()).map(one).collect()
}

#[test]
fn files_whose_classes_have_other_names_are_not_one_dataset() {
    let [cats, dogs] = [["cat", "dog"], ["dog", "cat"]].map(|names| labels("label", &names, &[0, 1, -1]));
    let error = refused(files(&[cats.clone(), dogs.clone()]));
    assert!(error.contains("class 0 of column `label` is `dog`, but `cat` in test://x/0.parquet"), "{error}");
    assert!(error.contains("test://x/1.parquet") && error.contains("open each file by itself"), "{error}");
    let error = refused(files(&[cats.clone(), labels("label", &["cat", "dog", "owl"], &[2])]));
    assert!(error.contains("column `label` has 3 classes, but 2 in test://x/0.parquet"), "{error}");
    // Any column of labels, also if the first file has no names.
    let plain = column::<Int64Type>(required("cls", Type::INT64, None), None, &[0]);
    let others = [["a", "b"], ["b", "a"]].map(|names| labels("cls", &names, &[0]));
    let error = refused(files(&[plain, others[0].clone(), others[1].clone()]));
    assert!(error.contains("class 0 of column `cls` is `b`, but `a` in test://x/1.parquet"), "{error}");
    let dataset = block_on(files(&[cats.clone(), cats]).into_future()).unwrap();
    assert_eq!(shown(&*dataset), ["0", "1", "-1", "0", "1", "-1"]);
}

#[test]
fn labels_are_found_among_the_given_classes_by_name() {
    let [cats, dogs] = [["cat", "dog"], ["dog", "cat"]].map(|names| labels("label", &names, &[0, 1, -1, 2]));
    let dataset = block_on(files(&[cats.clone(), dogs]).classes(given(&["ant", "dog", "cat"])).into_future()).unwrap();
    assert_eq!(dataset.schema().classes.as_deref().map(<[String]>::len), Some(3));
    let found = shown(&*dataset);
    assert_eq!([&found[..3], &found[4..7]].concat(), ["2", "1", "-1", "1", "2", "-1"]);
    assert!(found[3].contains("label 2 of row 3 of the group is not among the classes"), "{}", found[3]);
    let error = refused(files(std::slice::from_ref(&cats)).classes(given(&["cat", "wolf"])));
    assert!(error.contains("class `dog` of the file's metadata is not among the 2 classes given"), "{error}");
    assert!(error.contains("test://x/0.parquet") && error.contains("omit classes"), "{error}");
    // Those that go on after the file's own change no label.
    let dataset = block_on(files(&[cats]).classes(given(&["cat", "dog", "owl"])).into_future()).unwrap();
    assert_eq!(shown(&*dataset), ["0", "1", "-1", "2"]);
}

#[test]
fn texts_of_the_label_column_are_classes_if_these_are_given() {
    let bytes = texts("label", &["dog", "cat", "1", "wolf \u{1}", ""]);
    let dataset = block_on(files(std::slice::from_ref(&bytes)).classes(given(&["cat", "dog"])).into_future()).unwrap();
    assert_eq!(dataset.schema().fields, [Field::label()]);
    let found = shown(&*dataset);
    assert_eq!(found[..3], ["1", "0", "1"]);
    for (error, label) in
        [(&found[3], "`wolf \\u{1}` is no number, and not among the 2"), (&found[4], "`` is no number")]
    {
        assert!(error.contains(label) && error.contains("column label"), "{error}");
    }
    assert!(found[3].contains("row 3 of the group") && found[4].contains("row 4 of the group"), "{found:?}");
    // Without classes, and in any other column, texts are texts.
    let kind = |open: infeed_data::Open| block_on(open.into_future()).unwrap().schema().fields[0].kind.name();
    assert_eq!(kind(files(&[bytes])), "text");
    assert_eq!(kind(files(&[texts("caption", &["dog"])]).classes(given(&["cat", "dog"]))), "text");
}

#[test]
fn a_column_of_the_type_null_is_left_out() {
    let nulls = SchemaType::primitive_type_builder("error_message", Type::INT32)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(Some(LogicalType::Unknown));
    let fields = vec![Arc::new(nulls.build().unwrap()), Arc::new(required("n", Type::INT32, None))];
    let root = SchemaType::group_type_builder("rows").with_fields(fields).build().unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(root), Default::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (values, levels) in [(&[][..], Some(&[0i16, 0][..])), (&[7, 8], None)] {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(values, levels, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    let bytes = writer.into_inner().unwrap();
    let dataset = block_on(files(std::slice::from_ref(&bytes)).into_future()).unwrap();
    block_on(infeed_data::dataset_contract(&*dataset)).unwrap();
    let names: Vec<&str> = dataset.schema().fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["n"]);
    let error = refused(files(&[bytes]).columns(["error_message"]));
    assert!(error.contains("column `error_message` is of nulls only, which is not read"), "{error}");
}

/// A file with a row of integers, in columns of these names.
fn integers(columns: &[(&str, i64)]) -> Vec<u8> {
    let fields = columns.iter().map(|(name, _)| Arc::new(required(name, Type::INT64, None))).collect();
    let root = SchemaType::group_type_builder("rows").with_fields(fields).build().unwrap();
    let properties = WriterProperties::builder().build();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(root), Arc::new(properties)).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, value) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int64Type>().write_batch(&[*value], None, None).unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn columns_are_found_by_name_in_each_file() {
    let all = [integers(&[("x", 1), ("y", 2)]), integers(&[("z", 6), ("y", 4), ("x", 3)]), integers(&[("y", 5)])];
    let dataset = block_on(files(&all[..2]).into_future()).unwrap();
    let row = |record| match &read(&*dataset, record).unwrap().values[..] {
        [Value::Array(x), Value::Array(y)] => [x, y].map(|bytes| i64::from_ne_bytes((&bytes[..]).try_into().unwrap())),
        other => panic!("{other:?}"),
    };
    assert_eq!((dataset.len(), row(0), row(1)), (2, [1, 2], [3, 4]));
    let error = block_on(files(&all).into_future()).unwrap_err().to_string();
    assert!(error.contains("no column `x`, which the first file has") && error.contains("2.parquet"), "{error}");
    let dataset = block_on(files(&all).columns(["y".to_owned()]).into_future()).unwrap();
    assert_eq!(dataset.len(), 3);
}
