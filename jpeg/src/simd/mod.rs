//! The only module with `unsafe` code: loops that must be fast, each compiled for several instruction sets and chosen
//! at run time.
//!
//! Reads and writes stay inside the slices that they are given, whatever the data. All levels give the same bits.
//!
//! | file | what is written by hand, for AVX2 and NEON | the rest |
//! |---|---|---|
//! | `idct.rs` | the inverse transform of 8 x 8 (AVX2 also: to 4 x 4) | the reduced transforms |
//! | `rgb.rs` | YCbCr to RGB | colour brought to the width and height of brightness: plain loops for each level |
//! | `tables.rs` | nothing | tables of several Huffman symbols: plain loops for each level |

#![allow(unsafe_code)]

mod bytes;
mod idct;
mod level;
mod record;
mod rgb;
mod tables;

pub use self::level::Level;
pub(crate) use self::{
    bytes::{copy_to_ff, mirror},
    idct::{Block, Idct, merge},
    record::{Deposit, Record, Work, prefetch, with_best},
    rgb::{Interleaver, PlaneRows, multiply},
    tables::{END, ENDS, LOOK, SKIP, extend, pairs, skips},
};
