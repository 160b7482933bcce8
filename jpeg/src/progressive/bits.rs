//! Bits of a scan whose bytes were mirrored.

/// Bytes without stuffing whose bits were mirrored, so that the first one is the lowest: bits that are read are then those that
/// a mask deposits, and one reader serves all scans of a band.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirroredBits<'a> {
    /// The next bits, from the lowest on, and how many of them count.
    pub(super) held: u64,
    pub(super) count: u32,
    /// What is not held yet, from the byte of the first bit that is not counted on.
    rest: &'a [u8],
}

impl<'a> MirroredBits<'a> {
    /// Zeros that must follow the data in the bytes that are read: those that are looked at and not counted, and as many as
    /// tell that there is no more.
    pub(super) const PADDING: usize = 16;

    /// Reads from bit `at` of bytes that end with so many zeros.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        let mut bits = Self { held: 0, count: 0, rest: bytes.get(at / 8..).unwrap_or_default() };
        if bits.refill().is_some() {
            bits.eat((at % 8) as u32);
        }
        bits
    }

    /// Bits that are not read yet, those of the padding included.
    pub(super) fn left(&self) -> usize {
        8 * self.rest.len() + self.count as usize
    }

    /// Holds 56 bits or more. `None`: more was read than there is.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> Option<()> {
        let next = self.rest.first_chunk::<8>()?;
        self.held |= u64::from_le_bytes(*next) << self.count;
        self.rest = &self.rest[((63 - self.count) >> 3 & 7) as usize..];
        self.count |= 56;
        Some(())
    }

    #[inline(always)]
    pub(super) fn eat(&mut self, count: u32) {
        self.held >>= count;
        self.count -= count;
    }

    /// The next 16 bits in the order of a code.
    pub(super) fn code(&self) -> u16 {
        (self.held as u16).reverse_bits()
    }

    /// `count` bits as a number, the first of them highest, from bit `from` on.
    pub(super) fn number(&self, from: u32, count: u32) -> u32 {
        ((self.held >> from) as u32).reverse_bits().checked_shr(32 - count).unwrap_or(0)
    }
}

/// Puts an entry wherever a table is asked for mirrored bits that begin with these `length` bits.
pub(super) fn fill_mirrored<T: Copy>(table: &mut [T], bits: u32, length: u32, entry: T) {
    let first = bits.reverse_bits() >> (32 - length);
    table.iter_mut().skip(first as usize).step_by(1 << length).for_each(|place| *place = entry);
}
