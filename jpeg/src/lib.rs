#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! ```text
//! file ─ Header ─┬─ sequential ── scan (huffman) ───┬─ simd::Idct ─▶ planes ─ simd::Interleaver ─▶ pixels
//!                └─ progressive ─ progressive::* ───┘
//! ```
//!
//! Two thirds of the decode time is Huffman decoding, which must read every symbol. But decoding ends with the last
//! block that is needed, and blocks outside of the window are passed several symbols at a time, without their values.
//! Easy to get wrong:
//!
//! 1. Pixels equal libjpeg's, bit for bit: its integer transform, its interpolation of colour, its conversion.
//! 2. Several markers name the colour space and may contradict each other; libjpeg's rule decides.
//! 3. Values from a file are checked before they are used. Damage is an error that names a byte. A file without an end
//!    marker is decoded to its end, so that whether it is good does not depend on the window.

#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod baseline;
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
