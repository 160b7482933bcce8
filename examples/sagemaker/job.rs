//! What SageMaker passes to the container of a training job: input channels, hyperparameters, the checkpoint folder.
//!
//! Files are in `/opt/ml`, or in the folder that `SAGEMAKER_BASE_DIR` names. `Shard::from_env` finds the hosts.

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

use infeed::sampler::Shard;
use serde_json::{Map, Value};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) struct Job {
    root: PathBuf,
    hyperparameters: Map<String, Value>,
    channels: Map<String, Value>,
}

/// The input of a job.
pub(crate) struct Channel {
    pub(crate) folder: PathBuf,
    /// This process's part of it.
    pub(crate) shard: Shard,
}

impl Job {
    /// `None` outside of a job.
    pub(crate) fn from_env() -> Result<Option<Self>> {
        Self::read(env::var_os("SAGEMAKER_BASE_DIR").map_or("/opt/ml".into(), PathBuf::from))
    }

    fn read(root: PathBuf) -> Result<Option<Self>> {
        let config = root.join("input/config");
        if !config.is_dir() {
            return Ok(None);
        }
        let hyperparameters = object(&config.join("hyperparameters.json"))?;
        Ok(Some(Self { hyperparameters, channels: object(&config.join("inputdataconfig.json"))?, root }))
    }

    /// SageMaker passes numbers as strings.
    pub(crate) fn hyperparameter(&self, name: &str) -> Option<&str> {
        self.hyperparameters.get(name)?.as_str()
    }

    /// An input of the job. `all` is this process's share of the whole job.
    pub(crate) fn channel(&self, name: &str, all: Shard) -> Result<Channel> {
        let Some(channel) = self.channels.get(name) else {
            let names: Vec<&String> = self.channels.keys().collect();
            return Err(format!("the job has no channel {name:?}, only {names:?}: name it in the job's inputs").into());
        };
        if channel["TrainingInputMode"] == "Pipe" {
            let what = "is a pipe, which has no random access: use the input mode FastFile or File, or an s3:// url";
            return Err(format!("channel {name:?} {what}").into());
        }
        // Each host has a part of the objects already, which only its own processes share.
        let by_key = channel["S3DistributionType"] == "ShardedByS3Key";
        let (rank, world) = (all.local_rank(), all.local_world());
        let shard = if by_key { Shard::new(rank, world)?.with_local(rank, world)? } else { all };
        Ok(Channel { folder: self.root.join("input/data").join(name), shard })
    }

    /// The folder that SageMaker copies to S3 while the job runs, if the job has one.
    pub(crate) fn checkpoints(&self) -> Option<PathBuf> {
        Some(self.root.join("checkpoints")).filter(|folder| folder.is_dir())
    }
}

/// The object in a file; an empty one without the file.
fn object(file: &Path) -> Result<Map<String, Value>> {
    let named = |error: &dyn Error| format!("{}: {error}", file.display());
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text).map_err(|error| named(&error))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Map::new()),
        Err(error) => Err(named(&error).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Option<Job>>) {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join("input/config").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let job = Job::read(root.path().to_path_buf());
        (root, job)
    }

    #[test]
    fn processes_of_a_host_share_what_it_has() {
        let inputs = r#"{"train": {"TrainingInputMode": "FastFile", "S3DistributionType": "ShardedByS3Key"},
            "val": {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated"},
            "old": {"TrainingInputMode": "Pipe"}}"#;
        let params = r#"{"data": "s3://bucket/train", "epochs": "3"}"#;
        let (root, job) = job(&[("inputdataconfig.json", inputs), ("hyperparameters.json", params)]);
        let job = job.unwrap().unwrap();
        assert_eq!((job.hyperparameter("data"), job.hyperparameter("epochs")), (Some("s3://bucket/train"), Some("3")));
        let all = Shard::new(5, 8).unwrap().with_local(1, 4).unwrap();
        let (train, val) = (job.channel("train", all).unwrap(), job.channel("val", all).unwrap());
        assert_eq!((train.shard.rank(), train.shard.world()), (1, 4));
        assert_eq!((val.shard, val.folder), (all, root.path().join("input/data/val")));
        assert!(job.channel("old", all).err().unwrap().to_string().contains("is a pipe"));
        assert!(job.channel("test", all).err().unwrap().to_string().contains("train"));
        assert_eq!(job.checkpoints(), None);
    }

    #[test]
    fn elsewhere_there_is_no_job_and_a_broken_one_is_named() {
        assert!(job(&[]).1.unwrap().is_none());
        let error = job(&[("inputdataconfig.json", "[")]).1.err().unwrap().to_string();
        assert!(error.contains("inputdataconfig.json"), "{error}");
    }
}
