//! Finds the image that a name in a table stands for.

use std::{borrow::Cow, cell::OnceCell, collections::HashMap};

use infeed_core::error::{Error, Result};

use crate::{
    layout,
    names::{base, ends_with, is_image, is_unread_image, other_spellings, parent},
};

/// At most this many folders are compared, which limits the time per name.
const DEEPEST: usize = 64;

/// Whether a name ends like a file of images.
pub(super) fn is_image_like(name: &str) -> bool {
    // Includes formats that are not read, because the images may have been converted since.
    let ending = name.rfind('.').map_or("", |dot| &name[dot..]);
    is_image(name) || is_unread_image(ending) || [".dcm", ".npy"].iter().any(|other| ends_with(name, other))
}

/// The name without the extension of an image, if it has one: `img.v2` has none.
fn stem(name: &str) -> &str {
    if is_image_like(name) { name.rfind('.').map_or(name, |dot| &name[..dot]) } else { name }
}

/// The folder and the number of `007` and `7`; `None` if the name is not all digits.
fn number(stem: &str) -> Option<(&str, &str)> {
    let name = base(stem);
    let folder = &stem[..stem.len() - name.len()];
    let digits = name.trim_start_matches('0');
    let all = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    all.then_some((folder, if digits.is_empty() { "0" } else { digits }))
}

/// The word of a split's name without a year: `train` of `Train2017`.
fn split_word(folder: &str) -> String {
    folder.trim_end_matches(|c: char| c.is_ascii_digit()).to_ascii_lowercase()
}

/// How folders in the table's names relate to those of the dataset; the same for a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderMatch {
    /// They are the same, or the table's names begin with folders of the dataset's own place.
    Named,
    /// The dataset's images are in folders that the table does not name.
    Below,
    /// The table names folders that the dataset's names do not have.
    Elsewhere,
}

pub(super) const WAYS: [FolderMatch; 3] = [FolderMatch::Named, FolderMatch::Below, FolderMatch::Elsewhere];

/// How the last part of a name differs. A later kind is used only for images that no earlier kind matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Leaf {
    Equal,
    /// The table omits the extension, or writes it in another case.
    NoEnding,
    /// `a.jpg` for `a.png`.
    OtherEnding,
    /// `7` for `007`.
    Zeros,
}

/// The images that a name may stand for: the first, and a second if there are several.
#[derive(Clone, Copy, Debug)]
struct Meant(u32, Option<u32>);

fn add<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Meant>, key: K, image: u32) {
    let meant = map.entry(key).or_insert(Meant(image, None));
    if meant.0 != image {
        meant.1 = Some(image);
    }
}

/// Images by their names, or by the ends of their names.
#[derive(Debug)]
struct Index<'a> {
    keys: Vec<(&'a str, u32)>,
    equal: HashMap<&'a str, Meant>,
    /// Made on first use: not needed for a table with exact names.
    stems: OnceCell<HashMap<&'a str, Meant>>,
    numbers: OnceCell<HashMap<(&'a str, &'a str), Meant>>,
}

impl<'a> Index<'a> {
    fn new(keys: Vec<(&'a str, u32)>) -> Self {
        let mut equal = HashMap::with_capacity(keys.len());
        keys.iter().for_each(|(key, image)| add(&mut equal, *key, *image));
        Self { keys, equal, stems: OnceCell::new(), numbers: OnceCell::new() }
    }

    fn find(&self, name: &str) -> Option<(Meant, Leaf)> {
        if let Some(meant) = self.equal.get(name) {
            return Some((*meant, Leaf::Equal));
        }
        let short = stem(name);
        let ending = &name[short.len()..];
        if !ending.is_empty() {
            for ending in [ending.to_ascii_lowercase(), ending.to_ascii_uppercase()] {
                if let Some(meant) = self.equal.get(&*format!("{short}{ending}")) {
                    return Some((*meant, Leaf::NoEnding));
                }
            }
        }
        let stems = self.stems.get_or_init(|| {
            let mut stems = HashMap::with_capacity(self.keys.len());
            self.keys.iter().for_each(|(key, image)| add(&mut stems, stem(key), *image));
            stems
        });
        if let Some(meant) = stems.get(short) {
            return Some((*meant, if ending.is_empty() { Leaf::NoEnding } else { Leaf::OtherEnding }));
        }
        let key = number(short)?;
        let numbers = self.numbers.get_or_init(|| {
            let mut numbers = HashMap::new();
            let keys = self.keys.iter().filter_map(|(key, image)| Some((number(stem(key))?, *image)));
            keys.for_each(|(key, image)| add(&mut numbers, key, image));
            numbers
        });
        numbers.get(&key).map(|meant| (*meant, Leaf::Zeros))
    }
}

/// The row of each image.
#[derive(Debug)]
pub(crate) struct FoundRows {
    /// The row of each image.
    pub(crate) rows: Vec<Option<usize>>,
    /// The number of rows without an image, and the first of them.
    pub(super) strays: Option<(usize, usize)>,
}

/// The names of a dataset's images, and a search among them.
#[derive(Debug)]
pub(crate) struct Names<'a> {
    names: &'a [&'a str],
    /// The folders of the dataset's place, the last first: each with those after it, and a `/`.
    places: Vec<String>,
    /// The split that the place is of, by its folders.
    split: Option<String>,
    whole: OnceCell<Index<'a>>,
    ends: OnceCell<Index<'a>>,
}

impl<'a> Names<'a> {
    /// The names of images in a dataset at `url`. Costs nothing before the first search.
    pub(crate) fn new(names: &'a [&'a str], url: &str) -> Self {
        let path = url.split_once("://").map_or(url, |(_, path)| path).trim_end_matches('/');
        let places = path.rmatch_indices('/').map(|(at, _)| at + 1).chain([0]);
        let places = places.map(|at| format!("{}/", &path[at..])).filter(|place| place.len() > 1);
        let split = path.rsplit('/').find(|folder| layout::is_split(folder)).map(split_word);
        Self { names, places: places.take(DEEPEST).collect(), split, whole: OnceCell::new(), ends: OnceCell::new() }
    }

    fn whole(&self) -> &Index<'a> {
        self.whole.get_or_init(|| Index::new(self.names.iter().zip(0..).map(|(name, i)| (*name, i)).collect()))
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn name(&self, image: usize) -> &'a str {
        self.names[image]
    }

    pub(super) fn any(&self, test: impl Fn(&str) -> bool) -> bool {
        self.names.iter().any(|name| test(name))
    }

    /// Other Unicode forms count as the same name.
    fn find(&self, written: &str, way: FolderMatch) -> Option<(Meant, Leaf)> {
        let found = self.find_spelled(written, way);
        found.or_else(|| other_spellings(written).find_map(|other| self.find_spelled(&other, way)))
    }

    fn find_spelled(&self, written: &str, way: FolderMatch) -> Option<(Meant, Leaf)> {
        if written.is_empty() {
            return None;
        }
        let (name, whole) = (normal(written), self.whole());
        match way {
            FolderMatch::Named => {
                let found = whole.equal.get(written).map(|meant| (*meant, Leaf::Equal));
                found.or_else(|| whole.find(&name)).or_else(|| {
                    let rests = self.places.iter().filter_map(|place| name.strip_prefix(place.trim_start_matches('/')));
                    rests.filter_map(|rest| whole.find(rest)).next()
                })
            }
            FolderMatch::Below => {
                let ends = self.ends.get_or_init(|| {
                    let ends = |(name, i): (&&'a str, u32)| {
                        let name: &'a str = name;
                        name.match_indices('/').take(DEEPEST).map(move |(at, _)| (&name[at + 1..], i))
                    };
                    Index::new(self.names.iter().zip(0..).flat_map(ends).collect())
                });
                ends.find(&name)
            }
            FolderMatch::Elsewhere => {
                // Files of two splits may have the same names.
                let is_of = |folder: &str| self.split.as_ref().is_none_or(|split| split_word(folder) == *split);
                let mut splits = parent(&name).split('/').filter(|folder| layout::is_split(folder)).peekable();
                if splits.peek().is_some() && !splits.any(is_of) {
                    return None;
                }
                let ends = name.match_indices('/').take(DEEPEST).map(|(at, _)| &name[at + 1..]);
                ends.filter_map(|end| whole.find(end)).next()
            }
        }
    }

    /// Whether a cell names an image in any way.
    pub(super) fn means_one(&self, written: &str) -> bool {
        WAYS.into_iter().any(|way| self.find(written, way).is_some())
    }

    /// The number of images that these cells name, in the way that finds the most.
    pub(super) fn count(&self, cells: impl Iterator<Item = String>) -> usize {
        let cells: Vec<String> = cells.collect();
        WAYS.into_iter().map(|way| self.count_by(way, cells.iter().map(String::as_str)).0).max().unwrap_or(0)
    }

    /// The number of images that these cells name in one way, and the number of exact names among them.
    pub(super) fn count_by<'b>(&self, way: FolderMatch, cells: impl Iterator<Item = &'b str>) -> (usize, usize) {
        let found = cells.filter_map(|cell| self.find(cell, way)).map(|(meant, leaf)| (meant.0, leaf));
        let mut images: Vec<(u32, Leaf)> = found.collect();
        images.sort_unstable();
        images.dedup_by_key(|(image, _)| *image);
        (images.len(), images.iter().filter(|(_, leaf)| *leaf <= Leaf::NoEnding).count())
    }

    /// The row of each image, for a table whose rows have the names `written`. `equal` returns an error with the
    /// difference if two rows differ.
    ///
    /// # Errors
    /// `Corrupt` if a row may stand for two images, or if two different rows stand for one image.
    pub(crate) fn rows_of(
        &self,
        written: &[&str],
        equal: impl Fn(usize, usize) -> std::result::Result<(), String>,
    ) -> Result<FoundRows> {
        let all = |way: FolderMatch| -> Vec<(usize, Meant, Leaf)> {
            let found = written.iter().enumerate().filter_map(|(row, name)| {
                let (meant, leaf) = self.find(name, way)?;
                Some((row, meant, leaf))
            });
            found.collect()
        };
        let found = WAYS.into_iter().map(|way| (way, all(way))).find(|(_, found)| !found.is_empty());
        let Some((way, mut found)) = found else {
            let strays = (!written.is_empty()).then_some((written.len(), 0));
            return Ok(FoundRows { rows: vec![None; self.len()], strays });
        };
        // Exact names take precedence over approximate ones.
        found.sort_by_key(|(row, _, leaf)| (*leaf, *row));
        let mut rows: Vec<Option<(usize, Leaf)>> = vec![None; self.len()];
        let mut stray = vec![true; written.len()];
        for &(row, Meant(image, other), leaf) in &found {
            let name = written[row];
            if let Some(other) = other {
                let what =
                    format!("`{name}` may be `{}` or `{}`", self.name(image as usize), self.name(other as usize));
                return Err(Error::corrupt(what).with_hint("name the files as the dataset does"));
            }
            let image = image as usize;
            let (known, strict) = *rows[image].get_or_insert((row, leaf));
            if strict < leaf {
                continue;
            }
            stray[row] = false;
            if known == row {
                continue;
            }
            let first = written[known];
            if normal(first) == normal(name) {
                equal(known, row).map_err(|what| Error::corrupt(format!("`{name}` has {what}")))?;
            } else if way == FolderMatch::Elsewhere || equal(known, row).is_err() {
                let what = format!("`{first}` and `{name}` may both be `{}`", self.name(image));
                return Err(Error::corrupt(what).with_hint("name the files as the dataset does"));
            }
        }
        self.tell(written, &rows, way);
        let strays = stray.iter().position(|stray| *stray).map(|first| (stray.iter().filter(|s| **s).count(), first));
        Ok(FoundRows { rows: rows.into_iter().map(|row| row.map(|(row, _)| row)).collect(), strays })
    }

    /// Warns about names that differ from those of the images.
    fn tell(&self, written: &[&str], rows: &[Option<(usize, Leaf)>], way: FolderMatch) {
        let told = |by: &str, loose: &dyn Fn(Leaf) -> bool| {
            let mut loose = rows
                .iter()
                .enumerate()
                .filter_map(|(image, row)| row.filter(|(_, leaf)| loose(*leaf)).map(|(row, _)| (image, row)));
            if let Some((image, row)) = loose.next() {
                let (count, image, listed) = (1 + loose.count(), self.name(image), written[row]);
                tracing::warn!(
                    count,
                    listed,
                    image,
                    "names in the table differ from those of the images in {by}, and are matched with them"
                );
            }
        };
        if way != FolderMatch::Named {
            told("folders", &|_| true);
        }
        told("extensions", &|leaf| leaf == Leaf::OtherEnding);
        told("leading zeros", &|leaf| leaf == Leaf::Zeros);
    }
}

/// The images that a table names, each once or more. Only an extension may be missing.
#[derive(Debug)]
pub(crate) struct NamedImages<'a>(pub(crate) Names<'a>);

impl NamedImages<'_> {
    /// The image called `written` in a table of this folder: relative to the folder, otherwise to the dataset. Exclusive,
    /// because indexes are made at the first search.
    ///
    /// # Errors
    /// `Corrupt` if two images may be meant.
    pub(crate) fn of(&mut self, folder: &str, written: &str) -> Result<Option<u32>> {
        if !folder.is_empty()
            && let Some(meant) = self.0.whole().equal.get(&*format!("{folder}/{}", normal(written)))
        {
            return Ok(Some(meant.0));
        }
        self.by(FolderMatch::Named, written)
    }

    /// The images of all these names, if none of them is that of an image as a whole: folders differ in one way for all,
    /// and a warning names the first.
    ///
    /// # Errors
    /// Those of [`of`](Self::of).
    pub(crate) fn by_ends(&self, written: &[&str]) -> Result<Vec<Option<u32>>> {
        let mut found = vec![None; written.len()];
        for way in [FolderMatch::Below, FolderMatch::Elsewhere] {
            found = written.iter().map(|name| self.by(way, name)).collect::<Result<_>>()?;
            if let Some((listed, image)) = written.iter().zip(&found).find_map(|(name, image)| Some((name, (*image)?)))
            {
                let image = self.0.name(image as usize);
                tracing::warn!(
                    listed,
                    image,
                    "names in the table differ from those of the images in folders, and are matched with them"
                );
                break;
            }
        }
        Ok(found)
    }

    fn by(&self, way: FolderMatch, written: &str) -> Result<Option<u32>> {
        let name = |image: u32| self.0.name(image as usize);
        match self.0.find(written, way).filter(|(_, leaf)| *leaf <= Leaf::NoEnding) {
            Some((Meant(image, Some(other)), _)) => {
                let what = format!("`{written}` may be `{}` or `{}`", name(image), name(other));
                Err(Error::corrupt(what).with_hint("name the files as the dataset does"))
            }
            found => Ok(found.map(|(Meant(image, _), _)| image)),
        }
    }
}

/// A path or url in the form of the dataset's names: `/` between folders, nothing before the first.
fn normal(written: &str) -> Cow<'_, str> {
    let written = written.split_once("://").map_or(written, |(_, path)| path);
    let mut name = match written.contains('\\') {
        true => Cow::from(written.replace('\\', "/")),
        false => Cow::from(written),
    };
    let plain = name.trim_start_matches("./").trim_start_matches('/');
    if plain.len() < name.len() {
        name = plain.to_owned().into();
    }
    if name.contains("//") || name.contains("/./") {
        let parts: Vec<_> = name.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        name = parts.join("/").into();
    }
    name
}
