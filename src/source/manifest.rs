//! What a listing found, kept for the next time.
//!
//! A million objects take a thousand requests to list, one after another within a folder; a manifest takes a look at
//! 16 of those thousand pages. It is kept for buckets alone, from [`WORTH`] objects on, below `INFEED_MANIFEST_DIR`,
//! else `$XDG_CACHE_HOME/infeed`, else `~/.cache/infeed`; `INFEED_MANIFEST_DIR=off` keeps none.
//!
//! ```text
//! "infeed manifest 1\n"
//! u64 objects, u64 bytes of the body, u128 xxh3 of the body                  little-endian
//! body: u128 identity of the place (endpoint, bucket, prefix), then each object in the order of names:
//!   varint bytes shared with the name before, varint more bytes, those; varint size;
//!   etag: 0 none | 1 and 16 bytes of "32 hex digits" in quotes | 2, varint length, text
//! ```
//!
//! It is written aside and renamed, so that a crash leaves the old one and two jobs do not mix. A damaged one is
//! rebuilt with a warning. A sound one is compared with the store at both ends and at places that change from open
//! to open; any difference rebuilds it, with a warning. A few changed objects among a million may stay unnoticed here;
//! reading them finds out, since they have another length or ETag then.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use xxhash_rust::xxh3::xxh3_128;

use super::Object;
use crate::fingerprint::Fingerprint;

const MAGIC: &[u8] = b"infeed manifest 1\n";
const HEAD: usize = MAGIC.len() + 8 + 8 + 16;
/// With fewer, a look at the pages is the listing itself.
pub(super) const WORTH: usize = 20_000;

/// Where the manifest of a place is kept.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    file: PathBuf,
    place: Fingerprint,
}

impl Manifest {
    /// `dir` exists or will be made. Two stores may have buckets of the same name: `endpoint` tells them apart.
    pub(super) fn new(dir: &Path, endpoint: &str, url: &str) -> Self {
        let place = Fingerprint::of("place").text(endpoint).text(url).finish();
        Self { file: dir.join(format!("{place}.manifest")), place }
    }

    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// The objects in the order of names; `None` when there is no manifest.
    ///
    /// # Errors
    /// What is wrong with it, in words for a warning.
    pub(super) fn load(&self) -> Result<Option<Vec<Object>>, String> {
        match fs::read(&self.file) {
            Ok(bytes) => decode(&bytes, self.place).map(Some),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(format!("it cannot be read: {e}")),
        }
    }

    /// `objects` are in the order of names.
    pub(super) fn store(&self, objects: &[Object]) -> io::Result<()> {
        let dir = self.file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(dir)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let aside = self.file.with_extension(format!("{}-{now}.tmp", std::process::id()));
        let written = fs::write(&aside, encode(objects, self.place)).and_then(|()| fs::rename(&aside, &self.file));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    }

    /// Removes one that was found wrong.
    pub(super) fn forget(&self) {
        let _ = fs::remove_file(&self.file);
    }
}

fn encode(objects: &[Object], place: Fingerprint) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + 16 + objects.len() * 40);
    out.resize(HEAD, 0);
    out.extend_from_slice(&place.0.to_le_bytes());
    let mut before: &[u8] = &[];
    for object in objects {
        let name = object.name.as_bytes();
        let shared = name.iter().zip(before).take_while(|(a, b)| a == b).count();
        number(&mut out, shared as u64);
        number(&mut out, (name.len() - shared) as u64);
        out.extend_from_slice(&name[shared..]);
        number(&mut out, object.size);
        match object.etag.as_deref().map(|etag| (etag, digits(etag))) {
            None => out.push(0),
            Some((_, Some(value))) => {
                out.push(1);
                out.extend_from_slice(&value.to_be_bytes());
            }
            Some((etag, None)) => {
                out.push(2);
                number(&mut out, etag.len() as u64);
                out.extend_from_slice(etag.as_bytes());
            }
        }
        before = name;
    }
    let body = &out[HEAD..];
    let (length, sum) = (body.len() as u64, xxh3_128(body));
    out[..MAGIC.len()].copy_from_slice(MAGIC);
    let head = [&(objects.len() as u64).to_le_bytes()[..], &length.to_le_bytes(), &sum.to_le_bytes()].concat();
    out[MAGIC.len()..HEAD].copy_from_slice(&head);
    out
}

/// The value of an ETag of the usual form: 32 lower-case hex digits in quotes.
fn digits(etag: &str) -> Option<u128> {
    let hex = etag.strip_prefix('"')?.strip_suffix('"')?;
    let plain = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    plain.then(|| u128::from_str_radix(hex, 16).ok())?
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Any bytes give objects or words.
fn decode(bytes: &[u8], place: Fingerprint) -> Result<Vec<Object>, String> {
    let Some((head, body)) = bytes.split_at_checked(HEAD) else { return Err("it is cut off".into()) };
    let Some(head) = head.strip_prefix(MAGIC) else { return Err("it is of another version".into()) };
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    let (count, length) = (word(0), word(8));
    let sum = u128::from_le_bytes(head[16..32].try_into().expect("sixteen bytes"));
    if body.len() as u64 != length {
        return Err(format!("it has {} of {length} bytes", body.len()));
    }
    if xxh3_128(body) != sum {
        return Err("its checksum is wrong".into());
    }
    objects(body, count, place).ok_or_else(|| "it makes no sense".into())
}

fn objects(body: &[u8], count: u64, place: Fingerprint) -> Option<Vec<Object>> {
    let mut rest = body;
    if take(&mut rest, 16)? != place.0.to_le_bytes() {
        return None;
    }
    // Each takes four bytes at least; the count is not trusted with memory before.
    let count = usize::try_from(count).ok().filter(|count| *count <= rest.len() / 4)?;
    let mut objects = Vec::with_capacity(count);
    let mut name = Vec::new();
    for _ in 0..count {
        let shared = usize::try_from(varint(&mut rest)?).ok().filter(|n| *n <= name.len())?;
        let more = usize::try_from(varint(&mut rest)?).ok()?;
        name.truncate(shared);
        name.extend_from_slice(take(&mut rest, more)?);
        let size = varint(&mut rest)?;
        let etag = match take(&mut rest, 1)? {
            [0] => None,
            [1] => {
                let value = u128::from_be_bytes(take(&mut rest, 16)?.try_into().ok()?);
                Some(format!("\"{value:032x}\""))
            }
            [2] => {
                let length = usize::try_from(varint(&mut rest)?).ok()?;
                Some(str::from_utf8(take(&mut rest, length)?).ok()?.to_owned())
            }
            _ => return None,
        };
        objects.push(Object { name: str::from_utf8(&name).ok()?.to_owned(), size, etag });
    }
    rest.is_empty().then_some(objects)
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, more) = rest.split_at_checked(count)?;
    *rest = more;
    Some(taken)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(rest, 1)?[0];
        value |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(count: usize) -> Vec<Object> {
        let mut objects: Vec<_> = (0..count)
            .map(|i| Object {
                name: format!("train/n{:08}/n{:08}_{i}.JPEG", i % 1000, i % 1000),
                size: 100_000 + (i as u64 * 7919) % 20_000,
                etag: Some(format!("\"{:032x}\"", xxh3_128(&i.to_le_bytes()))),
            })
            .collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        objects
    }

    #[test]
    fn what_is_stored_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(&dir.path().join("new"), "https://x", "s3://b/p");
        assert_eq!(manifest.load(), Ok(None));
        let mut objects = some(500);
        objects.push(Object { name: "ä/ö".into(), size: u64::MAX, etag: None });
        objects.push(Object { name: "ä/ü".into(), size: 0, etag: Some("W/\"x-2\"".into()) });
        objects.push(Object { name: "ä/üx".into(), size: 0, etag: Some(format!("\"{}\"", "F".repeat(32))) });
        manifest.store(&objects).unwrap();
        assert_eq!(manifest.load().unwrap().unwrap(), objects);
        assert_eq!(fs::read_dir(dir.path().join("new")).unwrap().count(), 1, "nothing is left beside it");
        // Of another store, or another place of this one.
        for (endpoint, url) in [("https://y", "s3://b/p"), ("https://x", "s3://b/q")] {
            assert_ne!(Manifest::new(dir.path(), endpoint, url).file, manifest.file);
        }
        manifest.forget();
        assert_eq!(manifest.load(), Ok(None));
    }

    #[test]
    fn damage_is_found_wherever_it_is() {
        let place = Fingerprint(7);
        let bytes = encode(&some(20), place);
        assert!(decode(&bytes, place).is_ok());
        assert!(decode(&bytes, Fingerprint(8)).is_err());
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], place).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(decode(&other, place).is_err(), "byte {at}");
        }
    }

    proptest! {
        /// With a checksum that is right, as somebody's own writer would make it.
        #[test]
        fn any_body_gives_objects_or_nothing(body in prop::collection::vec(any::<u8>(), 0..200), count in 0_u64..50) {
            let body = [&Fingerprint(1).0.to_le_bytes()[..], &body].concat();
            let _ = objects(&body, count, Fingerprint(1));
        }
    }

    /// `cargo test --release --lib a_million -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement that checks no promise: README, Development, says how to run it"]
    fn a_million_objects() {
        let objects = some(1_000_000);
        let dir = tempfile::tempdir().unwrap();
        let manifest = Manifest::new(dir.path(), "https://x", "s3://b/p");
        let start = std::time::Instant::now();
        manifest.store(&objects).unwrap();
        let stored = start.elapsed();
        let start = std::time::Instant::now();
        assert_eq!(manifest.load().unwrap().unwrap().len(), 1_000_000);
        let size = fs::metadata(manifest.file()).unwrap().len();
        use std::io::Write as _;
        let loaded = start.elapsed();
        writeln!(std::io::stderr(), "{size} bytes, stored in {stored:?}, loaded in {loaded:?}").unwrap();
    }
}
