//! Labels from names of folders.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use infeed_core::error::{
    Error, Result,
    setting::{FORMAT, MASK_FILES, SPLIT},
};
use infeed_store::Source;

use super::layout;

/// The index of each class name; an error if two classes share a name.
pub(crate) fn index_of(classes: &[String]) -> Result<HashMap<&str, i64>> {
    let index: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
    if index.len() < classes.len() {
        let twice = classes.iter().enumerate().find(|(i, name)| index[name.as_str()] != *i as i64);
        let name = twice.map_or("", |(_, name)| name);
        return Err(Error::config(format!("class `{name}` is given twice")));
    }
    Ok(index)
}

/// Labels from the first folder of each name, and the class names; neither for a flat folder. A folder that holds all
/// images is ignored. Folders named after splits are always refused, folders named after kinds of files if asked for.
#[expect(clippy::type_complexity, reason = "both or neither")]
pub(crate) fn classes_of(
    names: &[&str],
    source: &Source,
    given: Option<Arc<[String]>>,
    refuse_kinds: bool,
) -> Result<(Option<Vec<i64>>, Option<Arc<[String]>>)> {
    let around = layout::wrapper(names).len();
    let top = |name: &str| name[around..].split_once('/').map(|(top, _)| top.to_owned());
    let mut found = BTreeSet::new();
    let mut flat = None;
    for &name in names {
        match name[around..].split_once('/') {
            // Looked up before it is copied, because there are perhaps a thousand classes in a million files.
            Some((top, _)) => {
                if !found.contains(top) {
                    found.insert(top.to_owned());
                }
            }
            None => flat = flat.or(Some(name)),
        }
    }
    if found.is_empty() {
        return Ok((None, given));
    }
    if let Some(stray) = flat {
        return Err(Error::config(format!("images both in class folders and beside them, such as `{stray}`"))
            .at_object(source.url())
            .with_hint("move them into folders, or give labels for all"));
    }
    if found.iter().all(|top| layout::is_split(top)) {
        let splits = found.into_iter().collect::<Vec<_>>();
        return Err(Error::config(format!("the folders {} hold splits, not images of a class", splits.join(", ")))
            .at_object(source.url())
            .with_hint(format!(
                "open {}{}",
                source.display_name(&format!("{}{}", layout::wrapper(names), splits[0])),
                SPLIT.or_set(&splits[0])
            )));
    }
    if let Some(kinds) = layout::no_classes(&found.iter().map(String::as_str).collect()).filter(|_| refuse_kinds) {
        let what =
            format!("the folders {} are named like kinds of files and splits, not like classes", kinds.join(", "));
        let masks = format!("{}/{{stem}}.png", kinds[kinds.len() - 1]);
        return Err(Error::config(what).at_object(source.url()).with_hint(format!(
            "tell masks by a pattern of their names, such as {}; or take the folders for classes: {}",
            MASK_FILES.to(&masks),
            FORMAT.to("folder")
        )));
    }
    if let Some(marks) = found.iter().find(|top| layout::is_marks(top)).filter(|_| found.len() > 1 && given.is_none()) {
        let folder = source.display_name(&format!("{}{marks}", &names[0][..around]));
        tracing::warn!(folder, "a folder whose name is usual for masks or labels of images is taken for a class");
    }
    if let (Some(only), 1, None) = (found.first(), found.len(), &given) {
        let folder = source.display_name(&format!("{}{only}", &names[0][..around]));
        tracing::warn!(
            class = only,
            folder,
            "all images are of one class; if its folder is not a class, open that folder"
        );
    }
    let classes = given.unwrap_or_else(|| found.iter().cloned().collect());
    let index = index_of(&classes)?;
    if let Some(unknown) = found.iter().find(|name| !index.contains_key(name.as_str())) {
        let what = format!("class `{unknown}` is not among the {} given classes", classes.len());
        return Err(Error::config(what)
            .at_object(source.display_name(unknown))
            .with_hint("open it with the classes that it has, or remove the folder"));
    }
    let label = |name: &str| top(name).and_then(|top| index.get(top.as_str()).copied());
    let labels = names.iter().map(|name| label(name).expect("each name has a folder that is a class")).collect();
    drop(index);
    Ok((Some(labels), Some(classes)))
}

/// The label of each record: runs of equal labels, as class folders give them, or one by one if that is smaller.
#[derive(Debug)]
pub(crate) enum RecordLabels {
    Each(Vec<i64>),
    /// End and label of each run.
    Runs(Vec<(u64, i64)>),
}

impl RecordLabels {
    pub(crate) fn of(mut labels: Vec<i64>) -> Self {
        let runs = || labels.chunk_by(|a, b| a == b);
        if runs().count() > labels.len() / 2 {
            labels.shrink_to_fit();
            return Self::Each(labels);
        }
        let mut end = 0;
        let run = |run: &[i64]| {
            end += run.len() as u64;
            (end, run[0])
        };
        Self::Runs(runs().map(run).collect())
    }

    /// The label of a record, of which there are as many as labels.
    pub(crate) fn get(&self, record: usize) -> i64 {
        match self {
            Self::Each(labels) => labels[record],
            Self::Runs(runs) => runs[runs.partition_point(|(end, _)| *end <= record as u64)].1,
        }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Each(labels) => size_of_val(&**labels),
            Self::Runs(runs) => size_of_val(&**runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_record_has_its_label_and_runs_take_less_memory() {
        for (labels, bytes) in [
            (vec![], 0),
            (vec![3], 8),
            (vec![0, 1, 0, 1, 1], 5 * 8),
            ([vec![2; 100], vec![-1; 7], vec![2; 3]].concat(), 3 * 16),
        ] {
            let found = RecordLabels::of(labels.clone());
            assert_eq!((0..labels.len()).map(|record| found.get(record)).collect::<Vec<_>>(), labels);
            assert_eq!(found.bytes(), bytes);
        }
    }
}
