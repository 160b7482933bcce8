//! The entry of a shard in the table, without its samples.

use std::sync::Arc;

use infeed_core::error::Result;
use infeed_store::{Object, Rest, number, text};

use super::{
    blob::{self, Blob, IndexFile},
    shape::{self, Shape},
};
use crate::{
    sizes::Histogram,
    tar::{
        header::BLOCK,
        samples::{Member, Samples},
        shard::Shard,
    },
};

/// A shard of an index.
#[derive(Clone, Debug)]
pub(in crate::tar) struct Entry {
    /// Relative to the source.
    pub(in crate::tar) name: Arc<str>,
    pub(in crate::tar) size: u64,
    pub(in crate::tar) etag: Option<Arc<str>>,
    /// See [`Shard`].
    pub(in crate::tar) job: u128,
    pub(super) sources: u128,
    pub(in crate::tar) job_shards: u32,
    pub(in crate::tar) shape: Arc<Shape>,
    /// Number of samples of each of the shape's layouts.
    pub(in crate::tar) layouts: Box<[u32]>,
    /// Bytes of the largest member of each extension.
    pub(in crate::tar) most: Box<[u32]>,
    /// Histogram of the bytes from the header of a sample's first member to the end of its last.
    pub(in crate::tar) spans: Box<[(u8, u32, u64)]>,
    /// Bytes of the longest key.
    pub(in crate::tar) longest_key: u32,
    pub(in crate::tar) blob: Blob,
}

fn span(members: &[Member]) -> u64 {
    match members {
        [first, .., last] => last.end() - (first.start() - BLOCK),
        [only] => u64::from(only.size) + BLOCK,
        [] => 0,
    }
}

impl Entry {
    /// A shard, and the bytes of its samples, which are not yet in a file.
    pub(in crate::tar) fn of(shard: &Shard) -> Result<(Self, Vec<u8>)> {
        let (layouts, of) = shape::layouts(&shard.samples);
        let mut bytes = Vec::new();
        let (blocks, label) = blob::encode(shard, &of, &mut bytes)?;
        let mut counts = vec![0; layouts.len()];
        of.iter().for_each(|layout| counts[*layout as usize] += 1);
        let mut most = vec![0; shard.extensions.len()];
        for member in shard.all_members() {
            let most = &mut most[usize::from(member.extension)];
            *most = member.size.max(*most);
        }
        let mut spans = Histogram::default();
        shard.samples.iter().for_each(|(_, members)| spans.add(span(members)));
        let longest = shard.samples.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
        let shape = Shape { has_crc: shard.has_crc, extensions: shard.extensions.clone(), layouts };
        let samples = shard.len() as u32;
        let entry = Self {
            name: Arc::clone(&shard.name),
            size: shard.size,
            etag: shard.etag.clone(),
            job: shard.job,
            sources: shard.sources,
            job_shards: shard.job_shards,
            shape: Arc::new(shape),
            layouts: counts.into(),
            most: most.into(),
            // The total number of samples is a `u32`, so each count fits.
            spans: spans.filled().map(|(power, count, most)| (power as u8, count as u32, most)).collect(),
            longest_key: longest as u32,
            blob: Blob::new(Arc::default(), 0, samples, blocks, label, shard.size),
        };
        Ok((entry, bytes))
    }

    /// Number of samples.
    pub(in crate::tar) fn samples(&self) -> u64 {
        self.layouts.iter().map(|count| u64::from(*count)).sum()
    }

    pub(in crate::tar) fn with_etag(mut self, etag: Option<&str>) -> Self {
        self.etag = etag.map(Into::into);
        self
    }

    /// The same shard, with its samples at another position.
    pub(in crate::tar) fn moved(mut self, file: &Arc<IndexFile>, at: u64) -> Self {
        (self.blob.file, self.blob.at) = (Arc::clone(file), at);
        self
    }

    /// The whole shard, in memory.
    pub(super) fn shard(&self) -> Result<Shard> {
        let mut samples = Samples::default();
        for block in self.blob.blocks(&self.shape) {
            samples.append(&block?).ok_or_else(|| infeed_core::error::Error::corrupt("a shard with 4 GiB of names"))?;
        }
        let labels = (0..samples.len()).map_while(|sample| self.blob.label_of(sample).transpose());
        Ok(Shard {
            name: Arc::clone(&self.name),
            size: self.size,
            etag: self.etag.clone(),
            job: self.job,
            sources: self.sources,
            job_shards: self.job_shards,
            has_crc: self.shape.has_crc,
            has_no_end: false,
            extensions: self.shape.extensions.clone(),
            labels: labels.collect::<Result<_>>()?,
            samples,
        })
    }

    /// Number of samples.
    pub(in crate::tar) const fn len(&self) -> u32 {
        self.blob.samples
    }

    /// Whether the entry describes this version of the tar.
    pub(in crate::tar) fn is_of(&self, object: &Object) -> bool {
        object.is_still(self.size, self.etag.as_deref())
    }

    /// `shape` is its number in the file, `at` the position of the samples.
    pub(super) fn encode(&self, shape: usize, at: u64, out: &mut Vec<u8>) {
        text(out, &self.name);
        number(out, self.size);
        text(out, self.etag.as_deref().unwrap_or_default());
        out.push((self.job != 0).into());
        if self.job != 0 {
            out.extend_from_slice(&self.job.to_le_bytes());
            out.extend_from_slice(&self.sources.to_le_bytes());
            number(out, self.job_shards.into());
        }
        number(out, shape as u64);
        self.layouts.iter().chain(&self.most).for_each(|count| number(out, (*count).into()));
        number(out, self.spans.len() as u64);
        for (power, count, most) in &self.spans {
            out.push(*power);
            number(out, (*count).into());
            number(out, *most);
        }
        number(out, self.longest_key.into());
        number(out, at);
        number(out, self.blob.blocks.into());
        out.push(self.blob.label);
    }

    /// The samples have to be before `end` in the file.
    pub(super) fn parse(rest: &mut Rest<'_>, shapes: &[Arc<Shape>], file: &Arc<IndexFile>, end: u64) -> Option<Self> {
        let (name, size) = (rest.text()?.into(), rest.number()?);
        let etag = Some(rest.text()?).filter(|etag| !etag.is_empty()).map(Into::into);
        let (mut job, mut sources, mut job_shards) = (0, 0, 0);
        match rest.take(1)? {
            [0] => {}
            [1] => {
                job = u128::from_le_bytes(rest.take(16)?.try_into().ok()?);
                sources = u128::from_le_bytes(rest.take(16)?.try_into().ok()?);
                job_shards = u32::try_from(rest.number()?).ok()?;
            }
            _ => return None,
        }
        let shape = Arc::clone(shapes.get(usize::try_from(rest.number()?).ok()?)?);
        let mut counts = |count: usize| (0..count).map(|_| u32::try_from(rest.number()?).ok()).collect::<Option<_>>();
        let layouts: Box<[u32]> = counts(shape.layouts.len())?;
        let most = counts(shape.extensions.len())?;
        let span = |rest: &mut Rest<'_>| {
            let (power, count, most) = (rest.take(1)?[0], u32::try_from(rest.number()?).ok()?, rest.number()?);
            Histogram::default().add_all(power.into(), count.into(), most)?;
            Some((power, count, most))
        };
        let spans = rest.list(3, span)?.into();
        let samples = layouts.iter().try_fold(0u32, |all, count| all.checked_add(*count))?;
        let longest_key = u32::try_from(rest.number()?).ok()?;
        let (at, blocks) = (rest.number()?, u32::try_from(rest.number()?).ok()?);
        let label = rest.take(1)?[0];
        let blob = Blob::new(Arc::clone(file), at, samples, blocks, label, size);
        let within = at.checked_add(blob.len())? <= end && [0, 1, 2, 4, 8].contains(&label);
        within.then_some(Self {
            name,
            size,
            etag,
            job,
            sources,
            job_shards,
            shape,
            layouts,
            most,
            spans,
            longest_key,
            blob,
        })
    }
}
