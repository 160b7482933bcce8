//! Huffman codes for what a scan needs.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::symbols::{Sink, Symbol};

/// How often each code of each table is needed: by pair, class and code.
pub(super) struct Counts([[[u64; 256]; 2]; 2]);

impl Default for Counts {
    fn default() -> Self {
        Self([[[0; 256]; 2]; 2])
    }
}

impl Sink for Counts {
    fn symbol(&mut self, symbol: Symbol) {
        self.0[symbol.pair][symbol.class][usize::from(symbol.code)] += 1;
    }

    fn restart(&mut self) {}
}

/// The codes of all tables.
pub(super) struct Codes([[Table; 2]; 2]);

/// Huffman codes of at most 16 bits.
pub(super) struct Table {
    /// Numbers of codes of each length, and the symbols by their codes.
    pub(super) counts: [u8; 16],
    pub(super) symbols: Vec<u8>,
    /// For each symbol, its code and length.
    codes: [(u16, u8); 256],
}

impl Codes {
    pub(super) fn of(counts: &Counts) -> Self {
        Self(counts.0.map(|classes| classes.map(|counts| Table::of(&counts))))
    }

    pub(super) const fn table(&self, pair: usize, class: usize) -> &Table {
        &self.0[pair][class]
    }

    /// The code and length of a symbol.
    pub(super) fn code(&self, symbol: Symbol) -> (u16, u8) {
        self.0[symbol.pair][symbol.class].codes[usize::from(symbol.code)]
    }
}

impl Table {
    /// The best codes for these numbers (T.81, K.2). No code has only ones: a symbol that is never used takes it.
    fn of(counts: &[u64; 256]) -> Self {
        const NONE: usize = 256;
        // The two rarest trees are joined until one is left. Each node has the number of its parent, which is larger.
        let mut parents = vec![0; NONE + 1];
        let used = (0..NONE).filter(|symbol| counts[*symbol] > 0).map(|symbol| Reverse((counts[symbol], symbol)));
        let mut trees: BinaryHeap<_> = used.chain([Reverse((0, NONE))]).collect();
        while let (Some(Reverse(rare)), Some(mut other)) = (trees.pop(), trees.peek_mut()) {
            let joined = parents.len();
            parents.push(0);
            parents[rare.1] = joined;
            parents[other.0.1] = joined;
            *other = Reverse((rare.0 + other.0.0, joined));
        }
        let mut lengths = vec![0usize; parents.len()];
        for node in (0..parents.len() - 1).rev() {
            if parents[node] > 0 {
                lengths[node] = lengths[parents[node]] + 1;
            }
        }
        lengths.truncate(NONE + 1);
        let mut of_length = [0usize; NONE + 2];
        lengths.iter().filter(|length| **length > 0).for_each(|length| of_length[*length] += 1);
        // A pair of codes that is too long becomes one code a bit shorter, and another code makes room for the second.
        for length in (17..of_length.len()).rev() {
            while of_length[length] > 0 {
                let Some(shorter) = (1..length - 1).rev().find(|shorter| of_length[*shorter] > 0) else { break };
                of_length[length] -= 2;
                of_length[length - 1] += 1;
                of_length[shorter] -= 1;
                of_length[shorter + 1] += 2;
            }
        }
        // The unused symbol has the longest code.
        if let Some(longest) = (1..=16).rev().find(|length| of_length[*length] > 0) {
            of_length[longest] -= 1;
        }
        // The shortest codes go to what is needed most often.
        let mut symbols: Vec<u8> = (0..=255).filter(|symbol| counts[usize::from(*symbol)] > 0).collect();
        symbols.sort_by_key(|symbol| Reverse(counts[usize::from(*symbol)]));
        let counts: [u8; 16] = std::array::from_fn(|n| of_length[n + 1] as u8);
        let (mut codes, mut code, mut next) = ([(0, 0); 256], 0u32, symbols.iter());
        for (length, count) in (1..).zip(counts) {
            for symbol in next.by_ref().take(count.into()) {
                codes[usize::from(*symbol)] = (code as u16, length);
                code += 1;
            }
            code <<= 1;
        }
        Self { counts, symbols, codes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn codes_are_short_have_no_prefix_in_common_and_are_never_all_ones() {
        let mut draws = Draws::new([5, 5, 5]);
        for n in 0..300u64 {
            let many = 1 + draws.below(256) as usize;
            let mut counts = [0; 256];
            for _ in 0..many {
                // Some far more often than others: codes that would be too long.
                counts[draws.below(256) as usize] = 1 + (draws.below(9) << (draws.below(1 + n.min(50)) as u32));
            }
            let table = Table::of(&counts);
            let used: Vec<usize> = (0..256).filter(|symbol| counts[*symbol] > 0).collect();
            assert_eq!(table.symbols.len(), used.len());
            let whole: u32 = used.iter().map(|symbol| 1 << (16 - table.codes[*symbol].1)).sum();
            assert!(whole < 1 << 16, "room for the code of ones");
            for symbol in &used {
                let (code, length) = table.codes[*symbol];
                assert!((1..=16).contains(&length) && u32::from(code) + 1 < 1 << length, "{code:b} of {length}");
            }
            // Of two symbols the one that is needed more often has no longer code.
            for pair in used.windows(2) {
                let [a, b] = [0, 1].map(|n| (counts[pair[n]], table.codes[pair[n]].1));
                assert!((a.0 <= b.0 || a.1 <= b.1) && (b.0 <= a.0 || b.1 <= a.1), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_single_symbol_has_a_code_of_one_bit() {
        let mut counts = [0; 256];
        counts[7] = 5;
        let table = Table::of(&counts);
        assert_eq!((table.codes[7], table.counts[0], &table.symbols[..]), ((0, 1), 1, &[7][..]));
    }
}
