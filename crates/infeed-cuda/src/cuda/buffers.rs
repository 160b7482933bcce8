//! Allocates the memory of batches for `Rows`.

use infeed_core::{
    buffer::{DeviceBuffer, GpuBuffers, PinnedBuffer},
    error::{Error, ErrorKind, Result},
};

use super::{block::DeviceBlock, context::Context, pinned::PinnedBlock};

impl GpuBuffers for Context {
    fn check_marks(&self) -> Result<()> {
        match self.driver().calls.cuCtxRecordEvent {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Device, "the CUDA driver lacks cuCtxRecordEvent")
                .with_hint("update it to one for CUDA 12.5 or newer (555 or newer)")),
        }
    }

    fn device_buffer(&self, len: usize) -> Result<Box<dyn DeviceBuffer>> {
        Ok(Box::new(DeviceBlock::new(self, len)?))
    }

    fn pinned_buffer(&self, len: usize) -> Result<Box<dyn PinnedBuffer>> {
        Ok(Box::new(PinnedBlock::new(self, len)?))
    }
}
