//! The segments between the scans: quantisation tables, definitions of Huffman codes, the restart interval.

#![forbid(unsafe_code)]

use crate::{error::Error, header::Place, order::natural};

/// Quantisation tables in natural order, by their slot.
pub(crate) type Quantisation = [Option<[i16; 64]>; 4];

/// Parses a DQT segment without its length. `None` if it contradicts itself.
pub(crate) fn quantisation(mut body: &[u8], slots: &mut Quantisation) -> Option<()> {
    while let Some((&head, rest)) = body.split_first() {
        let (wide, slot) = (head >> 4, slots.get_mut(usize::from(head & 15))?);
        let size = if wide == 0 { 1 } else { 2 };
        let (values, rest) = rest.split_at_checked(64 * size)?;
        let mut table = [0; 64];
        for (at, value) in values.chunks_exact(size).enumerate() {
            let value = value.iter().fold(0, |sum, byte| sum << 8 | u16::from(*byte));
            table[natural(at)] = value as i16;
        }
        *slot = Some(table);
        body = rest;
    }
    Some(())
}

/// Parses a DHT segment without its length. Calls `put` with the class (0 for first coefficients), the slot and the
/// text of each definition: 16 counts and the symbols. `None` if it contradicts itself, or `put` returns `None`.
pub(crate) fn definitions<'a>(
    mut body: &'a [u8],
    mut put: impl FnMut(usize, usize, &'a [u8]) -> Option<()>,
) -> Option<()> {
    while let Some((&head, rest)) = body.split_first() {
        let (class, slot) = (usize::from(head >> 4), usize::from(head & 15));
        let count: usize = rest.first_chunk::<16>()?.iter().map(|&n| usize::from(n)).sum();
        let (text, rest) = rest.split_at_checked(16 + count)?;
        if class > 1 || slot > 3 || !has_room(text) {
            return None;
        }
        put(class, slot, text)?;
        body = rest;
    }
    Some(())
}

/// Whether the shorter codes leave room for the codes of each length.
fn has_room(text: &[u8]) -> bool {
    let mut free = 1u32;
    text[..16].iter().all(|&codes| {
        free *= 2;
        let fits = free >= u32::from(codes);
        free = free.saturating_sub(codes.into());
        fits
    })
}

/// Parses a DRI segment without its length.
pub(crate) fn interval(body: &[u8]) -> Option<usize> {
    body.first_chunk().map(|units| u16::from_be_bytes(*units).into())
}

/// The error for a segment that contradicts itself.
pub(crate) fn damaged(place: Place) -> Error {
    place.damaged("JPEG has damaged tables")
}
