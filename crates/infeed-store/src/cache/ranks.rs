//! Which ranks of a job share a cache: what one of them has read, the others need not read.
//!
//! Launchers number processes in their own ways (`srun -m cyclic` distributes consecutive ranks over the nodes), so a
//! rank can't derive its neighbours from its own number. But ranks that share a cache's folder find each other there:
//!
//! ```text
//! DIR/infeed-cache-v1/ranks/WORLD-RANK    locked (shared) by each loader that has this rank
//! ```

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// Ranks start within seconds of one another, rarely later.
const LOOKS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// The ranks that use a cache, of all jobs.
#[derive(Debug)]
pub(super) struct Ranks {
    /// Where other processes can see the ranks; `None` if no other process uses the cache.
    dir: Option<PathBuf>,
    /// How many loaders of this process have a rank of a world.
    here: Mutex<BTreeMap<(u32, u32), usize>>,
}

/// A rank that uses a cache, until it is dropped.
#[derive(Debug)]
pub struct Member {
    ranks: Arc<Ranks>,
    rank: u32,
    world: u32,
    /// Holds the lock that other processes test.
    _file: Option<File>,
    seen: Mutex<Seen>,
}

/// The result of the last look through the folder.
#[derive(Debug)]
struct Seen {
    ranks: Arc<[u32]>,
    next: Instant,
    pause: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ranks {
    /// Below the cache's folder `root`; for this process only if it is `None`.
    pub(super) fn new(root: Option<&Path>) -> Arc<Self> {
        Arc::new(Self { dir: root.map(|root| root.join("ranks")), here: Mutex::default() })
    }

    /// Makes this rank visible to others of the same world. If that fails, it sees only the ranks of its own process.
    pub(super) fn join(self: &Arc<Self>, rank: u32, world: u32) -> Member {
        *lock(&self.here).entry((world, rank)).or_default() += 1;
        let show = |dir: &Path| {
            fs::create_dir_all(dir)?;
            let name = dir.join(format!("{world}-{rank}"));
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(name)?;
            // Waits for nothing except another process that is testing the lock.
            file.lock_shared()?;
            Ok::<_, std::io::Error>(file)
        };
        let file = self.dir.as_deref().map(show).transpose();
        let file = file.inspect_err(|error| tracing::debug!(%error, "other ranks of this cache are not seen")).ok();
        let now = Instant::now();
        let seen = Mutex::new(Seen { ranks: [rank].into(), next: now, pause: LOOKS[0] });
        Member { ranks: Arc::clone(self), rank, world, _file: file.flatten(), seen }
    }

    /// The ranks of a world, in ascending order.
    fn of(&self, world: u32) -> Vec<u32> {
        let mut all: Vec<u32> =
            lock(&self.here).range((world, 0)..=(world, u32::MAX)).map(|((_, rank), _)| *rank).collect();
        let shown = self.dir.as_deref().and_then(|dir| fs::read_dir(dir).ok()).into_iter().flatten().flatten();
        all.extend(shown.filter_map(|entry| {
            let name = entry.file_name();
            let (of, rank) = name.to_str()?.split_once('-')?;
            let rank = rank.parse::<u32>().ok().filter(|_| of.parse() == Ok(world))?;
            // A held lock means that the rank is running: the kernel releases the lock with the process.
            let held = File::open(entry.path()).ok()?.try_lock();
            matches!(held, Err(TryLockError::WouldBlock)).then_some(rank)
        }));
        all.sort_unstable();
        all.dedup();
        all
    }
}

impl Member {
    /// The ranks that use the cache, in ascending order, including this one. From the last look, at most a minute old.
    /// This only affects what is kept, never what is delivered.
    pub fn ranks(&self) -> Arc<[u32]> {
        let mut seen = lock(&self.seen);
        let now = Instant::now();
        if now >= seen.next {
            let ranks = self.ranks.of(self.world);
            seen.pause = if ranks[..] == seen.ranks[..] { (seen.pause * 2).min(LOOKS[1]) } else { LOOKS[0] };
            (seen.ranks, seen.next) = (ranks.into(), now + seen.pause);
        }
        Arc::clone(&seen.ranks)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut here = lock(&self.ranks.here);
        let key = (self.world, self.rank);
        match here.get_mut(&key) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(here.remove(&key)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_shares_a_folder_is_seen_whatever_its_number_and_gone_when_it_is() {
        let dir = tempfile::tempdir().unwrap();
        // Like three processes, each with its own view of the folder.
        let of = || Ranks::new(Some(dir.path()));
        let (first, second, stranger) = (of().join(1, 8), of().join(5, 8), of().join(2, 4));
        let before = Instant::now();
        assert_eq!(first.ranks()[..], [1, 5]);
        // The next look is later than the end of this test.
        let next = std::mem::replace(&mut lock(&first.seen).next, before + Duration::from_secs(3600));
        assert!(next >= before + LOOKS[0]);
        assert_eq!(second.ranks()[..], [1, 5]);
        assert_eq!(stranger.ranks()[..], [2]);
        // Another loader of the same rank keeps it when the first one ends.
        let again = of().join(5, 8);
        drop(second);
        assert_eq!(of().of(8), [1, 5]);
        drop(again);
        assert_eq!(of().of(8), [1]);
        assert_eq!(first.ranks()[..], [1, 5], "looked for now and then, not each time");
        lock(&first.seen).next = Instant::now();
        assert_eq!(first.ranks()[..], [1]);
        // Files that do not name a rank are ignored.
        fs::write(dir.path().join("ranks/8-x"), "").unwrap();
        fs::write(dir.path().join("ranks/notes"), "").unwrap();
        assert_eq!(of().of(8), [1]);
    }

    #[test]
    fn memory_is_shared_by_the_ranks_of_a_process() {
        let ranks = Ranks::new(None);
        let (a, b) = (ranks.join(0, 4), ranks.join(2, 4));
        assert_eq!((a.ranks()[..].to_vec(), b.ranks()[..].to_vec()), (vec![0, 2], vec![0, 2]));
        drop(a);
        assert_eq!(ranks.of(4), [2]);
    }
}
