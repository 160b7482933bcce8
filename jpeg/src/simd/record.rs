//! The state of a block of a progressive file, and the instructions that its loops need.

use super::level::Level;

/// Which of a block's coefficients are not zero, and what refinements added to them. Bit `n` of each word belongs to
/// coefficient `n` in the file's order. The values of first scans are stored elsewhere and not touched until the block
/// is transformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(32))]
pub(crate) struct Record {
    /// Non-zero coefficients of first scans.
    pub(crate) nonzero: u64,
    /// Bits 0 and 1 that refinements added to the magnitudes.
    pub(crate) added: [u64; 2],
    /// Coefficients that a refinement made non-zero and that are negative.
    pub(crate) negative: u64,
}

impl Record {
    /// Whether the first coefficient is the only one.
    #[inline(always)]
    pub(crate) fn is_flat(&self) -> bool {
        self.nonzero | self.added[0] | self.added[1] == 0
    }

    /// Coefficients that were not zero before a scan that adds a bit. All coefficients that the refinement of bit 1
    /// made non-zero have that bit.
    #[inline(always)]
    pub(crate) fn history(&self) -> u64 {
        self.nonzero | self.added[1]
    }
}

/// Deposits the low bits of a word at the set bits of a mask, lowest first: x86's PDEP. For a single bit, it gives the
/// mask's bit of that number.
pub(crate) trait Deposit: Fn(u64, u64) -> u64 + Copy {}

impl<F: Fn(u64, u64) -> u64 + Copy> Deposit for F {}

/// A loop that is compiled twice: for any machine, and for machines with these instructions.
pub(crate) trait Work {
    type Output;

    /// Must be `#[inline(always)]`, like everything that it calls in its loops. `nth` is only for a single bit, or
    /// none.
    fn run(self, deposit: impl Deposit, nth: impl Deposit) -> Self::Output;
}

/// Runs the loop with at most the instructions of `level`. Processors with a slow PDEP get the plain loop (see
/// [`deposit`]) with the other instructions.
pub(crate) fn with_best<W: Work>(level: Level, work: W) -> W::Output {
    #[cfg(target_arch = "x86_64")]
    {
        /// # Safety
        /// The processor has these instructions.
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn fast<W: Work>(work: W) -> W::Output {
            let deposit = |bits, mask| std::arch::x86_64::_pdep_u64(bits, mask);
            work.run(deposit, deposit)
        }
        #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
        fn plain<W: Work>(work: W) -> W::Output {
            work.run(deposit, nth)
        }
        if level.deposits() {
            // SAFETY: the processor has the instructions.
            return unsafe { fast(work) };
        }
        if level.bits() {
            // SAFETY: likewise.
            return unsafe { plain(work) };
        }
    }
    let _ = level;
    work.run(deposit, nth)
}

/// The same, bit by bit: for aarch64, and for AMD's processors before Zen 3, whose instruction takes as long.
#[inline(always)]
fn deposit(bits: u64, mask: u64) -> u64 {
    let (mut bits, mut mask, mut out) = (bits, mask, 0);
    while bits != 0 && mask != 0 {
        let lowest = mask & mask.wrapping_neg();
        out |= lowest & (bits & 1).wrapping_neg();
        bits >>= 1;
        mask ^= lowest;
    }
    out
}

/// The bit of a mask whose number is given by the single set bit.
#[inline(always)]
fn nth(bit: u64, mut mask: u64) -> u64 {
    if bit == 0 {
        return 0;
    }
    for _ in 0..bit.trailing_zeros() {
        mask &= mask.wrapping_sub(1);
    }
    mask & mask.wrapping_neg()
}

/// Prefetches an element, if it exists, because it is needed soon.
#[inline(always)]
pub(crate) fn prefetch<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(element).cast::<i8>();
        for line in 0..size_of::<T>().div_ceil(64) {
            // SAFETY: nothing is read, and what is pointed to is the element's.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64 * line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    struct Both(u64, u64);

    impl Work for Both {
        type Output = [u64; 2];

        #[inline(always)]
        fn run(self, deposit: impl Deposit, nth: impl Deposit) -> [u64; 2] {
            let one = if self.0.is_multiple_of(5) { 0 } else { 1 << (self.0 >> 8 & 15) };
            [deposit(self.0, self.1), nth(one, self.1)]
        }
    }

    #[test]
    fn bits_are_deposited_alike_at_each_level() {
        let mut draws = Draws::new([6, 0, 0]);
        for n in 0..5000 {
            // Masks of few bits, of many, of none.
            let mut mask = draws.bits();
            for _ in 0..n % 6 {
                mask &= draws.bits();
            }
            let bits = draws.bits();
            let best = with_best(Level::Best, Both(bits, mask));
            assert_eq!(best, with_best(Level::Portable, Both(bits, mask)), "{bits:x} {mask:x}");
            assert_eq!(best[0] & !mask, 0);
        }
    }
}
