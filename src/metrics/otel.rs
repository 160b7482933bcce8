//! OpenTelemetry's instruments.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, Meter},
};

use super::{
    families::{FAMILIES, Family, Labels, MetricKind, Sheet, Value},
    registry::Metrics,
};

/// An export reads all instruments within this time, so they share one sheet. The first instrument makes a new one.
const SAME_LOOK: Duration = Duration::from_millis(200);

impl Metrics {
    /// Registers an instrument for every metric with a meter of OpenTelemetry. Its provider reads them at each export.
    /// Call it once for each meter.
    ///
    /// Names and attributes are those of Prometheus (`infeed_samples` with `loader` and `rank`), so that one dashboard
    /// serves both. OpenTelemetry accepts no finished histogram, so waits for data are two counters:
    /// `infeed_data_wait_seconds`, and by length `infeed_data_wait_bucket` with the attribute `le`.
    pub fn observe(&self, meter: &Meter) {
        let look = Arc::new(Look { metrics: self.clone(), last: Mutex::default() });
        for (at, family) in FAMILIES.iter().enumerate() {
            let look = Arc::clone(&look);
            let (name, unit, help) = (family.name, family.unit(), family.help);
            // Times are fractions, all other metrics are whole numbers.
            // Instruments stay registered after their handles are dropped.
            match (family.kind, unit) {
                (MetricKind::Gauge, "s") => {
                    let gauge = meter.f64_observable_gauge(name).with_unit(unit).with_description(help);
                    let _registered = gauge.with_callback(move |observer| look.reals(at, observer)).build();
                }
                (_, "s") => {
                    let counter = meter.f64_observable_counter(name).with_unit(unit).with_description(help);
                    let _registered = counter.with_callback(move |observer| look.reals(at, observer)).build();
                }
                (MetricKind::Gauge, _) => {
                    let gauge = meter.u64_observable_gauge(name).with_unit(unit).with_description(help);
                    let _registered = gauge.with_callback(move |observer| look.wholes(at, observer)).build();
                }
                (_, _) => {
                    let counter = meter.u64_observable_counter(name).with_unit(unit).with_description(help);
                    let _registered = counter.with_callback(move |observer| look.wholes(at, observer)).build();
                }
            }
        }
        let buckets = |family: &(usize, &Family)| family.1.kind == MetricKind::Histogram;
        for (at, family) in FAMILIES.iter().enumerate().filter(buckets) {
            let look = Arc::clone(&look);
            let name = format!("{}_bucket", family.name.trim_end_matches("_seconds"));
            let help = format!("{} Each count includes the shorter waits.", family.help);
            let counter = meter.u64_observable_counter(name).with_unit("1").with_description(help);
            let _registered = counter.with_callback(move |observer| look.buckets(at, observer)).build();
        }
    }
}

/// One sheet of values for all instruments of an export.
struct Look {
    metrics: Metrics,
    last: Mutex<Option<(Instant, Arc<Sheet>)>>,
}

impl Look {
    fn sheet(&self, family: usize) -> Arc<Sheet> {
        // A panic leaves the sheet whole: it is replaced in one assignment.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, sheet)) if family > 0 && at.elapsed() < SAME_LOOK => Arc::clone(sheet),
            _ => {
                let sheet = Arc::new(self.metrics.sheet());
                *last = Some((Instant::now(), Arc::clone(&sheet)));
                sheet
            }
        }
    }

    fn reals(&self, family: usize, observer: &dyn AsyncInstrument<f64>) {
        for (labels, value) in self.sheet(family).family(family) {
            let value = match value {
                Value::Whole(value) => *value as f64,
                Value::Real(value) => *value,
                Value::Waits(waits) => waits.sum,
            };
            observer.observe(value, &attributes(labels));
        }
    }

    fn wholes(&self, family: usize, observer: &dyn AsyncInstrument<u64>) {
        for (labels, value) in self.sheet(family).family(family) {
            if let Value::Whole(value) = value {
                observer.observe(*value, &attributes(labels));
            }
        }
    }

    fn buckets(&self, family: usize, observer: &dyn AsyncInstrument<u64>) {
        for (labels, value) in self.sheet(family).family(family) {
            let Value::Waits(waits) = value else { continue };
            let mut below = 0;
            for (at_most, count) in &waits.buckets {
                below += count;
                let le = if at_most.is_finite() { at_most.to_string() } else { "+Inf".to_owned() };
                let mut attributes = attributes(labels);
                attributes.push(KeyValue::new("le", le));
                observer.observe(below, &attributes);
            }
        }
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::new(*name, value.clone())).collect()
}
