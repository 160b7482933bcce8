//! One epoch of a folder of photographs at 224x224, by burn's own image dataset and loader or by infeed, both as burn's
//! tensors on its CPU backend: `infeed-beside-burn burn|infeed FOLDER THREADS BATCH STEP_MS`. Run by `../burn.py`.

use std::{
    error::Error,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use burn::{
    data::{
        dataloader::{DataLoader, DataLoaderBuilder, batcher::Batcher},
        dataset::vision::{Annotation, ImageDatasetItem, ImageFolderDataset},
    },
    prelude::*,
};
use image::{RgbImage, imageops};
use infeed::{IMAGENET_MEAN, IMAGENET_STD, LastBatch, Loader, Transform, open};
use infeed_burn::{ClassificationBatch, InfeedLoader};

const SIDE: u32 = 224;

/// Decoded by the dataset; resized, and made floats, here: on burn's threads.
#[derive(Clone)]
struct Photographs;

impl Batcher<ImageDatasetItem, ClassificationBatch> for Photographs {
    fn batch(&self, items: Vec<ImageDatasetItem>, device: &Device) -> ClassificationBatch {
        let mut values = vec![0f32; items.len() * 3 * (SIDE * SIDE) as usize];
        let mut targets = Vec::with_capacity(items.len());
        for (item, planes) in items.into_iter().zip(values.chunks_exact_mut(3 * (SIDE * SIDE) as usize)) {
            let Annotation::Label(label) = item.annotation else { panic!("class folders have labels") };
            targets.push(label as i32);
            let (width, height) = (item.image_width as u32, item.image_height as u32);
            let pixels: Vec<u8> = item.image.try_into().expect("photographs are u8");
            let gray = pixels.len() == (width * height) as usize;
            let pixels = if gray { pixels.into_iter().flat_map(|value| [value; 3]).collect() } else { pixels };
            let image = RgbImage::from_raw(width, height, pixels).expect("as many pixels as it says");
            let image = imageops::resize(&image, SIDE, SIDE, imageops::FilterType::Triangle);
            for (channel, plane) in planes.chunks_exact_mut((SIDE * SIDE) as usize).enumerate() {
                for (value, pixel) in plane.iter_mut().zip(image.pixels()) {
                    *value = (f32::from(pixel[channel]) / 255.0 - IMAGENET_MEAN[channel]) / IMAGENET_STD[channel];
                }
            }
        }
        let shape = [targets.len(), 3, SIDE as usize, SIDE as usize];
        ClassificationBatch {
            images: Tensor::from_data(TensorData::new(values, shape), device),
            targets: Tensor::from_data(&targets[..], device),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [who, folder, threads, batch, step] = &args[..] else {
        return Err("burn|infeed FOLDER THREADS BATCH STEP_MS".into());
    };
    let (threads, batch, step): (usize, usize, u64) = (threads.parse()?, batch.parse()?, step.parse()?);
    let device = Device::flex();
    let began = Instant::now();
    let data: Arc<dyn DataLoader<ClassificationBatch>> = match &who[..] {
        "burn" => {
            let loader = DataLoaderBuilder::new(Photographs).batch_size(batch).shuffle(42).num_workers(threads);
            loader.build(ImageFolderDataset::new_classification(folder)?)
        }
        "infeed" => {
            let transform = Transform::new().resize_exact(SIDE, SIDE).to_float().normalize(IMAGENET_MEAN, IMAGENET_STD);
            let builder = Loader::builder(open(folder).blocking()?).batch_size(batch).shuffle(42).transform(transform);
            let builder = builder.device(infeed::Device::Cpu).last_batch(LastBatch::Partial);
            let builder = if threads == 0 { builder } else { builder.workers(threads) };
            Arc::new(InfeedLoader::<ClassificationBatch>::new(builder.build_blocking()?, &device))
        }
        other => return Err(format!("{other}: burn or infeed").into()),
    };
    let opened = began.elapsed();
    let (mut images, mut first, mut order) = (0, None, DefaultHasher::new());
    let began = Instant::now();
    for batch in data.iter() {
        let batch = batch?;
        first.get_or_insert_with(|| began.elapsed());
        images += batch.images.dims()[0];
        // Labels in the order in which they come; each class has one photograph or few.
        batch.targets.into_data().convert::<i64>().as_slice::<i64>()?.hash(&mut order);
        thread::sleep(Duration::from_millis(step));
    }
    let seconds = began.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status")?;
    let kilobytes =
        |name| status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let stat = fs::read_to_string("/proc/self/stat")?;
    let ticks: Vec<f64> =
        stat.rsplit(')').next().unwrap_or("").split(' ').filter_map(|field| field.parse().ok()).collect();
    println!(
        "{}",
        serde_json::json!({
            "images": images, "seconds": seconds, "images_per_second": images as f64 / seconds,
            "open_ms": 1e3 * opened.as_secs_f64(), "first_ms": first.map(|first| 1e3 * first.as_secs_f64()),
            "peak_mb": kilobytes("VmHWM:").map(|kilobytes| kilobytes / 1e3), "order": order.finish().to_string(),
            // utime and stime, in hundredths; the letter of the state before them is no number.
            "cpu_seconds": (ticks[10] + ticks[11]) / 100.0,
        })
    );
    Ok(())
}
