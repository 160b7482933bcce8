//! Urls that name many objects or folders: `train-{000000..000146}.tar`, `{cats,dogs}.tar`, `a.tar::b.tar`.

use infeed_core::error::{Error, Result};

/// A pattern with more names is taken for a mistake.
const MOST: usize = 1 << 20;

/// Whether `open()` takes the url for the names of several objects: it contains braces or `::`. A path that exists is
/// taken literally.
///
/// ```
/// use infeed::dataset::names_many;
/// assert!(names_many("s3://bucket/train-{000000..000146}.tar") && !names_many("s3://bucket/train"));
/// ```
#[must_use]
pub fn names_many(url: &str) -> bool {
    // An IPv6 address in brackets contains colons.
    let many = url.contains("::") && !url.contains('[') || url.contains('{');
    many && !std::path::Path::new(url).exists()
}

/// The names that a url stands for: for each part between `::`, the folders and the names in each, in the order of the
/// url. Only the store knows whether a name is an object or a folder.
pub fn parse(url: &str) -> Result<Vec<(String, Vec<String>)>> {
    let bad = |what: &str| {
        Error::config(what.to_owned())
            .at_object(url)
            .with_hint("write train-{000000..000146}.tar, {cats,dogs}.tar, or several with :: between them")
    };
    let mut folders = Vec::<(String, Vec<String>)>::new();
    let mut count = 0;
    for part in url.split("::") {
        let first = folders.len();
        for name in braces(part).map_err(bad)? {
            count += 1;
            if count > MOST {
                return Err(bad("the pattern names more than a million objects"));
            }
            // A trailing slash marks a folder.
            let name = name.trim_end_matches('/');
            let (folder, name) = match name.rsplit_once('/') {
                // The root of this machine or of a store.
                Some((folder, name)) if folder.is_empty() || folder.ends_with('/') => (format!("{folder}/"), name),
                Some((folder, name)) => (folder.to_owned(), name),
                None => (".".to_owned(), name),
            };
            if name.is_empty() || name.ends_with(':') {
                return Err(bad("the pattern names no object"));
            }
            match folders[first..].iter_mut().find(|(known, _)| *known == folder) {
                Some((_, names)) => names.push(name.to_owned()),
                None => folders.push((folder, vec![name.to_owned()])),
            }
        }
    }
    Ok(folders)
}

/// The url of a name in a folder, both as [`parse`] returns them.
pub fn join(folder: &str, name: &str) -> String {
    match folder {
        "." => name.to_owned(),
        folder if folder.ends_with('/') => format!("{folder}{name}"),
        folder => format!("{folder}/{name}"),
    }
}

/// Expands braces as a shell does, except for nested ones.
fn braces(text: &str) -> Result<Vec<String>, &'static str> {
    let Some(open) = text.find('{') else {
        return if text.contains('}') {
            Err("a brace is closed that was not opened")
        } else {
            Ok(vec![text.to_owned()])
        };
    };
    let Some(close) = text[open..].find('}').map(|at| open + at) else { return Err("a brace is not closed") };
    let (before, inside, after) = (&text[..open], &text[open + 1..close], &text[close + 1..]);
    if inside.contains('{') || before.contains('}') {
        return Err("braces within braces, or not in pairs");
    }
    let words = match inside.split_once("..") {
        Some((from, to)) => range(from, to)?,
        None => inside.split(',').map(str::to_owned).collect(),
    };
    let rest = braces(after)?;
    if words.len().saturating_mul(rest.len()) > MOST {
        return Err("the pattern names more than a million objects");
    }
    Ok(words.iter().flat_map(|word| rest.iter().map(move |rest| format!("{before}{word}{rest}"))).collect())
}

/// `008..012`: with as many digits as the longer end has.
fn range(from: &str, to: &str) -> Result<Vec<String>, &'static str> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (Some(first), Some(last)) = (number(from), number(to)) else {
        return Err("a range in braces has a number on either side of its two dots");
    };
    if last < first || last - first >= MOST as u64 {
        return Err("a range in braces ascends, by less than a million");
    }
    let padded = from.starts_with('0') && from.len() > 1 || to.starts_with('0') && to.len() > 1;
    let digits = if padded { from.len().max(to.len()) } else { 0 };
    Ok((first..=last).map(|number| format!("{number:0digits$}")).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told(url: &str) -> String {
        match parse(url) {
            Ok(folders) => folders
                .iter()
                .map(|(folder, names)| format!("{folder}: {}", names.join(" ")))
                .collect::<Vec<_>>()
                .join("; "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn braces_are_expanded_as_a_shell_does() {
        for (url, want) in [
            ("s3://b/train-{000008..000010}.tar", "s3://b: train-000008.tar train-000009.tar train-000010.tar"),
            ("{8..10}.tar", ".: 8.tar 9.tar 10.tar"),
            ("/x/{a,b}-{1..2}.tar", "/x: a-1.tar a-2.tar b-1.tar b-2.tar"),
            ("/{a,b}.tar", "/: a.tar b.tar"),
            ("d/{train,val}/x.tar", "d/train: x.tar; d/val: x.tar"),
            ("d/a.tar::d/b.tar", "d: a.tar; d: b.tar"),
            ("d/{a,b}/", "d: a b"),
            ("/d/a/::b", "/d: a; .: b"),
            ("s3://a::s3://b/c", "s3://: a; s3://b: c"),
        ] {
            assert_eq!(told(url), want);
        }
        for (url, says) in [
            ("{1..2.tar", "not closed"),
            ("1}.tar", "not opened"),
            ("{a,{b,c}}.tar", "within"),
            ("{a..c}.tar", "number"),
            ("{3..1}.tar", "ascends"),
            ("{0..9999999}.tar", "million"),
            ("{0..9999}{0..9999}.tar", "million"),
            ("d/::/", "names no object"),
            ("s3://::d", "names no object"),
        ] {
            assert!(told(url).contains(says), "{}", told(url));
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_names_or_an_error(text in "[a{},./0-9:]{0,24}") {
            let _ = parse(&text);
        }
    }
}
