//! The contact sheet of `inspect`: what a model would see, but for the normalisation.

use std::{path::Path, sync::Arc};

use futures::StreamExt;
use infeed::{
    DType, Dataset, Device, Layout, Loader, OnBadSample, Tensor,
    dataset::FieldKind,
    sampler::{LastBatch, Shard},
    transform::{Op, Transform},
};

use crate::{args::InspectArgs, failure::Failure, out, rgb_png};

/// Pictures in a row of the sheet; as many rows at most.
const COLUMNS: usize = 6;
/// Pixels between pictures.
const GAP: usize = 4;
/// Small pictures are shown this large at least, in whole multiples.
const SIDE: usize = 96;

/// Writes a PNG of up to 36 transformed records; gives their number.
pub(crate) async fn write(
    dataset: &Arc<dyn Dataset>,
    transform: Transform,
    args: &InspectArgs,
    path: &Path,
) -> Result<usize, Failure> {
    let field = dataset.schema().fields.iter().find(|field| matches!(field.kind, FieldKind::Image { .. }));
    let Some(field) = field else {
        return Err(Failure::Failed("--sheet: the dataset has no images".into()));
    };
    let count = usize::try_from(dataset.len()).unwrap_or(usize::MAX).min(COLUMNS * COLUMNS);
    let mut loader = Loader::builder(Arc::clone(dataset))
        .device(Device::Cpu)
        .batch_size(count)
        .shuffle(args.seed)
        .shard(Shard::default())
        .last_batch(LastBatch::Partial)
        .transform(as_colours(&transform))
        .dtype(DType::U8)
        .layout(Layout::Nhwc)
        .prefetch(1)
        .on_bad_sample(OnBadSample::Skip { at_most: count as u64 });
    if let Some(bytes) = args.max_image_bytes {
        loader = loader.max_image_bytes(bytes.0);
    }
    let loader = loader.build().await?;
    let Some(batch) = loader.epoch(0).next().await else {
        return Err(Failure::Failed("--sheet: the dataset gave no batch".into()));
    };
    let batch = batch?;
    let sheet = compose(&batch[field.name.as_str()], batch.valid())?;
    let file = rgb_png::encode(&sheet.rgb, sheet.width, sheet.height);
    out::replace(path, &file.map_err(|error| Failure::Failed(format!("--sheet: {error}")))?)?;
    Ok(batch.valid())
}

/// Without the steps that leave the range of colours.
fn as_colours(transform: &Transform) -> Transform {
    let ops = transform.ops().iter().filter(|op| !matches!(op, Op::Normalize { .. } | Op::ToFloat));
    ops.cloned().fold(Transform::new(), Transform::push)
}

/// Rows of pixels.
struct Sheet {
    width: u32,
    height: u32,
    rgb: Vec<u8>,
}

impl Sheet {
    /// All white.
    fn new(width: u32, height: u32) -> Self {
        Self { width, height, rgb: vec![255; width as usize * height as usize * 3] }
    }

    fn put(&mut self, x: usize, y: usize, rgb: [u8; 3]) {
        let at = (y * self.width as usize + x) * 3;
        self.rgb[at..at + 3].copy_from_slice(&rgb);
    }
}

fn compose(images: &Tensor, count: usize) -> Result<Sheet, Failure> {
    let (&[_, height, width, channels], Some(bytes)) = (images.shape(), images.as_slice::<u8>()) else {
        return Err(Failure::Failed(format!("--sheet: {:?} {} are no pictures", images.shape(), images.dtype())));
    };
    let scale = (SIDE / height.max(width).max(1)).max(1);
    let columns = COLUMNS.min(count.max(1));
    let rows = count.div_ceil(columns).max(1);
    let (cell_height, cell_width) = (height * scale + GAP, width * scale + GAP);
    let side = |cells: usize, cell: usize| u32::try_from(cells * cell + GAP);
    let (Ok(sheet_width), Ok(sheet_height)) = (side(columns, cell_width), side(rows, cell_height)) else {
        return Err(Failure::Failed(
            "--sheet: the pictures are too large; choose a transform that resizes them".into(),
        ));
    };
    let mut sheet = Sheet::new(sheet_width, sheet_height);
    for (at, image) in bytes.chunks_exact((height * width * channels).max(1)).take(count).enumerate() {
        let (top, left) = (at / columns * cell_height + GAP, at % columns * cell_width + GAP);
        for y in 0..height * scale {
            for x in 0..width * scale {
                let pixel = &image[(y / scale * width + x / scale) * channels..][..channels];
                // One channel is gray; of many, the first three stand for colours.
                let rgb = if channels < 3 { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
                sheet.put(left + x, top + y, rgb);
            }
        }
    }
    Ok(sheet)
}
