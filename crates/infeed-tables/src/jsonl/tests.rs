use futures::executor::block_on;
use infeed_core::types::DType;
use infeed_data::{Field, FieldKind, dataset_contract, read_one::read};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use proptest::prelude::*;

use super::*;
use crate::open_source;

fn source_of(files: &[(&str, Vec<u8>)]) -> Source {
    let store = InMemory::new();
    for (name, bytes) in files {
        block_on(store.put(&Path::from(*name), bytes.clone().into())).unwrap();
    }
    Source::from_store(Arc::new(store), Path::default(), "test://x")
}

fn source(files: &[(&str, &str)]) -> Source {
    source_of(&files.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect::<Vec<_>>())
}

fn opened(text: &str) -> Result<Arc<dyn Dataset>> {
    block_on(open_source(source(&[("a.jsonl", text)])).into_future())
}

fn sound(text: &str) -> Arc<dyn Dataset> {
    let dataset = opened(text).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn shown(dataset: &dyn Dataset, record: u64) -> Vec<String> {
    let named = dataset.schema().fields.iter().zip(read(dataset, record).unwrap().values);
    let one = |(field, value): (&Field, Value)| {
        let bytes = match value {
            Value::Label(label) => return format!("{}={label}", field.name),
            Value::Bytes(bytes) => return format!("{}={}", field.name, String::from_utf8_lossy(&bytes)),
            Value::Texts(texts) => return format!("{}={texts:?}", field.name),
            Value::Array(bytes) | Value::List(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        let (FieldKind::Array { dtype, .. } | FieldKind::List { dtype, .. }) = field.kind else { panic!("{field:?}") };
        let numbers = bytes.chunks_exact(dtype.size()).map(|number| match dtype {
            DType::Bool => f64::from(number[0]),
            DType::I64 => i64::from_ne_bytes(number.try_into().unwrap()) as f64,
            DType::U64 => u64::from_ne_bytes(number.try_into().unwrap()) as f64,
            DType::F64 => f64::from_ne_bytes(number.try_into().unwrap()),
            other => panic!("{other}"),
        });
        format!("{}={:?}", field.name, numbers.collect::<Vec<_>>())
    };
    named.map(one).collect()
}

#[test]
fn keys_are_fields_of_the_kind_that_all_their_values_have() {
    // With a byte order mark, Windows' line ends, empty lines, and no end of the last line.
    let first = r#"{"text": "a \"cat\" ü", "label": 3, "x": 1, "ok": true, "tokens": [5, 9], "late": [],
        "box": [[0, 1], [2, 3.5]], "meta": {"id": 7}, "words": ["a"], "some": 4}"#;
    let second =
        r#"{"label": -1, "x": 0.5, "ok": false, "tokens": [], "late": [0.5], "box": [], "meta": null, "words": []}"#;
    let dataset = sound(&format!("\u{feff}{}\r\n\n  \n{second}", first.replace('\n', "")));
    assert_eq!((dataset.len(), dataset.format()), (2, "jsonl"));
    let kinds: Vec<(&str, &str)> =
        dataset.schema().fields.iter().map(|field| (field.name.as_str(), field.kind.name())).collect();
    let want = [
        ("label", "label"),
        ("box", "list"),
        ("late", "list"),
        ("meta", "text"),
        ("ok", "array"),
        ("some", "list"),
        ("text", "text"),
        ("tokens", "list"),
        ("words", "texts"),
        ("x", "array"),
    ];
    assert_eq!(kinds, want);
    assert!(
        matches!(&dataset.schema().fields[1].kind, FieldKind::List { dtype: DType::F64, item, .. } if item[..] == [2])
    );
    let first = [
        "label=3",
        "box=[0.0, 1.0, 2.0, 3.5]",
        "late=[]",
        "meta={\"id\": 7}",
        "ok=[1.0]",
        "some=[4.0]",
        "text=a \"cat\" ü",
        "tokens=[5.0, 9.0]",
        "words=[b\"a\"]",
        "x=[1.0]",
    ];
    assert_eq!(shown(&*dataset, 0), first);
    let second = [
        "label=-1",
        "box=[]",
        "late=[0.5]",
        "meta=",
        "ok=[0.0]",
        "some=[]",
        "text=",
        "tokens=[]",
        "words=[]",
        "x=[0.5]",
    ];
    assert_eq!(shown(&*dataset, 1), second);
}

#[test]
fn a_value_of_another_kind_beyond_what_is_examined_is_an_error_of_its_record() {
    let mut lines =
        vec![r#"{"n": 1, "text": "a", "list": [1], "words": ["b"], "box": [[1, 2]]}"#.to_owned(); FIRST + 10];
    let at = FIRST + 2;
    for (odd, key, what) in [
        (r#"{"n": "x", "text": "a"}"#, "n", "`\\\"x\\\"` is not an integer"),
        (r#"{"n": 1.5, "text": "a"}"#, "n", "`1.5` is not an integer"),
        (r#"{"text": "a"}"#, "n", "it has no value, and other records have one"),
        (r#"{"n": 1, "text": 7}"#, "text", "`7` is not a text"),
        (r#"{"n": 1, "list": [1, "x"]}"#, "list", "is not a list of numbers"),
        (r#"{"n": 1, "list": [[1]]}"#, "list", "is not a list of numbers"),
        (r#"{"n": 1, "words": ["a", 1]}"#, "words", "is not a list of texts"),
        (r#"{"n": 1, "box": [[1, 2], [3], [4]]}"#, "box", "is not a list of numbers"),
    ] {
        lines[at] = odd.to_owned();
        let dataset = opened(&lines.join("\n")).unwrap();
        assert!(read(&*dataset, at as u64 - 1).is_ok());
        let error = read(&*dataset, at as u64).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains(&format!("a.jsonl, key {key}")), "{error}");
        assert!(error.contains("omit the field with columns"), "{error}");
    }
    lines[at] = "{\"n\": 1".to_owned();
    let error = read(&*opened(&lines.join("\n")).unwrap(), at as u64).unwrap_err().to_string();
    assert!(error.contains("the record is not a JSON object") && error.contains("a.jsonl"), "{error}");
}

/// The lines with another one at the end.
fn and(count: usize, line: &str, last: &str) -> String {
    format!("{}{last}\n", format!("{line}\n").repeat(count))
}

/// What opening warns of.
fn doubted(text: &str) -> Doubts {
    let records: Vec<_> = text.lines().map(|line| object(line.as_bytes()).unwrap()).collect();
    let numbers: Vec<u64> = (100..).take(records.len()).collect();
    doubts(&records, &numbers, &kinds(&records), |_| false)
}

#[test]
fn an_odd_value_changes_no_text_of_other_records() {
    for (odd, want) in [("3", "3"), ("true", "true"), ("{\"a\": \"b\"}", "{\"a\": \"b\"}"), ("[\"x\"]", "[\"x\"]")] {
        let text = and(40, r#"{"answer": "yes \u00fc"}"#, &format!("{{\"answer\": {odd}}}"));
        let dataset = sound(&text);
        assert_eq!(dataset.schema().fields[0].kind.name(), "text");
        assert_eq!(shown(&*dataset, 0), ["answer=yes ü"]);
        assert_eq!(shown(&*dataset, 40), [format!("answer={want}")]);
        assert_eq!(doubted(&text), Doubts { mixed: vec!["answer (record 140)".to_owned()], ..Doubts::default() });
    }
    // Half of a surrogate pair is no text, and a null is no item of a list: bad samples.
    for (line, odd, first, why) in [
        (r#"{"answer": "yes"}"#, r#"{"answer": "\ud83d"}"#, "answer=yes", "is not a text"),
        (r#"{"tags": ["a", "b"]}"#, r#"{"tags": ["a", null]}"#, "tags=[b\"a\", b\"b\"]", "is not a list of texts"),
        (r#"{"n": [1, 2]}"#, r#"{"n": [1, null]}"#, "n=[1.0, 2.0]", "is not a list of numbers"),
    ] {
        let text = and(40, line, odd);
        let dataset = opened(&text).unwrap();
        assert_eq!(shown(&*dataset, 0), [first]);
        let error = read(&*dataset, 40).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("omit the field"), "{error}");
        let found = doubted(&text);
        assert!(found.bad[0].contains("(record 140): ") && found.bad[0].contains(why), "{found:?}");
    }
    // Objects, empty lists and nulls are no surprise; lists of several lengths are.
    for line in [r#"{"a": {"b": 1}, "c": [], "d": "x"}"#, r#"{"a": [{"b": 1}], "c": [1], "d": "x"}"#] {
        assert_eq!(doubted(&and(2, line, r#"{"a": null, "c": [], "d": null}"#)), Doubts::default());
    }
    let found = doubted(&and(2, r#"{"box": [[1, 2]]}"#, r#"{"box": [[1, 2, 3]]}"#));
    assert_eq!(found.mixed, ["box (record 102)"]);
}

#[test]
fn a_record_without_a_label_is_a_bad_sample_and_other_numbers_are_lists() {
    for last in [r#"{"label": null, "score": null}"#, "{}"] {
        let text = and(40, r#"{"label": 7, "score": 0.5}"#, last);
        let dataset = opened(&text).unwrap();
        let kinds: Vec<&str> = dataset.schema().fields.iter().map(|field| field.kind.name()).collect();
        assert_eq!(kinds, ["label", "list"]);
        assert_eq!(shown(&*dataset, 0), ["label=7", "score=[0.5]"]);
        let error = read(&*dataset, 40).unwrap_err().to_string();
        assert!(error.contains("a.jsonl, key label") && error.contains("it has no value"), "{error}");
        assert!(error.contains("set field(\"label\", [\"list\"])"), "{error}");
        let bad = vec!["label (record 140): it has no value, and other records have one".to_owned()];
        assert_eq!(doubted(&text), Doubts { bad, lacking: vec!["score (record 140)".to_owned()], ..Doubts::default() });
        let open = open_source(source(&[("a.jsonl", &text)])).field("label", ["list"]);
        let dataset = block_on(open.into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!(shown(&*dataset, 40), ["label=[]", "score=[]"]);
    }
}

#[test]
fn texts_called_label_are_classes_if_classes_are_given() {
    let text = r#"{"a": "x", "label": "dog"}
        {"a": "y", "label": "cat"}
        {"a": "z", "label": "1"}
        {"a": "z", "label": "cow"}
        {"a": "z"}"#;
    let lines = || source(&[("a.jsonl", text)]);
    let classes = ["cat", "dog"].map(str::to_owned);
    let dataset = block_on(open_source(lines()).classes(classes).into_future()).unwrap();
    let labels: Vec<_> = (0..3).map(|record| shown(&*dataset, record)[0].clone()).collect();
    assert_eq!(
        (labels, dataset.schema().classes.as_ref().unwrap().len()),
        (["label=1", "label=0", "label=1"].map(str::to_owned).to_vec(), 2)
    );
    for (record, what) in [(3, "label `cow` is no number, and not among the 2 classes"), (4, "it has no value")] {
        let error = read(&*dataset, record).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("a.jsonl, key label"), "{error}");
    }
    assert_eq!(shown(&*sound(text), 3), ["a=z", "label=cow"]);
}

#[test]
fn integers_from_2_to_the_63_are_integers_of_64_bits() {
    let bytes = |text: &str| {
        let dataset = sound(text);
        let (FieldKind::Array { dtype, .. } | FieldKind::List { dtype, .. }) = dataset.schema().fields[0].kind else {
            panic!("{:?}", dataset.schema())
        };
        let values = (0..dataset.len()).map(|record| match &read(&*dataset, record).unwrap().values[0] {
            Value::Array(bytes) | Value::List(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        });
        (dtype, values.collect::<Vec<_>>().concat())
    };
    let ids = [u64::MAX, u64::MAX - 1, 1 << 63, 5];
    let one: String = ids.iter().map(|id| format!("{{\"id\": {id}}}\n")).collect();
    let list = format!("{{\"id\": {ids:?}}}\n{{\"id\": []}}\n");
    for text in [one, list] {
        assert_eq!(bytes(&text), (DType::U64, ids.map(u64::to_ne_bytes).concat()));
        assert_eq!(doubted(&text), Doubts::default());
    }
    // What no integer of 64 bits holds is rounded, with a warning; exact fractions are none.
    let rounded = |values: &str| {
        let text: String = values.split(' ').map(|value| format!("{{\"id\": {value}}}\n")).collect();
        assert_eq!(bytes(&text).0, DType::F64, "{values}");
        doubted(&text).rounded
    };
    assert_eq!(rounded("1 18446744073709551616"), ["id (record 101)"]);
    assert_eq!(rounded("-1 18446744073709551615"), ["id (record 101)"]);
    assert_eq!(rounded("9007199254740993 2 0.5"), ["id (record 102)"]);
    assert_eq!(rounded("9007199254740992 1e300 -0.5"), [""; 0]);
    let labels = opened("{\"label\": 3}\n{\"label\": 18446744073709551615}\n").unwrap();
    assert_eq!(shown(&*labels, 0), ["label=3"]);
    assert!(read(&*labels, 1).unwrap_err().to_string().contains("is not an integer"));
}

#[test]
fn files_columns_and_splits_are_chosen_and_what_is_no_record_is_refused() {
    let (train, test) = ("{\"a\": 1, \"b\": \"x\"}\n{\"a\": 2, \"b\": \"y\"}\n", "{\"a\": 3, \"b\": \"z\"}\n");
    let both = || open_source(source(&[("train.jsonl", train), ("test.ndjson", test)]));
    let dataset = block_on(both().split("test").columns(["b"]).into_future()).unwrap();
    assert_eq!((dataset.len(), shown(&*dataset, 0)), (1, vec!["b=z".to_owned()]));
    assert!(block_on(both().into_future()).unwrap_err().to_string().contains("files of several splits: test, train"));
    let error = block_on(both().split("test").columns(["c"]).into_future()).unwrap_err().to_string();
    assert!(error.contains("no line has a key `c`") && error.contains("there are a, b"), "{error}");
    for (text, want) in [
        ("\n \n", "the files hold no lines"),
        ("[1]\n", "the record is not a JSON object"),
        ("{}\n{}", "the lines have no keys"),
        ("{\"a\": 1}\n{\"a\"", "the record is not a JSON object"),
    ] {
        let error = opened(text).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}

#[cfg(feature = "packed")]
#[test]
fn compressed_lines_are_those_of_the_file() {
    use std::{io::Write, ops::Range};

    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let line = |i: usize| format!("{{\"n\": {i}, \"text\": \"{}\"}}\n", "x".repeat(i % 9));
    let lines = |range: Range<usize>| range.map(line).collect::<String>();
    // Of two members, as appending makes them, one of which ends within a line; and none at all.
    let first = lines(0..300);
    let (head, tail) = first.split_at(1000);
    let source = source_of(&[
        ("a.jsonl.gz", [gzip(head), gzip(tail)].concat()),
        ("b.ndjson", lines(300..310).into_bytes()),
        ("c.jsonl.gz", gzip("\n")),
    ]);
    let kept = tempfile::tempdir().unwrap();
    let mut prints = Vec::new();
    for _ in 0..2 {
        let dataset = block_on(open_source(source.clone()).manifests(kept.path()).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!(dataset.len(), 310);
        for i in [0, 1, 299, 300, 309] {
            let want = [format!("n=[{i}.0]"), format!("text={}", "x".repeat(i % 9))];
            assert_eq!(shown(&*dataset, i as u64), want);
        }
        prints.push(dataset.fingerprint());
    }
    assert_eq!(prints[0], prints[1]);
    let list = source_of(&[("a.json.gz", gzip(&format!("[{}]", lines(0..300).trim_end().replace('\n', ",\n"))))]);
    let list = block_on(open_source(list).format("jsonl").into_future()).unwrap();
    block_on(dataset_contract(&*list)).unwrap();
    assert_eq!((list.len(), shown(&*list, 299)), (300, vec!["n=[299.0]".to_owned(), "text=xx".to_owned()]));
    let damaged = source_of(&[("a.jsonl.gz", gzip(&lines(0..300))[..500].to_vec())]);
    let error = block_on(open_source(damaged).into_future()).unwrap_err().to_string();
    assert!(error.contains("damaged gzip") && error.contains("a.jsonl.gz"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_give_values_or_an_error(
        raw in prop::collection::vec(any::<u8>(), 0..60), at in 0usize..100, flip in any::<u8>(),
    ) {
        let line = r#"{"n": 1, "text": "a", "list": [1, 2.5], "box": [[1, 2]], "ok": true, "label": 3}"#;
        let mut damaged = line.as_bytes().to_vec();
        let at = at.min(damaged.len() - 1);
        damaged[at] ^= flip;
        let columns = kinds(&[object(line.as_bytes()).unwrap()]);
        for bytes in [&raw, &damaged] {
            if let Ok(found) = object(bytes) {
                for (name, kind) in &columns {
                    let _ = kind.value(found.get(name).map(|value| value.get()));
                }
                let own = kinds(&[found]);
                own.iter().for_each(|(name, kind)| drop(kind.field(name, 9)));
            }
            let list = [b"[{\"n\": 2},", &bytes[..], b"]"].concat();
            if let Ok(dataset) = block_on(open_source(source_of(&[("a.jsonl", list)])).into_future()) {
                (0..dataset.len()).for_each(|record| drop(read(&*dataset, record)));
            }
        }
    }
}
