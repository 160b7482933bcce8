//! Lets one process of a machine at a time find out what all of them need.

use std::{
    fs::{self, File, TryLockError},
    sync::Mutex,
};

use futures::StreamExt;

use super::{Manifest, Source, aside::aside};

/// The right to find out, until this is dropped or the process ends.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
    /// Whether another process had the lock before: it may have kept what it found.
    pub waited: bool,
}

impl Source {
    /// Waits until no other process of this machine has the lock for this place. The lock is on its folder, or on a
    /// file next to `kept`. `None` if there is no file to lock, or the file system does not support locks. Cancel safe.
    #[doc(hidden)]
    pub async fn machine_lock(&self, kept: Option<&Manifest>) -> Option<MachineLock> {
        let file = match (self.folder(), kept) {
            (Some(folder), _) => File::open(folder),
            (None, Some(kept)) => {
                let lock = kept.file().with_extension("lock");
                lock.parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    .and_then(|()| File::options().create(true).append(true).open(lock))
            }
            (None, None) => return None,
        };
        let file = file.inspect_err(|error| tracing::debug!(%error, "nothing to lock")).ok()?;
        match file.try_lock() {
            Ok(()) => return Some(MachineLock { _file: file, waited: false }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the file system locks nothing");
                return None;
            }
        }
        tracing::info!(url = self.url(), "another process is looking at this place; waiting for its result");
        // Moved out, so that the thread does not hold it longer than the waiting task.
        let file = Mutex::new(Some(file));
        let wait = move |_| {
            let file = file.lock().ok()?.take()?;
            file.lock().ok().map(|()| MachineLock { _file: file, waited: true })
        };
        aside("infeed-turn", 1, 1, wait).ok()?.next().await?
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn one_has_the_turn_and_the_next_has_waited() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Source::parse(dir.path().to_str().unwrap()).unwrap();
        let _store = Source::memory("turn.of");
        let remote = Source::parse("memory://turn.of/x").unwrap();
        let kept = remote.manifest("shards", Some(dir.path())).unwrap();
        assert!(remote.machine_lock(None).await.is_none());
        for (source, kept) in [(&folder, None), (&remote, Some(&kept))] {
            let first = source.machine_lock(kept).await.unwrap();
            assert!(!first.waited);
            let mut second = Box::pin(source.machine_lock(kept));
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut second).await.is_err(), "it is not free yet");
            drop(first);
            assert!(second.await.unwrap().waited);
            assert!(!source.machine_lock(kept).await.unwrap().waited);
        }
    }
}
