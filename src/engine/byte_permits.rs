//! Permits for encoded bytes, and the parts that a chunk's records hold until they are decoded.

use std::sync::{Arc, OnceLock, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::shared_parts::PartAhead;

/// Permits for the bytes of a chunk, given back with the last handle to them.
#[derive(Clone, Debug)]
pub(super) struct BytePermits {
    _permit: Arc<OwnedSemaphorePermit>,
    _more: Option<Arc<OnceLock<OwnedSemaphorePermit>>>,
    /// Parts that its records need.
    _parts: Option<Arc<[PartAhead]>>,
}

/// Permits that are missing for bytes that have arrived anyway.
#[derive(Debug)]
pub(super) struct Overdraft {
    encoded: Arc<Semaphore>,
    units: u32,
    of: Weak<OnceLock<OwnedSemaphorePermit>>,
}

impl BytePermits {
    /// Permits for bytes whose number was known before.
    pub(super) fn new(permit: Arc<OwnedSemaphorePermit>) -> Self {
        Self { _permit: permit, _more: None, _parts: None }
    }

    /// Adds the parts that its records need.
    pub(super) fn with(self, parts: Arc<[PartAhead]>) -> Self {
        Self { _parts: Some(parts), ..self }
    }

    /// Corrects an estimate after `came` units have arrived: excess permits are released, missing ones are taken if
    /// they are free. The rest is an overdraft.
    pub(super) fn settled(
        mut permit: OwnedSemaphorePermit,
        encoded: &Arc<Semaphore>,
        came: u32,
    ) -> (Self, Option<Overdraft>) {
        let had = permit.num_permits() as u32;
        if came <= had {
            drop(permit.split((had - came) as usize));
            return (Self::new(Arc::new(permit)), None);
        }
        if let Ok(more) = Arc::clone(encoded).try_acquire_many_owned(came - had) {
            permit.merge(more);
            return (Self::new(Arc::new(permit)), None);
        }
        let more = Arc::default();
        let overdraft = Overdraft { encoded: Arc::clone(encoded), units: came - had, of: Arc::downgrade(&more) };
        (Self { _more: Some(more), ..Self::new(Arc::new(permit)) }, Some(overdraft))
    }
}

impl Overdraft {
    /// Takes the missing permits. Permits are granted in the order of the calls, so no other read gets one until this
    /// ends. The bytes must already be on their way to the decode threads, which need no permit to decode them: so this
    /// ends at the latest when these and all earlier bytes are decoded.
    pub(super) async fn pay(self) {
        let Ok(permit) = self.encoded.acquire_many_owned(self.units).await else { return };
        if let Some(more) = self.of.upgrade() {
            let _ = more.set(permit);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, executor::block_on};

    use super::*;

    fn taken(encoded: &Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
        Arc::clone(encoded).try_acquire_many_owned(units).unwrap()
    }

    #[test]
    fn permits_are_those_of_what_came() {
        let encoded = Arc::new(Semaphore::new(10));
        let (fewer, overdraft) = BytePermits::settled(taken(&encoded, 4), &encoded, 1);
        assert!(overdraft.is_none());
        assert_eq!(encoded.available_permits(), 9);
        let (more, overdraft) = BytePermits::settled(taken(&encoded, 2), &encoded, 7);
        assert!(overdraft.is_none());
        assert_eq!(encoded.available_permits(), 2);
        let again = more.clone();
        drop((fewer, more));
        assert_eq!(encoded.available_permits(), 3, "another handle");
        drop(again);
        assert_eq!(encoded.available_permits(), 10);
    }

    #[test]
    fn a_debt_is_paid_before_anybody_else_gets_permits() {
        let encoded = Arc::new(Semaphore::new(10));
        let other = taken(&encoded, 7);
        let (held, overdraft) = BytePermits::settled(taken(&encoded, 2), &encoded, 6);
        let mut paying = Box::pin(overdraft.unwrap().pay());
        assert!(paying.as_mut().now_or_never().is_none());
        let mut behind = Box::pin(Arc::clone(&encoded).acquire_many_owned(1));
        assert!(behind.as_mut().now_or_never().is_none());
        drop(other);
        block_on(paying);
        assert_eq!(block_on(behind).unwrap().num_permits(), 1);
        assert_eq!(encoded.available_permits(), 4);
        drop(held);
        assert_eq!(encoded.available_permits(), 10);
    }

    #[test]
    fn nothing_is_kept_for_bytes_that_are_gone() {
        let encoded = Arc::new(Semaphore::new(4));
        let (held, overdraft) = BytePermits::settled(taken(&encoded, 1), &encoded, 9);
        drop(held);
        // Never more than there are, as `settled` requires.
        encoded.add_permits(8);
        block_on(overdraft.unwrap().pay());
        assert_eq!(encoded.available_permits(), 12);
    }
}
