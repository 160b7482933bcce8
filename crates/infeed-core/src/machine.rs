//! What the operating system reports about the machine, or about the part of it that this process may use. `None` if it
//! reports nothing, which is always so on systems other than Linux.
//!
//! `/proc` and the control groups are parsed by hand here and in [`process`](super::process), each fact in one place.
//! Two crates were considered. `procfs` 0.18 reads `/proc` without the limits of control groups, and brings
//! `procfs-core`, `rustix`, `linux-raw-sys` and `hex` to replace about a hundred lines here. `sysinfo` 0.40 supports
//! other systems too, but reads neither the peak memory of a process nor quotas of processor time. The price of parsing
//! by hand: nothing is reported on other systems.
#![forbid(unsafe_code)]

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes of memory: the machine's, or the limit of a container or a batch system if that is lower.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert!(infeed::internal::machine::memory() > Some(1 << 20));
/// ```
#[must_use]
pub fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let all = super::process::kib(&text, "MemTotal:");
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    [all, memory_limit(Path::new(GROUPS), &groups)].into_iter().flatten().min()
}

/// The limit of a container or a batch system in cores' worth of time, such as 1.5; `None` without a limit.
#[must_use]
pub fn cpu_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    quota(Path::new(GROUPS), &groups)
}

/// Threads that this process can keep busy: the processors on which it may run, but no more than its quota of processor
/// time allows, including the quotas of the control groups above its own. At least one.
///
/// The standard library's `available_parallelism` reads quotas too. It misses those that a container sees at its root
/// under a name other than its own, so the lower of both counts is used.
///
/// ```
/// let cores = infeed::internal::machine::cores();
/// assert!(cores <= std::thread::available_parallelism().unwrap());
/// ```
#[must_use]
pub fn cores() -> NonZeroUsize {
    let usable = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    cpu_quota().map_or(usable, |quota| usable.min(within(quota)))
}

/// Whole threads for a quota, rounded down: one more would be stopped in the middle of each period, while it holds
/// locks and memory.
fn within(quota: f64) -> NonZeroUsize {
    NonZeroUsize::new(quota as usize).unwrap_or(NonZeroUsize::MIN)
}

/// Whether this thread may run on only some of the machine's processors. Then a launcher has already divided them among
/// processes.
#[must_use]
pub fn is_bound() -> bool {
    super::threads::allowed().zip(processors()).is_some_and(|(allowed, all)| allowed.len() < all)
}

/// Cores of each process if `processes` share `cores`; at least one.
#[must_use]
pub fn share(cores: NonZeroUsize, processes: usize) -> NonZeroUsize {
    NonZeroUsize::new(cores.get() / processes.max(1)).unwrap_or(NonZeroUsize::MIN)
}

/// All processors of the machine, whether or not this process may use them.
#[must_use]
pub fn processors() -> Option<usize> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    (count > 0).then_some(count)
}

/// The processor's name.
#[must_use]
pub fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

/// What the processors did since the machine started, for all processes. Sums over several processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcessorUse {
    /// Number of processors.
    pub processors: usize,
    /// Time in which they worked, for any process or for the system.
    pub busy: Duration,
    /// Time without work.
    pub idle: Duration,
    /// Time with work in which the host of this virtual machine ran something else.
    pub stolen: Duration,
}

/// What the processors did on which this process may run. One read in `/proc`, precise to about 10 ms per processor.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert!(infeed::internal::machine::processor_use().is_some_and(|of| of.processors > 0));
/// ```
#[must_use]
pub fn processor_use() -> Option<ProcessorUse> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let allowed = super::threads::allowed();
    used(&text, super::threads::ticks_per_second()?, |n| allowed.as_ref().is_none_or(|all| all.contains(&n)))
}

/// Sums of `/proc/stat`, which has one line per processor with its times in clock ticks.
fn used(stat: &str, rate: u64, counts: impl Fn(usize) -> bool) -> Option<ProcessorUse> {
    let mut sum = ProcessorUse::default();
    let time = |ticks: u64| Duration::from_secs_f64(ticks as f64 / rate.max(1) as f64);
    for line in stat.lines() {
        let mut words = line.split_ascii_whitespace();
        // The line `cpu` without a number is the sum of all.
        let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        if !number.is_some_and(&counts) {
            continue;
        }
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // Guest time is contained in user and nice. Kernels before 2.6.11 have no steal time.
        let [user, nice, system, idle, wait, irq, soft_irq, more @ ..] = &ticks[..] else { return None };
        let all = |ticks: &[&u64]| time(ticks.iter().fold(0, |sum: u64, ticks| sum.saturating_add(**ticks)));
        sum.processors += 1;
        sum.busy += all(&[user, nice, system, irq, soft_irq]);
        sum.idle += all(&[idle, wait]);
        sum.stolen += time(more.first().copied().unwrap_or(0));
    }
    (sum.processors > 0).then_some(sum)
}

fn memory_limit(root: &Path, groups: &str) -> Option<u64> {
    let read = |folder: PathBuf| {
        let read = |file| -> Option<u64> { fs::read_to_string(folder.join(file)).ok()?.trim().parse().ok() };
        // Without a limit the file contains `max`, or a number above any machine's memory. Above `high` the kernel
        // reclaims pages and slows the process down until it is below.
        ["memory.max", "memory.high", "memory.limit_in_bytes"].into_iter().filter_map(read).min()
    };
    folders(root, groups, "memory").into_iter().filter_map(read).min()
}

fn quota(root: &Path, groups: &str) -> Option<f64> {
    let read = |folder: PathBuf| {
        let read = |file| fs::read_to_string(folder.join(file)).ok();
        let text = read("cpu.max").or_else(|| Some(read("cpu.cfs_quota_us")? + " " + &read("cpu.cfs_period_us")?))?;
        quota_of(&text)
    };
    folders(root, groups, "cpu").into_iter().filter_map(read).min_by(f64::total_cmp)
}

/// Cores' worth of time from a quota and a period. Without a limit, the quota is `max` or -1.
fn quota_of(text: &str) -> Option<f64> {
    let mut words = text.split_ascii_whitespace();
    let quota: f64 = words.next()?.parse().ok()?;
    let period: f64 = words.next()?.parse().ok()?;
    (period > 0.0 && quota > 0.0).then(|| quota / period)
}

/// The folders of this process' control group and of all groups above it, each of which may set a limit. `groups` is
/// the content of `/proc/self/cgroup`: one line per hierarchy; version 2 has an empty list of controllers.
///
/// In a container the own group is mounted as the root, whatever path the line names, so the root is always included.
fn folders(root: &Path, groups: &str, controller: &str) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned(), root.join(controller)];
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (parts.next(), parts.next()) else { continue };
        let top = match controllers {
            "" => root.to_owned(),
            some if some.split(',').any(|name| name == controller) => root.join(controller),
            _ => continue,
        };
        // The group is outside the part that the container sees.
        if group.split('/').any(|part| part == "..") {
            continue;
        }
        let own = Path::new(group.trim_start_matches('/'));
        all.extend(own.ancestors().filter(|part| !part.as_os_str().is_empty()).map(|part| top.join(part)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_share_of_the_cores_and_one_at_least() {
        let number = |n| NonZeroUsize::new(n).unwrap();
        let shares = [(64, 8), (64, 1), (64, 0), (7, 2), (2, 8)].map(|(cores, n)| share(number(cores), n).get());
        assert_eq!(shares, [8, 64, 64, 3, 1]);
    }

    #[test]
    fn the_least_limit_of_all_groups_above_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = dir.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let second = "0::/slurm/job_7/step_0\n";
        assert_eq!((memory_limit(dir.path(), second), quota(dir.path(), second)), (None, None));
        write("slurm/memory.max", "9000\n");
        write("slurm/job_7/memory.max", "5000\n");
        write("slurm/job_7/step_0/memory.max", "max\n");
        write("slurm/job_8/memory.max", "1\n");
        write("slurm/job_7/cpu.max", "150000 100000\n");
        write("slurm/cpu.max", "max 100000\n");
        assert_eq!((memory_limit(dir.path(), second), quota(dir.path(), second)), (Some(5000), Some(1.5)));
        write("slurm/job_7/step_0/memory.high", "4000\n");
        assert_eq!(memory_limit(dir.path(), second), Some(4000));
        // A container, where its own group is the root.
        write("memory.max", "700\n");
        assert_eq!(memory_limit(dir.path(), "0::/\n"), Some(700));
        assert_eq!(memory_limit(dir.path(), "0::/../../elsewhere\n"), Some(700));
        // Version 1: one folder per controller.
        let first = "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n";
        write("memory/docker/x/memory.limit_in_bytes", "300\n");
        write("cpu/docker/x/cpu.cfs_quota_us", "-1\n");
        write("cpu/docker/x/cpu.cfs_period_us", "100000\n");
        write("cpu/cpu.cfs_quota_us", "50000\n");
        write("cpu/cpu.cfs_period_us", "100000\n");
        assert_eq!((memory_limit(dir.path(), first), quota(dir.path(), first)), (Some(300), Some(0.5)));
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        for (quota, threads) in [(0.2, 1), (1.0, 1), (1.9, 1), (2.0, 2), (64.0, 64)] {
            assert_eq!(within(quota).get(), threads, "{quota}");
        }
        assert_eq!(quota_of("150000 100000\n"), Some(1.5));
        assert_eq!(quota_of("max 100000\n"), None);
        assert_eq!(quota_of("1 0"), None);
        assert_eq!(quota_of("-1 100000"), None);
    }

    #[test]
    fn the_times_of_those_processors_are_summed_that_count() {
        let stat = "cpu  900 0 90 900 90 9 9 90 0 0\n\
            cpu0 100 10 20 300 40 1 2 30 99 99\n\
            cpu1 200 0 0 100 0 0 0 0 0 0\n\
            cpu12 7 0 0 0 0 0 0 0 0 0\n\
            intr 1 2 3\n";
        let seconds = |busy, idle, stolen| [busy, idle, stolen].map(Duration::from_millis);
        let of = |counts: fn(usize) -> bool| {
            used(stat, 100, counts).map(|of| (of.processors, [of.busy, of.idle, of.stolen]))
        };
        assert_eq!(of(|n| n == 0), Some((1, seconds(1330, 3400, 300))));
        assert_eq!(of(|n| n < 2), Some((2, seconds(3330, 4400, 300))));
        assert_eq!(of(|n| n == 12), Some((1, seconds(70, 0, 0))));
        assert_eq!(of(|n| n == 5), None, "no such processor");
        assert_eq!(used("", 100, |_| true), None);
        assert_eq!(used("cpu0 1 2 nonsense\n", 100, |_| true), None);
        assert_eq!(used("cpu0 1 2 3 4 5 6 7\n", 0, |_| true).map(|of| of.stolen), Some(Duration::ZERO));
        let huge = format!("cpu0 {0} {0} 3 4 5 6 7 8\n", u64::MAX / 2);
        assert!(used(&huge, 100, |_| true).is_some());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory_and_processors() {
        assert!(memory() > Some(1 << 24) && processors() > Some(0));
    }
}
