//! From the content of the JSON to lists in the order of the records.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use infeed_core::error::{
    Error, Result,
    setting::{LABELS, MASKS},
};
use serde_json::Value;

use super::{
    id::Id,
    json::{Category, Image, Json},
    number::Number,
};
use crate::{
    captions::Captions,
    detection::Notes,
    labels::index_of,
    marked::{Keypoints, Marked, Thing, Units, corners},
};

/// What COCO calls the entries of its list, and the units of their numbers.
pub(super) const CALLED: &str = "annotation";
pub(super) const UNITS: Units = Units::Pixels;

/// Images in the order of the bytes of their names, and their annotations.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) names: Vec<String>,
    /// The ids of the images, or their indices if some ids are not integers.
    pub(super) ids: Vec<i64>,
    /// Height and width; 0 if the JSON has none.
    pub(super) sizes: Vec<[u32; 2]>,
    /// Without annotations for a file of captions alone.
    pub(super) notes: Notes,
    pub(super) classes: Arc<[String]>,
    pub(super) left_out: LeftOut,
}

/// Differences from the file, for warnings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// The number of annotations of images that are not listed, and the id of the first of these images.
    pub(super) strangers: Option<(usize, String)>,
    /// The id of an image whose id is not an integer.
    pub(super) text_id: Option<String>,
    /// The number of annotations without an outline, if outlines are read.
    pub(super) without: usize,
    /// The number of polygons with fewer than three corners.
    pub(super) short: usize,
    /// Why annotations with key points have none in the dataset.
    pub(super) keypoints: Option<String>,
}

impl LeftOut {
    /// Logs the warnings for the file `object`.
    pub(super) fn warn(&self, object: &str) {
        if let Some((count, first)) = &self.strangers {
            tracing::warn!(count, %first, object, "annotations of images that are not in the list of images are left out");
        }
        if let Some(first) = &self.text_id {
            tracing::warn!(%first, object, "image ids are not integers: the field image_id is the index of the image by its name, from 0");
        }
        if self.without > 0 {
            tracing::warn!(count = self.without, object, "annotations without an outline have an empty mask");
        }
        if self.short > 0 {
            tracing::warn!(count = self.short, object, "polygons of fewer than three corners are left out");
        }
        if let Some(why) = &self.keypoints {
            tracing::warn!(object, "key points are left out: {why}");
        }
    }
}

pub(super) fn resolve(json: Json, classes: Option<Arc<[String]>>) -> Result<Resolved> {
    let Json { images, annotations, categories, captions, outlines, run_sizes, wrong, without, short } = json;
    let mut left_out = LeftOut { without, short, ..LeftOut::default() };
    let (images, sizes) = sorted(images)?;
    let mut places = HashMap::with_capacity(images.len());
    for (place, image) in images.iter().enumerate() {
        if let Some(other) = places.insert(image.id.clone(), place) {
            let other = &images[other].file_name;
            return Err(Error::corrupt(format!(
                "two images have the id {}: `{other}` and `{}`",
                image.id, image.file_name
            ))
            .with_hint("give each image an id of its own, and its annotations that image_id"));
        }
    }
    let mut keypoints = match keypoints_of(&categories) {
        Ok(found) => Some(found),
        Err(why) => {
            let has_points = annotations.iter().any(|annotation| !annotation.keypoints.is_empty());
            left_out.keypoints = has_points.then_some(why);
            None
        }
    };
    let (labels, classes) = classes_of(categories, classes)?;
    if let Some(first) = annotations.first()
        && annotations.iter().all(|annotation| annotation.bbox.is_left_out() && annotation.bounds.is_none())
        && wrong.is_empty()
    {
        return Err(Error::corrupt(format!(
            "annotation {} and all others have neither a bbox nor an outline",
            first.id
        ))
        .with_hint(format!("use a JSON of instances; for labels of whole images, set {LABELS} instead")));
    }
    if outlines.is_some() && !annotations.is_empty() && without == annotations.len() {
        return Err(Error::config("masks are requested, but no annotation has an outline")
            .with_hint(format!("omit {MASKS}, or use a file whose annotations have a segmentation")));
    }
    let numbers = Id::numbers(annotations.iter().map(|annotation| &annotation.id));
    let mut things = Vec::with_capacity(annotations.len());
    let mut bad = HashMap::new();
    for (at, annotation) in annotations.into_iter().enumerate() {
        let id = &annotation.id;
        let broken = |what: String| Error::corrupt(format!("annotation {id} {what}"));
        let Some(&record) = places.get(&annotation.image) else {
            // Files for a part of the images often have the annotations of all.
            left_out.strangers.get_or_insert_with(|| (0, annotation.image.to_string())).0 += 1;
            continue;
        };
        let Some(label) = labels.get(&annotation.category) else {
            return Err(broken(format!("is of the category {}, which is not in the list", annotation.category))
                .with_hint("add it to the categories"));
        };
        let Some(index) = label.index else {
            let what =
                format!("class `{}` of annotation {id} is not among the {} given classes", label.name, classes.len());
            return Err(
                Error::config(what).with_hint("open it with the classes that it has, or remove the annotations")
            );
        };
        let found = match (annotation.bbox.is_left_out(), annotation.bounds) {
            (true, Some(bounds)) => corners(bounds),
            (true, None) => Err("it has neither a bbox nor an outline".to_owned()),
            (false, _) => {
                let [left, top, width, height] = annotation.bbox.get().map_err(|count| {
                    broken(format!("has a bbox of {count} numbers"))
                        .with_hint("write four: left, top, width and height")
                })?;
                corners([left, top, left + width, top + height])
            }
        };
        let found = found.map_err(|wrong| format!("annotation {id}: {wrong}"));
        let size = sizes[record];
        let outline = match (wrong.get(&at), run_sizes.get(&at)) {
            (Some(wrong), _) => Err(format!("annotation {id}: {wrong}")),
            (None, Some(of)) if *of != size && !size.contains(&0) => {
                Err(format!("annotation {id}: height and width are {of:?} for its runs, but {size:?} for the image"))
            }
            _ => Ok(annotation.outline),
        };
        let points = match &mut keypoints {
            Some(keypoints) if label.has_keypoints && !annotation.keypoints.is_empty() => {
                keypoints.push(&annotation.keypoints).map(Some).map_err(|wrong| format!("annotation {id}: {wrong}"))
            }
            _ => Ok(None),
        };
        match (found, outline, points) {
            (Ok(corners), Ok(outline), Ok(keypoints)) => {
                let id = numbers.as_ref().map_or(at as i64, |numbers| numbers[at]);
                let label = index;
                things.push(Thing { record, corners, label, id, crowd: annotation.crowd, outline, keypoints });
            }
            (_, Err(wrong), _) | (Err(wrong), ..) | (.., Err(wrong)) => {
                bad.entry(record).or_insert(wrong);
            }
        }
    }
    let captions = match captions.is_empty() {
        true => None,
        false => {
            let placed = captions.into_iter().filter_map(|(image, caption)| match places.get(&image) {
                Some(&place) => Some((place, caption)),
                None => {
                    left_out.strangers.get_or_insert_with(|| (0, image.to_string())).0 += 1;
                    None
                }
            });
            Some(Captions::new(images.len(), placed.collect()))
        }
    };
    let has_boxes = !things.is_empty() || !bad.is_empty() || captions.is_none();
    if !has_boxes && outlines.is_some() {
        return Err(Error::config("masks are requested, and the annotations are captions")
            .with_hint(format!("omit {MASKS}, or use a JSON of instances")));
    }
    let marked = Marked::of(CALLED, UNITS, images.len(), things, outlines, keypoints, bad);
    let ids = Id::numbers(images.iter().map(|image| &image.id)).unwrap_or_else(|| {
        left_out.text_id = images.iter().map(|image| &image.id).find(|id| id.number().is_none()).map(Id::to_string);
        (0..images.len() as i64).collect()
    });
    let names = images.into_iter().map(|image| image.file_name).collect();
    let notes = Notes { marked: has_boxes.then_some(marked), captions, identity: None };
    Ok(Resolved { names, ids, sizes, notes, classes, left_out })
}

/// The images ordered by name, with heights and widths.
fn sorted(mut images: Vec<Image>) -> Result<(Vec<Image>, Vec<[u32; 2]>)> {
    for image in &mut images {
        if let Some(plain) = image.file_name.strip_prefix("./") {
            image.file_name = plain.to_owned();
        }
        if image.file_name.is_empty() {
            let mut parts = image.coco_url.as_deref().unwrap_or("").rsplitn(3, '/');
            let (Some(name), Some(folder)) = (parts.next(), parts.next()) else {
                return Err(Error::corrupt(format!("image {} has no file_name", image.id))
                    .with_hint("write the name of its file, relative to the folder of the images"));
            };
            image.file_name = format!("{folder}/{name}");
        }
    }
    images.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    if let Some(pair) = images.windows(2).find(|pair| pair[0].file_name == pair[1].file_name) {
        let (a, b) = (&pair[0], &pair[1]);
        let what = format!("the images {} and {} have the same file, `{}`", a.id, b.id, a.file_name);
        return Err(Error::corrupt(what).with_hint("list each file once, with all its annotations"));
    }
    // Missing, null, 0, -1 or a fraction: the size is read from the image itself.
    let side = |number: Number| match number.0 {
        none if none.is_nan() || none == 0.0 || none == -1.0 || none > 0.0 && none.fract() > 0.0 => Some(0),
        _ => number.whole(),
    };
    let size = |image: &Image| match (side(image.height), side(image.width)) {
        (Some(height), Some(width)) => Ok([height, width]),
        _ => {
            let (height, width) = (image.height.0, image.width.0);
            let what = format!("image {} (`{}`) has height {height} and width {width}", image.id, image.file_name);
            Err(Error::corrupt(what).with_hint("write the size of each image in pixels, or omit it"))
        }
    };
    let sizes = images.iter().map(size).collect::<Result<_>>()?;
    Ok((images, sizes))
}

/// The names in a category's list of key points.
fn names_in(keypoints: &Value) -> Vec<String> {
    let name = |name: &Value| name.as_str().map_or_else(|| name.to_string(), str::to_owned);
    keypoints.as_array().into_iter().flatten().map(name).collect()
}

/// The names of key points, and no points yet; an error if categories have none or different ones.
fn keypoints_of(categories: &[Category]) -> Result<Keypoints, String> {
    let named = categories.iter().map(|category| (&category.name, names_in(&category.keypoints)));
    let mut named = named.filter(|(_, names)| !names.is_empty());
    let (first, names) = named.next().ok_or("no category has their names, a list called keypoints")?;
    if let Some((other, theirs)) = named.find(|(_, theirs)| *theirs != names) {
        return Err(format!(
            "the categories `{first}` and `{other}` have different ones, {} ({}) and {} ({})",
            names.len(),
            names.join(", "),
            theirs.len(),
            theirs.join(", ")
        ));
    }
    Ok(Keypoints { names: names.into(), points: Vec::new() })
}

/// A category's class; `None` if it is not among the given classes.
#[derive(Debug)]
struct Class {
    name: String,
    index: Option<u32>,
    /// Whether its objects have key points.
    has_keypoints: bool,
}

/// See [`classes_of`].
type Classes = (HashMap<Id, Class>, Arc<[String]>);

/// The class of each category by its id, and the names of all classes: the given ones, otherwise the categories in the
/// order of their ids.
fn classes_of(mut categories: Vec<Category>, given: Option<Arc<[String]>>) -> Result<Classes> {
    categories.sort_by(|a, b| a.id.cmp(&b.id));
    let mut seen = HashSet::new();
    if let Some(twice) = categories.iter().find(|category| !seen.insert(&category.id)) {
        return Err(Error::corrupt(format!("two categories have the id {}, one is `{}`", twice.id, twice.name)));
    }
    let index = given.as_ref().map(|given| index_of(given)).transpose()?;
    let names: Vec<String> = categories.iter().map(Category::called).collect();
    let class = |(at, category): (u32, Category)| {
        let name = category.called();
        let Category { id, keypoints, .. } = category;
        let index = match &index {
            None => Some(at),
            Some(index) => index.get(name.as_str()).and_then(|index| u32::try_from(*index).ok()),
        };
        (id, Class { name, index, has_keypoints: !names_in(&keypoints).is_empty() })
    };
    let labels = (0..).zip(categories).map(class).collect();
    drop(index);
    Ok((labels, given.unwrap_or_else(|| names.into())))
}
