//! What the operating system knows about this process. `None` where it doesn't say.

use std::fs;

use infeed::sys::process::usage;

/// Clock ticks a second in `/proc`. `sysconf(_SC_CLK_TCK)` says so on every Linux we know; asking it takes unsafe code.
const TICKS_PER_SECOND: f64 = 100.0;

/// User and system time of all threads so far, in seconds.
pub(crate) fn cpu_seconds() -> Option<f64> {
    usage().cpu.map(|cpu| cpu.as_secs_f64())
}

/// Processor time of one thread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ThreadTime {
    pub id: u64,
    /// Numbers at its end left out: `infeed-cpu` for all of them.
    pub name: String,
    pub cpu_seconds: f64,
}

/// Processor time of each thread of this process. Empty where the system does not say.
pub(crate) fn threads() -> Vec<ThreadTime> {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let read = |entry: fs::DirEntry| {
        let id: u64 = entry.file_name().to_str()?.parse().ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        let name = name.trim().trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-').to_owned();
        let ticks = ticks(&fs::read_to_string(entry.path().join("stat")).ok()?)?;
        Some(ThreadTime { id, name, cpu_seconds: ticks as f64 / TICKS_PER_SECOND })
    };
    tasks.flatten().filter_map(read).collect()
}

/// The most physical memory this process ever held.
pub(crate) fn peak_rss_bytes() -> Option<u64> {
    usage().peak
}

/// The processor's name.
pub(crate) fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
}

fn ticks(stat: &str) -> Option<u64> {
    // The second field is the program's name in parentheses, which may hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u64 = fields.nth(11)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (in) feed (x)) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 8 0";
        assert_eq!(ticks(stat), Some(200));
        assert_eq!(ticks("nonsense"), None);
    }
}
