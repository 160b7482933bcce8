//! The outline of an object, as a dataset gives it.

use infeed_core::error::{Error, Result};

use super::{polygons::fill, rle::Rle};

/// The outline of an object, in an image whose size is known.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Mask {
    /// All pixels inside at least one of these polygons; corners are x and y in pixels.
    Polygons(Vec<Vec<[f64; 2]>>),
    /// Pixels, as runs.
    Rle(Rle),
}

impl Mask {
    /// The pixels of the outline in its image, which has this height and width.
    ///
    /// Polygons become exactly the pixels that pycocotools gives them; parts outside of the image are cut off. Time
    /// grows with the number of corners and of columns that edges cross, memory with the number of those columns.
    ///
    /// # Errors
    /// `Corrupt` if the runs are of another size, or if a corner is not a number or is beyond ±1 000 000.
    ///
    /// ```
    /// use infeed::dataset::Mask;
    /// let triangle = Mask::Polygons(vec![vec![[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]]]);
    /// let pixels = triangle.rasterise([4, 5])?;
    /// assert_eq!(pixels.to_dense(), [
    ///     1, 1, 1, 0, 0,
    ///     1, 1, 0, 0, 0,
    ///     1, 0, 0, 0, 0,
    ///     0, 0, 0, 0, 0,
    /// ]);
    /// assert!(Mask::Rle(pixels).rasterise([5, 4]).is_err());
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn rasterise(&self, size: [u32; 2]) -> Result<Rle> {
        match self {
            Self::Polygons(polygons) => fill(polygons, size),
            Self::Rle(rle) if rle.size() == size => Ok(rle.clone()),
            Self::Rle(rle) => {
                let ([height, width], [image_height, image_width]) = (rle.size(), size);
                let what = format!("a mask of {height}x{width} for an image of {image_height}x{image_width}");
                Err(Error::corrupt(what).with_hint("write the mask of the image as it is stored"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::error::ErrorKind;

    #[test]
    fn runs_are_of_the_image() {
        let mask = Mask::Rle(Rle::new([2, 3], vec![1, 5]).unwrap());
        assert_eq!(mask.rasterise([2, 3]).unwrap().counts(), [1, 5]);
        let error = mask.rasterise([3, 2]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("a mask of 2x3 for an image of 3x2"), "{error}");
    }
}
