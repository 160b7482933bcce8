//! Reads bits of a scan whose bytes were mirrored.

/// Bytes without stuffing whose bits are mirrored, so that the first bit is the lowest. The bits that are read can then
/// be deposited by a mask, and one reader serves all scans of a band.
#[derive(Clone, Copy, Debug)]
pub(super) struct MirroredBits<'a> {
    /// The next bits, lowest first, and the number of valid ones.
    pub(super) held: u64,
    pub(super) count: u32,
    /// The bytes that are not loaded yet, from the byte of the first invalid bit on.
    rest: &'a [u8],
}

impl<'a> MirroredBits<'a> {
    /// Zeros that must follow the data: bytes that are loaded but not used, and enough to detect the end.
    pub(super) const PADDING: usize = 16;

    /// Starts at bit `at` of bytes that end with [`PADDING`](Self::PADDING) zeros.
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        let mut bits = Self { held: 0, count: 0, rest: bytes.get(at / 8..).unwrap_or_default() };
        if bits.refill().is_some() {
            bits.eat((at % 8) as u32);
        }
        bits
    }

    /// Number of bits that are not read yet, including the padding.
    pub(super) fn left(&self) -> usize {
        8 * self.rest.len() + self.count as usize
    }

    /// Makes 56 bits or more available. `None` if more was read than there is.
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

    /// `count` bits from bit `from` on as a number, the first bit highest.
    pub(super) fn number(&self, from: u32, count: u32) -> u32 {
        ((self.held >> from) as u32).reverse_bits().checked_shr(32 - count).unwrap_or(0)
    }
}

/// Writes an entry to each place of a table for mirrored bits that begins with these `length` bits.
pub(super) fn fill_mirrored<T: Copy>(table: &mut [T], bits: u32, length: u32, entry: T) {
    let first = bits.reverse_bits() >> (32 - length);
    table.iter_mut().skip(first as usize).step_by(1 << length).for_each(|place| *place = entry);
}
