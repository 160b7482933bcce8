//! What is known of a shard: its samples, and where their members lie.

use std::sync::Arc;

use infeed_core::error::{Error, Result};
use infeed_store::Object;

use super::header::{BLOCK, split_name};

/// One file of a sample: 16 bytes, as there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which of the shard's extensions.
    pub(crate) extension: u16,
    /// Where its content begins, in blocks.
    pub(crate) block: u32,
    pub(crate) size: u32,
    /// Of its content, when the shard has them.
    pub crc: u32,
}

impl Member {
    #[doc(hidden)]
    pub const fn start(&self) -> u64 {
        self.block as u64 * BLOCK
    }

    #[doc(hidden)]
    pub const fn end(&self) -> u64 {
        self.start() + self.size as u64
    }
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
    pub(crate) extensions: Vec<String>,
    pub(super) keys: String,
    /// Where each key ends in `keys`.
    pub(super) key_ends: Vec<u32>,
    pub(super) members: Vec<Member>,
    /// Where each sample's members end in `members`.
    pub(super) member_ends: Vec<u32>,
}

fn bounds(ends: &[u32], i: usize) -> std::ops::Range<usize> {
    i.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[i] as usize
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
        self.key_ends.len()
    }

    /// `i` is below `len`.
    pub(crate) fn key(&self, i: usize) -> &str {
        &self.keys[bounds(&self.key_ends, i)]
    }

    /// `i` is below `len`.
    pub(crate) fn members(&self, i: usize) -> &[Member] {
        &self.members[bounds(&self.member_ends, i)]
    }

    #[doc(hidden)]
    pub fn all_members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn resident_bytes(&self) -> usize {
        self.keys.capacity()
            + (self.key_ends.capacity() + self.member_ends.capacity()) * 4
            + self.members.capacity() * 16
    }

    /// Whether this tells of the tar that is there now.
    pub(super) fn is_of(&self, object: &Object) -> bool {
        let same_etag = match (&self.etag, &object.etag) {
            (Some(known), Some(found)) => **known == **found,
            // A copy elsewhere has none, or another.
            _ => true,
        };
        self.size == object.size && same_etag
    }

    /// Adds a file behind those before, to the last sample when it has the same key. Names without an extension are
    /// passed over, as WebDataset does.
    ///
    /// # Errors
    /// A file that is there twice, a file of 4 GiB and more, content that begins within a block.
    #[doc(hidden)]
    pub fn add(&mut self, name: &str, start: u64, size: u64, crc: Option<u32>) -> Result<()> {
        let Some((key, extension)) = split_name(name) else { return Ok(()) };
        let refuse =
            |what: String, hint: &'static str| Err(Error::corrupt(what).at_range(start..start + size).hint(hint));
        let (Ok(block), Ok(size), 0) = (u32::try_from(start / BLOCK), u32::try_from(size), start % BLOCK) else {
            let what = format!("`{name}` has {size} bytes at {start}");
            return refuse(
                what,
                "a member begins at a multiple of 512 and has less than 4 GiB; cut it into smaller ones",
            );
        };
        let extension = self.extension(extension)?;
        let last = self.len().checked_sub(1).filter(|last| self.key(*last) == key);
        match last {
            Some(last) if self.members(last).iter().any(|member| member.extension == extension) => {
                return refuse(format!("`{name}` is there twice"), "pack the tar anew; neither of the two is taken");
            }
            Some(_) => *self.member_ends.last_mut().expect("each sample has an end") += 1,
            None => {
                self.keys.push_str(key);
                let too_many = |_| Error::corrupt("a shard with 4 GiB of names");
                self.key_ends.push(u32::try_from(self.keys.len()).map_err(too_many)?);
                self.member_ends.push(u32::try_from(self.members.len() + 1).map_err(too_many)?);
            }
        }
        self.has_crc = crc.is_some();
        self.members.push(Member { extension, block, size, crc: crc.unwrap_or(0) });
        Ok(())
    }

    fn extension(&mut self, name: String) -> Result<u16> {
        if let Some(at) = self.extensions.iter().position(|known| *known == name) {
            return Ok(at as u16);
        }
        // Names like `2024.01.31-17.jpg` would make an extension of each file.
        if self.extensions.len() == 1000 {
            return Err(Error::corrupt(format!("more than 1000 extensions, such as `.{name}`"))
                .hint("the key ends at the first dot of the file's name; name files without dots in the key"));
        }
        self.extensions.push(name);
        Ok(self.extensions.len() as u16 - 1)
    }

    /// Finds a key whose members do not lie together.
    pub(super) fn check_keys(&self) -> Result<()> {
        let mut seen = std::collections::HashSet::with_capacity(self.len());
        match (0..self.len()).find(|i| !seen.insert(self.key(*i))) {
            None => Ok(()),
            Some(i) => {
                let range =
                    self.members(i).first().map_or(0, Member::start)..self.members(i).last().map_or(0, Member::end);
                let what = format!("key `{}` comes again after other keys", self.key(i));
                Err(Error::corrupt(what)
                    .at_range(range)
                    .hint("pack the members of a sample together, and each sample once"))
            }
        }
    }

    /// Cut to size, once it is whole.
    #[doc(hidden)]
    pub fn tighten(&mut self) {
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.members.shrink_to_fit();
        self.member_ends.shrink_to_fit();
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
        assert!(one.add("big.bin", 4096, 1 << 32, None).is_err());
        assert!(one.add("odd.bin", 4097, 1, None).is_err());
    }
}
