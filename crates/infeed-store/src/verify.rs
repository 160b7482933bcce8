//! Whether the bytes that came are those that were stored.
//!
//! ```text
//! answer ─ Connector ─▶ Told ─┐
//! bytes ──────────────────────┴ Check ─┬ as told ─▶ whoever reads
//!                                      └ other ─▶ asked for again, up to three times ─▶ an error with both hashes
//! ```
//!
//! **What can be checked** is what is read whole: a store tells hashes of objects, never of ranges. Objects above 16 MiB
//! come in several ranges; when they are all of a bucket's object, a HEAD beside them asks what the whole must be.
//!
//! **An ETag of 32 hex digits** is the MD5 of most objects of S3 and its kin, and of some stores it is not. So:
//!
//! - Once one object of a store had the MD5 of its ETag (by chance: 1 in 2^128), its ETags are MD5s, and another one
//!   that differs is damaged.
//! - Before, an object that differs is asked for again. If the same bytes come, and once more when it is read in other parts
//!   (what flips a bit of each answer flips another one then), either the ETag is no MD5 there or the object is damaged at its
//!   store: it is given out, with a warning that names it. After eight of them ETags of that store are not looked at any
//!   more. Should an MD5 agree before, an error in the log names those that were given out.
//!
//! So one thing passes with a warning alone: the damage at rest of objects of a store none of whose objects agreed yet.
//! Not at Amazon's, whose ETags are known. A store that tells checksums is never doubted.

#![cfg_attr(not(feature = "tls"), allow(dead_code, reason = "nothing is told without HTTP"))]

use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use serde::{Deserialize, Serialize};

/// How what comes from a remote store is compared with what the store says of it: its checksum (`x-amz-checksum-*`,
/// `x-goog-hash`, `content-md5`), else the MD5 that most ETags are. Damage is asked for again; what stays damaged is an
/// error with both hashes.
///
/// Whole objects only: of a range, as records of shards are, no store tells anything. Lengths and versions are compared
/// always.
///
/// What opens a dataset (its indexes, its labels, CIFAR's files), what fills a cache and what `infeed stage` copies is
/// compared with all that is told, whatever is set for the reads of a run.
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
    /// With a checksum if one is told, else with the MD5. CRCs, which S3 tells of objects written since the end of 2024,
    /// cost 2 µs for 100 KB. An MD5 costs more: 630 µs of processor time for a photograph from a bucket to a row are 760 with
    /// it, and 2 cores that do nothing else give 0.87 of the rate (release build, photographs of 118 KB, a store in memory).
    #[default]
    Auto,
    /// With a CRC if one is told.
    Checksums,
    /// With nothing in the reads of a run.
    Never,
}

/// How whole objects of a store were compared, by all of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// With a checksum.
    pub checksum: u64,
    /// With an ETag that is an MD5.
    pub md5: u64,
    /// Nothing was told of them that can be compared.
    pub length_only: u64,
}

/// What a store's ETags turned out to be, and what was compared.
#[derive(Debug, Default)]
pub(crate) struct Trust {
    tags: Mutex<Tags>,
    checksum: AtomicU64,
    md5: AtomicU64,
    length_only: AtomicU64,
}

/// Objects given out in doubt before ETags are not looked at any more.
const DOUBTS: usize = 8;

#[derive(Debug, Default)]
struct Tags {
    are: TagsAre,
    /// What an object had when it differed first.
    differed: HashMap<String, [u8; 16]>,
    /// Objects that were given out, though they differ.
    given_out: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TagsAre {
    #[default]
    Unknown,
    Md5s,
    Others,
}

/// What a difference from an ETag means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// Not what was stored, or not yet known.
    Wrong,
    /// The same bytes came before.
    Again,
}

fn lock(tags: &Mutex<Tags>) -> MutexGuard<'_, Tags> {
    // Each section leaves it whole.
    tags.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Trust {
    /// That of all sources of this process with the same `store`.
    pub(super) fn shared(store: &str) -> Arc<Self> {
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

    pub(super) fn verified(&self) -> Verified {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Verified { checksum: get(&self.checksum), md5: get(&self.md5), length_only: get(&self.length_only) }
    }

    pub(super) fn count_checksum(&self) {
        self.checksum.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_length(&self) {
        self.length_only.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an ETag is worth hashing an object for.
    pub(super) fn doubts_tags(&self) -> bool {
        lock(&self.tags).are == TagsAre::Others
    }

    pub(super) fn agreed(&self) {
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
                "given out before, and damaged: ETags of this store are MD5s, and this one's is another"
            );
        }
    }

    pub(super) fn differed(&self, object: &str, found: [u8; 16]) -> Judged {
        let mut tags = lock(&self.tags);
        match tags.are {
            TagsAre::Md5s => return Judged::Wrong,
            // It was begun before that was known.
            TagsAre::Others => return Judged::Again,
            TagsAre::Unknown => {}
        }
        if tags.differed.get(object) != Some(&found) {
            tags.differed.insert(object.to_owned(), found);
            return Judged::Wrong;
        }
        Judged::Again
    }

    /// Takes note that an object is given out, though it differs each time in the same way. `false`: it is damaged, as is
    /// known by now.
    pub(super) fn give_out(&self, object: &str, found: [u8; 16]) -> bool {
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
                "no ETag of this store is an MD5: they are not compared any more; damage on the way would not be noticed"
            );
        } else if !known {
            tracing::warn!(
                object,
                md5 = hex(&found),
                "came with the same bytes each time, which are not those of its ETag: that is no MD5 there, or the object is damaged"
            );
        }
        true
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
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
        // Those under way then are neither asked for again nor counted as the next eight.
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
