//! Where COCO's JSON and the images that it lists lie, as names tell.
//!
//! | | JSON | images |
//! |---|---|---|
//! | COCO | `annotations/instances_SPLIT.json` | `SPLIT/…`, `images/SPLIT/…` |
//! | Roboflow | `SPLIT/_annotations.coco.json`, or without a folder | beside it |

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{ANNOTATIONS, SPLIT},
};
use infeed_store::{Object, Source};

use crate::names::{base, parent};

/// Roboflow's name of the file.
const BESIDE: &str = "_annotations.coco.json";
/// Names that are looked for to tell which folder the file's names are relative to.
const LOOKED_FOR: usize = 1000;

/// A JSON, and what its name says of the images.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The split, or nothing when the name says none.
    split: String,
    /// The object.
    pub(super) json: String,
    /// Folders that file names may be relative to, the likeliest first; an empty one is the dataset.
    pub(super) roots: Vec<String>,
}

/// What the name of an object says, if it is one of these layouts.
pub(super) fn place_of(name: &str) -> Option<Place> {
    if base(name) == BESIDE {
        let folder = parent(name);
        return Some(Place { split: base(folder).to_owned(), json: name.to_owned(), roots: vec![folder.to_owned()] });
    }
    let split = instances(name)?;
    let roots = roots_of(split);
    (parent(name) == "annotations").then(|| Place { split: split.to_owned(), json: name.to_owned(), roots })
}

/// `train2017` of `…/instances_train2017.json`.
fn instances(name: &str) -> Option<&str> {
    base(name).strip_prefix("instances_")?.strip_suffix(".json")
}

/// Where the images of a split may lie.
fn roots_of(split: &str) -> Vec<String> {
    vec![split.to_owned(), format!("images/{split}"), String::new(), "images".to_owned()]
}

/// Where the images of a file may lie that was named.
pub(super) fn roots_of_named(json: &str, split: Option<&str>) -> Vec<String> {
    let mut roots = match (split, instances(json)) {
        (Some(split), _) => roots_of(split),
        // What was said counts first: names are relative to the dataset.
        (None, Some(split)) => [vec![String::new()], roots_of(split)].concat(),
        (None, None) => vec![String::new()],
    };
    if split.is_none() && base(json) == BESIDE {
        roots.push(parent(json).to_owned());
    }
    roots
}

fn name_the_file() -> String {
    format!("name the file: {}", ANNOTATIONS.to("…/instances_train2017.json"))
}

/// The JSON of the split; of the only one when none was said.
pub(super) fn choose(source: &Source, objects: &[Object], split: Option<&str>) -> Result<Place> {
    let mut places: Vec<Place> = objects.iter().filter_map(|object| place_of(&object.name)).collect();
    let known: Vec<String> = places.iter().map(|place| place.split.clone()).filter(|split| !split.is_empty()).collect();
    let known = known.join(", ");
    if let Some(split) = split {
        places.retain(|place| place.split == split);
    }
    match (places.len(), split) {
        (1, _) => Ok(places.remove(0)),
        (0, Some(split)) => {
            let error = Error::new(ErrorKind::NotFound, format!("no annotations of the split `{split}`"));
            Err(error.at_object(source.url()).hint(match known.is_empty() {
                true => name_the_file(),
                false => format!("there are those of {known}; or name the file by {ANNOTATIONS}"),
            }))
        }
        (0, None) => Err(Error::new(ErrorKind::NotFound, "no annotations beside the images")
            .at_object(source.url())
            .hint(name_the_file())),
        _ => Err(Error::config(format!("annotations of several splits: {known}"))
            .at_object(source.url())
            .hint(format!("name the file of one by {ANNOTATIONS}{}", SPLIT.or_set("")))),
    }
}

/// The first folder in which any of these files lies; else the first.
pub(super) fn root_of<'a>(roots: &'a [String], names: &[String], objects: &[Object]) -> &'a str {
    let is_there = |name: &str| objects.binary_search_by(|object| object.name.as_str().cmp(name)).is_ok();
    let holds = |root: &&String| {
        let mut names = names.iter().take(LOOKED_FOR);
        names.any(|name| if root.is_empty() { is_there(name) } else { is_there(&format!("{root}/{name}")) })
    };
    roots.iter().find(holds).or(roots.first()).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_splits_and_where_images_lie() {
        let told = |name: &str| place_of(name).map(|place| (place.split, place.roots.join(" ")));
        let split = |split: &str, roots: &str| Some((split.to_owned(), roots.to_owned()));
        assert_eq!(told("_annotations.coco.json"), split("", ""));
        assert_eq!(told("x/valid/_annotations.coco.json"), split("valid", "x/valid"));
        assert_eq!(told("annotations/instances_val2017.json"), split("val2017", "val2017 images/val2017  images"));
        for other in
            ["annotations/captions_val2017.json", "instances_val2017.json", "a.json", "x_annotations.coco.json"]
        {
            assert_eq!(told(other), None, "{other}");
        }
        assert_eq!(roots_of_named("x.json", None), [""]);
        assert_eq!(roots_of_named("/y/instances_a.json", None)[..3], ["", "a", "images/a"]);
        assert_eq!(roots_of_named("/y/instances_a.json", Some("b"))[..2], ["b", "images/b"]);
        assert_eq!(roots_of_named("train/_annotations.coco.json", None), ["", "train"]);
    }
}
