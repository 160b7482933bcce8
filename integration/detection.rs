//! Boxes, masks and key points: they lie where their pixels lie, whatever the transform does; as many as there are in each row.

use std::sync::Arc;

use infeed::{
    Batch, Dataset, LastBatch, Layout, Loader, LoaderBuilder, OnBadSample, Result, Transform,
    dataset::{Instances, Mask, MemoryDataset, SampleRng},
    sampler::BucketSampler,
    spi::Sampling,
    transform::{
        Interpolation, View,
        augment::{Mix, RandomAffine, RandomPerspective, RandomRotation, Value},
        detection::{BoxFormat, RandomIouCrop, RandomZoomOut},
    },
};

use crate::support::{builder, cases, drain};

const SIDES: [u32; 2] = [72, 96];

/// One rectangle, whose colour is its label: 40, 41, ….
#[derive(Clone, Copy)]
struct Thing {
    corners: [u32; 4],
    colour: u8,
}

/// Up to six rectangles that do not touch, on black.
fn things(record: u64) -> Vec<Thing> {
    let mut draws = SampleRng::new(7, 0, record).op(0);
    let count = draws.below(7);
    let (mut all, mut tries): (Vec<Thing>, u32) = (Vec::new(), 0);
    while (all.len() as u64) < count && tries < 200 {
        tries += 1;
        let [h, w] = SIDES.map(u64::from);
        let (width, height) = (6 + draws.below(34), 6 + draws.below(30));
        let (left, top) = (draws.below(w - width + 1), draws.below(h - height + 1));
        let corners = [left, top, left + width, top + height].map(|v| v as u32);
        let apart = |other: &Thing| {
            let [a, b] = [corners, other.corners];
            a[2] < b[0] || b[2] < a[0] || a[3] < b[1] || b[3] < a[1]
        };
        if all.iter().all(apart) {
            all.push(Thing { corners, colour: 40 + all.len() as u8 });
        }
    }
    all
}

fn picture(record: u64) -> Vec<u8> {
    let mut pixels = vec![0; (SIDES[0] * SIDES[1]) as usize];
    for Thing { corners: [left, top, right, bottom], colour } in things(record) {
        for y in top..bottom {
            pixels[(y * SIDES[1] + left) as usize..(y * SIDES[1] + right) as usize].fill(colour);
        }
    }
    pixels
}

fn marked(record: u64) -> Instances {
    let mut marked = Instances::new(SIDES);
    let (mut masks, mut points) = (Vec::new(), Vec::new());
    for Thing { corners, colour } in things(record) {
        marked.push(corners.map(|v| v as f32), i64::from(colour));
        let [left, top, right, bottom] = corners.map(f64::from);
        masks.push(Mask::Polygons(vec![vec![[left, top], [right, top], [right, bottom], [left, bottom]]]));
        // The middle, and a point that is not labelled.
        points.push(vec![[(left + right) as f32 / 2.0, (top + bottom) as f32 / 2.0, 2.0], [0.0; 3]]);
    }
    marked.ids = (0..marked.len() as i64).map(|i| record as i64 * 100 + i).collect();
    marked.crowd = marked.ids.iter().map(|id| id % 3 == 0).collect();
    marked.masks = Some(masks);
    marked.keypoints = Some(points);
    marked
}

fn dataset(count: u64) -> Arc<dyn Dataset> {
    with(count, marked)
}

fn with(count: u64, marked: impl Fn(u64) -> Instances) -> Arc<dyn Dataset> {
    let pixels: Vec<u8> = (0..count).flat_map(picture).collect();
    let images = MemoryDataset::builder().images_u8(pixels, count as usize, SIDES[0], SIDES[1], 1, false);
    Arc::new(images.instances((0..count).map(marked).collect()).build().unwrap())
}

fn loader(
    dataset: &Arc<dyn Dataset>,
    transform: Transform,
    set: impl Fn(LoaderBuilder) -> LoaderBuilder,
) -> Result<Loader> {
    let plain = builder(Arc::clone(dataset)).batch_size(8).shuffle(5).workers(2).dtype(infeed::DType::U8);
    set(plain.layout(Layout::Nchw).transform(transform)).build_blocking()
}

fn epoch(dataset: &Arc<dyn Dataset>, transform: &Transform, number: u64) -> Vec<Batch> {
    drain(loader(dataset, transform.clone(), |loader| loader).unwrap().epoch(number)).unwrap()
}

/// Left, top, right, bottom of the pixels of a colour.
fn bounds(row: &[u8], width: usize, colour: u8) -> Option<[f32; 4]> {
    let at = || row.iter().enumerate().filter(|(_, value)| **value == colour).map(|(i, _)| (i % width, i / width));
    let ends = |values: Vec<usize>| Some((*values.iter().min()? as f32, *values.iter().max()? as f32 + 1.0));
    let ((left, right), (top, bottom)) = (ends(at().map(|p| p.0).collect())?, ends(at().map(|p| p.1).collect())?);
    Some([left, top, right, bottom])
}

/// Chains whose pixels are never blended.
fn chains() -> Vec<(Transform, f32)> {
    let new = Transform::new;
    let nearest = |transform: Transform| transform.interpolation(Interpolation::NearestExact);
    let zoom = |fill: f32| RandomZoomOut { fill: Value::All(fill), side_range: [1.0, 2.5], p: 0.7 };
    let turn = || RandomRotation::new(40.0);
    let bend = || RandomPerspective { interpolation: Sampling::Nearest, p: 1.0, ..RandomPerspective::default() };
    let affine = || RandomAffine { scale: Some([0.7, 1.4]), translate: Some([0.2, 0.2]), ..RandomAffine::new(15.0) };
    vec![
        (new().horizontal_flip(0.5).vertical_flip(0.5), 0.01),
        (new().center_crop(50).horizontal_flip(0.5), 0.01),
        (new().random_crop(80, 12).vertical_flip(0.5), 0.01),
        (nearest(new().resize_exact(110, 70)).horizontal_flip(0.5), 1.0),
        (nearest(new().resize_shorter(48)).center_crop(64), 1.0),
        (nearest(new().random_resized_crop(64)).horizontal_flip(0.5).vertical_flip(0.5), 1.0),
        (nearest(new().horizontal_flip(0.5).random_resized_crop(40)).vertical_flip(1.0).random_crop(40, 7), 1.0),
        (nearest(new().random_shortest_size([40, 60, 90], 110)).horizontal_flip(0.5).pad_to(96, 112), 1.0),
        (nearest(new().scale_jitter(64, 64)).fixed_size_crop(64, 64).horizontal_flip(0.5), 1.0),
        (nearest(new().push(zoom(0.1)).random_iou_crop().horizontal_flip(0.5).resize_exact(60, 80)), 1.0),
        (nearest(new().random_iou_crop().resize_exact(60, 80)).vertical_flip(0.5), 1.0),
        (nearest(new().random_invert(0.0).push(zoom(0.1)).resize_exact(200, 150)).random_invert(0.0), 1.0),
        (nearest(new().vertical_flip(0.5).push(zoom(0.0)).resize_exact(30, 30)).pad_to(40, 33), 1.0),
        (nearest(new().resize_exact(64, 64)).push(turn()), 1.6),
        (nearest(new().push(affine()).resize_exact(90, 90)).horizontal_flip(0.5), 2.2),
        (nearest(new().push(affine()).random_iou_crop().resize_exact(70, 50)), 2.2),
        (nearest(new().resize_exact(64, 64)).push(bend()), 1.8),
        (nearest(new().random_iou_crop().resize_exact(50, 50)).push(turn()).horizontal_flip(0.5), 2.5),
    ]
}

#[test]
fn boxes_masks_and_key_points_lie_where_their_pixels_lie() {
    let data = dataset(u64::from(cases(24, 400)));
    for (index, (chain, apart)) in chains().into_iter().enumerate() {
        let (mut seen, mut whole, mut points) = (0, 0, 0);
        for batch in (0..3).flat_map(|number| epoch(&data, &chain, number)) {
            let image = &batch["image"];
            let [_, 1, height, width] = *image.shape() else { panic!("{:?}", image.shape()) };
            let marked = batch.instances("instances").unwrap();
            assert_eq!(marked.len(), batch.len());
            for (row, (marked, record)) in marked.rows().zip(batch.records()).enumerate() {
                let pixels = &image.bytes().unwrap()[row * height * width..][..height * width];
                assert_eq!(marked.labels, (0..marked.labels.len() as i64).map(|i| 40 + i).collect::<Vec<_>>());
                for (i, (found, label)) in marked.boxes.iter().zip(marked.labels).enumerate() {
                    let (colour, place) = (*label as u8, format!("{index}: {chain}, record {record}, {label}"));
                    // A mask is exactly the pixels of its colour.
                    let mask = marked.masks.unwrap()[i].to_dense();
                    let coloured: Vec<u8> = pixels.iter().map(|value| u8::from(*value == colour)).collect();
                    assert_eq!(mask, coloured, "{place}");
                    let Some(seen_at) = bounds(pixels, width, colour) else { continue };
                    seen += 1;
                    let [middle, none] = marked.keypoints.unwrap()[2 * i..][..2] else { panic!("{place}") };
                    assert_eq!(none, [0.0; 3], "{place}");
                    // Of something small, rounding may move the middle out.
                    let large = seen_at[2] - seen_at[0] > 6.0 && seen_at[3] - seen_at[1] > 6.0;
                    let [column, row] = [middle[0] as usize, middle[1] as usize];
                    if large && middle[2] > 0.0 && column < width && row < height {
                        points += 1;
                        assert_eq!(pixels[row * width + column], colour, "{place}: {middle:?}");
                    }
                    // Boxes whose middle is outside of a crop that looked at them have no size.
                    if *found == [0.0; 4] || found[0] == found[2] || found[1] == found[3] {
                        continue;
                    }
                    whole += 1;
                    let cut =
                        found.iter().zip([width, height, width, height]).any(|(v, end)| *v <= 0.0 || *v >= end as f32);
                    let turned = apart > 1.5;
                    for (edge, (found, seen)) in found.iter().zip(seen_at).enumerate() {
                        // Cut off by an edge, a turned box says more than what is left of the thing.
                        let outside = if edge < 2 { *found <= seen + apart } else { *found >= seen - apart };
                        assert!(
                            outside && (turned && cut || (found - seen).abs() <= apart),
                            "{place}: {found} {seen_at:?}"
                        );
                    }
                }
            }
        }
        assert!(seen > 100 && whole > 60 && points > 20, "chain {index}: {seen}, {whole} with boxes, {points} points");
    }
}

#[test]
fn small_boxes_are_dropped_with_all_that_is_theirs() {
    let data = dataset(40);
    let plain = Transform::new().random_iou_crop().resize_exact(48, 48);
    let kept: Vec<Batch> = epoch(&data, &plain.clone().sanitize_bounding_boxes(9.0), 0);
    let (mut dropped, mut left) = (0, 0);
    for (all, kept) in epoch(&data, &plain, 0).iter().zip(&kept) {
        assert_eq!(all["image"].bytes(), kept["image"].bytes(), "pixels do not depend on what is dropped");
        let (all, kept) = (all.instances("instances").unwrap(), kept.instances("instances").unwrap());
        for (all, kept) in all.rows().zip(kept.rows()) {
            let large = |i: &usize| {
                let [x1, y1, x2, y2] = all.boxes[*i];
                x2 - x1 >= 9.0 && y2 - y1 >= 9.0
            };
            let want: Vec<usize> = (0..all.boxes.len()).filter(large).collect();
            assert_eq!(kept.boxes, want.iter().map(|i| all.boxes[*i]).collect::<Vec<_>>());
            assert_eq!(kept.ids, want.iter().map(|i| all.ids[*i]).collect::<Vec<_>>());
            assert_eq!(kept.labels, want.iter().map(|i| all.labels[*i]).collect::<Vec<_>>());
            assert_eq!(kept.crowd, want.iter().map(|i| all.crowd[*i]).collect::<Vec<_>>());
            let points = |i: &usize| all.keypoints.unwrap()[2 * i..][..2].to_vec();
            assert_eq!(kept.keypoints.unwrap(), want.iter().flat_map(points).collect::<Vec<_>>());
            let (all_masks, kept_masks) = (all.masks.unwrap(), kept.masks.unwrap());
            assert!(kept_masks.iter().eq(want.iter().map(|i| &all_masks[*i])));
            (dropped, left) = (dropped + all.boxes.len() - want.len(), left + want.len());
        }
    }
    assert!(dropped > 20 && left > 20, "{dropped} {left}");
}

type PlainInstances = Vec<(Vec<u64>, Vec<Vec<u8>>, Vec<Vec<u32>>)>;

fn plain(batches: &[Batch]) -> PlainInstances {
    let one = |batch: &Batch| {
        let marked = batch.instances("instances").unwrap();
        let mut bytes: Vec<Vec<u8>> = marked.tensors().map(|(_, tensor)| tensor.bytes().unwrap().to_vec()).collect();
        bytes.push(batch["image"].bytes().unwrap().to_vec());
        let masks = marked.masks().unwrap_or_default().iter().map(|mask| mask.counts().to_vec()).collect();
        (batch.records().to_vec(), bytes, masks)
    };
    batches.iter().map(one).collect()
}

#[test]
fn instances_do_not_depend_on_workers_and_come_again_after_a_resume() {
    let data = dataset(60);
    let chain = || Transform::new().random_zoom_out(0.5).random_iou_crop().resize_exact(40, 40).horizontal_flip(0.5);
    let of = |workers: usize| loader(&data, chain(), |loader| loader.workers(workers).prefetch(3)).unwrap();
    let all = drain(of(1).epoch(2)).unwrap();
    assert_eq!(plain(&all), plain(&drain(of(4).epoch(2)).unwrap()));
    assert_ne!(plain(&all), plain(&drain(of(4).epoch(3)).unwrap()));
    for at in [0, 3, 5] {
        let rest = drain(of(3).resume_epoch(all[at].state()).unwrap()).unwrap();
        assert_eq!(plain(&rest), plain(&all[at + 1..]));
    }
}

#[test]
fn rows_have_as_many_instances_as_there_are() {
    let data = dataset(21);
    let chain = Transform::new();
    let loader = loader(&data, chain, |loader| loader.last_batch(LastBatch::Pad)).unwrap();
    for batch in drain(loader.epoch(0)).unwrap() {
        let marked = batch.instances("instances").unwrap();
        let offsets: &[i64] = marked.offsets().as_slice().unwrap();
        let total = *offsets.last().unwrap() as usize;
        assert_eq!((offsets.len(), batch.len()), (9, 8));
        assert_eq!(marked.boxes().shape(), [total, 4]);
        assert!([marked.labels(), marked.ids(), marked.crowd()].iter().all(|tensor| tensor.shape() == [total]));
        assert_eq!((marked.sizes().shape(), marked.masks().unwrap().len()), (&[8, 2][..], total));
        for (marked, record) in marked.rows().zip(batch.records()) {
            let want = self::marked(*record);
            assert_eq!((marked.boxes, marked.labels, marked.ids), (&want.boxes[..], &want.labels[..], &want.ids[..]));
            assert!(marked.crowd.iter().map(|crowd| *crowd == 1).eq(want.crowd.iter().copied()));
            assert_eq!(marked.size, SIDES.map(i64::from));
        }
        assert!(batch.instances("image").is_none() && batch.get("instances").is_none());
        assert_eq!(batch.instance_fields().map(|(name, _)| name).collect::<Vec<_>>(), ["instances"]);
    }
}

#[test]
fn boxes_are_written_as_the_transform_says() {
    let data = dataset(10);
    let of = |format, normalized| {
        let chain = Transform::new().resize_exact(50, 200).box_format(format, normalized);
        let batches = epoch(&data, &chain, 0);
        batches
            .iter()
            .flat_map(|b| b.instances("instances").unwrap().boxes().to_vec::<f32>().unwrap())
            .collect::<Vec<f32>>()
    };
    let corners = of(BoxFormat::Xyxy, false);
    assert!(corners.len() > 40);
    let near = |found: Vec<f32>, want: &dyn Fn([f32; 4]) -> [f32; 4]| {
        let want: Vec<f32> = corners.as_chunks().0.iter().flat_map(|one| want(*one)).collect();
        assert_eq!(found.len(), want.len());
        assert!(found.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?} {want:?}");
    };
    near(of(BoxFormat::Xywh, false), &|[a, b, c, d]| [a, b, c - a, d - b]);
    near(of(BoxFormat::Cxcywh, false), &|[a, b, c, d]| [(a + c) / 2.0, (b + d) / 2.0, c - a, d - b]);
    near(of(BoxFormat::Cxcywh, true), &|[a, b, c, d]| {
        [(a + c) / 400.0, (b + d) / 100.0, (c - a) / 200.0, (d - b) / 50.0]
    });
}

#[test]
fn padded_rows_say_how_large_their_image_is() {
    let data = dataset(16);
    for batch in epoch(&data, &Transform::new().random_shortest_size([30, 45], 55).pad_to(60, 70), 0) {
        let marked = batch.instances("instances").unwrap();
        for (row, size) in marked.sizes().as_slice::<i64>().unwrap().as_chunks().0.iter().enumerate() {
            assert!(*size == [30, 40] || *size == [41, 55], "{size:?}");
            let pixels = &batch["image"].bytes().unwrap()[row * 60 * 70..][..60 * 70];
            let outside = |(at, _): &(usize, &u8)| at / 70 >= size[0] as usize || at % 70 >= size[1] as usize;
            assert!(pixels.iter().enumerate().filter(outside).all(|(_, value)| *value == 0));
        }
    }
}

/// Files of several sizes, with a box that is all of the image and one that is its top left quarter.
fn files(count: u64) -> (Arc<dyn Dataset>, Vec<[u32; 2]>) {
    let sizes: Vec<[u32; 2]> =
        (0..count).map(|record| [[40, 60], [60, 40], [33, 70], [52, 52]][record as usize % 4]).collect();
    let file = |(record, [h, w]): (u8, &[u32; 2])| {
        let mut file = std::io::Cursor::new(Vec::new());
        let picture = image::RgbImage::from_fn(*w, *h, |x, y| image::Rgb([x as u8 * 3, y as u8 * 3, 100 + record]));
        picture.write_to(&mut file, image::ImageFormat::Png).unwrap();
        file.into_inner().into()
    };
    let marked = |size: &[u32; 2]| {
        let mut marked = Instances::new(*size);
        let [h, w] = size.map(|side| side as f32);
        marked.push([0.0, 0.0, w, h], 0);
        marked.push([0.0, 0.0, w / 2.0, h / 2.0], 1);
        marked
    };
    let files = MemoryDataset::builder().encoded_images((0..).zip(&sizes).map(file).collect());
    (Arc::new(files.instances(sizes.iter().map(marked).collect()).build().unwrap()), sizes)
}

#[test]
fn rows_are_as_large_as_the_largest_image_of_their_batch() {
    let (data, _) = files(40);
    let steps = || Transform::new().random_shortest_size([20, 30, 40], 64).horizontal_flip(0.5);
    let means = || ([0.4, 0.5, 0.6], [0.2, 0.2, 0.3]);
    let with = |last: Transform, layout| {
        let (mean, std) = means();
        let loader = builder(Arc::clone(&data)).batch_size(7).shuffle(3).workers(3).layout(layout);
        let loader = loader.transform(last.normalize(mean, std)).build_blocking().unwrap();
        drain(loader.epoch(1)).unwrap()
    };
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let fixed = with(steps().pad_to(64, 64), layout);
        let mut shapes = std::collections::BTreeSet::new();
        for (batch, fixed) in with(steps().pad_to_largest(64, 64, 4), layout).iter().zip(&fixed) {
            let sizes = batch.instances("instances").unwrap().sizes().to_vec::<i64>().unwrap();
            let side = |axis: usize| sizes.as_chunks::<2>().0.iter().map(|size| size[axis] as usize).max().unwrap();
            let [h, w] = [0, 1].map(|axis| side(axis).next_multiple_of(4));
            let n = batch.len();
            let shape = if layout == Layout::Nchw { vec![n, 3, h, w] } else { vec![n, h, w, 3] };
            assert_eq!(batch["image"].shape(), shape);
            shapes.insert(shape);
            let place = |[height, width]: [usize; 2], [row, c, y, x]: [usize; 4]| match layout {
                Layout::Nchw => ((row * 3 + c) * height + y) * width + x,
                Layout::Nhwc => ((row * height + y) * width + x) * 3 + c,
            };
            let (values, whole) =
                (batch["image"].as_slice::<f32>().unwrap(), fixed["image"].as_slice::<f32>().unwrap());
            for at in (0..n * 3 * h * w).map(|i| [i / (3 * h * w), i / (h * w) % 3, i / w % h, i % w]) {
                // Of a flipped image places are counted from the row's other end.
                let apart = (values[place([h, w], at)] - whole[place([64, 64], at)]).abs();
                assert!(apart <= 1e-5, "{at:?} {layout}: {apart}");
            }
            let of = |batch: &Batch| batch.instances("instances").unwrap().boxes().to_vec::<f32>();
            assert_eq!(of(batch), of(fixed));
        }
        assert!(shapes.len() > 1, "{shapes:?}");
    }
}

#[test]
fn buckets_put_images_of_one_proportion_into_a_batch() {
    let (data, sizes) = files(64);
    let known = (0..data.len()).map(|record| data.image_size(record).unwrap());
    assert!(known.clone().eq(sizes.iter().copied()));
    let order = BucketSampler::by_aspect_ratio(known, &[0.8, 1.2], 8, 5).unwrap();
    let transform = Transform::new().pad_to_largest(96, 96, 1);
    let loader = builder(Arc::clone(&data)).batch_size(8).sampler(Arc::new(order)).transform(transform);
    let loader = loader.map(|sample, _| {
        let [h, w] = sample.instances_mut("instances").unwrap().size;
        let spec = *sample.image_mut("image")?.spec();
        assert!(spec.height >= h && spec.width >= w && spec.height.max(spec.width) < 96);
        Ok(())
    });
    let loader = loader.build_blocking().unwrap();
    let mut seen = Vec::new();
    for batch in drain(loader.epoch(0)).unwrap() {
        let [_, 3, h, w] = *batch["image"].shape() else { panic!("{:?}", batch["image"].shape()) };
        let kinds: std::collections::BTreeSet<u64> = batch.records().iter().map(|record| record % 4).collect();
        match (h, w) {
            (60, 40) => assert_eq!(kinds, [1].into()),
            (52, 52) => assert_eq!(kinds, [3].into()),
            (33..=40, 60..=70) => assert!(kinds.iter().all(|kind| [0, 2].contains(kind))),
            other => panic!("{other:?}"),
        }
        seen.extend_from_slice(batch.records());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..64).collect::<Vec<_>>());
}

#[test]
fn what_surrounds_a_zoomed_out_image_has_its_colour_and_blends_with_it() {
    // Of one colour all over, so that what the resize blends is the canvas alone.
    let data = {
        let images = MemoryDataset::builder().images_u8(vec![200; 12 * 60 * 80], 12, 60, 80, 1, false);
        let dataset: Arc<dyn Dataset> = Arc::new(images.build().unwrap());
        dataset
    };
    let zoom = RandomZoomOut { fill: Value::All(0.2), side_range: [1.5, 4.0], p: 1.0 };
    // Twice as fine as the canvas: the same picture in two steps.
    let chain = Transform::new().push(zoom).resize_exact(96, 128);
    let loader = loader(&data, chain.clone(), |loader| loader).unwrap();
    let (mut around, mut inside, mut blended) = (0, 0, 0);
    for batch in drain(loader.epoch(0)).unwrap() {
        for value in batch["image"].bytes().unwrap() {
            match value {
                51 => around += 1,
                200 => inside += 1,
                52..200 => blended += 1,
                other => panic!("{other}"),
            }
        }
    }
    assert!(around > 1000 && inside > 1000 && blended > 200, "{around} {inside} {blended}");
}

#[test]
fn bad_boxes_make_bad_samples() {
    let spoiled = |record: u64| {
        let mut marked = marked(record);
        if record % 5 == 2 {
            marked.push([f32::NAN, 1.0, 2.0, 3.0], 0);
            marked.masks.as_mut().unwrap().push(Mask::Polygons(Vec::new()));
            marked.keypoints.as_mut().unwrap().push(vec![[0.0; 3]; 2]);
        }
        marked
    };
    let data = with(20, spoiled);
    let run = |bad| {
        let set = |loader: LoaderBuilder| loader.on_bad_sample(bad).last_batch(LastBatch::Partial);
        drain(loader(&data, Transform::new(), set).unwrap().epoch(0))
    };
    let error = run(OnBadSample::Stop).unwrap_err().to_string();
    assert!(error.contains("NaN") && error.contains("instance ") && error.contains("record "), "{error}");
    let left: Vec<u64> =
        run(OnBadSample::Skip { at_most: 9 }).unwrap().iter().flat_map(|batch| batch.records().to_vec()).collect();
    assert!(left.len() == 16 && left.iter().all(|record| record % 5 != 2));
    for batch in run(OnBadSample::SkipPadded { at_most: 9 }).unwrap() {
        let marked = batch.instances("instances").unwrap();
        assert_eq!((marked.len(), batch.records().len()), (batch.len(), batch.valid()));
        assert!(marked.rows().skip(batch.valid()).all(|row| row.boxes.is_empty() && row.size == [0, 0]));
        for (row, record) in marked.rows().zip(batch.records()) {
            assert_eq!(row.boxes, self::marked(*record).boxes);
        }
    }
    for batch in run(OnBadSample::Substitute).unwrap() {
        let marked = batch.instances("instances").unwrap();
        for (row, record) in marked.rows().zip(batch.records()) {
            assert_eq!(row.boxes, self::marked(*record).boxes);
        }
    }
    // Boxes of another image's size, outlines that are none.
    let turned = with(8, |record| {
        let mut marked = marked(record);
        marked.size = [96, 72];
        marked
    });
    let error = drain(loader(&turned, Transform::new(), |loader| loader).unwrap().epoch(0)).unwrap_err().to_string();
    assert!(error.contains("96x72") && error.contains("72x96"), "{error}");
}

#[test]
fn what_has_no_meaning_is_refused_by_name() {
    let data = dataset(8);
    let refused = |transform: Transform, set: &dyn Fn(LoaderBuilder) -> LoaderBuilder| {
        loader(&data, transform, set).unwrap_err().to_string()
    };
    let plain = |loader: LoaderBuilder| loader;
    let resize = || Transform::new().resize_exact(32, 32);
    let views = |loader: LoaderBuilder| {
        loader.transform(Transform::new()).views([View::new("a", resize()), View::new("b", resize())])
    };
    for (transform, set, words) in [
        (
            Transform::new().random_shortest_size([40], None),
            &plain as &dyn Fn(_) -> _,
            "no fixed size after random_shortest_size",
        ),
        (Transform::new().random_shortest_size([], None).pad_to(9, 9), &plain, "no min_size"),
        (
            resize().push(RandomIouCrop { sampler_options: vec![], ..RandomIouCrop::default() }),
            &plain,
            "sampler_options",
        ),
        (resize().push(RandomIouCrop { min_scale: 0.0, ..RandomIouCrop::default() }), &plain, "scale"),
        (resize().push(RandomZoomOut { side_range: [0.5, 2.0], ..RandomZoomOut::default() }), &plain, "side_range"),
        (resize().push(RandomZoomOut { p: 1.5, ..RandomZoomOut::default() }), &plain, "probability 1.5"),
        (
            Transform::new().push(RandomZoomOut { fill: Value::All(0.5), ..RandomZoomOut::default() }).pad_to(500, 500),
            &plain,
            "another colour",
        ),
        (Transform::new().random_zoom_out(0.5).random_zoom_out(0.5).resize_exact(9, 9), &plain, "pads too"),
        (resize().sanitize_bounding_boxes(f64::NAN), &plain, "min_size NaN"),
        (resize().aug_mix(), &plain, "no mask can follow"),
        (Transform::new().pad_to_largest(100, 100, 8), &plain, "multiples of 8"),
        (Transform::new().random_iou_crop().pad_to_largest(96, 96, 1), &plain, "depends on boxes"),
        (Transform::new().pad_to_largest(96, 96, 1).horizontal_flip(0.5), &plain, "comes after pad_to_largest"),
        (Transform::new().pad_to_largest(96, 96, 1).random_invert(0.5), &plain, "comes after pad_to_largest"),
        (resize(), &|loader: LoaderBuilder| loader.mix(Mix { mixup: 0.5, ..Mix::default() }), "can't be mixed"),
        (Transform::new(), &views, "several views"),
    ] {
        let found = refused(transform, set);
        assert!(found.contains(words), "{found} has no {words:?}");
    }
    let bare: Arc<dyn Dataset> =
        Arc::new(MemoryDataset::builder().images_u8(vec![0; 8 * 64], 8, 8, 8, 1, false).build().unwrap());
    for transform in [
        Transform::new().random_iou_crop().resize_exact(32, 32),
        resize().sanitize_bounding_boxes(1.0),
        resize().box_format(BoxFormat::Xywh, true),
    ] {
        let found = loader(&bare, transform, plain).unwrap_err().to_string();
        assert!(found.contains("needs boxes, and the dataset has none"), "{found}");
    }
    let unknown: Arc<dyn Dataset> =
        Arc::new(MemoryDataset::builder().encoded_images(vec![vec![1].into(); 8]).build().unwrap());
    let found = loader(&unknown, Transform::new().pad_to_largest(64, 64, 1), plain).unwrap_err().to_string();
    assert!(found.contains("the sizes of all images, and that of record 0"), "{found}");
    // An image larger than its padding is one bad sample, not a setting that can't be.
    let found = drain(loader(&data, Transform::new().pad_to(80, 80), plain).unwrap().epoch(0)).unwrap_err().to_string();
    assert!(found.contains("pad_to makes 80x80"), "{found}");
}

#[test]
fn a_function_may_change_the_instances_of_its_sample() {
    let data = dataset(16);
    let only_first = |loader: LoaderBuilder| {
        loader.map(|sample, _| {
            let marked = sample.instances_mut("instances").unwrap();
            assert!(marked.masks.is_some());
            for list in [&mut marked.labels, &mut marked.ids] {
                list.truncate(1);
            }
            marked.boxes.truncate(1);
            marked.crowd.truncate(1);
            marked.masks.as_mut().unwrap().truncate(1);
            marked.keypoints.as_mut().unwrap().truncate(1);
            Ok(())
        })
    };
    let mut rows = 0;
    for batch in drain(loader(&data, Transform::new(), only_first).unwrap().epoch(0)).unwrap() {
        for (row, record) in batch.instances("instances").unwrap().rows().zip(batch.records()) {
            let want = marked(*record);
            assert_eq!(row.boxes, &want.boxes[..want.len().min(1)]);
            rows += row.boxes.len();
        }
    }
    assert!(rows > 8);
    let spoils: [fn(&mut Instances); 3] = [
        |marked| marked.labels.push(7),
        |marked| marked.keypoints = None,
        |marked| marked.keypoints.iter_mut().flatten().for_each(|points| points.truncate(1)),
    ];
    for spoil in spoils {
        let spoils = |loader: LoaderBuilder| {
            loader.map(move |sample, _| {
                spoil(sample.instances_mut("instances").unwrap());
                Ok(())
            })
        };
        let error = drain(loader(&data, Transform::new(), spoils).unwrap().epoch(0)).unwrap_err().to_string();
        assert!(error.contains("lists do not fit each other"), "{error}");
    }
}

#[test]
fn a_canvas_may_have_a_colour_beside_masks() {
    let pixels = vec![200; 8 * (SIDES[0] * SIDES[1] * 3) as usize];
    let images = MemoryDataset::builder().images_u8(pixels, 8, SIDES[0], SIDES[1], 3, false);
    let dataset: Arc<dyn Dataset> = Arc::new(images.instances((0..8).map(marked).collect()).build().unwrap());
    let zoom = RandomZoomOut { fill: Value::Each(vec![0.4, 0.2, 0.1]), side_range: [2.0, 3.0], p: 1.0 };
    let steps = Transform::new().push(zoom).resize_exact(60, 80).interpolation(Interpolation::NearestExact);
    for batch in epoch(&dataset, &steps, 0) {
        let values = batch["image"].to_vec::<u8>().unwrap();
        for planes in values.chunks_exact(3 * 60 * 80) {
            let colours = (0..60 * 80).map(|at| [planes[at], planes[60 * 80 + at], planes[2 * 60 * 80 + at]]);
            let (filled, shown) = colours.partition::<Vec<_>, _>(|colour| *colour == [102, 51, 26]);
            assert!(filled.len() > 60 * 80 / 2 && shown.iter().all(|colour| *colour == [200; 3]));
        }
    }
}

#[test]
fn transforms_of_boxes_are_read_from_a_line_and_from_json() {
    let line = "random_zoom_out:0.5;random_iou_crop;horizontal_flip;resize_exact:300;sanitize_bounding_boxes:2";
    let built = Transform::new().random_zoom_out(0.5).random_iou_crop().horizontal_flip(0.5).resize_exact(300, 300);
    let built = built.sanitize_bounding_boxes(2.0);
    assert_eq!(line.parse::<Transform>().unwrap(), built);
    let line = "random_shortest_size:480/512/544,1333,bicubic;pad_to:800/1333;convert_bounding_box_format:cxcywh,normalized=true";
    let other = Transform::new().random_shortest_size([480, 512, 544], 1333).interpolation(Interpolation::Bicubic);
    let other = other.pad_to(800, 1333).box_format(BoxFormat::Cxcywh, true);
    assert_eq!(line.parse::<Transform>().unwrap(), other);
    assert_eq!(
        "random_shortest_size:800;scale_jitter:64;fixed_size_crop:64".parse::<Transform>().unwrap(),
        Transform::new().random_shortest_size([800], None).large_scale_jitter(64)
    );
    for transform in [built, other] {
        let json = serde_json::to_string(&transform).unwrap();
        assert_eq!(serde_json::from_str::<Transform>(&json).unwrap(), transform, "{json}");
    }
    for (text, words) in [("random_shortest_size", "min_size"), ("pad_to:0", "0x0"), ("random_iou_crop:2", "scale")] {
        let found =
            text.parse::<Transform>().and_then(|transform| loader(&dataset(8), transform, |loader| loader).map(|_| ()));
        assert!(found.unwrap_err().to_string().contains(words), "{text}");
    }
}
