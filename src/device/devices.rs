//! What this machine has for decoding on a GPU, and the reasons for what is missing.

use std::fmt;

use infeed_core::gpu::{Gpu, NvJpegLibrary};
use serde::Serialize;

use super::driver;

/// What this machine has for decoding on a GPU. `Display` prints a few plain lines.
///
/// ```
/// use infeed::device::devices;
///
/// let machine = devices();
/// match machine.gpus.first() {
///     Some(gpu) => println!("decoding on {gpu}"),
///     None => println!("decoding on the CPU: {}", machine.note),
/// }
/// if machine.nvjpeg.is_none() {
///     println!("JPEGs are decoded on the CPU: {}", machine.nvjpeg_note);
/// }
/// # assert_eq!(machine.gpus.is_empty(), !machine.note.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Devices {
    /// GPUs in the driver's order: `cuda:0`, `cuda:1`, ….
    pub gpus: Vec<Gpu>,
    /// Why `gpus` is empty; an empty text if there are GPUs.
    pub note: String,
    /// NVIDIA's JPEG decoder, if it can be loaded.
    pub nvjpeg: Option<NvJpegLibrary>,
    /// Why `nvjpeg` is `None`; otherwise an empty text.
    pub nvjpeg_note: String,
    /// NVIDIA's video decoder, if it can be loaded: nvJPEG 13 uses the JPEG engines through it.
    pub nvcuvid: Option<String>,
    /// Why `nvcuvid` is `None`; otherwise an empty text.
    pub nvcuvid_note: String,
}

/// Lists the GPUs of the driver and looks for nvJPEG.
///
/// Works on any machine and never panics: the notes have the reasons for what is missing. The first call may take a
/// second if the driver has to wake its GPUs. nvJPEG is looked for at the path `INFEED_NVJPEG` if it is set; otherwise
/// where the system's loader finds libraries, in `/usr/local/cuda/lib64`, and from Python also where pip installs it.
///
/// ```
/// println!("{}", infeed::device::devices()); // As `infeed inspect --devices` prints it.
/// ```
#[must_use]
pub fn devices() -> Devices {
    let (gpus, note) = match driver::gpus() {
        Ok(gpus) => (gpus, String::new()),
        Err(reason) => (Vec::new(), reason),
    };
    let (nvjpeg, nvjpeg_note) = found(driver::nvjpeg());
    let (nvcuvid, nvcuvid_note) = found(driver::nvcuvid());
    Devices { gpus, note, nvjpeg, nvjpeg_note, nvcuvid, nvcuvid_note }
}

/// The GPU, of `gpus`, of a rank of this machine if none is named.
pub(crate) fn of_rank(local_rank: u32, gpus: usize) -> u32 {
    local_rank % (gpus as u32).max(1)
}

/// The GPU of a rank of this machine if none is named; 0 if there is no GPU.
#[must_use]
pub fn gpu_of_rank(local_rank: u32) -> u32 {
    of_rank(local_rank, driver::gpus().map_or(0, |gpus| gpus.len()))
}

fn found<T>(looked: Result<T, String>) -> (Option<T>, String) {
    match looked {
        Ok(found) => (Some(found), String::new()),
        Err(reason) => (None, reason),
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gpus.is_empty() {
            write!(f, "no GPU: {}", self.note)?;
        }
        for (i, gpu) in self.gpus.iter().enumerate() {
            write!(f, "{}{gpu}", if i > 0 { "\n" } else { "" })?;
        }
        match &self.nvjpeg {
            // nvJPEG before 13 does not need nvcuvid.
            Some(nvjpeg) if !self.gpus.is_empty() && self.nvcuvid.is_none() && nvjpeg.version.0 >= 13 => {
                write!(f, "\n{nvjpeg}, without JPEG engines: {}", self.nvcuvid_note)
            }
            Some(nvjpeg) => write!(f, "\n{nvjpeg}"),
            // Without a GPU nvJPEG is not needed.
            None if self.gpus.is_empty() => Ok(()),
            None => write!(f, "\nno nvJPEG: {}", self.nvjpeg_note),
        }
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
        assert_eq!(devices.nvcuvid.is_none(), !devices.nvcuvid_note.is_empty(), "{devices:?}");
        assert!(!devices.to_string().is_empty());
    }

    #[test]
    fn a_machine_is_told_in_plain_lines() {
        let none = Devices { note: "libcuda.so.1 not found (no NVIDIA driver)".into(), ..Devices::default() };
        assert_eq!(none.to_string(), "no GPU: libcuda.so.1 not found (no NVIDIA driver)");
        let (name, pci_bus_id) = ("NVIDIA H200".into(), Some("0000:1b:00.0".into()));
        let gpu = Gpu::new(0, name, 139 << 30, (9, 0), (13, 0), pci_bus_id);
        let one = Devices { gpus: vec![gpu], nvjpeg_note: "libnvjpeg.so.13 not found".into(), ..Devices::default() };
        assert_eq!(
            one.to_string(),
            "cuda:0: NVIDIA H200, 139.0 GiB, compute 9.0, driver for CUDA 13.0\nno nvJPEG: libnvjpeg.so.13 not found"
        );
        let nvjpeg = NvJpegLibrary::new((13, 0, 0), "libnvjpeg.so.13".into());
        let nvcuvid = Some("libnvcuvid.so.1".into());
        let both = Devices { nvjpeg: Some(nvjpeg), nvjpeg_note: String::new(), nvcuvid, ..one };
        assert!(both.to_string().ends_with("\nnvJPEG 13.0.0 (libnvjpeg.so.13)"));
        let no_video = Devices { nvcuvid: None, nvcuvid_note: "libnvcuvid.so.1 not found".into(), ..both };
        let told = no_video.to_string();
        assert!(told.ends_with("(libnvjpeg.so.13), without JPEG engines: libnvcuvid.so.1 not found"), "{told}");
    }

    /// A binary that lists a GPU library in its header does not start on a machine without this library.
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
