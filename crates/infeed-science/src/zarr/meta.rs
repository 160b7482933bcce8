//! Metadata of an array, versions 2 (`.zarray`) and 3 (`zarr.json`).
//!
//! <https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html>,
//! <https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html>

use infeed_core::{
    error::{Result, setting::COLUMNS},
    types::DType,
};
use infeed_data::arrays::numpy_type;
use serde_json::Value;

use super::{
    codecs::{Chain, filter, only_rounds, undone},
    keys::Keys,
    numbers::numbers,
    shard::Sharding,
    value::{fill, named_type},
};
use crate::chunked::{Filter, damaged, unsupported};

/// Most axes of an array: as many as numpy allows.
const MOST_AXES: usize = 64;

/// The description of an array, before any chunk is read.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) dtype: DType,
    pub(super) swapped: bool,
    pub(super) shape: Vec<u64>,
    /// Shape of the part of the array in one object: a chunk, or a shard of chunks.
    pub(super) chunk: Vec<u64>,
    pub(super) keys: Keys,
    pub(super) order: Vec<usize>,
    pub(super) fill: Vec<u8>,
    pub(super) filters: Vec<Filter>,
    pub(super) sharding: Option<Sharding>,
}

fn lacks(what: &str) -> infeed_core::error::Error {
    damaged(format!("its metadata has no valid {what}"))
}

fn no_type(what: impl std::fmt::Display) -> infeed_core::error::Error {
    unsupported(format!("an array of the type {what}, which is not read"))
        .with_hint(format!("leave it out with {COLUMNS}, or write it as numbers of 8 to 64 bits"))
}

fn shape(value: &Value, what: &str) -> Result<Vec<u64>> {
    numbers(value).filter(|axes| axes.len() <= MOST_AXES).ok_or_else(|| lacks(what))
}

impl Meta {
    pub(super) fn parse(json: &Value) -> Result<Self> {
        let meta = match json["zarr_format"].as_u64() {
            Some(2) => Self::version_2(json)?,
            Some(3) => Self::version_3(json)?,
            Some(other) => {
                return Err(unsupported(format!("Zarr of version {other}")).with_hint("write version 2 or 3"));
            }
            None => return Err(lacks("zarr_format")),
        };
        if meta.chunk.len() != meta.shape.len() || meta.chunk.contains(&0) {
            return Err(damaged(format!("chunks of {:?} in an array of {:?}", meta.chunk, meta.shape)));
        }
        if let Some(sharding) = &meta.sharding {
            sharding.check(&meta.chunk)?;
        }
        Ok(meta)
    }

    /// Why an array has no rows of numbers; `None` if it has.
    pub(super) fn no_rows(json: &Value) -> Option<String> {
        let known = match json["zarr_format"].as_u64() {
            Some(2) => json["dtype"].as_str().is_some_and(|text| numpy_type(text).is_some()),
            _ => json["data_type"].as_str().is_some_and(|text| named_type(text).is_some()),
        };
        let written = |value: &Value| value.as_str().or_else(|| value["name"].as_str()).map(str::to_owned);
        let name = written(&json["dtype"]).or_else(|| written(&json["data_type"]));
        (!known).then(|| name.map_or("records of several types".to_owned(), |name| format!("of type {name}")))
    }

    fn version_2(json: &Value) -> Result<Self> {
        let dtype = &json["dtype"];
        let (dtype, swapped) = match dtype.as_str() {
            Some(text) => numpy_type(text).ok_or_else(|| no_type(format_args!("`{text}`")))?,
            None if dtype.is_array() => return Err(no_type("of records of several types")),
            None => return Err(lacks("dtype")),
        };
        let mut filters = Vec::new();
        match &json["filters"] {
            Value::Null => {}
            list => filters.extend(list.as_array().ok_or_else(|| lacks("filters"))?),
        }
        filters.extend(Some(&json["compressor"]).filter(|compressor| !compressor.is_null()));
        let filters = filters.into_iter().map(|config| {
            let id = config["id"].as_str().ok_or_else(|| damaged("a filter or compressor without an id"))?;
            if only_rounds(id, config) { Ok(None) } else { filter(id, config).map(Some) }
        });
        let filters = undone(filters.filter_map(Result::transpose).collect::<Result<_>>()?)?;
        let shape = shape(&json["shape"], "shape")?;
        let order = match json["order"].as_str() {
            Some("C") => (0..shape.len()).collect(),
            Some("F") => (0..shape.len()).rev().collect(),
            _ => return Err(lacks("order")),
        };
        let keys = Keys { with_c: false, separator: separator(&json["dimension_separator"], '.')? };
        Ok(Self {
            dtype,
            swapped,
            chunk: self::shape(&json["chunks"], "chunks")?,
            shape,
            keys,
            order,
            fill: fill(dtype, &json["fill_value"]).ok_or_else(|| lacks("fill_value"))?,
            filters,
            sharding: None,
        })
    }

    fn version_3(json: &Value) -> Result<Self> {
        if json["node_type"] != "array" {
            return Err(lacks("node_type"));
        }
        let dtype = match (json["data_type"].as_str(), json["data_type"]["name"].as_str()) {
            (Some(text), _) => named_type(text).ok_or_else(|| no_type(format_args!("`{text}`")))?,
            (None, Some(text)) => return Err(no_type(format_args!("`{text}`"))),
            (None, None) => return Err(lacks("data_type")),
        };
        let shape = shape(&json["shape"], "shape")?;
        let grid = &json["chunk_grid"];
        match grid["name"].as_str() {
            Some("regular") => {}
            Some(other) => {
                return Err(unsupported(format!("chunks of a grid `{other}`, which is not read"))
                    .with_hint("write chunks of one shape: the grid `regular`"));
            }
            None => return Err(lacks("chunk_grid")),
        }
        let encoding = &json["chunk_key_encoding"];
        let (with_c, usual) = match encoding["name"].as_str().or_else(|| encoding.as_str()) {
            Some("default") => (true, '/'),
            Some("v2") => (false, '.'),
            Some(other) => return Err(unsupported(format!("the chunk_key_encoding `{other}`, which is not read"))),
            None => return Err(lacks("chunk_key_encoding")),
        };
        let separator = separator(&encoding["configuration"]["separator"], usual)?;
        if json["storage_transformers"].as_array().is_some_and(|list| !list.is_empty()) {
            return Err(
                unsupported("storage transformers, which are not read").with_hint("write the array without them")
            );
        }
        let Chain { order, big_endian, filters, sharding } = Chain::parse(&json["codecs"], shape.len())?;
        Ok(Self {
            dtype,
            swapped: big_endian != cfg!(target_endian = "big") && dtype.size() > 1,
            chunk: self::shape(&grid["configuration"]["chunk_shape"], "chunk_shape")?,
            shape,
            keys: Keys { with_c, separator },
            order,
            fill: fill(dtype, &json["fill_value"]).ok_or_else(|| lacks("fill_value"))?,
            filters,
            sharding,
        })
    }
}

fn separator(value: &Value, usual: char) -> Result<char> {
    match value {
        Value::Null => Ok(usual),
        value if value == "/" => Ok('/'),
        value if value == "." => Ok('.'),
        _ => Err(lacks("separator")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use infeed_core::error::ErrorKind;

    fn with(mut json: Value, key: &str, value: Value) -> Value {
        match value {
            Value::Null => drop(json.as_object_mut().unwrap().remove(key)),
            value => json[key] = value,
        }
        json
    }

    #[test]
    fn what_is_not_read_is_refused_by_name() {
        let v2 = json!({"zarr_format": 2, "shape": [4, 3], "chunks": [2, 3], "dtype": "<f4", "compressor": null,
            "fill_value": 0, "order": "C", "filters": null});
        let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
        let v3 = json!({"zarr_format": 3, "node_type": "array", "shape": [4, 3], "data_type": "float32",
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
            "chunk_key_encoding": {"name": "default"}, "fill_value": 0, "codecs": [bytes]});
        assert_eq!(Meta::parse(&v2).unwrap().keys, Keys { with_c: false, separator: '.' });
        assert_eq!(Meta::parse(&v3).unwrap().keys, Keys { with_c: true, separator: '/' });
        let shards = |codecs: Value| {
            let config = json!({"chunk_shape": [1, 3], "codecs": codecs, "index_codecs": [bytes, "crc32c"]});
            json!({"name": "sharding_indexed", "configuration": config})
        };
        assert!(Meta::parse(&with(v3.clone(), "codecs", json!([shards(json!([bytes]))]))).unwrap().sharding.is_some());
        let rounded = json!([{"id": "quantize", "digits": 2, "dtype": "<f4", "astype": "<f4"}, {"id": "bitround", "keepbits": 9},
            {"id": "fletcher32"}]);
        assert_eq!(Meta::parse(&with(v2.clone(), "filters", rounded)).unwrap().filters, [Filter::Fletcher32]);
        let narrowed = json!([{"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}]);
        let cases = [
            (&v2, "filters", narrowed, "`quantize`"),
            (&v2, "dtype", json!("<U5"), "the type `<U5`"),
            (&v2, "dtype", json!("<M8[ns]"), "the type `<M8[ns]`"),
            (&v2, "dtype", json!([["x", "<f4"]]), "records of several types"),
            (&v2, "filters", json!([{"id": "delta", "dtype": "<f4"}]), "`delta`"),
            (&v2, "compressor", json!({"id": "lzma"}), "`lzma`"),
            (&v2, "zarr_format", json!(1), "version 1"),
            (&v3, "data_type", json!("complex64"), "the type `complex64`"),
            (&v3, "data_type", json!({"name": "numpy.datetime64"}), "the type `numpy.datetime64`"),
            (&v3, "chunk_grid", json!({"name": "rectilinear"}), "`rectilinear`"),
            (&v3, "codecs", json!([{"name": "vlen-utf8"}]), "`vlen-utf8`"),
            (&v3, "codecs", json!([bytes, {"name": "zfp"}]), "`zfp`"),
            (&v3, "codecs", json!([bytes, {"name": "zstd"}, {"name": "gzip"}]), "compressed twice"),
            (&v3, "codecs", json!([shards(json!([shards(json!([bytes]))]))]), "shards within shards"),
            (&v3, "codecs", json!([shards(json!([bytes])), {"name": "gzip"}]), "shards that are encoded again"),
            (&v3, "storage_transformers", json!([{"name": "x"}]), "storage transformers"),
        ];
        for (json, key, value, says) in cases {
            let error = Meta::parse(&with(json.clone(), key, value.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
        let cases = [
            (&v2, "dtype", Value::Null, "dtype"),
            (&v2, "order", json!("K"), "order"),
            (&v2, "chunks", json!([2]), "chunks of [2]"),
            (&v2, "chunks", json!([2, 0]), "chunks of [2, 0]"),
            (&v2, "shape", json!([-1, 3]), "shape"),
            (&v2, "fill_value", json!("x"), "fill_value"),
            (&v2, "dimension_separator", json!("-"), "separator"),
            (&v3, "codecs", json!([]), "no bytes"),
            (&v3, "codecs", json!([bytes, bytes]), "`bytes`"),
            (&v3, "codecs", json!([{"name": "transpose", "configuration": {"order": [0, 0]}}, bytes]), "`transpose`"),
            (&v3, "zarr_format", Value::Null, "zarr_format"),
        ];
        for (json, key, value, says) in cases {
            let error = Meta::parse(&with(json.clone(), key, value.clone())).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
