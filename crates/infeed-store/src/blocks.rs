//! Blocks of bytes: in memory, or in a file of which a block is read when it is needed.
//!
//! After the bytes of a block follows their hash, with the block's number as seed.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
};

use bytes::Bytes;
use infeed_core::error::{Error, Result};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Manifest, Parts};

/// Bytes of a hash.
const HASH: usize = 8;

/// Numbered blocks of bytes.
#[derive(Debug)]
pub struct Blocks {
    /// What holds them.
    pub parts: Arc<Parts>,
    /// Where the first block begins.
    pub start: u64,
    /// Where each block ends, with its hash, counted from `start`.
    pub ends: Vec<u64>,
    /// The file, which is removed if it is damaged.
    pub kept: Option<Manifest>,
}

impl Blocks {
    /// In memory; `write` adds the bytes of a block.
    pub fn of<T>(blocks: impl Iterator<Item = T>, mut write: impl FnMut(T, &mut Vec<u8>)) -> Self {
        let (mut out, mut ends) = (Vec::new(), Vec::with_capacity(blocks.size_hint().0));
        for (number, block) in blocks.enumerate() {
            let start = out.len();
            write(block, &mut out);
            let hash = xxh3_64_with_seed(&out[start..], number as u64);
            out.extend_from_slice(&hash.to_le_bytes());
            ends.push(out.len() as u64);
        }
        out.shrink_to_fit();
        ends.shrink_to_fit();
        Self { parts: Arc::new(Parts::Held(out.into())), start: 0, ends, kept: None }
    }

    /// The bytes of a block. Waits for the disk.
    ///
    /// # Errors
    /// `Corrupt` if the file was damaged since it was opened; it is removed.
    pub fn get(&self, block: usize) -> Result<Bytes> {
        let from = block.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = self.start + from..self.start + self.ends[block];
        let mut bytes = self.parts.bytes(range).map_err(|e| self.damaged(&e.to_string()))?;
        let content = bytes
            .len()
            .checked_sub(HASH)
            .filter(|content| xxh3_64_with_seed(&bytes[..*content], block as u64).to_le_bytes() == bytes[*content..]);
        bytes.truncate(content.ok_or_else(|| self.damaged("a checksum is wrong"))?);
        Ok(bytes)
    }

    /// The error for bytes that are not as they were written.
    #[must_use]
    pub fn damaged(&self, what: &str) -> Error {
        if let Some(kept) = &self.kept {
            kept.forget(what);
        }
        Error::corrupt(format!("what is kept about the dataset is damaged: {what}"))
            .with_hint("open the dataset again, which makes it anew")
    }

    /// Writes all blocks, with their hashes.
    ///
    /// # Errors
    /// Those of the system.
    pub fn write(&self, file: &mut File) -> io::Result<()> {
        file.write_all(&self.parts.read(self.start..self.start + self.len())?)
    }

    /// Number of bytes, of all blocks and hashes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let held = match &*self.parts {
            Parts::Held(_) => self.len(),
            Parts::File { .. } => 0,
        };
        held + size_of_val(&*self.ends) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_its_bytes_and_damage_is_an_error_of_one() {
        let all = Blocks::of(0..3, |block, out| out.extend(std::iter::repeat_n(7, block)));
        let lens = |all: &Blocks| (0..3).map(|block| all.get(block).ok().map(|b| b.len())).collect::<Vec<_>>();
        assert_eq!((lens(&all), all.len()), (vec![Some(0), Some(1), Some(2)], 3 + 3 * 8));
        assert_eq!(all.resident_bytes(), all.len() + 3 * 8);
        let Parts::Held(bytes) = &*all.parts else { panic!("not in memory") };
        let mut bytes = bytes.to_vec();
        bytes[8] = 6;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), [&b"abc"[..], &bytes].concat()).unwrap();
        let file = Parts::of_file(std::fs::File::open(dir.path().join("x")).unwrap()).unwrap();
        let all = Blocks { parts: Arc::new(file), start: 3, ..all };
        assert_eq!((lens(&all), all.resident_bytes()), (vec![Some(0), None, Some(2)], 3 * 8));
        assert!(all.get(1).unwrap_err().to_string().contains("a checksum is wrong"));
    }
}
