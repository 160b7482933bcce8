//! Names and sizes of a million files in little memory.

use std::collections::HashMap;

use infeed_store::{Extent, Object, Source};

use super::names::is_image;

/// Names and sizes of files, in one text and two vectors: 16 bytes per file plus the name.
#[derive(Debug)]
pub struct Files {
    pub(crate) source: Source,
    pub(crate) text: String,
    /// The end of each name in `text`.
    ends: Vec<u64>,
    pub(crate) sizes: Vec<u64>,
    tags: Tags,
}

/// ETags, if the store has them: 16 bytes for each that is a quoted MD5, as S3's are.
#[derive(Debug, Default)]
struct Tags {
    /// One for each file, or none at all.
    digests: Vec<u128>,
    /// All others.
    others: HashMap<usize, Box<str>>,
}

impl Tags {
    fn new<'a>(tags: impl ExactSizeIterator<Item = Option<&'a str>> + Clone) -> Self {
        if tags.clone().all(|tag| tag.is_none()) {
            return Self::default();
        }
        let (mut digests, mut others) = (Vec::with_capacity(tags.len()), HashMap::new());
        for (i, tag) in tags.enumerate() {
            let digest = tag.and_then(Self::digest);
            digests.push(digest.unwrap_or(0));
            if digest.is_none() {
                // An empty text stands for no tag.
                others.insert(i, tag.unwrap_or_default().into());
            }
        }
        Self { digests, others }
    }

    /// `"0123…cdef"`: 32 lower-case hex digits in quotes.
    fn digest(tag: &str) -> Option<u128> {
        let hex = tag.strip_prefix('"')?.strip_suffix('"')?;
        let plain = hex.len() == 32 && hex.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        plain.then(|| u128::from_str_radix(hex, 16).ok())?
    }

    fn get(&self, i: usize) -> Option<String> {
        match self.others.get(&i) {
            Some(tag) => (!tag.is_empty()).then(|| tag.to_string()),
            None => self.digests.get(i).map(|digest| format!("\"{digest:032x}\"")),
        }
    }

    fn bytes(&self) -> usize {
        self.digests.len() * 16 + self.others.values().map(|tag| tag.len() + 32).sum::<usize>()
    }
}

impl Files {
    /// `objects` have to be sorted.
    pub(crate) fn of_images(source: Source, objects: &[Object]) -> Self {
        let images: Vec<&Object> = objects.iter().filter(|o| is_image(&o.name)).collect();
        Self::of(source, &images)
    }

    /// These objects, in this order.
    pub(crate) fn of(source: Source, objects: &[&Object]) -> Self {
        let tags = Tags::new(objects.iter().map(|o| o.etag.as_deref()));
        let mut files = Self { source, text: String::new(), ends: Vec::new(), sizes: Vec::new(), tags };
        for object in objects {
            files.text.push_str(&object.name);
            files.ends.push(files.text.len() as u64);
            files.sizes.push(object.size);
        }
        files
    }

    /// Removes all files except these, which ascend.
    pub(crate) fn keep(&mut self, kept: &[usize]) {
        let tags: Vec<Option<String>> = kept.iter().map(|i| self.tags.get(*i)).collect();
        let mut files = Self {
            source: self.source.clone(),
            text: String::new(),
            ends: Vec::with_capacity(kept.len()),
            sizes: kept.iter().map(|i| self.sizes[*i]).collect(),
            tags: Tags::new(tags.iter().map(Option::as_deref)),
        };
        for i in kept {
            files.text.push_str(self.name(*i));
            files.ends.push(files.text.len() as u64);
        }
        *self = files;
    }

    pub(crate) fn tighten(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.sizes.shrink_to_fit();
    }

    pub(crate) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// `i` is below `len`.
    pub(crate) fn name(&self, i: usize) -> &str {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[start as usize..self.ends[i] as usize]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|i| self.name(i))
    }

    /// A read of the whole file `i`, in the listed version.
    pub(crate) fn extent(&self, i: usize) -> Extent {
        Extent::whole(&self.source, self.name(i), self.sizes[i]).with_etag(self.tags.get(i))
    }

    /// The name of file `i` in messages.
    pub(crate) fn display(&self, i: usize) -> String {
        self.source.display_name(self.name(i))
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        self.text.len() + self.len() * 16 + self.tags.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_tags_come_back_as_they_were() {
        let tags = [
            Some("\"0123456789abcdef0123456789abcdef\""),
            None,
            Some("\"0123456789ABCDEF0123456789abcdef\""),
            Some("\"00000000000000000000000000000000-7\""),
            Some("W/\"weak\""),
            Some("7"),
        ];
        let kept = Tags::new(tags.into_iter());
        assert_eq!(kept.others.len(), 5);
        for (i, tag) in tags.into_iter().enumerate() {
            assert_eq!(kept.get(i).as_deref(), tag);
        }
        assert_eq!(Tags::new([None, None].into_iter()).get(1), None);
    }
}
