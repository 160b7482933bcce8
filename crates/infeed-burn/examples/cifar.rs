//! Trains a small convolutional net on CIFAR-10's binary files with burn on the CPU. You can kill it at any moment:
//! started again, it resumes within the epoch, and ends with the same result as an uninterrupted run.
//!
//! `cargo run --release --example cifar -- DIR [EPOCHS [CHECKPOINTS]]`, where DIR contains `data_batch_*.bin` and
//! `test_batch.bin`. Without DIR it trains on generated images, which shows the loop but no real learning.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
};

use burn::{
    data::dataloader::DataLoader,
    nn::{
        Linear, LinearConfig, PaddingConfig2d, Relu,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
        pool::{MaxPool2d, MaxPool2dConfig},
    },
    optim::{AdamWConfig, GradientsParams},
    prelude::*,
    store::ModuleRecord,
};
use infeed::{LastBatch, Loader, LoaderState, Transform, open};
use infeed_burn::{ClassificationBatch, InfeedLoader};

const LEARNING_RATE: f64 = 2e-3;
/// Steps from one checkpoint to the next.
const EVERY: u64 = 20;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Three convolutions, each followed by a ReLU and 2x2 max pooling, then one linear layer: 32x32 to 4x4 to 10.
#[derive(Module, Debug)]
struct Net {
    convolutions: Vec<Conv2d>,
    pool: MaxPool2d,
    relu: Relu,
    head: Linear,
}

impl Net {
    fn new(device: &Device) -> Self {
        let layer = |(from, to)| {
            let config = Conv2dConfig::new([from, to], [3, 3]).with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1));
            config.init(device)
        };
        Self {
            convolutions: [(3, 32), (32, 64), (64, 128)].into_iter().map(layer).collect(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            relu: Relu::new(),
            head: LinearConfig::new(128 * 4 * 4, 10).init(device),
        }
    }

    /// `[N, 3, 32, 32]` to `[N, 10]`.
    fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let layer = |x, convolution: &Conv2d| self.pool.forward(self.relu.forward(convolution.forward(x)));
        self.head.forward(self.convolutions.iter().fold(images, layer).flatten(1, 3))
    }
}

/// The settings of a training run.
#[derive(Debug)]
pub(crate) struct Training {
    /// The dataset, for [`open`].
    pub(crate) url: String,
    /// Images per step.
    pub(crate) batch_size: usize,
    /// Number of epochs.
    pub(crate) epochs: u64,
    /// The folder for checkpoints, if there are to be any.
    pub(crate) checkpoints: Option<PathBuf>,
    /// Ends after this many steps of this run as if it were killed: without a checkpoint of the last step.
    pub(crate) killed_after: Option<u64>,
}

impl Training {
    /// Trains, tests after each epoch, and returns the loss of each step of this run.
    pub(crate) fn run(&self) -> Result<Vec<f32>> {
        let device = Device::flex().autodiff();
        let train = self.loader("train", "cifar-train", LastBatch::Drop)?;
        let steps = train.batches_per_epoch();
        let mut train = InfeedLoader::<ClassificationBatch>::new(train, &device).epochs(0..self.epochs);
        let test = self.loader("test", "cifar-val", LastBatch::Partial)?;
        let test = InfeedLoader::<ClassificationBatch>::new(test, &device.clone().inner());

        device.seed(42);
        let mut net = Net::new(&device);
        let mut optimizer = AdamWConfig::new().with_weight_decay(5e-4).init();
        if let Some(folder) = self.checkpoints.as_deref().and_then(latest) {
            net = net.load_record(ModuleRecord::load(folder.join("net"))?);
            optimizer = optimizer.load(folder.join("optimizer"))?;
            train = train.resume(&LoaderState::from_json(&fs::read_to_string(folder.join("loader.json"))?)?)?;
            println!("from {}", folder.display());
        }
        let cross_entropy = CrossEntropyLossConfig::new().init(&device);

        let mut losses = Vec::new();
        for epoch in train.state().epoch..self.epochs {
            for batch in train.iter() {
                let batch = batch?;
                let loss = cross_entropy.forward(net.forward(batch.images), batch.targets);
                let gradients = GradientsParams::from_grads(loss.backward(), &net);
                net = optimizer.step(LEARNING_RATE, net, gradients);
                losses.push(loss.into_scalar::<f32>());
                if self.killed_after == Some(losses.len() as u64) {
                    return Ok(losses);
                }
                let state = train.state();
                // After the last batch of an epoch, the state is already at position 0 of the next one.
                let step = state.epoch * steps + state.position / self.batch_size as u64;
                if step.is_multiple_of(EVERY) || state.position == 0 {
                    self.save(step, &net, optimizer.to_record(), &state)?;
                }
            }
            let (right, all) = accuracy(&net.valid(), &test)?;
            let last = &losses[losses.len().saturating_sub(steps as usize)..];
            let mean = last.iter().sum::<f32>() / last.len().max(1) as f32;
            println!("Epoch [{epoch}] mean loss {mean:.3}, test accuracy {:.1} %", 100.0 * right as f64 / all as f64);
        }
        if let Some(monitor) = train.monitor() {
            let report = monitor.report();
            println!("AU {:.2} %, wait for data p99 {:?}", 100.0 * report.au().unwrap_or(1.0), report.data_wait.p99);
        }
        Ok(losses)
    }

    fn loader(&self, split: &str, transform: &str, last: LastBatch) -> Result<Loader> {
        let synthetic = self.url.starts_with("synthetic:");
        let dataset = if synthetic { open(&self.url).blocking()? } else { open(&self.url).split(split).blocking()? };
        let builder = Loader::builder(dataset).device(infeed::Device::Cpu).batch_size(self.batch_size).shuffle(42);
        Ok(builder.last_batch(last).transform(Transform::preset(transform)?).build_blocking()?)
    }

    /// Writes net, optimizer and loader state together. The folder is renamed when it is complete.
    fn save(&self, step: u64, net: &Net, optimizer: burn::optim::OptimizerRecord, state: &LoaderState) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let (folder, partial) = (checkpoints.join(format!("{step:08}")), checkpoints.join("partial"));
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial)?;
        net.clone().into_record().save(partial.join("net"))?;
        optimizer.save(partial.join("optimizer"))?;
        fs::write(partial.join("loader.json"), state.to_json())?;
        let before = latest(checkpoints);
        fs::rename(partial, &folder)?;
        match before {
            Some(before) if before != folder => Ok(fs::remove_dir_all(before)?),
            _ => Ok(()),
        }
    }
}

/// The checkpoint of the most steps.
fn latest(checkpoints: &Path) -> Option<PathBuf> {
    let whole = |path: &PathBuf| path.file_name().is_some_and(|name| name != "partial");
    fs::read_dir(checkpoints).ok()?.flatten().map(|entry| entry.path()).filter(whole).max()
}

/// Number of correct images, and number of all.
fn accuracy(net: &Net, test: &InfeedLoader<ClassificationBatch>) -> Result<(i64, usize)> {
    let (mut right, mut all) = (0, 0);
    for batch in test.iter() {
        let batch = batch?;
        all += batch.targets.dims()[0];
        let guess = net.forward(batch.images).argmax(1).squeeze_dim::<1>(1);
        right += guess.equal(batch.targets).int().sum().into_scalar::<i64>();
    }
    Ok((right, all))
}

#[allow(dead_code, reason = "the test of this example has it as a module")]
fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or("synthetic://?count=2048&height=32&width=32&classes=10".into());
    let epochs = args.next().map_or(Ok(6), |n| n.parse())?;
    let checkpoints = args.next().map(PathBuf::from);
    Training { url, batch_size: 128, epochs, checkpoints, killed_after: None }.run().map(drop)
}
