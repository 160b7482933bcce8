//! The page of `infeed sweep`.

use super::{
    cell::{Cell, Settings},
    report::SweepReport,
};
use crate::{
    busy::Busy,
    html::{
        Page,
        charts::{self, HeatCell},
    },
    report::Verdict,
    units,
};

pub(super) fn page(report: &SweepReport) -> String {
    // The default number of epochs, which only --max-time ends, is not a choice of the user.
    let about = format!("{} {}", report.url, report.options.join(" ")).replace(" --epochs 1000000000", "");
    let mut page = Page::new("infeed sweep", about.trim());
    match &report.knee {
        Some(knee) => page.verdict(&Verdict { found: format!("{}.", knee.words), next: None }),
        None => page.words("No combination gave a rate, so there is nothing to compare."),
    };
    if let Some(warning) = report.busy.as_ref().and_then(Busy::sentence) {
        page.words(&warning);
    }
    let fine: Vec<_> = report.cells.iter().filter(|cell| cell.error.is_none()).collect();
    let mut maps: Vec<(String, Vec<HeatCell>)> = Vec::new();
    for cell in fine {
        // One map for each combination of the other settings.
        let asked = Settings { workers: None, batch_size: None, ..cell.asked.clone() };
        let name = if asked == Settings::default() { String::new() } else { asked.to_string() };
        let Cell { workers, batch_size, samples_per_second, .. } = *cell;
        let heat = HeatCell { workers, batch_size, samples_per_second };
        match maps.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => cells.push(heat),
            None => maps.push((name, vec![heat])),
        }
    }
    if let Some(auto) = report.auto.as_ref().filter(|auto| !auto.words.is_empty()) {
        page.verdict(&Verdict { found: format!("{}.", auto.words), next: None });
    }
    page.heading("Samples per second").words("By workers and batch size. A stronger colour is a higher rate.");
    for (name, cells) in &maps {
        if !name.is_empty() {
            page.words(name);
        }
        page.figure(charts::heat_map(cells));
    }
    for (name, cells) in &maps {
        let picture = charts::rates_by_workers(&by_batch_size(cells));
        if picture.is_some() && !name.is_empty() {
            page.words(name);
        }
        page.figure(picture);
    }
    page.heading("Combinations");
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
            units::number(cell.iterations_per_second),
            units::number(cell.samples_per_second),
            or(cell.cpu_seconds, units::time),
            or(cell.cores_used(), |cores| format!("{cores:.2}")),
            cell.peak_rss_bytes.map_or(String::new(), units::size),
            or(cell.first_batch_seconds, units::time),
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

/// Rates by workers, a line for each batch size that has two points or more.
fn by_batch_size(cells: &[HeatCell]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for cell in cells {
        let (Some(workers), Some(batch)) = (cell.workers, cell.batch_size) else { continue };
        let name = format!("batch {}", units::count(batch));
        let point = (workers as f64, cell.samples_per_second);
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, line)) => line.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines.retain(|(_, line)| line.len() > 1);
    lines.iter_mut().for_each(|(_, line)| line.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}
