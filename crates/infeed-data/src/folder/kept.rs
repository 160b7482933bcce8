//! What opening a folder finds out about its images, kept beside the kept listing of the folder.
//!
//! Of a folder of images in class folders, or of images alone, a later opening then needs no list of the files: it
//! looks at each folder (`infeed_store`'s listing), reads labels and identity of all from this file, and a file's name
//! when a record needs it. Any other folder is opened from the list of its files: one with tables, masks, channels, a
//! split, links, or files that are no images; and one whose opening warns.
//!
//! ```text
//! "infeed images 1\n", length and hash
//! body: u128 identity of the listing, u128 identity of the dataset, varint bytes of the largest record and of the
//!   largest usual one; varint 1 if there are classes: varint classes, texts
//!   varint 1 if there are labels: varint runs of equal labels, then each: varint records, varint label
//! ```
//!
//! The file's name has a hash of the options that change what is found. A change of what is found in the same files
//! needs another number in `MAGIC`.

use std::sync::Arc;

use infeed_core::{error::Result, fingerprint::Fingerprint};
use infeed_store::{KeptFiles, Manifest, Rest, Source, body, number, seal, text, unsealed};

use super::{
    dataset::{FolderDataset, Found, why},
    fields::image_fields,
};
use crate::{
    files::Files,
    format::{OpenOption, OpenOptions, Recognised},
    labels::RecordLabels,
    names::EXTENSIONS,
    record::Dataset,
    sizes::Sizes,
};

const MAGIC: &[u8] = b"infeed images 1\n";

/// The dataset of these files and how it was recognised, if what an opening with these options found is kept.
pub(crate) async fn opened(
    source: &Source,
    listing: &KeptFiles,
    options: &OpenOptions,
) -> Result<Option<(Arc<dyn Dataset>, Recognised)>> {
    let Some(manifest) = manifest(source, options) else { return Ok(None) };
    // Another listing is no damage: the file is written again after this opening.
    let found = manifest.load(|file| parse(file, listing));
    let Some(found) = found.flatten() else { return Ok(None) };
    let files = Files::kept(source.clone(), Arc::clone(&listing.table));
    // A damaged file of names is made again by an opening that lists the folder.
    let Ok(first) = files.get(0) else { return Ok(None) };
    let fields = image_fields(&files, None).await?;
    let recognised = Recognised {
        url: source.url().to_owned(),
        format: "folder".to_owned(),
        why: why(&first.name),
        left_out: Vec::new(),
    };
    Ok(Some((Arc::new(FolderDataset::new(files, None, found, fields, Vec::new())), recognised)))
}

/// Keeps what was found.
pub(super) fn keep(source: &Source, listing: &KeptFiles, options: &OpenOptions, found: &Found) {
    let runs = match &found.labels {
        None => None,
        Some(RecordLabels::Runs(runs)) => Some(runs),
        // There are about as many folders as files.
        Some(RecordLabels::Each(_)) => return,
    };
    let Some(manifest) = manifest(source, options) else { return };
    let mut out = unsealed(MAGIC, 64);
    out.extend_from_slice(&listing.identity.to_le_bytes());
    out.extend_from_slice(&found.fingerprint.0.to_le_bytes());
    number(&mut out, found.sizes.largest);
    number(&mut out, found.sizes.usual);
    number(&mut out, found.classes.is_some().into());
    if let Some(classes) = &found.classes {
        number(&mut out, classes.len() as u64);
        classes.iter().for_each(|class| text(&mut out, class));
    }
    number(&mut out, runs.is_some().into());
    if let Some(runs) = runs {
        number(&mut out, runs.len() as u64);
        let mut start = 0;
        for (end, label) in runs {
            number(&mut out, end - start);
            number(&mut out, *label as u64);
            start = *end;
        }
    }
    manifest.store(&seal(MAGIC, out));
}

/// Where it is kept; `None` with options that read more than images in folders.
fn manifest(source: &Source, options: &OpenOptions) -> Option<Manifest> {
    // Kinds of fields are applied to the dataset afterwards.
    let is_plain = options.given().all(|option| matches!(option, OpenOption::Classes | OpenOption::Field));
    let is_folder = options.format.as_deref().is_none_or(|format| format == "folder");
    if !is_plain || !is_folder {
        return None;
    }
    let classes = options.classes.as_deref();
    let key = EXTENSIONS.iter().fold(Fingerprint::of("images"), |key, extension| key.text(extension));
    let key = key.number(options.format.is_some().into()).number(classes.map_or(0, |all| 1 + all.len() as u64));
    let key = classes.unwrap_or_default().iter().fold(key, |key, class| key.text(class)).finish();
    source.manifest(&format!("images-{key}"), options.manifests.as_deref())
}

/// What is kept; `None` if it is of another listing.
fn parse(file: &[u8], listing: &KeptFiles) -> Result<Option<Found>, String> {
    let mut rest = Rest::of(body(MAGIC, file)?);
    let of = rest.take(16).ok_or("its content is invalid")?;
    if of != listing.identity.to_le_bytes() {
        return Ok(None);
    }
    found(rest, listing.table.len() as u64).map(Some).ok_or_else(|| "its content is invalid".into())
}

fn found(mut rest: Rest<'_>, records: u64) -> Option<Found> {
    let flag = |rest: &mut Rest<'_>| [false, true].get(usize::try_from(rest.number()?).ok()?).copied();
    let fingerprint = Fingerprint(u128::from_le_bytes(rest.take(16)?.try_into().ok()?));
    let sizes = Sizes { largest: rest.number()?, usual: rest.number()? };
    let classes = match flag(&mut rest)? {
        true => Some(rest.list(1, |rest| rest.text().map(str::to_owned))?.into()),
        false => None,
    };
    let labels = match flag(&mut rest)? {
        true => {
            let mut end = 0_u64;
            let runs = rest.list(2, |rest| {
                end = end.checked_add(rest.number().filter(|records| *records > 0)?)?;
                Some((end, rest.number()? as i64))
            })?;
            (end == records).then_some(RecordLabels::Runs(runs))?.into()
        }
        false => None,
    };
    rest.is_empty().then_some(Found { labels, classes, sizes, fingerprint })
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use futures::executor::block_on;
    use infeed_core::random::SampleRng;
    use infeed_store::{Object, ObjectTable};
    use proptest::prelude::*;

    use super::*;
    use crate::{dataset_contract, folder::Folder, format::Format};

    /// A folder of images and one for kept files.
    struct Place {
        data: tempfile::TempDir,
        kept: tempfile::TempDir,
    }

    impl Place {
        fn new(names: &[&str]) -> Self {
            let place = Self { data: tempfile::tempdir().unwrap(), kept: tempfile::tempdir().unwrap() };
            for name in names {
                let file = place.data.path().join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, name).unwrap();
            }
            place
        }

        fn source(&self) -> Source {
            Source::parse(self.data.path().to_str().unwrap()).unwrap()
        }

        fn options(&self) -> OpenOptions {
            OpenOptions { manifests: Some(self.kept.path().to_owned()), ..OpenOptions::default() }
        }

        fn objects(&self) -> Vec<Object> {
            block_on(self.source().objects(None, None)).unwrap()
        }

        /// As a manifest would give them.
        fn listing(&self, identity: u128) -> KeptFiles {
            KeptFiles { table: Arc::new(ObjectTable::of(&self.objects().iter().collect::<Vec<_>>())), identity }
        }

        /// Opens from the list of files, with a listing that is kept.
        fn first(&self, listing: &KeptFiles, options: &OpenOptions) -> Arc<dyn Dataset> {
            let source = self.source();
            options.findings.put(source.url(), listing.clone());
            block_on(Folder { parquet: None, lines: None }.open(&source, self.objects(), options)).unwrap()
        }

        fn again(&self, listing: &KeptFiles, options: &OpenOptions) -> Option<(Arc<dyn Dataset>, Recognised)> {
            block_on(opened(&self.source(), listing, options)).unwrap()
        }

        fn kept(&self) -> Vec<std::path::PathBuf> {
            fs::read_dir(self.kept.path()).unwrap().map(|file| file.unwrap().path()).collect()
        }
    }

    fn all(dataset: &dyn Dataset) -> Vec<String> {
        let about = format!("{:?} {:?} {}", dataset.fingerprint(), dataset.schema(), dataset.largest_read());
        let rng = SampleRng::new(0, 0, 0);
        let records = (0..dataset.len()).map(|i| {
            format!("{:?} {:?} {}", dataset.plan(i, rng).unwrap(), dataset.known(i, "label"), dataset.object(i))
        });
        [about].into_iter().chain(records).collect()
    }

    #[test]
    fn what_is_kept_is_what_was_found() {
        let classes = Some(Arc::from(["dog".to_owned(), "cat".to_owned()]));
        for (names, options, labels) in [
            (&["cat/1.jpg", "cat/2.png", "dog/b/1.jpg", "dog/c.jpg"][..], OpenOptions::default(), Some([0, 0, 1, 1])),
            (
                &["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"],
                OpenOptions { classes, ..OpenOptions::default() },
                Some([1, 1, 0, 0]),
            ),
            (
                &["1.jpg", "2.jpg", "3.png", "4.tiff"],
                OpenOptions { format: Some("folder".into()), ..OpenOptions::default() },
                None,
            ),
        ] {
            let place = Place::new(names);
            let (listing, manifests) = (place.listing(7), place.options().manifests);
            let options = OpenOptions { manifests, ..options };
            assert!(place.again(&listing, &options).is_none(), "nothing is kept yet");
            let first = place.first(&listing, &options);
            assert_eq!(place.kept().len(), 1, "{names:?}");
            let (again, recognised) = place.again(&listing, &options).unwrap();
            assert_eq!(all(&*again), all(&*first));
            let found =
                labels.map(|_| (0..4).map(|i| format!("{:?}", again.known(i, "label").unwrap())).collect::<Vec<_>>());
            assert_eq!(
                found,
                labels.map(|all| all.iter().map(|label| format!("{:?}", crate::Value::Label(*label))).collect())
            );
            assert_eq!(recognised.why, format!("images, the first is `{}`", names[0]));
            block_on(dataset_contract(&*again)).unwrap();
            // Another listing, and other options, find nothing.
            assert!(place.again(&place.listing(8), &options).is_none());
            let other = OpenOptions { classes: Some(Arc::from(["x".to_owned()])), ..options.clone() };
            assert!(place.again(&listing, &other).is_none());
            for other in [
                OpenOptions { split: Some("x".into()), ..options.clone() },
                OpenOptions { labels: Some("x".into()), ..options.clone() },
                OpenOptions { format: Some("voc".into()), ..options.clone() },
            ] {
                assert!(manifest(&place.source(), &other).is_none());
            }
        }
    }

    #[test]
    fn nothing_is_kept_of_a_folder_that_has_more_than_images_or_a_warning() {
        for names in [
            &["cat/1.jpg", "dog/1.jpg", "readme.txt"][..],
            &["cat/1.jpg", "cat/2.jpg"],
            &["cat/1.jpg", "cat/2.jpg", "masks/3.jpg", "masks/4.jpg"],
            &["images/1.jpg", "images/2.jpg", "masks/1.png", "masks/2.png"],
            &["cat/1.jpg", "dog/1.jpg", "eel/1.jpg"],
        ] {
            let place = Place::new(names);
            place.first(&place.listing(7), &place.options());
            assert_eq!(place.kept(), Vec::<std::path::PathBuf>::new(), "{names:?}");
        }
    }

    #[test]
    fn damage_is_never_another_label() {
        let place = Place::new(&["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"]);
        let (listing, options) = (place.listing(7), place.options());
        let want = all(&*place.first(&listing, &options));
        let [file] = &place.kept()[..] else { panic!("{:?}", place.kept()) };
        let sound = fs::read(file).unwrap();
        for at in 0..sound.len() {
            let mut flipped = sound.clone();
            flipped[at] ^= 0x10;
            for bytes in [&sound[..at], &flipped] {
                fs::write(file, bytes).unwrap();
                assert!(place.again(&listing, &options).is_none(), "byte {at}");
                assert!(!file.exists(), "what is damaged is removed");
            }
        }
        place.first(&listing, &options);
        assert_eq!(fs::read(file).unwrap(), sound);
        // A file of another number of images is not used.
        fs::remove_file(place.data.path().join("dog/2.jpg")).unwrap();
        assert!(place.again(&place.listing(7), &options).is_none());
        assert_eq!(all(&*place.first(&listing, &options)).len(), want.len() - 1);
    }

    proptest! {
        /// With a correct checksum, as another writer could produce it.
        #[test]
        fn any_body_gives_what_was_found_or_nothing(body in prop::collection::vec(any::<u8>(), 0..100)) {
            let listing = KeptFiles { table: Arc::new(ObjectTable::of(&[])), identity: 0 };
            let bytes = [&[0; 32][..], &body].concat();
            let _ = found(Rest::of(&bytes[16..]), 7);
            let _ = parse(&seal(MAGIC, [unsealed(MAGIC, 0), bytes].concat()), &listing);
        }
    }

    #[test]
    fn a_place_that_cannot_be_written_is_no_error() {
        let place = Place::new(&["cat/1.jpg", "cat/2.jpg", "dog/1.jpg"]);
        let options = OpenOptions { manifests: Some(Path::new("/dev/null/x").to_owned()), ..OpenOptions::default() };
        assert_eq!(place.first(&place.listing(7), &options).len(), 3);
    }
}
