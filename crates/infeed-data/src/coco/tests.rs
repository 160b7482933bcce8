use std::sync::Arc;

use futures::executor::block_on;
use infeed_core::error::{ErrorKind, Result};
use infeed_store::Source;
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use serde_json::{Value as Json, json};

use crate::{
    Dataset, Field, FieldKind, Instances, Mask, Open, OpenOption, Rle, Value, concat, dataset_contract, open_source,
    read_one::read, subset,
};

/// Files that hold their own names, and one JSON.
fn holding(files: &[&str], name: &str, json: &Json) -> Source {
    let store = InMemory::new();
    let put =
        |name: &str, bytes: Vec<u8>| drop(block_on(store.put(&Path::parse(name).unwrap(), bytes.into())).unwrap());
    files.iter().for_each(|file| put(file, file.as_bytes().to_vec()));
    put(name, json.to_string().into_bytes());
    Source::from_store(Arc::new(store), Path::default(), "test://x")
}

/// Beside the images, as Roboflow has it.
fn beside(files: &[&str], json: &Json) -> Source {
    holding(files, "_annotations.coco.json", json)
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    assert_eq!(dataset.format(), "coco");
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn fails(open: Open, kind: ErrorKind, says: &[&str]) {
    let error = opened(open).unwrap_err();
    let text = format!("{error:#}");
    assert_eq!(error.kind(), kind, "{text}");
    says.iter().for_each(|part| assert!(text.contains(part), "{part:?} is not in {text:?}"));
}

/// The file that a record was read from, what is marked in it, and its id.
fn told(dataset: &dyn Dataset, record: u64) -> (String, Instances, i64) {
    let values = read(dataset, record).unwrap().values.into_vec();
    let [Value::Encoded(file), Value::Instances(marked), Value::Label(id)] = &values[..] else { panic!("{values:?}") };
    (String::from_utf8(file.to_vec()).unwrap(), (**marked).clone(), *id)
}

fn image(id: i64, name: &str, height: u32, width: u32) -> Json {
    json!({"id": id, "file_name": name, "height": height, "width": width, "license": 3, "coco_url": "http://x/y"})
}

fn boxed(id: i64, image: i64, category: i64, bbox: [f64; 4]) -> Json {
    json!({"id": id, "image_id": image, "category_id": category, "bbox": bbox, "area": 1.5, "iscrowd": 0,
        "segmentation": [[1, 2, 3.5, 2, 3.5, 4]]})
}

fn categories() -> Json {
    // Not in the order of their ids, with gaps.
    json!([{"id": 90, "name": "toothbrush"}, {"id": 1, "name": "person", "supercategory": "person"},
        {"id": 13, "name": "stop sign"}])
}

/// Three images, the second by name without boxes, a crowd in the third.
fn three() -> Json {
    let crowd = json!({"id": 5, "image_id": 7, "category_id": 1, "bbox": [0, 0, 3, 2], "iscrowd": 1,
        "segmentation": {"counts": [1, 2, 3], "size": [2, 3]}});
    json!({"info": {"year": 2017}, "licenses": [],
        "annotations": [boxed(21, 3, 90, [0.5, 1.0, 2.25, 3.0]), crowd, boxed(4, 3, 13, [1.0, 1.0, 0.0, 2.0])],
        "images": [image(7, "c.jpg", 2, 3), image(3, "a.jpg", 40, 30), image(11, "b.jpg", 5, 6)],
        "categories": categories()})
}

#[test]
fn a_file_may_be_spelled_as_another_system_does() {
    let json = json!({"images": [image(1, "Mu\u{308}ller.jpg", 2, 3)], "annotations": [], "categories": categories()});
    let dataset = sound(open_source(beside(&["M\u{fc}ller.jpg"], &json)));
    assert_eq!((dataset.len(), told(&*dataset, 0).0.as_str()), (1, "M\u{fc}ller.jpg"));
}

const THREE: [&str; 3] = ["a.jpg", "b.jpg", "c.jpg"];

#[test]
fn images_come_by_name_with_their_boxes_in_the_order_of_the_file() {
    let dataset = sound(open_source(beside(&THREE, &three())));
    assert_eq!(dataset.schema().fields[..2], [Field::image(), Field::instances(2, false)]);
    assert_eq!(dataset.schema().fields[2].name, "image_id");
    let (file, marked, id) = told(&*dataset, 0);
    assert_eq!((file.as_str(), id, marked.size), ("a.jpg", 3, [40, 30]));
    assert_eq!(marked.boxes, [[0.5, 1.0, 2.75, 4.0], [1.0, 1.0, 1.0, 3.0]]);
    assert_eq!((marked.ids, marked.crowd, marked.masks), (vec![21, 4], vec![false, false], None));
    // 1, 13 and 90 are 0, 1 and 2.
    assert_eq!(marked.labels, [2, 1]);
    assert_eq!(dataset.schema().classes.as_ref().unwrap()[..], ["person", "stop sign", "toothbrush"]);
    let (file, marked, id) = told(&*dataset, 1);
    assert_eq!((file.as_str(), id, marked), ("b.jpg", 11, Instances::new([5, 6])));
    let (_, marked, id) = told(&*dataset, 2);
    assert_eq!((marked.crowd, marked.ids, marked.labels, id), (vec![true], vec![5], vec![0], 7));
}

#[test]
fn sizes_are_known_before_images_are_read_also_in_parts_and_sums() {
    let dataset = sound(open_source(beside(&THREE, &three())));
    let sizes =
        |dataset: &dyn Dataset| (0..=dataset.len()).map(|record| dataset.image_size(record)).collect::<Vec<_>>();
    let (a, b, c) = (Some([40, 30]), Some([5, 6]), Some([2, 3]));
    assert_eq!(sizes(&*dataset), [a, b, c, None]);
    let two = subset(Arc::clone(&dataset), vec![2, 0]).unwrap();
    assert_eq!(sizes(&*two), [c, a, None]);
    assert_eq!(told(&*two, 0).2, 7);
    let both = concat(vec![two, dataset]).unwrap();
    assert_eq!(sizes(&*both), [c, a, a, b, c, None]);
}

#[test]
fn masks_are_polygons_and_runs_as_numbers_or_text() {
    let mut data = three();
    data["images"][2] = image(11, "b.jpg", 4, 4);
    let runs = json!({"counts": "52203", "size": [4, 4]});
    data["annotations"]
        .as_array_mut()
        .unwrap()
        .push(json!({"id": 6, "image_id": 11, "category_id": 1, "bbox": [1, 1, 2, 2], "segmentation": runs}));
    let source = beside(&THREE, &data);
    let dataset = sound(open_source(source.clone()).masks(true));
    assert_eq!(dataset.schema().fields[1], Field::instances(2, true));
    let triangle = Mask::Polygons(vec![vec![[1.0, 2.0], [3.5, 2.0], [3.5, 4.0]]]);
    let rle = |size, runs: &[u32]| Mask::Rle(Rle::new(size, runs.to_vec()).unwrap());
    let masks = |record| told(&*dataset, record).1.masks.unwrap();
    assert_eq!(masks(0), [triangle.clone(), triangle]);
    assert_eq!(masks(1), [rle([4, 4], &[5, 2, 2, 2, 5])]);
    assert_eq!(masks(2), [rle([2, 3], &[1, 2, 3])]);

    let without = sound(open_source(source));
    assert_eq!(told(&*without, 1).1.masks, None);
    assert_eq!(without.fingerprint(), dataset.fingerprint(), "the records are the same");
    assert!(without.resident_bytes() < dataset.resident_bytes());
}

#[test]
fn broken_outlines_are_bad_samples_where_outlines_are_read() {
    for (segmentation, says) in [
        (json!([[1, 2, 3, 4, 5]]), "a polygon of 5 numbers"),
        (json!([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6, 7]]), "a polygon of 7 numbers"),
        (json!([1, 2, 3, 4, 5, 6]), "not a list of polygons"),
        (json!([[1, 2, 3, null, 5, 6]]), "a corner of its outline"),
        (json!([[1, 2, 3, "4", 5, 6]]), "a corner of its outline"),
        (json!("a text"), "not a list of polygons"),
        (json!(["a text"]), "not a list of polygons"),
        (json!([[[[1, 2], [6, 2], [6, 6]]]]), "not a list of polygons"),
        (json!({"size": [40, 30]}), "an object without counts"),
        (json!({"counts": [600, 600], "size": [30, 40]}), "height and width are [30, 40] for its runs"),
        (json!({"counts": [600], "size": [40, 30]}), "runs of 600 pixels for a mask of 40x30"),
        (json!({"counts": [-1, 1201], "size": [40, 30]}), "not integers"),
        (json!({"counts": [1200], "size": [1200]}), "no size of two"),
        (json!({"counts": "5 ", "size": [40, 30]}), "none of its characters"),
    ] {
        let mut data = three();
        data["annotations"][2]["segmentation"] = segmentation;
        let source = beside(&THREE, &data);
        let dataset = opened(open_source(source.clone()).masks(true)).unwrap();
        let error = read(&*dataset, 0).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Corrupt && error.is_sample(), "{text}");
        ["annotation 4", says, "test://x/a.jpg"].iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
        told(&*dataset, 1);
        told(&*dataset, 2);
        sound(open_source(source));
    }
    let mut none = three();
    none["annotations"].as_array_mut().unwrap().iter_mut().for_each(|of| of["segmentation"] = json!([]));
    fails(open_source(beside(&THREE, &none)).masks(true), ErrorKind::Config, &["no annotation has an outline"]);
}

#[test]
fn short_polygons_are_left_out_and_what_has_no_outline_has_an_empty_mask() {
    let masks = |segmentation: Json| {
        let mut data = three();
        data["annotations"][2]["segmentation"] = segmentation;
        told(&*sound(open_source(beside(&THREE, &data)).masks(true)), 0).1.masks.unwrap()[1].clone()
    };
    let square = json!([1, 2, 6, 2, 6, 6, 1, 6]);
    let kept = Mask::Polygons(vec![vec![[1.0, 2.0], [6.0, 2.0], [6.0, 6.0], [1.0, 6.0]]]);
    for beside in [json!([1, 2, 6, 6]), json!([]), json!([3, 3])] {
        assert_eq!(masks(json!([beside, square])), kept);
        assert_eq!(masks(json!([square, beside, beside])), kept);
        assert_eq!(masks(json!([beside])), Mask::Polygons(Vec::new()));
    }
    // Corners in pairs.
    assert_eq!(masks(json!([[[1, 2], [6, 2], [6, 6], [1, 6]]])), kept);
    for none in [json!([]), json!(null), json!({}), json!("")] {
        assert_eq!(masks(none), Mask::Polygons(Vec::new()));
    }
    // Lines alone are outlines, of nothing.
    let mut lines = three();
    lines["annotations"].as_array_mut().unwrap().iter_mut().for_each(|of| of["segmentation"] = json!([[1, 2, 3, 4]]));
    sound(open_source(beside(&THREE, &lines)).masks(true));
}

#[test]
fn ids_are_any_scalars() {
    let mut data = three();
    for (image, id) in [(0, json!("x/7")), (1, json!("007")), (2, json!(11.5))] {
        data["images"][image]["id"] = id;
    }
    for (at, id) in [(0, json!("007")), (1, json!("x/7")), (2, json!("007"))] {
        data["annotations"][at]["image_id"] = id;
        data["annotations"][at]["id"] = json!(format!("a{at}"));
    }
    for (at, id) in [(0, json!("b")), (1, json!("a")), (2, json!(3.0))] {
        data["categories"][at]["id"] = id;
    }
    for (at, id) in [(0, json!("b")), (1, json!("a")), (2, json!("3"))] {
        data["annotations"][at]["category_id"] = id;
    }
    let dataset = sound(open_source(beside(&THREE, &data)));
    // Numbers go before texts.
    assert_eq!(dataset.schema().classes.as_ref().unwrap()[..], ["stop sign", "person", "toothbrush"]);
    let (file, marked, id) = told(&*dataset, 0);
    assert_eq!((file.as_str(), id, marked.labels, marked.ids), ("a.jpg", 0, vec![2, 0], vec![0, 2]));
    assert_eq!((told(&*dataset, 1).2, told(&*dataset, 2).2), (1, 2), "places");
    // Whole numbers are kept, however they are written; what has no id is called by its place.
    let mut data = three();
    data["images"][1]["id"] = json!("3");
    data["annotations"][0]["image_id"] = json!(3.0);
    data["annotations"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .for_each(|of| drop(of.as_object_mut().unwrap().remove("id")));
    let (_, marked, id) = told(&*sound(open_source(beside(&THREE, &data))), 0);
    assert_eq!((id, marked.ids), (3, vec![0, 2]));
}

#[test]
fn annotations_of_images_that_are_not_listed_are_left_out() {
    let mut data = three();
    data["annotations"][2]["image_id"] = 8.into();
    data["annotations"].as_array_mut().unwrap().push(json!({"id": 30, "image_id": "y", "category_id": 77}));
    let (_, marked, _) = told(&*sound(open_source(beside(&THREE, &data))), 0);
    assert_eq!(marked.ids, [21]);
}

#[test]
fn boxes_that_are_left_out_are_those_of_the_outlines() {
    let mut data = three();
    let crowd = json!({"counts": [3, 1, 1, 1], "size": [2, 3]});
    data["annotations"][1] = json!({"id": 5, "image_id": 7, "category_id": 1, "segmentation": crowd});
    data["annotations"][2]["bbox"] = json!(null);
    data["annotations"][2]["segmentation"] = json!([[4, 2, 3.5, 2, 3.5, 9.5], [1, 1], [30, 5, 20, 3, 30, 4]]);
    let with = sound(open_source(beside(&THREE, &data)).masks(true));
    let without = sound(open_source(beside(&THREE, &data)));
    assert_eq!(with.fingerprint(), without.fingerprint());
    for dataset in [&without, &with] {
        assert_eq!(told(&**dataset, 0).1.boxes, [[0.5, 1.0, 2.75, 4.0], [3.5, 2.0, 30.0, 9.5]]);
        let (_, marked, _) = told(&**dataset, 2);
        assert_eq!((marked.boxes, marked.crowd), (vec![[1.0, 1.0, 3.0, 2.0]], vec![false]));
    }
    assert!(told(&*without, 0).1.masks.is_none() && told(&*with, 0).1.masks.is_some());
    // What is wrong with an outline that nobody asked for is nobody's business.
    data["annotations"][0]["segmentation"] = json!([[1, 2, 3]]);
    sound(open_source(beside(&THREE, &data)));
    data["annotations"][2]["segmentation"] = json!([]);
    let error = read(&*opened(open_source(beside(&THREE, &data))).unwrap(), 0).unwrap_err();
    assert!(error.is_sample() && error.to_string().contains("annotation 4: it has neither a bbox"), "{error}");
}

#[test]
fn captions_are_the_texts_of_their_images() {
    let caption = |id: i64, image: i64, text: &str| json!({"id": id, "image_id": image, "caption": text});
    let mut data = three();
    data["annotations"] =
        json!([caption(9, 7, "a crowd"), caption(2, 3, "a brush"), caption(1, 7, "an \u{fc}"), caption(3, 99, "?")]);
    data.as_object_mut().unwrap().remove("categories");
    let names = |dataset: &dyn Dataset| -> Vec<String> {
        dataset.schema().fields.iter().map(|field| format!("{}: {}", field.name, field.kind.name())).collect()
    };
    let captions = |dataset: &dyn Dataset, at: usize| -> Vec<Vec<String>> {
        let of = |record| match &read(dataset, record).unwrap().values[at] {
            Value::Texts(texts) => texts.iter().map(|text| String::from_utf8(text.to_vec()).unwrap()).collect(),
            other => panic!("{other:?}"),
        };
        (0..3).map(of).collect()
    };
    // In the order of the file, image by image; those of an image that is not listed are left out.
    let want = [vec!["a brush"], vec![], vec!["a crowd", "an \u{fc}"]];
    let dataset = sound(open_source(beside(&THREE, &data)));
    assert_eq!(names(&*dataset), ["image: image", "captions: texts", "image_id: label"]);
    assert_eq!(
        (captions(&*dataset, 1), dataset.schema().classes.is_none()),
        (want.map(|row| row.iter().map(|text| (*text).to_owned()).collect()).to_vec(), true)
    );
    assert!(matches!(dataset.known(2, "captions"), Some(Value::Texts(texts)) if texts.len() == 2));
    fails(open_source(beside(&THREE, &data)).masks(true), ErrorKind::Config, &["the annotations are captions"]);
    // COCO's own folders; the file of instances is taken if there is one, and the user may name the captions.
    let files = ["train2017/a.jpg", "train2017/b.jpg", "train2017/c.jpg"];
    let named = || open_source(holding(&files, "annotations/captions_train2017.json", &data));
    assert_eq!(captions(&*sound(named()), 1), captions(&*dataset, 1));
    assert_eq!(
        captions(&*sound(named().annotations("annotations/captions_train2017.json")), 1),
        captions(&*dataset, 1)
    );
    // A caption that is no text is none.
    let mut odd = three();
    odd["annotations"][0]["caption"] = json!({"en": "a brush"});
    assert_eq!(
        names(&*sound(open_source(beside(&THREE, &odd)))),
        names(&*sound(open_source(beside(&THREE, &three()))))
    );
    // A file may have both.
    let mut both = three();
    both["annotations"].as_array_mut().unwrap().extend([caption(30, 3, "a brush")]);
    both["annotations"][1]["caption"] = json!("a crowd");
    let both = sound(open_source(beside(&THREE, &both)));
    assert_eq!(names(&*both), ["image: image", "instances: instances", "captions: texts", "image_id: label"]);
    assert_eq!(captions(&*both, 2), [vec!["a brush"], vec![], vec!["a crowd"]]);
    assert_ne!(dataset.fingerprint(), both.fingerprint());
}

#[test]
fn jsons_of_other_tasks_are_told_by_name() {
    for (annotation, says) in [
        (json!({"id": 1, "image_id": 3, "keypoints": [1, 2, 2], "num_keypoints": 1}), "of keypoints"),
        (json!({"image_id": 3, "file_name": "a.png", "segments_info": [{"id": 1, "category_id": 1}]}), "of panoptic"),
        (json!({"id": 1, "image_id": 3, "category_id": 1}), "annotation 1 and all others have neither a bbox"),
        (json!({"id": 1, "image_id": 3, "bbox": [1, 2, 3, 4]}), "has no category_id"),
        (json!({"id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}), "`image_id`"),
    ] {
        let mut data = three();
        data["annotations"] = json!([annotation, annotation]);
        fails(open_source(beside(&THREE, &data)), ErrorKind::Corrupt, &[says, "_annotations.coco.json"]);
        fails(open_source(beside(&THREE, &data)).masks(true), ErrorKind::Corrupt, &[says]);
    }
    // Persons have boxes beside their keypoints.
    let mut persons = three();
    persons["annotations"][0]["keypoints"] = json!([1, 2, 2]);
    sound(open_source(beside(&THREE, &persons)));
}

#[test]
fn marks_of_editors_flags_as_texts_and_names_in_urls_are_read() {
    let mut data = three();
    data["annotations"][0]["iscrowd"] = json!("1");
    drop(data["annotations"][2].as_object_mut().unwrap().remove("iscrowd"));
    data["images"][1].as_object_mut().unwrap().remove("file_name");
    data["images"][1]["coco_url"] = json!("http://images.cocodataset.org/a.d/a.jpg");
    let text = data.to_string();
    let wide = |order: fn(u16) -> [u8; 2]| std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(order).collect();
    let marked: Vec<u8> = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    for bytes in [marked, wide(u16::to_le_bytes), wide(u16::to_be_bytes)] {
        let store = InMemory::new();
        let put = |name: &str, bytes: Vec<u8>| drop(block_on(store.put(&Path::from(name), bytes.into())).unwrap());
        ["a.d/a.jpg", "b.jpg", "c.jpg"].iter().for_each(|file| put(file, file.as_bytes().to_vec()));
        put("_annotations.coco.json", bytes);
        let dataset = sound(open_source(Source::from_store(Arc::new(store), Path::default(), "test://x")));
        let (file, marked, _) = told(&*dataset, 0);
        assert_eq!((file.as_str(), marked.crowd), ("a.d/a.jpg", vec![true, false]));
    }
}

#[test]
fn numbers_that_mean_nothing_are_bad_samples_of_their_image_alone() {
    for (bbox, says) in [
        ("[NaN, 1, 2, 3]", "not numbers"),
        ("[1, 1, Infinity, 3]", "not numbers"),
        ("[1, null, 2, 3]", "not numbers"),
        ("[1, 1, -2, 3]", "ends before it begins"),
        ("[1, 1, 2, -3]", "ends before it begins"),
        ("[31, 1, 2, 3]", "outside the image of 30x40"),
    ] {
        let text = three().to_string().replace("[1.0,1.0,0.0,2.0]", bbox);
        let store = InMemory::new();
        for file in THREE {
            block_on(store.put(&Path::from(file), file.into())).unwrap();
        }
        block_on(store.put(&Path::from("_annotations.coco.json"), text.into())).unwrap();
        let dataset = opened(open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))).unwrap();
        let error = read(&*dataset, 0).unwrap_err();
        assert!(error.is_sample() && error.to_string().contains("annotation 4"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        told(&*dataset, 1);
        told(&*dataset, 2);
        assert_eq!(dataset.image_size(0), Some([40, 30]));
    }
}

#[test]
fn sizes_that_are_not_said_are_those_of_the_images() {
    for without in [json!(null), json!(0), json!(-1), json!("")] {
        let mut data = three();
        data["images"][1] = json!({"id": 3, "file_name": "P5 30 40 255.pgm.png", "height": without, "width": 7});
        drop(data["images"][0].as_object_mut().unwrap().remove("width"));
        data["images"][0]["file_name"] = json!("P6 2 3 255.pgm.png");
        let files = ["P5 30 40 255.pgm.png", "b.jpg", "P6 2 3 255.pgm.png"];
        let dataset = opened(open_source(beside(&files, &data)).masks(true)).unwrap();
        assert_eq!((dataset.image_size(0), dataset.image_size(1), dataset.image_size(2)), (None, None, Some([5, 6])));
        let error = read(&*dataset, 1).unwrap_err();
        assert!(
            error.to_string().contains("height and width are [2, 3] for runs, but [3, 2] for the image"),
            "{error}"
        );
        let boxes = opened(open_source(beside(&files, &data))).unwrap();
        assert_eq!((told(&*boxes, 1).1.size, boxes.fingerprint()), ([3, 2], dataset.fingerprint()));
        let (_, marked, _) = told(&*dataset, 0);
        assert_eq!((marked.size, &marked.boxes[1]), ([40, 30], &[1.0, 1.0, 1.0, 3.0]));
    }
    let mut data = three();
    data["images"][2] = json!({"id": 11, "file_name": "b.jpg"});
    let dataset = opened(open_source(beside(&THREE, &data))).unwrap();
    let error = read(&*dataset, 1).unwrap_err();
    assert!(error.is_sample() && error.to_string().contains("have the size of the image"), "{error}");
}

#[test]
fn damage_of_the_file_is_told_at_opening() {
    let with = |change: fn(&mut Json)| {
        let mut data = three();
        change(&mut data);
        beside(&THREE, &data)
    };
    let corrupt = |change: fn(&mut Json), says: &[&str]| {
        fails(open_source(with(change)), ErrorKind::Corrupt, &[says, &["_annotations.coco.json"]].concat());
    };
    corrupt(|data| data["images"][1]["id"] = 7.into(), &["two images have the id 7", "a.jpg", "c.jpg"]);
    corrupt(|data| data["images"][1]["file_name"] = "./c.jpg".into(), &["have the same file, `c.jpg`"]);
    corrupt(|data| data["images"][1]["height"] = (-5).into(), &["image 3 (`a.jpg`) has height -5 and width 30"]);
    corrupt(|data| data["annotations"][2]["bbox"] = "1 2 3 4".into(), &["annotation 4 has a bbox of 1 numbers"]);
    corrupt(|data| data["annotations"][2]["category_id"] = 2.into(), &["annotation 4 is of the category 2"]);
    corrupt(|data| data["annotations"][2]["bbox"] = json!([1, 2, 3]), &["annotation 4 has a bbox of 3 numbers"]);
    corrupt(|data| data["categories"][1]["id"] = 90.into(), &["two categories have the id 90"]);
    corrupt(|data| data["images"][1] = json!({"id": 3}), &["image 3 has no file_name"]);
    corrupt(|data| *data = json!({"a": 1}), &["`images`"]);
    corrupt(|data| *data = json!([]), &["COCO's JSON"]);

    let lacking = beside(&["c.jpg"], &three());
    fails(open_source(lacking), ErrorKind::NotFound, &["2 of 3 images have no file, the first is `a.jpg`"]);
    // Two names of one file.
    let mut twice = three();
    twice["images"][1]["file_name"] = "p/c.jpg".into();
    twice["images"][2]["file_name"] = "q/c.jpg".into();
    twice["images"][0]["file_name"] = "p/b.jpg".into();
    fails(open_source(beside(&THREE, &twice)), ErrorKind::Corrupt, &["may both be `c.jpg`"]);
    // What is not listed is no record.
    assert_eq!(sound(open_source(beside(&["a.jpg", "b.jpg", "c.jpg", "d.jpg"], &three()))).len(), 3);
}

#[test]
fn classes_may_come_from_elsewhere() {
    let classes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let open = |names: &[&str]| open_source(beside(&THREE, &three())).classes(classes(names));
    let dataset = sound(open(&["bus", "toothbrush", "stop sign", "person"]));
    assert_eq!(told(&*dataset, 0).1.labels, [1, 2]);
    assert_eq!(dataset.schema().classes.as_ref().unwrap().len(), 4);
    let says = ["class `stop sign` of annotation 4 is not among the 2 given classes"];
    fails(open(&["person", "toothbrush"]), ErrorKind::Config, &says);
    fails(open(&["person", "person"]), ErrorKind::Config, &["`person` is given twice"]);
    // A category that nothing is of may be left out.
    let mut unused = three();
    unused["categories"].as_array_mut().unwrap().push(json!({"id": 0, "name": "all"}));
    let dataset = sound(open_source(beside(&THREE, &unused)).classes(classes(&["person", "stop sign", "toothbrush"])));
    assert_eq!(told(&*dataset, 0).1.labels, [2, 1]);
}

/// The same with two key points of persons and stop signs: two labelled, then none, in the image `a.jpg`.
fn with_keypoints() -> Json {
    let mut data = three();
    for category in [1, 2] {
        data["categories"][category]["keypoints"] = json!(["left_eye", "right_eye"]);
        data["categories"][category]["skeleton"] = json!([[1, 2]]);
    }
    data["annotations"][2]["keypoints"] = json!([3, 4.5, 2, 28, 39, 1]);
    data["annotations"][2]["num_keypoints"] = json!(2);
    data
}

#[test]
fn key_points_come_with_their_objects() {
    let dataset = sound(open_source(beside(&THREE, &with_keypoints())));
    let kind = FieldKind::Instances { most: 2, masks: false, keypoints: 2 };
    assert_eq!(dataset.schema().fields[1], Field::new("instances", kind));
    assert_eq!(dataset.schema().names_of("keypoints").unwrap(), ["left_eye", "right_eye"]);
    // Of a category without key points, then of one that has them.
    let points = |record| told(&*dataset, record).1.keypoints.unwrap();
    assert_eq!(points(0), [[[0.0; 3]; 2], [[3.0, 4.5, 2.0], [28.0, 39.0, 1.0]]]);
    assert_eq!((points(1).len(), points(2)), (0, vec![vec![[0.0; 3]; 2]]));
    let without = sound(open_source(beside(&THREE, &three())));
    assert!(told(&*without, 0).1.keypoints.is_none() && without.schema().names.is_empty());
    assert_ne!(without.fingerprint(), dataset.fingerprint());
    assert_eq!(dataset.resident_bytes(), without.resident_bytes() + 2 * 12);
    // Parts fit only if a flip swaps the same points in each.
    let mut other = with_keypoints();
    for category in [1, 2] {
        other["categories"][category]["keypoints"] = json!(["left_eye", "nose"]);
    }
    let other = sound(open_source(beside(&THREE, &other)));
    let error = concat(vec![Arc::clone(&dataset), other]).unwrap_err().to_string();
    assert!(error.contains("its key points are left_eye, nose; the others' are left_eye, right_eye"), "{error}");
    let error = concat(vec![Arc::clone(&dataset), without]).unwrap_err().to_string();
    assert!(error.contains("keypoints: 0"), "{error}");
    let twice = concat(vec![Arc::clone(&dataset), dataset]).unwrap();
    assert!(twice.schema().names_of("keypoints").is_some());
}

#[test]
fn lists_without_three_numbers_for_each_key_point_are_bad_samples() {
    for (points, says) in [
        (json!([1, 2, 2]), "annotation 4: 3 numbers for 2 key points, not three for each"),
        (json!([1, 2, 2, 3]), "4 numbers for 2"),
        (json!([1, 2, 2, 3, 4, 2, 5, 6, 2]), "9 numbers for 2"),
        (json!([[1, 2, 2], [3, 4, 2]]), "2 numbers for 2"),
        (json!([1, 2, 2, 3, null, 2]), "the key point [3.0, NaN, 2.0] has values that are not numbers"),
        (json!([1, 2, 2, 3, 1e300, 2]), "not numbers"),
    ] {
        let mut data = with_keypoints();
        data["annotations"][2]["keypoints"] = points;
        let dataset = opened(open_source(beside(&THREE, &data))).unwrap();
        let error = read(&*dataset, 0).unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Corrupt && error.is_sample(), "{text}");
        ["annotation 4", says, "test://x/a.jpg"].iter().for_each(|part| assert!(text.contains(part), "{part}: {text}"));
        told(&*dataset, 1);
    }
    for none in [json!([]), json!(null), json!("none"), json!({"x": [1]})] {
        let mut data = with_keypoints();
        data["annotations"][2]["keypoints"] = none;
        assert_eq!(told(&*sound(open_source(beside(&THREE, &data))), 0).1.keypoints.unwrap()[1], [[0.0; 3]; 2]);
    }
}

#[test]
fn key_points_are_left_out_with_a_reason_if_categories_do_not_agree() {
    let left_out = |names: [Json; 2]| {
        let mut data = with_keypoints();
        for (category, names) in names.into_iter().enumerate() {
            data["categories"][category + 1]["keypoints"] = names;
        }
        let dataset = sound(open_source(beside(&THREE, &data)));
        let found = super::json::parse(data.to_string().as_bytes(), false).unwrap();
        let why = super::resolve::resolve(found, None).unwrap().left_out.keypoints;
        assert_eq!(told(&*dataset, 0).1.keypoints.is_none(), why.is_some());
        why
    };
    let (two, one) = (json!(["left_eye", "right_eye"]), json!(["nose"]));
    let why = "the categories `person` and `stop sign` have different ones, 2 (left_eye, right_eye) and 1 (nose)";
    assert_eq!(left_out([two.clone(), one]).as_deref(), Some(why));
    assert!(left_out([two.clone(), json!(["right_eye", "left_eye"])]).is_some());
    for none in [json!([]), json!(null), json!(17)] {
        assert_eq!(left_out([json!([]), two.clone()]), None);
        assert!(left_out([none.clone(), none]).is_some_and(|why| why.contains("no category has their names")));
    }
    assert_eq!(left_out([json!([1, 2]), json!([1, 2])]), None, "numbers are names too");
}

#[test]
fn folders_of_splits_are_found_by_names() {
    let in_folder = |folder: &str| THREE.map(|name| format!("{folder}/{name}"));
    let open = |folder: &str, json: &str| {
        let files = in_folder(folder);
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        open_source(holding(&files, json, &three()))
    };
    for (folder, json) in [
        ("train2017", "annotations/instances_train2017.json"),
        ("images/train2017", "annotations/instances_train2017.json"),
        ("images", "annotations/instances_train2017.json"),
        ("train2017", "train2017/_annotations.coco.json"),
    ] {
        for dataset in [sound(open(folder, json)), sound(open(folder, json).split("train2017"))] {
            assert_eq!(told(&*dataset, 1).0, format!("{folder}/b.jpg"));
            assert_eq!(dataset.object(1), format!("test://x/{folder}/b.jpg"));
        }
        let named = sound(open(folder, json).annotations(json));
        assert_eq!(told(&*named, 2).0, format!("{folder}/c.jpg"));
        fails(open(folder, json).split("val2017"), ErrorKind::NotFound, &["split `val2017`", "train2017"]);
    }
    // Any name, when it is named.
    let other = || open("photos", "x/marks.json").annotations("x/marks.json");
    assert_eq!(told(&*sound(other().split("photos")), 0).0, "photos/a.jpg");
    assert_eq!(told(&*sound(other()), 0).0, "photos/a.jpg");
    // But those of another split may have the same names.
    let elsewhere = open("val2017", "annotations/instances_train2017.json");
    fails(elsewhere, ErrorKind::NotFound, &["3 of 3 images have no file"]);
    fails(open("photos", "x/marks.json").annotations("x/other.json"), ErrorKind::NotFound, &["x/other.json"]);

    let store = InMemory::new();
    for split in ["train", "valid"] {
        for (name, bytes) in [("a.jpg", "a".to_owned()), ("_annotations.coco.json", three().to_string())] {
            block_on(store.put(&Path::from(format!("{split}/{name}")), bytes.into())).unwrap();
        }
    }
    let source = Source::from_store(Arc::new(store), Path::default(), "test://x");
    fails(open_source(source), ErrorKind::Config, &["several splits: train, valid", "split("]);
}

#[test]
fn options_are_taken_where_they_mean_something() {
    let folder = || open_source(holding(&["k/a.jpg"], "labels.json", &json!({"k/a.jpg": 1})));
    fails(folder().masks(true), ErrorKind::Config, &["take no masks", "COCO's JSON"]);
    fails(folder().format("folder").annotations("labels.json"), ErrorKind::Config, &["take no annotations"]);
    fails(folder().annotations("labels.json"), ErrorKind::Corrupt, &["COCO's JSON", "labels.json"]);
    fails(open_source(beside(&THREE, &three())).labels("x"), ErrorKind::Config, &["format coco take no labels"]);
    let tars = open_source(holding(&["a.tar"], "b.json", &three())).annotations("b.json");
    fails(tars, ErrorKind::Config, &["format tar take no annotations"]);
    assert!(OpenOption::ALL.contains(&OpenOption::Annotations));
}

#[test]
fn the_identity_changes_with_boxes_and_classes_of_things() {
    let print = |change: fn(&mut Json)| {
        let mut data = three();
        change(&mut data);
        opened(open_source(beside(&THREE, &data))).unwrap().fingerprint()
    };
    let same = print(|_| ());
    // Saved states have these.
    assert_eq!(same.to_string(), "8a6c169202719b25652030e878e962af");
    assert_eq!(print(|data| *data = with_keypoints()).to_string(), "e8244df01af5c402b0a8b830975b50ff");
    assert_eq!(same, print(|data| data["info"] = json!({"year": 2018})));
    for change in [
        (|data| data["annotations"][0]["bbox"][2] = 2.5.into()) as fn(&mut Json),
        |data| data["annotations"][0]["category_id"] = 13.into(),
        |data| data["annotations"][0]["iscrowd"] = true.into(),
        |data| data["annotations"][0]["id"] = 22.into(),
        |data| data["annotations"][0]["image_id"] = 11.into(),
        |data| data["images"][2]["width"] = 7.into(),
        |data| *data = with_keypoints(),
    ] {
        assert_ne!(same, print(change));
    }
}

#[test]
fn any_bytes_are_annotations_or_an_error() {
    let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
    let seed = with_keypoints().to_string().into_bytes();
    for _ in 0..20_000 {
        let mut bytes = seed.clone();
        for _ in 0..1 + draws.below(4) {
            let at = draws.below(bytes.len() as u64) as usize;
            bytes[at] =
                if draws.chance(0.7) { b",\"{}[]:019.-eNIn"[draws.below(16) as usize] } else { draws.bits() as u8 };
        }
        for masks in [false, true] {
            let Ok(found) = super::json::parse(&bytes, masks) else { continue };
            let Ok(found) = super::resolve::resolve(found, None) else { continue };
            for (record, size) in found.sizes.iter().enumerate() {
                let Some(all) = &found.notes.marked else { continue };
                if let Ok(marked) = all.instances(record, size.map(|side| side.max(1))) {
                    assert!(marked.is_sound() && marked.masks.is_some() == masks);
                    assert!(all.keypoint_names.as_ref().is_none_or(|names| marked.has_keypoints(names.len())));
                }
            }
        }
    }
}
