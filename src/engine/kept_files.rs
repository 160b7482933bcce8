//! Files that stay open between the reads of one stream: shards, of which each record is a part.
//!
//! They belong to the stream, not to a thread: a shuffled order uses all shards, and each thread could keep only a few
//! open. They are closed when the stream ends, when they were not read for a minute or two, and when the system has no
//! handles left.

use std::{
    sync::{
        LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use infeed_core::process;
use infeed_store::{Extent, OpenFile};

/// Number of locks: threads that look up different files rarely wait for one another.
const PLACES: usize = 16;
/// Most files for each lock. The total of 512 is searched quickly, and most datasets have fewer shards.
const IN_PLACE: usize = 32;

/// Most files that stay open in this process, for all its streams: an eighth of its limit. Three quarters are for
/// connections (`requests/permits.rs` in `infeed-store`), the rest for the trainer.
static ALL: LazyLock<Room> = LazyLock::new(|| {
    let files = process::open_files().map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    Room::new(files / 8)
});

/// The remaining number of files that may stay open.
#[derive(Debug)]
struct Room(AtomicUsize);

impl Room {
    fn new(files: usize) -> Self {
        Self(AtomicUsize::new(files))
    }

    fn take(&'static self) -> Option<Taken> {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok().then(|| Taken(self))
    }
}

/// One open file; dropping it makes room for another.
#[derive(Debug)]
struct Taken(&'static Room);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Kept {
    file: OpenFile,
    /// Whether it was read since the last [`KeptFiles::age`].
    used: bool,
    _room: Taken,
}

/// The least recently used file is first. `None` after the end of the stream: nothing is kept any more.
type Slot = Option<Vec<Kept>>;

#[derive(Debug)]
pub(super) struct KeptFiles {
    places: [Mutex<Slot>; PLACES],
    room: &'static Room,
}

impl Default for KeptFiles {
    fn default() -> Self {
        Self::within(&ALL)
    }
}

impl KeptFiles {
    fn within(room: &'static Room) -> Self {
        Self { places: std::array::from_fn(|_| Mutex::new(Some(Vec::new()))), room }
    }

    fn lock(place: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
        // The code under this lock cannot panic halfway.
        place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of an extent, whose name has this hash, if it is open.
    pub(super) fn get(&self, hash: u64, extent: &Extent) -> Option<OpenFile> {
        let mut place = Self::lock(&self.places[hash as usize % PLACES]);
        let files = place.as_mut()?;
        let at = files.iter().rposition(|kept| kept.file.is_of(extent))?;
        let mut kept = files.remove(at);
        kept.used = true;
        let file = kept.file.clone();
        files.push(kept);
        Some(file)
    }

    /// Keeps a file open, if there is room for it.
    pub(super) fn keep(&self, hash: u64, extent: &Extent, file: &OpenFile) {
        // Dropped, and so closed, after the lock is released.
        let mut closed = Vec::new();
        let mut place = Self::lock(&self.places[hash as usize % PLACES]);
        let Some(files) = place.as_mut() else { return };
        // If several threads opened it, the last handle stays.
        closed.extend(files.extract_if(.., |kept| kept.file.is_of(extent)).map(|kept| kept.file));
        if files.len() >= IN_PLACE {
            closed.push(files.remove(0).file);
        }
        let mut room = self.room.take();
        if room.is_none() && !files.is_empty() {
            closed.push(files.remove(0).file);
            room = self.room.take();
        }
        files.extend(room.map(|room| Kept { file: file.clone(), used: true, _room: room }));
    }

    /// Removes a file; it is closed after the last read from it.
    pub(super) fn forget(&self, hash: u64, file: &OpenFile) {
        drop(self.take(&self.places[hash as usize % PLACES], |kept| kept.file.is_same(file)));
    }

    /// Closes all files; returns whether there were any.
    pub(super) fn give_way(&self) -> bool {
        let closed = self.places.iter().flat_map(|place| self.take(place, |_| true));
        closed.count() > 0
    }

    /// Closes the files that were not read since the last call.
    pub(super) fn age(&self) {
        let old = |kept: &mut Kept| !std::mem::take(&mut kept.used);
        Self::close_elsewhere(self.places.iter().flat_map(|place| self.take(place, old)).collect());
    }

    /// Closes all files, and keeps none from now on.
    pub(super) fn close(&self) {
        let closed = self.places.iter().filter_map(|place| Self::lock(place).take());
        Self::close_elsewhere(closed.flatten().collect());
    }

    /// Removes the files of a part for which `which` is true. The caller drops, and so closes, them without a lock,
    /// because closing may take long.
    fn take(&self, place: &Mutex<Slot>, which: impl FnMut(&mut Kept) -> bool) -> Vec<Kept> {
        Self::lock(place).as_mut().map(|files| files.extract_if(.., which).collect()).unwrap_or_default()
    }

    /// Closes files on another thread: a file system may hang in closing, too, and neither the drop of a stream nor the
    /// I/O runtime may wait for it.
    fn close_elsewhere(files: Vec<Kept>) {
        if !files.is_empty() {
            // If no thread can be started, they are closed here.
            let _ = thread::Builder::new().name("infeed-close".into()).spawn(move || drop(files));
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, path::Path};

    use infeed_store::Source;

    use super::*;

    fn extents(dir: &Path, count: usize) -> Vec<Extent> {
        let source = Source::parse(&dir.display().to_string()).unwrap();
        let extent = |i: usize| {
            fs::write(dir.join(i.to_string()), "0123456789").unwrap();
            Extent::part(&source, i.to_string(), 0..5)
        };
        (0..count).map(extent).collect()
    }

    fn open(extent: &Extent) -> OpenFile {
        OpenFile::open(extent).unwrap().unwrap()
    }

    fn room(files: usize) -> &'static Room {
        Box::leak(Box::new(Room::new(files)))
    }

    /// A thread closes old files.
    fn wait_for_room(room: &Room, files: usize) {
        while room.0.load(Ordering::Relaxed) < files {
            thread::yield_now();
        }
    }

    /// Which of these files are kept.
    fn kept(files: &KeptFiles, extents: &[Extent]) -> Vec<usize> {
        let is_kept = |i: &usize| {
            let mut places = files.places.iter().map(KeptFiles::lock);
            places.any(|place| place.iter().flatten().any(|kept| kept.file.is_of(&extents[*i])))
        };
        (0..extents.len()).filter(is_kept).collect()
    }

    #[test]
    fn the_least_recently_used_goes_and_room_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let extents = extents(dir.path(), IN_PLACE + 2);
        for (room_for, most) in [(1000, IN_PLACE), (5, 5), (1, 1), (0, 0)] {
            let room = room(room_for);
            let files = KeptFiles::within(room);
            let (all, last) = (&extents[..IN_PLACE + 1], IN_PLACE + 1);
            for extent in all {
                files.keep(3, extent, &open(extent));
            }
            let newest = IN_PLACE + 1 - most..IN_PLACE + 1;
            assert_eq!(kept(&files, &extents), newest.clone().collect::<Vec<_>>());
            if most > 1 {
                let first = &extents[newest.start];
                let known = files.get(3, first).unwrap();
                files.keep(3, &extents[last], &open(&extents[last]));
                assert!(files.get(3, first).unwrap().is_same(&known), "it was used meanwhile");
                files.keep(3, first, &open(first));
                assert_eq!(kept(&files, &extents).len(), most, "twice is once");
                files.forget(3, &known);
                assert_eq!(kept(&files, &extents).len(), most, "another opening of it");
            }
            files.close();
            wait_for_room(room, room_for);
            files.keep(3, &extents[0], &open(&extents[0]));
            assert!(kept(&files, &extents).is_empty() && !files.give_way(), "it is closed");
        }
    }

    #[test]
    fn files_that_nobody_reads_from_are_closed_and_all_of_them_give_way() {
        let dir = tempfile::tempdir().unwrap();
        let extents = extents(dir.path(), 40);
        let (room, hash) = (room(1000), |i: usize| i as u64 * 7);
        let files = KeptFiles::within(room);
        for (i, extent) in extents.iter().enumerate() {
            files.keep(hash(i), extent, &open(extent));
        }
        files.age();
        assert_eq!(kept(&files, &extents).len(), 40, "they are new");
        (0..10).for_each(|i| drop(files.get(hash(i), &extents[i]).unwrap()));
        files.age();
        assert_eq!(kept(&files, &extents), (0..10).collect::<Vec<_>>());
        let mut buffer = bytes::BytesMut::new();
        let in_hand = files.get(hash(0), &extents[0]).unwrap();
        assert!(files.give_way() && !files.give_way());
        assert!(kept(&files, &extents).is_empty());
        wait_for_room(room, 1000);
        in_hand.read(&extents[0], &mut buffer).unwrap();
        assert_eq!(buffer, "01234", "whoever reads ends in peace");
    }
}
