//! `infeed compare`: configurations in turn, and how much faster one is than the others.
//!
//! ```text
//! configuration: words as typed ─▶ one process per run ─▶ measure ─▶ ratio, work ─▶ report
//! ```
//!
//! Each round runs all configurations, every second round in reverse order, and ratios are taken round by round. So a
//! machine that gets slower over time slows down all configurations equally.

mod configuration;
mod measure;
mod ratio;
mod report;
mod work;

use std::{ffi::OsString, path::Path};

use configuration::Configuration;
use measure::Measure;
use report::CompareReport;

use crate::{
    args::CompareArgs,
    busy::Busy,
    child::{Outcome, Runner},
    failure::Failure,
    out::{self, BarOf, JsonTarget, Out},
    signals::Signal,
};

/// `infeed compare`.
pub(crate) async fn command(args: CompareArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.export_markdown.as_deref().map_or(Ok(()), out::check_writable)?;
    let Some(configurations) = configuration::all(&args)? else { return Ok(()) };
    let mut runs: Vec<Vec<Measure>> = vec![Vec::new(); configurations.len()];
    let ended = run_rounds(&args, &configurations, &mut runs, &mut out).await;
    out.end_bar();
    let ended = ended?;
    let report = CompareReport::new(&configurations, runs, args.warmup, &args.shared);
    if report.rounds > 0 {
        out.line(format_args!("\n{}\n", report.table()))?;
        for line in report.verdict() {
            out.words(line)?;
        }
        report.warnings().iter().for_each(|warning| out.warn(warning));
        let page = |path: &Path| out::replace(path, report.markdown().as_bytes());
        args.export_markdown.as_deref().map_or(Ok(()), page)?;
    }
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    match ended {
        Ended::Done => Ok(()),
        Ended::Failed(failure) => Err(failure),
        Ended::Stopped(signal) => {
            let hint = match report.rounds {
                0 => "no round was finished, so there are no figures",
                _ => "the figures are those of the rounds before it",
            };
            let after = Some(format!("after {} of {} rounds", report.rounds, args.rounds));
            Err(Failure::Stopped { signal, after, hint })
        }
    }
}

/// How the rounds ended. Rounds that were finished before count.
enum Ended {
    Done,
    Failed(Failure),
    Stopped(Signal),
}

/// Runs all rounds, and adds the figures of finished rounds to `runs`.
async fn run_rounds(
    args: &CompareArgs,
    configurations: &[Configuration],
    runs: &mut [Vec<Measure>],
    out: &mut Out,
) -> Result<Ended, Failure> {
    let mut runner = Runner::new()?;
    let all = args.warmup.saturating_add(args.rounds).saturating_mul(configurations.len() as u64);
    out.start_bar(all, BarOf::Things("runs"));
    let mut told = vec![false; configurations.len()];
    let warmups = (0..args.warmup).map(|n| (format!("warm-up {}", n + 1), false, false));
    let rounds = (0..args.rounds).map(|n| (format!("round {}", n + 1), n % 2 == 1, true));
    for (name, reversed, measured) in warmups.chain(rounds) {
        let mut order: Vec<usize> = (0..configurations.len()).collect();
        if reversed {
            order.reverse();
        }
        let mut round: Vec<(usize, Measure)> = Vec::with_capacity(order.len());
        for at in order {
            let configuration = &configurations[at];
            let arguments: Vec<OsString> = configuration.arguments.iter().map(OsString::from).collect();
            match runner.run(&arguments).await? {
                Outcome::Done(json, warnings) => {
                    let measure = Measure::new(&json);
                    // Warn once, not in every round.
                    if !std::mem::replace(&mut told[at], true) {
                        warn(configuration, &measure, &warnings, out);
                    }
                    round.push((at, measure));
                }
                Outcome::Failed { words, usage } => {
                    let words = format!("{}: {words}", configuration.quoted());
                    return Ok(Ended::Failed(if usage { Failure::Usage(words) } else { Failure::Failed(words) }));
                }
                Outcome::Stopped(signal) => return Ok(Ended::Stopped(signal)),
            }
            out.bar().inc(1);
        }
        round.sort_by_key(|(at, _)| *at);
        let rates = round.iter().map(|(at, measure)| {
            format!("{} {} samples/s", configurations[*at].quoted(), report::rate(measure.samples_per_second))
        });
        out.progress(format_args!("{name}: {}", rates.collect::<Vec<_>>().join(", ")))?;
        if measured {
            round.into_iter().for_each(|(at, measure)| runs[at].push(measure));
        }
    }
    Ok(Ended::Done)
}

/// Passes on the warnings of a run, except about busy cores: one warning covers all runs.
fn warn(configuration: &Configuration, measure: &Measure, warnings: &[String], out: &Out) {
    let busy = measure.busy.as_ref().and_then(Busy::warning);
    for warning in warnings.iter().filter(|warning| Some(*warning) != busy.as_ref()) {
        out.warn(format_args!("{}: {warning}", configuration.quoted()));
    }
}
