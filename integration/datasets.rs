//! What a user meets when opening datasets: formats are recognised, records are what the files hold, and bad input gets
//! an error that says what, where and what to do.

use std::{env, fs, path::Path, process::Command, sync::Arc};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    Error, ErrorKind, Result,
    dataset::{
        Cifar, Dataset, Open, OpenOption, OpenOptions, Records, SampleRng, Value, concat, dataset_contract, formats,
        open, open_source, split, subset,
    },
    internal::process,
    source::Source,
};
use object_store::ObjectStoreExt;
use tempfile::TempDir;

use crate::support::{
    children::{end_of, piped},
    store::{Fault, Tracker},
};

/// A folder with these files, each holding its own name unless `content` says otherwise.
fn folder(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in files {
        write(dir.path(), name, name.as_bytes());
    }
    dir
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn at(dir: &TempDir) -> Open {
    open(dir.path().to_str().unwrap())
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn fails(open: Open, kind: ErrorKind, says: &[&str]) -> Error {
    let error = opened(open).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in says {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    error
}

pub(crate) fn values(dataset: &dyn Dataset, record: u64) -> Result<Vec<Value>> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let read: Result<Vec<Bytes>> = plan.extents.iter().map(|e| block_on(e.read())).collect();
    Ok(dataset.parse(record, &plan, &read?)?.values.into_vec())
}

/// Image bytes as text, and labels.
fn told(dataset: &dyn Dataset) -> Vec<(String, Vec<i64>)> {
    let tell = |record| {
        let (mut image, mut labels) = (String::new(), vec![]);
        for value in values(dataset, record).unwrap() {
            match value {
                Value::Encoded(bytes) => image = String::from_utf8(bytes.to_vec()).unwrap(),
                Value::Label(label) => labels.push(label),
                other => panic!("{other:?}"),
            }
        }
        (image, labels)
    };
    (0..dataset.len()).map(tell).collect()
}

fn labels(dataset: &dyn Dataset) -> Vec<i64> {
    told(dataset).into_iter().map(|(_, labels)| labels[0]).collect()
}

fn cifar(layout: Cifar, records: usize, label: u8) -> Vec<u8> {
    let size = layout.record_bytes();
    let mut bytes = vec![label; records * size];
    for (i, record) in bytes.chunks_mut(size).enumerate() {
        // The last pixel tells the record.
        record[size - 1] = i as u8;
    }
    bytes
}

#[test]
fn class_folders_label_images_by_sorted_folder_names() {
    let dir = folder(&["b dog/2.PNG", "b dog/sub/1.jpeg", "a%cat/1.JPG", "c/x.webp", "c/notes.txt", "c/.hidden.jpg"]);
    let dataset = sound(at(&dir));
    assert_eq!(dataset.format(), "folder");
    assert_eq!(&dataset.schema().classes.as_ref().unwrap()[..], ["a%cat", "b dog", "c"]);
    let want = [("a%cat/1.JPG", 0), ("b dog/2.PNG", 1), ("b dog/sub/1.jpeg", 1), ("c/x.webp", 2)];
    assert_eq!(told(&*dataset), want.map(|(name, label)| (name.to_owned(), vec![label])));
    assert_eq!(dataset.object(0), dir.path().join("a%cat/1.JPG").to_str().unwrap());
}

#[test]
fn a_flat_folder_has_no_label_field() {
    let dir = folder(&["2.jpg", "10.jpg", "x y.bmp"]);
    let dataset = sound(at(&dir));
    let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["image"]);
    assert_eq!(told(&*dataset).len(), 3);
    let one = sound(open(dir.path().join("2.jpg").to_str().unwrap()));
    assert_eq!(told(&*one), [("2.jpg".to_owned(), vec![])]);
}

#[test]
fn labels_come_from_a_file_inside_or_beside() {
    let dir = folder(&["b.jpg", "a.jpg", "sub/c.png"]);
    write(dir.path(), "labels.csv", b"file,label\nb.jpg,dog\na,cat\nsub/c.png,dog\n");
    let dataset = sound(at(&dir).labels("labels.csv"));
    assert_eq!(labels(&*dataset), [0, 1, 1]);
    assert_eq!(&dataset.schema().classes.as_ref().unwrap()[..], ["cat", "dog"]);

    let beside = folder(&[]);
    write(beside.path(), "l.json", br#"{"a.jpg": 7, "b.jpg": 8, "sub/c.png": 9}"#);
    let path = beside.path().join("l.json");
    assert_eq!(labels(&*sound(at(&dir).labels(path.to_str().unwrap()))), [7, 8, 9]);

    let store = Source::memory("labels-beside");
    let json = r#"[["a", 1], ["b", 0], ["sub/c", 1]]"#;
    block_on(store.put(&"l.json".into(), json.into())).unwrap();
    let given = ["no".to_owned(), "yes".to_owned()];
    assert_eq!(labels(&*sound(at(&dir).labels("memory://labels-beside/l.json").classes(given))), [1, 0, 1]);
}

#[test]
fn a_table_of_some_images_gives_those_alone_when_asked() {
    let dir = folder(&["x/0.png", "x/1.png", "x/2.png", "x/3.png"]);
    write(dir.path(), "train.txt", b"2.png 7\n0.png 5\n");
    let says = ["2 of 4 images have no label, the first is `x/1.png`", "or set labels_only(true)", "train.txt"];
    fails(at(&dir).labels("train.txt"), ErrorKind::NotFound, &says);
    let some = sound(at(&dir).labels("train.txt").labels_only(true));
    assert_eq!(told(&*some), [("x/0.png".to_owned(), vec![5]), ("x/2.png".to_owned(), vec![7])]);
    let named = sound(at(&dir).labels("train.txt").labels_only(true).records(listing(&dir, "x/2.png")));
    assert_eq!(labels(&*named), [7]);
    assert_ne!(some.fingerprint(), sound(at(&dir)).fingerprint());
    // Where each record has several files.
    let wells = folder(&["a_1.png", "a_2.png", "b_1.png", "b_2.png"]);
    write(wells.path(), "l.csv", b"well,dose,plate\nb,3,x\n");
    let open = || at(&wells).labels("l.csv").label_column("dose").channels("{name}_{channel}.png");
    fails(open(), ErrorKind::NotFound, &["1 of 2 images have no label"]);
    let one = sound(open().labels_only(true));
    assert!(
        matches!(&values(&*one, 0).unwrap()[..], [Value::Channels(files), Value::Label(3)] if files[1] == "b_2.png")
    );
    assert_eq!(one.len(), 1);
    // A table beside the images; and none.
    fails(at(&dir).labels_only(true), ErrorKind::Config, &["labels_only needs a file with labels, but there is none"]);
    fails(at(&dir).label_column("dose"), ErrorKind::Config, &["label_column needs a file with labels"]);
    write(dir.path(), "metadata.csv", b"file_name,label,text\nx/3.png,8,three\n");
    fails(at(&dir), ErrorKind::NotFound, &["3 of 4 images have no label", "labels_only(true)"]);
    let one = sound(at(&dir).labels_only(true));
    assert!(matches!(&values(&*one, 0).unwrap()[1..], [Value::Label(8), Value::Bytes(text)] if text == "three"));
    // Folders are classes of the images that are kept.
    write(dir.path(), "metadata.csv", b"file_name,text\nx/3.png,three\n");
    fails(at(&dir), ErrorKind::NotFound, &["3 of 4 images have no row", "labels_only(true)"]);
    let one = sound(at(&dir).labels_only(true));
    assert!(matches!(&values(&*one, 0).unwrap()[1..], [Value::Label(0), Value::Bytes(_)]));
}

/// A file with these words, beside a dataset.
fn listing(dir: &TempDir, words: &str) -> String {
    write(dir.path(), "listing.txt", words.as_bytes());
    dir.path().join("listing.txt").display().to_string()
}

#[test]
fn classes_carry_from_train_to_val() {
    let train = opened(at(&folder(&["cat/1.jpg", "dog/1.jpg", "eel/1.jpg"]))).unwrap();
    let classes = train.schema().classes.clone().unwrap();
    let val = folder(&["dog/1.jpg", "eel/1.jpg"]);
    assert_eq!(labels(&*opened(at(&val)).unwrap()), [0, 1]);
    let carried = sound(at(&val).classes(Arc::clone(&classes)));
    assert_eq!(labels(&*carried), [1, 2]);
    assert_eq!(carried.schema().classes.as_ref(), Some(&classes));
    assert!(concat([train, carried]).is_ok());
    let stranger = folder(&["dog/1.jpg", "fox/1.jpg"]);
    fails(at(&stranger).classes(classes), ErrorKind::Config, &["class `fox` is not among the 3 given", "/fox)"]);
    let twice = ["dog".to_owned(), "dog".to_owned()];
    fails(at(&val).classes(twice), ErrorKind::Config, &["class `dog` is given twice"]);
}

#[test]
fn splits_of_a_folder_are_chosen_by_name() {
    let dir = folder(&["train/a/1.jpg", "train/b/1.jpg", "val/b/2.jpg"]);
    fails(at(&dir), ErrorKind::Config, &["train, val hold splits", "split(\"train\")"]);
    let train = sound(at(&dir).split("train"));
    assert_eq!(labels(&*train), [0, 1]);
    let whole = opened(open(dir.path().join("train").to_str().unwrap())).unwrap();
    assert_eq!(train.fingerprint(), whole.fingerprint());
    assert_eq!(train.object(0), whole.object(0));
    fails(at(&dir).split("test"), ErrorKind::NotFound, &["no folder `test`", "train, val"]);
}

#[test]
fn cifar_files_are_joined_in_name_order() {
    let dir = folder(&[]);
    for (name, label) in [("data_batch_2.bin", 2), ("data_batch_1.bin", 1), ("test_batch.bin", 9)] {
        write(dir.path(), &format!("cifar-10-batches-bin/{name}"), &cifar(Cifar::Ten, 3, label));
    }
    let meta = "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n";
    write(dir.path(), "cifar-10-batches-bin/batches.meta.txt", meta.as_bytes());
    let train = sound(at(&dir));
    // Labels lie in the records, and once more beside each other.
    assert_eq!((train.format(), train.len(), train.resident_bytes()), ("cifar10", 6, 6 * 3073 + 6));
    assert_eq!(train.schema().classes.as_ref().unwrap()[3], "cat");
    let got = values(&*train, 4).unwrap();
    let [Value::Pixels { info, data }, Value::Label(2)] = &got[..] else { panic!("{got:?}") };
    assert_eq!((info.height, info.width, info.channels, info.planar, data[3071]), (32, 32, 3, true, 1));
    assert!(train.object(4).ends_with("data_batch_2.bin"));
    let test = sound(at(&dir).split("test"));
    assert_eq!(test.len(), 3);
    assert_ne!(test.fingerprint(), train.fingerprint());
    let one = dir.path().join("cifar-10-batches-bin/data_batch_2.bin");
    assert_eq!(sound(open(one.to_str().unwrap())).len(), 3);
    fails(at(&dir).split("val"), ErrorKind::Config, &["no split `val`", "train or test"]);
    fails(open(one.to_str().unwrap()).split("test"), ErrorKind::NotFound, &["no files of the split `test`"]);
    fails(at(&dir).classes(vec!["x".to_owned(); 10]), ErrorKind::Config, &["class `x` is called `airplane` here"]);
}

#[test]
fn cifar_100_has_coarse_and_fine_labels() {
    let dir = folder(&[]);
    write(dir.path(), "train.bin", &cifar(Cifar::Hundred, 4, 19));
    write(dir.path(), "any name.bin", &cifar(Cifar::Hundred, 2, 1));
    let dataset = sound(at(&dir));
    assert_eq!((dataset.format(), dataset.len()), ("cifar100", 4));
    let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["image", "coarse_label", "label"]);
    assert!(matches!(values(&*dataset, 0).unwrap()[1..], [Value::Label(19), Value::Label(19)]));
    let named = dir.path().join("any name.bin");
    assert_eq!(sound(open(named.to_str().unwrap()).format("cifar100")).len(), 2);
}

#[test]
fn damaged_cifar_files_name_file_size_and_record() {
    let dir = folder(&[]);
    let mut bytes = cifar(Cifar::Ten, 3, 1);
    bytes.pop();
    write(dir.path(), "data_batch_1.bin", &bytes);
    let says = ["9218 bytes are 2 whole 3073-byte records and 3072 bytes of another", "data_batch_1.bin"];
    fails(at(&dir), ErrorKind::Corrupt, &says);
    write(dir.path(), "data_batch_1.bin", b"");
    fails(at(&dir), ErrorKind::Corrupt, &["the file is empty", "data_batch_1.bin"]);

    let mut bytes = cifar(Cifar::Ten, 3, 1);
    bytes[2 * 3073] = 77;
    write(dir.path(), "data_batch_1.bin", &bytes);
    let dataset = opened(at(&dir)).unwrap();
    let error = values(&*dataset, 2).unwrap_err();
    assert!(error.is_sample());
    let text = error.to_string();
    assert!(text.starts_with("parse: the label is 77, there are 10 classes (record 2, "), "{text}");
    assert!(text.contains("data_batch_1.bin @ 6146..9219"), "{text}");
    values(&*dataset, 1).unwrap();

    write(dir.path(), "batches.meta.txt", b"one\ntwo\n");
    fails(at(&dir), ErrorKind::Corrupt, &["2 class names where 10 belong", "batches.meta.txt"]);
    fs::remove_file(dir.path().join("batches.meta.txt")).unwrap();
    write(dir.path(), "copy/data_batch_1.bin", &bytes);
    fails(at(&dir), ErrorKind::Config, &["two folders", "copy/data_batch_1.bin"]);
}

#[test]
fn what_is_not_there_is_named() {
    let dir = folder(&[]);
    let gone = dir.path().join("trian");
    fails(open(gone.to_str().unwrap()), ErrorKind::NotFound, &["no such file or folder", "trian", "exists"]);
    fails(at(&dir), ErrorKind::NotFound, &["there are no files", dir.path().to_str().unwrap()]);
    for name in ["a.txt", "b.txt", "c.zip", "README"] {
        write(dir.path(), name, b"x");
    }
    let says = [
        "no images, arrays, volumes, shards or CIFAR files",
        "2 .txt, 1 .zip, 1 without extension",
        ".jpg, .jpeg, .jpe",
    ];
    fails(at(&dir), ErrorKind::NotFound, &says);
    fails(at(&dir).format("folder"), ErrorKind::NotFound, &["no images: there are only 2 .txt"]);
    fails(at(&dir).format("cifar10"), ErrorKind::NotFound, &["no CIFAR files"]);
    fails(
        at(&dir).format("imagenet"),
        ErrorKind::Config,
        &[
            "unknown format `imagenet`",
            "cifar10, cifar100, volumes",
            "mds, coco, voc, yolo, folder, arrays, tar, tfrecord",
        ],
    );
    fails(open("s4://bucket/train"), ErrorKind::Config, &["unknown scheme `s4://`", "s3://", "synthetic://"]);
    fails(open("memory://no-such-store"), ErrorKind::NotFound, &["no in-memory store named \"no-such-store\""]);
}

#[test]
fn missing_labels_and_unknown_classes_are_named() {
    let dir = folder(&["a.jpg", "b.jpg", "c.jpg"]);
    write(dir.path(), "l.csv", b"a.jpg,cat\nzzz.jpg,dog\n");
    let says = ["2 of 3 images have no label, the first is `b.jpg`", "l.csv"];
    fails(at(&dir).labels("l.csv"), ErrorKind::NotFound, &says);
    let given = ["cat".to_owned()];
    let says = ["class `dog` of `zzz.jpg` is not among the 1 given", "l.csv"];
    fails(at(&dir).labels("l.csv").classes(given), ErrorKind::Config, &says);
    fails(at(&dir).labels("gone.csv"), ErrorKind::NotFound, &["gone.csv"]);
    write(dir.path(), "d.jpg", b"\xff\xd8\xff\xe0");
    fails(at(&dir).labels("d.jpg"), ErrorKind::Corrupt, &["UTF-8", "CSV", "d.jpg"]);
    let mixed = folder(&["cat/1.jpg", "stray.jpg"]);
    fails(at(&mixed), ErrorKind::Config, &["`stray.jpg`", "both in class folders and beside them"]);
}

#[test]
fn a_refused_listing_or_file_says_denied() {
    let tracker = Tracker::holding([("cat/1.jpg", "abc"), ("cat/2.jpg", "")]);
    let dataset = opened(open_source(tracker.source())).unwrap();
    tracker.fail("cat/1.jpg", Fault::Denied);
    let error = values(&*dataset, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().contains("fetch: access is refused (tracked://store/cat/1.jpg @ 0..3)"), "{error}");
    tracker.fail_list(Fault::Denied);
    fails(open_source(tracker.source()), ErrorKind::Denied, &["access is refused", "tracked://store"]);
}

#[test]
fn an_empty_file_is_a_record_whose_image_is_empty() {
    let dir = folder(&[]);
    write(dir.path(), "a/1.jpg", b"");
    write(dir.path(), "a/2.jpg", b"x");
    let dataset = sound(at(&dir));
    assert!(matches!(&values(&*dataset, 0).unwrap()[..], [Value::Encoded(b), Value::Label(0)] if b.is_empty()));
}

#[test]
fn opening_reads_nothing_and_each_record_one_object() {
    let names: Vec<String> = (0..50).map(|i| format!("set/{}/{i:02}.jpg", i % 5)).collect();
    let tracker = Tracker::holding(names.iter().map(|n| (n.clone(), n.clone())));
    let source = Source::from_store(Arc::<Tracker>::clone(&tracker), "set".into(), "tracked://store/set");
    let dataset = opened(open_source(source)).unwrap();
    assert_eq!((dataset.len(), tracker.requests(), tracker.lists()), (50, 0, 1));
    values(&*dataset, 49).unwrap();
    assert_eq!(tracker.names(), ["set/4/49.jpg"], "{:?}", tracker.log_of_requests());
    assert_eq!(tracker.bytes(), 12);
}

#[test]
fn short_and_lost_bodies_are_never_a_sample() {
    let tracker = Tracker::holding([("1.jpg", "0123456789")]);
    let [remote, inline] = [tracker.source(), tracker.inline_source()].map(|s| opened(open_source(s)).unwrap());
    for (fault, kind, says) in [
        (Fault::Short(4), ErrorKind::Io, "the answer holds 4 of the 10 bytes asked for"),
        (Fault::NotFound, ErrorKind::NotFound, "no such object"),
        (Fault::Io("the disk is on fire"), ErrorKind::Io, "cannot be read"),
    ] {
        tracker.fail("1.jpg", fault);
        let plan = inline.plan(0, SampleRng::new(0, 0, 0)).unwrap();
        let mut buffer = bytes::BytesMut::new();
        let inline = plan.extents[0].open_inline().and_then(|read| read.read_into(&mut buffer)).unwrap_err();
        for error in [values(&*remote, 0).unwrap_err(), inline] {
            let text = format!("{error:#}");
            assert_eq!(error.kind(), kind, "{text}");
            assert!(text.contains(says) && text.contains("store/1.jpg @ 0..10"), "{text}");
        }
    }
    tracker.heal("1.jpg");
    values(&*remote, 0).unwrap();
}

#[test]
fn the_identity_is_of_names_and_sizes_and_not_of_the_place() {
    let files = ["a/1.jpg", "b/2.jpg"];
    let print = |open| opened(open).unwrap().fingerprint();
    let (here, there) = (folder(&files), folder(&files));
    let store = Tracker::holding(files.map(|f| (f, f)));
    assert_eq!(print(at(&here)), print(at(&there)));
    assert_eq!(print(at(&here)), print(open_source(store.source())));
    write(there.path(), "b/2.jpg", b"longer than it was");
    assert_ne!(print(at(&here)), print(at(&there)));
    write(here.path(), "b/3.jpg", b"");
    assert_ne!(print(at(&here)), print(open_source(store.source())));
}

#[test]
fn wrappers_keep_the_contract_over_files() {
    let dir = folder(&["a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg", "b/3.jpg"]);
    let whole = opened(at(&dir)).unwrap();
    let (train, val) = split(Arc::clone(&whole), 0.6, 1).unwrap();
    let back = concat([Arc::clone(&val), Arc::clone(&train)]).unwrap();
    let part = subset(Arc::clone(&back), Records::Range(1..4)).unwrap();
    let mut all = told(&*back);
    all.sort();
    assert_eq!(all, told(&*whole));
    assert_eq!(told(&*part), told(&*back)[1..4]);
    for dataset in [train, val, back, part] {
        block_on(dataset_contract(&*dataset)).unwrap();
    }
}

#[test]
fn a_synthetic_url_opens_and_takes_no_options() {
    let dataset = sound(open("synthetic://?count=30&height=5&width=4&classes=3"));
    assert_eq!((dataset.format(), dataset.len()), ("synthetic", 30));
    fails(open("synthetic://").labels("x.csv"), ErrorKind::Config, &["no other options"]);
}

/// The same with one option, whatever it says.
fn told_one(open: Open, option: OpenOption) -> Open {
    match option {
        OpenOption::Labels => open.labels("labels.csv"),
        OpenOption::LabelsOnly => open.labels_only(true),
        OpenOption::LabelColumn => open.label_column("class"),
        OpenOption::Annotations => open.annotations("marks.json"),
        OpenOption::Masks => open.masks(true),
        OpenOption::MaskFiles => open.mask_files("masks/{stem}.png"),
        OpenOption::ImageRoot => open.image_root("/data/images"),
        OpenOption::Classes => open.classes(["a".to_owned()]),
        OpenOption::Split => open.split("train"),
        OpenOption::Channels => open.channels("{name}_{channel}.tif"),
        OpenOption::Pattern => open.pattern("{patient}_{field}.nrrd"),
        OpenOption::SamplesPerPatient => open.samples_per_patient(2),
        OpenOption::Field => open.field("image", ["ct", "pet"]),
        OpenOption::Columns => open.columns(["image"]),
        other => panic!("how is {other:?} told?"),
    }
}

#[test]
fn every_format_refuses_by_name_what_it_does_not_take() {
    for format in formats() {
        // Names that are recognised; what is in them nobody asks before the options are looked at.
        let files: &[&str] = match format.name() {
            "cifar10" => &["data_batch_1.bin"],
            "cifar100" => &["train.bin"],
            "volumes" => &["p1/ct.nrrd"],
            "dicom" => &["p1/ct/1.dcm"],
            "mds" => &["index.json", "shard.00000.mds"],
            "coco" => &["1.jpg", "_annotations.coco.json"],
            "voc" => &["Annotations/1.xml", "JPEGImages/1.jpg"],
            "yolo" => &["classes.txt", "1.jpg", "1.txt"],
            "folder" => &["a/1.jpg"],
            "arrays" => &["a/1.npy", "a/2.npy"],
            "tar" => &["train-000.tar"],
            "tfrecord" => &["x.tfrecord"],
            "parquet" => &["x.parquet"],
            "jsonl" => &["x.jsonl"],
            "hdf5" | "hdf5-files" => &["x.h5"],
            "zarr" => &["x/zarr.json"],
            other => panic!("how are files of {other} called?"),
        };
        for option in OpenOption::ALL {
            // Beside images, annotations are COCO's, and masks that are files are a folder's, whatever else names tell.
            let elsewhere = match option {
                OpenOption::Annotations => &["folder", "voc", "yolo"][..],
                OpenOption::MaskFiles => &["coco", "voc", "yolo"],
                _ => &[],
            };
            if elsewhere.contains(&format.name()) {
                continue;
            }
            let tracker = Tracker::holding(files.iter().map(|name| (*name, "nothing sound")));
            let open = open_source(tracker.source());
            // Names of files do not show that each is a record.
            let open = if format.name() == "hdf5-files" { open.format(format.name()) } else { open };
            let opened = opened(told_one(open, option));
            let what = format!("datasets of the format {} take no {}", format.name(), option.name());
            if format.options().contains(&option) {
                let text = opened.map_or_else(|error| error.to_string(), |_| String::new());
                // Splits are those of arrays in one file.
                let of_one = format.name() == "arrays" && option == OpenOption::Split;
                assert!(of_one || !text.contains(" take no "), "{option:?}: {text}");
                continue;
            }
            let error = opened.unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Config, "{text}");
            assert!(text.contains(&what), "{text}");
            assert!(text.contains("tracked://store") && text.contains("leave it out"), "{text}");
            let taken = format.options().iter().map(|option| option.name());
            assert!(taken.into_iter().all(|name| text.contains(name)), "{text}");
            assert_eq!(tracker.requests(), 0, "{:?}", tracker.log_of_requests());
        }
    }
}

#[test]
fn options_are_refused_by_what_is_opened_without_a_format_too() {
    for option in OpenOption::ALL {
        let what = format!("synthetic data take no {}, and no other options", option.name());
        fails(told_one(open("synthetic://?count=3"), option), ErrorKind::Config, &[&what, "synthetic://?count=3"]);
        let what = format!("arrays in one file take no {}", option.name());
        let dir = folder(&["x.npy"]);
        let whole = format!("datasets of the format arrays take no {}", option.name());
        let what = if option == OpenOption::Classes { what } else { whole };
        if ![OpenOption::Split, OpenOption::Columns].contains(&option) {
            fails(told_one(at(&dir), option), ErrorKind::Config, &[&what, "leave it out"]);
            // Each of several places.
            let many = open(format!("{}/{{x}}.npy", dir.path().display()));
            fails(told_one(many, option), ErrorKind::Config, &[&what]);
        }
        // One that the format of somebody's own does not name.
        write(dir.path(), "a.lines", b"one\n");
        let what = format!("datasets of the format lines take no {}, and no other options", option.name());
        fails(told_one(at(&dir).add_format(Lines), option), ErrorKind::Config, &[&what]);
    }
    fails(open("synthetic://").format("folder"), ErrorKind::Config, &["synthetic data take no format"]);
    fails(open("synthetic://").manifests("x"), ErrorKind::Config, &["synthetic data take no manifests"]);
}

/// Everything that a folder of images has: identity, schema, objects and labels.
fn all_of(dataset: &dyn Dataset) -> (String, Vec<(String, Option<String>)>) {
    let label = |record| dataset.known(record, "label").map(|label| format!("{label:?}"));
    let records = (0..dataset.len()).map(|record| (dataset.object(record), label(record))).collect();
    (format!("{:?} {:?} {}", dataset.fingerprint(), dataset.schema(), dataset.largest_read()), records)
}

#[test]
fn a_folder_of_many_images_opens_again_as_it_opens_first() {
    let (dir, kept) = (folder(&[]), tempfile::tempdir().unwrap());
    // Links, because some disks take a millisecond to create a file.
    let content = |size: usize| dir.path().join(format!(".content/{size}"));
    (0..10).for_each(|size| write(dir.path(), &format!(".content/{size}"), &b"0123456789"[..size]));
    for class in ["cat", "dog", "dog-like", "eel"] {
        fs::create_dir(dir.path().join(class)).unwrap();
        for i in 0..5_000 {
            fs::hard_link(content(i % 10), dir.path().join(format!("{class}/{class}_{i:05}.jpg"))).unwrap();
        }
    }
    let with = || at(&dir).manifests(kept.path());
    let files = |kind: &str| {
        let kept = fs::read_dir(kept.path()).unwrap().map(|file| file.unwrap().path());
        kept.filter(|file| file.to_string_lossy().contains(kind)).collect::<Vec<_>>()
    };
    // Folders that have just changed are not kept.
    let keep = || {
        while files(".images-").is_empty() {
            opened(with()).unwrap();
        }
    };
    keep();
    let want = opened(at(&dir)).unwrap();
    let again = opened(with()).unwrap();
    assert_eq!(all_of(&*again), all_of(&*want));
    assert!(want.resident_bytes() < 20_000 * 20, "{}", want.resident_bytes());
    assert!(again.resident_bytes() < 20_000 * 2, "{}", again.resident_bytes());

    // Options that change nothing about files, and those that do.
    let few = opened(with().filter("label=dog".parse().unwrap())).unwrap();
    assert_eq!((few.len(), few.object(0)), (5_000, want.object(10_000)));
    assert_eq!(
        opened(with().field("label", ["array"])).map_err(|e| e.to_string()).err(),
        opened(at(&dir).field("label", ["array"])).map_err(|e| e.to_string()).err()
    );
    let classes = ["eel", "dog-like", "dog", "cat"].map(str::to_owned);
    for _ in 0..2 {
        assert_eq!(
            all_of(&*opened(with().classes(classes.clone())).unwrap()),
            all_of(&*opened(at(&dir).classes(classes.clone())).unwrap())
        );
    }
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    for open in [at(&dir), with()] {
        let told = Arc::clone(&told);
        opened(open.on_recognised(move |found| told.lock().unwrap().push(found))).unwrap();
    }
    let told = told.lock().unwrap();
    assert_eq!(told[0], told[1]);

    // Damage is found, and what is damaged is made again. (Each byte is flipped in tests of the modules.)
    for (kind, part) in [(".folder", 2), (".folder", 1), (".images-", 2)] {
        let [file, ..] = &files(kind)[..] else { panic!("no {kind}") };
        let mut bytes = fs::read(file).unwrap();
        let at = (bytes.len() - 1) / part;
        bytes[at] ^= 1;
        fs::write(file, bytes).unwrap();
        let found = opened(with()).unwrap();
        // Of a block of names, the error is that of its files.
        let damaged = (0..found.len()).find_map(|record| found.plan(record, SampleRng::new(0, 0, 0)).err());
        assert!(damaged.is_none_or(|error| error.to_string().contains("open the dataset again")));
        keep();
        assert_eq!(opened(with()).unwrap().fingerprint(), want.fingerprint(), "{kind}, {part}");
    }
    assert_eq!(all_of(&*opened(with()).unwrap()), all_of(&*want));
    // Damage that an opening meets is no error of it.
    files(".images-").into_iter().for_each(|file| fs::remove_file(file).unwrap());
    let [file] = &files(".folder")[..] else { panic!("no listing") };
    let mut bytes = fs::read(file).unwrap();
    bytes[1_000] ^= 1;
    fs::write(file, bytes).unwrap();
    assert_eq!(all_of(&*opened(with()).unwrap()), all_of(&*want));
    keep();

    // Another file is another dataset, whatever is kept of the one before.
    write(dir.path(), "dog/a.jpg", b"new");
    let more = opened(with()).unwrap();
    assert_eq!(all_of(&*more), all_of(&*opened(at(&dir)).unwrap()));
    assert_eq!((more.len(), again.len(), again.object(10_000)), (20_001, 20_000, want.object(10_000)));
    write(dir.path(), "dog/readme.txt", b"not an image");
    assert_eq!(all_of(&*opened(with()).unwrap()), all_of(&*more));
}

/// One record for each line of a text file.
#[derive(Debug)]
struct Lines;

impl infeed::dataset::Format for Lines {
    fn name(&self) -> &'static str {
        "lines"
    }
    fn recognises(&self, objects: &[infeed::source::Object]) -> bool {
        objects.iter().any(|o| o.name.ends_with(".lines"))
    }
    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<infeed::source::Object>,
        _options: &'a OpenOptions,
    ) -> futures::future::BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        Box::pin(async move {
            let text = source.read(&objects[0].name, 0..objects[0].size).await?;
            let numbers = String::from_utf8_lossy(&text).lines().map(|l| l.len() as i64).collect();
            Ok(Arc::new(infeed::dataset::MemoryDataset::builder().labels(numbers).build()?) as Arc<dyn Dataset>)
        })
    }
}

#[test]
fn a_format_from_outside_is_tried_first() {
    let dir = folder(&["picture.jpg"]);
    write(dir.path(), "a.lines", b"one\nthree\n");
    assert_eq!(labels(&*sound(at(&dir).add_format(Lines))), [3, 5]);
    assert_eq!(sound(at(&dir)).format(), "folder");
    assert_eq!(sound(at(&dir).add_format(Lines).format("folder")).len(), 1);
}

/// A moment of processor time, in a process of its own: what others do meanwhile is none of it.
#[test]
fn ten_thousand_files_open_in_a_moment() {
    const FOLDER: &str = "INFEED_TEST_TEN_THOUSAND";
    if let Ok(folder) = env::var(FOLDER) {
        let used = || process::usage().cpu.unwrap_or_default();
        let before = used();
        assert_eq!(opened(open(folder)).unwrap().len(), 10_000);
        let took = used() - before;
        assert!(took.as_millis() < 1000, "{took:?}; 0.05 s as a rule");
        return;
    }
    let dir = folder(&[]);
    for class in 0..10 {
        fs::create_dir(dir.path().join(class.to_string())).unwrap();
        for i in 0..1000 {
            fs::write(dir.path().join(format!("{class}/{i}.jpg")), "").unwrap();
        }
    }
    let mut again = Command::new(env::current_exe().unwrap());
    again.args(["datasets::ten_thousand_files_open_in_a_moment", "--exact", "--nocapture"]).env(FOLDER, dir.path());
    let output = end_of(piped(&mut again), "ten thousand files");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn metadata_of_hugging_face_beside_images_is_read() {
    let dir = folder(&["0001.png", "0002.png", "0003.png"]);
    let rows =
        "file_name,label,text,n,x\n0003.png,dog,third,3,0.5\n0001.png,cat,\"first, of all\",1,1.5\n0002.png,dog,,2,2\n";
    let check = || {
        let dataset = sound(at(&dir));
        let names: Vec<_> = dataset.schema().fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!((dataset.format(), &names[..2]), ("folder", &["image", "label"][..]));
        assert_eq!(dataset.schema().classes.as_deref().unwrap(), ["cat", "dog"]);
        let labels: Vec<_> = (0..3).map(|record| values(&*dataset, record).unwrap().remove(1)).collect();
        assert!(matches!(labels[..], [Value::Label(0), Value::Label(1), Value::Label(1)]), "{labels:?}");
        let (dataset, names) = (&dataset, &names);
        let of = |name: &str| {
            let at = names.iter().position(|n| *n == name).unwrap();
            (0..3).map(move |record| match values(&**dataset, record).unwrap().remove(at) {
                Value::Array(bytes) | Value::Bytes(bytes) => bytes.to_vec(),
                other => panic!("{other:?}"),
            })
        };
        assert_eq!(of("text").collect::<Vec<_>>(), [&b"first, of all"[..], b"", b"third"]);
        assert_eq!(of("n").collect::<Vec<_>>(), [1i64, 2, 3].map(|n| n.to_ne_bytes().to_vec()));
        assert_eq!(of("x").collect::<Vec<_>>(), [1.5f64, 2.0, 0.5].map(|x| x.to_ne_bytes().to_vec()));
    };
    write(dir.path(), "metadata.csv", rows.as_bytes());
    check();
    fs::remove_file(dir.path().join("metadata.csv")).unwrap();
    let line = |i: u8, label: &str, text: &str, x: f64| {
        format!(r#"{{"file_name": "000{i}.png", "label": "{label}", "text": "{text}", "n": {i}, "x": {x}}}"#)
    };
    let lines =
        [line(3, "dog", "third", 0.5), line(1, "cat", "first, of all", 1.5), line(2, "dog", "", 2.0)].join("\n");
    write(dir.path(), "metadata.jsonl", lines.as_bytes());
    check();
    // Labels that are given come first; a table of something else says nothing.
    write(dir.path(), "labels.csv", b"file,label\n0001.png,5\n0002.png,6\n0003.png,7\n");
    assert_eq!(sound(at(&dir).labels("labels.csv")).schema().fields.len(), 2);
    write(dir.path(), "metadata.jsonl", b"{\"id\": 7}");
    assert_eq!(sound(at(&dir)).schema().fields.len(), 1);
    write(dir.path(), "metadata.jsonl", lines.lines().next().unwrap().as_bytes());
    fails(at(&dir), ErrorKind::NotFound, &["2 of 3 images have no label, the first is `0001.png`", "metadata.jsonl"]);
}

#[test]
fn datasets_of_others_are_called_by_their_names() {
    for (files, says) in [
        (&["cifar/data_batch_1", "cifar/batches.meta"][..], ["CIFAR-10 as pickles", "cifar-10-binary.tar.gz"]),
        (&["train", "test", "meta"], ["CIFAR-100 as pickles", "cifar-100-binary.tar.gz"]),
        (&["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"], ["MNIST's idx", "numpy.savez"]),
        (&["data-00000-of-00001.arrow"], ["tables of Arrow", "to_parquet"]),
        (&["a/1.avif", "a/2.avif"], ["images of kinds that no codec reads", "convert them"]),
        (&["x.zarr.zip"], ["Zarr in a zip file", "unpack it"]),
    ] {
        fails(at(&folder(files)), ErrorKind::NotFound, &says);
    }
    fails(at(&folder(&["readme.txt"])), ErrorKind::NotFound, &["there are only 1 .txt"]);
}
