//! Compares boxes and masks with torchvision's results from `integration/golden/detection.py`, and key points with the
//! corners of boxes.

use infeed_core::{random::SampleRng, types::ImageInfo};
use infeed_data::{FieldKind, Instances};
use serde_json::Value;

use super::{
    RandomIouCrop, RandomShortestSize, RandomZoomOut, SanitizeBoundingBoxes, ScaleJitter,
    boxes::Marked,
    crop,
    iou::{self, Box4},
};
use crate::{
    kernels::{Map, PixelOp, Sampling},
    transform::{
        Placer, Transform,
        augment::{RandomAffine, RandomPerspective, RandomRotation, Shear},
        warp,
    },
};

fn golden(part: &str) -> Vec<Value> {
    let mut all: Value =
        serde_json::from_str(include_str!("../../../../../integration/golden/detection.json")).unwrap();
    let list: Vec<Value> = serde_json::from_value(all[part].take()).unwrap();
    assert!(!list.is_empty());
    list
}

fn f(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

fn whole<const N: usize>(value: &Value) -> [i64; N] {
    std::array::from_fn(|i| value[i].as_i64().unwrap())
}

fn numbers<const N: usize>(value: &Value) -> [f64; N] {
    std::array::from_fn(|i| f(&value[i]))
}

fn boxes(value: &Value) -> Vec<Box4> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

fn marked(case: &Value) -> Marked {
    let boxes = boxes(&case["boxes"]);
    Marked::of(boxes, whole(&case["size"]).map(|v| v as u32))
}

fn warped(marked: &mut Marked, map: Map, size: [i64; 2]) {
    let op = PixelOp::Warp { map, sampling: Sampling::Nearest, fill: None };
    marked.pixels(&[op], size.map(|v| v as u32));
}

#[test]
fn boxes_move_as_torchvisions_do() {
    for case in golden("boxes") {
        let mut marked = marked(&case);
        let size @ [height, width]: [i64; 2] = whole(&case["size"]);
        let number = |name: &str| case[name].as_i64().unwrap();
        let window = || ([number("top"), number("left")], [number("height"), number("width")]);
        let center = || case["center"].as_array().map(|_| numbers::<2>(&case["center"]));
        let corners = |name: &str| -> [[f64; 2]; 4] { std::array::from_fn(|i| numbers(&case[name][i])) };
        let [h, w] = size.map(|v| v as u32);
        match case["op"].as_str().unwrap() {
            "crop" => marked.crop(window().0, window().1),
            "resize" => marked.resize(size, whole(&case["out_size"])),
            "resized_crop" => {
                marked.crop(window().0, window().1);
                marked.resize(window().1, whole(&case["out_size"]));
            }
            "horizontal_flip" => marked.mirror_across(width),
            "vertical_flip" => marked.mirror_down(height),
            "affine" => {
                let (translate, shear) = (numbers(&case["translate"]), numbers(&case["shear"]));
                let map = warp::affine(f(&case["angle"]), translate, f(&case["scale"]), shear, center(), h, w);
                warped(&mut marked, map, size);
            }
            "rotate" => warped(&mut marked, warp::rotate(f(&case["angle"]), center(), h, w), size),
            "perspective" => {
                let map = warp::perspective(&corners("startpoints"), &corners("endpoints")).unwrap();
                warped(&mut marked, map, size);
            }
            other => panic!("{other}"),
        }
        for (found, want) in marked.boxes.iter().zip(boxes(&case["out"])) {
            let apart = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            // f32 of torchvision, whose matrices are rounded too.
            assert!(apart <= 2e-4 * width.max(height) as f64 / 64.0, "{found:?} not {want:?}: {case}");
        }
    }
}

#[test]
fn drawn_sizes_round_as_torchvisions_do() {
    for case in golden("sizes") {
        let [height, width]: [i64; 2] = whole(&case["size"]);
        let out: [i64; 2] = whole(&case["out"]);
        let found = if case["kind"] == "shortest" {
            let max_size = case["max_size"].as_u64().map(|v| v as u32);
            let step = RandomShortestSize::new(vec![case["min_size"].as_u64().unwrap() as u32], max_size);
            step.size(height, width, &mut SampleRng::new(0, 0, 0).op(0))
        } else {
            // torchvision's target is width and height.
            let [across, down]: [i64; 2] = whole(&case["target"]);
            ScaleJitter::new(down as u32, across as u32).scaled(height, width, f(&case["scale"]))
        };
        // At least 1; torchvision may give 0, to which it can't resize.
        assert_eq!(found, out.map(|side| side.max(1)), "{case}");
    }
}

#[test]
fn canvases_are_torchvisions() {
    for case in golden("zooms") {
        let [height, width]: [i64; 2] = whole(&case["size"]);
        let [left, top, right, bottom]: [i64; 4] = whole(&case["padding"]);
        let part = |name: &str| f(&case[name]) as f32;
        let found = crop::around(height, width, part("r"), [part("u"), part("v")]);
        assert_eq!(found, [-top, -left, height + top + bottom, width + left + right], "{case}");
    }
}

#[test]
fn small_boxes_are_dropped_where_torchvision_drops_them() {
    for case in golden("sanitize") {
        let mut marked = marked(&case);
        let [height, width] = marked.size.map(f64::from);
        marked.sanitize(f(&case["min_size"]), f(&case["min_area"]));
        for (i, keep) in case["keep"].as_array().unwrap().iter().enumerate() {
            let [x1, y1, x2, y2] = marked.boxes[i];
            // Our boxes are clipped to the image when they are read; torchvision has a step for that.
            if x1 >= 0.0 && y1 >= 0.0 && x2 <= width && y2 <= height {
                assert_eq!(marked.kept[i], keep.as_bool().unwrap(), "box {i} of {case}");
            }
        }
    }
}

#[test]
fn crops_are_taken_where_torchvision_takes_them() {
    let mut taken = 0;
    for case in golden("iou_crops") {
        let [height, width]: [i64; 2] = whole(&case["size"]);
        let part = |name: &str| f(&case[name]) as f32;
        let boxes = boxes(&case["boxes"]);
        let step = RandomIouCrop::default();
        let window = step
            .size(height, width, [part("r_w"), part("r_h")])
            .map(|size| iou::place(height, width, size, [part("u"), part("v")], &boxes));
        let found = window.filter(|window| window.takes(&boxes, f(&case["min_jaccard"])));
        assert_eq!(found.is_some(), case["accepted"].as_bool().unwrap(), "{case}");
        let Some(window) = found else { continue };
        taken += 1;
        assert_eq!([window.left, window.top, window.width, window.height], whole(&case["crop"]), "{case}");
        let within: Vec<bool> = serde_json::from_value(case["within"].clone()).unwrap();
        assert_eq!(window.within, within, "{case}");
    }
    assert!(taken > 10);
}

#[test]
fn drawn_crops_keep_what_they_promise() {
    let step = RandomIouCrop::default();
    let boxes = [[20.0, 30.0, 90.0, 80.0], [100.0, 10.0, 130.0, 40.0]];
    let (mut whole, mut crops) = (0, 0);
    for record in 0..2000 {
        match step.draw(120, 160, &boxes, &mut SampleRng::new(1, 2, record).op(0)) {
            None => whole += 1,
            Some(window) => {
                crops += 1;
                assert!(window.within.iter().any(|within| *within));
                assert!(window.left >= 0 && window.left + window.width <= 160 && window.width >= 48);
                assert!(window.top >= 0 && window.top + window.height <= 120 && window.height >= 36);
                let ratio = window.width as f64 / window.height as f64;
                assert!((0.5..=2.0).contains(&ratio));
            }
        }
    }
    assert!(whole > 200 && crops > 1000, "{whole} {crops}");
    // Without boxes, or if no crop fits, the image stays.
    assert_eq!(step.draw(120, 160, &[], &mut SampleRng::new(1, 2, 3).op(0)), None);
    let never = RandomIouCrop { sampler_options: vec![0.99], trials: 3, ..RandomIouCrop::default() };
    assert_eq!(never.draw(120, 160, &[[0.0, 0.0, 1.0, 1.0]], &mut SampleRng::new(1, 2, 3).op(0)), None);
}

#[test]
fn zoomed_out_images_lie_within_their_canvas() {
    let step = RandomZoomOut { p: 1.0, ..RandomZoomOut::default() };
    let mut sides = Vec::new();
    for record in 0..1000 {
        let canvas = step.canvas(48, 64, &mut SampleRng::new(1, 2, record).op(0)).unwrap();
        let [top, left, height, width] = canvas;
        assert!(top <= 0 && left <= 0 && height + top >= 48 && width + left >= 64, "{canvas:?}");
        sides.push(width as f64 / 64.0);
    }
    let mean = sides.iter().sum::<f64>() / 1000.0;
    assert!((2.4..2.6).contains(&mean), "{mean}");
}

#[test]
fn boxes_that_can_not_be_are_told_by_instance() {
    let info = ImageInfo::interleaved_u8(50, 100, 3);
    let of = |found: [f32; 4]| {
        let mut instances = Instances::new([50, 100]);
        instances.push([1.0, 1.0, 5.0, 5.0], 0);
        instances.push(found, 0);
        instances.ids = vec![70, 71];
        instances
    };
    for bad in [[5.0, 1.0, 4.0, 9.0], [f32::NAN, 0.0, 1.0, 1.0], [0.0, 0.0, f32::INFINITY, 1.0]] {
        for sanitizes in [true, false] {
            let text = Marked::new(&of(bad), &info, sanitizes).unwrap_err().to_string();
            assert!(text.contains("instance 71"), "{text}");
        }
    }
    let outside = [[100.0, 0.0, 120.0, 9.0], [-9.0, -9.0, 0.0, 0.0]];
    // As in torchvision, an image keeps boxes without area.
    let flat = [[3.0, 3.0, 3.0, 9.0], [3.0, 9.0, 8.5, 9.0], [100.0, 4.0, 100.0, 4.0]];
    for nothing in outside {
        let text = Marked::new(&of(nothing), &info, false).unwrap_err().to_string();
        assert!(text.contains("instance 71") && text.contains("sanitize_bounding_boxes"), "{text}");
    }
    for flat in flat {
        assert_eq!(Marked::new(&of(flat), &info, false).unwrap().boxes[1], flat.map(f64::from));
    }
    for nothing in outside.into_iter().chain(flat) {
        let mut kept = Marked::new(&of(nothing), &info, true).unwrap();
        let SanitizeBoundingBoxes { min_size, min_area } = SanitizeBoundingBoxes::default();
        kept.sanitize(min_size, min_area);
        assert_eq!(kept.kept, [true, false]);
    }
    let text = Marked::new(&of([0.0; 4]), &ImageInfo::interleaved_u8(100, 50, 3), true).unwrap_err().to_string();
    assert!(text.contains("50x100 for one of 100x50"), "{text}");
    let mut short = of([0.0, 0.0, 9.0, 9.0]);
    short.labels.pop();
    assert!(Marked::new(&short, &info, true).unwrap_err().to_string().contains("differ in length"));
    // A box that extends beyond the edge is clipped.
    let cut = Marked::new(&of([-3.0, 40.0, 10.0, 60.0]), &info, false).unwrap();
    assert_eq!(cut.boxes[1], [0.0, 40.0, 10.0, 50.0]);
}

const FIELD: FieldKind = FieldKind::Instances { most: 2, masks: false, keypoints: 4 };

/// A picture of 48x64 with a box, whose corners are also its key points: top left, top right, bottom left, bottom right.
fn cornered([x1, y1, x2, y2]: [f32; 4]) -> Instances {
    let mut marked = Instances::new([48, 64]);
    marked.push([x1, y1, x2, y2], 3);
    marked.keypoints = Some(vec![vec![[x1, y1, 2.0], [x2, y1, 2.0], [x1, y2, 1.0], [x2, y2, 2.0]]]);
    marked
}

fn placed(transform: &Transform, names: &[&str], marked: &Instances, record: u64) -> Instances {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let lowered = transform.lower_instances(&FIELD, None).unwrap().with_keypoint_names(&names);
    assert_eq!(lowered.keypoints(), 4);
    Placer::new().run(&lowered, marked, SampleRng::new(1, 2, record)).unwrap()
}

#[test]
fn a_key_point_at_a_corner_moves_as_the_corner() {
    let new = Transform::new;
    let affine = RandomAffine {
        translate: Some([0.2, 0.2]),
        scale: Some([0.7, 1.3]),
        shear: Some(Shear::By(10.0)),
        ..RandomAffine::new(20.0)
    };
    for transform in [
        new().resize_exact(32, 96),
        new().resize_shorter(30).center_crop(30),
        new().center_crop(40),
        new().random_crop(32, 8),
        new().random_resized_crop(40),
        new().horizontal_flip(0.5).resize_exact(24, 32),
        new().vertical_flip(0.5).resize_exact(24, 32),
        new().random_crop(40, 0).horizontal_flip(0.5).vertical_flip(0.5).pad_to(80, 90),
        new().random_zoom_out(1.0).resize_exact(50, 50),
        new().random_iou_crop().resize_exact(50, 50),
        new().large_scale_jitter(64),
        new().random_shortest_size([30, 40], 90).pad_to(100, 100),
        new().random_shortest_size([30, 40], 90).pad_to_largest(100, 100, 10),
        new().resize_exact(40, 50).push(RandomRotation::new(40.0)),
        new().resize_exact(40, 50).push(affine).horizontal_flip(0.5).resize_exact(80, 60),
        new().resize_exact(40, 50).push(RandomPerspective { p: 1.0, ..RandomPerspective::default() }),
    ] {
        let (mut whole, mut cut) = (0, 0);
        for record in 0..300 {
            let mut draws = SampleRng::new(7, 8, record).op(0);
            // Half of the boxes are small ones in the middle.
            let part = if record % 2 == 0 { 1.0 } else { 0.3 };
            let mut from = |middle: f64, to: f64| (middle + part * to * draws.unit_f64()) as f32;
            let marked = cornered([from(32.0, -32.0), from(24.0, -24.0), from(33.0, 31.0), from(25.0, 23.0)]);
            let found = placed(&transform, &[], &marked, record);
            let [[left, top, right, bottom]] = found.boxes[..] else { panic!("one box") };
            let points = &found.keypoints.as_ref().unwrap()[0];
            let on = points.iter().filter(|point| point[2] > 0.0).collect::<Vec<_>>();
            let end = |axis: usize, of: fn(f32, f32) -> f32| on.iter().map(|point| point[axis]).reduce(of).unwrap();
            assert!(points.iter().all(|point| point[2] > 0.0 || *point == [0.0; 3]), "{points:?}");
            if on.len() == 4 {
                whole += 1;
                let bounds = [end(0, f32::min), end(1, f32::min), end(0, f32::max), end(1, f32::max)];
                assert_eq!(bounds, [left, top, right, bottom], "{transform}");
                assert_eq!(points[2][2], 1.0, "visibility stays");
                continue;
            }
            cut += 1;
            for [x, y, _] in on {
                assert!((left..=right).contains(x) && (top..=bottom).contains(y), "{transform}: {found:?}");
            }
        }
        assert!(whole > 15, "{transform}: {whole} of {}", whole + cut);
    }
}

#[test]
fn points_outside_are_no_longer_labelled_and_stay_so() {
    let transform = Transform::new().center_crop(32).pad_to(64, 64);
    let found = placed(&transform, &[], &cornered([10.0, 8.0, 48.0, 41.0]), 0);
    // The crop begins at x 16 and y 8. Padding covers x 48 - 16 = 32, but not the pixels that the crop removed.
    assert_eq!(found.boxes, [[0.0, 0.0, 32.0, 32.0]]);
    assert_eq!(found.keypoints.unwrap()[0], [[0.0; 3], [32.0, 0.0, 2.0], [0.0; 3], [0.0; 3]]);
    // Outside from the beginning, and not labelled but with numbers.
    let mut marked = cornered([10.0, 8.0, 48.0, 41.0]);
    marked.keypoints = Some(vec![vec![[-0.5, 3.0, 2.0], [64.0, 48.0, 2.0], [5.0, 5.0, 0.0], [5.0, 48.5, 1.0]]]);
    let plain = Transform::new().resize_exact(48, 64);
    let want = [[0.0; 3], [64.0, 48.0, 2.0], [0.0; 3], [0.0; 3]];
    assert_eq!(placed(&plain, &[], &marked, 0).keypoints.unwrap()[0], want);
    // Dropped objects take their points along.
    marked.push([0.0, 0.0, 3.0, 3.0], 4);
    marked.keypoints.as_mut().unwrap().push(vec![[1.0, 2.0, 2.0]; 4]);
    let small = plain.clone().sanitize_bounding_boxes(5.0);
    assert_eq!(placed(&small, &[], &marked, 0).keypoints.unwrap(), [want]);
    // Points of no use are refused.
    let refused = |points: Option<Vec<Vec<[f32; 3]>>>| {
        let mut marked = cornered([10.0, 8.0, 48.0, 41.0]);
        marked.keypoints = points;
        let lowered = plain.lower_instances(&FIELD, None).unwrap();
        Placer::new().run(&lowered, &marked, SampleRng::new(1, 2, 3)).unwrap_err().to_string()
    };
    for points in [None, Some(vec![vec![[1.0; 3]; 3]])] {
        let text = refused(points);
        assert!(text.contains("without the 4 key points"), "{text}");
    }
    let text = refused(Some(Vec::new()));
    assert!(text.contains("differ in length"), "{text}");
    let text = refused(Some(vec![vec![[1.0, f32::NAN, 1.0]; 4]]));
    assert!(text.contains("a key point of instance 0 has NaN"), "{text}");
}

#[test]
fn mirror_images_exchange_left_and_right_points_by_name() {
    // In the order of `cornered`. The picture has the middle (32, 24).
    let [a, b, c, d] = [[10.0, 8.0, 2.0], [48.0, 8.0, 2.0], [10.0, 41.0, 1.0], [48.0, 41.0, 2.0]];
    let across = |[x, y, v]: [f32; 3]| [64.0 - x, y, v];
    let down = |[x, y, v]: [f32; 3]| [x, 48.0 - y, v];
    let new = || Transform::new().resize_exact(48, 64);
    let of = |transform: Transform, names: &[&str]| {
        placed(&transform, names, &cornered([10.0, 8.0, 48.0, 41.0]), 0).keypoints.unwrap().remove(0)
    };
    let eyes = ["left_eye", "right_eye", "nose", "left_ear"];
    // An ear without a partner and the nose stay at their index.
    assert_eq!(of(new().horizontal_flip(1.0), &eyes), [b, a, c, d].map(across));
    assert_eq!(of(new().vertical_flip(1.0), &eyes), [b, a, c, d].map(down));
    // Two mirrors are half a turn.
    assert_eq!(of(new().horizontal_flip(1.0).vertical_flip(1.0), &eyes), [a, b, c, d].map(across).map(down));
    assert_eq!(of(new().push(RandomRotation::new([180.0, 180.0])), &eyes), [a, b, c, d].map(across).map(down));
    assert_eq!(of(new(), &eyes), [a, b, c, d]);
    for (names, want) in [
        (&[][..], [a, b, c, d]),
        (&["left_eye", "right_eye"], [a, b, c, d]),
        (&["Left Hip", "hip left", "hip right", "Right Hip"], [d, c, b, a]),
        (&["LEFT", "RIGHT", "leftRight", "rightLeft"], [b, a, d, c]),
        (&["kneeLeft", "kneeRight", "cleft", "bright"], [b, a, c, d]),
        // Two points of one name have no partner that is sure.
        (&["left", "left", "right", "nose"], [c, b, a, d]),
        (&["1", "2", "3", "4"], [a, b, c, d]),
    ] {
        assert_eq!(of(new().horizontal_flip(1.0), names), want.map(across), "{names:?}");
    }
}
