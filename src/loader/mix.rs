//! Checks whether batches of a dataset can be mixed, and how.

use infeed_core::{
    error::{
        Error, Result,
        setting::{COLUMNS, DEVICE_CPU, FLOATS, MIX, NUM_CLASSES},
    },
    types::{DType, Device},
};
use infeed_data::{FieldKind, Schema};
use infeed_pixels::{kernels::RowSpec, transform::augment::Mix};

use crate::engine::{BatchMix, LoweredField, Maps};

/// How batches are mixed, and the label field.
pub(super) struct Mixed {
    pub(super) mix: BatchMix,
    /// The label, by its index in the schema.
    pub(super) label: usize,
    pub(super) classes: usize,
}

/// Fits the settings to the fields of a dataset.
pub(super) fn fit(settings: &Mix, schema: &Schema, lowered: &[&LoweredField]) -> Result<Mixed> {
    settings.check()?;
    let (label, classes) = label(settings, schema)?;
    let mut images = Vec::new();
    if settings.mixes() {
        for (place, field) in schema.fields.iter().enumerate() {
            let what = match field.kind {
                _ if field.mask => "a mask",
                FieldKind::Images { .. } => "a list of images",
                _ => "a volume",
            };
            if field.mask || matches!(field.kind, FieldKind::Volume { .. } | FieldKind::Images { .. }) {
                return Err(Error::config(format!("mix on field `{}`, {what}", field.name)).with_hint(format!(
                    "leave mixup and cutmix out, or open the dataset without the field: {COLUMNS}"
                )));
            }
            if let Some(image) = &lowered[place].image {
                images.push((place, *image.row()));
            }
        }
        check_images(settings, &images)?;
    }
    Ok(Mixed { mix: BatchMix { settings: settings.clone(), images, mixer: None }, label, classes })
}

/// The one label field, and its classes.
fn label(settings: &Mix, schema: &Schema) -> Result<(usize, usize)> {
    let fields = schema.fields.iter().enumerate();
    let labels: Vec<_> = fields.filter(|(_, field)| field.kind == FieldKind::Label).collect();
    let label = match labels[..] {
        [(place, _)] => place,
        [] => {
            return Err(Error::config("mix on a dataset without a label")
                .with_hint(format!("leave {MIX} out, or open the labels too")));
        }
        _ => {
            let names: Vec<&str> = labels.iter().map(|(_, field)| field.name.as_str()).collect();
            return Err(Error::config(format!("mix on a dataset of several labels: {}", names.join(", ")))
                .with_hint(format!("open it with one of them: {COLUMNS}")));
        }
    };
    let known = schema.classes.as_ref().map(|classes| classes.len());
    let classes = match (settings.num_classes, known) {
        (Some(given), Some(known)) if (given as usize) < known => {
            return Err(Error::config(format!("mix is for {given} classes, the dataset has {known}"))
                .with_hint(format!("use {known} or more, or leave it out")));
        }
        (Some(given), _) => given as usize,
        (None, Some(known)) if known > 0 => known,
        (None, _) => {
            return Err(Error::config("mix on a dataset that does not name its classes")
                .with_hint(format!("set {NUM_CLASSES}")));
        }
    };
    Ok((label, classes))
}

fn check_images(settings: &Mix, images: &[(usize, RowSpec)]) -> Result<()> {
    let Some((_, first)) = images.first() else {
        return Err(Error::config("mix on a dataset without images").with_hint("leave mixup and cutmix out"));
    };
    let [mixup, cutmix] = [settings.mixup, settings.cutmix].map(|alpha| alpha > 0.0);
    if let Some((_, other)) =
        images.iter().find(|(_, other)| [other.height, other.width] != [first.height, first.width])
        && cutmix
    {
        let [a, b] = [first, other].map(|row| format!("{}x{}", row.height, row.width));
        return Err(Error::config(format!("cutmix on images of {a} and {b} in one record"))
            .with_hint("make them of one size, or use mixup"));
    }
    if let Some((_, row)) = images.iter().find(|(_, row)| row.dtype == DType::U8)
        && mixup
    {
        return Err(Error::config(format!("mixup on images of {}", row.dtype))
            .with_hint(format!("use {FLOATS}; cutmix takes u8, too")));
    }
    Ok(())
}

/// Rejects functions that work only in host memory for batches on a GPU.
pub(super) fn check_device(maps: &Maps, device: Device) -> Result<()> {
    let what = match device {
        Device::Cpu => return Ok(()),
        Device::Cuda(_) if maps.sample.is_some() => "map",
        Device::Cuda(_) if maps.batch.is_some() => "map_batch",
        Device::Cuda(_) => return Ok(()),
    };
    Err(Error::config(format!("{what} of batches on {device} is not there yet"))
        .with_hint(format!("use {DEVICE_CPU}, or do it on the GPU in the training step")))
}
