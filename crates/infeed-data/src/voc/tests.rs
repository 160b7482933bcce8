use std::sync::Arc;

use futures::executor::block_on;
use infeed_core::error::{ErrorKind, Result};
use infeed_store::Source;
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};

use crate::{Dataset, Instances, Open, Value, dataset_contract, open_source, read_one::read};

fn holding(files: &[(&str, String)]) -> Source {
    let store = InMemory::new();
    for (name, text) in files {
        block_on(store.put(&Path::from(*name), text.clone().into_bytes().into())).unwrap();
    }
    Source::from_store(Arc::new(store), Path::default(), "test://x")
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    assert_eq!(dataset.format(), "voc");
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn fails(open: Open, kind: ErrorKind, says: &[&str]) {
    let error = opened(open).unwrap_err();
    let text = format!("{error:#}");
    assert_eq!(error.kind(), kind, "{text}");
    says.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in {text:?}"));
}

fn told(dataset: &dyn Dataset, record: u64) -> (String, Instances, i64) {
    let values = read(dataset, record).unwrap().values.into_vec();
    let [Value::Encoded(file), Value::Instances(marked), Value::Label(id)] = &values[..] else { panic!("{values:?}") };
    (String::from_utf8(file.to_vec()).unwrap(), (**marked).clone(), *id)
}

fn xml(objects: &[(&str, u8, &str)]) -> String {
    let object = |(name, difficult, corners): &(&str, u8, &str)| {
        let mut corners = corners.split(' ');
        let mut side = |side: &str| format!("<{side}>{}</{side}>", corners.next().unwrap());
        let sides = ["xmin", "ymin", "xmax", "ymax"].map(&mut side).concat();
        format!("<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{sides}</bndbox></object>")
    };
    let objects: String = objects.iter().map(object).collect();
    format!("<annotation><size><width>30</width><height>20</height><depth>3</depth></size>{objects}</annotation>")
}

/// Two images with XMLs and one without, and the lists of two splits.
fn files() -> Vec<(&'static str, String)> {
    vec![
        ("JPEGImages/2.jpg", "two".into()),
        ("JPEGImages/1.jpg", "one".into()),
        ("JPEGImages/3.jpg", "three".into()),
        ("Annotations/1.xml", xml(&[("dog", 0, "1 1 30 20"), ("person", 1, "5 6 5 8.5")])),
        ("Annotations/2.xml", xml(&[])),
        ("ImageSets/Main/train.txt", "2\n1\n".into()),
        ("ImageSets/Main/val.txt", "2\r\n\n".into()),
        ("ImageSets/Main/test.txt", "3\n4\n1\n".into()),
        ("ImageSets/Main/dog_train.txt", "2 -1\n1  1\n".into()),
        ("SegmentationClass/1.png", "outlines".into()),
    ]
}

#[test]
fn boxes_count_from_0_to_the_width() {
    let dataset = sound(open_source(holding(&files())));
    assert_eq!(dataset.len(), 2);
    let (file, marked, id) = told(&*dataset, 0);
    assert_eq!((file.as_str(), id, marked.size), ("one", 0, [20, 30]));
    assert_eq!(marked.boxes, [[0.0, 0.0, 30.0, 20.0], [4.0, 5.0, 5.0, 8.5]]);
    assert_eq!((marked.crowd, marked.ids, marked.masks), (vec![false, true], vec![0, 1], None));
    let classes = dataset.schema().classes.clone().unwrap();
    assert_eq!((classes.len(), &*classes[marked.labels[0] as usize], marked.labels[1]), (20, "dog", 14));
    assert!(classes.is_sorted());
    assert_eq!(told(&*dataset, 1), ("two".into(), Instances::new([20, 30]), 1));
    assert_eq!(dataset.image_size(1), Some([20, 30]));
}

#[test]
fn splits_are_lists_of_names() {
    let open = || open_source(holding(&files()));
    assert_eq!(sound(open().split("train")).len(), 2);
    let val = sound(open().split("val"));
    assert_eq!((val.len(), told(&*val, 0).0), (1, "two".to_owned()));
    // A class has the same number in each split, whatever else is there.
    let mut more = files();
    more.push(("Annotations/3.xml", xml(&[("fox", 0, "1 1 30 20")])));
    for split in ["train", "val"] {
        let dataset = sound(open_source(holding(&more)).split(split));
        assert_eq!(dataset.schema().classes.as_deref().unwrap(), ["dog", "fox", "person"]);
    }
    // Names may have blanks and extensions, and a list a byte order mark.
    let odd = [
        ("JPEGImages/a b.jpg", "x".to_owned()),
        ("Annotations/a b.xml", xml(&[])),
        ("JPEGImages/c.jpg", "x".to_owned()),
        ("Annotations/c.xml", xml(&[])),
        ("ImageSets/Main/train.txt", "\u{feff}a b\nc.jpg\n".into()),
    ];
    assert_eq!(sound(open_source(holding(&odd)).split("train")).len(), 2);
    fails(open().split("test"), ErrorKind::NotFound, &["2 of the images", "Annotations/3.xml", "test.txt"]);
    fails(open().split("trian"), ErrorKind::NotFound, &["split `trian`", "the lists are test, train, val"]);
    fails(open().split("dog_train"), ErrorKind::Corrupt, &["line 1 has more than a name", "dog_train.txt"]);
    fails(open().masks(true), ErrorKind::Config, &["format voc take no masks, only split and classes"]);
}

#[test]
fn a_dataset_may_lie_in_a_folder() {
    let below =
        |folder: &str| files().into_iter().map(move |(name, text)| (format!("{folder}/{name}"), text)).collect();
    let all: Vec<(String, String)> = below("VOCdevkit/VOC2012");
    let named = |all: &[(String, String)]| {
        let files: Vec<(&str, String)> = all.iter().map(|(name, text)| (name.as_str(), text.clone())).collect();
        holding(&files)
    };
    let dataset = sound(open_source(named(&all)).split("val"));
    assert_eq!(dataset.object(0), "test://x/VOCdevkit/VOC2012/JPEGImages/2.jpg");
    let two = [all, below("VOCdevkit/VOC2007")].concat();
    fails(open_source(named(&two)), ErrorKind::Config, &["VOCdevkit/VOC2007, VOCdevkit/VOC2012"]);
}

#[test]
fn other_classes_are_the_sorted_names_or_those_given() {
    let mut other = files();
    other[4].1 = xml(&[("zebra", 0, "1 1 2 2"), ("dog", 0, "1 1 2 2")]);
    let source = holding(&other);
    let dataset = sound(open_source(source.clone()));
    assert_eq!(dataset.schema().classes.as_ref().unwrap()[..], ["dog", "person", "zebra"]);
    assert_eq!(told(&*dataset, 1).1.labels, [2, 0]);
    let classes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let dataset = sound(open_source(source.clone()).classes(classes(&["zebra", "person", "dog"])));
    assert_eq!(told(&*dataset, 1).1.labels, [0, 2]);
    let few = open_source(source).classes(classes(&["dog", "person"]));
    fails(few, ErrorKind::Config, &["class `zebra` is not among the 2 given", "Annotations/2.xml"]);
}

#[test]
fn bad_numbers_are_bad_samples_and_broken_files_end_the_opening() {
    for (corners, says) in [
        ("nan 1 2 2", "not numbers"),
        ("1 1 2 x", "not numbers"),
        ("9 1 2 2", "ends before it begins"),
        ("40 1 50 2", "outside the image of 30x20"),
    ] {
        let mut bad = files();
        bad[3].1 = xml(&[("dog", 0, "1 1 2 2"), ("dog", 0, corners)]);
        let dataset = opened(open_source(holding(&bad))).unwrap();
        let error = read(&*dataset, 0).unwrap_err();
        assert!(error.is_sample() && error.to_string().contains("object 1"), "{error}");
        assert!(error.to_string().contains(says) && error.to_string().contains("JPEGImages/1.jpg"), "{error}");
        told(&*dataset, 1);
    }
    let mut without = files();
    without[3].1 =
        "<annotation><object><name>dog</name><part><bndbox><xmin>1</xmin></bndbox></part></object></annotation>".into();
    without[1].1 = "P5\n9 8\n255\n pixels".into();
    let dataset = opened(open_source(holding(&without))).unwrap();
    let error = read(&*dataset, 0).unwrap_err();
    assert!(error.is_sample() && error.to_string().contains("object 0: it has no bndbox"), "{error}");
    // Without <difficult>; a polygon counts as a box does.
    without[3].1 = "<annotation><object><name>dog</name><polygon><x1>2</x1><y1>3</y1><x2>6.5</x2><y2>8</y2></polygon></object></annotation>".into();
    let (_, marked, _) = told(&*sound(open_source(holding(&without))), 0);
    assert_eq!((marked.boxes, marked.crowd), (vec![[1.0, 2.0, 6.5, 8.0]], vec![false]));
    let mut broken = files();
    broken[4].1.truncate(45);
    fails(open_source(holding(&broken)), ErrorKind::Corrupt, &["ends early", "Annotations/2.xml"]);
}

#[test]
fn sizes_that_are_not_said_are_those_of_the_images() {
    let size = "<size><width>30</width><height>20</height><depth>3</depth></size>";
    let zero = "<size><width>0</width><height>0</height><depth>0</depth></size>";
    for other in ["", zero, "<size/>", "<size><width>30</width></size>"] {
        let mut files = files();
        files[1].1 = "P5\n9 8\n255\n pixels".into();
        files[3].1 = xml(&[("dog", 0, "2 3 8 9"), ("dog", 1, "1 1 9 8")]).replace(size, other);
        let dataset = sound(open_source(holding(&files)));
        assert_eq!((dataset.image_size(0), dataset.image_size(1)), (None, Some([20, 30])));
        assert!(dataset.known(0, "instances").is_none() && dataset.known(1, "instances").is_some());
        assert!(dataset.known(0, "image_id").is_some());
        let (_, marked, _) = told(&*dataset, 0);
        assert_eq!((marked.size, marked.boxes), ([8, 9], vec![[1.0, 2.0, 8.0, 9.0], [0.0, 0.0, 9.0, 8.0]]));
    }
    for (image, says) in [
        ("P5\n3 2\n255\npixels", "object 0: the box [4.0, 0.0, 6.0, 2.0] is outside the image of 3x2"),
        ("one", "have the size of the image"),
    ] {
        let mut files = files();
        files[1].1 = image.into();
        files[3].1 = xml(&[("dog", 0, "5 1 6 2")]).replace(size, zero);
        let dataset = opened(open_source(holding(&files))).unwrap();
        let error = read(&*dataset, 0).unwrap_err();
        assert!(error.is_sample() && error.to_string().contains(says), "{error}");
        assert!(error.to_string().contains("JPEGImages/1.jpg"), "{error}");
    }
}

#[test]
fn the_identity_changes_with_what_is_marked() {
    let print = |open: Open| opened(open).unwrap().fingerprint();
    let mut moved = files();
    moved[3].1 = moved[3].1.replace("8.5", "9");
    let all = print(open_source(holding(&files())));
    assert_ne!(all, print(open_source(holding(&moved))));
    assert_eq!(all, print(open_source(holding(&files())).split("train")));
    assert_ne!(all, print(open_source(holding(&files())).split("val")));
}
