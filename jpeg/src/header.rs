//! The part of a file before and between its scans: sizes, colour, tables, and where the data begins.

#![forbid(unsafe_code)]

use std::{fmt, ops::Range};

use smallvec::SmallVec;

use crate::{
    error::{Error, Result},
    orientation::Orientation,
};

/// In a progressive file, about this many blocks are read from all scans before the next blocks; at least one row of
/// units. It is large enough that switching between scans costs little, and small enough that the blocks stay in the
/// cache.
pub(crate) const BAND_BLOCKS: usize = 2000;
/// Bytes for each block: 64 coefficients, the first one again, and a record of the others.
const BAND_BLOCK_BYTES: u64 = 128 + 2 + 32;

pub(crate) const SOI: u8 = 0xd8;
pub(crate) const EOI: u8 = 0xd9;
pub(crate) const SOS: u8 = 0xda;
pub(crate) const DQT: u8 = 0xdb;
pub(crate) const DHT: u8 = 0xc4;
pub(crate) const DRI: u8 = 0xdd;
const DAC: u8 = 0xcc;
const APP0: u8 = 0xe0;
const APP1: u8 = 0xe1;
pub(crate) const APP14: u8 = 0xee;

/// The colour space of a frame's components, by libjpeg's rule for markers that contradict each other.
///
/// ```
/// # let mut file = Vec::new();
/// # jpeg_encoder::Encoder::new(&mut file, 80).encode(&[120; 3 * 32 * 16], 32, 16, jpeg_encoder::ColorType::Rgb)?;
/// use infeed_jpeg::{Colour, Header};
///
/// let header = Header::parse(&file)?;
/// assert_eq!(header.colour(), Colour::YCbCr);
/// // Whatever the stored colour space, pixels are RGB.
/// assert_eq!(header.channels(), 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Colour {
    /// One component.
    Gray,
    /// JFIF's colour space, used by nearly all files.
    YCbCr,
    /// Red, green, blue as they are.
    Rgb,
    /// CMYK, stored inverted, as Adobe's programs write it; the other kind is very rare.
    Cmyk,
    /// CMYK whose first three components are stored as YCbCr.
    Ycck,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Component {
    pub(crate) id: u8,
    /// Sampling factors.
    pub(crate) across: u8,
    pub(crate) down: u8,
    /// Quantisation table.
    pub(crate) table: u8,
}

/// The content of the frame header.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) progressive: bool,
    pub(crate) height: u16,
    pub(crate) width: u16,
    pub(crate) components: SmallVec<[Component; 4]>,
}

impl Frame {
    /// The largest sampling factors, down and across.
    fn most(&self) -> [u8; 2] {
        let most = |of: fn(&Component) -> u8| self.components.iter().map(of).max().unwrap_or(1);
        [most(|c| c.down), most(|c| c.across)]
    }

    /// Whether no component has more values than the first, in either direction.
    pub(crate) fn is_finest_first(&self) -> bool {
        self.components.first().is_some_and(|c| [c.down, c.across] == self.most())
    }

    /// Whether the number of a component's values does not divide that of the finest component.
    fn has_fractions(&self) -> bool {
        let [down, across] = self.most();
        !self.components.iter().all(|c| down.is_multiple_of(c.down) && across.is_multiple_of(c.across))
    }

    /// Whether a sampling factor is 3, which `cjpeg -sample 3x1` writes.
    fn has_thirds(&self) -> bool {
        self.components.iter().any(|c| c.down == 3 || c.across == 3)
    }
}

/// A segment with tables or a restart interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) marker: u8,
    /// Byte of the marker.
    pub(crate) at: usize,
    /// Includes the two bytes of its length.
    pub(crate) bytes: &'a [u8],
}

/// The place of a segment in the file.
#[derive(Clone, Copy, Debug)]
struct SegmentAt {
    marker: u8,
    /// Byte of the marker.
    at: usize,
    /// Includes the two bytes of its length.
    len: u16,
}

/// The components of a scan, with their Huffman tables.
pub(crate) type ScanComponents = SmallVec<[ScanComponent; 4]>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanComponent {
    /// Index in the frame.
    pub(crate) component: usize,
    /// Tables of the first coefficients and of the others.
    pub(crate) tables: [u8; 2],
}

/// Everything before the first scan's data, parsed once: sizes, colour, and where tables and data are.
///
/// It borrows nothing, so it can be sent to another thread together with the file. Parsing takes one or two
/// microseconds.
#[derive(Clone, Debug)]
pub struct Header {
    /// Length of the file.
    len: usize,
    pub(crate) frame: Frame,
    colour: Colour,
    /// Tables and restart intervals, in the file's order.
    tables: SmallVec<[SegmentAt; 8]>,
    /// Whether the file has no Huffman tables, so that the standard ones apply.
    pub(crate) standard_codes: bool,
    restarts: bool,
    /// Byte at which the two bytes of the height begin.
    height_at: usize,
    /// The scan header, with its length field.
    scan_header: Range<usize>,
    orientation: Orientation,
}

impl Header {
    /// Parses the header of a file.
    ///
    /// ```
    /// # fn f(file: &[u8]) -> infeed_jpeg::Result<()> {
    /// let header = infeed_jpeg::Header::parse(file)?;
    /// println!("{} x {}, {:?}", header.height(), header.width(), header.colour());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Damaged` if it is not a JPEG, ends before its first scan, or contradicts itself; `Unsupported` for lossless and
    /// hierarchical files, arithmetic coding, more than 8 bits per value, and rare kinds on which decoders disagree.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(&[0xff, SOI]) {
            return Err(Error::damaged("not a JPEG: the first two bytes are not FF D8").at(0));
        }
        let mut frame: Option<Frame> = None;
        let mut jfif = false;
        let mut adobe = None;
        let mut tables = SmallVec::<[SegmentAt; 8]>::new();
        let mut restarts = false;
        let mut orientation = None;
        let mut height_at = 0;
        let mut at = 2;
        loop {
            // Bytes between segments are forbidden but do occur; libjpeg also skips them.
            let (found, marker) = next_marker(bytes, at).ok_or_else(|| cut_short(bytes, at))?;
            at = found + 2;
            let place = Place { marker, at: found };
            if marker == EOI {
                return Err(place.damaged("JPEG has no image: its end marker comes before its first scan"));
            }
            if matches!(marker, 0x01 | 0xd0..=SOI) {
                continue;
            }
            let segment = segment(bytes, at)?;
            at += segment.len();
            let body = &segment[2..];
            match marker {
                SOS => {
                    let frame = frame.ok_or_else(|| place.damaged("JPEG has a scan before its frame header"))?;
                    if frame.has_fractions() {
                        // libjpeg does not support them either.
                        return Err(place.unsupported("JPEG of a rare kind: a sampling factor of 3 with one of 2 or 4"));
                    }
                    // A frame of Motion JPEG.
                    let standard_codes = !frame.progressive && tables.iter().all(|table| table.marker != DHT);
                    let header = Self {
                        len: bytes.len(),
                        colour: colour(&frame, jfif, adobe),
                        frame,
                        tables,
                        standard_codes,
                        restarts,
                        height_at,
                        scan_header: at - segment.len()..at,
                        orientation: orientation.unwrap_or_default(),
                    };
                    return Ok(header);
                }
                DQT | DHT | DRI => {
                    if marker == DRI {
                        restarts = body.iter().any(|b| *b != 0);
                    }
                    tables.push(SegmentAt { marker, at: found, len: segment.len() as u16 });
                }
                DAC => return Err(place.unsupported("JPEG with arithmetic coding")),
                0xc0..=0xcf if frame.is_some() => return Err(place.damaged("JPEG has two frame headers")),
                0xc0..=0xcf => {
                    frame = Some(parse_frame(place, body)?);
                    // After the segment's length and the precision.
                    height_at = at - segment.len() + 3;
                }
                APP0 => jfif |= body.starts_with(b"JFIF\0"),
                // The first segment that may hold an orientation.
                APP1 if orientation.is_none() && body.starts_with(b"Exif") => {
                    orientation = Some(Orientation::of_exif(body));
                }
                // As in libjpeg, a shorter segment is not Adobe's.
                APP14 if body.starts_with(b"Adobe") => adobe = body.get(11).copied().or(adobe),
                _ => {}
            }
        }
    }

    /// Refuses bytes of another length than those that the header was parsed from.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() == self.len {
            return Ok(());
        }
        Err(Error::misuse(format!("the header is of a file of {} bytes; this file has {}", self.len, bytes.len())))
    }

    /// Tables and restart intervals, in the file's order. `bytes` must be those that the header was parsed from.
    pub(crate) fn tables<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = Segment<'a>> {
        self.tables.iter().map(|&SegmentAt { marker, at, len }| {
            let bytes = &bytes[at + 2..][..usize::from(len)];
            Segment { marker, at, bytes }
        })
    }

    /// The first scan's header, including its length field.
    pub(crate) fn scan_header<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.scan_header.clone()]
    }

    /// Byte at which the first scan's data begins.
    pub(crate) const fn scan(&self) -> usize {
        self.scan_header.end
    }

    /// The place of the first scan's marker.
    pub(crate) const fn scan_place(&self) -> Place {
        Place { marker: SOS, at: self.scan_header.start - 2 }
    }

    /// Rows of the image, as it is stored.
    #[must_use]
    pub const fn height(&self) -> u32 {
        self.frame.height as u32
    }

    /// Columns of the image, as it is stored.
    #[must_use]
    pub const fn width(&self) -> u32 {
        self.frame.width as u32
    }

    /// Values per decoded pixel: 1 for gray, 3 (RGB) for all others.
    #[must_use]
    pub fn channels(&self) -> usize {
        if self.colour == Colour::Gray { 1 } else { 3 }
    }

    /// Number of bytes of these rows as decoded pixels.
    #[must_use]
    pub fn len_bytes(&self, rows: &Range<u32>) -> u64 {
        rows.len() as u64 * u64::from(self.width()) * self.channels() as u64
    }

    /// The colour space of its components.
    #[must_use]
    pub const fn colour(&self) -> Colour {
        self.colour
    }

    /// How to make the image upright.
    #[must_use]
    pub const fn orientation(&self) -> Orientation {
        self.orientation
    }

    /// Whether windows of it can be decoded to planes, at any scale: true for all files except CMYK and YCCK, which are
    /// decoded to pixels.
    #[must_use]
    pub fn has_planes(&self) -> bool {
        self.frame.components.len() < 4
    }

    /// Whether a value of some component covers three pixels in some direction (`cjpeg -sample 3x1`). In all other
    /// files with planes, the number is a power of two.
    #[must_use]
    pub fn has_thirds(&self) -> bool {
        self.frame.has_thirds()
    }

    /// Whether the first component has at least as many values as any other, in each direction.
    #[must_use]
    pub fn is_finest_first(&self) -> bool {
        self.frame.is_finest_first()
    }

    /// Pixels per value of each component, vertical and horizontal.
    pub(crate) fn steps(&self) -> SmallVec<[[u32; 2]; 4]> {
        let [down, across] = self.frame.most();
        self.frame.components.iter().map(|c| [u32::from(down / c.down), u32::from(across / c.across)]).collect()
    }

    /// Most bytes that decoding the whole file to pixels holds at a time, pixels included.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let [height, width] = [self.height(), self.width()].map(u64::from);
        let Frame { progressive, components, .. } = &self.frame;
        let [down, across] = self.frame.most().map(|most| 8 * u64::from(most));
        let units = width.div_ceil(across) * height.div_ceil(down);
        let values: u64 = components.iter().map(|c| 64 * u64::from(c.across) * u64::from(c.down)).sum();
        // In addition to the pixels: values of all components, for a progressive file a band of coefficients, and the
        // scans without stuffing, with the places where bytes were removed.
        let row = width.div_ceil(across) * values / 64;
        let values = units * values;
        let band = row.max(BAND_BLOCKS as u64).min(values / 64) * BAND_BLOCK_BYTES;
        let coefficients = if *progressive { band } else { 0 };
        (height * width * self.channels() as u64)
            .saturating_add(values)
            .saturating_add(coefficients)
            .saturating_add(3 * self.len as u64)
    }

    /// For decoders that can only decode whole images: the least height to which the image can be cut so that its first
    /// `rows` rows stay the same.
    #[must_use]
    pub fn enough_rows(&self, rows: u32) -> u16 {
        let whole = self.frame.height;
        let components = &self.frame.components;
        let (across, down) = components.first().map_or((1, 1), |c| (c.across, c.down));
        let usual = |c: &Component| [(1, 1), (across, down)].contains(&(c.across, c.down));
        if across > 2 || down > 2 || !components.iter().all(usual) {
            // Too rare to test that cutting leaves their pixels unchanged.
            return whole;
        }
        let down = u32::from(down);
        // Interpolated colour also uses the next row of colour, which covers `down` rows of the image.
        let margin = if down > 1 { down } else { 0 };
        let height = (rows.clamp(1, whole.into()) + margin).next_multiple_of(8 * down);
        u16::try_from(height).map_or(whole, |height| height.min(whole))
    }

    /// Byte at which the two bytes of the height begin in the file.
    #[must_use]
    pub const fn height_at(&self) -> usize {
        self.height_at
    }

    /// Whether the file has several scans, each of which refines the image.
    #[must_use]
    pub const fn is_progressive(&self) -> bool {
        self.frame.progressive
    }

    /// Whether the data consists of intervals that can be decoded separately.
    #[must_use]
    pub const fn has_restarts(&self) -> bool {
        self.restarts
    }

    /// Values of brightness per value of colour, horizontal and vertical: (2, 2) for 4:2:0. Gray is (1, 1). `None` for
    /// other sampling factors.
    #[must_use]
    pub fn sampling(&self) -> Option<(u8, u8)> {
        let (first, rest) = self.frame.components.split_first()?;
        rest.iter().all(|c| (c.across, c.down) == (1, 1)).then_some((first.across, first.down))
    }

    /// Whether the image data continues to the end marker, without another marker in it. Reads all bytes, which must be
    /// those that the header was parsed from: 13 µs for a photograph of 105 KB.
    #[must_use]
    pub fn is_whole(&self, bytes: &[u8]) -> bool {
        if self.frame.progressive {
            return check_scans(bytes, self).is_ok();
        }
        end_of_scan(bytes, self.scan()).is_some_and(|end| bytes.get(end..end + 2) == Some(&[0xff, EOI]))
    }
}

/// The place of a problem, for messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) marker: u8,
    /// Byte of the marker in the file.
    pub(crate) at: usize,
}

impl Place {
    /// An error for damage at this place.
    pub(crate) fn damaged(self, what: impl fmt::Display) -> Error {
        Error::damaged(format!("{what}{self}")).at(self.at)
    }

    /// An error for an unsupported kind of file that is recognised at this place.
    pub(crate) fn unsupported(self, what: impl fmt::Display) -> Error {
        Error::unsupported(format!("{what}{self}")).at(self.at)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " (FF {:02X} at byte {})", self.marker, self.at)
    }
}

/// The segment at `at`, which is just after its marker; includes its two bytes of length.
pub(crate) fn segment(bytes: &[u8], at: usize) -> Result<&[u8]> {
    let place = Place { marker: bytes.get(at - 1).copied().unwrap_or_default(), at: at - 2 };
    let cut = || {
        let length = bytes.len();
        Error::damaged(format!("JPEG ends after {length} bytes, inside its header{place}")).at(length)
    };
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let length = length.ok_or_else(cut)?;
    if length < 2 {
        return Err(place.damaged(format_args!("JPEG has a segment of {length} bytes")));
    }
    rest.get(..length).ok_or_else(cut)
}

fn parse_frame(place: Place, body: &[u8]) -> Result<Frame> {
    let wrong = || place.damaged("JPEG frame header contradicts itself");
    let other = |what: &str| place.unsupported(what);
    match place.marker {
        0xc0..=0xc2 => {}
        0xc3 | 0xc7 | 0xcb | 0xcf => return Err(other("lossless JPEG")),
        0xc5 | 0xc6 => return Err(other("hierarchical JPEG")),
        _ => return Err(other("JPEG with arithmetic coding")),
    }
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
        return Err(place.damaged("JPEG frame header is too short"));
    };
    if precision != 8 {
        return Err(other(&format!("JPEG with {precision} bits per value")));
    }
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    if height == 0 {
        return Err(other("JPEG whose height follows the image"));
    }
    if width == 0 || rest.len() != 3 * usize::from(count) {
        return Err(wrong());
    }
    if !matches!(count, 1 | 3 | 4) {
        return Err(other(&format!("JPEG with {count} components")));
    }
    let component = |b: &[u8]| Component { id: b[0], across: b[1] >> 4, down: b[1] & 15, table: b[2] };
    let mut components: SmallVec<[Component; 4]> = rest.chunks_exact(3).map(component).collect();
    if components.iter().any(|c| !matches!((c.across, c.down), (1..=4, 1..=4)) || c.table > 3) {
        return Err(wrong());
    }
    if let [single] = components.as_mut_slice() {
        // A scan of one component is never interleaved, so its sampling factors do not matter.
        (single.across, single.down) = (1, 1);
    }
    Ok(Frame { progressive: place.marker == 0xc2, height, width, components })
}

/// libjpeg's rule (jdapimin.c, default_decompress_parms).
fn colour(frame: &Frame, jfif: bool, adobe: Option<u8>) -> Colour {
    let ids = || frame.components.iter().map(|c| c.id);
    match (frame.components.len(), adobe) {
        (1, _) => Colour::Gray,
        (3, _) if jfif => Colour::YCbCr,
        (3, Some(0)) => Colour::Rgb,
        (3, None) if ids().eq(*b"RGB") => Colour::Rgb,
        (3, _) => Colour::YCbCr,
        (_, Some(2)) => Colour::Ycck,
        // No frame has another number of components.
        _ => Colour::Cmyk,
    }
}

/// The error if no marker follows `at`, before the first scan.
fn cut_short(bytes: &[u8], at: usize) -> Error {
    let length = bytes.len();
    Error::damaged(format!("JPEG ends after {length} bytes, inside its header: no marker from byte {at} on")).at(length)
}

/// The byte of the first marker after `start` that is not a restart marker: the end of a scan's data. `None` if there
/// is none.
fn end_of_scan(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let (found, marker) = next_marker(bytes, at)?;
        if !matches!(marker, 0xd0..=0xd7) {
            return Some(found);
        }
        at = found + 2;
    }
}

/// Byte and code of the first marker at or after `at`. Stuffed bytes and fill bytes are not markers.
pub(crate) fn next_marker(bytes: &[u8], mut at: usize) -> Option<(usize, u8)> {
    loop {
        at += find_ff(bytes.get(at..)?)?;
        match bytes.get(at + 1)? {
            0x00 => at += 2,
            0xff => at += 1,
            code => return Some((at, *code)),
        }
    }
}

/// Byte of the first FF.
pub(crate) fn find_ff(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(0xff, bytes)
}

/// Checks the scans of a progressive file up to the end marker: each must add bits that the scans before it omitted.
fn check_scans(bytes: &[u8], header: &Header) -> Result<()> {
    let mut progress = Progress::default();
    let end = segments_from_scan(bytes, header, |segment| match segment.marker {
        SOS => progress.add(&header.frame, segment).map(|_| ()),
        _ => Ok(()),
    })?;
    progress.check_end(&header.frame, end)
}

/// Calls `see` with each segment from the first scan header on; returns the place of the end marker.
pub(crate) fn segments_from_scan<'a>(
    bytes: &'a [u8],
    header: &Header,
    mut see: impl FnMut(&Segment<'a>) -> Result<()>,
) -> Result<Place> {
    let Place { marker, at } = header.scan_place();
    see(&Segment { marker, at, bytes: header.scan_header(bytes) })?;
    let mut at = header.scan();
    loop {
        let (found, marker) = next_marker(bytes, at).ok_or_else(|| no_last_scan(bytes))?;
        at = found + 2;
        match marker {
            EOI => return Ok(Place { marker, at: found }),
            0x01 | 0xd0..=0xd8 => {}
            _ => {
                let segment = segment(bytes, at)?;
                at += segment.len();
                see(&Segment { marker, at: found, bytes: segment })?;
            }
        }
    }
}

/// The error for a file without an end marker: it would look complete, only blurred, without its last scans.
fn no_last_scan(bytes: &[u8]) -> Error {
    let length = bytes.len();
    Error::damaged(format!("JPEG ends after {length} bytes, before its last scan is complete")).at(length)
}

/// The content of a scan header of a progressive file.
#[derive(Clone, Debug)]
pub(crate) struct ScanHeader {
    pub(crate) components: ScanComponents,
    /// The first and the last coefficient of the band, in the file's order.
    pub(crate) band: [u8; 2],
    /// Number of low bits that were missing before; 0 if none was known. T.81 calls it Ah.
    pub(crate) high: u8,
    /// Number of low bits that are missing after it: Al.
    pub(crate) low: u8,
}

/// How exactly each coefficient is known after some scans of a progressive file.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// For each component and coefficient, the number of low bits still missing; `None` before its first scan.
    missing: [[Option<u8>; 64]; 4],
}

impl Default for Progress {
    fn default() -> Self {
        Self { missing: [[None; 64]; 4] }
    }
}

impl Progress {
    /// Adds a scan by its header. T.81, G.1.1.1: its coefficients are one band. They are either first coefficients, or
    /// those of a single component whose first coefficients are known. The scan adds all bits but the lowest ones, or
    /// one more bit.
    ///
    /// libjpeg refuses invalid bands, and decodes other violations with a warning, to an image that nobody made.
    pub(crate) fn add(&mut self, frame: &Frame, segment: &Segment<'_>) -> Result<ScanHeader> {
        let Segment { marker, at, bytes } = *segment;
        let place = Place { marker, at };
        let parts = scan_components(frame, bytes, at + 2 + bytes.len())?;
        let Some(&[first, last, bits]) = bytes.get(3 + 2 * parts.len()..).and_then(<[u8]>::first_chunk) else {
            return Err(place.damaged("JPEG scan header contradicts itself"));
        };
        let (high, low) = (bits >> 4, bits & 15);
        let wrong = |why: &str| {
            let what = format_args!("JPEG scan of coefficients {first} to {last}, bits {high} to {low}: {why}");
            Err(place.damaged(what))
        };
        let is_band = if first == 0 { last == 0 } else { first <= last && last < 64 && parts.len() == 1 };
        if !is_band {
            return wrong("a progressive file can't have such a scan");
        }
        if low > 13 || high > 0 && high != low + 1 {
            return wrong("a scan adds all bits or one bit");
        }
        for part in &parts {
            let missing = &mut self.missing[part.component];
            if first > 0 && missing[0].is_none() {
                return wrong("its component has no first coefficients yet");
            }
            for known in &mut missing[usize::from(first)..=usize::from(last)] {
                let fits = known.map_or(high == 0, |missing| high > 0 && high == missing);
                if !fits {
                    return wrong("the scans before it omit other bits");
                }
                *known = Some(low);
            }
        }
        Ok(ScanHeader { components: parts, band: [first, last], high, low })
    }

    /// Checks, at the end of the file, that the first coefficients of each component were there.
    pub(crate) fn check_end(&self, frame: &Frame, place: Place) -> Result<()> {
        let lacks = (0..frame.components.len()).any(|n| self.missing[n][0].is_none());
        if lacks { Err(place.damaged("JPEG lacks a scan")) } else { Ok(()) }
    }
}

/// The components that a scan header names. The scan's data begins at byte `at`.
pub(crate) fn scan_components(frame: &Frame, segment: &[u8], at: usize) -> Result<ScanComponents> {
    let place = Place { marker: SOS, at: at - segment.len() - 2 };
    let wrong = || place.damaged("JPEG scan header contradicts itself");
    let (&count, rest) = segment[2..].split_first().ok_or_else(wrong)?;
    let count = usize::from(count);
    if !(1..=frame.components.len()).contains(&count) || rest.len() < 2 * count {
        return Err(wrong());
    }
    let mut found = ScanComponents::new();
    for pair in rest[..2 * count].chunks_exact(2) {
        let component = frame.components.iter().position(|c| c.id == pair[0]).ok_or_else(wrong)?;
        let tables = [pair[1] >> 4, pair[1] & 15];
        if tables.iter().any(|t| *t > 3) || found.iter().any(|part: &ScanComponent| part.component == component) {
            return Err(wrong());
        }
        found.push(ScanComponent { component, tables });
    }
    Ok(found)
}
