//! Files that are a record each, and files of several folders that are a record together.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FORMAT},
    },
    fingerprint::Fingerprint,
    random::SampleRng,
    types::DType,
};
use infeed_store::{Object, Source};

use super::{
    read::{FileArray, arrays_of, npy_at},
    splits::{listed, split_of},
};
use crate::{
    format::OpenOptions,
    labels::{FolderLabels, classes_of},
    layout::{self, stem},
    names::{base, ends_with, looks_like_mask},
    record::{Dataset, ReadPlan, Sample, Value, index},
    schema::{Field, FieldKind, Schema},
};

/// The field of a `.npy` file that is a record.
const ARRAY: &str = "array";

/// One file per record, or one in each of several folders (`images/7.npy` and `masks/7.npy`). All records have the
/// types and shapes of the first.
#[derive(Debug)]
pub(super) struct Files {
    source: Source,
    len: usize,
    /// The files that records need, one column for each folder.
    columns: Vec<Vec<Object>>,
    labels: Option<Vec<i64>>,
    /// Where each field of the schema is.
    places: Vec<Place>,
    /// Names of all arrays in the first files, by column.
    named: Vec<BTreeSet<String>>,
    /// Whether the warning of arrays that the first files lack was given.
    has_warned: AtomicBool,
    schema: Schema,
    fingerprint: Fingerprint,
}

/// Where a field is.
#[derive(Clone, Debug)]
enum Place {
    /// The name of the file's class folder.
    Folder,
    /// An array of the file in a column; that of `.npy` has no name.
    Array { column: usize, name: String },
}

/// An error if files are named like the images and masks of the same records, or like splits.
fn are_records(names: &[&str]) -> Result<()> {
    let each = format!("if each file is a record, set {}", FORMAT.to("arrays"));
    let is_mask = |name: &&str| {
        let stem = stem(base(name));
        looks_like_mask(stem) || split_of(stem).map_or(stem.to_owned(), |(_, rest)| rest).eq_ignore_ascii_case("y")
    };
    if let (Some(mask), Some(other)) =
        (names.iter().find(|name| is_mask(name)), names.iter().find(|name| !is_mask(name)))
    {
        let what = format!("`{mask}` is named like masks or labels of `{other}`, but each .npy is a record of its own");
        return Err(Error::config(what).with_hint(format!(
            "put them into folders of their own under one name (images/7.npy, masks/7.npy), or save what belongs \
             together as one file: numpy.savez(\"data.npz\", image=…, mask=…); {each}"
        )));
    }
    let splits: Option<BTreeSet<String>> =
        names.iter().map(|name| Some(split_of(stem(base(name)))?.0.to_ascii_lowercase())).collect();
    match splits {
        Some(splits) if splits.len() > 1 => {
            let splits = splits.into_iter().collect::<Vec<_>>().join(", ");
            let what = format!("arrays of several splits: {splits}");
            Err(Error::config(what).with_hint(format!("open the files of one split; {each}")))
        }
        _ => Ok(()),
    }
}

/// The name of a field, and its file for each record.
type FolderFiles = (String, Vec<Object>);

/// The files of each folder that names a kind, in the order of their records; `None` if folders are no kinds.
///
/// # Errors
/// `Config` if a folder lacks a file that another has, or for several splits.
fn kinds(objects: &[Object], split: Option<&str>) -> Result<Option<Vec<FolderFiles>>> {
    let placed = objects.iter().filter_map(|object| Some((layout::kind_of(&object.name)?, object)));
    let mut placed: Vec<(String, String, &Object)> = placed.map(|((kind, key), object)| (kind, key, object)).collect();
    if placed.len() < objects.len() {
        let named: BTreeSet<&str> = placed.iter().map(|(kind, ..)| kind.as_str()).collect();
        let other = objects.iter().find(|object| layout::kind_of(&object.name).is_none());
        let Some(other) = other.filter(|_| named.len() > 1) else { return Ok(None) };
        let named = named.into_iter().collect::<Vec<_>>().join(", ");
        let what = format!("`{}` is next to the folders {named}, which are fields of one record", other.name);
        return Err(Error::config(what).with_hint(format!(
            "move it elsewhere, or into a folder whose name is that of a field; if each file is a record, set {}",
            FORMAT.to("arrays")
        )));
    }
    layout::keep_split(&mut placed, |(_, key, _)| key.clone(), split)?;
    let mut folders: BTreeMap<String, BTreeMap<String, Object>> = BTreeMap::new();
    for (kind, key, object) in placed {
        folders.entry(kind).or_default().insert(key, object.clone());
    }
    if folders.len() < 2 {
        return Ok(None);
    }
    for (kind, files) in &folders {
        for (other, of) in &folders {
            if let Some((key, object)) = files.iter().find(|(key, _)| !of.contains_key(*key)) {
                let what = format!("`{}` has no partner `{key}` in the folder `{other}`", object.name);
                return Err(Error::config(what).with_hint(format!(
                    "name what belongs together alike in `{kind}` and `{other}`; if each file is a record, set {}",
                    FORMAT.to("arrays")
                )));
            }
        }
    }
    Ok(Some(folders.into_iter().map(|(kind, files)| (kind, files.into_values().collect())).collect()))
}

/// Names, types and shapes of the arrays of a file. Of `.npy` only the header is read.
async fn first_arrays(source: &Source, object: &Object) -> Result<Vec<(String, Result<(DType, Vec<usize>)>)>> {
    if ends_with(&object.name, ".npy") {
        let array = npy_at(source, object, 0, object.size).await;
        return Ok(vec![(String::new(), array.map(|array| (array.dtype, array.shape)))]);
    }
    let file = object.extent(source).read().await?;
    let arrays = arrays_of(&object.name, &file, &|_| true)?.into_iter();
    Ok(arrays.map(|(name, array)| (name, array.map(|array| (array.dtype, array.shape)))).collect())
}

impl Files {
    /// Opens files of which each is a record. If the user did not name the format, `.npy` files of folders that name kinds
    /// are records together.
    pub(super) async fn open(source: &Source, mut objects: Vec<Object>, options: &OpenOptions) -> Result<Self> {
        let is_said = options.format.is_some();
        let at = |e: Error| e.at_object(source.url());
        let kinds = if is_said { None } else { kinds(&objects, options.split.as_deref()).map_err(at)? };
        let (columns, folder_labels) = match kinds {
            Some(kinds) => (kinds, FolderLabels { classes: options.classes.clone(), ..FolderLabels::default() }),
            None => {
                let names = || objects.iter().map(|o| o.name.as_str());
                let folder = options.split.as_ref().map(|split| {
                    let folder = layout::split_folder(&names().collect::<Vec<_>>(), split);
                    format!("{folder}/")
                });
                let mut folder = folder.unwrap_or_default();
                let is_of = |name: &str, split: &str| {
                    split_of(stem(base(name))).is_some_and(|(of, _)| of.eq_ignore_ascii_case(split))
                };
                // `train_0.npz`, where no folder is a split.
                if let Some(split) = options.split.as_ref().filter(|split| names().any(|name| is_of(name, split)))
                    && !names().any(|name| name.starts_with(&folder))
                {
                    objects.retain(|object| is_of(&object.name, split));
                    folder.clear();
                }
                objects.retain(|object| object.name.starts_with(&folder));
                let names: Vec<&str> = objects.iter().map(|o| &o.name[folder.len()..]).collect();
                if names.is_empty() {
                    return Err(at(Error::new(ErrorKind::NotFound, format!("no arrays in a folder `{folder}`"))
                        .with_hint("a split is the name of a folder, or a word in the names of files")));
                }
                if !is_said {
                    are_records(&names).map_err(at)?;
                }
                let labels = classes_of(&names, source, options.classes.clone(), !is_said)?;
                (vec![(ARRAY.to_owned(), objects)], labels)
            }
        };
        Self::new(source, columns, folder_labels, options.columns.as_deref()).await
    }

    /// `columns`: the field of `.npy` files, and the files in the order of their records, of which there are some.
    async fn new(
        source: &Source,
        columns: Vec<FolderFiles>,
        FolderLabels { labels, classes, .. }: FolderLabels,
        chosen: Option<&[String]>,
    ) -> Result<Self> {
        let len = columns[0].1.len();
        let mut print = Fingerprint::of("arrays").number(len as u64);
        let (mut fields, mut left, mut named) = (Vec::new(), Vec::new(), Vec::new());
        for (column, (field, objects)) in columns.iter().enumerate() {
            print = objects.iter().fold(print, |print, o| print.text(&o.name).number(o.size));
            let near = |e: Error| e.at_object(source.display_name(&objects[0].name));
            let first = first_arrays(source, &objects[0]).await.map_err(near)?;
            named.push(first.iter().map(|(name, _)| name.clone()).collect::<BTreeSet<_>>());
            for (name, array) in first {
                let (dtype, shape) = match array {
                    Ok(array) => array,
                    // `.npy` has no other array.
                    Err(error) if name.is_empty() => return Err(near(error)),
                    Err(error) => {
                        left.push((name, error));
                        continue;
                    }
                };
                if shape.contains(&0) {
                    return Err(near(Error::config(format!("the first array has no values: its shape is {shape:?}"))));
                }
                let kind = FieldKind::Array { dtype, shape };
                let of = if name.is_empty() { field.clone() } else { name.clone() };
                fields.push((Field::new(of, kind), Place::Array { column, name }));
            }
        }
        let has_label = fields.iter().any(|(field, _)| field.name == "label");
        if has_label && labels.is_some() {
            tracing::warn!(url = source.url(), "the files hold an array `label`: names of folders are no labels");
        }
        fields.extend((labels.is_some() && !has_label).then(|| (Field::label(), Place::Folder)));
        let why = |(name, error): &(String, Error)| format!("{name} ({})", error.what());
        if let Some(chosen) = chosen {
            let there = listed(fields.iter().map(|(field, _)| &field.name));
            let take = |column: &String| {
                let at = fields.iter().position(|(field, _)| field.name == *column);
                at.map(|at| fields.swap_remove(at)).ok_or_else(|| match left.iter().find(|(name, _)| name == column) {
                    Some((name, error)) => {
                        Error::new(ErrorKind::Unsupported, format!("`{name}` can't be read: {}", error.what()))
                            .at_object(source.url())
                            .with_hint(format!("leave it out of {COLUMNS}"))
                    }
                    None => Error::new(ErrorKind::NotFound, format!("no field `{column}`"))
                        .at_object(source.url())
                        .with_hint(format!("there are {there}")),
                })
            };
            fields = chosen.iter().map(take).collect::<Result<_>>()?;
            print = fields.iter().fold(print, |print, (field, _)| print.text(&field.name));
        } else if !left.is_empty() {
            let arrays = left.iter().map(why).collect::<Vec<_>>().join(", ");
            tracing::warn!(arrays, "arrays are left out: they hold no numbers");
        }
        if fields.is_empty() {
            let what = format!("no arrays of numbers in it: {}", listed(left.iter().map(why)));
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(source.display_name(&columns[0].1[0].name))
                .with_hint("save numbers of 8 to 64 bits"));
        }
        // Files that no field needs are not read.
        let (fields, mut places): (Vec<Field>, Vec<Place>) = fields.into_iter().unzip();
        let needed =
            |at: usize| places.iter().any(|place| matches!(place, Place::Array { column, .. } if *column == at));
        let needed: Vec<usize> = (0..columns.len()).filter(|at| needed(*at)).collect();
        for place in &mut places {
            if let Place::Array { column, .. } = place {
                *column = needed.partition_point(|at| *at < *column);
            }
        }
        // A record without arrays still has the name of its file.
        let kept = |at: &usize| needed.contains(at) || needed.is_empty() && *at == 0;
        let columns = columns.into_iter().zip(named).enumerate().filter(|(at, _)| kept(at));
        let (columns, named) = columns.map(|(_, ((_, files), named))| (files, named)).unzip();
        let labels = labels.filter(|_| places.iter().any(|place| matches!(place, Place::Folder)));
        let schema = Schema::new(fields).with_classes(classes);
        let (source, fingerprint) = (source.clone(), print.finish());
        // Columns that the user chose are all that are wanted.
        let has_warned = AtomicBool::new(chosen.is_some());
        Ok(Self { source, len, columns, labels, places, named, has_warned, schema, fingerprint })
    }

    /// Whether a record has arrays, not only the label.
    fn has_arrays(&self) -> bool {
        self.places.iter().any(|place| matches!(place, Place::Array { .. }))
    }

    /// The arrays that a record takes of its file in a column, by name.
    fn of_file(&self, column: usize, record: usize, file: &Bytes) -> Result<Vec<(String, FileArray)>> {
        let is_wanted = |wanted: &str| {
            let is =
                |place: &Place| matches!(place, Place::Array { column: c, name } if *c == column && name == wanted);
            if !self.named[column].contains(wanted) && !self.has_warned.swap(true, Ordering::Relaxed) {
                let file = self.source.display_name(&self.columns[column][record].name);
                tracing::warn!(
                    file,
                    array = wanted,
                    "arrays that the first file lacks are no fields, and are left out"
                );
            }
            self.places.iter().any(is)
        };
        let arrays = arrays_of(&self.columns[column][record].name, file, &is_wanted)?;
        arrays.into_iter().map(|(name, array)| Ok((name, array?))).collect()
    }
}

impl Dataset for Files {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "arrays"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        let i = index(record, self.len)?;
        let mut plan = ReadPlan::default();
        if self.has_arrays() {
            plan.extents.extend(self.columns.iter().map(|files| files[i].extent(&self.source)));
        }
        Ok(plan)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.len)?;
        let mut arrays = Vec::new();
        if self.has_arrays() {
            if bytes.len() != self.columns.len() {
                return Err(Error::new(ErrorKind::Internal, "other files than those of the plan").at_record(record));
            }
            for (column, file) in bytes.iter().enumerate() {
                let near =
                    |e: Error| e.at_record(record).at_object(self.source.display_name(&self.columns[column][i].name));
                arrays.push(self.of_file(column, i, file).map_err(near)?);
            }
        }
        let value = |(place, field): (&Place, &Field)| {
            let Place::Array { column, name: wanted } = place else {
                let labels = self.labels.as_ref();
                return labels.map(|labels| Value::Label(labels[i])).ok_or_else(|| Error::corrupt("no label"));
            };
            let near =
                |e: Error| e.at_record(record).at_object(self.source.display_name(&self.columns[*column][i].name));
            let FieldKind::Array { dtype: of, shape: first } = &field.kind else {
                return Err(Error::new(ErrorKind::Internal, format!("`{}` is no array", field.name)));
            };
            let array = arrays[*column].iter().find(|(name, _)| name == wanted).map(|(_, array)| array);
            match array {
                Some(FileArray { dtype, shape, values }) if (dtype, shape) == (of, first) => {
                    Ok(Value::Array(values.clone()))
                }
                Some(FileArray { dtype, shape, .. }) => {
                    let what = format!("an array {shape:?} of {dtype} where the first is {first:?} of {of}");
                    Err(near(Error::corrupt(what).with_hint("save arrays of one shape and type")))
                }
                None => Err(near(
                    Error::corrupt(format!("no array `{wanted}`, which the first file has"))
                        .with_hint(format!("save it, or leave `{wanted}` out with {COLUMNS}")),
                )),
            }
        };
        Ok(Sample { values: self.places.iter().zip(&self.schema.fields).map(value).collect::<Result<_>>()? })
    }

    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let label = self.labels.as_ref().filter(|_| field == "label")?.get(usize::try_from(record).ok()?)?;
        Some(Value::Label(*label))
    }

    fn object(&self, record: u64) -> String {
        let name = index(record, self.len).map_or("", |i| self.columns[0][i].name.as_str());
        self.source.display_name(name)
    }

    fn needs_fetch(&self) -> bool {
        !self.source.reads_inline()
    }

    /// Includes the arrays that a file is unpacked to.
    fn largest_read(&self) -> u64 {
        let largest = |files: &Vec<Object>| files.iter().map(|o| o.size).max().unwrap_or(0);
        let unpacked = |(place, field): (&Place, &Field)| match (place, &field.kind) {
            (Place::Array { name, .. }, FieldKind::Array { dtype, shape }) if !name.is_empty() => {
                dtype.len_bytes(shape).unwrap_or(0) as u64
            }
            _ => 0,
        };
        let unpacked: u64 = self.places.iter().zip(&self.schema.fields).map(unpacked).sum();
        self.columns.iter().map(largest).sum::<u64>() + unpacked
    }

    fn resident_bytes(&self) -> u64 {
        let of = |o: &Object| (o.name.len() + o.etag.as_ref().map_or(0, String::len) + size_of::<Object>()) as u64;
        self.columns.iter().flatten().map(of).sum::<u64>() + self.labels.as_ref().map_or(0, |l| l.len() as u64 * 8)
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
