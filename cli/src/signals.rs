//! The signals that ask a run to end: a terminal's Ctrl-C, and what schedulers send before they take a machine away.
//! While a live view holds the terminal its keys take their place.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// Why a run was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM: spot instances, SageMaker, Slurm, Kubernetes.
    Terminate,
    /// The key `q` of the live view.
    Quit,
}

impl Signal {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::Quit => "the key q",
        }
    }

    /// For people, who may not know signals.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C (SIGINT)",
            Self::Terminate | Self::Quit => self.name(),
        }
    }

    /// What shells report for a process that the signal ended; whoever presses a key is not told of a failure.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Quit => 0,
        }
    }
}

/// The last key that ends a run, until somebody takes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Arc<(Mutex<Option<Signal>>, Notify)>);

impl Keys {
    pub(crate) fn press(&self, signal: Signal) {
        let (pressed, told) = &*self.0;
        *pressed.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        told.notify_one();
    }

    /// Waits for one. Cancel safe: what was pressed stays.
    async fn next(&self) -> Signal {
        let (pressed, told) = &*self.0;
        loop {
            if let Some(signal) = pressed.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return signal;
            }
            told.notified().await;
        }
    }
}

/// Takes the signals over from the system, for good.
#[derive(Debug)]
pub(crate) struct Signals {
    keys: Keys,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Self { keys: Keys::default(), interrupt, terminate })
    }

    /// Waits for one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            key = self.keys.next() => key,
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { keys: Keys::default() })
    }

    /// Waits for one. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        let console = async {
            // Without a console there is no Ctrl-C to come.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = console => Signal::Interrupt,
            key = self.keys.next() => key,
        }
    }
}

impl Signals {
    /// Where keys go.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.clone()
    }
}
