//! A 128-bit identity of everything that determines the order of samples.
//!
//! Built from labelled parts, so that `("ab", "c")` and `("a", "bc")` differ. xxh3 is not a cryptographic hash: it
//! detects accidental differences, not attacks.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

/// A 128-bit identity; 32 hex digits in text and JSON.
///
/// ```
/// use infeed::dataset::Fingerprint;
///
/// // From files and their sizes, as your own dataset may compute it.
/// let fingerprint = Fingerprint::of("stamps").text("all.stamps").number(132_000).finish();
/// assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
/// let longer = Fingerprint::of("stamps").text("all.stamps").number(132_264).finish();
/// assert_ne!(fingerprint, longer);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u128);

impl Fingerprint {
    /// Starts a fingerprint of the thing named `what`.
    #[inline]
    pub fn of(what: &str) -> Fingerprinter {
        Fingerprinter(Box::default()).text(what)
    }
}

/// Collects the parts of a [`Fingerprint`]. The order of parts matters.
///
/// ```
/// use infeed::dataset::Fingerprint;
///
/// let mut parts = Fingerprint::of("words");
/// for (name, size) in [("a.txt", 120), ("b.txt", 70)] {
///     parts = parts.text(name).number(size);
/// }
/// let swapped = Fingerprint::of("words").text("b.txt").number(70).text("a.txt").number(120);
/// assert_ne!(parts.finish(), swapped.finish());
/// ```
#[must_use]
#[derive(Clone)]
pub struct Fingerprinter(Box<Xxh3>);

impl Fingerprinter {
    /// Adds a number.
    #[inline]
    pub fn number(mut self, value: u64) -> Self {
        self.0.update(&value.to_le_bytes());
        self
    }

    /// Adds a text, preceded by its length.
    #[inline]
    pub fn text(mut self, value: &str) -> Self {
        self.0.update(&(value.len() as u64).to_le_bytes());
        self.0.update(value.as_bytes());
        self
    }

    /// Adds bytes, preceded by their length.
    #[inline]
    pub fn bytes(mut self, value: &[u8]) -> Self {
        self.0.update(&(value.len() as u64).to_le_bytes());
        self.0.update(value);
        self
    }

    /// Adds another fingerprint.
    #[inline]
    pub fn part(mut self, value: Fingerprint) -> Self {
        self.0.update(&value.0.to_le_bytes());
        self
    }

    /// The identity of all parts so far.
    #[must_use]
    #[inline]
    pub fn finish(&self) -> Fingerprint {
        Fingerprint(self.0.digest128())
    }
}

impl fmt::Debug for Fingerprinter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fingerprinter").field(&self.finish()).finish()
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Fingerprint {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Fingerprint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_run_into_each_other() {
        let ab_c = Fingerprint::of("t").text("ab").text("c").finish();
        let a_bc = Fingerprint::of("t").text("a").text("bc").finish();
        assert_ne!(ab_c, a_bc);
    }

    #[test]
    fn text_form_round_trips() {
        let print = Fingerprint(0x1234);
        assert_eq!(print.to_string().parse::<Fingerprint>().unwrap(), print);
        let json = serde_json::to_string(&print).unwrap();
        assert_eq!(serde_json::from_str::<Fingerprint>(&json).unwrap(), print);
    }
}
