//! What the model counts with, and where each figure comes from.

use serde::Serialize;

/// Milliseconds of a core for a photograph of 108 KB: RandomResizedCrop(224), flip, normalise, in the first epoch, without a
/// decode index (1.085 with one).
pub(super) const MS_PER_IMAGE: f64 = 1.286;
/// Samples a second of a rank: ResNet-50 on one H100, as MLPerf Storage simulates it.
pub(super) const RATE: f64 = 1786.0;

// Processor time of a request and of its bytes: 1.98 s for a GB of 107 KB objects, 0.91 for one of 8 MiB ranges.
const CPU_A_REQUEST: f64 = 116e-6;
const CPU_A_BYTE: f64 = 0.896e-9;

/// Seconds of a core that a request of so many bytes takes.
pub(super) fn request_cpu(bytes: f64) -> f64 {
    CPU_A_REQUEST + CPU_A_BYTE * bytes
}

// Requests a second of one process, whose connections one thread serves: 11,077 objects of 107 KB, 230 ranges of 8 MiB.
const THREAD_A_REQUEST: f64 = 35.3e-6;
const THREAD_A_BYTE: f64 = 0.514e-9;

/// The most requests of so many bytes that a process gets answered in a second, however near the store.
pub(super) fn most_requests(bytes: f64) -> f64 {
    1.0 / (THREAD_A_REQUEST + THREAD_A_BYTE * bytes)
}

/// Requests in flight, of a process (`source::requests::limit`).
pub(super) const IN_FLIGHT: f64 = 1024.0;
/// Batches read ahead, of a process, where those are fewer bytes than it may read ahead (`loader::resolve`).
pub(super) const BATCHES_AHEAD: f64 = 64.0;
/// The largest request for records that follow one another (`engine::fetch`), and for one object (`source::extent`).
pub(super) const TOGETHER: f64 = (8 << 20) as f64;
pub(super) const LARGEST: f64 = (16 << 20) as f64;
/// Files that `infeed stage` copies at a time, by default.
pub(super) const STAGE_JOBS: f64 = 16.0;
/// Records a second and core that `infeed prepare` packs as they are: 5,805 on two.
pub(super) const PREPARED: f64 = 5805.0 / 2.0;
/// Objects of a page of a listing, in S3's interface.
pub(super) const PAGE: f64 = 1000.0;
/// Reading requests a second that S3 promises for each prefix.
pub(super) const PREFIX_RATE: f64 = 5500.0;
/// US dollars for 1,000 listing requests.
pub(super) const USD_PER_1000_LISTS: f64 = 0.005;

/// A figure with its source.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    pub(super) what: &'static str,
    pub(super) from: &'static str,
    /// Whether it was measured with this program; the others are assumed, published or settings.
    pub(super) measured: bool,
}

const fn measured(what: &'static str, from: &'static str) -> Figure {
    Figure { what, from, measured: true }
}

const fn other(what: &'static str, from: &'static str) -> Figure {
    Figure { what, from, measured: false }
}

/// All of them.
pub(super) const FIGURES: [Figure; 10] = [
    measured("1.286 ms of a core an image", "benches/results/2026-11-22-peers.md, Train, first epoch"),
    measured("0.116 ms of a core a request and 0.9 s a GB", "benches/results/2026-11-22-s3.md, Clients (two sizes)"),
    measured(
        "11,077 objects of 107 KB or 230 ranges of 8 MiB a second and process",
        "benches/results/2026-11-22-s3.md, Own concurrency (two sizes)",
    ),
    measured(
        "2,900 records a second and core packed as they are",
        "benches/results/2026-11-22-formats.md, infeed prepare",
    ),
    other("hits by next use", "a formula, compared with a simulation of the policy's code: at most 0.032 off"),
    other("1,786 samples a second and rank", "ResNet-50 on an H100, MLPerf Storage; --rate, --step-time"),
    other("30 ms to the first byte, 85 MB/s a connection", "assumed; --latency, --connection-bandwidth"),
    other("96 cores and 12.5 GB/s a node", "assumed; --cores, --bandwidth"),
    other("5,500 GET/s a prefix", "S3's documentation; --prefixes"),
    other(
        "$0.0004 for 1,000 GET, $0.005 for 1,000 LIST",
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
