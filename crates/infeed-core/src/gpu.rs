//! Facts about a GPU.

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
    /// The maker's name.
    pub name: String,
    /// Total memory.
    pub memory_bytes: u64,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Newest CUDA version that the driver supports, major and minor.
    pub driver: (u32, u32),
    /// Its PCI address, as `0000:1b:00.0`, as other tools show it. `CUDA_VISIBLE_DEVICES` changes `index`, but not
    /// this.
    pub pci_bus_id: Option<String>,
}

impl Gpu {
    /// A GPU with these facts, as its driver reports them.
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
    /// The name or path from which it was loaded.
    pub library: String,
}

impl NvJpegLibrary {
    /// A library with these facts.
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
