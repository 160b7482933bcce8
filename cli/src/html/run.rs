//! The page of a run, which is also a part of other pages.

use std::time::Duration;

use infeed::report::{Stage, StageReport};

use super::{Page, charts, settings};
use crate::{
    busy::Busy,
    report::{RunReport, autotune_words, cause_words, decoded_by_words, traffic_words},
    units,
    usage::Moment,
};

/// The page of `infeed run`.
pub(crate) fn run_page(report: &RunReport) -> String {
    let mut page = Page::new("infeed run", &report.url);
    page.verdict(&report.verdict());
    run_parts(&mut page, report);
    run_settings(&mut page, report);
    page.end()
}

/// Figures, pictures and tables of a run.
pub(crate) fn run_parts(page: &mut Page, run: &RunReport) {
    // The box above has the advice, and the section with curves has disk and network.
    let traffic = run.sampled.as_ref().map(traffic_words).unwrap_or_default();
    let elsewhere = |name: &str| name == "next" || traffic.iter().any(|(known, _)| *known == name);
    let rows = run.rows().into_iter().filter(|(name, _)| !elsewhere(name));
    let mut rows: Vec<_> = rows.map(|(name, words)| vec![name.to_owned(), words]).collect();
    if run.device == "cpu" {
        rows.push(vec!["device".into(), "cpu (no GPU used)".into()]);
    }
    // With several classes, the rows above include it.
    if run.stream.decoded_by.len() == 1 {
        rows.push(vec!["decoded by".into(), decoded_by_words(&run.stream.decoded_by)]);
    }
    page.table(&[], &rows);
    if let Some(warning) = run.busy.as_ref().and_then(Busy::sentence) {
        page.words(&warning);
    }
    if run.stream.batches == 0 {
        page.words("No batch was delivered, so there are no times to show.");
        return;
    }
    // Only the loop of a command records the time of each batch.
    let timed = !run.line.steps.is_empty();
    if timed {
        page.heading("Time line")
            .words("For each batch, the time of the step and the part of it spent waiting for data.");
        page.figure(charts::time_line(&run.line.steps));
    }
    if let Some(sampled) = &run.sampled {
        page.heading("Processor, disk and network").words(
            "Cores and disk are figures of this process; network figures are of the machine, with all its processes.",
        );
        let rows = sampled.cores_mean.zip(sampled.cores_max);
        let rows = rows.map(|(mean, max)| ("cores busy", format!("{mean:.2} on average, at most {max:.2}")));
        let rows = rows.into_iter().chain(traffic_words(sampled)).map(|(name, words)| vec![name.to_owned(), words]);
        page.table(&[], &rows.collect::<Vec<_>>());
        let pick = |pick: fn(&Moment) -> Option<f64>| -> Vec<(f64, f64)> {
            sampled.line.iter().filter_map(|moment| Some((moment.at, pick(moment)?))).collect()
        };
        page.figure(charts::over_time("cores", &[("cores busy", pick(|moment| moment.cores))]));
        const MIB: f64 = 1_048_576.0;
        let rates = [
            ("disk read", pick(|moment| moment.disk_read.map(|rate| rate / MIB))),
            ("disk written", pick(|moment| moment.disk_written.map(|rate| rate / MIB))),
            ("received (machine)", pick(|moment| moment.received.map(|rate| rate / MIB))),
            ("sent (machine)", pick(|moment| moment.sent.map(|rate| rate / MIB))),
            ("loopback (machine)", pick(|moment| moment.loopback.map(|rate| rate / MIB))),
        ];
        // Leave out lines that stay at 0.
        let moved: Vec<_> = rates.into_iter().filter(|(_, line)| line.iter().any(|(_, rate)| *rate > 0.01)).collect();
        page.figure(charts::over_time("MiB/s", &moved));
    }
    if timed {
        page.heading("Waits for data").figure(charts::histogram(&run.line.steps));
    }
    page.heading("Stages").words(
        "Seconds summed over threads: working (busy), without input (starved), without room for output (blocked).",
    );
    let stages: Vec<_> = run.stream.stages.iter().filter(|stage| stage.items > 0 || !stage.blocked.is_zero()).collect();
    page.figure(charts::stages(&stages));
    let cells = |stage: &&StageReport| {
        let time = |time: Duration| units::time(time.as_secs_f64());
        let name = if stage.stage == Stage::Yield { "trainer" } else { stage.stage.name() };
        vec![
            name.to_owned(),
            time(stage.busy),
            time(stage.starved),
            time(stage.blocked),
            if stage.cpu.is_zero() { String::new() } else { time(stage.cpu) },
            if run.device == "cpu" { "no GPU".into() } else { time(stage.device) },
            units::count(stage.items),
            units::size(stage.bytes),
            time(stage.p50),
            time(stage.p99),
        ]
    };
    let rows: Vec<_> = stages.iter().map(cells).collect();
    let head = ["", "busy", "starved", "blocked", "CPU", "on GPU", "items", "bytes", "p50", "p99"];
    page.table(&head, &rows);
    if !run.stream.late_causes.is_empty() {
        page.heading("Late batches");
        let causes = run.stream.late_causes.iter().map(|cause| {
            let wait = units::time(cause.wait.as_secs_f64());
            vec![cause_words(cause.cause).to_owned(), units::count(cause.batches), wait]
        });
        page.table(&["waiting for", "batches", "wait"], &causes.collect::<Vec<_>>());
        let worst = || run.stream.late_batches.iter().take(10);
        // Most waits have no single object as cause.
        let objects = worst().any(|late| late.object.is_some());
        let rows = worst().map(|late| {
            let object = late.object.clone().unwrap_or_else(|| "no single object".into());
            let figures = [units::count(late.epoch), units::count(late.batch), units::time(late.wait.as_secs_f64())];
            let names = objects.then_some(object).into_iter().chain([late.cause.name().to_owned()]);
            names.chain(figures).collect::<Vec<_>>()
        });
        page.words("The longest waits:");
        let head = ["object", "cause", "epoch", "batch", "wait"];
        page.table(&head[usize::from(!objects)..], &rows.collect::<Vec<_>>());
    }
    page.heading("Queues").words("How full they were when the trainer requested a batch.");
    let queues = run.stream.queues.iter().map(|queue| {
        // The queue `encoded` is counted in bytes.
        let words = |n: u64| if queue.name == "encoded" { units::size(n) } else { units::count(n) };
        let mean = if queue.name == "encoded" { words(queue.mean as u64) } else { units::number(queue.mean) };
        let of = queue.capacity.map_or("no own limit".into(), words);
        let empty = format!("{:.0} %", 100.0 * queue.empty);
        vec![queue.name.to_owned(), mean, words(queue.max), of, empty]
    });
    page.table(&["queue", "mean", "most", "capacity", "found empty"], &queues.collect::<Vec<_>>());
    if let Some(words) = autotune_words(&run.stream.autotune) {
        page.heading("Autotune").words(&words);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let rows = run.stream.autotune.decisions.iter().map(|decision| {
            vec![
                units::time(decision.at.as_secs_f64()),
                format!("{} {} → {}", decision.what, decision.from, decision.to),
                decision.why.to_string(),
                percent(decision.waiting),
                percent(decision.busy),
                units::count(decision.samples_per_second.round() as u64),
            ]
        });
        let rows: Vec<_> = rows.collect();
        if !rows.is_empty() {
            page.table(&["at", "change", "why", "trainer waited", "threads busy", "samples/s before"], &rows);
        }
    }
    if !run.stream.bad_samples.is_empty() {
        page.heading("Bad samples");
        let rows = run.stream.bad_samples.iter().take(20).map(|bad| vec![units::count(bad.record), bad.error.clone()]);
        page.table(&[], &rows.collect::<Vec<_>>());
    }
}

/// All settings of the run.
pub(crate) fn run_settings(page: &mut Page, run: &RunReport) {
    page.heading("Settings").table(&[], &settings::rows(&run.config));
}
