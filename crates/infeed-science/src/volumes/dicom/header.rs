//! Reads the description of the pixels of a DICOM file: the elements before them, no further.

use std::{io::Read, ops::Range};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

use super::{
    element::{Element, Elements, Form, Stop, Tag, bad, name},
    syntax::{Pixels, syntax},
};

/// Which bits of a value belong to the pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    pub(super) allocated: u16,
    pub(super) stored: u16,
    pub(super) high: u16,
    pub(super) signed: bool,
}

/// Position, orientation and scaling of one frame, or of all frames of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    /// Centre of the first pixel: x, y, z.
    pub(super) position: Option<[f64; 3]>,
    /// Direction along a row, then along a column.
    pub(super) orientation: Option<[f64; 6]>,
    /// Distance from row to row, then from column to column.
    pub(super) spacing: Option<[f64; 2]>,
    pub(super) between: Option<f64>,
    pub(super) thickness: Option<f64>,
    pub(super) slope: Option<f64>,
    pub(super) intercept: Option<f64>,
}

impl Said {
    /// The values of `self`, and for those that are missing the values of `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            position: self.position.or(other.position),
            orientation: self.orientation.or(other.orientation),
            spacing: self.spacing.or(other.spacing),
            between: self.between.or(other.between),
            thickness: self.thickness.or(other.thickness),
            slope: self.slope.or(other.slope),
            intercept: self.intercept.or(other.intercept),
        }
    }
}

/// The header of a file with pixels.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) series: String,
    pub(super) instance: Option<i64>,
    /// Whether it is a localizer (scout): a picture on which other scans are planned.
    pub(super) localizer: bool,
    /// Whether elements are in another form than the transfer syntax declares.
    pub(super) is_other_form: bool,
    pub(super) big_endian: bool,
    pub(super) pixels: Pixels,
    pub(super) bits: Bits,
    pub(super) dtype: DType,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) frames: usize,
    pub(super) channels: usize,
    /// Whether each channel is a separate plane within a frame.
    pub(super) planar: bool,
    pub(super) rgb: bool,
    /// Of all frames.
    pub(super) said: Said,
    /// Of each frame; empty if the file has no such values.
    pub(super) per_frame: Vec<Said>,
    /// Offsets of the planes along the normal, if a dose file has them.
    pub(super) grid: Option<Vec<f64>>,
    /// Where each frame begins among the pieces, if the file has an extended offset table.
    pub(super) table: Option<Vec<u64>>,
    /// The bytes of the pixels. In a deflated file: offsets in the inflated data. In pieces: from their table to the
    /// end of the file.
    pub(super) at: Range<u64>,
}

/// What a file turned out to be.
#[derive(Debug)]
pub(super) enum FileContent {
    Image(Box<Header>),
    /// No pixels (contours, a report, a plan), or pixels that are not an image; the text is the reason.
    Other(&'static str),
    /// Not a DICOM file.
    Foreign,
    /// More of the file is needed: up to this byte.
    More(u64),
}

/// The longest header that is read, in bytes. The header of 10,000 frames has a few megabytes.
pub(super) const LONGEST: u64 = 64 << 20;

/// Parses the first bytes of a file of `size` bytes.
///
/// # Errors
/// `Corrupt` for a file that contradicts itself, `Unsupported` for pixels of a kind that is not read. The error names
/// no object.
pub(super) fn parse(bytes: &[u8], size: u64) -> Result<FileContent> {
    if bytes.len() < 132 && (bytes.len() as u64) < size {
        return Ok(FileContent::More(132));
    }
    if bytes.get(128..132) != Some(b"DICM") {
        return Ok(FileContent::Foreign);
    }
    let whole = bytes.len() as u64 >= size;
    match read(bytes, size) {
        Ok(found) => Ok(found),
        Err(Stop::Bad(error)) => Err(error),
        Err(Stop::More(_)) if whole => {
            Err(Error::corrupt("the file ends within its header").with_hint("the file is cut; fetch it again"))
        }
        Err(Stop::More(to)) => Ok(FileContent::More(to)),
    }
}

fn read(bytes: &[u8], size: u64) -> Result<FileContent, Stop> {
    // The first group is always in the explicit form, and names the form of the others.
    let meta = Elements { bytes, form: Form::EXPLICIT };
    let mut uid = None;
    let mut at = 132;
    while meta.u16(at)? == 2 {
        let element = meta.next(at)?;
        if element.tag == (2, 0x10) {
            uid = Some(text(meta.value(&element)?));
        }
        at = meta.after(&element)?;
    }
    let uid = uid.ok_or_else(|| bad("it has no transfer syntax (0002,0010)"))?;
    let (form, pixels) = syntax(&uid)?;
    if pixels != Pixels::Deflated {
        return Reading::new(Elements { bytes, form }, at)?.all(at, pixels, size, Some(size));
    }
    // The inflated part of these bytes is enough if the header ends in it.
    let mut out = Vec::new();
    let limit = LONGEST.min((bytes.len() as u64).saturating_mul(pixels.most_of_a_byte()));
    let done = flate2::bufread::DeflateDecoder::new(&bytes[at..]).take(limit).read_to_end(&mut out);
    let whole = bytes.len() as u64 >= size;
    let end = (whole || done.is_ok()).then_some(out.len() as u64);
    let most = size.saturating_mul(pixels.most_of_a_byte());
    match Reading::new(Elements { bytes: &out, form }, 0).and_then(|reading| reading.all(0, pixels, most, end)) {
        Err(Stop::More(_)) if !whole => Err(Stop::More((bytes.len() as u64).saturating_mul(2))),
        Err(Stop::More(to)) => match done {
            Err(e) => Err(Error::corrupt("damaged deflated header").with_source(e).into()),
            Ok(_) => Err(Stop::More(to)),
        },
        found => found,
    }
}

/// The values read so far.
struct Reading<'a> {
    elements: Elements<'a>,
    is_other_form: bool,
    numbers: Numbers,
    series: String,
    instance: Option<i64>,
    class: String,
    kind: String,
    colours: String,
    lut: bool,
    dose: Option<f64>,
    said: Said,
    shared: Said,
    per_frame: Vec<Said>,
    grid: Option<Vec<f64>>,
    table: Option<Vec<u64>>,
}

#[derive(Default)]
struct Numbers {
    rows: Option<u16>,
    columns: Option<u16>,
    samples: Option<u16>,
    planar: Option<u16>,
    allocated: Option<u16>,
    stored: Option<u16>,
    high: Option<u16>,
    signed: Option<u16>,
    frames: Option<i64>,
}

/// The functional groups of all frames, and those of each frame, which win.
const SHARED: Tag = (0x5200, 0x9229);
const PER_FRAME: Tag = (0x5200, 0x9230);

impl<'a> Reading<'a> {
    /// The first element, at `at`, shows the form of all. Some writers use another one than the transfer syntax
    /// declares; pydicom decides in the same way.
    fn new(mut elements: Elements<'a>, at: usize) -> Result<Self, Stop> {
        let declared = elements.form;
        // There is no implicit form with the highest byte first.
        elements.form.explicit = declared.big_endian || elements.has_type(at)?;
        Ok(Self {
            is_other_form: elements.form != declared,
            elements,
            numbers: Numbers::default(),
            series: String::new(),
            instance: None,
            class: String::new(),
            kind: String::new(),
            colours: String::new(),
            lut: false,
            dose: None,
            said: Said::default(),
            shared: Said::default(),
            per_frame: Vec::new(),
            grid: None,
            table: None,
        })
    }

    /// Reads from the first element after the first group. `size`: the most bytes there can be; `end`: their number, if
    /// known.
    fn all(mut self, mut at: usize, pixels: Pixels, size: u64, end: Option<u64>) -> Result<FileContent, Stop> {
        let elements = self.elements;
        loop {
            if end.is_some_and(|end| at as u64 == end) {
                return Ok(FileContent::Other("without pixels"));
            }
            let element = elements.next(at)?;
            match element.tag {
                (0x7fe0, 8) => return self.image(&element, pixels, size, Some(DType::F32)),
                (0x7fe0, 9) => return self.image(&element, pixels, size, Some(DType::F64)),
                (0x7fe0, 0x10) => return self.image(&element, pixels, size, None),
                // Elements are in ascending order, so contours and reports need not be read to their ends.
                tag if tag > (0x28, 0x10) && self.numbers.rows.is_none() => {
                    return Ok(FileContent::Other("without pixels"));
                }
                tag if tag > (0x7fe0, 0x10) => return Ok(FileContent::Other("without pixels")),
                _ => {}
            }
            self.take(&element)?;
            at = elements.after(&element)?;
        }
    }

    fn take(&mut self, element: &Element) -> Result<(), Stop> {
        let elements = self.elements;
        let short = || -> Result<Option<u16>, Stop> {
            match element.len {
                Some(0) => Ok(None),
                Some(2) => elements.u16(element.at).map(Some),
                _ => Err(bad(format!("{} is not a number of two bytes", name(element.tag)))),
            }
        };
        let numbers = &mut self.numbers;
        match element.tag {
            (0x0008, 0x0008) => self.kind = text(elements.value(element)?),
            (0x0008, 0x0016) => self.class = text(elements.value(element)?),
            (0x0020, 0x000e) => self.series = text(elements.value(element)?),
            (0x0020, 0x0013) => self.instance = whole(elements.value(element)?, element.tag)?,
            (0x0028, 0x0002) => numbers.samples = short()?,
            (0x0028, 0x0004) => self.colours = text(elements.value(element)?),
            (0x0028, 0x0006) => numbers.planar = short()?,
            (0x0028, 0x0008) => numbers.frames = whole(elements.value(element)?, element.tag)?,
            (0x0028, 0x0010) => numbers.rows = short()?,
            (0x0028, 0x0011) => numbers.columns = short()?,
            (0x0028, 0x0100) => numbers.allocated = short()?,
            (0x0028, 0x0101) => numbers.stored = short()?,
            (0x0028, 0x0102) => numbers.high = short()?,
            (0x0028, 0x0103) => numbers.signed = short()?,
            (0x0028, 0x3000) => self.lut = element.len != Some(0),
            (0x3004, 0x000c) => self.grid = decimals(elements.value(element)?, element.tag)?,
            (0x3004, 0x000e) => self.dose = one(elements.value(element)?, element.tag)?,
            (0x7fe0, 0x0001) => {
                let value = elements.value(element)?;
                self.table = Some(value.as_chunks().0.iter().map(|n| u64::from_le_bytes(*n)).collect());
            }
            // The first detector of a scintigraphy.
            (0x0054, 0x0022) => {
                if let Some((at, end)) = elements.items(element)?.first() {
                    said(elements, *at, *end, &mut self.shared, 0)?;
                }
            }
            SHARED => {
                for (at, end) in elements.items(element)? {
                    said(elements, at, end, &mut self.shared, 0)?;
                }
            }
            PER_FRAME => {
                for (at, end) in elements.items(element)? {
                    let mut own = Said::default();
                    said(elements, at, end, &mut own, 0)?;
                    self.per_frame.push(own);
                }
            }
            _ => plain(elements, element, &mut self.said)?,
        }
        Ok(())
    }

    /// Checks the values; called when all elements before the pixels were read.
    fn image(
        mut self,
        element: &Element,
        pixels: Pixels,
        size: u64,
        float: Option<DType>,
    ) -> Result<FileContent, Stop> {
        let unsupported = |what: String| -> Stop { Error::new(ErrorKind::Unsupported, what).into() };
        let n = &self.numbers;
        let need = |value: Option<u16>, what: &str| value.ok_or_else(|| bad(format!("it has no {what}")));
        let (rows, columns) = (need(n.rows, "rows (0028,0010)")?, need(n.columns, "columns (0028,0011)")?);
        let allocated = need(n.allocated, "bits of a value (0028,0100)")?;
        let stored = n.stored.filter(|_| float.is_none()).unwrap_or(allocated);
        let high = n.high.filter(|_| float.is_none()).unwrap_or(stored.saturating_sub(1));
        let bits = Bits { allocated, stored, high, signed: n.signed == Some(1) };
        // A segmentation: frames of one bit per voxel, each with its own position.
        if self.class == "1.2.840.10008.5.1.4.1.1.66.4" || allocated == 1 {
            return Ok(FileContent::Other("segments of bits"));
        }
        let dtype = match (float, allocated, bits.signed) {
            (Some(float), ..) if usize::from(allocated) == float.size() * 8 => float,
            (None, 8, false) => DType::U8,
            (None, 8, true) => DType::I8,
            (None, 16, false) => DType::U16,
            (None, 16, true) => DType::I16,
            (None, 32, false) => DType::U32,
            (None, 32, true) => DType::I32,
            _ => return Err(unsupported(format!("values of {allocated} bits, which are not read"))),
        };
        if stored == 0 || stored > allocated || high >= allocated || high + 1 < stored {
            return Err(bad(format!("{stored} bits up to bit {high} of {allocated}")));
        }
        let channels = match (n.samples.unwrap_or(1), &*self.colours) {
            (1, "MONOCHROME1" | "MONOCHROME2" | "") => 1,
            (3, "RGB") => 3,
            // The decoder converts them to RGB.
            (3, "YBR_FULL" | "YBR_FULL_422") if pixels == Pixels::Jpeg => 3,
            (_, colours) => {
                let what = format!("pixels of {colours}, which are not read");
                return Err(Error::new(ErrorKind::Unsupported, what)
                    .with_hint("gray and RGB are; convert the files, or leave the series out")
                    .into());
            }
        };
        if self.lut {
            return Err(unsupported("values mapped by a table (0028,3000), which is not read".into()));
        }
        match pixels {
            Pixels::Jpeg if allocated != 8 || stored != 8 => {
                return Err(unsupported(format!("lossy JPEG of {stored} bits, which is not read")));
            }
            Pixels::Lossless if allocated > 16 => {
                return Err(bad(format!("lossless JPEG of {allocated} bits")));
            }
            _ if self.elements.form.big_endian && allocated == 8 && &element.vr == b"OW" => {
                return Err(unsupported("8-bit pixels in big-endian words (OW), which are not read".into()));
            }
            _ => {}
        }
        let frames = match n.frames.unwrap_or(1) {
            frames @ 1.. => usize::try_from(frames).map_err(|_| bad(format!("{frames} frames")))?,
            frames => return Err(bad(format!("{frames} frames"))),
        };
        if !self.per_frame.is_empty() && self.per_frame.len() != frames {
            return Err(bad(format!("{frames} frames, but positions of {}", self.per_frame.len())));
        }
        if self.grid.as_ref().is_some_and(|grid| grid.len() != frames) {
            self.grid = None;
        }
        let start = element.at as u64;
        let end = if pixels.in_pieces() { size } else { element.len.map_or(size, |len| start + u64::from(len)) };
        if element.len.is_some() == pixels.in_pieces() {
            return Err(bad("its pixels contradict its transfer syntax: only one of them is in pieces (encapsulated)"));
        }
        // Rows, columns and channels are small, so their product fits in 64 bits.
        let frame = u64::from(rows) * u64::from(columns) * channels as u64;
        let wanted = frame.checked_mul(frames as u64 * dtype.size() as u64).filter(|len| *len <= isize::MAX as u64 / 2);
        let Some(wanted) = wanted.filter(|wanted| *wanted > 0) else {
            return Err(bad(format!("{frames} frames of {rows} x {columns} pixels")));
        };
        let room =
            (size - start.min(size)).saturating_mul(if pixels.in_pieces() { pixels.most_of_a_byte() } else { 1 });
        let pieces = !pixels.in_pieces() || frames as u64 <= size / 8;
        let values = if pixels.in_pieces() && pixels != Pixels::Pieces { wanted / dtype.size() as u64 } else { wanted };
        if values > room || !pieces || (!pixels.in_pieces() && wanted > end - start) {
            let what =
                format!("the header says {wanted} bytes of pixels, the file has {}", size.min(end) - start.min(end));
            return Err(Error::corrupt(what).with_hint("the file is truncated or damaged; fetch it again").into());
        }
        let end = if pixels.in_pieces() { end } else { start + wanted };
        let mut said = self.shared.or(self.said);
        said.slope = said.slope.or(self.dose);
        Ok(FileContent::Image(Box::new(Header {
            series: self.series,
            instance: self.instance,
            is_other_form: self.is_other_form,
            localizer: self.kind.split('\\').any(|word| word.trim() == "LOCALIZER"),
            big_endian: self.elements.form.big_endian,
            pixels,
            bits,
            dtype,
            rows: rows.into(),
            columns: columns.into(),
            frames,
            channels,
            planar: n.planar == Some(1),
            rgb: self.colours == "RGB",
            said,
            per_frame: self.per_frame,
            grid: self.grid,
            table: self.table.filter(|table| table.len() == frames),
            at: start..end,
        })))
    }
}

/// Reads an item, and the sequences in it that hold positions and scaling, into `to`.
fn said(elements: Elements<'_>, at: usize, end: Option<usize>, to: &mut Said, depth: usize) -> Result<(), Stop> {
    elements.walk(at, end, |element| {
        match element.tag {
            (0x0020, 0x9113 | 0x9116) | (0x0028, 0x9110 | 0x9145) if depth < 2 => {
                for (at, end) in elements.items(element)? {
                    said(elements, at, end, to, depth + 1)?;
                }
            }
            _ => plain(elements, element, to)?,
        }
        Ok(true)
    })
}

fn plain(elements: Elements<'_>, element: &Element, to: &mut Said) -> Result<(), Stop> {
    let value = || elements.value(element);
    match element.tag {
        (0x0018, 0x0050) => to.thickness = one(value()?, element.tag)?,
        (0x0018, 0x0088) => to.between = one(value()?, element.tag)?,
        (0x0020, 0x0032) => to.position = several(value()?, element.tag)?,
        (0x0020, 0x0037) => to.orientation = several(value()?, element.tag)?,
        (0x0028, 0x0030) => to.spacing = several(value()?, element.tag)?,
        (0x0028, 0x1052) => to.intercept = one(value()?, element.tag)?,
        (0x0028, 0x1053) => to.slope = one(value()?, element.tag)?,
        _ => {}
    }
    Ok(())
}

/// The text without its padding.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).trim_matches([' ', '\0']).to_owned()
}

fn whole(value: &[u8], tag: Tag) -> Result<Option<i64>, Stop> {
    let text = text(value);
    match &*text {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| bad(format!("{} is `{}`, not a number", name(tag), cut(text)))),
    }
}

/// Finite numbers, separated by `\`; `None` if there are none.
fn decimals(value: &[u8], tag: Tag) -> Result<Option<Vec<f64>>, Stop> {
    let text = text(value);
    if text.is_empty() {
        return Ok(None);
    }
    let number = |word: &str| word.trim_matches([' ', '\0']).parse::<f64>().ok().filter(|n| n.is_finite());
    let numbers: Option<Vec<f64>> = text.split('\\').map(number).collect();
    numbers.map(Some).ok_or_else(|| bad(format!("{} is `{}`, not numbers", name(tag), cut(&text))))
}

fn cut(text: &str) -> String {
    text.chars().take(40).collect()
}

fn several<const N: usize>(value: &[u8], tag: Tag) -> Result<Option<[f64; N]>, Stop> {
    let Some(numbers) = decimals(value, tag)? else { return Ok(None) };
    let count = numbers.len();
    numbers.try_into().map(Some).map_err(|_| bad(format!("{} has {count} numbers, not {N}", name(tag))))
}

fn one(value: &[u8], tag: Tag) -> Result<Option<f64>, Stop> {
    // Some files have a range, or a number for each axis: take the first.
    Ok(decimals(value, tag)?.map(|numbers| numbers[0]))
}
