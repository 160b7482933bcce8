//! Turns arguments into a loader's settings: first the config file, then the options that override it.

use std::{path::Path, sync::Arc};

use infeed::{
    Dataset, LoaderConfig, OnBadSample,
    dataset::FieldKind,
    internal::Beside,
    sampler::{Launch, LengthSampler, Mixture, Order, Sampler, Shard, Share, WeightedSampler},
    transform::{Transform, VIEW_PRESETS, View},
};

use crate::{
    args::{Auto, FixedArgs, LoaderArgs, OnBadSampleArg, RunArgs, Shuffle, Weights},
    failure::Failure,
    parts::Part,
};

/// The warning for `--max-unreadable` without a policy that counts bad samples.
pub(crate) const NO_MAX_UNREADABLE: &str =
    "--max-unreadable does nothing here: the first bad sample ends the run; add --on-bad-sample skip";

/// Settings for a loader of `dataset`, and for the report the name of the transform and the source of the rank.
/// `epochs` limits how many samples may be skipped.
pub(crate) fn loader_config(
    run: &RunArgs,
    dataset: &dyn Dataset,
    epochs: u64,
) -> Result<(LoaderConfig, String, Launch), Failure> {
    let parts = run.dataset.parts(&run.url)?;
    let LoaderArgs { swept, fixed: args } = &run.loader;
    let file = args.config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    let ConfigFile { mut config, has_transform, .. } = file;
    let transform_name = if has_transform && args.transform.is_none() && args.views.is_empty() {
        "config".into()
    } else {
        let (steps, name) = Steps::of(args.transform.as_deref(), &args.views, dataset)?;
        (config.transform, config.views) = (steps.transform, steps.views);
        name
    };
    set(&mut config.batch_size, swept.batch_size);
    set(&mut config.dtype, swept.dtype);
    set(&mut config.layout, args.layout);
    set(&mut config.orientation, args.orientation);
    set(&mut config.last_batch, args.last_batch);
    if args.mix.is_some() {
        config.mix.clone_from(&args.mix);
    }
    if !args.pads.is_empty() {
        config.pad = args.pads.iter().cloned().collect();
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
    set(&mut config.decode, args.decode);
    set(&mut config.decode_cut, args.decode_cut);
    set_auto(&mut config.streams, args.streams);
    set(&mut config.gpu_split, args.gpu_split.or(run.dataset.gpu_split()));
    set_auto(&mut config.io_concurrency, args.io_concurrency);
    set(&mut config.verify, args.verify);
    if args.cache.is_some() {
        config.cache.clone_from(&args.cache);
    }
    if args.decoded_cache.is_some() {
        config.decoded_cache.clone_from(&args.decoded_cache);
    }
    let given = match &config.order {
        Order::Mixture(mixture) => Some(mixture.clone()),
        _ => None,
    };
    match args.shuffle {
        Some(Shuffle::Off) => config.order = Order::Sequential,
        Some(Shuffle::Seed(seed)) => config.order = Order::Random { seed },
        None => {}
    }
    if let Some(times) = args.aug_repeats {
        config.order = match config.order {
            Order::Random { seed } => Order::Repeated { seed, times, all_records: false },
            _ => {
                return Err(Failure::Usage(
                    "--aug-repeats repeats records in random order: give --shuffle a seed".into(),
                ));
            }
        };
    }
    if args.in_sequence {
        config.order = Order::Sequential;
    } else if let Some(mixture) = mixture(&parts, given, args)? {
        config.order = mixture.into();
    } else if let (Some(_), None) = (args.samples, &args.weights) {
        let what = "--samples needs --weights or parts with proportions: add --weights, or --part URL,proportion=SHARE";
        return Err(Failure::Usage(what.into()));
    }
    if args.seed.is_some() {
        config.seed = args.seed;
    }
    let launch = launch(args)?;
    config.shard = launch.shard;
    let all = match config.order {
        // A mixture may repeat records.
        Order::Mixture(_) => u64::MAX,
        _ => args.samples.unwrap_or(dataset.len()).saturating_mul(epochs),
    };
    match args.on_bad_sample {
        Some(OnBadSampleArg::Stop) => config.on_bad_sample = OnBadSample::Stop,
        // Every record may be skipped in every epoch. A smaller limit can be set in a config file.
        Some(OnBadSampleArg::Skip) => {
            config.on_bad_sample = OnBadSample::Skip { at_most: all };
        }
        Some(OnBadSampleArg::SkipPadded) => {
            config.on_bad_sample = OnBadSample::SkipPadded { at_most: all };
        }
        Some(OnBadSampleArg::Substitute) => config.on_bad_sample = OnBadSample::Substitute,
        None => {}
    }
    if args.max_unreadable.is_some() {
        config.max_unreadable = args.max_unreadable;
    }
    Ok((config, transform_name, launch))
}

/// Rank and world size of this process, known before the dataset is opened.
pub(crate) fn launch(args: &FixedArgs) -> Result<Launch, Failure> {
    if let Some(launch) = given(args.rank, args.world_size)? {
        return Ok(launch);
    }
    if let Some(file) = &args.config {
        let ConfigFile { config, has_shard, .. } = ConfigFile::read(file)?;
        if has_shard {
            return Ok(by_hand(config.shard, &[&file.display().to_string()]));
        }
    }
    Ok(Launch::from_env()?)
}

/// The rank of this process.
pub(crate) fn rank(args: &FixedArgs) -> Result<u32, Failure> {
    launch(args).map(|launch| launch.shard.rank())
}

/// `--rank` and `--world-size`, when they are given.
pub(crate) fn given(rank: Option<u32>, world_size: Option<u32>) -> Result<Option<Launch>, Failure> {
    let (Some(rank), Some(world)) = (rank, world_size) else { return Ok(None) };
    Ok(Some(by_hand(Shard::new(rank, world)?, &["--rank", "--world-size"])))
}

/// A rank that the user gave, not a launcher.
fn by_hand(shard: Shard, from: &[&str]) -> Launch {
    let mut launch = Launch::default();
    (launch.shard, launch.variables) = (shard, from.iter().map(|&name| name.to_owned()).collect());
    launch
}

/// The mixture of the parts on the command line, or else of the config file, with the options that change it.
fn mixture(parts: &[Part], given: Option<Mixture>, args: &FixedArgs) -> Result<Option<Mixture>, Failure> {
    let typed = parts.iter().any(|part| part.share.is_some());
    let mut mixture = match given {
        None if parts.is_empty() => return Ok(None),
        // The shares of the config file apply to the datasets of the command line.
        Some(given) if !typed => given,
        given => {
            let mut mixture = Mixture::new(given.as_ref().map_or(0, |given| given.seed));
            mixture.samples = given.and_then(|given| given.samples).filter(|_| is_proportion(parts));
            parts.iter().fold(mixture, |mixture, part| mixture.part(&part.name, part.share.unwrap_or_default()))
        }
    };
    for (part, named) in mixture.parts.iter_mut().zip(parts) {
        if part.name.is_empty() {
            part.name.clone_from(&named.name);
        }
    }
    match args.shuffle {
        Some(Shuffle::Seed(seed)) => mixture.seed = seed,
        Some(Shuffle::Off) => {
            return Err(Failure::Usage("a mixture is drawn in random order: give --shuffle a seed, or omit it".into()));
        }
        None => {}
    }
    if args.aug_repeats.is_some() {
        return Err(Failure::Usage(
            "--aug-repeats does not work with a mixture: repeat parts with URL,repeat=N".into(),
        ));
    }
    if args.weights.is_some() {
        return Err(Failure::Usage(
            "--weights and the mixture of the config file both set the order: omit one of them".into(),
        ));
    }
    if args.samples.is_some() {
        mixture.samples = args.samples;
    }
    Ok(Some(mixture))
}

fn is_proportion(parts: &[Part]) -> bool {
    parts.iter().all(|part| matches!(part.share, Some(Share::Proportion(_))))
}

/// The order of `--weights`. `labels` reads the labels of the dataset; it is awaited only for `balanced`.
pub(crate) async fn weighted(
    args: &FixedArgs,
    order: &Order,
    records: u64,
    labels: impl Future<Output = Result<Vec<i64>, Failure>>,
) -> Result<Option<Arc<dyn Sampler>>, Failure> {
    let Some(weights) = args.weights.as_ref().filter(|_| !args.in_sequence) else { return Ok(None) };
    if args.shuffle == Some(Shuffle::Off) {
        return Err(Failure::Usage("--weights draws in random order: give --shuffle a seed, or omit it".into()));
    }
    let seed = order.seed().unwrap_or(0);
    let sampler = match weights {
        Weights::Balanced => WeightedSampler::balanced(&labels.await?, seed)?,
        Weights::File(path) => {
            let text = Beside::Table.read_text(path).map_err(|error| Failure::file("cannot read", path, error))?;
            let lines =
                text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
            let weight = |(line, number): (&str, u64)| {
                line.parse::<f64>().map_err(|_| {
                    let begin: String = line.chars().take(80).collect();
                    Failure::Usage(format!(
                        "{}: line {number} is `{begin}`, not a weight: write a number",
                        path.display()
                    ))
                })
            };
            let weights = lines.map(weight).collect::<Result<Vec<_>, _>>()?;
            if weights.len() as u64 != records {
                let (path, lines) = (path.display(), weights.len());
                return Err(Failure::Usage(format!(
                    "{path} has {lines} weights for {records} records: write one line for each record"
                )));
            }
            WeightedSampler::new(&weights, seed)?
        }
    };
    Ok(Some(Arc::new(sampler.with_len(args.samples.unwrap_or(records)))))
}

/// The order of `--max-tokens`, with the lengths that it needs.
pub(crate) async fn by_length(
    args: &FixedArgs,
    config: &LoaderConfig,
    lengths: impl Future<Output = Result<Vec<u64>, Failure>>,
) -> Result<Option<Arc<dyn Sampler>>, Failure> {
    let Some(budget) = args.max_tokens.filter(|_| !args.in_sequence) else { return Ok(None) };
    if args.shuffle == Some(Shuffle::Off) {
        return Err(Failure::Usage("--max-tokens draws in random order: give --shuffle a seed, or omit it".into()));
    }
    let seed = config.order.seed().unwrap_or(0);
    Ok(Some(Arc::new(LengthSampler::new(lengths.await?, budget, config.batch_size, seed)?)))
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

/// Photographs of any size need a crop to fit into a batch. CIFAR's small images have their own preset, and so have
/// images with other than three channels.
pub(crate) fn default_transform(dataset: &dyn Dataset) -> &'static str {
    let images = dataset.schema().fields.iter().filter_map(|field| match &field.kind {
        FieldKind::Image { channels, size, .. } if !field.mask => Some((*channels, *size)),
        _ => None,
    });
    let images: Vec<_> = images.collect();
    match images[..] {
        [] => "none",
        // ImageNet's means of colours do not apply to other channels.
        _ if images.iter().any(|(channels, _)| *channels != 3) => "cells",
        [(_, Some((32, 32)))] => "cifar-train",
        _ => "imagenet-train",
    }
}

/// What makes rows of an image: a transform, or several views.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Steps {
    pub(crate) transform: Transform,
    pub(crate) views: Vec<View>,
}

impl From<Transform> for Steps {
    fn from(transform: Transform) -> Self {
        Self { transform, views: Vec::new() }
    }
}

impl From<Vec<View>> for Steps {
    fn from(views: Vec<View>) -> Self {
        Self { transform: Transform::default(), views }
    }
}

impl Steps {
    /// The steps of `--transform` or `--view`, or else those that fit the dataset; and a name for them.
    pub(crate) fn of(
        transform: Option<&str>,
        views: &[View],
        dataset: &dyn Dataset,
    ) -> Result<(Self, String), Failure> {
        if !views.is_empty() {
            let names: Vec<String> = views.iter().flat_map(View::names).collect();
            return Ok((views.to_vec().into(), format!("views {}", names.join(", "))));
        }
        let name = transform.unwrap_or_else(|| default_transform(dataset));
        Ok((Self::named(name)?, name.into()))
    }

    /// Checks `--transform` before the dataset is opened, which may take minutes.
    pub(crate) fn check(transform: Option<&str>) -> Result<(), Failure> {
        transform.map_or(Ok(()), |name| Self::named(name).map(drop))
    }

    /// A preset, `none`, a file, or steps in one line.
    fn named(name: &str) -> Result<Self, Failure> {
        let path = Path::new(name);
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = Beside::Note.read_text(path).map_err(|error| Failure::file("cannot read", path, error))?;
            let refuse = |what: &str, error| Failure::Usage(format!("{name}: {what}: {error}"));
            let list: serde_json::Value = serde_json::from_str(&text).map_err(|error| refuse("not JSON", error))?;
            // Steps have an "op", views a "name".
            return if list.get(0).is_some_and(|first| first.get("name").is_some()) {
                let views: Vec<View> =
                    serde_json::from_value(list).map_err(|error| refuse("not a list of views", error))?;
                Ok(views.into())
            } else {
                let transform: Transform =
                    serde_json::from_value(list).map_err(|error| refuse("not a transform", error))?;
                Ok(transform.into())
            };
        }
        if VIEW_PRESETS.contains(&name) {
            return Ok(View::preset(name)?.into());
        }
        Ok(name.parse::<Transform>()?.into())
    }
}

/// A `LoaderConfig`, and which of two parts the file sets. Parts that it does not set get defaults elsewhere.
#[derive(Default)]
struct ConfigFile {
    config: LoaderConfig,
    has_shard: bool,
    has_transform: bool,
}

impl ConfigFile {
    fn read(path: &Path) -> Result<Self, Failure> {
        let text = Beside::Note.read_text(path).map_err(|error| Failure::file("cannot read", path, error))?;
        Self::parse(&text).map_err(|message| Failure::Usage(format!("{}: {message}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let keys: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let config = toml::from_str(text).map_err(|error| error.to_string())?;
        Ok(Self {
            config,
            has_shard: keys.contains_key("shard"),
            has_transform: ["transform", "views"].iter().any(|key| keys.contains_key(*key)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        fs,
    };

    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    /// The names between backticks.
    fn named(cell: &str) -> Vec<&str> {
        cell.split('`').skip(1).step_by(2).collect()
    }

    /// docs/configuration.md is the one table of settings: their names in each front, and their defaults. Python's
    /// column has a test in the Python package.
    #[test]
    fn the_page_of_settings_has_the_names_and_defaults() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = fs::read_to_string(root.join("docs/configuration.md")).unwrap();
        let builder = fs::read_to_string(root.join("src/loader/builder.rs")).unwrap();
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` |"));
        let rows = rows.map(|(key, cells)| (key, cells.split('|').map(str::trim).collect::<Vec<_>>()));
        let (others, keys): (Vec<_>, Vec<_>) = rows.partition(|(_, cells)| cells.len() == 3);
        let others: HashMap<&str, Vec<&str>> = others.into_iter().collect();

        let unknown = serde_json::from_str::<LoaderConfig>(r#"{"?": 0}"#).unwrap_err().to_string();
        let known: Vec<&str> = named(&unknown).into_iter().skip(1).filter(|key| *key != "split").collect();
        assert!(known.len() > 30, "{unknown}");
        let defaults = serde_json::to_value(LoaderConfig::default()).unwrap();
        let run = Cli::command().find_subcommand("run").unwrap().clone();
        let options: HashSet<String> =
            run.get_arguments().filter_map(|arg| arg.get_long()).map(|long| format!("--{long}")).collect();
        assert_eq!(
            keys.iter().map(|(key, _)| *key).collect::<Vec<_>>(),
            known,
            "the keys of the first table, in order"
        );
        for (key, cells) in keys {
            let (default, words) = (&defaults[key], cells[0]);
            let fits = match words {
                "none" => default.is_null() || default.as_array().is_some_and(Vec::is_empty),
                "the launcher's" => key == "shard",
                "the seed of `order`" => key == "seed" && default.is_null(),
                words if words.starts_with("auto") => default.is_null(),
                words => serde_json::from_str(words.trim_matches('`'))
                    .is_ok_and(|stated: serde_json::Value| stated == *default),
            };
            assert!(fits, "{key}: the page states {words}, the default is {default}");

            let of_front = |front: usize| others.get(key).map_or("", |cells| cells[front]);
            let (methods, own) = (of_front(0), of_front(1));
            for method in if methods.is_empty() { vec![key] } else { named(methods) } {
                assert!(
                    builder.contains(&format!("    pub fn {method}(")),
                    "{key}: there is no LoaderBuilder::{method}"
                );
            }
            let option = format!("--{}", key.replace('_', "-"));
            let stated = if own.is_empty() { vec![&*option] } else { named(own) };
            assert!(own.starts_with("none") || !stated.is_empty(), "{key}: {own}");
            assert!(!own.starts_with("none") || !options.contains(&option), "{key}: there is {option}");
            for option in stated {
                assert!(options.contains(option), "{key}: there is no option {option}");
            }
        }
        assert!(others.keys().all(|key| known.contains(key)), "{others:?}");
    }

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
