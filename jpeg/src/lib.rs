#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! ```text
//! file ─ Header ─┬─ sequential ── scan (huffman) ───┬─ simd::Idct ─▶ planes ─ simd::Interleaver ─▶ pixels
//!                └─ progressive ─ progressive::* ───┘
//! ```
//!
//! Two thirds of a decode is Huffman decoding, whose symbols can't be jumped over; but it ends with the last block that
//! is needed, and blocks outside the window are skipped several symbols at a time, without their values. What a newcomer
//! would get wrong:
//!
//! 1. The values are libjpeg's, bit for bit: its integer transform, its interpolation of colour, its conversion.
//! 2. Colour is told by several markers that contradict each other; libjpeg's rule decides.
//! 3. Nothing that a file says is believed before it is compared with what is there: damage is an error that names a
//!    byte, and a file without its end is decoded to its end, so that whether it is good does not depend on the window.

#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod decoder;
#[cfg(test)]
mod draws;
mod error;
mod grid;
mod header;
mod huffman;
mod index;
mod memory;
mod order;
mod orientation;
mod planes;
mod progressive;
mod scan;
mod simd;
mod stuffing;
mod tables;
#[cfg(test)]
mod tests;

pub use self::{
    decoder::{Decoder, Image, Scratch},
    error::{Error, ErrorKind, Result},
    header::{Colour, Header},
    index::Index,
    orientation::Orientation,
    planes::{Plane, Planes, Window},
    simd::Level,
};
