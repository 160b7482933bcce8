//! Datasets of a mixture, as typed: `URL,name=web,proportion=0.7`.

use std::str::FromStr;

use infeed::sampler::Share;

/// One dataset of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) url: String,
    /// Its name in reports.
    pub(crate) name: String,
    /// `None`: the share in the config file, or else each record once.
    pub(crate) share: Option<Share>,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut url, mut name, mut share) = (text, None, None);
        // From the end, because a url may contain commas.
        while let Some((before, last)) = url.rsplit_once(',') {
            match last.split_once('=') {
                Some(("name", given)) if name.is_none() => name = Some(given.to_owned()),
                Some(("proportion" | "repeat" | "choose", _)) if share.is_none() => {
                    share = Some(last.parse::<Share>().map_err(|error| error.to_string())?);
                }
                Some(("name" | "proportion" | "repeat" | "choose", _)) => {
                    return Err("give it one name and one of proportion, repeat and choose".into());
                }
                _ => break,
            }
            url = before;
        }
        if url.is_empty() {
            return Err("write it as URL,proportion=0.7, URL,repeat=2 or URL,choose=10000".into());
        }
        Ok(Self { url: url.into(), name: name.unwrap_or_else(|| last_of(url).into()), share })
    }
}

/// The name of a dataset by its url: the last part of its path.
fn last_of(url: &str) -> &str {
    let path = url.split_once('?').map_or(url, |(path, _)| path).trim_end_matches('/');
    let last = path.rsplit('/').next().unwrap_or(path);
    if last.is_empty() { url } else { last }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_url_and_its_share() {
        for (text, url, name, share) in [
            ("data/web", "data/web", "web", None),
            ("data/web/,proportion=0.7", "data/web/", "web", Some(Share::Proportion(0.7))),
            ("s3://b/x-{a,b}.tar,repeat=2.5", "s3://b/x-{a,b}.tar", "x-{a,b}.tar", Some(Share::Repeat(2.5))),
            ("a,b,choose=9,name=mine", "a,b", "mine", Some(Share::Choose(9))),
            ("synthetic://?count=4,name=s", "synthetic://?count=4", "s", None),
            ("synthetic://?count=4", "synthetic://?count=4", "synthetic:", None),
        ] {
            assert_eq!(text.parse(), Ok(Part { url: url.into(), name: name.into(), share }), "{text}");
        }
        for (text, want) in [
            ("a,proportion=x", "proportion=x"),
            ("a,proportion=1,repeat=2", "one of proportion, repeat and choose"),
            (",repeat=2", "write it as"),
        ] {
            assert!(text.parse::<Part>().unwrap_err().contains(want), "{text}");
        }
    }
}
