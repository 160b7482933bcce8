//! Detection datasets as they lie on a disk: COCO's JSON beside folders of photographs, Pascal VOC's folders; and what the
//! command line tells of them. Their parts are tested beside the code.

use std::{fs, path::Path, process::Command, sync::Arc};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    ErrorKind, Result,
    dataset::{Dataset, Instances, Mask, Open, SampleRng, Value, concat, dataset_contract, open, subset},
};
use jpeg_encoder::{ColorType, Encoder};
use serde_json::{Value as Json, json};
use tempfile::TempDir;

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn photo(height: u16, width: u16) -> Vec<u8> {
    let pixels: Vec<u8> = (0..u32::from(height) * u32::from(width) * 3).map(|i| (i % 251) as u8).collect();
    let mut file = Vec::new();
    Encoder::new(&mut file, 80).encode(&pixels, width, height, ColorType::Rgb).unwrap();
    file
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn read(dataset: &dyn Dataset, record: u64) -> Result<(Bytes, Instances, i64)> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let bytes: Vec<Bytes> = plan.extents.iter().map(|extent| block_on(extent.read()).unwrap()).collect();
    let values = dataset.parse(record, &plan, &bytes)?.values.into_vec();
    let [Value::Encoded(file), Value::Instances(marked), Value::Label(id)] = &values[..] else { panic!("{values:?}") };
    Ok((file.clone(), (**marked).clone(), *id))
}

/// What the command line prints.
fn inspect(args: &[&str]) -> String {
    // Nothing of the tester's environment: no terminal width, no GPU.
    let mut command = Command::new(env!("CARGO_BIN_EXE_infeed"));
    let output = command.env_clear().env("CUDA_VISIBLE_DEVICES", "").arg("inspect").args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Three photographs in `train2017`: two dogs and a person, nothing, a crowd.
fn coco() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, height, width) in [("000.jpg", 24, 32), ("001.jpg", 16, 16), ("002.jpg", 8, 40)] {
        write(dir.path(), &format!("train2017/{name}"), &photo(height, width));
    }
    let image = |id: i64, name: &str, height: u32, width: u32| json!({"id": id, "file_name": name, "height": height, "width": width});
    let marked = |id: i64, image: i64, category: i64, bbox: [f64; 4]| {
        let [x, y, w, h] = bbox;
        json!({"id": id, "image_id": image, "category_id": category, "bbox": bbox, "iscrowd": 0,
            "segmentation": [[x, y, x + w, y, x + w, y + h]]})
    };
    let crowd = json!({"id": 9, "image_id": 30, "category_id": 44, "bbox": [1, 0, 2, 8], "iscrowd": 1,
        "segmentation": {"size": [8, 40], "counts": [8, 16, 296]}});
    let json = json!({
        "images": [image(30, "002.jpg", 8, 40), image(20, "001.jpg", 16, 16), image(10, "000.jpg", 24, 32)],
        "annotations": [marked(7, 10, 18, [1.5, 2.0, 10.0, 8.25]), crowd, marked(5, 10, 44, [0.0, 0.0, 32.0, 24.0]),
            marked(6, 10, 18, [4.0, 4.0, 0.0, 3.0])],
        "categories": [{"id": 44, "name": "person"}, {"id": 18, "name": "dog"}],
    });
    write(dir.path(), "annotations/instances_train2017.json", json.to_string().as_bytes());
    write(dir.path(), "annotations/captions_train2017.json", b"{}");
    dir
}

fn path(dir: &TempDir, below: &str) -> String {
    dir.path().join(below).display().to_string()
}

#[test]
fn coco_is_read_by_its_file_or_by_its_folders() {
    let dir = coco();
    let file = path(&dir, "annotations/instances_train2017.json");
    let by_file = sound(open(path(&dir, "train2017")).annotations(&file).masks(true));
    let by_folder = sound(open(path(&dir, "")).split("train2017").masks(true));
    let alone = sound(open(path(&dir, "")).masks(true));
    assert_eq!(by_file.fingerprint(), by_folder.fingerprint());
    assert_eq!(by_file.fingerprint(), alone.fingerprint());
    for dataset in [&by_file, &by_folder] {
        assert_eq!((dataset.format(), dataset.len(), dataset.needs_fetch()), ("coco", 3, false));
        let (file, marked, id) = read(&**dataset, 0).unwrap();
        assert_eq!(file, photo(24, 32));
        assert_eq!((id, marked.size, marked.ids), (10, [24, 32], vec![7, 5, 6]));
        assert_eq!(marked.boxes, [[1.5, 2.0, 11.5, 10.25], [0.0, 0.0, 32.0, 24.0], [4.0, 4.0, 4.0, 7.0]]);
        // The classes count categories by id: 18 is 0, 44 is 1.
        assert_eq!(marked.labels, [0, 1, 0]);
        let corners = vec![[1.5, 2.0], [11.5, 2.0], [11.5, 10.25]];
        assert_eq!(marked.masks.unwrap()[0], Mask::Polygons(vec![corners]));
        assert!(read(&**dataset, 1).unwrap().1.is_empty());
        let (_, crowd, _) = read(&**dataset, 2).unwrap();
        assert!(
            crowd.crowd[0] && matches!(&crowd.masks.unwrap()[..], [Mask::Rle(rle)] if rle.counts() == [8, 16, 296])
        );
    }
    let sizes: Vec<_> = (0..3).map(|record| by_file.image_size(record).unwrap()).collect();
    assert_eq!(sizes, [[24, 32], [16, 16], [8, 40]]);
    let two = subset(Arc::clone(&by_file), 1..3).unwrap();
    let all = concat(vec![two, by_file]).unwrap();
    assert_eq!((all.image_size(1), all.image_size(2)), (Some([8, 40]), Some([24, 32])));
}

#[test]
fn a_photograph_that_is_not_there_is_named() {
    let dir = coco();
    fs::remove_file(dir.path().join("train2017/001.jpg")).unwrap();
    let error = opened(open(path(&dir, ""))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let text = error.to_string();
    for part in ["1 of 3 images have no file", "001.jpg", "instances_train2017.json"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn inspect_tells_boxes_by_their_classes() {
    let dir = coco();
    let file = path(&dir, "annotations/instances_train2017.json");
    let images = path(&dir, "train2017");
    let shown = inspect(&[&images, "--annotations", &file]);
    for part in [
        "coco",
        "boxes, 3 in an image at most, without masks",
        "3 boxes: 2 dog, 1 person",
        "0 boxes",
        "1 box: 1 person",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let found: Json =
        serde_json::from_str(&inspect(&[&images, "--annotations", &file, "--masks", "--json", "-"])).unwrap();
    assert_eq!(found["fields"][1]["describe"], "boxes, 3 in an image at most, with masks");
    let first = &found["first_records"][0];
    assert_eq!(first["instances"]["instances"], json!({"boxes": 3, "classes": {"dog": 2, "person": 1}}));
    assert_eq!((&first["labels"]["image_id"], &first["width"]), (&json!(10), &json!(32)));
}

#[test]
fn voc_is_read_by_its_folders() {
    let dir = tempfile::tempdir().unwrap();
    let xml = |name: &str, corners: [u32; 4]| {
        let sides: String = ["xmin", "ymin", "xmax", "ymax"]
            .iter()
            .zip(corners)
            .map(|(side, at)| format!("<{side}>{at}</{side}>"))
            .collect();
        format!(
            "<annotation><size><width>32</width><height>24</height><depth>3</depth></size><object><name>{name}</name>\
            <difficult>1</difficult><bndbox>{sides}</bndbox></object></annotation>"
        )
    };
    for (name, class, corners) in [("a", "dog", [1, 1, 32, 24]), ("b", "cat", [3, 4, 3, 4])] {
        write(dir.path(), &format!("VOC2012/JPEGImages/{name}.jpg"), &photo(24, 32));
        write(dir.path(), &format!("VOC2012/Annotations/{name}.xml"), xml(class, corners).as_bytes());
    }
    write(dir.path(), "VOC2012/ImageSets/Main/val.txt", b"b\n");
    let dataset = sound(open(path(&dir, "VOC2012")));
    assert_eq!((dataset.format(), dataset.len()), ("voc", 2));
    let (file, marked, _) = read(&*dataset, 0).unwrap();
    assert_eq!(
        (file, marked.boxes, marked.labels, marked.crowd),
        (photo(24, 32).into(), vec![[0.0, 0.0, 32.0, 24.0]], vec![11], vec![true])
    );
    let val = sound(open(path(&dir, "")).split("val"));
    assert_eq!((val.len(), read(&*val, 0).unwrap().1.boxes), (1, vec![[2.0, 3.0, 3.0, 4.0]]));
    let shown = inspect(&[&path(&dir, "")]);
    assert!(shown.contains("voc") && shown.contains("1 box: 1 cat"), "{shown}");
}
