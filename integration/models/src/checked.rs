//! What the files under test take for the standard library and tokio.

pub(crate) mod std {
    pub(crate) use ::std::{collections, future, pin, task, time};

    pub(crate) mod sync {
        pub(crate) use ::std::sync::PoisonError;
        pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, mpsc};

        pub(crate) mod atomic {
            pub(crate) use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
        }
    }
}

pub(crate) mod tokio {
    pub(crate) mod sync {
        use std::{
            future::Future,
            pin::Pin,
            task::{Context, Poll, Waker},
        };

        use shuttle::{
            future::batch_semaphore::{BatchSemaphore, Fairness},
            sync::{Arc, Mutex},
        };

        /// tokio's, as far as it is used: fair.
        #[derive(Debug)]
        pub(crate) struct Semaphore(BatchSemaphore);

        #[derive(Debug)]
        pub(crate) struct SemaphorePermit<'a>(Option<&'a Semaphore>);

        #[derive(Debug)]
        pub(crate) struct OwnedSemaphorePermit(Arc<Semaphore>);

        impl Semaphore {
            pub(crate) fn new(permits: usize) -> Self {
                Self(BatchSemaphore::new(permits, Fairness::StrictlyFair))
            }

            pub(crate) async fn acquire(&self) -> Result<SemaphorePermit<'_>, ()> {
                self.0.acquire(1).await.map_err(drop)?;
                Ok(SemaphorePermit(Some(self)))
            }

            pub(crate) async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, ()> {
                self.0.acquire(1).await.map_err(drop)?;
                Ok(OwnedSemaphorePermit(self))
            }

            pub(crate) fn available_permits(&self) -> usize {
                self.0.available_permits()
            }

            pub(crate) fn add_permits(&self, n: usize) {
                self.0.release(n);
            }
        }

        impl SemaphorePermit<'_> {
            pub(crate) fn forget(mut self) {
                self.0 = None;
            }
        }

        impl Drop for SemaphorePermit<'_> {
            fn drop(&mut self) {
                if let Some(semaphore) = self.0 {
                    semaphore.add_permits(1);
                }
            }
        }

        impl Drop for OwnedSemaphorePermit {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }

        /// tokio's `notify_waiters`: wakes those who asked to be notified before the call.
        #[derive(Debug, Default)]
        pub(crate) struct Notify(Mutex<Notices>);

        #[derive(Debug, Default)]
        struct Notices {
            calls: usize,
            waiting: Vec<Waker>,
        }

        #[derive(Debug)]
        pub(crate) struct Notified<'a> {
            notify: &'a Notify,
            /// Calls that came before.
            calls: usize,
        }

        impl Notify {
            pub(crate) fn notified(&self) -> Notified<'_> {
                Notified { notify: self, calls: self.0.lock().unwrap().calls }
            }

            pub(crate) fn notify_waiters(&self) {
                let waiting = {
                    let mut notices = self.0.lock().unwrap();
                    notices.calls += 1;
                    std::mem::take(&mut notices.waiting)
                };
                waiting.into_iter().for_each(Waker::wake);
            }
        }

        impl Notified<'_> {
            pub(crate) fn enable(self: Pin<&mut Self>) -> bool {
                self.notify.0.lock().unwrap().calls > self.calls
            }
        }

        impl Future for Notified<'_> {
            type Output = ();

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
                let mut notices = self.notify.0.lock().unwrap();
                if notices.calls > self.calls {
                    return Poll::Ready(());
                }
                notices.waiting.push(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}
