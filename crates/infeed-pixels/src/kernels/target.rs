//! The destination of a row's finished lines: in place, or past the caches.

use infeed_core::types::Layout;

use super::{
    convert::Store,
    level::Level,
    params::{ResampleParams, RowSpec},
    row::fill_row,
    stream::{PAST_CACHES, Planes},
};
use crate::kernels::ChannelTable;

/// A row that is made from its first line to its last.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub(super) enum Target<'a, S: Store> {
    /// In place.
    Row(&'a mut [S::Raw]),
    /// Past the caches: lines are made in a buffer of a few lines, which stays in the first-level cache.
    Past {
        planes: Planes<'a>,
        made: &'a mut [S::Raw],
        /// The next line.
        next: usize,
    },
}

/// Whether a row should be written past the caches: it is large, nothing is written over it later, and it is not read
/// soon. Pixels of more than three channels are made so slowly that memory keeps up (5 channels of 220x220: 8 % more
/// time past the caches).
pub(super) fn goes_past(params: &ResampleParams, row: &RowSpec, read_soon: bool) -> bool {
    let [top, bottom, left, right] = params.cutout;
    let slow = row.layout == Layout::Nhwc && row.channels > 3;
    !read_soon && !slow && row.len_bytes() >= PAST_CACHES && (top >= bottom || left >= right)
}

impl<'a, S: Store> Target<'a, S> {
    /// `past`: the result of [`goes_past`]. At most `together` lines are made at a time; `stage` is scratch memory.
    pub(super) fn new(
        level: Level,
        row: &RowSpec,
        past: bool,
        together: usize,
        stage: &'a mut Vec<u64>,
        out: &'a mut [S::Raw],
    ) -> Self {
        if !past {
            return Self::Row(out);
        }
        let len = row.width as usize * row.channels as usize * together;
        stage.resize((len * size_of::<S::Raw>()).div_ceil(8), 0);
        let made = &mut bytemuck::cast_slice_mut(stage)[..len];
        let planes = if row.layout == Layout::Nchw { row.channels as usize } else { 1 };
        Self::Past { planes: Planes::new(level, planes, bytemuck::cast_slice_mut(out)), made, next: 0 }
    }

    /// Makes `count` lines from line `stored` on. `make` gets a row, and the line in it at which they begin. Lines come
    /// in order; lines that were made before are made again with the same values.
    #[inline]
    pub(super) fn lines(
        &mut self,
        stored: usize,
        count: usize,
        row: &RowSpec,
        make: impl FnOnce(usize, &RowSpec, &mut [S::Raw]),
    ) {
        match self {
            Self::Row(out) => make(stored, row, out),
            Self::Past { planes, made, next } => {
                let few = RowSpec { height: count as u32, ..*row };
                let len = few.len_bytes() / size_of::<S::Raw>();
                make(0, &few, &mut made[..len]);
                // Values per line of each plane.
                let line = few.width as usize * if few.layout == Layout::Nchw { 1 } else { few.channels as usize };
                planes.put(bytemuck::cast_slice(&made[..len]), (*next - stored) * line * size_of::<S::Raw>());
                *next = stored + count;
            }
        }
    }

    /// Fills lines outside of the image.
    pub(super) fn fill(&mut self, lines: std::ops::Range<usize>, table: &ChannelTable, row: &RowSpec) {
        for stored in lines {
            self.lines(stored, 1, row, |at, row, out| fill_row::<S>(at, 0..row.width as usize, table, row, out));
        }
    }

    /// Called after the last line.
    pub(super) fn end(self) {
        if let Self::Past { planes, .. } = self {
            planes.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Axis, Filter, Pixels, Plane, Planes as Source, Resampler};
    use infeed_core::{
        random::SampleRng,
        types::{DType, ImageInfo},
    };

    fn noise(len: usize) -> Vec<u8> {
        let mut draws = SampleRng::new(3, 1, 4).op(0);
        (0..len).map(|_| draws.bits() as u8).collect()
    }

    /// `from..to` of the outputs show all of the pixels.
    fn axis(pixels: u32, from: u32, to: u32, flip: u32) -> Axis {
        let step = pixels as f32 / (to - from) as f32;
        Axis { start: -(from as f32) * step, step, low: 0, high: pixels, from, to, flip }
    }

    fn table(channels: u32) -> ChannelTable {
        let each = |by: f32, at: f32| (0..channels).map(|c| at + by * c as f32).collect();
        ChannelTable { scale: each(0.1, 0.7), bias: each(0.3, -1.0), fill: each(1.0, 5.0), cutout: each(1.0, 9.0) }
    }

    /// The row must be the same whether it is read soon or not, at any alignment and each level, and nothing else may
    /// be written.
    fn check(row: &RowSpec, what: &str, mut make: impl FnMut(&mut Resampler, &mut [u8])) {
        let len = row.len_bytes();
        assert!(len >= PAST_CACHES);
        let mut room = vec![0u64; len / 8 + 32];
        let room: &mut [u8] = bytemuck::cast_slice_mut(&mut room);
        let first = room.as_ptr().align_offset(64);
        let mut want: Option<Vec<u8>> = None;
        for level in [Level::Portable, Level::Avx2, Level::Best] {
            let mut resampler = Resampler::with_level(level);
            for (soon, start) in [(true, 0), (false, 0), (false, 4), (false, 36), (false, 60), (false, 1)] {
                resampler.set_read_soon(soon);
                room.fill(0xaa);
                let start = first + start;
                make(&mut resampler, &mut room[start..start + len]);
                let want = want.get_or_insert_with(|| room[start..start + len].to_vec());
                assert!(room[start..start + len] == want[..], "{what} {row:?} {level:?} {soon} {start}");
                assert!(room[..start].iter().chain(&room[start + len..]).all(|byte| *byte == 0xaa), "{what} {row:?}");
            }
        }
    }

    const TYPES: [DType; 4] = [DType::U8, DType::F16, DType::Bf16, DType::F32];

    #[test]
    fn pixels_become_the_same_row_past_the_caches() {
        // Shrunk, enlarged, only made taller, moved; from planes and from pixels.
        for (n, dtype) in TYPES.into_iter().enumerate() {
            for (layout, planar, channels) in
                [(Layout::Nchw, true, 3), (Layout::Nchw, false, 3), (Layout::Nhwc, false, 3), (Layout::Nhwc, true, 5)]
            {
                let side = 320 + n as u32;
                let row = RowSpec { height: side - 3, width: side, channels, dtype, layout };
                for (height, width, flip) in
                    [(400, 411, 1), (50, 61, 0), (side - 14, 50, 1), (side - 14, side - 7, 0), (side - 14, side - 7, 1)]
                {
                    let info = ImageInfo { planar, ..ImageInfo::interleaved_u8(height, width, channels as u8) };
                    let data = noise(info.len_bytes() as usize);
                    let src = Pixels { info, rows: 0..height, data: &data };
                    let params = ResampleParams {
                        y: axis(height, 7, row.height - 4, flip),
                        x: axis(width, 5, row.width - 2, flip),
                        cutout: [0; 4],
                        filter: if flip == 0 { Filter::Triangle } else { Filter::Cubic },
                    };
                    let table = table(channels);
                    check(&row, &format!("{info:?}"), |resampler, out| {
                        resampler.run(&src, &params, &table, &row, out).unwrap();
                    });
                    let cut = ResampleParams { cutout: [10, 40, 20, 90], ..params };
                    check(&row, "cut out", |resampler, out| resampler.run(&src, &cut, &table, &row, out).unwrap());
                }
            }
        }
    }

    #[test]
    fn planes_become_the_same_row_past_the_caches() {
        let (height, width) = (210, 190);
        let data = noise(210 * 190 + 2 * 105 * 95);
        let whole = |at, step: u32| Plane {
            at,
            pitch: (width / step) as usize,
            step: [step; 2],
            rows: 0..height / step,
            cols: 0..width / step,
        };
        let planes = [whole(0, 1), whole(210 * 190, 2), whole(210 * 190 + 105 * 95, 2)];
        for (n, dtype) in TYPES.into_iter().enumerate() {
            for (ycbcr, count, layout, channels) in [
                (true, 3, Layout::Nchw, 3),
                (true, 3, Layout::Nhwc, 3),
                (false, 3, Layout::Nchw, 3),
                (false, 1, Layout::Nchw, 3),
                (false, 1, Layout::Nhwc, 3),
            ] {
                // An odd and an even number of lines.
                for rows in [5, 6] {
                    let side = 320 + n as u32;
                    let row = RowSpec { height: side, width: side - 1, channels, dtype, layout };
                    let info = ImageInfo::interleaved_u8(height, width, count as u8);
                    let src = Source { info, planes: &planes[..count], ycbcr, data: &data };
                    let params = ResampleParams {
                        y: axis(height, rows, row.height - 4, 0),
                        x: axis(width, 3, row.width - 8, 1),
                        cutout: [0; 4],
                        filter: Filter::Triangle,
                    };
                    let table = table(channels);
                    check(&row, &format!("{count} planes, {ycbcr}"), |resampler, out| {
                        resampler.run_planes(&src, &params, &table, &row, out).unwrap();
                    });
                }
            }
        }
    }
}
