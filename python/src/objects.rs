//! Datasets of Python objects with `__len__` and `__getitem__`.
//!
//! ```text
//! reading thread: attach ─ dataset[record] ─▶ item ─ as its fields say ─▶ bytes ─▶ decode thread, without the GIL
//! ```
//!
//! The first record, or the user, determines the fields. A later record with other fields is a bad sample. `bytes` are
//! shared without a copy; arrays are copied, since their owner may write to them.

use std::{fmt, num::NonZeroUsize, path::PathBuf, sync::Arc};

use bytes::Bytes;
use engine::{
    DType, Error, ErrorKind,
    dataset::{Dataset, Field, FieldKind, ReadPlan, Sample, Schema, Value},
    internal::depth_of,
    sampler::Fingerprint,
};
use infeed as engine;
use pyo3::{
    buffer::PyBuffer,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{IntoPyDict, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple},
};

use crate::{callbacks, errors, held::HeldObject, tensor};

/// Largest text, bytes value or list of a record.
const MOST_BYTES: usize = 1 << 30;
/// The most images in one value.
const MOST_IMAGES: usize = 1 << 20;
/// Records that are examined for the type of a list.
const EXAMINED: u64 = 100;
/// Bytes that the loader's budget reserves at least for each text, bytes value or list of a row: records may be longer
/// than the first.
const USUAL_BYTES: u64 = 64 << 10;

/// Concurrent calls of `__getitem__`, unless `io_concurrency` sets the number. torch's loader gives a dataset a process
/// of its own, so many datasets have state that two threads would silently corrupt: a reused buffer, or a file that
/// another thread has just moved to a different position. More calls help only if they wait for disks or networks: with
/// the GIL, Python code runs in one thread at a time.
const CALLS: NonZeroUsize = NonZeroUsize::MIN;

/// A dataset of a Python object. See `infeed.open`.
pub(crate) struct PythonDataset {
    object: Arc<Py<PyAny>>,
    len: u64,
    schema: Schema,
    /// The keys of the fields, if items are mappings.
    keys: Option<Vec<Py<PyAny>>>,
    fingerprint: Fingerprint,
    /// Bytes of the first record, as an estimate for all.
    expected: u64,
    /// Bytes of the texts, bytes values and lists of a usual record.
    varying: u64,
}

impl fmt::Debug for PythonDataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonDataset").field("len", &self.len).field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl PythonDataset {
    /// Reads the first record. `called`: the object as the engine holds it. `kinds`: kinds of fields that the user
    /// gave. `identity`: distinguishes datasets with the same number of records and the same fields. `one_size`: all
    /// images have the size of those in the first record, so no step has to resize them.
    pub(crate) fn new(
        object: &Bound<'_, PyAny>,
        called: Arc<Py<PyAny>>,
        kinds: &Bound<'_, PyDict>,
        classes: Option<Vec<String>>,
        identity: &str,
        one_size: bool,
    ) -> PyResult<Self> {
        let len = object.len()? as u64;
        if len == 0 {
            let empty = Error::new(ErrorKind::Empty, "the dataset has no records").with_hint("check its __len__");
            return Err(errors::raise(object.py(), &empty));
        }
        let Parts { names, values, keys } = Parts::of(&object.get_item(0)?)?;
        if names.is_empty() {
            return Err(PyTypeError::new_err("dataset[0] is empty: a record needs a value"));
        }
        let mut fields = Vec::new();
        for (at, (name, value)) in names.iter().zip(&values).enumerate() {
            let said = kinds.get_item(name)?.map(|kind| kind.extract::<String>()).transpose()?;
            let typed = match said.as_deref() {
                Some("list") if is_untyped(value)? => first_with_numbers(object, len, at)?,
                _ => value.clone(),
            };
            let field = field(name, &typed, said.as_deref());
            fields.push(field.map_err(|error| in_words(object.py(), error, &format!("dataset[0], field {name:?}")))?);
        }
        if fields.iter().any(is_photograph) {
            let mut colours = Colours::default();
            for (field, value) in fields.iter().zip(&values) {
                refuse_boxes(&field.name, value)?;
                colours.add(field, value)?;
            }
            for (field, value) in fields.iter_mut().zip(&values) {
                if kinds.get_item(&*field.name)?.is_none() {
                    colours.correct(field, value)?;
                }
            }
        }
        for name in kinds.keys() {
            let name: String = name.extract()?;
            if !names.contains(&name) {
                let words = format!("fields: there is no {name:?} in dataset[0], which has {}", names.join(", "));
                return Err(PyValueError::new_err(words));
            }
        }
        let print = Fingerprint::of("python").text(identity).number(len);
        let print = names.iter().fold(print, |print, name| print.text(name));
        let schema = Schema::new(fields).with_classes(classes.map(Into::into));
        let fingerprint = print.finish();
        let mut dataset = Self { object: called, len, schema, keys, fingerprint, expected: 0, varying: 0 };
        let pieces = dataset.cut(&values)?;
        dataset.expected = pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut rest = &pieces[..];
        for field in &mut dataset.schema.fields {
            let (own, after) = rest.split_at(pieces_of(&field.kind, rest).min(rest.len()));
            rest = after;
            match &mut field.kind {
                FieldKind::Image { size, .. } if one_size => {
                    *size = own.first().and_then(|header| info_of(header)).map(|info| (info.height, info.width));
                }
                FieldKind::Bytes { .. } | FieldKind::Text { .. } | FieldKind::List { .. } | FieldKind::Texts { .. } => {
                    let length: u64 = own.iter().map(|piece| piece.len() as u64).sum();
                    dataset.varying += USUAL_BYTES.max(4 * length);
                }
                _ => {}
            }
        }
        Ok(dataset)
    }

    fn pieces(&self, py: Python<'_>, record: u64) -> PyResult<Vec<Bytes>> {
        let item = self.object.bind(py).clone().get_item(record)?;
        let values: Vec<Bound<'_, PyAny>> = match &self.keys {
            Some(keys) => keys.iter().map(|key| item.get_item(key)).collect::<PyResult<_>>()?,
            None => Parts::of(&item)?.values,
        };
        self.cut(&values)
    }

    fn cut(&self, values: &[Bound<'_, PyAny>]) -> PyResult<Vec<Bytes>> {
        let fields = &self.schema.fields;
        if values.len() != fields.len() {
            let words = format!("it has {} values, and record 0 has {}", values.len(), fields.len());
            return Err(PyTypeError::new_err(words));
        }
        let mut pieces = Vec::with_capacity(2 * fields.len());
        for (field, value) in fields.iter().zip(values) {
            let cut = piece(field, value, &mut pieces);
            cut.map_err(|error| in_words(value.py(), error, &format!("field {:?}", field.name)))?;
        }
        Ok(pieces)
    }

    /// The bytes of a record, for [`Dataset::parse`].
    fn read_record(&self, record: u64) -> engine::Result<Vec<Bytes>> {
        let called = |py: Python<'_>| self.pieces(py, record).map_err(|error| callbacks::failed(py, &error, "dataset"));
        let read = callbacks::call(called);
        read.map_err(|error| error.at_object(self.object(record)).at_record(record))
    }
}

/// Whether it is a sequence without items and without a type for them.
fn is_untyped(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(!value.hasattr("dtype")? && value.len().is_ok_and(|items| items == 0))
}

/// Value `at` of the first record where it has numbers, which give a list its type.
fn first_with_numbers<'py>(object: &Bound<'py, PyAny>, len: u64, at: usize) -> PyResult<Bound<'py, PyAny>> {
    for record in 1..len.min(EXAMINED) {
        let mut values = Parts::of(&object.get_item(record)?)?.values;
        if at < values.len() && !is_untyped(&values[at])? {
            return Ok(values.swap_remove(at));
        }
    }
    Err(PyValueError::new_err(format!(
        "the first {} records have lists without numbers, so their type is unknown: give arrays of a dtype",
        len.min(EXAMINED)
    )))
}

/// The same error with `place` in front of its message.
fn in_words(py: Python<'_>, error: PyErr, place: &str) -> PyErr {
    let words = format!("{place}: {}", error.value(py));
    if error.is_instance_of::<PyTypeError>(py) {
        return PyTypeError::new_err(words);
    }
    if error.is_instance_of::<PyValueError>(py) {
        return PyValueError::new_err(words);
    }
    error
}

/// An item split into its values, with their field names in a batch.
struct Parts<'py> {
    names: Vec<String>,
    values: Vec<Bound<'py, PyAny>>,
    keys: Option<Vec<Py<PyAny>>>,
}

impl<'py> Parts<'py> {
    fn of(item: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let (Ok(mapping), false) = (item.cast::<PyMapping>(), is_lazy_file(item)) {
            let keys: Vec<Bound<'py, PyAny>> = mapping.keys()?.iter().collect();
            let names = keys.iter().map(|key| Ok(key.str()?.to_string())).collect::<PyResult<_>>()?;
            let values = keys.iter().map(|key| mapping.get_item(key)).collect::<PyResult<_>>()?;
            return Ok(Self { names, values, keys: Some(keys.into_iter().map(Bound::unbind).collect()) });
        }
        let values = items_of(item)?.unwrap_or_else(|| vec![item.clone()]);
        // Field names of a named tuple.
        let names = match item.getattr_opt("_fields")? {
            Some(names) => names.extract()?,
            None => named(&values),
        };
        Ok(Self { names, values, keys: None })
    }
}

/// The number of pieces of the field whose pieces are the first of these.
fn pieces_of(kind: &FieldKind, pieces: &[Bytes]) -> usize {
    let count = || pieces.first().map_or(0, |count| count_of(count));
    match kind {
        FieldKind::Image { .. } => 2,
        FieldKind::Images { .. } => 1 + 2 * count(),
        FieldKind::Texts { .. } => 1 + count(),
        _ => 1,
    }
}

/// The number that the piece in front of images or texts holds.
fn count_of(piece: &[u8]) -> usize {
    piece.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes) as usize)
}

/// The items of a list or tuple; `None` for another value.
fn items_of<'py>(value: &Bound<'py, PyAny>) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
    let is_list = value.is_instance_of::<PyTuple>() || value.is_instance_of::<PyList>();
    is_list.then(|| value.try_iter()?.collect()).transpose()
}

/// An image that is no mask.
pub(crate) fn is_photograph(field: &Field) -> bool {
    matches!(field.kind, FieldKind::Image { .. } | FieldKind::Images { .. }) && !field.mask
}

/// Whether numbers next to an image are its mask: integers `[H, W]` that are called so. A mask moves with its image.
pub(crate) fn may_be_mask(name: &str, dtype: DType, shape: &[usize]) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_called = Field::picture(name).mask && ["mask", "seg", "trimap"].iter().any(|word| lower.contains(word));
    is_called && shape.len() == 2 && is_integer(dtype)
}

/// The images in colours of a record. What stands next to them may be their mask.
#[derive(Default)]
struct Colours {
    /// Width and height; `None`: of a file, which is not decoded here.
    sizes: Vec<Option<(usize, usize)>>,
}

impl Colours {
    fn add(&mut self, field: &Field, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if matches!(field.kind, FieldKind::Image { channels: 3.., .. }) && !field.mask {
            match Values::of(value)? {
                Values::Picture if mode_of(value)? == "P" => {}
                Values::Picture => self.sizes.push(Some(value.getattr("size")?.extract()?)),
                Values::Array(array) => {
                    let info = array.pixels()?;
                    self.sizes.push(Some((info.width as usize, info.height as usize)));
                }
                _ => self.sizes.push(None),
            }
        }
        Ok(())
    }

    /// Makes a mask of what is one, and numbers of what no transform of the images is for.
    fn correct(&self, field: &mut Field, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let name = &*field.name;
        match &field.kind {
            FieldKind::Array { dtype, shape } if may_be_mask(name, *dtype, shape) => *field = mask(name, value, None)?,
            FieldKind::Image { channels: 1 | 3, .. } if !field.mask && !self.sizes.is_empty() => {
                match Values::of(value)? {
                    Values::Picture => match &*mode_of(value)? {
                        // Indices, or bits.
                        "P" | "1" => *field = mask(name, value, None)?,
                        "L" | "I;16" => warn_of_gray(name),
                        _ => {}
                    },
                    Values::Array(Array { dtype, shape, .. }) if shape.len() == 2 => {
                        if self.sizes.iter().all(|size| size.is_some_and(|(width, height)| shape != [height, width])) {
                            *field = Field::new(name, FieldKind::Array { dtype, shape });
                        } else {
                            warn_of_gray(name);
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Gray next to colours may be an image or a mask.
fn warn_of_gray(name: &str) {
    tracing::warn!(
        target: "infeed::objects",
        "dataset[0], field {name:?}: a gray image next to one in colours is read as an image; if it is a mask, use \
         infeed.open(dataset, fields={{{name:?}: \"mask\"}})"
    );
}

/// Whether labels may have this type.
fn is_integer(dtype: DType) -> bool {
    dtype == DType::Bool || dtype.whole().is_some()
}

/// Whether it is a tensor of this class of torchvision.
fn is_tv_tensor(value: &Bound<'_, PyAny>, class: &str) -> bool {
    let name = type_of(value);
    name.starts_with("torchvision.tv_tensors") && name.rsplit('.').next() == Some(class)
}

/// An error for boxes that would not move with their image.
fn refuse_boxes(name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
    if !is_tv_tensor(value, "BoundingBoxes") {
        return Ok(());
    }
    Err(PyTypeError::new_err(format!(
        "field {name:?}: BoundingBoxes of a Python object do not move with their image here: give the transform to the \
         dataset instead of the loader, or open the files of COCO, VOC or YOLO"
    )))
}

/// Names for values without names: the first image is `image`, the first integer `label`; a second one gets its index
/// as suffix.
fn named(values: &[Bound<'_, PyAny>]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let name = match field("", value, None).map(|field| field.kind) {
            _ if is_tv_tensor(value, "Mask") => "mask",
            Ok(FieldKind::Image { .. }) => "image",
            // An image after torchvision's transforms: a float array.
            Ok(FieldKind::Array { shape, .. }) if shape.len() == 3 => "image",
            Ok(FieldKind::Label) => "label",
            Ok(FieldKind::Text { .. }) => "text",
            Ok(FieldKind::Images { .. }) => "images",
            Ok(FieldKind::Texts { .. }) => "texts",
            Ok(FieldKind::Bytes { .. }) => "bytes",
            _ => "array",
        };
        let taken = names.iter().any(|other| other == name);
        names.push(if taken { format!("{name}{at}") } else { name.to_owned() });
    }
    names
}

/// The field for a value, by the value itself or by the user's `kind`. Images with the name of a mask are masks.
fn field(name: &str, value: &Bound<'_, PyAny>, kind: Option<&str>) -> PyResult<Field> {
    let bytes = FieldKind::Bytes { most: MOST_BYTES };
    Ok(match kind {
        None if is_tv_tensor(value, "Mask") => mask(name, value, None)?,
        None => match learned(value)? {
            FieldKind::Image { .. } | FieldKind::Images { .. } if Field::picture(name).mask => mask(name, value, None)?,
            kind => Field::new(name, kind),
        },
        Some("label") => Field::new(name, FieldKind::Label),
        Some("bytes") => Field::new(name, bytes),
        Some("text") => Field::text(name, MOST_BYTES),
        Some("list") => {
            let Array { dtype, shape, .. } = Array::of(value)?;
            let Some((_, item)) = shape.split_first() else {
                return Err(PyTypeError::new_err(format!("{} is not a list of numbers", type_of(value))));
            };
            let most = MOST_BYTES / dtype.len_bytes(item).unwrap_or(0).max(1);
            Field::new(name, FieldKind::List { dtype, item: item.to_vec(), most })
        }
        Some("array") => {
            let Array { dtype, shape, .. } = Array::of(value)?;
            Field::new(name, FieldKind::Array { dtype, shape })
        }
        Some("mask") => mask(name, value, Some(DType::U8))?,
        Some("mask16") => mask(name, value, Some(DType::U16))?,
        Some("texts") => Field::texts(name, MOST_BYTES),
        Some("image") => Field::new(name, image(value)?),
        Some("images") => {
            let items = items_of(value)?.ok_or_else(|| not_a_list(value))?;
            let first = items.first().map_or(Ok(ENCODED), image)?;
            Field::new(name, several(first, items.len()))
        }
        Some(other) => {
            let words = format!(
                "{other:?} is not a kind of field: use image, images, mask, mask16, label, array, list, text, texts or \
                 bytes"
            );
            return Err(PyValueError::new_err(words));
        }
    })
}

/// Image files, decoded to RGB.
const ENCODED: FieldKind = FieldKind::Image { channels: 3, size: None, dtype: None };

/// The kind of a value that is an image.
fn image(value: &Bound<'_, PyAny>) -> PyResult<FieldKind> {
    let (channels, dtype) = match Values::of(value)? {
        Values::Encoded(_) => return Ok(ENCODED),
        Values::Picture => pixels_of(&mode_of(value)?)?,
        Values::Array(array) => (array.pixels()?.channels, array.dtype),
        _ => return Err(PyTypeError::new_err(format!("{} is not an image", type_of(value)))),
    };
    Ok(FieldKind::Image { channels, size: None, dtype: Some(dtype) })
}

/// Channels and type of a photograph of this Pillow mode, as torchvision makes a tensor of it. Palettes and the other
/// colour spaces become RGB.
fn pixels_of(mode: &str) -> PyResult<(u8, DType)> {
    Ok(match mode {
        "L" | "1" => (1, DType::U8),
        "LA" => (2, DType::U8),
        "RGBA" => (4, DType::U8),
        "I;16" => (1, DType::U16),
        "I" | "F" => {
            let words = format!(
                "a Pillow image of mode {mode} has numbers beyond 8 bits: return numpy.asarray(image), or convert it in \
                 __getitem__"
            );
            return Err(PyTypeError::new_err(words));
        }
        _ => (3, DType::U8),
    })
}

/// The kind of a list of images of this kind, of which the first record has `count`. How many others have is unknown:
/// the memory budget counts twice as many.
fn several(each: FieldKind, count: usize) -> FieldKind {
    Field::new("", each).several(MOST_IMAGES, 2 * count.max(1)).kind
}

fn not_a_list(value: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("{} is not a list or tuple", type_of(value)))
}

/// A mask field, or a field of a list of masks, of the value's own type. A file of 8 bits has the type `said`: others may
/// have more.
fn mask(name: &str, value: &Bound<'_, PyAny>, said: Option<DType>) -> PyResult<Field> {
    if let Some(items) = items_of(value)?
        && let Some(first) = items.first()
        && matches!(learned(value)?, FieldKind::Images { .. })
    {
        let each = mask(name, first, said)?;
        return Ok(each.several(MOST_IMAGES, 2 * items.len().max(1)));
    }
    let (channels, dtype) = match Values::of(value)? {
        Values::Encoded(file) => (1, wider(depth_of([&file[..]]), said)),
        Values::Picture => match (mode_of(value)?.as_str(), said) {
            // Labels as colours: three channels with unchanged values.
            ("RGB" | "RGBA", None) => (3, DType::U8),
            ("I;16", _) => (1, DType::U16),
            _ => (1, wider(DType::U8, said)),
        },
        Values::Array(array) if matches!(array.dtype, DType::U8 | DType::U16 | DType::F32) => {
            (array.pixels()?.channels, array.dtype)
        }
        Values::Array(array) if is_integer(array.dtype) => {
            let wide = array.at("max")? > i64::from(u8::MAX);
            (array.pixels()?.channels, if wide { DType::U16 } else { wider(DType::U8, said) })
        }
        Values::Array(array) => {
            return Err(PyTypeError::new_err(format!("a mask of {}: labels are whole numbers", array.dtype)));
        }
        _ => return Err(PyTypeError::new_err(format!("{} is not an image", type_of(value)))),
    };
    Ok(Field::mask(name, FieldKind::Image { channels, size: None, dtype: Some(dtype) }))
}

/// The type for labels of both types.
fn wider(found: DType, said: Option<DType>) -> DType {
    said.filter(|_| found == DType::U8).unwrap_or(found)
}

/// Whether it is a Pillow image.
fn is_picture(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.hasattr("getbands")? && value.hasattr("tobytes")?)
}

fn mode_of(picture: &Bound<'_, PyAny>) -> PyResult<String> {
    picture.getattr("mode")?.extract()
}

fn learned(value: &Bound<'_, PyAny>) -> PyResult<FieldKind> {
    // A list of anything but images and texts is what numpy makes of it.
    if let Some(items) = items_of(value)?
        && let Some(first) = items.first()
    {
        match Values::of(first) {
            Ok(Values::Text(_)) => return Ok(FieldKind::Texts { most: MOST_BYTES }),
            Ok(Values::Encoded(_) | Values::Picture) if let each @ FieldKind::Image { .. } = learned(first)? => {
                return Ok(several(each, items.len()));
            }
            _ => {}
        }
    }
    Ok(match Values::of(value)? {
        Values::Encoded(bytes) if is_image(&bytes) => ENCODED,
        Values::Encoded(_) => FieldKind::Bytes { most: MOST_BYTES },
        Values::Text(_) => FieldKind::Text { most: MOST_BYTES },
        Values::Picture => image(value)?,
        Values::Integer(_) => FieldKind::Label,
        Values::Float => FieldKind::Array { dtype: DType::F64, shape: Vec::new() },
        Values::Array(array) => match (array.dtype, array.pixels()) {
            (DType::U8 | DType::U16, Ok(pixels)) => {
                FieldKind::Image { channels: pixels.channels, size: None, dtype: Some(array.dtype) }
            }
            _ => FieldKind::Array { dtype: array.dtype, shape: array.shape },
        },
    })
}

/// A value of an item, by its kind.
enum Values<'py> {
    Encoded(Bytes),
    Text(String),
    /// A Pillow image.
    Picture,
    Integer(i64),
    Float,
    Array(Array<'py>),
}

impl<'py> Values<'py> {
    fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = value.cast::<PyBytes>() {
            return Ok(Self::Encoded(HeldObject::bytes(bytes)));
        }
        if let Ok(bytes) = value.cast::<PyByteArray>() {
            return Ok(Self::Encoded(Bytes::from(bytes.to_vec())));
        }
        if is_lazy_file(value) {
            return Ok(Self::Encoded(lazy_file(value)?));
        }
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Self::Text(text.to_cow()?.into_owned()));
        }
        if is_picture(value)? {
            return Ok(Self::Picture);
        }
        if value.is_instance_of::<PyInt>() {
            return Ok(Self::Integer(value.extract()?));
        }
        if value.is_instance_of::<PyFloat>() {
            return Ok(Self::Float);
        }
        let array = Array::of(value)?;
        if array.shape.is_empty() && !matches!(array.dtype, DType::F16 | DType::F32 | DType::F64) {
            return Ok(Self::Integer(array.values.call_method0("item")?.extract()?));
        }
        Ok(Self::Array(array))
    }
}

impl<'py> Values<'py> {
    /// The array that was found, or what numpy makes of the value.
    fn array(self, value: &Bound<'py, PyAny>) -> PyResult<Array<'py>> {
        if let Self::Array(array) = self { Ok(array) } else { Array::of(value) }
    }
}

/// Whether it is Hugging Face's form of an undecoded image: `{"bytes": …, "path": …}`.
fn is_lazy_file(value: &Bound<'_, PyAny>) -> bool {
    value.cast::<PyDict>().is_ok_and(|dict| {
        let has = |key| dict.contains(key).unwrap_or(false);
        dict.len() == 2 && has("bytes") && has("path")
    })
}

fn lazy_file(value: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let bytes = value.get_item("bytes")?;
    if let Ok(bytes) = bytes.cast::<PyBytes>() {
        return Ok(HeldObject::bytes(bytes));
    }
    let path: PathBuf = value.get_item("path")?.extract()?;
    let read = value.py().detach(|| std::fs::read(&path));
    Ok(Bytes::from(
        read.map_err(|error| PyErr::from(std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))))?,
    ))
}

/// Whether these bytes start like an image file. Texts may start with `BM`, and sounds with `RIFF`, so more bytes are
/// checked.
fn is_image(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 6] = [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\0", b"MM\0*", b"GIF87a", b"GIF89a"];
    let webp = bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP");
    // The header's reserved words, and the size of the next header.
    let bmp = bytes.starts_with(b"BM") && bytes.get(6..10) == Some(&[0; 4]) && bytes.get(15..18) == Some(&[0; 3]);
    // Netpbm files start with a letter and a digit, as words may: whitespace and a width must follow.
    let netpbm = matches!(bytes, [b'P', b'1'..=b'6', space, digit, ..] if space.is_ascii_whitespace() && (digit.is_ascii_digit() || *digit == b'#'));
    webp || bmp || netpbm || BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning))
}

fn type_of(value: &Bound<'_, PyAny>) -> String {
    value.get_type().fully_qualified_name().map_or_else(|_| "a value".to_owned(), |name| name.to_string())
}

/// A numpy array, or a value that numpy can convert to one.
pub(crate) struct Array<'py> {
    values: Bound<'py, PyAny>,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// Whether numpy made it of a tensor, whose channels come first.
    of_tensor: bool,
    /// Whether numpy made it of Python's numbers, and so chose its type.
    of_numbers: bool,
}

impl<'py> Array<'py> {
    pub(crate) fn of(value: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = value.py();
        let refused = || {
            let words = format!(
                "{} cannot be part of a batch: give bytes, a Pillow image, an array or tensor, a number or a text",
                type_of(value)
            );
            PyTypeError::new_err(words)
        };
        // A torch tensor, on any device, with or without gradient.
        let of_numbers = !value.hasattr("dtype")?;
        let detach = value.getattr_opt("detach")?;
        let of_tensor = detach.is_some();
        let value = match detach {
            Some(detach) => detach.call0()?.call_method0("cpu")?.call_method0("numpy")?,
            None => value.clone(),
        };
        let in_rows = [("order", "C")].into_py_dict(py)?;
        let made = tensor::numpy_function(py, "asarray")?.call((&value,), Some(&in_rows));
        let values = made.map_err(|_| refused())?;
        let shape: Vec<usize> = values.getattr("shape")?.extract()?;
        let name: String = values.getattr("dtype")?.getattr("name")?.extract()?;
        let dtype = tensor::dtype(&name).ok_or_else(refused)?;
        Ok(Self { values, dtype, shape, of_tensor, of_numbers })
    }

    /// A copy of its values: their owner may write to them again.
    pub(crate) fn bytes(&self) -> PyResult<Bytes> {
        let flat = self.values.call_method1("reshape", (-1,))?.call_method1("view", ("uint8",))?;
        Ok(Bytes::from(PyBuffer::<u8>::get(&flat)?.to_vec(flat.py())?))
    }

    /// The least (`min`) or largest (`max`) of its integers; 0 of none.
    fn at(&self, end: &str) -> PyResult<i64> {
        if self.shape.contains(&0) {
            return Ok(0);
        }
        self.values.call_method0(end)?.call_method0("item")?.extract()
    }

    /// The same integers as labels of 8 or 16 bits.
    fn labels(&self, name: &str, dtype: DType) -> PyResult<Self> {
        let (most, hint) = match dtype {
            DType::U16 => (u16::MAX.into(), String::new()),
            _ => (u8::MAX.into(), format!("; give fields={{{name:?}: \"mask16\"}}")),
        };
        let (least, largest) = (self.at("min")?, self.at("max")?);
        if least < 0 || largest > most {
            let (value, hint) = if least < 0 { (least, "") } else { (largest, &*hint) };
            return Err(PyValueError::new_err(format!("a mask with the value {value}, outside of 0 to {most}{hint}")));
        }
        Self::of(&self.values.call_method1("astype", (dtype.name().replace('u', "uint"),))?)
    }

    /// Integers among numbers that are fractions in record 0.
    fn with_fractions(self, dtype: DType) -> PyResult<Self> {
        if self.of_numbers && dtype == DType::F64 && is_integer(self.dtype) {
            return Self::of(&self.values.call_method1("astype", ("float64",))?);
        }
        Ok(self)
    }

    fn pixels(&self) -> PyResult<engine::codec::ImageInfo> {
        let few = |channels: usize| (1..=4).contains(&channels);
        let (height, width, channels, planar) = match self.shape[..] {
            [height, width] => (height, width, 1, false),
            [channels, height, width] if self.of_tensor && few(channels) => (height, width, channels, true),
            [height, width, channels] if few(channels) => (height, width, channels, false),
            [channels, height, width] if few(channels) => (height, width, channels, true),
            _ => {
                let words = format!("an array {:?} is not an image: use [H, W], [H, W, C] or [C, H, W]", self.shape);
                return Err(PyTypeError::new_err(words));
            }
        };
        let mut info =
            engine::codec::ImageInfo::interleaved_u8(u32::try_from(height)?, u32::try_from(width)?, channels as u8);
        (info.dtype, info.planar) = (self.dtype, planar);
        Ok(info)
    }
}

/// Splits a value into the pieces that [`Dataset::parse`] takes: for images a header (empty if encoded) and bytes;
/// otherwise bytes.
///
/// In front of images and of texts stands a piece with their number.
fn piece(field: &Field, value: &Bound<'_, PyAny>, pieces: &mut Vec<Bytes>) -> PyResult<()> {
    let each = match &field.kind {
        FieldKind::Texts { .. } => Some(FieldKind::Text { most: MOST_BYTES }),
        kind => kind.each_image(),
    };
    if let Some(kind) = each {
        let items = match value.is_none() {
            // As in Arrow's tables, whose lists may be null.
            true => Vec::new(),
            false => items_of(value)?.ok_or_else(|| not_a_list(value))?,
        };
        pieces.push(Bytes::copy_from_slice(&(items.len() as u64).to_ne_bytes()));
        let mut each = Field::new(field.name.clone(), kind);
        each.mask = field.mask;
        return items.iter().enumerate().try_for_each(|(n, item)| {
            piece(&each, item, pieces).map_err(|error| in_words(value.py(), error, &format!("item {n}")))
        });
    }
    let values = Values::of(value)?;
    match (&field.kind, values) {
        (FieldKind::Image { .. }, Values::Encoded(bytes)) => pieces.extend([Bytes::new(), bytes]),
        (FieldKind::Image { channels, dtype, .. }, Values::Picture) => {
            let (info, bytes) = picture(value, field, *channels, *dtype)?;
            pieces.extend([header(&info), bytes]);
        }
        (FieldKind::Image { dtype: Some(dtype), .. }, Values::Array(array))
            if field.mask && !matches!(array.dtype, DType::U8 | DType::U16 | DType::F32) =>
        {
            let labels = array.labels(&field.name, *dtype)?;
            pieces.extend([header(&labels.pixels()?), labels.bytes()?]);
        }
        (FieldKind::Image { .. }, Values::Array(array)) => pieces.extend([header(&array.pixels()?), array.bytes()?]),
        (FieldKind::Label, Values::Integer(label)) => pieces.push(Bytes::copy_from_slice(&label.to_ne_bytes())),
        (FieldKind::Label, _) => {
            let words = format!("a label is an integer, the index of a class, not {}", value.repr()?);
            return Err(PyTypeError::new_err(words));
        }
        (FieldKind::Array { dtype, shape }, values) => {
            let array = values.array(value)?.with_fractions(*dtype)?;
            if (array.dtype, &array.shape) != (*dtype, shape) {
                let Array { dtype: found, shape: found_shape, .. } = &array;
                let words = format!("it is {found} {found_shape:?}, but in record 0 {dtype} {shape:?}");
                let is_list = found == dtype && found_shape.len() == shape.len() && found_shape[1..] == shape[1..];
                let hint = format!("; if its length differs, give fields={{{:?}: \"list\"}}", field.name);
                return Err(PyValueError::new_err(words + if is_list { &hint } else { "" }));
            }
            pieces.push(array.bytes()?);
        }
        (FieldKind::List { dtype, item, .. }, values) => {
            let array = values.array(value)?.with_fractions(*dtype)?;
            let found = (array.dtype, array.shape.get(1..));
            match array.shape[..] {
                // Without numbers a list has no type.
                [0] => pieces.push(Bytes::new()),
                _ if found == (*dtype, Some(&item[..])) => pieces.push(array.bytes()?),
                _ => {
                    let (found, shape) = (array.dtype, &array.shape);
                    let words = format!("it is {found} {shape:?}, but in record 0 a list of {dtype} {item:?}");
                    return Err(PyValueError::new_err(words));
                }
            }
        }
        (FieldKind::Bytes { .. }, Values::Encoded(bytes)) => pieces.push(bytes),
        (FieldKind::Bytes { .. } | FieldKind::Text { .. }, Values::Text(text)) => pieces.push(Bytes::from(text)),
        (FieldKind::Text { .. }, Values::Encoded(bytes)) => pieces.push(bytes),
        (kind, _) => {
            return Err(PyTypeError::new_err(format!(
                "{} is not of kind {}, as in record 0",
                type_of(value),
                kind.name()
            )));
        }
    }
    Ok(())
}

/// The pixels of a Pillow image. Masks keep their values, also palette indices.
///
/// `wanted`, `dtype`: channels and type of the field.
fn picture(
    image: &Bound<'_, PyAny>,
    field: &Field,
    wanted: u8,
    dtype: Option<DType>,
) -> PyResult<(engine::codec::ImageInfo, Bytes)> {
    let mode = mode_of(image)?;
    let (mask, wide) = (field.mask, dtype == Some(DType::U16));
    let converted = |mode: &str| image.call_method1("convert", (mode,));
    let (channels, image) = match (mask, &*mode) {
        (false, _) => match pixels_of(&mode)? {
            (3, _) if wanted == 3 && mode == "RGB" => (3, image.clone()),
            (_, DType::U8) if wanted == 3 => (3, converted("RGB")?),
            found if (wanted, dtype) != (found.0, Some(found.1)) => {
                let words = format!(
                    "a Pillow image of mode {mode}, but record 0 has {wanted} channels{}: convert all to one mode in \
                     __getitem__, such as image.convert(\"RGB\")",
                    if wide { " of 16 bits" } else { "" }
                );
                return Err(PyValueError::new_err(words));
            }
            _ if mode == "1" => (1, converted("L")?),
            (channels, _) => (channels, image.clone()),
        },
        (true, "I;16") if wide => (1, image.clone()),
        (true, "L" | "P") => (1, image.clone()),
        (true, "1") => (1, converted("L")?),
        // The engine checks that the channels are equal.
        (true, "LA") => (2, image.clone()),
        (true, "RGB") => (3, image.clone()),
        (true, "RGBA") => (4, image.clone()),
        (true, _) => {
            let name = &field.name;
            return Err(PyTypeError::new_err(match &*mode {
                "I;16" => format!("it holds 16 bits: give fields={{{name:?}: \"mask16\"}}"),
                _ => format!(
                    "a mask must have mode L, P, 1, I;16, or RGB with equal channels, not {mode}; give \
                     fields={{{name:?}: \"image\"}} if it is not a mask"
                ),
            }));
        }
    };
    let (width, height): (u32, u32) = image.getattr("size")?.extract()?;
    let bytes = image.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    let bytes = match (mask, &*mode) {
        // 0 and 1, as in numpy arrays of such an image.
        (true, "1") => bytes.as_bytes().iter().map(|value| u8::from(*value > 0)).collect(),
        _ => HeldObject::bytes(&bytes),
    };
    let mut info = engine::codec::ImageInfo::interleaved_u8(height, width, channels);
    if mode == "I;16" {
        info.dtype = DType::U16;
    }
    Ok((info, bytes))
}

/// The header that [`info_of`] reads.
fn header(info: &engine::codec::ImageInfo) -> Bytes {
    let dtype = match info.dtype {
        DType::U8 => 0,
        DType::U16 => 1,
        _ => 2,
    };
    let mut header = [0; 11];
    header[..4].copy_from_slice(&info.height.to_ne_bytes());
    header[4..8].copy_from_slice(&info.width.to_ne_bytes());
    header[8..].copy_from_slice(&[info.channels, dtype, u8::from(info.planar)]);
    Bytes::copy_from_slice(&header)
}

fn info_of(header: &[u8]) -> Option<engine::codec::ImageInfo> {
    let number = |at: usize| Some(u32::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let mut info = engine::codec::ImageInfo::interleaved_u8(number(0)?, number(4)?, *header.get(8)?);
    info.dtype = [DType::U8, DType::U16, DType::F32][usize::from(*header.get(9)?).min(2)];
    info.planar = header.get(10) == Some(&1);
    Some(info)
}

impl PythonDataset {
    pub(crate) const FORMAT: &'static str = "python";
}

impl Dataset for PythonDataset {
    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        Self::FORMAT
    }

    fn plan(&self, _record: u64, _rng: engine::transform::SampleRng) -> engine::Result<ReadPlan> {
        Ok(ReadPlan::by_dataset(self.expected))
    }

    fn read(&self, records: &[u64]) -> Vec<engine::Result<Vec<Bytes>>> {
        records.iter().map(|record| self.read_record(*record)).collect()
    }

    fn concurrent_reads(&self) -> Option<NonZeroUsize> {
        Some(CALLS)
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, pieces: &[Bytes]) -> engine::Result<Sample> {
        let broken =
            || Error::new(ErrorKind::Internal, "the pieces of a record do not fit its fields").at_record(record);
        let mut pieces = pieces.iter();
        let mut next = || pieces.next().cloned().ok_or_else(broken);
        let image = |header: Bytes, data: Bytes| match header.is_empty() {
            true => Ok(Value::Encoded(data)),
            false => Ok(Value::Pixels { info: info_of(&header).ok_or_else(broken)?, data }),
        };
        let values = self.schema.fields.iter().map(|field| {
            Ok(match field.kind {
                FieldKind::Image { .. } => image(next()?, next()?)?,
                FieldKind::Images { .. } => {
                    let count = count_of(&next()?);
                    Value::Images((0..count).map(|_| image(next()?, next()?)).collect::<engine::Result<_>>()?)
                }
                FieldKind::Texts { .. } => {
                    let count = count_of(&next()?);
                    Value::Texts((0..count).map(|_| next()).collect::<engine::Result<_>>()?)
                }
                FieldKind::Label => {
                    let label = next()?;
                    Value::Label(i64::from_ne_bytes(label[..].try_into().map_err(|_| broken())?))
                }
                FieldKind::Array { .. } => Value::Array(next()?),
                FieldKind::List { .. } => Value::List(next()?),
                _ => Value::Bytes(next()?),
            })
        });
        Ok(Sample::new(values.collect::<engine::Result<Vec<_>>>()?))
    }

    fn object(&self, record: u64) -> String {
        format!("dataset[{record}]")
    }

    fn largest_read(&self) -> u64 {
        self.expected
    }

    fn usual_varying(&self) -> Option<u64> {
        Some(self.varying)
    }

    // Nothing is fetched from a store.
    fn needs_fetch(&self) -> bool {
        false
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}
