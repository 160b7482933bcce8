//! From decoded pixels to a finished row, on one core: `cargo bench --bench resample`.
//!
//! `imagenet`: a photograph of 500×375, the whole of it (the dearest crop) or a crop of the average size, to 224×224.
//! `cifar`: pad 4, crop 32, flip, normalise. Warm caches, no allocation in the timed part.
//!
//! `patch`: boxes of 96³ out of volumes of 144³, no cache of which holds either, beside what copying takes on the same
//! machine in the same minute: the same lines of the same volumes, and as many bytes at a stretch.
//!
//! `mix`: a batch of 256 rows of 224×224×3, mixed in place, which no cache holds.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use infeed::{
    DType, Layout,
    dataset::ImageInfo,
    internal::{
        kernels::{
            Axis, ChannelTable, Filter, Intensity, Level, Mixture, Pixels, ResampleParams, Resampler, RowSpec,
            VolumeAxis, Voxels, mix_rolled, mix_swapped, write_volume,
        },
        rows::Rows,
    },
};

fn pixels(info: &ImageInfo) -> Vec<u8> {
    (0..info.len_bytes()).map(|i| ((i * 2_654_435_761) >> 7) as u8).collect()
}

fn table(channels: usize) -> ChannelTable {
    let same = |v: f32| vec![v; channels];
    ChannelTable { scale: same(0.0171), bias: same(-2.1), fill: same(-2.1), cutout: same(0.0) }
}

fn axis(low: u32, high: u32, len: u32, flip: u32) -> Axis {
    Axis { start: low as f32, step: (high - low) as f32 / len as f32, low, high, from: 0, to: len, flip }
}

fn imagenet(c: &mut Criterion) {
    let info = ImageInfo::interleaved_u8(375, 500, 3);
    let data = pixels(&info);
    let src = Pixels { info, rows: 0..375, data: &data };
    let whole =
        ResampleParams { y: axis(0, 375, 224, 0), x: axis(0, 500, 224, 1), cutout: [0; 4], filter: Filter::Triangle };
    let part = ResampleParams { y: axis(60, 301, 224, 0), x: axis(90, 412, 224, 0), ..whole };
    let mut group = c.benchmark_group("resample/imagenet");
    group.throughput(Throughput::Elements(1));
    let mut case = |name: &str, params: &ResampleParams, dtype, layout, level| {
        let row = RowSpec { height: 224, width: 224, channels: 3, dtype, layout };
        let (table, mut out) = (table(3), vec![0; row.len_bytes()]);
        let mut resampler = Resampler::with_level(level);
        group.bench_function(name, |b| {
            b.iter(|| resampler.run(black_box(&src), params, &table, &row, &mut out).expect("the parameters fit"));
        });
    };
    case("whole/f32/nchw", &whole, DType::F32, Layout::Nchw, Level::Best);
    case("whole/f32/nchw/avx2", &whole, DType::F32, Layout::Nchw, Level::Avx2);
    case("whole/f32/nhwc", &whole, DType::F32, Layout::Nhwc, Level::Best);
    case("whole/f16/nchw", &whole, DType::F16, Layout::Nchw, Level::Best);
    case("whole/bf16/nchw", &whole, DType::Bf16, Layout::Nchw, Level::Best);
    case("whole/u8/nchw", &whole, DType::U8, Layout::Nchw, Level::Best);
    case("crop/f32/nchw", &part, DType::F32, Layout::Nchw, Level::Best);
    for (name, filter) in
        [("crop/cubic", Filter::Cubic), ("crop/lanczos", Filter::Lanczos), ("crop/linear", Filter::Linear)]
    {
        let params = ResampleParams { filter, ..part };
        case(name, &params, DType::F32, Layout::Nchw, Level::Best);
    }
    group.finish();
}

fn cifar(c: &mut Criterion) {
    let info = ImageInfo { planar: true, ..ImageInfo::interleaved_u8(32, 32, 3) };
    let data = pixels(&info);
    let src = Pixels { info, rows: 0..32, data: &data };
    let moved = |start: f32, flip| Axis { start, step: 1.0, low: 0, high: 32, from: 0, to: 32, flip };
    let y = Axis { from: 2, ..moved(-2.0, 0) };
    let x = Axis { to: 29, ..moved(3.0, 1) };
    let params = ResampleParams { y, x, cutout: [0; 4], filter: Filter::Triangle };
    let mut group = c.benchmark_group("resample/cifar");
    group.throughput(Throughput::Elements(1));
    for (name, dtype, layout, level) in [
        ("f32/nchw", DType::F32, Layout::Nchw, Level::Best),
        ("f32/nchw/avx2", DType::F32, Layout::Nchw, Level::Avx2),
        ("f32/nhwc", DType::F32, Layout::Nhwc, Level::Best),
        ("f16/nchw", DType::F16, Layout::Nchw, Level::Best),
    ] {
        let row = RowSpec { height: 32, width: 32, channels: 3, dtype, layout };
        let (table, mut out) = (table(3), vec![0; row.len_bytes()]);
        let mut resampler = Resampler::with_level(level);
        group.bench_function(name, |b| {
            b.iter(|| resampler.run(black_box(&src), &params, &table, &row, &mut out).expect("the parameters fit"));
        });
    }
    group.finish();
}

/// Five planes of 50×50 to 220×224: multi-channel cell images.
fn cells(c: &mut Criterion) {
    let info = ImageInfo { planar: true, ..ImageInfo::interleaved_u8(50, 50, 5) };
    let data = pixels(&info);
    let src = Pixels { info, rows: 0..50, data: &data };
    let params =
        ResampleParams { y: axis(0, 50, 220, 0), x: axis(0, 50, 224, 0), cutout: [0; 4], filter: Filter::Triangle };
    let row = RowSpec { height: 220, width: 224, channels: 5, dtype: DType::F32, layout: Layout::Nchw };
    let (table, mut out, mut resampler) = (table(5), vec![0; row.len_bytes()], Resampler::new());
    let mut group = c.benchmark_group("resample/cells");
    group.throughput(Throughput::Elements(1));
    for (name, filter) in [("f32/nchw", Filter::Triangle), ("f32/nchw/cubic", Filter::Cubic)] {
        let params = ResampleParams { filter, ..params };
        group.bench_function(name, |b| {
            b.iter(|| resampler.run(black_box(&src), &params, &table, &row, &mut out).expect("the parameters fit"));
        });
    }
    group.finish();
}

/// Another box of another volume into another row each time.
fn patch(c: &mut Criterion) {
    const SIDE: usize = 144;
    const BOX: usize = 96;
    let mut group = c.benchmark_group("resample/patch");
    for (name, from, to, mask) in [
        ("f32", DType::F32, DType::F32, false),
        ("i16-f32", DType::I16, DType::F32, false),
        ("mask", DType::U8, DType::U8, true),
    ] {
        let (size, row) = (from.size(), BOX.pow(3) * to.size());
        // 96 MB of volumes and as much of rows.
        let (volumes, rows) = ((96 << 20) / (SIDE.pow(3) * size), (96 << 20) / row);
        let whole = |_| bytes::Bytes::from((0..SIDE.pow(3) * size).map(|i| i as u8 & 0x3f).collect::<Vec<u8>>());
        let volumes: Vec<_> = (0..volumes).map(whole).collect();
        let mut out = vec![1; rows * row];
        let pitch = [SIDE * SIDE * size, SIDE * size, size];
        let mut draws = (0usize..).map(|i| {
            let start = [i * 7 % 49, i * 11 % 49, i * 13 % 49];
            (i * 5 % volumes.len(), start, i % rows * row)
        });
        let mut draw = || draws.next().expect("it has no end");
        group.throughput(Throughput::Bytes((row + BOX.pow(3) * size) as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                let (volume, start, at) = draw();
                let pieces = std::slice::from_ref(&volumes[volume]);
                let src = Voxels { dtype: from, begin: [0; 3], shape: [SIDE; 3], pieces, pitch, skip: 0 };
                let axis =
                    |i: usize| VolumeAxis { start: start[i] as i64, high: SIDE as i64, ..VolumeAxis::whole(i, BOX) };
                let axes = [axis(0), axis(1), axis(2)];
                let out = black_box(&mut out[at..at + row]);
                write_volume(&src, &axes, &Intensity::NONE, mask, to, Level::Best, out).expect("it fits");
            });
        });
        if from != to {
            continue;
        }
        group.bench_function(format!("{name}/copy-lines"), |b| {
            b.iter(|| {
                let (volume, start, at) = draw();
                let lines = black_box(&mut out[at..at + row]).chunks_exact_mut(BOX * size).enumerate();
                for (i, line) in lines {
                    let (z, y) = (start[0] + i / BOX, start[1] + i % BOX);
                    let at = z * pitch[0] + y * pitch[1] + start[2] * pitch[2];
                    line.copy_from_slice(&volumes[volume][at..at + line.len()]);
                }
            });
        });
        group.bench_function(format!("{name}/copy-stretch"), |b| {
            b.iter(|| {
                let (volume, _, at) = draw();
                black_box(&mut out[at..at + row]).copy_from_slice(&volumes[volume][..row]);
            });
        });
    }
    group.finish();
}

fn mix(c: &mut Criterion) {
    let mut group = c.benchmark_group("mix/256x3x224x224");
    let (blend, paste) = (Mixture::Blend { own: 0.3, other: 0.7 }, Mixture::Paste([40, 152, 60, 172]));
    for (name, dtype) in [("f32", DType::F32), ("f16", DType::F16), ("bf16", DType::Bf16)] {
        let row = RowSpec { height: 224, width: 224, channels: 3, dtype, layout: Layout::Nchw };
        let len = row.len_bytes();
        let mut rows = Rows::zeroed(256, len).expect("154 MB");
        rows.bytes_mut().iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 7) as u8 & 0x3f);
        group.throughput(Throughput::Bytes(256 * len as u64));
        for (how, mixture) in [("mixup", blend), ("cutmix", paste)] {
            let rows = rows.bytes_mut();
            group.bench_function(format!("{how}/{name}/batch"), |b| {
                b.iter(|| mix_rolled(Level::Best, &row, &mixture, black_box(&mut *rows)).expect("such rows"));
            });
            group.bench_function(format!("{how}/{name}/pair"), |b| {
                b.iter(|| {
                    let (front, back) = black_box(&mut *rows).split_at_mut(128 * len);
                    for (a, b) in front.chunks_exact_mut(len).zip(back.chunks_exact_mut(len).rev()) {
                        mix_swapped(Level::Best, &row, &mixture, a, b).expect("such rows");
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, imagenet, cifar, cells, mix, patch);
criterion_main!(benches);
