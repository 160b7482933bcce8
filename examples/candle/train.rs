//! A real model on CIFAR-10's binary files: a small convolutional net in candle, trained on the CPU from an async loop.
//!
//! `cargo run --release -p infeed-examples --bin train -- DIR [EPOCHS]`, where DIR holds `data_batch_*.bin` and `test_batch.bin`.
//! Without a folder it makes pictures up, which shows the loop and no learning worth the name.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{
    AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss, ops,
};
use futures::StreamExt;
use infeed::{Batch, BatchStream, Loader, Result, open, sampler::LastBatch, transform::Transform};

/// Three convolutions, each followed by a ReLU and a 2×2 maximum, then one linear layer: 32×32 to 4×4 to 10.
struct Net {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Net {
    fn new(vars: VarBuilder<'_>) -> candle_core::Result<Self> {
        let same = Conv2dConfig { padding: 1, ..Default::default() };
        let sizes = [(3, 32), (32, 64), (64, 128)];
        let layer = |(n, (from, to))| conv2d(from, to, 3, same, vars.pp(format!("conv{n}")));
        let convolutions = sizes.into_iter().enumerate().map(layer).collect::<candle_core::Result<_>>()?;
        Ok(Self { convolutions, head: linear(128 * 4 * 4, 10, vars.pp("head"))? })
    }

    fn forward(&self, image: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = image.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?.max_pool2d(2)?;
        }
        self.head.forward(&x.flatten_from(1)?)
    }
}

/// One copy: candle owns its memory.
fn to_candle(batch: &Batch) -> candle_core::Result<(Tensor, Tensor)> {
    let image = batch["image"].as_slice::<f32>().expect("the loader was asked for f32");
    let label = batch["label"].as_slice::<i64>().expect("labels are i64");
    let label: Vec<u32> = label.iter().map(|l| *l as u32).collect();
    let image = Tensor::from_slice(image, batch["image"].shape(), &Device::Cpu)?;
    Ok((image, Tensor::new(label, &Device::Cpu)?))
}

async fn loader(url: &str, split: &str, transform: Transform, last: LastBatch) -> Result<Loader> {
    let dataset = if url.starts_with("synthetic:") { open(url).await? } else { open(url).split(split).await? };
    Loader::builder(dataset)
        .device(infeed::Device::Cpu)
        .batch_size(128)
        .shuffle(42)
        .last_batch(last)
        .transform(transform)
        .build()
        .await
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("synthetic://?count=2048&height=32&width=32&classes=10".into());
    let epochs: u64 = args.next().map_or(Ok(6), |n| n.parse())?;
    let train = loader(&url, "train", Transform::preset("cifar-train")?, LastBatch::Drop).await?;
    let test = loader(&url, "test", Transform::preset("cifar-val")?, LastBatch::Partial).await?;

    let vars = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
    let params = ParamsAdamW { lr: 2e-3, weight_decay: 5e-4, ..Default::default() };
    let mut optimizer = AdamW::new(vars.all_vars(), params)?;

    // One stream over all epochs: the next epoch is read while the last steps of this one are computed.
    let mut batches = train.epochs(0..epochs);
    let steps = train.batches_per_epoch();
    let (mut began, mut epoch_loss) = (Instant::now(), 0.0);
    loop {
        let asked = Instant::now();
        let Some(batch) = batches.next().await else { break };
        let data = asked.elapsed();
        let batch = batch?;
        let (image, label) = to_candle(&batch)?;
        let loss = loss::cross_entropy(&net.forward(&image)?, &label)?;
        optimizer.backward_step(&loss)?;
        let value = f64::from(loss.to_scalar::<f32>()?);
        epoch_loss += value;
        let (epoch, step) = (batch.epoch(), batch.step() + 1);
        if step % 20 == 0 || step == steps {
            let time = began.elapsed().as_secs_f64();
            println!("Epoch [{epoch}][{step}/{steps}] Time {time:.3} Data {:.6} Loss {value:.3}", data.as_secs_f64());
        }
        began = Instant::now();
        if step == steps {
            let accuracy = accuracy(&net, test.epoch(0)).await?;
            println!(
                "Epoch [{epoch}] mean loss {:.3}, test accuracy {:.1} %",
                epoch_loss / steps as f64,
                100.0 * accuracy
            );
            (began, epoch_loss) = (Instant::now(), 0.0);
        }
    }
    let report = batches.report();
    println!(
        "waited for data {:.3} ms a batch (p99), {:.4} % of the time; AU {:.2} %",
        1e3 * report.data_wait.p99.as_secs_f64(),
        100.0 * report.data_wait.sum.as_secs_f64() / report.step.sum.as_secs_f64().max(1e-9),
        100.0 * report.au().unwrap_or(1.0),
    );
    Ok(())
}

async fn accuracy(net: &Net, mut batches: BatchStream) -> std::result::Result<f64, Box<dyn std::error::Error>> {
    let (mut right, mut all) = (0.0, 0.0);
    while let Some(batch) = batches.next().await {
        let (image, label) = to_candle(&batch?)?;
        let guess = ops::softmax(&net.forward(&image)?, D::Minus1)?.argmax(D::Minus1)?;
        right += f64::from(guess.eq(&label)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?);
        all += label.dims1()? as f64;
    }
    Ok(right / all)
}
