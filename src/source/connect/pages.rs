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
use object_store::{ObjectMeta, Result, list::PaginatedListResult, path::Path};

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
            for meta in page.result.objects.into_iter().filter(|object| !is_marker(object, &at)) {
                yield meta;
            }
            let folders = page.result.common_prefixes.iter().map(|path| one_by_one(bucket.clone(), folder(Some(path))));
            let mut found = stream::iter(folders.collect::<Vec<_>>()).flatten_unordered(WIDTH);
            while let Some(meta) = found.next().await {
                yield meta?;
            }
            let Some(token) = page.page_token else { break };
            page = bucket.page(at.clone(), None, Some(token), true).await?;
        }
    }
    .boxed()
}

/// Whether this is the object `folder/` that consoles make for a folder; its name has lost the slash by now.
fn is_marker(object: &ObjectMeta, folder: &str) -> bool {
    folder.strip_suffix('/') == Some(object.location.as_ref())
}

/// One page after another.
fn one_by_one(bucket: impl Pages, prefix: String) -> BoxStream<'static, Result<ObjectMeta>> {
    async_stream::try_stream! {
        let mut token = None;
        loop {
            let page = bucket.page(prefix.clone(), None, token, false).await?;
            for meta in page.result.objects.into_iter().filter(|object| !is_marker(object, &prefix)) {
                yield meta;
            }
            token = page.page_token;
            if token.is_none() {
                break;
            }
        }
    }
    .boxed()
}
