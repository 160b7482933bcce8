//! Events of the library on stderr: warnings as sentences, or with `INFEED_LOG` log lines with time, level and target.

use std::{
    env,
    fmt::{self, Write as _},
};

use infeed::internal::printable;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    layer::Context,
    registry::LookupSpan,
};

use crate::{
    console::{self, Label, LogLines},
    failure::Failure,
};

const NAME: &str = "INFEED_LOG";
/// Without warnings about bad samples, which the commands print themselves.
const DEFAULT: &str = "warn,infeed::engine::assembly=error";

/// The lines selected by `INFEED_LOG`: `debug` shows decisions, `trace` each request. `None` if it is not set.
pub(crate) fn from_env() -> Result<Option<Targets>, Failure> {
    match env::var(NAME) {
        Ok(text) => parse(&text).map(Some),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(Failure::Usage(format!("{NAME}: {error}"))),
    }
}

/// Shows these lines, or warnings as sentences.
pub(crate) fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(asked: Option<Targets>) -> Box<dyn Layer<S> + Send + Sync> {
    match asked {
        None => Sentences.with_filter(parse(DEFAULT).unwrap_or_default()).boxed(),
        Some(targets) => {
            let lines = tracing_subscriber::fmt::layer().with_ansi(console::colours()).with_writer(LogLines);
            lines.with_filter(targets).boxed()
        }
    }
}

/// Events as sentences.
struct Sentences;

impl<S: Subscriber> Layer<S> for Sentences {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut sentence = Sentence::default();
        event.record(&mut sentence);
        let label = if *event.metadata().level() == Level::ERROR { Label::Error } else { Label::Warning };
        console::labelled_line(label, &sentence.finish());
    }
}

/// `the tar has changed since it was indexed (file a.tar, size 5120): why`
#[derive(Default)]
struct Sentence {
    message: String,
    fields: String,
    error: String,
}

impl Sentence {
    fn finish(self) -> String {
        let Self { message, fields, error } = self;
        let fields = if fields.is_empty() { fields } else { format!(" ({fields})") };
        let error = if error.is_empty() { error } else { format!(": {error}") };
        message + &fields + &error
    }
}

impl Visit for Sentence {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" => write!(self.error, "{value:?}"),
            name => {
                let comma = if self.fields.is_empty() { "" } else { ", " };
                // One line: a value may be the name of a file.
                let (value, name) = (format!("{value:?}"), name.replace('_', " "));
                let value = printable::name(&value);
                match name.strip_suffix(" s") {
                    _ if name == "seconds" => write!(self.fields, "{comma}{value} s"),
                    Some(name) => write!(self.fields, "{comma}{name} {value} s"),
                    None => write!(self.fields, "{comma}{name} {value}"),
                }
            }
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

/// Reads a level, or levels by target: `debug`, `warn,infeed::source=trace`.
fn parse(text: &str) -> Result<Targets, Failure> {
    let mut targets = Targets::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let refuse = || {
            let levels = "a level is error, warn, info, debug, trace or off";
            Failure::Usage(format!("{NAME}: {part:?} is neither a level nor target=level; {levels}"))
        };
        let (target, level) = part.split_once('=').map_or((None, part), |(target, level)| (Some(target.trim()), level));
        let level: LevelFilter = level.trim().parse().map_err(|_| refuse())?;
        targets = match target {
            None => targets.with_default(level),
            // A target is a module. Spans and their fields are not supported.
            Some(target) if !target.is_empty() && !target.contains(['[', '{', '=']) => {
                targets.with_target(target, level)
            }
            Some(_) => return Err(refuse()),
        };
    }
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn an_event_is_a_sentence() {
        struct Kept(Arc<Mutex<Vec<String>>>);
        impl<S: Subscriber> Layer<S> for Kept {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                let mut sentence = Sentence::default();
                event.record(&mut sentence);
                self.0.lock().unwrap().push(sentence.finish());
            }
        }
        let kept = Arc::<Mutex<Vec<String>>>::default();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Kept(Arc::clone(&kept))), || {
            tracing::warn!("the cache is not used");
            let (file, error) = ("a\nwarning: b.tar", "disk on fire");
            tracing::warn!(%error, file, waited_s = 30, "a read does not come");
        });
        let want =
            ["the cache is not used", r"a read does not come (file a\nwarning: b.tar, waited 30 s): disk on fire"];
        assert_eq!(*kept.lock().unwrap(), want);
    }

    #[test]
    fn a_level_or_a_level_by_target() {
        let shows = |text: &str, target: &str, level: Level| parse(text).unwrap().would_enable(target, &level);
        for (text, target, level, want) in [
            (DEFAULT, "infeed::loader", Level::WARN, true),
            (DEFAULT, "infeed::loader", Level::INFO, false),
            (DEFAULT, "infeed::engine::assembly", Level::WARN, false),
            ("debug", "hyper", Level::DEBUG, true),
            ("debug,", "infeed", Level::DEBUG, true),
            (" warn , infeed::source = TRACE ", "infeed::source::cache", Level::TRACE, true),
            ("warn,infeed=debug,infeed::engine=off", "infeed::engine::run", Level::ERROR, false),
            ("infeed=debug", "hyper", Level::ERROR, false),
            ("", "infeed", Level::ERROR, false),
        ] {
            assert_eq!(shows(text, target, level), want, "{text:?} {target} {level}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, part) in [
            ("debgu", "\"debgu\""),
            ("warn,infeed", "\"infeed\""),
            ("warn,infeed=loud", "\"infeed=loud\""),
            ("infeed[infeed.read]=trace", "\"infeed[infeed.read]=trace\""),
            ("=debug", "\"=debug\""),
        ] {
            let Err(Failure::Usage(message)) = parse(text) else { panic!("{text:?} was taken") };
            assert!(message.contains(part) && message.contains("target=level"), "{message}");
        }
    }
}
