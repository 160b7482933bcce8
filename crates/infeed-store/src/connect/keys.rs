//! Detects listings that repeat keys, or never end.

use std::collections::HashSet;

use infeed_core::error::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_128;

/// The keys that a listing gave. Takes 16 bytes per key, 36 if the keys do not come in byte order.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Hashes of the keys as long as they ascend; nothing else is needed later.
    rising: Vec<u128>,
    last: String,
    any: HashSet<u128>,
}

impl Keys {
    /// # Errors
    /// `Io` for a key that was there before.
    pub(crate) fn add(&mut self, key: &str) -> Result<()> {
        let hash = xxh3_128(key.as_bytes());
        if self.any.is_empty() && (self.rising.is_empty() || key > self.last.as_str()) {
            self.rising.push(hash);
            key.clone_into(&mut self.last);
            return Ok(());
        }
        self.any.extend(self.rising.drain(..));
        if self.any.insert(hash) {
            return Ok(());
        }
        // Each copy would be a record of its own, and be trained on twice.
        Err(Error::new(ErrorKind::Io, format!("the listing holds the key {key:?} twice")).with_hint(
            "list again when no program writes; if that fails, the store or a proxy in front of it is broken",
        ))
    }
}

/// The most pages in a row without a key. A store may return some when it skips deleted objects. A hundred of them take
/// 2 to 10 s.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
const EMPTY: u32 = 100;

/// For stores whose pages infeed does not request itself: checks the number of pages in a row without a key.
///
/// # Errors
/// `Io` if there are too many.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(crate) fn check_pages(empty: u32) -> Result<()> {
    if empty < EMPTY {
        return Ok(());
    }
    let what = format!("the listing gave {EMPTY} pages without a key, and reports that there are more");
    Err(Error::new(ErrorKind::Io, what).with_hint(AGAIN))
}

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
const AGAIN: &str = "list again; if that fails, the store or a proxy in front of it is broken";

/// The tokens of a listing's pages.
#[cfg(any(feature = "s3", feature = "http"))]
#[derive(Debug, Default)]
pub(crate) struct Pages {
    tokens: HashSet<u128>,
    empty: u32,
}

#[cfg(any(feature = "s3", feature = "http"))]
impl Pages {
    /// Records a page with `entries` entries and the token of the next page.
    ///
    /// # Errors
    /// `Io` for a token that came before, and for too many pages without entries.
    pub(crate) fn next(&mut self, prefix: &str, entries: usize, token: &str) -> Result<()> {
        let bad = |what: String| Err(Error::new(ErrorKind::Io, what).with_hint(AGAIN));
        self.empty = if entries == 0 { self.empty + 1 } else { 0 };
        if !self.tokens.insert(xxh3_128(token.as_bytes())) {
            return bad(format!(
                "the listing of {prefix:?} gives a token for the next page that it gave before: it would never end"
            ));
        }
        if self.empty >= EMPTY {
            return bad(format!(
                "the listing of {prefix:?} gave {EMPTY} pages without a key, and reports that there are more"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_found_in_any_order() {
        for (keys, twice) in [
            (&["a", "b", "c"][..], false),
            (&["c", "a", "b"], false),
            (&["a", "a"], true),
            (&["a", "b", "a"], true),
            (&["b", "a", "c", "a"], true),
            (&["a", "c", "b", "d", "c"], true),
        ] {
            let mut seen = Keys::default();
            let result = keys.iter().try_for_each(|key| seen.add(key));
            assert_eq!(result.is_err(), twice, "{keys:?}");
        }
    }

    #[cfg(any(feature = "s3", feature = "http"))]
    #[test]
    fn pages_end_or_are_an_error() {
        let mut pages = Pages::default();
        pages.next("a/", 10, "1").unwrap();
        pages.next("a/", 10, "2").unwrap();
        assert!(pages.next("a/", 10, "1").unwrap_err().to_string().contains("gave before"));
        let mut pages = Pages::default();
        let end =
            (0..1000).map(|n| pages.next("a/", usize::from(n == 50), &n.to_string())).position(|page| page.is_err());
        assert_eq!(end, Some(50 + EMPTY as usize));
    }
}
