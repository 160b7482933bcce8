//! One checksum for all rows that a run delivered.
//!
//! Each row is hashed with its place, and the hashes are added. The sum does not depend on which thread made a row or
//! when, so it is equal for any number of workers. The sums of ranks, or of the parts of a resumed run, add up.

use std::{fmt, str::FromStr};

use infeed::{Batch, DType};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use xxhash_rust::xxh3::Xxh3;

/// What the sum is taken over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ChecksumOf {
    /// Every byte of every row.
    #[default]
    Rows,
    /// The records and their places, without pixels. On a GPU with the adaptive split, pixels differ by a few levels
    /// between decoders, and the free decoder takes the image.
    Records,
}

/// A sum modulo 2^128 of row hashes; 32 hex digits in text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum(pub u128);

impl Checksum {
    /// Adds all rows of a batch without padding.
    pub(crate) fn add_batch(&mut self, hasher: &mut Xxh3, batch: &Batch, of: ChecksumOf) -> infeed::Result<()> {
        let place = |row: usize| RowPlace {
            epoch: batch.epoch(),
            position: batch.positions()[row],
            record: batch.records()[row],
        };
        for (name, tensor) in batch.fields() {
            let on_host;
            let len = tensor.row_bytes();
            let (bytes, len) = match of {
                // Only tensors of i64, such as labels, are hashed: they do not depend on the decoder.
                ChecksumOf::Records if tensor.dtype() != DType::I64 => (&[][..], 0),
                _ => {
                    on_host = tensor.to_host()?;
                    (on_host.bytes().unwrap_or_default(), len)
                }
            };
            for row in 0..batch.valid() {
                let bytes = &bytes[row * len..][..len];
                self.add(row_hash(hasher, place(row), name, tensor.dtype().name(), bytes));
            }
        }
        for (name, values) in batch.byte_fields() {
            for (row, value) in values.iter().enumerate().take(batch.valid()) {
                self.add(row_hash(hasher, place(row), name, "bytes", value));
            }
        }
        for name in batch.text_list_fields() {
            for (row, texts) in batch.text_lists(name).into_iter().flatten().enumerate().take(batch.valid()) {
                let parts =
                    texts.iter().flat_map(|text| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat());
                self.add(row_hash(hasher, place(row), name, "texts", &parts.collect::<Vec<u8>>()));
            }
        }
        for (name, list) in batch.list_fields() {
            let each = list.values().row_bytes();
            let offsets: &[i64] = list.offsets().as_slice().unwrap_or_default();
            let bytes = list.values().bytes().unwrap_or_default();
            for (row, range) in offsets.windows(2).enumerate().take(batch.valid()) {
                let items = match of {
                    // Rows of images depend on the decoder: only their number is hashed.
                    ChecksumOf::Records if list.values().shape().len() == 4 => &(range[1] - range[0]).to_le_bytes(),
                    _ => &bytes[range[0] as usize * each..range[1] as usize * each],
                };
                self.add(row_hash(hasher, place(row), name, list.values().dtype().name(), items));
            }
        }
        for (name, instances) in batch.instance_fields() {
            for (row, marked) in instances.rows().enumerate().take(batch.valid()) {
                let mut bytes = Vec::new();
                bytes.extend(marked.boxes.iter().flatten().flat_map(|number| number.to_le_bytes()));
                let whole = marked.labels.iter().chain(marked.ids).chain(&marked.size);
                bytes.extend(whole.flat_map(|number| number.to_le_bytes()));
                bytes.extend(marked.crowd);
                let points = marked.keypoints.unwrap_or_default();
                bytes.extend(points.as_flattened().iter().flat_map(|number| number.to_le_bytes()));
                for mask in marked.masks.unwrap_or_default() {
                    bytes.extend((mask.counts().len() as u64).to_le_bytes());
                    bytes.extend(mask.counts().iter().flat_map(|count| count.to_le_bytes()));
                }
                self.add(row_hash(hasher, place(row), name, "instances", &bytes));
            }
        }
        Ok(())
    }

    fn add(&mut self, hash: u128) {
        self.0 = self.0.wrapping_add(hash);
    }
}

#[derive(Clone, Copy)]
struct RowPlace {
    epoch: u64,
    position: u64,
    record: u64,
}

/// Numbers are little-endian and texts carry their length, so that no two rows share an encoding.
fn row_hash(hasher: &mut Xxh3, place: RowPlace, field: &str, dtype: &str, bytes: &[u8]) -> u128 {
    hasher.reset();
    for number in [place.epoch, place.position, place.record] {
        hasher.update(&number.to_le_bytes());
    }
    for text in [field, dtype] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    hasher.update(bytes);
    hasher.digest128()
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_known_by_its_place_its_field_and_its_bytes() {
        let mut hasher = Xxh3::new();
        let base = RowPlace { epoch: 1, position: 2, record: 3 };
        let mut hashes = vec![
            row_hash(&mut hasher, base, "image", "u8", b"xy"),
            row_hash(&mut hasher, RowPlace { epoch: 2, ..base }, "image", "u8", b"xy"),
            row_hash(&mut hasher, RowPlace { position: 3, ..base }, "image", "u8", b"xy"),
            row_hash(&mut hasher, RowPlace { record: 2, ..base }, "image", "u8", b"xy"),
            row_hash(&mut hasher, base, "label", "u8", b"xy"),
            row_hash(&mut hasher, base, "image", "f16", b"xy"),
            row_hash(&mut hasher, base, "image", "u8", b"xz"),
            // The field's name must not run into its type.
            row_hash(&mut hasher, base, "imageu", "8", b"xy"),
        ];
        assert_eq!(hashes[0], row_hash(&mut hasher, base, "image", "u8", b"xy"));
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), 8);
    }

    #[test]
    fn the_text_has_32_digits_and_reads_back() {
        let sum = Checksum(0xabc);
        assert_eq!(sum.to_string().len(), 32);
        assert_eq!(sum.to_string().parse::<Checksum>(), Ok(sum));
        assert!("xyz".parse::<Checksum>().is_err());
    }
}
