//! Samples of a tar, one after another: their keys, and where their members lie.

use std::ops::Range;

use super::header::BLOCK;

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

/// Columns of samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Samples {
    keys: String,
    /// Where each key ends in `keys`.
    key_ends: Vec<u32>,
    members: Vec<Member>,
    /// Where each sample's members end in `members`.
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

    /// Keys and members, in turn.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &[Member])> {
        (0..self.len()).map(|i| (self.key(i), self.members(i)))
    }

    /// Begins a sample without members: its key is the first `shared` bytes of the one before, and `rest`. `None`: they are
    /// not there, or there is no room.
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

    /// Adds a member to the last sample, of which there is one.
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

    /// Room for so many samples with so many bytes of keys, and a member or two of each.
    pub(super) fn with_capacity(samples: usize, keys: usize) -> Self {
        Self {
            keys: String::with_capacity(keys),
            key_ends: Vec::with_capacity(samples),
            members: Vec::with_capacity(2 * samples),
            member_ends: Vec::with_capacity(samples),
        }
    }

    /// Cut to size, once all are there.
    pub(super) fn tighten(&mut self) {
        self.keys.shrink_to_fit();
        self.key_ends.shrink_to_fit();
        self.members.shrink_to_fit();
        self.member_ends.shrink_to_fit();
    }
}
