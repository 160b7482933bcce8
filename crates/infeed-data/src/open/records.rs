//! Records that a file lists, by number or by the name of their object.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_store::{Beside, Source};

use crate::{
    filter,
    label_table::{FILE, decode},
    layout::stem,
    names::base,
    objects::list,
    record::Dataset,
};

/// The records that a file lists.
pub(super) async fn listed(dataset: Arc<dyn Dataset>, file: &str) -> Result<Arc<dyn Dataset>> {
    let (source, objects) = list(Source::parse(file)?, None, None).await?;
    let (Some(_), [object]) = (source.only(), &objects[..]) else {
        return Err(Error::new(ErrorKind::NotFound, "not a file").at_object(file));
    };
    let bytes = Beside::Table.read(&source, object).await?;
    let text = decode(&bytes).map_err(|e| e.at_object(file))?;
    let chosen = choose(&*dataset, &text).map_err(|e| e.at_object(file))?;
    filter::some(filter::only(dataset, chosen)?, &format!("the list {file}"))
}

/// A name without the quotes around it.
fn unquoted(line: &str) -> &str {
    line.strip_prefix('"').and_then(|line| line.strip_suffix('"')).unwrap_or(line)
}

/// Headers that lists of records have, in addition to those of file columns.
const RECORD: [&str; 4] = ["record", "records", "index", "object"];

/// The records that the lines of a list name, ascending.
fn choose(dataset: &dyn Dataset, text: &str) -> Result<Vec<u64>> {
    let plain = |line| unquoted(str::trim(line));
    let lines = || text.lines().map(plain).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    let mut chosen = BTreeSet::new();
    let mut names: HashMap<&str, (u64, bool)> = HashMap::new();
    // `000012` is a name, if an object is called so. Then the other lines are names, too.
    let is_padded = |line: &&str| line.len() > 1 && line.starts_with('0') && line.bytes().all(|b| b.is_ascii_digit());
    let padded: HashSet<&str> = lines().map(|(line, _)| line).filter(is_padded).collect();
    let is_listed = |record| padded.contains(stem(base(&dataset.object(record))));
    let are_names = !padded.is_empty() && (0..dataset.len()).any(is_listed);
    for (line, number) in lines() {
        match line.parse::<u64>() {
            Ok(_) if are_names => {
                names.insert(line, (number, false));
            }
            Ok(record) if record < dataset.len() => {
                chosen.insert(record);
            }
            Ok(record) => {
                let what = format!("line {number} lists record {record}, the dataset has {}", dataset.len());
                return Err(Error::config(what).with_hint("numbers count from 0"));
            }
            Err(_) => {
                names.insert(line.trim_start_matches("./"), (number, false));
            }
        }
    }
    // All names are looked at only if a chosen record is called by another number.
    let number_of = |record: u64| stem(base(&dataset.object(record))).parse::<u64>().ok();
    let is_other = |record: u64| number_of(record).is_some_and(|name| name != record && chosen.contains(&name));
    let may_be_names = chosen.iter().any(|record| number_of(*record).is_some_and(|name| name != *record));
    if may_be_names && let Some(record) = (0..dataset.len()).find(|record| is_other(*record)) {
        let object = dataset.object(record);
        tracing::warn!(
            record,
            object,
            "numbers in the list are those of records, from 0, and no names: write names with their endings, such as 12.jpg"
        );
    }
    if !names.is_empty() {
        for record in 0..dataset.len() {
            let object = dataset.object(record);
            // The whole name, and the part after each of its slashes: a list may be relative to any folder above.
            let ends = object.match_indices('/').map(|(at, _)| &object[at + 1..]);
            // An extension may be missing.
            for name in [&object[..]].into_iter().chain(ends).flat_map(|name| [name, stem(name)]) {
                if let Some((_, found)) = names.get_mut(name) {
                    *found = true;
                    chosen.insert(record);
                }
            }
        }
        // The first line may be a header, if it is not an object.
        let first =
            lines().next().filter(|(line, _)| FILE.iter().chain(&RECORD).any(|word| word.eq_ignore_ascii_case(line)));
        if let Some((header, _)) = first
            && names.get(header).is_some_and(|(_, found)| !found)
        {
            tracing::debug!(header, "the first line of the list is its header");
            names.remove(header);
        }
        if let Some((name, (number, _))) =
            names.iter().filter(|(_, (_, found))| !found).min_by_key(|(_, (line, _))| *line)
        {
            let missing = names.values().filter(|(_, found)| !found).count();
            let what =
                format!("{missing} of {} names match no object, the first is `{name}` in line {number}", names.len());
            return Err(Error::new(ErrorKind::NotFound, what).with_hint("name objects relative to the dataset"));
        }
    }
    Ok(chosen.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::future::IntoFuture;

    use super::*;
    use crate::Open;

    #[test]
    fn lists_of_records_may_begin_with_a_mark_and_a_header() {
        let store = Source::memory("listed.records");
        let put = |name: &str, text: &str| {
            let path = name.into();
            let put = object_store::ObjectStoreExt::put(&*store, &path, text.to_owned().into());
            futures::executor::block_on(put).unwrap();
        };
        ["a.png", "b.png", "c.png"].iter().for_each(|name| put(&format!("images/{name}"), name));
        let records = |text: &str| {
            put("list.txt", text);
            let open = Open::of_url("memory://listed.records/images".into(), &crate::HERE);
            let dataset = futures::executor::block_on(open.records("memory://listed.records/list.txt").into_future())?;
            Ok::<_, Error>(
                (0..dataset.len())
                    .map(|record| dataset.object(record).replace("memory://listed.records/images/", ""))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        };
        for text in [
            "\u{feff}a.png\nc.png\n",
            "\"a.png\"\n\"c.png\"\n",
            "a\nc\n",
            "filename\r\na.png\r\nc.png\r\n",
            "\u{feff}# a list\nIndex\n0\n2\n",
            "0\n2",
        ] {
            assert_eq!(records(text).unwrap(), "a.png c.png", "{text:?}");
        }
        ["000001.png", "000002.png"].iter().for_each(|name| put(&format!("images/{name}"), name));
        for text in ["000001\n000002\n", "000001.png\n000002", "images/000001.png\n000002.png"] {
            assert_eq!(records(text).unwrap(), "000001.png 000002.png", "{text:?}");
        }
        assert_eq!(records("1\n2\n").unwrap(), "000002.png a.png");
        assert_eq!(records("01\n02\n").unwrap(), "000002.png a.png");
        let error = records("a.png\nfilename\n").unwrap_err().to_string();
        assert!(error.contains("`filename` in line 2"), "{error}");
        assert!(records("photo\na.png\n").unwrap_err().to_string().contains("`photo` in line 1"));
    }
}
