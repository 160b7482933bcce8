//! The listing of a local folder in the form in which a [`Manifest`](crate::manifest::Manifest) keeps it.
//!
//! ```text
//! "infeed folder 1\n", length and hash
//! body: u128 identity of the place, varint folders, then each:
//!   name; inode, length and two times, u64 each; names of subfolders; names to look up again; files
//!   files: varint number, then each in the order of names:
//!     varint bytes shared with the name before, varint more bytes, those; varint size
//! ```
//!
//! Names to look up again are links, whose targets can change without a change of their folder, and files that may be
//! read in parts, whose size must be right. They are not listed among the files.

use std::collections::HashMap;

use infeed_core::fingerprint::Fingerprint;

use super::{found::FolderFiles, stamp::Stamp};
use crate::manifest::{Rest, body, number, seal, text, unsealed};

pub(crate) const MAGIC: &[u8] = b"infeed folder 1\n";

/// What is kept of a folder in addition to its files.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) stamp: Stamp,
    /// Names of its subfolders that are not links.
    pub(super) folders: Vec<String>,
    /// Names that are looked up each time: links, which can change without a change of their folder, and files that may
    /// be read in parts.
    pub(super) again: Vec<String>,
}

/// A folder that was listed.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) found: FolderFiles,
    /// What is needed to trust the listing later; `None` if the folder must be listed each time.
    pub(super) kept: Option<Kept>,
    /// Whether it came from the manifest.
    pub(super) taken: bool,
}

/// The kept folders, by name.
#[derive(Debug, Default)]
pub(super) struct Saved(HashMap<String, (FolderFiles, Kept)>);

impl Saved {
    /// What was kept of a folder, if the folder is unchanged.
    pub(super) fn take(&mut self, folder: &str, stamp: Stamp) -> Option<(FolderFiles, Kept)> {
        self.0.remove(folder).filter(|(_, kept)| kept.stamp == stamp)
    }
}

/// Encodes the folders that may be trusted later.
pub(super) fn encode(folders: &[Listed], place: Fingerprint) -> Vec<u8> {
    let kept = || folders.iter().filter_map(|listed| Some((&listed.found, listed.kept.as_ref()?)));
    let (count, files) = kept().fold((0, 0), |(count, files), (found, _)| (count + 1, files + found.len()));
    let mut out = unsealed(MAGIC, 32 + files * 24 + count * 80);
    out.extend_from_slice(&place.0.to_le_bytes());
    number(&mut out, count as u64);
    for (found, kept) in kept() {
        text(&mut out, &found.folder);
        kept.stamp.0.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        for names in [&kept.folders, &kept.again] {
            number(&mut out, names.len() as u64);
            names.iter().for_each(|name| text(&mut out, name));
        }
        let again: std::collections::HashSet<&str> = kept.again.iter().map(String::as_str).collect();
        let files = || found.files().filter(|(name, _)| again.is_empty() || !again.contains(name));
        number(&mut out, files().count() as u64);
        let mut before: &[u8] = &[];
        for (name, size) in files() {
            let name = name.as_bytes();
            let shared = name.iter().zip(before).take_while(|(a, b)| a == b).count();
            number(&mut out, shared as u64);
            number(&mut out, (name.len() - shared) as u64);
            out.extend_from_slice(&name[shared..]);
            number(&mut out, size);
            before = name;
        }
    }
    seal(MAGIC, out)
}

/// Decodes arbitrary bytes: folders, or a description of what is wrong, for a warning.
pub(super) fn decode(bytes: &[u8], place: Fingerprint) -> Result<Saved, String> {
    let body = body(MAGIC, bytes)?;
    if !body.starts_with(&place.0.to_le_bytes()) {
        return Err("it is of another folder".into());
    }
    saved(&body[16..]).ok_or_else(|| "its content is invalid".into())
}

fn saved(body: &[u8]) -> Option<Saved> {
    let mut rest = Rest(body);
    let count = rest.count(36)?;
    let mut folders = HashMap::with_capacity(count);
    for _ in 0..count {
        let name = rest.text()?;
        // Empty, or parts that each end with `/`.
        if !name.is_empty() && !name.strip_suffix('/')?.split('/').all(is_base) {
            return None;
        }
        let mut stamp = [0; 4];
        for value in &mut stamp {
            *value = u64::from_le_bytes(rest.take(8)?.try_into().ok()?);
        }
        let mut names = || rest.list(1, |rest| rest.text().filter(|name| is_base(name)).map(str::to_owned));
        let kept = Kept { stamp: Stamp(stamp), folders: names()?, again: names()? };
        let found = files(name, &mut rest)?;
        if folders.insert(name.to_owned(), (found, kept)).is_some() {
            return None;
        }
    }
    rest.0.is_empty().then_some(Saved(folders))
}

fn files(folder: &str, rest: &mut Rest<'_>) -> Option<FolderFiles> {
    let count = rest.count(3)?;
    let mut found = FolderFiles::of(folder);
    let (mut name, mut before) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let shared = usize::try_from(rest.number()?).ok().filter(|n| *n <= name.len())?;
        let more = usize::try_from(rest.number()?).ok()?;
        before.clone_from(&name);
        name.truncate(shared);
        name.extend_from_slice(rest.take(more)?);
        let base = str::from_utf8(&name).ok().filter(|base| is_base(base))?;
        // In order, so that no name is there twice. Names must not be longer than `FolderFiles` allows.
        (before < name && u16::try_from(name.len()).is_ok()).then_some(())?;
        found.add(base, rest.number()?);
    }
    Some(found)
}

/// Whether it is a name within a folder that a listing shows.
fn is_base(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\0']) && !super::is_hidden(name.as_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(folder: &str, files: &[(&str, u64)], again: &[&str], folders: &[&str]) -> Listed {
        let mut found = FolderFiles::of(folder);
        files.iter().for_each(|(name, size)| found.add(name, *size));
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let kept = Kept { stamp: Stamp([1, 2, 3, u64::MAX]), folders: owned(folders), again: owned(again) };
        Listed { found, kept: Some(kept), taken: false }
    }

    fn some() -> Vec<Listed> {
        let more: Vec<String> = (1000..1300).map(|i| format!("n_{i}.JPEG")).collect();
        let more: Vec<(&str, u64)> = more.iter().map(|name| (name.as_str(), name.len() as u64)).collect();
        vec![
            listed("", &[("labels.csv", 7), ("x.jpg", 0), ("ä.jpg", u64::MAX)], &["labels.csv", "link"], &["a", "b"]),
            listed("a/", &[], &[], &["ö"]),
            listed("a/ö/", &more, &[], &[]),
            Listed { found: FolderFiles::of("b/"), kept: None, taken: false },
        ]
    }

    #[test]
    fn what_is_kept_is_loaded_without_what_is_looked_up_again() {
        let place = Fingerprint(7);
        let mut saved = decode(&encode(&some(), place), place).unwrap();
        assert_eq!(saved.0.len(), 3, "one is listed each time");
        let stamp = Stamp([1, 2, 3, u64::MAX]);
        let (found, kept) = saved.take("", stamp).unwrap();
        assert_eq!(found.files().collect::<Vec<_>>(), [("x.jpg", 0), ("ä.jpg", u64::MAX)]);
        assert_eq!((kept.again.join(" "), kept.folders.join(" ")), ("labels.csv link".into(), "a b".into()));
        assert!(saved.take("a/", Stamp([1, 2, 3, 4])).is_none(), "it has changed");
        assert_eq!(saved.take("a/ö/", stamp).unwrap().0.len(), 300);
    }

    #[test]
    fn damage_and_other_places_are_found() {
        let place = Fingerprint(7);
        let bytes = encode(&some(), place);
        assert_eq!(decode(&bytes, Fingerprint(8)).unwrap_err(), "it is of another folder");
        for at in 0..bytes.len() {
            assert!(decode(&bytes[..at], place).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(decode(&other, place).is_err(), "byte {at}");
        }
        let wrong = [
            listed("a", &[], &[], &[]),
            listed("a//", &[], &[], &[]),
            listed("../", &[], &[], &[]),
            listed("", &[("../x.jpg", 1)], &[], &[]),
            listed("", &[("b", 1), ("a", 1)], &[], &[]),
            listed("", &[("a", 1), ("a", 1)], &[], &[]),
            listed("", &[], &["a/b"], &[]),
            listed("", &[], &[], &[".."]),
        ];
        for one in wrong {
            let bytes = encode(std::slice::from_ref(&one), place);
            assert!(decode(&bytes, place).is_err(), "{one:?}");
        }
    }

    proptest! {
        /// With a correct checksum, as another writer could produce it.
        #[test]
        fn any_body_gives_folders_or_nothing(body in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..50) {
            let _ = saved(&[&[count], &body[..]].concat());
        }
    }
}
