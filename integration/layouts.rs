//! Trees as public datasets and the tools that label images write them: what each is read as, and what is refused. A tree
//! is never read as something else in silence.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use futures::executor::block_on;
use infeed::{
    Error, Result,
    dataset::{Dataset, Open, Recognised, Value, dataset_contract, open},
};
use tempfile::TempDir;

/// The header of a PNG of 20x10: enough for what opening and parsing look at.
fn png() -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    file.extend([20u32, 10].iter().flat_map(|side| side.to_be_bytes()));
    file.extend(b"\x08\x02\0\0\0\0\0\0\0");
    file
}

/// A folder of these files: `name`, or `name: content`.
fn tree(files: &[&str]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for file in files {
        let (name, content) = file.split_once(": ").unwrap_or((file, ""));
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let bytes = if content.is_empty() { png() } else { content.as_bytes().to_vec() };
        fs::write(path, bytes).unwrap();
    }
    dir
}

fn at(dir: &Path) -> Open {
    open(dir.to_str().unwrap())
}

fn sound(open: Open) -> Result<Arc<dyn Dataset>> {
    let dataset = block_on(open.into_future())?;
    block_on(dataset_contract(&*dataset)).unwrap();
    Ok(dataset)
}

/// Format, records, fields and classes, or the error.
fn told(open: Open) -> String {
    match sound(open) {
        Ok(dataset) => {
            let schema = dataset.schema();
            let mask = |is| if is { "*" } else { "" };
            let fields: Vec<_> = schema.fields.iter().map(|f| format!("{}{}", f.name, mask(f.mask))).collect();
            let classes = schema.classes.as_ref().map_or(String::new(), |classes| format!(" of {}", classes.join(",")));
            format!("{} {} {}{classes}", dataset.format(), dataset.len(), fields.join(" "))
        }
        Err(error) => error.to_string(),
    }
}

fn label(dataset: &dyn Dataset, record: u64) -> Option<i64> {
    match dataset.known(record, "label") {
        Some(Value::Label(label)) => Some(label),
        _ => None,
    }
}

const XML: &str = "<annotation><size><width>20</width><height>10</height></size><object><name>cat</name><bndbox>\
                   <xmin>1</xmin><ymin>1</ymin><xmax>4</xmax><ymax>4</ymax></bndbox></object></annotation>";
const COCO: &str = r#"{"images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 10}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}],
    "categories": [{"id": 1, "name": "cat"}]}"#;

#[test]
fn trees_of_public_datasets_are_read_as_what_they_are() {
    let xml = |name: &str| format!("{name}: {XML}");
    let coco = |name: &str| format!("{name}: {COCO}");
    let plain = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let boxes = |format: &str| format!("{format} 1 image instances image_id of cat");
    for (files, split, want) in [
        // Classes, and folders around them.
        (plain(&["cat/1.png", "dog/1.png"]), None, "folder 2 image label of cat,dog".to_owned()),
        (plain(&["images/cat/1.png", "images/dog/1.png"]), None, "folder 2 image label of cat,dog".into()),
        (plain(&["images/1.png", "images/2.png"]), None, "folder 2 image".into()),
        (plain(&["train/cat/1.png", "test/cat/1.png"]), Some("train"), "folder 1 image label of cat".into()),
        (plain(&["images/train/1.png", "images/val/1.png"]), Some("val"), "folder 1 image".into()),
        (plain(&["data/train/cat/1.png", "data/test/cat/1.png"]), Some("train"), "folder 1 image label of cat".into()),
        // Given splits around a common word.
        (plain(&["bullet_train/1.png", "tram/1.png"]), None, "folder 2 image label of bullet_train,tram".into()),
        // What systems leave there.
        (plain(&["cat/1.png", "cat/@eaDir/1.png", "__MACOSX/cat/._1.png"]), None, "folder 1 image label of cat".into()),
        // Masks.
        (plain(&["imgs/a.png", "masks/a.png"]), None, "folder 1 image mask*".into()),
        (plain(&["train/a.png", "train_masks/a_mask.png"]), Some("train"), "folder 1 image mask*".into()),
        (
            plain(&["train/a.png", "trainannot/a.png", "val/b.png", "valannot/b.png"]),
            Some("val"),
            "folder 1 image mask*".into(),
        ),
        (
            plain(&[
                "leftImg8bit/x/a_leftImg8bit.png",
                "gtFine/x/a_gtFine_labelIds.png",
                "gtFine/x/a_gtFine_color.png",
            ]),
            None,
            "folder 1 image mask* label of x".into(),
        ),
        // Boxes.
        (
            vec![xml("train/a.xml"), "train/a.png".into(), xml("valid/b.xml"), "valid/b.png".into()],
            Some("train"),
            boxes("voc"),
        ),
        (vec![xml("annotations/a.xml"), "images/a.png".into()], None, boxes("voc")),
        (vec![xml("a.xml"), "a.png".into()], None, boxes("voc")),
        (
            vec!["labels/a.txt: 0 0.5 0.5 0.2 0.2".into(), "images/a.png".into(), "data.yaml: names: [cat]".into()],
            None,
            boxes("yolo"),
        ),
        // Masks next to the photographs are no photographs.
        (
            vec![
                "labels/a.txt: 0 0.5 0.5 0.2 0.2".into(),
                "images/a.png".into(),
                "masks/a.png".into(),
                "depth/a.png".into(),
                "coco8.yaml: names: {'0': cat}".into(),
            ],
            None,
            boxes("yolo"),
        ),
        (
            vec![xml("annotations/xmls/a.xml"), "annotations/trimaps/a.png".into(), "images/a.png".into()],
            None,
            boxes("voc"),
        ),
        (
            vec![
                "train/labels/a.txt: 0 0.5 0.5 0.2 0.2".into(),
                "train/images/a.png".into(),
                "data.yaml: names: [cat]".into(),
            ],
            Some("train"),
            boxes("yolo"),
        ),
        (vec![coco("annotations.json"), "a.png".into()], None, boxes("coco")),
        (vec![coco("annotations.json"), "images/a.png".into()], None, boxes("coco")),
        (vec![coco("annotations/train.json"), "train/a.png".into()], None, boxes("coco")),
        (vec![coco("annotations/person_keypoints_x.json"), "x/a.png".into()], None, boxes("coco")),
    ] {
        let dir = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
        let open = split.into_iter().fold(at(dir.path()), |open, split| open.split(split));
        assert_eq!(told(open), want, "{files:?}");
    }
}

#[test]
fn trees_that_may_mean_several_things_are_refused_with_what_helps() {
    let coco = format!("annotations.json: {COCO}");
    let xml = format!("a.xml: {XML}");
    let xml_of = |stem: &str| format!("{stem}.xml: {XML}");
    for (files, says) in [
        (&["train/1.png", "test/1.png"][..], &["test, train hold splits", "split(\"test\")"][..]),
        (
            &["train/images/a.png", "train/masks/a.png", "val/images/b.png", "val/masks/b.png"],
            &["several splits: train, val", "split(\"train\")"],
        ),
        (&["Depth/1.png", "RGB/1.png"], &["Depth, RGB are named like kinds of files", "format(\"folder\")"]),
        (&["images/a.png", "masks/b.png"], &["images, masks are named like kinds", "mask_files(\"masks/{stem}.png\")"]),
        (&["images/a.npy", "masks/a.png"], &["all images are in the folder `masks`", "format(\"folder\")"]),
        (&["images/a.png", "images/b.png", "masks/a.png"], &["`images/b.png` has no mask", "mask_files"]),
        (&["a.png", &coco, &xml], &["may be coco", "or voc", "format(\"voc\")"]),
        (&["a/1.png", "b/1.avif", "c/1.png"], &["class `b` has no image that is read", "b/1.avif", "classes"]),
        (&["a/1.png", "b/1.mp4: film", "c/1.png"], &["class `b` has no image that is read", "b/1.mp4"]),
        // Notes alone are no class either.
        (&["a/1.png", "b/README.md: none", "c/1.png"], &["class `b` has no image that is read", "b/README.md"]),
        (&["training_set/1.png", "test_set/1.png"], &["test_set, training_set hold splits"]),
        (&["seg_train/1.png", "seg_test/1.png", "seg_pred/1.png"], &["seg_pred, seg_test, seg_train hold splits"]),
        (&["train/1.png", "test/1.png", "unlabeled/1.png"], &["hold splits"]),
        (&["train/1.png", "pred/1.png"], &["hold splits"]),
        // Splits below a folder around all.
        (
            &["p/train/a.png", &xml_of("p/train/a"), "p/valid/b.png", &xml_of("p/valid/b")],
            &["several splits: train, valid"],
        ),
        (
            &[
                "d/images/train/a.png",
                "d/labels/train/a.txt: 0 0.5 0.5 0.2 0.2",
                "d/images/val/b.png",
                "d/labels/val/b.txt: 0 0.5 0.5 0.2 0.2",
            ],
            &["several splits: train, val"],
        ),
        (
            &[
                "d/train/metadata.csv: file_name,label\na.png,1",
                "d/train/a.png",
                "d/test/metadata.csv: file_name,label\nb.png,2",
                "d/test/b.png",
            ],
            &["several splits: test, train"],
        ),
        (
            &[
                "x/images/a.png",
                "x/labels/a.txt: 0 0.5 0.5 0.2 0.2",
                "x/data.yaml: names: [cat]",
                "y/images/b.png",
                "y/labels/b.txt: 0 0.5 0.5 0.2 0.2",
                "y/data.yaml: names: [car]",
            ],
            &["`x/data.yaml` and `y/data.yaml` have different names of classes", "::"],
        ),
        (&["a.tar: x", "preview.png"], &["may be folder", "or tar", "format(\"tar\")"]),
        (&["images/a.png", "labels/a.txt: a cat on a mat"], &["no text file has YOLO's format", "format(\"folder\")"]),
    ] {
        let dir = tree(files);
        let error = told(at(dir.path()));
        assert!(says.iter().all(|part| error.contains(part)), "{files:?}: {error}");
    }
    let empty = tree(&["a/1.png", "c/1.png"]);
    fs::create_dir(empty.path().join("b")).unwrap();
    assert!(told(at(empty.path())).contains("class `b` has no image that is read: it is empty"));
    let given = at(empty.path()).classes(["a", "b", "c"].map(str::to_owned));
    assert_eq!(label(&*sound(given).unwrap(), 1), Some(2));
    // Whoever says so gets folders for classes.
    let kinds = tree(&["Depth/1.png", "RGB/1.png"]);
    assert_eq!(told(at(kinds.path()).format("folder")), "folder 2 image label of Depth,RGB");
}

#[test]
fn masks_of_other_names_are_told_by_a_pattern() {
    let dir = tree(&["in/x/a.png", "in/x/b.png", "out/a_road.png", "out/b_road.png"]);
    assert!(told(at(dir.path())).contains("of in,out"));
    let open = at(dir.path()).mask_files("out/{stem}_road.png");
    let dataset = sound(open).unwrap();
    assert_eq!((dataset.len(), dataset.schema().fields[1].mask), (2, true));
    assert!(told(at(dir.path()).mask_files("out/{stem}_x.png")).contains("none of 4 images fits the pattern of masks"));
    assert!(told(at(dir.path()).mask_files("out")).contains("no {stem}"));
}

#[test]
fn tables_of_hugging_face_lie_beside_their_images() {
    let csv = "file_name,label\na.png,7\n";
    let dir = tree(&[
        "train/a.png",
        &format!("train/metadata.csv: {csv}"),
        "test/a.png",
        &format!("test/metadata.csv: {csv}"),
    ]);
    let train = sound(at(dir.path()).split("train")).unwrap();
    assert_eq!((train.len(), label(&*train, 0)), (1, Some(7)));
    assert!(told(at(dir.path())).contains("several splits: test, train"));
    let dir = tree(&["metadata.csv: file_name,label\ntrain/a.png,1\ntest/b.png,0\n", "train/a.png", "test/b.png"]);
    let train = sound(at(dir.path()).split("train")).unwrap();
    assert_eq!((train.len(), label(&*train, 0)), (1, Some(1)));
    let masks = "file_name,mask_file_name,label\na.png,m/1.png,3\n";
    let dir = tree(&["a.png", "m/1.png", &format!("metadata.csv: {masks}")]);
    let dataset = sound(at(dir.path())).unwrap();
    let fields: Vec<_> = dataset.schema().fields.iter().map(|field| (field.name.as_str(), field.mask)).collect();
    assert_eq!(fields, [("image", false), ("mask", true), ("label", false)]);
    assert_eq!((dataset.len(), label(&*dataset, 0)), (1, Some(3)));
    // Above the splits, too, and however masks are called.
    let all = "metadata.csv: file_name,mask_file_name\ntrain/a.png,train/masks/a.png\ntest/b.png,test/masks/b.png\n";
    let dir = tree(&["train/a.png", "train/masks/a.png", "test/b.png", "test/masks/b.png", all]);
    assert_eq!(told(at(dir.path()).split("test")), "folder 1 image mask*");
    // A split without labels is no matter of the one that is read.
    let unlike = [
        "train/a.png",
        "train/metadata.csv: file_name,label\na.png,7\n",
        "test/b.png",
        "test/metadata.csv: file_name\nb.png\n",
    ];
    let train = sound(at(tree(&unlike).path()).split("train")).unwrap();
    assert_eq!(label(&*train, 0), Some(7));
    // A class has the same number in each split.
    let texts = [
        "train/a.png",
        "train/metadata.csv: file_name,label\na.png,dog\n",
        "test/b.png",
        "test/metadata.csv: file_name,label\nb.png,cat\n",
    ];
    for split in ["train", "test"] {
        assert_eq!(told(at(tree(&texts).path()).split(split)), "folder 1 image label of cat,dog");
    }
    // A table of the images alone takes no masks away.
    let pairs = tree(&["images/a.png", "masks/a.png", "metadata.csv: file_name,label\nimages/a.png,7\n"]);
    assert_eq!(told(at(pairs.path())), "folder 1 image mask*");
    let listed = ["images/a.png", "masks/a.png", "metadata.csv: file_name,label\nimages/a.png,7\nmasks/a.png,8\n"];
    assert_eq!(told(at(tree(&listed).path())), "folder 2 image label");
    let other = [
        "x/a.png",
        "x/metadata.csv: file_name,label\na.png,1\n",
        "y/b.png",
        "y/metadata.csv: file_name,kind\nb.png,1\n",
    ];
    let dir = tree(&other);
    assert!(told(at(dir.path())).contains("tables of one dataset with the columns label and kind"));
}

#[test]
fn what_was_recognised_and_what_was_left_out_is_told() {
    let dir = tree(&["images/a.png", "images/b.gif.bak: x", "notes/a.json: {}", "README.md: x"]);
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&found);
    let open = at(dir.path()).on_recognised(move |found| told.lock().unwrap().push(found));
    block_on(open.into_future()).unwrap();
    let found = found.lock().unwrap();
    let [Recognised { format, why, left_out, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&format[..], &why[..]), ("folder", "images, the first is `images/a.png`"));
    assert_eq!(left_out, &["1 .bak, the first is `images/b.gif.bak`", "1 .json, the first is `notes/a.json`"]);
}

/// What inspect shows as left out.
fn left_out(files: &[&str]) -> Vec<String> {
    let dir = tree(files);
    let found = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&found);
    let open = at(dir.path()).on_recognised(move |found| told.lock().unwrap().extend(found.left_out));
    block_on(open.into_future()).unwrap();
    let found = found.lock().unwrap();
    found.clone()
}

#[test]
fn masks_that_boxes_leave_unread_are_told() {
    let xml = format!("Annotations/a.xml: {XML}");
    let left = left_out(&["JPEGImages/a.png", &xml, "SegmentationClass/a.png"]);
    assert_eq!(left, ["1 .png, the first is `SegmentationClass/a.png`"]);
    let coco = format!("annotations.json: {COCO}");
    assert_eq!(left_out(&["a.png", &coco, "masks/a.png"]), ["1 .png, the first is `masks/a.png`"]);
}

#[test]
fn panoptic_annotations_of_coco_are_refused_by_name_and_stuff_has_boxes() {
    let panoptic = r#"annotations/panoptic_train.json: {"images": [{"id": 1, "file_name": "a.png", "width": 20, "height": 10}],
        "annotations": [{"image_id": 1, "file_name": "a.png", "segments_info": [{"id": 7, "category_id": 1}]}],
        "categories": [{"id": 1, "name": "cat"}]}"#;
    let error = told(at(tree(&["images/train/a.png", "annotations/panoptic_train/a.png", panoptic]).path()));
    assert!(error.contains("COCO's JSON of panoptic segmentation, whose outlines are colours of PNGs"), "{error}");
    assert!(error.contains("panoptic_train.json") && error.contains("use the one of instances"), "{error}");
    let stuff = format!("annotations/stuff_train.json: {COCO}");
    let dir = tree(&["images/train/a.png", &stuff]);
    assert_eq!(told(at(dir.path())), "coco 1 image instances image_id of cat");
}

/// Errors are shown as they are; a test that prints them by hand would not notice another.
#[test]
fn errors_name_the_place() {
    let dir = tree(&["Depth/1.png", "RGB/1.png"]);
    let error: Error = sound(at(dir.path())).unwrap_err();
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
}
