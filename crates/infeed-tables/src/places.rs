//! The positions of records in files, as an earlier opening found them: of TFRecords and of JSON lines.
//!
//! ```text
//! "infeed records 2\n"
//! u64 bytes of the body, u128 xxh3 of the body                                              little-endian
//! body: varint files, each:
//!         text name (varint length, UTF-8), varint size, text etag (empty: none), varint form (0: not compressed)
//!         varint records, each: varint bytes, of the content if it is compressed
//! ```
//!
//! A file is indexed again if its size or ETag differs. What a record begins with is read with the record (the length
//! and its crc, or the beginning of a JSON object), so wrong positions cause an error and never other records.

use std::collections::HashMap;

use futures::{FutureExt, TryStreamExt, future::BoxFuture};
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::{
    packed::{Packing, supported},
    passes::pass_each,
    table::Stored,
};
use infeed_store::{Manifest, Object, Rest, Source, body, number, seal, text, unsealed};

use crate::records::{RecordFile, Within};

/// Finds the positions in a file by one pass.
pub(crate) type Index = fn(Source, Object) -> BoxFuture<'static, Result<Within>>;

/// The forms of compressed files: the place here and 1.
const FORMS: [Packing; 4] = [Packing::Gzip, Packing::Zlib, Packing::Zstd, Packing::Bzip2];

const MAGIC: &[u8] = b"infeed records 2\n";

/// For a local folder without compressed files, positions are kept from this number of records on.
const KEPT: usize = 20_000;

/// Size and ETag of a file, and the positions of its records.
type Known = HashMap<String, (u64, Option<String>, Within)>;

fn parse(bytes: &[u8]) -> Result<Known, String> {
    let file = |rest: &mut Rest<'_>| {
        let (name, size) = (rest.text()?.to_owned(), rest.number()?);
        let etag = Some(rest.text()?).filter(|etag| !etag.is_empty()).map(str::to_owned);
        let packing = match rest.number()? {
            0 => None,
            form => Some(*FORMS.get(usize::try_from(form - 1).ok()?)?),
        };
        let mut starts = vec![0u64];
        for length in rest.list(1, Rest::number)? {
            starts.push(starts[starts.len() - 1].checked_add(length)?);
        }
        let is_whole = packing.is_some() || starts.len() == 1 || starts.last() == Some(&size);
        is_whole.then_some((name, (size, etag, Within { starts, packing })))
    };
    let mut rest = Rest::of(body(MAGIC, bytes)?);
    let files = rest.list(5, file).filter(|_| rest.is_empty());
    Ok(files.ok_or("its content is invalid")?.into_iter().collect())
}

/// Name, size and ETag of a file, and the positions of its records.
type Line<'a> = (&'a str, u64, Option<&'a str>, &'a Within);

fn encode(files: &[Line<'_>]) -> Vec<u8> {
    let mut out = unsealed(MAGIC, 0);
    number(&mut out, files.len() as u64);
    for (name, size, etag, Within { starts, packing }) in files {
        text(&mut out, name);
        number(&mut out, *size);
        text(&mut out, etag.unwrap_or_default());
        let form = FORMS.iter().position(|form| Some(*form) == *packing);
        number(&mut out, form.map_or(0, |at| at as u64 + 1));
        number(&mut out, starts.len() as u64 - 1);
        starts.windows(2).for_each(|pair| number(&mut out, pair[1] - pair[0]));
    }
    seal(MAGIC, out)
}

/// All files with the positions of their records: from the kept index, otherwise found by `index` in many files at a
/// time and kept.
pub(crate) async fn places(
    source: &Source,
    objects: &[&Object],
    kept: Option<&Manifest>,
    index: Index,
) -> Result<Vec<RecordFile>> {
    // This build may decompress nothing.
    let is_read = |within: &Within| within.packing.is_none() || supported("a compressed file").is_ok();
    let take = |known: &mut Known, object: &Object| {
        let (size, etag, within) = known.remove(&object.name)?;
        (object.is_still(size, etag.as_deref()) && is_read(&within)).then_some(within)
    };
    let look = || {
        let mut known = kept.and_then(|kept| kept.load(parse)).unwrap_or_default();
        let found: Vec<Option<Within>> = objects.iter().map(|object| take(&mut known, object)).collect();
        (known, found)
    };
    let (mut known, mut found) = look();
    let turn = if found.iter().any(Option::is_none) { source.machine_lock(kept).await } else { None };
    if turn.as_ref().is_some_and(|turn| turn.waited) {
        (known, found) = look();
    }
    let unknown = (0..objects.len()).filter(|i| found[*i].is_none());
    let todo: Vec<(usize, Object)> = unknown.map(|i| (i, objects[i].clone())).collect();
    let (of, count) = (source.clone(), todo.len());
    let one = move |at: usize| {
        let (source, (i, object)) = (of.clone(), todo[at].clone());
        async move { Ok((i, index(source, object).await?)) }.boxed()
    };
    let mut passes = pass_each(source, count, one);
    while let Some((i, within)) = passes.try_next().await? {
        found[i] = Some(within);
    }
    let found: Option<Vec<Within>> = found.into_iter().collect();
    let found = found.ok_or_else(|| Error::new(ErrorKind::Internal, "a file was not indexed"))?;
    let records: usize = found.iter().map(Within::records).sum();
    // For a few files on a local disk, finding positions is faster than reading a kept index, unless they are
    // compressed.
    let is_slow = source.folder().is_none() || found.iter().any(|within| within.packing.is_some());
    let is_worth = count > 0 && (is_slow || records >= KEPT);
    if let Some(kept) = kept.filter(|_| is_worth) {
        let lines = objects
            .iter()
            .zip(&found)
            .map(|(object, within)| -> Line<'_> { (&object.name, object.size, object.etag.as_deref(), within) });
        // Includes files that were not opened this time.
        let others =
            known.iter().map(|(name, (size, etag, within))| -> Line<'_> { (name, *size, etag.as_deref(), within) });
        let mut lines: Vec<_> = lines.chain(others).collect();
        lines.sort_unstable_by_key(|line| line.0);
        kept.store(&encode(&lines));
    }
    drop(turn);
    let stored = |(object, within): (&&Object, Within)| Stored::new(object, within.records() as u64, within);
    Ok(objects.iter().zip(found).map(stored).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn within(starts: &[u64], packing: Option<Packing>) -> Within {
        Within { starts: starts.to_vec(), packing }
    }

    fn some() -> Vec<u8> {
        let [a, b] = [within(&[0, 100, 300], None), within(&[0, 90], Some(Packing::Gzip))];
        encode(&[("a/x.tfrecord", 300, Some("\"e\""), &a), ("b.tfrecord", 7, None, &b)])
    }

    #[test]
    fn what_is_kept_is_read() {
        let known = parse(&some()).unwrap();
        assert_eq!(known["a/x.tfrecord"], (300, Some("\"e\"".to_owned()), within(&[0, 100, 300], None)));
        assert_eq!(known["b.tfrecord"], (7, None, within(&[0, 90], Some(Packing::Gzip))));
        let none = within(&[0], None);
        assert_eq!(
            parse(&encode(&[("x", 300, None, &none)])).unwrap()["x"],
            (300, None, none),
            "a file of empty lines"
        );
        let wrong = encode(&[("x", 300, None, &within(&[0, 100, 200], None))]);
        assert_eq!(parse(&wrong), Err("its content is invalid".to_owned()));
    }

    proptest! {
        #[test]
        fn any_body_gives_places_or_words(at in 0usize..60, flip in any::<u8>(), cut in 0usize..60) {
            let mut file = some();
            let start = MAGIC.len() + 24;
            let at = start + at.min(file.len() - start - 1);
            file[at] ^= flip;
            file.truncate(file.len().saturating_sub(cut).max(start));
            let _ = parse(&seal(MAGIC, file));
        }
    }
}
