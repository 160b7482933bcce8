//! What a store answered to a failed request, as facts rather than text.
//!
//! ```text
//! Connector ─ status, headers, body ─▶ Refusal ┐   the slot of    with_answer    the source of    ┌ what to do
//!           └ no answer at all ──────▶ Broken  ┴ note ─▶ a request ──────────▶ its error ─ of ─▶ └ what to report
//! ```
//!
//! `object_store` keeps the status and body of an answer in private types. Other crates get only their text, which the
//! next version may change. So infeed has its own connector ([`Connector`](super::Connector)), and what it sees becomes
//! the source of the error.
//!
//! The slot belongs to one future ([`with_answer`]), so concurrent requests never read each other's answers. If a
//! request is repeated inside that future, the slot keeps its last answer, which is the one that its error is about.

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

/// Facts about a request while it runs.
#[derive(Debug, Default)]
struct Slot {
    answer: RefCell<Option<Answer>>,
    /// Number of consecutive pages of a listing without any entry.
    empty: Cell<u32>,
    /// The length of the answer, if the caller knows it.
    expected: Option<u64>,
}

/// An HTTP store's refusal of a request.
///
/// infeed's own stores create it themselves. A store passed to [`Source::from_store`](super::Source::from_store) can
/// use it to say how its failures should be handled: put it into the chain of sources of its error.
///
/// ```
/// use infeed::source::Refusal;
///
/// // S3's answer to too many requests: reads slow down and go on.
/// let answer = Refusal::new(503).with_code("SlowDown");
/// let error = object_store::Error::Generic { store: "mine", source: answer.into() };
/// assert_eq!(error.to_string(), "Generic mine error: the store answered 503 SlowDown");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The store's error code, such as `SlowDown`.
    pub code: Option<String>,
    /// The store's message for people.
    pub message: Option<String>,
    /// The store's id of the request, for its operators.
    pub request: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// The store's clock.
    pub date: Option<String>,
    /// A redirect without a location.
    pub(super) to_nowhere: bool,
    /// The host of a redirect, which is not followed.
    pub(super) sends_to: Option<String>,
}

impl Refusal {
    /// Only a status: 429 and 503 ask for fewer requests; 408 and other statuses from 500 on are worth another attempt.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Adds the store's error code. `SlowDown` asks for fewer requests, whatever the status.
    #[must_use]
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    pub(super) fn is(&self, codes: &[&str]) -> bool {
        self.code.as_deref().is_some_and(|code| codes.contains(&code))
    }

    /// What to do about it.
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

/// Without the parts of the request that the store repeats, because they may be secret.
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
    /// The messages of the layers below, each once.
    pub(super) words: String,
}

/// How far a request got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This process or machine can't open any more files, so it can't connect.
    NoFiles,
    /// There was no connection yet.
    Connecting,
    /// Connected, but the TLS handshake failed.
    Handshake,
    /// Sending had begun.
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
    /// The answer carried by an error. infeed's own errors have already used theirs, so their sources are not searched.
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

    /// The answer that one of infeed's errors keeps as its cause.
    pub(super) fn of_cause(error: &Error) -> Option<Self> {
        Self::of(error.source()?)
    }

    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::Refused(refusal) => refusal.remedy(),
            Self::Broken(_) => Remedy::AnotherRequest,
        }
    }

    /// Makes it the cause of an error.
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

/// Records the answer to the request that runs here; `None` after a success.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn note(answer: Option<Answer>) {
    // Without a slot nothing is recorded, for example for requests that find out a region.
    let _ = SLOT.try_with(|slot| *slot.answer.borrow_mut() = answer);
}

/// Counts a page of a listing. Returns how many pages in a row, including this one, had no entry within one wait for an
/// object.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn page(empty: bool) -> u32 {
    let count = |slot: &Slot| {
        slot.empty.set(if empty { slot.empty.get() + 1 } else { 0 });
        slot.empty.get()
    };
    SLOT.try_with(count).unwrap_or(0)
}

/// The length of the answer to the request that runs here, if the caller knows it.
#[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
pub(super) fn expected() -> Option<u64> {
    SLOT.try_with(|slot| slot.expected).unwrap_or_default()
}

/// Runs one request. If it fails, the recorded answer becomes the source of its error.
pub(super) async fn with_answer<T>(request: impl Future<Output = object_store::Result<T>>) -> object_store::Result<T> {
    with_answer_of(None, request).await
}

/// The same with the expected length of the answer, for stores that send none.
pub(super) async fn with_answer_of<T>(
    expected: Option<u64>,
    request: impl Future<Output = object_store::Result<T>>,
) -> object_store::Result<T> {
    // A request inside another one is for the same bytes.
    #[cfg(any(feature = "s3", feature = "gcs", feature = "azure", feature = "http"))]
    let expected = expected.or_else(self::expected);
    let mut request = pin!(SLOT.scope(Slot { expected, ..Slot::default() }, request));
    let error = match request.as_mut().await {
        Ok(done) => return Ok(done),
        Err(error) => error,
    };
    match request.take_value().and_then(|slot| slot.answer.into_inner()) {
        // An inner `with_answer` has already added the answer, or the error is already one of infeed's.
        Some(answer) if Answer::of(&error).is_none() && our_error(&error).is_none() => Err(carrying(error, answer)),
        _ => Err(error),
    }
}

/// infeed's own error, if one came through the store or its client.
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
