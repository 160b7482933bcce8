//! Hashes received bytes on separate threads, if the engine provides some, so that the reading thread goes on reading.
//!
//! ```text
//! an object arrives ─ waits ─┬─ with threads ────▶ a thread takes all waiting objects: MD5s in parallel, others one by one
//!                            └─ without threads ─▶ the first awaiting task takes them, after yielding to other tasks
//! ```
//!
//! No thread waits for a request to come. At a trainer's pace hardly any objects arrive together. If cores are short,
//! reads pile up, and then each MD5 costs least ([`md5_each`](super::md5_each)).
//!
//! Waiting work belongs to the task that awaits it. If that is dropped, the work is taken back, or its result is
//! ignored. If a requested thread never starts, or panics, its work is dropped, and the awaiting task does it.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use bytes::Bytes;
use tokio::sync::Notify;

use super::md5_each::{Running, Sum, md5_each};

type Lend = Box<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// Bytes hashed before other tasks get the thread, if there are no separate threads.
const AT_ONCE: usize = 256 << 10;
/// Larger objects are hashed in parts of this size, with other objects in between: 1.5 ms of an MD5.
const LARGE: usize = 1 << 20;
/// Bytes hashed at a time: two milliseconds of a thread. With 1 MiB a run from a bucket took a seventh more processor
/// time, because at the end one buffer is always hashed alone.
const TOGETHER: usize = 4 << 20;

/// How many bytes are hashed where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The most bytes hashed in the awaiting task: they cost no more than handing them to another thread.
    pub(super) here: usize,
    /// The most bytes hashed at a time on another thread: about a millisecond.
    pub(super) aside: usize,
}

/// Objects waiting to be hashed, and the threads for it.
#[derive(Default)]
pub struct Sums {
    queue: Mutex<Queue>,
    /// `None`: the awaiting task does it.
    threads: Option<Threads>,
}

struct Threads {
    lend: Lend,
    most: usize,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// Total cost, in bytes of MD5s computed in parallel.
    cost: usize,
    /// Threads that hash or were requested.
    threads: usize,
    /// The number of the next object.
    next: u64,
}

struct Waiting {
    number: u64,
    cost: usize,
    work: Work,
    /// Dropped after the work, whatever its result.
    _over: Over,
}

enum Work {
    Md5(Bytes, Arc<OnceLock<Sum>>),
    Other(Box<dyn FnOnce() + Send>),
}

/// Wakes the waiting task when dropped.
struct Over(Arc<Notify>);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A waiting object. Dropping the ticket takes it back.
struct Ticket<'a> {
    sums: &'a Sums,
    number: u64,
    over: Arc<Notify>,
    waits: bool,
}

impl Ticket<'_> {
    async fn over(mut self) {
        self.over.notified().await;
        self.waits = false;
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.sums.take_back(self.number);
        }
    }
}

/// A requested thread.
struct Thread {
    sums: Arc<Sums>,
    done: bool,
}

impl Thread {
    fn run(mut self) {
        loop {
            let some = {
                let mut queue = self.sums.lock();
                if queue.waiting.is_empty() {
                    // Under this lock, so that work from here on gets a new thread.
                    queue.threads -= 1;
                    self.done = true;
                    return;
                }
                queue.take()
            };
            run(some);
        }
    }
}

/// The thread never started, or a hash panicked: the last thread leaves no waiting work behind.
impl Drop for Thread {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut queue = self.sums.lock();
        queue.threads -= 1;
        if queue.threads == 0 {
            let left = std::mem::take(&mut queue.waiting);
            queue.cost = 0;
            drop(queue);
            drop(left);
        }
    }
}

impl Queue {
    /// Takes the first waiting objects, as many as are hashed at a time.
    fn take(&mut self) -> Vec<Waiting> {
        let mut cost = 0;
        let fits = |waiting: &&Waiting| {
            cost += waiting.cost;
            matches!(waiting.work, Work::Md5(..)) && cost <= TOGETHER
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        let some: Vec<Waiting> = self.waiting.drain(..count.min(self.waiting.len())).collect();
        self.cost -= some.iter().map(|waiting| waiting.cost).sum::<usize>();
        some
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.iter().position(|waiting| waiting.number == number)
    }
}

impl Sums {
    /// Hashes on threads on which `lend` runs its argument, at most `most` at a time. If no thread is left, `lend`
    /// drops its argument.
    #[must_use]
    pub fn aside(most: usize, lend: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { threads: Some(Threads { lend: Box::new(lend), most: most.max(1) }), ..Self::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Each critical section leaves it consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The MD5 of an object. Cancel safe.
    pub(super) async fn md5(self: &Arc<Self>, bytes: &Bytes, pace: Pace) -> Sum {
        if bytes.len() > LARGE {
            return self.hash(Running::default(), bytes, pace, Running::take).await.sum();
        }
        if self.threads.is_some() && bytes.len() <= pace.here {
            return Running::of(bytes);
        }
        let sum = Arc::default();
        let ticket = self.wait(bytes.len(), Work::Md5(bytes.clone(), Arc::clone(&sum)));
        if self.threads.is_none() {
            tokio::task::yield_now().await;
            // Several rounds, if many objects came before it.
            loop {
                let some = {
                    let mut queue = self.lock();
                    if queue.place(ticket.number).is_none() {
                        break;
                    }
                    queue.take()
                };
                run(some);
            }
        }
        ticket.over().await;
        // No thread did it: see the module documentation.
        sum.get().copied().unwrap_or_else(|| Running::of(bytes))
    }

    /// Adds all of `bytes` to a hash, each part by `take`. Cancel safe.
    pub(super) async fn hash<H: Clone + Send + Sync + 'static>(
        self: &Arc<Self>,
        mut hash: H,
        bytes: &Bytes,
        pace: Pace,
        take: fn(&mut H, &[u8]),
    ) -> H {
        let here = self.threads.is_none() || bytes.len() <= pace.here;
        let part = if here { AT_ONCE } else { pace.aside };
        for start in (0..bytes.len()).step_by(part) {
            let some = bytes.slice(start..bytes.len().min(start + part));
            if here {
                if start > 0 {
                    tokio::task::yield_now().await;
                }
                take(&mut hash, &some);
                continue;
            }
            let done = Arc::<OnceLock<H>>::default();
            let (to, of, mut next) = (Arc::clone(&done), some.clone(), hash.clone());
            let work = move || {
                take(&mut next, &of);
                // Set only here, so this can't fail.
                let _ = to.set(next);
            };
            // About 1.5 ms of the two that a thread takes at a time.
            let cost = some.len() * TOGETHER / pace.aside * 3 / 4;
            self.wait(cost, Work::Other(Box::new(work))).over().await;
            match done.get() {
                Some(done) => hash = done.clone(),
                None => take(&mut hash, &some),
            }
        }
        hash
    }

    fn wait(self: &Arc<Self>, cost: usize, work: Work) -> Ticket<'_> {
        let over = Arc::<Notify>::default();
        let mut queue = self.lock();
        let number = queue.next;
        queue.next += 1;
        queue.cost += cost;
        queue.waiting.push_back(Waiting { number, cost, work, _over: Over(Arc::clone(&over)) });
        let ticket = Ticket { sums: self, number, over, waits: true };
        let Some(threads) = &self.threads else { return ticket };
        // One more thread for each amount that a thread takes at a time.
        let wanted = (1 + queue.cost / TOGETHER).min(threads.most);
        if queue.threads < wanted {
            queue.threads += 1;
            drop(queue);
            let thread = Thread { sums: Arc::clone(self), done: false };
            (threads.lend)(Box::new(move || thread.run()));
        }
        ticket
    }

    fn take_back(&self, number: u64) {
        let mut queue = self.lock();
        let at = queue.place(number);
        let back = at.and_then(|at| queue.waiting.remove(at));
        queue.cost -= back.as_ref().map_or(0, |waiting| waiting.cost);
    }
}

fn run(some: Vec<Waiting>) {
    let md5s: Vec<(&[u8], &OnceLock<Sum>)> = some
        .iter()
        .filter_map(|waiting| match &waiting.work {
            Work::Md5(bytes, sum) => Some((&**bytes, &**sum)),
            Work::Other(_) => None,
        })
        .collect();
    let buffers: Vec<&[u8]> = md5s.iter().map(|(bytes, _)| *bytes).collect();
    for (sum, (_, to)) in md5_each(&buffers).into_iter().zip(md5s) {
        // Set only here, so this can't fail.
        let _ = to.set(sum);
    }
    for waiting in some {
        if let Work::Other(work) = waiting.work {
            work();
        }
    }
}

impl fmt::Debug for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sums").field("aside", &self.threads.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        sync::mpsc,
        task::{Context, Poll, Waker},
        thread::{self, ThreadId},
        time::Duration,
    };

    use futures::{
        FutureExt,
        executor::block_on,
        future::{BoxFuture, join_all},
    };
    use md5::{Digest, Md5};
    use proptest::prelude::*;
    use tokio::runtime::Builder;

    use super::*;

    const PACE: Pace = Pace { here: 2000, aside: 64 << 10 };

    fn object(n: usize) -> Bytes {
        (0..1000 + 997 * n).map(|i| (i * n) as u8).collect::<Vec<_>>().into()
    }

    fn wanted(bytes: &[u8]) -> Sum {
        Md5::digest(bytes).into()
    }

    /// A hash that records what it was given, and on which thread.
    fn note(noted: &mut Vec<(usize, ThreadId)>, bytes: &[u8]) {
        noted.push((bytes.len(), thread::current().id()));
    }

    fn on_threads(most: usize) -> Arc<Sums> {
        Sums::aside(most, |work| drop(thread::spawn(work)))
    }

    fn is_idle(sums: &Sums) -> bool {
        let queue = sums.lock();
        (queue.waiting.len(), queue.cost, queue.threads) == (0, 0, 0)
    }

    #[test]
    fn sums_are_right_however_many_come_and_on_however_many_threads() {
        for (threads, sums) in [(1, Arc::default()), (4, Arc::default()), (1, on_threads(1)), (2, on_threads(4))] {
            let runtime = Builder::new_multi_thread().worker_threads(threads).build().unwrap();
            runtime.block_on(async {
                for count in [1, 3, 5, 16, 200] {
                    let one = |n| {
                        let (sums, bytes) = (Arc::clone(&sums), object(n));
                        tokio::spawn(async move { (sums.md5(&bytes, PACE).await, wanted(&bytes)) })
                    };
                    for done in join_all((0..count).map(one)).await {
                        let (sum, wanted) = done.unwrap();
                        assert_eq!(sum, wanted);
                    }
                    assert!(sums.lock().waiting.is_empty());
                }
                let large = Bytes::from(vec![7; 3 * LARGE + 1]);
                assert_eq!(sums.md5(&large, PACE).await, wanted(&large));
            });
        }
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_kept() {
        let sums = Arc::<Sums>::default();
        let bytes: Vec<Bytes> = (0..40).map(object).collect();
        let mut cx = Context::from_waker(Waker::noop());
        {
            let mut all: Vec<_> = bytes.iter().map(|bytes| Box::pin(sums.md5(bytes, PACE))).collect();
            all.iter_mut().for_each(|sum| assert!(sum.as_mut().poll(&mut cx).is_pending()));
            assert_eq!(sums.lock().waiting.len(), 40);
            all.truncate(2);
            assert_eq!(sums.lock().waiting.len(), 2);
        }
        assert!(is_idle(&sums));
        // Taken by the first task, which is dropped before the second looks.
        let mut first = Box::pin(sums.md5(&bytes[0], PACE));
        let mut others: Vec<_> = bytes[1..9].iter().map(|bytes| Box::pin(sums.md5(bytes, PACE))).collect();
        assert!(first.as_mut().poll(&mut cx).is_pending());
        others.iter_mut().for_each(|sum| assert!(sum.as_mut().poll(&mut cx).is_pending()));
        assert!(first.as_mut().poll(&mut cx).is_ready());
        drop(first);
        for (sum, bytes) in others.into_iter().zip(&bytes[1..]) {
            let Poll::Ready(sum) = pin!(sum).poll(&mut cx) else { panic!("it was summed") };
            assert_eq!(sum, wanted(bytes));
        }
    }

    #[test]
    fn whoever_awaits_hashes_little_alone_where_threads_are_lent() {
        let sums = on_threads(2);
        let here = thread::current().id();
        for (len, parts) in [(0, 0), (1, 1), (PACE.here, 1), (PACE.here + 1, 1), (PACE.aside + 1, 2)] {
            // In a runtime with one thread, and without a runtime.
            let bytes = Bytes::from(vec![0; len]);
            let hash = || sums.hash(Vec::new(), &bytes, PACE, note);
            let runtime = Builder::new_current_thread().build().unwrap();
            for noted in [runtime.block_on(async { hash().await }), block_on(async { hash().await })] {
                assert_eq!((noted.iter().map(|part| part.0).sum::<usize>(), noted.len()), (len, parts));
                assert!(noted.iter().all(|part| (part.1 == here) == (len <= PACE.here)), "{len}");
            }
        }
    }

    #[test]
    fn a_slow_hash_holds_up_nobody_else_on_the_thread_that_awaits_it() {
        type Told = Arc<Mutex<mpsc::Receiver<()>>>;
        let (tell, told) = mpsc::channel();
        let told: Told = Arc::new(Mutex::new(told));
        let sums = on_threads(1);
        let slow = |told: &mut Told, _: &[u8]| {
            told.lock().unwrap().recv_timeout(Duration::from_secs(60)).expect("the other one goes on meanwhile");
        };
        let (much, little) = (Bytes::from(vec![0; PACE.here + 1]), Bytes::from_static(b"little"));
        let others = async {
            // Not before the slow task has begun to wait.
            tokio::task::yield_now().await;
            assert_eq!(sums.md5(&little, PACE).await, wanted(&little));
            tell.send(()).unwrap();
        };
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { futures::join!(sums.hash(told, &much, PACE, slow), others) });
    }

    #[test]
    fn a_runtime_that_is_gone_and_a_hash_that_panics_leave_nobody_waiting() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let handle = runtime.handle().clone();
        let sums = Sums::aside(2, move |work| drop(handle.spawn_blocking(work)));
        let bytes = object(9);
        assert_eq!(block_on(sums.md5(&bytes, PACE)), wanted(&bytes));
        let once =
            |panics: &mut bool, _: &[u8]| assert!(!std::mem::take(panics) || thread::current().name() == Some("it"));
        let it = thread::Builder::new().name("it".into());
        let bad = {
            let sums = Arc::clone(&sums);
            let bytes = bytes.clone();
            it.spawn(move || block_on(sums.hash(true, &bytes, PACE, once)))
        };
        assert!(!bad.unwrap().join().unwrap(), "taken here, where it does not panic");
        runtime.shutdown_background();
        assert_eq!(block_on(sums.md5(&bytes, PACE)), wanted(&bytes));
        assert!(is_idle(&sums));
    }

    /// `cargo test --release -p infeed-store --all-features what_another_thread_costs -- --ignored --nocapture`: the
    /// processor time of the awaiting thread, in µs per object, and the latency of a single object.
    #[test]
    #[cfg(target_os = "linux")]
    #[ignore = "a measurement that checks no promise: CONTRIBUTING, Measure, says how to run it"]
    fn what_another_thread_costs() {
        use std::io::Write;

        const COUNT: usize = 2000;
        fn here() -> f64 {
            let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
            text.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e3
        }
        let crc = |crc: &mut crc_fast::Digest, some: &[u8]| crc.update(some);
        let runtime = Builder::new_current_thread().build().unwrap();
        let handle = runtime.handle().clone();
        let aside = Sums::aside(2, move |work| drop(handle.spawn_blocking(work)));
        let pace = |here| Pace { here, aside: 16 << 20 };
        for length in [1, 4, 8, 16, 32, 64, 115, 256, 1024, 4096].map(|length| length << 10) {
            let bytes = Bytes::from(vec![7; length]);
            for (kind, count) in [("md5", COUNT), ("crc", COUNT)] {
                for (place, sums, pace) in [("here", &Arc::default(), pace(usize::MAX)), ("aside", &aside, pace(0))] {
                    let one = || async {
                        let began = std::time::Instant::now();
                        if kind == "md5" {
                            sums.md5(&bytes, pace).await;
                        } else {
                            sums.hash(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi), &bytes, pace, crc)
                                .await;
                        }
                        began.elapsed().as_secs_f64() * 1e6
                    };
                    let (together, mut alone) = runtime.block_on(async {
                        use futures::StreamExt;
                        let before = here();
                        futures::stream::iter((0..count).map(|_| one())).buffer_unordered(16).collect::<Vec<_>>().await;
                        let together = (here() - before) / count as f64;
                        let mut alone = Vec::new();
                        for _ in 0..200 {
                            alone.push(one().await);
                        }
                        (together, alone)
                    });
                    alone.sort_by(f64::total_cmp);
                    let (half, most) = (alone[100], alone[197]);
                    writeln!(
                        std::io::stderr(),
                        "{kind} {length} {place}: {together:.1} here, takes {half:.1}, 1 in 100 {most:.1}"
                    )
                    .unwrap();
                }
            }
        }
    }

    proptest! {
        /// A thread starts now, later or never, and the awaiting task is dropped or stays.
        #[test]
        fn every_hash_is_right_and_nothing_is_left(
            lengths in prop::collection::vec((prop_oneof![9 => 0_usize..200_000, 1 => LARGE..LARGE + 1000], any::<bool>()), 1..12),
            lent in prop::collection::vec(0_u8..3, 40),
            dropped in prop::collection::vec(prop::bool::weighted(0.2), 12),
            most in 1_usize..4,
        ) {
            let later = Arc::new(Mutex::new(Vec::<Box<dyn FnOnce() + Send>>::new()));
            let (kept, turns) = (Arc::clone(&later), Mutex::new(lent.into_iter().cycle()));
            let sums = Sums::aside(most, move |work| {
                match turns.lock().unwrap().next() {
                    Some(0) => drop(work),
                    Some(1) => work(),
                    _ => kept.lock().unwrap().push(work),
                }
            });
            let mut cx = Context::from_waker(Waker::noop());
            let mut all: Vec<_> = lengths.iter().map(|&(length, is_md5)| {
                let (sums, bytes) = (Arc::clone(&sums), Bytes::from(vec![length as u8; length]));
                async move {
                    let sum = if is_md5 {
                        sums.md5(&bytes, PACE).await
                    } else {
                        sums.hash(Md5::new(), &bytes, PACE, |md5, some| md5.update(some)).await.finalize().into()
                    };
                    (sum, wanted(&bytes))
                }
                .boxed()
            }).collect();
            for n in 0..10_000 {
                let turn = |sum: &mut BoxFuture<'_, (Sum, Sum)>| {
                    let done = sum.as_mut().poll(&mut cx);
                    if let Poll::Ready((sum, wanted)) = done {
                        assert_eq!(sum, wanted);
                    }
                    done.is_pending()
                };
                all.retain_mut(turn);
                if n == 0 {
                    let mut gone = dropped.iter();
                    all.retain(|_| !gone.next().unwrap());
                }
                prop_assert!(sums.lock().threads <= most);
                let work = later.lock().unwrap().pop();
                match work {
                    Some(work) => work(),
                    None if all.is_empty() => break,
                    None => {}
                }
            }
            prop_assert!(all.is_empty() && is_idle(&sums));
        }
    }
}
