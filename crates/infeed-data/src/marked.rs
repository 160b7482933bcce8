//! The annotations of all images of a dataset in a few flat lists: 860,000 boxes do not need 860,000 allocations.

use std::{
    collections::HashMap,
    mem::{size_of, size_of_val},
    sync::Arc,
};

use infeed_core::{
    error::{Error, Result},
    fingerprint::Fingerprinter,
};

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

    /// The points of one object, in an image of this size.
    fn of(&self, start: Option<usize>, size: [u32; 2], units: Units) -> Vec<[f32; 3]> {
        let [across, down] = units.scale(size);
        let scaled = |by: f64, value: f32| (f64::from(value) * by) as f32;
        let point = |[x, y, v]: &[f32; 3]| [scaled(across, *x), scaled(down, *y), *v];
        let each = self.names.len();
        start.map_or_else(|| vec![[0.0; 3]; each], |start| self.points[start..start + each].iter().map(point).collect())
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

/// The position of an outline in [`Outlines`].
#[derive(Clone, Copy, Debug, Default)]
pub enum Outline {
    /// No outline.
    #[default]
    None,
    /// Range of polygons: first, and end.
    Polygons(usize, usize),
    /// Range of runs: first, and end.
    Runs(usize, usize),
}

/// Corners and runs of all outlines.
#[derive(Debug, Default)]
pub struct Outlines {
    /// x and y alternating.
    numbers: Vec<f64>,
    /// The end of each polygon in `numbers`.
    ends: Vec<usize>,
    runs: Vec<u32>,
    /// Heights and widths that runs are for, by the first run, if the image's size is not known.
    run_sizes: HashMap<usize, [u32; 2]>,
}

impl Outlines {
    /// Adds polygons: `numbers` are x and y alternating, `ends` the end of each polygon in them.
    pub(crate) fn polygons(&mut self, numbers: &[f64], ends: &[usize]) -> Outline {
        let (first, before) = (self.ends.len(), self.numbers.len());
        self.numbers.extend_from_slice(numbers);
        self.ends.extend(ends.iter().map(|end| before + end));
        Outline::Polygons(first, self.ends.len())
    }

    /// Adds runs.
    pub(crate) fn runs(&mut self, rle: &Rle) -> Outline {
        let first = self.runs.len();
        self.runs.extend_from_slice(rle.counts());
        Outline::Runs(first, self.runs.len())
    }

    /// Notes the height and width that runs are for. They are compared with the image when it is read.
    pub(crate) fn of_size(&mut self, outline: Outline, size: [u32; 2]) {
        if let Outline::Runs(first, _) = outline {
            self.run_sizes.insert(first, size);
        }
    }

    /// This outline, in an image of this size.
    fn mask(&self, outline: Outline, size: [u32; 2], units: Units) -> Result<Mask> {
        let [across, down] = units.scale(size);
        match outline {
            Outline::None => Ok(Mask::Polygons(Vec::new())),
            Outline::Polygons(first, last) => {
                let corners = |i: usize| {
                    let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
                    let corners = self.numbers[start..self.ends[i]].chunks_exact(2);
                    corners.map(|corner| [corner[0] * across, corner[1] * down]).collect()
                };
                Ok(Mask::Polygons((first..last).map(corners).collect()))
            }
            Outline::Runs(first, _) if self.run_sizes.get(&first).is_some_and(|of| *of != size) => {
                let of = self.run_sizes[&first];
                Err(Error::corrupt(format!("height and width are {of:?} for runs, but {size:?} for the image"))
                    .with_hint("correct it, or remove it from the annotations"))
            }
            Outline::Runs(first, last) => Ok(Mask::Rle(Rle::new(size, self.runs[first..last].to_vec())?)),
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.numbers)
            + size_of_val(&*self.ends)
            + size_of_val(&*self.runs)
            + self.run_sizes.len() * size_of::<(usize, [u32; 2])>()
    }
}

/// The annotations of a dataset's images.
#[derive(Debug)]
pub struct Marked {
    units: Units,
    /// The word for an annotation, for messages.
    called: &'static str,
    /// The start of each image's entries, then the end of the last image's.
    starts: Vec<usize>,
    boxes: Vec<[f32; 4]>,
    labels: Vec<u32>,
    ids: Vec<i64>,
    crowd: Vec<bool>,
    /// With masks: all outlines, and the position of each entry's.
    outlines: Option<(Outlines, Vec<Outline>)>,
    /// With key points: all of them, and where each entry's begin.
    keypoints: Option<(Keypoints, Vec<Option<usize>>)>,
    /// Errors of some images.
    bad: HashMap<usize, String>,
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
        let starts = (0..=records).map(|record| things.partition_point(|thing| thing.record < record)).collect();
        let outlines = outlines.map(|mut outlines| {
            outlines.numbers.shrink_to_fit();
            outlines.ends.shrink_to_fit();
            outlines.runs.shrink_to_fit();
            (outlines, things.iter().map(|thing| thing.outline).collect())
        });
        let keypoints = keypoints.map(|mut all| {
            all.points.shrink_to_fit();
            (all, things.iter().map(|thing| thing.keypoints).collect())
        });
        Self {
            units,
            called,
            starts,
            boxes: things.iter().map(|thing| thing.corners).collect(),
            labels: things.iter().map(|thing| thing.label).collect(),
            ids: things.iter().map(|thing| thing.id).collect(),
            crowd: things.iter().map(|thing| thing.crowd).collect(),
            outlines,
            keypoints,
            bad,
        }
    }

    /// The most entries of one image.
    pub(crate) fn most(&self) -> usize {
        self.starts.windows(2).map(|of| of[1] - of[0]).max().unwrap_or(0)
    }

    /// Number of boxes without a width or a height.
    pub(crate) fn flat(&self) -> usize {
        self.boxes.iter().filter(|[left, top, right, bottom]| left == right || top == bottom).count()
    }

    pub(crate) const fn has_masks(&self) -> bool {
        self.outlines.is_some()
    }

    /// Names of the key points of each object, if the dataset has key points.
    pub(crate) fn keypoint_names(&self) -> Option<Arc<[String]>> {
        self.keypoints.as_ref().map(|(all, _)| Arc::clone(&all.names))
    }

    /// The annotations of the image `record`, which has this height and width.
    pub(crate) fn instances(&self, record: usize, size: [u32; 2]) -> Result<Instances> {
        if let Some(wrong) = self.bad.get(&record) {
            return Err(Error::corrupt(wrong.clone()).with_hint("correct it, or remove it from the annotations"));
        }
        let of = self.starts[record]..self.starts[record + 1];
        let mut found = Instances::new(size);
        found.boxes = self.boxes[of.clone()].to_vec();
        if self.units == Units::Fractions {
            let [across, down] = self.units.scale(size);
            for corners in &mut found.boxes {
                let [left, top, right, bottom] = corners.map(f64::from);
                *corners = [left * across, top * down, right * across, bottom * down].map(|corner| corner as f32);
            }
        }
        if let Some(outside) = found.boxes.iter().position(|corners| is_outside(*corners, size)) {
            let (id, [height, width]) = (self.ids[of.start + outside], size);
            let corners = found.boxes[outside];
            let what = format!("{} {id}: the box {corners:?} is outside the image of {width}x{height}", self.called);
            return Err(Error::corrupt(what).with_hint("correct it, or remove it from the annotations"));
        }
        found.labels = self.labels[of.clone()].iter().map(|label| i64::from(*label)).collect();
        found.ids = self.ids[of.clone()].to_vec();
        found.crowd = self.crowd[of.clone()].to_vec();
        if let Some((all, starts)) = &self.keypoints {
            found.keypoints = Some(starts[of.clone()].iter().map(|start| all.of(*start, size, self.units)).collect());
        }
        if let Some((outlines, places)) = &self.outlines {
            let masks = places[of].iter().map(|place| outlines.mask(*place, size, self.units));
            found.masks = Some(masks.collect::<Result<_>>()?);
        }
        Ok(found)
    }

    /// Adds the annotations without outlines: the records are the same with or without masks.
    pub(crate) fn print(&self, mut print: Fingerprinter) -> Fingerprinter {
        for start in &self.starts {
            print = print.number(*start as u64);
        }
        for (at, corners) in self.boxes.iter().enumerate() {
            for corner in corners {
                print = print.number(corner.to_bits().into());
            }
            print = print.number(self.labels[at].into()).number(self.ids[at] as u64).number(self.crowd[at].into());
        }
        if let Some((all, starts)) = &self.keypoints {
            for point in starts.iter().flat_map(|start| all.of(*start, [1; 2], self.units)) {
                print = point.into_iter().fold(print, |print, number| print.number(number.to_bits().into()));
            }
            print = all.names.iter().fold(print, |print, name| print.text(name));
        }
        print
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let outlines = self.outlines.as_ref().map_or(0, |(all, places)| all.bytes() + size_of_val(&**places));
        let points =
            self.keypoints.as_ref().map_or(0, |(all, starts)| size_of_val(&*all.points) + size_of_val(&**starts));
        let bad = self.bad.values().map(|wrong| wrong.len() + size_of::<(usize, String)>()).sum::<usize>();
        size_of_val(&*self.starts)
            + size_of_val(&*self.boxes)
            + size_of_val(&*self.labels)
            + size_of_val(&*self.ids)
            + size_of_val(&*self.crowd)
            + outlines
            + points
            + bad
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
        assert_eq!((marked.most(), marked.flat()), (2, 3));
        let of = |record| marked.instances(record, if record == 2 { [9, 9] } else { [2, 3] }).unwrap();
        assert_eq!((of(1).len(), of(0).crowd, of(2).ids, of(2).labels), (0, vec![true], vec![9, 1], vec![9, 1]));
        let masks = of(2).masks.unwrap();
        assert_eq!(masks[0], Mask::Polygons(vec![vec![[2.0, 2.0], [3.0, 2.0], [3.0, 3.0]]]));
        assert!(matches!(&masks[1], Mask::Polygons(two) if two.len() == 2 && two[1][2] == [6.0, 6.0]));
        assert_eq!(of(0).masks.unwrap(), [Mask::Rle(Rle::new([2, 3], vec![1, 5]).unwrap())]);
        assert!(marked.instances(3, [2, 3]).unwrap_err().to_string().contains("annotation 7: odd"));
        // Four starts and an end, 29 bytes a thing and its place, 18 numbers, 3 ends, 2 runs.
        let places = 3 * size_of::<Outline>();
        let bad = 17 + size_of::<(usize, String)>();
        assert_eq!(marked.bytes(), 5 * 8 + 3 * (16 + 4 + 8 + 1) + places + 18 * 8 + 3 * 8 + 2 * 4 + bad);

        let print = |things| {
            Marked::of("thing", Units::Pixels, 4, things, None, None, HashMap::new())
                .print(Fingerprint::of("x"))
                .finish()
        };
        let mut moved = things.clone();
        moved[1].corners[3] += 0.5;
        assert_ne!(print(things.clone()), print(moved));
        assert_eq!(print(things), marked.print(Fingerprint::of("x")).finish());
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
