//! The threads that list, and what they still have to do.

use std::{
    fs::{self, DirEntry},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Instant, SystemTime},
};

use infeed_core::{
    error::{Error, ErrorKind, Result, panic_words},
    report::Stage,
};
use tokio::sync::mpsc;

use super::{
    folder::{Entry, Folder},
    found::Found,
    kept::{Kept, Listed, Saved},
    objects::objects,
    pace::Pace,
    stamp::{Believed, Stamp},
};
use crate::{Object, Source};

/// Entries looked up by a thread at a time: of a warm disk, 70 µs; and a folder of a thousand keeps sixteen threads busy.
const BATCH: usize = 64;
/// Batches that wait for a thread, after which whoever reads a folder looks up its files: what waits is memory.
const WAIT: usize = 256;
/// Folders that were listed and not taken yet, after which threads wait for whoever takes them.
const AHEAD: usize = 64;

/// Names of a folder that one thread looks up again; with more, all threads list it.
const AGAIN: usize = BATCH;

/// What listings before have kept, and what is to be kept of this one.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) saved: Mutex<Saved>,
    pub(super) believed: Believed,
    /// Whether a file is read from its beginning to its end, by its name.
    pub(super) whole: fn(&str) -> bool,
    pub(super) now: fn() -> SystemTime,
}

/// The files below a folder, as threads find them. Dropping it stops them, each after its batch.
#[derive(Debug)]
pub(crate) struct Walk {
    found: mpsc::Receiver<Result<Listed>>,
}

impl Walk {
    /// `root` is canonical.
    pub(crate) fn start(root: PathBuf, source: &Source) -> Result<Self> {
        Pool::start(root, source, None).map(|(_, found)| Self { found })
    }

    /// With what was kept.
    pub(super) fn keeping(root: PathBuf, source: &Source, keeping: Arc<Keeping>) -> Result<Self> {
        Pool::start(root, source, Some(keeping)).map(|(_, found)| Self { found })
    }

    /// One more folder, in no promised order; its files are sorted.
    pub(crate) async fn next(&mut self) -> Option<Result<Listed>> {
        self.found.recv().await
    }
}

/// All files below a folder, in the order of names.
pub(crate) async fn all(root: PathBuf, source: &Source) -> Result<Vec<Object>> {
    let mut walk = Walk::start(root, source)?;
    let mut folders = Vec::new();
    while let Some(found) = walk.next().await {
        folders.push(found?.found);
    }
    Ok(objects(folders))
}

#[derive(Debug)]
pub(super) struct Pool {
    source: Source,
    keeping: Option<Arc<Keeping>>,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// Closed when the last thread ends.
    out: mpsc::Sender<Result<Listed>>,
}

#[derive(Debug, Default)]
struct Queue {
    batches: Vec<Batch>,
    folders: Vec<Folder>,
    /// Folders that were found and not sent: when none is left, all is listed.
    unfinished: usize,
    threads: usize,
    idle: usize,
    pace: Pace,
    /// After an error, or when nobody takes what is found.
    stopped: bool,
}

/// Entries of a folder to be looked up.
#[derive(Debug)]
struct Batch {
    of: Arc<Reading>,
    entries: Vec<DirEntry>,
}

/// A folder that is being read.
#[derive(Debug)]
struct Reading {
    folder: Arc<Folder>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    found: Found,
    kept: Option<Kept>,
    taken: bool,
    /// Batches that are not looked up, and the rest of the folder.
    parts: usize,
}

enum Task {
    Look(Batch),
    Read(Folder),
}

impl Queue {
    fn take(&mut self) -> Option<Task> {
        self.batches.pop().map(Task::Look).or_else(|| self.folders.pop().map(Task::Read))
    }

    /// Whether a thread is to be started, which is counted then.
    fn grows(&mut self) -> bool {
        static CORES: LazyLock<usize> = LazyLock::new(|| infeed_core::machine::cores().get());
        let todo = self.batches.len() + self.folders.len();
        let grows = self.idle == 0 && self.pace.wants_more(self.threads, todo, || *CORES);
        self.threads += usize::from(grows);
        grows
    }
}

impl Pool {
    /// The first of the threads, by which it lives as long as they do, and what they find.
    pub(super) fn start(
        root: PathBuf,
        source: &Source,
        keeping: Option<Arc<Keeping>>,
    ) -> Result<(Weak<Self>, mpsc::Receiver<Result<Listed>>)> {
        let (out, found) = mpsc::channel(AHEAD);
        let queue = Queue { folders: vec![Folder::root(root)], unfinished: 1, threads: 1, ..Queue::default() };
        let (source, queue) = (source.clone(), Mutex::new(queue));
        let pool = Arc::new(Self { source, keeping, queue, wake: Condvar::new(), out });
        let (alive, url) = (Arc::downgrade(&pool), pool.source.url().to_owned());
        pool.start_thread().map_err(|error| {
            Error::new(ErrorKind::Io, "no thread can be started to list it")
                .at_stage(Stage::Open)
                .at_object(url)
                .with_source(error)
        })?;
        Ok((alive, found))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread, which was counted.
    fn start_thread(self: Arc<Self>) -> io::Result<()> {
        let body = move || {
            let worked = catch_unwind(AssertUnwindSafe(|| self.work())).unwrap_or_else(|panic| {
                let what = format!("listing panicked: {}", panic_words(&*panic));
                Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Open).at_object(self.source.url()))
            });
            if let Err(error) = worked {
                let first = !self.stop();
                // One is told. It waits for room as all that is found does, and for nobody when it is not wanted.
                if first {
                    let _ = self.out.blocking_send(Err(error));
                }
            }
        };
        thread::Builder::new().name("infeed-list".into()).spawn(body).map(drop)
    }

    /// Has all threads end, and says whether they had to already.
    fn stop(&self) -> bool {
        let stopped = std::mem::replace(&mut self.queue().stopped, true);
        self.wake.notify_all();
        stopped
    }

    fn grow(self: &Arc<Self>) {
        if let Err(error) = Arc::clone(self).start_thread() {
            // Those that run do it alone. It stays counted: it would be tried for each batch.
            tracing::debug!(%error, "no thread more can be started to list a folder");
        }
    }

    fn work(self: &Arc<Self>) -> Result<()> {
        while let Some((task, grows)) = self.take() {
            if grows {
                self.grow();
            }
            match task {
                Task::Look(batch) => self.look(batch)?,
                Task::Read(folder) => self.read(folder)?,
            }
        }
        Ok(())
    }

    /// Waits for something to do, and says whether one more thread should. `None`: there will be nothing.
    fn take(&self) -> Option<(Task, bool)> {
        let mut queue = self.queue();
        loop {
            if queue.stopped || queue.unfinished == 0 || self.out.is_closed() {
                queue.stopped = true;
                drop(queue);
                self.wake.notify_all();
                return None;
            }
            if let Some(task) = queue.take() {
                return Some((task, queue.grows()));
            }
            queue.idle += 1;
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }

    fn read(self: &Arc<Self>, folder: Folder) -> Result<()> {
        let folder = Arc::new(folder);
        let failed = |error| folder.error(error, "", &self.source);
        let mut kept = None;
        if let Some(keeping) = &self.keeping {
            let (start, now) = (Instant::now(), (keeping.now)());
            // Before it is read: what comes meanwhile gives another.
            let meta = fs::metadata(&folder.real).map_err(failed)?;
            self.queue().pace.add(1, start.elapsed());
            let stamp = Stamp::of(&meta);
            if keeping.believed.holds(&meta) {
                let saved = keeping.saved.lock().unwrap_or_else(PoisonError::into_inner).take(&folder.name, stamp);
                if let Some((found, kept)) = saved {
                    return self.take_kept(folder, found, kept);
                }
                kept = stamp.is_settled(now).then(|| Kept { stamp, folders: Vec::new(), again: Vec::new() });
            }
        }
        let start = Instant::now();
        let entries = fs::read_dir(&folder.real).map_err(failed)?;
        self.queue().pace.add(1, start.elapsed());
        let state = State { found: Found::of(&folder.name), kept, taken: false, parts: 1 };
        let of = Arc::new(Reading { folder: Arc::clone(&folder), state: Mutex::new(state) });
        let mut batch = Vec::new();
        for entry in entries {
            batch.push(entry.map_err(failed)?);
            if batch.len() == BATCH {
                let entries = std::mem::replace(&mut batch, Vec::with_capacity(BATCH));
                of.state().parts += 1;
                self.put(Batch { of: Arc::clone(&of), entries })?;
            }
        }
        self.look(Batch { of, entries: batch })
    }

    /// Leaves a batch to another thread, unless they have enough.
    fn put(self: &Arc<Self>, batch: Batch) -> Result<()> {
        let mut queue = self.queue();
        if queue.batches.len() >= WAIT {
            drop(queue);
            return self.look(batch);
        }
        queue.batches.push(batch);
        let (idle, grows) = (queue.idle > 0, queue.grows());
        drop(queue);
        if idle {
            self.wake.notify_one();
        }
        if grows {
            self.grow();
        }
        Ok(())
    }

    fn look(&self, Batch { of, entries }: Batch) -> Result<()> {
        let start = Instant::now();
        let (mut found, mut folders) = (Found::default(), Vec::new());
        let (mut below, mut again) = (Vec::new(), Vec::new());
        for entry in &entries {
            of.folder.look(entry, &self.source, |base, entry, link| {
                if let Some(keeping) = &self.keeping {
                    match &entry {
                        _ if link => again.push(base.to_owned()),
                        Entry::File(_) if !(keeping.whole)(base) => again.push(base.to_owned()),
                        Entry::Folder(_) => below.push(base.to_owned()),
                        _ => {}
                    }
                }
                match entry {
                    Entry::File(size) => found.add(base, size),
                    Entry::Folder(folder) => folders.push(folder),
                    Entry::Other => {}
                }
            })?;
        }
        let (count, took) = (entries.len(), start.elapsed());
        // Before the folder may be finished: the last of them lets it be closed.
        drop(entries);
        self.queue().pace.add(u32::try_from(count).unwrap_or(u32::MAX), took);
        if let Some(kept) = &mut of.state().kept {
            kept.folders.append(&mut below);
            kept.again.append(&mut again);
        }
        self.add(&of, found, folders);
        Ok(())
    }

    /// A folder that is as it was when it was kept.
    fn take_kept(&self, folder: Arc<Folder>, found: Found, kept: Kept) -> Result<()> {
        let start = Instant::now();
        let (mut more, mut folders) = (Found::default(), Vec::new());
        for base in &kept.again {
            match folder.look_again(base, &self.source)? {
                Entry::File(size) => more.add(base, size),
                Entry::Folder(folder) => folders.push(folder),
                Entry::Other => {}
            }
        }
        if let Ok(count @ 1..) = u32::try_from(kept.again.len()) {
            self.queue().pace.add(count, start.elapsed());
        }
        folders.extend(kept.folders.iter().map(|base| folder.child(base)));
        let state = State { found, kept: Some(kept), taken: true, parts: 1 };
        self.add(&Arc::new(Reading { folder, state: Mutex::new(state) }), more, folders);
        Ok(())
    }

    /// Adds a part of a folder to what was found of it, and sends that with the last.
    fn add(&self, of: &Reading, found: Found, mut folders: Vec<Folder>) {
        let mut queue = self.queue();
        queue.unfinished += folders.len();
        let wakes = folders.len().min(queue.idle);
        queue.folders.append(&mut folders);
        drop(queue);
        (0..wakes).for_each(|_| self.wake.notify_one());
        let mut state = of.state();
        state.found.append(found);
        state.parts -= 1;
        if state.parts > 0 {
            return;
        }
        let State { mut found, kept, taken, .. } = std::mem::take(&mut *state);
        drop(state);
        let kept = kept.filter(|kept| kept.again.len() <= AGAIN);
        if found.len() > 0 || kept.is_some() {
            found.finish();
            // An error: nobody takes it, which `take` sees.
            let _ = self.out.blocking_send(Ok(Listed { found, kept, taken }));
        }
        let mut queue = self.queue();
        queue.unfinished -= 1;
        if queue.unfinished == 0 {
            drop(queue);
            self.wake.notify_all();
        }
    }
}

impl Reading {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
