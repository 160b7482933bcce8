//! Scans that add one bit to a band's coefficients.

use super::bits::{MirroredBits, fill_mirrored};
use crate::{
    huffman::Codes,
    simd::{Deposit, Record, Work},
    stuffing::Trouble,
};

/// Bits of the table.
const LOOK: u32 = 10;

/// Flags of an entry: a coefficient follows its zeros; it is negative; it must have been zero.
const COEFFICIENT: u64 = 1 << 31;
const NEGATIVE: u64 = 1 << 30;
const PLACED: u64 = 1 << 63;
/// More bits than any code has: handled outside of the loop (a long code, or further blocks that end).
const RARE: u64 = 255;

/// Codes of a scan, including the sign after those of a coefficient. The tables are indexed by mirrored bits.
#[derive(Debug)]
pub(super) struct AcRefineCodes {
    codes: Codes,
    /// From the lowest bit: number of bits of code and sign (8), flags, and from bit 32 on further blocks that end here
    /// (16).
    look: [u64; 1 << LOOK],
    /// A bit at the number of zeros to pass, indexed by the same bits: a look-up is faster than a shift. None: to the
    /// block's end.
    zeros: [u16; 1 << LOOK],
}

impl Default for AcRefineCodes {
    fn default() -> Self {
        Self { codes: Codes::default(), look: [RARE; 1 << LOOK], zeros: [0; 1 << LOOK] }
    }
}

/// Number of bits after a code: a sign, or the number of blocks that end. `None` if there is no such code.
fn bits_behind(symbol: u8) -> Option<u32> {
    match (symbol >> 4, symbol & 15) {
        (15, 0) => Some(0),
        (run, 0) => Some(run.into()),
        (_, 1) => Some(1),
        _ => None,
    }
}

/// An entry of the tables, for the bits after a code, the first of them highest.
fn entry(symbol: u8, length: u32, behind: u32, bits: u32) -> (u64, u16) {
    let (run, size) = (symbol >> 4, symbol & 15);
    let length = u64::from(length + behind);
    match (run, size) {
        (15, 0) => (length | PLACED, 1 << 15),
        (run, 0) => (length | ((1 << run) - 1 + u64::from(bits)) << 32, 0),
        _ => (length | PLACED | COEFFICIENT | if bits == 0 { NEGATIVE } else { 0 }, 1 << run),
    }
}

impl AcRefineCodes {
    /// Replaces the table by this definition; `None` if it contradicts itself.
    pub(super) fn read_table(&mut self, text: &[u8]) -> Option<()> {
        let Self { codes, look, zeros } = self;
        look.fill(RARE);
        zeros.fill(0);
        codes.read(text, |symbol, code, length| {
            // Codes for further blocks are rare.
            let short = |behind: &u32| length + behind <= LOOK && (symbol & 15 != 0 || matches!(symbol >> 4, 0 | 15));
            let Some(behind) = bits_behind(symbol).filter(short) else { return };
            for bits in 0..1 << behind {
                let (entry, passed) = entry(symbol, length, behind, bits);
                fill_mirrored(look, code << behind | bits, length + behind, entry);
                fill_mirrored(zeros, code << behind | bits, length + behind, passed);
            }
        })
    }

    /// The entry of the code that comes next.
    fn find(&self, bits: MirroredBits<'_>) -> Option<(u64, u16)> {
        let (symbol, length) = self.codes.find(bits.code())?;
        let behind = bits_behind(symbol)?;
        Some(entry(symbol, length, behind, bits.number(length, behind)))
    }
}

/// Reads the symbols of some blocks. `PLANE` is the number of the added bit.
pub(super) struct AcRefine<'a, 'd, const PLANE: usize> {
    pub(super) bits: MirroredBits<'d>,
    pub(super) codes: &'a AcRefineCodes,
    /// A bit for each coefficient.
    pub(super) band: u64,
    /// The records of the blocks, and one more.
    pub(super) records: &'a mut [Record],
    /// Number of blocks that an earlier code ended: only their non-zero coefficients have a bit.
    pub(super) ended: usize,
}

/// The state of a run.
#[derive(Clone, Copy)]
struct State<'a> {
    bits: MirroredBits<'a>,
    block: usize,
    /// The rest of the block's band: coefficients that were not zero, and those that were.
    set: u64,
    zero: u64,
    /// Number of blocks after the last one that have ended.
    ended: usize,
}

impl<'d, const PLANE: usize> Work for AcRefine<'_, 'd, PLANE> {
    /// The reader's position, and how many further blocks have ended.
    type Output = (MirroredBits<'d>, Result<usize, Trouble>);

    #[inline(always)]
    fn run(self, deposit: impl Deposit, nth: impl Deposit) -> Self::Output {
        let Self { bits, codes, band, records, ended } = self;
        let count = records.len() - 1;
        let mut state = State { bits, block: 0, set: 0, zero: 0, ended: 0 };
        if let Err(trouble) = end_blocks::<PLANE, _>(&mut state, ended, band, records, deposit) {
            return (state.bits, Err(trouble));
        }
        let mut nowhere = 0i64;
        while state.block < count && nowhere >= 0 {
            if state.bits.refill().is_none() {
                return (state.bits, Err(Trouble::End));
            }
            // One load is usually enough for several steps, of which only the first must wait for more bits. Two,
            // three, four and five steps took 1, 0.97, 0.95 and 0.97 of the time.
            for is_full in [true, false, false, false] {
                let State { mut bits, block, set, zero, ended } = state;
                let key = bits.held as usize & ((1 << LOOK) - 1);
                let (entry, zeros) = (codes.look[key], u64::from(codes.zeros[key]));
                // The coefficient after the zeros, and the bits of all coefficients passed before it. Without one, all
                // that is left.
                let place = nth(zeros, zero);
                let below = place.wrapping_sub(1);
                let corrected = set & below;
                let corrections = corrected.count_ones();
                let length = entry as u32 & 255;
                if length + corrections > bits.count {
                    if is_full {
                        match rare::<PLANE, _>(state, codes, band, records, deposit) {
                            Ok(after) => state = after,
                            Err(trouble) => return (state.bits, Err(trouble)),
                        }
                    }
                    break;
                }
                // Read early: this step does not write that record.
                let next = records[block + 1].history();
                bits.eat(length);
                let new = place & ((entry << 32) as i64 >> 63) as u64;
                let record = &mut records[block];
                record.negative |= new & ((entry << 33) as i64 >> 63) as u64;
                record.added[PLANE] |= deposit(bits.held, corrected) | new;
                bits.eat(corrections);
                // Negative if there is no such place.
                nowhere |= (below & entry) as i64;
                let left = !(place ^ below);
                let (set, zero) = (set & left, zero & left);
                let done = set | zero == 0;
                let begun = if done { band } else { 0 };
                let block = block + usize::from(done);
                state = State { bits, block, set: set | next & begun, zero: zero | !next & begun, ended };
                if block >= count {
                    break;
                }
            }
        }
        (state.bits, if nowhere < 0 { Err(Trouble::Code) } else { Ok(state.ended) })
    }
}

/// A step for any code, with its corrections and the blocks that end.
#[cold]
#[inline(never)]
fn rare<'d, const PLANE: usize, D: Deposit>(
    mut state: State<'d>,
    codes: &AcRefineCodes,
    band: u64,
    records: &mut [Record],
    deposit: D,
) -> Result<State<'d>, Trouble> {
    let (entry, zeros) = codes.find(state.bits).ok_or(Trouble::Code)?;
    let place = deposit(zeros.into(), state.zero);
    if zeros != 0 && place == 0 {
        return Err(Trouble::Code);
    }
    state.bits.eat(entry as u32 & 255);
    let new = if entry & COEFFICIENT != 0 { place } else { 0 };
    let record = &mut records[state.block];
    record.negative |= if entry & NEGATIVE != 0 { new } else { 0 };
    record.added[PLANE] |= new;
    let passed = place ^ place.wrapping_sub(1);
    correct::<PLANE, D>(&mut state.bits, record, state.set & passed, deposit)?;
    (state.set, state.zero) = (state.set & !passed, state.zero & !passed);
    if state.set | state.zero == 0 {
        state.block += 1;
        end_blocks::<PLANE, D>(&mut state, (entry >> 32 & 0xffff) as usize, band, records, deposit)?;
    }
    Ok(state)
}

/// Ends blocks that have no symbol, and begins the block after them.
fn end_blocks<const PLANE: usize, D: Deposit>(
    state: &mut State<'_>,
    more: usize,
    band: u64,
    records: &mut [Record],
    deposit: D,
) -> Result<(), Trouble> {
    let end = state.block + more;
    let last = end.min(records.len() - 1);
    for record in &mut records[state.block..last] {
        let set = record.history() & band;
        correct::<PLANE, D>(&mut state.bits, record, set, deposit)?;
    }
    let before = records[last].history();
    (state.block, state.ended, state.set, state.zero) = (last, end - last, before & band, !before & band);
    Ok(())
}

/// Reads a bit for each of these coefficients.
#[inline]
fn correct<const PLANE: usize, D: Deposit>(
    bits: &mut MirroredBits<'_>,
    record: &mut Record,
    mut set: u64,
    deposit: D,
) -> Result<(), Trouble> {
    while set != 0 {
        bits.refill().ok_or(Trouble::End)?;
        // As many as are available, or all.
        let held = deposit((1 << bits.count) - 1, set);
        record.added[PLANE] |= deposit(bits.held, held);
        bits.eat(held.count_ones());
        set ^= held;
    }
    Ok(())
}
