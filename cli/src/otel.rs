//! Sends metrics and spans to an OpenTelemetry collector by OTLP over HTTP, configured by the standard variables.

use std::env;

use infeed::metrics::Metrics;
use opentelemetry::{metrics::MeterProvider as _, trace::TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{
    Resource,
    metrics::SdkMeterProvider,
    trace::{SdkTracerProvider, Tracer},
};
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

use crate::{
    console::{Label, labelled},
    failure::Failure,
};

/// The exporters. They are created before the runtime and shut down after it, because their client blocks.
#[derive(Debug)]
pub(crate) struct Otel {
    figures: Option<SdkMeterProvider>,
    spans: Option<SdkTracerProvider>,
}

impl Otel {
    /// `None` unless the environment names an endpoint: the standard's default endpoint is not used.
    pub(crate) fn from_env() -> Result<Option<Self>, Failure> {
        let disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let all = set("OTEL_EXPORTER_OTLP_ENDPOINT").is_some();
        let wants = |what: &str| -> Result<bool, Failure> {
            let here = all || set(&format!("OTEL_EXPORTER_OTLP_{what}_ENDPOINT")).is_some();
            match set(&format!("OTEL_{what}_EXPORTER")).as_deref() {
                _ if disabled || !here => return Ok(false),
                Some("none") => return Ok(false),
                None | Some("otlp") => {}
                Some(other) => {
                    return Err(Failure::Usage(format!("OTEL_{what}_EXPORTER is {other:?}; use otlp or none")));
                }
            }
            let own = format!("OTEL_EXPORTER_OTLP_{what}_PROTOCOL");
            for name in [own.as_str(), "OTEL_EXPORTER_OTLP_PROTOCOL"] {
                match set(name).as_deref() {
                    None => {}
                    Some("http/protobuf") => break,
                    Some(other) => {
                        let what =
                            format!("{name} is {other:?}; use http/protobuf, which collectors accept on port 4318");
                        return Err(Failure::Usage(what));
                    }
                }
            }
            Ok(true)
        };
        let (figures, spans) = (wants("METRICS")?, wants("TRACES")?);
        if !figures && !spans {
            return Ok(None);
        }
        // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
        let named = set("OTEL_SERVICE_NAME").is_some()
            || set("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|attributes| attributes.contains("service.name="));
        let resource = Resource::builder();
        let resource = if named { resource.build() } else { resource.with_service_name("infeed").build() };
        // The exporters' client uses the process's default crypto provider. This fails if one was installed before,
        // which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refused = |error: &dyn std::fmt::Display| {
            Failure::Usage(format!("OpenTelemetry: {error}; see OTEL_EXPORTER_OTLP_ENDPOINT"))
        };
        let figures = match figures {
            true => {
                let exporter = MetricExporter::builder().with_http().build().map_err(|e| refused(&e))?;
                let provider = SdkMeterProvider::builder().with_resource(resource.clone());
                Some(provider.with_periodic_exporter(exporter).build())
            }
            false => None,
        };
        let spans = match spans {
            true => {
                let exporter = SpanExporter::builder().with_http().build().map_err(|e| refused(&e))?;
                Some(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
            }
            false => None,
        };
        Ok(Some(Self { figures, spans }))
    }

    /// Sends these metrics from now on.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        self.figures.iter().for_each(|provider| metrics.observe(&provider.meter("infeed")));
    }

    /// The layer that turns spans into OpenTelemetry's.
    pub(crate) fn layer<S>(&self) -> Option<OpenTelemetryLayer<S, Tracer>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        // Names of source files do not help in traces of a job.
        let layer = |spans: &SdkTracerProvider| {
            let tracer = spans.tracer("infeed");
            tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false)
        };
        self.spans.as_ref().map(layer)
    }

    /// Sends the rest. An unreachable collector causes a warning, not an error.
    pub(crate) fn finish(self) {
        let figures = self.figures.map(|provider| provider.shutdown().map_err(|error| ("figures", error)));
        let spans = self.spans.map(|provider| provider.shutdown().map_err(|error| ("spans", error)));
        for failed in [figures, spans].into_iter().flatten().filter_map(Result::err) {
            let (what, error) = failed;
            let warning = format_args!("OpenTelemetry: the last {what} were not sent: {error}");
            labelled(Label::Warning, &warning);
        }
    }
}

/// A variable that is set and not empty.
fn set(name: &str) -> Option<String> {
    env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}
