//! Finds arrays that are one record each: `0000/image`, `0001/image`, …, or `img_0001`, `img_0002`, ….
//!
//! Siblings of equal types whose names differ in a number are stacked: one array with an axis of records before the
//! others. But views or folds may have such names too. So if the names do not look like those of records, `open`
//! returns an error until the user names the arrays.

use std::collections::{BTreeMap, BTreeSet};

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::COLUMNS},
    types::DType,
};
use infeed_data::{arrays::listed, names::SPLITS};

use super::array::{ChunkPlace, ChunkedArray};

/// A field: one array, or many that are a record each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// The name of the field.
    pub(crate) name: String,
    /// Indices of the arrays: one, or one per record in their order.
    pub(crate) parts: Vec<usize>,
    /// Whether each part is a record, rather than each row of the only part.
    pub(crate) stacked: bool,
}

impl Series {
    /// A field of the rows of one array.
    pub(crate) fn of(name: &str, at: usize) -> Self {
        Self { name: name.to_owned(), parts: vec![at], stacked: false }
    }
}

/// An array that was found: name, type and shape.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight<'a> {
    pub(crate) name: &'a str,
    pub(crate) dtype: DType,
    pub(crate) shape: &'a [u64],
}

/// A name with a number in one of its words: `data/img_0001/mask`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Numbered<'a> {
    /// `data/img_`
    before: &'a str,
    /// `mask`, also for `data/img_0001/mask_0001`.
    behind: String,
}

/// This many numbers or more, even without leading zeros, are those of records.
const MANY: usize = 8;
/// Fewer arrays with one axis, such as `x1` and `x2`, are columns.
const COLUMNS_AT_MOST: usize = 32;
/// Fewer groups with equal members are not records.
const SOME: usize = 4;
/// Words before the numbers of records.
const RECORDS: [&str; 16] = [
    "sample", "record", "item", "example", "ex", "case", "patient", "subject", "sub", "demo", "episode", "traj",
    "event", "id", "idx", "index",
];

/// How the names of groups begin that hold the same records in several ways.
const KINDS: [&str; 14] = [
    "image", "img", "mask", "label", "seg", "target", "input", "output", "data", "feature", "depth", "rgb", "obs",
    "action",
];

/// Splits a path at its first word that ends in a number or is one.
fn numbered(name: &str) -> Option<(Numbered<'_>, &str)> {
    let mut start = 0;
    for word in name.split('/') {
        // `0001.jpg`: the field is `jpg`.
        let ending = word
            .rsplit_once('.')
            .map(|(_, ending)| ending)
            .filter(|ending| (1..6).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphabetic()));
        let end = start + word.len() - ending.map_or(0, |ending| ending.len() + 1);
        let digits = name[start..end].bytes().rev().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let (before, number) = name[..end].split_at(end - digits);
            let behind = name[end..].trim_start_matches(['/', '.']).split('/').map(|word| without(word, number));
            let behind = behind.collect::<Vec<_>>().join("/");
            return Some((Numbered { before, behind }, number));
        }
        start += word.len() + 1;
    }
    None
}

/// Beginnings of names that differ in a number before their last one, `TCGA-02-` and `TCGA-06-`, if the last one has
/// three digits or more.
fn of_several_numbers<'a>(arrays: &[Sight<'a>]) -> BTreeSet<&'a str> {
    let mut alike: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for array in arrays {
        if let Some((Numbered { before, .. }, number)) = numbered(array.name)
            && number.len() >= 3
        {
            let word = |letter: char| if letter.is_ascii_digit() { '0' } else { letter };
            alike.entry(before.chars().map(word).collect()).or_default().insert(before);
        }
    }
    alike.into_values().filter(|all| all.len() > 1).flatten().collect()
}

/// A word without its record's number at the end.
fn without<'a>(word: &'a str, number: &str) -> &'a str {
    let rest = word.strip_suffix(number).filter(|rest| !rest.ends_with(|c: char| c.is_ascii_digit()));
    let rest = rest.map(|rest| rest.trim_end_matches(['_', '-', '.', ' ', '#']));
    rest.filter(|rest| !rest.is_empty()).unwrap_or(word)
}

fn last_word(before: &str) -> &str {
    before.rsplit('/').next().unwrap_or(before).trim_end_matches(['_', '-', '.', ' ', '#'])
}

/// Whether siblings with these names are records; `None` if they may be something else, such as views.
fn are_records(before: &str, numbers: &BTreeSet<&str>, axes: usize) -> Option<bool> {
    let word = last_word(before).to_ascii_lowercase();
    let padded = numbers.iter().any(|number| number.len() >= 3);
    let sure = word.is_empty() || RECORDS.contains(&&*word);
    match () {
        () if sure => Some(true),
        // `x1`, `x2`: columns.
        () if axes < 2 && numbers.len() < COLUMNS_AT_MOST => Some(false),
        () if axes < 2 => None,
        () if padded || numbers.len() >= MANY => Some(true),
        () => None,
    }
}

/// Decides which arrays are fields, and which are records of a field.
///
/// # Errors
/// `Config` if this is unclear, `NotFound` if a record lacks an array that others have.
pub(crate) fn series(arrays: &[Sight<'_>]) -> Result<Vec<Series>> {
    let mut families: BTreeMap<&str, BTreeMap<String, BTreeMap<&str, usize>>> = BTreeMap::new();
    let several = of_several_numbers(arrays);
    for (at, array) in arrays.iter().enumerate() {
        if let Some((Numbered { before, behind }, number)) = numbered(array.name) {
            // `TCGA-02-0001`: the number is the whole word.
            let start = before.rfind('/').map_or(0, |at| at + 1);
            let (before, number) = match several.contains(before) {
                true => (&before[..start], &array.name[start..before.len() + number.len()]),
                false => (before, number),
            };
            families.entry(before).or_default().entry(behind).or_default().insert(number, at);
        }
    }
    let mut found = Vec::new();
    let mut taken = BTreeSet::new();
    // Records may have ids that are not numbers: sibling groups with the same members.
    let mut groups = BTreeMap::new();
    for array in arrays.iter().enumerate() {
        named(array, &mut groups);
    }
    let families = families.iter().map(|family| (family, false)).chain(groups.iter().map(|family| (family, true)));
    for ((before, members), by_name) in families {
        let numbers: BTreeSet<&str> = members.values().flat_map(|parts| parts.keys().copied()).collect();
        let parts = || members.values().flat_map(|parts| parts.values().map(|at| &arrays[*at]));
        let alike = |of: &BTreeMap<&str, usize>| {
            let mut all = of.values().map(|at| (arrays[*at].dtype, arrays[*at].shape.len()));
            let first = all.next();
            all.all(|other| Some(other) == first)
        };
        // The layers of a network are numbered too, but differ in type or rank, or only some have a member.
        let whole = members.values().filter(|of| of.len() == numbers.len()).count();
        if numbers.len() < 2 || whole == 0 || !members.values().all(alike) {
            continue;
        }
        let is_taken = members.values().flat_map(BTreeMap::values).any(|at| taken.contains(at));
        if by_name && (whole < members.len() || is_taken || numbers.iter().any(|name| is_split(name))) {
            continue;
        }
        let axes = parts().map(|array| array.shape.len()).max().unwrap_or(0);
        let grouped = members.keys().any(|behind| !behind.is_empty());
        let same = |of: &BTreeMap<&str, usize>| of.values().all(|at| arrays[*at].shape == arrays[first(of)].shape);
        let sure = match by_name {
            true if numbers.len() < SOME => Some(false),
            // With a member that is a single number, the groups are records: a single number has no rows.
            true => Some(true).filter(|_| parts().any(|array| array.shape.is_empty())),
            false => are_records(before, &numbers, if grouped { axes.max(2) } else { axes }),
        };
        match sure {
            Some(false) => continue,
            None if !members.values().all(same) => continue,
            None => {
                let names = listed(parts().map(|array| array.name));
                let what = format!("{} arrays may be a record each, or fields: {names}", parts().count());
                let all: Vec<&str> = parts().map(|array| array.name).take(6).collect();
                return Err(Error::config(what).with_hint(format!(
                    "if their first axes count the records, name them: {}; if each is a record, write one array of many rows",
                    COLUMNS.to_list(&all)
                )));
            }
            Some(true) => {}
        }
        for (behind, of) in members {
            if let Some(lacking) = numbers.iter().find(|number| !of.contains_key(*number)) {
                let like = arrays[first(of)].name;
                let slash = if behind.is_empty() { "" } else { "/" };
                let what = format!("no `{before}{lacking}{slash}{behind}`: other records have it, such as `{like}`");
                return Err(Error::new(ErrorKind::NotFound, what)
                    .with_hint(format!("write it, or name the fields that every record has with {COLUMNS}")));
            }
            let mut ordered: Vec<(&str, usize)> = of.iter().map(|(number, at)| (*number, *at)).collect();
            // Sort by value: 2 before 10.
            if !by_name && ordered.iter().all(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())) {
                ordered.sort_by_key(|(number, _)| {
                    let digits = number.trim_start_matches('0');
                    (digits.len(), digits, number.len())
                });
            }
            let parts: Vec<usize> = ordered.into_iter().map(|(_, at)| at).collect();
            taken.extend(parts.iter().copied());
            found.push(Series { name: field_of(before, behind), parts, stacked: true });
        }
    }
    let rows = arrays.iter().enumerate().filter(|(at, _)| !taken.contains(at));
    found.extend(rows.map(|(at, array)| Series { name: array.name.to_owned(), parts: vec![at], stacked: false }));
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Warns of fields that may be meant in another way: many arrays of one shape, which may be a record each, and groups of
/// records, which may be classes.
pub(crate) fn tell_alike(arrays: &[Sight<'_>], series: &[Series]) {
    if let Some(groups) = alike_groups(series) {
        tracing::warn!(
            groups,
            "arrays of these groups are fields of one record; if the groups are classes, save the labels as an array; if \
             they are records, write one array of many rows, or a file for each"
        );
    }
    let fields = || series.iter().filter(|series| !series.stacked).map(|series| &arrays[series.parts[0]]);
    let Some(first) = fields().next().filter(|first| first.shape.len() > 1) else { return };
    if fields().count() >= MANY && fields().all(|other| (other.dtype, other.shape) == (first.dtype, first.shape)) {
        let arrays = listed(fields().map(|array| array.name));
        let records = first.shape[0];
        tracing::warn!(
            arrays,
            "arrays of one shape are fields of {records} records; if each is a record, write one array of many rows"
        );
    }
}

/// Groups with series of the same names, which are fields of one record, unless their names show that they are.
fn alike_groups(series: &[Series]) -> Option<String> {
    // Next to an array of all, such as labels, groups are kinds of data. Groups of splits are another error.
    let are_all =
        series.iter().all(|of| of.name.split('/').all(|part| !SPLITS.contains(&part)) && of.name.contains('/'));
    let groups = || series.iter().filter(|of| of.stacked || are_all).filter_map(|of| of.name.rsplit_once('/'));
    let is_kind = |group: &str| {
        let last = group.rsplit('/').next().unwrap_or(group);
        let begins = |word: &&str| last.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
        ["x", "y"].iter().any(|word| word.eq_ignore_ascii_case(last)) || KINDS.iter().any(begins)
    };
    let names: BTreeSet<&str> = groups().map(|(group, _)| group).collect();
    let fields: BTreeSet<&str> = groups().map(|(_, field)| field).collect();
    let alike = names.len() > 1 && fields.len() < groups().count();
    (alike && !names.iter().any(|group| is_kind(group))).then(|| listed(&names))
}

/// Adds an array to the families of the groups that contain it.
fn named<'a>(
    (at, array): (usize, &Sight<'a>),
    families: &mut BTreeMap<&'a str, BTreeMap<String, BTreeMap<&'a str, usize>>>,
) {
    let mut start = 0;
    for (end, _) in array.name.match_indices('/') {
        let behind = array.name[end + 1..].to_owned();
        let members = families.entry(&array.name[..start]).or_default();
        members.entry(behind).or_default().insert(&array.name[start..end], at);
        start = end + 1;
    }
}

fn is_split(name: &str) -> bool {
    SPLITS.iter().any(|split| split.eq_ignore_ascii_case(name))
}

fn first(of: &BTreeMap<&str, usize>) -> usize {
    of.values().copied().next().unwrap_or_default()
}

/// `data/mask` of `data/img_0001/mask`, `data/img` of `data/img_0001`, `images` of `images/7`.
fn field_of(before: &str, behind: &str) -> String {
    let own = match behind {
        "" => before.trim_end_matches(['_', '-', '.', ' ', '#', '/']).to_owned(),
        behind => {
            let folder = before.rsplit_once('/').map_or("", |(folder, _)| folder);
            if folder.is_empty() { behind.to_owned() } else { format!("{folder}/{behind}") }
        }
    };
    if own.is_empty() { "array".to_owned() } else { own }
}

/// Stacks arrays that are a record each into one.
///
/// # Errors
/// `Unsupported` if arrays differ in shape or in the way they are stored.
pub(crate) fn stacked(name: String, arrays: Vec<ChunkedArray>) -> Result<ChunkedArray> {
    let count = arrays.len() as u64;
    let mut arrays = arrays.into_iter();
    let Some(first) = arrays.next() else { return Err(Error::new(ErrorKind::Internal, "a series of no arrays")) };
    let cells = first.grid().iter().try_fold(1u64, |cells, n| cells.checked_mul(*n));
    let beyond = || Error::corrupt(format!("{count} arrays of shape {:?}", first.shape));
    let cells = cells.filter(|cells| cells.checked_mul(count).is_some()).ok_or_else(beyond)?;
    let mut places: Vec<ChunkPlace> = first.places.clone();
    for (at, array) in (1..).zip(arrays) {
        let refused = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
            let (one, other) = (&first.name, &array.name);
            Error::new(ErrorKind::Unsupported, format!("records of several {what}: `{one}` {a:?}, `{other}` {b:?}"))
        };
        if array.shape != first.shape {
            return Err(refused("shapes", &first.shape, &array.shape)
                .with_hint(format!("write them with one shape, or omit `{name}` from {COLUMNS}")));
        }
        if array.dtype != first.dtype {
            return Err(refused("types", &first.dtype, &array.dtype).with_hint("write them with one type"));
        }
        let way = |array: &ChunkedArray| (array.chunk.clone(), array.order.clone(), array.swapped, array.fill.clone());
        if way(&array) != way(&first) || array.filters != first.filters || array.unpacking != first.unpacking {
            return Err(refused("storage layouts: chunks of", &first.chunk, &array.chunk).with_hint(
                "write all of them with the same chunks, filters and attributes (h5repack -l CHUNK=… OLD NEW)",
            ));
        }
        places.extend(array.places.into_iter().map(|place| ChunkPlace { number: place.number + at * cells, ..place }));
    }
    let before = |one: u64, axes: &[u64]| std::iter::once(one).chain(axes.iter().copied()).collect();
    let order = std::iter::once(0).chain(first.order.iter().map(|axis| axis + 1)).collect();
    Ok(ChunkedArray {
        name,
        shape: before(count, &first.shape),
        chunk: before(1, &first.chunk),
        order,
        places,
        ..first
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arrays: &[(&str, &[u64])]) -> Result<Vec<String>> {
        let sights: Vec<Sight<'_>> =
            arrays.iter().map(|(name, shape)| Sight { name, dtype: DType::U8, shape }).collect();
        let line = |series: Series| {
            let parts: Vec<&str> = series.parts.iter().map(|at| arrays[*at].0).collect();
            if series.stacked { format!("{}: {}", series.name, parts.join(" ")) } else { series.name }
        };
        Ok(series(&sights)?.into_iter().map(line).collect())
    }

    fn reads(arrays: &[(&str, &[u64])], lines: &[&str]) {
        assert_eq!(names(arrays).unwrap_or_else(|e| panic!("{arrays:?}: {e}")), lines, "{arrays:?}");
    }

    #[test]
    fn numbered_siblings_are_records() {
        let square = &[3, 2][..];
        reads(
            &[("0/image", square), ("1/image", square), ("10/image", square), ("2/image", square)],
            &["image: 0/image 1/image 2/image 10/image"],
        );
        reads(
            &[("0/image", square), ("0/label", &[]), ("1/image", square), ("1/label", &[])],
            &["image: 0/image 1/image", "label: 0/label 1/label"],
        );
        reads(
            &[("images/001", square), ("images/002", square), ("labels", &[2])],
            &["images: images/001 images/002", "labels"],
        );
        reads(&[("img_0001", square), ("img_0002", square)], &["img: img_0001 img_0002"]);
        reads(
            &[("train/sample_1/x", square), ("train/sample_2/x", square)],
            &["train/x: train/sample_1/x train/sample_2/x"],
        );
        reads(&[("7", &[9]), ("8", &[9])], &["array: 7 8"]);
        // Ids of two numbers are one family.
        reads(
            &[
                ("TCGA-02-0001/x", square),
                ("TCGA-02-0002/x", square),
                ("TCGA-06-0001/x", square),
                ("TCGA-06-0003/x", square),
            ],
            &["x: TCGA-02-0001/x TCGA-02-0002/x TCGA-06-0001/x TCGA-06-0003/x"],
        );
        reads(&[("s_001/x_001", square), ("s_002/x_002", square)], &["x: s_001/x_001 s_002/x_002"]);
    }

    #[test]
    fn groups_that_may_be_classes_are_found() {
        let of = |groups: [&str; 2]| {
            let names: Vec<String> =
                groups.iter().flat_map(|group| [0, 1].map(|i| format!("{group}/{i}.zarr"))).collect();
            let sights: Vec<Sight<'_>> =
                names.iter().map(|name| Sight { name, dtype: DType::U8, shape: &[5, 4] }).collect();
            alike_groups(&series(&sights).unwrap())
        };
        assert_eq!(of(["cat", "dog"]).as_deref(), Some("cat, dog"));
        for kinds in [["images", "masks"], ["X", "y"], ["demo/next_obs", "demo/obs"]] {
            assert_eq!(of(kinds), None, "{kinds:?}");
        }
    }

    #[test]
    fn ids_that_are_no_numbers_are_records_where_their_members_tell() {
        let square = &[3, 2][..];
        reads(&[("0001.jpg", square), ("0002.jpg", square)], &["jpg: 0001.jpg 0002.jpg"]);
        let of = |id: &str| [(format!("d/{id}/x"), square), (format!("d/{id}/y"), &[][..])];
        // Some ids end in a number.
        let ids: Vec<_> = ["a1", "bc", "bc7", "de"].iter().flat_map(|id| of(id)).collect();
        let ids: Vec<_> = ids.iter().map(|(name, shape)| (&**name, *shape)).collect();
        reads(&ids, &["d/x: d/a1/x d/bc/x d/bc7/x d/de/x", "d/y: d/a1/y d/bc/y d/bc7/y d/de/y"]);
        let views = [("left/fps", &[][..]), ("left/x", square), ("right/fps", &[]), ("right/x", square)];
        reads(&views, &["left/fps", "left/x", "right/fps", "right/x"]);
        // Enough groups that the user has to decide.
        let text = names(&[("af/x", square), ("bc/x", square), ("cd/x", square), ("de/x", square)]).unwrap_err();
        assert!(text.to_string().contains("4 arrays may be a record each, or fields: af/x, bc/x"), "{text}");
    }

    #[test]
    fn columns_splits_and_layers_are_none() {
        let square = &[3, 2][..];
        reads(&[("test/x", square), ("train/x", square)], &["test/x", "train/x"]);
        reads(&[("x1", &[5]), ("x2", &[5]), ("y", &[5])], &["x1", "x2", "y"]);
        reads(&[("conv1", square), ("conv2", &[3, 3, 3])], &["conv1", "conv2"]);
        reads(&[("left/x", square), ("right/x", square)], &["left/x", "right/x"]);
        reads(&[("fold1/x", &[5, 2]), ("fold2/x", &[4, 2])], &["fold1/x", "fold2/x"]);
        let text = names(&[("view_0", square), ("view_1", square)]).unwrap_err().to_string();
        assert!(text.contains("2 arrays may be a record each, or fields: view_0, view_1"), "{text}");
        assert!(text.contains(r#"columns(["view_0", "view_1"])"#), "{text}");
        let text = names(&[("0/x", square), ("0/y", square), ("1/x", square)]).unwrap_err().to_string();
        assert!(text.contains("no `1/y`: other records have it, such as `0/y`"), "{text}");
    }
}
