//! How the system shares the processor between the loader's threads and the trainer's.

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
