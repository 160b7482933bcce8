//! `metadata.csv`, `metadata.jsonl` and `metadata.parquet` next to images, as in Hugging Face's ImageFolder: a column
//! `file_name`, and other columns with values for each file.
//!
//! In addition to `file_name`, or instead of it, `image_file_name` may name the image and `mask_file_name` its mask.
//!
//! A column `label` (or one with a similar name) is the label. In other columns, integers and fractions are arrays of
//! one number. Lists of one kind in JSON lines and Parquet are lists. Everything else is text: objects as JSON.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use serde_json::Value as Json;

use super::super::{
    declared::integer,
    json_kinds::{KeyKind, kind_of_lists},
    label_table::{LABEL, Names, Table, listed, number},
    look::look,
    names::looks_like_mask,
    record::{Dataset, Value},
    schema::{Field, FieldKind},
};

/// Names of the file, in the order in which they are tried.
pub(super) const NAMES: [&str; 3] = ["metadata.csv", "metadata.jsonl", PARQUET];
/// The table that the format `parquet` reads.
pub(super) const PARQUET: &str = "metadata.parquet";
const FILE: &str = "file_name";

/// `mask` of `mask_file_name`.
fn field_of(column: &str) -> Option<&str> {
    column.strip_suffix(FILE)?.strip_suffix('_').filter(|field| !field.is_empty())
}

/// The field of the images that a column names, if it names files: `image` of `file_name`, `right` of `right_file_name`,
/// `images` of `file_names`, `frames` of `frames_file_names`.
pub(super) fn images_of(column: &str) -> Option<&str> {
    let (rest, one) = match column.strip_suffix('s').and_then(|one| one.strip_suffix(FILE)) {
        Some(rest) => (rest, "images"),
        None => (column.strip_suffix(FILE)?, "image"),
    };
    if rest.is_empty() { Some(one) } else { rest.strip_suffix('_').filter(|field| !field.is_empty()) }
}

/// Which columns of a table name files.
enum FileColumns<'a> {
    None,
    /// This one names the image, and perhaps another one its mask.
    Image(&'a str),
    /// Records have several images: the columns name other images too, or lists of images.
    Several,
}

impl<'a> FileColumns<'a> {
    fn of(columns: impl Iterator<Item = &'a str>) -> Self {
        let files: Vec<&str> = columns.filter(|column| images_of(column).is_some()).collect();
        let is_mask = |column: &&&str| field_of(column).is_some_and(looks_like_mask);
        let (masks, images): (Vec<&str>, Vec<&str>) = files.iter().partition(is_mask);
        match images[..] {
            _ if files.iter().any(|column| column.ends_with('s')) || images.len() > 1 || masks.len() > 1 => {
                Self::Several
            }
            [] => Self::None,
            [image, ..] => Self::Image(image),
        }
    }
}

/// What a table next to images describes.
#[derive(Debug)]
pub(super) enum Described {
    /// Images, each perhaps with a mask.
    Images(Metadata),
    /// Records with several images.
    Several,
}

/// The error of a table whose records have several images.
pub(super) fn several(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("several images of a record {what}"))
        .with_hint("write the table as metadata.jsonl or metadata.parquet, one in the folder that is opened or in that of the split")
}

/// The type that a cell is read as; a column has the widest type of its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Meant {
    /// Without a value.
    Nothing,
    Integer,
    Fraction,
    /// A list in JSON.
    List,
    Text,
}

/// Files and their cells.
#[derive(Debug, Default)]
pub(super) struct Metadata {
    columns: Vec<String>,
    meant: Vec<Meant>,
    /// For each file, one cell per column.
    rows: Vec<(String, Vec<String>)>,
    /// Labels in the tables of other splits.
    elsewhere: BTreeSet<String>,
}

/// A column, with a value for each record.
#[derive(Debug)]
pub(super) struct Column {
    name: String,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Integers(Vec<i64>),
    Fractions(Vec<f64>),
    /// All texts, and the end of each.
    Texts(Bytes, Vec<usize>),
    /// The same of lists in JSON, and what they become.
    Lists(KeyKind, Bytes, Vec<usize>),
}

/// Reads the file; `None` for a table without a column of files.
pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Option<Described>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if name.ends_with(".csv") { parse_csv(bytes) } else { parse_lines(bytes) }
}

fn parse_csv(bytes: &[u8]) -> Result<Option<Described>> {
    let mut reader = csv::ReaderBuilder::new().from_reader(bytes);
    let broken = |e: csv::Error| Error::corrupt("the file is not CSV").with_source(e);
    let header = reader.headers().map_err(broken)?.clone();
    let column = match FileColumns::of(header.iter().map(str::trim)) {
        FileColumns::None => return Ok(None),
        FileColumns::Image(column) => column,
        FileColumns::Several => return Err(several("are not read from CSV")),
    };
    let file = header.iter().position(|name| name.trim() == column).unwrap_or_default();
    let others = |row: &csv::StringRecord| -> Vec<String> {
        row.iter().enumerate().filter(|(at, _)| *at != file).map(|(_, cell)| cell.to_owned()).collect()
    };
    let columns: Vec<String> = others(&header).iter().map(|name| name.trim().to_owned()).collect();
    let mut found = Metadata { meant: vec![Meant::Nothing; columns.len()], columns, ..Metadata::default() };
    for row in reader.records() {
        let row = row.map_err(broken)?;
        let cells = others(&row);
        for (meant, cell) in found.meant.iter_mut().zip(&cells) {
            *meant = (*meant).max(meant_of(cell));
        }
        found.rows.push((row[file].to_owned(), cells));
    }
    Ok(Some(Described::Images(found)))
}

/// A JSON object in each line.
fn parse_lines(bytes: &[u8]) -> Result<Option<Described>> {
    let mut found = Metadata::default();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut column: Option<String> = None;
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let wrong = |what: &str| Error::corrupt(format!("line {} {what}", i + 1));
        let json = serde_json::from_slice(line).map_err(|e| wrong("is not JSON").with_source(e))?;
        let Json::Object(map) = json else { return Err(wrong("is not a JSON object")) };
        if column.is_none() {
            match FileColumns::of(map.keys().map(String::as_str)) {
                FileColumns::None => {}
                FileColumns::Image(image) => column = Some(image.to_owned()),
                FileColumns::Several => return Ok(Some(Described::Several)),
            }
        }
        let column = column.as_deref().unwrap_or(FILE);
        let Some(Json::String(file)) = map.get(column) else {
            return if found.rows.is_empty() { Ok(None) } else { Err(wrong(&format!("has no `{column}`"))) };
        };
        let mut cells = vec![None; found.columns.len()];
        for (name, value) in map.iter().filter(|(name, _)| *name != column) {
            let at = *places.entry(name.clone()).or_insert_with(|| {
                found.columns.push(name.clone());
                found.meant.push(Meant::Nothing);
                cells.push(None);
                found.columns.len() - 1
            });
            let (text, meant) = match value {
                Json::String(text) => (text.clone(), Meant::Text),
                Json::Null => (String::new(), Meant::Nothing),
                Json::Array(_) => (value.to_string(), Meant::List),
                Json::Number(number) if number.as_i64().is_some() => (number.to_string(), Meant::Integer),
                Json::Number(number) if number.is_f64() => (number.to_string(), Meant::Fraction),
                other => (other.to_string(), Meant::Text),
            };
            found.meant[at] = found.meant[at].max(meant);
            cells[at] = Some(text);
        }
        found.rows.push((file.clone(), cells.into_iter().map(Option::unwrap_or_default).collect()));
    }
    let columns = found.columns.len();
    found.rows.iter_mut().for_each(|(_, cells)| cells.resize(columns, String::new()));
    Ok((!found.rows.is_empty()).then_some(Described::Images(found)))
}

/// The rows of a table that another format has opened; `None` for one without a column of files.
pub(super) async fn of_dataset(table: &dyn Dataset) -> Result<Option<Described>> {
    let fields = &table.schema().fields;
    let file = match FileColumns::of(fields.iter().map(|field| field.name.as_str())) {
        FileColumns::None => return Ok(None),
        FileColumns::Image(file) => file,
        FileColumns::Several => return Ok(Some(Described::Several)),
    };
    let (mut columns, mut meant) = (Vec::new(), Vec::new());
    for field in fields.iter().filter(|field| field.name != file) {
        columns.push(field.name.clone());
        meant.push(Meant::Nothing);
    }
    let mut rows = Vec::new();
    let all: Vec<u64> = (0..table.len()).collect();
    look(table, &all, |_, sample| {
        let (mut name, mut cells) = (String::new(), Vec::with_capacity(columns.len()));
        for (field, value) in fields.iter().zip(&sample.values) {
            let (text, own) = cell_of(&field.kind, value).ok_or_else(|| {
                Error::new(ErrorKind::Unsupported, format!("the column `{}` holds no texts or numbers", field.name))
                    .with_hint("remove it from the table")
            })?;
            if field.name == file {
                name = text;
            } else {
                let meant = &mut meant[cells.len()];
                *meant = (*meant).max(own);
                cells.push(text);
            }
        }
        rows.push((name, cells));
        Ok(())
    })
    .await?;
    Ok(Some(Described::Images(Metadata { columns, meant, rows, ..Metadata::default() })))
}

/// A value as `metadata.jsonl` would hold it: lists are JSON.
fn cell_of(kind: &FieldKind, value: &Value) -> Option<(String, Meant)> {
    let text = |numbers: &[Json]| Json::from(numbers).to_string();
    Some(match (kind, value) {
        (_, Value::Label(label)) => (label.to_string(), Meant::Integer),
        (FieldKind::Array { dtype, .. }, Value::Array(bytes)) => match &numbers(*dtype, bytes)?[..] {
            [Json::Bool(truth)] => (truth.to_string(), Meant::Text),
            [one] if one.is_i64() || one.is_u64() => (one.to_string(), Meant::Integer),
            [one] if one.is_f64() => (one.to_string(), Meant::Fraction),
            all => (text(all), Meant::List),
        },
        (FieldKind::List { dtype, item, .. }, Value::List(bytes)) => {
            let all = numbers(*dtype, bytes)?;
            let all = match item[..] {
                [each] if each > 0 => all.chunks(each).map(Json::from).collect(),
                _ => all,
            };
            (text(&all), Meant::List)
        }
        (_, Value::Bytes(bytes)) => (str::from_utf8(bytes).ok()?.to_owned(), Meant::Text),
        (_, Value::Texts(texts)) => {
            let all = texts.iter().map(|one| str::from_utf8(one).ok().map(Json::from)).collect::<Option<Vec<_>>>()?;
            (text(&all), Meant::List)
        }
        _ => return None,
    })
}

/// Numbers in the machine's byte order; `None` for a type that JSON has no numbers for.
fn numbers(dtype: DType, bytes: &[u8]) -> Option<Vec<Json>> {
    let number = |bytes: &[u8]| {
        Some(match dtype {
            DType::Bool => Json::from(*bytes.first()? != 0),
            DType::U64 => Json::from(u64::from_ne_bytes(*bytes.first_chunk()?)),
            DType::F32 => Json::from(f32::from_ne_bytes(*bytes.first_chunk()?)),
            DType::F64 => Json::from(f64::from_ne_bytes(*bytes.first_chunk()?)),
            _ => Json::from(i64::try_from(integer(dtype, bytes)?).ok()?),
        })
    };
    bytes.chunks(dtype.size()).map(number).collect()
}

/// The type of a CSV cell, with blanks around numbers. `007` is a text, because it would lose its zeros as a number.
fn meant_of(cell: &str) -> Meant {
    let cell = cell.trim_ascii();
    let written = |number: i64| number.to_string() == cell;
    if cell.parse().is_ok_and(written) {
        return Meant::Integer;
    }
    let begins = cell.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let fraction = begins && cell.contains(['.', 'e', 'E']) && cell.parse::<f64>().is_ok_and(f64::is_finite);
    if fraction { Meant::Fraction } else { Meant::Text }
}

impl Metadata {
    /// The table as one of this folder: names of files are relative to it.
    pub(super) fn within(mut self, folder: &str) -> Self {
        if !folder.is_empty() {
            self.each_file(|file| format!("{folder}/{}", file.trim_start_matches("./")));
        }
        self
    }

    /// The rows of files in this folder, with names relative to it.
    pub(super) fn below(mut self, folder: &str) -> Self {
        let rest = |file: &str| Some(file.trim_start_matches("./").strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        self.rows.retain(|(file, _)| rest(file).is_some());
        self.each_file(|file| rest(file).unwrap_or_else(|| file.to_owned()));
        self
    }

    /// Adds the rows of another table, which has to have the same columns in any order.
    pub(super) fn and(mut self, other: Self) -> Result<Self> {
        let place = |name: &String| other.columns.iter().position(|column| column == name);
        let places: Option<Vec<usize>> = self.columns.iter().map(place).collect();
        let Some(places) = places.filter(|_| self.columns.len() == other.columns.len()) else {
            let (own, others) = (self.columns.join(", "), other.columns.join(", "));
            return Err(Error::config(format!("tables of one dataset with the columns {own} and {others}"))
                .with_hint("give them the same columns, or open the folder of one"));
        };
        for (meant, place) in self.meant.iter_mut().zip(&places) {
            *meant = (*meant).max(other.meant[*place]);
        }
        let sorted =
            |(file, cells): (String, Vec<String>)| (file, places.iter().map(|place| cells[*place].clone()).collect());
        self.rows.extend(other.rows.into_iter().map(sorted));
        Ok(self)
    }

    /// Renames the files of all rows.
    fn each_file(&mut self, rename: impl Fn(&str) -> String) {
        let places: Vec<usize> = (0..self.columns.len()).filter(|at| field_of(&self.columns[*at]).is_some()).collect();
        for (file, cells) in &mut self.rows {
            *file = rename(file);
            for place in &places {
                cells[*place] = rename(&cells[*place]);
            }
        }
    }

    /// The files of all rows.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().map(|(file, _)| file.trim_start_matches("./"))
    }

    /// Whether a column names masks.
    pub(super) fn names_masks(&self) -> bool {
        self.columns.iter().any(|column| field_of(column).is_some())
    }

    /// Takes out the masks, if a column names them: each image with its mask.
    pub(super) fn take_masks(&mut self) -> Result<Option<Vec<(String, String)>>> {
        let files = |columns: &[String]| columns.iter().position(|column| field_of(column).is_some());
        let Some(at) = files(&self.columns) else { return Ok(None) };
        let column = self.columns.remove(at);
        self.meant.remove(at);
        let other = files(&self.columns).map(|other| self.columns[other].clone());
        let no_mask = field_of(&column).is_none_or(|field| !looks_like_mask(field)).then(|| column.clone());
        if let Some(column) = no_mask.or(other) {
            return Err(several(&format!("in some rows: `{column}` names files too")));
        }
        Ok(Some(self.rows.iter_mut().map(|(file, cells)| (file.clone(), cells.remove(at))).collect()))
    }

    fn label_column(&self) -> Option<usize> {
        LABEL.iter().find_map(|name| self.columns.iter().position(|column| column == name))
    }

    /// Adds the labels of the table of another split, so that a class has the same number in each.
    pub(super) fn know_labels_of(&mut self, other: &Self) {
        let labels = other.label_column().map(|at| other.rows.iter().map(move |(_, cells)| cells[at].clone()));
        self.elsewhere.extend(labels.into_iter().flatten());
    }

    /// Takes out the labels, if there are any: a column with a known name whose cells are all filled.
    pub(super) fn take_labels(&mut self) -> Option<Table> {
        let at = self.label_column()?;
        let is_index = |cell: &str| !cell.is_empty() && !cell.starts_with(['[', '{']);
        // Tables with gaps write integers as `3.0`.
        let fraction = |cell: &String| number(cell).is_none();
        if self.meant[at] == Meant::Fraction && self.rows.iter().any(|(_, cells)| fraction(&cells[at]))
            || !self.rows.iter().all(|(_, cells)| is_index(&cells[at]))
        {
            let column = &self.columns[at];
            tracing::warn!(
                column,
                "a column has the name of a label but its values are not classes, so it is not the label"
            );
            return None;
        }
        self.columns.remove(at);
        self.meant.remove(at);
        let elsewhere = std::mem::take(&mut self.elsewhere);
        let own = self.rows.iter_mut().map(|(file, cells)| (file.clone(), cells.remove(at)));
        Some(Table::new(own).with_labels_elsewhere(elsewhere))
    }

    /// The columns with a value for each image. With `only`, for the images that are listed; the second result then has
    /// their indices, unless all are listed. Columns with a name in `taken` are left out.
    pub(super) fn columns(
        self,
        names: &Names<'_>,
        only: bool,
        taken: &[&str],
    ) -> Result<(Vec<Column>, Option<Vec<usize>>)> {
        let written: Vec<&str> = self.rows.iter().map(|(file, _)| file.as_str()).collect();
        let found = names.rows_of(&written, |a, b| match self.rows[a].1 == self.rows[b].1 {
            true => Ok(()),
            false => Err("two different rows".to_owned()),
        })?;
        let kept = listed(&found, &written, names, only, "row")?;
        let rows: Vec<&Vec<String>> = found.rows.iter().flatten().map(|row| &self.rows[*row].1).collect();
        let column = |(at, (name, meant)): (usize, (&String, &Meant))| {
            if taken.contains(&name.as_str()) || name.is_empty() {
                tracing::warn!(column = name, "a column of metadata with the name of another field is left out");
                return None;
            }
            let cells = rows.iter().map(|cells| cells[at].as_str());
            Some(Column { name: name.clone(), values: Values::of(*meant, cells) })
        };
        Ok((self.columns.iter().zip(&self.meant).enumerate().filter_map(column).collect(), kept))
    }
}

impl Values {
    fn of<'a>(meant: Meant, cells: impl ExactSizeIterator<Item = &'a str> + Clone) -> Self {
        let parsed = match meant {
            Meant::Integer => {
                cells.clone().map(|cell| cell.trim_ascii().parse().ok()).collect::<Option<_>>().map(Self::Integers)
            }
            Meant::Fraction => {
                cells.clone().map(|cell| cell.trim_ascii().parse().ok()).collect::<Option<_>>().map(Self::Fractions)
            }
            Meant::List | Meant::Text | Meant::Nothing => None,
        };
        parsed.unwrap_or_else(|| {
            let lists = (meant == Meant::List).then(|| kind_of_lists(cells.clone())).flatten();
            let (mut text, mut ends) = (Vec::new(), Vec::with_capacity(cells.len()));
            for cell in cells {
                text.extend_from_slice(cell.as_bytes());
                ends.push(text.len());
            }
            match lists {
                Some(kind) => Self::Lists(kind, text.into(), ends),
                None => Self::Texts(text.into(), ends),
            }
        })
    }
}

/// The range of text `at`; `ends` are the ends of all texts.
fn place(ends: &[usize], at: usize) -> Range<usize> {
    at.checked_sub(1).map_or(0, |before| ends[before])..ends[at]
}

/// The length of the longest text.
fn longest(ends: &[usize]) -> usize {
    (0..ends.len()).map(|at| place(ends, at).len()).max().unwrap_or(0)
}

impl Column {
    pub(super) fn field(&self) -> Field {
        let number = |dtype| FieldKind::Array { dtype, shape: Vec::new() };
        let kind = match &self.values {
            Values::Integers(_) => number(DType::I64),
            Values::Fractions(_) => number(DType::F64),
            Values::Texts(_, ends) => FieldKind::Text { most: longest(ends) },
            Values::Lists(kind, _, ends) => return kind.field(&self.name, longest(ends)),
        };
        Field::new(self.name.clone(), kind)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The value of a record; it is one of those that the columns were made for.
    pub(super) fn value(&self, record: usize) -> Result<Value> {
        Ok(match &self.values {
            Values::Integers(values) => Value::Array(Bytes::copy_from_slice(&values[record].to_ne_bytes())),
            Values::Fractions(values) => Value::Array(Bytes::copy_from_slice(&values[record].to_ne_bytes())),
            Values::Texts(text, ends) => Value::Bytes(text.slice(place(ends, record))),
            Values::Lists(kind, text, ends) => {
                let json = str::from_utf8(&text[place(ends, record)]).ok().filter(|json| !json.is_empty());
                kind.value(json)?
            }
        })
    }

    /// Bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        match &self.values {
            Values::Integers(values) => values.len() * 8,
            Values::Fractions(values) => values.len() * 8,
            Values::Texts(text, ends) | Values::Lists(_, text, ends) => text.len() + ends.len() * 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str, text: &str) -> Metadata {
        match parse(name, text.as_bytes()).unwrap() {
            Some(Described::Images(found)) => found,
            other => panic!("{other:?}"),
        }
    }

    fn told(name: &str, text: &str) -> Vec<(String, FieldKind, String)> {
        let found = parsed(name, text);
        let (columns, _) = found.columns(&Names::new(&["a.png", "b.png"], ""), false, &["image"]).unwrap();
        let tell = |column: &Column| {
            let Field { name, kind, .. } = column.field();
            (name, kind, format!("{:?} {:?}", column.value(0).unwrap(), column.value(1).unwrap()))
        };
        columns.iter().map(tell).collect()
    }

    #[test]
    fn columns_are_numbers_where_all_cells_are_and_else_texts() {
        let number = |dtype| FieldKind::Array { dtype, shape: Vec::new() };
        let csv = "file_name,text,n,x,id,image\nb.png,\"two, or\",2,0.5,007,\n./a.png,one,-1,3,008,\n";
        let lines = "{\"file_name\": \"a.png\", \"text\": \"one\", \"n\": -1, \"x\": 3, \"id\": \"008\", \"late\": [1, 2]}\n\n\
            {\"file_name\": \"b.png\", \"text\": \"two, or\", \"n\": 2, \"x\": 0.5, \"id\": \"007\"}\n";
        for (name, text) in [("metadata.csv", csv), ("metadata.jsonl", lines)] {
            let mut all = told(name, text);
            all.sort_by(|a, b| a.0.cmp(&b.0));
            let array = |a: [u8; 8], b: [u8; 8]| {
                format!("{:?} {:?}", Value::Array(a.to_vec().into()), Value::Array(b.to_vec().into()))
            };
            let mut want = vec![
                ("id".to_owned(), FieldKind::Text { most: 3 }, "Bytes(b\"008\") Bytes(b\"007\")".to_owned()),
                ("n".to_owned(), number(DType::I64), array((-1i64).to_ne_bytes(), 2i64.to_ne_bytes())),
                ("text".to_owned(), FieldKind::Text { most: 7 }, "Bytes(b\"one\") Bytes(b\"two, or\")".to_owned()),
                ("x".to_owned(), number(DType::F64), array(3f64.to_ne_bytes(), 0.5f64.to_ne_bytes())),
            ];
            if name.ends_with("jsonl") {
                let list = FieldKind::List { dtype: DType::I64, item: vec![], most: 5 };
                let numbers: Vec<u8> = [1i64, 2].iter().flat_map(|n| n.to_ne_bytes()).collect();
                let values = format!("{:?} {:?}", Value::List(numbers.into()), Value::List(Bytes::new()));
                want.insert(1, ("late".to_owned(), list, values));
            }
            assert_eq!(all, want, "{name}");
        }
    }

    #[test]
    fn whole_numbers_with_a_point_are_labels_and_others_are_not() {
        let labels = |text: &str| parsed("metadata.csv", text).take_labels();
        let names = Names::new(&["a.png", "b.png"], "");
        let found = labels("file_name,label\na.png,3.0\nb.png,-1.0\n").unwrap().labels_of(&names, None, false).unwrap();
        assert_eq!((found.of, found.classes), (vec![3, -1], None));
        assert!(labels("file_name,label\na.png,3.5\nb.png,1.0\n").is_none());
    }

    #[test]
    fn what_is_no_metadata_is_left_and_damage_is_told() {
        assert!(parse("metadata.csv", b"id,label\n1,2\n").unwrap().is_none());
        assert!(parse("metadata.jsonl", b"{\"id\": 7}\n").unwrap().is_none());
        assert!(parse("metadata.jsonl", b"").unwrap().is_none());
        let says = |name: &str, text: &str, what: &str| {
            let error = parse(name, text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        };
        says("metadata.csv", "file_name,n\na.png\n", "not CSV");
        says("metadata.jsonl", "{\"file_name\": \"a\"}\n{\"n\": 1}", "line 2 has no `file_name`");
        says("metadata.jsonl", "{\"file_name\": \"a\"}\n7", "line 2 is not a JSON object");
        says("metadata.jsonl", "{", "line 1 is not JSON");
        let found = parsed("metadata.csv", "file_name,n\na.png,1\n");
        let error = found.columns(&Names::new(&["a.png", "b.png"], ""), false, &[]).unwrap_err().to_string();
        assert!(error.contains("1 of 2 images have no row, the first is `b.png`"), "{error}");
        let twice = parsed("metadata.csv", "file_name,n\na.png,1\na.png,2\n");
        assert!(
            twice
                .columns(&Names::new(&["a.png"], ""), false, &[])
                .unwrap_err()
                .to_string()
                .contains("two different rows")
        );
    }

    #[test]
    fn any_bytes_are_metadata_or_an_error() {
        let mut draws = infeed_core::random::SampleRng::new(5, 6, 7).op(0);
        let seeds = [
            ("metadata.csv", &b"file_name,label,text\na.png,1,\"x\"\nb.png,2,y\n"[..]),
            ("metadata.jsonl", b"{\"file_name\": \"a.png\", \"n\": 1.5}\n{\"file_name\": \"b.png\", \"n\": null}\n"),
        ];
        for _ in 0..20_000 {
            let (name, seed) = seeds[draws.below(2) as usize];
            let mut bytes = seed.to_vec();
            for _ in 0..1 + draws.below(4) {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] =
                    if draws.chance(0.5) { b",\"\n{}[]:x0.-"[draws.below(12) as usize] } else { draws.bits() as u8 };
            }
            if let Ok(Some(Described::Images(mut found))) = parse(name, &bytes) {
                let _ = found.take_labels();
                let _ = found.columns(&Names::new(&["a.png", "b.png"], ""), false, &[]);
            }
        }
    }
}
