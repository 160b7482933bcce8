//! The figures of the model, and their sources.

use serde::Serialize;

/// Milliseconds of one core for a photograph of 108 KB: RandomResizedCrop(224), flip, normalise, in the first epoch,
/// without a decode index (1.085 with one).
pub(super) const MS_PER_IMAGE: f64 = 1.286;
/// Samples per second of a rank: ResNet-50 on one H100, as MLPerf Storage simulates it.
pub(super) const RATE: f64 = 1786.0;

// Processor time per request and per byte: 1.98 s per GB in objects of 107 KB, 0.91 s in ranges of 8 MiB.
const CPU_A_REQUEST: f64 = 116e-6;
const CPU_A_BYTE: f64 = 0.896e-9;

/// Seconds of one core for a request of `bytes`.
pub(super) fn request_cpu(bytes: f64) -> f64 {
    CPU_A_REQUEST + CPU_A_BYTE * bytes
}

// One thread serves the connections of a process. Measured per second: 11,077 objects of 107 KB, 230 ranges of 8 MiB.
const THREAD_A_REQUEST: f64 = 35.3e-6;
const THREAD_A_BYTE: f64 = 0.514e-9;

/// The most requests of `bytes` per second that a process can have answered, even by the nearest store.
pub(super) fn most_requests(bytes: f64) -> f64 {
    1.0 / (THREAD_A_REQUEST + THREAD_A_BYTE * bytes)
}

/// Most requests in flight of a process (`source::requests::limit`).
pub(super) const IN_FLIGHT: f64 = 1024.0;
/// Batches that a process reads ahead, if they have fewer bytes than its read-ahead limit (`loader::resolve`).
pub(super) const BATCHES_AHEAD: f64 = 64.0;
/// The largest request for consecutive records (`engine::fetch`), and for one object (`source::extent`).
pub(super) const TOGETHER: f64 = (8 << 20) as f64;
pub(super) const LARGEST: f64 = (16 << 20) as f64;
/// Files that `infeed stage` copies at the same time by default.
pub(super) const STAGE_JOBS: f64 = 16.0;
/// Records per second and core that `infeed prepare` packs without encoding them again: 5,805 on two cores.
pub(super) const PREPARED: f64 = 5805.0 / 2.0;
/// Objects per page of a listing, in S3's interface.
pub(super) const PAGE: f64 = 1000.0;
/// Read requests per second that S3 documents for each prefix.
pub(super) const PREFIX_RATE: f64 = 5500.0;
/// US dollars for 1,000 listing requests. Prices age, so the output gives their date; they stay because scripts read
/// the keys `usd_*` of the JSON.
pub(super) const USD_PER_1000_LISTS: f64 = 0.005;

/// A figure with its source.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) from: &'static str,
    /// Whether it was measured with this program. Other figures are assumed, published or settings.
    pub(super) measured: bool,
}

const fn measured(what: &'static str, from: &'static str) -> Figure {
    Figure { what, from, measured: true }
}

const fn other(what: &'static str, from: &'static str) -> Figure {
    Figure { what, from, measured: false }
}

/// All figures.
pub(super) const FIGURES: [Figure; 10] = [
    measured("1.286 ms of one core per image", "benches/results/2026-11-22-peers.md, Train, first epoch"),
    measured(
        "0.116 ms of one core per request and 0.9 s per GB",
        "benches/results/2026-11-22-s3.md, Clients (two sizes)",
    ),
    measured(
        "11,077 objects of 107 KB or 230 ranges of 8 MiB per second and process",
        "benches/results/2026-11-22-s3.md, Own concurrency (two sizes)",
    ),
    measured(
        "2,900 records per second and core packed as they are",
        "benches/results/2026-11-22-formats.md, infeed prepare",
    ),
    other("hit rate of the cache", "a formula, compared with a simulation of the policy's code: at most 0.032 off"),
    other("1,786 samples per second and rank", "ResNet-50 on an H100, MLPerf Storage; --rate, --step-time"),
    other("30 ms to the first byte, 85 MB/s per connection", "assumed; --latency, --connection-bandwidth"),
    other("96 cores and 12.5 GB/s per node", "assumed; --cores, --bandwidth"),
    other("5,500 GET/s per prefix", "S3's documentation; --prefixes"),
    other(
        "$0.0004 per 1,000 GET, $0.005 per 1,000 LIST",
        "list prices of S3 Standard, us-east-1, 2025-06; --usd-per-1000",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_at_two_sizes_comes_out_again() {
        let (small, large) = (107e3, TOGETHER);
        assert!((request_cpu(small) / small * 1e9 - 1.98).abs() < 0.02);
        assert!((request_cpu(large) / large * 1e9 - 0.91).abs() < 0.01);
        assert!((most_requests(small) / 11_077.0 - 1.0).abs() < 0.01);
        assert!((most_requests(large) / 230.0 - 1.0).abs() < 0.01);
    }
}
