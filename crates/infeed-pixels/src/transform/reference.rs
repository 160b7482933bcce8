//! The meaning of [`ResampleParams`] in plain Rust: slow, scalar, and shared by no kernel.
//!
//! A kernel is correct if it gives the same bits (NaN may be any NaN). In words:
//!
//! 1. Output `o` of an axis lies over the image when `from <= o < to`; elsewhere the row holds `fill`.
//! 2. Its centre is `fma(step, o + 0.5, start)`, its reach is the filter's times `max(step, 1)`. Pixels from
//!    `floor(centre - reach + 0.5)` to `floor(centre + reach + 0.5)`, clamped to `low..high`, have the weight that the
//!    filter gives for `x = |p + 0.5 - centre| * (1 / max(step, 1))`. Weights are divided by their sum.
//!    - Triangle, which reaches 1: `max(0, 1 - x)`, the product fused into the sum.
//!    - Cubic, 2, with `a = -0.5`: `fma(fma(a + 2, x, -(a + 3)), x * x, 1)` below 1, then `a * (x - 1) * (x - 2)²`.
//!    - Lanczos, 3: 0 at 1 and 2; else with `x` of at least 1e-6, `u = x * (1 / 3)`, `v = min(u, 1 - u)` and
//!      `s = v * P(v²)`, `P` being `SINE` by fused products: `r = s * 0.95492966 / x`, `(r * r) * fma(s * (-4 / 3), s, 1)`.
//!    - Box, a half: 1; its window lies around `fma(2^-21, centre, centre)`, so that a pixel whose middle lies on the edge
//!      of two outputs is the first one's.
//!
//!    Pixels of weight 0 at the ends are not read. If the sum of weights is not above 0, the pixel under the centre is
//!    used.
//!
//!    Some filters do not depend on the step. They lie around `place = centre - 0.5`, whose fraction is `part`:
//!    - Linear: the pixel at `place` weighs `1 - part`, the next one `part`. Pixels outside `low..high` are replaced by
//!      its end pixels.
//!    - CubicFour: the pixels at `place`, one before it and two after it have the weights of Cubic with `a = -0.75` for
//!      `1 + part`, `part`, `1 - part` and `2 - part`. Pixels outside are replaced by the end pixels; their weights are
//!      added in order.
//!    - NearestExact: the pixel under the centre. Nearest: with `whole = floor(start)`, it is
//!      `whole + floor(fma(step, o, start - whole))`.
//! 3. Columns are summed first, then the row of sums: `fma(weight, value, sum)` from 0, ascending. If a filter may have
//!    weights below 0 (Cubic, CubicFour, Lanczos), sums of u8 and u16 are clamped to 0..255 or 0..65535. For these
//!    filters and u8, lines are summed first. Their sums become bytes before the column of them is summed, as in Pillow
//!    and torch: clamped to 0..255 and, with 2^-12 added, rounded to the nearest (ties to even). The filters of floats
//!    (CubicOfFloats and so on) have the weights of their namesakes, but do not round to bytes.
//! 4. The stored value is `fma(sum, scale, bias)`, rounded to the nearest (ties to even); u8 saturates.
//! 5. It is stored at `o`, or at `len - 1 - o` if the axis is flipped. The cutout is written last.
//!
//! Planes ([`resample_planes`]) differ as follows:
//!
//! 6. A plane with one value per `step` pixels is resampled by the same rule, with its axes divided by `step`: the
//!    value is at the centre of its pixels, and `low..high` is rounded outwards. So brightness and colour have separate
//!    vertical taps.
//! 7. Horizontally, the taps are those of the first plane. A plane with one value per `n` values of the first plane is
//!    expanded to its width after the sum of columns: between the values `a` and `b`, at fraction `t`, it is
//!    `fma(b, t, a * (1 - t))`. Values at the ends of `low..high` are repeated.
//! 8. The three sums are Y, Cb, Cr: RGB is `fma(Cr', 1.402, Y)`, `fma(Cr', -0.714136, fma(Cb', -0.344136, Y))`,
//!    `fma(Cb', 1.772, Y)` with `Cb' = Cb - 128`, `Cr' = Cr - 128`, clamped to 0..255, and then scaled. Planes of other
//!    colours are clamped as in 3; if all have one size, they are summed as rule 3 says for u8.

use half::{bf16, f16};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::{DType, Layout},
};

use crate::kernels::{
    Axis, ChannelTable, Filter, Intensity, Pixels, Plane, Planes, ResampleParams, RowSpec, VolumeAxis, channel_source,
};

/// Makes the row that `params` describes.
///
/// Compares a user's kernel with it:
///
/// ```
/// use infeed::{
///     DType, Layout,
///     dataset::FieldKind,
///     spi::{Pixels, Resampler},
///     transform::{ImageInfo, SampleRng, Transform, reference::resample},
/// };
///
/// let info = ImageInfo::interleaved_u8(2, 2, 1);
/// let pixels = Pixels { info, rows: 0..2, data: &[10, 20, 30, 40] };
/// let images = FieldKind::Image { channels: 1, size: None, dtype: None };
/// let lowered = Transform::new().resize_exact(3, 3).lower(&images, DType::F32, Layout::Nchw)?;
/// let params = lowered.params(&info, SampleRng::new(0, 0, 0))?;
/// let (table, spec) = (lowered.table(DType::U8), lowered.row());
/// let mut row = vec![0; spec.len_bytes()];
/// Resampler::new().run(&pixels, &params, table, spec, &mut row)?;
/// assert_eq!(row, resample(&pixels, &params, table, spec)?);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `Internal` if channels or types do not match, or a window is outside the pixels held.
pub fn resample(src: &Pixels<'_>, params: &ResampleParams, table: &ChannelTable, row: &RowSpec) -> Result<Vec<u8>> {
    let filter = params.filter;
    let white = match src.info.dtype {
        DType::U8 => Some(255.0),
        DType::U16 => Some(65_535.0),
        _ => None,
    };
    let mut out = vec![0; row.len_bytes()];
    for c in 0..row.channels {
        let source = channel_source(u32::from(src.info.channels), row.channels, c)
            .ok_or_else(|| Error::new(ErrorKind::Internal, "channels do not fit"))?;
        let (scale, bias) = (table.scale[c as usize], table.bias[c as usize]);
        for y in 0..row.height {
            let down = taps(&params.y, y, row.height, filter);
            for x in 0..row.width {
                let across = taps(&params.x, x, row.width, filter);
                let [top, bottom, left, right] = params.cutout;
                let value = if (top..bottom).contains(&y) && (left..right).contains(&x) {
                    table.cutout[c as usize]
                } else if let (Some(down), Some(across)) = (&down, &across) {
                    let mut sum = 0.0f32;
                    if is_across_first(filter, src.info.dtype) {
                        for &(py, weight_y) in down {
                            let mut line = 0.0f32;
                            for &(px, weight_x) in across {
                                line = weight_x.mul_add(pixel(src, source, py, px)?, line);
                            }
                            sum = weight_y.mul_add(byte(line), sum);
                        }
                    } else {
                        for &(px, weight_x) in across {
                            let mut column = 0.0f32;
                            for &(py, weight_y) in down {
                                column = weight_y.mul_add(pixel(src, source, py, px)?, column);
                            }
                            sum = weight_x.mul_add(column, sum);
                        }
                    }
                    within(sum, filter, white).mul_add(scale, bias)
                } else {
                    table.fill[c as usize]
                };
                let at = match row.layout {
                    Layout::Nchw => (c * row.height + y) * row.width + x,
                    Layout::Nhwc => (y * row.width + x) * row.channels + c,
                };
                store(&mut out, at as usize, value, row.dtype)?;
            }
        }
    }
    Ok(out)
}

/// Makes the row of one channel of a volume that `axes` describe, as `write_volume` does. `voxel` returns the voxel at
/// a depth, height and width of the volume; for a mask, a whole number.
///
/// Output `o` of an axis shows voxel `start + step * o` of the axis `from`, if that is in `low..high`. If this holds
/// for all three axes, the value is `clamp(fma(voxel, scale, bias), low, high)`, rounded to the nearest (ties to even),
/// saturated. Otherwise it is `fill`. Without arithmetic and with the same type, bits are copied.
///
/// ```
/// use infeed::{DType, spi::{Intensity, VolumeAxis}, transform::reference::volume};
///
/// // A volume of 1x1x4 voxels, mirrored and doubled.
/// let voxels = [1.0, 2.0, 3.0, 4.0];
/// let mut axes = [VolumeAxis::whole(0, 1), VolumeAxis::whole(1, 1), VolumeAxis::whole(2, 4)];
/// (axes[2].start, axes[2].step) = (3, -1);
/// let twice = Intensity { scale: 2.0, ..Intensity::NONE };
/// assert_eq!(volume(|[_, _, x]| voxels[x], &axes, &twice, false, DType::U8), [8, 6, 4, 2]);
/// ```
#[must_use]
pub fn volume(
    voxel: impl Fn([usize; 3]) -> f64,
    axes: &[VolumeAxis; 3],
    intensity: &Intensity,
    mask: bool,
    dtype: DType,
) -> Vec<u8> {
    let mut out = Vec::new();
    for z in 0..axes[0].len {
        for y in 0..axes[1].len {
            for x in 0..axes[2].len {
                let mut at = [0; 3];
                let mut shown = true;
                for (axis, o) in axes.iter().zip([z, y, x]) {
                    let v = axis.start + axis.step * o as i64;
                    shown &= axis.low <= v && v < axis.high;
                    at[axis.from] = v as usize;
                }
                if mask {
                    let label = if shown { voxel(at) as i64 } else { 0 };
                    out.extend_from_slice(&label.to_le_bytes()[..dtype.size()]);
                    continue;
                }
                let value = match shown {
                    true => {
                        let value = (voxel(at) as f32).mul_add(intensity.scale, intensity.bias);
                        if value.is_nan() { value } else { value.max(intensity.low).min(intensity.high) }
                    }
                    false => intensity.fill,
                };
                match dtype {
                    DType::U8 => out.push(value.clamp(0.0, 255.0).round_ties_even() as u8),
                    DType::I16 => {
                        out.extend_from_slice(&(value.clamp(-32768.0, 32767.0).round_ties_even() as i16).to_ne_bytes());
                    }
                    DType::F16 => out.extend_from_slice(&f16::from_f32(value).to_ne_bytes()),
                    DType::Bf16 => out.extend_from_slice(&bf16::from_f32(value).to_ne_bytes()),
                    _ => out.extend_from_slice(&value.to_ne_bytes()),
                }
            }
        }
    }
    out
}

/// Makes the row that `params` describes from planes.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     codec::ImageInfo,
///     dataset::FieldKind,
///     spi::{Plane, Planes, Resampler, SampleRng},
///     transform::{Transform, reference::resample_planes},
/// };
///
/// let info = ImageInfo::interleaved_u8(2, 2, 3);
/// let y = Plane { at: 0, pitch: 2, step: [1, 1], rows: 0..2, cols: 0..2 };
/// let cb = Plane { at: 4, pitch: 1, step: [2, 2], rows: 0..1, cols: 0..1 };
/// let cr = Plane { at: 5, ..cb.clone() };
/// let planes = Planes { info, planes: &[y, cb, cr], ycbcr: true, data: &[10, 20, 30, 40, 90, 200] };
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = Transform::new().resize_exact(3, 3).lower(&images, DType::F32, Layout::Nchw)?;
/// let params = lowered.params(&info, SampleRng::new(0, 0, 0))?;
/// let (table, spec) = (lowered.table(DType::U8), lowered.row());
/// let mut row = vec![0; spec.len_bytes()];
/// Resampler::new().run_planes(&planes, &params, table, spec, &mut row)?;
/// assert_eq!(row, resample_planes(&planes, &params, table, spec)?);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `Internal` if channels or types do not match, or a window is outside the values held.
pub fn resample_planes(
    src: &Planes<'_>,
    params: &ResampleParams,
    table: &ChannelTable,
    row: &RowSpec,
) -> Result<Vec<u8>> {
    let mut out = vec![0; row.len_bytes()];
    let across_axis = params.x.coarser(src.planes[0].step[1]);
    for y in 0..row.height {
        let down: Vec<_> =
            src.planes.iter().map(|p| taps(&params.y.coarser(p.step[0]), y, row.height, params.filter)).collect();
        for x in 0..row.width {
            let mut sums = [0.0f32; 3];
            let across = taps(&across_axis, x, row.width, params.filter);
            let over = across.is_some() && down.iter().all(Option::is_some);
            let pixels = !src.ycbcr || src.planes.len() != 3;
            let first = is_across_first(params.filter, DType::U8)
                && pixels
                && src.planes.iter().all(|p| p.step == src.planes[0].step);
            for (n, plane) in src.planes.iter().enumerate().filter(|_| first) {
                for &(py, weight) in down[n].iter().flatten() {
                    let mut line = 0.0f32;
                    for &(px, weight) in across.iter().flatten() {
                        line = weight.mul_add(at_width(src, plane, &params.x, &[(py, 1.0)], px)?, line);
                    }
                    sums[n] = weight.mul_add(byte(line), sums[n]);
                }
            }
            for &(px, weight) in across.iter().flatten().filter(|_| !first) {
                for (n, plane) in src.planes.iter().enumerate() {
                    let Some(down) = &down[n] else { continue };
                    sums[n] = weight.mul_add(at_width(src, plane, &params.x, down, px)?, sums[n]);
                }
            }
            let rgb = match src.ycbcr && src.planes.len() == 3 {
                true => to_rgb(sums),
                false => sums.map(|sum| within(sum, params.filter, Some(255.0))),
            };
            for c in 0..row.channels {
                let source = channel_source(src.planes.len() as u32, row.channels, c)
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "channels do not fit"))?;
                let [top, bottom, left, right] = params.cutout;
                let n = c as usize;
                let value = if (top..bottom).contains(&y) && (left..right).contains(&x) {
                    table.cutout[n]
                } else if over {
                    rgb[source as usize].mul_add(table.scale[n], table.bias[n])
                } else {
                    table.fill[n]
                };
                let at = match row.layout {
                    Layout::Nchw => (c * row.height + y) * row.width + x,
                    Layout::Nhwc => (y * row.width + x) * row.channels + c,
                };
                store(&mut out, at as usize, value, row.dtype)?;
            }
        }
    }
    Ok(out)
}

/// The sum of a column of a plane, at column `px` of the first plane.
fn at_width(src: &Planes<'_>, plane: &Plane, x: &Axis, down: &[(u32, f32)], px: u32) -> Result<f32> {
    let column = |x: u32| {
        let mut sum = 0.0f32;
        for &(y, weight) in down {
            let outside = || Error::new(ErrorKind::Internal, format!("value ({y}, {x}) is not held by {plane:?}"));
            let held = plane.rows.contains(&y) && plane.cols.contains(&x);
            let held = held
                .then(|| plane.at + (y - plane.rows.start) as usize * plane.pitch + (x - plane.cols.start) as usize);
            let value = held.and_then(|at| src.data.get(at)).ok_or_else(outside)?;
            sum = weight.mul_add(f32::from(*value), sum);
        }
        Ok(sum)
    };
    let times = plane.step[1] / src.planes[0].step[1];
    if times == 1 {
        return column(px);
    }
    let axis = x.coarser(plane.step[1]);
    // Position in values of this plane, from the centre of value 0. All operations are exact.
    let place = (f64::from(px) + 0.5) / f64::from(times) - 0.5;
    let clamp = |value: f64| (value.max(0.0) as u32).clamp(axis.low, axis.high - 1);
    let (a, b) = (clamp(place.floor()), clamp(place.floor() + 1.0));
    let part = (place - place.floor()) as f32;
    Ok(column(b)?.mul_add(part, column(a)? * (1.0 - part)))
}

fn to_rgb([y, b, r]: [f32; 3]) -> [f32; 3] {
    let (b, r) = (b - 128.0, r - 128.0);
    let green = r.mul_add(-0.714_136, b.mul_add(-0.344_136, y));
    [r.mul_add(1.402, y), green, b.mul_add(1.772, y)].map(|value| value.clamp(0.0, 255.0))
}

fn overshoots(filter: Filter) -> bool {
    matches!(filter.shape(), Filter::Cubic | Filter::CubicFour | Filter::Lanczos)
}

/// Whether lines are summed before columns.
fn is_across_first(filter: Filter, dtype: DType) -> bool {
    overshoots(filter) && filter == filter.shape() && dtype == DType::U8
}

/// The sum of a line, rounded to a byte.
fn byte(sum: f32) -> f32 {
    (sum.clamp(0.0, 255.0) + 2f32.powi(-12)).round_ties_even()
}

/// A sum, clamped to the range of its pixels if the filter overshoots.
fn within(sum: f32, filter: Filter, white: Option<f32>) -> f32 {
    match white {
        Some(white) if overshoots(filter) => sum.clamp(0.0, white),
        _ => sum,
    }
}

/// Source pixels and weights of the output stored at `stored`; `None` outside of the image.
fn taps(axis: &Axis, stored: u32, len: u32, filter: Filter) -> Option<Vec<(u32, f32)>> {
    let filter = filter.shape();
    let o = if axis.flip != 0 { len - 1 - stored } else { stored };
    if o < axis.from || o >= axis.to {
        return None;
    }
    let clamp = |place: f32| (place.floor() as u32).clamp(axis.low, axis.high - 1);
    let centre = axis.step.mul_add(o as f32 + 0.5, axis.start);
    let under_centre = vec![(clamp(centre), 1.0)];
    let place = centre - 0.5;
    let part = place - place.floor();
    let widened = axis.step.max(1.0);
    let mut taps: Vec<(u32, f32)> = match filter {
        Filter::NearestExact => under_centre.clone(),
        Filter::Nearest => {
            let whole = axis.start.floor();
            vec![(clamp(whole + axis.step.mul_add(o as f32, axis.start - whole).floor()), 1.0)]
        }
        Filter::Linear => {
            let outside = place < axis.low as f32 || place >= (axis.high - 1) as f32;
            let part = if outside { 0.0 } else { part };
            vec![(clamp(place), 1.0 - part), (clamp(place.floor() + 1.0), part)]
        }
        Filter::CubicFour => {
            let mut taps: Vec<(u32, f32)> = Vec::new();
            for (n, x) in [1.0 + part, part, 1.0 - part, 2.0 - part].into_iter().enumerate() {
                let (pixel, weight) = (clamp(place.floor() + (n as f32 - 1.0)), cubic(x, -0.75));
                match taps.last_mut().filter(|last| last.0 == pixel) {
                    Some(last) => last.1 += weight,
                    None => taps.push((pixel, weight)),
                }
            }
            taps
        }
        _ => {
            let (reach, middle) = match filter {
                Filter::Cubic => (2.0, centre),
                Filter::Lanczos => (3.0, centre),
                Filter::Box => (0.5, centre.mul_add(2f32.powi(-21), centre)),
                _ => (1.0, centre),
            };
            let first = clamp(middle - reach * widened + 0.5);
            let end = ((middle + reach * widened + 0.5).floor() as u32).clamp(first + 1, axis.high);
            let weight = |p: u32| {
                let (distance, inverse) = ((p as f32 + 0.5 - centre).abs(), 1.0 / widened);
                match filter {
                    Filter::Cubic => cubic(distance * inverse, -0.5),
                    Filter::Lanczos => lanczos(distance * inverse),
                    Filter::Box => 1.0,
                    _ => f32::max(0.0, (-distance).mul_add(inverse, 1.0)),
                }
            };
            (first..end).map(|p| (p, weight(p))).collect()
        }
    };
    while taps.last().is_some_and(|tap| tap.1 == 0.0) {
        taps.pop();
    }
    while taps.first().is_some_and(|tap| tap.1 == 0.0) {
        taps.remove(0);
    }
    if matches!(filter, Filter::NearestExact | Filter::Nearest | Filter::Linear | Filter::CubicFour) {
        return Some(taps);
    }
    let sum = taps.iter().fold(0.0f32, |sum, tap| sum + tap.1);
    if sum <= 0.0 {
        return Some(under_centre);
    }
    Some(taps.into_iter().map(|(p, weight)| (p, weight / sum)).collect())
}

/// Keys' cubic.
fn cubic(x: f32, a: f32) -> f32 {
    match x {
        x if x < 1.0 => (a + 2.0).mul_add(x, -(a + 3.0)).mul_add(x * x, 1.0),
        x if x < 2.0 => a * (x - 1.0) * ((x - 2.0) * (x - 2.0)),
        _ => 0.0,
    }
}

/// `sin(pi v) / v` by powers of `v²`.
const SINE: [f32; 6] = [std::f32::consts::PI, -5.167_712_8, 2.550_164, -0.599_264_5, 0.082_145_89, -0.007_370_43];

fn lanczos(x: f32) -> f32 {
    if x == 1.0 || x == 2.0 || x >= 3.0 {
        return 0.0;
    }
    let x = x.max(1e-6);
    let third = x * (1.0 / 3.0);
    let v = third.min(1.0 - third);
    let mut sine = SINE[5];
    for factor in [SINE[4], SINE[3], SINE[2], SINE[1], SINE[0]] {
        sine = sine.mul_add(v * v, factor);
    }
    sine *= v;
    let ratio = sine * 0.954_929_66 / x;
    ratio * ratio * (sine * (-4.0 / 3.0)).mul_add(sine, 1.0)
}

fn pixel(src: &Pixels<'_>, channel: u32, y: u32, x: u32) -> Result<f32> {
    let outside = || Error::new(ErrorKind::Internal, format!("pixel ({y}, {x}) is not among the decoded ones"));
    let y = y.checked_sub(src.rows.start).ok_or_else(outside)? as usize;
    let (x, channel) = (x as usize, channel as usize);
    let (width, channels, rows) = (src.info.width as usize, src.info.channels as usize, src.rows.len());
    let at = if src.info.planar { (channel * rows + y) * width + x } else { (y * width + x) * channels + channel };
    let size = src.info.dtype.size();
    let bytes = src.data.get(at * size..(at + 1) * size).filter(|_| y < rows && x < width).ok_or_else(outside)?;
    match (src.info.dtype, bytes) {
        (DType::U8, &[a]) => Ok(f32::from(a)),
        (DType::U16, &[a, b]) => Ok(f32::from(u16::from_ne_bytes([a, b]))),
        (DType::F32, &[a, b, c, d]) => Ok(f32::from_ne_bytes([a, b, c, d])),
        (dtype, _) => Err(Error::new(ErrorKind::Internal, format!("pixels of {dtype}"))),
    }
}

fn store(out: &mut [u8], at: usize, value: f32, dtype: DType) -> Result<()> {
    let size = dtype.size();
    let out = &mut out[at * size..(at + 1) * size];
    match dtype {
        DType::U8 => out[0] = value.clamp(0.0, 255.0).round_ties_even() as u8,
        DType::F16 => out.copy_from_slice(&f16::from_f32(value).to_ne_bytes()),
        DType::Bf16 => out.copy_from_slice(&bf16::from_f32(value).to_ne_bytes()),
        DType::F32 => out.copy_from_slice(&value.to_ne_bytes()),
        _ => return Err(Error::new(ErrorKind::Internal, format!("rows of {dtype}"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::types::ImageInfo;

    #[test]
    fn a_two_by_two_image_is_halved_and_doubled_by_hand() {
        let info = ImageInfo::interleaved_u8(2, 2, 1);
        let src = Pixels { info, rows: 0..2, data: &[0, 100, 200, 40] };
        let table = ChannelTable { scale: vec![1.0], bias: vec![0.0], fill: vec![9.0], cutout: vec![7.0] };
        let spec = |n| RowSpec { height: n, width: n, channels: 1, dtype: DType::F32, layout: Layout::Nchw };
        let axis = |n: u32| Axis { start: 0.0, step: 2.0 / n as f32, low: 0, high: 2, from: 0, to: n, flip: 0 };
        let params = |n| ResampleParams { y: axis(n), x: axis(n), cutout: [0; 4], filter: Filter::Triangle };
        let run = |n| {
            let out = resample(&src, &params(n), &table, &spec(n)).unwrap();
            bytemuck::pod_collect_to_vec::<u8, f32>(&out)
        };
        assert_eq!(run(1), [85.0]);
        // Centres at 0.25, 0.75, 1.25, 1.75: the outer ones see one pixel, the inner ones three quarters and a quarter.
        assert_eq!(run(4)[..4], [0.0, 25.0, 75.0, 100.0]);
        assert_eq!(run(4)[4], 50.0);
    }
}
