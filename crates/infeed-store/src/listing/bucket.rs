//! Lists with a manifest: load it and compare it with the store, or list and keep the result.

use std::time::{SystemTime, UNIX_EPOCH};

use futures::{StreamExt, TryStreamExt, stream};
use infeed_core::error::Result;

use super::format;
use crate::{Object, Source, connect::Remote, errors::store_error};

/// Places to compare, one page each: about as many requests as can be waited for at once.
const LOOKS: usize = 16;
/// With fewer objects, comparing the pages costs as much as listing.
const WORTH: usize = 20_000;

/// All objects of `source`, ordered by name.
pub(crate) async fn objects(source: &Source, remote: &Remote, chosen: Option<&std::path::Path>) -> Result<Vec<Object>> {
    remote.connect().await?;
    // A store that can't list from a given place can't be compared at some places, so its listing is never kept.
    let manifest = (!remote.is_directory()).then(|| source.manifest("manifest", chosen)).flatten();
    let place = source.place();
    if let Some(manifest) = &manifest
        && let Some(objects) = manifest.load(|file| format::decode(file, place))
    {
        match differs(source, remote, &objects).await? {
            None => {
                let file = manifest.file().display();
                tracing::info!(objects = objects.len(), %file, "taken from the manifest");
                return Ok(objects);
            }
            Some(wrong) => manifest.forget(&wrong),
        }
    }
    let mut objects: Vec<Object> = source.list().try_collect().await?;
    objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    if let Some(manifest) = manifest.filter(|_| objects.len() >= WORTH) {
        manifest.store(&format::encode(&objects, place));
    }
    Ok(objects)
}

/// Compares some pages with the store. Returns a description of the first difference.
async fn differs(source: &Source, remote: &Remote, objects: &[Object]) -> Result<Option<String>> {
    if objects.is_empty() {
        return Ok(Some("it is empty".into()));
    }
    // Other places each time: a difference that one opening misses may be found by the next.
    let mut random = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
    let middle = (2..LOOKS).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((random >> 33) as usize) % objects.len())
    });
    // Both ends are always compared, because most datasets grow at the end.
    let places: Vec<Option<usize>> = [None, Some(objects.len() - 1)].into_iter().chain(middle).collect();
    let looks = places.into_iter().map(|place| look(source, remote, objects, place)).collect::<Vec<_>>();
    let mut looks = stream::iter(looks).buffer_unordered(LOOKS);
    while let Some(found) = looks.try_next().await? {
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Compares the page after an object; with `None`, the first page.
async fn look(source: &Source, remote: &Remote, objects: &[Object], place: Option<usize>) -> Result<Option<String>> {
    let root = match source.0.prefix.as_ref() {
        "" => String::new(),
        prefix => format!("{prefix}/"),
    };
    // Within a folder only, since stores order folders in different ways.
    let name = place.map_or("", |at| objects[at].name.as_str());
    let parent = name.rfind('/').map_or("", |slash| &name[..=slash]);
    let after = place.map(|_| format!("{root}{name}"));
    let page = remote.page_after(format!("{root}{parent}"), after).await;
    let page = page.map_err(|e| store_error(e, "cannot be listed").at_object(source.url()))?;
    let found: Vec<Object> = page.result.objects.into_iter().filter_map(|meta| source.shown(meta)).collect();
    for object in &found {
        let known = objects.binary_search_by(|o| o.name.cmp(&object.name)).ok().map(|at| &objects[at]);
        match known {
            None => return Ok(Some(format!("{} is new", object.name))),
            Some(known) if known != object => return Ok(Some(format!("{} has changed", object.name))),
            Some(_) => {}
        }
    }
    // A missing object can be detected only if the store's order is the same as ours.
    let first = place.map_or(0, |at| at + 1);
    if found.is_sorted_by(|a, b| a.name < b.name) && found.first().is_none_or(|o| o.name.as_str() > name) {
        let here = objects[first..].iter().take_while(|object| object.name.starts_with(parent));
        let complete = page.page_token.is_none();
        let mut listed = found.iter();
        for expected in here {
            match listed.next() {
                Some(object) if object.name == expected.name => {}
                None if !complete => break,
                _ => return Ok(Some(format!("{} is gone", expected.name))),
            }
        }
    }
    Ok(None)
}
