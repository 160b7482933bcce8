//! What reading compressed files has in common: all of one, its beginning, and the errors.

use std::{borrow::Cow, io};

use bytes::Bytes;
use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::packed::{Packing, read_head, supported};
use infeed_store::{Extent, Object, Source};

/// The first read of a compressed file: enough for the offsets of most shards, and the first records.
const HEAD: u64 = 256 << 10;

/// The longest compressed file: it is read whole to find its records, and again for them.
const MOST_PACKED: u64 = 2 << 30;

/// The error of a file that is truncated or damaged.
pub(crate) fn cut(what: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(what).with_hint("the file is truncated or damaged; fetch it again")
}

/// The error of a compressed file that can't be decompressed.
pub(crate) fn broken(packing: Packing, e: io::Error) -> Error {
    cut(format!("damaged {}", packing.name())).with_source(e)
}

/// Reads a compressed file, to find its records.
pub(crate) async fn read_packed(source: &Source, object: &Object) -> Result<Bytes> {
    supported("a compressed file")?;
    if object.size > MOST_PACKED {
        let what = format!("a compressed file of {} bytes, but at most {MOST_PACKED} are supported", object.size);
        return Err(Error::new(ErrorKind::Unsupported, what).with_hint("decompress it, or write it as several files"));
    }
    object.extent(source).read().await
}

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
            return Err(cut(what));
        }
        read = read.saturating_mul(4).min(size);
    }
}
