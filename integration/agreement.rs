//! Pixels: kernels agree with the scalar reference bit for bit, and transforms with torchvision within a stated bound.

use infeed::{
    DType, ErrorKind, Layout,
    dataset::{FieldKind, ImageInfo, SampleRng},
    internal::kernels::{
        Axis, ChannelTable, Filter, Level, Pixels, Plane, Planes, ResampleParams, Resampler, RowSpec, channel_source,
    },
    spi::{Decoded, Drawn, RowMaker},
    transform::{Interpolation, Interpolations, Op, PRESETS, Transform, reference},
};
use proptest::prelude::*;
use serde_json::Value;

use crate::properties::properties;

fn image(channels: u8) -> FieldKind {
    FieldKind::Image { channels, size: None, dtype: None }
}

fn sized(channels: u8, height: u32, width: u32) -> FieldKind {
    FieldKind::Image { channels, size: Some((height, width)), dtype: None }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&v| f32::from_ne_bytes(v)).collect()
}

/// Runs a transform on a whole image, as a worker does.
fn transformed(transform: &Transform, field: &FieldKind, info: ImageInfo, data: &[u8], rng: SampleRng) -> Vec<f32> {
    let lowered = transform.lower(field, DType::F32, Layout::Nchw).unwrap();
    let drawn = lowered.draw(&info, rng).unwrap();
    let mut out = vec![0; lowered.row().len_bytes()];
    let src = Pixels { info, rows: 0..info.height, data };
    RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
    floats(&out)
}

// ---- kernels and reference --------------------------------------------------------------------------------------

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) info: ImageInfo,
    pub(crate) data: Vec<u8>,
    pub(crate) params: ResampleParams,
    pub(crate) table: ChannelTable,
    pub(crate) row: RowSpec,
    pub(crate) level: Level,
}

fn axis(size: u32, len: u32) -> impl Strategy<Value = Axis> {
    let window = (0..size, 1..=size).prop_map(move |(low, n)| (low, (low + n).min(size)));
    let step = prop_oneof![0.05f32..1.0, Just(1.0), 1.0f32..3.0, 3.0f32..12.0];
    let ends = (0..=len, 0..=len).prop_map(|(a, b)| (a.min(b), a.max(b)));
    let ends = prop_oneof![3 => Just((0, len)), 1 => ends];
    // A shift like that of a padded crop now and then, else any place.
    (window, step, ends, any::<bool>(), any::<bool>(), -6i32..20, 0.0f32..1.0).prop_map(
        move |((low, high), step, (from, to), flip, shift, whole, part)| {
            let flip = u32::from(flip);
            if shift {
                let from = from.max(u32::try_from(-whole).unwrap_or(0).min(len));
                let to = to.min(u32::try_from(size as i32 - whole).unwrap_or(0)).max(from);
                return Axis { start: whole as f32, step: 1.0, low: 0, high: size, from, to, flip };
            }
            let start = low as f32 + part * (high - low) as f32 - 1.0;
            Axis { start, step, low, high, from, to, flip }
        },
    )
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![1 => Just(Filter::Triangle), 3 => prop::sample::select(&Filter::ALL[..])]
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let channels = prop_oneof![
        Just((1u8, 1u32)),
        Just((1, 3)),
        Just((3, 3)),
        Just((4, 3)),
        Just((4, 4)),
        Just((2, 2)),
        Just((2, 1)),
        (5u8..10).prop_map(|n| (n, u32::from(n)))
    ];
    let side = prop_oneof![1u32..6, 1u32..40, 60u32..90];
    let from = prop_oneof![4 => Just(DType::U8), 1 => Just(DType::U16), 1 => Just(DType::F32)];
    let to = prop_oneof![Just(DType::F32), Just(DType::F16), Just(DType::Bf16), Just(DType::U8)];
    let layout = prop_oneof![2 => Just(Layout::Nchw), 1 => Just(Layout::Nhwc)];
    let level = prop_oneof![3 => Just(Level::Best), 2 => Just(Level::Avx2), 1 => Just(Level::Portable)];
    ((side.clone(), side), (1u32..40, 1u32..40), channels, (from, to), any::<bool>(), layout, level, any::<u64>())
        .prop_flat_map(|((height, width), (out_h, out_w), (source, channels), (from, to), planar, layout, level, seed)| {
            let info = ImageInfo { height, width, channels: source, dtype: from, planar };
            let row = RowSpec { height: out_h, width: out_w, channels, dtype: to, layout };
            let cutout = prop_oneof![3 => Just([0; 4]), 1 => (0..30u32, 0..30u32, 0..30u32, 0..30u32).prop_map(|(a, b, c, d)| [a, a + b, c, c + d])];
            (axis(height, out_h), axis(width, out_w), cutout, filter()).prop_map(move |(y, x, cutout, filter)| {
                let mut draws = SampleRng::new(seed, 0, 0).op(0);
                let data = match from {
                    DType::F32 => (0..info.len_bytes() / 4)
                        .map(|_| if draws.chance(0.002) { f32::INFINITY } else { draws.unit() * 300.0 - 50.0 })
                        .flat_map(f32::to_ne_bytes)
                        .collect(),
                    _ => (0..info.len_bytes()).map(|_| draws.bits() as u8).collect(),
                };
                let mut per_channel = |least: f32, most: f32| (0..channels).map(|_| least + (most - least) * draws.unit()).collect();
                let table = ChannelTable {
                    scale: per_channel(0.001, 2.0),
                    bias: per_channel(-3.0, 3.0),
                    fill: per_channel(-3.0, 3.0),
                    cutout: per_channel(-3.0, 3.0),
                };
                let params = ResampleParams { y, x, cutout, filter };
                Case { info, data, params, table, row, level }
            })
        })
}

/// Same bits; any NaN equals any other.
pub(crate) fn same(a: &[u8], b: &[u8], dtype: DType) -> bool {
    let nan = |v: &[u8]| match *v {
        [a, b, c, d] => f32::from_ne_bytes([a, b, c, d]).is_nan(),
        [a, b] if dtype == DType::F16 => half::f16::from_ne_bytes([a, b]).is_nan(),
        [a, b] => half::bf16::from_ne_bytes([a, b]).is_nan(),
        _ => false,
    };
    let size = dtype.size();
    a.len() == b.len() && a.chunks(size).zip(b.chunks(size)).all(|(a, b)| a == b || nan(a) && nan(b))
}

proptest! {
    #![proptest_config(properties(600, 9_600))]

    #[test]
    fn kernels_give_the_bits_of_the_reference_at_every_level(case in case()) {
        let Case { info, data, params, table, row, level } = case;
        let whole = Pixels { info, rows: 0..info.height, data: &data };
        let expected = reference::resample(&whole, &params, &table, &row).unwrap();
        // One worker makes many rows: old values in its scratch must not matter.
        let mut resampler = Resampler::with_level(level);
        let mut out = vec![0xa5; row.len_bytes()];
        for _ in 0..2 {
            resampler.run(&whole, &params, &table, &row, &mut out).unwrap();
            prop_assert!(same(&out, &expected, row.dtype), "{info:?} {params:?} {row:?} {level:?}");
        }
        // The rows that the vertical axis reads are enough.
        if !info.planar {
            let rows = params.y.reads(row.height, params.filter);
            let pitch = info.width as usize * info.channels as usize * info.dtype.size();
            let part = &data[rows.start as usize * pitch..rows.end as usize * pitch];
            resampler.run(&Pixels { info, rows, data: part }, &params, &table, &row, &mut out).unwrap();
            prop_assert!(same(&out, &expected, row.dtype), "with the rows it reads: {info:?} {params:?} {row:?}");
        }
        // Slices that are not aligned, in and out, as they come from the middle of a file.
        let (mut moved_in, mut moved_out) = (vec![0], vec![0; out.len() + 1]);
        moved_in.extend_from_slice(&data);
        resampler.run(&Pixels { data: &moved_in[1..], ..whole }, &params, &table, &row, &mut moved_out[1..]).unwrap();
        prop_assert!(same(&moved_out[1..], &expected, row.dtype));
    }

    #[test]
    fn planes_give_the_bits_of_the_reference_at_every_level(case in case(), subsampled: u16, ycbcr: bool) {
        let Case { info, params, table, row, level, .. } = case;
        let filter = if params.filter.is_nearest() { Filter::Triangle } else { params.filter };
        let params = ResampleParams { filter, ..params };
        // As many planes as channels, each with steps of its own; colour is not wider than brightness.
        let count = if row.channels == 3 && info.channels > 1 { 3 } else { 1 };
        prop_assume!(channel_source(count, row.channels, 0).is_some());
        let info = ImageInfo { channels: count as u8, dtype: DType::U8, planar: false, ..info };
        let step = |n: u32| 1u32 << (u32::from(subsampled) >> (2 * n) & 3).min(2);
        let first = [step(0), step(1)];
        let mut at = 5;
        let planes: Vec<Plane> = (0..count).map(|n| {
            let step = if n == 0 { first } else { [step(2 * n), first[1] * step(2 * n + 1)] };
            let (rows, cols) = (0..info.height.div_ceil(step[0]), 0..info.width.div_ceil(step[1]));
            let pitch = cols.len() + n as usize;
            at += pitch * rows.len();
            Plane { at: at - pitch * rows.len(), pitch, step, rows, cols }
        }).collect();
        let mut draws = SampleRng::new(subsampled.into(), 0, 0).op(0);
        let data: Vec<u8> = (0..at).map(|_| draws.bits() as u8).collect();
        let whole = Planes { info, planes: &planes, ycbcr, data: &data };
        let expected = reference::resample_planes(&whole, &params, &table, &row).unwrap();
        let mut resampler = Resampler::with_level(level);
        let mut out = vec![0xa5; row.len_bytes() + 1];
        for start in [0, 1] {
            let out = &mut out[start..][..row.len_bytes()];
            resampler.run_planes(&whole, &params, &table, &row, out).unwrap();
            prop_assert!(same(out, &expected, row.dtype), "{whole:?} {params:?} {row:?} {level:?}");
        }
        // A plane that lacks what is read is refused, and nothing is written.
        let mut less = planes.clone();
        let reads = params.y.coarser(less[0].step[0]).reads(row.height, params.filter);
        less[0].rows = 0..reads.end - 1;
        let before = out.clone();
        let short = Planes { planes: &less, ..whole };
        prop_assert!(resampler.run_planes(&short, &params, &table, &row, &mut out[..row.len_bytes()]).is_err());
        prop_assert_eq!(out, before);
    }

    #[test]
    fn flipping_twice_changes_nothing(seed: u64, height in 1u32..40, width in 1u32..40) {
        let info = ImageInfo::interleaved_u8(height, width, 3);
        let data: Vec<u8> = (0..info.len_bytes()).map(|i| (i ^ seed) as u8).collect();
        let rng = SampleRng::new(seed, 0, 0);
        let crop = Transform::new().center_crop(24);
        let twice = crop.clone().horizontal_flip(1.0).vertical_flip(1.0).horizontal_flip(1.0).vertical_flip(1.0);
        let plain = transformed(&crop, &image(3), info, &data, rng);
        prop_assert_eq!(&transformed(&twice, &image(3), info, &data, rng), &plain);
        // Flipped once, each row is reversed.
        let once = transformed(&crop.horizontal_flip(1.0), &image(3), info, &data, rng);
        prop_assert!(once.chunks(24).zip(plain.chunks(24)).all(|(a, b)| a.iter().eq(b.iter().rev())));
    }

    #[test]
    fn every_preset_makes_rows_of_any_image_large_enough(seed: u64, height in 256u32..400, width in 256u32..400, gray: bool) {
        let info = ImageInfo::interleaved_u8(height, width, if gray { 1 } else { 3 });
        for name in PRESETS.iter().filter(|name| !matches!(**name, "cifar-val" | "none")) {
            let lowered = Transform::preset(name).unwrap().lower(&image(3), DType::F32, Layout::Nchw).unwrap();
            let Drawn { params, spec, .. } = lowered.draw(&info, SampleRng::new(seed, 1, 2)).unwrap();
            for (axis, size, len) in [(params.y, height, spec.height), (params.x, width, spec.width)] {
                let reads = axis.reads(len, params.filter);
                prop_assert!(reads.start < reads.end && reads.end <= size && axis.from <= axis.to && axis.to <= len, "{name}: {axis:?}");
            }
        }
    }
}

#[test]
fn contradicting_arguments_are_an_error_and_leave_the_row_alone() {
    let info = ImageInfo::interleaved_u8(8, 8, 3);
    let data = vec![1; 192];
    let src = Pixels { info, rows: 0..8, data: &data };
    let axis = Axis { start: 0.0, step: 1.0, low: 0, high: 8, from: 0, to: 8, flip: 0 };
    let params = ResampleParams { y: axis, x: axis, cutout: [0; 4], filter: Filter::Triangle };
    let table = ChannelTable { scale: vec![1.0; 3], bias: vec![0.0; 3], fill: vec![0.0; 3], cutout: vec![0.0; 3] };
    let row = RowSpec { height: 8, width: 8, channels: 3, dtype: DType::U8, layout: Layout::Nhwc };
    let mut out = vec![9; 192];
    let mut refused = |src: &Pixels<'_>, params: &ResampleParams, table: &ChannelTable, row: &RowSpec| {
        let error = Resampler::new().run(src, params, table, row, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(out.iter().all(|&v| v == 9));
    };
    let y = |y: Axis| ResampleParams { y, ..params };
    refused(&Pixels { data: &data[1..], ..src.clone() }, &params, &table, &row);
    refused(&Pixels { rows: 0..9, ..src.clone() }, &params, &table, &row);
    refused(&Pixels { rows: 1..8, data: &data[24..], ..src.clone() }, &params, &table, &row);
    refused(&src, &y(Axis { high: 9, ..axis }), &table, &row);
    refused(&src, &y(Axis { low: 8, ..axis }), &table, &row);
    refused(&src, &y(Axis { to: 9, ..axis }), &table, &row);
    refused(&src, &y(Axis { step: 0.0, ..axis }), &table, &row);
    refused(&src, &y(Axis { start: f32::NAN, ..axis }), &table, &row);
    refused(&src, &params, &ChannelTable { scale: vec![1.0], ..table.clone() }, &row);
    refused(&src, &params, &table, &RowSpec { channels: 5, ..row });
    refused(&src, &params, &table, &RowSpec { dtype: DType::I64, ..row });
    refused(&src, &params, &table, &RowSpec { width: 9, ..row });
    assert_eq!(channel_source(3, 1, 0), None);
}

// ---- torchvision ------------------------------------------------------------------------------------------------

/// How far from torch's value ours may lie: twice what its own f32 result differs from its f64 one, and a few units in
/// the last place of the largest value. Both round window positions to f32, in different places.
fn bound(case: &Value, largest: f64) -> f64 {
    2.0 * case["f32_error"].as_f64().unwrap() + 1e-6 * largest
}

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/transforms.json")).unwrap()
}

/// The computed picture of `golden/generate.py`, interleaved.
fn picture(source: &Value) -> (ImageInfo, Vec<u8>) {
    let n = |key: &str| source[key].as_u64().unwrap();
    let (height, width, channels) = (n("height"), n("width"), n("channels"));
    let kind = source["kind"].as_str().unwrap();
    let dtype = match kind {
        "u16" => DType::U16,
        "f32" => DType::F32,
        _ => DType::U8,
    };
    let info = ImageInfo { height: height as u32, width: width as u32, channels: channels as u8, dtype, planar: false };
    let mut data = Vec::new();
    for (y, x, c) in (0..height).flat_map(|y| (0..width).flat_map(move |x| (0..channels).map(move |c| (y, x, c)))) {
        let shared = (y * x * (c + 2)) / 5;
        let byte = ((11 + 29 * c + 3 * y * y + 7 * x * (c + 1) + shared) % 256) as u8;
        match kind {
            "u16" => {
                let value = (1009 + 5003 * c + 311 * y * y + 1021 * x * (c + 1) + shared) % 65536;
                data.extend_from_slice(&(value as u16).to_ne_bytes());
            }
            "f32" => data.extend_from_slice(&f32::from(byte).to_ne_bytes()),
            "soft" => data.push(60 + byte / 2),
            _ => data.push(byte),
        }
    }
    (info, data)
}

/// What an op of the file says of its filter.
fn interpolation(op: &Value) -> Option<Interpolation> {
    Some(match op["interpolation"].as_str()? {
        "nearest" => Interpolation::Nearest,
        "nearest-exact" => Interpolation::NearestExact,
        "bilinear" => Interpolation::Bilinear,
        "bicubic" => Interpolation::Bicubic,
        "lanczos" => Interpolation::Lanczos,
        "box" => Interpolation::Box,
        other => panic!("{other}"),
    })
}

fn filter_of(op: &Value) -> Option<Filter> {
    Some(match (interpolation(op)?, op["antialias"].as_bool().unwrap_or(true)) {
        (Interpolation::Nearest, _) => Filter::Nearest,
        (Interpolation::NearestExact, _) => Filter::NearestExact,
        (Interpolation::Bilinear, false) => Filter::Linear,
        (Interpolation::Bicubic, true) => Filter::Cubic,
        (Interpolation::Bicubic, false) => Filter::CubicFour,
        (Interpolation::Lanczos, _) => Filter::Lanczos,
        (Interpolation::Box, _) => Filter::Box,
        _ => Filter::Triangle,
    })
}

/// The steps as a [`Transform`], when it has words for all of them.
fn as_transform(case: &Value) -> Option<Transform> {
    let unit = case["range"] == "0..1";
    let mut transform = if unit { Transform::new().to_float() } else { Transform::new() };
    for op in case["ops"].as_array().unwrap() {
        let n = |key: &str| op[key].as_u64().unwrap() as u32;
        let list = |key: &str| -> Vec<f32> {
            op[key].as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
        };
        transform = match op["op"].as_str().unwrap() {
            "resize_shorter" => transform.resize_shorter(n("size")),
            "resize" => transform.resize_exact(n("height"), n("width")),
            "center_crop" => transform.push(Op::CenterCrop { size: [n("height"), n("width")] }),
            "horizontal_flip" => transform.horizontal_flip(1.0),
            "vertical_flip" => transform.vertical_flip(1.0),
            "normalize" if unit => transform.normalize(list("mean"), list("std")),
            _ => return None,
        };
        if let Some(kind) = interpolation(op) {
            transform = transform.interpolation(kind).antialias(op["antialias"].as_bool().unwrap_or(true));
        }
    }
    Some(transform)
}

/// The steps as parameters, written down from their meaning.
fn by_hand(case: &Value, info: &ImageInfo) -> (ResampleParams, ChannelTable) {
    let channels = info.channels as usize;
    let whole = |len: u32| Axis { start: 0.0, step: 1.0, low: 0, high: len, from: 0, to: len, flip: 0 };
    let (mut y, mut x) = (whole(info.height), whole(info.width));
    let mut filter = Filter::Triangle;
    let white = if info.dtype == DType::U16 { 65535.0 } else { 255.0 };
    let unit = if case["range"] == "0..1" { 1.0 / white } else { 1.0 };
    let mut table = ChannelTable {
        scale: vec![unit; channels],
        bias: vec![0.0; channels],
        fill: vec![0.0; channels],
        cutout: vec![0.0; channels],
    };
    for op in case["ops"].as_array().unwrap() {
        let n = |key: &str| op[key].as_i64().unwrap() as i32;
        let of = |key: &str, c: usize| op[key].get(c).unwrap_or(&op[key]).as_f64().unwrap() as f32;
        // Output o was at `offset + o` before.
        let cut = |a: Axis, offset: i32, len: i32| Axis {
            start: a.start + offset as f32 * a.step,
            from: (a.from as i32 - offset).clamp(0, len) as u32,
            to: (a.to as i32 - offset).clamp(0, len) as u32,
            ..a
        };
        let scaled = |a: Axis, len: i32| {
            let have = a.to;
            let low = a.start as u32;
            Axis { step: have as f32 / len as f32, low, high: low + have, from: 0, to: len as u32, ..a }
        };
        match op["op"].as_str().unwrap() {
            "crop" => (y, x) = (cut(y, n("top"), n("height")), cut(x, n("left"), n("width"))),
            "center_crop" => {
                let middle = |have: u32, want: i32| (have as i32 - want) / 2;
                (y, x) = (cut(y, middle(y.to, n("height")), n("height")), cut(x, middle(x.to, n("width")), n("width")));
            }
            "resize" => (y, x) = (scaled(y, n("height")), scaled(x, n("width"))),
            "resize_shorter" => {
                let (h, w, size) = (y.to as i32, x.to as i32, n("size"));
                let (h, w) = if w <= h { (size * h / w, size) } else { (size, size * w / h) };
                (y, x) = (scaled(y, h), scaled(x, w));
            }
            "resized_crop" => {
                (y, x) = (cut(y, n("top"), n("height")), cut(x, n("left"), n("width")));
                (y, x) = (scaled(y, n("out_height")), scaled(x, n("out_width")));
            }
            "pad" => {
                y = cut(y, -n("top"), n("top") + info.height as i32 + n("bottom"));
                x = cut(x, -n("left"), n("left") + info.width as i32 + n("right"));
                table.fill = (0..channels).map(|c| of("fill", c)).collect();
            }
            "horizontal_flip" => x.flip ^= 1,
            "vertical_flip" => y.flip ^= 1,
            "normalize" => {
                for c in 0..channels {
                    let (mean, std) = (of("mean", c), of("std", c));
                    (table.scale[c], table.bias[c]) = (unit / std, -mean / std);
                    table.fill[c] = (table.fill[c] - mean) / std;
                }
            }
            other => panic!("{other}"),
        }
        filter = filter_of(op).unwrap_or(filter);
    }
    (ResampleParams { y, x, cutout: [0; 4], filter }, table)
}

fn compare(case: &Value, row: &RowSpec, ours: &[f32], how: &str) {
    let name = case["name"].as_str().unwrap();
    for (key, len) in [("channels", row.channels), ("height", row.height), ("width", row.width)] {
        assert_eq!(case[key], len, "{name} {how}: {key}");
    }
    let largest = ours.iter().fold(1.0f64, |most, v| most.max(f64::from(v.abs())));
    let bound = bound(case, largest);
    let expected = case["at"].as_array().unwrap().iter().zip(case["values"].as_array().unwrap());
    for (at, value) in expected {
        let (at, value) = (at.as_u64().unwrap() as usize, value.as_f64().unwrap());
        let away = (f64::from(ours[at]) - value).abs();
        assert!(
            away <= bound,
            "{name} {how}: {} where torchvision has {value} at {at}, {away:e} > {bound:e}",
            ours[at]
        );
    }
    let plane = (row.height * row.width) as usize;
    for (plane, mean) in ours.chunks(plane).zip(case["means"].as_array().unwrap()) {
        let ours = plane.iter().copied().map(f64::from).sum::<f64>() / plane.len() as f64;
        assert!(
            (ours - mean.as_f64().unwrap()).abs() <= bound,
            "{name} {how}: mean {ours} where torchvision has {mean}"
        );
    }
}

#[test]
fn transforms_give_torchvisions_values() {
    let golden = golden();
    let mut compared = 0;
    let lists = [&golden["cases"], &golden["filter_cases"]];
    for case in lists.into_iter().flat_map(|list| list.as_array().unwrap()) {
        let Some(transform) = as_transform(case) else { continue };
        let (info, data) = picture(&case["source"]);
        let field = sized(info.channels, info.height, info.width);
        let row = *transform.lower(&field, DType::F32, Layout::Nchw).unwrap().row();
        let ours = transformed(&transform, &field, info, &data, SampleRng::new(1, 2, 3));
        compare(case, &row, &ours, "as a transform");
        compared += 1;
    }
    assert!(compared > 90, "{compared} cases have a transform");
}

#[test]
fn a_resize_keeps_bytes_between_its_passes_until_to_float() {
    let resize = |from: Transform| from.resize_exact(8, 8).interpolation(Interpolation::Bicubic);
    let kept = |from: Transform| from.resize_keep_ratio(8, 8, 0.0).interpolation(Interpolation::Bicubic).center_crop(8);
    for (transform, filter) in [
        (resize(Transform::new()), Filter::Cubic),
        (resize(Transform::new()).to_float(), Filter::Cubic),
        (resize(Transform::new().to_float()), Filter::CubicOfFloats),
        (resize(Transform::new().to_float()).antialias(false), Filter::CubicFourOfFloats),
        (Transform::new().to_float().resize_exact(8, 8), Filter::Triangle),
        (kept(Transform::new()), Filter::Cubic),
        (kept(Transform::new().to_float()), Filter::CubicOfFloats),
    ] {
        let lowered = transform.lower(&image(3), DType::F32, Layout::Nchw).unwrap();
        let drawn = lowered.draw(&ImageInfo::interleaved_u8(20, 30, 3), SampleRng::new(1, 2, 3)).unwrap();
        assert_eq!(drawn.params.filter, filter, "{transform}");
    }
}

#[test]
fn parameters_mean_what_torchvision_does() {
    let golden = golden();
    let lists = [&golden["cases"], &golden["mask_cases"], &golden["filter_cases"]];
    for case in lists.into_iter().flat_map(|list| list.as_array().unwrap()) {
        let is_offset_rounded = case["ops"].as_array().unwrap().iter().any(|op| op["op"] == "center_crop");
        if is_offset_rounded && as_transform(case).is_some() {
            continue; // said by the transform, with its rounding
        }
        let (info, data) = picture(&case["source"]);
        let (params, table) = by_hand(case, &info);
        let n = |key: &str| case[key].as_u64().unwrap() as u32;
        let (height, width, channels) = (n("height"), n("width"), n("channels"));
        let row = RowSpec { height, width, channels, dtype: DType::F32, layout: Layout::Nchw };
        let mut out = vec![0; row.len_bytes()];
        let src = Pixels { info, rows: 0..info.height, data: &data };
        Resampler::new().run(&src, &params, &table, &row, &mut out).unwrap();
        compare(case, &row, &floats(&out), "by hand");
    }
}

#[test]
fn filters_give_pillows_levels() {
    let golden = golden();
    for case in golden["pillow_cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let (info, data) = picture(&case["source"]);
        let (params, table) = by_hand(case, &info);
        let n = |key: &str| case[key].as_u64().unwrap() as u32;
        let (height, width, channels) = (n("height"), n("width"), n("channels"));
        let row = RowSpec { height, width, channels, dtype: DType::U8, layout: Layout::Nchw };
        let mut out = vec![0; row.len_bytes()];
        let src = Pixels { info, rows: 0..info.height, data: &data };
        Resampler::new().run(&src, &params, &table, &row, &mut out).unwrap();
        for (at, value) in case["at"].as_array().unwrap().iter().zip(case["values"].as_array().unwrap()) {
            let (at, value) = (at.as_u64().unwrap() as usize, value.as_i64().unwrap());
            // Pillow rounds once more, between its passes.
            assert!((i64::from(out[at]) - value).abs() <= 1, "{name}: {} where Pillow has {value} at {at}", out[at]);
        }
        for (plane, mean) in out.chunks((height * width) as usize).zip(case["means"].as_array().unwrap()) {
            let ours = plane.iter().copied().map(f64::from).sum::<f64>() / plane.len() as f64;
            // And halves up: a mean of two pixels is one as often as not.
            assert!((ours - mean.as_f64().unwrap()).abs() < 0.75, "{name}: mean {ours} where Pillow has {mean}");
        }
    }
}

// ---- what a transform means -------------------------------------------------------------------------------------

fn crop(size: [u32; 2], scale: (f64, f64), ratio: (f64, f64)) -> Op {
    Op::RandomResizedCrop { size, scale, ratio, interpolation: Interpolations::default(), antialias: true }
}

#[test]
fn what_cannot_be_folded_is_refused_by_name() {
    let t = Transform::new;
    let noise = |t: Transform| t.custom("noise", |_, _| Ok(()));
    for (transform, op, hint) in [
        (t().resize_shorter(64).resize_exact(32, 32), "resize_exact comes after resize_shorter", "keep one of them"),
        (t().random_resized_crop(64).resize_shorter(32), "resize_shorter comes after random_resized_crop", "keep one"),
        (t().resize_exact(9, 9).random_resized_crop(4), "random_resized_crop comes after resize_exact", "keep one"),
        (
            t().random_crop(8, 2).resize_exact(4, 4),
            "resize_exact comes after random_crop with padding",
            "put resize_exact first",
        ),
        (t().center_crop(8).cutout(2).random_crop(4, 0), "random_crop comes after cutout", "put random_crop before it"),
        (t().center_crop(8).cutout(2).cutout(2), "cutout comes twice", "custom"),
        (t().center_crop(8).normalize([0.5], [0.5]).normalize([0.5], [0.5]), "normalize comes twice", "keep one"),
        (
            t().center_crop(8).normalize([0.5], [0.5]).center_crop(9),
            "center_crop and center_crop lie on both sides",
            "normalize",
        ),
        (
            noise(t().center_crop(8).normalize([0.5], [0.5])).horizontal_flip(0.5),
            "noise comes between normalize and another step",
            "put noise before normalize",
        ),
        (t(), "no fixed size: the sizes of the images are not known", "add resize_exact"),
        (t().resize_shorter(64), "no fixed size after resize_shorter", "center_crop"),
        (t().center_crop(0), "center_crop has size 0x0", "use 1 to"),
        (t().resize_exact(1, 99_999), "resize_exact has size 1x99999", "use 1 to"),
        (
            t().resize_exact(8, 8).interpolation(Interpolation::Lanczos).antialias(false),
            "resize_exact has lanczos without antialias",
            "bicubic",
        ),
        (
            t().random_resized_crop(8)
                .antialias(false)
                .interpolation_among([Interpolation::Bicubic, Interpolation::Box]),
            "random_resized_crop has box without antialias",
            "leave antialias",
        ),
        (t().resize_exact(8, 8).interpolation_among([]), "resize_exact has no interpolation", "name one"),
        (
            t().resize_exact(8, 8).horizontal_flip(0.5).interpolation(Interpolation::Bicubic),
            "interpolation follows a step that does not resize",
            "directly after resize_shorter",
        ),
        (t().antialias(false).resize_exact(8, 8), "antialias follows a step", "directly after"),
        (t().center_crop(8).horizontal_flip(1.5), "horizontal_flip has probability 1.5", "0 to 1"),
        (
            t().center_crop(8).normalize([0.5; 2], [0.5; 2]),
            "normalize has 2 means and 2 deviations for 3 channels",
            "one for all",
        ),
        (t().center_crop(8).normalize([0.5], [0.0]), "normalize has mean [0.5] and std [0.0]", "above 0"),
        (
            t().push(crop([8, 8], (0.5, 0.1), (1.0, 1.0))),
            "random_resized_crop has scale 0.5 to 0.1",
            "smaller one first",
        ),
    ] {
        let error = transform.lower(&image(3), DType::F32, Layout::Nchw).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config, "{text}");
        assert!(text.contains(op) && text.contains(hint), "{text:?} has not {op:?} and {hint:?}");
    }
    let bytes = |t: Transform| t.lower(&image(3), DType::U8, Layout::Nchw).unwrap_err().to_string();
    assert!(
        bytes(t().center_crop(8).normalize([0.5], [0.5]))
            .contains("normalize gives fractions, which u8 rows can't hold")
    );
    assert!(bytes(t().center_crop(8).to_float()).contains("to_float"));
    let five = t().center_crop(8).gray_to_rgb().lower(&image(5), DType::F32, Layout::Nchw).unwrap_err();
    assert!(five.to_string().contains("gray_to_rgb on images of 5 channels"), "{five}");
    let large = t().random_crop(40, 3).lower(&sized(3, 32, 32), DType::F32, Layout::Nchw).unwrap_err();
    assert!(large.to_string().contains("random_crop takes 40x40 out of 32x32 with padding 3"), "{large}");
    assert!(t().lower(&FieldKind::Label, DType::F32, Layout::Nchw).is_err());
    assert!(t().center_crop(8).lower(&image(3), DType::I64, Layout::Nchw).is_err());
    let unknown = Transform::preset("imagenet").unwrap_err().to_string();
    assert!(unknown.contains("imagenet-train") && unknown.contains("\"imagenet\""), "{unknown}");
}

#[test]
fn an_image_that_does_not_fit_is_a_bad_sample_with_its_size() {
    let rng = SampleRng::new(1, 2, 3);
    let refused = |t: Transform, info: &ImageInfo| {
        let error = t.lower(&image(3), DType::F32, Layout::Nchw).unwrap().params(info, rng).unwrap_err();
        assert!(error.clone().at_record(7).is_sample(), "{error}");
        error.to_string()
    };
    let small = ImageInfo::interleaved_u8(20, 31, 3);
    let text = refused(Transform::new().random_crop(32, 4), &small);
    assert!(text.contains("20x31") && text.contains("32x32 with padding 4"), "{text}");
    let text = refused(Transform::new().center_crop(24).resize_exact(8, 8), &small);
    assert!(text.contains("20x31 is smaller than the crop before resize_exact"), "{text}");
    let five = ImageInfo { channels: 5, ..small };
    assert!(refused(Transform::new().center_crop(8), &five).contains("5 channels where rows have 3"));
    refused(Transform::new().center_crop(8), &ImageInfo { height: 0, ..small });
    let other = Transform::new().lower(&sized(3, 32, 32), DType::F32, Layout::Nchw).unwrap();
    assert!(other.params(&small, rng).unwrap_err().to_string().contains("image of 20x31 makes a row of 20x31"));
}

#[test]
fn values_are_raw_unit_or_normalised_as_the_steps_say() {
    let rng = SampleRng::new(0, 0, 0);
    let one = |t: Transform, dtype: DType, data: &[u8]| {
        let info = ImageInfo { height: 1, width: 1, channels: 1, dtype, planar: false };
        transformed(&t, &sized(1, 1, 1), info, data, rng)
    };
    let t = Transform::new;
    let wide = 65_535u16.to_ne_bytes();
    let real = 0.25f32.to_ne_bytes();
    // Scale and mean are folded to one product and one sum, so the last bit is not that of the written formula.
    let check = |t: Transform, dtype: DType, data: &[u8], first: &[f32]| {
        let values = one(t.clone(), dtype, data);
        assert!(values.iter().zip(first).all(|(a, b)| (a - b).abs() < 1e-6), "{t} makes {values:?}, not {first:?}");
    };
    check(t(), DType::U8, &[200], &[200.0]);
    check(t(), DType::U16, &wide, &[65_535.0]);
    check(t().to_float(), DType::U8, &[255], &[1.0]);
    check(t().to_float(), DType::U16, &wide, &[1.0]);
    check(t().to_float(), DType::F32, &real, &[0.25]);
    check(t().normalize([0.5], [0.25]), DType::F32, &real, &[-1.0]);
    check(t().normalize([0.5], [0.25]), DType::U8, &[255], &[2.0]);
    check(t().gray_to_rgb().normalize([0.0, 0.5, 1.0], [1.0; 3]), DType::U8, &[255], &[1.0, 0.5, 0.0]);
    check(t().normalize([0.5], [0.5]).gray_to_rgb(), DType::U8, &[0], &[-1.0; 3]);
    // Padding is black before the normalising; a cutout is blank at its place in the list.
    check(t().center_crop(3).normalize([0.5], [0.5]), DType::U8, &[255], &[-1.0]);
    check(t().normalize([0.5], [0.5]).center_crop(3), DType::U8, &[255], &[0.0]);
    check(t().cutout(9).normalize([0.5], [0.5]), DType::U8, &[255], &[-1.0]);
    check(t().normalize([0.5], [0.5]).cutout(9), DType::U8, &[255], &[0.0]);
    // u8 rows hold 0..255 whatever the pixels were.
    for (dtype, data) in [(DType::U8, &[255][..]), (DType::U16, &wide), (DType::F32, &1.0f32.to_ne_bytes())] {
        let info = ImageInfo { height: 1, width: 1, channels: 1, dtype, planar: false };
        let lowered = t().lower(&sized(1, 1, 1), DType::U8, Layout::Nhwc).unwrap();
        let mut out = [0];
        let src = Pixels { info, rows: 0..1, data };
        let params = lowered.params(&info, rng).unwrap();
        Resampler::new().run(&src, &params, lowered.table(dtype), lowered.row(), &mut out).unwrap();
        assert_eq!(out, [255], "{dtype}");
    }
}

#[test]
fn draws_belong_to_the_step_and_the_sample() {
    let info = ImageInfo::interleaved_u8(375, 500, 3);
    let lower = |t: Transform| t.lower(&image(3), DType::F32, Layout::Nchw).unwrap();
    let short = lower(Transform::new().random_resized_crop(64).horizontal_flip(0.5));
    let long = lower(Transform::new().random_resized_crop(64).horizontal_flip(0.5).to_float().cutout(8));
    let (mut flipped, mut windows) = (0, std::collections::HashSet::new());
    for record in 0..1000 {
        let rng = SampleRng::new(42, 3, record);
        let params = short.params(&info, rng).unwrap();
        assert_eq!(params, short.params(&info, rng).unwrap());
        let more = long.params(&info, rng).unwrap();
        assert_eq!((more.y, more.x), (params.y, params.x));
        flipped += params.x.flip;
        windows.insert((params.y.low, params.y.high, params.x.low, params.x.high));
    }
    assert!((430..570).contains(&flipped), "{flipped} of 1000 are flipped");
    assert!(windows.len() > 950);
}

#[test]
fn one_of_several_interpolations_is_drawn_and_the_window_stays() {
    let info = ImageInfo::interleaved_u8(375, 500, 3);
    let kinds = [Interpolation::Bilinear, Interpolation::Bicubic, Interpolation::Lanczos];
    let crop = || Transform::new().random_resized_crop(64);
    let lower = |t: Transform| t.lower(&image(3), DType::F32, Layout::Nchw).unwrap();
    let (one, several) =
        (lower(crop().interpolation(Interpolation::Bicubic)), lower(crop().interpolation_among(kinds)));
    let mask = crop().interpolation_among(kinds).lower_mask(&image(3), Layout::Nchw).unwrap();
    let mut drawn = std::collections::HashMap::new();
    for record in 0..3000 {
        let rng = SampleRng::new(42, 3, record);
        let plain = lower_params(&crop(), &info, rng);
        let (one, several, mask) =
            (one.params(&info, rng).unwrap(), several.params(&info, rng).unwrap(), mask.params(&info, rng).unwrap());
        assert_eq!((plain.y, plain.x, plain.filter), (one.y, one.x, Filter::Triangle));
        assert_eq!((plain.y, plain.x), (several.y, several.x));
        assert_eq!((plain.y, plain.x), (mask.y, mask.x));
        assert_eq!((one.filter, mask.filter), (Filter::Cubic, Filter::NearestExact));
        *drawn.entry(several.filter).or_insert(0) += 1;
    }
    assert_eq!(drawn.len(), 3);
    assert!(drawn.values().all(|n| (900..1100).contains(n)), "{drawn:?}");
}

fn lower_params(transform: &Transform, info: &ImageInfo, rng: SampleRng) -> ResampleParams {
    transform.lower(&image(3), DType::F32, Layout::Nchw).unwrap().params(info, rng).unwrap()
}

#[test]
fn random_crops_reach_every_place_equally_often() {
    let info = ImageInfo { planar: true, ..ImageInfo::interleaved_u8(32, 32, 3) };
    let lowered = Transform::preset("cifar-train").unwrap().lower(&sized(3, 32, 32), DType::F32, Layout::Nchw).unwrap();
    let mut places = [0u32; 81];
    for record in 0..81_000 {
        let params = lowered.params(&info, SampleRng::new(5, 0, record)).unwrap();
        // Left of the image as it was before the flip.
        places[((params.y.start + 4.0) * 9.0 + params.x.start + 4.0) as usize] += 1;
    }
    let chi: f64 = places.iter().map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0).sum();
    assert!(chi < 124.8, "chi-square {chi} with 80 degrees of freedom; 99.9 % lie below 124.8");
}

#[test]
fn a_cutout_is_a_blank_square_cut_off_at_the_edges_and_flips_with_the_image() {
    let info = ImageInfo::interleaved_u8(32, 32, 1);
    let data = vec![255; 1024];
    let field = sized(1, 32, 32);
    let cut = Transform::new().to_float().cutout(8);
    let mut sizes = std::collections::HashSet::new();
    for record in 0..500 {
        let rng = SampleRng::new(8, 0, record);
        let plain = transformed(&cut, &field, info, &data, rng);
        let blank = plain.iter().filter(|v| **v == 0.0).count();
        let rows = plain.chunks(32).filter(|row| row.contains(&0.0)).count();
        assert!(blank > 0 && blank % rows == 0 && rows <= 8 && blank / rows <= 8);
        sizes.insert(blank);
        let flipped = transformed(&cut.clone().horizontal_flip(1.0), &field, info, &data, rng);
        assert!(plain.chunks(32).zip(flipped.chunks(32)).all(|(a, b)| a.iter().eq(b.iter().rev())));
    }
    assert!(sizes.contains(&64) && sizes.contains(&32) && sizes.len() > 10);
}

#[test]
fn a_crop_may_come_before_the_resize_and_reads_nothing_outside() {
    let info = ImageInfo::interleaved_u8(40, 60, 1);
    // White with a black middle of 20x20.
    let inside = |at: usize| (10..30).contains(&(at / 60)) && (20..40).contains(&(at % 60));
    let data: Vec<u8> = (0..2400).map(|at| if inside(at) { 0 } else { 255 }).collect();
    let row = transformed(
        &Transform::new().center_crop(20).resize_exact(7, 7),
        &image(1),
        info,
        &data,
        SampleRng::new(0, 0, 0),
    );
    assert!(row.iter().all(|&v| v == 0.0), "{row:?}");
}

#[test]
fn a_custom_step_sees_the_finished_row_and_its_own_draws() {
    let info = ImageInfo::interleaved_u8(4, 4, 3);
    let data = vec![100; 48];
    let transform = Transform::new().center_crop(4).custom("add", |row, mut draws| {
        assert_eq!((row.spec().height, row.spec().channels), (4, 3));
        assert!(row.values_mut::<u8>().is_none());
        let add = draws.unit();
        row.values_mut::<f32>().unwrap().iter_mut().for_each(|v| *v += add);
        Ok(())
    });
    let lowered = transform.lower(&image(3), DType::F32, Layout::Nchw).unwrap();
    assert!(lowered.needs_cpu());
    let run = |record| transformed(&transform, &image(3), info, &data, SampleRng::new(1, 0, record));
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(run(1).iter().all(|v| (100.0..101.0).contains(v)));
    assert!(format!("{transform:?} {transform}").contains("center_crop > add"));
}

#[test]
fn a_custom_step_before_others_sees_the_picture_that_they_go_on_with() {
    let invert =
        |t: Transform| t.custom("invert", |picture, _| picture.map_pixels(|rgb: [f32; 3]| rgb.map(|v| 1.0 - v)));
    let crop = || Transform::new().random_resized_crop(12);
    let rest = |t: Transform| t.horizontal_flip(0.5).normalize([0.4, 0.5, 0.6], [0.2; 3]);
    let info = ImageInfo::interleaved_u8(30, 40, 3);
    let data: Vec<u8> = (0..30 * 40 * 3).map(|i| (i * 7 % 251) as u8).collect();
    for (dtype, layout) in [(DType::F32, Layout::Nchw), (DType::F16, Layout::Nhwc)] {
        for record in 0..20 {
            let row = |t: &Transform| {
                let lowered = t.lower(&image(3), dtype, layout).unwrap();
                // Steps of ours are a GPU's, too.
                assert_eq!(lowered.needs_cpu(), t.ops().iter().any(|op| matches!(op, Op::Custom(_))));
                let drawn = lowered.draw(&info, SampleRng::new(1, 0, record)).unwrap();
                let mut out = vec![0; lowered.row().len_bytes()];
                let src = Pixels { info, rows: 0..30, data: &data };
                RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut out).unwrap();
                out
            };
            // The very steps of ours, of bytes and of 0 to 1.
            assert!(row(&rest(invert(crop()))) == row(&rest(crop().random_invert(1.0))), "{record}");
            let [own, ours] = [invert(crop().to_float()), crop().to_float().random_invert(1.0)].map(|t| row(&rest(t)));
            assert!(own == ours, "{record}");
            // Where a picture is asked for, what does not fold may follow.
            let small = |t: Transform| t.resize_exact(5, 6).random_erasing(1.0);
            assert!(row(&small(invert(crop()))) == row(&small(crop().random_invert(1.0))), "{record}");
        }
    }
    // The number of channels is known ahead only to whoever wrote the step.
    let gray = Transform::new().center_crop(4).custom("gray", |row, _| row.map_pixels(|[v]: [f32; 1]| [v]));
    let lowered = gray.lower(&image(3), DType::U8, Layout::Nchw).unwrap();
    let drawn = lowered.draw(&info, SampleRng::new(1, 0, 1)).unwrap();
    let src = Pixels { info, rows: 0..30, data: &data };
    let error = RowMaker::new().run(&lowered, &drawn, Decoded::Pixels(&src), &mut [0; 48]).unwrap_err().to_string();
    assert!(error.contains("takes pixels of 1 channels, and there are 3"), "{error}");
}

#[test]
fn a_json_file_holds_a_transform() {
    for name in PRESETS {
        let preset = Transform::preset(name).unwrap();
        let json = serde_json::to_string(&preset).unwrap();
        assert_eq!(serde_json::from_str::<Transform>(&json).unwrap(), preset, "{json}");
    }
    let json = r#"[{"op": "random_resized_crop", "size": [220, 224], "scale": [0.2, 1]}, {"op": "horizontal_flip"},
                   {"op": "random_crop", "size": 200}, {"op": "normalize", "mean": [0.5], "std": [0.5]}, {"op": "gray_to_rgb"}]"#;
    let read: Transform = serde_json::from_str(json).unwrap();
    let written = Transform::new()
        .push(crop([220, 224], (0.2, 1.0), (3.0 / 4.0, 4.0 / 3.0)))
        .horizontal_flip(0.5)
        .random_crop(200, 0)
        .normalize([0.5], [0.5])
        .gray_to_rgb();
    assert_eq!(read, written);
    // What is not said is not written: files and fingerprints of before stay.
    let json = serde_json::to_string(&Transform::new().resize_exact(8, 9)).unwrap();
    assert_eq!(json, r#"[{"op":"resize_exact","size":[8,9]}]"#);
    let json = r#"[{"op":"resize_shorter","size":8,"interpolation":"nearest_exact","antialias":false},
                   {"op":"resize_exact","size":8,"interpolation":["box","lanczos"]},
                   {"op":"random_resized_crop","size":8,"interpolation":"random"}]"#;
    let read: Transform = serde_json::from_str(json).unwrap();
    let written = Transform::new()
        .resize_shorter(8)
        .interpolation(Interpolation::NearestExact)
        .antialias(false)
        .resize_exact(8, 8)
        .interpolation_among([Interpolation::Box, Interpolation::Lanczos])
        .random_resized_crop(8)
        .interpolation_among(Interpolations::random().kinds());
    assert_eq!(read, written);
    assert_eq!(serde_json::from_str::<Transform>(&serde_json::to_string(&read).unwrap()).unwrap(), written);
    let refused = |json: &str| serde_json::from_str::<Transform>(json).unwrap_err().to_string();
    assert!(
        refused(r#"[{"op": "resize_exact", "size": 8, "interpolation": "cubic"}]"#).contains("bicubic, lanczos, box")
    );
    assert!(refused(r#"[{"op": "rotate"}]"#).contains("unknown variant `rotate`"));
    assert!(refused(r#"[{"op": "center_crop", "size": "big"}]"#).contains("a number or [height, width]"));
    assert!(refused(r#"[{"op": "center_crop", "size": 8, "sise": 9}]"#).contains("sise"));
    assert!(serde_json::to_string(&Transform::new().custom("mine", |_, _| Ok(()))).is_err());
}
