//! Codes of first coefficients, together with their values.

use super::bits::{MirroredBits, fill_mirrored};
use crate::{huffman::Codes, simd::extend};

/// Bits of the table.
const LOOK: u32 = 11;

/// Codes of a component with their values.
#[derive(Debug)]
pub(super) struct DcCodes {
    codes: Codes,
    /// From the lowest bit: number of bits of code and value (16), value (16). 0 if there is no code, or a longer one.
    look: [u32; 1 << LOOK],
}

impl Default for DcCodes {
    fn default() -> Self {
        Self { codes: Codes::default(), look: [0; 1 << LOOK] }
    }
}

/// An entry of the table, for the bits after a code.
fn entry(length: u32, size: u32, bits: u32) -> u32 {
    let value = extend(u64::from(bits) << (64 - size.max(1)), 0, size);
    (length + size) | u32::from(value as u16) << 16
}

impl DcCodes {
    /// 8-bit samples have no longer values.
    const MOST: u8 = 11;

    /// Replaces the table by this definition; `None` if it contradicts itself.
    pub(super) fn read_table(&mut self, text: &[u8]) -> Option<()> {
        let Self { codes, look } = self;
        look.fill(0);
        codes.read(text, |size, code, length| {
            let behind = u32::from(size);
            if size > Self::MOST || length + behind > LOOK {
                return;
            }
            for bits in 0..1 << behind {
                fill_mirrored(look, code << behind | bits, length + behind, entry(length, behind, bits));
            }
        })
    }

    /// The difference to the block before. 27 bits must be available.
    #[inline(always)]
    pub(super) fn read(&self, bits: &mut MirroredBits<'_>) -> Option<i32> {
        let mut entry = self.look[bits.held as usize & ((1 << LOOK) - 1)];
        if entry == 0 {
            entry = self.long(*bits)?;
        }
        bits.eat(entry & 0xffff);
        Some(entry as i32 >> 16)
    }

    #[cold]
    #[inline(never)]
    fn long(&self, bits: MirroredBits<'_>) -> Option<u32> {
        let (size, length) = self.codes.find(bits.code())?;
        let behind = u32::from(size);
        (size <= Self::MOST).then(|| entry(length, behind, bits.number(length, behind)))
    }
}
