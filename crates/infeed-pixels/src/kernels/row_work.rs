//! The work of a GPU that makes a row of an image with several passes. Plain data; `infeed-cuda` does it.
//!
//! ```text
//! pixels ─ Resample ─▶ picture ─ Steps ─▶ picture ─ … ─ Resample ─▶ row ─ fills ─▶ row
//! ```

use std::ops::Range;

use super::{
    device::DeviceItem,
    params::{ResampleParams, RowSpec},
    picture::{DevicePicture, DeviceRectangle},
    tile::Program,
};

/// Pictures, and places of their programs, start at multiples of this in scratch memory.
pub const SCRATCH_ALIGN: usize = 256;
/// Words and values start at multiples of this in a page.
pub const WORDS_ALIGN: usize = 16;

/// One pass.
#[derive(Clone, Debug, PartialEq)]
pub enum RowPass {
    /// Resamples the image, or the picture of the pass before, to a picture; the last resample makes the row.
    Resample {
        /// The windows.
        params: ResampleParams,
        /// Index of the channel table.
        table: usize,
        /// The result.
        spec: RowSpec,
    },
    /// Steps on the picture.
    Steps(Program),
}

/// A rectangle of the finished row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFill {
    /// Top, bottom, left, right, within the row.
    pub area: [u32; 4],
    /// In the row's units: one for each pixel and channel, plane by plane and line by line, or one for each channel.
    pub values: Vec<f32>,
    /// Whether there is one for each pixel and channel.
    pub each: bool,
}

/// How a row is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowWork {
    /// The first and the last one are resamples.
    pub passes: Vec<RowPass>,
    /// In order: later ones overwrite earlier ones.
    pub fills: Vec<RowFill>,
}

/// Memory that a row needs while it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowScratch {
    /// Device memory for pictures.
    pub scratch: usize,
    /// Memory in a page for descriptors, words and values, in addition to the pixels.
    pub page: usize,
}

impl RowWork {
    /// Only one resample.
    #[must_use]
    pub fn resample(params: ResampleParams, table: usize, spec: RowSpec) -> Self {
        Self { passes: vec![RowPass::Resample { params, table, spec }], fills: Vec::new() }
    }

    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.passes.clear();
        self.fills.clear();
    }

    /// The memory that it needs, rounded up to [`SCRATCH_ALIGN`] and [`WORDS_ALIGN`].
    #[must_use]
    pub fn room(&self) -> RowScratch {
        let mut room = RowScratch::default();
        let mut picture = None;
        for (n, pass) in self.passes.iter().enumerate() {
            match pass {
                RowPass::Resample { spec, .. } => {
                    room.page += size_of::<DeviceItem>();
                    if n + 1 < self.passes.len() {
                        let bytes = spec.len_bytes();
                        room.scratch += bytes.next_multiple_of(SCRATCH_ALIGN);
                        picture = Some(bytes);
                    }
                }
                RowPass::Steps(program) => {
                    let words = size_of_val(program.words()).next_multiple_of(WORDS_ALIGN);
                    room.page += size_of::<DevicePicture>() + words;
                    // The picture itself is in memory already.
                    let places = program.room(picture.unwrap_or(0));
                    room.scratch +=
                        places[1..].iter().map(|bytes| bytes.next_multiple_of(SCRATCH_ALIGN)).sum::<usize>();
                }
            }
        }
        for fill in &self.fills {
            let values = size_of_val(&fill.values[..]).next_multiple_of(WORDS_ALIGN);
            room.page += size_of::<DeviceRectangle>() + values;
        }
        room
    }

    /// Rows and columns of the image that are read.
    #[must_use]
    pub fn reads(&self) -> [Range<u32>; 2] {
        match self.passes.first() {
            Some(RowPass::Resample { params, spec, .. }) => {
                [params.y.reads(spec.height, params.filter), params.x.reads(spec.width, params.filter)]
            }
            _ => [0..0, 0..0],
        }
    }
}
