//! From the pages of a column chunk to a table of its values.
//!
//! Own code, because a page's header may lie: nothing is set aside or unpacked beyond what the footer said, and that was
//! compared with the loader's memory. Bytes stay where they were unpacked; the table tells where.
//!
//! | column | decoded |
//! |---|---|
//! | bytes | for each row `u64`: place, and length above it (`NULL`: none); then the pages |
//! | numbers | for each row a byte, 1 where there is a value; then the values in the machine's order |

use std::io::Read;

use super::{
    damaged,
    thrift::{PageHeader, PageKind, page_header, unzigzag, varint},
};
use crate::error::{Error, ErrorKind, Result};

/// Encodings by their numbers in the format.
const PLAIN: u32 = 0;
const PLAIN_DICTIONARY: u32 = 2;
pub(super) const RLE: u32 = 3;
const DELTA_BINARY_PACKED: u32 = 5;
const DELTA_LENGTH: u32 = 6;
const RLE_DICTIONARY: u32 = 8;
const BYTE_STREAM_SPLIT: u32 = 9;

/// A row of bytes without a value.
const NULL: u64 = u64::MAX;

/// Type of the values as they are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Physical {
    Bool,
    I32,
    I64,
    F32,
    F64,
    Bytes,
}

impl Physical {
    /// Bytes of a decoded value; of bytes, of its place.
    pub(super) const fn size(self) -> usize {
        match self {
            Self::Bool => 1,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 | Self::Bytes => 8,
        }
    }
}

/// How pages are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Snappy,
    Gzip,
    Lz4,
    Zstd,
}

/// What the footer tells of a column chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) physical: Physical,
    pub(super) codec: Codec,
    pub(super) rows: u32,
    /// Level of a value that is there; 0 where all are.
    pub(super) defined: u8,
    /// Bytes of all pages and their headers, unpacked.
    pub(super) unpacked: u32,
}

impl Chunk {
    /// The most bytes of the decoded column, what is needed to make it included.
    pub(super) fn decoded(&self) -> u64 {
        // The values of a dictionary, no more than rows, are known by place too; and a page of numbers is unpacked.
        let each = match self.physical {
            Physical::Bytes => 16,
            other => 9 + other.size() as u64,
        };
        u64::from(self.rows) * each + u64::from(self.unpacked)
    }
}

/// The value of a row of bytes in a decoded column.
pub(super) fn bytes_of(decoded: &[u8], row: usize) -> Result<Option<std::ops::Range<usize>>> {
    let place = row.checked_mul(8).and_then(|at| decoded.get(at..)?.first_chunk::<8>());
    let place = u64::from_ne_bytes(*place.ok_or_else(|| damaged("the decoded column is cut"))?);
    if place == NULL {
        return Ok(None);
    }
    let (start, length) = (place as u32 as usize, (place >> 32) as usize);
    let range = start..start.saturating_add(length);
    if range.end > decoded.len() { Err(damaged("the decoded column is cut")) } else { Ok(Some(range)) }
}

/// The value of a row of numbers in a decoded column of so many rows.
pub(super) fn number_of(decoded: &[u8], row: usize, chunk: &Chunk) -> Result<Option<std::ops::Range<usize>>> {
    let size = chunk.physical.size();
    let start = chunk.rows as usize + row * size;
    match (decoded.get(row), start + size <= decoded.len()) {
        (Some(0), _) => Ok(None),
        (Some(_), true) => Ok(Some(start..start + size)),
        _ => Err(damaged("the decoded column is cut")),
    }
}

/// Decodes all pages of a chunk, which lies at `base` in its file.
pub(super) fn decode(chunk: &Chunk, bytes: &[u8], base: u64) -> Result<Vec<u8>> {
    let mut column = Column::new(chunk)?;
    let mut at = 0;
    while column.row < chunk.rows as usize {
        let rest = &bytes[at.min(bytes.len())..];
        let row = column.row;
        let near = |e: Error, length: usize| e.at_range(base + at as u64..base + (at + length) as u64);
        let (header, length) = page_header(rest)
            .ok_or_else(|| near(damaged(format!("no page header before row {row} of the group")), rest.len()))?;
        let end = length + header.packed as usize;
        let body = rest.get(length..end);
        let body =
            body.ok_or_else(|| near(damaged(format!("the page of row {row} of the group is cut")), rest.len()))?;
        column.page(&header, body).map_err(|e| near(e, end))?;
        at += end;
    }
    Ok(column.out)
}

/// The first value of a column of bytes, out of the first page of a chunk.
pub(super) fn first_value(chunk: &Chunk, header: &PageHeader, body: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut column = Column::new(chunk)?;
    column.page(header, body)?;
    if let Some((start, length)) = column.dictionary.first().map(|place| (*place as u32, *place >> 32)) {
        return Ok(Some(column.out[start as usize..start as usize + length as usize].to_vec()));
    }
    for row in 0..column.row {
        if let Some(place) = bytes_of(&column.out, row)? {
            return Ok(Some(column.out[place].to_vec()));
        }
    }
    Ok(None)
}

/// A column that is being decoded.
struct Column<'a> {
    chunk: &'a Chunk,
    out: Vec<u8>,
    /// Rows that are done.
    row: usize,
    /// Bytes that were unpacked.
    unpacked: u64,
    /// Places of bytes, or the bits of numbers.
    dictionary: Vec<u64>,
    /// A page of numbers.
    page: Vec<u8>,
}

impl<'a> Column<'a> {
    fn new(chunk: &'a Chunk) -> Result<Self> {
        let rows = chunk.rows as usize;
        let (size, fill) = match chunk.physical {
            Physical::Bytes => (rows * 8, 0xff),
            other => (rows * (1 + other.size()), 0),
        };
        let mut out = Vec::new();
        let none = |_| Error::new(ErrorKind::OutOfMemory, format!("no memory for a row group of {rows} rows"));
        out.try_reserve_exact(size).map_err(none)?;
        out.resize(size, fill);
        Ok(Self { chunk, out, row: 0, unpacked: 0, dictionary: Vec::new(), page: Vec::new() })
    }

    fn page(&mut self, header: &PageHeader, body: &[u8]) -> Result<()> {
        self.unpacked += u64::from(header.unpacked);
        if self.unpacked > u64::from(self.chunk.unpacked) {
            let what = format!("its pages have more than the {} bytes that the footer says", self.chunk.unpacked);
            return Err(damaged(what));
        }
        let left = self.chunk.rows as usize - self.row;
        if header.values as usize > left {
            return Err(damaged(format!("a page of {} values where {left} rows are left", header.values)));
        }
        let (levels, body, codec) = match header.kind {
            PageKind::Other => return Ok(()),
            PageKind::DataV2 { repetition, definition, compressed } => {
                let (from, to) = (repetition as usize, repetition as usize + definition as usize);
                let levels = body.get(from..to).ok_or_else(|| damaged("the levels of a page are cut"))?;
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
        // Bytes stay where they are unpacked.
        let table = if self.chunk.physical == Physical::Bytes { self.out.len() } else { 0 };
        if self.chunk.physical == Physical::Bytes {
            unpack(codec, body, length, &mut self.out)?;
        } else {
            self.page.clear();
            unpack(codec, body, length, &mut self.page)?;
        }
        if header.kind == PageKind::Dictionary {
            self.keep_dictionary(header, table)
        } else {
            self.values(header, levels, table)
        }
    }

    /// `from`: where the page begins in `out`.
    fn keep_dictionary(&mut self, header: &PageHeader, from: usize) -> Result<()> {
        if !matches!(header.encoding, PLAIN | PLAIN_DICTIONARY) || !self.dictionary.is_empty() || self.row > 0 {
            return Err(damaged("a dictionary that is not plain, or not the first page"));
        }
        let page = if self.chunk.physical == Physical::Bytes { &self.out[from..] } else { &self.page[..] };
        let mut values = Values::new((PLAIN, header.values), self.chunk.physical, page, from, &[])?;
        let all = (0..header.values).map(|_| values.next()).collect::<Option<Vec<u64>>>();
        self.dictionary = all.ok_or_else(|| damaged("the dictionary is cut"))?;
        Ok(())
    }

    /// `from`: where the page begins in `out`.
    fn values(&mut self, header: &PageHeader, levels: Option<&[u8]>, from: usize) -> Result<()> {
        let (rows, count) = (self.chunk.rows as usize, header.values as usize);
        let is_bytes = self.chunk.physical == Physical::Bytes;
        let table = if is_bytes { rows * 8 } else { self.out.len() };
        let (places, pages) = self.out.split_at_mut(table);
        let page = if is_bytes { &pages[from - table..] } else { &self.page[..] };
        let (levels, page, from) = match (levels, self.chunk.defined) {
            (_, 0) => (None, page, from),
            (Some(levels), _) => (Some(levels), page, from),
            (None, _) => {
                if header.levels != RLE {
                    let what = format!("levels are encoded as {}", name_of(header.levels));
                    return Err(Error::new(ErrorKind::Unsupported, what).hint("write the file with a newer writer"));
                }
                let (length, rest) = page.split_first_chunk::<4>().ok_or_else(|| damaged("a page without levels"))?;
                let length = u32::from_le_bytes(*length) as usize;
                let levels = rest.get(..length).ok_or_else(|| damaged("the levels of a page are cut"))?;
                (Some(levels), &rest[length..], from + 4 + length)
            }
        };
        let defined = u32::from(self.chunk.defined);
        let mut levels = levels.map(|levels| Hybrid::new(levels, u32::BITS - defined.leading_zeros()));
        let mut values =
            Values::new((header.encoding, header.values), self.chunk.physical, page, from, &self.dictionary)?;
        let size = self.chunk.physical.size();
        for row in self.row..self.row + count {
            let level = match &mut levels {
                Some(levels) => levels.next().ok_or_else(|| damaged("the levels of a page are cut"))?,
                None => defined,
            };
            if level > defined {
                return Err(damaged(format!("a level of {level}, the schema has {defined}")));
            }
            if level < defined {
                continue;
            }
            let value = values.next().ok_or_else(|| {
                let what = format!("row {row} of the group has a value beyond its page or its dictionary");
                damaged(what)
            })?;
            if is_bytes {
                places[row * 8..row * 8 + 8].copy_from_slice(&value.to_ne_bytes());
                continue;
            }
            places[row] = 1;
            let at = rows + row * size;
            match size {
                1 => places[at] = value as u8,
                4 => places[at..at + 4].copy_from_slice(&(value as u32).to_ne_bytes()),
                _ => places[at..at + 8].copy_from_slice(&value.to_ne_bytes()),
            }
        }
        self.row += count;
        Ok(())
    }
}

/// Values of a page, one after another: bits of numbers, places of bytes.
enum Values<'a> {
    Numbers { bytes: &'a [u8], size: usize },
    Split { bytes: &'a [u8], size: usize, at: usize },
    Bits { bytes: &'a [u8], at: usize },
    Runs(Hybrid<'a>),
    Delta(Delta<'a>),
    Bytes { page: &'a [u8], at: usize, from: usize },
    Lengths { lengths: Delta<'a>, at: usize, end: usize },
    Dictionary { places: Hybrid<'a>, dictionary: &'a [u64] },
}

impl<'a> Values<'a> {
    fn new(
        (encoding, count): (u32, u32),
        physical: Physical,
        page: &'a [u8],
        from: usize,
        dictionary: &'a [u64],
    ) -> Result<Self> {
        let size = physical.size();
        let whole = matches!(physical, Physical::I32 | Physical::I64);
        Ok(match (encoding, physical) {
            (PLAIN, Physical::Bytes) => Self::Bytes { page, at: 0, from },
            (PLAIN, Physical::Bool) => Self::Bits { bytes: page, at: 0 },
            (PLAIN, _) => Self::Numbers { bytes: page, size },
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => {
                // A page without values may be without a width.
                let (width, places) = page.split_first().map_or((0, page), |(width, places)| (*width, places));
                if width > 32 {
                    return Err(damaged(format!("places in a dictionary of {width} bits")));
                }
                Self::Dictionary { places: Hybrid::new(places, width.into()), dictionary }
            }
            (RLE, Physical::Bool) => {
                let runs =
                    page.split_first_chunk::<4>().and_then(|(n, rest)| rest.get(..u32::from_le_bytes(*n) as usize));
                Self::Runs(Hybrid::new(runs.ok_or_else(|| damaged("the runs of a page are cut"))?, 1))
            }
            (DELTA_BINARY_PACKED, _) if whole => {
                Self::Delta(Delta::new(page).ok_or_else(|| damaged("a page of deltas without a sound header"))?)
            }
            (DELTA_LENGTH, Physical::Bytes) => {
                let lengths = Delta::new(page).ok_or_else(|| damaged("a page of lengths without a sound header"))?;
                if lengths.left > count.into() {
                    return Err(damaged(format!("{} lengths in a page of {count} values", lengths.left)));
                }
                let mut walk = lengths.clone();
                while walk.left > 0 {
                    walk.next().ok_or_else(|| damaged("the lengths of a page are cut"))?;
                }
                let at = page.len() - walk.rest().len();
                Self::Lengths { lengths, at: from + at, end: from + page.len() }
            }
            (BYTE_STREAM_SPLIT, _) if !matches!(physical, Physical::Bool | Physical::Bytes) => {
                Self::Split { bytes: page, size, at: 0 }
            }
            _ => {
                let what = format!("values are encoded as {}", name_of(encoding));
                return Err(Error::new(ErrorKind::Unsupported, what)
                    .hint("leave the column out with columns(…), or write it plain or with a dictionary"));
            }
        })
    }

    fn next(&mut self) -> Option<u64> {
        match self {
            Self::Numbers { bytes, size } => {
                let (value, rest) = bytes.split_at_checked(*size)?;
                *bytes = rest;
                let mut whole = [0; 8];
                whole[..*size].copy_from_slice(value);
                Some(u64::from_le_bytes(whole))
            }
            Self::Split { bytes, size, at } => {
                let count = bytes.len() / *size;
                (*at < count).then_some(())?;
                let mut whole = [0; 8];
                (0..*size).for_each(|byte| whole[byte] = bytes[byte * count + *at]);
                *at += 1;
                Some(u64::from_le_bytes(whole))
            }
            Self::Bits { bytes, at } => {
                let byte = bytes.get(*at / 8)?;
                let bit = byte >> (*at % 8) & 1;
                *at += 1;
                Some(bit.into())
            }
            Self::Runs(runs) => runs.next().map(u64::from),
            Self::Delta(delta) => delta.next().map(|value| value as u64),
            Self::Bytes { page, at, from } => {
                let (length, rest) = page.get(*at..)?.split_first_chunk::<4>()?;
                let length = u32::from_le_bytes(*length);
                (length as usize <= rest.len()).then_some(())?;
                let place = place(*from + *at + 4, length);
                *at += 4 + length as usize;
                place
            }
            Self::Lengths { lengths, at, end } => {
                let length = u32::try_from(lengths.next()?).ok()?;
                (length as usize <= *end - *at).then_some(())?;
                let place = place(*at, length);
                *at += length as usize;
                place
            }
            Self::Dictionary { places, dictionary } => dictionary.get(places.next()? as usize).copied(),
        }
    }
}

/// Place and length in one. Columns end below 4 GiB, so no value is `NULL`.
fn place(start: usize, length: u32) -> Option<u64> {
    Some(u64::from(u32::try_from(start).ok()?) | u64::from(length) << 32)
}

fn name_of(encoding: u32) -> &'static str {
    match encoding {
        PLAIN => "PLAIN",
        PLAIN_DICTIONARY => "PLAIN_DICTIONARY",
        RLE => "RLE",
        4 => "BIT_PACKED",
        DELTA_BINARY_PACKED => "DELTA_BINARY_PACKED",
        DELTA_LENGTH => "DELTA_LENGTH_BYTE_ARRAY",
        7 => "DELTA_BYTE_ARRAY",
        RLE_DICTIONARY => "RLE_DICTIONARY",
        BYTE_STREAM_SPLIT => "BYTE_STREAM_SPLIT",
        _ => "what this version does not know",
    }
}

/// Number of `width` bits (64 at most) at some place among packed ones.
fn packed(bytes: &[u8], width: u32, index: usize) -> Option<u64> {
    let bit = index.checked_mul(width as usize)?;
    let (mut value, mut have) = (0u128, 0);
    let mut at = bit / 8;
    while have < width + (bit % 8) as u32 {
        value |= u128::from(*bytes.get(at)?) << have;
        (at, have) = (at + 1, have + 8);
    }
    Some((value >> (bit % 8)) as u64 & mask(width))
}

const fn mask(width: u32) -> u64 {
    if width >= 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Runs of one value, and packed values.
#[derive(Clone)]
struct Hybrid<'a> {
    rest: &'a [u8],
    width: u32,
    left: u64,
    value: u32,
    /// Packed values, and which is next; `None`: a run of `value`.
    packed: Option<(&'a [u8], usize)>,
}

impl<'a> Hybrid<'a> {
    const fn new(bytes: &'a [u8], width: u32) -> Self {
        Self { rest: bytes, width, left: 0, value: 0, packed: None }
    }

    fn next(&mut self) -> Option<u32> {
        while self.left == 0 {
            let (head, length) = varint(self.rest)?;
            self.rest = &self.rest[length..];
            if head & 1 == 1 {
                let bytes = (head >> 1).checked_mul(self.width.into())?;
                self.left = (head >> 1).checked_mul(8)?;
                // Writers may leave out the end of the last group.
                let (now, rest) = self.rest.split_at(self.rest.len().min(usize::try_from(bytes).ok()?));
                (self.packed, self.rest) = (Some((now, 0)), rest);
            } else {
                let (value, rest) = self.rest.split_at_checked(self.width.div_ceil(8) as usize)?;
                let mut whole = [0; 4];
                whole[..value.len()].copy_from_slice(value);
                (self.left, self.packed) = (head >> 1, None);
                (self.value, self.rest) = (u32::from_le_bytes(whole), rest);
            }
        }
        self.left -= 1;
        match &mut self.packed {
            Some((bytes, at)) => {
                *at += 1;
                packed(bytes, self.width, *at - 1).map(|value| value as u32)
            }
            None => Some(self.value),
        }
    }
}

/// Integers as differences, packed in blocks.
#[derive(Clone)]
struct Delta<'a> {
    rest: &'a [u8],
    /// Values of a miniblock, and how many of these a block has.
    mini: usize,
    minis: usize,
    /// Values that are to come.
    left: u64,
    value: i64,
    least: i64,
    /// Widths of the miniblocks that are to come.
    widths: &'a [u8],
    /// The miniblock: its values, their width, the next one.
    now: (&'a [u8], u32, usize),
    first: bool,
}

impl<'a> Delta<'a> {
    fn new(page: &'a [u8]) -> Option<Self> {
        let mut rest = page;
        let mut next = || {
            let (value, length) = varint(rest)?;
            rest = &rest[length..];
            Some(value)
        };
        let (block, minis, left, first) = (next()?, next()?, next()?, next()?);
        // 128 values in 4 miniblocks are usual.
        let sound = (1..=1 << 20).contains(&block) && (1..=block).contains(&minis) && block % minis == 0;
        let (mini, minis) = (block.checked_div(minis)? as usize, minis as usize);
        (sound && mini % 8 == 0).then_some(())?;
        let value = unzigzag(first);
        Some(Self { rest, mini, minis, left, value, least: 0, widths: &[], now: (&[], 0, mini), first: true })
    }

    /// What follows the values.
    const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn next(&mut self) -> Option<i64> {
        self.left = self.left.checked_sub(1)?;
        if std::mem::take(&mut self.first) {
            return Some(self.value);
        }
        if self.now.2 == self.mini {
            if self.widths.is_empty() {
                let (least, length) = varint(self.rest)?;
                let (widths, rest) = self.rest[length..].split_at_checked(self.minis)?;
                (self.least, self.widths, self.rest) = (unzigzag(least), widths, rest);
            }
            let (width, widths) = self.widths.split_first()?;
            (*width <= 64).then_some(())?;
            let bytes = self.mini / 8 * usize::from(*width);
            let (now, rest) = self.rest.split_at(bytes.min(self.rest.len()));
            (self.now, self.widths, self.rest) = ((now, (*width).into(), 0), widths, rest);
        }
        let (bytes, width, at) = self.now;
        self.now.2 += 1;
        let delta = packed(bytes, width, at)? as i64;
        self.value = self.value.wrapping_add(self.least).wrapping_add(delta);
        Some(self.value)
    }
}

/// Puts exactly `length` bytes behind `out`, and sets no more aside than the input can hold.
fn unpack(codec: Codec, input: &[u8], length: usize, out: &mut Vec<u8>) -> Result<()> {
    let start = out.len();
    let wrong = |found: usize| damaged(format!("a page of {found} bytes unpacked, its header says {length}"));
    let failed = |name: &str, e: &dyn std::error::Error| damaged(format!("a page is no sound {name}: {e}"));
    // Of values that are all none.
    if length == 0 && input.is_empty() {
        return Ok(());
    }
    match codec {
        Codec::None => {
            if input.len() != length {
                return Err(wrong(input.len()));
            }
            out.extend_from_slice(input);
        }
        Codec::Snappy => {
            let found = snap::raw::decompress_len(input).map_err(|e| failed("Snappy", &e))?;
            // 3 bytes give 64 at most.
            if found != length || found / 32 > input.len() {
                return Err(wrong(found));
            }
            out.resize(start + length, 0);
            let found = snap::raw::Decoder::new().decompress(input, &mut out[start..]);
            let found = found.map_err(|e| failed("Snappy", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
        Codec::Lz4 => {
            // A byte gives 255 at most.
            if length / 256 > input.len() {
                return Err(wrong(length));
            }
            out.resize(start + length, 0);
            let found = lz4_flex::block::decompress_into(input, &mut out[start..]);
            let found = found.map_err(|e| failed("LZ4", &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
        Codec::Gzip | Codec::Zstd => {
            let name = if codec == Codec::Gzip { "gzip" } else { "zstd" };
            let read = if codec == Codec::Gzip {
                out.reserve(length.min(input.len().saturating_mul(8)));
                flate2::bufread::MultiGzDecoder::new(input).take(length as u64 + 1).read_to_end(out)
            } else {
                let decoder = ruzstd::decoding::StreamingDecoder::new(input).map_err(|e| failed(name, &e))?;
                out.reserve(length.min(input.len().saturating_mul(8)));
                decoder.take(length as u64 + 1).read_to_end(out)
            };
            let found = read.map_err(|e| failed(name, &e))?;
            if found != length {
                return Err(wrong(found));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_codec_gives_back_what_was_packed_and_no_more() {
        let text: Vec<u8> = (0..5000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let gzip = {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            std::io::Write::write_all(&mut encoder, &text).unwrap();
            encoder.finish().unwrap()
        };
        let packed = [
            (Codec::None, text.clone()),
            (Codec::Snappy, snap::raw::Encoder::new().compress_vec(&text).unwrap()),
            (Codec::Lz4, lz4_flex::block::compress(&text)),
            (Codec::Gzip, gzip),
            (Codec::Zstd, ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest)),
        ];
        for (codec, packed) in packed {
            let mut out = vec![9];
            unpack(codec, &packed, text.len(), &mut out).unwrap();
            assert!(out[0] == 9 && out[1..] == text[..], "{codec:?}");
            for length in [0, text.len() - 1, text.len() + 1, usize::MAX >> 8] {
                let mut out = Vec::new();
                assert!(unpack(codec, &packed, length, &mut out).is_err(), "{codec:?} {length}");
                assert!(out.capacity() <= 64 * text.len(), "{codec:?} set {} bytes aside", out.capacity());
            }
            assert!(unpack(codec, &packed[..packed.len() / 2], text.len(), &mut Vec::new()).is_err(), "{codec:?} cut");
        }
    }

    #[test]
    fn runs_and_deltas_are_those_of_the_specification() {
        // A run of three 4s, then eight packed values 0..8 of 3 bits.
        let mut runs = Hybrid::new(&[6, 4, 3, 0x88, 0xc6, 0xfa], 3);
        let all: Vec<u32> = std::iter::from_fn(|| runs.next()).collect();
        assert_eq!(all, [4, 4, 4, 0, 1, 2, 3, 4, 5, 6, 7]);
        // 7, 5, 3, 1, 2, 3, 4, 5 of the specification: blocks of 128 in 4 miniblocks; least -2, deltas 0 0 0 3 3 3 3.
        let bytes = [&[0x80, 1, 4, 8, 14, 3, 2, 0, 0, 0][..], &[0xc0, 0x3f, 0, 0, 0, 0, 0, 0], b"rest"].concat();
        let mut delta = Delta::new(&bytes).unwrap();
        let all: Vec<i64> = std::iter::from_fn(|| delta.next()).collect();
        assert_eq!((all, delta.rest()), (vec![7, 5, 3, 1, 2, 3, 4, 5], &b"rest"[..]));
    }

    proptest! {
        #[test]
        fn any_bytes_give_values_or_an_error(
            bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..6, encoding in 0u32..10,
            defined in 0u8..3, rows in 0u32..50, values in 0u32..60, packed in 0u32..250,
        ) {
            use Physical::{Bool, Bytes, F32, F64, I32, I64};
            let physical = [Bool, Bytes, F32, F64, I32, I64][kind];
            for codec in [Codec::None, Codec::Snappy, Codec::Gzip, Codec::Lz4, Codec::Zstd] {
                let chunk = Chunk { physical, codec, rows, defined, unpacked: 300 };
                let _ = decode(&chunk, &bytes, 0);
                for kind in [PageKind::Data, PageKind::Dictionary, PageKind::DataV2 { repetition: 0, definition: 3, compressed: true }] {
                    let header = PageHeader { kind, packed, unpacked: packed, values, encoding, levels: RLE };
                    let mut column = Column::new(&chunk).unwrap();
                    let _ = column.page(&header, &bytes);
                    if column.page(&header, &bytes).is_ok() && physical == Bytes {
                        for row in 0..column.row {
                            bytes_of(&column.out, row).unwrap();
                        }
                    }
                }
            }
        }
    }
}
