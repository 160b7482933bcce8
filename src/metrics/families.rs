//! Names, kinds and help texts of the metrics: one list for all protocols.

use std::{collections::BTreeMap, time::Duration};

use infeed_core::{
    process,
    report::{Report, Times},
};

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Waits by length.
    Histogram,
}

/// A gauge of a past event: it stays after the stream was dropped.
const FIRST_BATCH: &str = "infeed_first_batch_seconds";

/// A metric.
#[derive(Debug)]
pub(super) struct Family {
    /// As Prometheus spells it, with its unit, without `_total`.
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    pub(super) help: &'static str,
}

impl Family {
    /// Its unit as UCUM writes it.
    #[cfg(feature = "otel")]
    pub(super) fn unit(&self) -> &'static str {
        match self.name {
            name if name.ends_with("_seconds") => "s",
            name if name.ends_with("_bytes") || name.ends_with("_bytes_read") => "By",
            _ => "1",
        }
    }
}

macro_rules! families {
    ($($kind:ident $name:literal $help:literal;)*) => {
        /// All metrics, in the order of the output.
        pub(super) const FAMILIES: &[Family] =
            &[$(Family { name: concat!("infeed_", $name), kind: MetricKind::$kind, help: $help }),*];
    };
}

families! {
    Counter "samples" "Rows handed over, without padding.";
    Counter "batches" "Batches handed over.";
    Counter "bytes_read" "Bytes read from the source.";
    Counter "bad_samples" "Samples that were skipped or substituted.";
    Counter "unreadable_samples" "Bad samples that could not be read.";
    Gauge "first_batch_seconds" "From the start of the stream to its first batch.";
    Histogram "data_wait_seconds" "Waits for a batch, without the first batch of each stream.";
    Counter "step_seconds" "Time between batches, waits included, without the first batch of each stream.";
    Gauge "waiting_seconds" "How long the trainer has been waiting for its next batch; 0 while it works.";
    Counter "stage_busy_seconds" "Busy time, summed over threads.";
    Counter "stage_starved_seconds" "Time without input, summed over threads.";
    Counter "stage_blocked_seconds" "Time without room downstream, summed over threads.";
    Counter "stage_cpu_seconds" "Processor time of decode threads.";
    Counter "stage_device_seconds" "Time on the GPU.";
    Counter "stage_items" "Samples; batches for the stage yield.";
    Counter "stage_bytes" "Bytes out.";
    Counter "decoded_rows" "Rows by the class of decoder that made them.";
    Counter "late_batches" "Batches for which the trainer waited 1 ms or longer.";
    Counter "late_seconds" "The trainer's waits for late batches.";
    Gauge "queue_level" "Fill when the trainer last polled: batches, jobs, or bytes of encoded data.";
    Gauge "queue_capacity" "The most that the queue may hold.";
    Gauge "workers" "Decode threads at work.";
    Gauge "prefetch" "Batches that may be ahead of the trainer.";
    Counter "tune_decisions" "Changes of workers and prefetch while they are on auto.";
    Counter "requests" "Requests sent to the store, repeated ones included.";
    Counter "requests_failed" "Requests that ended with an error.";
    Counter "request_retries" "Requests sent again after a failure.";
    Counter "request_hedges" "Second copies of slow requests.";
    Counter "requests_throttled" "Answers with which the store throttled requests.";
    Counter "request_bytes" "Bytes of answered requests.";
    Counter "request_seconds" "From requests to their last bytes, summed.";
    Gauge "request_limit" "How many requests may be in flight to the store.";
    Counter "decoded_cache_hits" "Records whose pixels were in the decoded cache.";
    Counter "decoded_cache_misses" "Records that were read and decoded.";
    Counter "decoded_cache_written_bytes" "Bytes put into the decoded cache.";
    Gauge "decoded_cache_used_bytes" "Bytes in the decoded cache, of all processes that share it.";
    Gauge "decoded_cache_size_bytes" "The most that the decoded cache may hold.";
    Counter "cache_hits" "Reads that the cache served.";
    Counter "cache_misses" "Reads that went to the store.";
    Counter "cache_hit_bytes" "Bytes that the cache served.";
    Counter "cache_written_bytes" "Bytes put into the cache.";
    Counter "cache_evictions" "Entries removed to make room.";
    Counter "cache_damaged" "Damaged entries, which were read from the store again.";
    Gauge "cache_used_bytes" "Bytes in the cache, of all processes that share it.";
    Gauge "cache_size_bytes" "The most that the cache may hold.";
    Counter "cpu_seconds" "Processor time of the process.";
    Gauge "memory_resident_bytes" "Physical memory of the process.";
    Gauge "memory_peak_bytes" "The most physical memory of the process so far.";
    Counter "disk_read_bytes" "Bytes that were read from disks for the process, without reads from the page cache.";
    Counter "disk_written_bytes" "Bytes that the process wrote, to be stored on disks.";
    Counter "network_received_bytes" "Bytes received by the network namespace of the process, without loopback.";
    Counter "network_sent_bytes" "Bytes sent by the network namespace of the process, without loopback.";
    Gauge "build_info" "1, with the version of infeed.";
}

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
    Waits(Waits),
}

/// Waits by length.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Waits {
    pub(super) sum: f64,
    pub(super) count: u64,
    /// Upper bounds in seconds, each with the number of waits between the previous bound and this one. The last bound
    /// is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
}

impl Waits {
    fn of(times: &Times, report: &Report) -> Self {
        let mut below = 0;
        let mut part = |at_most: f64, upto: u64| {
            let part = (at_most, upto.saturating_sub(below));
            below = upto;
            part
        };
        let bounded = report.wait_buckets.iter().map(|bucket| (bucket.at_most.as_secs_f64(), bucket.batches));
        let mut buckets: Vec<_> = bounded.map(|(at_most, upto)| part(at_most, upto)).collect();
        buckets.push(part(f64::INFINITY, times.count));
        Self { sum: times.sum.as_secs_f64(), count: times.count, buckets }
    }

    fn add(&mut self, other: &Self) {
        self.sum += other.sum;
        self.count += other.count;
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(own, other)| own.1 += other.1);
    }
}

impl Value {
    fn add(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Whole(own), Self::Whole(other)) => *own = own.saturating_add(other),
            (Self::Waits(own), Self::Waits(other)) => own.add(&other),
            (Self::Real(own), Self::Real(other)) => *own += other,
            // A name has values of one kind.
            (own, other) => *own = other,
        }
    }
}

pub(super) type Labels = Vec<(&'static str, String)>;

/// Values by family (its index in [`FAMILIES`]) and labels.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet(BTreeMap<(usize, Labels), Value>);

impl Sheet {
    /// The values of one stream.
    pub(super) fn of(report: &Report, loader: &str, rank: u32) -> Self {
        let mut sheet = Self::default();
        let labels = vec![("loader", loader.to_owned()), ("rank", rank.to_string())];
        let with = |name: &'static str, value: &str| {
            let mut labels = labels.clone();
            labels.push((name, value.to_owned()));
            labels
        };
        let mut whole = |name, labels: &Labels, value: u64| sheet.put(name, labels.clone(), Value::Whole(value));
        for (name, value) in [
            ("infeed_samples", report.samples),
            ("infeed_batches", report.batches),
            ("infeed_bytes_read", report.bytes_read),
            ("infeed_bad_samples", report.bad_sample_count),
            ("infeed_unreadable_samples", report.unreadable_count),
            ("infeed_workers", report.autotune.workers.now as u64),
            ("infeed_prefetch", report.autotune.prefetch.now as u64),
            ("infeed_tune_decisions", report.autotune.decision_count),
        ] {
            whole(name, &labels, value);
        }
        for stage in &report.stages {
            let labels = with("stage", stage.stage.name());
            whole("infeed_stage_items", &labels, stage.items);
            whole("infeed_stage_bytes", &labels, stage.bytes);
        }
        for (class, rows) in &report.decoded_by {
            whole("infeed_decoded_rows", &with("class", class), *rows);
        }
        for late in &report.late_causes {
            whole("infeed_late_batches", &with("cause", late.cause.name()), late.batches);
        }
        for queue in &report.queues {
            let labels = with("queue", queue.name);
            whole("infeed_queue_level", &labels, queue.last);
            queue.capacity.into_iter().for_each(|most| whole("infeed_queue_capacity", &labels, most));
        }
        if let Some(requests) = &report.requests {
            for (name, value) in [
                ("infeed_requests", requests.requests),
                ("infeed_requests_failed", requests.failed),
                ("infeed_request_retries", requests.retries),
                ("infeed_request_hedges", requests.hedges),
                ("infeed_requests_throttled", requests.throttled),
                ("infeed_request_bytes", requests.bytes),
                ("infeed_request_limit", requests.limit),
            ] {
                whole(name, &labels, value);
            }
        }
        if let Some(cache) = &report.cache {
            for (name, value) in [
                ("infeed_cache_hits", cache.hits),
                ("infeed_cache_misses", cache.misses),
                ("infeed_cache_hit_bytes", cache.bytes_hit),
                ("infeed_cache_written_bytes", cache.bytes_written),
                ("infeed_cache_evictions", cache.evictions),
                ("infeed_cache_damaged", cache.damaged),
                ("infeed_cache_used_bytes", cache.used),
                ("infeed_cache_size_bytes", cache.size),
            ] {
                whole(name, &labels, value);
            }
        }
        if let Some(cache) = &report.decoded_cache {
            for (name, value) in [
                ("infeed_decoded_cache_hits", cache.hits),
                ("infeed_decoded_cache_misses", cache.misses),
                ("infeed_decoded_cache_written_bytes", cache.bytes_written),
                ("infeed_decoded_cache_used_bytes", cache.used),
                ("infeed_decoded_cache_size_bytes", cache.size),
            ] {
                whole(name, &labels, value);
            }
        }
        let mut time = |name, labels: &Labels, value: Duration| {
            sheet.put(name, labels.clone(), Value::Real(value.as_secs_f64()));
        };
        for stage in &report.stages {
            let labels = with("stage", stage.stage.name());
            time("infeed_stage_busy_seconds", &labels, stage.busy);
            time("infeed_stage_starved_seconds", &labels, stage.starved);
            time("infeed_stage_blocked_seconds", &labels, stage.blocked);
            time("infeed_stage_cpu_seconds", &labels, stage.cpu);
            time("infeed_stage_device_seconds", &labels, stage.device);
        }
        for late in &report.late_causes {
            time("infeed_late_seconds", &with("cause", late.cause.name()), late.wait);
        }
        report.requests.iter().for_each(|requests| time("infeed_request_seconds", &labels, requests.time.sum));
        report.first_batch.into_iter().for_each(|first| time(FIRST_BATCH, &labels, first));
        time("infeed_step_seconds", &labels, report.step.sum);
        time("infeed_waiting_seconds", &labels, report.waiting.unwrap_or_default());
        sheet.put("infeed_data_wait_seconds", labels, Value::Waits(Waits::of(&report.data_wait, report)));
        sheet
    }

    /// The values of this process.
    pub(super) fn of_process() -> Self {
        let mut sheet = Self::default();
        let usage = process::usage();
        for (name, value) in [
            ("infeed_memory_resident_bytes", usage.resident),
            ("infeed_memory_peak_bytes", usage.peak),
            ("infeed_disk_read_bytes", usage.disk_read),
            ("infeed_disk_written_bytes", usage.disk_written),
            ("infeed_network_received_bytes", usage.received),
            ("infeed_network_sent_bytes", usage.sent),
        ] {
            value.into_iter().for_each(|value| sheet.put(name, Vec::new(), Value::Whole(value)));
        }
        let cpu = usage.cpu.map(|cpu| Value::Real(cpu.as_secs_f64()));
        cpu.into_iter().for_each(|cpu| sheet.put("infeed_cpu_seconds", Vec::new(), cpu));
        sheet.put("infeed_build_info", vec![("version", env!("CARGO_PKG_VERSION").to_owned())], Value::Whole(1));
        sheet
    }

    fn put(&mut self, name: &'static str, labels: Labels, value: Value) {
        let family = FAMILIES.iter().position(|family| family.name == name);
        self.0.insert((family.expect("every name is in the list"), labels), value);
    }

    /// Sums values of equal names and labels. For gauges the later value wins.
    pub(super) fn add(&mut self, other: Self) {
        for (key, value) in other.0 {
            let counts = FAMILIES[key.0].kind != MetricKind::Gauge;
            match self.0.get_mut(&key).filter(|_| counts) {
                Some(own) => own.add(value),
                None => drop(self.0.insert(key, value)),
            }
        }
    }

    /// The values that stay after a stream was dropped: its counts, and the time of its first batch. The gauges of its
    /// threads and queues go.
    pub(super) fn lasting(mut self) -> Self {
        self.0.retain(|(family, _), _| {
            let Family { name, kind, .. } = &FAMILIES[*family];
            *kind != MetricKind::Gauge || *name == FIRST_BATCH
        });
        self
    }

    /// The values of one family.
    pub(super) fn family(&self, family: usize) -> impl Iterator<Item = (&Labels, &Value)> {
        let of = self.0.range((family, Labels::new())..(family + 1, Labels::new()));
        of.map(|((_, labels), value)| (labels, value))
    }

    #[cfg(test)]
    pub(super) fn whole(&self, name: &str, loader: &str) -> Option<u64> {
        let family = FAMILIES.iter().position(|family| family.name == name)?;
        let mut of = self.family(family).filter(|(labels, _)| labels.contains(&("loader", loader.to_owned())));
        of.find_map(|(_, value)| if let Value::Whole(value) = value { Some(*value) } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unlike_and_say_what_is_told() {
        for (at, family) in FAMILIES.iter().enumerate() {
            assert!(FAMILIES[..at].iter().all(|other| other.name != family.name), "{}", family.name);
            assert!(family.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", family.name);
            assert!(!family.name.ends_with("_total"), "{}: the encoder says so", family.name);
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{}", family.name);
        }
    }

    #[test]
    fn counts_are_summed_and_gauges_replaced() {
        let sheet = |samples, workers| {
            let mut sheet = Sheet::default();
            let labels = || vec![("loader", "a".to_owned())];
            sheet.put("infeed_samples", labels(), Value::Whole(samples));
            sheet.put("infeed_workers", labels(), Value::Whole(workers));
            let waits = Waits { sum: 0.5, count: samples, buckets: vec![(1.0, samples), (f64::INFINITY, 0)] };
            sheet.put("infeed_data_wait_seconds", labels(), Value::Waits(waits));
            sheet
        };
        let mut all = sheet(3, 8);
        all.add(sheet(4, 2));
        assert_eq!((all.whole("infeed_samples", "a"), all.whole("infeed_workers", "a")), (Some(7), Some(2)));
        let at = FAMILIES.iter().position(|family| family.name == "infeed_data_wait_seconds").unwrap();
        let waits = Waits { sum: 1.0, count: 7, buckets: vec![(1.0, 7), (f64::INFINITY, 0)] };
        assert_eq!(all.family(at).next().unwrap().1, &Value::Waits(waits));
        assert_eq!(all.lasting().whole("infeed_workers", "a"), None);
    }
}
