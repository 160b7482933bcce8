//! How the system shares the processors between the loader's threads and the trainer's.

use std::time::Duration;

/// Marks the calling thread as one that does long work, so that its wake-up does not preempt another thread.
///
/// Without it, handing a batch over wakes decode threads, and the system may run one of them in place of the trainer's
/// thread for a whole time slice: 2 ms of waiting per batch, measured on 2 cores, although the hand-over itself takes
/// microseconds. The thread's share of the processor stays the same. Does nothing if the system refuses or is not
/// Linux.
pub fn yield_to_others() {
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

/// Processors on which the calling thread may run, ascending. `None` if the system does not report them, or has more
/// than 1,024.
pub fn allowed() -> Option<Vec<usize>> {
    #[cfg(target_os = "linux")]
    {
        let mut set = no_processors();
        // SAFETY: 0 is the calling thread; the kernel writes one `cpu_set_t`, which lives until the call returns.
        let failed = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0;
        // SAFETY: each number is below the size of the set.
        let is_in = |processor: &usize| unsafe { libc::CPU_ISSET(*processor, &set) };
        (!failed).then(|| (0..libc::CPU_SETSIZE as usize).filter(is_in).collect())
    }
    #[cfg(not(target_os = "linux"))]
    None
}

/// Keeps the calling thread, and threads that it starts, on these processors. Returns whether the system complied; if
/// not, nothing has changed.
pub fn stay_on(processors: &[usize]) -> bool {
    #[cfg(target_os = "linux")]
    {
        let mut set = no_processors();
        for processor in processors.iter().filter(|processor| **processor < libc::CPU_SETSIZE as usize) {
            // SAFETY: the number is below the size of the set.
            unsafe { libc::CPU_SET(*processor, &mut set) };
        }
        // SAFETY: 0 is the calling thread; the kernel reads one `cpu_set_t`, which lives until the call returns. It
        // refuses an empty set.
        unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = processors;
        false
    }
}

#[cfg(target_os = "linux")]
fn no_processors() -> libc::cpu_set_t {
    // SAFETY: plain numbers, of which all zeros is the empty set.
    unsafe { std::mem::zeroed() }
}

/// Processor time that the calling thread has used. `None` if the system does not report it.
///
/// A system call of about 0.2 µs, made once or twice per job of about a millisecond.
pub fn cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return clock(libc::CLOCK_THREAD_CPUTIME_ID);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Processor time of all threads of this process, including those that have ended. `None` if the system does not report
/// it.
pub fn process_cpu_time() -> Option<Duration> {
    #[cfg(target_os = "linux")]
    return clock(libc::CLOCK_PROCESS_CPUTIME_ID);
    #[cfg(not(target_os = "linux"))]
    None
}

/// Clock ticks per second: the unit of processor time in `/proc`.
pub fn ticks_per_second() -> Option<u64> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: reads a number; touches no memory.
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
    #[test]
    fn a_thread_stays_where_it_is_put_and_a_refusal_changes_nothing() {
        let own = || super::allowed().expect("Linux tells");
        let before = own();
        assert!(!before.is_empty() && before.is_sorted());
        let inside = before.clone();
        let moved = std::thread::spawn(move || {
            let some = [inside[inside.len() - 1]];
            assert!(super::stay_on(&some));
            assert_eq!(own(), some);
            // Threads inherit the setting from the thread that starts them.
            assert_eq!(std::thread::spawn(own).join().unwrap(), some);
            assert!(!super::stay_on(&[]) && !super::stay_on(&[1 << 20]));
            assert_eq!(own(), some);
            assert!(super::stay_on(&inside));
            assert_eq!(own(), inside);
        });
        moved.join().unwrap();
        assert_eq!(own(), before, "others are where they were");
    }

    #[cfg(target_os = "linux")]
    use std::time::Duration;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_that_works_uses_processor_time_and_one_that_sleeps_does_not() {
        let used = || super::cpu_time().expect("Linux tells");
        let work = |ms: u64| {
            let before = used();
            let mut sum = 0u64;
            while used() - before < Duration::from_millis(ms) {
                sum = std::hint::black_box(sum + 1);
            }
        };
        work(2);
        let (worked, of_all) = (used(), super::process_cpu_time().expect("Linux tells"));
        // Sleeps until another thread has worked: that time counts for the process, but not for this thread.
        std::thread::scope(|scope| scope.spawn(|| work(20)).join().unwrap());
        assert!(used() - worked < Duration::from_millis(10));
        assert!(super::process_cpu_time().expect("Linux tells") - of_all >= Duration::from_millis(20));
    }
}
