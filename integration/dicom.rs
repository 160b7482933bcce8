//! DICOM through a loader: the same volumes from a disk and from a bucket, whole and in patches, with any workers, resumed.
//! What the voxels have to be, `crates/infeed-science/src/volumes/dicom/tests.rs` compares with pydicom.

use std::{fs, sync::Arc};

use infeed::{
    Dataset, LoaderBuilder, Transform,
    dataset::{Open, open, open_source},
};

use crate::support::{
    Plain,
    arrays::{sound, unpacked},
    builder, drain, plain,
    store::Tracker,
};

/// Series of one size that a loader puts into one batch, each in a folder of its own: (name, file).
fn files() -> Vec<(String, Vec<u8>)> {
    let json: serde_json::Value = serde_json::from_str(include_str!("golden/dicom.json")).unwrap();
    let mut files = Vec::new();
    for case in json["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        if case["shape"] != serde_json::json!([1, 5, 11, 14]) {
            continue;
        }
        for (n, file) in case["files"].as_array().unwrap().iter().enumerate() {
            files.push((format!("{}/{n}.dcm", name.replace(' ', "_")), unpacked(file)));
        }
    }
    files
}

fn rows(dataset: &Arc<dyn Dataset>, settings: impl FnOnce(LoaderBuilder) -> LoaderBuilder) -> Vec<Plain> {
    let loader = settings(builder(Arc::clone(dataset)).batch_size(2).shuffle(3)).build_blocking().unwrap();
    drain(loader.epochs(0..2)).unwrap().iter().map(plain).collect()
}

#[test]
fn a_disk_and_a_bucket_give_the_same_volumes_whole_and_in_patches() {
    let (files, dir) = (files(), tempfile::tempdir().unwrap());
    for (name, bytes) in &files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    let store = Tracker::holding(files.iter().map(|(name, bytes)| (name, bytes.clone())));
    let samples = |open: Open| sound(open.samples_per_patient(3));
    let local = samples(open(dir.path().to_str().unwrap()));
    let remote = samples(open_source(store.source()));
    assert!(local.len() >= 24 && local.format() == "dicom", "{} of {}", local.len(), local.format());
    assert_eq!(local.schema().names_of("patient"), remote.schema().names_of("patient"));
    for transform in [Transform::new(), Transform::new().patch([2, 5, 6], 0.0)] {
        let wanted = rows(&local, |b| b.transform(transform.clone()).workers(1));
        for dataset in [&local, &remote] {
            assert!(rows(dataset, |b| b.transform(transform.clone()).workers(3)) == wanted);
        }
        let loader =
            builder(Arc::clone(&remote)).batch_size(2).shuffle(3).transform(transform).build_blocking().unwrap();
        let all = drain(loader.epoch(0)).unwrap();
        let rest = drain(loader.resume_epoch(all[4].state()).unwrap()).unwrap();
        assert_eq!(rest.iter().map(plain).collect::<Vec<_>>(), all[5..].iter().map(plain).collect::<Vec<_>>());
    }
}
