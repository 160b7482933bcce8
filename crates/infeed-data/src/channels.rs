//! Several files per record: channels by a pattern of names, masks by pairs of names.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use infeed_core::error::{Error, ErrorKind, Result, setting::MASK_FILES};

use super::{layout::stem, pairs::Sides};

/// `{name}_{channel}.tif`: which parts of a name are the record and the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Text before, between and after the two.
    text: [String; 3],
    channel_first: bool,
    /// Channels in the requested order; `None`: all.
    channels: Option<Vec<String>>,
}

impl Pattern {
    /// Parses `{name}_{channel}.tif`, or `{name}_{channel:dapi,gfp,rfp}.tif` with the channels in order.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let wrong = |what: &str| {
            Err(Error::config(format!("the pattern of channels {text:?} {what}")).with_hint(
                "write one {name} and one {channel}, such as {name}_{channel}.tif or {name}/{channel:dapi,gfp}.tif",
            ))
        };
        let mut parts = Vec::new();
        let mut texts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((inside, after)) = after.split_once('}') else { return wrong("has a `{` without a `}`") };
            texts.push(before.to_owned());
            parts.push(inside);
            rest = after;
        }
        texts.push(rest.to_owned());
        let named = |part: &&str| part.split_once(':').map_or(*part, |(name, _)| name) == "channel";
        let channel_first = match &parts[..] {
            [first, second] if named(first) && *second == "name" => true,
            [first, second] if *first == "name" && named(second) => false,
            _ => return wrong("does not name a record and a channel"),
        };
        let channels = parts[usize::from(!channel_first)]
            .split_once(':')
            .map(|(_, list)| list.split(',').map(|channel| channel.trim().to_owned()).collect::<Vec<_>>());
        if let Some(channels) = &channels {
            let distinct: BTreeSet<_> = channels.iter().collect();
            if distinct.len() < channels.len() || channels.iter().any(|c| c.is_empty() || c.contains('/')) {
                return wrong("lists a channel twice, or an empty one");
            }
        }
        let text = <[String; 3]>::try_from(texts).expect("two parts have three texts around them");
        if text[1].is_empty() {
            return wrong("has no text between the two");
        }
        Ok(Self { text, channel_first, channels })
    }

    /// Record and channel of a file, if it matches the pattern. The record's name includes the folders above.
    fn split<'a>(&self, file: &'a str) -> Option<(String, &'a str)> {
        let [before, between, after] = &self.text;
        let depth = self.text.iter().map(|text| text.matches('/').count()).sum();
        // As many folders as the pattern has.
        let start = file.rmatch_indices('/').nth(depth).map_or(0, |(at, _)| at + 1);
        let (folder, tail) = file.split_at(start);
        let inside = tail.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
        let (name, channel) = match (&self.channels, self.channel_first) {
            (Some(known), true) => {
                let found =
                    known.iter().filter_map(|c| inside.strip_prefix(c.as_str())?.strip_prefix(between.as_str()));
                let name = found.min_by_key(|name| name.len())?;
                (name, &inside[..inside.len() - name.len() - between.len()])
            }
            (Some(known), false) => {
                let found =
                    known.iter().filter_map(|c| inside.strip_suffix(c.as_str())?.strip_suffix(between.as_str()));
                let name = found.min_by_key(|name| name.len())?;
                (name, &inside[name.len() + between.len()..])
            }
            // The record's name may contain the separator too; a channel's name is the shorter part.
            (None, true) => inside.split_once(between.as_str()).map(|(channel, name)| (name, channel))?,
            (None, false) => inside.rsplit_once(between.as_str())?,
        };
        let plain = |text: &str| !text.is_empty() && !text.contains('/');
        (plain(name) && plain(channel)).then(|| (format!("{folder}{name}"), channel))
    }

    /// The file of a record's channel: the inverse of [`split`](Self::split).
    fn file(&self, record: &str, channel: &str) -> String {
        let [before, between, after] = &self.text;
        let (folder, name) = record.rfind('/').map_or(("", record), |at| record.split_at(at + 1));
        match self.channel_first {
            true => format!("{folder}{before}{channel}{between}{name}{after}"),
            false => format!("{folder}{before}{name}{between}{channel}{after}"),
        }
    }
}

/// Files combined into records.
#[derive(Debug)]
pub struct Groups {
    /// Name of each record, relative to the dataset.
    pub(crate) names: Vec<String>,
    /// Files per record.
    pub(crate) per: usize,
    /// How many of the first files of a record are channels of its image.
    pub(crate) channels: usize,
    /// `per` indices of files for each record.
    pub(crate) order: Vec<u32>,
}

impl Groups {
    /// Each file is a record.
    fn single(files: &[(u32, &str)]) -> Self {
        let order = files.iter().map(|(i, _)| *i).collect();
        Self { names: files.iter().map(|(_, name)| (*name).to_owned()).collect(), per: 1, channels: 1, order }
    }

    /// One file per channel; `files` are indices and names. Files that do not match the pattern are left out, with a
    /// warning.
    fn of_channels(files: &[(u32, &str)], pattern: &Pattern) -> Result<Self> {
        let mut found: BTreeMap<String, HashMap<&str, u32>> = BTreeMap::new();
        let mut others = files.iter().filter(|(i, file)| match pattern.split(file) {
            Some((record, channel)) => found.entry(record).or_default().insert(channel, *i).is_some(),
            None => true,
        });
        let stray = others.next().map(|(_, first)| (*first, 1 + others.count()));
        if found.is_empty() {
            let first = files.first().map_or("", |(_, name)| name);
            let what = format!("none of {} images fits the pattern of channels; the first is `{first}`", files.len());
            return Err(
                Error::new(ErrorKind::NotFound, what).with_hint("write the pattern to match the names of the files")
            );
        }
        if let (Some((first, count)), None) = (stray, &pattern.channels) {
            tracing::warn!(count, first, "files that do not fit the pattern of channels are left out");
        }
        let channels: Vec<String> = match &pattern.channels {
            Some(channels) => channels.clone(),
            None => {
                let all: BTreeSet<&str> = found.values().flat_map(|files| files.keys().copied()).collect();
                let mut all: Vec<String> = all.into_iter().map(str::to_owned).collect();
                // 10 comes after 9.
                if all.iter().all(|channel| channel.parse::<u64>().is_ok()) {
                    all.sort_by_key(|channel| channel.parse::<u64>().unwrap_or(0));
                }
                all
            }
        };
        if channels.len() > 255 {
            let what = format!("{} channels, such as `{}` and `{}`", channels.len(), channels[0], channels[1]);
            return Err(Error::config(what).with_hint("infeed reads at most 255: check the pattern"));
        }
        let mut order = Vec::with_capacity(found.len() * channels.len());
        for (record, files) in &found {
            for channel in &channels {
                let Some(file) = files.get(channel.as_str()) else {
                    let what = format!(
                        "`{record}` has no file of channel {channel}: there is no `{}`",
                        pattern.file(record, channel)
                    );
                    return Err(
                        Error::new(ErrorKind::NotFound, what).with_hint("add it, or remove the record's other files")
                    );
                };
                order.push(*file);
            }
        }
        let per = channels.len();
        Ok(Self { names: found.into_keys().collect(), per, channels: per, order })
    }

    /// Removes all records except these, which ascend.
    pub(crate) fn keep(&mut self, kept: &[usize]) {
        self.order = kept.iter().flat_map(|i| &self.order[i * self.per..][..self.per]).copied().collect();
        self.names = kept.iter().map(|i| std::mem::take(&mut self.names[*i])).collect();
    }

    /// Adds a mask to each record. `masks` are indices, with the stems of their records; `files` are all names.
    fn with_masks(self, masks: &[(u32, String)], files: &[&str]) -> Result<Self> {
        let mut of: HashMap<&str, u32> = HashMap::with_capacity(masks.len());
        for (i, stem) in masks {
            if let Some(other) = of.insert(stem, *i) {
                let (a, b) = (files[other as usize], files[*i as usize]);
                let what = format!("two masks for one image, `{a}` and `{b}`");
                return Err(Error::config(what).with_hint(format!("remove one, or choose with {MASK_FILES}")));
            }
        }
        let an_example = masks.first().map_or("", |(i, _)| files[*i as usize]);
        let mut order = Vec::with_capacity(self.order.len() + self.names.len());
        for (name, own) in self.names.iter().zip(self.order.chunks_exact(self.per)) {
            // The name of a record with several files has no extension.
            let stem = if self.per > 1 { name } else { stem(name) };
            let Some(mask) = of.remove(stem) else {
                let file = files[own[0] as usize];
                let what = format!("`{file}` has no mask; that of another image is `{an_example}`");
                return Err(Error::new(ErrorKind::NotFound, what).with_hint(format!(
                    "add it, or remove the image; {MASK_FILES} sets other names of masks, and with two patterns \
                     (images/{{stem}}.jpg => masks/{{stem}}.png) reads only the images with a mask; to read only images, \
                     open their folder"
                )));
            };
            order.extend_from_slice(own);
            order.push(mask);
        }
        if let Some(stray) = of.values().min() {
            let what = format!("{} masks have no image, such as `{}`", of.len(), files[*stray as usize]);
            return Err(Error::new(ErrorKind::NotFound, what).with_hint("add the images, or remove the masks"));
        }
        Ok(Self { per: self.per + 1, order, ..self })
    }
}

/// Combines files into records; `None` if each file is a record.
///
/// # Errors
/// `NotFound` for a missing file, `Config` for an invalid pattern.
pub(crate) fn group(all: &[&str], pattern: Option<&str>, sides: Option<Sides>) -> Result<Option<Groups>> {
    let pattern = pattern.map(Pattern::parse).transpose()?;
    if pattern.is_none() && sides.is_none() {
        return Ok(None);
    }
    let images: Vec<(u32, &str)> = match &sides {
        Some(sides) => sides.images.iter().map(|(i, name)| (*i, name.as_str())).collect(),
        None => (0..).zip(all.iter().copied()).collect(),
    };
    let groups = match &pattern {
        Some(pattern) => Groups::of_channels(&images, pattern)?,
        None => Groups::single(&images),
    };
    let Some(sides) = sides else { return Ok(Some(groups)) };
    if let Some(first) = sides.others.first() {
        let (count, first) = (sides.others.len(), all[*first as usize]);
        tracing::warn!(count, first, "files that are neither images nor the masks that are read are left out");
    }
    groups.with_masks(&sides.masks, all).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairs;

    fn grouped(names: &[&str], pattern: Option<&str>) -> Result<Vec<(String, Vec<String>)>> {
        let groups = group(names, pattern, pairs::sides(names, pattern.is_some()))?.expect("records of several files");
        let files = groups.order.chunks_exact(groups.per);
        let named = |files: &[u32]| files.iter().map(|i| names[*i as usize].to_owned()).collect();
        Ok(groups.names.iter().cloned().zip(files.map(named)).collect())
    }

    fn message(names: &[&str], pattern: Option<&str>) -> String {
        grouped(names, pattern).unwrap_err().to_string()
    }

    #[test]
    fn files_of_a_record_come_in_the_order_of_channels() {
        let names = ["p/a_b_10.tif", "p/a_b_2.tif", "p/c_10.tif", "p/c_2.tif", "p/readme.tif"];
        let found = grouped(&names, Some("{name}_{channel}.tif")).unwrap();
        assert_eq!(found[0], ("p/a_b".into(), vec!["p/a_b_2.tif".into(), "p/a_b_10.tif".into()]));
        assert_eq!(found[1], ("p/c".into(), vec!["p/c_2.tif".into(), "p/c_10.tif".into()]));
        assert_eq!(found.len(), 2);
        // Those asked for, in the order asked for.
        let names = ["a_dapi.tif", "a_gfp.tif", "a_rfp_2.tif"];
        let found = grouped(&names, Some("{name}_{channel:rfp_2,dapi}.tif")).unwrap();
        assert_eq!(found, [("a".into(), vec!["a_rfp_2.tif".into(), "a_dapi.tif".into()])]);
        // The channel before the name, and folders for records.
        let names = ["c1-a-b.png", "c2-a-b.png"];
        assert_eq!(grouped(&names, Some("c{channel}-{name}.png")).unwrap()[0].0, "a-b");
        let names = ["cat/s1/x.tif", "cat/s1/y.tif", "dog/s1/x.tif", "dog/s1/y.tif"];
        let found = grouped(&names, Some("{name}/{channel}.tif")).unwrap();
        assert_eq!(found.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["cat/s1", "dog/s1"]);
    }

    #[test]
    fn a_missing_partner_is_named() {
        let names = ["p/a_1.tif", "p/a_2.tif", "p/b_1.tif"];
        let says = message(&names, Some("{name}_{channel}.tif"));
        assert!(says.contains("`p/b` has no file of channel 2: there is no `p/b_2.tif`"), "{says}");
        let says = message(&["a.tif"], Some("{name}_{channel}.tif"));
        assert!(says.contains("none of 1 images fits the pattern") && says.contains("`a.tif`"), "{says}");
        let says = message(&["images/a.png", "images/b.png", "masks/b.png"], None);
        assert!(says.contains("`images/a.png` has no mask; that of another image is `masks/b.png`"), "{says}");
        let says = message(&["images/a.png", "masks/a.png", "masks/b.png"], None);
        assert!(says.contains("1 masks have no image, such as `masks/b.png`"), "{says}");
        let says = message(&["images/a.png", "masks/a.png", "masks/a.tif"], None);
        assert!(says.contains("two masks for one image"), "{says}");
    }

    #[test]
    fn masks_are_found_by_name_whatever_their_kind() {
        let names = ["images/x/a.jpg", "images/x/b.v2.jpg", "masks/x/a.png", "masks/x/b.v2.tif"];
        let found = grouped(&names, None).unwrap();
        assert_eq!(found[1].1, ["images/x/b.v2.jpg", "masks/x/b.v2.tif"]);
        let names = ["images/a_1.tif", "images/a_2.tif", "masks/a.tif"];
        let found = grouped(&names, Some("{name}_{channel}.tif")).unwrap();
        assert_eq!(found, [("a".into(), names.map(String::from).to_vec())]);
        assert!(group(&["images/a.jpg", "other/a.jpg"], None, None).unwrap().is_none());
    }

    #[test]
    fn senseless_patterns_are_refused() {
        for bad in [
            "",
            "a.tif",
            "{name}.tif",
            "{channel}.tif",
            "{name}{channel}.tif",
            "{name}_{name}",
            "{name}_{channel",
            "{name}_{channel:a,a}.tif",
            "{name}_{channel:a,,b}.tif",
            "{name}_{channel}_{channel}",
            "{x}_{name}",
        ] {
            assert!(Pattern::parse(bad).is_err(), "{bad}");
        }
    }
}
