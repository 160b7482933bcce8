//! The annotations of all images of a dataset.
//!
//! ```text
//! Thing, Outlines, Keypoints ─ in the order of the annotations ─▶ Marked ─ the bytes of one image ─▶ Instances
//!
//! of an image: text what is wrong with its annotations, or nothing (varint length, UTF-8); varint objects, each:
//!     f32 left, top, right, bottom, varint label, varint id (as u64), u8 1 crowd + 2 has key points + 4 × outline
//!     key points, each: f32 x, y, visibility
//!   outlines, of each object:
//!     0: none; 1: varint polygons, each: varint twice the corners, plus 1 if they are in hundredths; x and y of each:
//!       hundredths, as usual in COCO, are varints of twice the number, or -1 minus that if it is negative; others f64
//!     2: varint height, varint width, varint runs, each varint                                          little-endian
//! ```

use std::{collections::HashMap, sync::Arc};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprinter,
};
use infeed_store::{Blocks, Rest, number, text};

use super::{
    instances::Instances,
    mask::{Mask, Rle},
};

/// One box of one image, to be added to [`Marked`].
#[derive(Clone, Copy, Debug)]
pub struct Thing {
    /// The index of the image in the dataset.
    pub(crate) record: usize,
    /// Left, top, right, bottom, in the units of the dataset.
    pub(crate) corners: [f32; 4],
    pub(crate) label: u32,
    pub(crate) id: i64,
    pub(crate) crowd: bool,
    pub(crate) outline: Outline,
    /// Where its key points begin in [`Keypoints`]; `None` if it has none.
    pub(crate) keypoints: Option<usize>,
}

/// The key points of all objects.
#[derive(Debug, Default)]
pub struct Keypoints {
    /// Names of the points of an object.
    pub(crate) names: Arc<[String]>,
    /// As many for each object as there are names: x and y in the units of the dataset, then COCO's visibility.
    pub(crate) points: Vec<[f32; 3]>,
}

impl Keypoints {
    /// Adds the points of an object, written as x, y and visibility in turn; returns where they begin.
    pub(crate) fn push(&mut self, numbers: &[f32]) -> Result<usize, String> {
        let (points, rest) = numbers.as_chunks();
        let each = self.names.len();
        if points.len() != each || !rest.is_empty() {
            return Err(format!("{} numbers for {each} key points, not three for each", numbers.len()));
        }
        if let Some(wrong) = points.iter().find(|point| !point.iter().all(|number| number.is_finite())) {
            return Err(format!("the key point {wrong:?} has values that are not numbers"));
        }
        self.points.extend_from_slice(points);
        Ok(self.points.len() - each)
    }
}

/// The units of boxes and polygons.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Units {
    #[default]
    Pixels,
    /// Fractions of the width and height, from 0 to 1; converted to pixels once the image's size is known.
    Fractions,
}

impl Units {
    /// The factors for x and y.
    fn scale(self, [height, width]: [u32; 2]) -> [f64; 2] {
        match self {
            Self::Pixels => [1.0; 2],
            Self::Fractions => [width.into(), height.into()],
        }
    }
}

/// The position of an outline in [`Outlines`]: the first byte, and the end.
#[derive(Clone, Copy, Debug, Default)]
pub enum Outline {
    /// No outline.
    #[default]
    None,
    Polygons(usize, usize),
    Runs(usize, usize),
}

impl Outline {
    /// The number that an object's flags have for it.
    const fn kind(self) -> u8 {
        match self {
            Self::None => NONE,
            Self::Polygons(..) => POLYGONS,
            Self::Runs(..) => RUNS,
        }
    }
}

/// All outlines, as [`Marked`] keeps them.
#[derive(Debug, Default)]
pub struct Outlines(Vec<u8>);

impl Outlines {
    /// Adds polygons: `numbers` are x and y alternating, `ends` the end of each polygon in them.
    pub(crate) fn polygons(&mut self, numbers: &[f64], ends: &[usize]) -> Outline {
        let first = self.0.len();
        number(&mut self.0, ends.len() as u64);
        let mut start = 0;
        for end in ends {
            write_corners(&numbers[start..*end], &mut self.0);
            start = *end;
        }
        Outline::Polygons(first, self.0.len())
    }

    /// Adds runs. Their height and width are compared with the image when it is read.
    pub(crate) fn runs(&mut self, rle: &Rle) -> Outline {
        let first = self.0.len();
        rle.size().into_iter().for_each(|side| number(&mut self.0, side.into()));
        number(&mut self.0, rle.counts().len() as u64);
        rle.counts().iter().for_each(|run| number(&mut self.0, (*run).into()));
        Outline::Runs(first, self.0.len())
    }

    fn bytes(&self, outline: Outline) -> &[u8] {
        match outline {
            Outline::None => &[],
            Outline::Polygons(first, last) | Outline::Runs(first, last) => &self.0[first..last],
        }
    }
}

/// Flags of an object.
const CROWD: u8 = 1;
const HAS_KEYPOINTS: u8 = 2;
/// Kinds of outlines, in the bits above.
const OUTLINE_SHIFT: u32 = 2;
const NONE: u8 = 0;
const POLYGONS: u8 = 1;
const RUNS: u8 = 2;

/// The next numbers.
fn floats<const N: usize>(rest: &mut Rest<'_>) -> Option<[f32; N]> {
    let mut found = [0.0; N];
    for (number, bytes) in found.iter_mut().zip(rest.take(N * 4)?.as_chunks().0) {
        *number = f32::from_le_bytes(*bytes);
    }
    Some(found)
}

/// The number of hundredths, if this many are exactly `value`.
fn hundredths(value: f64) -> Option<i32> {
    let found = (value * 100.0).round() as i32;
    ((f64::from(found) / 100.0).to_bits() == value.to_bits()).then_some(found)
}

/// Writes a polygon, `numbers` being x and y alternating.
fn write_corners(numbers: &[f64], out: &mut Vec<u8>) {
    let is_exact = numbers.iter().all(|value| hundredths(*value).is_some());
    number(out, numbers.len() as u64 / 2 * 2 + u64::from(is_exact));
    for value in numbers {
        match hundredths(*value).filter(|_| is_exact) {
            Some(found) => number(out, u64::from(((found << 1) ^ (found >> 31)) as u32)),
            None => out.extend_from_slice(&value.to_le_bytes()),
        }
    }
}

/// The corners of the next polygon.
fn corners_of(rest: &mut Rest<'_>, scale: [f64; 2]) -> Option<Vec<[f64; 2]>> {
    let written = rest.number()?;
    let count = usize::try_from(written / 2).ok().filter(|count| *count <= rest.len())?;
    let coordinate = |rest: &mut Rest<'_>| match written % 2 {
        0 => Some(f64::from_le_bytes(*rest.take(8)?.first_chunk()?)),
        _ => {
            let found = u32::try_from(rest.number()?).ok()?;
            Some(f64::from((found >> 1) as i32 ^ -((found & 1) as i32)) / 100.0)
        }
    };
    let mut corners = Vec::with_capacity(count);
    for _ in 0..count {
        corners.push([coordinate(rest)? * scale[0], coordinate(rest)? * scale[1]]);
    }
    Some(corners)
}

/// The next outline, in an image of this size; an error if it is of an image of another size.
fn outline(rest: &mut Rest<'_>, kind: u8, size: [u32; 2], scale: [f64; 2]) -> Option<Result<Mask>> {
    match kind {
        NONE => Some(Ok(Mask::Polygons(Vec::new()))),
        POLYGONS => {
            let polygons = rest.list(1, |rest| corners_of(rest, scale));
            Some(Ok(Mask::Polygons(polygons?)))
        }
        RUNS => {
            let side = |rest: &mut Rest<'_>| u32::try_from(rest.number()?).ok();
            let of = [side(rest)?, side(rest)?];
            let runs = rest.list(1, side)?;
            Some(match of == size {
                true => Rle::new(size, runs).map(Mask::Rle),
                false => {
                    let what = format!("height and width are {of:?} for runs, but {size:?} for the image");
                    Err(Error::corrupt(what).with_hint(CORRECT))
                }
            })
        }
        _ => None,
    }
}

const CORRECT: &str = "correct it, or remove it from the annotations";

/// The annotations of a dataset's images.
#[derive(Debug)]
pub struct Marked {
    pub(crate) units: Units,
    /// The word for an annotation, for messages.
    pub(crate) called: &'static str,
    /// The most entries of one image.
    pub(crate) most: usize,
    /// Number of boxes without a width or a height.
    pub(crate) flat: usize,
    pub(crate) has_masks: bool,
    /// Names of the key points of each object, if the dataset has key points.
    pub(crate) keypoint_names: Option<Arc<[String]>>,
    pub(crate) records: Blocks,
}

/// What is kept of one image.
#[derive(Debug)]
struct Entry {
    /// What is wrong with its annotations; empty if nothing is.
    wrong: String,
    /// Without masks.
    objects: Instances,
    /// Empty if they are not wanted.
    masks: Result<Vec<Mask>>,
}

impl Marked {
    /// The annotations of `records` images; within an image the order of `things` is kept. Images in `bad` return this
    /// error. Messages name an entry by `called` and its id.
    pub(crate) fn of(
        called: &'static str,
        units: Units,
        records: usize,
        mut things: Vec<Thing>,
        outlines: Option<Outlines>,
        keypoints: Option<Keypoints>,
        bad: HashMap<usize, String>,
    ) -> Self {
        // A stable sort keeps the order within an image.
        things.sort_by_key(|thing| thing.record);
        let (mut most, mut rest) = (0, &things[..]);
        let each = keypoints.as_ref().map_or(0, |all| all.names.len());
        let records = Blocks::of(0..records, |record, out| {
            let (of, others) = rest.split_at(rest.partition_point(|thing| thing.record == record));
            rest = others;
            most = most.max(of.len());
            text(out, bad.get(&record).map_or("", String::as_str));
            number(out, of.len() as u64);
            for thing in of {
                let points = thing.keypoints.zip(keypoints.as_ref());
                thing.corners.iter().for_each(|corner| out.extend_from_slice(&corner.to_le_bytes()));
                number(out, thing.label.into());
                number(out, thing.id as u64);
                let outline = thing.outline.kind() << OUTLINE_SHIFT;
                let crowd = if thing.crowd { CROWD } else { 0 };
                let has_keypoints = if points.is_some() { HAS_KEYPOINTS } else { 0 };
                out.push(crowd | has_keypoints | outline);
                for value in points.iter().flat_map(|(start, all)| all.points[*start..start + each].as_flattened()) {
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            if let Some(all) = &outlines {
                of.iter().for_each(|thing| out.extend_from_slice(all.bytes(thing.outline)));
            }
        });
        let flat =
            things.iter().filter(|Thing { corners: [left, top, right, bottom], .. }| left == right || top == bottom);
        let (flat, has_masks) = (flat.count(), outlines.is_some());
        Self { units, called, most, flat, has_masks, keypoint_names: keypoints.map(|all| all.names), records }
    }

    fn entry(&self, record: usize, size: [u32; 2], wants_masks: bool) -> Result<Entry> {
        let bytes = self.records.get(record)?;
        let entry = self.parse(&bytes, size, wants_masks && self.has_masks);
        entry.ok_or_else(|| self.records.damaged("its content is invalid"))
    }

    fn parse(&self, bytes: &[u8], size: [u32; 2], wants_masks: bool) -> Option<Entry> {
        let mut rest = Rest::of(bytes);
        let wrong = rest.text()?.to_owned();
        let count = rest.count(4 * 4 + 3)?;
        let scale = self.units.scale(size);
        let scaled = |axis: usize, value: f32| (f64::from(value) * scale[axis]) as f32;
        let mut found = Instances::new(size);
        found.keypoints = self.keypoint_names.as_ref().map(|_| Vec::with_capacity(count));
        let each = self.keypoint_names.as_ref().map_or(0, |names| names.len());
        let mut kinds = Vec::with_capacity(count);
        for _ in 0..count {
            let [left, top, right, bottom] = floats(&mut rest)?;
            found.boxes.push([scaled(0, left), scaled(1, top), scaled(0, right), scaled(1, bottom)]);
            found.labels.push(u32::try_from(rest.number()?).ok()?.into());
            found.ids.push(rest.number()? as i64);
            let flags = rest.take(1)?[0];
            found.crowd.push(flags & CROWD != 0);
            kinds.push(flags >> OUTLINE_SHIFT);
            if let Some(all) = &mut found.keypoints {
                let mut points = vec![[0.0; 3]; each];
                if flags & HAS_KEYPOINTS != 0 {
                    for point in &mut points {
                        let [x, y, visibility] = floats(&mut rest)?;
                        *point = [scaled(0, x), scaled(1, y), visibility];
                    }
                }
                all.push(points);
            }
        }
        if !wants_masks {
            return Some(Entry { wrong, objects: found, masks: Ok(Vec::new()) });
        }
        let masks: Vec<_> =
            kinds.into_iter().map(|kind| outline(&mut rest, kind, size, scale)).collect::<Option<_>>()?;
        rest.is_empty().then(|| Entry { wrong, objects: found, masks: masks.into_iter().collect() })
    }

    /// The annotations of the image `record`, which has this height and width.
    pub(crate) fn instances(&self, record: usize, size: [u32; 2]) -> Result<Instances> {
        let Entry { wrong, objects: mut found, masks } = self.entry(record, size, true)?;
        if !wrong.is_empty() {
            return Err(Error::corrupt(wrong).with_hint(CORRECT));
        }
        if let Some(outside) = found.boxes.iter().position(|corners| is_outside(*corners, size)) {
            let (id, corners, [height, width]) = (found.ids[outside], found.boxes[outside], size);
            let what = format!("{} {id}: the box {corners:?} is outside the image of {width}x{height}", self.called);
            return Err(Error::corrupt(what).with_hint(CORRECT));
        }
        if self.has_masks {
            found.masks = Some(masks?);
        }
        Ok(found)
    }

    /// Adds the annotations without outlines: the records are the same with or without masks.
    pub(crate) fn print(&self, print: Fingerprinter) -> Result<Fingerprinter> {
        let objects = |record| Ok::<_, Error>(self.entry(record, [1; 2], false)?.objects);
        let records = 0..self.records.ends.len();
        let (mut print, mut start) = (print.number(0), 0);
        for record in records.clone() {
            start += objects(record)?.len() as u64;
            print = print.number(start);
        }
        for record in records.clone() {
            let Instances { boxes, labels, ids, crowd, .. } = objects(record)?;
            for (at, corners) in boxes.into_iter().enumerate() {
                print = corners.into_iter().fold(print, |print, corner| print.number(corner.to_bits().into()));
                print = print.number(labels[at] as u64).number(ids[at] as u64).number(crowd[at].into());
            }
        }
        let Some(names) = &self.keypoint_names else { return Ok(print) };
        for record in records {
            for point in objects(record)?.keypoints.iter().flatten().flatten() {
                print = point.iter().fold(print, |print, number| print.number(number.to_bits().into()));
            }
        }
        Ok(names.iter().fold(print, |print, name| print.text(name)))
    }
}

/// Whether the box is completely outside an image of this height and width, not even at its edge.
fn is_outside(corners: [f32; 4], size: [u32; 2]) -> bool {
    let ([left, top, right, bottom], [height, width]) = (corners.map(f64::from), size.map(f64::from));
    right < 0.0 || bottom < 0.0 || left > width || top > height
}

/// Checks a box's numbers. Thin boxes and boxes partly outside are kept as they are. A box completely outside its image
/// is detected later, when the image's size is known: see `Marked::instances`.
pub fn corners(corners: [f64; 4]) -> Result<[f32; 4], String> {
    let [left, top, right, bottom] = corners;
    let kept = corners.map(|corner| corner as f32);
    if !kept.iter().all(|corner| corner.is_finite()) {
        return Err(format!("the box {corners:?} has values that are not numbers"));
    }
    if right < left || bottom < top {
        return Err(format!("the box {corners:?} ends before it begins"));
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_core::fingerprint::Fingerprint;

    fn thing(record: usize, id: i64, outline: Outline) -> Thing {
        Thing { record, corners: [id as f32; 4], label: id as u32, id, crowd: id == 2, outline, keypoints: None }
    }

    #[test]
    fn things_come_back_with_their_image_and_in_their_order() {
        let mut outlines = Outlines::default();
        let two = outlines.polygons(&[0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 5.0, 5.0, 6.0, 5.0, 6.0, 6.0], &[6, 12]);
        let one = outlines.polygons(&[2.0, 2.0, 3.0, 2.0, 3.0, 3.0], &[6]);
        let runs = outlines.runs(&Rle::new([2, 3], vec![1, 5]).unwrap());
        let things = vec![thing(2, 9, one), thing(0, 2, runs), thing(2, 1, two)];
        let marked = Marked::of(
            "thing",
            Units::Pixels,
            4,
            things.clone(),
            Some(outlines),
            None,
            HashMap::from([(3, "annotation 7: odd".to_owned())]),
        );
        assert_eq!((marked.most, marked.flat), (2, 3));
        let of = |record| marked.instances(record, if record == 2 { [9, 9] } else { [2, 3] }).unwrap();
        assert_eq!((of(1).len(), of(0).crowd, of(2).ids, of(2).labels), (0, vec![true], vec![9, 1], vec![9, 1]));
        let masks = of(2).masks.unwrap();
        assert_eq!(masks[0], Mask::Polygons(vec![vec![[2.0, 2.0], [3.0, 2.0], [3.0, 3.0]]]));
        assert!(matches!(&masks[1], Mask::Polygons(two) if two.len() == 2 && two[1][2] == [6.0, 6.0]));
        assert_eq!(of(0).masks.unwrap(), [Mask::Rle(Rle::new([2, 3], vec![1, 5]).unwrap())]);
        assert!(marked.instances(3, [2, 3]).unwrap_err().to_string().contains("annotation 7: odd"));
        // 19 bytes an object, 18 numbers of which 3 are 0 and 5 counts, 5 bytes of runs, a text of 17, of each image 2 counts, hash
        // and end.
        let small = 15 * 2 + 3;
        assert_eq!(marked.records.resident_bytes(), 3 * 19 + small + 5 + 5 + 17 + 4 * (2 + 8 + 8));

        let print = |things| {
            Marked::of("thing", Units::Pixels, 4, things, None, None, HashMap::new())
                .print(Fingerprint::of("x"))
                .unwrap()
                .finish()
        };
        let mut moved = things.clone();
        moved[1].corners[3] += 0.5;
        assert_ne!(print(things.clone()), print(moved));
        assert_eq!(print(things), marked.print(Fingerprint::of("x")).unwrap().finish());
    }

    #[test]
    fn corners_are_kept_to_the_bit() {
        let mut draws = infeed_core::random::SampleRng::new(1, 2, 3).op(0);
        let exact = [0.0, 1.25, -7.31, 639.99, 21_474_836.47, -21_474_836.48, 0.07];
        let others = [-0.0, 1.255, 1e300, 21_474_836.48, f64::MIN_POSITIVE, 0.1 + 0.2, f64::NAN, f64::INFINITY];
        assert!(exact.into_iter().all(|value| hundredths(value).is_some()));
        assert!(others.into_iter().all(|value| hundredths(value).is_none()));
        for round in 0..2000 {
            let count = 2 * draws.below(9);
            let one = |i: u64| match draws.below(20) {
                0 if round % 2 == 0 => others[i as usize % others.len()],
                1 => exact[i as usize % exact.len()],
                _ => (draws.below(70_000) as f64 - 2000.0) / 100.0,
            };
            let numbers: Vec<f64> = (0..count).map(one).collect();
            let mut out = Vec::new();
            write_corners(&numbers, &mut out);
            let mut rest = Rest::of(&out);
            let found = corners_of(&mut rest, [1.0; 2]).unwrap();
            let bits = |numbers: &[f64]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!((bits(found.as_flattened()), rest.is_empty()), (bits(&numbers), true), "{numbers:?}");
        }
    }

    #[test]
    fn boxes_are_kept_unless_their_numbers_mean_nothing() {
        for kept in [[0.0, 0.0, 20.0, 10.0], [5.0, 5.0, 5.0, 5.0], [-3.0, -3.0, 1.0, 30.0], [20.0, 10.0, 21.0, 11.0]] {
            let kept_as = kept.map(|corner| corner as f32);
            assert_eq!(corners(kept), Ok(kept_as));
            assert!(!is_outside(kept_as, [10, 20]), "{kept:?}");
        }
        for (bad, says) in [
            ([f64::NAN, 0.0, 1.0, 1.0], "not numbers"),
            ([0.0, 0.0, f64::INFINITY, 1.0], "not numbers"),
            ([0.0, 0.0, 1e300, 1.0], "not numbers"),
            ([2.0, 0.0, 1.0, 1.0], "ends before it begins"),
        ] {
            assert!(corners(bad).is_err_and(|wrong| wrong.contains(says)), "{bad:?}");
        }
    }

    #[test]
    fn fractions_are_pixels_once_the_size_is_known_and_boxes_outside_are_told_then() {
        let mut outlines = Outlines::default();
        let outline = outlines.polygons(&[0.5, 0.25, 1.0, 0.25, 1.0, 1.0], &[6]);
        let thing =
            |record, corners| Thing { record, corners, label: 0, id: 7, crowd: false, outline, keypoints: None };
        let things = vec![thing(0, [0.25, 0.5, 0.5, 1.25]), thing(1, [0.0, 1.5, 1.0, 2.0])];
        let marked = Marked::of("box", Units::Fractions, 2, things, Some(outlines), None, HashMap::new());
        for size in [[40, 20], [20, 80]] {
            let [height, width] = size.map(|side: u32| side as f32);
            let found = marked.instances(0, size).unwrap();
            assert_eq!(
                (found.size, &found.boxes[..]),
                (size, &[[width / 4.0, height / 2.0, width / 2.0, height * 1.25]][..])
            );
            let [height, width] = size.map(f64::from);
            let corners = vec![[width / 2.0, height / 4.0], [width, height / 4.0], [width, height]];
            assert_eq!(found.masks.unwrap(), [Mask::Polygons(vec![corners])]);
        }
        let error = marked.instances(1, [40, 20]).unwrap_err();
        assert!(
            error.to_string().contains("box 7: the box [0.0, 60.0, 20.0, 80.0] is outside the image of 20x40"),
            "{error}"
        );
    }
}
