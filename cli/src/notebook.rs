//! Output for notebooks, in the form of the commands' files: the page of a report, and the contact sheet.

use infeed::{Dataset, LoaderConfig, report::Report};
use serde_json::{Map, Value};

use crate::{
    html, process,
    report::{Requests, RunReport, TimeLine},
    rgb_png, sheet,
};

/// The HTML page of a stream's report.
#[must_use]
pub fn report_page(title: &str, dataset: &dyn Dataset, config: &LoaderConfig, mut stream: Report) -> String {
    let settings = match serde_json::to_value(config) {
        Ok(Value::Object(settings)) => settings,
        _ => Map::new(),
    };
    let report = RunReport {
        version: 1,
        url: title.to_owned(),
        format: dataset.format().to_owned(),
        records: dataset.len(),
        epochs: 1,
        samples_per_second: stream.samples as f64 / stream.elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        open_seconds: 0.0,
        build_seconds: 0.0,
        au: stream.au(),
        bottleneck: stream.bottleneck(),
        // The processor time is the whole program's, of which the stream is only a part.
        cpu_seconds: None,
        peak_rss_bytes: process::peak_rss_bytes(),
        checksum: None,
        checksum_of: None,
        settled: None,
        requests: Requests::take(&mut stream, title, dataset.len()),
        stream,
        device: config.device.unwrap_or_default().to_string(),
        gpu: None,
        sampled: None,
        busy: None,
        workers: config.workers,
        parts: Vec::new(),
        config: settings,
        stopped: None,
        ended: None,
        line: TimeLine::default(),
        threads: Vec::new(),
    };
    html::run_page(&report)
}

/// A PNG of images of one size, each with lines of text below. Images are rows of RGB pixels. `None` if the PNG would
/// be too large.
#[must_use]
pub fn contact_sheet([height, width]: [usize; 2], pictures: Vec<(Vec<u8>, Vec<String>)>) -> Option<Vec<u8>> {
    let sheet = sheet::of_pictures([height, width], pictures).ok()?;
    rgb_png::encode(&sheet.rgb, sheet.width, sheet.height).ok()
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    #[tokio::test]
    async fn a_page_of_a_program_of_ones_own_has_a_verdict_and_units() {
        let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=10").await.unwrap();
        let loader = infeed::Loader::builder(std::sync::Arc::clone(&dataset)).batch_size(16).build().await.unwrap();
        let mut batches = loader.epoch(0);
        while batches.next().await.transpose().unwrap().is_some() {}
        let html = report_page("mine", &*dataset, loader.config(), batches.report());
        let settings = html.split_once("<h2>Settings").unwrap().1;
        assert!(html.contains("class=\"verdict\"") && settings.contains("memory_budget"), "{html}");
        let budget = settings.split_once("memory_budget").unwrap().1.split_once("</tr>").unwrap().0;
        assert!(budget.contains("iB<"), "{budget}");
        // Commands of a terminal's are no advice there.
        assert!(!html.contains("--step-time") && !html.contains("infeed doctor"), "{html}");
    }
}
