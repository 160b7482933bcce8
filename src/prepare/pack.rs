//! Turns a record into a piece of a tar, on the decode threads.

use std::{
    borrow::Cow,
    collections::HashMap,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    types::{DType, Device, ImageInfo, Layout},
};
use infeed_data::{
    Dataset, Field, FieldKind, Sample, Schema, Value,
    arrays::npy_header,
    tar,
    wrapped::{Wrap, Wrapped},
};
use infeed_pixels::{
    codec::{Class, Decoder, Finished, ImageCodec, Item, Job, Jpeg, LearnScratch, Outcome, Renderer, Wait, Worker},
    transform::{Lowered, Transform},
};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use super::options::{Size, Store};

/// The field that holds the pieces.
pub(super) const FIELD: &str = "piece of tar";

/// Quality of resized images with [`Store::Keep`].
const QUALITY: u8 = 90;

/// A dataset whose samples have a piece of tar. Only small fields become tensors: the decoder makes bytes.
#[derive(Debug)]
pub(super) struct Packing {
    schema: Schema,
    /// Bytes of a large piece, without texts and lists.
    piece: u64,
}

impl Packing {
    pub(super) fn of(inner: Arc<dyn Dataset>, pack: &Pack) -> Arc<dyn Dataset> {
        let fields = inner.schema().fields.iter().map(|field| match field.kind {
            FieldKind::Image { .. } => Field::bytes(field.name.clone(), 0),
            _ => field.clone(),
        });
        let largest = pack.largest_piece(&*inner);
        let piece = Field::bytes(FIELD, largest);
        let schema = Schema::new(std::iter::once(piece).chain(fields).collect());
        Arc::new(Wrapped::new(inner, Self { schema, piece: largest as u64 }))
    }
}

impl Wrap for Packing {
    fn schema<'a>(&'a self, _inner: &'a dyn Dataset) -> &'a Schema {
        &self.schema
    }
    fn sample(&self, _inner: &dyn Dataset, record: u64, sample: Sample) -> Result<Sample> {
        // The name of the sample; the decoder replaces it with the piece.
        let name = Bytes::from(format!("{record:09}"));
        Ok(Sample::new(std::iter::once(Value::Bytes(name)).chain(sample.values)))
    }
    fn usual_varying(&self, inner: &dyn Dataset) -> Option<u64> {
        // With the piece.
        inner.usual_varying().map(|bytes| bytes.saturating_mul(2).saturating_add(self.piece))
    }
}

/// How images change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    pub(super) size: Size,
    pub(super) store: Store,
    pub(super) restarts: bool,
}

/// A field and its name within a tar.
#[derive(Clone, Debug)]
struct Member {
    field: Field,
    name: String,
}

/// The members of a record. Names get no dot, slash or capital letter, which would change the sample or field of a
/// member.
fn members(fields: &[Field]) -> Result<Vec<Member>> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-');
    let plain = |c: char| if fits(c.to_ascii_lowercase()) { c.to_ascii_lowercase() } else { '_' };
    let mut names: HashMap<String, &str> = HashMap::new();
    let member = |field: &Field| Member { field: field.clone(), name: field.name.chars().map(plain).collect() };
    let members: Vec<Member> = fields.iter().map(member).collect();
    for Member { field, name } in &members {
        if let Some(other) = names.insert(name.clone(), &field.name) {
            let what = format!("the fields `{other}` and `{}` are both called `{name}` within a tar", field.name);
            return Err(Error::config(what).with_hint("open the dataset with only the columns that you need"));
        }
    }
    Ok(members)
}

/// Decodes, resizes and encodes.
#[derive(Debug)]
pub(super) struct Pack {
    fields: Arc<[Member]>,
    recipe: Recipe,
    classes: [Class; 1],
    codecs: Arc<[Arc<dyn ImageCodec>]>,
    max_image: u64,
}

impl Pack {
    pub(super) fn new(
        schema: &Schema,
        recipe: Recipe,
        workers: NonZeroUsize,
        codecs: Vec<Arc<dyn ImageCodec>>,
        max_image: u64,
    ) -> Result<Self> {
        let classes = [Class::new("pack", Device::Cpu, workers)];
        Ok(Self { fields: members(&schema.fields)?.into(), recipe, classes, codecs: codecs.into(), max_image })
    }

    /// Approximate largest record in bytes, for the budget; panoramas may be larger.
    fn largest_piece(&self, dataset: &dyn Dataset) -> usize {
        let read = dataset.usual_read().max(64 << 10);
        let pixels = match (self.recipe.store, self.recipe.size) {
            (Store::Keep, Size::Keep) => 0,
            // A progressive file becomes a little larger.
            (Store::Baseline, Size::Keep) => read / 4,
            (_, Size::Exact(height, width)) => (u64::from(height) * u64::from(width)).saturating_mul(3),
            (_, Size::Shorter(side)) => (u64::from(side) * u64::from(side)).saturating_mul(6),
            (Store::Jpeg(_), Size::Keep) => 0,
            (Store::Raw, Size::Keep) => 16 * read,
        };
        usize::try_from(read + pixels).unwrap_or(usize::MAX)
    }
}

impl Decoder for Pack {
    fn name(&self) -> &'static str {
        "pack"
    }

    fn classes(&self) -> &[Class] {
        &self.classes
    }

    fn scratch_bytes(&self, _class: usize) -> u64 {
        self.max_image
    }

    fn worker(&self, _class: usize, _n: usize, _programs: &Arc<[Option<Lowered>]>) -> Result<Box<dyn Worker>> {
        Ok(Box::new(Packer {
            fields: Arc::clone(&self.fields),
            recipe: self.recipe,
            renderer: Renderer::new(&self.codecs, self.max_image),
            max_image: self.max_image,
            pixels: Vec::new(),
            scratch: LearnScratch::default(),
            finished: Vec::new(),
        }))
    }
}

struct Packer {
    fields: Arc<[Member]>,
    recipe: Recipe,
    renderer: Renderer,
    max_image: u64,
    pixels: Vec<u8>,
    scratch: LearnScratch,
    finished: Vec<Finished>,
}

impl Worker for Packer {
    fn submit(&mut self, mut job: Job) {
        let start = Instant::now();
        let mut outcome = |item: &mut Item| match self.pack(item) {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error.at_stage(Stage::Decode).at_record(item.record)),
        };
        let outcomes = job.items.iter_mut().map(&mut outcome).collect();
        let mut finished = Finished::new(job, outcomes);
        finished.decode = start.elapsed();
        self.finished.push(finished);
    }

    fn poll(&mut self, _wait: Wait) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }
}

impl Packer {
    /// Replaces the values of a sample with its piece.
    fn pack(&mut self, item: &mut Item) -> Result<()> {
        let sample = item.sample.as_mut().map_err(|e| e.clone())?;
        let broken = || Error::new(ErrorKind::Internal, "a sample has other fields than its schema");
        let Some((Value::Bytes(name), values)) = sample.values.split_first() else { return Err(broken()) };
        let name = str::from_utf8(name).map_err(|_| broken())?;
        let mut piece = Vec::new();
        for (member, value) in Arc::clone(&self.fields).iter().zip(values) {
            let (extension, content) = self.member(member, value)?;
            piece.extend_from_slice(&tar::header(&format!("{name}.{extension}"), content.len() as u64)?);
            piece.extend_from_slice(&content);
            piece.resize(tar::padded(piece.len() as u64) as usize, 0);
        }
        let nothing = |value: &mut Value| {
            if let Value::Bytes(bytes) = value {
                *bytes = Bytes::new();
            }
        };
        sample.values.iter_mut().for_each(nothing);
        sample.values[0] = Value::Bytes(piece.into());
        Ok(())
    }

    /// Extension and content.
    fn member<'v>(&mut self, member: &Member, value: &'v Value) -> Result<(Cow<'static, str>, Cow<'v, [u8]>)> {
        let Member { field, name } = member;
        // A field with an extension's default name needs no prefix.
        let named = |default: &'static str, last: &'static str| match &**name {
            name if name == default => Cow::Borrowed(last),
            name => Cow::Owned(format!("{name}.{last}")),
        };
        Ok(match value {
            Value::Label(label) => (named("label", "cls"), Cow::Owned(label.to_string().into())),
            Value::Array(data) => {
                let FieldKind::Array { dtype, shape } = &field.kind else {
                    return Err(Error::new(ErrorKind::Internal, "numbers in a field of another kind"));
                };
                (named("npy", "npy"), Cow::Owned([&npy_header(*dtype, shape)[..], data].concat()))
            }
            Value::List(data) => {
                let FieldKind::List { dtype, item, .. } = &field.kind else {
                    return Err(Error::new(ErrorKind::Internal, "a list in a field of another kind"));
                };
                let each = field.kind.item_bytes();
                let shape: Vec<usize> = each.map(|each| data.len() / each).into_iter().chain(item.clone()).collect();
                (named("npy", "npy"), Cow::Owned([&npy_header(*dtype, &shape)[..], data].concat()))
            }
            Value::Bytes(bytes) => {
                let extension = match (&field.kind, &**name) {
                    (_, "json") => "json".into(),
                    (FieldKind::Text { .. }, _) => named("txt", "txt"),
                    _ => named("bytes", "bytes"),
                };
                (extension, Cow::Borrowed(&bytes[..]))
            }
            Value::Encoded(_) | Value::Pixels { .. } => self.image(name, value)?,
            _ => {
                let what = format!("`{}` is not an image of one file", field.name);
                return Err(Error::new(ErrorKind::Unsupported, what)
                    .with_hint("shards hold images, labels, arrays, lists, texts and bytes"));
            }
        })
    }

    fn image<'v>(&mut self, name: &str, value: &'v Value) -> Result<(Cow<'static, str>, Cow<'v, [u8]>)> {
        let header = self.renderer.header(value)?;
        let info = header.info;
        let resized = match self.recipe.size {
            Size::Keep => None,
            Size::Exact(height, width) => Some((height, width)),
            Size::Shorter(side) => shorter(&info, side),
        };
        let named = |last: &'static str| match name {
            "image" => Cow::Borrowed(last),
            name => Cow::Owned(format!("{name}.{last}")),
        };
        let quality = match (self.recipe.store, value) {
            (Store::Keep | Store::Baseline, Value::Encoded(file)) if resized.is_none() => {
                let (extension, anew) = match self.renderer.kind(file)? {
                    "jpeg" if self.recipe.store == Store::Baseline && header.peak_bytes <= self.max_image => {
                        ("jpg", Jpeg::to_baseline(file, self.recipe.restarts, &mut self.scratch)?)
                    }
                    "jpeg" => ("jpg", None),
                    "netpbm" => ("pnm", None),
                    other => (other, None),
                };
                return Ok((named(extension), anew.map_or(Cow::Borrowed(&file[..]), Cow::Owned)));
            }
            (Store::Keep | Store::Baseline | Store::Raw, Value::Pixels { .. }) if name != "image" => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("`{name}` holds pixels, and shards hold pixels only of the field `image`"),
                )
                .with_hint("open the dataset without it"));
            }
            (Store::Keep | Store::Baseline | Store::Raw, Value::Pixels { info, data })
                if resized.is_none() && !info.planar =>
            {
                if info.len_bytes() != data.len() as u64 {
                    return Err(Error::corrupt(format!("{} bytes of pixels, not {}", data.len(), info.len_bytes())));
                }
                let shape = [info.height as usize, info.width as usize, usize::from(info.channels)];
                let content = [&npy_header(info.dtype, &shape)[..], data].concat();
                return Ok(("image.npy".into(), Cow::Owned(content)));
            }
            (Store::Keep | Store::Baseline, Value::Pixels { .. }) | (Store::Raw, _) => None,
            (Store::Keep | Store::Baseline, _) => Some(QUALITY),
            (Store::Jpeg(quality), _) => Some(quality),
        };
        let (height, width) = resized.unwrap_or((info.height, info.width));
        let kind = FieldKind::Image { channels: 3, size: None, dtype: None };
        let lowered = Transform::new().resize_exact(height, width).lower(&kind, DType::U8, Layout::Nhwc)?;
        let len = lowered.row().len_bytes();
        if self.pixels.len() < len {
            self.pixels.resize(len, 0);
        }
        let pixels = &mut self.pixels[..len];
        // The result must not depend on an epoch.
        let own = (&lowered, SampleRng::new(0, 0, 0));
        self.renderer.render(value, Some(&header), own, &mut Duration::default(), pixels)?;
        let Some(quality) = quality else {
            let shape = [height as usize, width as usize, 3];
            let content = [&npy_header(DType::U8, &shape)[..], pixels].concat();
            return Ok(("image.npy".into(), Cow::Owned(content)));
        };
        let (Ok(width), Ok(height)) = (u16::try_from(width), u16::try_from(height)) else {
            let what = format!("{width}x{height} pixels, a JPEG holds at most 65535 a side");
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint("resize, or store raw pixels"));
        };
        let mut content = Vec::with_capacity(len / 6);
        let mut encoder = Encoder::new(&mut content, quality);
        let (sampling, block) = if quality < 90 { (SamplingFactor::F_2_2, 16) } else { (SamplingFactor::F_1_1, 8) };
        encoder.set_sampling_factor(sampling);
        if self.recipe.restarts {
            encoder.set_restart_interval(width.div_ceil(block));
        }
        let encoded = encoder.encode(pixels, width, height, ColorType::Rgb);
        encoded.map_err(|e| Error::new(ErrorKind::Internal, "the JPEG encoder failed").with_source(e))?;
        Ok((named("jpg"), Cow::Owned(content)))
    }
}

/// Height and width with the shorter side reduced to `side`; `None` if it is not longer.
fn shorter(info: &ImageInfo, side: u32) -> Option<(u32, u32)> {
    let (height, width) = (u64::from(info.height), u64::from(info.width));
    let (short, side) = (height.min(width), u64::from(side));
    let scaled = |n: u64| u32::try_from(n * side / short).unwrap_or(u32::MAX);
    (short > side).then(|| (scaled(height), scaled(width)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_fit_a_tar() {
        let of = |names: &[&str]| {
            let fields: Vec<Field> = names.iter().map(|name| Field::bytes(*name, 1)).collect();
            members(&fields).map(|all| all.into_iter().map(|member| member.name).collect::<Vec<_>>())
        };
        assert_eq!(of(&["image", "image/object/Box.1", "ä"]).unwrap(), ["image", "image_object_box_1", "_"]);
        let error = of(&["a/b", "a.b"]).unwrap_err().to_string();
        assert!(error.contains("`a/b` and `a.b`") && error.contains("`a_b`"), "{error}");
    }

    #[test]
    fn the_shorter_side_is_cut_and_never_stretched() {
        let at = |height, width| shorter(&ImageInfo::interleaved_u8(height, width, 3), 256);
        assert_eq!(at(375, 500), Some((256, 341)));
        assert_eq!(at(500, 375), Some((341, 256)));
        assert_eq!(at(256, 900), None);
        assert_eq!(at(100, 100), None);
    }
}
