//! The names of a record's fields, and what they hold.

use std::sync::Arc;

use infeed_core::{
    error::{Error, Result},
    types::DType,
};

use super::names::looks_like_mask;

/// The fields of a record and the names of classes.
///
/// ```
/// # futures::executor::block_on(async {
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// for field in &dataset.schema().fields {
///     println!("{}: {:?}", field.name, field.kind);
/// }
/// # assert_eq!(dataset.schema().fields.len(), 2);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// For a dataset of your own:
///
/// ```
/// use infeed::dataset::{Field, Schema};
///
/// let classes = ["cat", "dog"].map(str::to_owned);
/// let schema = Schema::new(vec![Field::image(), Field::label()]).with_classes(Some(classes.into()));
/// assert_eq!(schema.classes.as_deref().map(|names| &names[1][..]), Some("dog"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Schema {
    /// In the order in which [`Sample`](super::Sample) holds them.
    pub fields: Vec<Field>,
    /// Class names; labels are indices into them.
    pub classes: Option<Arc<[String]>>,
    /// Names for the values of other index fields, such as patients; under `keypoints`, the names of key points.
    pub names: Vec<(String, Arc<[String]>)>,
    /// Whether the dataset's own library turns images upright by the orientation in their files, as Hugging Face's
    /// `datasets` and YOLO's do. Loaders do so by default then.
    pub upright: bool,
}

impl Schema {
    /// A schema without class names.
    #[must_use]
    pub const fn new(fields: Vec<Field>) -> Self {
        Self { fields, classes: None, names: Vec::new(), upright: false }
    }

    /// The names for the values of an index field, `names_of("patient")`, or of key points, `names_of("keypoints")`.
    #[must_use]
    pub fn names_of(&self, field: &str) -> Option<&[String]> {
        self.names.iter().find(|(name, _)| name == field).map(|(_, names)| &**names)
    }

    /// Checks a label that was read: if there are class names, it is an index into them or -1.
    #[doc(hidden)]
    pub fn label(&self, label: i64) -> Result<i64> {
        match &self.classes {
            Some(classes) if !is_class(label, classes) => {
                Err(Error::corrupt(format!("label {label} is not among the {} classes", classes.len())))
            }
            _ => Ok(label),
        }
    }

    /// The label in a text: the index of the class that has this name, otherwise the number.
    #[doc(hidden)]
    pub fn label_of(&self, text: &[u8]) -> Result<i64> {
        let (text, classes) = (text.trim_ascii(), self.classes.as_deref().unwrap_or_default());
        if let Some(at) = classes.iter().position(|class| class.as_bytes() == text) {
            return Ok(at as i64);
        }
        match str::from_utf8(text).ok().and_then(|text| text.parse().ok()) {
            Some(label) => self.label(label),
            None => {
                let shown: String = String::from_utf8_lossy(text).chars().take(40).collect();
                let among = match &self.classes {
                    Some(classes) => format!(", and not among the {} classes", classes.len()),
                    None => String::new(),
                };
                Err(Error::corrupt(format!("label `{}` is no number{among}", shown.escape_debug())))
            }
        }
    }

    /// The same with class names, if there are any.
    #[must_use]
    pub fn with_classes(mut self, classes: Option<Arc<[String]>>) -> Self {
        self.classes = classes;
        self
    }
}

/// Whether a label is an index into these classes, or -1, as in test sets whose labels are kept secret.
#[doc(hidden)]
pub fn is_class(label: i64, classes: &[String]) -> bool {
    label == -1 || usize::try_from(label).is_ok_and(|label| label < classes.len())
}

/// One named value of each record.
///
/// ```
/// use infeed::{
///     DType,
///     dataset::{Field, FieldKind},
/// };
///
/// let mask = FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) };
/// let fields = vec![Field::image(), Field::mask("mask", mask), Field::bytes("caption", 200)];
/// assert_eq!((&fields[0].name[..], fields[1].mask), ("image", true));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Field {
    /// The key in a batch: `image`, `label`, `coarse_label`, …
    pub name: String,
    /// What it holds.
    pub kind: FieldKind,
    /// Whether it is an image of labels. It gets the geometry of the transform, with the same draws as the record's
    /// other images, but its values stay as they are: nothing is blended, scaled or blanked.
    pub mask: bool,
}

impl Field {
    /// A field of any kind.
    #[must_use]
    pub fn new(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { name: name.into(), kind, mask: false }
    }

    /// An image of labels.
    #[must_use]
    pub fn mask(name: impl Into<String>, kind: FieldKind) -> Self {
        Self { mask: true, ..Self::new(name, kind) }
    }

    /// Encoded images of any size under this name. If the name is usual for masks, such as `mask`, `label`, `seg_map`,
    /// `tumor_mask` or `annotation`, the field is a mask of one channel; otherwise it is decoded to RGB. All formats
    /// use this rule.
    ///
    /// ```
    /// use infeed::dataset::Field;
    ///
    /// let names = ["photo", "label_map", "tumor_mask", "masked_photo"];
    /// assert_eq!(names.map(|name| Field::picture(name).mask), [false, true, true, false]);
    /// ```
    #[must_use]
    pub fn picture(name: impl Into<String>) -> Self {
        let name = name.into();
        match looks_like_mask(&name) {
            // Blending would change its labels.
            true => Self::mask(name, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) }),
            false => Self { name, ..Self::image() },
        }
    }

    /// A field of images: the same with any number of images, up to `most` in a record and `usual` in a usual one. Other
    /// fields stay as they are.
    ///
    /// ```
    /// use infeed::dataset::{Field, FieldKind};
    ///
    /// let frames = Field::picture("frames").several(8, 3);
    /// assert!(matches!(frames.kind, FieldKind::Images { most: 8, usual: 3, .. }));
    /// ```
    #[must_use]
    pub fn several(mut self, most: usize, usual: usize) -> Self {
        if let FieldKind::Image { channels, dtype, .. } = self.kind {
            self.kind = FieldKind::Images { channels, dtype, most, usual };
        }
        self
    }

    /// Encoded images of any size, decoded to RGB, named `image`.
    #[must_use]
    pub fn image() -> Self {
        Self::new("image", FieldKind::Image { channels: 3, size: None, dtype: None })
    }

    /// Class indices, named `label`.
    #[must_use]
    pub fn label() -> Self {
        Self::new("label", FieldKind::Label)
    }

    /// The objects that are marked in the images, as the field `instances`: up to `most` boxes in a record, with or
    /// without masks, without key points.
    #[must_use]
    pub fn instances(most: usize, masks: bool) -> Self {
        Self::new("instances", FieldKind::Instances { most, masks, keypoints: 0 })
    }

    /// Bytes of any content, at most `most` in a record.
    #[must_use]
    pub fn bytes(name: impl Into<String>, most: usize) -> Self {
        Self::new(name, FieldKind::Bytes { most })
    }

    /// Text in UTF-8, at most `most` bytes in a record.
    #[must_use]
    pub fn text(name: impl Into<String>, most: usize) -> Self {
        Self::new(name, FieldKind::Text { most })
    }

    /// Texts in UTF-8, any number of them in a record, at most `most` bytes together: the captions of an image.
    #[must_use]
    pub fn texts(name: impl Into<String>, most: usize) -> Self {
        Self::new(name, FieldKind::Texts { most })
    }

    /// Numbers, up to `most` in a record: tokens, samples of sound, values of a sensor.
    #[must_use]
    pub fn list(name: impl Into<String>, dtype: DType, most: usize) -> Self {
        Self::new(name, FieldKind::List { dtype, item: Vec::new(), most })
    }
}

/// What a field holds.
///
/// ```
/// use infeed::{DType, dataset::FieldKind};
///
/// let kinds = [
///     FieldKind::Image { channels: 3, size: Some((224, 224)), dtype: None },
///     FieldKind::Array { dtype: DType::F32, shape: vec![17, 2] },
///     FieldKind::Label,
/// ];
/// assert_eq!(kinds.map(|kind| kind.name()), ["image", "array", "label"]);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FieldKind {
    /// An image, as a file or as pixels. It is decoded to this many channels (gray is repeated, alpha is dropped).
    Image {
        /// Channels of the tensor before the transform.
        channels: u8,
        /// Height and width, if all records share them.
        size: Option<(u32, u32)>,
        /// Element type of the pixels, if it is known before reading.
        dtype: Option<DType>,
    },
    /// A volume: `[channels, depth, height, width]`, made on the host.
    Volume {
        /// Channels of the tensor.
        channels: u32,
        /// Depth, height and width, if all records share them.
        size: Option<[u32; 3]>,
        /// The type of labels, which are kept as they are; `None`: intensities.
        mask: Option<DType>,
    },
    /// A class index, `i64`.
    Label,
    /// Fixed-shape numbers, copied as they are.
    Array {
        /// Element type.
        dtype: DType,
        /// Shape of one record.
        shape: Vec<usize>,
    },
    /// Bytes, of a different length in each record. They make no tensor; `Batch::bytes` returns them.
    Bytes {
        /// The most bytes in one record. The memory budget counts this many for each row of a batch.
        most: usize,
    },
    /// Text in UTF-8, of a different length in each record: captions, JSON, keys. `Batch::texts` returns it.
    Text {
        /// The most bytes in one record. The memory budget counts this many for each row of a batch.
        most: usize,
    },
    /// Items of one type and shape; their number differs from record to record: tokens, points, samples of sound.
    /// `Batch::list` returns the items of all rows in one tensor, and offsets where each row begins.
    List {
        /// Element type.
        dtype: DType,
        /// Shape of an item; empty for numbers.
        item: Vec<usize>,
        /// The most items in one record. The memory budget counts this many for each row of a batch.
        most: usize,
    },
    /// Images; their number differs from record to record: the pictures of a conversation, the frames of a scene. Each
    /// goes through the transform with draws of its own. They are decoded on the host, and `Batch::list` returns the
    /// rows of all of them, and offsets where each record begins.
    Images {
        /// Channels of the tensor before the transform.
        channels: u8,
        /// Element type of the pixels, if it is known before reading.
        dtype: Option<DType>,
        /// The most images in one record.
        most: usize,
        /// Images in a usual record. The memory budget counts this many for each row of a batch.
        usual: usize,
    },
    /// Texts in UTF-8; their number differs from record to record: the captions of an image. `Batch::text_lists` returns
    /// them.
    Texts {
        /// The most bytes of all texts of one record. The memory budget counts this many for each row of a batch.
        most: usize,
    },
    /// The objects that are marked in the record's image; their number differs from record to record.
    /// `Batch::instances` returns them.
    Instances {
        /// The most boxes in one record.
        most: usize,
        /// Whether they have masks.
        masks: bool,
        /// The number of key points of each object; 0: none. [`Schema::names`] has their names under `keypoints`.
        keypoints: usize,
    },
}

impl FieldKind {
    /// Bytes of an item of a list; `None` for another kind, and if items have no bytes.
    #[doc(hidden)]
    #[must_use]
    pub fn item_bytes(&self) -> Option<usize> {
        let Self::List { dtype, item, .. } = self else { return None };
        dtype.len_bytes(item).filter(|bytes| *bytes > 0)
    }

    /// The kind of each image of [`Images`](Self::Images); `None` for another kind.
    #[doc(hidden)]
    #[must_use]
    pub const fn each_image(&self) -> Option<Self> {
        match self {
            Self::Images { channels, dtype, .. } => {
                Some(Self::Image { channels: *channels, size: None, dtype: *dtype })
            }
            _ => None,
        }
    }

    /// The kind in one word, for messages: `image`, `volume`, `label`, `array`, `bytes`, `text`, `list`, `images`,
    /// `texts`, `instances`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::Volume { .. } => "volume",
            Self::Label => "label",
            Self::Array { .. } => "array",
            Self::Bytes { .. } => "bytes",
            Self::Text { .. } => "text",
            Self::List { .. } => "list",
            Self::Images { .. } => "images",
            Self::Texts { .. } => "texts",
            Self::Instances { .. } => "instances",
        }
    }
}
