#![doc = r"[async]: crate::guide::async
[augmentations]: crate::guide::augmentations
[auto]: crate::guide::auto
[bottlenecks]: crate::guide::bottlenecks
[buckets]: crate::guide::buckets
[caches]: crate::guide::caches
[coming-from]: crate::guide::coming_from
[configuration]: crate::guide::configuration
[conformance]: crate::guide::conformance
[data]: crate::guide::data
[detection]: crate::guide::detection
[extending]: crate::guide::extending
[frameworks]: crate::guide::frameworks
[gpu]: crate::guide::gpu
[limits]: crate::guide::limits
[many-machines]: crate::guide::many_machines
[metrics]: crate::guide::metrics
[promises]: crate::guide::promises
[shards]: crate::guide::shards
[torch]: crate::guide::torch
[transforms]: crate::guide::transforms
[volumes]: crate::guide::volumes
"]
#![doc = include_str!("../docs/README.md")]
// The pages are files in `docs`, so that they can also be read in the repository, where their links lead to files.
// rustdoc takes the first definition of a link: the ones below, which lead to pages of this documentation, override
// those at the end of a file.

macro_rules! pages {
    ($($name:ident, $file:literal, $items:literal $(, $pictures:expr)?;)*) => {$(
        #[doc = "[async]: crate::guide::async\n[augmentations]: crate::guide::augmentations\n[auto]: crate::guide::auto"]
        #[doc = "[buckets]: crate::guide::buckets\n[caches]: crate::guide::caches"]
        #[doc = "[configuration]: crate::guide::configuration\n[conformance]: crate::guide::conformance"]
        #[doc = "[bottlenecks]: crate::guide::bottlenecks\n[coming-from]: crate::guide::coming_from"]
        #[doc = "[data]: crate::guide::data"]
        #[doc = "[detection]: crate::guide::detection\n[extending]: crate::guide::extending"]
        #[doc = "[frameworks]: crate::guide::frameworks"]
        #[doc = "[gpu]: crate::guide::gpu\n[many-machines]: crate::guide::many_machines"]
        #[doc = "[metrics]: crate::guide::metrics\n[shards]: crate::guide::shards"]
        #[doc = "[torch]: crate::guide::torch"]
        #[doc = "[transforms]: crate::guide::transforms\n[volumes]: crate::guide::volumes\n"]
        // rustdoc does not copy the page's picture, so the build script puts it into the text as a data URL.
        $(#[cfg_attr(doc, doc = $pictures)])?
        #[doc = include_str!(concat!("../docs/", $file))]
        #[doc = concat!("\n\n**In the reference**: ", $items)]
        pub mod $name {}
    )*};
}

pages! {
    data, "data.md", "[`open`](crate::open), [`Open`](infeed_data::Open), [`Dataset`](crate::Dataset), [`Filter`](infeed_data::Filter), \
        [`Mixture`](infeed_data::sampler::Mixture), [`OnBadSample`](crate::OnBadSample).";
    transforms, "transforms.md", "[`Transform`](crate::Transform), [`Op`](infeed_pixels::transform::Op), [`PRESETS`](infeed_pixels::transform::PRESETS), \
        [`View`](infeed_pixels::transform::View), [`LoaderBuilder::transform`](crate::LoaderBuilder::transform), [`mix`](crate::LoaderBuilder::mix), \
        [`map`](crate::LoaderBuilder::map), [`map_batch`](crate::LoaderBuilder::map_batch).";
    augmentations, "augmentations.md", "[`Transform`](crate::Transform), [`transform::augment`](infeed_pixels::transform::augment).";
    detection, "detection.md", "[`Open::annotations`](infeed_data::Open::annotations), [`Instances`](infeed_data::Instances), \
        [`BatchInstances`](crate::BatchInstances), [`BucketSampler`](infeed_data::sampler::BucketSampler).";
    volumes, "volumes.md", "[`Open::field`](infeed_data::Open::field), [`Open::channels`](infeed_data::Open::channels), \
        [`Open::pattern`](infeed_data::Open::pattern), [`Transform::patch`](crate::Transform::patch).";
    shards, "shards.md", "[`open`](crate::open), [`Open::columns`](infeed_data::Open::columns), [`Order::Blocks`](crate::Order::Blocks).";
    buckets, "buckets.md", "[`source`](infeed_store), [`Open::patience`](infeed_data::Open::patience), [`Verify`](infeed_store::Verify), \
        [`LoaderBuilder::cache`](crate::LoaderBuilder::cache).";
    caches, "caches.md", "[`LoaderBuilder::decode_index`](crate::LoaderBuilder::decode_index), \
        [`decoded_cache`](crate::LoaderBuilder::decoded_cache), [`cache`](crate::LoaderBuilder::cache).";
    many_machines, "many-machines.md", "[`Shard`](crate::Shard), [`Shard::from_env`](crate::Shard::from_env), \
        [`Open::listing`](infeed_data::Open::listing).";
    gpu, "gpu.md", "[`device`](crate::device), [`Tensor::device_ptr`](crate::Tensor::device_ptr), \
        [`LoaderBuilder::device`](crate::LoaderBuilder::device), [`build_each`](crate::LoaderBuilder::build_each).";
    frameworks, "frameworks.md", "[`Tensor`](crate::Tensor), [`Tensor::device_ptr`](crate::Tensor::device_ptr), \
        [`LoaderBuilder::build_each`](crate::LoaderBuilder::build_each), [`device`](crate::device).";
    bottlenecks, "bottlenecks.md", "[`Report`](crate::Report), [`report`](infeed_core::report), [`Monitor`](crate::loader::Monitor).",
        include_str!(concat!(env!("OUT_DIR"), "/pictures.md"));
    metrics, "metrics.md", "`infeed::metrics`, with the features `prometheus` and `otel`.";
    auto, "auto.md", "[`LoaderBuilder::workers`](crate::LoaderBuilder::workers), [`prefetch`](crate::LoaderBuilder::prefetch), \
        [`autotune`](crate::LoaderBuilder::autotune), [`memory_budget`](crate::LoaderBuilder::memory_budget).";
    configuration, "configuration.md", "[`LoaderConfig`](crate::LoaderConfig), [`LoaderBuilder::config`](crate::LoaderBuilder::config).";
    promises, "promises.md", "[`LoaderState`](crate::LoaderState), [`Batch::state`](crate::Batch::state), \
        [`Loader::resume_epochs`](crate::Loader::resume_epochs), [`Loader::resume_epoch`](crate::Loader::resume_epoch).";
    conformance, "conformance.md", "[`LoaderState`](crate::LoaderState), [`Loader::resume_epochs`](crate::Loader::resume_epochs).";
    r#async, "async.md", "[`BatchStream`](crate::BatchStream), [`Blocking`](crate::loader::Blocking), [`Monitor`](crate::loader::Monitor), \
        [`IoRuntime`](crate::loader::IoRuntime), [`build_each`](crate::LoaderBuilder::build_each).";
    extending, "extending.md", "[`Dataset`](crate::Dataset), [`Format`](infeed_data::Format), [`ImageCodec`](infeed_pixels::codec::ImageCodec), \
        [`Decoder`](infeed_pixels::codec::Decoder), [`Sampler`](infeed_data::sampler::Sampler), [`MemoryDataset`](infeed_data::MemoryDataset).";
    coming_from, "coming-from.md", "[`Loader`](crate::Loader), [`LoaderBuilder`](crate::LoaderBuilder).";
    torch, "torch.md", "the Python package's `infeed.torch`, and [`Loader`](crate::Loader) for Rust.";
    limits, "limits.md", "the features of the crate are on [its first page](crate).";
}
