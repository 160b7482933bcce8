//! The formats of this build: a new one is its own file, and its word here.

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

/// The narrower names first: a folder of CIFAR files may hold a picture as well.
pub(super) static FORMATS: &[&dyn Format] = &[
    &Cifar::Ten,
    &Cifar::Hundred,
    #[cfg(feature = "volumes")]
    &infeed_science::Volumes,
    // Behind volumes, so that the feature changes nothing else: slices lie beside what was made of them.
    #[cfg(feature = "dicom")]
    &infeed_science::Dicom,
    #[cfg(feature = "shards")]
    &infeed_tables::Mds,
    // Folders of images too, and something beside them.
    &Coco,
    #[cfg(feature = "voc")]
    &Voc,
    #[cfg(feature = "yolo")]
    &Yolo,
    &Folder,
    &Arrays,
    &Tar,
    #[cfg(feature = "shards")]
    &infeed_tables::TfRecord,
    // The last, so that the feature changes nothing else: tables of metadata lie beside images and tars.
    #[cfg(feature = "parquet")]
    &infeed_tables::Parquet,
    #[cfg(feature = "zarr")]
    &infeed_science::Zarr,
    #[cfg(feature = "hdf5")]
    &infeed_science::Hdf5,
];
