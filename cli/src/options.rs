//! From arguments as typed to a loader's settings: the config file first, then the options that override it.

use std::{fs, path::Path};

use infeed::{
    Dataset, LoaderConfig, OnBadSample,
    dataset::FieldKind,
    sampler::{Order, Shard},
    transform::Transform,
};

use crate::{
    args::{Auto, LoaderArgs, OnBadSampleArg, Shuffle},
    failure::Failure,
};

/// Settings for a loader of `dataset`, with the transform's name for the report. `epochs` bounds what may be skipped.
pub(crate) fn loader_config(
    args: &LoaderArgs,
    dataset: &dyn Dataset,
    epochs: u64,
) -> Result<(LoaderConfig, String), Failure> {
    let LoaderArgs { swept, fixed: args } = args;
    let file = args.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    let ConfigFile { mut config, has_shard, has_transform } = file;
    let transform_name = match (&args.transform, has_transform) {
        (Some(name), _) => {
            config.transform = transform(name)?;
            name.clone()
        }
        (None, true) => "config".into(),
        (None, false) => {
            let name = default_transform(dataset);
            config.transform = transform(name)?;
            name.into()
        }
    };
    set(&mut config.batch_size, swept.batch_size);
    set(&mut config.dtype, swept.dtype);
    set(&mut config.layout, args.layout);
    set(&mut config.last_batch, args.last_batch);
    if args.mix.is_some() {
        config.mix.clone_from(&args.mix);
    }
    set_auto(&mut config.device, swept.device);
    set_auto(&mut config.workers, swept.workers);
    set_auto(&mut config.prefetch, swept.prefetch);
    set(&mut config.autotune, args.autotune);
    set(&mut config.accounting, args.accounting);
    set_auto(&mut config.memory_budget, args.memory_budget.map(|auto| Auto(auto.0.map(|bytes| bytes.0))));
    set_auto(&mut config.max_record_bytes, args.max_record_bytes.map(|auto| Auto(auto.0.map(|bytes| bytes.0))));
    set_auto(&mut config.device_budget, args.device_budget.map(|auto| Auto(auto.0.map(|bytes| bytes.0))));
    if let Some(bytes) = args.max_image_bytes {
        config.max_image_bytes = Some(bytes.0);
    }
    set_auto(&mut config.streams, args.streams);
    set(&mut config.split, args.split);
    set_auto(&mut config.io_concurrency, args.io_concurrency);
    set(&mut config.verify, args.verify);
    if args.cache.is_some() {
        config.cache.clone_from(&args.cache);
    }
    match args.shuffle {
        Some(Shuffle::Off) => config.order = Order::Sequential,
        Some(Shuffle::Seed(seed)) => config.order = Order::Random { seed },
        None => {}
    }
    if args.seed.is_some() {
        config.seed = args.seed;
    }
    match (args.rank, args.world_size) {
        (Some(rank), Some(world)) => config.shard = Shard::new(rank, world)?,
        _ if !has_shard => config.shard = Shard::from_env()?,
        _ => {}
    }
    match args.on_bad_sample {
        Some(OnBadSampleArg::Stop) => config.on_bad_sample = OnBadSample::Stop,
        // Every record may be skipped every time: a bound of one's own takes a config file.
        Some(OnBadSampleArg::Skip) => {
            config.on_bad_sample = OnBadSample::Skip { at_most: dataset.len().saturating_mul(epochs) };
        }
        Some(OnBadSampleArg::SkipPadded) => {
            config.on_bad_sample = OnBadSample::SkipPadded { at_most: dataset.len().saturating_mul(epochs) };
        }
        Some(OnBadSampleArg::Substitute) => config.on_bad_sample = OnBadSample::Substitute,
        None => {}
    }
    if args.max_unreadable.is_some() {
        config.max_unreadable = args.max_unreadable;
    }
    Ok((config, transform_name))
}

fn set<A: Into<T>, T>(setting: &mut T, arg: Option<A>) {
    if let Some(arg) = arg {
        *setting = arg.into();
    }
}

fn set_auto<T>(setting: &mut Option<T>, arg: Option<Auto<T>>) {
    if let Some(Auto(value)) = arg {
        *setting = value;
    }
}

/// Photographs of any size need a crop to fit a batch; CIFAR's little pictures have a recipe of their own, and images of
/// other channels than three.
pub(crate) fn default_transform(dataset: &dyn Dataset) -> &'static str {
    let images = dataset.schema().fields.iter().filter_map(|field| match &field.kind {
        FieldKind::Image { channels, size, .. } if !field.mask => Some((*channels, *size)),
        _ => None,
    });
    let images: Vec<_> = images.collect();
    match images[..] {
        [] => "none",
        // Means of colours say nothing about other channels.
        _ if images.iter().any(|(channels, _)| *channels != 3) => "cells",
        [(_, Some((32, 32)))] => "cifar-train",
        _ => "imagenet-train",
    }
}

/// A preset, `none`, a file, or steps in one line.
pub(crate) fn transform(name: &str) -> Result<Transform, Failure> {
    let path = Path::new(name);
    if path.extension().is_some_and(|extension| extension == "json") {
        let text = fs::read_to_string(path).map_err(|error| Failure::file("cannot read", path, error))?;
        return serde_json::from_str(&text)
            .map_err(|error| Failure::Usage(format!("{name}: not a transform: {error}")));
    }
    Ok(name.parse()?)
}

/// A `LoaderConfig` and which of its parts the file named: the rest may be filled in from elsewhere.
#[derive(Default)]
struct ConfigFile {
    config: LoaderConfig,
    has_shard: bool,
    has_transform: bool,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = fs::read_to_string(path).map_err(|error| Failure::file("cannot read", path, error))?;
        Self::parse(&text).map_err(|message| Failure::Usage(format!("{}: {message}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let keys: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let config = toml::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self { config, has_shard: keys.contains_key("shard"), has_transform: keys.contains_key("transform") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_file_names_what_it_sets() {
        let file = ConfigFile::parse("batch_size = 64\nworkers = 2\n[order.random]\nseed = 7\n").unwrap();
        assert_eq!((file.config.batch_size, file.config.workers), (64, Some(2)));
        assert_eq!(file.config.order, Order::Random { seed: 7 });
        assert!(!file.has_shard && !file.has_transform);
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        let message = ConfigFile::parse("batchsize = 64").err().unwrap();
        assert!(message.contains("batchsize"), "{message}");
    }

    #[test]
    fn an_option_overrides_and_auto_clears() {
        let mut workers = Some(4);
        set_auto(&mut workers, None);
        assert_eq!(workers, Some(4));
        set_auto(&mut workers, Some(Auto(Some(1))));
        assert_eq!(workers, Some(1));
        set_auto(&mut workers, Some(Auto(None)));
        assert_eq!(workers, None);
    }
}
