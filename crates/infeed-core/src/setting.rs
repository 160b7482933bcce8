//! How errors name a setting: as a method in a Rust program, as an option on the command line, as an argument in
//! Python.
//!
//! ```text
//! format!("convert the file or set {SKIP}")
//!     Front::Library   convert the file or set on_bad_sample(Skip)
//!     Front::Command   convert the file or set --on-bad-sample skip
//!     Front::Python    convert the file or set on_bad_sample={"skip": {"at_most": …}}
//! ```
//!
//! A [`Setting`] that is formatted into a text writes its name for the front of this process. So the name is right
//! wherever the text is shown (in a hint, in a cause that an error above repeats, in a line of the log, in JSON), and
//! no code searches for names to replace. The price is that a process has one front, which [`speak_as`] must set before
//! anything can fail.
//!
//! No text contains a setting's name directly: the test `a_setting_is_named_by_the_table_alone` in `integration` reads
//! the sources for that. Other tests check that the names exist: against the sources of the builders (`integration`),
//! the options of the commands (`infeed-cli`) and the signatures of the Python package (its tests).

use std::{
    fmt,
    sync::atomic::{AtomicU8, Ordering},
};

/// Where this process shows its errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Front {
    /// A program in Rust: settings are methods of the builders.
    #[default]
    Library,
    /// The command line: settings are options.
    Command,
    /// The Python package: settings are arguments.
    Python,
}

impl Front {
    const ALL: [Self; 3] = [Self::Library, Self::Command, Self::Python];

    /// The front of this process.
    pub fn here() -> Self {
        // Relaxed: no other memory depends on this value.
        Self::ALL.get(usize::from(FRONT.load(Ordering::Relaxed))).copied().unwrap_or_default()
    }
}

static FRONT: AtomicU8 = AtomicU8::new(Front::Library as u8);

/// Sets the front of the whole process: from now on texts name settings in its form.
pub fn speak_as(front: Front) {
    FRONT.store(front as u8, Ordering::Relaxed);
}

/// A setting as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    library: &'static str,
    /// Empty if no option sets it.
    command: &'static str,
    python: &'static str,
}

impl Setting {
    /// Its name in a front, with a value if there is only one to set; empty if nothing sets it in this front.
    #[must_use]
    pub const fn name(&self, front: Front) -> &'static str {
        match front {
            Front::Library => self.library,
            Front::Command => self.command,
            Front::Python => self.python,
        }
    }

    /// Its name without a value.
    pub fn word(&self) -> &'static str {
        bare(self.name(Front::here()))
    }

    /// The setting with a text as its value.
    pub fn to(self, value: &str) -> String {
        self.valued(Front::here(), value, |value| format!("{value:?}"))
    }

    /// The setting with a list of texts as its value. They must not contain commas.
    pub fn to_list(self, values: &[&str]) -> String {
        self.valued(Front::here(), &values.join(","), |_| format!("{values:?}"))
    }

    /// The setting with a value for one name, such as the kind of a field.
    pub fn to_pair(self, name: &str, value: &str) -> String {
        let setting = bare(self.name(Front::here()));
        match Front::here() {
            Front::Library => format!("{setting}({name:?}, [{value:?}])"),
            Front::Command => format!("{setting} '{name}={value}'"),
            Front::Python => format!("{setting}={{{name:?}: {value:?}}}"),
        }
    }

    fn valued(&self, front: Front, value: &str, quoted: impl Fn(&str) -> String) -> String {
        let name = bare(self.name(front));
        match front {
            Front::Library => format!("{name}({})", quoted(value)),
            Front::Python => format!("{name}={}", quoted(value)),
            Front::Command if value.contains(['{', ' ', '*']) => format!("{name} '{value}'"),
            Front::Command => format!("{name} {value}"),
        }
    }

    /// A suffix for other advice: `, or set split("train")`. Empty if the setting does not exist in this front.
    pub fn or_set(&self, value: &str) -> String {
        match self.name(Front::here()) {
            "" => String::new(),
            name if value.is_empty() => format!(", or set {name}"),
            _ => format!(", or set {}", self.to(value)),
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name(Front::here()))
    }
}

/// The name without the parenthesis or value after it.
fn bare(name: &str) -> &str {
    name.split(['(', '=', ' ']).next().unwrap_or_default()
}

/// Advice for Rust programs only, which can implement their own parts; empty in the other fronts.
pub fn in_rust(advice: &'static str) -> &'static str {
    if Front::here() == Front::Library { advice } else { "" }
}

/// Defines one constant per setting, with the setting's name in each front.
macro_rules! settings {
    ($($name:ident: $library:literal, $command:literal, $python:literal;)*) => {
        $(#[doc = concat!("As errors name `", $library, "`.")]
        pub const $name: Setting = Setting {
            library: $library,
            command: $command,
            python: $python,
        };)*

        /// All settings that errors name.
        pub const SETTINGS: &[Setting] = &[$($name),*];
    };
}

settings! {
    // Settings of a loader.
    BATCH_SIZE: "batch_size", "--batch-size", "batch_size";
    CACHE: "cache", "--cache", "cache";
    DECODE: "decode", "--decode", "decode";
    DECODE_GPU: "decode(Gpu)", "--decode gpu", "decode=\"gpu\"";
    DECODED_CACHE: "decoded_cache", "--decoded-cache", "decoded_cache";
    DEVICE: "device", "--device", "device";
    DEVICE_CPU: "device(Cpu)", "--device cpu", "device=\"cpu\"";
    DEVICE_BUDGET: "device_budget", "--device-budget", "device_budget";
    DTYPE: "dtype", "--dtype", "dtype";
    FILL_LAST: "last_batch to partial or pad", "--last-batch to partial or pad", "drop_last=False";
    FLOATS: "dtype f32, f16 or bf16", "--dtype f32, f16 or bf16", "dtype=\"float32\", \"float16\" or \"bfloat16\"";
    IO_CONCURRENCY: "io_concurrency", "--io-concurrency", "io_concurrency";
    MAX_IMAGE_BYTES: "max_image_bytes", "--max-image-bytes", "max_image_bytes";
    MAX_RECORD_BYTES: "max_record_bytes", "--max-record-bytes", "max_record_bytes";
    MAX_UNREADABLE: "max_unreadable", "--max-unreadable", "max_unreadable";
    MEMORY_BUDGET: "memory_budget", "--memory-budget", "memory_budget";
    MIX: "mix", "--mix", "mix";
    NUM_CLASSES: "num_classes", "--mix …,classes=N", "mix={…, \"num_classes\": N}";
    ORIENTATION: "orientation", "--orientation", "orientation";
    PAD: "pad", "--pad", "pad";
    PREFETCH: "prefetch", "--prefetch", "prefetch";
    RANK: "shard", "--rank", "rank";
    SEED: "seed", "--seed", "seed";
    SKIP: "on_bad_sample(Skip)", "--on-bad-sample skip", "on_bad_sample={\"skip\": {\"at_most\": …}}";
    SKIP_PADDED: "on_bad_sample(SkipPadded)", "--on-bad-sample skip-padded",
        "on_bad_sample={\"skip-padded\": {\"at_most\": …}}";
    SMALL_TYPES: "dtype u8 or f16", "--dtype u8 or f16", "dtype=\"uint8\" or \"float16\"";
    STREAMS: "streams", "--streams", "streams";
    TRANSFORM: "transform", "--transform", "transform";
    VERIFY_NEVER: "verify(Never)", "--verify never", "verify=\"never\"";
    VIEWS: "views", "--view", "views";
    WORKERS: "workers", "--workers", "num_workers";
    WORLD_SIZE: "shard", "--world-size", "world_size";

    // Settings for opening a dataset.
    ALLOW_INCOMPLETE: "allow_incomplete(true)", "--allow-incomplete", "allow_incomplete=True";
    ANNOTATIONS: "annotations(…)", "--annotations", "annotations=…";
    CHANNELS: "channels", "--channels", "channels";
    CLASSES: "classes", "--classes", "classes";
    COLUMNS: "columns(…)", "--columns", "columns=[…]";
    FIELD: "field", "--field", "fields";
    FORMAT: "format(…)", "--format", "format=…";
    IMAGE_ROOT: "image_root", "--image-root", "image_root";
    LABELS: "labels(…)", "--labels", "labels=…";
    LABELS_ONLY: "labels_only(true)", "--labels-only", "labels_only=True";
    LABEL_COLUMN: "label_column", "--label-column", "label_column";
    LISTING: "listing", "--listing", "listing";
    MASKS: "masks", "--masks", "masks";
    MASK_FILES: "mask_files", "--mask-files", "masks";
    PATIENCE: "patience", "--patience", "patience";
    PATTERN: "pattern", "--pattern", "pattern";
    SAMPLES_PER_PATIENT: "samples_per_patient", "--samples-per-patient", "samples_per_patient";
    SPLIT: "split(…)", "--split", "split=…";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_names_a_setting_as_each_front_does() {
        for (front, skip, train) in [
            (Front::Library, "on_bad_sample(Skip)", r#"columns(["image"])"#),
            (Front::Command, "--on-bad-sample skip", "--columns image"),
            (Front::Python, r#"on_bad_sample={"skip": {"at_most": …}}"#, r#"columns=["image"]"#),
        ] {
            assert_eq!(SKIP.name(front), skip);
            assert_eq!(COLUMNS.valued(front, "image", |value| format!("[{value:?}]")), train);
        }
        // In the front of this process.
        assert_eq!(format!("lower {WORKERS} or set {SKIP}"), "lower workers or set on_bad_sample(Skip)");
        assert_eq!(SPLIT.or_set("train") + &LABELS.or_set(""), r#", or set split("train"), or set labels(…)"#);
        // A shell would expand it.
        assert_eq!(PATTERN.valued(Front::Command, "{a}/{b}", str::to_owned), "--pattern '{a}/{b}'");
    }
}
