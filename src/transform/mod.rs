//! Transforms as data: a list of ops, lowered once to a small parameter block per sample.

use crate::{
    dataset::FieldKind,
    error::Result,
    random::SampleRng,
    sys::kernels::{ChannelTable, ResampleParams, RowSpec},
    types::{DType, ImageInfo, Layout},
};

/// A list of steps from a decoded image to a row of the batch.
#[derive(Clone, Debug, Default)]
#[derive(PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Transform {}

/// A transform that fits a field: fixed output shape, channel tables, and the recipe for each sample's draw.
#[derive(Clone, Debug)]
pub struct Lowered {}

impl Transform {
    /// Fixes output shape, type and tables.
    pub fn lower(&self, _field: &FieldKind, _dtype: DType, _layout: Layout) -> Result<Lowered> {
        unimplemented!()
    }
}

impl Lowered {
    /// Shape and type of the finished row.
    pub fn row(&self) -> &RowSpec {
        unimplemented!()
    }
    /// The block for one sample: draws, rounding of sizes, bounds.
    pub fn params(&self, _info: &ImageInfo, _rng: SampleRng) -> Result<ResampleParams> {
        unimplemented!()
    }
    /// Scale, bias, fill for pixels of this type.
    pub fn table(&self, _dtype: DType) -> &ChannelTable {
        unimplemented!()
    }
    /// Runs the custom steps on a finished row.
    pub fn finish(&self, _row: &mut [u8], _rng: SampleRng) -> Result<()> {
        unimplemented!()
    }
}
