//! Lists a bucket in parallel.
//!
//! ```text
//! pages of folders ─▶ folder after folder, up to 16 at a time, page after page ─▶ one stream
//! ```
//!
//! Pages of one listing come one after another, since each needs the token of the one before: 20 to 100 ms for a
//! thousand objects. Folders are listed by their prefix and never cut by names in between, because not every store
//! lists in the order of bytes (SeaweedFS sorts `a-b/` after `a/`, S3 before).

use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use infeed_core::error::{Error, ErrorKind};
use object_store::{ListResult, ObjectMeta, Result, list::PaginatedListResult, path::Path};

use crate::unrepeated::Pages as Seen;

/// Folders listed at a time, and so pages that are held.
const WIDTH: usize = 16;
/// Levels looked at: `train/` alone says nothing, its classes do.
const LEVELS: usize = 3;
/// Of more folders than a page holds, so many are tried ..
const TRIED: usize = 8;
/// .. and with fewer objects in each, a request for each folder costs more than it wins.
const WORTH: usize = 50;

/// What can be listed page by page. Cloning gives another handle.
pub(super) trait Pages: Clone + Send + Sync + 'static {
    /// One page of the keys that begin with `prefix`; with `folders`, what lies deeper is told by its folder alone.
    fn page(
        &self,
        prefix: String,
        after: Option<String>,
        token: Option<String>,
        folders: bool,
    ) -> impl Future<Output = Result<PaginatedListResult>> + Send;
}

/// The prefix of keys in a folder.
pub(super) fn folder(prefix: Option<&Path>) -> String {
    prefix.filter(|path| !path.is_root()).map_or(String::new(), |path| format!("{path}/"))
}

/// All objects whose key begins with `prefix`, in no order.
pub(super) fn list(bucket: impl Pages, prefix: String) -> BoxStream<'static, Result<ObjectMeta>> {
    async_stream::try_stream! {
        let mut seen = Seen::default();
        let mut at = prefix.clone();
        let mut page = bucket.page(at.clone(), None, None, true).await?;
        for _ in 1..LEVELS {
            let alone = page.page_token.is_none() && page.result.objects.iter().all(|object| is_marker(object, &at));
            match &page.result.common_prefixes[..] {
                [only] if alone => at = folder(Some(only)),
                _ => break,
            }
            page = bucket.page(at.clone(), None, None, true).await?;
        }
        if page.page_token.is_some() && !page.result.common_prefixes.is_empty() {
            let tried = page.result.common_prefixes.iter().step_by(page.result.common_prefixes.len().div_ceil(TRIED));
            let pages = tried.map(|path| bucket.page(folder(Some(path)), None, None, false)).collect::<Vec<_>>();
            let tried: Vec<_> = stream::iter(pages).buffer_unordered(TRIED).try_collect().await?;
            if tried.iter().map(|page| page.result.objects.len()).sum::<usize>() < WORTH * tried.len() {
                let mut all = one_by_one(bucket, at);
                while let Some(meta) = all.next().await {
                    yield meta?;
                }
                return;
            }
        }
        loop {
            let entries = page.result.objects.len();
            check_prefix(&page.result, &at).map_err(wrap)?;
            for meta in page.result.objects.into_iter().filter(|object| !is_marker(object, &at)) {
                yield meta;
            }
            let folders = page.result.common_prefixes.iter().map(|path| one_by_one(bucket.clone(), folder(Some(path))));
            let mut found = stream::iter(folders.collect::<Vec<_>>()).flatten_unordered(WIDTH);
            while let Some(meta) = found.next().await {
                yield meta?;
            }
            let Some(token) = page.page_token else { break };
            seen.next(&at, page.result.common_prefixes.len() + entries, &token).map_err(wrap)?;
            page = bucket.page(at.clone(), None, Some(token), true).await?;
        }
    }
    .boxed()
}

/// Whoever takes no notice of a prefix lists the bucket for each folder of it.
fn check_prefix(result: &ListResult, prefix: &str) -> Result<(), Error> {
    let keys = result.objects.iter().map(|object| &object.location);
    let folder = prefix.strip_suffix('/').unwrap_or(prefix);
    let outside = |key: &&Path| !key.as_ref().starts_with(prefix) && key.as_ref() != folder;
    match keys.chain(&result.common_prefixes).find(outside) {
        None => Ok(()),
        Some(key) => {
            let what = format!("the listing of {prefix:?} holds the key {:?}, which does not begin so", key.as_ref());
            Err(Error::new(ErrorKind::Io, what).hint("check the endpoint, and what stands before the store"))
        }
    }
}

/// Carries an error of ours through object_store's; `errors::store_error` takes it out again.
pub(super) fn wrap(error: Error) -> object_store::Error {
    object_store::Error::Generic { store: "S3", source: Box::new(error) }
}

/// Whether this is the object `folder/` that consoles make for a folder; its name has lost the slash by now.
fn is_marker(object: &ObjectMeta, folder: &str) -> bool {
    folder.strip_suffix('/') == Some(object.location.as_ref())
}

/// One page after another.
fn one_by_one(bucket: impl Pages, prefix: String) -> BoxStream<'static, Result<ObjectMeta>> {
    async_stream::try_stream! {
        let mut seen = Seen::default();
        let mut token = None;
        loop {
            let page = bucket.page(prefix.clone(), None, token, false).await?;
            let entries = page.result.objects.len();
            check_prefix(&page.result, &prefix).map_err(wrap)?;
            for meta in page.result.objects.into_iter().filter(|object| !is_marker(object, &prefix)) {
                yield meta;
            }
            let Some(next) = page.page_token else { break };
            seen.next(&prefix, entries, &next).map_err(wrap)?;
            token = Some(next);
        }
    }
    .boxed()
}
