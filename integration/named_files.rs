//! Images that the records of a table name: JSON lines, lists of JSON, Parquet, and Hugging Face's tables of several
//! images a record.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    Error, ErrorKind, Loader, OnBadSample, Order, Result, Transform,
    dataset::{Dataset, FieldKind, Open, SampleRng, Value, dataset_contract, open, open_source},
};
use parquet::data_type::{ByteArray, ByteArrayType};
use tempfile::TempDir;

use crate::{
    parquet::one_column,
    support::{builder, files_below, store::Tracker},
};

/// A folder of files and their contents.
fn tree<'a>(files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    dir
}

/// A folder with a table and files whose content is their name.
fn named(table: (&str, &str), files: &[&str]) -> TempDir {
    let files = files.iter().map(|name| (*name, name.as_bytes()));
    tree(files.chain([(table.0, table.1.as_bytes())]))
}

fn at(dir: &TempDir) -> Open {
    open(dir.path().to_str().unwrap())
}

fn lines_of(dir: &TempDir) -> Open {
    at(dir).format("jsonl")
}

fn sound(open: Open) -> Result<Arc<dyn Dataset>> {
    let dataset = block_on(open.into_future())?;
    match block_on(dataset_contract(&*dataset)) {
        // A bad sample, which is no matter of the contract.
        Err(error) if error.kind() == ErrorKind::Corrupt => {}
        found => found.unwrap(),
    }
    Ok(dataset)
}

pub(crate) fn read(dataset: &dyn Dataset, record: u64) -> Result<Vec<Value>> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let mut bytes: Vec<Bytes> = plan.extents.iter().map(|extent| block_on(extent.read())).collect::<Result<_>>()?;
    for part in &plan.shared {
        let read = part.extents.iter().map(|extent| block_on(extent.read())).collect::<Result<Vec<_>>>()?;
        bytes.push(dataset.decode_shared(part.key, &read)?);
    }
    Ok(dataset.parse(record, &plan, &bytes)?.values.into_vec())
}

/// The fields of a record: an image by the content of its file.
fn shown(dataset: &dyn Dataset, record: u64) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let one = |value: &Value| match value {
        Value::Encoded(file) => text(file),
        Value::Images(all) => {
            let each = all.iter().map(|image| match image {
                Value::Encoded(file) => text(file),
                other => panic!("{other:?}"),
            });
            format!("[{}]", each.collect::<Vec<_>>().join(" "))
        }
        Value::Bytes(bytes) => format!("'{}'", text(bytes)),
        Value::Label(label) => label.to_string(),
        other => panic!("{other:?}"),
    };
    let values = match read(dataset, record) {
        Ok(values) => values,
        Err(error) => return error.to_string(),
    };
    let named = dataset.schema().fields.iter().zip(&values).map(|(field, value)| {
        let mask = if field.mask { "*" } else { "" };
        format!("{}{mask}={}", field.name, one(value))
    });
    named.collect::<Vec<_>>().join(" ")
}

/// All records, or the error of opening.
fn told(open: Open) -> Vec<String> {
    match sound(open) {
        Ok(dataset) => (0..dataset.len()).map(|record| shown(&*dataset, record)).collect(),
        Err(error) => vec![error.to_string()],
    }
}

#[test]
fn lines_that_name_images_hold_these_images() {
    let one = "{\"image\": \"a/1.png\", \"q\": \"x\"}\n{\"image\": \"a/2.png\", \"q\": \"y\"}\n";
    let files = ["a/1.png", "a/2.png", "a/3.png"];
    let dir = named(("train.jsonl", one), &files);
    assert_eq!(told(lines_of(&dir)), ["image=a/1.png q='x'", "image=a/2.png q='y'"]);
    // A record without an image, and one with several, make it a list.
    let several = "{\"image\": \"a/1.png\", \"q\": \"x\"}\n{\"q\": \"y\"}\n{\"image\": null, \"q\": \"z\"}\n";
    let dir = named(("train.jsonl", several), &files);
    assert_eq!(told(lines_of(&dir)), ["image=[a/1.png] q='x'", "image=[] q='y'", "image=[] q='z'"]);
    let several = "{\"images\": [\"a/3.png\", \"a/1.png\"]}\n{\"images\": []}\n{\"images\": [\"a/3.png\"]}\n";
    let dir = named(("train.jsonl", several), &files);
    assert_eq!(told(lines_of(&dir)), ["images=[a/3.png a/1.png]", "images=[]", "images=[a/3.png]"]);
    let dataset = sound(lines_of(&dir)).unwrap();
    assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Images { most: 2, .. }));
    // Two fields, one of which is a mask by its name; several records of one image.
    let pairs =
        "{\"image\": \"a/1.png\", \"gt_mask\": \"a/2.png\"}\n{\"image\": \"a/1.png\", \"gt_mask\": \"a/3.png\"}\n";
    let dir = named(("train.jsonl", pairs), &files);
    assert_eq!(told(lines_of(&dir)), ["gt_mask*=a/2.png image=a/1.png", "gt_mask*=a/3.png image=a/1.png"]);
    // What the user says comes first.
    let text = |text: &str| text.replace("image=a/1.png", "image='a/1.png'");
    let all = told(lines_of(&dir).field("image", ["text"]));
    assert_eq!(all, ["gt_mask*=a/2.png image=a/1.png", "gt_mask*=a/3.png image=a/1.png"].map(text));
    let all = told(lines_of(&dir).field("image", ["files"]).field("gt_mask", ["files"]).field("gt_mask", ["image"]));
    assert_eq!(all[0], "gt_mask=a/2.png image=a/1.png");
    // Without lines' format it is a folder of images, as before.
    assert_eq!(sound(at(&dir)).unwrap().format(), "folder");
}

#[test]
fn names_are_relative_to_the_table_or_the_place_and_never_guessed() {
    let files = ["train/img/1.png", "train/img/2.png", "val/img/1.png", "other/7.png"];
    let line = |name: &str| format!("{{\"image\": \"{name}\"}}\n");
    let open_one = |names: &[&str]| {
        let table: String = names.iter().map(|name| line(name)).collect();
        told(lines_of(&named(("train/t.jsonl", &table), &files)))
    };
    // The table's folder comes first: `img/1.png` is there twice.
    assert_eq!(open_one(&["img/1.png", "./img/2.png"]), ["image=train/img/1.png", "image=train/img/2.png"]);
    assert_eq!(open_one(&["other/7.png", "val/img/1.png"]), ["image=other/7.png", "image=val/img/1.png"]);
    assert_eq!(open_one(&["/anywhere/other/7.png"]), ["image=other/7.png"]);
    assert_eq!(open_one(&["other/7"])[0], "image='other/7'", "a text without an extension is no name by itself");
    let dir = named(("train/t.jsonl", &line("other/7")), &files);
    assert_eq!(told(lines_of(&dir).field("image", ["files"])), ["image=other/7.png"]);
    // Ends of names are compared only if no name is there as a whole, whichever comes first.
    let dir = named(("t.jsonl", &[line("1.png"), line("2.png")].concat()), &["thumbs/1.png", "thumbs/2.png", "2.png"]);
    let all = told(lines_of(&dir));
    assert!(all[0].contains("there is no file `1.png`") && all[1] == "image=2.png", "{all:?}");
    let dir = named(("t.jsonl", &[line("x.png"), line("1.png")].concat()), &["thumbs/1.png"]);
    let all = told(lines_of(&dir));
    assert!(all[0].contains("there is no file `x.png`") && all[1] == "image=thumbs/1.png", "{all:?}");
    // Full paths of this place.
    let dir = named(("t.jsonl", ""), &files);
    fs::write(dir.path().join("t.jsonl"), line(dir.path().join("other/7.png").to_str().unwrap())).unwrap();
    assert_eq!(told(lines_of(&dir)), ["image=other/7.png"]);
    // A name that is there twice, and none that is there.
    let dir = named(("t.jsonl", &line("1.png")), &files);
    let error = told(lines_of(&dir)).concat();
    assert!(error.contains("`1.png` may be `train/img/1.png` or `val/img/1.png`"), "{error}");
    let dir = named(("t.jsonl", &line("x.png")), &files);
    assert_eq!(told(lines_of(&dir)), ["image='x.png'"]);
    let error = told(lines_of(&dir).field("image", ["files"])).concat();
    assert!(error.contains("no text of `image` names an image: the first is `x.png`"), "{error}");
    // Neither another extension nor another number is the same file.
    let dir = named(("t.jsonl", &[line("other/7.png"), line("other/07.png"), line("other/7.jpg")].concat()), &files);
    let all = told(lines_of(&dir).field("image", ["files"]));
    assert_eq!(all[0], "image=other/7.png");
    assert!(all[1].contains("there is no file `other/07.png`, which `image` names"), "{}", all[1]);
    assert!(all[2].contains("there is no file `other/7.jpg`"), "{}", all[2]);
    let error = told(lines_of(&dir).field("nothing", ["files"])).concat();
    assert!(
        error.contains("there is no field `nothing` with names of files") && error.contains("there are image"),
        "{error}"
    );
    let error = told(at(&dir).split("train").field("image", ["files"])).concat();
    assert!(error.contains("`image` is image, which can't be read as files"), "{error}");
}

#[test]
fn a_file_of_lines_names_images_in_its_folder() {
    let dir = named(("t.jsonl", "{\"image\": \"a/1.png\"}\n"), &["a/1.png"]);
    let file = dir.path().join("t.jsonl");
    let file = file.to_str().unwrap();
    assert_eq!(told(open(file)), ["image='a/1.png'"]);
    assert_eq!(told(open(file).field("image", ["files"])), ["image=a/1.png"]);
    // Images elsewhere. Where the names begin is for their ends to say.
    let other = named(("notes.txt", "x"), &["x/a/1.png", "y/2.png"]);
    let root = |name: &str| open(file).image_root(other.path().join(name).to_str().unwrap());
    assert_eq!(told(root("x")), ["image=x/a/1.png"]);
    assert_eq!(told(root("x/a")), ["image=x/a/1.png"]);
    assert_eq!(told(root("")), ["image=x/a/1.png"]);
    let error = told(root("y")).concat();
    assert!(error.contains("the first is `a/1.png`, the first image is `2.png`"), "{error}");
    let error = told(root("x").field("image", ["text"])).concat();
    assert!(error.contains("image_root is set, but no field looks like names of images"), "{error}");
}

#[test]
fn a_list_of_json_is_read_as_lines_are() {
    let items = [
        r#"{"image": "a/1.png", "q": "[\"}\\\\\" , {"}"#,
        r#"{"image": "a/2.png", "q": "", "deep": [[{"x": "]"}]]}"#,
        r#"{"image": "a/1.png", "q": "ü, \\"}"#,
    ];
    let want = [
        "deep='' image=a/1.png q='[\"}\\\\\" , {'",
        "deep='[[{\"x\": \"]\"}]]' image=a/2.png q=''",
        "deep='' image=a/1.png q='ü, \\'",
    ];
    for (between, around) in [(",", ["[", "]"]), (" ,\n  ", ["\u{feff} [\n", "\n]\n\n"])] {
        let text = [around[0], &items.join(between), around[1]].concat();
        let dir = named(("all.json", &text), &["a/1.png", "a/2.png"]);
        assert_eq!(told(lines_of(&dir)), want);
        let file = dir.path().join("all.json");
        assert_eq!(sound(open(file.to_str().unwrap())).unwrap().len(), 3);
    }
    // Without the format a list is recognised if nothing is beside it, and nothing else is.
    assert_eq!(told(at(&named(("all.json", "[{\"a\": \"x\"}]"), &[]))), ["a='x'"]);
    for other in ["{\"images\": [], \"annotations\": []}", "{\"a\": 1}\n{\"a\": 2}\n", ""] {
        let said = told(at(&named(("all.json", other), &[]))).concat();
        assert!(
            said.contains("not a list of JSON objects") && said.contains("COCO") && said.contains("jsonl"),
            "{said}"
        );
    }
    for (text, error) in [
        ("[{\"a\": 1}", "the list of records has no end"),
        ("[{\"a\": 1}] {}", "byte 11 comes after the end of the list"),
        ("[]", "the files hold no lines"),
        ("[7]", "the record is not a JSON object"),
        ("{\"images\": [],\n \"annotations\": []}", "the record is not a JSON object"),
        ("{\"a\": 1} {\"a\": 2}\n", "the line holds more than a JSON object"),
    ] {
        let said = told(lines_of(&named(("all.json", text), &[]))).concat();
        assert!(said.contains(error), "{text}: {said}");
    }
}

#[test]
fn columns_of_parquet_name_images_if_the_user_says_so() {
    let names = ["a/1.png", "a/2.png", "a/1.png"].map(ByteArray::from);
    let file = one_column::<ByteArrayType>(
        "required binary image (UTF8);",
        parquet::file::properties::WriterProperties::builder(),
        &names,
    );
    let dir = tree([("t.parquet", &file[..]), ("a/1.png", b"one"), ("a/2.png", b"two")]);
    assert_eq!(told(at(&dir).format("parquet").field("image", ["files"])), ["image=one", "image=two", "image=one"]);
    assert_eq!(told(at(&dir).format("parquet"))[1], "image='a/2.png'");
}

#[test]
fn tables_of_hugging_face_list_records_of_several_images() {
    let files = ["a.png", "b.png", "m/c.png"];
    let table =
        "{\"file_names\": [\"b.png\", \"a.png\"], \"label\": 3}\n{\"file_names\": [\"m/c.png\"], \"label\": 1}\n";
    let dir = named(("metadata.jsonl", table), &files);
    assert_eq!(told(at(&dir)), ["label=3 images=[b.png a.png]", "label=1 images=[m/c.png]"]);
    assert_eq!(sound(at(&dir)).unwrap().format(), "folder");
    let table = "{\"file_name\": \"a.png\", \"right_file_name\": \"b.png\", \"mask_file_name\": \"m/c.png\"}\n";
    let dir = named(("metadata.jsonl", table), &files);
    assert_eq!(told(at(&dir)), ["image=a.png mask*=m/c.png right=b.png"]);
    let table = "{\"file_name\": \"a.png\", \"frames_file_names\": [\"b.png\", \"m/c.png\"], \"original_file_name\": \"x.png\"}\n";
    let dir = named(("metadata.jsonl", table), &files);
    assert_eq!(told(at(&dir)), ["image=a.png frames=[b.png m/c.png] original_file_name='x.png'"]);
    // A table in each split.
    let lines = "{\"file_names\": [\"1.png\"]}\n";
    let of = |name: &'static str, text: &'static str| (name, text.as_bytes());
    let dir = tree([
        of("train/metadata.jsonl", lines),
        of("train/1.png", "train"),
        of("test/metadata.jsonl", lines),
        of("test/1.png", "test"),
    ]);
    assert_eq!(told(at(&dir).split("test")), ["images=[test]"]);
    assert!(told(at(&dir)).concat().contains("test, train"));
    // What has no such list in its text, and options that do not go with it.
    let dir = named(("metadata.csv", "file_name,right_file_name\na.png,b.png\n"), &files);
    assert!(told(at(&dir)).concat().contains("several images of a record are not read from CSV"));
    let dir = named(("metadata.jsonl", table), &files);
    let error = told(at(&dir).labels_only(true)).concat();
    assert!(error.contains("tables whose records have several images") && error.contains("labels_only"), "{error}");
}

/// Four photographs, and lines with one or two of them.
fn photographs() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    crate::support::photos::write(dir.path(), 4, 1);
    let files = files_below(dir.path());
    let names: Vec<String> =
        files.iter().map(|file| file.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned()).collect();
    let [a, b, c, d] = &names[..] else { panic!("{names:?}") };
    let lines = [vec![a, b], vec![c], vec![d, a]].map(|names| serde_json::json!({ "images": names }).to_string());
    fs::write(dir.path().join("t.jsonl"), lines.join("\n")).unwrap();
    dir
}

fn loader(dir: &Path, bad: OnBadSample) -> Result<Loader> {
    let dataset = open(dir.to_str().unwrap()).format("jsonl").blocking()?;
    let transform = Transform::new().resize_exact(8, 8);
    builder(dataset).batch_size(3).on_bad_sample(bad).transform(transform).build_blocking()
}

#[test]
fn images_are_decoded_and_a_bad_one_is_named_by_its_file() {
    let dir = photographs();
    let batches: Vec<_> =
        loader(dir.path(), OnBadSample::Stop).unwrap().epoch(0).blocking().collect::<Result<_>>().unwrap();
    let images = batches[0].list("images").unwrap();
    assert_eq!(images.offsets().as_slice::<i64>(), Some(&[0, 2, 3, 5][..]));
    assert_eq!(images.values().shape(), [5, 3, 8, 8]);
    let of = |n: usize| images.values().as_slice::<f32>().map(|all| all[n * 192..][..192].to_vec());
    assert!(of(0) == of(4) && of(0) != of(1), "the first photograph comes twice");
    // The second image of the first record.
    let files = files_below(dir.path());
    let second = files.iter().filter(|file| file.extension().is_some_and(|end| end != "jsonl")).nth(1).unwrap();
    fs::write(second, b"no photograph").unwrap();
    let error: Error = loader(dir.path(), OnBadSample::Stop).unwrap().epoch(0).blocking().next().unwrap().unwrap_err();
    let text = error.to_string();
    assert!(text.contains(second.file_name().unwrap().to_str().unwrap()) && text.contains("images[1]"), "{text}");
    // A file that is gone.
    fs::remove_file(second).unwrap();
    let error: Error = loader(dir.path(), OnBadSample::Stop).unwrap().epoch(0).blocking().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("there is no file"), "{error}");
    let skip = OnBadSample::Skip { at_most: 1 };
    let batches: Vec<_> = loader(dir.path(), skip).unwrap().epoch(0).blocking().collect::<Result<_>>().unwrap();
    let mut left: Vec<u64> = batches.iter().flat_map(|batch| batch.records().to_vec()).collect();
    left.sort_unstable();
    assert_eq!(left, [1, 2]);
}

/// The images of the batches of an epoch in order.
fn images(dataset: Arc<dyn Dataset>) -> Vec<f32> {
    let transform = Transform::new().resize_exact(8, 8);
    let loader = builder(dataset).batch_size(4).order(Order::Sequential).transform(transform);
    let rows = loader.build_blocking().unwrap().epoch(0).blocking().map(|batch| {
        let batch = batch.unwrap();
        batch["image"].as_slice::<f32>().unwrap().to_vec()
    });
    rows.flatten().collect()
}

#[test]
fn tables_of_any_format_and_place_bring_the_same_images() {
    let dir = tempfile::tempdir().unwrap();
    crate::support::photos::write(dir.path(), 12, 3);
    let files: Vec<(String, Vec<u8>)> = files_below(dir.path())
        .into_iter()
        .map(|file| (file.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned(), fs::read(&file).unwrap()))
        .collect();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).rev().collect();
    let lines: String = names.iter().map(|name| format!("{{\"image\": \"{name}\"}}\n")).collect();
    let list = format!("[{}]", lines.trim_end().replace('\n', ","));
    let columns: Vec<ByteArray> = names.iter().map(|name| ByteArray::from(*name)).collect();
    let properties = parquet::file::properties::WriterProperties::builder();
    let column = one_column::<ByteArrayType>("required binary image (UTF8);", properties, &columns);
    let tables = [
        ("jsonl", "t.jsonl", lines.into_bytes()),
        ("jsonl", "t.json", list.into_bytes()),
        ("parquet", "t.parquet", column),
    ];
    let mut all = Vec::new();
    for (format, name, table) in tables {
        fs::write(dir.path().join(name), &table).unwrap();
        let open = at(&dir).format(format).field("image", ["files"]);
        all.push(images(open.blocking().unwrap()));
        fs::remove_file(dir.path().join(name)).unwrap();
        let store = Tracker::holding(files.iter().cloned().chain([(name.to_owned(), table)]));
        let open = open_source(store.source()).format(format).field("image", ["files"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        all.push(images(runtime.block_on(open.into_future()).unwrap()));
    }
    assert_eq!(all[0].len(), 12 * 192);
    assert!(all.iter().all(|images| *images == all[0]));
    let folder = images(at(&dir).blocking().unwrap());
    let reversed: Vec<f32> = folder.chunks(192).rev().flatten().copied().collect();
    assert!(all[0] == reversed, "records are in the order of the table");
}

#[test]
fn another_file_of_a_record_is_another_dataset() {
    let print = |names: [&str; 2], files: &[&str]| {
        let lines = names.map(|name| format!("{{\"image\": \"{name}\"}}\n")).concat();
        sound(lines_of(&named(("t.jsonl", &lines), files))).unwrap().fingerprint()
    };
    let files = ["a.png", "b.png", "c.png"];
    let one = print(["a.png", "b.png"], &files);
    assert_eq!(print(["a.png", "b.png"], &files[..2]), one, "files that no record has do not count");
    assert_ne!(print(["b.png", "a.png"], &files), one);
    assert_ne!(print(["a.png", "c.png"], &files), one);
}

#[test]
fn names_in_a_bucket_are_read_in_few_requests() {
    let name = |i: usize| format!("a/{i}.png");
    let table: String = (0..2000).map(|i| format!("{{\"image\": \"{}\"}}\n", name(1999 - i))).collect();
    let files = (0..2000).map(|i| (name(i), format!("file {i}").into_bytes()));
    let store = Tracker::holding(files.chain([("t.jsonl".to_owned(), table.into_bytes())]));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dataset = runtime.block_on(open_source(store.source()).format("jsonl").into_future()).unwrap();
    // The index, the lines that are examined, and all names.
    assert!(store.requests() < 10, "{} requests", store.requests());
    assert_eq!(dataset.plan(3, SampleRng::new(0, 0, 3)).unwrap().extents[1].name.as_ref(), "a/1996.png");
}
