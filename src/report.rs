//! Where the time goes: the numbers of a stream, its stages, its requests and its queues, as
//! [`BatchStream::report`](crate::BatchStream::report) returns them.

#[doc(inline)]
pub use infeed_core::report::{
    BadSample, CacheReport, Cause, CauseReport, CostEstimate, DeviceTimes, FirstBatchPart, LateBatch, QueueReport,
    Report, RequestReport, SlowRequest, Stage, StageReport, Times, TuneDecision, TuneReason, TuneReport, Tuned,
    TunedSetting, WaitBucket,
};
