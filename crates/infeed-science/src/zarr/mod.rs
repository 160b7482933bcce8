//! Zarr, versions 2 and 3: arrays in chunks, each chunk (or shard of chunks) an object.
//!
//! ```text
//! names ─ nodes ─▶ metadata of each array (meta.rs, codecs.rs) ─┐
//!       └ keys.rs ─▶ which object is which chunk ─ shard.rs ────┴▶ ChunkedArray ─▶ ChunkedDataset
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **The listing decides which chunks exist**: a missing chunk has the fill value. No request is made for it.
//! - **Hidden names**: version 2 keeps metadata in `.zarray`, `.zattrs` and `.zgroup`, which listings include although
//!   they begin with a dot.
//! - **A shard is not a chunk**: it is an object of several chunks with an index of them, which `open` reads.

mod attributes;
mod codecs;
mod keys;
mod meta;
mod numbers;
mod shard;
mod value;

use std::{collections::HashSet, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    report::Stage,
};
use infeed_data::{
    arrays::listed,
    format::{Format, OpenOption, OpenOptions},
    names::{base, parent},
    objects::nothing_to_read,
    record::Dataset,
};
use infeed_store::{Beside, Object, Source};
use serde_json::Value;

use self::{attributes::attributes, keys::Keys, meta::Meta, shard::Grids};
use super::chunked::{self, ChunkPlace, ChunkedArray, ChunkedDataset, Series, Sight, damaged, unsupported};

/// Concurrent reads of metadata and of shard indexes.
const AT_A_TIME: usize = 16;

/// Zarr arrays, versions 2 and 3: a format for `open`.
///
/// A record is an index along the first axis, or one of many arrays that are a record each. `open` reads the metadata
/// of all arrays, and the indexes of shards.
#[derive(Clone, Copy, Debug)]
pub struct Zarr;

fn is_metadata(name: &str) -> bool {
    matches!(base(name), "zarr.json" | ".zarray" | ".zgroup")
}

impl Format for Zarr {
    fn name(&self) -> &'static str {
        "zarr"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| is_metadata(&o.name))
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Columns]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            if !self.recognises(&objects) {
                return Err(nothing_to_read(source, &objects, "Zarr arrays"));
            }
            let nodes = nodes(source, &objects).await?;
            let at = |e: Error| if e.context().object.is_some() { e } else { e.at_object(source.url()) };
            let chosen = choose(source, nodes, options.columns.as_deref()).map_err(at)?;
            let named = options.columns.is_some();
            let dataset = load(source, &objects, chosen, named).await.map_err(|e| e.at_stage(Stage::Open))?;
            Ok(Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// An array of the store.
struct Node<'a> {
    /// Its folder; empty for the root.
    folder: &'a str,
    /// The name of its field.
    name: String,
    metadata: &'a Object,
    json: Value,
    attributes: Value,
}

/// All arrays, in the order of their names.
async fn nodes<'a>(source: &'a Source, objects: &'a [Object]) -> Result<Vec<Node<'a>>> {
    let metadata = || objects.iter().filter(|o| is_metadata(&o.name));
    let mut folders = metadata().map(|o| parent(&o.name));
    let first = folders.next().unwrap_or_default();
    let common = folders.fold(first, common);
    let is_new = |o: &Object| base(&o.name) == "zarr.json";
    let newer: HashSet<&str> = metadata().filter(|o| is_new(o)).map(|o| parent(&o.name)).collect();
    let of_arrays = metadata().filter(|o| match base(&o.name) {
        "zarr.json" => true,
        // An array may have metadata of both versions, while it is converted: version 3 wins.
        ".zarray" => !newer.contains(parent(&o.name)),
        _ => false,
    });
    // Version 2 keeps attributes in another object of the same folder.
    let beside = |object: &Object| {
        let folder = parent(&object.name);
        let name = if folder.is_empty() { ".zattrs".to_owned() } else { format!("{folder}/.zattrs") };
        objects.binary_search_by(|o| o.name.as_str().cmp(&name)).ok().filter(|_| !is_new(object)).map(|at| &objects[at])
    };
    let read = |object: &'a Object| {
        let attributes = beside(object);
        async move {
            let at = |object: &Object| source.display_name(&object.name);
            let json = read_json(source, object).map(|json| json.map_err(|e| e.at_object(at(object))));
            let attributes = async {
                match attributes {
                    Some(object) => read_json(source, object).await.map_err(|e| e.at_object(at(object))),
                    None => Ok(Value::Null),
                }
            };
            let (json, mut attributes) = futures::try_join!(json, attributes)?;
            if is_new(object) {
                attributes = json["attributes"].clone();
            }
            Ok::<_, Error>((object, json, attributes))
        }
        .boxed()
    };
    let reads: Vec<_> = of_arrays.map(read).collect();
    let mut reads = stream::iter(reads).buffered(AT_A_TIME);
    let mut nodes = Vec::new();
    while let Some(read) = reads.next().await {
        let (object, json, attributes) = read?;
        if is_new(object) && json["node_type"] == "group" {
            continue;
        }
        let folder = parent(&object.name);
        let name = match folder.strip_prefix(common).unwrap_or(folder).trim_start_matches('/') {
            "" => match base(folder) {
                "" => "array",
                own => own.strip_suffix(".zarr").filter(|stem| !stem.is_empty()).unwrap_or(own),
            },
            name => name,
        };
        nodes.push(Node { folder, name: name.to_owned(), metadata: object, json, attributes });
    }
    Ok(nodes)
}

/// The innermost folder that contains both.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let mut end = 0;
    for (part, other) in a.split('/').zip(b.split('/')) {
        if part != other {
            break;
        }
        end += part.len() + 1;
    }
    &a[..end.saturating_sub(1).min(a.len())]
}

async fn read_json(source: &Source, object: &Object) -> Result<Value> {
    let bytes = Beside::Table.read(source, object).await?;
    serde_json::from_slice(&bytes).map_err(|e| damaged("its metadata is not JSON").with_source(e))
}

/// The fields in order, each with its arrays; `Series` holds whether each array is a record.
type Chosen<'a> = Vec<(Series, Vec<(Node<'a>, Meta)>)>;

/// Chooses the arrays that become fields. Arrays without rows of numbers are left out with a warning; naming one is an
/// error.
fn choose<'a>(source: &Source, mut nodes: Vec<Node<'a>>, columns: Option<&[String]>) -> Result<Chosen<'a>> {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let there = listed(nodes.iter().map(|node| &node.name));
    let is_named = |name: &String| columns.is_some_and(|columns| columns.contains(name));
    // If each column is the name of an array, the rows of these arrays are the records.
    let by_rows = columns.is_some_and(|columns| columns.iter().all(|name| nodes.iter().any(|node| node.name == *name)));
    let (mut left, mut all) = (Vec::new(), Vec::new());
    // If no array can be read, the error about the first one is the most useful.
    let some = nodes.iter().any(|node| Meta::no_rows(&node.json).is_none());
    for node in nodes {
        match Meta::no_rows(&node.json) {
            Some(why) if some && !is_named(&node.name) => left.push(format!("{} ({why})", node.name)),
            _ if by_rows && !is_named(&node.name) => {}
            _ => {
                let meta =
                    Meta::parse(&node.json).map_err(|e| e.at_object(source.display_name(&node.metadata.name)))?;
                all.push((node, meta));
            }
        }
    }
    let sights: Vec<Sight<'_>> =
        all.iter().map(|(node, meta)| Sight { name: &node.name, dtype: meta.dtype, shape: &meta.shape }).collect();
    let rows = || sights.iter().enumerate().map(|(at, sight)| Series::of(sight.name, at));
    let mut series = if by_rows { rows().collect() } else { chunked::series(&sights)? };
    match columns {
        Some(columns) => {
            let own: Vec<Series> = rows().filter(|own| is_named(&own.name)).collect();
            let take = |name: &String| {
                let found = own.iter().chain(&series).find(|series| series.name == *name).cloned();
                found.ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("no array `{name}`"))
                        .with_hint(format!("there are {there}"))
                })
            };
            series = columns.iter().map(take).collect::<Result<_>>()?;
        }
        None => {
            chunked::tell_alike(&sights, &series);
            let is_one = |series: &Series| !series.stacked && sights[series.parts[0]].shape.is_empty();
            if series.iter().any(|series| !is_one(series)) {
                let ones = series.iter().filter(|series| is_one(series));
                left.extend(ones.map(|series| format!("{} (one number, without an axis of records)", series.name)));
                series.retain(|series| !is_one(series));
            }
            if !left.is_empty() {
                tracing::warn!(arrays = left.join(", "), "arrays are left out: they hold no rows of numbers");
            }
        }
    }
    let mut all: Vec<Option<(Node<'a>, Meta)>> = all.into_iter().map(Some).collect();
    let mut of = |series: Series| {
        let parts: Option<Vec<_>> = series.parts.iter().map(|at| all[*at].take()).collect();
        let twice =
            || Error::config(format!("array `{}` is named twice", series.name)).with_hint(format!("there are {there}"));
        Ok((series.clone(), parts.ok_or_else(twice)?))
    };
    series.into_iter().map(&mut of).collect()
}

async fn load(source: &Source, objects: &[Object], chosen: Chosen<'_>, named: bool) -> Result<ChunkedDataset> {
    let mut fields = Vec::new();
    let mut kept: Vec<Object> = Vec::new();
    for (Series { name, stacked, .. }, parts) in chosen {
        let arrays = arrays(source, objects, parts, &mut kept).await?;
        let at = |e: Error| e.at_object(source.url());
        fields.extend(if stacked { vec![chunked::stacked(name, arrays).map_err(at)?] } else { arrays });
    }
    ChunkedDataset::new("zarr", Fingerprint::of("zarr"), source, kept, fields, named)
        .map_err(|e| e.at_object(source.url()))
}

/// Makes the arrays. Appends the objects of their chunks to `kept`; a `ChunkPlace` has an index into it.
async fn arrays(
    source: &Source,
    objects: &[Object],
    nodes: Vec<(Node<'_>, Meta)>,
    kept: &mut Vec<Object>,
) -> Result<Vec<ChunkedArray>> {
    let mut arrays = Vec::new();
    for (node, meta) in nodes {
        let at = |e: Error| e.at_object(source.display_name(&node.metadata.name));
        let Meta { dtype, swapped, shape, chunk, keys, order, fill, filters, sharding } = meta;
        let (dtype, unpacking) = attributes(&node.attributes, &node.json["fill_value"], dtype).map_err(at)?.of(dtype);
        let name = node.name;
        let places = Vec::new();
        let mut array = ChunkedArray { name, dtype, swapped, shape, chunk, order, fill, filters, unpacking, places };
        let chunks = chunks(objects, node.folder, keys, &array);
        let first = kept.len();
        let last = u32::try_from(first + chunks.len());
        last.map_err(|_| at(unsupported("more than 4,294,967,295 chunks").with_hint("open fewer of the arrays")))?;
        kept.extend(chunks.iter().map(|(_, object)| (*object).clone()));
        let numbered = || chunks.iter().zip(first as u32..);
        match sharding {
            None => {
                let place = |(&(number, object), at): (&(u64, &Object), u32)| ChunkPlace {
                    number,
                    start: 0,
                    len: object.size,
                    object: at,
                    skipped: 0,
                };
                array.places = numbered().map(place).collect();
            }
            Some(sharding) => {
                let grids = Grids::new(&array.shape, &array.chunk, &sharding.chunk);
                array.chunk = sharding.chunk.clone();
                let reads: Vec<_> = numbered()
                    .map(|(&(number, object), at)| {
                        let read = sharding.places(source, object, at, number, &grids);
                        read.map(move |read| read.map_err(|e| e.at_object(source.display_name(&object.name)))).boxed()
                    })
                    .collect();
                let places: Vec<Vec<ChunkPlace>> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
                array.places = places.concat();
            }
        }
        array.places.sort_unstable_by_key(|place| place.number);
        arrays.push(array);
    }
    Ok(arrays)
}

/// The objects that are chunks, or shards, of an array, with their numbers.
fn chunks<'a>(objects: &'a [Object], folder: &str, keys: Keys, array: &ChunkedArray) -> Vec<(u64, &'a Object)> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    // Names are sorted, so those with the prefix are adjacent.
    let first = objects.partition_point(|o| o.name.as_str() < prefix.as_str());
    let inside = objects[first..].iter().map_while(|o| Some((o, o.name.strip_prefix(&prefix)?)));
    let grid = array.grid();
    inside.filter_map(|(object, key)| Some((keys.number(key, &grid)?, object))).collect()
}
