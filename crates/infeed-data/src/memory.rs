//! Datasets of arrays in memory.

use std::sync::Arc;

use bytemuck::NoUninit;
use bytes::Bytes;
use infeed_core::{
    error::{Error, Result},
    fingerprint::{Fingerprint, Fingerprinter},
    random::SampleRng,
    types::{DType, Element, ImageInfo},
};

use super::{
    instances::Instances,
    record::{Dataset, ReadPlan, Sample, Value, index},
    schema::{Field, FieldKind, Schema, is_class},
    sniff::depth_of,
};

/// Records in memory: pixels, image files, labels, other numbers. Nothing is copied, neither when it is built nor per
/// record.
///
/// ```
/// use infeed::dataset::{Dataset, MemoryDataset};
/// let pixels = vec![0u8; 4 * 8 * 8 * 3];
/// let dataset = MemoryDataset::builder().images_u8(pixels, 4, 8, 8, 3, false).labels(vec![0, 1, 1, 0]).build()?;
/// assert_eq!(dataset.len(), 4);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug)]
pub struct MemoryDataset {
    columns: Vec<Column>,
    schema: Schema,
    len: usize,
    resident: u64,
    fingerprint: Fingerprint,
}

/// Collects the columns of a [`MemoryDataset`]; each adds a field.
///
/// ```
/// use infeed::{DType, dataset::{Dataset, MemoryDataset}};
///
/// let weights: Vec<u8> = [0.5f32, 1.0, 2.0].iter().flat_map(|weight| weight.to_ne_bytes()).collect();
/// let dataset = MemoryDataset::builder()
///     .images_u8(vec![0; 3 * 8 * 8 * 3], 3, 8, 8, 3, false)
///     .labels(vec![0, 1, 0])
///     .classes(["cat".to_owned(), "dog".to_owned()])
///     .array("weight", DType::F32, vec![], weights)
///     .build()?;
/// let fields: Vec<_> = dataset.schema().fields.iter().map(|field| &field.name[..]).collect();
/// assert_eq!(fields, ["image", "label", "weight"]);
/// # Ok::<(), infeed::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "`build` makes the dataset"]
pub struct MemoryBuilder {
    columns: Vec<(Field, Result<Column>)>,
    classes: Option<Arc<[String]>>,
    names: Vec<(String, Arc<[String]>)>,
    mapped: bool,
    fingerprint: Option<Fingerprint>,
    error: Option<Error>,
}

enum Column {
    Pixels {
        info: ImageInfo,
        data: Bytes,
        records: usize,
    },
    Encoded(Vec<Bytes>),
    Labels(Vec<i64>),
    /// `each` bytes per record, at least 1.
    Array {
        each: usize,
        data: Bytes,
    },
    Bytes(Vec<Bytes>),
    Lists(Vec<Bytes>),
    Images(Vec<Vec<Bytes>>),
    Texts(Vec<Arc<[Bytes]>>),
    Instances(Vec<Instances>),
}

impl std::fmt::Debug for Column {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pixels { info, records, .. } => write!(f, "{records} × {info:?}"),
            Self::Encoded(files) => write!(f, "{} image files", files.len()),
            Self::Labels(labels) => write!(f, "{} labels", labels.len()),
            Self::Array { each, data } => write!(f, "{} bytes, {each} a record", data.len()),
            Self::Bytes(values) => write!(f, "{} values", values.len()),
            Self::Lists(values) => write!(f, "{} lists", values.len()),
            Self::Images(rows) => write!(f, "{} lists of images", rows.len()),
            Self::Texts(rows) => write!(f, "{} lists of texts", rows.len()),
            Self::Instances(all) => write!(f, "instances of {} images", all.len()),
        }
    }
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Pixels { records, .. } => *records,
            Self::Encoded(files) => files.len(),
            Self::Labels(labels) => labels.len(),
            Self::Array { each, data } => data.len() / each,
            Self::Bytes(values) | Self::Lists(values) => values.len(),
            Self::Images(rows) => rows.len(),
            Self::Texts(rows) => rows.len(),
            Self::Instances(all) => all.len(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Pixels { data, .. } | Self::Array { data, .. } => data.len(),
            Self::Encoded(files) | Self::Bytes(files) | Self::Lists(files) => files.iter().map(Bytes::len).sum(),
            Self::Texts(rows) => rows.iter().flat_map(|row| row.iter()).map(Bytes::len).sum(),
            Self::Images(rows) => rows.iter().flatten().map(Bytes::len).sum(),
            Self::Labels(labels) => labels.len() * 8,
            Self::Instances(all) => all.iter().map(Instances::bytes).sum(),
        }
    }

    /// Whether it can't be in a memory-mapped file.
    fn is_own(&self) -> bool {
        matches!(self, Self::Labels(_) | Self::Instances(_))
    }

    /// `i` is below `len`.
    fn value(&self, i: usize) -> Value {
        match self {
            Self::Pixels { info, data, records } => {
                let each = data.len() / records;
                Value::Pixels { info: *info, data: data.slice(i * each..(i + 1) * each) }
            }
            Self::Encoded(files) => Value::Encoded(files[i].clone()),
            Self::Labels(labels) => Value::Label(labels[i]),
            Self::Array { each, data } => Value::Array(data.slice(i * each..(i + 1) * each)),
            Self::Bytes(values) => Value::Bytes(values[i].clone()),
            Self::Lists(values) => Value::List(values[i].clone()),
            Self::Images(rows) => Value::Images(rows[i].iter().cloned().map(Value::Encoded).collect()),
            Self::Texts(rows) => Value::Texts(Arc::clone(&rows[i])),
            Self::Instances(all) => Value::Instances(Box::new(all[i].clone())),
        }
    }
}

/// Numbers, as the bytes that represent them.
struct Numbers<T>(Vec<T>);

impl<T: NoUninit> AsRef<[u8]> for Numbers<T> {
    fn as_ref(&self) -> &[u8] {
        // Never fails: bytes need no alignment.
        bytemuck::cast_slice(&self.0)
    }
}

impl MemoryDataset {
    /// A dataset without columns.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }
}

impl MemoryBuilder {
    fn column(mut self, field: Field, column: Result<Column>) -> Self {
        self.columns.push((field, column));
        self
    }

    fn pixels(self, data: Bytes, n: usize, info: ImageInfo) -> Self {
        let ImageInfo { height, width, channels, dtype, .. } = info;
        let kind = FieldKind::Image { channels, size: Some((height, width)), dtype: Some(dtype) };
        let expected = info.len_bytes().saturating_mul(n as u64);
        let column = if info.len_bytes() == 0 {
            Err(Error::config(format!("images of {height}×{width}×{channels} have no pixels")))
        } else if data.len() as u64 != expected {
            let what =
                format!("{n} images of {height}×{width}×{channels} {dtype} are {expected} bytes, not {}", data.len());
            Err(Error::config(what))
        } else {
            Ok(Column::Pixels { info, data, records: n })
        };
        self.column(Field::new("image", kind), column)
    }

    /// Adds `n` images of 8-bit pixels as the field `image`. `planar`: channels first (CHW), else last (HWC).
    pub fn images_u8(
        self,
        data: impl Into<Bytes>,
        n: usize,
        height: u32,
        width: u32,
        channels: u8,
        planar: bool,
    ) -> Self {
        self.pixels(data.into(), n, ImageInfo { height, width, channels, dtype: DType::U8, planar })
    }

    /// The same as [`images_u8`](Self::images_u8), with 16-bit pixels.
    pub fn images_u16(self, data: Vec<u16>, n: usize, height: u32, width: u32, channels: u8, planar: bool) -> Self {
        let data = Bytes::from_owner(Numbers(data));
        self.pixels(data, n, ImageInfo { height, width, channels, dtype: DType::U16, planar })
    }

    /// The same as [`images_u8`](Self::images_u8), with single precision pixels.
    pub fn images_f32(self, data: Vec<f32>, n: usize, height: u32, width: u32, channels: u8, planar: bool) -> Self {
        let data = Bytes::from_owner(Numbers(data));
        self.pixels(data, n, ImageInfo { height, width, channels, dtype: DType::F32, planar })
    }

    /// Adds image files (JPEG, PNG, …) as the field `image`, decoded to RGB.
    pub fn encoded_images(self, files: Vec<Bytes>) -> Self {
        self.column(Field::image(), Ok(Column::Encoded(files)))
    }

    /// Adds class indices as the field `label`.
    pub fn labels(self, labels: Vec<i64>) -> Self {
        self.column(Field::label(), Ok(Column::Labels(labels)))
    }

    /// Adds numbers of a fixed shape. `data` holds all records, one after another, in the machine's byte order.
    pub fn array(self, name: impl Into<String>, dtype: DType, shape: Vec<usize>, data: impl Into<Bytes>) -> Self {
        let data = data.into();
        let each = shape.iter().try_fold(dtype.size(), |bytes, n| bytes.checked_mul(*n));
        let column = match each {
            Some(each) if each > 0 && data.len() % each == 0 => Ok(Column::Array { each, data }),
            Some(each) => {
                let what = format!("{} bytes are no whole number of records of {each} bytes", data.len());
                Err(Error::config(what))
            }
            None => Err(Error::config(format!("the shape {shape:?} is too large"))),
        };
        self.column(Field::new(name, FieldKind::Array { dtype, shape }), column)
    }

    /// Adds bytes of any content; the length may differ from record to record.
    pub fn bytes(self, name: impl Into<String>, values: Vec<Bytes>) -> Self {
        let most = values.iter().map(Bytes::len).max().unwrap_or(0);
        self.column(Field::bytes(name, most), Ok(Column::Bytes(values)))
    }

    /// Adds text in UTF-8; the length may differ from record to record. A record whose text is not UTF-8 is a bad sample.
    pub fn texts(self, name: impl Into<String>, values: impl IntoIterator<Item = impl Into<Bytes>>) -> Self {
        let values: Vec<Bytes> = values.into_iter().map(Into::into).collect();
        let most = values.iter().map(Bytes::len).max().unwrap_or(0);
        self.column(Field::text(name, most), Ok(Column::Bytes(values)))
    }

    /// Adds several image files (JPEG, PNG, …) for each record, decoded to RGB; their number may differ from record to
    /// record.
    ///
    /// ```
    /// use infeed::dataset::{Dataset, FieldKind, MemoryDataset};
    ///
    /// # let (front, back, side): (bytes::Bytes, bytes::Bytes, bytes::Bytes) = Default::default();
    /// // Two pictures of the first product, one of the second.
    /// let dataset = MemoryDataset::builder().image_lists("images", vec![vec![front, back], vec![side]]).build()?;
    /// assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Images { most: 2, .. }));
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn image_lists(self, name: impl Into<String>, rows: Vec<Vec<Bytes>>) -> Self {
        let most = rows.iter().map(Vec::len).max().unwrap_or(0);
        let usual = rows.iter().map(Vec::len).sum::<usize>().div_ceil(rows.len().max(1));
        let field = Field { name: name.into(), ..Field::image() };
        self.column(field.several(most, usual), Ok(Column::Images(rows)))
    }

    /// Adds several texts in UTF-8 for each record; their number may differ from record to record.
    ///
    /// ```
    /// use infeed::dataset::{Dataset, MemoryDataset};
    ///
    /// let captions = vec![vec!["a cat", "a cat on a mat"], vec!["a dog"]];
    /// let dataset = MemoryDataset::builder().text_lists("captions", captions).build()?;
    /// assert_eq!(dataset.len(), 2);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn text_lists(self, name: impl Into<String>, rows: Vec<Vec<impl Into<Bytes>>>) -> Self {
        let rows = rows.into_iter().map(|row| row.into_iter().map(Into::into).collect());
        let rows: Vec<Arc<[Bytes]>> = rows.collect();
        let most = rows.iter().map(|row| row.iter().map(Bytes::len).sum()).max().unwrap_or(0);
        self.column(Field::texts(name, most), Ok(Column::Texts(rows)))
    }

    /// Adds lists of numbers; the length may differ from record to record.
    ///
    /// ```
    /// use infeed::dataset::{Dataset, MemoryDataset};
    ///
    /// // The tokens of two sentences.
    /// let dataset = MemoryDataset::builder().lists("tokens", vec![vec![5i32, 9, 2], vec![7, 1]]).build()?;
    /// assert_eq!(dataset.len(), 2);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn lists<T: Element + NoUninit + Send + Sync>(self, name: impl Into<String>, rows: Vec<Vec<T>>) -> Self {
        let rows = rows.into_iter().map(|row| Bytes::from_owner(Numbers(row))).collect();
        self.list_bytes(name, T::DTYPE, Vec::new(), rows)
    }

    /// Adds lists of items of the shape `item` (`[]` for numbers): the bytes of each record's items, one after another,
    /// in the machine's byte order.
    ///
    /// ```
    /// use infeed::{DType, dataset::{Dataset, MemoryDataset}};
    ///
    /// // Points [x, y]: two in the first record, none in the second.
    /// let points: Vec<u8> = [0.5f32, 1.0, 2.0, 3.5].iter().flat_map(|number| number.to_ne_bytes()).collect();
    /// let rows = vec![points.into(), Vec::new().into()];
    /// let dataset = MemoryDataset::builder().list_bytes("points", DType::F32, vec![2], rows).build()?;
    /// assert_eq!(dataset.len(), 2);
    /// # Ok::<(), infeed::Error>(())
    /// ```
    pub fn list_bytes(self, name: impl Into<String>, dtype: DType, item: Vec<usize>, rows: Vec<Bytes>) -> Self {
        let each = dtype.len_bytes(&item).unwrap_or(0);
        let uneven = rows.iter().position(|row| each == 0 || !row.len().is_multiple_of(each));
        let column = match uneven {
            None => Ok(Column::Lists(rows)),
            Some(record) => {
                let what = format!("{} bytes are not whole items of {dtype} {item:?}", rows[record].len());
                Err(Error::config(what).at_record(record as u64))
            }
        };
        let longest = match &column {
            Ok(Column::Lists(rows)) => rows.iter().map(Bytes::len).max().unwrap_or(0),
            _ => 0,
        };
        let most = longest.checked_div(each).unwrap_or(0);
        self.column(Field::new(name, FieldKind::List { dtype, item, most }), column)
    }

    /// Adds objects that are marked in the images, as the field `instances`. The field has masks if the first record
    /// has, and so for key points. [`names`](Self::names) of `keypoints` names the points; a flip swaps left and right
    /// ones.
    pub fn instances(self, all: Vec<Instances>) -> Self {
        let most = all.iter().map(Instances::len).max().unwrap_or(0);
        let masks = all.first().is_some_and(|first| first.masks.is_some());
        let keypoints = all.iter().flat_map(|one| one.keypoints.iter().flatten()).map(Vec::len).next().unwrap_or(0);
        let fits = |one: &Instances| one.is_sound() && one.masks.is_some() == masks && one.has_keypoints(keypoints);
        let unsound = all.iter().position(|one| !fits(one));
        let column = match unsound {
            None => Ok(Column::Instances(all)),
            Some(record) => {
                let what = "the lists of instances differ in length, or only some have masks or as many key points";
                Err(Error::config(what).at_record(record as u64))
            }
        };
        self.column(Field::new("instances", FieldKind::Instances { most, masks, keypoints }), column)
    }

    /// Renames the field that was added last, of any kind: `.encoded_images(files).named("photo")`.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        match self.columns.last_mut() {
            Some((field, _)) => field.name = name,
            None => {
                let nothing =
                    || Error::config(format!("no field to call `{name}`")).with_hint("add it before its name");
                self.error.get_or_insert_with(nothing);
            }
        }
        self
    }

    /// Makes the images, or lists of images, that were added last masks ([`Field::mask`]): files are decoded to one
    /// channel, of the type of the labels in the first file; pixels stay as they are.
    /// `.encoded_images(files).named("mask").mask()`.
    pub fn mask(mut self) -> Self {
        match self.columns.last_mut() {
            Some((field, column)) if matches!(field.kind, FieldKind::Image { .. } | FieldKind::Images { .. }) => {
                if let FieldKind::Image { channels, size: None, dtype } | FieldKind::Images { channels, dtype, .. } =
                    &mut field.kind
                {
                    let first = match column {
                        Ok(Column::Encoded(files)) => files.first(),
                        Ok(Column::Images(rows)) => rows.iter().flatten().next(),
                        _ => None,
                    };
                    (*channels, *dtype) = (1, Some(depth_of(first.map(|file| &file[..]))));
                }
                field.mask = true;
            }
            _ => {
                let nothing = || {
                    Error::config("there are no images to make masks of").with_hint("add the images before calling it")
                };
                self.error.get_or_insert_with(nothing);
            }
        }
        self
    }

    /// Sets the class names; the values of the field `label` are indices into them.
    pub fn classes(mut self, classes: impl Into<Arc<[String]>>) -> Self {
        self.classes = Some(classes.into());
        self
    }

    /// Sets the names for the values of another field of class indices, such as `coarse_label`, or of `keypoints`
    /// ([`Schema::names_of`](super::Schema::names_of)).
    pub fn names(mut self, field: impl Into<String>, names: impl Into<Arc<[String]>>) -> Self {
        self.names.push((field.into(), names.into()));
        self
    }

    /// States that images, arrays and bytes are in memory-mapped files. The system can drop their pages when it needs
    /// memory, so they do not count as [resident](Dataset::resident_bytes).
    pub fn mapped(mut self) -> Self {
        self.mapped = true;
        self
    }

    /// Sets what identifies this dataset, such as a hash of its content. Default: names, sizes and number of records.
    /// Another dataset may have the same ones; a state saved with it would then be accepted for this dataset.
    pub fn fingerprint(mut self, fingerprint: Fingerprint) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Builds the dataset.
    ///
    /// # Errors
    /// `Config` if there is no column, if two share a name, if their lengths differ, if a label is neither a class nor
    /// -1, or if there are names for a field that has no class indices.
    pub fn build(self) -> Result<MemoryDataset> {
        let Self { columns, classes, names, mapped, fingerprint, error } = self;
        if let Some(error) = error {
            return Err(error);
        }
        let sound = |(field, column): (Field, Result<Column>)| match column {
            Ok(column) => Ok((field, column)),
            Err(error) => Err(error.at_object(field.name)),
        };
        let columns = columns.into_iter().map(sound).collect::<Result<Vec<_>>>()?;
        let Some((first, column)) = columns.first() else {
            return Err(Error::config("a dataset without fields").with_hint("add images, labels or arrays"));
        };
        let len = column.len();
        for (i, (field, column)) in columns.iter().enumerate() {
            if columns[..i].iter().any(|(other, _)| other.name == field.name) {
                return Err(Error::config(format!("two fields are called `{}`", field.name)));
            }
            let here = column.len();
            if here != len {
                let what = format!("`{}` has {here} records, `{}` has {len}", field.name, first.name);
                return Err(Error::config(what));
            }
            if let (Column::Instances(all), Some(classes)) = (column, &classes) {
                let known = |label: &i64| usize::try_from(*label).is_ok_and(|label| label < classes.len());
                let bad = all.iter().position(|one| !one.labels.iter().all(known));
                if let Some(record) = bad {
                    let what = format!("a label of its instances is not among the {} classes", classes.len());
                    return Err(Error::config(what).at_record(record as u64));
                }
            }
        }
        // Class names belong to `label`; another field has its own names.
        let of_label = classes.iter().map(|classes| ("label", classes));
        let of_others = names.iter().map(|(name, names)| (&**name, names));
        let named = |name: &str| columns.iter().find(|(field, _)| field.name == name);
        let points = |(field, _): &(Field, Column)| match field.kind {
            FieldKind::Instances { keypoints, .. } => Some(keypoints),
            _ => None,
        };
        let points = columns.iter().find_map(points).unwrap_or(0);
        for (name, classes) in of_label.chain(of_others) {
            match named(name) {
                None if name == "keypoints" && classes.len() == points => {}
                None if name == "keypoints" => {
                    let what = format!("{} names of key points, and objects have {points} of them", classes.len());
                    return Err(Error::config(what));
                }
                Some((_, Column::Labels(labels))) => check_labels(labels, classes)?,
                // Class names may be only for the instances.
                None if name == "label" => {}
                _ => return Err(Error::config(format!("there are names for `{name}`, which has no class indices"))),
            }
        }
        let by_sizes = || {
            let print = Fingerprint::of("memory").number(len as u64);
            let add = |print: Fingerprinter, (field, column): &(Field, Column)| {
                print.text(&field.name).number(column.bytes() as u64)
            };
            columns.iter().fold(print, add).finish()
        };
        let fingerprint = fingerprint.unwrap_or_else(by_sizes);
        let resident = columns.iter().filter(|(_, column)| !mapped || column.is_own());
        let resident = resident.map(|(_, column)| column.bytes() as u64).sum();
        let (fields, columns) = columns.into_iter().unzip();
        let schema = Schema { names, ..Schema::new(fields).with_classes(classes) };
        Ok(MemoryDataset { columns, schema, len, resident, fingerprint })
    }
}

fn check_labels(labels: &[i64], classes: &[String]) -> Result<()> {
    let bad = labels.iter().position(|label| !is_class(*label, classes));
    bad.map_or(Ok(()), |record| {
        let what = format!("label {} is not among the {} classes", labels[record], classes.len());
        Err(Error::config(what).at_record(record as u64))
    })
}

impl Dataset for MemoryDataset {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn format(&self) -> &str {
        "memory"
    }

    fn plan(&self, record: u64, _rng: SampleRng) -> Result<ReadPlan> {
        index(record, self.len).map(|_| ReadPlan::default())
    }

    fn parse(&self, record: u64, _plan: &ReadPlan, _bytes: &[Bytes]) -> Result<Sample> {
        let i = index(record, self.len)?;
        Ok(Sample { values: self.columns.iter().map(|c| c.value(i)).collect() })
    }

    fn image_size(&self, record: u64) -> Option<[u32; 2]> {
        let record = usize::try_from(record).ok()?;
        self.columns.iter().find_map(|column| match column {
            Column::Instances(all) => all.get(record).map(|one| one.size),
            Column::Pixels { info, .. } => Some([info.height, info.width]),
            _ => None,
        })
    }

    fn object(&self, _record: u64) -> String {
        "memory".to_owned()
    }

    fn needs_fetch(&self) -> bool {
        false
    }

    fn largest_read(&self) -> u64 {
        0
    }

    fn resident_bytes(&self) -> u64 {
        self.resident
    }

    fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::dataset_contract;

    fn says(builder: MemoryBuilder, text: &str) {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), infeed_core::error::ErrorKind::Config);
        assert!(error.to_string().contains(text), "{error}");
    }

    #[test]
    fn every_kind_of_column_keeps_the_contract() {
        let files = vec![Bytes::from_static(b"a"), Bytes::new()];
        for builder in [
            MemoryDataset::builder().images_u8(vec![1; 24], 2, 2, 2, 3, false),
            MemoryDataset::builder().images_u16(vec![1; 24], 2, 2, 2, 3, true),
            MemoryDataset::builder().images_f32(vec![1.0; 40], 2, 2, 2, 5, true),
            MemoryDataset::builder().encoded_images(files),
        ] {
            let builder = builder.labels(vec![1, 0]).classes(["a".to_owned(), "b".to_owned()]);
            let builder = builder.array("box", DType::F32, vec![4], vec![0; 32]);
            block_on(dataset_contract(&builder.build().unwrap())).unwrap();
        }
    }

    #[test]
    fn records_are_slices_of_what_was_given() {
        let data = Bytes::from((0..24).collect::<Vec<u8>>());
        let dataset = MemoryDataset::builder().images_u8(data.clone(), 2, 2, 2, 3, false).build().unwrap();
        let sample = dataset.parse(1, &ReadPlan::default(), &[]).unwrap();
        let Value::Pixels { data: pixels, .. } = &sample.values[0] else { panic!("{sample:?}") };
        assert_eq!(pixels.as_ptr(), data[12..].as_ptr());
        let dataset = MemoryDataset::builder().images_u16(vec![0x0102, 0x0304], 2, 1, 1, 1, false).build().unwrap();
        let sample = dataset.parse(1, &ReadPlan::default(), &[]).unwrap();
        let Value::Pixels { data: pixels, .. } = &sample.values[0] else { panic!("{sample:?}") };
        assert_eq!(pixels[..], 0x0304u16.to_ne_bytes());
    }

    #[test]
    fn lengths_that_do_not_fit_are_named() {
        let builder = MemoryDataset::builder;
        says(builder(), "without fields");
        says(builder().images_u8(vec![0; 11], 1, 2, 2, 3, false), "1 images of 2×2×3 u8 are 12 bytes, not 11");
        says(builder().images_u8(vec![], 1, 0, 2, 3, false), "no pixels");
        says(builder().images_u8(vec![0], usize::MAX, u32::MAX, u32::MAX, 255, false), "not 1");
        says(
            builder().labels(vec![0; 2]).array("x", DType::U8, vec![], vec![0; 3]),
            "`x` has 3 records, `label` has 2",
        );
        says(builder().array("x", DType::F32, vec![3], vec![0; 16]), "records of 12 bytes");
        says(builder().array("x", DType::F32, vec![0], vec![]), "records of 0 bytes");
        says(builder().array("x", DType::F32, vec![usize::MAX, 3], vec![]), "too large");
        says(builder().labels(vec![0]).labels(vec![0]), "two fields are called `label`");
        says(builder().labels(vec![0, 2]).classes(["a".to_owned()]), "label 2 is not among the 1 classes (record 1)");
        says(builder().labels(vec![0, -2]).classes(["a".to_owned()]), "label -2 is not among the 1 classes (record 1)");
        // That of a test set whose labels are kept secret.
        builder().labels(vec![0, -1]).classes(["a".to_owned()]).build().unwrap();
    }

    #[test]
    fn fields_have_any_names_and_classes_of_their_own() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let builder = || {
            MemoryDataset::builder()
                .encoded_images(vec![Bytes::from_static(b"a"); 2])
                .named("photo")
                .labels(vec![0, 1])
                .classes(words(&["cat", "dog"]))
                .labels(vec![2, 0])
                .named("coarse")
        };
        let dataset = builder().names("coarse", words(&["x", "y", "z"])).build().unwrap();
        let names: Vec<_> = dataset.schema().fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["photo", "label", "coarse"]);
        assert_eq!(dataset.schema().names_of("coarse"), Some(&words(&["x", "y", "z"])[..]));
        block_on(dataset_contract(&dataset)).unwrap();
        says(builder().names("coarse", words(&["x", "y"])), "label 2 is not among the 2 classes (record 0)");
        says(builder().names("photo", words(&["x"])), "names for `photo`, which has no class indices");
        says(builder().names("kind", words(&["x"])), "names for `kind`, which has no class indices");
        says(builder().named("label"), "two fields are called `label`");
        says(MemoryDataset::builder().named("x").labels(vec![0]), "no field to call `x`");
        says(MemoryDataset::builder().images_u8(vec![0], 1, 2, 2, 3, false).named("photo"), "not 1 (photo)");
    }

    #[test]
    fn key_points_of_instances_are_equally_many_and_may_have_names() {
        let builder = |points: [usize; 2]| {
            let marked = |points: usize| {
                let mut marked = Instances::new([2, 2]);
                marked.push([0.0, 0.0, 1.0, 1.0], 0);
                marked.keypoints = Some(vec![vec![[1.0, 1.0, 2.0]; points]]);
                marked
            };
            MemoryDataset::builder().instances(points.into_iter().map(marked).collect())
        };
        let names = |count: usize| (0..count).map(|name| name.to_string()).collect::<Vec<_>>();
        let dataset = builder([3, 3]).names("keypoints", names(3)).build().unwrap();
        assert_eq!(dataset.schema().fields[0].kind, FieldKind::Instances { most: 1, masks: false, keypoints: 3 });
        assert_eq!(dataset.schema().names_of("keypoints"), Some(&names(3)[..]));
        assert_eq!(dataset.resident_bytes(), 2 * (33 + 3 * 12));
        block_on(dataset_contract(&dataset)).unwrap();
        says(builder([3, 3]).names("keypoints", names(2)), "2 names of key points, and objects have 3 of them");
        says(builder([3, 2]), "only some have masks or as many key points (record 1");
        let none = Instances::new([2, 2]);
        says(MemoryDataset::builder().instances(vec![none]).names("keypoints", names(1)), "objects have 0 of them");
    }

    #[test]
    fn a_dataset_that_is_known_by_a_hash_is_told_apart_by_it() {
        let labels = |labels: &[i64]| MemoryDataset::builder().labels(labels.to_vec());
        let by_sizes = labels(&[1]).build().unwrap().fingerprint();
        assert_eq!(labels(&[2]).build().unwrap().fingerprint(), by_sizes);
        let known = labels(&[2]).fingerprint(Fingerprint(7)).build().unwrap();
        assert_eq!(known.fingerprint(), Fingerprint(7));
    }

    #[test]
    fn what_lies_in_mapped_files_is_not_resident() {
        let builder = || {
            let files = vec![Bytes::from_static(b"abc"), Bytes::from_static(b"de")];
            let pixels = MemoryDataset::builder().images_u8(vec![0; 24], 2, 2, 2, 3, false);
            pixels.encoded_images(files).named("file").labels(vec![0, 1])
        };
        assert_eq!(builder().build().unwrap().resident_bytes(), 24 + 5 + 16);
        assert_eq!(builder().mapped().build().unwrap().resident_bytes(), 16);
    }

    #[test]
    fn no_records_are_a_dataset_too() {
        let dataset = MemoryDataset::builder().images_u8(vec![], 0, 2, 2, 3, false).labels(vec![]).build().unwrap();
        assert!(dataset.is_empty());
        block_on(dataset_contract(&dataset)).unwrap();
    }
}
