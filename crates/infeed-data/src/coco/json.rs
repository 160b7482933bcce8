//! COCO's JSON, read as it comes: of half a gigabyte no tree is built, and of outlines that nobody wants nothing is kept.

use std::{borrow::Cow, collections::HashMap, fmt, marker::PhantomData};

use infeed_core::error::{Error, Result};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

use super::{
    number::{Flag, Number, Quad},
    segmentation::{Segmentation, Shape},
};
use crate::marked::{Outline, Outlines};

/// All that is read of the file.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) images: Vec<Image>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) categories: Vec<Category>,
    /// With masks.
    pub(super) outlines: Option<Outlines>,
    /// Heights and widths of runs, by the place of the annotation.
    pub(super) run_sizes: HashMap<usize, [u32; 2]>,
    /// What is wrong with outlines, by the place of the annotation.
    pub(super) wrong: HashMap<usize, String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Image {
    pub(super) id: i64,
    pub(super) file_name: String,
    #[serde(default)]
    pub(super) height: Number,
    #[serde(default)]
    pub(super) width: Number,
}

#[derive(Debug, Deserialize)]
pub(super) struct Category {
    pub(super) id: i64,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct Annotation {
    pub(super) id: i64,
    pub(super) image: i64,
    pub(super) category: i64,
    /// Left, top, width, height.
    pub(super) bbox: Quad,
    pub(super) crowd: bool,
    pub(super) outline: Outline,
}

/// Reads the file, with the outlines or without.
pub(super) fn parse(bytes: &[u8], masks: bool) -> Result<Json> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let read = |bytes: &[u8]| if masks { read::<Shape>(bytes, masks) } else { read::<IgnoredAny>(bytes, masks) };
    let found = read(bytes).or_else(|error| match plain(bytes) {
        Cow::Borrowed(_) => Err(error),
        Cow::Owned(plain) => read(&plain),
    });
    found.map_err(|e| {
        Error::corrupt("this is not COCO's JSON of instances")
            .with_source(e)
            .hint("it has images, annotations and categories, each annotation an id, image_id, category_id and bbox")
    })
}

/// Python writes `NaN` and `Infinity`, which are no JSON: each becomes an empty text, which stands for no number.
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

fn read<S: Segmentation>(bytes: &[u8], masks: bool) -> serde_json::Result<Json> {
    let RawJson::<S> { images, annotations, categories } = serde_json::from_slice(bytes)?;
    let Annotations { all, outlines, run_sizes, wrong, .. } = annotations;
    Ok(Json { images, annotations: all, categories, outlines: masks.then_some(outlines), run_sizes, wrong })
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
    id: i64,
    image_id: i64,
    category_id: i64,
    bbox: Quad,
    #[serde(default)]
    iscrowd: Flag,
    #[serde(default)]
    segmentation: S,
}

/// The list, with outlines put into flat ones while it is read.
struct Annotations<S> {
    all: Vec<Annotation>,
    outlines: Outlines,
    run_sizes: HashMap<usize, [u32; 2]>,
    wrong: HashMap<usize, String>,
    of: PhantomData<S>,
}

impl<S> Default for Annotations<S> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            outlines: Outlines::default(),
            run_sizes: HashMap::new(),
            wrong: HashMap::new(),
            of: PhantomData,
        }
    }
}

impl<'de, S: Segmentation> Deserialize<'de> for Annotations<S> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Reading(Self::default()))
    }
}

struct Reading<S>(Annotations<S>);

impl<'de, S: Segmentation> Visitor<'de> for Reading<S> {
    type Value = Annotations<S>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of annotations")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut found = self.0;
        while let Some(raw) = seq.next_element::<RawAnnotation<S>>()? {
            let RawAnnotation { id, image_id, category_id, bbox, iscrowd, segmentation } = raw;
            let at = found.all.len();
            let outline = segmentation.keep(&mut found.outlines).unwrap_or_else(|wrong| {
                found.wrong.insert(at, wrong);
                Default::default()
            });
            if let Some(size) = outline.size {
                found.run_sizes.insert(at, size);
            }
            let (image, category, crowd, outline) = (image_id, category_id, iscrowd.0, outline.place);
            found.all.push(Annotation { id, image, category, bbox, crowd, outline });
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
