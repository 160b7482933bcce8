//! What other rooms name of a GPU, in builds that know none. Nothing of it can exist there; that is kept private, so that
//! the compiler does not call the code around it unreachable.

use std::{convert::Infallible, sync::Arc};

use super::{
    gpu::{Gpu, MISSING},
    handles::{CudaEvent, CudaStream},
};
use crate::{
    error::{Error, ErrorKind, Result, setting::DEVICE_CPU},
    sys::{
        kernels::{Mixture, RowSpec},
        rows::Rows,
    },
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

    /// Whether the driver can mark what all streams were given.
    ///
    /// # Errors
    /// None here.
    pub fn check_marks(&self) -> Result<()> {
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

    /// Mixes each row with the one before it.
    ///
    /// # Errors
    /// None here.
    pub fn roll(&self, _rows: &mut Rows, _spec: &RowSpec, _mixture: &Mixture, _samples: usize) -> Result<()> {
        match self.0 {}
    }

    /// Mixes pairs of rows.
    ///
    /// # Errors
    /// None here.
    pub fn swap(&self, _rows: &mut Rows, _spec: &RowSpec, _pairs: &[(Mixture, [u32; 2])]) -> Result<()> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(in crate::sys) struct DeviceBlock(Infallible);

impl DeviceBlock {
    pub(in crate::sys) fn new(context: &Context, _len: usize) -> Result<Self> {
        match context.0 {}
    }
    pub(in crate::sys) unsafe fn foreign(
        context: &Context,
        _address: u64,
        _len: usize,
        _stream: CudaStream,
        _owner: Box<dyn Send + Sync>,
    ) -> Result<Self> {
        match context.0 {}
    }
    pub(in crate::sys) fn address(&self) -> u64 {
        match self.0 {}
    }
    pub(in crate::sys) fn context(&self) -> &Context {
        match self.0 {}
    }
    pub(in crate::sys) fn read_by(&self, _stream: CudaStream) {
        match self.0 {}
    }
    pub(in crate::sys) fn release_after(&self, _event: CudaEvent) -> Result<()> {
        match self.0 {}
    }
    pub(in crate::sys) fn retire(&self) {
        match self.0 {}
    }
    pub(in crate::sys) fn is_free(&self) -> bool {
        match self.0 {}
    }
    pub(in crate::sys) fn wait_until_free(&self) {
        match self.0 {}
    }
    pub(in crate::sys) fn is_lost(&self) -> bool {
        match self.0 {}
    }
    pub(in crate::sys) fn copy_within(&self, _from: usize, _to: usize, _len: usize) -> Result<()> {
        match self.0 {}
    }
    pub(in crate::sys) fn clear(&self, _at: usize, _len: usize) -> Result<()> {
        match self.0 {}
    }
    pub(in crate::sys) fn upload(&self, _at: usize, _bytes: &[u8]) -> Result<()> {
        match self.0 {}
    }
    pub(in crate::sys) fn download(&self, _at: usize, _bytes: &mut [u8]) -> Result<()> {
        match self.0 {}
    }
}

#[derive(Debug)]
pub(in crate::sys) struct PinnedBlock(Infallible);

impl PinnedBlock {
    pub(in crate::sys) fn new(context: &Context, _len: usize) -> Result<Self> {
        match context.0 {}
    }
    pub(in crate::sys) fn start(&self) -> *mut u8 {
        match self.0 {}
    }
    pub(in crate::sys) fn lend(&self) {
        match self.0 {}
    }
    pub(in crate::sys) fn retire(&self) {
        match self.0 {}
    }
    pub(in crate::sys) fn is_free(&self) -> bool {
        match self.0 {}
    }
    pub(in crate::sys) fn wait_until_free(&self) {
        match self.0 {}
    }
    pub(in crate::sys) fn is_lost(&self) -> bool {
        match self.0 {}
    }
}
