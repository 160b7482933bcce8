//! Numbers of COCO's JSON, as various writers write them. A text or `null` instead of a number is not an error of the
//! whole file; it is reported when its image is read.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, SeqAccess, Visitor},
};
use serde_json::Value;

/// A number; NaN if the value is not a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number(pub(super) f64);

impl Default for Number {
    fn default() -> Self {
        Self(f64::NAN)
    }
}

impl Number {
    /// The value, if it is an integer that fits into a u32.
    pub(super) fn whole(self) -> Option<u32> {
        (self.0.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&self.0)).then_some(self.0 as u32)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyNumber)
    }
}

struct AnyNumber;

impl Visitor<'_> for AnyNumber {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Number, E> {
        Ok(Number::default())
    }

    fn visit_unit<E: Error>(self) -> Result<Number, E> {
        Ok(Number::default())
    }
}

/// The numbers of a list; what is not a number in it is NaN. Empty if the value is not a list.
#[derive(Debug, Default)]
pub(super) struct Numbers(pub(super) Vec<f32>);

impl<'de> Deserialize<'de> for Numbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = |value: &Value| value.as_f64().map_or(f32::NAN, |number| number as f32);
        Ok(match Value::deserialize(deserializer)? {
            Value::Array(values) => Self(values.iter().map(number).collect()),
            _ => Self::default(),
        })
    }
}

/// Four numbers, or their count if there are not four; none if the field is missing or `null`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quad {
    numbers: [f64; 4],
    count: usize,
}

impl Quad {
    pub(super) const fn is_left_out(self) -> bool {
        self.count == 0
    }

    /// The four numbers, otherwise their count.
    pub(super) const fn get(self) -> Result<[f64; 4], usize> {
        if self.count == 4 { Ok(self.numbers) } else { Err(self.count) }
    }
}

impl<'de> Deserialize<'de> for Quad {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyQuad)
    }
}

struct AnyQuad;

impl<'de> Visitor<'de> for AnyQuad {
    type Value = Quad;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of four numbers")
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Quad, E> {
        // Reported with its annotation.
        Ok(Quad { numbers: [f64::NAN; 4], count: 1 })
    }

    fn visit_unit<E: Error>(self) -> Result<Quad, E> {
        Ok(Quad::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Quad, A::Error> {
        let mut found = Quad { numbers: [0.0; 4], count: 0 };
        while let Some(Number(number)) = seq.next_element()? {
            if let Some(place) = found.numbers.get_mut(found.count) {
                *place = number;
            }
            found.count += 1;
        }
        Ok(found)
    }
}

/// `0`, `1`, `false`, `true`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flag(pub(super) bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyFlag)
    }
}

struct AnyFlag;

impl Visitor<'_> for AnyFlag {
    type Value = Flag;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0 or 1")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Flag, E> {
        Ok(Flag(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Flag, E> {
        Ok(Flag(value != 0))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Flag, E> {
        Ok(Flag(value != 0))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Flag, E> {
        Ok(Flag(value != 0.0))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Flag, E> {
        Ok(Flag(!matches!(text, "" | "0" | "false" | "False")))
    }

    fn visit_unit<E: Error>(self) -> Result<Flag, E> {
        Ok(Flag(false))
    }
}

/// Whether a field exists and is not `null`, whatever its value is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IsThere(pub(super) bool);

impl<'de> Deserialize<'de> for IsThere {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Option::<IgnoredAny>::deserialize(deserializer)?.is_some()))
    }
}
