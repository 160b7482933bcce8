//! The batches of a stream, one after another: which records, which positions, which state after them.

use std::{ops::Range, sync::Arc, time::Instant};

use infeed_core::random::SampleRng;
use infeed_data::sampler::{LoaderState, Sampler};
use tracing::Span;

use super::{loader_shared::LoaderShared, run_ahead::Begun, timeline::Waits};

/// The order of records, and the state that describes it.
#[derive(Clone, Debug)]
pub(crate) struct RecordOrder {
    pub(crate) sampler: Arc<dyn Sampler>,
    /// The state at the beginning of epoch 0; each batch has a copy with its own position.
    pub(crate) state: LoaderState,
}

/// One batch of this rank before any byte moved. Row `i` holds `records[i]`.
#[derive(Debug)]
pub(super) struct BatchPlan {
    pub(super) epoch: u64,
    pub(super) step: u64,
    pub(super) positions: Vec<u64>,
    pub(super) records: Vec<u64>,
    /// The draws of each sample.
    rngs: Vec<SampleRng>,
    /// Rows that are not padding.
    pub(super) valid: usize,
    /// Height and width of the rows of images, if each batch has its own.
    pub(super) size: Option<[u32; 2]>,
    pub(super) after: LoaderState,
    /// What it waited for until its first job.
    pub(super) waits: Waits,
    /// Held until the batch is complete, if batches wait for one another.
    pub(super) begun: Option<Begun>,
    /// `infeed.batch`, from here until the trainer has it.
    pub(super) span: Span,
}

impl BatchPlan {
    /// The draws of the sample in `row`.
    pub(super) fn rng(&self, row: usize) -> SampleRng {
        self.rngs[row]
    }
}

/// Walks the steps of the epochs in `epochs`, the first from `position`.
#[derive(Debug)]
pub(super) struct Planner {
    loader: Arc<LoaderShared>,
    order: RecordOrder,
    epochs: Range<u64>,
    position: u64,
    step: u64,
    /// `infeed.epoch`; its batches keep it open.
    span: Span,
}

impl Planner {
    pub(super) fn new(loader: Arc<LoaderShared>, order: RecordOrder, epochs: Range<u64>, position: u64) -> Self {
        Self { loader, order, epochs, position, step: 0, span: Span::none() }
    }
}

impl Iterator for Planner {
    type Item = BatchPlan;

    fn next(&mut self) -> Option<BatchPlan> {
        let began = Instant::now();
        let sampler = &*self.order.sampler;
        while self.epochs.start < self.epochs.end {
            let (epoch, step) = (self.epochs.start, self.step);
            let steps = self.loader.steps(sampler, self.position);
            if step >= steps.count() {
                self.epochs.start += 1;
                self.position = 0;
                self.step = 0;
                // If a whole epoch has no steps, no epoch has any.
                if self.loader.steps(sampler, 0).count() == 0 {
                    return None;
                }
                continue;
            }
            if step == 0 {
                let (rank, world) = (self.loader.shard.rank(), self.loader.shard.world());
                self.span = tracing::info_span!(parent: None, "infeed.epoch", epoch, rank, world);
                tracing::info!(epoch, rank, world, steps = steps.count(), position = self.position, "epoch planned");
            }
            self.step += 1;
            let rows = steps.rows(step);
            let valid = rows.valid();
            let positions: Vec<u64> = rows.collect();
            let record = |position: &u64| sampler.record(epoch, *position);
            let records: Vec<u64> = positions.iter().map(record).collect();
            let rng = |(position, record): (&u64, &u64)| {
                let occurrence = sampler.occurrence(epoch, *position);
                SampleRng::new(self.order.state.seed, epoch, *record).again(occurrence)
            };
            let rngs: Vec<SampleRng> = positions.iter().zip(&records).map(rng).collect();
            let size = self.loader.size_of(&records, &rngs);
            let (next_epoch, next_position) = steps.place_after(epoch, step);
            let after = self.order.state.at(next_epoch, next_position);
            let rows = records.len();
            let bytes = tracing::field::Empty;
            let span = tracing::debug_span!(parent: &self.span, "infeed.batch", epoch, step, rows, bytes);
            let waits = Waits::planned(began);
            let begun = None;
            return Some(BatchPlan { epoch, step, positions, records, rngs, valid, size, after, waits, begun, span });
        }
        None
    }
}
