//! One shard: the positions of its samples, and its decompression and checks if it is compressed.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::{
    packed::{Digest, Packing, supported, unpack},
    table::Stored,
};
use infeed_store::{KeptParts, Object, Source};

use super::layout::{File, Listed, bad, parse_offsets};
use crate::packed::packed_head;

/// Data of a shard.
#[derive(Debug)]
pub(super) struct Within {
    /// The offset of each sample, then the end of the last.
    pub(super) offsets: Vec<u32>,
    pub(super) packed: Option<Packed>,
}

pub(super) type Shard = Stored<Within>;

/// A shard that exists only compressed: it is read whole, checked, and decompressed once for all its samples.
#[derive(Debug)]
pub(super) struct Packed {
    packing: Packing,
    /// Its name without compression, which the dataset's fingerprint uses.
    pub(super) name: Arc<str>,
    /// Bytes after decompression.
    pub(super) length: u64,
    raw: Hashes,
    zip: Hashes,
}

/// Hashes in the index, in hexadecimal digits.
#[derive(Debug, Default)]
struct Hashes(Vec<(String, Digest, String)>);

impl Hashes {
    /// The hashes of known kinds; the names of others are added to `unknown`.
    fn of(file: &File, unknown: &mut BTreeSet<String>) -> Self {
        let known = |(name, digits): (&String, &String)| {
            let digest = Digest::parse(name);
            if digest.is_none() {
                unknown.insert(name.clone());
            }
            Some((name.clone(), digest?, digits.clone()))
        };
        Self(file.hashes.iter().filter_map(known).collect())
    }

    fn check(&self, what: &str, bytes: &[u8]) -> Result<()> {
        for (name, digest, want) in &self.0 {
            let found = digest.hex(bytes);
            if !found.eq_ignore_ascii_case(want) {
                return Err(bad(format!("{name} of the {what} is {found}, but {want} in index.json")));
            }
        }
        Ok(())
    }
}

/// Finds the shards of an index.
pub(super) struct Finder<'a> {
    pub(super) source: &'a Source,
    pub(super) objects: &'a [Object],
    /// The folder of the index, with a `/` at the end.
    pub(super) folder: &'a str,
    /// Names of hashes of unknown kinds.
    pub(super) unknown: BTreeSet<String>,
    /// Whether the index has hashes of shards that are read by range.
    pub(super) unchecked: bool,
}

impl<'a> Finder<'a> {
    fn by_name(&self, name: &str) -> Option<&'a Object> {
        self.objects.binary_search_by(|o| o.name.as_str().cmp(name)).ok().map(|i| &self.objects[i])
    }

    /// The object of a shard, and its compression: the uncompressed object if it exists, otherwise the compressed one.
    pub(super) fn find(&mut self, listed: &Listed) -> Result<(&'a Object, Option<Packed>)> {
        let name = format!("{}{}", self.folder, listed.raw_data.basename);
        let of_size = |object: &'a Object, file: &File| {
            let (have, said) = (object.size, file.bytes);
            let what = format!("{have} bytes, but {said} in index.json");
            if have == said { Ok(object) } else { Err(bad(what).at_object(self.source.display_name(&object.name))) }
        };
        if let Some(object) = self.by_name(&name) {
            self.unchecked |= !listed.raw_data.hashes.is_empty();
            return Ok((of_size(object, &listed.raw_data)?, None));
        }
        let missing = |name: &str| {
            Error::new(ErrorKind::NotFound, "a shard that index.json names is not there")
                .at_object(self.source.display_name(name))
        };
        let kind = listed.compression.as_deref().filter(|kind| !kind.is_empty());
        let (Some(kind), Some(zip)) = (kind, &listed.zip_data) else { return Err(missing(&name)) };
        let zipped = format!("{}{}", self.folder, zip.basename);
        let at = |e: Error| e.at_object(self.source.display_name(&zipped));
        let Some(packing) = Packing::parse(kind) else {
            return Err(at(Error::new(ErrorKind::Unsupported, format!("a shard compressed with {kind}")).with_hint(
                "zstd, gz, bz2 and snappy are read; unpack the shards next to index.json, or write them with one of these",
            )));
        };
        supported(&format!("a shard compressed with {kind}")).map_err(at)?;
        let object = of_size(self.by_name(&zipped).ok_or_else(|| missing(&zipped))?, zip)?;
        let raw = Hashes::of(&listed.raw_data, &mut self.unknown);
        let zip = Hashes::of(zip, &mut self.unknown);
        Ok((object, Some(Packed { packing, name: name.into(), length: listed.raw_data.bytes, raw, zip })))
    }
}

impl Packed {
    /// The whole shard, checked before and after decompression if the index has hashes.
    pub(super) fn unpack(&self, bytes: &[u8], offsets: &[u32]) -> Result<Bytes> {
        self.zip.check("compressed shard", bytes)?;
        let length = usize::try_from(self.length).map_err(|_| bad("a shard that does not fit into memory"))?;
        let raw = unpack(self.packing, bytes, length)?;
        self.raw.check("shard", &raw)?;
        let samples = offsets.len() as u32 - 1;
        let told = raw.get(..8 + 4 * samples as usize).ok_or_else(|| bad("the shard is truncated in its offsets"))?;
        match parse_offsets(told, samples, self.length)? == offsets {
            true => Ok(raw.into()),
            false => Err(bad("the offsets of samples have changed since the dataset was opened")),
        }
    }
}

/// A part of a shard, decompressed if necessary.
pub(super) async fn part(
    kept: &KeptParts,
    object: &Object,
    packed: Option<&Packed>,
    range: Range<u64>,
) -> Result<Bytes> {
    let kind = format!("{}-{}", range.start, range.end);
    let whole = object.extent(kept.source());
    let read = async {
        let Some(packed) = packed else { return whole.with_range(range).read().await };
        let head = packed_head(whole, packed.packing, range.end, packed.length).await?;
        Ok(head.slice(range.start as usize..))
    };
    kept.get(object, &kind, read).await
}

/// Reads the offsets of a shard.
pub(super) async fn read(kept: &KeptParts, object: &Object, packed: Option<Packed>, samples: u32) -> Result<Shard> {
    let range = 0..8 + 4 * u64::from(samples);
    let size = packed.as_ref().map_or(object.size, |packed| packed.length);
    let at = |e: Error| e.at_object(kept.source().display_name(&object.name));
    if range.end > size {
        let what = format!("index.json has {samples} samples, whose offsets alone are longer than the shard");
        return Err(at(bad(what)).at_range(0..size));
    }
    let bytes = part(kept, object, packed.as_ref(), range.clone()).await.map_err(at)?;
    let offsets = parse_offsets(&bytes, samples, size).map_err(|e| at(e).at_range(range))?;
    Ok(Stored::new(object, samples.into(), Within { offsets, packed }))
}
