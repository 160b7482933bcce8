//! A file of entries, each with its own hash, and a table about them at its end. Opening reads the table; an entry is
//! read when it is needed.
//!
//! ```text
//! magic bytes, entries, table, u64 where the table begins, u128 xxh3 of the table, magic bytes        little-endian
//! ```

use std::io;

use xxhash_rust::xxh3::xxh3_128;

use super::{Beside, Parts};

/// Number of magic bytes.
const MAGIC: usize = 16;

/// Bytes after the table.
const END: u64 = 8 + 16 + MAGIC as u64;

/// Adds what follows a table that begins at `begins`.
pub fn end_table(magic: &[u8; MAGIC], begins: u64, table: &mut Vec<u8>) {
    let hash = xxh3_128(table);
    table.extend_from_slice(&begins.to_le_bytes());
    table.extend_from_slice(&hash.to_le_bytes());
    table.extend_from_slice(magic);
}

impl Parts {
    /// The table of such a file, and where it begins. Entries lie between the first magic bytes and there.
    ///
    /// # Errors
    /// A description of what is wrong, for a warning.
    pub fn table(&self, magic: &[u8; MAGIC]) -> Result<(Vec<u8>, u64), String> {
        let broken = |e: io::Error| e.to_string();
        let start = self.read(0..self.len().min(MAGIC as u64)).map_err(broken)?;
        if *start != magic[..start.len()] {
            return Err("it has another version".into());
        }
        let cut = || "it is truncated".to_owned();
        let end = self.len().checked_sub(END).filter(|end| *end >= MAGIC as u64).ok_or_else(cut)?;
        let tail = self.read(end..self.len()).map_err(broken)?;
        let (begins, hash, tail_magic) = (&tail[..8], &tail[8..24], &tail[24..]);
        if tail_magic != magic {
            return Err(cut());
        }
        let begins = begins.try_into().map_or(0, u64::from_le_bytes);
        if !(MAGIC as u64..=end).contains(&begins) {
            return Err("its content is invalid".into());
        }
        Beside::Table.check(end - begins).map_err(|e| e.to_string())?;
        let table = self.read(begins..end).map_err(broken)?;
        match xxh3_128(&table).to_le_bytes() == *hash {
            true => Ok((table.into_owned(), begins)),
            false => Err("its checksum is wrong".into()),
        }
    }

    /// Whether two files are the same. Their tables have the positions of everything, and end with the table's hash.
    #[must_use]
    pub fn is_same_table(&self, other: &Self) -> bool {
        let end =
            |parts: &Self| parts.read(parts.len().saturating_sub(END)..parts.len()).ok().map(|end| end.into_owned());
        self.len() == other.len() && end(self).is_some_and(|one| Some(one) == end(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_found_at_the_end_and_damage_is_described() {
        let magic = b"infeed of test\n\0";
        let mut table = b"a table".to_vec();
        end_table(magic, 20, &mut table);
        let file = [&magic[..], b"four", &table].concat();
        let open = |bytes: &[u8]| Parts::Held(bytes.to_vec().into()).table(magic);
        assert_eq!(open(&file), Ok((b"a table".to_vec(), 20)));
        for cut in 0..file.len() {
            assert!(open(&file[..cut]).is_err(), "{cut}");
        }
        for at in (0..file.len()).filter(|at| !(16..20).contains(at)) {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert!(open(&flipped).is_err(), "{at}");
        }
    }
}
