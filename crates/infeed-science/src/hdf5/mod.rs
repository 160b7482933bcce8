//! HDF5: the datasets of a file as fields, read by range without the HDF5 library.
//!
//! ```text
//! file.rs ─ ranges ─▶ header.rs, group.rs (tree.rs, heap.rs) ─ walk.rs ─▶ datasets ─ messages.rs ─▶ type, shape, filters ─┐
//!                                                     chunks.rs ─▶ where each chunk is ───────────────────────────────────┴▶ ChunkedArray
//! ```
//!
//! `open` reads the metadata, in pages, all nodes of a level of a tree at the same time. After that only chunks are
//! read. The format is described in <https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html>.
//!
//! Three things that are easy to get wrong:
//!
//! - **Filters are undone backwards**, but the bits of a chunk that mark skipped filters count forwards.
//! - **Addresses count from the superblock**, which a user block may precede.
//! - **Indexes count the chunks of an array's maximal shape**, not of its present one.

mod attributes;
mod checksum;
mod chunks;
mod cursor;
mod file;
mod group;
mod header;
mod heap;
mod limits;
mod messages;
mod tree;
mod walk;

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{COLUMNS, FORMAT},
    },
    fingerprint::Fingerprint,
    report::Stage,
};
use infeed_data::{
    arrays::listed,
    concat, difference,
    format::{Format, OpenOption, OpenOptions},
    names::{ends_with, is_data, is_table, looks_like_mask, of_split, parent},
    objects::nothing_to_read,
    packed::Packing,
    record::Dataset,
};
use infeed_store::{Object, Source};

use self::{
    chunks::Chunk,
    file::File,
    messages::Step,
    walk::{FoundDataset, Stored},
};
use super::chunked::{self, ChunkPlace, ChunkedArray, ChunkedDataset, Filter, Series, Sight, damaged, unsupported};

/// The name of the format whose records are files.
const FILES: &str = "hdf5-files";

/// Files whose metadata is read at the same time.
const AT_A_TIME: usize = 16;

/// HDF5 files (`.h5`, `.hdf5`, `.he5`, `.nc4`): formats for `open`, which reads the metadata of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hdf5 {
    /// `hdf5`: a record is an index along the first axis of the datasets, or one of many datasets.
    Rows,
    /// `hdf5-files`: each file is a record, and its datasets are the fields. Only if the user names this format.
    Files,
}

/// Excludes `.hdf` and `.nc`, which may be HDF4 and classic NetCDF too.
fn is_hdf5(name: &str) -> bool {
    [".h5", ".hdf5", ".he5", ".nc4"].into_iter().any(|end| ends_with(name, end))
}

impl Format for Hdf5 {
    fn name(&self) -> &'static str {
        match self {
            Self::Rows => "hdf5",
            Self::Files => FILES,
        }
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        *self == Self::Rows && objects.iter().any(|o| is_hdf5(&o.name))
    }

    fn reads(&self, name: &str) -> bool {
        is_hdf5(name) || !is_data(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Columns]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let named = objects.iter().any(|o| is_hdf5(&o.name));
            // Files with other names are read if the user named the format and no file has such a name.
            let takes = |o: &&Object| is_hdf5(&o.name) || options.format.is_some() && !named && !is_table(&o.name);
            let files: Vec<&Object> = objects.iter().filter(takes).collect();
            if files.is_empty() {
                return Err(nothing_to_read(source, &objects, "HDF5 files"));
            }
            let files = of_split(source, files, options.split.as_deref(), "files", "_000.h5")?;
            let columns = options.columns.as_deref();
            match self {
                Self::Rows => rows(source, &files, columns).await,
                Self::Files => each(source, &files, columns).await,
            }
        }
        .boxed()
    }
}

/// The arrays of each file.
async fn read_all(
    source: &Source,
    files: &[&Object],
    columns: Option<&[String]>,
    way: Hdf5,
) -> Result<Vec<Vec<ChunkedArray>>> {
    let reads: Vec<_> = files
        .iter()
        .enumerate()
        .map(|(at, file)| {
            let read = read(source, file, columns, way, at == 0);
            read.map(move |read| read.map_err(|e| at_file(e, source, file))).boxed()
        })
        .collect();
    stream::iter(reads).buffered(AT_A_TIME).try_collect().await
}

fn at_file(error: Error, source: &Source, file: &Object) -> Error {
    error.at_stage(Stage::Open).at_object(source.display_name(&file.name))
}

/// Opens all files, which must have the same fields. Their rows are the records.
async fn rows(source: &Source, files: &[&Object], columns: Option<&[String]>) -> Result<Arc<dyn Dataset>> {
    let all = read_all(source, files, columns, Hdf5::Rows).await?;
    if columns.is_none() {
        warn_of_samples(source, &all);
    }
    let mut datasets = Vec::new();
    for (arrays, file) in all.into_iter().zip(files) {
        let dataset = ChunkedDataset::new(
            "hdf5",
            Fingerprint::of("hdf5"),
            source,
            vec![(*file).clone()],
            arrays,
            columns.is_some(),
        );
        let each = |e: Error| match files.len() {
            1 => e,
            _ => {
                let hint = e.hint().map_or_else(String::new, |hint| format!("{hint}; "));
                e.with_hint(format!("{hint}if each file is a record, set {}", FORMAT.to(FILES)))
            }
        };
        datasets.push(dataset.map_err(|e| each(at_file(e, source, file)))?);
    }
    for (dataset, file) in datasets.iter().zip(files).skip(1) {
        if let Some(difference) = difference(datasets[0].schema(), dataset.schema()) {
            let what = format!("it does not fit `{}`: {difference}", files[0].name);
            return Err(Error::config(what).at_object(source.display_name(&file.name)).with_hint(format!(
                "open each kind of file as a dataset, or name the fields that all files have with {COLUMNS}; if each \
                 file is a record, set {}",
                FORMAT.to(FILES)
            )));
        }
    }
    let mut datasets: Vec<Arc<dyn Dataset>> = datasets.into_iter().map(|dataset| Arc::new(dataset) as _).collect();
    if datasets.len() == 1 { Ok(datasets.remove(0)) } else { concat(datasets) }
}

/// Warns of files that may be a record each, although their rows are read as records.
fn warn_of_samples(source: &Source, all: &[Vec<ChunkedArray>]) {
    let shapes = |arrays: &[ChunkedArray]| arrays.iter().map(|array| array.shape.clone()).collect();
    let shapes: Vec<Vec<Vec<u64>>> = all.iter().map(|arrays| shapes(arrays)).collect();
    let has_mask = all.iter().flatten().any(|array| looks_like_mask(&array.name));
    if look_like_samples(&shapes, has_mask) {
        tracing::warn!(
            url = source.url(),
            "the rows of HDF5 files are the records, {} of each of {} files; if each file is a record, set {}",
            shapes[0][0][0],
            all.len(),
            FORMAT.to(FILES)
        );
    }
}

/// Whether files may be a record each, by the shapes of their arrays, which are the same in all files: those of one
/// picture (`[H, W, C]` and perhaps `[H, W]`, or `[C, H, W]`, or several of one `[H, W]` if one `has_mask` in its name), or
/// of fewer rows than there are files. A number for each row shows that the rows are the records.
fn look_like_samples(files: &[Vec<Vec<u64>>], has_mask: bool) -> bool {
    let Some(first) = files.first().filter(|first| files.len() > 1 && first.iter().all(|shape| shape.len() > 1)) else {
        return false;
    };
    let Some([rows, width, ..]) = first.first().map(|shape| &shape[..]) else { return false };
    let is_channels = |channels: u64| (1..=4).contains(&channels);
    let last = |shape: &Vec<u64>| shape.len() == 3 && is_channels(shape[2]);
    let channels_last = first.iter().any(last)
        && first.iter().all(|shape| shape[..2] == [*rows, *width] && (shape.len() == 2 || last(shape)));
    let channels_first =
        first.iter().all(|shape| matches!(shape[..], [channels, h, w] if is_channels(channels) && h > 4 && w > 4));
    let many = files.len() as u64 >= *rows;
    let is_flat = has_mask && first.len() > 1 && first.iter().all(|shape| shape[..] == [*rows, *width]);
    *rows > 1
        && (many || channels_first || (channels_last || is_flat) && *rows > 4 && *width > 4)
        && files.iter().all(|shapes| shapes == first)
}

/// Opens all files, each of which is a record. They must have the same arrays.
async fn each(source: &Source, files: &[&Object], columns: Option<&[String]>) -> Result<Arc<dyn Dataset>> {
    let all = read_all(source, files, columns, Hdf5::Files).await?;
    if let Some(other) = files.iter().find(|file| parent(&file.name) != parent(&files[0].name)) {
        let (url, first, other) = (source.url(), &files[0].name, &other.name);
        tracing::warn!(url, first, other, "files are in several folders, whose names are no labels");
    }
    let names: Vec<String> = all.first().into_iter().flatten().map(|array| array.name.clone()).collect();
    let mut fields: Vec<Vec<ChunkedArray>> = names.iter().map(|_| Vec::new()).collect();
    let mut only_here = None;
    for (object, (mut arrays, file)) in (0..).zip(all.into_iter().zip(files)) {
        for (name, parts) in names.iter().zip(&mut fields) {
            let Some(at) = arrays.iter().position(|array| array.name == *name) else {
                let what = format!("no dataset `{name}`: other files have it, such as `{}`", files[0].name);
                let hint = format!("write it, or name the fields that every file has with {COLUMNS}");
                return Err(at_file(Error::new(ErrorKind::NotFound, what).with_hint(hint), source, file));
            };
            let mut array = arrays.swap_remove(at);
            array.places.iter_mut().for_each(|place| place.object = object);
            // Errors name it.
            array.name = format!("{}[{name}]", file.name);
            parts.push(array);
        }
        // Columns that the user chose are in all files.
        only_here = only_here.or_else(|| Some(format!("{}[{}]", file.name, arrays.pop()?.name)));
    }
    if let Some(dataset) = only_here {
        tracing::warn!(
            url = source.url(),
            dataset,
            "datasets that the first file lacks are no fields, and are left out"
        );
    }
    let stacked = names.into_iter().zip(fields).map(|(name, parts)| chunked::stacked(name, parts));
    let arrays: Vec<ChunkedArray> = stacked.collect::<Result<_>>().map_err(|e| e.at_object(source.url()))?;
    let objects = files.iter().map(|file| (*file).clone()).collect();
    let print = files.iter().fold(Fingerprint::of(FILES), |print, file| print.text(&file.name));
    Ok(Arc::new(ChunkedDataset::new(FILES, print, source, objects, arrays, true)?))
}

async fn read(
    source: &Source,
    object: &Object,
    columns: Option<&[String]>,
    way: Hdf5,
    is_first: bool,
) -> Result<Vec<ChunkedArray>> {
    let mut file = File::open(source, object).await?;
    let mut arrays = Vec::new();
    for Field { name, parts, stacked } in choose(walk::datasets(&mut file).await?, columns, way, is_first)? {
        let mut all = Vec::new();
        for (path, stored) in parts {
            let near = file.near(&path);
            all.push(array(&mut file, path, &stored).await.map_err(|e| e.at_object(near))?);
        }
        arrays.extend(if stacked { vec![chunked::stacked(name, all)?] } else { all });
    }
    Ok(arrays)
}

/// A field: the rows of one dataset, or many datasets that are a record each.
struct Field {
    name: String,
    parts: Vec<(String, Stored)>,
    stacked: bool,
}

/// Chooses the datasets that become fields, in order. `tells`: whether to warn of those that are left out.
fn choose(found: Vec<FoundDataset>, columns: Option<&[String]>, way: Hdf5, tells: bool) -> Result<Vec<Field>> {
    let there = listed(found.iter().map(|found| &found.name));
    let nothing = || {
        let there = if there.is_empty() { "none" } else { &there };
        Error::new(ErrorKind::NotFound, format!("no datasets of numbers: there are {there}"))
            .with_hint("integers, floats and booleans are read, with a first axis that counts the records")
    };
    let mut left = BTreeMap::new();
    let mut numbers: BTreeMap<String, Stored> = BTreeMap::new();
    for FoundDataset { name, stored } in found {
        match stored {
            Ok(stored) => drop(numbers.insert(name, stored)),
            Err(why) => drop(left.insert(name, why)),
        }
    }
    let missing = |column: &str| {
        Error::new(ErrorKind::NotFound, format!("no dataset `{column}`")).with_hint(format!("there are {there}"))
    };
    let refused = |name: &str, why: &str| {
        unsupported(format!("`{name}` can't be read: {why}")).with_hint(format!("leave it out of {COLUMNS}"))
    };
    const ONE: &str = "one number, without an axis of records";
    // If each column is the name of a dataset, the rows of these datasets are the records.
    let path = |column: &str| column.trim_start_matches('/').to_owned();
    let by_rows = columns.is_some_and(|columns| {
        columns.iter().all(|column| numbers.contains_key(&path(column)) || left.contains_key(&path(column)))
    });
    let names: Vec<String> = numbers.keys().cloned().collect();
    let sights: Vec<Sight<'_>> =
        numbers.iter().map(|(name, stored)| Sight { name, dtype: stored.dtype, shape: &stored.shape }).collect();
    let of_file = way == Hdf5::Files;
    let series = match () {
        () if of_file => (0..).zip(&names).map(|(at, name)| Series::of(name, at)).collect(),
        () if by_rows => Vec::new(),
        () => chunked::series(&sights)?,
    };
    let field = |Series { name, parts, stacked }: &Series, numbers: &mut BTreeMap<String, Stored>| {
        let parts = parts.iter().filter_map(|at| numbers.remove_entry(&names[*at])).collect();
        Field { name: name.clone(), parts, stacked: *stacked }
    };
    let Some(columns) = columns else {
        if tells && !of_file {
            chunked::tell_alike(&sights, &series);
        }
        let is_one =
            |series: &&Series| !of_file && !series.stacked && numbers[&names[series.parts[0]]].shape.is_empty();
        let ones: Vec<String> = series.iter().filter(is_one).map(|series| series.name.clone()).collect();
        left.extend(ones.iter().map(|name| (name.clone(), ONE.to_owned())));
        let kept = series.iter().filter(|series| !ones.contains(&series.name));
        let chosen: Vec<Field> = kept.map(|series| field(series, &mut numbers)).collect();
        if chosen.is_empty() {
            return Err(nothing());
        }
        if tells && !left.is_empty() {
            let left: Vec<String> = left.iter().map(|(name, why)| format!("{name} ({why})")).collect();
            let each = format!("if each file is a record, {} reads single numbers too", FORMAT.to(FILES));
            let help = if ones.is_empty() || of_file { String::new() } else { format!("; {each}") };
            tracing::warn!(datasets = left.join(", "), "datasets are left out: they hold no rows of numbers{help}");
        }
        return Ok(chosen);
    };
    let take = |column: &String| {
        let path = path(column);
        if let Some(why) = left.get(&path) {
            return Err(refused(&path, why));
        }
        let own = Series { name: path.clone(), parts: Vec::new(), stacked: false };
        let series = series.iter().find(|series| series.stacked && series.name == path).unwrap_or(&own);
        if series.stacked {
            return Some(field(series, &mut numbers))
                .filter(|field| field.parts.len() == series.parts.len())
                .ok_or_else(|| missing(column));
        }
        let (name, stored) = numbers.remove_entry(&path).ok_or_else(|| missing(column))?;
        if stored.shape.is_empty() && !of_file {
            return Err(refused(&name, ONE));
        }
        Ok(Field { name: name.clone(), parts: vec![(name, stored)], stacked: false })
    };
    let chosen: Vec<Field> = columns.iter().map(take).collect::<Result<_>>()?;
    if chosen.is_empty() { Err(nothing()) } else { Ok(chosen) }
}

async fn array(file: &mut File<'_>, name: String, stored: &Stored) -> Result<ChunkedArray> {
    let filters = stored.steps.iter().rev().map(filter).collect::<Result<Vec<_>>>()?;
    if filters.iter().filter(|filter| filter.packs()).count() > 1 {
        return Err(unsupported("chunks that are compressed twice").with_hint("write the dataset with one compressor"));
    }
    let (chunk, chunks) = stored.places(file).await?;
    let place = |Chunk { number, at, len, mask }: Chunk| {
        // Bit 0 is the first filter, but the last filter is undone first.
        let skipped = mask.reverse_bits().checked_shr(u32::BITS - filters.len() as u32).unwrap_or(0);
        ChunkPlace { number, start: at, len, object: 0, skipped }
    };
    let places = chunks.into_iter().map(place).collect();
    let swapped = stored.big_endian != cfg!(target_endian = "big");
    let mut fill = stored.fill.clone();
    if swapped {
        fill.reverse();
    }
    let (dtype, shape) = (stored.dtype, stored.shape.clone());
    let order = (0..shape.len()).collect();
    let unpacking = stored.unpacking.clone();
    Ok(ChunkedArray { name, dtype, swapped, shape, chunk, order, fill, filters, unpacking, places })
}

/// The filter that undoes a step.
fn filter(step: &Step) -> Result<Filter> {
    // Numbers from <https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md>.
    let refused = match step.id {
        1 => return Ok(Filter::Packed(Packing::Zlib)),
        2 => {
            let size = step.values.first().copied().filter(|size| *size > 0);
            return size.map(|size| Filter::Shuffle(size as usize)).ok_or_else(|| damaged("a shuffle of no bytes"));
        }
        3 => return Ok(Filter::Fletcher32),
        307 => return Ok(Filter::Packed(Packing::Bzip2)),
        32000 => return Ok(Filter::Lzf),
        32001 => return Ok(Filter::Blosc),
        32004 => return Ok(Filter::Lz4Blocks),
        32015 => return Ok(Filter::Packed(Packing::Zstd)),
        4 => "szip",
        5 => "n-bit",
        6 => "scale-offset",
        32008 => "bitshuffle",
        32013 => "ZFP",
        32026 => "Blosc2",
        _ if step.name.is_empty() => "a filter without a name",
        _ => &step.name,
    };
    Err(unsupported(format!("chunks encoded with {refused} (filter {}), which is not read", step.id)).with_hint(
        format!(
            "write it with gzip, LZF, zstd, LZ4 or Blosc (h5repack -f GZIP=4 OLD NEW), or leave it out with {COLUMNS}"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::look_like_samples;

    #[test]
    fn files_like_one_picture_each_are_told_from_shards() {
        let files = |count: usize, shapes: &[&[u64]]| {
            vec![shapes.iter().map(|shape| shape.to_vec()).collect::<Vec<_>>(); count]
        };
        assert!(look_like_samples(&files(2, &[&[240, 240, 4], &[240, 240, 3]]), false));
        assert!(look_like_samples(&files(3, &[&[3, 224, 320]]), false));
        assert!(look_like_samples(&files(600, &[&[480, 640, 3], &[480, 640]]), false));
        assert!(look_like_samples(&files(6, &[&[48, 64, 3], &[48, 64]]), false));
        assert!(!look_like_samples(&files(3, &[&[128, 128]]), false), "rows of numbers");
        assert!(look_like_samples(&files(3, &[&[256, 256], &[256, 256]]), true), "slices and their labels");
        assert!(!look_like_samples(&files(3, &[&[50, 32], &[50, 32]]), false), "two vectors for each row");
        assert!(!look_like_samples(&files(9, &[&[3, 64, 64, 3], &[3]]), false), "a label for each row");
        assert!(!look_like_samples(&files(1, &[&[240, 240, 4]]), false), "one file");
        assert!(!look_like_samples(&files(8, &[&[1000, 32, 32, 3], &[1000]]), false), "shards");
        assert!(!look_like_samples(&files(600, &[&[480], &[480]]), false), "columns of numbers");
        let mut uneven = files(600, &[&[12, 64, 64]]);
        uneven[5][0][0] = 9;
        assert!(!look_like_samples(&uneven, false), "volumes of several depths, whose slices are records");
    }
}
