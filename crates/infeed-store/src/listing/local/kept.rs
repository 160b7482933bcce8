//! The listing of a local folder in the form in which a [`Manifest`] keeps it.
//!
//! ```text
//! "infeed folder 2\n", blocks of files (`object_table.rs`), then the table (`table_file.rs`):
//!   u128 identity of the place; u128 hash of the blocks; varint 1 if all files are in the order of names, else 0
//!   varint folders, then each in the order of names:
//!     name; inode, length and two times, u64 each; names of subfolders; names to look up again
//!     varint blocks, then of each: varint files, varint bytes
//! ```
//!
//! Names to look up again are links, whose targets can change without a change of their folder, and files that may be
//! read in parts, whose size must be right. They are not among the files.
//!
//! Opening reads the table. Files are read all at once if a folder has changed or the dataset needs a list of them;
//! otherwise ([`KeptFiles`]) a block when one of its files is needed.

use std::{
    collections::{HashMap, HashSet},
    io::Write,
    ops::Range,
    sync::Arc,
};

use infeed_core::{error::Result, fingerprint::Fingerprint};
use xxhash_rust::xxh3::xxh3_128;

use super::{found::FolderFiles, stamp::Stamp};
use crate::{
    Blocks, KeptFiles, Object, ObjectTable, Parts,
    manifest::{Manifest, Rest, number, text},
    table_file::end_table,
};

pub(crate) const MAGIC: &[u8; 16] = b"infeed folder 2\n";

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
    /// Its files, without those in `taken`.
    pub(crate) found: FolderFiles,
    /// What is needed to trust the listing later; `None` if the folder must be listed each time.
    pub(super) kept: Option<Kept>,
    /// The blocks of its files in the manifest, if it is unchanged.
    pub(super) taken: Option<Range<usize>>,
}

/// The kept folders, by name, with the blocks of their files.
pub(super) type Folders = HashMap<String, (Kept, Range<usize>)>;

/// What a manifest contains.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) folders: Folders,
    pub(super) files: KeptFiles,
    pub(super) is_ordered: bool,
}

impl Saved {
    /// `None` if nothing is kept, or if it is wrong.
    pub(super) fn load(manifest: &Manifest, place: Fingerprint) -> Option<Self> {
        let found = decode(manifest.open()?, Some(manifest.clone()), place);
        found.inspect_err(|wrong| manifest.forget(wrong)).ok()
    }
}

/// The files in these blocks, which are those of `folder`.
pub(super) fn files_of(table: &ObjectTable, folder: &str, blocks: Range<usize>) -> Result<FolderFiles> {
    let (mut before, mut is_sound) = (String::new(), true);
    let found = table.fold_blocks(blocks, FolderFiles::of(folder), |mut found, name, size| {
        // In order, so that no name is there twice. Names must not be longer than `FolderFiles` allows.
        let base = name.strip_prefix(folder).filter(|base| is_base(base) && *base > &*before);
        match base.filter(|base| u16::try_from(base.len()).is_ok()) {
            Some(base) => {
                base.clone_into(&mut before);
                found.add(base, size);
            }
            None => is_sound = false,
        }
        found
    })?;
    if is_sound { Ok(found) } else { Err(table.invalid()) }
}

/// Keeps the folders that may be trusted later; they are in the order of names. Returns what is kept.
pub(super) fn keep(folders: &[Listed], manifest: &Manifest, place: Fingerprint) -> Option<Saved> {
    let (blocks, table) = encode(folders, place);
    manifest.store_by(|file| {
        file.write_all(MAGIC)?;
        blocks.write(file)?;
        file.write_all(&table)
    })?;
    Saved::load(manifest, place)
}

fn encode(folders: &[Listed], place: Fingerprint) -> (Blocks, Vec<u8>) {
    let kept = || folders.iter().filter_map(|listed| Some((&listed.found, listed.kept.as_ref()?)));
    let mut of_folder = Vec::new();
    let blocks = kept().flat_map(|(found, kept)| {
        let again: HashSet<&str> = kept.again.iter().map(String::as_str).collect();
        let files: Vec<_> = found.files().filter(|(name, _)| again.is_empty() || !again.contains(name)).collect();
        let object = |(base, size): &(&str, u64)| Object::new([&found.folder, *base].concat(), *size);
        let blocks = files.chunks(ObjectTable::BLOCK).map(|block| block.iter().map(object).collect());
        let blocks: Vec<Vec<Object>> = blocks.collect();
        of_folder.push(blocks.len());
        blocks
    });
    let files = ObjectTable::of_blocks(blocks.map(Vec::into_iter));
    let mut before = String::new();
    let is_ordered = files.fold(true, |is_ordered, name, _| {
        let follows = name > &*before;
        name.clone_into(&mut before);
        is_ordered && follows
    });
    let hash = files.blocks.parts.read(0..files.blocks.len()).map_or(0, |bytes| xxh3_128(&bytes));
    let mut table = [place.0.to_le_bytes(), hash.to_le_bytes()].concat();
    number(&mut table, is_ordered.unwrap_or(false).into());
    number(&mut table, of_folder.len() as u64);
    let mut sizes = files.block_sizes();
    for ((found, kept), blocks) in kept().zip(&of_folder) {
        text(&mut table, &found.folder);
        kept.stamp.0.iter().for_each(|value| table.extend_from_slice(&value.to_le_bytes()));
        for names in [&kept.folders, &kept.again] {
            number(&mut table, names.len() as u64);
            names.iter().for_each(|name| text(&mut table, name));
        }
        number(&mut table, *blocks as u64);
        for (files, bytes) in sizes.by_ref().take(*blocks) {
            number(&mut table, files);
            number(&mut table, bytes);
        }
    }
    end_table(MAGIC, MAGIC.len() as u64 + files.blocks.len(), &mut table);
    drop(sizes);
    (files.blocks, table)
}

/// Decodes arbitrary bytes: folders, or a description of what is wrong, for a warning. `manifest` is forgotten if a
/// block turns out to be damaged.
pub(super) fn decode(parts: Parts, manifest: Option<Manifest>, place: Fingerprint) -> Result<Saved, String> {
    let (table, begins) = parts.table(MAGIC)?;
    if !table.starts_with(&place.0.to_le_bytes()) {
        return Err("it is of another folder".into());
    }
    saved(&table, begins, parts, manifest).ok_or_else(|| "its content is invalid".into())
}

fn saved(table: &[u8], begins: u64, parts: Parts, kept: Option<Manifest>) -> Option<Saved> {
    let mut rest = Rest(table);
    rest.take(32)?;
    let is_ordered = [false, true].get(usize::try_from(rest.number()?).ok()?).copied()?;
    let count = rest.count(36)?;
    let mut folders = HashMap::with_capacity(count);
    let (mut ends, mut files, mut end) = (Vec::new(), Vec::new(), 0_u64);
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
        let first = ends.len();
        for _ in 0..rest.count(2)? {
            files.push(rest.number().filter(|files| (1..=ObjectTable::BLOCK as u64).contains(files))?);
            end = end.checked_add(rest.number()?)?;
            ends.push(end);
        }
        if folders.insert(name.to_owned(), (kept, first..ends.len())).is_some() {
            return None;
        }
    }
    let start = MAGIC.len() as u64;
    (rest.is_empty() && begins.checked_sub(start) == Some(end)).then(|| {
        let blocks = Blocks { parts: Arc::new(parts), start, ends, kept };
        let files = Arc::new(ObjectTable::in_blocks(blocks, files));
        Saved { folders, files: KeptFiles { table: files, identity: xxh3_128(table) }, is_ordered }
    })
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
        Listed { found, kept: Some(kept), taken: None }
    }

    fn some() -> Vec<Listed> {
        let more: Vec<String> = (1000..1300).map(|i| format!("n_{i}.JPEG")).collect();
        let more: Vec<(&str, u64)> = more.iter().map(|name| (name.as_str(), name.len() as u64)).collect();
        vec![
            listed("", &[("labels.csv", 7), ("x.jpg", 0), ("ä.jpg", u64::MAX)], &["labels.csv", "link"], &["a", "b"]),
            listed("a/", &[], &[], &["ö"]),
            listed("a/ö/", &more, &[], &[]),
            Listed { found: FolderFiles::of("b/"), kept: None, taken: None },
        ]
    }

    /// A kept file.
    fn file(folders: &[Listed], place: Fingerprint) -> Vec<u8> {
        let (blocks, table) = encode(folders, place);
        [MAGIC, &*blocks.parts.read(0..blocks.len()).unwrap(), &table].concat()
    }

    fn opened(bytes: &[u8], place: Fingerprint) -> Result<Saved, String> {
        decode(Parts::Held(bytes.to_vec().into()), None, place)
    }

    /// The files of all folders.
    fn files(saved: &Saved) -> infeed_core::error::Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        for (folder, (_, blocks)) in &saved.folders {
            let found = files_of(&saved.files.table, folder, blocks.clone())?;
            all.extend(found.files().map(|(name, size)| (format!("{folder}{name}"), size)));
        }
        all.sort();
        Ok(all)
    }

    #[test]
    fn what_is_kept_is_loaded_without_what_is_looked_up_again() {
        let place = Fingerprint(7);
        let saved = opened(&file(&some(), place), place).unwrap();
        assert_eq!(saved.folders.len(), 3, "one is listed each time");
        let (kept, blocks) = &saved.folders[""];
        assert_eq!((kept.again.join(" "), kept.folders.join(" ")), ("labels.csv link".into(), "a b".into()));
        let top = files_of(&saved.files.table, "", blocks.clone()).unwrap();
        assert_eq!(top.files().collect::<Vec<_>>(), [("x.jpg", 0), ("ä.jpg", u64::MAX)]);
        let (_, blocks) = &saved.folders["a/ö/"];
        assert_eq!(files_of(&saved.files.table, "a/ö/", blocks.clone()).unwrap().len(), 300);
        assert!(!saved.is_ordered, "x.jpg comes after a/ö/n_1000.JPEG");
        assert!(opened(&file(&some()[1..], place), place).unwrap().is_ordered);
        let other = listed("a/ö/", &[("n_1000.JPEG", 12)], &[], &[]);
        let sizes = [11, 12].map(|size| listed("a/ö/", &[("n_1000.JPEG", size)], &[], &[]));
        let identity = |one: &Listed| opened(&file(std::slice::from_ref(one), place), place).unwrap().files.identity;
        assert_eq!(identity(&other), identity(&sizes[1]));
        assert_ne!(identity(&sizes[0]), identity(&sizes[1]), "another size is another listing");
    }

    #[test]
    fn damage_and_other_places_are_found() {
        let place = Fingerprint(7);
        let bytes = file(&some(), place);
        let want = files(&opened(&bytes, place).unwrap()).unwrap();
        assert_eq!(want.len(), 302);
        assert_eq!(opened(&bytes, Fingerprint(8)).unwrap_err(), "it is of another folder");
        for at in 0..bytes.len() {
            assert!(opened(&bytes[..at], place).is_err(), "cut at {at}");
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            assert!(opened(&other, place).is_err() || files(&opened(&other, place).unwrap()).is_err(), "{at}");
        }
        let names = |names: &[&str]| listed("", &names.iter().map(|name| (*name, 1)).collect::<Vec<_>>(), &[], &[]);
        let wrong = [
            listed("a", &[], &[], &[]),
            listed("a//", &[], &[], &[]),
            listed("../", &[], &[], &[]),
            names(&["../x.jpg"]),
            names(&["b", "a"]),
            names(&["a", "a"]),
            listed("", &[], &["a/b"], &[]),
            listed("", &[], &[], &[".."]),
        ];
        for one in wrong {
            let bytes = file(std::slice::from_ref(&one), place);
            assert!(opened(&bytes, place).is_err() || files(&opened(&bytes, place).unwrap()).is_err(), "{one:?}");
        }
    }

    proptest! {
        /// With correct checksums, as another writer could produce them.
        #[test]
        fn any_table_gives_folders_or_nothing(at in 0usize..200, flip in any::<u8>(), cut in 0usize..100) {
            let place = Fingerprint(7);
            let bytes = file(&some(), place);
            let (mut table, begins) = Parts::Held(bytes.clone().into()).table(MAGIC).unwrap();
            let at = at % table.len();
            table[at] ^= flip;
            table.truncate(table.len() - cut % table.len());
            if let Some(saved) = saved(&table, begins, Parts::Held(bytes.into()), None) {
                let _ = files(&saved);
                (0..saved.files.table.len()).for_each(|file| drop(saved.files.table.get(file)));
            }
        }
    }
}
