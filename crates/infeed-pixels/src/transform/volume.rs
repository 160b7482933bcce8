//! Lowers a list of steps to one pass over a volume: axes that are moved, mirrored and swapped, and one multiplication,
//! addition and clamp.

use std::{ops::Range, sync::Arc};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    types::DType,
};
use infeed_data::FieldKind;

use super::{
    chain::Transform,
    op::{Axis, Op},
};
use crate::kernels::{Intensity, VolumeAxis};

/// Longest side of a row, as for images.
const LONGEST: u32 = 32_768;

/// A transform that fits a volume field. Cheap to clone: clones share it.
///
/// ```
/// use infeed::{DType, dataset::FieldKind, spi::{Foreground, LoweredVolume}, transform::{SampleRng, Transform}};
///
/// let volumes = FieldKind::Volume { channels: 1, size: None, mask: None };
/// let transform = Transform::new().patch([2, 4, 4], 0.0).window(-1000.0, 1000.0);
/// let lowered = transform.lower_volume(&volumes, DType::F32)?;
/// assert_eq!(lowered.shape(), [1, 2, 4, 4]);
///
/// // The box that one sample reads.
/// let axes = lowered.axes([10, 20, 20], &Foreground::default(), SampleRng::new(42, 0, 7))?;
/// assert_eq!(LoweredVolume::reads(&axes).map(|axis| axis.len()), [2, 4, 4]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LoweredVolume {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    ops: Vec<Op>,
    channels: u32,
    size: [u32; 3],
    dtype: DType,
    mask: bool,
    chain: Chain,
}

/// `clamp(value * scale + bias, low, high)`: every list of scales, windows and clamps folds to this.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Chain {
    scale: f64,
    bias: f64,
    low: f64,
    high: f64,
    fill: f64,
}

impl Chain {
    const NONE: Self = Self { scale: 1.0, bias: 0.0, low: f64::NEG_INFINITY, high: f64::INFINITY, fill: 0.0 };

    fn scale(&mut self, scale: f64, bias: f64) {
        let ends = [self.low, self.high].map(|end| end * scale + bias);
        (self.low, self.high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        (self.scale, self.bias) = (self.scale * scale, self.bias * scale + bias);
        self.fill = self.fill * scale + bias;
    }

    fn clamp(&mut self, low: f64, high: f64) {
        (self.low, self.high) = (self.low.clamp(low, high), self.high.clamp(low, high));
        self.fill = self.fill.clamp(low, high);
    }
}

/// The sizes of rows after some of the steps, where they do not depend on the volume.
struct Sizes {
    size: Option<[u32; 3]>,
    padded: Option<f64>,
}

impl Transform {
    /// Fixes shape, type and arithmetic for volumes of `field`. Masks follow only the geometry and keep their type.
    ///
    /// # Errors
    /// `Config`, naming the step, if a step is for images, has invalid settings, or the rows have no fixed size.
    pub fn lower_volume(&self, field: &FieldKind, dtype: DType) -> Result<LoweredVolume> {
        self.check_settings()?;
        let FieldKind::Volume { channels, size, mask } = field else {
            return Err(Error::config("volume steps need a field of volumes"));
        };
        let dtype = mask.unwrap_or(dtype);
        if mask.is_none() && !matches!(dtype, DType::U8 | DType::I16 | DType::F16 | DType::Bf16 | DType::F32) {
            return Err(Error::config(format!("volumes can't be {dtype}")).with_hint("use u8, i16, f16, bf16 or f32"));
        }
        let mut sizes = Sizes { size: *size, padded: None };
        let mut chain = Chain::NONE;
        for op in self.ops() {
            sizes.add(op, &mut chain)?;
        }
        let Some(size) = sizes.size else {
            let last = self.ops().last().map_or_else(String::new, |last| format!(" after {}", last.name()));
            let what = "the shapes of the volumes are not known before they are read";
            return Err(Error::config(format!("the rows have no fixed size{last}: {what}"))
                .with_hint("add patch or pad_or_crop"));
        };
        if *channels == 0 || size.contains(&0) {
            return Err(Error::config("the volumes have no voxels").with_hint("look at the dataset's schema"));
        }
        let (ops, channels, mask) = (self.ops().to_vec(), *channels, mask.is_some());
        Ok(LoweredVolume { shared: Arc::new(Shared { ops, channels, size, dtype, mask, chain }) })
    }

    /// Whether a step needs voxels of the foreground.
    #[must_use]
    pub fn wants_foreground(&self) -> bool {
        self.ops().iter().any(|op| matches!(op, Op::Patch { foreground, .. } if *foreground > 0.0))
    }
}

impl Sizes {
    fn add(&mut self, op: &Op, chain: &mut Chain) -> Result<()> {
        let name = op.name();
        let chance = |p: f32| match (0.0..=1.0).contains(&p) {
            true => Ok(()),
            false => Err(Error::config(format!("{name} has probability {p}")).with_hint("use 0 to 1")),
        };
        let finite = |values: &[f32]| match values.iter().all(|v| v.is_finite()) {
            true => Ok(()),
            false => Err(Error::config(format!("{name} has the numbers {values:?}")).with_hint("use finite ones")),
        };
        let sized = |size: &[u32; 3]| match size.iter().all(|side| (1..=LONGEST).contains(side)) {
            true => Ok(()),
            false => Err(Error::config(format!("{name} has size {size:?}")).with_hint(format!("use 1 to {LONGEST}"))),
        };
        match op {
            Op::FlipAxis { p, .. } => chance(*p)?,
            Op::Rot90 { plane, p } => {
                chance(*p)?;
                let [a, b] = plane.map(Axis::index);
                if a == b {
                    return Err(Error::config("rot90 turns a plane of one axis").with_hint("name two different axes"));
                }
                if let Some(size) = self.size.filter(|size| size[a] != size[b]) {
                    let what = format!("rot90 turns sides of {} and {}: rows would differ in shape", size[a], size[b]);
                    return Err(Error::config(what).with_hint("put a patch or pad_or_crop with equal sides before it"));
                }
            }
            Op::PadOrCrop { size, value } => {
                sized(size)?;
                finite(&[*value])?;
                let value = f64::from(*value);
                if self.padded.is_some() && chain.fill != value {
                    return Err(
                        Error::config("pad_or_crop is used twice with different values").with_hint("use one value")
                    );
                }
                (self.padded, chain.fill, self.size) = (Some(value), value, Some(*size));
            }
            Op::Patch { size, foreground } => {
                sized(size)?;
                chance(*foreground)?;
                if let Some(have) = self.size.filter(|have| have.iter().zip(size).any(|(have, want)| have < want)) {
                    return Err(Error::config(format!("patch takes {size:?} out of {have:?}"))
                        .with_hint("use a smaller patch, or pad_or_crop before it"));
                }
                self.size = Some(*size);
            }
            Op::Window { low, high } => {
                finite(&[*low, *high])?;
                let (low, high) = (f64::from(*low), f64::from(*high));
                if low >= high {
                    return Err(
                        Error::config(format!("window from {low} to {high}")).with_hint("give the smaller first")
                    );
                }
                chain.clamp(low, high);
                chain.scale(1.0 / (high - low), -low / (high - low));
            }
            Op::Scale { scale, bias } => {
                finite(&[*scale, *bias])?;
                chain.scale(f64::from(*scale), f64::from(*bias));
            }
            Op::Clamp { low, high } => {
                finite(&[*low, *high])?;
                if low > high {
                    return Err(
                        Error::config(format!("clamp from {low} to {high}")).with_hint("give the smaller first")
                    );
                }
                chain.clamp(f64::from(*low), f64::from(*high));
            }
            other => {
                return Err(Error::config(format!("{} is for images, not for volumes", other.name()))
                    .with_hint("use flip_axis, rot90, pad_or_crop, patch, window, scale and clamp"));
            }
        }
        Ok(())
    }
}

impl LoweredVolume {
    /// Channels, depth, height, width of a row.
    #[must_use]
    pub fn shape(&self) -> [usize; 4] {
        let [z, y, x] = self.shared.size.map(|n| n as usize);
        [self.shared.channels as usize, z, y, x]
    }

    /// Type of a row.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.shared.dtype
    }

    /// Whether values are labels: they are moved, never changed.
    #[must_use]
    pub fn is_mask(&self) -> bool {
        self.shared.mask
    }

    /// The arithmetic for a file whose voxels mean `voxel * slope + intercept`.
    #[must_use]
    pub fn intensity(&self, slope: f64, intercept: f64) -> Intensity {
        if self.shared.mask {
            return Intensity::NONE;
        }
        let Chain { scale, bias, low, high, fill } = self.shared.chain;
        Intensity {
            scale: (slope * scale) as f32,
            // Adding 0 turns a bias of -0 into 0.
            bias: (intercept * scale + bias) as f32 + 0.0,
            low: low as f32,
            high: high as f32,
            fill: fill as f32 + 0.0,
        }
    }

    /// The axes of one sample's row. They depend only on shape, foreground and draws, so the fields of a record move
    /// alike. `foreground` holds voxel positions, `(z * height + y) * width + x`; if it is empty, patches are drawn
    /// uniformly.
    ///
    /// # Errors
    /// `Unsupported` for a volume that the steps can't take. The error names neither record nor object; the caller adds
    /// them.
    pub fn axes(&self, shape: [usize; 3], foreground: &Foreground<'_>, rng: SampleRng) -> Result<[VolumeAxis; 3]> {
        let bad = |what: String, hint: &'static str| {
            Error::new(ErrorKind::Unsupported, what).with_hint(hint).at_stage(Stage::Transform)
        };
        let mut axes = [0, 1, 2].map(|axis| VolumeAxis::whole(axis, shape[axis]));
        for (index, op) in self.shared.ops.iter().enumerate() {
            let mut draws = rng.op(index as u32);
            match op {
                Op::FlipAxis { axis, p } if draws.chance(*p) => mirror(&mut axes[axis.index()]),
                Op::Rot90 { plane, p } => {
                    let [a, b] = plane.map(Axis::index);
                    let turns = if draws.chance(*p) { 1 + draws.below(3) } else { 0 };
                    if turns % 2 == 1 && axes[a].len != axes[b].len {
                        let what = format!("rot90 turns sides of {} and {}", axes[a].len, axes[b].len);
                        return Err(bad(what, "put a patch or pad_or_crop with equal sides before it"));
                    }
                    match turns {
                        0 => {}
                        1 => {
                            mirror(&mut axes[b]);
                            axes.swap(a, b);
                        }
                        2 => [a, b].into_iter().for_each(|axis| mirror(&mut axes[axis])),
                        _ => {
                            axes.swap(a, b);
                            mirror(&mut axes[b]);
                        }
                    }
                }
                Op::PadOrCrop { size, .. } => {
                    for (axis, len) in axes.iter_mut().zip(size) {
                        // Rounded towards 0: if the difference is odd, the extra voxel is cut off or added at the end.
                        let spare = axis.len as i64 - i64::from(*len);
                        cut(axis, spare / 2, *len as usize);
                    }
                }
                Op::Patch { size, foreground: p } => {
                    if axes.iter().zip(size).any(|(axis, len)| axis.len < *len as usize) {
                        let have = [axes[0].len, axes[1].len, axes[2].len];
                        return Err(bad(
                            format!("a volume of {have:?} where patch takes {size:?}"),
                            "put pad_or_crop before it, or use a smaller patch",
                        ));
                    }
                    let point = if draws.chance(*p) { foreground.draw(shape, draws.bits()) } else { None };
                    for (axis, len) in axes.iter_mut().zip(size) {
                        let (len, spare) = (*len as usize, axis.len as i64 - i64::from(*len));
                        let at = match point {
                            // Centred on the point, as far as the volume's edges allow.
                            Some(point) => {
                                ((point[axis.from] as i64 - axis.start) * axis.step - len as i64 / 2).clamp(0, spare)
                            }
                            None => draws.below(spare as u64 + 1) as i64,
                        };
                        cut(axis, at, len);
                    }
                }
                _ => {}
            }
        }
        let made = [axes[0].len, axes[1].len, axes[2].len];
        let rows = self.shared.size.map(|n| n as usize);
        if made != rows {
            return Err(bad(
                format!("a volume of {shape:?} makes a row of {made:?}; rows are {rows:?}"),
                "add patch or pad_or_crop",
            ));
        }
        Ok(axes)
    }

    /// The box of a volume that these axes read.
    #[must_use]
    pub fn reads(axes: &[VolumeAxis; 3]) -> [Range<usize>; 3] {
        let mut reads = [0..0, 0..0, 0..0];
        for axis in axes {
            reads[axis.from] = axis.reads();
        }
        // If one axis reads nothing, no axis does.
        if reads.iter().any(Range::is_empty) { [0..0, 0..0, 0..0] } else { reads }
    }
}

/// Positions of the foreground's voxels: `u64` in little-endian bytes, ascending.
///
/// ```
/// use infeed::{DType, dataset::FieldKind, spi::{Foreground, LoweredVolume}, transform::{SampleRng, Transform}};
///
/// let volumes = FieldKind::Volume { channels: 1, size: None, mask: None };
/// let lowered = Transform::new().patch([3, 3, 3], 1.0).lower_volume(&volumes, DType::F32)?;
/// // One voxel of a lesion, at depth 5, height 6, width 7 of a volume of 10x10x10.
/// let places = u64::to_le_bytes((5 * 10 + 6) * 10 + 7);
/// let axes = lowered.axes([10, 10, 10], &Foreground(&places), SampleRng::new(42, 0, 7))?;
/// assert_eq!(LoweredVolume::reads(&axes), [4..7, 5..8, 6..9]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Foreground<'a>(pub &'a [u8]);

impl Foreground<'_> {
    fn draw(&self, shape: [usize; 3], bits: u64) -> Option<[usize; 3]> {
        let places = self.0.as_chunks::<8>().0;
        let at = ((u128::from(bits) * places.len() as u128) >> 64) as usize;
        let place = usize::try_from(u64::from_le_bytes(*places.get(at)?)).ok()?;
        let [depth, height, width] = shape;
        let (line, x) = (place.checked_div(width)?, place % width);
        let (z, y) = (line.checked_div(height)?, line % height);
        (z < depth).then_some([z, y, x])
    }
}

fn mirror(axis: &mut VolumeAxis) {
    axis.start = axis.at(axis.len.saturating_sub(1));
    axis.step = -axis.step;
}

/// Keeps the outputs `at .. at + len`. Outputs outside of the axis are filled, also after later steps.
fn cut(axis: &mut VolumeAxis, at: i64, len: usize) {
    axis.start += axis.step * at;
    axis.len = len;
    let (first, last) = (axis.start, axis.at(len.saturating_sub(1)));
    axis.low = axis.low.max(first.min(last));
    axis.high = axis.high.min(first.max(last) + 1).max(axis.low);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(size: Option<[u32; 3]>) -> FieldKind {
        FieldKind::Volume { channels: 1, size, mask: None }
    }

    fn refused(transform: Transform, size: Option<[u32; 3]>) -> String {
        transform.lower_volume(&field(size), DType::F32).unwrap_err().to_string()
    }

    #[test]
    fn intensities_fold_to_one_line() {
        let steps = Transform::new().window(-1000.0, 1000.0).scale(2.0, -1.0).clamp(-0.5, 0.75);
        let lowered = steps.lower_volume(&field(Some([1, 1, 1])), DType::F32).unwrap();
        let Intensity { scale, bias, low, high, .. } = lowered.intensity(1.0, 0.0);
        let run = |v: f32| v.mul_add(scale, bias).clamp(low, high);
        for v in [-5000.0f32, -1000.0, -300.0, 0.0, 700.0, 999.0, 4000.0] {
            let by_hand = (((v.clamp(-1000.0, 1000.0) + 1000.0) / 2000.0) * 2.0 - 1.0).clamp(-0.5, 0.75);
            assert!((run(v) - by_hand).abs() < 1e-6, "{v}: {} not {by_hand}", run(v));
        }
        // A negative factor swaps the ends.
        let lowered = Transform::new().clamp(0.0, 1.0).scale(-2.0, 0.0);
        let lowered = lowered.lower_volume(&field(Some([1, 1, 1])), DType::F32).unwrap();
        assert_eq!((lowered.intensity(1.0, 0.0).low, lowered.intensity(1.0, 0.0).high), (-2.0, 0.0));
        // The scale and bias of the file are applied first.
        assert_eq!(lowered.intensity(3.0, 1.0).scale, -6.0);
    }

    #[test]
    fn fill_is_a_value_at_its_place_in_the_list() {
        let lowered = Transform::new().pad_or_crop([4, 4, 4], -1000.0).window(-1000.0, 0.0);
        assert_eq!(lowered.lower_volume(&field(None), DType::F32).unwrap().intensity(1.0, 0.0).fill, 0.0);
        let lowered = Transform::new().window(-1000.0, 0.0).pad_or_crop([4, 4, 4], -3.0);
        assert_eq!(lowered.lower_volume(&field(None), DType::F32).unwrap().intensity(1.0, 0.0).fill, -3.0);
    }

    #[test]
    fn an_odd_voxel_is_cut_off_or_added_behind() {
        let lowered = Transform::new().pad_or_crop([4, 4, 4], 0.0).lower_volume(&field(None), DType::F32).unwrap();
        let axes = lowered.axes([4, 7, 1], &Foreground(&[]), SampleRng::new(1, 2, 3)).unwrap();
        // The voxel that each output reads. Of 7 voxels: 1 to 4. Of 1 voxel: one fill before it, the voxel, and two
        // fills after it.
        assert_eq!(axes.map(|axis| axis.at(0)), [0, 1, -1]);
    }

    #[test]
    fn what_can_not_be_names_the_step() {
        assert!(
            refused(Transform::new(), None).contains("are not known before they are read; add patch or pad_or_crop")
        );
        assert!(refused(Transform::new().center_crop(3), None).contains("center_crop is for images"));
        assert!(refused(Transform::new().patch([5, 5, 5], 0.0), Some([4, 9, 9])).contains("patch takes [5, 5, 5]"));
        assert!(refused(Transform::new().patch([0, 5, 5], 0.0), None).contains("patch has size"));
        assert!(refused(Transform::new().patch([1, 1, 1], 1.5), None).contains("probability 1.5"));
        assert!(refused(Transform::new().window(1.0, 1.0), None).contains("window from 1 to 1"));
        assert!(refused(Transform::new().scale(f32::NAN, 1.0), None).contains("finite"));
        assert!(refused(Transform::new().rot90([Axis::Z, Axis::X], 1.0), Some([2, 3, 4])).contains("sides of 2 and 4"));
        assert!(refused(Transform::new().rot90([Axis::Z, Axis::Z], 1.0), None).contains("two different axes"));
    }

    #[test]
    fn a_patch_lies_inside_and_on_the_foreground_when_asked() {
        let lowered = Transform::new().patch([2, 3, 4], 1.0).lower_volume(&field(None), DType::F32).unwrap();
        let shape = [8, 9, 10];
        let points: Vec<u8> = [[0usize, 0, 0], [7, 8, 9], [3, 4, 5]]
            .iter()
            .flat_map(|[z, y, x]| ((z * 9 + y) as u64 * 10 + *x as u64).to_le_bytes())
            .collect();
        let mut seen = std::collections::HashSet::new();
        for record in 0..300 {
            let rng = SampleRng::new(1, 2, record);
            let axes = lowered.axes(shape, &Foreground(&points), rng).unwrap();
            let reads = LoweredVolume::reads(&axes);
            let holds = |p: [usize; 3]| (0..3).all(|a| reads[a].contains(&p[a]));
            assert!([[0, 0, 0], [7, 8, 9], [3, 4, 5]].into_iter().any(holds), "{reads:?}");
            seen.insert(format!("{reads:?}"));
            // Without foreground the box is anywhere inside.
            let axes = lowered.axes(shape, &Foreground(&[]), rng).unwrap();
            assert!(LoweredVolume::reads(&axes).iter().zip(shape).all(|(read, len)| read.end <= len));
        }
        assert_eq!(seen.len(), 3);
    }
}
