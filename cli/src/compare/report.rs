//! The results of `infeed compare`: JSON, a table for the terminal, and a table in Markdown.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    configuration::Configuration,
    measure::Measure,
    ratio::{self, Ratio},
    work,
};
use crate::{
    busy::Busy,
    process, report,
    spread::{Spread, outliers},
    units,
};

/// The JSON of `compare`; its keys are stable. Times are in seconds, rates leave out the first batch of a run.
#[derive(Debug, Serialize)]
pub(crate) struct CompareReport {
    pub version: u32,
    /// Measured rounds, which is the number of runs of each configuration.
    pub rounds: u64,
    /// Rounds before them, which are not measured.
    pub warmup_rounds: u64,
    /// Arguments of `infeed run` for all configurations.
    pub shared: Vec<String>,
    pub machine: Machine,
    /// In the order given.
    pub configurations: Vec<Compared>,
    /// The name of the one with the highest median of samples a second; `None` without a round.
    pub fastest: Option<String>,
    /// The fastest compared with each of the others.
    pub ratios: Vec<Ratio>,
    /// Differences between their work, as sentences.
    pub differences: Vec<String>,
    /// Other reasons to doubt the figures.
    pub warnings: Vec<String>,
    /// The work that all did equally.
    #[serde(skip)]
    alike: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub processor: Option<String>,
    pub cores: usize,
    pub infeed: &'static str,
}

/// One configuration. Spreads are over the rounds; `None` if no run has the figure.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    pub name: String,
    pub given: String,
    /// Arguments of `infeed run`.
    pub arguments: Vec<String>,
    pub samples_per_second: Option<Spread>,
    pub wait_per_batch_seconds: Option<Spread>,
    pub cpu_seconds_per_sample: Option<Spread>,
    /// Its rate as a multiple of the fastest one's, round by round.
    pub ratio_to_fastest: Option<Spread>,
    /// Rounds whose rate is an outlier, counted from 1.
    pub outlier_rounds: Vec<usize>,
    /// Round by round.
    pub runs: Vec<Measure>,
}

const VERSION: u32 = 1;
/// Longer names make a table wider than a terminal.
const LONGEST_NAME: usize = 32;

impl CompareReport {
    /// Makes the report. All configurations have the same number of runs.
    pub(super) fn new(
        configurations: &[Configuration],
        runs: Vec<Vec<Measure>>,
        warmup_rounds: u64,
        shared: &[String],
    ) -> Self {
        let rates: Vec<Vec<f64>> = runs.iter().map(|runs| of(runs, |run| Some(run.samples_per_second))).collect();
        let medians: Vec<Option<f64>> = rates.iter().map(|rates| Some(Spread::of(rates)?.median)).collect();
        let fastest = (0..medians.len()).filter(|&at| medians[at].is_some()).max_by(|&a, &b| {
            // The first of equal ones.
            medians[a].unwrap_or(0.0).total_cmp(&medians[b].unwrap_or(0.0)).then(b.cmp(&a))
        });
        let name = |at: usize| configurations[at].name.as_str();
        let others = |fastest: usize| (0..configurations.len()).filter(move |&at| at != fastest);
        let ratios = fastest.map_or(Vec::new(), |fastest| {
            let ratio = |at: usize| Ratio::new(name(fastest), &rates[fastest], name(at), &rates[at]);
            others(fastest).filter_map(ratio).collect()
        });
        let warnings = warnings(configurations, &runs, warmup_rounds);
        let differences = work::differences(configurations, &runs);
        let alike = work::alike(configurations, &runs);
        let compared = |(at, (configuration, runs)): (usize, (&Configuration, Vec<Measure>))| Compared {
            name: configuration.name.clone(),
            given: configuration.given.clone(),
            arguments: configuration.arguments.clone(),
            samples_per_second: Spread::of(&rates[at]),
            wait_per_batch_seconds: Spread::of(&of(&runs, |run| run.wait_per_batch_seconds)),
            cpu_seconds_per_sample: Spread::of(&of(&runs, |run| run.cpu_seconds_per_sample)),
            ratio_to_fastest: fastest.and_then(|fastest| Spread::of(&ratio::each(&rates[at], &rates[fastest]))),
            outlier_rounds: outliers(&rates[at]).into_iter().map(|round| round + 1).collect(),
            runs,
        };
        Self {
            version: VERSION,
            rounds: runs.first().map_or(0, |runs| runs.len() as u64),
            warmup_rounds,
            shared: shared.to_vec(),
            machine: Machine {
                processor: process::processor(),
                cores: infeed::internal::machine::cores().get(),
                infeed: env!("CARGO_PKG_VERSION"),
            },
            fastest: fastest.map(|at| name(at).to_owned()),
            ratios,
            differences,
            warnings,
            alike,
            configurations: configurations.iter().zip(runs).enumerate().map(compared).collect(),
        }
    }

    /// The table for a terminal.
    pub(super) fn table(&self) -> String {
        let mut table = report::table();
        let (head, rows) = self.cells();
        table.set_header(head);
        for (one, row) in self.configurations.iter().zip(rows) {
            table.add_row([shortened(&one.name)].into_iter().chain(row));
        }
        report::align_right(&mut table, 1..);
        table.trim_fmt()
    }

    /// The table in Markdown, with the verdict, the method and the warnings.
    pub(super) fn markdown(&self) -> String {
        let (head, rows) = self.cells();
        let mut text = format!("| {} |\n|:---|{}\n", head.join(" | "), "---:|".repeat(head.len() - 1));
        for (one, row) in self.configurations.iter().zip(rows) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "| {} | {} |", code(&one.name), row.join(" | "));
        }
        for line in self.verdict() {
            let _ = write!(text, "\n{line}\n");
        }
        let Machine { processor, cores, infeed } = &self.machine;
        let processor = processor.as_deref().map_or(String::new(), |name| format!("{name}, "));
        let shared = match self.shared.is_empty() {
            true => String::new(),
            false => format!(", each with {}", code(&self.shared.join(" "))),
        };
        let _ = write!(
            text,
            "\nMedians of {} in turn, {} before them, with `infeed compare` {infeed}{shared}; {processor}{}.\n",
            rounds(self.rounds),
            rounds(self.warmup_rounds),
            if *cores == 1 { "1 core".into() } else { format!("{cores} cores") },
        );
        for warning in self.warnings() {
            let _ = write!(text, "\nWarning: {warning}.\n");
        }
        text
    }

    /// How much faster the fastest is, and which work was equal.
    pub(super) fn verdict(&self) -> Vec<String> {
        let work = self.alike.as_ref().map(|words| format!("equal work: {words}"));
        self.ratios.iter().map(Ratio::words).chain(work).collect()
    }

    /// Reasons to doubt the figures.
    pub(super) fn warnings(&self) -> Vec<String> {
        let work = (!self.differences.is_empty())
            .then(|| format!("the configurations did not do the same work: {}", self.differences.join("; ")));
        work.into_iter().chain(self.warnings.iter().cloned()).collect()
    }

    /// The header of the table, and its rows without the names.
    fn cells(&self) -> (Vec<&'static str>, Vec<Vec<String>>) {
        let mut head =
            vec!["configuration", "samples/s", "±", "min … max", "wait/batch", "CPU/sample", "records", "read/sample"];
        let sums = self.configurations.iter().any(|one| one.runs.iter().any(|run| run.checksum.is_some()));
        head.extend(sums.then_some("checksum"));
        head.push("to the fastest");
        let row = |one: &Compared| {
            let time = |spread: Option<Spread>| spread.map_or(String::new(), |spread| units::time(spread.median));
            let mut row = match one.samples_per_second {
                Some(spread) => vec![
                    rate(spread.median),
                    format!("{:.1} %", 100.0 * spread.relative()),
                    format!("{} … {}", rate(spread.min), rate(spread.max)),
                ],
                None => vec![String::new(); 3],
            };
            let last = one.runs.last();
            row.extend([
                time(one.wait_per_batch_seconds),
                time(one.cpu_seconds_per_sample),
                last.map_or(String::new(), |run| units::count(run.records)),
                last.map_or(String::new(), |run| units::size(run.bytes_per_sample() as u64)),
            ]);
            if sums {
                let sum = last.and_then(|run| run.checksum.as_deref()).unwrap_or_default();
                row.push(sum.get(..8).unwrap_or(sum).to_owned());
            }
            row.push(one.ratio_to_fastest.as_ref().map_or(String::new(), ratio::times));
            row
        };
        let rows = self.configurations.iter().map(row).collect();
        (head, rows)
    }
}

/// One figure of each run.
fn of(runs: &[Measure], figure: impl Fn(&Measure) -> Option<f64>) -> Vec<f64> {
    runs.iter().filter_map(figure).collect()
}

/// Samples per second, with one decimal below 100.
pub(super) fn rate(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { units::count(rate.round() as u64) }
}

fn rounds(count: u64) -> String {
    match count {
        0 => "no round".into(),
        1 => "1 round".into(),
        count => format!("{count} rounds"),
    }
}

fn shortened(name: &str) -> String {
    match name.chars().count() > LONGEST_NAME {
        true => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}

/// A name as code in a Markdown table, with special characters escaped.
fn code(name: &str) -> String {
    format!("`{}`", name.replace('`', "'").replace('|', "\\|"))
}

fn warnings(configurations: &[Configuration], runs: &[Vec<Measure>], warmup_rounds: u64) -> Vec<String> {
    let mut warnings = Vec::new();
    for (configuration, runs) in configurations.iter().zip(runs) {
        let name = configuration.quoted();
        if runs.iter().any(|run| run.batches == 1) {
            warnings.push(format!(
                "{name} made one batch in a run, so its rate includes the start: use more --epochs, a longer \
                 --max-time, or a smaller --batch-size"
            ));
        }
        let rates = of(runs, |run| Some(run.samples_per_second));
        let far = outliers(&rates);
        let Some(middle) = Spread::of(&rates).map(|spread| spread.median) else { continue };
        match far[..] {
            [] => {}
            [0] if rates[0] < middle => warnings.push(format!(
                "the first round of {name} was slow ({} samples/s, median {}): files or caches were cold; \
                 use --warmup {}",
                rate(rates[0]),
                rate(middle),
                warmup_rounds + 1
            )),
            _ => {
                let each = far.iter().map(|&at| format!("round {} {} samples/s", at + 1, rate(rates[at])));
                warnings.push(format!(
                    "{name} has outliers, {} (median {}): something else ran, or the store was slow; use more --rounds \
                     on a quiet machine",
                    each.collect::<Vec<_>>().join(", "),
                    rate(middle)
                ));
            }
        }
    }
    warnings.extend(busy(configurations, runs));
    warnings
}

/// Whether other processes held the cores: over all runs, or else during one run.
fn busy(configurations: &[Configuration], runs: &[Vec<Measure>]) -> Option<String> {
    let known = || runs.iter().flatten().filter_map(|run| run.busy);
    let seconds: f64 = known().map(|busy| busy.seconds).sum();
    let mean = |figure: fn(&Busy) -> f64| known().map(|busy| figure(&busy) * busy.seconds).sum::<f64>() / seconds;
    let of_all = known().next().map(|first| Busy {
        others: mean(|busy| busy.others),
        steal: mean(|busy| busy.steal),
        own: mean(|busy| busy.own),
        seconds,
        ..first
    });
    if let Some(words) = of_all.filter(|_| seconds > 0.0).and_then(|busy| busy.warning()) {
        return Some(words);
    }
    let each = configurations.iter().zip(runs).flat_map(|(configuration, runs)| {
        runs.iter().zip(1..).filter_map(move |(run, round)| Some((configuration, round, run.busy?)))
    });
    let crowded = each.filter(|(.., busy)| busy.is_crowded());
    let (configuration, round, busy) = crowded.max_by(|(.., a), (.., b)| a.held().total_cmp(&b.held()))?;
    Some(format!("round {round} of {}: {}", configuration.quoted(), busy.warning()?))
}

#[cfg(test)]
mod tests {
    use super::{super::configuration::Ends, *};

    fn configurations() -> [Configuration; 2] {
        ["old|toml", "-w 2"].map(|name| Configuration {
            name: name.into(),
            given: name.into(),
            arguments: vec!["/data".into()],
            ends: Ends::Whole,
        })
    }

    fn runs(rates: &[f64]) -> Vec<Measure> {
        let run = |&samples_per_second: &f64| Measure {
            samples_per_second,
            wait_per_batch_seconds: Some(0.002),
            cpu_seconds_per_sample: Some(0.0015),
            records: 250,
            samples: 250,
            batches: 5,
            bytes_read: 250 * 2048,
            ..Measure::default()
        };
        rates.iter().map(run).collect()
    }

    fn report(old: &[f64], new: &[f64]) -> CompareReport {
        CompareReport::new(&configurations(), vec![runs(old), runs(new)], 1, &["-e".into(), "3".into()])
    }

    fn busy(others: f64, seconds: f64) -> Busy {
        Busy { others, steal: 0.0, own: 2.0 - others, cores: 2, usable: 2.0, seconds }
    }

    #[test]
    fn the_fastest_is_told_with_its_lead_over_each_other() {
        let of = report(&[1000.0, 1010.0, 990.0], &[1200.0, 1250.0, 1210.0]);
        assert_eq!(of.fastest.as_deref(), Some("-w 2"));
        let verdict = of.verdict();
        assert_eq!(verdict[0], "'-w 2' is 1.22× (1.20–1.24) as fast as 'old|toml'");
        assert!(verdict[1].starts_with("equal work: 250 samples of 250 records, 500.0 KiB read"), "{verdict:?}");
        let table = of.table();
        let lines: Vec<&str> = table.lines().collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[1]), "old|toml 1,000 1.0 % 990 … 1,010 2.0 ms 1.5 ms 250 2.0 KiB 0.82× (0.81–0.83)");
        assert_eq!(words(lines[2]), "-w 2 1,210 2.2 % 1,200 … 1,250 2.0 ms 1.5 ms 250 2.0 KiB 1.00×");
        assert!(of.warnings().is_empty(), "{:?}", of.warnings());
    }

    #[test]
    fn a_page_has_the_table_the_verdict_and_how_it_was_measured() {
        let text = report(&[1000.0, 1010.0, 990.0], &[1200.0, 1250.0, 50.0]).markdown();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("| configuration | samples/s | ± |"), "{text}");
        assert_eq!(lines[1].matches("---").count(), lines[0].matches(" | ").count() + 1);
        assert!(lines[2].starts_with(r"| `old\|toml` | 1,000 | 1.0 % | 990 … 1,010 |"), "{text}");
        assert_eq!(lines[3].matches('|').count(), lines[0].matches('|').count());
        for words in
            ["as fast as 'old|toml': the difference is within", "Medians of 3 rounds in turn, 1 round before them"]
        {
            assert!(text.contains(words), "no {words:?} in {text}");
        }
        assert!(text.contains("each with `-e 3`; "), "{text}");
    }

    #[test]
    fn outliers_and_cold_starts_are_warned_of() {
        let cold = report(&[400.0, 1010.0, 990.0, 1000.0, 1005.0], &[1200.0; 5]);
        assert_eq!(
            cold.warnings,
            ["the first round of 'old|toml' was slow (400 samples/s, median 1,000): files or caches were cold; \
                use --warmup 2"]
        );
        assert_eq!(cold.configurations[0].outlier_rounds, [1]);
        let odd = report(&[1000.0, 1010.0, 400.0, 990.0, 1005.0], &[12.0, 12.01, 12.02, 12.03, 20.0]);
        assert_eq!(odd.warnings.len(), 2);
        assert!(
            odd.warnings[0].starts_with("'old|toml' has outliers, round 3 400 samples/s (median 1,000): "),
            "{odd:?}"
        );
        assert!(odd.warnings[1].starts_with("'-w 2' has outliers, round 5 20.0 samples/s (median 12.0): "), "{odd:?}");
    }

    #[test]
    fn cores_that_others_held_are_warned_of_once() {
        let with = |of: &[f64], each: &[Busy]| -> Vec<Measure> {
            runs(of).into_iter().zip(each).map(|(run, busy)| Measure { busy: Some(*busy), ..run }).collect()
        };
        let told = |old: &[Busy], new: &[Busy]| {
            let runs = vec![with(&[1000.0, 1010.0], old), with(&[1200.0, 1210.0], new)];
            CompareReport::new(&configurations(), runs, 1, &[]).warnings
        };
        let quiet = [busy(0.0, 3.0); 2];
        assert!(told(&quiet, &quiet).is_empty());
        // Runs too short to tell alone do together.
        let short = told(&[busy(1.0, 0.8); 2], &[busy(1.4, 0.8); 2]);
        assert!(short.len() == 1 && short[0].starts_with("other processes held 1.2 of 2 cores"), "{short:?}");
        let burst = told(&quiet, &[busy(0.0, 3.0), busy(0.5, 3.0)]);
        assert!(burst.len() == 1 && burst[0].starts_with("round 2 of '-w 2': other processes held 0.5"), "{burst:?}");
    }

    #[test]
    fn other_work_and_runs_of_one_batch_are_warned_of() {
        let one = Measure { batches: 1, samples: 100, ..runs(&[100.0]).swap_remove(0) };
        let of = CompareReport::new(&configurations(), vec![runs(&[1000.0]), vec![one]], 1, &[]);
        let warnings = of.warnings();
        let work = "the configurations did not do the same work: samples of a run: 'old|toml' 250, '-w 2' 100";
        assert_eq!(warnings[0], work);
        assert!(warnings[1].starts_with("'-w 2' made one batch in a run"), "{warnings:?}");
        assert_eq!(of.verdict().len(), 1, "there is no equal work to tell");
    }

    #[test]
    fn without_a_round_there_is_nothing_but_what_was_asked() {
        let of = CompareReport::new(&configurations(), vec![Vec::new(), Vec::new()], 1, &[]);
        assert_eq!((of.rounds, &of.fastest, of.ratios.len()), (0, &None, 0));
        let json = serde_json::to_value(&of).unwrap();
        assert!(json["configurations"][0]["samples_per_second"].is_null(), "{json}");
    }

    #[test]
    fn long_names_are_shortened_in_the_table_alone() {
        assert_eq!(shortened("short"), "short");
        let long = "--transform random_resized_crop:224;normalize /data/train";
        assert_eq!(shortened(long).chars().count(), LONGEST_NAME);
        assert!(shortened(long).ends_with('…'));
    }
}
