//! Detection datasets as they lie on a disk: COCO's JSON beside folders of photographs, Pascal VOC's folders. Their parts are
//! tested beside the code.

use std::{fs, sync::Arc};

use bytes::Bytes;
use futures::executor::block_on;
use infeed::{
    ErrorKind, Result,
    dataset::{Dataset, Instances, Mask, Open, SampleRng, Value, concat, dataset_contract, open, subset},
};
use tempfile::TempDir;

use crate::support::{
    detection::{coco, voc},
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
