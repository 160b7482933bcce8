//! The decoder that runs everywhere: threads that decode with the [`ImageCodec`]s and resample into the row.

use std::{
    num::NonZeroUsize,
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    report::Stage,
    rows::Rows,
    types::Device,
};
use infeed_data::Value;

use super::{
    Class, Decoder, Finished, ImageCodec, Item, Job, Outcome, Wait, Worker,
    reader::{Drawing, Labels, Reader, blame, fits_mask, images, sized},
};
use crate::transform::{Lowered, RowMaker};

/// Decodes and resamples on CPU threads. It has one class, `cpu`.
///
/// Memory: each worker holds at most `max_image_bytes` for pixels, plus a few hundred KB.
///
/// ```
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// use std::{num::NonZeroUsize, sync::Arc};
///
/// use infeed::{Loader, codec::codecs, spi::Cpu};
///
/// # let dataset = infeed::open("synthetic://?count=64&height=8&width=8&classes=2").await?;
/// // Two threads; images of more than 64 MiB are refused.
/// let decoder = Cpu::new(NonZeroUsize::new(2).expect("2 is not 0"), codecs(), 64 << 20);
/// let loader = Loader::builder(dataset).decoder(Arc::new(decoder)).batch_size(16).build().await?;
/// assert_eq!(loader.epoch(0).count().await, 4);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Cpu {
    classes: [Class; 1],
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image_bytes: u64,
    of_pixels: bool,
}

impl Cpu {
    /// A decoder with `workers` threads. The first of `codecs` that recognises a file decodes it. An image whose
    /// decoding takes more than `max_image_bytes` is refused.
    #[must_use]
    pub fn new(
        workers: NonZeroUsize,
        codecs: impl IntoIterator<Item = Arc<dyn ImageCodec>>,
        max_image_bytes: u64,
    ) -> Self {
        let class = Class::new("cpu", Device::Cpu, workers);
        Self { classes: [class], codecs: codecs.into_iter().collect(), max_image_bytes, of_pixels: false }
    }

    /// Makes every row from pixels, never from planes. The row is then the same whether the image was decoded whole or
    /// in part.
    #[doc(hidden)]
    pub fn of_pixels(mut self, of_pixels: bool) -> Self {
        self.of_pixels = of_pixels;
        self
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
            of_pixels: self.of_pixels,
            maker: RowMaker::new(),
            images: images(programs),
            programs: Arc::clone(programs),
            finished: Vec::new(),
        }))
    }
}

#[derive(Debug)]
struct CpuWorker {
    reader: Reader,
    of_pixels: bool,
    maker: RowMaker,
    programs: Arc<[Option<Lowered>]>,
    /// Ranges of fields: those of one range are made of one image.
    images: Vec<Range<usize>>,
    finished: Vec<Finished>,
}

impl Worker for CpuWorker {
    fn submit(&mut self, mut job: Job) {
        let start = Instant::now();
        let mut decode = Duration::ZERO;
        let Job { items, rows, .. } = &mut job;
        let mut outcomes = Vec::with_capacity(items.len());
        for row in 0..items.len() {
            self.maker.reads_next(items.get(row + 1).map_or(&[], pixels));
            let item = &mut items[row];
            self.keep(item, &mut decode);
            outcomes.push(match self.item(item, row, rows, &mut decode) {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.at_stage(Stage::Decode).at_record(item.record)),
            });
        }
        // The rest of the time is resampling. Two more clock reads would cost more than some rows of small images.
        let transform = start.elapsed().saturating_sub(decode);
        let images = self.reader.take_decoded();
        self.finished.push(Finished { images, decode, transform, ..Finished::new(job, outcomes) });
    }

    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }
}

/// The pixels of the sample's first field that has some.
fn pixels(item: &Item) -> &[u8] {
    let values = item.sample.iter().flat_map(|sample| &sample.values);
    let mut pixels =
        values.filter_map(|value| if let Value::Pixels { data, .. } = value { Some(&data[..]) } else { None });
    pixels.next().unwrap_or_default()
}

impl CpuWorker {
    /// Decodes the images of a sample whole, for `KeepPixels`. An image that can't be decoded stays as it is; making
    /// its row then reports the error.
    fn keep(&mut self, item: &mut Item, decode: &mut Duration) {
        let (Some(keep), Ok(sample)) = (item.keep.take(), &mut item.sample) else { return };
        let began = Instant::now();
        let mut decoded = 0;
        for fields in &self.images {
            let Some(value) = sample.values.get(fields.start) else { return };
            let labels = Labels::of(&self.programs[fields.clone()]);
            let Ok(Some((info, data))) = self.reader.whole(value, item.header.as_ref(), labels) else { break };
            decoded += 1;
            let end = fields.end.min(sample.values.len());
            sample.values[fields.start..end].fill(Value::Pixels { info, data });
        }
        *decode += began.elapsed();
        // All or nothing: a kept sample is never read again.
        if decoded == self.images.len() {
            keep.keep(sample);
        }
    }

    fn item(&mut self, item: &Item, row: usize, rows: &mut [Rows], decode: &mut Duration) -> Result<()> {
        let sample = item.sample.as_ref().map_err(Error::clone)?;
        if sample.values.len() != self.programs.len() || rows.len() != self.programs.len() {
            return Err(Error::new(ErrorKind::Internal, "a sample has other fields than its schema"));
        }
        let (mut size, draws) = (None, Drawing::of(item.rng, sample));
        for fields in &self.images {
            let (value, views) = (&sample.values[fields.start], &self.programs[fields.clone()]);
            let own = sized(views, item.size);
            let views = own.as_deref().unwrap_or(views);
            let (planes, blame) = (!self.of_pixels, blame(views, self.images.len()));
            let read = self.reader.read(value, item.header.as_ref(), views, draws, decode, planes);
            let (info, image, drawn) = read.map_err(&blame)?;
            draws.fits(&info).map_err(&blame)?;
            for ((lowered, drawn), rows) in views.iter().flatten().zip(drawn).zip(&mut rows[fields.clone()]) {
                fits_mask(lowered, &info, &mut size).map_err(&blame)?;
                self.maker.run(lowered, drawn, image.decoded(), rows.row_mut(row)).map_err(&blame)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    #[cfg(feature = "jpeg")]
    use crate::codec::{Jpeg, PixelBuffer};
    use crate::{codec::codecs, transform::Transform};
    use infeed_core::{
        random::SampleRng,
        types::{DType, ImageInfo, Layout},
    };
    use infeed_data::{FieldKind, Sample};

    #[cfg(all(feature = "jpeg", feature = "png"))]
    #[test]
    fn files_of_several_kinds_keep_the_decoders_contract() {
        use crate::codec::decoder_contract;
        use infeed_data::{Field, Schema};
        let pixels: Vec<u8> = (0..24 * 20 * 3).map(|i| (i * 5 % 251) as u8).collect();
        let mut jpeg = Vec::new();
        jpeg_encoder::Encoder::new(&mut jpeg, 90).encode(&pixels, 24, 20, jpeg_encoder::ColorType::Rgb).unwrap();
        let mut png = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_raw(24, 20, pixels).unwrap().write_to(&mut png, image::ImageFormat::Png).unwrap();
        let kind = FieldKind::Image { channels: 3, size: None, dtype: None };
        let schema = Schema::new(vec![Field::label(), Field::new("image", kind)]);
        let files = [Bytes::from(jpeg), Bytes::from(png.into_inner())];
        let samples = files.map(|file| Sample::new([Value::Label(1), Value::Encoded(file)]));
        let decoder = Cpu::new(NonZeroUsize::new(2).unwrap(), codecs(), 1 << 20);
        decoder_contract(&decoder, &schema, &Transform::new().random_resized_crop(8).to_float(), &samples);
    }

    #[test]
    fn a_worker_gives_each_job_back_once_with_an_outcome_for_each_item() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let mut worker = cpu.worker(0, 0, &vec![None].into()).unwrap();
        let failed = Error::new(ErrorKind::Io, "cannot read").at_stage(Stage::Fetch);
        let samples = [Ok(vec![Value::Label(3)]), Err(failed), Ok(vec![])];
        let item = |(record, values): (usize, Result<Vec<Value>>)| {
            let sample = values.map(|values| Sample { values: values.into() });
            Item::new(record as u64, SampleRng::new(1, 2, 3), sample)
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
        let item = |(record, image): (usize, Value)| {
            let record = record as u64;
            let sample = Ok(Sample { values: [image, Value::Label(1)].into() });
            Item::new(record, SampleRng::new(1, 2, record), sample)
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
        let codec = Jpeg::new();
        let header = codec.header(&file).unwrap();
        let mut pixels = PixelBuffer::default();
        codec.decode(&file, &header, 0..90, &mut pixels).unwrap();
        let info = header.info;
        let whole = Value::Pixels { info, data: pixels.data[..info.len_bytes() as usize].to_vec().into() };
        let transform = Transform::new().random_resized_crop(24).horizontal_flip(0.5);
        let lowered = transform.lower(&field(), DType::F32, Layout::Nchw).unwrap();

        let files = run(&cpu, &lowered, vec![Value::Encoded(file.into()); 50]);
        let images = run(&cpu, &lowered, vec![whole; 50]);
        assert!(files.outcomes.iter().chain(&images.outcomes).all(|o| matches!(o, Outcome::Done)));
        let values = |done: &Finished| bytemuck::pod_collect_to_vec::<u8, f32>(done.job.rows[0].bytes());
        let apart: Vec<f32> = values(&files).iter().zip(&values(&images)).map(|(a, b)| (a - b).abs()).collect();
        let (mean, most) =
            (apart.iter().sum::<f32>() / apart.len() as f32, apart.iter().fold(0.0f32, |a, b| a.max(*b)));
        // Planes are resampled before they become RGB; pixels are rounded to whole numbers before.
        assert!(mean < 0.5 && most < 6.0 && mean > 0.0, "{mean} {most}");
        assert!(files.decode > Duration::ZERO && images.decode == Duration::ZERO);
        assert!(files.transform > Duration::ZERO && images.transform > Duration::ZERO);
    }

    #[test]
    fn floats_that_are_not_of_0_to_1_are_refused_where_nobody_says_what_white_is() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let floats = |value: f32| {
            let info = ImageInfo { dtype: DType::F32, ..ImageInfo::interleaved_u8(2, 2, 3) };
            Value::Pixels { info, data: value.to_ne_bytes().repeat(12).into() }
        };
        let bytes = || {
            let info = ImageInfo::interleaved_u8(2, 2, 3);
            Value::Pixels { info, data: vec![51; 12].into() }
        };
        let images = || vec![bytes(), floats(0.2), floats(1.9), floats(f32::INFINITY), floats(51.0)];
        let outcomes = |transform: Transform, field: &FieldKind, images: Vec<Value>| {
            let lowered = transform.lower(field, DType::F32, Layout::Nhwc).unwrap();
            let Finished { job, outcomes, .. } = run(&cpu, &lowered, images);
            let texts = outcomes.iter().map(|outcome| match outcome {
                Outcome::Failed(error) => error.to_string(),
                other => format!("{other:?}"),
            });
            (texts.collect::<Vec<_>>(), bytemuck::pod_collect_to_vec::<u8, f32>(job.rows[0].bytes()))
        };
        let unit = || Transform::new().resize_exact(2, 2).to_float();
        let (texts, values) = outcomes(unit(), &field(), images());
        assert_eq!(texts[..4], ["Done"; 4]);
        assert!(texts[4].contains("f32 pixels up to 51, in a dataset that declares no pixel type"), "{}", texts[4]);
        assert!((values[0] - values[12]).abs() < 1e-6, "51 of 255 is 0.2");
        // Any stored type is accepted; also when the dataset declares that all of them are f32.
        let (texts, _) = outcomes(Transform::new().resize_exact(2, 2), &field(), images());
        assert_eq!(texts, ["Done"; 5]);
        let declared = FieldKind::Image { channels: 3, size: None, dtype: Some(DType::F32) };
        let (texts, _) = outcomes(unit(), &declared, vec![floats(51.0); 2]);
        assert_eq!(texts, ["Done"; 2]);
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

    #[test]
    fn colours_of_a_mask_count_as_one_channel_if_they_are_alike() {
        let cpu = Cpu::new(NonZeroUsize::MIN, codecs(), 1 << 20);
        let pixels = |channels: u8, planar: bool, data: &[u8]| {
            let info = ImageInfo { planar, ..ImageInfo::interleaved_u8(1, 2, channels) };
            Value::Pixels { info, data: data.to_vec().into() }
        };
        let images = vec![
            pixels(3, false, &[7, 7, 7, 200, 200, 200]),
            pixels(3, true, &[7, 200, 7, 200, 7, 200]),
            pixels(4, false, &[7, 7, 7, 255, 200, 200, 200, 255]),
            pixels(2, false, &[7, 255, 200, 255]),
            pixels(3, false, &[7, 7, 7, 200, 0, 0]),
            pixels(4, false, &[7, 7, 7, 255, 200, 200, 200, 9]),
            pixels(1, false, &[7, 200]),
        ];
        let kind = FieldKind::Image { channels: 1, size: None, dtype: None };
        let lowered = Transform::new().center_crop(2).lower_mask(&kind, Layout::Nhwc).unwrap();
        // The crop adds a row of zeros and does not hide pixels outside of it.
        let Finished { job, outcomes, .. } = run(&cpu, &lowered, images);
        let labels: Vec<&[u8]> = job.rows[0].bytes().chunks(4).collect();
        for (row, outcome) in outcomes.iter().enumerate() {
            match (row, outcome) {
                (0..4 | 6, Outcome::Done) => {
                    assert_eq!(labels[row].iter().copied().filter(|v| *v > 0).collect::<Vec<_>>(), [7, 200], "{row}");
                }
                (4, Outcome::Failed(error)) => {
                    let says = "a mask that is coloured: its pixel in row 0, column 1 is [200.0, 0.0, 0.0]";
                    assert!(error.to_string().contains(says), "{error}");
                }
                (5, Outcome::Failed(error)) => assert!(error.to_string().contains("not opaque"), "{error}"),
                other => panic!("{other:?}"),
            }
        }
        // Rows of u8 can't hold 16 bits.
        let wide = ImageInfo { dtype: DType::U16, ..ImageInfo::interleaved_u8(2, 2, 1) };
        let wide = || Value::Pixels { info: wide, data: 300u16.to_ne_bytes().repeat(4).into() };
        let error = match run(&cpu, &lowered, vec![wide()]).outcomes.remove(0) {
            Outcome::Failed(error) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(error.contains("a mask of u16 where rows hold u8"), "{error}");
        let declared = FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U16) };
        let lowered = Transform::new().center_crop(2).lower_mask(&declared, Layout::Nhwc).unwrap();
        let bytes = Value::Pixels { info: ImageInfo::interleaved_u8(2, 2, 1), data: vec![9; 4].into() };
        let Finished { job, outcomes, .. } = run(&cpu, &lowered, vec![wide(), bytes]);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done)), "{outcomes:?}");
        let labels = bytemuck::pod_collect_to_vec::<u8, f32>(job.rows[0].bytes());
        assert_eq!(labels, [[300.0; 4], [9.0; 4]].concat());
    }
}
