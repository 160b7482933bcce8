//! Selects records of a dataset by their content.
//!
//! ```text
//! "label=cat,dog" ─ parse ─▶ Filter ─ fields of the schema ─▶ Check ─ known(record), or read ─▶ passes? ─▶ list ─▶ Subset
//! ```
//!
//! All of it happens when the dataset is opened. A filtered dataset is then a list of record numbers; orders, ranks and
//! states treat it like any other dataset.

use std::{borrow::Cow, collections::HashSet, fmt, str::FromStr, sync::Arc};

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::{
    look::look,
    record::{Dataset, Sample, Value},
    schema::{FieldKind, Schema},
    subset::subset,
};

/// A condition on records, in one line: a field, an operator, and a value.
///
/// | line | passes |
/// |---|---|
/// | `label=cat,dog` | labels that are one of these classes, by name or number; texts and numbers that are one of these |
/// | `label!=3` | all records that do not pass `label=3` |
/// | `caption~=^a (cat\|dog)` | texts and class names in which the pattern is found ([`regex_lite`]'s syntax) |
/// | `caption*=sunset` | texts and class names that contain this |
/// | `width>=256`, also `>`, `<=`, `<` | numbers, texts that are numbers, label indices, the number of boxes or items of a list |
///
/// In addition to the fields of the dataset, these names can be used:
///
/// - `object`: the name of the object that holds the record
/// - `height`, `width` of the image, if the dataset [gives them](Dataset::image_size) before reading
/// - `json.width`, `json.license.id`: values in a field of JSON
///
/// A value that the text or JSON does not contain passes only `!=`. Texts are read as UTF-8.
///
/// As text and in configuration files, a filter is this line.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::Filter;
/// let filter: Filter = "label=1,3".parse()?;
/// let dataset = infeed::open("synthetic://?count=50&classes=5").filter(filter).await?;
/// assert_eq!(dataset.len(), 20);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Filter {
    field: String,
    test: Test,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Test {
    OneOf,
    NoneOf,
    Matches,
    Contains,
    AtLeast,
    AtMost,
    Above,
    Below,
}

/// The longer ones first, because `>=` also begins with `>`.
const TESTS: [(&str, Test); 8] = [
    ("!=", Test::NoneOf),
    ("~=", Test::Matches),
    ("*=", Test::Contains),
    (">=", Test::AtLeast),
    ("<=", Test::AtMost),
    ("=", Test::OneOf),
    (">", Test::Above),
    ("<", Test::Below),
];

impl Test {
    const fn is_of_numbers(self) -> bool {
        matches!(self, Self::AtLeast | Self::AtMost | Self::Above | Self::Below)
    }

    fn word(self) -> &'static str {
        TESTS.iter().find(|(_, test)| *test == self).map_or("", |(word, _)| word)
    }
}

impl Filter {
    /// The name of the field that it tests.
    #[must_use]
    pub fn field(&self) -> &str {
        &self.field
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        self.value.split(',').map(str::trim)
    }

    fn refuse(&self, why: impl fmt::Display) -> Error {
        Error::config(format!("the filter `{self}` {why}"))
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::config(format!("the filter `{text}` {why}"))
                .with_hint("write it like label=cat,dog, label!=3, caption~=PATTERN, caption*=text or width>=256")
        };
        let at = text.find(['=', '!', '~', '*', '>', '<']).ok_or_else(|| refuse("has no operator"))?;
        let (field, rest) = text.split_at(at);
        let found = TESTS.iter().find_map(|(word, test)| Some((*test, rest.strip_prefix(word)?)));
        let (test, value) = found.ok_or_else(|| refuse("has no operator"))?;
        let (field, value) = (field.trim(), if test == Test::Matches { value } else { value.trim() });
        if field.is_empty() {
            return Err(refuse("names no field"));
        }
        let filter = Self { field: field.to_owned(), test, value: value.to_owned() };
        match test {
            Test::Matches => {
                Regex::new(value).map_err(|e| filter.refuse("has a pattern that can't be parsed").with_source(e))?;
            }
            _ if test.is_of_numbers() && value.parse::<f64>().is_err() => {
                return Err(refuse("does not compare with a number"));
            }
            _ if value.is_empty() => return Err(refuse("has no value")),
            _ => {}
        }
        Ok(filter)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.field, self.test.word(), self.value)
    }
}

impl TryFrom<String> for Filter {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Filter> for String {
    fn from(filter: Filter) -> Self {
        filter.to_string()
    }
}

/// The records of `dataset` that pass all `filters`, in its order.
///
/// Costs nothing for values that are [known](Dataset::known) without reading, such as labels from folders and
/// annotations. Otherwise each record is read whole, 64 at a time, on this task; [`Open::filter`](super::Open::filter)
/// reads only the fields of shards that it needs. Blocks if [`Dataset::read`] does. Memory: 8 bytes for each record
/// that passes.
///
/// For a [mixture](crate::sampler::Mixture), filter each part first and then put them together: a filtered whole has no
/// parts.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::filter;
///
/// let dataset = infeed::open("synthetic://?count=50&classes=5").await?;
/// let few = filter(dataset, ["label!=0".parse()?, "label<3".parse()?]).await?;
/// assert_eq!(few.len(), 20);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// `Config` for a field or a class that is not there, or for a field that does not support the operator; `Empty` if no
/// record passes; the error of reading a record, because it is then unknown whether the record passes.
pub async fn filter(dataset: Arc<dyn Dataset>, filters: impl IntoIterator<Item = Filter>) -> Result<Arc<dyn Dataset>> {
    let filters: Vec<Filter> = filters.into_iter().collect();
    let passing = passing(&*dataset, &filters).await?;
    let words = filters.iter().map(|filter| format!("`{filter}`")).collect::<Vec<_>>().join(" and ");
    some(only(dataset, passing)?, &words)
}

/// The records of `dataset` for which `passes` returns true, in its order. `passes` gets the record's number and its
/// content. All records are read, as by [`filter`].
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::dataset::{Value, filter_with};
/// # let dataset = infeed::open("synthetic://?count=50&height=8&width=8&classes=5").await?;
/// let bright = filter_with(dataset, |_record, sample| match &sample.values[0] {
///     Value::Pixels { data, .. } => Ok(data[0] > 127),
///     _ => Ok(false),
/// });
/// assert!(bright.await?.len() < 50);
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// Those of `passes`, and those of [`filter`].
pub async fn filter_with(
    dataset: Arc<dyn Dataset>,
    mut passes: impl FnMut(u64, &Sample) -> Result<bool> + Send,
) -> Result<Arc<dyn Dataset>> {
    let all: Vec<u64> = (0..dataset.len()).collect();
    let mut passing = Vec::new();
    look(&*dataset, &all, |record, sample| {
        if passes(record, sample)? {
            passing.push(record);
        }
        Ok(())
    })
    .await?;
    some(only(dataset, passing)?, "the function")
}

/// A dataset of these records; the dataset itself if they are all.
pub(crate) fn only(dataset: Arc<dyn Dataset>, records: Vec<u64>) -> Result<Arc<dyn Dataset>> {
    if records.len() as u64 == dataset.len() { Ok(dataset) } else { subset(dataset, records) }
}

/// An error if the dataset has no records.
pub(crate) fn some(dataset: Arc<dyn Dataset>, what: &str) -> Result<Arc<dyn Dataset>> {
    match dataset.is_empty() {
        false => Ok(dataset),
        true => Err(Error::new(ErrorKind::Empty, format!("no record passes {what}"))
            .with_hint("look at the fields and first records with `infeed inspect`")),
    }
}

/// The columns of shards that `filters` need. Empty if the filters need no reading. `schema` may lack columns that the
/// shards have: if a name with dots is not a field there, it is either a field's whole name (`whole`), or the part
/// before the first dot is a field of JSON.
pub(crate) fn columns(schema: &Schema, filters: &[Filter], whole: bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for filter in filters {
        let is_field = |name: &str| schema.fields.iter().any(|field| field.name == name);
        let has_text = |name: &str| schema.fields.iter().any(|field| field.name == name && is_text(&field.kind));
        let name = match filter.field.split_once('.') {
            _ if is_field(&filter.field) => &filter.field,
            Some((json, _)) if has_text(json) || !whole => json,
            _ if ["object", "height", "width"].contains(&filter.field.as_str()) => continue,
            _ => &filter.field,
        };
        if !names.iter().any(|other| other == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The numbers of the records that pass.
pub(crate) async fn passing(dataset: &dyn Dataset, filters: &[Filter]) -> Result<Vec<u64>> {
    let checks = filters.iter().map(|filter| Check::new(filter, dataset)).collect::<Result<Vec<_>>>()?;
    let (mut passing, mut unknown) = (Vec::new(), Vec::new());
    for record in 0..dataset.len() {
        let mut list = Some(&mut passing);
        for check in &checks {
            match check.without_reading(dataset, record) {
                Some(true) => {}
                None => list = Some(&mut unknown),
                // One filter that fails decides, even if others need reading.
                Some(false) => {
                    list = None;
                    break;
                }
            }
        }
        if let Some(list) = list {
            list.push(record);
        }
    }
    let known = passing.len();
    look(dataset, &unknown, |record, sample| {
        let passes = checks.iter().all(|check| match check.column.at() {
            Some(at) => sample.values.get(at).is_some_and(|value| check.passes(value)),
            None => check.without_reading(dataset, record) == Some(true),
        });
        if passes {
            passing.push(record);
        }
        Ok(())
    })
    .await?;
    if known > 0 && known < passing.len() {
        passing.sort_unstable();
    }
    Ok(passing)
}

/// Whether values of this kind may be text.
const fn is_text(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Bytes { .. } | FieldKind::Text { .. })
}

/// A filter, matched to the fields of a dataset.
struct Check {
    column: Column,
    /// The name to call `Dataset::known` with.
    name: String,
    asks: Asks,
}

enum Column {
    Field(usize),
    /// A number of this type.
    Number(usize, DType),
    /// The number of items of a list, each of this many bytes.
    Items(usize, usize),
    /// A value in the field's JSON.
    Json(usize, Vec<String>),
    Object,
    /// Height if true, otherwise width.
    Side {
        height: bool,
    },
}

impl Column {
    fn at(&self) -> Option<usize> {
        match self {
            Self::Field(at) | Self::Number(at, _) | Self::Items(at, _) | Self::Json(at, _) => Some(*at),
            Self::Object | Self::Side { .. } => None,
        }
    }
}

/// The condition on a label, a number or a text.
enum Asks {
    /// The labels that pass; with `false`, the labels that do not.
    Labels(HashSet<i64>, bool),
    Texts(HashSet<String>, bool),
    Numbers(Vec<f64>, bool),
    Matches(Regex),
    Contains(String),
    Compares(Test, f64),
}

/// The value that a record has.
enum Fact<'a> {
    Text(Cow<'a, str>),
    Number(f64),
    Label(i64),
    Nothing,
}

impl Check {
    fn new(filter: &Filter, dataset: &dyn Dataset) -> Result<Self> {
        let schema = dataset.schema();
        let field = |name: &str| schema.fields.iter().position(|field| field.name == name);
        let name = filter.field.as_str();
        let in_json = name.split_once('.').and_then(|(json, path)| {
            let at = field(json)?;
            is_text(&schema.fields[at].kind)
                .then(|| (json, Column::Json(at, path.split('.').map(str::to_owned).collect())))
        });
        let (name, column) = match (field(name), in_json, name) {
            (Some(at), ..) => match &schema.fields[at].kind {
                FieldKind::Array { dtype, .. } => (name, Column::Number(at, *dtype)),
                kind @ FieldKind::List { .. } => (name, Column::Items(at, kind.item_bytes().unwrap_or(0))),
                _ => (name, Column::Field(at)),
            },
            (None, Some(json), _) => json,
            (None, None, "object") => (name, Column::Object),
            (None, None, "height" | "width") => {
                if let Some(record) = (0..dataset.len()).find(|record| dataset.image_size(*record).is_none()) {
                    let why = format!("asks for a size that is not known before record {record} is read");
                    return Err(filter
                        .refuse(why)
                        .with_hint("filter by a field; only annotations give sizes before reading"));
                }
                (name, Column::Side { height: name == "height" })
            }
            _ => {
                let names: Vec<_> = schema.fields.iter().map(|field| field.name.as_str()).collect();
                let hint = format!("there are {}, object, and values in JSON as json.name", names.join(", "));
                return Err(filter.refuse("asks for a field that is not there").with_hint(hint));
            }
        };
        let asks = Asks::new(filter, &column, schema)?;
        Ok(Self { column, name: name.to_owned(), asks })
    }

    /// `None`: the record has to be read.
    fn without_reading(&self, dataset: &dyn Dataset, record: u64) -> Option<bool> {
        match &self.column {
            Column::Object => Some(self.asks.passes(&Fact::Text(dataset.object(record).into()))),
            Column::Side { height } => {
                let [tall, wide] = dataset.image_size(record)?;
                Some(self.asks.passes(&Fact::Number(if *height { tall } else { wide }.into())))
            }
            Column::Field(_) | Column::Number(..) | Column::Items(..) | Column::Json(..) => {
                dataset.known(record, &self.name).map(|value| self.passes(&value))
            }
        }
    }

    fn passes(&self, value: &Value) -> bool {
        let fact = match (value, &self.column) {
            (Value::Label(label), _) => Fact::Label(*label),
            (Value::Bytes(text), Column::Json(_, path)) => in_json(text, path),
            (Value::Bytes(text), _) => Fact::Text(String::from_utf8_lossy(text)),
            (Value::Array(bytes), Column::Number(_, dtype)) => {
                number(bytes, *dtype).map_or(Fact::Nothing, Fact::Number)
            }
            (Value::List(items), Column::Items(_, each)) => {
                items.len().checked_div(*each).map_or(Fact::Nothing, |items| Fact::Number(items as f64))
            }
            (Value::Instances(all), _) => Fact::Number(all.len() as f64),
            (Value::Images(images), _) => Fact::Number(images.len() as f64),
            (Value::Texts(texts), _) => Fact::Number(texts.len() as f64),
            _ => Fact::Nothing,
        };
        self.asks.passes(&fact)
    }
}

impl Asks {
    fn new(filter: &Filter, column: &Column, schema: &Schema) -> Result<Self> {
        let Filter { test, value, .. } = filter;
        let field = column.at().map(|at| &schema.fields[at]);
        // Parsing checked that it is a number.
        let compares = || Self::Compares(*test, value.parse().unwrap_or(f64::NAN));
        let want = *test == Test::OneOf;
        let numbers = || match test {
            Test::OneOf | Test::NoneOf => {
                let numbers = filter.values().map(str::parse).collect::<Result<Vec<f64>, _>>();
                numbers
                    .map(|numbers| Self::Numbers(numbers, want))
                    .map_err(|_| filter.refuse("compares numbers with texts"))
            }
            Test::Matches | Test::Contains => {
                Err(filter.refuse("looks for text in numbers").with_hint("compare numbers, by =, !=, >=, <=, > and <"))
            }
            _ => Ok(compares()),
        };
        match (column, field.map(|field| &field.kind)) {
            (Column::Json(..) | Column::Object, _) | (_, Some(FieldKind::Bytes { .. } | FieldKind::Text { .. })) => {
                Ok(match test {
                    Test::OneOf | Test::NoneOf => Self::Texts(filter.values().map(str::to_owned).collect(), want),
                    Test::Matches => Self::Matches(pattern(filter)?),
                    Test::Contains => Self::Contains(value.clone()),
                    _ => compares(),
                })
            }
            (_, Some(FieldKind::Label)) => {
                let classes =
                    if filter.field == "label" { schema.classes.as_deref() } else { schema.names_of(&filter.field) };
                Self::of_labels(filter, classes, compares)
            }
            (_, Some(FieldKind::Array { shape, .. })) if shape.iter().product::<usize>() != 1 => Err(filter
                .refuse(format!("asks for one number, and there are {shape:?} in each record"))
                .with_hint("use filter_with, which looks at all of a record")),
            (Column::Side { .. }, _)
            | (
                _,
                Some(
                    FieldKind::Array { .. }
                    | FieldKind::List { .. }
                    | FieldKind::Images { .. }
                    | FieldKind::Texts { .. }
                    | FieldKind::Instances { .. },
                ),
            ) => numbers(),
            (_, kind) => {
                let kind = kind.map_or("nothing", FieldKind::name);
                let why = format!("asks for a label, text or number, and the field is {kind}");
                Err(filter.refuse(why).with_hint("use filter_with, which looks at all of a record"))
            }
        }
    }

    fn of_labels(filter: &Filter, classes: Option<&[String]>, compares: impl FnOnce() -> Self) -> Result<Self> {
        let named = |passes: &dyn Fn(&str) -> bool| {
            let classes = classes.ok_or_else(|| {
                filter
                    .refuse("looks for text, and the classes have no names")
                    .with_hint("name their numbers: label=0,3")
            })?;
            Ok(Self::Labels(
                (0..).zip(classes).filter(|(_, name)| passes(name)).map(|(label, _)| label).collect(),
                true,
            ))
        };
        match filter.test {
            Test::OneOf | Test::NoneOf => {
                let label = |value: &str| {
                    let of_name = classes.and_then(|classes| classes.iter().position(|class| class == value));
                    let known = |label: &i64| {
                        classes.is_none_or(|classes| usize::try_from(*label).is_ok_and(|at| at < classes.len()))
                    };
                    let of_number = || value.parse::<i64>().ok().filter(known);
                    of_name.map(|at| at as i64).or_else(of_number).ok_or_else(|| {
                        let error = filter.refuse(format!("names `{value}`, which is not a class"));
                        match classes {
                            Some(classes) => {
                                let more = if classes.len() > 8 { ", …" } else { "" };
                                let some: Vec<_> = classes.iter().take(8).map(String::as_str).collect();
                                error.with_hint(format!("there are {}: {}{more}", classes.len(), some.join(", ")))
                            }
                            None => error.with_hint("the classes have no names: use their numbers"),
                        }
                    })
                };
                Ok(Self::Labels(filter.values().map(label).collect::<Result<_>>()?, filter.test == Test::OneOf))
            }
            Test::Matches => {
                let pattern = pattern(filter)?;
                named(&|name| pattern.is_match(name))
            }
            Test::Contains => named(&|name| name.contains(&filter.value)),
            _ => Ok(compares()),
        }
    }

    fn passes(&self, fact: &Fact<'_>) -> bool {
        match (self, fact) {
            (Self::Labels(labels, want), Fact::Label(label)) => labels.contains(label) == *want,
            (Self::Texts(texts, want), Fact::Text(text)) => texts.contains(&**text) == *want,
            // From JSON, where 3 is a number.
            (Self::Texts(texts, want), Fact::Number(number)) => {
                texts.iter().any(|text| text.parse() == Ok(*number)) == *want
            }
            (Self::Numbers(numbers, want), Fact::Number(number)) => numbers.contains(number) == *want,
            (Self::Matches(pattern), Fact::Text(text)) => pattern.is_match(text),
            (Self::Matches(pattern), Fact::Number(number)) => pattern.is_match(&number.to_string()),
            (Self::Contains(part), Fact::Text(text)) => text.contains(part),
            (Self::Contains(part), Fact::Number(number)) => number.to_string().contains(part),
            (Self::Compares(test, than), fact) => {
                let number = match fact {
                    Fact::Number(number) => *number,
                    Fact::Label(label) => *label as f64,
                    // A text that is not a number passes no comparison.
                    Fact::Text(text) => text.trim().parse().unwrap_or(f64::NAN),
                    Fact::Nothing => f64::NAN,
                };
                match test {
                    Test::AtLeast => number >= *than,
                    Test::AtMost => number <= *than,
                    Test::Above => number > *than,
                    _ => number < *than,
                }
            }
            (Self::Labels(_, want) | Self::Texts(_, want) | Self::Numbers(_, want), _) => !want,
            (Self::Matches(_) | Self::Contains(_), Fact::Label(_) | Fact::Nothing) => false,
        }
    }
}

fn pattern(filter: &Filter) -> Result<Regex> {
    Regex::new(&filter.value).map_err(|e| filter.refuse("has a pattern that can't be parsed").with_source(e))
}

/// The value at this path in JSON; `Nothing` if the text is not JSON.
fn in_json<'a>(text: &[u8], path: &[String]) -> Fact<'a> {
    let Ok(whole) = serde_json::from_slice::<serde_json::Value>(text) else { return Fact::Nothing };
    match path.iter().try_fold(&whole, |value, name| value.get(name)) {
        Some(serde_json::Value::String(text)) => Fact::Text(text.clone().into()),
        Some(serde_json::Value::Number(number)) => number.as_f64().map_or(Fact::Nothing, Fact::Number),
        Some(serde_json::Value::Bool(yes)) => Fact::Text(yes.to_string().into()),
        _ => Fact::Nothing,
    }
}

/// One number, in the machine's order, as the nearest f64.
fn number(bytes: &[u8], dtype: DType) -> Option<f64> {
    macro_rules! of {
        ($type:ty) => {
            <$type>::from_ne_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match dtype {
        DType::U8 | DType::Bool => of!(u8).into(),
        DType::I8 => of!(i8).into(),
        DType::U16 => of!(u16).into(),
        DType::I16 => of!(i16).into(),
        DType::U32 => of!(u32).into(),
        DType::I32 => of!(i32).into(),
        DType::U64 => of!(u64) as f64,
        DType::I64 => of!(i64) as f64,
        DType::F16 => of!(half::f16).into(),
        DType::Bf16 => of!(half::bf16).into(),
        DType::F32 => of!(f32).into(),
        DType::F64 => of!(f64),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::executor::block_on;

    use super::*;
    use crate::{MemoryDataset, SyntheticDataset, labels};

    fn animals() -> Arc<dyn Dataset> {
        let texts = |texts: [&'static str; 4]| texts.map(|text| Bytes::from_static(text.as_bytes())).to_vec();
        let widths: Vec<u8> = [100i32, 256, 300, 50].iter().flat_map(|width| width.to_ne_bytes()).collect();
        let builder = MemoryDataset::builder()
            .labels(vec![0, 1, 2, 1])
            .classes(["cat".to_owned(), "dog".to_owned(), "wild cat".to_owned()])
            .bytes("caption", texts(["a cat", "a dog, asleep", "sunset", ""]))
            .bytes("json", texts([r#"{"w":3,"by":{"id":"x"}}"#, r#"{"w":9.5}"#, "{", r#"{"ok":true}"#]))
            .array("width", DType::I32, vec![], widths);
        Arc::new(builder.build().unwrap())
    }

    fn left(dataset: &Arc<dyn Dataset>, filters: &[&str]) -> Result<Vec<u64>> {
        let filters = filters.iter().map(|filter| filter.parse()).collect::<Result<Vec<Filter>>>()?;
        block_on(passing(&**dataset, &filters))
    }

    #[test]
    fn records_pass_by_what_is_in_them() {
        let dataset = animals();
        for (filters, want) in [
            (&["label=cat"][..], &[0][..]),
            (&["label=cat, 1"], &[0, 1, 3]),
            (&["label!=dog"], &[0, 2]),
            (&["label*=cat"], &[0, 2]),
            (&["label~=^cat$"], &[0]),
            (&["label>=1"], &[1, 2, 3]),
            (&["caption*=a "], &[0, 1]),
            (&["caption~=^a (cat|dog)"], &[0, 1]),
            (&["caption=sunset"], &[2]),
            (&["caption!=sunset"], &[0, 1, 3]),
            (&["width>=256"], &[1, 2]),
            (&["width>256"], &[2]),
            (&["width<=100"], &[0, 3]),
            (&["width=50,300"], &[2, 3]),
            (&["width!=50"], &[0, 1, 2]),
            (&["json.w>3"], &[1]),
            (&["json.w=3"], &[0]),
            (&["json.by.id=x"], &[0]),
            (&["json.w!=3"], &[1, 2, 3]),
            (&["json.ok=true"], &[3]),
            (&["object=memory"], &[0, 1, 2, 3]),
            (&["label=dog", "width<100"], &[3]),
            (&["object*=disk"], &[]),
        ] {
            assert_eq!(left(&dataset, filters).unwrap(), want, "{filters:?}");
        }
    }

    #[test]
    fn a_filtered_dataset_is_numbered_anew_and_an_empty_one_is_an_error() {
        let dataset = animals();
        let dogs = block_on(filter(Arc::clone(&dataset), ["label=dog".parse().unwrap()])).unwrap();
        assert_eq!(block_on(labels(&*dogs)).unwrap(), [1, 1]);
        assert_ne!(dogs.fingerprint(), dataset.fingerprint());
        let all = block_on(filter(Arc::clone(&dataset), ["label>=0".parse().unwrap()])).unwrap();
        assert_eq!(all.fingerprint(), dataset.fingerprint());
        let error = block_on(filter(dataset, ["caption=x".parse().unwrap(), "width>1".parse().unwrap()])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Empty);
        assert!(error.to_string().contains("no record passes `caption=x` and `width>1`"), "{error}");
    }

    #[test]
    fn a_function_sees_all_of_a_record() {
        let odd = filter_with(animals(), |record, sample| {
            assert_eq!(sample.values.len(), 4);
            Ok(record % 2 == 1)
        });
        assert_eq!(block_on(labels(&*block_on(odd).unwrap())).unwrap(), [1, 1]);
        let error = block_on(filter_with(animals(), |_, _| Err(Error::config("no")))).unwrap_err();
        assert!(error.to_string().contains("no"));
    }

    #[test]
    fn filters_are_read_as_they_are_written() {
        for text in [
            "label=cat,dog",
            "label!=3",
            "caption~=^a (b|c), =d",
            "caption*=x=y",
            "width>=256",
            "w<-1.5",
            "w>0",
            "w<=9",
        ] {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(filter.to_string(), text);
            let json = serde_json::to_string(&filter).unwrap();
            assert_eq!(serde_json::from_str::<Filter>(&json).unwrap(), filter);
        }
        for (text, want) in [
            ("label", "has no operator"),
            ("=cat", "names no field"),
            ("label=", "has no value"),
            ("label~cat", "has no operator"),
            ("caption~=(", "a pattern that can't be parsed"),
            ("width>=wide", "does not compare with a number"),
        ] {
            let error = text.parse::<Filter>().unwrap_err().to_string();
            assert!(error.contains(want) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn what_a_dataset_can_not_answer_is_refused_by_name() {
        let dataset = animals();
        let pictures: Arc<dyn Dataset> = Arc::new(SyntheticDataset::new(3, 4, 4, 2).unwrap());
        let boxes =
            MemoryDataset::builder().labels(vec![5]).array("box", DType::F32, vec![4], vec![0; 16]).build().unwrap();
        let boxes: Arc<dyn Dataset> = Arc::new(boxes);
        for (dataset, text, want) in [
            (&dataset, "label=eel", "names `eel`, which is not a class"),
            (&dataset, "label=3", "there are 3: cat, dog, wild cat"),
            (&dataset, "captoin=x", "there are label, caption, json, width, object"),
            (&dataset, "width~=2", "looks for text in numbers"),
            (&dataset, "width=wide", "compares numbers with texts"),
            (&dataset, "height>3", "not known before record 0 is read"),
            (&pictures, "image=x", "the field is image"),
            (&boxes, "box>1", "there are [4] in each record"),
            (&boxes, "label*=x", "the classes have no names"),
        ] {
            let error = left(dataset, &[text]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(want), "{error}");
        }
        assert_eq!(left(&boxes, &["label=5"]).unwrap(), [0]);
    }
}
