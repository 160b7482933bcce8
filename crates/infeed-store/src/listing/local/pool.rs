//! The threads that list, and their remaining work.

use std::{
    fs::{self, DirEntry},
    io,
    ops::Range,
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
    found::FolderFiles,
    kept::{Folders, Kept, Listed},
    objects::objects,
    pace::Pace,
    stamp::{Believed, Stamp},
};
use crate::{Object, Source};

/// Entries that a thread looks up at a time: 70 µs from memory. With this size a folder of a thousand entries keeps
/// sixteen threads busy.
const BATCH: usize = 64;
/// The most batches waiting for a thread. Above it, the thread that reads a folder looks up its files itself, to limit
/// memory.
const WAIT: usize = 256;
/// The most folders that were listed and not taken. Above it, threads wait for the consumer.
const AHEAD: usize = 64;

/// The most names of a folder that one thread looks up again. A folder with more is listed by all threads.
const AGAIN: usize = BATCH;

/// What earlier listings have kept, and what to keep of this one.
#[derive(Debug)]
pub(super) struct Keeping {
    pub(super) saved: Mutex<Folders>,
    pub(super) believed: Believed,
    /// Whether a file is read from its beginning to its end, judged by its name.
    pub(super) whole: fn(&str) -> bool,
    pub(super) now: fn() -> SystemTime,
}

/// The files below a folder, as threads find them. Dropping it stops the threads, each after its batch.
#[derive(Debug)]
pub(crate) struct Walk {
    found: mpsc::Receiver<Result<Listed>>,
}

impl Walk {
    /// `root` must be canonical.
    pub(crate) fn start(root: PathBuf, source: &Source) -> Result<Self> {
        Pool::start(root, source, None).map(|(_, found)| Self { found })
    }

    /// Lists with a manifest.
    pub(super) fn keeping(root: PathBuf, source: &Source, keeping: Arc<Keeping>) -> Result<Self> {
        Pool::start(root, source, Some(keeping)).map(|(_, found)| Self { found })
    }

    /// The next folder, in no particular order; its files are sorted.
    pub(crate) async fn next(&mut self) -> Option<Result<Listed>> {
        self.found.recv().await
    }
}

/// All files below a folder, ordered by name.
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
    /// Folders that were found and not sent yet. When there are none, the listing is complete.
    unfinished: usize,
    threads: usize,
    idle: usize,
    pace: Pace,
    /// Set after an error, or when the consumer is gone.
    stopped: bool,
}

/// Entries of a folder to look up.
#[derive(Debug)]
struct Batch {
    of: Arc<Reading>,
    entries: Vec<DirEntry>,
}

/// A folder being read.
#[derive(Debug)]
struct Reading {
    folder: Arc<Folder>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    found: FolderFiles,
    kept: Option<Kept>,
    taken: Option<Range<usize>>,
    /// Batches not looked up yet, plus one for the rest of the folder.
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

    /// Whether to start another thread. If so, it is counted already.
    fn grows(&mut self) -> bool {
        static CORES: LazyLock<usize> = LazyLock::new(|| infeed_core::machine::cores().get());
        let todo = self.batches.len() + self.folders.len();
        let grows = self.idle == 0 && self.pace.wants_more(self.threads, todo, || *CORES);
        self.threads += usize::from(grows);
        grows
    }
}

impl Pool {
    /// Starts the first thread, and returns the pool and the receiver of what is found. The threads keep the pool
    /// alive.
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

    /// Starts a thread that is counted already.
    fn start_thread(self: Arc<Self>) -> io::Result<()> {
        let body = move || {
            let worked = catch_unwind(AssertUnwindSafe(|| self.work())).unwrap_or_else(|panic| {
                let what = format!("listing panicked: {}", panic_words(&*panic));
                Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Open).at_object(self.source.url()))
            });
            if let Err(error) = worked {
                let first = !self.stop();
                // Only one error is sent. It waits for room like all results, but not if the consumer is gone.
                if first {
                    let _ = self.out.blocking_send(Err(error));
                }
            }
        };
        thread::Builder::new().name("infeed-list".into()).spawn(body).map(drop)
    }

    /// Stops all threads. Returns whether they had been stopped already.
    fn stop(&self) -> bool {
        let stopped = std::mem::replace(&mut self.queue().stopped, true);
        self.wake.notify_all();
        stopped
    }

    fn grow(self: &Arc<Self>) {
        if let Err(error) = Arc::clone(self).start_thread() {
            // The running threads finish the work. The thread stays counted, otherwise each batch would try to start it
            // again.
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

    /// Waits for work, and returns whether another thread should be started. `None` if there will be no more work.
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
            // Taken before the folder is read: a change during the reading gives another stamp.
            let meta = fs::metadata(&folder.real).map_err(failed)?;
            self.queue().pace.add(1, start.elapsed());
            let stamp = Stamp::of(&meta);
            if keeping.believed.holds(&meta) {
                let saved = keeping.saved.lock().unwrap_or_else(PoisonError::into_inner).remove(&folder.name);
                if let Some((kept, files)) = saved.filter(|(kept, _)| kept.stamp == stamp) {
                    return self.take_kept(folder, kept, files);
                }
                kept = stamp.is_settled(now).then(|| Kept { stamp, folders: Vec::new(), again: Vec::new() });
            }
        }
        let start = Instant::now();
        let entries = fs::read_dir(&folder.real).map_err(failed)?;
        self.queue().pace.add(1, start.elapsed());
        let state = State { found: FolderFiles::of(&folder.name), kept, taken: None, parts: 1 };
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

    /// Leaves a batch to another thread, unless enough batches are waiting.
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
        let (mut found, mut folders) = (FolderFiles::default(), Vec::new());
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
        // Dropped before the folder may be finished: the last entry keeps the folder open.
        drop(entries);
        self.queue().pace.add(u32::try_from(count).unwrap_or(u32::MAX), took);
        if let Some(kept) = &mut of.state().kept {
            kept.folders.append(&mut below);
            kept.again.append(&mut again);
        }
        self.add(&of, found, folders);
        Ok(())
    }

    /// Uses a kept folder that is unchanged.
    fn take_kept(&self, folder: Arc<Folder>, kept: Kept, files: Range<usize>) -> Result<()> {
        let start = Instant::now();
        let (mut more, mut folders) = (FolderFiles::default(), Vec::new());
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
        let found = FolderFiles::of(&folder.name);
        let state = State { found, kept: Some(kept), taken: Some(files), parts: 1 };
        self.add(&Arc::new(Reading { folder, state: Mutex::new(state) }), more, folders);
        Ok(())
    }

    /// Adds a part of a folder to what was found in it. The last part sends the result.
    fn add(&self, of: &Reading, found: FolderFiles, mut folders: Vec<Folder>) {
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
            // Fails only if the consumer is gone, which `take` notices.
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
