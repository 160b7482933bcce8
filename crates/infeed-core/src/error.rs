//! The only error type: what went wrong, where, and what to do about it.

use std::{any::Any, borrow::Cow, error::Error as StdError, fmt, ops::Range, sync::Arc};

pub use crate::setting;
use crate::{report::Stage, types::printable};

/// A `Result` with infeed's [`Error`].
///
/// ```
/// /// Records of a dataset, without its labels.
/// fn records(url: &str) -> infeed::Result<u64> {
///     Ok(infeed::open(url).blocking()?.len())
/// }
/// assert_eq!(records("synthetic://?count=50")?, 50);
/// assert!(records("/no/such/folder").is_err());
/// # Ok::<(), infeed::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The message of a panic.
pub fn panic_words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// What failed, where, and what to do about it. Cheap to clone.
///
/// `Display` prints one line without the causes; these are in [`source`](StdError::source), and `{:#}` prints the whole
/// chain. Branch on [`kind`](Error::kind); read [`context`](Error::context) for the object and the record.
///
/// Messages name a setting as its caller sets it: in Rust by its method, on the command line by its option, in Python
/// by its argument.
///
/// ```
/// use infeed::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::Config, "prefetch is 0").with_hint("use 1 or more");
/// assert_eq!(error.to_string(), "config: prefetch is 0; use 1 or more");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    what: Cow<'static, str>,
    context: ErrorContext,
    hint: Option<Cow<'static, str>>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// What is at fault, if the kind does not determine it.
    fault: Fault,
}

/// What is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// What the kind implies.
    OfKind,
    /// One object that can't be read; others may be readable.
    Object,
    /// This machine: the error can happen with any sample.
    Machine,
}

/// One kind for each reaction that a caller may want.
///
/// ```
/// use infeed::ErrorKind;
///
/// let error = infeed::open("/no/such/folder").blocking().unwrap_err();
/// match error.kind() {
///     ErrorKind::NotFound => println!("not mounted yet? {error}"),
///     ErrorKind::Denied => println!("log in first: {error}"),
///     _ => return Err(error),
/// }
/// # assert_eq!(error.kind(), ErrorKind::NotFound);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An impossible setting, reported by `build()` or by the call that takes the setting.
    Config,
    /// Nothing to train on: no records, or fewer than the first batch needs.
    Empty,
    /// A path, object or field does not exist.
    NotFound,
    /// Access was refused.
    Denied,
    /// Reading failed; trying again may help.
    Io,
    /// The data of this sample is damaged. The run itself is fine.
    Corrupt,
    /// Valid data in a form that infeed does not read.
    Unsupported,
    /// A saved state does not fit this loader.
    State,
    /// A GPU or its driver failed or is missing.
    Device,
    /// A memory bound would be exceeded.
    OutOfMemory,
    /// A bug in infeed: an invariant does not hold. Please report it.
    Internal,
}

impl ErrorKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Config => "config",
            Self::Empty => "empty",
            Self::NotFound => "not found",
            Self::Denied => "denied",
            Self::Io => "io",
            Self::Corrupt => "corrupt",
            Self::Unsupported => "unsupported",
            Self::State => "state",
            Self::Device => "device",
            Self::OutOfMemory => "out of memory",
            Self::Internal => "internal",
        }
    }
}

/// Where an error happened. Every part is optional. Parts are added while the error is passed up.
///
/// ```
/// use infeed::{Error, report::Stage};
///
/// // As a stream returns it.
/// let error = Error::corrupt("JPEG ends after 3112 of 14870 bytes")
///     .at_stage(Stage::Decode)
///     .at_object("train-00012.tar")
///     .at_range(1_204_224..1_219_094)
///     .at_record(48_213);
/// let context = error.context();
/// assert_eq!((context.stage, context.record), (Some(Stage::Decode), Some(48_213)));
/// assert_eq!(context.object.as_deref(), Some("train-00012.tar"));
/// assert_eq!(context.range, Some(1_204_224..1_219_094));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorContext {
    /// The stage of the pipeline.
    pub stage: Option<Stage>,
    /// Name of the file or object, written as the user would write it if possible.
    pub object: Option<String>,
    /// Bytes of the object that were being read.
    pub range: Option<Range<u64>>,
    /// Index of the record in its dataset.
    pub record: Option<u64>,
    /// Name of the record's field, if records have several images.
    pub field: Option<String>,
}

impl Error {
    /// An error with a few words on what went wrong. Add where it happened and what to do with the other methods.
    pub fn new(kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Self {
        let what = short(what.into());
        Self(Arc::new(Inner {
            kind,
            what,
            context: ErrorContext::default(),
            hint: None,
            source: None,
            fault: Fault::OfKind,
        }))
    }

    /// Shorthand for an impossible setting.
    pub fn config(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Config, what)
    }

    /// Shorthand for damaged data.
    pub fn corrupt(what: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Corrupt, what)
    }

    /// Adds what to do next, in the imperative.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        Arc::make_mut(&mut self.0).hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// Adds the cause of another error, whose own message is already part of this one.
    #[doc(hidden)]
    #[must_use]
    pub fn with_cause_of(mut self, other: &Self) -> Self {
        Arc::make_mut(&mut self.0).source.clone_from(&other.0.source);
        self
    }

    /// Adds the stage, unless an inner call has set it.
    #[must_use]
    pub fn at_stage(mut self, stage: Stage) -> Self {
        Arc::make_mut(&mut self.0).context.stage.get_or_insert(stage);
        self
    }

    /// Adds the object, unless an inner call has set it.
    #[must_use]
    pub fn at_object(mut self, object: impl Into<String>) -> Self {
        let context = &mut Arc::make_mut(&mut self.0).context;
        if context.object.is_none() {
            context.object = Some(object.into());
        }
        self
    }

    /// Adds the range of bytes, unless an inner call has set it.
    #[must_use]
    pub fn at_range(mut self, range: Range<u64>) -> Self {
        Arc::make_mut(&mut self.0).context.range.get_or_insert(range);
        self
    }

    /// Adds the record, unless an inner call has set it.
    #[must_use]
    pub fn at_record(mut self, record: u64) -> Self {
        Arc::make_mut(&mut self.0).context.record.get_or_insert(record);
        self
    }

    /// Adds the field of the record, unless an inner call has set it.
    #[must_use]
    pub fn at_field(mut self, field: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).context.field.get_or_insert_with(|| field.into());
        self
    }

    /// Replaces the record: a wrapper dataset replaces its child's index with its own.
    #[must_use]
    pub fn rename_record(mut self, record: u64) -> Self {
        Arc::make_mut(&mut self.0).context.record = Some(record);
        self
    }

    /// Adds to the message which step of a transform failed, counted from 1.
    #[doc(hidden)]
    #[must_use]
    pub fn in_step(mut self, index: usize) -> Self {
        let inner = Arc::make_mut(&mut self.0);
        inner.what = format!("{} (step {})", inner.what, index + 1).into();
        self
    }

    /// Marks the error as limited to one object, while its store or disk still responds: the object is missing, access
    /// to it is refused, or its blocks are damaged. Do not use it for a store that can't be reached.
    #[must_use]
    pub fn into_unreadable(mut self) -> Self {
        Arc::make_mut(&mut self.0).fault = Fault::Object;
        self
    }

    /// Marks the error as one of the machine, which has no memory or no threads left: no sample is at fault.
    #[doc(hidden)]
    #[must_use]
    pub fn of_machine(mut self) -> Self {
        Arc::make_mut(&mut self.0).fault = Fault::Machine;
        self
    }

    /// The kind, by which to choose a reaction.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What went wrong, without where and without what to do. For code that prints the parts in another form.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// What to do about it, as set by [`with_hint`](Self::with_hint).
    #[must_use]
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Where it happened.
    #[must_use]
    pub fn context(&self) -> &ErrorContext {
        &self.0.context
    }

    /// Whether only one sample is bad, so that `on_bad_sample` applies. True if the record is known and its data is
    /// damaged or unsupported, its image is above `max_image_bytes`, or its object [can't be
    /// read](Self::is_unreadable).
    #[must_use]
    pub fn is_sample(&self) -> bool {
        let kinds = matches!(self.0.kind, ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::OutOfMemory);
        let of_sample = match self.0.fault {
            Fault::OfKind => kinds,
            Fault::Object => true,
            Fault::Machine => false,
        };
        self.0.context.record.is_some() && of_sample
    }

    /// Whether one object can't be read while others may be readable: it is missing (a store's 404), access to it is
    /// refused (403), or the disk fails at its bytes. `false` for a store or network that does not answer, and for
    /// causes that affect every object: wrong credentials, a missing bucket, no more file handles.
    #[must_use]
    pub fn is_unreadable(&self) -> bool {
        self.0.fault == Fault::Object
    }
}

impl fmt::Display for Error {
    /// Control characters and direction marks in names and messages from outside are escaped, so that the text is safe
    /// on a terminal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alternate = f.alternate();
        self.tell(&mut printable::Lines(f), alternate)
    }
}

impl Error {
    fn tell(&self, f: &mut impl fmt::Write, whole_chain: bool) -> fmt::Result {
        let Inner { kind, what, context, hint, source, fault: _ } = &*self.0;
        match context.stage {
            // A config or state error is about the caller's input, whichever stage detected it.
            Some(stage) if !matches!(kind, ErrorKind::Config | ErrorKind::State) => write!(f, "{stage}: {what}")?,
            _ => write!(f, "{}: {what}", kind.word())?,
        }
        if context.record.is_some() || context.field.is_some() || context.object.is_some() {
            f.write_str(" (")?;
            let mut comma = "";
            if let Some(record) = context.record {
                write!(f, "record {record}")?;
                comma = ", ";
            }
            if let Some(field) = &context.field {
                write!(f, "{comma}field {}", printable::name(field))?;
                comma = ", ";
            }
            if let Some(object) = &context.object {
                write!(f, "{comma}{}", printable::name(object))?;
                if let Some(range) = &context.range {
                    write!(f, " @ {}..{}", range.start, range.end)?;
                }
            }
            f.write_str(")")?;
        }
        if let Some(hint) = hint {
            write!(f, "; {hint}")?;
        }
        if whole_chain {
            // Many errors repeat the message of their cause. Each message is printed once.
            let mut told = String::new();
            let mut cause: Option<&(dyn StdError + 'static)> = source.as_ref().map(|e| &**e as _);
            while let Some(error) = cause {
                let words = error.to_string();
                if !told.contains(&words) {
                    write!(f, ": {words}")?;
                    told.push_str(&words);
                }
                cause = error.source();
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|e| &**e as _)
    }
}

/// The most bytes kept of a message: a value quoted in it may be a whole file.
const LONGEST: usize = 4096;

fn short(words: Cow<'static, str>) -> Cow<'static, str> {
    if words.len() <= LONGEST {
        return words;
    }
    let end = (0..=LONGEST).rev().find(|at| words.is_char_boundary(*at)).unwrap_or_default();
    format!("{}…", &words[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_are_a_file_are_cut() {
        let error = Error::corrupt(format!("the label `{}` is none", "ä".repeat(1 << 20)));
        let words = error.to_string();
        assert!(words.len() < 5000 && words.contains("the label `ää") && words.ends_with("ä…"), "{}", words.len());
    }

    #[test]
    fn one_line_says_what_where_and_what_to_do() {
        let error = Error::corrupt("JPEG ends after 3112 of 14870 bytes")
            .at_stage(Stage::Decode)
            .at_record(48213)
            .at_object("train-00012.tar")
            .at_range(1204224..1219094)
            .with_hint("fetch the object again or set on_bad_sample(Skip)");
        assert_eq!(
            error.to_string(),
            "decode: JPEG ends after 3112 of 14870 bytes (record 48213, train-00012.tar @ 1204224..1219094); \
             fetch the object again or set on_bad_sample(Skip)"
        );
        assert!(error.is_sample());
    }

    #[test]
    fn the_inner_place_wins_over_the_outer_one() {
        let error = Error::corrupt("x").at_object("inner").at_object("outer").at_record(1).at_record(2);
        assert_eq!(error.to_string(), "corrupt: x (record 1, inner)");
        assert_eq!(error.rename_record(7).context().record, Some(7));
        let error = Error::corrupt("x").at_field("mask").at_field("image").at_record(1).at_object("masks/a.png");
        assert_eq!(error.to_string(), "corrupt: x (record 1, field mask, masks/a.png)");
    }

    #[test]
    fn the_chain_is_printed_only_when_asked_for() {
        let error = Error::new(ErrorKind::Io, "cannot read").with_source(std::io::Error::other("disk on fire"));
        assert_eq!(error.to_string(), "io: cannot read");
        assert_eq!(format!("{error:#}"), "io: cannot read: disk on fire");
    }

    #[test]
    fn names_give_no_orders_to_a_terminal() {
        let name = "a\u{1b}]0;owned\u{7}\n\u{202e}gpj\u{9b}2J.jpg";
        let error = Error::corrupt(format!("no field `{name}`"))
            .at_object(name)
            .with_hint(format!("look at {name}"))
            .with_source(std::io::Error::other(name));
        assert!(format!("{error:#}").matches(printable::is_order).all(|order| order == "\n"));
        // The line break of the error itself, not one from a name.
        assert!(
            Error::corrupt("x")
                .at_object(name)
                .to_string()
                .ends_with(r"(a\u{1b}]0;owned\u{7}\n\u{202e}gpj\u{9b}2J.jpg)")
        );
        assert_eq!(error.context().object.as_deref(), Some(name), "programs get it as it is");
    }

    #[test]
    fn a_cause_that_the_error_above_repeats_is_printed_once() {
        let inner = std::io::Error::other(Error::new(ErrorKind::Io, "no answer"));
        let error = Error::new(ErrorKind::Io, "cannot read")
            .with_source(Error::new(ErrorKind::Denied, format!("gave up: {inner}")).with_source(inner));
        assert_eq!(format!("{error:#}"), "io: cannot read: denied: gave up: io: no answer");
    }
}
