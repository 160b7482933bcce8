//! Parts that all layers of the format share: its numbers, and the error for damage.

use infeed_core::error::{Error, setting::SKIP};

/// The encoding of levels, and of positions in a dictionary.
pub(super) const RLE: u32 = 3;

pub(super) fn damaged(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint(format!("the file is truncated or damaged; fetch it again or set {SKIP}"))
}

/// The number at the start of the bytes, and its length in bytes.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (i, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Some((value, i + 1));
        }
    }
    None
}

pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
