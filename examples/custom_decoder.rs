//! Your own kind of image file, here binary PPM (`P6`), recognised by its first bytes. First as a codec, which is tried
//! before the built-in ones and is enough for most uses; then as a decoder with its own worker threads, for hardware or
//! libraries that take whole samples.
//!
//! `cargo run --release --example custom_decoder`

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{num::NonZeroUsize, ops::Range, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use infeed::{
    Device, Error, Loader, LoaderBuilder, Result, Transform,
    codec::{ImageCodec, ImageHeader, ImageInfo, PixelBuffer, codec_contract},
    dataset::{Dataset, MemoryDataset, Sample, Value},
    spi::{Class, Decoded, Decoder, Finished, Job, Lowered, Outcome, Pixels, RowMaker, Wait, Worker, decoder_contract},
};

#[derive(Debug)]
struct Ppm;

/// Parses `P6`, width, height and 255, separated by white space. One byte follows, then the pixels.
fn parse(bytes: &[u8]) -> Result<(ImageInfo, usize)> {
    let damaged = |what: &'static str| Error::corrupt(what).with_hint("write it as P6 with a maximum of 255");
    let (mut at, mut numbers) = (bytes.len().min(2), [0u32; 3]);
    for number in &mut numbers {
        at += bytes[at..].iter().take_while(|c| c.is_ascii_whitespace()).count();
        let end = at + bytes[at..].iter().take_while(|c| c.is_ascii_digit()).count();
        let text = std::str::from_utf8(&bytes[at..end]).map_err(|_| damaged("a PPM header is no text"))?;
        *number = text.parse().map_err(|_| damaged("a number is missing in a PPM header"))?;
        at = end;
    }
    let [width, height, most] = numbers;
    if width == 0 || height == 0 || most != 255 {
        return Err(damaged("a PPM of no pixels or of another depth than 8 bits"));
    }
    Ok((ImageInfo::interleaved_u8(height, width, 3), at + 1))
}

fn ends_early(bytes: &[u8]) -> Error {
    Error::corrupt(format!("PPM ends after {} bytes, before its pixels do", bytes.len()))
        .with_hint("write the file again")
}

impl ImageCodec for Ppm {
    fn name(&self) -> &'static str {
        "ppm"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"P6") && head.get(2).is_some_and(u8::is_ascii_whitespace)
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        // Store where the pixels begin, so that the header is not parsed again.
        let (info, start) = parse(bytes)?;
        Ok(ImageHeader::from(info).with_own(start))
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let start: usize = *header.own()?;
        let pitch = header.width as usize * 3;
        // Only the rows that the crop needs: with raw pixels, just start further on.
        let (from, to) = (start + rows.start as usize * pitch, start + rows.end as usize * pitch);
        let pixels = bytes.get(from..to).ok_or_else(|| ends_early(bytes))?;
        out.hold(rows, pixels.len())?.copy_from_slice(pixels);
        Ok(())
    }
}

/// The decoder: it makes the workers below.
#[derive(Debug)]
struct PpmDecoder {
    classes: [Class; 1],
}

/// The state of one thread.
struct PpmWorker {
    /// For each field of the schema, how its rows are made; `None` for fields that are not images.
    programs: Arc<[Option<Lowered>]>,
    maker: RowMaker,
    finished: Vec<Finished>,
}

impl Decoder for PpmDecoder {
    fn name(&self) -> &'static str {
        "ppm"
    }
    fn classes(&self) -> &[Class] {
        &self.classes
    }
    fn scratch_bytes(&self, _class: usize) -> u64 {
        // None: pixels are read in place.
        64 << 10
    }
    fn worker(&self, _class: usize, _n: usize, programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        let programs = Arc::clone(programs);
        Ok(Box::new(PpmWorker { programs, maker: RowMaker::new(), finished: Vec::new() }))
    }
}

impl Worker for PpmWorker {
    fn submit(&mut self, mut job: Job) {
        let count = job.items.len();
        let outcome = |row: usize| match self.write(&mut job, row) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.at_record(job.items[row].record)),
        };
        let outcomes = (0..count).map(outcome).collect();
        self.finished.push(Finished::new(job, outcomes));
    }
    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }
}

impl PpmWorker {
    /// Makes one row of each image field.
    fn write(&mut self, job: &mut Job, row: usize) -> Result<()> {
        let item = &job.items[row];
        // Pass on the error of a sample that could not be read.
        let sample = item.sample.as_ref().map_err(Error::clone)?;
        for ((program, value), rows) in self.programs.iter().zip(&sample.values).zip(&mut job.rows) {
            let (Some(lowered), Value::Encoded(file)) = (program, value) else { continue };
            let (info, start) = parse(file)?;
            let rest = file.get(start..).ok_or_else(|| ends_early(file))?;
            let data = rest.get(..info.len_bytes() as usize).ok_or_else(|| ends_early(file))?;
            // Crop, size, flip and augmentations of this sample in this epoch.
            let drawn = lowered.draw(&info, item.rng)?;
            let pixels = Pixels { info, rows: 0..info.height, data };
            self.maker.run(lowered, &drawn, Decoded::Pixels(&pixels), rows.row_mut(row))?;
        }
        Ok(())
    }
}

fn picture(n: u32) -> Bytes {
    let (w, h) = (40 + n % 20, 30 + n % 10);
    let mut file = format!("P6\n{w} {h}\n255\n").into_bytes();
    file.extend((0..w * h).flat_map(|i| [(i % w * 6) as u8, (i / w * 8) as u8, n as u8]));
    file.into()
}

#[tokio::main]
async fn main() -> Result<()> {
    // These check all rules that the loader relies on; call them in your tests.
    check();

    let images = (0..300).map(picture).collect();
    let dataset = MemoryDataset::builder().encoded_images(images).labels((0..300).map(|n| n % 3).collect()).build()?;
    let dataset: Arc<dyn Dataset> = Arc::new(dataset);
    let builder = || Loader::builder(Arc::clone(&dataset));
    let threads = NonZeroUsize::new(2).expect("2 is not 0");
    let decoder = PpmDecoder { classes: [Class::new("ppm", Device::Cpu, threads)] };
    let with_codec = show(builder().codec(Arc::new(Ppm)).device(Device::Cpu)).await?;
    let with_decoder = show(builder().decoder(Arc::new(decoder))).await?;
    assert_eq!(with_codec, with_decoder, "codec and decoder make the same rows");
    Ok(())
}

fn transform() -> Transform {
    Transform::new().random_resized_crop(32).horizontal_flip(0.5).to_float()
}

/// Prints an epoch and returns its pixels.
async fn show(builder: LoaderBuilder) -> Result<Vec<f32>> {
    let loader = builder.batch_size(100).shuffle(1).transform(transform()).build().await?;
    let (mut batches, mut all) = (loader.epoch(0), Vec::new());
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        println!("{:?}, records {:?} …", batch["image"], &batch.records()[..4]);
        all.extend(batch["image"].to_vec::<f32>().expect("f32 in host memory"));
    }
    Ok(all)
}

fn check() {
    codec_contract(&Ppm, &[("one", &picture(1)), ("seven", &picture(7))]);
    let decoder = PpmDecoder { classes: [Class::new("ppm", Device::Cpu, NonZeroUsize::MIN)] };
    let dataset = MemoryDataset::builder().encoded_images(vec![picture(1)]).labels(vec![0]).build();
    let dataset = dataset.expect("one picture and its label");
    let samples = [1, 7].map(|n| Sample::new([Value::Encoded(picture(n)), Value::Label(0)]));
    decoder_contract(&decoder, dataset.schema(), &transform(), &samples);
}

#[test]
fn codec_and_decoder_keep_their_contracts() {
    check();
}
