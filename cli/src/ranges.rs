//! Spans as ranges in NVIDIA's profilers: `nsys profile -t nvtx,cuda infeed run …`.

use std::ffi::CStr;

use infeed::internal::nvtx;
use tracing::{Subscriber, span::Id};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use crate::console::{Label, labelled};

/// A range for as long as a thread is inside a span.
#[derive(Debug)]
pub(crate) struct Ranges;

impl Ranges {
    /// `None` without a profiler.
    pub(crate) fn start() -> Option<Self> {
        match nvtx::start() {
            Ok(()) => Some(Self),
            // No profiler, so no warning.
            Err(_) if std::env::var_os("NVTX_INJECTION64_PATH").is_none() => None,
            Err(why) => {
                labelled(Label::Warning, &format_args!("no NVTX ranges: {why}"));
                None
            }
        }
    }
}

/// Names as C strings, which profilers need.
fn name(span: &str) -> &'static CStr {
    match span {
        "infeed.read" => c"infeed.read",
        "infeed.decode" => c"infeed.decode",
        "infeed.wait" => c"infeed.wait",
        "infeed.step" => c"infeed.step",
        "infeed.batch" => c"infeed.batch",
        "infeed.epoch" => c"infeed.epoch",
        _ => c"infeed",
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Ranges {
    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        nvtx::push(context.span(id).map_or(c"infeed", |span| name(span.name())));
    }

    fn on_exit(&self, _id: &Id, _context: Context<'_, S>) {
        nvtx::pop();
    }
}
