//! From a url to a dataset, by the formats of this build.

use std::num::NonZeroUsize;

use infeed_data::{Open, Opener};
use infeed_store::Source;

use super::formats::FORMATS;
use crate::engine::IoRuntime;

static HERE: Opener =
    Opener { formats: FORMATS, wait: |opening| IoRuntime::with_threads(NonZeroUsize::MIN)?.wait_for(opening)? };

/// Opens the dataset at `url`: a path, `file://`, `memory://`, `s3://` and others (see [`Source::parse`]), or
/// `synthetic://?count=1000&height=32&width=32&classes=10` (see [`SyntheticDataset`](super::SyntheticDataset)).
///
/// The format is recognised by the names of the objects:
///
/// | names | is |
/// |---|---|
/// | `data_batch_*.bin`, `test_batch.bin` | CIFAR-10, binary version |
/// | `train.bin`, `test.bin` | CIFAR-100, binary version |
/// | `CLASS/….jpg` (`.jpeg`, `.png`, `.webp`, `.bmp`, `.tif`, `.tiff`; with the feature `jxl` `.jxl`; in any case) | images in class folders; labels count the sorted folder names |
/// | `PATIENT/FIELD.nrrd` (`.nhdr`, `.nii`, `.nii.gz`), or `PATIENT_FIELD.nrrd`; `imagesTr/CASE.nii` and `labelsTr/CASE.nii`; names of nnU-Net, BIDS, BraTS | volumes of patients, see [`Open::field`], and [the names that are known](crate::guide::volumes) |
/// | `….dcm` (`.dicom`; feature `dicom`) | DICOM: each series a volume, or folders of slices as fields of patients, see below |
/// | `….jpg` without folders | images without labels, or with those of [`Open::labels`] |
/// | images and `metadata.csv` or `metadata.jsonl` with a `file_name`, beside them or in a folder above | Hugging Face's ImageFolder: its `label` is the label, other columns are fields: numbers, or bytes |
/// | `images/…` and `masks/…`, `train/…` and `train_masks/…`, `a.jpg` and `a_mask.png`, and other names of public datasets; or as [`Open::mask_files`] says | images, and a field `mask` of the file of the same name (see [`Field::mask`](infeed_data::Field::mask)) |
/// | one `.npy`, `.npz` or `.safetensors` | arrays as fields; the first axis of each counts the records, which are read by range; [`Open::columns`] or [`Open::split`] (`x_train` of `train`) choose some |
/// | several `.npy`, in class folders or not | a record each, with one field `array` |
/// | any images, with [`Open::annotations`]; images and one `_annotations.coco.json`, `annotations.json` or the like; `annotations/instances_SPLIT.json` beside `SPLIT/….jpg` or `images/SPLIT/….jpg` | COCO: `image`, `instances` and `image_id`, see below |
/// | `JPEGImages/….jpg` and `Annotations/….xml`; images with an XML beside them or in `annotations` | Pascal VOC (feature `voc`): `image`, `instances` and `image_id`, see below |
/// | `images/….jpg` and `labels/….txt`; or beside each other, and `data.yaml`, `obj.names` or `classes.txt` | YOLO (feature `yolo`): `image`, `instances` and `image_id`, see below |
/// | any images, with [`Open::channels`] | images of several files, one for each channel |
/// | `….tar` | tar shards as WebDataset makes them, see below |
/// | `index.json`, `shard.00000.mds` (`.mds.zstd`, `.gz`, `.bz2`, `.snappy`) | MDS shards of MosaicML's streaming: jpeg, png, pil and lists of one of these, numbers, str, json, bytes, ndarray |
/// | `….parquet` | Parquet with images in its columns (feature `parquet`), see below |
/// | `zarr.json`, or `.zarray` and `.zgroup` (a folder called `….zarr`) | Zarr, versions 2 and 3 (feature `zarr`): arrays as fields, the first axis of each counts the records, see below |
/// | `….h5`, `.hdf5`, `.he5`, `.nc4` | HDF5 (feature `hdf5`): datasets as fields, the first axis of each counts the records, see below |
/// | `….tfrecord`, `.tfrec`, `.record`, with `.gz` or not, `train-00000-of-01024` | `tf.train.Example`s; `image/encoded` is `image`, `image/class/label` is `label` |
///
/// Images become RGB, but for a dataset of TIFFs alone: then the first one tells channels and type for all, and a file
/// that differs is a bad sample. Masks keep the numbers that their files store: indices of palettes, 0 and 1 of single bits.
///
/// **Masks.** Images whose fields are called as masks, `mask`, `label`, `seg_map`, `tumor_mask`, `annotation`, are masks in every
/// format ([`Field::picture`](infeed_data::Field::picture)); what else a field is, [`Open::field`] says.
///
/// A url may name many objects: `s3://bucket/train-{000000..000146}.tar`, `{cats,dogs}.tar`, or several with `::` between
/// them, which follow one another as [`concat()`](infeed_data::concat()) puts them. At a web server (`https://`) each is looked up,
/// 16 at a time, and nothing is listed; it has to give lengths and ranges.
///
/// **Tar shards.** Files whose names are equal up to the first dot are a sample; its fields come from the extensions:
/// images are `image`, `.cls` is `label`, `.json` and `.txt` are bytes of that name ([`Batch::bytes`](crate::Batch::bytes)),
/// `.npy` is an array of one shape, `.image.npy` an image as pixels; of `depth.png` the field is `depth`. The field `key` is the
/// name they share. Other extensions are read when [`Open::columns`] names them. Every sample has every field, or opening
/// says which has not. A file that is there twice is an error, and so is a key that comes again in its shard; shards may
/// share keys. Compressed tars are not read: `infeed stage` unpacks them. The places of all members are in memory, 16 bytes
/// each beside the keys.
///
/// **COCO.** Records are the images that the JSON lists, with boxes or without, in the order of the bytes of their
/// `file_name`; files that it does not list are left out, which a warning counts, and an image without a file is an error.
/// File names are relative to the dataset, or to the folder of the [split](Open::split) (`train2017` is in `train2017/` or
/// `images/train2017/`, and in `annotations/instances_train2017.json`). `instances` are
/// [`Instances`](infeed_data::Instances): boxes as `xyxy`, `iscrowd`, the ids of annotations, with [`Open::masks`] outlines;
/// `image_id` is the JSON's, or the place of the image where ids are no whole numbers. Annotations of images that are not
/// listed and polygons of fewer than three corners are left out, with a warning. Class indices count the categories in the order of their ids: COCO's 1 to 90 are 0 to 79. A
/// box of negative size, outside the image or without numbers, and a broken outline, make their image a bad sample. All
/// of it is in memory: 29 bytes a box, beside the outlines.
///
/// **Pascal VOC.** Records are the images with an XML, or those of the [split](Open::split)'s list,
/// `ImageSets/Main/train.txt`, in the order of their names. The files count pixels from 1 and the last is inside;
/// `instances` count as everywhere here, so a box is `xmin - 1`, `ymin - 1`, `xmax`, `ymax` (torchvision leaves them as they
/// are written). Difficult objects are [`crowd`](infeed_data::Instances::crowd); `image_id` is the number of the record. Classes
/// are VOC's twenty in the order of the alphabet, or the sorted names where there are others or the folders are not VOC's. Opening reads all XMLs, in
/// the encoding that each says (`GBK`, `UTF-16`, …). An object without a `bndbox` has that of its `polygon`.
///
/// **YOLO.** Records are the images, in the order of their names; those without a text have no boxes, which a warning counts. Numbers are
/// parts of the image's width and height, in pixels when it is read. A line of four is a box, one of six or more an outline, kept with
/// [`Open::masks`]. Classes are those that `data.yaml` or a list names, else numbers; `image_id` is the number of the record. Opening
/// reads all texts. A line that is no box makes its image a bad sample; where no line is one, opening fails.
///
/// **Parquet.** A row is a record, a column a field of its name: `struct<bytes, path>` of Hugging Face's `datasets` and
/// columns of bytes are images when the file's metadata call them so or a codec knows the first value, else bytes;
/// texts are bytes (none is empty); `ClassLabel`s (with their names), `label` and `cls` are labels; other numbers are
/// arrays of one, in a type that holds them: `uint32` is i64, `uint64` is u64, half floats are f16. Lists, decimals and
/// bytes of fixed length are not read, which a warning says once; columns within other structs are when
/// [`Open::columns`] names them (`image.path`). A row without an image or number is a bad sample. Files with several splits take [`Open::split`]; tables that lie beside
/// images or other shards take [`Open::format`], or the url of their folder. Opening reads the footers, and a page of
/// columns of unknown bytes. A row group is read and decoded once for all its rows, column by column, as long as the
/// loader's memory holds it; one and its bytes as they are stored must fit into `memory_budget`, and several are better:
/// write groups of 100 to 1000 images, and read with [`Order::Blocks`](crate::Order::Blocks), for an order that jumps
/// reads a group for each record. No footer tells the longest text, so each row of a batch counts the whole column of a
/// row group for it: name the [columns](Open::columns) that are needed. Groups of a bucket are read
/// ahead, in the order in which batches need them. Not read: Brotli, LZO, Hadoop's LZ4, `DELTA_BYTE_ARRAY`, encryption.
///
/// **Zarr.** The arrays of a group are fields, called by their paths below it (`extra/weight`); one that is opened by itself is
/// `array`. The first axis counts the records: arrays that have another number of them are an error until [`Open::columns`]
/// names those to read; single numbers and what holds no numbers are left out, which a warning says. Where each record is a
/// group or an array (`0/image`, `1/image`, …; `img_0001`, `img_0002`, …) of one shape these are the records, by their
/// numbers; of names that may be views or folds as well (`view_0`, `view_1`) opening asks for columns. Packed numbers
/// (`scale_factor`, `add_offset`, `_FillValue`, `missing_value`, `_Unsigned`) have the values and types that xarray gives
/// them; whole numbers without a scale keep theirs, missing ones too. All fields are arrays, images and labels too, as those of `.npy` are. A chunk
/// of several rows is read and decoded once for all of them, as long as the loader's memory holds it; those that one record
/// meets must fit into `memory_budget`. Read with [`Order::Blocks`](crate::Order::Blocks), whose groups are the rows of a chunk
/// (of the field with the longest rows), for an order that jumps reads a chunk for each record; or write
/// chunks of one row, which are decoded with their record. Those of a bucket are read ahead. Of chunks above 1 MiB without a compressor rows are
/// read by range. A chunk that is not listed is the fill value. Opening reads the metadata of all arrays and the indexes of
/// all shards; 32 bytes for each chunk stay in memory, beside the names of their objects. Read are zstd, gzip, zlib, bz2,
/// LZ4, Blosc with each of its codecs, `shuffle`, `crc32c`, both orders and `transpose`, and `sharding_indexed`, of
/// which only the chunks that are needed. Not read: `.zarr.zip`, texts, times, complex numbers, records of several types, other
/// filters (`delta`), two compressors, shards within shards, grids that are not regular; a web server, which lists nothing.
///
/// **HDF5.** The datasets of numbers are fields, called by their paths (`train/image`): integers, floats (16 bits too), booleans,
/// enumerations as their numbers. The first axis counts the records; those that have another number of them are an error until
/// [`Open::columns`] names which to read. Texts, compound types, single numbers, virtual datasets and those in files beside this
/// one are left out, which a warning says once, and so are soft and external links, without one. All fields are arrays, and
/// chunks are read as those of Zarr, see above; of a dataset in one piece (without chunks) that is longer than 1 MiB each
/// row is read by range. Records that are a group or a dataset each, and packed numbers, are read as those of Zarr; dimensions
/// of netCDF that have no values are no fields. Several files follow one another in the order of their names, as long as fields, types and shapes of
/// rows are the same; files of several splits (`train_000.h5`, `test.h5`) take [`Open::split`]. Files that are called otherwise
/// (`.mat` of MATLAB 7.3, `.nc` of netCDF-4) are read when [`Open::format`] says `hdf5`. Opening reads metadata by range, from one
/// request for a small file to some for each level of an index, and keeps 32 bytes for each chunk. Undone are gzip,
/// shuffle, fletcher32, LZF, bzip2, zstd, LZ4 and Blosc; szip, n-bit, scale-offset, bitshuffle, ZFP and Blosc2 are not. A
/// file that is being written, or was not closed, may be an error or lack its last rows.
///
/// **DICOM.** The files of a series are one volume, as are the frames of one file, and each series is a record with a field
/// `image`, called by its folder, or by folder and UID where several share one. With [`Open::pattern`] or [`Open::field`]
/// the folder that holds the slices tells patient and field, `{patient}/{field}/` by default; of `{patient}/{field}.dcm` each file is a
/// volume. [`Open::format`]`("dicom")` also takes files without an ending, or called by a UID; a `DICOMDIR` is left out.
/// So is, with a warning that counts, what has no pixels (contours, reports, plans), segments of bits, and, without a
/// pattern, scouts. Slices are ordered by their places along the normal, else by InstanceNumber; two at one place, and slices
/// that differ in size, type or direction, are an error that names them, uneven distances are a warning. `spacing` is
/// from those distances and PixelSpacing, `origin` the first voxel's place in DICOM's axes (z, y, x). Values are
/// `stored * slope + intercept`; where these differ among slices, as in PET, voxels are f32. Only the stored bits count. MONOCHROME1 stays as it is
/// stored, as in pydicom; windows and padding are not looked at. Gray and RGB are read, of YBR what is in lossy JPEG, palettes are not; as they are
/// (little or big endian, deflated), RLE, JPEG lossless, and lossy of 8 bits. JPEG 2000, JPEG-LS, JPEG XL and video are an error
/// that names them. Opening reads the beginnings of all files, 64 at a time; a patch of pixels that are not compressed reads its rows of its slices.
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

/// Opens the dataset in `source`, such as a store that you made.
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
