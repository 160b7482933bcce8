//! Facts from the names of objects.

use std::collections::BTreeSet;

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
        let is = |any: &[&str]| words.iter().any(|word| any.contains(&word.as_str()));
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

/// `train` of `x/train-000017.tar`, of `imagenet-train-000017.tar` and `train00-123.tfrec`, and of
/// `default/train/0000.parquet`.
fn split_of(name: &str) -> Option<&str> {
    let (folders, base) = name.rsplit_once('/').unwrap_or(("", name));
    let of_base = base.split(['-', '_', '.']).map(|word| word.trim_end_matches(|c: char| c.is_ascii_digit()));
    let mut words = of_base.chain(folders.rsplit('/'));
    words.find(|word| SPLITS.iter().any(|split| split.eq_ignore_ascii_case(word)))
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
    if let Some(split) = split {
        shards.retain(|o| {
            split_of(&o.name).is_some_and(|of| of.eq_ignore_ascii_case(split))
                || o.name.split('/').any(|folder| folder == split)
        });
        if shards.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no {what} of the split `{split}`"))
                .at_object(source.url())
                .with_hint(format!("they are named SPLIT{like}, or are in a folder SPLIT")));
        }
        return Ok(shards);
    }
    let splits: BTreeSet<&str> = shards.iter().filter_map(|o| split_of(&o.name)).collect();
    if splits.len() > 1 {
        let names: Vec<_> = splits.into_iter().collect();
        return Err(Error::config(format!("{what} of several splits: {}", names.join(", ")))
            .at_object(source.url())
            .with_hint(format!("open the files of only one, such as {0}{like}{1}", names[0], SPLIT.or_set(names[0]))));
    }
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use super::*;

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
