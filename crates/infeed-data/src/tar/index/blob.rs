//! The samples of one shard in an index: blocks, which are read one by one, and labels.

use std::sync::{Arc, OnceLock};

use infeed_core::error::{Error, Result};
use infeed_store::{Manifest, Parts, Rest, number, text};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::shape::Shape;
use crate::tar::{
    header::{BLOCK, padded},
    samples::{Member, Samples},
    shard::Shard,
};

/// Samples per block. With fewer, the file needs more bytes per sample; with more, reading one sample takes longer. 16
/// samples are 140 bytes.
pub(in crate::tar) const SAMPLES: usize = 16;

/// Bytes of a hash.
const HASH: usize = 8;

/// An open index.
#[derive(Debug)]
pub(in crate::tar) struct IndexFile {
    pub(in crate::tar) parts: Parts,
    /// Its name in messages.
    pub(in crate::tar) name: String,
    /// The manifest that keeps it, and drops it if it is damaged.
    pub(in crate::tar) kept: Option<Manifest>,
}

impl Default for IndexFile {
    /// An empty index.
    fn default() -> Self {
        Self { parts: Parts::Held(bytes::Bytes::new()), name: String::new(), kept: None }
    }
}

/// The position of a shard's samples in the index.
#[derive(Clone, Debug)]
pub(in crate::tar) struct Blob {
    pub(super) file: Arc<IndexFile>,
    /// Position in the file.
    pub(super) at: u64,
    pub(super) samples: u32,
    /// Bytes of all blocks.
    pub(super) blocks: u32,
    /// Bytes of one label; 0: there are no labels.
    pub(super) label: u8,
    /// Bytes of the tar.
    pub(super) tar: u64,
    /// The end of each block, once it is read.
    ends: OnceLock<Box<[u32]>>,
    labels: OnceLock<Vec<u8>>,
}

/// The seed of a hash. Bytes of another shard, or of another place in this one, do not match it.
const fn seed(tar: u64, place: u64) -> u64 {
    tar.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ place
}

const ENDS: u64 = u64::MAX;
const LABELS: u64 = u64::MAX - 1;

fn seal(out: &mut Vec<u8>, start: usize, tar: u64, place: u64) {
    let hash = xxh3_64_with_seed(&out[start..], seed(tar, place));
    out.extend_from_slice(&hash.to_le_bytes());
}

/// The bytes before their hash, if the hash matches.
fn sealed(bytes: &[u8], tar: u64, place: u64) -> Option<&[u8]> {
    let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH)?)?;
    (xxh3_64_with_seed(content, seed(tar, place)).to_le_bytes() == *hash).then_some(content)
}

/// Bytes of the widest label.
fn label_width(labels: &[i64]) -> u8 {
    let fits = |width: u32| labels.iter().all(|label| label << (64 - 8 * width) >> (64 - 8 * width) == *label);
    [1, 2, 4].into_iter().find(|width| fits(*width)).unwrap_or(8) as u8
}

/// Writes the samples of a shard. `shape` has the layouts; `layouts` has the index of each sample's layout. Returns the
/// bytes of the blocks and of one label.
pub(super) fn encode(shard: &Shard, layouts: &[u32], out: &mut Vec<u8>) -> Result<(u32, u8)> {
    let Shard { samples, has_crc, labels, size, .. } = shard;
    let start = out.len();
    let mut ends = Vec::with_capacity(samples.len().div_ceil(SAMPLES));
    let mut end = 0;
    for first in (0..samples.len()).step_by(SAMPLES) {
        let block = out.len();
        number(out, end);
        let mut before = "";
        for (i, layout) in layouts.iter().enumerate().skip(first).take(SAMPLES) {
            let (key, members) = (samples.key(i), samples.members(i));
            let mut shared = key.bytes().zip(before.bytes()).take_while(|(a, b)| a == b).count();
            while !key.is_char_boundary(shared) {
                shared -= 1;
            }
            number(out, shared as u64);
            text(out, &key[shared..]);
            before = key;
            let gaps = |end: u64| {
                members.iter().scan(end, |end, member| {
                    let gap = u64::from(member.block).wrapping_sub(*end);
                    *end = padded(member.end()) / BLOCK;
                    Some(gap)
                })
            };
            let odd = gaps(end).any(|gap| gap != 1);
            number(out, u64::from(*layout) * 2 + u64::from(odd));
            for (member, gap) in members.iter().zip(gaps(end)) {
                if odd {
                    number(out, gap);
                }
                number(out, member.size.into());
                if *has_crc {
                    out.extend_from_slice(&member.crc.to_le_bytes());
                }
            }
            end = members.last().map_or(end, |last| padded(last.end()) / BLOCK);
        }
        seal(out, block, *size, ends.len() as u64);
        ends.push(u32::try_from(out.len() - start).map_err(|_| Error::corrupt("a shard with 4 GiB of names"))?);
    }
    let Some(blocks) = ends.last().copied() else { return Ok((0, 0)) };
    let start = out.len();
    ends.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
    seal(out, start, *size, ENDS);
    let width = if labels.len() == samples.len() { label_width(labels) } else { 0 };
    if width > 0 {
        let start = out.len();
        labels.iter().for_each(|label| out.extend_from_slice(&label.to_le_bytes()[..usize::from(width)]));
        seal(out, start, *size, LABELS);
    }
    Ok((blocks, width))
}

/// Reads a block of `count` samples of a tar of `tar` bytes.
pub(super) fn decode(block: &[u8], count: usize, shape: &Shape, tar: u64) -> Option<Samples> {
    let mut rest = Rest::of(block);
    let mut end = rest.number()?;
    let mut samples = Samples::with_capacity(count, 2 * block.len());
    for _ in 0..count {
        samples.begin(usize::try_from(rest.number()?).ok()?, rest.text()?)?;
        let layout = rest.number()?;
        for extension in shape.layouts.get(usize::try_from(layout / 2).ok()?)? {
            let gap = if layout & 1 == 1 { rest.number()? } else { 1 };
            let block = u32::try_from(end.checked_add(gap)?).ok().filter(|block| *block > 0)?;
            let size = u32::try_from(rest.number()?).ok()?;
            let crc = match shape.has_crc {
                true => u32::from_le_bytes(rest.take(4)?.try_into().ok()?),
                false => 0,
            };
            let member = Member { extension: *extension, block, size, crc };
            if member.end() > tar {
                return None;
            }
            end = padded(member.end()) / BLOCK;
            samples.add(member)?;
        }
    }
    rest.is_empty().then_some(samples)
}

impl Blob {
    pub(super) const fn new(file: Arc<IndexFile>, at: u64, samples: u32, blocks: u32, label: u8, tar: u64) -> Self {
        Self { file, at, samples, blocks, label, tar, ends: OnceLock::new(), labels: OnceLock::new() }
    }

    /// Number of samples.
    pub(in crate::tar) const fn samples(&self) -> u32 {
        self.samples
    }

    /// Number of blocks.
    pub(in crate::tar) fn count(&self) -> usize {
        (self.samples as usize).div_ceil(SAMPLES)
    }

    fn ends_len(&self) -> u64 {
        match self.count() {
            0 => 0,
            blocks => (blocks * 4 + HASH) as u64,
        }
    }

    fn labels_len(&self) -> u64 {
        match self.label {
            0 => 0,
            width => u64::from(self.samples) * u64::from(width) + HASH as u64,
        }
    }

    /// Bytes in the file.
    pub(super) fn len(&self) -> u64 {
        u64::from(self.blocks) + self.ends_len() + self.labels_len()
    }

    /// All bytes, without checking them.
    pub(in crate::tar) fn bytes(&self) -> Result<Vec<u8>> {
        let read = self.file.parts.read(self.at..self.at + self.len());
        read.map(std::borrow::Cow::into_owned).map_err(|e| self.wrong(&e.to_string()))
    }

    fn wrong(&self, what: &str) -> Error {
        if let Some(kept) = &self.file.kept {
            kept.forget(what);
        }
        Error::corrupt(format!("the index of shards is damaged: {what}"))
            .at_object(self.file.name.clone())
            .with_hint("remove the index; opening the dataset makes it again")
    }

    /// The content at this position, if its hash matches.
    fn part(&self, from: u64, len: u64, place: u64) -> Result<Vec<u8>> {
        let from = self.at + from;
        let bytes = self.file.parts.read(from..from + len).map_err(|e| self.wrong(&e.to_string()))?;
        let mut bytes = bytes.into_owned();
        let content = sealed(&bytes, self.tar, place).ok_or_else(|| self.wrong("a checksum is wrong"))?.len();
        bytes.truncate(content);
        Ok(bytes)
    }

    fn ends(&self) -> Result<&[u32]> {
        if let Some(ends) = self.ends.get() {
            return Ok(ends);
        }
        let bytes = self.part(self.blocks.into(), self.ends_len(), ENDS)?;
        let ends: Box<[u32]> = bytes.as_chunks().0.iter().map(|end| u32::from_le_bytes(*end)).collect();
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != self.blocks {
            return Err(self.wrong("its content is invalid"));
        }
        Ok(self.ends.get_or_init(|| ends))
    }

    /// The samples of a block. `block` is below the number of blocks. Waits for the disk.
    pub(in crate::tar) fn block(&self, block: usize, shape: &Shape) -> Result<Samples> {
        let ends = self.ends()?;
        let start = block.checked_sub(1).map_or(0, |before| ends[before]);
        let count = SAMPLES.min(self.samples as usize - block * SAMPLES);
        let bytes = self.part(start.into(), u64::from(ends[block] - start), block as u64)?;
        decode(&bytes, count, shape, self.tar).ok_or_else(|| self.wrong("its content is invalid"))
    }

    /// All samples, one block at a time.
    pub(in crate::tar) fn blocks<'a>(&'a self, shape: &'a Shape) -> impl Iterator<Item = Result<Samples>> + 'a {
        (0..self.count()).map(|block| self.block(block, shape))
    }

    /// The class index of a sample, if the index has labels. The first call reads all labels of the shard, which then
    /// stay in memory.
    pub(in crate::tar) fn label_of(&self, sample: usize) -> Result<Option<i64>> {
        let width = usize::from(self.label);
        if width == 0 {
            return Ok(None);
        }
        let labels = match self.labels.get() {
            Some(labels) => labels,
            None => {
                let from = u64::from(self.blocks) + self.ends_len();
                let labels = self.part(from, self.labels_len(), LABELS)?;
                self.labels.get_or_init(|| labels)
            }
        };
        let mut bytes = [0; 8];
        bytes[8 - width..].copy_from_slice(&labels[sample * width..][..width]);
        // Sign-extended.
        Ok(Some(i64::from_le_bytes(bytes) >> (64 - 8 * width)))
    }

    /// Bytes of memory if everything was read once.
    pub(in crate::tar) fn resident_bytes(&self) -> u64 {
        (size_of::<Self>() + self.count() * 4) as u64
    }
}
