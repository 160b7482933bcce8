//! A volume as a dataset hands it over: voxels as they lie, and what they mean.

use std::{fmt::Debug, ops::Range};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::sys::kernels::Voxels;
use infeed_core::{error::Result, random::SampleRng, types::DType};

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
    /// little-endian bytes, ascending. Empty when there are none or nobody asked.
    pub foreground: Bytes,
}

impl Volume {
    /// Whether all voxels that the channels speak of are there.
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
    /// Type of the voxels, in the machine's byte order; they need not be aligned.
    pub dtype: DType,
    /// A voxel means `voxel * slope + intercept`. Masks do without.
    pub slope: f64,
    /// See `slope`.
    pub intercept: f64,
    /// The voxel that the box begins with.
    pub begin: [usize; 3],
    /// Depth, height, width of the box.
    pub shape: [usize; 3],
    /// The voxels in one piece, in a piece for each plane, or in one for each line.
    pub pieces: SmallVec<[Bytes; 1]>,
    /// Bytes from a voxel to the next along each axis, within a piece.
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

/// Says which box of a volume a loader uses, so that a dataset can read less.
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
    /// Voxels of the largest box.
    fn most(&self) -> u64;
    /// Whether boxes depend on the foreground of a mask: then nobody knows them before the mask was read.
    fn wants_foreground(&self) -> bool;
}
