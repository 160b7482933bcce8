//! The names of YOLO's classes: `data.yaml`, or one name per line in `obj.names`, `classes.txt`, `_darknet.labels`.

use infeed_core::error::{Error, Result};
use infeed_store::{Beside, Object, Source};
use yaml_rust2::{Yaml, YamlLoader};

use crate::names::{base, ends_with, parent};

/// A longer list is not taken for a list of classes.
const MOST: i64 = 1 << 20;

/// A dataset's class names and kind of labels.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Names {
    pub(super) classes: Option<Vec<String>>,
    /// Whether the numbers after a box are key points instead of corners of an outline.
    pub(super) keypoints: bool,
}

/// Whether an object with this name has the names of classes.
pub(super) fn is_of_names(name: &str) -> bool {
    let base = base(name);
    is_yaml(name)
        || ends_with(base, ".names")
        || matches!(base, "classes.txt" | "_darknet.labels" | "predefined_classes.txt")
}

fn is_yaml(name: &str) -> bool {
    matches!(base(name), "data.yaml" | "data.yml" | "dataset.yaml" | "dataset.yml")
}

/// Whether it is YAML of any name: `coco8-pose.yaml`.
pub(super) fn is_any_yaml(name: &str) -> bool {
    ends_with(name, ".yaml") || ends_with(name, ".yml")
}

/// Files of YAML with other names that are read, at most: there may be one for each image.
const OTHERS: usize = 16;

/// The names in a file of the dataset; a file in a higher folder takes precedence.
pub(super) async fn read(source: &Source, objects: &[Object]) -> Result<Names> {
    let mut files: Vec<&Object> = objects.iter().filter(|object| is_of_names(&object.name)).collect();
    let others = || objects.iter().filter(|object| is_any_yaml(&object.name) && !is_yaml(&object.name));
    if others().count() <= OTHERS {
        files.extend(others());
    }
    // Those that are called as usual, the others, and lists of names.
    let rank = |name: &str| {
        (parent(name).split('/').count(), if is_yaml(name) { 0 } else { 1 + u8::from(!is_any_yaml(name)) })
    };
    files.sort_by_key(|object| rank(&object.name));
    let mut first: Option<(&Object, Names)> = None;
    for object in files {
        if first.as_ref().is_some_and(|(known, _)| rank(&known.name) != rank(&object.name)) {
            break;
        }
        let bytes = Beside::Note.read(source, object).await?;
        let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes)).into_owned();
        let found = match is_any_yaml(&object.name) {
            // Another file of YAML may be about anything.
            true if !is_yaml(&object.name) => of_yaml(&text).unwrap_or_default(),
            true => of_yaml(&text).map_err(|e| e.at_object(source.display_name(&object.name)))?,
            false => of_lines(&text),
        };
        match &first {
            _ if found.classes.is_none() => {}
            None => first = Some((object, found)),
            Some((known, names)) if names.classes != found.classes => {
                let what = format!("`{}` and `{}` have different names of classes", known.name, object.name);
                return Err(Error::config(what).at_object(source.url()).with_hint(
                    "open the folder of one dataset, or both with `::` between their urls; or remove one file",
                ));
            }
            Some(_) => {}
        }
    }
    Ok(first.map(|(_, names)| names).unwrap_or_default())
}

fn of_lines(text: &str) -> Names {
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Names { classes: (!names.is_empty()).then_some(names), keypoints: false }
}

/// `names` as a list, or as a map from numbers to names.
fn of_yaml(text: &str) -> Result<Names> {
    let read = YamlLoader::load_from_str(text).map_err(|e| Error::corrupt("the file is not YAML").with_source(e))?;
    let Some(root) = read.first() else { return Ok(Names::default()) };
    let word = |value: &Yaml| match value {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()),
        Yaml::Integer(number) => Some(number.to_string()),
        // A class may be named `no` or `true`.
        Yaml::Boolean(is) => Some(is.to_string()),
        _ => None,
    };
    let wrong = || {
        Error::corrupt("`names` are neither a list of names nor a map of numbers to names")
            .with_hint("write them like names: [cat, dog], or names: {0: cat, 1: dog}")
    };
    let classes = match &root["names"] {
        Yaml::BadValue | Yaml::Null => None,
        Yaml::Array(names) => Some(names.iter().map(word).collect::<Option<Vec<_>>>().ok_or_else(wrong)?),
        Yaml::Hash(names) => {
            // Some write the numbers in quotes.
            let number = |key: &Yaml| key.as_i64().or_else(|| key.as_str()?.parse().ok());
            let most = names.keys().map(|key| number(key).unwrap_or(-1)).max().unwrap_or(-1);
            if names.keys().any(|key| !number(key).is_some_and(|key| (0..MOST).contains(&key))) {
                return Err(wrong());
            }
            // A number without a name is its own name.
            let mut all: Vec<String> = (0..=most).map(|class| class.to_string()).collect();
            for (key, name) in names {
                let place = number(key).and_then(|key| all.get_mut(key as usize)).ok_or_else(wrong)?;
                *place = word(name).ok_or_else(wrong)?;
            }
            Some(all)
        }
        _ => return Err(wrong()),
    };
    Ok(Names { classes, keypoints: !root["kpt_shape"].is_badvalue() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lists_maps_and_lines() {
        let names = |text: &str| of_yaml(text).unwrap().classes;
        let want = Some(vec!["cat".to_owned(), "dog".to_owned()]);
        for text in [
            "names: [cat, dog]\nnc: 2\n",
            "train: ../train/images\nnames:\n- cat\n- 'dog'\n",
            "path: x # a comment\nnames:\n  0: cat\n  1: dog\n",
            "names: {1: dog, 0: cat}",
        ] {
            assert_eq!(names(text), want, "{text}");
        }
        assert_eq!(of_lines("cat\r\n\ndog\r\n").classes, want);
        assert_eq!(names("nc: 2"), None);
        assert_eq!(names("names: [1, true, 2.5]").unwrap(), ["1", "true", "2.5"]);
        assert!(of_yaml("names: [cat]\nkpt_shape: [17, 3]").unwrap().keypoints);
        assert_eq!(of_yaml("").unwrap(), Names::default());
        for text in ["names: cat", "names: {a: cat}", "names: {99999999999: cat}", "names: [[cat]]", "names: {-1: x}"] {
            assert!(of_yaml(text).unwrap_err().to_string().contains("`names` are neither"), "{text}");
        }
        assert!(of_yaml("{").unwrap_err().to_string().contains("not YAML"));
    }
}
