//! Stores past the caches, and prefetches into them.
//!
//! Rows that no cache would hold until they are read are stored in whole cache lines, which are not fetched first. The
//! caches then keep data that is still to be read. A line that is written in two parts costs more than it saves, so the
//! incomplete end of each write waits for the next one. Little is written at a time, so that it drains while the next
//! part is computed.

use smallvec::SmallVec;

use super::level::{Instructions, Level};

/// Rows of this many bytes or more are written past the caches: caches would not hold them until they are read, and
/// writing through caches reads the lines first.
pub(super) const PAST_CACHES: usize = 256 << 10;

/// Bytes of a cache line.
const LINE: usize = 64;

#[repr(align(64))]
struct Line([u8; LINE]);

/// Fills a buffer from its beginning. It has the only borrow. What it has written is ordered before later stores of the
/// thread when it is dropped, by [`end`](Self::end) or by a panic.
pub(super) struct Stream<'a> {
    out: &'a mut [u8],
    /// Bytes of `out` that are written: a whole number of lines, except before the first line.
    at: usize,
    /// Bytes that wait after them, less than a line, and their number.
    rest: Line,
    rest_len: usize,
    /// Bytes of one store: 64, 32 or 16.
    width: usize,
}

impl<'a> Stream<'a> {
    pub(super) fn new(level: Level, out: &'a mut [u8]) -> Self {
        Self { out, at: 0, rest: Line([0; LINE]), rest_len: 0, width: width_at(level) }
    }

    /// Appends `bytes`. Panics if they do not fit, which is an error of the caller.
    pub(super) fn put(&mut self, mut bytes: &[u8]) {
        let before = self.out[self.at..].as_ptr().align_offset(LINE).min(self.out.len() - self.at);
        if before > 0 {
            // Up to the first line.
            let some = before.min(bytes.len());
            self.out[self.at..self.at + some].copy_from_slice(&bytes[..some]);
            self.at += some;
            bytes = &bytes[some..];
            if bytes.is_empty() {
                return;
            }
        }
        if self.rest_len > 0 {
            let some = (LINE - self.rest_len).min(bytes.len());
            self.rest.0[self.rest_len..self.rest_len + some].copy_from_slice(&bytes[..some]);
            self.rest_len += some;
            bytes = &bytes[some..];
            if self.rest_len < LINE {
                return;
            }
            lines(self.width, &self.rest.0, &mut self.out[self.at..self.at + LINE]);
            (self.at, self.rest_len) = (self.at + LINE, 0);
        }
        let whole = bytes.len() / LINE * LINE;
        let (bytes, rest) = bytes.split_at(whole);
        lines(self.width, bytes, &mut self.out[self.at..self.at + whole]);
        self.at += whole;
        self.rest.0[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    /// Stores the waiting bytes.
    pub(super) fn end(self) {
        self.out[self.at..self.at + self.rest_len].copy_from_slice(&self.rest.0[..self.rest_len]);
        debug_assert_eq!(self.at + self.rest_len, self.out.len(), "a row is written as a whole");
    }
}

impl Drop for Stream<'_> {
    /// Orders its writes before everything that this thread stores later, such as the release of a lock.
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: SSE is part of every x86-64.
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// The planes of a row, each a [`Stream`].
pub(super) struct Planes<'a>(SmallVec<[Stream<'a>; 3]>);

impl<'a> Planes<'a> {
    pub(super) fn new(level: Level, planes: usize, out: &'a mut [u8]) -> Self {
        let len = out.len() / planes;
        debug_assert_eq!(len * planes, out.len(), "planes of one length");
        Self(out.chunks_exact_mut(len).map(|plane| Stream::new(level, plane)).collect())
    }

    /// Appends to each plane its part of `bytes`, in which the planes' parts follow one another; `skip` bytes at the
    /// start of each part are left out.
    pub(super) fn put(&mut self, bytes: &[u8], skip: usize) {
        let len = bytes.len() / self.0.len();
        for (plane, bytes) in self.0.iter_mut().zip(bytes.chunks_exact(len)) {
            plane.put(&bytes[skip..]);
        }
    }

    /// Stores the waiting bytes.
    pub(super) fn end(self) {
        self.0.into_iter().for_each(Stream::end);
    }
}

/// Prefetches the lines of `bytes` bytes from an address on. Has no other effect.
pub(super) fn fetch(from: usize, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..bytes).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of every x86-64; a hint reads nothing, wherever it points to.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(from.wrapping_add(line))) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, bytes);
}

fn width_at(level: Level) -> usize {
    match level.instructions() {
        Instructions::Avx512 => 64,
        Instructions::Avx2 => 32,
        Instructions::Portable => 16,
    }
}

/// Copies whole lines to lines.
fn lines(width: usize, from: &[u8], to: &mut [u8]) {
    assert!(from.len() == to.len() && from.len().is_multiple_of(LINE), "whole lines");
    assert_eq!(to.as_ptr().align_offset(LINE), 0, "lines begin at lines");
    #[cfg(target_arch = "x86_64")]
    match width {
        // SAFETY: `width_at` found AVX-512F on this machine; `to` is aligned, as above.
        64 => unsafe { lines_avx512(from, to) },
        // SAFETY: `width_at` found AVX2, and so AVX, on this machine; `to` is aligned, as above.
        32 => unsafe { lines_avx(from, to) },
        // SAFETY: SSE2 is part of every x86-64; `to` is aligned, as above.
        _ => unsafe { lines_sse2(from, to) },
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = width;
        to.copy_from_slice(from);
    }
}

macro_rules! streams {
    ($($name:ident: $feature:literal, $lane:ident, $load:ident, $store:ident;)*) => {$(
        /// # Safety
        /// `to` is as long as `from`, a whole number of lines, and aligned to them.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $feature)]
        unsafe fn $name(from: &[u8], to: &mut [u8]) {
            use std::arch::x86_64::{$lane, $load, $store};
            const WIDTH: usize = size_of::<$lane>();
            for (from, to) in from.as_chunks::<WIDTH>().0.iter().zip(to.as_chunks_mut::<WIDTH>().0) {
                // SAFETY: so many bytes are there; the load takes any alignment.
                let value = unsafe { $load(from.as_ptr().cast()) };
                // SAFETY: this many bytes are there, aligned: the caller guarantees it for the first.
                unsafe { $store(to.as_mut_ptr().cast(), value) };
            }
        }
    )*};
}
streams! {
    lines_avx512: "avx512f", __m512i, _mm512_loadu_si512, _mm512_stream_si512;
    lines_avx: "avx", __m256i, _mm256_loadu_si256, _mm256_stream_si256;
    lines_sse2: "sse2", __m128i, _mm_loadu_si128, _mm_stream_si128;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_the_row_begins_and_however_it_is_put() {
        let from: Vec<u8> = (0..700).map(|i| (i * 7 + i / 256) as u8).collect();
        for level in [Level::Portable, Level::Avx2, Level::Best] {
            for (start, len) in (0..70).flat_map(|start| [0, 1, 63, 64, 65, 200, 400].map(|len| (start, len))) {
                for piece in [1, 7, 64, 100, 400] {
                    let mut to = vec![0xaa; 500];
                    let from = &from[start / 2..][..len];
                    let mut stream = Stream::new(level, &mut to[start..start + len]);
                    from.chunks(piece).for_each(|bytes| stream.put(bytes));
                    stream.end();
                    assert_eq!(to[start..start + len], *from);
                    assert!(to[..start].iter().chain(&to[start + len..]).all(|byte| *byte == 0xaa));
                }
            }
        }
    }

    #[test]
    fn planes_are_filled_side_by_side_wherever_they_begin() {
        let from: Vec<u8> = (0..3 * 700).map(|i| (i * 7 + i / 256) as u8).collect();
        for (start, len, line) in [(0, 640, 64), (1, 630, 90), (63, 700, 100), (5, 33, 11), (64, 128, 128)] {
            let mut to = vec![0xaa; start + 3 * len + 70];
            let mut planes = Planes::new(Level::Best, 3, &mut to[start..start + 3 * len]);
            for at in (0..len).step_by(line) {
                // Together with the line before it, which is already written.
                let lines = [0, 1, 2].map(|plane| [&[1; 11][..], &from[plane * len + at..][..line]].concat());
                planes.put(&lines.concat(), 11);
            }
            planes.end();
            assert_eq!(to[start..start + 3 * len], from[..3 * len]);
            assert!(to[..start].iter().chain(&to[start + 3 * len..]).all(|byte| *byte == 0xaa));
        }
    }
}
