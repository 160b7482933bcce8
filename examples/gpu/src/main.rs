//! A small convolutional net on CIFAR-10's binary files, trained with burn on the GPU from an async loop; on the CPU where
//! there is no GPU.
//!
//! `cargo run --release -- DIR [EPOCHS]`, where DIR holds `data_batch_*.bin` and `test_batch.bin`. Without a folder it
//! makes pictures up, which shows the loop and no learning worth the name.

mod landing;
mod net;

use std::{error::Error, time::Instant};

use burn::{
    backend::{Autodiff, Flex},
    module::AutodiffModule,
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsParams, Optimizer},
    prelude::{Backend, ElementConversion, Int, Tensor, TensorData},
    tensor::backend::AutodiffBackend,
};
use futures::StreamExt;
use infeed::{Batch, BatchStream, Loader, open, sampler::LastBatch, transform::Transform};

use crate::{
    landing::{Gpu, Landing},
    net::Net,
};

const BATCH: usize = 128;
const LEARNING_RATE: f64 = 2e-3;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Pictures `[N, 3, 32, 32]` and labels `[N]`.
type Input<B> = (Tensor<B, 4>, Tensor<B, 1, Int>);

// One thread: burn has a stream for each thread that calls it. The loader brings threads of its own.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("synthetic://?count=2048&height=32&width=32&classes=10".into());
    let epochs = args.next().map_or(Ok(6), |n| n.parse())?;
    let devices = infeed::device::devices();
    match devices.gpus.first() {
        Some(gpu) => {
            println!("{gpu}");
            let (device, mut landing) = Landing::new()?;
            train::<Autodiff<Gpu>>(&device, &url, epochs, |batch| landing.input(batch)).await
        }
        None => {
            println!("on the CPU ({})", devices.note);
            let device = Default::default();
            train::<Autodiff<Flex>>(&device, &url, epochs, |batch| from_host(batch, &device)).await
        }
    }
}

async fn loader(url: &str, split: &str, transform: &str, last: LastBatch) -> infeed::Result<Loader> {
    let dataset = if url.starts_with("synthetic:") { open(url).await? } else { open(url).split(split).await? };
    let transform = Transform::preset(transform)?;
    let builder = Loader::builder(dataset).device_auto().batch_size(BATCH).shuffle(42).last_batch(last);
    builder.transform(transform).build().await
}

/// Trains, tests after each epoch, and says what it saw.
async fn train<B: AutodiffBackend>(
    device: &B::Device,
    url: &str,
    epochs: u64,
    mut input: impl FnMut(&Batch) -> Result<Input<B::InnerBackend>>,
) -> Result<()> {
    let training = loader(url, "train", "cifar-train", LastBatch::Drop).await?;
    let test = loader(url, "test", "cifar-val", LastBatch::Partial).await?;
    B::seed(device, 42);
    let mut net = Net::<B>::new(device);
    let mut optimizer = AdamWConfig::new().with_weight_decay(5e-4).init();
    let cross_entropy = CrossEntropyLossConfig::new().init(device);

    // One stream over all epochs: the next epoch is read while the last steps of this one are computed.
    let mut batches = training.epochs(0..epochs);
    let steps = training.batches_per_epoch();
    let (mut began, mut sum) = (Instant::now(), Tensor::<B::InnerBackend, 1>::zeros([1], device));
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let (epoch, step) = (batch.epoch(), batch.step() + 1);
        let (pictures, labels) = input(&batch)?;
        // Copied or queued for it: the memory may go back to the loader.
        drop(batch);
        let guess = net.forward(Tensor::from_inner(pictures));
        let loss = cross_entropy.forward(guess, Tensor::from_inner(labels));
        sum = sum + loss.clone().inner();
        let gradients = GradientsParams::from_grads(loss.backward(), &net);
        net = optimizer.step(LEARNING_RATE, net, gradients);
        if step == steps {
            // Reading the sum waits for the GPU: once an epoch, so that it never runs dry in between.
            let mean = sum.into_scalar().elem::<f64>() / steps as f64;
            let seconds = began.elapsed().as_secs_f64();
            let accuracy = accuracy(&net.valid(), test.epoch(0), &mut input).await?;
            let percent = 100.0 * accuracy;
            println!(
                "Epoch [{epoch}] {steps} steps in {seconds:.2} s, mean loss {mean:.3}, test accuracy {percent:.1} %"
            );
            (began, sum) = (Instant::now(), Tensor::zeros([1], device));
        }
    }
    let report = batches.report();
    let waits = (epochs * steps).max(1) as f64;
    println!(
        "AU {:.2} %, mean wait for a batch {:.3} ms (p99 {:.3} ms)",
        100.0 * report.au().unwrap_or(1.0),
        1e3 * report.data_wait.sum.as_secs_f64() / waits,
        1e3 * report.data_wait.p99.as_secs_f64(),
    );
    Ok(())
}

async fn accuracy<B: Backend>(
    net: &Net<B>,
    mut batches: BatchStream,
    mut input: impl FnMut(&Batch) -> Result<Input<B>>,
) -> Result<f64> {
    let (mut right, mut all) = (0.0, 0);
    while let Some(batch) = batches.next().await {
        let (pictures, labels) = input(&batch?)?;
        all += labels.dims()[0];
        let guess = net.forward(pictures).argmax(1).squeeze_dim::<1>(1);
        right += guess.equal(labels).int().sum().into_scalar().elem::<f64>();
    }
    Ok(right / all as f64)
}

/// One copy: burn owns its memory.
fn from_host<B: Backend>(batch: &Batch, device: &B::Device) -> Result<Input<B>> {
    let pictures = batch["image"].to_vec::<f32>().ok_or("the pictures are not f32 in host memory")?;
    let labels = batch["label"].to_vec::<i64>().ok_or("the labels are not in host memory")?;
    let pictures = TensorData::new(pictures, batch["image"].shape().to_vec());
    let labels = TensorData::new(labels, batch["label"].shape().to_vec());
    Ok((Tensor::from_data(pictures, device), Tensor::from_data(labels, device)))
}
