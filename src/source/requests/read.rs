//! One read of a remote store, with its pieces, attempts and copies.

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
use object_store::{GetOptions, GetRange, GetResult, path::Path};

use super::{
    Requests,
    clock::{alarm, has_timers, now},
    limit::Measured,
    permits::jitter,
    reader::{Permits, Reader},
};
use crate::{
    error::{Error, ErrorKind, Result},
    report::{Reading, Sent},
    source::{
        Extent, Source,
        answer::{Answer, Remedy, our_error, with_answer},
        errors::{CHANGED, because, check_size, short_answer, store_error},
        extent,
    },
};

/// Requests one after another for the same bytes.
const ATTEMPTS: u32 = 4;
/// Copies of a request beside the first: a third when both straggle.
const COPIES: usize = 2;
/// A request may take this long, or as long as its bytes at this rate.
const LEAST_DEADLINE: Duration = Duration::from_secs(10);
const FLOOR_RATE: u64 = 1 << 20;
/// How long a read goes on when the store refuses it.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between a failure and the next attempt; doubled each time.
const BACK_OFF: Duration = Duration::from_millis(100);
/// How often a slow request is looked at while nothing is known about the usual time.
const UNKNOWN: Duration = Duration::from_millis(250);

/// The bytes of an answer.
enum Body {
    /// The whole answer came as one.
    Frame(Bytes),
    /// Several were put together.
    Buffer(BytesMut),
}

/// One request of a race.
type Ended = (Sent, Result<(Body, Option<String>), Failed>);

/// Why there are no bytes.
struct Failed {
    error: Error,
    remedy: Remedy,
}

/// Bytes that are wanted with one request.
struct Piece<'a> {
    extent: &'a Extent,
    range: Range<u64>,
    path: &'a Path,
    requests: &'a Requests,
    reader: &'a Reader,
}

/// Reads an extent. Not for empty ranges of objects that are not empty: stores refuse them.
pub(in crate::source) async fn read(extent: &Extent, requests: &Arc<Requests>, reader: &Reader) -> Result<Bytes> {
    let path = extent.source.path(&extent.name)?;
    let piece = |range: Range<u64>| Piece { extent, range, path: &path, requests, reader };
    let mut pieces = extent::cut(extent.range.clone(), extent::MOST);
    if pieces.len() == 1 {
        return Ok(match piece(extent.range.clone()).read(None).await?.0 {
            Body::Frame(bytes) => bytes,
            Body::Buffer(buffer) => buffer.freeze(),
        });
    }
    // Every piece is read into its part of one buffer; joining them again copies nothing.
    let mut rest = BytesMut::with_capacity(to_length(extent.len())?);
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
        // Without a known version, the pieces must at least be of the same.
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

fn to_length(bytes: u64) -> Result<usize> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| Error::new(ErrorKind::OutOfMemory, format!("{bytes} bytes do not fit this machine's memory")))
}

impl<'a> Piece<'a> {
    fn source(&self) -> &'a Source {
        &self.extent.source
    }

    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// With fresh requests as long as that may help. Gives the object's version too.
    async fn read(&self, buffer: Option<BytesMut>) -> Result<(Body, Option<String>)> {
        // Declared when the first request goes out: what waits for its turn is not late.
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
        let mut attempt = 0;
        let mut refused_since = None;
        // Failures other than refusals.
        let mut failures = 0;
        loop {
            attempt += 1;
            let permits = self.permits().await;
            let declare = || {
                let name = self.source().display_name(&self.extent.name);
                self.reader.recorder.reading(self.reader.batch, name, self.range.clone(), now())
            };
            reading.get_or_insert_with(declare).attempt(attempt);
            let Failed { error, remedy } = match self.race(permits, buffer.take(), attempt).await {
                Ok(read) => return Ok(read),
                Err(failed) => failed,
            };
            let give_up = match remedy {
                Remedy::None => return Err(self.at(error)),
                // Only with a clock is there a pause between refusals.
                Remedy::FewerRequests if has_timers() => now() - *refused_since.get_or_insert_with(now) > PATIENCE,
                Remedy::FewerRequests | Remedy::AnotherRequest => {
                    failures += 1;
                    failures == ATTEMPTS
                }
            };
            if give_up {
                return Err(self.at(gave_up(error, attempt, remedy)));
            }
            tracing::debug!(
                object = %self.extent.name, start = self.range.start, len = self.len(), attempt, %error, "reading again"
            );
            if remedy == Remedy::AnotherRequest && has_timers() {
                let pause = BACK_OFF * (1 << (failures - 1)) as u32;
                tokio::time::sleep(pause.mul_f64(0.5 + jitter(self.range.start ^ u64::from(attempt)))).await;
            }
        }
    }

    fn at(&self, error: Error) -> Error {
        self.source().at(error, &self.extent.name, &self.range)
    }

    async fn permits(&self) -> Permits<'a> {
        let ceiling = match &self.reader.ceiling {
            Some(ceiling) => Some(ceiling.regular.acquire().await.expect("a ceiling is never closed")),
            None => None,
        };
        Permits { _ceiling: ceiling, turn: self.requests.turn().await }
    }

    fn permits_of_copy(&self) -> Option<Permits<'a>> {
        let ceiling = match &self.reader.ceiling {
            Some(ceiling) => Some(ceiling.copies.try_acquire().ok()?),
            None => None,
        };
        Some(Permits { _ceiling: ceiling, turn: self.requests.turn_of_copy()? })
    }

    /// One attempt: a request, and copies of it when it is slow. The first whole answer wins, the others are dropped.
    async fn race(
        &self,
        permits: Permits<'a>,
        buffer: Option<BytesMut>,
        attempt: u32,
    ) -> Result<(Body, Option<String>), Failed> {
        let began = now();
        let allowed = LEAST_DEADLINE.max(Duration::from_secs(self.len() / FLOOR_RATE));
        let deadline = began + allowed;
        let why = if attempt == 1 { Sent::First } else { Sent::Retry };
        // Most requests get no copy: the first one costs no allocation of its own.
        let mut first = pin!(self.copy(permits, buffer, why).fuse());
        let mut copies: Vec<BoxFuture<'_, Ended>> = Vec::new();
        let (mut sent, mut look_at) = (0, began + self.delay().unwrap_or(UNKNOWN));
        loop {
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
                // What no fresh request mends, the other copy meets as well.
                Some((_, Err(failed)))
                    if failed.remedy == Remedy::None || (first.is_terminated() && copies.is_empty()) =>
                {
                    return Err(failed);
                }
                Some(_) => {}
                None => {
                    let now = now();
                    if now >= deadline {
                        let what = format!("no whole answer within {} s", allowed.as_secs());
                        return Err(Failed { error: Error::new(ErrorKind::Io, what), remedy: Remedy::AnotherRequest });
                    }
                    // Asked again: the usual time may be known by now, or another one.
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
                if failed.remedy == Remedy::FewerRequests {
                    self.requests.throttled();
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
            // A weak tag matches nothing here (RFC 9110, 13.1.1); it is compared below.
            if_match: known.filter(|tag| !tag.starts_with("W/")).map(str::to_owned),
            ..GetOptions::default()
        };
        let failed = |error| Failed::by_store(error, known, "cannot be read");
        let result = with_answer(self.source().0.store.get_opts(self.path, options)).await.map_err(failed)?;
        let first_byte = now() - began;
        let etag = result.meta.e_tag.clone();
        // Some servers take no notice of If-Match.
        if let (Some(known), Some(found)) = (known, &etag)
            && known != found
        {
            return Err(Failed { error: changed(known, Some(found)), remedy: Remedy::None });
        }
        // Perhaps the object, perhaps a length that a proxy cut: of the same version, as far as anybody knows.
        check_size(&result.meta, &self.range, self.extent.size)
            .map_err(|error| Failed { error, remedy: Remedy::AnotherRequest })?;
        let body = drain(result, self.len(), buffer).await?;
        let answer = Measured { bytes: self.len(), first_byte, whole: now() - began, light };
        Ok((body, etag, answer))
    }
}

/// Tells the hedging how long a request was waited for in vain, when it is dropped.
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

/// Puts the frames of a body into one buffer of the right size; a single frame is taken as it is.
async fn drain(result: GetResult, asked: u64, buffer: Option<BytesMut>) -> Result<Body, Failed> {
    let mut frames = result.into_stream();
    let mut got = 0;
    let (mut only, mut buffer) = (None, buffer);
    while let Some(frame) = frames.next().await {
        let frame = frame.map_err(|error| Failed::by_store(error, None, "reading broke off"))?;
        got += frame.len() as u64;
        if got > asked {
            return Err(Failed { error: long_answer(asked), remedy: Remedy::AnotherRequest });
        }
        match (&mut buffer, only.take()) {
            (Some(buffer), _) => buffer.extend_from_slice(&frame),
            (None, None) => only = Some(frame),
            (None, Some(first)) => {
                let length = to_length(asked).map_err(|error| Failed { error, remedy: Remedy::None })?;
                let mut both = BytesMut::with_capacity(length);
                both.extend_from_slice(&first);
                both.extend_from_slice(&frame);
                buffer = Some(both);
            }
        }
    }
    if got != asked {
        return Err(Failed { error: short_answer(got, asked), remedy: Remedy::AnotherRequest });
    }
    Ok(match (buffer, only) {
        (Some(buffer), _) => Body::Buffer(buffer),
        (None, frame) => Body::Frame(frame.unwrap_or_default()),
    })
}

fn long_answer(asked: u64) -> Error {
    Error::new(ErrorKind::Io, format!("the answer holds more than the {asked} bytes asked for")).hint("try again")
}

/// Another version than the listed one: a property of the object, which no further request mends.
fn changed(known: &str, found: Option<&str>) -> Error {
    let now = found.map(|found| format!(", now {found}")).unwrap_or_default();
    Error::corrupt(format!("the object is another version (it was {known}{now})")).hint(CHANGED)
}

fn gave_up(last: Error, attempts: u32, remedy: Remedy) -> Error {
    let kind = last.kind();
    if kind == ErrorKind::Corrupt {
        // It says all there is to say: asking again found the same.
        return last;
    }
    let what = match remedy {
        Remedy::FewerRequests => format!("the store refused {attempts} requests: it is asked too often"),
        _ => format!("gave up after {attempts} requests, the last: {}", last.what()),
    };
    let hint = match remedy {
        Remedy::FewerRequests => "lower io_concurrency, or read with fewer ranks at a time",
        _ => "check the network and the store, then resume",
    };
    Error::new(kind, what).hint(hint).with_source(last)
}

impl Failed {
    fn by_store(error: object_store::Error, known: Option<&str>, what: &'static str) -> Self {
        use object_store::Error as E;
        let remedy = match &error {
            E::Precondition { .. } | E::NotModified { .. } => {
                let error = because(changed(known.unwrap_or("another"), None), error);
                return Self { error, remedy: Remedy::None };
            }
            E::Generic { .. } => match our_error(&error) {
                // A bucket's own words: what is not a broken line, no further request mends.
                Some(ours) if ours.kind() != ErrorKind::Io => Remedy::None,
                Some(_) => Remedy::AnotherRequest,
                None => Answer::of(&error).map_or(Remedy::AnotherRequest, |answer| answer.remedy()),
            },
            _ => Remedy::None,
        };
        Self { error: store_error(error, what), remedy }
    }
}
