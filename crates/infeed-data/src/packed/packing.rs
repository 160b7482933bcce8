//! The ways of compressing, by their names.

use infeed_core::error::{Error, ErrorKind};

/// How something is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Zstd,
    Gzip,
    Zlib,
    /// Without a head or a sum, as zip files have it.
    Deflate,
    Bzip2,
    /// Without frames, as `snappy.compress` of Python gives it.
    Snappy,
}

impl Packing {
    /// `zstd`, or with the level that it was compressed with, `zstd:7`. `None` for what is not read.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split(':').next().unwrap_or_default() {
            "zstd" => Some(Self::Zstd),
            "gz" => Some(Self::Gzip),
            "bz2" => Some(Self::Bzip2),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }

    /// As messages call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
            Self::Zlib => "zlib",
            Self::Deflate => "deflate",
            Self::Bzip2 => "bzip2",
            Self::Snappy => "Snappy",
        }
    }
}

/// No memory for so many bytes.
pub fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes unpacked"))
        .hint("write smaller files, or use a machine with more memory")
}
