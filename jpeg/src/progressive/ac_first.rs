//! Scans with the first bits of a band's coefficients.

use super::bits::{MirroredBits, fill_mirrored};
use crate::{
    huffman::Codes,
    order::natural,
    simd::{Deposit, Record, Work, extend, prefetch},
    stuffing::Trouble,
};

/// Bits of the table: one load of the reader is enough for five codes with their values.
const LOOK: u32 = 11;
/// Added to the position in the block at the end of the block: more than any run of zeros.
const END: u64 = 128;

/// In a table of places: not a coefficient of the band.
const BEYOND: u8 = 0x80;

/// Codes of a band with their values, so that one look-up gives the value to store.
#[derive(Debug)]
pub(super) struct AcFirstCodes {
    codes: Codes,
    /// Number of bits below the values.
    low: u32,
    /// From the lowest bit: number of bits of code and value (8), step (8), further blocks that end here (16), value
    /// (16), whether there is a value (16). 0 if there is no code, or a longer one.
    look: [u64; 1 << LOOK],
    /// Where the value of a coefficient is written, by its position in the file. After a block's end, it is the unused
    /// place of the first coefficient.
    places: [u8; 256],
}

impl Default for AcFirstCodes {
    fn default() -> Self {
        Self { codes: Codes::default(), low: 0, look: [0; 1 << LOOK], places: [0; 256] }
    }
}

/// Number of bits after a code: of a value, or of the number of blocks that end. `None` if 8-bit samples have no such
/// value.
fn bits_behind(symbol: u8) -> Option<u32> {
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    match size {
        0 if run < 15 => Some(run),
        0..=10 => Some(size),
        _ => None,
    }
}

/// An entry of the table, for the bits after a code.
fn entry(symbol: u8, length: u32, behind: u32, bits: u32, low: u32) -> u64 {
    let (run, size) = (u64::from(symbol >> 4), u32::from(symbol & 15));
    let length = u64::from(length + behind);
    if size == 0 && run < 15 {
        let more = (1u64 << run) - 1 + u64::from(bits);
        return length | END << 8 | more << 16;
    }
    let value = extend(u64::from(bits) << (64 - behind.max(1)), 0, behind) << low;
    length | run << 8 | u64::from(value as u16) << 32 | u64::from(value as i16 != 0) << 48
}

impl AcFirstCodes {
    /// Replaces the table by this definition, for a band of coefficients with `low` bits below them. `None` if it
    /// contradicts itself.
    pub(super) fn read_table(&mut self, text: &[u8], band: [u8; 2], low: u8) -> Option<()> {
        let low = u32::from(low);
        let Self { codes, look, places, .. } = self;
        self.low = low;
        places[..END as usize].fill(BEYOND);
        for place in band[0]..=band[1] {
            places[usize::from(place)] = natural(place.into()) as u8;
        }
        look.fill(0);
        codes.read(text, |symbol, code, length| {
            let Some(behind) = bits_behind(symbol).filter(|behind| length + behind <= LOOK) else { return };
            for bits in 0..1 << behind {
                fill_mirrored(look, code << behind | bits, length + behind, entry(symbol, length, behind, bits, low));
            }
        })
    }
}

/// Reads the symbols of some blocks.
pub(super) struct AcFirst<'a, 'd, const KEEP: bool> {
    pub(super) bits: MirroredBits<'d>,
    pub(super) codes: &'a AcFirstCodes,
    pub(super) band: [u8; 2],
    pub(super) records: &'a mut [Record],
    /// As many as records if values are kept; otherwise empty.
    pub(super) values: &'a mut [[i16; 64]],
    /// Number of blocks that an earlier code ended.
    pub(super) ended: usize,
}

/// The state of a run: its reader, the block, and the position after the last value.
#[derive(Clone, Copy)]
struct State<'d> {
    bits: MirroredBits<'d>,
    block: usize,
    at: u32,
    /// Whether a run of zeros went beyond the band.
    beyond: u8,
}

impl<'d, const KEEP: bool> Work for AcFirst<'_, 'd, KEEP> {
    /// The reader's position, and how many further blocks have ended.
    type Output = (MirroredBits<'d>, Result<usize, Trouble>);

    #[inline(always)]
    fn run(self, _: impl Deposit, _: impl Deposit) -> Self::Output {
        let Self { bits, codes, band, records, values, ended } = self;
        let count = records.len();
        let values = if KEEP { &mut values[..count] } else { values };
        let mut state = State { bits, block: ended, at: band[0].into(), beyond: 0 };
        'refills: while state.block < count && state.beyond & BEYOND == 0 {
            if state.bits.refill().is_none() {
                return (state.bits, Err(Trouble::End));
            }
            if KEEP {
                // Values are far apart: without the prefetch, stores wait for the next block's.
                prefetch(values, state.block + 2);
            }
            for _ in 0..5 {
                let entry = codes.look[state.bits.held as usize & ((1 << LOOK) - 1)];
                if entry == 0 {
                    match codes.long::<KEEP>(state, band, records, values) {
                        Ok(after) => state = after,
                        Err(trouble) => return (state.bits, Err(trouble)),
                    }
                    continue 'refills;
                }
                state = codes.step::<KEEP>(state, entry, band, records, values);
                if state.block >= count {
                    break 'refills;
                }
            }
        }
        let outcome = if state.beyond & BEYOND != 0 { Err(Trouble::Code) } else { Ok(state.block - count) };
        (state.bits, outcome)
    }
}

impl AcFirstCodes {
    /// Handles one symbol.
    #[inline(always)]
    fn step<'d, const KEEP: bool>(
        &self,
        state: State<'d>,
        entry: u64,
        [first, last]: [u8; 2],
        records: &mut [Record],
        values: &mut [[i16; 64]],
    ) -> State<'d> {
        let State { mut bits, block, at, beyond } = state;
        let place = at + (entry >> 8 & 255) as u32;
        let to = self.places[usize::from(place as u8)];
        if KEEP {
            values[block][usize::from(to & 63)] = (entry >> 32) as i16;
        }
        records[block].nonzero |= (entry >> 48) << (place & 63);
        let done = (entry >> 16 & 0xffff) as usize + usize::from(place >= last.into());
        bits.eat(entry as u32 & 255);
        let at = if done > 0 { first.into() } else { place + 1 };
        State { bits, block: block + done, at, beyond: beyond | to }
    }

    /// The same for a code that is not in the table.
    #[cold]
    #[inline(never)]
    fn long<'d, const KEEP: bool>(
        &self,
        mut state: State<'d>,
        band: [u8; 2],
        records: &mut [Record],
        values: &mut [[i16; 64]],
    ) -> Result<State<'d>, Trouble> {
        state.bits.refill().ok_or(Trouble::End)?;
        let (symbol, length) = self.codes.find(state.bits.code()).ok_or(Trouble::Code)?;
        let behind = bits_behind(symbol).ok_or(Trouble::Code)?;
        let entry = entry(symbol, length, behind, state.bits.number(length, behind), self.low);
        Ok(self.step::<KEEP>(state, entry, band, records, values))
    }
}
