//! LZW of TIFF 6.0 (section 13): codes of 9 to 12 bits, the highest bit first. Codes become longer one code earlier than
//! they need to.

/// Why a chunk can't be unpacked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// Codes in the bit order of programs from before TIFF 6.0.
    Old,
    /// A code without an entry in the table, and the byte at which its bits end.
    NoEntry { code: usize, byte: usize },
}

const CLEAR: usize = 256;
const END: usize = 257;
/// Number of codes of 12 bits.
const CODES: usize = 4096;

/// The table: a string for each code.
///
/// Each code gives a string and adds an entry: the same string and the first byte of the next one. All strings are in
/// the output already, so an entry is where its string begins there. Most have at most eight bytes: those are kept in
/// the entry too, and written by one store, the same for single bytes and for longer strings. On photographs this is
/// twice as fast as the crate `weezl`; without the bytes in the entry it was 1.7 times as fast.
pub(super) struct Lzw {
    entries: Box<[Entry; CODES]>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    /// The first eight bytes, from the lowest on.
    head: u64,
    /// Where it begins in the output, counted from the last `CLEAR`: behind at most 3,838 strings of 3,838 bytes.
    start: u32,
    len: u32,
}

impl Default for Lzw {
    fn default() -> Self {
        let mut entries = Box::new([Entry::default(); CODES]);
        for (byte, entry) in entries[..CLEAR].iter_mut().enumerate() {
            *entry = Entry { head: byte as u64, start: 0, len: 1 };
        }
        Self { entries }
    }
}

impl Lzw {
    /// Unpacks until `out` is full, the end code, or the end of `packed`. Returns the number of bytes.
    pub(super) fn unpack(&mut self, packed: &[u8], out: &mut [u8]) -> Result<usize, Damage> {
        // A chunk begins with `CLEAR`. In the old bit order its bytes are these.
        if let [0, second, ..] = packed
            && second & 1 == 1
        {
            return Err(Damage::Old);
        }
        let entries = &mut *self.entries;
        let mut codes = Codes { packed, at: 0, bits: 0, count: 0 };
        let (mut filled, mut cleared) = (0, 0);
        // The next entry, and the bit of the newest one's `head` at which its last byte belongs; 64 or more for none.
        let (mut next, mut missing) = (END + 1, u64::BITS);
        while filled < out.len() {
            // 9 bits below 512, 10 below 1,024, 11 below 2,048, then 12.
            let width = (usize::BITS - next.leading_zeros()).min(12);
            let Some(code) = codes.take(width) else { break };
            if code == CLEAR {
                (cleared, next, missing) = (filled, END + 1, u64::BITS);
                continue;
            }
            if code == END {
                break;
            }
            if code >= next {
                return Err(Damage::NoEntry { code, byte: codes.at - codes.count as usize / 8 });
            }
            // The newest entry ends with the first byte of this string, which may be that entry itself.
            let first = entries[code].head & 0xff;
            entries[next - 1].head |= first.checked_shl(missing).unwrap_or(0);
            let Entry { head, start, len } = entries[code];
            if len <= 8
                && let Some(room) = out[filled..].first_chunk_mut()
            {
                // What is written beyond the string is overwritten later.
                *room = head.to_le_bytes();
            } else {
                copy(out, head, cleared + start as usize, filled, len as usize);
            }
            missing = u64::BITS;
            // A full table stays as it is until `CLEAR`.
            if let Some(entry) = entries.get_mut(next) {
                *entry = Entry { head, start: (filled - cleared) as u32, len: len + 1 };
                (next, missing) = (next + 1, 8 * len);
            }
            filled += len as usize;
        }
        Ok(filled.min(out.len()))
    }
}

/// Writes a string at `to`, as much of it as there is room for. It begins at `from` and may end with the first byte
/// that is written.
fn copy(out: &mut [u8], head: u64, from: usize, to: usize, len: usize) {
    let len = len.min(out.len() - to);
    if let Some(head) = head.to_le_bytes().get(..len) {
        out[to..to + len].copy_from_slice(head);
        return;
    }
    let ready = len.min(to - from);
    out.copy_within(from..from + ready, to);
    if ready < len {
        out[to + ready] = out[to];
    }
}

/// Reads codes from the highest bit on.
struct Codes<'a> {
    packed: &'a [u8],
    /// The next byte that is not in `bits`, or part of it is.
    at: usize,
    /// The next bits, from the highest on.
    bits: u64,
    /// How many of them are valid.
    count: u32,
}

impl Codes<'_> {
    #[inline]
    fn take(&mut self, width: u32) -> Option<usize> {
        if self.count < width {
            self.fill();
            if self.count < width {
                return None;
            }
        }
        let code = self.bits >> (u64::BITS - width);
        self.bits <<= width;
        self.count -= width;
        Some(code as usize)
    }

    #[inline]
    fn fill(&mut self) {
        if let Some(eight) = self.packed.get(self.at..).and_then(<[u8]>::first_chunk) {
            // Bits of a byte that does not fit as a whole are the same when it is read again.
            self.bits |= u64::from_be_bytes(*eight) >> self.count;
            self.at += (63 - self.count as usize) / 8;
            self.count |= 56;
            return;
        }
        while let Some(byte) = self.packed.get(self.at)
            && self.count <= 56
        {
            self.bits |= u64::from(*byte) << (56 - self.count);
            (self.at, self.count) = (self.at + 1, self.count + 8);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use weezl::{BitOrder::Msb, LzwStatus};

    use super::*;
    use crate::codec::SampleRng;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        weezl::encode::Encoder::with_tiff_size_switch(Msb, 8).encode(bytes).unwrap()
    }

    /// The bytes that another decoder gives, or none for damage.
    fn peer(packed: &[u8], len: usize) -> Option<Vec<u8>> {
        let mut decoder = weezl::decode::Decoder::with_tiff_size_switch(Msb, 8);
        let (mut out, mut read, mut filled) = (vec![0; len], 0, 0);
        while filled < len {
            let step = decoder.decode_bytes(&packed[read..], &mut out[filled..]);
            (read, filled) = (read + step.consumed_in, filled + step.consumed_out);
            match step.status {
                Ok(LzwStatus::Ok) if step.consumed_in + step.consumed_out > 0 => {}
                Ok(_) => break,
                Err(_) => return None,
            }
        }
        out.truncate(filled);
        Some(out)
    }

    fn unpacked(packed: &[u8], len: usize) -> Result<Vec<u8>, Damage> {
        let mut out = vec![0; len];
        let filled = Lzw::default().unpack(packed, &mut out)?;
        out.truncate(filled);
        Ok(out)
    }

    /// Bytes with repetitions of all lengths.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let part = (0..4u8, any::<u8>(), 0..6000usize, any::<u64>());
        prop::collection::vec(part, 0..8).prop_map(|parts| {
            let mut out: Vec<u8> = Vec::new();
            for (kind, byte, len, seed) in parts {
                let mut state = seed | 1;
                for n in 0..len {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    out.push(match kind {
                        0 => byte,
                        1 => state as u8,
                        2 => state as u8 & 3,
                        _ => (n % (1 + usize::from(byte))) as u8,
                    });
                }
            }
            out
        })
    }

    proptest! {
        #[test]
        fn what_was_packed_comes_back(bytes in bytes(), room in 0..40usize, cut in any::<prop::sample::Index>()) {
            let packed = packed(&bytes);
            prop_assert!(unpacked(&packed, bytes.len() + room).unwrap() == bytes);
            // Less room, and fewer bytes.
            let some = cut.index(bytes.len() + 1);
            prop_assert!(unpacked(&packed, some).unwrap() == bytes[..some]);
            let cut = &packed[..cut.index(packed.len() + 1)];
            prop_assert_eq!(unpacked(cut, bytes.len()).ok(), peer(cut, bytes.len()));
        }
    }

    #[test]
    fn damaged_chunks_are_an_error_or_the_bytes_of_another_decoder() {
        let mut draws = SampleRng::new(5, 0, 0).op(0);
        let chunks: Vec<Vec<u8>> = [1, 2, 4, 16, 250]
            .map(|values| (0..6000).map(|n| (n / values + draws.below(values)) as u8).collect::<Vec<u8>>())
            .to_vec();
        let (mut read, mut refused) = (0, 0);
        for n in 0..8000 {
            let bytes = &chunks[n % chunks.len()];
            let mut packed = packed(bytes);
            for _ in 0..=draws.below(4) {
                let at = draws.below(packed.len() as u64) as usize;
                match draws.below(3) {
                    0 => packed[at] ^= 1 << draws.below(8),
                    1 => packed[at] = draws.bits() as u8,
                    _ => packed.truncate(at.max(1)),
                }
            }
            match unpacked(&packed, bytes.len()) {
                // The other decoder reads these as if they were in the new order.
                Err(Damage::Old) => assert!(packed[0] == 0 && packed[1] & 1 == 1),
                ours => {
                    *if ours.is_ok() { &mut read } else { &mut refused } += 1;
                    assert!(ours.ok() == peer(&packed, bytes.len()), "copy {n}");
                }
            }
        }
        assert!(read > 1000 && refused > 1000, "{read} read, {refused} refused");
    }

    #[test]
    fn a_table_that_is_full_stays_until_it_is_cleared() {
        // Codes of 12 bits only, none of them CLEAR: literals fill the table, and then its last entry is used.
        let mut bits = Vec::new();
        let mut push = |code: u32, next: u32| {
            let width = (32 - next.leading_zeros()).min(12);
            bits.extend((0..width).rev().map(|bit| (code >> bit & 1) as u8));
        };
        push(256, 258);
        let count = 4100;
        (0..count).for_each(|n| push(n % 256, 258 + n));
        push(4095, 5000);
        push(257, 5000);
        let packed: Vec<u8> = bits
            .chunks(8)
            .map(|byte| byte.iter().enumerate().fold(0, |all, (at, bit)| all | bit << (7 - at)))
            .collect();
        let mut want: Vec<u8> = (0..count).map(|n| n as u8).collect();
        // The entry 4095 is the string of the code before last that had one, and the next byte.
        want.extend([(4095 - 258) as u8, (4095 - 257) as u8]);
        assert_eq!(unpacked(&packed, 9000).unwrap(), want);
        assert_eq!(peer(&packed, 9000).unwrap(), want);
    }

    #[test]
    fn damage_is_named() {
        // CLEAR, then a code that is in no table.
        let bits = 256u32 << 23 | 300 << 14;
        assert_eq!(unpacked(&bits.to_be_bytes(), 10), Err(Damage::NoEntry { code: 300, byte: 3 }));
        // CLEAR in the order of old programs.
        assert_eq!(unpacked(&[0, 1, 2, 3], 10), Err(Damage::Old));
    }
}
