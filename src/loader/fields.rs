//! The fields of a loader's batches: the transform fitted to each field, and the memory of their rows.

use infeed_core::{
    error::{
        Error, Result,
        setting::{COLUMNS, FORMAT, MIX, PAD, VIEWS},
    },
    rows::Pool,
};
use infeed_data::{Dataset, FieldKind, Schema};
use infeed_pixels::{
    kernels::RowScratch,
    transform::{BatchSize, Lowered, Transform},
};

use super::{LoaderConfig, mix, place::BatchDevice, resolve::BatchBytes, views::Views};
use crate::engine::{self, BatchMix, FieldRows, LoweredField, Side, SoftLabels};

/// A field of the schema, and how its rows are made.
pub(super) struct Field {
    name: String,
    pub(super) lowered: LoweredField,
    /// For the label of mixed batches, the number of classes.
    classes: Option<usize>,
}

impl Field {
    fn row_bytes(&self) -> u64 {
        let soft = self.classes.map_or(0, SoftLabels::row_bytes);
        FieldRows::row_bytes(&self.lowered.shape, self.lowered.dtype) as u64 + soft as u64
    }

    /// Whether the workers write its rows on the decoder's device.
    const fn is_image(&self) -> bool {
        self.lowered.image.is_some()
    }
}

/// Checks `pad_to_largest`, which makes rows as large as the largest image of their batch: all sizes must be known, and
/// all images use the same.
fn batch_size(dataset: &dyn Dataset, views: &Views<'_>, config: &LoaderConfig) -> Result<Option<BatchSize>> {
    let mut sizes = views.of_field.iter().map(|(_, transform)| transform.batch_size());
    let Some(size) = sizes.find_map(Result::transpose).transpose()? else { return Ok(None) };
    let refuse =
        |what: &str, hint: &str| Err(Error::config(format!("pad_to_largest {what}")).with_hint(hint.to_owned()));
    if !config.views.is_empty() {
        return refuse("in a view of images", "use pad_to in views");
    }
    if config.mix.is_some() {
        return refuse("in batches that are mixed", "use pad_to, or leave mix out");
    }
    if dataset.schema().fields.iter().any(|field| matches!(field.kind, FieldKind::Images { .. })) {
        return refuse("of lists of images", "use pad_to");
    }
    match (0..dataset.len()).find(|record| dataset.image_size(*record).is_none()) {
        None => Ok(Some(size)),
        Some(record) => {
            let what = format!(
                "needs the sizes of all images, and that of record {record} ({}) is not known before it is read",
                dataset.object(record)
            );
            refuse(&what, "open the dataset with its annotations, which have the sizes, or use pad_to")
        }
    }
}

/// Checks that boxes have an image with one row of it, and that steps which need boxes have some.
fn check_instances(schema: &Schema, views: &Views<'_>, config: &LoaderConfig) -> Result<()> {
    let of_kind = |is: fn(&FieldKind) -> bool| schema.fields.iter().find(|field| is(&field.kind));
    let Some(field) = of_kind(|kind| matches!(kind, FieldKind::Instances { .. })) else {
        let all = views.of_field.iter().flat_map(|(_, transform)| transform.ops().iter().enumerate());
        let needing = all.into_iter().find(|(_, op)| op.needs_instances());
        return needing.map_or(Ok(()), |(index, op)| {
            let what = format!("{} needs boxes, and the dataset has none", op.name());
            Err(Error::config(what).with_hint("open it with its annotations, or leave the step out").in_step(index))
        });
    };
    let refuse = |what: &str, hint: &str| {
        Err(Error::config(format!("field {:?} has the boxes of images: {what}", field.name)).with_hint(hint.to_owned()))
    };
    if of_kind(|kind| matches!(kind, FieldKind::Image { .. })).is_none() {
        return refuse("there is no image", "open the images too");
    }
    if !config.views.is_empty() {
        return refuse(
            "boxes can't be assigned to one of several views of an image",
            &format!("leave {VIEWS} out, or the boxes"),
        );
    }
    if config.mix.is_some() {
        return refuse("they can't be mixed", &format!("leave {MIX} out, or the boxes"));
    }
    Ok(())
}

/// Sets the number that fills short rows of a list.
fn pad(all: &mut [Field], name: &str, number: f64) -> Result<()> {
    let lengths = engine::lengths_of(name);
    if all.iter().any(|field| field.name == lengths) {
        return Err(Error::config(format!("{PAD} makes a field `{lengths}`, and the dataset has one"))
            .with_hint(format!("leave that one out, with {COLUMNS}")));
    }
    let list = all.iter_mut().find_map(|field| match &mut field.lowered.side {
        Some(Side::List(list)) if field.name == name => Some(list),
        _ => None,
    });
    let Some(list) = list else {
        let lists = all.iter().filter(|field| matches!(field.lowered.side, Some(Side::List(_))));
        let lists = lists.map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
        let error = Error::config(format!("{PAD} names `{name}`, which is not a list"));
        return Err(match lists.is_empty() {
            true => error.with_hint("leave it out: the dataset has no lists"),
            false => error.with_hint(format!("use one of the lists: {lists}")),
        });
    };
    let bytes = list.dtype.bytes_of(number).ok_or_else(|| {
        Error::config(format!("{PAD} fills `{name}` with {number}, which {} does not hold", list.dtype))
    })?;
    list.pad = Some(bytes);
    Ok(())
}

pub(super) struct Fields {
    pub(super) all: Vec<Field>,
    /// How batches are mixed.
    pub(super) mix: Option<BatchMix>,
    /// Size of the rows of images, if each batch has its own.
    pub(super) size: Option<BatchSize>,
    /// Bytes of the values of different lengths in a usual row, if the dataset gives them.
    usual_varying: Option<u64>,
}

impl Fields {
    /// Fits the transform, or the transforms of the views, to all fields.
    pub(super) fn lower(dataset: &dyn Dataset, views: &Views<'_>, config: &LoaderConfig) -> Result<Self> {
        let lower = |(field, (view, transform)): (&infeed_data::Field, &(u32, &Transform))| {
            let lowered = engine::lower_field((field, dataset.schema()), transform, config.dtype, config.layout);
            let mut lowered = lowered.map_err(|error| error.at_object(format!("field {}", field.name)))?;
            lowered.of_view(*view);
            Ok(Field { name: field.name.clone(), lowered, classes: None })
        };
        let mut all: Vec<Field> =
            dataset.schema().fields.iter().zip(&views.of_field).map(lower).collect::<Result<_>>()?;
        let no_pictures =
            all.iter().all(|field| field.lowered.images().next().is_none() && field.lowered.volume.is_none());
        // An error, because batches without an image would look like a successful run.
        if no_pictures && !config.transform.ops().is_empty() {
            let names = dataset.schema().fields.iter().map(|field| format!("{} ({})", field.name, field.kind.name()));
            let (steps, have) = (&config.transform, names.collect::<Vec<_>>().join(", "));
            let what = format!("the transform ({steps}) is for images, and no field is one: there are {have}");
            return Err(Error::config(what)
                .with_hint(format!("leave the transform out, or open the images too: {COLUMNS}, {FORMAT}")));
        }
        check_instances(dataset.schema(), views, config)?;
        config.pad.iter().try_for_each(|(name, number)| pad(&mut all, name, *number))?;
        let lowered: Vec<&LoweredField> = all.iter().map(|field| &field.lowered).collect();
        let mixed = config.mix.as_ref().map(|settings| mix::fit(settings, dataset.schema(), &lowered)).transpose()?;
        let mix = mixed.map(|mix::Mixed { mix, label, classes }| {
            all[label].classes = Some(classes);
            mix
        });
        let size = batch_size(dataset, views, config)?;
        Ok(Self { all, mix, size, usual_varying: dataset.usual_varying() })
    }

    pub(super) fn batch_bytes(&self, batch_size: usize, has_device: bool) -> BatchBytes {
        let sum = |bytes: &dyn Fn(&Field) -> u64| self.all.iter().map(bytes).fold(0, u64::saturating_add);
        let is_there = |field: &Field| has_device && field.is_image();
        // The dataset gives the usual bytes of the others.
        let own = |side: &Side| match side {
            Side::List(list) => list.images.is_some(),
            side => matches!(side, Side::Instances(_)),
        };
        let side = |counts_itself: bool| {
            sum(&|field| match &field.lowered.side {
                Some(side) if own(side) == counts_itself => side.counted_bytes() as u64,
                _ => 0,
            })
        };
        let of_bytes = side(true).saturating_add(side(false).min(self.usual_varying.unwrap_or(u64::MAX)));
        let on_host = sum(&|field| if is_there(field) { 0 } else { field.row_bytes() });
        // All fields end on the device, except values of different lengths, which have no rows.
        let on_device = if has_device { sum(&Field::row_bytes) } else { 0 };
        let of_batch = |row: u64| row.saturating_mul(batch_size as u64);
        BatchBytes {
            on_host: of_batch(on_host.saturating_add(of_bytes)),
            of_bytes: of_batch(of_bytes),
            on_device: of_batch(on_device),
        }
    }

    /// Bytes of the longest row that the decoder makes; it does not make volumes.
    pub(super) fn longest_row(&self) -> usize {
        let decoded = self.all.iter().map(|field| &field.lowered).filter(|lowered| lowered.volume.is_none());
        decoded.map(|lowered| FieldRows::row_bytes(&lowered.shape, lowered.dtype)).max().unwrap_or(0)
    }

    /// Most memory for the steps on a row's images on a GPU.
    pub(super) fn steps(&self) -> RowScratch {
        let images = self.all.iter().filter_map(|field| field.lowered.image.as_ref());
        let rooms = images.filter_map(Lowered::device_room);
        rooms.fold(RowScratch::default(), |a, b| RowScratch {
            scratch: a.scratch.max(b.scratch),
            page: a.page.max(b.page),
        })
    }

    /// Memory of each thread for steps on images, if images take up to `max_image_bytes`.
    pub(super) fn tile_bytes(&self, max_image_bytes: u64) -> u64 {
        let images = self.all.iter().flat_map(|field| field.lowered.images());
        // Steps run one after another, in the same tiles.
        let tiles = images.map(|lowered| lowered.tile_bytes(max_image_bytes)).max().unwrap_or(0);
        let marked = self.all.iter().filter_map(|field| match &field.lowered.side {
            Some(Side::Instances(of)) => Some(of),
            _ => None,
        });
        // Masks run after their image.
        tiles.max(marked.map(|of| of.lowered.scratch_bytes(max_image_bytes)).max().unwrap_or(0))
    }

    /// The pools of all fields, for one batch more than may be ahead: the batch that comes back.
    pub(super) fn pools(&self, place: &BatchDevice, batch_size: usize, prefetch: usize) -> Result<Vec<FieldRows>> {
        let pool = |field: &Field| -> Result<FieldRows> {
            let LoweredField { shape, dtype, image, volume, side } = &field.lowered;
            let bytes = FieldRows::row_bytes(shape, *dtype);
            let on_host = |bytes| Pool::new(batch_size, bytes, prefetch + 1);
            let there = |bytes| place.pool(batch_size, bytes, prefetch + 1);
            // Labels of mixed batches are weights of classes.
            let soft_bytes = field.classes.map(SoftLabels::row_bytes);
            let copied_at_the_end = match place {
                BatchDevice::Host => false,
                BatchDevice::Pinned(_) => soft_bytes.is_some(),
                BatchDevice::Gpu(_) | BatchDevice::Foreign(_) => !field.is_image(),
            };
            let (pool, upload) = match copied_at_the_end {
                _ if side.is_some() => (on_host(bytes)?, None),
                true => (on_host(bytes)?, Some(there(soft_bytes.unwrap_or(bytes))?)),
                false => (there(bytes)?, None),
            };
            let soft = |classes| -> Result<SoftLabels> {
                Ok(SoftLabels { classes, pool: on_host(SoftLabels::row_bytes(classes))? })
            };
            Ok(FieldRows {
                name: field.name.clone(),
                shape: shape.clone(),
                dtype: *dtype,
                pool,
                upload,
                image: image.as_ref().map(|image| *image.row()),
                volume: volume.clone(),
                side: side.clone(),
                soft: field.classes.map(soft).transpose()?,
            })
        };
        let named = |field: &Field| pool(field).map_err(|error| error.at_object(format!("field {}", field.name)));
        self.all.iter().map(named).collect()
    }
}
