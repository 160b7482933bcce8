//! Turns a dataset's value for an image field into pixels or planes, which the resampler takes.
//!
//! ```text
//! Value::Encoded ─ first bytes ─▶ ImageCodec ─┬─ in_place ───────────────────────────────────────▶ the file's own bytes
//!                                             └─ header (unless somebody read it) ─▶ window, decode ─▶ PixelBuffer
//! Value::Channels ─ the same, file after file ─▶ planes of one image
//! Value::Pixels ───────────────────────────────────────────────────────────────────▶ as they are
//! ```

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result, panic_words,
        setting::{MAX_IMAGE_BYTES, ORIENTATION, SKIP, in_rust},
    },
    random::SampleRng,
    types::{DType, ImageInfo},
};
use infeed_data::{Instances, Sample, Value};

use super::{ImageCodec, ImageHeader, PixelBuffer, Window, corrupt, unsupported};
use crate::{
    kernels::{Pixels, Planes},
    transform::{Decoded, Drawn, Lowered},
};

/// A mask must have the size of the image before it in the record. Otherwise the same crop would show another part of
/// it.
pub fn fits_mask(lowered: &Lowered, info: &ImageInfo, size: &mut Option<[u32; 2]>) -> Result<()> {
    let here = [info.width, info.height];
    match size.replace(here) {
        Some([w, h]) if lowered.is_mask() && here != [w, h] => {
            let what = format!("a mask of {}x{} pixels for an image of {w}x{h}", info.width, info.height);
            let turned = match here == [h, w] {
                true => format!("; if one file records that it is turned, choose with {ORIENTATION}"),
                false => String::new(),
            };
            Err(corrupt(what).with_hint(format!("make them the same size, or set {SKIP}{turned}")))
        }
        _ => Ok(()),
    }
}

/// The random draws of a sample, and its boxes, on which some draws depend.
#[derive(Clone, Copy, Debug)]
pub struct Drawing<'a> {
    pub(crate) rng: SampleRng,
    /// Boxes and outlines of the image.
    pub(crate) instances: Option<&'a Instances>,
}

impl<'a> Drawing<'a> {
    /// The draws of this record.
    pub fn of(rng: SampleRng, sample: &'a Sample) -> Self {
        let instances = sample.values.iter().find_map(|value| match value {
            Value::Instances(instances) => Some(&**instances),
            _ => None,
        });
        Self { rng, instances }
    }

    /// The boxes must belong to an image of the decoded size. Otherwise they would mark other places.
    pub fn fits(&self, info: &ImageInfo) -> Result<()> {
        match self.instances.map(|instances| instances.size) {
            Some([height, width]) if [height, width] != [info.height, info.width] => {
                let what = format!("boxes of an image of {height}x{width} for one of {}x{}", info.height, info.width);
                let turned = match [width, height] == [info.height, info.width] {
                    true => format!("; if its file is to be turned by EXIF data, look at {ORIENTATION}"),
                    false => String::new(),
                };
                Err(corrupt(what).with_hint(format!("look at the annotations of this image, or set {SKIP}{turned}")))
            }
            _ => Ok(()),
        }
    }
}

/// The same views for rows of the batch's own size, if it has one.
pub fn sized(views: &[Option<Lowered>], size: Option<[u32; 2]>) -> Option<Vec<Option<Lowered>>> {
    let size = Some(size?);
    Some(views.iter().map(|lowered| lowered.clone().map(|lowered| lowered.of_size(size))).collect())
}

/// Adds the field's name to an error about the image of these views. Omitted if the record has only one image.
pub fn blame(views: &[Option<Lowered>], images: usize) -> impl Fn(Error) -> Error + '_ {
    move |error| match views.first() {
        Some(Some(lowered)) if images > 1 => lowered.blame(error),
        _ => error,
    }
}

/// Ranges of fields that are made of one image: a single field, or all views of an image.
pub fn images(programs: &[Option<Lowered>]) -> Vec<Range<usize>> {
    let mut images: Vec<Range<usize>> = Vec::new();
    for (field, program) in programs.iter().enumerate() {
        let Some(lowered) = program else { continue };
        match images.last_mut() {
            Some(image) if lowered.view() > 0 && image.end == field => image.end += 1,
            _ => images.push(field..field + 1),
        }
    }
    images
}

/// Whether an image is a mask: its numbers are labels, which are never blended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labels {
    mask: bool,
    /// Whether rows have one channel.
    gray: bool,
}

impl Labels {
    /// For the image of which these views are made.
    pub(crate) fn of(views: &[Option<Lowered>]) -> Self {
        let any = |is: fn(&Lowered) -> bool| views.iter().flatten().any(is);
        Self { mask: any(Lowered::is_mask), gray: any(Lowered::is_gray_mask) }
    }

    fn header(self, codec: &dyn ImageCodec, file: &[u8]) -> Result<ImageHeader> {
        if self.mask { codec.mask_header(file) } else { codec.header(file) }
    }

    /// Whether the image's colours must be equal and count as one channel.
    const fn flattens(self, info: &ImageInfo) -> bool {
        self.gray && matches!(info.channels, 2..=4)
    }

    const fn counted(self, info: &ImageInfo) -> ImageInfo {
        if self.flattens(info) { ImageInfo { channels: 1, planar: false, ..*info } } else { *info }
    }
}

/// The labels of a mask that is stored with colours or an alpha. All colours of a pixel must be equal, and it must be
/// opaque. The whole mask is checked, whatever the crop.
fn flatten(info: &ImageInfo, pixels: &[u8], out: &mut Vec<u8>) -> Result<ImageInfo> {
    let (size, channels) = (info.dtype.size(), usize::from(info.channels));
    let count = info.height as usize * info.width as usize;
    let colours = if channels == 3 { 3 } else { channels - 1 };
    let opaque: &[u8] = if info.dtype == DType::F32 { &1f32.to_ne_bytes() } else { &[255; 2][..size] };
    out.clear();
    for pixel in 0..count {
        let value = |channel: usize| {
            let at = size * if info.planar { channel * count + pixel } else { pixel * channels + channel };
            &pixels[at..at + size]
        };
        let first = value(0);
        let alike = (1..colours).all(|colour| value(colour) == first);
        if !alike || (colours < channels && value(colours) != opaque) {
            let number = |bytes: &[u8]| match *bytes {
                [byte] => f32::from(byte),
                [a, b] => f32::from(u16::from_ne_bytes([a, b])),
                [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]),
                _ => f32::NAN,
            };
            let [row, column] = [pixel / info.width as usize, pixel % info.width as usize];
            let values: Vec<f32> = (0..channels).map(|channel| number(value(channel))).collect();
            let is = if alike { "not opaque" } else { "coloured" };
            let what = format!("a mask that is {is}: its pixel in row {row}, column {column} is {values:?}");
            return Err(unsupported(what).with_hint(format!(
                "labels are one number a pixel: write gray values or indices of a palette, or set {SKIP}"
            )));
        }
        out.extend_from_slice(first);
    }
    Ok(ImageInfo { channels: 1, planar: false, ..*info })
}

/// Draws for all views of an image; mostly there is one.
fn draw(views: &[Option<Lowered>], info: &ImageInfo, draws: Drawing<'_>, out: &mut Vec<Drawn>) -> Result<()> {
    out.clear();
    for lowered in views.iter().flatten() {
        out.push(match draws.instances {
            None => lowered.draw(info, draws.rng)?,
            marked => lowered.draw_with(info, draws.rng, marked)?,
        });
    }
    Ok(())
}

/// The rows that the views read.
fn rows_of(drawn: &[Drawn]) -> Range<u32> {
    let reads = |drawn: &Drawn| drawn.params.y.reads(drawn.spec.height, drawn.params.filter);
    drawn.iter().map(reads).reduce(|a, b| hull(&a, &b)).unwrap_or(0..0)
}

/// The part that the views read, at the finest scale that any of them needs.
fn window_of(drawn: &[Drawn]) -> Option<Window> {
    let windows = drawn.iter().map(|drawn| Window::of_params(&drawn.params, &drawn.spec));
    windows.reduce(|a, b| Window {
        rows: hull(&a.rows, &b.rows),
        cols: hull(&a.cols, &b.cols),
        within: [hull(&a.within[0], &b.within[0]), hull(&a.within[1], &b.within[1])],
        scale: a.scale.min(b.scale),
    })
}

fn hull(a: &Range<u32>, b: &Range<u32>) -> Range<u32> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// Finds the codec for a file and fills the buffer.
#[derive(Debug)]
pub struct Reader {
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image_bytes: u64,
    buffer: PixelBuffer,
    /// The planes of an image whose channels are separate files.
    stack: Vec<u8>,
    /// The draws for the views of the last image. They are not moved: for small images, about a million a second, a
    /// move takes a tenth of the time.
    drawn: Vec<Drawn>,
    /// Number of decoded images.
    decoded: u64,
}

impl Reader {
    #[doc(hidden)]
    pub fn new(codecs: &Arc<[Arc<dyn ImageCodec>]>, max_image_bytes: u64) -> Self {
        // A buffer can't be longer. Below this limit no product of image sizes overflows.
        let max_image_bytes = max_image_bytes.min(isize::MAX as u64);
        Self {
            codecs: Arc::clone(codecs),
            max_image_bytes,
            buffer: PixelBuffer::default(),
            stack: Vec::new(),
            drawn: Vec::new(),
            decoded: 0,
        }
    }

    /// Number of images that were decoded since the last call.
    pub const fn take_decoded(&mut self) -> u64 {
        std::mem::replace(&mut self.decoded, 0)
    }

    pub(crate) fn codecs(&self) -> &[Arc<dyn ImageCodec>] {
        &self.codecs
    }

    /// Returns the size of the whole image, the pixels that its views read, and the draws for each view. Decodes the
    /// image if needed; with `planes`, the codec may give planes. Adds the time of decoding to `decode`. `header` is
    /// the file's header, if it was parsed before. Refuses f32 pixels above the white that their row's table assumes.
    pub fn read<'a>(
        &'a mut self,
        value: &'a Value,
        header: Option<&ImageHeader>,
        views: &[Option<Lowered>],
        draws: Drawing<'_>,
        decode: &mut Duration,
        planes: bool,
    ) -> Result<(ImageInfo, Image<'a>, &'a [Drawn])> {
        let labels = Labels::of(views);
        let (info, image) = match value {
            Value::Encoded(file) => {
                let start = Instant::now();
                let draw = |info: &ImageInfo, out: &mut Vec<Drawn>| draw(views, &labels.counted(info), draws, out);
                let read = self.decode(file, header, planes, labels, draw);
                *decode += start.elapsed();
                self.decoded += 1;
                let (info, in_place) = read?;
                let image = match in_place {
                    _ if labels.flattens(&info) => {
                        let pixels = in_place.map_or(&self.buffer.data[..], |at| &file[at]);
                        let info = flatten(&info, pixels, &mut self.stack)?;
                        let pixels = Pixels { info, rows: 0..info.height, data: &self.stack };
                        return Ok((info, Image::Pixels(pixels), &self.drawn));
                    }
                    Some(at) => Image::Pixels(Pixels { info, rows: 0..info.height, data: &file[at] }),
                    None => self.held(info),
                };
                (info, image)
            }
            Value::Channels(files) => {
                let start = Instant::now();
                let read = self.read_channels(files, labels, |info, out| draw(views, info, draws, out));
                *decode += start.elapsed();
                self.decoded += 1;
                let (info, rows) = read?;
                (info, Image::Pixels(Pixels { info, rows, data: &self.stack }))
            }
            Value::Pixels { info, data } => {
                if info.len_bytes() != data.len() as u64 {
                    return Err(corrupt(format!("{} bytes of pixels for {}", data.len(), shape_of(info))));
                }
                draw(views, &labels.counted(info), draws, &mut self.drawn)?;
                if labels.flattens(info) {
                    let info = flatten(info, data, &mut self.stack)?;
                    let pixels = Pixels { info, rows: 0..info.height, data: &self.stack };
                    return Ok((info, Image::Pixels(pixels), &self.drawn));
                }
                (*info, Image::Pixels(Pixels { info: *info, rows: 0..info.height, data }))
            }
            _ => return Err(Error::new(ErrorKind::Internal, "an image field holds no image")),
        };
        if let Image::Pixels(pixels) = &image
            && pixels.info.dtype == DType::F32
            && views.iter().flatten().any(Lowered::guesses_white)
        {
            ends_at_one(pixels.data)?;
        }
        Ok((info, image, &self.drawn))
    }

    /// The pixels or planes in the buffer.
    fn held(&self, info: ImageInfo) -> Image<'_> {
        let PixelBuffer { rows, data, .. } = &self.buffer;
        let pixels = || Pixels { info, rows: rows.clone(), data: &data[..held_bytes(&info, rows)] };
        self.buffer.planes(&info).map_or_else(|| Image::Pixels(pixels()), Image::Planes)
    }

    /// Decodes what the draws read. Returns the byte range of the pixels if they can be read in the file.
    fn decode(
        &mut self,
        file: &[u8],
        header: Option<&ImageHeader>,
        planes: bool,
        labels: Labels,
        draw: impl FnOnce(&ImageInfo, &mut Vec<Drawn>) -> Result<()>,
    ) -> Result<(ImageInfo, Option<Range<usize>>)> {
        if file.is_empty() {
            return Err(corrupt("file is empty"));
        }
        let codec = codec_of(&self.codecs, file)?;
        if let Some((info, at)) = guard(codec, || codec.in_place(file))? {
            if file.get(at.clone()).is_none_or(|pixels| pixels.len() as u64 != info.len_bytes()) {
                let what = format!("the {} codec finds {} at {at:?}", codec.name(), shape_of(&info));
                return Err(Error::new(ErrorKind::Internal, what).with_hint("check it with codec_contract"));
            }
            draw(&info, &mut self.drawn)?;
            return Ok((info, Some(at)));
        }
        let read;
        let header = match header.filter(|_| !labels.mask) {
            Some(header) => header,
            None => {
                read = guard(codec, || labels.header(codec, file))?;
                &read
            }
        };
        let info = header.info;
        self.check_size(codec, header, labels)?;
        draw(&info, &mut self.drawn)?;
        let needed = if labels.flattens(&info) { 0..info.height } else { rows_of(&self.drawn) };
        // Masks need single pixels, not planes of brightness and colour.
        let blends = self.drawn.iter().all(|drawn| !drawn.params.filter.is_nearest());
        match window_of(&self.drawn).filter(|_| planes && blends) {
            Some(window) => guard(codec, || codec.window(file, header, &window, &mut self.buffer))?,
            None => guard(codec, || codec.decode(file, header, needed.clone(), &mut self.buffer))?,
        }
        if self.buffer.planes(&info).is_some() {
            // The kernel checks whether the planes are sufficient.
            return Ok((info, None));
        }
        let PixelBuffer { rows: held, data, .. } = &self.buffer;
        if held.start > needed.start || held.end < needed.end || data.len() < held_bytes(&info, held) {
            let what = format!("the {} codec gave rows {held:?}, asked for {needed:?}", codec.name());
            return Err(Error::new(ErrorKind::Internal, what).with_hint("check it with codec_contract"));
        }
        Ok((info, None))
    }
}

impl Reader {
    /// Refuses an image that takes more memory than one image may.
    fn check_size(&self, codec: &dyn ImageCodec, header: &ImageHeader, labels: Labels) -> Result<()> {
        let info = &header.info;
        let flat = if labels.flattens(info) { labels.counted(info).len_bytes() } else { 0 };
        let peak = header.peak_bytes.max(info.len_bytes().saturating_add(flat));
        if peak <= self.max_image_bytes {
            return Ok(());
        }
        let (name, shape, most) = (codec.name(), shape_of(&header.info), self.max_image_bytes);
        let what = format!("{name} of {shape} takes {peak} bytes to decode, {MAX_IMAGE_BYTES} is {most}");
        Err(Error::new(ErrorKind::OutOfMemory, what)
            .with_hint(format!("raise {MAX_IMAGE_BYTES}, shrink the image or set {SKIP}")))
    }

    /// All pixels of an image of one file. `None` if they need no decoding (they are in memory, or uncompressed in the
    /// file), or if they are f32, for which white can't be checked in each part alone.
    pub(crate) fn whole(
        &mut self,
        value: &Value,
        header: Option<&ImageHeader>,
        labels: Labels,
    ) -> Result<Option<(ImageInfo, Bytes)>> {
        let Value::Encoded(file) = value else { return Ok(None) };
        if file.is_empty() {
            return Ok(None);
        }
        let codecs = Arc::clone(&self.codecs);
        let codec = codec_of(&codecs, file)?;
        if guard(codec, || codec.in_place(file))?.is_some() {
            return Ok(None);
        }
        let read = match header.filter(|_| !labels.mask) {
            Some(header) => header.clone(),
            None => guard(codec, || labels.header(codec, file))?,
        };
        let info = read.info;
        if info.dtype == DType::F32 {
            return Ok(None);
        }
        self.check_size(codec, &read, labels)?;
        guard(codec, || codec.decode(file, &read, 0..info.height, &mut self.buffer))?;
        let PixelBuffer { rows, data, .. } = &self.buffer;
        let len = held_bytes(&info, &(0..info.height));
        if self.buffer.planes(&info).is_some() || *rows != (0..info.height) || data.len() < len {
            return Ok(None);
        }
        self.decoded += 1;
        if labels.flattens(&info) {
            let info = flatten(&info, &data[..len], &mut self.stack)?;
            return Ok(Some((info, Bytes::copy_from_slice(&self.stack))));
        }
        Ok(Some((info, Bytes::copy_from_slice(&data[..len]))))
    }

    /// Decodes the rows that the draws read, file by file, into planes of one image.
    fn read_channels(
        &mut self,
        files: &[Bytes],
        labels: Labels,
        draw: impl Fn(&ImageInfo, &mut Vec<Drawn>) -> Result<()>,
    ) -> Result<(ImageInfo, Range<u32>)> {
        let channels = u8::try_from(files.len()).ok().filter(|n| *n > 0);
        let channels = channels.ok_or_else(|| unsupported(format!("an image of {} files", files.len())))?;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        let mut first: Option<(ImageInfo, Range<u32>)> = None;
        for (n, file) in files.iter().enumerate() {
            let most = self.max_image_bytes;
            let (one, in_place) = self.decode(file, None, false, labels, |one, out| {
                if one.channels != 1 {
                    let what = format!("{} channels in the file of channel {n}", one.channels);
                    return Err(unsupported(what).with_hint("use files of one channel each"));
                }
                let all = ImageInfo { channels, planar: true, ..*one };
                if all.len_bytes() > most {
                    let what = format!("{} takes more than {MAX_IMAGE_BYTES}, {most}", shape_of(&all));
                    return Err(Error::new(ErrorKind::OutOfMemory, what).with_hint(format!("raise {MAX_IMAGE_BYTES}")));
                }
                draw(&all, out)
            })?;
            let all = ImageInfo { channels, planar: true, ..one };
            let needed = rows_of(&self.drawn);
            match &first {
                Some((first, _)) if *first != all => {
                    let (this, that) = (shape_of(&one), shape_of(&ImageInfo { channels: 1, ..*first }));
                    return Err(corrupt(format!("channel {n} is of {this}, channel 0 of {that}")));
                }
                Some(_) => {}
                None => first = Some((all, needed.clone())),
            }
            let (held, data) = match &in_place {
                Some(at) => (0..one.height, &file[at.clone()]),
                None => (self.buffer.rows.clone(), &self.buffer.data[..]),
            };
            let line = held_bytes(&one, &(0..1));
            let from = (needed.start - held.start) as usize * line;
            stack.extend_from_slice(&data[from..from + needed.len() * line]);
        }
        self.stack = stack;
        first.ok_or_else(|| Error::new(ErrorKind::Internal, "an image of no files"))
    }
}

/// Values must be in 0 to 1, with some tolerance for overshooting filters and cameras. Values in 0 to 255 would
/// silently become 255 times too bright next to files of u8.
fn ends_at_one(pixels: &[u8]) -> Result<()> {
    let value = |bytes: &[u8; 4]| f32::from_ne_bytes(*bytes);
    let most = pixels.as_chunks().0.iter().map(value).filter(|v| v.is_finite()).fold(0.0, f32::max);
    if most <= 2.0 {
        return Ok(());
    }
    let what = format!("f32 pixels up to {most}, in a dataset that declares no pixel type: white must be 1");
    Err(unsupported(what).with_hint(
        format!("divide them by the value of white, store them as u8 or u16, put f32 TIFFs into a separate folder, or set {SKIP}"),
    ))
}

/// A decoded image, or the part of it that is needed.
#[derive(Debug)]
pub enum Image<'a> {
    Pixels(Pixels<'a>),
    Planes(Planes<'a>),
}

impl Image<'_> {
    #[doc(hidden)]
    pub const fn decoded(&self) -> Decoded<'_> {
        match self {
            Self::Pixels(pixels) => Decoded::Pixels(pixels),
            Self::Planes(planes) => Decoded::Planes(planes),
        }
    }
}

/// The codec that reads the file.
pub fn codec_of<'a>(codecs: &'a [Arc<dyn ImageCodec>], file: &[u8]) -> Result<&'a dyn ImageCodec> {
    let head = &file[..file.len().min(64)];
    let codec = codecs.iter().find(|codec| codec.recognises(head));
    codec.map(|codec| &**codec).ok_or_else(|| unrecognised(head, codecs))
}

/// Reads the header of a file, by the codec that will decode it.
pub fn header_of(codecs: &[Arc<dyn ImageCodec>], file: &[u8]) -> Result<ImageHeader> {
    header_by(codec_of(codecs, file)?, file)
}

/// The header that this codec parses from a file.
pub fn header_by(codec: &dyn ImageCodec, file: &[u8]) -> Result<ImageHeader> {
    guard(codec, || codec.header(file))
}

/// Calls a codec. If it panics on bad data, only the sample is lost, not the run.
fn guard<T>(codec: &dyn ImageCodec, call: impl FnOnce() -> Result<T>) -> Result<T> {
    // After a panic the buffer holds undefined pixels, as after any error.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let what = format!("the {} codec panicked: {}", codec.name(), panic_words(&*panic));
        Err(Error::corrupt(what).with_hint(format!("report it with the file, or set {SKIP}")))
    })
}

/// Bytes of these rows of an image.
fn held_bytes(info: &ImageInfo, rows: &Range<u32>) -> usize {
    let height = rows.end.saturating_sub(rows.start);
    (ImageInfo { height, ..*info }).len_bytes() as usize
}

fn shape_of(info: &ImageInfo) -> String {
    format!("{}x{} pixels ({} channels of {})", info.width, info.height, info.channels, info.dtype)
}

fn unrecognised(head: &[u8], codecs: &[Arc<dyn ImageCodec>]) -> Error {
    // A user's codec may have the name of the built-in codec that it replaces.
    let mut names: Vec<&str> = codecs.iter().map(|codec| codec.name()).collect();
    names.dedup();
    let begins: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let begins = begins.join(" ");
    match look_alike(head) {
        Some(Other::Image(name)) => {
            let hint = format!(
                "codecs are {}; convert the file{} or set {SKIP}",
                names.join(", "),
                in_rust(", add a codec with LoaderBuilder::codec")
            );
            unsupported(format!("{name}, which no codec reads: it begins with {begins}")).with_hint(hint)
        }
        Some(Other::Not(name)) => corrupt(format!("{name}, not an image: it begins with {begins}"))
            .with_hint(format!("fetch the object again, remove it or set {SKIP}")),
        None => {
            let what = format!("not an image that a codec reads: it begins with {begins}");
            let hint = format!(
                "codecs are {}; {}set {SKIP}",
                names.join(", "),
                in_rust("add one with LoaderBuilder::codec or ")
            );
            unsupported(what).with_hint(hint)
        }
    }
}

/// A file of a known kind that no codec here reads.
enum Other {
    /// An image.
    Image(&'static str),
    /// A file that is not an image, such as an error page that was downloaded instead of one.
    Not(&'static str),
}

/// Recognises a kind by its content, not its name: scraped collections hold GIFs named `.jpg`, and HTML pages that
/// explain why there is no image.
fn look_alike(head: &[u8]) -> Option<Other> {
    use Other::{Image, Not};
    let brand = |brands: &[&[u8]]| head.get(4..8) == Some(b"ftyp") && brands.iter().any(|b| head.get(8..12) == Some(b));
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start().to_ascii_lowercase();
    let begins = |word: &str| text.starts_with(word.as_bytes());
    Some(match head {
        [b'G', b'I', b'F', b'8', ..] => Image("a GIF"),
        _ if brand(&[b"avif", b"avis"]) => Image("an AVIF"),
        _ if brand(&[b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"]) => Image("a HEIC"),
        _ if brand(&[b"crx "]) => Image("a camera's raw image (CR3)"),
        _ if head.get(4..8) == Some(b"ftyp") => Not("a video (MP4 or similar)"),
        [0xff, 0x0a, ..] | [0, 0, 0, 12, b'J', b'X', b'L', b' ', ..] => Image("a JPEG XL"),
        [0, 0, 0, 12, b'j', b'P', b' ', b' ', ..] | [0xff, 0x4f, 0xff, 0x51, ..] => Image("a JPEG 2000"),
        [b'I', b'I', 0xbc, ..] => Image("a JPEG XR"),
        [0xff, 0xd8, ..] => Image("a JPEG"),
        [0x89, b'P', b'N', b'G', ..] => Image("a PNG"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Image("a WebP"),
        [b'B', b'M', ..] => Image("a BMP"),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => Image("a TIFF"),
        [b'8', b'B', b'P', b'S', ..] => Image("a Photoshop document"),
        [b'v', b'/', b'1', 1, ..] => Image("an OpenEXR image"),
        [0, 0, 1 | 2, 0, ..] => Image("an icon (ICO)"),
        [b'P', b'1'..=b'7', b' ' | b'\t' | b'\r' | b'\n', ..] => Image("a Netpbm image (PBM, PGM, PPM)"),
        [b'%', b'P', b'D', b'F', ..] => Not("a PDF"),
        [0x1f, 0x8b, ..] => Not("gzip data"),
        [b'P', b'K', 3, 4, ..] => Not("a zip archive"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Not("Zstandard data"),
        _ if begins("<svg") => Image("an SVG"),
        _ if begins("<!doctype html") || begins("<html") || begins("<head") || begins("<body") => Not("an HTML page"),
        _ if begins("<?xml") && text.windows(4).any(|w| w == b"<svg") => Image("an SVG"),
        _ if begins("<?xml") || begins("<error") => Not("an XML document"),
        _ if begins("{\"") || begins("[{") => Not("JSON"),
        _ if begins("version https://git-lfs") => Not("a Git LFS pointer"),
        _ if head.len() > 8 && head.iter().all(|byte| *byte == 0) => Not("zeros"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        codec::codecs,
        kernels::{Axis, Filter, ResampleParams, Resampler, RowSpec},
    };
    use infeed_core::{
        report::Stage,
        types::{DType, Layout},
    };

    fn reader(codecs: Vec<Arc<dyn ImageCodec>>, max_image_bytes: u64) -> Reader {
        Reader {
            codecs: codecs.into(),
            max_image_bytes,
            buffer: PixelBuffer::default(),
            stack: Vec::new(),
            drawn: Vec::new(),
            decoded: 0,
        }
    }

    /// Copies `rows` of the image, all columns.
    fn copy(info: &ImageInfo, rows: Range<u32>) -> Vec<Drawn> {
        let axis = |from: u32, to: u32, high| Axis {
            start: from as f32,
            step: 1.0,
            low: 0,
            high,
            from: 0,
            to: to - from,
            flip: 0,
        };
        let (y, x) = (axis(rows.start, rows.end, info.height), axis(0, info.width, info.width));
        let (height, width) = (y.to, x.to);
        let params = ResampleParams { y, x, cutout: [0; 4], filter: Filter::Triangle };
        let spec = RowSpec { height, width, channels: 3, dtype: DType::F32, layout: Layout::Nchw };
        vec![Drawn::one(params, spec)]
    }

    fn read(reader: &mut Reader, file: &[u8]) -> Result<ImageInfo> {
        reader
            .decode(file, None, false, Labels::of(&[]), |info, out| {
                *out = copy(info, 0..info.height);
                Ok(())
            })
            .map(|read| read.0)
    }

    fn message(reader: &mut Reader, file: &[u8]) -> (ErrorKind, String) {
        let error = read(reader, file).expect_err("a bad file").at_stage(Stage::Decode).at_record(7);
        assert_eq!(error.is_sample(), error.kind() != ErrorKind::Internal);
        (error.kind(), error.to_string())
    }

    /// Two bytes (height and width), then gray pixels. Records which rows were requested.
    #[derive(Debug, Default)]
    struct Tiny {
        asked: Mutex<Vec<Range<u32>>>,
        gives: Option<Range<u32>>,
    }

    impl ImageCodec for Tiny {
        fn name(&self) -> &'static str {
            "tiny"
        }
        fn recognises(&self, head: &[u8]) -> bool {
            head[0] < 16
        }
        fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
            Ok(ImageInfo::interleaved_u8(bytes[0].into(), bytes[1].into(), 1).into())
        }
        fn decode(&self, bytes: &[u8], info: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
            self.asked.lock().unwrap().push(rows.clone());
            let rows = self.gives.clone().unwrap_or(rows);
            let held = held_bytes(info, &rows);
            let start = 2 + (rows.start * info.width) as usize;
            out.hold(rows, held)?.copy_from_slice(&bytes[start..start + held]);
            Ok(())
        }
    }

    #[test]
    fn the_codec_is_told_by_the_first_bytes_and_decodes_the_needed_rows() {
        let tiny = Arc::new(Tiny::default());
        let mut reader = reader(vec![Arc::clone(&tiny) as Arc<dyn ImageCodec>], 100);
        let file = [&[4, 3][..], &(0..12).collect::<Vec<u8>>()].concat();
        let drawn = |info: &ImageInfo, out: &mut Vec<Drawn>| {
            *out = copy(info, 1..3);
            Ok(())
        };
        let (info, _) = reader.decode(&file, None, false, Labels::of(&[]), drawn).unwrap();
        // The filter's window may extend one row beyond its weights.
        assert!(matches!(tiny.asked.lock().unwrap()[..], [Range { start: 0..=1, end: 3..=4 }]));

        let mut row = vec![0; 6];
        let table =
            crate::kernels::ChannelTable { scale: vec![1.0], bias: vec![0.0], fill: vec![0.0], cutout: vec![0.0] };
        let spec = RowSpec { height: 2, width: 3, channels: 1, dtype: DType::U8, layout: Layout::Nchw };
        let pixels = Pixels { info, rows: reader.buffer.rows.clone(), data: &reader.buffer.data };
        Resampler::new().run(&pixels, &reader.drawn[0].params, &table, &spec, &mut row).unwrap();
        assert_eq!(row, [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_codec_that_panics_or_lies_is_an_error() {
        let mut panics = reader(vec![Arc::new(Tiny::default())], 100);
        let (kind, text) = message(&mut panics, &[4, 3, 1]);
        assert_eq!(kind, ErrorKind::Corrupt);
        assert!(text.starts_with("decode: the tiny codec panicked: range end index 14 out of range"), "{text}");
        assert!(text.ends_with("(record 7); report it with the file, or set on_bad_sample(Skip)"), "{text}");

        let mut lies = reader(vec![Arc::new(Tiny { gives: Some(0..1), ..Tiny::default() })], 100);
        let (kind, text) = message(&mut lies, &[2, 1, 0, 0]);
        assert_eq!(kind, ErrorKind::Internal);
        assert!(text.contains("the tiny codec gave rows 0..1, asked for 0..2"), "{text}");
    }

    #[test]
    fn what_no_codec_reads_is_told_by_its_first_bytes() {
        let mut reader = reader(vec![Arc::new(Tiny::default()), Arc::new(Tiny::default())], 100);
        let (kind, text) = message(&mut reader, b"");
        assert_eq!(
            (kind, &*text),
            (ErrorKind::Corrupt, "decode: file is empty (record 7); fetch the object again or set on_bad_sample(Skip)")
        );
        let (kind, text) = message(&mut reader, b"\x99\x98\x97, say");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(
            text,
            "decode: not an image that a codec reads: it begins with 99 98 97 2c 20 73 61 79 (record 7); \
             codecs are tiny; add one with LoaderBuilder::codec or set on_bad_sample(Skip)"
        );
        let (kind, text) = message(&mut reader, b"GIF89a, say");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(
            text,
            "decode: a GIF, which no codec reads: it begins with 47 49 46 38 39 61 2c 20 (record 7); \
             codecs are tiny; convert the file, add a codec with LoaderBuilder::codec or set on_bad_sample(Skip)"
        );
        let (kind, text) = message(&mut reader, b"<!DOCTYPE html><title>404");
        assert_eq!(kind, ErrorKind::Corrupt);
        assert_eq!(
            text,
            "decode: an HTML page, not an image: it begins with 3c 21 44 4f 43 54 59 50 (record 7); \
             fetch the object again, remove it or set on_bad_sample(Skip)"
        );
    }

    #[test]
    fn what_is_no_image_or_another_kind_is_called_by_its_name() {
        let mut reader = reader(vec![Arc::new(Tiny::default())], 100);
        let cases: [(&[u8], &str); 28] = [
            (b"GIF87a\x01\0", "a GIF"),
            (b"\0\0\0\x20ftypavif\0\0\0\0", "an AVIF"),
            (b"\0\0\0\x18ftypheic\0\0\0\0", "a HEIC"),
            (b"\0\0\0\x18ftypmif1\0\0\0\0", "a HEIC"),
            (b"\0\0\0\x18ftypcrx \0\0\0\0", "a camera's raw image (CR3)"),
            (b"\0\0\0\x18ftypisom\0\0\0\0", "a video (MP4 or similar)"),
            (b"\xff\x0a\xfa\x1f", "a JPEG XL"),
            (b"\0\0\0\x0cJXL \x0d\x0a\x87\x0a", "a JPEG XL"),
            (b"\0\0\0\x0cjP  \x0d\x0a\x87\x0a", "a JPEG 2000"),
            (b"\xff\x4f\xff\x51\0", "a JPEG 2000"),
            (b"II\xbc\x01", "a JPEG XR"),
            (b"\xff\xd8\xff\xe0", "a JPEG"),
            (b"\x89PNG\r\n", "a PNG"),
            (b"RIFF\x10\0\0\0WEBPVP8 ", "a WebP"),
            (b"BM\0\0", "a BMP"),
            (b"MM\0*", "a TIFF"),
            (b"8BPS\0\x01", "a Photoshop document"),
            (b"P6\n9 9", "a Netpbm image"),
            (b"<svg xmlns=", "an SVG"),
            (b"<?xml version=\"1.0\"?>\n<svg>", "an SVG"),
            (b"\xef\xbb\xbf \n<HTML>", "an HTML page"),
            (b"<?xml version=\"1.0\"?><Error><Code>AccessDenied", "an XML document"),
            (b"{\"message\": \"Not Found\"}", "JSON"),
            (b"version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
            (b"%PDF-1.7", "a PDF"),
            (b"\x1f\x8b\x08", "gzip data"),
            (b"PK\x03\x04", "a zip archive"),
            (&[99; 70], "not an image that a codec reads"),
        ];
        for (file, name) in cases {
            // The codec of these tests recognises any file whose first byte is below 16.
            let error = unrecognised(&file[..file.len().min(64)], &reader.codecs);
            assert!(error.to_string().contains(name), "{error}, not {name}");
            assert!(error.to_string().ends_with("on_bad_sample(Skip)"), "{error}");
        }
        let (_, text) = message(&mut reader, &[b'{'; 9]);
        assert!(text.contains("not an image that a codec reads"), "{text}");
    }

    #[cfg(all(feature = "jpeg", feature = "png", feature = "bmp"))]
    #[test]
    fn a_giant_is_refused_before_memory_is_taken() {
        let mut jpeg = Vec::new();
        jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&[9; 3], 1, 1, jpeg_encoder::ColorType::Rgb).unwrap();
        let mut all = reader(codecs(), 256 << 20);
        assert_eq!(read(&mut all, &jpeg).unwrap(), ImageInfo::interleaved_u8(1, 1, 3));

        let mut all = reader(codecs(), 256 << 20);
        let frame = jpeg.windows(2).position(|w| w == [0xff, 0xc0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0x4e, 0x20, 0x4e, 0x20]);
        let (kind, text) = message(&mut all, &jpeg);
        assert_eq!(kind, ErrorKind::OutOfMemory);
        // Planes in addition to the pixels, and the scan without stuffing.
        let bytes = 2 * 1_200_000_000 + 3 * jpeg.len();
        assert_eq!(
            text,
            format!(
                "decode: jpeg of 20000x20000 pixels (3 channels of u8) takes {bytes} bytes to decode, \
                 max_image_bytes is 268435456 (record 7); \
                 raise max_image_bytes, shrink the image or set on_bad_sample(Skip)"
            )
        );
        assert_eq!(all.buffer.data.capacity() + all.buffer.scratch.capacity(), 0);

        let mut bmp = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(1, 1).write_to(&mut bmp, image::ImageFormat::Bmp).unwrap();
        let mut bmp = bmp.into_inner();
        bmp[18..26].copy_from_slice(&[0x20, 0x4e, 0, 0, 0x20, 0x4e, 0, 0]);
        assert_eq!(message(&mut all, &bmp).0, ErrorKind::OutOfMemory);
        assert_eq!(all.buffer.data.capacity(), 0);
    }

    #[cfg(all(feature = "jpeg", feature = "png"))]
    #[test]
    fn a_png_called_jpeg_is_a_png() {
        // The decoder gets only bytes, never names.
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(5, 3).write_to(&mut png, image::ImageFormat::Png).unwrap();
        let mut all = reader(codecs(), 1 << 20);
        assert_eq!(read(&mut all, png.get_ref()).unwrap(), ImageInfo::interleaved_u8(3, 5, 3));
    }
}
