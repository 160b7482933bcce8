//! What PNG, WebP and GIF share: decoders that give whole images, and the words for their errors.

use std::error::Error as StdError;

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    types::ImageInfo,
};

use super::{ImageHeader, PixelBuffer, cause, corrupt};

/// An image has pixels.
pub(super) fn checked(info: ImageInfo) -> Result<ImageInfo> {
    if info.height == 0 || info.width == 0 {
        return Err(corrupt(format!("image of {}x{} pixels", info.width, info.height)));
    }
    Ok(info)
}

/// Memory for the whole image, zeros.
pub(super) fn hold<'a>(
    name: &str,
    info: ImageInfo,
    expected: &ImageHeader,
    out: &'a mut PixelBuffer,
) -> Result<&'a mut [u8]> {
    if info != expected.info {
        return Err(Error::new(ErrorKind::Internal, format!("the {name} is not the one that was asked about")));
    }
    let len = usize::try_from(info.len_bytes()).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("{name} has more bytes than this machine addresses"))
    })?;
    let pixels = out.hold(0..info.height, len)?;
    // A decoder that leaves pixels of a damaged file as they are shall not show those of another image.
    pixels.fill(0);
    Ok(pixels)
}

pub(super) fn too_large(name: &str) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{name} needs more memory than its size explains"))
        .hint(format!("convert the file or set {SKIP}"))
}

pub(super) fn cut(name: &str, file: &[u8]) -> Error {
    corrupt(format!("{name} ends after {} bytes, before its image is complete", file.len()))
}

pub(super) fn damaged(name: &str) -> Error {
    corrupt(format!("{name} is damaged"))
}

/// With the words of the decoder.
pub(super) fn because(ours: Error, found: &dyn StdError) -> Error {
    ours.with_source(cause(found.to_string()))
}
