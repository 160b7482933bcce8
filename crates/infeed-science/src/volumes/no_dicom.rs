//! Stands in for volumes of slices when the feature `dicom` is off.

use std::{convert::Infallible, ops::Range};

use bytes::Bytes;
use infeed_core::error::Result;
use infeed_store::Extent;

use super::header::VolumeHeader;

/// Has no value.
#[derive(Debug)]
pub(super) struct Stack(Infallible);

impl Stack {
    pub(super) fn cover(
        &self,
        _: &VolumeHeader,
        _: &[Extent],
        _: &[Range<usize>; 3],
        _: bool,
    ) -> (Vec<Extent>, [usize; 3]) {
        match self.0 {}
    }

    pub(super) fn settled(&self, _: &Bytes) -> Bytes {
        match self.0 {}
    }

    pub(super) fn decode(&self, _: &VolumeHeader, _: &[Bytes]) -> Result<Bytes> {
        match self.0 {}
    }

    pub(super) fn resident_bytes(&self) -> usize {
        match self.0 {}
    }
}
