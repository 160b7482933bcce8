//! Reads COCO's JSON as a stream: no tree is built of half a gigabyte, and outlines are not kept unless needed.

use std::{borrow::Cow, collections::HashMap, fmt, marker::PhantomData};

use infeed_core::error::{Error, Result, setting::FORMAT};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::{
    id::Id,
    number::{Flag, IsThere, Number, Numbers, Quad},
    segmentation::{Segmentation, Shape},
};
use crate::marked::{Outline, Outlines};

/// Everything that is read of the file.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) images: Vec<Image>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) categories: Vec<Category>,
    /// Each caption with the id of its image.
    pub(super) captions: Vec<(Id, String)>,
    /// Only with masks.
    pub(super) outlines: Option<Outlines>,
    /// Heights and widths of runs, by the index of the annotation.
    pub(super) run_sizes: HashMap<usize, [u32; 2]>,
    /// Errors in outlines, by the index of the annotation.
    pub(super) wrong: HashMap<usize, String>,
    /// Number of annotations without an outline, if outlines are read.
    pub(super) without: usize,
    /// Number of polygons with fewer than three corners, which are left out.
    pub(super) short: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct Image {
    pub(super) id: Id,
    #[serde(default, deserialize_with = "text")]
    pub(super) file_name: String,
    /// LVIS has this instead: the last two parts are a folder and a name.
    #[serde(default)]
    pub(super) coco_url: Option<String>,
    #[serde(default)]
    pub(super) height: Number,
    #[serde(default)]
    pub(super) width: Number,
}

#[derive(Debug, Deserialize)]
pub(super) struct Category {
    pub(super) id: Id,
    /// Empty if it has none.
    #[serde(default, deserialize_with = "text")]
    pub(super) name: String,
    /// Names of key points; anything but a list is none.
    #[serde(default)]
    pub(super) keypoints: serde_json::Value,
}

impl Category {
    /// Its name, otherwise its id.
    pub(super) fn called(&self) -> String {
        if self.name.is_empty() { self.id.clone().into_text() } else { self.name.clone() }
    }
}

#[derive(Debug)]
pub(super) struct Annotation {
    /// Its index in the file if it has no id.
    pub(super) id: Id,
    pub(super) image: Id,
    pub(super) category: Id,
    /// Left, top, width, height; none if it is missing.
    pub(super) bbox: Quad,
    /// Left, top, right and bottom of the outline, if the box is missing.
    pub(super) bounds: Option<[f64; 4]>,
    pub(super) crowd: bool,
    pub(super) outline: Outline,
    /// x, y and visibility of each key point; empty if there are none.
    pub(super) keypoints: Vec<f32>,
}

/// A text, or a number as one.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::<Id>::deserialize(deserializer)?.map(Id::into_text).unwrap_or_default())
}

/// Reads the file, with or without outlines.
pub(super) fn parse(bytes: &[u8], masks: bool) -> Result<Json> {
    let bytes = utf8(bytes);
    let once = |shapes: bool| {
        let read = |bytes: &[u8]| if shapes { read::<Shape>(bytes) } else { read::<IgnoredAny>(bytes) };
        read(&bytes).or_else(|error| match plain(&bytes) {
            Cow::Borrowed(_) => Err(error),
            Cow::Owned(plain) => read(&plain),
        })
    };
    let not_coco = |e| {
        Error::corrupt("this is not COCO's JSON of instances or captions").with_source(e).with_hint(format!(
            "it has images, annotations and categories, each annotation an id, image_id, category_id and bbox, or an \
             id, image_id and caption; to read only the images, set {}",
            FORMAT.to("folder")
        ))
    };
    let (mut found, other) = once(masks).map_err(not_coco)?;
    if let Some(other) = other {
        return Err(other.refused());
    }
    if !masks && found.annotations.iter().any(|annotation| annotation.bbox.is_left_out()) {
        // If boxes are missing, outlines give them.
        found = once(true).map_err(not_coco)?.0;
        found.wrong.retain(|at, _| found.annotations[*at].bbox.is_left_out());
        found.run_sizes.clear();
        found.annotations.iter_mut().for_each(|annotation| annotation.outline = Outline::None);
    }
    if !masks {
        (found.outlines, found.without, found.short) = (None, 0, 0);
    }
    Ok(found)
}

/// Removes a byte order mark, and converts UTF-16 to UTF-8.
fn utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    let utf16 = |of: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| of([pair[0], pair[1]]));
        let text: String =
            char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        Cow::Owned(text.into_bytes())
    };
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(rest),
        [0xff, 0xfe, ..] => utf16(u16::from_le_bytes),
        [0xfe, 0xff, ..] => utf16(u16::from_be_bytes),
        _ => Cow::Borrowed(bytes),
    }
}

/// COCO's JSON files of other tasks.
#[derive(Clone, Copy, Debug)]
enum Other {
    Keypoints,
    Panoptic,
    /// An annotation without a class, by its index.
    NoCategory(usize),
}

impl Other {
    fn refused(self) -> Error {
        let (what, hint) = match self {
            Self::Keypoints => (
                "this is a JSON of keypoints without classes".to_owned(),
                "give each annotation a category_id and a bbox, and that category the names of its keypoints"
                    .to_owned(),
            ),
            Self::Panoptic => (
                "this is COCO's JSON of panoptic segmentation, whose outlines are colours of PNGs".to_owned(),
                "use the one of instances; panopticapi's panoptic2detection_coco_format.py converts this file to one"
                    .to_owned(),
            ),
            Self::NoCategory(at) => (
                format!("annotation {at}, counted from 0, has no category_id"),
                "give each annotation the id of its category, the same for all if there is only one".to_owned(),
            ),
        };
        Error::corrupt(what).with_hint(hint)
    }
}

/// Python writes `NaN` and `Infinity`, which are not JSON. Each becomes an empty text, which stands for a value that is
/// not a number.
fn plain(bytes: &[u8]) -> Cow<'_, [u8]> {
    let mut found = Cow::Borrowed(bytes);
    let (mut at, mut quoted) = (0, false);
    while at < bytes.len() {
        let word = match bytes[at] {
            b'\\' if quoted => {
                at += 2;
                continue;
            }
            b'"' => {
                quoted = !quoted;
                None
            }
            b'N' | b'I' | b'-' if !quoted => ["NaN", "-NaN", "Infinity", "-Infinity"]
                .into_iter()
                .find(|word| bytes[at..].starts_with(word.as_bytes())),
            _ => None,
        };
        if let Some(word) = word {
            let place = &mut found.to_mut()[at..at + word.len()];
            place.fill(b' ');
            place[..2].fill(b'"');
        }
        at += word.map_or(1, str::len);
    }
    found
}

fn read<S: Segmentation>(bytes: &[u8]) -> serde_json::Result<(Json, Option<Other>)> {
    let RawJson::<S> { images, annotations, categories } = serde_json::from_slice(bytes)?;
    let Annotations { all, captions, outlines, run_sizes, wrong, without, short, other, .. } = annotations;
    let outlines = Some(outlines);
    Ok((Json { images, annotations: all, categories, captions, outlines, run_sizes, wrong, without, short }, other))
}

#[derive(Deserialize)]
#[serde(bound = "S: Segmentation")]
struct RawJson<S> {
    images: Vec<Image>,
    #[serde(default)]
    annotations: Annotations<S>,
    #[serde(default)]
    categories: Vec<Category>,
}

#[derive(Deserialize)]
#[serde(bound = "S: Segmentation")]
struct RawAnnotation<S> {
    #[serde(default)]
    id: Option<Id>,
    image_id: Id,
    #[serde(default)]
    category_id: Option<Id>,
    #[serde(default)]
    bbox: Quad,
    #[serde(default)]
    iscrowd: Flag,
    #[serde(default)]
    segmentation: S,
    #[serde(default)]
    keypoints: Numbers,
    /// Anything but a text is none.
    #[serde(default)]
    caption: serde_json::Value,
    // A field of another task.
    #[serde(default)]
    segments_info: IsThere,
}

/// The list; outlines are moved into flat lists while it is read.
struct Annotations<S> {
    all: Vec<Annotation>,
    captions: Vec<(Id, String)>,
    outlines: Outlines,
    run_sizes: HashMap<usize, [u32; 2]>,
    wrong: HashMap<usize, String>,
    without: usize,
    short: usize,
    /// Set by the first annotation that is of another task.
    other: Option<Other>,
    of: PhantomData<S>,
}

impl<S> Default for Annotations<S> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            captions: Vec::new(),
            outlines: Outlines::default(),
            run_sizes: HashMap::new(),
            wrong: HashMap::new(),
            without: 0,
            short: 0,
            other: None,
            of: PhantomData,
        }
    }
}

impl<'de, S: Segmentation> Deserialize<'de> for Annotations<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reading(Self::default()))
    }
}

struct Reading<S>(Annotations<S>);

impl<'de, S: Segmentation> Visitor<'de> for Reading<S> {
    type Value = Annotations<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of annotations")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = self.0;
        while let Some(raw) = seq.next_element::<RawAnnotation<S>>()? {
            let RawAnnotation { id, image_id, category_id, bbox, iscrowd, segmentation, keypoints, .. } = raw;
            let at = found.all.len();
            if let serde_json::Value::String(caption) = raw.caption {
                found.captions.push((image_id.clone(), caption));
                if category_id.is_none() {
                    continue;
                }
            }
            let Some(category) = category_id.filter(|_| !raw.segments_info.0) else {
                found.other.get_or_insert(match () {
                    () if raw.segments_info.0 => Other::Panoptic,
                    () if !keypoints.0.is_empty() => Other::Keypoints,
                    () => Other::NoCategory(at),
                });
                continue;
            };
            let kept = segmentation.keep(&mut found.outlines);
            found.without += usize::from(kept.as_ref().is_ok_and(|kept| matches!(kept.place, Outline::None)));
            let outline = kept.unwrap_or_else(|wrong| {
                found.wrong.insert(at, wrong);
                Default::default()
            });
            if let Some(size) = outline.size {
                found.run_sizes.insert(at, size);
            }
            found.short += outline.short;
            let id = id.unwrap_or(Id::Number(at as i64));
            let bounds = outline.bounds.filter(|_| bbox.is_left_out());
            let (image, crowd, outline) = (image_id, iscrowd.0, outline.place);
            let keypoints = keypoints.0;
            found.all.push(Annotation { id, image, category, bbox, bounds, crowd, outline, keypoints });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pythons_words_for_no_numbers_are_read_and_texts_are_left() {
        let text = r#"{"a": [NaN, -Infinity, Infinity], "NaN \" NaN": "-Infinity", "b": -3}"#;
        let want = r#"{"a": ["" , ""       , ""      ], "NaN \" NaN": "-Infinity", "b": -3}"#;
        assert_eq!(plain(text.as_bytes()), want.as_bytes());
        assert!(matches!(plain(b"{\"Infinity\": -1, \"\\\\\": 2}"), Cow::Borrowed(_)));
        assert!(matches!(plain(b"\"\\"), Cow::Borrowed(_)));
    }
}
