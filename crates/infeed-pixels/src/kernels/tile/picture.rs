//! A picture between two resamples.

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{MAX_IMAGE_BYTES, WORKERS},
    },
    types::{DType, Layout},
};

use crate::kernels::params::RowSpec;

/// In units of a tile's memory.
const HALF_PAGE: usize = 2048 / size_of::<u64>();

/// A picture in planes: u8 of 0..255, or f32 of 0..1.
#[derive(Debug, Default)]
pub struct Tile {
    pub(super) height: u32,
    pub(super) width: u32,
    pub(super) channels: u32,
    pub(super) float: bool,
    /// Unused memory before the values.
    skip: usize,
    memory: Vec<u64>,
}

impl Tile {
    /// For a tile that is written while another is read.
    ///
    /// Large allocations begin at the same offset within a page. A step that reads one tile and writes the other would
    /// then wait, at each load, for a store whose address has the same low bits: a sharpening took up to seven times as
    /// long.
    pub(super) fn beside() -> Self {
        Self { skip: HALF_PAGE, ..Self::default() }
    }

    /// Changes shape and type; the values are undefined. Memory grows to the largest picture.
    ///
    /// # Errors
    /// `OutOfMemory` if the system has no more.
    pub fn reset(&mut self, height: u32, width: u32, channels: u32, float: bool) -> Result<()> {
        (self.height, self.width, self.channels, self.float) = (height, width, channels, float);
        let len = self.skip.saturating_add(self.spec().len_bytes().div_ceil(8));
        if self.memory.try_reserve(len.saturating_sub(self.memory.len())).is_err() {
            // If the allocation fails, no shape remains that the memory does not hold.
            (self.height, self.width, self.channels) = (0, 0, 0);
            let what = format!("no memory for a picture of {height}x{width} pixels ({channels} channels)");
            return Err(Error::new(ErrorKind::OutOfMemory, what)
                .with_hint(format!("resize before the augmentations, or lower {WORKERS} or {MAX_IMAGE_BYTES}")));
        }
        self.memory.resize(len, 0);
        Ok(())
    }

    /// Shape, type and layout, as for a row.
    #[must_use]
    pub fn spec(&self) -> RowSpec {
        let dtype = if self.float { DType::F32 } else { DType::U8 };
        RowSpec { height: self.height, width: self.width, channels: self.channels, dtype, layout: Layout::Nchw }
    }

    /// Bytes of memory that it holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        8 * self.memory.capacity()
    }

    /// The values' bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // Without a shape, no memory is held.
        let held = self.memory.get(self.skip..).unwrap_or_default();
        &bytemuck::cast_slice(held)[..self.spec().len_bytes()]
    }

    /// The values' bytes, mutable.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.spec().len_bytes();
        let held = self.memory.get_mut(self.skip..).unwrap_or_default();
        &mut bytemuck::cast_slice_mut(held)[..len]
    }

    /// Number of values per channel.
    pub(super) fn plane(&self) -> usize {
        self.height as usize * self.width as usize
    }

    /// All planes, by type.
    pub(super) fn sides(&mut self) -> Sides<'_> {
        let float = self.float;
        let bytes = self.bytes_mut();
        if float { Sides::Floats(bytemuck::cast_slice_mut(bytes)) } else { Sides::Bytes(bytes) }
    }

    /// Takes the shape and type of another.
    pub(super) fn reset_like(&mut self, other: &Self) -> Result<()> {
        self.reset(other.height, other.width, other.channels, other.float)
    }
}

/// A tile's values.
#[derive(Debug)]
pub(super) enum Sides<'a> {
    Bytes(&'a mut [u8]),
    Floats(&'a mut [f32]),
}
