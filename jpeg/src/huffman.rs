//! Huffman tables and the bits they are read from.
//!
//! Blocks are read with a table of 11 bits that gives up to two coefficients at once. If much is skipped, a table of 12
//! bits gives the lengths of as many symbols as fit. Longer codes are read one symbol at a time.

#![forbid(unsafe_code)]

use crate::{
    order::NATURAL,
    simd::{Block, END, ENDS, LOOK, Level, SKIP, extend, pairs, skips},
};

/// Bits of the table for first coefficients: their codes are short.
const FIRST_LOOK: u32 = 9;

/// A segment with the tables that T.81 gives as examples (K.3); frames of Motion JPEG omit them. Its length, then the
/// tables of brightness for first and for other coefficients, then those of colour.
#[rustfmt::skip]
pub(crate) static STANDARD: [u8; 418] = [
    0x01, 0xa2,
    0x00, 0x00, 0x01, 0x05, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02,
    0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
    0x10, 0x00, 0x02, 0x01, 0x03, 0x03, 0x02, 0x04, 0x03, 0x05, 0x05, 0x04, 0x04, 0x00, 0x00, 0x01, 0x7d, 0x01, 0x02, 0x03,
    0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07, 0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1,
    0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0, 0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19,
    0x1a, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73, 0x74,
    0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97,
    0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9,
    0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1,
    0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
    0x01, 0x00, 0x03, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x02,
    0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
    0x11, 0x00, 0x02, 0x01, 0x02, 0x04, 0x04, 0x03, 0x04, 0x07, 0x05, 0x04, 0x04, 0x00, 0x01, 0x02, 0x77, 0x00, 0x01, 0x02,
    0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71, 0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42,
    0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0, 0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1,
    0x17, 0x18, 0x19, 0x1a, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47,
    0x48, 0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x73,
    0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95,
    0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7,
    0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9,
    0xda, 0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa,
];

/// One symbol: bits of code and value together, bits of the code, step, bits of the value. 0 if there is no code.
fn entry(symbol: u8, code: u32, first: bool) -> u32 {
    let (run, size) = if first { (0, u32::from(symbol)) } else { (u32::from(symbol >> 4), u32::from(symbol & 15)) };
    // 8-bit samples have no longer values. Such a code is damage if it is used; in the table it is only odd.
    if size > if first { 11 } else { 10 } {
        return 0;
    }
    let step = if first || size > 0 || run == 15 { run + 1 } else { END };
    (code + size) | code << 8 | step << 16 | size << 24
}

/// The codes of a table.
#[derive(Debug, Default)]
pub(crate) struct Codes {
    /// The definition: 16 counts and the symbols. Empty if there is no table.
    text: Vec<u8>,
    /// For each length, the end of its codes, shifted up to 16 bits.
    ends: [u32; 17],
    /// For each length, the number to add to a code to get its symbol's index.
    offsets: [i32; 17],
}

impl Codes {
    /// Parses a definition; calls `put` with each symbol, its code and the code's length. `None` if it contradicts
    /// itself.
    pub(crate) fn read(&mut self, text: &[u8], mut put: impl FnMut(u8, u32, u32)) -> Option<()> {
        self.text.clear();
        let (counts, symbols) = text.split_first_chunk::<16>()?;
        let (mut code, mut at) = (0u32, 0usize);
        for length in 1..=16u32 {
            self.offsets[length as usize] = at as i32 - code as i32;
            let end = code + u32::from(counts[length as usize - 1]);
            if end > 1 << length {
                return None;
            }
            for code in code..end {
                put(*symbols.get(at)?, code, length);
                at += 1;
            }
            self.ends[length as usize] = end << (16 - length);
            code = end << 1;
        }
        self.text.extend_from_slice(text);
        Some(())
    }

    /// The symbol of the code at the start of these 16 bits, and its length.
    #[cold]
    #[inline(never)]
    pub(crate) fn find(&self, top: u16) -> Option<(u8, u32)> {
        let top = u32::from(top);
        let length = (1..=16).find(|&length| top < self.ends[length])?;
        let index = self.offsets[length] + (top >> (16 - length)) as i32;
        let symbol = self.text[16..].get(usize::try_from(index).ok()?)?;
        Some((*symbol, length as u32))
    }
}

/// The entry of the code at the start of these bits.
fn long(codes: &Codes, bits: u64, first: bool) -> Option<u32> {
    let (symbol, length) = codes.find((bits >> 48) as u16)?;
    Some(entry(symbol, length, first)).filter(|&entry| entry != 0)
}

/// A table for first coefficients.
#[derive(Debug)]
pub(crate) struct First {
    codes: Codes,
    look: [u32; 1 << FIRST_LOOK],
}

impl Default for First {
    fn default() -> Self {
        Self { codes: Codes::default(), look: [0; 1 << FIRST_LOOK] }
    }
}

impl First {
    /// Replaces the table by this definition; `None` if it contradicts itself.
    pub(crate) fn read_table(&mut self, text: &[u8]) -> Option<()> {
        if self.codes.text == text {
            return Some(());
        }
        self.look = [0; 1 << FIRST_LOOK];
        let Self { codes, look } = self;
        codes.read(text, |symbol, code, length| fill(look, FIRST_LOOK, code, length, entry(symbol, length, true)))
    }

    /// The difference to the block before.
    #[inline(always)]
    pub(crate) fn read(&self, bits: &mut Bits<'_>) -> Option<i32> {
        let mut entry = self.look[(bits.held >> (64 - FIRST_LOOK)) as usize];
        if entry == 0 {
            entry = long(&self.codes, bits.held, true)?;
        }
        let value = extend(bits.held, entry >> 8 & 255, entry >> 24);
        bits.eat(entry & 255);
        Some(value)
    }
}

/// A table for the other coefficients.
#[derive(Debug)]
pub(crate) struct Rest {
    codes: Codes,
    one: [u32; 1 << LOOK],
    /// Up to two coefficients: all bits, step, second step, bits of the first (8 bits each), both values.
    two: [u64; 1 << LOOK],
    /// As many symbols as fit: bits (4 bits), steps together (6), whether the block ends.
    many: [u16; 1 << SKIP],
    /// Whether `many` belongs to this table.
    skips: bool,
}

/// Writes a code's value to each entry of `look` whose bits begin with the code.
fn fill<T: Copy>(look: &mut [T], bits: u32, code: u32, length: u32, value: T) {
    if length <= bits {
        let shift = bits - length;
        look[(code << shift) as usize..((code + 1) << shift) as usize].fill(value);
    }
}

impl Default for Rest {
    fn default() -> Self {
        let (one, two, many) = ([0; 1 << LOOK], [0; 1 << LOOK], [0; 1 << SKIP]);
        Self { codes: Codes::default(), one, two, many, skips: false }
    }
}

impl Rest {
    /// Replaces the table by this definition; `None` if it contradicts itself.
    pub(crate) fn read_table(&mut self, text: &[u8], level: Level) -> Option<()> {
        if self.codes.text == text {
            return Some(());
        }
        let Self { codes, one, two, skips, .. } = self;
        (*one, *skips) = ([0; 1 << LOOK], false);
        codes.read(text, |symbol, code, length| fill(one, LOOK, code, length, entry(symbol, length, false)))?;
        // Nearly all files have their own tables, so the time of this pass matters.
        pairs(level, one, two);
        Some(())
    }

    /// Makes skipping twice as fast; pays if much is skipped.
    pub(crate) fn prepare_to_skip(&mut self, level: Level) {
        if self.skips {
            return;
        }
        skips(level, &self.one, &mut self.many);
        self.skips = true;
    }

    /// One symbol of any length.
    #[inline(always)]
    fn entry(&self, bits: &Bits<'_>) -> Option<u32> {
        let entry = self.one[(bits.held >> (64 - LOOK)) as usize];
        if entry == 0 { long(&self.codes, bits.held, false) } else { Some(entry) }
    }
}

/// Reads bits of bytes without stuffing. After the end it reads zeros.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bits<'a> {
    /// The next bits, highest first.
    held: u64,
    /// Number of valid bits.
    count: u32,
    at: usize,
    bytes: &'a [u8],
}

/// Zero bytes that must follow the data.
pub(crate) const PADDING: usize = 64;

impl<'a> Bits<'a> {
    /// Starts at bit `at` of `bytes`, which must end with [`PADDING`] zeros.
    pub(crate) fn new(bytes: &'a [u8], at: usize) -> Self {
        let mut bits = Self { held: 0, count: 0, at: at / 8, bytes };
        bits.refill();
        bits.eat((at % 8) as u32);
        bits
    }

    /// Makes 56 bits or more available.
    #[inline(always)]
    pub(crate) fn refill(&mut self) {
        // Clamped instead of an error: the caller sees that the position is after the end.
        let at = self.at.min(self.bytes.len() - 8);
        let next: &[u8; 8] = self.bytes[at..].first_chunk().expect("eight bytes are left");
        self.held |= u64::from_be_bytes(*next) >> self.count;
        self.at = at + ((63 - self.count) >> 3) as usize;
        self.count |= 56;
    }

    #[inline(always)]
    fn eat(&mut self, count: u32) {
        self.held <<= count;
        self.count -= count;
    }

    /// Number of bits read so far.
    pub(crate) fn position(&self) -> usize {
        8 * self.at - self.count as usize
    }

    /// Reads a block. Returns the difference of its first coefficient, and whether the block has no others. The others
    /// are written to `block`, which must be zero.
    #[inline(always)]
    pub(crate) fn block(&mut self, first: &First, rest: &Rest, block: &mut Block) -> Option<(i32, bool)> {
        self.refill();
        let difference = first.read(self)?;
        let mut at = 1u32;
        // Each refill is enough for two steps of at most 26 bits, after the difference of the first coefficient. Steps
        // end at 190.
        let put = |block: &mut Block, at: u32, value: u64| {
            block[usize::from(NATURAL[(at - 1) as usize & 255] & 127)] = value as i16;
        };
        macro_rules! step {
            () => {
                let two = rest.two[(self.held >> (64 - LOOK)) as usize];
                if two == 0 {
                    let entry = rest.entry(self)?;
                    at += entry >> 16 & 255;
                    put(block, at, extend(self.held, entry >> 8 & 255, entry >> 24) as u64);
                    self.eat(entry & 255);
                    if at >= 64 {
                        break;
                    }
                } else {
                    at += (two >> 8) as u32 & 255;
                    put(block, at, two >> 32);
                    if at >= 64 {
                        self.eat((two >> 24) as u32 & 255);
                        break;
                    }
                    at += (two >> 16) as u32 & 255;
                    put(block, at, two >> 48);
                    self.eat(two as u32 & 255);
                    if at >= 64 {
                        break;
                    }
                }
            };
        }
        loop {
            step!();
            self.refill();
            step!();
        }
        (at == 64 || at >= END).then_some((difference, at == 1 + END))
    }

    /// Reads the coefficients before position `end` of the file's order, and skips the others.
    #[inline(always)]
    pub(crate) fn low_block(&mut self, first: &First, rest: &Rest, end: u32, block: &mut Block) -> Option<i32> {
        let (difference, at) = self.low(first, rest, end, block)?;
        if at < 64 {
            self.skip_rest(rest, at)?
        } else if at != 64 && at < END {
            None?
        }
        Some(difference)
    }

    /// Reads the coefficients before position `end`, or one more, and stops there; also returns the position that it
    /// reached.
    #[inline(always)]
    pub(crate) fn low(&mut self, first: &First, rest: &Rest, end: u32, block: &mut Block) -> Option<(i32, u32)> {
        self.refill();
        let difference = first.read(self)?;
        let mut at = 1;
        while at < end {
            let put = |block: &mut Block, at: u32, value: u64| {
                block[usize::from(NATURAL[(at - 1) as usize & 255] & 127)] = value as i16;
            };
            let two = rest.two[(self.held >> (64 - LOOK)) as usize];
            if two == 0 {
                let entry = rest.entry(self)?;
                at += entry >> 16 & 255;
                put(block, at, extend(self.held, entry >> 8 & 255, entry >> 24) as u64);
                self.eat(entry & 255);
            } else {
                at += (two >> 8) as u32 & 255;
                put(block, at, two >> 32);
                if at >= 64 {
                    self.eat((two >> 24) as u32 & 255);
                    break;
                }
                at += (two >> 16) as u32 & 255;
                put(block, at, two >> 48);
                self.eat(two as u32 & 255);
            }
            self.refill();
        }
        Some((difference, at))
    }

    /// Reads the difference of a block's first coefficient and stops after it.
    #[inline(always)]
    pub(crate) fn first(&mut self, first: &First) -> Option<i32> {
        first.read(self)
    }

    /// Reads the difference of a block's first coefficient and skips the others.
    #[inline(always)]
    pub(crate) fn skip_block(&mut self, first: &First, rest: &Rest) -> Option<i32> {
        self.refill();
        let difference = first.read(self)?;
        self.skip_rest(rest, 1)?;
        Some(difference)
    }

    /// Skips the coefficients from position `at` on. At least 26 bits must be available.
    #[inline(always)]
    fn skip_rest(&mut self, rest: &Rest, at: u32) -> Option<()> {
        if rest.skips { self.skip_many(rest, at) } else { self.skip_pairs(rest, at) }
    }

    #[inline(always)]
    fn skip_pairs(&mut self, rest: &Rest, mut at: u32) -> Option<()> {
        macro_rules! step {
            () => {
                let two = rest.two[(self.held >> (64 - LOOK)) as usize];
                if two == 0 {
                    let entry = rest.entry(self)?;
                    at += entry >> 16 & 255;
                    self.eat(entry & 255);
                } else {
                    at += (two >> 8) as u32 & 255;
                    if at >= 64 {
                        self.eat((two >> 24) as u32 & 255);
                        break;
                    }
                    at += (two >> 16) as u32 & 255;
                    self.eat(two as u32 & 255);
                }
                if at >= 64 {
                    break;
                }
            };
        }
        loop {
            step!();
            self.refill();
            step!();
        }
        (at == 64 || at >= END).then_some(())
    }

    #[inline(always)]
    fn skip_many(&mut self, rest: &Rest, mut at: u32) -> Option<()> {
        macro_rules! step {
            () => {
                let many = rest.many[(self.held >> (64 - SKIP)) as usize];
                let next = at + u32::from(many >> 4 & 63);
                if many & 15 != 0 && next < 64 {
                    at = next;
                    self.eat(u32::from(many & 15));
                    if many & ENDS != 0 {
                        return Some(());
                    }
                } else {
                    // A long code, or more symbols than the block has left.
                    let entry = rest.entry(self)?;
                    at += entry >> 16 & 255;
                    self.eat(entry & 255);
                    if at >= 64 {
                        return (at == 64 || at >= END).then_some(());
                    }
                }
            };
        }
        loop {
            step!();
            self.refill();
            step!();
        }
    }
}
