//! The part of Thrift's compact protocol that page headers and the shape of a schema need.

use infeed_core::error::{Error, Result};

use super::wire::{RLE, damaged, unzigzag, varint};

/// Deepest nesting of structs.
const DEEPEST: u8 = 16;
/// Deepest nesting of groups in a schema: the library that builds the schema recurses this deep.
const SCHEMA_DEEPEST: usize = 32;
/// Most columns and groups of a schema.
const SCHEMA_MOST: u64 = 100_000;
/// Least bytes of a row group with all its required fields, and below of each of its column chunks. In memory they take
/// at most 30 times as much.
const LEAST_GROUP: u64 = 7;
const LEAST_CHUNK: u64 = 17;

const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

#[derive(Clone, Debug)]
pub(super) struct Thrift<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The end of a struct, or number and type of its next field.
enum Next {
    Stop,
    Field(i64, u8),
}

impl<'a> Thrift<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let (value, length) = varint(self.bytes.get(self.at..)?)?;
        self.at += length;
        Some(value)
    }

    fn int(&mut self) -> Option<i64> {
        self.varint().map(unzigzag)
    }

    fn step(&mut self, count: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(count).ok()?).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    fn next(&mut self, last: &mut i64) -> Option<Next> {
        let head = self.byte()?;
        if head == 0 {
            return Some(Next::Stop);
        }
        *last = match head >> 4 {
            0 => self.int()?,
            delta => last.checked_add(delta.into())?,
        };
        Some(Next::Field(*last, head & 15))
    }

    /// Type and number of the elements. Each takes at least one byte.
    fn list(&mut self) -> Option<(u8, u64)> {
        let head = self.byte()?;
        let size = match head >> 4 {
            15 => self.varint()?,
            size => size.into(),
        };
        (size <= self.left()).then_some((head & 15, size))
    }

    /// `in_list`: in a list, a boolean takes one byte.
    fn skip(&mut self, kind: u8, in_list: bool, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            1 | 2 => {
                if in_list {
                    self.step(1)
                } else {
                    Some(())
                }
            }
            3 => self.step(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.step(8),
            8 => {
                let length = self.varint()?;
                self.step(length)
            }
            LIST | SET => {
                let (kind, size) = self.list()?;
                (0..size).try_for_each(|_| self.skip(kind, true, depth))
            }
            MAP => {
                let size = self.varint()?;
                if size == 0 {
                    return Some(());
                }
                let kinds = self.byte()?;
                (size <= self.left()).then_some(())?;
                (0..size).try_for_each(|_| {
                    self.skip(kinds >> 4, true, depth)?;
                    self.skip(kinds & 15, true, depth)
                })
            }
            STRUCT => self.fields(depth, |_, _, _| Some(false)),
            _ => None,
        }
    }

    /// Walks the fields of a struct. `take` reads a field and returns true, otherwise the field is skipped.
    fn fields(&mut self, depth: u8, mut take: impl FnMut(&mut Self, i64, u8) -> Option<bool>) -> Option<()> {
        let mut last = 0;
        loop {
            match self.next(&mut last)? {
                Next::Stop => return Some(()),
                Next::Field(number, kind) => {
                    if !take(self, number, kind)? {
                        self.skip(kind, false, depth)?;
                    }
                }
            }
        }
    }
}

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    Data,
    /// Version 2: levels before the values, never compressed.
    DataV2 {
        repetition: u32,
        definition: u32,
        compressed: bool,
    },
    Dictionary,
    /// Index pages, which are skipped.
    Other,
}

/// The header of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageHeader {
    pub(super) kind: PageKind,
    /// Bytes of the page, compressed and uncompressed.
    pub(super) packed: u32,
    pub(super) unpacked: u32,
    pub(super) values: u32,
    pub(super) encoding: u32,
    /// Encoding of the levels of a version 1 page.
    pub(super) levels: u32,
}

/// The header at the start of the bytes, and its length. `None`: the bytes end before it, or are not a header.
pub(super) fn page_header(bytes: &[u8]) -> Option<(PageHeader, usize)> {
    let mut thrift = Thrift::new(bytes);
    let mut kind = None;
    let mut packed = None;
    let mut unpacked = None;
    let mut values = None;
    let mut encoding = None;
    let mut levels = None;
    let mut definition = 0;
    let mut repetition = 0;
    let mut compressed = true;
    let number = |thrift: &mut Thrift<'_>| thrift.int().and_then(|value| u32::try_from(value).ok());
    thrift.fields(DEEPEST, |thrift, field, wire| {
        match (field, wire) {
            (1, 5) => kind = Some(number(thrift)?),
            (2, 5) => unpacked = Some(number(thrift)?),
            (3, 5) => packed = Some(number(thrift)?),
            (5 | 7, STRUCT) => thrift.fields(DEEPEST - 1, |thrift, field, wire| {
                match (field, wire) {
                    (1, 5) => values = Some(number(thrift)?),
                    (2, 5) => encoding = Some(number(thrift)?),
                    (3, 5) => levels = Some(number(thrift)?),
                    _ => return Some(false),
                }
                Some(true)
            })?,
            (8, STRUCT) => thrift.fields(DEEPEST - 1, |thrift, field, wire| {
                match (field, wire) {
                    (1, 5) => values = Some(number(thrift)?),
                    (4, 5) => encoding = Some(number(thrift)?),
                    (5, 5) => definition = number(thrift)?,
                    (6, 5) => repetition = number(thrift)?,
                    (7, 1 | 2) => compressed = wire == 1,
                    _ => return Some(false),
                }
                Some(true)
            })?,
            _ => return Some(false),
        }
        Some(true)
    })?;
    let kind = match kind? {
        0 => PageKind::Data,
        2 => PageKind::Dictionary,
        3 => PageKind::DataV2 { repetition, definition, compressed },
        _ => PageKind::Other,
    };
    let (values, encoding) = if kind == PageKind::Other { (0, 0) } else { (values?, encoding?) };
    let levels = levels.unwrap_or(RLE);
    Some((PageHeader { kind, packed: packed?, unpacked: unpacked?, values, encoding, levels }, thrift.at))
}

/// An error, before anything is allocated, if the schema is deeper or larger than that of any dataset, or if the footer
/// claims more row groups than it has bytes for.
pub(super) fn check_counts(footer: &[u8]) -> Result<()> {
    let mut thrift = Thrift::new(footer);
    let mut too_deep = false;
    let mut too_many = None;
    let mut found = false;
    let mut columns = 0u64;
    let walked = thrift.fields(DEEPEST, |thrift, field, _| {
        if field == 4 {
            // Only the size is read; the list is then skipped like all other fields.
            let (_, size) = thrift.clone().list()?;
            let least = (columns * LEAST_CHUNK + LEAST_GROUP).saturating_mul(size);
            if least > thrift.left() {
                too_many = Some(size);
                return None;
            }
            return Some(false);
        }
        // If the field occurs twice, the first counts.
        if field != 2 || found {
            return Some(false);
        }
        found = true;
        let (_, size) = thrift.list()?;
        if size > SCHEMA_MOST {
            too_deep = true;
            return None;
        }
        // The children that are still to come, for each group around the next element.
        let mut open: Vec<u64> = Vec::new();
        for number in 0..size {
            let mut children = 0;
            thrift.fields(DEEPEST, |thrift, field, wire| match (field, wire) {
                (5, 5) => {
                    children = u64::try_from(thrift.int()?).ok()?;
                    Some(true)
                }
                _ => Some(false),
            })?;
            (children <= size).then_some(())?;
            // The first element is the table.
            columns += u64::from(children == 0 && number > 0);
            while open.pop_if(|left| *left == 0).is_some() {}
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            open.push(children);
            if open.len() > SCHEMA_DEEPEST {
                too_deep = true;
                return None;
            }
        }
        Some(true)
    });
    if let Some(groups) = too_many {
        let what =
            format!("the footer claims {groups} row groups of {columns} columns, for which it has too few bytes");
        return Err(damaged(what));
    }
    match (walked, too_deep) {
        (_, true) => {
            let what = format!("its schema has more than {SCHEMA_MOST} columns, or is deeper than {SCHEMA_DEEPEST}");
            Err(Error::corrupt(what).with_hint("the file is damaged, or is not a dataset"))
        }
        (None, _) => Err(damaged("the footer is not valid Thrift of Parquet")),
        (Some(()), _) if !found => Err(damaged("the footer has no schema")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_header_is_read_as_it_is_written() {
        // type 0, unpacked 300, packed 200, data page: 7 values, PLAIN, levels RLE twice.
        let bytes = [0x15, 0, 0x15, 0xd8, 4, 0x15, 0x90, 3, 0x2c, 0x15, 14, 0x15, 0, 0x15, 6, 0x15, 6, 0, 0, 99];
        let (header, length) = page_header(&bytes).unwrap();
        assert_eq!(length, bytes.len() - 1);
        let want = PageHeader { kind: PageKind::Data, packed: 200, unpacked: 300, values: 7, encoding: 0, levels: 3 };
        assert_eq!(header, want);
        for end in 0..length {
            assert_eq!(page_header(&bytes[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn a_schema_without_end_is_refused_before_it_is_built() {
        // 40 groups, each the only child of the one before: name "a", one child.
        let group = [0x48, 1, b'a', 0x15, 2, 0];
        let deep = [&[0x15, 2, 0x19, 0xfc, 40][..], &group.repeat(40), &[0]].concat();
        assert!(check_counts(&deep).unwrap_err().to_string().contains("deeper than 32"));
        let flat = [&[0x15, 2, 0x19, 0x2c][..], &group, &[0x48, 1, b'b', 0], &[0]].concat();
        check_counts(&flat).unwrap();
        let many = [&[0x15, 2, 0x19, 0xfc, 0xff, 0xff, 0xff, 0x7f][..], &[0; 100]].concat();
        assert!(check_counts(&many).unwrap_err().to_string().contains("not valid Thrift"));
    }

    #[test]
    fn row_groups_that_a_footer_has_no_bytes_for_are_refused_before_they_are_built() {
        // A table of the columns "a" and "b"; then row groups, each of which ends at once.
        let schema =
            [&[0x15, 2, 0x19, 0x3c][..], &[0x48, 1, b't', 0x15, 4, 0], &[0x48, 1, b'a', 0], &[0x48, 1, b'b', 0]];
        let footer = |groups: u8, bytes: usize| [&schema.concat()[..], &[0x29, 0xfc, groups], &vec![0; bytes]].concat();
        // Of 41 bytes: the list's head is 2, the end of all 1.
        check_counts(&footer(100, 4100)).unwrap();
        for bytes in [4000, 101] {
            let error = check_counts(&footer(100, bytes)).unwrap_err().to_string();
            assert!(error.contains("claims 100 row groups of 2 columns"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_header_or_none(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = page_header(&bytes);
            let _ = check_counts(&bytes);
        }
    }
}
