//! What a format is, and which options it takes.

use std::{
    any::Any,
    collections::HashMap,
    fmt::{self, Debug},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::BoxFuture;
use infeed_core::{
    error::{
        Error, Result,
        setting::{
            ANNOTATIONS, CHANNELS, CLASSES, COLUMNS, FIELD, IMAGE_ROOT, LABEL_COLUMN, LABELS, LABELS_ONLY, MASK_FILES,
            MASKS, PATTERN, SAMPLES_PER_PATIENT, SPLIT, Setting,
        },
    },
    types::DType,
};
use infeed_store::{Object, Source};

use super::{
    declared::Said,
    names::looks_like_mask,
    record::Dataset,
    schema::{Field, FieldKind},
};

/// A way to lay out records in objects.
///
/// ```
/// use std::sync::Arc;
///
/// use futures::{FutureExt, future::BoxFuture};
/// use infeed::{
///     Dataset, Error, ErrorKind, Result,
///     dataset::{Format, MemoryDataset, OpenOptions},
///     source::{Object, Source},
/// };
///
/// /// `words.txt`: a record in each line.
/// #[derive(Debug)]
/// struct Words;
///
/// impl Format for Words {
///     fn name(&self) -> &'static str {
///         "words"
///     }
///     fn recognises(&self, objects: &[Object]) -> bool {
///         objects.iter().any(|object| object.name == "words.txt")
///     }
///     fn open<'a>(
///         &'a self,
///         source: &'a Source,
///         objects: Vec<Object>,
///         _options: &'a OpenOptions,
///     ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
///         async move {
///             let file = objects.iter().find(|object| object.name == "words.txt");
///             let file = file.ok_or_else(|| Error::new(ErrorKind::NotFound, "there is no words.txt"))?;
///             let text = file.extent(source).read().await?;
///             let words = text.split(|byte| *byte == b'\n').map(|word| text.slice_ref(word)).collect();
///             let dataset: Arc<dyn Dataset> = Arc::new(MemoryDataset::builder().bytes("word", words).build()?);
///             Ok(dataset)
///         }
///         .boxed()
///     }
/// }
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().display().to_string();
/// # std::fs::write(folder.path().join("words.txt"), "one\ntwo\nthree").unwrap();
/// let dataset = infeed::open(path).add_format(Words).blocking()?;
/// assert_eq!(dataset.len(), 3);
/// # Ok::<(), infeed::Error>(())
/// ```
pub trait Format: Debug + Send + Sync + 'static {
    /// Short lower-case name.
    fn name(&self) -> &'static str;
    /// Whether the listed objects look like this format. Judged by names; nothing is opened.
    fn recognises(&self, objects: &[Object]) -> bool;
    /// What the format would read of the listed objects, and why. Judged by names. If several formats claim objects,
    /// the first one gets them, unless two have [annotations](Evidence::Annotations): that is an error that names both.
    /// Default: a claim of [`Evidence::Files`] if [`recognises`](Self::recognises) is true.
    fn claim(&self, objects: &[Object]) -> Option<Claim> {
        let claim = || Claim::new(Evidence::Files, format!("there are files of the format {}", self.name()));
        self.recognises(objects).then(claim)
    }
    /// Whether the format reads or uses an object of this name, in addition to what it recognises. `inspect` lists the
    /// others as left out, and `open()` warns about those that look like labels. Default: true.
    fn reads(&self, name: &str) -> bool {
        let _ = name;
        true
    }
    /// The options that the format takes. `open()` returns an error for any other, so that no option is ignored in
    /// silence; [`open`](Self::open) has to follow each option listed here.
    fn options(&self) -> &'static [OpenOption] {
        &[]
    }
    /// Opens the dataset. `objects` are all objects of the source, sorted by the bytes of their names.
    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>>;
}

/// What a [`Format`] would read at a place.
///
/// ```
/// use infeed::{dataset::{Evidence, formats}, source::Object};
///
/// let objects = [Object::new("annotations/instances_train.json", 9_000), Object::new("train/1.jpg", 91_200)];
/// let claims: Vec<_> = formats().iter().filter_map(|format| Some((format.name(), format.claim(&objects)?))).collect();
/// assert_eq!(claims[0].0, "coco");
/// assert_eq!(claims[0].1.evidence, Evidence::Annotations);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claim {
    /// The kind of evidence for it.
    pub evidence: Evidence,
    /// The reason in words, for people: "annotations/instances_train.json beside images".
    pub why: String,
}

impl Claim {
    /// A claim, with its reason in words.
    #[must_use]
    pub fn new(evidence: Evidence, why: impl Into<String>) -> Self {
        Self { evidence, why: why.into() }
    }
}

/// The kind of evidence for a [`Claim`].
///
/// ```
/// use infeed::{
///     dataset::{Evidence, formats},
///     source::Object,
/// };
///
/// let folder = formats().iter().find(|format| format.name() == "folder").expect("it is always there");
/// let claim = folder.claim(&[Object::new("cat/1.jpg", 91_200)]).expect("images");
/// assert_eq!(claim.evidence, Evidence::Files);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Evidence {
    /// Files of the format.
    Files,
    /// Files that describe what is in images, and the images.
    Annotations,
}

/// The result of recognising a place; see [`Open::on_recognised`](super::Open::on_recognised).
///
/// ```
/// use infeed::dataset::Recognised;
///
/// fn tell(found: &Recognised) {
///     println!("{} is read as {}, because of {}", found.url, found.format, found.why);
///     found.left_out.iter().for_each(|kind| println!("left out: {kind}"));
/// }
/// let open = infeed::open("/data/cells").on_recognised(|found| tell(&found));
/// # drop(open);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recognised {
    /// The url of the place.
    pub url: String,
    /// The name of the format.
    pub format: String,
    /// The reason for this format, in words.
    pub why: String,
    /// The files that are not read, by kind: "3 .txt, the first is `labels/a.txt`".
    pub left_out: Vec<String>,
}

/// The options of `open()`. A [`Format`] gets only those that it [takes](Format::options).
///
/// ```
/// use infeed::dataset::{OpenOption, OpenOptions};
///
/// // What `open(url).split("test").masks(true)` passes to a format, and how a format refuses an option.
/// let mut options = OpenOptions::default();
/// (options.split, options.masks) = (Some("test".into()), true);
/// assert_eq!(options.given().collect::<Vec<_>>(), [OpenOption::Masks, OpenOption::Split]);
/// assert!(options.only("arrays of one file", &[OpenOption::Split]).is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Name of the format, if it should not be recognised by names.
    pub format: Option<String>,
    /// File with labels: an object of the source, or a path or url.
    pub labels: Option<String>,
    /// Whether records are only the images that the file with labels lists.
    pub labels_only: bool,
    /// The column with the labels, in a file that has several.
    pub label_column: Option<String>,
    /// JSON file with annotations (boxes, outlines) of the images: an object of the source, or a path or url.
    pub annotations: Option<String>,
    /// Whether outlines are read as well as boxes.
    pub masks: bool,
    /// How the masks of images are named: `masks/{stem}_mask.png`.
    pub mask_files: Option<String>,
    /// The place of the images that texts of records name.
    pub image_root: Option<String>,
    /// Class names in the order of their indices.
    pub classes: Option<Arc<[String]>>,
    /// `train`, `test`, …, if a source holds several.
    pub split: Option<String>,
    /// How the files of an image's channels are named.
    pub channels: Option<String>,
    /// Folder where listings of buckets are kept.
    pub manifests: Option<PathBuf>,
    /// Pattern that gives the field and patient of each volume file: `{patient}/{field}.nrrd`.
    pub pattern: Option<String>,
    /// Number of records of each patient.
    pub samples: Option<u64>,
    /// For fields of volumes, the files that are the field's channels; for any other field, one word for its kind. A
    /// [`Format`] that does not take [`OpenOption::Field`] does not get these: `open()` applies the words afterwards.
    pub fields: Vec<(String, Vec<String>)>,
    /// The kinds that the user gave fields, for a format that reads masks in another way than images.
    #[doc(hidden)]
    pub said: Vec<(String, Said)>,
    /// The fields to read, if records have others too.
    pub columns: Option<Vec<String>>,
    /// Whether shards written by `prepare` are read if some of the set are missing.
    pub allow_incomplete: bool,
    /// What the first opening of a place has found, for the second: with filters a place is opened twice.
    #[doc(hidden)]
    pub findings: Findings,
}

/// What formats have found, by the url of the place. Clones share it.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Findings(Arc<Mutex<HashMap<String, Arc<dyn Any + Send + Sync>>>>);

impl Findings {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<dyn Any + Send + Sync>>> {
        // Each section leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was put for the place, if it is a `T`.
    pub fn get<T: Any + Send + Sync>(&self, url: &str) -> Option<Arc<T>> {
        self.lock().get(url).and_then(|found| Arc::clone(found).downcast().ok())
    }

    /// Keeps this for the place.
    pub fn put<T: Any + Send + Sync>(&self, url: &str, found: T) {
        self.lock().insert(url.to_owned(), Arc::new(found));
    }
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// It is no option.
impl PartialEq for Findings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// One option that a format may take or refuse. `format`, `manifests` and `allow_incomplete` are not among them:
/// `open()` itself uses these.
///
/// ```
/// use infeed::dataset::{OpenOption, formats};
///
/// // Which formats take names of classes.
/// let taking = formats().iter().filter(|format| format.options().contains(&OpenOption::Classes));
/// let names: Vec<_> = taking.map(|format| format.name()).collect();
/// assert!(names.contains(&"folder"));
/// assert_eq!(OpenOption::Classes.name(), "classes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OpenOption {
    /// [`OpenOptions::labels`]
    Labels,
    /// [`OpenOptions::labels_only`]
    LabelsOnly,
    /// [`OpenOptions::label_column`]
    LabelColumn,
    /// [`OpenOptions::annotations`]
    Annotations,
    /// [`OpenOptions::masks`]
    Masks,
    /// [`OpenOptions::mask_files`]
    MaskFiles,
    /// [`OpenOptions::image_root`]
    ImageRoot,
    /// [`OpenOptions::classes`]
    Classes,
    /// [`OpenOptions::split`]
    Split,
    /// [`OpenOptions::channels`]
    Channels,
    /// [`OpenOptions::pattern`]
    Pattern,
    /// [`OpenOptions::samples`]
    SamplesPerPatient,
    /// [`OpenOptions::fields`]
    Field,
    /// [`OpenOptions::columns`]
    Columns,
}

impl OpenOption {
    /// Every option.
    pub const ALL: [Self; 14] = [
        Self::Labels,
        Self::LabelsOnly,
        Self::LabelColumn,
        Self::Annotations,
        Self::Masks,
        Self::MaskFiles,
        Self::ImageRoot,
        Self::Classes,
        Self::Split,
        Self::Channels,
        Self::Pattern,
        Self::SamplesPerPatient,
        Self::Field,
        Self::Columns,
    ];

    /// The name of the method of [`Open`](super::Open) that sets it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::LabelsOnly => "labels_only",
            Self::LabelColumn => "label_column",
            Self::Annotations => "annotations",
            Self::Masks => "masks",
            Self::MaskFiles => "mask_files",
            Self::ImageRoot => "image_root",
            Self::Classes => "classes",
            Self::Split => "split",
            Self::Channels => "channels",
            Self::Pattern => "pattern",
            Self::SamplesPerPatient => "samples_per_patient",
            Self::Field => "field",
            Self::Columns => "columns",
        }
    }

    const fn setting(self) -> Setting {
        match self {
            Self::Labels => LABELS,
            Self::LabelsOnly => LABELS_ONLY,
            Self::LabelColumn => LABEL_COLUMN,
            Self::Annotations => ANNOTATIONS,
            Self::Masks => MASKS,
            Self::MaskFiles => MASK_FILES,
            Self::ImageRoot => IMAGE_ROOT,
            Self::Classes => CLASSES,
            Self::Split => SPLIT,
            Self::Channels => CHANNELS,
            Self::Pattern => PATTERN,
            Self::SamplesPerPatient => SAMPLES_PER_PATIENT,
            Self::Field => FIELD,
            Self::Columns => COLUMNS,
        }
    }

    /// What to do if it is not taken.
    fn hint(self) -> String {
        let hint = match self {
            Self::Labels => {
                "leave it out: a list of labels is for images in files; shards and CIFAR hold their labels themselves, and \
                 those of arrays can be an array in the same file"
            }
            Self::LabelsOnly => "leave it out: it takes the images that a file with labels lists",
            Self::LabelColumn => "leave it out: it chooses among the columns of a file with labels",
            Self::Annotations => {
                "leave it out, and the format too: COCO's JSON says what is marked in images that are files of their own"
            }
            Self::Masks => {
                return format!(
                    "leave it out: outlines are in COCO's JSON, which {ANNOTATIONS} names, and in YOLO's text files"
                );
            }
            Self::MaskFiles => "leave it out: it tells mask files from image files",
            Self::ImageRoot => "leave it out: it is for JSON lines and Parquet whose texts name images elsewhere",
            Self::Classes => "leave it out: there are no classes to name",
            Self::Split => "leave it out, and open the folder or the files of the split: train-{00000..00099}.tar",
            Self::Channels => "leave it out: it puts files of images together, one for each channel",
            Self::Pattern => "leave it out: it tells files of volumes apart",
            Self::SamplesPerPatient => "leave it out: only volumes have patients",
            Self::Field => {
                "leave it out: only fields of volumes take files; any other field takes one word, such as mask"
            }
            Self::Columns => "leave it out: only formats whose records have several fields take it, such as shards",
        };
        hint.to_owned()
    }
}

impl OpenOptions {
    /// Whether an image of this name is a mask: the kind that the user gave decides, otherwise the name.
    #[doc(hidden)]
    pub fn is_mask(&self, name: &str) -> bool {
        let said = self.said.iter().find(|(field, said)| field == name && *said != Said::Files);
        said.map_or_else(|| looks_like_mask(name), |(_, said)| matches!(said, Said::Mask | Said::Mask16))
    }

    /// The field of image files. `labels` is the type of its labels if it is a mask, by the files that were examined.
    #[doc(hidden)]
    pub fn picture(&self, name: &str, labels: Option<DType>) -> Field {
        match labels {
            Some(_) if self.is_mask(name) => {
                Field::mask(name, FieldKind::Image { channels: 1, size: None, dtype: labels })
            }
            _ => Field::picture(name),
        }
    }

    /// Whether the user declared this field a list.
    #[doc(hidden)]
    pub fn is_list(&self, name: &str) -> bool {
        self.said.iter().any(|(field, said)| field == name && *said == Said::List)
    }

    /// The options that were given, of those that formats take.
    pub fn given(&self) -> impl Iterator<Item = OpenOption> {
        // Each field is written out, so that no new option is forgotten here.
        let Self {
            format: _,
            manifests: _,
            allow_incomplete: _,
            findings: _,
            said: _,
            labels,
            labels_only,
            label_column,
            annotations,
            masks,
            mask_files,
            image_root,
            classes,
            split,
            channels,
            pattern,
            samples,
            fields,
            columns,
        } = self;
        let given = [
            (OpenOption::Labels, labels.is_some()),
            (OpenOption::LabelsOnly, *labels_only),
            (OpenOption::LabelColumn, label_column.is_some()),
            (OpenOption::Annotations, annotations.is_some()),
            (OpenOption::Masks, *masks),
            (OpenOption::MaskFiles, mask_files.is_some()),
            (OpenOption::ImageRoot, image_root.is_some()),
            (OpenOption::Classes, classes.is_some()),
            (OpenOption::Split, split.is_some()),
            (OpenOption::Channels, channels.is_some()),
            (OpenOption::Pattern, pattern.is_some()),
            (OpenOption::SamplesPerPatient, samples.is_some()),
            (OpenOption::Field, !fields.is_empty()),
            (OpenOption::Columns, columns.is_some()),
        ];
        given.into_iter().filter_map(|(option, given)| given.then_some(option))
    }

    /// Returns an error if an option is given that is not among `taken`. For a format that takes fewer options for some
    /// datasets than [`Format::options`] lists. `what` is a plural: "arrays of one file".
    ///
    /// # Errors
    /// `Config`; it names the first option that is not taken, the options that are, and what to do.
    pub fn only(&self, what: &str, taken: &[OpenOption]) -> Result<()> {
        let Some(refused) = self.given().find(|option| !taken.contains(option)) else { return Ok(()) };
        let names = taken.iter().map(|option| option.setting().word());
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        let name = refused.setting().word();
        let what = match &names[..] {
            [] => format!("{what} take no {name}, and no other options"),
            [only] => format!("{what} take no {name}, only {only}"),
            [others @ .., last] => format!("{what} take no {name}, only {} and {last}", others.join(", ")),
        };
        Err(Error::config(what).with_hint(refused.hint()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only this one given.
    fn only(option: OpenOption) -> OpenOptions {
        let mut options =
            OpenOptions { format: Some("x".into()), manifests: Some("x".into()), ..OpenOptions::default() };
        match option {
            OpenOption::Labels => options.labels = Some("x".into()),
            OpenOption::LabelsOnly => options.labels_only = true,
            OpenOption::LabelColumn => options.label_column = Some("x".into()),
            OpenOption::Annotations => options.annotations = Some("x".into()),
            OpenOption::Masks => options.masks = true,
            OpenOption::MaskFiles => options.mask_files = Some("x".into()),
            OpenOption::ImageRoot => options.image_root = Some("x".into()),
            OpenOption::Classes => options.classes = Some(Arc::new([])),
            OpenOption::Split => options.split = Some("x".into()),
            OpenOption::Channels => options.channels = Some("x".into()),
            OpenOption::Pattern => options.pattern = Some("x".into()),
            OpenOption::SamplesPerPatient => options.samples = Some(1),
            OpenOption::Field => options.fields.push(("x".into(), vec![])),
            OpenOption::Columns => options.columns = Some(vec![]),
        }
        options
    }

    #[test]
    fn what_is_given_is_told_and_what_is_not_taken_is_refused_by_name() {
        assert_eq!(OpenOptions::default().given().count(), 0);
        for option in OpenOption::ALL {
            let options = only(option);
            assert_eq!(options.given().collect::<Vec<_>>(), [option]);
            options.only("things", &[OpenOption::Labels, option]).unwrap();
            let others: Vec<_> = OpenOption::ALL.into_iter().filter(|other| *other != option).collect();
            for taken in [&others[..], &others[..1], &[]] {
                let error = options.only("things", taken).unwrap_err();
                let text = error.to_string();
                assert_eq!(error.kind(), infeed_core::error::ErrorKind::Config);
                assert!(text.contains(&format!("things take no {}", option.name())), "{text}");
                assert!(taken.iter().all(|taken| text.contains(taken.name())), "{text}");
                assert!(text.contains("leave it out"), "{text}");
            }
        }
    }
}
