//! Lists a bucket in parallel.
//!
//! ```text
//! pages of folders ─▶ folder after folder, up to 16 at a time, page after page ─▶ one stream
//! a page of objects ─▶ ranges of names (`split.rs`), up to 16 at a time ────────────▲
//! ```
//!
//! The pages of one listing come one after another, because each needs the token of the previous one: 20 to 100 ms per
//! thousand objects. Folders are listed by their prefix; only the objects of one folder are split by their names,
//! because not every store lists folders in byte order (SeaweedFS sorts `a-b/` after `a/`, S3 before).

use futures::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use infeed_core::error::{Error, ErrorKind};
use object_store::{ListResult, ObjectMeta, Result, path::Path};

use super::{
    keys::Pages as Seen,
    pages::{Pages, WIDTH, wrap},
    split,
};

/// The most levels to look for folders: `train/` by itself is one folder, its classes are many.
const LEVELS: usize = 3;
/// If there are more folders than fit on a page, this many are tried.
const TRIED: usize = 8;
/// With fewer objects per folder, one request per folder costs more than it gains.
const WORTH: usize = 50;

/// The prefix of the keys in a folder.
pub(super) fn folder(prefix: Option<&Path>) -> String {
    prefix.filter(|path| !path.is_root()).map_or(String::new(), |path| format!("{path}/"))
}

/// All objects whose key begins with `prefix`, in no particular order.
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
        let mut pages = split::list(bucket.clone(), at.clone(), page);
        while let Some(page) = pages.try_next().await? {
            check_prefix(&page, &at).map_err(wrap)?;
            for meta in page.objects.into_iter().filter(|object| !is_marker(object, &at)) {
                yield meta;
            }
            let folders = page.common_prefixes.iter().map(|path| one_by_one(bucket.clone(), folder(Some(path))));
            let mut found = stream::iter(folders.collect::<Vec<_>>()).flatten_unordered(WIDTH);
            while let Some(meta) = found.next().await {
                yield meta?;
            }
        }
    }
    .boxed()
}

/// A store that ignores the prefix would list the whole bucket once for each of its folders.
fn check_prefix(result: &ListResult, prefix: &str) -> Result<(), Error> {
    let keys = result.objects.iter().map(|object| &object.location);
    let folder = prefix.strip_suffix('/').unwrap_or(prefix);
    let outside = |key: &&Path| !key.as_ref().starts_with(prefix) && key.as_ref() != folder;
    match keys.chain(&result.common_prefixes).find(outside) {
        None => Ok(()),
        Some(key) => {
            let what =
                format!("the listing of {prefix:?} holds the key {:?}, which does not begin with it", key.as_ref());
            Err(Error::new(ErrorKind::Io, what).with_hint("check the endpoint, and any proxy in front of the store"))
        }
    }
}

/// Whether this is the object `folder/` that consoles create for a folder. Its name has lost the slash at this point.
fn is_marker(object: &ObjectMeta, folder: &str) -> bool {
    folder.strip_suffix('/') == Some(object.location.as_ref())
}

/// Lists one page after another.
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
