//! Decides which arrays of a file are columns of the same records, by their names and first axes.

use std::collections::BTreeMap;

use infeed_core::error::{
    Error, Result,
    setting::{COLUMNS, SPLIT},
};

use crate::names::SPLITS;

/// Number of names that an error lists; the others are counted.
const LISTED: usize = 20;

/// Names in one line, of many only the first.
pub fn listed<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let mut names = names.into_iter();
    let first: Vec<T> = names.by_ref().take(LISTED).collect();
    let first = first.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// The split in a name, and the name without it: `train` and `x` of `x_train` and `train/x`. `None` if the name has no
/// split, or two.
pub(super) fn split_of(name: &str) -> Option<(&str, String)> {
    let is_split = |word: &&str| SPLITS.iter().any(|split| split.eq_ignore_ascii_case(word));
    let words: Vec<&str> = name.split(['_', '-', '.', '/', ' ']).collect();
    let mut splits = words.iter().copied().filter(is_split);
    let split = splits.next().filter(|_| splits.next().is_none())?;
    let others: Vec<&str> = words.iter().copied().filter(|word| !is_split(word)).collect();
    Some((split, others.join("_")))
}

/// Whether the array's name contains this split.
pub(super) fn is_of_split(name: &str, split: &str) -> bool {
    split_of(name).is_some_and(|(of, _)| of.eq_ignore_ascii_case(split))
}

/// Arrays by their splits, in lower case.
fn splits<'a>(arrays: &[(&'a str, u64)]) -> BTreeMap<String, Vec<(&'a str, String, u64)>> {
    let mut splits: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for (name, len) in arrays {
        if let Some((split, stem)) = split_of(name) {
            splits.entry(split.to_ascii_lowercase()).or_default().push((*name, stem, *len));
        }
    }
    splits
}

/// Checks that the arrays, each with the length of its first axis, are columns of the same records. `by_split`: whether
/// the format has the option `split`; `chosen`: whether the user named the arrays.
///
/// # Errors
/// `Config` if their lengths differ. Also if the user did not name them and they are the same columns of several
/// splits, even if these have equal lengths.
pub fn one_length(arrays: &[(&str, u64)], by_split: bool, chosen: bool) -> Result<()> {
    let Some((first, len)) = arrays.first() else { return Ok(()) };
    let splits = splits(arrays);
    let even = arrays.iter().all(|(_, other)| other == len);
    let stems = |of: &[(&str, String, u64)]| {
        let mut stems: Vec<String> = of.iter().map(|(_, stem, _)| stem.clone()).collect();
        stems.sort_unstable();
        stems
    };
    let mut kinds = splits.values().map(|of| stems(of));
    let repeated = splits.len() > 1 && kinds.next().is_some_and(|first| kinds.all(|other| other == first));
    if even && (chosen || !repeated) {
        return Ok(());
    }
    // Suggestion for the hint: a split whose arrays have one length, preferably that of training; otherwise arrays of
    // one length.
    let as_one = |of: &&Vec<(&str, String, u64)>| of.iter().all(|(_, _, len)| *len == of[0].2);
    let training = ["train", "training"].into_iter().filter_map(|split| splits.get_key_value(split));
    let split = training.chain(&splits).find(|(_, of)| as_one(of));
    let names: Vec<&str> = match split {
        Some((_, of)) => of.iter().map(|(name, _, _)| *name).collect(),
        // The most frequent length; if there are several, the one that comes first.
        None => {
            let same = |len: u64| arrays.iter().filter(move |(_, other)| *other == len);
            let most = arrays.iter().rev().max_by_key(|(_, len)| same(*len).count()).map_or(*len, |(_, len)| *len);
            same(most).map(|(name, _)| *name).collect()
        }
    };
    let or_split = match split {
        Some((split, _)) if by_split => SPLIT.or_set(split),
        _ => String::new(),
    };
    let hint = format!("choose arrays of one length, such as {}{or_split}", COLUMNS.to_list(&names));
    let what = if even {
        let words: Vec<&String> = splits.keys().collect();
        format!("arrays of several splits, {}: {}", listed(words), listed(arrays.iter().map(|(name, _)| name)))
    } else {
        let others = arrays[1..].iter().map(|(name, len)| format!("`{name}` {len}"));
        format!("`{first}` has {len} records, {}", listed(others))
    };
    Err(Error::config(what).with_hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_of_several_splits_are_told_apart_by_lengths_or_names() {
        let says = |arrays: &[(&str, u64)]| one_length(arrays, true, false).unwrap_err().to_string();
        let text = says(&[("train_images", 5), ("train_labels", 5), ("val_images", 2), ("val_labels", 2)]);
        assert!(text.contains("`train_images` has 5 records, `train_labels` 5, `val_images` 2"), "{text}");
        assert!(text.contains(r#"columns(["train_images", "train_labels"]), or set split("train")"#), "{text}");
        let text = says(&[("x_test", 2), ("x_train", 5), ("y_test", 2), ("y_train", 5)]);
        assert!(text.contains(r#"columns(["x_train", "y_train"])"#), "{text}");
        let text = says(&[("a", 2), ("b", 3), ("c", 2)]);
        assert!(text.contains(r#"columns(["a", "c"])"#) && !text.contains("split"), "{text}");
        let text = says(&[("lat", 9), ("lon", 8), ("t", 5), ("time", 5)]);
        assert!(text.contains(r#"columns(["t", "time"])"#), "{text}");
        // Of equal lengths by chance.
        let even = [("test/x", 2), ("test/y", 2), ("train/x", 2), ("train/y", 2)];
        let text = says(&even);
        assert!(text.contains("arrays of several splits, test, train: test/x, test/y, train/x, train/y"), "{text}");
        one_length(&even, false, true).unwrap();
        assert!(!one_length(&even, false, false).unwrap_err().to_string().contains("split("));
        // Columns of the same records, whatever their names have in common.
        one_length(&[("x", 2), ("y", 2), ("test_score", 2)], true, false).unwrap();
        one_length(&[("test_score", 2), ("train_flag", 2)], true, false).unwrap();
        one_length(&[], true, false).unwrap();
    }

    #[test]
    fn of_many_names_the_first_are_listed() {
        let names: Vec<String> = (0..23).map(|i| i.to_string()).collect();
        assert!(listed(&names).ends_with("18, 19 and 3 more"));
        assert_eq!(listed(&names[..2]), "0, 1");
    }
}
