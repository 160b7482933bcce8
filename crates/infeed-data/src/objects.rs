//! Lists a place: everything in it, the objects that a pattern names, and the index files next to them.

use std::{collections::BTreeMap, path::Path};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::LISTING},
    report::Stage,
};
use infeed_store::{Beside, Object, SharedList, Source};

use super::names;

/// Everything below `source`, ordered by name, or the one object that it names.
pub async fn list(
    source: Source,
    manifests: Option<&Path>,
    shared: Option<&SharedList>,
) -> Result<(Source, Vec<Object>)> {
    let objects = all(&source, manifests, shared).await?;
    only_or(source, objects).await
}

/// These objects of `source`, or the one object that it names if there are none.
pub async fn only_or(source: Source, objects: Vec<Object>) -> Result<(Source, Vec<Object>)> {
    if objects.is_empty()
        && let Some(source) = source.as_object().await?
    {
        let objects = source.objects(None, None).await?;
        return Ok((source, objects));
    }
    Ok((source, objects))
}

/// From the job's listing, if it has one.
async fn all(source: &Source, manifests: Option<&Path>, shared: Option<&SharedList>) -> Result<Vec<Object>> {
    match shared {
        Some(shared) => shared.objects(source, manifests).await,
        // Images are read whole, so their sizes need not be looked up again.
        None => source.objects(manifests, Some(names::is_image)).await,
    }
}

/// The objects with these names, and their index files.
pub async fn named(
    source: &Source,
    names: Vec<String>,
    manifests: Option<&Path>,
    shared: Option<&SharedList>,
) -> Result<Vec<Object>> {
    let count = names.len();
    let mut objects = match shared {
        Some(_) if source.is_web() => {
            return Err(Error::config("files of a web server are looked up by name, not listed")
                .at_object(source.url())
                .with_hint(format!("omit {LISTING}")));
        }
        _ if source.is_web() => with_indexes(source, &names).await?,
        _ => all(source, manifests, shared).await?,
    };
    let mut missing: BTreeMap<String, ()> = names.into_iter().map(|name| (name, ())).collect();
    if missing.len() < count {
        return Err(Error::config("the pattern names an object twice").at_object(source.url()));
    }
    let tells = |name: &str| !name.contains('/') && (name.ends_with(".infeed") || name.ends_with(".idx"));
    objects.retain(|object| missing.remove(&object.name).is_some() || tells(&object.name));
    if let Some((first, ())) = missing.first_key_value() {
        let what = format!("{} of the {count} objects that are named do not exist", missing.len());
        return Err(Error::new(ErrorKind::NotFound, what).at_object(source.display_name(first)).with_hint(
            match count {
                1 => "there is neither a file nor a folder of this name",
                _ => "check both ends of the range in the url",
            },
        ));
    }
    Ok(objects)
}

/// These objects, and the index files next to them. A kind of index file is looked up only if the first object has it.
async fn with_indexes(source: &Source, names: &[String]) -> Result<Vec<Object>> {
    let mut wanted = names.to_vec();
    if let Some(stem) = names.first().and_then(|name| name.strip_suffix(".tar")) {
        let kinds = [".infeed", ".idx"];
        let mut beside: Vec<String> = kinds.iter().map(|kind| format!("{stem}{kind}")).collect();
        beside.push("shards.infeed".into());
        for found in source.look_up_names(beside).await? {
            match kinds.iter().find(|kind| found.name == format!("{stem}{kind}")) {
                Some(kind) => {
                    wanted
                        .extend(names.iter().filter_map(|name| Some(format!("{}{kind}", name.strip_suffix(".tar")?))));
                }
                None => wanted.push(found.name),
            }
        }
    }
    source.look_up_names(wanted).await
}

/// The objects in a folder, named relative to it.
pub fn inside(objects: Vec<Object>, folder: &str) -> Vec<Object> {
    let prefix = format!("{folder}/");
    let inside = objects.into_iter().filter_map(|mut object| {
        object.name = object.name.strip_prefix(&prefix)?.to_owned();
        Some(object)
    });
    inside.collect()
}

/// The error for a place without objects of a kind; it lists what is there instead.
pub fn nothing_to_read(source: &Source, objects: &[Object], wanted: &str) -> Error {
    let mut kinds = BTreeMap::<&str, usize>::new();
    for object in objects {
        let base = object.name.rsplit('/').next().unwrap_or_default();
        let kind = base.rfind('.').map_or("without extension", |dot| &base[dot..]);
        *kinds.entry(kind).or_default() += 1;
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let listed: Vec<_> = kinds.iter().take(3).map(|(kind, count)| format!("{count} {kind}")).collect();
    let found = match kinds.len() {
        0 => "there are no files".to_owned(),
        1..=3 => format!("there are only {}", listed.join(", ")),
        _ => format!("there are only {}, and others", listed.join(", ")),
    };
    let hint = match kinds.first() {
        Some((kind @ (".zip" | ".7z" | ".rar"), _)) => {
            format!("unpack the {kind}: infeed reads tars without unpacking")
        }
        _ => format!("images end with {}; or name the format", names::EXTENSIONS.join(", ")),
    };
    Error::new(ErrorKind::NotFound, format!("no {wanted}: {found}"))
        .at_stage(Stage::Open)
        .at_object(source.url())
        .with_hint(hint)
}

/// Finds one object of the dataset, otherwise of a path or url. Returns its name in messages, and where it is.
pub async fn find_beside(source: &Source, objects: &[Object], name: &str) -> Result<(String, Source, Object)> {
    if let Ok(at) = objects.binary_search_by(|o| o.name.as_str().cmp(name)) {
        return Ok((source.display_name(name), source.clone(), objects[at].clone()));
    }
    let (source, mut objects) = list(Source::parse(name)?, None, None).await?;
    match (source.only(), objects.pop()) {
        (Some(_), Some(object)) if objects.is_empty() => Ok((name.to_owned(), source, object)),
        _ => Err(Error::new(ErrorKind::NotFound, "not a file").at_stage(Stage::Open).at_object(name)),
    }
}

/// The same, and reads all of it.
pub async fn read_beside(source: &Source, objects: &[Object], name: &str) -> Result<(String, Bytes)> {
    let (name, source, object) = find_beside(source, objects, name).await?;
    Ok((name, Beside::Table.read(&source, &object).await?))
}
