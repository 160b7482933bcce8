//! The trainer's loop, without training.

use std::{
    fmt,
    time::{Duration, Instant},
};

use futures::StreamExt;
use infeed::{
    Batch, BatchStream, Loader, Order,
    sampler::{LoaderState, Mixture},
};
use tracing::Instrument;
use xxhash_rust::xxh3::Xxh3;

use crate::{
    args::RunArgs,
    checksum::{Checksum, ChecksumOf},
    failure::Failure,
    out::{BarOf, JsonTarget, Out},
    report::{Ended, PartReport, Settled, TimeLine},
    signals::{Signal, Signals},
    state::{self, StateFile},
};

/// The loop. It is our benchmark, so nothing in it but the step takes more than a few microseconds.
pub(super) struct Trainer<'a> {
    pub(super) args: &'a RunArgs,
    pub(super) out: &'a mut Out,
    pub(super) rank: u32,
    pub(super) batches_per_epoch: u64,
    pub(super) batch_size: u64,
    /// The first epoch of this run, and its steps that were done before.
    pub(super) step_offset: (u64, u64),
    pub(super) checksum: Option<Checksum>,
    pub(super) of: ChecksumOf,
    pub(super) hasher: Xxh3,
    pub(super) meters: Meters,
    pub(super) samples_before: u64,
    pub(super) batches: u64,
    pub(super) samples: u64,
    pub(super) batches_wanted: u64,
    pub(super) signals: Signals,
    pub(super) stopped: Option<Signal>,
    /// The epoch of the last batch, and the finished batches of that epoch.
    pub(super) at: Option<(u64, u64)>,
    pub(super) line: TimeLine,
    /// Arrival of the first batch.
    pub(super) first: Option<Instant>,
    pub(super) warmed: Option<Warmed>,
    pub(super) settled: Option<Settled>,
    /// Whether --max-time is over.
    pub(super) out_of_time: bool,
    pub(super) parts: Parts,
}

/// Samples of each dataset of a mixture.
#[derive(Debug, Default)]
pub(super) struct Parts {
    mixture: Option<Mixture>,
    /// First record of each.
    starts: Vec<u64>,
    samples: Vec<u64>,
}

impl Parts {
    pub(super) fn of(loader: &Loader) -> Self {
        let Order::Mixture(mixture) = &loader.config().order else { return Self::default() };
        let mut end = 0;
        let records = mixture.parts.iter().map(|part| part.records.unwrap_or(0));
        let starts: Vec<u64> = records
            .map(|records| {
                let start = end;
                end += records;
                start
            })
            .collect();
        Self { mixture: Some(mixture.clone()), samples: vec![0; starts.len()], starts }
    }

    fn add(&mut self, records: &[u64]) {
        if self.starts.is_empty() {
            return;
        }
        for record in records {
            self.samples[self.starts.partition_point(|start| start <= record) - 1] += 1;
        }
    }

    pub(super) fn reports(self) -> Vec<PartReport> {
        let parts = self.mixture.into_iter().flat_map(|mixture| mixture.parts);
        parts.zip(self.samples).map(|(part, samples)| PartReport { part, samples }).collect()
    }
}

/// The end of the warm-up, and what had arrived until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warmed {
    at: Instant,
    batches: u64,
    samples: u64,
}

impl Trainer<'_> {
    pub(super) async fn train(&mut self, mut stream: BatchStream) -> Result<BatchStream, Failure> {
        let left = (self.args.epochs.saturating_sub(self.step_offset.0) * self.batches_per_epoch)
            .saturating_sub(self.step_offset.1);
        self.out.start_bar(left.min(self.batches_wanted), BarOf::Batches(self.batch_size));
        self.say_epoch(self.step_offset.0);
        let mut unsaved = None;
        let done = self.steps(&mut stream, &mut unsaved).await;
        self.out.end_bar();
        // Also after a failure, so that a resumed run does not repeat delivered batches.
        let saved = unsaved.map_or(Ok(()), |state| self.save(state));
        done.and(saved).map(|()| stream)
    }

    /// Runs all steps. Leaves the last batch's state in `unsaved`, unless the state file has it.
    async fn steps(&mut self, stream: &mut BatchStream, unsaved: &mut Option<LoaderState>) -> Result<(), Failure> {
        let began = Instant::now();
        let mut last = began;
        while self.batches < self.batches_wanted && self.stopped.is_none() {
            let asked = Instant::now();
            let next = tokio::select! {
                // A ready batch is taken: a signal only cuts a wait short.
                biased;
                batch = stream.next() => batch,
                signal = self.signals.next() => {
                    self.stopped = Some(signal);
                    break;
                }
            };
            let Some(batch) = next else {
                break;
            };
            let data = asked.elapsed();
            let batch = batch?;
            self.take(&batch)?;
            if self.at.is_some_and(|(epoch, _)| epoch != batch.epoch()) {
                self.say_epoch(batch.epoch());
            }
            self.at = Some((batch.epoch(), self.done(&batch)));
            // After a signal: the state of the last batch is saved below, then the run ends.
            tokio::select! {
                biased;
                signal = self.signals.next() => self.stopped = Some(signal),
                () = step(self.args.step_time).instrument(tracing::trace_span!("infeed.step")) => {}
            }
            let now = Instant::now();
            self.meters.add(batch.epoch(), now - last, data);
            self.line.add((now - began).as_secs_f64(), data.as_secs_f64(), (now - last).as_secs_f64());
            last = now;
            let running = now - *self.first.get_or_insert(now);
            self.settle(now, running, data);
            self.out.bar().inc(1);
            if self.args.state.is_some() {
                *unsaved = Some(batch.state().clone());
            }
            if self.is_logged(&batch) || self.stopped.is_some() {
                unsaved.take().map_or(Ok(()), |state| self.save(state))?;
                match self.log(&batch) {
                    // The reader of stdout is gone, but files may still be wanted.
                    Err(Failure::Pipe) if self.writes_files() => {}
                    logged => logged?,
                }
            }
            self.out_of_time = self.args.max_time.is_some_and(|most| running >= most);
            if self.out_of_time {
                break;
            }
        }
        Ok(())
    }

    /// Shows the epoch in front of the bar.
    fn say_epoch(&self, epoch: u64) {
        self.out.bar().set_message(format!("epoch {} of {}", epoch + 1, self.args.epochs));
    }

    /// What ended the run before its last epoch, and where; `None` if nothing did.
    pub(super) fn ended(&self) -> Option<Ended> {
        let (epochs, all) = (self.args.epochs, self.batches_per_epoch);
        // Without a batch, the place where it would have begun.
        let (epoch, done) = self.at.unwrap_or(self.step_offset);
        let by = match self.stopped {
            Some(signal) => signal.name(),
            None if epoch + 1 >= epochs && done >= all => return None,
            None if self.batches >= self.batches_wanted => "--max-batches",
            None if self.out_of_time => "--max-time",
            None => return None,
        };
        Some(Ended { by, epoch, batches_of_epoch: done, batches_per_epoch: all, epochs })
    }

    /// Updates the figures after the warm-up. `running`: time since the first batch.
    fn settle(&mut self, now: Instant, running: Duration, wait: Duration) {
        let Some(warm_up) = self.args.warm_up.filter(|warm_up| running >= *warm_up) else { return };
        let Some(warmed) = self.warmed else {
            self.warmed = Some(Warmed { at: now, batches: self.batches, samples: self.samples });
            return;
        };
        let seconds = (now - warmed.at).as_secs_f64();
        let samples = self.samples - warmed.samples;
        let waited = self.settled.map_or(0.0, |known| known.wait_seconds);
        self.settled = Some(Settled {
            after_seconds: warm_up.as_secs_f64(),
            seconds,
            batches: self.batches - warmed.batches,
            samples,
            samples_per_second: samples as f64 / seconds.max(f64::MIN_POSITIVE),
            wait_seconds: waited + wait.as_secs_f64(),
        });
    }

    fn take(&mut self, batch: &Batch) -> Result<(), Failure> {
        self.batches += 1;
        self.samples += batch.valid() as u64;
        self.parts.add(&batch.records()[..batch.valid()]);
        if let Some(sum) = &mut self.checksum {
            sum.add_batch(&mut self.hasher, batch, self.of)?;
        }
        for bad in batch.bad_samples() {
            self.out.warn(format_args!("bad sample in epoch {}: {}", bad.epoch, bad.error));
        }
        Ok(())
    }

    /// Finished batches of this epoch after `batch`, including those before a resume.
    fn done(&self, batch: &Batch) -> u64 {
        let (first, offset) = self.step_offset;
        batch.step() + 1 + if batch.epoch() == first { offset } else { 0 }
    }

    /// Every `--log-every` batches, and at the last batch of each epoch.
    fn is_logged(&self, batch: &Batch) -> bool {
        self.done(batch).is_multiple_of(self.args.log_every) || batch.state().epoch > batch.epoch()
    }

    fn log(&self, batch: &Batch) -> Result<(), Failure> {
        let (epoch, done, all) = (batch.epoch(), self.done(batch), self.batches_per_epoch);
        self.out.progress(format_args!("Epoch [{epoch}][{done}/{all}] {}", self.meters))
    }

    fn save(&self, state: LoaderState) -> Result<(), Failure> {
        let Some(path) = &self.args.state else {
            return Ok(());
        };
        let file = StateFile {
            version: state::VERSION,
            state,
            checksum: self.checksum,
            checksum_of: self.of,
            samples: self.samples_before + self.samples,
            rank: self.rank,
        };
        file.write(path)
    }

    fn writes_files(&self) -> bool {
        self.args.state.is_some() || matches!(self.args.json, Some(JsonTarget::File(_)))
    }
}

/// The simulated work of a trainer.
async fn step(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Time and wait, of the last batch and the mean over the epoch, as training scripts print them.
#[derive(Debug, Default)]
pub(super) struct Meters {
    epoch: u64,
    /// Batches of the whole run.
    batches: u64,
    /// Batches in the means.
    count: u32,
    last: (Duration, Duration),
    sum: (Duration, Duration),
}

impl Meters {
    fn add(&mut self, epoch: u64, time: Duration, data: Duration) {
        self.batches += 1;
        // The means leave out the run's first batch, whose wait includes the start of the loader.
        if epoch != self.epoch || self.batches == 2 {
            *self = Self { epoch, batches: self.batches, ..Self::default() };
        }
        self.count += 1;
        self.last = (time, data);
        self.sum.0 += time;
        self.sum.1 += data;
    }
}

impl fmt::Display for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |sum: Duration| (sum / self.count.max(1)).as_secs_f64();
        let ((time, data), (times, datas)) = (self.last, self.sum);
        write!(
            f,
            "Time {:.3} ({:.3}) Data {:.3} ({:.3})",
            time.as_secs_f64(),
            mean(times),
            data.as_secs_f64(),
            mean(datas)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_leave_out_the_first_batch_and_restart_with_the_epoch() {
        let mut meters = Meters::default();
        let mut line = |epoch, time, data| {
            meters.add(epoch, Duration::from_millis(time), Duration::from_millis(data));
            meters.to_string()
        };
        assert_eq!(line(0, 900, 800), "Time 0.900 (0.900) Data 0.800 (0.800)");
        assert_eq!(line(0, 10, 2), "Time 0.010 (0.010) Data 0.002 (0.002)");
        assert_eq!(line(0, 20, 4), "Time 0.020 (0.015) Data 0.004 (0.003)");
        assert_eq!(line(1, 30, 0), "Time 0.030 (0.030) Data 0.000 (0.000)");
    }
}
