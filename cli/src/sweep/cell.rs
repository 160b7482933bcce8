//! One cell of a sweep: its settings and its figures.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{busy::Busy, child::Rates, units};

/// The settings in which cells differ, as typed. `None`: not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub workers: Option<String>,
    pub batch_size: Option<String>,
    pub prefetch: Option<String>,
    pub dtype: Option<String>,
    pub device: Option<String>,
}

impl Settings {
    fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { workers, batch_size, prefetch, dtype, device } = self;
        let all = [
            ("workers", workers),
            ("batch-size", batch_size),
            ("prefetch", prefetch),
            ("dtype", dtype),
            ("device", device),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
    }

    /// As options of `infeed run`.
    pub(crate) fn options(&self) -> Vec<String> {
        self.named().flat_map(|(name, value)| [format!("--{name}"), value.to_owned()]).collect()
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.named().map(|(name, value)| format!("{name} {value}")).collect();
        f.write_str(if all.is_empty() { "as given" } else { "" })?;
        f.write_str(&all.join(", "))
    }
}

/// A measured cell. Rates leave out the first batch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// As typed.
    pub asked: Settings,
    /// The values used, with `auto` resolved.
    pub workers: Option<u64>,
    pub batch_size: Option<u64>,
    pub prefetch: Option<u64>,
    pub dtype: Option<String>,
    pub device: Option<String>,
    pub iterations_per_second: f64,
    pub samples_per_second: f64,
    /// Of the whole run, including the first batch.
    pub seconds: f64,
    pub batches: u64,
    pub first_batch_seconds: Option<f64>,
    pub au: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    pub bottleneck: Option<String>,
    /// Use of the cores by other processes.
    #[serde(default)]
    pub busy: Option<Busy>,
    /// Where `workers` and `prefetch` on `auto` ended.
    #[serde(default)]
    pub workers_at_end: Option<u64>,
    #[serde(default)]
    pub prefetch_at_end: Option<u64>,
    /// Use of the GPU, in the form of `run`'s JSON.
    pub gpu: Option<Value>,
    /// The error, if there are no figures.
    pub error: Option<String>,
}

/// A cell without nested fields, for CSV.
#[derive(Debug, Serialize)]
pub(crate) struct Flat<'a> {
    workers: Option<u64>,
    batch_size: Option<u64>,
    prefetch: Option<u64>,
    dtype: Option<&'a str>,
    device: Option<&'a str>,
    iterations_per_second: f64,
    samples_per_second: f64,
    seconds: f64,
    batches: u64,
    first_batch_seconds: Option<f64>,
    au: Option<f64>,
    cpu_seconds: Option<f64>,
    peak_rss_bytes: Option<u64>,
    bottleneck: Option<&'a str>,
    gpu_utilisation: Option<f64>,
    error: Option<&'a str>,
}

impl Cell {
    /// From the JSON of `infeed run`.
    pub(crate) fn new(asked: Settings, told: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let config = &told["config"];
        let Rates { iterations_per_second, samples_per_second } = Rates::of(told);
        let at_end = |what: &str| told["autotune"][what]["now"].as_u64();
        Self {
            asked,
            workers: told["workers"].as_u64(),
            batch_size: config["batch_size"].as_u64(),
            prefetch: config["prefetch"].as_u64(),
            dtype: text(&config["dtype"]),
            device: text(&told["device"]),
            iterations_per_second,
            samples_per_second,
            seconds: told["seconds"].as_f64().unwrap_or(0.0),
            batches: told["batches"].as_u64().unwrap_or(0),
            first_batch_seconds: told["first_batch_seconds"].as_f64(),
            au: told["au"].as_f64(),
            cpu_seconds: told["cpu_seconds"].as_f64(),
            peak_rss_bytes: told["peak_rss_bytes"].as_u64(),
            bottleneck: text(&told["bottleneck"]),
            busy: serde_json::from_value(told["busy"].clone()).unwrap_or_default(),
            workers_at_end: at_end("workers"),
            prefetch_at_end: at_end("prefetch"),
            gpu: Some(told["gpu"].clone()).filter(|gpu| !gpu.is_null()),
            error: None,
        }
    }

    /// A cell whose run failed.
    pub(crate) fn failed(asked: Settings, error: &str) -> Self {
        let number = |text: &Option<String>| text.as_ref().and_then(|text| text.parse().ok());
        Self {
            workers: number(&asked.workers),
            batch_size: number(&asked.batch_size),
            prefetch: number(&asked.prefetch),
            dtype: asked.dtype.clone(),
            device: asked.device.clone(),
            asked,
            error: Some(error.to_owned()),
            ..Self::default()
        }
    }

    /// Cores that were busy on average.
    pub(crate) fn cores_used(&self) -> Option<f64> {
        self.cpu_seconds.map(|cpu| cpu / self.seconds.max(f64::MIN_POSITIVE))
    }

    pub(crate) fn words(&self) -> String {
        match &self.error {
            Some(error) => format!("failed: {error}"),
            None => format!(
                "{:.2} it/s, {} samples/s",
                self.iterations_per_second,
                units::count(self.samples_per_second.round() as u64)
            ),
        }
    }

    fn utilisation(&self) -> Option<f64> {
        self.gpu.as_ref()?["utilisation_mean"].as_f64()
    }

    pub(crate) fn gpu_words(&self) -> String {
        match (self.utilisation(), self.device.as_deref()) {
            (Some(share), _) => format!("{:.0} %", 100.0 * share),
            (None, Some("cpu")) => "no GPU".into(),
            (None, _) => String::new(),
        }
    }

    pub(crate) fn flat(&self) -> Flat<'_> {
        Flat {
            workers: self.workers,
            batch_size: self.batch_size,
            prefetch: self.prefetch,
            dtype: self.dtype.as_deref(),
            device: self.device.as_deref(),
            iterations_per_second: self.iterations_per_second,
            samples_per_second: self.samples_per_second,
            seconds: self.seconds,
            batches: self.batches,
            first_batch_seconds: self.first_batch_seconds,
            au: self.au,
            cpu_seconds: self.cpu_seconds,
            peak_rss_bytes: self.peak_rss_bytes,
            bottleneck: self.bottleneck.as_deref(),
            gpu_utilisation: self.utilisation(),
            error: self.error.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rates_leave_out_the_first_batch() {
        let told = json!({"batches": 11, "samples": 88, "seconds": 9.0, "step": {"sum": 5.0}, "workers": 2,
            "config": {"batch_size": 8, "prefetch": 4, "dtype": "f32"}, "device": "cpu", "gpu": null});
        let cell = Cell::new(Settings::default(), &told);
        assert_eq!((cell.iterations_per_second, cell.samples_per_second), (2.0, 16.0));
        assert_eq!((cell.gpu_words().as_str(), cell.gpu.is_none()), ("no GPU", true));
        let one = json!({"batches": 1, "samples": 8, "seconds": 4.0, "step": {"sum": 0.0}});
        assert_eq!(Cell::new(Settings::default(), &one).iterations_per_second, 0.25);
        assert_eq!(Cell::new(Settings::default(), &json!({})).samples_per_second, 0.0);
    }
}
