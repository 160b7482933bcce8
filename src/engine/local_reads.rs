//! Reads on decode threads: files, and stores that need no runtime.
//!
//! ```text
//! extent ─┬ a part of a file ─ is it open, and would an opening give the same? ─┬ read at its place
//!         │                                                                    └ opened, and kept ─ read
//!         └ a whole file, or no file ─ opened ─ read
//! ```

use std::{
    collections::HashMap,
    error::Error as _,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::BytesMut;
use infeed_core::error::{Error, Result};
use infeed_store::{Extent, OpenFile, no_files};
use tokio::time::{self, Instant};

use super::{kept_files::KeptFiles, under_way::UnderWay};

/// How long the end of a stream waits for a file that is being opened. A busy disk needs less, and the caller of the
/// drop does not notice it.
const OPENING: Duration = Duration::from_millis(100);
/// From this time on a read counts as late, and a warning names it.
const LATE: Duration = Duration::from_secs(5);
/// Shortest time between two warnings. Files that were not read for this time are closed.
const AGAIN: Duration = Duration::from_secs(60);

/// The local reads of one stream. After [`close`](Self::close) no read begins; one in progress may finish.
#[derive(Debug, Default)]
pub(super) struct LocalReads {
    under_way: UnderWay<Extent>,
    files: KeptFiles,
}

impl LocalReads {
    /// Reads an extent on this thread. `last` is the previously read file, if the caller reads several extents: reading
    /// the same file again needs no lookup. `None` if the stream was dropped.
    pub(super) fn read(
        &self,
        extent: &Extent,
        buffer: &mut BytesMut,
        last: &mut Option<OpenFile>,
    ) -> Option<Result<()>> {
        let begin = || self.under_way.begin(extent.clone());
        if let Some(file) = last.as_ref().filter(|file| file.is_of(extent)) {
            let reading = begin()?;
            reading.begun();
            return Some(file.read(extent, buffer));
        }
        if !extent.is_part_of_file() {
            let reading = begin()?;
            return Some(self.give_way(|| extent.read_inline(buffer, || reading.begun())));
        }
        let mut hasher = DefaultHasher::new();
        extent.name.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(file) = self.files.get(hash, extent) {
            let reading = begin()?;
            let current = file.is_current();
            reading.begun();
            if current && file.read(extent, buffer).is_ok() {
                *last = Some(file);
                return Some(Ok(()));
            }
            // Maybe only the handle is bad: open the file again.
            self.files.forget(hash, &file);
        }
        let reading = begin()?;
        let opened = self.give_way(|| OpenFile::open(extent));
        let file = match opened {
            Ok(Some(file)) => file,
            Ok(None) => return Some(extent.read_inline(buffer, || reading.begun())),
            Err(error) => return Some(Err(error)),
        };
        reading.begun();
        let read = file.read(extent, buffer);
        if read.is_ok() {
            if file.can_stay() {
                self.files.keep(hash, extent, &file);
            }
            *last = Some(file);
        }
        Some(read)
    }

    /// Opens a file or object; if the system has no handles left, closes kept files first.
    fn give_way<T>(&self, mut open: impl FnMut() -> Result<T>) -> Result<T> {
        let ran_out = |error: &Error| error.source().and_then(|e| e.downcast_ref::<io::Error>()).is_some_and(no_files);
        open().or_else(|error| if ran_out(&error) && self.files.give_way() { open() } else { Err(error) })
    }

    /// Ends the reads: no read begins after this returned. Exception: a file that is being opened for longer than
    /// [`OPENING`], on a file system that hangs; that thread makes no further read.
    pub(super) fn close(&self) {
        self.under_way.close(OPENING);
        self.files.close();
    }

    /// The oldest read in progress, if it was first seen more than [`LATE`] ago. `seen` holds the times of earlier
    /// calls, so that reading threads need no clock.
    fn late(&self, seen: &mut HashMap<(usize, u64), Instant>, now: Instant) -> Option<(Extent, Duration)> {
        let mut still = HashMap::new();
        let mut oldest: Option<(Extent, Instant)> = None;
        self.under_way.each(|key, extent| {
            let since = seen.get(&key).copied().unwrap_or(now);
            still.insert(key, since);
            if oldest.as_ref().is_none_or(|(_, oldest)| since < *oldest) {
                oldest = Some((extent.clone(), since));
            }
        });
        *seen = still;
        oldest.map(|(extent, since)| (extent, now - since)).filter(|(_, time)| *time > LATE)
    }
}

/// Warns, at most once a minute, about the file that a thread has been reading for long, and closes unused files. It
/// never accesses a file itself, so it cannot hang.
pub(super) async fn watch(reads: Arc<LocalReads>) {
    let mut seen = HashMap::new();
    let (mut told, mut aged) = (None::<Instant>, Instant::now());
    loop {
        time::sleep(Duration::from_secs(1)).await;
        let now = Instant::now();
        if now - aged >= AGAIN {
            aged = now;
            reads.files.age();
        }
        let late = reads.late(&mut seen, now);
        let Some((extent, waited)) = late.filter(|_| told.is_none_or(|told| now - told >= AGAIN)) else { continue };
        told = Some(now);
        tracing::warn!(
            object = %extent.source.display_name(&extent.name),
            start = extent.range.start,
            len = extent.len(),
            waited_s = waited.as_secs(),
            "a batch is late: a read does not come"
        );
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{
        fs::{self, File},
        path::{Path, PathBuf},
        process::Command,
        sync::Mutex,
        thread,
    };

    use infeed_store::{Source, files_ran_out};
    use proptest::prelude::*;
    use tracing::{
        Event, Metadata, Subscriber,
        field::{Field, Visit},
        span,
    };

    use super::*;

    fn source(dir: &Path) -> Source {
        Source::parse(&dir.display().to_string()).unwrap()
    }

    fn read(reads: &LocalReads, extent: &Extent) -> Result<Vec<u8>> {
        let mut buffer = BytesMut::from(&b"what was there"[..]);
        reads.read(extent, &mut buffer, &mut None).expect("the stream is there").map(|()| buffer.to_vec())
    }

    /// Files of a folder that this process has open, also those that were removed.
    #[cfg(target_os = "linux")]
    fn open_below(dir: &Path) -> Vec<PathBuf> {
        let dir = dir.canonicalize().unwrap();
        let links = fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        links.filter(|path| path.starts_with(&dir)).collect()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_shard_is_opened_once_and_closed_with_the_stream() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        fs::write(dir.path().join("shard"), "0123456789").unwrap();
        fs::write(dir.path().join("photo"), "all of it").unwrap();
        let reads = LocalReads::default();
        let part = Extent::whole(&source, "shard", 10).with_range(2..4);
        for _ in 0..5 {
            assert_eq!(read(&reads, &part).unwrap(), b"23");
            assert_eq!(read(&reads, &Extent::whole(&source, "photo", 9)).unwrap(), b"all of it");
        }
        let opened = open_below(dir.path());
        assert!(opened.len() == 1 && opened[0].ends_with("shard"), "{opened:?}");
        reads.files.age();
        assert_eq!(open_below(dir.path()).len(), 1);
        // A removed file is an error, and its handle is closed.
        fs::remove_file(dir.path().join("shard")).unwrap();
        assert!(read(&reads, &part).is_err() && open_below(dir.path()).is_empty());

        fs::write(dir.path().join("shard"), "0123456789").unwrap();
        read(&reads, &part).unwrap();
        reads.close();
        while !open_below(dir.path()).is_empty() {
            thread::yield_now();
        }
        assert!(reads.read(&part, &mut BytesMut::new(), &mut None).is_none());
    }

    #[test]
    fn what_is_kept_gives_way_to_what_has_to_be_opened() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        fs::write(dir.path().join("shard"), "0123456789").unwrap();
        let reads = LocalReads::default();
        // The system has no handle left as long as a file is kept open.
        let open = |error: fn() -> Error| {
            let mut calls = 0;
            let opened = reads.give_way(|| {
                calls += 1;
                if calls == 1 { Err(error()) } else { Ok(()) }
            });
            (opened.is_ok(), calls)
        };
        let no_handles = || files_ran_out().with_source(io::Error::from_raw_os_error(24));
        assert_eq!(open(no_handles), (false, 1), "there is nothing to close");
        read(&reads, &Extent::part(&source, "shard", 2..4)).unwrap();
        assert_eq!(open(|| Error::corrupt("another")), (false, 1));
        assert_eq!(open(no_handles), (true, 2));
        assert_eq!(open(no_handles), (false, 1));
    }

    /// How a file may change between two reads.
    #[derive(Clone, Copy, Debug)]
    enum Change {
        Nothing,
        Remove,
        Write(usize),
        Replace(usize),
        MoveAway,
        Age,
        GiveWay,
    }

    fn changes() -> impl Strategy<Value = Change> {
        let length = || 0..40usize;
        prop_oneof![
            4 => Just(Change::Nothing),
            1 => Just(Change::Remove),
            2 => length().prop_map(Change::Write),
            2 => length().prop_map(Change::Replace),
            1 => Just(Change::MoveAway),
            1 => Just(Change::Age),
            1 => Just(Change::GiveWay),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        /// A file that is kept open gives the same result as opening it for each read: its bytes, the bytes of the file
        /// that replaced it, or the same error.
        #[test]
        fn what_is_kept_open_reads_as_what_is_opened_anew(
            steps in prop::collection::vec((changes(), 0u64..3, 0u64..30, 0u64..12), 1..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let source = source(dir.path());
            let reads = LocalReads::default();
            for (i, (change, name, start, len)) in steps.into_iter().enumerate() {
                let path = dir.path().join(name.to_string());
                let bytes = |len: usize| (0..len).map(|at| (i * 41 + at * 7) as u8).collect::<Vec<u8>>();
                match change {
                    Change::Nothing => {}
                    Change::Remove => drop(fs::remove_file(&path)),
                    Change::Write(len) => fs::write(&path, bytes(len)).unwrap(),
                    Change::Replace(len) => {
                        fs::write(dir.path().join("new"), bytes(len)).unwrap();
                        fs::rename(dir.path().join("new"), &path).unwrap();
                    }
                    Change::MoveAway => drop(fs::rename(&path, dir.path().join("old"))),
                    Change::Age => reads.files.age(),
                    Change::GiveWay => drop(reads.files.give_way()),
                }
                let extent = Extent::whole(&source, name.to_string(), 30).with_range(start..(start + len).min(30));
                let fresh = read(&LocalReads::default(), &extent).map_err(|e| format!("{e:#}"));
                prop_assert_eq!(read(&reads, &extent).map_err(|e| format!("{e:#}")), fresh);
            }
        }
    }

    /// A file whose opening hangs until another process writes to it (a pipe).
    fn pipe(dir: &Path) -> PathBuf {
        let path = dir.join("pipe");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    }

    fn under_way(reads: &LocalReads) -> usize {
        let mut all = 0;
        reads.under_way.each(|_, _| all += 1);
        all
    }

    #[test]
    fn an_opening_that_hangs_holds_up_neither_the_end_nor_others_and_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("shard"), "0123456789").unwrap();
        let (pipe, source) = (pipe(dir.path()), source(dir.path()));
        let reads = LocalReads::default();
        let part = Extent::part(&source, "shard", 2..4);
        thread::scope(|scope| {
            let hangs = scope.spawn(|| read(&reads, &Extent::whole(&source, "pipe", 3)));
            while under_way(&reads) == 0 {
                thread::yield_now();
            }
            assert_eq!(read(&reads, &part).unwrap(), b"23", "others read on");
            let (mut seen, now) = (HashMap::new(), Instant::now());
            assert!(reads.late(&mut seen, now).is_none() && reads.late(&mut seen, now + LATE).is_none());
            let (extent, time) = reads.late(&mut seen, now + LATE * 2).unwrap();
            assert_eq!((&*extent.name, time), ("pipe", LATE * 2));
            reads.close();
            assert!(reads.read(&part, &mut BytesMut::new(), &mut None).is_none(), "nothing begins any more");
            fs::write(&pipe, "abc").unwrap();
            assert_eq!(hangs.join().unwrap().unwrap(), b"abc", "what had begun ends");
        });
        assert_eq!(under_way(&reads), 0);
    }

    /// Collects the texts of warnings.
    #[derive(Default)]
    struct Warnings(Mutex<Vec<String>>);

    impl Visit for &Warnings {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl Subscriber for Warnings {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut &*self);
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn a_read_that_hangs_is_told_once_a_minute_and_idle_files_are_closed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("shard"), "0123456789").unwrap();
        let (pipe, source) = (pipe(dir.path()), source(dir.path()));
        let reads = Arc::new(LocalReads::default());
        read(&reads, &Extent::part(&source, "shard", 2..4)).unwrap();
        let hanging = Arc::clone(&reads);
        let hangs = thread::spawn(move || read(&hanging, &Extent::whole(&source, "pipe", 3)));
        while under_way(&reads) == 0 {
            thread::yield_now();
        }
        let warnings = Arc::new(Warnings::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        tracing::subscriber::with_default(Arc::clone(&warnings), || {
            runtime.block_on(async {
                drop(time::timeout(Duration::from_millis(130_500), watch(Arc::clone(&reads))).await);
            });
        });
        let told = warnings.0.lock().unwrap().join(" ");
        assert_eq!(told.matches("a batch is late: a read does not come").count(), 3, "{told}");
        assert!(told.contains("waited_s=6") && told.contains("waited_s=66") && told.contains("/pipe"), "{told}");
        assert!(!reads.files.give_way(), "nobody read from it for a minute");
        drop(File::options().write(true).open(pipe).unwrap());
        assert!(hangs.join().unwrap().is_err());
    }
}
