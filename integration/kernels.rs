//! The kernels for GPUs: the same source, compiled for the CPU, gives the bits of the reference; and their PTX is its PTX.

use std::{ffi::CStr, process::Command};

use infeed::{
    DType, Layout,
    dataset::{ImageInfo, SampleRng},
    internal::cuda::{COLOUR_PTX, COLOUR_ROWS, COLOUR_THREADS, DevicePlanes, PICTURE_PTX, PLANES_TO_RGB, RESAMPLE_PTX},
    internal::kernels::{
        Axis, ChannelTable, Filter, Level, Pixels, ResampleParams, RowSpec,
        device::{DeviceItem, LaunchShape, fits, kernel_name, launch_shape},
        picture::{RowKernels, picture_kernel, row_kernels},
    },
    internal::nvjpeg::Chroma,
    transform::reference,
};
use infeed_jpeg::{Decoder, Header, Plane, Scratch, Window};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use crate::{
    agreement::{Case, case, same},
    properties::properties,
    support::{host_kernels::HostKernels, repository, skipped},
};

const SOURCES: [DType; 3] = [DType::U8, DType::U16, DType::F32];
/// Changes one thing of a case.
type Edit<T> = fn(&mut T);

const STORED: [DType; 4] = [DType::U8, DType::F16, DType::Bf16, DType::F32];

/// Where the pixels of a case lie in memory, and where its row goes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Rows and columns held before and behind those that are read.
    more: [u32; 2],
    /// Elements between the end of a source row and the next.
    gap: u32,
    /// Elements from an address that 16 divides to the row.
    offset: usize,
    /// Instead of the usual one.
    shared_bytes: Option<u32>,
    /// Bands instead of the usual number.
    bands: Option<u32>,
}

/// Memory aligned to 16 bytes.
struct Aligned(Vec<u128>);

impl Aligned {
    fn filled(len: usize, value: u8) -> Self {
        Self(vec![u128::from_ne_bytes([value; 16]); len.div_ceil(16)])
    }

    fn bytes(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Around the row, to see that nothing else is written.
const GUARD: usize = 64;

/// Pixels of a case as they lie on a device, and the item that tells of them.
struct Placed {
    item: DeviceItem,
    src: Aligned,
    dst: Aligned,
    row_at: usize,
}

fn reads(params: &ResampleParams, row: &RowSpec) -> [std::ops::Range<u32>; 2] {
    [params.y.reads(row.height, params.filter), params.x.reads(row.width, params.filter)]
}

/// Puts the part of the picture that is read into poisoned memory.
fn place(info: &ImageInfo, data: &[u8], params: &ResampleParams, row: &RowSpec, place: Place) -> Placed {
    let size = info.dtype.size();
    let channels = u32::from(info.channels);
    let sizes = [info.height, info.width];
    let window = reads(params, row);
    let origin = [0, 1].map(|i| window[i].start.saturating_sub(place.more[i]));
    let extent = [0, 1].map(|i| window[i].end.saturating_add(place.more[i]).min(sizes[i]) - origin[i]);
    let pixel = if info.planar { 1 } else { channels };
    let line = extent[1] * pixel + place.gap;
    let plane = if info.planar { u64::from(line) * u64::from(extent[0]) + 3 } else { 1 };
    // All bits set is NaN; other bytes would be seen in any sum of integers.
    let poison = if info.dtype == DType::F32 { 0xff } else { 0xcd };
    // A start that only the element's size divides.
    let start = GUARD + size;
    let planes = if info.planar { u64::from(channels) } else { 1 };
    let elements = plane * (planes - 1) + u64::from(line) * u64::from(extent[0]);
    let mut src = Aligned::filled(start + elements as usize * size + GUARD, poison);
    let (height, width) = (info.height as usize, info.width as usize);
    for y in 0..extent[0] as usize {
        for x in 0..extent[1] as usize {
            for c in 0..channels as usize {
                let (from_y, from_x) = (origin[0] as usize + y, origin[1] as usize + x);
                let from = if info.planar {
                    (c * height + from_y) * width + from_x
                } else {
                    (from_y * width + from_x) * channels as usize + c
                };
                let to = c * plane as usize + y * line as usize + x * pixel as usize;
                src.bytes()[start + to * size..][..size].copy_from_slice(&data[from * size..][..size]);
            }
        }
    }
    let row_at = GUARD + place.offset * row.dtype.size();
    let mut dst = Aligned::filled(row_at + row.len_bytes() + GUARD, 0xa5);
    let item = DeviceItem {
        src: src.bytes().as_ptr() as u64 + start as u64,
        dst: dst.bytes().as_mut_ptr() as u64 + row_at as u64,
        plane,
        pitch: line * size as u32,
        pixel,
        origin,
        extent,
        gray: u32::from(channels < row.channels || channels == 2 && row.channels == 1),
        params: *params,
    };
    Placed { item, src, dst, row_at }
}

fn flat(table: &ChannelTable) -> Vec<f32> {
    [&table.scale, &table.bias, &table.fill, &table.cutout].into_iter().flatten().copied().collect()
}

/// Runs the kernel on the CPU; the row, or what went wrong.
fn run(kernels: &HostKernels, case: &Case, at: Place) -> Result<Vec<u8>, String> {
    let Case { info, data, params, table, row, .. } = case;
    let mut placed = place(info, data, params, row, at);
    let item = placed.item;
    if !fits(&item, row, info.dtype) {
        return Err("fits refuses it".into());
    }
    let held = item.held_bytes(row.channels, info.dtype).unwrap();
    assert!(held as usize + GUARD < placed.src.bytes().len());
    let mut shape = launch_shape(row, 1);
    shape.shared_bytes = at.shared_bytes.unwrap_or(shape.shared_bytes);
    shape.grid[0] = at.bands.unwrap_or(shape.grid[0]);
    let name = kernel_name(info.dtype, row.dtype).unwrap();
    let before = placed.src.0.clone();
    let table = flat(table);
    let mut status = -1;
    let ranges = [(item.src, held), (table.as_ptr() as u64, 4 * table.len() as u64)];
    let strays = kernels.strays(ranges, || {
        // SAFETY: the item's addresses lie within `placed`, as much of it as `fits` and the assertion say.
        status = unsafe { kernels.launch(name, &shape, &[item], &table, row) };
    });
    if status != 0 || strays != 0 || before != placed.src.0 {
        return Err(format!("status {status}, {strays} reads outside, or the source has changed"));
    }
    let len = row.len_bytes();
    let out = placed.dst.bytes();
    if out[..placed.row_at].iter().chain(&out[placed.row_at + len..]).any(|&b| b != 0xa5) {
        return Err("wrote outside the row".into());
    }
    Ok(out[placed.row_at..][..len].to_vec())
}

fn expected(case: &Case) -> Vec<u8> {
    let whole = Pixels { info: case.info, rows: 0..case.info.height, data: &case.data };
    reference::resample(&whole, &case.params, &case.table, &case.row).unwrap()
}

fn check(kernels: &HostKernels, what: &str, case: &Case, at: Place) {
    let told = || format!("{what}: {:?} {:?} {:?} {at:?}", case.info, case.params, case.row);
    let out = run(kernels, case, at).unwrap_or_else(|error| panic!("{error}; {}", told()));
    let wanted = expected(case);
    let size = case.row.dtype.size();
    let differ = out.chunks(size).zip(wanted.chunks(size)).filter(|(a, b)| a != b).count();
    assert!(same(&out, &wanted, case.row.dtype), "{differ} values differ; {}", told());
}

// ---- cases by hand ----------------------------------------------------------------------------------------------

/// A picture of noise with its channel table; windows are the whole of it.
fn noise(height: u32, width: u32, channels: u8, dtype: DType, row: RowSpec) -> Case {
    let info = ImageInfo { height, width, channels, dtype, planar: false };
    let mut draws = SampleRng::new(u64::from(height), u64::from(width), u64::from(channels)).op(0);
    let data: Vec<u8> = match dtype {
        DType::F32 => (0..info.len_bytes() / 4).flat_map(|_| (draws.unit() * 300.0 - 20.0).to_ne_bytes()).collect(),
        _ => (0..info.len_bytes()).map(|_| draws.bits() as u8).collect(),
    };
    let scale = if dtype == DType::U16 { 0.004 } else { 1.1 };
    let mut each = |add: f32| (0..row.channels).map(|_| draws.unit() + add).collect::<Vec<f32>>();
    let table = ChannelTable {
        scale: each(0.0).iter().map(|v| v * scale).collect(),
        bias: each(-0.5),
        fill: each(-2.0),
        cutout: each(3.0),
    };
    let axis = |size: u32, len: u32| Axis {
        start: 0.0,
        step: size as f32 / len as f32,
        low: 0,
        high: size,
        from: 0,
        to: len,
        flip: 0,
    };
    let params = ResampleParams {
        y: axis(height, row.height),
        x: axis(width, row.width),
        cutout: [0; 4],
        filter: Filter::Triangle,
    };
    Case { info, data, params, table, row, level: Level::Best }
}

fn row(height: u32, width: u32, channels: u32, dtype: DType, layout: Layout) -> RowSpec {
    RowSpec { height, width, channels, dtype, layout }
}

#[test]
fn every_pair_of_types_and_layout_gives_the_bits_of_the_reference() {
    let Some(kernels) = HostKernels::get() else { return };
    for (from, to) in SOURCES.into_iter().flat_map(|from| STORED.map(|to| (from, to))) {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            // Larger and smaller; a width that four divides and one that it does not.
            for (height, width) in [(24, 36), (7, 9)] {
                let case = noise(13, 17, 3, from, row(height, width, 3, to, layout));
                check(kernels, "types", &case, Place::default());
                check(kernels, "not aligned", &case, Place { offset: 1, gap: 5, ..Place::default() });
            }
        }
    }
}

#[test]
fn any_number_of_channels_lies_planar_or_interleaved() {
    let Some(kernels) = HostKernels::get() else { return };
    let pairs = (1..=9).map(|n| (n, u32::from(n))).chain([(1, 3), (1, 5), (2, 1), (2, 3), (4, 3)]);
    for ((source, channels), planar) in pairs.flat_map(|pair| [(pair, false), (pair, true)]) {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            let mut case = noise(9, 21, source, DType::U8, row(12, 16, channels, DType::F32, layout));
            case.info.planar = planar;
            check(kernels, "channels", &case, Place { more: [1, 2], gap: 3, ..Place::default() });
        }
    }
}

#[test]
fn every_window_gives_the_bits_of_the_reference() {
    let Some(kernels) = HostKernels::get() else { return };
    let base = noise(61, 90, 3, DType::U8, row(20, 24, 3, DType::F32, Layout::Nchw));
    let with = |edit: fn(&mut ResampleParams)| {
        let mut case = base.clone();
        edit(&mut case.params);
        case
    };
    let cases: [(&str, Edit<ResampleParams>); 13] = [
        ("whole", |_| ()),
        ("flip across", |p| p.x.flip = 1),
        ("flip down", |p| p.y.flip = 1),
        ("flip both", |p| (p.x.flip, p.y.flip) = (1, 1)),
        ("part", |p| (p.y.low, p.y.high, p.x.low, p.x.high) = (20, 31, 7, 70)),
        ("fill at all sides", |p| (p.y.from, p.y.to, p.x.from, p.x.to) = (3, 17, 5, 22)),
        ("fill, flipped", |p| (p.y.from, p.y.to, p.x.from, p.x.to, p.x.flip, p.y.flip) = (3, 17, 5, 22, 1, 1)),
        ("fill before the image", |p| p.x.from = 13),
        ("all fill", |p| (p.x.from, p.x.to) = (0, 0)),
        ("cutout", |p| p.cutout = [2, 9, 3, 14]),
        ("cutout over the edge", |p| p.cutout = [15, 99, 20, 99]),
        ("nearest", |p| p.filter = Filter::NearestExact),
        ("copy", |p| (p.x.step, p.x.start, p.y.step, p.y.start) = (1.0, 7.0, 1.0, 11.0)),
    ];
    for (what, edit) in cases {
        let case = with(edit);
        check(kernels, what, &case, Place::default());
        check(kernels, what, &case, Place { more: [3, 2], gap: 1, offset: 3, ..Place::default() });
        // Two tiles, which sum different numbers of rows at a time where one holds fill alone.
        check(kernels, what, &case, Place { shared_bytes: Some(2000), ..Place::default() });
        let mut other = Case { row: RowSpec { layout: Layout::Nhwc, ..case.row }, ..case };
        check(kernels, what, &other, Place::default());
        other.row.dtype = DType::U8;
        check(kernels, what, &other, Place { bands: Some(7), ..Place::default() });
    }
}

#[test]
fn every_scale_gives_the_bits_of_the_reference_however_little_shared_memory_there_is() {
    let Some(kernels) = HostKernels::get() else { return };
    for (size, out) in [
        ((50, 50), (110, 220)),
        ((1, 1), (8, 8)),
        ((1, 1), (1, 1)),
        ((40, 40), (5, 1)),
        ((31, 42), (24, 32)),
        ((64, 100), (16, 25)),
        ((300, 360), (10, 12)),
        ((31, 2000), (8, 20)),
        ((2, 3), (40, 33)),
    ] {
        for dtype in [DType::U8, DType::F32] {
            for (channels, layout) in [(3, Layout::Nchw), (2, Layout::Nhwc)] {
                let row = row(out.0, out.1, channels, DType::F32, layout);
                let case = noise(size.0, size.1, channels as u8, dtype, row);
                // All of it, tiles of fewer columns, and none: each value from the source.
                for shared_bytes in [None, Some(8 << 10), Some(3 << 10), Some(600), Some(0)] {
                    check(kernels, "scale", &case, Place { shared_bytes, ..Place::default() });
                }
            }
        }
    }
}

#[test]
fn pixels_without_weight_are_not_looked_at() {
    let Some(kernels) = HostKernels::get() else { return };
    for (width, layout, shared_bytes) in
        [(16, Layout::Nchw, None), (15, Layout::Nchw, None), (16, Layout::Nhwc, None), (16, Layout::Nchw, Some(0))]
    {
        let mut case = noise(16, 2 * width, 2, DType::F32, row(16, width, 2, DType::F32, layout));
        // A copy of every pixel, between infinities that it must not see.
        (case.params.x.step, case.params.x.start, case.params.x.low, case.params.x.high) = (1.0, 4.0, 4, 4 + width);
        for (at, value) in case.data.chunks_exact_mut(4).enumerate() {
            let column = at as u32 / 2 % (2 * width);
            if column < 4 || column >= 4 + width || column.is_multiple_of(3) {
                value.copy_from_slice(&f32::INFINITY.to_ne_bytes());
            }
        }
        check(kernels, "infinity", &case, Place { shared_bytes, more: [0, 3], ..Place::default() });
        let out = run(kernels, &case, Place { shared_bytes, more: [0, 3], ..Place::default() }).unwrap();
        assert!(!out.chunks_exact(4).any(|v| f32::from_ne_bytes(v.try_into().unwrap()).is_nan()));
    }
}

#[test]
fn many_items_are_made_in_one_launch_and_by_several_threads_at_a_time() {
    let Some(kernels) = HostKernels::get() else { return };
    let row = row(12, 16, 3, DType::F16, Layout::Nchw);
    let cases: Vec<Case> = (1..=20).map(|n| noise(n, 40 - n, 3, DType::U8, row)).collect();
    let table = cases[0].table.clone();
    let make = || {
        let mut placed: Vec<Placed> =
            cases.iter().map(|c| place(&c.info, &c.data, &c.params, &row, Place::default())).collect();
        let items: Vec<DeviceItem> = placed.iter().map(|p| p.item).collect();
        let shape = launch_shape(&row, items.len() as u32);
        assert_eq!(shape.grid[1], 20);
        let name = kernel_name(DType::U8, DType::F16).unwrap();
        // SAFETY: the addresses of the items lie within `placed`.
        assert_eq!(unsafe { kernels.launch(name, &shape, &items, &flat(&table), &row) }, 0);
        for (case, placed) in cases.iter().zip(&mut placed) {
            let wanted = expected(&Case { table: table.clone(), ..case.clone() });
            let at = placed.row_at;
            assert!(placed.dst.bytes()[at..][..row.len_bytes()] == wanted[..], "{:?}", case.info);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(make);
        }
    });
}

proptest! {
    #![proptest_config(properties(250, 4_000))]

    #[test]
    fn any_parameters_give_the_bits_of_the_reference(
        case in case(),
        more in (0u32..4, 0u32..4),
        gap in 0u32..4,
        offset in prop_oneof![2 => Just(0usize), 1 => 1usize..8],
        shared in prop_oneof![3 => Just(None), 2 => (0u32..9000).prop_map(Some)],
        bands in prop_oneof![2 => Just(None), 1 => (1u32..9).prop_map(Some)],
    ) {
        if let Some(kernels) = HostKernels::get() {
            check(kernels, "random", &case, Place { more: more.into(), gap, offset, shared_bytes: shared, bands });
        }
    }
}

// ---- what is refused --------------------------------------------------------------------------------------------

#[test]
fn a_window_outside_what_is_held_is_refused_and_reads_nothing_there() {
    let case = noise(40, 50, 3, DType::U16, row(16, 20, 3, DType::F32, Layout::Nchw));
    let mut case = case;
    (case.params.y.low, case.params.y.high, case.params.y.start) = (10, 30, 10.0);
    case.params.y.step = 20.0 / 16.0;
    let Placed { item, src: _src, dst: _dst, .. } =
        place(&case.info, &case.data, &case.params, &case.row, Place::default());
    let good = |item: &DeviceItem| fits(item, &case.row, DType::U16);
    assert!(good(&item));
    assert_eq!((item.origin, item.extent), ([10, 0], [20, 50]));
    let edits: [(&str, Edit<DeviceItem>); 18] = [
        ("begins a row late", |i| (i.origin[0], i.extent[0]) = (11, 19)),
        ("ends a row early", |i| i.extent[0] = 19),
        ("begins a column late", |i| (i.origin[1], i.extent[1]) = (1, 49)),
        ("ends a column early", |i| i.extent[1] = 49),
        ("holds nothing", |i| i.extent = [0, 0]),
        ("holds rows beyond the last number", |i| i.extent[0] = u32::MAX),
        ("odd source", |i| i.src += 1),
        ("odd pitch", |i| i.pitch += 1),
        ("odd row", |i| i.dst += 2),
        ("planes beyond memory", |i| i.plane = u64::MAX / 2),
        ("end beyond memory", |i| i.src = u64::MAX - 1),
        ("no step", |i| i.params.x.step = 0.0),
        ("step is no number", |i| i.params.x.step = f32::NAN),
        ("start without end", |i| i.params.y.start = f32::INFINITY),
        ("no pixels", |i| i.params.y.high = i.params.y.low),
        ("outputs beyond the row", |i| i.params.x.to = 21),
        ("outputs end before they begin", |i| (i.params.x.from, i.params.x.to) = (9, 8)),
        ("a window further down", |i| i.params.y.high = 31),
    ];
    for (what, edit) in edits {
        let mut other = item;
        edit(&mut other);
        // A larger limit alone asks for no other pixel: only the last window could reach it.
        if what == "a window further down" {
            other.params.y.start += 1.0;
        }
        assert!(!good(&other), "{what}");
    }
    assert!(!fits(&item, &case.row, DType::I64));
    assert!(!fits(&item, &RowSpec { dtype: DType::I64, ..case.row }, DType::U16));
    assert!(!fits(&item, &RowSpec { channels: 0, ..case.row }, DType::U16));
    assert!(!fits(&item, &RowSpec { height: u32::MAX, ..case.row }, DType::U16));
    // Padding alone reads nothing, so nothing need be held.
    let mut padding = DeviceItem { extent: [0, 0], ..item };
    (padding.params.x.from, padding.params.x.to) = (0, 0);
    assert!(good(&padding));

    // Launched all the same, it stays inside.
    let Some(kernels) = HostKernels::get() else { return };
    for (dtype, shared_bytes) in [(DType::F32, None), (DType::F32, Some(0))] {
        let case = noise(40, 50, 3, dtype, case.row);
        let mut placed = place(&case.info, &case.data, &case.params, &case.row, Place::default());
        placed.item.extent = [1, 1];
        let mut shape = launch_shape(&case.row, 1);
        shape.shared_bytes = shared_bytes.unwrap_or(shape.shared_bytes);
        let name = kernel_name(dtype, DType::F32).unwrap();
        let table = flat(&case.table);
        let ranges = [(placed.item.src, 12), (table.as_ptr() as u64, 48)];
        let strays = kernels.strays(ranges, || {
            // SAFETY: the addresses lie within `placed`; were more than `extent` read, it would still be its memory.
            let status = unsafe { kernels.launch(name, &shape, &[placed.item], &table, &case.row) };
            assert_eq!(status, 0);
        });
        assert_eq!(strays, 0);
        let at = placed.row_at;
        let row = &placed.dst.bytes()[at..][..case.row.len_bytes()];
        assert!(row.chunks_exact(4).all(|v| f32::from_ne_bytes(v.try_into().unwrap()).is_finite()));
    }
}

#[test]
fn a_launch_covers_all_rows_within_the_limits_of_every_gpu() {
    for (height, width, channels) in
        [(1, 1, 1), (32, 32, 3), (220, 220, 5), (224, 224, 3), (224, 225, 3), (9000, 30_000, 4)]
    {
        for layout in [Layout::Nchw, Layout::Nhwc] {
            for count in [1, 32, 1024, 65_535] {
                let row = row(height, width, channels, DType::F16, layout);
                let LaunchShape { grid, block, shared_bytes } = launch_shape(&row, count);
                assert!(grid[0] >= 1 && grid[0] <= height && grid[1] == count && grid[2] == 1, "{row:?}: {grid:?}");
                assert!(block[0] % 32 == 0 && (32..=256).contains(&block[0]) && block[1..] == [1, 1]);
                assert!(shared_bytes <= 48 << 10);
            }
        }
    }
}

// ---- planes of JPEGs ---------------------------------------------------------------------------------------------

/// Pictures of every kind of colour that engines take, of odd sizes too: their planes as the kernel's RGB, and libjpeg's.
#[test]
fn planes_become_the_pixels_of_libjpeg() {
    let Some(kernels) = HostKernels::get() else { return };
    let samplings = [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2];
    let colours = samplings.map(Some).into_iter().chain([None]);
    let sizes = [(1, 1), (2, 3), (3, 2), (4, 4), (5, 9), (17, 16), (33, 47), (64, 31), (100, 75)];
    for (n, (colour, (width, height))) in colours.flat_map(|colour| sizes.map(|size| (colour, size))).enumerate() {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        if let Some(sampling) = colour {
            encoder.set_sampling_factor(sampling);
        }
        let (kind, channels) = colour.map_or((ColorType::Luma, 1), |_| (ColorType::Rgb, 3));
        let len = usize::from(width) * usize::from(height) * channels;
        let pixels: Vec<u8> =
            (0..len).map(|i| (((7919 * n + i) as u32).wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        encoder.encode(&pixels, width, height, kind).unwrap();

        let header = Header::parse(&file).unwrap();
        let (decoder, mut scratch, mut data) = (Decoder::new(), Scratch::default(), Vec::new());
        let rows = 0..header.height();
        let all = Window::of_rows(&header, rows.clone());
        let planes = decoder.planes(&file, &header, &all, &mut scratch, &mut data).unwrap();
        let lines = |plane: &Plane| -> Vec<u8> {
            let [down, across] = plane.step;
            let columns = header.width().div_ceil(across) as usize;
            (0..header.height().div_ceil(down)).flat_map(|y| plane.row(&data, y)[..columns].to_vec()).collect()
        };
        let lines: Vec<Vec<u8>> = planes.as_slice().iter().map(lines).collect();
        let mut expected = vec![0; len];
        decoder.pixels(&file, &header, rows, &mut scratch, &mut expected).unwrap();
        if channels == 1 {
            expected = expected.into_iter().flat_map(|gray| [gray; 3]).collect();
        }

        let mut rgb = vec![0x5a; expected.len() + GUARD];
        let chroma = match Chroma::of(&header) {
            Chroma::Each(chroma) => chroma,
            other => {
                assert_eq!((other, colour.is_none()), (Chroma::Gray, true));
                [0; 2]
            }
        };
        let address = |n: usize| lines.get(n).map_or(0, |plane| plane.as_ptr() as u64);
        let (width, height) = (header.width(), header.height());
        let planes = [0, 1, 2].map(address);
        let items = [DevicePlanes { planes, rgb: rgb.as_mut_ptr() as u64, width, height, chroma }];
        let grid = [height.div_ceil(COLOUR_ROWS) + 1, 2, 1];
        let shape = LaunchShape { grid, block: [COLOUR_THREADS, 1, 1], shared_bytes: 0 };
        let (at, count) = (items.as_ptr(), 1u32);
        let args = [(&raw const at).cast(), (&raw const count).cast()];
        // SAFETY: the planes and the pixels of the one item are as long as its sizes say.
        assert_eq!(unsafe { kernels.launch_any(PLANES_TO_RGB, &shape, &args) }, 0);
        assert!(rgb[..expected.len()] == expected, "{width}x{height} {colour:?}");
        assert!(
            rgb[expected.len()..].iter().all(|byte| *byte == 0x5a),
            "{width}x{height} {colour:?}: written behind it"
        );
    }
}

// ---- PTX --------------------------------------------------------------------------------------------------------

/// The files, their PTX, and what it may hold.
fn modules() -> [(&'static str, &'static [u8], &'static str); 3] {
    [
        ("resample", include_bytes!("../crates/infeed-cuda/src/cuda/resample.cu"), RESAMPLE_PTX),
        ("colour", include_bytes!("../crates/infeed-cuda/src/cuda/colour.cu"), COLOUR_PTX),
        ("picture", include_bytes!("../crates/infeed-cuda/src/cuda/picture.cu"), PICTURE_PTX),
    ]
}

#[test]
fn the_ptx_is_that_of_the_source_and_holds_every_kernel() {
    for (name, source, ptx) in modules() {
        let hash: String = Sha256::digest(source).iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("// source sha256: {hash}");
        assert!(ptx.lines().any(|l| l == line), "{name}.cu has changed: run python3 integration/gpu/ptx.py");
    }
    let kernels = HostKernels::get();
    let holds = |ptx: &str, name: &CStr, sizes: &[u32]| {
        assert!(ptx.contains(&format!(".entry {}(", name.to_str().unwrap())), "{name:?}");
        if let Some(kernels) = kernels {
            assert_eq!(kernels.arg_sizes(name).as_deref(), Some(sizes), "{name:?}");
        }
    };
    for (from, to) in SOURCES.into_iter().flat_map(|from| STORED.map(|to| (from, to))) {
        holds(RESAMPLE_PTX, kernel_name(from, to).unwrap(), &[8, 8, 4, 4, 4, 4, 4]);
    }
    holds(COLOUR_PTX, PLANES_TO_RGB, &[8, 4]);
    for float in [false, true] {
        holds(PICTURE_PTX, picture_kernel(float), &[8]);
    }
    for dtype in STORED {
        let RowKernels { fill, roll, swap } = row_kernels(dtype).unwrap();
        holds(PICTURE_PTX, fill, &[8, 4, 4, 4, 4]);
        holds(PICTURE_PTX, roll, &[8, 8, 4, 4, 4, 4, 4]);
        holds(PICTURE_PTX, swap, &[8, 8, 4, 4, 4, 4, 4]);
    }
    assert_eq!(RESAMPLE_PTX.matches(".visible .entry ").count(), SOURCES.len() * STORED.len());
    assert_eq!(PICTURE_PTX.matches(".visible .entry ").count(), 2 + 3 * STORED.len());
    for (from, to) in [(DType::I64, DType::F32), (DType::F16, DType::F32), (DType::U8, DType::U16)] {
        assert_eq!((kernel_name(from, to), row_kernels(DType::U16)), (None, None));
    }
    if let Some(kernels) = kernels {
        assert_eq!(kernels.arg_sizes(c"resample_u8_to_i64"), None);
    }
}

#[test]
fn compiling_again_gives_the_same_ptx() {
    let Some(nvrtc) = std::env::var_os("INFEED_NVRTC") else {
        skipped("the PTX is not compiled again: set INFEED_NVRTC to the libnvrtc.so.12 of 12.0.140");
        return;
    };
    let script = repository().join("integration/gpu/ptx.py");
    let dir = tempfile::tempdir().unwrap();
    let output =
        Command::new("python3").arg(script).arg("--nvrtc").arg(nvrtc).arg("--out").arg(dir.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (name, _, ptx) in modules() {
        let made = std::fs::read_to_string(dir.path().join(format!("{name}.ptx"))).unwrap();
        assert!(made == ptx, "run python3 integration/gpu/ptx.py");
    }
}
