//! The page of `infeed profile`.

use super::report::{AloneReport, ProfileReport, StepReport};
use crate::{
    html::{Page, charts, run_parts, run_settings},
    report::cause_words,
    units,
};

pub(super) fn page(report: &ProfileReport) -> String {
    let mut page = Page::new("infeed profile", &report.run.url);
    page.verdict(&report.run.verdict());
    page.heading("Where the time went");
    let or = |value: Option<f64>, none: &str| value.map_or(none.into(), units::time);
    let rows = report.table.iter().map(|row| {
        vec![
            row.name.to_owned(),
            units::time(row.self_seconds),
            units::time(row.total_seconds),
            units::time(row.average_seconds),
            units::count(row.calls),
            or(row.cpu_seconds, ""),
            or(row.device_seconds, "no GPU"),
        ]
    });
    page.table(&["", "self", "total", "average", "calls", "CPU", "on GPU"], &rows.collect::<Vec<_>>());
    page.heading("First batch");
    let mut rows = vec![
        vec!["open (before it)".to_owned(), units::time(report.run.open_seconds)],
        vec!["build (before it)".to_owned(), units::time(report.run.build_seconds)],
    ];
    let parts = &report.run.stream.first_batch_parts;
    rows.extend(parts.iter().map(|part| vec![cause_words(part.cause).into(), units::time(part.time.as_secs_f64())]));
    rows.push(vec!["first batch".into(), or(report.run.first_batch_seconds(), "none arrived")]);
    page.table(&["", "time"], &rows);
    if !report.alone.is_empty() {
        page.heading("Stages alone").words("Samples per second when only this stage runs.");
        page.figure(charts::rates_by_workers(&by_stage(&report.alone)));
        let rows = report.alone.iter().map(|row| {
            let rate = units::number(row.samples_per_second);
            vec![row.stage.to_owned(), row.workers.to_string(), rate, or(row.first_batch_seconds, "")]
        });
        page.table(&["stage", "workers", "samples/s", "first batch"], &rows.collect::<Vec<_>>());
    }
    if !report.steps.is_empty() {
        page.heading("Augmentations").words("Additional time of one thread per sample with the step.");
        let rows = report.steps.iter().map(|step| {
            let StepReport { view, step, name, seconds, share } = step;
            let place = view.as_ref().map_or_else(|| step.to_string(), |view| format!("{view} {step}"));
            vec![place, name.clone(), units::time(*seconds), format!("{:.0} %", 100.0 * share)]
        });
        page.table(&["step", "", "per sample", "of the transform"], &rows.collect::<Vec<_>>());
    }
    page.heading("The run");
    run_parts(&mut page, &report.run);
    run_settings(&mut page, &report.run);
    page.end()
}

/// Rates by workers of each stage, which are measured one after the other.
fn by_stage(alone: &[AloneReport]) -> Vec<(String, Vec<(f64, f64)>)> {
    let stages = alone.chunk_by(|a, b| a.stage == b.stage);
    let line = |rows: &[AloneReport]| rows.iter().map(|row| (row.workers as f64, row.samples_per_second)).collect();
    stages.map(|rows| (rows[0].stage.to_owned(), line(rows))).collect()
}
