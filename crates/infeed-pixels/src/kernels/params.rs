//! The parameters of a resample: windows, arithmetic, and the shapes of input and output.

use std::ops::Range;

use infeed_core::types::{DType, ImageInfo, Layout};

/// How one axis of the output is made from one axis of the source. All numbers are in source pixels unless stated
/// otherwise.
///
/// Output `o` (before `flip`) covers `start + step * o .. start + step * (o + 1)`; its centre is in the middle. The
/// [`Filter`] decides which pixels around the centre it is made of.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Start of output 0.
    pub start: f32,
    /// Source pixels per output pixel; above 0. With 1 and a whole `start`, pixels are only copied.
    pub step: f32,
    /// First source pixel that may be read.
    pub low: u32,
    /// End of the source pixels that may be read; above `low`.
    pub high: u32,
    /// First output that shows the image; earlier ones get the fill value.
    pub from: u32,
    /// End of the outputs that show the image.
    pub to: u32,
    /// 1: output `o` is stored at `len - 1 - o`.
    pub flip: u32,
}

// SAFETY: seven fields of four bytes without padding, for which any bits are a value.
unsafe impl bytemuck::Zeroable for Axis {}
// SAFETY: as above, and plain data: `Copy`, no references.
unsafe impl bytemuck::Pod for Axis {}
const _: () = assert!(size_of::<Axis>() == 7 * 4);

/// Which source pixels make an output pixel, and with which weights; `transform::reference` has the formulas.
///
/// The reach is given for steps of up to 1; filters with antialias widen with the step. The numbers are also used in
/// resample.cu.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     dataset::FieldKind,
///     spi::Filter,
///     transform::{ImageInfo, Interpolation, SampleRng, Transform},
/// };
///
/// let transform = Transform::new().resize_exact(2, 2).interpolation(Interpolation::Bicubic);
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = transform.lower(&images, DType::U8, Layout::Nchw)?;
/// let params = lowered.params(&ImageInfo::interleaved_u8(8, 8, 3), SampleRng::new(0, 0, 0))?;
/// assert_eq!(params.filter, Filter::Cubic);
/// // A custom kernel needs this before it rounds.
/// assert!(params.filter.overshoots() && params.filter.is_antialiased());
/// # Ok::<(), infeed::Error>(())
/// ```
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Filter {
    /// Bilinear with antialias: a triangle with reach 1.
    #[default]
    Triangle = 0,
    /// The pixel under the centre; used for masks.
    NearestExact = 1,
    /// The pixel under the output's start.
    Nearest = 2,
    /// The two pixels around the centre, for any step.
    Linear = 3,
    /// Cubic with antialias, `a = -0.5`, reach 2.
    Cubic = 4,
    /// Cubic of four pixels for any step, `a = -0.75`; edge pixels are repeated.
    CubicFour = 5,
    /// Lanczos with antialias: three lobes, reach 3.
    Lanczos = 6,
    /// The mean of the pixels whose centres the output covers: reach 0.5.
    Box = 7,
    /// [`Cubic`](Self::Cubic) for values that a step before it made floats: nothing is rounded to bytes between the
    /// passes, whatever the image's type.
    CubicOfFloats = 8,
    /// [`CubicFour`](Self::CubicFour) for such values.
    CubicFourOfFloats = 9,
    /// [`Lanczos`](Self::Lanczos) for such values.
    LanczosOfFloats = 10,
}

impl Filter {
    /// All filters.
    pub const ALL: [Self; 11] = [
        Self::Triangle,
        Self::NearestExact,
        Self::Nearest,
        Self::Linear,
        Self::Cubic,
        Self::CubicFour,
        Self::Lanczos,
        Self::Box,
        Self::CubicOfFloats,
        Self::CubicFourOfFloats,
        Self::LanczosOfFloats,
    ];

    /// Whether it copies one pixel, for any step.
    #[must_use]
    pub const fn is_nearest(self) -> bool {
        matches!(self, Self::NearestExact | Self::Nearest)
    }

    /// Whether it widens with the step. Pixels may then be averaged before it.
    #[must_use]
    pub const fn is_antialiased(self) -> bool {
        matches!(self.shape(), Self::Triangle | Self::Cubic | Self::Lanczos | Self::Box)
    }

    /// Whether weights may be below 0. Sums of whole numbers are then clamped to their type's range.
    #[must_use]
    pub const fn overshoots(self) -> bool {
        self.shape().keeps_bytes()
    }

    /// Whether it sums bytes horizontally first, and rounds the sums to bytes before it sums them vertically.
    #[must_use]
    pub const fn keeps_bytes(self) -> bool {
        matches!(self, Self::Cubic | Self::CubicFour | Self::Lanczos)
    }

    /// The filter with the same weights that rounds bytes between the passes.
    #[must_use]
    pub const fn shape(self) -> Self {
        match self {
            Self::CubicOfFloats => Self::Cubic,
            Self::CubicFourOfFloats => Self::CubicFour,
            Self::LanczosOfFloats => Self::Lanczos,
            other => other,
        }
    }

    /// The filter with the same weights for values that are floats.
    #[must_use]
    pub const fn of_floats(self) -> Self {
        match self {
            Self::Cubic => Self::CubicOfFloats,
            Self::CubicFour => Self::CubicFourOfFloats,
            Self::Lanczos => Self::LanczosOfFloats,
            other => other,
        }
    }
}

/// The draw of one sample of a lowered transform: everything that the kernel needs in addition to the pixels and the
/// channel table.
///
/// A decoder uses it to find which rows of an image a crop reads, before it decodes them.
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, transform::{ImageInfo, SampleRng, Transform}};
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = Transform::new().center_crop(32).lower(&images, DType::U8, Layout::Nchw)?;
/// let params = lowered.params(&ImageInfo::interleaved_u8(100, 100, 3), SampleRng::new(0, 0, 0))?;
/// assert_eq!(params.y.reads(lowered.row().height, params.filter), 34..67); // With one extra row.
/// assert!(params.y.is_shift()); // Nothing is resized: rows are copies.
/// # Ok::<(), infeed::Error>(())
/// ```
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ResampleParams {
    /// The axis of rows.
    pub y: Axis,
    /// The axis of columns.
    pub x: Axis,
    /// Rectangle of the stored output (after flips) that is overwritten: top, bottom, left, right. Empty when top = bottom.
    pub cutout: [u32; 4],
    /// How an output pixel is made of source pixels.
    pub filter: Filter,
}

// SAFETY: `Copy`, no references, and only fields of four bytes without padding.
unsafe impl bytemuck::NoUninit for ResampleParams {}
const _: () = assert!(size_of::<ResampleParams>() == 2 * size_of::<Axis>() + 5 * 4);

/// Per-channel arithmetic after the filter: `value * scale + bias`, then rounding to the output type.
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, transform::Transform};
///
/// let transform = Transform::new().center_crop(32).normalize([0.5], [0.25]);
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = transform.lower(&images, DType::F32, Layout::Nchw)?;
/// let table = lowered.table(DType::U8);
/// let white = 255.0 * table.scale[0] + table.bias[0]; // (1 - 0.5) / 0.25
/// assert!((white - 2.0).abs() < 1e-5);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelTable {
    /// One for each output channel.
    pub scale: Vec<f32>,
    /// One for each output channel.
    pub bias: Vec<f32>,
    /// Value outside the image, in output units.
    pub fill: Vec<f32>,
    /// Value inside the cutout, in output units.
    pub cutout: Vec<f32>,
}

/// The channel of a source of `source` channels that becomes channel `c` of `out` channels; `None` if the numbers do
/// not match.
///
/// Gray is repeated, alpha is dropped; otherwise the numbers of channels must be equal.
#[must_use]
pub const fn channel_source(source: u32, out: u32, c: u32) -> Option<u32> {
    match (source, out) {
        (a, b) if a == b => Some(c),
        (1, _) | (2, 1 | 3) => Some(0),
        (4, 3) => Some(c),
        _ => None,
    }
}

/// Shape and type of a finished row.
///
/// ```
/// use infeed::{DType, Layout, dataset::FieldKind, spi::RowSpec, transform::Transform};
///
/// let images = FieldKind::Image { channels: 3, size: None, dtype: None };
/// let lowered = Transform::new().center_crop(224).lower(&images, DType::F16, Layout::Nhwc)?;
/// let RowSpec { height, width, channels, .. } = *lowered.row();
/// assert_eq!((height, width, channels), (224, 224, 3));
/// assert_eq!(lowered.row().len_bytes(), 224 * 224 * 3 * 2);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowSpec {
    /// Number of rows of pixels.
    pub height: u32,
    /// Number of columns.
    pub width: u32,
    /// Values per pixel.
    pub channels: u32,
    /// `U8`, `F16`, `Bf16` or `F32`.
    pub dtype: DType,
    /// Planes, or interleaved pixels.
    pub layout: Layout,
}

impl RowSpec {
    /// Bytes of one row; `usize::MAX`, which no row has, if the number overflows.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        let pixels = (self.height as usize).saturating_mul(self.width as usize);
        pixels.saturating_mul(self.channels as usize).saturating_mul(self.dtype.size())
    }
}

/// Decoded pixels of an image, or of the part of it that is needed.
///
/// ```
/// use infeed::{
///     DType, Layout,
///     dataset::FieldKind,
///     spi::{Decoded, Pixels, RowMaker},
///     transform::{ImageInfo, SampleRng, Transform},
/// };
///
/// let info = ImageInfo::interleaved_u8(2, 2, 1);
/// let pixels = Pixels { info, rows: 0..2, data: &[10, 20, 30, 40] };
///
/// let images = FieldKind::Image { channels: 1, size: None, dtype: None };
/// let flipped = Transform::new().center_crop(2).horizontal_flip(1.0).lower(&images, DType::U8, Layout::Nchw)?;
/// let drawn = flipped.draw(&info, SampleRng::new(0, 0, 0))?;
/// let mut row = vec![0; flipped.row().len_bytes()];
/// RowMaker::new().run(&flipped, &drawn, Decoded::Pixels(&pixels), &mut row)?;
/// assert_eq!(row, [20, 10, 40, 30]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pixels<'a> {
    /// Size and type of the whole image.
    pub info: ImageInfo,
    /// The rows that `data` holds, with all columns.
    pub rows: Range<u32>,
    /// Pixels in the machine's byte order, without padding. Planar data holds all rows of each plane.
    pub data: &'a [u8],
}
