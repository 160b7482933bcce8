//! Compares workers and prefetch on `auto` with the best cell of the sweep.

use std::{ffi::OsString, fmt::Write as _, time::Duration};

use serde::{Deserialize, Serialize};

use super::cell::{Cell, Settings};
use crate::{spread::median, typed::typed, units};

/// The share of the best cell's rate that `auto` should reach.
const AS_GOOD: f64 = 0.95;
/// Time of each measurement without `--max-time`.
const MEASURED: Duration = Duration::from_secs(10);

/// Both runs of a round, one right after the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub auto: Cell,
    pub best: Cell,
}

/// `auto` against the best cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct AutoReport {
    /// The best cell, as typed.
    pub best: Settings,
    /// Time that passed in each run before it was measured.
    pub settle_seconds: f64,
    pub rounds: Vec<Round>,
    /// The rate of `auto` as a share of the best cell's, over the rounds: median, minimum, maximum.
    pub share: Option<[f64; 3]>,
    pub words: String,
}

/// The fastest cell with a fixed number of workers or prefetch.
pub(crate) fn best(cells: &[Cell]) -> Option<&Cell> {
    let fixed = |asked: &Option<String>| asked.as_deref().is_some_and(|asked| asked != "auto");
    let fine = |cell: &&Cell| {
        cell.error.is_none()
            && cell.samples_per_second > 0.0
            && (fixed(&cell.asked.workers) || fixed(&cell.asked.prefetch))
    };
    cells.iter().filter(fine).max_by(|a, b| a.samples_per_second.total_cmp(&b.samples_per_second))
}

impl AutoReport {
    pub(crate) fn new(best: &Settings, settle: Duration) -> Self {
        Self {
            best: best.clone(),
            settle_seconds: settle.as_secs_f64(),
            rounds: Vec::new(),
            share: None,
            words: String::new(),
        }
    }

    /// The best cell's settings with workers and prefetch on `auto`.
    pub(crate) fn auto(&self) -> Settings {
        let auto = Some("auto".to_owned());
        Settings { workers: auto.clone(), prefetch: auto, ..self.best.clone() }
    }

    pub(crate) fn add(&mut self, round: Round) {
        self.rounds.push(round);
        let mut shares: Vec<f64> = self.rounds.iter().map(Round::share).collect();
        shares.sort_by(f64::total_cmp);
        let share = [median(&shares), shares[0], shares[shares.len() - 1]];
        self.share = Some(share);
        self.words = self.verdict(share);
    }

    fn verdict(&self, [middle, least, most]: [f64; 3]) -> String {
        let rate = |of: fn(&Round) -> &Cell| {
            let mut rates: Vec<f64> = self.rounds.iter().map(|round| of(round).samples_per_second).collect();
            rates.sort_by(f64::total_cmp);
            units::count(median(&rates).round() as u64)
        };
        let settle = units::time(self.settle_seconds);
        let auto = rate(|round| &round.auto);
        let best = rate(|round| &round.best);
        let cell = &self.best;
        let mut words = format!(
            "auto: {auto} samples/s after {settle}, median share {middle:.3} of the best combination ({cell}: {best}) \
             in {} rounds, {least:.3} to {most:.3}",
            self.rounds.len()
        );
        if let Some(Cell { workers_at_end: Some(workers), prefetch_at_end: Some(prefetch), .. }) =
            self.rounds.last().map(|round| &round.auto)
        {
            // Writing to a string does not fail.
            let _ = write!(words, "; it ended at workers {workers}, prefetch {prefetch}");
        }
        words += if middle >= AS_GOOD { "; within 5 %" } else { "; more than 5 % below" };
        words
    }
}

impl Round {
    fn share(&self) -> f64 {
        self.auto.samples_per_second / self.best.samples_per_second.max(f64::MIN_POSITIVE)
    }
}

/// The sweep's options, changed so that a run ends by time.
pub(crate) fn options(shared: &[OsString], settle: Duration, measured: Option<Duration>) -> Vec<OsString> {
    const OTHER: [&str; 3] = ["epochs", "max-batches", "max-time"];
    let kept = typed("sweep", shared.iter().cloned())
        .into_iter()
        .filter(|typed| !typed.name.as_deref().is_some_and(|name| OTHER.contains(&name)));
    let mut options: Vec<OsString> = kept.flat_map(|typed| typed.words).collect();
    let measured = measured.unwrap_or(MEASURED);
    let ms = |time: Duration| OsString::from(format!("{}ms", time.as_millis()));
    let own = ["--epochs".into(), "1000000000".into(), "--warm-up".into(), ms(settle), "--max-time".into()];
    options.extend(own);
    options.push(ms(settle + measured));
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(workers: &str, rate: f64) -> Cell {
        let asked = Settings { workers: Some(workers.into()), batch_size: Some("8".into()), ..Settings::default() };
        Cell { asked, samples_per_second: rate, ..Cell::default() }
    }

    #[test]
    fn auto_is_compared_with_the_fastest_of_the_others_round_by_round() {
        let cells = [cell("1", 100.0), cell("2", 180.0), cell("auto", 500.0), cell("4", 170.0)];
        let best = best(&cells).unwrap();
        assert_eq!(best.asked.workers.as_deref(), Some("2"));
        let mut report = AutoReport::new(&best.asked, Duration::from_secs(30));
        let auto = report.auto();
        assert_eq!((auto.workers.as_deref(), auto.prefetch.as_deref()), (Some("auto"), Some("auto")));
        assert_eq!(auto.batch_size.as_deref(), Some("8"));
        for (mine, other) in [(99.0, 100.0), (140.0, 200.0), (98.0, 100.0)] {
            let found = Cell { workers_at_end: Some(2), prefetch_at_end: Some(16), ..cell("auto", mine) };
            report.add(Round { auto: found, best: cell("2", other) });
        }
        assert_eq!(report.share, Some([0.98, 0.7, 0.99]));
        for part in
            ["0.980 of the best combination (workers 2, batch-size 8: 100)", "3 rounds", "prefetch 16; within 5 %"]
        {
            assert!(report.words.contains(part), "{part}: {}", report.words);
        }
        report.add(Round { auto: cell("auto", 80.0), best: cell("2", 100.0) });
        report.add(Round { auto: cell("auto", 80.0), best: cell("2", 100.0) });
        assert!(report.words.ends_with("more than 5 % below"), "{}", report.words);
        assert!(super::best(&[cell("auto", 1.0)]).is_none());
    }

    #[test]
    fn runs_that_end_by_time_have_no_other_end() {
        let shared = ["--epochs", "3", "--transform=none", "--max-batches=7", "--shuffle", "--max-time"];
        let own = options(&shared.map(OsString::from), Duration::from_secs(30), Some(Duration::from_millis(1500)));
        let want = [
            "--transform=none",
            "--shuffle",
            "--max-time",
            "--epochs",
            "1000000000",
            "--warm-up",
            "30000ms",
            "--max-time",
            "31500ms",
        ];
        assert_eq!(own, want.map(OsString::from), "the value of an option may look like another");
    }
}
