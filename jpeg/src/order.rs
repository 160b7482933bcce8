//! The order of a block's coefficients in a file.

#![forbid(unsafe_code)]

/// Natural order of coefficients by their position in the file. Positions after the last one map to places that are not
/// used.
pub(crate) static NATURAL: [u8; 256] = {
    let mut order = [64; 256];
    let (mut at, mut diagonal) = (0, 0);
    while diagonal < 15 {
        let mut n = 0;
        while n <= diagonal {
            // Odd diagonals go down, even ones up.
            let (row, column) = if diagonal % 2 == 1 { (n, diagonal - n) } else { (diagonal - n, n) };
            if row < 8 && column < 8 {
                order[at] = (8 * row + column) as u8;
                at += 1;
            }
            n += 1;
        }
        diagonal += 1;
    }
    order
};

/// The place in natural order of the file's coefficient `at`.
pub(crate) fn natural(at: usize) -> usize {
    NATURAL[at & 63].into()
}
