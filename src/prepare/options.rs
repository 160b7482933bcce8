//! What becomes of the images.

/// What becomes of the size of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// Stays.
    #[default]
    Keep,
    /// The shorter side gets this length and the longer one keeps the proportion, rounded down. Images that are not longer
    /// stay as they are.
    Shorter(u32),
    /// Height and width, whatever the proportion.
    Exact(u32, u32),
}

/// How images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Store {
    /// As they are, byte for byte; those that are resized as JPEG of quality 90.
    #[default]
    Keep,
    /// As JPEG of this quality, 1 to 100: 4:4:4 from 90, else 4:2:0.
    Jpeg(u8),
    /// As pixels (`.image.npy`): ten times the space, no decoding.
    Raw,
}
