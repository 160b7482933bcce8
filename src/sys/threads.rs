//! How the system shares the processor between the loader's threads and the trainer's.

use std::time::Duration;

/// Makes the calling thread one that does long work and never pushes another thread off its core by waking up.
///
/// Without it, handing a batch over wakes decode threads, and the system may run one of them in the place of the
/// trainer's thread for a whole time slice: 2 ms of waiting a batch, measured on 2 cores, where the hand-over itself
/// takes microseconds. The thread's share of the processor stays the same. Does nothing where the system refuses or
/// is not Linux.
pub(crate) fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: 0 is the calling thread; the kernel reads one `sched_param`, which lives until the call returns.
        let refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const param) };
        if refused != 0 {
            tracing::debug!("the system keeps the default scheduling for a decode thread");
        }
    }
}

/// Processor time that the calling thread has used. `None` where the system does not tell.
///
/// A call into the kernel, about 0.2 µs: once or twice a job of a millisecond.
pub(crate) fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return clock(libc::CLOCK_THREAD_CPUTIME_ID);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Processor time of all threads of this process, those that are gone included. `None` where the system does not tell.
pub(crate) fn process_cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Clock ticks a second: the unit in which `/proc` tells processor time.
pub(crate) fn ticks_per_second() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: asks for a number, touches no memory.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn clock(id: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec`, which lives until the call returns.
    let failed = unsafe { libc::clock_gettime(id, &raw mut time) } != 0;
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| !failed)?;
    Some(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use std::time::Duration;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_works_uses_processor_time_and_one_that_sleeps_does_not() {
        let before = super::cpu_time().expect("Linux tells");
        let mut sum = 0u64;
        while super::cpu_time().expect("Linux tells") - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        let worked = super::cpu_time().expect("Linux tells");
        std::thread::sleep(Duration::from_millis(40));
        assert!(super::cpu_time().expect("Linux tells") - worked < Duration::from_millis(30));
        assert!(super::process_cpu_time().expect("Linux tells") >= worked - before);
    }
}
