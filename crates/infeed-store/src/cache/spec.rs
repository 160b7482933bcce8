//! `DIR:SIZE` and `ram:SIZE`.

use std::{fmt, path::PathBuf, str::FromStr};

use infeed_core::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Where to keep objects of remote stores on this machine, and how many bytes of them.
///
/// As text: `DIR:SIZE` keeps files in a folder, for all processes and runs of a machine; `ram:SIZE` keeps bytes in the
/// memory of this process, in addition to its memory budget. Sizes have a unit: `500GB`, `64GiB`. (`./ram:1GiB` is a
/// folder.)
///
/// ```
/// use infeed::source::CacheSpec;
///
/// let spec: CacheSpec = "/scratch/cache:500GB".parse()?;
/// assert_eq!(spec, CacheSpec::dir("/scratch/cache", 500_000_000_000));
/// assert_eq!("ram:2GiB".parse::<CacheSpec>()?, CacheSpec::ram(2 << 30));
/// assert!("/scratch/cache".parse::<CacheSpec>().is_err());
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CacheSpec {
    /// `None` means memory.
    pub(super) dir: Option<PathBuf>,
    pub(super) bytes: u64,
}

impl CacheSpec {
    /// Files in `dir`, which is created if it does not exist; at most `bytes` for all processes together.
    #[must_use]
    pub fn dir(dir: impl Into<PathBuf>, bytes: u64) -> Self {
        Self { dir: Some(dir.into()), bytes }
    }

    /// Memory of this process, at most `bytes` for each process and loader.
    #[must_use]
    pub const fn ram(bytes: u64) -> Self {
        Self { dir: None, bytes }
    }

    /// The most it holds, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The folder that holds the files; `None` means memory.
    #[must_use]
    pub fn folder(&self) -> Option<&std::path::Path> {
        self.dir.as_deref()
    }

    /// Whether the cache is in the memory of this process.
    #[must_use]
    pub const fn is_ram(&self) -> bool {
        self.dir.is_none()
    }
}

const FORM: &str = "write DIR:SIZE or ram:SIZE, for example /scratch/cache:500GB";

impl FromStr for CacheSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = |what: String| Error::config(format!("cache {text:?}: {what}")).with_hint(FORM);
        let (place, size) = text.rsplit_once(':').ok_or_else(|| bad("the size is missing".into()))?;
        if place.is_empty() {
            return Err(bad("the folder is missing".into()));
        }
        let bytes = parse_size(size).map_err(bad)?;
        if bytes == 0 {
            return Err(bad("the size is 0".into()));
        }
        Ok(if place == "ram" { Self::ram(bytes) } else { Self::dir(place, bytes) })
    }
}

/// A whole or decimal number and a unit. `K` without `B` is refused, because it may mean 1000 or 1024.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u32, u64); 9] = [
        ("kib", 1, 1024),
        ("mib", 2, 1024),
        ("gib", 3, 1024),
        ("tib", 4, 1024),
        ("kb", 1, 1000),
        ("mb", 2, 1000),
        ("gb", 3, 1000),
        ("tb", 4, 1000),
        ("b", 0, 1000),
    ];
    let lower = text.trim().to_ascii_lowercase();
    let found = UNITS.iter().find_map(|(name, power, base)| Some((lower.strip_suffix(name)?, base.pow(*power))));
    let (number, scale) = found.ok_or_else(|| format!("the size {text:?} has no unit such as MB or GiB"))?;
    let number = number.trim();
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!("the size {text:?} is not a number and a unit"));
    }
    let bytes = match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(scale),
        // Only fractions of a unit get here, so f64 is exact enough.
        Err(_) => number.parse::<f64>().ok().map(|n| n * scale as f64).filter(|n| *n < 1e19).map(|n| n as u64),
    };
    bytes.ok_or_else(|| format!("the size {text:?} is not a number and a unit"))
}

impl fmt::Display for CacheSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.dir {
            Some(dir) => write!(f, "{}:{}B", dir.display(), self.bytes),
            None => write!(f, "ram:{}B", self.bytes),
        }
    }
}

impl TryFrom<String> for CacheSpec {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<CacheSpec> for String {
    fn from(spec: CacheSpec) -> Self {
        spec.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_may_hold_colons_and_sizes_fractions() {
        for (text, spec) in [
            ("/a:b/c:1.5GiB", CacheSpec::dir("/a:b/c", 3 << 29)),
            ("./ram:10 MB", CacheSpec::dir("./ram", 10_000_000)),
            ("ram:7b", CacheSpec::ram(7)),
            ("cache:2tib", CacheSpec::dir("cache", 2 << 40)),
        ] {
            assert_eq!(text.parse::<CacheSpec>().unwrap(), spec, "{text}");
            assert_eq!(spec.to_string().parse::<CacheSpec>().unwrap(), spec, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_form() {
        for text in
            ["", "ram", "ram:", ":1GB", "/tmp/x", "/tmp/x:0B", "ram:0GiB", "d:5", "d:5G", "d:-1GB", "d:.GB", "d:nanGB"]
        {
            let error = text.parse::<CacheSpec>().unwrap_err().to_string();
            assert!(error.contains("DIR:SIZE"), "{text}: {error}");
        }
    }
}
