//! Shared by PNG, WebP, GIF and JPEG XL, whose decoders give whole images: checks and errors.

use std::error::Error as StdError;

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::SKIP},
    types::ImageInfo,
};

use super::{ImageHeader, PixelBuffer, cause, corrupt};

/// Refuses an image without pixels.
pub(super) fn checked(info: ImageInfo) -> Result<ImageInfo> {
    if info.height == 0 || info.width == 0 {
        return Err(corrupt(format!("image of {}x{} pixels", info.width, info.height)));
    }
    Ok(info)
}

/// Memory for the whole image, filled with zeros.
pub(super) fn hold<'a>(
    name: &str,
    info: ImageInfo,
    expected: &ImageHeader,
    out: &'a mut PixelBuffer,
) -> Result<&'a mut [u8]> {
    if info != expected.info {
        return Err(Error::new(ErrorKind::Internal, format!("the header belongs to another {name}")));
    }
    let len = usize::try_from(info.len_bytes()).map_err(|_| {
        Error::new(ErrorKind::OutOfMemory, format!("{name} has more bytes than this machine can address"))
    })?;
    let pixels = out.hold(0..info.height, len)?;
    // If a decoder leaves pixels of a damaged file untouched, they must not show another image.
    pixels.fill(0);
    Ok(pixels)
}

pub(super) fn too_large(name: &str) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("{name} needs more memory than its size accounts for"))
        .with_hint(format!("convert the file or set {SKIP}"))
}

pub(super) fn cut(name: &str, file: &[u8]) -> Error {
    corrupt(format!("{name} ends after {} bytes, before its image is complete", file.len()))
}

pub(super) fn damaged(name: &str) -> Error {
    corrupt(format!("{name} is damaged"))
}

/// Our error with the decoder's error as its source.
pub(super) fn because(ours: Error, found: &dyn StdError) -> Error {
    ours.with_source(cause(found.to_string()))
}
