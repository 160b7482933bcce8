//! One read, and combining reads: reads near each other become one request, a large read becomes several.

use std::{collections::HashMap, ops::Range, sync::Arc};

use super::{Object, Source};

/// Ranges nearer than this are read together: reading 64 KiB more costs less than another request (75 to 150 µs of CPU,
/// and a place in the limit of requests in flight).
const GAP: u64 = 64 << 10;
/// Joined reads are no longer than this: stores limit the bandwidth of one request, so two requests in parallel finish
/// sooner than one of twice the length. (With row groups of 5.4 MB at 20 MB/s per request, joined in pairs, the first
/// batch came after 562 ms; read one by one, after 379 ms.)
const TOGETHER: u64 = 8 << 20;
/// The largest request. Above 8 to 16 MiB the latency of a request no longer matters, and a retry repeats more bytes.
pub(super) const MOST: u64 = 16 << 20;

/// One read: some bytes of one object of one source.
///
/// ```
/// # futures::executor::block_on(async {
/// use infeed::source::{Extent, Source};
/// # use object_store::{ObjectStoreExt, path::Path};
///
/// # let store = Source::memory("doc-extent");
/// # store.put(&Path::parse("shard.bin").unwrap(), "0123456789".into()).await.unwrap();
/// let source = Source::parse("memory://doc-extent")?;
/// let record = Extent::part(&source, "shard.bin", 4..7); // As a dataset's plan returns it.
/// assert_eq!(record.len(), 3);
/// assert_eq!(record.read().await?, "456");
/// # Ok::<(), infeed::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Extent {
    /// The place that holds the object.
    pub source: Source,
    /// Name relative to the source's prefix.
    pub name: Arc<str>,
    /// The range of bytes.
    pub range: Range<u64>,
    /// Length of the whole object, if known. A read fails if the object has another length by then.
    pub size: Option<u64>,
    /// The object's version tag, if known. A remote read of another version fails.
    pub etag: Option<Arc<str>>,
}

impl Extent {
    /// The tag for a conditional request. A weak tag never matches in a conditional request (RFC 9110, 13.1.1), and a
    /// tag that is not ASCII can't be put in a header: the reader compares such tags itself.
    pub(super) fn if_match(&self) -> Option<String> {
        self.etag.as_deref().filter(|tag| !tag.starts_with("W/") && tag.is_ascii()).map(str::to_owned)
    }

    /// A whole object, whose listed length is `size`.
    #[must_use]
    pub fn whole(source: &Source, name: impl Into<Arc<str>>, size: u64) -> Self {
        Self { source: source.clone(), name: name.into(), range: 0..size, size: Some(size), etag: None }
    }

    /// Some bytes of an object of any length.
    #[must_use]
    pub fn part(source: &Source, name: impl Into<Arc<str>>, range: Range<u64>) -> Self {
        Self { source: source.clone(), name: name.into(), range, size: None, etag: None }
    }

    /// The same bytes, of the version with this [`Object::etag`](super::Object::etag) only.
    #[must_use]
    pub fn with_etag(mut self, etag: Option<impl Into<Arc<str>>>) -> Self {
        self.etag = etag.map(Into::into);
        self
    }

    /// Another range of the same object.
    #[doc(hidden)]
    #[must_use]
    pub fn with_range(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Number of bytes to read.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Whether there is nothing to read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Object {
    /// A read of the whole object, in the version that was listed.
    #[must_use]
    pub fn extent(&self, source: &Source) -> Extent {
        Extent::whole(source, self.name.as_str(), self.size).with_etag(self.etag.as_deref())
    }
}

/// One read that serves several extents.
#[derive(Debug)]
pub struct Merged {
    #[doc(hidden)]
    pub extent: Extent,
    /// The index of each extent, and its place in the bytes read.
    pub parts: Vec<(usize, Range<usize>)>,
}

/// Combines extents that are near each other in one object into one read. The reads are ordered by their first extents.
pub fn merge(extents: Vec<Extent>) -> Vec<Merged> {
    merge_within(extents, GAP)
}

/// The same for extents with less than `gap` bytes between them.
pub fn merge_within(extents: Vec<Extent>, gap: u64) -> Vec<Merged> {
    let whole = |(i, extent): (usize, Extent)| {
        let parts = vec![(i, 0..usize::try_from(extent.len()).unwrap_or(usize::MAX))];
        Merged { extent, parts }
    };
    // Most records are whole objects, which are never combined.
    let mut places: HashMap<(usize, Arc<str>), Vec<usize>> = HashMap::with_capacity(extents.len());
    for (i, extent) in extents.iter().enumerate() {
        places.entry((extent.source.identity(), Arc::clone(&extent.name))).or_default().push(i);
    }
    if places.len() == extents.len() {
        return extents.into_iter().enumerate().map(whole).collect();
    }
    let mut merged: Vec<Merged> = Vec::new();
    for places in places.into_values() {
        // Extents that expect different sizes or versions of an object are different reads.
        let mut rest = places;
        while let Some(&first) = rest.first() {
            let like = |i: &usize| (extents[*i].size, &extents[*i].etag) == (extents[first].size, &extents[first].etag);
            let (same, others): (Vec<usize>, Vec<usize>) = rest.into_iter().partition(like);
            rest = others;
            let ranges: Vec<Range<u64>> = same.iter().map(|i| extents[*i].range.clone()).collect();
            for (range, members) in coalesce(&ranges, gap, TOGETHER) {
                let part = |member: usize| {
                    let wanted = &ranges[member];
                    (same[member], (wanted.start - range.start) as usize..(wanted.end - range.start) as usize)
                };
                let mut parts: Vec<_> = members.into_iter().map(part).collect();
                parts.sort_unstable_by_key(|(i, _)| *i);
                merged.push(Merged { extent: Extent { range: range.clone(), ..extents[first].clone() }, parts });
            }
        }
    }
    merged.sort_unstable_by_key(|read| read.parts[0].0);
    merged
}

/// Joins ranges whose gap is at most `gap`, up to `most` bytes (a longer range stays as it is). Returns each joined
/// range with the indices of its parts.
fn coalesce(ranges: &[Range<u64>], gap: u64, most: u64) -> Vec<(Range<u64>, Vec<usize>)> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by_key(|i| (ranges[*i].start, ranges[*i].end));
    let mut joined: Vec<(Range<u64>, Vec<usize>)> = Vec::new();
    for i in order {
        let next = &ranges[i];
        if let Some((last, members)) = joined.last_mut() {
            let end = last.end.max(next.end);
            let near = next.start <= last.end.saturating_add(gap);
            if near && (end == last.end || end - last.start <= most) {
                last.end = end;
                members.push(i);
                continue;
            }
        }
        joined.push((next.start..next.end.max(next.start), vec![i]));
    }
    joined
}

/// Cuts a range into the fewest pieces of at most `most` bytes, of about equal length. An empty range is one piece.
pub(super) fn cut(range: Range<u64>, most: u64) -> impl ExactSizeIterator<Item = Range<u64>> {
    let len = range.end.saturating_sub(range.start);
    let pieces = len.div_ceil(most).max(1);
    // There are far fewer pieces than bytes: their number would fit `u32` for any object that a store accepts.
    (0..usize::try_from(pieces).unwrap_or(usize::MAX)).map(move |n| {
        let at = |n: u64| range.start + (u128::from(len) * u128::from(n) / u128::from(pieces)) as u64;
        at(n as u64)..at(n as u64 + 1)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn source() -> Source {
        let store = Arc::new(object_store::memory::InMemory::new());
        Source::from_store(store, object_store::path::Path::default(), "test://")
    }

    #[test]
    fn near_ranges_are_joined_and_far_ones_are_not() {
        let ranges = [100..200, 1000..1100, 210..300, 150..160];
        assert_eq!(coalesce(&ranges, 10, 1000), [(100..300, vec![0, 3, 2]), (1000..1100, vec![1])]);
        assert_eq!(coalesce(&ranges, 9, 1000).len(), 3);
        assert_eq!(coalesce(&[0..60, 60..120], 0, 100).len(), 2, "not above the bound");
        assert_eq!(coalesce(&[0..600, 100..200], 0, 100), [(0..600, vec![0, 1])], "inside a long one");
    }

    #[test]
    fn only_extents_of_one_object_and_version_are_read_together() {
        let (a, b) = (source(), source());
        let extents = vec![
            Extent::part(&a, "x", 500..600),
            Extent::part(&b, "x", 0..100),
            Extent::part(&a, "x", 0..100),
            Extent::part(&a, "x", 100..200).with_etag(Some("1")),
            Extent::part(&a, "y", 100..200),
        ];
        let merged = merge(extents);
        let told: Vec<_> = merged.iter().map(|m| (m.extent.range.clone(), m.parts.clone())).collect();
        assert_eq!(
            told,
            [
                (0..600, vec![(0, 500..600), (2, 0..100)]),
                (0..100, vec![(1, 0..100)]),
                (100..200, vec![(3, 0..100)]),
                (100..200, vec![(4, 0..100)]),
            ]
        );
    }

    #[test]
    fn large_ranges_are_cut_into_equal_pieces() {
        for small in [5..5, 5..15] {
            assert!(cut(small.clone(), 10).eq([small]));
        }
        let pieces: Vec<_> = cut(0..(64 << 20) + 1, MOST).collect();
        assert_eq!(pieces.len(), 5);
        assert!(pieces.iter().all(|piece| (8 << 20..=MOST).contains(&(piece.end - piece.start))), "{pieces:?}");
    }

    proptest! {
        #[test]
        fn joining_then_cutting_gives_each_range_back(
            raw in prop::collection::vec((0u64..5000, 0u64..700), 1..40), gap in 0u64..200, most in 1u64..2000,
        ) {
            let object: Vec<u8> = (0..6000u32).map(|i| (i * 7 + i / 256) as u8).collect();
            let ranges: Vec<Range<u64>> = raw.iter().map(|(start, len)| *start..start + len).collect();
            let mut seen = vec![0; ranges.len()];
            for (range, members) in coalesce(&ranges, gap, most) {
                let longest = members.iter().map(|i| ranges[*i].end - ranges[*i].start).max().unwrap();
                prop_assert!(range.end - range.start <= most.max(longest));
                let mut read = Vec::new();
                for piece in cut(range.clone(), most) {
                    prop_assert!(piece.end - piece.start <= most);
                    read.extend_from_slice(&object[piece.start as usize..piece.end as usize]);
                }
                for i in members {
                    seen[i] += 1;
                    let wanted = &ranges[i];
                    let at = (wanted.start - range.start) as usize..(wanted.end - range.start) as usize;
                    prop_assert_eq!(&read[at], &object[wanted.start as usize..wanted.end as usize]);
                }
            }
            prop_assert!(seen.iter().all(|n| *n == 1));
        }
    }
}
