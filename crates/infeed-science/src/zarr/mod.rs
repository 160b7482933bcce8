//! Zarr, versions 2 and 3: arrays in chunks, each chunk (or shard of chunks) an object.
//!
//! ```text
//! names ─ nodes ─▶ metadata of each array (meta.rs, codecs.rs) ─┐
//!       └ keys.rs ─▶ which object is which chunk ─ shard.rs ────┴▶ ChunkedArray ─▶ ChunkedDataset
//! ```
//!
//! Three things that are easy to get wrong:
//!
//! - **The listing says which chunks there are**: one that is missing is the fill value, and no read finds out.
//! - **Hidden names**: version 2 keeps metadata in `.zarray` and `.zgroup`, which listings show although they begin with a dot.
//! - **A shard is no chunk**: it is an object with an index of the chunks in it, which is read at opening.

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
    report::Stage,
};
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::{base, parent},
    objects::nothing_to_read,
    record::Dataset,
};
use infeed_store::{Object, Source};

use self::{keys::Keys, meta::Meta, shard::Grids};
use super::chunked::{ChunkedArray, ChunkedDataset, Place, damaged, unsupported};

/// Metadata and indexes of shards that are read at a time.
const AT_A_TIME: usize = 16;
/// The most that metadata of an array may take, attributes included.
const LONGEST: u64 = 100 << 20;

/// The format.
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
            let chosen = choose(nodes, options.columns.as_deref()).map_err(|e| e.at_object(source.url()))?;
            let dataset = load(source, &objects, chosen).await.map_err(|e| e.at_stage(Stage::Open))?;
            Ok(Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// An array that is there.
struct Node<'a> {
    /// Where it lies: a folder, or none.
    folder: &'a str,
    /// The field.
    name: String,
    metadata: &'a Object,
    json: serde_json::Value,
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
        // An array may have metadata of both versions, on its way from one to the other.
        ".zarray" => !newer.contains(parent(&o.name)),
        _ => false,
    });
    let reads: Vec<_> =
        of_arrays.map(|object| read_json(source, object).map(move |json| (object, json)).boxed()).collect();
    let mut reads = stream::iter(reads).buffered(AT_A_TIME);
    let mut nodes = Vec::new();
    while let Some((object, json)) = reads.next().await {
        let at = |e: Error| e.at_object(source.display_name(&object.name));
        let json = json.map_err(at)?;
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
        nodes.push(Node { folder, name: name.to_owned(), metadata: object, json });
    }
    Ok(nodes)
}

/// The folder that holds both.
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

async fn read_json(source: &Source, object: &Object) -> Result<serde_json::Value> {
    if object.size > LONGEST {
        return Err(damaged(format!("metadata of {} bytes", object.size)));
    }
    let bytes = object.extent(source).read().await?;
    serde_json::from_slice(&bytes).map_err(|e| damaged("its metadata are no JSON").with_source(e))
}

/// The arrays that become fields, in this order.
fn choose<'a>(mut nodes: Vec<Node<'a>>, columns: Option<&[String]>) -> Result<Vec<Node<'a>>> {
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let Some(columns) = columns else { return Ok(nodes) };
    let listed = nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(", ");
    let take = |name: &String| {
        let at = nodes.iter().position(|node| node.name == *name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("no array `{name}`")).hint(format!("there are {listed}"))
        })?;
        Ok(nodes.swap_remove(at))
    };
    columns.iter().map(take).collect()
}

async fn load(source: &Source, objects: &[Object], nodes: Vec<Node<'_>>) -> Result<ChunkedDataset> {
    let mut arrays = Vec::new();
    let mut kept: Vec<Object> = Vec::new();
    for node in nodes {
        let at = |e: Error| e.at_object(source.display_name(&node.metadata.name));
        let meta = Meta::parse(&node.json).map_err(at)?;
        let Meta { dtype, swapped, shape, chunk, keys, order, fill, filters, sharding } = meta;
        let mut array =
            ChunkedArray { name: node.name, dtype, swapped, shape, chunk, order, fill, filters, places: Vec::new() };
        let chunks = chunks(objects, node.folder, keys, &array);
        let first = kept.len();
        let last = u32::try_from(first + chunks.len());
        last.map_err(|_| at(unsupported("more than 4,294,967,295 chunks").hint("open fewer of the arrays")))?;
        kept.extend(chunks.iter().map(|(_, object)| (*object).clone()));
        let numbered = || chunks.iter().zip(first as u32..);
        match sharding {
            None => {
                let place = |(&(number, object), at): (&(u64, &Object), u32)| Place {
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
                let places: Vec<Vec<Place>> = stream::iter(reads).buffered(AT_A_TIME).try_collect().await?;
                array.places = places.concat();
            }
        }
        array.places.sort_unstable_by_key(|place| place.number);
        arrays.push(array);
    }
    ChunkedDataset::new("zarr", source, kept, arrays).map_err(|e| e.at_object(source.url()))
}

/// The objects that are chunks, or shards, of an array, with their numbers.
fn chunks<'a>(objects: &'a [Object], folder: &str, keys: Keys, array: &ChunkedArray) -> Vec<(u64, &'a Object)> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    // All names with the prefix stand together.
    let first = objects.partition_point(|o| o.name.as_str() < prefix.as_str());
    let inside = objects[first..].iter().map_while(|o| Some((o, o.name.strip_prefix(&prefix)?)));
    let grid = array.grid();
    inside.filter_map(|(object, key)| Some((keys.number(key, &grid)?, object))).collect()
}
