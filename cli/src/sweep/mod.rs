//! `infeed sweep`: the same run with other workers, batch sizes, … and where more of them stops helping.
//!
//! Each cell is an `infeed run` in a process of its own: peak memory, processor time and what is warm are that cell's,
//! and a cell that fails, or is killed for its memory, costs no other.

mod auto;
mod cell;
pub(crate) mod knee;

use std::{ffi::OsString, fs, path::Path, process::Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process::Command;

pub(crate) use auto::AutoReport;
pub(crate) use cell::{Cell, Settings};
use knee::Knee;

use crate::{
    args::{ListArgs, SweepArgs},
    failure::Failure,
    html,
    out::{self, JsonTarget, Out},
    report,
    signals::{Signal, Signals},
    units,
};

/// The JSON of `sweep` and of its `--out`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SweepReport {
    pub version: u32,
    pub url: String,
    /// The options that all cells have.
    pub options: Vec<String>,
    pub cells: Vec<Cell>,
    /// The cell to take, and why; `None` while there are none to compare.
    pub knee: Option<Knee>,
    /// What `auto` comes to beside the best cell; `None` unless that was asked for.
    #[serde(default)]
    pub auto: Option<AutoReport>,
}

const VERSION: u32 = 1;

/// `infeed sweep`.
pub(crate) async fn command(args: SweepArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    for path in [&args.out, &args.csv, &args.html].into_iter().flatten() {
        out::check_writable(path)?;
    }
    let wanted = settings(&args.lists);
    let given: Vec<OsString> = std::env::args_os().skip_while(|arg| arg != "sweep").skip(1).collect();
    let options = shared_options(given, &args.url);
    let texts = options.iter().map(|option| option.to_string_lossy().into_owned()).collect();
    let mut report = match &args.out {
        Some(path) if path.is_file() => resumed(path, &args.url, &texts)?,
        _ => SweepReport {
            version: VERSION,
            url: args.url.clone(),
            options: texts,
            cells: Vec::new(),
            knee: None,
            auto: None,
        },
    };
    let mut stopped = run_cells(&args, &wanted, &options, &mut report, &mut out).await?;
    report.knee = knee::find(&report.cells);
    if let (None, Some(rounds)) = (stopped, args.auto) {
        stopped = run_rounds(&args, rounds, &options, &mut report, &mut out).await?;
    }
    save(&args, &report)?;
    out.line(format_args!("\n{}", table(&report.cells)))?;
    if let Some(knee) = &report.knee {
        out.line(format_args!("\n{}", knee.words))?;
    }
    if let Some(auto) = report.auto.as_ref().filter(|auto| !auto.words.is_empty()) {
        out.line(format_args!("\n{}", auto.words))?;
    }
    if let Some(path) = &args.csv {
        out::replace(path, &csv(&report.cells)?)?;
    }
    if let Some(path) = &args.html {
        out::replace(path, html::sweep(&report).as_bytes())?;
    }
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    match (stopped, report.cells.iter().all(|cell| cell.error.is_some()), report.cells.first()) {
        (Some(signal), ..) if args.out.is_some() => Err(Failure::Stopped(signal, "the same command goes on")),
        (Some(signal), ..) => Err(Failure::Stopped(signal, "with --out it could go on later")),
        (None, true, Some(Cell { error: Some(error), .. })) => Err(Failure::Failed(error.clone())),
        _ => Ok(()),
    }
}

/// Measures the cells that are not there yet; the signal that ended it early.
async fn run_cells(
    args: &SweepArgs,
    wanted: &[Settings],
    options: &[OsString],
    report: &mut SweepReport,
    out: &mut Out,
) -> Result<Option<Signal>, Failure> {
    let mut runner = Runner::new(&args.url)?;
    out.start_bar(wanted.len() as u64, "{msg} {wide_bar} {pos}/{len} cells, {eta} left");
    for settings in wanted {
        if report.cells.iter().any(|cell| cell.asked == *settings && cell.error.is_none()) {
            out.line(format_args!("{settings}: measured before"))?;
            out.bar().inc(1);
            continue;
        }
        let cell = match runner.run(options, settings).await? {
            Ok(cell) => cell,
            Err(signal) => {
                out.end_bar();
                return Ok(Some(signal));
            }
        };
        out.line(format_args!("{settings}: {}", cell.words()))?;
        report.cells.retain(|old| old.asked != *settings);
        report.cells.push(cell);
        save(args, report)?;
        out.bar().inc(1);
    }
    out.end_bar();
    Ok(None)
}

/// Runs `auto` and the best cell in turn; the signal that ended it early.
async fn run_rounds(
    args: &SweepArgs,
    rounds: u64,
    options: &[OsString],
    report: &mut SweepReport,
    out: &mut Out,
) -> Result<Option<Signal>, Failure> {
    let Some(best) = auto::best(&report.cells) else {
        out.warn("no cell with workers or prefetch of its own has figures, so there is nothing to compare auto with; give --workers a list");
        return Ok(None);
    };
    let settle = args.settle;
    // What was measured before counts if it is the same comparison.
    let same = |known: &AutoReport| known.best == best.asked && known.settle_seconds == settle.as_secs_f64();
    let mut found = report.auto.take().filter(same).unwrap_or_else(|| AutoReport::new(&best.asked, settle));
    let mut runner = Runner::new(&args.url)?;
    let options = auto::options(options, settle, args.max_time);
    out.start_bar(rounds, "{msg} {wide_bar} {pos}/{len} rounds, {eta} left");
    while (found.rounds.len() as u64) < rounds {
        let mut pair = [found.auto(), found.best.clone()];
        // Who is first changes: a machine may get slower or faster by itself.
        let swapped = found.rounds.len() % 2 == 1;
        if swapped {
            pair.reverse();
        }
        let mut cells = Vec::new();
        for settings in &pair {
            match runner.run(&options, settings).await? {
                Ok(cell) if cell.error.is_some() => {
                    return Err(Failure::Failed(format!("{settings}: {}", cell.words())));
                }
                Ok(cell) => cells.push(cell),
                Err(signal) => {
                    out.end_bar();
                    report.auto = Some(found);
                    return Ok(Some(signal));
                }
            }
        }
        if swapped {
            cells.reverse();
        }
        let (Some(best), Some(auto)) = (cells.pop(), cells.pop()) else { break };
        out.line(format_args!("auto: {}; {}: {}", auto.words(), found.best, best.words()))?;
        found.add(auto::Round { auto, best });
        report.auto = Some(found.clone());
        save(args, report)?;
        out.bar().inc(1);
    }
    out.end_bar();
    report.auto = Some(found);
    Ok(None)
}

/// Runs cells, each in a process of its own.
struct Runner {
    program: std::path::PathBuf,
    url: String,
    signals: Signals,
}

impl Runner {
    fn new(url: &str) -> Result<Self, Failure> {
        Ok(Self { program: std::env::current_exe()?, url: url.into(), signals: Signals::new()? })
    }

    /// A cell, one that failed too; or the signal that ended it.
    async fn run(&mut self, options: &[OsString], settings: &Settings) -> Result<Result<Cell, Signal>, Failure> {
        let mut child = Command::new(&self.program);
        child.arg("run").arg(&self.url).args(options).args(settings.options()).args(["--json", "-"]);
        child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let ran = tokio::select! {
            ran = child.output() => ran?,
            signal = self.signals.next() => return Ok(Err(signal)),
        };
        match ran.status.success() {
            true => {
                let told: Value = serde_json::from_slice(&ran.stdout)
                    .map_err(|error| Failure::Failed(format!("a cell's figures can't be read: {error}")))?;
                Ok(Ok(Cell::new(settings.clone(), &told)))
            }
            // The terminal's Ctrl-C reached the cell first.
            false if matches!(ran.status.code(), Some(130 | 143)) => {
                Ok(Err(if ran.status.code() == Some(130) { Signal::Interrupt } else { Signal::Terminate }))
            }
            false => Ok(Ok(Cell::failed(settings.clone(), &last_words(&ran.stderr, ran.status)))),
        }
    }
}

fn save(args: &SweepArgs, report: &SweepReport) -> Result<(), Failure> {
    let Some(path) = &args.out else { return Ok(()) };
    let mut text = serde_json::to_vec(report).map_err(|error| Failure::file("cannot write", path, error))?;
    text.push(b'\n');
    out::replace(path, &text)
}

/// The cells that were measured before, if they are of this sweep.
fn resumed(path: &Path, url: &str, options: &Vec<String>) -> Result<SweepReport, Failure> {
    let text = fs::read(path).map_err(|error| Failure::file("cannot read", path, error))?;
    let refuse = |what: String| Failure::file("cannot go on from", path, what);
    let report: SweepReport =
        serde_json::from_slice(&text).map_err(|error| refuse(format!("not written by infeed sweep: {error}")))?;
    if report.version != VERSION {
        return Err(refuse(format!("it has version {}, this infeed reads {VERSION}", report.version)));
    }
    if report.url != url || report.options != *options {
        let old = report.options.join(" ");
        return Err(refuse(format!("it holds a sweep of {} {old}; use another --out", report.url)));
    }
    Ok(report)
}

/// Every combination, workers changing fastest.
fn settings(lists: &ListArgs) -> Vec<Settings> {
    fn texts<T>(list: &[T], text: impl Fn(&T) -> String) -> Vec<Option<String>> {
        // An option that was not given stays as it is.
        if list.is_empty() { vec![None] } else { list.iter().map(|value| Some(text(value))).collect() }
    }
    let auto = |value: &crate::args::Auto<usize>| value.0.map_or("auto".into(), |n| n.to_string());
    let mut all = Vec::new();
    for device in texts(&lists.device, |device| device.0.map_or("auto".into(), |device| device.to_string())) {
        for dtype in texts(&lists.dtype, |dtype| infeed::DType::from(*dtype).to_string()) {
            for prefetch in texts(&lists.prefetch, auto) {
                for batch_size in texts(&lists.batch_size, ToString::to_string) {
                    for workers in texts(&lists.workers, auto) {
                        let (device, dtype) = (device.clone(), dtype.clone());
                        let (prefetch, batch_size) = (prefetch.clone(), batch_size.clone());
                        let settings = Settings { workers, batch_size, prefetch, dtype, device };
                        if !all.contains(&settings) {
                            all.push(settings);
                        }
                    }
                }
            }
        }
    }
    all
}

/// What was typed, less the url, the lists and where the sweep's own figures go. Clap has taken all of it, so each of
/// these has its value.
fn shared_options(given: Vec<OsString>, url: &str) -> Vec<OsString> {
    const OWN: [&str; 11] = [
        "--workers",
        "--batch-size",
        "--prefetch",
        "--dtype",
        "--device",
        "--out",
        "--csv",
        "--json",
        "--html",
        "--auto",
        "--settle",
    ];
    let (mut kept, mut given, mut url_seen) = (Vec::new(), given.into_iter(), false);
    while let Some(word) = given.next() {
        let text = word.to_string_lossy();
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        if OWN.contains(&name) {
            if name.len() == text.len() {
                given.next();
            }
        } else if !url_seen && text == url {
            url_seen = true;
        } else {
            let takes_value = text.starts_with("--") && name.len() == text.len();
            kept.push(word);
            // Every option of a run that a sweep has takes a value, which may look like one of the words above.
            if takes_value {
                kept.extend(given.next());
            }
        }
    }
    // Nobody said how long: an epoch may take a millisecond or a day, and neither tells which cell is faster.
    let ends = ["--epochs", "--max-batches", "--max-time"];
    let says = |option: &OsString| ends.iter().any(|end| option.to_string_lossy().split('=').next() == Some(end));
    if !kept.iter().any(says) {
        kept.extend(["--epochs", "1000000000", "--max-time", CELL].map(OsString::from));
    }
    kept
}

/// How long a cell runs when the command says no other end.
const CELL: &str = "3s";

/// The end of what a failed cell said.
fn last_words(stderr: &[u8], status: std::process::ExitStatus) -> String {
    let said = String::from_utf8_lossy(stderr);
    let line = said.lines().find_map(|line| line.strip_prefix("error: "));
    match line {
        Some(line) => line.to_owned(),
        None => format!("the cell ended with {status}"),
    }
}

/// Cells by batch size and workers.
fn table(cells: &[Cell]) -> String {
    let mut table = report::table();
    let head = [
        "workers",
        "batch",
        "prefetch",
        "dtype",
        "device",
        "it/s",
        "samples/s",
        "CPU",
        "cores",
        "peak memory",
        "first batch",
        "GPU",
    ];
    table.set_header(head);
    for cell in cells {
        let number = |value: Option<u64>| value.map_or(String::new(), |n| n.to_string());
        let mut row = vec![
            number(cell.workers),
            number(cell.batch_size),
            number(cell.prefetch),
            cell.dtype.clone().unwrap_or_default(),
            cell.device.clone().unwrap_or_default(),
        ];
        if let Some(error) = &cell.error {
            row.push(error.clone());
        } else {
            row.extend([
                format!("{:.2}", cell.iterations_per_second),
                units::count(cell.samples_per_second.round() as u64),
                cell.cpu_seconds.map_or(String::new(), units::time),
                cell.cores_used().map_or(String::new(), |cores| format!("{cores:.2}")),
                cell.peak_rss_bytes.map_or(String::new(), units::size),
                cell.first_batch_seconds.map_or(String::new(), units::time),
                cell.gpu_words(),
            ]);
        }
        table.add_row(row);
    }
    report::align_right(&mut table, 0..);
    table.trim_fmt()
}

fn csv(cells: &[Cell]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("cannot write CSV: {error}"));
    for cell in cells {
        writer.serialize(cell.flat()).map_err(|error| failed(&error))?;
    }
    writer.into_inner().map_err(|error| failed(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Auto;

    #[test]
    fn cells_get_the_options_that_are_not_the_sweeps() {
        let given = [
            "/data",
            "--workers",
            "1,2",
            "--transform",
            "none",
            "--batch-size=4,8",
            "--out",
            "x",
            "--shuffle",
            "7",
            "--config",
            "--out",
            "--json",
            "-",
            "--auto",
            "3",
        ];
        let kept = shared_options(given.map(OsString::from).into(), "/data");
        let said = ["--transform", "none", "--shuffle", "7", "--config", "--out"];
        assert_eq!(kept, [&said[..], &["--epochs", "1000000000", "--max-time", CELL]].concat());
        let given = ["/data", "--max-batches=7"].map(OsString::from);
        assert_eq!(shared_options(given.into(), "/data"), ["--max-batches=7"]);
    }

    #[test]
    fn every_combination_is_a_cell_once() {
        let lists = ListArgs {
            batch_size: vec![4, 8],
            dtype: Vec::new(),
            device: Vec::new(),
            workers: vec![Auto(Some(1)), Auto(None), Auto(Some(1))],
            prefetch: vec![Auto(Some(2))],
        };
        let all: Vec<String> = settings(&lists).iter().map(ToString::to_string).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(all[0], "workers 1, batch-size 4, prefetch 2");
        assert_eq!(all[3], "workers auto, batch-size 8, prefetch 2");
    }
}
