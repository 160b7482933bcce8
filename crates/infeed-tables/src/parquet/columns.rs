//! The columns of a file that are read, and what they become, by the first file.

use std::{collections::HashSet, ops::Range, sync::Arc};

use bytes::Bytes;

use infeed_core::{
    error::{
        Error, ErrorKind, Result,
        setting::{CLASSES, COLUMNS},
    },
    types::DType,
};
use infeed_data::{format::OpenOptions, names::looks_like_mask, sniff};
use infeed_store::{KeptParts, Object, Source};

use super::{
    chunk::{Chunk, Physical},
    decode,
    footer::{Footer, Leaf},
    thrift::{self, PageHeader, PageKind},
    wire::damaged,
};

/// The longest first page that is read to find out what a column holds.
const PROBE: u64 = 256 << 20;
/// Integer columns that are class indices, in addition to those that the file's metadata declare.
const LABELS: [&str; 2] = ["label", "cls"];

/// The kind of field that a column becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ColumnKind {
    Image,
    Label,
    /// Texts that are names of the classes that were given.
    TextLabel,
    Numbers(DType),
    Bytes,
    Text,
    /// Items of this many numbers; `None`: of one number.
    List(DType, Option<u32>),
    /// Any number of them.
    Images,
    Texts,
}

impl ColumnKind {
    /// Whether its values differ in length, and the memory budget counts them.
    pub(super) const fn varies(self) -> bool {
        matches!(self, Self::Bytes | Self::Text | Self::Texts | Self::List(..))
    }

    const fn is_label(self) -> bool {
        matches!(self, Self::Label | Self::TextLabel)
    }

    const fn is_image(self) -> bool {
        matches!(self, Self::Image | Self::Images)
    }
}

/// A column that may be read, and whether it is read by default.
#[derive(Debug)]
struct Candidate {
    leaf: usize,
    name: String,
    usual: bool,
}

/// A column that is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) leaf: usize,
    pub(super) name: String,
    pub(super) kind: ColumnKind,
    /// For images, the type that labels have in the first file.
    pub(super) labels: Option<DType>,
    /// Whether its integers are unsigned.
    pub(super) unsigned: bool,
}

/// The columns of a file, by the names of fields.
fn candidates(leaves: &[Leaf]) -> Vec<Candidate> {
    let beside = |leaf: &Leaf, other: &str| {
        leaves.iter().any(|l| l.path.len() == 2 && l.path[0] == leaf.path[0] && l.path[1] == other)
    };
    let candidate = |(at, leaf): (usize, &Leaf)| {
        // An image or sound of `datasets`: `struct<bytes, path>`.
        let of_struct = leaf.path.len() == 2 && leaf.path[1] == "bytes" && beside(leaf, "path");
        let name = if of_struct { leaf.path[0].clone() } else { leaf.path.join(".") };
        Candidate { leaf: at, name, usual: (of_struct || leaf.path.len() == 1) && leaf.physical.is_ok() && !leaf.time }
    };
    leaves.iter().enumerate().map(candidate).collect()
}

/// The columns that are read of each file, by the first file.
#[derive(Debug)]
pub(super) struct Chosen {
    leaves: Vec<Leaf>,
    pub(super) columns: Vec<Column>,
    /// Names of classes of fields.
    pub(super) names: Vec<(String, Arc<[String]>)>,
    /// For each column, the first file whose metadata name its classes, and these names.
    named: Vec<(String, String, Arc<[String]>)>,
    /// Whether Hugging Face's `datasets` declared an image, which it turns upright.
    pub(super) upright: bool,
}

impl Chosen {
    pub(super) async fn new(kept: &KeptParts, file: &Object, footer: &Footer, options: &OpenOptions) -> Result<Self> {
        let all = candidates(&footer.leaves);
        let listed = || all.iter().map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ");
        let mut wanted: Vec<&Candidate> = Vec::new();
        match &options.columns {
            None => {
                wanted.extend(all.iter().filter(|candidate| candidate.usual));
                tell_left_out(&all, &footer.leaves);
            }
            Some(names) => {
                for name in names {
                    let found = all.iter().find(|candidate| candidate.name == *name).ok_or_else(|| {
                        Error::new(ErrorKind::NotFound, format!("there is no column `{name}`"))
                            .with_hint(format!("there are {}", listed()))
                    })?;
                    if let Err(why) = footer.leaves[found.leaf].physical {
                        let what = format!("column `{name}` is {why}, which is not read");
                        return Err(Error::new(ErrorKind::Unsupported, what).with_hint("omit it"));
                    }
                    wanted.push(found);
                }
            }
        }
        if wanted.is_empty() {
            return Err(Error::new(ErrorKind::Unsupported, format!("no columns that can be read among {}", listed()))
                .with_hint(format!(
                    "images, bytes, texts, integers and floats can be read, one in each row, and lists of numbers, images \
                     or texts; dates and times if {COLUMNS} names them"
                )));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = wanted.iter().find(|candidate| !seen.insert(&candidate.name)) {
            return Err(Error::new(ErrorKind::Unsupported, format!("two columns are called `{}`", twice.name))
                .with_hint(format!("name each column to read once, with {COLUMNS}")));
        }
        let mut columns = Vec::new();
        let (mut names, mut upright) = (Vec::new(), false);
        for candidate in wanted {
            let declared = footer.features.as_ref().map(|features| &features[candidate.name.as_str()]);
            let leaf = &footer.leaves[candidate.leaf];
            // Of a list, the feature of its items: `[{…}]` or `{"feature": {…}, "_type": "List"}`.
            let item = declared.map(|declared| match leaf.lists {
                Some(_) if declared.is_array() => &declared[0],
                Some(_) => &declared["feature"],
                None => declared,
            });
            let feature = item.and_then(|item| item["_type"].as_str());
            upright |= feature == Some("Image");
            let named = || format!("{}, column {}", kept.source().display_name(&file.name), candidate.name);
            let at = |e: Error| e.at_object(named());
            let is_list = leaf.lists.is_some();
            let mut labels = None;
            let kind = match leaf.physical {
                Ok(Physical::Bytes) if feature == Some("Image") => {
                    if options.is_mask(&candidate.name) {
                        // A damaged page is bad samples when they are read.
                        let first = first_value(kept, file, footer, candidate.leaf).await.ok().flatten();
                        labels = Some(sniff::depth_of(first.as_deref()));
                    }
                    if is_list { ColumnKind::Images } else { ColumnKind::Image }
                }
                Ok(Physical::Bytes) if leaf.text => match is_list {
                    true => ColumnKind::Texts,
                    false if candidate.name == "label" && options.classes.is_some() => ColumnKind::TextLabel,
                    false => ColumnKind::Text,
                },
                Ok(Physical::Bytes) if feature == Some("Audio") && !is_list => ColumnKind::Bytes,
                Ok(Physical::Bytes) => {
                    let first = first_value(kept, file, footer, candidate.leaf).await.map_err(at)?;
                    labels = Some(sniff::depth_of(first.as_deref()));
                    match (first.is_some_and(|first| is_image(&first, leaf)), is_list) {
                        (true, true) => ColumnKind::Images,
                        (true, false) => ColumnKind::Image,
                        (false, false) => ColumnKind::Bytes,
                        (false, true) if options.columns.is_none() => {
                            tracing::warn!(column = candidate.name, "a column of lists of bytes is left out");
                            continue;
                        }
                        (false, true) => {
                            let name = &candidate.name;
                            let what = format!("column `{name}` has lists of bytes, of which the first is no image");
                            return Err(Error::new(ErrorKind::Unsupported, what).with_hint("omit it"));
                        }
                    }
                }
                Ok(physical) if let Some(lists) = leaf.lists => {
                    let dtype = numbers(physical, leaf.unsigned);
                    let inner = match lists.depth {
                        1 => None,
                        _ => match length_of_items(kept, file, footer, candidate).await {
                            Err(e) if e.kind() == ErrorKind::Unsupported && options.columns.is_none() => {
                                let column = &candidate.name;
                                tracing::warn!(column, "a column of lists of lists is left out: {}", e.what());
                                continue;
                            }
                            length => Some(length?),
                        },
                    };
                    ColumnKind::List(dtype, inner)
                }
                Ok(Physical::I32 | Physical::I64)
                    if feature == Some("ClassLabel") || LABELS.contains(&&*candidate.name) =>
                {
                    ColumnKind::Label
                }
                Ok(physical) => ColumnKind::Numbers(numbers(physical, leaf.unsigned)),
                // Only columns that can be read are wanted.
                Err(why) => return Err(Error::new(ErrorKind::Internal, format!("a column that is {why}"))),
            };
            if kind == ColumnKind::Label {
                names.extend(own_classes(footer, &candidate.name).map(|classes| (candidate.name.clone(), classes)));
            }
            let unsigned = leaf.unsigned.is_some();
            columns.push(Column { leaf: candidate.leaf, name: candidate.name.clone(), kind, labels, unsigned });
        }
        if columns.is_empty() {
            let what = format!("no columns that can be read among {}", listed());
            return Err(Error::new(ErrorKind::Unsupported, what)
                .with_hint("columns of lists of lists have to have items of one length"));
        }
        // Images first, then masks, as in all formats.
        columns.sort_by_key(|column| {
            let is_mask = column.kind.is_image() && looks_like_mask(&column.name);
            (!column.kind.is_image(), is_mask, !column.kind.is_label(), column.leaf)
        });
        Ok(Self { leaves: footer.leaves.clone(), columns, names, named: Vec::new(), upright })
    }

    /// The leaf of each column in another file, whose columns may have another order.
    ///
    /// # Errors
    /// `Unsupported` if a column is not there, or has another type than in the first file.
    pub(super) fn leaves_of(&self, footer: &Footer) -> Result<Vec<usize>> {
        let of = |column: &Column| {
            let (first, name) = (&self.leaves[column.leaf], &column.name);
            let is_here = |leaf: &&Leaf| leaf.path == first.path;
            // Nearly always the same.
            let same = footer.leaves.get(column.leaf).filter(is_here).map(|_| column.leaf);
            let at = same.or_else(|| footer.leaves.iter().position(|leaf| is_here(&leaf)));
            let kind = |leaf: &Leaf| (leaf.physical, leaf.unsigned, leaf.lists);
            let what = match at {
                Some(at) if kind(&footer.leaves[at]) == kind(first) => return Ok(at),
                Some(_) => format!("column `{name}` has another type than in the first file"),
                None => format!("there is no column `{name}`, which the first file has"),
            };
            Err(Error::new(ErrorKind::Unsupported, what)
                .with_hint(format!("open each kind of files separately, or leave it out of {COLUMNS}")))
        };
        self.columns.iter().map(of).collect()
    }

    /// The first column of another file that the first file lacks.
    pub(super) fn lacks<'a>(&self, footer: &'a Footer) -> Option<&'a str> {
        let is_known = |leaf: &Leaf| self.leaves.iter().any(|first| first.path[0] == leaf.path[0]);
        // Nearly always the same.
        let same = |(at, leaf): &(usize, &Leaf)| self.leaves.get(*at).is_some_and(|first| first.path == leaf.path);
        let mut others = footer.leaves.iter().enumerate().filter(|leaf| !same(leaf));
        others.find(|(_, leaf)| !is_known(leaf)).map(|(_, leaf)| leaf.path[0].as_str())
    }

    /// The index among the `given` classes of each class of a file, if its metadata name them in another order. `None`:
    /// labels stay as they are.
    ///
    /// # Errors
    /// `Unsupported` if the file has a class that is not given, or without given classes, if its names are not those of
    /// an earlier file: equal labels would be different classes.
    pub(super) fn classes_of(
        &mut self,
        file: &str,
        footer: &Footer,
        given: Option<&[String]>,
    ) -> Result<Option<Arc<[i64]>>> {
        let mut places = None;
        for Column { name, .. } in self.columns.iter().filter(|column| column.kind == ColumnKind::Label) {
            let Some(own) = own_classes(footer, name) else { continue };
            if let Some(given) = given.filter(|_| name == "label") {
                places = (!given.starts_with(&own)).then(|| among(&own, given)).transpose()?;
                continue;
            }
            match self.named.iter().find(|(column, ..)| column == name) {
                None => self.named.push((name.clone(), file.to_owned(), own)),
                Some((_, _, first)) if *first == own => {}
                Some((_, first, classes)) => return Err(other_classes(name, &own, first, classes)),
            }
        }
        Ok(places)
    }
}

/// The names of a column's classes in a file's metadata.
fn own_classes(footer: &Footer, column: &str) -> Option<Arc<[String]>> {
    let names = footer.features.as_ref()?[column]["names"].as_array()?;
    Some(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// The index of each class of a file among the given ones.
fn among(own: &[String], given: &[String]) -> Result<Arc<[i64]>> {
    let place = |class: &String| {
        given.iter().position(|other| other == class).map(|at| at as i64).ok_or_else(|| {
            let what = format!("class `{class}` of the file's metadata is not among the {} classes given", given.len());
            Error::config(what).with_hint(format!("give all of its classes in {CLASSES}, or omit {CLASSES}"))
        })
    };
    own.iter().map(place).collect()
}

/// The error of a file whose classes have other names than those of the file `first`.
fn other_classes(column: &str, own: &[String], first: &str, classes: &[String]) -> Error {
    let differs = own.iter().zip(classes).enumerate().find(|(_, (a, b))| a != b);
    let what = match differs {
        Some((at, (a, b))) => format!("class {at} of column `{column}` is `{a}`, but `{b}` in {first}"),
        None => format!("column `{column}` has {} classes, but {} in {first}", own.len(), classes.len()),
    };
    let give = if column == "label" { format!(", or give all class names in {CLASSES}") } else { String::new() };
    Error::new(ErrorKind::Unsupported, what)
        .with_hint(format!("open each file by itself, write them with the same features{give}"))
}

/// The type of numbers that are stored like this.
const fn numbers(physical: Physical, unsigned: Option<u8>) -> DType {
    match (physical, unsigned) {
        // Values of 8 and 16 bits are below 2^31, and unchanged.
        (Physical::I32, Some(32)) => DType::I64,
        (Physical::I32, _) => DType::I32,
        (Physical::I64, Some(_)) => DType::U64,
        (Physical::I64, None) => DType::I64,
        (Physical::F16, _) => DType::F16,
        (Physical::F32, _) => DType::F32,
        (Physical::F64, _) => DType::F64,
        (Physical::Bool, _) => DType::Bool,
        (Physical::Bytes, _) => DType::U8,
    }
}

/// The length of the items in a column of lists of lists, by its first page with values.
async fn length_of_items(kept: &KeptParts, file: &Object, footer: &Footer, candidate: &Candidate) -> Result<u32> {
    let at = |e: Error| e.at_object(format!("{}, column {}", kept.source().display_name(&file.name), candidate.name));
    let length = async {
        let Some((chunk, range)) = first_chunk(footer, candidate.leaf) else { return Ok(None) };
        let first = page(kept, file, range.clone()).await?;
        let mut pages = vec![(first.header, first.body)];
        if pages[0].0.kind == PageKind::Dictionary {
            let next = page(kept, file, first.range.end..range.end).await?;
            pages.push((next.header, next.body));
        }
        decode::length_of_items(chunk, &pages).map_err(|e| e.at_range(range.clone()))
    };
    length.await.map_err(at)?.ok_or_else(|| {
        at(Error::new(ErrorKind::Unsupported, "the items in its first page have several lengths, or there are none")
            .with_hint(format!("omit the column with {COLUMNS}")))
    })
}

/// The first value of a column. Reads the column's first page.
async fn first_value(kept: &KeptParts, file: &Object, footer: &Footer, leaf: usize) -> Result<Option<Vec<u8>>> {
    let Some((chunk, range)) = first_chunk(footer, leaf) else { return Ok(None) };
    let Page { header, body, range } = page(kept, file, range.clone()).await?;
    decode::first_value(chunk, &header, &body).map_err(|e| e.at_range(range))
}

/// Whether the first value of a column is an image that a codec reads.
fn is_image(first: &[u8], leaf: &Leaf) -> bool {
    match sniff::picture(first) {
        Some(found) if !found.is_read => {
            let column = leaf.path.join(".");
            tracing::warn!(
                column,
                kind = found.name,
                "images of a kind that no codec reads: their files are given as bytes"
            );
            false
        }
        found => found.is_some(),
    }
}

/// The first chunk of a column with rows.
fn first_chunk(footer: &Footer, leaf: usize) -> Option<&(Chunk, Range<u64>)> {
    let first = footer.groups.iter().find(|group| group.rows > 0);
    first.and_then(|group| group.chunks[leaf].as_ref().ok())
}

/// A page, and where it is in its file.
struct Page {
    header: PageHeader,
    body: Bytes,
    range: Range<u64>,
}

/// Reads the page at the start of `range`, which is in one column.
async fn page(kept: &KeptParts, file: &Object, range: Range<u64>) -> Result<Page> {
    let bytes = kept.get(file, &format!("page {}", range.start), fetch_page(kept.source(), file, &range)).await?;
    let (header, length) = thrift::page_header(&bytes).ok_or_else(|| headless(&range))?;
    let end = range.start + bytes.len() as u64;
    Ok(Page { header, body: bytes.slice(length..), range: range.start..end })
}

fn headless(range: &Range<u64>) -> Error {
    damaged("a column without a page header").at_range(range.clone())
}

/// The bytes of a page: its header and its body.
async fn fetch_page(source: &Source, file: &Object, range: &Range<u64>) -> Result<Bytes> {
    let read = |length: u64| {
        let mut extent = file.extent(source);
        extent.range = range.start..range.start + length.min(range.end - range.start);
        async move { extent.read().await }
    };
    // Statistics in the header may contain two whole values.
    let mut head = read(64 << 10).await?;
    let (header, length) = loop {
        match thrift::page_header(&head) {
            Some(header) => break header,
            None if (head.len() as u64) < (range.end - range.start).min(PROBE) => {
                head = read(head.len() as u64 * 8).await?
            }
            None => return Err(headless(range)),
        }
    };
    let end = length as u64 + u64::from(header.packed);
    if end.max(header.unpacked.into()) > PROBE {
        let what = format!("a page of {end} bytes, but at most {PROBE} are read to find out what a column holds");
        return Err(Error::new(ErrorKind::Unsupported, what)
            .at_range(range.clone())
            .with_hint(format!("write the file with smaller pages, or omit the column with {COLUMNS}")));
    }
    if (head.len() as u64) < end {
        head = read(end).await?;
    }
    match (head.len() as u64) < end {
        true => Err(damaged("the first page of a column is truncated").at_range(range.clone())),
        false => Ok(head.slice(..end as usize)),
    }
}

/// Warns about columns that are not read.
fn tell_left_out(all: &[Candidate], leaves: &[Leaf]) {
    // The path next to an image is the former place of its file, so it needs no warning.
    let beside_image = |leaf: &Leaf| {
        let of = |other: &&Candidate| other.usual && leaves[other.leaf].path.len() == 2;
        leaf.path.len() == 2 && all.iter().filter(of).any(|other| leaves[other.leaf].path[0] == leaf.path[0])
    };
    let left = all.iter().filter(|candidate| !candidate.usual && !beside_image(&leaves[candidate.leaf]));
    let named = left.map(|candidate| match leaves[candidate.leaf].physical {
        Ok(_) if leaves[candidate.leaf].time => format!("{} (times)", candidate.name),
        Ok(_) => candidate.name.clone(),
        Err(why) => format!("{} ({why})", candidate.name),
    });
    let named: Vec<String> = named.collect();
    if !named.is_empty() {
        let columns = named.join(", ");
        tracing::warn!(
            columns,
            "columns are left out: types that are not read; parts of structs, and times as their counts, which {COLUMNS} can add"
        );
    }
}
