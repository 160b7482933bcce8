//! Parses the codecs of chunks from the metadata.

use infeed_core::error::Result;
use infeed_data::packed::Packing;
use serde_json::Value;

use super::{numbers::numbers, shard::Sharding};
use crate::chunked::{Filter, damaged, unsupported};

/// The steps that decode a chunk.
#[derive(Debug)]
pub(super) struct Chain {
    /// The axes in stored order, the slowest first.
    pub(super) order: Vec<usize>,
    /// Whether the most significant byte comes first.
    pub(super) big_endian: bool,
    /// The filters to undo, in this order.
    pub(super) filters: Vec<Filter>,
    pub(super) sharding: Option<Sharding>,
}

/// Whether a filter lost digits when the array was written, and there is nothing to undo.
pub(super) fn only_rounds(id: &str, config: &Value) -> bool {
    matches!(id, "quantize" | "bitround") && (config["astype"].is_null() || config["astype"] == config["dtype"])
}

/// A filter by its name in numcodecs.
pub(super) fn filter(id: &str, config: &Value) -> Result<Filter> {
    Ok(match id {
        "zstd" => Filter::Packed(Packing::Zstd),
        "gzip" => Filter::Packed(Packing::Gzip),
        "zlib" => Filter::Packed(Packing::Zlib),
        "bz2" => Filter::Packed(Packing::Bzip2),
        "lz4" => Filter::Lz4,
        "blosc" => Filter::Blosc,
        "fletcher32" => Filter::Fletcher32,
        "crc32c" if config["location"] != "start" => Filter::Crc32c,
        // The default of numcodecs is 4.
        "shuffle" => match &config["elementsize"] {
            Value::Null => Filter::Shuffle(4),
            size => {
                let size = size.as_u64().and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
                Filter::Shuffle(size.ok_or_else(|| damaged("a filter `shuffle` without an element's size"))?)
            }
        },
        other => {
            return Err(unsupported(format!("chunks are encoded with `{other}`, which is not read"))
                .with_hint("write them with zstd, gzip, zlib, lz4, bz2 or blosc, and no filters but shuffle, quantize, bitround and fletcher32"));
        }
    })
}

/// Reverses filters from the order in which they were applied to the order in which they are undone.
pub(super) fn undone(mut filters: Vec<Filter>) -> Result<Vec<Filter>> {
    if filters.iter().filter(|filter| filter.packs()).count() > 1 {
        return Err(unsupported("chunks are compressed twice").with_hint("write them with one compressor"));
    }
    filters.reverse();
    Ok(filters)
}

impl Chain {
    /// Parses the codecs of version 3, for an array with `axes` axes.
    pub(super) fn parse(codecs: &Value, axes: usize) -> Result<Self> {
        let codecs = codecs.as_array().ok_or_else(|| damaged("its metadata has no codecs"))?;
        let mut chain = Self { order: (0..axes).collect(), big_endian: false, filters: Vec::new(), sharding: None };
        let mut in_bytes = false;
        for codec in codecs {
            // A plain name is a codec without a configuration.
            let name = codec.as_str().or_else(|| codec["name"].as_str());
            let name = name.ok_or_else(|| damaged("a codec without a name"))?;
            let config = &codec["configuration"];
            let misplaced = || damaged(format!("the codec `{name}` is out of place"));
            match name {
                "transpose" if !in_bytes => {
                    let order = order(&config["order"], axes).ok_or_else(misplaced)?;
                    chain.order = order.iter().map(|axis| chain.order[*axis]).collect();
                }
                "bytes" if !in_bytes => {
                    in_bytes = true;
                    chain.big_endian = match config["endian"].as_str() {
                        Some("big") => true,
                        Some("little") | None => false,
                        Some(_) => return Err(misplaced()),
                    };
                }
                "sharding_indexed" if codecs.len() == 1 => {
                    let inner = Self::parse(&config["codecs"], axes)?;
                    if inner.sharding.is_some() {
                        return Err(unsupported("shards within shards").with_hint("write chunks into shards once"));
                    }
                    chain = inner;
                    chain.sharding = Some(Sharding::parse(config)?);
                    // Already in the order to undo.
                    return Ok(chain);
                }
                "sharding_indexed" => {
                    return Err(unsupported("shards that are encoded again, before or after sharding")
                        .with_hint("move the other codecs into `sharding_indexed`"));
                }
                "transpose" | "bytes" => return Err(misplaced()),
                _ if !in_bytes && only_rounds(name.strip_prefix("numcodecs.").unwrap_or(name), config) => {}
                _ if !in_bytes => {
                    return Err(unsupported(format!("numbers are encoded with `{name}`, which is not read"))
                        .with_hint("write them with the codec `bytes`"));
                }
                other => chain.filters.push(filter(other.strip_prefix("numcodecs.").unwrap_or(other), config)?),
            }
        }
        if !in_bytes {
            return Err(damaged("its codecs make no bytes"));
        }
        chain.filters = undone(chain.filters)?;
        Ok(chain)
    }
}

/// Parses an order of axes: each axis once.
fn order(value: &Value, axes: usize) -> Option<Vec<usize>> {
    let order: Vec<usize> = match value.as_str() {
        Some("C") => (0..axes).collect(),
        Some("F") => (0..axes).rev().collect(),
        Some(_) => return None,
        None => numbers(value)?.into_iter().map(|axis| usize::try_from(axis).ok()).collect::<Option<_>>()?,
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..axes).then_some(order)
}
