//! What a store said to a request that failed: facts, not words.
//!
//! ```text
//! Connector ─ status, headers, body ─▶ Refusal ┐   the slot of    with_answer    the source of    ┌ what to do
//!           └ no answer at all ──────▶ Broken  ┴ note ─▶ a request ──────────▶ its error ─ of ─▶ └ what to tell
//! ```
//!
//! `object_store` keeps status and body of an answer in types that nobody else can name; all that leaves it is their
//! wording, which the next version may change. So its connector is ours ([`Connector`](super::Connector)), and what it
//! sees becomes the source of the error.
//!
//! The slot belongs to one future ([`with_answer`]): requests that run beside each other never read each other's answers. A
//! request that is repeated inside keeps its last answer, which is the one that its error tells of.

#![cfg_attr(not(feature = "s3"), allow(dead_code, reason = "what only buckets ask for, and only HTTP stores note"))]

use std::{
    cell::{Cell, RefCell},
    error::Error as StdError,
    fmt,
    pin::pin,
};

use infeed_core::error::Error;
use object_store::Error as StoreError;

tokio::task_local! {
    static SLOT: Slot;
}

/// What is known of a request while it runs.
#[derive(Debug, Default)]
struct Slot {
    answer: RefCell<Option<Answer>>,
    /// Pages of a listing in a row that named nothing.
    empty: Cell<u32>,
    /// The length of the answer, where whoever asks knows it.
    expected: Option<u64>,
}

/// An HTTP store's answer that is not what was asked for.
///
/// infeed's own stores find out by themselves. A store that is handed to [`Source::from_store`](super::Source::from_store)
/// tells by the same means how its failures are to be met: with this as the source of its error, or as a source
/// further down.
///
/// ```
/// use infeed::source::Refusal;
///
/// // What S3 says when it is asked too often: reads slow down and go on.
/// let answer = Refusal::new(503).with_code("SlowDown");
/// let error = object_store::Error::Generic { store: "mine", source: answer.into() };
/// assert_eq!(error.to_string(), "Generic mine error: the store answered 503 SlowDown");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// HTTP's status.
    pub status: u16,
    /// The store's own word for it, such as `SlowDown`.
    pub code: Option<String>,
    /// What the store says to people.
    pub message: Option<String>,
    /// The store's name for the request, for those who run it.
    pub request: Option<String>,
    /// The region in which the bucket is.
    pub region: Option<String>,
    /// The store's clock.
    pub date: Option<String>,
    /// It sends elsewhere and does not say where.
    pub(super) to_nowhere: bool,
    /// The host that it sends to, which is not followed.
    pub(super) sends_to: Option<String>,
}

impl Refusal {
    /// A status alone: 429 and 503 ask for fewer requests, 408 and other ones from 500 on are worth another try.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// The same with the store's own word; `SlowDown` asks for fewer requests, whatever the status.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    pub(super) fn is(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }

    /// What helps.
    pub(super) fn remedy(&self) -> Remedy {
        match self.status {
            429 | 503 => Remedy::FewerRequests,
            _ if self.is(&["SlowDown"]) => Remedy::FewerRequests,
            408 | 500.. => Remedy::AnotherRequest,
            300.. => Remedy::None,
            _ => Remedy::AnotherRequest,
        }
    }
}

/// Without what the store repeated of the request: that may be secret.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store answered {}", self.status)?;
        if let Some(code) = &self.code {
            write!(f, " {code}")?;
        }
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(host) = &self.sends_to {
            write!(f, ", and sends to {host}")?;
        }
        if let Some(request) = &self.request {
            write!(f, " (request {request})")?;
        }
        Ok(())
    }
}

impl StdError for Refusal {}

/// No answer came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) phase: Phase,
    /// What the layers below say, each once.
    pub(super) words: String,
}

/// How far a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This process or machine can open no more files, and so no connection.
    NoFiles,
    /// There is no connection.
    Connecting,
    /// There is one, and the two sides do not agree on how to encrypt it.
    Handshake,
    /// It was sent, or began to be.
    Later,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl StdError for Broken {}

/// What may help after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    AnotherRequest,
    FewerRequests,
    None,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Refused(Refusal),
    Broken(Broken),
}

impl Answer {
    /// What an error carries. Errors of ours have understood theirs: what lies behind them is not looked at.
    pub(super) fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next.filter(|error| !error.is::<Error>()) {
            if let Some(refusal) = error.downcast_ref::<Refusal>() {
                return Some(Self::Refused(refusal.clone()));
            }
            if let Some(broken) = error.downcast_ref::<Broken>() {
                return Some(Self::Broken(broken.clone()));
            }
            next = error.source();
        }
        None
    }

    /// What an error of ours keeps as its cause.
    pub(super) fn of_cause(error: &Error) -> Option<Self> {
        Self::of(error.source()?)
    }

    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Refused(refusal) => refusal.remedy(),
            Self::Broken(_) => Remedy::AnotherRequest,
        }
    }

    /// As the cause of an error.
    pub(super) fn cause_of(self, error: Error) -> Error {
        match self {
            Self::Refused(refusal) => error.with_source(refusal),
            Self::Broken(broken) => error.with_source(broken),
        }
    }
}

impl From<Answer> for Box<dyn StdError + Send + Sync> {
    fn from(answer: Answer) -> Self {
        match answer {
            Answer::Refused(refusal) => refusal.into(),
            Answer::Broken(broken) => broken.into(),
        }
    }
}

/// Notes what the request that runs here was answered; `None` after a success.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn note(answer: Option<Answer>) {
    // Nobody listens to the requests that look for a region.
    let _ = SLOT.try_with(|slot| *slot.answer.borrow_mut() = answer);
}

/// Counts a page of a listing; gives how many in a row, this one included, named nothing, as far as one wait for an object saw.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn page(empty: bool) -> u32 {
    let count = |slot: &Slot| {
        slot.empty.set(if empty { slot.empty.get() + 1 } else { 0 });
        slot.empty.get()
    };
    SLOT.try_with(count).unwrap_or(0)
}

/// The length of the answer to the request that runs here, where whoever asks knows it.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn expected() -> Option<u64> {
    SLOT.try_with(|slot| slot.expected).unwrap_or_default()
}

/// Runs one request; when it fails, what was noted of it becomes the source of its error.
pub(super) async fn with_answer<T>(request: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
    with_answer_of(None, request).await
}

/// The same with the length of its answer, for stores that tell none.
pub(super) async fn with_answer_of<T>(
    expected: Option<u64>,
    request: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    // A request inside another is for the same bytes.
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    let expected = expected.or_else(self::expected);
    let mut request = pin!(SLOT.scope(Slot { expected, ..Slot::default() }, request));
    let error = match request.as_mut().await {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    match request.take_value().and_then(|slot| slot.answer.into_inner()) {
        // A request inside this one was with_answer already, or somebody has understood it.
        Some(answer) if Answer::of(&error).is_none() && our_error(&error).is_none() => Err(carrying(error, answer)),
        _ => Err(error),
    }
}

/// An error of ours that came through the store, or through its client.
pub(super) fn our_error(error: &StoreError) -> Option<&Error> {
    std::iter::successors(error.source(), |error| (*error).source()).find_map(|error| error.downcast_ref::<Error>())
}

/// The same kind of error with another source.
fn carrying(error: StoreError, answer: Answer) -> StoreError {
    let source = answer.into();
    match error {
        StoreError::NotFound { path, .. } => StoreError::NotFound { path, source },
        StoreError::AlreadyExists { path, .. } => StoreError::AlreadyExists { path, source },
        StoreError::Precondition { path, .. } => StoreError::Precondition { path, source },
        StoreError::NotModified { path, .. } => StoreError::NotModified { path, source },
        StoreError::PermissionDenied { path, .. } => StoreError::PermissionDenied { path, source },
        StoreError::Unauthenticated { path, .. } => StoreError::Unauthenticated { path, source },
        StoreError::Generic { store, .. } => StoreError::Generic { store, source },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(words: &str) -> StoreError {
        StoreError::Generic { store: "test", source: words.to_owned().into() }
    }

    #[test]
    fn a_status_says_what_helps_and_the_words_around_it_do_not() {
        for (status, code, remedy) in [
            (503, None, Remedy::FewerRequests),
            (429, Some("TooMany"), Remedy::FewerRequests),
            (200, Some("SlowDown"), Remedy::FewerRequests),
            (400, Some("SlowDown"), Remedy::FewerRequests),
            (500, Some("InternalError"), Remedy::AnotherRequest),
            (408, None, Remedy::AnotherRequest),
            (400, Some("ExpiredToken"), Remedy::None),
            (301, Some("PermanentRedirect"), Remedy::None),
            (403, None, Remedy::None),
        ] {
            let refusal = Refusal { code: code.map(Into::into), ..Refusal::new(status) };
            assert_eq!(refusal.remedy(), remedy, "{refusal}");
        }
    }

    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    #[test]
    fn requests_beside_each_other_keep_their_answers_apart() {
        let one = |status: u16| {
            with_answer(async move {
                note(Some(Answer::Refused(Refusal::new(status))));
                tokio::task::yield_now().await;
                Err::<(), _>(failed("Server returned non-2xx status code: 418"))
            })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let errors = runtime.block_on(futures::future::join_all((400..460).map(one)));
        for (status, error) in (400..460).zip(errors) {
            assert_eq!(Answer::of(&error.unwrap_err()), Some(Answer::Refused(Refusal::new(status))));
        }
    }

    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    #[test]
    fn the_last_answer_counts_and_a_success_is_none() {
        let run = |noted: &[Option<u16>]| {
            let noted: Vec<_> = noted.iter().map(|status| status.map(|s| Answer::Refused(Refusal::new(s)))).collect();
            let error = futures::executor::block_on(with_answer(async move {
                noted.into_iter().for_each(note);
                Err::<(), _>(StoreError::NotFound { path: "x".into(), source: "words".into() })
            }));
            error.unwrap_err()
        };
        let error = run(&[Some(503), Some(404)]);
        assert!(matches!(&error, StoreError::NotFound { path, .. } if path == "x"));
        assert_eq!(Answer::of(&error), Some(Answer::Refused(Refusal::new(404))));
        assert_eq!(Answer::of(&run(&[Some(503), None])), None);
    }

    #[test]
    fn what_an_error_of_ours_was_made_of_is_not_read_again() {
        let ours = Error::config("the region is another").with_source(Refusal::new(503));
        let error = StoreError::Generic { store: "S3", source: ours.into() };
        assert_eq!(Answer::of(&error), None);
        assert!(our_error(&error).is_some());
    }
}
