//! The two kinds of heaps: local heaps of names, and fractal heaps of the links of large groups.

use bytes::Bytes;
use infeed_core::error::Result;

use super::{cursor::Cursor, damaged, file::File, tree::bytes_for, unsupported};

/// The texts of a local heap.
pub(super) async fn local(file: &mut File<'_>, at: u64) -> Result<Bytes> {
    let bytes = file.read(at, 8 + (2 * file.lengths + file.offsets) as u64).await?;
    let mut cursor = Cursor::new(&bytes, "a heap of names");
    cursor.expect(b"HEAP")?;
    cursor.version(0, 0)?;
    cursor.skip(3)?;
    let len = cursor.uint(file.lengths)?;
    cursor.skip(file.lengths)?;
    let data = cursor.address(file.offsets)?.ok_or_else(|| cursor.error("it has no names"))?;
    file.read(data, len).await
}

/// The text that begins at `at`.
pub(super) fn text(heap: &[u8], at: u64) -> Result<String> {
    let text = usize::try_from(at).ok().and_then(|at| heap.get(at..)?.split(|byte| *byte == 0).next());
    let text = text.ok_or_else(|| damaged("a name that is not in its heap"))?;
    name(text)
}

pub(super) fn name(text: &[u8]) -> Result<String> {
    let name = std::str::from_utf8(text).map_err(|e| damaged("a name that is not UTF-8").with_source(e))?;
    Ok(name.to_owned())
}

/// The layout of a fractal heap.
#[derive(Debug)]
pub(super) struct Fractal {
    offsets: usize,
    /// Bytes of an offset in the heap, and of a length.
    place_bytes: usize,
    len_bytes: usize,
    width: u64,
    starting: u64,
    /// Bytes of the largest block that holds objects.
    direct: u64,
    root: Option<u64>,
    /// Rows of the root block if it holds blocks; 0 if it holds objects.
    rows: u64,
}

impl Fractal {
    pub(super) async fn read(file: &mut File<'_>, at: u64) -> Result<Self> {
        let (o, l) = (file.offsets, file.lengths);
        let bytes = file.read_checked(at, 22 + (12 * l + 3 * o) as u64).await?;
        let mut cursor = Cursor::new(&bytes, "a heap of links");
        cursor.expect(b"FRHP")?;
        cursor.version(0, 0)?;
        cursor.skip(2)?;
        if cursor.u16()? != 0 {
            return Err(unsupported("groups whose links are compressed").with_hint("rewrite the file with h5repack"));
        }
        cursor.skip(1)?;
        let most = u64::from(cursor.u32()?);
        cursor.skip(l + o + l + o + 8 * l)?;
        let width = u64::from(cursor.u16()?);
        let (starting, direct) = (cursor.uint(l)?, cursor.uint(l)?);
        let bits = cursor.u16()?;
        cursor.skip(2)?;
        let root = cursor.address(o)?;
        let rows = u64::from(cursor.u16()?);
        let sound = width.is_power_of_two()
            && starting.is_power_of_two()
            && direct.is_power_of_two()
            && starting <= direct
            && direct <= u64::from(u32::MAX)
            && bits <= 64
            && rows <= 64;
        if !sound {
            return Err(cursor.error("its block sizes contradict each other"));
        }
        let place_bytes = usize::from(bits).div_ceil(8);
        let len_bytes = (direct.trailing_zeros() as usize).div_ceil(8).min(bytes_for(most));
        Ok(Self { offsets: o, place_bytes, len_bytes, width, starting, direct, root, rows })
    }

    /// Bytes of each block of a row.
    fn block(&self, row: u64) -> Option<u64> {
        let size = |row: u64| self.starting.checked_mul(1u64.checked_shl(row.try_into().ok()?)?);
        size(row.saturating_sub(1))
    }

    /// Reads the object with this id.
    pub(super) async fn object(&self, file: &mut File<'_>, id: &[u8]) -> Result<Bytes> {
        let mut cursor = Cursor::new(id, "the name of an object in a heap");
        let flags = cursor.u8()?;
        match flags >> 4 & 3 {
            0 => {}
            2 => {
                let len = usize::from(flags & 15) + 1;
                return Ok(Bytes::copy_from_slice(cursor.take(len)?));
            }
            _ => return Err(unsupported("links of more than 4096 bytes")),
        }
        let place = cursor.uint(self.place_bytes)?;
        let len = cursor.uint(self.len_bytes)?;
        let lost = || damaged("a link that is not in its heap");
        let mut at = self.root.ok_or_else(lost)?;
        let mut rows = self.rows;
        let mut size = self.starting;
        // Descends from block to block; each has fewer rows than the one above, so this ends.
        let mut within = place;
        while rows > 0 {
            let mut row = 0;
            let mut before = 0u64;
            let (found, column) = loop {
                if row == rows {
                    return Err(lost());
                }
                let block = self.block(row).ok_or_else(lost)?;
                let all = block.checked_mul(self.width).and_then(|all| before.checked_add(all)).ok_or_else(lost)?;
                if within < all {
                    break (block, (within - before) / block);
                }
                before = all;
                row += 1;
            };
            let entry = row * self.width + column;
            let head = (5 + self.offsets + self.place_bytes) as u64;
            let entries = rows.checked_mul(self.width * self.offsets as u64).ok_or_else(lost)?;
            let bytes = file.read_checked(at, head.saturating_add(entries)).await?;
            let mut cursor = Cursor::new(&bytes, "a block of a heap of links");
            cursor.expect(b"FHIB")?;
            cursor.skip(head as usize - 4 + entry as usize * self.offsets)?;
            at = cursor.address(self.offsets)?.ok_or_else(lost)?;
            within -= before + column * found;
            size = found;
            // A block too large for objects holds blocks.
            let below = if found > self.direct {
                u64::from((found / self.starting).trailing_zeros())
                    .checked_sub(self.width.trailing_zeros().into())
                    .map(|rows| rows + 1)
                    .ok_or_else(lost)?
            } else {
                0
            };
            if below >= rows {
                return Err(lost());
            }
            rows = below;
        }
        if within.checked_add(len).is_none_or(|end| end > size) {
            return Err(lost());
        }
        file.read(at, 4).await.and_then(|head| Cursor::new(&head, "a block of links").expect(b"FHDB"))?;
        file.read(at.checked_add(within).ok_or_else(lost)?, len).await
    }
}
