//! The page of `infeed doctor`.

use super::report::DoctorReport;
use crate::{
    busy::Busy,
    html::{Page, charts, run_parts, run_settings},
    report::Verdict,
    units,
};

pub(super) fn page(report: &DoctorReport) -> String {
    let mut page = Page::new("infeed doctor", &report.url);
    let DoctorReport { diagnosis, .. } = report;
    page.verdict(&Verdict { found: diagnosis.found.clone(), next: diagnosis.next.clone() });
    if let Some(warning) = report.busy.as_ref().and_then(Busy::sentence) {
        page.words(&warning);
    }
    page.heading("Runs that leave out one part each");
    let bars: Vec<_> =
        report.trials.iter().map(|t| (t.name, t.step_seconds - t.wait_seconds, t.wait_seconds)).collect();
    page.figure(charts::trials(&bars));
    let rows = report.trials.iter().map(|trial| {
        let rate = trial.samples_per_second.map_or("no bound".into(), units::number);
        vec![trial.name.to_owned(), units::time(trial.step_seconds), units::time(trial.wait_seconds), rate]
    });
    page.table(&["run", "step", "waiting", "samples/s"], &rows.collect::<Vec<_>>());
    let stalls = &report.diagnosis.stalls;
    let share = |time: f64| format!("{:.1} % of a step", 100.0 * time / report.figures.cold.max(f64::MIN_POSITIVE));
    let rows = [
        // Not AU: the cold run below has it, and it leaves out the first batch.
        vec!["trainer's own".into(), share(report.figures.headspace.min(report.figures.cold))],
        vec!["fetch stall".into(), share(stalls.fetch)],
        vec!["prep stall".into(), share(stalls.prep)],
        vec!["transfer stall".into(), share(stalls.transfer)],
    ];
    page.table(&[], &rows);
    page.heading("Possible changes");
    let changes = report.diagnosis.changes.iter();
    let changes = changes.map(|change| vec![change.change.clone(), gain(change.gain)]);
    page.table(&[], &changes.collect::<Vec<_>>());
    page.heading("Machine and data");
    let checks = report.checks.iter();
    let checks = checks
        .map(|check| vec![format!("{}{}", check.name, if check.ok { "" } else { " (look)" }), check.words.clone()]);
    page.table(&[], &checks.collect::<Vec<_>>());
    page.heading("The cold run");
    run_parts(&mut page, &report.cold);
    run_settings(&mut page, &report.cold);
    page.end()
}

/// The gain of a change.
fn gain(times: f64) -> String {
    if times < 1.005 { "no gain".into() } else { format!("{times:.2} times the rate") }
}
