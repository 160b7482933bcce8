//! Tar shards as WebDataset makes them: the files of a sample lie together and share their name up to the first dot.
//!
//! ```text
//! n01440764/10026.jpg  n01440764/10026.cls  n01440764/10027.jpg  …
//! └ key ─────────────┘ └ extension
//! ```
//!
//! Records are read by ranges, each with the tar header before it, so any record can be read without those before it, and
//! an index that does not fit its tar is found out. What the extensions mean, `open()`) tells.
//!
//! Where the places of members come from, the first that is there: `shards.infeed` beside the shards; `NAME.infeed`, or
//! `NAME.idx` of DALI's `wds2idx`, beside `NAME.tar`; what an earlier opening kept in the folder of
//! [`Open::manifests`](super::Open::manifests); a pass over the headers, which is kept (beside local shards, else there).

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
    shard::Shard,
};
use super::{
    format::{Format, OpenOption, OpenOptions},
    names::{ends_with, of_split},
    objects::nothing_to_read,
    record::Dataset,
};

const COMPRESSED: [&str; 8] = [".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz"];

fn is_compressed(name: &str) -> bool {
    COMPRESSED.iter().any(|end| ends_with(name, end))
}

/// Shards of a dataset.
#[derive(Clone, Copy, Debug)]
pub struct Tar;

impl Format for Tar {
    fn name(&self) -> &'static str {
        "tar"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|o| ends_with(&o.name, ".tar") || is_compressed(&o.name))
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

/// The shards to read, in the order of names.
fn choose<'a>(source: &Source, objects: &'a [Object], options: &OpenOptions) -> Result<Vec<&'a Object>> {
    let tars: Vec<&Object> = objects.iter().filter(|o| ends_with(&o.name, ".tar")).collect();
    if let Some(packed) = objects.iter().find(|o| is_compressed(&o.name))
        && tars.is_empty()
        && options.split.is_none()
    {
        return Err(Error::new(ErrorKind::Unsupported, "a compressed tar can't be read at any place")
            .at_object(source.display_name(&packed.name))
            .hint("unpack it with `infeed stage URL DIR`, or take the compression off (gunzip, unzstd)"));
    }
    if tars.is_empty() && options.split.is_none() {
        return Err(nothing_to_read(source, objects, "tar shards"));
    }
    of_split(source, tars, options.split.as_deref(), "shards", "-{000000..000099}.tar")
}

/// Name and size of the file whose header is first in `bytes`, when all of it is there.
pub fn member(bytes: &[u8]) -> Option<(String, u64)> {
    let found = header::parse_header(bytes).ok()??;
    let whole = found.kind == header::Kind::File && BLOCK.checked_add(found.size)? <= bytes.len() as u64;
    Some((String::from_utf8(found.name).ok().filter(|_| whole)?, found.size))
}
