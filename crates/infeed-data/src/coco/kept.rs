//! What was read of a large JSON, kept for later openings and for other processes of the machine.
//!
//! Parsing takes seconds and twice the memory of the file. In the kept file, the annotations of an image are in one
//! place, which is read when the image is. So they take no memory of the process, and all processes share the pages
//! that the system keeps of the file.
//!
//! ```text
//! "infeed coco 001\n", what is known of each image (`Marked`), captions of each (`Captions`), then the table
//!   (`infeed_store::end_table`):
//!   u128 identity of the files, u128 identity of all
//!   varint 1: annotations: varint most of an image, flat ones, 1 with masks, 1 with key points: varint count, texts
//!   varint 1: captions: varint most bytes of an image
//!   varint classes, texts; varint images, their names
//!   of each image: varint id (as u64), height, width, bytes of its annotations and of its captions, if there are any
//!   `LeftOut`: three varint counts, three texts; an empty text is none
//! ```
//!
//! The file's name has a hash of the JSON's name, of the options that change what is read of it, and of its content: of
//! its bytes for a local file, of its ETag for a store. So another JSON is another file, and the one before is removed.
//! A change of what is read of a JSON needs another number in `MAGIC`.

use std::{fs::File, io::Write, sync::Arc};

use infeed_core::fingerprint::Fingerprint;
use infeed_store::{Blocks, Manifest, Object, Parts, Rest, Source, end_table, number, text};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::resolve::{CALLED, LeftOut, Resolved, UNITS};
use crate::{
    captions::Captions,
    detection::{Identity, Notes},
    format::OpenOptions,
    marked::Marked,
};

const MAGIC: &[u8; 16] = b"infeed coco 001\n";

/// A JSON of this many bytes is worth a kept file. A smaller one is parsed in less than 100 ms.
const KEPT: u64 = 16 << 20;

/// Where the annotations of a JSON are kept.
#[derive(Debug)]
pub(super) struct Kept {
    manifest: Manifest,
    /// The hash of a local JSON.
    hash: Option<u64>,
}

impl Kept {
    /// `None` if the JSON is small, or nothing can be kept. Reads a local JSON once.
    pub(super) fn of(source: &Source, json: &Object, options: &OpenOptions) -> Option<Self> {
        if json.size < KEPT {
            return None;
        }
        let hash = match source.open_file(&json.name) {
            Some(file) => Some(hash_of(file.ok()?)?),
            None => None,
        };
        let version = hash.or_else(|| Some(xxh3_64(json.etag.as_deref()?.as_bytes())))?;
        let classes = options.classes.as_deref();
        let key = Fingerprint::of(&json.name)
            .number(json.size)
            .number(options.masks.into())
            .number(classes.map_or(0, |classes| 1 + classes.len() as u64));
        let key = classes.unwrap_or_default().iter().fold(key, |key, class| key.text(class)).finish();
        let manifest = source.manifest(&format!("coco-{key}-{version:016x}"), options.manifests.as_deref())?;
        Some(Self { manifest, hash })
    }

    pub(super) const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether these bytes of the JSON are those that it had when its hash was taken.
    pub(super) fn is_of(&self, json: &[u8]) -> bool {
        self.hash.is_none_or(|hash| hash == xxh3_64(json))
    }

    /// What is kept, if there is a sound file.
    pub(super) fn load(&self) -> Option<Resolved> {
        let parts = Arc::new(self.manifest.open()?);
        let found = parts.table(MAGIC).and_then(|(table, begins)| {
            parse(&table, begins, &parts, &self.manifest).ok_or_else(|| "its content is invalid".to_owned())
        });
        found.inspect_err(|wrong| self.manifest.forget(wrong)).ok()
    }

    /// Keeps what was read. Returns what was kept, whose annotations are read from the file; or the same, with a
    /// warning, if it can't be kept.
    pub(super) fn keep(&self, mut found: Resolved, identity: Identity) -> Resolved {
        found.notes.identity = Some(identity);
        self.manifest.forget_versions();
        let stored = self.manifest.store_by(|file| {
            file.write_all(MAGIC)?;
            let mut begins = MAGIC.len() as u64;
            for records in records_of(&found.notes).into_iter().flatten() {
                records.write(file)?;
                begins += records.len();
            }
            let mut table = encode(&found, identity);
            end_table(MAGIC, begins, &mut table);
            file.write_all(&table)
        });
        stored.and_then(|_| self.load()).unwrap_or(found)
    }
}

/// Hash of a file's content; `None` if it cannot be read, which the parser reports.
fn hash_of(file: File) -> Option<u64> {
    let mut hash = Xxh3::new();
    for piece in Parts::of_file(file).ok()?.pieces() {
        hash.update(&piece.ok()?);
    }
    Some(hash.digest())
}

/// The bytes of annotations and of captions.
fn records_of(notes: &Notes) -> [Option<&Blocks>; 2] {
    [notes.marked.as_ref().map(|marked| &marked.records), notes.captions.as_ref().map(|captions| &captions.records)]
}

fn texts(out: &mut Vec<u8>, texts: &[String]) {
    number(out, texts.len() as u64);
    texts.iter().for_each(|one| text(out, one));
}

fn encode(found: &Resolved, identity: Identity) -> Vec<u8> {
    let Resolved { names, ids, sizes, notes, classes, left_out } = found;
    let mut out = Vec::new();
    for print in [identity.files, identity.all] {
        out.extend_from_slice(&print.0.to_le_bytes());
    }
    number(&mut out, notes.marked.is_some().into());
    if let Some(marked) = &notes.marked {
        for value in [marked.most as u64, marked.flat as u64, marked.has_masks.into()] {
            number(&mut out, value);
        }
        number(&mut out, marked.keypoint_names.is_some().into());
        marked.keypoint_names.iter().for_each(|names| texts(&mut out, names));
    }
    number(&mut out, notes.captions.is_some().into());
    notes.captions.iter().for_each(|captions| number(&mut out, captions.most as u64));
    texts(&mut out, classes);
    texts(&mut out, names);
    for ((at, id), [height, width]) in ids.iter().enumerate().zip(sizes) {
        for value in [*id as u64, (*height).into(), (*width).into()] {
            number(&mut out, value);
        }
        for records in records_of(notes).into_iter().flatten() {
            number(&mut out, records.ends[at] - at.checked_sub(1).map_or(0, |before| records.ends[before]));
        }
    }
    let LeftOut { strangers, text_id, without, short, keypoints } = left_out;
    let none = (0, String::new());
    let (count, first) = strangers.as_ref().unwrap_or(&none);
    for value in [*count, *without, *short] {
        number(&mut out, value as u64);
    }
    for value in [first, text_id.as_ref().unwrap_or(&none.1), keypoints.as_ref().unwrap_or(&none.1)] {
        text(&mut out, value);
    }
    out
}

/// The content of the table of a file whose records end at `end`.
fn parse(table: &[u8], end: u64, parts: &Arc<Parts>, manifest: &Manifest) -> Option<Resolved> {
    let mut rest = Rest::of(table);
    let print = |rest: &mut Rest<'_>| Some(Fingerprint(u128::from_le_bytes(rest.take(16)?.try_into().ok()?)));
    let flag = |rest: &mut Rest<'_>| rest.number().and_then(|number| [false, true].get(number as usize).copied());
    let size = |rest: &mut Rest<'_>| usize::try_from(rest.number()?).ok();
    let side = |rest: &mut Rest<'_>| u32::try_from(rest.number()?).ok();
    let owned = |rest: &mut Rest<'_>| rest.text().map(str::to_owned);
    let identity = Some(Identity { files: print(&mut rest)?, all: print(&mut rest)? });
    let records = || Blocks {
        parts: Arc::clone(parts),
        start: MAGIC.len() as u64,
        ends: Vec::new(),
        kept: Some(manifest.clone()),
    };
    let mut marked = None;
    if flag(&mut rest)? {
        let (most, flat, has_masks) = (size(&mut rest)?, size(&mut rest)?, flag(&mut rest)?);
        let keypoint_names = if flag(&mut rest)? { Some(rest.list(1, owned)?.into()) } else { None };
        let (units, called) = (UNITS, CALLED);
        marked = Some(Marked { units, called, most, flat, has_masks, keypoint_names, records: records() });
    }
    let mut captions = None;
    if flag(&mut rest)? {
        captions = Some(Captions { most: size(&mut rest)?, records: records() });
    }
    let classes = rest.list(1, owned)?.into();
    let names = rest.list(1, owned)?;
    let (mut ids, mut sizes) = (Vec::with_capacity(names.len()), Vec::with_capacity(names.len()));
    let mut lists = [marked.as_mut().map(|m| &mut m.records), captions.as_mut().map(|c| &mut c.records)];
    for _ in 0..names.len() {
        ids.push(rest.number()? as i64);
        sizes.push([side(&mut rest)?, side(&mut rest)?]);
        for records in lists.iter_mut().flatten() {
            records.ends.push(records.len().checked_add(rest.number()?)?);
        }
    }
    let mut start = MAGIC.len() as u64;
    for records in lists.into_iter().flatten() {
        records.start = start;
        start = start.checked_add(records.len())?;
    }
    let (strangers, without, short) = (size(&mut rest)?, size(&mut rest)?, size(&mut rest)?);
    let unless_empty = |text: String| (!text.is_empty()).then_some(text);
    let (first, text_id, keypoints) = (owned(&mut rest)?, owned(&mut rest)?, owned(&mut rest)?);
    let left_out = LeftOut {
        strangers: (strangers > 0).then_some((strangers, first)),
        text_id: unless_empty(text_id),
        without,
        short,
        keypoints: unless_empty(keypoints),
    };
    let notes = Notes { marked, captions, identity };
    (start == end && rest.is_empty()).then_some(Resolved { names, ids, sizes, notes, classes, left_out })
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        sync::OnceLock,
    };

    use futures::executor::block_on;
    use proptest::prelude::*;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::{Dataset, Open, Value, dataset_contract, open_source, read_one::read};

    /// Three images in a folder: one with all kinds of annotations, one without any, one with a wrong box. And a folder
    /// for kept files.
    struct Place {
        data: TempDir,
        kept: TempDir,
    }

    impl Place {
        fn new() -> Self {
            let place = Self { data: TempDir::new().unwrap(), kept: TempDir::new().unwrap() };
            for name in ["a.jpg", "b.jpg", "c.jpg"] {
                fs::write(place.data.path().join(name), name).unwrap();
            }
            place.write(2.5, KEPT);
            place
        }

        /// Writes the JSON, with spaces up to its size.
        fn write(&self, left: f64, size: u64) {
            let polygon = json!([[left, 1.0, 9.25, 1.0, 9.25, 4.5], [0, 0, 1, 0, 1, 1]]);
            let json = json!({
                "images": [
                    {"id": 5, "file_name": "a.jpg", "height": 4, "width": 3}, {"id": -6, "file_name": "b.jpg"},
                    {"id": 7, "file_name": "c.jpg", "height": 2, "width": 3},
                ],
                "categories": [{"id": 1, "name": "person", "keypoints": ["eye", "ear"]}, {"id": 2, "name": "sign"}],
                "annotations": [
                    {"id": 9, "image_id": 5, "category_id": 1, "bbox": [left, 1, 0, 2], "segmentation": polygon,
                        "keypoints": [1, 2.5, 2, 0, 0, 0]},
                    {"id": 8, "image_id": 5, "category_id": 2, "bbox": [0, 0, 3, 4], "iscrowd": 1,
                        "segmentation": {"counts": [5, 2, 5], "size": [4, 3]}},
                    {"id": 3, "image_id": 7, "category_id": 2, "bbox": [1, 1], "segmentation": polygon},
                    {"id": 4, "image_id": 7, "category_id": 2, "bbox": [0, 0, 1, 1]},
                    {"id": 2, "image_id": 99, "category_id": 2, "bbox": [0, 0, 1, 1]},
                    {"id": 1, "image_id": 5, "caption": "ein Löwe"}, {"id": 0, "image_id": 5, "caption": ""},
                ],
            });
            let mut json = json.to_string().replace("\"bbox\":[1,1]", "\"bbox\":[2,1,-1,1]");
            json.push_str(&" ".repeat((size as usize).saturating_sub(json.len())));
            fs::write(self.data.path().join("_annotations.coco.json"), json).unwrap();
        }

        fn open(&self) -> Open {
            let source = Source::parse(self.data.path().to_str().unwrap()).unwrap();
            open_source(source).masks(true).manifests(self.kept.path())
        }

        fn opened(&self) -> Arc<dyn Dataset> {
            block_on(self.open().into_future()).unwrap()
        }

        fn kept(&self) -> Vec<PathBuf> {
            let files = fs::read_dir(self.kept.path()).unwrap().map(|file| file.unwrap().path());
            files.filter(|path| path.to_string_lossy().contains(".coco-")).collect()
        }

        /// The manifest of a kept file.
        fn manifest(&self, file: &Path) -> Manifest {
            let name = file.file_name().unwrap().to_str().unwrap();
            let source = Source::parse(self.data.path().to_str().unwrap()).unwrap();
            source.manifest(name.split_once('.').unwrap().1, Some(self.kept.path())).unwrap()
        }
    }

    /// Everything that a dataset has: identity, schema, and each record or its error.
    fn all(dataset: &dyn Dataset) -> Vec<String> {
        let about = [format!("{:?} {:?}", dataset.fingerprint(), dataset.schema())];
        let records = (0..dataset.len()).map(|record| match read(dataset, record) {
            Ok(sample) => format!("{:?} {:?}", sample.values, dataset.image_size(record)),
            Err(error) => format!("{error:#}"),
        });
        about.into_iter().chain(records).collect()
    }

    #[test]
    fn what_is_kept_is_what_was_read() {
        let place = Place::new();
        place.write(2.5, 0);
        let small = place.opened();
        assert_eq!(place.kept(), Vec::<PathBuf>::new(), "a small JSON is parsed each time");
        let want = all(&*small);
        assert!(want[1].contains("Rle") && want[1].contains("Polygons") && want[1].contains("9.25"), "{}", want[1]);
        assert!(want[2].contains("size of the image") && want[3].contains("annotation 3"), "{want:#?}");

        place.write(2.5, KEPT);
        let first = place.opened();
        let [file] = &place.kept()[..] else { panic!("{:?}", place.kept()) };
        let stamp = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
        let before = stamp(file);
        let second = place.opened();
        assert_eq!((place.kept().len(), stamp(file)), (1, before), "the second opening writes nothing");
        for dataset in [&first, &second] {
            assert_eq!(all(&**dataset), want);
            assert!(dataset.resident_bytes() < small.resident_bytes());
        }
        // Another size of an image file is another dataset, though the annotations are the same.
        fs::write(place.data.path().join("a.jpg"), "a longer one").unwrap();
        let longer = place.opened();
        assert_eq!((stamp(file), &all(&*longer)[3]), (before, &want[3]));
        place.write(2.5, 0);
        assert_eq!(longer.fingerprint(), place.opened().fingerprint());
        assert_ne!(longer.fingerprint(), small.fingerprint());
    }

    #[test]
    fn another_json_of_the_same_size_and_time_is_read_anew() {
        let place = Place::new();
        let first = place.opened();
        let json = place.data.path().join("_annotations.coco.json");
        let time = fs::metadata(&json).unwrap().modified().unwrap();
        place.write(1.5, KEPT);
        fs::File::options().append(true).open(&json).unwrap().set_modified(time).unwrap();
        let second = place.opened();
        assert_eq!(place.kept().len(), 1, "the one before is removed");
        let left = |dataset: &dyn Dataset| match &read(dataset, 0).unwrap().values[1] {
            Value::Instances(marked) => marked.boxes[0][0],
            other => panic!("{other:?}"),
        };
        assert_eq!((left(&*first), left(&*second)), (2.5, 1.5), "an open dataset is not changed");
        // Other options have files of their own.
        let open = |open: Open| block_on(open.into_future()).unwrap();
        open(place.open().masks(false));
        open(place.open().classes(["sign", "person"].map(str::to_owned)));
        assert_eq!(place.kept().len(), 3);
        assert_eq!(all(&*place.opened()), all(&*second));
    }

    #[test]
    fn damage_is_never_another_annotation() {
        let place = Place::new();
        let want = all(&*place.opened());
        let [file] = &place.kept()[..] else { panic!("{:?}", place.kept()) };
        let sound = fs::read(file).unwrap();
        for at in 0..sound.len() {
            for cut in [false, true] {
                let mut bytes = sound.clone();
                if cut {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 0x10;
                }
                fs::write(file, &bytes).unwrap();
                let found = Kept { manifest: place.manifest(file), hash: None }.load();
                let Some(found) = found else {
                    assert!(!file.exists(), "what is damaged is removed");
                    continue;
                };
                assert!(!cut, "cut at {at}");
                let marked = found.notes.marked.unwrap();
                let captions = found.notes.captions.unwrap();
                let errors: Vec<String> = (0..3)
                    .flat_map(|i| [marked.records.get(i).err(), captions.of(i).err()])
                    .flatten()
                    .map(|error| format!("{error:#}"))
                    .collect();
                assert!(matches!(&errors[..], [one] if one.contains("checksum is wrong")), "byte {at}: {errors:?}");
                assert!(!file.exists());
            }
        }
        assert_eq!(all(&*place.opened()), want, "made again");
        assert_eq!(fs::read(file).unwrap(), sound);
    }

    #[test]
    fn the_contract_of_datasets_holds_for_what_is_kept() {
        let place = Place::new();
        let json = fs::read_to_string(place.data.path().join("_annotations.coco.json")).unwrap();
        let sound = json.replace("[2,1,-1,1]", "[0,1,1,1]").replace("\"id\":-6", "\"height\":2,\"id\":-6,\"width\":2");
        fs::write(place.data.path().join("_annotations.coco.json"), sound).unwrap();
        for _ in 0..2 {
            block_on(dataset_contract(&*place.opened())).unwrap();
        }
    }

    static PLACE: OnceLock<Place> = OnceLock::new();

    proptest! {
        /// With a checksum that is right, as somebody's own writer would make it.
        #[test]
        fn any_table_is_read_or_refused(at in 0usize..400, flip in any::<u8>(), cut in 0usize..100) {
            let place = PLACE.get_or_init(|| {
                let place = Place::new();
                place.opened();
                place
            });
            let [file] = &place.kept()[..] else { panic!("{:?}", place.kept()) };
            let parts = Parts::Held(fs::read(file).unwrap().into());
            let (mut table, begins) = parts.table(MAGIC).unwrap();
            let at = at % table.len();
            table[at] ^= flip;
            table.truncate(table.len().saturating_sub(cut % 40));
            let kept = place.manifest(Path::new("x.unused"));
            let Some(found) = parse(&table, begins, &Arc::new(parts), &kept) else { return Ok(()) };
            for record in 0..found.ids.len() {
                let _ = found.notes.marked.as_ref().map(|marked| marked.instances(record, [4, 3]));
                let _ = found.notes.captions.as_ref().map(|captions| captions.of(record));
            }
        }
    }
}
