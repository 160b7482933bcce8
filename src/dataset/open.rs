//! Opens a url with the formats of this build.

use infeed_data::{Open, Opener};
use infeed_store::Source;

use super::formats::FORMATS;
use crate::engine::wait_for;

static HERE: Opener = Opener { formats: FORMATS, wait: |opening| wait_for(opening)? };

/// Opens the dataset at `url` and recognises its format by the names of its objects.
///
/// Returns [`Open`]: set its options, then `.await` it (or call [`blocking`](Open::blocking)) to get a
/// [`Dataset`](crate::Dataset).
///
/// # Urls
///
/// | url | opens |
/// |---|---|
/// | a path, `file://` | a folder, or one file |
/// | `s3://`, `gs://`, `az://`, `https://`, `hf://`, `memory://` | a bucket, web server or hub, see [`Source::parse`] |
/// | `synthetic://?count=1000&height=32&width=32&classes=10` | made-up images, see [`SyntheticDataset`](super::SyntheticDataset) |
/// | `s3://bucket/train-{000000..000146}.tar`, `{cats,dogs}.tar` | many files or folders, in this order |
/// | `A::B` | several places, one after the other, joined by [`concat()`](infeed_data::concat()) |
///
/// On a web server (`https://`) a url names its files one by one: each name is looked up, 16 at a time, and nothing is
/// listed. (A server that lists as WebDAV does is read like a folder, see [buckets](crate::guide::buckets).) The server
/// must report lengths and serve ranges.
///
/// # Formats
///
/// | names | format |
/// |---|---|
/// | `data_batch_*.bin`, `test_batch.bin` | CIFAR-10, binary version |
/// | `train.bin`, `test.bin` | CIFAR-100, binary version |
/// | `CLASS/….jpg` | images in class folders; labels are the indices of the sorted folder names |
/// | `….jpg` without folders | images without labels, or with those of [`Open::labels`] |
/// | images and `metadata.csv`, `metadata.jsonl` or (feature `parquet`) `metadata.parquet` | Hugging Face's ImageFolder: `label` is the label, other columns are fields (numbers or text) |
/// | `images/…` and `masks/…`, `a.jpg` and `a_mask.png`, …; or [`Open::mask_files`] | images with a field `mask` ([`Field::mask`](infeed_data::Field::mask)) |
/// | images, with [`Open::channels`] | images of several files, one for each channel |
/// | images and COCO's JSON, named like `_annotations.coco.json` or `annotations/instances_SPLIT.json`; or [`Open::annotations`] | COCO: `image`, `instances`, `image_id` |
/// | `JPEGImages/….jpg` and `Annotations/….xml`; images and XMLs | Pascal VOC (feature `voc`): the same fields |
/// | `images/….jpg` and `labels/….txt`; images, texts and `data.yaml`, `obj.names` or `classes.txt` | YOLO (feature `yolo`): the same fields |
/// | `PATIENT/FIELD.nrrd` (`.nhdr`, `.nii`, `.nii.gz`), `PATIENT_FIELD.nrrd`; nnU-Net, BIDS, BraTS | volumes of patients (feature `volumes`), see [`Open::field`] |
/// | `….dcm`, `.dicom` | DICOM (feature `dicom`): series as volumes, or slices as fields of patients |
/// | one `.npy`, `.npz` or `.safetensors` | arrays as fields; the first axis counts the records. [`Open::columns`] or [`Open::split`] (`x_train` of `train`) choose some |
/// | several `.npy`, also in class folders | one record each, with a field `array` |
/// | `….tar` | WebDataset's tar shards |
/// | `index.json` and `….mds`, plain or compressed | MDS shards of MosaicML's streaming (feature `shards`) |
/// | `….tfrecord`, `.tfrec`, `.record`, also with `.gz`; `train-00000-of-01024` | `tf.train.Example`s (feature `shards`): `image/encoded` is `image`, `image/class/label` is `label` |
/// | `….parquet` | Parquet (feature `parquet`): columns as fields |
/// | `….jsonl`, `….ndjson`; `….json` with a list of objects, by itself or with [`Open::format`] | JSON lines (feature `shards`): the keys of each line as fields, and the images that they name |
/// | `zarr.json`, `.zarray`, `.zgroup` | Zarr 2 and 3 (feature `zarr`): arrays as fields |
/// | `….h5`, `.hdf5`, `.he5`, `.nc4` | HDF5 (feature `hdf5`): datasets as fields |
///
/// Image files are `.jpg`, `.jpeg`, `.png`, `.webp`, `.gif`, `.bmp`, `.tif`, `.tiff`, Netpbm and, with the feature
/// `jxl`, `.jxl`, in upper or lower case. Images become RGB. If all images of a dataset are TIFFs, the first one sets
/// channels and type for all, and a file that differs is a bad sample.
///
/// More about:
///
/// - [class folders, masks and labels](crate::guide::data): which names are masks in every format, and how
///   [`Open::field`] names the kind of a field
/// - [COCO, Pascal VOC and YOLO](crate::guide::detection)
/// - [volumes and DICOM, microscope images, arrays](crate::guide::volumes)
/// - [tar, MDS, TFRecord, Parquet, Zarr and HDF5](crate::guide::shards)
///
/// # Cost
///
/// One listing; [`Open::manifests`] and [`Open::listing`] keep it. The names stay in memory. Formats with an index also
/// read it: the JSON of COCO, the XMLs or texts of VOC and YOLO, the headers of volumes, tars and TFRecords (kept for
/// the next opening of tars and TFRecords), the footers and metadata of Parquet, Zarr and HDF5. No image is decoded.
///
/// # Errors
///
/// | kind | cause |
/// |---|---|
/// | `NotFound` | nothing at the url, or nothing that a format of this build reads; the hint names the missing feature if it can |
/// | `Config` | an option that the format does not take; a folder that may be two things (the error names both) |
/// | `Corrupt`, `Unsupported` | an index or header that is damaged, or of a kind that is not read |
/// | `Io`, `Denied` | the disk or the store failed, or refuses access |
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// assert_eq!(dataset.len(), 50);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
pub fn open(url: impl Into<String>) -> Open {
    Open::of_url(url.into(), &HERE)
}

/// Opens the dataset in `source`, for example in a store of your own. Otherwise as [`open()`].
///
/// ```
/// # futures::executor::block_on(async {
/// use std::sync::Arc;
///
/// use infeed::{dataset::open_source, source::Source};
/// use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
///
/// let store = InMemory::new();
/// for name in ["cats/1.jpg", "cats/2.jpg", "dogs/3.jpg"] {
///     store.put(&Path::from(name), vec![0; 9].into()).await?;
/// }
/// let source = Source::from_store(Arc::new(store), Path::default(), "memory://pets").inline();
/// // Formats are recognised by names: no object is read.
/// let dataset = open_source(source).await?;
/// assert_eq!((dataset.format(), dataset.len()), ("folder", 3));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
pub fn open_source(source: Source) -> Open {
    Open::of_source(source, &HERE)
}
