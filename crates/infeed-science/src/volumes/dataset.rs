//! Patients as records: which files are read whole, of which only a box is read, and the samples made of them.

use std::{ops::Range, sync::Arc};

use bytes::{Bytes, BytesMut};
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
    report::Stage,
};
use infeed_data::{
    record::{Dataset, ReadPlan, Sample, SharedBytes, SharedRead, Value, no_such_record},
    schema::Schema,
    volume::{Narrow, Volume, VolumeChannel},
};
use infeed_store::Extent;
use smallvec::SmallVec;

use super::{
    Stack, decode,
    header::{VolumeHeader, cover},
};

/// A volume whose header was read: one file, or the files of its slices.
#[derive(Debug)]
pub(super) struct File {
    /// The name in messages.
    pub(super) name: String,
    pub(super) header: VolumeHeader,
    /// Each data file, whole; for slices, only their pixels.
    pub(super) data: SmallVec<[Extent; 1]>,
    /// Where the voxels begin in the only data file, if they can be read by range; 0 for slices.
    pub(super) raw_at: Option<u64>,
    /// The slices, if the volume consists of DICOM slices.
    pub(super) stack: Option<Box<Stack>>,
}

/// Files of one patient that make a field.
#[derive(Clone, Debug)]
pub(super) struct FieldOf {
    /// Indices into the patient's files.
    pub(super) files: Range<usize>,
    pub(super) mask: bool,
}

/// The files of all patients, and what they are.
#[derive(Debug)]
pub(super) struct Patients {
    /// Name of the format.
    pub(super) format: &'static str,
    pub(super) inline: bool,
    pub(super) names: Arc<[String]>,
    /// The files of the first patient, then of the next.
    pub(super) files: Vec<File>,
    pub(super) fields: Vec<FieldOf>,
    /// Files per patient.
    pub(super) each: usize,
    /// Records per patient.
    pub(super) samples: u64,
    pub(super) schema: Schema,
    pub(super) fingerprint: Fingerprint,
}

/// See [`Volumes`](super::Volumes).
#[derive(Clone, Debug)]
pub(super) struct VolumesDataset {
    pub(super) all: Arc<Patients>,
    pub(super) narrow: Option<Arc<dyn Narrow>>,
}

impl Patients {
    fn patient(&self, record: u64) -> Result<usize> {
        let patient = record / self.samples;
        usize::try_from(patient)
            .ok()
            .filter(|p| *p < self.names.len())
            .ok_or_else(|| no_such_record(record, self.len()))
    }

    fn len(&self) -> u64 {
        (self.names.len() as u64).saturating_mul(self.samples)
    }

    fn files_of(&self, patient: usize) -> &[File] {
        &self.files[patient * self.each..(patient + 1) * self.each]
    }

    /// Index, among a patient's files, of the mask whose foreground patches are centred on.
    fn foreground_file(&self) -> Option<usize> {
        self.fields.iter().find(|field| field.mask).map(|field| field.files.start)
    }

    /// Bytes reserved after the voxels of a file for its foreground points.
    fn spare(&self, index: usize) -> u64 {
        if self.foreground_file() == Some(index) { 4097 * 8 } else { 0 }
    }

    /// Where the voxels begin, if reading only the box pays. For a box of more than half the volume, the whole volume
    /// is read: it then also serves the patient's other samples.
    fn reads_box(file: &File, window: &[Range<usize>; 3]) -> Option<u64> {
        let voxels: usize = window.iter().map(Range::len).product();
        let all: usize = file.header.shape.iter().product();
        file.raw_at.filter(|_| !file.header.interleaved && voxels <= all / 2)
    }
}

impl VolumesDataset {
    fn narrow_to_boxes(&self) -> Option<&Arc<dyn Narrow>> {
        self.narrow.as_ref().filter(|narrow| !narrow.wants_foreground() || self.all.foreground_file().is_none())
    }

    /// The reads of a box of a file, channel by channel, and the strides of the voxels within each read.
    fn cover(&self, file: &File, at: u64, window: &[Range<usize>; 3]) -> (Vec<Extent>, [usize; 3]) {
        if let Some(stack) = &file.stack {
            return stack.cover(&file.header, &file.data, window, !self.all.inline);
        }
        let mut extents = Vec::new();
        let mut pitch = [0; 3];
        let (_, channel) = file.header.pitch();
        for c in 0..file.header.channels {
            let cover = cover(&file.header, at + (c * channel) as u64, window, !self.all.inline);
            extents.extend(cover.ranges.into_iter().map(|range| file.data[0].clone().with_range(range)));
            pitch = cover.pitch;
        }
        (extents, pitch)
    }

    fn key(&self, patient: usize, file: usize) -> u64 {
        (patient * self.all.each + file) as u64
    }
}

impl Dataset for VolumesDataset {
    fn len(&self) -> u64 {
        self.all.len()
    }

    fn schema(&self) -> &Schema {
        &self.all.schema
    }

    fn format(&self) -> &str {
        self.all.format
    }

    fn plan(&self, record: u64, rng: SampleRng) -> Result<ReadPlan> {
        let all = &*self.all;
        let patient = all.patient(record)?;
        let files = all.files_of(patient);
        let window = match self.narrow_to_boxes() {
            Some(narrow) if files.iter().any(|file| file.raw_at.is_some()) => {
                Some(narrow.reads(files[0].header.shape, rng).map_err(|e| e.at_record(record))?)
            }
            _ => None,
        };
        let mut plan = ReadPlan::default();
        for (index, file) in files.iter().enumerate() {
            match window.as_ref().and_then(|window| Some((Patients::reads_box(file, window)?, window))) {
                Some((at, window)) => {
                    plan.extents.extend(self.cover(file, at, window).0);
                }
                None => {
                    // The foreground points follow the voxels.
                    let bytes = file.header.len_bytes() as u64 + all.spare(index);
                    plan.shared.push(SharedRead::new(self.key(patient, index), file.data.iter().cloned(), bytes));
                }
            }
        }
        plan.window = window;
        Ok(plan)
    }

    fn parse(&self, record: u64, plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let all = &*self.all;
        let patient = all.patient(record)?;
        let files = all.files_of(patient);
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
            let window = plan.window.as_ref().and_then(|window| Some((Patients::reads_box(file, window)?, window)));
            let of_file: SmallVec<[VolumeChannel; 2]> = if let Some((at, window)) = window {
                let (wanted, pitch) = self.cover(file, at, window);
                let each = wanted.len() / header.channels;
                let piece = |extent: Extent| {
                    let piece = ranges.next().filter(|piece| piece.len() as u64 == extent.len());
                    piece.cloned().ok_or_else(|| short(file))
                };
                let pieces = wanted.into_iter().map(piece).collect::<Result<Vec<_>>>()?;
                let turned = |piece: &Bytes| match &file.stack {
                    Some(stack) => stack.settled(piece),
                    None if header.is_foreign() => {
                        let mut own = piece.to_vec();
                        decode::turn(&mut own, header.dtype.size());
                        own.into()
                    }
                    None => piece.clone(),
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
                if all.foreground_file() == Some(index) {
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
        for field in &all.fields {
            let channels = channels[field.files.clone()].iter().flatten().cloned().collect();
            sample.values.push(Value::Volume(Box::new(Volume { shape, channels, foreground: foreground.clone() })));
        }
        for numbers in [files[0].header.spacing, files[0].header.origin] {
            sample.values.push(Value::Array(Bytes::copy_from_slice(bytemuck::bytes_of(&numbers))));
        }
        sample.values.push(Value::Label(patient as i64));
        Ok(sample)
    }

    fn decode_shared(&self, key: u64, bytes: &[Bytes]) -> Result<Bytes> {
        let all = &*self.all;
        let file = usize::try_from(key)
            .ok()
            .and_then(|key| all.files.get(key))
            .ok_or_else(|| Error::new(ErrorKind::Internal, format!("the dataset has no file {key}")))?;
        let named = |e: Error| e.at_stage(Stage::Decode).at_object(file.name.clone());
        let voxels = match &file.stack {
            Some(stack) => stack.decode(&file.header, bytes),
            None => decode::decode_volume(&file.header, bytes),
        };
        let voxels = voxels.map_err(named)?;
        let index = key as usize % all.each;
        if all.spare(index) == 0 || !self.narrow.as_ref().is_some_and(|narrow| narrow.wants_foreground()) {
            return Ok(voxels);
        }
        let points = decode::foreground(&file.header, &voxels);
        // The voxels of a raw file are a slice of it. They are copied, so that the points can follow them.
        let mut both = voxels.try_into_mut().unwrap_or_else(|voxels| BytesMut::from(&voxels[..]));
        both.extend_from_slice(&points);
        Ok(both.freeze())
    }

    fn shared_bytes(&self) -> SharedBytes {
        let all = &*self.all;
        // All boxes have one size, except at the ends of volumes: `most` decides which files are read by box.
        let reads_box = |file: &File| {
            let narrow = self.narrow_to_boxes()?;
            let voxels: usize = file.header.shape.iter().product();
            file.raw_at.filter(|_| !file.header.interleaved && narrow.most() <= voxels as u64 / 2)
        };
        let mut sum = SharedBytes::default();
        for files in all.files.chunks(all.each) {
            let whole = files.iter().enumerate().filter(|(_, file)| reads_box(file).is_none());
            let (mut encoded, mut decoded) = (0, 0);
            for (index, file) in whole {
                decoded += file.header.len_bytes() as u64 + all.spare(index);
                encoded += file.data.iter().map(Extent::len).sum::<u64>();
            }
            sum.encoded = sum.encoded.max(encoded);
            sum.one = sum.one.max(encoded + decoded);
            sum.all += decoded;
        }
        sum
    }

    fn narrowed(&self, to: &Arc<dyn Narrow>) -> Option<Arc<dyn Dataset>> {
        Some(Arc::new(Self { all: Arc::clone(&self.all), narrow: Some(Arc::clone(to)) }))
    }

    fn object(&self, record: u64) -> String {
        match self.all.patient(record) {
            Ok(patient) => format!("patient {}", self.all.names[patient]),
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
                // Includes the bytes between the lines of the box: up to 8/5 of it, or the whole file if one range is
                // used.
                if self.all.inline { all.min((narrow.most() * each * 8).div_ceil(5)) } else { all }
            };
            raw.map(most).sum()
        };
        self.all.files.chunks(self.all.each).map(patient).max().unwrap_or(0)
    }

    fn needs_fetch(&self) -> bool {
        !self.all.inline
    }

    fn resident_bytes(&self) -> u64 {
        let slices = |file: &File| {
            let more = file.data.len().saturating_sub(1) * size_of::<Extent>();
            more + file.stack.as_ref().map_or(0, |stack| stack.resident_bytes())
        };
        let each: usize = self.all.files.iter().map(|file| file.name.len() + slices(file)).sum();
        (each + self.all.files.len() * size_of::<File>()) as u64
    }

    fn groups(&self) -> Option<Arc<[u64]>> {
        let all = &*self.all;
        Some((0..all.names.len() as u64).map(|patient| patient * all.samples).collect())
    }

    fn fingerprint(&self) -> Fingerprint {
        self.all.fingerprint
    }
}
