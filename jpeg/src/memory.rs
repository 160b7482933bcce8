//! Memory that is kept from image to image.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// Makes the buffer at least `len` long. It is never shrunk: growing again would clear it for nothing.
pub(crate) fn grow<T: Clone>(buffer: &mut Vec<T>, len: usize, with: T) -> Result<()> {
    if buffer.len() < len {
        buffer.try_reserve(len - buffer.len()).map_err(|_| Error::out_of_memory(len * size_of::<T>()))?;
        buffer.resize(len, with);
    }
    Ok(())
}
