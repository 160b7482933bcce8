//! The beginning of a compressed file.

use bytes::Bytes;
use infeed_core::error::{Error, Result};
use infeed_data::packed::{Packing, read_head};
use infeed_store::Extent;

/// The first read of a compressed file: enough for the offsets of most shards, and the first records.
const HEAD: u64 = 256 << 10;

/// The first `end` bytes of a file's content, which has `length` bytes. Reads only as much of `whole` as needed.
pub(crate) async fn packed_head(whole: Extent, packing: Packing, end: u64, length: u64) -> Result<Bytes> {
    let size = whole.len();
    // What can't be compressed gets longer.
    let mut read = HEAD.max(end.saturating_add(end / 16)).min(size);
    loop {
        let bytes = whole.clone().with_range(0..read).read().await?;
        if let Some(head) = read_head(packing, &bytes, end as usize, length) {
            return Ok(head.into());
        }
        if read == size {
            let what = format!("its first {end} bytes can't be unpacked: damaged {}", packing.name());
            return Err(Error::corrupt(what).with_hint("the file is truncated or damaged; fetch it again"));
        }
        read = read.saturating_mul(4).min(size);
    }
}
