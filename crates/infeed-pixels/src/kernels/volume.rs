//! The single pass from a volume to a row: moved, rotated, padded, scaled and stored.
//!
//! ```text
//! outputs (z, y) ─▶ a run of voxels along x, whole planes or the volume where nothing breaks it
//!                     └ convert: load, fma, clamp, round ─▶ 4 KiB block in L1 ─▶ stored past the caches
//! ```
//!
//! `transform::reference::volume` defines the result. Each needed voxel is read once, each output is written once.

use bytemuck::Pod;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use infeed_data::Voxels;

use super::{
    convert::{Bf16, F16, F32, Load, Store, U8, U16},
    level::{Level, at_each_level},
    stream::{PAST_CACHES, Stream, fetch},
};

/// How one axis of a row is made from one axis of a volume: output `o` shows voxel `start + step * o`.
///
/// ```
/// use infeed::{DType, dataset::FieldKind, spi::Foreground, transform::{SampleRng, Transform}};
///
/// let volumes = FieldKind::Volume { channels: 1, size: None, mask: None };
/// let lowered = Transform::new().pad_or_crop([2, 4, 4], 0.0).lower_volume(&volumes, DType::F32)?;
/// // Of four slices, the two in the middle; of two lines, both, between two of fill.
/// let [z, y, _] = lowered.axes([4, 2, 4], &Foreground::default(), SampleRng::new(0, 0, 0))?;
/// assert_eq!((z.reads(), z.voxel(0)), (1..3, Some(1)));
/// assert_eq!((y.shown(), y.voxel(0), y.voxel(1)), (1..3, None, Some(0)));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeAxis {
    /// The axis of the volume: 0 depth, 1 height, 2 width. A row uses each axis once.
    pub from: usize,
    /// The voxel of output 0; it may be outside of the volume.
    pub start: i64,
    /// 1 or -1.
    pub step: i64,
    /// Number of outputs.
    pub len: usize,
    /// First voxel that is shown; outputs before it are fill.
    pub low: i64,
    /// End of the voxels that are shown.
    pub high: i64,
}

impl VolumeAxis {
    /// The whole axis, unchanged.
    #[must_use]
    pub const fn whole(from: usize, len: usize) -> Self {
        Self { from, start: 0, step: 1, len, low: 0, high: len as i64 }
    }

    /// The voxel of an output, shown or not.
    #[must_use]
    pub const fn at(&self, output: usize) -> i64 {
        self.start + self.step * output as i64
    }

    /// The voxel of an output, if it is shown.
    #[must_use]
    pub fn voxel(&self, output: usize) -> Option<usize> {
        let at = self.at(output);
        (self.low..self.high).contains(&at).then_some(at as usize)
    }

    /// The outputs that show voxels.
    #[must_use]
    pub fn shown(&self) -> std::ops::Range<usize> {
        let (a, b) = if self.step > 0 {
            (self.low - self.start, self.high - self.start)
        } else {
            (self.start - self.high + 1, self.start - self.low + 1)
        };
        let cut = |o: i64| o.clamp(0, self.len as i64) as usize;
        cut(a)..cut(b).max(cut(a))
    }

    /// The voxels that are shown.
    #[must_use]
    pub fn reads(&self) -> std::ops::Range<usize> {
        let shown = self.shown();
        if shown.is_empty() {
            return 0..0;
        }
        let (a, b) = (self.at(shown.start) as usize, self.at(shown.end - 1) as usize);
        a.min(b)..a.max(b) + 1
    }
}

/// Arithmetic of a row: `clamp(fma(value, scale, bias), low, high)`. NaN stays NaN.
///
/// ```
/// use infeed::{DType, dataset::FieldKind, transform::Transform};
///
/// let volumes = FieldKind::Volume { channels: 1, size: Some([1, 2, 2]), mask: None };
/// let lowered = Transform::new().window(-1000.0, 1000.0).lower_volume(&volumes, DType::F32)?;
/// let of = lowered.intensity(1.0, -1024.0); // For a file with the intercept -1024.
/// let value = |voxel: f32| voxel.mul_add(of.scale, of.bias).clamp(of.low, of.high);
/// assert!((value(1024.0) - 0.5).abs() < 1e-6);
/// assert_eq!(value(4000.0), 1.0);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Intensity {
    /// Factor.
    pub scale: f32,
    /// Added after the multiplication.
    pub bias: f32,
    /// Least output value.
    pub low: f32,
    /// Greatest output value.
    pub high: f32,
    /// Value outside the volume, in output units.
    pub fill: f32,
}

impl Intensity {
    /// Values unchanged, 0 outside.
    pub const NONE: Self = Self { scale: 1.0, bias: 0.0, low: f32::NEG_INFINITY, high: f32::INFINITY, fill: 0.0 };

    /// Whether values stay unchanged.
    #[must_use]
    pub fn is_none(&self) -> bool {
        Self { fill: 0.0, ..*self } == Self::NONE
    }
}

/// Writes a row of one channel. `axes` are those of depth, height and width; `out` is `[depth, height, width]` of
/// `dtype`. `mask`: whole numbers are stored unchanged.
///
/// # Errors
/// `Internal` if the voxels held are not those that the axes show, or a type is not supported.
pub fn write_volume(
    src: &Voxels<'_>,
    axes: &[VolumeAxis; 3],
    intensity: &Intensity,
    mask: bool,
    dtype: DType,
    level: Level,
    out: &mut [u8],
) -> Result<()> {
    let wrong = |what: &'static str| Error::new(ErrorKind::Internal, what).with_hint("please report this");
    let convert = converter(src.dtype, dtype, mask, intensity)
        .ok_or_else(|| wrong("a row of a type that its voxels can't have"))?;
    let [az, ay, ax] = axes;
    let outputs = [az, ay, ax].iter().try_fold(dtype.size(), |n, axis| n.checked_mul(axis.len));
    let held = |axis: &VolumeAxis| {
        let (reads, begin, len) = (axis.reads(), src.begin[axis.from], src.shape[axis.from]);
        reads.is_empty() || (reads.start >= begin && reads.end <= begin.saturating_add(len))
    };
    let froms = axes.iter().fold(0, |set, axis| set | 1usize << axis.from.min(3));
    if froms != 7 || outputs != Some(out.len()) || !src.is_sound() {
        return Err(wrong("a volume does not fit its row"));
    }
    // Nothing is read if one axis shows nothing.
    let empty = axes.iter().any(|axis| axis.shown().is_empty());
    if !empty && !axes.iter().all(held) {
        return Err(wrong("voxels that a row shows were not read"));
    }
    let mut fill = [0; 8];
    fill_bytes(dtype, if mask { 0.0 } else { intensity.fill }, &mut fill[..dtype.size()]);
    let mut sink = Sink::new(level, out, dtype.size(), fill);
    if empty {
        let rest = az.len * ay.len * ax.len;
        sink.fill(rest);
        return sink.end();
    }

    let (cut, size) = (src.cut(), src.dtype.size());
    let along = ax.from;
    // Whether neighbours along x of the row are one run in memory: not if the volume is cut into pieces there.
    let runs = cut <= along;
    let plain = |axis: &VolumeAxis, from| axis.from == from && axis.step == 1 && axis.shown() == (0..axis.len);
    let join_y = plain(ax, 2) && plain(ay, 1) && cut <= 1 && src.pitch[2] == size && src.pitch[1] == ax.len * size;
    let join_z = join_y && plain(az, 0) && cut == 0 && src.pitch[0] == ay.len * src.pitch[1];
    let shown = if join_y { 0..ax.len * ay.len * if join_z { az.len } else { 1 } } else { ax.shown() };
    let width = if join_y { shown.end } else { ax.len };
    let reverse = ax.step < 0;
    for z in 0..if join_z { 1 } else { az.len } {
        for y in 0..if join_y { 1 } else { ay.len } {
            let (Some(vz), Some(vy)) = (az.voxel(z), ay.voxel(y)) else {
                sink.fill(width);
                continue;
            };
            let voxel = |x: usize| {
                let mut at = [0; 3];
                (at[az.from], at[ay.from], at[along]) = (vz, vy, ax.at(x) as usize);
                at
            };
            if runs && !join_y && src.pitch[along] == size {
                // Prefetch: the processor can't predict the start of short runs that are far apart.
                let (z, y) = if y + AHEAD < ay.len { (z, y + AHEAD) } else { (z + 1, y + AHEAD - ay.len) };
                if let (true, true, Some(z), Some(y)) = (z < az.len, y < ay.len, az.voxel(z), ay.voxel(y)) {
                    let mut at = [0; 3];
                    let first = ax.at(if reverse { shown.end - 1 } else { shown.start }) as usize;
                    (at[az.from], at[ay.from], at[along]) = (z, y, first);
                    let (piece, at) = src.place(cut, at);
                    let soon = &piece[at..at + shown.len() * size];
                    fetch(soon.as_ptr().addr(), soon.len());
                }
            }
            sink.fill(shown.start);
            let mut x = shown.start;
            while x < shown.end {
                let n = (shown.end - x).min(sink.free());
                if runs && src.pitch[along] == size {
                    // The first in memory is the last of a mirrored run.
                    let (piece, at) = src.place(cut, voxel(if reverse { x + n - 1 } else { x }));
                    convert(level, &piece[at..at + n * size], reverse, intensity, sink.take(n));
                    x += n;
                } else {
                    let n = n.min(GATHER);
                    let mut line = [0; GATHER * 8];
                    for (i, value) in line.chunks_exact_mut(size).take(n).enumerate() {
                        let (piece, at) = src.place(cut, voxel(x + i));
                        value.copy_from_slice(&piece[at..at + size]);
                    }
                    convert(level, &line[..n * size], false, intensity, sink.take(n));
                    x += n;
                }
            }
            sink.fill(width - shown.end);
        }
    }
    sink.end()
}

/// How many runs ahead data is prefetched.
const AHEAD: usize = 6;
/// Voxels that are gathered at a time if they are not neighbours in memory.
const GATHER: usize = 256;
/// Bytes of a block.
const BLOCK: usize = 4096;
/// Bytes that are stored together: few enough to drain while the next ones are computed.
const DRAIN: usize = 1024;

#[repr(align(64))]
struct Block([u8; BLOCK]);

/// Finished values on their way to the row.
struct Sink<'a> {
    out: Out<'a>,
    block: Block,
    filled: usize,
    size: usize,
    fill: [u8; 8],
}

enum Out<'a> {
    /// The rest of the row.
    Cached(&'a mut [u8]),
    Past(Stream<'a>),
}

impl<'a> Sink<'a> {
    fn new(level: Level, out: &'a mut [u8], size: usize, fill: [u8; 8]) -> Self {
        let out = match out.len() >= PAST_CACHES {
            true => Out::Past(Stream::new(level, out)),
            false => Out::Cached(out),
        };
        Self { out, block: Block([0; BLOCK]), filled: 0, size, fill }
    }

    /// Number of values that fit into the block; never 0.
    fn free(&mut self) -> usize {
        if self.filled >= DRAIN {
            self.flush();
        }
        // Sizes are powers of two; a division would take as long as converting a hundred voxels.
        (BLOCK - self.filled) >> self.size.trailing_zeros()
    }

    /// Memory for `n` values, at most [`free`](Self::free).
    fn take(&mut self, n: usize) -> &mut [u8] {
        let start = self.filled;
        self.filled += n * self.size;
        &mut self.block.0[start..self.filled]
    }

    fn fill(&mut self, mut n: usize) {
        let (size, fill) = (self.size, self.fill);
        while n > 0 {
            let some = n.min(self.free());
            self.take(some).chunks_exact_mut(size).for_each(|value| value.copy_from_slice(&fill[..size]));
            n -= some;
        }
    }

    fn flush(&mut self) {
        let block = &self.block.0[..self.filled];
        match &mut self.out {
            Out::Past(past) => past.put(block),
            Out::Cached(out) => {
                let (now, later) = std::mem::take(out).split_at_mut(block.len());
                now.copy_from_slice(block);
                *out = later;
            }
        }
        self.filled = 0;
    }

    fn end(mut self) -> Result<()> {
        self.flush();
        match self.out {
            Out::Past(past) => past.end(),
            Out::Cached(out) => debug_assert!(out.is_empty(), "a row is written as a whole"),
        }
        Ok(())
    }
}

/// Converts a run of voxels, mirrored or not.
type Convert = fn(Level, &[u8], bool, &Intensity, &mut [u8]);

macro_rules! loads {
    ($($name:ident: $raw:ty, $finite:literal;)*) => {$(
        #[derive(Debug)]
        struct $name;
        impl Load for $name {
            type Raw = $raw;
            const FINITE: bool = $finite;
            #[inline(always)]
            fn f32(raw: $raw) -> f32 {
                raw as f32
            }
        }
    )*};
}
loads! { I8: i8, true; I16: i16, true; I32: i32, true; U32: u32, true; I64: i64, true; U64: u64, true; F64: f64, false; }

impl Store for I16 {
    type Raw = i16;
    #[inline(always)]
    #[expect(clippy::manual_clamp, reason = "as for u8: comparisons that vectorise, whatever NaN is")]
    fn of(value: f32) -> i16 {
        // As for u8: the addition rounds. 1.5 * 2^23 keeps negative numbers above 2^23.
        const WHOLE: f32 = 12_582_912.0;
        let bound = value.max(-32_768.0).min(32_767.0);
        // The comparison made NaN the least value. It must become 0, as everywhere.
        let bound = if value.is_nan() { 0.0 } else { bound };
        (bound + WHOLE).to_bits() as i16
    }
}

fn converter(src: DType, dtype: DType, mask: bool, intensity: &Intensity) -> Option<Convert> {
    if mask {
        return match (src, dtype) {
            (DType::U8, DType::U8)
            | (DType::U16, DType::U16)
            | (DType::I16, DType::I16)
            | (DType::I64 | DType::U64, DType::I64) => Some(copy_of(src.size())),
            (DType::U8, DType::U16) => Some(widen::<u8, u16>),
            (DType::U8, DType::I16) => Some(widen::<u8, i16>),
            (DType::U8, DType::I64) => Some(widen::<u8, i64>),
            (DType::I8, DType::I16) => Some(widen::<i8, i16>),
            (DType::I8, DType::I64) => Some(widen::<i8, i64>),
            (DType::U16, DType::I64) => Some(widen::<u16, i64>),
            (DType::I16, DType::I64) => Some(widen::<i16, i64>),
            (DType::I32, DType::I64) => Some(widen::<i32, i64>),
            (DType::U32, DType::I64) => Some(widen::<u32, i64>),
            _ => None,
        };
    }
    if intensity.is_none()
        && matches!((src, dtype), (DType::U8, DType::U8) | (DType::I16, DType::I16) | (DType::F32, DType::F32))
    {
        return Some(copy_of(src.size()));
    }
    macro_rules! stored {
        ($L:ty) => {
            match dtype {
                DType::U8 => Some(convert::<$L, U8>),
                DType::I16 => Some(convert::<$L, I16>),
                DType::F16 => Some(halves::<$L>),
                DType::Bf16 => Some(convert::<$L, Bf16>),
                DType::F32 => Some(convert::<$L, F32>),
                _ => None,
            }
        };
    }
    match src {
        DType::I8 => stored!(I8),
        DType::U8 => stored!(U8),
        DType::I16 => stored!(I16),
        DType::U16 => stored!(U16),
        DType::I32 => stored!(I32),
        DType::U32 => stored!(U32),
        DType::I64 => stored!(I64),
        DType::U64 => stored!(U64),
        DType::F32 => stored!(F32),
        DType::F64 => stored!(F64),
        // No file has voxels of these types.
        DType::F16 | DType::Bf16 | DType::Bool => None,
    }
}

fn copy_of(size: usize) -> Convert {
    match size {
        1 => copy::<1>,
        2 => copy::<2>,
        4 => copy::<4>,
        _ => copy::<8>,
    }
}

fn copy<const N: usize>(_: Level, src: &[u8], reverse: bool, _: &Intensity, out: &mut [u8]) {
    if reverse {
        let (from, to) = (src.as_chunks::<N>().0, out.as_chunks_mut::<N>().0);
        from.iter().rev().zip(to).for_each(|(value, out)| *out = *value);
    } else {
        out.copy_from_slice(src);
    }
}

fn widen<A: Pod, B: Pod + From<A>>(_: Level, src: &[u8], reverse: bool, _: &Intensity, out: &mut [u8]) {
    let out: &mut [B] = bytemuck::cast_slice_mut(out);
    let values = src.chunks_exact(size_of::<A>()).map(|value| B::from(bytemuck::pod_read_unaligned::<A>(value)));
    if reverse {
        values.rev().zip(out).for_each(|(value, out)| *out = value);
    } else {
        values.zip(out).for_each(|(value, out)| *out = value);
    }
}

/// [`convert`] to halves, which are packed afterwards.
fn halves<L: Load>(level: Level, src: &[u8], reverse: bool, intensity: &Intensity, out: &mut [u8]) {
    const SOME: usize = 1024;
    let mut made = [0.0f32; SOME];
    let (out, size): (&mut [u16], _) = (bytemuck::cast_slice_mut(out), size_of::<L::Raw>());
    let n = out.len();
    for (part, out) in out.chunks_mut(SOME).enumerate() {
        let (made, start) = (&mut made[..out.len()], part * SOME);
        let start = if reverse { n - start - out.len() } else { start };
        let src = &src[start * size..][..out.len() * size];
        convert::<L, F32>(level, src, reverse, intensity, bytemuck::cast_slice_mut(made));
        F16::pack(level, made, out);
    }
}

at_each_level! {
    /// Converts each voxel: scale, bias, clamp, round. If `reverse` is set, the last voxel comes first.
    fn convert[L: Load, S: Store](src: &[u8], reverse: bool, intensity: &Intensity, out: &mut [u8]) = convert_loop;
}

#[inline(always)]
fn convert_loop<L: Load, S: Store>(src: &[u8], reverse: bool, intensity: &Intensity, out: &mut [u8]) {
    let out: &mut [S::Raw] = bytemuck::cast_slice_mut(out);
    let n = out.len();
    assert_eq!(src.len(), n * size_of::<L::Raw>(), "a voxel for each output");
    let &Intensity { scale, bias, low, high, .. } = intensity;
    let first = src.as_ptr().cast::<L::Raw>();
    let value = |i: usize| {
        // SAFETY: `i` is below `n`, and so many voxels are in `src`.
        let at = unsafe { first.add(i) };
        // SAFETY: inside `src`; the read takes any alignment, and any bits are a value.
        let raw = unsafe { at.read_unaligned() };
        let value = L::f32(raw).mul_add(scale, bias);
        // Comparisons, so that NaN stays.
        let value = if value < low { low } else { value };
        if value > high { high } else { value }
    };
    if reverse {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = S::of(value(n - 1 - i)));
    } else {
        out.iter_mut().enumerate().for_each(|(i, out)| *out = S::of(value(i)));
    }
}

fn fill_bytes(dtype: DType, value: f32, out: &mut [u8]) {
    match dtype {
        DType::U8 => out.copy_from_slice(&U8::of(value).to_ne_bytes()),
        DType::I16 => out.copy_from_slice(&I16::of(value).to_ne_bytes()),
        DType::F16 => out.copy_from_slice(&F16::of(value).to_ne_bytes()),
        DType::Bf16 => out.copy_from_slice(&Bf16::of(value).to_ne_bytes()),
        DType::F32 => out.copy_from_slice(&F32::of(value).to_ne_bytes()),
        // Masks are filled with 0, which is the same in all types; rows have no other types.
        _ => {}
    }
}
