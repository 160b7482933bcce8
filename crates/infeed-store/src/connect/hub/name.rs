//! Parses a url of the hub.

use std::fmt;

use infeed_core::error::{Error, Result};
use object_store::path::Path;

const FORM: &str = "write hf://datasets/OWNER/NAME, optionally followed by @REVISION and /PATH";

/// A dataset of the hub, at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Repo {
    pub(super) owner: String,
    pub(super) name: String,
    pub(super) revision: String,
}

impl Repo {
    /// Parses the part after `hf://`; also returns the path within the dataset.
    pub(crate) fn parse(rest: &str, url: &str) -> Result<(Self, Path)> {
        let parts: Vec<&str> = rest.splitn(4, '/').collect();
        if parts[0].contains('@') {
            // Not repeated in the message: the part before it may be a token.
            return Err(Error::config("the url of a dataset begins with `datasets`").with_hint(FORM));
        }
        let bad = |what: &str| Error::config(what.to_owned()).at_object(url).with_hint(FORM);
        let (owner, named, rest) = match parts[..] {
            ["datasets", owner, named] => (owner, named, ""),
            ["datasets", owner, named, rest] => (owner, named, rest),
            ["datasets", ..] => return Err(bad("the url names no dataset")),
            [kind @ ("spaces" | "models" | "buckets"), ..] => {
                return Err(bad(&format!("only datasets of the hub can be read, not {kind}")));
            }
            _ => return Err(bad("the url of a dataset begins with `datasets`")),
        };
        let (name, revision) = match named.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (named, None),
        };
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if [owner, name].iter().any(|part| part.is_empty() || part.starts_with('.') || !plain(part)) {
            return Err(bad("owner and name of a dataset consist of letters, digits, `-`, `_` and `.`"));
        }
        let (revision, rest) = match revision {
            None => ("main".to_owned(), rest),
            // As in the hub's own tools, this slash belongs to the revision.
            Some("refs") => {
                let mut parts = rest.splitn(3, '/');
                let (Some(kind @ ("convert" | "pr")), Some(which)) = (parts.next(), parts.next()) else {
                    return Err(bad("a revision in `refs` must be refs/convert/… or refs/pr/…"));
                };
                (format!("refs/{kind}/{which}"), parts.next().unwrap_or_default())
            }
            Some(revision) => match revision.strip_prefix('~') {
                Some(converted) => (format!("refs/convert/{converted}"), rest),
                None => (revision.replace("%2F", "/").replace("%2f", "/"), rest),
            },
        };
        if revision.is_empty() || revision.ends_with('/') || revision.contains(|c: char| c.is_ascii_control()) {
            return Err(bad("the revision after `@` is not valid"));
        }
        if rest.starts_with('/') {
            return Err(bad("the path in the dataset begins with `/`"));
        }
        let path = Path::parse(rest).map_err(|e| bad("the path is not a valid name").with_source(e))?;
        Ok((Self { owner: owner.to_owned(), name: name.to_owned(), revision }, path))
    }
}

/// Its name on the hub, without the revision.
impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_name_a_data_set_a_revision_and_a_path() {
        for (url, repo, revision, path) in [
            ("datasets/o/n", "o/n", "main", ""),
            ("datasets/o/n/", "o/n", "main", ""),
            ("datasets/o.x/n-1_2/data/a b.parquet", "o.x/n-1_2", "main", "data/a b.parquet"),
            ("datasets/o/n@v1.0/x", "o/n", "v1.0", "x"),
            ("datasets/o/n@~parquet/default/train", "o/n", "refs/convert/parquet", "default/train"),
            ("datasets/o/n@refs%2Fconvert%2Fparquet/default", "o/n", "refs/convert/parquet", "default"),
            ("datasets/o/n@refs/convert/parquet/default/train", "o/n", "refs/convert/parquet", "default/train"),
            ("datasets/o/n@refs/pr/7", "o/n", "refs/pr/7", ""),
            ("datasets/o/n/a@b", "o/n", "main", "a@b"),
        ] {
            let (found, at) = Repo::parse(url, url).unwrap_or_else(|e| panic!("{url}: {e}"));
            assert_eq!((&*found.to_string(), &*found.revision, at.as_ref()), (repo, revision, path), "{url}");
        }
        for (url, says) in [
            ("datasets/o", "no dataset"),
            ("datasets", "no dataset"),
            ("o/n", "begins with `datasets`"),
            ("models/o/n", "only datasets"),
            ("buckets/o/n", "not buckets"),
            ("datasets//n", "letters"),
            ("datasets/o/..", "letters"),
            ("datasets/o/n@", "revision"),
            ("datasets/o/n@refs/heads/x", "refs/convert"),
            ("datasets/o/n//x", "begins with `/`"),
            ("datasets/o/n/a/../b", "path"),
        ] {
            let error = Repo::parse(url, url).unwrap_err().to_string();
            assert!(error.contains(says), "{url}: {error}");
        }
        assert!(
            !Repo::parse("hf_secret@datasets/o/n", "hf://hf_secret@datasets/o/n")
                .unwrap_err()
                .to_string()
                .contains("secret")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_data_set_or_an_error(text in "(datasets/)?[a@~%2F./refspr]{0,24}") {
            let _ = Repo::parse(&text, &text);
        }
    }
}
