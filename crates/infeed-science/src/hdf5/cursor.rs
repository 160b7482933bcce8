//! Reads numbers from metadata, never beyond its end.

use infeed_core::error::{Error, Result};

use super::damaged;

/// Reads from the front of the bytes that are left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    left: &'a [u8],
    /// What the bytes are, for messages.
    what: &'static str,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { left: bytes, what }
    }

    pub(super) const fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn error(&self, why: &str) -> Error {
        damaged(format!("{}: {why}", self.what))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            return Err(self.error("it ends too early"));
        };
        self.left = left;
        Ok(taken)
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<()> {
        self.take(len).map(drop)
    }

    /// A little-endian number of `size` bytes, at most 8.
    pub(super) fn uint(&mut self, size: usize) -> Result<u64> {
        let bytes = self.take(size)?;
        let mut wide = [0; 8];
        let Some(low) = wide.get_mut(..size) else { return Err(self.error("a number of more than 8 bytes")) };
        low.copy_from_slice(bytes);
        Ok(u64::from_le_bytes(wide))
    }

    pub(super) fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16> {
        Ok(self.uint(2)? as u16)
    }

    pub(super) fn u32(&mut self) -> Result<u32> {
        Ok(self.uint(4)? as u32)
    }

    pub(super) fn u64(&mut self) -> Result<u64> {
        self.uint(8)
    }

    /// An address of `size` bytes; `None` for the undefined address (all bits set).
    pub(super) fn address(&mut self, size: usize) -> Result<Option<u64>> {
        let nothing = u64::MAX >> (64 - 8 * size.clamp(1, 8));
        self.uint(size).map(|address| (address != nothing).then_some(address))
    }

    /// Reads these bytes; any others are an error.
    pub(super) fn expect(&mut self, bytes: &[u8]) -> Result<()> {
        match self.take(bytes.len())? == bytes {
            true => Ok(()),
            false => Err(self.error("its signature is wrong")),
        }
    }

    pub(super) fn version(&mut self, least: u8, most: u8) -> Result<u8> {
        let version = self.u8()?;
        match (least..=most).contains(&version) {
            true => Ok(version),
            false => Err(super::unsupported(format!("{} of version {version}", self.what))
                .with_hint("rewrite the file with h5repack in an earlier version of the format")),
        }
    }
}
