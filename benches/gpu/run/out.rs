//! Lines of JSON, written as they come: what was measured before a crash is not lost.

use std::{
    any::Any,
    io::Write,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use infeed::Result;
use serde_json::{Map, Value, json};

/// Where figures go.
pub(super) struct Out {
    runs: usize,
    section: String,
    failed: usize,
}

impl Out {
    /// Each figure is measured `runs` times after one to warm up.
    pub(super) fn new(runs: usize) -> Self {
        Self { runs, section: String::new(), failed: 0 }
    }

    pub(super) fn runs(&self) -> usize {
        self.runs
    }

    /// Figures and sections that could not be measured.
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    /// Runs a section; one that fails or panics costs its own figures only.
    pub(super) fn section(&mut self, name: &str, run: impl FnOnce(&mut Self) -> Result<()>) {
        name.clone_into(&mut self.section);
        let begin = Instant::now();
        if let Err(why) = guarded(|| run(self)) {
            self.error("", &why);
        }
        self.line("seconds", json!({ "value": begin.elapsed().as_secs_f64() }));
    }

    /// A figure from several runs of `measure`; its median, unless it failed.
    pub(super) fn figure(
        &mut self,
        name: &str,
        unit: &str,
        more: Value,
        mut measure: impl FnMut() -> Result<f64>,
    ) -> Option<f64> {
        let runs = self.runs;
        let measured = guarded(|| {
            measure()?;
            (0..runs).map(|_| measure()).collect::<Result<Vec<_>>>()
        });
        match measured {
            Ok(values) => self.values(name, unit, more, values),
            Err(why) => {
                self.error(name, &why);
                None
            }
        }
    }

    /// A figure that was measured several times; its median.
    pub(super) fn values(&mut self, name: &str, unit: &str, more: Value, mut values: Vec<f64>) -> Option<f64> {
        values.sort_by(f64::total_cmp);
        let (&low, &high) = (values.first()?, values.last()?);
        let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
        let fields =
            json!({ "unit": unit, "median": median, "low": low, "high": high, "runs": values.len(), "more": more });
        self.line(name, fields);
        Some(median)
    }

    /// What is no figure.
    pub(super) fn note(&mut self, name: &str, value: Value) {
        self.line(name, json!({ "note": value }));
    }

    /// What could not be measured, and why.
    pub(super) fn error(&mut self, name: &str, why: &str) {
        self.failed += 1;
        self.line(name, json!({ "error": why }));
    }

    fn line(&self, name: &str, fields: Value) {
        let mut line = Map::new();
        line.insert("section".into(), self.section.clone().into());
        line.insert("name".into(), name.into());
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        println!("{}", Value::Object(line));
        // A pipe is not flushed by itself when the process dies.
        let _ = std::io::stdout().flush();
    }
}

/// The words of an error or a panic.
fn guarded<T>(run: impl FnOnce() -> Result<T>) -> std::result::Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|error| format!("{error:#}")),
        Err(panic) => Err(format!("panic: {}", words(&*panic))),
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
