//! Samples the use of processor, memory, disk and network a few times a second during a run.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use infeed::internal::process::{Usage, usage};
use serde::Serialize;

/// Often enough to see a stalled disk, and rare enough to cost little: a sample takes about 50 µs.
const EVERY: Duration = Duration::from_millis(200);

/// Points kept for charts. In a long run, every n-th sample is kept.
const MOST: usize = 1500;

/// One sample, with rates since the previous one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moment {
    /// Seconds since the start of the run.
    pub at: f64,
    /// Cores that were busy.
    pub cores: Option<f64>,
    pub resident: Option<u64>,
    /// Bytes per second.
    pub disk_read: Option<f64>,
    pub disk_written: Option<f64>,
    pub received: Option<f64>,
    pub sent: Option<f64>,
    pub loopback: Option<f64>,
}

/// What figures cover: `/proc/self/io` has those of this process, `/proc/self/net/dev` those of the whole network
/// namespace, including other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Whose {
    #[default]
    Process,
    Machine,
}

/// Sums and extremes of a run. `None` if the system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sampled {
    pub every_seconds: f64,
    pub samples: u64,
    pub cores_mean: Option<f64>,
    pub cores_max: Option<f64>,
    pub resident_max_bytes: Option<u64>,
    /// What the bytes of disks cover.
    pub disk_of: Whose,
    pub disk_read_bytes: Option<u64>,
    pub disk_read_max_bytes_per_second: Option<f64>,
    pub disk_written_bytes: Option<u64>,
    pub disk_written_max_bytes_per_second: Option<f64>,
    /// What the bytes of the network and of loopback cover.
    pub network_of: Whose,
    pub network_received_bytes: Option<u64>,
    pub network_received_max_bytes_per_second: Option<f64>,
    pub network_sent_bytes: Option<u64>,
    pub network_sent_max_bytes_per_second: Option<f64>,
    pub loopback_bytes: Option<u64>,
    /// Samples for charts.
    #[serde(skip)]
    pub line: Vec<Moment>,
}

/// Takes samples on its own thread until [`finish`](Self::finish).
#[derive(Debug)]
pub(crate) struct UsageSampler {
    samples: Arc<Mutex<Samples>>,
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl UsageSampler {
    pub(crate) fn start() -> Self {
        let samples = Arc::new(Mutex::new(Samples::new(Instant::now(), usage())));
        let (stop, stopped) = mpsc::channel::<()>();
        let shared = Arc::clone(&samples);
        let look = move || {
            // Also ends if the sampler was dropped because the run failed.
            while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                let usage = usage();
                lock(&shared).add(now, usage);
            }
        };
        // Without a thread, the sums at the end are still available.
        let thread = thread::Builder::new().name("infeed-sample".into()).spawn(look).ok();
        Self { samples, stop, thread }
    }

    /// A handle to the last sample, for the live view.
    pub(crate) fn latest(&self) -> LatestUsage {
        LatestUsage(Arc::clone(&self.samples))
    }

    /// The figures up to now.
    pub(crate) fn finish(self) -> Sampled {
        drop(self.stop);
        self.thread.map(JoinHandle::join);
        let mut samples = lock(&self.samples);
        samples.add(Instant::now(), usage());
        samples.sampled()
    }
}

/// A handle to the last sample of a run in progress.
#[derive(Clone, Debug)]
pub(crate) struct LatestUsage(Arc<Mutex<Samples>>);

impl LatestUsage {
    pub(crate) fn now(&self) -> Moment {
        lock(&self.0).line.last().copied().unwrap_or_default()
    }
}

fn lock(samples: &Mutex<Samples>) -> MutexGuard<'_, Samples> {
    samples.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Samples {
    began: Instant,
    first: Usage,
    last: (Instant, Usage),
    samples: u64,
    line: Vec<Moment>,
    /// Every n-th sample is kept.
    every: u64,
    max: Moment,
}

impl Samples {
    fn new(began: Instant, first: Usage) -> Self {
        Self { began, first, last: (began, first), samples: 0, line: Vec::new(), every: 1, max: Moment::default() }
    }

    fn add(&mut self, now: Instant, usage: Usage) {
        let (before, was) = self.last;
        let seconds = now.saturating_duration_since(before).as_secs_f64();
        // The last sample of a run may follow the previous one at once. Its rate would be meaningless, unless it is the
        // only one.
        if seconds <= 0.0 || (self.samples > 0 && seconds < EVERY.as_secs_f64() / 10.0) {
            return;
        }
        self.last = (now, usage);
        let rate = |was: Option<u64>, is: Option<u64>| Some(is?.saturating_sub(was?) as f64 / seconds);
        let cores = was.cpu.zip(usage.cpu).map(|(was, is)| is.saturating_sub(was).as_secs_f64() / seconds);
        let moment = Moment {
            at: now.saturating_duration_since(self.began).as_secs_f64(),
            cores,
            resident: usage.resident,
            disk_read: rate(was.disk_read, usage.disk_read),
            disk_written: rate(was.disk_written, usage.disk_written),
            received: rate(was.received, usage.received),
            sent: rate(was.sent, usage.sent),
            loopback: rate(was.loopback, usage.loopback),
        };
        let most = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(a.or(b), |(a, b)| Some(a.max(b)));
        self.max = Moment {
            at: moment.at,
            cores: most(self.max.cores, moment.cores),
            resident: self.max.resident.max(moment.resident),
            disk_read: most(self.max.disk_read, moment.disk_read),
            disk_written: most(self.max.disk_written, moment.disk_written),
            received: most(self.max.received, moment.received),
            sent: most(self.max.sent, moment.sent),
            loopback: most(self.max.loopback, moment.loopback),
        };
        if self.samples.is_multiple_of(self.every) {
            self.line.push(moment);
            if self.line.len() == MOST {
                let mut keep = false;
                self.line.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.every *= 2;
            }
        } else if let Some(last) = self.line.last_mut() {
            // The live view shows the last sample.
            *last = moment;
        }
        self.samples += 1;
    }

    fn sampled(&self) -> Sampled {
        let ((now, usage), first) = (self.last, self.first);
        let seconds = now.saturating_duration_since(self.began).as_secs_f64();
        let since = |was: Option<u64>, is: Option<u64>| Some(is?.saturating_sub(was?));
        let cpu = first.cpu.zip(usage.cpu).map(|(was, is)| is.saturating_sub(was).as_secs_f64());
        Sampled {
            every_seconds: EVERY.as_secs_f64(),
            samples: self.samples,
            cores_mean: cpu.filter(|_| seconds > 0.0).map(|cpu| cpu / seconds),
            cores_max: self.max.cores,
            resident_max_bytes: self.max.resident,
            disk_of: Whose::Process,
            disk_read_bytes: since(first.disk_read, usage.disk_read),
            disk_read_max_bytes_per_second: self.max.disk_read,
            disk_written_bytes: since(first.disk_written, usage.disk_written),
            disk_written_max_bytes_per_second: self.max.disk_written,
            network_of: Whose::Machine,
            network_received_bytes: since(first.received, usage.received),
            network_received_max_bytes_per_second: self.max.received,
            network_sent_bytes: since(first.sent, usage.sent),
            network_sent_max_bytes_per_second: self.max.sent,
            loopback_bytes: since(first.loopback, usage.loopback),
            line: self.line.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(cpu_ms: u64, read: u64, received: u64) -> Usage {
        let mut usage = Usage::default();
        usage.cpu = Some(Duration::from_millis(cpu_ms));
        (usage.resident, usage.disk_read, usage.received) = (Some(1 << 20), Some(read), Some(received));
        usage
    }

    #[test]
    fn rates_are_differences_and_what_is_not_told_is_none() {
        let zero = Instant::now();
        let at = |seconds| zero + Duration::from_secs(seconds);
        let mut samples = Samples::new(zero, used(100, 1000, 0));
        samples.add(at(2), used(3100, 5000, 10));
        samples.add(at(3), used(3600, 5000, 0));
        // At the same moment: no rate.
        samples.add(at(3), used(9999, 9999, 0));
        let told = samples.sampled();
        assert_eq!((told.samples, told.cores_max, told.cores_mean), (2, Some(1.5), Some(3.5 / 3.0)));
        assert_eq!((told.disk_read_bytes, told.disk_read_max_bytes_per_second), (Some(4000), Some(2000.0)));
        assert_eq!((told.network_received_bytes, told.network_received_max_bytes_per_second), (Some(0), Some(5.0)));
        assert_eq!((told.disk_written_bytes, told.loopback_bytes), (None, None));
        assert_eq!(told.line.last().map(|moment| moment.cores), Some(Some(0.5)));
    }

    #[test]
    fn a_clock_that_steps_back_gives_no_figure() {
        let zero = Instant::now();
        let mut samples = Samples::new(zero + Duration::from_secs(5), used(0, 0, 0));
        samples.add(zero, used(5, 5, 5));
        assert_eq!((samples.sampled().samples, samples.sampled().cores_mean), (0, None));
    }

    #[test]
    fn an_endless_run_fits() {
        let zero = Instant::now();
        let mut samples = Samples::new(zero, used(0, 0, 0));
        for n in 1..20_000 {
            samples.add(zero + n * EVERY, used(0, u64::from(n), 0));
        }
        let line = samples.sampled().line;
        assert!(line.len() < MOST && line.windows(2).all(|pair| pair[0].at < pair[1].at), "{}", line.len());
        assert_eq!(line.last().map(|moment| moment.at), Some(19_999.0 * EVERY.as_secs_f64()));
    }
}
