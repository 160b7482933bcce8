//! Settings of a loader as plain data.

use std::collections::BTreeMap;

use infeed_core::types::{DType, Device, Layout};
use infeed_data::sampler::{LastBatch, Order, Shard};
use infeed_pixels::{
    codec::{Decode, GpuSplit, Orientation},
    transform::{Transform, View, augment::Mix},
};
use infeed_store::{CacheSpec, Verify};
use serde::{Deserialize, Serialize};

use super::memory::machine_bytes;

/// What to do with a *bad sample*: one that is damaged, unsupported or above `max_image_bytes`, or whose file or object
/// [cannot be read](crate::Error::is_unreadable) (it is gone, access is denied, the disk has bad blocks).
///
/// - Unreadable samples also have a [limit of their own](crate::LoaderBuilder::max_unreadable), so that a lost disk
///   ends the run.
/// - A store or network that does not answer is not a bad sample: it ends the stream.
/// - With every policy all ranks take the same number of steps, and a resume continues exactly.
/// - [`Batch::bad_samples`](crate::Batch::bad_samples) and the report list each bad sample and its error.
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
/// // Two files; one is not an image.
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
    /// Yields the error and ends.
    #[default]
    Stop,
    /// Leaves the sample out: the last good row moves into its place, and every tensor of the batch is shorter. All
    /// rows are samples, so the training step need not check [`Batch::valid`](crate::Batch::valid).
    ///
    /// A batch without a good row ends the stream with an error: a batch of no rows would have a loss of NaN, and no
    /// batch would put this rank a step behind the others. If you expect such batches (a `batch_size` of 1 with damaged
    /// files), use [`SkipPadded`](Self::SkipPadded). Exception: if there is only one rank and the order is not a
    /// sampler of your own, the short last batch of an epoch is left out if it has no good row, and the epoch is one
    /// step shorter.
    Skip {
        /// The run ends with the error when more than this many samples were skipped.
        at_most: u64,
    },
    /// Leaves the sample out and keeps the shape of the batch: the last good row moves into its place, the end is
    /// filled with rows of zeros, and [`Batch::valid`](crate::Batch::valid) is the number of rows before these. For
    /// graphs that are compiled for one shape. The training step must exclude the rows from `valid()` on from its loss,
    /// or it trains on black images of class 0. A batch without a good row has `valid()` 0.
    SkipPadded {
        /// The run ends with the error when more than this many samples were skipped.
        at_most: u64,
    },
    /// Copies the nearest good row of the same batch into its place (the earlier of two equally near). The batch stays
    /// full, and the choice depends only on the data. A batch without a good row is as with [`Skip`](Self::Skip).
    Substitute,
}

/// Host memory, because it was faster (H100, H200 with 16 cores, benches/results/2026-11-26-gpu.md): the CPU alone made
/// 16,000 to 19,000 photographs a second, and 13,000 to 15,000 if batches were on the GPU. ResNet-50 ran at 96 % of its
/// pace on page-locked batches in host memory and at 78 % on batches on the GPU.
const DEFAULT_DEVICE: Device = Device::Cpu;

/// All settings of a [`Loader`](crate::Loader), as a configuration file holds them. Unknown keys are errors.
///
/// `None` means `auto`, the default of every `Option` field that has an `auto`, except `device`.
/// [`Loader::config`](crate::Loader::config) returns the numbers that the loader chose.
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
    /// Rank and world size of this process. Default rank 0 of 1.
    pub shard: Shard,
    /// What to do with the records that do not fill a batch. Default drop.
    pub last_batch: LastBatch,
    /// Steps from the decoded image to the row. Default: none, pixels as they are.
    pub transform: Transform,
    /// Several rows of each image, in place of one row by the transform, see
    /// [`LoaderBuilder::views`](crate::LoaderBuilder::views). Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub views: Vec<View>,
    /// MixUp, CutMix and label smoothing of whole batches, see [`LoaderBuilder::mix`](crate::LoaderBuilder::mix).
    /// Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Mix>,
    /// Lists that become tensors of equally long rows, and the number that fills short rows, see
    /// [`LoaderBuilder::pad`](crate::LoaderBuilder::pad). Default: none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pad: BTreeMap<String, f64>,
    /// Element type of image fields. Default `f32`.
    pub dtype: DType,
    /// Axes of image fields. Default NCHW.
    pub layout: Layout,
    /// Whether images are rotated by the orientation in their files, see
    /// [`LoaderBuilder::orientation`](crate::LoaderBuilder::orientation). Default auto.
    pub orientation: Orientation,
    /// Whether the CPU makes 8-bit RGB of JPEGs before it resizes them, see
    /// [`LoaderBuilder::jpeg_exact`](crate::LoaderBuilder::jpeg_exact). Default false.
    pub jpeg_exact: bool,
    /// Device of the batches. Default: host memory. `None` (`"auto"` in a file): a GPU if there is one, see
    /// [`LoaderBuilder::device_auto`](crate::LoaderBuilder::device_auto).
    #[serde(with = "device_or_auto")]
    pub device: Option<Device>,
    /// Whether rows in host memory are page-locked, see
    /// [`LoaderBuilder::pin_memory`](crate::LoaderBuilder::pin_memory). Default false.
    pub pin_memory: bool,
    /// Decode threads; `None`: one for each core at first (divided by the processes of the machine), then as many as
    /// the run needs, see [`LoaderBuilder::workers`](crate::LoaderBuilder::workers).
    pub workers: Option<usize>,
    /// Batches ahead of the trainer, finished or being made; `None`: chosen, and adjusted during the run, see
    /// [`LoaderBuilder::prefetch`](crate::LoaderBuilder::prefetch).
    pub prefetch: Option<usize>,
    /// Whether `workers` and `prefetch` are adjusted during the run if they are `auto`, see
    /// [`LoaderBuilder::autotune`](crate::LoaderBuilder::autotune). Default true.
    pub autotune: bool,
    /// Bytes of host memory; `None`: chosen, see [`LoaderBuilder::memory_budget`](crate::LoaderBuilder::memory_budget).
    pub memory_budget: Option<u64>,
    /// Bytes of device memory; `None`: chosen, see
    /// [`LoaderBuilder::device_budget`](crate::LoaderBuilder::device_budget).
    pub device_budget: Option<u64>,
    /// What decodes JPEGs on a GPU, see [`LoaderBuilder::decode`](crate::LoaderBuilder::decode). Default auto.
    pub decode: Decode,
    /// Whether the JPEG engines of a GPU get files that are cut after the crop's last row, see
    /// [`LoaderBuilder::decode_cut`](crate::LoaderBuilder::decode_cut). Default true.
    pub decode_cut: bool,
    /// CUDA streams that decode what the hardware engines cannot; `None`: none.
    pub streams: Option<usize>,
    /// How decoders share images on a GPU. Default adaptive. Files may have its earlier name, `split`.
    #[serde(alias = "split")]
    pub gpu_split: GpuSplit,
    /// Whether threads of a GPU stay on the processors near it, see
    /// [`LoaderBuilder::numa`](crate::LoaderBuilder::numa). Default true.
    pub numa: bool,
    /// Largest decoded image in bytes; `None`: what the budget allows, at most 320 MiB.
    pub max_image_bytes: Option<u64>,
    /// Largest record in encoded bytes; `None`: the size of usual records, and larger ones as far as the budget allows,
    /// see [`LoaderBuilder::max_record_bytes`](crate::LoaderBuilder::max_record_bytes).
    pub max_record_bytes: Option<u64>,
    /// Bytes for the index of JPEG files, with which later epochs skip less data; 0: no index; `None`: chosen, see
    /// [`LoaderBuilder::decode_index_bytes`](crate::LoaderBuilder::decode_index_bytes).
    pub decode_index_bytes: Option<u64>,
    /// Most requests in flight to a remote store, or most calls of a dataset that reads itself; `None`: chosen, see
    /// [`LoaderBuilder::io_concurrency`](crate::LoaderBuilder::io_concurrency).
    pub io_concurrency: Option<usize>,
    /// Whether objects from a remote store are compared with the store's checksums, see
    /// [`LoaderBuilder::verify`](crate::LoaderBuilder::verify). Default auto.
    pub verify: Verify,
    /// Cache for bytes of a remote store, see [`LoaderBuilder::cache`](crate::LoaderBuilder::cache). Default: none.
    pub cache: Option<CacheSpec>,
    /// Cache for decoded pixels, see [`LoaderBuilder::decoded_cache`](crate::LoaderBuilder::decoded_cache). Default:
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decoded_cache: Option<CacheSpec>,
    /// What to do with bad samples. Default: stop.
    pub on_bad_sample: OnBadSample,
    /// Samples of a stream that may be unreadable before it ends, for every `on_bad_sample`; `None`: 16, or 1 % of the
    /// samples so far. See [`LoaderBuilder::max_unreadable`](crate::LoaderBuilder::max_unreadable).
    pub max_unreadable: Option<u64>,
    /// Whether streams measure where their time goes, see
    /// [`LoaderBuilder::accounting`](crate::LoaderBuilder::accounting). Default true.
    pub accounting: bool,
}

impl LoaderConfig {
    /// Most bytes of a decode index: as set, or as chosen on this machine.
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
            pad: BTreeMap::new(),
            dtype: DType::F32,
            layout: Layout::Nchw,
            orientation: Orientation::default(),
            jpeg_exact: false,
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
            gpu_split: GpuSplit::default(),
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

/// A device in a configuration file. `auto` is a word there, because an omitted key means the default and TOML has no
/// null.
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
