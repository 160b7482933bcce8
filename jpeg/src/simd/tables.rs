//! Makes tables that give several Huffman symbols at a time from tables that give one: loops without branches over all
//! values of an index.

use super::level::at_each_level;

/// Bits of the tables of coefficients.
pub(crate) const LOOK: u32 = 11;
/// Bits of the table for skipping: with 11, 13 and 14 bits it is 10, 2 and 14 % slower. Skipping at two places of a
/// scan side by side, if a second one were known, would take 17 % less, at most 4 % of a first epoch: not worth the
/// search for a second place.
pub(crate) const SKIP: u32 = 12;
/// Added to the position in the block for "no more coefficients"; more than any run of zeros.
pub(crate) const END: u32 = 128;
/// Marks the end of a block in a table for skipping.
pub(crate) const ENDS: u16 = 1 << 10;

at_each_level! {
    /// Up to two symbols with their values, for each combination of `LOOK` bits.
    pub(crate) fn pairs(one: &[u32; 1 << LOOK], two: &mut [u64; 1 << LOOK]) = pairs_loop;
    /// As many symbols as `SKIP` bits hold, four at most, without their values.
    pub(crate) fn skips(one: &[u32; 1 << LOOK], many: &mut [u16; 1 << SKIP]) = skips_loop;
}

#[inline(always)]
fn pairs_loop(one: &[u32; 1 << LOOK], two: &mut [u64; 1 << LOOK]) {
    // First each single symbol that fits with its value. A second step of 0 writes the same coefficient again.
    for (bits, (two, entry)) in two.iter_mut().zip(one).enumerate() {
        let (length, step) = (u64::from(entry & 255), u64::from(entry >> 16 & 255));
        let value = extend((bits as u64) << (64 - LOOK), entry >> 8 & 255, entry >> 24) as u16;
        let whole = length | step << 8 | length << 24 | u64::from(value) << 32 | u64::from(value) << 48;
        *two = if length > u64::from(LOOK) { 0 } else { whole };
    }
    let whole = *two;
    for (bits, two) in two.iter_mut().enumerate() {
        let (length, step) = (whole[bits] & 255, whole[bits] >> 8 & 255);
        let next = whole[bits << (length & 15) & ((1 << LOOK) - 1)];
        let together = length + (next & 255);
        let both = whole[bits] & 0xffff_ff00_ff00 | together | (next >> 8 & 255) << 16 | next >> 32 << 48;
        let fits = length != 0 && next != 0 && step != u64::from(END) && together <= u64::from(LOOK);
        *two = if fits { both } else { whole[bits] };
    }
}

#[inline(always)]
fn skips_loop(one: &[u32; 1 << LOOK], many: &mut [u16; 1 << SKIP]) {
    let once = std::array::from_fn(|bits| {
        let entry = one[bits >> (SKIP - LOOK)];
        let (length, step) = (entry & 255, entry >> 16 & 255);
        let step = if step == END { ENDS } else { (step << 4) as u16 };
        // Longer with its value than this table's index.
        if length <= SKIP && entry != 0 { length as u16 | step } else { 0 }
    });
    *many = chain(&chain(&once));
}

/// Twice as many symbols for each combination of `SKIP` bits, if they fit.
#[inline(always)]
fn chain(table: &[u16; 1 << SKIP]) -> [u16; 1 << SKIP] {
    std::array::from_fn(|bits| {
        let this = table[bits];
        let next = table[bits << (this & 15) & ((1 << SKIP) - 1)];
        let fits = (this & 15) + (next & 15) <= SKIP as u16 && (this & 0x3f0) + (next & 0x3f0) <= 0x3f0;
        let goes_on = this & 15 != 0 && this & ENDS == 0 && fits;
        this + if goes_on { next } else { 0 }
    })
}

/// The value after a code: `size` bits, negative if the first of them is 0.
#[inline(always)]
pub(crate) fn extend(bits: u64, code: u32, size: u32) -> i32 {
    let rest = bits << code;
    let value = (rest >> 1 >> (63 - size)) as i32;
    let negative = !((rest as i64) >> 63) as i32;
    value + (negative & (1 - (1 << size)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{draws::Draws, simd::Level};

    #[test]
    fn tables_are_the_same_at_each_level() {
        for n in 0..50 {
            let mut draws = Draws::new([9, 0, n]);
            // Entries as made from codes, and 0 where there is no code.
            let one = std::array::from_fn(|_| {
                let (code, size, run) = (1 + draws.below(16) as u32, draws.below(11) as u32, draws.below(16) as u32);
                let step = if size > 0 || run == 15 { run + 1 } else { END };
                if draws.below(9) == 0 { 0 } else { (code + size) | code << 8 | step << 16 | size << 24 }
            });
            let (mut two, mut many) = ([[1; 1 << LOOK]; 2], [[1; 1 << SKIP]; 2]);
            for (level, (two, many)) in [Level::Portable, Level::Best].into_iter().zip(two.iter_mut().zip(&mut many)) {
                pairs(level, &one, two);
                skips(level, &one, many);
            }
            assert!(two[0] == two[1] && many[0] == many[1]);
        }
    }
}
