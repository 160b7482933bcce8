//! For a build without the feature `packed`: nothing compressed is opened, so these functions are never called with
//! bytes.

use std::io::Read;

use infeed_core::error::{Error, ErrorKind, Result};

use super::packing::Packing;

/// A hash; none is supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digest {}

impl Digest {
    pub const fn parse(_name: &str) -> Option<Self> {
        None
    }

    pub const fn hex(self, _bytes: &[u8]) -> String {
        match self {}
    }
}

/// The error that this build does not read `what`.
pub fn supported(what: &str) -> Result<()> {
    Err(Error::new(ErrorKind::Unsupported, format!("{what}, which this build does not decompress"))
        .with_hint("build with the feature `packed`, or store the data uncompressed"))
}

pub fn reader<'a>(_packing: Packing, _bytes: &'a [u8], _most: u64) -> Result<Box<dyn Read + 'a>> {
    supported("it is compressed").map(|()| Box::new(std::io::empty()) as Box<dyn Read>)
}

pub const fn read_head(_packing: Packing, _bytes: &[u8], _length: usize, _most: u64) -> Option<Vec<u8>> {
    None
}

pub fn unpack(_packing: Packing, _bytes: &[u8], _length: usize) -> Result<Vec<u8>> {
    supported("it is compressed").map(|()| Vec::new())
}

pub fn inflate(_bytes: &[u8], _length: usize, _crc: u32) -> Result<Vec<u8>> {
    supported("it is compressed").map(|()| Vec::new())
}

/// Not checked.
pub const fn is_crc(_bytes: &[u8], _crc: u32) -> bool {
    true
}
