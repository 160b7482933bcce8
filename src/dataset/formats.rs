//! The formats of this build. A new format is a file of its own and an entry here.

#[cfg(feature = "voc")]
use infeed_data::Voc;
#[cfg(feature = "yolo")]
use infeed_data::Yolo;
use infeed_data::{Arrays, Cifar, Coco, Folder, Format, Tar};

/// The formats that [`open()`](super::open()) tries, in this order.
///
/// ```
/// use infeed::{dataset::formats, source::Object};
///
/// let objects = [Object::new("cats/1.jpg", 91_200), Object::new("dogs/2.jpg", 104_800)];
/// let format = formats().iter().find(|format| format.recognises(&objects)).expect("class folders");
/// assert_eq!(format.name(), "folder");
/// ```
#[must_use]
pub fn formats() -> &'static [&'static dyn Format] {
    FORMATS
}

/// Formats with narrower names come first: a folder of CIFAR files may hold an image as well.
pub(super) static FORMATS: &[&dyn Format] = &[
    &Cifar::Ten,
    &Cifar::Hundred,
    #[cfg(feature = "volumes")]
    &infeed_science::Volumes,
    // After volumes, so that the feature does not change other datasets: slices may lie next to the volumes made of
    // them.
    #[cfg(feature = "dicom")]
    &infeed_science::Dicom,
    #[cfg(feature = "shards")]
    &infeed_tables::Mds,
    // Before `Folder`: these are folders of images, with annotations.
    &Coco,
    #[cfg(feature = "voc")]
    &Voc,
    #[cfg(feature = "yolo")]
    &Yolo,
    &Folder {
        #[cfg(feature = "parquet")]
        parquet: Some(&infeed_tables::Parquet),
        #[cfg(not(feature = "parquet"))]
        parquet: None,
        #[cfg(feature = "shards")]
        lines: Some(&infeed_tables::JsonLines),
        #[cfg(not(feature = "shards"))]
        lines: None,
    },
    &Arrays,
    &Tar,
    #[cfg(feature = "shards")]
    &infeed_tables::TfRecord,
    // Late, so that the feature does not change other datasets: tables of metadata may lie next to images and tars.
    #[cfg(feature = "parquet")]
    &infeed_tables::Parquet,
    // Late: lines of metadata may lie next to images and tars.
    #[cfg(feature = "shards")]
    &infeed_tables::JsonLines,
    #[cfg(feature = "zarr")]
    &infeed_science::Zarr,
    #[cfg(feature = "hdf5")]
    &infeed_science::Hdf5::Rows,
    #[cfg(feature = "hdf5")]
    &infeed_science::Hdf5::Files,
];
