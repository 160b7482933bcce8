//! DICOM: reads a series as a volume, from one file per slice or from the frames of one file.
//!
//! ```text
//! names ─ load.rs ─▶ files ─ element.rs, header.rs ─▶ the elements before the pixels (64 files at a time)
//!   ─ by series, or by folder ─ series.rs ─▶ slices in the order of their positions ─▶ File, as for an NRRD
//!   plan ─┬ a whole volume, or compressed: a shared part, whose slices stack.rs and pixels.rs put together
//!         └ a patch of native pixels: ranges of its slices
//! ```
//!
//! Four things that are easy to get wrong:
//! - Slices are ordered by their positions along the normal, not by file name or InstanceNumber.
//! - Not all bits of a value belong to its pixel: the bits above may hold old overlays. The sign is the highest stored
//!   bit.
//! - Each slice may have its own slope and intercept, as in PET.
//! - A header may claim any size: memory for pixels is allocated only if the file can hold them.
//!
//! No crate is used for the elements: only about thirty of them and the offset of the pixels are needed, from the first
//! bytes of a file, and no memory may be allocated for a length that a file merely claims. JPEG 2000 and JPEG-LS are
//! refused: no decoder in Rust is safe, reads more than 8 bits and builds with our oldest compiler.

mod element;
mod header;
mod load;
mod lossless;
mod pixels;
mod series;
mod stack;
mod syntax;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use infeed_core::error::Result;
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::is_data,
    record::Dataset,
};
use infeed_store::{Object, Source};

pub(super) use self::stack::Stack;

/// Series of DICOM files (`.dcm`, `.dicom`, or without an ending) as volumes: a format for `open`.
///
/// A record is one series with the field `image`. With a pattern or named fields, it is a patient whose folders are
/// fields, as for [`Volumes`](super::Volumes). Each field is `[channels, z, y, x]`; `spacing` and `origin` are `[3]`
/// f32, `patient` is a label. `open` reads each file up to its pixels.
///
/// ```
/// # let element = |group: u16, number: u16, kind: &[u8; 2], value: &[u8]| {
/// #     let head = [&group.to_le_bytes()[..], &number.to_le_bytes(), kind].concat();
/// #     let long = [&[0, 0][..], &(value.len() as u32).to_le_bytes()].concat();
/// #     let len = if kind == b"OW" { long } else { (value.len() as u16).to_le_bytes().to_vec() };
/// #     [head, len, value.to_vec()].concat()
/// # };
/// # let number = |number: u16, value: u16| element(0x28, number, b"US", &value.to_le_bytes());
/// # let file = [
/// #     vec![0; 128], b"DICM".to_vec(), element(2, 0x10, b"UI", b"1.2.840.10008.1.2.1\0"),
/// #     element(0x20, 0xe, b"UI", b"1.2.3\0"), number(2, 1), element(0x28, 4, b"CS", b"MONOCHROME2 "),
/// #     number(0x10, 3), number(0x11, 4), number(0x100, 16), number(0x101, 16), number(0x102, 15), number(0x103, 0),
/// #     element(0x7fe0, 0x10, b"OW", &[7; 24]),
/// # ].concat();
/// use infeed::{
///     dataset::{Dicom, Format},
///     source::Object,
/// };
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().display().to_string();
/// # std::fs::write(folder.path().join("1.dcm"), file).unwrap();
/// assert!(Dicom.recognises(&[Object::new("ct/0001.dcm", 526_336)]));
/// // A series of one slice.
/// let dataset = infeed::open(path).format("dicom").blocking()?;
/// assert_eq!((dataset.len(), dataset.format()), (1, Dicom.name()));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dicom;

impl Format for Dicom {
    fn name(&self) -> &'static str {
        "dicom"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|object| load::has_ending(&object.name))
    }

    fn reads(&self, name: &str) -> bool {
        load::has_ending(name) || !is_data(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Pattern, OpenOption::SamplesPerPatient, OpenOption::Field]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move { Ok(Arc::new(load::load(source, &objects, options).await?) as Arc<dyn Dataset>) }.boxed()
    }
}

#[cfg(test)]
mod tests;
