//! Iterates over the values of a page, for each encoding.

use std::ops::Range;

use infeed_core::error::{Error, ErrorKind, Result, setting::COLUMNS};

use super::{
    chunk::Physical,
    wire::{RLE, damaged, unzigzag, varint},
};

/// Encodings by their numbers in the format.
pub(super) const PLAIN: u32 = 0;
pub(super) const PLAIN_DICTIONARY: u32 = 2;
const DELTA_BINARY_PACKED: u32 = 5;
const DELTA_LENGTH: u32 = 6;
const RLE_DICTIONARY: u32 = 8;
const BYTE_STREAM_SPLIT: u32 = 9;

/// The values of a page in order: bits of numbers, positions of bytes.
pub(super) enum Values<'a> {
    Numbers {
        bytes: &'a [u8],
        size: usize,
    },
    Split {
        bytes: &'a [u8],
        size: usize,
        at: usize,
    },
    Bits {
        bytes: &'a [u8],
        at: usize,
    },
    Runs(Hybrid<'a>),
    Delta(Delta<'a>),
    Bytes {
        page: &'a [u8],
        at: usize,
        from: usize,
    },
    Lengths {
        lengths: Delta<'a>,
        at: usize,
        end: usize,
    },
    /// Positions in the dictionary.
    Places(Hybrid<'a>),
}

impl<'a> Values<'a> {
    /// `from` is the position of the page in the decoded column.
    pub(super) fn new((encoding, count): (u32, u32), physical: Physical, page: &'a [u8], from: usize) -> Result<Self> {
        let size = physical.size();
        // For a page without values, only some writers write a header.
        let encoding = if page.is_empty() { PLAIN } else { encoding };
        let whole = matches!(physical, Physical::I32 | Physical::I64);
        Ok(match (encoding, physical) {
            (PLAIN, Physical::Bytes) => Self::Bytes { page, at: 0, from },
            (PLAIN, Physical::Bool) => Self::Bits { bytes: page, at: 0 },
            (PLAIN, _) => Self::Numbers { bytes: page, size },
            (PLAIN_DICTIONARY | RLE_DICTIONARY, _) => {
                let (width, places) = page.split_first().map_or((0, page), |(width, places)| (*width, places));
                if width > 32 {
                    return Err(damaged(format!("positions in a dictionary of {width} bits")));
                }
                Self::Places(Hybrid::new(places, width.into()))
            }
            (RLE, Physical::Bool) => {
                let runs =
                    page.split_first_chunk::<4>().and_then(|(n, rest)| rest.get(..u32::from_le_bytes(*n) as usize));
                Self::Runs(Hybrid::new(runs.ok_or_else(|| damaged("the runs of a page are truncated"))?, 1))
            }
            (DELTA_BINARY_PACKED, _) if whole => {
                Self::Delta(Delta::new(page).ok_or_else(|| damaged("a page of deltas without a valid header"))?)
            }
            (DELTA_LENGTH, Physical::Bytes) => {
                let lengths = Delta::new(page).ok_or_else(|| damaged("a page of lengths without a valid header"))?;
                if lengths.left > count.into() {
                    return Err(damaged(format!("{} lengths in a page of {count} values", lengths.left)));
                }
                let mut walk = lengths.clone();
                while walk.left > 0 {
                    walk.next().ok_or_else(|| damaged("the lengths of a page are truncated"))?;
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
                    .with_hint(format!("omit the column with {COLUMNS}, or write it plain or with a dictionary")));
            }
        })
    }

    /// Appends `count` numbers of `size` bytes to `out`, in the machine's order.
    pub(super) fn append(
        &mut self,
        count: usize,
        size: usize,
        dictionary: &Dictionary,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match (self, dictionary) {
            (Self::Numbers { bytes, .. }, _) => {
                let (numbers, rest) = bytes.split_at_checked(count.checked_mul(size)?)?;
                *bytes = rest;
                // As stored: little-endian.
                match cfg!(target_endian = "little") {
                    true => out.extend_from_slice(numbers),
                    false => numbers.chunks_exact(size).for_each(|number| out.extend(number.iter().rev())),
                }
            }
            (Self::Places(runs), Dictionary::Numbers(values)) => {
                let mut places = [0; 256];
                let mut left = count;
                while left > 0 {
                    let places = &mut places[..left.min(256)];
                    left -= places.len();
                    runs.fill(places)?;
                    match size {
                        4 => gather::<4>(values, places, out)?,
                        8 => gather::<8>(values, places, out)?,
                        2 => gather::<2>(values, places, out)?,
                        _ => gather::<1>(values, places, out)?,
                    }
                }
            }
            (Self::Places(_), _) => return (count == 0).then_some(()),
            (values, _) => {
                for _ in 0..count {
                    let value = values.next()?;
                    match size {
                        // Booleans are 1 or 0.
                        1 => out.push(u8::from(value != 0)),
                        2 => out.extend_from_slice(&(value as u16).to_ne_bytes()),
                        4 => out.extend_from_slice(&(value as u32).to_ne_bytes()),
                        _ => out.extend_from_slice(&value.to_ne_bytes()),
                    }
                }
            }
        }
        Some(())
    }

    pub(super) fn next(&mut self) -> Option<u64> {
        match self {
            Self::Numbers { bytes, size } => {
                let (value, rest) = bytes.split_at_checked(*size)?;
                *bytes = rest;
                whole(value)
            }
            Self::Split { bytes, size, at } => {
                let count = bytes.len() / *size;
                (*at < count).then_some(())?;
                let mut bits = [0; 8];
                (0..*size).for_each(|byte| bits[byte] = bytes[byte * count + *at]);
                *at += 1;
                Some(u64::from_le_bytes(bits))
            }
            Self::Bits { bytes, at } => {
                let byte = bytes.get(*at / 8)?;
                let bit = byte >> (*at % 8) & 1;
                *at += 1;
                Some(bit.into())
            }
            Self::Runs(runs) | Self::Places(runs) => runs.next().map(u64::from),
            Self::Delta(delta) => delta.next().map(|value| value as u64),
            Self::Bytes { page, at, from } => {
                let value = plain_bytes(page, *at + 4)?;
                *at = value.end;
                place(*from + value.start, value.len() as u32)
            }
            Self::Lengths { lengths, at, end } => {
                let length = u32::try_from(lengths.next()?).ok()?;
                (length as usize <= *end - *at).then_some(())?;
                let place = place(*at, length);
                *at += length as usize;
                place
            }
        }
    }
}

/// The values of a dictionary.
pub(super) enum Dictionary {
    None,
    /// The position of each value in the decoded column, after its length.
    Places(Vec<u32>),
    /// Numbers as they are stored.
    Numbers(Vec<u8>),
}

impl Dictionary {
    /// The bits of number `at`, of `size` bytes.
    pub(super) fn number(&self, at: usize, size: usize) -> Option<u64> {
        let Self::Numbers(values) = self else { return None };
        let from = at.checked_mul(size)?;
        whole(values.get(from..from.checked_add(size)?)?)
    }

    /// Value `at`: the bits of a number of `size` bytes, or the position of bytes in `pages`, which begin at `table`.
    pub(super) fn get(&self, at: usize, size: usize, table: usize, pages: &[u8]) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Numbers(_) => self.number(at, size),
            Self::Places(places) => {
                let start = *places.get(at)? as usize;
                let value = plain_bytes(pages, start - table)?;
                place(start, value.len() as u32)
            }
        }
    }
}

/// Position and length in one number. Columns are smaller than 4 GiB, so no value is `NULL`.
pub(super) fn place(start: usize, length: u32) -> Option<u64> {
    Some(u64::from(u32::try_from(start).ok()?) | u64::from(length) << 32)
}

pub(super) fn name_of(encoding: u32) -> &'static str {
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
        _ => "an encoding that this version does not support",
    }
}

/// Appends the numbers of a dictionary at these places, in the machine's order.
fn gather<const SIZE: usize>(values: &[u8], places: &[u32], out: &mut Vec<u8>) -> Option<()> {
    let (values, _) = values.as_chunks::<SIZE>();
    for place in places {
        let mut number = *values.get(*place as usize)?;
        if SIZE == 1 {
            // Booleans are 1 or 0, whatever a dictionary holds.
            number[0] = u8::from(number[0] != 0);
        }
        if cfg!(target_endian = "big") {
            number.reverse();
        }
        out.extend_from_slice(&number);
    }
    Some(())
}

/// The packed number at `index`, of `width` bits (at most 64).
fn packed(bytes: &[u8], width: u32, index: usize) -> Option<u64> {
    let bit = index.checked_mul(width as usize)?;
    if width <= 56
        && let Some(word) = bytes.get(bit / 8..).and_then(|bytes| bytes.first_chunk::<8>())
    {
        return Some(u64::from_le_bytes(*word) >> (bit % 8) & mask(width));
    }
    let mut value = 0u128;
    let mut have = 0;
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
pub(super) struct Hybrid<'a> {
    rest: &'a [u8],
    width: u32,
    left: u64,
    value: u32,
    /// Packed values, and the index of the next one; `None`: a run of `value`.
    packed: Option<(&'a [u8], usize)>,
}

impl<'a> Hybrid<'a> {
    pub(super) const fn new(bytes: &'a [u8], width: u32) -> Self {
        Self { rest: bytes, width, left: 0, value: 0, packed: None }
    }

    /// The next values, as many as `out` has.
    pub(super) fn fill(&mut self, mut out: &mut [u32]) -> Option<()> {
        while let Some(first) = out.first_mut() {
            *first = self.next()?;
            let count = out.len().min(1 + usize::try_from(self.left).unwrap_or(usize::MAX));
            let (now, rest) = out.split_at_mut(count);
            match &mut self.packed {
                None => now.fill(self.value),
                Some((bytes, at)) => {
                    for place in &mut now[1..] {
                        *place = packed(bytes, self.width, *at)? as u32;
                        *at += 1;
                    }
                }
            }
            self.left -= (count - 1) as u64;
            out = rest;
        }
        Some(())
    }

    pub(super) fn next(&mut self) -> Option<u32> {
        while self.left == 0 {
            let (head, length) = varint(self.rest)?;
            self.rest = &self.rest[length..];
            if head & 1 == 1 {
                let bytes = (head >> 1).checked_mul(self.width.into())?;
                self.left = (head >> 1).checked_mul(8)?;
                // Writers may omit the end of the last group.
                let (now, rest) = self.rest.split_at(self.rest.len().min(usize::try_from(bytes).ok()?));
                (self.packed, self.rest) = (Some((now, 0)), rest);
            } else {
                let (value, rest) = self.rest.split_at_checked(self.width.div_ceil(8) as usize)?;
                let value = whole(value).filter(|value| *value <= mask(self.width))?;
                (self.left, self.packed) = (head >> 1, None);
                (self.value, self.rest) = (value as u32, rest);
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
pub(super) struct Delta<'a> {
    rest: &'a [u8],
    /// Values per miniblock, and miniblocks per block.
    mini: usize,
    minis: usize,
    /// Number of values left.
    left: u64,
    value: i64,
    least: i64,
    /// Widths of the remaining miniblocks.
    widths: &'a [u8],
    /// The current miniblock: its values, their width, the index of the next one.
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

    /// The bytes after the values.
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

/// The bytes of a number as its bits.
pub(super) fn whole(value: &[u8]) -> Option<u64> {
    let mut bits = [0; 8];
    bits.get_mut(..value.len())?.copy_from_slice(value);
    Some(u64::from_le_bytes(bits))
}

/// Bytes that begin at `start`, with their length before them.
pub(super) fn plain_bytes(page: &[u8], start: usize) -> Option<Range<usize>> {
    let length = page.get(start.checked_sub(4)?..start)?.first_chunk::<4>()?;
    let end = start.checked_add(u32::from_le_bytes(*length) as usize)?;
    (end <= page.len()).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
