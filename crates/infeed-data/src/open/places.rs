//! The places of a url that names several: `A::B`, `/data/{a,b}`, `train-{000..146}.tar`.

use std::path::Path;

use futures::StreamExt;
use infeed_core::error::Result;
use infeed_store::Source;

use crate::{
    names::{base, is_image},
    pattern,
};

/// One place of a url.
pub(super) enum UrlPlace {
    /// Some objects of a folder.
    Files(Source, Vec<String>),
    /// All objects in a folder.
    Folder(Source),
}

/// The places that a url names, in its order. Consecutive files of one folder are one place.
pub(super) async fn places(url: &str, patient: impl Fn(Source) -> Source + Send + Sync) -> Result<Vec<UrlPlace>> {
    let mut places = Vec::new();
    for (folder, names) in pattern::parse(url)? {
        let mut files = Vec::new();
        for name in names {
            match folder_of(&pattern::join(&folder, &name), &patient).await? {
                None => files.push(name),
                Some(of) => {
                    places.extend(files_of(&folder, std::mem::take(&mut files), &patient).await?);
                    places.push(UrlPlace::Folder(of));
                }
            }
        }
        places.extend(files_of(&folder, files, &patient).await?);
    }
    Ok(places)
}

/// These files of a folder as a place, connected; `None` if there are no names.
async fn files_of(
    folder: &str,
    names: Vec<String>,
    patient: impl Fn(Source) -> Source + Send + Sync,
) -> Result<Option<UrlPlace>> {
    if names.is_empty() {
        return Ok(None);
    }
    let source = patient(Source::parse(folder)?);
    source.connect().await?;
    // Web urls have escapes; names of objects do not.
    let plain =
        |name: String| object_store::path::Path::from_url_path(&name).map_or(name, |path| path.as_ref().to_owned());
    let names = if source.is_web() { names.into_iter().map(plain).collect() } else { names };
    Ok(Some(UrlPlace::Files(source, names)))
}

/// The folder that this url names, connected, if it is one.
async fn folder_of(url: &str, patient: impl Fn(Source) -> Source + Send + Sync) -> Result<Option<Source>> {
    // A path that does not exist is reported later, with the other files of the url.
    if !url.contains("://") {
        return if Path::new(url).is_dir() { Source::parse(url).map(|source| Some(patient(source))) } else { Ok(None) };
    }
    // A web server is asked only for files.
    if ["http:", "https:"].iter().any(|scheme| url.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme)))
    {
        return Ok(None);
    }
    let name = base(url);
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    // The name of a store has no folder above it, and may contain dots.
    let is_store = !url[..url.len() - name.len()].trim_end_matches('/').contains("://");
    if !is_store && (is_image(name) || FILES.iter().any(|file| ending.eq_ignore_ascii_case(file))) {
        return Ok(None);
    }
    let source = patient(Source::parse(url)?);
    if source.only().is_some() {
        return Ok(None);
    }
    source.connect().await?;
    let first = source.list().next().await.transpose()?;
    Ok(first.is_some().then_some(source))
}

/// Names with these extensions are files. Without this rule, each of many shards would cost a request that checks
/// whether it is a folder.
const FILES: [&str; 16] = [
    "tar",
    "infeed",
    "idx",
    "parquet",
    "mds",
    "tfrecord",
    "tfrecords",
    "tfrec",
    "gz",
    "zst",
    "zstd",
    "npy",
    "npz",
    "safetensors",
    "h5",
    "bin",
];

#[cfg(test)]
mod tests {
    use std::{future::IntoFuture, sync::Arc};

    use super::*;
    use crate::{Dataset, Open};

    fn opened(url: &str) -> Result<Arc<dyn Dataset>> {
        futures::executor::block_on(Open::of_url(url.to_owned(), &crate::HERE).into_future())
    }

    /// The objects and the labels of all records.
    fn told(url: &str) -> (Vec<String>, Vec<i64>) {
        let dataset = opened(url).unwrap();
        let label = |record| match dataset.known(record, "label") {
            Some(crate::Value::Label(label)) => label,
            other => panic!("{other:?}"),
        };
        let names = (0..dataset.len()).map(|record| dataset.object(record));
        let names = names.map(|name| name.rsplitn(4, '/').take(3).collect::<Vec<_>>().join("<")).collect();
        (names, (0..dataset.len()).map(label).collect())
    }

    const PETS: [&str; 5] =
        ["v/a/cat/1.png", "v/a/dog/2.png", "v/c.2012/dog/3.png", "v/train-set/cat/4.png", "v/other/cow/5.png"];

    fn check(root: &str) {
        let told = |url: &str| told(&url.replace('@', root));
        let (a, c, train) = (["1.png<cat<a", "2.png<dog<a"], ["3.png<dog<c.2012"], ["4.png<cat<train-set"]);
        let labels = |url: &str, names: &[&[&str]], labels: &[i64]| {
            assert_eq!(
                told(url),
                (names.concat().iter().map(|name| (*name).to_owned()).collect(), labels.to_vec()),
                "{url}"
            );
        };
        // Later places take the classes of the first.
        labels("@/v/a::@/v/c.2012", &[&a, &c], &[0, 1, 1]);
        labels("@/v/a/::@/v/train-set/", &[&a, &train], &[0, 1, 0]);
        labels("@/v/{a,train-set,c.2012}", &[&a, &train, &c], &[0, 1, 0, 1]);
        labels("@/v/{a,c.2012}/", &[&a, &c], &[0, 1, 1]);
        labels("@/v/{a}", &[&a], &[0, 1]);
        // A dataset above is one place, however often it is named.
        labels("@/v/train-set::@/v/train-set", &[&train, &train], &[0, 0]);
        let fails = |url: &str, says: &str| {
            let error = format!("{:#}", opened(&url.replace('@', root)).unwrap_err());
            assert!(error.contains(says), "{url}: {error}");
        };
        fails("@/v/a::@/v/other", "class `cow` is not among the 2 given classes");
        fails("@/v/a::@/v/lost", "1 of the 1 objects that are named do not exist");
        fails("@/v/a::@/v/lost", "neither a file nor a folder of this name");
        fails("@/v/{a,lost,missing}", "2 of the 2 objects");
    }

    #[test]
    fn folders_may_be_several_places() {
        let dir = tempfile::tempdir().unwrap();
        for name in PETS {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, name).unwrap();
        }
        check(dir.path().to_str().unwrap());
        // Files between folders keep their place.
        let at = dir.path().join("v").display().to_string();
        let dataset = opened(&format!("{at}/a/cat/1.png::{at}/other/cow::{at}/a/dog/2.png")).unwrap();
        assert_eq!(dataset.parts().as_deref(), Some(&[0, 1, 2][..]));
    }

    #[test]
    fn prefixes_of_a_store_may_be_several_places() {
        use object_store::{ObjectStoreExt, path::Path};
        let store = Source::memory("several.places");
        for name in PETS {
            futures::executor::block_on(store.put(&Path::from(name), name.into())).unwrap();
        }
        check("memory://several.places");
        let whole = Source::memory("whole.place");
        futures::executor::block_on(whole.put(&Path::from("cat/9.png"), "9".into())).unwrap();
        let dataset = opened("memory://whole.place::memory://several.places/v/train-set").unwrap();
        assert_eq!((dataset.len(), dataset.object(0)), (2, "memory://whole.place/cat/9.png".to_owned()));
    }
}
