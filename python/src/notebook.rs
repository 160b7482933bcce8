//! The images of a batch for notebooks.

use engine::{DType, Tensor, tensor::Element};
use half::{bf16, f16};
use infeed as engine;

/// Largest number of images in a sheet.
const MOST: usize = 36;

/// A PNG of the first rows of an image tensor, with `words` below each image. `None` if the tensor does not hold
/// images.
pub(crate) fn sheet(images: &Tensor, rows: usize, words: impl Fn(usize) -> Vec<String>) -> Option<Vec<u8>> {
    let images = images.to_host().ok()?;
    let &[_, a, b, c] = images.shape() else { return None };
    let few = |channels: usize| (1..=4).contains(&channels);
    // NCHW or NHWC: the channels are the axis of 1 to 4.
    let (height, width, channels, planar) = match (few(a), few(c)) {
        (true, _) => (b, c, a, true),
        (false, true) => (a, b, c, false),
        _ => return None,
    };
    let (pixels, shown) = (height * width, rows.min(MOST));
    let values = values(&images)?;
    let place = |pixel: usize, channel: usize| {
        if planar { channel * pixels + pixel } else { pixel * channels + channel }
    };
    let all: Vec<&[f32]> = values.chunks_exact((pixels * channels).max(1)).take(shown).collect();
    let ranges: Vec<(f32, f32)> =
        (0..channels).map(|channel| range(images.dtype(), &all, |at| place(at, channel), pixels)).collect();
    let level = |row: &[f32], pixel: usize, channel: usize| {
        let (low, high) = ranges[channel];
        ((row[place(pixel, channel)] - low) / (high - low).max(f32::MIN_POSITIVE) * 255.0).round().clamp(0.0, 255.0)
            as u8
    };
    let picture = |(at, row): (usize, &&[f32])| {
        let colour = |pixel: usize| match channels {
            1 | 2 => [level(row, pixel, 0); 3],
            _ => [0, 1, 2].map(|channel| level(row, pixel, channel)),
        };
        ((0..pixels).flat_map(colour).collect(), words(at))
    };
    infeed_cli::notebook::contact_sheet([height, width], all.iter().enumerate().map(picture).collect())
}

/// The values shown as black and white: the limits of an unsigned type; otherwise the smallest value (at most 0) and
/// the largest (at least 1).
fn range(dtype: DType, rows: &[&[f32]], place: impl Fn(usize) -> usize, pixels: usize) -> (f32, f32) {
    match dtype {
        DType::U8 => return (0.0, 255.0),
        DType::U16 => return (0.0, 65_535.0),
        _ => {}
    }
    let values = rows.iter().flat_map(|row| (0..pixels).map(|pixel| row[place(pixel)]));
    let (low, high) = values.fold((0.0_f32, 1.0_f32), |(low, high), value| (low.min(value), high.max(value)));
    (low, high)
}

fn values(images: &Tensor) -> Option<Vec<f32>> {
    fn of<T: Element>(images: &Tensor, number: impl Fn(T) -> f32) -> Option<Vec<f32>> {
        Some(images.to_vec::<T>()?.into_iter().map(number).collect())
    }
    match images.dtype() {
        DType::U8 => of(images, |value: u8| f32::from(value)),
        DType::U16 => of(images, |value: u16| f32::from(value)),
        DType::I16 => of(images, |value: i16| f32::from(value)),
        DType::F16 => of(images, f16::to_f32),
        DType::Bf16 => of(images, bf16::to_f32),
        DType::F32 => of(images, |value: f32| value),
        _ => None,
    }
}
