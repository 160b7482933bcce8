//! Chooses the format by the names of objects, and finds the objects that it leaves out.

use std::collections::BTreeMap;

use infeed_core::{
    error::{
        Error, Result,
        setting::{ANNOTATIONS, FORMAT, LABELS, MASK_FILES},
    },
    types::similar::nearest,
};
use infeed_store::{Object, Source};

use crate::{
    format::{Evidence, Format, OpenOption, OpenOptions},
    layout::stem,
    names::{base, ends_with, is_data, is_image, is_table, is_unread_image, parent},
    objects::nothing_to_read,
};

/// The format of the objects, and the reason for it.
pub(super) fn choose_format<'a>(
    source: &Source,
    objects: &[Object],
    options: &OpenOptions,
    formats: &[&'a dyn Format],
) -> Result<(&'a dyn Format, String)> {
    let candidates = || formats.iter().copied();
    if let Some(name) = &options.format {
        let format = candidates().find(|f| f.name() == name).ok_or_else(|| {
            let known: Vec<_> = candidates().map(Format::name).collect();
            let meant = nearest(name, known.iter().copied());
            let meant = meant.map_or(String::new(), |near| format!("did you mean {near}? "));
            Error::config(format!("unknown format `{name}`"))
                .with_hint(format!("{meant}use one of {}", known.join(", ")))
        })?;
        return Ok((format, format!("{FORMAT} says so")));
    }
    // An annotation file is better evidence than names of images: these may be in any folders.
    if options.annotations.is_some() && objects.iter().any(|o| is_image(&o.name)) {
        let takes = |f: &&dyn Format| f.options().contains(&OpenOption::Annotations);
        let recognised = candidates().filter(takes).find(|f| f.recognises(objects));
        // If none recognises the objects, a built-in format comes before one of the caller's: its error says what is
        // wrong.
        let format = recognised.or_else(|| candidates().rev().find(takes));
        let format = format.ok_or_else(|| nothing_to_read(source, objects, "images with annotations"))?;
        return Ok((format, format!("{ANNOTATIONS} names a file")));
    }
    // Mask files belong to images that are files; formats that do not take `mask_files` are skipped, whatever else is
    // there.
    let takes =
        |format: &&dyn Format| options.mask_files.is_none() || format.options().contains(&OpenOption::MaskFiles);
    let mut claims = candidates().filter(takes).filter_map(|format| Some((format, format.claim(objects)?)));
    let Some((format, claim)) = claims.next() else {
        // A format that takes no mask files returns its own error.
        if let Some(format) = candidates().find(|format| format.recognises(objects)) {
            return Ok((format, String::new()));
        }
        let error = nothing_to_read(source, objects, "images, arrays, volumes, shards or CIFAR files");
        let parquet = objects.iter().any(|o| o.name.to_ascii_lowercase().ends_with(".parquet"));
        return Err(match foreign(objects) {
            _ if parquet => error.with_hint("build with the feature `parquet` to read Parquet files"),
            Some((what, hint)) => error.with_hint(format!("these are {what}, which are not read: {hint}")),
            None => error,
        });
    };
    // Pictures next to shards: a preview, or the dataset.
    if format.name() == "folder" {
        // Parquet next to images often describes them. Among a million images there are few other files to look at.
        let others: Vec<Object> = objects.iter().filter(|object| !is_image(&object.name)).cloned().collect();
        let of_shards = candidates().filter(|other| ["tar", "mds", "tfrecord"].contains(&other.name()));
        let shards = of_shards.filter(takes).find_map(|other| Some((other, other.claim(&others)?)));
        if let Some((other, second)) = shards {
            return Err(either(source, (format, &claim.why), (other, &second.why)));
        }
        return Ok((format, claim.why));
    }
    if claim.evidence == Evidence::Annotations
        && let Some((other, second)) = claims.find(|(_, claim)| claim.evidence == Evidence::Annotations)
    {
        return Err(either(source, (format, &claim.why), (other, &second.why)));
    }
    Ok((format, claim.why))
}

/// The error of a place that two formats can read.
fn either(source: &Source, one: (&dyn Format, &str), other: (&dyn Format, &str)) -> Error {
    let what = format!("these may be {} ({}) or {} ({})", one.0.name(), one.1, other.0.name(), other.1);
    Error::config(what).at_object(source.url()).with_hint(format!(
        "say which: {}{}",
        FORMAT.to(one.0.name()),
        FORMAT.or_set(other.0.name())
    ))
}

/// The objects that a format does not read, by kind. Warns about those that look like labels of images.
pub(super) fn left_out(source: &Source, objects: &[Object], options: &OpenOptions, format: &dyn Format) -> Vec<String> {
    let named = [&options.labels, &options.annotations];
    let is_named = |name: &str| named.iter().any(|file| file.as_deref() == Some(name));
    let mut kinds: BTreeMap<String, (usize, &str)> = BTreeMap::new();
    for Object { name, .. } in objects {
        if format.reads(name) || is_named(name) || is_about_the_dataset(name) {
            continue;
        }
        let base = base(name);
        let kind = base.rfind('.').map_or_else(|| "without ending".to_owned(), |dot| base[dot..].to_ascii_lowercase());
        kinds.entry(kind).or_insert((0, name)).0 += 1;
    }
    let text = |kind: &str, count: usize, first: &str| format!("{count} {kind}, the first is `{first}`");
    let is_of_image = |file: &str| objects.iter().any(|o| is_image(&o.name) && stem(&o.name) == stem(file));
    let name = format.name();
    if OF_DATA.contains(&name) {
        for (kind, (count, first)) in &kinds {
            let help = match () {
                () if is_table(kind) && name == "arrays" => "labels can be an array in the file of the others",
                () if is_table(kind) => "your program can join them by the records' keys, numbers or patients",
                () if is_data(first) => "if they belong to the records, convert all to one format",
                () => continue,
            };
            let what = text(kind, *count, first);
            tracing::warn!(url = source.url(), "files next to those of the format {name} are not read: {what}; {help}");
        }
    } else if format.reads("x.jpg") && options.labels.is_none() {
        for (kind, (count, first)) in &kinds {
            let Some(help) = help(kind, first, || is_of_image(first)) else { continue };
            let what = text(kind, *count, first);
            tracing::warn!(url = source.url(), "files that may describe the images are not read: {what}; {help}");
        }
    }
    kinds.iter().map(|(kind, (count, first))| text(kind, *count, first)).collect()
}

/// Formats whose files hold their records whole: no other file describes these.
const OF_DATA: [&str; 9] = ["arrays", "dicom", "hdf5", "hdf5-files", "mds", "parquet", "tar", "tfrecord", "volumes"];

/// What to do about files of this ending that are not read, if they may describe images; `is_of_image` returns whether
/// an image has the same name.
fn help(kind: &str, first: &str, is_of_image: impl Fn() -> bool) -> Option<String> {
    Some(match kind {
        ".jsonl" if !first.contains('/') && !is_of_image() => {
            let (labels, lines) = (LABELS.to(first), FORMAT.to("jsonl"));
            format!("{labels} reads labels from it; {lines} reads its lines as records, with the images that they name")
        }
        ".csv" | ".tsv" | ".txt" if !first.contains('/') && !is_of_image() => {
            format!("{} reads labels from it", LABELS.to(first))
        }
        ".json" => format!(
            "if it is COCO's, {} reads it; if it is a list of records that name images, {}",
            ANNOTATIONS.to(first),
            FORMAT.to("jsonl")
        ),
        ".txt" => format!("if they are YOLO's, boxes are read by {}", FORMAT.to("yolo")),
        ".xml" => format!("if they are Pascal VOC's, boxes are read by {}", FORMAT.to("voc")),
        ".parquet" if base(first) == "metadata.parquet" => {
            "build with the feature `parquet`, or convert it to metadata.csv".to_owned()
        }
        ".jsonl" => format!("{} reads its lines as records, with the images that they name", FORMAT.to("jsonl")),
        ".mat" | ".csv" | ".tsv" | ".parquet" => "only the images are read".to_owned(),
        ".npy" | ".npz" | ".safetensors" | ".h5" | ".hdf5" | ".pt" | ".pth" | ".pkl" | ".pickle" | ".bin" | ".pfm" => {
            "only the images are read; if they are masks, save them as images, such as PNG".to_owned()
        }
        // With colours for each object, which are no labels.
        _ if is_image(kind) && parent(first).contains("panoptic") => {
            "they may be outlines of COCO's panoptic segmentation, which are not read".to_owned()
        }
        _ if is_image(kind) => {
            format!("images with such masks are read by {}", MASK_FILES.to(&masks_like(first)))
        }
        _ if is_unread_image(kind) => "no codec of this build reads them: convert them".to_owned(),
        _ => return None,
    })
}

/// A pattern that matches masks named like this one.
fn masks_like(mask: &str) -> String {
    let (folder, ending) = (parent(mask), &mask[stem(mask).len()..]);
    format!("{folder}/{{stem}}{ending}")
}

/// Files for people, for version control, or written by infeed itself.
fn is_about_the_dataset(name: &str) -> bool {
    const STEMS: [&str; 8] =
        ["readme", "license", "licence", "copying", "notice", "changelog", "citation", "dataset_info"];
    let base = base(name);
    let plain = base.split('.').next().unwrap_or(base);
    name.split('/').any(|part| part.starts_with('.'))
        || STEMS.iter().any(|stem| plain.get(..stem.len()).is_some_and(|start| start.eq_ignore_ascii_case(stem)))
        || ends_with(base, ".infeed")
        || [".md", ".md5", ".sha1", ".sha256", ".pdf", ".py", ".ipynb", ".sh", ".log"]
            .iter()
            .any(|end| ends_with(base, end))
        || base.starts_with("sample_submission")
        || matches!(base, "Thumbs.db" | "desktop.ini" | "wnids.txt" | "words.txt" | "participants.tsv")
}

/// Datasets that are recognised by their names but not read: what they are, and what to do.
fn foreign(objects: &[Object]) -> Option<(&'static str, &'static str)> {
    let bases = || objects.iter().map(|object| base(&object.name));
    let any = |is: fn(&str) -> bool| bases().any(is);
    let ends = |endings: &[&str]| bases().any(|name| endings.iter().any(|ending| ends_with(name, ending)));
    if any(|name| name == "batches.meta" || name.starts_with("data_batch_") && !name.contains('.')) {
        return Some(("CIFAR-10 as pickles of Python", "take the binary version: cifar-10-binary.tar.gz"));
    }
    if ["train", "test", "meta"].iter().all(|file| bases().any(|name| name == *file)) {
        return Some(("CIFAR-100 as pickles of Python", "take the binary version: cifar-100-binary.tar.gz"));
    }
    if any(|name| name.contains("-idx") && name.contains("ubyte") || name.contains(".idx3-ubyte")) {
        return Some((
            "arrays of MNIST's idx format",
            "save images and labels as one .npz: numpy.savez(\"mnist.npz\", image=…, label=…)",
        ));
    }
    let table = [
        (&[".arrow"][..], "tables of Arrow", "write them as Parquet: dataset.to_parquet(…)"),
        (&["zarr.json", ".zarray", ".zgroup"], "arrays of Zarr", "build with the feature `zarr`"),
        (&[".zarr.zip"], "arrays of Zarr in a zip file", "unpack it into a folder"),
        (&[".h5", ".hdf5"], "HDF5 files", "build with the feature `hdf5`, or save the arrays as .npy or .npz"),
        (
            &[".mds", ".mds.zstd", ".mds.gz", ".mds.bz2", ".mds.snappy", ".tfrecord", ".tfrec", ".tfrecord.gz"],
            "shards of MDS or TFRecord",
            "build with the feature `shards`; MDS needs its index.json next to the shards",
        ),
        (&[".nrrd", ".nhdr", ".nii", ".nii.gz"], "volumes", "build with the feature `volumes`"),
        (&[".mhd", ".mha", ".mgz", ".mgh"], "volumes of other kinds", "convert them to NIfTI or NRRD"),
        (&[".nc", ".mat"], "files that may be HDF5", "if they are netCDF-4 or MATLAB 7.3, set the format hdf5"),
        (&[".mdb"], "databases of LMDB", "write the records into tar shards"),
        (&[".rec"], "RecordIO files of MXNet", "write the records into tar shards"),
        (&[".beton"], "files of FFCV", "open the images that they were written from"),
        (
            &[".avif", ".heic", ".heif", ".jp2"],
            "images of kinds that no codec reads",
            "convert them to PNG, JPEG or WebP",
        ),
        (&[".jxl"], "JPEG XL", "build with the feature `jxl`"),
        (&[".dcm", ".dicom"], "DICOM files", "build with the feature `dicom`"),
        (&[".pkl", ".pickle", ".pt", ".pth"], "pickles of Python", "save the arrays as .npy, .npz or safetensors"),
    ];
    table.into_iter().find(|(endings, ..)| ends(endings)).map(|(_, what, hint)| (what, hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_may_describe_images_come_with_advice() {
        for (kind, first, advice) in [
            (".png", "masks/a.png", "mask_files(\"masks/{stem}.png\")"),
            (".png", "annotations/panoptic_val/a.png", "outlines of COCO's panoptic segmentation, which are not read"),
            (".csv", "labels.csv", "reads labels from it"),
            (".parquet", "train/metadata.parquet", "or convert it to metadata.csv"),
            (".parquet", "more.parquet", "only the images are read"),
        ] {
            let help = help(kind, first, || false).unwrap();
            assert!(help.contains(advice), "{first}: {help}");
        }
        assert_eq!(help(".bak", "a.bak", || false), None);
    }

    #[test]
    fn what_a_build_does_not_read_is_called_by_its_feature() {
        for (name, feature) in [
            ("index.json", None),
            ("train/shard.00000.mds.zstd", Some("`shards`")),
            ("a.tfrecord", Some("`shards`")),
            ("patient/ct.nii.gz", Some("`volumes`")),
            ("a.h5", Some("`hdf5`")),
        ] {
            let found = foreign(&[Object::new(name, 1)]);
            assert_eq!(
                found.and_then(|(_, hint)| feature.map(|feature| hint.contains(feature))),
                feature.map(|_| true),
                "{name}"
            );
        }
    }
}
