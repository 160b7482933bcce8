//! Detects since when a store has not answered: a state machine without a clock of its own.
//!
//! A single read can't tell whether only it fails or the whole store. All reads together can. As long as other requests
//! are answered, the failure is the object's or chance, and a few more attempts decide. If no request is answered, the
//! store is down, and each read waits for as long as its patience, counted from the last answer to any request. Queues
//! and pauses before a request do not count, so that many waiting reads do not use up each other's time.

use std::time::{Duration, Instant};

/// An outage of this length is logged.
const TOLD: Duration = Duration::from_secs(2);

/// See the module documentation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Since when there was a failure and no answer.
    since: Option<Instant>,
    last_answer: Option<Instant>,
    /// Number of answers.
    answers: u64,
    /// Reads in progress, including those that wait.
    reads: usize,
    told: bool,
}

/// Events to log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// No answer for this long.
    Out(Duration),
    /// The first answer after this long.
    Back(Duration),
}

impl Trouble {
    /// A read begins.
    pub(super) fn joined(&mut self) {
        if self.reads == 0 {
            // Earlier failures do not count, because no read was waiting then.
            *self = Self { answers: self.answers, ..Self::default() };
        }
        self.reads += 1;
    }

    /// A read ends, whatever the result.
    pub(super) fn left(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }

    /// Number of answers. A later comparison shows whether others were answered.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// A request was answered: with bytes, or that there is no such object.
    pub(super) fn answered(&mut self, now: Instant) -> Option<News> {
        self.answers += 1;
        self.last_answer = Some(now);
        let since = self.since.take();
        let told = std::mem::take(&mut self.told);
        since.filter(|_| told).map(|since| News::Back(now.saturating_duration_since(since)))
    }

    /// A request that began at `began` failed.
    pub(super) fn failed(&mut self, now: Instant, began: Instant) -> Option<News> {
        // A request that began before the last answer proves nothing about the time before that answer.
        let from = self.last_answer.map_or(began, |answer| answer.max(began));
        let lasted = now.saturating_duration_since(*self.since.get_or_insert(from));
        let tell = lasted >= TOLD && !self.told;
        self.told |= tell;
        tell.then_some(News::Out(lasted))
    }

    /// Until when a read with this patience waits if no answer comes.
    pub(super) fn ends(&self, patience: Duration) -> Option<Instant> {
        self.since?.checked_add(patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn an_outage_is_counted_from_the_last_answer_and_ends_with_the_next() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        trouble.joined();
        assert_eq!(trouble.ends(s(60)), None);
        // Ten seconds of silence for this request; others were answered in the first eight.
        trouble.answered(start + s(8));
        assert_eq!(trouble.failed(start + s(10), start), Some(News::Out(s(2))));
        assert_eq!(trouble.ends(s(60)), Some(start + s(68)));
        assert_eq!(trouble.failed(start + s(30), start + s(20)), None, "told once");
        assert_eq!(trouble.ends(s(60)), Some(start + s(68)), "another failure changes nothing");
        assert_eq!(trouble.answered(start + s(40)), Some(News::Back(s(32))));
        assert_eq!((trouble.ends(s(60)), trouble.answers()), (None, 2));
        assert_eq!(trouble.failed(start + s(41), start + s(40)), None, "a second is not worth a word");
        assert_eq!(trouble.answered(start + s(42)), None);
    }

    #[test]
    fn whoever_comes_when_all_have_gone_starts_afresh() {
        let (mut trouble, start) = (Trouble::default(), Instant::now());
        trouble.joined();
        trouble.joined();
        trouble.failed(start, start);
        trouble.left();
        assert!(trouble.ends(s(1)).is_some(), "somebody still waits");
        trouble.joined();
        assert!(trouble.ends(s(1)).is_some());
        (0..2).for_each(|_| trouble.left());
        trouble.joined();
        assert_eq!(trouble.ends(s(1)), None);
    }
}
