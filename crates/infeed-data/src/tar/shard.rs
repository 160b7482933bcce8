//! What is known of a shard: its samples, and where their members lie.

use std::sync::Arc;

use infeed_core::error::{Error, Result};
use infeed_store::Object;

use super::{
    header::{BLOCK, split_name},
    samples::{Member, Samples},
};

/// The extension of class indices.
pub(super) const LABEL: &str = "cls";
/// Bytes of a file with one: 19 digits, a sign, and ends of lines.
const LONGEST_LABEL: u32 = 24;

/// The class index that a text holds.
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
    /// What it was prepared from and how; 0 when nobody knows.
    #[doc(hidden)]
    pub job: u128,
    /// The versions of the files that it was prepared from; 0 when nobody knows.
    #[doc(hidden)]
    pub sources: u128,
    /// How many shards that made.
    #[doc(hidden)]
    pub job_shards: u32,
    #[doc(hidden)]
    pub has_crc: bool,
    pub(super) extensions: Vec<String>,
    pub(super) samples: Samples,
    /// Class indices of the samples, as long as each one has a `.cls` with a number in it.
    pub(super) labels: Vec<i64>,
}

impl Shard {
    #[doc(hidden)]
    pub fn of(object: &Object) -> Self {
        let etag = object.etag.as_deref().map(Into::into);
        Self { name: object.name.as_str().into(), size: object.size, etag, ..Self::default() }
    }

    /// Samples.
    #[doc(hidden)]
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    #[doc(hidden)]
    pub fn all_members(&self) -> &[Member] {
        self.samples.all_members()
    }

    /// Adds a file behind those before, to the last sample when it has the same key. Names without an extension are
    /// passed over, as WebDataset does. `true`: [`set_label`](Self::set_label) is to be told its content.
    ///
    /// # Errors
    /// A file that is there twice, a file of 4 GiB and more, content that begins within a block.
    #[doc(hidden)]
    pub fn add(&mut self, name: &str, start: u64, size: u64, crc: Option<u32>) -> Result<bool> {
        let Some((key, extension)) = split_name(name) else { return Ok(false) };
        let refuse = |what: String, hint: &'static str| {
            Err(Error::corrupt(what).at_range(start..start.saturating_add(size)).hint(hint))
        };
        let Ok(size) = u32::try_from(size) else {
            let what = format!("`{name}` has {size} bytes, and a member has less than 4 GiB");
            return refuse(what, "cut it into smaller ones");
        };
        if start == 0 || !start.is_multiple_of(BLOCK) {
            return refuse(format!("`{name}` begins at {start}, which is no multiple of 512"), "make the index anew");
        }
        let Ok(block) = u32::try_from(start / BLOCK) else {
            let what = format!("`{name}` begins beyond 2 TiB, where an index of tars ends");
            return refuse(what, "pack the samples into several tars");
        };
        let extension = self.extension(extension)?;
        let last = self.len().checked_sub(1).filter(|last| self.samples.key(*last) == key);
        match last {
            Some(last) if self.samples.members(last).iter().any(|member| member.extension == extension) => {
                return refuse(format!("`{name}` is there twice"), "pack the tar anew; neither of the two is taken");
            }
            Some(_) => Some(()),
            None => self.samples.begin(0, key),
        }
        .and_then(|()| self.samples.add(Member { extension, block, size, crc: crc.unwrap_or(0) }))
        .ok_or_else(|| Error::corrupt("a shard with 4 GiB of names"))?;
        self.has_crc = crc.is_some();
        Ok(size <= LONGEST_LABEL && self.extensions[usize::from(extension)] == LABEL)
    }

    /// Takes the content of the file that was added last, a class index. Any other text leaves the shard without labels.
    #[doc(hidden)]
    pub fn set_label(&mut self, content: &[u8]) {
        // None is taken when one before had none.
        if self.labels.len() + 1 == self.len() {
            self.labels.extend(class_index(content));
        }
    }

    fn extension(&mut self, name: &str) -> Result<u16> {
        if let Some(at) = self.extensions.iter().position(|known| known.eq_ignore_ascii_case(name)) {
            return Ok(at as u16);
        }
        // Names like `2024.01.31-17.jpg` would make an extension of each file.
        if self.extensions.len() == 1000 {
            return Err(Error::corrupt(format!("more than 1000 extensions, such as `.{name}`"))
                .hint("the key ends at the first dot of the file's name; name files without dots in the key"));
        }
        self.extensions.push(name.to_ascii_lowercase());
        Ok(self.extensions.len() as u16 - 1)
    }

    /// Finds a key whose members do not lie together.
    pub(super) fn check_keys(&self) -> Result<()> {
        let keys = || self.samples.iter().map(|(key, _)| key);
        // As most tars are packed: nothing can come again.
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
                    .hint("pack the members of a sample together, and each sample once"))
            }
        }
    }

    /// Cut to size, once it is whole.
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
            (4097, 1, "no multiple of 512"),
            (0, 1, "no multiple"),
            (2 << 40, 1, "beyond 2 TiB"),
        ] {
            let error = one.add("some.bin", start, size, None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
