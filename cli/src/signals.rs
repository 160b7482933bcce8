//! The signals that end a run: Ctrl-C of a terminal, and SIGTERM, which schedulers send before they take a machine
//! away. In a live view, keys replace them.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::Notify;

/// What ended a run.
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

    /// The name for messages.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C (SIGINT)",
            Self::Terminate | Self::Quit => self.name(),
        }
    }

    /// The exit code that shells report for the signal. The key `q` is not a failure.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
            Self::Quit => 0,
        }
    }
}

/// The last pressed key that ends a run, until it is taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Arc<(Mutex<Option<Signal>>, Notify)>);

impl Keys {
    pub(crate) fn press(&self, signal: Signal) {
        let (pressed, told) = &*self.0;
        *pressed.lock().unwrap_or_else(PoisonError::into_inner) = Some(signal);
        told.notify_one();
    }

    /// Waits for a key. Cancel safe: a pressed key is kept.
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

/// Takes over the signals permanently.
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

    /// Waits for a signal or key. Cancel safe.
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

    /// Waits for a signal or key. Cancel safe.
    pub(crate) async fn next(&mut self) -> Signal {
        let console = async {
            // Without a console there is no Ctrl-C.
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
    /// The handle that receives keys.
    pub(crate) fn keys(&self) -> Keys {
        self.keys.clone()
    }
}
