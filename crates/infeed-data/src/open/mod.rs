//! From a url to a dataset, by the available formats.
//!
//! ```text
//! url ─ places ─▶ objects ─ recognise ─▶ format ─ Format::open ─▶ dataset ─ declared ─▶ filters, records ─▶ dataset
//! ```

mod places;
mod recognise;
mod records;

use std::{collections::HashMap, fmt, future::IntoFuture, path::PathBuf, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use infeed_core::{
    error::{Error, Result},
    memory,
    report::Stage,
};
use infeed_store::{Object, SharedList, Source};

use self::{
    places::{UrlPlace, places},
    recognise::{choose_format, left_out},
    records::listed,
};
use crate::{
    concat::concat,
    declared::{Said, declared},
    filter::{self, Filter},
    folder,
    format::{Format, OpenOption, OpenOptions, Recognised},
    json_values::with_json,
    layout::is_left_by_system,
    named_files::Place,
    names::is_image,
    objects::{list, named, only_or},
    pattern,
    record::Dataset,
    synthetic::SyntheticDataset,
};

/// An opening in progress.
pub type Opening = BoxFuture<'static, Result<Arc<dyn Dataset>>>;

/// What a build supplies for opening datasets.
#[derive(Clone, Copy, Debug)]
pub struct Opener {
    /// The formats of this build, in the order in which they are tried.
    pub formats: &'static [&'static dyn Format],
    /// Blocks until an opening is done, for code that does not await it. It may use threads of its own.
    pub wait: fn(Opening) -> Result<Arc<dyn Dataset>>,
}

/// A dataset to be opened; `.await` opens it. See `open`.
#[derive(Clone, Debug)]
#[must_use = "a dataset is opened by awaiting this"]
pub struct Open {
    from: From,
    opener: &'static Opener,
    options: OpenOptions,
    extra: Vec<Arc<dyn Format>>,
    patience: Option<Duration>,
    shared: Option<SharedList>,
    filters: Vec<Filter>,
    records: Option<String>,
    told: Option<OnRecognised>,
}

/// Callback that receives what was recognised.
#[derive(Clone)]
struct OnRecognised(Arc<dyn Fn(Recognised) + Send + Sync>);

impl fmt::Debug for OnRecognised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnRecognised")
    }
}

#[derive(Clone, Debug)]
enum From {
    Url(String),
    Source(Source),
}

impl Open {
    /// The dataset at a url, if one of the opener's formats recognises it.
    #[doc(hidden)]
    pub fn of_url(url: String, opener: &'static Opener) -> Self {
        Self::new(From::Url(url), opener)
    }

    /// The dataset in a source, if one of the opener's formats recognises it.
    #[doc(hidden)]
    pub fn of_source(source: Source, opener: &'static Opener) -> Self {
        Self::new(From::Source(source), opener)
    }

    fn new(from: From, opener: &'static Opener) -> Self {
        Self {
            from,
            opener,
            options: OpenOptions::default(),
            extra: Vec::new(),
            patience: None,
            shared: None,
            filters: Vec::new(),
            records: None,
            told: None,
        }
    }

    /// Sets the format (`folder`, `coco`, `voc`, `cifar10`, `cifar100`, `volumes`, or one of your own) instead of
    /// recognising it.
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.options.format = Some(name.into());
        self
    }

    /// Takes labels from a file: an object of the dataset, otherwise a path or url.
    ///
    /// The extension of the file (`.json`, `.jsonl`, `.ndjson`), otherwise its content, decides how it is read:
    ///
    /// - a text with one line for each image, cells separated by commas, tabs, semicolons or blanks, with or without a
    ///   header
    /// - JSON: `{"a.jpg": 3, …}`, `[["a.jpg", 3], …]`, `[{"file": "a.jpg", "label": 3}, …]`, or one of the last two
    ///   below a key
    /// - JSON lines
    ///
    /// The column of files is the one that names images of the dataset. The column of labels is the only other one, or
    /// the one called `label`, `class`, `category` or `target`, or [`label_column`](Self::label_column). If there is a
    /// column of 0 and 1 for each class, the label is the index of the column that is 1.
    ///
    /// Files are named relative to the dataset, with or without extension. If the table has no such names, the ends of
    /// names are compared: `1.jpg` stands for `images/1.jpg`, `/elsewhere/train/1.jpg` for `1.jpg`. A warning reports
    /// this, as it does other extensions and lost zeros (`7` for `007.png`); if two images or two lines could be meant,
    /// it is an error.
    ///
    /// Labels are integers or class names. For names, [`classes`](Self::classes) gives the indices, otherwise their
    /// sorted order.
    pub fn labels(mut self, file: impl Into<String>) -> Self {
        self.options.labels = Some(file.into());
        self
    }

    /// Takes only the images that the file of [`labels`](Self::labels) lists, or a `metadata.csv` next to them: useful
    /// for a table of only the training part of a folder. Default: an image without a label is an error.
    pub fn labels_only(mut self, only: bool) -> Self {
        self.options.labels_only = only;
        self
    }

    /// Sets the column of the labels, in a file of [`labels`](Self::labels) with several columns and a header.
    pub fn label_column(mut self, name: impl Into<String>) -> Self {
        self.options.label_column = Some(name.into());
        self
    }

    /// Takes boxes and other annotations of the images from a COCO JSON file (`instances_train2017.json`): an object of
    /// the dataset, otherwise a path or url. The images are files of the dataset; the JSON lists the records. See
    /// `open()`.
    ///
    /// ```
    /// # async fn coco() -> infeed::Result<()> {
    /// let coco = infeed::open("coco/train2017").annotations("coco/annotations/instances_train2017.json").await?;
    /// # Ok(()) }
    /// ```
    pub fn annotations(mut self, file: impl Into<String>) -> Self {
        self.options.annotations = Some(file.into());
        self
    }

    /// Reads outlines (polygons and runs, [`Mask`](crate::Mask)) from COCO's JSON as well. They stay in memory, 16
    /// bytes a corner. Default: only boxes.
    pub fn masks(mut self, masks: bool) -> Self {
        self.options.masks = masks;
        self
    }

    /// Sets which files are the masks of images, by a pattern of their names: `masks/{stem}_mask.png`.
    ///
    /// `{stem}` stands for the image's name without its extension, including folders above it if they are needed to
    /// tell images apart. A pattern without an extension matches every extension. Default: the names of folders and
    /// files that public datasets use (`images` and `masks`, `train` and `train_masks`, `a.jpg` and `a_mask.png`, …).
    /// An image without a mask is an error that names it.
    ///
    /// If the images' names have more than the masks' have, give two patterns:
    /// `images/{stem}_training.tif => 1st_manual/{stem}_manual1.gif`. Then only images with a mask are read; a warning
    /// counts the other files.
    ///
    /// ```
    /// # async fn roads() -> infeed::Result<()> {
    /// let roads = infeed::open("kitti/training").mask_files("semantic/{stem}.png").await?;
    /// # Ok(()) }
    /// ```
    pub fn mask_files(mut self, pattern: impl Into<String>) -> Self {
        self.options.mask_files = Some(pattern.into());
        self
    }

    /// Calls `f` with what was recognised and what was left out, once for each place that is opened.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().display().to_string();
    /// # std::fs::create_dir_all(folder.path().join("cat")).unwrap();
    /// # std::fs::write(folder.path().join("cat/1.jpg"), b"a picture").unwrap();
    /// let (send, found) = channel();
    /// let dataset = infeed::open(path).on_recognised(move |found| drop(send.send(found))).blocking()?;
    /// assert_eq!(found.recv().unwrap().format, "folder");
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn on_recognised(mut self, f: impl Fn(Recognised) + Send + Sync + 'static) -> Self {
        self.told = Some(OnRecognised(Arc::new(f)));
        self
    }

    /// Sets the place (path or url) of the images that texts of the records name, for JSON lines and Parquet. Names are
    /// relative to it; the names of folders before it are ignored. Default: the folder of the table or the place that
    /// is opened.
    ///
    /// ```
    /// # async fn conversations() -> infeed::Result<()> {
    /// let conversations = infeed::open("llava/train.json").image_root("/data/coco").await?;
    /// # Ok(()) }
    /// ```
    pub fn image_root(mut self, place: impl Into<String>) -> Self {
        self.options.image_root = Some(place.into());
        self
    }

    /// Takes class names, and so their indices, from elsewhere, for example `schema().classes` of the training set for
    /// the validation set. A class that is not among them is an error that names it.
    pub fn classes(mut self, classes: impl Into<Arc<[String]>>) -> Self {
        self.options.classes = Some(classes.into());
        self
    }

    /// Chooses a part of the dataset: for CIFAR `train` (the default) or `test`; for images one of the folders `train`,
    /// `val`, … that hold the class folders; for COCO the images and the JSON of `train2017`; for Pascal VOC the list
    /// `train`.
    pub fn split(mut self, name: impl Into<String>) -> Self {
        self.options.split = Some(name.into());
        self
    }

    /// Combines the files of an image's channels, by a pattern of their names: `{name}_{channel}.tif`.
    ///
    /// The text matched by `{name}`, with the folders above it, names the record; the text matched by `{channel}` names
    /// the channel. Channels are ordered by name, numbers by value. The pattern can set another order:
    /// `{name}_{channel:dapi,gfp}.tif` takes these two channels. A pattern can contain folders: with
    /// `{name}/{channel}.tif` each folder is a record. A record that lacks a channel is an error that names the file.
    ///
    /// ```
    /// # async fn wells() -> infeed::Result<()> {
    /// let wells = infeed::open("plates").channels("{name}_{channel:dapi,gfp,rfp}.tif").await?;
    /// # Ok(()) }
    /// ```
    pub fn channels(mut self, pattern: impl Into<String>) -> Self {
        self.options.channels = Some(pattern.into());
        self
    }

    /// Sets which file of volumes is which field of which patient: `{patient}_{field}.nrrd`,
    /// `images/{field}/{patient}.nii.gz`. Without `{field}` each file is a record, with the field `image`. File
    /// extensions are ignored. For DICOM, name the folder of the slices: `{patient}/{field}/`.
    ///
    /// Default: `{patient}/{field}` for files in folders, `{patient}_{field}` for others, and the layouts of Decathlon,
    /// nnU-Net, BIDS and BraTS.
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.options.pattern = Some(pattern.into());
        self
    }

    /// Number of records of each patient, each with random draws of its own. Default 1.
    pub fn samples_per_patient(mut self, samples: u64) -> Self {
        self.options.samples = Some(samples);
        self
    }

    /// Sets what kind a field has, if neither its name nor the format's metadata shows it: `.field("gt", ["mask"])`.
    /// The words are `mask`, `mask16` (values up to 65 535, in rows of `f32`), `image`, `label`, `list`, `array`, `text`,
    /// `bytes` and `files` (texts that name image files, which are read in their place); [`declare`](crate::declare) has
    /// the table. A field that is not there is an error that lists the fields that are.
    ///
    /// `.field("json.boxes", ["list"])` adds a field: the value `boxes` in the texts of JSON of the field `json`, of tars
    /// and tables alike. Opening reads the first 64 records to find its type.
    /// Default: images with a name that is usual for masks are masks ([`Field::picture`](crate::Field::picture)), in
    /// every format.
    ///
    /// For volumes, adds a field with the files that are its channels: `.field("image", ["ct", "pet"])`. Default: each
    /// file of a patient is a field; masks are found by the same rule. A mask of volumes is only moved, never blended
    /// or scaled; its type is the smallest of u8, u16, i16 and i64 that holds its labels.
    pub fn field<F: Into<String>>(mut self, name: impl Into<String>, files: impl IntoIterator<Item = F>) -> Self {
        self.options.fields.push((name.into(), files.into_iter().map(Into::into).collect()));
        self
    }

    /// Keeps the listing of a bucket or a local folder in this folder, for the next opening: names, sizes and ETags of
    /// 20,000 objects or more. Every opening compares some of it with the store. If anything differs, it warns and
    /// lists again.
    ///
    /// If this is not called, the variable `INFEED_MANIFEST_DIR` names the folder (`off`: none), otherwise it is
    /// `infeed` in `$XDG_CACHE_HOME` or `~/.cache`. What else opening finds out is kept there too: the index of tars,
    /// unless it is next to them, the places of TFRecords and of JSON lines, COCO's annotations, and what opening reads
    /// of MDS and Parquet in a bucket. It is used as long as an object has the same size and ETag.
    ///
    /// **Listings of local folders** are kept only if this method or the variable names a folder. An opening then reads
    /// the modification time of each folder instead of listing it and looking up each file. Adding, removing or
    /// renaming a file changes that time, and the folder is listed again. The listing of a folder is not kept if the
    /// folder
    ///
    /// - changed less than 2 s before it was listed
    /// - has more than 64 links and files that are not images (up to 64 of these are looked up at each opening)
    /// - is mounted by FUSE
    ///
    /// An image that was **overwritten in place** does not change its folder. If its size differs, reading it is an
    /// error (`Corrupt`, handled as `on_bad_sample` says), and the kept listing is dropped, so that the next opening is
    /// right. Until then the fingerprint is that of the kept sizes. To replace images safely, write them under another
    /// name and rename them. The clocks of the machine and of a file server should agree. If a folder was seen before,
    /// its changes appear when the file system's client refreshes it (NFS: up to a minute, `acdirmax`).
    pub fn manifests(mut self, dir: impl Into<PathBuf>) -> Self {
        self.options.manifests = Some(dir.into());
        self
    }

    /// Keeps one listing for a whole job in `file`, a path or url that all its processes reach. Rank 0 lists the folder
    /// or bucket and writes the file; the other ranks wait for it and read it. So a bucket of 1.28 million objects is
    /// listed once, not by each of 64 ranks, and all ranks see the same objects.
    ///
    /// If the file exists, rank 0 reads it too and never writes it again: it pins the dataset. Each opening checks some
    /// of the objects in the store: 16 at rank 0, 2 at every other rank. An object that has changed or is gone is an
    /// error. Objects added later are not in the listing. The other ranks wait up to half an hour; waiting needs a
    /// tokio runtime.
    ///
    /// ```no_run
    /// # async fn f() -> infeed::Result<()> {
    /// use infeed::Shard;
    /// let shard = Shard::from_env()?;
    /// let listing = "s3://photos/listings/2026-11.infeed";
    /// let dataset = infeed::open("s3://photos/train").listing(listing, shard.rank()).await?;
    /// # Ok(()) }
    /// ```
    pub fn listing(mut self, file: impl Into<String>, rank: u32) -> Self {
        self.shared = Some(SharedList { file: file.into(), makes: rank == 0 });
        self
    }

    /// Reads only these fields of records that hold more: `.columns(["image", "label"])`. For shards (tar, MDS,
    /// TFRecord, Parquet), groups of Zarr and HDF5 files. In a tar, naming a member with an unknown extension makes it
    /// a field. A name that is not there is an error that lists the names that are.
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.options.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Reads shards written by `prepare` even if some of the set are missing, because a rank has not finished or a copy
    /// was interrupted. Default: an error that names the missing shards. If the url names shards one by one, missing
    /// ones are never an error.
    pub fn allow_incomplete(mut self, allow: bool) -> Self {
        self.options.allow_incomplete = allow;
        self
    }

    /// How long to wait during an outage of the store, while opening and in every read; default 60 s. See
    /// [`Source::with_patience`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Adds a format of your own, which is tried before the built-in `formats`.
    pub fn add_format(mut self, format: impl Format) -> Self {
        self.extra.push(Arc::new(format));
        self
    }

    /// Keeps only the records that pass: `.filter("label=cat,dog".parse()?)`. Call it several times to keep the records
    /// that pass all filters; they are numbered from 0. See [`Filter`] for the syntax, and [`filter`](crate::filter())
    /// for the cost. For shards (tar, MDS, TFRecord, Parquet) it reads only the fields that filters need, of all
    /// records, even if [`columns`](Self::columns) names others.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// Takes the records that a file lists, one a line. The file is a path or url. A line is the number of a record, or
    /// the name of an object, full or relative to the dataset, which stands for all of its records. Records keep the
    /// dataset's order, each once. Empty lines, lines that begin with `#`, and a header in the first line (`file`,
    /// `record`, …) are ignored. Can't be combined with [`filter`](Self::filter).
    pub fn records(mut self, file: impl Into<String>) -> Self {
        self.records = Some(file.into());
        self
    }

    /// Opens the dataset and blocks until it is open, for code that is not async. It uses threads of its own and needs
    /// no runtime, whatever the store. Within async code, await the value instead.
    ///
    /// ```
    /// let dataset = infeed::open("synthetic://?count=50&classes=5").blocking()?;
    /// assert_eq!(dataset.len(), 50);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// The same as when awaited; `OutOfMemory` if the system gives no threads.
    pub fn blocking(self) -> Result<Arc<dyn Dataset>> {
        (self.opener.wait)(self.into_future())
    }

    async fn run(self) -> Result<Arc<dyn Dataset>> {
        let (filters, records) = (self.filters.clone(), self.records.clone());
        if records.is_some() && !filters.is_empty() {
            let what = "a list of records, and filters";
            return Err(Error::config(what)
                .with_hint("use one of them: the numbers could count all records, or those that pass"));
        }
        let dataset = self.unlisted().await?;
        let dataset = match &records {
            Some(file) => listed(dataset, file).await?,
            None => dataset,
        };
        let words = filters.iter().map(|filter| format!("`{filter}`")).collect::<Vec<_>>().join(" and ");
        if filters.is_empty() { Ok(dataset) } else { filter::some(dataset, &words) }
    }

    /// With filters, without the list of records.
    async fn unlisted(self) -> Result<Arc<dyn Dataset>> {
        let Self { from, opener, options, extra, patience, shared, filters, records: _, told } = self;
        let told = told.as_ref();
        let formats: Vec<&dyn Format> = extra.iter().map(|own| &**own).chain(opener.formats.iter().copied()).collect();
        let patient = |source: Source| match patience {
            Some(patience) => source.with_patience(patience),
            None => source,
        };
        let source = match from {
            From::Url(url) if url.starts_with("synthetic:") => {
                let at = |e: Error| e.at_object(url.clone());
                options.only("synthetic data", &[]).map_err(at)?;
                let no = |name: &str| format!("synthetic data take no {name}, and no other options");
                if shared.is_some() {
                    return Err(at(Error::config(no("listing")).with_hint("leave it out: nothing is listed")));
                }
                return match (&options.format, &options.manifests) {
                    (Some(_), _) => Err(at(Error::config(no("format")).with_hint("leave it out: the url says it"))),
                    (_, Some(_)) => {
                        Err(at(Error::config(no("manifests")).with_hint("leave it out: nothing is listed")))
                    }
                    (None, None) => {
                        let dataset: Arc<dyn Dataset> = Arc::new(SyntheticDataset::parse(&url)?);
                        filtered(dataset, &filters).await
                    }
                };
            }
            From::Url(url) if pattern::names_many(&url) => {
                let places = places(&url, patient).await?;
                if places.len() > 1 && shared.is_some() {
                    return Err(Error::config("a listing holds one folder, but the url names several").at_object(url));
                }
                let (manifests, shared) = (options.manifests.as_deref(), shared.as_ref());
                let mut parts = Vec::new();
                for place in places {
                    let (source, objects, allow_incomplete) = match place {
                        UrlPlace::Files(source, names) => {
                            let objects = named(&source, names, manifests, shared).await?;
                            (source, objects, true)
                        }
                        UrlPlace::Folder(source) => {
                            let (source, objects) = list(source, manifests, shared).await?;
                            (source, objects, options.allow_incomplete)
                        }
                    };
                    let options = OpenOptions { allow_incomplete, ..options.clone() };
                    let first = parts.first().map(|first: &Arc<dyn Dataset>| Arc::clone(first));
                    parts
                        .push(open_after(first.as_deref(), &source, objects, options, &formats, &filters, told).await?);
                }
                return if parts.len() == 1 { Ok(parts.remove(0)) } else { concat(parts) };
            }
            From::Url(url) => patient(Source::parse(&url)?),
            From::Source(source) => patient(source),
        };
        if shared.is_none() || !source.has_commits() {
            source.connect().await?;
        }
        let (manifests, shared) = (options.manifests.as_deref(), shared.as_ref());
        if shared.is_some() {
            let (source, objects) = list(source, manifests, shared).await?;
            return open_objects(&source, objects, &options, &formats, &filters, told).await;
        }
        let listing = source.listing(manifests, Some(is_image)).await?;
        let kept = listing.kept().cloned();
        if let Some(kept) = kept.as_ref().filter(|_| extra.is_empty())
            && let Some((dataset, recognised)) = folder::opened(&source, kept, &options).await?
        {
            if let Some(OnRecognised(told)) = told {
                told(recognised);
            }
            let options = for_format(&source, &options, "folder", &[OpenOption::Classes])?;
            let dataset = as_declared(dataset, &options.said).await.map_err(|e| e.at_object(source.url()))?;
            return filtered(dataset, &filters).await;
        }
        let objects = match listing.into_objects() {
            Ok(objects) => {
                kept.into_iter().for_each(|kept| options.findings.put(source.url(), kept));
                objects
            }
            // What was kept is damaged.
            Err(_) => source.objects(None, None).await?,
        };
        let (source, objects) = only_or(source, objects).await?;
        open_objects(&source, objects, &options, &formats, &filters, told).await
    }
}

/// The options as a format gets them that takes these. The kinds of fields become words to apply afterwards.
fn for_format(source: &Source, options: &OpenOptions, format: &str, takes: &[OpenOption]) -> Result<OpenOptions> {
    let mut own = options.clone();
    // The format itself handles files of volumes; the kinds of fields are applied here for all other formats.
    if !takes.contains(&OpenOption::Field) {
        // Several words can only be files, which are refused below.
        for (name, word) in own.fields.extract_if(.., |(_, words)| words.len() == 1) {
            let said = Said::parse(&name, &word.concat()).map_err(|e| e.at_object(source.url()))?;
            own.said.push((name, said));
        }
    }
    own.only(&format!("datasets of the format {format}"), takes).map_err(|e| e.at_object(source.url()))?;
    Ok(own)
}

/// The dataset with fields of the declared kinds.
async fn as_declared(dataset: Arc<dyn Dataset>, said: &[(String, Said)]) -> Result<Arc<dyn Dataset>> {
    let mut said = said.to_vec();
    let dataset = with_json(dataset, &mut said).boxed().await?;
    declared(dataset, &said)
}

/// The list of so many objects takes 10 MB or more, which no one needs after opening.
const MANY: usize = 100_000;

/// The records that pass.
async fn filtered(dataset: Arc<dyn Dataset>, filters: &[Filter]) -> Result<Arc<dyn Dataset>> {
    if filters.is_empty() {
        return Ok(dataset);
    }
    let passing = filter::passing(&*dataset, filters).await?;
    filter::only(dataset, passing)
}

/// Opens a place that comes after `first`. If its class names differ from those of `first`, it is opened with those of
/// `first`.
async fn open_after(
    first: Option<&dyn Dataset>,
    source: &Source,
    objects: Vec<Object>,
    options: OpenOptions,
    formats: &[&dyn Format],
    filters: &[Filter],
    told: Option<&OnRecognised>,
) -> Result<Arc<dyn Dataset>> {
    let Some(classes) = first.and_then(|first| first.schema().classes.clone()) else {
        return open_objects(source, objects, &options, formats, filters, told).await;
    };
    let again = objects.clone();
    let dataset = open_objects(source, objects, &options, formats, filters, told).await?;
    let takes = |f: &&dyn Format| f.name() == dataset.format() && f.options().contains(&OpenOption::Classes);
    match &dataset.schema().classes {
        Some(own) if *own != classes && formats.iter().any(takes) => {
            let options = OpenOptions { classes: Some(classes), ..options };
            open_objects(source, again, &options, formats, filters, None).await
        }
        _ => Ok(dataset),
    }
}

async fn open_objects(
    source: &Source,
    mut objects: Vec<Object>,
    options: &OpenOptions,
    formats: &[&dyn Format],
    filters: &[Filter],
    told: Option<&OnRecognised>,
) -> Result<Arc<dyn Dataset>> {
    objects.retain(|object| !is_left_by_system(&object.name));
    let (format, why) = choose_format(source, &objects, options, formats)?;
    let left_out = left_out(source, &objects, options, format);
    if let Some(OnRecognised(told)) = told {
        let (url, format) = (source.url().to_owned(), format.name().to_owned());
        told(Recognised { url, format, why, left_out });
    }
    tracing::debug!(url = source.url(), format = format.name(), objects = objects.len(), "opening");
    let options = &for_format(source, options, format.name(), format.options())?;
    // Copied only if needed: there may be a million names.
    let again = (!filters.is_empty() && format.options().contains(&OpenOption::Columns)).then(|| objects.clone());
    let count = objects.len();
    let names_files = format.options().contains(&OpenOption::ImageRoot);
    let place = names_files.then(|| Place::of(source, &objects, format.name()));
    let mut dataset = format.open(source, objects, options).await?;
    let mut said = options.said.clone();
    if let Some(place) = place {
        dataset = place.read(format, dataset, options).boxed().await?;
        said.retain(|(_, said)| *said != Said::Files);
    }
    if count >= MANY {
        memory::return_freed();
    }
    let found = dataset.schema().clone();
    if options.classes.is_none() {
        warn_of_spellings(source, found.classes.as_deref().unwrap_or_default());
    }
    let dataset = as_declared(dataset, &said).await.map_err(|e| e.at_object(source.url()))?;
    if filters.is_empty() {
        return Ok(dataset);
    }
    let columns = filter::columns(&found, filters, true);
    let passing = match again {
        // In shards only the fields that filters need are read, because records may hold images.
        Some(objects) if !columns.is_empty() => {
            let before_dots = filter::columns(&found, filters, false);
            let only = |columns: Vec<String>| {
                let is_of = |name: &str| {
                    let in_json =
                        |column: &String| name.strip_prefix(&**column).is_some_and(|keys| keys.starts_with('.'));
                    columns.iter().any(|column| column == name || in_json(column))
                };
                let said = said.iter().filter(|(name, _)| is_of(name)).cloned().collect();
                OpenOptions { said, columns: Some(columns), ..options.clone() }
            };
            let narrow = async |objects: Vec<Object>, options: OpenOptions| {
                as_declared(format.open(source, objects, &options).await?, &options.said).await
            };
            let narrow = match before_dots == columns {
                true => narrow(objects, only(columns)).await?,
                false => match narrow(objects.clone(), only(columns)).await {
                    Ok(found) => found,
                    Err(_) => narrow(objects, only(before_dots)).await?,
                },
            };
            filter::passing(&*narrow, filters).await?
        }
        _ => filter::passing(&*dataset, filters).await?,
    };
    filter::only(dataset, passing)
}

/// Warns of classes whose names differ only in case or in blanks around them: they may be one.
fn warn_of_spellings(source: &Source, classes: &[String]) {
    let mut seen: HashMap<String, &str> = HashMap::with_capacity(classes.len());
    // Of single letters, `a` and `A` are classes.
    for class in classes.iter().filter(|class| class.trim().chars().nth(1).is_some()) {
        if let Some(first) = seen.insert(class.trim().to_lowercase(), class) {
            tracing::warn!(
                url = source.url(),
                first,
                second = class,
                "names of classes differ only in case or blanks, and are classes of their own; if they are one, correct \
                 their spelling"
            );
            return;
        }
    }
}

/// Opens several datasets and puts them together, as [`concat()`](crate::concat()) does. Later ones are opened with the
/// class names of the first, if they have others. A [`Mixture`](crate::sampler::Mixture) draws from such a dataset.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::{open, open_together};
/// let both = open_together(["synthetic://?count=50", "synthetic://?count=7"].map(open)).await?;
/// assert_eq!(both.parts().as_deref(), Some(&[0, 50][..]));
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// Those of opening each; `Config` if their fields differ, or if a later dataset has a class that the first does not
/// have.
pub async fn open_together(parts: impl IntoIterator<Item = Open>) -> Result<Arc<dyn Dataset>> {
    let mut opened: Vec<Arc<dyn Dataset>> = Vec::new();
    for part in parts.into_iter().collect::<Vec<_>>() {
        let again = part.clone();
        let mut dataset = part.await?;
        let classes = |dataset: &Arc<dyn Dataset>| dataset.schema().classes.clone();
        if let (Some(classes), Some(own)) = (opened.first().and_then(classes), classes(&dataset))
            && classes != own
        {
            dataset = again.classes(classes).await?;
        }
        opened.push(dataset);
    }
    concat(opened)
}

impl IntoFuture for Open {
    type Output = Result<Arc<dyn Dataset>>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().map(|opened| opened.map_err(|e| e.at_stage(Stage::Open))).boxed()
    }
}
