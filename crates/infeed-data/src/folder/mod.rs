//! Image files, in class folders or not; optionally one file per channel, or masks in files.

mod dataset;
mod fields;
mod kept;
mod metadata;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{CLASSES, LABEL_COLUMN, LABELS, LABELS_ONLY, MASK_FILES, SPLIT},
};
use infeed_store::{Beside, KeptFiles, Object, Source};

pub(super) use self::kept::opened;
use self::{
    dataset::{FolderDataset, Found, why},
    fields::{Several, image_fields},
    metadata::{Described, Metadata, several},
};
use super::{
    channels::{self, Groups},
    files::Files,
    format::{Claim, Evidence, Format, OpenOption, OpenOptions},
    label_table::{Labels, Names, Table},
    labels::classes_of,
    layout::{self, keep_split, key, one_split},
    named_files::{NameField, Place},
    names::{base, is_image, parent},
    objects::{inside, nothing_to_read, read_beside},
    pairs::{self, Sides},
    record::Dataset,
};

/// Class folders of images (ImageNet, Caltech-256), or a flat folder.
#[derive(Clone, Copy, Debug)]
pub struct Folder {
    /// The format that reads `metadata.parquet`, if this build has it.
    pub parquet: Option<&'static dyn Format>,
    /// The format that reads a `metadata.jsonl` whose records have several images, if this build has it.
    pub lines: Option<&'static dyn Format>,
}

impl Format for Folder {
    fn name(&self) -> &'static str {
        "folder"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_image(&o.name))
    }

    fn claim(&self, objects: &[Object]) -> Option<Claim> {
        let first = objects.iter().find(|o| is_image(&o.name))?;
        Some(Claim::new(Evidence::Files, why(&first.name)))
    }

    fn reads(&self, name: &str) -> bool {
        is_image(name) || self.is_table(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[
            OpenOption::Labels,
            OpenOption::LabelsOnly,
            OpenOption::LabelColumn,
            OpenOption::Classes,
            OpenOption::Split,
            OpenOption::Channels,
            OpenOption::MaskFiles,
        ]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let labels = match &options.labels {
                Some(name) => Some(read_beside(source, &objects, name).await?),
                None => None,
            };
            let place = source;
            let found = match find(*self, source, objects, options).await? {
                FoundRecords::Images(found) => found,
                FoundRecords::Several(objects) => return self.open_several(source, objects, options).await,
            };
            let FoundImages { source, mut groups, objects, mut metadata, is_paired } = found;
            let mut images = images_of(&objects);
            let names: Vec<&str> = match &groups {
                Some(groups) => groups.names.iter().map(String::as_str).collect(),
                None => images.iter().map(|image| &*image.name).collect(),
            };
            let known = Names::new(&names, source.url());
            let table = match (&labels, &mut metadata) {
                (Some((object, bytes)), _) => {
                    let table = Table::parse(object, bytes, &known, options.label_column.as_deref());
                    Some((table.map_err(|e| e.at_object(object.clone()))?, object.clone()))
                }
                (None, Some((metadata, object))) => metadata.take_labels().map(|table| (table, object.clone())),
                (None, None) => None,
            };
            let lacks_table = match &labels {
                Some(_) => None,
                None if options.label_column.is_some() => Some(LABEL_COLUMN),
                None => (options.labels_only && metadata.is_none()).then_some(LABELS_ONLY),
            };
            if let Some(setting) = lacks_table {
                let what = format!("{} needs a file with labels, but there is none", setting.word());
                return Err(Error::config(what)
                    .at_object(source.url())
                    .with_hint(format!("set {LABELS}, or leave it out")));
            }
            let (mut labels, mut kept) = (None, None);
            if let Some((table, object)) = table {
                let found = table.labels_of(&known, options.classes.clone(), options.labels_only);
                let Labels { of, classes, kept: listed } = found.map_err(|e| e.at_object(object))?;
                (labels, kept) = (Some((Some(of), classes)), listed);
            }
            let has_metadata = metadata.is_some();
            let labels_are_of_folders = labels.is_none() && !has_metadata;
            let metadata = match metadata {
                Some((metadata, object)) => {
                    let found = metadata.columns(&known, options.labels_only, &["image", "label"]);
                    let (columns, listed) = found.map_err(|e| e.at_object(object))?;
                    kept = listed;
                    columns
                }
                None => Vec::new(),
            };
            drop(known);
            let mut is_doubtful = false;
            if labels.is_some() && options.split.is_none() {
                match &kept {
                    Some(kept) => warn_of_splits(&source, &kept.iter().map(|image| names[*image]).collect::<Vec<_>>()),
                    None => warn_of_splits(&source, &names),
                }
            }
            let (labels, classes) = match labels {
                Some(labels) => labels,
                // Names of split folders are not labels if a table describes the images.
                None if has_metadata && !layout::are_classes(&names) => (None, options.classes.clone()),
                None => {
                    let some: Option<Vec<&str>> = kept.as_ref().map(|kept| kept.iter().map(|i| names[*i]).collect());
                    let kinds = options.format.is_none() && groups.is_none();
                    let mut names = some.unwrap_or_else(|| names.clone());
                    if is_paired {
                        // All are of one split, whose folder is not a class.
                        names.iter_mut().for_each(|name| *name = layout::without_split(name));
                    }
                    let (names, given) = (&names[..], options.classes.clone());
                    let found = classes_of(names, &source, given, kinds)?;
                    if let (Some(found), None, false) = (&found.classes, &options.classes, is_paired) {
                        no_class_is_lost(&source, &objects, layout::wrapper(names), found)?;
                    }
                    is_doubtful = found.is_doubtful;
                    (found.labels, found.classes)
                }
            };
            drop(names);
            let are_all = images.len() == objects.len() && kept.is_none() && groups.is_none();
            let is_plain = are_all && labels_are_of_folders && options.split.is_none();
            match (&kept, &mut groups) {
                (Some(kept), Some(groups)) => groups.keep(kept),
                (Some(kept), None) => images = kept.iter().map(|i| images[*i]).collect(),
                (None, _) => {}
            }
            let listing = options.findings.get::<KeptFiles>(place.url());
            let listing = listing.filter(|listing| is_plain && listing.table.len() == images.len());
            let files = match &listing {
                Some(listing) => Files::kept(source, Arc::clone(&listing.table)),
                None => Files::of(source, &images),
            };
            drop(images);
            drop(objects);
            let groups = groups.map(|Groups { per, channels, order, .. }| Several { per, channels, order });
            let fields = image_fields(&files, groups.as_ref()).await?;
            let found = Found::of(&files, groups.as_ref(), labels, classes)?;
            // A later opening has to warn again.
            if let Some(listing) = listing.as_ref().filter(|_| !is_doubtful) {
                kept::keep(&files.source, listing, options, &found);
            }
            let dataset = FolderDataset::new(files, groups, found, fields, metadata).with_upright(has_metadata);
            Ok(Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// Warns if the images that a table of labels lists are of several splits.
fn warn_of_splits(source: &Source, names: &[&str]) {
    let around = layout::wrapper(names).len();
    let runs = layout::runs(names);
    let tops = runs.iter().filter_map(|run| run.folder.get(around..)?.split('/').next());
    let tops: BTreeSet<&str> = tops.filter(|top| !top.is_empty()).collect();
    let split = tops.iter().find(|top| layout::is_split(top)).filter(|_| tops.len() > 1);
    if let Some(split) = split.filter(|_| layout::are_splits(tops.iter().copied())) {
        let (url, splits) = (source.url(), tops.iter().copied().collect::<Vec<_>>().join(", "));
        tracing::warn!(
            url,
            splits,
            "images of several splits have labels and are read together; {} reads one",
            SPLIT.to(split)
        );
    }
}

impl Folder {
    /// Whether it is a table of metadata that this build reads.
    fn is_table(self, name: &str) -> bool {
        metadata::NAMES.contains(&base(name)) && (self.parquet.is_some() || base(name) != metadata::PARQUET)
    }

    /// Opens tables whose records have several images: the lines or rows are the records.
    async fn open_several(
        self,
        source: &Source,
        objects: Vec<Object>,
        options: &OpenOptions,
    ) -> Result<Arc<dyn Dataset>> {
        let at = |e: Error| e.at_object(source.url());
        let takes = [OpenOption::Classes, OpenOption::Split];
        options.only("tables whose records have several images", &takes).map_err(at)?;
        let names: Vec<&str> = objects.iter().map(|o| &*o.name).filter(|name| is_image(name)).collect();
        let split = options.split.as_ref().map(|split| layout::split_folder(&names, split));
        let is_of = |name: &str| split.as_deref().is_none_or(|split| is_within(parent(name), split));
        let mut tables: Vec<Object> =
            objects.iter().filter(|o| self.is_table(&o.name) && is_of(&o.name)).cloned().collect();
        let kind = tables.first().map(|table| base(&table.name).to_owned()).unwrap_or_default();
        let format = if kind == metadata::PARQUET { self.parquet } else { self.lines };
        let Some(format) = format.filter(|_| tables.iter().all(|table| base(&table.name) == kind)) else {
            let what = match &kind[..] {
                "" => "are listed outside of the folder of the split",
                _ if self.lines.is_none() => "need the feature `shards`",
                _ => "are listed in tables of several kinds",
            };
            return Err(at(several(what)));
        };
        tables.sort_by(|a, b| a.name.cmp(&b.name));
        let own = OpenOptions {
            classes: options.classes.clone(),
            manifests: options.manifests.clone(),
            said: options.said.clone(),
            ..OpenOptions::default()
        };
        let table = format.open(source, tables, &own).await?;
        let field = |name: &str| {
            let becomes = metadata::images_of(name)?.to_owned();
            let is_main = ["image", "images"].contains(&&*becomes);
            Some(NameField { name: name.to_owned(), becomes, if_there: !is_main })
        };
        let fields = table.schema().fields.iter().filter_map(|of| field(&of.name)).collect();
        Place::of(source, &objects, self.name()).with_images(format, table, fields, &own).await
    }
}

/// The images among these objects.
fn images_of(objects: &[Object]) -> Vec<&Object> {
    objects.iter().filter(|object| is_image(&object.name)).collect()
}

/// The records of a place.
enum FoundRecords {
    Images(FoundImages),
    /// A table lists records of several images each; these are all objects.
    Several(Vec<Object>),
}

/// The images of a place, and how they form records.
struct FoundImages {
    /// Of the images.
    source: Source,
    /// `None`: each file is a record.
    groups: Option<Groups>,
    /// All objects of the place, or of the folder of the split.
    objects: Vec<Object>,
    /// The tables of the images, and the name of the first in messages.
    metadata: Option<(Metadata, String)>,
    /// Whether some images are masks of others.
    is_paired: bool,
}

/// Finds the images of a split or of the whole place, and combines those of one record.
async fn find(folder: Folder, source: &Source, objects: Vec<Object>, options: &OpenOptions) -> Result<FoundRecords> {
    let names: Vec<&str> = objects.iter().map(|o| &*o.name).filter(|name| is_image(name)).collect();
    let split = options.split.as_ref().map(|split| layout::split_folder(&names, split));
    let mut metadata = None;
    if options.labels.is_none() && options.channels.is_none() {
        metadata = match read_metadata(folder, source, &objects, split.as_deref()).await? {
            Tables::Images(found) => found,
            Tables::Several => return Ok(FoundRecords::Several(objects)),
        };
    }
    let mut sides = match &options.mask_files {
        Some(pattern) => Some(pairs::sides_by(&names, pattern).map_err(|e| e.at_object(source.url()))?),
        None if metadata.as_ref().is_some_and(|(table, _)| table.names_masks()) => None,
        None => {
            let sides = pairs::sides(&names, options.channels.is_some());
            // A file that a table lists is an image, whatever its folder is called.
            let lists_masks = |sides: &Sides| {
                let masks: HashSet<&str> = sides.masks.iter().map(|(at, _)| names[*at as usize]).collect();
                metadata.as_ref().is_some_and(|(table, _)| table.files().any(|file| masks.contains(file)))
            };
            sides.filter(|sides| !lists_masks(sides))
        }
    };
    if sides.is_some()
        && let Some((_, object)) = metadata.take()
    {
        tracing::warn!(object, "a table of images with masks is not read; add a column `mask_file_name` to it");
    }
    if let Some(split) = &options.split {
        let is_of = |key: &str| parent(key).split('/').any(|folder| folder.eq_ignore_ascii_case(split));
        // The test images of many competitions have none.
        if options.mask_files.is_none()
            && sides.as_ref().is_some_and(|sides| !sides.masks.iter().any(|(_, key)| is_of(key)))
        {
            tracing::warn!(url = source.url(), split, "the images of the split are read without masks: they have none");
            sides = None;
        }
        // Of this split, or of all.
        let is_here = |key: &str| is_of(key) || !parent(key).split('/').any(layout::is_split);
        let mask = || {
            let runs = layout::runs(&names).into_iter();
            let mut firsts = runs.map(|run| names[run.names.start]);
            firsts.find(|name| layout::is_mark(name) && is_here(&key(name)))
        };
        if sides.is_none()
            && metadata.is_none()
            && let Some(mask) = mask()
        {
            let help = format!("if these are masks, give the pattern of their names with {MASK_FILES}");
            tracing::warn!(mask, "images in a folder of masks are left out, because no image has their name; {help}");
        }
    }
    let (source, objects) = match &split {
        Some(folder) if sides.is_none() => {
            if options.classes.is_none() && options.labels.is_none() && metadata.is_none() {
                warn_of_other_classes(source, &names, folder);
            }
            metadata = metadata.map(|(metadata, object)| (metadata.below(folder), object));
            (source.child(folder)?, below(source, objects, folder)?)
        }
        _ => (source.clone(), objects),
    };
    if !folder.recognises(&objects) {
        return Err(nothing_to_read(&source, &objects, "images"));
    }
    // Reported now, not in the middle of the first epoch.
    let names: Vec<&str> = images_of(&objects).into_iter().map(|image| &*image.name).collect();
    names.iter().try_for_each(|name| source.check_name(name))?;
    let at_source = |e: Error| e.at_object(source.url());
    if let Some(Sides { images, masks, .. }) = &mut sides {
        let split = options.split.as_deref();
        match &options.mask_files {
            // {stem} may not contain the split.
            Some(_) => {
                keep_split(images, |(at, _)| key(names[*at as usize]), split).map_err(at_source)?;
                let kept: HashSet<&str> = images.iter().map(|(_, name)| layout::stem(name)).collect();
                masks.retain(|(_, stem)| split.is_none() || kept.contains(stem.as_str()));
            }
            None => {
                keep_split(images, |(_, name)| name.clone(), split).map_err(at_source)?;
                if split.is_some() {
                    keep_split(masks, |(_, name)| name.clone(), split).map_err(at_source)?;
                }
            }
        }
    } else if let Some((table, object)) = &mut metadata {
        let paired = table.take_masks().and_then(|masks| masks.map(|masks| sides_of(&names, &masks)).transpose());
        sides = paired.map_err(|e| e.at_object(object.clone()))?;
    }
    let is_paired = sides.is_some();
    let groups = channels::group(&names, options.channels.as_deref(), sides).map_err(at_source)?;
    drop(names);
    Ok(FoundRecords::Images(FoundImages { source, groups, objects, metadata, is_paired }))
}

/// Warns if other splits have class folders that this one lacks: its labels are other numbers then.
fn warn_of_other_classes(source: &Source, names: &[&str], split: &str) {
    let around = parent(split);
    let mut classes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for run in layout::runs(names) {
        let below = if around.is_empty() { Some(run.folder) } else { run.folder.strip_prefix(around) };
        let mut folders = below.unwrap_or_default().split('/').filter(|folder| !folder.is_empty());
        if let (Some(top), Some(class)) = (folders.next(), folders.next())
            && layout::is_split(top)
        {
            classes.entry(top).or_default().insert(class);
        }
    }
    let Some(own) = classes.remove(base(split)) else { return };
    // Folders of a split without labels are no classes.
    let others = classes.iter().filter(|(_, of)| !of.is_disjoint(&own));
    if let Some((other, class)) = others.into_iter().find_map(|(other, of)| Some((other, of.difference(&own).next()?)))
    {
        tracing::warn!(
            url = source.url(),
            split,
            other,
            class,
            "another split has a class that this one lacks: labels are the indices among the classes of this split; give \
             those of all with {CLASSES}"
        );
    }
}

/// Whether `folder` is `of` or below it.
fn is_within(folder: &str, of: &str) -> bool {
    of.is_empty() || folder == of || folder.starts_with(&format!("{of}/"))
}

/// The tables of metadata, and the name of the first in messages.
enum Tables {
    Images(Option<(Metadata, String)>),
    Several,
}

/// Reads the tables of metadata, each for the images in its folder and below. With a split, only the tables in its
/// folder and above it.
async fn read_metadata(folder: Folder, source: &Source, objects: &[Object], split: Option<&str>) -> Result<Tables> {
    let mut all: Option<(Metadata, String)> = None;
    let mut folders = BTreeSet::new();
    let is_of = |folder: &str| split.is_none_or(|split| is_within(folder, split) || is_within(split, folder));
    let is_table = |object: &&Object| folder.is_table(&object.name) && is_of(parent(&object.name));
    let tables = || objects.iter().filter(is_table);
    // A table above the splits lists all of them, so they are read together.
    if split.is_none() {
        one_split(tables().map(|object| key(&object.name))).map_err(|e| e.at_object(source.url()))?;
    }
    let read = async |object: &Object| {
        let found = match folder.parquet.filter(|_| base(&object.name) == metadata::PARQUET) {
            Some(format) => {
                let table = format.open(source, vec![object.clone()], &OpenOptions::default()).await?;
                metadata::of_dataset(&*table).await
            }
            None => metadata::parse(&object.name, &Beside::Table.read(source, object).await?),
        };
        found.map_err(|e| e.at_object(source.display_name(&object.name)))
    };
    for object in tables() {
        // If a folder has two tables, the first.
        if !folders.insert(parent(&object.name)) {
            continue;
        }
        let name = source.display_name(&object.name);
        let found = match read(object).await? {
            Some(Described::Images(found)) => found.within(parent(&object.name)),
            Some(Described::Several) => return Ok(Tables::Several),
            None => {
                tracing::warn!(
                    object = name,
                    "a table without a column `file_name` is not read; if it has labels, set {LABELS}"
                );
                continue;
            }
        };
        all = Some(match all {
            None => (found, name),
            Some((first, known)) => (first.and(found).map_err(|e| e.at_object(name))?, known),
        });
    }
    if let Some((found, _)) = &mut all {
        for object in objects.iter().filter(|object| folder.is_table(&object.name) && !is_of(parent(&object.name))) {
            // Damage is reported when that split is opened.
            if let Ok(Some(Described::Images(other))) = read(object).await {
                found.know_labels_of(&other);
            }
        }
    }
    Ok(Tables::Images(all))
}

/// Images and masks as pairs of a table.
fn sides_of(names: &[&str], masks: &[(String, String)]) -> Result<Sides> {
    let places: HashMap<&str, u32> = names.iter().copied().zip(0..).collect();
    let place = |name: &str| {
        let place = places.get(name.trim_start_matches("./")).copied();
        place
            .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("there is no file `{name}`, which the table names")))
    };
    let mut sides = Sides::default();
    for (image, mask) in masks {
        let image = image.trim_start_matches("./");
        sides.images.push((place(image)?, image.to_owned()));
        sides.masks.push((place(mask)?, layout::stem(image).to_owned()));
    }
    sides.images.sort_unstable_by_key(|(at, _)| *at);
    Ok(sides)
}

/// An error if a class folder next to `found` is empty or has no image that can be read: without it, all later classes
/// would have other indices. torchvision's `ImageFolder` does the same.
fn no_class_is_lost(source: &Source, objects: &[Object], wrapper: &str, found: &[String]) -> Result<()> {
    let lost = |class: &str, what: String| -> Result<()> {
        Err(Error::config(format!("class `{class}` has no image that is read: {what}"))
            .at_object(source.display_name(&format!("{wrapper}{class}")))
            .with_hint(format!("remove the folder or convert its files, or keep its index: {CLASSES} with all names")))
    };
    let known = |top: &str| found.binary_search_by(|class| class.as_str().cmp(top)).is_ok();
    let mut last = "";
    for Object { name, .. } in objects {
        let Some((top, _)) = name.strip_prefix(wrapper).and_then(|name| name.split_once('/')) else { continue };
        // There may be a million names in a thousand classes.
        if top == last {
            continue;
        }
        if known(top) {
            last = top;
            continue;
        }
        if !layout::may_be_left(top) {
            return lost(top, format!("there is `{name}`"));
        }
    }
    // Stores have no empty folders.
    let Some(folder) = source.folder() else { return Ok(()) };
    for entry in std::fs::read_dir(folder.join(wrapper)).into_iter().flatten().flatten() {
        let top = entry.file_name().to_string_lossy().into_owned();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !layout::may_be_left(&top) && !known(&top) {
            let prefix = format!("{wrapper}{top}/");
            if !objects.iter().any(|object| object.name.starts_with(&prefix)) {
                return lost(&top, "it is empty".into());
            }
        }
    }
    Ok(())
}

/// The objects in the folder `split`, named relative to it.
fn below(source: &Source, objects: Vec<Object>, split: &str) -> Result<Vec<Object>> {
    let tops: BTreeSet<String> =
        objects.iter().filter_map(|o| o.name.split_once('/')).map(|(top, _)| top.to_owned()).collect();
    let inside = inside(objects, split);
    if inside.is_empty() {
        let tops: Vec<_> = tops.iter().take(5).map(String::as_str).collect();
        return Err(Error::new(ErrorKind::NotFound, format!("there is no folder `{split}`"))
            .at_object(source.url())
            .with_hint(format!(
                "the first folders are {}",
                if tops.is_empty() { "none".into() } else { tops.join(", ") }
            )));
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::{super::labels::FolderLabels, *};
    use crate::schema::Field;

    fn objects(names: &[&str]) -> Vec<Object> {
        let mut objects: Vec<_> = names.iter().map(|n| Object::new(*n, n.len() as u64)).collect();
        objects.sort_by(|a, b| a.name.cmp(&b.name));
        objects
    }

    /// Names of the images, in their order.
    fn files(names: &[&str]) -> Vec<String> {
        images_of(&objects(names)).into_iter().map(|image| image.name.clone()).collect()
    }

    fn classes(files: &[String]) -> Result<FolderLabels> {
        classes_of(&files.iter().map(String::as_str).collect::<Vec<_>>(), &source(), None, true)
    }

    fn source() -> Source {
        let store = Arc::new(object_store::memory::InMemory::new());
        Source::from_store(store, object_store::path::Path::default(), "test://")
    }

    #[test]
    fn classes_are_sorted_folder_names_even_where_names_sort_otherwise() {
        // `-` sorts before `/`: the records of `a-b` come first, its class does not.
        let files = files(&["a/1.jpg", "a-b/1.jpg", "a/deep/er/2.jpg", "c/readme.txt"]);
        let FolderLabels { labels, classes, .. } = classes(&files).unwrap();
        assert_eq!(&classes.unwrap()[..], ["a", "a-b"]);
        assert_eq!(files, ["a-b/1.jpg", "a/1.jpg", "a/deep/er/2.jpg"]);
        assert_eq!(labels.unwrap(), [1, 0, 0]);
    }

    #[test]
    fn caltech_labels_are_the_folder_number_less_one() {
        let names: Vec<String> = (1..=257).map(|n| format!("{n:03}.thing-{}/{n:03}_0001.jpg", n % 7)).collect();
        let files = files(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let FolderLabels { labels, .. } = classes(&files).unwrap();
        assert_eq!(labels.unwrap(), (0..257).collect::<Vec<i64>>());
    }

    #[test]
    fn a_folder_of_splits_is_not_taken_for_classes() {
        let error = classes(&files(&["train/cat/1.jpg", "val/cat/1.jpg"])).unwrap_err();
        assert!(error.to_string().contains("split(\"train\")"), "{error}");
        assert!(classes(&files(&["train/1.jpg", "test/1.jpg"])).unwrap_err().to_string().contains("hold splits"));
        let error = classes(&files(&["images/1.jpg", "masks/2.jpg"])).unwrap_err().to_string();
        assert!(error.contains("images, masks") && error.contains("mask_files"), "{error}");
        // A class may well be called train.
        assert!(classes(&files(&["train/a/1.jpg", "bus/a/1.jpg"])).is_ok());
    }

    #[test]
    fn a_million_files_take_less_memory_than_their_names() {
        let names: Vec<String> = (0..10_000).map(|i| format!("n{:08}/n{:08}_{i}.JPEG", i % 10, i % 10)).collect();
        let objects = objects(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let files = Files::of(source(), &images_of(&objects));
        let labels = (0..10).flat_map(|class| vec![class; 1_000]).collect();
        let found = Found::of(&files, None, Some(labels), None).unwrap();
        let data = FolderDataset::new(files, None, found, vec![Field::image()], vec![]);
        let bytes = data.resident_bytes();
        assert!(bytes < 10_000 * 16, "{bytes} bytes");
    }
}
