//! GPUs: which there are, or why there are none, and work on them.
//!
//! ```text
//! driver.rs   the driver's functions, loaded at run time; the look for GPUs
//! context.rs  Context, Stream, Event, DeviceMemory, Pinned: handles, owned and destroyed once
//! block.rs    the memory of a batch, and who still reads it
//! lane.rs     one thread's way to the device: pixels up, resample, rows out
//! measure.rs  what memory and link can do, for benchmarks
//! absent.rs   the same names in builds that know no GPU
//! ```
//!
//! The driver (`libcuda.so.1`) and nvJPEG are loaded by name at run time, so one binary serves machines with and without
//! them. What a newcomer would get wrong:
//!
//! 1. No call of the driver is made before `driver` has found every function of it: a machine without a GPU is usual.
//! 2. Memory is ordered by host waits between our threads and by events towards the trainer; nothing relies on the
//!    default stream.
//! 3. A `Drop` may run on the trainer's thread. What would wait there is a mistake, see `block`.

use std::{ffi::c_void, fmt};

use serde::Serialize;

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
mod absent;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod block;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod context;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod driver;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod lane;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod measure;

#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(super) use absent::DeviceBlock;
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
use absent::probe;
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub use absent::{Context, Kernels};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use block::DeviceBlock;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use context::{Context, Priority};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use context::{DeviceMemory, Pinned};
#[cfg(all(feature = "cuda", target_os = "linux"))]
use driver::probe;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub(super) use lane::DevicePixels;
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use lane::{Held, Kernels, Lane, LaneSize, Ticket};
#[cfg(all(feature = "cuda", target_os = "linux"))]
pub use measure::{Copies, Meter};

/// A `CUstream` (the runtime's `cudaStream_t` is the same thing): the queue of work that reads a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaStream(usize);

impl CudaStream {
    /// The legacy default stream of the tensor's device.
    pub const DEFAULT: Self = Self(0);
    /// The default stream of the calling thread, in programs that use one for each thread.
    pub const PER_THREAD: Self = Self(2);

    /// A stream of some framework.
    ///
    /// # Safety
    /// `stream` is null, or a stream of the device on which it will be used, and lives until every tensor whose
    /// address was asked for with it has been dropped.
    #[must_use]
    pub unsafe fn from_raw(stream: *mut c_void) -> Self {
        Self(stream as usize)
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// A `CUevent` that was recorded behind the work that reads a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaEvent(usize);

impl CudaEvent {
    /// An event of some framework.
    ///
    /// # Safety
    /// `event` is an event of the device on which it will be used, and lives as long as this value is used.
    #[must_use]
    pub unsafe fn from_raw(event: *mut c_void) -> Self {
        Self(event as usize)
    }

    /// The handle.
    #[must_use]
    pub const fn as_raw(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// What this machine offers for decoding on a GPU. `Display` prints a few plain lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Devices {
    /// In the driver's order, which is that of `cuda:0`, `cuda:1`, ….
    pub gpus: Vec<Gpu>,
    /// Why `gpus` is empty; empty itself when it is not.
    pub note: String,
    /// NVIDIA's JPEG decoder, if it can be loaded.
    pub nvjpeg: Option<NvJpeg>,
    /// Why `nvjpeg` is `None`; empty when it is not.
    pub nvjpeg_note: String,
}

/// One GPU.
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

/// The nvJPEG library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NvJpeg {
    /// Major, minor, patch.
    pub version: (u32, u32, u32),
    /// The name or path it was loaded by.
    pub library: String,
}

/// The GPUs of this machine, or why there are none.
pub(crate) fn gpus() -> Result<Vec<Gpu>, String> {
    probe()
}

/// Asks the driver for GPUs and looks for nvJPEG.
///
/// Works on any machine and never panics: what is missing is told in the notes. The first call may take a second where
/// a driver wakes up its GPUs. nvJPEG is looked for at `INFEED_NVJPEG` (a path) or else by its usual names.
#[must_use]
pub fn devices() -> Devices {
    let (gpus, note) = match probe() {
        Ok(gpus) => (gpus, String::new()),
        Err(reason) => (Vec::new(), reason),
    };
    let (nvjpeg, nvjpeg_note) = match super::nvjpeg::find() {
        Ok(found) => (Some(found), String::new()),
        Err(reason) => (None, reason),
    };
    Devices { gpus, note, nvjpeg, nvjpeg_note }
}

/// Why a build without the probe finds nothing.
#[cfg(not(all(feature = "cuda", target_os = "linux")))]
pub(super) const MISSING: &str = if cfg!(target_os = "linux") {
    "this infeed was built without the feature `cuda`"
} else {
    "infeed uses GPUs on Linux only"
};

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            write!(f, "no GPU: {}", self.note)?;
        }
        for (i, gpu) in self.gpus.iter().enumerate() {
            write!(f, "{}{gpu}", if i > 0 { "\n" } else { "" })?;
        }
        match &self.nvjpeg {
            Some(nvjpeg) => write!(f, "\n{nvjpeg}"),
            // Without a GPU nobody misses it.
            None if self.gpus.is_empty() => Ok(()),
            None => write!(f, "\nno nvJPEG: {}", self.nvjpeg_note),
        }
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

impl fmt::Display for NvJpeg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((major, minor, patch), library) = (self.version, &self.library);
        write!(f, "nvJPEG {major}.{minor}.{patch} ({library})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_never_panics_and_always_gives_gpus_or_a_reason() {
        let devices = devices();
        assert_eq!(devices.gpus.is_empty(), !devices.note.is_empty(), "{devices:?}");
        assert_eq!(devices.nvjpeg.is_none(), !devices.nvjpeg_note.is_empty(), "{devices:?}");
        assert!(!devices.to_string().is_empty());
    }

    #[test]
    fn a_machine_is_told_in_plain_lines() {
        let none = Devices { note: "libcuda.so.1 not found (no NVIDIA driver)".into(), ..Devices::default() };
        assert_eq!(none.to_string(), "no GPU: libcuda.so.1 not found (no NVIDIA driver)");
        let (name, pci_bus_id) = ("NVIDIA H200".into(), Some("0000:1b:00.0".into()));
        let gpu = Gpu { index: 0, name, memory_bytes: 139 << 30, compute: (9, 0), driver: (13, 0), pci_bus_id };
        let one = Devices { gpus: vec![gpu], nvjpeg_note: "libnvjpeg.so.13 not found".into(), ..Devices::default() };
        assert_eq!(
            one.to_string(),
            "cuda:0: NVIDIA H200, 139.0 GiB, compute 9.0, driver for CUDA 13.0\nno nvJPEG: libnvjpeg.so.13 not found"
        );
        let nvjpeg = NvJpeg { version: (13, 0, 0), library: "libnvjpeg.so.13".into() };
        let both = Devices { nvjpeg: Some(nvjpeg), nvjpeg_note: String::new(), ..one };
        assert!(both.to_string().ends_with("\nnvJPEG 13.0.0 (libnvjpeg.so.13)"));
    }

    /// A binary that names a GPU library in its header does not even start where that is missing.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
    fn this_binary_starts_without_gpu_libraries() {
        let needed = needed(&std::fs::read("/proc/self/exe").unwrap());
        assert!(needed.iter().any(|name| name.starts_with("libc.so")), "the test can't read ELF: {needed:?}");
        let gpu = |name: &&String| ["cuda", "nvjpeg", "nvrtc"].iter().any(|part| name.contains(part));
        assert_eq!(needed.iter().find(gpu), None);
    }

    /// The DT_NEEDED entries of a 64-bit ELF file.
    #[cfg(all(target_os = "linux", target_pointer_width = "64", target_endian = "little"))]
    fn needed(elf: &[u8]) -> Vec<String> {
        let u16_at = |at: usize| u16::from_le_bytes(elf[at..at + 2].try_into().unwrap()) as usize;
        let u32_at = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
        // Program headers: type, flags, offset, virtual address, physical address, size in the file, ….
        let headers: Vec<usize> = (0..u16_at(0x38)).map(|i| u64_at(0x20) + i * u16_at(0x36)).collect();
        let dynamic = headers.iter().find(|&&h| u32_at(h) == 2).expect("a dynamic binary");
        let entries: Vec<(usize, usize)> = (u64_at(dynamic + 8)..u64_at(dynamic + 8) + u64_at(dynamic + 32))
            .step_by(16)
            .map(|at| (u64_at(at), u64_at(at + 8)))
            .take_while(|&(tag, _)| tag != 0)
            .collect();
        let names = entries.iter().find(|(tag, _)| *tag == 5).expect("a string table").1;
        let load =
            |h: &&usize| u32_at(**h) == 1 && (u64_at(**h + 16)..u64_at(**h + 16) + u64_at(**h + 32)).contains(&names);
        let segment = headers.iter().find(load).expect("the string table is loaded");
        let names = names - u64_at(segment + 16) + u64_at(segment + 8);
        let text = |at: usize| elf[names + at..].iter().take_while(|&&b| b != 0).map(|&b| char::from(b)).collect();
        entries.iter().filter(|(tag, _)| *tag == 1).map(|&(_, at)| text(at)).collect()
    }
}
