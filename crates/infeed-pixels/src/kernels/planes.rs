//! Makes one row of a batch from planes of brightness and colour.
//!
//! ```text
//! Y  ─ vertical ────────────▶ f32 row ┐
//! Cb ─ vertical ─▶ widened ─▶ f32 row ┼▶ woven ─ horizontal ─▶ f32 line ─▶ RGB ─▶ scale, bias, round ─▶ out
//! Cr ─ vertical ─▶ widened ─▶ f32 row ┘
//! ```
//!
//! If the row is planes of RGB, two lines are processed together: eight lanes instead of four, with the same number of
//! instructions.
//!
//! Colour is never expanded to the image's height: each plane is resampled from its own rows. The conversion to RGB is
//! linear, so it comes last, on as few values as the row has. `transform::reference` defines the result.

use std::ops::Range;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{ImageInfo, Layout},
};

use super::{
    bytes::Bytes,
    convert::{F32, Store, U8, is_stored, with_store},
    lanes::{self, lanes_of},
    level::{Level, at_each_level},
    params::{Axis, ChannelTable, ResampleParams, RowSpec, channel_source},
    resample::{PlaneScratch, Resampler},
    row::{check_row, cut_out, fill_row},
    target::{Target, goes_past},
};

/// The place of one component's values, and which of them are held.
///
/// The planes of a JPEG with 4:2:0: one brightness value per pixel, one colour value per four pixels.
///
/// ```
/// use infeed::spi::Plane;
///
/// let (height, width) = (480, 640);
/// let y = Plane { at: 0, pitch: 640, step: [1, 1], rows: 0..height, cols: 0..width };
/// let cb = Plane { at: 640 * 480, pitch: 320, step: [2, 2], rows: 0..height / 2, cols: 0..width / 2 };
/// let cr = Plane { at: cb.at + 320 * 240, ..cb.clone() };
/// assert_eq!(cr.at + 320 * 240, 640 * 480 * 3 / 2); // The values of all three planes.
/// # let _ = y;
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// Index of the first value that is held.
    pub at: usize,
    /// Number of values from row to row.
    pub pitch: usize,
    /// Pixels per value, vertical and horizontal: powers of two. The value is at their centre.
    pub step: [u32; 2],
    /// Rows that are held, in values of this plane.
    pub rows: Range<u32>,
    /// Columns that are held, in values of this plane.
    pub cols: Range<u32>,
}

/// A decoded image, or the part of it that is needed, as planes of 8-bit values.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     codec::ImageInfo,
///     dataset::FieldKind,
///     spi::{Decoded, Plane, Planes, RowMaker, SampleRng},
///     transform::Transform,
/// };
///
/// // A gray picture of 2x2 pixels, with one value for all of its colour.
/// let info = ImageInfo::interleaved_u8(2, 2, 3);
/// let y = Plane { at: 0, pitch: 2, step: [1, 1], rows: 0..2, cols: 0..2 };
/// let cb = Plane { at: 4, pitch: 1, step: [2, 2], rows: 0..1, cols: 0..1 };
/// let cr = Plane { at: 5, ..cb.clone() };
/// let planes = Planes { info, planes: &[y, cb, cr], ycbcr: true, data: &[10, 20, 30, 40, 128, 128] };
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let halved = Transform::new().resize_exact(1, 1).lower(&images, DType::U8, Layout::Nchw)?;
/// let drawn = halved.draw(&info, SampleRng::new(0, 0, 0))?;
/// let mut row = vec![0; halved.row().len_bytes()];
/// RowMaker::new().run(&halved, &drawn, Decoded::Planes(&planes), &mut row)?;
/// assert_eq!(row, [25, 25, 25]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    /// Size and type of the whole image, with one channel per plane.
    pub info: ImageInfo,
    /// One plane or three. The second and third may have fewer values than the first.
    pub planes: &'a [Plane],
    /// Whether the planes are Y, Cb and Cr of JFIF, which become RGB.
    pub ycbcr: bool,
    /// The values of all planes.
    pub data: &'a [u8],
}

impl Axis {
    /// The axis for a plane with one value per `step` pixels (a power of two).
    #[must_use]
    pub fn coarser(&self, step: u32) -> Self {
        let size = step as f32;
        Self {
            start: self.start / size,
            step: self.step / size,
            low: self.low / step,
            high: self.high.div_ceil(step),
            ..*self
        }
    }
}

/// The two values of a coarser plane between which position `at` is, and the weight of the second. `times` values of
/// the finer plane correspond to one of the coarser. Values at the ends of `within` are repeated.
#[inline(always)]
fn around(at: u32, times: u32, within: &Range<u32>) -> ([u32; 2], f32) {
    // Twice the distance between centres, from the centre of value -1.
    let twice = 2 * u64::from(at) + 1 + u64::from(times);
    let (below, part) = (twice / (2 * u64::from(times)), twice % (2 * u64::from(times)));
    let clamp = |value: u64| (value as u32).clamp(within.start + 1, within.end) - 1;
    ([clamp(below), clamp(below + 1)], part as f32 / (2 * times) as f32)
}

/// The part of a plane that the filter reads.
struct PlaneWindow {
    y: Axis,
    /// Columns of the vertical pass.
    cols: Range<u32>,
    /// Values of the first plane per value of this one.
    times: u32,
}

impl Resampler {
    /// Writes every byte of the row that `params` describes into `out`, from planes.
    ///
    /// Allocates nothing once the scratch memory has grown to the largest image.
    ///
    /// # Errors
    /// `Internal` if the arguments contradict each other: planes that lack values that are read, slices of another
    /// length, channels that do not match, or a filter that takes single pixels. `out` is then unchanged.
    pub fn run_planes(
        &mut self,
        src: &Planes<'_>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [u8],
    ) -> Result<()> {
        let parts = check(src, params, table, row, out)?;
        let ycbcr = src.ycbcr && parts.len() == 3;
        if params.filter.keeps_bytes() && !ycbcr && src.planes.iter().all(|plane| plane.step == src.planes[0].step) {
            with_store!(row.dtype, S => self.planes_of_bytes::<S>(src, params, table, row, out), _ => {});
            return Ok(());
        }
        with_store!(row.dtype, S => self.planes_as::<S>(src, &parts, params, table, row, out), _ => {});
        Ok(())
    }

    fn planes_as<S: Store>(
        &mut self,
        src: &Planes<'_>,
        parts: &[PlaneWindow],
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [u8],
    ) {
        aligned(out, |out| self.planes_to_row::<S>(src, parts, params, table, row, out));
    }

    /// Planes of one size whose values are colours: processed like pixels.
    fn planes_of_bytes<S: Store>(
        &mut self,
        src: &Planes<'_>,
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [u8],
    ) {
        let [down, across] = src.planes[0].step;
        let params = ResampleParams { y: params.y.coarser(down), x: params.x.coarser(across), ..*params };
        let left = params.x.reads(row.width, params.filter).start;
        let at = |channel: usize, y: usize| {
            let Plane { at, pitch, rows, cols, .. } = &src.planes[channel];
            at + (y - rows.start as usize) * pitch + (left - cols.start) as usize
        };
        let bytes = Bytes { data: src.data, channels: src.planes.len(), pixel: 1, at };
        self.channels.clear();
        let source = |c: u32| channel_source(src.planes.len() as u32, row.channels, c);
        self.channels.extend((0..row.channels).filter_map(source).map(|c| c as usize));
        aligned(out, |out| {
            self.filter_bytes::<S, _>(&bytes, &params, table, row, out);
            cut_out::<S>(&params.cutout, table, row, out);
        });
    }

    fn planes_to_row<S: Store>(
        &mut self,
        src: &Planes<'_>,
        parts: &[PlaneWindow],
        params: &ResampleParams,
        table: &ChannelTable,
        row: &RowSpec,
        out: &mut [S::Raw],
    ) {
        let level = self.level;
        // Interleaved pixels are not made fast enough for that (0 to 9 % more time past the caches).
        let past = row.layout == Layout::Nchw && goes_past(params, row, self.read_soon);
        let Self { x, row: woven, line, stage, made, planes: PlaneScratch { y, rows, wide }, .. } = self;
        let across = params.x.coarser(src.planes[0].step[1]);
        lanes::build(level, x, &across, row.width, params.filter);
        let columns = &parts[0].cols;
        for first in &mut x.first {
            *first -= columns.start;
        }
        for (part, taps) in parts.iter().zip(&mut *y) {
            lanes::build(level, taps, &part.y, row.height, params.filter);
        }
        let outputs = y[0].outputs();
        let ycbcr = src.ycbcr && parts.len() == 3;
        let together = if ycbcr && row.layout == Layout::Nchw && row.channels == 3 && outputs > 1 { 2 } else { 1 };
        let lanes = lanes_of(parts.len());
        // Zeros after the last pixel: taps of weight 0 end there.
        woven.clear();
        woven.resize((columns.len() + x.stride + 1) * lanes * together, 0.0);
        line.resize(x.outputs() * lanes * together, 0.0);
        for rows in &mut rows[..together] {
            parts.iter().zip(rows).for_each(|(part, row)| row.resize(part.cols.len(), 0.0));
        }
        let image = y[0].from..y[0].from + outputs;
        let mut target = Target::<S>::new(level, row, past, together, stage, out);
        target.fill(0..image.start, table, row);
        let mut colours = Finish { level, table, ycbcr, lanes, columns: x.from..x.to, made };
        for tap in (0..outputs).step_by(together) {
            // The last two may overlap the ones before them; they write the same values again.
            let tap = tap.min(outputs - together);
            for ((tap, rows), wide) in (tap..tap + together).zip(&mut *rows).zip(&mut *wide) {
                for (n, (part, plane)) in parts.iter().zip(src.planes).enumerate() {
                    let weights = &y[n].weights[tap * y[n].stride..][..y[n].count[tap] as usize];
                    let first = (y[n].first[tap] - plane.rows.start) as usize;
                    let start = plane.at + first * plane.pitch + (part.cols.start - plane.cols.start) as usize;
                    let to = if parts.len() == 1 { &mut woven[..columns.len()] } else { &mut rows[n] };
                    lanes::vertical::<U8>(level, src.data, start, plane.pitch, weights, to);
                }
                for (n, wide) in (1..parts.len()).zip(wide) {
                    widened(level, &parts[n], &rows[n], params, src, n, columns, wide);
                }
            }
            // Colour that is as wide as brightness stays where it is.
            let colour = |of: usize, n: usize| {
                if parts[n].times == 1 { &rows[of][n][..] } else { &wide[of][n - 1][..] }
            };
            match (parts.len(), together) {
                (3, 1) => weave(level, &rows[0][0], colour(0, 1), colour(0, 2), woven),
                (3, 2) => {
                    let [one, two] = [0, 1].map(|of| [&rows[of][0][..], colour(of, 1), colour(of, 2)]);
                    weave_two(level, one, two, woven);
                }
                _ => {}
            }
            lanes::horizontal(level, woven, lanes * together, x, false, line);
            // For brightness and colour, the RGB is clamped, below.
            if params.filter.overshoots() && !ycbcr {
                lanes::cut(level, line, 255.0);
            }
            target.lines(image.start + tap, together, row, |stored, row, out| {
                for stored in stored..stored + together {
                    fill_row::<S>(stored, 0..x.from, table, row, out);
                    fill_row::<S>(stored, x.to..row.width as usize, table, row, out);
                }
                if together == 2 {
                    colours.finish_two::<S>(line, stored, row, out);
                } else {
                    colours.finish::<S>(line, stored, row, out);
                }
            });
        }
        target.fill(image.end..row.height as usize, table, row);
        target.end();
        cut_out::<S>(&params.cutout, table, row, out);
    }
}

/// Makes a row in aligned memory, even if `out` is not aligned.
fn aligned<T: bytemuck::Pod>(out: &mut [u8], make: impl FnOnce(&mut [T])) {
    let len = out.len();
    match bytemuck::try_cast_slice_mut(out) {
        Ok(out) => make(out),
        Err(_) => {
            let mut aligned = vec![0u64; len.div_ceil(8)];
            let copy = &mut bytemuck::cast_slice_mut(&mut aligned)[..len];
            make(bytemuck::cast_slice_mut(copy));
            out.copy_from_slice(copy);
        }
    }
}

/// Interpolates a plane's row to the width of the first plane, if it is narrower.
#[expect(clippy::too_many_arguments, reason = "the loop's state, read once a row")]
fn widened(
    level: Level,
    part: &PlaneWindow,
    row: &[f32],
    params: &ResampleParams,
    src: &Planes<'_>,
    plane: usize,
    columns: &Range<u32>,
    wide: &mut Vec<f32>,
) {
    if part.times == 1 {
        return;
    }
    let axis = params.x.coarser(src.planes[plane].step[1]);
    wide.resize(columns.len(), 0.0);
    widen(level, row, part.cols.start, part.times, axis.low..axis.high, columns.start, wide);
}

at_each_level! {
    /// `out[i]` = the value at column `first + i`, interpolated in a row with one value per `times` columns.
    fn widen[](row: &[f32], start: u32, times: u32, within: Range<u32>, first: u32, out: &mut [f32]) = widen_loop;
    /// `out[4 * i..]` = the three values of pixel `i`.
    fn weave[](a: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) = weave_loop;
    /// `out[8 * i..]` = the three values of pixel `i` of one line, a zero, and those of another.
    fn weave_two[](one: [&[f32]; 3], two: [&[f32]; 3], out: &mut [f32]) = weave_two_loop;
    /// Pixels as YCbCr become RGB in 0..255, then `value * scale + bias`.
    fn rgb_pixels[S: Store](line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: &mut [S::Raw]) = rgb_pixels_loop;
}

#[inline(always)]
fn between(a: f32, b: f32, part: f32) -> f32 {
    b.mul_add(part, a * (1.0 - part))
}

#[inline(always)]
fn widen_loop(row: &[f32], start: u32, times: u32, within: Range<u32>, first: u32, out: &mut [f32]) {
    let exact = |at: u32| {
        let ([a, b], part) = around(at, times, &within);
        between(row[(a - start) as usize], row[(b - start) as usize], part)
    };
    // Colour of half the width, away from the ends: two outputs for three values.
    let end = first + out.len() as u32;
    let inner = (2 * (within.start + 1).max(start + 1)).max(first.next_multiple_of(2));
    let outer = (2 * (within.end.min(start + row.len() as u32)).saturating_sub(1)).min(end) & !1;
    if times == 2 && inner < outer {
        for at in (first..inner).chain(outer..end) {
            out[(at - first) as usize] = exact(at);
        }
        let values = &row[(inner / 2 - 1 - start) as usize..(outer / 2 + 1 - start) as usize];
        let out = &mut out[(inner - first) as usize..(outer - first) as usize];
        for (out, three) in out.as_chunks_mut::<2>().0.iter_mut().zip(values.windows(3)) {
            *out = [between(three[0], three[1], 0.75), between(three[1], three[2], 0.25)];
        }
    } else {
        for (out, at) in out.iter_mut().zip(first..) {
            *out = exact(at);
        }
    }
}

#[inline(always)]
fn weave_loop(a: &[f32], b: &[f32], c: &[f32], out: &mut [f32]) {
    for (((out, &a), &b), &c) in out.as_chunks_mut::<4>().0.iter_mut().zip(a).zip(b).zip(c) {
        *out = [a, b, c, 0.0];
    }
}

#[inline(always)]
fn weave_two_loop([a, b, c]: [&[f32]; 3], [d, e, f]: [&[f32]; 3], out: &mut [f32]) {
    let one = a.iter().zip(b).zip(c);
    let two = d.iter().zip(e).zip(f);
    for ((out, ((&a, &b), &c)), ((&d, &e), &f)) in out.as_chunks_mut::<8>().0.iter_mut().zip(one).zip(two) {
        *out = [a, b, c, 0.0, d, e, f, 0.0];
    }
}

/// One pixel to RGB in 0..255. JFIF's numbers.
#[inline(always)]
#[expect(clippy::manual_clamp, reason = "values are finite, and this compiles to two instructions")]
fn rgb([y, b, r, _]: [f32; 4]) -> [f32; 3] {
    let (b, r) = (b - 128.0, r - 128.0);
    let green = r.mul_add(-0.714_136, b.mul_add(-0.344_136, y));
    [r.mul_add(1.402, y), green, b.mul_add(1.772, y)].map(|v| v.max(0.0).min(255.0))
}

#[inline(always)]
fn rgb_planes_loop<S: Store>(line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: [&mut [S::Raw]; 3]) {
    let [r, g, b] = out;
    for (((pixel, r), g), b) in line.as_chunks::<4>().0.iter().zip(r).zip(g).zip(b) {
        let [red, green, blue] = rgb(*pixel);
        *r = S::of(red.mul_add(scale[0], bias[0]));
        *g = S::of(green.mul_add(scale[1], bias[1]));
        *b = S::of(blue.mul_add(scale[2], bias[2]));
    }
}

/// The RGB of YCbCr pixels, then `value * scale + bias`, each colour to a plane.
fn rgb_planes<S: Store>(level: Level, line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: [&mut [S::Raw]; 3]) {
    #[cfg(target_arch = "x86_64")]
    if level.instructions() >= super::level::Instructions::Avx2 {
        // SAFETY: the processor has the features that it is compiled for.
        return unsafe { avx2::rgb_planes::<S>(line, scale, bias, out) };
    }
    let _ = level;
    rgb_planes_loop::<S>(line, scale, bias, out);
}

/// The RGB of two lines of pixels side by side, then `value * scale + bias`, each colour to a plane of each line.
fn rgb_two<S: Store>(level: Level, line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: [[&mut [S::Raw]; 3]; 2]) {
    #[cfg(target_arch = "x86_64")]
    if level.instructions() >= super::level::Instructions::Avx2 {
        // SAFETY: the processor has the features that it is compiled for.
        return unsafe { avx2::rgb_two::<S>(line, scale, bias, out) };
    }
    let _ = level;
    rgb_two_loop::<S>(line, scale, bias, out);
}

#[inline(always)]
fn rgb_two_loop<S: Store>(line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: [[&mut [S::Raw]; 3]; 2]) {
    for (out, half) in out.into_iter().zip([0, 4]) {
        for (c, out) in out.into_iter().enumerate() {
            for (stored, both) in out.iter_mut().zip(line.as_chunks::<8>().0) {
                let pixel = rgb([both[half], both[half + 1], both[half + 2], 0.0]);
                *stored = S::of(pixel[c].mul_add(scale[c], bias[c]));
            }
        }
    }
}

/// Loops that compilers do not vectorise well: pixels of four lanes whose results go to planes.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Store, rgb_planes_loop, rgb_two_loop};

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn rgb_two<S: Store>(line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: [[&mut [S::Raw]; 3]; 2]) {
        let (steps, rest) = line.as_chunks::<32>();
        let half = _mm256_set1_ps(128.0);
        let [mut one, mut two] = out;
        for (n, pixels) in steps.iter().enumerate() {
            // Four pixels of each line, a line in each half of a register.
            let [p, q, s, t]: [__m256; 4] = bytemuck::cast(*pixels);
            let (a, c) = (_mm256_unpacklo_ps(p, q), _mm256_unpacklo_ps(s, t));
            let (d, e) = (_mm256_unpackhi_ps(p, q), _mm256_unpackhi_ps(s, t));
            let joined = |a, b| (_mm256_castps_pd(a), _mm256_castps_pd(b));
            let ((a, c), (d, e)) = (joined(a, c), joined(d, e));
            let y = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
            let blue = _mm256_sub_ps(_mm256_castpd_ps(_mm256_unpackhi_pd(a, c)), half);
            let red = _mm256_sub_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(d, e)), half);
            let by = |weight: f32, value, sum| _mm256_fmadd_ps(value, _mm256_set1_ps(weight), sum);
            let rgb = [by(1.402, red, y), by(-0.714_136, red, by(-0.344_136, blue, y)), by(1.772, blue, y)];
            for ((value, (one, two)), c) in rgb.into_iter().zip(one.iter_mut().zip(&mut two)).zip(0..) {
                let value = _mm256_min_ps(_mm256_max_ps(value, _mm256_setzero_ps()), _mm256_set1_ps(255.0));
                let value = by(scale[c], value, _mm256_set1_ps(bias[c]));
                let [first, second]: [[f32; 4]; 2] = bytemuck::cast(value);
                one[4 * n..4 * n + 4].copy_from_slice(&first.map(S::of));
                two[4 * n..4 * n + 4].copy_from_slice(&second.map(S::of));
            }
        }
        let done = 4 * steps.len();
        rgb_two_loop::<S>(rest, scale, bias, [one, two].map(|line| line.map(|plane| &mut plane[done..])));
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn rgb_planes<S: Store>(line: &[f32], scale: &[f32; 3], bias: &[f32; 3], [r, g, b]: [&mut [S::Raw]; 3]) {
        let (steps, rest) = line.as_chunks::<32>();
        let (r, r_rest) = r.as_chunks_mut::<8>();
        let (g, g_rest) = g.as_chunks_mut::<8>();
        let (b, b_rest) = b.as_chunks_mut::<8>();
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let half = _mm256_set1_ps(128.0);
        for (((pixels, r), g), b) in steps.iter().zip(r).zip(g).zip(b) {
            // Pixels 0 and 1, 2 and 3, …; even ones end up in the low lane.
            let [p, q, s, t]: [__m256; 4] = bytemuck::cast(*pixels);
            let (a, c) = (_mm256_unpacklo_ps(p, q), _mm256_unpacklo_ps(s, t));
            let (d, e) = (_mm256_unpackhi_ps(p, q), _mm256_unpackhi_ps(s, t));
            let joined = |a, b| (_mm256_castps_pd(a), _mm256_castps_pd(b));
            let ((a, c), (d, e)) = (joined(a, c), joined(d, e));
            let y = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
            let blue = _mm256_sub_ps(_mm256_castpd_ps(_mm256_unpackhi_pd(a, c)), half);
            let red = _mm256_sub_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(d, e)), half);
            let by = |weight: f32, value, sum| _mm256_fmadd_ps(value, _mm256_set1_ps(weight), sum);
            let rgb = [by(1.402, red, y), by(-0.714_136, red, by(-0.344_136, blue, y)), by(1.772, blue, y)];
            for ((value, out), n) in rgb.into_iter().zip([r, g, b]).zip(0..) {
                let value = _mm256_min_ps(_mm256_max_ps(value, _mm256_setzero_ps()), _mm256_set1_ps(255.0));
                let value = by(scale[n], _mm256_permutevar8x32_ps(value, order), _mm256_set1_ps(bias[n]));
                let value: [f32; 8] = bytemuck::cast(value);
                for i in 0..8 {
                    out[i] = S::of(value[i]);
                }
            }
        }
        rgb_planes_loop::<S>(rest, scale, bias, [r_rest, g_rest, b_rest]);
    }
}

#[inline(always)]
fn rgb_pixels_loop<S: Store>(line: &[f32], scale: &[f32; 3], bias: &[f32; 3], out: &mut [S::Raw]) {
    for (stored, pixel) in out.as_chunks_mut::<3>().0.iter_mut().zip(line.as_chunks::<4>().0) {
        let [r, g, b] = rgb(*pixel);
        *stored = [
            S::of(r.mul_add(scale[0], bias[0])),
            S::of(g.mul_add(scale[1], bias[1])),
            S::of(b.mul_add(scale[2], bias[2])),
        ];
    }
}

/// Writes a line to the stored row.
struct Finish<'a> {
    level: Level,
    table: &'a ChannelTable,
    ycbcr: bool,
    lanes: usize,
    columns: Range<usize>,
    /// Values that are still to be packed.
    made: &'a mut Vec<f32>,
}

impl Finish<'_> {
    /// Lines `stored` and the one after it, if pixels are YCbCr and the row is planes of RGB.
    fn finish_two<S: Store>(&mut self, line: &[f32], stored: usize, row: &RowSpec, out: &mut [S::Raw]) {
        let (width, height) = (row.width as usize, row.height as usize);
        let ChannelTable { scale, bias, .. } = self.table;
        let (Some(scale), Some(bias)) = (scale.first_chunk::<3>(), bias.first_chunk::<3>()) else { return };
        let mut one: [&mut [S::Raw]; 3] = Default::default();
        let mut two: [&mut [S::Raw]; 3] = Default::default();
        for ((plane, one), two) in out.chunks_exact_mut(width * height).zip(&mut one).zip(&mut two) {
            let (a, b) = plane[stored * width..].split_at_mut(width);
            (*one, *two) = (&mut a[self.columns.clone()], &mut b[self.columns.clone()]);
        }
        // Unpacked types are stored four values at a time; packing only four would be slow.
        if S::AS_IS {
            return rgb_two::<S>(self.level, line, scale, bias, [one, two]);
        }
        let len = self.columns.len();
        if len == 0 {
            return;
        }
        self.made.resize(6 * len, 0.0);
        let [a, b, c, d, e, f] = parts(self.made, len);
        rgb_two::<F32>(self.level, line, scale, bias, [[a, b, c], [d, e, f]]);
        for (out, made) in one.into_iter().chain(two).zip(self.made.chunks_exact(len)) {
            S::pack(self.level, made, out);
        }
    }

    fn finish<S: Store>(&mut self, line: &[f32], stored: usize, row: &RowSpec, out: &mut [S::Raw]) {
        let (width, height, channels) = (row.width as usize, row.height as usize, row.channels as usize);
        let (level, columns) = (self.level, self.columns.clone());
        let ChannelTable { scale, bias, .. } = self.table;
        let (scales, biases) = (scale.first_chunk::<3>(), bias.first_chunk::<3>());
        let source: &[usize] = if self.lanes == 1 { &[0; 4] } else { &[0, 1, 2, 3] };
        if columns.is_empty() {
            return;
        }
        match (row.layout, scales, biases) {
            (Layout::Nchw, Some(scale), Some(bias)) if self.ycbcr => {
                let mut planes = out.chunks_exact_mut(width * height);
                let planes = [planes.next(), planes.next(), planes.next()];
                let planes = planes.map(|plane| &mut plane.unwrap_or_default()[stored * width..][columns.clone()]);
                if S::AS_IS {
                    return rgb_planes::<S>(level, line, scale, bias, planes);
                }
                self.made.resize(3 * columns.len(), 0.0);
                rgb_planes::<F32>(level, line, scale, bias, parts(self.made, columns.len()));
                for (out, made) in planes.into_iter().zip(self.made.chunks_exact(columns.len())) {
                    S::pack(level, made, out);
                }
            }
            (Layout::Nhwc, Some(scale), Some(bias)) if self.ycbcr => {
                let out = &mut out[stored * width * 3..][columns.start * 3..columns.end * 3];
                if !S::PACKED {
                    return rgb_pixels::<S>(level, line, scale, bias, out);
                }
                self.made.resize(out.len(), 0.0);
                rgb_pixels::<F32>(level, line, scale, bias, self.made);
                S::pack(level, self.made, out);
            }
            (Layout::Nchw, ..) => {
                for c in 0..channels {
                    let out = &mut out[(c * height + stored) * width..][columns.clone()];
                    let from = source[c.min(3)];
                    lanes::finish_packed::<S>(level, line, self.lanes, from, scale[c], bias[c], self.made, out);
                }
            }
            (Layout::Nhwc, ..) => {
                let out = &mut out[stored * width * channels..][columns.start * channels..columns.end * channels];
                for c in 0..channels {
                    for (stored, pixel) in out.chunks_exact_mut(channels).zip(line.chunks_exact(self.lanes)) {
                        stored[c] = S::of(pixel[source[c.min(3)]].mul_add(scale[c], bias[c]));
                    }
                }
            }
        }
    }
}

/// `N` parts of `len` values each.
fn parts<const N: usize>(values: &mut [f32], len: usize) -> [&mut [f32]; N] {
    let mut parts = values.chunks_exact_mut(len);
    std::array::from_fn(|_| parts.next().unwrap_or_default())
}

/// Checks the facts that the loops rely on.
fn check(
    src: &Planes<'_>,
    params: &ResampleParams,
    table: &ChannelTable,
    row: &RowSpec,
    out: &[u8],
) -> Result<smallvec::SmallVec<[PlaneWindow; 3]>> {
    let wrong = |what: String| Error::new(ErrorKind::Internal, what).with_hint("please report it");
    let info = &src.info;
    if !matches!(src.planes.len(), 1 | 3) || usize::from(info.channels) != src.planes.len() || !is_stored(row.dtype) {
        return Err(wrong(format!("no kernel from {} planes of {info:?} to {}", src.planes.len(), row.dtype)));
    }
    if params.filter.is_nearest() || channel_source(u32::from(info.channels), row.channels, 0).is_none() {
        return Err(wrong(format!("{} planes do not make {} channels of {params:?}", info.channels, row.channels)));
    }
    check_row([info.height, info.width], params, table, row, out)?;
    let mut parts = smallvec::SmallVec::new();
    let first = &src.planes[0];
    let columns = params.x.coarser(first.step[1].max(1)).reads(row.width, params.filter);
    for plane in src.planes {
        let [down, across] = plane.step;
        if !down.is_power_of_two() || !across.is_power_of_two() || across < first.step[1] {
            return Err(wrong(format!("a plane of steps {down} and {across}")));
        }
        let times = across / first.step[1];
        let (y, x) = (params.y.coarser(down), params.x.coarser(across));
        let ends = [columns.start, columns.end - 1].map(|at| around(at, times, &(x.low..x.high)).0);
        let cols = if times == 1 { columns.clone() } else { ends[0][0]..ends[1][1] + 1 };
        let rows = y.reads(row.height, params.filter);
        let within = |need: &Range<u32>, held: &Range<u32>| held.start <= need.start && need.end <= held.end;
        let above = plane.rows.len().saturating_sub(1).saturating_mul(plane.pitch);
        let end = above.saturating_add(plane.cols.len()).saturating_add(plane.at);
        let held = plane.pitch >= plane.cols.len() && end <= src.data.len();
        if !held || !within(&rows, &plane.rows) || !within(&cols, &plane.cols) {
            return Err(wrong(format!("rows {rows:?} and columns {cols:?} are read of {plane:?}")));
        }
        parts.push(PlaneWindow { y, cols, times });
    }
    Ok(parts)
}
