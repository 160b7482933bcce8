//! Time as tokio tells it.

use std::time::Instant;

use tokio::runtime::Handle;

/// Now, on tokio's clock: tests move it.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Whether this thread can wait for a time.
pub(super) fn has_timers() -> bool {
    Handle::try_current().is_ok()
}

/// Ends at `at`; never without a runtime. The timer is made by the first poll.
pub(super) async fn alarm(at: Instant) {
    if has_timers() {
        tokio::time::sleep_until(at.into()).await;
    } else {
        std::future::pending::<()>().await;
    }
}
