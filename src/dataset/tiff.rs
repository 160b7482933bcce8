//! What a TIFF's directories say: shape, layout, and where the pixels lie. Pure arithmetic on bytes.
//!
//! Here, below the codec that decodes them, because a dataset has to know channels and type before any record is read.
//!
//! TIFF 6.0 (Adobe, 1992) and BigTIFF (8-byte offsets). Nothing is allocated by what a header claims: lists of strips
//! stay in the file and are read one entry at a time, and they must lie within the file.
#![cfg_attr(not(feature = "tiff"), allow(dead_code, reason = "without the codec only shape and type are asked for"))]

use smallvec::SmallVec;

use crate::{
    error::{Error, ErrorKind, Result},
    types::{DType, ImageInfo},
};

/// A TIFF's image: one page, or one page for each channel.
#[derive(Clone, Debug)]
pub(crate) struct Tiff {
    /// What decoding gives: planar when the file is, or when channels are pages.
    pub(crate) info: ImageInfo,
    /// Whether values of more than a byte are stored with the highest byte first.
    pub(crate) big_endian: bool,
    /// Whether 0 is white.
    pub(crate) inverted: bool,
    /// One, or one for each channel.
    pub(crate) pages: SmallVec<[Page; 1]>,
}

/// One directory: how its pixels are cut into chunks, and where those lie.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) compression: Compression,
    pub(crate) predictor: Predictor,
    /// Chunks are this wide; the whole width for strips.
    pub(crate) chunk_width: u32,
    /// Chunks are this high; the last strip may be lower, tiles never are.
    pub(crate) chunk_height: u32,
    pub(crate) tiled: bool,
    offsets: Numbers,
    counts: Option<Numbers>,
    /// Width, height, samples per pixel, planes.
    shape: [u32; 4],
    dtype: DType,
}

/// How bytes of a chunk are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
}

/// What was done to values before they were packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Predictor {
    None,
    /// Each value less its left neighbour.
    Horizontal,
    /// Bytes of floats by significance, each less its left neighbour.
    Float,
}

/// Whether a file begins as a TIFF does.
pub(crate) fn is_tiff(head: &[u8]) -> bool {
    matches!(head, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

/// More directories than channels are no image; also ends a chain that never does.
const MOST_PAGES: usize = 255;

/// Reads all directories. The pixels that they point to lie within the file.
///
/// # Errors
/// `Corrupt` for what contradicts itself or the file's length, `Unsupported` for kinds of TIFF that are not read.
pub(crate) fn parse_tiff(bytes: &[u8]) -> Result<Tiff> {
    if !is_tiff(bytes) {
        return Err(corrupt("no TIFF header"));
    }
    let big_endian = bytes[0] == b'M';
    let wide = bytes[2].max(bytes[3]) == 43;
    let file = File { bytes, big_endian, wide };
    // BigTIFF says again how long its offsets are.
    if wide && (file.uint(4, 2) != Some(8) || file.uint(6, 2) != Some(0)) {
        return Err(corrupt("a BigTIFF header with offsets of other than 8 bytes"));
    }
    let mut next = file.uint(if wide { 8 } else { 4 }, file.word()).ok_or_else(|| ends(bytes))?;
    let mut seen: SmallVec<[u64; 4]> = SmallVec::new();
    let mut pages: SmallVec<[Page; 1]> = SmallVec::new();
    let mut inverted = false;
    while next != 0 {
        if seen.contains(&next) {
            return Err(corrupt("directories that lead back to an earlier one"));
        }
        if seen.len() > 2 * MOST_PAGES {
            return Err(unsupported(format!("more than {MOST_PAGES} pages")));
        }
        seen.push(next);
        let (directory, after) = file.directory(next)?;
        next = after;
        // Smaller copies of a page, and masks of what is transparent in it.
        if directory.number(Tag::NewSubfileType, 0)? & 0b101 != 0 && !pages.is_empty() {
            continue;
        }
        let (page, is_inverted) = page(file, &directory)?;
        match pages.first() {
            None => inverted = is_inverted,
            Some(first) if (first.shape, first.dtype) != (page.shape, page.dtype) => {
                let (a, b, n) = (first.describe(), page.describe(), seen.len());
                return Err(unsupported(format!("page {n} of {b} in a TIFF of {a}")));
            }
            Some(_) => {}
        }
        pages.push(page);
    }
    let Some(first) = pages.first() else { return Err(corrupt("a TIFF without a directory")) };
    let [width, height, samples, planes] = first.shape;
    if pages.len() > 1 && samples > 1 {
        return Err(unsupported(format!("{} pages of {samples} channels each", pages.len()))
            .hint("store one page, or one page for each channel"));
    }
    let channels = u8::try_from(samples as usize * pages.len())
        .map_err(|_| unsupported(format!("{} channels", samples as usize * pages.len())))?;
    let planar = planes > 1 || pages.len() > 1;
    let info = ImageInfo { height, width, channels, dtype: first.dtype, planar };
    // A white 0 is about looks; several channels and floats are numbers.
    let inverted = inverted && channels == 1 && info.dtype != DType::F32;
    let tiff = Tiff { info, big_endian, inverted, pages };
    tiff.check_chunks(bytes)?;
    Ok(tiff)
}

impl Tiff {
    /// Bytes of one pixel within a chunk.
    pub(crate) fn pixel_bytes(&self) -> usize {
        let samples = if self.info.planar { 1 } else { usize::from(self.info.channels) };
        samples * self.info.dtype.size()
    }

    /// Planes that are stored one after another: 1 when pixels are interleaved.
    pub(crate) fn planes(&self) -> usize {
        if self.info.planar { usize::from(self.info.channels) } else { 1 }
    }

    /// The page of a plane, and the index of the plane's first chunk in it.
    pub(crate) fn plane(&self, plane: usize) -> (&Page, usize) {
        match &self.pages[..] {
            [page] => (page, plane * page.chunks_per_plane()),
            pages => (&pages[plane], 0),
        }
    }

    /// Most bytes of one unpacked chunk.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        let of = |page: &Page| u64::from(page.chunk_width) * u64::from(page.chunk_height.min(self.rows_of(page)));
        self.pages.iter().map(of).max().unwrap_or(0).saturating_mul(self.pixel_bytes() as u64)
    }

    fn rows_of(&self, page: &Page) -> u32 {
        if page.tiled { u32::MAX } else { self.info.height }
    }

    /// Rows in chunk row `n` of a page: those of its strip, or of its tile whatever lies outside the image.
    pub(crate) fn chunk_rows(&self, page: &Page, n: u32) -> u32 {
        let left = self.info.height - n * page.chunk_height;
        if page.tiled { page.chunk_height } else { page.chunk_height.min(left) }
    }

    /// All pixels as one stretch of the file, when they lie there as a decoder of this machine would give them.
    pub(crate) fn in_place(&self, bytes: &[u8]) -> Option<std::ops::Range<usize>> {
        let swapped = self.info.dtype.size() > 1 && self.big_endian != cfg!(target_endian = "big");
        if swapped || self.inverted {
            return None;
        }
        let mut whole: Option<std::ops::Range<usize>> = None;
        for plane in 0..self.planes() {
            let (page, first) = self.plane(plane);
            if page.compression != Compression::None || page.tiled {
                return None;
            }
            for n in 0..page.chunks_per_plane() {
                let chunk = page.chunk(bytes, self.big_endian, first + n)?;
                let len = self.chunk_rows(page, n as u32) as usize * self.info.width as usize * self.pixel_bytes();
                let (start, end) = (chunk.start, chunk.start.checked_add(len)?);
                whole = match whole {
                    _ if end > chunk.end => return None,
                    None => Some(start..end),
                    Some(before) if before.end == start => Some(before.start..end),
                    Some(_) => return None,
                };
            }
        }
        whole.filter(|whole| whole.len() as u64 == self.info.len_bytes() && whole.end <= bytes.len())
    }

    /// Each chunk lies within the file, and holds enough when it is not packed: a file that was cut is found out
    /// whatever part of it is looked at.
    fn check_chunks(&self, bytes: &[u8]) -> Result<()> {
        for page in &self.pages {
            let planes = page.shape[3] as usize;
            let needed = page.chunks_per_plane().saturating_mul(planes);
            // A chunk has a byte at least. Pages that share their lists would cost time without end.
            if needed.saturating_mul(self.pages.len()) > bytes.len() {
                return Err(corrupt(format!("a TIFF of {} bytes with {needed} chunks of pixels", bytes.len())));
            }
            let there = page.offsets.len.min(page.counts.map_or(usize::MAX, |c| c.len));
            if there < needed {
                return Err(corrupt(format!("a TIFF with {there} of its {needed} chunks of pixels")));
            }
            for n in 0..needed {
                let Some(chunk) = page.chunk(bytes, self.big_endian, n) else {
                    return Err(corrupt(format!(
                        "a TIFF of {} bytes whose pixels (chunk {n} of {needed}) lie beyond its end",
                        bytes.len()
                    )));
                };
                let rows = self.chunk_rows(page, (n % page.chunks_per_plane() / page.across()) as u32);
                let pixels = u64::from(rows) * u64::from(page.chunk_width);
                let full = pixels.saturating_mul(self.pixel_bytes() as u64);
                if page.compression == Compression::None && (chunk.len() as u64) < full {
                    return Err(corrupt(format!(
                        "a TIFF with {} bytes in chunk {n}, where {full} are needed",
                        chunk.len()
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Page {
    fn describe(&self) -> String {
        let [width, height, samples, _] = self.shape;
        format!("{width}x{height} pixels ({samples} channels of {})", self.dtype)
    }

    /// Tiles side by side; 1 for strips.
    pub(crate) const fn across(&self) -> usize {
        self.shape[0].div_ceil(self.chunk_width) as usize
    }

    pub(crate) const fn chunks_per_plane(&self) -> usize {
        self.across().saturating_mul(self.shape[1].div_ceil(self.chunk_height) as usize)
    }

    /// Where chunk `n` lies; `None` beyond the file.
    pub(crate) fn chunk(&self, bytes: &[u8], big_endian: bool, n: usize) -> Option<std::ops::Range<usize>> {
        let start = usize::try_from(self.offsets.get(bytes, big_endian, n)?).ok()?;
        let len = match &self.counts {
            Some(counts) => usize::try_from(counts.get(bytes, big_endian, n)?).ok()?,
            // Old writers leave the counts out where they can be computed: one strip, not packed.
            None => bytes.len().checked_sub(start)?,
        };
        let end = start.checked_add(len)?;
        (end <= bytes.len()).then_some(start..end)
    }
}

/// The tags that matter here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    NewSubfileType,
    Width,
    Height,
    BitsPerSample,
    Compression,
    Photometric,
    FillOrder,
    StripOffsets,
    SamplesPerPixel,
    RowsPerStrip,
    StripCounts,
    Planar,
    Predictor,
    TileWidth,
    TileHeight,
    TileOffsets,
    TileCounts,
    SampleFormat,
}

/// Their numbers, ascending, in the order of [`Tag`].
const TAGS: [u16; 18] = [254, 256, 257, 258, 259, 262, 266, 273, 277, 278, 279, 284, 317, 322, 323, 324, 325, 339];

/// One directory's description of its pixels, and whether 0 is white.
fn page(file: File<'_>, directory: &Directory<'_>) -> Result<(Page, bool)> {
    let need = |tag, name: &str| match directory.number(tag, 0)? {
        0 => Err(corrupt(format!("a TIFF with a {name} of 0"))),
        n => u32::try_from(n).map_err(|_| unsupported(format!("a {name} of {n}"))),
    };
    let (width, height) = (need(Tag::Width, "width")?, need(Tag::Height, "height")?);
    let samples = directory.number(Tag::SamplesPerPixel, 1)?;
    let samples = u8::try_from(samples).ok().filter(|n| *n > 0).ok_or_else(|| {
        unsupported(format!("{samples} samples in a pixel")).hint("infeed reads images of 1 to 255 channels")
    })?;
    let dtype = sample_type(directory)?;
    let compression = match directory.number(Tag::Compression, 1)? {
        1 => Compression::None,
        5 => Compression::Lzw,
        8 | 32946 => Compression::Deflate,
        32773 => Compression::PackBits,
        other => {
            let name = match other {
                2..=4 => " (fax)",
                6 | 7 => " (JPEG)",
                34887 => " (LERC)",
                34925 => " (LZMA)",
                50000 => " (Zstandard)",
                50001 => " (WebP)",
                _ => "",
            };
            return Err(unsupported(format!("compression {other}{name}"))
                .hint("store it plain, or with LZW, Deflate or PackBits"));
        }
    };
    if directory.number(Tag::FillOrder, 1)? != 1 {
        return Err(unsupported("bits in reverse order"));
    }
    let predictor = match (directory.number(Tag::Predictor, 1)?, compression) {
        // As libtiff: only where the compression is of a kind that gains by it.
        (1, _) | (_, Compression::None | Compression::PackBits) => Predictor::None,
        (2, _) => Predictor::Horizontal,
        (3, _) if dtype == DType::F32 => Predictor::Float,
        (other, _) => return Err(unsupported(format!("predictor {other} of {dtype} values"))),
    };
    let photometric = directory.number(Tag::Photometric, 1)?;
    if let 3 | 6 = photometric {
        let name = if photometric == 3 { "a palette" } else { "YCbCr colours" };
        return Err(unsupported(format!("a TIFF with {name}")).hint("convert it to RGB or gray"));
    }
    let planes = if directory.number(Tag::Planar, 1)? == 2 { samples } else { 1 };
    let tiled = directory.find(Tag::TileWidth).is_some();
    let (chunk_width, chunk_height, offsets, counts) = if tiled {
        let sides = (need(Tag::TileWidth, "tile width")?, need(Tag::TileHeight, "tile height")?);
        (sides.0, sides.1, Tag::TileOffsets, Tag::TileCounts)
    } else {
        let rows = directory.number(Tag::RowsPerStrip, u64::from(u32::MAX))?.min(u64::from(height));
        (width, rows as u32, Tag::StripOffsets, Tag::StripCounts)
    };
    if chunk_height == 0 {
        return Err(corrupt("a TIFF with strips of no rows"));
    }
    let offsets = directory.find(offsets).ok_or_else(|| corrupt("a TIFF that does not say where its pixels are"))?;
    let counts = directory.find(counts);
    let shape = [width, height, u32::from(samples), u32::from(planes)];
    let page = Page {
        compression,
        predictor,
        chunk_width,
        chunk_height,
        tiled,
        offsets: file.numbers(offsets)?,
        counts: counts.map(|c| file.numbers(c)).transpose()?,
        shape,
        dtype,
    };
    if page.counts.is_none() && (compression != Compression::None || page.offsets.len > 1) {
        return Err(corrupt("a TIFF that does not say how long its pixels are"));
    }
    Ok((page, photometric == 0))
}

fn sample_type(directory: &Directory<'_>) -> Result<DType> {
    let bits = directory.same(Tag::BitsPerSample, 1)?;
    // 4: nobody said what it is.
    match (bits, directory.same(Tag::SampleFormat, 1)?) {
        (8, 1 | 4) => Ok(DType::U8),
        (16, 1 | 4) => Ok(DType::U16),
        (32, 3) => Ok(DType::F32),
        (bits, format) => {
            let name = match format {
                1 | 4 => "unsigned",
                2 => "signed",
                3 => "floating-point",
                _ => "unknown",
            };
            Err(unsupported(format!("TIFF values of {bits} bits ({name})")).hint("convert them to u8, u16 or f32"))
        }
    }
}

/// A file and how its numbers are written.
#[derive(Clone, Copy)]
struct File<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    /// BigTIFF.
    wide: bool,
}

/// Entries of one directory.
struct Directory<'a> {
    file: File<'a>,
    /// In the order of [`Tag`].
    entries: [Option<Entry>; TAGS.len()],
}

/// One entry: the type of its values, how many, and where they are.
#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    kind: u16,
    count: u64,
    /// Where the values are when they fit the entry, else where their offset is.
    at: usize,
}

/// A list of whole numbers in the file.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    at: usize,
    size: usize,
    len: usize,
}

impl Numbers {
    fn get(&self, bytes: &[u8], big_endian: bool, n: usize) -> Option<u64> {
        if n >= self.len {
            return None;
        }
        uint(bytes, big_endian, self.at.checked_add(n.checked_mul(self.size)?)?, self.size)
    }
}

/// A whole number of 1, 2, 4 or 8 bytes.
#[inline]
fn uint(bytes: &[u8], big_endian: bool, at: usize, size: usize) -> Option<u64> {
    let bytes = bytes.get(at..)?;
    Some(match (size, big_endian) {
        (1, _) => u64::from(*bytes.first()?),
        (2, false) => u64::from(u16::from_le_bytes(*bytes.first_chunk()?)),
        (2, true) => u64::from(u16::from_be_bytes(*bytes.first_chunk()?)),
        (4, false) => u64::from(u32::from_le_bytes(*bytes.first_chunk()?)),
        (4, true) => u64::from(u32::from_be_bytes(*bytes.first_chunk()?)),
        (_, false) => u64::from_le_bytes(*bytes.first_chunk()?),
        (_, true) => u64::from_be_bytes(*bytes.first_chunk()?),
    })
}

impl<'a> File<'a> {
    const fn word(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    fn uint(&self, at: usize, size: usize) -> Option<u64> {
        uint(self.bytes, self.big_endian, at, size)
    }

    /// The directory at `offset`, and the offset of the next one.
    fn directory(self, offset: u64) -> Result<(Directory<'a>, u64)> {
        let outside = || corrupt(format!("a TIFF directory at byte {offset} of {}", self.bytes.len()));
        let at = usize::try_from(offset).map_err(|_| outside())?;
        let (head, size) = if self.wide { (8, 20) } else { (2, 12) };
        // BigTIFF could have more, and nobody does: it bounds what a chain of directories costs.
        let count = self.uint(at, head).filter(|n| *n <= u64::from(u16::MAX)).ok_or_else(outside)? as usize;
        let first = at.checked_add(head).ok_or_else(outside)?;
        let end = first.checked_add(count * size).ok_or_else(outside)?;
        let next = self.uint(end, self.word()).ok_or_else(outside)?;
        let mut directory = Directory { file: self, entries: [None; TAGS.len()] };
        for at in (first..end).step_by(size) {
            let number = |at, size| self.uint(at, size).ok_or_else(outside);
            let Ok(known) = TAGS.binary_search(&(number(at, 2)? as u16)) else { continue };
            let (kind, count) = (number(at + 2, 2)? as u16, number(at + 4, self.word())?);
            let entry = Entry { tag: TAGS[known], kind, count, at: at + 4 + self.word() };
            directory.entries[known].get_or_insert(entry);
        }
        Ok((directory, next))
    }

    /// The values of an entry, which lie within the file.
    fn numbers(&self, entry: Entry) -> Result<Numbers> {
        let wrong = |what: &str| corrupt(format!("a TIFF whose tag {} has {what}", entry.tag));
        // BYTE, SHORT, LONG, IFD, LONG8, IFD8
        let size = match entry.kind {
            1 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            _ => return Err(wrong("values that are no whole numbers")),
        };
        let len = usize::try_from(entry.count).map_err(|_| wrong("more values than the file has bytes"))?;
        let bytes = len.checked_mul(size).ok_or_else(|| wrong("more values than the file has bytes"))?;
        let at = if bytes <= self.word() {
            entry.at
        } else {
            let at = self.uint(entry.at, self.word()).and_then(|at| usize::try_from(at).ok());
            at.ok_or_else(|| wrong("values beyond the end"))?
        };
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes.len());
        end.ok_or_else(|| wrong("values beyond the end"))?;
        Ok(Numbers { at, size, len })
    }
}

impl Directory<'_> {
    const fn find(&self, tag: Tag) -> Option<Entry> {
        self.entries[tag as usize]
    }

    /// The one number of a tag, or what it means when it is not there.
    fn number(&self, tag: Tag, default: u64) -> Result<u64> {
        let Some(entry) = self.find(tag) else { return Ok(default) };
        let numbers = self.file.numbers(entry)?;
        numbers
            .get(self.file.bytes, self.file.big_endian, 0)
            .ok_or_else(|| corrupt(format!("a TIFF whose tag {} has no value", TAGS[tag as usize])))
    }

    /// The number of a tag that has one for each sample, all the same.
    fn same(&self, tag: Tag, default: u64) -> Result<u64> {
        let Some(entry) = self.find(tag) else { return Ok(default) };
        let numbers = self.file.numbers(entry)?;
        let get = |n| numbers.get(self.file.bytes, self.file.big_endian, n);
        let first = get(0).ok_or_else(|| corrupt(format!("a TIFF whose tag {} has no value", TAGS[tag as usize])))?;
        // A pixel has at most 255 samples.
        match (1..numbers.len.min(255)).all(|n| get(n) == Some(first)) {
            true => Ok(first),
            false => Err(unsupported("a TIFF whose channels differ in type")),
        }
    }
}

fn corrupt(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::corrupt(what).hint("fetch the object again or set on_bad_sample(Skip)")
}

fn unsupported(what: impl Into<std::borrow::Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Unsupported, what).hint("convert the file or set on_bad_sample(Skip)")
}

fn ends(bytes: &[u8]) -> Error {
    corrupt(format!("a TIFF that ends after {} bytes", bytes.len()))
}
