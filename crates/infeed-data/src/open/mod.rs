//! From a url to a dataset, by the formats that there are.
//!
//! ```text
//! url ─ places ─▶ objects ─ recognise ─▶ format ─ Format::open ─▶ dataset ─ declared ─▶ filters, records ─▶ dataset
//! ```

mod places;
mod recognise;
mod records;

use std::{fmt, future::IntoFuture, path::PathBuf, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use infeed_core::{
    error::{Error, Result},
    report::Stage,
};
use infeed_store::{Object, SharedList, Source};

use self::{
    places::{Place, places},
    recognise::{choose_format, left_out},
    records::listed,
};
use crate::{
    concat::concat,
    declared::{Said, declared},
    filter::{self, Filter},
    format::{Format, OpenOption, OpenOptions, Recognised},
    layout::is_left_by_system,
    objects::{list, named},
    pattern,
    record::Dataset,
    synthetic::SyntheticDataset,
};

/// An opening under way.
pub type Opening = BoxFuture<'static, Result<Arc<dyn Dataset>>>;

/// What a build gives to an opening.
#[derive(Clone, Copy, Debug)]
pub struct Opener {
    /// The formats that it reads, in the order in which they are tried.
    pub formats: &'static [&'static dyn Format],
    /// Waits for an opening where nobody awaits it, on threads that it may use.
    pub wait: fn(Opening) -> Result<Arc<dyn Dataset>>,
}

/// A dataset about to be opened; `.await` opens it. See `open`.
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
    told: Option<Told>,
}

/// Who is told what was recognised.
#[derive(Clone)]
struct Told(Arc<dyn Fn(Recognised) + Send + Sync>);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Told")
    }
}

#[derive(Clone, Debug)]
enum From {
    Url(String),
    Source(Source),
}

impl Open {
    /// What is at a url, if one of the opener's formats knows it.
    #[doc(hidden)]
    pub fn of_url(url: String, opener: &'static Opener) -> Self {
        Self::new(From::Url(url), opener)
    }

    /// What is in a source, if one of the opener's formats knows it.
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

    /// Names the format (`folder`, `coco`, `voc`, `cifar10`, `cifar100`, `volumes`, or one of your own) instead of recognising
    /// it.
    pub fn format(mut self, name: impl Into<String>) -> Self {
        self.options.format = Some(name.into());
        self
    }

    /// Takes labels from a file: an object of the dataset, else a path or url.
    ///
    /// It is a text with a line for each image, its cells separated by commas, tabs, semicolons or blanks, with or without a
    /// header; JSON (`{"a.jpg": 3, …}`, `[["a.jpg", 3], …]`, `[{"file": "a.jpg", "label": 3}, …]`, or one of the last two
    /// below a key); or JSON lines. What is in it tells which. The column of the files is the one that names images of the
    /// dataset; that of the labels the only other, or the one that is called `label`, `class`, `category` or `target`, or
    /// [`label_column`](Self::label_column). A column of 0 and 1 for each class counts these columns.
    ///
    /// Files are named relative to the dataset, with or without extension. When the table names none so, the ends of names
    /// count: `1.jpg` for `images/1.jpg`, `/elsewhere/train/1.jpg` for `1.jpg`. That, other extensions and lost zeros (`7` for
    /// `007.png`) are warned of, and are an error where two images or two lines could be meant.
    ///
    /// Labels are integers, or class names: then [`classes`](Self::classes), else the sorted names, give the indices.
    pub fn labels(mut self, file: impl Into<String>) -> Self {
        self.options.labels = Some(file.into());
        self
    }

    /// Takes only the images that the file of [`labels`](Self::labels) lists, or `metadata.csv` beside them: a table for
    /// the training part of a folder. Default: an image without a label is an error.
    pub fn labels_only(mut self, only: bool) -> Self {
        self.options.labels_only = only;
        self
    }

    /// Names the column of the labels, of a file of [`labels`](Self::labels) with several columns and a header.
    pub fn label_column(mut self, name: impl Into<String>) -> Self {
        self.options.label_column = Some(name.into());
        self
    }

    /// Takes what is marked in the images from COCO's JSON (`instances_train2017.json`): an object of the dataset, else a
    /// path or url. The images are the files of the dataset, a record is one that the JSON lists; see `open()`.
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

    /// Reads outlines too, polygons and runs ([`Mask`](crate::Mask)), of COCO's JSON. Default: boxes alone. They
    /// stay in memory, 16 bytes a corner.
    pub fn masks(mut self, masks: bool) -> Self {
        self.options.masks = masks;
        self
    }

    /// Tells masks from the images that they are of, by a pattern of their names: `masks/{stem}_mask.png`.
    ///
    /// `{stem}` stands for the image's name without its ending, and the folders above it where they are needed to tell
    /// images apart. Without an ending the pattern stands for all of them. Default: the folders and endings that public
    /// datasets use tell them apart (`images` and `masks`, `train` and `train_masks`, `a.jpg` and `a_mask.png`, …). An
    /// image without a mask is an error that names it.
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

    /// Tells `f` what was recognised, and what was left out, once for each place that is opened.
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
        self.told = Some(Told(Arc::new(f)));
        self
    }

    /// Takes class names, and so their indices, from elsewhere: `schema().classes` of the training set, for the
    /// validation set. A class that is not among them is an error that names it.
    pub fn classes(mut self, classes: impl Into<Arc<[String]>>) -> Self {
        self.options.classes = Some(classes.into());
        self
    }

    /// Chooses a part of the dataset: `train` (which CIFAR takes when nothing is said) or `test`; for images, one of the folders
    /// `train`, `val`, … that hold the class folders; for COCO the images and the JSON of `train2017`; for Pascal VOC the
    /// list `train`.
    pub fn split(mut self, name: impl Into<String>) -> Self {
        self.options.split = Some(name.into());
        self
    }

    /// Puts the files of an image's channels together, by a pattern of their names: `{name}_{channel}.tif`.
    ///
    /// What stands for `{name}` (and the folders above it) names the record, what stands for `{channel}` the channel.
    /// Channels come in the order of their names, numbers by their size; or in the order that the pattern says:
    /// `{name}_{channel:dapi,gfp}.tif` takes these two. With folders in the pattern, `{name}/{channel}.tif`, each folder
    /// is a record. A record that lacks a channel is an error that names the file.
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

    /// Tells which file of volumes is which field of which patient: `{patient}_{field}.nrrd`,
    /// `images/{field}/{patient}.nii.gz`. Without `{field}` each file is a record, with the field `image`. Default:
    /// `{patient}/{field}` for files in folders, `{patient}_{field}` for others, and the layouts of Decathlon, nnU-Net, BIDS and
    /// BraTS. The ending counts for nothing. Of DICOM, the folder of the slices: `{patient}/{field}/`.
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.options.pattern = Some(pattern.into());
        self
    }

    /// Records of each patient, each with draws of its own. Default 1.
    pub fn samples_per_patient(mut self, samples: u64) -> Self {
        self.options.samples = Some(samples);
        self
    }

    /// Says what a field is, where neither its name nor the format's metadata does: `.field("gt", ["mask"])`. The words are
    /// `mask`, `mask16` (values up to 65 535, in rows of `f32`), `image`, `label` and `bytes`;
    /// [`declare`](crate::declare) has the table. A field that is not there is an error that lists those that are. Default: images
    /// whose names are those of masks are masks ([`Field::picture`](crate::Field::picture)), in every format.
    ///
    /// Of volumes it adds a field, with the files that are its channels: `.field("image", ["ct", "pet"])`. Default: each
    /// file of the patients is a field, and a mask by the same rule: only moved, never blended or scaled, in the
    /// smallest of u8, u16, i16 and i64 that holds its labels.
    pub fn field<F: Into<String>>(mut self, name: impl Into<String>, files: impl IntoIterator<Item = F>) -> Self {
        self.options.fields.push((name.into(), files.into_iter().map(Into::into).collect()));
        self
    }

    /// Keeps what listing a bucket or a local folder found in this folder, where the next opening finds it: names, sizes and
    /// ETags of 20,000 objects or more. Every opening compares some of it with the store, and lists again with a
    /// warning when anything differs.
    ///
    /// Else the variable `INFEED_MANIFEST_DIR` names the folder (`off`: none), else it is `infeed` in
    /// `$XDG_CACHE_HOME` or `~/.cache`. Indexes of tar shards are kept there too, when they can't lie beside the shards.
    ///
    /// **Of a local folder** a listing is kept only where this or the variable names the place. An opening then asks for the
    /// times of each folder in it, instead of listing it and looking up each file: what came, went or was renamed changes them,
    /// and such a folder is listed again. One that changed less than 2 s before it was listed is not kept, nor is one with
    /// more than 64 links and files that are no images, which are looked up each time, nor what is mounted by FUSE. An
    /// image that was **written again in its place** does not change its folder: one of another size is an error when it is read
    /// (`Corrupt`, or what `on_bad_sample` says), and has the listing forgotten, so
    /// that opening again is right; until then the fingerprint is of the sizes that were kept. Who replaces images should
    /// write them aside and rename them. The machine's clock and that of a file server should agree; folders that
    /// were seen before show a change when the client of the file system does (NFS: up to a minute, `acdirmax`).
    pub fn manifests(mut self, dir: impl Into<PathBuf>) -> Self {
        self.options.manifests = Some(dir.into());
        self
    }

    /// Keeps one listing for a whole job in `file`, a path or url that all its processes reach: rank 0 lists the folder or
    /// bucket and writes it, the others wait for it and read it. So a bucket of 1.28 million objects is listed once, not by
    /// each of 64 ranks, and all of them see the same objects.
    ///
    /// A file that is there is taken by rank 0, too, and never written again: it pins the dataset. Each opening asks the
    /// store for a few of the objects, rank 0 for 16 and the others for 2; one that has changed or is gone is an error.
    /// What has come since is not in it. Others wait up to half an hour, which takes a tokio runtime.
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

    /// Reads these fields alone, of the records of shards (tar, MDS, TFRecord, Parquet), groups of Zarr and files of HDF5,
    /// which may hold more than is needed: `.columns(["image", "label"])`. Of a tar, members of extensions that are not known are read when they are named
    /// here. A name that is not there is an error that lists those that are.
    pub fn columns<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.options.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Reads shards of a `prepare` although others of it are missing, because a rank has not finished or a copy was broken
    /// off. Default: an error that names them. Shards that the url names one by one are never refused.
    pub fn allow_incomplete(mut self, allow: bool) -> Self {
        self.options.allow_incomplete = allow;
        self
    }

    /// How long an outage of the store is waited for, while opening and in every read; default 60 s. See
    /// [`Source::with_patience`].
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// Tries a format of your own before those of `formats`.
    pub fn add_format(mut self, format: impl Format) -> Self {
        self.extra.push(Arc::new(format));
        self
    }

    /// Leaves out the records that do not pass: `.filter("label=cat,dog".parse()?)`; several times, for records that pass
    /// all. See [`Filter`] for what may be asked, and [`filter`](crate::filter()) for what it costs; of shards (tar, MDS,
    /// TFRecord, Parquet) the fields that are asked for are read alone, of all records, also when [`columns`](Self::columns) are
    /// others. The dataset then is those records, numbered from 0.
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// Takes the records that a file lists, one a line: numbers of records, or names of objects, relative to the dataset or
    /// whole, that stand for all their records. The file is a path or url. Records keep the dataset's order, and come once;
    /// lines that are empty or begin with `#`, and a header in the first (`file`, `record`, …), count for nothing. Not with [`filter`](Self::filter).
    pub fn records(mut self, file: impl Into<String>) -> Self {
        self.records = Some(file.into());
        self
    }

    /// Opens the dataset and waits for it, for code that is not async: threads of its own do the asking, so it needs no
    /// runtime here, whatever the store. Within async code, await it instead: this blocks the thread.
    ///
    /// ```
    /// let dataset = infeed::open("synthetic://?count=50&classes=5").blocking()?;
    /// assert_eq!(dataset.len(), 50);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of awaiting it; `OutOfMemory` when the system gives no threads.
    pub fn blocking(self) -> Result<Arc<dyn Dataset>> {
        (self.opener.wait)(self.into_future())
    }

    async fn run(self) -> Result<Arc<dyn Dataset>> {
        let (filters, records) = (self.filters.clone(), self.records.clone());
        if records.is_some() && !filters.is_empty() {
            let what = "a list of records, and filters";
            return Err(
                Error::config(what).hint("use one of them: nobody knows whether its numbers count those that pass")
            );
        }
        let dataset = self.unlisted().await?;
        let dataset = match &records {
            Some(file) => listed(dataset, file).await?,
            None => dataset,
        };
        let words = filters.iter().map(|filter| format!("`{filter}`")).collect::<Vec<_>>().join(" and ");
        if filters.is_empty() { Ok(dataset) } else { filter::some(dataset, &words) }
    }

    /// With filters, without the list.
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
                    return Err(at(Error::config(no("listing")).hint("leave it out: nothing is listed")));
                }
                return match (&options.format, &options.manifests) {
                    (Some(_), _) => Err(at(Error::config(no("format")).hint("leave it out: the url says it"))),
                    (_, Some(_)) => Err(at(Error::config(no("manifests")).hint("leave it out: nothing is listed"))),
                    (None, None) => {
                        let dataset: Arc<dyn Dataset> = Arc::new(SyntheticDataset::parse(&url)?);
                        if filters.is_empty() {
                            return Ok(dataset);
                        }
                        let passing = filter::passing(&*dataset, &filters).await?;
                        filter::only(dataset, passing)
                    }
                };
            }
            From::Url(url) if pattern::names_many(&url) => {
                let places = places(&url, patient).await?;
                if places.len() > 1 && shared.is_some() {
                    return Err(Error::config("a listing is of one folder, and the url names several").at_object(url));
                }
                let (manifests, shared) = (options.manifests.as_deref(), shared.as_ref());
                let mut parts = Vec::new();
                for place in places {
                    let (source, objects, allow_incomplete) = match place {
                        Place::Files(source, names) => {
                            let objects = named(&source, names, manifests, shared).await?;
                            (source, objects, true)
                        }
                        Place::Folder(source) => {
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
        let (source, objects) = list(source, options.manifests.as_deref(), shared.as_ref()).await?;
        open_objects(&source, objects, &options, &formats, &filters, told).await
    }
}

/// Opens what comes behind `first`: with the class names of that, where it has others.
async fn open_after(
    first: Option<&dyn Dataset>,
    source: &Source,
    objects: Vec<Object>,
    options: OpenOptions,
    formats: &[&dyn Format],
    filters: &[Filter],
    told: Option<&Told>,
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
    told: Option<&Told>,
) -> Result<Arc<dyn Dataset>> {
    objects.retain(|object| !is_left_by_system(&object.name));
    let (format, why) = choose_format(source, &objects, options, formats)?;
    let left_out = left_out(source, &objects, options, format);
    if let Some(Told(told)) = told {
        let (url, format) = (source.url().to_owned(), format.name().to_owned());
        told(Recognised { url, format, why, left_out });
    }
    tracing::debug!(url = source.url(), format = format.name(), objects = objects.len(), "opening");
    // Files of volumes are the format's own matter; what a field is, is said of all others alike.
    let mut own = options.clone();
    if !format.options().contains(&OpenOption::Field) {
        // Several words can be files alone, which are refused below.
        for (name, word) in own.fields.extract_if(.., |(_, words)| words.len() == 1) {
            let said = Said::parse(&name, &word.concat()).map_err(|e| e.at_object(source.url()))?;
            own.said.push((name, said));
        }
    }
    let options = &own;
    let what = format!("datasets of the format {}", format.name());
    options.only(&what, format.options()).map_err(|e| e.at_object(source.url()))?;
    // A million names are not copied for nothing.
    let again = (!filters.is_empty() && format.options().contains(&OpenOption::Columns)).then(|| objects.clone());
    let dataset = format.open(source, objects, options).await?;
    let dataset = declared(dataset, &options.said).map_err(|e| e.at_object(source.url()))?;
    if filters.is_empty() {
        return Ok(dataset);
    }
    let columns = filter::columns(dataset.schema(), filters, true);
    let passing = match again {
        // Of shards what is asked for alone, though the records may have pictures.
        Some(objects) if !columns.is_empty() => {
            let before_dots = filter::columns(dataset.schema(), filters, false);
            let only = |columns: Vec<String>| {
                let said = options.said.iter().filter(|(name, _)| columns.contains(name)).cloned().collect();
                OpenOptions { said, columns: Some(columns), ..options.clone() }
            };
            let narrow = async |objects: Vec<Object>, options: OpenOptions| {
                declared(format.open(source, objects, &options).await?, &options.said)
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

/// Opens several datasets and puts them together, as [`concat()`](crate::concat()) does: the later ones with the class names of
/// the first, where they have others. What a [`Mixture`](crate::sampler::Mixture) draws from.
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
/// As of opening each; `Config` when their fields differ, or a class of a later one is not among the first one's.
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
