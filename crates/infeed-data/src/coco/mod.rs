//! COCO: images, and one JSON file with the annotations of all: boxes with outlines and key points, or captions.
//!
//! ```text
//! layout ─ which JSON, which folder ─▶ json ─ as it is written ─▶ resolve ─ in the order of records ─▶ DetectionDataset
//!                                       └ a large JSON that did not change ─ kept ─────────▶
//! ```

mod id;
mod json;
mod kept;
mod layout;
mod number;
mod resolve;
mod segmentation;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use infeed_core::error::{Error, ErrorKind, Result, setting::SPLIT};
use infeed_store::{Beside, MachineLock, Object, Source};

use self::{
    kept::Kept,
    layout::{choose, places, root_of, roots_of_named},
    resolve::{Resolved, resolve},
};
use super::{
    detection::{DetectionDataset, Identity},
    files::Files,
    format::{Claim, Evidence, Format, OpenOption, OpenOptions},
    label_table::{NamedImages, Names},
    layout::{is_mark, is_split},
    names::{ends_with, is_image, other_spellings, parent},
    objects::{find_beside, inside, nothing_to_read},
    record::Dataset,
};

const NAME: &str = "coco";

/// Images and COCO's JSON of instances or captions.
#[derive(Clone, Copy, Debug)]
pub struct Coco;

impl Format for Coco {
    fn name(&self) -> &'static str {
        NAME
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        self.claim(objects).is_some()
    }

    fn claim(&self, objects: &[Object]) -> Option<Claim> {
        let place = places(objects).into_iter().next()?;
        let why = || Claim::new(Evidence::Annotations, format!("images, and COCO's JSON `{}`", place.json));
        objects.iter().any(|o| is_image(&o.name)).then(why)
    }

    fn reads(&self, name: &str) -> bool {
        is_image(name) && !is_mark(name) || ends_with(name, ".json")
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Annotations, OpenOption::Masks, OpenOption::Classes, OpenOption::Split]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            if !objects.iter().any(|object| is_image(&object.name)) {
                return Err(nothing_to_read(source, &objects, "images"));
            }
            let split = options.split.as_deref();
            let (json, roots) = match &options.annotations {
                Some(json) => (json.clone(), roots_of_named(json, split)),
                None => choose(source, &objects, split).map(|place| (place.json, place.roots))?,
            };
            let (object, json_source, json) = find_beside(source, &objects, &json).await?;
            let at = |e: Error| e.at_object(object.clone());
            let (mut found, to_keep) = read(&json_source, &json, options).await.map_err(at)?;
            found.left_out.warn(&object);
            let root = root_of(&roots, &found.names, &objects);
            let (source, objects) = match root {
                "" => (source.clone(), objects),
                root => (source.child(root)?, inside(objects, root)),
            };
            let files = files_of(&source, &objects, &found.names, &json.name).map_err(at)?;
            if let Some((kept, _turn)) = to_keep {
                let identity = Identity::of(NAME, &files, &found.ids, &found.sizes, &found.notes)?;
                found = kept.keep(found, identity);
            }
            let Resolved { ids, sizes, notes, classes, .. } = found;
            Ok(Arc::new(DetectionDataset::new(NAME, files, ids, sizes, notes, classes)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// What is kept of a JSON; otherwise what is parsed, and where to keep it.
async fn read(
    source: &Source,
    json: &Object,
    options: &OpenOptions,
) -> Result<(Resolved, Option<(Kept, Option<MachineLock>)>)> {
    let kept = Kept::of(source, json, options);
    let load = || kept.as_ref().and_then(Kept::load);
    if let Some(found) = load() {
        return Ok((found, None));
    }
    // One process of a machine parses, the others wait for what it keeps.
    let turn = match &kept {
        Some(kept) => source.machine_lock(Some(kept.manifest())).await,
        None => None,
    };
    if turn.as_ref().is_some_and(|turn| turn.waited)
        && let Some(found) = load()
    {
        return Ok((found, None));
    }
    let bytes = Beside::Table.read(source, json).await?;
    // A JSON that is being changed is not kept.
    let kept = kept.filter(|kept| kept.is_of(&bytes));
    let parsed = json::parse(&bytes, options.masks)?;
    drop(bytes);
    Ok((resolve(parsed, options.classes.clone())?, kept.map(|kept| (kept, turn))))
}

/// Whether an image is in the folder of a split, and the JSON is that of another.
fn is_of_other_split(image: &str, json: &str) -> bool {
    let splits = |path: &str| -> BTreeSet<String> {
        let words = path.split(|c: char| !c.is_ascii_alphabetic());
        words.filter(|word| is_split(word)).map(str::to_ascii_lowercase).collect()
    };
    let (of_image, of_json) = (splits(parent(image)), splits(json));
    !of_image.is_empty() && !of_json.is_empty() && of_image.is_disjoint(&of_json)
}

/// Finds the images of names that are written otherwise: with other folders, with `\`, without an extension. Other splits
/// may have images of the same names.
fn found_by_ends(
    source: &Source,
    objects: &[Object],
    names: &[String],
    json: &str,
    found: &mut [Option<usize>],
) -> Result<()> {
    let may_be = |object: &Object| is_image(&object.name) && !is_of_other_split(&object.name, json);
    let places: Vec<usize> = (0..objects.len()).filter(|at| may_be(&objects[*at])).collect();
    let images: Vec<&str> = places.iter().map(|at| &*objects[*at].name).collect();
    let mut images = NamedImages(Names::new(&images, source.url()));
    for (name, found) in names.iter().zip(&mut *found).filter(|(_, found)| found.is_none()) {
        *found = images.of("", name)?.map(|image| places[image as usize]);
    }
    if found.iter().all(Option::is_none) {
        let written: Vec<&str> = names.iter().map(String::as_str).collect();
        let by_ends = images.by_ends(&written)?;
        found.iter_mut().zip(by_ends).for_each(|(found, image)| *found = image.map(|image| places[image as usize]));
    }
    let mut of = HashMap::new();
    for (name, at) in names.iter().zip(&*found).filter_map(|(name, at)| Some((name, (*at)?))) {
        if let Some(other) = of.insert(at, name) {
            let what = format!("`{other}` and `{name}` may both be `{}`", objects[at].name);
            return Err(Error::corrupt(what).with_hint("name the files as the dataset does"));
        }
    }
    Ok(())
}

/// The files of these images, which this JSON lists. Names and objects are both sorted.
fn files_of(source: &Source, objects: &[Object], names: &[String], json: &str) -> Result<Files> {
    let spelled = |name: &str| objects.binary_search_by(|object| object.name.as_str().cmp(name)).ok();
    let find = |name: &String| spelled(name).or_else(|| other_spellings(name).find_map(|other| spelled(&other)));
    let mut found: Vec<Option<usize>> = names.iter().map(find).collect();
    if found.contains(&None) {
        found_by_ends(source, objects, names, json, &mut found)?;
    }
    let mut missing = names.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(name, _)| name);
    if let Some(first) = missing.next() {
        let what = format!("{} of {} images have no file, the first is `{first}`", missing.count() + 1, names.len());
        return Err(Error::new(ErrorKind::NotFound, what).with_hint(format!(
            "their names are relative to {}: open the folder that holds them{}",
            source.url(),
            SPLIT.or_set("")
        )));
    }
    names.iter().try_for_each(|name| source.check_name(name))?;
    let chosen: Vec<&Object> = found.into_iter().flatten().map(|at| &objects[at]).collect();
    let unlisted = objects.iter().filter(|object| is_image(&object.name)).count().saturating_sub(chosen.len());
    if unlisted > 0 {
        tracing::warn!(unlisted, url = source.url(), "images that the annotations do not list are left out");
    }
    Ok(Files::of(source.clone(), &chosen))
}
