//! Settings of a loader as plain data.

use infeed_core::types::{DType, Device, Layout};
use infeed_data::sampler::{LastBatch, Order, Shard};
use infeed_pixels::{
    codec::{Decode, Orientation, Split},
    transform::{Transform, View, augment::Mix},
};
use infeed_store::{CacheSpec, Verify};
use serde::{Deserialize, Serialize};

use super::memory::machine_bytes;

/// What to do with a sample that can't be used: damaged, unsupported, above `max_image_bytes`, or in a file or object that
/// [can't be read](crate::Error::is_unreadable) (it is gone, access to it is refused, the disk fails at its bytes).
///
/// Unreadable ones are counted apart and have a [limit of their own](crate::LoaderBuilder::max_unreadable): a disk that went
/// missing is no heap of bad samples. A store or a network that does not answer is none at all: it ends the stream.
/// Whatever is chosen, every rank takes the same number of steps, a resume goes on exactly, and
/// [`Batch::bad_samples`](crate::Batch::bad_samples) and the report tell what was wrong with which sample.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let files = vec![png.into_inner().into(), b"no picture".to_vec().into()];
/// use infeed::{Loader, OnBadSample, Transform, dataset::MemoryDataset};
///
/// // Two files, of which one is no image.
/// let dataset = MemoryDataset::builder().encoded_images(files).build()?;
/// let transform = Transform::new().resize_exact(8, 8);
/// let builder = Loader::builder(std::sync::Arc::new(dataset)).batch_size(2).transform(transform);
/// let loader = builder.on_bad_sample(OnBadSample::Skip { at_most: 10 }).build().await?;
/// let batch = loader.epoch(0).next().await.expect("one batch")?;
/// assert_eq!((batch.len(), batch.records()), (1, &[0][..]));
/// assert_eq!(batch.bad_samples()[0].record, 1);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OnBadSample {
    /// Yield the error and end.
    #[default]
    Stop,
    /// Leave it out: the last good row moves into the hole, and the batch is shorter, in every tensor. What a training
    /// step sees are samples, whether it asks for [`Batch::valid`](crate::Batch::valid) or not.
    ///
    /// A batch without a good row ends the stream with an error: handing over no rows would make a mean loss of nothing
    /// (NaN), handing over nothing would put this rank a step behind the others. Whoever expects such batches (a
    /// `batch_size` of 1 with damaged files) takes [`SkipPadded`](Self::SkipPadded). Where one process reads all, in an order of
    /// the loader's, the short last batch of an epoch is left out then, and the epoch is a step shorter.
    Skip {
        /// The run ends with the error when more than this many samples were skipped.
        at_most: u64,
    },
    /// Leave it out, and keep the shape of the batch: the last good row moves into the hole, rows of zeros lie at the
    /// end, and [`Batch::valid`](crate::Batch::valid) counts the rows before them. For graphs that were compiled for
    /// one shape; the training step has to leave the rows from `valid()` on out of its loss, or it trains on black
    /// pictures of class 0. A batch without a good row has `valid()` 0.
    SkipPadded {
        /// The run ends with the error when more than this many samples were skipped.
        at_most: u64,
    },
    /// Put the nearest good row of the same batch in its place (the earlier one of two). The batch stays full, and
    /// which row it is depends on the data alone. A batch without a good row is as with [`Skip`](Self::Skip).
    Substitute,
}

/// Where batches lie unless something else is said. On the first GPUs that ran it (H100, H200 beside 16 cores, 2026-11-26,
/// benches/results/2026-11-26-gpu.md) the CPU alone made 16,000 to 19,000 photographs a second and batches on the GPU 13,000
/// to 15,000; ResNet-50 ran at 96 % of its pace on the CPU's page-locked batches and at 78 % on the GPU's. So a GPU is asked
/// for.
const DEFAULT_DEVICE: Device = Device::Cpu;

/// All settings of a [`Loader`](crate::Loader), as a config file holds them. Unknown keys are errors.
///
/// `None` stands for `auto`, which is the default of all that has it but `device`; [`Loader::config`](crate::Loader::config) gives the numbers that were chosen.
///
/// ```
/// let config: infeed::LoaderConfig = serde_json::from_str(r#"{ "batch_size": 64, "order": { "random": { "seed": 7 } } }"#)?;
/// assert_eq!(config.batch_size, 64);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LoaderConfig {
    /// Rows of a batch on each rank. Default 256.
    pub batch_size: usize,
    /// Order of records. Default sequential.
    pub order: Order,
    /// Seed of augmentation; `None` takes the order's seed (0 for a sequential order).
    pub seed: Option<u64>,
    /// This process among all. Default rank 0 of 1.
    pub shard: Shard,
    /// What becomes of the records that do not fill a batch. Default drop.
    pub last_batch: LastBatch,
    /// From decoded image to row. Default: none, pixels as they are.
    pub transform: Transform,
    /// Several rows of each image in place of the transform's one, see
    /// [`LoaderBuilder::views`](crate::LoaderBuilder::views). Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// MixUp, CutMix and label smoothing of whole batches, see [`LoaderBuilder::mix`](crate::LoaderBuilder::mix). Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Element type of image fields. Default `f32`.
    pub dtype: DType,
    /// Axes of image fields. Default NCHW.
    pub layout: Layout,
    /// Whether images are turned as their files say, see [`LoaderBuilder::orientation`](crate::LoaderBuilder::orientation).
    /// Default ignore.
    pub orientation: Orientation,
    /// Where batches lie. Default: host memory. `None`, `"auto"` in a file: on a GPU when there is one, see
    /// [`LoaderBuilder::device_auto`](crate::LoaderBuilder::device_auto).
    #[serde(with = "device_or_auto")]
    pub device: Option<Device>,
    /// Whether rows in host memory are page-locked, see [`LoaderBuilder::pin_memory`](crate::LoaderBuilder::pin_memory).
    /// Default false.
    pub pin_memory: bool,
    /// Decoding threads; `None`: one for each core at first (over the processes of the machine), then what the run needs, see
    /// [`LoaderBuilder::workers`](crate::LoaderBuilder::workers).
    pub workers: Option<usize>,
    /// Batches that are finished or in work ahead of the trainer; `None` chooses, and follows the run.
    pub prefetch: Option<usize>,
    /// Whether `workers` and `prefetch` that are left on `auto` follow the run, see
    /// [`LoaderBuilder::autotune`](crate::LoaderBuilder::autotune). Default true.
    pub autotune: bool,
    /// Bytes of host memory, see [`LoaderBuilder::memory_budget`](crate::LoaderBuilder::memory_budget); `None` chooses.
    pub memory_budget: Option<u64>,
    /// Bytes of device memory, see [`LoaderBuilder::device_budget`](crate::LoaderBuilder::device_budget); `None` chooses.
    pub device_budget: Option<u64>,
    /// Who decodes JPEGs on a GPU, see [`LoaderBuilder::decode`](crate::LoaderBuilder::decode). Default auto.
    pub decode: Decode,
    /// Whether the engines of a GPU get files that end with the crop's last row, see
    /// [`LoaderBuilder::decode_cut`](crate::LoaderBuilder::decode_cut). Default true.
    pub decode_cut: bool,
    /// CUDA streams that decode what the hardware engines can't; `None`: none.
    pub streams: Option<usize>,
    /// How decoders share images on a GPU. Default adaptive.
    pub split: Split,
    /// Whether threads of a GPU stay on the processors near it, see [`LoaderBuilder::numa`](crate::LoaderBuilder::numa).
    /// Default true.
    pub numa: bool,
    /// Largest decoded image; `None` takes what the budget allows, at most 320 MiB.
    pub max_image_bytes: Option<u64>,
    /// Largest record in encoded bytes; `None` takes all that usual records have, and larger ones as far as the budget
    /// allows, see [`LoaderBuilder::max_record_bytes`](crate::LoaderBuilder::max_record_bytes).
    pub max_record_bytes: Option<u64>,
    /// Bytes for what is learned of JPEG files, so that later epochs skip less; 0: nothing is kept; `None` chooses. See
    /// [`LoaderBuilder::decode_index_bytes`](crate::LoaderBuilder::decode_index_bytes).
    pub decode_index_bytes: Option<u64>,
    /// Requests in flight to a remote store, or calls of a dataset that reads itself, at most; `None` chooses, see
    /// [`LoaderBuilder::io_concurrency`](crate::LoaderBuilder::io_concurrency).
    pub io_concurrency: Option<usize>,
    /// Whether what comes from a remote store is compared with what the store tells of it, see
    /// [`LoaderBuilder::verify`](crate::LoaderBuilder::verify). Default auto.
    pub verify: Verify,
    /// Where bytes of a remote store are kept near, see [`LoaderBuilder::cache`](crate::LoaderBuilder::cache). Default:
    /// nowhere.
    pub cache: Option<CacheSpec>,
    /// Where decoded pixels are kept from epoch to epoch, see
    /// [`LoaderBuilder::decoded_cache`](crate::LoaderBuilder::decoded_cache). Default: nowhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoded_cache: Option<CacheSpec>,
    /// What to do with bad samples. Default: stop.
    pub on_bad_sample: OnBadSample,
    /// Samples of a stream that may be unreadable before it ends, whatever `on_bad_sample` says; `None`: 16, or one in a
    /// hundred of those read. See [`LoaderBuilder::max_unreadable`](crate::LoaderBuilder::max_unreadable).
    pub max_unreadable: Option<u64>,
    /// Whether streams write down where their time goes, see
    /// [`LoaderBuilder::accounting`](crate::LoaderBuilder::accounting). Default true.
    pub accounting: bool,
}

impl LoaderConfig {
    /// Bytes that a decode index may take: as set, or what is chosen on this machine.
    #[must_use]
    pub fn index_bytes(&self) -> u64 {
        // ImageNet fits in with a point every 16 to 32 units, where a crop takes 3 % longer than with all of them
        // (`infeed-jpeg`'s example large_index): more memory brings little.
        const MOST: u64 = 1 << 30;
        let share = || machine_bytes() / 8 / u64::from(self.shard.local_world().max(1));
        self.decode_index_bytes.unwrap_or_else(|| share().min(MOST))
    }
}

impl Default for LoaderConfig {
    fn default() -> Self {
        Self {
            batch_size: 256,
            order: Order::Sequential,
            seed: None,
            shard: Shard::default(),
            last_batch: LastBatch::default(),
            transform: Transform::default(),
            views: Vec::new(),
            mix: None,
            dtype: DType::F32,
            layout: Layout::Nchw,
            orientation: Orientation::default(),
            device: Some(DEFAULT_DEVICE),
            pin_memory: false,
            workers: None,
            prefetch: None,
            autotune: true,
            memory_budget: None,
            device_budget: None,
            decode: Decode::default(),
            decode_cut: true,
            streams: None,
            split: Split::default(),
            numa: true,
            max_image_bytes: None,
            max_record_bytes: None,
            decode_index_bytes: None,
            io_concurrency: None,
            verify: Verify::default(),
            cache: None,
            decoded_cache: None,
            on_bad_sample: OnBadSample::default(),
            max_unreadable: None,
            accounting: true,
        }
    }
}

/// A device as a file names it. `auto` is a word there: what is left out is the default, and TOML has no null.
mod device_or_auto {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use infeed_core::types::Device;

    const AUTO: &str = "auto";

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub(super) fn serialize<S: Serializer>(device: &Option<Device>, serializer: S) -> Result<S::Ok, S::Error> {
        match device {
            Some(device) => serializer.serialize_some(device),
            None => serializer.serialize_some(AUTO),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Device>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.filter(|text| text != AUTO).map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_lie_in_host_memory_unless_a_gpu_is_asked_for() {
        let read = |text: &str| serde_json::from_str::<LoaderConfig>(text).map(|config| config.device);
        assert_eq!(LoaderConfig::default().device, Some(Device::Cpu));
        for (text, device) in [
            ("{}", Some(Device::Cpu)),
            (r#"{ "device": "cpu" }"#, Some(Device::Cpu)),
            (r#"{ "device": "cuda:1" }"#, Some(Device::Cuda(1))),
            (r#"{ "device": "auto" }"#, None),
            (r#"{ "device": null }"#, None),
        ] {
            assert_eq!(read(text).unwrap(), device, "{text}");
            let written = serde_json::to_string(&LoaderConfig { device, ..LoaderConfig::default() }).unwrap();
            assert_eq!(read(&written).unwrap(), device, "{written}");
        }
        assert!(read(r#"{ "device": "tpu" }"#).unwrap_err().to_string().contains("use cpu, cuda:0"));
    }
}
