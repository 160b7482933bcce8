//! Values of less than a byte.

/// Values of `bits` bits each; the highest bits of a byte come first.
pub(super) fn indices(bytes: &[u8], bits: u32) -> impl Iterator<Item = u8> + '_ {
    let mask = ((1u32 << bits) - 1) as u8;
    bytes.iter().flat_map(move |byte| (1..=8 / bits).map(move |n| (byte >> (8 - n * bits)) & mask))
}
