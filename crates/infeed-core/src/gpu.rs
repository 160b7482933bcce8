//! What is told of a GPU.

use std::fmt;

use serde::Serialize;

/// One GPU.
///
/// ```
/// use infeed::device::{Device, devices};
///
/// // The one with the most memory, for `LoaderBuilder::device`.
/// let gpus = devices().gpus;
/// let largest = gpus.iter().max_by_key(|gpu| gpu.memory_bytes);
/// let device = largest.map_or(Device::Cpu, |gpu| Device::Cuda(gpu.index));
/// assert_eq!(device == Device::Cpu, gpus.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Gpu {
    /// The number in `cuda:0`.
    pub index: u32,
    /// The maker's name for it.
    pub name: String,
    /// Memory it has, used or not.
    pub memory_bytes: u64,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Newest CUDA version that the driver knows, major and minor.
    pub driver: (u32, u32),
    /// Its place, as `0000:1b:00.0`, by which other tools know it: `CUDA_VISIBLE_DEVICES` changes `index`, not this.
    pub pci_bus_id: Option<String>,
}

impl Gpu {
    /// As its driver tells it.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(
        index: u32,
        name: String,
        memory_bytes: u64,
        compute: (u32, u32),
        driver: (u32, u32),
        pci_bus_id: Option<String>,
    ) -> Self {
        Self { index, name, memory_bytes, compute, driver, pci_bus_id }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, name, memory_bytes, compute, driver, .. } = self;
        let gib = *memory_bytes as f64 / f64::from(1 << 30);
        let ((major, minor), (cuda, point)) = (compute, driver);
        write!(f, "cuda:{index}: {name}, {gib:.1} GiB, compute {major}.{minor}, driver for CUDA {cuda}.{point}")
    }
}

/// The nvJPEG library.
///
/// ```
/// use infeed::device::devices;
///
/// let machine = devices();
/// match &machine.nvjpeg {
///     Some(library) => println!("{library}"), // nvJPEG 13.0.0 (libnvjpeg.so.13)
///     None => println!("{}", machine.nvjpeg_note),
/// }
/// # assert_eq!(machine.nvjpeg.is_none(), !machine.nvjpeg_note.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NvJpegLibrary {
    /// Major, minor, patch.
    pub version: (u32, u32, u32),
    /// The name or path it was loaded by.
    pub library: String,
}

impl NvJpegLibrary {
    /// As its driver tells it.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(version: (u32, u32, u32), library: String) -> Self {
        Self { version, library }
    }
}

impl fmt::Display for NvJpegLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((major, minor, patch), library) = (self.version, &self.library);
        write!(f, "nvJPEG {major}.{minor}.{patch} ({library})")
    }
}
