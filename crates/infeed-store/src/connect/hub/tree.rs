//! Parses pages of a listing.

use infeed_core::error::{Error, ErrorKind, Result};
use object_store::{ObjectMeta, path::Path};
use serde::Deserialize;

#[derive(Deserialize)]
struct Entry {
    r#type: String,
    path: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    oid: String,
    lfs: Option<Lfs>,
}

/// Set if the file is in large-file storage: the hash is the file's SHA-256, the size is the file's.
#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

/// The number of entries on a page, and its files.
pub(super) fn parse(body: &[u8]) -> Result<(usize, Vec<ObjectMeta>)> {
    let entries: Vec<Entry> = serde_json::from_slice(body).map_err(|e| {
        Error::new(ErrorKind::Io, "the answer is not a listing")
            .with_hint("check HF_ENDPOINT, and whether there is a proxy or a log-in page in between")
            .with_source(e)
    })?;
    let count = entries.len();
    let files = entries.into_iter().filter(|entry| entry.r#type == "file").map(|entry| {
        let (size, oid) = match entry.lfs {
            Some(lfs) => (lfs.size, lfs.oid),
            None => (entry.size, entry.oid),
        };
        let location = Path::parse(&entry.path).map_err(|_| {
            Error::new(ErrorKind::Unsupported, format!("the listing holds {:?}: not a readable name", entry.path))
                .with_hint("open a folder without it")
        })?;
        let e_tag = (!oid.is_empty()).then_some(oid);
        Ok(ObjectMeta { location, last_modified: Default::default(), size, e_tag, version: None })
    });
    Ok((count, files.collect::<Result<_>>()?))
}

/// The query of the next page, from a header `Link: <https://…?cursor=…>; rel="next"`.
pub(super) fn next(link: &str) -> Option<&str> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\"") || part.contains("rel=next"))?;
    let (_, url) = next.split_once('<')?;
    let (url, _) = url.split_once('>')?;
    url.split_once('?').map(|(_, query)| query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_size_and_the_hash_of_where_they_lie() {
        let body = br#"[
            {"type": "directory", "oid": "d", "size": 0, "path": "data"},
            {"type": "file", "oid": "p", "size": 134, "path": "data/a b.parquet",
             "lfs": {"oid": "s", "size": 5000000000, "pointerSize": 134}, "xetHash": "x"},
            {"type": "file", "oid": "r", "size": 7, "path": "README.md"}
        ]"#;
        let (count, files) = parse(body).unwrap();
        let told: Vec<_> = files.iter().map(|f| (f.location.as_ref(), f.size, f.e_tag.as_deref())).collect();
        assert_eq!(told, [("data/a b.parquet", 5_000_000_000, Some("s")), ("README.md", 7, Some("r"))]);
        assert_eq!((count, parse(b"[]").unwrap().0), (3, 0));
        for wrong in [&b"<html>"[..], b"{\"error\":\"x\"}", b"", b"[{\"type\":\"file\",\"path\":\"a/../b\"}]"] {
            assert!(parse(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
        }
    }

    #[test]
    fn the_next_page_is_the_one_called_so() {
        assert_eq!(
            next("<https://h/api?recursive=true&cursor=ab%3D>; rel=\"next\""),
            Some("recursive=true&cursor=ab%3D")
        );
        assert_eq!(next("<https://h/?a=1>; rel=\"prev\", <https://h/?a=3>; rel=\"next\""), Some("a=3"));
        for none in ["", "<https://h/?a=1>; rel=\"prev\"", "rel=\"next\"", "<https://h/x>; rel=\"next\""] {
            assert_eq!(next(none), None);
        }
    }
}
