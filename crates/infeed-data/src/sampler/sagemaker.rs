//! What SageMaker passes to the containers of a training job: channels, hosts, hyperparameters, the checkpoint folder.
//!
//! The layout is that of the SageMaker training toolkit: `/opt/ml` with `input/config/*.json` and `input/data/CHANNEL`,
//! and the `SM_*` variables that repeat parts of it.

use std::{collections::BTreeMap, path::PathBuf};

use infeed_core::error::{Error, ErrorKind, Result};
use serde::Deserialize;

use super::{
    launch::{self, BASE, Hosts, json},
    shard::Shard,
};

/// A SageMaker training job, seen from one of its containers.
///
/// ```no_run
/// # async fn train() -> infeed::Result<()> {
/// use infeed::{Loader, sampler::SageMaker};
///
/// if let Some(job) = SageMaker::from_env()? {
///     let channel = job.channel("train")?;
///     let dataset = infeed::open(channel.url()).await?;
///     let loader = Loader::builder(dataset).shard(job.shard(channel)?).build().await?;
///     let state_file = job.checkpoints().map(|folder| folder.join("infeed.json"));
/// #   drop((loader, state_file));
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SageMaker {
    root: PathBuf,
    hosts: Vec<String>,
    current: String,
    hyperparameters: BTreeMap<String, String>,
    channels: Vec<Channel>,
    /// The shard of the launcher inside the container, if there is one.
    launched: Shard,
}

/// One input of a job.
///
/// ```
/// # use std::{error::Error, fs};
/// use infeed::sampler::SageMaker;
///
/// # let folder = tempfile::tempdir()?;
/// # let root = folder.path(); // In a container: /opt/ml.
/// # fs::create_dir_all(root.join("input/config"))?;
/// # fs::write(root.join("input/config/resourceconfig.json"), r#"{"current_host": "algo-1", "hosts": ["algo-1"]}"#)?;
/// # fs::write(root.join("input/config/inputdataconfig.json"), r#"{"train": {"TrainingInputMode": "File"}}"#)?;
/// let job = SageMaker::read(root, |_| None)?.expect("a job"); // `from_env` in a container
/// let train = job.channel("train")?;
/// assert_eq!(train.path, root.join("input/data/train"));
/// let shard = job.shard(train)?; // For the loader, and `train.url()` for `open`.
/// # assert_eq!(shard.world(), 1);
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Channel {
    /// Its name in the job's definition: `train`, `validation`, ….
    pub name: String,
    /// Its folder in the container.
    pub path: PathBuf,
    /// How its objects get there.
    pub mode: InputMode,
    /// Which host gets which objects.
    pub distribution: Distribution,
}

/// How SageMaker provides a channel's objects in the container.
///
/// ```
/// # use std::{error::Error, fs};
/// use infeed::{ErrorKind, sampler::{InputMode, SageMaker}};
///
/// # let folder = tempfile::tempdir()?;
/// # let root = folder.path();
/// # fs::create_dir_all(root.join("input/config"))?;
/// # fs::write(root.join("input/config/resourceconfig.json"), r#"{"current_host": "algo-1", "hosts": ["algo-1"]}"#)?;
/// # fs::write(root.join("input/config/inputdataconfig.json"), r#"{"train": {"TrainingInputMode": "Pipe"}}"#)?;
/// let job = SageMaker::read(root, |_| None)?.expect("a job");
/// assert_eq!(job.channels()[0].mode, InputMode::Pipe);
/// assert_eq!(job.channel("train").unwrap_err().kind(), ErrorKind::Unsupported);
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum InputMode {
    /// Copied before the job starts.
    #[default]
    File,
    /// A file system that reads from S3 when files are opened. It suits large sequential reads: pack small files into
    /// shards, or stream from `s3://` instead.
    FastFile,
    /// Named pipes, which have no random access: infeed can't read them.
    Pipe,
}

/// The objects of a channel that a host has.
///
/// ```
/// # use std::{error::Error, fs};
/// use infeed::sampler::{Distribution, SageMaker};
///
/// # let folder = tempfile::tempdir()?;
/// # let root = folder.path();
/// # fs::create_dir_all(root.join("input/config"))?;
/// # fs::write(root.join("input/config/resourceconfig.json"), r#"{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}"#)?;
/// # let inputs = r#"{"train": {"S3DistributionType": "ShardedByS3Key"}, "validation": {}}"#;
/// # fs::write(root.join("input/config/inputdataconfig.json"), inputs)?;
/// let job = SageMaker::read(root, |_| None)?.expect("a job of two hosts");
/// let (train, validation) = (job.channel("train")?, job.channel("validation")?);
/// assert_eq!((train.distribution, job.shard(train)?.world()), (Distribution::ShardedByS3Key, 1));
/// assert_eq!((validation.distribution, job.shard(validation)?.world()), (Distribution::FullyReplicated, 2));
/// # Ok::<(), Box<dyn Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub enum Distribution {
    /// All of them.
    #[default]
    FullyReplicated,
    /// A part: SageMaker divides the objects among hosts by key. Shard only among the processes of one host; see
    /// [`SageMaker::shard`].
    ShardedByS3Key,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Input {
    training_input_mode: InputMode,
    #[serde(rename = "S3DistributionType")]
    distribution: Distribution,
}

impl SageMaker {
    /// The job that this process belongs to, in `/opt/ml` or the folder that `SAGEMAKER_BASE_DIR` names; `None` outside
    /// of a job.
    ///
    /// # Errors
    /// `Config` for a file or variable of the job that can't be parsed; the message names it.
    pub fn from_env() -> Result<Option<Self>> {
        Self::read(launch::environment(BASE).unwrap_or_default(), launch::environment)
    }

    /// The same as [`from_env`](Self::from_env), with another folder than `/opt/ml` and any source of variables.
    ///
    /// # Errors
    /// Those of [`from_env`](Self::from_env).
    pub fn read(root: impl Into<PathBuf>, vars: impl Fn(&str) -> Option<String>) -> Result<Option<Self>> {
        let root = root.into();
        let config = root.join("input/config");
        let told = |name: &str| if name == BASE { root.to_str().map(str::to_owned) } else { vars(name) };
        let Some(hosts) = Hosts::find(&told)? else { return Ok(None) };
        let hyperparameters: Option<BTreeMap<String, serde_json::Value>> = json(&config.join("hyperparameters.json"))?;
        // Values are strings, except in jobs that were made by hand.
        let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let hyperparameters = hyperparameters.unwrap_or_default().into_iter().map(|(k, v)| (k, text(v))).collect();
        let inputs: Option<BTreeMap<String, Input>> = json(&config.join("inputdataconfig.json"))?;
        let channels = inputs.unwrap_or_default().into_iter().map(|(name, input)| {
            let told = vars(&format!("SM_CHANNEL_{}", name.to_uppercase().replace('-', "_")));
            let path = told.map_or_else(|| root.join("input/data").join(&name), PathBuf::from);
            Channel { name, path, mode: input.training_input_mode, distribution: input.distribution }
        });
        let launched = Shard::from_vars(told)?;
        let channels = channels.collect();
        Ok(Some(Self { root, hosts: hosts.all, current: hosts.current, hyperparameters, channels, launched }))
    }

    /// An input by name.
    ///
    /// # Errors
    /// `NotFound`, with the names of the job's inputs; `Unsupported` for an input that is a pipe.
    pub fn channel(&self, name: &str) -> Result<&Channel> {
        let Some(channel) = self.channels.iter().find(|channel| channel.name == name) else {
            let names: Vec<&str> = self.channels.iter().map(|channel| channel.name.as_str()).collect();
            let what = format!("the job has no channel {name:?}, only {names:?}");
            return Err(Error::new(ErrorKind::NotFound, what).hint("name it in the job's inputs"));
        };
        if channel.mode == InputMode::Pipe {
            let what = format!("channel {name:?} is a pipe, which has no random access");
            return Err(
                Error::new(ErrorKind::Unsupported, what).hint("use the input mode FastFile or File, or an s3:// url")
            );
        }
        Ok(channel)
    }

    /// All inputs, ordered by name.
    #[must_use]
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// The job's hosts, the same list on each of them.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// This host.
    #[must_use]
    pub fn current_host(&self) -> &str {
        &self.current
    }

    /// A hyperparameter of the job, such as the `s3://` URL that it streams from.
    #[must_use]
    pub fn hyperparameter(&self, name: &str) -> Option<&str> {
        self.hyperparameters.get(name).map(String::as_str)
    }

    /// This process's part of a channel: that of the launcher (torchrun, MPI, …), otherwise the part of its host among
    /// all hosts.
    ///
    /// If SageMaker has given each host a part already ([`Distribution::ShardedByS3Key`]), only the processes of one
    /// host share it; sharding over the whole world again would lose samples.
    ///
    /// # Errors
    /// None with a [`Shard`] from a launcher.
    pub fn shard(&self, channel: &Channel) -> Result<Shard> {
        match channel.distribution {
            Distribution::FullyReplicated => Ok(self.launched),
            Distribution::ShardedByS3Key => {
                let (rank, world) = (self.launched.local_rank(), self.launched.local_world());
                Shard::new(rank, world)?.with_local(rank, world)
            }
        }
    }

    /// The folder that SageMaker copies to S3 while the job runs, if the job has one. Put state files there.
    #[must_use]
    pub fn checkpoints(&self) -> Option<PathBuf> {
        Some(self.root.join("checkpoints")).filter(|folder| folder.is_dir())
    }
}

impl Channel {
    /// The url for `open`.
    #[must_use]
    pub fn url(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    fn root(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let root = env::temp_dir().join(format!("infeed-sagemaker-{name}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        fs::create_dir_all(&root).unwrap();
        root
    }

    const RESOURCES: (&str, &str) = (
        "input/config/resourceconfig.json",
        r#"{"current_host":"algo-2","hosts":["algo-1","algo-2"],"network_interface_name":"eth0"}"#,
    );
    const INPUTS: (&str, &str) = (
        "input/config/inputdataconfig.json",
        r#"{"train":{"TrainingInputMode":"FastFile","S3DistributionType":"ShardedByS3Key","RecordWrapperType":"None"},
            "my-val":{"TrainingInputMode":"File","S3DistributionType":"FullyReplicated"},"old":{"TrainingInputMode":"Pipe"}}"#,
    );

    fn vars(pairs: &'static [(&str, &str)]) -> impl Fn(&str) -> Option<String> {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_job_tells_its_channels_and_what_a_host_has_of_them() {
        let params = ("input/config/hyperparameters.json", r#"{"data":"s3://bucket/train","epochs":3}"#);
        let root = root("whole", &[RESOURCES, INPUTS, params, ("checkpoints/.keep", "")]);
        let pairs = &[
            ("SM_CURRENT_HOST", "algo-2"),
            ("SM_HOSTS", r#"["algo-1","algo-2"]"#),
            ("SM_CHANNEL_MY_VAL", "/elsewhere/val"),
        ];
        let job = SageMaker::read(&root, vars(pairs)).unwrap().unwrap();
        assert_eq!((job.current_host(), job.hosts().len()), ("algo-2", 2));
        assert_eq!((job.hyperparameter("data"), job.hyperparameter("epochs")), (Some("s3://bucket/train"), Some("3")));
        assert_eq!(job.checkpoints(), Some(root.join("checkpoints")));
        let train = job.channel("train").unwrap();
        assert_eq!((train.path.clone(), train.mode), (root.join("input/data/train"), InputMode::FastFile));
        // Each host has its half already.
        assert_eq!(job.shard(train).unwrap(), Shard::default());
        let val = job.channel("my-val").unwrap();
        assert_eq!(val.url(), "/elsewhere/val");
        assert_eq!(job.shard(val).unwrap(), Shard::new(1, 2).unwrap());
        assert_eq!(job.channel("old").unwrap_err().kind(), ErrorKind::Unsupported);
        let missing = job.channel("test").unwrap_err();
        assert!(missing.to_string().contains("train"), "{missing}");
        fs::remove_dir_all(root).unwrap();
    }

    /// The image that `examples/sagemaker` builds has none: nobody sets `SM_*` in it.
    #[test]
    fn without_the_toolkit_hosts_have_their_parts_too() {
        let root = root("bare", &[RESOURCES, INPUTS]);
        let job = SageMaker::read(&root, vars(&[])).unwrap().unwrap();
        assert_eq!(job.shard(job.channel("my-val").unwrap()).unwrap(), Shard::new(1, 2).unwrap());
        assert_eq!(job.shard(job.channel("train").unwrap()).unwrap(), Shard::default(), "sharded by key");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn processes_of_a_host_share_its_part() {
        let root = root("local", &[RESOURCES, INPUTS]);
        let pairs = &[("RANK", "5"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "4")];
        let job = SageMaker::read(&root, vars(pairs)).unwrap().unwrap();
        let local = job.shard(job.channel("train").unwrap()).unwrap();
        assert_eq!((local.rank(), local.world()), (1, 4));
        let all = job.shard(job.channel("my-val").unwrap()).unwrap();
        assert_eq!((all.rank(), all.world()), (5, 8));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn elsewhere_there_is_no_job_and_broken_ones_are_named() {
        let nowhere = root("none", &[]);
        assert!(SageMaker::read(&nowhere, vars(&[])).unwrap().is_none());
        let error =
            SageMaker::read(&nowhere, vars(&[("SM_HOSTS", "algo-1"), ("SM_CURRENT_HOST", "algo-1")])).unwrap_err();
        assert!(error.to_string().contains("SM_HOSTS"), "{error}");
        fs::remove_dir_all(nowhere).unwrap();
        let broken = root("broken", &[RESOURCES, ("input/config/inputdataconfig.json", "{\"train\": 3}")]);
        let error = SageMaker::read(&broken, vars(&[])).unwrap_err();
        assert!(error.to_string().contains("inputdataconfig.json"), "{error}");
        fs::remove_dir_all(broken).unwrap();
        let alone = root("alone", &[("input/config/resourceconfig.json", r#"{"current_host":"x","hosts":["y"]}"#)]);
        assert!(SageMaker::read(&alone, vars(&[])).is_err());
        fs::remove_dir_all(alone).unwrap();
    }
}
