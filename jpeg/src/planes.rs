//! The window that is requested, and the place of the decoded values.

#![forbid(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use crate::header::Header;

/// The part of an image to decode, and the scale.
///
/// Parts of it outside of the image are ignored.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// # let (mut scratch, mut data) = (Scratch::default(), Vec::new());
/// use infeed_jpeg::{Decoder, Header, Scratch, Window};
///
/// let header = Header::parse(&file)?;
/// // Rows 4 to 11 and columns 8 to 23, with one value for two by two pixels.
/// let window = Window::new(&header, 4..12, 8..24).at_scale(2);
/// let planes = Decoder::new().planes(&file, &header, &window, &mut scratch, &mut data)?;
/// assert_eq!(planes.as_slice()[0].step, [2, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows to decode, in pixels of the whole image.
    pub rows: Range<u32>,
    /// Columns to decode, in pixels of the whole image.
    pub cols: Range<u32>,
    /// Rows and columns that interpolation of colour may use: nothing beyond their ends is decoded for it.
    pub within: [Range<u32>; 2],
    /// 1, 2, 4 or 8: this many pixels become one value, in each direction. A larger scale costs less.
    pub scale: u32,
}

impl Window {
    /// Whole rows, every pixel.
    #[must_use]
    pub fn of_rows(header: &Header, rows: Range<u32>) -> Self {
        Self::new(header, rows, 0..header.width())
    }

    /// A rectangle, every pixel.
    #[must_use]
    pub fn new(header: &Header, rows: Range<u32>, cols: Range<u32>) -> Self {
        Self { rows, cols, within: [0..header.height(), 0..header.width()], scale: 1 }
    }

    /// The window at 1/2, 1/4 or 1/8 of the size.
    #[must_use]
    pub fn at_scale(self, scale: u32) -> Self {
        Self { scale, ..self }
    }
}

/// The place of one component's values, and which of them are held.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// # let (mut scratch, mut data) = (Scratch::default(), Vec::new());
/// use infeed_jpeg::{Decoder, Header, Scratch, Window};
///
/// let header = Header::parse(&file)?;
/// let window = Window::of_rows(&header, 4..12);
/// let planes = Decoder::new().planes(&file, &header, &window, &mut scratch, &mut data)?;
/// let brightness = &planes.as_slice()[0];
/// let row = brightness.row(&data, 5);
/// let mean = row.iter().map(|value| f32::from(*value)).sum::<f32>() / row.len() as f32;
/// assert!((mean - 120.0).abs() < 2.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// Index of the first value that is held.
    pub at: usize,
    /// Number of values from row to row.
    pub pitch: usize,
    /// Pixels per value, vertical and horizontal: powers of two, or three times a power of two in the rare files that
    /// [have thirds](Header::has_thirds). The value is at their centre.
    pub step: [u32; 2],
    /// Rows that are held, in values of this plane. These are whole blocks, so usually more than the window's rows.
    pub rows: Range<u32>,
    /// Columns that are held, in values of this plane.
    pub cols: Range<u32>,
}

impl Plane {
    /// The values of row `y` that are held; `data` is the memory into which the plane was decoded.
    ///
    /// # Panics
    /// If the row is not held, or `data` is other memory.
    #[must_use]
    pub fn row<'a>(&self, data: &'a [u8], y: u32) -> &'a [u8] {
        assert!(self.rows.contains(&y), "row {y} is held");
        &data[self.at + (y - self.rows.start) as usize * self.pitch..][..self.cols.len()]
    }
}

/// The planes of a window: one for gray, otherwise three. The second and third may have fewer values than the first.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// # let (mut scratch, mut data) = (Scratch::default(), Vec::new());
/// use infeed_jpeg::{Decoder, Header, Scratch, Window};
///
/// let header = Header::parse(&file)?;
/// let window = Window::of_rows(&header, 0..16);
/// let planes = Decoder::new().planes(&file, &header, &window, &mut scratch, &mut data)?;
/// assert!(planes.is_ycbcr());
/// // 4:2:0: one value of colour for two by two pixels.
/// let [brightness, blue, red] = planes.as_slice() else { panic!("a file in colour") };
/// assert_eq!((brightness.step, blue.step, red.step), ([1, 1], [2, 2], [2, 2]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    pub(crate) list: SmallVec<[Plane; 4]>,
    pub(crate) ycbcr: bool,
}

impl Planes {
    /// One plane, or three.
    #[must_use]
    pub fn as_slice(&self) -> &[Plane] {
        &self.list
    }

    /// Whether the three planes are Y, Cb and Cr of JFIF. Otherwise they are R, G and B.
    #[must_use]
    pub const fn is_ycbcr(&self) -> bool {
        self.ycbcr
    }
}
