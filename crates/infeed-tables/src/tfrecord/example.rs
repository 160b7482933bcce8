//! `tf.train.Example`: a protocol buffer, a map from names to lists of bytes, floats or integers.

use std::ops::Range;

use infeed_core::error::Result;

use crate::packed::cut;

/// The values of a feature.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Feature {
    Bytes(Vec<Range<usize>>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

impl Feature {
    /// Number of values.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(texts) => texts.len(),
            Self::Floats(floats) => floats.len(),
            Self::Ints(ints) => ints.len(),
        }
    }
}

/// One field of a protocol buffer.
enum Wire<'a> {
    Number(u64),
    Fixed(u32),
    /// A length-delimited field, with its position.
    Text(&'a [u8], usize),
}

/// A walk over the fields of a message.
struct Message<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The position of `bytes` in the whole record.
    base: usize,
}

impl<'a> Message<'a> {
    const fn new(bytes: &'a [u8], base: usize) -> Self {
        Self { bytes, at: 0, base }
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = *self.bytes.get(self.at)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    /// Number and value of the next field; `Some(None)` at the end, `None` if the bytes are not a protocol buffer.
    #[expect(clippy::option_option, reason = "the end is not an error")]
    fn next(&mut self) -> Option<Option<(u64, Wire<'a>)>> {
        if self.at == self.bytes.len() {
            return Some(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(u64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let place = self.base + self.at;
                Wire::Text(self.take(length)?, place)
            }
            5 => Wire::Fixed(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some(Some((key >> 3, value)))
    }
}

/// The features of an example: names and values, in the order of the file.
pub(super) fn parse_example(bytes: &[u8]) -> Result<Vec<(&str, Feature)>> {
    features(bytes).ok_or_else(|| cut("the record is not a tf.train.Example"))
}

/// Whether it is a `tf.train.SequenceExample` with lists of features, which are not read.
pub(super) fn has_feature_lists(bytes: &[u8]) -> bool {
    let mut example = Message::new(bytes, 0);
    while let Some(Some((number, value))) = example.next() {
        if matches!((number, value), (2, Wire::Text(lists, _)) if !lists.is_empty()) {
            return true;
        }
    }
    false
}

fn features(bytes: &[u8]) -> Option<Vec<(&str, Feature)>> {
    let mut found = Vec::new();
    let mut example = Message::new(bytes, 0);
    while let Some((number, value)) = example.next()? {
        let (1, Wire::Text(inner, place)) = (number, value) else { continue };
        let mut map = Message::new(inner, place);
        while let Some((number, value)) = map.next()? {
            let (1, Wire::Text(inner, place)) = (number, value) else { continue };
            let mut entry = Message::new(inner, place);
            let mut name = "";
            let mut feature = None;
            while let Some((number, value)) = entry.next()? {
                match (number, value) {
                    (1, Wire::Text(text, _)) => name = str::from_utf8(text).ok()?,
                    (2, Wire::Text(inner, place)) => feature = self::feature(inner, place)?,
                    _ => {}
                }
            }
            found.extend(feature.map(|feature| (name, feature)));
        }
    }
    Some(found)
}

/// `Some(None)`: a feature without values.
#[expect(clippy::option_option, reason = "nothing is not an error")]
fn feature(bytes: &[u8], base: usize) -> Option<Option<Feature>> {
    let mut feature = None;
    let mut message = Message::new(bytes, base);
    while let Some((number, value)) = message.next()? {
        let Wire::Text(inner, place) = value else { continue };
        let mut list = Message::new(inner, place);
        let mut texts = Vec::new();
        let mut floats = Vec::new();
        let mut ints = Vec::new();
        while let Some((field, value)) = list.next()? {
            match (number, field, value) {
                (1, 1, Wire::Text(text, at)) => texts.push(at..at + text.len()),
                (2, 1, Wire::Fixed(bits)) => floats.push(f32::from_bits(bits)),
                (2, 1, Wire::Text(packed, _)) => {
                    let (values, []) = packed.as_chunks::<4>() else { return None };
                    floats.extend(values.iter().map(|value| f32::from_le_bytes(*value)));
                }
                (3, 1, Wire::Number(value)) => ints.push(value as i64),
                (3, 1, Wire::Text(packed, at)) => {
                    let mut packed = Message::new(packed, at);
                    while packed.at < packed.bytes.len() {
                        ints.push(packed.varint()? as i64);
                    }
                }
                _ => {}
            }
        }
        feature = match number {
            1 => Some(Feature::Bytes(texts)),
            2 => Some(Feature::Floats(floats)),
            3 => Some(Feature::Ints(ints)),
            _ => feature,
        };
    }
    Some(feature)
}
