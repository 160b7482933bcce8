//! The results of `infeed sweep`, cell by cell. The same command continues from its file.

use std::{fmt, path::Path};

use infeed::internal::Beside;
use serde::{Deserialize, Serialize};

use super::{auto::AutoReport, cell::Cell, knee::Knee};
use crate::{busy::Busy, failure::Failure, out, report, units};

/// The JSON of `sweep` and of its `--out`; its keys are stable. Times are in seconds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SweepReport {
    pub version: u32,
    pub url: String,
    /// The options shared by all cells.
    pub options: Vec<String>,
    pub cells: Vec<Cell>,
    /// The recommended cell, and why; `None` without cells to compare.
    pub knee: Option<Knee>,
    /// `auto` compared with the best cell; `None` without `--auto`.
    #[serde(default)]
    pub auto: Option<AutoReport>,
    /// Use of the cores by other processes during the last call; `None` where the system does not report it.
    #[serde(default)]
    pub busy: Option<Busy>,
}

const VERSION: u32 = 1;

impl SweepReport {
    /// A report without cells.
    pub(super) const fn new(url: String, options: Vec<String>) -> Self {
        Self { version: VERSION, url, options, cells: Vec::new(), knee: None, auto: None, busy: None }
    }

    /// Reads the cells measured before. It is an error if they belong to another sweep.
    pub(super) fn read(path: &Path, url: &str, options: &[String]) -> Result<Self, Failure> {
        let text = Beside::Note.read_file(path).map_err(|error| Failure::file("cannot read", path, error))?;
        let refuse = |what: String| Failure::file("cannot continue from", path, what);
        let report: Self =
            serde_json::from_slice(&text).map_err(|error| refuse(format!("not written by infeed sweep: {error}")))?;
        if report.version != VERSION {
            return Err(refuse(format!(
                "it has version {}, this infeed reads {VERSION}; use another --out",
                report.version
            )));
        }
        if report.url != url || report.options != options {
            let old = report.options.join(" ");
            return Err(refuse(format!("it holds a sweep of {} {old}; use another --out", report.url)));
        }
        Ok(report)
    }

    /// Writes the report to `path`, if there is one.
    pub(super) fn write(&self, path: Option<&Path>) -> Result<(), Failure> {
        let Some(path) = path else { return Ok(()) };
        let mut text = serde_json::to_vec(self).map_err(|error| Failure::file("cannot write", path, error))?;
        text.push(b'\n');
        out::replace(path, &text)
    }
}

/// Cells by batch size and workers.
pub(super) fn table(cells: &[Cell]) -> String {
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
    // Workers and batch size: most cells differ in these.
    table.keyed_by(2);
    table.trim_fmt()
}

pub(super) fn csv(cells: &[Cell]) -> Result<Vec<u8>, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: &dyn fmt::Display| Failure::Failed(format!("cannot write CSV: {error}"));
    for cell in cells {
        writer.serialize(cell.flat()).map_err(|error| failed(&error))?;
    }
    writer.into_inner().map_err(|error| failed(&error))
}
