//! The framing of records in a file: `u64 length, u32 crc of it, content, u32 crc of it`, little-endian.

use std::io::{self, Read};

use bytes::Bytes;
use infeed_core::{
    error::{Error, Result, setting::SKIP},
    report::Stage,
};
use infeed_data::{
    packed::{Packing, reader},
    passes::Window,
};
use infeed_store::{Object, Source};

use crate::{
    packed::{broken, cut, read_packed},
    records::Within,
};

/// Bytes before a record's content: its length and the length's crc.
const HEAD: u64 = 12;
/// Bytes after it.
const TAIL: u64 = 4;

/// Number of records at the beginning of a file that are examined while it is opened; below, the most bytes of them,
/// unless a single one has more. In detection datasets a few records show that lists vary in length, and a request of
/// that many bytes takes no longer than a small one.
pub(super) const FIRST: usize = 64;
pub(super) const FIRST_BYTES: u64 = 1 << 20;

/// CRC-32C in TFRecord's masked form.
pub(super) fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The content of a record with these bytes, checked.
pub(super) fn content_of(bytes: &Bytes) -> Result<Bytes> {
    let length = parse_length(bytes)?;
    let fits = length.checked_add(HEAD + TAIL) == Some(bytes.len() as u64);
    let content = fits.then(|| bytes.slice(HEAD as usize..bytes.len() - TAIL as usize));
    let content = content.ok_or_else(|| cut("the record is truncated"))?;
    if masked_crc(&content).to_le_bytes() != bytes[bytes.len() - TAIL as usize..] {
        return Err(
            Error::corrupt("the record's crc32c is wrong").with_hint(format!("fetch the file again or set {SKIP}"))
        );
    }
    Ok(content)
}

/// The length of the record that begins with these bytes.
pub(super) fn parse_length(head: &[u8]) -> Result<u64> {
    let Some((length, crc)) = head.get(..HEAD as usize).and_then(|head| head.split_first_chunk::<8>()) else {
        return Err(cut(format!("{} bytes instead of a length and its crc", head.len())));
    };
    if masked_crc(length).to_le_bytes() != crc {
        return Err(cut("the crc of a record's length is wrong"));
    }
    Ok(u64::from_le_bytes(*length))
}

/// The positions of a file's records and the end of the last, by one pass over their lengths. A compressed file is read
/// and decompressed whole.
pub(super) async fn index(source: &Source, object: &Object) -> Result<Within> {
    let at = |e: Error, range| e.at_stage(Stage::Open).at_object(source.display_name(&object.name)).at_range(range);
    let mut window = Window::new(source, object)?;
    let mut position = 0;
    let mut starts = Vec::new();
    while position < object.size {
        let end = (position + HEAD).min(object.size);
        let head = window.get(position, end - position).await.map_err(|e| at(e, position..end))?;
        let head = &head[..];
        if position == 0
            && let Some(packing) = packing_of(head)
            && parse_length(head).is_err()
        {
            let whole = |e: Error| at(e, 0..object.size);
            let bytes = read_packed(source, object).await.map_err(whole)?;
            return index_packed(packing, &bytes).map_err(whole);
        }
        let length = parse_length(head).map_err(|e| at(e, position..end))?;
        let next = position.checked_add(HEAD + TAIL).and_then(|n| n.checked_add(length)).filter(|n| *n <= object.size);
        starts.push(position);
        window.passed += 1;
        position = next.ok_or_else(|| {
            let what = format!("a record of {length} bytes ends after {}", object.size - position);
            at(cut(what), position..object.size)
        })?;
    }
    starts.push(position);
    Ok(Within { starts, packing: None })
}

/// The compression of a file with this beginning, if it does not begin with the length of a record.
fn packing_of(head: &[u8]) -> Option<Packing> {
    match head {
        [0x1f, 0x8b, ..] => Some(Packing::Gzip),
        [0x78, ..] => Some(Packing::Zlib),
        _ => None,
    }
}

/// The same for a compressed file, while it is decompressed.
fn index_packed(packing: Packing, bytes: &[u8]) -> Result<Within> {
    let broken = |e| broken(packing, e);
    let mut reader = reader(packing, bytes, u64::MAX)?;
    let mut starts = Vec::new();
    let mut position = 0u64;
    loop {
        let mut head = Vec::new();
        reader.by_ref().take(HEAD).read_to_end(&mut head).map_err(broken)?;
        if head.is_empty() {
            break;
        }
        let length = parse_length(&head)?;
        let left = length.checked_add(TAIL).ok_or_else(|| cut("a record longer than any file"))?;
        let found = io::copy(&mut reader.by_ref().take(left), &mut io::sink()).map_err(broken)?;
        if found < left {
            return Err(cut(format!("a record of {length} bytes ends after {found}")));
        }
        starts.push(position);
        position += HEAD + left;
    }
    starts.push(position);
    Ok(Within { starts, packing: Some(packing) })
}
