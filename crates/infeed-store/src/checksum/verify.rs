//! How bytes are compared ([`Verify`]), and what is known of the ETags of a store ([`Trust`]).

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

/// How bytes from a remote store are compared with the checksums that it sends. Damaged bytes are read again; if they
/// stay damaged, the error contains both hashes.
///
/// Applies to whole objects only. For a range, such as a record of a shard, no store sends a checksum. Lengths and
/// versions are always compared.
///
/// This setting applies to the reads of a run. Reads that open a dataset (indexes, labels, CIFAR's files), fill a
/// cache, or copy in `infeed stage` are always compared as with [`Checksums`](Self::Checksums).
///
/// ```
/// # use std::sync::Arc;
/// use infeed::{Loader, LoaderConfig, source::Verify};
///
/// # let dataset = Arc::new(infeed::dataset::SyntheticDataset::new(12, 4, 4, 2)?);
/// let loader = Loader::builder(dataset).batch_size(4).verify(Verify::Checksums).build_blocking()?;
/// assert_eq!(loader.config().verify, Verify::Checksums);
///
/// let file: LoaderConfig = serde_json::from_str(r#"{"verify": "checksums"}"#).expect("a setting");
/// assert_eq!(file.verify, loader.config().verify);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verify {
    /// With a CRC if the store sends one, as S3 does for objects written since the end of 2024: 2 µs per 100 KB.
    /// Otherwise not over `https`, where TLS detects errors on the way; over plain `http` as with
    /// [`Checksums`](Self::Checksums).
    #[default]
    Auto,
    /// With any checksum that the store sends (`x-amz-checksum-*`, `x-goog-hash`, `content-md5`), otherwise with the
    /// ETag, if it is an MD5, as most are. An MD5 costs 0.26 ms of a core per 100 KB.
    Checksums,
    /// Not at all in the reads of a run.
    Never,
}

/// How the whole objects of a store were compared, by all readers of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Compared with a checksum.
    pub checksum: u64,
    /// Compared with an ETag that is an MD5.
    pub md5: u64,
    /// Not compared: the store sent nothing to compare with.
    pub length_only: u64,
}

/// What a store's ETags are, as far as is known, and counts of comparisons.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    tags: Mutex<Tags>,
    checksum: AtomicU64,
    md5: AtomicU64,
    length_only: AtomicU64,
}

/// The most objects delivered in doubt before ETags are no longer compared.
const DOUBTS: usize = 8;

#[derive(Debug, Default)]
struct Tags {
    are: TagsAre,
    /// The hash of each object when it differed for the first time.
    differed: HashMap<String, [u8; 16]>,
    /// Objects that were delivered although they differ.
    given_out: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TagsAre {
    #[default]
    Unknown,
    Md5s,
    Others,
}

/// The meaning of a difference from an ETag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Damaged on the way, or not yet decided.
    Wrong,
    /// The same bytes came before.
    Again,
}

fn lock(tags: &Mutex<Tags>) -> MutexGuard<'_, Tags> {
    // Each critical section leaves it consistent.
    tags.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trust {
    /// The trust shared by all sources of this process with the same `store`.
    pub(crate) fn shared(store: &str) -> Arc<Self> {
        static STORES: LazyLock<Mutex<HashMap<String, Weak<Trust>>>> = LazyLock::new(Mutex::default);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|_, trust| trust.strong_count() > 0);
        if let Some(trust) = stores.get(store).and_then(Weak::upgrade) {
            return trust;
        }
        let trust = Arc::<Self>::default();
        stores.insert(store.to_owned(), Arc::downgrade(&trust));
        trust
    }

    pub(crate) fn verified(&self) -> Verified {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Verified { checksum: get(&self.checksum), md5: get(&self.md5), length_only: get(&self.length_only) }
    }

    pub(crate) fn count_checksum(&self) {
        self.checksum.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_length(&self) {
        self.length_only.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether hashing an object for its ETag is useless.
    pub(crate) fn doubts_tags(&self) -> bool {
        lock(&self.tags).are == TagsAre::Others
    }

    pub(crate) fn agreed(&self) {
        self.md5.fetch_add(1, Ordering::Relaxed);
        let mut tags = lock(&self.tags);
        if tags.are == TagsAre::Md5s {
            return;
        }
        let given_out = std::mem::take(&mut tags.given_out);
        *tags = Tags { are: TagsAre::Md5s, ..Tags::default() };
        drop(tags);
        for object in given_out {
            tracing::error!(
                object,
                "delivered before, but damaged: ETags of this store are MD5s, and this object has another MD5"
            );
        }
    }

    pub(crate) fn differed(&self, object: &str, found: [u8; 16]) -> Judged {
        let mut tags = lock(&self.tags);
        match tags.are {
            TagsAre::Md5s => return Judged::Wrong,
            // This read began before that was known.
            TagsAre::Others => return Judged::Again,
            TagsAre::Unknown => {}
        }
        if tags.differed.get(object) != Some(&found) {
            tags.differed.insert(object.to_owned(), found);
            return Judged::Wrong;
        }
        Judged::Again
    }

    /// Records that an object is delivered although it differs in the same way each time. `false`: the object is
    /// damaged, as is known by now.
    pub(crate) fn give_out(&self, object: &str, found: [u8; 16]) -> bool {
        let mut tags = lock(&self.tags);
        match tags.are {
            TagsAre::Md5s => return false,
            TagsAre::Others => {
                self.count_length();
                return true;
            }
            TagsAre::Unknown => {}
        }
        let known = tags.given_out.iter().any(|known| known == object);
        if !known {
            tags.given_out.push(object.to_owned());
        }
        let enough = tags.given_out.len() >= DOUBTS;
        if enough {
            *tags = Tags { are: TagsAre::Others, ..Tags::default() };
        }
        drop(tags);
        self.count_length();
        if enough {
            tracing::warn!(
                "no ETag of this store is an MD5: ETags are not compared any more; damage on the way would go unnoticed"
            );
        } else if !known {
            tracing::warn!(
                object,
                md5 = hex(&found),
                "the same bytes came each time and do not match its ETag: that is not an MD5, or the object is damaged"
            );
        }
        true
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_an_md5_agreed_a_difference_is_damage() {
        let trust = Trust::default();
        trust.agreed();
        for _ in 0..5 {
            assert_eq!(trust.differed("a", [1; 16]), Judged::Wrong);
        }
        assert!(!trust.doubts_tags());
        assert_eq!(trust.verified(), Verified { md5: 1, ..Verified::default() });
    }

    #[test]
    fn a_store_whose_tags_are_something_else_stays_readable() {
        let trust = Trust::default();
        for n in 0..DOUBTS {
            assert!(!trust.doubts_tags());
            let object = n.to_string();
            assert_eq!(trust.differed(&object, [n as u8; 16]), Judged::Wrong, "asked for again");
            assert_eq!(trust.differed(&object, [n as u8; 16]), Judged::Again);
            assert!(trust.give_out(&object, [n as u8; 16]));
        }
        assert!(trust.doubts_tags());
        // Reads in progress at that time are neither repeated nor counted among the next eight.
        for n in 0..2 * DOUBTS {
            let object = format!("late {n}");
            assert_eq!(trust.differed(&object, [0; 16]), Judged::Again);
            assert!(trust.give_out(&object, [0; 16]));
        }
        assert!(lock(&trust.tags).given_out.is_empty());
    }

    #[test]
    fn bytes_that_differ_from_each_other_are_damage_on_the_way() {
        let trust = Trust::default();
        for n in 0..4 {
            assert_eq!(trust.differed("a", [n; 16]), Judged::Wrong);
        }
        assert_eq!(trust.differed("a", [3; 16]), Judged::Again);
        trust.agreed();
        assert!(!trust.give_out("a", [3; 16]));
        assert_eq!(trust.differed("a", [3; 16]), Judged::Wrong, "one that agreed tells what all are");
    }
}
