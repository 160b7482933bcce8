//! The pixels of polygons, as COCO's tools choose them.
//!
//! ```text
//!  fifths of a pixel, from 0        an edge crosses the middle of column 1 between the fifths 7 and 8
//!  0 1 2 3 4 5 6 7 8 9 10 11 …
//!  └ column 0┘└ column 1 ┘          where it does, all below changes: from in to out, or from out to in
//! ```
//!
//! Corners are rounded to fifths of a pixel. Along each edge one coordinate moves in steps of a fifth, and the other is
//! rounded. So the crossing of a column's middle is exact in whole fifths, and gives the first row below it without
//! ambiguity. pycocotools walks along the whole edge and keeps these places. This code computes them, so that parts far
//! outside of the image cost nothing.
//!
//! Other projects train on masks made this way, and COCO's evaluation compares with them. So every rounding below has
//! to stay as it is.

use infeed_core::error::{Error, Result};

use super::rle::{Changes, Rle};

/// Largest coordinate that is accepted. No image is this large, and its fifths are exact in all the arithmetic below.
const FARTHEST: f64 = 1e6;

/// Largest number of pixels of an image: more than any scanner makes, and few enough that no product below overflows.
const MOST: u64 = 1 << 40;

/// Places of one polygon that are collected before pairs that cancel each other are removed. With it, many edges that
/// each cross the whole image take at most the memory of the image's pixels, because the remaining places all differ.
const KEPT: usize = 1 << 16;

/// All pixels inside at least one of these polygons.
pub(super) fn fill(polygons: &[Vec<[f64; 2]>], size: [u32; 2]) -> Result<Rle> {
    let [height, width] = size;
    if u64::from(height) * u64::from(width) > MOST {
        return Err(Error::corrupt(format!(
            "polygons of a mask in an image of {height}x{width}: no image is so large"
        )));
    }
    // Each place with 1 if a polygon begins there, and -1 if one ends there.
    let mut edges: Vec<(u64, i32)> = Vec::new();
    for (i, polygon) in polygons.iter().enumerate() {
        if let Some(at) = polygon.iter().position(|corner| !corner.iter().all(|n| n.abs() <= FARTHEST)) {
            let [x, y] = polygon[at];
            let what = format!("corner {at} of polygon {i} of a mask is at {x}, {y}");
            return Err(Error::corrupt(what).with_hint("corners are pixels, from the left and from the top"));
        }
        let turns = [1, -1].into_iter().cycle();
        edges.extend(crossings(polygon, size).into_iter().zip(turns));
    }
    edges.sort_unstable_by_key(|(place, _)| *place);
    let (mut changes, mut depth) = (Changes::default(), 0);
    for here in edges.chunk_by(|(a, _), (b, _)| a == b) {
        let before = depth > 0;
        depth += here.iter().map(|(_, turn)| turn).sum::<i32>();
        if before != (depth > 0) {
            changes.at(here[0].0);
        }
    }
    Ok(changes.end(size))
}

/// The places where this polygon begins and ends, alternating, down the columns of an image.
fn crossings(polygon: &[[f64; 2]], size: [u32; 2]) -> Vec<u64> {
    let [height, width] = size.map(i64::from);
    // Rounded towards 0, also for negative numbers.
    let corners: Vec<_> = polygon.iter().map(|corner| corner.map(|n| (n * 5.0 + 0.5) as i64)).collect();
    let (mut places, mut room) = (Vec::new(), KEPT);
    for (from, to) in corners.iter().zip(corners.iter().cycle().skip(1)) {
        for (column, fifth) in Edge::new(*from, *to).columns(width) {
            // The first row whose middle (its third fifth) is not above.
            let row = (fifth + 2).div_euclid(5).clamp(0, height);
            places.push((column * height + row) as u64);
        }
        if places.len() > room {
            cancel(&mut places);
            room = KEPT.max(places.len() * 2);
        }
    }
    cancel(&mut places);
    // A change after the last pixel is outside of the image.
    places.pop_if(|place| *place == (height * width) as u64);
    places
}

/// Sorts the places. Two changes at one place cancel each other, so each place remains once or not at all.
fn cancel(places: &mut Vec<u64>) {
    places.sort_unstable();
    let mut kept = 0;
    for at in 0..places.len() {
        if kept > 0 && places[kept - 1] == places[at] {
            kept -= 1;
        } else {
            places[kept] = places[at];
            kept += 1;
        }
    }
    places.truncate(kept);
}

/// From one corner to the next, in fifths. Turned so that the coordinate with the longer way (x, if both are equal)
/// never decreases.
struct Edge {
    start: [i64; 2],
    end: [i64; 2],
    /// Change of the other coordinate per fifth.
    slope: f64,
}

impl Edge {
    fn new(from: [i64; 2], to: [i64; 2]) -> Self {
        let [dx, dy] = [to[0] - from[0], to[1] - from[1]];
        let falls = if dx.abs() >= dy.abs() { dx < 0 } else { dy < 0 };
        let (start, end) = if falls { (to, from) } else { (from, to) };
        let [dx, dy] = [end[0] - start[0], end[1] - start[1]];
        // Not a number for a single point, which is never asked for.
        let slope = if dx >= dy.abs() { dy as f64 / dx as f64 } else { dx as f64 / dy as f64 };
        Self { start, end, slope }
    }

    /// The columns, among the first `width`, whose middle the edge crosses, each with the upper of the two fifths
    /// between which it crosses.
    fn columns(&self, width: i64) -> impl Iterator<Item = (i64, i64)> {
        let (left, right) = (self.start[0].min(self.end[0]), self.start[0].max(self.end[0]));
        // Column n is crossed between 5 n + 2 and 5 n + 3.
        let first = (left + 2).div_euclid(5).max(0);
        let behind = (right + 2).div_euclid(5).min(width);
        (first..behind).map(|column| (column, self.crossed(column * 5 + 2)))
    }

    /// The upper of the fifths at which x steps from this value to the next one, or back.
    fn crossed(&self, x: i64) -> i64 {
        let across = self.end[0] - self.start[0];
        let down = self.end[1] - self.start[1];
        if across >= down.abs() {
            let step = x - self.start[0];
            return self.other(1, step).min(self.other(1, step + 1));
        }
        // The last step before x changes. Rounding may put the computed step off by one, so its neighbours are checked.
        let before = |step| if across > 0 { self.other(0, step) <= x } else { self.other(0, step) > x };
        let mut step = (((x - self.start[0]) as f64 + 0.5) / self.slope) as i64;
        step = step.clamp(0, down - 1);
        while step > 0 && !before(step) {
            step -= 1;
        }
        while step < down - 1 && before(step + 1) {
            step += 1;
        }
        self.start[1] + step
    }

    /// The coordinate that does not move in single fifths, after this many steps.
    fn other(&self, axis: usize, step: i64) -> i64 {
        (self.start[axis] as f64 + self.slope * step as f64 + 0.5) as i64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use infeed_core::error::ErrorKind;

    /// Written by pycocotools; `integration/golden/detection.py`.
    #[derive(Deserialize)]
    struct Golden {
        polygons: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        size: [u32; 2],
        polygons: Vec<Vec<f64>>,
        counts: Vec<u32>,
    }

    fn corners(flat: &[f64]) -> Vec<[f64; 2]> {
        flat.as_chunks().0.to_vec()
    }

    /// Fifth by fifth, with every point of every edge.
    fn walked(polygon: &[[f64; 2]], size: [u32; 2]) -> Vec<u64> {
        let [height, width] = size.map(i64::from);
        let corners: Vec<_> = polygon.iter().map(|corner| corner.map(|n| (n * 5.0 + 0.5) as i64)).collect();
        let mut places = Vec::new();
        for (i, from) in corners.iter().enumerate() {
            let edge = Edge::new(*from, corners[(i + 1) % corners.len()]);
            let [dx, dy] = [edge.end[0] - edge.start[0], edge.end[1] - edge.start[1]];
            let point = |step| {
                if dx >= dy.abs() {
                    [edge.start[0] + step, edge.other(1, step)]
                } else {
                    [edge.other(0, step), edge.start[1] + step]
                }
            };
            for step in 0..dx.max(dy) {
                let ([x, y], [next_x, next_y]) = (point(step), point(step + 1));
                let column = x.min(next_x);
                if x != next_x && column % 5 == 2 && (0..width).contains(&(column / 5)) {
                    let row = (y.min(next_y) + 2).div_euclid(5).clamp(0, height);
                    places.push((column / 5 * height + row) as u64);
                }
            }
        }
        cancel(&mut places);
        places.pop_if(|place| *place == (height * width) as u64);
        places
    }

    #[test]
    fn polygons_are_filled_as_pycocotools_does() {
        let golden: Golden =
            serde_json::from_str(include_str!("../../../../integration/golden/detection.json")).unwrap();
        assert!(golden.polygons.len() > 60);
        for (i, Case { size, polygons, counts }) in golden.polygons.into_iter().enumerate() {
            let polygons: Vec<_> = polygons.iter().map(|flat| corners(flat)).collect();
            assert_eq!(fill(&polygons, size).unwrap().counts(), counts, "case {i}: {polygons:?} in {size:?}");
        }
    }

    #[test]
    fn no_polygons_are_no_pixels() {
        assert_eq!(fill(&[], [4, 5]).unwrap().counts(), [20]);
        assert_eq!(fill(&[vec![], vec![[1.0, 1.0]], vec![[1.0, 1.0], [3.0, 4.0]]], [4, 5]).unwrap().counts(), [20]);
        let square = [vec![[-1.0, -1.0], [9.0, -1.0], [9.0, 9.0], [-1.0, 9.0]]];
        for size in [[0, 0], [0, 5], [5, 0]] {
            assert_eq!(fill(&square, size).unwrap().counts(), [0]);
        }
    }

    #[test]
    fn corners_that_cannot_be_are_errors() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1_000_001.0, -1e300] {
            for corner in [[bad, 1.0], [1.0, bad]] {
                let polygons = [vec![[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]], vec![[0.0, 0.0], corner, [0.0, 5.0]]];
                let error = fill(&polygons, [7, 7]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains("corner 1 of polygon 1 of a mask is at"), "{error}");
            }
        }
    }

    #[test]
    fn edges_across_all_columns_cancel_each_other() {
        // There and back again, a thousand times: two million places, of which never many are kept.
        let across = [[-5.0, 3.0], [1005.0, 4.0]];
        let polygon: Vec<[f64; 2]> = across.into_iter().cycle().take(2000).collect();
        assert_eq!(fill(&[polygon], [10, 1000]).unwrap().counts(), [10_000]);
    }

    #[test]
    fn huge_images_cost_what_is_marked_in_them() {
        let square = [vec![[1.0, 1.0], [3.0, 1.0], [3.0, 3.0], [1.0, 3.0]]];
        let rle = fill(&square, [1_000_000, 1_000_000]).unwrap();
        assert_eq!((rle.area(), rle.bounds()), (4, Some([1, 1, 3, 3])));
        assert_eq!(fill(&square, [u32::MAX; 2]).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    proptest! {
        #[test]
        fn computed_places_are_the_walked_ones(
            corners in prop::collection::vec([-12.0_f64..50.0, -12.0_f64..50.0], 1..9),
            height in 0_u32..40, width in 0_u32..40, far in 0.5_f64..30.0,
        ) {
            let polygon: Vec<_> = corners.iter().map(|corner| corner.map(|n| (n - 16.0) * far)).collect();
            prop_assert_eq!(crossings(&polygon, [height, width]), walked(&polygon, [height, width]));
        }

        #[test]
        fn whatever_the_corners_are(
            flat in prop::collection::vec(prop_oneof![-9.0_f64..40.0, any::<f64>(), -1e6_f64..1e6], 0..24),
            height in 0_u32..40, width in 0_u32..40,
        ) {
            if let Ok(rle) = fill(&[corners(&flat)], [height, width]) {
                prop_assert_eq!(rle.counts().iter().sum::<u32>(), height * width);
                prop_assert!(!rle.counts()[1..].contains(&0));
            }
        }
    }
}
