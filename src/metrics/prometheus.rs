//! Prometheus' text, in its OpenMetrics form.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::Registry,
};

use super::{
    families::{FAMILIES, MetricKind, Sheet, Value},
    registry::Metrics,
};

impl Metrics {
    /// All metrics now as OpenMetrics text, the body of an answer to Prometheus. Its content type is
    /// `application/openmetrics-text; version=1.0.0; charset=utf-8`.
    #[must_use]
    pub fn render(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Figures(self.sheet())));
        let mut text = String::new();
        // Writing to a string does not fail, and the values are numbers.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

/// Values for one scrape.
#[derive(Debug)]
struct Figures(Sheet);

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (at, family) in FAMILIES.iter().enumerate() {
            let mut figures = self.0.family(at).peekable();
            if figures.peek().is_none() {
                continue;
            }
            let kind = match family.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Histogram => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, value) in figures {
                match labels.is_empty() {
                    true => put(&mut metric, family.kind, value)?,
                    false => put(&mut metric.encode_family(labels)?, family.kind, value)?,
                }
            }
        }
        Ok(())
    }
}

fn put(metric: &mut MetricEncoder<'_>, kind: MetricKind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (MetricKind::Counter, Value::Whole(value)) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
        (MetricKind::Counter, Value::Real(value)) => metric.encode_counter::<NoLabelSet, _, u64>(value, None),
        (_, Value::Whole(value)) => metric.encode_gauge(value),
        (_, Value::Real(value)) => metric.encode_gauge(value),
        (_, Value::Waits(waits)) => metric.encode_histogram::<NoLabelSet>(waits.sum, waits.count, &waits.buckets, None),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names of metrics in a query.
    fn names(query: &str) -> impl Iterator<Item = &str> {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("infeed_"))
    }

    #[test]
    fn the_dashboard_asks_for_what_is_told_and_shows_what_matters() {
        let text = include_str!("../../examples/grafana/infeed.json");
        let dashboard: serde_json::Value = serde_json::from_str(text).expect("the dashboard is JSON");
        let told: BTreeSet<String> = FAMILIES
            .iter()
            .flat_map(|family| match family.kind {
                MetricKind::Counter => vec![format!("{}_total", family.name)],
                MetricKind::Gauge => vec![family.name.to_owned()],
                MetricKind::Histogram => {
                    ["bucket", "sum", "count"].map(|part| format!("{}_{part}", family.name)).into()
                }
            })
            .collect();
        let panels = dashboard["panels"].as_array().expect("panels");
        let expressions = panels.iter().flat_map(|panel| {
            let targets = panel["targets"].as_array().unwrap_or_else(|| panic!("{} asks nothing", panel["title"]));
            targets.iter().map(|target| target["expr"].as_str().expect("a query"))
        });
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        let variables = variables.iter().filter_map(|variable| variable["definition"].as_str());
        let mut asked = BTreeSet::new();
        for query in expressions.chain(variables) {
            assert!(names(query).count() > 0, "{query} asks for nothing of infeed's");
            assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
            for name in names(query) {
                assert!(told.contains(name), "{name} in {query} is told by nobody");
                asked.insert(name);
            }
        }
        for wanted in ["infeed_samples_total", "infeed_data_wait_seconds_bucket", "infeed_late_batches_total"] {
            assert!(asked.contains(wanted), "{wanted} is shown nowhere");
        }
        let mut ids: Vec<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    }

    #[tokio::test]
    async fn names_of_loaders_are_escaped_and_the_text_ends() {
        let dataset = crate::open("synthetic://?count=8&height=8&width=8&classes=2").await.unwrap();
        let loader = crate::Loader::builder(dataset).batch_size(4).build().await.unwrap();
        let (metrics, stream) = (Metrics::new(), loader.epoch(0));
        metrics.watch("a \"b\"\n\\c", stream.monitor());
        let text = metrics.render();
        assert!(text.contains(r#"infeed_batches_total{loader="a \"b\"\n\\c",rank="0"} 0"#), "{text}");
        assert!(text.contains("# TYPE infeed_data_wait_seconds histogram\n") && text.ends_with("# EOF\n"), "{text}");
        assert!(
            text.contains("le=\"+Inf\"") && text.contains("# HELP infeed_batches Batches handed over.\n"),
            "{text}"
        );
    }
}
