//! What other rooms name of a GPU, in builds that know none. Nothing of it can exist there; that is kept private, so that
//! the compiler does not call the code around it unreachable.

use std::{convert::Infallible, sync::Arc};

#[cfg(feature = "dlpack")]
use infeed_core::handles::CudaStream;
use infeed_core::{
    buffer::{DeviceBuffer, GpuBuffers, PinnedBuffer},
    error::{Error, ErrorKind, Result, setting::DEVICE_CPU},
    gpu::Gpu,
    rows::Rows,
};
use infeed_pixels::kernels::{self, Mixture, RowSpec};

/// Why a build without the probe finds nothing.
pub(in crate::sys) const MISSING: &str = if cfg!(target_os = "linux") {
    "this infeed was built without the feature `cuda`"
} else {
    "infeed uses GPUs on Linux only"
};

pub(crate) fn probe() -> Result<Vec<Gpu>, String> {
    Err(MISSING.into())
}

/// A GPU, ready for work; in this build there is none.
#[derive(Clone, Debug)]
pub struct Context(Infallible);

impl Context {
    /// Always an error here.
    ///
    /// # Errors
    /// `Device`, saying why this build knows no GPU.
    pub fn open(index: u32) -> Result<Self> {
        Err(Error::new(ErrorKind::Device, format!("cuda:{index} can't be used: {MISSING}"))
            .hint(format!("use {DEVICE_CPU}, or build with the feature `cuda` on Linux")))
    }

    /// The number in `cuda:0`.
    #[must_use]
    pub fn index(&self) -> u32 {
        match self.0 {}
    }

    /// Memory that another library lends.
    ///
    /// # Errors
    /// None here.
    ///
    /// # Safety
    /// None here.
    #[cfg(feature = "dlpack")]
    pub(crate) unsafe fn lent(
        &self,
        _address: u64,
        _len: usize,
        _stream: CudaStream,
        _owner: Box<dyn Send + Sync>,
    ) -> Result<Box<dyn DeviceBuffer>> {
        match self.0 {}
    }

    /// Bytes of device memory: free, and in all.
    ///
    /// # Errors
    /// None here.
    pub fn memory(&self) -> Result<(u64, u64)> {
        match self.0 {}
    }
}

impl GpuBuffers for Context {
    fn check_marks(&self) -> Result<()> {
        match self.0 {}
    }

    fn device_buffer(&self, _len: usize) -> Result<Box<dyn DeviceBuffer>> {
        match self.0 {}
    }

    fn pinned_buffer(&self, _len: usize) -> Result<Box<dyn PinnedBuffer>> {
        match self.0 {}
    }
}

/// infeed's kernels on one GPU; in this build there are none.
#[derive(Debug)]
pub struct Kernels(Infallible);

impl Kernels {
    /// Always an error here, as there is no context.
    ///
    /// # Errors
    /// None that can happen.
    pub fn load(context: &Context) -> Result<Arc<Self>> {
        match context.0 {}
    }

    /// The GPU they are on.
    #[must_use]
    pub fn context(&self) -> &Context {
        match self.0 {}
    }
}

/// Mixes batches on one GPU; in this build there is none.
#[derive(Debug)]
pub struct Mixer(Infallible);

impl Mixer {
    /// Always an error here, as there are no kernels.
    ///
    /// # Errors
    /// None that can happen.
    pub fn new(kernels: &Arc<Kernels>, _batch_size: usize) -> Result<Arc<Self>> {
        match kernels.0 {}
    }
}

impl kernels::Mixer for Mixer {
    fn roll(&self, _rows: &mut Rows, _spec: &RowSpec, _mixture: &Mixture, _samples: usize) -> Result<()> {
        match self.0 {}
    }

    fn swap(&self, _rows: &mut Rows, _spec: &RowSpec, _pairs: &[(Mixture, [u32; 2])]) -> Result<()> {
        match self.0 {}
    }
}
