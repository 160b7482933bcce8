//! Listings that say things twice, or never end.

use std::collections::HashSet;

use infeed_core::error::{Error, ErrorKind, Result};
use xxhash_rust::xxh3::xxh3_128;

/// Keys that a listing gave. Holds 16 bytes for each, 36 where they do not come in the order of their bytes.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// As long as the keys rise, all that is needed of them later.
    rising: Vec<u128>,
    last: String,
    any: HashSet<u128>,
}

impl Keys {
    /// # Errors
    /// `Io` for a key that was there before.
    pub(super) fn add(&mut self, key: &str) -> Result<()> {
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
        // Each would be a record of its own, and be trained on twice.
        Err(Error::new(ErrorKind::Io, format!("the listing holds the key {key:?} twice"))
            .hint("list again when nobody writes; if it stays so, the store or what stands before it is broken"))
    }
}

/// Pages without a key in a row: a store may give some, where it skips what was deleted. A hundred of them are 2 to 10 s.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
const EMPTY: u32 = 100;

/// Of stores whose pages nobody here asks for: so many in a row named nothing.
///
/// # Errors
/// `Io` when they are too many.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn check_pages(empty: u32) -> Result<()> {
    if empty < EMPTY {
        return Ok(());
    }
    let what = format!("the listing gave {EMPTY} pages without a key, and says that there are more");
    Err(Error::new(ErrorKind::Io, what).hint(AGAIN))
}

#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
const AGAIN: &str = "list again; if it stays so, the store or what stands before it is broken";

/// Tokens of a listing's pages.
#[cfg(any(feature = "s3", feature = "http"))]
#[derive(Debug, Default)]
pub(super) struct Pages {
    tokens: HashSet<u128>,
    empty: u32,
}

#[cfg(any(feature = "s3", feature = "http"))]
impl Pages {
    /// After a page of so many entries that told the token of the next.
    ///
    /// # Errors
    /// `Io` for a token that was there before, and for too many pages of nothing.
    pub(super) fn next(&mut self, prefix: &str, entries: usize, token: &str) -> Result<()> {
        let bad = |what: String| Err(Error::new(ErrorKind::Io, what).hint(AGAIN));
        self.empty = if entries == 0 { self.empty + 1 } else { 0 };
        if !self.tokens.insert(xxh3_128(token.as_bytes())) {
            return bad(format!(
                "the listing of {prefix:?} gives a token for the next page that it gave before: it would never end"
            ));
        }
        if self.empty >= EMPTY {
            return bad(format!(
                "the listing of {prefix:?} gave {EMPTY} pages without a key, and says that there are more"
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
