//! Bytes about each record: in memory, or in a file of which a record's are read when they are needed.
//!
//! After each record's bytes follows their hash, with the record's number as seed.

use std::{
    fs::File,
    io::{self, Write},
    sync::Arc,
};

use bytes::Bytes;
use infeed_core::error::{Error, Result};
use infeed_store::{Manifest, Parts};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a hash.
const HASH: usize = 8;

/// Bytes about each record.
#[derive(Debug)]
pub(crate) struct RecordBytes {
    pub(crate) parts: Arc<Parts>,
    /// Where those of the first record begin.
    pub(crate) start: u64,
    /// Where those of each record end, with their hash, counted from `start`.
    pub(crate) ends: Vec<u64>,
    /// The file, which is removed if it is damaged.
    pub(crate) kept: Option<Manifest>,
}

impl RecordBytes {
    /// In memory; `write` adds the bytes of a record.
    pub(crate) fn of(records: usize, mut write: impl FnMut(usize, &mut Vec<u8>)) -> Self {
        let (mut out, mut ends) = (Vec::new(), Vec::with_capacity(records));
        for record in 0..records {
            let start = out.len();
            write(record, &mut out);
            let hash = xxh3_64_with_seed(&out[start..], record as u64);
            out.extend_from_slice(&hash.to_le_bytes());
            ends.push(out.len() as u64);
        }
        out.shrink_to_fit();
        Self { parts: Arc::new(Parts::Held(out.into())), start: 0, ends, kept: None }
    }

    /// The bytes of a record. Waits for the disk.
    ///
    /// # Errors
    /// `Corrupt` if the file was damaged since it was opened; it is removed.
    pub(crate) fn get(&self, record: usize) -> Result<Bytes> {
        let from = record.checked_sub(1).map_or(0, |before| self.ends[before]);
        let range = self.start + from..self.start + self.ends[record];
        let mut bytes = self.parts.bytes(range).map_err(|e| self.damaged(&e.to_string()))?;
        let content = bytes
            .len()
            .checked_sub(HASH)
            .filter(|content| xxh3_64_with_seed(&bytes[..*content], record as u64).to_le_bytes() == bytes[*content..]);
        bytes.truncate(content.ok_or_else(|| self.damaged("a checksum is wrong"))?);
        Ok(bytes)
    }

    /// The error for bytes that are not as they were written.
    pub(crate) fn damaged(&self, what: &str) -> Error {
        if let Some(kept) = &self.kept {
            kept.forget(what);
        }
        Error::corrupt(format!("kept annotations are damaged: {what}"))
            .with_hint("open the dataset again, which reads the annotations anew")
    }

    /// Writes the bytes of all records, with their hashes.
    pub(crate) fn write(&self, file: &mut File) -> io::Result<()> {
        file.write_all(&self.parts.read(self.start..self.start + self.len())?)
    }

    /// Number of bytes, of all records.
    pub(crate) fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Bytes of memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
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
    fn each_record_has_its_bytes_and_damage_is_an_error_of_one() {
        let all = RecordBytes::of(3, |record, out| out.extend(std::iter::repeat_n(7, record)));
        let lens = |all: &RecordBytes| (0..3).map(|record| all.get(record).ok().map(|b| b.len())).collect::<Vec<_>>();
        assert_eq!((lens(&all), all.len()), (vec![Some(0), Some(1), Some(2)], 3 + 3 * 8));
        assert_eq!(all.resident_bytes(), all.len() + 3 * 8);
        let Parts::Held(bytes) = &*all.parts else { panic!("not in memory") };
        let mut bytes = bytes.to_vec();
        bytes[8] = 6;
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x"), [&b"abc"[..], &bytes].concat()).unwrap();
        let file = Parts::of_file(std::fs::File::open(dir.path().join("x")).unwrap()).unwrap();
        let all = RecordBytes { parts: Arc::new(file), start: 3, ..all };
        assert_eq!((lens(&all), all.resident_bytes()), (vec![Some(0), None, Some(2)], 3 * 8));
        assert!(all.get(1).unwrap_err().to_string().contains("a checksum is wrong"));
    }
}
