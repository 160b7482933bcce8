//! A volume as a dataset returns it: the stored voxels, and what they mean.

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use infeed_core::{error::Result, random::SampleRng, types::DType};
use smallvec::SmallVec;

/// A volume, or a box of one, of one or several channels.
///
/// ```
/// use bytes::Bytes;
/// use infeed::{
///     DType,
///     dataset::{Volume, VolumeChannel},
/// };
///
/// // A whole volume of 2 planes of 3 lines of 4 voxels of 16 bits, in one piece.
/// let channel = VolumeChannel {
///     dtype: DType::I16,
///     slope: 1.0,
///     intercept: -1024.0,
///     begin: [0, 0, 0],
///     shape: [2, 3, 4],
///     pieces: [Bytes::from(vec![0; 48])].into_iter().collect(),
///     pitch: [24, 8, 2],
///     skip: 0,
/// };
/// let volume = Volume { shape: [2, 3, 4], channels: [channel].into_iter().collect(), foreground: Bytes::new() };
/// assert!(volume.is_sound());
/// ```
#[derive(Clone, Debug)]
pub struct Volume {
    /// Depth, height, width of the whole volume.
    pub shape: [usize; 3],
    /// One or more, each with all or some of the voxels.
    pub channels: SmallVec<[VolumeChannel; 2]>,
    /// Voxels to centre patches on, the same for all fields of a record: `(z * height + y) * width + x` as `u64` in
    /// little-endian bytes, ascending. Empty if there are none, or if the loader does not need them.
    pub foreground: Bytes,
}

impl Volume {
    /// Whether the pieces hold all voxels that the channels describe.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let inside = |channel: &VolumeChannel| {
            let ends = channel.begin.iter().zip(channel.shape).map(|(begin, len)| begin.checked_add(len));
            ends.zip(self.shape).all(|(end, len)| end.is_some_and(|end| end <= len))
        };
        self.channels.iter().all(|channel| inside(channel) && channel.voxels().is_sound())
    }
}

/// One channel of a [`Volume`].
///
/// ```
/// use bytes::Bytes;
/// use infeed::{DType, dataset::VolumeChannel};
///
/// // Planes 10 and 11 of a mask, each read by itself.
/// let plane = || Bytes::from(vec![1; 64 * 64]);
/// let channel = VolumeChannel {
///     dtype: DType::U8,
///     slope: 1.0,
///     intercept: 0.0,
///     begin: [10, 0, 0],
///     shape: [2, 64, 64],
///     pieces: [plane(), plane()].into_iter().collect(),
///     pitch: [0, 64, 1],
///     skip: 0,
/// };
/// assert_eq!(channel.voxels().shape, [2, 64, 64]);
/// ```
#[derive(Clone, Debug)]
pub struct VolumeChannel {
    /// Type of the voxels, in the machine's byte order. They need not be aligned.
    pub dtype: DType,
    /// The value of a voxel is `voxel * slope + intercept`. Masks ignore both.
    pub slope: f64,
    /// See `slope`.
    pub intercept: f64,
    /// The first voxel of the box.
    pub begin: [usize; 3],
    /// Depth, height, width of the box.
    pub shape: [usize; 3],
    /// The voxels: in one piece, in one piece per plane, or in one piece per line.
    pub pieces: SmallVec<[Bytes; 1]>,
    /// Bytes from one voxel to the next along each axis, within a piece.
    pub pitch: [usize; 3],
    /// Bytes before the first voxel of each piece.
    pub skip: usize,
}

impl VolumeChannel {
    /// The channel as kernels take it.
    #[must_use]
    pub fn voxels(&self) -> Voxels<'_> {
        let Self { dtype, begin, shape, pitch, skip, .. } = *self;
        Voxels { dtype, begin, shape, pieces: &self.pieces, pitch, skip }
    }
}

/// Which box of a volume a loader uses, so that a dataset can read less.
///
/// ```
/// use std::ops::Range;
///
/// use infeed::dataset::{Narrow, SampleRng};
///
/// /// A patch of 32 voxels in each direction, anywhere.
/// #[derive(Debug)]
/// struct Patch;
///
/// impl Narrow for Patch {
///     fn reads(&self, shape: [usize; 3], rng: SampleRng) -> infeed::Result<[Range<usize>; 3]> {
///         let mut draws = rng.op(0);
///         Ok(shape.map(|len| {
///             let side = len.min(32);
///             let start = draws.below((len - side) as u64 + 1) as usize;
///             start..start + side
///         }))
///     }
///     fn most(&self) -> u64 {
///         32 * 32 * 32
///     }
///     fn wants_foreground(&self) -> bool {
///         false
///     }
/// }
/// let [planes, ..] = Patch.reads([20, 512, 512], SampleRng::new(1, 0, 7))?;
/// assert_eq!(planes, 0..20);
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait Narrow: Debug + Send + Sync {
    /// The box for one sample of a volume of this shape.
    fn reads(&self, shape: [usize; 3], rng: SampleRng) -> Result<[Range<usize>; 3]>;
    /// Number of voxels in the largest box.
    fn most(&self) -> u64;
    /// Whether boxes depend on the foreground of a mask. If so, a box is known only after the mask was read.
    fn wants_foreground(&self) -> bool;
}

/// Voxels of one channel: a box of the volume, in one piece, in one piece per plane, or in one piece per line.
///
/// The example has a raw file of 2x3x4 voxels after a header, and shows how a truncated file is detected:
///
/// ```
/// use bytes::Bytes;
/// use infeed::{DType, spi::Voxels};
///
/// let file = Bytes::from(vec![0; 352 + 2 * 3 * 4 * 2]);
/// let pieces = [file.clone()];
/// let voxels = Voxels {
///     dtype: DType::I16,
///     begin: [0, 0, 0],
///     shape: [2, 3, 4],
///     pieces: &pieces,
///     pitch: [24, 8, 2],
///     skip: 352,
/// };
/// assert!(voxels.is_sound());
/// let short = [file.slice(..file.len() - 1)];
/// assert!(!Voxels { pieces: &short, ..voxels }.is_sound());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Voxels<'a> {
    /// Their type, in the machine's byte order, aligned or not.
    pub dtype: DType,
    /// The first voxel of the box.
    pub begin: [usize; 3],
    /// Depth, height, width of the box.
    pub shape: [usize; 3],
    /// The bytes of the voxels.
    pub pieces: &'a [Bytes],
    /// Bytes from one voxel to the next along each axis, within a piece.
    pub pitch: [usize; 3],
    /// Bytes before the first voxel of each piece.
    pub skip: usize,
}

impl Voxels<'_> {
    /// Number of axes along which the box is cut into pieces.
    #[doc(hidden)]
    #[must_use]
    pub fn cut(&self) -> usize {
        match self.pieces.len() {
            1 => 0,
            n if n == self.shape[0] => 1,
            _ => 2,
        }
    }

    /// Whether each voxel is within its piece.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let cut = self.cut();
        let pieces = self.shape[..cut].iter().try_fold(1usize, |n, len| n.checked_mul(*len));
        let last = |axis: usize| self.shape[axis].checked_sub(1)?.checked_mul(self.pitch[axis]);
        let end = (cut..3).try_fold(self.skip.checked_add(self.dtype.size()), |end, axis| {
            Some(end.and_then(|end| end.checked_add(last(axis)?)))
        });
        let Some(Some(end)) = end else { return false };
        pieces == Some(self.pieces.len()) && self.pieces.iter().all(|piece| piece.len() >= end)
    }

    /// The piece that holds a voxel of the volume, and the offset in it.
    #[doc(hidden)]
    #[must_use]
    pub fn place(&self, cut: usize, at: [usize; 3]) -> (&[u8], usize) {
        let at = [at[0] - self.begin[0], at[1] - self.begin[1], at[2] - self.begin[2]];
        let piece = match cut {
            0 => 0,
            1 => at[0],
            _ => at[0] * self.shape[1] + at[1],
        };
        let offset = (cut..3).map(|axis| at[axis] * self.pitch[axis]).sum::<usize>();
        (&self.pieces[piece], self.skip + offset)
    }
}
