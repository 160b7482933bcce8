//! Steps on a tile of 224×224×3, on one core: `cargo bench --bench pixel_ops`.
//!
//! Each iteration copies the picture into the tile and does one step; `copy` is the floor, the copy alone. Tiles stay in
//! the second cache; no allocation in the timed part.

use std::hint::black_box;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use infeed::internal::kernels::{Level, Map, PixelOp, Sampling, Tile, TileRunner};

const SIDE: u32 = 224;

/// A slope with noise: histograms and hues of neither a plane nor of noise alone.
fn picture() -> Vec<u8> {
    let value = |i: u32| (i % SIDE) / 2 + (i / SIDE % SIDE) / 4 + (i.wrapping_mul(2_654_435_761) >> 26);
    (0..3 * SIDE * SIDE).map(|i| value(i) as u8).collect()
}

fn warp(map: Map, sampling: Sampling) -> PixelOp {
    PixelOp::Warp { map, sampling, fill: Some([0.5; 4]) }
}

fn ops() -> Vec<(&'static str, PixelOp)> {
    let (sin, cos) = 17.3f64.to_radians().sin_cos();
    let turn = Map::Affine([cos, sin, 0.0, -sin, cos, 0.0]);
    let perspective = Map::Perspective([0.9, 0.02, 1.0, -0.03, 1.1, -2.0, 0.001, -0.0007]);
    let blur = |side, sigma| PixelOp::Blur { kernel: [side; 2], sigma: [sigma; 2] };
    let chain = |op| (0.25, vec![op]);
    let chains = vec![chain(PixelOp::Invert), chain(PixelOp::Posterize(4)), chain(PixelOp::Autocontrast)];
    vec![
        ("brightness", PixelOp::Brightness(1.3)),
        ("contrast", PixelOp::Contrast(1.6)),
        ("saturation", PixelOp::Saturation(1.6)),
        ("hue", PixelOp::Hue(0.1)),
        ("sharpness", PixelOp::Sharpness(1.9)),
        ("grayscale", PixelOp::Grayscale),
        ("invert", PixelOp::Invert),
        ("posterize", PixelOp::Posterize(4)),
        ("solarize", PixelOp::Solarize(0.5)),
        ("solarize_add", PixelOp::SolarizeAdd { add: 0.2, threshold: 0.5 }),
        ("autocontrast", PixelOp::Autocontrast),
        ("equalize", PixelOp::Equalize),
        ("permute", PixelOp::Permute([2, 0, 1, 3])),
        ("blur/3", blur(3, 0.5)),
        ("blur/23", blur(23, 1.1)),
        ("shear_x/nearest", warp(Map::Affine([1.0, 0.2126, 0.0, 0.0, 1.0, 0.0]), Sampling::Nearest)),
        ("shear_y/nearest", warp(Map::Affine([1.0, 0.0, 0.0, 0.2126, 1.0, 0.0]), Sampling::Nearest)),
        ("translate/nearest", warp(Map::Affine([1.0, 0.0, -7.0, 0.0, 1.0, 3.0]), Sampling::Nearest)),
        ("rotate/nearest", warp(turn, Sampling::Nearest)),
        ("rotate/bilinear", warp(turn, Sampling::Bilinear)),
        ("rotate/bicubic", warp(turn, Sampling::Bicubic)),
        ("perspective/nearest", warp(perspective, Sampling::Nearest)),
        ("perspective/bilinear", warp(perspective, Sampling::Bilinear)),
        ("erase", PixelOp::Erase { area: [40, 120, 60, 140], value: [0.0; 4] }),
        ("mix", PixelOp::Mix { own: 0.25, chains }),
    ]
}

fn run(group: &mut BenchmarkGroup<'_, WallTime>, id: &str, level: Level, float: bool, ops: &[PixelOp]) {
    let mut picture = picture();
    if float {
        picture = picture.iter().flat_map(|v| (f32::from(*v) / 255.0).to_ne_bytes()).collect();
    }
    group.throughput(Throughput::Bytes(picture.len() as u64));
    let (mut tile, mut runner) = (Tile::default(), TileRunner::with_level(level));
    tile.reset(SIDE, SIDE, 3, float).expect("memory for a picture");
    group.bench_function(id, |b| {
        b.iter(|| {
            tile.bytes_mut().copy_from_slice(black_box(&picture));
            runner.run(ops, &mut tile).expect("steps that fit the tile");
            black_box(tile.bytes());
        });
    });
}

fn pixel_ops(c: &mut Criterion) {
    let mut group = c.benchmark_group("pixel_ops");
    for (float, kind) in [(false, "u8"), (true, "f32")] {
        run(&mut group, &format!("{kind}/copy"), Level::Best, float, &[]);
        for (name, op) in ops() {
            run(&mut group, &format!("{kind}/{name}"), Level::Best, float, std::slice::from_ref(&op));
            if !float {
                run(&mut group, &format!("{kind}/{name}/avx2"), Level::Avx2, float, std::slice::from_ref(&op));
            }
        }
    }
    let jitter = [PixelOp::Brightness(1.2), PixelOp::Contrast(0.8), PixelOp::Saturation(1.2), PixelOp::Hue(-0.05)];
    run(&mut group, "u8/jitter", Level::Best, false, &jitter);
    group.finish();
}

criterion_group!(benches, pixel_ops);
criterion_main!(benches);
