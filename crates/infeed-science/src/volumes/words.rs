//! Recognises words in the names of volumes: kinds, masks, splits. Suggests a pattern for names that are not
//! recognised.

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::error::{
    Error,
    setting::{PATTERN, SPLIT},
};
use infeed_data::names::{SPLITS, base, looks_like_mask, parent};

use super::names::{ONLY, group, stem};

/// The name of a volume, and its index among all names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Volume<'a> {
    pub(super) index: usize,
    /// The name with its folders, without its ending.
    pub(super) stem: &'a str,
}

impl<'a> Volume<'a> {
    pub(super) fn folders(self) -> impl DoubleEndedIterator<Item = &'a str> {
        parent(self.stem).split('/').filter(|folder| !folder.is_empty())
    }

    pub(super) fn base(self) -> &'a str {
        base(self.stem)
    }
}

pub(super) fn volumes<'a>(names: &[&'a str]) -> Vec<Volume<'a>> {
    names.iter().enumerate().filter_map(|(index, name)| Some(Volume { index, stem: stem(name)? })).collect()
}

/// The kind of volume that a folder's name stands for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VolumeKind<'a> {
    /// The folder's name, without the `Tr` of `imagesTr`.
    pub(super) word: &'a str,
    pub(super) mask: bool,
    pub(super) split: Option<&'static str>,
}

pub(super) const IMAGES: [&str; 11] =
    ["image", "images", "img", "imgs", "imaging", "scan", "scans", "volume", "volumes", "vol", "vols"];
const MODALITIES: [&str; 20] = [
    "ct", "cta", "cbct", "pet", "mr", "mri", "t1", "t1w", "t1c", "t1n", "t1ce", "t1gd", "t2", "t2w", "t2f", "flair",
    "adc", "dwi", "pd", "dose",
];

pub(super) fn is_mask(word: &str) -> bool {
    // `word` is one word of a name. A number at its end (`label_7`) makes it rather one of many volumes.
    let begins = |known: &&str| word.get(..known.len()).is_some_and(|start| start.eq_ignore_ascii_case(known));
    ["mask", "label", "seg"].iter().any(begins) && !word.ends_with(|c: char| c.is_ascii_digit())
        || ["gt", "groundtruth", "ground_truth", "annotation", "annotations", "ann", "dseg"]
            .iter()
            .any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether a word names a kind of volume: a mask, an image or a modality.
pub(super) fn says_kind(word: &str) -> bool {
    is_mask(word) || IMAGES.iter().chain(&MODALITIES).any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether a name is a mask's by its first word, or by its last as in `desc-brain_mask`.
pub(super) fn names_mask(name: &str) -> bool {
    looks_like_mask(name) || name.rsplit(['_', '-', '.']).next().is_some_and(is_mask)
}

pub(super) fn kind(folder: &str) -> Option<VolumeKind<'_>> {
    let of = |ending, split| Some((folder.strip_suffix(ending).filter(|word| says_kind(word))?, Some(split)));
    let (word, split) =
        of("Tr", "train").or_else(|| of("Ts", "test")).or_else(|| of("Va", "val")).unwrap_or((folder, None));
    says_kind(word).then(|| VolumeKind { word, mask: is_mask(word), split })
}

/// The name of the field that a folder of this kind makes.
pub(super) fn field_of(word: &str) -> &str {
    let known = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
    match () {
        () if known(&IMAGES) => ONLY,
        () if known(&["label", "labels"]) => "label",
        () if known(&["mask", "masks"]) => "mask",
        () => word,
    }
}

/// The error of volumes of several splits.
pub(super) fn several_splits(splits: &BTreeSet<&str>) -> Error {
    let all: Vec<&str> = splits.iter().copied().collect();
    let last = all.last().copied().unwrap_or_default();
    Error::config(format!("volumes of several splits: {}", all.join(", ")))
        .with_hint(format!("open the folder of one split{}", SPLIT.or_set(last)))
}

/// The split that one of the volume's folders names.
pub(super) fn split_of<'a>(volume: Volume<'a>) -> Option<&'a str> {
    volume.folders().find_map(|folder| {
        let itself = SPLITS.iter().any(|split| split.eq_ignore_ascii_case(folder)).then_some(folder);
        kind(folder).and_then(|kind| kind.split).or(itself)
    })
}

/// Number of leading folders that all volumes share.
pub(super) fn common_folders(all: &[Volume<'_>]) -> usize {
    let Some(first) = all.first() else { return 0 };
    let same = |volume: &Volume<'_>| volume.folders().zip(first.folders()).take_while(|(a, b)| a == b).count();
    all.iter().map(same).min().unwrap_or(0)
}

/// Splits `img0001`, `volume-3`, `c1_seg` into kind and rest. The kind is the first or the last word; the rest is not
/// empty.
pub(super) fn kind_and_rest(name: &str) -> Option<(&str, &str)> {
    let first = name.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(name.len());
    let last = name.rfind(['_', '-', '.', ' ']).map_or(0, |at| at + 1);
    let front = (&name[..first], name[first..].trim_start_matches(['_', '-', '.', ' ']));
    let back = (&name[last..], name[..last].trim_end_matches(['_', '-', '.', ' ']));
    [front, back].into_iter().find(|(word, rest)| says_kind(word) && !rest.is_empty())
}

pub(super) fn trimmed(name: &str) -> &str {
    kind_and_rest(name).map_or(name, |(_, rest)| rest)
}

/// The error for names that do not show the patients; its hint is a pattern that fits.
pub(super) fn unclear(names: &[&str], all: &[Volume<'_>]) -> Error {
    let first: Vec<&str> = all.iter().take(4).map(|volume| names[volume.index]).collect();
    let dots = if all.len() > first.len() { ", …" } else { "" };
    let what = format!("the names do not show which volumes belong to one patient: {}{dots}", first.join(", "));
    let pattern = suggested(names, all);
    let or = if pattern.contains("{field}") { "" } else { ", which makes each file a record" };
    Error::config(what).with_hint(format!("give a pattern, such as {}{or}", PATTERN.to(&pattern)))
}

/// The first of several patterns that gives each patient the same fields; `{patient}` if none does.
fn suggested(names: &[&str], all: &[Volume<'_>]) -> String {
    let endings: BTreeSet<&str> = all.iter().map(|volume| &names[volume.index][volume.stem.len()..]).collect();
    let ending = endings.first().filter(|_| endings.len() == 1).copied().unwrap_or("");
    let above: String = all
        .first()
        .map(|volume| volume.folders().take(common_folders(all)).map(|folder| format!("{folder}/")).collect())
        .unwrap_or_default();
    let folders = ["{field}Tr/{patient}", "{field}/{patient}", "{patient}/{field}"];
    let others =
        ["{patient}_{field}", "{patient}-{field}", "{field}_{patient}", "{field}-{patient}", "{patient}.{field}"];
    let candidates = folders.into_iter().chain(others).map(|pattern| format!("{above}{pattern}"));
    let fits = |pattern: &String, by_number: bool| {
        group(names, pattern).is_ok_and(|patients| {
            let matched: usize = patients.values().map(BTreeMap::len).sum();
            let Some(first) = patients.values().next() else { return false };
            let same = patients.values().all(|files| files.keys().eq(first.keys()));
            let few = first.len() > 1 && first.len() <= patients.len().max(8);
            let named = first.keys().any(|field| !field.bytes().all(|byte| byte.is_ascii_digit()));
            same && few && matched * 2 > all.len() && (named || by_number)
        })
    };
    // Numbers are rather those of patients.
    let find = |by_number: bool| candidates.clone().find(|pattern| fits(pattern, by_number));
    let found = find(false).or_else(|| find(true)).unwrap_or_else(|| format!("{above}{{patient}}"));
    format!("{found}{ending}")
}
