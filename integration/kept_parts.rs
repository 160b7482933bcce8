//! What opening reads of tables in a bucket is read once a machine: footers of Parquet, offsets and index of MDS.

use std::{fs, future::IntoFuture, path::Path, sync::Arc};

use futures::future::try_join_all;
use infeed::{
    Result,
    dataset::{Dataset, open_source},
};
use object_store::ObjectStoreExt;

use crate::{
    damaged::{Files, mds},
    parquet::pictures,
    support::store::Tracker,
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
