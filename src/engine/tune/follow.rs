//! The task that measures a stream and applies the decisions.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use infeed_core::{
    report::{TuneDecision, Tuned},
    threads,
};

use super::{
    super::{stream::StreamShared, workers::Workers},
    control::{Look, Sums},
};

/// Adjusts settings on `auto` while a stream runs.
pub(in crate::engine) async fn tune(stream: Arc<StreamShared>, workers: Arc<Workers>, id: u64) {
    let tuning = &stream.loader.tuning;
    loop {
        tuning.tick().await;
        let decision = tuning.look(look(&stream, &workers), id, |active, prefetch| {
            stream.row_permits.grow_to(prefetch);
            workers.set_active(active);
        });
        let Some(decision) = decision else { continue };
        let reached = match decision.what {
            Tuned::Workers => workers.set_active(decision.to),
            Tuned::Prefetch => set_prefetch(&stream, decision.to).await,
        };
        let Some(done) = tuning.reached(decision, reached) else { continue };
        let TuneDecision { what, from, to, why, waiting, busy, samples_per_second, .. } = done;
        let (what, why) = (what.name(), why.name());
        tracing::debug!(what, from, to, why, waiting, busy, samples_per_second, "autotune");
        stream.tuned().add(done);
    }
}

/// The measurements of a stream and the threads now.
fn look(stream: &StreamShared, workers: &Workers) -> Look {
    let now = Instant::now();
    let finished = stream.finished.load(Ordering::Relaxed) as u64;
    let worked = workers.worked();
    let asked = stream.poll_times().look(now, finished);
    let sums = Sums {
        at: now.saturating_duration_since(stream.started),
        batches: asked.batches,
        rows: worked.rows,
        jobs: worked.jobs,
        waited: asked.waited,
        blocked: stream.row_permits.blocked(),
        swings: asked.swings,
        worked: worked.worked,
        read: worked.read,
        read_cpu: worked.read_cpu,
        made: worked.made,
        made_cpu: worked.made_cpu,
        cpu: threads::process_cpu_time().unwrap_or_default(),
    };
    Look { sums, polling: asked.polling, finished, fewest: asked.fewest, shared: false }
}

/// Sets the number of batches with rows to `to`, as far as there is memory; returns the number. Waits until the trainer
/// has taken the excess batches.
async fn set_prefetch(stream: &StreamShared, to: usize) -> usize {
    let loader = &stream.loader;
    let pools =
        || loader.fields.iter().flat_map(|field| [Some(&field.pool), field.soft.as_ref().map(|soft| &soft.pool)]);
    let keep = |batches: usize| pools().flatten().for_each(|pool| pool.set_most(batches + 1));
    if to > stream.row_permits.size() {
        let reached = loader.tuning.hold(to);
        keep(reached);
        stream.row_permits.grow_to(reached);
    } else {
        stream.row_permits.shrink_to(to).await;
        keep(to);
        loader.tuning.hold(to);
    }
    stream.row_permits.size()
}
