//! A volume of slices, in the order of their positions.

use std::ops::Range;

use bytes::Bytes;
use infeed_core::{
    error::{Error, Result},
    types::DType,
};
use infeed_store::Extent;

use super::{
    pixels::{Layout, Opened},
    syntax::Pixels,
};
use crate::volumes::header::{VolumeHeader, cover};

/// One slice of a volume.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::volumes) struct Slice {
    /// Index of its file among the volume's.
    pub(super) file: u32,
    /// Index of the frame in that file.
    pub(super) frame: u32,
    /// Its slope and intercept, if slices differ in them: decoding then applies them, and the voxels are values.
    pub(super) rescale: Option<[f64; 2]>,
}

/// The slices of a volume. `VolumeHeader` holds the rest.
#[derive(Debug)]
pub(in crate::volumes) struct Stack {
    /// One layout per file, or one for all files if they are equal.
    pub(super) layouts: Vec<Layout>,
    /// From the first plane to the last.
    pub(super) slices: Vec<Slice>,
}

impl Stack {
    fn layout(&self, slice: &Slice) -> &Layout {
        self.layouts.get(slice.file as usize).unwrap_or(&self.layouts[0])
    }

    /// Whether a box of voxels can be read as ranges of the files.
    pub(in crate::volumes) fn has_boxes(&self) -> bool {
        self.layouts.len() == 1 && self.layouts[0].pixels == Pixels::Native && self.slices[0].rescale.is_none()
    }

    /// The ranges of a box, one per plane or one per line, and the strides of the voxels within each.
    pub(in crate::volumes) fn cover(
        &self,
        header: &VolumeHeader,
        data: &[Extent],
        window: &[Range<usize>; 3],
        one: bool,
    ) -> (Vec<Extent>, [usize; 3]) {
        let mut extents = Vec::new();
        let (mut pitch, _) = header.pitch();
        for slice in &self.slices[window[0].clone()] {
            let file = &data[slice.file as usize];
            let at = file.range.start + u64::from(slice.frame) * self.layout(slice).frame_bytes() as u64;
            let cover = cover(header, at, &[0..1, window[1].clone(), window[2].clone()], one);
            extents.extend(cover.ranges.into_iter().map(|range| file.clone().with_range(range)));
            pitch = cover.pitch;
        }
        (extents, pitch)
    }

    /// The voxels of a range of native pixels.
    pub(in crate::volumes) fn settled(&self, piece: &Bytes) -> Bytes {
        let layout = &self.layouts[0];
        if layout.is_plain() {
            return piece.clone();
        }
        let mut own = Vec::with_capacity(piece.len());
        layout.settle(piece, &mut own);
        own.into()
    }

    /// Decodes all voxels from the bytes of each file.
    pub(in crate::volumes) fn decode(&self, header: &VolumeHeader, files: &[Bytes]) -> Result<Bytes> {
        let mut voxels = Vec::new();
        let mut pixels = Vec::new();
        // The slices of a file usually follow one another, so it is opened once.
        let mut open: Option<(u32, Opened)> = None;
        for slice in &self.slices {
            let layout = self.layout(slice);
            let opened = match open.take().filter(|(file, _)| *file == slice.file) {
                Some((_, opened)) => opened,
                None => {
                    let none = || Error::corrupt(format!("{} files, expected {} or more", files.len(), slice.file + 1));
                    layout.open(files.get(slice.file as usize).ok_or_else(none)?)?
                }
            };
            match slice.rescale {
                None => layout.frame(&opened, slice.frame as usize, &mut voxels)?,
                Some(rescale) => {
                    pixels.clear();
                    layout.frame(&opened, slice.frame as usize, &mut pixels)?;
                    rescaled(&pixels, stored(layout), rescale, &mut voxels);
                }
            }
            open = Some((slice.file, opened));
            // The first slice decoded as its header says; only now allocate memory for all.
            if voxels.capacity() < header.len_bytes() {
                voxels.reserve_exact(header.len_bytes().saturating_sub(voxels.len()));
            }
        }
        Ok(voxels.into())
    }

    pub(in crate::volumes) fn resident_bytes(&self) -> usize {
        self.layouts.len() * size_of::<Layout>() + self.slices.len() * size_of::<Slice>()
    }
}

/// The type of the stored pixels, before they are rescaled to values.
fn stored(layout: &Layout) -> DType {
    match (layout.bits.allocated, layout.bits.signed) {
        (8, false) => DType::U8,
        (8, true) => DType::I8,
        (16, false) => DType::U16,
        (16, true) => DType::I16,
        (_, false) => DType::U32,
        (_, true) => DType::I32,
    }
}

/// Rescales pixels to f32 values, rounded once.
fn rescaled(pixels: &[u8], dtype: DType, [slope, intercept]: [f64; 2], out: &mut Vec<u8>) {
    macro_rules! rescaled {
        ($n:literal $rust:ty) => {
            for value in pixels.as_chunks::<$n>().0 {
                let value = f64::from(<$rust>::from_ne_bytes(*value)) * slope + intercept;
                out.extend_from_slice(&(value as f32).to_ne_bytes());
            }
        };
    }
    match dtype {
        DType::U8 => rescaled!(1 u8),
        DType::I8 => rescaled!(1 i8),
        DType::U16 => rescaled!(2 u16),
        DType::I16 => rescaled!(2 i16),
        DType::U32 => rescaled!(4 u32),
        _ => rescaled!(4 i32),
    }
}
