//! What the CPU's JPEG rows differ in from those of libraries that make RGB pixels first, and why.

use std::path::Path;

use infeed::{
    DType, Layout, Transform,
    codec::{ImageCodec, ImageHeader, Jpeg, PixelBuffer, Window},
    dataset::{FieldKind, SampleRng},
    internal::kernels::{Axis, Pixels, ResampleParams, Resampler},
    spi::Lowered,
    transform::reference,
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

/// Squares of strong colours: what a JPEG keeps of their edges lies outside of RGB.
fn squares(height: u16, width: u16, sampling: SamplingFactor) -> Vec<u8> {
    let colours = [[255, 0, 0], [0, 0, 255], [0, 255, 0], [255, 255, 0], [10, 10, 10], [255, 0, 255]];
    let mut pixels = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        // Half of the image is of soft colours.
        let square = usize::from((y / 7) * 5 + x / 9) % 6;
        let soft = colours[square].map(|c: u8| c / 4 + 96);
        pixels.extend(if x < width / 2 { colours[square] } else { soft });
    }
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 60);
    encoder.set_sampling_factor(sampling);
    encoder.encode(&pixels, width, height, ColorType::Rgb).unwrap();
    file
}

/// A row as a worker of the CPU makes it.
fn row(codec: &Jpeg, file: &[u8], lowered: &Lowered, header: &ImageHeader, params: &ResampleParams) -> Vec<f32> {
    let mut out = PixelBuffer::default();
    codec.window(file, header, &Window::of_params(params, lowered.row()), &mut out).unwrap();
    let mut row = vec![0; lowered.row().len_bytes()];
    let (table, spec) = (lowered.table(DType::U8), lowered.row());
    match out.planes(header) {
        Some(planes) => Resampler::new().run_planes(&planes, params, table, spec, &mut row).unwrap(),
        None => {
            let held = header.width as usize * usize::from(header.channels) * out.rows.len();
            let pixels = Pixels { info: header.info, rows: out.rows.clone(), data: &out.data[..held] };
            Resampler::new().run(&pixels, params, table, spec, &mut row).unwrap();
        }
    }
    bytemuck::pod_collect_to_vec(&row)
}

fn lowered(transform: &Transform) -> Lowered {
    transform.lower(&FieldKind::Image { channels: 3, size: None, dtype: None }, DType::F32, Layout::Nchw).unwrap()
}

/// The pixels of an output's taps.
fn taps(axis: &Axis, o: u32, len: u32) -> std::ops::Range<usize> {
    let o = if axis.flip == 1 { len - 1 - o } else { o };
    let (centre, reach) = (axis.step.mul_add(o as f32 + 0.5, axis.start), axis.step.max(1.0));
    let clamp = |v: f32| (v.floor().max(axis.low as f32) as u32).min(axis.high) as usize;
    clamp(centre - reach + 0.5)..clamp(centre + reach + 0.5)
}

/// For each output, whether RGB was cut to 0..255 in one of the pixels that it is made of.
fn is_cut(file: &[u8], header: &ImageHeader, lowered: &Lowered, params: &ResampleParams) -> Vec<bool> {
    let mut out = PixelBuffer::default();
    Jpeg::new().window(file, header, &Window::of_rows(header, 0..header.height), &mut out).unwrap();
    let planes = out.planes(header).unwrap();
    let value = |plane: usize, y: usize, x: usize| {
        let plane = &planes.planes[plane];
        // The nearest value of a coarser plane.
        let [y, x] = [y / plane.step[0] as usize, x / plane.step[1] as usize];
        f32::from(planes.data[plane.at + y * plane.pitch + x])
    };
    let [height, width] = [header.height, header.width].map(|side| side as usize);
    let mut cut = vec![false; height * width];
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let (light, b, r) = (value(0, y, x), value(1, y, x) - 128.0, value(2, y, x) - 128.0);
        let rgb = [light + 1.402 * r, light - 0.344_136 * b - 0.714_136 * r, light + 1.772 * b];
        cut[y * width + x] = rgb.iter().any(|v| !(-0.5..=255.5).contains(v));
    }
    let spec = lowered.row();
    let mut outputs = Vec::new();
    for (y, x) in (0..spec.height).flat_map(|y| (0..spec.width).map(move |x| (y, x))) {
        let columns = taps(&params.x, x, spec.width);
        let rows = taps(&params.y, y, spec.height);
        outputs.push(rows.clone().any(|y| columns.clone().any(|x| cut[y * width + x])));
    }
    outputs
}

#[test]
fn exact_rows_are_those_of_the_pixels() {
    let crop = Transform::new().random_resized_crop(40).horizontal_flip(0.5).to_float();
    for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2] {
        let file = squares(150, 190, sampling);
        let codec = Jpeg::new().exact(true);
        let header = codec.header(&file).unwrap();
        let mut whole = PixelBuffer::default();
        codec.decode(&file, &header, 0..150, &mut whole).unwrap();
        let pixels = Pixels { info: header.info, rows: 0..150, data: &whole.data[..header.len_bytes() as usize] };
        let lowered = lowered(&crop);
        let mut differ = 0;
        for seed in 0..12 {
            let params = lowered.params(&header, SampleRng::new(seed, 0, 1)).unwrap();
            let want = reference::resample(&pixels, &params, lowered.table(DType::U8), lowered.row()).unwrap();
            let want: Vec<f32> = bytemuck::pod_collect_to_vec(&want);
            assert_eq!(row(&codec, &file, &lowered, &header, &params), want, "{sampling:?} {seed}");
            differ += usize::from(row(&Jpeg::new(), &file, &lowered, &header, &params) != want);
        }
        assert_eq!(differ, 12, "without it they are others");
    }
}

#[test]
fn rows_differ_where_rgb_is_cut_before_the_resampling() {
    // Colour in as many values as brightness, and hardly made smaller: neither interpolation nor scaled blocks differ.
    let file = squares(150, 190, SamplingFactor::F_1_1);
    let header = Jpeg::new().header(&file).unwrap();
    for size in [100, 131, 149] {
        let lowered = lowered(&Transform::new().resize_exact(size, size + 20));
        let params = lowered.params(&header, SampleRng::new(0, 0, 1)).unwrap();
        let fast = row(&Jpeg::new(), &file, &lowered, &header, &params);
        let exact = row(&Jpeg::new().exact(true), &file, &lowered, &header, &params);
        let cut = is_cut(&file, &header, &lowered, &params);
        // How far apart, of outputs whose pixels were cut, and of the others.
        let mut most = [0.0f32; 2];
        for (n, (a, b)) in fast.iter().zip(&exact).enumerate() {
            let of = &mut most[usize::from(cut[n % cut.len()])];
            *of = of.max((a - b).abs());
        }
        let [inside, outside] = most;
        // Half a level of rounding, in each of the pixels.
        assert!(inside < 1.0, "{size}: {inside} levels apart where no pixel was cut");
        assert!(outside > 12.0, "{size}: {outside} levels apart where one was");
    }
}

/// Of photographs in the folder `INFEED_PHOTOS`: how many values differ, and how many of those because of a cut.
#[test]
#[ignore = "prints figures of a folder of photographs: CONTRIBUTING, Measure, says how to run it"]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn figures_of_photographs() {
    let folder = std::env::var("INFEED_PHOTOS").expect("INFEED_PHOTOS names a folder");
    let mut files = Vec::new();
    let mut folders = vec![Path::new(&folder).to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() { folders.push(entry) } else { files.push(entry) }
        }
    }
    files.sort();
    let lowered = lowered(&Transform::new().random_resized_crop(224).horizontal_flip(0.5));
    let (mut values, mut apart, mut because, mut sum, mut most) = (0u64, [0u64; 4], [0u64; 4], 0.0f64, 0.0f32);
    for (record, path) in files.iter().enumerate() {
        let file = std::fs::read(path).unwrap();
        let Ok(header) = Jpeg::new().header(&file) else { continue };
        if header.channels != 3 {
            continue;
        }
        let params = lowered.params(&header, SampleRng::new(1, 0, record as u64)).unwrap();
        let fast = row(&Jpeg::new(), &file, &lowered, &header, &params);
        let exact = row(&Jpeg::new().exact(true), &file, &lowered, &header, &params);
        if fast == exact {
            continue;
        }
        let cut = is_cut(&file, &header, &lowered, &params);
        for (n, (a, b)) in fast.iter().zip(&exact).enumerate() {
            let away = (a - b).abs();
            (values, sum, most) = (values + 1, sum + f64::from(away), most.max(away));
            for of in (0..4).filter(|of| away > [1.0, 4.0, 8.0, 16.0][*of]) {
                apart[of] += 1;
                because[of] += u64::from(cut[n % cut.len()]);
            }
        }
    }
    println!("{values} values, mean {:.4}, most {most:.1} levels", sum / values as f64);
    for (of, least) in [1, 4, 8, 16].into_iter().enumerate() {
        let share = 100.0 * apart[of] as f64 / values as f64;
        println!("above {least}: {} ({share:.5} %), of which a pixel was cut: {}", apart[of], because[of]);
    }
}
