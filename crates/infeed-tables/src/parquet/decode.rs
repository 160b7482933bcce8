//! Decodes the pages of a column chunk into a table of its values.
//!
//! | column | decoded |
//! |---|---|
//! | bytes | a `u64` per row: the position, and above it the length (`NULL`: no value); then the pages |
//! | numbers | a byte per row, 1 if there is a value; then the values in the machine's order |
//! | lists of numbers | a `u64` per row as for bytes (`NULL`: it can't be read); then the values of all rows |
//! | lists of bytes | a `u64` per row: the first item, and above it their number; a `u64` per item as for bytes; the pages |
//!
//! The `parquet` crate reads the footer. It could also read pages (60.1 was examined), but that is done here:
//!
//! - **A header may be wrong.** The crate allocates what a page's header asks for (a dictionary of 2³¹ values: 64 GiB,
//!   which aborts the process), decompresses gzip without a limit, and panics at levels beyond their page. This code
//!   never allocates or decompresses more than the footer states, and that was compared with the loader's memory.
//! - **One copy.** A part that records share is one piece of memory of a known size: bytes stay where their page was
//!   decompressed, and the table has their positions. The crate returns values one by one, to be copied again, and a
//!   dictionary's value each time it is used.
//! - **No C.** Its zstd is a build of the C library.

use std::ops::Range;

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result};

use super::{
    chunk::{Chunk, Lists, Physical},
    encodings::{Dictionary, Hybrid, PLAIN, PLAIN_DICTIONARY, Values, name_of, place, plain_bytes},
    thrift::{PageHeader, PageKind, page_header},
    unpack::{Codec, MOST_RATIO, no_memory, unpack},
    wire::{RLE, damaged},
};

/// Levels that are decoded at a time.
const BLOCK: usize = 256;
/// A row of bytes without a value; a list of which a number is missing, or whose items differ in length.
const NULL: u64 = u64::MAX;

/// The value of a row of bytes in a decoded column.
pub(super) fn bytes_of(decoded: &[u8], row: usize) -> Result<Option<Range<usize>>> {
    let place = entry(decoded, row)?;
    if place == NULL {
        return Ok(None);
    }
    let (start, length) = (place as u32 as usize, (place >> 32) as usize);
    let range = start..start.saturating_add(length);
    if range.end > decoded.len() { Err(cut_off()) } else { Ok(Some(range)) }
}

/// The values of a row of lists of bytes, in the decoded column of `chunk`; `None` for a list with a missing value.
pub(super) fn items_of(
    decoded: &[u8],
    row: usize,
    chunk: &Chunk,
) -> Result<Option<impl ExactSizeIterator<Item = Result<Range<usize>>>>> {
    let place = entry(decoded, row)?;
    if place == NULL {
        return Ok(None);
    }
    let first = chunk.rows as usize + place as u32 as usize;
    let item = move |item: usize| bytes_of(decoded, first + item)?.ok_or_else(cut_off);
    Ok(Some((0..(place >> 32) as usize).map(item)))
}

/// Entry `at` of the table.
fn entry(decoded: &[u8], at: usize) -> Result<u64> {
    let entry = at.checked_mul(8).and_then(|at| decoded.get(at..)?.first_chunk::<8>());
    entry.map(|entry| u64::from_ne_bytes(*entry)).ok_or_else(cut_off)
}

fn cut_off() -> Error {
    damaged("the decoded column is truncated")
}

/// The value of a row of numbers, in the decoded column of `chunk`.
pub(super) fn number_of(decoded: &[u8], row: usize, chunk: &Chunk) -> Result<Option<Range<usize>>> {
    let size = chunk.physical.size();
    let start = chunk.rows as usize + row * size;
    match (decoded.get(row), start + size <= decoded.len()) {
        (Some(0), _) => Ok(None),
        (Some(_), true) => Ok(Some(start..start + size)),
        _ => Err(cut_off()),
    }
}

/// Decodes all pages of a chunk, which begins at `base` in its file.
pub(super) fn decode(chunk: &Chunk, bytes: &[u8], base: u64) -> Result<Vec<u8>> {
    let mut column = Column::new(chunk, bytes.len())?;
    let mut at = 0;
    while column.seen < chunk.values {
        let rest = &bytes[at.min(bytes.len())..];
        let row = column.row.max(column.lists.row);
        let near = |e: Error, length: usize| e.at_range(base + at as u64..base + (at + length) as u64);
        let (header, length) = page_header(rest)
            .ok_or_else(|| near(damaged(format!("no page header before row {row} of the group")), rest.len()))?;
        let end = length + header.packed as usize;
        let body = rest.get(length..end);
        let body =
            body.ok_or_else(|| near(damaged(format!("the page of row {row} of the group is truncated")), rest.len()))?;
        column.page(&header, body).map_err(|e| near(e, end))?;
        at += end;
    }
    column.finish()
}

/// The length of the items in a column of lists of lists, from the first pages of a chunk; `None` if there are none, or
/// if most rows have none of one length: a few such rows are bad samples.
pub(super) fn length_of_items(chunk: &Chunk, pages: &[(PageHeader, Bytes)]) -> Result<Option<u32>> {
    let mut column = Column::new(chunk, pages.iter().map(|(_, body)| body.len()).sum())?;
    pages.iter().try_for_each(|(header, body)| column.page(header, body))?;
    column.lists.end_row(column.out.len(), &mut column.out)?;
    let even = (0..column.lists.row).filter(|row| matches!(bytes_of(&column.out, *row), Ok(Some(_)))).count();
    Ok(column.lists.inner.filter(|_| 2 * even >= column.lists.row))
}

/// The first value of a column of bytes, from the first page of a chunk.
pub(super) fn first_value(chunk: &Chunk, header: &PageHeader, body: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut column = Column::new(chunk, body.len())?;
    column.page(header, body)?;
    if let Dictionary::Places(places) = &column.dictionary {
        let value = places.first().and_then(|start| plain_bytes(&column.out, *start as usize));
        return Ok(value.map(|value| column.out[value].to_vec()));
    }
    let entries = match chunk.lists {
        None => 0..column.row,
        Some(_) => chunk.rows as usize..chunk.rows as usize + column.lists.items,
    };
    for entry in entries {
        if let Some(place) = bytes_of(&column.out, entry)? {
            return Ok(Some(column.out[place].to_vec()));
        }
    }
    Ok(None)
}

/// A column while it is decoded.
struct Column<'a> {
    chunk: &'a Chunk,
    out: Vec<u8>,
    /// Number of decoded rows, unless they are lists.
    row: usize,
    /// Number of decoded values, with the places of those that are missing.
    seen: u32,
    lists: ListRows<'a>,
    /// Bytes decompressed so far.
    unpacked: u64,
    dictionary: Dictionary,
    /// A page of numbers.
    page: Vec<u8>,
}

/// The rows of a column of lists.
struct ListRows<'a> {
    chunk: &'a Chunk,
    /// Number of lists that have begun.
    row: usize,
    /// Items of bytes so far.
    items: usize,
    /// The list that has begun.
    list: Begun,
    /// Numbers in each item of a list of lists.
    inner: Option<u32>,
}

/// A list that has begun.
#[derive(Clone, Copy, Default)]
struct Begun {
    /// The position of its first number, or the index of its first item of bytes.
    start: usize,
    /// Numbers of its last item.
    item: u32,
    is_bad: bool,
}

impl ListRows<'_> {
    /// Ends an item of a list: all have the length of the first.
    fn end_item(&mut self) {
        let length = std::mem::take(&mut self.list.item);
        if length > 0 && self.chunk.lists.is_some_and(|lists| lists.depth > 1) {
            let like = *self.inner.get_or_insert(length);
            self.list.is_bad |= length != like;
        }
    }

    /// Begins the list of the next row at `start`, where the one before it ends.
    fn begin_row(&mut self, start: usize, table: &mut [u8]) -> Result<()> {
        if self.row == self.chunk.rows as usize {
            return Err(damaged(format!("more lists than the {} rows in the footer", self.chunk.rows)));
        }
        self.end_row(start, table)?;
        self.row += 1;
        self.list.start = start;
        Ok(())
    }

    /// Ends the list that has begun, if one has, at `end`.
    fn end_row(&mut self, end: usize, table: &mut [u8]) -> Result<()> {
        self.end_item();
        let Some(row) = self.row.checked_sub(1) else { return Ok(()) };
        let Begun { start, is_bad, .. } = std::mem::take(&mut self.list);
        let place = match (is_bad, end.checked_sub(start).and_then(|length| u32::try_from(length).ok())) {
            (true, _) => Some(NULL),
            (false, length) => length.and_then(|length| place(start, length)),
        };
        let place = place.ok_or_else(|| damaged("a list beyond 4 GiB"))?;
        table[row * 8..row * 8 + 8].copy_from_slice(&place.to_ne_bytes());
        Ok(())
    }
}

impl<'a> Column<'a> {
    /// An empty column; its pages are decompressed from `packed` bytes.
    fn new(chunk: &'a Chunk, packed: usize) -> Result<Self> {
        let is_bytes = chunk.physical == Physical::Bytes;
        // Reserved exactly and at once, because a growing buffer takes twice as much. Only zstd compresses more than
        // this ratio, and no usual data that much.
        let pages = if is_bytes { (chunk.unpacked as usize).min(packed.saturating_mul(MOST_RATIO)) } else { 0 };
        let mut out = Vec::new();
        let most = chunk.table() + chunk.items() + pages;
        out.try_reserve_exact(most).map_err(|_| no_memory(most))?;
        // No row has a value yet.
        out.resize(chunk.before_pages(), if is_bytes { 0xff } else { 0 });
        let inner = chunk.lists.and_then(|lists| lists.inner);
        let lists = ListRows { chunk, row: 0, items: 0, list: Begun::default(), inner };
        let (dictionary, page) = (Dictionary::None, Vec::new());
        Ok(Self { chunk, out, row: 0, seen: 0, lists, unpacked: 0, dictionary, page })
    }

    /// The decoded column, after its last page.
    fn finish(mut self) -> Result<Vec<u8>> {
        if self.chunk.lists.is_some() {
            let end = if self.chunk.physical == Physical::Bytes { self.lists.items } else { self.out.len() };
            self.lists.end_row(end, &mut self.out)?;
            let row = self.lists.row;
            if row != self.chunk.rows as usize {
                return Err(damaged(format!("{row} lists, but {} rows in the footer", self.chunk.rows)));
            }
        }
        Ok(self.out)
    }

    fn page(&mut self, header: &PageHeader, body: &[u8]) -> Result<()> {
        self.unpacked += u64::from(header.unpacked);
        if self.unpacked > u64::from(self.chunk.unpacked) {
            let what = format!("its pages have more than the {} bytes in the footer", self.chunk.unpacked);
            return Err(damaged(what));
        }
        let left = self.chunk.values - self.seen;
        if header.kind != PageKind::Dictionary && header.values > left {
            return Err(damaged(format!("a page of {} values, but only {left} are left", header.values)));
        }
        let (levels, body, codec) = match header.kind {
            PageKind::Other => return Ok(()),
            PageKind::DataV2 { repetition, definition, compressed } => {
                let (from, to) = (repetition as usize, repetition as usize + definition as usize);
                let levels = body.get(from..to).ok_or_else(|| damaged("the levels of a page are truncated"))?;
                let levels = Levels { repetition: &body[..from], definition: levels };
                (Some(levels), &body[to..], if compressed { self.chunk.codec } else { Codec::None })
            }
            PageKind::Data | PageKind::Dictionary => (None, body, self.chunk.codec),
        };
        let outside = match header.kind {
            PageKind::DataV2 { repetition, definition, .. } => u64::from(repetition) + u64::from(definition),
            _ => 0,
        };
        let length = u64::from(header.unpacked).checked_sub(outside);
        let length = length.ok_or_else(|| damaged("a page is shorter than its levels"))? as usize;
        // Bytes stay where they were decompressed.
        let table = if self.chunk.physical == Physical::Bytes { self.out.len() } else { 0 };
        if self.chunk.physical == Physical::Bytes {
            unpack(codec, body, length, &mut self.out)?;
        } else {
            self.page.clear();
            unpack(codec, body, length, &mut self.page)?;
        }
        if header.kind == PageKind::Dictionary {
            return self.keep_dictionary(header, table);
        }
        self.seen += header.values;
        match self.chunk.lists {
            None => self.values(header, levels, table),
            Some(lists) if self.chunk.physical == Physical::Bytes => self.lists_of_bytes(lists, header, levels, table),
            Some(lists) => self.lists(lists, header, levels),
        }
    }

    /// Adds the values of a page of lists.
    fn lists(&mut self, lists: Lists, header: &PageHeader, levels: Option<Levels<'_>>) -> Result<()> {
        let page = std::mem::take(&mut self.page);
        let cut = || damaged("the levels of a page are truncated");
        let mut rest = &page[..];
        let levels = match levels {
            Some(levels) => levels,
            None => Levels { repetition: levels_of(header, &mut rest)?, definition: levels_of(header, &mut rest)? },
        };
        let width = |most: u8| u32::BITS - u32::from(most).leading_zeros();
        let mut repetitions = Hybrid::new(levels.repetition, width(lists.depth));
        let mut definitions = Hybrid::new(levels.definition, width(self.chunk.defined));
        let (physical, size) = (self.chunk.physical, self.chunk.physical.size());
        let mut values = Values::new((header.encoding, header.values), physical, rest, 0)?;
        let most = u32::from(self.chunk.defined);
        let (mut repeated, mut defined) = ([0; BLOCK], [0; BLOCK]);
        let mut left = header.values as usize;
        while left > 0 {
            let count = left.min(BLOCK);
            left -= count;
            let (repeated, defined) = (&mut repeated[..count], &mut defined[..count]);
            repetitions.fill(repeated).ok_or_else(cut)?;
            definitions.fill(defined).ok_or_else(cut)?;
            if self.lists.row == 0 && repeated[0] > 0 {
                return Err(damaged("a column that begins within a list"));
            }
            let beyond = |levels: &[u32], most: u32| levels.iter().any(|level| *level > most);
            if beyond(repeated, lists.depth.into()) || beyond(defined, most) {
                return Err(damaged("levels that the schema does not have"));
            }
            let start = self.out.len();
            let missing =
                |row: usize| damaged(format!("row {row} of the group has a value beyond its page or its dictionary"));
            // A missing number has no value in the page.
            let there = defined.iter().filter(|level| **level == most).count();
            values.append(there, size, &self.dictionary, &mut self.out).ok_or_else(|| missing(self.lists.row))?;
            if lists.depth == 1 && there == count {
                // Almost all blocks of most files: only the beginnings of lists count.
                for (at, _) in repeated.iter().enumerate().filter(|(_, level)| **level == 0) {
                    self.lists.begin_row(start + at * size, &mut self.out)?;
                }
                continue;
            }
            let mut end = start;
            for (repeated, defined) in repeated.iter().zip(defined) {
                if *repeated == 0 {
                    self.lists.begin_row(end, &mut self.out)?;
                }
                if *repeated < lists.depth.into() {
                    self.lists.end_item();
                }
                let list = &mut self.lists.list;
                if *defined == most {
                    list.item = list.item.saturating_add(1);
                    end += size;
                } else if *defined >= lists.item.into() {
                    // A number that is missing, or an item without numbers.
                    list.is_bad = true;
                }
            }
        }
        self.page = page;
        Ok(())
    }

    /// Adds the values of a page of lists of bytes, which `out` holds from `from` on.
    fn lists_of_bytes(
        &mut self,
        lists: Lists,
        header: &PageHeader,
        levels: Option<Levels<'_>>,
        from: usize,
    ) -> Result<()> {
        let before = self.chunk.before_pages();
        let (tables, pages) = self.out.split_at_mut(before);
        let (table, places) = tables.split_at_mut(self.chunk.table());
        let page = &pages[from - before..];
        let cut = || damaged("the levels of a page are truncated");
        let mut rest = page;
        let levels = match levels {
            Some(levels) => levels,
            None => Levels { repetition: levels_of(header, &mut rest)?, definition: levels_of(header, &mut rest)? },
        };
        let most = u32::from(self.chunk.defined);
        let mut repetitions = Hybrid::new(levels.repetition, 1);
        let mut definitions = Hybrid::new(levels.definition, u32::BITS - most.leading_zeros());
        let from = from + page.len() - rest.len();
        let mut values = Values::new((header.encoding, header.values), Physical::Bytes, rest, from)?;
        for _ in 0..header.values {
            let (repeated, defined) = repetitions.next().zip(definitions.next()).ok_or_else(cut)?;
            if repeated > lists.depth.into() || defined > most {
                return Err(damaged("levels that the schema does not have"));
            }
            if repeated == 0 {
                self.lists.begin_row(self.lists.items, table)?;
            } else if self.lists.row == 0 {
                return Err(damaged("a column that begins within a list"));
            }
            if defined < most {
                // An item that is missing, unless the list is empty.
                self.lists.list.is_bad |= defined >= lists.item.into();
                continue;
            }
            let value = match &mut values {
                Values::Places(runs) => runs.next().and_then(|at| self.dictionary.get(at as usize, 8, before, pages)),
                others => others.next(),
            };
            let beyond = || damaged(format!("row {} of the group has a value beyond its page", self.lists.row - 1));
            let place = places.get_mut(self.lists.items * 8..self.lists.items * 8 + 8).ok_or_else(cut)?;
            place.copy_from_slice(&value.ok_or_else(beyond)?.to_ne_bytes());
            self.lists.items += 1;
        }
        Ok(())
    }

    /// `from` is the position of the page in `out`.
    fn keep_dictionary(&mut self, header: &PageHeader, from: usize) -> Result<()> {
        let first = matches!(self.dictionary, Dictionary::None) && self.seen == 0;
        if !matches!(header.encoding, PLAIN | PLAIN_DICTIONARY) || !first {
            return Err(damaged("a dictionary that is not plain, or not the first page"));
        }
        let count = header.values as usize;
        let cut = || damaged(format!("a dictionary of {count} values is truncated"));
        if self.chunk.physical != Physical::Bytes {
            let length = count.saturating_mul(self.chunk.physical.size());
            if length > self.page.len() {
                return Err(cut());
            }
            self.page.truncate(length);
            self.dictionary = Dictionary::Numbers(std::mem::take(&mut self.page));
            return Ok(());
        }
        // The length of each value takes 4 bytes.
        if count.saturating_mul(4) > self.out.len() - from {
            return Err(cut());
        }
        if count as u64 * 4 > self.chunk.places() {
            let what = format!("a dictionary of {count} values for {} rows", self.chunk.rows);
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_hint("write the column without a dictionary, or the file with larger row groups"));
        }
        let mut places = Vec::new();
        let mut at = from + 4;
        places.try_reserve_exact(count).map_err(|_| no_memory(count * 4))?;
        for _ in 0..count {
            // Columns are smaller than 4 GiB.
            places.push(at as u32);
            at = plain_bytes(&self.out, at).ok_or_else(cut)?.end + 4;
        }
        self.dictionary = Dictionary::Places(places);
        Ok(())
    }

    /// `from` is the position of the page in `out`.
    fn values(&mut self, header: &PageHeader, levels: Option<Levels<'_>>, from: usize) -> Result<()> {
        let (rows, count) = (self.chunk.rows as usize, header.values as usize);
        let is_bytes = self.chunk.physical == Physical::Bytes;
        let table = if is_bytes { rows * 8 } else { self.out.len() };
        let (places, pages) = self.out.split_at_mut(table);
        let page = if is_bytes { &pages[from - table..] } else { &self.page[..] };
        let (levels, page, from) = match (levels, self.chunk.defined) {
            (_, 0) => (None, page, from),
            (Some(levels), _) => (Some(levels.definition), page, from),
            (None, _) => {
                let mut rest = page;
                let levels = levels_of(header, &mut rest)?;
                (Some(levels), rest, from + page.len() - rest.len())
            }
        };
        let defined = u32::from(self.chunk.defined);
        let mut levels = levels.map(|levels| Hybrid::new(levels, u32::BITS - defined.leading_zeros()));
        let mut values = Values::new((header.encoding, header.values), self.chunk.physical, page, from)?;
        let size = self.chunk.physical.size();
        for row in self.row..self.row + count {
            let level = match &mut levels {
                Some(levels) => levels.next().ok_or_else(|| damaged("the levels of a page are truncated"))?,
                None => defined,
            };
            if level > defined {
                return Err(damaged(format!("a level of {level}, but at most {defined} by the schema")));
            }
            if level < defined {
                continue;
            }
            let value = match &mut values {
                Values::Places(runs) => runs.next().and_then(|at| self.dictionary.get(at as usize, size, table, pages)),
                others => others.next(),
            };
            let value = value.ok_or_else(|| {
                damaged(format!("row {row} of the group has a value beyond its page or its dictionary"))
            })?;
            if is_bytes {
                places[row * 8..row * 8 + 8].copy_from_slice(&value.to_ne_bytes());
                continue;
            }
            places[row] = 1;
            let at = rows + row * size;
            match size {
                // Booleans are 1 or 0, whatever a dictionary holds.
                1 => places[at] = u8::from(value != 0),
                2 => places[at..at + 2].copy_from_slice(&(value as u16).to_ne_bytes()),
                4 => places[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes()),
                _ => places[at..at + 8].copy_from_slice(&value.to_ne_bytes()),
            }
        }
        self.row += count;
        Ok(())
    }
}

/// The levels of a page.
struct Levels<'a> {
    repetition: &'a [u8],
    definition: &'a [u8],
}

/// Takes levels with their length before them from the start of a page of version 1.
fn levels_of<'a>(header: &PageHeader, page: &mut &'a [u8]) -> Result<&'a [u8]> {
    if header.levels != RLE {
        let what = format!("levels are encoded as {}", name_of(header.levels));
        return Err(Error::new(ErrorKind::Unsupported, what).with_hint("write the file with a newer writer"));
    }
    let (length, rest) = page.split_first_chunk::<4>().ok_or_else(|| damaged("a page without levels"))?;
    let levels = rest.split_at_checked(u32::from_le_bytes(*length) as usize);
    let (levels, rest) = levels.ok_or_else(|| damaged("the levels of a page are truncated"))?;
    *page = rest;
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A page with its header: kind, sizes, number of values and encoding.
    fn page(kind: u8, unpacked: usize, values: u8, encoding: u8, body: &[u8]) -> Vec<u8> {
        let int = |value: usize| [(value << 1) as u8 | 0x80, (value >> 6) as u8];
        let (unpacked, packed) = (int(unpacked), int(body.len()));
        let head = [0x15, kind << 1, 0x15, unpacked[0], unpacked[1], 0x15, packed[0], packed[1]];
        // Fields 5 of a data page, 7 of a dictionary.
        let about = [if kind == 0 { 0x2c } else { 0x4c }, 0x15, values << 1, 0x15, encoding << 1, 0, 0];
        [&head[..], &about, body].concat()
    }

    #[test]
    fn a_column_takes_what_was_promised_and_no_more() {
        let value = |length: usize| [&(length as u32).to_le_bytes()[..], &vec![7; length]].concat();
        let gzip = |bytes: &[u8]| {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, bytes).unwrap();
            encoder.finish().unwrap()
        };
        let (first, second) = ([value(900), value(0)].concat(), value(2000));
        let pages = [page(0, first.len(), 2, 0, &gzip(&first)), page(0, second.len(), 1, 0, &gzip(&second))].concat();
        let unpacked = (first.len() + second.len() + 30) as u32;
        let chunk = Chunk {
            physical: Physical::Bytes,
            codec: Codec::Gzip,
            rows: 3,
            values: 3,
            lists: None,
            defined: 0,
            unpacked,
        };
        let out = decode(&chunk, &pages, 0).unwrap();
        assert_eq!(out.capacity(), chunk.table() + unpacked as usize, "grown");
        assert!(out.capacity() as u64 <= chunk.decoded());
        let lengths = [0, 1, 2].map(|row| bytes_of(&out, row).unwrap().unwrap().len());
        assert_eq!(lengths, [900, 0, 2000]);
        // A footer that promises too little.
        let chunk = Chunk { unpacked: 2000, ..chunk };
        assert!(decode(&chunk, &pages, 0).unwrap_err().to_string().contains("more than the 2000 bytes"));
    }

    #[test]
    fn values_of_a_dictionary_lie_there_once() {
        let words = [&[3, 0, 0, 0][..], b"cat", &[0, 0, 0, 0], &[2, 0, 0, 0], b"ox", &[1, 0, 0, 0], b"?"].concat();
        // Width 2; a run of five 2s; eight packed: 0 1 2 3 0 1 2 3.
        let places = [2, 10, 2, 3, 0b1110_0100, 0b1110_0100];
        let pages = [page(2, words.len(), 4, 0, &words), page(0, places.len(), 13, 8, &places)].concat();
        let chunk = Chunk {
            physical: Physical::Bytes,
            codec: Codec::None,
            rows: 13,
            values: 13,
            lists: None,
            defined: 0,
            unpacked: 80,
        };
        let out = decode(&chunk, &pages, 0).unwrap();
        let all: Vec<&[u8]> = (0..13).map(|row| &out[bytes_of(&out, row).unwrap().unwrap()]).collect();
        let [cat, none, ox, what] = [&b"cat"[..], b"", b"ox", b"?"];
        assert_eq!(all, [ox, ox, ox, ox, ox, cat, none, ox, what, cat, none, ox, what]);
        assert_eq!(bytes_of(&out, 0).unwrap(), bytes_of(&out, 11).unwrap());
        let error = |pages: &[Vec<u8>]| decode(&chunk, &pages.concat(), 0).unwrap_err().to_string();
        let (dictionary, values) = (page(2, words.len(), 4, 0, &words), page(0, places.len(), 13, 8, &places));
        assert!(error(std::slice::from_ref(&values)).contains("row 0 of the group has a value beyond"));
        assert!(error(&[dictionary.clone(), dictionary.clone()]).contains("not the first page"));
        assert!(error(&[page(2, words.len(), 3, 0, &words), values.clone()]).contains("row 8 of the group"));
        // Wider than its two bits.
        let wide = page(0, 3, 13, 8, &[2, 26, 4]);
        assert!(error(&[dictionary, wide]).contains("row 0 of the group has a value beyond"));
        // As numbers: 7 and 9.
        let numbers = [7i32.to_le_bytes(), 9i32.to_le_bytes()].concat();
        let places = [1, 3, 0b10];
        let pages = [page(2, 8, 2, 0, &numbers), page(0, 3, 3, 8, &places)].concat();
        let chunk = Chunk {
            physical: Physical::I32,
            codec: Codec::None,
            rows: 3,
            values: 3,
            lists: None,
            defined: 0,
            unpacked: 60,
        };
        let out = decode(&chunk, &pages, 0).unwrap();
        let all: Vec<&[u8]> = (0..3).map(|row| &out[number_of(&out, row, &chunk).unwrap().unwrap()]).collect();
        assert_eq!(all, [7i32, 9, 7].map(i32::to_ne_bytes));
    }

    proptest! {
        #[test]
        fn any_bytes_give_values_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..7, encoding in 0u32..10,
            defined in 0u8..3, rows in 0u32..50, values in 0u32..60, packed in 0u32..250,
        ) {
            use Physical::{Bool, Bytes, F16, F32, F64, I32, I64};
            let physical = [Bool, Bytes, F16, F32, F64, I32, I64][kind];
            let lists = (0..3).map(|depth| {
                (depth > 0).then_some(Lists { depth, item: depth, inner: Some(1).filter(|_| depth == 1 || rows > 9) })
            });
            for (codec, lists) in [Codec::None, Codec::Snappy, Codec::Gzip, Codec::Lz4, Codec::Zstd].into_iter().flat_map(|codec| {
                lists.clone().map(move |lists| (codec, lists))
            }) {
                if lists.is_some_and(|lists| lists.depth > 1) && physical == Bytes {
                    continue;
                }
                let chunk = Chunk { physical, codec, rows, values: rows, lists, defined, unpacked: 300 };
                let _ = decode(&chunk, &bytes, 0);
                for kind in [PageKind::Data, PageKind::Dictionary, PageKind::DataV2 { repetition: 0, definition: 3, compressed: true }] {
                    let header = PageHeader { kind, packed, unpacked: packed, values, encoding, levels: RLE };
                    let mut column = Column::new(&chunk, bytes.len()).unwrap();
                    let _ = column.page(&header, &bytes);
                    if column.page(&header, &bytes).is_ok() && physical == Bytes {
                        for row in 0..column.row {
                            bytes_of(&column.out, row).unwrap();
                        }
                        for row in 0..column.lists.row.saturating_sub(1) {
                            for item in items_of(&column.out, row, &chunk).unwrap().into_iter().flatten() {
                                item.unwrap();
                            }
                        }
                    }
                }
            }
        }
    }
}
