//! Outlines in COCO's JSON: a list of polygons, each a list of x and y in turn; or runs, as numbers or as a text.

use std::fmt;

use infeed_core::error::Result;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

use super::number::Number;
use crate::{
    marked::{Outline, Outlines},
    mask::Rle,
};

/// What is wrong with an annotation of a box alone.
pub(super) const NO_OUTLINE: &str = "it has no outline";

/// What is kept of an outline.
pub(super) trait Segmentation: DeserializeOwned + Default {
    /// Puts it with the others, or says what is wrong with it.
    fn keep(self, among: &mut Outlines) -> Result<Kept, String>;
}

/// Where an outline is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub(super) place: Outline,
    /// Of runs: height and width of the picture.
    pub(super) size: Option<[u32; 2]>,
}

impl Segmentation for IgnoredAny {
    fn keep(self, _: &mut Outlines) -> Result<Kept, String> {
        Ok(Kept::default())
    }
}

/// An outline as it is written.
#[derive(Debug, Default)]
pub(super) struct Shape {
    numbers: Vec<f64>,
    ends: Vec<usize>,
    runs: Option<Runs>,
    /// A polygon that is no list.
    flat: bool,
}

#[derive(Debug, Deserialize)]
struct Runs {
    size: Vec<Number>,
    counts: Counts,
}

#[derive(Debug)]
enum Counts {
    Numbers(Vec<Number>),
    Text(String),
}

impl Segmentation for Shape {
    fn keep(self, among: &mut Outlines) -> Result<Kept, String> {
        if let Some(Runs { size, counts }) = self.runs {
            let [Some(height), Some(width)] = size.iter().map(|n| n.whole()).collect::<Vec<_>>()[..] else {
                return Err("its runs have no size of two whole numbers".into());
            };
            let rle = match counts {
                Counts::Text(text) => Rle::parse_compressed([height, width], &text),
                Counts::Numbers(numbers) => {
                    let counts: Option<Vec<u32>> = numbers.into_iter().map(Number::whole).collect();
                    Rle::new([height, width], counts.ok_or("its runs are not whole numbers")?)
                }
            };
            let place = among.runs(&rle.map_err(|e| e.to_string())?);
            return Ok(Kept { place, size: Some([height, width]) });
        }
        if self.flat {
            return Err("its outline is no list of polygons".into());
        }
        if self.ends.is_empty() {
            return Err(NO_OUTLINE.into());
        }
        let mut start = 0;
        for end in &self.ends {
            let count = end - start;
            if count < 6 || count % 2 == 1 {
                return Err(format!("a polygon of {count} numbers, which takes two for each of three corners or more"));
            }
            start = *end;
        }
        if !self.numbers.iter().all(|number| number.is_finite()) {
            return Err("a corner of its outline is not of numbers".into());
        }
        Ok(Kept { place: among.polygons(&self.numbers, &self.ends), size: None })
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyCounts)
    }
}

struct AnyCounts;

impl<'de> Visitor<'de> for AnyCounts {
    type Value = Counts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("runs, as a list of numbers or a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Counts, E> {
        Ok(Counts::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Counts, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = seq.next_element()? {
            numbers.push(number);
        }
        Ok(Counts::Numbers(numbers))
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyShape)
    }
}

struct AnyShape;

impl<'de> Visitor<'de> for AnyShape {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("polygons or runs")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Shape, E> {
        Ok(Shape::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shape, A::Error> {
        let runs = Runs::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Shape { runs: Some(runs), ..Shape::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut shape = Shape::default();
        while seq.next_element_seed(Polygon(&mut shape))?.is_some() {}
        Ok(shape)
    }
}

/// One polygon, which goes to the end of the numbers.
struct Polygon<'a>(&'a mut Shape);

impl<'de> DeserializeSeed<'de> for Polygon<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Polygon<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(Number(number)) = seq.next_element()? {
            self.0.numbers.push(number);
        }
        self.0.ends.push(self.0.numbers.len());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.0.flat = true;
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.visit_f64(0.0)
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        self.visit_f64(0.0)
    }
}
