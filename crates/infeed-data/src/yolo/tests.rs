use std::sync::Arc;

use futures::executor::block_on;
use infeed_core::error::{ErrorKind, Result};
use infeed_store::Source;
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

use crate::{Dataset, Instances, Mask, Open, Value, dataset_contract, open_source, read_one::read};

/// An image of 20x10 as far as its header goes.
fn png() -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend([20u32, 10].iter().flat_map(|side| side.to_be_bytes()));
    file.extend(b"\x08\x02\0\0\0\0\0\0\0");
    file
}

fn holding(files: &[(&str, &str)]) -> Open {
    let store = InMemory::new();
    for (name, text) in files {
        let bytes = if name.ends_with(".png") { png() } else { text.as_bytes().to_vec() };
        block_on(store.put(&Path::from(*name), bytes.into())).unwrap();
    }
    open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    let dataset = block_on(open.into_future())?;
    assert_eq!(dataset.format(), "yolo");
    block_on(dataset_contract(&*dataset)).unwrap();
    Ok(dataset)
}

fn fails(open: Open, kind: ErrorKind, says: &[&str]) {
    let error = block_on(open.into_future()).unwrap_err();
    let text = format!("{error:#}");
    assert_eq!(error.kind(), kind, "{text}");
    says.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in {text:?}"));
}

fn told(dataset: &dyn Dataset, record: u64) -> Instances {
    let values = read(dataset, record).unwrap().values.into_vec();
    let [Value::Encoded(_), Value::Instances(marked), Value::Label(_)] = &values[..] else { panic!("{values:?}") };
    (**marked).clone()
}

const LINE: &str = "1 0.5 0.5 0.2 0.4\n";
const SPLITS: [(&str, &str); 5] = [
    ("data.yaml", "names: [cat, dog]"),
    ("images/train/a.png", ""),
    ("images/val/b.png", ""),
    ("labels/train/a.txt", LINE),
    ("labels/val/b.txt", "0 0.5 0.5 1 1"),
];

#[test]
fn boxes_are_in_pixels_of_the_image_whatever_the_folders_are_called() {
    for files in [
        &[("data.yaml", "names: [cat, dog]"), ("images/a.png", ""), ("labels/a.txt", LINE)][..],
        &[("data.yaml", "names: {0: cat, 1: dog}"), ("train/images/a.png", ""), ("train/labels/a.txt", LINE)],
        &[
            ("obj.names", "cat\ndog\n"),
            ("obj_train_data/a.png", ""),
            ("obj_train_data/a.txt", LINE),
            ("train.txt", "x/a.png"),
        ],
        &[("classes.txt", "cat\ndog\n"), ("a.png", ""), ("a.txt", LINE)],
        &[("obj.names", "cat\ndog"), ("Images/a.png", ""), ("Annotations/a.txt", LINE), ("README.txt", "words")],
    ] {
        let dataset = opened(holding(files)).unwrap();
        assert_eq!(&dataset.schema().classes.as_ref().unwrap()[..], ["cat", "dog"], "{files:?}");
        let found = told(&*dataset, 0);
        assert_eq!((found.size, &found.labels[..], dataset.len()), ([10, 20], &[1][..], 1), "{files:?}");
        let want = [8.0, 3.0, 12.0, 7.0];
        assert!(found.boxes[0].iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4), "{:?}", found.boxes);
        assert_eq!(dataset.image_size(0), None);
    }
}

#[test]
fn splits_are_chosen_and_never_mixed() {
    fails(holding(&SPLITS), ErrorKind::Config, &["several splits: train, val", "split(\"train\")"]);
    let val = opened(holding(&SPLITS).split("val")).unwrap();
    assert_eq!((val.len(), &told(&*val, 0).labels[..]), (1, &[0][..]));
    fails(holding(&SPLITS).split("test"), ErrorKind::NotFound, &["no images of the split `test`"]);
    let lists = [
        ("obj.names", "cat\ndog"),
        ("data/a.png", ""),
        ("data/a.txt", LINE),
        ("data/b.png", ""),
        ("data/b.txt", LINE),
        ("train.txt", "/home/me/darknet/data/a.png\n"),
        ("val.txt", "data/c.png\n"),
    ];
    let train = opened(holding(&lists).split("train")).unwrap();
    assert_eq!((train.len(), train.object(0)), (1, "test://x/data/a.png".to_owned()));
    fails(holding(&lists).split("val"), ErrorKind::NotFound, &["line 1 lists `data/c.png`"]);
}

#[test]
fn key_points_are_left_out_whatever_the_yaml_is_called() {
    // Three key points with their visibility: 13 numbers, an odd count.
    let line = "0 0.5 0.5 0.2 0.4 0.1 0.1 2 0.9 0.9 1 0 0 0\n";
    let of = |yaml: &'static str, text: &'static str| [(yaml, text), ("images/a.png", ""), ("labels/a.txt", line)];
    let yaml = "names: [cat]\nkpt_shape: [3, 3]";
    for files in [of("data.yaml", yaml), of("cat-pose.yaml", yaml), of("classes.txt", "cat")] {
        let dataset = opened(holding(&files)).unwrap();
        assert_eq!(dataset.schema().classes.as_deref().unwrap(), ["cat"]);
        let found = told(&*dataset, 0).boxes[0];
        assert!((found[0] - 8.0).abs() < 1e-4 && (found[2] - 12.0).abs() < 1e-4, "{files:?}: {found:?}");
    }
    // Without a sign of key points, the same count of numbers is damage.
    let odd =
        [("data.yaml", "names: [cat]"), ("images/a.png", ""), ("labels/a.txt", "0 0.5 0.5 0.2 0.4 0.1 0.1 0.5\n")];
    fails(holding(&odd), ErrorKind::Corrupt, &["7 numbers after the class"]);
}

#[test]
fn outlines_are_read_when_they_are_asked_for() {
    let files = [
        ("data.yaml", "names: [cat, dog]"),
        ("images/a.png", ""),
        ("images/b.png", ""),
        ("labels/a.txt", "0 0 0 0.5 0 0.5 1\n"),
    ];
    let dataset = opened(holding(&files).masks(true)).unwrap();
    let found = told(&*dataset, 0);
    assert_eq!(found.boxes, [[0.0, 0.0, 10.0, 10.0]]);
    assert_eq!(found.masks.unwrap(), [Mask::Polygons(vec![vec![[0.0, 0.0], [10.0, 0.0], [10.0, 10.0]]])]);
    // Nothing is in the image without a text.
    assert!(told(&*dataset, 1).is_empty());
    let boxes = [("images/a.png", ""), ("labels/a.txt", LINE)];
    fails(holding(&boxes).masks(true), ErrorKind::Config, &["no text file has an outline"]);
    // Without names classes are called by their numbers.
    assert_eq!(&opened(holding(&boxes)).unwrap().schema().classes.as_ref().unwrap()[..], ["0", "1"]);
}

#[test]
fn classes_may_come_from_elsewhere_and_unknown_ones_are_told() {
    let given = |names: &[&str]| {
        holding(&SPLITS).split("train").classes(names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(told(&*opened(given(&["dog", "cat"])).unwrap(), 0).labels, [0]);
    fails(given(&["cat"]), ErrorKind::Config, &["class `dog` is not among the 1 given classes", "labels/train/a.txt"]);
    let files = [("data.yaml", "names: [cat]"), ("images/a.png", ""), ("labels/a.txt", LINE)];
    let bad = block_on(holding(&files).into_future()).unwrap();
    let error = read(&*bad, 0).unwrap_err().to_string();
    assert!(error.contains("line 1: class 1 is not among the 1 that have names"), "{error}");
}

#[test]
fn captions_are_no_boxes() {
    let captions = [("images/a.png", ""), ("labels/a.txt", "a cat on a mat")];
    fails(
        holding(&captions),
        ErrorKind::Corrupt,
        &["no text file has YOLO's format", "labels/a.txt", "format(\"folder\")"],
    );
    // Beside images, and without names of classes, nobody says that they are boxes.
    let beside = holding(&[("a.png", ""), ("a.txt", LINE)]);
    assert_eq!(block_on(beside.clone().into_future()).unwrap().format(), "folder");
    assert_eq!(told(&*opened(beside.format("yolo")).unwrap(), 0).labels, [1]);
}
