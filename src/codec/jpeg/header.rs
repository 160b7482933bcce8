//! What stands before and between the scans: sizes, colour, tables, and where the data begins.

use std::{fmt, ops::Range};

use smallvec::SmallVec;

use super::{
    super::{corrupt, unsupported},
    huffman::STANDARD,
    turn::Turn,
};
use crate::{
    error::{Error, Result},
    types::ImageInfo,
};

pub(super) const SOI: u8 = 0xd8;
pub(super) const EOI: u8 = 0xd9;
pub(super) const SOS: u8 = 0xda;
pub(super) const DQT: u8 = 0xdb;
pub(super) const DHT: u8 = 0xc4;
pub(super) const DRI: u8 = 0xdd;
const DAC: u8 = 0xcc;
const APP0: u8 = 0xe0;
const APP1: u8 = 0xe1;
pub(super) const APP14: u8 = 0xee;

/// How the components of a frame make a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::codec) enum Colour {
    Gray,
    YCbCr,
    Rgb,
    /// Inverted, as Adobe's programs write it; nearly nobody writes the other kind.
    Cmyk,
    Ycck,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Component {
    pub(super) id: u8,
    /// Sampling factors.
    pub(super) across: u8,
    pub(super) down: u8,
    /// Quantisation table.
    pub(super) table: u8,
}

/// What the frame header says.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) progressive: bool,
    pub(super) height: u16,
    pub(super) width: u16,
    pub(super) components: SmallVec<[Component; 4]>,
}

impl Frame {
    /// The largest sampling factors, down and across.
    fn most(&self) -> [u8; 2] {
        let most = |of: fn(&Component) -> u8| self.components.iter().map(of).max().unwrap_or(1);
        [most(|c| c.down), most(|c| c.across)]
    }

    /// Whether no component has more values than the first, in either direction.
    pub(super) fn is_finest_first(&self) -> bool {
        self.components.first().is_some_and(|c| [c.down, c.across] == self.most())
    }
}

/// Tables or a restart interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    /// Where the marker is in the file.
    pub(super) at: usize,
    /// With the two bytes of its length.
    pub(super) bytes: &'a [u8],
}

/// Which components a scan holds, and their Huffman tables.
pub(super) type ScanParts = SmallVec<[ScanPart; 4]>;

#[derive(Clone, Copy, Debug)]
pub(super) struct ScanPart {
    /// Index in the frame.
    pub(super) component: usize,
    /// Table of first coefficients, and of the others.
    pub(super) tables: [u8; 2],
}

/// What stands before the first scan's data.
#[derive(Debug)]
pub(in crate::codec) struct Header<'a> {
    pub(super) frame: Frame,
    pub(super) colour: Colour,
    /// Tables and restart interval, in the file's order.
    pub(super) tables: SmallVec<[Segment<'a>; 8]>,
    #[cfg_attr(not(all(feature = "cuda", target_os = "linux")), allow(dead_code, reason = "for decoders on a GPU"))]
    restarts: bool,
    /// Offset of the two bytes that tell the height.
    #[cfg_attr(not(all(feature = "cuda", target_os = "linux")), allow(dead_code, reason = "for decoders on a GPU"))]
    height_at: usize,
    /// The scan header, with its length field.
    pub(super) scan_header: &'a [u8],
    /// Offset of the first scan's data.
    pub(super) scan: usize,
    /// The body of the first segment that may hold an orientation.
    exif: &'a [u8],
}

impl<'a> Header<'a> {
    pub(in crate::codec) fn parse(bytes: &'a [u8]) -> Result<Self> {
        if !bytes.starts_with(&[0xff, SOI]) {
            return Err(corrupt("no JPEG: the first two bytes are not FF D8"));
        }
        let mut frame: Option<Frame> = None;
        let (mut jfif, mut adobe) = (false, None);
        let mut tables = SmallVec::<[Segment<'a>; 8]>::new();
        let mut restarts = false;
        let mut exif: &[u8] = &[];
        let (mut at, mut height_at) = (2, 0);
        loop {
            // Bytes between segments are forbidden and exist; libjpeg skips them too.
            let (found, marker) = next_marker(bytes, at).ok_or_else(|| cut_short(bytes, at))?;
            at = found + 2;
            let place = || Place { marker, at: found };
            if marker == EOI {
                return Err(corrupt(format!(
                    "JPEG has no image: its end marker comes before its first scan{}",
                    place()
                )));
            }
            if matches!(marker, 0x01 | 0xd0..=SOI) {
                continue;
            }
            let segment = segment(bytes, at)?;
            at += segment.len();
            let body = &segment[2..];
            match marker {
                SOS => {
                    let missing = || corrupt(format!("JPEG has a scan before its frame header{}", place()));
                    let frame = frame.ok_or_else(missing)?;
                    let has_codes = |tables: &[Segment<'_>]| tables.iter().any(|table| table.marker == DHT);
                    if !frame.progressive && !has_codes(&tables) {
                        // A frame of Motion JPEG.
                        tables.push(Segment { marker: DHT, at: found, bytes: &STANDARD });
                    }
                    let colour = colour(&frame, jfif, adobe);
                    let (scan_header, scan) = (segment, at);
                    let header = Self { frame, colour, tables, restarts, height_at, scan_header, scan, exif };
                    if !header.frame.progressive
                        && header.steps().is_none()
                        && body.first().copied() != Some(header.frame.components.len() as u8)
                    {
                        // zune decodes most of them to other pixels without a word, all of those in 4:2:0.
                        let what = format!("sequential JPEG of a rare kind with several scans{}", place());
                        return Err(unsupported(what));
                    }
                    if header.steps().is_none() && !header.frame.is_finest_first() {
                        // zune decodes those whose factors across differ to other pixels, without a word; ink, too. Those that differ
                        // down alone it gets right, as far as was tried: too rare to be told apart.
                        let what = format!("JPEG of a rare kind whose first component is not its finest{}", place());
                        return Err(unsupported(what));
                    }
                    return Ok(header);
                }
                DQT | DHT => tables.push(Segment { marker, at: found, bytes: segment }),
                DRI => {
                    restarts = body.iter().any(|b| *b != 0);
                    tables.push(Segment { marker, at: found, bytes: segment });
                }
                DAC => return Err(unsupported(format!("JPEG with arithmetic coding{}", place()))),
                0xc0..=0xcf if frame.is_some() => {
                    return Err(corrupt(format!("JPEG has two frame headers{}", place())));
                }
                0xc0..=0xcf => {
                    frame = Some(parse_frame(place(), body)?);
                    // After the segment's length and the precision.
                    height_at = at - segment.len() + 3;
                }
                APP0 => jfif |= body.starts_with(b"JFIF\0"),
                APP1 if exif.is_empty() && body.starts_with(b"Exif") => exif = body,
                APP14 if body.starts_with(b"Adobe") => adobe = body.get(11).copied(),
                _ => {}
            }
        }
    }

    /// What makes the image upright.
    pub(super) fn turn(&self) -> Turn {
        Turn::of_exif(self.exif)
    }

    pub(in crate::codec) fn info(&self) -> ImageInfo {
        let channels = if self.colour == Colour::Gray { 1 } else { 3 };
        ImageInfo::interleaved_u8(self.frame.height.into(), self.frame.width.into(), channels)
    }

    /// Pixels that a value of each component stands for, down and across; `None` for files that are left to zune:
    /// progressive ones, ink, and components that are no whole part of the finest.
    pub(in crate::codec) fn steps(&self) -> Option<SmallVec<[[u32; 2]; 3]>> {
        let components = &self.frame.components;
        if self.frame.progressive || !matches!(components.len(), 1 | 3) {
            return None;
        }
        let [most_down, most_across] = self.frame.most();
        let step = |most: u8, own: u8| {
            let whole = most.is_multiple_of(own) && matches!(most / own, 1 | 2 | 4);
            whole.then_some(u32::from(most / own))
        };
        components.iter().map(|c| Some([step(most_down, c.down)?, step(most_across, c.across)?])).collect()
    }

    /// Most bytes that decoding a file of this length on the CPU holds at a time.
    pub(in crate::codec) fn peak_bytes(&self, len: usize) -> u64 {
        let info = self.info();
        let Frame { progressive, components, .. } = &self.frame;
        let [down, across] = self.frame.most().map(|most| 8 * u64::from(most));
        let units = u64::from(info.width).div_ceil(across) * u64::from(info.height).div_ceil(down);
        let values: u64 = components.iter().map(|c| 64 * u64::from(c.across) * u64::from(c.down)).sum();
        // Values of all components beside the pixels; zune keeps 16-bit coefficients until the last scan.
        let values = units * values * if *progressive { 2 } else { 1 };
        // The scan without stuffing, and where its intervals begin.
        info.len_bytes().saturating_add(values).saturating_add(3 * len as u64)
    }

    /// The least height of a cut image whose first `rows` rows equal the whole image's.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) fn enough_rows(&self, rows: u32) -> u16 {
        let whole = self.frame.height;
        let components = &self.frame.components;
        let (across, down) = components.first().map_or((1, 1), |c| (c.across, c.down));
        let usual = |c: &Component| [(1, 1), (across, down)].contains(&(c.across, c.down));
        if across > 2 || down > 2 || !components.iter().all(usual) {
            // Too rare to test that cutting leaves their pixels alone.
            return whole;
        }
        let down = u32::from(down);
        // Interpolated chroma takes a part of the next chroma row, which covers `down` rows of the image.
        let margin = if down > 1 { down } else { 0 };
        let height = (rows.clamp(1, whole.into()) + margin).next_multiple_of(8 * down);
        u16::try_from(height).map_or(whole, |height| height.min(whole))
    }

    /// Offset in the file of the two bytes that tell the height.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) const fn height_at(&self) -> usize {
        self.height_at
    }

    /// Whether the file comes in several scans, each of which refines the image.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) const fn is_progressive(&self) -> bool {
        self.frame.progressive
    }

    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) const fn colour(&self) -> Colour {
        self.colour
    }

    /// Whether the data is cut into intervals that can be decoded alone.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) const fn has_restarts(&self) -> bool {
        self.restarts
    }

    /// How many values of brightness stand beside and above each other for one of colour; `None` when it is not that
    /// simple. Gray counts as one.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) fn sampling(&self) -> Option<(u8, u8)> {
        let (first, rest) = self.frame.components.split_first()?;
        rest.iter().all(|c| (c.across, c.down) == (1, 1)).then_some((first.across, first.down))
    }

    /// Whether the image data goes on to the end marker, with no other marker in it. Looks at all bytes: 13 µs for a
    /// photograph of 105 KB.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(in crate::codec) fn is_whole(&self, bytes: &[u8]) -> bool {
        if self.frame.progressive {
            return end_of_scans(bytes, self.scan).is_some();
        }
        let end = Scan::find(bytes, self.scan).bytes.end;
        bytes.get(end..end + 2) == Some(&[0xff, EOI])
    }
}

/// Where something is wrong, for messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) marker: u8,
    /// Offset of the marker in the file.
    pub(super) at: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " (FF {:02X} at byte {})", self.marker, self.at)
    }
}

/// The segment that begins at `at`, behind its marker, with its two bytes of length.
pub(super) fn segment(bytes: &[u8], at: usize) -> Result<&[u8]> {
    let place = Place { marker: bytes.get(at - 1).copied().unwrap_or_default(), at: at - 2 };
    let cut = || corrupt(format!("JPEG ends after {} bytes, inside its header{place}", bytes.len()));
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let length = length.ok_or_else(cut)?;
    if length < 2 {
        return Err(corrupt(format!("JPEG has a segment of {length} bytes{place}")));
    }
    rest.get(..length).ok_or_else(cut)
}

fn parse_frame(place: Place, body: &[u8]) -> Result<Frame> {
    let wrong = || corrupt(format!("JPEG frame header contradicts itself{place}"));
    let other = |what: &str| unsupported(format!("{what}{place}"));
    match place.marker {
        0xc0..=0xc2 => {}
        0xc3 | 0xc7 | 0xcb | 0xcf => return Err(other("lossless JPEG")),
        0xc5 | 0xc6 => return Err(other("hierarchical JPEG")),
        _ => return Err(other("JPEG with arithmetic coding")),
    }
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
        return Err(corrupt(format!("JPEG frame header is too short{place}")));
    };
    if precision != 8 {
        return Err(other(&format!("JPEG with {precision} bits per value")));
    }
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    if height == 0 {
        return Err(other("JPEG that tells its height after the image"));
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
        // A scan of one component is never interleaved, so its factors mean nothing.
        (single.across, single.down) = (1, 1);
    }
    Ok(Frame { progressive: place.marker == 0xc2, height, width, components })
}

/// The rule of libjpeg (jdapimin.c, default_decompress_parms).
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

/// No marker is found from `at` on, before the first scan.
fn cut_short(bytes: &[u8], at: usize) -> Error {
    let what = format!("JPEG ends after {} bytes, inside its header: no marker from byte {at} on", bytes.len());
    corrupt(what)
}
/// The entropy-coded data of a scan.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) bytes: Range<usize>,
    /// Whether a marker follows.
    pub(super) ended: bool,
}

impl Scan {
    /// The data from `start` to the first marker that is no restart.
    pub(super) fn find(bytes: &[u8], start: usize) -> Self {
        let mut at = start;
        while let Some((found, marker)) = next_marker(bytes, at) {
            if !matches!(marker, 0xd0..=0xd7) {
                return Self { bytes: start..found, ended: true };
            }
            at = found + 2;
        }
        Self { bytes: start..bytes.len(), ended: false }
    }
}
/// Offset and code of the first marker at or after `at`. Stuffed and fill bytes are none.
pub(super) fn next_marker(bytes: &[u8], mut at: usize) -> Option<(usize, u8)> {
    loop {
        at += find_ff(bytes.get(at..)?)?;
        match bytes.get(at + 1)? {
            0x00 => at += 2,
            0xff => at += 1,
            code => return Some((at, *code)),
        }
    }
}

/// Offset of the first FF byte. Blocks of 32 compile to vector compares: 13 µs for the scan of a photograph of 105 KB,
/// where a search byte by byte takes 45.
pub(super) fn find_ff(bytes: &[u8]) -> Option<usize> {
    let mut blocks = bytes.chunks_exact(32);
    let mut at = 0;
    for block in &mut blocks {
        if block.iter().fold(0, |any, b| any | u8::from(*b == 0xff)) != 0 {
            break;
        }
        at += 32;
    }
    bytes[at..].iter().position(|b| *b == 0xff).map(|n| at + n)
}
/// Most scans of a file: each costs a pass over all of the image, however few bytes it has. Encoders write about ten.
pub(super) const MOST_SCANS: usize = 100;

/// Where the end marker of a file with several scans ends; `at` is where the data of the first one begins.
#[cfg(all(feature = "cuda", target_os = "linux"))]
fn end_of_scans(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let (found, marker) = next_marker(bytes, at)?;
        at = found + 2;
        match marker {
            EOI => return Some(at),
            0x01 | 0xd0..=0xd7 => {}
            _ => at += segment(bytes, at).ok()?.len(),
        }
    }
}

/// The components that a scan header names; its data begins at byte `at`.
pub(super) fn scan_parts(frame: &Frame, segment: &[u8], at: usize) -> Result<ScanParts> {
    let place = Place { marker: SOS, at: at - segment.len() - 2 };
    let wrong = || corrupt(format!("JPEG scan header contradicts itself{place}"));
    let (&count, rest) = segment[2..].split_first().ok_or_else(wrong)?;
    let count = usize::from(count);
    if !(1..=frame.components.len()).contains(&count) || rest.len() < 2 * count {
        return Err(wrong());
    }
    let mut parts = ScanParts::new();
    for pair in rest[..2 * count].chunks_exact(2) {
        let component = frame.components.iter().position(|c| c.id == pair[0]).ok_or_else(wrong)?;
        let tables = [pair[1] >> 4, pair[1] & 15];
        if tables.iter().any(|t| *t > 3) || parts.iter().any(|part: &ScanPart| part.component == component) {
            return Err(wrong());
        }
        parts.push(ScanPart { component, tables });
    }
    Ok(parts)
}
