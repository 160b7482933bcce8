//! A shard: its samples, and the positions of their members.

use std::sync::Arc;

use infeed_core::error::{Error, Result};
use infeed_store::Object;

use super::{
    header::{BLOCK, split_name},
    samples::{Member, Samples},
};

/// The extension of class indices.
pub(super) const LABEL: &str = "cls";
/// The most bytes of a `.cls` file: 19 digits, a sign, and line ends.
const LONGEST_LABEL: u32 = 24;

/// The class index in a text.
pub(super) fn class_index(content: &[u8]) -> Option<i64> {
    str::from_utf8(content).ok()?.trim().parse().ok()
}

/// A tar and its samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shard {
    /// Relative to the source.
    #[doc(hidden)]
    pub name: Arc<str>,
    #[doc(hidden)]
    pub size: u64,
    #[doc(hidden)]
    pub etag: Option<Arc<str>>,
    /// Identifies the sources and settings of `prepare`; 0: unknown.
    #[doc(hidden)]
    pub job: u128,
    /// Identifies the versions of the prepared files; 0: unknown.
    #[doc(hidden)]
    pub sources: u128,
    /// The number of shards of that `prepare`.
    #[doc(hidden)]
    pub job_shards: u32,
    #[doc(hidden)]
    pub has_crc: bool,
    /// Whether the tar was found to end without the zeros that end a tar.
    pub(super) has_no_end: bool,
    pub(super) extensions: Vec<String>,
    pub(super) samples: Samples,
    /// Class indices of the samples, as long as each sample has a `.cls` file with a number.
    pub(super) labels: Vec<i64>,
}

impl Shard {
    #[doc(hidden)]
    pub fn of(object: &Object) -> Self {
        let etag = object.etag.as_deref().map(Into::into);
        Self { name: object.name.as_str().into(), size: object.size, etag, ..Self::default() }
    }

    /// Number of samples.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    #[doc(hidden)]
    pub fn all_members(&self) -> &[Member] {
        self.samples.all_members()
    }

    /// Adds the next file, to the last sample if that has the same key. Names without an extension are skipped, as
    /// WebDataset does. Returns `true` if the caller has to pass the content to [`set_label`](Self::set_label).
    ///
    /// # Errors
    /// A file that occurs twice, a file of 4 GiB or more, content that does not begin at a block.
    #[doc(hidden)]
    pub fn add(&mut self, name: &str, start: u64, size: u64, crc: Option<u32>) -> Result<bool> {
        let Some((key, extension)) = split_name(name) else { return Ok(false) };
        let refuse = |what: String, hint: &'static str| {
            Err(Error::corrupt(what).at_range(start..start.saturating_add(size)).with_hint(hint))
        };
        let Ok(size) = u32::try_from(size) else {
            let what = format!("`{name}` has {size} bytes, and a member has less than 4 GiB");
            return refuse(what, "split it into smaller files");
        };
        if start == 0 || !start.is_multiple_of(BLOCK) {
            return refuse(
                format!("`{name}` begins at {start}, which is not a multiple of 512"),
                "make the index again",
            );
        }
        let Ok(block) = u32::try_from(start / BLOCK) else {
            let what = format!("`{name}` begins beyond 2 TiB, which the index can't address");
            return refuse(what, "pack the samples into several tars");
        };
        let extension = self.extension(extension)?;
        let last = self.len().checked_sub(1).filter(|last| self.samples.key(*last) == key);
        match last {
            Some(last) if self.samples.members(last).iter().any(|member| member.extension == extension) => {
                return refuse(format!("`{name}` is there twice"), "pack the tar again; neither of the two is read");
            }
            Some(_) => Some(()),
            None => self.samples.begin(0, key),
        }
        .and_then(|()| self.samples.add(Member { extension, block, size, crc: crc.unwrap_or(0) }))
        .ok_or_else(|| Error::corrupt("a shard with 4 GiB of names"))?;
        self.has_crc = crc.is_some();
        Ok(size <= LONGEST_LABEL && self.extensions[usize::from(extension)] == LABEL)
    }

    /// Takes the content of the file that was added last, a class index. Any other text leaves the shard without
    /// labels.
    #[doc(hidden)]
    pub fn set_label(&mut self, content: &[u8]) {
        // Ignored if an earlier sample had no class index.
        if self.labels.len() + 1 == self.len() {
            self.labels.extend(class_index(content));
        }
    }

    fn extension(&mut self, name: &str) -> Result<u16> {
        if let Some(at) = self.extensions.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(at as u16);
        }
        // Names such as `2024.01.31-17.jpg` would make an extension of each file.
        if self.extensions.len() == 1000 {
            return Err(Error::corrupt(format!("more than 1000 extensions, such as `.{name}`"))
                .with_hint("the key ends at the first dot of the file's name; name files without dots in the key"));
        }
        self.extensions.push(name.to_ascii_lowercase());
        Ok(self.extensions.len() as u16 - 1)
    }

    /// An error if the members of a key are not next to each other.
    pub(super) fn check_keys(&self) -> Result<()> {
        let keys = || self.samples.iter().map(|(key, _)| key);
        // The usual order of tars, in which no key can occur again.
        if keys().is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        let mut seen = std::collections::HashSet::with_capacity(self.len());
        match keys().position(|key| !seen.insert(key)) {
            None => Ok(()),
            Some(i) => {
                let members = self.samples.members(i);
                let range = members.first().map_or(0, Member::start)..members.last().map_or(0, Member::end);
                let what = format!("key `{}` comes again after other keys", self.samples.key(i));
                Err(Error::corrupt(what)
                    .at_range(range)
                    .with_hint("pack the members of a sample together, and each sample once"))
            }
        }
    }

    /// Frees unused memory, once the shard is complete.
    #[doc(hidden)]
    pub fn tighten(&mut self) {
        self.samples.tighten();
        self.labels.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_and_scattered_keys_are_errors() {
        let mut one = Shard::of(&Object::new("x.tar", 1 << 20));
        one.add("a.jpg", 512, 10, None).unwrap();
        let error = one.add("a.JPG", 1536, 10, None).unwrap_err().to_string();
        assert!(error.contains("`a.JPG` is there twice"), "{error}");
        one.add("b.jpg", 1536, 10, None).unwrap();
        one.check_keys().unwrap();
        one.add("a.cls", 2560, 1, None).unwrap();
        let error = one.check_keys().unwrap_err().to_string();
        assert!(error.contains("key `a` comes again"), "{error}");
        for (start, size, says) in [
            (4096, 1 << 32, "less than 4 GiB"),
            (4097, 1, "not a multiple of 512"),
            (0, 1, "not a multiple"),
            (2 << 40, 1, "beyond 2 TiB"),
        ] {
            let error = one.add("some.bin", start, size, None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
