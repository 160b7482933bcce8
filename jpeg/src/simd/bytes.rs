//! Copies a scan's bytes up to the next place where something is removed, and mirrors bytes.

use super::level::{Level, at_each_level};

at_each_level! {
    /// The first bit of each byte becomes its last.
    pub(crate) fn mirror(bytes: &mut [u8]) = mirror_loop;
}

#[inline(always)]
fn mirror_loop(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = byte.reverse_bits();
    }
}

/// Copies the bytes before the first FF, or all; returns their number. `to` is longer; its content after them is
/// undefined.
pub(crate) fn copy_to_ff(level: Level, from: &[u8], to: &mut [u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if level.avx2() {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::copy_to_ff(from, to) };
    }
    let _ = level;
    let plain = memchr::memchr(0xff, from).unwrap_or(from.len());
    to[..plain].copy_from_slice(&from[..plain]);
    plain
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    /// One pass instead of two: an FF comes about every 200 bytes, too often for separate calls of a search and a copy.
    #[target_feature(enable = "avx2")]
    pub(super) fn copy_to_ff(from: &[u8], to: &mut [u8]) -> usize {
        let to = &mut to[..from.len()];
        let mut at = 0;
        for (from, to) in from.as_chunks::<32>().0.iter().zip(to.as_chunks_mut::<32>().0) {
            *to = *from;
            let ff = _mm256_cmpeq_epi8(bytemuck::cast(*from), _mm256_set1_epi8(-1));
            let ff = _mm256_movemask_epi8(ff) as u32;
            if ff != 0 {
                return at + ff.trailing_zeros() as usize;
            }
            at += 32;
        }
        let (from, to) = (&from[at..], &mut to[at..]);
        to.copy_from_slice(from);
        at + from.iter().position(|byte| *byte == 0xff).unwrap_or(from.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Draws;

    #[test]
    fn bytes_are_copied_to_the_first_ff_at_each_level() {
        let mut draws = Draws::new([5, 0, 0]);
        for n in 0..2000 {
            let length = draws.below(200) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| draws.below(255) as u8).collect();
            let first = draws.below(250) as usize;
            for at in [first, first + 1 + draws.below(60) as usize] {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = 0xff;
                }
            }
            for level in [Level::Best, Level::Portable] {
                let mut out = vec![7; length + n % 3];
                let copied = copy_to_ff(level, &bytes, &mut out);
                assert_eq!((copied, &out[..copied]), (first.min(length), &bytes[..first.min(length)]));
            }
        }
    }
}
