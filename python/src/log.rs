//! Passes the engine's log events to Python's `logging`, and those for the script's author to Python's `warnings`.
//!
//! The engine's threads put events into a queue, since they must not wait for the GIL. Calls from Python deliver them.

use std::{
    collections::VecDeque,
    ffi::CString,
    fmt::{self, Write as _},
    sync::{
        Mutex, Once, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use pyo3::{exceptions::PyUserWarning, prelude::*, sync::PyOnceLock};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};

use crate::callbacks::inside;

/// The target of events that become a `UserWarning`.
const WARNING: &str = "infeed::warning";
/// Longest queue: if no call from Python delivers them, further events are only counted.
const MOST: usize = 1000;

/// Events until a call from Python delivers them.
static WAITING: Mutex<VecDeque<(Level, &'static str, String)>> = Mutex::new(VecDeque::new());
static SOME: AtomicBool = AtomicBool::new(false);
static LOST: AtomicU64 = AtomicU64::new(0);
/// The logger's level, as Python's number. Lower events are not queued.
static WANTED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Python's number of a level. `TRACE`, which the engine uses per request, has none in Python: 5 is below `DEBUG`.
fn number(level: Level) -> usize {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

struct Queue;

impl Subscriber for Queue {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        about.is_event()
            && about.target().starts_with("infeed")
            && number(*about.level()) >= WANTED.load(Ordering::Relaxed)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match WANTED.load(Ordering::Relaxed) {
            0..=5 => LevelFilter::TRACE,
            6..=10 => LevelFilter::DEBUG,
            11..=20 => LevelFilter::INFO,
            21..=30 => LevelFilter::WARN,
            31..=40 => LevelFilter::ERROR,
            _ => LevelFilter::OFF,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let mut words = Words::default();
        event.record(&mut words);
        let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MOST {
            LOST.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let about = event.metadata();
        waiting.push_back((*about.level(), about.target(), words.message + &words.fields));
        SOME.store(true, Ordering::Release);
    }

    // Spans are never enabled.
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// An event as a line: `cache was left out: object=train/1.jpg attempt=2`.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

fn logger<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    static GET: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let get = GET.get_or_try_init(py, || py.import("logging")?.getattr("getLogger").map(Bound::unbind))?;
    get.bind(py).call1((name,))
}

/// Starts to collect events, at the current level of the logger `infeed`.
pub(crate) fn listen(py: Python<'_>) -> PyResult<()> {
    static STARTED: Once = Once::new();
    let wanted: usize = logger(py, "infeed")?.call_method0("getEffectiveLevel")?.extract()?;
    let before = WANTED.swap(wanted, Ordering::Relaxed);
    // Another subscriber in this process, such as the command line's, may exist: then it gets the events.
    STARTED.call_once(|| drop(tracing::subscriber::set_global_default(Queue)));
    if before != wanted {
        tracing::callsite::rebuild_interest_cache();
    }
    Ok(())
}

/// Delivers the queued events. If a handler raises, the caller gets the exception.
pub(crate) fn deliver(py: Python<'_>) -> PyResult<()> {
    if !SOME.load(Ordering::Acquire) {
        return Ok(());
    }
    SOME.store(false, Ordering::Relaxed);
    let told: Vec<_> = WAITING.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect();
    inside(|| hand_on(py, told))
}

fn hand_on(py: Python<'_>, told: Vec<(Level, &'static str, String)>) -> PyResult<()> {
    for (level, target, words) in told {
        if target == WARNING {
            // Stack level 2: the line of the loop, one frame above `Batches.__next__`.
            let words = CString::new(words.replace('\0', ""))?;
            PyErr::warn(py, &py.get_type::<PyUserWarning>(), &words, 2)?;
            continue;
        }
        // A crate is a logger below the package's, like a module: `infeed_data::open` becomes `infeed.data.open`.
        let name = target.replace("::", ".").replacen("infeed_", "infeed.", 1);
        logger(py, &name)?.call_method1("log", (number(level), "%s", words))?;
    }
    match LOST.swap(0, Ordering::Relaxed) {
        0 => Ok(()),
        lost => {
            let words = format!("{lost} more messages were dropped: the queue was full");
            logger(py, "infeed")?.call_method1("log", (number(Level::WARN), "%s", words)).map(drop)
        }
    }
}
