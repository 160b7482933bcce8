//! Labels from names of folders.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use infeed_core::error::{
    Error, Result,
    setting::{FORMAT, MASK_FILES, SPLIT},
};
use infeed_store::Source;

use super::{
    layout::{self, Role, Run},
    names::{base, ends_with, is_image, looks_like_mask, parent},
};

/// The index of each class name; an error if two classes share a name.
pub(crate) fn index_of(classes: &[String]) -> Result<HashMap<&str, i64>> {
    let index: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
    if index.len() < classes.len() {
        let twice = classes.iter().enumerate().find(|(i, name)| index[name.as_str()] != *i as i64);
        let name = twice.map_or("", |(_, name)| name);
        return Err(Error::config(format!("class `{name}` is given twice")));
    }
    Ok(index)
}

/// What names of folders give.
#[derive(Debug, Default)]
pub(crate) struct FolderLabels {
    /// Neither for a flat folder; given classes stay.
    pub(crate) labels: Option<Vec<i64>>,
    pub(crate) classes: Option<Arc<[String]>>,
    /// Whether a warning was logged.
    pub(crate) is_doubtful: bool,
}

/// Labels from the first folder of each name, and the class names; neither for a flat folder. A folder that holds all
/// images is ignored. Folders named after splits are always refused, folders named after kinds of files if asked for.
pub(crate) fn classes_of(
    names: &[&str],
    source: &Source,
    given: Option<Arc<[String]>>,
    refuse_kinds: bool,
) -> Result<FolderLabels> {
    let mut result = FolderLabels::default();
    let around = layout::wrapper(names).len();
    let top = |name: &str| name[around..].split_once('/').map(|(top, _)| top.to_owned());
    let mut found = BTreeSet::new();
    let mut flat = None;
    for &name in names {
        match name[around..].split_once('/') {
            // Looked up before it is copied, because there are perhaps a thousand classes in a million files.
            Some((top, _)) => {
                if !found.contains(top) {
                    found.insert(top.to_owned());
                }
            }
            None => flat = flat.or(Some(name)),
        }
    }
    // Arrays take no mask files.
    let are_images = names.first().is_some_and(|name| is_image(name));
    result.is_doubtful |= are_images && tell_alike(names, source);
    if found.is_empty() {
        return Ok(FolderLabels { classes: given, ..result });
    }
    if let Some(stray) = flat {
        return Err(Error::config(format!("images both in class folders and beside them, such as `{stray}`"))
            .at_object(source.url())
            .with_hint("move them into folders, or give labels for all"));
    }
    if given.is_none() && layout::are_splits(found.iter().map(String::as_str)) {
        let splits = found.into_iter().collect::<Vec<_>>();
        let first = splits.iter().find(|folder| layout::is_split(folder)).unwrap_or(&splits[0]);
        return Err(Error::config(format!("the folders {} hold splits, not images of a class", splits.join(", ")))
            .at_object(source.url())
            .with_hint(format!(
                "open {}{}",
                source.display_name(&format!("{}{first}", layout::wrapper(names))),
                SPLIT.or_set(first)
            )));
    }
    if let Some(kinds) = layout::no_classes(&found.iter().map(String::as_str).collect()).filter(|_| refuse_kinds) {
        let as_classes = FORMAT.to("folder");
        let at = |what: String| Error::config(what).at_object(source.url());
        if let ([only], true) = (&kinds[..], are_images) {
            let folder = source.display_name(&format!("{}{only}", layout::wrapper(names)));
            return Err(at(format!("all images are in the folder `{only}`, which is named like masks or labels"))
                .with_hint(format!(
                    "to read its images without labels open {folder}; to take it for a class {as_classes}"
                )));
        }
        let masks = kinds.iter().find(|kind| layout::is_marks(kind));
        let hint = match masks.map(|masks| MASK_FILES.to(&format!("{masks}/{{stem}}.png"))) {
            _ if !are_images => {
                let each = FORMAT.to("arrays");
                format!("give files of one record the same name in these folders; if each file is a record, set {each}")
            }
            Some(masks) => format!(
                "tell masks by a pattern of their names, such as {masks}; or take the folders for classes: {as_classes}"
            ),
            None => format!(
                "tell masks by a pattern of their names with {MASK_FILES}; or take the folders for classes: {as_classes}"
            ),
        };
        let kinds = kinds.join(", ");
        return Err(at(format!("the folders {kinds} are named like kinds of files and splits, not like classes"))
            .with_hint(hint));
    }
    let runs = layout::runs(names);
    if refuse_kinds {
        no_marks_below(&runs, around, names, source)?;
    }
    result.is_doubtful |= are_images && given.is_none() && tell_marks(names, around, &found, source);
    if !are_images
        && refuse_kinds
        && (2..=FEW).contains(&found.len())
        && let Some(twin) = twin(names, around, &found)
    {
        tracing::warn!(
            url = source.url(),
            folder = twin,
            "folders with files of the same names are taken for classes; if files of one name belong together, call the \
             folders images and masks, or X and y"
        );
    }
    result.is_doubtful |= given.is_none() && warn_of_levels(&runs, around, &found, source);
    if let (Some(only), 1, None) = (found.first(), found.len(), &given) {
        let folder = source.display_name(&format!("{}{only}", &names[0][..around]));
        tracing::warn!(
            class = only,
            folder,
            "all images are of one class; if its folder is not a class, open that folder"
        );
        result.is_doubtful = true;
    }
    let classes = given.unwrap_or_else(|| found.iter().cloned().collect());
    let index = index_of(&classes)?;
    if let Some(unknown) = found.iter().find(|name| !index.contains_key(name.as_str())) {
        let what = format!("class `{unknown}` is not among the {} given classes", classes.len());
        return Err(Error::config(what)
            .at_object(source.display_name(unknown))
            .with_hint("open it with the classes that it has, or remove the folder"));
    }
    let label = |name: &str| top(name).and_then(|top| index.get(top.as_str()).copied());
    let labels = names.iter().map(|name| label(name).expect("each name has a folder that is a class")).collect();
    drop(index);
    Ok(FolderLabels { labels: Some(labels), classes: Some(classes), ..result })
}

/// An error if some of the images in class folders are in folders of masks below them: `a/images/1.png` and
/// `a/masks/x.png`.
fn no_marks_below(runs: &[Run<'_>], around: usize, names: &[&str], source: &Source) -> Result<()> {
    let below = |run: &&Run<'_>| {
        let folder = run.folder.get(around..).and_then(|folder| folder.split_once('/'));
        folder.is_some_and(|(_, below)| layout::of_folders(below).0 == Some(Role::Marks))
    };
    let Some(masks) = runs.iter().find(below) else { return Ok(()) };
    let Some(images) = runs.iter().find(|run| !below(run)) else { return Ok(()) };
    let [mask, image] = [masks, images].map(|run| names[run.names.start]);
    let what = format!("`{mask}` is in a folder of masks, but `{image}` and other images have no mask of their name");
    Err(Error::config(what).at_object(source.url()).with_hint(format!(
        "give the pattern of the masks with {MASK_FILES}, move them elsewhere, or take the folders for classes: {}",
        FORMAT.to("folder")
    )))
}

/// Warns of class folders that are rather splits, images of records, or folders around the classes. Returns whether it
/// did.
fn warn_of_levels(runs: &[Run<'_>], around: usize, tops: &BTreeSet<String>, source: &Source) -> bool {
    let url = source.url();
    let mut is_doubtful = false;
    let mut warn = |folders: String, what: String| {
        tracing::warn!(url, folders, "{what}");
        is_doubtful = true;
    };
    let splits: Vec<&str> = tops.iter().map(String::as_str).filter(|top| layout::may_be_split(top).is_some()).collect();
    let words: BTreeSet<bool> = splits.iter().filter_map(|top| layout::may_be_split(top)).collect();
    if words.len() > 1 {
        warn(
            splits.join(", "),
            format!("folders that may be splits are taken for classes; {} reads one", SPLIT.to(splits[0])),
        );
    }
    if let Some(images) = tops.iter().find(|top| tops.len() > 1 && layout::is_images(top)) {
        warn(images.clone(), "a folder that is named like the images of all classes is taken for a class".to_owned());
    }
    if tops.len() > 1 && tops.iter().all(|top| layout::is_part(top)) {
        let what = "folders that are named like parts of one set of images are taken for classes; if they are parts, \
                    open them one after another, or give a table of labels";
        warn(tops.iter().take(3).cloned().collect::<Vec<_>>().join(", "), what.to_owned());
    }
    // The folders below the classes.
    let mut below: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut repeated, mut sibling, mut all_below) = (None, None, true);
    for run in runs {
        let mut folders = run.folder.get(around..).unwrap_or_default().split('/');
        let (Some(top), Some(second)) = (folders.next(), folders.next()) else {
            all_below = false;
            continue;
        };
        if *below.entry(second).or_insert(top) != top {
            repeated.get_or_insert(second);
        }
        if second != top && tops.contains(second) {
            sibling.get_or_insert((top, second));
        }
    }
    let splits: Vec<&str> = below.keys().copied().filter(|folder| layout::is_split(folder)).collect();
    if splits.len() > 1 {
        warn(splits.join(", "), "splits below the class folders are read together".to_owned());
    } else if let Some((top, second)) = sibling {
        warn(format!("{top}/{second}"), format!("a class folder contains one of the name of the class `{second}`"));
    } else if let (Some(repeated), true, true) = (repeated, all_below, tops.len() > 1) {
        let what = format!(
            "the first folders are the classes, but all images are deeper, in folders of the same names, such as \
             `{repeated}`: if these are the classes, open one of the first folders"
        );
        warn(tops.iter().take(3).cloned().collect::<Vec<_>>().join(", "), what);
    }
    is_doubtful
}

/// Warns of images that have the name of another. Returns whether it did.
fn tell_alike(names: &[&str], source: &Source) -> bool {
    let Some(alike) = named_alike(names).or_else(|| alike_in_format(names)) else { return false };
    let Alike { count, image, mask, pattern } = alike;
    let help = MASK_FILES.to(&pattern);
    let what = format!(
        "{count} images have the name of another, such as `{mask}` and `{image}`: if they are masks, set {help}"
    );
    tracing::warn!(url = source.url(), "{what}");
    true
}

/// Warns of a class that may hold masks of other images. Returns whether it did.
fn tell_marks(names: &[&str], around: usize, tops: &BTreeSet<String>, source: &Source) -> bool {
    let marks = match tops.len() {
        1 => None,
        2..=FEW => layout::like_marks(tops.iter().map(String::as_str)).or_else(|| twin(names, around, tops)),
        _ => tops.iter().map(String::as_str).find(|top| layout::is_marks(top)),
    };
    let Some(marks) = marks else { return false };
    let or = if layout::like_marks(tops.iter().map(String::as_str)).is_some() || tops.len() > FEW {
        ""
    } else {
        ", or the same with the name of the other folder"
    };
    let folder = format!("{}{marks}/", &names[0][..around]);
    let first = names.iter().find(|name| name.starts_with(&folder)).copied().unwrap_or_default();
    let help = MASK_FILES.to(&format!("{folder}{{stem}}{}", &first[layout::stem(first).len()..]));
    let folder = source.display_name(folder.trim_end_matches('/'));
    let what = "a folder that may hold masks or labels of other images is taken for a class";
    tracing::warn!(folder, "{what}; if it does, set {help}{or}");
    true
}

/// So many classes may as well be images and their masks.
const FEW: usize = 8;

/// Files of a folder that are examined.
const LOOKED_AT: usize = 4096;

/// A class whose files have the names of another's, not only numbered or, if there are two classes, in another format.
fn twin<'n, 'a>(names: &[&'n str], around: usize, tops: &'a BTreeSet<String>) -> Option<&'a str> {
    let files = |top: &str| -> Vec<&'n str> {
        let of = |name: &&'n str| name[around..].strip_prefix(top)?.strip_prefix('/');
        names.iter().filter_map(of).take(LOOKED_AT).collect()
    };
    let all: Vec<(&'a str, Vec<&'n str>)> = tops.iter().map(|top| (top.as_str(), files(top))).collect();
    let words = |file: &str| layout::stem(file).replace(|c: char| c.is_ascii_digit(), "");
    let is_twin = |a: &[&str], b: &[&str]| {
        let same = a.len() == b.len() && a.iter().zip(b).all(|(a, b)| layout::stem(a) == layout::stem(b));
        let ending = |file: &str| file[layout::stem(file).len()..].to_ascii_lowercase();
        same && (all.len() == 2 && ending(a[0]) != ending(b[0]) || a.iter().any(|file| words(file) != words(a[0])))
    };
    let of = |at: usize| all[..at].iter().find(|(_, first)| is_twin(first, &all[at].1));
    let (first, last) = (1..all.len()).find_map(|at| Some((of(at)?, &all[at])))?;
    // Masks are hardly JPEGs.
    Some(if is_jpeg(last.1[0]) && !is_jpeg(first.1[0]) { first.0 } else { last.0 })
}

fn is_jpeg(name: &str) -> bool {
    ends_with(name, ".jpg") || ends_with(name, ".jpeg")
}

/// Images that have the names of others, and may be their masks.
#[derive(Debug, PartialEq)]
struct Alike<'a> {
    count: usize,
    /// An image, and the one of its name.
    image: &'a str,
    mask: &'a str,
    /// Of their names, for `mask_files`.
    pattern: String,
}

/// Images next to others whose name begins theirs, in another file format: `1.jpg` and `1.png`, `1_manual.png`. `None`
/// if these are not usual. `names` are in order.
fn named_alike<'a>(names: &[&'a str]) -> Option<Alike<'a>> {
    let (mut images, mut alike, mut first) = (0, 0, None);
    let mut last = "";
    for &name in names.iter().take(LOOKED_AT) {
        let stem = layout::stem(last);
        let rest = name.strip_prefix(stem).filter(|rest| !stem.is_empty() && !rest.starts_with(char::is_alphanumeric));
        match rest {
            Some(rest)
                if !rest.contains('/')
                    && !name[layout::stem(name).len()..].eq_ignore_ascii_case(&last[stem.len()..]) =>
            {
                alike += 1;
                let folder = parent(name);
                let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                first.get_or_insert_with(|| (last, name, format!("{folder}{{stem}}{rest}")));
            }
            _ => (images, last) = (images + 1, name),
        }
    }
    let (image, mask, pattern) = first.filter(|_| 2 * alike >= images)?;
    Some(Alike { count: alike, image, mask, pattern })
}

/// The same for images in one file format: `1.png` and `1_L.png`, where each image has one of this ending; `image-1.png`
/// and `label-1.png`.
fn alike_in_format<'a>(names: &[&'a str]) -> Option<Alike<'a>> {
    let some = &names[..names.len().min(LOOKED_AT)];
    let known: HashMap<&str, &str> = some.iter().map(|name| (layout::stem(name), *name)).collect();
    let is_word = |text: &str| text.contains(char::is_alphabetic);
    // Of each ending, how many names have it, and the first with its image.
    let mut endings: BTreeMap<&str, (usize, &str, &str)> = BTreeMap::new();
    for &mask in some {
        let stem = layout::stem(mask);
        let start = stem.len() - base(stem).len();
        let ends = stem[start..].char_indices().filter(|(_, c)| !c.is_alphanumeric() || c.is_uppercase());
        let found = ends.map(|(at, _)| stem.split_at(start + at)).find_map(|(before, ending)| {
            let image = known.get(before).filter(|_| is_word(ending))?;
            Some((ending, *image))
        });
        if let Some((ending, image)) = found {
            endings.entry(ending).or_insert((0, image, mask)).0 += 1;
        }
    }
    if let Some((ending, (count, image, mask))) = endings.into_iter().max_by_key(|(_, (count, ..))| *count)
        && count > 1
        // Copies and mirrored ones are JPEGs, as the images are.
        && (2 * count == some.len() && !is_jpeg(mask) || looks_like_mask(ending) && 3 * count >= some.len())
    {
        let format = &mask[layout::stem(mask).len()..];
        return Some(Alike { count, image, mask, pattern: format!("{{stem}}{ending}{format}") });
    }
    alike_but_for_a_word(some, false).or_else(|| alike_but_for_a_word(some, true))
}

/// The same for names that have one of two words before (or `behind`) the same rest, of which one is a mask's.
fn alike_but_for_a_word<'a>(names: &[&'a str], behind: bool) -> Option<Alike<'a>> {
    let is_between = |c: char| !c.is_alphanumeric();
    // By word, the name of each folder and rest.
    let mut words: BTreeMap<&str, BTreeMap<(&str, &str), &str>> = BTreeMap::new();
    for &name in names {
        let stem = base(layout::stem(name));
        let (word, rest) = match behind {
            false => stem.split_at(stem.find(is_between)?),
            true => {
                let (_, word) = stem.rsplit_once(is_between)?;
                (word, &stem[..stem.len() - word.len()])
            }
        };
        words.entry(word).or_default().insert((parent(name), rest), name);
        if words.len() > 2 {
            return None;
        }
    }
    let [(a, of_a), (b, of_b)] = &words.into_iter().collect::<Vec<_>>()[..] else { return None };
    let ((word, masks), (other, images)) =
        if looks_like_mask(a) { ((a, of_a), (b, of_b)) } else { ((b, of_b), (a, of_a)) };
    if images.len() < 2 || !images.keys().eq(masks.keys()) || !looks_like_mask(word) || looks_like_mask(other) {
        return None;
    }
    let ((_, rest), image) = images.first_key_value()?;
    let mask = masks.values().next()?;
    let pattern = |word: &str, name: &str| {
        let format = &name[layout::stem(name).len()..];
        Some(match behind {
            false => format!("{word}{}{{stem}}{format}", rest.chars().next()?),
            true => format!("{{stem}}{}{word}{format}", rest.chars().next_back()?),
        })
    };
    let pattern = format!("{} => {}", pattern(other, image)?, pattern(word, mask)?);
    Some(Alike { count: masks.len(), image, mask, pattern })
}

/// The label of each record: runs of equal labels, as class folders give them, or one by one if that is smaller.
#[derive(Debug)]
pub(crate) enum RecordLabels {
    Each(Vec<i64>),
    /// End and label of each run.
    Runs(Vec<(u64, i64)>),
}

impl RecordLabels {
    pub(crate) fn of(mut labels: Vec<i64>) -> Self {
        let runs = || labels.chunk_by(|a, b| a == b);
        if runs().count() > labels.len() / 2 {
            labels.shrink_to_fit();
            return Self::Each(labels);
        }
        let mut end = 0;
        let run = |run: &[i64]| {
            end += run.len() as u64;
            (end, run[0])
        };
        Self::Runs(runs().map(run).collect())
    }

    /// The label of a record, of which there are as many as labels.
    pub(crate) fn get(&self, record: usize) -> i64 {
        match self {
            Self::Each(labels) => labels[record],
            Self::Runs(runs) => runs[runs.partition_point(|(end, _)| *end <= record as u64)].1,
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Each(labels) => size_of_val(&**labels),
            Self::Runs(runs) => size_of_val(&**runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs;

    #[test]
    fn images_with_the_names_of_others_are_told() {
        let like = |names: &[&str]| named_alike(names).map(|alike| (alike.count, alike.pattern));
        let found = |count, like: &str| Some((count, like.to_owned()));
        assert_eq!(like(&["1.jpg", "1.png", "2.jpg", "2.png"]), found(2, "{stem}.png"));
        assert_eq!(like(&["x/a.jpg", "x/a_1stHO.png", "x/b.jpg", "x/b_1stHO.png"]), found(2, "x/{stem}_1stHO.png"));
        for names in
            [&["1.jpg", "10.png", "11.jpg"][..], &["a.jpg", "b.png"], &["a/1.jpg", "b/1.png"], &["a.jpg", "a_b.jpg"]]
        {
            assert_eq!(like(names), None, "{names:?}");
        }
        for (names, pattern) in [
            (["c/1-mask.png", "c/1.png", "c/2-mask.png", "c/2.png"], "{stem}-mask.png"),
            (["c/1.png", "c/1_L.png", "c/2.png", "c/2_L.png"], "{stem}_L.png"),
            (["c/1.png", "c/1Mask.png", "c/2.png", "c/2Mask.png"], "{stem}Mask.png"),
            (
                ["c/image-1.png", "c/image-2.png", "c/label-1.png", "c/label-2.png"],
                "image-{stem}.png => label-{stem}.png",
            ),
            (["c/1.image.png", "c/1.mask.png", "c/2.image.png", "c/2.mask.png"], "{stem}.image.png => {stem}.mask.png"),
        ] {
            let found = alike_in_format(&names).unwrap();
            assert_eq!((found.count, &*found.pattern), (2, pattern), "{found:?}");
            let sides = pairs::sides_by(&names, pattern).unwrap();
            assert_eq!((sides.images.len(), sides.masks.len()), (2, 2), "{pattern}");
        }
        for names in [
            &["1.jpg", "10.jpg"][..],
            &["a.jpg", "a_b.jpg"],
            &["a_1.jpg", "a_2.jpg", "b_1.jpg", "b_2.jpg"],
            &["1.jpg", "1_flipped.jpg", "2.jpg", "2_flipped.jpg"],
            &["img-1.png", "img-2.png", "other-1.png", "other-2.png"],
            &["1.png", "1_1.png", "2.png", "2_1.png"],
            &["a\u{9b}2\u{202e}b.png", "ä\u{202e}c.png", "\u{202e}.png"],
        ] {
            assert_eq!(alike_in_format(names), None, "{names:?}");
        }
    }

    proptest::proptest! {
        /// Names of strangers: capitals, blanks, characters of several bytes, words of masks and splits.
        #[test]
        fn no_names_make_it_panic(
            mut names in proptest::collection::vec(
                "((train|Masks|ä|_|-|images_png|A)/){0,2}(mask|img|image|ä|\u{202e}|[a-bA-B0-1_. -]){1,8}\\.(png|jpg)",
                1..12,
            ),
            pattern in "(ä|img/|)\\{stem\\}(ä|_|)( => |)(|m/\\{stem\\}\\.png)",
        ) {
            names.sort_unstable();
            names.dedup();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let tops: BTreeSet<String> = names.iter().filter_map(|n| Some(n.split_once('/')?.0.to_owned())).collect();
            let _ = (named_alike(&names), super::twin(&names, 0, &tops));
            let _ = layout::like_marks(tops.iter().map(String::as_str));
            if let Some(Alike { pattern, .. }) = alike_in_format(&names) {
                let sides = pairs::sides_by(&names, &pattern);
                proptest::prop_assert!(sides.is_ok_and(|sides| !sides.masks.is_empty()), "{pattern}");
            }
            let _ = (pairs::sides(&names, false), pairs::sides_by(&names, &pattern));
            let source = Source::from_store(Source::memory("any_names"), "".into(), "memory://any_names");
            let _ = (layout::runs(&names), classes_of(&names, &source, None, true));
            names.iter().for_each(|name| drop((layout::key(name), layout::kind_of(name))));
        }
    }

    #[test]
    fn classes_that_are_rather_masks_are_told() {
        let twin = |names: &[&str]| {
            let tops = names.iter().filter_map(|name| Some(name.split_once('/')?.0.to_owned())).collect();
            super::twin(names, 0, &tops).map(str::to_owned)
        };
        assert_eq!(twin(&["A/x_1.png", "A/y.png", "OUT/x_1.png", "OUT/y.png"]).as_deref(), Some("OUT"));
        assert_eq!(twin(&["orig/1.jpg", "orig/2.jpg", "out/1.png", "out/2.png"]).as_deref(), Some("out"));
        // Photographs of two classes that are numbered in each.
        assert_eq!(twin(&["cat/1.jpg", "cat/2.jpg", "dog/1.jpg", "dog/2.jpg"]), None);
        assert_eq!(twin(&["cat/img_1.jpg", "dog/img_1.jpg"]), None);
        assert_eq!(twin(&["a/1.png", "b/1.gif", "c/1.png"]), None);
        let like = |tops: &[&'static str]| layout::like_marks(tops.iter().copied());
        assert_eq!(like(&["DUTS-TR-Image", "DUTS-TR-Mask"]), Some("DUTS-TR-Mask"));
        assert_eq!(like(&["Training_GroundTruth", "Training_Input"]), Some("Training_GroundTruth"));
        assert_eq!(like(&["imgs", "imgs_label"]), Some("imgs_label"));
        assert_eq!(like(&["mask_weared_incorrect", "with_mask", "without_mask"]), None);
        assert_eq!(like(&["cat", "dog"]), None);
        assert_eq!(like(&["FaceMasks", "SheetMasks"]), None);
        assert_eq!(like(&["CXR", "ManualMask"]), Some("ManualMask"));
    }

    #[test]
    fn each_record_has_its_label_and_runs_take_less_memory() {
        for (labels, bytes) in [
            (vec![], 0),
            (vec![3], 8),
            (vec![0, 1, 0, 1, 1], 5 * 8),
            ([vec![2; 100], vec![-1; 7], vec![2; 3]].concat(), 3 * 16),
        ] {
            let found = RecordLabels::of(labels.clone());
            assert_eq!((0..labels.len()).map(|record| found.get(record)).collect::<Vec<_>>(), labels);
            assert_eq!(found.bytes(), bytes);
        }
    }
}
