//! The GPU's kernels for pictures and rows, compiled for the CPU from the same source: the bits of the CPU's.

use std::{
    ffi::{CStr, c_void},
    ptr,
};

use infeed::{
    DType, Layout,
    dataset::SampleRng,
    internal::kernels::{
        Level, Map, Mixture, PLACES, PixelOp, Program, RowSpec, Sampling, Tile, TileRunner,
        device::LaunchShape,
        fill_rect, mix_rolled, mix_swapped,
        picture::{DeviceMixing, DevicePicture, DeviceRectangle, PICTURE_THREADS, picture_kernel, row_kernels},
    },
};
use proptest::prelude::*;

use crate::support::host_kernels::HostKernels;

/// Memory aligned to 16 bytes, with bytes behind it that must stay.
struct Place(Vec<u128>, usize);

const GUARD: usize = 64;

impl Place {
    fn new(len: usize) -> Self {
        Self(vec![u128::from_ne_bytes([0xa5; 16]); (len + GUARD).div_ceil(16)], len)
    }
    fn of(bytes: &[u8]) -> Self {
        let mut place = Self::new(bytes.len());
        place.bytes_mut().copy_from_slice(bytes);
        place
    }
    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.0)[..self.1]
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.0)[..self.1]
    }
    fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }
    fn is_unhurt(&self) -> bool {
        bytemuck::cast_slice::<_, u8>(&self.0)[self.1..].iter().all(|byte| *byte == 0xa5)
    }
}

/// A picture with smooth parts, flat ones and noise; floats may leave 0 to 1.
fn picture(spec: &RowSpec, seed: u64) -> Tile {
    let mut tile = Tile::default();
    let float = spec.dtype == DType::F32;
    tile.reset(spec.height, spec.width, spec.channels, float).unwrap();
    let mut draws = SampleRng::new(seed, 1, 2).op(0);
    let kind = draws.below(4);
    let values = (spec.height * spec.width * spec.channels) as usize;
    let value = |i: usize, noise: f64| match kind {
        0 => noise,
        1 => (i % 97) as f64 / 97.0,
        2 => 0.4,
        _ => (0.3 + 0.2 * noise + (i % 31) as f64 / 80.0).min(1.0),
    };
    let all: Vec<f64> = (0..values).map(|i| value(i, draws.between(0.0, 1.0))).collect();
    if float {
        let stretch = if kind == 3 { 1.3 } else { 1.0 };
        let floats: Vec<f32> = all.iter().map(|v| (v * stretch - 0.1 * (stretch - 1.0)) as f32).collect();
        tile.bytes_mut().copy_from_slice(bytemuck::cast_slice(&floats));
    } else {
        tile.bytes_mut().iter_mut().zip(&all).for_each(|(byte, v)| *byte = (v * 255.0) as u8);
    }
    tile
}

/// Runs programs of pictures in one launch and gives what becomes of them.
fn launch(kernels: &HostKernels, float: bool, work: &[(Program, &Tile)]) -> Vec<Vec<u8>> {
    let mut places: Vec<Vec<Place>> = work
        .iter()
        .map(|(program, tile)| {
            let room = program.room(tile.bytes().len());
            let mut places: Vec<Place> = room.map(Place::new).into();
            places[0].bytes_mut().copy_from_slice(tile.bytes());
            places
        })
        .collect();
    let mut words: Vec<Place> =
        work.iter().map(|(program, _)| Place::of(bytemuck::cast_slice(program.words()))).collect();
    let items: Vec<DevicePicture> = work
        .iter()
        .zip(&mut places)
        .zip(&mut words)
        .map(|(((program, tile), places), words)| DevicePicture {
            places: std::array::from_fn(|n| if places[n].1 == 0 { 0 } else { places[n].address() }),
            words: words.address(),
            count: program.words().len() as u32,
            height: tile.spec().height,
            width: tile.spec().width,
            unused: 0,
        })
        .collect();
    let shape = LaunchShape { grid: [items.len() as u32, 1, 1], block: [PICTURE_THREADS, 1, 1], shared_bytes: 0 };
    let at = items.as_ptr();
    // SAFETY: the kernel's one argument; the items' addresses are of memory of the program's lengths.
    let status = unsafe { kernels.launch_any(picture_kernel(float), &shape, &[ptr::from_ref(&at).cast::<c_void>()]) };
    assert_eq!(status, 0);
    assert!(places.iter().flatten().chain(&words).all(Place::is_unhurt), "something was written outside");
    let len = |program: &Program| program.spec().len_bytes();
    work.iter()
        .zip(&places)
        .map(|((program, _), places)| places[program.place()].bytes()[..len(program)].to_vec())
        .collect()
}

/// Any NaN is as good as another; there are none of these pictures.
fn check(kernels: &HostKernels, work: &[(RowSpec, Vec<PixelOp>, u64)]) {
    let float = work[0].0.dtype == DType::F32;
    let tiles: Vec<Tile> = work.iter().map(|(spec, _, seed)| picture(spec, *seed)).collect();
    let mut runner = TileRunner::with_level(Level::Portable);
    let programs: Vec<Program> = work
        .iter()
        .map(|(spec, ops, _)| {
            let mut program = Program::new(spec).unwrap();
            ops.iter().for_each(|op| program.add(op).unwrap());
            program
        })
        .collect();
    let both: Vec<(Program, &Tile)> = programs.into_iter().zip(&tiles).collect();
    let got = launch(kernels, float, &both);
    for ((spec, ops, seed), got) in work.iter().zip(got) {
        let mut tile = picture(spec, *seed);
        runner.run(ops, &mut tile).unwrap();
        if tile.bytes() != got {
            let at = tile.bytes().iter().zip(&got).position(|(a, b)| a != b);
            panic!("{ops:?} of {spec:?}, picture {seed}: first difference at byte {at:?} of {}", got.len());
        }
    }
}

fn spec(height: u32, width: u32, channels: u32, float: bool) -> RowSpec {
    let dtype = if float { DType::F32 } else { DType::U8 };
    RowSpec { height, width, channels, dtype, layout: Layout::Nchw }
}

/// Every step over its parameters, for pictures of this size.
fn steps(height: u32, width: u32) -> Vec<PixelOp> {
    let mut ops = Vec::new();
    for factor in [0.0, 0.37, 1.0, 1.9] {
        ops.extend([PixelOp::Brightness(factor), PixelOp::Contrast(factor), PixelOp::Saturation(factor)]);
        ops.extend([PixelOp::Sharpness(factor), PixelOp::Hue(factor * 0.5 - 0.45)]);
    }
    ops.extend([PixelOp::Grayscale, PixelOp::Invert, PixelOp::Autocontrast, PixelOp::Equalize]);
    ops.extend([1, 4, 7, 8].map(PixelOp::Posterize));
    ops.extend([0.0, 0.5, 1.0, 1.1].map(PixelOp::Solarize));
    ops.extend([(0.3, 0.5), (-0.2, 1.0)].map(|(add, threshold)| PixelOp::SolarizeAdd { add, threshold }));
    ops.push(PixelOp::Permute([2, 0, 1, 3]));
    let odd = |side: u32, most: u32| (2 * (side - 1).min(most / 2) + 1).min(most);
    for (kernel, sigma) in [([3, 3], [0.8, 0.8]), ([odd(height, 23), odd(width, 23)], [2.0, 1.1]), ([1, 5], [0.1, 3.0])]
    {
        if kernel[0] / 2 < height && kernel[1] / 2 < width {
            ops.push(PixelOp::Blur { kernel, sigma });
        }
    }
    let turn = 0.3f64;
    let maps = [
        Map::Affine([1.0, 0.0, 2.0, 0.0, 1.0, -1.0]),
        Map::Affine([turn.cos(), turn.sin(), 0.7, -turn.sin(), turn.cos(), -0.3]),
        Map::Affine([0.0, 1.0, 0.0, -1.0, 0.0, 0.0]),
        Map::Affine([1.0, 0.25, 0.0, 0.0, 1.3, 0.5]),
        Map::Perspective([1.1, 0.05, -0.4, 0.02, 0.9, 0.3, 0.004, -0.006]),
        Map::Perspective([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -0.2, 0.1]),
    ];
    for map in maps {
        for sampling in [Sampling::Nearest, Sampling::Bilinear, Sampling::Bicubic] {
            for fill in [None, Some([0.1, 0.5, 0.9, 0.0])] {
                ops.push(PixelOp::Warp { map, sampling, fill });
            }
        }
    }
    for area in [[0, height, 0, width], [1, 3, 2, 90], [height, 9, 0, 1], [0, 1, width / 2, width]] {
        ops.push(PixelOp::Erase { area, value: [0.2, 0.7, 1.0, 0.0] });
    }
    let some = [PixelOp::Invert, PixelOp::Blur { kernel: [3, 3], sigma: [1.0, 1.0] }, PixelOp::Sharpness(1.4)];
    if height > 2 && width > 2 {
        let warp = PixelOp::Warp { map: maps[1], sampling: Sampling::Bilinear, fill: None };
        let chains = vec![
            (0.2, vec![some[0].clone(), warp.clone(), some[1].clone()]),
            (0.35, vec![some[2].clone()]),
            (0.1, vec![]),
        ];
        ops.push(PixelOp::Mix { own: 0.35, chains });
    }
    ops
}

#[test]
fn every_step_gives_the_bits_of_the_cpu() {
    let Some(kernels) = HostKernels::get() else { return };
    // Planes that four divides and others, sides below the taps of a warp, a strip, larger than a block's round.
    for (height, width) in [(12, 16), (13, 11), (1, 1), (3, 2), (2, 40), (67, 61)] {
        for channels in [1, 3] {
            for float in [false, true] {
                let spec = spec(height, width, channels, float);
                let fits = |op: &PixelOp| channels == 3 || !matches!(op, PixelOp::Permute(_));
                let work: Vec<_> = (0..)
                    .zip(steps(height, width))
                    .filter(|(_, op)| fits(op))
                    .map(|(n, op)| (spec, vec![op], n))
                    .collect();
                // All in one launch.
                check(kernels, &work);
            }
        }
    }
}

#[test]
fn steps_of_any_number_of_channels() {
    let Some(kernels) = HostKernels::get() else { return };
    let any = [
        PixelOp::Brightness(0.7),
        PixelOp::Invert,
        PixelOp::Posterize(3),
        PixelOp::Autocontrast,
        PixelOp::Equalize,
        PixelOp::Sharpness(0.4),
        PixelOp::Blur { kernel: [5, 3], sigma: [1.0, 0.7] },
        PixelOp::Warp { map: Map::Affine([0.8, 0.1, 0.0, 0.2, 1.1, 0.0]), sampling: Sampling::Bicubic, fill: None },
    ];
    for float in [false, true] {
        for channels in [2, 4, 5, 9] {
            check(
                kernels,
                &[(spec(14, 9, channels, float), any.to_vec(), 3), (spec(8, 8, channels, float), any[..3].to_vec(), 4)],
            );
        }
    }
}

fn chain() -> impl Strategy<Value = (u32, u32, Vec<usize>, u64)> {
    (1u32..40, 1u32..40, prop::collection::vec(0usize..1000, 0..8), 0u64..1000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever follows whatever, several pictures of different sizes in one launch.
    #[test]
    fn chains_of_steps_give_the_bits_of_the_cpu(chains in prop::collection::vec(chain(), 1..4), float: bool, gray: bool) {
        let Some(kernels) = HostKernels::get() else { return Ok(()) };
        let work: Vec<_> = chains
            .into_iter()
            .map(|(height, width, picks, seed)| {
                let all = steps(height, width);
                let fits = |op: &PixelOp| !gray || !matches!(op, PixelOp::Permute(_));
                let ops = picks.into_iter().map(|n| all[n % all.len()].clone()).filter(fits).collect();
                (spec(height, width, if gray { 1 } else { 3 }, float), ops, seed)
            })
            .collect();
        check(kernels, &work);
    }
}

#[test]
fn planes_that_are_left_out_do_not_matter() {
    let Some(kernels) = HostKernels::get() else { return };
    for float in [false, true] {
        let spec = spec(9, 12, 3, float);
        let tile = picture(&spec, 5);
        let mut program = Program::new(&spec).unwrap();
        program.add(&PixelOp::Grayscale).unwrap();
        program.keep(1);
        let after = [PixelOp::Equalize, PixelOp::Sharpness(1.7)];
        after.iter().for_each(|op| program.add(op).unwrap());
        let got = launch(kernels, float, &[(program, &tile)]).remove(0);
        let mut expected = picture(&spec, 5);
        let mut runner = TileRunner::new();
        runner.run(&[PixelOp::Grayscale], &mut expected).unwrap();
        expected.reset(9, 12, 1, float).unwrap();
        runner.run(&after, &mut expected).unwrap();
        assert!(expected.bytes() == got);
    }
}

#[test]
fn a_program_knows_its_places_and_refuses_what_the_cpu_refuses() {
    let of = |spec: RowSpec, ops: &[PixelOp]| {
        let mut program = Program::new(&spec)?;
        ops.iter().try_for_each(|op| program.add(op)).ok()?;
        Some((program.room(spec.len_bytes()), program.place()))
    };
    let rgb = spec(8, 8, 3, false);
    let bytes = rgb.len_bytes();
    assert_eq!(of(rgb, &[]).unwrap(), ([bytes, 0, 0, 0, 0], 0));
    assert_eq!(of(rgb, &[PixelOp::Invert, PixelOp::Saturation(0.5)]).unwrap(), ([bytes, 0, 0, 0, 0], 0));
    let blur = PixelOp::Blur { kernel: [3, 3], sigma: [1.0; 2] };
    assert_eq!(of(rgb, &[PixelOp::Sharpness(0.0), blur.clone()]).unwrap(), ([bytes, bytes, 0, 4 * bytes, 0], 1));
    let mix = PixelOp::Mix { own: 0.5, chains: vec![(0.5, vec![PixelOp::Sharpness(1.0)])] };
    assert_eq!(of(rgb, std::slice::from_ref(&mix)).unwrap(), ([bytes, bytes, bytes, 0, 4 * bytes], 0));
    let float = spec(8, 8, 3, true);
    assert_eq!(of(float, &[blur]).unwrap(), ([4 * bytes, 0, 0, 4 * bytes, 0], 0));
    assert_eq!(PLACES, 5);
    for (spec, op) in [
        (spec(8, 8, 5, false), PixelOp::Hue(0.1)),
        (spec(8, 8, 2, false), PixelOp::Contrast(0.1)),
        (spec(8, 8, 1, false), PixelOp::Permute([2, 0, 1, 3])),
        (rgb, PixelOp::Blur { kernel: [17, 3], sigma: [1.0; 2] }),
        (spec(8, 8, 5, false), PixelOp::Erase { area: [0, 1, 0, 1], value: [0.0; 4] }),
        (rgb, PixelOp::Mix { own: 0.5, chains: vec![(0.5, vec![mix])] }),
    ] {
        let mut tile = picture(&spec, 1);
        assert!(TileRunner::new().run(std::slice::from_ref(&op), &mut tile).is_err(), "{op:?}");
        assert!(of(spec, std::slice::from_ref(&op)).is_none(), "{op:?}");
    }
    assert!(Program::new(&spec(1 << 16, 1 << 15, 3, false)).is_none(), "numbers have 32 bits");
}

// ---- rows ----------------------------------------------------------------------------------------------------------

const STORED: [DType; 4] = [DType::U8, DType::F16, DType::Bf16, DType::F32];

/// Finite numbers of the type, among them small ones.
fn rows(row: &RowSpec, count: usize) -> Vec<u8> {
    let mut draws = SampleRng::new(3, 4, 5).op(0);
    let values = (row.height * row.width * row.channels) as usize * count;
    (0..values)
        .flat_map(|_| {
            let value = draws.between(-3.0, 3.0) as f32;
            match row.dtype {
                DType::F32 => value.to_ne_bytes().to_vec(),
                DType::F16 => half::f16::from_f32(value).to_ne_bytes().to_vec(),
                DType::Bf16 => half::bf16::from_f32(value).to_ne_bytes().to_vec(),
                _ => vec![(value * 40.0 + 128.0) as u8],
            }
        })
        .collect()
}

fn row_specs() -> impl Iterator<Item = RowSpec> {
    [(5, 7, 3), (16, 12, 1), (23, 31, 4)].into_iter().flat_map(|(height, width, channels)| {
        STORED.into_iter().flat_map(move |dtype| {
            [Layout::Nchw, Layout::Nhwc].map(|layout| RowSpec { height, width, channels, dtype, layout })
        })
    })
}

fn numbers(row: &RowSpec) -> [u32; 4] {
    [row.height, row.width, row.channels, u32::from(row.layout == Layout::Nhwc)]
}

#[test]
fn rectangles_of_rows_are_those_of_the_cpu() {
    let Some(kernels) = HostKernels::get() else { return };
    for row in row_specs() {
        let (h, w) = (row.height, row.width);
        for area in [[0, h, 0, w], [1, 3, 2, w - 1], [h - 1, h, 0, 1]] {
            for each in [false, true] {
                let count = if each { (area[1] - area[0]) * (area[3] - area[2]) * row.channels } else { row.channels };
                let mut draws = SampleRng::new(9, u64::from(h), u64::from(each)).op(0);
                let values: Vec<f32> = (0..count).map(|_| draws.between(-2.0, 300.0) as f32).collect();
                let mut expected = rows(&row, 1);
                let mut next = values.iter();
                fill_rect(&row, &area, &mut expected, |c| if each { *next.next().unwrap() } else { values[c] })
                    .unwrap();
                let mut got = Place::of(&rows(&row, 1));
                let item = DeviceRectangle {
                    row: got.address(),
                    values: values.as_ptr() as u64,
                    area,
                    each: u32::from(each),
                    unused: 0,
                };
                let at = &raw const item;
                let numbers = numbers(&row);
                let mut args: Vec<*const c_void> = vec![ptr::from_ref(&at).cast()];
                args.extend(numbers.iter().map(|number| ptr::from_ref(number).cast::<c_void>()));
                let shape = LaunchShape { grid: [3, 1, 1], block: [64, 1, 1], shared_bytes: 0 };
                // SAFETY: the kernel's arguments; the row and the values are as long as sizes say.
                let status = unsafe { kernels.launch_any(row_kernels(row.dtype).unwrap().fill, &shape, &args) };
                assert!(status == 0 && got.is_unhurt());
                assert!(got.bytes() == expected, "{row:?} {area:?} each {each}");
            }
        }
    }
}

#[test]
fn rows_are_mixed_as_on_the_cpu() {
    let Some(kernels) = HostKernels::get() else { return };
    let run = |name: &CStr, row: &RowSpec, rows: &mut Place, items: &[DeviceMixing], count: u32, pairs: u32| {
        let (at, items_at) = (rows.address(), items.as_ptr());
        let numbers = numbers(row);
        let mut args: Vec<*const c_void> =
            vec![ptr::from_ref(&at).cast(), ptr::from_ref(&items_at).cast(), ptr::from_ref(&count).cast()];
        args.extend(numbers.iter().map(|number| ptr::from_ref(number).cast::<c_void>()));
        let shape = LaunchShape { grid: [2, pairs, 1], block: [96, 1, 1], shared_bytes: 0 };
        // SAFETY: the kernel's arguments; rows are as long as sizes say, and pairs are among them.
        let status = unsafe { kernels.launch_any(name, &shape, &args) };
        assert!(status == 0 && rows.is_unhurt());
    };
    for row in row_specs() {
        let (h, w) = (row.height, row.width);
        let blends = [0.3f32, 0.0, 1.0].map(|own| Mixture::Blend { own, other: 1.0 - own });
        let pastes = [[0, h, 0, w], [1, h - 1, 2, w - 1], [2, 2, 0, w]].map(Mixture::Paste);
        let names = row_kernels(row.dtype).unwrap();
        for mixture in blends.into_iter().filter(|_| row.dtype != DType::U8).chain(pastes) {
            for count in [1usize, 2, 5] {
                let mut expected: Vec<u128> = vec![0; (row.len_bytes() * count).div_ceil(16)];
                let expected = &mut bytemuck::cast_slice_mut(&mut expected)[..row.len_bytes() * count];
                expected.copy_from_slice(&rows(&row, count));
                mix_rolled(Level::Portable, &row, &mixture, expected).unwrap();
                let mut got = Place::of(&rows(&row, count));
                run(names.roll, &row, &mut got, &[DeviceMixing::new(&mixture, [0; 2])], count as u32, 1);
                assert!(got.bytes() == expected, "{row:?} {mixture:?} of {count}");
            }
            // Two pairs of five rows; one stays.
            let len = row.len_bytes();
            let mut expected = rows(&row, 5);
            for (a, b) in [(0, 4), (1, 3)] {
                let copy = |n: usize| Place::of(&expected[n * len..][..len]);
                let (mut x, mut y) = (copy(a), copy(b));
                mix_swapped(Level::Portable, &row, &mixture, x.bytes_mut(), y.bytes_mut()).unwrap();
                expected[a * len..][..len].copy_from_slice(x.bytes());
                expected[b * len..][..len].copy_from_slice(y.bytes());
            }
            let mut got = Place::of(&rows(&row, 5));
            let items = [[0, 4], [1, 3]].map(|pair| DeviceMixing::new(&mixture, pair));
            run(names.swap, &row, &mut got, &items, 0, 2);
            assert!(got.bytes() == expected, "{row:?} {mixture:?} swapped");
        }
    }
}
