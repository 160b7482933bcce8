//! Where the time goes: what a stream, its stages, its requests and its queues did, as `BatchStream::report` returns
//! it.
//!
//! Host times come from `Instant`, GPU times from GPU events. The two overlap and are never added. All threads of a run
//! write to one recorder, once per job, so its locks are taken about a thousand times per second.

mod cache;
mod decoded_by;
mod late;
mod queues;
mod recorder;
mod requests;
mod stage;
mod summary;
pub mod times;
mod tune;

pub use cache::CacheRecorder;
pub use cache::CacheReport;
pub use decoded_by::DecodedBy;
pub use late::{BatchPart, Lateness, blame, shares};
pub use late::{Cause, CauseReport, LateBatch};
pub use queues::Gauge;
pub use queues::QueueReport;
pub use recorder::Recorder;
pub use requests::{CostEstimate, RequestReport, SlowRequest};
pub use requests::{Reading, RequestRecorder, Sent};
pub use stage::{DeviceTimes, Stage, StageReport};
pub use summary::{BadSample, FirstBatchPart, Report};
pub use times::{Clock, WaitCounts};
pub use times::{Times, WaitBucket};
pub use tune::TuneLog;
pub use tune::{TuneDecision, TuneReason, TuneReport, Tuned, TunedSetting};
