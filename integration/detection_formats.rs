//! Detection datasets as they lie on a disk: COCO's JSON beside folders of photographs, Pascal VOC's folders. Their parts are
//! tested beside the code.

use std::{fs, sync::Arc};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    Batch, ErrorKind, Result, Transform,
    dataset::{Dataset, Instances, Mask, Open, SampleRng, Value, concat, dataset_contract, open, subset},
    transform::Op,
};
use tempfile::TempDir;

use crate::support::{
    builder,
    detection::{coco, voc},
    drain,
    photos::jpeg,
};

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
        assert_eq!(file, jpeg(0, 24, 32));
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
fn key_points_of_persons_are_read_if_their_file_is_named() {
    let dir = coco();
    let file = path(&dir, "annotations/person_keypoints_train2017.json");
    // The file of instances, which the folder has too, comes first.
    assert!(read(&*sound(open(path(&dir, "")).split("train2017")), 0).unwrap().1.keypoints.is_none());
    let dataset = sound(open(path(&dir, "train2017")).annotations(&file));
    assert_eq!(dataset.schema().names_of("keypoints").unwrap(), ["nose", "left_eye", "right_eye"]);
    let batch = |transform: Transform| -> Batch {
        let loader = builder(Arc::clone(&dataset)).batch_size(3).transform(transform).build_blocking().unwrap();
        drain(loader.epoch(0)).unwrap().remove(0)
    };
    let [nose, left, right] = [[16.0, 10.0, 2.0], [20.0, 6.0, 2.0], [12.0, 6.5, 1.0]];
    let plain = batch(Transform::new().resize_exact(24, 32));
    let marked = plain.instances("instances").unwrap();
    assert_eq!(marked.keypoints().unwrap().shape(), [2, 3, 3]);
    assert_eq!(marked.tensors().last().unwrap().0, "keypoints");
    assert_eq!(marked.row(0).keypoints, Some(&[nose, left, right][..]));
    assert_eq!((marked.row(1).keypoints, marked.row(2).keypoints), (Some(&[][..]), Some(&[[0.0; 3]; 3][..])));
    // By hand: the mirror of x in 32 columns, then half of both; eyes change places.
    let flipped = batch(Transform::new().horizontal_flip(1.0).resize_exact(12, 16));
    let want = [[8.0, 5.0, 2.0], [10.0, 3.25, 1.0], [6.0, 3.0, 2.0]];
    assert_eq!(flipped.instances("instances").unwrap().row(0).keypoints, Some(&want[..]));
    // A crop of 16 columns from 8 and 20 rows from 2.
    let cropped = batch(Transform::new().resize_exact(24, 32).push(Op::CenterCrop { size: [20, 16] }));
    let want = [[8.0, 8.0, 2.0], [12.0, 4.0, 2.0], [4.0, 4.5, 1.0]];
    assert_eq!(cropped.instances("instances").unwrap().row(0).keypoints, Some(&want[..]));
    // Of 6 columns from 13 and 10 rows from 7 only the nose is left.
    let cropped = batch(Transform::new().resize_exact(24, 32).push(Op::CenterCrop { size: [10, 6] }));
    let want = [[3.0, 3.0, 2.0], [0.0; 3], [0.0; 3]];
    assert_eq!(cropped.instances("instances").unwrap().row(0).keypoints, Some(&want[..]));
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
fn voc_is_read_by_its_folders() {
    let dir = voc();
    let dataset = sound(open(path(&dir, "VOC2012")));
    assert_eq!((dataset.format(), dataset.len()), ("voc", 2));
    let (file, marked, _) = read(&*dataset, 0).unwrap();
    assert_eq!(
        (file, marked.boxes, marked.labels, marked.crowd),
        (jpeg(0, 24, 32).into(), vec![[0.0, 0.0, 32.0, 24.0]], vec![11], vec![true])
    );
    let val = sound(open(path(&dir, "")).split("val"));
    assert_eq!((val.len(), read(&*val, 0).unwrap().1.boxes), (1, vec![[2.0, 3.0, 3.0, 4.0]]));
}
