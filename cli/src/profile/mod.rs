//! `infeed profile`: where the time of a run goes, in the form of the frameworks' profilers.

mod page;
mod report;
mod stages;

use std::time::Instant;

use report::ProfileReport;

use crate::{
    args::ProfileArgs,
    busy::Busy,
    failure::Failure,
    options::{self, Steps},
    out::{self, JsonTarget, Out},
    process,
    run::{self, Observers},
    trace::Trace,
    units,
};

/// `infeed profile`.
pub(crate) async fn command(args: ProfileArgs, trace: Option<Trace>) -> Result<(), Failure> {
    let mut out = Out::new(args.run.json.as_ref());
    args.run.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.run.html.as_deref().map_or(Ok(()), out::check_writable)?;
    if args.run.state.is_some() || args.run.resume.is_some() {
        return Err(Failure::Usage("--state and --resume are for infeed run; omit them".into()));
    }
    Steps::check(args.run.loader.fixed.transform.as_deref())?;
    let start = Instant::now();
    let dataset = args.run.dataset.open(&args.run.url, || options::rank(&args.run.loader.fixed)).await?;
    let open_seconds = start.elapsed().as_secs_f64();
    let before = process::threads();
    let run = run::on(&args.run, &dataset, open_seconds, None, &mut out, &mut Observers::default()).await?;
    let threads = report::grown(&before, &run.threads);
    // The runs below are not part of the trace.
    let traced = trace.as_ref().map(Trace::finish).transpose()?;
    let stopped = run.stopped;
    let alone = match stopped.is_some() || args.no_stages {
        true => (Vec::new(), Vec::new()),
        false => stages::measure_all(&args.run, &dataset, &mut out).await?,
    };
    let report = ProfileReport::new(run, threads, alone);
    out.line(format_args!("\n{}", report.words()))?;
    if let Some(warning) = report.run.busy.as_ref().and_then(Busy::warning) {
        out.warn(warning);
    }
    if let (Some(path), Some((events, left_out))) = (&args.trace, traced) {
        out.line(format_args!(
            "\ntrace: {} events in {}; open it at https://ui.perfetto.dev",
            units::count(events),
            path.display()
        ))?;
        if left_out > 0 {
            out.warn(format_args!("{} events did not fit; use --max-batches to trace less", units::count(left_out)));
        }
    }
    if let Some(path) = &args.run.html {
        out::replace(path, page::page(&report).as_bytes())?;
    }
    args.run.json.as_ref().map_or(Ok(()), |json| json.write(&report))?;
    match stopped {
        Some(signal) => {
            let after = report.run.stopped_after();
            Err(Failure::Stopped { signal, after, hint: "the table covers the run until then" })
        }
        None => Ok(()),
    }
}
