//! What a cache did for one stream.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

/// What the cache did for one stream so far. Counts reads, not records: one record may take several reads.
///
/// `hits + misses` is the number of reads.
///
/// ```
/// # #[cfg(feature = "png")] {
/// # use futures::StreamExt;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> infeed::Result<()> {
/// # let mut png = std::io::Cursor::new(Vec::new());
/// # image::RgbImage::new(8, 8).write_to(&mut png, image::ImageFormat::Png).unwrap();
/// # let png = bytes::Bytes::from(png.into_inner());
/// # let transform = infeed::Transform::new().resize_exact(8, 8);
/// # let dataset = infeed::dataset::MemoryDataset::builder().encoded_images(vec![png; 8]).build()?;
/// # let builder = infeed::Loader::builder(std::sync::Arc::new(dataset)).batch_size(4).transform(transform);
/// use infeed::source::CacheSpec;
///
/// // Images that are decoded once, for all epochs.
/// let loader = builder.decoded_cache(CacheSpec::ram(1 << 20)).build().await?;
/// let mut batches = loader.epochs(0..2);
/// while batches.next().await.transpose()?.is_some() {}
/// let cache = batches.report().decoded_cache.expect("there is one");
/// println!("{} of {} records came from it", cache.hits, cache.hits + cache.misses);
/// assert_eq!(cache.hits + cache.misses, 16);
/// # Ok(()) } main().unwrap() }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CacheReport {
    /// Reads that the cache served.
    pub hits: u64,
    /// Reads that went to the store.
    pub misses: u64,
    /// Bytes that the cache served.
    pub bytes_hit: u64,
    /// Bytes written to the cache.
    pub bytes_written: u64,
    /// Entries removed to make room for others.
    pub evictions: u64,
    /// Entries whose bytes differed from what had been written. They were removed and read from the store again.
    pub damaged: u64,
    /// Entries that could not be decoded. They were removed and read from the store again, each at most once per
    /// process: a sample that is bad in the store too costs one extra read.
    pub undecodable: u64,
    /// Reads that were not kept: room would have required removing entries that are needed sooner, the object has no
    /// version tag, writing was too far behind, or the folder can't be written.
    pub not_kept: u64,
    /// Bytes in the cache now, including those of all other users of it.
    pub used: u64,
    /// The most bytes it may hold.
    pub size: u64,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    bytes_hit: AtomicU64,
    bytes_written: AtomicU64,
    evictions: AtomicU64,
    damaged: AtomicU64,
    undecodable: AtomicU64,
    not_kept: AtomicU64,
}

/// Counts what a cache does for one stream. A clone is another handle to the same counts.
#[derive(Clone, Debug, Default)]
pub struct CacheRecorder(Arc<Counters>);

fn add(counter: &AtomicU64, n: u64) {
    // Relaxed: these are counters only; no other memory is ordered by them.
    counter.fetch_add(n, Ordering::Relaxed);
}

impl CacheRecorder {
    #[doc(hidden)]
    pub fn hit(&self, bytes: u64) {
        add(&self.0.hits, 1);
        add(&self.0.bytes_hit, bytes);
    }

    #[doc(hidden)]
    pub fn miss(&self) {
        add(&self.0.misses, 1);
    }

    #[doc(hidden)]
    pub fn written(&self, bytes: u64) {
        add(&self.0.bytes_written, bytes);
    }

    #[doc(hidden)]
    pub fn evicted(&self) {
        add(&self.0.evictions, 1);
    }

    #[doc(hidden)]
    pub fn damaged(&self) {
        add(&self.0.damaged, 1);
    }

    #[doc(hidden)]
    pub fn undecodable(&self) {
        add(&self.0.undecodable, 1);
    }

    #[doc(hidden)]
    pub fn not_kept(&self) {
        add(&self.0.not_kept, 1);
    }

    /// The counts so far. The cache itself adds what it holds (`used`, `size`).
    pub fn report(&self, used: u64, size: u64) -> CacheReport {
        let Counters { hits, misses, bytes_hit, bytes_written, evictions, damaged, undecodable, not_kept } = &*self.0;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheReport {
            hits: get(hits),
            misses: get(misses),
            bytes_hit: get(bytes_hit),
            bytes_written: get(bytes_written),
            evictions: get(evictions),
            damaged: get(damaged),
            undecodable: get(undecodable),
            not_kept: get(not_kept),
            used,
            size,
        }
    }
}
