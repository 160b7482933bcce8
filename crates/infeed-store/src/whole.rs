//! Reads whole objects from a remote store and compares them with what the store sends about them.

use bytes::Bytes;
use futures::future::try_join;
use infeed_core::error::{ErrorKind, Result};
use object_store::{GetOptions, GetResult};

use super::{
    Extent, Reader, Source, Verified, Verify,
    answer::with_answer,
    checksum::{Check, SentChecksums, told},
    errors::store_error,
    extent, requests,
};

/// The most reads of an object that comes in several requests, before its damage is an error: the same number as for
/// one request.
const ATTEMPTS: u32 = 4;

impl Extent {
    pub(super) fn is_whole(&self) -> bool {
        self.range.start == 0 && self.size == Some(self.range.end)
    }

    /// The expected hash of this object, requested from the store: for callers that read it in parts of their own.
    ///
    /// # Errors
    /// Those of reading.
    #[doc(hidden)]
    pub async fn check(&self) -> Result<Check> {
        self.source.check(self, Verify::Checksums).await
    }
}

impl Source {
    /// How whole objects of this store were compared so far, by all readers in this process.
    #[doc(hidden)]
    #[must_use]
    pub fn verified(&self) -> Verified {
        self.0.trust.verified()
    }

    /// Whether a look-up returns more than an answer with bytes: true for a bucket or a dataset of the hub.
    fn tells(&self) -> bool {
        #[cfg(feature = "s3")]
        if self.0.remote.is_some() {
            return true;
        }
        #[cfg(feature = "http")]
        if self.0.hub.is_some() {
            return true;
        }
        false
    }

    /// Compares a whole object that came in one answer.
    pub(super) async fn check_answer(
        &self,
        extent: &Extent,
        bytes: &Bytes,
        told: Option<SentChecksums>,
        reader: &Reader,
    ) -> Result<()> {
        let how = reader.verify();
        if how == Verify::Never {
            return Ok(());
        }
        let name = self.display_name(&extent.name);
        Box::pin(Check::new(told, how, name, &self.0.trust).run(bytes, extent, reader.hash_threads())).await
    }

    async fn check(&self, extent: &Extent, how: Verify) -> Result<Check> {
        let told = if self.tells() { told(&self.look_up(extent).await?) } else { None };
        Ok(Check::new(told, how, self.display_name(&extent.name), &self.0.trust))
    }

    async fn look_up(&self, extent: &Extent) -> Result<GetResult> {
        let Extent { name, range, .. } = extent;
        let if_match = extent.if_match();
        let options = GetOptions { head: true, if_match, ..GetOptions::default() };
        let looked = with_answer(self.0.store.get_opts(&self.path(name)?, options)).await;
        looked.map_err(|error| self.at(store_error(error, "cannot be looked up"), name, range))
    }

    /// Reads an extent over the network. A whole object that comes in several requests is compared here; one that comes
    /// in a single request is compared when it arrives.
    pub(super) async fn fetch_remote(&self, extent: &Extent, reader: &Reader) -> Result<Bytes> {
        let read = || requests::read(extent, &self.0.requests, reader);
        let how = reader.verify();
        if !extent.is_whole() || extent.len() <= extent::MOST || how == Verify::Never || !self.tells() {
            return read().await;
        }
        let mut attempt = 1;
        loop {
            let (bytes, check) = try_join(read(), self.check(extent, how)).await?;
            match check.run(&bytes, extent, reader.hash_threads()).await {
                Ok(()) => return Ok(bytes),
                Err(error) if attempt == ATTEMPTS || error.kind() != ErrorKind::Corrupt => {
                    return Err(self.at(error, &extent.name, &extent.range));
                }
                Err(error) => tracing::debug!(object = %extent.name, attempt, %error, "reading all of it again"),
            }
            attempt += 1;
        }
    }
}
