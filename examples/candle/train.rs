//! A real model on CIFAR-10's binary files: a small residual net in candle, trained on the CPU from an async loop, by one of
//! two recipes.
//!
//! `cargo run --release -p infeed-examples --bin train -- DIR [EPOCHS [plain|today]]`, where DIR holds `data_batch_*.bin` and
//! `test_batch.bin`. `plain` pads, crops and flips; `today` has RandAugment, erasing, MixUp and smoothed labels besides, which
//! pay when a net would else learn its pictures by heart: in many epochs, or of few pictures.
//! Without a folder it makes pictures up, which shows the loop and no learning worth the name.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::time::Instant;

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{
    AdamW, BatchNorm, Conv2d, Conv2dConfig, Linear, Module, ModuleT, Optimizer, ParamsAdamW, VarBuilder, VarMap,
    batch_norm, conv2d_no_bias, linear, ops,
};
use futures::StreamExt;
use infeed::{
    Batch, BatchStream, CIFAR10_MEAN, CIFAR10_STD, Loader, Result, open,
    sampler::LastBatch,
    transform::{Transform, augment::Mix},
};

const CLASSES: usize = 10;
/// Learning rate at first.
const RATE: f64 = 4e-3;

/// A convolution and the normalisation behind it.
struct Layer {
    convolution: Conv2d,
    norm: BatchNorm,
}

impl Layer {
    fn new([from, to, kernel, stride]: [usize; 4], vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let config = Conv2dConfig { padding: kernel / 2, stride, ..Default::default() };
        let convolution = conv2d_no_bias(from, to, kernel, config, vars.pp("convolution"))?;
        Ok(Self { convolution, norm: batch_norm(to, 1e-5, vars.pp("norm"))? })
    }

    fn forward(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        self.norm.forward_t(&self.convolution.forward(x)?, train)
    }
}

/// Two layers, and a way past them.
struct Block {
    layers: [Layer; 2],
    past: Option<Layer>,
}

impl Block {
    fn new([from, to, stride]: [usize; 3], vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let layers =
            [Layer::new([from, to, 3, stride], &vars.pp("first"))?, Layer::new([to, to, 3, 1], &vars.pp("second"))?];
        let past = || Layer::new([from, to, 1, stride], &vars.pp("past"));
        Ok(Self { layers, past: (from != to).then(past).transpose()? })
    }

    fn forward(&self, x: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let [first, second] = &self.layers;
        let past = self.past.as_ref().map_or_else(|| Ok(x.clone()), |past| past.forward(x, train))?;
        (second.forward(&first.forward(x, train)?.relu()?, train)? + past)?.relu()
    }
}

/// A layer that halves the picture, three blocks of 16, 32 and 64 channels, the mean of each, then one linear layer: 78,000
/// weights.
struct Net {
    stem: Layer,
    blocks: Vec<Block>,
    head: Linear,
}

impl Net {
    fn new(vars: &VarBuilder<'_>) -> candle_core::Result<Self> {
        let sizes = [[16, 16, 1], [16, 32, 2], [32, 64, 2]];
        let block = |(n, size)| Block::new(size, &vars.pp(format!("block{n}")));
        let blocks = sizes.into_iter().enumerate().map(block).collect::<candle_core::Result<_>>()?;
        let stem = Layer::new([3, 16, 3, 2], &vars.pp("stem"))?;
        Ok(Self { stem, blocks, head: linear(64, CLASSES, vars.pp("head"))? })
    }

    fn forward(&self, image: &Tensor, train: bool) -> candle_core::Result<Tensor> {
        let mut x = self.stem.forward(image, train)?.relu()?;
        for block in &self.blocks {
            x = block.forward(&x, train)?;
        }
        self.head.forward(&x.mean(D::Minus1)?.mean(D::Minus1)?)
    }
}

/// What the net learns from.
#[derive(Clone, Copy, PartialEq)]
enum Recipe {
    Plain,
    Today,
}

impl Recipe {
    fn transform(self) -> Transform {
        let crop = Transform::new().random_crop(32, 4).horizontal_flip(0.5);
        let crop = if self == Self::Today { crop.rand_augment(2, 9) } else { crop };
        let values = crop.normalize(CIFAR10_MEAN, CIFAR10_STD);
        if self == Self::Today { values.random_erasing(0.25) } else { values }
    }

    /// Weights of all classes take the place of the label, with either.
    fn mix(self) -> Mix {
        let classes = Mix { num_classes: Some(CLASSES as u32), ..Mix::default() };
        if self == Self::Today { Mix { mixup: 0.2, label_smoothing: 0.1, ..classes } } else { classes }
    }
}

/// One copy: candle owns its memory.
fn to_candle(batch: &Batch) -> candle_core::Result<(Tensor, Tensor)> {
    let image = batch["image"].as_slice::<f32>().expect("the loader was asked for f32");
    let label = batch["label"].as_slice::<f32>().expect("weights of classes are f32");
    let image = Tensor::from_slice(image, batch["image"].shape(), &Device::Cpu)?;
    Ok((image, Tensor::from_slice(label, batch["label"].shape(), &Device::Cpu)?))
}

/// Cross entropy with weights of all classes.
fn loss(logits: &Tensor, weights: &Tensor) -> candle_core::Result<Tensor> {
    (ops::log_softmax(logits, D::Minus1)? * weights)?.sum(D::Minus1)?.mean_all()?.neg()
}

async fn loader(url: &str, split: &str, (transform, mix): (Transform, Mix), last: LastBatch) -> Result<Loader> {
    let dataset = if url.starts_with("synthetic:") { open(url).await? } else { open(url).split(split).await? };
    Loader::builder(dataset)
        .device(infeed::Device::Cpu)
        .batch_size(128)
        .shuffle(42)
        .last_batch(last)
        .transform(transform)
        .mix(mix)
        .build()
        .await
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("synthetic://?count=2048&height=32&width=32&classes=10".into());
    let epochs: u64 = args.next().map_or(Ok(6), |n| n.parse())?;
    let recipe = match args.next().as_deref() {
        None | Some("plain") => Recipe::Plain,
        Some("today") => Recipe::Today,
        Some(other) => return Err(format!("{other:?} is no recipe: plain or today").into()),
    };
    let train = loader(&url, "train", (recipe.transform(), recipe.mix()), LastBatch::Drop).await?;
    let plain = (Transform::preset("cifar-val")?, Recipe::Plain.mix());
    let test = loader(&url, "test", plain, LastBatch::Partial).await?;

    let vars = VarMap::new();
    let net = Net::new(&VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
    let params = ParamsAdamW { lr: RATE, weight_decay: 5e-4, ..Default::default() };
    let mut optimizer = AdamW::new(vars.all_vars(), params)?;

    // One stream over all epochs: the next epoch is read while the last steps of this one are computed.
    let mut batches = train.epochs(0..epochs);
    let steps = train.batches_per_epoch();
    let all_steps = (steps * epochs) as f64;
    let (mut began, mut epoch_loss) = (Instant::now(), 0.0);
    loop {
        let asked = Instant::now();
        let Some(batch) = batches.next().await else { break };
        let data = asked.elapsed();
        let batch = batch?;
        let (image, label) = to_candle(&batch)?;
        // Down to nothing along half a wave.
        let done = (batch.epoch() * steps + batch.step()) as f64 / all_steps;
        optimizer.set_learning_rate(RATE * 0.5 * (1.0 + (std::f64::consts::PI * done).cos()));
        let loss = loss(&net.forward(&image, true)?, &label)?;
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
        let guess = net.forward(&image, false)?.argmax(D::Minus1)?;
        let label = label.argmax(D::Minus1)?;
        right += f64::from(guess.eq(&label)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?);
        all += label.dims1()? as f64;
    }
    Ok(right / all)
}
