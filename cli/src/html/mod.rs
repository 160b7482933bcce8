//! Reports as one HTML file each: no network, no script, charts as SVG, light and dark, on a phone and on paper.
//!
//! Everything that comes from data or from the command line passes [`escape`].

mod charts;

use std::{fmt::Write as _, thread};

use infeed::Stage;
use serde_json::Value;

use crate::{
    doctor::DoctorReport,
    profile::ProfileReport,
    report::{RunReport, autotune_words, cause_words, traffic_words},
    sampler::Moment,
    sweep::{Cell, Settings, SweepReport},
    units,
};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1a;--soft:#6b6b66;--line:#d9d8d2;--paper:#fdfdfb;--card:#f4f3ee;--good:#1b7f4d}\
@media(prefers-color-scheme:dark){:root{--ink:#e9e8e3;--soft:#a2a19a;--line:#3a3a37;--paper:#161615;--card:#20201e;--good:#5fc08d}}\
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.2rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);\
background:var(--paper);overflow-wrap:anywhere}h1{font-size:1.5rem;margin:.2em 0}h2{font-size:1.1rem;margin:1.8em 0 .4em}\
p{margin:.4em 0}.soft{color:var(--soft)}.verdict{background:var(--card);border-left:.3rem solid var(--good);padding:.7rem 1rem;margin:1rem 0}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92rem}\
th,td{text-align:right;padding:.22rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}\
th:first-child,td:first-child{text-align:left}td.words{white-space:normal;text-align:left}th{color:var(--soft);font-weight:600}\
figure{margin:.6rem 0}svg{height:auto;display:block}svg text{fill:var(--ink);font-family:system-ui,sans-serif}\
svg [stroke=\"#000000\"]{stroke:var(--soft)}code{font-size:.9em;background:var(--card);padding:.1em .3em}\
@page{margin:15mm}@media print{body{max-width:none;padding:0}h2{break-after:avoid}figure,table,.verdict{break-inside:avoid}.wide{overflow:visible}}";

/// Text in the place of markup.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // No document may hold them.
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A page that is put together from its parts.
pub(crate) struct Page(String);

impl Page {
    fn new(title: &str, about: &str) -> Self {
        let (title, about) = (escape(title), escape(about));
        let mut text = String::from("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\
             <style>{STYLE}</style></head>\n<body><h1>{title}</h1><p class=\"soft\">{about}</p>\n"
        );
        Self(text)
    }

    fn heading(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<h2>{}</h2>", escape(text));
        self
    }

    fn words(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<p>{}</p>", escape(text));
        self
    }

    fn verdict(&mut self, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "<p class=\"verdict\">{}</p>", escape(text));
        self
    }

    /// Columns of figures; the first holds names.
    fn table(&mut self, head: &[&str], rows: &[Vec<String>]) -> &mut Self {
        self.0.push_str("<div class=\"wide\"><table>");
        if !head.is_empty() {
            let cells: String = head.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
            let _ = write!(self.0, "<thead><tr>{cells}</tr></thead>");
        }
        for row in rows {
            let class = if head.is_empty() { " class=\"words\"" } else { "" };
            let cells = row.iter().enumerate().map(|(i, cell)| match i {
                0 => format!("<td>{}</td>", escape(cell)),
                _ => format!("<td{class}>{}</td>", escape(cell)),
            });
            let _ = write!(self.0, "<tr>{}</tr>", cells.collect::<String>());
        }
        self.0.push_str("</table></div>\n");
        self
    }

    /// A picture, if there is one to show.
    fn figure(&mut self, svg: Option<String>) -> &mut Self {
        if let Some(svg) = svg {
            let _ = writeln!(self.0, "<figure class=\"wide\">{svg}</figure>");
        }
        self
    }

    /// The command and the machine.
    fn end(mut self) -> String {
        self.heading("Command and machine");
        let command: Vec<String> = std::env::args_os().map(|arg| quoted(&arg.to_string_lossy())).collect();
        let cores = thread::available_parallelism().map_or(0, std::num::NonZeroUsize::get);
        let mut rows = vec![
            vec!["command".into(), command.join(" ")],
            vec!["infeed".into(), env!("CARGO_PKG_VERSION").into()],
            vec!["system".into(), format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)],
            vec!["cores".into(), cores.to_string()],
        ];
        if let Some(model) = crate::process::processor() {
            rows.push(vec!["processor".into(), model]);
        }
        self.table(&[], &rows);
        self.0.push_str("</body></html>\n");
        self.0
    }
}

/// As a shell would take it.
fn quoted(arg: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,+%@".contains(c);
    match !arg.is_empty() && arg.chars().all(plain) {
        true => arg.to_owned(),
        false => format!("'{}'", arg.replace('\'', "'\\''")),
    }
}

fn seconds(value: f64) -> String {
    units::time(value)
}

/// What a run's page shows; other pages begin with it.
fn run_parts(page: &mut Page, run: &RunReport) {
    let mut rows = vec![
        vec!["dataset".into(), format!("{} records, {}", units::count(run.records), run.format)],
        vec![
            "delivered".into(),
            format!("{} samples in {} batches", units::count(run.samples), units::count(run.batches)),
        ],
        vec![
            "rate".into(),
            format!("{} samples/s over {}", units::count(run.samples_per_second.round() as u64), seconds(run.seconds)),
        ],
        vec!["device".into(), if run.device == "cpu" { "cpu (no GPU used)".into() } else { run.device.clone() }],
    ];
    if let Some(first) = run.first_batch_seconds {
        rows.push(vec!["first batch".into(), seconds(first)]);
    }
    if let Some(au) = run.au {
        rows.push(vec!["AU".into(), format!("{:.1} % of the trainer's time was not spent waiting", 100.0 * au)]);
    }
    if let Some(cpu) = run.cpu_seconds {
        rows.push(vec!["CPU".into(), format!("{}, {} workers", seconds(cpu), run.workers.unwrap_or(0))]);
    }
    if let Some(peak) = run.peak_rss_bytes {
        rows.push(vec!["peak memory".into(), units::size(peak)]);
    }
    if let Some(bottleneck) = run.bottleneck {
        let words = if bottleneck == "yield" { "the trainer: data was always ready" } else { bottleneck };
        rows.push(vec!["bottleneck".into(), words.into()]);
    }
    page.table(&[], &rows);
    if run.batches == 0 {
        page.words("No batch was delivered, so there is no time to show.");
        return;
    }
    page.heading("Time line").words("Each batch: the whole step, and how much of it was spent waiting for data.");
    page.figure(charts::time_line(&run.line.steps));
    if let Some(sampled) = &run.sampled {
        page.heading("Processor, disk and network");
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
            ("received", pick(|moment| moment.received.map(|rate| rate / MIB))),
            ("sent", pick(|moment| moment.sent.map(|rate| rate / MIB))),
            ("loopback", pick(|moment| moment.loopback.map(|rate| rate / MIB))),
        ];
        // Lines along the bottom say nothing.
        let moved: Vec<_> = rates.into_iter().filter(|(_, line)| line.iter().any(|(_, rate)| *rate > 0.01)).collect();
        page.figure(charts::over_time("MiB/s", &moved));
    }
    page.heading("Waits for data").figure(charts::histogram(&run.line.steps));
    page.heading("Stages").words("Seconds summed over threads: at work, without input, without room.");
    let stages: Vec<_> = run.stages.iter().filter(|stage| stage.items > 0 || !stage.blocked.is_zero()).collect();
    page.figure(charts::stages(&stages));
    let cells = |stage: &&infeed::StageReport| {
        let time = |time: std::time::Duration| seconds(time.as_secs_f64());
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
    if !run.late_causes.is_empty() {
        page.heading("Late batches");
        let causes = run.late_causes.iter().map(|cause| {
            let wait = seconds(cause.wait.as_secs_f64());
            vec![cause_words(cause.cause).to_owned(), units::count(cause.batches), wait]
        });
        page.table(&["waiting for", "batches", "wait"], &causes.collect::<Vec<_>>());
        let worst = run.late_batches.iter().take(10).map(|late| {
            vec![
                late.object.clone().unwrap_or_else(|| "no single object".into()),
                late.cause.name().to_owned(),
                late.epoch.to_string(),
                late.batch.to_string(),
                seconds(late.wait.as_secs_f64()),
            ]
        });
        page.words("The longest waits:");
        page.table(&["object", "cause", "epoch", "batch", "wait"], &worst.collect::<Vec<_>>());
    }
    page.heading("Queues").words("How full they were when the trainer asked for a batch.");
    let queues = run.queues.iter().map(|queue| {
        let of = queue.capacity.map_or("no bound of its own".into(), units::count);
        let empty = format!("{:.0} %", 100.0 * queue.empty);
        vec![queue.name.to_owned(), format!("{:.1}", queue.mean), units::count(queue.max), of, empty]
    });
    page.table(&["queue", "mean", "most", "capacity", "found empty"], &queues.collect::<Vec<_>>());
    if let Some(words) = autotune_words(&run.autotune) {
        page.heading("Autotune").words(&words);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let rows = run.autotune.decisions.iter().map(|decision| {
            vec![
                seconds(decision.at.as_secs_f64()),
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
    if !run.bad_samples.is_empty() {
        page.heading("Bad samples");
        let rows = run.bad_samples.iter().take(20).map(|bad| vec![bad.record.to_string(), bad.error.clone()]);
        page.table(&[], &rows.collect::<Vec<_>>());
    }
}

fn settings(page: &mut Page, run: &RunReport) {
    page.heading("Settings");
    let rows = run.config.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| {
        let value = match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![key.clone(), value]
    });
    page.table(&[], &rows.collect::<Vec<_>>());
}

/// The page of `infeed run`.
pub(crate) fn run(report: &RunReport) -> String {
    let mut page = Page::new("infeed run", &report.url);
    run_parts(&mut page, report);
    settings(&mut page, report);
    page.end()
}

/// The page of `infeed profile`.
pub(crate) fn profile(report: &ProfileReport) -> String {
    let mut page = Page::new("infeed profile", &report.run.url);
    page.heading("Where the time went");
    let or = |value: Option<f64>, none: &str| value.map_or(none.into(), seconds);
    let rows = report.table.iter().map(|row| {
        vec![
            row.name.to_owned(),
            seconds(row.self_seconds),
            seconds(row.total_seconds),
            seconds(row.average_seconds),
            units::count(row.calls),
            or(row.cpu_seconds, ""),
            or(row.device_seconds, "no GPU"),
        ]
    });
    page.table(&["", "self", "total", "average", "calls", "CPU", "on GPU"], &rows.collect::<Vec<_>>());
    page.heading("First batch");
    let mut rows = vec![
        vec!["open (before it)".to_owned(), seconds(report.run.open_seconds)],
        vec!["build (before it)".to_owned(), seconds(report.run.build_seconds)],
    ];
    let parts = &report.run.first_batch_parts;
    rows.extend(parts.iter().map(|part| vec![cause_words(part.cause).into(), seconds(part.time.as_secs_f64())]));
    rows.push(vec!["first batch".into(), or(report.run.first_batch_seconds, "none came")]);
    page.table(&["", "time"], &rows);
    if !report.alone.is_empty() {
        page.heading("Stages alone").words("Samples a second when nothing but this stage is done.");
        page.figure(charts::alone(&report.alone));
        let rows = report.alone.iter().map(|row| {
            let rate = units::count(row.samples_per_second.round() as u64);
            vec![row.stage.to_owned(), row.workers.to_string(), rate, or(row.first_batch_seconds, "")]
        });
        page.table(&["stage", "workers", "samples/s", "first batch"], &rows.collect::<Vec<_>>());
    }
    page.heading("The run");
    run_parts(&mut page, &report.run);
    settings(&mut page, &report.run);
    page.end()
}

/// The page of `infeed sweep`.
pub(crate) fn sweep(report: &SweepReport) -> String {
    let about = format!("{} {}", report.url, report.options.join(" "));
    let mut page = Page::new("infeed sweep", about.trim());
    match &report.knee {
        Some(knee) => page.verdict(&knee.words),
        None => page.words("No cell gave a rate, so there is nothing to compare."),
    };
    let fine: Vec<_> = report.cells.iter().filter(|cell| cell.error.is_none()).collect();
    let mut maps: Vec<(String, Vec<&Cell>)> = Vec::new();
    for cell in fine {
        // One map for whatever is neither workers nor batch size.
        let asked = Settings { workers: None, batch_size: None, ..cell.asked.clone() };
        let name = if asked == Settings::default() { String::new() } else { asked.to_string() };
        match maps.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(cell),
            None => maps.push((name, vec![cell])),
        }
    }
    if let Some(auto) = report.auto.as_ref().filter(|auto| !auto.words.is_empty()) {
        page.verdict(&auto.words);
    }
    page.heading("Samples a second").words("By workers and batch size; the stronger the colour, the faster.");
    for (name, cells) in &maps {
        if !name.is_empty() {
            page.words(name);
        }
        page.figure(charts::heat_map(cells));
    }
    page.heading("Cells");
    let or = |value: Option<f64>, words: fn(f64) -> String| value.map_or(String::new(), words);
    let rows = report.cells.iter().map(|cell| {
        let number = |value: Option<u64>| value.map_or(String::new(), units::count);
        let mut row = vec![
            number(cell.workers),
            number(cell.batch_size),
            number(cell.prefetch),
            cell.dtype.clone().unwrap_or_default(),
            cell.device.clone().unwrap_or_default(),
        ];
        if let Some(error) = &cell.error {
            row.push(error.clone());
            return row;
        }
        row.extend([
            format!("{:.2}", cell.iterations_per_second),
            units::count(cell.samples_per_second.round() as u64),
            or(cell.cpu_seconds, seconds),
            or(cell.cores_used(), |cores| format!("{cores:.2}")),
            cell.peak_rss_bytes.map_or(String::new(), units::size),
            or(cell.first_batch_seconds, seconds),
            cell.gpu_words(),
        ]);
        row
    });
    let head = [
        "workers",
        "batch",
        "prefetch",
        "dtype",
        "device",
        "it/s",
        "samples/s",
        "CPU",
        "cores busy",
        "peak memory",
        "first batch",
        "GPU",
    ];
    page.table(&head, &rows.collect::<Vec<_>>());
    page.end()
}

/// The page of `infeed doctor`.
pub(crate) fn doctor(report: &DoctorReport) -> String {
    let mut page = Page::new("infeed doctor", &report.url);
    page.verdict(&report.diagnosis.words);
    page.heading("Runs that leave out one part each");
    let bars: Vec<_> =
        report.trials.iter().map(|t| (t.name, t.step_seconds - t.wait_seconds, t.wait_seconds)).collect();
    page.figure(charts::trials(&bars));
    let rows = report.trials.iter().map(|trial| {
        let rate = trial.samples_per_second.map_or("no bound".into(), |rate| units::count(rate.round() as u64));
        vec![trial.name.to_owned(), seconds(trial.step_seconds), seconds(trial.wait_seconds), rate]
    });
    page.table(&["run", "step", "waiting", "samples/s"], &rows.collect::<Vec<_>>());
    let stalls = &report.diagnosis.stalls;
    let share = |time: f64| format!("{:.1} % of a step", 100.0 * time / report.figures.cold.max(f64::MIN_POSITIVE));
    let rows = [
        vec!["AU".into(), format!("{:.1} %", 100.0 * report.diagnosis.au)],
        vec!["fetch stall".into(), share(stalls.fetch)],
        vec!["prep stall".into(), share(stalls.prep)],
        vec!["transfer stall".into(), share(stalls.transfer)],
    ];
    page.table(&[], &rows);
    page.heading("What could be changed");
    let changes = report.diagnosis.changes.iter();
    let changes = changes.map(|change| vec![change.change.clone(), format!("{:.2} times the rate", change.gain)]);
    page.table(&[], &changes.collect::<Vec<_>>());
    page.heading("Machine and data");
    let checks = report.checks.iter();
    let checks = checks
        .map(|check| vec![format!("{}{}", check.name, if check.ok { "" } else { " (look)" }), check.words.clone()]);
    page.table(&[], &checks.collect::<Vec<_>>());
    page.heading("The cold run");
    run_parts(&mut page, &report.cold);
    settings(&mut page, &report.cold);
    page.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_data_becomes_markup() {
        let nasty = "<script>alert('x')</script>&\"\u{1}";
        assert_eq!(escape(nasty), "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;&quot;\u{fffd}");
        let mut page = Page::new(nasty, nasty);
        page.heading(nasty).words(nasty).verdict(nasty);
        page.table(&[nasty, nasty], &[vec![nasty.into(), nasty.into()]]);
        let html = page.end();
        assert!(!html.contains("<script") && html.contains("&lt;script&gt;"), "{html}");
        assert!(!html.contains("http://") && !html.contains("https://"), "a page loads nothing");
    }

    #[test]
    fn a_command_can_be_pasted() {
        assert_eq!(quoted("--step-time=5ms"), "--step-time=5ms");
        assert_eq!(quoted("it's here"), "'it'\\''s here'");
    }
}
