//! Ids of images, annotations and categories in COCO's JSON: mostly numbers, but any scalar is accepted.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// An id. Integers are equal however they are written: `7`, `7.0` and `"7"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Id {
    Number(i64),
    Text(Box<str>),
}

impl Id {
    pub(super) const fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    pub(super) fn into_text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.into(),
        }
    }

    /// The ids as numbers, if all are numbers.
    pub(super) fn numbers<'a>(ids: impl Iterator<Item = &'a Self>) -> Option<Vec<i64>> {
        ids.map(Self::number).collect()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "`{text}`"),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyId)
    }
}

struct AnyId;

impl Visitor<'_> for AnyId {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id, a number or a text")
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Id, E> {
        Ok(Id::Number(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Id, E> {
        Ok(i64::try_from(value).map_or_else(|_| Id::Text(value.to_string().into()), Id::Number))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Id, E> {
        // Integers are exact up to here.
        const EXACT: f64 = (1_u64 << 53) as f64;
        Ok(match value.fract() == 0.0 && value.abs() <= EXACT {
            true => Id::Number(value as i64),
            false => Id::Text(value.to_string().into()),
        })
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Id, E> {
        Ok(Id::Text(value.to_string().into()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        // `007` is not 7: file names have leading zeros.
        let number = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
        Ok(number.map_or_else(|| Id::Text(text.into()), Id::Number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_are_ids_and_whole_numbers_are_equal() {
        let id = |text: &str| serde_json::from_str::<Id>(text).unwrap();
        for seven in ["7", "7.0", "\"7\"", "70e-1"] {
            assert_eq!(id(seven), Id::Number(7), "{seven}");
        }
        assert_eq!(id("-3").number(), Some(-3));
        for (text, other) in [
            ("\"007\"", "007"),
            ("\"x\"", "x"),
            ("\"\"", ""),
            ("1.5", "1.5"),
            ("true", "true"),
            ("18446744073709551615", "18446744073709551615"),
        ] {
            assert_eq!(id(text), Id::Text(other.into()), "{text}");
        }
        for bad in ["null", "[]", "{}"] {
            assert!(serde_json::from_str::<Id>(bad).is_err(), "{bad}");
        }
        assert_eq!(Id::numbers([id("1"), id("2")].iter()), Some(vec![1, 2]));
        assert_eq!(Id::numbers([id("1"), id("\"b\"")].iter()), None);
    }
}
