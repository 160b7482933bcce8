//! Values inside texts of JSON that are fields of their own: of tars, tables and lines alike.

use std::{fs, sync::Arc};

use futures::executor::block_on;
use infeed::{
    DType, ErrorKind, OnBadSample, Result,
    dataset::{Dataset, FieldKind, Open, Value, dataset_contract, open},
};
use parquet::{
    data_type::{ByteArray, ByteArrayType},
    file::properties::WriterProperties,
};
use tempfile::TempDir;

use crate::{
    named_files::read,
    parquet::one_column,
    shards::pack,
    support::{builder, drain},
};

const BOXES: [&str; 3] = [
    r#"{"score": 1, "cat": 3, "boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "at": {"bbox": [1, 2.5]}, "tags": ["a", "b"]}"#,
    r#"{"score": 0.5, "cat": -1, "boxes": [], "at": {"bbox": [3, 4], "by": "x\ty"}, "tags": []}"#,
    r#"{"score": 2, "cat": 7, "at": {"bbox": [0, 0]}, "boxes": [[9, 9, 9.5, 9]], "tags": null}"#,
];

/// A tar whose samples have a member each.
fn tar_of(extension: &str, texts: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = |(i, text): (usize, &&str)| (format!("{i:03}.{extension}"), text.as_bytes().to_vec());
    fs::write(dir.path().join("a.tar"), pack(&texts.iter().enumerate().map(file).collect::<Vec<_>>())).unwrap();
    dir
}

fn opened(dir: &TempDir, fields: &[(&str, &str)]) -> Result<Arc<dyn Dataset>> {
    let open = open(dir.path().to_str().unwrap());
    let open = fields.iter().fold(open, |open: Open, (name, word)| open.field(*name, [*word]));
    block_on(open.into_future())
}

fn refused(dir: &TempDir, field: (&str, &str)) -> String {
    let error = opened(dir, &[field]).expect_err("no such field");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    error.to_string()
}

/// The values of a field, one text for each record, or the error.
fn values(dataset: &dyn Dataset, field: &str) -> Vec<String> {
    let at = dataset.schema().fields.iter().position(|of| of.name == field).unwrap();
    let kind = &dataset.schema().fields[at].kind;
    let numbers = |bytes: &[u8]| match kind {
        FieldKind::List { dtype: DType::I64, .. } | FieldKind::Array { dtype: DType::I64, .. } => {
            let numbers = bytes.chunks_exact(8).map(|number| i64::from_ne_bytes(number.try_into().unwrap()));
            format!("{:?}", numbers.collect::<Vec<_>>())
        }
        _ => {
            let numbers = bytes.chunks_exact(8).map(|number| f64::from_ne_bytes(number.try_into().unwrap()));
            format!("{:?}", numbers.collect::<Vec<_>>())
        }
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let value = |record| match read(dataset, record).map(|values| values[at].clone()) {
        Ok(Value::List(bytes) | Value::Array(bytes)) => numbers(&bytes),
        Ok(Value::Texts(texts)) => {
            format!("{:?}", texts.iter().map(|bytes| text(bytes)).collect::<Vec<_>>())
        }
        Ok(Value::Label(label)) => label.to_string(),
        Ok(Value::Bytes(bytes)) => text(&bytes),
        Ok(other) => panic!("{other:?}"),
        Err(error) => error.to_string(),
    };
    (0..dataset.len()).map(value).collect()
}

/// The same values in a tar, in a column of Parquet, and in JSON lines.
fn in_each_format() -> Vec<(TempDir, &'static str)> {
    let lines = tempfile::tempdir().unwrap();
    let line = |text: &&str| format!("{{\"json\": {text}}}\n");
    fs::write(lines.path().join("a.jsonl"), BOXES.iter().map(line).collect::<String>()).unwrap();
    let table = tempfile::tempdir().unwrap();
    let rows = BOXES.map(|text| ByteArray::from(text.as_bytes().to_vec()));
    let file = one_column::<ByteArrayType>("REQUIRED BYTE_ARRAY json (STRING);", WriterProperties::builder(), &rows);
    fs::write(table.path().join("a.parquet"), file).unwrap();
    vec![(tar_of("json", &BOXES), "tar"), (table, "parquet"), (lines, "jsonl")]
}

#[test]
fn values_in_json_are_fields_if_they_are_declared() {
    for (dir, format) in in_each_format() {
        let declared = [
            ("json.score", "array"),
            ("json.cat", "label"),
            ("json.boxes", "list"),
            ("json.at.bbox", "array"),
            ("json.tags", "list"),
            ("json.at", "text"),
        ];
        let dataset = opened(&dir, &declared).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!(values(&*dataset, "json.score"), ["[1.0]", "[0.5]", "[2.0]"], "{format}");
        assert_eq!(values(&*dataset, "json.cat"), ["3", "-1", "7"]);
        let boxes = ["[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]", "[]", "[9.0, 9.0, 9.5, 9.0]"];
        assert_eq!(values(&*dataset, "json.boxes"), boxes);
        assert_eq!(values(&*dataset, "json.at.bbox"), ["[1.0, 2.5]", "[3.0, 4.0]", "[0.0, 0.0]"]);
        assert_eq!(values(&*dataset, "json.tags"), ["[\"a\", \"b\"]", "[]", "[]"]);
        assert_eq!(values(&*dataset, "json.at")[1], r#"{"bbox": [3, 4], "by": "x\ty"}"#);
        // The text itself stays.
        assert!(values(&*dataset, "json")[0].starts_with("{\"score\": 1"));
        let loader = builder(dataset).batch_size(3).build_blocking().unwrap();
        let batch = drain(loader.epoch(0)).unwrap().remove(0);
        assert_eq!(batch.list("json.boxes").unwrap().values().shape(), [3, 4]);
        assert_eq!(batch["json.at.bbox"].shape(), [3, 2]);
        assert_eq!(batch["json.cat"].as_slice::<i64>(), Some(&[3, -1, 7][..]));
    }
}

#[test]
fn filters_and_columns_go_with_declared_values() {
    let dir = tar_of("json", &BOXES);
    let open = open(dir.path().to_str().unwrap()).columns(["json", "key"]).field("json.cat", ["label"]);
    for (filter, want) in [("json.cat>=3", &["3", "7"][..]), ("json.boxes>=1", &["3", "7"]), ("json.score=2", &["7"])] {
        let open = open.clone().field("json.boxes", ["list"]).filter(filter.parse().unwrap());
        assert_eq!(values(&*block_on(open.into_future()).unwrap(), "json.cat"), want, "{filter}");
    }
    let dataset = block_on(open.into_future()).unwrap();
    let names: Vec<&str> = dataset.schema().fields.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["json", "key", "json.cat"]);
}

#[test]
fn a_whole_text_is_a_list_or_an_array_if_it_is_declared() {
    let dir = tar_of("tokens.json", &["[5, 9, 2]", "[7]", " []\n"]);
    let dataset = opened(&dir, &[("tokens", "list")]).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!(dataset.schema().fields.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(), ["tokens", "key"]);
    assert_eq!(values(&*dataset, "tokens"), ["[5, 9, 2]", "[7]", "[]"]);
    let numbers = tar_of("txt", &["0.5", "2"]);
    let dataset = opened(&numbers, &[("txt", "array")]).unwrap();
    assert_eq!(values(&*dataset, "txt"), ["[0.5]", "[2.0]"]);
    // Unless it is declared, it is a text.
    assert_eq!(values(&*opened(&dir, &[]).unwrap(), "tokens")[1], "[7]");
}

#[test]
fn a_declared_text_is_as_long_and_of_any_kind_as_it_comes() {
    let long = format!(r#"{{"t": "{}", "meta": {{"w": 1, "h": [1, 2]}}}}"#, "x".repeat(5000));
    let dir = tar_of("json", &[r#"{"t": "abc", "meta": {}}"#, r#"{"t": 5, "meta": null}"#, &long]);
    let dataset = opened(&dir, &[("json.t", "text"), ("json.meta", "text")]).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!(values(&*dataset, "json.t"), ["abc", "5", &"x".repeat(5000)]);
    assert_eq!(values(&*dataset, "json.meta"), ["{}", "", r#"{"w": 1, "h": [1, 2]}"#]);
    let loader = builder(dataset).batch_size(3).build_blocking().unwrap();
    assert_eq!(
        drain(loader.epoch(0)).unwrap()[0].texts("json.t").unwrap().map(str::len).collect::<Vec<_>>(),
        [3, 1, 5000]
    );
}

#[test]
fn what_the_first_records_do_not_have_is_refused() {
    let dir = tar_of("json", &BOXES);
    for (field, want) in [
        (("json.boxen", "list"), "none of the first 3 records has a value `json.boxen` in its JSON"),
        (
            ("json.boxes", "array"),
            "`json.boxes` is `[[1, 2, 3, 4], [5, 6, 7, 8]]` in JSON, which can't be read as array",
        ),
        (("json.boxes", "label"), "can't be read as label"),
        (("json.score", "label"), "can't be read as label"),
        (("json.cat", "mask"), "can't be read as mask"),
        (("json.at", "list"), "`json.at` is `{\"bbox\": [1, 2.5]}` in JSON, which can't be read as list"),
    ] {
        let error = refused(&dir, field);
        assert!(error.contains(&want.replace('"', "\\\"")) || error.contains(want), "{error}");
        assert!(error.contains("a.tar") || error.contains(dir.path().to_str().unwrap()), "{error}");
    }
    let error = opened(&dir, &[("jsn.cat", "label")]).unwrap_err();
    assert!(
        error.kind() == ErrorKind::NotFound && error.to_string().contains("there is no field `jsn.cat`"),
        "{error}"
    );
    let error = opened(&tar_of("txt", &["a cat", "a dog"]), &[("txt.x", "list")]).unwrap_err().to_string();
    assert!(
        error.contains("`a cat` is not JSON") && error.contains("a.tar") && error.contains("field txt.x"),
        "{error}"
    );
}

/// `count` records with three numbers, then these.
fn then(count: usize, later: &[&str]) -> TempDir {
    let first = r#"{"at": {"point": [1, 2, 3]}, "n": 4}"#;
    tar_of("json", &[vec![first; count], later.to_vec()].concat())
}

#[test]
fn later_records_of_another_kind_are_bad_samples_that_name_the_field() {
    let later = [
        r#"{"at": {"point": [1, 2]}, "n": 4}"#,
        r#"{"at": {"point": "x"}, "n": 4}"#,
        r#"{"at": 5, "n": 4}"#,
        r#"{"at": {"point": [1, 2, 3]}}"#,
        r#"{"at": {"point": [1, 2, 3]}, "n": 4"#,
        r#"{"at": {"point": [1, 2, 3]}, "n": 4.5}"#,
        "",
    ];
    let dir = then(64, &later);
    let dataset = opened(&dir, &[("json.at.point", "array"), ("json.n", "label")]).unwrap();
    let found = |field: &str| values(&*dataset, field).split_off(64);
    for (error, want) in found("json.n").iter().zip([
        "another length than in the first record",
        "`\\\"x\\\"` is not a list of numbers",
        "`5` is not a JSON object, so it has no key `point`",
        "it has no value, and other records have one",
        "is not JSON",
        "`4.5` is not an integer",
        "is not JSON",
    ]) {
        assert!(error.contains(want), "{error}");
        assert!(error.contains("a.tar") && error.contains("field json."), "{error}");
    }
    let loader =
        builder(dataset).batch_size(8).on_bad_sample(OnBadSample::Skip { at_most: 9 }).build_blocking().unwrap();
    let records: usize = drain(loader.epoch(0)).unwrap().iter().map(|batch| batch.valid()).sum();
    assert_eq!(records, 64);
}
