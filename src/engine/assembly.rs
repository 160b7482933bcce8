//! Assembles a batch: rows come back from the workers in any order, and the last rows seal it.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{BATCH_SIZE, SKIP_PADDED},
    },
    random::SampleRng,
    report::{BadSample, Stage},
    rows::Rows,
};
use infeed_data::{Instances, Sample, Value};
use infeed_pixels::{
    codec::{Item, Outcome},
    transform::{LoweredInstances, Placer},
};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tracing::{Span, span::Id};

use super::{
    batch::{Batch, SideFields},
    batch_mix::{BatchMix, Unmixed, rng_of_batch},
    fields::FieldRows,
    loader_shared::{BadRows, LoaderShared},
    map::{BatchMut, SampleMut},
    plan::BatchPlan,
    side_values::{BatchSideValues, SideValues},
    stream::{Sealed, StreamShared},
    timeline::{CpuMeter, JobTimeline, JobTotals, Timeline},
};

/// A batch whose rows are being made.
#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) stream: Arc<StreamShared>,
    pub(super) plan: BatchPlan,
    /// The span `infeed.batch`, parent of the spans of its work.
    pub(super) span: Option<Id>,
    gathered: Mutex<Gathered>,
}

#[derive(Debug)]
struct Gathered {
    /// Rows that are still with a job.
    missing: usize,
    brought: Brought,
    /// Where the batch goes, and the permit for its rows. Taken by the thread that seals it.
    out: Option<(oneshot::Sender<Sealed>, OwnedSemaphorePermit)>,
    /// The times of its jobs.
    jobs: JobTotals,
    /// Keeps `infeed.batch` open; it goes with the batch, so that it ends when the trainer has it.
    span: Span,
}

/// The parts of the batch.
#[derive(Debug, Default)]
struct Brought {
    /// Finished stretches: first row, and for each field the rows.
    stretches: Vec<(usize, Vec<Rows>)>,
    /// Bad rows.
    failed: Vec<(usize, Error)>,
    side_values: BatchSideValues,
    /// Where small fields of a batch on a GPU are copied to.
    uploads: Vec<Option<Rows>>,
}

impl Assembly {
    pub(super) fn new(
        stream: &Arc<StreamShared>,
        mut plan: BatchPlan,
        seat: oneshot::Sender<Sealed>,
        rows: OwnedSemaphorePermit,
        uploads: Vec<Option<Rows>>,
    ) -> Arc<Self> {
        let missing = plan.records.len();
        let side_values = BatchSideValues::new(&stream.loader.fields, missing);
        let span = std::mem::replace(&mut plan.span, Span::none());
        let id = span.id();
        let out = Some((seat, rows));
        let brought = Brought { side_values, uploads, ..Brought::default() };
        let gathered = Gathered { missing, brought, out, jobs: JobTotals::default(), span };
        Arc::new(Self { stream: Arc::clone(stream), plan, span: id, gathered: Mutex::new(gathered) })
    }

    /// Takes the bytes and instances of some rows; called before the rows themselves.
    pub(super) fn keep(&self, values: impl IntoIterator<Item = (usize, SideValues)>) {
        let mut gathered = self.lock();
        for (row, values) in values {
            gathered.brought.side_values.set(row, values);
        }
    }

    /// Takes rows `first..` back, with the errors of failed rows (row of the batch, error). The call with the last rows
    /// seals the batch and sends it. `job` is passed with the last rows of a job.
    pub(super) fn deliver(
        &self,
        first: usize,
        rows: Vec<Rows>,
        failed: impl IntoIterator<Item = (usize, Error)>,
        job: Option<JobTimeline>,
    ) {
        let count = rows.first().map_or(0, Rows::rows);
        let (brought, jobs, span, out) = {
            let mut gathered = self.lock();
            gathered.missing = gathered.missing.saturating_sub(count);
            gathered.brought.stretches.push((first, rows));
            gathered.brought.failed.extend(failed);
            job.into_iter().for_each(|job| gathered.jobs.add(job));
            if gathered.missing > 0 {
                return;
            }
            let brought = std::mem::take(&mut gathered.brought);
            let jobs = std::mem::take(&mut gathered.jobs);
            let span = std::mem::replace(&mut gathered.span, Span::none());
            (brought, jobs, span, gathered.out.take())
        };
        let Some((seat, permit)) = out else { return };
        let sealing = Instant::now();
        let mut mixed = sealing;
        let result = self.seal(brought, &mut mixed);
        let BatchPlan { epoch, step, positions, waits, .. } = &self.plan;
        let place = (*epoch, *step, positions.first().copied().unwrap_or_default());
        let timeline = Some(Box::new(Timeline::new(place, waits.clone(), jobs, [sealing, mixed])));
        if let (false, Ok(batch)) = (span.is_disabled(), &result) {
            span.record(
                "bytes",
                batch.fields().map(|(_, tensor)| tensor.row_bytes() * batch.len()).sum::<usize>() as u64,
            );
        }
        self.stream.finished.fetch_add(1, Ordering::Relaxed);
        // A dropped stream no longer wants it.
        let _ = seat.send(Sealed { result, permit, timeline, span });
    }

    /// Ends the batch with an error. Later deliveries are ignored.
    pub(super) fn fail(&self, error: Error) {
        let out = self.lock().out.take();
        if let Some((seat, permit)) = out {
            let _ = seat.send(Sealed::failed(error, permit));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Gathered> {
        // Each section leaves the state whole, so a panic elsewhere cannot have broken it.
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the batch; `mixed` is the time when it was mixed.
    fn seal(&self, brought: Brought, mixed: &mut Instant) -> Result<Batch> {
        let loader: &LoaderShared = &self.stream.loader;
        let Brought { stretches: mut parts, mut failed, mut side_values, mut uploads } = brought;
        let lost = || Error::new(ErrorKind::Internal, "rows of a batch do not join").with_hint("please report this");
        parts.sort_unstable_by_key(|(first, _)| *first);
        let mut parts = parts.into_iter();
        let mut fields = parts.next().ok_or_else(lost)?.1;
        for (_, part) in parts {
            let join = |(whole, next): (Rows, Rows)| whole.join(next).map_err(|_| lost());
            fields = fields.into_iter().zip(part).map(join).collect::<Result<_>>()?;
        }

        let mut records = self.plan.records.clone();
        let mut positions = self.plan.positions.clone();
        let mut valid = self.plan.valid;
        let mut rows = records.len();
        let mut bad_samples = Vec::new();
        if !failed.is_empty() {
            failed.sort_unstable_by_key(|(row, _)| *row);
            // An error that is not about a sample ends the run under every policy; with `Stop` the first bad sample
            // does.
            let ends = |error: &Error| loader.bad == BadRows::Stop || !error.is_sample();
            if let Some((_, error)) = failed.iter().find(|(_, error)| ends(error)) {
                return Err(error.clone());
            }
            for (row, error) in &failed {
                tracing::warn!(record = records[*row], error = %format!("{error:#}"), "bad sample");
                bad_samples.push(BadSample::new(self.plan.epoch, positions[*row], records[*row], error));
            }
            let bad: Vec<usize> = failed.iter().map(|(row, _)| *row).collect();
            match loader.bad {
                BadRows::Substitute => {
                    let Some(from) = substitutes(rows, &bad) else {
                        return self.without_rows(bad_samples, failed[0].1.clone());
                    };
                    for (to, from) in from {
                        fields.iter_mut().try_for_each(|field| field.copy_row(from, to))?;
                        side_values.copy(from, to);
                        records[to] = records[from];
                    }
                }
                BadRows::Skip => {
                    let (moves, left) = leave_out(rows, valid, &bad);
                    if left == (0, 0) {
                        return self.without_rows(bad_samples, none_left(rows, &failed[0].1));
                    }
                    for (to, from) in moves {
                        fields.iter_mut().try_for_each(|field| field.copy_row(from, to))?;
                        side_values.copy(from, to);
                        (records[to], positions[to]) = (records[from], positions[from]);
                    }
                    (rows, valid) = left;
                    fields.iter_mut().chain(uploads.iter_mut().flatten()).for_each(|field| {
                        *field = field.split_to(rows);
                    });
                    side_values.truncate(rows);
                    records.truncate(rows);
                    positions.truncate(rows);
                }
                BadRows::SkipPadded | BadRows::Stop => {
                    // Only among the samples: copies that pad the batch must not take a sample's place. They are
                    // dropped, so that the rows after the samples are always zeros.
                    let bad: Vec<usize> = bad.into_iter().filter(|row| *row < valid).collect();
                    let (moves, left) = compact(valid, &bad);
                    for (to, from) in moves {
                        fields.iter_mut().try_for_each(|field| field.copy_row(from, to))?;
                        side_values.copy(from, to);
                        (records[to], positions[to]) = (records[from], positions[from]);
                    }
                    fields.iter_mut().try_for_each(|field| field.clear_from(left))?;
                    side_values.clear_from(left);
                    records.truncate(left);
                    positions.truncate(left);
                    valid = left;
                }
            }
        }

        if let Some(mix) = &loader.mix {
            self.mix(mix, &mut fields, (valid, records.len()))?;
            *mixed = Instant::now();
        }

        if loader.maps.batch.is_some() {
            self.map_batch((&mut fields, &side_values.bytes), &records, valid)?;
            *mixed = Instant::now();
        }

        let seal = |((field, rows), upload): ((&FieldRows, Rows), Option<Rows>)| {
            field.seal(rows, upload, self.plan.size).map(|tensor| (field.name.clone(), tensor))
        };
        let with_rows = loader.fields.iter().zip(fields).zip(uploads).filter(|((field, _), _)| field.side.is_none());
        let mut tensors = with_rows.map(seal).collect::<Result<Vec<_>>>()?;
        let mut side = side_values.seal(&loader.fields)?;
        tensors.append(&mut side.padded);
        Ok(Batch {
            fields: tensors,
            side,
            records,
            positions,
            rows,
            valid,
            epoch: self.plan.epoch,
            step: self.plan.step,
            state: self.plan.after.clone(),
            bad_samples,
            none_left: None,
        })
    }

    /// A batch without a good row: an error, unless it is the short last batch of several in an epoch, which a stream
    /// may leave out, because chance decides which records are in it.
    fn without_rows(&self, bad_samples: Vec<BadSample>, error: Error) -> Result<Batch> {
        let BatchPlan { epoch, step, positions, after, .. } = &self.plan;
        if positions.len() >= self.stream.loader.batch_size.get() || positions.first() == Some(&0) {
            return Err(error);
        }
        Ok(Batch {
            fields: Vec::new(),
            side: SideFields::default(),
            records: Vec::new(),
            positions: Vec::new(),
            rows: 0,
            valid: 0,
            epoch: *epoch,
            step: *step,
            state: after.clone(),
            bad_samples,
            none_left: Some(error),
        })
    }
}

impl Assembly {
    /// Moves the instances as their finished images were moved, then runs the user's function on the samples, if there
    /// is one. Returns the instances (for each sample, of each field) and the time taken.
    pub(super) fn finish(
        &self,
        items: &[Item],
        rows: &mut [Rows],
        outcomes: &mut [Outcome],
        placer: &mut Placer,
    ) -> (Vec<Vec<Instances>>, Duration) {
        let LoaderShared { maps, fields, .. } = &*self.stream.loader;
        let marked = fields.iter().any(|field| field.instances().is_some());
        if maps.sample.is_none() && !marked {
            return (Vec::new(), Duration::ZERO);
        }
        let began = Instant::now();
        let mut all = Vec::new();
        for (row, (item, outcome)) in items.iter().zip(outcomes).enumerate() {
            let mut instances = Vec::new();
            if let (Outcome::Done, Ok(sample)) = (&*outcome, &item.sample) {
                let finished = place(fields, sample, item, placer).and_then(|placed| {
                    instances = placed;
                    let (record, instances) = (item.record, &mut instances[..]);
                    let size = item.size;
                    let mut made = SampleMut { fields, rows, row, record, sample, instances, size };
                    maps.sample(&mut made, item.rng.op(u32::MAX))
                });
                if let Err(error) = finished {
                    *outcome = Outcome::Failed(error.at_stage(Stage::Transform).at_record(item.record));
                }
            }
            all.push(instances);
        }
        (all, began.elapsed())
    }

    /// Runs the user's function on the batch.
    fn map_batch(
        &self,
        (rows, bytes): (&mut [Rows], &[Vec<bytes::Bytes>]),
        records: &[u64],
        valid: usize,
    ) -> Result<()> {
        let StreamShared { loader, recorder, .. } = &*self.stream;
        let (began, mut cpu) = (Instant::now(), CpuMeter::start(loader.accounting));
        let BatchPlan { epoch, step, .. } = self.plan;
        let size = self.plan.size;
        let mut batch = BatchMut { fields: &loader.fields, rows, bytes, records, valid, epoch, step, size };
        let written = loader.maps.batch(&mut batch, self.rng().op(u32::MAX));
        written.map_err(|error| error.at_stage(Stage::Mix))?;
        recorder.worked(Stage::Mix, began.elapsed(), cpu.lap(), records.len() as u64, 0);
        Ok(())
    }

    /// The draws of the batch.
    fn rng(&self) -> SampleRng {
        let BatchPlan { epoch, positions, after, .. } = &self.plan;
        rng_of_batch(after.seed, *epoch, positions.first().copied().unwrap_or_default())
    }

    /// Mixes the batch, of whose rows this many are samples and this many hold records.
    fn mix(&self, mix: &BatchMix, rows: &mut [Rows], (samples, filled): (usize, usize)) -> Result<()> {
        let StreamShared { loader, recorder, .. } = &*self.stream;
        let (began, mut cpu) = (Instant::now(), CpuMeter::start(loader.accounting));
        let written = mix.apply(Unmixed { rng: self.rng(), fields: &loader.fields, rows, samples, filled });
        let written = written.map_err(|error| error.at_stage(Stage::Mix))?;
        recorder.worked(Stage::Mix, began.elapsed(), cpu.lap(), filled as u64, written);
        Ok(())
    }
}

/// The instances of a sample after its steps, field by field.
fn place(fields: &[FieldRows], sample: &Sample, item: &Item, placer: &mut Placer) -> Result<Vec<Instances>> {
    let with_values = fields.iter().zip(&sample.values);
    let of_instances = with_values.filter_map(|(field, value)| match (field.instances(), value) {
        (Some(of), Value::Instances(marked)) => Some((&of.lowered, marked)),
        _ => None,
    });
    let own = |lowered: &LoweredInstances| lowered.clone().of_size(item.size);
    of_instances.map(|(lowered, marked)| placer.run(&own(lowered), marked, item.rng)).collect()
}

/// For each bad row the nearest good one, the earlier of two: `(to, from)`. `None` if no row is good.
fn substitutes(rows: usize, bad: &[usize]) -> Option<Vec<(usize, usize)>> {
    let good: Vec<usize> = (0..rows).filter(|row| bad.binary_search(row).is_err()).collect();
    let nearest = |to: usize| {
        let after = good.partition_point(|row| *row < to);
        let candidates = [after.checked_sub(1).map(|i| good[i]), good.get(after).copied()];
        candidates.into_iter().flatten().min_by_key(|from| from.abs_diff(to)).map(|from| (to, from))
    };
    bad.iter().map(|row| nearest(*row)).collect()
}

/// Leaves bad rows out of a batch whose first `valid` rows are samples and whose other rows are padding. Returns the
/// moves `(to, from)`, and the numbers of rows and samples afterwards. Samples stay before copies.
fn leave_out(rows: usize, valid: usize, bad: &[usize]) -> (Vec<(usize, usize)>, (usize, usize)) {
    let (bad_samples, bad_copies) = bad.split_at(bad.partition_point(|row| *row < valid));
    let (mut moves, samples) = compact(valid, bad_samples);
    let holes: Vec<usize> = (samples..valid).chain(bad_copies.iter().copied()).collect();
    let (more, left) = compact(rows, &holes);
    moves.extend(more);
    (moves, (left, samples))
}

/// The error of a batch that would have no rows.
fn none_left(rows: usize, first: &Error) -> Error {
    let kind = if first.is_unreadable() { first.kind() } else { ErrorKind::Corrupt };
    let error = Error::new(kind, format!("all {rows} samples of a batch are bad")).with_source(first.clone());
    let error = first.context().object.iter().fold(error, |error, object| error.at_object(object.clone()));
    let error = first.context().field.iter().fold(error, |error, field| error.at_field(field.clone()));
    let error = first.context().record.into_iter().fold(error, Error::at_record);
    error.with_hint(format!(
        "repair the data, use a larger {BATCH_SIZE}, or set {SKIP_PADDED}, which hands over rows of zeros"
    ))
}

/// Fills each hole with the last good row, as long as there is one after it. Returns the moves `(to, from)` and the
/// number of good rows, which are all at the front.
fn compact(rows: usize, bad: &[usize]) -> (Vec<(usize, usize)>, usize) {
    let mut moves = Vec::new();
    let mut end = rows;
    for &hole in bad {
        while end > 0 && bad.binary_search(&(end - 1)).is_ok() {
            end -= 1;
        }
        if hole >= end {
            break;
        }
        end -= 1;
        moves.push((hole, end));
    }
    (moves, rows - bad.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_row_takes_the_nearest_good_one_and_the_earlier_of_two() {
        assert_eq!(substitutes(5, &[2]), Some(vec![(2, 1)]));
        assert_eq!(substitutes(5, &[0, 1]), Some(vec![(0, 2), (1, 2)]));
        assert_eq!(substitutes(5, &[3, 4]), Some(vec![(3, 2), (4, 2)]));
        assert_eq!(substitutes(2, &[0, 1]), None);
    }

    #[test]
    fn what_is_left_out_of_a_padded_batch_leaves_samples_in_front_of_copies() {
        for rows in 1..7usize {
            for (valid, mask) in (0..=rows).flat_map(|valid| (0..1u32 << rows).map(move |mask| (valid, mask))) {
                let bad: Vec<usize> = (0..rows).filter(|row| mask & (1 << row) != 0).collect();
                let mut content: Vec<usize> = (0..rows).collect();
                let (moves, (left, samples)) = leave_out(rows, valid, &bad);
                for (to, from) in moves {
                    content[to] = content[from];
                }
                content.truncate(left);
                assert!(content[..samples].iter().all(|row| *row < valid), "{rows} {valid} {bad:?}: {content:?}");
                content.sort_unstable();
                let good: Vec<usize> = (0..rows).filter(|row| !bad.contains(row)).collect();
                assert_eq!((content, samples), (good.clone(), good.iter().filter(|row| **row < valid).count()));
            }
        }
    }

    #[test]
    fn holes_are_filled_from_the_end() {
        for rows in 0..7usize {
            for mask in 0..1u32 << rows {
                let bad: Vec<usize> = (0..rows).filter(|row| mask & (1 << row) != 0).collect();
                let mut content: Vec<Option<usize>> = (0..rows).map(|r| (!bad.contains(&r)).then_some(r)).collect();
                let (moves, left) = compact(rows, &bad);
                for (to, from) in moves {
                    content[to] = content[from];
                }
                let mut kept: Vec<usize> = content[..left].iter().map(|row| row.expect("a good row")).collect();
                kept.sort_unstable();
                assert!(kept.iter().all(|row| !bad.contains(row)) && kept.windows(2).all(|w| w[0] < w[1]));
                assert_eq!(kept.len() + bad.len(), rows);
            }
        }
    }
}
