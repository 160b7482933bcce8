//! Rows for a batch: first the permit to own some, then their memory.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use tokio::sync::OwnedSemaphorePermit;

use super::{fields::BatchRows, plan::BatchPlan, stream::StreamShared};
use crate::{
    error::{ErrorKind, Result},
    report::Stage,
};

/// Waits until a batch may own rows. `None` never happens while the task lives; it spares an `expect`.
pub(super) async fn row_permit(stream: &StreamShared, plan: &mut BatchPlan) -> Option<OwnedSemaphorePermit> {
    let began = Instant::now();
    let permit = stream.row_permits.acquire().await?;
    plan.waits.permit(began);
    Some(permit)
}

/// Memory for the rows of a batch that holds its permit. On a GPU this waits while what came back is still read there.
///
/// When the GPU has no memory left, the stream goes on with half as many batches ahead, once; when that does not help
/// and no other batch of this stream can give its memory back, it ends with the error.
pub(super) async fn take_rows(stream: &StreamShared, count: usize) -> Result<BatchRows> {
    // Often enough for a pool of several batches, seldom enough to cost nothing.
    const PAUSE: Duration = Duration::from_millis(1);
    let mut waited = None;
    loop {
        match BatchRows::take(&stream.loader.fields, count) {
            Ok(Some(taken)) => {
                if let Some(began) = waited {
                    stream.recorder.blocked(Stage::Transfer, Instant::elapsed(&began));
                }
                return Ok(taken);
            }
            Ok(None) => {}
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                let most = stream.row_permits.size();
                if most > 1 && !stream.gave_up.swap(true, Ordering::Relaxed) {
                    let fewer = most - most / 2;
                    tracing::warn!(prefetch = fewer, %error, "out of device memory: fewer batches ahead");
                    stream.row_permits.shrink_to(fewer).await;
                    continue;
                }
                if stream.row_permits.free() + 1 >= most {
                    return Err(error.at_stage(Stage::Transfer));
                }
            }
            Err(error) => return Err(error.at_stage(Stage::Transfer)),
        }
        waited.get_or_insert_with(Instant::now);
        tokio::time::sleep(PAUSE).await;
    }
}
