//! From coefficients to the symbols of a baseline scan (T.81, F.1.2).

use crate::{grid::Grid, order::natural, progressive::Coefficients};

/// A code, and the bits of the value after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol {
    /// Which pair of Huffman tables: 0 for brightness and black, 1 for colours.
    pub(super) pair: usize,
    /// 0 for first coefficients, 1 for the others.
    pub(super) class: usize,
    pub(super) code: u8,
    pub(super) value: u16,
    pub(super) size: u8,
}

/// The pair of Huffman tables of a component.
pub(super) const fn pair_of(component: usize) -> usize {
    (component == 1 || component == 2) as usize
}

/// What takes symbols.
pub(super) trait Sink {
    fn symbol(&mut self, symbol: Symbol);
    /// Ends an interval.
    fn restart(&mut self);
}

/// Largest sizes of values in a baseline file: of differences of first coefficients, and of the others.
const MOST: [u8; 2] = [11, 10];

/// The symbols of a whole image, band after band.
pub(super) struct Symbols<'a> {
    grid: &'a Grid,
    /// Whether each row of units is an interval.
    restarts: bool,
    /// First coefficients of the last blocks.
    before: [i16; 4],
    failed: bool,
}

impl<'a> Symbols<'a> {
    pub(super) const fn new(grid: &'a Grid, restarts: bool) -> Self {
        Self { grid, restarts, before: [0; 4], failed: false }
    }

    /// Whether a value was too large for a baseline file.
    pub(super) const fn have_failed(&self) -> bool {
        self.failed
    }

    pub(super) fn write(&mut self, band: &Coefficients<'_>, sink: &mut impl Sink) {
        let [height, width] = self.grid.units();
        for row in band.rows() {
            for column in 0..width {
                for (n, needed) in self.grid.components.iter().enumerate() {
                    for (down, across) in (0..needed.down).flat_map(|y| (0..needed.across).map(move |x| (y, x))) {
                        let place = [row * needed.down + down, column * needed.across + across];
                        self.block(n, band.block(n, place).as_ref(), sink);
                    }
                }
            }
            if self.restarts && row + 1 < height {
                self.before = [0; 4];
                sink.restart();
            }
        }
    }

    /// A block, or none where a unit is only padded: then nothing changes from the block before.
    fn block(&mut self, component: usize, block: Option<&[i16; 64]>, sink: &mut impl Sink) {
        let pair = pair_of(component);
        let mut put = |class: usize, run: u8, value: i32| {
            let size = (32 - value.unsigned_abs().leading_zeros()) as u8;
            self.failed |= size > MOST[class];
            // Negative values are stored as one less, without the sign bits.
            let bits = if value < 0 { value - 1 } else { value } as u32 & ((1 << size) - 1);
            sink.symbol(Symbol { pair, class, code: run << 4 | size & 15, value: bits as u16, size });
        };
        let first = block.map_or(self.before[component], |block| block[0]);
        put(0, 0, i32::from(first) - i32::from(self.before[component]));
        self.before[component] = first;
        let mut run = 0;
        for value in block.into_iter().flat_map(|block| (1..64).map(|at| block[natural(at)])) {
            if value == 0 {
                run += 1;
                continue;
            }
            while run > 15 {
                put(1, 15, 0);
                run -= 16;
            }
            put(1, run, value.into());
            run = 0;
        }
        if run > 0 || block.is_none() {
            put(1, 0, 0);
        }
    }
}
