//! DICOM: the slices of a series, each a file, or the frames of one, as volumes.
//!
//! ```text
//! names ─ load.rs ─▶ files ─ element.rs, header.rs ─▶ what stands before the pixels (64 files at a time)
//!   ─ by series, or by folder ─ series.rs ─▶ slices in the order of their places ─▶ File, as of an NRRD
//!   plan ─┬ all of a volume, or compressed: a shared part, whose slices stack.rs and pixels.rs put together
//!         └ a patch of native pixels: ranges of its slices
//! ```
//!
//! Four things that are easy to get wrong:
//! - Neither names nor InstanceNumber order slices: their places along the normal do.
//! - A value has bits that are none of its pixel's: above them old overlays may lie, and a sign ends at the highest stored bit.
//! - Slope and intercept may be each slice's own, as in PET.
//! - Headers lie: pixels are set aside only when a file has room for them.
//!
//! The elements are read here and not by a crate: what is asked for is thirty of them and where the pixels begin, of a
//! piece of a file, and nothing may be set aside for a length that is said. JPEG 2000 and JPEG-LS are refused: of their
//! decoders in Rust none is at the same time safe, for more than 8 bits and for our oldest compiler.

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
    record::Dataset,
};
use infeed_store::{Object, Source};

pub(super) use self::stack::Stack;

/// DICOM files (`.dcm`, `.dicom`, or without an ending), a format for `open`).
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
