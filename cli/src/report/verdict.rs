//! The verdict: a sentence about what waits for what, and what to try next. Pages show it in a box, tables in two rows.
//!
//! For a single run, it follows from the causes of late batches. `infeed doctor` measures more, and makes its own.

use std::path::Path;

use infeed::{
    internal::{Front, SETTINGS, disk, machine},
    report::{Cause, Report, Stage},
};

use super::words::cause_words;
use crate::{busy::Busy, units};

/// What limits the run, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// A sentence.
    pub found: String,
    /// The next thing to try, as a sentence; `None` if there is nothing to do.
    pub next: Option<String>,
}

impl Verdict {
    /// The verdict of one run. `step`: seconds per step of the simulated trainer; `None` in a user's program, which
    /// always has a trainer. `crowded`: other processes held cores that the run would have used.
    pub(super) fn of_stream(
        stream: &Report,
        workers: Option<usize>,
        step: Option<f64>,
        crowded: Option<&Busy>,
        url: &str,
    ) -> Self {
        Self::of(&Seen {
            no_trainer: step == Some(0.0),
            in_command: step.is_some(),
            workers: workers.unwrap_or(1),
            cores: machine::cores().get(),
            cores_held: crowded.map_or(0.0, Busy::held),
            in_memory: lies_in_memory(url),
            ..Seen::of(stream)
        })
    }

    fn of(seen: &Seen) -> Self {
        let verdict = |found: &str, next: &str| Self {
            found: found.to_owned(),
            next: (!next.is_empty()).then(|| next.to_owned()),
        };
        if seen.batches == 0 {
            return verdict("No batch came, so there is nothing to judge.", "Let it run until some batches have come.");
        }
        let Some(au) = seen.au else {
            return verdict(
                "One batch came: it shows how long the start takes, but nothing about waiting.",
                &format!("Let it run for more batches, or lower {}.", setting("batch_size")),
            );
        };
        if au > ENOUGH {
            let found = format!("The trainer is the limit: data was ready for {:.0} % of its time.", 100.0 * au);
            return verdict(&found, "Leave the loader as it is: a faster one would change nothing.");
        }
        let (what, advice) = seen.held_by();
        if seen.no_trainer {
            let rate = units::rate(seen.samples_per_second);
            let found =
                format!("There is no trainer in this run, so the loader sets the pace: {rate}, limited by {what}.");
            let next = format!(
                "Give the time of one of your training steps (--step-time 50ms) to see whether that is fast enough. \
                 To go faster: {advice}."
            );
            return verdict(&found, &next);
        }
        let found = format!("The trainer waits {:.0} % of its time, most of it for {what}.", 100.0 * (1.0 - au));
        let mut next = first_upper(&advice);
        next.push_str(if seen.in_command { "; infeed doctor measures the gain." } else { "." });
        verdict(&found, &next)
    }
}

/// AU above which a faster loader makes no noticeable difference; the same value as in [`Report::bottleneck`].
const ENOUGH: f64 = 0.95;

/// The facts for the sentences.
#[derive(Clone, Debug, Default)]
struct Seen {
    batches: u64,
    samples_per_second: f64,
    /// The share of time in which the trainer does not wait.
    au: Option<f64>,
    /// The cause of most waiting.
    cause: Option<Cause>,
    /// The busiest stage.
    busiest: Option<Stage>,
    /// Whether decoding takes as long as the transform, or longer.
    decodes_more: bool,
    no_trainer: bool,
    /// A run of a command, not of a user's loop.
    in_command: bool,
    cached: bool,
    workers: usize,
    cores: usize,
    /// Whether the files are in memory.
    in_memory: bool,
    /// Cores held by other processes, if so many that the effect of more workers or cores is unknown.
    cores_held: f64,
}

impl Seen {
    fn of(report: &Report) -> Self {
        let busy = |stage: Stage| {
            let known = report.stages.iter().find(|known| known.stage == stage);
            known.map_or(0.0, |known| known.busy.as_secs_f64())
        };
        Self {
            batches: report.batches,
            samples_per_second: report.samples as f64 / report.elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
            cached: report.cache.is_some(),
            au: report.au(),
            cause: report.late_causes.first().map(|cause| cause.cause),
            busiest: report.bottleneck(),
            decodes_more: busy(Stage::Decode) >= busy(Stage::Transform),
            ..Self::default()
        }
    }

    /// What the trainer waits for, and what to do about it.
    fn held_by(&self) -> (&'static str, String) {
        // Waits below a millisecond have no cause, so the busiest stage is the best guess.
        let cause = self.cause.or(match self.busiest {
            Some(Stage::Fetch) => Some(Cause::Read),
            Some(Stage::Decode) => Some(Cause::Decode),
            Some(Stage::Transform) => Some(Cause::Augmentation),
            Some(Stage::Mix | Stage::Transfer) => Some(Cause::Copy),
            _ => None,
        });
        let Some(cause) = cause else {
            return (
                "handing batches over",
                format!("use larger batches, which are handed over less often ({})", setting("batch_size")),
            );
        };
        let advice = match cause {
            Cause::Plan => "speed up the sampler: it takes longer than loading".into(),
            Cause::Room => {
                format!("leave {} and {} on auto, or raise them", setting("prefetch"), setting("memory_budget"))
            }
            Cause::Request if self.cached => "run a second epoch, which the cache serves".into(),
            Cause::Request => {
                format!("keep the data near with {}, or infeed stage URL DIR before training", setting("cache"))
            }
            Cause::Read if self.in_memory => "store the files smaller: they are in memory already".into(),
            Cause::Read => "put the data on a faster disk or a RAM disk: infeed stage URL /dev/shm/DIR".into(),
            Cause::Queue | Cause::Decode | Cause::Augmentation if self.cores_held > 0.0 => {
                format!("run again when other processes do not hold {:.1} of the {} cores", self.cores_held, self.cores)
            }
            Cause::Queue | Cause::Decode | Cause::Augmentation if self.workers < self.cores => {
                format!("use {} {} instead of {}", self.cores, setting("workers"), self.workers)
            }
            Cause::Decode => self.less_decoding(),
            Cause::Queue if self.decodes_more => self.less_decoding(),
            Cause::Queue | Cause::Augmentation => format!(
                "use fewer or cheaper steps of augmentation, {}, or more cores or a GPU",
                setting("dtype u8 or f16")
            ),
            Cause::Copy => format!("send smaller rows: {}", setting("dtype u8 or f16")),
            Cause::Consumer => "give the trainer's runtime its own thread: data was ready".into(),
            _ => "see the tables below".into(),
        };
        (cause_words(cause), advice)
    }

    fn less_decoding(&self) -> String {
        let kept = setting("decoded_cache");
        format!("keep decoded pixels for later epochs ({kept}), store images smaller, or use more cores or a GPU")
    }
}

/// Whether a local dataset is on a file system in memory (tmpfs).
pub(crate) fn lies_in_memory(url: &str) -> bool {
    let path = Path::new(url.strip_prefix("file://").unwrap_or(url));
    disk::free_space(path).is_some_and(|space| space.in_memory)
}

/// The name of a library setting in the front of this process (command line, Rust or Python).
fn setting(library: &str) -> String {
    let known = SETTINGS.iter().find(|setting| setting.name(Front::Library) == library);
    known.map_or_else(|| library.to_owned(), ToString::to_string)
}

fn first_upper(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(au: f64, cause: Cause) -> Seen {
        Seen { batches: 10, au: Some(au), cause: Some(cause), workers: 8, cores: 8, ..Seen::default() }
    }

    #[test]
    fn each_finding_says_what_waits_for_what_and_what_to_try() {
        let bare = Seen { no_trainer: true, samples_per_second: 1857.4, ..seen(0.01, Cause::Decode) };
        for (seen, found, next) in [
            (Seen::default(), "No batch came", "Let it run"),
            (Seen { batches: 1, ..Seen::default() }, "One batch came", "batch_size"),
            (seen(0.97, Cause::Decode), "The trainer is the limit: data was ready for 97 %", "change nothing"),
            (seen(0.38, Cause::Request), "The trainer waits 62 % of its time, most of it for requests", "cache"),
            (Seen { cached: true, ..seen(0.38, Cause::Request) }, "requests to the store", "second epoch"),
            (seen(0.5, Cause::Read), "reading files", "RAM disk"),
            (Seen { in_memory: true, ..seen(0.5, Cause::Read) }, "reading files", "in memory already"),
            (seen(0.5, Cause::Room), "room to run ahead", "memory_budget"),
            (Seen { workers: 2, ..seen(0.5, Cause::Queue) }, "a free decode thread", "use 8 workers instead of 2"),
            (Seen { decodes_more: true, ..seen(0.5, Cause::Queue) }, "a free decode thread", "decoded_cache"),
            (Seen { cores_held: 1.3, ..seen(0.5, Cause::Decode) }, "decoding", "do not hold 1.3 of the 8 cores"),
            (seen(0.5, Cause::Queue), "a free decode thread", "cheaper steps"),
            (seen(0.5, Cause::Augmentation), "augmentation", "dtype u8"),
            (Seen { cause: None, busiest: Some(Stage::Decode), ..seen(0.9, Cause::Copy) }, "decoding", "more cores"),
            (Seen { cause: None, ..seen(0.9, Cause::Copy) }, "handing batches over", "batch_size"),
            (bare, "no trainer in this run, so the loader sets the pace: 1,857 samples/s, limited by decoding", "50ms"),
        ] {
            let Verdict { found: is, next: then } = Verdict::of(&seen);
            assert!(is.contains(found) && is.ends_with('.'), "{is}");
            assert!(
                then.as_ref()
                    .is_some_and(|then| then.to_lowercase().contains(&next.to_lowercase()) && then.ends_with('.')),
                "{then:?}"
            );
        }
    }

    #[test]
    fn every_cause_has_advice_that_names_settings_that_there_are() {
        for cause in Cause::ALL {
            let (what, advice) = seen(0.5, cause).held_by();
            assert!(!what.is_empty() && advice.len() > 10 && advice != "see the tables below", "{cause}: {advice}");
        }
        for name in ["batch_size", "prefetch", "memory_budget", "cache", "workers", "decoded_cache", "dtype u8 or f16"]
        {
            assert!(SETTINGS.iter().any(|setting| setting.name(Front::Library) == name), "{name}");
        }
    }
}
