//! Arguments as typed. This module parses values; the commands check whether they fit together.

use std::{fmt, net::SocketAddr, num::NonZeroU64, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use infeed::{
    DType, Dataset, Device, Layout,
    codec::{Decode, GpuSplit, Orientation},
    dataset::Filter,
    sampler::LastBatch,
    source::{CacheSpec, Verify},
    transform::{View, augment::Mix},
};

use crate::{failure::Failure, help, out::JsonTarget, parts::Part, units};

/// Load training data for machine learning: fast, in a reproducible order, within a memory limit.
///
/// Without a command, infeed runs the demo.
#[derive(Debug, Parser)]
#[command(name = "infeed", version, max_term_width = 100, after_help = help::INFEED)]
pub(crate) struct Cli {
    /// Show no progress bars and no lines during a run; write only warnings and errors to stderr
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Generate a small dataset, load it into a simulated trainer, and show the figures
    #[command(after_help = help::DEMO)]
    Demo,
    /// Load a dataset as a training run does, and measure the speed: a line every 20 batches, then a summary
    #[command(after_help = help::RUN)]
    Run(Box<WatchedArgs>),
    /// Show where the time of a run goes: each stage, the first batch apart, and each stage measured alone
    #[command(after_help = help::PROFILE)]
    Profile(Box<ProfileArgs>),
    /// Measure each combination of workers, batch size and more, and find where higher values stop helping
    #[command(after_help = help::SWEEP)]
    Sweep(Box<SweepArgs>),
    /// Run two or more configurations in turn, and report how much faster one is than the others
    #[command(after_help = help::COMPARE)]
    Compare(Box<CompareArgs>),
    /// Find the bottleneck of a training run, and the one change that would help most
    #[command(after_help = help::DOCTOR)]
    Doctor(Box<DoctorArgs>),
    /// Show what a dataset holds: format, records, classes, sizes, fields, first records
    #[command(after_help = help::INSPECT)]
    Inspect(InspectArgs),
    /// Copy a dataset to a local folder or RAM disk: verified, resumable, within a size limit
    #[command(after_help = help::STAGE)]
    Stage(StageArgs),
    /// Resize, encode and pack a dataset into tar shards before training, on all cores; resumable
    #[command(after_help = help::PREPARE)]
    Prepare(PrepareArgs),
    /// Write the index of tar shards next to them, so that no later opening reads their headers
    #[command(after_help = help::INDEX)]
    Index(IndexArgs),
    /// Estimate the store requests, bytes and cost of training on many nodes, and the best way to read
    #[command(after_help = help::PLAN)]
    Plan(Box<PlanArgs>),
    /// Generate data with the statistics of real datasets
    #[command(after_help = help::SYNTH)]
    Synth(SynthArgs),
    /// Write a shell completion script to stdout
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// Shell to write the script for
        shell: clap_complete::Shell,
    },
    /// Write manual pages: the main page to stdout, or a page for each command to a folder
    #[command(after_help = help::MAN)]
    Man {
        /// Folder for the pages, created if missing [default: the main page to stdout]
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
    /// Remove the demo's folder after the demo has ended, in whatever way
    #[command(hide = true)]
    SweepUp { dir: PathBuf },
}

/// A run, and what shows it to others.
#[derive(Args, Debug)]
pub(crate) struct WatchedArgs {
    // First, because the help headings of later groups would also apply to it.
    #[command(flatten)]
    pub observers: ObserverArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ObserverArgs {
    /// Show rates, waits, stages, queues and the machine full-screen during the run; ? shows the keys and terms, q ends
    /// the run
    #[arg(long, conflicts_with = "quiet")]
    pub live: bool,
    /// Serve Prometheus metrics at this address under /metrics, for example 127.0.0.1:9464; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Keep serving metrics for this time after the run, so that the last figures are scraped
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::parse_time, requires = "metrics")]
    pub metrics_linger: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Epochs of the whole run; with --resume, the run loads what is left of them
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Print a line every N batches
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub log_every: u64,
    /// Stop after this many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_batches: Option<u64>,
    /// Stop at the end of a batch once this much time has passed since the first batch
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub max_time: Option<Duration>,
    /// Report a second rate that leaves out this much time at the start, as the rate of a warm loader
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub warm_up: Option<Duration>,
    /// Simulate a trainer: sleep this long for each batch
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::parse_time)]
    pub step_time: Duration,
    /// Sum a hash of every row; the sum is equal for equal data in equal order, whatever the workers, caches and store
    #[arg(long)]
    pub checksum: bool,
    /// Write the state for --resume to FILE after each logged batch and at the end
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Continue from the state and checksum in FILE to the end of --epochs; if nothing is left, that is an error
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Keep a decode index in FILE: where the rows of each JPEG begin
    ///
    /// The run uses the entries of FILE and adds those it finds. Later epochs and runs then decode only the rows that a
    /// crop needs. Ranks may share one file. The same option of infeed inspect fills it ahead of time.
    #[arg(long, value_name = "FILE")]
    pub decode_index: Option<PathBuf>,
    /// Convert JPEGs to 8-bit RGB before they are resized, as torchvision does; on the CPU
    ///
    /// At edges of strong colours the values are closer to torchvision's. Decoding is slower.
    #[arg(long)]
    pub jpeg_exact: bool,
    /// Check all data of each JPEG, whatever the crop, and reject files with bytes left over, which other readers
    /// ignore
    #[arg(long)]
    pub jpeg_strict: bool,
    /// Write all figures as JSON; with -, JSON goes to stdout and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// Write an HTML report: one file that needs no network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub dataset: DatasetArgs,
    #[command(flatten)]
    pub loader: LoaderArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Write a timeline of what each thread did, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Skip the measurements of each stage alone
    #[arg(long)]
    pub no_stages: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub(crate) struct SweepArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Epochs of each combination [default: those that begin in 3 s, if --max-batches and --max-time are not given]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,
    /// Stop each combination after this many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_batches: Option<u64>,
    /// Stop each combination at the end of a batch once this much time has passed since its first batch
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub max_time: Option<Duration>,
    /// Afterwards compare workers and prefetch on auto with the best combination, in this many rounds
    ///
    /// Each round runs both in turn. Only the rates after auto has settled count, see --settle.
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub auto: Option<u64>,
    /// Time that auto has to settle; rates are measured after it
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_time, requires = "auto")]
    pub settle: Duration,
    /// Simulate a trainer: sleep this long for each batch
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::parse_time)]
    pub step_time: Duration,
    /// Save the figures to FILE after each combination; the same command continues from there
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write a table of the combinations as comma-separated values
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write all figures as JSON; with -, JSON goes to stdout and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// Write an HTML report: one file that needs no network
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub lists: ListArgs,
    #[command(flatten)]
    pub dataset: DatasetArgs,
    #[command(flatten)]
    pub fixed: FixedArgs,
}

#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    #[arg(help = help::CONFIGURATION, long_help = help::CONFIGURATION_LONG, value_name = "CONFIGURATION")]
    #[arg(required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub configurations: Vec<String>,
    /// Name of a configuration; repeat the option for the others, in their order [default: the configuration as typed]
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    pub names: Vec<String>,
    /// Rounds to measure; each round runs every configuration once, every second round in reverse order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Rounds before the measured ones, to fill the caches; their figures are left out
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u64,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE.md")]
    pub export_markdown: Option<PathBuf>,
    /// Write all figures of all rounds as JSON; with -, JSON goes to stdout and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// Arguments for all configurations: options of infeed run, and the dataset if they share one
    ///
    /// Where a configuration sets the same option, its own value counts. [default: runs of 3 s, without --epochs,
    /// --max-batches and --max-time]
    #[arg(last = true, value_name = "ARGUMENTS OF RUN")]
    pub shared: Vec<String>,
}

/// What a sweep varies; each option takes a list.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lists to try")]
pub(crate) struct ListArgs {
    /// Samples per batch, on each process [default: 256]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = units::parse_rows)]
    pub batch_size: Vec<usize>,
    /// Element types of images [default: f32]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    pub dtype: Vec<DTypeArg>,
    /// Devices that batches are made on: cpu, cuda:N or auto [default: cpu]
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    pub device: Vec<Auto<Device>>,
    /// Decode threads [default: auto]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = auto_whole)]
    pub workers: Vec<Auto<usize>>,
    /// Batches made ahead of the trainer [default: auto]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = auto_whole)]
    pub prefetch: Vec<Auto<usize>>,
}

/// How to read a dataset, in addition to its url.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dataset")]
pub(crate) struct DatasetArgs {
    /// Read the dataset as this format instead of recognising it: folder, coco, voc, yolo, tar, mds, tfrecord, parquet,
    /// jsonl, zarr, hdf5, hdf5-files, arrays, volumes, dicom, cifar10 or cifar100
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Images: take labels from this table of files and labels
    ///
    /// The table is CSV, TSV, text with spaces between the columns, JSON or JSON lines. FILE is a file of the dataset,
    /// else a path or url. Labels are numbers or class names.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub labels: Option<String>,
    /// Images: load only those that the table of labels lists [default: an image without a label is an error]
    #[arg(long)]
    pub labels_only: bool,
    /// Column of the labels, in a table that has several columns
    #[arg(long, value_name = "NAME")]
    pub label_column: Option<String>,
    /// Images: take boxes from this JSON of COCO: a file of the dataset, else a path or url
    #[arg(long, value_name = "FILE")]
    pub annotations: Option<String>,
    /// COCO, YOLO: read outlines too. --masks PATTERN means --mask-files PATTERN
    #[arg(long)]
    pub masks: bool,
    /// Images: pattern of the names of mask files, for example masks/{stem}_mask.png
    ///
    /// Or two, of images and masks, to read only images with a mask: "{stem}.jpg => {stem}_mask.png".
    ///
    /// [default: the names that public datasets use, such as images and masks, train and train_masks, a.jpg and
    /// a_mask.png]
    #[arg(long, value_name = "PATTERN")]
    pub mask_files: Option<String>,
    /// Names of the classes, in the order of their indices [default: sorted, or as the dataset has them]
    #[arg(long = "classes", value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub class_names: Vec<String>,
    /// JSON lines, Parquet: place of the images that records name [default: the folder of the table]
    #[arg(long, value_name = "URL")]
    pub image_root: Option<String>,
    /// Part of the dataset to load, if it has several: train, val, test or another
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Images: combine files that each hold one channel, by a pattern such as {name}_{channel}.tif or
    /// {name}_{channel:dapi,gfp}.tif
    #[arg(long, value_name = "PATTERN")]
    pub channels: Option<String>,
    /// Volumes: pattern of the file names, with patient and field, for example {patient}_{field}.nrrd [default:
    /// {patient}/{field}; without folders {patient}_{field}]
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// Kind of a field, for example gt=mask; repeat the option for more fields
    ///
    /// Kinds are mask, mask16 (values up to 65535), image, label, list (numbers whose count differs from record to
    /// record), array, text, bytes and files (texts of JSON lines and Parquet that name image files, which are read).
    /// json.boxes=list adds the value boxes in the texts of JSON of a field json. For volumes, name the files that are
    /// the channels of the field: image=ct+pet. [default: images and files called mask, label, seg, tumor_mask,
    /// annotation and the like are masks]
    #[arg(long = "field", value_name = "NAME=WORD[+WORD]", value_parser = parse_field)]
    pub fields: Vec<(String, Vec<String>)>,
    /// Read only these fields, for example image,label (tar, MDS, TFRecord, Parquet, JSON lines, Zarr, HDF5)
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Volumes: records per patient [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples_per_patient: Option<u64>,
    /// Share one listing of the dataset in this file, which all ranks must reach: rank 0 lists and writes it, the
    /// others read it
    #[arg(long, value_name = "FILE|URL", conflicts_with = "part")]
    pub listing: Option<String>,
    /// Read shards of infeed prepare although some are missing [default: an error that names the missing ones]
    #[arg(long)]
    pub allow_incomplete: bool,
    /// Mix another dataset with URL, at a share of each epoch; repeat the option for more datasets
    ///
    /// URL,proportion=0.7 sets a weight relative to the others. URL,repeat=2 uses each record this often.
    /// URL,choose=10000 takes this many samples. Append ,name=NAME to name the dataset in the report. The first
    /// dataset, URL, then takes a share in the same way. [default: repeat=1]
    #[arg(long, value_name = "URL[,SHARE]")]
    pub part: Vec<Part>,
    /// Load only the records that pass this condition; repeat the option to require several conditions
    ///
    /// Conditions are label=cat,dog or label!=3, caption~=PATTERN, caption*=TEXT, width>=256. FIELD may also be object
    /// (the object's name) or a value in JSON (json.width). If the dataset does not know the field without reading,
    /// opening reads that field of every record.
    #[arg(long = "filter", value_name = "FIELD=VALUE", conflicts_with = "record_list")]
    pub filters: Vec<Filter>,
    /// Load only the records that FILE lists, one per line, by record number or object name
    #[arg(long, value_name = "FILE", conflicts_with = "part")]
    pub record_list: Option<String>,
    /// Time that a store may deliver nothing before the run ends with an error [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub patience: Option<Duration>,
}

impl DatasetArgs {
    /// All parts, with `url` as the first; empty without --part.
    pub(crate) fn parts(&self, url: &str) -> Result<Vec<Part>, Failure> {
        if self.part.is_empty() {
            return Ok(Vec::new());
        }
        let first = url.parse().map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
        Ok([first].into_iter().chain(self.part.iter().cloned()).collect())
    }

    /// Opens the dataset at `url`, or those of all parts together. Calls `rank` only if there is a shared listing.
    pub(crate) async fn open(
        &self,
        url: &str,
        rank: impl Fn() -> Result<u32, Failure>,
    ) -> Result<Arc<dyn Dataset>, Failure> {
        let parts = self.parts(url)?;
        Ok(match &parts[..] {
            [] => self.apply(infeed::open(url), rank)?.await?,
            parts => {
                let opens = parts.iter().map(|part| self.apply(infeed::open(part.url.as_str()), &rank));
                infeed::dataset::open_together(opens.collect::<Result<Vec<_>, _>>()?).await?
            }
        })
    }

    /// Applies these options to an opening. Calls `rank` only if there is a shared listing.
    pub(crate) fn apply(
        &self,
        mut open: infeed::dataset::Open,
        rank: impl FnOnce() -> Result<u32, Failure>,
    ) -> Result<infeed::dataset::Open, Failure> {
        if let Some(listing) = &self.listing {
            open = open.listing(listing, rank()?);
        }
        if let Some(format) = &self.format {
            open = open.format(format);
        }
        if let Some(labels) = &self.labels {
            open = open.labels(labels);
        }
        if let Some(column) = &self.label_column {
            open = open.label_column(column);
        }
        if let Some(annotations) = &self.annotations {
            open = open.annotations(annotations);
        }
        open = open.masks(self.masks).allow_incomplete(self.allow_incomplete).labels_only(self.labels_only);
        if let Some(pattern) = &self.mask_files {
            open = open.mask_files(pattern);
        }
        if !self.class_names.is_empty() {
            open = open.classes(&*self.class_names);
        }
        if let Some(root) = &self.image_root {
            open = open.image_root(root);
        }
        if let Some(split) = self.split() {
            open = open.split(split);
        }
        if let Some(channels) = &self.channels {
            open = open.channels(channels);
        }
        if let Some(pattern) = &self.pattern {
            open = open.pattern(pattern);
        }
        if !self.columns.is_empty() {
            open = open.columns(&self.columns);
        }
        if let Some(samples) = self.samples_per_patient {
            open = open.samples_per_patient(samples);
        }
        if let Some(patience) = self.patience {
            open = open.patience(patience);
        }
        if let Some(list) = &self.record_list {
            open = open.records(list);
        }
        open = self.filters.iter().cloned().fold(open, infeed::dataset::Open::filter);
        Ok(self.fields.iter().fold(open, |open, (name, files)| open.field(name, files)))
    }
}

impl DatasetArgs {
    /// The part of the dataset to load.
    fn split(&self) -> Option<&str> {
        self.split.as_deref().filter(|_| self.gpu_split().is_none())
    }

    /// The old meaning of `--split`: how the decoders of a GPU share images. Its two values are still accepted.
    pub(crate) fn gpu_split(&self) -> Option<SplitArg> {
        SplitArg::from_str(self.split.as_deref()?, false).ok()
    }

    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { format, annotations, masks, channels, pattern, fields, columns, samples_per_patient, .. } = self;
        let Self { labels, split, patience, listing, allow_incomplete, part, filters, record_list, .. } = self;
        let Self { labels_only, label_column, mask_files, image_root, class_names, .. } = self;
        let given = [
            (format.is_some(), "--format"),
            (labels.is_some(), "--labels"),
            (*labels_only, "--labels-only"),
            (label_column.is_some(), "--label-column"),
            (annotations.is_some(), "--annotations"),
            (split.is_some(), "--split"),
            (*masks, "--masks"),
            (mask_files.is_some(), "--mask-files"),
            (!class_names.is_empty(), "--classes"),
            (image_root.is_some(), "--image-root"),
            (channels.is_some(), "--channels"),
            (pattern.is_some(), "--pattern"),
            (!fields.is_empty(), "--field"),
            (!columns.is_empty(), "--columns"),
            (samples_per_patient.is_some(), "--samples-per-patient"),
            (patience.is_some(), "--patience"),
            (listing.is_some(), "--listing"),
            (*allow_incomplete, "--allow-incomplete"),
            (!part.is_empty(), "--part"),
            (!filters.is_empty(), "--filter"),
            (record_list.is_some(), "--record-list"),
        ];
        given.into_iter().find_map(|(is, name)| is.then_some(name))
    }
}

fn parse_pad(text: &str) -> Result<(String, f64), String> {
    let parsed = text.rsplit_once('=').and_then(|(name, number)| Some((name.to_owned(), number.parse().ok()?)));
    parsed.filter(|(name, _)| !name.is_empty()).ok_or_else(|| "write FIELD=NUMBER, such as tokens=0".to_owned())
}

fn parse_field(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, files) = text.split_once('=').unwrap_or((text, text));
    let files: Vec<String> = files.split('+').map(str::to_owned).collect();
    match name.is_empty() || files.iter().any(String::is_empty) {
        true => Err("write it as gt=mask, or for volumes as image=ct+pet".into()),
        false => Ok((name.into(), files)),
    }
}

/// Options of the loader. Each overrides its equivalent in the config file.
#[derive(Args, Debug)]
pub(crate) struct LoaderArgs {
    #[command(flatten)]
    pub swept: SweptArgs,
    #[command(flatten)]
    pub fixed: FixedArgs,
}

/// Options that a sweep takes lists of.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loader")]
pub(crate) struct SweptArgs {
    /// Samples per batch, on each process [default: 256]
    #[arg(short, long, value_name = "N", value_parser = units::parse_rows)]
    pub batch_size: Option<usize>,
    /// Element type of images [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<DTypeArg>,
    /// Device that batches are made on: cpu, cuda:N, or auto, which takes a GPU if there is one [default: cpu]
    #[arg(long, value_name = "auto|DEVICE")]
    pub device: Option<Auto<Device>>,
    /// Decode threads [default: auto: at first one per core, shared by the processes of the machine, then what the run
    /// needs]
    #[arg(short, long, value_name = "auto|N", value_parser = auto_whole)]
    pub workers: Option<Auto<usize>>,
    /// Batches made ahead of the trainer [default: auto]
    #[arg(long, value_name = "auto|N", value_parser = auto_whole)]
    pub prefetch: Option<Auto<usize>>,
}

/// All other options of the loader.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loader")]
pub(crate) struct FixedArgs {
    /// Read settings from this TOML file; options on the command line override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Steps from decoded image to row: a preset, a JSON file, or steps in one line
    ///
    /// Presets: imagenet-train, imagenet-val, cifar-train, cifar-val, caltech, cells, torchvision-v2-train,
    /// torchvision-v2-val, deit-train, timm-a1, simclr, dino, dino-global-1, dino-global-2, dino-local, none. Steps:
    /// 'random_resized_crop:176;horizontal_flip;trivial_augment_wide;normalize;random_erasing:0.1' [default:
    /// imagenet-train; cifar-train if all images are 32x32; cells if images have other than 3 channels]
    #[arg(short, long, value_name = "NAME|FILE.json|STEPS")]
    pub transform: Option<String>,
    /// Make several rows of each image, which is read and decoded once; one --view for each kind of row
    ///
    /// Write NAME=STEPS or NAME*COUNT=STEPS, for example --view 'global*2=random_resized_crop:224;normalize' and --view
    /// 'local*8=random_resized_crop:96;normalize'. The field image becomes image.global0, image.global1 and so on. For
    /// DINO's views use --transform dino. [default: none]
    #[arg(long = "view", value_name = "NAME=STEPS", conflicts_with = "transform")]
    pub views: Vec<View>,
    /// Apply MixUp, CutMix and label smoothing to whole batches [default: none]
    ///
    /// For example 'mixup=0.2,cutmix=1,switch_prob=0.5,prob=1,per=batch,label_smoothing=0.1,classes=1000'. per=pair
    /// does what timm does.
    #[arg(long, value_name = "SETTINGS")]
    pub mix: Option<Mix>,
    /// Make a tensor of a field of lists: rows as long as the batch's longest, filled with this number
    ///
    /// For example 'tokens=0'. Repeat it for several fields. The field tokens.lengths then has the length of each row.
    #[arg(long = "pad", value_name = "FIELD=NUMBER", value_parser = parse_pad)]
    pub pads: Vec<(String, f64)>,
    /// Order of the axes of images [default: nchw]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<LayoutArg>,
    /// Turn images as their files record it: EXIF of JPEG, WebP and PNG, the tag Orientation of TIFF [default: auto]
    #[arg(long, value_name = "HOW")]
    pub orientation: Option<OrientationArg>,
    /// Adjust workers and prefetch during the run, if they are on auto [default: on]
    #[arg(long, value_name = "HOW")]
    pub autotune: Option<OnOff>,
    /// Record where the loader's time goes; off is for measuring what the recording costs [default: on]
    #[arg(long, value_name = "HOW")]
    pub accounting: Option<OnOff>,
    /// Largest record in encoded bytes; a larger one is not read and counts as a bad sample [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub max_record_bytes: Option<Auto<Bytes>>,
    /// Host memory that the loader may use [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub memory_budget: Option<Auto<Bytes>>,
    /// Most memory for decoding one image; a larger image is a bad sample [default: what the budget allows, at most
    /// 320MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_image_bytes: Option<Bytes>,
    /// Device memory that the loader may use [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub device_budget: Option<Auto<Bytes>>,
    /// What decodes JPEGs when batches are made on a GPU [default: auto]
    #[arg(long, value_name = "WHO")]
    pub decode: Option<DecodeArg>,
    /// Give the JPEG engines files that end after the crop's last row, so that they decode no more [default: on]
    #[arg(long, value_name = "HOW")]
    pub decode_cut: Option<OnOff>,
    /// CUDA streams that decode in addition to the hardware engines [default: auto, which is none]
    #[arg(long, value_name = "auto|N")]
    pub streams: Option<Auto<usize>>,
    /// How the decoders of a GPU share the images [default: adaptive]
    #[arg(long, value_name = "HOW")]
    pub gpu_split: Option<SplitArg>,
    /// Most requests in flight to a remote store [default: auto]
    #[arg(long, value_name = "auto|N")]
    pub io_concurrency: Option<Auto<usize>>,
    /// Compare whole objects of a remote store with the checksums that the store reports [default: auto]
    #[arg(long, value_name = "HOW")]
    pub verify: Option<VerifyArg>,
    /// Cache what is read from a remote store, in a folder (shared by all processes) or in memory
    #[arg(long, value_name = "DIR:SIZE|ram:SIZE")]
    pub cache: Option<CacheSpec>,
    /// Cache decoded pixels for later epochs, in a folder (shared by all processes) or in memory; infeed doctor
    /// estimates the gain
    #[arg(long, value_name = "DIR:SIZE|ram:SIZE")]
    pub decoded_cache: Option<CacheSpec>,
    /// Shuffle with this seed, in a new order each epoch; none reads in sequence [default: none]
    #[arg(long, value_name = "SEED|none")]
    pub shuffle: Option<Shuffle>,
    /// Draw records by weight, with replacement, with the seed of --shuffle [default: none]
    ///
    /// balanced draws every class equally often. FILE has one number per line, one line for each record.
    #[arg(long, value_name = "balanced|FILE", conflicts_with_all = ["part", "aug_repeats"])]
    pub weights: Option<Weights>,
    /// Batches of records of similar length: at most N items (tokens) with padding, and at most --batch-size rows
    ///
    /// Drawn with the seed of --shuffle. --lengths names the field whose length counts; it is read once for that.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), requires = "lengths",
        conflicts_with_all = ["part", "aug_repeats", "weights"])]
    pub max_tokens: Option<u64>,
    /// The list or text whose length counts for --max-tokens
    #[arg(long, value_name = "FIELD", requires = "max_tokens")]
    pub lengths: Option<String>,
    /// Samples per epoch, for --weights or parts with proportions [default: the number of records]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Set for measurements on records in memory: reads in sequence, whatever the other options are.
    #[arg(skip)]
    pub in_sequence: bool,
    /// Repeated augmentation: use each record N times in a row, augmented anew; needs --shuffle [default: 1]
    ///
    /// The repeats go to as many ranks as there are. The length of an epoch stays, so it holds one record in N.
    #[arg(long, value_name = "N", requires = "shuffle")]
    pub aug_repeats: Option<u32>,
    /// Seed of augmentation [default: the seed of --shuffle]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// What to do with records that do not fill a batch [default: drop]
    #[arg(long, value_name = "HOW")]
    pub last_batch: Option<LastBatchArg>,
    /// Rank of this process, below --world-size [default: from the launcher's environment]
    #[arg(long, value_name = "R", requires = "world_size")]
    pub rank: Option<u32>,
    /// Number of processes in the run [default: from the launcher's environment]
    #[arg(long, value_name = "W", requires = "rank")]
    pub world_size: Option<u32>,
    /// What to do with a sample that cannot be used [default: stop]
    #[arg(long, value_name = "HOW")]
    pub on_bad_sample: Option<OnBadSampleArg>,
    /// Most unreadable files or objects when bad samples do not end the run; one more ends it [default: 16, or one in a
    /// hundred]
    #[arg(long, value_name = "N")]
    pub max_unreadable: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    #[arg(required_unless_present = "devices")]
    pub url: Option<String>,
    /// Show the GPU, or why none can be used
    #[arg(long)]
    pub devices: bool,
    /// Number of first records to show
    #[arg(long, value_name = "N", default_value_t = 5, requires = "url")]
    pub records: u64,
    /// Compute mean and standard deviation of each channel, ready for a transform, over all records or --count of them
    #[arg(long, requires = "url")]
    pub stats: bool,
    /// Records for --stats, evenly spread [default: all]
    #[arg(long, value_name = "N", requires = "stats", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Write a contact sheet of transformed samples, each with its class and file name; .png or .jpg
    #[arg(long, value_name = "FILE", requires = "url")]
    pub sheet: Option<PathBuf>,
    /// Show each augmentation of the transform alone, in its own row of the sheet; if it has none, all augmentations
    #[arg(long, requires = "sheet")]
    pub ops: bool,
    /// Transform of the sheet, as for infeed run [default: as for infeed run]
    #[arg(short, long, value_name = "NAME|FILE.json|STEPS", requires = "sheet")]
    pub transform: Option<String>,
    /// Views of the sheet, as for infeed run; each record has a row
    #[arg(long = "view", value_name = "NAME=STEPS", requires = "sheet", conflicts_with = "transform")]
    pub views: Vec<View>,
    /// Most memory for decoding one image of the sheet [default: 320MiB]
    #[arg(long, value_name = "SIZE", requires = "sheet")]
    pub max_image_bytes: Option<Bytes>,
    /// Seed that shuffles and augments the samples of the sheet
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sheet")]
    pub seed: u64,
    /// Scan all of each JPEG once and add to FILE where its rows begin
    ///
    /// The first epoch of a run with this FILE as --decode-index then decodes as fast as later epochs.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub decode_index: Option<PathBuf>,
    /// Write all figures as JSON; with -, JSON goes to stdout and the tables to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct StageArgs {
    /// Dataset to copy (a folder, or a url such as s3://bucket/train), or archive to unpack (.tar, .tar.gz, .tgz,
    /// .tar.zst)
    #[arg(value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Target folder, created if missing; an interrupted copy resumes
    pub dir: PathBuf,
    /// Most bytes in the folder; an archive counts until it is unpacked
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Bytes>,
    /// Files to copy at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: u32,
    /// Write all figures as JSON; with -, JSON goes to stdout and the summary to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
}

#[derive(Args, Debug)]
pub(crate) struct IndexArgs {
    /// Folder of tars, or a url such as s3://bucket/shards; shards.infeed is written into it
    #[arg(value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Write all figures as JSON; with -, JSON goes to stdout and the summary to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
}

#[derive(Args, Debug)]
pub(crate) struct PrepareArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Where to write: a new or empty folder, or a bucket and prefix; interrupted work resumes
    #[arg(value_hint = ValueHint::DirPath)]
    pub out: String,
    /// Resize so that the shorter side has N pixels; smaller images stay as they are
    #[arg(long, value_name = "N", conflicts_with = "resize")]
    pub shorter: Option<u32>,
    /// Resize to exactly this size
    #[arg(long, value_name = "HxW")]
    pub resize: Option<Pair>,
    /// Store JPEGs of this quality, 1 to 100 [default: files as they are; 90 if resized]
    #[arg(long, value_name = "Q", conflicts_with = "raw")]
    pub quality: Option<u8>,
    /// Turn images that are encoded again as their files record it; the new files record no orientation [default:
    /// auto]
    #[arg(long, value_name = "HOW")]
    pub orientation: Option<OrientationArg>,
    /// Write progressive JPEGs anew as baseline JPEGs: the same pixels, which decode faster
    #[arg(long, conflicts_with_all = ["quality", "raw"])]
    pub baseline: bool,
    /// Put a restart marker after each row of blocks in the JPEGs that are encoded or written anew
    #[arg(long, conflicts_with = "raw")]
    pub restart_markers: bool,
    /// Store pixels instead of encoded images: no decoding, but ten times the space
    #[arg(long)]
    pub raw: bool,
    /// Pack records in a random order with this seed
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,
    /// Source bytes per shard
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with = "parts")]
    pub shard_size: Bytes,
    /// Make N shards with equal numbers of records
    #[arg(long, value_name = "N")]
    pub parts: Option<NonZeroU64>,
    /// Prefix of the shards' names
    #[arg(long, value_name = "NAME", default_value = "shard")]
    pub name: String,
    /// Rank of this process, below --world-size [default: from the launcher's environment]
    #[arg(long, value_name = "R", requires = "world_size")]
    pub rank: Option<u32>,
    /// Number of processes that share the work [default: from the launcher's environment]
    #[arg(long, value_name = "W", requires = "rank")]
    pub world_size: Option<u32>,
    /// Threads that decode and encode [default: auto, one per core]
    #[arg(short, long, value_name = "auto|N", value_parser = auto_whole)]
    pub workers: Option<Auto<usize>>,
    /// What to do with an image that cannot be decoded, or a file that cannot be read [default: stop]
    #[arg(long, value_name = "HOW", conflicts_with = "skip_bad")]
    pub on_bad_sample: Option<OnBadImage>,
    /// Leave such images out, but stop if there are more than N
    #[arg(long, value_name = "N")]
    pub skip_bad: Option<u64>,
    /// Most unreadable files or objects that may be left out; one more ends the work [default: 16, or one in a hundred]
    #[arg(long, value_name = "N")]
    pub max_unreadable: Option<u64>,
    /// Write all figures as JSON; with -, JSON goes to stdout and the summary to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

/// Only the dataset's list of records is read. Values that are not given are assumed or were measured elsewhere; the
/// output names them.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// Dataset (a folder, or a url such as s3://bucket/train), opened to count records, bytes and objects; or give
    /// --records and --record-bytes
    #[arg(value_hint = ValueHint::AnyPath, required_unless_present = "records")]
    pub url: Option<String>,
    /// Number of records, for example 1.28e6
    #[arg(long, value_name = "N", value_parser = units::parse_count, conflicts_with = "url", requires = "record_bytes")]
    pub records: Option<u64>,
    /// Average bytes per record
    #[arg(long, value_name = "SIZE", conflicts_with = "url")]
    pub record_bytes: Option<Bytes>,
    /// Number of objects that hold the records [default: one per record]
    #[arg(long, value_name = "N", value_parser = units::parse_count, conflicts_with = "url")]
    pub objects: Option<u64>,
    /// Numbers of nodes to calculate
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1000",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub nodes: Vec<u64>,
    /// Epochs of the run
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub epochs: u64,
    /// Batches between two saves of the state for --resume
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub state_every: u64,
    /// Write all figures as JSON; with -, JSON goes to stdout and the tables to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

/// A node, for `plan`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeArgs {
    /// Processes per node, one for each GPU
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub ranks_per_node: u64,
    /// Samples per second that the trainer of a rank takes [default: 1786, ResNet-50 on an H100 by MLPerf Storage]
    #[arg(long, value_name = "N", value_parser = units::parse_positive, conflicts_with = "step_time")]
    pub rate: Option<f64>,
    /// Samples per batch, on each rank
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub batch_size: u64,
    /// Time of the trainer per batch, instead of --rate
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub step_time: Option<Duration>,
    /// Cores per node for loading
    #[arg(long, value_name = "N", value_parser = units::parse_positive, default_value = "96")]
    pub cores: f64,
    /// Milliseconds of one core per sample, after reading; 0 for decoding on a GPU [default: 1.286, measured on
    /// photographs of 108 KB]
    #[arg(long, value_name = "MS", value_parser = units::parse_amount)]
    pub ms_per_image: Option<f64>,
    /// Network bandwidth of a node, in bytes or bits per second
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, default_value = "100Gbit/s")]
    pub bandwidth: f64,
    /// Cache near the trainers: SIZE for a folder on each node, ram:SIZE for memory of each process
    #[arg(long, value_name = "SIZE|ram:SIZE")]
    pub cache: Option<Room>,
    /// Encoded bytes that each rank reads ahead; the option --memory-budget of infeed run may lower it
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub read_ahead: Bytes,
}

/// The store, for `plan`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Time from a request to its first byte
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, default_value = "30ms")]
    pub latency: Duration,
    /// Bandwidth of one connection
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, default_value = "85MB/s")]
    pub connection_bandwidth: f64,
    /// Bandwidth of the store for all nodes together [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub bandwidth_total: Option<f64>,
    /// Prefixes that the requests are spread over, each good for 5,500 per second; ImageNet's class folders are 1000
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub prefixes: u64,
    /// Bandwidth of a file system that all nodes share, in total [default: no shared file system]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub shared_bandwidth: Option<f64>,
    /// US dollars per 1,000 read requests [default: list price of S3 Standard, us-east-1, 2025-06]
    #[arg(long, value_name = "USD", value_parser = units::parse_amount, default_value = "0.0004", hide_default_value = true)]
    pub usd_per_1000: f64,
    /// US dollars per GB that leaves the store
    ///
    /// S3's list prices of 2025-06: nothing within its region, 0.02 to another region in the US, 0.09 to the internet.
    #[arg(long, value_name = "USD", value_parser = units::parse_amount, default_value = "0")]
    pub usd_per_gb: f64,
    /// Bytes per shard, if infeed prepare packs the dataset
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub shard_size: Bytes,
}

/// `SIZE` or `ram:SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Folder(u64),
    Ram(u64),
}

impl FromStr for Room {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("ram:") {
            Some(size) => units::parse_size(size).map(Self::Ram),
            None => units::parse_size(text).map(Self::Folder),
        }
    }
}

/// `HxW`, or one number for a square.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair(pub u32, pub u32);

impl FromStr for Pair {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (height, width) = text.split_once('x').unwrap_or((text, text));
        let number = |text: &str| text.parse().map_err(|_| "use height and width, such as 256x256".to_owned());
        Ok(Self(number(height)?, number(width)?))
    }
}

#[derive(Args, Debug)]
pub(crate) struct SynthArgs {
    /// Kind of data to generate
    pub kind: SynthKind,
    /// Target folder, new or empty
    pub dir: PathBuf,
    /// Records or patients to generate (for CIFAR the training records; a fifth as many test records are added)
    #[arg(long, value_name = "N")]
    pub count: u64,
    /// Number of classes [default: 1000 for imagenet, 257 for caltech, 10 for tiff, at most one per record]
    #[arg(long, value_name = "K")]
    pub classes: Option<u64>,
    /// Volumes: voxels along each axis [default: 144]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub side: Option<u32>,
    /// Volumes: store them uncompressed
    #[arg(long)]
    pub raw: bool,
    /// Seed that decides every byte: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub tiff: TiffArgs,
}

/// Images of `synth tiff`.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TIFF")]
pub(crate) struct TiffArgs {
    /// Channels per image [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub channels: Option<u32>,
    /// Height and width in pixels [default: 50x50]
    #[arg(long, value_name = "HxW")]
    pub size: Option<Sides>,
    /// Type of the values [default: u8]
    #[arg(long, value_name = "TYPE")]
    pub pixels: Option<PixelsArg>,
    /// How channels are stored [default: interleaved]
    #[arg(long, value_name = "HOW")]
    pub planes: Option<TiffLayout>,
}

impl TiffArgs {
    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { channels, size, pixels, planes } = self;
        let given = [
            (channels.is_some(), "--channels"),
            (size.is_some(), "--size"),
            (pixels.is_some(), "--pixels"),
            (planes.is_some(), "--planes"),
        ];
        given.into_iter().find_map(|(is, name)| is.then_some(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TiffLayout {
    /// Pixel by pixel, each with all its channels
    Interleaved,
    /// Plane by plane, in one page
    Planar,
    /// One page for each channel
    Pages,
    /// One file for each channel: NAME_1.tif, NAME_2.tif, …
    Files,
}

/// Height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sides {
    pub height: u32,
    pub width: u32,
}

impl FromStr for Sides {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let side = |text: &str| text.parse().ok().filter(|side| (1..=32_768).contains(side));
        let sides = text.split_once('x').and_then(|(height, width)| Some((side(height)?, side(width)?)));
        sides
            .map(|(height, width)| Self { height, width })
            .ok_or_else(|| "write it as 50x50, sides of 1 to 32768".into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SynthKind {
    /// Class folders of photographs, about 500x375 and 105 KB
    Imagenet,
    /// 257 class folders of smaller photographs
    Caltech,
    /// The photographs of imagenet, in tar shards
    Tar,
    /// Binary files in CIFAR's own format, 10 classes
    Cifar10,
    /// Binary files in CIFAR's own format, 100 classes in 20 groups
    Cifar100,
    /// Class folders of small images with many channels
    Tiff,
    /// Patients with CT, PET and two masks, 144x144x144
    Nrrd,
}

/// A copy of a library enum for clap, because the library does not depend on clap.
macro_rules! value_enum {
    ($(#[$doc:meta])* $name:ident => $target:ty { $($(#[$variant_doc:meta])* $variant:ident => $value:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, ValueEnum)]
        pub(crate) enum $name { $($(#[$variant_doc])* $variant),* }

        impl From<$name> for $target {
            fn from(arg: $name) -> Self {
                match arg { $($name::$variant => $value),* }
            }
        }
    };
}

value_enum!(
    /// `--dtype`
    DTypeArg => DType { F32 => Self::F32, F16 => Self::F16, Bf16 => Self::Bf16, U8 => Self::U8, I16 => Self::I16 }
);
value_enum!(
    /// `--pixels`
    PixelsArg => DType { U8 => Self::U8, U16 => Self::U16, F32 => Self::F32 }
);
value_enum!(
    /// `--autotune`, `--accounting`, `--decode-cut`
    OnOff => bool { On => true, Off => false }
);
value_enum!(
    /// `--layout`
    LayoutArg => Layout { Nchw => Self::Nchw, Nhwc => Self::Nhwc }
);
value_enum!(
    /// `--orientation`
    OrientationArg => Orientation {
        /// Turn images of Hugging Face's tables and folders and of YOLO, as their libraries do, and no others
        Auto => Self::Auto,
        /// Turn and mirror images upright
        Apply => Self::Apply,
        /// Leave images as they are stored
        Ignore => Self::Ignore,
    }
);
value_enum!(
    /// `--decode`
    DecodeArg => Decode {
        /// CPU threads, and the GPU's JPEG engines and CUDA streams while the trainer waits
        Auto => Self::Auto,
        /// JPEG engines first; an error if the GPU has none
        Gpu => Self::Gpu,
        /// CPU threads only
        Cpu => Self::Cpu,
    }
);
value_enum!(
    /// `--gpu-split`
    SplitArg => GpuSplit {
        /// The next idle decoder takes the next image
        Adaptive => Self::Adaptive,
        /// The image decides, so that runs on one machine repeat to the byte
        Fixed => Self::Fixed,
    }
);
value_enum!(
    /// `--verify`
    VerifyArg => Verify {
        /// CRCs, which cost almost nothing; over plain http as checksums
        Auto => Self::Auto,
        /// All that the store reports, MD5s included: 0.3 ms per 100 KB
        Checksums => Self::Checksums,
        /// Lengths and versions only
        Never => Self::Never,
    }
);
value_enum!(
    /// `--last-batch`
    LastBatchArg => LastBatch {
        /// Leave them out
        Drop => Self::Drop,
        /// Make a shorter batch
        Partial => Self::Partial,
        /// Fill the batch with records from the start of the epoch
        Pad => Self::Pad,
    }
);

/// `--on-bad-sample`
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnBadSampleArg {
    /// End the run with the error
    Stop,
    /// Leave the sample out; the batch gets shorter
    Skip,
    /// Leave the sample out; zeros at the end keep the batch's shape
    SkipPadded,
    /// Replace it by another sample of the batch
    Substitute,
}

/// `--on-bad-sample` of `prepare`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnBadImage {
    /// End the work with the error
    Stop,
    /// Leave it out of the shards
    Skip,
}

/// `auto` or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Auto<T>(pub Option<T>);

impl<T: FromStr<Err: fmt::Display>> FromStr for Auto<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self(None));
        }
        text.parse().map(|value| Self(Some(value))).map_err(|error: T::Err| format!("{error}; or use auto"))
    }
}

/// `auto` or a whole number.
fn auto_whole(text: &str) -> Result<Auto<usize>, String> {
    match text {
        "auto" => Ok(Auto(None)),
        _ => units::parse_whole(text).map(|n| Auto(Some(n))).map_err(|error| format!("{error}, or auto")),
    }
}

/// A size with a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        units::parse_size(text).map(Self)
    }
}

/// `--weights`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Weights {
    Balanced,
    File(PathBuf),
}

impl FromStr for Weights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(if text == "balanced" { Self::Balanced } else { Self::File(text.into()) })
    }
}

/// `--shuffle`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Off,
    Seed(u64),
}

impl FromStr for Shuffle {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::Off),
            _ => text.parse().map(Self::Seed).map_err(|_| "use a whole number as seed, or none".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn auto_is_a_value_of_its_own() {
        assert_eq!("auto".parse::<Auto<usize>>(), Ok(Auto(None)));
        assert_eq!("4".parse::<Auto<usize>>(), Ok(Auto(Some(4))));
        assert_eq!("2GiB".parse::<Auto<Bytes>>(), Ok(Auto(Some(Bytes(2 << 30)))));
        assert!("many".parse::<Auto<usize>>().is_err());
        assert!("-1".parse::<Auto<usize>>().is_err());
    }

    #[test]
    fn a_size_is_a_pair_or_a_square() {
        assert_eq!("256x224".parse(), Ok(Pair(256, 224)));
        assert_eq!("256".parse(), Ok(Pair(256, 256)));
        assert!("256x".parse::<Pair>().is_err() && "-1x3".parse::<Pair>().is_err());
    }

    #[test]
    fn room_is_of_a_node_or_of_a_rank() {
        assert_eq!("2TB".parse(), Ok(Room::Folder(2_000_000_000_000)));
        assert_eq!("ram:4GiB".parse(), Ok(Room::Ram(4 << 30)));
        assert!("ram:4".parse::<Room>().is_err() && "/scratch".parse::<Room>().is_err());
    }

    #[test]
    fn devices_are_named_as_in_frameworks() {
        assert_eq!("cuda:3".parse::<Auto<Device>>(), Ok(Auto(Some(Device::Cuda(3)))));
        assert_eq!("auto".parse::<Auto<Device>>(), Ok(Auto(None)));
        assert!("gpu".parse::<Auto<Device>>().is_err());
    }
}
