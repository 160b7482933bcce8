//! Tar shards as written for WebDataset: the files of a sample are next to each other and share their name up to the
//! first dot.
//!
//! ```text
//! n01440764/10026.jpg  n01440764/10026.cls  n01440764/10027.jpg  …
//! └ key ─────────────┘ └ extension
//! ```
//!
//! Records are read by ranges, each including the tar header before it. So any record can be read without those before
//! it, and an index that does not fit its tar is detected. The docs of `open()` list the meaning of extensions.
//!
//! The positions of members come from the first of these that exists:
//!
//! 1. `shards.infeed` next to the shards
//! 2. `NAME.infeed`, or `NAME.idx` of DALI's `wds2idx`, next to `NAME.tar`
//! 3. the index that an earlier opening kept in the folder of [`Open::manifests`](super::Open::manifests)
//! 4. a pass over the headers; its result is kept in that folder. [`write_index`] writes it next to the shards

mod columns;
mod dataset;
mod header;
mod index;
mod known;
mod samples;
mod shard;
mod walk;
mod wds2idx;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Object, Source};

pub use self::header::{BLOCK, header, padded};
use self::{dataset::TarDataset, known::Known};
pub use self::{
    index::{INDEX, Index},
    known::WrittenIndex,
    shard::Shard,
};
use super::{
    format::{Format, OpenOption, OpenOptions},
    names::{ends_with, is_table, of_split},
    objects::{list, nothing_to_read},
    record::Dataset,
};

const COMPRESSED: [&str; 8] = [".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"];

fn is_compressed(name: &str) -> bool {
    COMPRESSED.iter().any(|end| ends_with(name, end))
}

/// The tar shards of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| ends_with(&o.name, ".tar") || is_compressed(&o.name))
    }

    fn reads(&self, name: &str) -> bool {
        !is_table(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Split, OpenOption::Columns, OpenOption::Classes]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move {
            let tars = choose(source, &objects, options)?;
            let known = Known::load(source, &objects, options).await?;
            if !options.allow_incomplete {
                known.check_complete(source, &objects, &tars)?;
            }
            let (shards, classes) = known.shards(source, &tars).await?;
            let dataset = TarDataset::new(source, shards, classes, options).await?;
            Ok(Arc::new(dataset) as Arc<dyn Dataset>)
        }
        .boxed()
    }
}

/// Writes the index of a folder or bucket of tars next to them, as `shards.infeed`: where each sample is. Then no later
/// opening, on any machine, passes over the headers of the tars. Without it, the first opening on each machine does,
/// and keeps the result outside of the data.
///
/// Tars that an index knows already are not read again. Call it after tars were added or replaced: the file is replaced
/// as a whole. It costs one pass over the headers, 32 MiB of memory, and the rest of the index in `TMPDIR`.
///
/// ```no_run
/// # async fn f() -> infeed::Result<()> {
/// use infeed::{dataset::write_index, source::Source};
///
/// let written = write_index(&Source::parse("s3://photos/train-shards")?).await?;
/// println!("{} samples in {} tars: {}", written.records, written.shards, written.name);
/// # Ok(()) }
/// ```
///
/// # Errors
/// `NotFound` if there are no tars; `Config` if the source is a single tar; those of reading the tars and of writing.
pub async fn write_index(source: &Source) -> Result<WrittenIndex> {
    source.connect().await?;
    let (source, objects) = list(source.clone(), None, None).await?;
    if source.only().is_some() {
        return Err(Error::config("an index holds all tars of a folder, but the url names one")
            .at_object(source.url())
            .with_hint("name the folder"));
    }
    let options = OpenOptions::default();
    let tars = choose(&source, &objects, &options)?;
    Known::load(&source, &objects, &options).await?.write(&source, &tars).await
}

/// The shards to read, ordered by name.
fn choose<'a>(source: &Source, objects: &'a [Object], options: &OpenOptions) -> Result<Vec<&'a Object>> {
    let tars: Vec<&Object> = objects.iter().filter(|o| ends_with(&o.name, ".tar")).collect();
    // The compressed form of a tar that is there, too, lacks nothing.
    let is_lacking = |packed: &Object| !tars.iter().any(|tar| packed.name.starts_with(&*tar.name));
    let packed = objects.iter().find(|o| is_compressed(&o.name) && is_lacking(o));
    if let Some(packed) = packed
        && tars.is_empty()
        && options.split.is_none()
    {
        return Err(Error::new(ErrorKind::Unsupported, "a compressed tar can't be read by ranges")
            .at_object(source.display_name(&packed.name))
            .with_hint(format!(
                "decompress it (gunzip, unzstd); if it holds class folders, unpack it with `infeed stage {} DIR`",
                source.display_name(&packed.name)
            )));
    }
    if let Some(Object { name: first, .. }) = packed.filter(|_| !tars.is_empty()) {
        let url = source.url();
        tracing::warn!(url, first, "compressed tars next to the others are not read; decompress them (gunzip, unzstd)");
    }
    if tars.is_empty() && options.split.is_none() {
        return Err(nothing_to_read(source, objects, "tar shards"));
    }
    of_split(source, tars, options.split.as_deref(), "shards", "-{000000..000099}.tar")
}

/// Name and size of the file whose header begins `bytes`; `None` if `bytes` do not hold all of the header.
pub fn member(bytes: &[u8]) -> Option<(String, u64)> {
    let found = header::parse_header(bytes).ok()??;
    let whole = found.kind == header::MemberKind::File && BLOCK.checked_add(found.size)? <= bytes.len() as u64;
    Some((String::from_utf8(found.name).ok().filter(|_| whole)?, found.size))
}
