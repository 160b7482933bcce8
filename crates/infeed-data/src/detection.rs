//! Images with annotations: the part that detection formats share.

use std::{mem::size_of_val, sync::Arc};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    fingerprint::Fingerprint,
    random::SampleRng,
};

use super::{
    captions::Captions,
    exif::is_on_a_side,
    files::Files,
    marked::{Marked, Units},
    record::{Dataset, ReadPlan, Sample, Value, index},
    schema::{Field, FieldKind, Schema},
    sizes::{Histogram, Sizes},
};

/// Each file is a record, and so is an entry of every list.
#[derive(Debug)]
pub(crate) struct DetectionDataset {
    format: &'static str,
    files: Files,
    /// The dataset's ids of its images.
    ids: Vec<i64>,
    /// Height and width of the images, by the annotations. If either is 0, the size is read from the file's header.
    sizes: Vec<[u32; 2]>,
    notes: Notes,
    schema: Schema,
    reads: Sizes,
    fingerprint: Fingerprint,
}

/// What is known of each image; at least one of both.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) marked: Option<Marked>,
    pub(crate) captions: Option<Captions>,
    /// The identity that was kept with them.
    pub(crate) identity: Option<Identity>,
}

impl From<Marked> for Notes {
    fn from(marked: Marked) -> Self {
        Self { marked: Some(marked), captions: None, identity: None }
    }
}

/// The identity of a dataset. That of all takes a pass over all annotations, so it is kept with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Of the files, their sizes and ids.
    pub(crate) files: Fingerprint,
    /// Of the files and their annotations.
    pub(crate) all: Fingerprint,
}

impl Identity {
    /// Reads all annotations, unless `notes` were kept with the identity of these files.
    pub(crate) fn of(format: &str, files: &Files, ids: &[i64], sizes: &[[u32; 2]], notes: &Notes) -> Result<Self> {
        let mut images = ids.iter().zip(sizes);
        let print = Fingerprint::of(format).number(files.len() as u64);
        let mut print = files.fold(print, |print, name, size| {
            let print = print.text(name).number(size);
            images.next().into_iter().fold(print, |print, (id, [height, width])| {
                print.number(*id as u64).number((*height).into()).number((*width).into())
            })
        })?;
        let of_files = print.finish();
        if let Some(kept) = notes.identity.filter(|kept| kept.files == of_files) {
            return Ok(kept);
        }
        if let Some(marked) = &notes.marked {
            print = marked.print(print)?;
        }
        if let Some(captions) = &notes.captions {
            print = captions.print(print)?;
        }
        Ok(Self { files: of_files, all: print.finish() })
    }
}

impl DetectionDataset {
    /// `files`, `ids` and `sizes` have as many entries as `notes`. A size with a 0 is not known before its image is read.
    ///
    /// # Errors
    /// `Corrupt` if kept annotations are damaged.
    pub(crate) fn new(
        format: &'static str,
        files: Files,
        ids: Vec<i64>,
        sizes: Vec<[u32; 2]>,
        notes: impl Into<Notes>,
        classes: Arc<[String]>,
    ) -> Result<Self> {
        let notes = notes.into();
        let fingerprint = Identity::of(format, &files, &ids, &sizes, &notes)?.all;
        let marked = notes.marked.as_ref();
        let flat = marked.map_or(0, |marked| marked.flat);
        if flat > 0 {
            let url = files.source.url();
            tracing::warn!(
                flat,
                url,
                "boxes have no width or no height; sanitize_bounding_boxes in the transform removes them"
            );
        }
        let points = marked.and_then(|marked| marked.keypoint_names.clone());
        let keypoints = points.as_ref().map_or(0, |names| names.len());
        let instances = marked.map(|marked| {
            let kind = FieldKind::Instances { most: marked.most, masks: marked.has_masks, keypoints };
            Field::new("instances", kind)
        });
        let captions = notes.captions.as_ref().map(|captions| Field::texts("captions", captions.most));
        let image_id = Field::new("image_id", FieldKind::Label);
        let fields = [Some(Field::image()), instances, captions, Some(image_id)].into_iter().flatten().collect();
        let mut reads = Histogram::default();
        files.fold((), |(), _, size| reads.add(size))?;
        let has_boxes = marked.is_some();
        let mut schema = Schema::new(fields).with_classes(Some(classes).filter(|_| has_boxes));
        schema.names.extend(points.map(|names| ("keypoints".to_owned(), names)));
        // The library of YOLO turns images by their EXIF data, and boxes are fractions of what it shows.
        schema.upright = notes.marked.as_ref().is_some_and(|marked| marked.units == Units::Fractions);
        Ok(Self { format, files, ids, sizes, notes, schema, reads: reads.sizes(), fingerprint })
    }

    /// Height and width, if the annotations have them.
    fn size(&self, at: usize) -> Option<[u32; 2]> {
        self.sizes.get(at).copied().filter(|size| !size.contains(&0))
    }
}

/// Height and width by the file's header.
fn size_in_header(file: &[u8]) -> Result<[u32; 2]> {
    const NO_SIZE: &str = "neither the annotations nor the file's header have the size of the image";
    let hint = || "fetch the file again, or add the size of the image to its annotations".to_owned();
    let (height, width) = match size_of_bmp(file) {
        Some([height, width]) => (height as usize, width as usize),
        None => {
            let size =
                imagesize::blob_size(file).map_err(|e| Error::corrupt(NO_SIZE).with_source(e).with_hint(hint()))?;
            (size.height, size.width)
        }
    };
    match [height, width].map(u32::try_from) {
        [Ok(height), Ok(width)] if height > 0 && width > 0 => Ok([height, width]),
        _ => Err(Error::corrupt(NO_SIZE).with_hint(hint())),
    }
}

/// The library does not support rows from the top (negative height) and OS/2's short header.
fn size_of_bmp(file: &[u8]) -> Option<[u32; 2]> {
    let word = |at: usize| Some(i32::from_le_bytes(*file.get(at..)?.first_chunk()?));
    let short = |at: usize| Some(u16::from_le_bytes(*file.get(at..)?.first_chunk()?));
    match (file.starts_with(b"BM"), word(14)?) {
        (false, _) => None,
        (true, 12) => Some([short(20)?, short(18)?].map(u32::from)),
        (true, _) => Some([word(22)?, word(18)?].map(i32::unsigned_abs)),
    }
}

impl Dataset for DetectionDataset {
    fn len(&self) -> u64 {
        self.files.len() as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        self.format
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        Ok(ReadPlan::one(self.files.extent(index(record, self.files.len())?)?))
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.files.len())?;
        let [image] = bytes else {
            let what = format!("{} buffers, but the plan has 1", bytes.len());
            return Err(Error::new(ErrorKind::Internal, what).at_record(record));
        };
        let mut sample = Sample::new([Value::Encoded(image.clone())]);
        if let Some(marked) = &self.notes.marked {
            let in_header = || {
                let [height, width] = size_in_header(image)?;
                let turned = self.schema.upright && is_on_a_side(image);
                Ok(if turned { [width, height] } else { [height, width] })
            };
            let size = self.size(i).map_or_else(in_header, Ok);
            let instances = size.and_then(|size| marked.instances(i, size));
            let instances = instances.map_err(|e| e.at_record(record).at_object(self.files.display(i)))?;
            sample.values.push(Value::Instances(Box::new(instances)));
        }
        if let Some(captions) = &self.notes.captions {
            let captions = captions.of(i).map_err(|e| e.at_record(record).at_object(self.files.display(i)))?;
            sample.values.push(Value::Texts(captions));
        }
        sample.values.push(Value::Label(self.ids[i]));
        Ok(sample)
    }

    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        self.size(usize::try_from(record).ok()?)
    }

    /// Errors are reported when their record is read.
    fn known(&self, record: u64, field: &str) -> Option<Value> {
        let i = index(record, self.files.len()).ok()?;
        match field {
            "instances" => {
                let marked = self.notes.marked.as_ref()?;
                Some(Value::Instances(Box::new(marked.instances(i, self.size(i)?).ok()?)))
            }
            "captions" => Some(Value::Texts(self.notes.captions.as_ref()?.of(i).ok()?)),
            "image_id" => Some(Value::Label(self.ids[i])),
            _ => None,
        }
    }

    fn object(&self, record: u64) -> String {
        index(record, self.files.len())
            .map_or_else(|_| self.files.source.url().to_owned(), |record| self.files.display(record))
    }

    fn needs_fetch(&self) -> bool {
        !self.files.source.reads_inline()
    }

    fn largest_read(&self) -> u64 {
        self.reads.largest
    }

    fn usual_read(&self) -> u64 {
        self.reads.usual
    }

    fn resident_bytes(&self) -> u64 {
        let lists = size_of_val(&*self.ids) + size_of_val(&*self.sizes);
        let marked = self.notes.marked.as_ref().map_or(0, |marked| marked.records.resident_bytes());
        let captions = self.notes.captions.as_ref().map_or(0, |captions| captions.records.resident_bytes());
        self.files.bytes() + lists as u64 + marked + captions
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_in_the_headers_of_files() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x1e\0\0\0\x14\x08\x02\0\0\0";
        let jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0\xff\xc0\0\x11\x08\0\x14\0\x1e\x03";
        let webp = b"RIFF\x24\0\0\0WEBPVP8 \x18\0\0\0\x30\x01\0\x9d\x01\x2a\x1e\0\x14\0\0\0";
        let bmp = [&b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x1e\0\0\0\xec\xff\xff\xff"[..], &[0; 28]].concat();
        let ifd = |tag: u8, value: u8| [tag, 1, 3, 0, 1, 0, 0, 0, value, 0, 0, 0];
        let tiff = [&b"II*\0\x08\0\0\0\x02\0"[..], &ifd(0, 30), &ifd(1, 20), &[0; 4]].concat();
        for (name, file) in [
            ("png", &png[..]),
            ("jpeg", jpeg),
            ("webp", webp),
            ("bmp from the top", &bmp),
            ("bmp of OS/2", b"BM\x46\0\0\0\0\0\0\0\x1a\0\0\0\x0c\0\0\0\x1e\0\x14\0\x01\0\x18\0"),
            ("tiff", &tiff),
            ("gif", b"GIF89a\x1e\0\x14\0\0\0\0"),
            ("pnm", b"P6 # x\n30 20\n255\n"),
        ] {
            assert_eq!(size_in_header(file).unwrap(), [20, 30], "{name}");
        }
        let without_a_row = b"GIF89a\x1e\0\0\0\0\0\0";
        for bad in
            [&b""[..], b"one", b"a text that is long enough", b"BM no header of this", &jpeg[..20], without_a_row]
        {
            let error = size_in_header(bad).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Corrupt && error.to_string().contains("have the size of the image"),
                "{error}"
            );
        }
    }

    #[test]
    fn any_bytes_have_a_size_or_an_error() {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
        let seeds: [&[u8]; 7] = [
            b"\x89PNG\r\n\x1a\n",
            b"\xff\xd8\xff\xe0",
            b"RIFF\x24\0\0\0WEBPVP8X",
            b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0",
            b"II*\0\x08\0\0\0",
            b"P6 30",
            b"\0\0\0\x0cJXL \r\n\x87\n\0\0\0\x09jxlc\xff\x0a",
        ];
        for round in 0..70_000 {
            let mut bytes = seeds[round % seeds.len()].to_vec();
            bytes.extend((0..draws.below(60)).map(|_| match draws.below(3) {
                0 => 0xff,
                1 => 0,
                _ => draws.bits() as u8,
            }));
            drop(size_in_header(&bytes));
        }
    }
}
