//! The compression methods, by name.

use infeed_core::error::{Error, ErrorKind};

/// A compression method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Zstd,
    Gzip,
    Zlib,
    /// Without header and checksum, as in zip files.
    Deflate,
    Bzip2,
    /// Without frames, as Python's `snappy.compress` writes it.
    Snappy,
}

impl Packing {
    /// `zstd`, or with a compression level, `zstd:7`. `None` for an unsupported method.
    pub fn parse(name: &str) -> Option<Self> {
        match name.split(':').next().unwrap_or_default() {
            "zstd" => Some(Self::Zstd),
            "gz" => Some(Self::Gzip),
            "bz2" => Some(Self::Bzip2),
            "snappy" => Some(Self::Snappy),
            _ => None,
        }
    }

    /// The name in messages.
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

/// The error if there is no memory for this many bytes.
pub fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("no memory for {bytes} bytes unpacked"))
        .with_hint("write smaller files, or use a machine with more memory")
}
