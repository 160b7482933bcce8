//! Labels in JSON, and in JSON lines.

use std::collections::{BTreeSet, HashMap};

use infeed_core::error::{
    Error, Result,
    setting::{ANNOTATIONS, LABELS},
};
use serde_json::{Deserializer, Map, Value as Json};

use super::{
    columns::FILE,
    rows::{Head, Rows, no_table, row_at},
};

/// `{"a.jpg": 3}`, `{"a.jpg": {"label": 3}}`, `{"cat": ["a.jpg"]}`, `[["a.jpg", 3]]`, `[{"file": "a.jpg", "label": 3}]`, one
/// of the last two below a key such as `labels`, or their entries one after the other.
pub(super) fn parse(text: &str, lines: bool) -> Result<Rows> {
    let values = Deserializer::from_str(text).into_iter::<Json>().collect::<Result<Vec<_>, _>>();
    let mut values = values.map_err(|e| no_table("the label file is not JSON").with_source(e))?;
    if lines || values.len() != 1 {
        return entries(&values);
    }
    match values.remove(0) {
        Json::Array(values) => entries(&values),
        Json::Object(map) => object(&map),
        _ => Err(no_table("the label file is neither an object nor a list")),
    }
}

/// A number or a text as a cell; empty for null; `None` for other values.
fn cell(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.trim().to_owned()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(yes) => Some(yes.to_string()),
        Json::Null => Some(String::new()),
        Json::Array(_) | Json::Object(_) => None,
    }
}

fn object(map: &Map<String, Json>) -> Result<Rows> {
    if map.contains_key("images") && map.contains_key("annotations") {
        return of_coco(map);
    }
    let rows = |rows| Ok(Rows { head: Head::None, rows, unit: "entry" });
    // FiftyOne's form: names of classes, and the index of each image.
    if let (2, Some(Json::Array(_)), Some(Json::Object(labels))) = (map.len(), map.get("classes"), map.get("labels")) {
        return object(labels);
    }
    if let Some(table) = of_columns(map) {
        return Ok(table);
    }
    let nested = |value: &Json| matches!(value, Json::Array(all) if all.iter().any(|value| cell(value).is_none()));
    // Other values next to a list of entries, such as a version or names of classes, are not about files.
    let mut lists = map.iter().filter(|(_, value)| nested(value));
    if let Some((key, list)) = lists.next() {
        let list = match lists.next() {
            None => list,
            Some((other, _)) => map
                .get("labels")
                .filter(|value| nested(value))
                .ok_or_else(|| no_table(format!("the label file has several lists, such as `{key}` and `{other}`")))?,
        };
        return entries(list.as_array().expect("`nested` holds for lists alone"));
    }
    if map.values().all(Json::is_object) && !map.is_empty() {
        let keyed = map.iter().map(|(file, value)| (Some(file.as_str()), value.as_object().expect("all are")));
        return Ok(of_objects(keyed.enumerate().map(|(i, (file, map))| (i, file, map))));
    }
    if map.values().all(Json::is_array) {
        let listed = map.iter().flat_map(|(key, list)| list.as_array().into_iter().flatten().map(move |v| (v, key)));
        let row =
            |(i, (value, key)): (usize, (&Json, &String))| row_at(i, [cell(value).unwrap_or_default(), key.clone()]);
        return rows(listed.enumerate().map(row).collect());
    }
    let row = |(i, (file, label)): (usize, (&String, &Json))| match cell(label).filter(|label| !label.is_empty()) {
        Some(label) => Ok(row_at(i, [file.clone(), label])),
        None => Err(no_label(i)),
    };
    rows(map.iter().enumerate().map(row).collect::<Result<_>>()?)
}

/// Labels of whole images in COCO's form, as iNaturalist has them: annotations with a category and nothing else.
fn of_coco(map: &Map<String, Json>) -> Result<Rows> {
    let list = |key: &str| map.get(key).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let marks = ["bbox", "segmentation", "keypoints", "caption", "segments_info"];
    let has_marks = |one: &Json| marks.iter().any(|mark| one.get(mark).is_some_and(|value| !value.is_null()));
    if list("annotations").iter().any(has_marks) {
        let what = "the label file is COCO's JSON, which holds annotations";
        return Err(Error::config(what).with_hint(format!("set {ANNOTATIONS} instead of {LABELS}")));
    }
    let id = |value: Option<&Json>| value.and_then(cell).unwrap_or_default();
    let files: HashMap<String, String> =
        list("images").iter().map(|image| (id(image.get("id")), id(image.get("file_name")))).collect();
    let row = |(i, one): (usize, &Json)| match (files.get(&id(one.get("image_id"))), id(one.get("category_id"))) {
        (Some(file), label) if !label.is_empty() => Ok(row_at(i, [file.clone(), label])),
        _ => Err(no_table(format!("annotation {i} has no category, or is of an image that is not listed"))),
    };
    let rows = list("annotations").iter().enumerate().map(row).collect::<Result<_>>()?;
    Ok(Rows { head: Head::None, rows, unit: "annotation" })
}

/// A table by columns, as pandas writes one: `{"image": {"0": "a.jpg"}, "label": {"0": 3}}`.
fn of_columns(map: &Map<String, Json>) -> Option<Rows> {
    let columns: Vec<(&String, &Map<String, Json>)> =
        map.iter().map(|(name, column)| Some((name, column.as_object()?))).collect::<Option<_>>()?;
    let is_file = |(name, _): &(&String, &Map<String, Json>)| FILE.iter().any(|file| file.eq_ignore_ascii_case(name));
    let first = columns.iter().find(|column| is_file(column))?.1;
    let are_alike = columns.iter().all(|(_, column)| column.len() == first.len());
    if !are_alike || !first.values().all(|value| cell(value).is_some()) {
        return None;
    }
    let row = |(i, key): (usize, &String)| {
        row_at(i, columns.iter().map(|(_, column)| column.get(key).and_then(cell).unwrap_or_default()))
    };
    let rows = first.keys().enumerate().map(row).collect();
    let head = Head::Names(columns.iter().map(|(name, _)| (*name).clone()).collect());
    Some(Rows { head, rows, unit: "entry" })
}

fn no_label(entry: usize) -> Error {
    no_table(format!("entry {entry} has no file, or no label that is a number or a text"))
}

/// Pairs, or objects.
fn entries(list: &[Json]) -> Result<Rows> {
    if list.iter().all(Json::is_object) && !list.is_empty() {
        let maps = list.iter().enumerate().map(|(i, value)| (i, None, value.as_object().expect("all are")));
        return Ok(of_objects(maps));
    }
    let pair = |(i, entry): (usize, &Json)| {
        let cells = entry.as_array().and_then(|cells| cells.iter().map(cell).collect::<Option<Vec<_>>>());
        let cells = cells.filter(|cells| cells.len() > 1 && cells.iter().take(2).all(|cell| !cell.is_empty()));
        cells.map(|cells| row_at(i, cells)).ok_or_else(|| no_label(i))
    };
    Ok(Rows { head: Head::None, rows: list.iter().enumerate().map(pair).collect::<Result<_>>()?, unit: "entry" })
}

/// Keys are names of columns. A value that is a list or an object is not a column, because it is neither a file nor a
/// label.
fn of_objects<'a>(maps: impl Iterator<Item = (usize, Option<&'a str>, &'a Map<String, Json>)> + Clone) -> Rows {
    let (mut names, mut nested) = (Vec::<&str>::new(), BTreeSet::new());
    let mut known = BTreeSet::new();
    for (_, _, map) in maps.clone() {
        for (key, value) in map {
            if cell(value).is_none() {
                nested.insert(key.as_str());
            }
            if known.insert(key.as_str()) {
                names.push(key);
            }
        }
    }
    names.retain(|name| !nested.contains(name));
    let keyed = maps.clone().next().is_some_and(|(_, key, _)| key.is_some());
    let cells = |(i, key, map): (usize, Option<&str>, &Map<String, Json>)| {
        let values = names.iter().map(|name| map.get(*name).and_then(cell).unwrap_or_default());
        row_at(i, key.map(str::to_owned).into_iter().chain(values))
    };
    let rows = maps.map(cells).collect();
    let head = keyed.then(String::new).into_iter().chain(names.iter().map(|name| (*name).to_owned())).collect();
    Rows { head: Head::Names(head), rows, unit: "entry" }
}
