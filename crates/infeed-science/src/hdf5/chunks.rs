//! Finds the chunks of a dataset, by each kind of index.

use infeed_core::error::Result;

use super::{
    cursor::Cursor,
    damaged,
    file::{File, SUM},
    limits::MOST_CHUNKS,
    messages::{Index, Space},
    tree, unsupported,
};

/// A chunk that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Chunk {
    /// Its number in the grid, in C order.
    pub(super) number: u64,
    pub(super) at: u64,
    pub(super) len: u64,
    /// Bit `i` is set if filter `i` was not applied.
    pub(super) mask: u32,
}

/// The grid of a dataset's chunks, as the indexes need it.
#[derive(Debug)]
pub(super) struct Grid<'a> {
    shape: &'a [u64],
    chunk: &'a [u64],
    /// Bytes of a chunk without filters.
    bytes: u64,
    /// Chunks along each axis: at present (`counts`), and in the maximal shape (`most`; `None` for an unlimited axis).
    counts: Vec<u64>,
    most: Vec<Option<u64>>,
    /// The axes in the order in which indexes count them, the slowest first: an unlimited axis is the slowest.
    order: Vec<usize>,
}

impl<'a> Grid<'a> {
    /// `chunk` must not contain 0.
    pub(super) fn new(space: &'a Space, chunk: &'a [u64], bytes: u64) -> Self {
        let counts = space.shape.iter().zip(chunk).map(|(n, chunk)| n.div_ceil(*chunk)).collect();
        let most: Vec<_> =
            space.most.iter().zip(chunk).map(|(most, chunk)| most.map(|most| most.div_ceil(*chunk).max(1))).collect();
        let mut order: Vec<usize> = (0..chunk.len()).collect();
        if let Some(endless) = most.iter().position(Option::is_none) {
            order[..=endless].rotate_right(1);
        }
        Self { shape: &space.shape, chunk, bytes, counts, most, order }
    }

    /// Whether the chunk extends beyond the array's end.
    pub(super) fn is_cut(&self, number: u64) -> bool {
        let mut left = number;
        let mut axes = self.counts.iter().zip(self.shape).zip(self.chunk).rev();
        axes.any(|((count, n), chunk)| {
            let at = left % count;
            left /= count;
            n - at * chunk < *chunk
        })
    }

    /// The number of the chunk at these chunk coordinates; `None` beyond the array's end.
    fn number(&self, at: &[u64]) -> Option<u64> {
        at.iter().zip(&self.counts).try_fold(0u64, |number, (at, count)| {
            if at < count { number.checked_mul(*count)?.checked_add(*at) } else { None }
        })
    }

    /// The number of the chunk at `index` in the order of an index. `at` is scratch space of one number per axis.
    fn of_index(&self, index: u64, at: &mut [u64]) -> Option<u64> {
        let mut left = index;
        for axis in self.order[1..].iter().rev() {
            let count = self.most[*axis]?;
            at[*axis] = left % count;
            left /= count;
        }
        at[self.order[0]] = left;
        self.number(at)
    }
}

/// All chunks that exist, ascending by number.
pub(super) async fn chunks(file: &mut File<'_>, index: Index, at: Option<u64>, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    // No chunk was written.
    let Some(at) = at else { return Ok(Vec::new()) };
    let mut chunks = match index {
        Index::Tree1 => by_tree1(file, at, grid).await?,
        Index::Tree2 => by_tree2(file, at, grid).await?,
        Index::Single(packed) => {
            let (len, mask) = packed.unwrap_or((grid.bytes, 0));
            grid.number(&vec![0; grid.chunk.len()]).map(|number| Chunk { number, at, len, mask }).into_iter().collect()
        }
        Index::Implicit => implicit(file, at, grid)?,
        Index::Fixed => fixed(file, at, grid).await?,
        Index::Extensible => extensible(file, at, grid).await?,
    };
    chunks.sort_unstable();
    if let Some(pair) = chunks.windows(2).find(|pair| pair[0].number == pair[1].number) {
        return Err(damaged(format!("chunk {} is at two addresses", pair[0].number)));
    }
    Ok(chunks)
}

fn many(count: u64) -> Result<()> {
    if count <= MOST_CHUNKS {
        return Ok(());
    }
    Err(unsupported(format!("{count} chunks, at most {MOST_CHUNKS} are read"))
        .with_hint("write the dataset with larger chunks"))
}

async fn by_tree1(file: &mut File<'_>, at: u64, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    // A key is: length, mask, the chunk's start along each axis, and a 0 for the offset in an element.
    let entries = tree::first(file, at, tree::CHUNKS, 8 + 8 * (grid.chunk.len() + 1)).await?;
    many(entries.len() as u64)?;
    let mut chunks = Vec::with_capacity(entries.len());
    for (key, at) in entries {
        let mut cursor = Cursor::new(&key, "a tree that finds chunks");
        let (len, mask) = (cursor.u32()?.into(), cursor.u32()?);
        let mut place = Vec::with_capacity(grid.chunk.len());
        for chunk in grid.chunk {
            let start = cursor.u64()?;
            if start % chunk != 0 {
                return Err(cursor.error("a chunk that begins within another"));
            }
            place.push(start / chunk);
        }
        chunks.extend(grid.number(&place).map(|number| Chunk { number, at, len, mask }));
    }
    Ok(chunks)
}

async fn by_tree2(file: &mut File<'_>, at: u64, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    let tree = tree::second(file, at).await?;
    let (offsets, axes) = (file.offsets, grid.chunk.len());
    let mut chunks = Vec::with_capacity(tree.records.len());
    for record in tree.records {
        let mut cursor = Cursor::new(&record, "a tree of chunks");
        let at = cursor.address(offsets)?;
        let (len, mask) = match tree.kind {
            10 => (grid.bytes, 0),
            11 => {
                let size = record.len().checked_sub(offsets + 4 + 8 * axes);
                let size = size.ok_or_else(|| cursor.error("records that are too short"))?;
                (cursor.uint(size)?, cursor.u32()?)
            }
            kind => return Err(cursor.error(&format!("it is of kind {kind}"))),
        };
        let place = (0..axes).map(|_| cursor.u64()).collect::<Result<Vec<_>>>()?;
        chunks.extend(at.zip(grid.number(&place)).map(|(at, number)| Chunk { number, at, len, mask }));
    }
    Ok(chunks)
}

fn implicit(file: &File<'_>, at: u64, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    let count = grid.most.iter().try_fold(1u64, |count, n| count.checked_mul((*n)?));
    // All chunks exist, so the file must have room for them.
    let count = count.filter(|count| count.checked_mul(grid.bytes).is_some_and(|len| len <= file.left(at)));
    let count = count.ok_or_else(|| damaged("more chunks than the file has room for"))?;
    many(count)?;
    let mut room = vec![0; grid.chunk.len()];
    let chunk = |index| {
        let number = grid.of_index(index, &mut room)?;
        Some(Chunk { number, at: at + index * grid.bytes, len: grid.bytes, mask: 0 })
    };
    Ok((0..count).filter_map(chunk).collect())
}

/// Collects the chunks from the elements of a fixed or extensible array.
#[derive(Debug)]
struct Elements<'a> {
    grid: &'a Grid<'a>,
    offsets: usize,
    /// Bytes of one element.
    size: usize,
    filtered: bool,
    chunks: Vec<Chunk>,
}

impl<'a> Elements<'a> {
    fn new(file: &File<'_>, grid: &'a Grid<'a>, client: u8, size: u8) -> Result<Self> {
        let (offsets, size) = (file.offsets, usize::from(size));
        let sound = match client {
            0 => size == offsets,
            1 => (offsets + 5..=offsets + 12).contains(&size),
            _ => false,
        };
        match sound {
            true => Ok(Self { grid, offsets, size, filtered: client == 1, chunks: Vec::new() }),
            false => Err(damaged(format!("an array of chunks of kind {client}, of {size} bytes each"))),
        }
    }

    /// Bytes of `count` elements.
    fn len(&self, count: u64) -> Result<u64> {
        count.checked_mul(self.size as u64).ok_or_else(|| damaged("an array of chunks longer than any file"))
    }

    /// Takes the elements in `bytes`, of which the first has the index `first`.
    fn take(&mut self, bytes: &[u8], first: u64) -> Result<()> {
        let mut room = vec![0; self.grid.chunk.len()];
        for (index, element) in (first..).zip(bytes.chunks_exact(self.size)) {
            let mut cursor = Cursor::new(element, "an array of chunks");
            let at = cursor.address(self.offsets)?;
            let (len, mask) = match self.filtered {
                true => (cursor.uint(self.size - self.offsets - 4)?, cursor.u32()?),
                false => (self.grid.bytes, 0),
            };
            let number = at.and_then(|_| self.grid.of_index(index, &mut room));
            self.chunks.extend(at.zip(number).map(|(at, number)| Chunk { number, at, len, mask }));
        }
        many(self.chunks.len() as u64)
    }
}

/// Whether bit `at` is set. The highest bit of a byte comes first.
fn bit(bytes: &[u8], at: u64) -> bool {
    usize::try_from(at / 8).ok().and_then(|i| bytes.get(i)).is_some_and(|byte| byte & (0x80 >> (at % 8)) != 0)
}

fn power(bits: u8, what: &Cursor<'_>) -> Result<u64> {
    if bits < 48 { Ok(1 << bits) } else { Err(what.error(&format!("2^{bits} elements"))) }
}

async fn fixed(file: &mut File<'_>, at: u64, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    let (o, l) = (file.offsets, file.lengths);
    let bytes = file.read_checked(at, (8 + l + o) as u64).await?;
    let mut cursor = Cursor::new(&bytes, "a fixed array of chunks");
    cursor.expect(b"FAHD")?;
    cursor.version(0, 0)?;
    let mut elements = Elements::new(file, grid, cursor.u8()?, cursor.u8()?)?;
    let bits = cursor.u8()?;
    let page = power(bits, &cursor)?;
    let count = cursor.uint(l)?;
    let Some(block) = cursor.address(o)? else { return Ok(Vec::new()) };

    let head = (6 + o) as u64;
    if count <= page {
        let bytes = file.read_checked(block, elements.len(count)?.saturating_add(head)).await?;
        Cursor::new(&bytes, "a block of chunks").expect(b"FADB")?;
        elements.take(&bytes[head as usize..], 0)?;
        return Ok(elements.chunks);
    }
    let pages = count.div_ceil(page);
    let bytes = file.read_checked(block, head + pages.div_ceil(8)).await?;
    Cursor::new(&bytes, "a block of chunks").expect(b"FADB")?;
    // A checksum follows the block, and each page.
    let first = block + bytes.len() as u64 + SUM;
    let step = elements.len(page)?.saturating_add(SUM);
    let written: Vec<u64> = (0..pages).filter(|page| bit(&bytes[head as usize..], *page)).collect();
    take_pages(file, &mut elements, first, step, page, count, 0, written).await?;
    Ok(elements.chunks)
}

/// Takes the elements of these pages, of `page` elements each, in a block of `count` elements.
#[expect(clippy::too_many_arguments, reason = "a block's numbers")]
async fn take_pages(
    file: &mut File<'_>,
    elements: &mut Elements<'_>,
    at: u64,
    step: u64,
    page: u64,
    count: u64,
    first: u64,
    pages: Vec<u64>,
) -> Result<()> {
    let mut wanted = Vec::with_capacity(pages.len());
    for number in &pages {
        let before = number * page;
        let len = elements.len(page.min(count - before))?;
        let place = number.checked_mul(step).and_then(|skip| at.checked_add(skip));
        wanted.push((place.ok_or_else(|| damaged("a page beyond the end of any file"))?, len.saturating_add(SUM)));
    }
    file.need(&wanted).await?;
    for (number, (at, len)) in pages.into_iter().zip(wanted) {
        let bytes = file.get_checked(at, len - SUM)?;
        elements.take(&bytes, first.saturating_add(number * page))?;
    }
    Ok(())
}

/// A block of an extensible array that holds elements.
#[derive(Debug)]
struct Block {
    at: u64,
    /// The index of its first element, and the number of elements.
    first: u64,
    count: u64,
    /// The pages that were written; `None` if the block has no pages.
    pages: Option<Vec<u64>>,
}

async fn extensible(file: &mut File<'_>, at: u64, grid: &Grid<'_>) -> Result<Vec<Chunk>> {
    let (o, l) = (file.offsets, file.lengths);
    let bytes = file.read_checked(at, (12 + 6 * l + o) as u64).await?;
    let mut cursor = Cursor::new(&bytes, "an extensible array of chunks");
    cursor.expect(b"EAHD")?;
    cursor.version(0, 0)?;
    let mut elements = Elements::new(file, grid, cursor.u8()?, cursor.u8()?)?;
    let bits = cursor.u8()?;
    let in_index = u64::from(cursor.u8()?);
    let least = u64::from(cursor.u8()?);
    let pointers = u64::from(cursor.u8()?);
    let page_bits = cursor.u8()?;
    let page = power(page_bits, &cursor)?;
    cursor.skip(6 * l)?;
    let index = cursor.address(o)?;
    let sound = bits <= 64 && least.is_power_of_two() && pointers.is_power_of_two();
    let sound = sound && u32::from(bits) >= least.trailing_zeros();
    if !sound {
        return Err(cursor.error("its block sizes contradict each other"));
    }
    let Some(index) = index else { return Ok(Vec::new()) };

    let supers = 1 + u32::from(bits) - least.trailing_zeros();
    let in_first = (2 * pointers.trailing_zeros()).min(supers);
    // The number of blocks of a super block, and of elements per block.
    let sizes = |number: u32| {
        let of = |power: u32| 1u64.checked_shl(power).filter(|n| n.trailing_zeros() == power);
        let blocks = of(number / 2);
        blocks.zip(of(number.div_ceil(2)).and_then(|n| n.checked_mul(least)))
    };
    let too_many = || damaged("an extensible array of chunks longer than any file");
    let direct: u64 = (0..in_first).filter_map(|number| Some(sizes(number)?.0)).sum();

    let head = (6 + o) as u64;
    let len = head + elements.len(in_index)? + (direct + u64::from(supers - in_first)) * o as u64;
    let bytes = file.read_checked(index, len).await?;
    let mut cursor = Cursor::new(&bytes, "the first block of an extensible array");
    cursor.expect(b"EAIB")?;
    cursor.skip(head as usize - 4)?;
    let these = cursor.take(elements.len(in_index)? as usize)?;
    elements.take(these, 0)?;

    let mut first = in_index;
    let mut blocks = Vec::new();
    let mut above = Vec::new();
    for number in 0..supers {
        let Some((count, each)) = sizes(number) else { break };
        if number < in_first {
            for i in 0..count {
                if let Some(at) = cursor.address(o)? {
                    blocks.push(Block { at, first: first + i * each, count: each, pages: None });
                }
            }
        } else if let Some(at) = cursor.address(o)? {
            above.push((at, first, count, each));
        }
        let next = count.checked_mul(each).and_then(|all| first.checked_add(all));
        let Some(next) = next else { break };
        first = next;
    }

    let place_bytes = usize::from(bits).div_ceil(8);
    let of_super = |count: u64, each: u64| {
        // If blocks have pages, there is a bit per page for whether it was written.
        let pages = if each > page { each / page } else { 0 };
        let bits = pages.div_ceil(8).checked_mul(count);
        let len = bits
            .and_then(|bits| count.checked_mul(o as u64)?.checked_add(bits)?.checked_add(head + place_bytes as u64));
        len.map(|len| (pages, len))
    };
    let mut wanted = Vec::new();
    for (at, _, count, each) in &above {
        let (_, len) = of_super(*count, *each).ok_or_else(too_many)?;
        wanted.push((*at, len.saturating_add(SUM)));
    }
    file.need(&wanted).await?;
    for ((at, first, count, each), (_, len)) in above.into_iter().zip(wanted) {
        let bytes = file.get_checked(at, len - SUM)?;
        let mut cursor = Cursor::new(&bytes, "a block of an extensible array");
        cursor.expect(b"EASB")?;
        cursor.skip(head as usize - 4 + place_bytes)?;
        let (pages, _) = of_super(count, each).ok_or_else(too_many)?;
        let written = cursor.take((pages.div_ceil(8) * count) as usize)?;
        for i in 0..count {
            if let Some(at) = cursor.address(o)? {
                let there = || (0..pages).filter(|page| bit(written, i * pages + page)).collect();
                let pages = (pages > 0).then(there);
                blocks.push(Block { at, first: first.saturating_add(i * each), count: each, pages });
            }
        }
    }

    let head = head + place_bytes as u64;
    let mut wanted = Vec::new();
    for block in blocks.iter().filter(|block| block.pages.is_none()) {
        wanted.push((block.at, elements.len(block.count)?.saturating_add(head + SUM)));
    }
    file.need(&wanted).await?;
    for block in blocks {
        match block.pages {
            None => {
                let bytes = file.get_checked(block.at, elements.len(block.count)?.saturating_add(head))?;
                Cursor::new(&bytes, "a block of chunks").expect(b"EADB")?;
                elements.take(&bytes[head as usize..], block.first)?;
            }
            Some(pages) => {
                let first = block.at.checked_add(head + SUM).ok_or_else(too_many)?;
                let step = elements.len(page)?.saturating_add(SUM);
                take_pages(file, &mut elements, first, step, page, block.count, block.first, pages).await?;
            }
        }
    }
    Ok(elements.chunks)
}
