//! How much of a core each thread of this process takes, by name.

use std::{
    collections::BTreeMap,
    fs,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};

/// Threads with names of their own here, by their ids.
static CALLED: Mutex<BTreeMap<u32, &'static str>> = Mutex::new(BTreeMap::new());

/// From now on this thread is called so.
pub(super) fn call_this(name: &'static str) {
    // `/proc/thread-self` is a link to `<process>/task/<thread>`.
    let link = fs::read_link("/proc/thread-self").unwrap_or_default();
    if let Some(id) = link.file_name().and_then(|id| id.to_str()?.parse().ok()) {
        CALLED.lock().unwrap_or_else(PoisonError::into_inner).insert(id, name);
    }
}

/// User and system time in a line of `stat`, in seconds, and the name before it.
fn parse(stat: &str) -> Option<(&str, f64)> {
    // The name may hold anything, parentheses too.
    let (name, fields) = (stat.find('(')? + 1, stat.rfind(')')?);
    // Fields 14 and 15 of the line, in hundredths of a second.
    let ticks = stat[fields + 1..].split_whitespace().skip(11).take(2);
    Some((stat.get(name..fields)?, ticks.filter_map(|text| text.parse::<f64>().ok()).sum::<f64>() / 100.0))
}

/// User and system time of this process, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse(&stat).map_or(0.0, |(_, seconds)| seconds)
}

/// Name and seconds of each thread that runs, by its id.
pub(super) fn times() -> BTreeMap<u32, (String, f64)> {
    let mut called = CALLED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let Some(id) = task.file_name().to_str().and_then(|id| id.parse().ok()) else { continue };
        // One that ended since is counted among those that are gone.
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        if let Some((name, seconds)) = parse(&stat) {
            let kind = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
            let name = match called.get(&id) {
                Some(name) => format!("infeed-{name}"),
                None if id == std::process::id() => "main".to_owned(),
                None => kind.to_owned(),
            };
            times.insert(id, (name, seconds));
        }
    }
    // Ids are used again.
    called.retain(|id, _| times.contains_key(id));
    times
}

/// What threads did, over one stretch of time or several.
#[derive(Debug, Default)]
pub(super) struct Threads {
    seconds: f64,
    each: BTreeMap<u32, (String, f64)>,
    /// Of threads that ended meanwhile.
    gone: f64,
}

impl Threads {
    /// A stretch of this length: what there was before and after it, and what the process took in all.
    pub(super) fn add(
        &mut self,
        before: &BTreeMap<u32, (String, f64)>,
        after: &BTreeMap<u32, (String, f64)>,
        cpu: f64,
        took: Duration,
    ) {
        self.seconds += took.as_secs_f64();
        let mut known = 0.0;
        for (id, (name, end)) in after {
            let spent = end - before.get(id).map_or(0.0, |(_, begin)| *begin);
            known += spent;
            self.each.entry(*id).or_insert_with(|| (name.clone(), 0.0)).1 += spent;
        }
        // The process and its threads are read one after the other, in hundredths.
        self.gone += (cpu - known).max(0.0);
    }

    /// By name: how many there are, how many cores they keep busy together, and how much of one the busiest takes.
    pub(super) fn cores(&self) -> Value {
        let share = |seconds: f64| (seconds / self.seconds.max(1e-9) * 1000.0).round() / 1000.0;
        let mut names: BTreeMap<&str, (usize, f64, f64)> = BTreeMap::new();
        for (name, seconds) in self.each.values() {
            let (count, sum, most) = names.entry(name).or_default();
            *count += 1;
            *sum += seconds;
            *most = most.max(*seconds);
        }
        let line = |(name, (count, sum, most)): (&str, (usize, f64, f64))| {
            (name.to_owned(), json!({ "threads": count, "cores": share(sum), "busiest": share(most) }))
        };
        let mut lines: serde_json::Map<_, _> = names.into_iter().map(line).collect();
        lines.insert("gone since".into(), json!({ "cores": share(self.gone) }));
        Value::Object(lines)
    }
}
