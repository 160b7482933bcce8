//! Opens a dataset of DICOM files: which files are read, and which of them are one volume.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{FIELD, FORMAT, PATTERN},
    },
    report::Stage,
};
use infeed_data::{
    format::OpenOptions,
    names::{SPLITS, base, ends_with, looks_like_mask, parent},
    objects::nothing_to_read,
};
use infeed_store::{Extent, Object, Source};

use super::{
    header::{self, FileContent, Header},
    series::{Member, volume},
};
use crate::volumes::{
    dataset::{File, VolumesDataset},
    load::{HEADERS_AT_A_TIME, Together, choose_fields, choose_files, samples},
    names::{FieldFiles, Pattern},
};

const ENDINGS: [&str; 2] = [".dcm", ".dicom"];

pub(super) fn has_ending(name: &str) -> bool {
    stem(name).is_some()
}

/// The name without its ending.
fn stem(name: &str) -> Option<&str> {
    ENDINGS.iter().find(|ending| ends_with(name, ending)).map(|ending| &name[..name.len() - ending.len()])
}

/// Whether a file is read: any with an ending of DICOM. If the user named the format, also files without an ending, or
/// whose name is a UID. A `DICOMDIR`, the index of a medium, is not read.
fn is_read(name: &str, named: bool) -> bool {
    let base = base(name);
    let bare = || !base.contains('.') || base.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    has_ending(name) || (named && bare() && !base.eq_ignore_ascii_case("DICOMDIR"))
}

/// A file with pixels.
struct Image<'a> {
    object: &'a Object,
    header: Header,
}

pub(super) async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<VolumesDataset> {
    let samples = samples(options)?;
    let named = options.format.is_some();
    let read: Vec<&Object> = objects.iter().filter(|object| is_read(&object.name, named)).collect();
    // With a pattern or fields, folders are patients and fields.
    let by_folder = options.pattern.is_some() || !options.fields.is_empty();
    let pattern = options.pattern.as_deref().unwrap_or("{patient}/{field}");
    let found = if by_folder { group(&read, pattern)? } else { BTreeMap::new() };
    if read.is_empty() || (by_folder && found.is_empty()) {
        return Err(nothing_to_read(source, objects, "DICOM files").with_hint(format!(
            "name files FOLDER/….dcm, or give a pattern that fits; {} also reads files without an ending",
            FORMAT.to("dicom")
        )));
    }
    if !by_folder {
        let folders = read.iter().flat_map(|object| parent(&object.name).split('/'));
        let splits: BTreeSet<&str> = folders.filter(|f| SPLITS.iter().any(|s| s.eq_ignore_ascii_case(f))).collect();
        if splits.len() > 1 {
            let splits = splits.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Error::config(format!("series of several splits: {splits}"))
                .at_object(source.url())
                .with_hint("open the folder of one split"));
        }
        let images = read_all(source, &read, true).await?;
        return of_series(source, images, samples);
    }
    let fields = choose_fields(&found, options)?;
    let groups = choose_files(source, &found, &fields)?;
    let wanted: Vec<&Object> = groups.iter().flat_map(|files| files.iter().map(|at| read[*at])).collect();
    let mut images = read_all(source, &wanted, false).await?.into_iter().peekable();
    let mut files = Vec::new();
    let mut used = Vec::new();
    let mut doubts = Doubts::default();
    for group in groups {
        // `images` are in the order of the groups' files, without those that were left out.
        let mut own = Vec::new();
        for object in group.iter().map(|at| read[*at]) {
            own.extend(images.next_if(|image| std::ptr::eq(image.object, object)));
        }
        let folder = read[group[0]].name.as_str();
        let name = source.display_name(if pattern_of_files(pattern) { folder } else { parent(folder) });
        if let [first, rest @ ..] = &own[..]
            && let Some(other) = rest.iter().find(|other| other.header.series != first.header.series)
        {
            let what = format!("it belongs to another series than {}, in the same folder", first.object.name);
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(source.display_name(&other.object.name))
                .with_hint(format!(
                    "give each series a folder, or omit {PATTERN} and {FIELD}: then each series is a record"
                )));
        }
        used.extend(own.iter().map(|image| image.object));
        files.push(one(source, name, own, &mut doubts)?);
    }
    doubts.tell();
    let patients = found.keys().map(|patient| (*patient).to_owned()).collect();
    Together { format: "dicom", source, samples, patients, fields, files, objects: used }.dataset()
}

/// Whether a pattern names files, each a volume, rather than folders of slices.
fn pattern_of_files(pattern: &str) -> bool {
    stem(pattern).is_some()
}

/// Groups files by patient and field.
fn group<'a>(read: &[&'a Object], pattern: &str) -> Result<BTreeMap<&'a str, BTreeMap<&'a str, Vec<usize>>>> {
    let of_files = pattern_of_files(pattern);
    let parsed = Pattern::parse(stem(pattern).unwrap_or(pattern).trim_end_matches('/'))?;
    let mut found: BTreeMap<&str, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
    for (index, object) in read.iter().enumerate() {
        let name = object.name.as_str();
        let place = if of_files { stem(name).unwrap_or(name) } else { parent(name) };
        if let Some((patient, field)) = parsed.split_stem(place) {
            found.entry(patient).or_default().entry(field).or_default().push(index);
        }
    }
    Ok(found)
}

/// Makes each series a record with one field `image`.
fn of_series(source: &Source, images: Vec<Image<'_>>, samples: u64) -> Result<VolumesDataset> {
    // Files without a series UID: those of one folder are one series.
    let mut series: BTreeMap<(String, &str), Vec<Image<'_>>> = BTreeMap::new();
    for image in images {
        let folder = if image.header.series.is_empty() { parent(&image.object.name) } else { "" };
        series.entry((image.header.series.clone(), folder)).or_default().push(image);
    }
    // A series that has a folder to itself gets the folder's name. Names and numbers of patients are not used: these
    // names appear in logs.
    let mut in_folder: BTreeMap<&str, usize> = BTreeMap::new();
    let folders: Vec<Option<&str>> = series
        .values()
        .map(|images| {
            let first = parent(&images[0].object.name);
            let mut all: Vec<&str> = images.iter().map(|image| parent(&image.object.name)).collect();
            all.dedup();
            all.iter().for_each(|folder| *in_folder.entry(*folder).or_default() += 1);
            (all.len() == 1 && !first.is_empty()).then_some(first)
        })
        .collect();
    // Folders of patients may hold several series, too, but hardly several of one picture.
    let are_pictures = series.values().all(|images| images.len() == 1);
    let several = || in_folder.iter().filter(|(folder, series)| are_pictures && !folder.is_empty() && **series > 1);
    if let (Some((first, series)), true) = (several().next(), several().count() > 1) {
        let (url, folders) = (source.url(), several().count());
        tracing::warn!(
            url,
            first,
            series,
            "{folders} folders hold several series each, which are records of their own: names of folders are no labels"
        );
    }
    let mut named: BTreeMap<String, Vec<Image<'_>>> = BTreeMap::new();
    for (((uid, _), images), folder) in series.into_iter().zip(folders) {
        let name = match folder {
            Some(folder) if in_folder[folder] == 1 => folder.to_owned(),
            Some(folder) => format!("{folder}/{uid}"),
            None => uid,
        };
        named.entry(name).or_default().extend(images);
    }
    if let Some(mask) = named.keys().find(|name| looks_like_mask(base(name))) {
        tracing::warn!(
            series = mask.as_str(),
            "a folder named like a mask is read as a record; {} makes it a field",
            PATTERN.to("{patient}/{field}/")
        );
    }
    let mut files = Vec::new();
    let mut patients = Vec::new();
    let mut used = Vec::new();
    let mut doubts = Doubts::default();
    for (name, images) in named {
        used.extend(images.iter().map(|image| image.object));
        files.push(one(source, source.display_name(&name), images, &mut doubts)?);
        patients.push(name);
    }
    doubts.tell();
    let fields = vec![FieldFiles { name: "image".into(), files: vec!["image".into()], mask: false }];
    Together { format: "dicom", source, samples, patients: patients.into(), fields, files, objects: used }.dataset()
}

/// Collects the doubts about all series for one warning each.
#[derive(Default)]
struct Doubts {
    gaps: usize,
    first_gap: Option<String>,
    unplaced: usize,
    first_unplaced: Option<String>,
}

impl Doubts {
    fn tell(self) {
        if let Some(first) = self.first_gap {
            tracing::warn!(
                series = self.gaps,
                first,
                "slices of a series are not evenly spaced: one may be missing; `spacing` is the median distance"
            );
        }
        if let Some(first) = self.first_unplaced {
            tracing::warn!(
                series = self.unplaced,
                first,
                "slices without positions are in the order of their instance numbers"
            );
        }
    }
}

fn one(source: &Source, name: String, images: Vec<Image<'_>>, doubts: &mut Doubts) -> Result<File> {
    if images.is_empty() {
        return Err(Error::new(ErrorKind::NotFound, "there is no file with pixels").at_object(name));
    }
    let member = |Image { object, header }| {
        let extent: Extent = Object::extent(object, source);
        Member { name: source.display_name(&object.name), extent, header }
    };
    let members: Vec<Member> = images.into_iter().map(member).collect();
    let (file, doubt) = volume(name.clone(), &members).map_err(|e| e.at_stage(Stage::Open))?;
    if let Some(gap) = doubt.gap {
        doubts.gaps += 1;
        doubts.first_gap.get_or_insert(gap);
    }
    if doubt.unplaced {
        doubts.unplaced += 1;
        doubts.first_unplaced.get_or_insert(name);
    }
    Ok(file)
}

/// Reads the headers of all files. Returns those with pixels; a warning counts the others.
async fn read_all<'a>(source: &Source, objects: &[&'a Object], all: bool) -> Result<Vec<Image<'a>>> {
    let reads: Vec<_> = objects.iter().map(|object| read_header(source, object).boxed()).collect();
    let found: Vec<FileContent> = stream::iter(reads).buffered(HEADERS_AT_A_TIME).try_collect().await?;
    let mut images = Vec::new();
    let mut left = BTreeMap::<&str, (usize, &str)>::new();
    let mut of_other_form = Vec::new();
    for (object, found) in objects.iter().copied().zip(found) {
        let why = match found {
            // Scouts would be volumes of one slice, in several directions. They are kept if the user chose folders by a
            // pattern.
            FileContent::Image(header) if all && header.localizer => "scouts",
            FileContent::Image(header) => {
                of_other_form.extend(header.is_other_form.then_some(&object.name));
                images.push(Image { object, header: *header });
                continue;
            }
            FileContent::Other(why) => why,
            FileContent::Foreign | FileContent::More(_) => "not DICOM",
        };
        left.entry(why).or_insert((0, &object.name)).0 += 1;
    }
    for (why, (files, first)) in &left {
        tracing::warn!(files, first, "files are left out: {why}");
    }
    if let [first, ..] = of_other_form[..] {
        let files = of_other_form.len();
        tracing::warn!(
            files,
            first = &**first,
            "elements are not in the form (explicit or implicit VR) that the transfer syntax declares; the first one decides"
        );
    }
    if images.is_empty() {
        let why: Vec<_> = left.iter().map(|(why, (files, _))| format!("{files} {why}")).collect();
        let what = format!("none of {} files has pixels that make a volume: {}", objects.len(), why.join(", "));
        return Err(Error::new(ErrorKind::NotFound, what).at_object(source.url()));
    }
    Ok(images)
}

/// Bytes of the first read. Most headers of CT and MR have 2 to 8 KiB; for a longer one the parser returns how far to
/// read.
const FIRST: u64 = 16 << 10;

async fn read_header(source: &Source, object: &Object) -> Result<FileContent> {
    let name = source.display_name(&object.name);
    let named = |e: Error| e.at_stage(Stage::Open).at_object(name.clone());
    let mut len = object.size.min(FIRST);
    loop {
        let head = object.extent(source).with_range(0..len);
        let bytes = head.read().await.map_err(named)?;
        match header::parse(&bytes, object.size).map_err(named)? {
            FileContent::More(to) if len < object.size && to <= header::LONGEST => {
                len = to.saturating_add(FIRST).max(len * 4).min(object.size);
            }
            FileContent::More(to) => {
                return Err(named(Error::corrupt(format!("the header does not end within {to} bytes"))));
            }
            FileContent::Foreign if has_ending(&object.name) => {
                return Err(named(Error::corrupt("not a DICOM file: it lacks the letters DICM at byte 128"))
                    .with_hint("fetch it again, or convert it to a DICOM file with its first group"));
            }
            found => return Ok(found),
        }
    }
}
