//! Since when a store gives nothing: a state machine without a clock of its own.
//!
//! A read can't tell whether it alone fails or the whole store does. Together they can: as long as others are answered,
//! what fails is the object or chance, and a few more requests decide; while nobody is, the store is out, and everybody
//! waits for it as long as their patience lasts, counted from the last answer that anybody got. Queues and pauses before a
//! request count for nothing, so that many who wait do not make each other's time run out.

use std::time::{Duration, Instant};

/// An outage that has lasted so long is told.
const TOLD: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trouble {
    /// Nothing was answered since then, and something failed.
    since: Option<Instant>,
    last_answer: Option<Instant>,
    /// Answers so far.
    answers: u64,
    /// Reads under way, those that wait included.
    reads: usize,
    told: bool,
}

/// What is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing has been answered for so long.
    Out(Duration),
    /// It answers again, after so long.
    Back(Duration),
}

impl Trouble {
    /// A read is under way.
    pub(super) fn joined(&mut self) {
        if self.reads == 0 {
            // What was before, nobody waited for.
            *self = Self { answers: self.answers, ..Self::default() };
        }
        self.reads += 1;
    }

    /// It is over, whatever came of it.
    pub(super) fn left(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }

    /// Answers so far: compared later, they tell whether others were answered.
    pub(super) fn answers(&self) -> u64 {
        self.answers
    }

    /// Somebody was answered: with bytes, or that there is no such object.
    pub(super) fn answered(&mut self, now: Instant) -> Option<News> {
        self.answers += 1;
        self.last_answer = Some(now);
        let since = self.since.take();
        let told = std::mem::take(&mut self.told);
        since.filter(|_| told).map(|since| News::Back(now.saturating_duration_since(since)))
    }

    /// A request that began at `began` came to nothing.
    pub(super) fn failed(&mut self, now: Instant, began: Instant) -> Option<News> {
        // What began before the last answer says nothing about the time before that.
        let from = self.last_answer.map_or(began, |answer| answer.max(began));
        let lasted = now.saturating_duration_since(*self.since.get_or_insert(from));
        let tell = lasted >= TOLD && !self.told;
        self.told |= tell;
        tell.then_some(News::Out(lasted))
    }

    /// Until when somebody with this patience waits, if the store gives nothing.
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
        // Ten seconds of silence, the first eight of which others were answered.
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
