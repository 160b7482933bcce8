//! JPEG on [`zune_jpeg`], stopped after the last row that is needed.
//!
//! ```text
//! file ─ header() ─▶ Header (size, colour, tables, where the scan begins)
//!   │                   │ written anew: only the segments that matter, height cut to the last needed row
//!   └─ scan ────────────┴─▶ scratch ─ zune ─▶ pixels
//! ```
//!
//! Two thirds of a decode is Huffman decoding, which can't skip rows above a crop but can stop below it: a random
//! crop ends at 83 % of the height on average. No decoder offers that, but a smaller height in the frame header does
//! it, and the rows that are left come out the same. What a newcomer would get wrong:
//!
//! 1. Chroma of 4:2:0 is interpolated between MCU rows, so the last rows of a cut image differ: they need a margin.
//! 2. zune fills up what is missing. The scan is handed over without its end marker but with bits that are no Huffman
//!    code behind it, so that running into the end is an error.
//! 3. Colour is told by several markers that contradict each other; libjpeg's rule decides here, not zune's.

use std::ops::Range;

use zune_core::{
    bytestream::{ZByteIoError, ZByteReaderTrait, ZSeekFrom},
    colorspace::ColorSpace,
    options::DecoderOptions,
};
use zune_jpeg::JpegDecoder;

use super::{ImageCodec, PixelBuffer, cause, corrupt, unsupported};
use crate::{
    error::{Error, ErrorKind, Result},
    types::ImageInfo,
};

/// JPEG: sequential in one scan, and progressive; Huffman coding, 8 bits; gray, YCbCr, RGB, CMYK and YCCK.
///
/// Gray files give one channel, all others RGB. A file that lacks data is an error, not gray rows;
/// other damage is found where it makes the needed rows undecodable.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jpeg;

impl ImageCodec for Jpeg {
    fn name(&self) -> &'static str {
        "jpeg"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(&[0xff, SOI])
    }

    fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
        Header::parse(bytes).map(|header| header.info())
    }

    fn peak_bytes(&self, bytes: &[u8], _info: &ImageInfo) -> Result<u64> {
        Header::parse(bytes).map(|header| header.peak_bytes(bytes.len()))
    }

    fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let header = Header::parse(bytes)?;
        if header.info() != *info {
            return Err(Error::new(ErrorKind::Internal, "the JPEG is not the one that was asked about"));
        }
        if header.frame.progressive {
            return all_scans(bytes, &header, out);
        }
        let scan = Scan::find(bytes, header.scan);
        // A file without its end is decoded whole, so that whether it is good does not depend on the crop.
        let height = if scan.ended { header.enough_rows(rows.end) } else { header.frame.height };
        if height < header.frame.height && one_scan(bytes, &header, &scan, height, true, out).is_ok() {
            return Ok(());
        }
        // After an error too: what a damaged file is called does not depend on the crop either.
        one_scan(bytes, &header, &scan, header.frame.height, true, out).map_err(|words| {
            let found = good_rows(bytes, &header, &scan, out);
            let height = header.frame.height;
            let what = if scan.ended {
                format!("JPEG is damaged after {found} of {height} rows")
            } else {
                format!("JPEG ends after {found} of {height} rows ({} bytes)", bytes.len())
            };
            corrupt(what).with_source(cause(words))
        })
    }
}

const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DQT: u8 = 0xdb;
const DHT: u8 = 0xc4;
const DRI: u8 = 0xdd;
const DAC: u8 = 0xcc;
const APP0: u8 = 0xe0;
const APP14: u8 = 0xee;

/// How the components of a frame make a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Colour {
    Gray,
    YCbCr,
    Rgb,
    /// Inverted, as Adobe's programs write it; nearly nobody writes the other kind.
    Cmyk,
    Ycck,
}

#[derive(Clone, Copy, Debug, Default)]
struct Component {
    id: u8,
    across: u8,
    down: u8,
    table: u8,
}

/// What the frame header says.
#[derive(Clone, Debug)]
struct Frame {
    progressive: bool,
    height: u16,
    width: u16,
    components: smallvec::SmallVec<[Component; 4]>,
}

/// What stands before the first scan's data.
#[derive(Debug)]
pub(super) struct Header<'a> {
    frame: Frame,
    colour: Colour,
    /// Tables and restart interval: marker and segment (with its length field), in the file's order.
    tables: smallvec::SmallVec<[(u8, &'a [u8]); 8]>,
    restarts: bool,
    /// Offset of the two bytes that tell the height.
    #[cfg_attr(not(all(feature = "cuda", target_os = "linux")), allow(dead_code, reason = "for decoders on a GPU"))]
    height_at: usize,
    /// The scan header, with its length field.
    scan_header: &'a [u8],
    /// Offset of the first scan's data.
    scan: usize,
}

impl<'a> Header<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        if !bytes.starts_with(&[0xff, SOI]) {
            return Err(corrupt("no JPEG: the first two bytes are not FF D8"));
        }
        let mut frame: Option<Frame> = None;
        let (mut jfif, mut adobe) = (false, None);
        let mut tables = smallvec::SmallVec::new();
        let mut restarts = false;
        let (mut at, mut height_at) = (2, 0);
        loop {
            // Bytes between segments are forbidden and exist; libjpeg skips them too.
            let (found, marker) = next_marker(bytes, at).ok_or_else(|| cut_short(bytes))?;
            at = found + 2;
            if marker == EOI {
                return Err(corrupt("JPEG has no image: its end marker comes before its first scan"));
            }
            if matches!(marker, 0x01 | 0xd0..=SOI) {
                continue;
            }
            let segment = segment(bytes, at)?;
            at += segment.len();
            let body = &segment[2..];
            match marker {
                SOS => {
                    let frame = frame.ok_or_else(|| corrupt("JPEG has a scan before its frame header"))?;
                    let colour = colour(&frame, jfif, adobe)?;
                    let count = frame.components.len();
                    if !frame.progressive && body.first().copied() != Some(count as u8) {
                        // zune decodes most of them to other pixels without a word, all of those in 4:2:0.
                        return Err(unsupported("sequential JPEG with several scans"));
                    }
                    return Ok(Self { frame, colour, tables, restarts, height_at, scan_header: segment, scan: at });
                }
                DQT | DHT => tables.push((marker, segment)),
                DRI => {
                    restarts = body.iter().any(|b| *b != 0);
                    tables.push((marker, segment));
                }
                DAC => return Err(unsupported("JPEG with arithmetic coding")),
                0xc0..=0xcf if frame.is_some() => {
                    return Err(corrupt("JPEG has two frame headers"));
                }
                0xc0..=0xcf => {
                    frame = Some(parse_frame(marker, body)?);
                    // After the segment's length and the precision.
                    height_at = at - segment.len() + 3;
                }
                APP0 => jfif |= body.starts_with(b"JFIF\0"),
                APP14 if body.starts_with(b"Adobe") => adobe = body.get(11).copied(),
                _ => {}
            }
        }
    }

    pub(super) fn info(&self) -> ImageInfo {
        let channels = if self.colour == Colour::Gray { 1 } else { 3 };
        ImageInfo::interleaved_u8(self.frame.height.into(), self.frame.width.into(), channels)
    }

    /// Most bytes that decoding a file of this length on the CPU holds at a time.
    pub(super) fn peak_bytes(&self, len: usize) -> u64 {
        let info = self.info();
        // zune keeps 16-bit coefficients of all components until the last scan.
        let samples = u64::from(info.height) * u64::from(info.width) * self.frame.components.len() as u64;
        let coefficients = if self.frame.progressive { 2 * samples } else { 0 };
        info.len_bytes().saturating_add(coefficients).saturating_add(len as u64)
    }

    /// The least height of a cut image whose first `rows` rows equal the whole image's.
    pub(super) fn enough_rows(&self, rows: u32) -> u16 {
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
    pub(super) const fn height_at(&self) -> usize {
        self.height_at
    }

    /// Whether the file comes in several scans, each of which refines the image.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) const fn is_progressive(&self) -> bool {
        self.frame.progressive
    }

    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) const fn colour(&self) -> Colour {
        self.colour
    }

    /// Whether the data is cut into intervals that can be decoded alone.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) const fn has_restarts(&self) -> bool {
        self.restarts
    }

    /// How many values of brightness stand beside and above each other for one of colour; `None` when it is not that
    /// simple. Gray counts as one.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) fn sampling(&self) -> Option<(u8, u8)> {
        let (first, rest) = self.frame.components.split_first()?;
        rest.iter().all(|c| (c.across, c.down) == (1, 1)).then_some((first.across, first.down))
    }

    /// Whether the image data goes on to the end marker, with no other marker in it. Looks at all bytes: 13 µs for a
    /// photograph of 105 KB.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) fn is_whole(&self, bytes: &[u8]) -> bool {
        if self.frame.progressive {
            return end_of_scans(bytes, self.scan).is_ok();
        }
        let end = Scan::find(bytes, self.scan).bytes.end;
        bytes.get(end..end + 2) == Some(&[0xff, EOI])
    }

    /// Writes what stands before the first scan's data, as zune shall see it.
    fn write(&self, height: u16, to: &mut Vec<u8>) {
        let Frame { progressive, width, components, .. } = &self.frame;
        to.extend([0xff, SOI]);
        // EXIF, thumbnails, comments stay behind: zune would copy some and stumble over damaged ones.
        for (marker, segment) in &self.tables {
            to.extend([0xff, *marker]);
            to.extend_from_slice(segment);
        }
        let transform = match self.colour {
            Colour::Gray | Colour::YCbCr => None,
            Colour::Rgb | Colour::Cmyk => Some(0),
            Colour::Ycck => Some(2),
        };
        if let Some(transform) = transform {
            to.extend([0xff, APP14, 0, 14]);
            to.extend_from_slice(b"Adobe\0\x64\0\0\0\0");
            to.push(transform);
        }
        let marker = if *progressive { 0xc2 } else { 0xc0 };
        to.extend([0xff, marker, 0, 8 + 3 * components.len() as u8, 8]);
        to.extend(height.to_be_bytes());
        to.extend(width.to_be_bytes());
        to.push(components.len() as u8);
        for component in components {
            to.extend([component.id, component.across << 4 | component.down, component.table]);
        }
        to.extend([0xff, SOS]);
        to.extend_from_slice(self.scan_header);
    }
}

/// The segment that begins at `at`, with its two bytes of length.
fn segment(bytes: &[u8], at: usize) -> Result<&[u8]> {
    let rest = bytes.get(at..).unwrap_or_default();
    let length = rest.first_chunk().map(|length| usize::from(u16::from_be_bytes(*length)));
    let length = length.ok_or_else(|| cut_short(bytes))?;
    if length < 2 {
        return Err(corrupt(format!("JPEG has a segment of {length} bytes at byte {at}")));
    }
    rest.get(..length).ok_or_else(|| cut_short(bytes))
}

fn parse_frame(marker: u8, body: &[u8]) -> Result<Frame> {
    match marker {
        0xc0..=0xc2 => {}
        0xc3 | 0xc7 | 0xcb | 0xcf => return Err(unsupported("lossless JPEG")),
        0xc5 | 0xc6 => return Err(unsupported("hierarchical JPEG")),
        _ => return Err(unsupported("JPEG with arithmetic coding")),
    }
    let &[precision, h1, h0, w1, w0, count, ref rest @ ..] = body else {
        return Err(corrupt("JPEG frame header is too short"));
    };
    if precision != 8 {
        return Err(unsupported(format!("JPEG with {precision} bits per value")));
    }
    let (height, width) = (u16::from_be_bytes([h1, h0]), u16::from_be_bytes([w1, w0]));
    if height == 0 {
        return Err(unsupported("JPEG that tells its height after the image"));
    }
    if width == 0 || rest.len() != 3 * usize::from(count) {
        return Err(corrupt("JPEG frame header contradicts itself"));
    }
    if !matches!(count, 1 | 3 | 4) {
        return Err(unsupported(format!("JPEG with {count} components")));
    }
    let component = |b: &[u8]| Component { id: b[0], across: b[1] >> 4, down: b[1] & 15, table: b[2] };
    let mut components: smallvec::SmallVec<[Component; 4]> = rest.chunks_exact(3).map(component).collect();
    if components.iter().any(|c| !matches!((c.across, c.down), (1..=4, 1..=4)) || c.table > 3) {
        return Err(corrupt("JPEG frame header contradicts itself"));
    }
    if let [single] = components.as_mut_slice() {
        // A scan of one component is never interleaved, so its factors mean nothing.
        (single.across, single.down) = (1, 1);
    }
    Ok(Frame { progressive: marker == 0xc2, height, width, components })
}

/// The rule of libjpeg (jdapimin.c, default_decompress_parms).
fn colour(frame: &Frame, jfif: bool, adobe: Option<u8>) -> Result<Colour> {
    let ids = || frame.components.iter().map(|c| c.id);
    Ok(match (frame.components.len(), adobe) {
        (1, _) => Colour::Gray,
        (3, _) if jfif => Colour::YCbCr,
        (3, Some(0)) => Colour::Rgb,
        (3, None) if ids().eq(*b"RGB") => Colour::Rgb,
        (3, _) => Colour::YCbCr,
        (4, Some(2)) => Colour::Ycck,
        (4, _) => Colour::Cmyk,
        (count, _) => return Err(unsupported(format!("JPEG with {count} components"))),
    })
}

fn cut_short(bytes: &[u8]) -> Error {
    corrupt(format!("JPEG ends after {} bytes, inside its header", bytes.len()))
}

/// The entropy-coded data of a scan.
#[derive(Debug)]
struct Scan {
    bytes: Range<usize>,
    /// Whether a marker follows.
    ended: bool,
}

impl Scan {
    /// The data from `start` to the first marker that is no restart.
    fn find(bytes: &[u8], start: usize) -> Self {
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
fn next_marker(bytes: &[u8], mut at: usize) -> Option<(usize, u8)> {
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
fn find_ff(bytes: &[u8]) -> Option<usize> {
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

fn decoder<'a>(file: &'a [u8], scan: usize, colour: Colour, cut: bool, strict: bool) -> JpegDecoder<Reader<'a>> {
    let space = if colour == Colour::Gray { ColorSpace::Luma } else { ColorSpace::RGB };
    // RGB: zune's YCbCr, 1.54 ms against 1.45 for a photograph of 500x375, is no quicker, and kernels take RGB.
    let options = DecoderOptions::default()
        .set_strict_mode(strict)
        .set_max_width(u16::MAX.into())
        .set_max_height(u16::MAX.into())
        .jpeg_set_out_colorspace(space);
    let reader = Reader { bytes: file, at: 0, deaf_from: if cut { scan } else { usize::MAX } };
    JpegDecoder::new_with_options(reader, options)
}

/// Bits that no Huffman table can hold: a code of ones only is forbidden (T.81, C.2). Twice what zune reads ahead.
const NO_CODE: &[u8; 32] =
    b"\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0";

/// Decodes the first `height` rows of a sequential file.
fn one_scan(
    bytes: &[u8],
    header: &Header<'_>,
    scan: &Scan,
    height: u16,
    strict: bool,
    out: &mut PixelBuffer,
) -> Result<(), String> {
    let mut file = std::mem::take(&mut out.scratch);
    file.clear();
    header.write(height, &mut file);
    let start = file.len();
    file.extend_from_slice(&bytes[scan.bytes.clone()]);
    // Without the end marker: zune would make up whatever lies behind it.
    file.extend_from_slice(NO_CODE);
    let info = ImageInfo { height: height.into(), ..header.info() };
    let pixels = out.room(0..info.height, info.len_bytes() as usize);
    let cut = height < header.frame.height && !header.restarts;
    let result = decoder(&file, start, header.colour, cut, strict).decode_into(pixels);
    out.scratch = file;
    result.map_err(|words| words.to_string())
}

/// Rows before the first one that can't be decoded. For messages: decodes the file once more.
fn good_rows(bytes: &[u8], header: &Header<'_>, scan: &Scan, out: &mut PixelBuffer) -> u32 {
    let info = header.info();
    if one_scan(bytes, header, scan, header.frame.height, false, out).is_err() {
        return 0;
    }
    let row = usize::from(header.frame.width) * usize::from(info.channels);
    let pixels = &out.data[..info.len_bytes() as usize];
    // Told to go on, zune fills the rows that it can't decode with 128.
    let missing = pixels.chunks_exact(row).rev().take_while(|row| row.iter().all(|b| *b == 128)).count();
    info.height - missing as u32
}

/// Where the end marker of a file with several scans ends; `at` is where the data of the first one begins.
fn end_of_scans(bytes: &[u8], mut at: usize) -> Result<usize> {
    loop {
        let (found, marker) = next_marker(bytes, at).ok_or_else(|| {
            corrupt(format!("JPEG ends after {} bytes, before its last scan is complete", bytes.len()))
        })?;
        at = found + 2;
        match marker {
            EOI => return Ok(at),
            0x01 | 0xd0..=0xd7 => {}
            _ => at += segment(bytes, at)?.len(),
        }
    }
}

/// Decodes a progressive file, all of it.
fn all_scans(bytes: &[u8], header: &Header<'_>, out: &mut PixelBuffer) -> Result<()> {
    // Such a file looks complete, only blurred, when its last scans are missing.
    let at = end_of_scans(bytes, header.scan)?;
    let mut file = std::mem::take(&mut out.scratch);
    file.clear();
    header.write(header.frame.height, &mut file);
    let start = file.len();
    file.extend_from_slice(&bytes[header.scan..at]);
    let info = header.info();
    let pixels = out.room(0..info.height, info.len_bytes() as usize);
    // zune may leave rows of a damaged file as they are: never the pixels of another image.
    pixels.fill(0);
    let result = decoder(&file, start, header.colour, false, true).decode_into(pixels);
    out.scratch = file;
    result.map_err(|words| corrupt("JPEG is damaged").with_source(cause(words.to_string())))
}

/// A slice that zune reads, and that stops it from looking for an end marker which a cut image does not reach.
///
/// zune reads the scan's data by [`read_byte_no_error`](ZByteReaderTrait::read_byte_no_error) and four bytes at a
/// time, and looks for a marker by single bytes of `read_exact_bytes`; without restart markers that happens in the
/// scan only after the last row. The search would cost a fifth of decoding what it walks over.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    deaf_from: usize,
}

impl Reader<'_> {
    #[inline(always)]
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }
}

const TOO_FEW: ZByteIoError = ZByteIoError::Generic("no bytes left");

impl ZByteReaderTrait for Reader<'_> {
    #[inline(always)]
    fn read_byte_no_error(&mut self) -> u8 {
        let byte = self.bytes.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        byte
    }

    #[inline(always)]
    fn read_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        if buf.len() == 1 && self.at >= self.deaf_from {
            return Err(TOO_FEW);
        }
        self.peek_exact_bytes(buf)?;
        self.at += buf.len();
        Ok(())
    }

    #[inline(always)]
    fn read_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let read = self.peek_bytes(buf)?;
        self.at += read;
        Ok(read)
    }

    #[inline(always)]
    fn peek_bytes(&mut self, buf: &mut [u8]) -> Result<usize, ZByteIoError> {
        let rest = self.rest();
        let read = buf.len().min(rest.len());
        buf[..read].copy_from_slice(&rest[..read]);
        Ok(read)
    }

    #[inline(always)]
    fn peek_exact_bytes(&mut self, buf: &mut [u8]) -> Result<(), ZByteIoError> {
        let source = self.rest().get(..buf.len()).ok_or(TOO_FEW)?;
        buf.copy_from_slice(source);
        Ok(())
    }

    #[inline(always)]
    fn z_seek(&mut self, from: ZSeekFrom) -> Result<u64, ZByteIoError> {
        let (base, offset) = match from {
            ZSeekFrom::Start(at) => (0, at as i64),
            ZSeekFrom::End(offset) => (self.bytes.len(), offset),
            ZSeekFrom::Current(offset) => (self.at, offset),
        };
        self.at = base.checked_add_signed(offset as isize).ok_or(ZByteIoError::SeekError("before the start"))?;
        Ok(self.at as u64)
    }

    #[inline(always)]
    fn is_eof(&mut self) -> Result<bool, ZByteIoError> {
        Ok(self.at >= self.bytes.len())
    }

    fn z_position(&mut self) -> Result<u64, ZByteIoError> {
        Ok(self.at as u64)
    }

    fn read_remaining(&mut self, sink: &mut Vec<u8>) -> Result<usize, ZByteIoError> {
        let rest = self.rest();
        let read = rest.len();
        sink.extend_from_slice(rest);
        self.at += read;
        Ok(read)
    }
}
