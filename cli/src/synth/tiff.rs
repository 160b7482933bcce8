//! Class folders of small images of many channels, as a microscope gives them: plain TIFFs.

use infeed::{DType, dataset::SampleRng};

use super::{files::Files, plan::Plan};
use crate::{
    args::{TiffArgs, TiffLayout},
    failure::Failure,
};

/// What the images are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub height: u32,
    pub width: u32,
    pub channels: u32,
    pub dtype: DType,
    pub layout: TiffLayout,
}

impl Shape {
    pub(super) fn new(args: &TiffArgs) -> Result<Self, Failure> {
        let (height, width) = args.size.map_or((50, 50), |size| (size.height, size.width));
        let shape = Self {
            height,
            width,
            channels: args.channels.unwrap_or(5),
            dtype: args.pixels.map_or(DType::U8, DType::from),
            layout: args.planes.unwrap_or(TiffLayout::Interleaved),
        };
        // The format's offsets are 32 bits wide.
        if shape.bytes() >= 1 << 31 {
            return Err(Failure::Usage("--size: an image of 2 GiB or more is too large".into()));
        }
        Ok(shape)
    }

    const fn bytes(&self) -> u64 {
        self.height as u64 * self.width as u64 * self.channels as u64 * self.dtype.size() as u64
    }
}

/// Images dealt to classes in turn; `files` puts each channel into a file of its own.
#[derive(Debug)]
pub(super) struct Tiffs {
    plan: Plan,
    shape: Shape,
}

impl Tiffs {
    pub(super) const fn new(plan: Plan, shape: Shape) -> Self {
        Self { plan, shape }
    }

    /// Files of one image.
    const fn per(&self) -> usize {
        if matches!(self.shape.layout, TiffLayout::Files) { self.shape.channels as usize } else { 1 }
    }

    /// One channel of an image: bright cells on a dark ground, under noise. Cells lie at the same places in all
    /// channels, each stains them differently; the class says how.
    fn plane(&self, image: usize, channel: u32) -> Vec<f32> {
        let Shape { height, width, .. } = self.shape;
        let rng = SampleRng::new(self.plan.seed, 3, image as u64);
        let mut places = rng.op(0);
        let class = image as u64 % self.plan.classes;
        let (h, w) = (f64::from(height), f64::from(width));
        let cells: Vec<[f32; 3]> = (0..3 + places.below(4))
            .map(|_| {
                let radius = places.between(0.06, 0.16) * h.min(w);
                [places.between(0.0, h) as f32, places.between(0.0, w) as f32, radius as f32]
            })
            .collect();
        let stain = 0.25 + 0.5 * ((class * 7 + u64::from(channel) * 3) % 5) as f32 / 4.0;
        let ground = 0.05 + 0.04 * (channel % 5) as f32;
        let mut noise = rng.op(1 + channel);
        let mut pixels = Vec::with_capacity(height as usize * width as usize);
        for y in 0..height {
            for x in 0..width {
                let mut light = ground;
                for [cy, cx, radius] in &cells {
                    let (dy, dx) = (y as f32 - cy, x as f32 - cx);
                    light += stain * (1.0 - (dy * dy + dx * dx) / (radius * radius)).max(0.0);
                }
                pixels.push((light + 0.04 * (noise.unit() - 0.5)).clamp(0.0, 1.0));
            }
        }
        pixels
    }

    fn put(&self, value: f32, out: &mut Vec<u8>) {
        match self.shape.dtype {
            DType::U16 => out.extend(((value * 65_535.0) as u16).to_le_bytes()),
            DType::F32 => out.extend(value.to_le_bytes()),
            _ => out.push((value * 255.0) as u8),
        }
    }

    fn planes(&self, image: usize, channels: std::ops::Range<u32>) -> Vec<u8> {
        let planes: Vec<Vec<f32>> = channels.map(|channel| self.plane(image, channel)).collect();
        let mut out = Vec::with_capacity(self.shape.bytes() as usize);
        match self.shape.layout {
            TiffLayout::Interleaved => {
                (0..planes[0].len()).for_each(|i| planes.iter().for_each(|plane| self.put(plane[i], &mut out)));
            }
            _ => planes.iter().flatten().for_each(|value| self.put(*value, &mut out)),
        }
        out
    }
}

impl Files for Tiffs {
    fn len(&self) -> usize {
        self.plan.count as usize * self.per()
    }

    fn path(&self, index: usize) -> String {
        let image = index / self.per();
        let class = image as u64 % self.plan.classes;
        match self.shape.layout {
            TiffLayout::Files => format!("class{class}/{image:06}_{}.tif", index % self.per() + 1),
            _ => format!("class{class}/{image:06}.tif"),
        }
    }

    fn bytes(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let image = index / self.per();
        let Shape { channels, .. } = self.shape;
        Ok(match self.shape.layout {
            TiffLayout::Files => {
                let channel = (index % self.per()) as u32;
                encode(&self.shape, 1, 1, &self.planes(image, channel..channel + 1))
            }
            TiffLayout::Pages => encode(&self.shape, 1, channels, &self.planes(image, 0..channels)),
            TiffLayout::Interleaved | TiffLayout::Planar => {
                encode(&self.shape, channels, 1, &self.planes(image, 0..channels))
            }
        })
    }
}

/// A plain little-endian TIFF of one strip a plane: the directories come first, the pixels behind them in one stretch.
fn encode(shape: &Shape, samples: u32, pages: u32, pixels: &[u8]) -> Vec<u8> {
    const SHORT: u16 = 3;
    const LONG: u16 = 4;
    const ENTRIES: u32 = 12;
    let planar = shape.layout == TiffLayout::Planar && samples > 1;
    let planes = if planar { samples } else { 1 };
    let bits = 8 * shape.dtype.size() as u16;
    let format: u16 = if shape.dtype == DType::F32 { 3 } else { 1 };
    // Behind each directory: bits, formats and kinds of each sample, offsets and lengths of each plane.
    let lists = samples * 2 * 3 + planes * 4 * 2;
    let page_bytes = (2 + ENTRIES * 12 + 4 + lists).next_multiple_of(8);
    let first_pixel = 8 + pages * page_bytes;
    let plane_bytes = pixels.len() as u32 / (pages * planes);
    let mut out = b"II*\0\x08\0\0\0".to_vec();
    for page in 0..pages {
        let start = 8 + page * page_bytes;
        let lists_at = start + 2 + ENTRIES * 12 + 4;
        let mut behind: Vec<u8> = Vec::new();
        let mut entry = |out: &mut Vec<u8>, tag: u16, kind: u16, values: &[u32]| {
            let mut bytes = Vec::new();
            for value in values {
                match kind {
                    SHORT => bytes.extend((*value as u16).to_le_bytes()),
                    _ => bytes.extend(value.to_le_bytes()),
                }
            }
            out.extend(tag.to_le_bytes());
            out.extend(kind.to_le_bytes());
            out.extend((values.len() as u32).to_le_bytes());
            if bytes.len() > 4 {
                out.extend((lists_at + behind.len() as u32).to_le_bytes());
                behind.extend(bytes);
            } else {
                bytes.resize(4, 0);
                out.extend(bytes);
            }
        };
        let each = |value: u16| vec![u32::from(value); samples as usize];
        let plane_at = |plane: u32| first_pixel + (page * planes + plane) * plane_bytes;
        out.extend((ENTRIES as u16).to_le_bytes());
        entry(&mut out, 256, LONG, &[shape.width]);
        entry(&mut out, 257, LONG, &[shape.height]);
        entry(&mut out, 258, SHORT, &each(bits));
        entry(&mut out, 259, SHORT, &[1]);
        // 0 is black; all samples but the first are extra ones.
        entry(&mut out, 262, SHORT, &[1]);
        entry(&mut out, 273, LONG, &(0..planes).map(plane_at).collect::<Vec<_>>());
        entry(&mut out, 277, SHORT, &[samples]);
        entry(&mut out, 278, LONG, &[shape.height]);
        entry(&mut out, 279, LONG, &vec![plane_bytes; planes as usize]);
        entry(&mut out, 284, SHORT, &[if planar { 2 } else { 1 }]);
        // One at least: a reader may not like an empty list.
        entry(&mut out, 338, SHORT, &vec![0; samples.saturating_sub(1).max(1) as usize]);
        entry(&mut out, 339, SHORT, &each(format));
        let next = if page + 1 < pages { start + page_bytes } else { 0 };
        out.extend(next.to_le_bytes());
        out.extend(behind);
        out.resize((start + page_bytes) as usize, 0);
    }
    out.extend_from_slice(pixels);
    out
}

#[cfg(test)]
mod tests {
    use infeed::codec::{ImageCodec, Tiff};

    use super::*;
    use crate::args::SynthKind;

    #[test]
    fn every_layout_is_read_back_with_the_same_pixels() {
        let plan = Plan { kind: SynthKind::Tiff, count: 3, classes: 2, seed: 7, side: 144, raw: false };
        for dtype in [DType::U8, DType::U16, DType::F32] {
            let shape = |layout| Shape { height: 9, width: 7, channels: 4, dtype, layout };
            let planar = Tiffs::new(plan, shape(TiffLayout::Planar));
            let pixels = planar.planes(2, 0..4);
            for layout in [TiffLayout::Planar, TiffLayout::Pages, TiffLayout::Interleaved, TiffLayout::Files] {
                let files = Tiffs::new(plan, shape(layout));
                let per = files.per();
                let mut planes = Vec::new();
                for n in 0..per {
                    let file = files.bytes(2 * per + n).unwrap();
                    let (info, at) = Tiff.in_place(&file).unwrap().expect("plain files are read in place");
                    assert_eq!((info.height, info.width, info.dtype), (9, 7, dtype));
                    assert_eq!(usize::from(info.channels) * per, 4);
                    assert_eq!(info.planar, matches!(layout, TiffLayout::Planar | TiffLayout::Pages));
                    planes.extend_from_slice(&file[at]);
                }
                if layout == TiffLayout::Interleaved {
                    let size = dtype.size();
                    let at = (0..4).flat_map(|c| (0..63).map(move |i| (i * 4 + c) * size));
                    planes = at.flat_map(|at| planes[at..at + size].to_vec()).collect();
                }
                assert_eq!(planes, pixels, "{layout:?} of {dtype}");
            }
        }
    }
}
