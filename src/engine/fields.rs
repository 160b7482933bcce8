//! The fields of a batch: shape, type, and the memory of their rows.

use std::borrow::Cow;

use infeed_core::{
    error::{Error, ErrorKind, Result},
    rows::{Pool, Rows},
    types::{DType, Layout},
};
use infeed_data::{Field, FieldKind, Schema};
use infeed_pixels::{
    kernels::RowSpec,
    transform::{Lowered, LoweredInstances, LoweredVolume, Transform},
};

use super::list::{FieldList, ListedImages};
use crate::tensor::Tensor;

/// One field of a batch: its shape and where its memory comes from.
#[derive(Debug)]
pub(crate) struct FieldRows {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// For values of different lengths, how they are made. Such a field has no memory in `pool`.
    pub(crate) side: Option<Side>,
    /// Rows that the workers write.
    pub(crate) pool: Pool,
    /// Device memory to which a field written on the host is copied when its batch is complete, such as labels of
    /// batches on a GPU.
    pub(crate) upload: Option<Pool>,
    /// For an image, shape, type and layout of its rows.
    pub(crate) image: Option<RowSpec>,
    /// How rows of volumes are made, by the thread that reads them.
    pub(crate) volume: Option<LoweredVolume>,
    /// For the label of mixed batches.
    pub(crate) soft: Option<SoftLabels>,
}

/// A field whose values differ in length, so that they travel with their samples.
#[derive(Clone, Debug)]
pub(crate) enum Side {
    /// At most this many bytes.
    Bytes(usize),
    /// The same, in UTF-8.
    Text(usize),
    /// Texts of at most this many bytes together.
    Texts(usize),
    List(FieldList),
    Instances(FieldInstances),
}

impl Side {
    /// The bytes of a row that the memory budget counts: the most that it can have, and for images those of a usual
    /// row.
    pub(crate) fn counted_bytes(&self) -> usize {
        match self {
            Self::Bytes(most) | Self::Text(most) | Self::Texts(most) => *most,
            Self::List(list) => {
                let items = list.images.as_ref().map_or(list.most, |images| images.usual);
                items.saturating_mul(list.each)
            }
            Self::Instances(of) => of.lowered.most_bytes(of.most),
        }
    }
}

/// How a field of instances is made.
#[derive(Clone, Debug)]
pub(crate) struct FieldInstances {
    pub(crate) lowered: LoweredInstances,
    /// Most instances of a record.
    pub(crate) most: usize,
}

/// Labels of a batch as weights of all classes, which replace the class indices.
#[derive(Debug)]
pub(crate) struct SoftLabels {
    pub(crate) classes: usize,
    pub(crate) pool: Pool,
}

impl SoftLabels {
    /// Bytes of a row.
    pub(crate) const fn row_bytes(classes: usize) -> usize {
        classes * size_of::<f32>()
    }

    /// Allocated rows with arbitrary content.
    pub(super) fn rows(&self, rows: usize) -> Result<Rows> {
        let bytes = Self::row_bytes(self.classes);
        let rows = self.pool.take(self.pool.len_bytes() / bytes, bytes).split_to(rows);
        rows.claim()?;
        Ok(rows)
    }
}

/// Memory for the rows of a batch.
#[derive(Debug)]
pub(super) struct BatchRows {
    /// For the workers, one for each field.
    pub(super) rows: Vec<Rows>,
    /// For the copies at the end, likewise.
    pub(super) uploads: Vec<Option<Rows>>,
}

impl FieldRows {
    /// For a field of instances, how it is made.
    pub(super) const fn instances(&self) -> Option<&FieldInstances> {
        if let Some(Side::Instances(of)) = &self.side { Some(of) } else { None }
    }

    /// Bytes of a row of this shape. Does not overflow: [`lower_field`] has rejected shapes that would.
    pub(crate) fn row_bytes(shape: &[usize], dtype: DType) -> usize {
        dtype.len_bytes(shape).expect("`lower_field` saw that it is a number")
    }

    /// Shape, type and layout of an image's rows in a batch with its own row size.
    pub(super) fn spec_of(&self, size: Option<[u32; 2]>) -> Option<RowSpec> {
        let spec = self.image?;
        Some(size.map_or(spec, |[height, width]| RowSpec { height, width, ..spec }))
    }

    /// Shape of the rows of such a batch.
    pub(super) fn shape_of(&self, size: Option<[u32; 2]>) -> Cow<'_, [usize]> {
        match self.spec_of(size) {
            Some(spec) if size.is_some() => Cow::Owned(shape_of(&spec)),
            _ => Cow::Borrowed(&self.shape),
        }
    }

    /// Rejects a label that becomes weights of classes and is not among them.
    pub(super) fn check_label(&self, label: i64) -> Result<()> {
        match &self.soft {
            Some(soft) if !usize::try_from(label).is_ok_and(|label| label < soft.classes) => {
                let what = format!("label {label} of `{}` is not among the {} classes", self.name, soft.classes);
                Err(Error::corrupt(what))
            }
            _ => Ok(()),
        }
    }

    /// Memory for `rows` rows of a batch, and for their copy.
    fn take(&self, rows: usize, size: Option<[u32; 2]>) -> std::result::Result<(Rows, Option<Rows>), MissingRows<'_>> {
        let bytes = Self::row_bytes(&self.shape_of(size), self.dtype);
        let there = self.soft.as_ref().map_or(bytes, |soft| SoftLabels::row_bytes(soft.classes));
        let cut = |pool, bytes| {
            let full = Pool::len_bytes(pool).checked_div(bytes).unwrap_or(rows);
            match pool.try_take(full, bytes) {
                Ok(Some(mut whole)) => Ok(whole.split_to(rows)),
                Ok(None) => Err(MissingRows { pool, error: None }),
                Err(error) => Err(MissingRows { pool, error: Some(error) }),
            }
        };
        Ok((cut(&self.pool, bytes)?, self.upload.as_ref().map(|pool| cut(pool, there)).transpose()?))
    }

    /// The finished tensor. Without a copy, except for the small fields of a batch on a GPU.
    pub(super) fn seal(&self, rows: Rows, upload: Option<Rows>, size: Option<[u32; 2]>) -> Result<Tensor> {
        let own = self.shape_of(size);
        let (row, dtype) = match &self.soft {
            Some(soft) => (&[soft.classes][..], DType::F32),
            None => (&*own, self.dtype),
        };
        let shape = std::iter::once(rows.rows()).chain(row.iter().copied()).collect();
        let rows = match upload {
            Some(mut on_device) => {
                on_device.upload(&rows)?;
                on_device
            }
            None => rows,
        };
        Ok(Tensor::new(shape, dtype, rows.freeze()))
    }
}

/// Why a batch cannot have rows now.
#[derive(Debug)]
pub(super) struct MissingRows<'a> {
    /// The pool from which it needs a buffer.
    pub(super) pool: &'a Pool,
    /// `None` if buffers came back, but a GPU still reads them.
    pub(super) error: Option<Error>,
}

impl BatchRows {
    /// Memory for a batch of `rows` rows, with the size `size` if each batch has its own.
    pub(super) fn take(
        fields: &[FieldRows],
        rows: usize,
        size: Option<[u32; 2]>,
    ) -> std::result::Result<Self, MissingRows<'_>> {
        let mut batch = Self { rows: Vec::new(), uploads: Vec::new() };
        for field in fields {
            let (rows, upload) = field.take(rows, size)?;
            batch.rows.push(rows);
            batch.uploads.push(upload);
        }
        Ok(batch)
    }
}

/// Shape and type of a field's rows, and how they are made.
#[derive(Debug)]
pub(crate) struct LoweredField {
    pub(crate) shape: Vec<usize>,
    pub(crate) dtype: DType,
    /// Of an image.
    pub(crate) image: Option<Lowered>,
    /// Of a volume.
    pub(crate) volume: Option<LoweredVolume>,
    /// Of values of different lengths.
    pub(crate) side: Option<Side>,
}

impl LoweredField {
    /// How its image, or each image of its list, is made.
    pub(crate) fn images(&self) -> impl Iterator<Item = &Lowered> {
        let listed = match &self.side {
            Some(Side::List(list)) => list.images.as_ref(),
            _ => None,
        };
        self.image.iter().chain(listed.map(|images| &images.lowered))
    }

    /// Gives its images the draws of this view.
    pub(crate) fn of_view(&mut self, view: u32) {
        self.image = self.image.take().map(|image| image.of_view(view));
        if let Some(Side::List(FieldList { images: Some(images), .. })) = &mut self.side {
            images.lowered = images.lowered.clone().of_view(view);
        }
    }
}

/// Fits the transform to one field.
pub(crate) fn lower_field(
    (field, schema): (&Field, &Schema),
    transform: &Transform,
    dtype: DType,
    layout: Layout,
) -> Result<LoweredField> {
    let plain = |shape, dtype| LoweredField { shape, dtype, image: None, volume: None, side: None };
    // Rows of width 0: the values travel with the samples.
    let beside = |side| LoweredField { side: Some(side), ..plain(vec![0], DType::U8) };
    let image = |kind: &FieldKind| {
        let lowered =
            if field.mask { transform.lower_mask(kind, layout)? } else { transform.lower(kind, dtype, layout)? };
        Ok::<_, Error>(lowered.named(&field.name))
    };
    let lowered = match &field.kind {
        kind @ FieldKind::Image { .. } => {
            let lowered = image(kind)?;
            LoweredField { image: Some(lowered.clone()), ..plain(shape_of(lowered.row()), lowered.row().dtype) }
        }
        kind @ FieldKind::Images { most, usual, .. } => {
            let lowered = image(&kind.each_image().unwrap_or(FieldKind::Label))?;
            let row = lowered.row();
            let (dtype, item, each) = (row.dtype, shape_of(row), row.len_bytes());
            let images = Some(ListedImages { lowered, usual: *usual });
            beside(Side::List(FieldList { dtype, item, each, most: *most, pad: None, images }))
        }
        kind @ FieldKind::Volume { .. } => {
            let lowered = transform.lower_volume(kind, dtype)?;
            LoweredField { volume: Some(lowered.clone()), ..plain(lowered.shape().to_vec(), lowered.dtype()) }
        }
        FieldKind::Label => plain(Vec::new(), DType::I64),
        FieldKind::Array { dtype, shape } => plain(shape.clone(), *dtype),
        FieldKind::Bytes { most } => beside(Side::Bytes(*most)),
        FieldKind::Text { most } => beside(Side::Text(*most)),
        FieldKind::Texts { most } => beside(Side::Texts(*most)),
        FieldKind::List { dtype, item, most } => {
            let each = field
                .kind
                .item_bytes()
                .ok_or_else(|| Error::config(format!("items of {dtype} {item:?} have no bytes")))?;
            beside(Side::List(FieldList {
                dtype: *dtype,
                item: item.clone(),
                each,
                most: *most,
                pad: None,
                images: None,
            }))
        }
        kind @ FieldKind::Instances { most, .. } => {
            let lowered = transform.lower_instances(kind, image_size(schema))?;
            let lowered = lowered.with_keypoint_names(schema.names_of("keypoints").unwrap_or_default());
            beside(Side::Instances(FieldInstances { lowered, most: *most }))
        }
        kind => {
            let what = format!("no rows are made of fields of the kind {}", kind.name());
            return Err(Error::new(ErrorKind::Unsupported, what).at_object(&field.name));
        }
    };
    if lowered.dtype.len_bytes(&lowered.shape).is_none() {
        let what = format!("rows of shape {:?} of {} are more than memory can hold", lowered.shape, lowered.dtype);
        return Err(Error::config(what).with_hint("look at the dataset's schema, or make the rows smaller"));
    }
    Ok(lowered)
}

fn shape_of(row: &RowSpec) -> Vec<usize> {
    let [h, w, c] = [row.height, row.width, row.channels].map(|side| side as usize);
    match row.layout {
        Layout::Nchw => vec![c, h, w],
        Layout::Nhwc => vec![h, w, c],
    }
}

/// Height and width of the images of instances, if all records have the same.
fn image_size(schema: &Schema) -> Option<(u32, u32)> {
    let size = |field: &Field| if let FieldKind::Image { size, .. } = field.kind { Some(size) } else { None };
    schema.fields.iter().find_map(size).flatten()
}

/// Allocates the device memory of all batches that may be ahead.
pub(crate) fn fill(fields: &[FieldRows], batches: usize) -> Result<()> {
    fields
        .iter()
        .flat_map(|field| [Some(&field.pool), field.upload.as_ref()])
        .flatten()
        .try_for_each(|pool| pool.fill(batches))
}
