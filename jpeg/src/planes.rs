//! What is asked for, and where what was decoded lies.

#![forbid(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use crate::header::Header;

/// The part of an image that is decoded, and at which size.
///
/// What lies outside the image is left out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows that are read, in pixels of the whole image.
    pub rows: Range<u32>,
    /// Columns that are read.
    pub cols: Range<u32>,
    /// Rows and columns that have a meaning here: no value beyond their ends is decoded for interpolating colour.
    pub within: [Range<u32>; 2],
    /// 1, 2, 4 or 8: so many pixels become one value, in each direction. Less work in that measure.
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

    /// The same at 1/2, 1/4 or 1/8 of the size.
    #[must_use]
    pub fn at_scale(self, scale: u32) -> Self {
        Self { scale, ..self }
    }
}

/// Where the values of one component lie, and which of them are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plane {
    /// Index of the first value that is held.
    pub at: usize,
    /// Values from row to row.
    pub pitch: usize,
    /// Pixels that a value stands for, down and across: powers of two, or three times one in the rare files that
    /// [have thirds](Header::has_thirds). It lies in their middle.
    pub step: [u32; 2],
    /// Rows that are held, counted in this plane's values: whole blocks, so more than the window's as a rule.
    pub rows: Range<u32>,
    /// Columns that are held.
    pub cols: Range<u32>,
}

impl Plane {
    /// The values of row `y` that are held, of the memory that the plane was decoded into.
    ///
    /// # Panics
    /// When the row is not held, or `data` is another memory.
    #[must_use]
    pub fn row<'a>(&self, data: &'a [u8], y: u32) -> &'a [u8] {
        assert!(self.rows.contains(&y), "row {y} is held");
        &data[self.at + (y - self.rows.start) as usize * self.pitch..][..self.cols.len()]
    }
}

/// The planes of a window: gray, or three. The second and the third may have fewer values than the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    pub(crate) list: SmallVec<[Plane; 3]>,
    pub(crate) ycbcr: bool,
}

impl Planes {
    /// One plane, or three.
    #[must_use]
    pub fn as_slice(&self) -> &[Plane] {
        &self.list
    }

    /// Whether the three are Y, Cb and Cr of JFIF; otherwise they are R, G and B.
    #[must_use]
    pub const fn is_ycbcr(&self) -> bool {
        self.ycbcr
    }
}
