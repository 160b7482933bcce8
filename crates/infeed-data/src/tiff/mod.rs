//! Reads a TIFF's directories: shape, layout, and position of the pixels. Pure arithmetic on bytes.
//!
//! It is here, below the codec that decodes TIFFs, because a dataset has to know channels and type before any record is
//! read.
//!
//! Supports TIFF 6.0 (Adobe, 1992) and BigTIFF (8-byte offsets). Memory is never allocated by what a header claims:
//! lists of strips stay in the file, are read one entry at a time, and have to be within the file.

mod samples;
mod stack;

use std::ops::Range;

use infeed_core::{
    error::{Error, Result},
    types::{DType, ImageInfo},
};
use smallvec::SmallVec;

pub use self::samples::{Colours, Stored};
use self::samples::{Said, corrupt, palette, unsupported};

/// The image of a TIFF: one page, or one page per channel.
#[derive(Clone, Debug)]
pub struct Tiff {
    /// The result of decoding: planar if the file is, or if channels are pages.
    #[doc(hidden)]
    pub info: ImageInfo,
    /// Whether values of more than one byte are stored with the highest byte first.
    #[doc(hidden)]
    pub big_endian: bool,
    /// How values are stored.
    #[doc(hidden)]
    pub stored: Stored,
    /// The meaning of values, by the first page.
    #[doc(hidden)]
    pub colours: Colours,
    /// The orientation of the first page, 1 to 8 as in EXIF.
    #[doc(hidden)]
    pub orientation: u16,
    /// One, or one for each channel.
    #[doc(hidden)]
    pub pages: SmallVec<[Page; 1]>,
}

/// One directory: how its pixels are divided into chunks, and where these are.
#[derive(Clone, Debug)]
pub struct Page {
    #[doc(hidden)]
    pub compression: Compression,
    #[doc(hidden)]
    pub predictor: Predictor,
    /// Width of a chunk; the whole width for strips.
    pub chunk_width: u32,
    /// Height of a chunk; the last strip may be lower, tiles never are.
    pub chunk_height: u32,
    pub(crate) tiled: bool,
    /// The range of its JPEG tables, stored as a JPEG without an image.
    pub jpeg_tables: Option<Range<usize>>,
    /// Whether its JPEGs hold YCbCr, which is converted to RGB.
    pub ycbcr: bool,
    /// Whether its first three values are red, green and blue.
    pub(crate) rgb: bool,
    offsets: Numbers,
    counts: Option<Numbers>,
    /// Width, height, samples per pixel, planes.
    shape: [u32; 4],
    stored: Stored,
}

/// How the bytes of a chunk are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lzw,
    Deflate,
    PackBits,
    Zstd,
    /// Each chunk is a JPEG, perhaps without its tables.
    Jpeg,
}

/// How values were transformed before compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictor {
    None,
    /// Each value minus its left neighbour.
    Horizontal,
    /// Bytes of floats ordered by significance, each minus its left neighbour.
    Float,
}

/// Whether a file begins like a TIFF.
pub fn is_tiff(head: &[u8]) -> bool {
    matches!(head, [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..])
}

/// A file with more directories than possible channels is not an image. The limit also ends a cyclic chain.
const MOST_PAGES: usize = 255;

/// The orientation of the first page, 1 to 8 as in EXIF, whose data are a small TIFF. `None` if there is none, or the
/// bytes are damaged.
pub(crate) fn orientation_of(tiff: &[u8]) -> Option<u64> {
    // BigTIFF has its offsets elsewhere.
    let plain = is_tiff(tiff) && tiff[2].max(tiff[3]) == 42;
    let file = File { bytes: tiff, big_endian: tiff.first() == Some(&b'M'), wide: false };
    let (directory, _) = file.directory(file.uint(4, 4).filter(|_| plain)?).ok()?;
    directory.number(Tag::Orientation, 1).ok()
}

/// Reads all directories. The pixels that they point to are within the file.
///
/// # Errors
/// `Corrupt` if the header contradicts itself or the file's length, `Unsupported` for kinds of TIFF that are not read.
pub fn parse_tiff(bytes: &[u8]) -> Result<Tiff> {
    if !is_tiff(bytes) {
        return Err(corrupt("no TIFF header"));
    }
    let big_endian = bytes[0] == b'M';
    let wide = bytes[2].max(bytes[3]) == 43;
    let file = File { bytes, big_endian, wide };
    // BigTIFF repeats the size of its offsets.
    if wide && (file.uint(4, 2) != Some(8) || file.uint(6, 2) != Some(0)) {
        return Err(corrupt("a BigTIFF header with offsets of other than 8 bytes"));
    }
    let mut next = file.uint(if wide { 8 } else { 4 }, file.word()).ok_or_else(|| ends(bytes))?;
    let mut seen: SmallVec<[u64; 4]> = SmallVec::new();
    let mut pages: SmallVec<[Page; 1]> = SmallVec::new();
    let mut colours = Colours::Plain;
    let mut orientation = 1;
    let mut description = None;
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
        // Skips smaller copies of a page, and its transparency masks.
        if directory.number(Tag::NewSubfileType, 0)? & 0b101 != 0 && !pages.is_empty() {
            continue;
        }
        let (page, of_page) = page(file, &directory)?;
        match pages.first() {
            None => {
                colours = of_page;
                // An invalid value rotates nothing.
                orientation = directory.number(Tag::Orientation, 1).map_or(1, |n| n.min(9) as u16);
                description = directory.find(Tag::Description);
                refuse_odd_stacks(&directory)?;
            }
            Some(first) if (first.shape, first.stored) != (page.shape, page.stored) => {
                let (a, b, n) = (first.describe(), page.describe(), seen.len());
                return Err(unsupported(format!("page {n} of {b} in a TIFF of {a}")));
            }
            Some(_) => {}
        }
        pages.push(page);
    }
    let Some(first) = pages.first() else { return Err(corrupt("a TIFF without a directory")) };
    let [width, height, samples, planes] = first.shape;
    let values = [width, height, samples].iter().fold(1u64, |all, side| all.saturating_mul(u64::from(*side)));
    let description = description.map_or(Ok(&[][..]), |entry| file.text(entry))?;
    stack::check(description, &stack::Pages { count: pages.len() as u64, values })?;
    let samples = if matches!(colours, Colours::Palette(_)) { 3 } else { samples };
    if pages.len() > 1 && samples > 1 {
        return Err(unsupported(format!("{} pages of {samples} channels each", pages.len()))
            .with_hint("store one page, or one page for each channel"));
    }
    let channels = u8::try_from(samples as usize * pages.len())
        .map_err(|_| unsupported(format!("{} channels", samples as usize * pages.len())))?;
    let planar = planes > 1 || pages.len() > 1;
    let info = ImageInfo { height, width, channels, dtype: first.stored.given(), planar };
    // Inversion is only for display; several channels and floats are numbers.
    if colours == Colours::Inverted && (channels > 1 || info.dtype == DType::F32) {
        colours = Colours::Plain;
    }
    let tiff = Tiff { info, big_endian, stored: first.stored, colours, orientation, pages };
    tiff.check_chunks(bytes)?;
    Ok(tiff)
}

/// An error for kinds that describe a stack by their own tags.
fn refuse_odd_stacks(directory: &Directory<'_>) -> Result<()> {
    // MetaMorph: the count is the number of planes, which are after the first without directories.
    let planes = directory.find(Tag::MetaMorph).map_or(1, |entry| entry.count);
    if planes > 1 {
        return Err(unsupported(format!("a MetaMorph stack of {planes} planes"))
            .with_hint("write each plane to its own file, or the stack as a volume in NRRD or NIfTI"));
    }
    Ok(())
}

impl Tiff {
    /// The same for an image of labels: palette indices instead of colours, and values of less than a byte as stored.
    /// In gray images whose 0 is white, single bits are inverted, as other readers do.
    #[must_use]
    pub fn labels(mut self) -> Self {
        if matches!(self.colours, Colours::Palette(_)) {
            (self.info.channels, self.colours) = (1, Colours::Plain);
        }
        if let Stored::Bits(bits) = self.stored {
            let most = u8::MAX >> (8 - bits);
            self.colours = Colours::Labels(if self.colours == Colours::Inverted { most } else { 0 });
        }
        self
    }

    /// Whether it is an image of colours, not of numbers.
    pub(crate) fn is_rgb(&self) -> bool {
        self.pages.iter().any(|page| page.rgb)
    }

    /// Bytes of one pixel, or of one value in a plane.
    #[doc(hidden)]
    pub fn pixel_bytes(&self) -> usize {
        let samples = if self.info.planar { 1 } else { usize::from(self.info.channels) };
        samples * self.info.dtype.size()
    }

    /// Number of planes that are stored one after another: 1 if pixels are interleaved.
    #[doc(hidden)]
    pub fn planes(&self) -> usize {
        if self.info.planar { usize::from(self.info.channels) } else { 1 }
    }

    /// The page of a plane, and the index of the plane's first chunk in it.
    #[doc(hidden)]
    pub fn plane(&self, plane: usize) -> (&Page, usize) {
        match &self.pages[..] {
            [page] => (page, plane * page.chunks_per_plane()),
            pages => (&pages[plane], 0),
        }
    }

    /// The most bytes of one decompressed chunk.
    #[doc(hidden)]
    pub fn chunk_bytes(&self) -> u64 {
        let of = |page: &Page| page.chunk_pitch().saturating_mul(page.chunk_height.min(self.rows_of(page)).into());
        self.pages.iter().map(of).max().unwrap_or(0)
    }

    fn rows_of(&self, page: &Page) -> u32 {
        if page.tiled { u32::MAX } else { self.info.height }
    }

    /// Rows in chunk row `n` of a page: those of its strip, or the full height of its tile, even outside the image.
    #[doc(hidden)]
    pub fn chunk_rows(&self, page: &Page, n: u32) -> u32 {
        let left = self.info.height - n * page.chunk_height;
        if page.tiled { page.chunk_height } else { page.chunk_height.min(left) }
    }

    /// All pixels as one range of the file, if they are stored there exactly as a decoder on this machine would return
    /// them.
    #[doc(hidden)]
    pub fn in_place(&self, bytes: &[u8]) -> Option<Range<usize>> {
        let swapped = self.info.dtype.size() > 1 && self.big_endian != cfg!(target_endian = "big");
        let as_stored = self.stored == Stored::Whole(self.info.dtype) && self.colours == Colours::Plain;
        if swapped || !as_stored {
            return None;
        }
        let mut whole: Option<Range<usize>> = None;
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

    /// Checks that each chunk is within the file and, if not compressed, long enough. So a truncated file is detected
    /// whatever part of it is read.
    fn check_chunks(&self, bytes: &[u8]) -> Result<()> {
        for page in &self.pages {
            let planes = page.shape[3] as usize;
            let needed = page.chunks_per_plane().saturating_mul(planes);
            // A chunk has at least one byte. Otherwise pages that share their lists could take unlimited time.
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
                        "a TIFF of {} bytes whose pixels (chunk {n} of {needed}) are beyond its end",
                        bytes.len()
                    )));
                };
                let rows = self.chunk_rows(page, (n % page.chunks_per_plane() / page.across()) as u32);
                let full = page.chunk_pitch().saturating_mul(rows.into());
                if page.compression == Compression::None && (chunk.len() as u64) < full {
                    return Err(corrupt(format!(
                        "a TIFF with {} bytes in chunk {n}, but {full} are needed",
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
        format!("{width}x{height} pixels ({samples} channels of {})", self.stored.name())
    }

    /// Number of interleaved values per pixel in a chunk.
    pub const fn chunk_samples(&self) -> usize {
        if self.shape[3] > 1 { 1 } else { self.shape[2] as usize }
    }

    /// Bytes of a row of a decompressed chunk.
    pub const fn chunk_pitch(&self) -> u64 {
        // At most 2^32 * 2^8 * 2^5.
        (self.chunk_width as u64 * self.chunk_samples() as u64 * self.stored.bits() as u64).div_ceil(8)
    }

    /// Number of tiles per row of tiles; 1 for strips.
    pub const fn across(&self) -> usize {
        self.shape[0].div_ceil(self.chunk_width) as usize
    }

    pub(crate) const fn chunks_per_plane(&self) -> usize {
        self.across().saturating_mul(self.shape[1].div_ceil(self.chunk_height) as usize)
    }

    /// The range of chunk `n`; `None` if it is beyond the file.
    pub fn chunk(&self, bytes: &[u8], big_endian: bool, n: usize) -> Option<Range<usize>> {
        let start = usize::try_from(self.offsets.get(bytes, big_endian, n)?).ok()?;
        let len = match &self.counts {
            Some(counts) => usize::try_from(counts.get(bytes, big_endian, n)?).ok()?,
            // Old writers omit the counts if they can be computed: one strip, not compressed.
            None => bytes.len().checked_sub(start)?,
        };
        let end = start.checked_add(len)?;
        (end <= bytes.len()).then_some(start..end)
    }
}

/// The tags that are used here.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tag {
    NewSubfileType,
    Width,
    Height,
    BitsPerSample,
    Compression,
    Photometric,
    FillOrder,
    Description,
    StripOffsets,
    Orientation,
    SamplesPerPixel,
    RowsPerStrip,
    StripCounts,
    Planar,
    Predictor,
    ColorMap,
    TileWidth,
    TileHeight,
    TileOffsets,
    TileCounts,
    ExtraSamples,
    SampleFormat,
    JpegTables,
    MetaMorph,
}

/// Their numbers, ascending, in the order of [`Tag`].
const TAGS: [u16; 24] = [
    254, 256, 257, 258, 259, 262, 266, 270, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339, 347,
    33629,
];

/// The layout of a directory's pixels, and their meaning.
fn page(file: File<'_>, directory: &Directory<'_>) -> Result<(Page, Colours)> {
    let need = |tag, name: &str| match directory.number(tag, 0)? {
        0 => Err(corrupt(format!("a TIFF with a {name} of 0"))),
        n => u32::try_from(n).map_err(|_| unsupported(format!("a {name} of {n}"))),
    };
    let (width, height) = (need(Tag::Width, "width")?, need(Tag::Height, "height")?);
    let samples = directory.number(Tag::SamplesPerPixel, 1)?;
    let samples = u8::try_from(samples).ok().filter(|n| *n > 0).ok_or_else(|| {
        unsupported(format!("{samples} samples in a pixel")).with_hint("infeed reads images of 1 to 255 channels")
    })?;
    let stored = Stored::of(directory.same(Tag::BitsPerSample, 1)?, directory.same(Tag::SampleFormat, 1)?)?;
    let compression = match directory.number(Tag::Compression, 1)? {
        1 => Compression::None,
        5 => Compression::Lzw,
        7 => Compression::Jpeg,
        8 | 32946 => Compression::Deflate,
        32773 => Compression::PackBits,
        // The first number was in use before the second was assigned.
        34926 | 50000 => Compression::Zstd,
        other => {
            let name = match other {
                2..=4 => " (fax)",
                6 => " (JPEG of TIFF 6.0, which was withdrawn)",
                33003 | 33005 | 34712 => " (JPEG 2000)",
                34661 => " (JBIG)",
                34887 => " (LERC)",
                34925 => " (LZMA)",
                34927 | 50001 => " (WebP)",
                34933 | 34934 => " (PNG or JPEG XR)",
                50002 | 52546 => " (JPEG XL)",
                _ => "",
            };
            return Err(unsupported(format!("compression {other}{name}"))
                .with_hint("store it uncompressed, or with LZW, Deflate, PackBits, Zstandard or JPEG"));
        }
    };
    if compression != Compression::Jpeg && directory.number(Tag::FillOrder, 1)? != 1 {
        return Err(unsupported("bits in reverse order"));
    }
    let predictor = match (directory.number(Tag::Predictor, 1)?, compression) {
        // As in libtiff: only with compressions that can benefit.
        (1, _) | (_, Compression::None | Compression::PackBits | Compression::Jpeg) => Predictor::None,
        (2, _) if matches!(stored, Stored::Whole(_)) => Predictor::Horizontal,
        (3, _) if matches!(stored, Stored::Whole(DType::F16 | DType::F32 | DType::F64)) => Predictor::Float,
        (other, _) => return Err(unsupported(format!("predictor {other} of values of {}", stored.name()))),
    };
    let photometric = directory.number(Tag::Photometric, 1)?;
    let jpeg = compression == Compression::Jpeg;
    if jpeg && stored != Stored::Whole(DType::U8) {
        return Err(unsupported(format!("compression 7 (JPEG) of values of {}", stored.name())));
    }
    let said = Said { photometric, samples, stored, jpeg };
    let colours = match said.colours()? {
        None => file.palette(directory, stored)?,
        Some(colours) if extra_samples(directory)?.contains(&1) => premultiplied(directory, colours, samples)?,
        Some(_) if photometric == 0 => Colours::Inverted,
        Some(_) => Colours::Plain,
    };
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
        return Err(corrupt("a TIFF with strips of 0 rows"));
    }
    let offsets = directory.find(offsets).ok_or_else(|| corrupt("a TIFF without the offsets of its pixels"))?;
    let counts = directory.find(counts);
    let shape = [width, height, u32::from(samples), u32::from(planes)];
    let page = Page {
        compression,
        predictor,
        chunk_width,
        chunk_height,
        tiled,
        jpeg_tables: directory.find(Tag::JpegTables).filter(|_| jpeg).map(|entry| file.bytes_at(entry)).transpose()?,
        ycbcr: photometric == 6,
        rgb: matches!(photometric, 2 | 6),
        offsets: file.numbers(offsets)?,
        counts: counts.map(|c| file.numbers(c)).transpose()?,
        shape,
        stored,
    };
    if page.counts.is_none() && (compression != Compression::None || page.offsets.len > 1) {
        return Err(corrupt("a TIFF without the byte counts of its pixels"));
    }
    Ok((page, colours))
}

/// The meaning of the samples after the colours: 0 unspecified, 1 an alpha with premultiplied colours, 2 an alpha
/// without.
fn extra_samples(directory: &Directory<'_>) -> Result<SmallVec<[u64; 4]>> {
    let Some(entry) = directory.find(Tag::ExtraSamples) else { return Ok(SmallVec::new()) };
    let File { bytes, big_endian, .. } = directory.file;
    let numbers = directory.file.numbers(entry)?;
    // A pixel has at most 255 samples.
    Ok((0..numbers.len.min(255)).map_while(|n| numbers.get(bytes, big_endian, n)).collect())
}

/// Colours that are premultiplied by their alpha, the first sample after them.
fn premultiplied(directory: &Directory<'_>, colours: u8, samples: u8) -> Result<Colours> {
    let extra = extra_samples(directory)?;
    if extra.len() != usize::from(samples.saturating_sub(colours))
        || extra.iter().position(|kind| *kind == 1) != Some(0)
    {
        let what = format!("a premultiplied alpha among {} samples after {colours} of colour", extra.len());
        return Err(unsupported(what).with_hint("store the alpha directly after the colours, not premultiplied"));
    }
    Ok(Colours::Premultiplied(colours))
}

/// A file, and the encoding of its numbers.
#[derive(Clone, Copy)]
struct File<'a> {
    bytes: &'a [u8],
    big_endian: bool,
    /// Whether it is a BigTIFF.
    wide: bool,
}

/// Entries of one directory.
struct Directory<'a> {
    file: File<'a>,
    /// In the order of [`Tag`].
    entries: [Option<Entry>; TAGS.len()],
}

/// One entry: the type, number and position of its values.
#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    kind: u16,
    count: u64,
    /// The position of the values if they fit into the entry, otherwise of their offset.
    at: usize,
}

/// A list of integers in the file.
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

/// An integer of 1, 2, 4 or 8 bytes.
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
        // BigTIFF allows more, but no file has more. This limits the cost of a chain of directories.
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

    /// The values of an entry, which have to be within the file.
    fn numbers(&self, entry: Entry) -> Result<Numbers> {
        // BYTE, SHORT, LONG, IFD, LONG8, IFD8
        let size = match entry.kind {
            1 => 1,
            3 => 2,
            4 | 13 => 4,
            16 | 18 => 8,
            _ => return Err(corrupt(format!("a TIFF whose tag {} has values that are not integers", entry.tag))),
        };
        self.values(entry, size)
    }

    /// The range of text and other bytes.
    fn bytes_at(&self, entry: Entry) -> Result<Range<usize>> {
        // BYTE, ASCII, SBYTE, UNDEFINED
        if !matches!(entry.kind, 1 | 2 | 6 | 7) {
            return Err(corrupt(format!("a TIFF whose tag {} has values that are not bytes", entry.tag)));
        }
        let Numbers { at, len, .. } = self.values(entry, 1)?;
        Ok(at..at + len)
    }

    /// The description of a file; empty if it is beyond the file.
    fn text(&self, entry: Entry) -> Result<&'a [u8]> {
        Ok(self.bytes_at(entry).ok().and_then(|at| self.bytes.get(at)).unwrap_or_default())
    }

    /// The colours of a page of indices.
    fn palette(&self, directory: &Directory<'_>, stored: Stored) -> Result<Colours> {
        let entry =
            directory.find(Tag::ColorMap).ok_or_else(|| corrupt("a TIFF of palette indices without its palette"))?;
        let numbers = self.numbers(entry)?;
        let entries = 3usize << stored.bits();
        if numbers.len != entries {
            return Err(corrupt(format!("a TIFF with a palette of {} values, but {entries} are needed", numbers.len)));
        }
        let values: Vec<u16> =
            (0..entries).map_while(|n| numbers.get(self.bytes, self.big_endian, n)).map(|value| value as u16).collect();
        Ok(palette(&values))
    }

    /// `count` values of `size` bytes.
    fn values(&self, entry: Entry, size: usize) -> Result<Numbers> {
        let wrong = |what: &str| corrupt(format!("a TIFF whose tag {} has {what}", entry.tag));
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

    /// The only number of a tag, or its default if the tag is missing.
    fn number(&self, tag: Tag, default: u64) -> Result<u64> {
        let Some(entry) = self.find(tag) else { return Ok(default) };
        let numbers = self.file.numbers(entry)?;
        numbers
            .get(self.file.bytes, self.file.big_endian, 0)
            .ok_or_else(|| corrupt(format!("a TIFF whose tag {} has no value", TAGS[tag as usize])))
    }

    /// The number of a tag that has one per sample, all equal.
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

fn ends(bytes: &[u8]) -> Error {
    corrupt(format!("a TIFF that ends after {} bytes", bytes.len()))
}
