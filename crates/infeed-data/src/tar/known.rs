//! Where the samples of shards lie: as it is known from before, or else found out and kept.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use infeed_core::error::{Error, ErrorKind, Result, setting::ALLOW_INCOMPLETE};
use infeed_store::{Beside, Manifest, Object, Source};

use super::{
    index::{self, INDEX, Index},
    shard::Shard,
    walk,
};
use crate::{
    format::OpenOptions,
    names::{base, parent},
};

/// Shards of a remote store that are indexed at a time.
const AT_A_TIME: usize = 16;

/// What indexes tell, of a folder and of single shards.
#[derive(Debug, Default)]
pub(super) struct Known {
    shards: HashMap<Arc<str>, Shard>,
    classes: Vec<String>,
    /// DALI's indices, by the name without ending.
    foreign: HashMap<String, Object>,
    /// What is kept beside local shards, and so goes on being kept.
    beside: Vec<Arc<str>>,
    /// What an earlier opening of this place kept elsewhere.
    elsewhere: Option<Manifest>,
}

impl Known {
    pub(super) async fn load(source: &Source, objects: &[Object], options: &OpenOptions) -> Result<Self> {
        let mut known = Self::default();
        // The index of the whole folder last, as what is told twice is taken from it.
        let mut files: Vec<&Object> = objects.iter().filter(|o| o.name.ends_with(index::ENDING)).collect();
        files.sort_by_key(|o| base(&o.name) == INDEX);
        let whole: HashSet<&str> = files.iter().filter(|o| base(&o.name) == INDEX).map(|o| parent(&o.name)).collect();
        // Those of single shards are read only in folders without one of all.
        files.retain(|o| base(&o.name) == INDEX || !whole.contains(parent(&o.name)));
        let reads: Vec<_> =
            files
                .into_iter()
                .map(|object| async move {
                    Beside::Table.read(source, object).await.map(|bytes| (object.name.clone(), bytes))
                })
                .collect();
        let mut reads = stream::iter(reads).buffered(AT_A_TIME);
        while let Some((name, bytes)) = reads.try_next().await? {
            match Index::parse(&bytes) {
                Ok(index) => known.add(index, parent(&name), name == INDEX),
                Err(wrong) => {
                    let file = source.display_name(&name);
                    tracing::warn!(file, "the index of shards is not used: {wrong}");
                }
            }
        }
        known.elsewhere = source.manifest("shards", options.manifests.as_deref());
        if let Some(index) = known.elsewhere.as_ref().and_then(|manifest| manifest.load(Index::parse)) {
            known.add(index, "", false);
        }
        for object in objects.iter().filter(|o| o.name.ends_with(".idx")) {
            let stem = object.name.trim_end_matches(".idx");
            known.foreign.insert(stem.trim_end_matches(".tar").to_owned(), object.clone());
        }
        Ok(known)
    }

    fn add(&mut self, index: Index, folder: &str, beside: bool) {
        if !index.classes.is_empty() {
            self.classes = index.classes;
        }
        for mut shard in index.shards {
            if !folder.is_empty() {
                shard.name = format!("{folder}/{}", shard.name).into();
            }
            if beside {
                self.beside.push(Arc::clone(&shard.name));
            }
            // What lies beside the shards was read first, and is right.
            self.shards.entry(Arc::clone(&shard.name)).or_insert(shard);
        }
    }

    /// Refuses shards of a `prepare` of which others are missing: a rank has not finished, or a copy was broken off.
    /// Whoever names shards one by one has said which.
    pub(super) fn check_complete(&self, source: &Source, objects: &[Object], tars: &[&Object]) -> Result<()> {
        if source.only().is_some() {
            return Ok(());
        }
        let mut jobs = BTreeMap::new();
        for tar in tars {
            // What is told of other tars may be of times long gone.
            if let Some(shard) = self.shards.get(tar.name.as_str()).filter(|shard| shard.job != 0 && shard.is_of(tar))
                && let Some((name, _)) = shard.name.rsplit_once('-')
            {
                jobs.insert((name, shard.job), shard.job_shards);
            }
        }
        let here: HashSet<&str> = objects.iter().map(|object| object.name.as_str()).collect();
        for ((name, _), of) in jobs {
            let missing: Vec<String> =
                (0..of).map(|i| format!("{name}-{i:06}.tar")).filter(|tar| !here.contains(tar.as_str())).collect();
            let [first, ..] = &missing[..] else { continue };
            let some = missing.iter().take(8).map(|tar| base(tar)).collect::<Vec<_>>().join(", ");
            let others = if missing.len() > 8 { ", …" } else { "" };
            let what = format!("{} of {of} shards of a `prepare` are not there: {some}{others}", missing.len());
            return Err(Error::new(ErrorKind::NotFound, what).at_object(source.display_name(first)).hint(format!(
                "let the other ranks finish, or run `infeed prepare` again with the same settings, which makes what is \
                 missing; {ALLOW_INCOMPLETE} takes what is there",
            )));
        }
        Ok(())
    }

    /// All samples of `tars`: as they are known, or else found out and kept.
    pub(super) async fn shards(mut self, source: &Source, tars: &[&Object]) -> Result<(Vec<Shard>, Vec<String>)> {
        let mut shards: Vec<Option<Shard>> = Vec::with_capacity(tars.len());
        let mut unknown = Vec::new();
        for (i, tar) in tars.iter().enumerate() {
            let known = self.shards.get(tar.name.as_str());
            if let Some(known) = known.filter(|known| !known.is_of(tar)) {
                let file = source.display_name(&tar.name);
                let told = known.size;
                tracing::warn!(
                    file,
                    size = tar.size,
                    told,
                    "the tar has changed since it was indexed; indexing it again"
                );
            }
            let known = known.filter(|known| known.is_of(tar)).cloned();
            if known.is_none() {
                unknown.push(i);
            }
            // The version that is there now, so that a later one is told apart.
            shards.push(known.map(|mut shard| {
                shard.etag = tar.etag.as_deref().map(Into::into);
                shard
            }));
        }
        if unknown.is_empty() {
            return Ok((shards.into_iter().flatten().collect(), self.classes));
        }
        tracing::info!(shards = unknown.len(), url = source.url(), "indexing tar shards");
        let foreign = std::mem::take(&mut self.foreign);
        let index = |i: usize| index(source, tars[i], &foreign).map(move |shard| shard.map(|shard| (i, shard)));
        let futures: Vec<_> = unknown.iter().map(|i| index(*i).boxed()).collect();
        let mut indexed = stream::iter(futures).buffer_unordered(AT_A_TIME);
        while let Some((i, shard)) = indexed.try_next().await? {
            shards[i] = Some(shard);
        }
        drop(indexed);
        let shards: Vec<Shard> = shards.into_iter().flatten().collect();
        let classes = self.classes.clone();
        self.keep(source, &shards).await;
        Ok((shards, classes))
    }

    /// Writes what was found out where the next opening finds it.
    async fn keep(self, source: &Source, shards: &[Shard]) {
        // One shard of a folder says nothing about the others, and is indexed at once.
        if source.folder().is_some() && source.only().is_some() {
            return;
        }
        let here: HashSet<&str> = shards.iter().map(|shard| &*shard.name).collect();
        // Of shards that were not asked for this time, too.
        let mut all: Vec<Shard> = self.shards.into_values().filter(|known| !here.contains(&*known.name)).collect();
        all.extend(shards.iter().cloned());
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let bytes = Index { classes: self.classes, shards: all }.encode();
        if source.folder().is_some() {
            match source.put(INDEX, bytes.clone().into()).await {
                Ok(_) => return,
                Err(error) => tracing::debug!(%error, "the index of shards is kept elsewhere"),
            }
        }
        if let Some(manifest) = self.elsewhere {
            manifest.store(&bytes);
        }
    }
}

async fn index(source: &Source, tar: &Object, foreign: &HashMap<String, Object>) -> Result<Shard> {
    let stem = &tar.name[..tar.name.len() - ".tar".len()];
    if let Some(object) = foreign.get(stem) {
        let bytes = Beside::Table.read(source, object).await?;
        match index::parse_wds2idx(&bytes, tar) {
            Ok(shard) => return Ok(shard),
            Err(wrong) => {
                let file = source.display_name(&object.name);
                tracing::warn!(file, "the index is not used: {wrong}");
            }
        }
    }
    walk::walk(source, tar).await
}
