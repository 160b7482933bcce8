//! Detection datasets as they lie on a disk.

use std::{fs, path::Path};

use serde_json::json;
use tempfile::TempDir;

use super::photos::jpeg;

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Three photographs in `train2017`: two dogs and a person, nothing, a crowd. In another file, the key points of persons:
/// one in the first photograph, one without any in the last.
pub(crate) fn coco() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, height, width) in [("000.jpg", 24, 32), ("001.jpg", 16, 16), ("002.jpg", 8, 40)] {
        write(dir.path(), &format!("train2017/{name}"), &jpeg(0, height, width));
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
    let mut person = marked(5, 10, 44, [0.0, 0.0, 32.0, 24.0]);
    person["keypoints"] = json!([16, 10, 2, 20, 6, 2, 12, 6.5, 1]);
    let persons = json!({
        "images": json["images"],
        "annotations": [person, marked(8, 30, 44, [1.0, 1.0, 5.0, 5.0])],
        "categories": [{"id": 44, "name": "person", "keypoints": ["nose", "left_eye", "right_eye"], "skeleton": [[1, 2]]}],
    });
    write(dir.path(), "annotations/person_keypoints_train2017.json", persons.to_string().as_bytes());
    dir
}

/// Two photographs, the second of them in the split `val`: a dog all over the first, a cat in one pixel.
pub(crate) fn voc() -> TempDir {
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
        write(dir.path(), &format!("VOC2012/JPEGImages/{name}.jpg"), &jpeg(0, 24, 32));
        write(dir.path(), &format!("VOC2012/Annotations/{name}.xml"), xml(class, corners).as_bytes());
    }
    write(dir.path(), "VOC2012/ImageSets/Main/val.txt", b"b\n");
    dir
}
