//! Whether other processes held the cores during a measurement. If so, its figures depend on them, and advice based on
//! the figures is wrong.

use std::time::{Duration, Instant};

use infeed::internal::{
    machine::{self, ProcessorUse, processor_use},
    process::{self, usage},
};
use serde::{Deserialize, Serialize};

/// A shorter measurement counts single clock ticks, and is too short to be useful.
const SHORTEST: Duration = Duration::from_secs(2);
/// Cores held by others count from this share of the usable cores on, if no core was idle.
const SOME: f64 = 0.1;
/// Cores held by others count from this share on in any case, because work comes in bursts.
const MANY: f64 = 0.25;
/// If less than this share of the usable cores was idle, none counts as idle.
const USED_UP: f64 = 0.1;
/// The smallest number of cores that clock ticks can resolve.
const LEAST: f64 = 0.1;

/// Times of the processors and of this process until now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cores {
    at: Instant,
    /// `None` if the system does not report them.
    seen: Option<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    all: ProcessorUse,
    /// Processor time of this process and of its children that have ended.
    own: Duration,
}

/// Use of the cores that this process may run on, in cores on average. All zero if the system does not report it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Busy {
    /// Held by other processes.
    pub others: f64,
    /// Not given by the host of this virtual machine, although there was work for them.
    pub steal: f64,
    /// Used by this process and its children that have ended.
    pub own: f64,
    /// Processors that this process may run on.
    pub cores: usize,
    /// The part of them that a CPU quota allows.
    pub usable: f64,
    /// Length of the measurement.
    pub seconds: f64,
}

impl Cores {
    /// Reads the times now. Costs three small reads in `/proc`.
    pub(crate) fn now() -> Self {
        let seen = || {
            let own = usage().cpu?.saturating_add(process::children_cpu().unwrap_or_default());
            Some(Seen { all: processor_use()?, own })
        };
        Self { at: Instant::now(), seen: seen() }
    }

    /// Use of the cores since then.
    pub(crate) fn since(&self) -> Busy {
        let now = Self::now();
        let (Some(before), Some(after)) = (self.seen, now.seen) else { return Busy::default() };
        Busy::between(&before, &after, now.at.saturating_duration_since(self.at), machine::cpu_quota())
    }
}

impl Busy {
    fn between(before: &Seen, after: &Seen, time: Duration, quota: Option<f64>) -> Self {
        let seconds = time.as_secs_f64();
        let cores = after.all.processors;
        // The process was bound to other processors meanwhile.
        if seconds <= 0.0 || cores != before.all.processors {
            return Self::default();
        }
        let each = |before: Duration, after: Duration| after.saturating_sub(before).as_secs_f64() / seconds;
        let own = each(before.own, after.own);
        let usable = quota.map_or(cores as f64, |quota| quota.min(cores as f64));
        Self {
            others: (each(before.all.busy, after.all.busy) - own).max(0.0),
            steal: each(before.all.stolen, after.all.stolen),
            own,
            cores,
            usable,
            seconds,
        }
    }

    /// Cores that this process could have used, but other processes or the host held.
    pub(crate) fn held(&self) -> f64 {
        // Cores beyond the quota are free for others.
        (self.others + self.steal - (self.cores as f64 - self.usable)).clamp(0.0, self.usable)
    }

    /// Whether others held so many cores that figures and advice are not reliable.
    pub(crate) fn is_crowded(&self) -> bool {
        let (held, usable) = (self.held(), self.usable);
        let much = held >= MANY * usable || (held >= SOME * usable && self.idle() < USED_UP * usable);
        !self.is_short() && held >= LEAST && much
    }

    /// Whether the measurement is too short to judge.
    pub(crate) fn is_short(&self) -> bool {
        self.seconds < SHORTEST.as_secs_f64()
    }

    /// A warning; `None` if others did not hold the cores.
    pub(crate) fn warning(&self) -> Option<String> {
        let of = match self.cores {
            1 => "1 core".to_owned(),
            cores => format!("{cores} cores"),
        };
        let (others, steal) = (self.others, self.steal);
        let who = match (others >= LEAST / 2.0, steal >= LEAST / 2.0) {
            (_, false) => format!("other processes held {others:.1} of {of}"),
            (false, true) => format!("the host of this virtual machine kept {steal:.1} of {of}"),
            (true, true) => format!(
                "other processes held {others:.1} of {of}, and the host of this virtual machine kept {steal:.1}"
            ),
        };
        // If cores were sometimes idle, it is unknown how much was lost.
        let are = if self.idle() < USED_UP * self.usable { "are" } else { "may be" };
        let words = || format!("{who} while this ran: figures {are} too low; run again on a quiet machine");
        self.is_crowded().then(words)
    }

    /// The warning as a sentence, for a page.
    pub(crate) fn sentence(&self) -> Option<String> {
        let words = self.warning()?;
        let mut letters = words.chars();
        let first = letters.next()?;
        Some(format!("{}{}.", first.to_uppercase(), letters.as_str()))
    }

    /// Usable cores that were idle.
    fn idle(&self) -> f64 {
        (self.usable - self.held() - self.own).max(0.0)
    }

    /// `None` if the system does not report it.
    pub(crate) fn known(self) -> Option<Self> {
        (self.cores > 0).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(processors: usize, [busy, idle, stolen, own]: [f64; 4]) -> Seen {
        let time = Duration::from_secs_f64;
        let mut all = ProcessorUse::default();
        (all.processors, all.busy, all.idle, all.stolen) = (processors, time(busy), time(idle), time(stolen));
        Seen { all, own: time(own) }
    }

    /// Over ten seconds.
    fn busy(processors: usize, times: [f64; 4], quota: Option<f64>) -> Busy {
        let before = seen(processors, [1000.0, 2000.0, 30.0, 5.0]);
        let [busy, idle, stolen, own] = times;
        let after = seen(processors, [1000.0 + busy, 2000.0 + idle, 30.0 + stolen, 5.0 + own]);
        Busy::between(&before, &after, Duration::from_secs(10), quota)
    }

    #[test]
    fn others_are_what_is_busy_and_not_this_process() {
        let of = busy(2, [20.0, 0.0, 0.0, 6.0], None);
        assert!((of.others - 1.4).abs() < 1e-9 && (of.own - 0.6).abs() < 1e-9 && of.steal.abs() < 1e-9, "{of:?}");
        let words = of.warning().unwrap();
        assert_eq!(
            words,
            "other processes held 1.4 of 2 cores while this ran: figures are too low; run again on a quiet machine"
        );
        let sentence = of.sentence().unwrap();
        assert!(sentence.starts_with("Other processes") && sentence.ends_with("quiet machine."), "{sentence}");
    }

    #[test]
    fn a_machine_to_itself_is_not_warned_of() {
        for (name, of) in [
            ("all its own", busy(2, [20.0, 0.0, 0.0, 20.0], None)),
            ("nothing to do", busy(2, [0.1, 19.9, 0.0, 0.0], None)),
            ("a little beside it", busy(2, [19.5, 0.5, 0.0, 18.0], None)),
            ("others where cores are free", busy(16, [50.0, 110.0, 0.0, 20.0], None)),
            ("more processor time than ticks tell", busy(2, [18.0, 2.0, 0.0, 19.0], None)),
        ] {
            assert_eq!(of.warning(), None, "{name}: {of:?}");
        }
    }

    #[test]
    fn cores_that_are_used_up_count_from_a_tenth_on() {
        assert!(busy(2, [20.0, 0.0, 0.0, 17.0], None).is_crowded());
        // A quarter counts although a core is idle: work comes in bursts.
        let bursts = busy(2, [8.0, 12.0, 0.0, 1.0], None);
        assert!(
            bursts.warning().is_some_and(|words| words.contains("held 0.7 of") && words.contains("may be too low"))
        );
        assert!(!busy(2, [6.0, 14.0, 0.0, 3.0], None).is_crowded());
    }

    #[test]
    fn time_that_the_host_keeps_is_told_as_such() {
        let of = busy(2, [12.0, 0.0, 8.0, 12.0], None);
        let words = of.warning().unwrap();
        assert!(words.starts_with("the host of this virtual machine kept 0.8 of 2 cores while"), "{words}");
        let words = busy(1, [6.0, 0.0, 4.0, 3.0], None).warning().unwrap();
        assert!(words.contains("held 0.3 of 1 core, and the host of this virtual machine kept 0.4 while"), "{words}");
    }

    #[test]
    fn what_a_quota_keeps_from_this_process_may_be_others() {
        // A container with the time of 2 of 8 processors, whose neighbours use 5.
        let neighbours = busy(8, [70.0, 10.0, 0.0, 20.0], Some(2.0));
        assert!(neighbours.held().abs() < 1e-9 && neighbours.warning().is_none(), "{neighbours:?}");
        let crowd = busy(8, [80.0, 0.0, 0.0, 10.0], Some(2.0));
        assert!((crowd.held() - 1.0).abs() < 1e-9 && crowd.warning().is_some(), "{crowd:?}");
        // A quota above the processors is none.
        assert!(busy(2, [20.0, 0.0, 0.0, 6.0], Some(64.0)).warning().is_some());
    }

    #[test]
    fn what_is_not_known_is_not_warned_of() {
        assert_eq!(Busy::default().warning(), None);
        let nothing = Cores { at: Instant::now(), seen: None };
        assert_eq!(nothing.since(), Busy::default());
        let (before, after) = (seen(2, [0.0; 4]), seen(1, [9.0, 0.0, 0.0, 0.0]));
        assert_eq!(Busy::between(&before, &after, Duration::from_secs(9), None), Busy::default());
        let (before, after) = (seen(2, [0.0; 4]), seen(2, [2.0, 0.0, 0.0, 0.0]));
        let short = Busy::between(&before, &after, Duration::from_secs(1), None);
        assert!(short.others > 1.9 && short.warning().is_none(), "too short to tell: {short:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_tells() {
        let busy = Cores::now().since();
        assert!(busy.cores > 0 && busy.usable > 0.0 && busy.others >= 0.0, "{busy:?}");
    }
}
