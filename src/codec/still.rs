//! What PNG, WebP and BMP share: decoders of the `image` crate, which give whole images.

use std::io::ErrorKind as IoErrorKind;

use image::{ColorType, ImageDecoder, ImageError, error::LimitErrorKind};

use super::{PixelBuffer, cause, corrupt, unsupported};
use crate::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

/// What [`decode`] will give.
pub(super) fn info(decoder: &impl ImageDecoder) -> Result<ImageInfo> {
    let (width, height) = decoder.dimensions();
    let (channels, dtype) = match decoder.color_type() {
        ColorType::L8 => (1, DType::U8),
        ColorType::La8 => (2, DType::U8),
        ColorType::Rgb8 => (3, DType::U8),
        ColorType::Rgba8 => (4, DType::U8),
        ColorType::L16 => (1, DType::U16),
        ColorType::La16 => (2, DType::U16),
        ColorType::Rgb16 => (3, DType::U16),
        ColorType::Rgba16 => (4, DType::U16),
        other => {
            return Err(unsupported(format!("pixels of type {other:?}")));
        }
    };
    if height == 0 || width == 0 {
        return Err(corrupt(format!("image of {width}x{height} pixels")));
    }
    Ok(ImageInfo { height, width, channels, dtype, planar: false })
}

/// Reads the whole image.
pub(super) fn decode(
    name: &str,
    decoder: impl ImageDecoder,
    expected: &ImageInfo,
    file: &[u8],
    out: &mut PixelBuffer,
) -> Result<()> {
    if info(&decoder)? != *expected {
        return Err(Error::new(ErrorKind::Internal, format!("the {name} is not the one that was asked about")));
    }
    let len = usize::try_from(decoder.total_bytes()).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("{name} has more bytes than this machine addresses"))
    })?;
    let pixels = out.hold(0..expected.height, len);
    // A decoder that leaves pixels of a damaged file as they are shall not show those of another image.
    pixels.fill(0);
    decoder.read_image(pixels).map_err(|found| error(name, file, found))?;
    Ok(())
}

/// Our words for an error of the `image` crate.
pub(super) fn error(name: &str, file: &[u8], error: ImageError) -> Error {
    let ours = match &error {
        ImageError::Limits(limit) if matches!(limit.kind(), LimitErrorKind::InsufficientMemory) => {
            Error::new(ErrorKind::OutOfMemory, format!("{name} needs more memory than its size explains"))
                .hint("convert the file or set on_bad_sample(Skip)")
        }
        ImageError::Unsupported(_) => unsupported(format!("{name} of a kind that is not read")),
        ImageError::IoError(io) if io.kind() == IoErrorKind::UnexpectedEof => {
            corrupt(format!("{name} ends after {} bytes, before its image is complete", file.len()))
        }
        _ => corrupt(format!("{name} is damaged")),
    };
    ours.with_source(cause(error.to_string()))
}
