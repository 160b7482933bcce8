//! Finds the column of files, the column of labels, and whether the first row is a header.

use std::{cmp::Reverse, collections::HashSet};

use infeed_core::error::{
    Error, Result,
    setting::{LABEL_COLUMN, LABELS_ONLY},
};

use super::{
    names::{Names, WAYS, is_image_like},
    rows::{Entry, Head, Rows, is_number, no_table},
};

/// Usual names of columns with files.
pub(crate) const FILE: [&str; 13] = [
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image",
    "image_id",
    "image_name",
    "image_path",
    "img",
    "path",
    "name",
    "id",
];
/// Usual names of columns with labels.
pub(crate) const LABEL: [&str; 6] = ["label", "labels", "class", "class_name", "category", "target"];

/// Names that are used only in tables, if none of the above is there.
const LABEL_NUMBER: [&str; 8] =
    ["classid", "class_id", "labelid", "label_id", "class_idx", "class_index", "category_id", "target_id"];

/// Number of rows that are examined to recognise columns.
const LOOKED_AT: usize = 2000;

fn is_word(words: &[&str], name: &str) -> bool {
    words.iter().any(|word| word.eq_ignore_ascii_case(name.trim()))
}

/// Files with labels, and the classes if the table has an order of them.
type Understood = (Vec<Entry>, Option<Vec<String>>);

/// Files and labels of a table with any columns.
pub(super) fn understand(mut all: Rows, names: &Names<'_>, wanted: Option<&str>) -> Result<Understood> {
    let Some(widest) = (0..all.rows.len()).map(|row| all.filled(row)).max() else {
        return Ok(Understood::default());
    };
    if all.head == Head::Unknown {
        let width = all.rows[0].len();
        if let Some(row) = (1..all.rows.len()).find(|row| all.filled(*row) > width.max(2)) {
            let what = format!("{} has {} columns, the first line {width}", all.place(row), all.filled(row));
            return Err(no_table(what).with_hint("put quotes around names that contain separators"));
        }
    }
    let first_row: Option<Vec<String>> = match &all.head {
        Head::Names(names) => Some(names.clone()),
        Head::None => None,
        Head::Unknown => Some(all.rows[0].iter().map(str::to_owned).collect()),
    };
    if widest < 2 && !matches!(&all.head, Head::Names(names) if names.len() > 1) {
        return Err(too_few(&all, 0));
    }
    // The rows after the first, unless there is only one.
    let from = usize::from(all.head == Head::Unknown && all.rows.len() > 1);
    let is_label = |c: usize| {
        let name = first_row.as_ref().and_then(|row| row.get(c));
        name.is_some_and(|name| match wanted {
            Some(wanted) => name.trim() == wanted,
            None => is_word(&LABEL, name) || is_word(&LABEL_NUMBER, name),
        })
    };
    let mut candidates: Vec<usize> = (0..widest).filter(|c| !is_label(*c)).collect();
    if candidates.is_empty() {
        candidates = (0..widest).collect();
    }
    let is_file = |c: usize| first_row.as_ref().and_then(|row| row.get(c)).is_some_and(|name| is_word(&FILE, name));
    let (file, hits) = file_column(&all, from, &candidates, names, is_file);

    let head = match &all.head {
        Head::Names(names) => Some(names.clone()),
        Head::None => None,
        Head::Unknown => {
            let row = first_row.unwrap_or_default();
            // A number may as well be a cell.
            let named = wanted.filter(|wanted| !is_number(wanted));
            let header = named.is_some_and(|wanted| row.iter().any(|name| name.trim() == wanted))
                || is_header(&all, &row, file, hits, names);
            header.then_some(row)
        }
    };
    if let Some(head) = head.as_ref().filter(|_| all.head == Head::Unknown) {
        // Concatenated tables have the header several times.
        all.rows.retain(|row| !row.iter().eq(head.iter().map(String::as_str)));
    }
    let label = label_column(&all, head.as_deref(), file, wanted)?;
    if let Some(head) = &head {
        tell_unused(head, &label);
    }
    entries(&all, file, label)
}

/// Warns of columns whose names say that a table is more than files and labels.
fn tell_unused(head: &[String], label: &Label) {
    const SPLIT: [&str; 10] =
        ["split", "subset", "set", "fold", "phase", "partition", "usage", "isvalid", "istest", "istrain"];
    const BOXES: [&str; 6] = ["bbox", "boxes", "boundingbox", "xmin", "x1", "roix1"];
    let chosen = |c: usize| matches!(label, Label::In(column) if *column == c);
    let named = |words: &[&str]| {
        let is = |name: &str| {
            let name = name.to_ascii_lowercase().replace(['_', '-', '.', ' '], "");
            words.contains(&&*name)
        };
        head.iter().enumerate().find(|(c, name)| !chosen(*c) && is(name)).map(|(_, name)| name.as_str())
    };
    if let Some(column) = named(&SPLIT) {
        tracing::warn!(
            column,
            "a column that may be the split of each image is not used; keep the lines of one split, and set {}",
            LABELS_ONLY.to("")
        );
    }
    if let Some(column) = named(&BOXES) {
        tracing::warn!(column, "a column that may be boxes is not used: only the labels of the table are read");
    }
}

fn too_few(all: &Rows, row: usize) -> Error {
    no_table(format!("{} has {} columns, too few for file and label", all.place(row), all.filled(row)))
}

/// The column that names the most images, and the number of these images.
fn file_column(
    all: &Rows,
    from: usize,
    candidates: &[usize],
    names: &Names<'_>,
    is_file: impl Fn(usize) -> bool,
) -> (usize, usize) {
    let count = all.rows.len() - from;
    // Spread over the whole table, which may list one folder after another.
    let step = count.div_ceil(LOOKED_AT).max(1);
    let by = |step: usize| {
        let sample = || (from..all.rows.len()).step_by(step);
        let mut best = None;
        for way in WAYS {
            for &c in candidates {
                let cells = || sample().map(|row| all.cell(row, c));
                let images = 2 * cells().filter(|cell| is_image_like(cell)).count() > cells().count();
                let (hits, strict) = names.count_by(way, cells());
                let rank = (images, hits, is_file(c), strict, Reverse(c));
                best = best.max(Some(rank));
            }
            // Less strict ways cost more; they are tried only if the stricter ones do not explain the names.
            if best.is_some_and(|(images, hits, ..)| hits > 0 && (images || 2 * hits >= sample().count())) {
                break;
            }
        }
        best.map_or((0, 0), |(_, hits, _, _, Reverse(c))| (c, hits))
    };
    match by(step) {
        (_, 0) if step > 1 => by(1),
        found => found,
    }
}

/// Whether the first row is a header.
fn is_header(all: &Rows, row: &[String], file: usize, hits: usize, names: &Names<'_>) -> bool {
    let of_file = row.get(file).map_or("", String::as_str);
    if row.iter().any(|cell| is_image_like(cell)) {
        return false;
    }
    let (files, labels) = (
        row.iter().any(|cell| is_word(&FILE, cell)),
        row.iter().any(|cell| is_word(&LABEL, cell) || is_word(&LABEL_NUMBER, cell)),
    );
    if files && labels {
        return true;
    }
    if names.means_one(of_file) {
        return false;
    }
    if files || labels {
        return true;
    }
    let others = 1..all.rows.len();
    let numbers = |c: usize| {
        let mut cells = (1..all.rows.len()).map(|row| all.cell(row, c)).filter(|cell| !cell.is_empty()).peekable();
        cells.peek().is_some() && cells.all(is_number)
    };
    // A word above a column of numbers.
    if row.iter().enumerate().any(|(c, cell)| !cell.is_empty() && !is_number(cell) && numbers(c)) {
        return true;
    }
    // All rows but the first name images, and the other cells of the first row occur nowhere else.
    let alone = |c: usize, cell: &str| cell.is_empty() || others.clone().all(|row| all.cell(row, c) != cell);
    let header = hits > 0 && !others.is_empty() && row.iter().enumerate().all(|(c, cell)| alone(c, cell));
    if header {
        tracing::warn!(line = row.join(", "), "the first line of the table names no image and is taken for a header");
    }
    header
}

/// Where the labels are.
enum Label {
    /// In one column.
    In(usize),
    /// A column for each class, of which one is set.
    Set(Vec<(usize, String)>),
}

fn label_column(all: &Rows, head: Option<&[String]>, file: usize, wanted: Option<&str>) -> Result<Label> {
    let name = |c: usize| head.and_then(|head| head.get(c)).map_or("", |name| name.trim());
    if let Some(wanted) = wanted {
        let Some(head) = head else {
            let widest = (0..all.rows.len()).map(|row| all.filled(row)).max().unwrap_or(0);
            let column = wanted.parse::<usize>().ok().filter(|c| *c < widest && *c != file);
            return column.map(Label::In).ok_or_else(|| {
                let what = format!("there is no column `{wanted}`: the table has no header");
                Error::config(what).with_hint(format!("give the number of a column, from 0 to {}", widest.max(1) - 1))
            });
        };
        let found = head.iter().position(|name| name.trim() == wanted);
        return found.map(Label::In).ok_or_else(|| {
            Error::config(format!("there is no column `{wanted}`")).with_hint(format!("there are {}", head.join(", ")))
        });
    }
    let rows = 0..all.rows.len();
    let widest = rows.clone().map(|row| all.filled(row)).max().unwrap_or(0);
    let mut others: Vec<usize> = (0..widest).filter(|c| *c != file).collect();
    // Separators at the ends of lines create empty columns.
    others.retain(|c| rows.clone().any(|row| !all.cell(row, *c).is_empty()));
    let known =
        LABEL.iter().chain(&LABEL_NUMBER).find_map(|word| others.iter().find(|c| name(**c).eq_ignore_ascii_case(word)));
    if let Some(known) = known {
        return Ok(Label::In(*known));
    }
    let count = others.len() + 1;
    if others.len() > 1 {
        // Row numbers, and other names of the same files.
        let counts = |c: usize| {
            let number = |row: usize| all.cell(row, c).parse::<i64>().ok();
            let first = number(0);
            first.is_some() && rows.clone().all(|row| number(row) == first.and_then(|n| n.checked_add(row as i64)))
        };
        let unnamed = |c: usize| match name(c) {
            "" => c == 0,
            name => name.starts_with("Unnamed") || name == "index",
        };
        let distinct = |c: usize| {
            let cells: HashSet<_> = rows.clone().map(|row| all.cell(row, c)).collect();
            cells.len() == rows.len()
        };
        // MXNet's lists, which may be shuffled: a number for each row, the label, the file.
        let listed =
            head.is_none() && others == [0, 1] && rows.clone().all(|row| all.cell(row, 0).parse::<u64>().is_ok());
        let idle = |c: usize| {
            // Rows may have been shuffled.
            let is_number = |row: usize| all.cell(row, c).parse::<u64>().is_ok();
            let numbered = counts(c) || c == 0 && distinct(c) && rows.clone().all(is_number);
            let first = unnamed(c) && numbered || listed && c == 0 && distinct(c);
            rows.len() > 1 && (first || is_word(&FILE, name(c)) && distinct(c))
        };
        if others.iter().any(|c| !idle(*c)) {
            others.retain(|c| !idle(*c));
        }
    }
    match &others[..] {
        // For a table without rows.
        [] if rows.is_empty() => Ok(Label::In(usize::from(file == 0))),
        [] => Err(too_few(all, 0)),
        [only] => Ok(Label::In(*only)),
        _ => match head {
            Some(_) => several(all, &others, |c| name(c).to_owned()),
            None => {
                let what = format!("the table has {count} columns and no header");
                Err(no_table(what).with_hint(format!(
                    "set {}, the number of a column from 0, or keep only the columns file and label",
                    LABEL_COLUMN.to(&others[0].to_string())
                )))
            }
        },
    }
}

/// One column per class, if these columns are that.
fn several(all: &Rows, columns: &[usize], name: impl Fn(usize) -> String) -> Result<Label> {
    let names: Vec<String> = columns.iter().map(|c| name(*c)).collect();
    let is = |cell: &str, of: [&str; 2]| of.contains(&cell);
    let binary =
        |row: usize| columns.iter().all(|c| is(all.cell(row, *c), ["0", "0.0"]) || is(all.cell(row, *c), ["1", "1.0"]));
    let list = names.join(", ");
    if !(0..all.rows.len()).all(binary) || names.iter().any(String::is_empty) {
        let what = format!("which column holds the labels? The table has {list}");
        return Err(no_table(what)
            .with_hint(format!("set {}, or keep only the columns file and label", LABEL_COLUMN.to(&names[0]))));
    }
    let set = |row: usize| columns.iter().filter(|c| is(all.cell(row, **c), ["1", "1.0"])).count();
    if let Some(row) = (0..all.rows.len()).find(|row| set(*row) != 1) {
        let what = format!(
            "{} has {} classes set instead of one, in a column of 0 and 1 for each class: {list}",
            all.place(row),
            set(row)
        );
        return Err(no_table(what).with_hint(format!(
            "set {} for one of them; to read each column as a field, call the table metadata.csv, put it next to the \
             images, and call its column of files file_name",
            LABEL_COLUMN.to(&names[0])
        )));
    }
    tracing::warn!(
        classes = list,
        "the table has a column of 0 and 1 for each class: labels are the indices of these columns"
    );
    Ok(Label::Set(columns.iter().copied().zip(names).collect()))
}

fn entries(all: &Rows, file: usize, label: Label) -> Result<Understood> {
    let mut entries = Vec::with_capacity(all.rows.len());
    for row in 0..all.rows.len() {
        let filled = all.rows[row].len();
        let (need, label_of) = match &label {
            Label::In(column) => ((*column).max(file), all.cell(row, *column)),
            Label::Set(columns) => {
                let set = columns.iter().find(|(c, _)| all.cell(row, *c).starts_with('1'));
                (file, set.map_or("", |(_, name)| name))
            }
        };
        if filled <= need {
            return Err(too_few(all, row));
        }
        if all.cell(row, file).is_empty() {
            return Err(no_table(format!("{} names no file", all.place(row))));
        }
        entries.push(Entry { file: all.cell(row, file).to_owned(), label: label_of.to_owned() });
    }
    let classes = match label {
        Label::In(_) => None,
        Label::Set(columns) => Some(columns.into_iter().map(|(_, name)| name).collect()),
    };
    Ok((entries, classes))
}
