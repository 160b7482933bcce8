//! Outlines in COCO's JSON: a list of polygons, each a list of x and y alternating; or runs, as numbers or as a text.

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

/// The form in which outlines are kept.
pub(super) trait Segmentation: DeserializeOwned + Default {
    /// Adds it to the others, or returns what is wrong with it.
    fn keep(self, among: &mut Outlines) -> Result<Kept, String>;
}

/// Where an outline is kept.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Kept {
    pub(super) place: Outline,
    /// For runs: height and width of the picture.
    pub(super) size: Option<[u32; 2]>,
    /// Left, top, right and bottom of the outline.
    pub(super) bounds: Option<[f64; 4]>,
    /// Number of polygons with fewer than three corners, which were left out.
    pub(super) short: usize,
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
    /// Whether a polygon is not a list of numbers or of pairs.
    flat: bool,
}

#[derive(Debug, Deserialize)]
struct Runs {
    #[serde(default)]
    size: Vec<Number>,
    #[serde(default)]
    counts: Option<Counts>,
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
                return Err("its runs have no size of two integers".into());
            };
            let rle = match counts.ok_or("its outline is an object without counts")? {
                Counts::Text(text) => Rle::parse_compressed([height, width], &text),
                Counts::Numbers(numbers) => {
                    let counts: Option<Vec<u32>> = numbers.into_iter().map(Number::whole).collect();
                    Rle::new([height, width], counts.ok_or("its runs are not integers")?)
                }
            };
            let rle = rle.map_err(|e| e.to_string())?;
            let bounds = rle.bounds().map(|bounds| bounds.map(f64::from));
            return Ok(Kept { place: among.runs(&rle), size: Some([height, width]), bounds, short: 0 });
        }
        if self.flat {
            return Err("its outline is not a list of polygons".into());
        }
        if self.ends.is_empty() {
            return Ok(Kept::default());
        }
        if !self.numbers.iter().all(|number| number.is_finite()) {
            return Err("a corner of its outline is not a pair of numbers".into());
        }
        let (mut numbers, mut ends) = (Vec::with_capacity(self.numbers.len()), Vec::with_capacity(self.ends.len()));
        let mut start = 0;
        for end in &self.ends {
            let polygon = &self.numbers[start..*end];
            if polygon.len() % 2 == 1 {
                return Err(format!("a polygon of {} numbers, not two for each corner", polygon.len()));
            }
            // Points and lines contain nothing. Tools leave them behind when they cut other polygons.
            if polygon.len() >= 6 {
                numbers.extend_from_slice(polygon);
                ends.push(numbers.len());
            }
            start = *end;
        }
        let bounds = (!numbers.is_empty()).then(|| bounds(&numbers));
        let short = self.ends.len() - ends.len();
        Ok(Kept { place: among.polygons(&numbers, &ends), size: None, bounds, short })
    }
}

/// Left, top, right and bottom of corners, x and y alternating.
fn bounds(numbers: &[f64]) -> [f64; 4] {
    let nowhere = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
    numbers.chunks_exact(2).fold(nowhere, |[left, top, right, bottom], corner| {
        [left.min(corner[0]), top.min(corner[1]), right.max(corner[0]), bottom.max(corner[1])]
    })
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

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Shape, E> {
        Ok(Shape { flat: !text.is_empty(), ..Shape::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shape, A::Error> {
        let runs = Runs::deserialize(MapAccessDeserializer::new(map))?;
        // Some write `{}` for no outline.
        let is_empty = runs.size.is_empty() && runs.counts.is_none();
        Ok(Shape { runs: (!is_empty).then_some(runs), ..Shape::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut shape = Shape::default();
        while seq.next_element_seed(Part { shape: &mut shape, depth: 0 })?.is_some() {}
        Ok(shape)
    }
}

/// A polygon, or in one a number, or x and y in a list of their own: appended to the numbers.
struct Part<'a> {
    shape: &'a mut Shape,
    /// 0 for a polygon.
    depth: u8,
}

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a polygon, or a number in one")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { shape, depth } = self;
        shape.flat |= depth > 1;
        while seq.next_element_seed(Part { shape, depth: depth.saturating_add(1) })?.is_some() {}
        if depth == 0 {
            shape.ends.push(shape.numbers.len());
        }
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        match self.depth {
            0 => self.shape.flat = true,
            _ => self.shape.numbers.push(value),
        }
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.visit_f64(value as f64)
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        self.visit_f64(f64::NAN)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        self.visit_f64(f64::NAN)
    }
}
