//! Time from tokio's clock.

use std::time::Instant;

use tokio::runtime::Handle;

/// The current time of tokio's clock, which tests can advance.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Whether this thread has tokio timers.
pub(super) fn has_timers() -> bool {
    Handle::try_current().is_ok()
}

/// Completes at `at`; never without a runtime. The timer is created by the first poll.
pub(super) async fn alarm(at: Instant) {
    if has_timers() {
        tokio::time::sleep_until(at.into()).await;
    } else {
        std::future::pending::<()>().await;
    }
}
