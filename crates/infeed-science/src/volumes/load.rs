//! Opens a dataset of volumes: groups the files into patients and reads their headers.

use std::{borrow::Borrow, collections::BTreeMap, io::Read, sync::Arc};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{FIELD, PATTERN},
    },
    fingerprint::Fingerprint,
    report::Stage,
    types::DType,
};
use infeed_data::{
    arrays::listed,
    format::OpenOptions,
    names::{ends_with, looks_like_mask},
    objects::nothing_to_read,
    schema::{Field, FieldKind, Schema},
};
use infeed_store::{Extent, Object, Source};
use smallvec::SmallVec;

use super::{
    dataset::{FieldOf, File, Patients, VolumesDataset},
    header::{Coding, DataFiles},
    layout,
    names::{self, FieldFiles, Layout},
    nifti, nrrd,
};

/// Concurrent reads of headers: they are small, and this many hide a store's latency.
pub(super) const HEADERS_AT_A_TIME: usize = 64;

pub(super) async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<VolumesDataset> {
    let samples = samples(options)?;
    let at = |e: Error| if e.context().object.is_some() { e } else { e.at_object(source.url()) };
    let names: Vec<&str> = objects.iter().map(|object| &*object.name).collect();
    let names = layout::of_split(&names, options.split.as_deref()).map_err(at)?;
    let Layout { patients: found, fields: usual } = match &options.pattern {
        Some(pattern) => Layout { patients: names::group(&names, pattern)?, fields: None },
        None => layout::recognise(&names, options.split.is_some()).map_err(at)?,
    };
    if found.is_empty() {
        return Err(nothing_to_read(source, objects, "volumes of patients")
            .with_hint("name files PATIENT/FIELD.nrrd or PATIENT_FIELD.nrrd, or give a pattern that fits"));
    }
    if options.pattern.as_ref().is_some_and(|pattern| !pattern.contains("{field}")) {
        let read = || found.values().flat_map(BTreeMap::values).map(|at| names[*at]);
        if let (Some(mask), Some(other)) = (read().find(|n| looks_like_mask(n)), read().find(|n| !looks_like_mask(n))) {
            tracing::warn!(
                mask,
                other,
                "files that are named like masks are records of their own, as images; {{field}} in {PATTERN} makes them fields"
            );
        }
    }
    let by_name: BTreeMap<&str, &Object> = objects.iter().map(|object| (&*object.name, object)).collect();
    let asked = !options.fields.is_empty();
    let fields = match usual {
        Some(usual) if !asked => {
            layout::complete(&names, &found, &usual).map_err(at)?;
            checked_names(usual)?
        }
        _ => choose_fields(&found, options)?,
    };
    let chosen: Vec<&Object> =
        choose_files(source, &found, &fields)?.into_iter().map(|at| by_name[names[*at]]).collect();
    let reads: Vec<_> = chosen.iter().map(|object| read_file(source, &by_name, object).boxed()).collect();
    let files: Vec<File> = stream::iter(reads).buffered(HEADERS_AT_A_TIME).try_collect().await?;
    let patients = found.keys().cloned().collect();
    Together { format: "volumes", source, samples, patients, fields, files, objects: chosen }.dataset()
}

/// Records per patient.
pub(super) fn samples(options: &OpenOptions) -> Result<u64> {
    match options.samples.unwrap_or(1) {
        0 => Err(Error::config("0 samples of each patient").with_hint("use 1 or more")),
        samples => Ok(samples),
    }
}

/// The files of each field for each patient, patient by patient.
pub(super) fn choose_files<'a, K: Borrow<str> + Ord, V>(
    source: &Source,
    found: &'a BTreeMap<K, BTreeMap<K, V>>,
    fields: &[FieldFiles],
) -> Result<Vec<&'a V>> {
    let mut chosen = Vec::new();
    for (patient, files) in found {
        let patient: &str = patient.borrow();
        for file in fields.iter().flat_map(|field| &field.files) {
            let own = files.get(&**file).ok_or_else(|| {
                let have = listed(files.keys().map(Borrow::borrow));
                let what = format!("patient `{patient}` has no `{file}`: there are only {have}");
                Error::new(ErrorKind::NotFound, what)
                    .at_object(source.display_name(patient))
                    .with_hint(format!("add the file, or name the fields that every patient has with {FIELD}"))
            })?;
            chosen.push(own);
        }
    }
    Ok(chosen)
}

/// The patients, fields and volumes that were found.
pub(super) struct Together<'a> {
    pub(super) format: &'static str,
    pub(super) source: &'a Source,
    pub(super) samples: u64,
    pub(super) patients: Arc<[String]>,
    pub(super) fields: Vec<FieldFiles>,
    /// The files of the first patient, then of the next, each in the order of the fields.
    pub(super) files: Vec<File>,
    /// All objects of the dataset.
    pub(super) objects: Vec<&'a Object>,
}

impl Together<'_> {
    /// Checks that the volumes fit together, and makes the dataset.
    pub(super) fn dataset(self) -> Result<VolumesDataset> {
        let Self { format, source, samples, patients, fields, files, objects } = self;
        let each = fields.iter().map(|field| field.files.len()).sum();
        check_partners(&files, each, &patients)?;
        warn_of_places(&files, each);
        let mut of_patient = Vec::new();
        let mut schema_fields = Vec::new();
        let mut at = 0;
        for field in &fields {
            let range = at..at + field.files.len();
            at = range.end;
            let of_all = || files.chunks(each).flat_map(|patient| &patient[range.clone()]);
            let channels: usize = files[range.clone()].iter().map(|file| file.header.channels).sum();
            for (patient, files) in files.chunks(each).enumerate() {
                let own: usize = files[range.clone()].iter().map(|file| file.header.channels).sum();
                if own != channels {
                    let what = format!(
                        "patient `{}` has {own} channels of `{}`, other patients have {channels}",
                        patients[patient], field.name
                    );
                    return Err(Error::new(ErrorKind::Unsupported, what).at_object(files[range.start].name.clone()));
                }
            }
            let mask = if field.mask { Some(mask_type(of_all())?) } else { None };
            let first = files[0].header.shape;
            let same = files.iter().all(|file| file.header.shape == first);
            let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            let kind = FieldKind::Volume { channels: side(channels), size: same.then(|| first.map(side)), mask };
            schema_fields.push(Field::new(field.name.clone(), kind));
            of_patient.push(FieldOf { files: range, mask: field.mask });
        }
        for name in ["spacing", "origin"] {
            schema_fields.push(Field::new(name, FieldKind::Array { dtype: DType::F32, shape: vec![3] }));
        }
        schema_fields.push(Field::new("patient", FieldKind::Label));
        let mut schema = Schema::new(schema_fields);
        schema.names.push(("patient".to_owned(), Arc::clone(&patients)));

        let mut print = Fingerprint::of(format).number(samples).number(each as u64);
        for field in &fields {
            print = print.text(&field.name).number(u64::from(field.mask));
        }
        for object in &objects {
            print = print.text(&object.name).number(object.size);
        }
        let all = Patients {
            format,
            inline: source.reads_inline(),
            names: patients,
            files,
            fields: of_patient,
            each,
            samples,
            schema,
            fingerprint: print.finish(),
        };
        Ok(VolumesDataset { all: Arc::new(all), narrow: None })
    }
}

/// The fields that the user named; otherwise each file of a patient is a field.
pub(super) fn choose_fields<K: Borrow<str> + Ord, V>(
    found: &BTreeMap<K, BTreeMap<K, V>>,
    options: &OpenOptions,
) -> Result<Vec<FieldFiles>> {
    let fields: Vec<FieldFiles> = if options.fields.is_empty() {
        let mut names: Vec<&str> = found.values().flat_map(|files| files.keys().map(Borrow::borrow)).collect();
        names.sort_unstable();
        names.dedup();
        // Images first, as in the other formats.
        names.sort_by_key(|name| looks_like_mask(name));
        let own = |name: &str| FieldFiles { name: name.into(), files: vec![name.into()], mask: looks_like_mask(name) };
        names.into_iter().map(own).collect()
    } else {
        let chosen = |(name, files): &(String, Vec<String>)| {
            let masks = files.iter().filter(|file| looks_like_mask(file)).count();
            if masks > 0 && masks < files.len() {
                return Err(Error::config(format!("field `{name}` would hold images and masks: {}", files.join(", "))));
            }
            let mask = looks_like_mask(name) || masks > 0;
            Ok(FieldFiles { name: name.clone(), files: files.clone(), mask })
        };
        options.fields.iter().map(chosen).collect::<Result<_>>()?
    };
    checked_names(fields)
}

/// Checks that the names of fields are unique and allowed, and that each field has files.
fn checked_names(fields: Vec<FieldFiles>) -> Result<Vec<FieldFiles>> {
    for (i, field) in fields.iter().enumerate() {
        let reserved = ["spacing", "origin", "patient"].contains(&&*field.name);
        if field.name.is_empty() || reserved || fields[..i].iter().any(|other| other.name == field.name) {
            return Err(Error::config(format!("a field can't be called `{}`", field.name))
                .with_hint("use a name once, and none of spacing, origin, patient"));
        }
        if field.files.is_empty() {
            return Err(Error::config(format!("field `{}` has no files", field.name)));
        }
    }
    Ok(fields)
}

/// A type that holds the labels of all files.
fn mask_type<'a>(files: impl Iterator<Item = &'a File>) -> Result<DType> {
    let mut all: Option<DType> = None;
    for file in files {
        let own = file.header.dtype.whole().filter(|_| file.header.slope == 1.0 && file.header.intercept == 0.0);
        let own = own.ok_or_else(|| {
            let (dtype, slope) = (file.header.dtype, file.header.slope);
            let scaled = if dtype.whole().is_some() { format!(", scaled by {slope}") } else { String::new() };
            Error::new(ErrorKind::Unsupported, format!("a mask of {dtype}{scaled}: labels are whole numbers"))
                .at_object(file.name.clone())
                .with_hint("save it as integers without a slope, or rename it so that it is read as an image")
        })?;
        all = Some(match all {
            None => own,
            Some(all) if all == own => own,
            Some(DType::U8) => own,
            Some(all) if own == DType::U8 => all,
            Some(_) => DType::I64,
        });
    }
    Ok(all.unwrap_or(DType::U8))
}

/// Checks that all files of a patient have the same shape: they show one body.
fn check_partners(files: &[File], each: usize, patients: &[String]) -> Result<()> {
    for (files, patient) in files.chunks(each).zip(patients) {
        let first = &files[0];
        if let Some(other) = files.iter().find(|file| file.header.shape != first.header.shape) {
            let (a, b) = (first.header.shape, other.header.shape);
            let what = format!("patient `{patient}` has files of {a:?} and {b:?} voxels");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(other.name.clone())
                .with_hint("resample them to one grid ahead of time"));
        }
    }
    Ok(())
}

/// Warns of patients whose files have one shape, but not one place in the body: one may be flipped, or of another scan.
fn warn_of_places(files: &[File], each: usize) {
    let elsewhere = |files: &[File]| {
        let other = files.iter().find(|file| files[0].header.is_elsewhere(&file.header))?;
        Some((files[0].name.clone(), other.name.clone()))
    };
    let found: Vec<(String, String)> = files.chunks(each).filter_map(elsewhere).collect();
    if let Some((first, other)) = found.first() {
        tracing::warn!(
            first,
            other,
            "by their headers, files of {} patients are not at the same place, or are flipped; voxels are read as they \
             lie in the files: resample these to one grid, or correct their headers",
            found.len()
        );
    }
}

async fn read_file(source: &Source, objects: &BTreeMap<&str, &Object>, object: &Object) -> Result<File> {
    let name = source.display_name(&object.name);
    let named = |e: Error| e.at_stage(Stage::Open).at_object(name.clone());
    let lower = object.name.to_ascii_lowercase();
    // Enough for any header without long key/value pairs, compressed or not.
    let mut len = object.size.min(16 << 10);
    let header = loop {
        let head = object.extent(source).with_range(0..len);
        let bytes = head.read().await.map_err(named)?;
        let found = if lower.ends_with(".nii.gz") {
            let mut header = Vec::new();
            let read =
                flate2::bufread::MultiGzDecoder::new(&bytes[..]).take(nifti::LEN as u64).read_to_end(&mut header);
            let read = read.map_err(|e| Error::corrupt("damaged gzip").with_source(e));
            // The gzip stream may end early, as only its start was read. What was decompressed is enough.
            let parsed = nifti::parse_nifti(&header, Coding::Gzip);
            Some(if header.len() < 348 { read.and(parsed) } else { parsed }).transpose()
        } else if lower.ends_with(".nii") {
            nifti::parse_nifti(&bytes, Coding::Raw).map(Some)
        } else {
            nrrd::parse_nrrd(&bytes, len == object.size)
        };
        match found.map_err(named)? {
            Some(header) => break header,
            None if len >= nrrd::LONGEST => {
                return Err(named(Error::corrupt(format!("the header does not end within {len} bytes"))));
            }
            None => len = (len * 8).min(object.size).min(nrrd::LONGEST),
        }
    };
    let data: SmallVec<[Extent; 1]> = match &header.data {
        DataFiles::Attached(_) => SmallVec::from_iter([object.extent(source)]),
        DataFiles::Detached(files) => {
            let folder = object.name.rfind('/').map_or("", |at| &object.name[..=at]);
            let find = |file: &String| {
                let path = beside(folder, file);
                let there = path.as_deref().and_then(|path| objects.get(path)).ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("its data file `{file}` is not there"))
                        .with_hint("names are relative to the header's folder, inside the dataset")
                })?;
                if names::has_header(&there.name) {
                    return Err(Error::corrupt(format!("its data file `{file}` is a header itself")));
                }
                if header.coding == Coding::Raw && ends_with(&there.name, ".gz") {
                    let what = format!("its data file `{file}` is compressed, the header says `encoding: raw`");
                    return Err(Error::corrupt(what).with_hint("write `encoding: gzip` into the header"));
                }
                Ok(there.extent(source))
            };
            files.iter().map(find).collect::<Result<_>>().map_err(named)?
        }
    };
    header.check_against(data.iter().map(Extent::len).sum()).map_err(named)?;
    let raw_at = header.raw_at(data[0].len());
    Ok(File { name, header, data, raw_at, stack: None })
}

/// Resolves a name relative to a folder, including `.` and `..`.
fn beside(folder: &str, name: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    (!name.starts_with('/')).then(|| parts.join("/"))
}
