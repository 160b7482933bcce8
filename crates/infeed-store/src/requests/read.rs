//! One read from a remote store, with its pieces, attempts and copies.

use std::{
    future::poll_fn,
    ops::Range,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, FusedFuture, try_join_all},
};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{IO_CONCURRENCY, PATIENCE},
    },
    random::jitter,
    report::{Reading, Sent},
};
use object_store::{GetOptions, GetRange, GetResult, path::Path};

use super::{
    Requests,
    clock::{alarm, has_timers, now},
    limit::Measured,
    reader::{Permits, Reader},
};
use crate::{
    Extent, Source,
    answer::{Answer, Remedy, our_error, with_answer_of},
    checksum::told,
    errors::{CHANGED, because, check_size, room, short_answer, store_error, too_many_files},
    extent,
};

/// The most wrong answers for the same bytes: then the object itself seems to be at fault.
const ATTEMPTS: u32 = 4;
/// The most failed requests while the store answered others, or if the cause is unknown. If a store fails one request
/// in ten at random, one read in 10^8 reaches this number.
const MANY: u32 = 8;
/// Copies of a request besides the first: the third is sent when both are slow.
const COPIES: usize = 2;
/// A request may take this long (or as long as the patience, if that is shorter), or as long as its bytes take at
/// `FLOOR_RATE`, whichever is longer.
const LEAST_DEADLINE: Duration = Duration::from_secs(10);
const FLOOR_RATE: u64 = 1 << 20;
/// The wait between a failure and the next attempt; doubled each time, up to the longest. Short, so that a store that
/// is back gets requests soon.
const BACK_OFF: Duration = Duration::from_millis(100);
const LEAST_BACK_OFF: Duration = Duration::from_millis(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(2);
/// How often a slow request is checked while the usual time is unknown.
const UNKNOWN: Duration = Duration::from_millis(250);

/// The bytes of an answer.
enum Body {
    /// The answer came in one frame.
    Frame(Bytes),
    /// Several frames, put together.
    Buffer(BytesMut),
}

/// The end of one request of a race.
type Ended = (Sent, Result<(Body, Option<String>), Failed>);

/// Why there are no bytes.
struct Failed {
    error: Error,
    remedy: Remedy,
    blame: Blame,
}

/// Where the fault is, as far as one request can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// The store answered, but the answer is wrong.
    Object,
    /// The store refused, broke off or was silent: for this request, or for all.
    Store,
    /// Unknown: a store of the user's own that does not report it.
    Nobody,
    /// This process: it can't open any more files.
    Here,
}

/// What a read remembers of its requests.
#[derive(Default)]
struct Tries {
    /// Requests, not counting copies.
    attempts: u32,
    /// Failures that count against the object, because others were answered or the cause is unknown.
    against: u32,
    /// Wrong answers.
    wrong: u32,
    /// Failures while the store answered no request at all. They reveal nothing about this object.
    waits: u32,
    /// When the first request failed.
    since: Option<Instant>,
}

/// The bytes of one request.
struct Piece<'a> {
    extent: &'a Extent,
    range: Range<u64>,
    path: &'a Path,
    requests: &'a Requests,
    reader: &'a Reader,
}

impl Tries {
    /// Records a failure. Returns whether to give up on the object. `others` means that other requests were answered
    /// since this one began.
    fn failed(&mut self, failed: &Failed, others: bool, patience: Duration) -> bool {
        let now = now();
        let since = *self.since.get_or_insert(now);
        if has_timers() && !others && matches!(failed.blame, Blame::Store | Blame::Here) {
            self.waits += 1;
            return false;
        }
        self.waits = 0;
        *(if failed.blame == Blame::Object { &mut self.wrong } else { &mut self.against }) += 1;
        match failed.blame {
            // Without timers it is not possible to wait for a store.
            _ if !has_timers() => self.against + self.wrong >= ATTEMPTS,
            Blame::Object => self.wrong >= ATTEMPTS,
            // If many clients of one store each use their own limit, refusals may last long.
            _ if failed.remedy == Remedy::FewerRequests || failed.blame == Blame::Here => {
                self.against >= MANY && now.saturating_duration_since(since) >= patience
            }
            Blame::Store | Blame::Nobody | Blame::Here => self.against >= MANY,
        }
    }
}

/// Reads an extent. Not for empty ranges of non-empty objects, which stores refuse.
pub(crate) async fn read(extent: &Extent, requests: &Arc<Requests>, reader: &Reader) -> Result<Bytes> {
    let path = extent.source.path(&extent.name)?;
    let piece = |range: Range<u64>| Piece { extent, range, path: &path, requests, reader };
    let mut pieces = extent::cut(extent.range.clone(), extent::MOST);
    if pieces.len() == 1 {
        return Ok(match piece(extent.range.clone()).read(None).await?.0 {
            Body::Frame(bytes) => bytes,
            Body::Buffer(buffer) => buffer.freeze(),
        });
    }
    // Each piece is read into its part of one buffer, so joining them copies nothing.
    let mut rest = room(extent.len())?;
    let parts = pieces.by_ref().map(|range| {
        let length = (range.end - range.start) as usize;
        let after = rest.split_off(length);
        (range, std::mem::replace(&mut rest, after))
    });
    let reads = parts.map(|(range, buffer)| {
        let piece = piece(range);
        async move { piece.read(Some(buffer)).await }
    });
    let mut whole = BytesMut::new();
    let mut version: Option<String> = None;
    for (body, etag) in try_join_all(reads.collect::<Vec<_>>()).await? {
        // If no version is known, all pieces must at least have the same one.
        if let (Some(first), Some(other)) = (&version, &etag)
            && first != other
        {
            return Err(extent.source.at(changed(first, Some(other)), &extent.name, &extent.range));
        }
        version = version.or(etag);
        match body {
            Body::Buffer(buffer) if whole.is_empty() => whole = buffer,
            Body::Buffer(buffer) => whole.unsplit(buffer),
            Body::Frame(frame) => whole.extend_from_slice(&frame),
        }
    }
    Ok(whole.freeze())
}

impl<'a> Piece<'a> {
    fn source(&self) -> &'a Source {
        &self.extent.source
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Sends new requests as long as that may help. Also returns the object's version.
    async fn read(&self, buffer: Option<BytesMut>) -> Result<(Body, Option<String>)> {
        // Set when the first request goes out: a read that waits for its turn is not late.
        let mut reading = None;
        let read = self.attempts(buffer, &mut reading).await;
        if let Some(reading) = reading {
            reading.done(now());
        }
        read
    }

    async fn attempts(
        &self,
        mut buffer: Option<BytesMut>,
        reading: &mut Option<Reading<'a>>,
    ) -> Result<(Body, Option<String>)> {
        let _joined = self.requests.join();
        let mut tries = Tries::default();
        let mut last = None;
        loop {
            let permits = self.permits(tries.attempts > 0).await;
            if self.is_out() {
                // A read that was queued while others gave up would fail in the same way.
                return Err(self.at(self.gave_up(last, &tries)));
            }
            tries.attempts += 1;
            let declare = || {
                let name = self.source().display_name(&self.extent.name);
                self.reader.recorder.reading(self.reader.batch, name, self.range.clone(), now())
            };
            reading.get_or_insert_with(declare).attempt(tries.attempts);
            let before = self.requests.state().trouble.answers();
            let failed = match self.race(permits, buffer.take(), tries.attempts).await {
                Ok(read) => return Ok(read),
                Err(failed) => failed,
            };
            if failed.remedy == Remedy::None {
                return Err(self.at(failed.error));
            }
            let others = self.requests.state().trouble.answers() > before;
            if tries.failed(&failed, others, self.source().patience()) || self.is_out() {
                return Err(self.at(self.gave_up(Some(failed), &tries)));
            }
            let (attempt, error) = (tries.attempts, &failed.error);
            tracing::debug!(
                object = %self.extent.name, start = self.range.start, len = self.len(), attempt, %error, "reading again"
            );
            if has_timers() {
                tokio::time::sleep(self.back_off(&tries, others)).await;
            }
            last = Some(failed);
        }
    }

    /// How long to wait before the next request.
    fn back_off(&self, tries: &Tries, others: bool) -> Duration {
        let doubled = 1 << (tries.against + tries.wrong + tries.waits).saturating_sub(1).min(16);
        let jitter = jitter(self.range.start ^ u64::from(tries.attempts));
        if others {
            // About as long as one request takes: pieces that wait in order behind this one are delayed by it.
            let first = self.requests.state().limit.usual().clamp(LEAST_BACK_OFF, BACK_OFF);
            (first * doubled).min(LONGEST_BACK_OFF).mul_f64(jitter)
        } else {
            (BACK_OFF * doubled).min(LONGEST_BACK_OFF).mul_f64(0.5 + jitter)
        }
    }

    /// Whether the store has answered no request for as long as this read's patience.
    fn is_out(&self) -> bool {
        has_timers() && self.requests.state().trouble.ends(self.source().patience()).is_some_and(|end| end <= now())
    }

    /// The error for the `last` failure; `last` is `None` if the read never got its turn.
    fn gave_up(&self, last: Option<Failed>, tries: &Tries) -> Error {
        let patience = self.source().patience().as_secs_f64();
        let out =
            || format!("check the network and the store, then resume; {PATIENCE} sets how long an outage may last");
        let Some(Failed { error, remedy, blame }) = last else {
            return Error::new(ErrorKind::Io, format!("the store gave nothing for {patience} s")).with_hint(out());
        };
        let kind = error.kind();
        if kind == ErrorKind::Corrupt || blame == Blame::Here {
            // The error is complete: another attempt gave the same.
            return error;
        }
        let (attempts, refused) = (tries.attempts, remedy == Remedy::FewerRequests);
        let (what, hint) = match (self.is_out(), refused) {
            (true, true) => (format!("the store refused all requests for {patience} s"), out()),
            (true, false) => (format!("the store gave nothing for {patience} s, the last: {}", error.what()), out()),
            (false, true) => (
                format!("the store refused {attempts} requests: it receives too many"),
                format!("lower {IO_CONCURRENCY}, or read with fewer ranks at a time"),
            ),
            (false, false) => (
                format!("gave up after {attempts} requests, the last: {}", error.what()),
                "check the network and the store, then resume".to_owned(),
            ),
        };
        Error::new(kind, what).with_hint(hint).with_cause_of(&error)
    }

    fn at(&self, error: Error) -> Error {
        self.source().at(error, &self.extent.name, &self.range)
    }

    /// `again`: for a retry, which goes ahead of requests that wait for their first attempt.
    async fn permits(&self, again: bool) -> Permits<'a> {
        let ceiling = match &self.reader.ceiling {
            Some(ceiling) => Some(match again.then(|| ceiling.copies.try_acquire()) {
                Some(Ok(permit)) => permit,
                _ => ceiling.regular.acquire().await.expect("a ceiling is never closed"),
            }),
            None => None,
        };
        let turn = if again { self.requests.turn_again().await } else { self.requests.turn().await };
        Permits { _ceiling: ceiling, turn }
    }

    fn permits_of_copy(&self) -> Option<Permits<'a>> {
        let ceiling = match &self.reader.ceiling {
            Some(ceiling) => Some(ceiling.copies.try_acquire().ok()?),
            None => None,
        };
        Some(Permits { _ceiling: ceiling, turn: self.requests.turn_of_copy()? })
    }

    /// One attempt: a request, and copies of it if it is slow. The first complete answer wins; the others are dropped.
    async fn race(
        &self,
        permits: Permits<'a>,
        buffer: Option<BytesMut>,
        attempt: u32,
    ) -> Result<(Body, Option<String>), Failed> {
        let began = now();
        let least = LEAST_DEADLINE.min(self.source().patience());
        let allowed = least.max(Duration::from_secs(self.len() / FLOOR_RATE));
        let deadline = began + allowed;
        let why = if attempt == 1 { Sent::First } else { Sent::Retry };
        // Most requests get no copy, so the first one needs no allocation of its own.
        let mut first = pin!(self.copy(permits, buffer, why).fuse());
        let mut copies: Vec<BoxFuture<'_, Ended>> = Vec::new();
        let (mut sent, mut look_at) = (0, began + self.delay().unwrap_or(UNKNOWN));
        loop {
            let out = self.requests.state().trouble.ends(self.source().patience());
            let deadline = out.map_or(deadline, |out| deadline.min(out.max(began)));
            let next = if sent < COPIES { look_at.min(deadline) } else { deadline };
            let mut alarm = pin!(alarm(next));
            let ended = poll_fn(|context| {
                if !first.is_terminated()
                    && let Poll::Ready(ended) = first.as_mut().poll(context)
                {
                    return Poll::Ready(Some(ended));
                }
                for n in 0..copies.len() {
                    if let Poll::Ready(ended) = copies[n].as_mut().poll(context) {
                        drop(copies.swap_remove(n));
                        return Poll::Ready(Some(ended));
                    }
                }
                alarm.as_mut().poll(context).map(|()| None)
            });
            match ended.await {
                Some((why, Ok(read))) => {
                    if why == Sent::Hedge {
                        self.reader.recorder.hedge_won();
                    }
                    return Ok(read);
                }
                // An error that no new request can fix would also be the copy's.
                Some((_, Err(failed)))
                    if failed.remedy == Remedy::None || (first.is_terminated() && copies.is_empty()) =>
                {
                    return Err(failed);
                }
                Some(_) => {}
                None => {
                    let now = now();
                    if now >= deadline {
                        self.requests.failed(began);
                        let what =
                            format!("no whole answer within {} s", ((now - began).as_secs_f64() * 10.0).round() / 10.0);
                        let error = Error::new(ErrorKind::Io, what);
                        return Err(Failed { error, remedy: Remedy::AnotherRequest, blame: Blame::Store });
                    }
                    // Computed again, because the usual time may have become known or changed.
                    let due = self.delay().map(|delay| began + delay * (sent as u32 + 1));
                    match due.filter(|due| *due <= now) {
                        Some(_) => match self.permits_of_copy() {
                            Some(permits) => {
                                tracing::debug!(object = %self.extent.name, start = self.range.start, "second copy");
                                copies.push(Box::pin(self.copy(permits, None, Sent::Hedge)));
                                sent += 1;
                                look_at = now + self.delay().unwrap_or(UNKNOWN);
                            }
                            None => look_at = now + UNKNOWN,
                        },
                        None => look_at = due.unwrap_or(now + UNKNOWN),
                    }
                }
            }
        }
    }

    fn delay(&self) -> Option<Duration> {
        self.requests.state().hedging.delay(self.len())
    }

    /// One request.
    async fn copy(&self, permits: Permits<'a>, buffer: Option<BytesMut>, why: Sent) -> Ended {
        let mut under_way = UnderWay { piece: self, began: now(), ended: false };
        let sent = self.reader.recorder.sent(why, self.requests.window(), under_way.began);
        let answer = self.get(buffer, under_way.began, permits.turn.light).await;
        under_way.ended = true;
        match &answer {
            Ok((_, _, told)) => {
                self.requests.answered(told);
                sent.answered(now(), told.first_byte, told.bytes);
            }
            Err(failed) => {
                match failed.blame {
                    _ if failed.remedy == Remedy::None => self.requests.heard(),
                    Blame::Object => self.requests.heard(),
                    Blame::Store => self.requests.failed(under_way.began),
                    Blame::Here => {
                        self.requests.exhausted(under_way.began);
                        self.requests.failed(under_way.began);
                    }
                    Blame::Nobody => {}
                }
                if failed.remedy == Remedy::FewerRequests {
                    self.requests.throttled(under_way.began);
                }
                sent.failed(failed.remedy == Remedy::FewerRequests);
            }
        }
        drop(permits);
        (why, answer.map(|(body, etag, _)| (body, etag)))
    }

    async fn get(
        &self,
        buffer: Option<BytesMut>,
        began: Instant,
        light: bool,
    ) -> Result<(Body, Option<String>, Measured), Failed> {
        let whole = self.range.start == 0 && self.extent.size == Some(self.range.end);
        let known = self.extent.etag.as_deref();
        let options = GetOptions {
            range: (!whole).then(|| GetRange::Bounded(self.range.clone())),
            if_match: self.extent.if_match(),
            ..GetOptions::default()
        };
        let failed = |error| Failed::by_store(error, known, "cannot be read");
        let result = self.source().0.store.get_opts(self.path, options);
        let result = with_answer_of(whole.then(|| self.len()), result).await.map_err(failed)?;
        let first_byte = now() - began;
        let etag = result.meta.e_tag.clone();
        // Some servers ignore If-Match.
        if let (Some(known), Some(found)) = (known, &etag)
            && known != found
        {
            return Err(Failed { error: changed(known, Some(found)), remedy: Remedy::None, blame: Blame::Object });
        }
        // Either the object or a length that a proxy cut off; as far as is known, the version is the same.
        check_size(&result.meta, &self.range, self.extent.size).map_err(Failed::by_object)?;
        let told = told(&result);
        let mut body = drain(result, self.len(), buffer).await?;
        let answer = Measured { bytes: self.len(), first_byte, whole: now() - began, light };
        if whole {
            let bytes = match body {
                Body::Frame(bytes) => bytes,
                Body::Buffer(buffer) => buffer.freeze(),
            };
            let checked = self.source().check_answer(self.extent, &bytes, told, self.reader).await;
            checked.map_err(Failed::by_object)?;
            body = Body::Frame(bytes);
        }
        Ok((body, etag, answer))
    }
}

/// Records in the hedging, when dropped, how long a request was waited for in vain.
struct UnderWay<'a> {
    piece: &'a Piece<'a>,
    began: Instant,
    ended: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let time = now().saturating_duration_since(self.began);
            self.piece.requests.state().hedging.dropped(self.piece.len(), time);
        }
    }
}

/// Collects the frames of a body in one buffer of the right size. A single frame is used as it is.
async fn drain(result: GetResult, asked: u64, buffer: Option<BytesMut>) -> Result<Body, Failed> {
    let mut frames = result.into_stream();
    let mut got = 0;
    let (mut only, mut buffer) = (None, buffer);
    while let Some(frame) = frames.next().await {
        let frame = frame
            .map_err(|error| Failed { blame: Blame::Store, ..Failed::by_store(error, None, "reading broke off") })?;
        got += frame.len() as u64;
        if got > asked {
            return Err(Failed::by_object(long_answer(asked)));
        }
        match (&mut buffer, only.take()) {
            (Some(buffer), _) => buffer.extend_from_slice(&frame),
            (None, None) => only = Some(frame),
            (None, Some(first)) => {
                let mut both = room(asked).map_err(Failed::for_good)?;
                both.extend_from_slice(&first);
                both.extend_from_slice(&frame);
                buffer = Some(both);
            }
        }
    }
    if got != asked {
        return Err(Failed::by_object(short_answer(got, asked)));
    }
    Ok(match (buffer, only) {
        (Some(buffer), _) => Body::Buffer(buffer),
        (None, frame) => Body::Frame(frame.unwrap_or_default()),
    })
}

fn long_answer(asked: u64) -> Error {
    Error::new(ErrorKind::Io, format!("the answer holds more than the {asked} bytes asked for")).with_hint("try again")
}

/// Another version than the listed one: a property of the object, which no new request can fix.
fn changed(known: &str, found: Option<&str>) -> Error {
    let now = found.map(|found| format!(", now {found}")).unwrap_or_default();
    Error::corrupt(format!("the object is another version (it was {known}{now})")).with_hint(CHANGED)
}

impl Failed {
    /// An answer came but is wrong; something in between may have damaged it.
    fn by_object(error: Error) -> Self {
        Self { error, remedy: Remedy::AnotherRequest, blame: Blame::Object }
    }

    fn for_good(error: Error) -> Self {
        Self { error, remedy: Remedy::None, blame: Blame::Object }
    }

    fn by_store(error: object_store::Error, known: Option<&str>, what: &'static str) -> Self {
        use object_store::Error as E;
        let (remedy, blame) = match &error {
            E::Precondition { .. } | E::NotModified { .. } => {
                return Self::for_good(because(changed(known.unwrap_or("another"), None), error));
            }
            _ if too_many_files(&error) => (Remedy::AnotherRequest, Blame::Here),
            E::Generic { .. } => match our_error(&error) {
                // An error made for a bucket: unless it is a broken connection, no new request can fix it.
                Some(ours) if ours.kind() != ErrorKind::Io => (Remedy::None, Blame::Object),
                Some(_) => (Remedy::AnotherRequest, Blame::Store),
                None => match Answer::of(&error) {
                    Some(answer) => (answer.remedy(), Blame::Store),
                    None => (Remedy::AnotherRequest, Blame::Nobody),
                },
            },
            _ => (Remedy::None, Blame::Object),
        };
        Self { error: store_error(error, what), remedy, blame }
    }
}
