//! The decode threads of a loader, or of several that were built together: started, parked, ended.

use std::{
    fmt,
    sync::{Arc, mpsc},
    thread,
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    numa::Near,
    threads,
    types::Device,
};
use infeed_data::Dataset;
use infeed_pixels::{
    codec::{Class, Decoder},
    transform::Lowered,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    chunk::ChunkSize,
    decode_thread::{DecodeThread, Meters},
    image_lists::ImageLists,
    permits::units,
    queue::{Queue, Worked},
    stream::StreamShared,
    task::Work,
    threads::{Alive, Threads},
};

/// The decode threads of a loader. Dropping it ends them after their current job, without waiting.
pub(crate) struct Workers {
    threads: Threads,
    queue: Arc<Queue<Work>>,
    dataset: Arc<dyn Dataset>,
    decoder: Arc<dyn Decoder>,
    programs: Arc<[Option<Lowered>]>,
    chunk: Arc<ChunkSize>,
    /// Memory for more threads than the decoder's classes have.
    more: Arc<Semaphore>,
    /// Bytes of it for one thread.
    each: u32,
    /// The best processors for the threads.
    near: Near,
    meters: Meters,
    /// For lists of images, if the records have some.
    lists: Option<ImageLists>,
    /// Dropped last: the threads may end before this has dropped the dataset.
    _alive: Alive,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").field("decoder", &self.decoder.name()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Starts all threads of the decoder's classes and waits until each has made its worker. `lanes` has the device of
    /// each loader, `near` the best processors.
    ///
    /// Further threads of the class that reads may be started later within the memory `more`; each takes `bytes`.
    pub(crate) fn start(
        dataset: &Arc<dyn Dataset>,
        decoder: &Arc<dyn Decoder>,
        programs: &Arc<[Option<Lowered>]>,
        chunk: &Arc<ChunkSize>,
        (lanes, near): (&[Device], Near),
        (more, bytes): (&Arc<Semaphore>, u64),
        (meters, lists): (Meters, Option<ImageLists>),
    ) -> Result<Self> {
        // Devices by number. A class of another device belongs to a user's decoder, which works for the only device.
        let number = |device: Device| lanes.iter().position(|lane| *lane == device).unwrap_or(0);
        let homes = decoder.classes().iter().map(|class| number(class.device)).collect();
        let lanes = lanes.iter().map(|lane| number(*lane)).collect();
        // From here on an early return closes the queue, which ends the threads that have started.
        let threads = Threads::new();
        let workers = Self {
            _alive: threads.alive(),
            threads,
            queue: Arc::new(Queue::new(decoder.classes(), homes, lanes)),
            dataset: Arc::clone(dataset),
            decoder: Arc::clone(decoder),
            programs: Arc::clone(programs),
            chunk: Arc::clone(chunk),
            more: Arc::clone(more),
            each: units(bytes),
            near,
            meters,
            lists,
        };
        let (report, reports) = mpsc::channel::<Result<()>>();
        let mut started = 0;
        for (class, kind) in decoder.classes().iter().enumerate() {
            for n in 0..kind.workers.get() {
                let report = report.clone();
                workers.spawn(class, n, None, move |ready| {
                    let _ = report.send(ready);
                })?;
                started += 1;
            }
        }
        drop(report);
        for _ in 0..started {
            let gone = || Error::new(ErrorKind::Internal, "a decode thread ended while it started");
            reports.recv().map_err(|_| gone())??;
        }
        Ok(workers)
    }

    /// Starts a thread; it reports through `ready` whether it has its worker, and releases `memory` when it ends.
    fn spawn(
        &self,
        class: usize,
        n: usize,
        memory: Option<OwnedSemaphorePermit>,
        ready: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<()> {
        let kind = &self.decoder.classes()[class];
        let thread = DecodeThread {
            class,
            n,
            depth: kind.batch.get(),
            queue: Arc::clone(&self.queue),
            dataset: Arc::clone(&self.dataset),
            decoder: Arc::clone(&self.decoder),
            programs: Arc::clone(&self.programs),
            chunk: Arc::clone(&self.chunk),
            meters: self.meters,
            lists: self.lists.clone(),
        };
        #[cfg(test)]
        if super::by_hand::installed() {
            ready(super::by_hand::take(thread, memory));
            return Ok(());
        }
        let failed = |e| Error::new(ErrorKind::OutOfMemory, "cannot start a decode thread").with_source(e);
        let reads = kind.reads;
        let near = if reads { self.near.reader(n) } else { self.near.engine(kind.device) }.cloned();
        let alive = self.threads.alive();
        let body = move || {
            // Before it makes its worker, because memory is placed near the processor that first touches it.
            if near.is_some_and(|near| !threads::stay_on(&near)) {
                tracing::debug!("the system does not keep a decode thread near its GPU");
            }
            // There are as many reading threads as cores, so they yield to the trainer. Threads of engines do short
            // work for which a whole GPU waits, and must not wait for a reader's time slice.
            if reads {
                threads::yield_to_others();
            }
            match thread.worker() {
                Ok(worker) => {
                    ready(Ok(()));
                    thread.queue.entered(class);
                    // When this returns, the worker and its memory are dropped.
                    thread.run(worker);
                }
                Err(error) => ready(Err(error)),
            }
            drop((thread, memory));
            drop(alive);
        };
        thread::Builder::new().name(thread_name(kind, n)).spawn(body).map_err(failed)?;
        Ok(())
    }

    /// Sets the number of threads of the class that reads which take jobs, at least one; more than at the start as far
    /// as there is memory. Returns the new number.
    pub(super) fn set_active(&self, active: usize) -> usize {
        let Some(class) = self.queue.shifts() else { return self.queue.active() };
        let missing = self.queue.set_active(active);
        for (at, n) in missing.iter().enumerate() {
            let memory = Arc::clone(&self.more).try_acquire_many_owned(self.each).ok();
            let queue = Arc::clone(&self.queue);
            let n = *n;
            let ready = move |ready: Result<()>| {
                if let Err(error) = ready {
                    tracing::debug!(error = %format!("{error:#}"), "a further decode thread could not be started");
                    queue.not_started(&[n]);
                }
            };
            let started = memory.is_some_and(|memory| self.spawn(class, n, Some(memory), ready).is_ok());
            if !started {
                self.queue.not_started(&missing[at..]);
                break;
            }
        }
        self.queue.active()
    }

    /// All threads of the loader.
    pub(crate) const fn threads(&self) -> &Threads {
        &self.threads
    }

    /// The classes of threads.
    pub(super) fn classes(&self) -> &[Class] {
        self.decoder.classes()
    }

    /// The clocks of the threads so far.
    pub(super) fn worked(&self) -> Worked {
        self.queue.worked()
    }

    pub(super) fn submit(&self, work: Work) {
        self.queue.push(work);
    }

    /// Wakes threads after a stream has allowed a further class to decode.
    pub(super) fn urge(&self) {
        self.queue.urge();
    }

    /// Jobs that wait for a thread.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Drops the queued tasks of a dropped stream, and frees their memory.
    pub(super) fn forget(&self, stream: &Arc<StreamShared>) {
        self.queue.forget(|work| Arc::ptr_eq(work.stream(), stream));
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Name of thread `n` of a class, for debuggers and `top`. Linux keeps 15 letters, so for the classes of a GPU it is
/// three letters of the last word and the GPU's number: `infeed-har1-0` is the first thread of `nvjpeg-hardware` on
/// `cuda:1`.
fn thread_name(class: &Class, n: usize) -> String {
    match class.device {
        Device::Cuda(index) if !class.reads => {
            let word = class.name.rsplit('-').next().unwrap_or(class.name);
            format!("infeed-{}{index}-{n}", word.chars().take(3).collect::<String>())
        }
        _ => format!("infeed-{}-{n}", class.name),
    }
}

/// Rejects a decoder with no classes, or with more than a set can hold.
pub(crate) fn check_decoder(decoder: &dyn Decoder) -> Result<()> {
    match decoder.classes().len() {
        0 => Err(Error::config(format!("decoder {} has no worker classes", decoder.name()))),
        1..=32 => Ok(()),
        n => {
            Err(Error::config(format!("decoder {} has {n} worker classes", decoder.name())).with_hint("use 32 at most"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_threads_fit_and_tell_them_apart() {
        let class = |name, device, reads| {
            let mut class = Class::new(name, device, std::num::NonZeroUsize::MIN);
            class.reads = reads;
            class
        };
        let cases = [
            (class("cpu", Device::Cpu, true), 127, "infeed-cpu-127"),
            (class("cpu", Device::Cuda(3), true), 0, "infeed-cpu-0"),
            (class("nvjpeg-hardware", Device::Cuda(1), false), 0, "infeed-har1-0"),
            (class("nvjpeg-hybrid", Device::Cuda(15), false), 3, "infeed-hyb15-3"),
        ];
        for (class, n, name) in cases {
            assert_eq!(thread_name(&class, n), name);
            assert!(name.len() <= 15);
        }
    }
}
