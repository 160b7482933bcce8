//! Scans that tell coefficients of a band for the first time.

use super::bits::{MirroredBits, fill_mirrored};
use crate::{
    huffman::{Codes, NATURAL},
    simd::{Deposit, Record, Work, extend},
    stuffing::Trouble,
};

/// Bits that the table looks at: five codes with their values are in what a reader holds.
const LOOK: u32 = 11;
/// What "the block ends" adds to the place in the block: more than any run of zeros.
const END: u64 = 128;

/// Where the value of a coefficient goes, by its place in the file; places behind the last one are those of no value, for which the
/// first coefficient's is free.
static PLACES: [u8; 256] = {
    let mut places = [0; 256];
    let mut at = 0;
    while at < 64 {
        places[at] = NATURAL[at];
        at += 1;
    }
    places
};

/// Codes of a band with their values, so that a look gives the value as it is kept.
#[derive(Debug)]
pub(super) struct AcFirstCodes {
    codes: Codes,
    /// Bits below the values.
    low: u32,
    /// From the lowest bit on: bits of code and value (8), step (8), further blocks that end here (16), value (16), whether it is
    /// one (16). 0 where there is no code, or a longer one.
    look: [u64; 1 << LOOK],
}

impl Default for AcFirstCodes {
    fn default() -> Self {
        Self { codes: Codes::default(), low: 0, look: [0; 1 << LOOK] }
    }
}

/// Bits behind a code: of a value, or of the number of blocks that end. `None`: 8-bit samples have no such value.
fn bits_behind(symbol: u8) -> Option<u32> {
    let (run, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
    match size {
        0 if run < 15 => Some(run),
        0..=10 => Some(size),
        _ => None,
    }
}

/// An entry of the table, for the bits behind a code.
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
    /// Becomes the table of this definition, for values with `low` bits below them; `None` when it contradicts itself.
    pub(super) fn read_table(&mut self, text: &[u8], low: u8) -> Option<()> {
        let low = u32::from(low);
        let Self { codes, look, .. } = self;
        self.low = low;
        look.fill(0);
        codes.read(text, |symbol, code, length| {
            let Some(behind) = bits_behind(symbol).filter(|behind| length + behind <= LOOK) else { return };
            for bits in 0..1 << behind {
                fill_mirrored(look, code << behind | bits, length + behind, entry(symbol, length, behind, bits, low));
            }
        })
    }

    /// The entry of the code that is held.
    #[cold]
    #[inline(never)]
    fn long(&self, bits: MirroredBits<'_>) -> Option<u64> {
        let (symbol, length) = self.codes.find(bits.code())?;
        let behind = bits_behind(symbol)?;
        Some(entry(symbol, length, behind, bits.number(length, behind), self.low))
    }
}

/// Reads the symbols of some blocks.
pub(super) struct AcFirst<'a, 'd, const KEEP: bool> {
    pub(super) bits: MirroredBits<'d>,
    pub(super) codes: &'a AcFirstCodes,
    pub(super) band: [u8; 2],
    pub(super) records: &'a mut [Record],
    /// As many as records if values are kept, otherwise none.
    pub(super) values: &'a mut [[i16; 64]],
    /// Blocks that ended before.
    pub(super) ended: usize,
}

impl<'d, const KEEP: bool> Work for AcFirst<'_, 'd, KEEP> {
    /// Where the reader is, and how many further blocks have ended.
    type Output = (MirroredBits<'d>, Result<usize, Trouble>);

    #[inline(always)]
    fn run(self, _: impl Deposit) -> Self::Output {
        let Self { mut bits, codes, band, records, values, ended } = self;
        let [first, last] = band.map(u32::from);
        let count = records.len();
        let values = if KEEP { &mut values[..count] } else { values };
        let (mut block, mut at, mut beyond) = (ended, first, 0);
        while block < count && beyond >= 0 {
            if bits.refill().is_none() {
                return (bits, Err(Trouble::End));
            }
            for _ in 0..5 {
                let mut entry = codes.look[bits.held as usize & ((1 << LOOK) - 1)];
                let long = entry == 0;
                if long {
                    let refilled = bits.refill();
                    let Some(found) = refilled.and_then(|()| codes.long(bits)) else {
                        return (bits, Err(Trouble::Code));
                    };
                    entry = found;
                }
                let place = at + (entry >> 8 & 255) as u32;
                if KEEP {
                    values[block][usize::from(PLACES[(place & 255) as usize] & 63)] = (entry >> 32) as i16;
                }
                records[block].nonzero |= (entry >> 48) << (place & 63);
                // Negative for a run of zeros that leaves the band.
                beyond |= (last as i32 - place as i32) & (place as i32 - END as i32);
                let done = (entry >> 16 & 0xffff) as usize + usize::from(place >= last);
                block += done;
                at = if done > 0 { first } else { place + 1 };
                bits.eat(entry as u32 & 255);
                if block >= count || long {
                    break;
                }
            }
        }
        (bits, if beyond < 0 { Err(Trouble::Code) } else { Ok(block - count) })
    }
}
