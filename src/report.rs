//! Where the time goes: the numbers of a stream, its stages, its requests and its queues, as
//! [`BatchStream::report`](crate::BatchStream::report) returns them.

#[doc(inline)]
pub use infeed_core::report::{
    BadSample, CacheReport, Cause, CauseReport, Change, CostEstimate, DeviceTimes, Diagnosis, FirstBatchPart,
    LateBatch, Limit, Measured, QueueReport, Report, RequestReport, SlowRequest, Stage, StageReport, Stalls, Times,
    TuneDecision, TuneReason, TuneReport, Tuned, TunedSetting, WaitBucket, diagnose,
};
