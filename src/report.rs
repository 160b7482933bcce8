//! Where the time goes: what a stream, its stages, its requests and its queues did, as
//! [`BatchStream::report`](crate::BatchStream::report) tells it.

#[doc(inline)]
pub use infeed_core::report::{
    BadSample, CacheReport, Cause, CauseReport, Change, CostEstimate, DeviceTimes, Diagnosis, FirstBatchPart,
    LateBatch, Limit, Measured, QueueReport, Report, RequestReport, SlowRequest, Stage, StageReport, Stalls, Times,
    TuneDecision, TuneReason, TuneReport, Tuned, TunedSetting, WaitBucket, diagnose,
};
