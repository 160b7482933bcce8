//! The decoder that runs everywhere: threads that decode with the [`ImageCodec`]s and resample into the row.

use std::{
    any::Any,
    num::NonZeroUsize,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{
    Class, Decoder, Finished, ImageCodec, Item, Job, Outcome, PixelBuffer, Wait, Window, Worker, corrupt, unsupported,
};
use crate::{
    dataset::Value,
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    sys::{
        kernels::{Pixels, Planes, ResampleParams, Resampler, RowSpec},
        rows::Rows,
    },
    transform::Lowered,
    types::{DType, Device, ImageInfo},
};

/// Decodes and resamples on CPU threads. One class, `cpu`.
///
/// Memory: each worker holds at most `max_image_bytes` for pixels and a few hundred KB beside.
#[derive(Clone, Debug)]
pub struct Cpu {
    classes: [Class; 1],
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image_bytes: u64,
}

impl Cpu {
    /// A decoder of `workers` threads. A file goes to the first of `codecs` that recognises it; one whose decoding
    /// takes more than `max_image_bytes` is refused.
    #[must_use]
    pub fn new(
        workers: NonZeroUsize,
        codecs: impl IntoIterator<Item = Arc<dyn ImageCodec>>,
        max_image_bytes: u64,
    ) -> Self {
        let class = Class::new("cpu", Device::Cpu, workers);
        Self { classes: [class], codecs: codecs.into_iter().collect(), max_image_bytes }
    }
}

impl Decoder for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn scratch_bytes(&self, _class: usize) -> u64 {
        self.max_image_bytes
    }

    fn worker(&self, _class: usize, _n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        Ok(Box::new(CpuWorker {
            reader: Reader::new(&self.codecs, self.max_image_bytes),
            resampler: Resampler::new(),
            programs: Arc::clone(programs),
            finished: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct CpuWorker {
    reader: Reader,
    resampler: Resampler,
    programs: Arc<[Option<Lowered>]>,
    finished: Vec<Finished>,
}

impl Worker for CpuWorker {
    fn submit(&mut self, mut job: Job) {
        let start = Instant::now();
        let mut decode = Duration::ZERO;
        let Job { items, rows, .. } = &mut job;
        let mut outcome = |(row, item): (usize, &Item)| match self.item(item, row, rows, &mut decode) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.at_stage(Stage::Decode).at_record(item.record)),
        };
        let outcomes = items.iter().enumerate().map(&mut outcome).collect();
        // What is not decoding is resampling. Two clock reads would cost more than some rows of small pixels.
        let transform = start.elapsed().saturating_sub(decode);
        self.finished.push(Finished { decode, transform, ..Finished::new(job, outcomes) });
    }

    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }
}

impl CpuWorker {
    fn item(&mut self, item: &Item, row: usize, rows: &mut [Rows], decode: &mut Duration) -> Result<()> {
        let sample = item.sample.as_ref().map_err(Error::clone)?;
        if sample.values.len() != self.programs.len() || rows.len() != self.programs.len() {
            return Err(Error::new(ErrorKind::Internal, "a sample has other fields than its schema"));
        }
        let mut size = None;
        for ((program, value), rows) in self.programs.iter().zip(&sample.values).zip(rows) {
            let Some(lowered) = program else { continue };
            let (info, image, params) = self.reader.image(value, lowered, item.rng, decode)?;
            fits_mask(lowered, &info, &mut size)?;
            let out = rows.row_mut(row);
            image.resample(&mut self.resampler, &params, lowered, out)?;
            lowered.finish(out, item.rng)?;
        }
        Ok(())
    }
}

/// A mask has the size of the images before it: else the same draws would fall on other places.
pub(super) fn fits_mask(lowered: &Lowered, info: &ImageInfo, size: &mut Option<[u32; 2]>) -> Result<()> {
    let here = [info.width, info.height];
    match size.replace(here) {
        Some([w, h]) if lowered.is_mask() && here != [w, h] => {
            let what = format!("a mask of {}x{} pixels for an image of {w}x{h}", info.width, info.height);
            Err(corrupt(what).hint("make them the same size, or set on_bad_sample(Skip)"))
        }
        _ => Ok(()),
    }
}

/// Makes pixels of one image at a time, for a room above that puts them into something else than rows.
#[cfg(feature = "prepare")]
#[derive(Debug)]
pub(crate) struct Renderer {
    reader: Reader,
    resampler: Resampler,
}

#[cfg(feature = "prepare")]
impl Renderer {
    pub(crate) fn new(codecs: &Arc<[Arc<dyn ImageCodec>]>, max_image_bytes: u64) -> Self {
        Self { reader: Reader::new(codecs, max_image_bytes), resampler: Resampler::new() }
    }

    /// Size of an image, by its header.
    pub(crate) fn info(&self, value: &Value) -> Result<ImageInfo> {
        match value {
            Value::Pixels { info, .. } => Ok(*info),
            Value::Encoded(file) if file.is_empty() => Err(corrupt("file is empty")),
            Value::Encoded(file) => {
                let codec = codec_of(&self.reader.codecs, file)?;
                guard(codec, || codec.info(file))
            }
            _ => Err(Error::new(ErrorKind::Internal, "an image field holds no image")),
        }
    }

    /// Name of the codec that reads the file.
    pub(crate) fn kind(&self, file: &[u8]) -> Result<&'static str> {
        codec_of(&self.reader.codecs, file).map(ImageCodec::name)
    }

    /// Decodes and resamples an image into `out`, one row of `lowered`.
    pub(crate) fn render(&mut self, value: &Value, lowered: &Lowered, out: &mut [u8]) -> Result<()> {
        // What is prepared is the same in every epoch.
        let rng = SampleRng::new(0, 0, 0);
        let (_, image, params) = self.reader.image(value, lowered, rng, &mut Duration::default())?;
        image.resample(&mut self.resampler, &params, lowered, out)
    }
}

/// Finds the codec for a file and fills the buffer.
#[derive(Debug)]
pub(super) struct Reader {
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image_bytes: u64,
    buffer: PixelBuffer,
    /// Planes of an image whose channels are files.
    stack: Vec<u8>,
}

impl Reader {
    pub(super) fn new(codecs: &Arc<[Arc<dyn ImageCodec>]>, max_image_bytes: u64) -> Self {
        // More is no length of a buffer; below it every product of an image's sizes is one.
        let max_image_bytes = max_image_bytes.min(isize::MAX as u64);
        Self { codecs: Arc::clone(codecs), max_image_bytes, buffer: PixelBuffer::default(), stack: Vec::new() }
    }

    /// The pixels of an image field that its transform reads, decoded if need be, and what to do with them. Adds the
    /// time of decoding to `decode`.
    #[cfg(all(feature = "cuda", target_os = "linux"))]
    pub(super) fn pixels<'a>(
        &'a mut self,
        value: &'a Value,
        lowered: &Lowered,
        rng: SampleRng,
        decode: &mut Duration,
    ) -> Result<(Pixels<'a>, ResampleParams)> {
        match self.read(value, lowered, rng, decode, false)? {
            (_, Image::Pixels(pixels), params) => Ok((pixels, params)),
            (_, Image::Planes(_), _) => Err(Error::new(ErrorKind::Internal, "a codec gave planes for pixels")),
        }
    }

    /// The same, as whatever its codec likes best to give, and what the whole image is.
    fn image<'a>(
        &'a mut self,
        value: &'a Value,
        lowered: &Lowered,
        rng: SampleRng,
        decode: &mut Duration,
    ) -> Result<(ImageInfo, Image<'a>, ResampleParams)> {
        self.read(value, lowered, rng, decode, true)
    }

    fn read<'a>(
        &'a mut self,
        value: &'a Value,
        lowered: &Lowered,
        rng: SampleRng,
        decode: &mut Duration,
        planes: bool,
    ) -> Result<(ImageInfo, Image<'a>, ResampleParams)> {
        match value {
            Value::Encoded(file) => {
                let start = Instant::now();
                let read = self.decode(file, lowered.row(), planes, |info| lowered.params(info, rng));
                *decode += start.elapsed();
                let (info, params, in_place) = read?;
                let image = match in_place {
                    Some(at) => Image::Pixels(Pixels { info, rows: 0..info.height, data: &file[at] }),
                    None => self.held(info),
                };
                Ok((info, image, params))
            }
            Value::Channels(files) => {
                let start = Instant::now();
                let read = self.read_channels(files, lowered.row(), |info| lowered.params(info, rng));
                *decode += start.elapsed();
                let (info, rows, params) = read?;
                Ok((info, Image::Pixels(Pixels { info, rows, data: &self.stack }), params))
            }
            Value::Pixels { info, data } => {
                if info.len_bytes() != data.len() as u64 {
                    return Err(corrupt(format!("{} bytes of pixels for {}", data.len(), shape_of(info))));
                }
                let params = lowered.params(info, rng)?;
                Ok((*info, Image::Pixels(Pixels { info: *info, rows: 0..info.height, data }), params))
            }
            _ => Err(Error::new(ErrorKind::Internal, "an image field holds no image")),
        }
    }

    /// What the buffer holds.
    fn held(&self, info: ImageInfo) -> Image<'_> {
        let PixelBuffer { rows, data, .. } = &self.buffer;
        let pixels = || Pixels { info, rows: rows.clone(), data: &data[..held_bytes(&info, rows)] };
        self.buffer.planes(&info).map_or_else(|| Image::Pixels(pixels()), Image::Planes)
    }

    /// Decodes what the parameters read, unless the file's own bytes will do: then tells where they lie.
    fn decode(
        &mut self,
        file: &[u8],
        row: &RowSpec,
        planes: bool,
        params: impl FnOnce(&ImageInfo) -> Result<ResampleParams>,
    ) -> Result<(ImageInfo, ResampleParams, Option<Range<usize>>)> {
        if file.is_empty() {
            return Err(corrupt("file is empty"));
        }
        let codec = codec_of(&self.codecs, file)?;
        if let Some((info, at)) = guard(codec, || codec.in_place(file))? {
            if file.get(at.clone()).is_none_or(|pixels| pixels.len() as u64 != info.len_bytes()) {
                let what = format!("the {} codec finds {} at {at:?}", codec.name(), shape_of(&info));
                return Err(Error::new(ErrorKind::Internal, what).hint("check it with codec_contract"));
            }
            return Ok((info, params(&info)?, Some(at)));
        }
        let info = guard(codec, || codec.info(file))?;
        let peak = guard(codec, || codec.peak_bytes(file, &info))?.max(info.len_bytes());
        if peak > self.max_image_bytes {
            let (name, shape, most) = (codec.name(), shape_of(&info), self.max_image_bytes);
            let what = format!("{name} of {shape} takes {peak} bytes to decode, max_image_bytes is {most}");
            return Err(Error::new(ErrorKind::OutOfMemory, what)
                .hint("raise max_image_bytes, shrink the image or set on_bad_sample(Skip)"));
        }
        let params = params(&info)?;
        let needed = params.y.reads(row.height);
        // Masks take single pixels, not what colours and their neighbours have in common.
        if planes && params.nearest == 0 {
            let window = Window::of_params(&params, row);
            guard(codec, || codec.window(file, &info, &window, &mut self.buffer))?;
        } else {
            guard(codec, || codec.decode(file, &info, needed.clone(), &mut self.buffer))?;
        }
        if self.buffer.planes(&info).is_some() {
            // The kernel looks whether they are enough.
            return Ok((info, params, None));
        }
        let PixelBuffer { rows: held, data, .. } = &self.buffer;
        if held.start > needed.start || held.end < needed.end || data.len() < held_bytes(&info, held) {
            let what = format!("the {} codec gave rows {held:?}, asked for {needed:?}", codec.name());
            return Err(Error::new(ErrorKind::Internal, what).hint("check it with codec_contract"));
        }
        Ok((info, params, None))
    }
}

impl Reader {
    /// Decodes the rows that the parameters read, of one file after another, into planes of one image.
    fn read_channels(
        &mut self,
        files: &[Bytes],
        row: &RowSpec,
        params: impl Fn(&ImageInfo) -> Result<ResampleParams>,
    ) -> Result<(ImageInfo, Range<u32>, ResampleParams)> {
        let channels = u8::try_from(files.len()).ok().filter(|n| *n > 0);
        let channels = channels.ok_or_else(|| unsupported(format!("an image of {} files", files.len())))?;
        let mut stack = std::mem::take(&mut self.stack);
        stack.clear();
        let mut first: Option<(ImageInfo, Range<u32>, ResampleParams)> = None;
        for (n, file) in files.iter().enumerate() {
            let most = self.max_image_bytes;
            let (one, params, in_place) = self.decode(file, row, false, |one| {
                if one.channels != 1 {
                    let what = format!("{} channels in the file of channel {n}", one.channels);
                    return Err(unsupported(what).hint("a file for each channel holds one"));
                }
                let all = ImageInfo { channels, planar: true, ..*one };
                if all.len_bytes() > most {
                    let what = format!("{} takes more than max_image_bytes, {most}", shape_of(&all));
                    return Err(Error::new(ErrorKind::OutOfMemory, what).hint("raise max_image_bytes"));
                }
                params(&all)
            })?;
            let all = ImageInfo { channels, planar: true, ..one };
            let needed = params.y.reads(row.height);
            match &first {
                Some((first, ..)) if *first != all => {
                    let (this, that) = (shape_of(&one), shape_of(&ImageInfo { channels: 1, ..*first }));
                    return Err(corrupt(format!("channel {n} is of {this}, channel 0 of {that}")));
                }
                Some(_) => {}
                None => first = Some((all, needed.clone(), params)),
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

/// A decoded image, or the part of it that is needed.
#[derive(Debug)]
enum Image<'a> {
    Pixels(Pixels<'a>),
    Planes(Planes<'a>),
}

impl Image<'_> {
    fn resample(
        &self,
        resampler: &mut Resampler,
        params: &ResampleParams,
        lowered: &Lowered,
        out: &mut [u8],
    ) -> Result<()> {
        match self {
            Self::Pixels(src) => resampler.run(src, params, lowered.table(src.info.dtype), lowered.row(), out),
            Self::Planes(src) => resampler.run_planes(src, params, lowered.table(DType::U8), lowered.row(), out),
        }
    }
}

/// The codec that reads the file.
fn codec_of<'a>(codecs: &'a [Arc<dyn ImageCodec>], file: &[u8]) -> Result<&'a dyn ImageCodec> {
    let head = &file[..file.len().min(64)];
    let codec = codecs.iter().find(|codec| codec.recognises(head));
    codec.map(|codec| &**codec).ok_or_else(|| unrecognised(head, codecs))
}

/// Calls a codec. One that panics on bad data costs a sample, not the run.
fn guard<T>(codec: &dyn ImageCodec, call: impl FnOnce() -> Result<T>) -> Result<T> {
    // What a panic leaves in the buffer is pixels without meaning, as any error does.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let what = format!("the {} codec panicked: {}", codec.name(), words(&*panic));
        Err(Error::corrupt(what).hint("report it with the file, or set on_bad_sample(Skip)"))
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
    let head: Vec<String> = head.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let names: Vec<&str> = codecs.iter().map(|codec| codec.name()).collect();
    let what = format!("no image that a codec reads: it begins with {}", head.join(" "));
    let hint = format!("codecs are {}; add one with LoaderBuilder::codec or set on_bad_sample(Skip)", names.join(", "));
    unsupported(what).hint(hint)
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;
    use crate::{
        codec::codecs,
        dataset::{FieldKind, Sample},
        random::SampleRng,
        sys::kernels::Axis,
        transform::Transform,
        types::{DType, Layout},
    };

    fn reader(codecs: Vec<Arc<dyn ImageCodec>>, max_image_bytes: u64) -> Reader {
        Reader { codecs: codecs.into(), max_image_bytes, buffer: PixelBuffer::default(), stack: Vec::new() }
    }

    /// Copies `rows` of the image, all columns.
    fn copy(info: &ImageInfo, rows: Range<u32>) -> ResampleParams {
        let axis = |from: u32, to: u32, high| Axis {
            start: from as f32,
            step: 1.0,
            low: 0,
            high,
            from: 0,
            to: to - from,
            flip: 0,
        };
        ResampleParams {
            y: axis(rows.start, rows.end, info.height),
            x: axis(0, info.width, info.width),
            cutout: [0; 4],
            nearest: 0,
        }
    }

    /// A row as large as any image here.
    const WHOLE: RowSpec =
        RowSpec { height: u32::MAX, width: u32::MAX, channels: 3, dtype: DType::F32, layout: Layout::Nchw };

    fn read(reader: &mut Reader, file: &[u8]) -> Result<ImageInfo> {
        reader.decode(file, &WHOLE, false, |info| Ok(copy(info, 0..info.height))).map(|read| read.0)
    }

    fn message(reader: &mut Reader, file: &[u8]) -> (ErrorKind, String) {
        let error = read(reader, file).expect_err("a bad file").at_stage(Stage::Decode).at_record(7);
        assert_eq!(error.is_sample(), error.kind() != ErrorKind::Internal);
        (error.kind(), error.to_string())
    }

    /// Two bytes, height and width, then gray pixels; told what it was asked for.
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
        fn info(&self, bytes: &[u8]) -> Result<ImageInfo> {
            Ok(ImageInfo::interleaved_u8(bytes[0].into(), bytes[1].into(), 1))
        }
        fn decode(&self, bytes: &[u8], info: &ImageInfo, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
            self.asked.lock().unwrap().push(rows.clone());
            let rows = self.gives.clone().unwrap_or(rows);
            let held = held_bytes(info, &rows);
            let start = 2 + (rows.start * info.width) as usize;
            out.room(rows, held).copy_from_slice(&bytes[start..start + held]);
            Ok(())
        }
    }

    #[test]
    fn the_codec_is_told_by_the_first_bytes_and_decodes_the_needed_rows() {
        let tiny = Arc::new(Tiny::default());
        let mut reader = reader(vec![Arc::clone(&tiny) as Arc<dyn ImageCodec>], 100);
        let file = [&[4, 3][..], &(0..12).collect::<Vec<u8>>()].concat();
        let (info, params, _) =
            reader.decode(&file, &RowSpec { height: 2, ..WHOLE }, false, |info| Ok(copy(info, 1..3))).unwrap();
        // The filter's window may reach one row further than its weights.
        assert!(matches!(tiny.asked.lock().unwrap()[..], [Range { start: 0..=1, end: 3..=4 }]));

        let mut row = vec![0; 6];
        let table =
            crate::sys::kernels::ChannelTable { scale: vec![1.0], bias: vec![0.0], fill: vec![0.0], cutout: vec![0.0] };
        let spec =
            crate::sys::kernels::RowSpec { height: 2, width: 3, channels: 1, dtype: DType::U8, layout: Layout::Nchw };
        let pixels = Pixels { info, rows: reader.buffer.rows.clone(), data: &reader.buffer.data };
        Resampler::new().run(&pixels, &params, &table, &spec, &mut row).unwrap();
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
        let mut reader = reader(vec![Arc::new(Tiny::default())], 100);
        let (kind, text) = message(&mut reader, b"");
        assert_eq!(
            (kind, &*text),
            (ErrorKind::Corrupt, "decode: file is empty (record 7); fetch the object again or set on_bad_sample(Skip)")
        );
        let (kind, text) = message(&mut reader, b"GIF89a, say");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert_eq!(
            text,
            "decode: no image that a codec reads: it begins with 47 49 46 38 39 61 2c 20 (record 7); \
             codecs are tiny; add one with LoaderBuilder::codec or set on_bad_sample(Skip)"
        );
    }

    #[test]
    fn a_worker_gives_each_job_back_once_with_an_outcome_for_each_item() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let mut worker = cpu.worker(0, 0, &vec![None].into()).unwrap();
        let failed = Error::new(ErrorKind::Io, "cannot read").at_stage(Stage::Fetch);
        let samples = [Ok(vec![Value::Label(3)]), Err(failed), Ok(vec![])];
        let item = |(record, values): (usize, Result<Vec<Value>>)| Item {
            record: record as u64,
            rng: SampleRng::new(1, 2, 3),
            sample: values.map(|values| Sample { values: values.into() }),
        };
        let items = samples.into_iter().enumerate().map(item).collect();
        worker.submit(Job { tag: 5, items, rows: vec![Rows::zeroed(3, 8).unwrap()] });

        let finished = worker.poll(Wait::Block);
        assert_eq!((finished.len(), worker.poll(Wait::Now).len()), (1, 0));
        let Finished { job, outcomes, .. } = &finished[0];
        assert_eq!((job.tag, job.rows[0].rows(), job.items.len()), (5, 3, 3));
        let texts = outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        });
        assert_eq!(
            texts.collect::<Vec<_>>(),
            ["Done", "fetch: cannot read (record 1)", "decode: a sample has other fields than its schema (record 2)"]
        );
    }

    fn field() -> FieldKind {
        FieldKind::Image { channels: 3, size: None, dtype: None }
    }

    /// Runs one job over an image field and a label.
    fn run(cpu: &Cpu, lowered: &Lowered, images: Vec<Value>) -> Finished {
        let row_bytes = lowered.row().len_bytes();
        let rows = vec![Rows::zeroed(images.len(), row_bytes).unwrap(), Rows::zeroed(images.len(), 8).unwrap()];
        let item = |(record, image): (usize, Value)| Item {
            record: record as u64,
            rng: SampleRng::new(1, 2, record as u64),
            sample: Ok(Sample { values: [image, Value::Label(1)].into() }),
        };
        let items = images.into_iter().enumerate().map(item).collect();
        let mut worker = cpu.worker(0, 0, &vec![Some(lowered.clone()), None].into()).unwrap();
        worker.submit(Job { tag: 0, items, rows });
        worker.poll(Wait::Block).remove(0)
    }

    #[cfg(feature = "jpeg")]
    #[test]
    fn the_rows_of_files_look_like_those_of_their_pixels() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let wave = |n: u32, c: u32| (128.0 + 90.0 * (f64::from(n * (c + 2)) / 60.0).sin()) as u8;
        let pixels: Vec<u8> = (0..90 * 70).flat_map(|n| [0, 1, 2].map(|c| wave(n / 70 + n % 70, c))).collect();
        let mut file = Vec::new();
        jpeg_encoder::Encoder::new(&mut file, 80).encode(&pixels, 70, 90, jpeg_encoder::ColorType::Rgb).unwrap();
        let mut reader = reader(codecs(), 1 << 20);
        let info = read(&mut reader, &file).unwrap();
        let whole = Value::Pixels { info, data: reader.buffer.data[..held_bytes(&info, &(0..90))].to_vec().into() };
        let transform = Transform::new().random_resized_crop(24).horizontal_flip(0.5);
        let lowered = transform.lower(&field(), DType::F32, Layout::Nchw).unwrap();

        let files = run(&cpu, &lowered, vec![Value::Encoded(file.into()); 50]);
        let images = run(&cpu, &lowered, vec![whole; 50]);
        assert!(files.outcomes.iter().chain(&images.outcomes).all(|o| matches!(o, Outcome::Done)));
        let values = |done: &Finished| bytemuck::pod_collect_to_vec::<u8, f32>(done.job.rows[0].bytes());
        let apart: Vec<f32> = values(&files).iter().zip(&values(&images)).map(|(a, b)| (a - b).abs()).collect();
        let (mean, most) =
            (apart.iter().sum::<f32>() / apart.len() as f32, apart.iter().fold(0.0f32, |a, b| a.max(*b)));
        // Planes are resampled before they become RGB, pixels are whole numbers first.
        assert!(mean < 0.5 && most < 6.0 && mean > 0.0, "{mean} {most}");
        assert!(files.decode > Duration::ZERO && images.decode == Duration::ZERO);
        assert!(files.transform > Duration::ZERO && images.transform > Duration::ZERO);
    }

    #[cfg(all(feature = "jpeg", feature = "png"))]
    #[test]
    fn one_bad_image_leaves_its_neighbours_alone() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(9, 9, image::Rgb([200, 100, 50]))
            .write_to(&mut png, image::ImageFormat::Png)
            .unwrap();
        let png = Bytes::from(png.into_inner());
        let short = Value::Pixels { info: ImageInfo::interleaved_u8(2, 2, 3), data: Bytes::from_static(&[1; 11]) };
        let tiny = Value::Pixels { info: ImageInfo::interleaved_u8(1, 1, 1), data: Bytes::from_static(&[77]) };
        let images = vec![
            Value::Encoded(png.clone()),
            Value::Encoded(Bytes::new()),
            Value::Encoded(png.slice(..png.len() - 20)),
            short,
            Value::Label(0),
            tiny,
        ];
        let lowered = Transform::new().resize_exact(4, 4).lower(&field(), DType::U8, Layout::Nhwc).unwrap();
        let Finished { job, outcomes, .. } = run(&cpu, &lowered, images);
        let texts = outcomes.iter().map(|outcome| match outcome {
            Outcome::Failed(error) => error.to_string(),
            other => format!("{other:?}"),
        });
        let ends = "fetch the object again or set on_bad_sample(Skip)";
        assert_eq!(
            texts.collect::<Vec<_>>(),
            [
                "Done".to_owned(),
                format!("decode: file is empty (record 1); {ends}"),
                format!(
                    "decode: PNG ends after {} bytes, before its image is complete (record 2); {ends}",
                    png.len() - 20
                ),
                format!("decode: 11 bytes of pixels for 2x2 pixels (3 channels of u8) (record 3); {ends}"),
                "decode: an image field holds no image (record 4)".to_owned(),
                "Done".to_owned(),
            ]
        );
        let rows = job.rows[0].bytes();
        assert_eq!(&rows[..48], [200, 100, 50].repeat(16));
        assert_eq!(&rows[5 * 48..], [77; 48], "one gray pixel, repeated");
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
        // Planes beside the pixels, and the scan without stuffing.
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
        // Names never come this far: only bytes do.
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::new(5, 3).write_to(&mut png, image::ImageFormat::Png).unwrap();
        let mut all = reader(codecs(), 1 << 20);
        assert_eq!(read(&mut all, png.get_ref()).unwrap(), ImageInfo::interleaved_u8(3, 5, 3));
    }
}
