//! Files and their labels, and the resulting labels of a dataset's images.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use infeed_core::error::{
    Error, ErrorKind, Result,
    setting::{CLASSES, LABEL_COLUMN, LABELS_ONLY},
};

use super::{
    columns::understand,
    names::{FoundRows, Names},
    rows::{Entry, is_missing, is_number, number},
    text,
};
use crate::{labels::index_of, names::is_image};

/// So many images are hardly all of different classes.
const MANY: usize = 16;

/// Files and their labels, as written.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    /// If the table has an order of classes; otherwise texts are sorted.
    classes: Option<Vec<String>>,
    /// Labels of other splits of the dataset, which get numbers too.
    elsewhere: BTreeSet<String>,
}

/// Labels of a dataset's images.
#[derive(Debug, PartialEq)]
pub(crate) struct Labels {
    /// The label of each image that is kept.
    pub(crate) of: Vec<i64>,
    pub(crate) classes: Option<Arc<[String]>>,
    /// The images that the table lists, if it lists only some; `None`: all.
    pub(crate) kept: Option<Vec<usize>>,
}

impl Table {
    /// Reads a file of labels. `column` is the column of labels, if the user named it.
    pub(crate) fn parse(name: &str, bytes: &[u8], names: &Names<'_>, column: Option<&str>) -> Result<Self> {
        let (entries, classes) = understand(text::parse(name, bytes, names)?, names, column)?;
        Ok(Self { entries, classes, ..Self::default() })
    }

    pub(crate) fn new(rows: impl Iterator<Item = (String, String)>) -> Self {
        Self { entries: rows.map(|(file, label)| Entry { file, label }).collect(), ..Self::default() }
    }

    /// With the labels of other splits.
    pub(crate) fn with_labels_elsewhere(self, labels: BTreeSet<String>) -> Self {
        Self { elsewhere: labels, ..self }
    }

    /// A label for each image; with `only`, for the listed ones. Labels are indices into `given` if there are given
    /// classes. Otherwise they stay as they are if all are integers, and are indices into the sorted texts if not.
    ///
    /// # Errors
    /// `NotFound` for images that are not listed, `Corrupt` for labels that can't be determined.
    pub(crate) fn labels_of(self, names: &Names<'_>, given: Option<Arc<[String]>>, only: bool) -> Result<Labels> {
        let (numbers, classes) = self.numbers(given)?;
        if classes.is_none()
            && [-1, 1].iter().all(|n| numbers.contains(n))
            && numbers.iter().all(|n| [-1, 1].contains(n))
        {
            tracing::warn!("labels are -1 and 1, and stay as they are; -1 is no class index: if it means no, write 0");
        }
        let written: Vec<&str> = self.entries.iter().map(|entry| entry.file.as_str()).collect();
        let found = names.rows_of(&written, |a, b| match numbers[a] == numbers[b] {
            true => Ok(()),
            false => Err(format!("two labels, {} and {}", self.entries[a].label, self.entries[b].label)),
        })?;
        let kept = listed(&found, &written, names, only, "label")?;
        let of = found.rows.into_iter().flatten().map(|row| numbers[row]).collect();
        Ok(Labels { of, classes, kept })
    }

    /// The label of each entry, and the names of the classes.
    #[expect(clippy::type_complexity, reason = "both or an error")]
    fn numbers(&self, given: Option<Arc<[String]>>) -> Result<(Vec<i64>, Option<Arc<[String]>>)> {
        let is_class = |label: &str| given.as_ref().is_some_and(|classes| classes.iter().any(|class| class == label));
        if let Some(Entry { file, label }) =
            self.entries.iter().find(|entry| is_missing(&entry.label) && !is_class(&entry.label))
        {
            let what = if label.is_empty() { "is empty".to_owned() } else { format!("is `{label}`: it has no value") };
            return Err(Error::corrupt(format!("the label of `{file}` {what}")).with_hint(format!(
                "fill it in, or remove the file from the table; if it is the name of a class, set {CLASSES}"
            )));
        }
        let classes: Option<Arc<[String]>> = match (given, &self.classes) {
            (Some(given), _) => Some(given),
            (None, Some(own)) => Some(own.as_slice().into()),
            (None, None) if self.labels().all(|label| number(label).is_some()) => None,
            (None, None) => Some(self.names_of_classes()?.into_iter().map(str::to_owned).collect()),
        };
        let index = classes.as_ref().map(|c| index_of(c)).transpose()?;
        let mut numbers = Vec::with_capacity(self.entries.len());
        for Entry { file, label: text } in &self.entries {
            let label = match &index {
                None => number(text),
                // A class may be named `7`.
                Some(index) => index
                    .get(text.as_str())
                    .copied()
                    .or_else(|| number(text).filter(|n| usize::try_from(*n).is_ok_and(|n| n < index.len()))),
            };
            numbers.push(label.ok_or_else(|| {
                let count = index.as_ref().map_or(0, HashMap::len);
                Error::config(format!("class `{text}` of `{file}` is not among the {count} given classes"))
            })?);
        }
        drop(index);
        Ok((numbers, classes))
    }

    /// Those of other splits too.
    fn labels(&self) -> impl Iterator<Item = &str> {
        let elsewhere = self.elsewhere.iter().map(String::as_str).filter(|label| !is_missing(label));
        self.entries.iter().map(|entry| entry.label.as_str()).chain(elsewhere)
    }

    /// The texts, sorted. An error if they are meant as numbers: as texts 10 would come before 2, unnoticed.
    fn names_of_classes(&self) -> Result<BTreeSet<&str>> {
        let fraction = self.entries.iter().find(|entry| number(&entry.label).is_none() && is_number(&entry.label));
        if let Some(Entry { file, label }) = fraction.filter(|_| self.entries.iter().all(|e| is_number(&e.label))) {
            let what = format!("the label {label} of `{file}` is not an integer of 64 bits");
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_hint("labels are class indices or names; for names that are numbers, give the classes"));
        }
        let several = self.entries.iter().find(|entry| parts_of(&entry.label).count() > 1);
        if let Some(Entry { file, label }) =
            several.filter(|_| self.entries.iter().all(|e| parts_of(&e.label).all(is_number)))
        {
            let what = format!("the label `{label}` of `{file}` is several numbers");
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint(format!(
                "several labels of an image are not read; write a fraction with a point; for names that are numbers, set {CLASSES}"
            )));
        }
        let listed = self.entries.iter().find(|entry| is_list(&entry.label));
        if let Some(Entry { file, label }) = listed {
            let what = format!("the label `{label}` of `{file}` is several labels, or the name of a file");
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint(format!(
                "if it is a class, set {CLASSES} with all names; to read texts as they are, call the table \
                 metadata.csv, put it next to the images, and call its column of files file_name"
            )));
        }
        let names: BTreeSet<&str> = self.labels().collect();
        if names.len() == self.entries.len() && names.len() >= MANY {
            let first = self.entries[0].label.as_str();
            tracing::warn!(
                classes = names.len(),
                first,
                "each image has a class of its own; {LABEL_COLUMN} names another column"
            );
        }
        let is_joined = |name: &&&str| name.contains(' ') && name.split_whitespace().all(|word| names.contains(word));
        if let Some(several) = names.iter().find(is_joined) {
            tracing::warn!(
                class = several,
                "a class consists of the names of others: if it is several labels, they are not told apart; to read texts \
                 as they are, call the table metadata.csv, put it next to the images, and call its column of files file_name"
            );
        }
        let numbers = names.iter().filter(|name| is_number(name)).count();
        let word = self.entries.iter().find(|entry| !is_number(&entry.label));
        if let Some(Entry { file, label }) = word.filter(|_| numbers > 1 && numbers > names.len() - numbers) {
            let what = format!("the label `{label}` of `{file}` is not a number, but most others are");
            return Err(Error::corrupt(what).with_hint(
                "fill it in, or remove the file from the table; for names that are numbers, give the classes",
            ));
        }
        Ok(names)
    }
}

/// Whether a cell holds several labels (`cat|dog`, `[1, 2]`), or names a mask instead of a class.
fn is_list(label: &str) -> bool {
    label.contains(['|', ';']) || label.starts_with('[') && label.ends_with(']') || is_image(label)
}

/// The labels in a cell that holds several.
fn parts_of(label: &str) -> impl Iterator<Item = &str> {
    label.split([',', ';', '|', ' ']).filter(|part| !part.is_empty())
}

/// The images that have a row, for a table that lists `written`; `None` if all have one. Warns about rows without an
/// image.
pub(crate) fn listed(
    found: &FoundRows,
    written: &[&str],
    names: &Names<'_>,
    only: bool,
    what: &str,
) -> Result<Option<Vec<usize>>> {
    let rows = &found.rows;
    let kept: Vec<usize> = (0..rows.len()).filter(|image| rows[*image].is_some()).collect();
    let missing = rows.len() - kept.len();
    if kept.is_empty() && !rows.is_empty() {
        let listed = written.first().map_or("it is empty".to_owned(), |first| format!("its first name is `{first}`"));
        let what =
            format!("none of {} images is in the table: {listed}, the first image is `{}`", rows.len(), names.name(0));
        return Err(Error::new(ErrorKind::NotFound, what).with_hint("name the files relative to the dataset"));
    }
    if missing > 0 && !only {
        let first = rows.iter().position(Option::is_none).map_or("", |image| names.name(image));
        let what = format!("{missing} of {} images have no {what}, the first is `{first}`", rows.len());
        return Err(Error::new(ErrorKind::NotFound, what).with_hint(format!(
            "add them, named relative to the dataset{}, which reads only the listed ones",
            LABELS_ONLY.or_set("")
        )));
    }
    if let Some((unused, row)) = found.strays {
        let first = written[row];
        tracing::warn!(unused, first, "the label file has labels for files that are not there");
    }
    if missing > 0 {
        tracing::info!(images = kept.len(), of = rows.len(), "only the images that the table lists are read");
    }
    Ok((missing > 0).then_some(kept))
}
