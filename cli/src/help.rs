//! Longer texts of the help: the urls of datasets, and example commands.

/// The argument `URL`, for `-h`.
pub(crate) const DATASET: &str =
    "Dataset: a folder, or a url (s3://, gs://, az://, hf://, https://, file://, synthetic://)";

/// The same for `--help`.
pub(crate) const DATASET_LONG: &str = "\
Dataset: a folder, or a url:
  /data/train, file:///data/train     a local folder or file
  s3://bucket/train                   S3 and compatible stores
  gs://bucket/train                   Google Cloud (feature gcs)
  az://container/train                Azure (feature azure)
  hf://datasets/OWNER/NAME            Hugging Face's hub
  https://host/train-{000..146}.tar   files on a web server
  synthetic://?count=1000&classes=10  random pixels, no files

infeed recognises the format by the files: images in class folders, COCO, YOLO, Pascal VOC, CIFAR, shards (tar as of \
WebDataset, MDS, TFRecord), arrays (.npy), volumes (NRRD, NIfTI). The features parquet, zarr, hdf5, dicom and jxl add \
Parquet, Zarr, HDF5, DICOM and JPEG XL. Choose features when you build infeed: cargo install infeed-cli --features \
gcs,parquet.";

/// Examples of `infeed`.
pub(crate) const INFEED: &str = "\
Examples:
  infeed                                                 # the demo, under 30 s
  infeed inspect /data/train --sheet sheet.png           # what is it, and what does it look like?
  infeed run /data/train -b 256 -t imagenet-train        # how fast can this machine load it?
  infeed doctor /data/train --step-time 50ms             # what limits my training?
  infeed help run                                        # all options of a command";

/// Examples of `infeed demo`.
pub(crate) const DEMO: &str = "\
Examples:
  infeed demo
  infeed demo --quiet     # only the figures, no progress bars";

/// Examples of `infeed run`.
pub(crate) const RUN: &str = "\
Examples:
  infeed run /data/train -b 256 -t imagenet-train --shuffle 1
  infeed run cifar-10-batches-bin -t cifar-train --shuffle 1 -e 10 --json run.json
  infeed run s3://bucket/train --step-time 50ms --cache /nvme/cache:200GB
  infeed run 'https://host/train-{000..146}.tar' -t 'random_resized_crop:176;normalize'
  infeed run /data/train -e 90 --state run.state         # later: the same with --resume run.state";

/// Examples of `infeed profile`.
pub(crate) const PROFILE: &str = "\
Examples:
  infeed profile /data/train --max-batches 100
  infeed profile /data/train -b 256 -t imagenet-train --step-time 50ms --html profile.html
  infeed profile s3://bucket/train --max-time 30s --trace trace.json   # for ui.perfetto.dev";

/// Examples of `infeed sweep`.
pub(crate) const SWEEP: &str = "\
Examples:
  infeed sweep /data/train -w 1,2,4,8
  infeed sweep /data/train -w 1,2,4,8 -b 64,256 --csv sweep.csv --html sweep.html
  infeed sweep /data/train -w 2,4 --device cpu,cuda:0 --max-batches 50 --out sweep.json
  infeed sweep /data/train -w 1,2,4,8 --auto 3           # does workers auto find the best number?";

/// The argument `CONFIGURATION`, for `-h`.
pub(crate) const CONFIGURATION: &str =
    "Configurations: a config file (x.toml), a dataset, or arguments of run in quotes ('-b 64 -w 2')";

/// The same for `--help`.
pub(crate) const CONFIGURATION_LONG: &str = "\
Two or more configurations, each of which is
  fast.toml                           a config file, as run takes it with --config
  /data/train, s3://bucket/train      a dataset: a folder, a file or a url
  '-b 64 -w 2', '/data/train -b 64'   arguments of infeed run in quotes; '' for none

A word that ends in .toml is a config file. Any other word without spaces that is not an option is a dataset, as is \
any existing path. Everything else is split into arguments as a shell does. Each run is a separate process of infeed \
run.";

/// Examples of `infeed compare`.
pub(crate) const COMPARE: &str = "\
Examples:
  infeed compare '-w 2' '-w 4' -- /data/train -t imagenet-train
  infeed compare old.toml new.toml --rounds 10 -- /data/train --max-batches 200
  infeed compare /nvme/train s3://bucket/train --name near --name far -- -b 256 --max-time 10s
  infeed compare '' --jpeg-exact --export-markdown exact.md -- /data/train -e 3 --checksum";

/// Examples of `infeed doctor`.
pub(crate) const DOCTOR: &str = "\
Examples:
  infeed doctor /data/train --step-time 50ms             # a batch takes the model 50 ms
  infeed doctor s3://bucket/train -b 256 -t imagenet-train --step-time 120ms
  infeed doctor /data/train --step-time 50ms --html doctor.html";

/// Examples of `infeed inspect`.
pub(crate) const INSPECT: &str = "\
Examples:
  infeed inspect /data/train
  infeed inspect /data/train --sheet sheet.png -t imagenet-train     # what the model sees
  infeed inspect /data/train --sheet ops.jpg --ops -t deit-train     # what each augmentation does
  infeed inspect /data/train --stats --count 2000                    # values for normalize
  infeed inspect --devices                                           # is there a GPU?";

/// Examples of `infeed stage`.
pub(crate) const STAGE: &str = "\
Examples:
  infeed stage s3://bucket/imagenet /dev/shm/imagenet    # into memory; run again to resume
  infeed stage s3://bucket/imagenet /nvme/imagenet --limit 200GB --jobs 64
  infeed stage https://host/flowers.tar.gz /data/flowers # unpacks it";

/// Examples of `infeed prepare`.
pub(crate) const PREPARE: &str = "\
Examples:
  infeed prepare /data/train /data/train-shards --shuffle 1
  infeed prepare /data/train /data/train-256 --shorter 256 --quality 90
  infeed prepare s3://bucket/caltech256 s3://bucket/caltech256-shards --resize 256x256 --parts 8
  infeed prepare /data/train /data/train-256 --shorter 256 --rank 0 --world-size 4  # one of four
  infeed prepare /data/train /data/train-256 --shorter 256 --on-bad-sample skip";

/// Examples of `infeed index`.
pub(crate) const INDEX: &str = "\
Examples:
  infeed index /data/train-shards       # again after tars were added or replaced
  infeed index s3://bucket/train-shards # needs permission to write";

/// Examples of `infeed plan`.
pub(crate) const PLAN: &str = "\
Examples:
  infeed plan /data/train --nodes 1,8,64
  infeed plan s3://bucket/train --nodes 8 --step-time 120ms --cache 1TB
  infeed plan --records 1.28e6 --record-bytes 110KB --nodes 16 --bandwidth 25Gbit/s";

/// Examples of `infeed synth`.
pub(crate) const SYNTH: &str = "\
Examples:
  infeed synth imagenet /dev/shm/imagenet --count 2000
  infeed synth cifar10 /tmp/cifar10 --count 50000
  infeed synth tiff /tmp/cells --count 500 --channels 5 --size 64x64
  infeed synth nrrd /tmp/patients --count 4 --side 96";

/// Examples of `infeed completions`.
pub(crate) const COMPLETIONS: &str = "\
Examples:
  infeed completions bash > ~/.local/share/bash-completion/completions/infeed
  infeed completions zsh > ~/.zfunc/_infeed              # a folder of fpath
  infeed completions fish > ~/.config/fish/completions/infeed.fish";

/// Examples of `infeed man`.
pub(crate) const MAN: &str = "\
Examples:
  infeed man > infeed.1; man ./infeed.1                  # the main page
  infeed man ~/.local/share/man/man1                     # a page for each command: man infeed-run";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use crate::{args::Cli, typed::parse};

    /// Splits a line as a shell does. It handles words, '…' and `#`.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (n, part) in line.split('\'').enumerate() {
            if n % 2 == 1 {
                words.push(part.to_owned());
                continue;
            }
            for word in part.split_whitespace() {
                if matches!(word, "#" | ">") {
                    return words;
                }
                words.push(word.to_owned());
            }
        }
        words
    }

    #[test]
    fn every_command_has_examples_and_each_is_understood() {
        let cli = Cli::command();
        let commands = cli.get_subcommands().filter(|command| !command.is_hide_set());
        for command in std::iter::once(&cli).chain(commands) {
            let text = command.get_after_help().unwrap_or_else(|| panic!("{}", command.get_name())).to_string();
            let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("  infeed")).collect();
            assert!(text.starts_with("Examples:\n") && lines.len() + 1 == text.lines().count(), "{text}");
            assert!((2..=5).contains(&lines.len()), "{text}");
            for line in lines {
                // A longer line would be wrapped in the help.
                assert!(line.chars().count() <= 100, "{line}");
                let words = words(line.split(';').next().filter(|_| !line.contains('\'')).unwrap_or(line));
                let own = words.get(1).is_some_and(|word| word == command.get_name());
                assert!(own || command.get_name() == "infeed", "{line}");
                let args: Vec<_> = words[1..].iter().map(Into::into).collect();
                match parse("infeed".into(), &args) {
                    Ok(_) => {}
                    Err(error) if error.exit_code() == 0 => {}
                    Err(error) => panic!("{line}: {error}"),
                }
            }
        }
    }
}
