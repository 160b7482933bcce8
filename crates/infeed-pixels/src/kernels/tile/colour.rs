//! Steps on single pixels: a table of 256 values if the result depends on one value, otherwise loops over three planes.

use super::{
    picture::Sides,
    values::{Value, clamp, truncate},
};
#[cfg(target_arch = "x86_64")]
use crate::kernels::level::Instructions;
use crate::kernels::level::{Level, at_each_level};

/// torchvision's weights for gray.
const GRAY: [f32; 3] = [0.2989, 0.587, 0.114];

at_each_level! {
    fn invert_bytes[](values: &mut [u8]) = invert_bytes_loop;
    fn invert_floats[](values: &mut [f32]) = invert_floats_loop;
    fn mask_bytes[](values: &mut [u8], mask: u8) = mask_bytes_loop;
    fn step_floats[](values: &mut [f32], levels: f32) = step_floats_loop;
    fn solarize_bytes[](values: &mut [u8], from: u8) = solarize_bytes_loop;
    fn solarize_floats[](values: &mut [f32], from: f32) = solarize_floats_loop;
    fn solarize_add_floats[](values: &mut [f32], add: f32, below: f32) = solarize_add_floats_loop;
    fn blend_floats[](values: &mut [f32], ratio: f32, bias: f32, alpha: f32) = blend_floats_loop;
    fn saturate[V: Value](r: &mut [V], g: &mut [V], b: &mut [V], ratio: f32, alpha: f32) = saturate_loop;
    fn grayscale[V: Value](r: &mut [V], g: &mut [V], b: &mut [V]) = grayscale_loop;
    fn sum_gray_bytes[](r: &[u8], g: &[u8], b: &[u8], sum: &mut u64) = sum_gray_bytes_loop;
    fn sum_bytes[](values: &[u8], sum: &mut u64) = sum_bytes_loop;
    fn sum_gray_floats[](r: &[f32], g: &[f32], b: &[f32], sum: &mut f64) = sum_gray_floats_loop;
    fn sum_floats[](values: &[f32], sum: &mut f64) = sum_floats_loop;
    fn shift_hue[V: Value](r: &mut [V], g: &mut [V], b: &mut [V], shift: f32) = shift_hue_loop;
}

/// The three planes of an RGB picture.
type Three<'a, V> = [&'a mut [V]; 3];

/// Splits a picture into its planes.
fn three<V>(values: &mut [V]) -> Three<'_, V> {
    let plane = values.len() / 3;
    let (r, rest) = values.split_at_mut(plane);
    let (g, b) = rest.split_at_mut(plane);
    [r, g, b]
}

/// One minus a factor, computed in f64 like Python before torch converts it to f32.
pub(super) fn complement(factor: f32) -> f32 {
    (1.0 - f64::from(factor)) as f32
}

/// A part of white as a byte value. Exact for a whole number divided by 255.
pub(super) fn of_white(part: f32) -> f32 {
    (f64::from(part) * 255.0) as f32
}

/// Replaces each value by its entry in the table.
pub(super) fn look_up(level: Level, values: &mut [u8], table: &[u8; 256]) {
    #[cfg(target_arch = "x86_64")]
    match level.instructions() {
        // SAFETY: the processor has the features that it is compiled for.
        Instructions::Avx512 => return unsafe { look_up_permuted(values, table) },
        // SAFETY: the same.
        Instructions::Avx2 => return unsafe { look_up_shuffled(values, table) },
        Instructions::Portable => {}
    }
    let _ = level;
    for value in values {
        *value = table[usize::from(*value)];
    }
}

/// The table is in four registers; two permutations look up 64 values.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn look_up_permuted(values: &mut [u8], table: &[u8; 256]) {
    use std::arch::x86_64::{
        __m512i, _mm512_loadu_si512, _mm512_mask_blend_epi8, _mm512_movepi8_mask, _mm512_permutex2var_epi8,
        _mm512_storeu_si512,
    };
    let load = |bytes: &[u8; 64]| -> __m512i {
        // SAFETY: an array of 64 bytes is read.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    };
    let parts = table.as_chunks::<64>().0;
    let [a, b, c, d] = [load(&parts[0]), load(&parts[1]), load(&parts[2]), load(&parts[3])];
    let (chunks, rest) = values.as_chunks_mut::<64>();
    for chunk in chunks {
        let index = load(chunk);
        let low = _mm512_permutex2var_epi8(a, index, b);
        let high = _mm512_permutex2var_epi8(c, index, d);
        let found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high);
        // SAFETY: an array of 64 bytes is written.
        unsafe { _mm512_storeu_si512(chunk.as_mut_ptr().cast(), found) };
    }
    for value in rest {
        *value = table[usize::from(*value)];
    }
}

/// Sixteen shuffles of 16 entries each; only one can give a result other than 0. 22 µs for 224×224×3; single loads take
/// 55 µs.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn look_up_shuffled(values: &mut [u8], table: &[u8; 256]) {
    use std::arch::x86_64::{
        __m256i, _mm_loadu_si128, _mm256_adds_epu8, _mm256_broadcastsi128_si256, _mm256_loadu_si256, _mm256_or_si256,
        _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_storeu_si256, _mm256_sub_epi8,
    };
    let mut parts = [_mm256_setzero_si256(); 16];
    for (part, entries) in parts.iter_mut().zip(table.as_chunks::<16>().0) {
        // SAFETY: an array of 16 bytes is read.
        *part = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(entries.as_ptr().cast()) });
    }
    let (chunks, rest) = values.as_chunks_mut::<32>();
    for chunk in chunks {
        // SAFETY: an array of 32 bytes is read.
        let mut index: __m256i = unsafe { _mm256_loadu_si256(chunk.as_ptr().cast()) };
        let mut found = _mm256_setzero_si256();
        for part in parts {
            // For values above 15 this sets the bit with which a shuffle gives 0.
            let within = _mm256_adds_epu8(index, _mm256_set1_epi8(0x70));
            found = _mm256_or_si256(found, _mm256_shuffle_epi8(part, within));
            index = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
        }
        // SAFETY: an array of 32 bytes is written.
        unsafe { _mm256_storeu_si256(chunk.as_mut_ptr().cast(), found) };
    }
    for value in rest {
        *value = table[usize::from(*value)];
    }
}

/// The table of a function of one value.
fn table(of: impl Fn(u8) -> u8) -> [u8; 256] {
    std::array::from_fn(|v| of(v as u8))
}

pub(super) fn invert(level: Level, sides: Sides<'_>) {
    match sides {
        Sides::Bytes(values) => invert_bytes(level, values),
        Sides::Floats(values) => invert_floats(level, values),
    }
}

pub(super) fn brightness(level: Level, sides: Sides<'_>, factor: f32) {
    match sides {
        Sides::Bytes(values) => look_up(level, values, &table(|v| truncate(f32::from(v) * factor))),
        // Plus 0 times 0: the bits of the product.
        Sides::Floats(values) => blend_floats(level, values, factor, 0.0, 0.0),
    }
}

/// `channels` is 1 or 3.
pub(super) fn contrast(level: Level, sides: Sides<'_>, channels: u32, factor: f32) {
    let alpha = complement(factor);
    match sides {
        Sides::Bytes(values) => {
            let mut sum = 0;
            let mut count = values.len();
            if channels == 3 {
                count /= 3;
                let [r, g, b] = three(values);
                sum_gray_bytes(level, r, g, b, &mut sum);
            } else {
                sum_bytes(level, values, &mut sum);
            }
            let mean = sum as f32 / count as f32;
            look_up(level, values, &table(|v| truncate(mean.mul_add(alpha, f32::from(v) * factor))));
        }
        Sides::Floats(values) => {
            let mut sum = 0.0;
            let mut count = values.len();
            if channels == 3 {
                count /= 3;
                let [r, g, b] = three(values);
                sum_gray_floats(level, r, g, b, &mut sum);
            } else {
                sum_floats(level, values, &mut sum);
            }
            blend_floats(level, values, factor, (sum / count as f64) as f32, alpha);
        }
    }
}

/// Three channels.
pub(super) fn saturation(level: Level, sides: Sides<'_>, factor: f32) {
    let alpha = complement(factor);
    match sides {
        Sides::Bytes(values) => {
            let [r, g, b] = three(values);
            saturate(level, r, g, b, factor, alpha);
        }
        Sides::Floats(values) => {
            let [r, g, b] = three(values);
            saturate(level, r, g, b, factor, alpha);
        }
    }
}

/// Three channels.
pub(super) fn hue(level: Level, sides: Sides<'_>, shift: f32) {
    match sides {
        Sides::Bytes(values) => {
            let [r, g, b] = three(values);
            shift_hue(level, r, g, b, shift);
        }
        Sides::Floats(values) => {
            let [r, g, b] = three(values);
            shift_hue(level, r, g, b, shift);
        }
    }
}

/// Three channels.
pub(super) fn gray(level: Level, sides: Sides<'_>) {
    match sides {
        Sides::Bytes(values) => {
            let [r, g, b] = three(values);
            grayscale(level, r, g, b);
        }
        Sides::Floats(values) => {
            let [r, g, b] = three(values);
            grayscale(level, r, g, b);
        }
    }
}

/// With 8 `bits`, bytes stay unchanged; floats still become steps.
pub(super) fn posterize(level: Level, sides: Sides<'_>, bits: u8) {
    let (mask, levels) = posterized(bits);
    match sides {
        Sides::Bytes(values) => mask_bytes(level, values, mask),
        Sides::Floats(values) => step_floats(level, values, levels),
    }
}

/// The mask for bytes, and the number of steps for floats.
pub(super) fn posterized(bits: u8) -> (u8, f32) {
    let bits = u32::from(bits.min(8));
    ((0xff00u32 >> bits) as u8, (1u32 << bits) as f32)
}

/// The least byte that is inverted; `None` if the threshold is above white.
pub(super) fn solarized(threshold: f32) -> Option<u8> {
    let from = of_white(threshold).ceil();
    (from <= 255.0).then_some(from as u8)
}

pub(super) fn solarize(level: Level, sides: Sides<'_>, threshold: f32) {
    match sides {
        Sides::Bytes(values) => {
            if let Some(from) = solarized(threshold) {
                solarize_bytes(level, values, from);
            }
        }
        Sides::Floats(values) => solarize_floats(level, values, threshold),
    }
}

pub(super) fn solarize_add(level: Level, sides: Sides<'_>, add: f32, threshold: f32) {
    match sides {
        Sides::Bytes(values) => {
            let (add, below) = (of_white(add).trunc(), of_white(threshold));
            let of = |v: u8| if f32::from(v) < below { truncate(f32::from(v) + add) } else { v };
            look_up(level, values, &table(of));
        }
        Sides::Floats(values) => solarize_add_floats(level, values, add, threshold),
    }
}

#[inline(always)]
fn invert_bytes_loop(values: &mut [u8]) {
    for value in values {
        *value = !*value;
    }
}

#[inline(always)]
fn invert_floats_loop(values: &mut [f32]) {
    for value in values {
        *value = 1.0 - *value;
    }
}

#[inline(always)]
fn mask_bytes_loop(values: &mut [u8], mask: u8) {
    for value in values {
        *value &= mask;
    }
}

#[inline(always)]
fn step_floats_loop(values: &mut [f32], levels: f32) {
    for value in values {
        // Clamped first, so that truncation is the floor.
        let step = clamp(*value * levels, levels - 1.0);
        // SAFETY: between 0 and 255, and no NaN.
        let step = unsafe { step.to_int_unchecked::<i32>() };
        *value = step as f32 * (1.0 / levels);
    }
}

#[inline(always)]
fn solarize_bytes_loop(values: &mut [u8], from: u8) {
    for value in values {
        *value = if *value >= from { !*value } else { *value };
    }
}

#[inline(always)]
fn solarize_floats_loop(values: &mut [f32], from: f32) {
    for value in values {
        *value = if *value >= from { 1.0 - *value } else { *value };
    }
}

#[inline(always)]
fn solarize_add_floats_loop(values: &mut [f32], add: f32, below: f32) {
    for value in values {
        *value = if *value < below { clamp(*value + add, 1.0) } else { *value };
    }
}

#[inline(always)]
fn blend_floats_loop(values: &mut [f32], ratio: f32, bias: f32, alpha: f32) {
    for value in values {
        *value = clamp(bias.mul_add(alpha, *value * ratio), 1.0);
    }
}

/// torch's gray, before it is rounded to whole numbers.
#[inline(always)]
fn gray_of(r: f32, g: f32, b: f32) -> f32 {
    b.mul_add(GRAY[2], g.mul_add(GRAY[1], r * GRAY[0]))
}

#[inline(always)]
fn saturate_loop<V: Value>(r: &mut [V], g: &mut [V], b: &mut [V], ratio: f32, alpha: f32) {
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let [red, green, blue] = [r.f32(), g.f32(), b.f32()];
        let gray = V::floor(gray_of(red, green, blue));
        *r = V::truncated(gray.mul_add(alpha, red * ratio));
        *g = V::truncated(gray.mul_add(alpha, green * ratio));
        *b = V::truncated(gray.mul_add(alpha, blue * ratio));
    }
}

#[inline(always)]
fn grayscale_loop<V: Value>(r: &mut [V], g: &mut [V], b: &mut [V]) {
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let gray = V::raw(gray_of(r.f32(), g.f32(), b.f32()));
        (*r, *g, *b) = (gray, gray, gray);
    }
}

/// Number of values whose sum fits u32.
const SUMMED: usize = 1 << 16;

#[inline(always)]
fn sum_gray_bytes_loop(r: &[u8], g: &[u8], b: &[u8], sum: &mut u64) {
    for ((r, g), b) in r.chunks(SUMMED).zip(g.chunks(SUMMED)).zip(b.chunks(SUMMED)) {
        let mut part = 0u32;
        for ((r, g), b) in r.iter().zip(g).zip(b) {
            part += u32::from(truncate(gray_of(f32::from(*r), f32::from(*g), f32::from(*b))));
        }
        *sum += u64::from(part);
    }
}

#[inline(always)]
fn sum_bytes_loop(values: &[u8], sum: &mut u64) {
    for values in values.chunks(SUMMED) {
        *sum += u64::from(values.iter().map(|v| u32::from(*v)).sum::<u32>());
    }
}

/// Sums of f64 in a fixed order for any register width: of this many parts of a plane, each by this many lanes. A GPU
/// has a thread for each of them.
const LANES: usize = 16;
const PARTS: usize = 32;

/// Number of values in a part.
const fn part_of(plane: usize) -> usize {
    // An empty plane also has parts.
    let part = plane.div_ceil(PARTS).next_multiple_of(LANES);
    if part == 0 { LANES } else { part }
}

#[inline(always)]
fn sum_gray_floats_loop(r: &[f32], g: &[f32], b: &[f32], sum: &mut f64) {
    let part = part_of(r.len());
    for ((r, g), b) in r.chunks(part).zip(g.chunks(part)).zip(b.chunks(part)) {
        let mut lanes = [0.0f64; LANES];
        let (reds, red_rest) = r.as_chunks::<LANES>();
        let (greens, green_rest) = g.as_chunks::<LANES>();
        let (blues, blue_rest) = b.as_chunks::<LANES>();
        for ((r, g), b) in reds.iter().zip(greens).zip(blues) {
            for i in 0..LANES {
                lanes[i] += f64::from(gray_of(r[i], g[i], b[i]));
            }
        }
        for (lane, ((r, g), b)) in lanes.iter_mut().zip(red_rest.iter().zip(green_rest).zip(blue_rest)) {
            *lane += f64::from(gray_of(*r, *g, *b));
        }
        *sum += lanes.iter().fold(0.0, |sum, lane| sum + lane);
    }
}

#[inline(always)]
fn sum_floats_loop(values: &[f32], sum: &mut f64) {
    for values in values.chunks(part_of(values.len())) {
        let mut lanes = [0.0f64; LANES];
        let (chunks, rest) = values.as_chunks::<LANES>();
        for chunk in chunks {
            for i in 0..LANES {
                lanes[i] += f64::from(chunk[i]);
            }
        }
        for (lane, value) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(*value);
        }
        *sum += lanes.iter().fold(0.0, |sum, lane| sum + lane);
    }
}

#[inline(always)]
fn shift_hue_loop<V: Value>(r: &mut [V], g: &mut [V], b: &mut [V], shift: f32) {
    for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
        let [red, green, blue] = turned(r.unit(), g.unit(), b.unit(), shift);
        (*r, *g, *b) = (V::of_unit(red), V::of_unit(green), V::of_unit(blue));
    }
}

/// Converts to hue, saturation and value and back; every rounding is torchvision's.
#[inline(always)]
fn turned(r: f32, g: f32, b: f32, shift: f32) -> [f32; 3] {
    let pick = |is: bool, a: f32, b: f32| if is { a } else { b };
    let (low, high) = (pick(r < g, r, g), pick(r > g, r, g));
    let (low, high) = (pick(b < low, b, low), pick(b > high, b, high));
    let range = high - low;
    let flat = high == low;
    let saturation = range / pick(flat, 1.0, high);
    let over = pick(flat, 1.0, range);
    // The highest channel has a distance of 0; the other two determine the hue between them.
    let (is_r, is_g) = (high == r, high == g);
    let (first, second) = (pick(is_r, b, pick(is_g, r, g)), pick(is_r, g, pick(is_g, b, r)));
    let sixth = pick(is_r, 0.0, pick(is_g, 2.0, 4.0));
    let sixths = ((high - first) / over + sixth) - (high - second) / over;
    let hue = sixths * (1.0 / 6.0) + 1.0;
    let hue = pick(hue >= 1.0, hue - 1.0, hue) + shift;
    let hue = pick(hue >= 1.0, hue - 1.0, pick(hue < 0.0, hue + 1.0, hue));
    let sixths = clamp(hue * 6.0, 6.0);
    // SAFETY: between 0 and 6, and no NaN.
    let sector = unsafe { sixths.to_int_unchecked::<i32>() };
    let rest = sixths - sector as f32;
    let part = saturation * rest;
    let white = 1.0 - saturation;
    let q = clamp((1.0 - part) * high, 1.0);
    let t = clamp((part + white) * high, 1.0);
    let p = clamp(white * high, 1.0);
    let v = high;
    // Sector 6 is sector 0 again.
    let at = |s: i32| sector == s;
    let red = pick(at(1), q, pick(at(2) | at(3), p, pick(at(4), t, v)));
    let green = pick(at(1) | at(2), v, pick(at(3), q, pick(at(4) | at(5), p, t)));
    let blue = pick(at(2), t, pick(at(3) | at(4), v, pick(at(5), q, p)));
    [red, green, blue]
}
