//! `infeed sweep`: the same run with different workers, batch sizes, …, and the values above which it gets no faster.
//!
//! A *cell* is one combination of settings. Each cell runs `infeed run` in its own process ([`child`](crate::child)).
//!
//! ```text
//! options: lists ─▶ a process a cell ─▶ cell ─▶ knee, auto ─▶ report ─▶ page
//! ```

mod auto;
mod cell;
mod knee;
mod options;
mod page;
mod report;

use std::ffi::OsString;

use auto::AutoReport;
use cell::{Cell, Settings};
use report::SweepReport;

use crate::{
    args::SweepArgs,
    busy::{Busy, Cores},
    child::{Outcome, Runner},
    failure::Failure,
    invocation,
    out::{self, BarOf, JsonTarget, Out},
    signals::Signal,
};

/// `infeed sweep`.
pub(crate) async fn command(args: SweepArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    for path in [&args.out, &args.csv, &args.html].into_iter().flatten() {
        out::check_writable(path)?;
    }
    let wanted = options::settings(&args.lists);
    let given: Vec<OsString> = invocation::args().iter().skip_while(|arg| *arg != "sweep").skip(1).cloned().collect();
    let shared = options::shared_options(given, &args.url);
    let texts: Vec<String> = shared.iter().map(|option| option.to_string_lossy().into_owned()).collect();
    let mut report = match &args.out {
        Some(path) if path.is_file() => SweepReport::read(path, &args.url, &texts)?,
        _ => SweepReport::new(args.url.clone(), texts),
    };
    let cores = Cores::now();
    let mut stopped = run_cells(&args, &wanted, &shared, &mut report, &mut out).await?;
    // Known only after the cells' processes have ended: until then their time would count as other processes'.
    report.busy = cores.since().known();
    report.knee = knee::find(&report.cells, report.busy.as_ref());
    if let (None, Some(rounds)) = (stopped, args.auto) {
        stopped = run_rounds(&args, rounds, &shared, &mut report, &mut out).await?;
    }
    report.write(args.out.as_deref())?;
    out.line(format_args!("\n{}", report::table(&report.cells)))?;
    if let Some(knee) = &report.knee {
        out.words(format_args!("\n{}", knee.words))?;
    }
    if let Some(auto) = report.auto.as_ref().filter(|auto| !auto.words.is_empty()) {
        out.words(format_args!("\n{}", auto.words))?;
    }
    if let Some(warning) = report.busy.as_ref().and_then(Busy::warning) {
        out.warn(warning);
    }
    if let Some(path) = &args.csv {
        out::replace(path, &report::csv(&report.cells)?)?;
    }
    if let Some(path) = &args.html {
        out::replace(path, page::page(&report).as_bytes())?;
    }
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    match (stopped, report.cells.iter().all(|cell| cell.error.is_some()), report.cells.first()) {
        (Some(signal), ..) => {
            let measured =
                |settings: &&Settings| report.cells.iter().any(|cell| cell.asked == **settings && cell.error.is_none());
            let (done, all) = (wanted.iter().filter(measured).count(), wanted.len());
            let after = Some(format!("after {done} of {all} combinations"));
            let hint = if args.out.is_some() {
                "run the same command again to continue"
            } else {
                "with --out, the same command could continue"
            };
            Err(Failure::Stopped { signal, after, hint })
        }
        (None, true, Some(Cell { error: Some(error), .. })) => Err(Failure::Failed(error.clone())),
        _ => Ok(()),
    }
}

/// Runs a cell. Gives the cell, which may have failed, or the signal that stopped it.
async fn run_cell(
    runner: &mut Runner,
    url: &str,
    options: &[OsString],
    settings: &Settings,
) -> Result<Result<Cell, Signal>, Failure> {
    let mut arguments = vec![OsString::from(url)];
    arguments.extend_from_slice(options);
    arguments.extend(settings.options().into_iter().map(OsString::from));
    Ok(match runner.run(&arguments).await? {
        Outcome::Done(told, _) => Ok(Cell::new(settings.clone(), &told)),
        Outcome::Failed { words, .. } => Ok(Cell::failed(settings.clone(), &words)),
        Outcome::Stopped(signal) => Err(signal),
    })
}

/// Measures the cells that have no figures yet. Gives the signal if one stopped it early.
async fn run_cells(
    args: &SweepArgs,
    wanted: &[Settings],
    options: &[OsString],
    report: &mut SweepReport,
    out: &mut Out,
) -> Result<Option<Signal>, Failure> {
    let mut runner = Runner::new()?;
    out.start_bar(wanted.len() as u64, BarOf::Things("combinations"));
    for settings in wanted {
        if report.cells.iter().any(|cell| cell.asked == *settings && cell.error.is_none()) {
            out.progress(format_args!("{settings}: measured before"))?;
            out.bar().inc(1);
            continue;
        }
        let cell = match run_cell(&mut runner, &args.url, options, settings).await? {
            Ok(cell) => cell,
            Err(signal) => {
                out.end_bar();
                return Ok(Some(signal));
            }
        };
        out.progress(format_args!("{settings}: {}", cell.words()))?;
        report.cells.retain(|old| old.asked != *settings);
        report.cells.push(cell);
        report.write(args.out.as_deref())?;
        out.bar().inc(1);
    }
    out.end_bar();
    Ok(None)
}

/// Runs `auto` and the best cell in turn. Gives the signal if one stopped it early.
async fn run_rounds(
    args: &SweepArgs,
    rounds: u64,
    shared: &[OsString],
    report: &mut SweepReport,
    out: &mut Out,
) -> Result<Option<Signal>, Failure> {
    let Some(best) = auto::best(&report.cells) else {
        out.warn(
            "no combination with a fixed number of workers or prefetch has figures, \
             so there is nothing to compare auto with; give --workers a list",
        );
        return Ok(None);
    };
    let settle = args.settle;
    // Earlier rounds count if they compared the same settings.
    let same = |known: &AutoReport| known.best == best.asked && known.settle_seconds == settle.as_secs_f64();
    let mut found = report.auto.take().filter(same).unwrap_or_else(|| AutoReport::new(&best.asked, settle));
    let mut runner = Runner::new()?;
    let options = auto::options(shared, settle, args.max_time);
    out.start_bar(rounds, BarOf::Things("rounds"));
    while (found.rounds.len() as u64) < rounds {
        let mut pair = [found.auto(), found.best.clone()];
        // The order alternates, because a machine may get slower or faster over time.
        let swapped = found.rounds.len() % 2 == 1;
        if swapped {
            pair.reverse();
        }
        let mut cells = Vec::new();
        for settings in &pair {
            match run_cell(&mut runner, &args.url, &options, settings).await? {
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
        out.progress(format_args!("auto: {}; {}: {}", auto.words(), found.best, best.words()))?;
        found.add(auto::Round { auto, best });
        report.auto = Some(found.clone());
        report.write(args.out.as_deref())?;
        out.bar().inc(1);
    }
    out.end_bar();
    report.auto = Some(found);
    Ok(None)
}
