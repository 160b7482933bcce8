//! Figures of a GPU from NVIDIA's management library (NVML). The library is loaded at run time; without it, there are
//! none.
//!
//! The figures cover the whole GPU, including other processes.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use infeed::device::Gpu;
use nvml_wrapper::{
    Device, Nvml,
    enums::gpm::GpmMetricId,
    gpm::{GpmSample, gpm_metrics_get},
};
use serde::Serialize;

/// NVML averages over a sixth of a second to a second, so more samples would not help.
const EVERY: Duration = Duration::from_millis(100);

/// Metrics of up to eight JPEG engines. A GPU reports those that it has.
const JPEG_ENGINES: [GpmMetricId; 8] = [
    GpmMetricId::Nvjpg0Util,
    GpmMetricId::Nvjpg1Util,
    GpmMetricId::Nvjpg2Util,
    GpmMetricId::Nvjpg3Util,
    GpmMetricId::Nvjpg4Util,
    GpmMetricId::Nvjpg5Util,
    GpmMetricId::Nvjpg6Util,
    GpmMetricId::Nvjpg7Util,
];

/// Samples a GPU ten times a second on its own thread, until [`finish`](Self::finish).
#[derive(Debug)]
pub(crate) struct GpuSampler {
    latest: LatestGpu,
    stop: Sender<()>,
    thread: JoinHandle<Option<GpuUse>>,
}

/// A handle to the last sample of a run in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatestGpu(Arc<Mutex<Option<GpuNow>>>);

impl LatestGpu {
    pub(crate) fn now(&self) -> Option<GpuNow> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, now: GpuNow) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

/// A GPU at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct GpuNow {
    /// A fraction of 1.
    pub utilisation: f64,
    pub memory_used: u64,
    pub memory_total: u64,
}

/// Use of a GPU during a run. Shares are fractions of 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct GpuUse {
    pub name: String,
    pub pci_bus_id: String,
    /// Share of the time in which some kernel ran.
    pub utilisation_mean: f64,
    pub utilisation_max: f64,
    /// Share of the time in which device memory was read or written.
    pub memory_utilisation_mean: f64,
    /// Utilisation of the video decoder.
    pub decoder_mean: Option<f64>,
    /// Utilisation of each JPEG engine over the whole run. Hopper and newer GPUs report it; empty otherwise.
    pub jpeg_engines: Vec<f64>,
    pub memory_peak_bytes: u64,
    pub memory_total_bytes: u64,
    pub samples: u64,
}

/// Free memory of a GPU.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct FreeMemory {
    pub index: u32,
    pub free_bytes: u64,
    pub total_bytes: u64,
}

impl GpuSampler {
    /// Starts sampling `cuda:index`, in infeed's numbering. The caller only starts a thread, which does the rest.
    pub(crate) fn start(index: u32) -> Option<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let latest = LatestGpu::default();
        let shared = latest.clone();
        let sample = move || {
            let gpu = infeed::device::devices().gpus.into_iter().find(|gpu| gpu.index == index)?;
            let nvml = Nvml::init().ok()?;
            let device = find(&nvml, &gpu)?;
            let pci_bus_id = device.pci_info().map(|pci| pci.bus_id).unwrap_or_default();
            let engines = device.gpm_sample().ok();
            let mut samples = GpuSamples::default();
            loop {
                shared.set(samples.add(&device));
                // Also ends if the sampler was dropped because the run failed.
                if stopped.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            let jpeg_engines = engines.map(|start| jpeg_engines(&nvml, &device, &start)).unwrap_or_default();
            Some(GpuUse { name: gpu.name, pci_bus_id, jpeg_engines, ..samples.mean()? })
        };
        let thread = thread::Builder::new().name("infeed-nvml".into()).spawn(sample).ok()?;
        Some(Self { latest, stop, thread })
    }

    /// A handle to the last sample, for the live view.
    pub(crate) fn latest(&self) -> LatestGpu {
        self.latest.clone()
    }

    /// The figures up to now; `None` if NVML is missing or does not find the GPU.
    pub(crate) fn finish(self) -> Option<GpuUse> {
        drop(self.stop);
        self.thread.join().ok()?
    }
}

/// Sums of samples.
#[derive(Debug, Default)]
struct GpuSamples {
    samples: u64,
    busy: u64,
    busy_max: u32,
    memory_busy: u64,
    decoder: Option<u64>,
    memory_peak: u64,
    memory_total: u64,
}

impl GpuSamples {
    fn add(&mut self, device: &Device<'_>) -> GpuNow {
        let mut now = GpuNow::default();
        if let Ok(memory) = device.memory_info() {
            self.memory_peak = self.memory_peak.max(memory.used);
            self.memory_total = memory.total;
            (now.memory_used, now.memory_total) = (memory.used, memory.total);
        }
        let Ok(busy) = device.utilization_rates() else { return now };
        now.utilisation = f64::from(busy.gpu) / 100.0;
        self.take(busy.gpu, busy.memory, device.decoder_utilization().ok().map(|decoder| decoder.utilization));
        now
    }

    /// Percentages of one moment.
    fn take(&mut self, busy: u32, memory_busy: u32, decoder: Option<u32>) {
        self.samples += 1;
        self.busy += u64::from(busy);
        self.busy_max = self.busy_max.max(busy);
        self.memory_busy += u64::from(memory_busy);
        if let Some(decoder) = decoder {
            *self.decoder.get_or_insert(0) += u64::from(decoder);
        }
    }

    /// `None` without samples.
    fn mean(&self) -> Option<GpuUse> {
        if self.samples == 0 && self.memory_total == 0 {
            return None;
        }
        let mean = |percent: u64| percent as f64 / (100 * self.samples.max(1)) as f64;
        Some(GpuUse {
            utilisation_mean: mean(self.busy),
            utilisation_max: f64::from(self.busy_max) / 100.0,
            memory_utilisation_mean: mean(self.memory_busy),
            decoder_mean: self.decoder.map(mean),
            memory_peak_bytes: self.memory_peak,
            memory_total_bytes: self.memory_total,
            samples: self.samples,
            ..GpuUse::default()
        })
    }
}

/// The mean of each engine since `start`.
fn jpeg_engines<'nvml>(nvml: &'nvml Nvml, device: &Device<'nvml>, start: &GpmSample<'nvml>) -> Vec<f64> {
    let told = device.gpm_sample().and_then(|end| gpm_metrics_get(nvml, start, &end, &JPEG_ENGINES));
    let shares = told.unwrap_or_default().into_iter().flatten().map(|metric| metric.value / 100.0);
    shares.filter(|share| share.is_finite()).collect()
}

/// NVML's device for a GPU of the driver. NVML ignores `CUDA_VISIBLE_DEVICES`, so their indices may differ. They are
/// matched by PCI bus id.
fn find<'nvml>(nvml: &'nvml Nvml, gpu: &Gpu) -> Option<Device<'nvml>> {
    match &gpu.pci_bus_id {
        Some(id) => nvml.device_by_pci_bus_id(id.as_str()).ok(),
        None if nvml.device_count().ok()? == 1 => nvml.device_by_index(0).ok(),
        None => None,
    }
}

/// Free memory of the GPUs that NVML finds. This does not initialise GPUs, as the driver would.
pub(crate) fn free_memory(gpus: &[Gpu]) -> Vec<FreeMemory> {
    if gpus.is_empty() {
        return Vec::new();
    }
    let Ok(nvml) = Nvml::init() else { return Vec::new() };
    let free = |gpu: &Gpu| {
        let memory = find(&nvml, gpu)?.memory_info().ok()?;
        Some(FreeMemory { index: gpu.index, free_bytes: memory.free, total_bytes: memory.total })
    };
    gpus.iter().filter_map(free).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_gpu_tells_nothing_and_does_not_panic() {
        assert_eq!(GpuSampler::start(4242).and_then(GpuSampler::finish), None);
        assert!(free_memory(&[]).is_empty());
    }

    #[test]
    fn means_are_over_the_samples_and_shares_of_one() {
        let mut samples = GpuSamples::default();
        assert_eq!(samples.mean(), None);
        samples.take(50, 10, None);
        samples.take(100, 30, Some(4));
        let mean = samples.mean().unwrap();
        assert_eq!((mean.utilisation_mean, mean.utilisation_max, mean.samples), (0.75, 1.0, 2));
        assert_eq!((mean.memory_utilisation_mean, mean.decoder_mean), (0.2, Some(0.02)));
    }
}
