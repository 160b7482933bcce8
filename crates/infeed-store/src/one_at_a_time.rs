//! One process of a machine at a time finds out what all of them need.

use std::{
    fs::{self, File, TryLockError},
    sync::Mutex,
};

use futures::StreamExt;

use super::{Manifest, Source, aside::aside};

/// The right to be the one that finds out, until this is dropped or the process ends.
#[derive(Debug)]
pub struct Turn {
    _file: File,
    /// Whether another process had it before: what it found out may be kept by now.
    pub waited: bool,
}

impl Source {
    /// Waits until no other process of this machine has the turn for this place: its folder, or a file beside `kept`.
    /// `None`: there is nothing that could be locked, or the file system locks nothing. Cancel safe.
    #[doc(hidden)]
    pub async fn turn(&self, kept: Option<&Manifest>) -> Option<Turn> {
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
            Ok(()) => return Some(Turn { _file: file, waited: false }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the file system locks nothing");
                return None;
            }
        }
        tracing::info!(url = self.url(), "another process looks at this place; waiting for what it finds");
        // Given away, so that the thread holds it no longer than whoever waited.
        let file = Mutex::new(Some(file));
        let wait = move |_| {
            let file = file.lock().ok()?.take()?;
            file.lock().ok().map(|()| Turn { _file: file, waited: true })
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
        assert!(remote.turn(None).await.is_none());
        for (source, kept) in [(&folder, None), (&remote, Some(&kept))] {
            let first = source.turn(kept).await.unwrap();
            assert!(!first.waited);
            let mut second = Box::pin(source.turn(kept));
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut second).await.is_err(), "it is not free yet");
            drop(first);
            assert!(second.await.unwrap().waited);
            assert!(!source.turn(kept).await.unwrap().waited);
        }
    }
}
