//! The roles of files in a tree of images, by the names of folders and files.
//!
//! Public datasets name their folders with a few words. A word shows that the files in a folder are *images*, or that
//! they are *marks*: masks, boxes or labels of the images. Without these words, and without `_mask` and similar
//! suffixes, a mark and its image have the same name, their key:
//!
//! ```text
//! images/train/a.jpg  masks/train/a.png          train/a
//! train/a.jpg         train_masks/a_mask.png     train/a
//! leftImg8bit/val/x/a_leftImg8bit.png  gtFine/val/x/a_gtFine_labelIds.png   val/x/a
//! ```

use std::{borrow::Cow, collections::BTreeSet, iter};

use infeed_core::error::{Error, ErrorKind, Result, setting::SPLIT};

use super::names::{SPLITS, base, parent};

/// Names of folders with images.
const IMAGES: [&str; 18] = [
    "images",
    "image",
    "imgs",
    "img",
    "jpegimages",
    "jpgimages",
    "pngimages",
    "leftimg8bit",
    "rightimg8bit",
    "img_dir",
    "image_dir",
    "images_dir",
    "rgb",
    "rgbs",
    "photos",
    "pictures",
    "frames",
    "inputs",
];

/// Names of folders with masks, boxes or labels of images.
const MARKS: [&str; 33] = [
    "masks",
    "mask",
    "labels",
    "label",
    "annotations",
    "annotation",
    "annots",
    "annot",
    "anns",
    "ann",
    "anno",
    "annos",
    "ann_dir",
    "mask_dir",
    "label_dir",
    "gt",
    "gts",
    "gtfine",
    "gtcoarse",
    "groundtruth",
    "ground_truth",
    "segmentationclass",
    "segmentationobject",
    "segmentation",
    "segmentations",
    "segs",
    "semseg",
    "sem_seg",
    "semantic",
    "targets",
    "trimaps",
    "bboxes",
    "xmls",
];

/// Names of folders with another kind of picture of the same content.
const KINDS: [&str; 13] = [
    "depth",
    "depths",
    "disparity",
    "flow",
    "normals",
    "edges",
    "instances",
    "panoptic",
    "polygons",
    "hr",
    "lr",
    "upsampled",
    "visualization",
];

/// The role of a folder's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Images,
    Marks,
    /// Pictures that are neither.
    Kind,
}

/// Characters between the words of a name.
const BETWEEN: [char; 4] = ['_', '-', '.', ' '];

/// Words of folders next to splits: pictures without labels, or a few of them.
const BESIDE_SPLITS: [&str; 12] = [
    "pred",
    "predict",
    "prediction",
    "predictions",
    "unlabeled",
    "unlabelled",
    "extra",
    "holdout",
    "infer",
    "inference",
    "sample",
    "samples",
];

/// Whether it is the name of a split. CVAT calls it `obj_train_data`.
pub(crate) fn is_split(word: &str) -> bool {
    let word = word.strip_prefix("obj_").and_then(|word| word.strip_suffix("_data")).unwrap_or(word);
    let word = word.trim_end_matches(|c: char| c.is_ascii_digit());
    SPLITS.iter().any(|split| split.eq_ignore_ascii_case(word))
}

/// Whether these folders are splits: all are called so, or one for training and one for something else are, or all in the
/// same way around such words (`seg_train` and `seg_test`), perhaps with `unlabeled` and the like between them.
pub(crate) fn are_splits<'a>(tops: impl Iterator<Item = &'a str> + Clone) -> bool {
    let mut exact = tops.clone().filter(|top| is_split(top)).map(|top| may_be_split(top) == Some(true));
    let both = exact.clone().any(|training| training) && exact.any(|training| !training);
    if both || tops.clone().all(is_split) {
        return true;
    }
    // What is before and behind the word of a split in a name.
    let around = |top: &'a str| {
        let mut starts = iter::once(0).chain(top.match_indices(BETWEEN).map(|(at, _)| at + 1));
        starts.find_map(|start| {
            let end = top[start..].find(BETWEEN).map_or(top.len(), |end| start + end);
            is_split(&top[start..end]).then(|| (&top[..start], &top[end..]))
        })
    };
    let Some((before, behind)) = tops.clone().find_map(around) else { return false };
    let mut words = tops.map(|top| top.strip_prefix(before)?.strip_suffix(behind));
    let (mut splits, mut is_training) = (0, false);
    let all = words.all(|word| {
        let Some(word) = word else { return false };
        splits += usize::from(is_split(word));
        is_training |= word.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("train"));
        is_split(word) || BESIDE_SPLITS.iter().any(|beside| beside.eq_ignore_ascii_case(word))
    });
    all && (splits > 1 || is_training)
}

/// The role in a folder's name, and the rest of the name: `train` of `train_masks`. A format behind it is no part of
/// the name: `masks_png`.
fn role(folder: &str) -> (Option<Role>, &str) {
    const FORMATS: [&str; 5] = ["_png", "_jpg", "_jpeg", "_tif", "_tiff"];
    let plain = FORMATS.iter().find_map(|format| folder.strip_suffix(format)).unwrap_or(folder);
    match role_of(plain) {
        (None, _) => (None, folder),
        found => found,
    }
}

fn role_of(folder: &str) -> (Option<Role>, &str) {
    // `Ground Truth`, `ground-truth`.
    let joined = folder.contains([' ', '-']).then(|| folder.replace([' ', '-'], "_"));
    let spelled = joined.as_deref().unwrap_or(folder);
    let whole = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(spelled));
    if whole(&IMAGES) {
        return (Some(Role::Images), "");
    }
    if whole(&MARKS) {
        return (Some(Role::Marks), "");
    }
    if whole(&KINDS) {
        return (Some(Role::Kind), "");
    }
    for (words, role) in [(&IMAGES[..], Role::Images), (&MARKS, Role::Marks)] {
        for word in words {
            let Some(rest) = folder.len().checked_sub(word.len()).filter(|rest| *rest > 0) else { continue };
            // `trainannot`, `train_masks`, `masks-train`.
            if folder.get(rest..).is_some_and(|end| end.eq_ignore_ascii_case(word)) {
                let rest = folder[..rest].trim_end_matches(BETWEEN);
                if is_split(rest) {
                    return (Some(role), rest);
                }
            }
            if folder.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word)) {
                // `images_prepped_train`, as a well-known tutorial has it.
                let rest = &folder[word.len()..];
                let split = rest.trim_start_matches(BETWEEN).trim_start_matches("prepped_");
                if rest.starts_with(BETWEEN) && is_split(split) {
                    return (Some(role), split);
                }
            }
        }
    }
    // `PedMasks`, next to `PNGImages`. `FaceMasks` may be a class.
    const BEFORE_MASKS: [&str; 8] = ["Ped", "Binary", "Seg", "Segmentation", "Instance", "Semantic", "GT", "Lung"];
    match folder.strip_suffix("Masks") {
        Some(before) if BEFORE_MASKS.contains(&before) => (Some(Role::Marks), ""),
        _ => (None, folder),
    }
}

/// The words of a name, which may begin with capitals: `ManualMask`.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(BETWEEN).flat_map(|part| {
        let begins = |(at, c): (usize, char)| c.is_uppercase() && part[..at].ends_with(char::is_lowercase);
        let starts: Vec<usize> = part.char_indices().filter(|at| begins(*at)).map(|(at, _)| at).collect();
        let ends = starts.clone().into_iter().chain([part.len()]);
        iter::once(0).chain(starts).zip(ends).map(|(start, end)| &part[start..end]).collect::<Vec<_>>()
    })
}

/// The folder among these classes that is rather one of masks: `DUTS-TR-Mask`, `imgs_label`, `Training_GroundTruth`.
pub(crate) fn like_marks<'a>(tops: impl Iterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let any = |top: &str, known: &[&str]| words(top).any(|word| known.iter().any(|k| k.eq_ignore_ascii_case(word)));
    // Photographs of people with and without masks.
    if tops.clone().any(|top| any(top, &["with", "without", "no", "not", "non"])) {
        return None;
    }
    let joined = |top: &str| top.to_ascii_lowercase().replace(['_', '-', ' '], "");
    let is_like = |top: &&str| any(top, &MARKS) || any(top, &["anno", "msk"]) || joined(top).contains("groundtruth");
    // `FaceMasks` and `SheetMasks` are classes.
    tops.clone().find(|top| !is_like(top)).and_then(|_| tops.clone().find(is_like))
}

/// Whether a folder has a name that is usual for masks and labels.
pub(crate) fn is_marks(folder: &str) -> bool {
    role(folder).0 == Some(Role::Marks)
}

/// Whether a folder has a name that is usual for the images of a dataset.
pub(crate) fn is_images(folder: &str) -> bool {
    const OTHERS: [&str; 4] = ["raw", "input", "camerargb", "originals"];
    role(folder).0 == Some(Role::Images) || OTHERS.iter().any(|word| word.eq_ignore_ascii_case(folder))
}

/// Whether a folder is named like a part of a larger set: `images_001`, `part2`.
pub(crate) fn is_part(folder: &str) -> bool {
    const PARTS: [&str; 9] = ["part", "fold", "batch", "chunk", "shard", "archive", "folder", "images", "imgs"];
    let word = folder.trim_end_matches(|c: char| c.is_ascii_digit());
    let word = word.strip_suffix(BETWEEN).unwrap_or(word);
    let word = word.rsplit(BETWEEN).next().unwrap_or(word);
    word.len() < folder.len() && PARTS.iter().any(|part| part.eq_ignore_ascii_case(word))
}

/// Whether a folder may be a split of training (true) or another (false), by a word that begins like one: `trainA`,
/// `train_mini`, `data_large-val`, `TestData`. Many words begin so: it is no proof.
pub(crate) fn may_be_split(folder: &str) -> Option<bool> {
    const SPLIT_WORDS: [(&str, bool); 5] =
        [("train", true), ("test", false), ("valid", false), ("val", false), ("holdout", false)];
    let of = |word: &str| {
        let rest = |split: &str| {
            word.get(..split.len()).filter(|w| w.eq_ignore_ascii_case(split)).map(|_| &word[split.len()..])
        };
        // `trains` and `value` are other words.
        let ends = |rest: &str| {
            let is_word = ["ing", "set", "data", "ation", "val"].iter().any(|more| more.eq_ignore_ascii_case(rest));
            is_word || !rest.starts_with(|c: char| c.is_ascii_lowercase())
        };
        SPLIT_WORDS.iter().find(|(split, _)| rest(split).is_some_and(ends)).map(|(_, training)| *training)
    };
    folder.split(BETWEEN).find_map(of)
}

/// The files of a folder that follow one another, as a range of names.
pub(crate) struct Run<'a> {
    pub(crate) folder: &'a str,
    pub(crate) names: std::ops::Range<usize>,
}

/// Consecutive names in one folder: far fewer than names, of which there may be a million.
pub(crate) fn runs<'a>(names: &[&'a str]) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let folder = parent(name);
        match runs.last_mut() {
            Some(run) if run.folder == folder => run.names.end = at + 1,
            _ => runs.push(Run { folder, names: at..at + 1 }),
        }
    }
    runs
}

/// Whether a file is in a folder of masks or labels.
pub(crate) fn is_mark(name: &str) -> bool {
    of_folders(parent(name)).0 == Some(Role::Marks)
}

/// Whether a file is in a folder of masks or labels, or of another kind of picture of the same content.
#[cfg(any(feature = "voc", feature = "yolo"))]
pub(crate) fn is_no_photograph(name: &str) -> bool {
    matches!(of_folders(parent(name)).0, Some(Role::Marks | Role::Kind))
}

/// The role of the folders of a path together, and the path without the words.
pub(crate) fn of_folders(path: &str) -> (Option<Role>, Cow<'_, str>) {
    let parts = || path.split('/').filter(|part| !part.is_empty()).map(role);
    // Masks in a folder of images are masks.
    let found = parts().filter_map(|(role, _)| role).max_by_key(|role| match role {
        Role::Images => 0,
        Role::Kind => 1,
        Role::Marks => 2,
    });
    if found.is_none() {
        return (None, Cow::Borrowed(path));
    }
    let rest: Vec<&str> = parts().map(|(_, rest)| rest).filter(|rest| !rest.is_empty()).collect();
    (found, Cow::Owned(rest.join("/")))
}

/// A file's name without its extension.
pub(crate) fn stem(name: &str) -> &str {
    let start = name.rfind('/').map_or(0, |at| at + 1);
    name[start..].rfind('.').map_or(name, |dot| &name[..start + dot])
}

pub(crate) fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The key of a file: its folders without the words, and the stem.
pub(crate) fn key(name: &str) -> String {
    joined(&of_folders(parent(name)).1, stem(base(name)))
}

/// The folder that names the kind of a file (`masks`; `x` and `y` too), and the key of the file without it. `None` if
/// no folder names one, or two do.
pub(crate) fn kind_of(name: &str) -> Option<(String, String)> {
    let (mut kind, mut key) = (None, String::new());
    for folder in parent(name).split('/').filter(|folder| !folder.is_empty()) {
        // `X`, `y_train`; `imagesTr` and `labelsTs` of nnU-Net.
        let split = folder.strip_prefix(['x', 'X', 'y', 'Y']).map(|rest| rest.trim_start_matches(BETWEEN));
        let of_nnunet =
            ["Tr", "Ts"].into_iter().find(|end| folder.strip_suffix(end).is_some_and(|f| role(f).0.is_some()));
        let (found, rest) = match (role(folder), split, of_nnunet) {
            ((None, _), Some(split), _) if split.is_empty() || is_split(split) => (true, split),
            ((None, _), _, Some(end)) => (true, end),
            ((role, rest), ..) => (role.is_some(), rest),
        };
        if found && kind.replace(folder.replacen(rest, "", 1).trim_matches(BETWEEN).to_owned()).is_some() {
            return None;
        }
        if !rest.is_empty() {
            key = joined(&key, rest);
        }
    }
    Some((kind?, joined(&key, stem(base(name)))))
}

/// Keeps the items of a split, by their keys. Without a split keeps all, which is an error if there are several splits.
pub(crate) fn keep_split<T>(items: &mut Vec<T>, key: impl Fn(&T) -> String, split: Option<&str>) -> Result<()> {
    if let Some(split) = split {
        items.retain(|item| parent(&key(item)).split('/').any(|folder| folder.eq_ignore_ascii_case(split)));
        if items.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("no images of the split `{split}`"))
                .with_hint("a split is the name of a folder, or begins it: train, train_masks"));
        }
        return Ok(());
    }
    one_split(items.iter().map(key))
}

/// An error if all keys are in splits, and in several. Other folders may be around them.
pub(crate) fn one_split(keys: impl Iterator<Item = String>) -> Result<()> {
    let split = |key: String| parent(&key).split('/').find(|folder| is_split(folder)).map(str::to_owned);
    let found: BTreeSet<Option<String>> = keys.map(split).collect();
    let splits: Vec<&str> = found.iter().flatten().map(String::as_str).collect();
    if splits.len() > 1 && splits.len() == found.len() {
        return Err(Error::config(format!("images of several splits: {}", splits.join(", ")))
            .with_hint(format!("choose one: {}", SPLIT.to(splits[0]))));
    }
    Ok(())
}

/// The folder that contains all names, if its name is one of images: it is not a class.
pub(crate) fn wrapper<'a>(names: &[&'a str]) -> &'a str {
    let Some(first) = names.first() else { return "" };
    let mut end = 0;
    while let Some(at) = first[end..].find('/') {
        let (folder, next) = (&first[end..end + at], end + at + 1);
        let prefix = &first[..next];
        if role(folder) != (Some(Role::Images), "") || !names.iter().all(|name| name.starts_with(prefix)) {
            break;
        }
        end = next;
    }
    &first[..end]
}

/// The folder of a split: next to the images' classes, or below folders that are around all of them. If it contains
/// only a folder of its own name, as archives are unpacked, that one.
pub(crate) fn split_folder(names: &[&str], split: &str) -> String {
    let mut around = wrapper(names);
    let first = names.first().copied().unwrap_or_default();
    let has = |around: &str| {
        let folder = format!("{around}{split}/");
        names.iter().any(|name| name.starts_with(&folder))
    };
    let start = around;
    while !has(around) {
        let next = first[around.len()..].find('/').map(|at| &first[..around.len() + at + 1]);
        match next.filter(|next| names.iter().all(|name| name.starts_with(next))) {
            Some(next) => around = next,
            None => return format!("{start}{split}"),
        }
    }
    let mut folder = format!("{around}{split}");
    loop {
        let (all, inner) = (format!("{folder}/"), format!("{folder}/{split}/"));
        if !names.iter().filter(|name| name.starts_with(&all)).all(|name| name.starts_with(&inner)) {
            return folder;
        }
        folder = format!("{folder}/{split}");
    }
}

/// The top folders of names, sorted, if all of them are named like kinds of files or splits, so that none is a class. A
/// single one has to be named like masks or labels.
pub(crate) fn no_classes<'a>(tops: &BTreeSet<&'a str>) -> Option<Vec<&'a str>> {
    let ordinary = |top: &&&str| role(top).0.is_none() && !is_split(top);
    let are_kinds = match tops.first().filter(|_| tops.len() == 1) {
        Some(only) => is_marks(only),
        None => !tops.is_empty() && !tops.iter().any(|top| ordinary(&top)),
    };
    are_kinds.then(|| tops.iter().copied().collect())
}

/// A name without the folder of its split.
pub(crate) fn without_split(name: &str) -> &str {
    name.split_once('/').filter(|(first, _)| is_split(first)).map_or(name, |(_, rest)| rest)
}

/// Whether the folders of images may be their classes.
pub(crate) fn are_classes(names: &[&str]) -> bool {
    let around = wrapper(names).len();
    let tops: BTreeSet<&str> = names.iter().filter_map(|name| Some(name[around..].split_once('/')?.0)).collect();
    !tops.is_empty() && no_classes(&tops).is_none() && !are_splits(tops.iter().copied())
}

/// Whether the name of a folder next to class folders shows that it is not a class.
pub(crate) fn may_be_left(top: &str) -> bool {
    top.starts_with('.') || is_left_by_system(&format!("{top}/x")) || role(top).0.is_some() || is_split(top)
}

/// Files that operating systems add to folders.
pub(crate) fn is_left_by_system(name: &str) -> bool {
    const FOLDERS: [&str; 11] = [
        "__MACOSX",
        "@eaDir",
        ".thumbnails",
        ".ipynb_checkpoints",
        ".Trashes",
        ".Trash",
        "#recycle",
        "$RECYCLE.BIN",
        "System Volume Information",
        "lost+found",
        "_temporary",
    ];
    let (folders, file) = name.rsplit_once('/').unwrap_or(("", name));
    // Tested for a million names: few begin with one of these letters.
    file.starts_with("._")
        || folders.bytes().any(|b| matches!(b, b'.' | b'@' | b'_' | b'#' | b'$' | b' ' | b'+'))
            && folders.split('/').any(|part| FOLDERS.contains(&part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_images_around_all_is_no_class() {
        assert_eq!(wrapper(&["images/cat/1.jpg", "images/dog/1.jpg"]), "images/");
        assert_eq!(wrapper(&["images/1.jpg"]), "images/");
        assert_eq!(wrapper(&["cat/1.jpg"]), "");
        assert_eq!(wrapper(&["photos/1.jpg", "sketch/1.jpg"]), "");
        let kinds = |tops: &[&'static str]| no_classes(&tops.iter().copied().collect());
        assert!(kinds(&["images", "masks"]).is_some() && kinds(&["Depth", "RGB"]).is_some());
        assert!(kinds(&["mask", "no_mask"]).is_none() && kinds(&["photos", "sketch"]).is_none());
    }

    #[test]
    fn what_systems_leave_is_told_from_what_people_put_there() {
        for name in [
            "._a.jpg",
            "x/._a.jpg",
            "__MACOSX/x/a.jpg",
            "x/@eaDir/a.jpg",
            "lost+found/a.jpg",
            "#recycle/a.jpg",
            ".thumbnails/a.png",
        ] {
            assert!(is_left_by_system(name), "{name}");
        }
        for name in ["a.jpg", ".a/b.jpg", "_x/a.jpg", "@x/a.jpg", "x_MACOSX/a.jpg", "a._b.jpg"] {
            assert!(!is_left_by_system(name), "{name}");
        }
    }
}
