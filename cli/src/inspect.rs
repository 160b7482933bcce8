//! `infeed inspect`: what a dataset holds.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use futures::{StreamExt, stream};
use infeed::{
    Dataset, Error, ErrorKind, LoaderConfig,
    codec::{ImageCodec, codecs},
    dataset::{Field, FieldKind, ImageInfo, Instances, Open, Recognised, SampleRng, Value},
    device::Devices,
    sampler::{Launch, Mixture, MixturePart},
    source::{Connection, Source},
};
use serde::Serialize;

use crate::{
    args::{DatasetArgs, InspectArgs},
    failure::Failure,
    gpu::{self, FreeMemory},
    learn::{self, Learned},
    options::Steps,
    out::{self, JsonTarget, Out},
    parts::Part,
    report, sheet,
    stats::{self, FieldStats},
    units,
};

/// Records sampled for sizes: enough for a median, and read in a fraction of a second.
const SAMPLED: u64 = 200;
/// Class names shown.
const CLASSES: usize = 8;

/// The JSON of `inspect`.
#[derive(Debug, Serialize)]
struct Findings {
    version: u32,
    #[serde(flatten)]
    ranks: Option<Ranks>,
    /// The error, if there are no ranks: `run` would fail with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    launcher_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Devices>,
    /// Free memory of each GPU, if NVML reports it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    free_memory: Vec<FreeMemory>,
    #[serde(flatten)]
    dataset: Option<DatasetFindings>,
}

/// The ranks that `run` would have, started in the same way.
#[derive(Debug, Serialize)]
struct Ranks {
    rank: u32,
    world_size: u32,
    local_rank: u32,
    local_world_size: u32,
    launcher: Option<&'static str>,
    launcher_variables: Vec<String>,
}

impl From<Launch> for Ranks {
    fn from(Launch { shard, launcher, variables: launcher_variables, .. }: Launch) -> Self {
        Self {
            rank: shard.rank(),
            world_size: shard.world(),
            local_rank: shard.local_rank(),
            local_world_size: shard.local_world(),
            launcher,
            launcher_variables,
        }
    }
}

#[derive(Debug, Serialize)]
struct DatasetFindings {
    url: String,
    /// For a bucket: the connection used.
    #[serde(skip_serializing_if = "Option::is_none")]
    connection: Option<Connection>,
    format: String,
    /// Why it is this format, for each place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recognised: Vec<String>,
    /// Files that are not read, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    records: u64,
    classes: Option<usize>,
    class_names: Vec<String>,
    /// With --part.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartFindings>,
    fields: Vec<FieldFindings>,
    fingerprint: String,
    sizes: Option<Sizes>,
    first_records: Vec<Record>,
    /// With --stats.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stats: Vec<FieldStats>,
    /// With --decode-index.
    #[serde(skip_serializing_if = "Option::is_none")]
    decode_index: Option<Learned>,
    /// A lack of memory for some record. It is reported last, because the rest may be useful.
    #[serde(skip)]
    refused: Option<Error>,
}

/// One of the datasets that are mixed.
#[derive(Debug, Serialize)]
struct PartFindings {
    url: String,
    #[serde(flatten)]
    part: MixturePart,
    /// Samples in the first epoch; `None` if the shares cannot be mixed.
    samples_per_epoch: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FieldFindings {
    name: String,
    kind: &'static str,
    describe: String,
}

/// Sizes of a sample of records, evenly spread.
#[derive(Debug, Serialize)]
struct Sizes {
    sampled: usize,
    unreadable: usize,
    first_error: Option<String>,
    bytes: Spread,
    height: Spread,
    width: Spread,
    /// Numbers by kind: `jpeg`, `png`, `pixels`.
    kinds: BTreeMap<String, usize>,
}

#[derive(Debug, Serialize)]
struct Spread {
    min: u64,
    p50: u64,
    max: u64,
}

/// The contents of one record, from its headers.
#[derive(Debug, Default, Serialize)]
struct Record {
    record: u64,
    object: String,
    /// Bytes read for it, or held in memory.
    bytes: u64,
    kind: Option<String>,
    height: Option<u32>,
    width: Option<u32>,
    channels: Option<u8>,
    /// Labels by field name.
    labels: BTreeMap<String, i64>,
    /// Beginnings of fields of bytes, by field name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    texts: BTreeMap<String, String>,
    /// Number of items of lists, by field name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    lists: BTreeMap<String, usize>,
    /// Boxes of fields of instances, by field name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    instances: BTreeMap<String, Boxes>,
    error: Option<String>,
    /// The same error, if the machine caused it and not the record.
    #[serde(skip)]
    refused: Option<Error>,
}

/// How many boxes an image has.
#[derive(Debug, Serialize)]
struct Boxes {
    boxes: usize,
    /// Boxes by class.
    classes: BTreeMap<String, usize>,
    /// Labelled key points, if the dataset has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    keypoints: Option<usize>,
}

/// `infeed inspect`.
pub(crate) async fn command(args: InspectArgs) -> Result<(), Failure> {
    let mut out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    args.decode_index.as_deref().map_or(Ok(()), out::check_writable)?;
    if let Some(path) = &args.sheet {
        sheet::FileType::of(path)?;
        out::check_writable(path)?;
    }
    Steps::check(args.transform.as_deref())?;
    let devices = args.devices.then(infeed::device::devices);
    let mut free_memory = Vec::new();
    if let Some(devices) = &devices {
        out.line(devices)?;
        free_memory = gpu::free_memory(&devices.gpus);
        for FreeMemory { index, free_bytes, .. } in &free_memory {
            out.line(format_args!("cuda:{index}: {} free", units::size(*free_bytes)))?;
        }
    }
    let (ranks, launcher_error) = match Launch::from_env() {
        Ok(launch) => (Some(Ranks::from(launch)), None),
        Err(error) => (None, Some(error.to_string())),
    };
    if let Some(error) = &launcher_error {
        out.warn(error);
    }
    if let Some(ranks) = &ranks
        && let Some(launcher) = ranks.launcher
    {
        let Ranks { rank, world_size, local_rank, local_world_size, launcher_variables, .. } = ranks;
        let by = launcher_variables.join(", ");
        out.words(format_args!(
            "rank {rank} of {world_size}, {local_rank} of {local_world_size} on this machine, by {launcher}: {by}"
        ))?;
    }
    let mut findings = Findings { version: 1, ranks, launcher_error, devices, free_memory, dataset: None };
    if let Some(url) = &args.url {
        let recognised = Arc::new(Mutex::new(Vec::new()));
        let (dataset, connection) = open(url, &args.dataset, &recognised).await?;
        let mut found = look(url, &dataset, args.records).await;
        for Recognised { why, left_out, .. } in recognised.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            found.recognised.extend((!why.is_empty()).then_some(why));
            found.left_out.extend(left_out);
        }
        found.connection = connection;
        found.parts = PartFindings::of(&args.dataset.parts(url)?, &*dataset);
        found.print(&out, &dataset)?;
        if args.stats {
            found.stats = stats::of(&dataset, args.count).await?;
            found.stats.iter().try_for_each(|stats| stats.print(&out))?;
        }
        if let Some(path) = &args.decode_index {
            let learned = learn::of(&dataset, path, LoaderConfig::default().index_bytes(), &mut out).await?;
            learned.print(&out)?;
            found.decode_index = Some(learned);
        }
        findings.dataset = Some(found);
        if let Some(path) = &args.sheet {
            let (steps, name) = Steps::of(args.transform.as_deref(), &args.views, &*dataset)?;
            let count = sheet::write(&dataset, &steps, &args, path).await?;
            out.words(format_args!("\n{}: {count} samples after {name}", path.display()))?;
        }
    }
    args.json.as_ref().map_or(Ok(()), |json| json.write(&findings))?;
    findings.dataset.and_then(|found| found.refused).map_or(Ok(()), |error| Err(error.into()))
}

/// Opens the dataset, and keeps the connection, which a dataset does not expose.
async fn open(
    url: &str,
    args: &DatasetArgs,
    recognised: &Arc<Mutex<Vec<Recognised>>>,
) -> Result<(Arc<dyn Dataset>, Option<Connection>), Failure> {
    // Rank 0, so that a missing listing is written instead of waited for.
    let rank = || Ok(0);
    let told = Arc::clone(recognised);
    let telling =
        |open: Open| open.on_recognised(move |found| told.lock().unwrap_or_else(PoisonError::into_inner).push(found));
    if !args.part.is_empty() {
        return Ok((args.open(url, rank).await?, None));
    }
    if url.starts_with("synthetic:") || infeed::dataset::names_many(url) {
        return Ok((telling(args.apply(infeed::open(url), rank)?).await?, None));
    }
    let source = Source::parse(url)?;
    let dataset = telling(args.apply(infeed::dataset::open_source(source.clone()), rank)?).await?;
    Ok((dataset, source.connection()))
}

async fn look(url: &str, dataset: &Arc<dyn Dataset>, first: u64) -> DatasetFindings {
    let schema = dataset.schema();
    let classes = schema.classes.as_deref();
    let codecs = codecs();
    // A remote store answers slowly, so read several records at a time.
    let read = |records: Vec<u64>| {
        stream::iter(records).map(|record| look_at(dataset, &codecs, record)).buffered(16).collect::<Vec<_>>()
    };
    let first_records = read((0..first.min(dataset.len())).collect()).await;
    let step = dataset.len().div_ceil(SAMPLED).max(1);
    // Only images have sizes that are worth it. A volume takes long to read; its shape is in the schema, or among the
    // first records.
    let has = |is: fn(&FieldKind) -> bool| schema.fields.iter().any(|field| is(&field.kind));
    let is_worth =
        has(|kind| matches!(kind, FieldKind::Image { .. })) && !has(|kind| matches!(kind, FieldKind::Volume { .. }));
    let sampled = read(
        (0..if is_worth { dataset.len() } else { 0 }).step_by(usize::try_from(step).unwrap_or(usize::MAX)).collect(),
    )
    .await;
    DatasetFindings {
        url: url.to_owned(),
        connection: None,
        format: dataset.format().to_owned(),
        recognised: Vec::new(),
        left_out: Vec::new(),
        records: dataset.len(),
        classes: classes.map(<[_]>::len),
        class_names: classes.unwrap_or_default().iter().take(CLASSES).cloned().collect(),
        parts: Vec::new(),
        fields: schema.fields.iter().map(FieldFindings::new).collect(),
        fingerprint: dataset.fingerprint().to_string(),
        sizes: Sizes::of(&sampled),
        refused: first_records.iter().chain(&sampled).find_map(|record| record.refused.clone()),
        first_records,
        stats: Vec::new(),
        decode_index: None,
    }
}

/// Reads one record. An error becomes part of the result.
async fn look_at(dataset: &Arc<dyn Dataset>, codecs: &[Arc<dyn ImageCodec>], record: u64) -> Record {
    let mut found = Record { record, object: dataset.object(record), ..Record::default() };
    if let Err(error) = fill(&mut found, dataset, codecs).await {
        found.error = Some(format!("{error:#}"));
        let error = error.at_record(record);
        found.refused = (error.kind() == ErrorKind::OutOfMemory && !error.is_sample()).then_some(error);
    }
    found
}

async fn fill(found: &mut Record, dataset: &Arc<dyn Dataset>, codecs: &[Arc<dyn ImageCodec>]) -> Result<(), Error> {
    let plan = dataset.plan(found.record, SampleRng::new(0, 0, found.record))?;
    let mut bytes = Vec::new();
    for extent in &plan.extents {
        bytes.push(extent.read().await?);
    }
    found.bytes = bytes.iter().map(|part| part.len() as u64).sum();
    for shared in &plan.shared {
        let mut encoded = Vec::new();
        for extent in &shared.extents {
            encoded.push(extent.read().await?);
        }
        found.bytes += shared.encoded();
        bytes.push(dataset.decode_shared(shared.key, &encoded)?);
    }
    let sample = dataset.parse(found.record, &plan, &bytes)?;
    for (field, value) in dataset.schema().fields.iter().zip(&sample.values) {
        let info = match value {
            Value::Label(label) => {
                found.labels.insert(field.name.clone(), *label);
                continue;
            }
            Value::Bytes(bytes) => {
                found.texts.insert(field.name.clone(), beginning(bytes));
                continue;
            }
            Value::List(bytes) => {
                if let Some(each) = field.kind.item_bytes() {
                    found.lists.insert(field.name.clone(), bytes.len() / each);
                }
                continue;
            }
            Value::Images(images) => {
                found.lists.insert(field.name.clone(), images.len());
                continue;
            }
            Value::Texts(texts) => {
                found.lists.insert(field.name.clone(), texts.len());
                continue;
            }
            Value::Instances(marked) => {
                let names = dataset.schema().classes.as_deref().unwrap_or_default();
                found.instances.insert(field.name.clone(), Boxes::of(marked, names));
                continue;
            }
            Value::Encoded(bytes) if !field.mask => {
                let head = &bytes[..bytes.len().min(64)];
                let Some(codec) = codecs.iter().find(|codec| codec.recognises(head)) else {
                    let what =
                        if bytes.is_empty() { "the file is empty" } else { "no decoder knows this kind of file" };
                    return Err(Error::corrupt(what));
                };
                found.kind = Some(codec.name().to_owned());
                codec.info(bytes)?
            }
            // The first channel's file stands for all.
            Value::Channels(files) => {
                let Some(codec) = files.first().and_then(|file| {
                    let head = &file[..file.len().min(64)];
                    codecs.iter().find(|codec| codec.recognises(head))
                }) else {
                    return Err(Error::corrupt("no decoder knows this kind of file"));
                };
                found.kind = Some(codec.name().to_owned());
                let info = codec.info(&files[0])?;
                ImageInfo { channels: u8::try_from(files.len()).unwrap_or(u8::MAX), ..info }
            }
            Value::Pixels { info, data } => {
                if plan.extents.is_empty() {
                    found.bytes += data.len() as u64;
                }
                found.kind = Some("pixels".into());
                *info
            }
            Value::Volume(volume) => {
                let [depth, height, width] = volume.shape;
                found.kind.get_or_insert_with(|| format!("volume {width}x{height}x{depth}"));
                continue;
            }
            _ => continue,
        };
        (found.height, found.width, found.channels) = (Some(info.height), Some(info.width), Some(info.channels));
    }
    Ok(())
}

/// The beginning of a text, short enough for a table. Bytes that are not text are escaped.
fn beginning(bytes: &[u8]) -> String {
    const SHOWN: usize = 40;
    // Longer than what is shown, so that a character cut here is not shown.
    let start = &bytes[..bytes.len().min(SHOWN * 4 + 4)];
    let text: String = start.utf8_chunks().flat_map(|chunk| chunk.valid().chars().chain(invalid(chunk))).collect();
    fn invalid(chunk: std::str::Utf8Chunk<'_>) -> Option<char> {
        (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER)
    }
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

impl PartFindings {
    fn of(parts: &[Part], dataset: &dyn Dataset) -> Vec<Self> {
        let starts = dataset.parts().unwrap_or_default();
        let ends = starts.iter().skip(1).copied().chain([dataset.len()]);
        let records: Vec<u64> = starts.iter().zip(ends).map(|(start, end)| end - start).collect();
        let named = |all: Mixture, part: &Part| all.part(&part.name, part.share.unwrap_or_default());
        let Ok(mixture) = parts.iter().fold(Mixture::new(0), named).with_records(&records) else { return Vec::new() };
        let counts = mixture.counts(0).ok();
        let found = |(at, (part, typed)): (usize, (MixturePart, &Part))| Self {
            url: typed.url.clone(),
            part,
            samples_per_epoch: counts.as_ref().map(|counts| counts[at]),
        };
        mixture.parts.into_iter().zip(parts).enumerate().map(found).collect()
    }

    fn words(&self) -> String {
        let records = units::count(self.part.records.unwrap_or(0));
        let samples = match self.samples_per_epoch {
            Some(samples) => format!("{} samples per epoch", units::count(samples)),
            None => "cannot be mixed with the others".into(),
        };
        let name = infeed::internal::printable::name(&self.part.name);
        format!("{name}, {}: {records} records, {samples}", self.part.share)
    }
}

impl FieldFindings {
    fn new(field: &Field) -> Self {
        let (kind, describe) = match &field.kind {
            FieldKind::Image { channels, size, dtype } => {
                let size = size.map_or("any size".into(), |(height, width)| format!("{height}x{width}"));
                let dtype = dtype.map_or(String::new(), |dtype| format!(", {dtype}"));
                let (kind, channel) =
                    (if field.mask { "mask" } else { "image" }, if *channels == 1 { "channel" } else { "channels" });
                (kind, format!("{kind}, {channels} {channel}, {size}{dtype}"))
            }
            FieldKind::Volume { channels, size, mask } => {
                let size = size.map_or("any shape".into(), |[z, y, x]| format!("{x}x{y}x{z}"));
                let kind = mask.map_or("volume".into(), |dtype| format!("mask, {dtype}"));
                ("volume", format!("{kind}, {channels} channels, {size} (x, y, z)"))
            }
            FieldKind::Label => ("label", "class index, i64".into()),
            FieldKind::Array { dtype, shape } => ("array", format!("array {shape:?}, {dtype}")),
            FieldKind::Bytes { most } => {
                ("bytes", format!("bytes of any length, at most {}", units::size(*most as u64)))
            }
            FieldKind::Text { most } => ("text", format!("text of any length, at most {}", units::size(*most as u64))),
            FieldKind::List { dtype, item, most } => {
                let of = if item.is_empty() { dtype.to_string() } else { format!("{dtype} {item:?}") };
                ("list", format!("list of {of}, at most {} items", units::count(*most as u64)))
            }
            FieldKind::Images { channels, dtype, usual, .. } => {
                let dtype = dtype.map_or(String::new(), |dtype| format!(", {dtype}"));
                let channel = if *channels == 1 { "channel" } else { "channels" };
                let each = if field.mask { "masks" } else { "images" };
                ("images", format!("{each}, about {usual} in a record, {channels} {channel}, any size{dtype}"))
            }
            FieldKind::Texts { most } => {
                ("texts", format!("texts, any number in a record, at most {}", units::size(*most as u64)))
            }
            FieldKind::Instances { most, masks, keypoints } => {
                let masks = if *masks { "with masks" } else { "without masks" };
                let points = if *keypoints > 0 { format!(", {keypoints} key points each") } else { String::new() };
                ("instances", format!("boxes, at most {} per image, {masks}{points}", units::count(*most as u64)))
            }
            other => ("other", format!("{other:?}")),
        };
        Self { name: field.name.clone(), kind, describe }
    }
}

impl Boxes {
    fn of(marked: &Instances, names: &[String]) -> Self {
        let mut classes = BTreeMap::new();
        for label in &marked.labels {
            let name = usize::try_from(*label).ok().and_then(|label| names.get(label));
            *classes.entry(name.map_or_else(|| label.to_string(), String::clone)).or_default() += 1;
        }
        let labelled = |points: &Vec<Vec<[f32; 3]>>| points.iter().flatten().filter(|[_, _, v]| *v > 0.0).count();
        Self { boxes: marked.len(), classes, keypoints: marked.keypoints.as_ref().map(labelled) }
    }

    /// `3 boxes: 2 dog, 1 person; 17 key points`.
    fn told(&self) -> String {
        let word = if self.boxes == 1 { "box" } else { "boxes" };
        let classes: Vec<_> =
            self.classes.iter().take(CLASSES).map(|(name, count)| format!("{count} {name}")).collect();
        let more = if self.classes.len() > CLASSES { ", …" } else { "" };
        let colon = if classes.is_empty() { "" } else { ": " };
        let points = self.keypoints.map(|points| format!("; {points} key points")).unwrap_or_default();
        format!("{} {word}{colon}{}{more}{points}", self.boxes, classes.join(", "))
    }
}

impl Sizes {
    /// Sizes of the readable images; `None` without one.
    fn of(records: &[Record]) -> Option<Self> {
        let mut kinds = BTreeMap::new();
        for kind in records.iter().filter_map(|record| record.kind.clone()) {
            *kinds.entry(kind).or_default() += 1;
        }
        Some(Self {
            sampled: records.len(),
            first_error: records.iter().find_map(|record| record.error.clone()),
            unreadable: records.iter().filter(|record| record.error.is_some()).count(),
            bytes: Spread::of(records.iter().filter(|record| record.error.is_none()).map(|record| record.bytes))?,
            height: Spread::of(records.iter().filter_map(|record| record.height).map(u64::from))?,
            width: Spread::of(records.iter().filter_map(|record| record.width).map(u64::from))?,
            kinds,
        })
    }
}

impl Spread {
    fn of(values: impl Iterator<Item = u64>) -> Option<Self> {
        let mut values: Vec<u64> = values.collect();
        values.sort_unstable();
        Some(Self { min: *values.first()?, p50: values[values.len() / 2], max: *values.last()? })
    }
}

impl DatasetFindings {
    fn print(&self, out: &Out, dataset: &Arc<dyn Dataset>) -> Result<(), Failure> {
        let mut table = report::table();
        table.add_row(["dataset", &self.url]);
        if let Some(connection) = &self.connection {
            table.add_row([if connection.commit.is_some() { "hub" } else { "bucket" }, &connection.to_string()]);
        }
        table.add_row(["format", &self.format]);
        for why in &self.recognised {
            table.add_row(["because", why]);
        }
        for kind in &self.left_out {
            table.add_row(["left out", kind]);
        }
        table.add_row(["records", &units::count(self.records)]);
        for part in &self.parts {
            table.add_row(["part", &part.words()]);
        }
        if let Some(classes) = self.classes {
            let more = if classes > self.class_names.len() { ", …" } else { "" };
            table.add_row([
                "classes",
                &format!("{}: {}{more}", units::count(classes as u64), self.class_names.join(", ")),
            ]);
        }
        for (field, names) in &dataset.schema().names {
            let more = if names.len() > CLASSES { ", …" } else { "" };
            let first: Vec<_> = names.iter().take(CLASSES).map(String::as_str).collect();
            table.add_row([format!("names of {field}"), format!("{}: {}{more}", names.len(), first.join(", "))]);
        }
        for field in &self.fields {
            table.add_row([format!("field {}", field.name), field.describe.clone()]);
        }
        if let Some(sizes) = &self.sizes {
            let Sizes { sampled, unreadable, first_error, bytes, height, width, kinds } = sizes;
            let kinds: Vec<_> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            table.add_row(["sampled", &format!("{sampled} records: {}", kinds.join(", "))]);
            let size = |pick: fn(&Spread) -> u64| format!("{}x{}", pick(width), pick(height));
            table.add_row([
                "width x height",
                &format!("{} to {}, median {}", size(|s| s.min), size(|s| s.max), size(|s| s.p50)),
            ]);
            let [min, p50, max] = [bytes.min, bytes.p50, bytes.max].map(units::size);
            table.add_row(["bytes", &format!("{min} to {max}, median {p50}")]);
            if *unreadable > 0 {
                let error = first_error.as_deref().unwrap_or_default();
                table.add_row(["unreadable", &format!("{unreadable} of the sample; first: {error}")]);
            }
        }
        out.line(table.trim_fmt())?;
        if self.first_records.is_empty() {
            return Ok(());
        }
        let mut table = report::table();
        let texts = self.first_records.iter().any(|record| !record.texts.is_empty());
        let instances = self.first_records.iter().any(|record| !record.instances.is_empty());
        let mut header = vec!["record", "object", "bytes", "kind", "width x height", "label"];
        let lists = self.first_records.iter().any(|record| !record.lists.is_empty());
        header.extend(texts.then_some("text"));
        header.extend(lists.then_some("items"));
        header.extend(instances.then_some("instances"));
        table.set_header(header);
        for record in &self.first_records {
            let size = record.width.zip(record.height).map(|(width, height)| format!("{width}x{height}"));
            let names = dataset.schema().classes.as_deref().unwrap_or_default();
            let name = |label: i64| usize::try_from(label).ok().and_then(|label| names.get(label));
            let labels = record.labels.iter().map(|(field, label)| match name(*label).filter(|_| field == "label") {
                Some(name) => format!("{label} {name}"),
                None if field == "label" => label.to_string(),
                None => format!("{field} {label}"),
            });
            let mut row = vec![
                record.record.to_string(),
                infeed::internal::printable::name(&record.object).into_owned(),
                units::size(record.bytes),
                record.kind.clone().unwrap_or_default(),
                size.unwrap_or_default(),
                labels.collect::<Vec<_>>().join(", "),
            ];
            if texts {
                row.push(
                    record.texts.iter().map(|(field, text)| format!("{field} {text}")).collect::<Vec<_>>().join(", "),
                );
            }
            if lists {
                let items = record.lists.iter().map(|(field, items)| format!("{field} {items}"));
                row.push(items.collect::<Vec<_>>().join(", "));
            }
            if instances {
                row.push(record.instances.values().map(Boxes::told).collect::<Vec<_>>().join(", "));
            }
            table.add_row(row);
        }
        out.line(format_args!("\n{}", table.trim_fmt()))?;
        for record in &self.first_records {
            if let Some(error) = &record.error {
                out.words(format_args!("record {}: {error}", record.record))?;
            }
        }
        Ok(())
    }
}
