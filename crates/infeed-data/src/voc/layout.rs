//! Finds Pascal VOC's images and their XML files, by names.
//!
//! | | XML | image |
//! |---|---|---|
//! | VOC | `Annotations/a.xml` | `JPEGImages/a.jpg` |
//! | Kaggle | `annotations/a.xml` | `images/a.png` |
//! | LabelImg, Roboflow | `train/a.xml` | `train/a.jpg` |

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Object, Source};

use crate::{
    layout::stem,
    names::{ends_with, is_image},
    pairs::with_marks,
};

/// An image and its XML, as indices into the objects.
pub(super) type Pair = (usize, usize);

/// The folder above `JPEGImages`, and the name of an image in it.
fn image(name: &str) -> Option<(&str, &str)> {
    is_image(name).then(|| below(name, "JPEGImages"))?
}

/// The folder above `Annotations`, and the name of an XML in it.
fn xml(name: &str) -> Option<(&str, &str)> {
    ends_with(name, ".xml").then(|| below(name, "Annotations"))?
}

/// `("VOC2012", "a.jpg")` of `VOC2012/JPEGImages/a.jpg`.
fn below<'a>(name: &'a str, folder: &str) -> Option<(&'a str, &'a str)> {
    let (parent, file) = name.rsplit_once('/')?;
    let above = parent.strip_suffix(folder)?;
    (above.is_empty() || above.ends_with('/')).then_some((above.trim_end_matches('/'), file))
}

/// The folders that have both.
pub(super) fn roots(objects: &[Object]) -> BTreeSet<&str> {
    let of = |part: fn(&str) -> Option<(&str, &str)>| objects.iter().filter_map(move |o| Some(part(&o.name)?.0));
    let images: BTreeSet<&str> = of(image).collect();
    of(xml).filter(|root| images.contains(root)).collect()
}

/// The images with an XML, in the order of their names.
pub(super) fn all(objects: &[Object]) -> Vec<Pair> {
    let xmls = by_stem(objects, xml);
    let pair = |(at, object): (usize, &Object)| Some((at, *xmls.get(stem(image(&object.name)?.1))?));
    objects.iter().enumerate().filter_map(pair).collect()
}

/// The images with an XML of the same [key](crate::layout::key), in other folders than VOC's.
pub(super) fn loose(objects: &[Object]) -> Vec<Pair> {
    with_marks(objects, ".xml").into_iter().filter_map(|(image, xml)| Some((image, xml?))).collect()
}

/// The images that a list names, in the order of their names.
pub(super) fn listed(source: &Source, objects: &[Object], list: &str) -> Result<Vec<Pair>> {
    let (images, xmls) = (by_stem(objects, image), by_stem(objects, xml));
    let mut pairs = BTreeSet::new();
    let mut missing = Vec::new();
    for (line, text) in list.trim_start_matches('\u{feff}').lines().enumerate() {
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        // A name may have blanks, and its extension.
        let name = if is_image(text) { stem(text) } else { text };
        if !images.contains_key(name) && text.contains(char::is_whitespace) {
            let what = format!("line {} has more than a name: `{text}`", line + 1);
            return Err(Error::corrupt(what).with_hint("use a list of only images, such as train, val or trainval"));
        }
        match (images.get(name), xmls.get(name)) {
            (Some(image), Some(xml)) => drop(pairs.insert((*image, *xml))),
            (None, _) => missing.push(format!("JPEGImages/{name}.jpg")),
            (_, None) => missing.push(format!("Annotations/{name}.xml")),
        }
    }
    if let Some(first) = missing.first() {
        let what = format!("{} of the images that are listed lack a file, the first is `{first}`", missing.len());
        return Err(Error::new(ErrorKind::NotFound, what)
            .with_hint(format!("they have to be in {}; test images without annotations can't be read", source.url())));
    }
    Ok(pairs.into_iter().collect())
}

/// Files of a kind by their names, without the extension. If two have the same name, the first.
fn by_stem(objects: &[Object], part: fn(&str) -> Option<(&str, &str)>) -> BTreeMap<&str, usize> {
    let mut found = BTreeMap::new();
    for (at, object) in objects.iter().enumerate() {
        if let Some((_, file)) = part(&object.name) {
            found.entry(stem(file)).or_insert(at);
        }
    }
    found
}

/// The available lists: `train`, `trainval`, `val`.
pub(super) fn lists(objects: &[Object]) -> Vec<&str> {
    let names = objects.iter().filter_map(|o| o.name.strip_prefix("ImageSets/Main/")?.strip_suffix(".txt"));
    // `dog_train` and similar lists separate images with dogs from others.
    names.filter(|name| !name.contains('_')).collect()
}
