//! What one decode learns of a file for the next: where in its data places of the image begin, and how long blocks are.
//!
//! ```text
//! decode ─ find ─▶ known (memory, bounded; points thinned out when it is full) ─ save ─┐
//!             └──▶ stored (a file, read where it lies, shared by all who have it open) ◀┘
//! ```
//!
//! What a newcomer would get wrong:
//!
//! 1. The bound is of memory. A stored index takes none but for 8 bytes of each 64 files: a look-up reads two pieces of the file,
//!    which the system keeps once for all processes of the machine.
//! 2. Nothing is forgotten when memory is full: points become twice as sparse, shard by shard, and decoding a little slower.
//! 3. A stored index is read, not mapped. A look takes 3 µs then and 0.3 µs in memory, of some 400 for a crop (2 vCPUs of a Zen 4,
//!    300,000 files); but a mapped file that somebody cuts short, or that a network file system replaces, kills the process at
//!    the next look.

mod known;
mod lengths;
mod point;
mod stored;

pub use self::known::Index;
pub(crate) use self::{
    lengths::Lengths,
    point::{Point, Points, Spacing},
};
