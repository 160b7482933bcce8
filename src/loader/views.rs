//! Views as fields: the records of a dataset with each image as often as it has views.
//!
//! ```text
//! image, mask, label ─ views a, b ─▶ image.a, image.b, mask.a, mask.b, label
//! ```
//!
//! Views of an image hold the same bytes, so nothing is read or kept twice. The decoder decodes an image once for all
//! its views, which it groups by [`Lowered::view`](infeed_pixels::transform::Lowered::view).

use std::sync::Arc;

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{COLUMNS, FORMAT, VIEWS},
};
use infeed_data::{
    Dataset, Field, FieldKind, Sample, Schema,
    wrapped::{Wrap, Wrapped},
};
use infeed_pixels::transform::{Transform, View};

/// The steps of each field of a dataset; an image may have several views.
#[derive(Debug)]
pub(super) struct Views<'a> {
    /// For each field, its view and its steps.
    pub(super) of_field: Vec<(u32, &'a Transform)>,
}

impl<'a> Views<'a> {
    /// No views: the same steps for all fields.
    pub(super) fn none(dataset: &dyn Dataset, transform: &'a Transform) -> Self {
        Self { of_field: dataset.schema().fields.iter().map(|_| (0, transform)).collect() }
    }
}

/// The dataset with a field for each view of each image, and the steps of each field.
pub(super) fn fit<'a>(
    dataset: Arc<dyn Dataset>,
    views: &'a [View],
    transform: &'a Transform,
) -> Result<(Arc<dyn Dataset>, Views<'a>)> {
    if views.is_empty() {
        let views = Views::none(&*dataset, transform);
        return Ok((dataset, views));
    }
    if !transform.ops().is_empty() {
        return Err(Error::config("there are views and a transform").with_hint("put the steps into each view"));
    }
    let each = View::each(views)?;
    let (mut fields, mut sources, mut of_field) = (Vec::new(), Vec::new(), Vec::new());
    for (source, field) in dataset.schema().fields.iter().enumerate() {
        match field.kind {
            FieldKind::Image { .. } | FieldKind::Images { .. } => {
                for (n, (name, transform)) in (0..).zip(&each) {
                    let mut view = field.clone();
                    view.name = format!("{}.{name}", field.name);
                    fields.push(view);
                    sources.push(source);
                    of_field.push((n, *transform));
                }
            }
            FieldKind::Volume { .. } => {
                return Err(Error::config(format!("views of field `{}`, a volume", field.name))
                    .with_hint(format!("leave {VIEWS} out, or open the dataset without the field: {COLUMNS}")));
            }
            _ => {
                fields.push(field.clone());
                sources.push(source);
                of_field.push((0, transform));
            }
        }
    }
    let is_image = |field: &Field| matches!(field.kind, FieldKind::Image { .. } | FieldKind::Images { .. });
    if !fields.iter().any(is_image) {
        let what = "views of a dataset without images";
        return Err(
            Error::config(what).with_hint(format!("leave {VIEWS} out, or open the images too: {COLUMNS}, {FORMAT}"))
        );
    }
    let twice = |n: &usize| fields[..*n].iter().any(|other: &Field| other.name == fields[*n].name);
    if let Some(n) = (0..fields.len()).find(twice) {
        let what = format!("the dataset has a field {:?}, which is also the name of a view", fields[n].name);
        return Err(Error::config(what).with_hint("rename the view"));
    }
    let mut schema = dataset.schema().clone();
    schema.fields = fields;
    Ok((Arc::new(Wrapped::new(dataset, Viewed { schema, sources })), Views { of_field }))
}

/// See [`fit`].
#[derive(Debug)]
struct Viewed {
    schema: Schema,
    /// For each field, the index of its field in the dataset.
    sources: Vec<usize>,
}

impl Wrap for Viewed {
    fn schema<'a>(&'a self, _inner: &'a dyn Dataset) -> &'a Schema {
        &self.schema
    }

    fn sample(&self, _inner: &dyn Dataset, _record: u64, sample: Sample) -> Result<Sample> {
        let value = |source: &usize| {
            // Reference counted, not copied.
            let value = sample.values.get(*source).cloned();
            value.ok_or_else(|| Error::new(ErrorKind::Internal, "a sample has other fields than its schema"))
        };
        Ok(Sample { values: self.sources.iter().map(value).collect::<Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::executor::block_on;

    use super::*;
    use infeed_data::{MemoryDataset, dataset_contract};

    #[test]
    fn a_dataset_with_views_keeps_the_contract_of_datasets() {
        let dataset = MemoryDataset::builder()
            .images_u8(vec![7; 12 * 5], 5, 2, 2, 3, false)
            .labels((0..5).collect())
            .build()
            .unwrap();
        let views = [View::new("a", Transform::new()), View::new("b", Transform::new()).count(2)];
        let none = Transform::new();
        let (viewed, fitted) = fit(Arc::new(dataset), &views, &none).unwrap();
        let names: Vec<_> = viewed.schema().fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["image.a", "image.b0", "image.b1", "label"]);
        assert_eq!(fitted.of_field.iter().map(|(view, _)| *view).collect::<Vec<_>>(), [0, 1, 2, 0]);
        block_on(dataset_contract(&*viewed)).unwrap();
    }

    #[test]
    fn a_view_is_no_field_that_is_there_already() {
        let images = MemoryDataset::builder().images_u8(vec![7; 12], 1, 2, 2, 3, false);
        let dataset = images.bytes("image.a", vec![Bytes::from_static(b"x")]).build().unwrap();
        let (views, none) = ([View::new("a", Transform::new())], Transform::new());
        let error = fit(Arc::new(dataset), &views, &none).unwrap_err().to_string();
        assert!(error.contains("a field \"image.a\", which is also the name of a view"), "{error}");
    }

    #[test]
    fn volumes_have_no_views() {
        let labels = MemoryDataset::builder().labels(vec![1]).build().unwrap();
        let kind = FieldKind::Volume { channels: 1, size: None, mask: None };
        let schema = Schema::new(vec![Field::new("ct", kind)]);
        let volumes = Wrapped::new(Arc::new(labels), Viewed { schema, sources: vec![0] });
        let (views, none) = ([View::new("a", Transform::new())], Transform::new());
        let error = fit(Arc::new(volumes), &views, &none).unwrap_err().to_string();
        assert!(error.contains("views of field `ct`, a volume"), "{error}");
    }
}
