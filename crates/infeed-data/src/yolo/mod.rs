//! YOLO: images, a text file for each with its boxes, and a file with the names of the classes.
//!
//! ```text
//! images/train/a.jpg ─ the same key ─ labels/train/a.txt   0 0.5 0.5 0.2 0.3     class, centre x, y, width, height
//!                                     data.yaml            names: [cat, dog]     0 1 0.1 0.1 0.9 0.1 0.5 0.9  an outline
//! ```
//!
//! Coordinates are fractions of the image's width and height. The image's size is known only when it is read.

mod names;
#[cfg(test)]
mod tests;
mod text;

use std::{collections::HashMap, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{FORMAT, MASKS},
};
use infeed_store::{Beside, Object, Source};

use self::{
    names::Names,
    text::{Line, have_keypoints},
};
use super::{
    detection::DetectionDataset,
    files::Files,
    format::{Claim, Evidence, Format, OpenOption, OpenOptions},
    labels::index_of,
    layout::{is_mark, keep_split, key},
    marked::{Marked, Outline, Outlines, Thing, Units, corners},
    names::{base, ends_with, is_image, parent},
    objects::nothing_to_read,
    pairs::with_marks,
    record::Dataset,
};

/// Small reads: enough of them to hide a store's latency.
const TEXTS_AT_A_TIME: usize = 64;

/// An image and its text, as indices into the objects.
type Pair = (usize, Option<usize>);

/// Images with YOLO text files.
#[derive(Clone, Copy, Debug)]
pub struct Yolo;

/// A text next to an image may be a caption. Only a folder of labels or a file of class names shows that it is not.
fn pairs(objects: &[Object], anywhere: bool) -> Vec<Pair> {
    let pairs = with_marks(objects, ".txt");
    let mut texts = pairs.iter().filter_map(|(_, text)| *text).map(|text| &objects[text].name).peekable();
    let are_there = texts.peek().is_some();
    let sure =
        anywhere || objects.iter().any(|object| names::is_of_names(&object.name)) || texts.any(|text| is_mark(text));
    if are_there && sure { pairs } else { Vec::new() }
}

impl Format for Yolo {
    fn name(&self) -> &'static str {
        "yolo"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        self.claim(objects).is_some()
    }

    fn claim(&self, objects: &[Object]) -> Option<Claim> {
        if !objects.iter().any(|object| ends_with(&object.name, ".txt")) {
            return None;
        }
        let pairs = pairs(objects, false);
        // The texts of images with masks hold something else, unless their folder is that of YOLO.
        let of_yolo = |text: usize| parent(&objects[text].name).split('/').any(|f| f.eq_ignore_ascii_case("labels"));
        if objects.iter().any(|object| is_image(&object.name) && is_mark(&object.name))
            && !pairs.iter().filter_map(|(_, text)| *text).any(of_yolo)
        {
            return None;
        }
        let (image, text) = pairs.iter().find_map(|(image, text)| Some((*image, (*text)?)))?;
        let count = pairs.iter().filter(|(_, text)| text.is_some()).count();
        let (image, text) = (&objects[image].name, &objects[text].name);
        let why = format!("{count} images with a text, the first is `{image}` with `{text}`");
        Some(Claim::new(Evidence::Annotations, why))
    }

    fn reads(&self, name: &str) -> bool {
        is_image(name) && !is_mark(name)
            || ends_with(name, ".txt")
            || names::is_of_names(name)
            || names::is_any_yaml(name)
            || ends_with(name, ".data")
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Masks, OpenOption::Classes, OpenOption::Split]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let at_source = |e: Error| e.at_object(source.url());
            let mut pairs = pairs(&objects, true);
            if pairs.is_empty() {
                return Err(nothing_to_read(source, &objects, "images with YOLO text files")
                    .with_hint("use images/NAME.jpg, each with labels/NAME.txt, or both in one folder"));
            }
            match options.split.as_deref() {
                Some(split) if list_of(&objects, split).is_some() => {
                    let list = &objects[list_of(&objects, split).unwrap_or_default()];
                    let bytes = Beside::Table.read(source, list).await?;
                    keep_listed(&mut pairs, &objects, &String::from_utf8_lossy(&bytes))
                        .map_err(|e| e.at_object(source.display_name(&list.name)))?;
                }
                split => {
                    keep_split(&mut pairs, |(image, _)| key(&objects[*image].name), split).map_err(at_source)?;
                }
            }
            let names = names::read(source, &objects).await?;
            let texts = pairs.iter().map(|(_, text)| read(source, text.map(|text| &objects[text])).boxed());
            let mut texts: Vec<Option<Vec<Line>>> =
                stream::iter(texts.collect::<Vec<_>>()).buffered(TEXTS_AT_A_TIME).try_collect().await?;
            let without = texts.iter().filter(|text| text.is_none()).count();
            if without > 0 {
                tracing::warn!(
                    without,
                    of = texts.len(),
                    "images without a YOLO text file count as images without boxes"
                );
            }
            let named = |record: usize| source.display_name(&objects[pairs[record].1.unwrap_or(pairs[record].0)].name);
            let keypoints = names.keypoints || have_keypoints(texts.iter().flatten().flatten());
            texts.iter_mut().flatten().flatten().for_each(|line| line.check_count(keypoints));
            let (marked, classes) = marked(&texts, Names { keypoints, ..names }, options, named)?;
            let images: Vec<&Object> = pairs.iter().map(|(image, _)| &objects[*image]).collect();
            images.iter().try_for_each(|image| source.check_name(&image.name))?;
            let ids = (0..images.len() as i64).collect();
            let files = Files::of(source.clone(), &images);
            let sizes = vec![[0, 0]; images.len()];
            Ok(Arc::new(DetectionDataset::new("yolo", files, ids, sizes, marked, classes)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The list of a split's images, `train.txt`, unless that is the text file of an image.
fn list_of(objects: &[Object], split: &str) -> Option<usize> {
    let is_list = |object: &Object| {
        let name = base(&object.name);
        name.strip_suffix(".txt") == Some(split) && !is_mark(&object.name)
    };
    objects.iter().position(is_list)
}

/// Keeps the images that a list names, whatever folder the list was written for.
fn keep_listed(pairs: &mut Vec<Pair>, objects: &[Object], list: &str) -> Result<()> {
    let places: HashMap<&str, usize> = pairs.iter().map(|(image, _)| (objects[*image].name.as_str(), *image)).collect();
    let mut listed = std::collections::HashSet::new();
    for (number, line) in (1..).zip(list.lines().map(str::trim)).filter(|(_, line)| !line.is_empty()) {
        let line = &line.trim_start_matches('\u{feff}').replace('\\', "/");
        let ends = std::iter::once(line.as_str()).chain(line.match_indices('/').map(|(at, _)| &line[at + 1..]));
        let Some(image) = ends.clone().find_map(|end| places.get(end)) else {
            return Err(Error::new(ErrorKind::NotFound, format!("line {number} lists `{line}`, which is not there"))
                .with_hint("name images relative to the dataset"));
        };
        listed.insert(*image);
    }
    pairs.retain(|(image, _)| listed.contains(image));
    Ok(())
}

/// The lines of a text file; `None` if there is no text file.
async fn read(source: &Source, object: Option<&Object>) -> Result<Option<Vec<Line>>> {
    let Some(object) = object.filter(|object| object.size > 0) else { return Ok(object.map(|_| Vec::new())) };
    let bytes = Beside::Note.read(source, object).await?;
    Ok(Some(text::parse(&bytes)))
}

/// All objects, and the names of their classes: the given ones, otherwise those of a file, otherwise numbers.
fn marked(
    texts: &[Option<Vec<Line>>],
    names: Names,
    options: &OpenOptions,
    named: impl Fn(usize) -> String,
) -> Result<(Marked, Arc<[String]>)> {
    let lines =
        || texts.iter().enumerate().flat_map(|(record, lines)| lines.iter().flatten().map(move |l| (record, l)));
    // If at least one line is good, the others are damage; if none is, the files are of another kind.
    if let Some((record, Line { wrong: Some(wrong), .. })) = lines().next()
        && lines().all(|(_, line)| line.wrong.is_some())
    {
        return Err(Error::corrupt(format!("no text file has YOLO's format: {wrong}"))
            .at_object(named(record))
            .with_hint(format!(
                "other text files are not read; to read only the images, set {}",
                FORMAT.to("folder")
            )));
    }
    let own: Vec<String> = match names.classes {
        Some(names) => names,
        None => {
            let most = lines().map(|(_, line)| line.class).max().map_or(0, |most| most as usize + 1);
            tracing::warn!(classes = most, "no file has the names of YOLO's classes: their numbers are used as names");
            (0..most).map(|class| class.to_string()).collect()
        }
    };
    let classes: Arc<[String]> = options.classes.clone().unwrap_or_else(|| own.clone().into());
    let index = index_of(&classes)?;
    let mut outlines = options.masks.then(Outlines::default);
    let (mut things, mut bad) = (Vec::new(), HashMap::new());
    let mut id = (0, 0);
    for (record, line) in lines() {
        id = if id.0 == record { (record, id.1 + 1) } else { (record, 0) };
        let mut broken = |what: String| _ = bad.entry(record).or_insert(format!("line {}: {what}", line.number));
        if let Some(wrong) = &line.wrong {
            broken(wrong.clone());
            continue;
        }
        let Some(name) = own.get(line.class as usize) else {
            broken(format!("class {} is not among the {} that have names", line.class, own.len()));
            continue;
        };
        let Some(label) = index.get(name.as_str()).and_then(|label| u32::try_from(*label).ok()) else {
            let what = format!("class `{name}` is not among the {} given classes", classes.len());
            return Err(Error::config(what)
                .at_object(named(record))
                .with_hint("open it with the classes that it has, or remove the file"));
        };
        let outline = match (&mut outlines, line.polygon(names.keypoints)) {
            (Some(outlines), Some(polygon)) => outlines.polygons(polygon, &[polygon.len()]),
            _ => Outline::None,
        };
        match corners(line.corners(names.keypoints)) {
            Ok(corners) => {
                things.push(Thing { record, corners, label, id: id.1, crowd: false, outline, keypoints: None })
            }
            Err(wrong) => broken(wrong),
        }
    }
    drop(index);
    if options.masks && !things.is_empty() && lines().all(|(_, line)| line.polygon(names.keypoints).is_none()) {
        return Err(Error::config("masks are requested, but no text file has an outline")
            .with_hint(format!("omit {MASKS}: the text files have only boxes")));
    }
    Ok((Marked::of("object", Units::Fractions, texts.len(), things, outlines, None, bad), classes))
}
