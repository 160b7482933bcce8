//! The signals that ask a run to end: a terminal's Ctrl-C, and what schedulers send before they take a machine away.

use std::io;

/// Why a run was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM: spot instances, SageMaker, Slurm, Kubernetes.
    Terminate,
}

impl Signal {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        }
    }

    /// What shells report for a process that the signal ended.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }
}

/// Takes the signals over from the system, for good.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        // Without a console there is no Ctrl-C to come.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        Signal::Interrupt
    }
}
