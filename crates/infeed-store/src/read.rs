//! Reads a range and checks its length.

use std::ops::Range;

use bytes::Bytes;
use infeed_core::error::Result;
use object_store::{Attributes, GetOptions, GetRange, GetResult, GetResultPayload};

use super::{
    Beside, Extent, Object, Reader, Source,
    answer::with_answer,
    errors::{check_range, check_size, read_error, room, short_answer, store_error},
    extent::cut,
};

/// From this length on, a range of a file is read in pieces. Shorter ranges are read at once: 6 MB took 2.0 ms in
/// pieces, 1.4 ms at once.
const LONG: u64 = 64 << 20;
/// A piece is short enough to be still in the processor's cache when it is copied: 800 MB took 0.87 s in pieces of 4
/// MiB, 1.31 s at once, 1.09 s in pieces of 1 MiB and 0.95 s in pieces of 16 MiB.
const PIECE: u64 = 4 << 20;

impl Source {
    /// Reads some bytes of an object.
    ///
    /// Behind a network, the request waits for its turn under the store's limit. It is repeated up to three times after
    /// a wrong answer, such as a short one. After a failure or a deadline (10 s, more for large ranges) it is repeated
    /// up to seven times while the store answers other requests, and otherwise for as long as
    /// [`with_patience`](Self::with_patience) sets. If it takes much longer than usual, a second copy is sent. This
    /// needs a tokio runtime with timers. A whole object is compared with the checksum that the store sends, see
    /// [`Verify`](super::Verify).
    ///
    /// # Errors
    /// `Io` for an answer that stays short, with object and range; `NotFound` for a missing object; `Denied` for a
    /// refused one. Cancel safe: dropping the future drops its requests.
    pub async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        Extent::part(self, name, range).read().await
    }

    /// Starts a request and checks the header of the answer, before its body.
    pub(super) async fn request(&self, name: &str, range: &Range<u64>, size: Option<u64>) -> Result<GetResult> {
        let whole = size == Some(range.end) && range.start == 0;
        let part = (!whole).then(|| GetRange::Bounded(range.clone()));
        let options = GetOptions { range: part, ..GetOptions::default() };
        let result = with_answer(self.0.store.get_opts(&self.path(name)?, options)).await;
        let result = result.map_err(|e| self.at(store_error(e, "cannot be read"), name, range))?;
        check_size(&result.meta, range, size).map_err(|e| self.at(e, name, range))?;
        Ok(result)
    }

    /// Reads an extent of this source; behind a network with limits, retries and hedging, as in `requests`.
    #[doc(hidden)]
    pub async fn fetch(&self, extent: &Extent, reader: &Reader) -> Result<Bytes> {
        let Extent { name, range, size, .. } = extent;
        check_range(range, *size).map_err(|e| self.at(e, name, range))?;
        // Stores refuse an empty range of an object, but reading all of an empty object is a plain request.
        if range.is_empty() && *size != Some(0) {
            return Ok(Bytes::new());
        }
        if !self.0.inline {
            return self.fetch_remote(extent, reader).await;
        }
        let result = self.request(name, range, *size).await?;
        let bytes = whole(result).await.map_err(|e| self.at(e, name, range))?;
        let asked = range.end - range.start;
        if bytes.len() as u64 != asked {
            return Err(self.at(short_answer(bytes.len() as u64, asked), name, range));
        }
        Ok(bytes)
    }
}

/// The whole body of an answer from a local store.
///
/// For a long range of a file, memory is allocated first, or there is an error: `GetResult::bytes` would end the
/// process.
async fn whole(answer: GetResult) -> Result<Bytes> {
    let broke_off = |error| store_error(error, "reading broke off");
    let length = answer.range.end - answer.range.start;
    let (LONG.., GetResultPayload::File(file, path)) = (length, &answer.payload) else {
        return answer.bytes().await.map_err(broke_off);
    };
    let mut all = room(length)?;
    for range in cut(answer.range.clone(), PIECE) {
        // The file that was opened, even if its name belongs to another file by now.
        let payload = GetResultPayload::File(file.try_clone().map_err(read_error)?, path.clone());
        let (meta, attributes) = (answer.meta.clone(), Attributes::default());
        let piece = GetResult { payload, meta, range, attributes, extensions: Default::default() };
        all.extend_from_slice(&piece.bytes().await.map_err(broke_off)?);
    }
    Ok(all.freeze())
}

impl Extent {
    /// Reads the bytes; see [`Source::read`].
    pub async fn read(&self) -> Result<Bytes> {
        self.source.fetch(self, &Reader::default()).await
    }
}

impl Beside {
    /// Reads an object that is no larger than files of its kind may be.
    ///
    /// # Errors
    /// Those of reading; `Unsupported` if the object is too large.
    pub async fn read(self, source: &Source, object: &Object) -> Result<Bytes> {
        self.check(object.size).map_err(|e| e.at_object(source.display_name(&object.name)))?;
        object.extent(source).read().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_object_beside_the_data_is_named_and_not_read() {
        let _store = Source::memory("read.beside");
        let source = Source::parse("memory://read.beside").unwrap();
        let object = Object::new("labels.csv", 6 << 40);
        let error = futures::executor::block_on(Beside::Table.read(&source, &object)).unwrap_err().to_string();
        assert!(error.contains("labels.csv") && error.contains("INFEED_SIDE_FILE_LIMIT=6144GiB"), "{error}");
    }
}
