//! What was read once is near: served, verified, bounded, shared, and never a reason to stop.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use infeed::{Dataset, ErrorKind, Loader, OnBadSample, Shard, report::CacheReport, source::CacheSpec};

use crate::support::{
    builder,
    records::{LEN, Obedient, Records, Told, name, record_of},
    store::{Fault, Tracker},
    until,
};

/// A record and its checksum.
const ENTRY: u64 = LEN as u64 + 24;

fn loader(dataset: Arc<dyn Dataset>, spec: &CacheSpec) -> Loader {
    builder(dataset).batch_size(10).shuffle(3).workers(2).cache(spec.clone()).build_blocking().unwrap()
}

/// Runs epochs, checks every row, gives what the cache did.
fn run(loader: &Loader, epochs: std::ops::Range<u64>) -> CacheReport {
    let mut batches = loader.epochs(epochs).blocking();
    for batch in &mut batches {
        let batch = batch.unwrap();
        for (record, row) in batch.records().iter().zip(batch["bytes"].bytes().unwrap().chunks(LEN)) {
            assert_eq!(record_of(row), *record);
        }
    }
    // Threads of the engine write what was read; what they have not come to goes with the stream.
    let mut report = batches.report().cache.expect("there is a cache");
    until("what was read is neither written nor refused", || {
        report = batches.report().cache.expect("there is a cache");
        report.bytes_written / LEN as u64 + report.not_kept == report.misses
    });
    report
}

/// In a loader of its own; returns when its cache is closed, which the engine's thread does when it comes to it.
fn fresh(dataset: Arc<dyn Dataset>, spec: &CacheSpec, epochs: std::ops::Range<u64>) -> CacheReport {
    let report = run(&loader(dataset, spec), epochs);
    let spec = spec.to_string();
    let (dir, _) = spec.rsplit_once(':').unwrap();
    closed(Path::new(dir));
    report
}

/// Waits until no loader has the cache.
fn closed(dir: &Path) {
    if let Ok(in_use) = fs::File::open(dir.join("infeed-cache-v1/in-use")) {
        until("the cache is still open", || in_use.try_lock().is_ok());
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    (dir, path)
}

/// The files of entries.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(dir.join("infeed-cache-v1")).into_iter().flatten().flatten() {
        if folder.file_name().len() == 2 {
            files.extend(fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path()));
        }
    }
    files.sort();
    files
}

fn ledger(dir: &Path) -> u64 {
    u64::from_le_bytes(fs::read(dir.join("infeed-cache-v1/ledger")).unwrap().try_into().unwrap())
}

#[test]
fn the_second_epoch_asks_the_store_for_nothing() {
    let (_dir, path) = folder();
    for spec in [CacheSpec::dir(&path, 1 << 20), CacheSpec::ram(1 << 20)] {
        let (dataset, tracker) = Records::tagged(100);
        let report = fresh(dataset, &spec, 0..3);
        assert_eq!(tracker.requests(), 100, "{spec}");
        assert_eq!((report.misses, report.hits), (100, 200), "{spec}");
        assert_eq!((report.bytes_written, report.bytes_hit), (6400, 12800), "{spec}");
        assert_eq!((report.not_kept, report.evictions, report.damaged), (0, 0, 0), "{spec}");
        assert_eq!((report.used, report.size), (100 * ENTRY, 1 << 20), "{spec}");
    }
    assert_eq!(entries(&path).len(), 100);
    assert_eq!(ledger(&path), 100 * ENTRY);
}

#[test]
fn the_next_run_begins_with_what_is_there() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 1 << 20);
    let (dataset, _) = Records::tagged(50);
    fresh(dataset, &spec, 0..1);
    let (dataset, tracker) = Records::tagged(50);
    assert_eq!(fresh(dataset, &spec, 0..1).hits, 50);
    assert_eq!(tracker.requests(), 0);
}

#[test]
fn half_a_cache_serves_half_of_each_later_epoch_and_writes_its_size_once() {
    let (_dir, path) = folder();
    let half = 200 * ENTRY;
    for spec in [CacheSpec::dir(&path, half), CacheSpec::ram(half)] {
        let (dataset, tracker) = Records::tagged(400);
        let loader = loader(dataset, &spec);
        assert_eq!(run(&loader, 0..1).hits, 0);
        for epoch in 1..4 {
            tracker.reset();
            let report = run(&loader, epoch..epoch + 1);
            assert!(report.hits as f64 >= 0.95 * 200.0, "{spec}: {report:?}");
            assert_eq!(tracker.requests() as u64, 400 - report.hits);
            assert_eq!((report.bytes_written, report.evictions), (0, 0), "{spec}: nothing is gained by churn");
            assert!(report.used <= half);
        }
    }
    assert!(entries(&path).len() as u64 * ENTRY <= half);
}

/// `srun -m cyclic` and `mpirun --map-by node` deal ranks out over the machines.
#[test]
fn ranks_that_share_a_cache_need_not_follow_one_another() {
    const RECORDS: u64 = 800;
    let share_of_hits = |ranks: [u32; 2]| {
        let (_dir, path) = folder();
        // A quarter of the records; the two of four ranks read half of them in each epoch.
        let spec = CacheSpec::dir(&path, RECORDS / 4 * ENTRY);
        let loaders = ranks.map(|rank| {
            let (dataset, _) = Records::tagged(RECORDS);
            let shard = Shard::new(rank, 4).unwrap();
            let builder = builder(dataset).batch_size(10).shuffle(3).workers(1).shard(shard);
            builder.cache(spec.clone()).build_blocking().unwrap()
        });
        let hits = |epoch| loaders.iter().map(|loader| run(loader, epoch..epoch + 1).hits).sum::<u64>();
        let early: u64 = (0..3).map(hits).sum();
        assert!(early < 3 * RECORDS / 2);
        (3..8).map(hits).sum::<u64>() as f64 / (5 * RECORDS / 2) as f64
    };
    let (near, apart) = (share_of_hits([0, 1]), share_of_hits([1, 3]));
    // What stays for no reason is hit by a quarter; what the two need in the next epoch, known, by up to a half.
    assert!(near > 0.36 && apart > 0.36, "{near} {apart}");
    assert!((near - apart).abs() < 0.04, "{near} {apart}");
}

#[test]
fn a_full_cache_makes_room_once_its_old_content_is_of_no_use() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 100 * ENTRY);
    let (old, _) = Records::tagged(100);
    fresh(old, &spec, 0..1);
    // Other records, in the same cache: those of a store of another name.
    let tracker = Tracker::holding((0..80).map(|r: u64| (format!("x/{}", name(r)), r.to_le_bytes().repeat(8))));
    let source = tracker.source().child("x").unwrap();
    let dataset = Records::tagged_over(source, 80);
    let loader = loader(dataset, &spec);
    assert_eq!(run(&loader, 0..1).evictions, 0, "the first epoch may still come to them");
    let report = run(&loader, 1..2);
    assert_eq!((report.evictions, report.not_kept), (80, 0), "{report:?}");
    tracker.reset();
    assert_eq!(run(&loader, 2..3).hits, 80);
    assert_eq!(tracker.requests(), 0);
    assert!(ledger(&path) <= 100 * ENTRY);
}

#[test]
fn damaged_entries_are_found_removed_and_read_again() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 1 << 20);
    let (dataset, _) = Records::tagged(60);
    fresh(dataset, &spec, 0..1);
    let files = entries(&path);
    for (i, pair) in files.chunks(2).enumerate() {
        let bytes = fs::read(&pair[0]).unwrap();
        let damaged = match i % 5 {
            // A flipped bit, in the bytes and in the checksum.
            0 => [&[bytes[0] ^ 1], &bytes[1..]].concat(),
            1 => [&bytes[..bytes.len() - 1], &[bytes[bytes.len() - 1] ^ 0x80]].concat(),
            2 => bytes[..bytes.len() / 2].to_vec(),
            // As a power failure leaves it.
            3 => vec![0; bytes.len()],
            // An entry under another's name.
            _ => fs::read(&pair[1]).unwrap(),
        };
        fs::write(&pair[0], damaged).unwrap();
    }
    let (dataset, tracker) = Records::tagged(60);
    let report = fresh(dataset, &spec, 0..1);
    assert_eq!((report.damaged, report.hits, report.misses), (30, 30, 30));
    assert_eq!(tracker.requests(), 30);
    let (dataset, tracker) = Records::tagged(60);
    let report = fresh(dataset, &spec, 0..1);
    assert_eq!((report.damaged, report.hits, tracker.requests()), (0, 60, 0), "they were written again");
    assert_eq!(ledger(&path), 60 * ENTRY);
}

/// What was damaged on the way from the store has a checksum like any other entry.
#[test]
fn entries_that_do_not_decode_are_removed_and_read_again_once() {
    let (_dir, path) = folder();
    for (spec, classes) in
        [(CacheSpec::dir(&path, 1 << 20), 1), (CacheSpec::ram(1 << 20), 1), (CacheSpec::ram(1 << 20), 2)]
    {
        let (dataset, tracker) = Records::tagged(60);
        // Half of them on one way only, one in the store itself.
        for record in (0..60).step_by(2) {
            tracker.fail_times(&name(record), 1, Fault::Begins(b"BAD"));
        }
        tracker.fail(&name(7), Fault::Begins(b"BAD"));
        let builder =
            builder(dataset).batch_size(10).cache(spec.clone()).on_bad_sample(OnBadSample::Skip { at_most: 9 });
        let builder = match classes {
            1 => builder.workers(2),
            // Each gives half of the records to the other.
            _ => builder.decoder(Arc::new(Obedient::new(|record, class| match record % 4 / 2 == class as u64 {
                true => Told::Elsewhere,
                false => Told::Done,
            }))),
        };
        let loader = builder.build_blocking().unwrap();
        let mut batches = loader.epochs(0..3).blocking();
        let mut bad = Vec::new();
        for batch in &mut batches {
            let batch = batch.unwrap();
            bad.extend(batch.bad_samples().iter().map(|bad| (bad.epoch, bad.record)));
            for (record, row) in batch.records().iter().zip(batch["bytes"].bytes().unwrap().chunks(LEN)) {
                assert_eq!(record_of(row), *record);
            }
        }
        assert_eq!(bad, [(0, 7), (1, 7), (2, 7)], "{spec}: only what the store has is bad");
        let report = batches.report().cache.expect("there is a cache");
        // Once, and again for what later epochs had read ahead before the damage was found.
        assert!((31..31 * 3).contains(&report.undecodable) && report.damaged == 0, "{spec}: {report:?}");
        assert!((60 + 31..60 + 31 * 4).contains(&tracker.requests()), "{spec}: {}", tracker.requests());
        drop(batches);
        drop(loader);
    }
    closed(&path);
    // In a run of its own, that which is bad in the store is looked at once more.
    let there = entries(&path).len();
    let (dataset, tracker) = Records::tagged(60);
    tracker.fail(&name(7), Fault::Begins(b"BAD"));
    let spec = CacheSpec::dir(&path, 1 << 20);
    let loader = builder(dataset).batch_size(10).workers(2).cache(spec).on_bad_sample(OnBadSample::Skip { at_most: 9 });
    let loader = loader.build_blocking().unwrap();
    let mut batches = loader.epochs(0..2).blocking();
    assert_eq!((&mut batches).map(|batch| batch.unwrap().len()).sum::<usize>(), 118);
    assert_eq!(batches.report().cache.unwrap().undecodable, 1);
    // What the other run had not written yet when it ended; and that one, once and in the next epoch up to twice.
    assert!((1..=60 - there + 3).contains(&tracker.requests()), "{} of {there}", tracker.requests());
}

#[test]
fn entries_that_vanish_are_misses() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 1 << 20);
    let (dataset, tracker) = Records::tagged(40);
    let loader = loader(dataset, &spec);
    run(&loader, 0..1);
    entries(&path).iter().for_each(|file| fs::remove_file(file).unwrap());
    let report = run(&loader, 1..2);
    assert_eq!((report.hits, report.misses, report.damaged), (0, 40, 0));
    assert_eq!(tracker.requests(), 80);
}

#[test]
fn another_version_is_another_entry() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 1 << 20);
    let (dataset, _) = Records::tagged(10);
    fresh(dataset, &spec, 0..1);
    // The same names in the same store, put once more: other tags.
    let (dataset, tracker) = Records::tagged_again(10);
    let report = fresh(dataset, &spec, 0..1);
    assert_eq!((report.hits, tracker.requests()), (0, 10));
}

#[test]
fn objects_without_a_version_are_not_kept() {
    let (_dir, path) = folder();
    let (dataset, tracker) = Records::remote(20);
    let report = fresh(dataset, &CacheSpec::dir(&path, 1 << 20), 0..2);
    assert_eq!((report.hits, report.not_kept, tracker.requests()), (0, 40, 40));
}

#[test]
fn a_folder_that_cannot_be_made_is_no_reason_to_stop() {
    let (dataset, tracker) = Records::tagged(20);
    // Nobody makes folders there, root included.
    let report = fresh(dataset, &CacheSpec::dir("/proc/self/infeed-cache", 1 << 20), 0..2);
    assert_eq!((report.hits, report.not_kept, tracker.requests()), (0, 40, 40));
}

#[test]
fn a_folder_that_becomes_unwritable_still_serves() {
    let (_dir, path) = folder();
    let spec = CacheSpec::dir(&path, 1 << 20);
    let (dataset, tracker) = Records::tagged(30);
    let loader = loader(dataset, &spec);
    run(&loader, 0..1);
    let (kept, gone) = (entries(&path), path.join("infeed-cache-v1/writing"));
    kept[..10].iter().for_each(|file| fs::remove_file(file).unwrap());
    // Where entries are written is gone, for root too.
    fs::remove_dir_all(&gone).unwrap();
    fs::write(&gone, "").unwrap();
    tracker.reset();
    for epoch in 1..3 {
        let report = run(&loader, epoch..epoch + 1);
        assert_eq!((report.hits, report.bytes_written), (20, 0), "{report:?}");
    }
    assert_eq!(tracker.requests(), 20);
}

#[test]
fn arguments_that_cannot_be_are_refused() {
    let (dir, path) = folder();
    let (dataset, _) = Records::tagged(10);
    let build = |spec: CacheSpec| builder(Arc::clone(&dataset)).batch_size(2).cache(spec).build_blocking();
    let error = build(CacheSpec::ram(0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let error = build(CacheSpec::ram(u64::MAX)).unwrap_err();
    assert!(error.to_string().contains("the machine has"), "{error}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = build(CacheSpec::dir(&file, 100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let _one = build(CacheSpec::dir(&path, 1 << 20)).unwrap();
    let error = build(CacheSpec::dir(&path, 1 << 21)).unwrap_err();
    assert!(error.to_string().contains("another size"), "{error}");
    let _same = build(CacheSpec::dir(&path, 1 << 20)).unwrap();
}

#[test]
fn local_datasets_have_no_cache() {
    let (dataset, _) = Records::inline(10);
    let loader = builder(dataset).batch_size(5).cache(CacheSpec::ram(1 << 20)).build_blocking().unwrap();
    let mut batches = loader.epoch(0).blocking();
    assert_eq!(batches.by_ref().count(), 2);
    assert_eq!(batches.report().cache, None);
}

// Other processes: this test binary, started again, runs `a_child` with these variables set.

const DIR: &str = "INFEED_TEST_CACHE_DIR";
const SIZE: &str = "INFEED_TEST_CACHE_SIZE";
const EPOCHS: &str = "INFEED_TEST_CACHE_EPOCHS";
const CHILD_RECORDS: u64 = 300;

#[test]
fn a_child() {
    let get = |name| std::env::var(name).ok();
    let (Some(dir), Some(size), Some(epochs)) = (get(DIR), get(SIZE), get(EPOCHS)) else { return };
    let (dataset, _) = Records::tagged(CHILD_RECORDS);
    let loader = loader(dataset, &CacheSpec::dir(dir, size.parse().unwrap()));
    // What it has read it has written when it ends.
    (0..epochs.parse().unwrap()).for_each(|epoch| assert_eq!(run(&loader, epoch..epoch + 1).damaged, 0));
}

fn child_of(mut command: Command, dir: &Path, size: u64, epochs: u64) -> Child {
    command.env(DIR, dir).env(SIZE, size.to_string()).env(EPOCHS, epochs.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the tests start again")
}

fn child(dir: &Path, size: u64, epochs: u64) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["cache::a_child", "--exact", "--nocapture"]);
    child_of(command, dir, size, epochs)
}

fn ends_well(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "{said}");
    said
}

#[test]
fn what_one_process_wrote_another_reads() {
    let (_dir, path) = folder();
    ends_well(child(&path, 1 << 20, 1));
    let (dataset, tracker) = Records::tagged(CHILD_RECORDS);
    assert_eq!(fresh(dataset, &CacheSpec::dir(&path, 1 << 20), 0..1).hits, CHILD_RECORDS);
    assert_eq!(tracker.requests(), 0);
}

#[test]
fn processes_share_a_cache_within_its_size() {
    let (_dir, path) = folder();
    let size = CHILD_RECORDS / 2 * ENTRY;
    let children: Vec<_> = (0..3).map(|_| child(&path, size, 4)).collect();
    children.into_iter().for_each(|child| drop(ends_well(child)));
    let (there, counted) = (entries(&path).len() as u64 * ENTRY, ledger(&path));
    // A process may end between taking room for an entry and writing it; the next start counts anew.
    assert!((there..=there + 3 * ENTRY).contains(&counted) && counted <= size, "{there} {counted}");
    assert!(there >= size / 2, "{there} of {size}");
    let (dataset, _) = Records::tagged(CHILD_RECORDS);
    fresh(dataset, &CacheSpec::dir(&path, size), 0..1);
    assert_eq!(ledger(&path), entries(&path).len() as u64 * ENTRY, "counted anew");
}

#[test]
fn a_killed_process_leaves_a_usable_cache() {
    let (_dir, path) = folder();
    for round in 0..3 {
        let mut killed = child(&path, 1 << 20, 10_000);
        until("nothing is written", || entries(&path).len() > round * 20);
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    let half = path.join("infeed-cache-v1/writing/1-2-3");
    fs::write(&half, "half of an ent").unwrap();
    fs::write(path.join("infeed-cache-v1/ledger"), u64::MAX.to_le_bytes()).unwrap();
    let there = entries(&path).len() as u64;
    let (dataset, tracker) = Records::tagged(CHILD_RECORDS);
    let report = fresh(dataset, &CacheSpec::dir(&path, 1 << 20), 0..2);
    assert_eq!(report.damaged, 0);
    assert_eq!(tracker.requests() as u64, CHILD_RECORDS - there);
    assert_eq!(fs::read_dir(half.parent().unwrap()).unwrap().count(), 0, "the half-written entry was swept");
    assert_eq!(ledger(&path), CHILD_RECORDS * ENTRY);
}

#[test]
fn nothing_is_swept_under_a_living_process() {
    let (_dir, path) = folder();
    let (dataset, _) = Records::tagged(10);
    let _living = loader(dataset, &CacheSpec::dir(&path, 1 << 20));
    let half = path.join("infeed-cache-v1/writing/1-2-3");
    fs::write(&half, "of the living one").unwrap();
    ends_well(child(&path, 1 << 20, 1));
    assert!(half.exists());
}

#[test]
fn a_full_disk_ends_the_caching_not_the_run() {
    let (_dir, path) = folder();
    // As on a full disk, each write fails; without the signal that comes with this limit.
    let mut command = Command::new("sh");
    let again = r#"trap '' XFSZ; ulimit -f 0; exec "$0" cache::a_child --exact --nocapture"#;
    command.args(["-c", again]).arg(std::env::current_exe().unwrap());
    ends_well(child_of(command, &path, 1 << 20, 2));
    assert_eq!(entries(&path).len(), 0);
    let (dataset, _) = Records::tagged(CHILD_RECORDS);
    assert_eq!(fresh(dataset, &CacheSpec::dir(&path, 1 << 20), 0..2).hits, CHILD_RECORDS, "later there is room");
}
