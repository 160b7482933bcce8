//! Arguments as typed. Values are parsed here; whether they fit together is for the commands to say.

use std::{fmt, net::SocketAddr, num::NonZeroU64, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use infeed::{
    DType, Dataset, Device, Layout,
    codec::{Decode, Orientation, Split},
    dataset::Filter,
    sampler::LastBatch,
    source::{CacheSpec, Verify},
    transform::{View, augment::Mix},
};

use crate::{failure::Failure, help, out::JsonTarget, parts::Part, units};

/// Loads training data: batches as fast as the machine can make them, in an exact order, within a memory bound.
///
/// Without a command: runs the demo.
#[derive(Debug, Parser)]
#[command(name = "infeed", version, max_term_width = 100, after_help = help::INFEED)]
pub(crate) struct Cli {
    /// Write nothing to stderr but warnings and errors: no progress bars, and no lines while it runs
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a small dataset, load it for a simulated training, and show what happened
    #[command(after_help = help::DEMO)]
    Demo,
    /// Load a dataset as a training would, and tell how fast: a line every 20 batches, then a summary
    #[command(after_help = help::RUN)]
    Run(Box<WatchedArgs>),
    /// Show where the time of a run goes: a table per stage, the first batch apart, each stage alone
    #[command(after_help = help::PROFILE)]
    Profile(Box<ProfileArgs>),
    /// Try each combination of workers, batch size and more, and find where more of them stop helping
    #[command(after_help = help::SWEEP)]
    Sweep(Box<SweepArgs>),
    /// Run two or more configurations in turn, and tell how much faster one is than the others
    #[command(after_help = help::COMPARE)]
    Compare(Box<CompareArgs>),
    /// Find what holds a training up, and the one change that would help most
    #[command(after_help = help::DOCTOR)]
    Doctor(Box<DoctorArgs>),
    /// Tell what a dataset holds: format, records, classes, sizes, fields, the first records
    #[command(after_help = help::INSPECT)]
    Inspect(InspectArgs),
    /// Copy a dataset to a local folder or RAM disk: verified, goes on after a stop, within a limit
    #[command(after_help = help::STAGE)]
    Stage(StageArgs),
    /// Resize, encode and pack a dataset into tar shards ahead of training, on all cores; goes on after a stop
    #[command(after_help = help::PREPARE)]
    Prepare(PrepareArgs),
    /// Calculate what training on many machines asks of a store, what it costs, and how best to read
    #[command(after_help = help::PLAN)]
    Plan(Box<PlanArgs>),
    /// Generate data with the statistics of the real thing
    #[command(after_help = help::SYNTH)]
    Synth(SynthArgs),
    /// Write what a shell completes names and options with, to stdout
    #[command(after_help = help::COMPLETIONS)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages: the main one to stdout, or one for each command to a folder
    #[command(after_help = help::MAN)]
    Man {
        /// Where to: a folder, made when it is not there [default: the main page to stdout]
        #[arg(value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
    /// Remove the demo's folder when the demo is gone, however it ended
    #[command(hide = true)]
    SweepUp { dir: PathBuf },
}

/// A run, and who looks on.
#[derive(Args, Debug)]
pub(crate) struct WatchedArgs {
    // First: headings of what follows would hold for it, too.
    #[command(flatten)]
    pub observers: ObserverArgs,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub(crate) struct ObserverArgs {
    /// Show rates, waits, stages, queues and the machine on the whole terminal while it runs; ? shows its keys and words,
    /// q ends the run
    #[arg(long, conflicts_with = "quiet")]
    pub live: bool,
    /// Serve figures to Prometheus at this address under /metrics, such as 127.0.0.1:9464; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Keep serving them for so long after the run, so that its last figures are scraped
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = units::parse_time, requires = "metrics")]
    pub metrics_linger: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Epochs of the whole run: a run that goes on with --resume does what is left of them
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: u64,
    /// Print a line each time this many batches are done
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub log_every: u64,
    /// Stop after this many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_batches: Option<u64>,
    /// Stop after the batch in which this much time has passed since the first
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub max_time: Option<Duration>,
    /// Tell a second rate that leaves out this much time at the start: that of a loader that has warmed up
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub warm_up: Option<Duration>,
    /// Simulated trainer: sleep this long for each batch
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::parse_time)]
    pub step_time: Duration,
    /// Sum a hash of every row: equal for equal data in equal order, whatever the workers, caches and store
    #[arg(long)]
    pub checksum: bool,
    /// Write the state to resume from after each logged batch and at the end
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,
    /// Go on where FILE was written, with its checksum so far, to the end of --epochs; an error when nothing is left
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Keep in FILE where the rows of each JPEG begin, as far as this run learned it, and begin with what is there: later
    /// epochs and runs decode only what a crop needs. Ranks may share one; inspect makes it ahead of time
    #[arg(long, value_name = "FILE")]
    pub decode_index: Option<PathBuf>,
    /// Turn JPEGs into 8-bit RGB before they are resized, as torchvision does: nearer to its values at edges of strong
    /// colours, and slower. On the CPU
    #[arg(long)]
    pub jpeg_exact: bool,
    /// Look at all data of each JPEG, whatever the crop, and refuse those with bytes left over, which other readers ignore
    #[arg(long)]
    pub jpeg_strict: bool,
    /// Write all figures as JSON; with - to stdout, and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// Write a report for a browser: one file that needs no network
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
    /// Write what each thread did, moment by moment, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE.json")]
    pub trace: Option<PathBuf>,
    /// Leave out the measurements of each stage alone
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
    /// Epochs of each combination [default: as many as begin in 3 s, without --max-batches and --max-time]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,
    /// Stop each combination after this many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_batches: Option<u64>,
    /// Stop each combination after the batch in which this much time has passed since its first
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub max_time: Option<Duration>,
    /// Afterwards run workers and prefetch on auto and the best combination in turn, so many times each, and compare their
    /// rates once auto has settled
    #[arg(long, value_name = "ROUNDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub auto: Option<u64>,
    /// How long auto may take to settle
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = units::parse_time, requires = "auto")]
    pub settle: Duration,
    /// Simulated trainer: sleep this long for each batch
    #[arg(long, value_name = "TIME", default_value = "0ms", value_parser = units::parse_time)]
    pub step_time: Duration,
    /// Keep the figures in FILE after each combination, and go on where it ends
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the combinations as a table of comma-separated values
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
    /// Write all figures as JSON; with - to stdout, and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// Write a report for a browser: one file that needs no network
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
    /// What a configuration is called; several times, in their order [default: as it was given]
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    pub names: Vec<String>,
    /// Rounds to measure; in each every configuration runs once, and every second round goes through them in reverse
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Rounds before them, whose figures are left out: they fill the caches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub warmup: u64,
    /// Write the table for Markdown
    #[arg(long, value_name = "FILE.md")]
    pub export_markdown: Option<PathBuf>,
    /// Write all figures of all rounds as JSON; with - to stdout, and the table to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    /// What all configurations share: options of infeed run, and the dataset if it is one for all. Of what a configuration
    /// says itself its own counts [default: runs of 3 s, without --epochs, --max-batches and --max-time]
    #[arg(last = true, value_name = "ARGUMENTS OF RUN")]
    pub shared: Vec<String>,
}

/// What a sweep goes through; each option takes a list.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Lists to try")]
pub(crate) struct ListArgs {
    /// Samples in a batch, of each process [default: 256]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = units::parse_rows)]
    pub batch_size: Vec<usize>,
    /// Element types of images [default: f32]
    #[arg(long, value_name = "TYPE,…", value_delimiter = ',')]
    pub dtype: Vec<DTypeArg>,
    /// Where batches are made: cpu, cuda:N, or auto [default: cpu]
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    pub device: Vec<Auto<Device>>,
    /// Decoding threads [default: auto]
    #[arg(short, long, value_name = "N,…", value_delimiter = ',', value_parser = auto_whole)]
    pub workers: Vec<Auto<usize>>,
    /// Batches made ahead of the trainer [default: auto]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = auto_whole)]
    pub prefetch: Vec<Auto<usize>>,
}

/// What is said of a dataset beside its url.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Dataset")]
pub(crate) struct DatasetArgs {
    /// Read it as this format, whatever its names say: folder, coco, voc, yolo, tar, mds, tfrecord, parquet, zarr, hdf5,
    /// arrays, volumes, dicom, cifar10 or cifar100
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Images: take labels from this table of files and labels (CSV, TSV, text with blanks between them, JSON, JSON lines): a
    /// file of the dataset, else a path or url. Labels are numbers or class names
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub labels: Option<String>,
    /// Take only the images that the table of labels lists [default: an image without a label is an error]
    #[arg(long)]
    pub labels_only: bool,
    /// The column of the labels, of a table that has several
    #[arg(long, value_name = "NAME")]
    pub label_column: Option<String>,
    /// Take boxes of the images from COCO's JSON: a file of the dataset, else a path or url
    #[arg(long, value_name = "FILE")]
    pub annotations: Option<String>,
    /// COCO, YOLO: read outlines too. With a pattern it is --mask-files
    #[arg(long)]
    pub masks: bool,
    /// Images with masks that are files: how these are named, like masks/{stem}_mask.png [default: by the names that public
    /// datasets use, such as images and masks, train and train_masks, a.jpg and a_mask.png]
    #[arg(long, value_name = "PATTERN")]
    pub mask_files: Option<String>,
    /// The part of a dataset that has several, like train, val or test
    #[arg(long, value_name = "NAME")]
    pub split: Option<String>,
    /// Put the files of an image's channels together, by a pattern such as {name}_{channel}.tif or
    /// {name}_{channel:dapi,gfp}.tif
    #[arg(long, value_name = "PATTERN")]
    pub channels: Option<String>,
    /// Volumes: which file is which field of which patient, like {patient}_{field}.nrrd
    /// [default: {patient}/{field}; without folders {patient}_{field}]
    #[arg(long, value_name = "PATTERN")]
    pub pattern: Option<String>,
    /// What a field is, like gt=mask: mask, mask16 (values up to 65535), image, label or bytes; of volumes the files that are
    /// its channels, like image=ct+pet; several times [default: images and files called mask, label, seg, tumor_mask,
    /// annotation and the like are masks]
    #[arg(long = "field", value_name = "NAME=WORD[+WORD]", value_parser = parse_field)]
    pub fields: Vec<(String, Vec<String>)>,
    /// Shards (tar, MDS, TFRecord): read these fields alone, like image,label
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Volumes: records of each patient [default: 1]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples_per_patient: Option<u64>,
    /// Keep one listing for a whole job in this file, which all ranks reach: rank 0 lists and writes it, the others read it
    #[arg(long, value_name = "FILE|URL", conflicts_with = "part")]
    pub listing: Option<String>,
    /// Read shards of `prepare` although others of it are missing [default: an error that names them]
    #[arg(long)]
    pub allow_incomplete: bool,
    /// Another dataset to mix with URL, and its share of an epoch: URL,proportion=0.7 (a weight among the others),
    /// URL,repeat=2 (each record so often) or URL,choose=10000 (so many samples), and ,name=NAME for the report; several
    /// times. URL itself takes a share in the same way then [default: repeat=1]
    #[arg(long, value_name = "URL[,SHARE]")]
    pub part: Vec<Part>,
    /// Leave out records that do not pass: label=cat,dog or label!=3, caption~=PATTERN, caption*=TEXT, width>=256; also of
    /// object (its name) and of values in JSON (json.width>=256); several times, for all of them. Reads what is asked for,
    /// of every record, where the dataset does not know it already
    #[arg(long = "filter", value_name = "FIELD=VALUE", conflicts_with = "record_list")]
    pub filters: Vec<Filter>,
    /// Take the records that FILE lists, by number or by name of their object, one a line
    #[arg(long, value_name = "FILE", conflicts_with = "part")]
    pub record_list: Option<String>,
    /// How long a store may give nothing before the run ends with an error [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub patience: Option<Duration>,
}

impl DatasetArgs {
    /// All parts, the first of which is `url`; none without --part.
    pub(crate) fn parts(&self, url: &str) -> Result<Vec<Part>, Failure> {
        if self.part.is_empty() {
            return Ok(Vec::new());
        }
        let first = url.parse().map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
        Ok([first].into_iter().chain(self.part.iter().cloned()).collect())
    }

    /// The dataset at `url`, or those of all parts together. `rank` is asked for when it matters who lists.
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

    /// The same for the library. `rank` is asked for when it matters who lists.
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
    /// The part of the dataset that was asked for.
    fn split(&self) -> Option<&str> {
        self.split.as_deref().filter(|_| self.gpu_split().is_none())
    }

    /// `--split` meant the decoders of a GPU before it meant the dataset, and its two words still do.
    pub(crate) fn gpu_split(&self) -> Option<SplitArg> {
        SplitArg::from_str(self.split.as_deref()?, false).ok()
    }

    /// The first option that was given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let Self { format, annotations, masks, channels, pattern, fields, columns, samples_per_patient, .. } = self;
        let Self { labels, split, patience, listing, allow_incomplete, part, filters, record_list, .. } = self;
        let Self { labels_only, label_column, mask_files, .. } = self;
        let given = [
            (format.is_some(), "--format"),
            (labels.is_some(), "--labels"),
            (*labels_only, "--labels-only"),
            (label_column.is_some(), "--label-column"),
            (annotations.is_some(), "--annotations"),
            (split.is_some(), "--split"),
            (*masks, "--masks"),
            (mask_files.is_some(), "--mask-files"),
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

fn parse_field(text: &str) -> Result<(String, Vec<String>), String> {
    let (name, files) = text.split_once('=').unwrap_or((text, text));
    let files: Vec<String> = files.split('+').map(str::to_owned).collect();
    match name.is_empty() || files.iter().any(String::is_empty) {
        true => Err("write it like gt=mask, or of volumes like image=ct+pet".into()),
        false => Ok((name.into(), files)),
    }
}

/// Options of the loader; each has an equivalent in the config file and overrides it.
#[derive(Args, Debug)]
pub(crate) struct LoaderArgs {
    #[command(flatten)]
    pub swept: SweptArgs,
    #[command(flatten)]
    pub fixed: FixedArgs,
}

/// Options of which a sweep takes lists.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loader")]
pub(crate) struct SweptArgs {
    /// Samples in a batch, of each process [default: 256]
    #[arg(short, long, value_name = "N", value_parser = units::parse_rows)]
    pub batch_size: Option<usize>,
    /// Element type of images [default: f32]
    #[arg(long, value_name = "TYPE")]
    pub dtype: Option<DTypeArg>,
    /// Where batches are made: cpu, cuda:N, or auto: on a GPU when there is one [default: cpu]
    #[arg(long, value_name = "auto|DEVICE")]
    pub device: Option<Auto<Device>>,
    /// Decoding threads [default: auto, one for each core over the processes of the machine at first, then what the run
    /// needs]
    #[arg(short, long, value_name = "auto|N", value_parser = auto_whole)]
    pub workers: Option<Auto<usize>>,
    /// Batches made ahead of the trainer [default: auto]
    #[arg(long, value_name = "auto|N", value_parser = auto_whole)]
    pub prefetch: Option<Auto<usize>>,
}

/// The others.
#[derive(Args, Debug)]
#[command(next_help_heading = "Loader")]
pub(crate) struct FixedArgs {
    /// Settings from a TOML file; options given here override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A JSON file, a name (imagenet-train, imagenet-val, cifar-train, cifar-val, caltech, cells, torchvision-v2-train,
    /// torchvision-v2-val, deit-train, timm-a1, simclr, dino, dino-global-1, dino-global-2, dino-local, none), or steps:
    /// 'random_resized_crop:176;horizontal_flip;trivial_augment_wide;normalize;random_erasing:0.1'
    /// [default: imagenet-train; cifar-train where all records are 32x32; cells for other channels than 3]
    #[arg(short, long, value_name = "NAME|FILE.json|STEPS")]
    pub transform: Option<String>,
    /// Several rows of each image, which is read and decoded once: NAME=STEPS or NAME*COUNT=STEPS for each, such as
    /// --view 'global*2=random_resized_crop:224;normalize' --view 'local*8=random_resized_crop:96;normalize'; --transform
    /// dino has those of DINO. The field image becomes image.global0 and so on [default: none]
    #[arg(long = "view", value_name = "NAME=STEPS", conflicts_with = "transform")]
    pub views: Vec<View>,
    /// MixUp, CutMix and label smoothing of whole batches, such as
    /// 'mixup=0.2,cutmix=1,switch_prob=0.5,prob=1,per=batch,label_smoothing=0.1,classes=1000'; per=pair is timm's. On the
    /// CPU [default: none]
    #[arg(long, value_name = "SETTINGS")]
    pub mix: Option<Mix>,
    /// Order of the axes [default: nchw]
    #[arg(long, value_name = "LAYOUT")]
    pub layout: Option<LayoutArg>,
    /// Whether images are turned as their files say: EXIF of JPEG, WebP and PNG, the tag Orientation of TIFF
    /// [default: ignore]
    #[arg(long, value_name = "HOW")]
    pub orientation: Option<OrientationArg>,
    /// Whether workers and prefetch that are on auto follow the run [default: on]
    #[arg(long, value_name = "HOW")]
    pub autotune: Option<OnOff>,
    /// Whether the loader writes down where its time goes; off is there to measure what that costs [default: on]
    #[arg(long, value_name = "HOW")]
    pub accounting: Option<OnOff>,
    /// Largest record in encoded bytes: a larger one is a bad sample and not read [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub max_record_bytes: Option<Auto<Bytes>>,
    /// Host memory the loader may use [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub memory_budget: Option<Auto<Bytes>>,
    /// The most memory that decoding one image may take; larger ones are bad samples
    /// [default: what the budget allows, at most 320MiB]
    #[arg(long, value_name = "SIZE")]
    pub max_image_bytes: Option<Bytes>,
    /// Device memory the loader may use [default: auto]
    #[arg(long, value_name = "auto|SIZE")]
    pub device_budget: Option<Auto<Bytes>>,
    /// Who decodes JPEGs where batches are made on a GPU [default: auto]
    #[arg(long, value_name = "WHO")]
    pub decode: Option<DecodeArg>,
    /// Whether JPEG engines get files that end with the crop's last row, so that they decode no more [default: on]
    #[arg(long, value_name = "HOW")]
    pub decode_cut: Option<OnOff>,
    /// CUDA streams that decode beside the hardware engines [default: auto, which is none]
    #[arg(long, value_name = "auto|N")]
    pub streams: Option<Auto<usize>>,
    /// How the decoders of a GPU share the images among them [default: adaptive]
    #[arg(long, value_name = "HOW")]
    pub gpu_split: Option<SplitArg>,
    /// Requests in flight to a remote store [default: auto]
    #[arg(long, value_name = "auto|N")]
    pub io_concurrency: Option<Auto<usize>>,
    /// Compare whole objects of a remote store with the checksums and MD5s that it tells of them [default: auto]
    #[arg(long, value_name = "HOW")]
    pub verify: Option<VerifyArg>,
    /// Keep what is read from a remote store in a folder (shared by all processes) or in memory
    #[arg(long, value_name = "DIR:SIZE|ram:SIZE")]
    pub cache: Option<CacheSpec>,
    /// Keep decoded pixels from epoch to epoch, in a folder (shared by all processes) or in memory; doctor says what it brings
    #[arg(long, value_name = "DIR:SIZE|ram:SIZE")]
    pub decoded_cache: Option<CacheSpec>,
    /// Random order with this seed; none reads in sequence [default: none]
    #[arg(long, value_name = "SEED|none")]
    pub shuffle: Option<Shuffle>,
    /// Draw records by weight, with replacement: balanced gives each class as often as the others, FILE has a number a line,
    /// one for each record. With --shuffle's seed [default: none]
    #[arg(long, value_name = "balanced|FILE", conflicts_with_all = ["part", "aug_repeats"])]
    pub weights: Option<Weights>,
    /// Samples of an epoch, of records drawn by weight or of parts with proportions [default: as many as there are records]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub samples: Option<u64>,
    /// Records of a measurement, which lie in memory: in sequence, whatever was asked for.
    #[arg(skip)]
    pub in_sequence: bool,
    /// Repeated augmentation: each record comes so often one after another, augmented anew, on as many ranks as there are;
    /// an epoch is as long as ever, and holds one record in N. Goes with --shuffle [default: 1]
    #[arg(long, value_name = "N", requires = "shuffle")]
    pub aug_repeats: Option<u32>,
    /// Seed of augmentation [default: the shuffle's]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// What becomes of the records that do not fill a batch [default: drop]
    #[arg(long, value_name = "HOW")]
    pub last_batch: Option<LastBatchArg>,
    /// This process among --world-size [default: from the launcher's environment]
    #[arg(long, value_name = "R", requires = "world_size")]
    pub rank: Option<u32>,
    /// Processes of the run [default: from the launcher's environment]
    #[arg(long, value_name = "W", requires = "rank")]
    pub world_size: Option<u32>,
    /// What to do with a sample that can't be used [default: stop]
    #[arg(long, value_name = "HOW")]
    pub on_bad_sample: Option<OnBadSampleArg>,
    /// Where bad samples do not end the run: unreadable files or objects that do if there are more [default: 16, or one in a hundred]
    #[arg(long, value_name = "N")]
    pub max_unreadable: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    #[arg(required_unless_present = "devices")]
    pub url: Option<String>,
    /// Tell what GPU there is, or why there is none
    #[arg(long)]
    pub devices: bool,
    /// How many of the first records to show
    #[arg(long, value_name = "N", default_value_t = 5, requires = "url")]
    pub records: u64,
    /// Mean and deviation of each channel, ready for a transform, over all records or --count of them
    #[arg(long, requires = "url")]
    pub stats: bool,
    /// Records of --stats, evenly spread [default: all]
    #[arg(long, value_name = "N", requires = "stats", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Write a picture of transformed samples, each with its class and file name; .png or .jpg
    #[arg(long, value_name = "FILE", requires = "url")]
    pub sheet: Option<PathBuf>,
    /// On the sheet, a row for each augmentation of the transform, alone; of all there are, if it has none
    #[arg(long, requires = "sheet")]
    pub ops: bool,
    /// Transform of the sheet, as for run [default: as for run]
    #[arg(short, long, value_name = "NAME|FILE.json|STEPS", requires = "sheet")]
    pub transform: Option<String>,
    /// Views of the sheet, as for run: a row for each record
    #[arg(long = "view", value_name = "NAME=STEPS", requires = "sheet", conflicts_with = "transform")]
    pub views: Vec<View>,
    /// The most memory that decoding one image of the sheet may take [default: 320MiB]
    #[arg(long, value_name = "SIZE", requires = "sheet")]
    pub max_image_bytes: Option<Bytes>,
    /// Shuffle and augment the sheet with this seed
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sheet")]
    pub seed: u64,
    /// Look at all of each JPEG once and leave in FILE where its rows begin, beside what FILE knows: run --decode-index FILE
    /// decodes at the speed of later epochs from the first one on
    #[arg(long, value_name = "FILE", requires = "url")]
    pub decode_index: Option<PathBuf>,
    /// Write all figures as JSON; with - to stdout, and the tables to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct StageArgs {
    /// What to copy: a dataset (a folder, or a url such as s3://bucket/train), or an archive (.tar, .tar.gz, .tgz,
    /// .tar.zst) that is unpacked
    #[arg(value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Where to: a folder, made when it is not there; a copy that broke off goes on
    pub dir: PathBuf,
    /// The most that may lie in the folder; an archive lies there until it is unpacked
    #[arg(long, value_name = "SIZE")]
    pub limit: Option<Bytes>,
    /// Files copied at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: u32,
    /// Write all figures as JSON; with - to stdout, and the words to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
}

#[derive(Args, Debug)]
pub(crate) struct PrepareArgs {
    #[arg(help = help::DATASET, long_help = help::DATASET_LONG, value_hint = ValueHint::AnyPath)]
    pub url: String,
    /// Where to: a new or empty folder, or a bucket and prefix; work that broke off there goes on
    #[arg(value_hint = ValueHint::DirPath)]
    pub out: String,
    /// Resize so that the shorter side has N pixels; smaller images stay as they are
    #[arg(long, value_name = "N", conflicts_with = "resize")]
    pub shorter: Option<u32>,
    /// Resize to exactly this size
    #[arg(long, value_name = "HxW")]
    pub resize: Option<Pair>,
    /// Store JPEG of this quality, 1 to 100 [default: as they are; 90 where resized]
    #[arg(long, value_name = "Q", conflicts_with = "raw")]
    pub quality: Option<u8>,
    /// Whether images that are encoded anew are turned first, as their files say, which then say it no more
    /// [default: ignore]
    #[arg(long, value_name = "HOW")]
    pub orientation: Option<OrientationArg>,
    /// Put a restart marker behind each row of blocks of the JPEGs that are encoded
    #[arg(long, conflicts_with = "raw")]
    pub restart_markers: bool,
    /// Store pixels: ten times the space, no decoding
    #[arg(long)]
    pub raw: bool,
    /// Pack in a random order with this seed
    #[arg(long, value_name = "SEED")]
    pub shuffle: Option<u64>,
    /// Bytes of the source in a shard
    #[arg(long, value_name = "SIZE", default_value = "256MiB", conflicts_with = "parts")]
    pub shard_size: Bytes,
    /// Make N shards of equal numbers of records
    #[arg(long, value_name = "N")]
    pub parts: Option<NonZeroU64>,
    /// Begin the shards' names with this
    #[arg(long, value_name = "NAME", default_value = "shard")]
    pub name: String,
    /// This process among --world-size [default: from the launcher's environment]
    #[arg(long, value_name = "R", requires = "world_size")]
    pub rank: Option<u32>,
    /// Processes that share the work [default: from the launcher's environment]
    #[arg(long, value_name = "W", requires = "rank")]
    pub world_size: Option<u32>,
    /// Threads that decode and encode [default: auto, one for each core]
    #[arg(short, long, value_name = "auto|N", value_parser = auto_whole)]
    pub workers: Option<Auto<usize>>,
    /// What to do with an image that can't be decoded, or a file that can't be read [default: stop]
    #[arg(long, value_name = "HOW", conflicts_with = "skip_bad")]
    pub on_bad_sample: Option<OnBadImage>,
    /// Leave them out, but stop when there are more than this many
    #[arg(long, value_name = "N")]
    pub skip_bad: Option<u64>,
    /// Where they are left out: unreadable files or objects that end the work if there are more [default: 16, or one in a hundred]
    #[arg(long, value_name = "N")]
    pub max_unreadable: Option<u64>,
    /// Write all figures as JSON; with - to stdout, and the words to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

/// Nothing is read but the dataset's list of records; what is not said is assumed or was measured elsewhere, as the output
/// tells.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// Dataset (a folder, or a url such as s3://bucket/train), opened for its records, bytes and objects; or give --records
    /// and --record-bytes
    #[arg(value_hint = ValueHint::AnyPath, required_unless_present = "records")]
    pub url: Option<String>,
    /// Records of the dataset, such as 1.28e6
    #[arg(long, value_name = "N", value_parser = units::parse_count, conflicts_with = "url", requires = "record_bytes")]
    pub records: Option<u64>,
    /// Bytes of a record, on average
    #[arg(long, value_name = "SIZE", conflicts_with = "url")]
    pub record_bytes: Option<Bytes>,
    /// Objects that hold the records [default: one each]
    #[arg(long, value_name = "N", value_parser = units::parse_count, conflicts_with = "url")]
    pub objects: Option<u64>,
    /// Numbers of nodes
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128,256,512,1000",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub nodes: Vec<u64>,
    /// Epochs of the run
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub epochs: u64,
    /// Batches between two states to resume from
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub state_every: u64,
    /// Write all figures as JSON; with - to stdout, and the tables to stderr
    #[arg(long, value_name = "PATH|-")]
    pub json: Option<JsonTarget>,
    #[command(flatten)]
    pub node: NodeArgs,
    #[command(flatten)]
    pub store: StoreArgs,
    #[command(flatten)]
    pub dataset: DatasetArgs,
}

/// A node of `plan`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Node")]
pub(crate) struct NodeArgs {
    /// Processes on a node, one for each GPU
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub ranks_per_node: u64,
    /// Samples a second that the trainer of a rank takes [default: 1786, ResNet-50 on an H100 by MLPerf Storage]
    #[arg(long, value_name = "N", value_parser = units::parse_positive, conflicts_with = "step_time")]
    pub rate: Option<f64>,
    /// Rows of a batch on each rank
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 32))]
    pub batch_size: u64,
    /// Time of the trainer for a batch, in place of --rate
    #[arg(long, value_name = "TIME", value_parser = units::parse_time)]
    pub step_time: Option<Duration>,
    /// Cores of a node for loading
    #[arg(long, value_name = "N", value_parser = units::parse_positive, default_value = "96")]
    pub cores: f64,
    /// Milliseconds that one core takes for a sample whose bytes are there; 0 for decoding on a GPU
    /// [default: 1.286, measured on photographs of 108 KB]
    #[arg(long, value_name = "MS", value_parser = units::parse_amount)]
    pub ms_per_image: Option<f64>,
    /// Network of a node: bytes or bits a second
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, default_value = "100Gbit/s")]
    pub bandwidth: f64,
    /// Cache near the trainers: in a folder of each node (SIZE), or in the memory of each process (ram:SIZE)
    #[arg(long, value_name = "SIZE|ram:SIZE")]
    pub cache: Option<Room>,
    /// Encoded bytes that each rank reads ahead; a --memory-budget of run makes them fewer
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub read_ahead: Bytes,
}

/// The store of `plan`.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Store")]
pub(crate) struct StoreArgs {
    /// Time from a request to its first byte
    #[arg(long, value_name = "TIME", value_parser = units::parse_time, default_value = "30ms")]
    pub latency: Duration,
    /// What one connection carries
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate, default_value = "85MB/s")]
    pub connection_bandwidth: f64,
    /// What the store gives to all nodes together [default: as much as they ask for]
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub bandwidth_total: Option<f64>,
    /// Prefixes over which the requests are spread, each good for 5,500 a second; 1000 are ImageNet's class folders
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub prefixes: u64,
    /// There is a file system that all nodes see, and this is what it gives to all of them together
    #[arg(long, value_name = "RATE", value_parser = units::parse_rate)]
    pub shared_bandwidth: Option<f64>,
    /// US dollars for 1,000 reading requests [default: list price of S3 Standard, us-east-1, 2025-06]
    #[arg(long, value_name = "USD", value_parser = units::parse_amount, default_value = "0.0004", hide_default_value = true)]
    pub usd_per_1000: f64,
    /// US dollars for a GB that leaves the store. S3's list prices of 2025-06: nothing within its region, 0.02 to another
    /// one in the US, 0.09 to the internet
    #[arg(long, value_name = "USD", value_parser = units::parse_amount, default_value = "0")]
    pub usd_per_gb: f64,
    /// Bytes of a shard, where `infeed prepare` packs the dataset
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
    /// What to make
    pub kind: SynthKind,
    /// Where: a new or empty folder
    pub dir: PathBuf,
    /// Records or patients to make (CIFAR: to train with; a fifth as many to test with come on top)
    #[arg(long, value_name = "N")]
    pub count: u64,
    /// Classes [default: 1000 for imagenet, 257 for caltech, 10 for tiff, at most one a record]
    #[arg(long, value_name = "K")]
    pub classes: Option<u64>,
    /// Volumes: voxels along each axis [default: 144]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub side: Option<u32>,
    /// Volumes: leave them uncompressed
    #[arg(long)]
    pub raw: bool,
    /// Decides every byte: the same seed gives the same files
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub tiff: TiffArgs,
}

/// What images of `synth tiff` are like.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "TIFF")]
pub(crate) struct TiffArgs {
    /// Channels [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    pub channels: Option<u32>,
    /// Height and width in pixels [default: 50x50]
    #[arg(long, value_name = "HxW")]
    pub size: Option<Sides>,
    /// Type of the values [default: u8]
    #[arg(long, value_name = "TYPE")]
    pub pixels: Option<PixelsArg>,
    /// Where channels are [default: interleaved]
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
    /// Pixels one after another, each with all its channels
    Interleaved,
    /// One plane after another, in one page
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
    /// The official binary files, 10 classes
    Cifar10,
    /// The official binary files, 100 classes in 20 groups
    Cifar100,
    /// Class folders of small images of many channels
    Tiff,
    /// Patients with CT, PET and two masks, 144x144x144
    Nrrd,
}

/// A clap-parsed copy of a library enum: the library does not know clap.
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
        /// Turned and mirrored, upright
        Apply => Self::Apply,
        /// As they are stored
        Ignore => Self::Ignore,
    }
);
value_enum!(
    /// `--decode`
    DecodeArg => Decode {
        /// CPU threads, and the GPU's JPEG engines and CUDA streams while the trainer waits
        Auto => Self::Auto,
        /// The engines first, and an error where there are none
        Gpu => Self::Gpu,
        /// CPU threads alone
        Cpu => Self::Cpu,
    }
);
value_enum!(
    /// `--gpu-split`
    SplitArg => Split {
        /// The decoder that is idle takes the next image
        Adaptive => Self::Adaptive,
        /// The image alone decides, so that runs on one machine repeat to the byte
        Fixed => Self::Fixed,
    }
);
value_enum!(
    /// `--verify`
    VerifyArg => Verify {
        /// With checksums, and with MD5s where no checksum is told: 0.1 ms for each 100 KB
        Auto => Self::Auto,
        /// With CRCs alone, which cost next to nothing
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
        /// Fill up with records from the start of the epoch
        Pad => Self::Pad,
    }
);

/// `--on-bad-sample`
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnBadSampleArg {
    /// End the run with the error
    Stop,
    /// Leave the sample out, so that the batch is shorter
    Skip,
    /// Leave the sample out and keep the batch's shape, with zeros at its end
    SkipPadded,
    /// Put another sample of the batch in its place
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
        text.parse().map(|value| Self(Some(value))).map_err(|error: T::Err| format!("{error}; or say auto"))
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
