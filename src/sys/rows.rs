//! Owned, disjoint, rejoinable rows of one host buffer.
//!
//! ```text
//! Pool::take ─▶ Rows (the whole batch) ─split_to─▶ Rows │ Rows │ Rows    one for each job, sent to any thread
//!                                                    └──── join ────▶ Rows ─freeze─▶ Frozen (shared, read-only)
//!                                                                                      └ last clone dropped: back to the pool
//! ```
//!
//! A job *owns* its rows: when a stream is dropped in the middle of a batch, memory under a running decoder stays
//! alive until the decoder is done with it.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

/// Start of every buffer: a cache line, and what AVX-512 loads and DLPack consumers expect.
pub const ALIGN: usize = 64;

/// One aligned allocation. Always initialised: zeroed when new, the last owner's bytes when recycled.
struct Block {
    base: NonNull<u8>,
    /// From `base` to the first byte aligned to [`ALIGN`].
    skip: usize,
    layout: Layout,
}

// SAFETY: a block owns plain bytes; who may touch which of them is decided by `Rows` and `Frozen`.
unsafe impl Send for Block {}
// SAFETY: as above; `&Block` gives no access to the bytes by itself.
unsafe impl Sync for Block {}

impl Block {
    fn zeroed(len: usize) -> Self {
        // Aligned by hand: asking the allocator for more than 16 would make it clear the pages itself, on this
        // thread, where `calloc` hands out untouched ones that the decoding threads fault in.
        let layout = Layout::from_size_align(len + ALIGN, 16).expect("a batch is smaller than isize::MAX bytes");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        let skip = base.as_ptr().align_offset(ALIGN);
        assert!(skip <= ALIGN, "a byte pointer can always be aligned");
        Self { base, skip, layout }
    }

    fn start(&self) -> *mut u8 {
        // SAFETY: `skip` is at most ALIGN, and ALIGN bytes more than the length were allocated.
        unsafe { self.base.as_ptr().add(self.skip) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Keeps the buffers of finished batches for the next ones: fresh pages cost more than the writes into them.
///
/// Idle and lent buffers together stay within `most`; a buffer that comes back above it is freed.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<PoolShared>,
}

#[derive(Debug)]
struct PoolShared {
    len: usize,
    most: usize,
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    idle: Vec<Block>,
    lent: usize,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.layout.size())
    }
}

impl Pool {
    /// Buffers of `len` bytes, at most `most` of them kept alive by the pool's own wish.
    #[must_use]
    pub fn new(len: usize, most: usize) -> Self {
        Self { shared: Arc::new(PoolShared { len, most, state: Mutex::default() }) }
    }

    /// Bytes of one buffer.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.shared.len
    }

    /// Bytes now kept idle.
    #[must_use]
    pub fn idle_bytes(&self) -> usize {
        self.lock().idle.len() * self.shared.len
    }

    /// One buffer as rows of `row_bytes`: recycled if one is idle (its old bytes still in it), else new and zero.
    ///
    /// # Panics
    /// When `rows * row_bytes` is not the pool's buffer length.
    #[must_use]
    pub fn take(&self, rows: usize, row_bytes: usize) -> Rows {
        assert_eq!(rows * row_bytes, self.shared.len, "the pool's buffers have another size");
        let idle = {
            let mut state = self.lock();
            state.lent += 1;
            state.idle.pop()
        };
        let block = idle.unwrap_or_else(|| Block::zeroed(self.shared.len));
        let home = Home { block: Some(block), pool: Some(self.clone()) };
        Rows { home: Arc::new(home), offset: 0, rows, row_bytes }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        // The counters are adjusted after each push and pop, so a panic elsewhere leaves them true.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put_back(&self, block: Block) {
        let mut state = self.lock();
        state.lent -= 1;
        // Lent ones count: they come back too, and the pool as a whole stays within its number.
        if state.idle.len() + state.lent < self.shared.most {
            state.idle.push(block);
        }
    }
}

/// A block and the pool it goes back to.
struct Home {
    block: Option<Block>,
    pool: Option<Pool>,
}

impl Home {
    fn start(&self) -> *mut u8 {
        self.block.as_ref().expect("taken only in drop").start()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let (Some(pool), Some(block)) = (&self.pool, self.block.take()) {
            pool.put_back(block);
        }
    }
}

/// Exclusive rows of a buffer; neighbours may be owned by other threads.
pub struct Rows {
    home: Arc<Home>,
    offset: usize,
    rows: usize,
    row_bytes: usize,
}

impl Rows {
    /// Zeroed rows in a buffer of their own.
    #[must_use]
    pub fn zeroed(rows: usize, row_bytes: usize) -> Self {
        let block = Some(Block::zeroed(rows * row_bytes));
        Self { home: Arc::new(Home { block, pool: None }), offset: 0, rows, row_bytes }
    }

    /// Number of rows.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of one row.
    #[must_use]
    pub const fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Cuts off the first `count` rows as a handle of their own.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
    pub fn split_to(&mut self, count: usize) -> Self {
        assert!(count <= self.rows, "{count} of {} rows", self.rows);
        let front = Self { home: Arc::clone(&self.home), offset: self.offset, rows: count, row_bytes: self.row_bytes };
        self.offset += count * self.row_bytes;
        self.rows -= count;
        front
    }

    /// Puts two neighbours together again; gives both back when they are not neighbours of one buffer.
    ///
    /// # Errors
    /// `(self, next)`, unchanged, when `next` does not start where `self` ends.
    pub fn join(self, next: Self) -> Result<Self, (Self, Self)> {
        let touches = self.offset + self.rows * self.row_bytes == next.offset;
        if Arc::ptr_eq(&self.home, &next.home) && touches && self.row_bytes == next.row_bytes {
            Ok(Self { rows: self.rows + next.rows, ..self })
        } else {
            Err((self, next))
        }
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: inside the block by construction (`split_to` and `join` keep offset + rows * row_bytes within it).
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: initialised, and no other handle covers these bytes: `split_to` gives each byte to one handle.
        unsafe { std::slice::from_raw_parts(start, self.rows * self.row_bytes) }
    }

    /// All bytes, to write.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: inside the block, as in `bytes`.
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: as in `bytes`; `&mut self` makes this the only borrow of the handle's bytes.
        unsafe { std::slice::from_raw_parts_mut(start, self.rows * self.row_bytes) }
    }

    /// One row, to write.
    ///
    /// # Panics
    /// When `row` is out of range.
    #[must_use]
    pub fn row_mut(&mut self, row: usize) -> &mut [u8] {
        let bytes = self.row_bytes;
        &mut self.bytes_mut()[row * bytes..(row + 1) * bytes]
    }

    /// Copies row `from` over row `to`.
    ///
    /// # Panics
    /// When one is out of range.
    pub fn copy_row(&mut self, from: usize, to: usize) {
        let bytes = self.row_bytes;
        self.bytes_mut().copy_within(from * bytes..(from + 1) * bytes, to * bytes);
    }

    /// Makes the rows read-only and shareable. Free.
    #[must_use]
    pub fn freeze(self) -> Frozen {
        Frozen { len: self.rows * self.row_bytes, offset: self.offset, home: self.home }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({} x {} bytes)", self.rows, self.row_bytes)
    }
}

/// Finished rows: read-only, cheap to clone. The buffer returns to its pool with the last clone.
#[derive(Clone)]
pub struct Frozen {
    home: Arc<Home>,
    offset: usize,
    len: usize,
}

impl Frozen {
    /// The bytes; the first is aligned to [`ALIGN`] unless rows were cut off before.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: inside the block, as in `Rows::bytes`.
        let start = unsafe { self.home.start().add(self.offset) };
        // SAFETY: initialised; made from the only `Rows` over these bytes, so nobody can write them any more.
        unsafe { std::slice::from_raw_parts(start, self.len) }
    }

    /// The first `len` bytes.
    ///
    /// # Panics
    /// When there are fewer.
    #[must_use]
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
    fn rows_are_written_by_many_threads_and_joined_without_a_copy() {
        let pool = Pool::new(8 * 16, 2);
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
        let (mut a, b) = (Rows::zeroed(4, 8), Rows::zeroed(4, 8));
        let front = a.split_to(2);
        assert!(front.join(b).is_err());
    }

    #[test]
    fn a_buffer_returns_to_the_pool_with_its_last_owner() {
        let pool = Pool::new(64, 1);
        let mut rows = pool.take(1, 64);
        let part = rows.split_to(1);
        drop(rows);
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
        let pool = Pool::new(64, 2);
        let lent: Vec<_> = (0..5).map(|_| pool.take(1, 64)).collect();
        drop(lent);
        assert_eq!(pool.idle_bytes(), 128);
    }

    #[test]
    fn buffers_are_aligned_even_when_empty() {
        for (rows, bytes) in [(0, 8), (3, 0), (1, 1), (4, 1 << 20)] {
            assert_eq!(Rows::zeroed(rows, bytes).bytes().as_ptr() as usize % ALIGN, 0);
        }
    }
}
