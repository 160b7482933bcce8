//! Reading a range, with its length checked.

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

/// From here on a range of a file comes in pieces. Shorter ones are read at once: 6 MB took 2.0 ms in pieces, 1.4 without.
const LONG: u64 = 64 << 20;
/// So long that a piece is still in the processor's cache when it is copied: 800 MB took 0.87 s, 1.31 at once, and 1.09 and
/// 0.95 by 1 and by 16 MiB.
const PIECE: u64 = 4 << 20;

impl Source {
    /// Reads some bytes of an object.
    ///
    /// Behind a network the request waits for its turn under the store's limit; it is repeated up to three times after
    /// a failure, a short answer or a deadline (10 s, more for large ranges), and gets a second copy when it takes much
    /// longer than usual. This needs a tokio runtime with timers. A whole object is compared with what the store tells of
    /// it, see [`Verify`](super::Verify).
    ///
    /// # Errors
    /// An answer that stays short is an `Io` error that names object and range, a missing object `NotFound`, a refused
    /// one `Denied`. Cancel safe: dropping the future drops its requests.
    pub async fn read(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        Extent::part(self, name, range).read().await
    }

    /// Starts a request and checks what the store says before the body.
    pub(super) async fn request(&self, name: &str, range: &Range<u64>, size: Option<u64>) -> Result<GetResult> {
        let whole = size == Some(range.end) && range.start == 0;
        let part = (!whole).then(|| GetRange::Bounded(range.clone()));
        let options = GetOptions { range: part, ..GetOptions::default() };
        let result = with_answer(self.0.store.get_opts(&self.path(name)?, options)).await;
        let result = result.map_err(|e| self.at(store_error(e, "cannot be read"), name, range))?;
        check_size(&result.meta, range, size).map_err(|e| self.at(e, name, range))?;
        Ok(result)
    }

    /// Reads an extent of this source: behind a network with all that `requests` does.
    #[doc(hidden)]
    pub async fn fetch(&self, extent: &Extent, reader: &Reader) -> Result<Bytes> {
        let Extent { name, range, size, .. } = extent;
        check_range(range, *size).map_err(|e| self.at(e, name, range))?;
        // Stores refuse to read nothing of something; reading all of nothing is a plain request.
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

/// All of an answer of a store of this machine.
///
/// For a long range of a file there is memory before it is read, or an error: `GetResult::bytes` would end the process.
async fn whole(answer: GetResult) -> Result<Bytes> {
    let broke_off = |error| store_error(error, "reading broke off");
    let length = answer.range.end - answer.range.start;
    let (LONG.., GetResultPayload::File(file, path)) = (length, &answer.payload) else {
        return answer.bytes().await.map_err(broke_off);
    };
    let mut all = room(length)?;
    for range in cut(answer.range.clone(), PIECE) {
        // The file that was opened, whatever has its name by now.
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
    /// As reading; `Unsupported` for one that is too large.
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
