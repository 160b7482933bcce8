//! Finds COCO's JSON and its images, by names.
//!
//! | | JSON | images |
//! |---|---|---|
//! | COCO | `annotations/instances_SPLIT.json`, `annotations/SPLIT.json` | `SPLIT/…`, `images/SPLIT/…` |
//! | its other tasks | `annotations/person_keypoints_SPLIT.json`, `captions_…`, `panoptic_…` | the same |
//! | Roboflow | `SPLIT/_annotations.coco.json`, or without a folder | next to it |
//! | others | `annotations.json`, `instances.json`, `coco.json`, in a folder of a split or not | next to it, or in `images` there |

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{ANNOTATIONS, SPLIT},
};
use infeed_store::{Object, Source};

use crate::{
    layout::is_split,
    names::{base, parent},
};

/// Names of the file: Roboflow's, and usual names of files that people write themselves.
const BESIDE: [&str; 5] =
    ["_annotations.coco.json", "annotations.json", "annotations.coco.json", "instances.json", "coco.json"];
/// Prefixes of COCO's other files. These count if there are no instances.
const OTHER_TASKS: [&str; 5] = ["person_keypoints_", "stuff_", "panoptic_", "captions_", "image_info_"];
/// Number of file names that are tried to find the folder that they are relative to.
const LOOKED_FOR: usize = 1000;

/// A JSON file, and what its name gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnnotationFile {
    /// The split, or empty if the name has none.
    split: String,
    /// The name of the object.
    pub(super) json: String,
    /// Folders that file names may be relative to, the most likely first; an empty one is the dataset itself.
    pub(super) roots: Vec<String>,
}

/// The place of an object, if its name has one of these layouts.
fn place_of(name: &str) -> Option<AnnotationFile> {
    if BESIDE.contains(&base(name)) {
        let folder = match parent(name) {
            "annotations" => "",
            folder => folder,
        };
        let roots = match folder {
            "" => vec![String::new(), "images".to_owned()],
            folder => vec![folder.to_owned(), format!("{folder}/images"), format!("images/{folder}")],
        };
        return Some(AnnotationFile { split: base(folder).to_owned(), json: name.to_owned(), roots });
    }
    let split = instances(name).or_else(|| base(name).strip_suffix(".json").filter(|stem| is_split(stem)))?;
    in_annotations(name, split)
}

/// The same for JSON files of COCO's other tasks.
fn other_place_of(name: &str) -> Option<AnnotationFile> {
    in_annotations(name, other_task(name)?)
}

/// `train2017` of `…/captions_train2017.json`.
fn other_task(name: &str) -> Option<&str> {
    OTHER_TASKS.iter().find_map(|task| base(name).strip_prefix(task)?.strip_suffix(".json"))
}

fn in_annotations(name: &str, split: &str) -> Option<AnnotationFile> {
    let roots = roots_of(split);
    (parent(name) == "annotations").then(|| AnnotationFile { split: split.to_owned(), json: name.to_owned(), roots })
}

/// The JSON files: those of instances, otherwise those of other tasks.
pub(super) fn places(objects: &[Object]) -> Vec<AnnotationFile> {
    let found = |place: fn(&str) -> Option<AnnotationFile>| -> Vec<AnnotationFile> {
        let jsons = objects.iter().filter(|object| object.name.ends_with(".json"));
        jsons.filter_map(|object| place(&object.name)).collect()
    };
    let places = found(place_of);
    if places.is_empty() { found(other_place_of) } else { places }
}

/// `train2017` of `…/instances_train2017.json`.
fn instances(name: &str) -> Option<&str> {
    base(name).strip_prefix("instances_")?.strip_suffix(".json")
}

/// Possible folders of a split's images.
fn roots_of(split: &str) -> Vec<String> {
    vec![split.to_owned(), format!("images/{split}"), String::new(), "images".to_owned()]
}

/// Possible folders of the images of a file that the user named.
pub(super) fn roots_of_named(json: &str, split: Option<&str>) -> Vec<String> {
    let mut roots = match (split, instances(json).or_else(|| other_task(json))) {
        (Some(split), _) => roots_of(split),
        // The user's choice counts first: names are relative to the dataset.
        (None, Some(split)) => [vec![String::new()], roots_of(split)].concat(),
        (None, None) => vec![String::new()],
    };
    if split.is_none() && base(json) == BESIDE[0] {
        roots.push(parent(json).to_owned());
    }
    roots
}

fn name_the_file() -> String {
    format!("name the file: {}", ANNOTATIONS.to("…/instances_train2017.json"))
}

/// The JSON of the split, or the only one if no split was given.
pub(super) fn choose(source: &Source, objects: &[Object], split: Option<&str>) -> Result<AnnotationFile> {
    let mut places = places(objects);
    let known: Vec<String> = places.iter().map(|place| place.split.clone()).filter(|split| !split.is_empty()).collect();
    let known = known.join(", ");
    if let Some(split) = split {
        places.retain(|place| place.split == split);
    }
    match (places.len(), split) {
        (1, _) => Ok(places.remove(0)),
        (0, Some(split)) => {
            let error = Error::new(ErrorKind::NotFound, format!("no annotations of the split `{split}`"));
            Err(error.at_object(source.url()).with_hint(match known.is_empty() {
                true => name_the_file(),
                false => format!("there are splits {known}; or name the file with {ANNOTATIONS}"),
            }))
        }
        (0, None) => Err(Error::new(ErrorKind::NotFound, "no annotations next to the images")
            .at_object(source.url())
            .with_hint(name_the_file())),
        _ => Err(Error::config(format!("annotations of several splits: {known}"))
            .at_object(source.url())
            .with_hint(format!("name one file with {ANNOTATIONS}{}", SPLIT.or_set("")))),
    }
}

/// The first folder that has any of these files, otherwise the whole dataset.
pub(super) fn root_of<'a>(roots: &'a [String], names: &[String], objects: &[Object]) -> &'a str {
    let is_there = |name: &str| objects.binary_search_by(|object| object.name.as_str().cmp(name)).is_ok();
    let holds = |root: &&String| {
        let mut names = names.iter().take(LOOKED_FOR);
        names.any(|name| if root.is_empty() { is_there(name) } else { is_there(&format!("{root}/{name}")) })
    };
    roots.iter().find(holds).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_tasks_count_where_there_are_no_instances() {
        let found = |names: &[&str]| -> Vec<String> {
            let objects: Vec<_> = names.iter().map(|name| Object::new(*name, 1)).collect();
            places(&objects).into_iter().map(|place| place.json).collect()
        };
        let (captions, boxes) = ("annotations/captions_val2017.json", "annotations/instances_val2017.json");
        assert_eq!(found(&[captions, boxes, "val2017/1.jpg"]), [boxes]);
        assert_eq!(found(&[captions, "val2017/1.jpg"]), [captions]);
        assert_eq!(found(&["captions/x.json", "a/train.json"]), [""; 0]);
    }

    #[test]
    fn names_tell_splits_and_where_images_lie() {
        let told = |name: &str| place_of(name).map(|place| (place.split, place.roots.join(" ")));
        let split = |split: &str, roots: &str| Some((split.to_owned(), roots.to_owned()));
        assert_eq!(told("_annotations.coco.json"), split("", " images"));
        assert_eq!(told("annotations.json"), split("", " images"));
        assert_eq!(told("annotations/train.json"), split("train", "train images/train  images"));
        assert_eq!(told("x/valid/_annotations.coco.json"), split("valid", "x/valid x/valid/images images/x/valid"));
        assert_eq!(told("annotations/instances_val2017.json"), split("val2017", "val2017 images/val2017  images"));
        for other in [
            "annotations/captions_val2017.json",
            "instances_val2017.json",
            "a.json",
            "x_annotations.coco.json",
            "train.json",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
        assert_eq!(roots_of_named("x.json", None), [""]);
        assert_eq!(roots_of_named("/y/instances_a.json", None)[..3], ["", "a", "images/a"]);
        assert_eq!(roots_of_named("/y/instances_a.json", Some("b"))[..2], ["b", "images/b"]);
        assert_eq!(roots_of_named("train/_annotations.coco.json", None), ["", "train"]);
    }
}
