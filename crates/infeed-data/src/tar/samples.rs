//! The samples of a tar in order: their keys, and the positions of their members.

use std::ops::Range;

use super::header::BLOCK;

/// One file of a sample. 16 bytes, because there may be millions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Index among the shard's extensions.
    pub(crate) extension: u16,
    /// The block at which its content begins.
    pub(crate) block: u32,
    pub(crate) size: u32,
    /// The checksum of its content, if the shard has checksums.
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

/// Samples, stored by columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    keys: String,
    /// The end of each key in `keys`.
    key_ends: Vec<u32>,
    members: Vec<Member>,
    /// The end of each sample's members in `members`.
    member_ends: Vec<u32>,
}

fn bounds(ends: &[u32], i: usize) -> Range<usize> {
    i.checked_sub(1).map_or(0, |before| ends[before] as usize)..ends[i] as usize
}

impl Samples {
    pub(super) fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// `i` is below `len`.
    pub(super) fn key(&self, i: usize) -> &str {
        &self.keys[bounds(&self.key_ends, i)]
    }

    /// `i` is below `len`.
    pub(super) fn members(&self, i: usize) -> &[Member] {
        &self.members[bounds(&self.member_ends, i)]
    }

    pub(super) fn all_members(&self) -> &[Member] {
        &self.members
    }

    /// The key and members of each sample.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[Member])> {
        (0..self.len()).map(|i| (self.key(i), self.members(i)))
    }

    /// Begins a sample without members. Its key is the first `shared` bytes of the previous key, then `rest`. `None` if
    /// the previous key is shorter, or if a limit is reached.
    pub(super) fn begin(&mut self, shared: usize, rest: &str) -> Option<()> {
        let before = self.len().checked_sub(1).map_or(0..0, |last| bounds(&self.key_ends, last));
        let shared = before.start..before.start.checked_add(shared).filter(|end| *end <= before.end)?;
        if !self.keys.is_char_boundary(shared.end) {
            return None;
        }
        self.keys.extend_from_within(shared);
        self.keys.push_str(rest);
        self.key_ends.push(u32::try_from(self.keys.len()).ok()?);
        self.member_ends.push(u32::try_from(self.members.len()).ok()?);
        Some(())
    }

    /// Adds a member to the last sample; there has to be one.
    pub(super) fn add(&mut self, member: Member) -> Option<()> {
        self.members.push(member);
        *self.member_ends.last_mut()? = u32::try_from(self.members.len()).ok()?;
        Some(())
    }

    pub(super) fn append(&mut self, more: &Self) -> Option<()> {
        for (key, members) in more.iter() {
            self.begin(0, key)?;
            members.iter().try_for_each(|member| self.add(*member))?;
        }
        Some(())
    }

    /// Reserves memory for this many samples with this many bytes of keys, and two members each.
    pub(super) fn with_capacity(samples: usize, keys: usize) -> Self {
        Self {
            keys: String::with_capacity(keys),
            key_ends: Vec::with_capacity(samples),
            members: Vec::with_capacity(2 * samples),
            member_ends: Vec::with_capacity(samples),
        }
    }

    /// Frees unused memory, once all samples are added.
    pub(super) fn tighten(&mut self) {
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.members.shrink_to_fit();
        self.member_ends.shrink_to_fit();
    }
}
