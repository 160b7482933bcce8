//! Matches images with their masks, or with other files that describe them.
//!
//! Folders are told apart by words in their names (see [`layout`](super::layout)), otherwise files by a prefix or
//! suffix: `a_mask.png` of `a.jpg`. A pattern of the masks' names replaces both rules.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
};

use infeed_core::error::{Error, ErrorKind, Result, setting::MASK_FILES};

use super::{
    layout::{Role, joined, of_folders, runs, stem},
    names::{base, is_image, parent},
};

/// Suffixes of mask names, and their rank: if an image has several masks, the lowest rank is taken.
const BEHIND: [(&str, u8); 18] = [
    ("_gtfine_labelids", 1),
    ("_gtcoarse_labelids", 1),
    ("_gtfine_labeltrainids", 2),
    ("_gtfine_instanceids", 3),
    ("_gtcoarse_instanceids", 3),
    ("_gtfine_color", 4),
    ("_gtcoarse_color", 4),
    ("_masks", 1),
    ("_mask", 1),
    ("_labels", 1),
    ("_label", 1),
    ("_segmentation", 1),
    ("_seg", 1),
    ("_annotation", 1),
    ("_trimap", 1),
    ("_gt", 1),
    ("_groundtruth", 1),
    ("_ground_truth", 1),
];
const BEFORE: [&str; 5] = ["mask_", "label_", "gt_", "seg_", "annotation_"];
const IMAGE_BEHIND: [&str; 6] = ["_leftimg8bit", "_image", "_img", "_rgb", "_sat", "_im"];
const IMAGE_BEFORE: [&str; 3] = ["image_", "img_", "rgb_"];

/// Number of files of a folder that are checked for masks next to their images.
const LOOKED_AT: usize = 64;

fn strip_end<'a>(text: &'a str, end: &str) -> Option<&'a str> {
    let at = text.len().checked_sub(end.len()).filter(|at| *at > 0)?;
    text.get(at..)?.eq_ignore_ascii_case(end).then(|| &text[..at])
}

fn strip_start<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let rest = text.get(start.len()..).filter(|rest| !rest.is_empty())?;
    text[..start.len()].eq_ignore_ascii_case(start).then_some(rest)
}

/// The image's stem that a mask's stem stands for, and the rank of the match.
fn of_mask(stem: &str) -> (&str, u8) {
    let behind = BEHIND.iter().find_map(|(end, rank)| Some((strip_end(stem, end)?, *rank)));
    let before = || BEFORE.iter().find_map(|start| Some((strip_start(stem, start)?, 1)));
    behind.or_else(before).unwrap_or((stem, 0))
}

fn of_image(stem: &str) -> &str {
    let behind = IMAGE_BEHIND.iter().find_map(|end| strip_end(stem, end));
    behind.or_else(|| IMAGE_BEFORE.iter().find_map(|start| strip_start(stem, start))).unwrap_or(stem)
}

/// How to get the image's stem from the stem of an image, and from that of a mask.
type Stems = (fn(&str) -> &str, fn(&str) -> (&str, u8));

/// Images and their masks.
#[derive(Debug, Default)]
pub(crate) struct Sides {
    /// Indices of image files, each with its folders (without words such as `images`) and base name.
    pub(crate) images: Vec<(u32, String)>,
    /// Indices of mask files, each with the stem of its image.
    pub(crate) masks: Vec<(u32, String)>,
    /// Further masks of the images.
    pub(crate) others: Vec<u32>,
}

/// Images and masks, if names of folders or files tell them apart; `names` has only image files. If an image consists
/// of `several` files, their suffixes may be channels, so only folders are used.
pub(crate) fn sides(names: &[&str], several: bool) -> Option<Sides> {
    let runs = runs(names);
    let roles: Vec<_> = runs.iter().map(|run| of_folders(run.folder)).collect();
    let is_mask = |(role, _): &(Option<Role>, Cow<'_, str>)| *role == Some(Role::Marks);
    let beside = !roles.iter().any(is_mask);
    if beside && !runs.iter().any(|run| holds_both(&names[run.names.clone()])) {
        return None;
    }
    let mut images: Vec<(u32, &str, &str)> = Vec::new();
    let mut masks: Vec<(u32, &str, &str)> = Vec::new();
    for (run, role) in runs.iter().zip(&roles) {
        for at in run.names.clone() {
            let name = base(names[at]);
            let is_mask = if beside { of_mask(stem(name)).1 > 0 } else { is_mask(role) };
            let side = if is_mask { &mut masks } else { &mut images };
            if role.0 != Some(Role::Kind) {
                side.push((at as u32, &role.1, name));
            }
        }
    }
    // By unchanged stems first, then without prefixes and suffixes.
    let stems: [Stems; 2] = [(|stem| stem, |stem| (stem, 0)), (of_image, of_mask)];
    let matched = |(image, mask): Stems| {
        let known: BTreeSet<_> = images.iter().map(|(_, folder, name)| (*folder, image(stem(name)))).collect();
        masks.iter().filter(|(_, folder, name)| known.contains(&(*folder, mask(stem(name)).0))).count()
    };
    let [plain, stripped] = stems.map(matched);
    if images.is_empty() || plain.max(stripped) == 0 && (beside || !several) {
        return None;
    }
    let (image, mask) = stems[usize::from(stripped > plain)];
    // If an image has masks of several kinds, the most likely kind is used.
    let mut best: HashMap<(&str, &str), u8> = HashMap::new();
    for (_, folder, name) in &masks {
        let (of, rank) = mask(stem(name));
        best.entry((folder, of)).and_modify(|best| *best = rank.min(*best)).or_insert(rank);
    }
    let mut sides = Sides::default();
    for (at, folder, name) in &masks {
        let (of, rank) = mask(stem(name));
        match best.get(&(*folder, of)) {
            Some(best) if rank > *best => sides.others.push(*at),
            _ => sides.masks.push((*at, joined(folder, of))),
        }
    }
    for (at, folder, name) in images {
        let ending = &name[stem(name).len()..];
        sides.images.push((at, joined(folder, &format!("{}{ending}", image(stem(name))))));
    }
    Some(sides)
}

/// Whether some files of a folder are masks of others.
fn holds_both(names: &[&str]) -> bool {
    let some = &names[..names.len().min(LOOKED_AT)];
    let mask = |name: &&str| of_mask(stem(base(name))).1 > 0;
    if !some.iter().any(mask) {
        return false;
    }
    let images: BTreeSet<&str> =
        some.iter().filter(|name| !mask(name)).map(|name| of_image(stem(base(name)))).collect();
    some.iter().filter(|name| mask(name)).any(|name| images.contains(of_mask(stem(base(name))).0))
}

/// A pattern of names with `{stem}`.
struct Pattern<'a> {
    before: &'a str,
    after: &'a str,
}

impl<'a> Pattern<'a> {
    fn parse(pattern: &'a str) -> Result<Self> {
        let parts = pattern.trim().trim_start_matches("./").split_once("{stem}");
        let parts = parts.filter(|(_, after)| !after.contains('{') && !after.contains("=>"));
        let (before, after) = parts.ok_or_else(|| {
            let what = format!("the pattern of names {pattern:?} has no {{stem}}, or more than one");
            Error::config(what).with_hint(
                "write it like masks/{stem}_mask.png: {stem} stands for the image's name without its extension; or for \
                 images and masks, like {stem}_photo.jpg => {stem}_mask.png",
            )
        })?;
        // Without an extension, or with `.*`, the pattern matches every extension.
        Ok(Self { before, after: after.strip_suffix(".*").unwrap_or(after) })
    }

    /// What `{stem}` stands for in a name that fits, including the folders before a pattern that names none.
    fn stem_of<'n>(&self, name: &'n str) -> Option<Cow<'n, str>> {
        let within = |name: &'n str| {
            let tail = if is_image(self.after) { name } else { stem(name) };
            let stem = tail.strip_prefix(self.before)?.strip_suffix(self.after)?;
            (!stem.is_empty()).then_some(stem)
        };
        let below = || within(base(name)).filter(|_| !self.before.contains('/'));
        within(name).map(Cow::Borrowed).or_else(|| Some(joined(parent(name), below()?).into()))
    }
}

/// Images and masks, by a pattern of the masks' names, `masks/{stem}_mask.png`, or by one for images and one for masks,
/// `{stem}_photo.jpg => {stem}_mask.png`.
pub(crate) fn sides_by(names: &[&str], pattern: &str) -> Result<Sides> {
    let (of_images, of_masks) = match pattern.split_once("=>") {
        Some((images, masks)) => (Some(Pattern::parse(images)?), Pattern::parse(masks)?),
        None => (None, Pattern::parse(pattern)?),
    };
    let mut sides = Sides::default();
    let mut images: Vec<(u32, &str)> = Vec::new();
    for (at, name) in (0u32..).zip(names) {
        match of_masks.stem_of(name) {
            Some(stem) => sides.masks.push((at, stem.into_owned())),
            None => images.push((at, name)),
        }
    }
    if sides.masks.is_empty() {
        let first = names.first().copied().unwrap_or("");
        let what = format!("none of {} images fits the pattern of masks; the first is `{first}`", names.len());
        return Err(
            Error::new(ErrorKind::NotFound, what).with_hint("write the pattern to match the names of the masks")
        );
    }
    // Masks of other kinds, unless nothing else is there.
    let is_image = |(_, name): &(u32, &str)| !matches!(of_folders(parent(name)).0, Some(Role::Marks | Role::Kind));
    if let Some(of_images) = of_images {
        let known: HashSet<&str> = sides.masks.iter().map(|(_, stem)| stem.as_str()).collect();
        for (at, name) in images.drain(..) {
            match of_images.stem_of(name).filter(|stem| known.contains(&**stem)) {
                Some(found) => sides.images.push((at, format!("{found}{}", &name[stem(name).len()..]))),
                None => sides.others.push(at),
            }
        }
        if sides.images.is_empty() {
            let what = format!("no image of {} fits the pattern {pattern:?} and has a mask", names.len());
            return Err(Error::new(ErrorKind::NotFound, what).with_hint(
                "write what is before => to match the names of the images, with {stem} as in those of masks",
            ));
        }
    } else if images.iter().any(is_image) {
        let others: Vec<(u32, &str)> = images.extract_if(.., |image| !is_image(image)).collect();
        sides.others.extend(others.iter().map(|(at, _)| *at));
    }
    // {stem} need not contain all folders above the image.
    let known: BTreeSet<&str> = sides.masks.iter().map(|(_, stem)| stem.as_str()).collect();
    for (at, name) in images {
        let ends = std::iter::once(name).chain(name.match_indices('/').map(|(at, _)| &name[at + 1..]));
        let short = ends.clone().find(|name| known.contains(stem(name))).unwrap_or(name);
        sides.images.push((at, short.to_owned()));
    }
    let mut seen = HashMap::new();
    for (at, name) in &sides.images {
        if let Some(other) = seen.insert(stem(name), *at) {
            let (a, b) = (names[other as usize], names[*at as usize]);
            let what = format!("the images `{a}` and `{b}` have the same mask");
            return Err(Error::config(what).with_hint(format!("add their folders to the pattern of {MASK_FILES}")));
        }
    }
    Ok(sides)
}

/// Each image, with the file of this extension and the same key, as indices into `objects`, in the order of the images.
/// If there are two such files, the first.
#[cfg(any(feature = "voc", feature = "yolo"))]
pub(crate) fn with_marks(objects: &[infeed_store::Object], ending: &str) -> Vec<(usize, Option<usize>)> {
    let mut marks: HashMap<String, usize> = HashMap::new();
    for (at, object) in objects.iter().enumerate().filter(|(_, o)| super::names::ends_with(&o.name, ending)) {
        marks.entry(super::layout::key(&object.name)).or_insert(at);
    }
    if marks.is_empty() {
        return Vec::new();
    }
    let of = |all: bool| -> Vec<(usize, Option<usize>)> {
        let is_one = |name: &str| is_image(name) && (all || !super::layout::is_no_photograph(name));
        let images = objects.iter().enumerate().filter(|(_, object)| is_one(&object.name));
        images.map(|(at, object)| (at, marks.get(&super::layout::key(&object.name)).copied())).collect()
    };
    // Masks and depth next to the photographs have the same keys. If nothing else is there, they are the images.
    let photographs = of(false);
    if photographs.iter().any(|(_, mark)| mark.is_some()) { photographs } else { of(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each image with its mask.
    fn paired(names: &[&str]) -> Option<Vec<(String, String)>> {
        let mut names = names.to_vec();
        names.sort_unstable();
        let sides = sides(&names, false)?;
        let of: HashMap<_, _> = sides.masks.iter().map(|(at, stem)| (stem.as_str(), names[*at as usize])).collect();
        let pair = |(at, name): &(u32, String)| {
            (names[*at as usize].to_owned(), of.get(stem(name)).map_or("-", |mask| mask).to_owned())
        };
        Some(sides.images.iter().map(pair).collect())
    }

    #[test]
    fn masks_are_found_under_the_names_that_public_datasets_use() {
        for (image, mask) in [
            ("images/a.jpg", "masks/a.png"),
            ("imgs/a.png", "masks/a.png"),
            ("image/a.png", "mask/a.png"),
            ("image/a.png", "label/a.png"),
            ("Images/a.jpg", "Masks/a.png"),
            ("images/training/a.jpg", "annotations/training/a.png"),
            ("train/images/a.jpg", "train/labels/a.png"),
            ("train/a.jpg", "train_masks/a_mask.png"),
            ("train/a.png", "trainannot/a.png"),
            ("train_images/a.png", "train_labels/a.png"),
            ("img_dir/val/a.jpg", "ann_dir/val/a.png"),
            ("JPEGImages/a.jpg", "SegmentationClass/a.png"),
            ("images/train/a.jpg", "images/train/masks/a.png"),
            ("leftImg8bit/val/x/a_1_leftImg8bit.png", "gtFine/val/x/a_1_gtFine_labelIds.png"),
            ("images/image_0001.png", "masks/gt_0001.png"),
            ("a_sat.jpg", "a_mask.png"),
            ("training.tif", "training_groundtruth.tif"),
            ("PNGImages/a.png", "PedMasks/a_mask.png"),
            ("imgs/a.jpg", "BinaryMasks/a.png"),
            ("Val/Urban/images_png/9.png", "Val/Urban/masks_png/9.png"),
            ("images_prepped_test/9.png", "annotations_prepped_test/9.png"),
            ("benign/b (1).png", "benign/b (1)_mask.png"),
            ("a.jpg", "masks/a.png"),
            ("RGB/a.png", "SemSeg/a.png"),
        ] {
            assert_eq!(paired(&[image, mask]), Some(vec![(image.to_owned(), mask.to_owned())]), "{image} {mask}");
        }
        let both = ["leftImg8bit/a_leftImg8bit.png", "gtFine/a_gtFine_color.png", "gtFine/a_gtFine_labelIds.png"];
        assert_eq!(paired(&both).unwrap()[0].1, "gtFine/a_gtFine_labelIds.png");
    }

    #[test]
    fn classes_are_no_masks() {
        for names in [
            &["mask/1.jpg", "no_mask/1.jpg"][..],
            &["with_mask/1.jpg", "without_mask/1.jpg"],
            &["cats/1.jpg", "dogs/1.jpg"],
            &["label/1.jpg", "price/1.jpg"],
            &["1.jpg", "2.jpg"],
            &["unmask/a.jpg", "test_gt4/a.jpg"],
        ] {
            assert_eq!(paired(names), None, "{names:?}");
        }
    }

    #[test]
    fn a_pattern_tells_masks_of_other_names() {
        let names = ["gt/a_road.png", "gt/b_road.png", "in/a.jpg", "in/b.jpg"];
        for pattern in ["gt/{stem}_road.png", "gt/{stem}_road", "gt/{stem}_road.*"] {
            let sides = sides_by(&names, pattern).unwrap();
            let masks: Vec<_> = sides.masks.iter().map(|(at, of)| (*at, &**of)).collect();
            assert_eq!(masks, [(0, "a"), (1, "b")]);
            assert_eq!(sides.images, [(2, "a.jpg".to_owned()), (3, "b.jpg".to_owned())]);
        }
        let deep = ["in/x/a.jpg", "in/y/a.jpg", "m/x/a.png", "m/y/a.png"];
        let names: Vec<_> = sides_by(&deep, "m/{stem}.png").unwrap().images;
        assert_eq!(names, [(0, "x/a.jpg".to_owned()), (1, "y/a.jpg".to_owned())]);
        let voc = ["JPEGImages/a.jpg", "SegmentationClass/a.png", "SegmentationObject/a.png"];
        let sides = sides_by(&voc, "SegmentationClass/{stem}.png").unwrap();
        assert_eq!((sides.images.len(), sides.masks.len(), &sides.others[..]), (1, 1, &[2][..]));
        // The retinas of DRIVE, and lesions of BUSI with further masks.
        let names = ["1st_manual/21_manual1.gif", "images/21_training.tif", "mask/21_training_mask.gif"];
        let sides = sides_by(&names, "images/{stem}_training.tif => 1st_manual/{stem}_manual1.gif").unwrap();
        assert_eq!((&sides.images[..], &sides.masks[..]), (&[(1, "21.tif".into())][..], &[(0, "21".into())][..]));
        assert_eq!(sides.others, [2]);
        // In any folder.
        let sides =
            sides_by(&["a/img_1.png", "a/mask_1.png", "b/img_1.png", "b/mask_1.png"], "img_{stem} => mask_{stem}");
        assert_eq!(sides.unwrap().images, [(0, "a/1.png".to_owned()), (2, "b/1.png".to_owned())]);
        // Of Pascal VOC's photographs most have no mask.
        let names = ["JPEGImages/a.jpg", "JPEGImages/b.jpg", "SegmentationClass/b.png"];
        let sides = sides_by(&names, "JPEGImages/{stem}.jpg => SegmentationClass/{stem}.png").unwrap();
        assert_eq!((&sides.images[..], &sides.others[..]), (&[(1, "b.jpg".into())][..], &[0][..]));
        let names = ["b (1).png", "b (1)_mask.png", "b (1)_mask_1.png"];
        let sides = sides_by(&names, "{stem}).png=>{stem})_mask").unwrap();
        assert_eq!((sides.images[0].0, sides.masks[0].0, &sides.others[..]), (0, 1, &[2][..]));
        let says = |names: &[&str], pattern: &str| sides_by(names, pattern).unwrap_err().to_string();
        assert!(says(&["a.jpg"], "masks/a.png").contains("no {stem}"));
        assert!(says(&["a.jpg"], "masks/{stem}.png").contains("none of 1 images fits"));
        assert!(says(&["a.jpg"], "{stem}.jpg => masks").contains("\" masks\" has no {stem}"));
        assert!(says(&["a.jpg", "a.png"], "x/{stem} => {stem}.png").contains("no image of 2 fits the pattern"));
        assert!(says(&["x/a.jpg", "y/a.jpg", "m/a.png"], "m/{stem}.png").contains("have the same mask"));
    }
}
