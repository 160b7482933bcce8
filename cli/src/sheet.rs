//! The contact sheet of `inspect`: what a model would see, without normalisation; or what each augmentation does.

use std::{collections::BTreeMap, fmt, path::Path, sync::Arc};

use font8x8::UnicodeFonts;
use futures::StreamExt;
use infeed::{
    DType, Dataset, Device, Layout, Loader, LoaderBuilder, OnBadSample, RowInstances, Tensor,
    dataset::{FieldKind, subset},
    sampler::{LastBatch, Shard},
    transform::{Op, Transform, View},
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::{args::InspectArgs, failure::Failure, options::Steps, out, rgb_png};

/// File types of a sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileType {
    Png,
    Jpeg,
}

impl FileType {
    /// By the extension of the file name.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
        match ending.as_deref() {
            Some("png") => Ok(Self::Png),
            Some("jpg" | "jpeg") => Ok(Self::Jpeg),
            _ => {
                let path = path.display();
                Err(Failure::Usage(format!(
                    "--sheet {path}: a sheet is a PNG or a JPEG; end the name with .png or .jpg"
                )))
            }
        }
    }

    fn encode(self, Sheet { width, height, rgb }: &Sheet) -> Result<Vec<u8>, Failure> {
        let failed = |error: &dyn fmt::Display| Failure::Failed(format!("--sheet: {error}"));
        match self {
            Self::Png => rgb_png::encode(rgb, *width, *height).map_err(|error| failed(&error)),
            Self::Jpeg => {
                let (Ok(width), Ok(height)) = (u16::try_from(*width), u16::try_from(*height)) else {
                    return Err(failed(&"a JPEG has at most 65,535 pixels in a row or column; write a .png"));
                };
                let mut bytes = Vec::new();
                let mut encoder = Encoder::new(&mut bytes, QUALITY);
                // Letters are one pixel wide.
                encoder.set_sampling_factor(SamplingFactor::F_1_1);
                encoder.encode(rgb, width, height, ColorType::Rgb).map_err(|error| failed(&error))?;
                Ok(bytes)
            }
        }
    }
}

/// Quality of a JPEG sheet.
const QUALITY: u8 = 92;

/// Images in a row of the sheet, and most rows.
const COLUMNS: usize = 6;
/// Pixels between pictures.
const GAP: usize = 4;
/// Small images are enlarged by whole factors, as long as they fit into this many pixels.
const SIDE: usize = 96;
/// Width and height of a letter.
const LETTER: usize = 8;
/// Height of a line of letters, with space above.
const LINE: usize = LETTER + 3;
/// The augmentations of a sheet for a transform without any.
const GALLERY: &str = "color_jitter:0.4,0.4,0.4,0.1;random_grayscale;gaussian_blur:9,1/4;random_solarize:0.5;random_posterize:2;\
    random_equalize;random_autocontrast;random_invert;random_adjust_sharpness:4;random_channel_permutation;\
    random_photometric_distort;random_rotation:30;random_affine:10,0.1/0.1,0.8/1.2,20;random_perspective;random_erasing;\
    rand_augment;timm_rand_augment;trivial_augment_wide;auto_augment;aug_mix;three_augment";

/// An image with lines of text below it.
struct Cell {
    rgb: Vec<u8>,
    words: Vec<String>,
}

/// Images of one size.
struct Cells {
    height: usize,
    width: usize,
    cells: Vec<Cell>,
}

impl Cells {
    /// Rows with one image of each of `columns`. Smaller images go into the corner of their cell.
    fn in_rows(columns: Vec<Self>) -> Self {
        let most = |side: fn(&Self) -> usize| columns.iter().map(side).max().unwrap_or(0);
        let (height, width) = (most(|cells| cells.height), most(|cells| cells.width));
        let rows = columns.iter().map(|cells| cells.cells.len()).min().unwrap_or(0);
        let cell = |row: usize, of: &Self| {
            let mut rgb = vec![255; height * width * 3];
            let Cell { rgb: small, words } = &of.cells[row];
            for (line, pixels) in rgb.chunks_exact_mut(width * 3).zip(small.chunks_exact((of.width * 3).max(1))) {
                line[..pixels.len()].copy_from_slice(pixels);
            }
            Cell { rgb, words: words.clone() }
        };
        let cells = (0..rows).flat_map(|row| columns.iter().map(move |of| cell(row, of))).collect();
        Self { height, width, cells }
    }
}

/// Writes a sheet of up to 36 transformed records, with class and name; with views, of six records, one per row. Gives
/// the number of records, or of images of augmentations.
pub(crate) async fn write(
    dataset: &Arc<dyn Dataset>,
    steps: &Steps,
    args: &InspectArgs,
    path: &Path,
) -> Result<usize, Failure> {
    let field = dataset.schema().fields.iter().find(|field| matches!(field.kind, FieldKind::Image { .. }));
    let Some(field) = field else {
        return Err(Failure::Failed("--sheet: the dataset has no images".into()));
    };
    let names = fields_of(&field.name, steps);
    let (cells, columns) = if args.ops {
        (operations(dataset, (&field.name, &names[0]), steps, args).await?, 1 + DRAWS)
    } else {
        let columns = if steps.views.is_empty() { COLUMNS } else { names.len() };
        (samples(dataset, &names, steps, args).await?, columns)
    };
    let sheet = compose(&cells, columns)?;
    out::replace(path, &FileType::of(path)?.encode(&sheet)?)?;
    Ok(if args.ops { cells.cells.len() } else { cells.cells.len() / names.len() })
}

/// The fields of a batch that `field` becomes.
fn fields_of(field: &str, steps: &Steps) -> Vec<String> {
    if steps.views.is_empty() {
        return vec![field.to_owned()];
    }
    steps.views.iter().flat_map(View::names).map(|name| format!("{field}.{name}")).collect()
}

fn loader(dataset: &Arc<dyn Dataset>, steps: Steps, args: &InspectArgs) -> LoaderBuilder {
    let loader = Loader::builder(Arc::clone(dataset))
        .device(Device::Cpu)
        .shard(Shard::default())
        .last_batch(LastBatch::Partial)
        .transform(steps.transform)
        .views(steps.views)
        .dtype(DType::U8)
        .layout(Layout::Nhwc)
        .prefetch(1);
    match args.max_image_bytes {
        Some(bytes) => loader.max_image_bytes(bytes.0),
        None => loader,
    }
}

async fn samples(
    dataset: &Arc<dyn Dataset>,
    fields: &[String],
    steps: &Steps,
    args: &InspectArgs,
) -> Result<Cells, Failure> {
    let most = if steps.views.is_empty() { COLUMNS * COLUMNS } else { COLUMNS };
    let count = usize::try_from(dataset.len()).unwrap_or(usize::MAX).min(most);
    let loader = loader(dataset, in_colours(steps), args)
        .batch_size(count)
        .shuffle(args.seed)
        .on_bad_sample(OnBadSample::Skip { at_most: count as u64 });
    let loader = loader.build().await?;
    let Some(batch) = loader.epoch(0).next().await else {
        return Err(Failure::Failed("--sheet: the dataset gave no batch".into()));
    };
    let batch = batch?;
    let marked = batch.instance_fields().next().map(|(_, marked)| marked);
    // In a dataset with boxes, other labels are not classes.
    let label = dataset.schema().fields.iter().find(|field| matches!(field.kind, FieldKind::Label));
    let label = label.filter(|_| marked.is_none());
    let labels = label.and_then(|label| batch[label.name.as_str()].to_vec::<i64>());
    let classes = dataset.schema().classes.as_deref();
    let words = |row: usize| {
        let class = labels.as_ref().map(|labels| {
            let name = usize::try_from(labels[row]).ok().and_then(|label| classes?.get(label));
            name.map_or_else(|| format!("label {}", labels[row]), String::clone)
        });
        let object = dataset.object(batch.records()[row]);
        let class = class.or_else(|| marked.map(|marked| counted(marked.row(row), classes)));
        // The end of a name is more specific than its folders.
        let file = object.rsplit('/').next().unwrap_or(&object).to_owned();
        class.into_iter().chain([file]).collect()
    };
    let [field] = fields else {
        // One row per record: each view with its name below, and the first view also with the record's lines.
        let mut views = Vec::new();
        for (n, field) in fields.iter().enumerate() {
            let name = field.rsplit('.').next().unwrap_or(field);
            let below = |row| {
                let record: Vec<String> = if n == 0 { words(row) } else { Vec::new() };
                std::iter::once(name.to_owned()).chain(record).collect()
            };
            views.push(pictures(&batch[field.as_str()], batch.valid(), below)?);
        }
        return Ok(Cells::in_rows(views));
    };
    let mut cells = pictures(&batch[field.as_str()], batch.valid(), words)?;
    let Cells { height, width, cells: all } = &mut cells;
    for (cell, marks) in all.iter_mut().zip(marked.iter().flat_map(|marked| marked.rows())) {
        mark(&mut cell.rgb, [*height, *width], marks);
    }
    Ok(cells)
}

/// Numbers by class: `2 dog, 1 cat`.
fn counted(marks: RowInstances<'_>, classes: Option<&[String]>) -> String {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    marks.labels.iter().for_each(|label| *counts.entry(*label).or_default() += 1);
    let name = |label: i64| usize::try_from(label).ok().and_then(|label| classes?.get(label));
    let words = counts.into_iter().map(|(label, count)| match name(label) {
        Some(name) => format!("{count} {name}"),
        None => format!("{count} of {label}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Draws boxes and key points and tints masks, with one colour per class.
fn mark(rgb: &mut [u8], [height, width]: [usize; 2], marks: RowInstances<'_>) {
    for (n, ([left, top, right, bottom], label)) in marks.boxes.iter().zip(marks.labels).enumerate() {
        // The golden ratio puts consecutive labels far apart on the colour wheel.
        let turn = (*label as f32 * 0.618_034).rem_euclid(1.0) * 6.0;
        let colour = [0.0, 4.0, 2.0].map(|of| {
            let part = ((turn + of).rem_euclid(6.0) - 3.0).abs() - 1.0;
            (part.clamp(0.0, 1.0) * 255.0) as u8
        });
        let mut put = |x: usize, y: usize, part: u32| {
            let pixel = &mut rgb[(y * width + x) * 3..][..3];
            for (value, of) in pixel.iter_mut().zip(colour) {
                *value = ((u32::from(*value) * (4 - part) + u32::from(of) * part) / 4) as u8;
            }
        };
        if let Some(mask) =
            marks.masks.map(|masks| &masks[n]).filter(|mask| mask.size() == [height, width].map(|n| n as u32))
        {
            let dense = mask.to_dense();
            dense.iter().enumerate().filter(|(_, set)| **set == 1).for_each(|(at, _)| put(at % width, at / width, 2));
        }
        let points = marks.keypoints.unwrap_or_default();
        let each = points.len() / marks.boxes.len();
        for [x, y, _] in points[n * each..][..each].iter().filter(|[_, _, v]| *v > 0.0) {
            let around = |at: &f32, side: usize| (*at as usize).saturating_sub(1)..(*at as usize + 2).min(side);
            around(y, height).for_each(|y| around(x, width).for_each(|x| put(x, y, 4)));
        }
        if height == 0 || width == 0 || right <= left || bottom <= top {
            continue;
        }
        let end = |edge: &f32, most: usize| (edge.ceil() as usize).clamp(1, most) - 1;
        let (x1, x2) = ((*left as usize).min(width - 1), end(right, width));
        let (y1, y2) = ((*top as usize).min(height - 1), end(bottom, height));
        (x1..=x2).for_each(|x| [y1, y2].into_iter().for_each(|y| put(x, y, 4)));
        (y1..=y2).for_each(|y| [x1, x2].into_iter().for_each(|x| put(x, y, 4)));
    }
}

/// Draws of an augmentation in a row of the sheet, in addition to the original.
const DRAWS: usize = 7;

/// One row per augmentation: the original record, then the results of the step in several epochs, with probability 1.
async fn operations(
    dataset: &Arc<dyn Dataset>,
    (field, first): (&str, &str),
    steps: &Steps,
    args: &InspectArgs,
) -> Result<Cells, Failure> {
    let mut chosen: Vec<Op> = Vec::new();
    for transform in std::iter::once(&steps.transform).chain(steps.views.iter().map(|view| &view.transform)) {
        let new = transform.ops().iter().filter(|op| op.is_augmentation() && !chosen.contains(op));
        chosen.extend(new.cloned().collect::<Vec<_>>());
    }
    let ops = if chosen.is_empty() { GALLERY.parse::<Transform>()?.ops().to_vec() } else { chosen };
    // Crop the centre to the transform's size (for views, the first view's), so that only the steps make a difference.
    let sizes = loader(dataset, in_colours(steps), args).batch_size(1).build().await?;
    let Some(shape) = sizes.epoch(0).next().await.transpose()?.map(|batch| batch[first].shape().to_vec()) else {
        return Err(Failure::Failed("--sheet: the dataset gave no batch".into()));
    };
    let [_, height, width, _] = shape[..] else {
        return Err(Failure::Failed(format!("--sheet: {shape:?} are not images")));
    };
    let side = u32::try_from(height.max(width)).unwrap_or(u32::MAX);
    let crop = Op::CenterCrop { size: [height, width].map(|side| u32::try_from(side).unwrap_or(u32::MAX)) };
    let base = Transform::new().resize_shorter(side).push(crop);
    let mut all = Cells { height, width, cells: Vec::new() };
    for (row, op) in ops.iter().enumerate() {
        // A different record for each row, evenly spread, starting at the seed.
        let record = (args.seed + row as u64 * (dataset.len() / ops.len() as u64).max(1)) % dataset.len().max(1);
        let one = subset(Arc::clone(dataset), vec![record])?;
        for transform in [base.clone(), base.clone().push(always(op))] {
            let plain = transform == base;
            let loader = loader(&one, transform.into(), args).batch_size(1).build().await?;
            let mut batches = loader.epochs(0..if plain { 1 } else { DRAWS as u64 });
            while let Some(batch) = batches.next().await {
                let words = |_| vec![if plain { op.name().to_owned() } else { String::new() }];
                all.cells.extend(pictures(&batch?[field], 1, words)?.cells);
            }
        }
    }
    Ok(all)
}

/// The step with probability 1, if it has a probability.
fn always(op: &Op) -> Op {
    let with_p = || {
        let mut value = serde_json::to_value(op).ok()?;
        let p = value.get_mut("p").filter(|p| p.is_number())?;
        *p = 1.into();
        serde_json::from_value(value).ok()
    };
    with_p().unwrap_or_else(|| op.clone())
}

fn in_colours(steps: &Steps) -> Steps {
    let colours = |view: &View| {
        let mut view = view.clone();
        view.transform = as_colours(&view.transform);
        view
    };
    Steps { transform: as_colours(&steps.transform), views: steps.views.iter().map(colours).collect() }
}

/// Removes steps, and noise, that leave the range of colours. Boxes stay in pixels, so that they can be drawn.
fn as_colours(transform: &Transform) -> Transform {
    let ops = transform
        .ops()
        .iter()
        .filter(|op| !matches!(op, Op::Normalize { .. } | Op::ToFloat | Op::ConvertBoundingBoxFormat(_)));
    let in_colours = |op: &Op| match op {
        Op::RandomErasing(step) => {
            let mut step = step.clone();
            step.value = infeed::transform::augment::Erasing::default();
            Op::RandomErasing(step)
        }
        op => op.clone(),
    };
    ops.map(in_colours).fold(Transform::new(), Transform::push)
}

fn pictures(images: &Tensor, count: usize, mut words: impl FnMut(usize) -> Vec<String>) -> Result<Cells, Failure> {
    let (&[_, height, width, channels], Some(bytes)) = (images.shape(), images.as_slice::<u8>()) else {
        return Err(Failure::Failed(format!("--sheet: {:?} {} are not images", images.shape(), images.dtype())));
    };
    let rows = bytes.chunks_exact((height * width * channels).max(1)).take(count).enumerate();
    let cells = rows.map(|(row, pixels)| {
        let pixel = |pixel: &[u8]| if channels < 3 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
        // One channel is gray. Of several channels, the first three are shown as colours.
        Cell { rgb: pixels.chunks_exact(channels.max(1)).flat_map(pixel).collect(), words: words(row) }
    });
    Ok(Cells { height, width, cells: cells.collect() })
}

/// A sheet of images of one size, each with lines of text below.
pub(crate) fn of_pictures(
    [height, width]: [usize; 2],
    pictures: Vec<(Vec<u8>, Vec<String>)>,
) -> Result<Sheet, Failure> {
    let cells = pictures.into_iter().map(|(rgb, words)| Cell { rgb, words }).collect();
    compose(&Cells { height, width, cells }, COLUMNS)
}

/// Stands for omitted letters.
const DOTS: char = '…';
/// Its glyph, as wide as other letters, on the base line.
const THREE_DOTS: [u8; LETTER] = [0, 0, 0, 0, 0, 0b1101_1011, 0b1101_1011, 0];

/// Rows of pixels.
pub(crate) struct Sheet {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) rgb: Vec<u8>,
}

impl Sheet {
    /// A white sheet.
    fn new(width: u32, height: u32) -> Self {
        Self { width, height, rgb: vec![255; width as usize * height as usize * 3] }
    }

    fn put(&mut self, x: usize, y: usize, rgb: [u8; 3]) {
        let at = (y * self.width as usize + x) * 3;
        self.rgb[at..at + 3].copy_from_slice(&rgb);
    }

    /// Writes text in black. Text longer than `most` letters is shortened in its middle.
    fn write(&mut self, left: usize, top: usize, most: usize, words: &str) {
        let letters: Vec<char> = words.chars().collect();
        let shown: Vec<char> = if letters.len() <= most {
            letters
        } else {
            // Keep the beginning and more of the end, which distinguish names: n01…_10026.JPEG.
            let head = most.saturating_sub(1) / 3;
            let tail = most.saturating_sub(1) - head;
            let dots = [DOTS].into_iter().take(most);
            letters[..head].iter().copied().chain(dots).chain(letters[letters.len() - tail..].iter().copied()).collect()
        };
        for (n, letter) in shown.into_iter().enumerate() {
            let known = || font8x8::BASIC_FONTS.get(letter).or_else(|| font8x8::LATIN_FONTS.get(letter));
            let glyph = if letter == DOTS { Some(THREE_DOTS) } else { known() };
            for (y, line) in glyph.unwrap_or([0x7e; LETTER]).into_iter().enumerate() {
                for x in (0..LETTER).filter(|x| line >> x & 1 == 1) {
                    self.put(left + n * LETTER + x, top + y, [0; 3]);
                }
            }
        }
    }
}

fn compose(Cells { height, width, cells }: &Cells, columns: usize) -> Result<Sheet, Failure> {
    let scale = (SIDE / (*height).max(*width).max(1)).max(1);
    let columns = columns.min(cells.len().max(1));
    let rows = cells.len().div_ceil(columns).max(1);
    let lines = cells.iter().map(|cell| cell.words.len()).max().unwrap_or(0);
    let (shown_height, shown_width) = (height * scale, width * scale);
    let (cell_height, cell_width) = (shown_height + lines * LINE + GAP, shown_width + GAP);
    let side = |cells: usize, cell: usize| u32::try_from(cells * cell + GAP);
    let (Ok(sheet_width), Ok(sheet_height)) = (side(columns, cell_width), side(rows, cell_height)) else {
        return Err(Failure::Failed("--sheet: the images are too large; choose a transform that resizes them".into()));
    };
    let mut sheet = Sheet::new(sheet_width, sheet_height);
    for (at, cell) in cells.iter().enumerate() {
        let (top, left) = (at / columns * cell_height + GAP, at % columns * cell_width + GAP);
        for y in 0..shown_height {
            for x in 0..shown_width {
                let pixel = (y / scale * width + x / scale) * 3;
                sheet.put(left + x, top + y, [cell.rgb[pixel], cell.rgb[pixel + 1], cell.rgb[pixel + 2]]);
            }
        }
        for (line, words) in cell.words.iter().enumerate() {
            // Text may continue below neighbours without text.
            let row = &cells[at + 1..cells.len().min(at - at % columns + columns)];
            let free = row.iter().take_while(|cell| cell.words.get(line).is_none_or(String::is_empty)).count();
            let width = shown_width + free * cell_width;
            sheet.write(left, top + shown_height + 3 + line * LINE, width / LETTER, words);
        }
    }
    Ok(sheet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_type() {
        for (name, file_type) in [("a.png", FileType::Png), ("a/b.JPG", FileType::Jpeg), ("a.b.jpeg", FileType::Jpeg)] {
            assert_eq!(FileType::of(Path::new(name)).ok(), Some(file_type), "{name}");
        }
        for name in ["a.webp", "a.gif", "png", "sheet", "a.png/b", "a.pdf"] {
            let Err(Failure::Usage(words)) = FileType::of(Path::new(name)) else { panic!("{name} was taken") };
            assert!(words.contains(name) && words.contains(".png or .jpg"), "{words}");
        }
    }

    #[test]
    fn words_that_are_too_long_are_shortened_in_their_middle() {
        let drawn = |most: usize, words: &str| {
            let mut sheet = Sheet::new(80, 8);
            sheet.write(0, 0, most, words);
            sheet.rgb
        };
        assert!(drawn(10, "n0144_0026") == drawn(20, "n0144_0026"), "what fits stays");
        assert!(drawn(9, "n01440764_10026.JPEG") == drawn(9, "n0…6.JPEG"));
        assert!(drawn(4, "n01440764_10026.JPEG") == drawn(4, "n…EG"));
        assert!(drawn(1, "n01440764") == drawn(1, "…") && drawn(0, "n01440764") == drawn(0, ""));
        // Three dots at the foot of the line, as wide as a letter.
        let dots = drawn(1, "…");
        let dark: Vec<usize> = (0..80 * 8).filter(|at| dots[at * 3] == 0).collect();
        assert_eq!(dark, [400, 401, 403, 404, 406, 407, 480, 481, 483, 484, 486, 487]);
    }
}
