//! Figures of this process from the operating system. `None` if it does not report them.

use infeed::internal::process::{self, usage};

pub(crate) use infeed::internal::machine::processor;

/// User and system time of all threads so far, in seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    usage().cpu.map(|cpu| cpu.as_secs_f64())
}

/// Processor time of one thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadTime {
    pub id: u64,
    /// Without a number at its end, so that all decode threads are `infeed-cpu`.
    pub name: String,
    pub cpu_seconds: f64,
}

/// Processor time of each thread of this process. Empty if the system does not report it.
pub(crate) fn threads() -> Vec<ThreadTime> {
    let of_all = |thread: process::Thread| ThreadTime {
        id: thread.id,
        name: thread.name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-').to_owned(),
        cpu_seconds: thread.cpu.as_secs_f64(),
    };
    process::threads().into_iter().map(of_all).collect()
}

/// The most physical memory this process ever held.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    usage().peak
}
