//! The figures of one run of a configuration.

use serde::Serialize;
use serde_json::Value;

use crate::{busy::Busy, child::Rates};

/// The figures of a run, named as in its JSON. Rates and waits leave out the first batch; times are in seconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Measure {
    pub samples_per_second: f64,
    pub iterations_per_second: f64,
    pub wait_per_batch_seconds: Option<f64>,
    pub cpu_seconds_per_sample: Option<f64>,
    /// Including the first batch.
    pub seconds: f64,
    pub first_batch_seconds: Option<f64>,
    pub cpu_seconds: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    pub au: Option<f64>,
    pub bottleneck: Option<String>,
    /// Of the dataset.
    pub records: u64,
    pub samples: u64,
    pub batches: u64,
    /// Including bytes read ahead of the last batch.
    pub bytes_read: u64,
    pub bad_samples: u64,
    /// With `--checksum`.
    pub checksum: Option<String>,
    /// Use of the cores by other processes.
    pub busy: Option<Busy>,
}

impl Measure {
    /// From the JSON of `infeed run`.
    pub(crate) fn new(told: &Value) -> Self {
        let whole = |value: &Value| value.as_u64().unwrap_or(0);
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let Rates { iterations_per_second, samples_per_second } = Rates::of(told);
        let (samples, batches) = (whole(&told["samples"]), whole(&told["batches"]));
        let cpu_seconds = told["cpu_seconds"].as_f64();
        let waits = told["data_wait"]["sum"].as_f64().filter(|_| batches > 1);
        Self {
            samples_per_second,
            iterations_per_second,
            wait_per_batch_seconds: waits.map(|sum| sum / (batches - 1) as f64),
            cpu_seconds_per_sample: cpu_seconds.filter(|_| samples > 0).map(|cpu| cpu / samples as f64),
            seconds: told["seconds"].as_f64().unwrap_or(0.0),
            first_batch_seconds: told["first_batch_seconds"].as_f64(),
            cpu_seconds,
            peak_rss_bytes: told["peak_rss_bytes"].as_u64(),
            au: told["au"].as_f64(),
            bottleneck: text(&told["bottleneck"]),
            records: whole(&told["records"]),
            samples,
            batches,
            bytes_read: whole(&told["bytes_read"]),
            bad_samples: whole(&told["bad_sample_count"]),
            checksum: text(&told["checksum"]),
            busy: serde_json::from_value(told["busy"].clone()).ok(),
        }
    }

    pub(crate) fn bytes_per_sample(&self) -> f64 {
        self.bytes_read as f64 / self.samples.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn waits_are_of_all_batches_but_the_first_and_processor_time_of_all_samples() {
        let told = json!({"batches": 11, "samples": 88, "seconds": 9.0, "step": {"sum": 5.0}, "records": 100,
            "data_wait": {"sum": 2.0}, "cpu_seconds": 4.4, "bytes_read": 880, "checksum": null, "busy": null});
        let of = Measure::new(&told);
        assert_eq!((of.samples_per_second, of.iterations_per_second), (16.0, 2.0));
        assert_eq!((of.wait_per_batch_seconds, of.cpu_seconds_per_sample), (Some(0.2), Some(0.05)));
        assert_eq!((of.bytes_per_sample(), of.records, of.busy), (10.0, 100, None));
        let one = Measure::new(&json!({"batches": 1, "samples": 8, "seconds": 4.0, "data_wait": {"sum": 0.0}}));
        assert_eq!((one.wait_per_batch_seconds, one.cpu_seconds_per_sample), (None, None));
        let busy = json!({"others": 1.5, "steal": 0.0, "own": 0.5, "cores": 2, "usable": 2.0, "seconds": 3.0});
        assert!(Measure::new(&json!({"busy": busy})).busy.is_some_and(|busy| busy.warning().is_some()));
        assert_eq!(Measure::new(&json!({})).samples_per_second, 0.0);
    }
}
