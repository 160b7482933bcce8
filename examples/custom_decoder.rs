//! A kind of image file of your own, beside the built-in ones: binary PPM (`P6`), known by its first bytes.
//!
//! `cargo run --release --example custom_decoder`

#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use futures::StreamExt;
use infeed::{
    Error, Loader, Result,
    codec::{ImageCodec, ImageHeader, PixelBuffer, codec_contract},
    dataset::{ImageInfo, MemoryDataset},
    transform::Transform,
};

#[derive(Debug)]
struct Ppm;

/// `P6`, width, height and 255, apart by white space; pixels begin after the byte that follows.
fn parse(bytes: &[u8]) -> Result<(ImageInfo, usize)> {
    let damaged = |what: &'static str| Error::corrupt(what).hint("write it as P6 with a maximum of 255");
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

impl ImageCodec for Ppm {
    fn name(&self) -> &'static str {
        "ppm"
    }
    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"P6") && head.get(2).is_some_and(u8::is_ascii_whitespace)
    }
    fn header(&self, bytes: &[u8]) -> Result<ImageHeader> {
        // Where the pixels begin, too: nobody reads the header again.
        let (info, start) = parse(bytes)?;
        Ok(ImageHeader::from(info).with_own(start))
    }
    fn decode(&self, bytes: &[u8], header: &ImageHeader, rows: Range<u32>, out: &mut PixelBuffer) -> Result<()> {
        let start: usize = *header.own()?;
        let pitch = header.width as usize * 3;
        // Only the rows that the crop needs: for raw pixels that is a matter of where to begin.
        let (from, to) = (start + rows.start as usize * pitch, start + rows.end as usize * pitch);
        let pixels = bytes.get(from..to).ok_or_else(|| {
            Error::corrupt(format!("PPM ends after {} of {to} bytes", bytes.len())).hint("write the file again")
        })?;
        out.hold(rows, pixels.len()).copy_from_slice(pixels);
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
    // Checks what the loader relies on; call it in your tests.
    codec_contract(&Ppm, &[("one", &picture(1)), ("seven", &picture(7))]);

    let images = (0..300).map(picture).collect();
    let dataset = MemoryDataset::builder().encoded_images(images).labels((0..300).map(|n| n % 3).collect()).build()?;
    let transform = Transform::new().random_resized_crop(32).horizontal_flip(0.5).to_float();
    let builder = Loader::builder(Arc::new(dataset)).codec(Arc::new(Ppm));
    let loader = builder.batch_size(100).shuffle(1).transform(transform).build().await?;
    let mut batches = loader.epoch(0);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        println!("{:?}, records {:?} …", batch["image"], &batch.records()[..4]);
    }
    Ok(())
}
