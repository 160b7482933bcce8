//! What opening reads of tables in a bucket is read once a machine: footers of Parquet, offsets and index of MDS.

use std::{fs, future::IntoFuture, path::Path, sync::Arc};

use futures::future::try_join_all;
use infeed::{
    Result,
    dataset::{Dataset, open_source},
    source::Source,
};
use object_store::ObjectStoreExt;

use crate::{
    damaged::{Draws, Files, example, gzip, mds, record},
    parquet::pictures,
    support::{builder, drain, store::Tracker},
};

fn kinds() -> [(&'static str, Files); 3] {
    let parquet = vec![("a.parquet", pictures(7)), ("b.parquet", pictures(9))];
    [("parquet", parquet), ("mds", mds(None)), ("compressed mds", mds(Some("{}")))]
}

async fn open(tracker: &Arc<Tracker>, kept: &Path) -> Result<Arc<dyn Dataset>> {
    open_source(tracker.source()).manifests(kept).into_future().await
}

/// What opening finds out.
fn about(dataset: &dyn Dataset) -> String {
    format!("{:?} {} {:?}", dataset.fingerprint(), dataset.len(), dataset.schema())
}

#[tokio::test]
async fn a_later_opening_reads_nothing_but_what_has_changed() {
    for (kind, files) in kinds() {
        let (tracker, kept) = (Tracker::holding(files.clone()), tempfile::tempdir().unwrap());
        let first = about(&*open(&tracker, kept.path()).await.unwrap());
        let once = tracker.names();
        for (name, bytes) in &files {
            assert!(once.iter().any(|read| read == name), "{kind}: {once:?}");
            tracker.reset();
            assert_eq!(about(&*open(&tracker, kept.path()).await.unwrap()), first, "{kind}");
            assert_eq!(tracker.names(), [""; 0], "{kind}");
            // It is another object with the same bytes.
            tracker.put(&(*name).into(), bytes.clone().into()).await.unwrap();
            assert_eq!(about(&*open(&tracker, kept.path()).await.unwrap()), first, "{kind}");
            assert!(tracker.names().iter().all(|read| read == name), "{kind}: {:?}", tracker.names());
            assert!(tracker.requests() > 0, "{kind}");
        }
    }
}

/// As the ranks of a machine do.
#[tokio::test]
async fn several_that_open_a_bucket_at_once_read_it_once() {
    for (kind, files) in kinds() {
        let (alone, together) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let tracker = Tracker::holding(files);
        let first = about(&*open(&tracker, alone.path()).await.unwrap());
        let once = tracker.requests();
        tracker.reset();
        let ranks = try_join_all((0..8).map(|_| open(&tracker, together.path()))).await.unwrap();
        assert!(ranks.iter().all(|rank| about(&**rank) == first), "{kind}");
        assert_eq!(tracker.requests(), once, "{kind}: {:?}", tracker.log_of_requests());
    }
}

#[tokio::test]
async fn what_is_kept_and_damaged_is_read_again_and_never_another_dataset() {
    for (kind, files) in kinds() {
        let (tracker, kept) = (Tracker::holding(files), tempfile::tempdir().unwrap());
        let first = about(&*open(&tracker, kept.path()).await.unwrap());
        let file = |dir: &Path| {
            let files = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
            files.filter(|path| path.extension().is_some_and(|kind| kind == "parts")).collect::<Vec<_>>()
        };
        let [file] = &file(kept.path())[..] else { panic!("{kind}: {:?}", file(kept.path())) };
        let sound = fs::read(file).unwrap();
        for at in (0..sound.len()).step_by(sound.len() / 200 + 1) {
            for cut in [false, true] {
                let mut bytes = sound.clone();
                if cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 0x10;
                }
                fs::write(file, bytes).unwrap();
                tracker.reset();
                assert_eq!(about(&*open(&tracker, kept.path()).await.unwrap()), first, "{kind}, byte {at}");
                assert!(tracker.requests() > 0, "{kind}, byte {at}");
                tracker.reset();
                assert_eq!(about(&*open(&tracker, kept.path()).await.unwrap()), first, "{kind}, byte {at}");
                assert_eq!(tracker.requests(), 0, "{kind}, byte {at}: made again");
            }
        }
    }
}

/// A file of TFRecords that hardly gets smaller.
fn packed_records() -> Vec<u8> {
    let mut draws = Draws(1);
    let mut noise = || (0..200_000).map(|_| draws.next() as u8).collect::<Vec<u8>>();
    gzip(&(0..10).flat_map(|_| record(&example(&noise()))).collect::<Vec<u8>>())
}

#[tokio::test]
async fn a_compressed_file_is_unpacked_once_to_find_its_records() {
    let (file, kept) = (packed_records(), tempfile::tempdir().unwrap());
    let size = file.len() as u64;
    let tracker = Tracker::holding([("x.tfrecord.gz", file)]);
    let first = about(&*open(&tracker, kept.path()).await.unwrap());
    assert!(tracker.bytes() > size);
    tracker.reset();
    assert_eq!(about(&*open(&tracker, kept.path()).await.unwrap()), first);
    assert!(tracker.bytes() < size, "its beginning shows the features: {} of {size} bytes", tracker.bytes());
}

/// Then later damage is found when its records are read, as in files that are not compressed.
#[test]
fn the_same_for_a_local_one() {
    let (data, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = data.path().join("x.tfrecord.gz");
    let mut file = packed_records();
    let open = |kept: &Path| {
        let open = open_source(Source::parse(data.path().to_str().unwrap()).unwrap()).manifests(kept);
        futures::executor::block_on(open.into_future())
    };
    fs::write(&path, &file).unwrap();
    let first = open(kept.path()).unwrap();
    let middle = file.len() * 9 / 10;
    file[middle..middle + 1000].fill(0);
    fs::write(&path, &file).unwrap();
    let later = open(kept.path()).unwrap();
    assert_eq!(about(&*later), about(&*first));
    let loader = builder(later).batch_size(10).build_blocking().unwrap();
    let error = drain(loader.epoch(0)).unwrap_err().to_string();
    assert!(error.contains("damaged gzip") && error.contains("x.tfrecord.gz"), "{error}");
    assert!(open(tempfile::tempdir().unwrap().path()).is_err(), "one that was never seen is unpacked in opening");
}
