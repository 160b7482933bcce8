//! Names, sizes and ETags of a million objects in little memory.
//!
//! ```text
//! blocks (`Blocks`) of at most 16 objects; an object:
//!   varint bytes shared with the name before, varint more bytes, those; varint size;
//!   etag: 0 none | 1 and 16 bytes of "32 hex digits" in quotes | 2, varint length, text
//! ```
//!
//! The first object of a block has its whole name. Files of a folder take 12 to 18 bytes each, ETags 16 more.

use std::{borrow::Borrow, ops::Range};

use infeed_core::error::{Error, Result};

use super::{
    Blocks, Object,
    manifest::{Rest, number, text},
};

/// Objects in the order in which they were given.
#[derive(Debug)]
pub struct ObjectTable {
    pub(crate) blocks: Blocks,
    /// The first object of each block.
    firsts: Vec<u64>,
    len: u64,
}

impl ObjectTable {
    /// The most objects of a block. To find one takes up to this many steps of 10 ns.
    pub(crate) const BLOCK: usize = 16;

    /// In memory.
    #[must_use]
    pub fn of(objects: &[&Object]) -> Self {
        Self::of_blocks(objects.chunks(Self::BLOCK).map(|block| block.iter().copied()))
    }

    /// In memory, of these blocks.
    pub(crate) fn of_blocks<O: Borrow<Object>>(blocks: impl Iterator<Item = impl Iterator<Item = O>>) -> Self {
        let (mut firsts, mut len) = (Vec::new(), 0);
        let blocks = Blocks::of(blocks, |objects, out| {
            firsts.push(len);
            let mut before = Vec::new();
            for object in objects {
                put(out, &mut before, object.borrow());
                len += 1;
            }
        });
        firsts.shrink_to_fit();
        Self { blocks, firsts, len }
    }

    /// In these blocks, with these numbers of objects.
    pub(crate) fn in_blocks(blocks: Blocks, mut counts: Vec<u64>) -> Self {
        let mut len = 0;
        for count in &mut counts {
            len += std::mem::replace(count, len);
        }
        Self { blocks, firsts: counts, len }
    }

    /// Objects and bytes of each block.
    pub(crate) fn block_sizes(&self) -> impl Iterator<Item = (u64, u64)> {
        let starts = [0].into_iter().chain(self.blocks.ends.iter().copied());
        let ends = self.firsts.iter().skip(1).copied().chain([self.len]);
        let bytes = self.blocks.ends.iter().zip(starts).map(|(end, start)| end - start);
        self.firsts.iter().zip(ends).map(|(first, end)| end - first).zip(bytes)
    }

    /// Number of objects.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are no objects.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Object `at`, which is below [`len`](Self::len). Waits for the disk.
    ///
    /// # Errors
    /// `Corrupt` if the file of the table was damaged since it was opened; it is removed.
    pub fn get(&self, at: usize) -> Result<Object> {
        let block = self.firsts.partition_point(|first| *first <= at as u64) - 1;
        let bytes = self.blocks.get(block)?;
        let (mut rest, mut name, mut found) = (Rest::of(&bytes), Vec::with_capacity(64), None);
        for _ in self.firsts[block]..=at as u64 {
            found = entry(&mut rest, &mut name);
        }
        let object =
            found.and_then(|(size, tag)| Some(Object { name: String::from_utf8(name).ok()?, size, etag: tag.text() }));
        object.ok_or_else(|| self.invalid())
    }

    /// Passes name and size of all objects to `add`, in their order, with what it returned for the one before. Takes no
    /// memory for each object.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn fold<T>(&self, init: T, add: impl FnMut(T, &str, u64) -> T) -> Result<T> {
        self.fold_blocks(0..self.firsts.len(), init, add)
    }

    /// The same, with the objects of some blocks.
    pub(crate) fn fold_blocks<T>(
        &self,
        blocks: Range<usize>,
        init: T,
        mut add: impl FnMut(T, &str, u64) -> T,
    ) -> Result<T> {
        let (mut folded, mut name) = (init, Vec::new());
        for block in blocks {
            let bytes = self.blocks.get(block)?;
            let end = self.firsts.get(block + 1).copied().unwrap_or(self.len);
            let mut rest = Rest::of(&bytes);
            name.clear();
            for _ in self.firsts[block]..end {
                let (size, _) = entry(&mut rest, &mut name).ok_or_else(|| self.invalid())?;
                folded = add(folded, str::from_utf8(&name).map_err(|_| self.invalid())?, size);
            }
        }
        Ok(folded)
    }

    pub(crate) fn invalid(&self) -> Error {
        self.blocks.damaged("its content is invalid")
    }

    /// Bytes of memory.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.blocks.resident_bytes() + size_of_val(&*self.firsts) as u64
    }
}

/// An ETag as it was written.
#[derive(Debug)]
pub(crate) enum Tag<'a> {
    None,
    /// 32 lower-case hex digits in quotes.
    Digits(u128),
    Text(&'a str),
}

impl Tag<'_> {
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Digits(value) => Some(format!("\"{value:032x}\"")),
            Self::Text(text) => Some((*text).to_owned()),
        }
    }
}

/// Adds an object; `before` is the name of the one before, and becomes its own.
pub(crate) fn put(out: &mut Vec<u8>, before: &mut Vec<u8>, object: &Object) {
    let name = object.name.as_bytes();
    let shared = name.iter().zip(&*before).take_while(|(a, b)| a == b).count();
    number(out, shared as u64);
    number(out, (name.len() - shared) as u64);
    out.extend_from_slice(&name[shared..]);
    number(out, object.size);
    match object.etag.as_deref().map(|etag| (etag, digits(etag))) {
        None => out.push(0),
        Some((_, Some(value))) => {
            out.push(1);
            out.extend_from_slice(&value.to_be_bytes());
        }
        Some((etag, None)) => {
            out.push(2);
            text(out, etag);
        }
    }
    before.truncate(shared);
    before.extend_from_slice(&name[shared..]);
}

/// The value of an ETag of the usual form: 32 lower-case hex digits in quotes.
fn digits(etag: &str) -> Option<u128> {
    let hex = etag.strip_prefix('"')?.strip_suffix('"')?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    plain.then(|| u128::from_str_radix(hex, 16).ok())?
}

/// Size and ETag of the next object; `name` is the name of the one before, and becomes its own.
pub(crate) fn entry<'a>(rest: &mut Rest<'a>, name: &mut Vec<u8>) -> Option<(u64, Tag<'a>)> {
    let shared = usize::try_from(rest.number()?).ok().filter(|n| *n <= name.len())?;
    let more = usize::try_from(rest.number()?).ok()?;
    let more = rest.take(more)?;
    name.truncate(shared);
    name.extend_from_slice(more);
    let size = rest.number()?;
    let tag = match rest.take(1)? {
        [0] => Tag::None,
        [1] => Tag::Digits(u128::from_be_bytes(rest.take(16)?.try_into().ok()?)),
        [2] => Tag::Text(rest.text()?),
        _ => return None,
    };
    Some((size, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_come_back_as_they_were_given() {
        let tags = [
            Some("\"0123456789abcdef0123456789abcdef\""),
            None,
            Some("\"0123456789ABCDEF0123456789abcdef\""),
            Some("\"00000000000000000000000000000000-7\""),
            Some("W/\"weak\""),
            Some("7"),
        ];
        let object = |i: usize| Object {
            name: format!("{}/ä{:03}.jpg", i / 40, i * 7),
            size: [0, 1, u64::MAX][i % 3],
            etag: tags[i % tags.len()].map(str::to_owned),
        };
        for count in [0, 1, 15, 16, 17, 200] {
            let objects: Vec<Object> = (0..count).map(object).collect();
            let table = ObjectTable::of(&objects.iter().collect::<Vec<_>>());
            assert_eq!((table.len(), table.is_empty()), (count, count == 0));
            for (at, object) in objects.iter().enumerate() {
                assert_eq!(table.get(at).unwrap(), *object);
            }
            let count = table.fold(0, |at, name, size| {
                assert_eq!((name, size), (&*objects[at].name, objects[at].size));
                at + 1
            });
            assert_eq!(count.unwrap(), objects.len());
        }
        let files: Vec<Object> = (0..3200).map(|i| Object::new(format!("n01/n01_{i:05}.JPEG"), 110_000 + i)).collect();
        let bytes = ObjectTable::of(&files.iter().collect::<Vec<_>>()).resident_bytes();
        assert!(bytes < 3200 * 16, "{bytes} bytes for 3,200 files");
    }
}
