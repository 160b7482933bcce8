//! Owned, disjoint rows of one buffer, which can be joined again; in host memory (page-locked or not) or on a GPU.
//!
//! ```text
//! Pool::take ─▶ Rows (the whole batch) ─split_to─▶ Rows │ Rows │ Rows    one for each job, sent to any thread
//!                                                    └──── join ────▶ Rows ─freeze─▶ Frozen (shared, read-only)
//!                                                                                      └ last clone dropped: back to the pool
//! ```
//!
//! A job *owns* its rows: if a stream is dropped in the middle of a batch, the memory under a running decoder or kernel
//! stays alive until that work is done. Rows on a GPU have an address instead of bytes; they return to the pool when
//! the streams that read them are done. A `Frozen` may also cover memory of another library, which gets it back when
//! the last clone is dropped.
//!
//! Rows of a pool in host memory get their buffer when they are first touched. So batches that wait for a thread hold
//! no memory, and the batches in work reuse a few buffers that are still in the processor's caches.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    fmt,
    ptr::NonNull,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use super::{
    buffer::{DeviceBuffer, GpuBuffers, PinnedBuffer},
    handles::{CudaEvent, CudaStream},
};
use crate::{
    error::{
        Error, ErrorKind, Result,
        setting::{BATCH_SIZE, PREFETCH},
    },
    types::Device,
};

/// Alignment of every buffer: a cache line, which AVX-512 loads and DLPack consumers expect.
pub const ALIGN: usize = 64;

/// The most bytes of one buffer: with the bytes added for alignment, at most `isize::MAX`, the longest that a slice may
/// be.
const MOST_BYTES: usize = isize::MAX as usize / ALIGN * ALIGN - ALIGN;

/// Bytes of `rows` rows, if one buffer can hold them.
fn bytes_of(rows: usize, row_bytes: usize) -> Result<usize> {
    rows.checked_mul(row_bytes).filter(|len| *len <= MOST_BYTES).ok_or_else(|| {
        Error::config(format!(
            "{rows} rows of {row_bytes} bytes are more than {MOST_BYTES} bytes, the most that one buffer can have"
        ))
        .with_hint(format!("lower {BATCH_SIZE}, or make the rows smaller"))
    })
}

/// One aligned allocation. Always initialised: zeroed when new, with the last owner's bytes when recycled.
struct Block {
    base: NonNull<u8>,
    /// Bytes from `base` to the first byte aligned to [`ALIGN`].
    skip: usize,
    layout: Layout,
    /// Whether it is a mapping of its own, not from the allocator.
    mapped: bool,
}

/// From this size on a block is a mapping of its own, which goes back to the system when it is freed. An allocator
/// would keep it: glibc raises its threshold for mapping to the size that was freed last, up to 32 MiB, and takes the
/// next blocks from heaps whose middle it never gives back (900 MB after 1,542 loaders; 12 MB with mappings).
const MAPPED: usize = 1 << 20;
/// From this size on pages of 2 MiB are requested, which some systems give only on request (`madvise`). The first touch
/// of 64 MiB took 11 ms instead of 26 ms, that of 4 MiB 0.1 ms instead of 1.5 ms; reading along rows and across them
/// was as fast (Linux 6.18, a VM).
const HUGE: usize = 2 << 20;

// SAFETY: a block owns plain bytes; `Rows` and `Frozen` control access to them.
unsafe impl Send for Block {}
// SAFETY: as above; `&Block` gives no access to the bytes by itself.
unsafe impl Sync for Block {}

impl Block {
    /// `None` if the system has no memory for it.
    fn zeroed(layout: Layout) -> Option<Self> {
        assert!(layout.size() >= ALIGN, "made by `Block::layout`");
        if cfg!(all(target_os = "linux", not(miri))) && layout.size() >= MAPPED {
            return Self::mapped(layout);
        }
        // SAFETY: the layout's size is not zero, as asserted above.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base)?;
        let skip = base.as_ptr().align_offset(ALIGN);
        assert!(skip <= ALIGN, "a byte pointer can always be aligned");
        Some(Self { base, skip, layout, mapped: false })
    }

    /// Fresh pages, which the kernel clears when they are touched.
    #[cfg(target_os = "linux")]
    fn mapped(layout: Layout) -> Option<Self> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses; it touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), layout.size(), protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return None;
        }
        if layout.size() >= HUGE {
            // SAFETY: the whole mapping that was just made. This is advice only: a refusal changes nothing.
            let _ = unsafe { libc::madvise(start, layout.size(), libc::MADV_HUGEPAGE) };
        }
        // Page alignment is larger than ALIGN.
        NonNull::new(start.cast()).map(|base| Self { base, skip: 0, layout, mapped: true })
    }

    #[cfg(not(target_os = "linux"))]
    fn mapped(_layout: Layout) -> Option<Self> {
        None
    }

    /// The layout to allocate for `len` bytes.
    fn layout(len: usize) -> Layout {
        assert!(len <= MOST_BYTES, "a length that `bytes_of` gave");
        // Aligned by hand. If more than 16 is requested, the allocator clears the pages itself, on this thread;
        // `calloc` returns untouched pages, which the decode threads fault in.
        Layout::from_size_align(len + ALIGN, 16).expect("at most isize::MAX bytes, by the bound above")
    }

    /// The first byte, aligned, of as many initialised bytes as were passed to [`layout`](Self::layout).
    fn start(&self) -> *mut u8 {
        // SAFETY: `skip` is at most ALIGN, and `layout` added ALIGN bytes to the length.
        unsafe { self.base.as_ptr().add(self.skip) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if self.mapped {
            // SAFETY: mapped in `mapped` with this length; no pointer into it is left, and it is unmapped once.
            let refused = unsafe { libc::munmap(self.base.as_ptr().cast(), self.layout.size()) } != 0;
            // The kernel may have to split a mapping that it merged, and fail because there are too many mappings.
            if refused {
                tracing::debug!(bytes = self.layout.size(), "the system did not take a buffer back");
            }
            return;
        }
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Host memory of another library.
struct Foreign {
    start: NonNull<u8>,
    /// Gives the memory back when dropped.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the bytes are not written while they are here (a condition of `Frozen::foreign`); the owner is `Send + Sync`.
unsafe impl Send for Foreign {}
// SAFETY: as above.
unsafe impl Sync for Foreign {}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Foreign")
    }
}

/// The memory of a buffer.
#[derive(Debug)]
enum Memory {
    Host(Block),
    Pinned(Box<dyn PinnedBuffer>),
    Device(Box<dyn DeviceBuffer>),
    Foreign(Foreign),
}

/// Where a pool allocates its buffers.
#[derive(Clone, Debug)]
enum BufferPlace {
    Host,
    /// In page-locked host memory, from which a GPU copies while the host continues.
    Pinned(Arc<dyn GpuBuffers>),
    Device(Arc<dyn GpuBuffers>),
}

impl Memory {
    fn new(place: &BufferPlace, len: usize) -> Result<Self> {
        Ok(match place {
            BufferPlace::Device(gpu) => Self::Device(gpu.device_buffer(len)?),
            BufferPlace::Pinned(gpu) => Self::Pinned(gpu.pinned_buffer(len)?),
            BufferPlace::Host => Self::Host(Block::zeroed(Block::layout(len)).ok_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("no memory for a buffer of {len} bytes"))
                    .with_hint(format!("lower {BATCH_SIZE} or {PREFETCH}, or free memory of the machine"))
            })?),
        })
    }

    fn is_free(&self) -> bool {
        match self {
            Self::Host(_) | Self::Foreign(_) => true,
            Self::Pinned(block) => block.is_free(),
            Self::Device(block) => block.is_free(),
        }
    }

    /// Waits until the memory may be written again.
    fn wait_until_free(&self) {
        match self {
            Self::Host(_) | Self::Foreign(_) => {}
            Self::Pinned(block) => block.wait_until_free(),
            Self::Device(block) => block.wait_until_free(),
        }
    }

    /// Whether it can never be determined that the memory is free.
    fn is_lost(&self) -> bool {
        match self {
            Self::Host(_) | Self::Foreign(_) => false,
            Self::Pinned(block) => block.is_lost(),
            Self::Device(block) => block.is_lost(),
        }
    }

    /// Called when no owner is left.
    fn retire(&self) {
        match self {
            Self::Host(_) | Self::Foreign(_) => {}
            Self::Pinned(block) => block.retire(),
            Self::Device(block) => block.retire(),
        }
    }
}

/// Keeps the buffers of finished batches for the next ones: fresh memory costs more than the writes into it.
///
/// The buffer that came back last is used first. Idle and lent buffers together stay within `most`; a buffer that comes
/// back above that number is freed.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    len: usize,
    most: AtomicUsize,
    place: BufferPlace,
    state: Mutex<PoolState>,
    /// Notified when a buffer comes back, or when a GPU has finished reading one that came back.
    returned: Notify,
}

impl PoolState {
    /// All buffers: idle, still read, and lent.
    fn buffers(&self) -> usize {
        self.idle.len() + self.still_read + self.made
    }

    /// Counts a take. Every [`TAKES`] takes, returns how many idle buffers none of them needed; 0 otherwise.
    fn spare(&mut self) -> usize {
        let idle = self.idle.len();
        self.least_idle = if self.takes == 0 { idle } else { self.least_idle.min(idle) };
        self.takes = (self.takes + 1) % TAKES;
        if self.takes == 0 { self.least_idle } else { 0 }
    }
}

/// A buffer that was not needed during this many takes is surplus.
const TAKES: u32 = 64;

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<Memory>,
    /// Buffers that came back and are held by a [`StillRead`]: they count as idle, but are not in `idle`.
    still_read: usize,
    /// Rows that are lent, with or without a buffer.
    lent: usize,
    /// How many of these have a buffer.
    made: usize,
    /// Takes since the surplus was computed, and the smallest number of idle buffers seen by one of them.
    takes: u32,
    least_idle: usize,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.layout.size())
    }
}

impl Pool {
    /// Host buffers of `rows` rows of `row_bytes`. The pool keeps at most `most` of them alive. Allocates nothing yet.
    ///
    /// # Errors
    /// `Config` if no buffer can be that long.
    #[inline]
    pub fn new(rows: usize, row_bytes: usize, most: usize) -> Result<Self> {
        Self::with(BufferPlace::Host, rows, row_bytes, most)
    }

    /// A pool in page-locked host memory, from which a GPU copies while the host continues. A buffer that was frozen
    /// and came back is written again only when all work that was submitted to `gpu` before is done.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); `Device` if the driver can't report when copies are done.
    #[inline]
    pub fn pinned(
        gpu: &(impl GpuBuffers + Clone + 'static),
        rows: usize,
        row_bytes: usize,
        most: usize,
    ) -> Result<Self> {
        gpu.check_marks()?;
        Self::with(BufferPlace::Pinned(Arc::new(gpu.clone())), rows, row_bytes, most.max(1))
    }

    /// A pool in device memory. It keeps at least one buffer.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    #[inline]
    pub fn on_device(
        gpu: &(impl GpuBuffers + Clone + 'static),
        rows: usize,
        row_bytes: usize,
        most: usize,
    ) -> Result<Self> {
        Self::with(BufferPlace::Device(Arc::new(gpu.clone())), rows, row_bytes, most.max(1))
    }

    fn with(place: BufferPlace, rows: usize, row_bytes: usize, most: usize) -> Result<Self> {
        let (len, most) = (bytes_of(rows, row_bytes)?, AtomicUsize::new(most));
        let (state, returned) = (Mutex::default(), Notify::new());
        Ok(Self { shared: Arc::new(PoolShared { len, most, place, state, returned }) })
    }

    /// Changes how many buffers the pool keeps alive. Surplus buffers in use are freed when they come back.
    #[inline]
    pub fn set_most(&self, most: usize) {
        self.shared.most.store(most, Ordering::Relaxed);
        let surplus = self.surplus(&mut self.lock(), usize::MAX);
        drop(surplus);
    }

    /// Takes out surplus idle buffers, at most `spare`. The caller drops them after releasing the lock.
    fn surplus(&self, state: &mut PoolState, spare: usize) -> Vec<Memory> {
        let too_many = state.buffers().saturating_sub(self.most()).min(state.idle.len()).min(spare);
        if too_many == 0 {
            return Vec::new();
        }
        match self.shared.place {
            // The buffers that were used least recently are in front.
            BufferPlace::Host | BufferPlace::Device(_) => state.idle.drain(..too_many).collect(),
            // Freeing a buffer from which a GPU still copies would wait.
            BufferPlace::Pinned(_) => {
                let mut left = too_many;
                let surplus = state.idle.extract_if(.., |memory| {
                    let goes = left > 0 && memory.is_free();
                    left -= usize::from(goes);
                    goes
                });
                surplus.collect()
            }
        }
    }

    /// Whether a buffer that came back stays. Page-locked buffers always stay at first. They are freed later, once many
    /// takes did not need them, because locking and unlocking memory is slow and may wait for the GPU. So a trainer
    /// that holds several batches does not pay for it repeatedly, nor on its own thread.
    fn keeps(&self, state: &PoolState, memory: &Memory) -> bool {
        let few = state.buffers() < self.most() || matches!(memory, Memory::Pinned(_));
        few && !memory.is_lost()
    }

    fn most(&self) -> usize {
        self.shared.most.load(Ordering::Relaxed)
    }

    /// Bytes of one buffer.
    #[must_use]
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.shared.len
    }

    /// Bytes of idle buffers.
    #[must_use]
    #[inline]
    pub fn idle_bytes(&self) -> usize {
        let state = self.lock();
        (state.idle.len() + state.still_read) * self.shared.len
    }

    /// How many buffers are lent as rows, whether or not their memory was touched.
    #[must_use]
    #[inline]
    pub fn lent(&self) -> usize {
        self.lock().lent
    }

    /// Allocates until `buffers` are idle or lent.
    ///
    /// # Errors
    /// `OutOfMemory` if the system has no more. Buffers that were allocated before stay.
    #[inline]
    pub fn fill(&self, buffers: usize) -> Result<()> {
        loop {
            if self.lock().buffers() >= buffers {
                return Ok(());
            }
            let memory = Memory::new(&self.shared.place, self.shared.len)?;
            self.lock().idle.push(memory);
        }
    }

    /// One buffer as rows of `row_bytes`; bytes at its end may be left unused. It is recycled if one is idle (with its
    /// old bytes), otherwise new. New host memory is zero. In host memory the rows are returned at once, and the buffer
    /// is taken when they are first touched.
    ///
    /// `None` if all buffers that came back are still read by a GPU and there are `most` already. Try again when one
    /// was [`returned`](Self::returned). If all buffers are lent, a new one is made, so that a caller who keeps batches
    /// does not stall the stream.
    ///
    /// # Errors
    /// `OutOfMemory` if the GPU has no more, `Device` if it failed.
    ///
    /// # Panics
    /// When `rows * row_bytes` is more than the pool's buffer length.
    pub fn try_take(&self, rows: usize, row_bytes: usize) -> Result<Option<Rows>> {
        let fits = rows.checked_mul(row_bytes).is_some_and(|bytes| bytes <= self.shared.len);
        assert!(fits, "the pool's buffers are shorter");
        let memory = match self.shared.place {
            BufferPlace::Host => {
                self.lock().lent += 1;
                OnceLock::new()
            }
            BufferPlace::Pinned(_) | BufferPlace::Device(_) => match self.for_gpu()? {
                Some(memory) => OnceLock::from(Ok(memory)),
                None => return Ok(None),
            },
        };
        let home = Home { memory, pool: Some(self.clone()), writers: AtomicUsize::new(0) };
        Ok(Some(Rows { home: Arc::new(home), offset: 0, rows, row_bytes }))
    }

    /// A buffer for rows in page-locked or GPU memory. It is allocated before the rows are returned, so that a lack of
    /// memory is reported.
    fn for_gpu(&self) -> Result<Option<Memory>> {
        let (idle, surplus) = {
            let mut state = self.lock();
            let free = state.idle.iter().rposition(Memory::is_free);
            let comes_back = state.idle.len() + state.still_read > 0;
            if free.is_none() && comes_back && state.buffers() >= self.most() {
                return Ok(None);
            }
            // Counted before the allocation below, which may take a while.
            state.lent += 1;
            state.made += 1;
            let idle = free.map(|at| state.idle.swap_remove(at));
            let spare = state.spare();
            (idle, self.surplus(&mut state, spare))
        };
        drop(surplus);
        if idle.is_some() {
            return Ok(idle);
        }
        Memory::new(&self.shared.place, self.shared.len).map(Some).or_else(|error| {
            let mut state = self.lock();
            state.lent -= 1;
            state.made -= 1;
            if state.idle.len() + state.still_read == 0 { Err(error) } else { Ok(None) }
        })
    }

    /// A buffer for rows that are touched for the first time.
    fn on_host(&self) -> Result<Memory> {
        let idle = {
            let mut state = self.lock();
            state.made += 1;
            state.idle.pop()
        };
        let memory = idle.map_or_else(|| Memory::new(&BufferPlace::Host, self.shared.len), Ok);
        memory.inspect_err(|_| self.lock().made -= 1)
    }

    /// [`try_take`](Self::try_take) for a pool in pageable host memory, which always has a buffer.
    ///
    /// # Panics
    /// If `rows * row_bytes` is more than the pool's buffer length, or the pool is on a GPU or page-locked.
    #[must_use]
    #[inline]
    pub fn take(&self, rows: usize, row_bytes: usize) -> Rows {
        assert!(matches!(self.shared.place, BufferPlace::Host), "a pool for a GPU may have to wait");
        let taken = self.try_take(rows, row_bytes);
        taken.ok().flatten().expect("host memory is always free when it is idle")
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        // The counters are adjusted after each push and pop, so they are right even after a panic elsewhere.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes back lent rows; `memory` is `None` if they were never touched.
    fn put_back(&self, memory: Option<Memory>) {
        let surplus = {
            let mut state = self.lock();
            state.lent -= 1;
            let Some(memory) = memory else { return };
            state.made -= 1;
            // Lent buffers count, since they come back too: so the whole pool stays within `most`.
            if self.keeps(&state, &memory) {
                state.idle.push(memory);
                None
            } else {
                Some(memory)
            }
        };
        drop(surplus);
        self.shared.returned.notify_waiters();
    }

    /// Completes when a buffer comes back after this call, or when a GPU has finished reading one that came back.
    #[inline]
    pub fn returned(&self) -> impl Future<Output = ()> + Send + use<'_> {
        // It receives notifications from now on, polled or not.
        self.shared.returned.notified()
    }

    /// Of the buffers that came back and that a GPU still reads, the one that came back first, for a thread to wait
    /// for. Each is returned once.
    #[must_use]
    #[inline]
    pub fn still_read(&self) -> Option<StillRead> {
        let mut state = self.lock();
        let first = state.idle.iter().position(|memory| !memory.is_free())?;
        let memory = state.idle.remove(first);
        state.still_read += 1;
        Some(StillRead { memory: Some(memory), pool: self.clone() })
    }

    /// Whether the pool holds a buffer that came back, free or not.
    #[must_use]
    #[inline]
    pub fn has_idle(&self) -> bool {
        !self.lock().idle.is_empty()
    }
}

/// A buffer that came back while a GPU still reads it. Returns to its pool when dropped.
#[derive(Debug)]
#[must_use = "it is there for somebody to wait"]
pub struct StillRead {
    memory: Option<Memory>,
    pool: Pool,
}

impl StillRead {
    /// Blocks this thread until the GPU has read the buffer, then returns it to the pool.
    #[inline]
    pub fn wait(self) {
        self.memory.iter().for_each(Memory::wait_until_free);
    }
}

impl Drop for StillRead {
    fn drop(&mut self) {
        let surplus = {
            let mut state = self.pool.lock();
            state.still_read -= 1;
            if self.memory.as_ref().is_some_and(|memory| self.pool.keeps(&state, memory)) {
                // To the front, where the buffers that were used least recently are.
                state.idle.splice(..0, self.memory.take());
            }
            self.memory.take()
        };
        drop(surplus);
        self.pool.shared.returned.notify_waiters();
    }
}

/// A buffer and the pool to which it returns.
#[derive(Debug)]
struct Home {
    /// Empty until the rows are touched. Filled from the start on a GPU and without a pool. An error stays: all other
    /// rows of the buffer get the same one.
    memory: OnceLock<Result<Memory>>,
    pool: Option<Pool>,
    /// Number of [`Writing`] guards.
    writers: AtomicUsize,
}

/// A GPU may be writing rows of a buffer: the buffer is kept alive, and its rows can't be frozen, copied or cleared.
#[derive(Debug)]
pub struct Writing {
    home: Arc<Home>,
}

impl Writing {
    fn new(home: &Arc<Home>) -> Self {
        // Relaxed: any thread that reads the counter gets the rows from this thread later.
        home.writers.fetch_add(1, Ordering::Relaxed);
        Self { home: Arc::clone(home) }
    }

    /// Whether it guards the buffer of these rows.
    #[must_use]
    #[inline]
    pub fn is_of(&self, rows: &Rows) -> bool {
        Arc::ptr_eq(&self.home, &rows.home)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // Release, paired with `Home::is_written`: the host has seen the end of the work before anything is done with
        // the rows.
        self.home.writers.fetch_sub(1, Ordering::Release);
    }
}

impl Home {
    fn of(memory: Memory) -> Self {
        Self { memory: OnceLock::from(Ok(memory)), pool: None, writers: AtomicUsize::new(0) }
    }

    fn is_written(&self) -> bool {
        self.writers.load(Ordering::Acquire) > 0
    }

    /// The memory, allocated now if it was not touched before.
    fn claim(&self) -> Result<&Memory> {
        let first = || self.pool.as_ref().expect("without a pool it is there from the start").on_host();
        self.memory.get_or_init(first).as_ref().map_err(Error::clone)
    }

    /// Whether it is host memory of this crate, or will be when it is touched.
    fn is_host(&self) -> bool {
        matches!(self.memory.get(), None | Some(Ok(Memory::Host(_) | Memory::Pinned(_))))
    }

    /// First byte of host memory.
    fn start(&self) -> *mut u8 {
        match self.claim() {
            Ok(Memory::Host(block)) => block.start(),
            Ok(Memory::Pinned(block)) => block.start(),
            Ok(Memory::Foreign(foreign)) => foreign.start.as_ptr(),
            Ok(Memory::Device(block)) => {
                panic!("rows on cuda:{} have no bytes in host memory", block.index())
            }
            Err(error) => panic!("rows were touched that have no memory: {error}"),
        }
    }

    fn device(&self) -> Option<&dyn DeviceBuffer> {
        match self.memory.get() {
            None | Some(Ok(Memory::Host(_) | Memory::Pinned(_) | Memory::Foreign(_)) | Err(_)) => None,
            Some(Ok(Memory::Device(block))) => Some(&**block),
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Memory that was never allocated is not returned.
        let memory = self.memory.take().and_then(Result::ok);
        memory.iter().for_each(Memory::retire);
        if let Some(pool) = &self.pool {
            pool.put_back(memory);
        }
    }
}

/// Exclusive rows of a buffer. Other threads may own the neighbouring rows.
///
/// All constructors keep `offset + rows * row_bytes` within the buffer. Since a buffer has at most `MOST_BYTES`, no sum
/// or product of these overflows.
///
/// ```
/// use infeed::spi::Rows;
///
/// let mut rest = Rows::zeroed(3, 4)?; // Three rows of four bytes.
/// let mut first = rest.split_to(1); // For another thread.
/// first.row_mut(0).fill(7);
/// rest.row_mut(1).fill(9);
/// let all = first.join(rest).expect("they are neighbours");
/// assert_eq!(all.bytes(), [7, 7, 7, 7, 0, 0, 0, 0, 9, 9, 9, 9]);
/// # Ok::<(), infeed::Error>(())
/// ```
pub struct Rows {
    home: Arc<Home>,
    offset: usize,
    rows: usize,
    row_bytes: usize,
}

impl Rows {
    /// Zeroed rows in a buffer of their own, in host memory.
    ///
    /// # Errors
    /// `Config` if no buffer can be that long, `OutOfMemory` if there is no memory for it.
    #[inline]
    pub fn zeroed(rows: usize, row_bytes: usize) -> Result<Self> {
        let memory = Memory::new(&BufferPlace::Host, bytes_of(rows, row_bytes)?)?;
        Ok(Self { home: Arc::new(Home::of(memory)), offset: 0, rows, row_bytes })
    }

    /// Where the rows are.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Device {
        self.home.device().map_or(Device::Cpu, |block| Device::Cuda(block.index()))
    }

    /// Address of a row on a GPU, for work that writes it. The code that starts the work must hold
    /// [`writing`](Self::writing) until the host has seen the work's end.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn on_device(&self, row: usize) -> Option<u64> {
        let block = self.home.device()?;
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let at = self.offset + row * self.row_bytes;
        assert!(at + self.row_bytes <= block.len(), "rows lie within their buffer");
        Some(block.address() + at as u64)
    }

    /// Marks that a GPU writes rows of this buffer, until the guard is dropped.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn writing(&self) -> Writing {
        Writing::new(&self.home)
    }

    /// Fails while a GPU still writes rows of this buffer, since the host must not read or write them then.
    ///
    /// # Errors
    /// `Internal` in that case.
    #[doc(hidden)]
    #[inline]
    pub fn idle(&self) -> Result<()> {
        if self.home.is_written() {
            let what = "rows are used while a GPU still writes them";
            return Err(Error::new(ErrorKind::Internal, what).with_hint("please report this"));
        }
        Ok(())
    }

    /// Number of rows.
    #[must_use]
    #[inline]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of one row.
    #[must_use]
    #[inline]
    pub const fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Splits off the first `count` rows as a separate handle.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn split_to(&mut self, count: usize) -> Self {
        assert!(count <= self.rows, "{count} of {} rows", self.rows);
        let front = Self { home: Arc::clone(&self.home), offset: self.offset, rows: count, row_bytes: self.row_bytes };
        self.offset += count * self.row_bytes;
        self.rows -= count;
        front
    }

    /// Joins two neighbours again. If they are not neighbours in one buffer, both are returned.
    ///
    /// # Errors
    /// `(self, next)`, unchanged, when `next` does not start where `self` ends.
    #[inline]
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        let touches = self.offset + self.rows * self.row_bytes == next.offset;
        if Arc::ptr_eq(&self.home, &next.home) && touches && self.row_bytes == next.row_bytes {
            Ok(Self { rows: self.rows + next.rows, ..self })
        } else {
            Err((self, next))
        }
    }

    /// Bytes of all rows together.
    #[must_use]
    #[inline]
    pub const fn len_bytes(&self) -> usize {
        self.rows * self.row_bytes
    }

    /// Allocates the memory of the whole buffer, unless its rows were touched already: in host memory it is allocated
    /// only then. After this call the methods below can't fail for lack of memory.
    ///
    /// # Errors
    /// `OutOfMemory` if the system has no more; all rows of the buffer get the same result.
    #[inline]
    pub fn claim(&self) -> Result<()> {
        self.home.claim().map(drop)
    }

    /// All bytes.
    ///
    /// # Panics
    /// If the rows are on a GPU (the same for the methods below that return bytes), or if there is no memory for them;
    /// [`claim`](Self::claim) detects that beforehand.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: inside the block by construction (`split_to` and `join` keep offset + rows * row_bytes within it).
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: initialised, and no other handle covers these bytes: `split_to` gives each byte to one handle.
        unsafe { std::slice::from_raw_parts(start, self.rows * self.row_bytes) }
    }

    /// All bytes, for writing.
    ///
    /// # Panics
    /// If the rows are on a GPU.
    #[must_use]
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the block, as in `bytes`.
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: as in `bytes`; `&mut self` makes this the only borrow of the handle's bytes.
        unsafe { std::slice::from_raw_parts_mut(start, self.rows * self.row_bytes) }
    }

    /// One row, for writing.
    ///
    /// # Panics
    /// If `row` is out of range, or the rows are on a GPU.
    #[must_use]
    #[inline]
    pub fn row_mut(&mut self, row: usize) -> &mut [u8] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        let bytes = self.row_bytes;
        &mut self.bytes_mut()[row * bytes..(row + 1) * bytes]
    }

    /// Copies row `from` over row `to`. On a GPU, waits for the copy.
    ///
    /// # Errors
    /// `Device` if the GPU failed, `Internal` if a launch still writes rows of this buffer.
    ///
    /// # Panics
    /// If one is out of range.
    #[inline]
    pub fn copy_row(&mut self, from: usize, to: usize) -> Result<()> {
        self.idle()?;
        assert!(from < self.rows && to < self.rows, "rows {from} and {to} of {}", self.rows);
        let bytes = self.row_bytes;
        match self.home.device() {
            _ if from == to => {}
            Some(block) => block.copy_within(self.offset + from * bytes, self.offset + to * bytes, bytes)?,
            None => self.bytes_mut().copy_within(from * bytes..(from + 1) * bytes, to * bytes),
        }
        Ok(())
    }

    /// Sets rows `from..` to zero. On a GPU, waits until that is done.
    ///
    /// # Errors
    /// `Device` if the GPU failed, `Internal` if a launch still writes rows of this buffer.
    ///
    /// # Panics
    /// If `from` is out of range.
    #[inline]
    pub fn clear_from(&mut self, from: usize) -> Result<()> {
        self.idle()?;
        assert!(from <= self.rows, "row {from} of {}", self.rows);
        let at = from * self.row_bytes;
        match self.home.device() {
            Some(block) => block.clear(self.offset + at, self.len_bytes() - at)?,
            None => self.bytes_mut()[at..].fill(0),
        }
        Ok(())
    }

    /// Copies `rows`, which are in host memory, into these rows of a pool for a GPU. On a GPU, waits for the copy.
    ///
    /// # Errors
    /// `Device` if the GPU failed, `Internal` if a launch still writes rows of this buffer.
    ///
    /// # Panics
    /// If the lengths differ.
    #[inline]
    pub fn upload(&mut self, rows: &Self) -> Result<()> {
        self.idle()?;
        assert_eq!(self.len_bytes(), rows.len_bytes(), "as many rows of the same length");
        match self.home.device() {
            Some(block) => block.upload(self.offset, rows.bytes())?,
            None => self.bytes_mut().copy_from_slice(rows.bytes()),
        }
        Ok(())
    }

    /// Makes the rows read-only and shareable. Free.
    ///
    /// # Panics
    /// If a launch still writes rows of this buffer and its end was not waited for.
    #[must_use]
    #[inline]
    pub fn freeze(self) -> Frozen {
        assert!(!self.home.is_written(), "rows are handed on while a GPU still writes them");
        if let Some(Ok(Memory::Pinned(block))) = self.home.memory.get() {
            block.lend();
        }
        Frozen { len: self.rows * self.row_bytes, offset: self.offset, home: self.home }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} x {} bytes)", self.rows, self.row_bytes)
    }
}

/// Finished rows: read-only, cheap to clone. The buffer returns to its pool when the last clone is dropped.
#[derive(Clone)]
pub struct Frozen {
    home: Arc<Home>,
    offset: usize,
    len: usize,
}

impl Frozen {
    /// Host memory of another library, which gets it back when the last clone is dropped and with it `owner`.
    ///
    /// # Safety
    /// `len` initialised bytes begin at `start`, at most `isize::MAX`. They stay valid, and no code writes them, until
    /// `owner` is dropped.
    #[must_use]
    pub unsafe fn foreign(start: NonNull<u8>, len: usize, owner: Box<dyn Send + Sync>) -> Self {
        let memory = Memory::Foreign(Foreign { start, _owner: owner });
        Self { home: Arc::new(Home::of(memory)), offset: 0, len }
    }

    /// GPU memory lent by another library, wrapped by infeed's driver.
    #[must_use]
    #[inline]
    pub fn lent(memory: Box<dyn DeviceBuffer>) -> Self {
        let len = memory.len();
        Self { home: Arc::new(Home::of(Memory::Device(memory))), offset: 0, len }
    }

    /// The bytes; `None` on a GPU. The first is aligned to [`ALIGN`], unless rows were split off before or the memory
    /// is another library's.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> Option<&[u8]> {
        if self.home.device().is_some() {
            return None;
        }
        // SAFETY: inside the block, as in `Rows::bytes`.
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: initialised; made from the only `Rows` over these bytes, so they can't be written any more.
        Some(unsafe { std::slice::from_raw_parts(start, self.len) })
    }

    /// All bytes as one row that may be written. Fails if another handle to the buffer exists or the memory is not host
    /// memory of this crate.
    ///
    /// # Errors
    /// The value itself, unchanged.
    #[inline]
    pub fn into_rows(mut self) -> std::result::Result<Rows, Self> {
        let ours = Arc::get_mut(&mut self.home).is_some_and(|home| home.is_host());
        if !ours {
            return Err(self);
        }
        let Self { home, offset, len } = self;
        Ok(Rows { home, offset, rows: 1, row_bytes: len })
    }

    /// Number of bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes are.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Device {
        self.home.device().map_or(Device::Cpu, |block| Device::Cuda(block.index()))
    }

    /// Whether it is page-locked host memory of infeed.
    #[must_use]
    #[inline]
    pub fn is_pinned(&self) -> bool {
        matches!(self.home.memory.get(), Some(Ok(Memory::Pinned(_))))
    }

    /// Address of the first byte on a GPU, for work on `stream`. The memory is reused only after that work.
    #[must_use]
    #[inline]
    pub fn address_for(&self, stream: CudaStream) -> Option<u64> {
        let block = self.home.device()?;
        block.read_by(stream);
        Some(block.address() + self.offset as u64)
    }

    /// The memory is reused only after `event` has passed. Does nothing for host memory.
    ///
    /// # Errors
    /// `Device` if the event is refused.
    #[inline]
    pub fn release_after(&self, event: CudaEvent) -> Result<()> {
        self.home.device().map_or(Ok(()), |block| block.release_after(event))
    }

    /// Copies all bytes to `out`, and waits.
    ///
    /// # Errors
    /// `Device` if the GPU failed.
    ///
    /// # Panics
    /// If `out` has another length.
    #[inline]
    pub fn download(&self, out: &mut [u8]) -> Result<()> {
        assert_eq!(out.len(), self.len, "as many bytes");
        match (self.home.device(), self.bytes()) {
            (Some(block), _) => block.download(self.offset, out)?,
            (None, Some(bytes)) => out.copy_from_slice(bytes),
            (None, None) => {}
        }
        Ok(())
    }

    /// The first `len` bytes.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[inline]
    pub fn prefix(&self, len: usize) -> Self {
        assert!(len <= self.len);
        Self { len, ..self.clone() }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frozen({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frozen_rows_are_written_again_by_a_sole_owner_of_our_memory() {
        let pool = Pool::new(4, 8, 1).unwrap();
        let mut rows = pool.take(4, 8);
        rows.row_mut(1).fill(3);
        let mut cut = rows.split_to(3);
        let frozen = cut.split_to(2).freeze();
        // Other handles cover other rows of the buffer.
        let frozen = frozen.into_rows().unwrap_err();
        drop((rows, cut));
        let mut again = frozen.into_rows().unwrap();
        assert_eq!((again.rows(), again.row_bytes(), again.bytes()[8]), (1, 16, 3));
        again.bytes_mut().fill(5);
        drop(again.freeze());
        assert_eq!((pool.lent(), pool.idle_bytes()), (0, 32), "it went back");
        // Memory of another library may be shared and read-only.
        static WORDS: [u64; 2] = [0; 2];
        let start = NonNull::from(&WORDS).cast();
        // SAFETY: sixteen bytes that live forever and are never written.
        let foreign = unsafe { Frozen::foreign(start, 16, Box::new(())) };
        assert_eq!(foreign.into_rows().unwrap_err().len(), 16);
    }

    #[test]
    fn rows_are_written_by_many_threads_and_joined_without_a_copy() {
        let pool = Pool::new(8, 16, 2).unwrap();
        let mut rest = pool.take(8, 16);
        let start = rest.bytes().as_ptr();
        let parts: Vec<Rows> = (0..4).map(|_| rest.split_to(2)).collect();
        let parts: Vec<Rows> = std::thread::scope(|scope| {
            let write = |(n, mut part): (usize, Rows)| {
                scope.spawn(move || {
                    part.row_mut(0).fill(2 * n as u8);
                    part.row_mut(1).fill(2 * n as u8 + 1);
                    part
                })
            };
            let threads: Vec<_> = parts.into_iter().enumerate().map(write).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let whole = parts.into_iter().reduce(|a, b| a.join(b).unwrap()).unwrap();
        assert_eq!(whole.bytes().as_ptr(), start);
        assert!(whole.bytes().chunks(16).enumerate().all(|(n, row)| row.iter().all(|b| *b as usize == n)));
    }

    #[test]
    fn only_neighbours_join() {
        let (mut a, b) = (Rows::zeroed(4, 8).unwrap(), Rows::zeroed(4, 8).unwrap());
        let front = a.split_to(2);
        assert!(front.join(b).is_err());
    }

    #[test]
    fn a_buffer_returns_to_the_pool_with_its_last_owner() {
        let pool = Pool::new(1, 64, 1).unwrap();
        let mut rows = pool.take(1, 64);
        let mut part = rows.split_to(1);
        drop(rows);
        part.bytes_mut().fill(7);
        assert_eq!(pool.idle_bytes(), 0);
        let frozen = part.freeze();
        let clone = frozen.clone();
        drop(frozen);
        assert_eq!(pool.idle_bytes(), 0);
        drop(clone);
        assert_eq!(pool.idle_bytes(), 64);
    }

    #[test]
    fn a_pool_keeps_no_more_than_its_number() {
        let pool = Pool::new(1, 64, 2).unwrap();
        let lent: Vec<_> = (0..5).map(|_| pool.take(1, 64)).collect();
        assert!(lent.iter().all(|rows| rows.bytes().len() == 64));
        drop(lent);
        assert_eq!(pool.idle_bytes(), 128);
    }

    #[test]
    fn rows_that_nobody_touched_hold_no_buffer() {
        let pool = Pool::new(1, 64, 3).unwrap();
        let first = pool.take(1, 64).bytes().as_ptr();
        assert_eq!(pool.idle_bytes(), 64);
        let mut waiting: Vec<Rows> = (0..3).map(|_| pool.take(1, 64)).collect();
        assert_eq!((pool.lent(), pool.idle_bytes()), (3, 64));
        // One after another through the same memory.
        for mut rows in waiting.drain(..) {
            assert_eq!(rows.bytes_mut().as_ptr(), first);
            drop(rows.freeze());
        }
        assert_eq!((pool.lent(), pool.idle_bytes()), (0, 64));
    }

    #[test]
    fn parts_touched_by_two_threads_at_once_lie_in_one_buffer() {
        for _ in 0..200 {
            let pool = Pool::new(2, 16, 1).unwrap();
            let mut back = pool.take(2, 16);
            let front = back.split_to(1);
            let write = |mut rows: Rows, value| {
                rows.bytes_mut().fill(value);
                rows
            };
            let (front, back) = std::thread::scope(|scope| {
                let front = scope.spawn(|| write(front, 1));
                let back = write(back, 2);
                (front.join().unwrap(), back)
            });
            let whole = front.join(back).unwrap();
            assert_eq!(whole.bytes(), [[1; 16], [2; 16]].concat());
            drop(whole);
            assert_eq!(pool.idle_bytes(), 32);
        }
    }

    #[test]
    fn a_smaller_number_frees_idle_buffers_at_once_and_others_when_they_come_back() {
        let pool = Pool::new(1, 64, 4).unwrap();
        let touched = || {
            let mut rows = pool.take(1, 64);
            rows.bytes_mut().fill(0);
            rows
        };
        let lent: Vec<Rows> = (0..4).map(|_| touched()).collect();
        let kept: Vec<Rows> = lent.into_iter().skip(2).collect();
        assert_eq!(pool.idle_bytes(), 128);
        pool.set_most(3);
        assert_eq!(pool.idle_bytes(), 64);
        pool.set_most(1);
        assert_eq!(pool.idle_bytes(), 0);
        drop(kept);
        assert_eq!(pool.idle_bytes(), 64);
        pool.set_most(0);
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn rows_under_work_are_refused_until_its_end_was_seen() {
        let mut rows = Rows::zeroed(4, 8).unwrap();
        let front = rows.split_to(2);
        let writing = front.writing();
        assert!(writing.is_of(&rows) && writing.is_of(&front));
        // The rest of the buffer too: a launch may write any of it.
        assert_eq!(rows.copy_row(0, 1).unwrap_err().kind(), ErrorKind::Internal);
        assert!(rows.clear_from(0).unwrap_err().to_string().contains("still writes"));
        let early = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| front.freeze()));
        assert!(early.is_err(), "frozen under work");
        drop(writing);
        rows.copy_row(0, 1).unwrap();
        assert_eq!(rows.freeze().len(), 16);
    }

    #[test]
    fn rows_that_no_memory_can_hold_are_refused() {
        // Products and sums that would be small after overflow, and some that are slightly too large.
        let most = isize::MAX as usize;
        let wrapping = [(1 << 33, 1 << 31), (usize::MAX, 2), (2, most), (1 << 32, 1 << 32)];
        let large = [(1, usize::MAX), (1, most + 1), (1, most), (1, most - 15), (1, MOST_BYTES + 1)];
        for (rows, bytes) in wrapping.into_iter().chain(large) {
            for error in [Rows::zeroed(rows, bytes).unwrap_err(), Pool::new(rows, bytes, 1).unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Config, "{error}");
                let said = error.to_string();
                assert!(
                    said.contains(&format!("{rows} rows of {bytes} bytes")) && said.contains("batch_size"),
                    "{said}"
                );
            }
        }
        // A valid length that no machine has: no abort, and no rows are returned.
        let error = Rows::zeroed(1, MOST_BYTES).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        let pool = Pool::new(1, MOST_BYTES, 1).unwrap();
        assert_eq!(pool.fill(1).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!((pool.idle_bytes(), pool.lent()), (0, 0));
    }

    #[test]
    fn rows_without_memory_say_so_and_cost_the_pool_nothing() {
        let pool = Pool::new(2, MOST_BYTES / 2, 2).unwrap();
        let mut rows = pool.take(2, MOST_BYTES / 2);
        let front = rows.split_to(1);
        for rows in [&front, &rows, &front] {
            assert_eq!(rows.claim().unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
        assert_eq!(pool.lent(), 1);
        drop((front, rows));
        assert_eq!((pool.lent(), pool.idle_bytes(), pool.lock().buffers()), (0, 0, 0));
        // The next batch tries again.
        assert!(pool.take(2, MOST_BYTES / 2).claim().is_err());
        let small = Pool::new(2, 8, 2).unwrap();
        small.take(2, 8).claim().unwrap();
        assert_eq!(small.idle_bytes(), 16);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn what_is_freed_is_gone_whatever_was_freed_before() {
        let resident = || crate::process::usage().resident.expect("Linux tells");
        // 24 MiB, below the 32 MiB to which glibc raises its threshold; a small block after each keeps a heap from
        // shrinking.
        let round = || {
            let blocks: Vec<(Rows, Vec<u8>)> = (0..8)
                .map(|n| {
                    let mut rows = Rows::zeroed(24, 1 << 20).unwrap();
                    assert!(rows.bytes().iter().step_by(4096).all(|byte| *byte == 0), "fresh memory is zero");
                    rows.bytes_mut().fill(1);
                    (rows, vec![n; 100_000])
                })
                .collect();
            blocks.into_iter().map(|(_, small)| small).collect::<Vec<_>>()
        };
        let before = resident();
        let kept: Vec<_> = (0..4).map(|_| round()).collect();
        let after = resident();
        // Other tests run at the same time.
        assert!(after < before + (96 << 20), "{} MiB stay", (after - before) >> 20);
        drop(kept);
    }

    #[test]
    #[should_panic(expected = "buffers are shorter")]
    fn a_pool_does_not_lend_rows_whose_product_is_its_length_by_wrapping() {
        let _ = Pool::new(1, 0, 1).unwrap().try_take(1 << 33, 1 << 31);
    }

    #[test]
    #[should_panic(expected = "row 2305843009213693952 of 4")]
    fn a_row_that_lies_within_by_wrapping_is_none() {
        let _ = Rows::zeroed(4, 8).unwrap().row_mut(1 << 61);
    }

    #[test]
    fn buffers_are_aligned_even_when_empty() {
        for (rows, bytes) in [(0, 8), (3, 0), (1, 1), (4, 1 << 20)] {
            assert_eq!(Rows::zeroed(rows, bytes).unwrap().bytes().as_ptr() as usize % ALIGN, 0);
        }
    }
}
