//! Lists the objects below a source.

use std::sync::Arc;

use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use infeed_core::error::{Error, Result};
use object_store::ObjectStoreExt;

#[cfg(feature = "s3")]
use super::bucket;
use super::local::{self, Walk, is_hidden};
use crate::{
    Listing, Object, Source,
    answer::{Answer, with_answer},
    connect::keys::Keys,
    errors::store_error,
    handle::Inner,
};

/// Listing fewer files of a folder takes less than a second, even if file system calls are slow.
const WORTH: usize = if cfg!(test) { 200 } else { 20_000 };
/// The most objects looked up at a time.
const LOOKS: usize = 16;

impl Source {
    /// This source as one object, if its prefix names an object rather than a folder. (Paths were already checked by
    /// [`parse`](Self::parse).)
    pub async fn as_object(&self) -> Result<Option<Self>> {
        let Inner { store, prefix, folder, only, .. } = &*self.0;
        if only.is_some() {
            return Ok(Some(self.clone()));
        }
        let (None, Some(parent), Some(name)) = (folder, prefix.parent(), prefix.filename()) else { return Ok(None) };
        match with_answer(store.head(prefix)).await {
            Ok(_) => {
                let only = Some(name.to_owned());
                Ok(Some(Self(Arc::new(Inner { prefix: parent, only, ..(*self.0).clone() }))))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(error, "cannot be looked up").at_object(self.url())),
        }
    }

    /// Streams all objects below the prefix, in no particular order. Folders of a bucket are listed 16 at a time.
    ///
    /// A listing that contains a key twice, never ends, or is not a listing (a proxy's page) is an error. Keys of a
    /// bucket that can't be read by their names (`..`, `//`, a leading `/`, control characters) are left out, with a
    /// warning.
    ///
    /// Objects are left out if a part of their name begins with a dot, except Zarr's `.zarray`, `.zattrs` and
    /// `.zgroup`. Empty objects are included. In a local folder, links to files and folders are followed, except links
    /// that lead back into their own path. A local folder is read by separate threads: as many as there are cores, at
    /// most 8, or 16 if the file system answers slowly. They end with the listing, or soon after it was dropped. Each
    /// file costs one look-up: 2 µs of a core if the folder is in memory. With 0.3 ms per call, 300,000 files take 7 s.
    pub fn list(&self) -> BoxStream<'static, Result<Object>> {
        let source = self.clone();
        async_stream::try_stream! {
            if let Some(name) = source.only() {
                let path = source.path(name)?;
                let head = with_answer(source.0.store.head(&path)).await;
                let meta = head.map_err(|e| store_error(e, "cannot be looked up").at_object(source.url()))?;
                yield Object { name: name.to_owned(), size: meta.size, etag: meta.e_tag };
            } else if let Some(folder) = &source.0.folder {
                let mut walk = Walk::start(folder.clone(), &source)?;
                while let Some(found) = walk.next().await {
                    for object in found?.found.into_objects() {
                        yield object;
                    }
                }
            } else {
                let prefix = &source.0.prefix;
                let mut metas = source.0.store.list((!prefix.is_root()).then_some(prefix));
                let mut keys = Keys::default();
                loop {
                    let next = with_answer(metas.try_next()).await;
                    let next = next.map_err(|e| store_error(e, "cannot be listed").at_object(source.url()))?;
                    let Some(meta) = next else { break };
                    keys.add(meta.location.as_ref()).map_err(|e| e.at_object(source.url()))?;
                    if let Some(object) = source.shown(meta) {
                        yield object;
                    }
                }
            }
        }
        .boxed()
    }

    /// All objects that [`list`](Self::list) gives, ordered by name. For a bucket, they come from the manifest if it is
    /// still right. The manifest is in `manifests`, or where the variables point.
    ///
    /// A local folder has a manifest only if `manifests` or a variable names a place for it, and only for callers that
    /// pass in `whole` which names they read from the beginning to the end.
    #[doc(hidden)]
    pub async fn objects(
        &self,
        manifests: Option<&std::path::Path>,
        whole: Option<fn(&str) -> bool>,
    ) -> Result<Vec<Object>> {
        match self.listing(manifests, whole).await?.into_objects() {
            Ok(objects) => Ok(objects),
            Err(_) => self.listing(None, None).await?.into_objects(),
        }
    }

    /// The same objects; those of a local folder with a manifest need not be read from it.
    #[doc(hidden)]
    pub async fn listing(
        &self,
        manifests: Option<&std::path::Path>,
        whole: Option<fn(&str) -> bool>,
    ) -> Result<Listing> {
        #[cfg(feature = "s3")]
        if let (Some(remote), None) = (&self.0.remote, self.only()) {
            return bucket::objects(self, remote, manifests).await.map(Listing::from);
        }
        if let (Some(folder), None) = (&self.0.folder, self.only()) {
            let Some((whole, manifest)) = whole.and_then(|whole| Some((whole, self.folder_manifest(manifests)?)))
            else {
                return local::all(folder.clone(), self).await.map(Listing::from);
            };
            let listing = local::all_since(folder.clone(), self, &manifest, whole, WORTH).await?;
            self.believe(manifest);
            return Ok(listing);
        }
        let mut objects: Vec<Object> = match self.list().try_collect().await {
            // Most web servers offer no listings: then the url is that of one file.
            Err(error) if self.is_web() && self.only().is_none() && cannot_list(&error) => Vec::new(),
            listed => listed?,
        };
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(objects.into())
    }

    /// Those of these objects that exist, ordered by name. Works without a listing: one request per name, 16 at a time,
    /// plus one to check whether the store sends parts of objects.
    #[doc(hidden)]
    pub async fn look_up_names(&self, names: Vec<String>) -> Result<Vec<Object>> {
        if names.iter().any(|name| name.contains(['?', '#'])) {
            // Messages contain the names, and so would reveal secrets in them.
            return Err(Error::config("a pattern of names with a query or a signature cannot be a dataset")
                .with_hint("name files without `?` and `#`; a url of one file may have a query"));
        }
        let heads = names.into_iter().map(|name| async move {
            match with_answer(self.0.store.head(&self.path(&name)?)).await {
                Ok(meta) => Ok(Some(Object { name, size: meta.size, etag: meta.e_tag })),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(store_error(error, "cannot be looked up").at_object(self.display_name(&name))),
            }
        });
        let found: Vec<Option<Object>> =
            stream::iter(heads.collect::<Vec<_>>()).buffer_unordered(LOOKS).try_collect().await?;
        let mut objects: Vec<Object> = found.into_iter().flatten().collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if let Some(first) = objects.iter().find(|object| object.size > 0) {
            self.read(&first.name, 0..1).await?;
        }
        Ok(objects)
    }

    /// The listed object, unless it is left out.
    pub(crate) fn shown(&self, meta: object_store::ObjectMeta) -> Option<Object> {
        let location = meta.location.as_ref();
        let name = location.strip_prefix(self.0.prefix.as_ref()).unwrap_or(location).trim_start_matches('/');
        let hidden = name.is_empty() || name.split('/').any(|part| is_hidden(part.as_bytes()));
        // Azure's listings contain tags without the quotes that its other answers have.
        let bare = |tag: &String| self.store().starts_with("az ") && !tag.starts_with(['"', 'W']);
        let etag = meta.e_tag.map(|tag| if bare(&tag) { format!("\"{tag}\"") } else { tag });
        (!hidden).then(|| Object { name: name.to_owned(), size: meta.size, etag })
    }
}

/// Whether a server reported that it has no listings, as opposed to refusing this one.
fn cannot_list(error: &Error) -> bool {
    matches!(Answer::of_cause(error), Some(Answer::Refused(refusal)) if matches!(refusal.status, 400 | 404 | 405))
}
