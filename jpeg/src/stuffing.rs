//! Removes from a scan's data the bytes that only distinguish it from markers: the zero byte after each FF, and restart
//! markers.

#![forbid(unsafe_code)]

use crate::{
    huffman::PADDING,
    simd::{Level, copy_to_ff},
};

/// The reason why a scan can't be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// No code begins with these bits, or a block has more than 64 coefficients.
    Code,
    /// The data of an interval is used up.
    End,
    /// This many bytes of an interval are left after its last unit.
    Left(usize),
}

/// How the data of a scan ends.
pub(crate) struct End {
    /// Byte in the file.
    pub(crate) at: usize,
    /// Whether a marker is there.
    pub(crate) marked: bool,
}

/// Copies a scan's data without stuffing, up to the first marker that is not the next restart marker; at most `most`
/// restarts are accepted. `removed` gets the positions before which bytes were removed. [`PADDING`] zeros follow the
/// data.
pub(crate) fn unstuff(
    level: Level,
    bytes: &[u8],
    mut at: usize,
    most: usize,
    out: &mut Vec<u8>,
    restarts: &mut Vec<u32>,
    removed: &mut Vec<u32>,
) -> End {
    restarts.clear();
    removed.clear();
    // Bytes after the data are overwritten.
    out.resize(bytes.len().saturating_sub(at) + PADDING, 0);
    let mut len = 0;
    let end = loop {
        let plain = copy_to_ff(level, &bytes[at..], &mut out[len..]);
        (at, len) = (at + plain, len + plain);
        match bytes.get(at + 1).copied() {
            Some(0) => {
                out[len] = 0xff;
                (at, len) = (at + 2, len + 1);
                removed.push(len as u32);
            }
            // A fill byte.
            Some(0xff) => {
                removed.push(len as u32);
                at += 1;
            }
            Some(marker @ 0xd0..=0xd7) if restarts.len() < most && usize::from(marker & 7) == restarts.len() % 8 => {
                restarts.push(len as u32);
                at += 2;
            }
            Some(_) => break End { at, marked: true },
            None => break End { at: bytes.len(), marked: false },
        }
    };
    out.truncate(len + PADDING);
    out[len..].fill(0);
    end
}

/// The byte in the file of the scan's byte number `wanted`, which is counted without stuffing and restart markers.
pub(crate) fn offset(bytes: &[u8], mut at: usize, wanted: usize) -> usize {
    let mut seen = 0;
    while at < bytes.len() && seen < wanted {
        let marker = if bytes[at] == 0xff { bytes.get(at + 1).copied() } else { None };
        match marker {
            Some(0) => (seen, at) = (seen + 1, at + 2),
            Some(0xd0..=0xd7) => at += 2,
            Some(_) => at += 1,
            None => (seen, at) = (seen + 1, at + 1),
        }
    }
    at
}
