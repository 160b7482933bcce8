//! What the operating system reports about this process: processor time, memory, disk and network so far, its threads
//! and limits. Parsed by hand; [`machine`](super::machine) gives the reasons.
#![forbid(unsafe_code)]

use std::{fs, time::Duration};

/// What this process used so far. A field is `None` if the system does not report it.
///
/// Memory fields are current values. All others are totals since the start of the process, or for the network since the
/// start of the machine: the difference of two such values gives a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// User and system time of all threads, including those that have ended.
    pub cpu: Option<Duration>,
    /// Physical memory now, bytes.
    pub resident: Option<u64>,
    /// The most physical memory it has held, bytes.
    pub peak: Option<u64>,
    /// Bytes read from a disk or a network file system; excludes what the page cache served.
    pub disk_read: Option<u64>,
    /// Bytes that were sent to a disk.
    pub disk_written: Option<u64>,
    /// Bytes received over the interfaces of the network namespace, by all its processes, without loopback.
    pub received: Option<u64>,
    /// Bytes sent, counted the same way.
    pub sent: Option<u64>,
    /// Bytes over loopback, for example to a store or a proxy on the same machine.
    pub loopback: Option<u64>,
}

/// The usage now. Four small reads in `/proc`, about 50 µs; all fields are `None` on systems without it.
///
/// ```
/// let usage = infeed::internal::process::usage();
/// # #[cfg(target_os = "linux")]
/// assert!(usage.resident <= usage.peak);
/// ```
#[must_use]
pub fn usage() -> Usage {
    let read = |path| fs::read_to_string(path).ok();
    let (status, io) = (read("/proc/self/status").unwrap_or_default(), read("/proc/self/io").unwrap_or_default());
    let net = read("/proc/self/net/dev").map(|text| traffic(&text));
    Usage {
        cpu: super::threads::process_cpu_time(),
        resident: kib(&status, "VmRSS:"),
        peak: kib(&status, "VmHWM:"),
        disk_read: value(&io, "read_bytes:"),
        disk_written: value(&io, "write_bytes:"),
        received: net.map(|net| net.received),
        sent: net.map(|net| net.sent),
        loopback: net.map(|net| net.loopback),
    }
}

/// One thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thread {
    /// The system's thread id.
    pub id: u64,
    /// Its name; the system keeps the first 15 bytes.
    pub name: String,
    /// Processor time so far, in steps of about 10 ms.
    pub cpu: Duration,
}

/// The threads of this process. Empty if the system does not report them. Two small reads in `/proc` per thread.
#[must_use]
pub fn threads() -> Vec<Thread> {
    let (Ok(tasks), Some(rate)) = (fs::read_dir("/proc/self/task"), super::threads::ticks_per_second()) else {
        return Vec::new();
    };
    let read = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let ticks = ticks(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        let cpu = Duration::from_secs_f64(ticks as f64 / rate as f64);
        Some(Thread { id, name: name.trim_end().to_owned(), cpu })
    };
    tasks.flatten().filter_map(read).collect()
}

/// User plus system time in `/proc/*/stat`, in clock ticks.
fn ticks(stat: &str) -> Option<u64> {
    two_fields(stat, 11)
}

/// The same for children.
fn ticks_of_children(stat: &str) -> Option<u64> {
    two_fields(stat, 13)
}

/// The sum of a field and the next one, counted from 0 after the name.
fn two_fields(stat: &str, first: usize) -> Option<u64> {
    // The second field is the thread's name in parentheses. It may contain spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(first)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Processor time of this process' children that have ended and were waited for, and of their children, in steps of
/// about 10 ms.
#[must_use]
pub fn children_cpu() -> Option<Duration> {
    let ticks = ticks_of_children(&fs::read_to_string("/proc/self/stat").ok()?)?;
    Some(Duration::from_secs_f64(ticks as f64 / super::threads::ticks_per_second()? as f64))
}

/// How many files this process may have open; `u64::MAX` for no limit.
#[must_use]
pub fn open_files() -> Option<u64> {
    file_limit(&fs::read_to_string("/proc/self/limits").ok()?)
}

fn file_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    let soft = line.split_ascii_whitespace().next()?;
    if soft == "unlimited" { Some(u64::MAX) } else { soft.parse().ok() }
}

/// The number after a name at the beginning of a line.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// Bytes: a number in KiB after a name at the beginning of a line.
pub(super) fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    received: u64,
    sent: u64,
    loopback: u64,
}

/// Sums of `/proc/net/dev`, which has one line per interface, bytes received in the first column and sent in the ninth.
fn traffic(text: &str) -> Traffic {
    let mut sums = Traffic::default();
    for line in text.lines() {
        let Some((name, figures)) = line.split_once(':') else { continue };
        let mut figures = figures.split_ascii_whitespace().map(str::parse::<u64>);
        let (Some(Ok(received)), Some(Ok(sent))) = (figures.next(), figures.nth(7)) else { continue };
        if name.trim() == "lo" {
            // On loopback each byte is both sent and received, so only one direction is counted.
            sums.loopback = sums.loopback.saturating_add(received);
        } else {
            sums.received = sums.received.saturating_add(received);
            sums.sent = sums.sent.saturating_add(sent);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_summed_and_loopback_stands_apart() {
        let text = "Inter-|   Receive                                                |  Transmit\n \
            face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed\n    \
            lo:  700       7    0    0    0     0          0         0      700       7    0    0    0     0       0          0\n  \
            eth0:1000      10    0    0    0     0          0         0      200       2    0    0    0     0       0          0\n  \
            eth1: 30       1    0    0    0     0          0         0        4       1    0    0    0     0       0          0\n\
            broken: 1 2\n";
        assert_eq!(traffic(text), Traffic { received: 1030, sent: 204, loopback: 700 });
        assert_eq!(traffic(""), Traffic::default());
    }

    #[test]
    fn values_are_found_by_their_name_at_the_beginning_of_a_line() {
        let io = "rchar: 1\ncancelled_write_bytes: 9\nread_bytes: 4096\nwrite_bytes: 12\n";
        assert_eq!((value(io, "read_bytes:"), value(io, "write_bytes:")), (Some(4096), Some(12)));
        assert_eq!(value("read_bytes: many", "read_bytes:"), None);
        let status = "VmPeak:\t 9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!((kib(status, "VmHWM:"), kib(status, "VmRSS:")), (Some(2 << 20), Some(1 << 20)));
        assert_eq!(kib("VmHWM:\t 99999999999999999999 kB", "VmHWM:"), None);
    }

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (in) feed (x)) S 1 2 3 4 5 6 7 8 9 10 150 50 30 7 20 0 8 0";
        assert_eq!((ticks(stat), ticks_of_children(stat)), (Some(200), Some(37)));
        assert_eq!(ticks("nonsense"), None);
    }

    #[test]
    fn the_soft_limit_of_files_is_the_one_that_counts() {
        let limits =
            "Limit Soft Hard Units\nMax open files            1024                 524288               files\n";
        assert_eq!(file_limit(limits), Some(1024));
        assert_eq!(file_limit("Max open files            unlimited   unlimited  files"), Some(u64::MAX));
        assert_eq!(file_limit(""), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_thread_is_told_with_its_name_and_time() {
        let told = || {
            let found = threads();
            let this = found.iter().find(|thread| thread.name == "infeed-told-of");
            this.unwrap_or_else(|| panic!("{found:?}")).cpu
        };
        // The system counts in ticks of 10 ms, so this works until one tick is counted.
        let works = move || {
            while told().is_zero() {
                assert!(super::super::threads::cpu_time() < Some(Duration::from_secs(60)), "no time is told");
            }
        };
        std::thread::Builder::new().name("infeed-told-of".into()).spawn(works).unwrap().join().unwrap();
        assert!(open_files().is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_this_process_writes_is_counted() {
        let before = usage();
        assert!(before.cpu.is_some() && before.resident > Some(1 << 20));
        let path = std::env::temp_dir().join(format!("infeed-usage-{}", std::process::id()));
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        fs::remove_file(&path).unwrap();
        let after = usage();
        assert!(after.cpu >= before.cpu && after.disk_written >= before.disk_written && after.sent >= before.sent);
    }
}
