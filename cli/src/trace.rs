//! `--trace`: the spans of a run as a file for Perfetto and Chrome, in the JSON trace event format.
//!
//! Spans that run on one thread become events of that thread. Overlapping spans, such as batches and requests, become
//! asynchronous events. Only one block of text is held in memory, whatever the length of the run. After each block, the
//! file is a complete JSON document, so an interrupted run leaves a usable file.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>

use std::{
    cell::Cell,
    fmt::{self, Write as _},
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Map, Value};
use tracing::{
    Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{Layer, layer::Context, registry::LookupSpan};

use crate::failure::Failure;

/// Bytes of text that are buffered before a write.
const BLOCK: usize = 64 << 10;
/// Most events in one file, about 200 MB: viewers accept no more. Further events are only counted.
const MOST: u64 = 1_000_000;

/// A trace file that is being written. Cloning gives another handle.
#[derive(Clone, Debug)]
pub(crate) struct Trace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    began: Instant,
    file: Mutex<TraceFile>,
    threads: AtomicU64,
}

#[derive(Debug)]
struct TraceFile {
    file: File,
    /// Whether the file can seek back over the end of the document. For pipes, the end is written once.
    seeks: bool,
    text: String,
    events: u64,
    left_out: u64,
    /// Whether the document is finished.
    ended: bool,
    failed: Option<io::Error>,
}

impl TraceFile {
    fn event(&mut self, event: fmt::Arguments<'_>) {
        if self.ended {
            return;
        }
        if self.events >= MOST {
            self.left_out += 1;
            return;
        }
        self.text.push_str(if self.events == 0 { "\n" } else { ",\n" });
        self.events += 1;
        // Writing to a string does not fail.
        let _ = self.text.write_fmt(event);
        if self.text.len() >= BLOCK {
            self.flush(self.seeks);
        }
    }

    /// Writes the block, followed by the end of the document.
    fn flush(&mut self, end: bool) {
        const END: &str = "\n]\n";
        let mut write = || -> io::Result<()> {
            self.file.write_all(self.text.as_bytes())?;
            if end {
                self.file.write_all(END.as_bytes())?;
                if self.seeks {
                    self.file.seek(SeekFrom::Current(-(END.len() as i64)))?;
                }
            }
            Ok(())
        };
        if let Err(error) = write() {
            self.failed.get_or_insert(error);
        }
        self.text.clear();
    }
}

thread_local! {
    /// Number of this thread in the file; 0 if it has none yet.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

impl Trace {
    /// Creates the file, so that an error appears now and not after a long run.
    pub(crate) fn create(path: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::file("cannot write", path, error);
        let file = File::create(path).map_err(failed)?;
        let seeks = file.metadata().map_err(failed)?.is_file();
        let mut file = TraceFile { file, seeks, text: "[".into(), events: 0, left_out: 0, ended: false, failed: None };
        file.flush(seeks);
        let shared = Shared { began: Instant::now(), file: Mutex::new(file), threads: AtomicU64::new(0) };
        Ok(Self(Arc::new(shared)))
    }

    /// Writes the rest and ends the file. Gives the number of events in it, and of events left out.
    pub(crate) fn finish(&self) -> Result<(u64, u64), Failure> {
        let mut file = self.file();
        if !std::mem::replace(&mut file.ended, true) {
            file.flush(true);
        }
        match file.failed.take() {
            Some(error) => Err(Failure::Failed(format!("cannot write the trace: {error}"))),
            None => Ok((file.events, file.left_out)),
        }
    }

    fn file(&self) -> MutexGuard<'_, TraceFile> {
        // A panicking thread leaves only complete events.
        self.0.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn micros(&self, at: Instant) -> f64 {
        at.saturating_duration_since(self.0.began).as_nanos() as f64 / 1e3
    }

    /// This thread's number. Its name is written at the first call.
    fn thread(&self) -> u64 {
        THREAD.with(|known| {
            if known.get() == 0 {
                known.set(self.0.threads.fetch_add(1, Ordering::Relaxed) + 1);
                let name = Value::from(std::thread::current().name().unwrap_or("thread"));
                let tid = known.get();
                self.file().event(format_args!(
                    r#"{{"ph":"M","pid":1,"tid":{tid},"name":"thread_name","args":{{"name":{name}}}}}"#
                ));
            }
            known.get()
        })
    }
}

/// The data of an open span.
struct Open {
    made: Instant,
    args: Map<String, Value>,
    /// First entry, last exit, number of entries.
    entered: Option<Instant>,
    left: Option<Instant>,
    entries: u32,
    thread: u64,
}

struct Fields<'a>(&'a mut Map<String, Value>);

impl Visit for Fields<'_> {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}

/// Whether spans of this name overlap. They are written as soon as they begin.
fn lies_beside(name: &str) -> bool {
    matches!(name, "infeed.epoch" | "infeed.batch")
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Trace {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut args = Map::new();
        attributes.record(&mut Fields(&mut args));
        let made = Instant::now();
        if lies_beside(span.name()) {
            let at = self.micros(made);
            let thread = self.thread();
            let args = Value::Object(args.clone());
            self.file().event(format_args!(
                r#"{{"ph":"b","cat":"infeed","id":{},"pid":1,"tid":{thread},"ts":{at:.3},"name":"{}","args":{args}}}"#,
                id.into_u64(),
                span.name(),
            ));
        }
        let open = Open { made, args, entered: None, left: None, entries: 0, thread: 0 };
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            values.record(&mut Fields(&mut open.args));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let thread = self.thread();
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.entered.get_or_insert_with(Instant::now);
            open.entries += 1;
            open.thread = thread;
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.left = Some(Instant::now());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(open) = span.extensions_mut().remove::<Open>() else { return };
        let now = Instant::now();
        let name = span.name();
        let id = id.into_u64();
        let args = Value::Object(open.args);
        let thread = if open.thread == 0 { self.thread() } else { open.thread };
        match (lies_beside(name), open.entered, open.left) {
            (true, ..) => {
                let at = self.micros(now);
                self.file().event(format_args!(
                    r#"{{"ph":"e","cat":"infeed","id":{id},"pid":1,"tid":{thread},"ts":{at:.3},"name":"{name}","args":{args}}}"#
                ));
            }
            // Entered once: one thread did it without interruption.
            (false, Some(from), Some(to)) if open.entries == 1 => {
                let (at, long) = (self.micros(from), self.micros(to) - self.micros(from));
                self.file().event(format_args!(
                    r#"{{"ph":"X","cat":"infeed","pid":1,"tid":{thread},"ts":{at:.3},"dur":{long:.3},"name":"{name}","args":{args}}}"#
                ));
            }
            _ => {
                let (from, to) = (self.micros(open.made), self.micros(now));
                let mut file = self.file();
                file.event(format_args!(
                    r#"{{"ph":"b","cat":"infeed","id":{id},"pid":1,"tid":{thread},"ts":{from:.3},"name":"{name}","args":{args}}}"#
                ));
                file.event(format_args!(
                    r#"{{"ph":"e","cat":"infeed","id":{id},"pid":1,"tid":{thread},"ts":{to:.3},"name":"{name}"}}"#
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn the_file_is_a_document_at_any_time_and_holds_the_spans() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.json");
        let trace = Trace::create(&path).unwrap();
        let read = || -> Vec<Value> { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
        assert!(read().is_empty());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(trace.clone()), || {
            let batch = tracing::info_span!("infeed.batch", step = 3u64, bytes = tracing::field::Empty);
            for n in 0..2000u64 {
                let span = tracing::info_span!(parent: &batch, "infeed.decode", n, object = "a \"quoted\" \\ name");
                span.in_scope(|| ());
            }
            batch.record("bytes", 64u64);
            // Blocks were written, the last one was not.
            let seen = read().len();
            assert!(seen > 100 && seen < 2002, "{seen}");
        });
        assert_eq!(trace.finish().unwrap(), (2003, 0));
        let events = read();
        let of = |ph: &str| events.iter().filter(|event| event["ph"] == ph).count();
        assert_eq!((of("X"), of("b"), of("e"), of("M")), (2000, 1, 1, 1));
        let end = events.iter().find(|event| event["ph"] == "e").unwrap();
        assert_eq!((&end["args"]["step"], &end["args"]["bytes"]), (&3.into(), &64.into()));
        assert_eq!(events[2]["args"]["object"], "a \"quoted\" \\ name");
    }

    #[test]
    fn a_path_that_cannot_be_written_is_known_at_once() {
        assert!(Trace::create(Path::new("/no/such/folder/trace.json")).is_err());
    }
}
