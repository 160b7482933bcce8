//! torchvision's results at every level, equal bits at all levels, and edge cases.

use infeed_core::error::ErrorKind;
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::Value as Json;

use super::{Map, PixelOp, Sampling, Tile, TileRunner, picture::Sides};
use crate::kernels::level::Level;

const LEVELS: [Level; 3] = [Level::Best, Level::Avx2, Level::Portable];

#[derive(Debug, Deserialize)]
struct Golden {
    cases: Vec<Case>,
    places: std::collections::HashMap<String, Vec<usize>>,
}

#[derive(Debug, Deserialize)]
struct Case {
    source: Source,
    op: Json,
    bytes: String,
    bound: u8,
    floats: Vec<f64>,
    f32_error: f64,
}

#[derive(Debug, Deserialize)]
struct Source {
    height: usize,
    width: usize,
    channels: usize,
    kind: String,
}

impl Source {
    fn bytes(&self) -> Vec<u8> {
        let Self { height, width, channels, kind } = self;
        let value = |c: usize, y: usize, x: usize| match kind.as_str() {
            "waves" => (11 + 29 * c + 3 * y * y + 7 * x * (c + 1) + (y * x * (c + 2)) / 5) % 256,
            "slope" => 30 + 20 * c + (120 * y) / height + ((60 + 10 * c) * x) / width,
            "steps" => (16 * (x / 3 + y / 4) + 9 * c) % 256,
            _ => 77 + 40 * c,
        };
        let mut bytes = Vec::new();
        for c in 0..*channels {
            for y in 0..*height {
                bytes.extend((0..*width).map(|x| value(c, y, x) as u8));
            }
        }
        bytes
    }

    fn tile(&self, float: bool) -> Tile {
        tile_of([self.height, self.width, self.channels], float, &self.bytes())
    }
}

fn tile_of([height, width, channels]: [usize; 3], float: bool, bytes: &[u8]) -> Tile {
    let mut tile = Tile::default();
    tile.reset(height as u32, width as u32, channels as u32, float).unwrap();
    match tile.sides() {
        Sides::Bytes(values) => values.copy_from_slice(bytes),
        Sides::Floats(values) => {
            for (value, byte) in values.iter_mut().zip(bytes) {
                *value = f32::from(*byte) * (1.0 / 255.0);
            }
        }
    }
    tile
}

fn floats(tile: &Tile) -> Vec<f32> {
    bytemuck::cast_slice(tile.bytes()).to_vec()
}

/// Parses the step of a golden file.
fn parse(op: &Json) -> PixelOp {
    let number = |key: &str| op[key].as_f64().unwrap() as f32;
    fn list<const N: usize>(value: &Json) -> [f64; N] {
        std::array::from_fn(|i| value[i].as_f64().unwrap())
    }
    match op["op"].as_str().unwrap() {
        "brightness" => PixelOp::Brightness(number("factor")),
        "contrast" => PixelOp::Contrast(number("factor")),
        "saturation" => PixelOp::Saturation(number("factor")),
        "hue" => PixelOp::Hue(number("factor")),
        "sharpness" => PixelOp::Sharpness(number("factor")),
        "grayscale" => PixelOp::Grayscale,
        "invert" => PixelOp::Invert,
        "autocontrast" => PixelOp::Autocontrast,
        "equalize" => PixelOp::Equalize,
        "posterize" => PixelOp::Posterize(number("bits") as u8),
        "solarize" => PixelOp::Solarize(number("threshold")),
        "solarize_add" => PixelOp::SolarizeAdd { add: number("add"), threshold: number("threshold") },
        "permute" => {
            let [a, b, c] = list(&op["from"]).map(|v| v as u8);
            PixelOp::Permute([a, b, c, 3])
        }
        "blur" => {
            PixelOp::Blur { kernel: list(&op["kernel"]).map(|v| v as u32), sigma: list(&op["sigma"]).map(|v| v as f32) }
        }
        "erase" => {
            PixelOp::Erase { area: list(&op["area"]).map(|v| v as u32), value: list(&op["value"]).map(|v| v as f32) }
        }
        "warp" => PixelOp::Warp {
            map: match op["map"].as_str().unwrap() {
                "affine" => Map::Affine(list(&op["matrix"])),
                _ => Map::Perspective(list(&op["matrix"])),
            },
            sampling: match op["sampling"].as_str().unwrap() {
                "nearest" => Sampling::Nearest,
                "bilinear" => Sampling::Bilinear,
                _ => Sampling::Bicubic,
            },
            fill: op["fill"].is_array().then(|| list(&op["fill"]).map(|v| v as f32)),
        },
        "mix" => PixelOp::Mix {
            own: number("own"),
            chains: op["chains"]
                .as_array()
                .unwrap()
                .iter()
                .map(|chain| {
                    (chain[0].as_f64().unwrap() as f32, chain[1].as_array().unwrap().iter().map(parse).collect())
                })
                .collect(),
        },
        other => panic!("{other}"),
    }
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../../../integration/golden/pixel_ops.json")).unwrap()
}

#[test]
fn steps_on_bytes_are_torchvisions() {
    let golden = golden();
    for level in LEVELS {
        let mut runner = TileRunner::with_level(level);
        for case in &golden.cases {
            let mut tile = case.source.tile(false);
            runner.run(&[parse(&case.op)], &mut tile).unwrap();
            let want = (0..case.bytes.len()).step_by(2).map(|i| u8::from_str_radix(&case.bytes[i..i + 2], 16).unwrap());
            assert_eq!(want.len(), tile.bytes().len());
            for (i, (found, want)) in tile.bytes().iter().zip(want).enumerate() {
                let (source, op) = (&case.source, &case.op);
                assert!(found.abs_diff(want) <= case.bound, "{level:?} {source:?} {op}: {found} not {want} at {i}");
            }
        }
    }
}

#[test]
fn steps_on_floats_are_as_close_as_torchs() {
    let golden = golden();
    for level in LEVELS {
        let mut runner = TileRunner::with_level(level);
        for case in &golden.cases {
            let Source { height, width, channels, .. } = case.source;
            let mut tile = case.source.tile(true);
            runner.run(&[parse(&case.op)], &mut tile).unwrap();
            let found = floats(&tile);
            for (at, want) in golden.places[&format!("{channels}x{height}x{width}")].iter().zip(&case.floats) {
                let (source, op) = (&case.source, &case.op);
                let far = (f64::from(found[*at]) - want).abs();
                // Plus half a unit of the values, as torch's result may be exact by chance.
                let bound = 2.0 * case.f32_error + 6e-8 * want.abs().max(1.0);
                assert!(far <= bound, "{level:?} {source:?} {op}: {} not {want} at {at}", found[*at]);
            }
        }
    }
}

fn factor() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..3.0]
}

fn warps() -> impl Strategy<Value = PixelOp> {
    let map = prop_oneof![
        prop::array::uniform6(-2.0f64..2.0).prop_map(|m| Map::Affine([m[0], m[1], 9.0 * m[2], m[3], m[4], 9.0 * m[5]])),
        // Whole turns and moves.
        prop::array::uniform2(-3i8..4).prop_map(|[x, y]| Map::Affine([
            0.0,
            -1.0,
            f64::from(x),
            1.0,
            0.0,
            f64::from(y)
        ])),
        prop::array::uniform8(-1.5f64..1.5).prop_map(Map::Perspective),
        // Coordinates that overflow.
        Just(Map::Perspective([f64::INFINITY, f64::NAN, 0.0, 1e30, -1e38, 1e38, 0.0, 0.0])),
        Just(Map::Affine([f64::NAN, 0.0, 0.0, 0.0, f64::NEG_INFINITY, 3e9])),
    ];
    let sampling = prop_oneof![Just(Sampling::Nearest), Just(Sampling::Bilinear), Just(Sampling::Bicubic)];
    (map, sampling, prop::option::of(prop::array::uniform4(0.0f32..1.0)))
        .prop_map(|(map, sampling, fill)| PixelOp::Warp { map, sampling, fill })
}

fn steps() -> impl Strategy<Value = PixelOp> {
    let simple = prop_oneof![
        factor().prop_map(PixelOp::Brightness),
        factor().prop_map(PixelOp::Contrast),
        factor().prop_map(PixelOp::Saturation),
        (-0.5f32..0.5).prop_map(PixelOp::Hue),
        factor().prop_map(PixelOp::Sharpness),
        Just(PixelOp::Grayscale),
        Just(PixelOp::Invert),
        (0u8..=9).prop_map(PixelOp::Posterize),
        (0.0f32..1.2).prop_map(PixelOp::Solarize),
        (-1.0f32..1.0, 0.0f32..1.0).prop_map(|(add, threshold)| PixelOp::SolarizeAdd { add, threshold }),
        Just(PixelOp::Autocontrast),
        Just(PixelOp::Equalize),
        (0u32..9, 0u32..9, prop::array::uniform2(0.1f32..4.0))
            .prop_map(|(y, x, sigma)| PixelOp::Blur { kernel: [2 * y + 1, 2 * x + 1], sigma }),
        (prop::array::uniform4(0u32..70), prop::array::uniform4(-0.1f32..1.1))
            .prop_map(|(area, value)| PixelOp::Erase { area, value }),
    ];
    let mix = (simple.clone(), warps(), prop::array::uniform3(0.0f32..0.5)).prop_map(|(a, b, [own, first, second])| {
        PixelOp::Mix { own, chains: vec![(first, vec![a.clone(), b]), (second, vec![a])] }
    });
    prop_oneof![8 => simple, 4 => warps(), 1 => mix]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Steps that are not defined for a tile are refused at each level.
    #[test]
    fn levels_give_the_same_bits(
        height in 1usize..70,
        width in 1usize..140,
        channels in prop_oneof![Just(1usize), Just(3), Just(3), Just(4)],
        float: bool,
        seed: u64,
        ops in prop::collection::vec(steps(), 1..4),
    ) {
        let mut draws = infeed_core::random::SampleRng::new(seed, 2, 3).op(0);
        let bytes: Vec<u8> = (0..height * width * channels).map(|_| draws.bits() as u8).collect();
        let results = LEVELS.map(|level| {
            let mut tile = tile_of([height, width, channels], float, &bytes);
            let done = TileRunner::with_level(level).run(&ops, &mut tile).is_ok();
            (done, tile.bytes().to_vec())
        });
        prop_assert!(results[0] == results[1] && results[0] == results[2], "{ops:?}");
    }
}

#[test]
fn pictures_without_an_inside_are_not_sharpened() {
    for shape in [[1, 1, 3], [2, 5, 3], [5, 2, 1]] {
        let bytes: Vec<u8> = (0..shape.iter().product::<usize>()).map(|i| (37 * i) as u8).collect();
        for float in [false, true] {
            let (mut tile, before) = (tile_of(shape, float, &bytes), tile_of(shape, float, &bytes));
            TileRunner::new().run(&[PixelOp::Sharpness(3.0)], &mut tile).unwrap();
            assert_eq!(tile.bytes(), before.bytes());
        }
    }
}

#[test]
fn pictures_of_one_value_have_nothing_to_stretch() {
    for op in [PixelOp::Autocontrast, PixelOp::Equalize] {
        let mut tile = tile_of([9, 70, 3], false, &[93; 9 * 70 * 3]);
        TileRunner::new().run(&[op], &mut tile).unwrap();
        assert!(tile.bytes().iter().all(|v| *v == 93));
    }
}

#[test]
fn blurs_keep_a_picture_of_one_value() {
    for value in [0, 1, 254, 255] {
        let mut tile = tile_of([40, 70, 1], false, &[value; 40 * 70]);
        TileRunner::new().run(&[PixelOp::Blur { kernel: [23, 23], sigma: [0.1, 2.0] }], &mut tile).unwrap();
        assert!(tile.bytes().iter().all(|v| *v == value));
    }
}

#[test]
fn blurs_that_do_not_fit_are_refused() {
    let blur = |kernel, sigma| PixelOp::Blur { kernel, sigma };
    for (shape, op) in [
        ([3, 9, 1], blur([7, 3], [1.0, 1.0])),
        ([9, 3, 1], blur([3, 7], [1.0, 1.0])),
        ([1, 1, 1], blur([3, 1], [1.0, 1.0])),
        ([9, 9, 1], blur([2, 3], [1.0, 1.0])),
        ([9, 9, 1], blur([3, 3], [0.0, 1.0])),
        ([9, 9, 1], blur([3, 3], [1.0, f32::NAN])),
    ] {
        let mut tile = tile_of(shape, false, &vec![5; shape.iter().product()]);
        let error = TileRunner::new().run(std::slice::from_ref(&op), &mut tile).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{op:?}");
    }
    // The widest kernel that fits reaches the other end.
    let mut tile = tile_of([3, 9, 1], false, &[5; 27]);
    TileRunner::new().run(&[blur([5, 17], [1.0, 9.0])], &mut tile).unwrap();
    assert!(tile.bytes().iter().all(|v| *v == 5));
}

#[test]
fn steps_without_a_meaning_for_the_channels_are_refused() {
    let mix = |op| PixelOp::Mix { own: 0.5, chains: vec![(0.5, vec![op])] };
    let nested = mix(mix(PixelOp::Invert));
    for (channels, op) in [
        (2, PixelOp::Hue(0.1)),
        (4, PixelOp::Saturation(0.1)),
        (5, PixelOp::Contrast(0.1)),
        (2, PixelOp::Grayscale),
        (4, mix(PixelOp::Grayscale)),
        (3, nested),
        (2, PixelOp::Permute([0, 2, 1, 3])),
        (5, PixelOp::Permute([0, 1, 2, 3])),
        (5, PixelOp::Erase { area: [0, 1, 0, 1], value: [0.0; 4] }),
    ] {
        let mut tile = tile_of([4, 4, channels], false, &vec![7; 16 * channels]);
        let error = TileRunner::new().run(std::slice::from_ref(&op), &mut tile).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal, "{op:?}");
    }
}

#[test]
fn other_numbers_of_channels_are_planes_alike() {
    let bytes: Vec<u8> = (0..5 * 20 * 30).map(|i| (i * i / 7) as u8).collect();
    let warp =
        PixelOp::Warp { map: Map::Affine([0.9, 0.1, 1.0, -0.2, 1.1, 0.0]), sampling: Sampling::Bilinear, fill: None };
    let blur = PixelOp::Blur { kernel: [5, 3], sigma: [1.0, 1.0] };
    let ops = [
        PixelOp::Brightness(1.2),
        PixelOp::Autocontrast,
        PixelOp::Equalize,
        PixelOp::Sharpness(1.5),
        blur,
        PixelOp::Posterize(5),
        warp,
    ];
    let mut all = tile_of([20, 30, 5], false, &bytes);
    let mut runner = TileRunner::new();
    runner.run(&ops, &mut all).unwrap();
    for (c, plane) in bytes.chunks(600).enumerate() {
        let mut one = tile_of([20, 30, 1], false, plane);
        runner.run(&ops, &mut one).unwrap();
        assert_eq!(one.bytes(), &all.bytes()[c * 600..][..600]);
    }
    assert!(runner.held_bytes() >= 5 * 600);
}

#[test]
fn empty_tiles_stay_empty() {
    let mut tile = Tile::default();
    TileRunner::new().run(&[PixelOp::Equalize, PixelOp::Invert], &mut tile).unwrap();
    assert!(tile.bytes().is_empty());
}
