//! Medical volumes: NRRD and NIfTI files, grouped into patients.
//!
//! ```text
//! names ─ names.rs ─▶ patients × fields ─ header.rs, nrrd.rs, nifti.rs ─▶ type, shape, where (read once, in opening)
//!   plan ─┬ compressed, or all of a volume: a shared part, read and decoded once for all samples of the patient
//!         └ a patch of a raw file: its ranges (`cover`)
//! ```
//!
//! Three things that are easy to get wrong:
//! - Files say their axes fastest first (x, y, z); tensors are `[channels, z, y, x]`.
//! - A header may lie about sizes: nothing is set aside for more voxels than its file can hold.
//! - Voxels need not be aligned, and may be in the other byte order: only what is read is turned.

mod decode;
mod header;
mod names;
mod nifti;
mod nrrd;

use std::{collections::BTreeMap, io::Read, ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use smallvec::SmallVec;

use self::{
    header::{Coding, DataFiles, VolumeHeader, cover},
    names::FieldFiles,
};
use super::{
    Dataset, Field, FieldKind, Format, Narrow, OpenOptions, ReadPlan, Sample, Schema, SharedBytes, SharedRead, Value,
    Volume, VolumeChannel, channels::looks_like_mask, no_such_record, open::nothing_to_read,
};
use crate::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
    source::{Extent, Object, Source},
    types::DType,
};

/// The parsers of this format, for fuzzing.
pub mod fuzz {
    pub use super::{
        decode::decode_volume,
        header::{Coding, DataFiles, VolumeHeader},
        nifti::parse_nifti,
        nrrd::parse_nrrd,
    };
}

/// NRRD (`.nrrd`, `.nhdr`) and NIfTI (`.nii`, `.nii.gz`) files of patients, a format for [`open`](super::open()).
#[derive(Clone, Copy, Debug)]
pub struct Volumes;

/// Small reads: enough to hide a store's latency.
const HEADERS_AT_A_TIME: usize = 64;

/// One volume file whose header was read.
#[derive(Debug)]
struct File {
    /// As messages call it.
    name: String,
    header: VolumeHeader,
    /// All of each data file.
    data: SmallVec<[Extent; 1]>,
    /// Where raw voxels begin in the only one.
    raw_at: Option<u64>,
}

/// Files of one patient that make a field.
#[derive(Clone, Debug)]
struct Part {
    /// Of the patient's files.
    files: Range<usize>,
    mask: bool,
}

#[derive(Debug)]
struct Inner {
    inline: bool,
    patients: Arc<[String]>,
    /// Those of the first patient, then of the next.
    files: Vec<File>,
    parts: Vec<Part>,
    /// Files of each patient.
    each: usize,
    /// Records of each patient.
    samples: u64,
    schema: Schema,
    fingerprint: Fingerprint,
}

/// See [`Volumes`].
#[derive(Clone, Debug)]
struct VolumesDataset {
    inner: Arc<Inner>,
    narrow: Option<Arc<dyn Narrow>>,
}

impl Format for Volumes {
    fn name(&self) -> &'static str {
        "volumes"
    }

    fn recognises(&self, objects: &[Object]) -> bool {
        objects.iter().any(|object| names::stem(&object.name).is_some())
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

async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<VolumesDataset> {
    if options.labels.is_some() || options.classes.is_some() || options.split.is_some() {
        return Err(Error::config("volumes take no labels, classes or split")
            .hint("masks are files of the patient; open the folder of the split"));
    }
    let samples = options.samples.unwrap_or(1);
    if samples == 0 {
        return Err(Error::config("0 samples of each patient").hint("use 1 or more"));
    }
    let found = names::group(objects.iter().map(|object| &*object.name), options.pattern.as_deref())?;
    if found.is_empty() {
        return Err(nothing_to_read(source, objects, "volumes of patients")
            .hint("files are PATIENT/FIELD.nrrd or PATIENT_FIELD.nrrd, or as the pattern says"));
    }
    let fields = choose_fields(&found, options)?;
    let mut chosen = Vec::new();
    for (patient, files) in &found {
        for file in fields.iter().flat_map(|field| &field.files) {
            let index = files.get(&**file).ok_or_else(|| {
                let have: Vec<_> = files.keys().copied().collect();
                let what = format!("patient `{patient}` has no `{file}`: there are only {}", have.join(", "));
                Error::new(ErrorKind::NotFound, what)
                    .at_object(source.display_name(patient))
                    .hint("add the file, or name the fields that every patient has")
            })?;
            chosen.push(&objects[*index]);
        }
    }
    let by_name: BTreeMap<&str, &Object> = objects.iter().map(|object| (&*object.name, object)).collect();
    let reads: Vec<_> = chosen.iter().map(|object| read_file(source, &by_name, object).boxed()).collect();
    let files: Vec<File> = stream::iter(reads).buffered(HEADERS_AT_A_TIME).try_collect().await?;

    let each = fields.iter().map(|field| field.files.len()).sum();
    let patients: Arc<[String]> = found.keys().map(|patient| (*patient).to_owned()).collect();
    check_partners(&files, each, &patients)?;
    let mut parts = Vec::new();
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
                    "patient `{}` has {own} channels of `{}`, others {channels}",
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
        parts.push(Part { files: range, mask: field.mask });
    }
    for name in ["spacing", "origin"] {
        schema_fields.push(Field::new(name, FieldKind::Array { dtype: DType::F32, shape: vec![3] }));
    }
    schema_fields.push(Field::new("patient", FieldKind::Label));
    let mut schema = Schema::new(schema_fields);
    schema.names.push(("patient".to_owned(), Arc::clone(&patients)));

    let mut print = Fingerprint::of("volumes").number(samples).number(each as u64);
    for field in &fields {
        print = print.text(&field.name).number(u64::from(field.mask));
    }
    for object in &chosen {
        print = print.text(&object.name).number(object.size);
    }
    let inner = Inner {
        inline: source.reads_inline(),
        patients,
        files,
        parts,
        each,
        samples,
        schema,
        fingerprint: print.finish(),
    };
    Ok(VolumesDataset { inner: Arc::new(inner), narrow: None })
}

/// The fields that were asked for; else each file of the patients is a field.
fn choose_fields(found: &BTreeMap<&str, BTreeMap<&str, usize>>, options: &OpenOptions) -> Result<Vec<FieldFiles>> {
    let fields: Vec<FieldFiles> = if options.fields.is_empty() {
        let mut names: Vec<&str> = found.values().flat_map(|files| files.keys().copied()).collect();
        names.sort_unstable();
        names.dedup();
        // Images first, as everywhere.
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
    for (i, field) in fields.iter().enumerate() {
        let reserved = ["spacing", "origin", "patient"].contains(&&*field.name);
        if field.name.is_empty() || reserved || fields[..i].iter().any(|other| other.name == field.name) {
            return Err(Error::config(format!("a field can't be called `{}`", field.name))
                .hint("use a name once, and none of spacing, origin, patient"));
        }
        if field.files.is_empty() {
            return Err(Error::config(format!("field `{}` has no files", field.name)));
        }
    }
    Ok(fields)
}

/// The type that holds the labels of all files.
fn mask_type<'a>(files: impl Iterator<Item = &'a File>) -> Result<DType> {
    let mut all: Option<DType> = None;
    for file in files {
        let own = file.header.dtype.whole().filter(|_| file.header.slope == 1.0 && file.header.intercept == 0.0);
        let own = own.ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("a mask of {}: labels are whole numbers", file.header.dtype))
                .at_object(file.name.clone())
                .hint("convert it, or name it so that it is an image")
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

/// Files of one patient show one body: the same voxels.
fn check_partners(files: &[File], each: usize, patients: &[String]) -> Result<()> {
    for (files, patient) in files.chunks(each).zip(patients) {
        let first = &files[0];
        if let Some(other) = files.iter().find(|file| file.header.shape != first.header.shape) {
            let (a, b) = (first.header.shape, other.header.shape);
            let what = format!("patient `{patient}` has files of {a:?} and {b:?} voxels");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(other.name.clone())
                .hint("resample them to one grid ahead of time"));
        }
    }
    Ok(())
}

async fn read_file(source: &Source, objects: &BTreeMap<&str, &Object>, object: &Object) -> Result<File> {
    let name = source.display_name(&object.name);
    let named = |e: Error| e.at_stage(Stage::Open).at_object(name.clone());
    let lower = object.name.to_ascii_lowercase();
    // Enough for all but long key/value pairs; compressed, more than enough.
    let mut len = object.size.min(16 << 10);
    let header = loop {
        let head = Extent { range: 0..len, ..object.extent(source) };
        let bytes = head.read().await.map_err(named)?;
        let found = if lower.ends_with(".nii.gz") {
            let mut header = Vec::new();
            let read =
                flate2::bufread::MultiGzDecoder::new(&bytes[..]).take(nifti::LEN as u64).read_to_end(&mut header);
            let read = read.map_err(|e| Error::corrupt("damaged gzip").with_source(e));
            // What was unpacked before the piece ended will do.
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
                        .hint("names are relative to the header's folder, inside the dataset")
                })?;
                if names::stem(&there.name).is_some() {
                    return Err(Error::corrupt(format!("its data file `{file}` is a header itself")));
                }
                Ok(there.extent(source))
            };
            files.iter().map(find).collect::<Result<_>>().map_err(named)?
        }
    };
    header.check_against(data.iter().map(Extent::len).sum()).map_err(named)?;
    let raw_at = header.raw_at(data[0].len());
    Ok(File { name, header, data, raw_at })
}

/// A name relative to a folder, without `.` and `..`.
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

impl Inner {
    fn patient(&self, record: u64) -> Result<usize> {
        let patient = record / self.samples;
        usize::try_from(patient)
            .ok()
            .filter(|p| *p < self.patients.len())
            .ok_or_else(|| no_such_record(record, self.len()))
    }

    fn len(&self) -> u64 {
        (self.patients.len() as u64).saturating_mul(self.samples)
    }

    fn files_of(&self, patient: usize) -> &[File] {
        &self.files[patient * self.each..(patient + 1) * self.each]
    }

    /// The file whose foreground patches are centred on, of a patient's.
    fn foreground_file(&self) -> Option<usize> {
        self.parts.iter().find(|part| part.mask).map(|part| part.files.start)
    }

    /// Whether a box is worth reading alone: what is larger is better kept whole, for the patient's other samples.
    fn reads_box(file: &File, window: &[Range<usize>; 3]) -> Option<u64> {
        let voxels: usize = window.iter().map(Range::len).product();
        let all: usize = file.header.shape.iter().product();
        file.raw_at.filter(|_| !file.header.interleaved && voxels <= all / 2)
    }
}

impl VolumesDataset {
    fn narrow_to_boxes(&self) -> Option<&Arc<dyn Narrow>> {
        self.narrow.as_ref().filter(|narrow| !narrow.wants_foreground() || self.inner.foreground_file().is_none())
    }

    /// The ranges of a box of a file, those of one channel after another, and how voxels lie in each.
    fn cover(&self, file: &File, at: u64, window: &[Range<usize>; 3]) -> (Vec<Range<u64>>, [usize; 3]) {
        let (mut ranges, mut pitch) = (Vec::new(), [0; 3]);
        let (_, channel) = file.header.pitch();
        for c in 0..file.header.channels {
            let cover = cover(&file.header, at + (c * channel) as u64, window, !self.inner.inline);
            ranges.extend(cover.ranges);
            pitch = cover.pitch;
        }
        (ranges, pitch)
    }

    fn key(&self, patient: usize, file: usize) -> u64 {
        (patient * self.inner.each + file) as u64
    }
}

impl Dataset for VolumesDataset {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn schema(&self) -> &Schema {
        &self.inner.schema
    }

    fn format(&self) -> &str {
        "volumes"
    }

    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        let inner = &*self.inner;
        let patient = inner.patient(record)?;
        let files = inner.files_of(patient);
        let window = match self.narrow_to_boxes() {
            Some(narrow) if files.iter().any(|file| file.raw_at.is_some()) => {
                Some(narrow.reads(files[0].header.shape, rng).map_err(|e| e.at_record(record))?)
            }
            _ => None,
        };
        let mut plan = ReadPlan::default();
        for (index, file) in files.iter().enumerate() {
            match window.as_ref().and_then(|window| Some((Inner::reads_box(file, window)?, window))) {
                Some((at, window)) => {
                    let (ranges, _) = self.cover(file, at, window);
                    plan.extents.extend(ranges.into_iter().map(|range| Extent { range, ..file.data[0].clone() }));
                }
                None => {
                    // Room for the foreground behind the voxels.
                    let bytes = file.header.len_bytes() as u64 + inner.spare(index);
                    plan.shared.push(SharedRead::new(self.key(patient, index), file.data.iter().cloned(), bytes));
                }
            }
        }
        plan.window = window;
        Ok(plan)
    }

    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let inner = &*self.inner;
        let patient = inner.patient(record)?;
        let files = inner.files_of(patient);
        let short = |file: &File| {
            Error::corrupt("there are fewer voxels than the header says")
                .at_stage(Stage::Parse)
                .at_object(file.name.clone())
                .at_record(record)
        };
        let mut ranges = bytes.iter().take(plan.extents.len());
        let mut shared = bytes.iter().skip(plan.extents.len());
        let mut channels: Vec<SmallVec<[VolumeChannel; 2]>> = Vec::with_capacity(files.len());
        let mut foreground = Bytes::new();
        for (index, file) in files.iter().enumerate() {
            let header = &file.header;
            let (pitch, channel) = header.pitch();
            let base = VolumeChannel {
                dtype: header.dtype,
                slope: header.slope,
                intercept: header.intercept,
                begin: [0; 3],
                shape: header.shape,
                pieces: SmallVec::new(),
                pitch,
                skip: 0,
            };
            let window = plan.window.as_ref().and_then(|window| Some((Inner::reads_box(file, window)?, window)));
            let of_file: SmallVec<[VolumeChannel; 2]> = if let Some((at, window)) = window {
                let (wanted, pitch) = self.cover(file, at, window);
                let each = wanted.len() / header.channels;
                let piece = |range: Range<u64>| {
                    let piece = ranges.next().filter(|piece| piece.len() as u64 == range.end - range.start);
                    piece.cloned().ok_or_else(|| short(file))
                };
                let pieces = wanted.into_iter().map(piece).collect::<Result<Vec<_>>>()?;
                let turned = |piece: &Bytes| match header.is_foreign() {
                    true => {
                        let mut own = piece.to_vec();
                        decode::turn(&mut own, header.dtype.size());
                        own.into()
                    }
                    false => piece.clone(),
                };
                let one = |c: usize| VolumeChannel {
                    begin: [0, 1, 2].map(|axis: usize| window[axis].start),
                    shape: [0, 1, 2].map(|axis: usize| window[axis].len()),
                    pieces: pieces[c * each..(c + 1) * each].iter().map(turned).collect(),
                    pitch,
                    ..base.clone()
                };
                (0..header.channels).map(one).collect()
            } else {
                let voxels =
                    shared.next().filter(|voxels| voxels.len() >= header.len_bytes()).ok_or_else(|| short(file))?;
                if inner.foreground_file() == Some(index) {
                    foreground = voxels.slice(header.len_bytes()..);
                }
                let voxels = voxels.slice(..header.len_bytes());
                let one = |c: usize| VolumeChannel {
                    pieces: SmallVec::from_iter([voxels.clone()]),
                    skip: c * channel,
                    ..base.clone()
                };
                (0..header.channels).map(one).collect()
            };
            channels.push(of_file);
        }
        let shape = files[0].header.shape;
        let mut sample = Sample::new([]);
        for part in &inner.parts {
            let channels = channels[part.files.clone()].iter().flatten().cloned().collect();
            sample.values.push(Value::Volume(Box::new(Volume { shape, channels, foreground: foreground.clone() })));
        }
        for numbers in [files[0].header.spacing, files[0].header.origin] {
            sample.values.push(Value::Array(Bytes::copy_from_slice(bytemuck::bytes_of(&numbers))));
        }
        sample.values.push(Value::Label(patient as i64));
        Ok(sample)
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let inner = &*self.inner;
        let file = usize::try_from(key)
            .ok()
            .and_then(|key| inner.files.get(key))
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the dataset has no file {key}")))?;
        let named = |e: Error| e.at_stage(Stage::Decode).at_object(file.name.clone());
        let voxels = decode::decode_volume(&file.header, bytes).map_err(named)?;
        let index = key as usize % inner.each;
        if inner.spare(index) == 0 || !self.narrow.as_ref().is_some_and(|narrow| narrow.wants_foreground()) {
            return Ok(voxels);
        }
        let points = decode::foreground(&file.header, &voxels);
        // A raw file's voxels are a slice of it: copied, or the points would have no place.
        let mut both = voxels.try_into_mut().unwrap_or_else(|voxels| BytesMut::from(&voxels[..]));
        both.extend_from_slice(&points);
        Ok(both.freeze())
    }

    fn shared_bytes(&self) -> SharedBytes {
        let inner = &*self.inner;
        // Boxes are of one size but for the ends of volumes: a draw tells which files are read so.
        let reads_box = |file: &File| {
            let narrow = self.narrow_to_boxes()?;
            let voxels: usize = file.header.shape.iter().product();
            file.raw_at.filter(|_| !file.header.interleaved && narrow.most() <= voxels as u64 / 2)
        };
        let mut sum = SharedBytes::default();
        for files in inner.files.chunks(inner.each) {
            let whole = files.iter().enumerate().filter(|(_, file)| reads_box(file).is_none());
            let mut one = 0;
            for (index, file) in whole {
                let decoded = file.header.len_bytes() as u64 + inner.spare(index);
                one += decoded + file.data.iter().map(Extent::len).sum::<u64>();
                sum.all += decoded;
            }
            sum.one = sum.one.max(one);
        }
        sum
    }

    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        Some(Arc::new(Self { inner: Arc::clone(&self.inner), narrow: Some(Arc::clone(to)) }))
    }

    fn object(&self, record: u64) -> String {
        match self.inner.patient(record) {
            Ok(patient) => format!("patient {}", self.inner.patients[patient]),
            Err(_) => "volumes".to_owned(),
        }
    }

    fn largest_read(&self) -> u64 {
        let Some(narrow) = self.narrow_to_boxes() else { return 0 };
        let patient = |files: &[File]| -> u64 {
            let raw = files.iter().filter(|file| file.raw_at.is_some());
            let most = |file: &File| {
                let all = file.header.len_bytes() as u64;
                let each = (file.header.dtype.size() * file.header.channels) as u64;
                // What lies between is read too: all of it where one range serves.
                if self.inner.inline { all.min((narrow.most() * each * 8).div_ceil(5)) } else { all }
            };
            raw.map(most).sum()
        };
        self.inner.files.chunks(self.inner.each).map(patient).max().unwrap_or(0)
    }

    fn needs_fetch(&self) -> bool {
        !self.inner.inline
    }

    fn resident_bytes(&self) -> u64 {
        let names: usize = self.inner.files.iter().map(|file| file.name.len()).sum();
        (names + self.inner.files.len() * size_of::<File>()) as u64
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        let inner = &*self.inner;
        Some((0..inner.patients.len() as u64).map(|patient| patient * inner.samples).collect())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.inner.fingerprint
    }
}

impl Inner {
    /// Room behind the voxels of a file for the foreground.
    fn spare(&self, index: usize) -> u64 {
        if self.foreground_file() == Some(index) { 4097 * 8 } else { 0 }
    }
}

#[cfg(test)]
mod tests;
