//! Pascal VOC: images in `JPEGImages`, an XML file in `Annotations` for each, and lists of splits in `ImageSets/Main`.

mod layout;
#[cfg(test)]
mod tests;
mod xml;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Beside, Object, Source};

use self::xml::Xml;
use super::{
    detection::DetectionDataset,
    files::Files,
    format::{Claim, Evidence, Format, OpenOption, OpenOptions},
    labels::index_of,
    layout::{is_mark, keep_split, key},
    marked::{Marked, Outline, Thing, Units, corners},
    names::{ends_with, is_image},
    objects::{inside, nothing_to_read},
    record::Dataset,
};

/// Small reads: enough of them to hide a store's latency.
const XMLS_AT_A_TIME: usize = 64;

/// The classes of VOC2007 to VOC2012, in their usual order.
const CLASSES: [&str; 20] = [
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
];

/// Images with XML files in Pascal VOC's format.
#[derive(Clone, Copy, Debug)]
pub struct Voc;

impl Format for Voc {
    fn name(&self) -> &'static str {
        "voc"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        self.claim(objects).is_some()
    }

    fn claim(&self, objects: &[Object]) -> Option<Claim> {
        if !objects.iter().any(|object| ends_with(&object.name, ".xml")) {
            return None;
        }
        let why = match layout::roots(objects).first() {
            Some(_) => "JPEGImages, and Annotations with XMLs of their names".to_owned(),
            None => {
                let pairs = layout::loose(objects);
                let (image, xml) = pairs.first()?;
                let (image, xml) = (&objects[*image].name, &objects[*xml].name);
                format!("{} images with an XML, the first is `{image}` with `{xml}`", pairs.len())
            }
        };
        Some(Claim::new(Evidence::Annotations, why))
    }

    fn reads(&self, name: &str) -> bool {
        is_image(name) && !is_mark(name) || ends_with(name, ".xml") || name.contains("ImageSets/")
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Classes]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let roots: Vec<String> = layout::roots(&objects).into_iter().map(str::to_owned).collect();
            let (source, objects) = match &roots[..] {
                [] if !layout::loose(&objects).is_empty() => (source.clone(), objects),
                [] => {
                    return Err(nothing_to_read(source, &objects, "images of Pascal VOC")
                        .with_hint("they are JPEGImages/NAME.jpg, each with Annotations/NAME.xml; or images/ and annotations/; or in one folder"));
                }
                [root] if root.is_empty() => (source.clone(), objects),
                [root] => (source.child(root)?, inside(objects, root)),
                several => {
                    let what = format!("several datasets of Pascal VOC: {}", several.join(", "));
                    return Err(Error::config(what)
                        .at_object(source.url())
                        .with_hint("open one of these folders, or both with `::` between their urls"));
                }
            };
            let pairs = match &options.split {
                _ if roots.is_empty() => {
                    let mut pairs = layout::loose(&objects);
                    let key = |(image, _): &layout::Pair| key(&objects[*image].name);
                    keep_split(&mut pairs, key, options.split.as_deref()).map_err(|e| e.at_object(source.url()))?;
                    pairs
                }
                Some(split) => listed(&source, &objects, split).await?,
                None => layout::all(&objects),
            };
            let images = objects.iter().filter(|o| is_image(&o.name) && !is_mark(&o.name)).count();
            let without = images.saturating_sub(pairs.len());
            if without > 0 && options.split.is_none() {
                tracing::warn!(without, url = source.url(), "images without an XML are left out");
            }
            let (source, objects) = (&source, &objects);
            let reads: Vec<_> = pairs.iter().map(|(_, xml)| read(source, &objects[*xml]).boxed()).collect();
            let xmls: Vec<Xml> = stream::iter(reads).buffered(XMLS_AT_A_TIME).try_collect().await?;
            let named = |record: usize| source.display_name(&objects[pairs[record].1].name);
            let own = options.split.is_some() && options.classes.is_none();
            let others = if own { classes_of_others(source, objects, &roots, &pairs).await? } else { BTreeSet::new() };
            let (marked, classes) = marked(&xmls, options.classes.clone(), &others, !roots.is_empty(), named)?;
            let images: Vec<&Object> = pairs.iter().map(|(image, _)| &objects[*image]).collect();
            images.iter().try_for_each(|image| source.check_name(&image.name))?;
            let ids = (0..images.len() as i64).collect();
            let sizes = xmls.iter().map(|xml| xml.size).collect();
            let files = Files::of(source.clone(), &images);
            Ok(Arc::new(DetectionDataset::new("voc", files, ids, sizes, marked, classes)?) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// The images of a split, which its list in `ImageSets/Main` names.
async fn listed(source: &Source, objects: &[Object], split: &str) -> Result<Vec<layout::Pair>> {
    let name = format!("ImageSets/Main/{split}.txt");
    let Ok(at) = objects.binary_search_by(|object| object.name.cmp(&name)) else {
        let known = layout::lists(objects).join(", ");
        return Err(Error::new(ErrorKind::NotFound, format!("there is no list of the split `{split}`"))
            .at_object(source.display_name(&name))
            .with_hint(format!("the lists are {}", if known.is_empty() { "none" } else { &known })));
    };
    let object = source.display_name(&name);
    let list = Beside::Table.read(source, &objects[at]).await?;
    layout::listed(source, objects, &String::from_utf8_lossy(&list)).map_err(|e| e.at_object(object))
}

/// The classes in the XMLs of other splits: with them, a class has the same number in each split.
async fn classes_of_others(
    source: &Source,
    objects: &[Object],
    roots: &[String],
    of_split: &[layout::Pair],
) -> Result<BTreeSet<String>> {
    let known: BTreeSet<usize> = of_split.iter().map(|(_, xml)| *xml).collect();
    let all = if roots.is_empty() { layout::loose(objects) } else { layout::all(objects) };
    let others = all.into_iter().filter(|(_, xml)| !known.contains(xml));
    let reads: Vec<_> = others.map(|(_, xml)| Beside::Note.read(source, &objects[xml]).boxed()).collect();
    let mut found = BTreeSet::new();
    let mut reads = stream::iter(reads).buffer_unordered(XMLS_AT_A_TIME);
    while let Some(bytes) = reads.try_next().await? {
        // Damage is reported when that split is opened.
        found.extend(xml::parse(&bytes).into_iter().flat_map(|xml| xml.objects).map(|object| object.name));
    }
    Ok(found)
}

async fn read(source: &Source, object: &Object) -> Result<Xml> {
    let bytes = Beside::Note.read(source, object).await?;
    xml::parse(&bytes).map_err(|e| e.at_object(source.display_name(&object.name)))
}

/// Converts pixels that are counted from 1, with the last one inside: 1 to 3 are three pixels, which becomes 0 to 3.
fn from_0([left, top, right, bottom]: [f64; 4]) -> [f64; 4] {
    [left - 1.0, top - 1.0, right, bottom]
}

/// All objects, and the names of classes: the given ones; otherwise, in VOC's folders, VOC's own if there are no
/// others; otherwise the sorted names. `others` are the classes of other splits.
fn marked(
    xmls: &[Xml],
    given: Option<Arc<[String]>>,
    others: &BTreeSet<String>,
    in_folders_of_voc: bool,
    named: impl Fn(usize) -> String,
) -> Result<(Marked, Arc<[String]>)> {
    let classes: Arc<[String]> = given.unwrap_or_else(|| {
        let own = xmls.iter().flat_map(|xml| &xml.objects).map(|object| &*object.name);
        let found: BTreeSet<&str> = own.chain(others.iter().map(String::as_str)).collect();
        match in_folders_of_voc && found.iter().all(|name| CLASSES.contains(name)) {
            true => CLASSES.map(str::to_owned).into(),
            false => found.into_iter().map(str::to_owned).collect(),
        }
    });
    let index = index_of(&classes)?;
    let (mut things, mut bad) = (Vec::new(), HashMap::new());
    for (record, xml) in xmls.iter().enumerate() {
        for (id, object) in (0..).zip(&xml.objects) {
            let Some(label) = index.get(object.name.as_str()).and_then(|label| u32::try_from(*label).ok()) else {
                let what = format!("class `{}` is not among the {} given classes", object.name, classes.len());
                return Err(Error::config(what)
                    .at_object(named(record))
                    .with_hint("open it with the classes that it has, or remove the file"));
            };
            let kept = match (object.corners, object.polygon) {
                ([None, None, None, None], None) => Err("it has no bndbox".to_owned()),
                ([None, None, None, None], Some(written)) => corners(from_0(written)),
                (written, _) => corners(from_0(written.map(|corner| corner.unwrap_or(f64::NAN)))),
            };
            match kept {
                Ok(corners) => {
                    let (crowd, outline) = (object.difficult, Outline::None);
                    things.push(Thing { record, corners, label, id, crowd, outline, keypoints: None });
                }
                Err(wrong) => drop(bad.entry(record).or_insert(format!("object {id}: {wrong}"))),
            }
        }
    }
    drop(index);
    Ok((Marked::of("object", Units::Pixels, xmls.len(), things, None, None, bad), classes))
}
