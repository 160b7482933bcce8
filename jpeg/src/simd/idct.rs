//! The inverse DCT of JPEG, whole and at 1/2, 1/4 and 1/8 of the size.
//!
//! The transform at full size computes what libjpeg's accurate integer transform (`jidctint`) does, so that decoded
//! values equal those of all decoders that use libjpeg. The four products of each odd output are one row of a matrix,
//! which 16-bit multiply-add instructions process two at a time. Modulo 2^32 the sums are the same.
//!
//! The reduced transforms have as many points as samples, and use only the lowest coefficients.

use super::{level::Level, record::Record};
use crate::order::natural;

/// A block of coefficients in natural order, followed by room for coefficients that damaged data writes after the last
/// one.
pub(crate) type Block = [i16; 128];

/// Transforms blocks of coefficients to samples, with the best instructions of this machine or those of a level.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idct {
    whole: Transform,
    half: Transform,
    parts: TransformParts,
}

/// Coefficients, their quantisation table, the samples to write, and the distance of their rows.
type Transform = fn(&[i16; 64], &[i16; 64], &mut [u8], usize);

/// The same for a progressive file: the first coefficient, the other values of first scans, and the added bits.
type TransformParts = fn(Parts<'_>, &[i16; 64], &mut [u8], usize);
pub(crate) type Parts<'a> = (i16, &'a [i16; 64], &'a Record);

impl Default for Idct {
    fn default() -> Self {
        Self::with_level(Level::Best)
    }
}

impl Idct {
    /// Uses at most the instructions of `level`. All levels give the same bits.
    #[must_use]
    pub(crate) fn with_level(level: Level) -> Self {
        #[cfg(target_arch = "x86_64")]
        if level.avx2() {
            return Self { whole: avx2::whole, half: avx2::half, parts: avx2::parts };
        }
        #[cfg(target_arch = "aarch64")]
        if level != Level::Portable && std::arch::is_aarch64_feature_detected!("neon") {
            return Self {
                whole: neon::whole,
                half,
                parts: |parts, quant, out, pitch| neon::whole(&merge(parts), quant, out, pitch),
            };
        }
        let _ = level;
        Self { whole: portable, half, parts: |parts, quant, out, pitch| portable(&merge(parts), quant, out, pitch) }
    }

    /// Writes `side` x `side` samples (1, 2, 4 or 8) of the block, in rows `pitch` apart.
    ///
    /// # Panics
    /// If `out` ends before the last sample.
    #[inline(always)]
    pub(crate) fn run(&self, side: usize, coefs: &Block, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let coefs = coefs.first_chunk().expect("64 of 128");
        match side {
            8 => (self.whole)(coefs, quant, out, pitch),
            4 => (self.half)(coefs, quant, out, pitch),
            2 => quarter(coefs, quant, out, pitch),
            _ => out[0] = mean(coefs[0], quant[0]),
        }
    }

    /// The same for a progressive file's block.
    #[inline(always)]
    pub(crate) fn run_parts(&self, side: usize, parts: Parts<'_>, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        match side {
            8 => (self.parts)(parts, quant, out, pitch),
            4 => (self.half)(&merge(parts), quant, out, pitch),
            2 => quarter(&merge(parts), quant, out, pitch),
            _ => out[0] = mean(parts.0, quant[0]),
        }
    }

    /// The one sample of a block at an eighth of its size.
    #[inline(always)]
    pub(crate) fn mean(first: i16, quant: &[i16; 64]) -> u8 {
        mean(first, quant[0])
    }

    /// The samples of a block whose only coefficient is the first: `side` x `side` times its mean.
    #[inline(always)]
    pub(crate) fn flat(side: usize, first: i16, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let value = mean(first, quant[0]);
        for row in out.chunks_mut(pitch).take(side) {
            row[..side].fill(value);
        }
    }
}

/// A block's coefficients, merged from their parts.
pub(crate) fn merge((first, values, record): Parts<'_>) -> [i16; 64] {
    let mut block = *values;
    let mut left = record.added[0] | record.added[1];
    while left != 0 {
        let place = left.trailing_zeros();
        let bit = |word: u64| (word >> place & 1) as i16;
        let value = &mut block[natural(place as usize)];
        let size = bit(record.added[0]) + 2 * bit(record.added[1]);
        let negative = *value < 0 || bit(record.negative) != 0;
        *value = value.wrapping_add(if negative { -size } else { size });
        left &= left - 1;
    }
    block[0] = first;
    block
}

/// Fraction bits of the constants.
const BITS: u32 = 13;
/// Fraction bits that are kept between the passes.
const KEPT: u32 = 2;
/// Pass over columns: the rounding term and the shift.
const FIRST: (i32, u32) = (1 << (BITS - KEPT - 1), BITS - KEPT);
/// Pass over rows: the rounding term, including the 128 that is added to samples, and the shift.
const SECOND: (i32, u32) = ((128 << 18) + (1 << 17), BITS + KEPT + 3);

/// cos(π/4) twice: inputs 0 and 4.
const ONE: i16 = 1 << BITS;
/// Weights of inputs 2 and 6, which are added to and subtracted from the sums of inputs 0 and 4.
const EVEN: [[i16; 2]; 2] = [[4433 + 6270, 4433], [4433, 4433 - 15137]];
/// Weights of inputs 1, 3, 5 and 7, which are added to outputs 0 to 3 and subtracted from outputs 7 to 4.
const ODD: [[i16; 4]; 4] =
    [[11363, 9633, 6437, 2260], [9633, -2259, -11362, -6436], [6437, -11362, 2261, 9633], [2260, -6436, 9633, -11363]];

/// The mean of a block: the value of all its samples if it has no other coefficient.
#[inline(always)]
fn mean(first: i16, quant: i16) -> u8 {
    // Between the passes, 16 bits hold four times the value.
    let four = saturate(i32::from(first.wrapping_mul(quant)) << KEPT);
    (((i32::from(four) << BITS) + SECOND.0) >> SECOND.1).clamp(0, 255) as u8
}

#[inline(always)]
fn saturate(value: i32) -> i16 {
    value.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// Defines the transform: eight lanes at a time, for no particular instruction set.
fn portable(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let mut rows = [[0i16; 8]; 8];
    for (row, (coefs, quant)) in rows.iter_mut().zip(coefs.as_chunks::<8>().0.iter().zip(quant.as_chunks::<8>().0)) {
        for i in 0..8 {
            row[i] = coefs[i].wrapping_mul(quant[i]);
        }
    }
    let columns = transpose(&pass(&rows, FIRST).map(|row| row.map(saturate)));
    let samples = pass(&columns, SECOND);
    for (y, row) in out.chunks_mut(pitch).take(8).enumerate() {
        for x in 0..8 {
            row[x] = samples[x][y].clamp(0, 255) as u8;
        }
    }
}

fn transpose(rows: &[[i16; 8]; 8]) -> [[i16; 8]; 8] {
    std::array::from_fn(|x| std::array::from_fn(|y| rows[y][x]))
}

#[inline(always)]
fn pass(input: &[[i16; 8]; 8], (round, shift): (i32, u32)) -> [[i32; 8]; 8] {
    let mut out = [[0i32; 8]; 8];
    for i in 0..8 {
        let at = |row: usize| i32::from(input[row][i]);
        let pair = |a: i32, b: i32, [wa, wb]: [i16; 2]| (a * i32::from(wa)).wrapping_add(b * i32::from(wb));
        let sums = [[ONE, ONE], [ONE, -ONE]].map(|by| pair(at(0), at(4), by).wrapping_add(round));
        let even = EVEN.map(|by| pair(at(2), at(6), by));
        let even = [
            sums[0].wrapping_add(even[0]),
            sums[1].wrapping_add(even[1]),
            sums[1].wrapping_sub(even[1]),
            sums[0].wrapping_sub(even[0]),
        ];
        for (n, [a, b, c, d]) in ODD.into_iter().enumerate() {
            let odd = pair(at(1), at(3), [a, b]).wrapping_add(pair(at(5), at(7), [c, d]));
            out[n][i] = even[n].wrapping_add(odd) >> shift;
            out[7 - n][i] = even[n].wrapping_sub(odd) >> shift;
        }
    }
    out
}

/// √2 cos(π/8) and √2 cos(3π/8): the weights of the odd coefficients of four.
const HALF_ODD: [i16; 2] = [10703, 4433];

/// 4 x 4 samples.
fn half(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    const ODD: [i32; 2] = [HALF_ODD[0] as i32, HALF_ODD[1] as i32];
    let pass = |[a, b, c, d]: [i32; 4], (round, shift): (i32, u32)| {
        let (sum, difference) = (((a + c) << BITS) + round, ((a - c) << BITS) + round);
        let (outer, inner) = (b * ODD[0] + d * ODD[1], b * ODD[1] - d * ODD[0]);
        [sum + outer, difference + inner, difference - inner, sum - outer].map(|v| v >> shift)
    };
    let value = |y: usize, x: usize| i32::from(coefs[8 * y + x].wrapping_mul(quant[8 * y + x]));
    let columns: [[i32; 4]; 4] = std::array::from_fn(|x| {
        pass([value(0, x), value(1, x), value(2, x), value(3, x)], FIRST).map(|v| saturate(v).into())
    });
    for (y, row) in out.chunks_mut(pitch).take(4).enumerate() {
        let samples = pass([columns[0][y], columns[1][y], columns[2][y], columns[3][y]], SECOND);
        row[..4].copy_from_slice(&samples.map(|v| v.clamp(0, 255) as u8));
    }
}

/// 2 x 2 samples: both weights are 1.
fn quarter(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
    let value = |at: usize| i32::from(coefs[at].wrapping_mul(quant[at]));
    let [a, b, c, d] = [value(0), value(1), value(8), value(9)];
    let samples = [[a + b + c + d, a - b + c - d], [a + b - c - d, a - b - c + d]];
    for (row, samples) in out.chunks_mut(pitch).zip(samples) {
        row[..2].copy_from_slice(&samples.map(|v| (((v + 4) >> 3) + 128).clamp(0, 255) as u8));
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{EVEN, FIRST, HALF_ODD, ODD, ONE, Parts, Record, SECOND};
    use crate::order::NATURAL;

    pub(super) fn whole(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        // SAFETY: `Idct::with_level` gives this function out only where the processor has AVX2.
        unsafe { transform(coefs, quant, out, pitch) }
    }

    pub(super) fn half(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        // SAFETY: likewise.
        unsafe { transform_half(coefs, quant, out, pitch) }
    }

    pub(super) fn parts(parts: Parts<'_>, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        // SAFETY: likewise.
        unsafe { transform_parts(parts, quant, out, pitch) }
    }

    /// For each coefficient in natural order, the byte of a 64-bit word that holds its bit, and that bit in the byte.
    static BYTES: [u8; 64] = bits()[0];
    static BITS: [u8; 64] = bits()[1];

    const fn bits() -> [[u8; 64]; 2] {
        let mut out = [[0; 64]; 2];
        let mut place = 0;
        while place < 64 {
            let at = NATURAL[place] as usize;
            (out[0][at], out[1][at]) = (place as u8 / 8, 1 << (place % 8));
            place += 1;
        }
        out
    }

    /// The bits of a word for 32 coefficients in natural order, each as a byte of all ones or all zeros.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn spread(word: u64, bytes: __m256i, bits: __m256i) -> __m256i {
        let word = _mm256_shuffle_epi8(_mm256_set1_epi64x(word as i64), bytes);
        _mm256_cmpeq_epi8(_mm256_and_si256(word, bits), bits)
    }

    /// Coefficients outside the first four rows and columns, in the file's order.
    const OUTER: u64 = {
        let (mut outer, mut place) = (0, 0);
        while place < 64 {
            if NATURAL[place] / 8 > 3 || NATURAL[place] % 8 > 3 {
                outer |= 1 << place;
            }
            place += 1;
        }
        outer
    };

    /// Added bits are merged into the values while these are loaded for the transform. Four of ten blocks of
    /// photographs have no coefficients outside of the first four rows and columns: they need half of the loads, and a
    /// smaller transform.
    #[target_feature(enable = "avx2")]
    fn transform_parts((first, values, record): Parts<'_>, quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let [upper, lower] = [0, 1].map(|n| (values.as_chunks::<32>().0[n], quant.as_chunks::<32>().0[n]));
        let rows = || merge_half(0, upper, record, Some(first));
        if (record.nonzero | record.added[0] | record.added[1]) & OUTER == 0 {
            store(transform_corner(rows()), out, pitch);
        } else {
            let [[a, b, c, d], [e, f, g, h]] = [rows(), merge_half(1, lower, record, None)];
            store(transform_rows([a, b, c, d, e, f, g, h]), out, pitch);
        }
    }

    /// Four rows of coefficients: the values with their added bits, multiplied by the quantisation table.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn merge_half(
        half: usize,
        (values, quant): ([i16; 32], [i16; 32]),
        record: &Record,
        first: Option<i16>,
    ) -> [__m128i; 4] {
        let [bytes, bits] = [&BYTES, &BITS].map(|table| bytemuck::cast(table.as_chunks::<32>().0[half]));
        let one = _mm256_and_si256(spread(record.added[0], bytes, bits), _mm256_set1_epi8(1));
        let two = _mm256_and_si256(spread(record.added[1], bytes, bits), _mm256_set1_epi8(2));
        let sizes = _mm256_or_si256(one, two);
        let signs = _mm256_or_si256(spread(record.negative, bytes, bits), _mm256_set1_epi8(1));
        let two_rows = |values: __m256i, quant: __m256i, sizes: __m128i, signs: __m128i, first: Option<i16>| {
            // Away from zero, or by the sign bit if there is no value yet.
            let sign = _mm256_or_si256(values, _mm256_cvtepi8_epi16(signs));
            let mut sum = _mm256_add_epi16(values, _mm256_sign_epi16(_mm256_cvtepu8_epi16(sizes), sign));
            if let Some(first) = first {
                sum = _mm256_insert_epi16::<0>(sum, first);
            }
            let rows = _mm256_mullo_epi16(sum, quant);
            [_mm256_castsi256_si128(rows), _mm256_extracti128_si256::<1>(rows)]
        };
        let ([v, w], [p, q]): ([__m256i; 2], [__m256i; 2]) = (bytemuck::cast(values), bytemuck::cast(quant));
        let [a, b] = two_rows(v, p, _mm256_castsi256_si128(sizes), _mm256_castsi256_si128(signs), first);
        let upper = [_mm256_extracti128_si256::<1>(sizes), _mm256_extracti128_si256::<1>(signs)];
        let [c, d] = two_rows(w, q, upper[0], upper[1], None);
        [a, b, c, d]
    }

    /// For four rows of four: two sums at a time in the first pass.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transform_corner(rows: [__m128i; 4]) -> [__m256i; 4] {
        const EVENS: [[i16; 2]; 4] = [[ONE, EVEN[0][0]], [ONE, EVEN[1][0]], [ONE, -EVEN[1][0]], [ONE, -EVEN[0][0]]];
        let word = |[a, b]: [i16; 2]| i32::from(b) << 16 | i32::from(a as u16);
        let lanes = |a, b| _mm256_set_m128i(_mm_set1_epi32(word(b)), _mm_set1_epi32(word(a)));
        // Outputs `n` and 7 - `n` in one lane, `m` and 7 - `m` in the other.
        let outputs = |even, odd, n: usize, m: usize, (round, shift): (i32, u32)| {
            let shift = _mm_cvtsi32_si128(shift as i32);
            let even = _mm256_add_epi32(_mm256_madd_epi16(even, lanes(EVENS[n], EVENS[m])), _mm256_set1_epi32(round));
            let odds = |n: usize| [ODD[n][0], ODD[n][1]];
            let odd = _mm256_madd_epi16(odd, lanes(odds(n), odds(m)));
            let (sum, difference) = (_mm256_add_epi32(even, odd), _mm256_sub_epi32(even, odd));
            [_mm256_sra_epi32(sum, shift), _mm256_sra_epi32(difference, shift)]
        };
        // Columns 0 to 3 of rows 0 and 2, and of rows 1 and 3.
        let even = _mm256_broadcastsi128_si256(_mm_unpacklo_epi16(rows[0], rows[2]));
        let odd = _mm256_broadcastsi128_si256(_mm_unpacklo_epi16(rows[1], rows[3]));
        let [rows_01, rows_76] = outputs(even, odd, 0, 1, FIRST);
        let [rows_23, rows_54] = outputs(even, odd, 2, 3, FIRST);
        // Rows 0, 2 | 1, 3 and 5, 7 | 4, 6, each with columns 0 and 2 side by side, and 1 and 3.
        let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        let upper = _mm256_shuffle_epi8(_mm256_packs_epi32(rows_01, rows_23), _mm256_broadcastsi128_si256(order));
        let lower = _mm256_shuffle_epi8(_mm256_packs_epi32(rows_54, rows_76), _mm256_broadcastsi128_si256(order));
        // Rows 0, 1 | 2, 3 and 4, 5 | 6, 7; then 0, 1 | 4, 5 and 2, 3 | 6, 7.
        let upper = _mm256_permute4x64_epi64::<0b11_01_10_00>(upper);
        let lower = _mm256_permute4x64_epi64::<0b01_11_00_10>(lower);
        let left = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x20>(upper, lower));
        let right = _mm256_castsi256_ps(_mm256_permute2x128_si256::<0x31>(upper, lower));
        let even = _mm256_castps_si256(_mm256_shuffle_ps::<0x88>(left, right));
        let odd = _mm256_castps_si256(_mm256_shuffle_ps::<0xdd>(left, right));
        let mut out = [_mm256_setzero_si256(); 8];
        for n in 0..4 {
            [out[n], out[7 - n]] = outputs(even, odd, n, n, SECOND);
        }
        let pack = |n: usize| _mm256_packs_epi32(out[n], out[n + 1]);
        [pack(0), pack(2), pack(4), pack(6)]
    }

    #[target_feature(enable = "avx2")]
    fn transform_half(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let (coefs, quant) = (coefs.as_chunks::<8>().0, quant.as_chunks::<8>().0);
        let row = |y: usize| _mm_mullo_epi16(bytemuck::cast(coefs[y]), bytemuck::cast(quant[y]));
        let two = |a: __m128i, b: __m128i| _mm_unpacklo_epi16(a, b);
        // Rows 0 and 1, 2 and 3; then in each row columns 0 and 2 side by side, and 1 and 3.
        let [upper, lower] = pass_half([two(row(0), row(2)), two(row(1), row(3))], FIRST);
        let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        let rows = [upper, lower].map(|two| _mm_castsi128_ps(_mm_shuffle_epi8(two, order)));
        let (even, odd) = (_mm_shuffle_ps::<0x88>(rows[0], rows[1]), _mm_shuffle_ps::<0xdd>(rows[0], rows[1]));
        let [left, right] = pass_half([_mm_castps_si128(even), _mm_castps_si128(odd)], SECOND);
        let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        let rows: [[u8; 4]; 4] = bytemuck::cast(_mm_shuffle_epi8(_mm_packus_epi16(left, right), order));
        // One check for all rows.
        let out = &mut out[..3 * pitch + 4];
        for (y, row) in rows.into_iter().enumerate() {
            out[y * pitch..y * pitch + 4].copy_from_slice(&row);
        }
    }

    /// From inputs 0 and 2 alternating, and 1 and 3: outputs 0 and 1, 2 and 3, saturated.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pass_half([even, odd]: [__m128i; 2], (round, shift): (i32, u32)) -> [__m128i; 2] {
        let dot =
            |pairs, [a, b]: [i16; 2]| _mm_madd_epi16(pairs, _mm_set1_epi32(i32::from(b) << 16 | i32::from(a as u16)));
        let round = _mm_set1_epi32(round);
        let (sum, difference) =
            (_mm_add_epi32(dot(even, [ONE, ONE]), round), _mm_add_epi32(dot(even, [ONE, -ONE]), round));
        let (outer, inner) = (dot(odd, HALF_ODD), dot(odd, [HALF_ODD[1], -HALF_ODD[0]]));
        let shift = _mm_cvtsi32_si128(shift as i32);
        let out = [
            _mm_add_epi32(sum, outer),
            _mm_add_epi32(difference, inner),
            _mm_sub_epi32(difference, inner),
            _mm_sub_epi32(sum, outer),
        ]
        .map(|v| _mm_sra_epi32(v, shift));
        [_mm_packs_epi32(out[0], out[1]), _mm_packs_epi32(out[2], out[3])]
    }

    #[target_feature(enable = "avx2")]
    fn transform(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let (coefs, quant) = (coefs.as_chunks::<8>().0, quant.as_chunks::<8>().0);
        let mut rows = [_mm_setzero_si128(); 8];
        for (row, (coefs, quant)) in rows.iter_mut().zip(coefs.iter().zip(quant)) {
            *row = _mm_mullo_epi16(bytemuck::cast(*coefs), bytemuck::cast(*quant));
        }
        store(transform_rows(rows), out, pitch);
    }

    /// Columns 0 and 1, 2 and 3, … of the samples, four rows of each in a lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transform_rows(rows: [__m128i; 8]) -> [__m256i; 4] {
        // Each lane of 128 bits holds columns 0 to 3 or 4 to 7 of two rows.
        let [a, b, c, d] = pass(rows, FIRST);
        let [a, b, c, d] = [a, b, c, d].map(|two| zip_rows(two));
        let (lo, hi) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (lo2, hi2) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        // Columns 0 and 4, 1 and 5, …
        let columns = [
            _mm256_unpacklo_epi64(lo, lo2),
            _mm256_unpackhi_epi64(lo, lo2),
            _mm256_unpacklo_epi64(hi, hi2),
            _mm256_unpackhi_epi64(hi, hi2),
        ];
        let low = columns.map(|c| _mm256_castsi256_si128(c));
        let high = columns.map(|c| _mm256_extracti128_si256::<1>(c));
        pass([low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]], SECOND)
    }

    /// Writes the columns as rows of bytes.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn store([a, b, c, d]: [__m256i; 4], out: &mut [u8], pitch: usize) {
        // Columns 0 to 3 and 4 to 7 as bytes, four rows in each lane.
        let (left, right) = (transpose_4(_mm256_packus_epi16(a, b)), transpose_4(_mm256_packus_epi16(c, d)));
        let (upper, lower) = (_mm256_unpacklo_epi32(left, right), _mm256_unpackhi_epi32(left, right));
        let [upper, lower]: [[[u8; 8]; 4]; 2] = [bytemuck::cast(upper), bytemuck::cast(lower)];
        let rows = [upper[0], upper[1], lower[0], lower[1], upper[2], upper[3], lower[2], lower[3]];
        // One check for all rows.
        let out = &mut out[..7 * pitch + 8];
        for (y, row) in rows.into_iter().enumerate() {
            out[y * pitch..y * pitch + 8].copy_from_slice(&row);
        }
    }

    /// Rows 0 and 1, 2 and 3, … of the result, each pair packed to 16 bits.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pass(input: [__m128i; 8], (round, shift): (i32, u32)) -> [__m256i; 4] {
        let round = _mm256_set1_epi32(round);
        let shift = _mm_cvtsi32_si128(shift as i32);
        let (p04, p26) = (pairs(input[0], input[4]), pairs(input[2], input[6]));
        let (p13, p57) = (pairs(input[1], input[3]), pairs(input[5], input[7]));
        let sum = _mm256_add_epi32(dot(p04, [ONE, ONE]), round);
        let difference = _mm256_add_epi32(dot(p04, [ONE, -ONE]), round);
        let (outer, inner) = (dot(p26, EVEN[0]), dot(p26, EVEN[1]));
        let even = [
            _mm256_add_epi32(sum, outer),
            _mm256_add_epi32(difference, inner),
            _mm256_sub_epi32(difference, inner),
            _mm256_sub_epi32(sum, outer),
        ];
        let mut out = [_mm256_setzero_si256(); 8];
        for n in 0..4 {
            let [a, b, c, d] = ODD[n];
            let odd = _mm256_add_epi32(dot(p13, [a, b]), dot(p57, [c, d]));
            out[n] = _mm256_sra_epi32(_mm256_add_epi32(even[n], odd), shift);
            out[7 - n] = _mm256_sra_epi32(_mm256_sub_epi32(even[n], odd), shift);
        }
        let pack = |n: usize| _mm256_packs_epi32(out[n], out[n + 1]);
        [pack(0), pack(2), pack(4), pack(6)]
    }

    /// a0 b0 a1 b1 …
    #[inline]
    #[target_feature(enable = "avx2")]
    fn pairs(a: __m128i, b: __m128i) -> __m256i {
        _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn dot(pairs: __m256i, [a, b]: [i16; 2]) -> __m256i {
        _mm256_madd_epi16(pairs, _mm256_set1_epi32(i32::from(b) << 16 | i32::from(a as u16)))
    }

    /// a0 a1 a2 a3 b0 b1 b2 b3 becomes a0 b0 a1 b1 … in each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zip_rows(two: __m256i) -> __m256i {
        let order = _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15);
        _mm256_shuffle_epi8(two, _mm256_broadcastsi128_si256(order))
    }

    /// Transposes 4 x 4 bytes in each lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn transpose_4(bytes: __m256i) -> __m256i {
        let order = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm256_shuffle_epi8(bytes, _mm256_broadcastsi128_si256(order))
    }
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use std::arch::aarch64::*;

    use super::{EVEN, FIRST, ODD, ONE, SECOND};

    pub(super) fn whole(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        // SAFETY: `Idct::with_level` gives this function out only where the processor has NEON.
        unsafe { transform(coefs, quant, out, pitch) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn load(values: &[i16; 8]) -> int16x8_t {
        // SAFETY: eight values; the load takes any alignment.
        unsafe { vld1q_s16(values.as_ptr()) }
    }

    #[target_feature(enable = "neon")]
    fn transform(coefs: &[i16; 64], quant: &[i16; 64], out: &mut [u8], pitch: usize) {
        let (coefs, quant) = (coefs.as_chunks::<8>().0, quant.as_chunks::<8>().0);
        let mut rows = [vdupq_n_s16(0); 8];
        for (row, (coefs, quant)) in rows.iter_mut().zip(coefs.iter().zip(quant)) {
            *row = vmulq_s16(load(coefs), load(quant));
        }
        let columns = transpose(pass::<{ FIRST.1 as i32 }>(rows, FIRST.0));
        // 16 bits hold the result of the second pass, saturated; only 0 to 255 matters.
        let rows = transpose(pass::<{ SECOND.1 as i32 }>(columns, SECOND.0));
        // One check for all rows.
        let out = &mut out[..7 * pitch + 8];
        for (y, row) in rows.into_iter().enumerate() {
            let row = vqmovun_s16(row);
            let out: &mut [u8; 8] = out[y * pitch..].first_chunk_mut().expect("checked above");
            // SAFETY: eight bytes; the store takes any alignment.
            unsafe { vst1_u8(out.as_mut_ptr(), row) };
        }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn pass<const SHIFT: i32>(input: [int16x8_t; 8], round: i32) -> [int16x8_t; 8] {
        let low = half::<SHIFT>(input.map(|row| vget_low_s16(row)), round);
        let high = half::<SHIFT>(input.map(|row| vget_high_s16(row)), round);
        std::array::from_fn(|n| vcombine_s16(low[n], high[n]))
    }

    /// Four columns.
    #[inline]
    #[target_feature(enable = "neon")]
    fn half<const SHIFT: i32>(x: [int16x4_t; 8], round: i32) -> [int16x4_t; 8] {
        let round = vdupq_n_s32(round);
        let pair = |sum, a, b, by: [i16; 2]| vmlal_n_s16(vmlal_n_s16(sum, a, by[0]), b, by[1]);
        let zero = vdupq_n_s32(0);
        let sums = [pair(round, x[0], x[4], [ONE, ONE]), pair(round, x[0], x[4], [ONE, -ONE])];
        let even = [pair(zero, x[2], x[6], EVEN[0]), pair(zero, x[2], x[6], EVEN[1])];
        let even = [
            vaddq_s32(sums[0], even[0]),
            vaddq_s32(sums[1], even[1]),
            vsubq_s32(sums[1], even[1]),
            vsubq_s32(sums[0], even[0]),
        ];
        let mut out = [vdup_n_s16(0); 8];
        for n in 0..4 {
            let [a, b, c, d] = ODD[n];
            let odd = pair(pair(zero, x[1], x[3], [a, b]), x[5], x[7], [c, d]);
            out[n] = vqmovn_s32(vshrq_n_s32::<SHIFT>(vaddq_s32(even[n], odd)));
            out[7 - n] = vqmovn_s32(vshrq_n_s32::<SHIFT>(vsubq_s32(even[n], odd)));
        }
        out
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn transpose(rows: [int16x8_t; 8]) -> [int16x8_t; 8] {
        // Pairs of values, then pairs of pairs, then halves.
        let two = |a, b| [vtrn1q_s16(a, b), vtrn2q_s16(a, b)].map(|v| vreinterpretq_s32_s16(v));
        let four = |a, b| [vtrn1q_s32(a, b), vtrn2q_s32(a, b)].map(|v| vreinterpretq_s64_s32(v));
        let ([a, b], [c, d]) = (two(rows[0], rows[1]), two(rows[2], rows[3]));
        let ([e, f], [g, h]) = (two(rows[4], rows[5]), two(rows[6], rows[7]));
        let ([ac, ac2], [bd, bd2]) = (four(a, c), four(b, d));
        let ([eg, eg2], [fh, fh2]) = (four(e, g), four(f, h));
        [
            vtrn1q_s64(ac, eg),
            vtrn1q_s64(bd, fh),
            vtrn1q_s64(ac2, eg2),
            vtrn1q_s64(bd2, fh2),
            vtrn2q_s64(ac, eg),
            vtrn2q_s64(bd, fh),
            vtrn2q_s64(ac2, eg2),
            vtrn2q_s64(bd2, fh2),
        ]
        .map(|v| vreinterpretq_s16_s64(v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    /// Blocks as in photographs, dense blocks, and blocks that no encoder makes.
    fn blocks() -> impl Iterator<Item = (Block, [i16; 64])> {
        (0..3000u64).map(|n| {
            let mut draws = Draws::new([4, 0, n]);
            let (mut block, mut quant) = ([0; 128], [1i16; 64]);
            let count = [1, 3, 10, 64][n as usize % 4];
            let size = [8, 200, 2000, 1 << 16][n as usize / 4 % 4];
            for _ in 0..count {
                let at = if count == 1 { 0 } else { draws.below(64) as usize };
                block[at] = (draws.below(size) as i64 - size as i64 / 2) as i16;
            }
            quant.fill_with(|| (1 + draws.below(if size > 2000 { 1 << 16 } else { 16 })) as i16);
            (block, quant)
        })
    }

    #[test]
    fn each_level_gives_the_same_samples() {
        let (best, plain) = (Idct::default(), Idct::with_level(Level::Portable));
        for (n, (block, quant)) in blocks().enumerate() {
            for side in [1, 2, 4, 8] {
                let [mut a, mut b] = [[7u8; 11 * 8]; 2];
                best.run(side, &block, &quant, &mut a, 11);
                plain.run(side, &block, &quant, &mut b, 11);
                assert_eq!(a, b, "block {n}, {side}");
                let outside = |(y, row): (usize, &[u8])| row[if y < side { side } else { 0 }..].iter().all(|v| *v == 7);
                assert!(a.chunks(11).enumerate().all(outside), "block {n}, {side} is written outside");
            }
            let [mut a, mut b] = [[7u8; 11 * 8]; 2];
            best.run(8, &block, &quant, &mut a, 11);
            if block[1..].iter().all(|&c| c == 0) {
                Idct::flat(8, block[0], &quant, &mut b, 11);
                assert_eq!(a, b, "block {n}, flat");
            }
        }
    }

    #[test]
    fn samples_are_those_of_the_definition() {
        // T.81, A.3.3, with as many points as samples.
        let exact = |block: &Block, quant: &[i16; 64], side: usize, y: usize, x: usize| -> f64 {
            let mut sum = 0.0;
            for v in 0..side {
                for u in 0..side {
                    let scale = |k: usize| if k == 0 { std::f64::consts::FRAC_1_SQRT_2 } else { 1.0 };
                    let wave = |n: usize, k: usize| {
                        ((2 * n + 1) as f64 * k as f64 * std::f64::consts::PI / (2 * side) as f64).cos()
                    };
                    let value = f64::from(block[8 * v + u]) * f64::from(quant[8 * v + u]);
                    sum += scale(u) * scale(v) * value * wave(x, u) * wave(y, v);
                }
            }
            (sum / 4.0 + 128.0).clamp(0.0, 255.0)
        };
        for (n, (block, quant)) in blocks().enumerate().filter(|(n, _)| n / 4 % 4 < 2).take(400) {
            for side in [1, 2, 4, 8] {
                let mut out = [0; 64];
                Idct::default().run(side, &block, &quant, &mut out, 8);
                for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                    let (found, exact) = (f64::from(out[8 * y + x]), exact(&block, &quant, side, y, x));
                    assert!((found - exact).abs() < 0.6, "block {n}, {side}: {found} not {exact} at {y}, {x}");
                }
            }
        }
    }
}
