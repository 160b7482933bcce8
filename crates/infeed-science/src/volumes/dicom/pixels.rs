//! Decodes the bytes of DICOM files to voxels in the machine's byte order.

use std::{io::Read, ops::Range, sync::Once};

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result, setting::SKIP};

use super::{
    header::{Bits, Header},
    lossless,
    syntax::Pixels,
};

/// How the pixels of one file are written, and where they are in the bytes that are read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    pub(super) pixels: Pixels,
    pub(super) big_endian: bool,
    pub(super) bits: Bits,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) channels: usize,
    pub(super) planar: bool,
    /// Whether three channels are stored as RGB.
    pub(super) rgb: bool,
    pub(super) frames: usize,
    /// Where each frame begins among the pieces, if the file has an extended offset table.
    pub(super) table: Option<Box<[u64]>>,
    /// Bytes to skip in the inflated data.
    pub(super) skip: u64,
}

fn cut(found: usize, wanted: usize) -> Error {
    Error::corrupt(format!("the pixels end after {found} of {wanted} bytes"))
        .with_hint(format!("fetch the object again or set {SKIP}"))
}

/// The bytes of a file, ready to take frames from.
pub(super) enum Opened {
    Plain(Bytes),
    /// The pieces of each frame.
    Pieces(Bytes, Vec<Vec<Range<usize>>>),
}

impl Layout {
    pub(super) fn new(header: &Header) -> Self {
        Self {
            pixels: header.pixels,
            big_endian: header.big_endian,
            bits: header.bits,
            rows: header.rows,
            columns: header.columns,
            channels: header.channels,
            planar: header.planar && header.channels > 1,
            rgb: header.rgb,
            frames: header.frames,
            table: header.table.clone().map(Vec::into_boxed_slice),
            skip: if header.pixels == Pixels::Deflated { header.at.start } else { 0 },
        }
    }

    const fn size(&self) -> usize {
        (self.bits.allocated / 8) as usize
    }

    pub(super) const fn frame_values(&self) -> usize {
        self.rows * self.columns * self.channels
    }

    pub(super) const fn frame_bytes(&self) -> usize {
        self.frame_values() * self.size()
    }

    /// Whether native pixels are voxels as they are, on this machine.
    pub(super) const fn is_plain(&self) -> bool {
        let Bits { allocated, stored, .. } = self.bits;
        let foreign = self.big_endian != cfg!(target_endian = "big") && allocated > 8;
        !self.planar && !foreign && allocated == stored
    }

    /// Finds the frames in the bytes of the file.
    pub(super) fn open(&self, file: &Bytes) -> Result<Opened> {
        match self.pixels {
            Pixels::Native => Ok(Opened::Plain(file.clone())),
            Pixels::Deflated => self.inflate(file).map(Opened::Plain),
            _ => Ok(Opened::Pieces(file.clone(), self.pieces(file)?)),
        }
    }

    fn inflate(&self, file: &[u8]) -> Result<Bytes> {
        let at = after_first_group(file).ok_or_else(|| Error::corrupt("a damaged first group"))?;
        let failed = |e: std::io::Error| {
            Error::corrupt("damaged deflated pixels")
                .with_hint(format!("fetch the object again or set {SKIP}"))
                .with_source(e)
        };
        let mut reader = flate2::bufread::DeflateDecoder::new(&file[at..]);
        std::io::copy(&mut reader.by_ref().take(self.skip), &mut std::io::sink()).map_err(failed)?;
        let len = self.frame_bytes() * self.frames;
        let mut out = Vec::new();
        out.reserve_exact(len.min(file.len().saturating_mul(1032)));
        reader.take(len as u64).read_to_end(&mut out).map_err(failed)?;
        if out.len() < len { Err(cut(out.len(), len)) } else { Ok(out.into()) }
    }

    /// The pieces of each frame. The first item is the table of their offsets, which may be empty; the pieces follow
    /// it.
    fn pieces(&self, file: &[u8]) -> Result<Vec<Vec<Range<usize>>>> {
        let mut items: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        loop {
            let head: Option<&[u8; 8]> = file.get(at..).and_then(<[u8]>::first_chunk);
            let Some([a, b, c, d, len @ ..]) = head else {
                // Some files lack the last delimiter.
                if at == file.len() && items.len() > 1 {
                    break;
                }
                return Err(cut(file.len(), at + 8));
            };
            match (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d])) {
                (0xfffe, 0xe000) => {}
                (0xfffe, 0xe0dd) => break,
                _ => return Err(Error::corrupt("the pixels' pieces are damaged")),
            }
            let end = (at + 8).saturating_add(u32::from_le_bytes(*len) as usize);
            if end > file.len() {
                return Err(cut(file.len(), end));
            }
            items.push(at + 8..end);
            at = end;
        }
        if items.len() < 2 {
            return Err(Error::corrupt("there are no pixels"));
        }
        let offsets: Vec<u64> = match &self.table {
            Some(table) => table.to_vec(),
            None => file[items[0].clone()].as_chunks().0.iter().map(|n| u64::from(u32::from_le_bytes(*n))).collect(),
        };
        let items = &items[1..];
        let first = items[0].start - 8;
        let begins = |(i, item): (usize, &Range<usize>)| -> bool {
            if offsets.len() == self.frames {
                return offsets.binary_search(&((item.start - 8 - first) as u64)).is_ok();
            }
            // Without a table, each piece is a frame, or a frame begins with each start of a JPEG.
            items.len() == self.frames || i == 0 || (self.frames > 1 && file[item.clone()].starts_with(b"\xff\xd8\xff"))
        };
        let mut frames: Vec<Vec<Range<usize>>> = Vec::new();
        for (i, item) in items.iter().enumerate() {
            match frames.last_mut() {
                Some(frame) if !begins((i, item)) => frame.push(item.clone()),
                _ => frames.push(vec![item.clone()]),
            }
        }
        if frames.len() != self.frames {
            let what = format!("{} pieces of pixels can't be assigned to {} frames", items.len(), self.frames);
            return Err(Error::corrupt(what));
        }
        Ok(frames)
    }

    /// Appends the voxels of a frame: interleaved, in the machine's byte order, without the bits that do not belong to
    /// them.
    pub(super) fn frame(&self, opened: &Opened, frame: usize, out: &mut Vec<u8>) -> Result<()> {
        let len = self.frame_bytes();
        match opened {
            Opened::Plain(bytes) => {
                let range = frame * len..(frame + 1) * len;
                let frame = bytes.get(range.clone()).ok_or_else(|| cut(bytes.len(), range.end))?;
                self.settle(frame, out);
            }
            Opened::Pieces(file, frames) => {
                let pieces = frames.get(frame).ok_or_else(|| Error::corrupt(format!("there is no frame {frame}")))?;
                let joined: Vec<u8>;
                let data = match &pieces[..] {
                    [one] => &file[one.clone()],
                    several => {
                        joined = several.iter().flat_map(|piece| &file[piece.clone()]).copied().collect();
                        &joined
                    }
                };
                self.unpack(data, out)?;
            }
        }
        Ok(())
    }

    fn unpack(&self, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let len = self.frame_bytes();
        match self.pixels {
            Pixels::Runs => {
                let frame = runs(data, self.frame_values(), self.channels, self.size())?;
                // Already interleaved and in the machine's byte order.
                self.settle_as(&frame, cfg!(target_endian = "big"), false, out);
            }
            Pixels::Jpeg => {
                let wrong = |e: infeed_jpeg::Error| Error::corrupt("damaged JPEG").with_source(e);
                let named: Vec<u8>;
                let mut data = data;
                let header = infeed_jpeg::Header::parse(data).map_err(wrong)?;
                let found = [header.height() as usize, header.width() as usize, header.channels()];
                if found != [self.rows, self.columns, self.channels] {
                    let wanted = [self.rows, self.columns, self.channels];
                    return Err(Error::corrupt(format!("JPEG of {found:?} where the header says {wanted:?}")));
                }
                let is_rgb = |header: &infeed_jpeg::Header| header.colour() == infeed_jpeg::Colour::Rgb;
                if self.channels > 1 && self.rgb != is_rgb(&header) {
                    named = with_colours(data, self.rgb);
                    let other = infeed_jpeg::Header::parse(&named).map_err(wrong)?;
                    match (is_rgb(&other) == self.rgb, self.rgb) {
                        // Without markers, the header of the DICOM file decides.
                        (true, true) => data = &named,
                        // Names of components, or JFIF's and Adobe's markers, decide, as in pydicom.
                        (true, false) | (false, true) => warn_of_colours(header.colour(), self.rgb),
                        // Adobe's marker declares RGB: decoders disagree about the colours.
                        (false, false) => {
                            let what = "JPEG whose marker declares RGB, in a file that declares YBR";
                            return Err(Error::new(ErrorKind::Unsupported, what));
                        }
                    }
                }
                let image = infeed_jpeg::Decoder::default().decode(data).map_err(wrong)?;
                self.settle_as(&image.data, false, false, out);
            }
            Pixels::Lossless => {
                let values = lossless::decode(data, [self.rows, self.columns, self.channels])?;
                if self.size() == 1 {
                    let bytes: Vec<u8> = values.iter().map(|value| *value as u8).collect();
                    self.settle_as(&bytes, false, false, out);
                } else {
                    let bytes = bytemuck::cast_slice(&values);
                    self.settle_as(bytes, cfg!(target_endian = "big"), false, out);
                }
            }
            _ => self.settle(data.get(..len).ok_or_else(|| cut(data.len(), len))?, out),
        }
        Ok(())
    }

    /// Appends native pixels, a frame or a part of one, as voxels.
    pub(super) fn settle(&self, pixels: &[u8], out: &mut Vec<u8>) {
        self.settle_as(pixels, self.big_endian, self.planar, out);
    }

    fn settle_as(&self, pixels: &[u8], big_endian: bool, planar: bool, out: &mut Vec<u8>) {
        let turned: Vec<u8>;
        let pixels = if planar {
            turned = interleaved(pixels, self.channels, self.size());
            &turned
        } else {
            pixels
        };
        let Bits { allocated, stored, high, signed } = self.bits;
        if allocated == stored && (allocated == 8 || big_endian == cfg!(target_endian = "big")) {
            out.extend_from_slice(pixels);
            return;
        }
        // Shift the highest stored bit to the top, then back: this clears the bits above and below and extends the
        // sign.
        let (up, down) = (u32::from(allocated - 1 - high), u32::from(allocated - stored));
        macro_rules! settle {
            ($n:literal $unsigned:ty, $signed:ty) => {
                for value in pixels.as_chunks::<$n>().0 {
                    let value = if big_endian {
                        <$unsigned>::from_be_bytes(*value)
                    } else {
                        <$unsigned>::from_le_bytes(*value)
                    };
                    let top = value << up;
                    let value = if signed { (top as $signed >> down) as $unsigned } else { top >> down };
                    out.extend_from_slice(&value.to_ne_bytes());
                }
            };
        }
        match allocated {
            8 => settle!(1 u8, i8),
            16 => settle!(2 u16, i16),
            32 => settle!(4 u32, i32),
            _ => settle!(8 u64, i64),
        }
    }
}

/// The JPEG with Adobe's marker for these colours in front of its own markers, which win if they name others.
fn with_colours(jpeg: &[u8], rgb: bool) -> Vec<u8> {
    let marker = [&b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"[..], &[u8::from(!rgb)]].concat();
    [jpeg.get(..2).unwrap_or_default(), &marker, jpeg.get(2..).unwrap_or_default()].concat()
}

/// Warns once in a process: a series has thousands of frames.
fn warn_of_colours(found: infeed_jpeg::Colour, rgb: bool) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| {
        let header = if rgb { "RGB" } else { "YBR" };
        tracing::warn!(
            header,
            "the markers of a JPEG name other colours ({found:?}) than the header of its DICOM file; the markers decide; \
             later files are not reported"
        );
    });
}

/// Interleaves planes of channels.
fn interleaved(pixels: &[u8], channels: usize, size: usize) -> Vec<u8> {
    let plane = pixels.len() / channels;
    let value = |at: usize, channel: usize| &pixels[channel * plane + at..][..size];
    (0..plane).step_by(size).flat_map(|at| (0..channels).flat_map(move |channel| value(at, channel))).copied().collect()
}

/// Where the first group ends. Its elements are in the explicit form.
fn after_first_group(file: &[u8]) -> Option<usize> {
    let mut at = 132;
    while file.get(at..at + 2)? == [2, 0] {
        let vr = file.get(at + 4..at + 6)?;
        let long = matches!(vr, b"OB" | b"OW" | b"UN" | b"UT" | b"SQ" | b"UC" | b"UR" | b"OD" | b"OF" | b"OL" | b"OV");
        at = match long {
            true => {
                let len = u32::from_le_bytes(file.get(at + 8..at + 12)?.try_into().ok()?);
                (at + 12).checked_add(len as usize)?
            }
            false => at + 8 + usize::from(u16::from_le_bytes(file.get(at + 6..at + 8)?.try_into().ok()?)),
        };
    }
    Some(at)
}

/// Decodes DICOM's PackBits (PS3.5, annex G): one segment per byte of a value, the highest first. Returns values in the
/// machine's byte order.
fn runs(data: &[u8], values: usize, channels: usize, size: usize) -> Result<Vec<u8>> {
    let wrong = || Error::corrupt("damaged runs").with_hint(format!("fetch the object again or set {SKIP}"));
    let words = data.get(..64).ok_or_else(wrong)?.as_chunks::<4>().0;
    let word = |i: usize| u32::from_le_bytes(words[i]) as usize;
    let segments = channels * size;
    if word(0) != segments {
        return Err(Error::corrupt(format!("{} segments of runs, expected {segments}", word(0))));
    }
    let mut out = vec![0; values * size];
    for segment in 0..segments {
        let end = if segment + 1 < segments { word(segment + 2) } else { data.len() };
        let mut rest = data.get(word(segment + 1)..end).ok_or_else(wrong)?;
        let (channel, byte) = (segment / size, segment % size);
        let byte = if cfg!(target_endian = "big") { byte } else { size - 1 - byte };
        let mut to = out.iter_mut().skip(channel * size + byte).step_by(segments);
        let mut left = values / channels;
        while left > 0 {
            let [head, more @ ..] = rest else { return Err(wrong()) };
            let head = *head as i8;
            let count = match head {
                0.. => {
                    let count = left.min(head as usize + 1);
                    let some = more.get(..count).ok_or_else(wrong)?;
                    some.iter().zip(&mut to).for_each(|(from, to)| *to = *from);
                    rest = more.get(head as usize + 1..).unwrap_or(&[]);
                    count
                }
                -128 => {
                    rest = more;
                    0
                }
                _ => {
                    let count = left.min(1 + usize::from(head.unsigned_abs()));
                    let [value, more @ ..] = more else { return Err(wrong()) };
                    (&mut to).take(count).for_each(|to| *to = *value);
                    rest = more;
                    count
                }
            };
            left -= count;
        }
    }
    Ok(out)
}
