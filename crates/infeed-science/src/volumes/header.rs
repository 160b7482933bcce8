//! The header of a volume, in any format: type and shape of the voxels, and where they are in the file.

use std::ops::Range;

use infeed_core::{
    error::{Error, Result},
    types::DType,
};

/// How the voxels of a file are written.
///
/// ```
/// use infeed::dataset::fuzz::{Coding, parse_nrrd};
///
/// let header = b"NRRD0004\ntype: short\ndimension: 3\nsizes: 4 3 2\nendian: little\nencoding: gzip\n\n";
/// assert_eq!(parse_nrrd(header, true)?.map(|header| header.coding), Some(Coding::Gzip));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As in memory.
    Raw,
    /// As `Raw`, compressed by gzip.
    Gzip,
    /// As `Raw`, compressed by bzip2.
    Bzip2,
    /// Decimal numbers as text, between white space or commas.
    Text,
    /// Two hexadecimal digits per byte.
    Hex,
}

/// Which files hold the voxels.
///
/// ```
/// use infeed::dataset::fuzz::{DataFiles, parse_nrrd};
///
/// let header = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\ndata file: ct.raw\n";
/// let header = parse_nrrd(header, true)?.expect("the whole header");
/// assert_eq!(header.data, DataFiles::Detached(vec!["ct.raw".into()]));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataFiles {
    /// The same file, after its header, whose length in bytes this is.
    Attached(u64),
    /// Other files, in order along the slowest axis, each with an equal share. Names are relative to the header's
    /// folder.
    Detached(Vec<String>),
}

/// The header of an NRRD or NIfTI file.
///
/// ```
/// # let text = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n\n";
/// # let file = bytes::Bytes::from([text.as_bytes(), &[7; 24]].concat());
/// use infeed::{DType, dataset::fuzz::parse_nrrd};
///
/// // 4 x 3 x 2 voxels in the file's order.
/// let header = parse_nrrd(&file, true)?.expect("the whole header");
/// assert_eq!((header.dtype, header.shape, header.channels), (DType::U8, [2, 3, 4], 1));
/// assert_eq!(header.len_bytes(), 24);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VolumeHeader {
    /// Type of the voxels.
    pub dtype: DType,
    /// Whether the high byte comes first.
    pub big_endian: bool,
    /// How the voxels are written.
    pub coding: Coding,
    /// Which files hold them.
    pub data: DataFiles,
    /// Lines to skip at the beginning of each data file.
    pub line_skip: u64,
    /// Bytes to skip after those lines, counted in the decompressed data. `None`: the voxels are the last bytes of the
    /// (decompressed) file.
    pub byte_skip: Option<u64>,
    /// Channels; 1 unless an axis of the file counts them.
    pub channels: usize,
    /// Depth, height, width: the file's axes from the slowest to the fastest.
    pub shape: [usize; 3],
    /// Whether the channels of a voxel are adjacent; otherwise each channel is a separate volume.
    pub interleaved: bool,
    /// Distance of voxels along depth, height, width, as in the file; NaN if the file does not give it.
    pub spacing: [f32; 3],
    /// Position of the first voxel: z, y, x, the reverse of the file's order; NaN if the file does not give it.
    pub origin: [f32; 3],
    /// The value of a voxel is `voxel * slope + intercept`.
    pub slope: f64,
    /// See `slope`.
    pub intercept: f64,
    /// Where the voxels are in the patient; `None` if the file does not give it.
    pub(super) grid: Option<Grid>,
}

/// The steps from a voxel to the next along depth, height and width, and the position of the first voxel, each as
/// distances to the right, to the front and up.
pub(super) type Grid = [[f64; 3]; 4];

/// Two grids differ if a corner of one lies this part of a voxel from the other's. Below are roundings of headers.
const SAME_PLACE: f64 = 0.1;

impl VolumeHeader {
    /// Whether both headers say where the voxels are, and these are different places. Both have the same shape.
    pub(super) fn is_elsewhere(&self, other: &Self) -> bool {
        let (Some(one), Some(other)) = (self.grid, other.grid) else { return false };
        let last = self.shape.map(|n| n.saturating_sub(1) as f64);
        let length = |step: [f64; 3]| step.iter().map(|v| v * v).sum::<f64>().sqrt();
        let apart = |corner: usize| {
            let along = |axis: usize| if corner >> axis & 1 == 1 { last[axis] } else { 0.0 };
            let moved = |at: usize| {
                let steps = (0..3).map(|axis| along(axis) * (one[axis][at] - other[axis][at])).sum::<f64>();
                steps + one[3][at] - other[3][at]
            };
            length([moved(0), moved(1), moved(2)])
        };
        let voxel = one[..3].iter().map(|step| length(*step)).fold(f64::INFINITY, f64::min);
        (0..8).any(|corner| apart(corner) > SAME_PLACE * voxel)
    }

    /// Number of voxels in all channels. Does not overflow: the parser checks the sizes.
    #[must_use]
    pub const fn voxels(&self) -> usize {
        self.shape[0] * self.shape[1] * self.shape[2] * self.channels
    }

    /// Bytes of all voxels in memory.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.voxels() * self.dtype.size()
    }

    /// An error for sizes that exceed the address space, and for a size of 0.
    pub(super) fn check(self) -> Result<Self> {
        let [depth, height, width] = self.shape;
        let bytes = [depth, height, width, self.channels]
            .iter()
            .try_fold(self.dtype.size() as u64, |n, len| n.checked_mul(*len as u64));
        match bytes.filter(|bytes| *bytes <= isize::MAX as u64 / 2) {
            Some(0) => Err(Error::corrupt("the header says a size of 0")),
            Some(_) => Ok(self),
            None => Err(Error::corrupt(format!("the header says {:?} voxels: more than memory can hold", self.shape))),
        }
    }

    /// An error for more voxels than a file of `encoded` bytes can hold, so that no memory is allocated for a false
    /// size.
    pub(super) fn check_against(&self, encoded: u64) -> Result<()> {
        let (bytes, voxels) = (self.len_bytes() as u64, self.voxels() as u64);
        let holds = match self.coding {
            Coding::Raw => bytes <= encoded,
            // The best ratios of deflate (258 bytes in two bits) and bzip2 (900 kB of one value in 39 bytes).
            Coding::Gzip => bytes / 1032 <= encoded,
            Coding::Bzip2 => bytes / 46_000 <= encoded,
            // At least a digit and a space per voxel.
            Coding::Text => voxels <= encoded.div_ceil(2),
            Coding::Hex => bytes <= encoded / 2,
        };
        match holds {
            true => Ok(()),
            false => {
                Err(Error::corrupt(format!("the header says {bytes} bytes of voxels, the file has {encoded} bytes"))
                    .with_hint("the file is cut or of another kind; fetch it again"))
            }
        }
    }

    /// Strides in bytes: along depth, height, width, and from a channel to the next.
    pub(super) const fn pitch(&self) -> ([usize; 3], usize) {
        let size = self.dtype.size();
        let [depth, height, width] = self.shape;
        let x = if self.interleaved { size * self.channels } else { size };
        let channel = if self.interleaved { size } else { size * depth * height * width };
        ([x * width * height, x * width, x], channel)
    }

    /// Whether values have several bytes in the byte order that is not this machine's.
    pub(super) const fn is_foreign(&self) -> bool {
        self.dtype.size() > 1 && self.big_endian != cfg!(target_endian = "big")
    }

    /// Where the voxels begin in a data file of `size` bytes; `None` if they can't be read by range.
    pub(super) fn raw_at(&self, size: u64) -> Option<u64> {
        if self.coding != Coding::Raw || self.line_skip > 0 {
            return None;
        }
        let header = match &self.data {
            DataFiles::Attached(len) => *len,
            DataFiles::Detached(names) if names.len() == 1 => 0,
            DataFiles::Detached(_) => return None,
        };
        let len = self.len_bytes() as u64;
        match self.byte_skip {
            Some(skip) => header.checked_add(skip).filter(|at| at.checked_add(len).is_some_and(|end| end <= size)),
            None => size.checked_sub(len).filter(|at| *at >= header),
        }
    }
}

/// The ranges of a raw data file that hold a box of its voxels.
#[derive(Debug, PartialEq)]
pub(super) struct Cover {
    pub(super) ranges: Vec<Range<u64>>,
    /// Strides in bytes along depth, height, width, within each range.
    pub(super) pitch: [usize; 3],
}

/// A read may have this many times the bytes of the box, so that there are fewer reads.
const SPARE: f64 = 1.6;

/// How to read `window` of the channel that begins at `at`. `one`: in one range, however many bytes lie between.
pub(super) fn cover(header: &VolumeHeader, at: u64, window: &[Range<usize>; 3], one: bool) -> Cover {
    let (pitch, _) = header.pitch();
    let [depth, height, width] = [0, 1, 2].map(|axis: usize| window[axis].len());
    if depth * height * width == 0 {
        return Cover { ranges: Vec::new(), pitch };
    }
    let line = (width - 1) * pitch[2] + header.dtype.size();
    let plane = (height - 1) * pitch[1] + line;
    let all = (depth - 1) * pitch[0] + plane;
    let exact = (depth * height * width * header.dtype.size()) as f64 * SPARE;
    let start = |z: usize, y: usize| {
        let first = z * pitch[0] + y * pitch[1] + window[2].start * pitch[2];
        at + first as u64
    };
    let range = |z: usize, y: usize, len: usize| start(z, y)..start(z, y) + len as u64;
    let (z, y) = (window[0].clone(), window[1].clone());
    let ranges = if one || all as f64 <= exact {
        vec![range(z.start, y.start, all)]
    } else if (plane * depth) as f64 <= exact {
        z.map(|z| range(z, y.start, plane)).collect()
    } else {
        z.flat_map(|z| y.clone().map(move |y| (z, y))).map(|(z, y)| range(z, y, line)).collect()
    };
    Cover { ranges, pitch }
}
