//! The listing of a bucket in the form in which a [`Manifest`](crate::manifest::Manifest) keeps it.
//!
//! Listing a million objects takes a thousand requests, one after another within a folder. With a manifest, 16 of those
//! thousand pages are requested.
//!
//! ```text
//! "infeed manifest 2\n", length and hash
//! body: u128 identity of the place (endpoint, bucket, prefix), varint objects, then each in the order of names, as in
//!   a block of `object_table.rs`
//! ```

use infeed_core::fingerprint::Fingerprint;

use crate::{
    Object,
    manifest::{Rest, body, number, seal, unsealed},
    object_table::{entry, put},
};

pub(crate) const MAGIC: &[u8] = b"infeed manifest 2\n";

/// `objects` must be ordered by name.
pub(crate) fn encode(objects: &[Object], place: Fingerprint) -> Vec<u8> {
    let mut out = unsealed(MAGIC, 32 + objects.len() * 40);
    out.extend_from_slice(&place.0.to_le_bytes());
    number(&mut out, objects.len() as u64);
    let mut before = Vec::new();
    objects.iter().for_each(|object| put(&mut out, &mut before, object));
    seal(MAGIC, out)
}

/// Decodes arbitrary bytes: objects ordered by name, or a description of the problem for a warning.
pub(crate) fn decode(bytes: &[u8], place: Fingerprint) -> Result<Vec<Object>, String> {
    objects(body(MAGIC, bytes)?, place).ok_or_else(|| "its content is invalid".into())
}

fn objects(body: &[u8], place: Fingerprint) -> Option<Vec<Object>> {
    let mut rest = Rest(body);
    if rest.take(16)? != place.0.to_le_bytes() {
        return None;
    }
    let mut name = Vec::new();
    let objects = rest.list(4, |rest| {
        let (size, tag) = entry(rest, &mut name)?;
        Some(Object { name: str::from_utf8(&name).ok()?.to_owned(), size, etag: tag.text() })
    });
    objects.filter(|_| rest.0.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_128;

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
        let mut objects = some(500);
        objects.push(Object { name: "ä/ö".into(), size: u64::MAX, etag: None });
        objects.push(Object { name: "ä/ü".into(), size: 0, etag: Some("W/\"x-2\"".into()) });
        objects.push(Object { name: "ä/üx".into(), size: 0, etag: Some(format!("\"{}\"", "F".repeat(32))) });
        let place = Fingerprint(7);
        assert_eq!(decode(&encode(&objects, place), place), Ok(objects));
        assert_eq!(decode(&encode(&[], place), place), Ok(vec![]));
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
        /// With a correct checksum, as another writer could produce it.
        #[test]
        fn any_body_gives_objects_or_nothing(body in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..50) {
            let body = [&Fingerprint(1).0.to_le_bytes()[..], &[count], &body].concat();
            let _ = objects(&body, Fingerprint(1));
        }
    }

    /// `cargo test --release -p infeed-store --all-features a_million -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement that checks no promise: CONTRIBUTING, Measure, says how to run it"]
    fn a_million_objects() {
        let objects = some(1_000_000);
        let start = std::time::Instant::now();
        let bytes = encode(&objects, Fingerprint(7));
        let encoded = start.elapsed();
        let start = std::time::Instant::now();
        assert_eq!(decode(&bytes, Fingerprint(7)).unwrap().len(), 1_000_000);
        use std::io::Write as _;
        let decoded = start.elapsed();
        let size = bytes.len();
        writeln!(std::io::stderr(), "{size} bytes, encoded in {encoded:?}, decoded in {decoded:?}").unwrap();
    }
}
