//! The entry point of a SageMaker training job: Caltech-256 from a channel or directly from S3, checkpoints, spot
//! instances.
//!
//! In a job it is the container's `train` program (see README.md in this folder). Elsewhere run
//! `cargo run --release -p infeed-candle --example sagemaker -- DIR_OR_URL [EPOCHS]`. Without arguments it uses made-up
//! images.
#![allow(clippy::print_stdout, reason = "an example talks to its reader")]

use std::{
    collections::HashMap,
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use candle_core::{DType, Device, Tensor, safetensors};
use candle_nn::{
    AdamW, Conv2d, Conv2dConfig, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, conv2d, linear, loss,
};
use futures::StreamExt;
use infeed::{
    Loader, open,
    sampler::{LoaderState, Shard},
    transform::Transform,
};
use infeed_candle::BatchExt;

use self::job::{Channel, Job};

mod job;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The settings of a run, from the job or from the command line.
struct Plan {
    url: String,
    shard: Shard,
    epochs: u64,
    /// Folder that survives the instance, for the weights and the loader's state.
    checkpoints: Option<PathBuf>,
}

impl Plan {
    fn find() -> Result<Self> {
        let mut args = std::env::args().skip(1);
        // SageMaker starts the container with the argument `train`.
        let url = args.next().filter(|word| word != "train");
        let number = |text: Option<&str>, or: u64| text.map_or(Ok(or), str::parse);
        let all = Shard::from_env()?;
        if let (None, Some(job)) = (&url, Job::from_env()?) {
            let epochs = number(job.hyperparameter("epochs"), 3)?;
            // Directly from the bucket if the job names one: no copy before the first step.
            let (url, shard) = match job.hyperparameter("data") {
                Some(url) => (url.to_owned(), all),
                None => {
                    let Channel { folder, shard } = job.channel("train", all)?;
                    (folder.display().to_string(), shard)
                }
            };
            return Ok(Self { url, shard, epochs, checkpoints: job.checkpoints() });
        }
        let made_up = "synthetic://?count=512&height=300&width=280&classes=257";
        let epochs = number(args.next().as_deref(), 1)?;
        Ok(Self { url: url.unwrap_or(made_up.into()), shard: all, epochs, checkpoints: None })
    }
}

/// Strided convolutions, a mean over the image, one linear layer: small enough for a CPU.
struct Net {
    convolutions: Vec<Conv2d>,
    head: Linear,
}

impl Net {
    fn new(vars: VarBuilder<'_>) -> candle_core::Result<Self> {
        let sizes = [(3, 16, 4), (16, 32, 4), (32, 64, 2)];
        let layer = |(n, (from, to, stride))| {
            let config = Conv2dConfig { stride, padding: 1, ..Default::default() };
            conv2d(from, to, 5, config, vars.pp(format!("conv{n}")))
        };
        let convolutions = sizes.into_iter().enumerate().map(layer).collect::<candle_core::Result<_>>()?;
        Ok(Self { convolutions, head: linear(64, 257, vars.pp("head"))? })
    }

    fn forward(&self, image: &Tensor) -> candle_core::Result<Tensor> {
        let mut x = image.clone();
        for convolution in &self.convolutions {
            x = convolution.forward(&x)?.relu()?;
        }
        self.head.forward(&x.flatten_from(2)?.mean(2)?)
    }
}

/// Saves weights and state in one file, because they belong together; it is written under another name and renamed.
/// candle's `AdamW` does not expose its moments, so they start again; `cifar.rs` of infeed-candle has an optimizer that
/// can be resumed.
fn save(file: &Path, vars: &VarMap, state: &LoaderState) -> Result<()> {
    let vars = vars.data().lock().expect("nobody panics with it");
    let mut all: HashMap<String, Tensor> =
        vars.iter().map(|(name, var)| (format!("weight {name}"), var.as_tensor().clone())).collect();
    let state = state.to_json();
    all.insert("state".into(), Tensor::from_slice(state.as_bytes(), state.len(), &Device::Cpu)?);
    let part = file.with_extension("part");
    safetensors::save(&all, &part)?;
    Ok(fs::rename(&part, file)?)
}

fn load(file: &Path, vars: &VarMap) -> Result<LoaderState> {
    let all = safetensors::load(file, &Device::Cpu)?;
    let saved = |name: &str| all.get(name).ok_or_else(|| format!("{}: no {name:?} in it", file.display()));
    for (name, var) in &*vars.data().lock().expect("nobody panics with it") {
        var.set(saved(&format!("weight {name}"))?)?;
    }
    Ok(LoaderState::from_json(&String::from_utf8(saved("state")?.to_vec1()?)?)?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let Plan { url, shard, epochs, checkpoints } = Plan::find()?;
    println!("{shard}: {url}, {epochs} epochs, checkpoints in {checkpoints:?}");
    let dataset = open(&url).await?;
    let transform = Transform::preset("caltech")?;
    let loader = Loader::builder(dataset).device(infeed::Device::Cpu).batch_size(64).shuffle(42).shard(shard);
    let loader = loader.transform(transform).build().await?;

    let vars = VarMap::new();
    let net = Net::new(VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu))?;
    let checkpoint = checkpoints.map(|folder| folder.join("checkpoint.safetensors"));
    let mut batches = match &checkpoint {
        Some(file) if file.exists() => {
            let state = load(file, &vars)?;
            println!("resuming after position {} of epoch {}", state.position, state.epoch);
            loader.resume_epochs(&state, ..epochs)?
        }
        _ => loader.epochs(0..epochs),
    };
    let mut optimizer = AdamW::new(vars.all_vars(), ParamsAdamW { lr: 1e-3, ..Default::default() })?;

    // SageMaker and most schedulers send SIGTERM two minutes before they stop a spot instance.
    let mut stop = Box::pin(tokio::signal::ctrl_c());
    #[cfg(unix)]
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    #[cfg(not(unix))]
    let mut terminate = Never;
    let steps = loader.batches_per_epoch();
    let mut stopped = false;
    while !stopped {
        let asked = Instant::now();
        let batch = tokio::select! {
            batch = batches.next() => batch,
            _ = &mut stop => break,
            _ = terminate.recv() => break,
        };
        let Some(batch) = batch.transpose()? else { break };
        let waited = asked.elapsed();
        let tensors = batch.candle(&Device::Cpu)?;
        let loss = loss::cross_entropy(&net.forward(&tensors["image"])?, &tensors["label"])?;
        optimizer.backward_step(&loss)?;
        let (step, value) = (batch.step() + 1, loss.to_scalar::<f32>()?);
        if step.is_multiple_of(10) || step == steps {
            let (epoch, time) = (batch.epoch(), asked.elapsed().as_secs_f64());
            println!("Epoch [{epoch}][{step}/{steps}] Time {time:.3} Data {:.6} Loss {value:.3}", waited.as_secs_f64());
        }
        // The signal may have arrived during the step.
        stopped = tokio::select! { biased; _ = &mut stop => true, _ = terminate.recv() => true, () = std::future::ready(()) => false };
        let due = stopped || step.is_multiple_of(20) || step == steps;
        if let (true, 0, Some(file)) = (due, shard.rank(), &checkpoint) {
            save(file, &vars, batch.state())?;
        }
    }
    let report = batches.report();
    let au = 100.0 * report.au().unwrap_or(1.0);
    println!("{} samples, waited {:?} in all, AU {au:.2} %", report.samples, report.data_wait.sum);
    Ok(())
}

/// No such signal here.
#[cfg(not(unix))]
struct Never;

#[cfg(not(unix))]
impl Never {
    async fn recv(&mut self) {
        std::future::pending().await
    }
}
