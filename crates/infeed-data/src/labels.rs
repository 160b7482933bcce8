//! Labels from a CSV or JSON file.

use std::{collections::HashMap, sync::Arc};

use infeed_core::error::{Error, ErrorKind, Result};
use serde_json::Value as Json;

use super::names::is_image;

const FILE: [&str; 9] = ["file", "filename", "file_name", "image", "image_id", "image_name", "path", "name", "id"];
/// What columns of labels are called.
pub(crate) const LABEL: [&str; 6] = ["label", "labels", "class", "class_name", "category", "target"];

/// Files and their labels as they were written.
#[derive(Debug, PartialEq)]
pub(crate) struct Table(Vec<(String, String)>);

/// Files and their class indices.
#[derive(Debug)]
pub(crate) struct Labels {
    of: HashMap<String, i64>,
    pub(crate) classes: Option<Arc<[String]>>,
}

/// Indices of class names; an error when two classes share a name.
pub(crate) fn index_of(classes: &[String]) -> Result<HashMap<&str, i64>> {
    let index: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
    if index.len() < classes.len() {
        let twice = classes.iter().enumerate().find(|(i, name)| index[name.as_str()] != *i as i64);
        let name = twice.map_or("", |(_, name)| name);
        return Err(Error::config(format!("class `{name}` is given twice")));
    }
    Ok(index)
}

/// Reads a label file; its name tells which kind it is.
pub(crate) fn parse(name: &str, bytes: &[u8]) -> Result<Table> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    match name.rsplit('.').next().map(str::to_ascii_lowercase).as_deref() {
        Some("json") => parse_json(bytes),
        Some("csv" | "tsv" | "txt") => parse_csv(bytes),
        _ => Err(Error::config("a label file ends with .csv, .tsv, .txt or .json")),
    }
}

/// Two columns of a table with commas, tabs or semicolons between them; quoted as CSV is.
pub(crate) fn parse_csv(bytes: &[u8]) -> Result<Table> {
    let first = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
    let delimiter = [b',', b'\t', b';'].into_iter().find(|d| first.contains(d)).unwrap_or(b',');
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(bytes);
    let mut columns = None;
    let mut table = Vec::new();
    for row in reader.records() {
        let row = row.map_err(|e| Error::corrupt("the label file is not CSV").with_source(e))?;
        let (file, label) = match columns {
            Some(columns) => columns,
            None => {
                let found = header(&row)?;
                columns = Some(found.unwrap_or((0, 1)));
                if found.is_some() {
                    continue;
                }
                (0, 1)
            }
        };
        let (Some(file), Some(label)) = (row.get(file), row.get(label)) else {
            let line = row.position().map_or(0, csv::Position::line);
            return Err(Error::corrupt(format!("line {line} has {} columns, file and label need more", row.len())));
        };
        table.push((file.to_owned(), label.to_owned()));
    }
    Ok(Table(table))
}

/// The columns of file and label, when the row is a header.
fn header(row: &csv::StringRecord) -> Result<Option<(usize, usize)>> {
    let find = |names: &[&str]| row.iter().position(|cell| names.iter().any(|n| n.eq_ignore_ascii_case(cell)));
    let (file, label) = (find(&FILE), find(&LABEL));
    if (file.is_none() && label.is_none()) || row.iter().any(is_image) {
        return Ok(None);
    }
    match (file, label, row.len()) {
        (Some(file), Some(label), _) => Ok(Some((file, label))),
        (Some(file), None, 2) => Ok(Some((file, 1 - file))),
        (None, Some(label), 2) => Ok(Some((1 - label, label))),
        _ => {
            let have: Vec<_> = row.iter().collect();
            let what = format!("no columns of files and labels among {}", have.join(", "));
            Err(Error::corrupt(what).hint("call them `file` and `label`"))
        }
    }
}

/// `{"a.jpg": 3}`, `[{"file": "a.jpg", "label": 3}]` or `[["a.jpg", 3]]`.
pub(crate) fn parse_json(bytes: &[u8]) -> Result<Table> {
    let json =
        serde_json::from_slice(bytes).map_err(|e| Error::corrupt("the label file is not JSON").with_source(e))?;
    let text = |value: &Json| match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let row = |i: usize, file: Option<String>, label: Option<&Json>| match (file, label.and_then(text)) {
        (Some(file), Some(label)) => Ok((file, label)),
        _ => Err(Error::corrupt(format!("entry {i} has no file, or no label that is a number or a text"))),
    };
    let rows: Result<Vec<_>> = match &json {
        Json::Object(map) => map.iter().enumerate().map(|(i, (k, v))| row(i, Some(k.clone()), Some(v))).collect(),
        Json::Array(entries) => {
            let entry = |(i, entry): (usize, &Json)| match entry {
                Json::Array(pair) => row(i, pair.first().and_then(text), pair.get(1)),
                Json::Object(map) => {
                    let find = |names: &[&str]| names.iter().find_map(|n| map.get(*n));
                    row(i, find(&FILE).and_then(text), find(&LABEL))
                }
                _ => row(i, None, None),
            };
            entries.iter().enumerate().map(entry).collect()
        }
        _ => Err(Error::corrupt("the label file is neither an object nor a list")),
    };
    rows.map(Table)
}

impl Table {
    pub(crate) fn new(rows: impl Iterator<Item = (String, String)>) -> Self {
        Self(rows.collect())
    }

    /// Turns labels into indices: of `given`, else as they are if all are integers, else of the sorted names.
    pub(crate) fn resolve(self, given: Option<Arc<[String]>>) -> Result<Labels> {
        if let Some((file, _)) = self.0.iter().find(|(_, label)| label.is_empty()) {
            return Err(
                Error::corrupt(format!("the label of `{file}` is empty")).hint("fill it in, or leave the file out")
            );
        }
        let number = |text: &str| text.parse::<i64>().ok().or_else(|| integral(text));
        let fraction = self.0.iter().find(|(_, label)| number(label).is_none() && is_number(label));
        // Sorted as names, 10.5 would come before 2.5, and nobody would know.
        if let Some((file, label)) =
            fraction.filter(|_| given.is_none() && self.0.iter().all(|(_, label)| is_number(label)))
        {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("the label {label} of `{file}` is no integer of 64 bits"),
            )
            .hint("labels are class indices or names; for names that are numbers, give the classes"));
        }
        let classes = match given {
            Some(given) => Some(given),
            None if self.0.iter().all(|(_, label)| number(label).is_some()) => None,
            None => {
                let names: std::collections::BTreeSet<_> = self.0.iter().map(|(_, label)| label.clone()).collect();
                Some(names.into_iter().collect())
            }
        };
        let index = classes.as_ref().map(|c| index_of(c)).transpose()?;
        let mut of = HashMap::with_capacity(self.0.len());
        for (file, text) in self.0 {
            let label = match &index {
                None => number(&text),
                // A class may be called `7`.
                Some(index) => index
                    .get(text.as_str())
                    .copied()
                    .or_else(|| number(&text).filter(|n| usize::try_from(*n).is_ok_and(|n| n < index.len()))),
            };
            let Some(label) = label else {
                let count = index.as_ref().map_or(0, HashMap::len);
                return Err(Error::config(format!(
                    "class `{text}` of `{file}` is not among the {count} given classes"
                )));
            };
            let file = file.trim_start_matches("./").to_owned();
            if let Some(other) = of.get(&file).filter(|other| **other != label) {
                return Err(Error::corrupt(format!("`{file}` has two labels, {other} and {label}")));
            }
            of.insert(file, label);
        }
        drop(index);
        Ok(Labels { of, classes })
    }
}

/// Whether a label is meant as a number: `nan` and `inf` may be names.
fn is_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)) && text.parse::<f64>().is_ok()
}

/// `3.0`, as tables with gaps write their integers. Beyond 2^53 a fraction tells nothing exact.
fn integral(text: &str) -> Option<i64> {
    let value = text.parse::<f64>().ok().filter(|_| is_number(text))?;
    (value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64).then_some(value as i64)
}

impl Labels {
    /// A label for each name; names without one are an error.
    pub(crate) fn labels_of<'a>(&self, names: impl ExactSizeIterator<Item = &'a str>) -> Result<Vec<i64>> {
        let count = names.len();
        let mut labels = Vec::with_capacity(count);
        let (mut missing, mut first) = (0usize, "");
        for name in names {
            // Without the extension too: many lists hold identifiers rather than files.
            let stem = name.rfind('.').map_or(name, |dot| &name[..dot]);
            match self.of.get(name).or_else(|| self.of.get(stem)) {
                Some(label) => labels.push(*label),
                None => {
                    first = if missing == 0 { name } else { first };
                    missing += 1;
                }
            }
        }
        if missing > 0 {
            let what = format!("{missing} of {count} images have no label, the first is `{first}`");
            return Err(Error::new(ErrorKind::NotFound, what).hint("add them, named relative to the dataset"));
        }
        if self.of.len() > labels.len() {
            tracing::warn!(
                unused = self.of.len() - labels.len(),
                "the label file has labels for files that are not there"
            );
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(table: Result<Table>) -> Vec<(String, String)> {
        table.unwrap().0
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    }

    #[test]
    fn csv_is_read_with_and_without_a_header() {
        let want = pairs(&[("a.jpg", "1"), ("b,c.jpg", "2")]);
        for text in [
            "a.jpg,1\n\"b,c.jpg\",2\n",
            "file,label\r\na.jpg,1\r\n\"b,c.jpg\",2\r\n",
            "label,split,Image\n1,x,a.jpg\n2,y,\"b,c.jpg\"",
            "\u{feff}id;breed\na.jpg; 1\nb,c.jpg;2\n",
            "class\timage_id\n1\ta.jpg\n2\tb,c.jpg\n",
        ] {
            assert_eq!(rows(parse("x.csv", text.as_bytes())), want, "{text:?}");
        }
        // A first row with a file is no header, whatever its class is called.
        assert_eq!(rows(parse_csv(b"a.jpg,name\n")), pairs(&[("a.jpg", "name")]));
    }

    #[test]
    fn json_is_read_in_three_shapes() {
        let want = pairs(&[("a.jpg", "1"), ("b.jpg", "cat")]);
        for text in [
            r#"{"a.jpg": 1, "b.jpg": "cat"}"#,
            r#"[{"file": "a.jpg", "label": 1}, {"image": "b.jpg", "class": "cat"}]"#,
            r#"[["a.jpg", 1], ["b.jpg", "cat"]]"#,
        ] {
            assert_eq!(rows(parse("x.json", text.as_bytes())), want, "{text}");
        }
    }

    #[test]
    fn damaged_label_files_are_errors_that_say_where() {
        for (name, text, says) in [
            ("x.csv", "a.jpg,1\nb.jpg\n", "line 2"),
            ("x.csv", "file,width,height\na.jpg,1,2\n", "file, width, height"),
            ("x.json", "{", "not JSON"),
            ("x.json", "[3]", "entry 0"),
            ("x.json", "[[\"a\", 1], {\"file\": \"a\"}]", "entry 1"),
            ("x.json", "7", "neither"),
            ("x.xml", "", ".csv"),
        ] {
            let error = parse(name, text.as_bytes()).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
        }
        assert!(parse("x.csv", b"\xff\xfe,1").is_err());
    }

    #[test]
    fn names_become_indices_of_the_sorted_or_the_given_classes() {
        let table = || Table(pairs(&[("a", "dog"), ("./b", "cat"), ("c", "7")]));
        let labels = table().resolve(None).unwrap();
        assert_eq!(&labels.classes.as_ref().unwrap()[..], ["7", "cat", "dog"]);
        assert_eq!(labels.labels_of(["a.jpg", "b", "c.d.png"].into_iter().take(2)).unwrap(), [2, 1]);
        let given: Arc<[String]> = ["dog".to_owned(), "cat".to_owned()].into();
        let error = table().resolve(Some(Arc::clone(&given))).unwrap_err();
        assert!(error.to_string().contains("class `7` of `c` is not among the 2"), "{error}");
        let labels = Table(pairs(&[("a", "cat"), ("b", "0")])).resolve(Some(given)).unwrap();
        assert_eq!(labels.labels_of(["a", "b"].into_iter()).unwrap(), [1, 0]);
        let plain = Table(pairs(&[("a", "-1"), ("b", "12")])).resolve(None).unwrap();
        assert!(plain.classes.is_none());
        assert_eq!(plain.labels_of(["a", "b"].into_iter()).unwrap(), [-1, 12]);
        let error = Table(pairs(&[("a", "1"), ("a", "2")])).resolve(None).unwrap_err();
        assert!(error.to_string().contains("two labels, 1 and 2"), "{error}");
        // Integers of a table that had gaps, and labels that no index is.
        let whole = Table(pairs(&[("a", "1.0"), ("b", "12.0"), ("c", "-2")])).resolve(None).unwrap();
        assert!(whole.classes.is_none());
        assert_eq!(whole.labels_of(["a", "b", "c"].into_iter()).unwrap(), [1, 12, -2]);
        for (label, says) in [
            ("2.5", "the label 2.5 of `b` is no integer"),
            ("18446744073709551615", "the label 18446744073709551615 of `b` is no integer of 64 bits"),
            ("", "the label of `b` is empty"),
        ] {
            let error = Table(pairs(&[("a", "10.0"), ("b", label)])).resolve(None).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let names = Table(pairs(&[("a", "2.5"), ("b", "nan")])).resolve(None).unwrap();
        assert_eq!(&names.classes.unwrap()[..], ["2.5", "nan"]);
        assert!(index_of(&["a".to_owned(), "b".to_owned(), "a".to_owned()]).is_err());
    }

    #[test]
    fn missing_labels_are_counted_and_the_first_is_named() {
        let labels = Table(pairs(&[("a", "1")])).resolve(None).unwrap();
        let error = labels.labels_of(["a.jpg", "x/b.jpg", "c.jpg"].into_iter()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("2 of 3 images have no label, the first is `x/b.jpg`"), "{error}");
    }
}
