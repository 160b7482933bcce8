//! Conversion between runs and rows of bytes, which transposes the picture.
//!
//! Both directions handle only the places where the picture changes, as runs do. A row equals the row above it except
//! for the changes between them. So runs are written as changes and then added up row by row; in the other direction,
//! differences between rows are collected and sorted by column. Whole registers are added or compared at once. No code
//! walks down a column, where each byte is in a different cache line.

use super::rle::{Changes, Rle};

/// Columns that are processed at once. Their changes are sorted before the next columns are processed: noise changes
/// everywhere, and its changes would take many times the memory of the picture. 256 columns are still four cache lines
/// of each row.
const STRIP: usize = 256;

impl Rle {
    /// `[height, width]` bytes, row after row: 1 for pixels that are set, otherwise 0.
    ///
    /// ```
    /// # use infeed::dataset::Rle;
    /// assert_eq!(Rle::new([2, 2], vec![1, 2, 1])?.to_dense(), [0, 1, 1, 0]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    #[must_use]
    pub fn to_dense(&self) -> Vec<u8> {
        let [height, width] = self.size().map(|n| n as usize);
        let mut out = vec![0; height * width];
        self.mark(&mut out, width, [0, 0]);
        out
    }

    /// The same, written into existing memory.
    ///
    /// # Panics
    /// If `out` does not have height × width bytes.
    ///
    /// ```
    /// # use infeed::dataset::Rle;
    /// let mut out = [7; 4];
    /// Rle::new([2, 2], vec![1, 2, 1])?.write_dense(&mut out);
    /// assert_eq!(out, [0, 1, 1, 0]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn write_dense(&self, out: &mut [u8]) {
        let [height, width] = self.size().map(|n| n as usize);
        assert_eq!(out.len(), height * width, "bytes for a mask of {height}x{width}");
        out.fill(0);
        self.mark(out, width, [0, 0]);
    }

    /// Sets a bit in each byte of `[height, width]` where this mask is set; other bytes are not changed.
    #[doc(hidden)]
    pub fn set_bit(&self, plane: &mut [u8], bit: u8) {
        let [height, width] = self.size().map(|n| n as usize);
        assert_eq!(plane.len(), height * width, "bytes for a mask of {height}x{width}");
        let Some([left, top, right, bottom]) = self.bounds().map(|bounds| bounds.map(|n| n as usize)) else { return };
        // Most objects are small: only their box is added up, apart from the other bits.
        let mut marked = vec![0; (right - left) * (bottom - top)];
        self.mark(&mut marked, right - left, [left, top]);
        for (row, marked) in plane[top * width..].chunks_mut(width).zip(marked.chunks(right - left)) {
            for (byte, marked) in row[left..right].iter_mut().zip(marked) {
                *byte |= marked << bit;
            }
        }
    }

    /// Writes 1 for each pixel that is set. `rows` are zeros, `width` bytes a row, and begin with the pixel (left, top)
    /// of the mask. No set pixel may be left of it, above it, or beyond the rows.
    fn mark(&self, rows: &mut [u8], width: usize, [left, top]: [usize; 2]) {
        let height = u64::from(self.size()[0]);
        let mut change = |x: u64, y: u64| {
            // A run that ends where the rows end changes nothing in them.
            let at = (y as usize - top) * width + (x as usize - left);
            if let Some(byte) = rows.get_mut(at) {
                *byte ^= 1;
            }
        };
        for run in self.ones() {
            change(run.start / height, run.start % height);
            let last = (run.end - 1) / height;
            for x in run.start / height + 1..=last {
                change(x, 0);
            }
            // Each column starts with 0, so the bottom of a column ends no run.
            if run.end % height != 0 {
                change(last, run.end % height);
            }
        }
        let (mut above, mut below) = rows.split_at_mut(width.min(rows.len()));
        while !below.is_empty() {
            let (row, rest) = below.split_at_mut(width);
            for (byte, above) in row.iter_mut().zip(&*above) {
                *byte ^= above;
            }
            (above, below) = (row, rest);
        }
    }

    /// The runs of `[height, width]` bytes, row after row; every byte that is not 0 is set.
    ///
    /// # Panics
    /// If `data` does not have height × width bytes.
    ///
    /// ```
    /// # use infeed::dataset::Rle;
    /// assert_eq!(Rle::from_dense([2, 2], &[0, 1, 255, 0]).counts(), [1, 2, 1]);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    #[must_use]
    pub fn from_dense(size: [u32; 2], data: &[u8]) -> Self {
        let plane: Vec<u8> = data.iter().map(|byte| u8::from(*byte != 0)).collect();
        let [only, ..] = trace(size, &plane, 1);
        only.end(size)
    }

    /// The runs of one bit of each byte of `[height, width]`.
    #[cfg(test)]
    fn from_bit(size: [u32; 2], plane: &[u8], bit: u8) -> Self {
        let of = trace(size, plane, 1 << bit).into_iter().nth(usize::from(bit));
        of.expect("a byte has 8 bits").end(size)
    }

    /// The runs of the lowest `count` bits of each byte, the lowest bit first, in one pass.
    #[doc(hidden)]
    pub fn from_bits(size: [u32; 2], plane: &[u8], count: usize) -> Vec<Self> {
        let count = count.min(8);
        let of = trace(size, plane, ((1_u16 << count) - 1) as u8);
        of.into_iter().take(count).map(|changes| changes.end(size)).collect()
    }
}

/// A pixel that differs from the one above it, and the bits that differ.
struct Change {
    x: u32,
    y: u32,
    bits: u8,
}

/// The places where each of these bits changes, down the columns.
fn trace(size: [u32; 2], plane: &[u8], bits: u8) -> [Changes; 8] {
    let [height, width] = size.map(|n| n as usize);
    assert_eq!(plane.len(), height * width, "bytes for a mask of {height}x{width}");
    let mut made: [Changes; 8] = Default::default();
    let mut state = 0;
    let mut turn = |place: usize, mut bits: u8| {
        while bits != 0 {
            made[bits.trailing_zeros() as usize].at(place as u64);
            bits &= bits - 1;
        }
    };
    let (mut found, mut ordered) = (Vec::new(), Vec::new());
    for left in (0..if height == 0 { 0 } else { width }).step_by(STRIP) {
        let columns = left..width.min(left + STRIP);
        found.clear();
        let rows = || plane.chunks_exact(width).map(|row| &row[columns.clone()]);
        for (y, (above, row)) in rows().zip(rows().skip(1)).enumerate() {
            differences(above, row, bits, |x, bits| found.push(Change { x, y: y as u32 + 1, bits }));
        }
        // Sorted by column; within a column they are in order already.
        let mut starts = [0; STRIP + 1];
        for change in &found {
            starts[change.x as usize + 1] += 1;
        }
        for x in 0..STRIP {
            starts[x + 1] += starts[x];
        }
        ordered.clear();
        ordered.resize(found.len(), (0, 0));
        let mut next = starts;
        for Change { x, y, bits } in &found {
            ordered[next[*x as usize]] = (*y, *bits);
            next[*x as usize] += 1;
        }
        for x in columns {
            // A column continues with the bits at the bottom of the previous one.
            let first = plane[x] & bits;
            turn(x * height, state ^ first);
            state = first;
            for (y, bits) in &ordered[starts[x - left]..starts[x - left + 1]] {
                turn(x * height + *y as usize, *bits);
                state ^= bits;
            }
        }
    }
    made
}

/// Calls `tell` for each place where two rows differ in these bits.
fn differences(above: &[u8], row: &[u8], bits: u8, mut tell: impl FnMut(u32, u8)) {
    // Eight pixels at once: nearly all equal the ones above them.
    let ((above, above_end), (row, row_end)) = (above.as_chunks::<8>(), row.as_chunks::<8>());
    let wide = u64::from_le_bytes([bits; 8]);
    for (i, (above, row)) in above.iter().zip(row).enumerate() {
        let mut differ = (u64::from_le_bytes(*above) ^ u64::from_le_bytes(*row)) & wide;
        while differ != 0 {
            let byte = differ.trailing_zeros() / 8;
            tell(i as u32 * 8 + byte, (differ >> (8 * byte)) as u8);
            differ &= !(0xff << (8 * byte));
        }
    }
    for (x, (above, row)) in (above.len() * 8..).zip(above_end.iter().zip(row_end)) {
        let differ = (above ^ row) & bits;
        if differ != 0 {
            tell(x as u32, differ);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// By pixels.
    fn dense(rle: &Rle) -> Vec<u8> {
        let [height, width] = rle.size().map(|n| n as usize);
        let down: Vec<u8> =
            rle.counts().iter().enumerate().flat_map(|(i, n)| vec![(i % 2) as u8; *n as usize]).collect();
        (0..height * width).map(|at| down[at % width * height + at / width]).collect()
    }

    /// Runs as files may have them: also of no length.
    fn any_rle() -> impl Strategy<Value = Rle> {
        let counts = prop::collection::vec(prop_oneof![3 => 0_u32..9, 1 => 0_u32..90], 1..60);
        (1_u32..40, counts).prop_map(|(height, mut counts)| {
            let covered: u32 = counts.iter().sum();
            let width = covered.div_ceil(height);
            counts.push(height * width - covered);
            Rle::new([height, width], counts).unwrap()
        })
    }

    /// Wider than a strip now and then.
    fn any_plane() -> impl Strategy<Value = ([u32; 2], Vec<u8>)> {
        let size = prop_oneof![4 => (0_u32..30, 0_u32..40), 1 => (1_u32..4, 200_u32..600)];
        let byte = prop_oneof![6 => Just(0_u8), 6 => Just(255_u8), 1 => any::<u8>()];
        size.prop_flat_map(move |(height, width)| {
            let bytes = prop::collection::vec(byte.clone(), (height * width) as usize);
            (Just([height, width]), bytes)
        })
    }

    #[test]
    fn pictures_without_pixels_have_one_run() {
        for size in [[0, 0], [0, 5], [5, 0]] {
            assert_eq!(Rle::from_dense(size, &[]).counts(), [0]);
            assert!(Rle::from_dense(size, &[]).to_dense().is_empty());
            assert_eq!(Rle::from_bits(size, &[], 8).len(), 8);
            Rle::new(size, vec![]).unwrap().set_bit(&mut [], 3);
        }
    }

    proptest! {
        #[test]
        fn bytes_are_the_runs_turned(rle in any_rle()) {
            let bytes = rle.to_dense();
            prop_assert_eq!(&bytes, &dense(&rle));
            prop_assert_eq!(rle.area(), bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>());
            let mut again = vec![9; bytes.len()];
            rle.write_dense(&mut again);
            prop_assert_eq!(&again, &bytes);
            let back = Rle::from_dense(rle.size(), &bytes);
            prop_assert!(!back.counts()[1..].contains(&0));
            prop_assert_eq!(back.bounds(), rle.bounds());
            prop_assert_eq!(back.to_dense(), bytes);
        }

        #[test]
        fn bytes_come_back((size, plane) in any_plane()) {
            let set: Vec<u8> = plane.iter().map(|byte| u8::from(*byte != 0)).collect();
            prop_assert_eq!(Rle::from_dense(size, &plane).to_dense(), set);
        }

        #[test]
        fn bits_come_back((size, plane) in any_plane(), count in 0_usize..10) {
            let bits = Rle::from_bits(size, &plane, count);
            prop_assert_eq!(bits.len(), count.min(8));
            let mut back = vec![0; plane.len()];
            for (bit, rle) in (0..).zip(&bits) {
                prop_assert_eq!(rle, &Rle::from_bit(size, &plane, bit));
                rle.set_bit(&mut back, bit);
            }
            let kept = ((1_u16 << bits.len()) - 1) as u8;
            let expected: Vec<u8> = plane.iter().map(|byte| byte & kept).collect();
            prop_assert_eq!(back, expected);
        }

        #[test]
        fn a_bit_leaves_the_others((size, mut plane) in any_plane(), bit in 0_u8..8, seed: u64) {
            let mask: Vec<u8> = (0..plane.len()).map(|i| (seed >> (i % 64)) as u8 & 1).collect();
            let before = plane.clone();
            Rle::from_dense(size, &mask).set_bit(&mut plane, bit);
            let expected: Vec<u8> = before.iter().zip(&mask).map(|(byte, mask)| byte | mask << bit).collect();
            prop_assert_eq!(plane, expected);
        }
    }
}
