//! Facts from the names of objects.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use infeed_core::error::{Error, ErrorKind, Result, setting::SPLIT};
use infeed_store::{Object, Source};

/// Extensions of image files, in lower case.
pub const EXTENSIONS: &[&str] = &[
    ".jpg",
    ".jpeg",
    ".jpe",
    ".jfif",
    ".jfi",
    ".jif",
    ".png",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
    ".pbm",
    ".pnm",
    #[cfg(feature = "jxl")]
    ".jxl",
];

/// Names of folders that hold class folders instead of images of a class; also prefixes of shard names.
pub const SPLITS: [&str; 10] =
    ["train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval", "trainval"];

/// Whether a name ends with this text, in any case.
pub fn ends_with(name: &str, ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.and_then(|start| name.get(start..)).is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

/// Whether this is a file of images, arrays or volumes, or a table, by its ending.
pub fn is_data(name: &str) -> bool {
    const ENDINGS: [&str; 11] =
        [".npy", ".npz", ".safetensors", ".h5", ".hdf5", ".dcm", ".dicom", ".nii", ".nii.gz", ".nrrd", ".nhdr"];
    is_image(name) || is_table(name) || ENDINGS.iter().any(|ending| ends_with(name, ending))
}

/// Whether this is a table as text.
pub fn is_table(name: &str) -> bool {
    ends_with(name, ".csv") || ends_with(name, ".tsv")
}

pub fn is_image(name: &str) -> bool {
    EXTENSIONS.iter().any(|extension| ends_with(name, extension))
}

/// Whether this is an extension of images that nothing here reads.
pub(crate) fn is_unread_image(ending: &str) -> bool {
    const KINDS: [&str; 17] = [
        ".avif", ".heic", ".heif", ".jp2", ".j2k", ".jxl", ".ico", ".svg", ".psd", ".exr", ".hdr", ".dng", ".cr2",
        ".nef", ".arw", ".tga", ".pcx",
    ];
    !is_image(ending) && KINDS.iter().any(|kind| kind.eq_ignore_ascii_case(ending))
}

pub(crate) fn is_tiff(name: &str) -> bool {
    [".tif", ".tiff"].iter().any(|extension| ends_with(name, extension))
}

/// Words in names of masks, which other images do not have.
///
/// Not among them: `gt` (in restoration datasets, the photograph), `depth`, `instance` (photographs of DreamBooth),
/// `annotated` (a picture with drawings on it), and `label` within a name (photographs of bottles have a `wine_label`).
const MASK_WORDS: [&str; 13] = [
    "mask",
    "masks",
    "seg",
    "segs",
    "segmentation",
    "segmentations",
    "segmap",
    "semseg",
    "labelmap",
    "trimap",
    "trimaps",
    "annotation",
    "annotations",
];

/// Whether an image or volume with this name is a mask. All formats use this one rule; only a kind that the user sets
/// takes precedence.
///
/// It is a mask if its name, or a part of it after a `/` or `.`, begins with `mask`, `label` or `seg` (`mask2`,
/// `labels`, `image/seg/encoded`), or has one of `MASK_WORDS` as a word (`tumor_mask`, `gt-seg-map`, `annotation`).
/// `masked_image` is not a mask but a photograph with blanked parts; nor are the `with_mask` and `without_mask` of
/// faces.
pub fn looks_like_mask(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = |part: &str| part.split(|c: char| !c.is_alphanumeric()).map(str::to_owned).collect::<Vec<_>>();
    name.split(['/', '.']).any(|part| {
        let words = words(part);
        let is =
            |any: &[&str]| words.iter().any(|word| any.contains(&word.trim_end_matches(|c: char| c.is_ascii_digit())));
        let begins = ["mask", "label", "seg"].iter().any(|word| part.starts_with(word));
        (begins || is(&MASK_WORDS)) && !is(&["masked", "with", "without"])
    })
}

/// The same name in the Unicode forms of other systems: `ü` as one code point, or as two. Plain ASCII names have no
/// other form.
pub(crate) fn other_spellings(name: &str) -> impl Iterator<Item = String> {
    let spelled = (!name.is_ascii()).then(|| {
        let composed = ComposingNormalizerBorrowed::new_nfc().normalize(name).into_owned();
        let decomposed = DecomposingNormalizerBorrowed::new_nfd().normalize(name).into_owned();
        [composed, decomposed]
    });
    spelled.into_iter().flatten().filter(move |other| other != name)
}

/// The name without its folders.
pub fn base(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The folder of a name, without a `/` at the end.
pub fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// `train` of `x/train-000017.tar`, of `imagenet-train-000017.tar` and `train00-123.tfrec`, of
/// `default/train/0000.parquet` and `split=train/part-0.parquet`.
fn split_of(name: &str) -> Option<&str> {
    let (folders, base) = name.rsplit_once('/').unwrap_or(("", name));
    let of_base = base.split(['-', '_', '.']).map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
    let mut words = of_base.chain(folders.rsplit('/').map(value_of));
    words.find(|word| SPLITS.iter().any(|split| split.eq_ignore_ascii_case(word)))
}

/// `cat` of `label=cat`; other names are themselves.
fn value_of(folder: &str) -> &str {
    folder.split_once('=').map_or(folder, |(_, value)| value)
}

/// The set of a shard, its number and how many the set has: `train_sft`, 3, 24 of `x/train_sft-00003-of-00024.parquet` and
/// of `train_sft-00003-of-00024-0123456789abcdef.parquet`.
fn numbered(name: &str) -> Option<(&str, u64, u64)> {
    let base = base(name);
    let (before, behind) = base.rsplit_once("-of-")?;
    let (set, number) = before.rsplit_once(['-', '.'])?;
    let digits = behind.find(|c: char| !c.is_ascii_digit()).map_or(behind, |end| &behind[..end]);
    Some((set, number.parse().ok()?, digits.parse().ok()?)).filter(|(set, ..)| !set.is_empty())
}

/// The shards of the requested split; without a split, all shards, which is an error if there are several splits.
/// `what` and `like` are for messages: the word for shards, and the rest of their names after the split, such as
/// `-000000.tar`.
pub fn of_split<'a>(
    source: &Source,
    mut shards: Vec<&'a Object>,
    split: Option<&str>,
    what: &str,
    like: &str,
) -> Result<Vec<&'a Object>> {
    let sets: Option<BTreeSet<&str>> = shards.iter().map(|o| numbered(&o.name).map(|(set, ..)| set)).collect();
    // `test` and `testmini`, `train` and `unsupervised`, `train_sft` and `train_gen`. Where the words of splits suffice
    // (`d-train` and `d-val`), they are the names.
    let words = |sets: &BTreeSet<&str>| sets.iter().filter_map(|set| split_of(set)).collect::<BTreeSet<_>>().len();
    let sets = sets.filter(|sets| sets.len() > 1 && (1..sets.len()).contains(&words(sets)));
    let several = sets.is_some();
    if let Some(split) = split {
        let is_whole = |o: &&Object| {
            numbered(&o.name).is_some_and(|(set, ..)| set == split)
                || parent(&o.name).split('/').any(|folder| folder == split || value_of(folder) == split)
        };
        let is_of = |o: &&Object| split_of(&o.name).is_some_and(|of| of.eq_ignore_ascii_case(split));
        let there: BTreeSet<&str> = match sets {
            Some(sets) => sets,
            None => shards.iter().filter_map(|o| split_of(&o.name)).collect(),
        };
        // A set of this very name, rather than all whose names contain it.
        match shards.iter().any(is_whole) {
            true => shards.retain(is_whole),
            false => shards.retain(is_of),
        }
        let of: BTreeSet<&str> = shards.iter().filter_map(|o| numbered(&o.name).map(|(set, ..)| set)).collect();
        if of.len() > 1 && several && of.iter().all(|set| *set != split) {
            let first = of.first().copied().unwrap_or_default();
            return Err(Error::config(format!("the split `{split}` may be {}", listed(&of)))
                .at_object(source.url())
                .with_hint(format!("choose one: {}", SPLIT.to(first))));
        }
        if shards.is_empty() {
            let there = match there.is_empty() {
                true => String::new(),
                false => format!("; there are {}", listed(&there)),
            };
            return Err(Error::new(ErrorKind::NotFound, format!("no {what} of the split `{split}`{there}"))
                .at_object(source.url())
                .with_hint(format!("they are named SPLIT{like}, or are in a folder SPLIT")));
        }
        warn_of_shards(source, &shards);
        return Ok(shards);
    }
    let known: BTreeSet<&str> = shards.iter().filter_map(|o| split_of(&o.name)).collect();
    let splits = sets.unwrap_or(known);
    if splits.len() > 1 {
        let first = splits.first().copied().unwrap_or_default();
        return Err(Error::config(format!("{what} of several splits: {}", listed(&splits)))
            .at_object(source.url())
            .with_hint(format!("open the files of only one, such as {first}{like}{}", SPLIT.or_set(first))));
    }
    if let Some(other) = shards.iter().find(|o| split_of(&o.name).is_none())
        && let Some(split) = splits.first()
    {
        let (url, other) = (source.url(), &other.name);
        tracing::warn!(
            url,
            split,
            other,
            "{what} of a split and others are read together; {} chooses",
            SPLIT.to(split)
        );
    }
    warn_of_shards(source, &shards);
    Ok(shards)
}

fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

/// Warns if shards of a set are missing, if names of folders have values that are not read, and if shards of one name
/// are in several folders.
fn warn_of_shards(source: &Source, shards: &[&Object]) {
    let url = source.url();
    let mut sets: BTreeMap<(&str, &str, u64), BTreeSet<u64>> = BTreeMap::new();
    let (mut folders, mut twice) = (HashMap::<&str, &str>::new(), None);
    for name in shards.iter().map(|o| o.name.as_ref()) {
        if let Some((set, number, count)) = numbered(name) {
            sets.entry((parent(name), set, count)).or_default().insert(number);
        }
        let first = *folders.entry(base(name)).or_insert(parent(name));
        if first != parent(name) && twice.is_none() {
            twice = Some(format!("{first}, {}", parent(name)));
        }
    }
    if let Some(folders) = twice {
        tracing::warn!(
            url,
            folders,
            "shards of one name in several folders are read together; if they are copies or splits, open one folder"
        );
    }
    for ((_, set, count), there) in sets {
        if (there.len() as u64) < count {
            let have = there.len();
            tracing::warn!(url, set, "{have} of the {count} shards that their names count are there");
        }
    }
    let value = |o: &&Object| parent(&o.name).split('/').find(|f| f.contains('=')).map(str::to_owned);
    if let Some(folder) = shards.iter().find_map(value).filter(|folder| split_of(&format!("{folder}/x")).is_none()) {
        tracing::warn!(url, folder, "values in names of folders are no fields: only what the files hold is read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_of_a_split_are_those_of_its_own_name() {
        let source = Source::from_store(Source::memory("of_split"), "".into(), "memory://of_split");
        let of = |names: &[&str], split: Option<&str>| -> Result<Vec<String>> {
            let objects: Vec<Object> = names.iter().map(|name| Object::new(*name, 1)).collect();
            let found = of_split(&source, objects.iter().collect(), split, "shards", "-000.tar")?;
            Ok(found.iter().map(|o| o.name.to_string()).collect())
        };
        let [mini, test] = ["data/testmini-00000-of-00001.parquet", "data/test-00000-of-00001-0a1b.parquet"];
        let several = of(&[mini, test], None).unwrap_err().to_string();
        assert!(several.contains("several splits: test, testmini"), "{several}");
        assert_eq!(of(&[mini, test], Some("testmini")).unwrap(), [mini]);
        assert_eq!(of(&[mini, test], Some("test")).unwrap(), [test]);
        let tuning = ["train_sft-00000-of-00001.parquet", "train_gen-00000-of-00001.parquet"];
        assert!(of(&tuning, None).is_err());
        assert_eq!(of(&tuning, Some("train_sft")).unwrap(), [tuning[0]]);
        let either = of(&tuning, Some("train")).unwrap_err().to_string();
        assert!(either.contains("`train` may be train_gen, train_sft"), "{either}");
        let named = ["c4-train.00000-of-00002.tar", "c4-validation.00000-of-00001.tar"];
        assert_eq!(of(&named, Some("train")).unwrap(), [named[0]]);
        let both = of(&named, None).unwrap_err().to_string();
        assert!(both.contains("several splits: train, validation"), "{both}");
        let missing = of(&[mini, test], Some("val")).unwrap_err().to_string();
        assert!(missing.contains("no shards of the split `val`; there are test, testmini"), "{missing}");
        // Sets that are no splits are one dataset.
        assert_eq!(of(&["cats-00000-of-00001.tar", "dogs-00000-of-00001.tar"], None).unwrap().len(), 2);
        let folders = ["split=train/part-0.parquet", "split=test/part-0.parquet"];
        assert!(of(&folders, None).is_err());
        assert_eq!(of(&folders, Some("train")).unwrap(), [folders[0]]);
    }

    #[test]
    fn masks_are_told_by_their_names_and_photographs_are_none() {
        for name in [
            "mask",
            "Mask2",
            "masks",
            "label",
            "labels",
            "label_map",
            "seg",
            "segmentation",
            "seg_map",
            "image/seg/encoded",
            "tumor_mask",
            "image.mask",
            "gt-semantic-seg",
            "annotation",
            "annotations",
            "trimap",
            "Lung_Masks",
            "x.seg",
        ] {
            assert!(looks_like_mask(name), "{name}");
        }
        for name in [
            "",
            "image",
            "gt",
            "depth",
            "masked_image",
            "image_masked",
            "with_mask",
            "without_mask",
            "instance_images",
            "annotated",
            "wine_label",
            "unmask",
            "image/encoded",
            "message",
            "conditioning_image",
        ] {
            assert!(!looks_like_mask(name), "{name}");
        }
    }

    #[test]
    fn a_name_has_other_spellings_where_letters_have_marks() {
        assert_eq!(other_spellings("plain.jpg").count(), 0);
        assert_eq!(other_spellings("M\u{fc}ller.jpg").collect::<Vec<_>>(), ["Mu\u{308}ller.jpg"]);
        assert_eq!(other_spellings("Mu\u{308}ller.jpg").collect::<Vec<_>>(), ["M\u{fc}ller.jpg"]);
    }

    #[test]
    fn extensions_count_in_any_case_and_others_do_not() {
        for name in ["a.jpg", "a/b.JPEG", "x.Png", "x.webp", "x.bmp", "a.gif", "a.PGM", "a.jfif", "ü.jpg", ".jpg"] {
            assert!(is_image(name), "{name}");
        }
        for name in ["a.avif", "jpg", "a.jpg.txt", "ajpg", "", "é"] {
            assert!(!is_image(name), "{name}");
        }
    }
}
