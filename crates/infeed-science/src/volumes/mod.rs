//! Medical volumes: NRRD and NIfTI files, grouped into patients.
//!
//! ```text
//! names ─ layout.rs, names.rs ─▶ patients × fields ─ header.rs, nrrd.rs, nifti.rs ─▶ type, shape, offset (read once, by `open`)
//!   plan ─┬ compressed, or a whole volume: a shared part, read and decoded once for all samples of the patient
//!         └ a patch of a raw file: its ranges (`cover`)
//! ```
//!
//! Three things that are easy to get wrong:
//! - Files list their axes fastest first (x, y, z); tensors are `[channels, z, y, x]`.
//! - A header may claim any size: memory is allocated only for as many voxels as the file can hold.
//! - Voxels need not be aligned, and may be in the other byte order: only the voxels that are read are byte-swapped.

mod dataset;
mod decode;
#[cfg(feature = "dicom")]
mod dicom;
mod header;
mod kinds;
mod layout;
mod load;
mod names;
mod nifti;
#[cfg(not(feature = "dicom"))]
mod no_dicom;
mod nrrd;
mod words;

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use infeed_core::error::Result;
use infeed_data::{
    format::{Format, OpenOption, OpenOptions},
    names::is_data,
    record::Dataset,
};
use infeed_store::{Object, Source};

#[cfg(feature = "dicom")]
use self::dicom::Stack;
use self::load::load;
#[cfg(not(feature = "dicom"))]
use self::no_dicom::Stack;

/// The parsers of this format, for fuzzing.
pub mod fuzz {
    pub use super::{
        decode::decode_volume,
        header::{Coding, DataFiles, VolumeHeader},
        nifti::parse_nifti,
        nrrd::parse_nrrd,
    };
}

/// Volumes in NRRD (`.nrrd`, `.nhdr`) and NIfTI (`.nii`, `.nii.gz`) files, grouped by patient: a format for `open`.
///
/// A record is one patient, or one of several samples of a patient. Each field of volumes is `[channels, z, y, x]`;
/// `spacing` and `origin` are `[3]` f32, `patient` is a label. `open` reads the header of each file.
///
/// ```
/// use infeed::{
///     dataset::{Format, Volumes},
///     source::Object,
/// };
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().display().to_string();
/// # let header = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n\n";
/// # for name in ["p1_ct.nrrd", "p1_mask.nrrd"] {
/// #     std::fs::write(folder.path().join(name), [header.as_bytes(), &[7; 24]].concat()).unwrap();
/// # }
/// assert!(Volumes.recognises(&[Object::new("p1_ct.nrrd", 31_457_640)]));
/// let dataset = infeed::open(path).format("volumes").field("image", ["ct"]).field("mask", ["mask"]).blocking()?;
/// assert_eq!((dataset.len(), &dataset.schema().fields[1].name[..]), (1, "mask"));
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Volumes;

impl Format for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|object| names::stem(&object.name).is_some())
    }

    fn reads(&self, name: &str) -> bool {
        names::stem(name).is_some() || !is_data(name)
    }

    fn options(&self) -> &'static [OpenOption] {
        &[OpenOption::Pattern, OpenOption::SamplesPerPatient, OpenOption::Field, OpenOption::Split]
    }

    fn open<'a>(
        &'a self,
        source: &'a Source,
        objects: Vec<Object>,
        options: &'a OpenOptions,
    ) -> BoxFuture<'a, Result<Arc<dyn Dataset>>> {
        async move { Ok(Arc::new(load(source, &objects, options).await?) as Arc<dyn Dataset>) }.boxed()
    }
}

#[cfg(feature = "dicom")]
pub use self::dicom::Dicom;

#[cfg(test)]
mod tests;
