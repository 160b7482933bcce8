//! From the url or path that the user wrote to a store and a prefix.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    path::{self, PathBuf},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::in_rust},
    report::Stage,
};
use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory, path::Path};

use super::{
    Requests, Source, connect,
    errors::{io_kind, not_unicode, store_error},
    handle::{Inner, PATIENCE, tidy},
};

const KNOWN: &str = "use a path, file://, memory://, s3://, hf://datasets/OWNER/NAME or https:// (gs:// and az:// with their \
                     features; synthetic:// where a dataset is opened)";

impl Source {
    /// Opens `url`. Reads nothing yet, but looks up a local path.
    ///
    /// | url | meaning |
    /// |---|---|
    /// | `data/train`, `/data/train` | a folder; every character is literal |
    /// | `data/train/a.jpg` | the folder `data/train` with only `a.jpg` visible |
    /// | `file:///data/my%20set` | an absolute path in URL form, with `%` escapes |
    /// | `memory://NAME/prefix` | objects below `prefix` of the store that [`Source::memory`] made |
    /// | `s3://bucket/prefix` | objects of a bucket or an access point (feature `s3`), see [`connect`](Self::connect) |
    /// | `gs://bucket/prefix` | the same at Google (feature `gcs`), configured by the `GOOGLE_*` variables |
    /// | `az://container/prefix` | the same at Azure (feature `azure`), configured by the `AZURE_*` variables |
    /// | `hf://datasets/OWNER/NAME@REVISION/folder` | files of a dataset of the [Hugging Face hub](https://huggingface.co/datasets) (feature `http`), see below |
    /// | `https://host/folder` | files of a WebDAV server; on other servers one file, or the files that a pattern names (feature `http`); with `%` escapes |
    /// | `https://host/file.tar?download=1` | one file, requested with this query; no message shows the query, since it may contain a signature |
    ///
    /// **The hub.** A dataset in the form in which it is stored: Parquet, images in folders, tars. `@REVISION` is a
    /// branch, a tag or a commit; the default is `main`. `@~parquet` is the branch onto which the hub converts every
    /// dataset (`refs/convert/parquet`), with the files of each configuration in one folder per split. A branch is
    /// looked up once, by [`connect`](Self::connect); later pushes are not seen. Each rank looks it up itself: use
    /// `@COMMIT`, which [`connection`](Self::connection) and `infeed inspect` show, to make sure that all ranks see the
    /// same data. Private and gated datasets need a token, and requests without a token are limited more strictly. The
    /// hub redirects to other servers for the files; these never get the token. Whole files are compared with their
    /// SHA-256 if the listing contains it (see [`Verify`](super::Verify)).
    ///
    /// ```no_run
    /// # async fn f() -> infeed::Result<()> {
    /// // Its files have names such as data/train-00000-of-00001.parquet (feature `parquet`).
    /// let mnist = infeed::open("hf://datasets/ylecun/mnist/mnist").split("train").await?;
    /// let beans = infeed::open("hf://datasets/AI-Lab-Makerere/beans@~parquet/default").split("validation").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// `Config` for any other scheme, `NotFound` and `Denied` for paths, `Unsupported` if the feature is off.
    pub fn parse(url: &str) -> Result<Self> {
        parse(url, connect::Vars::process)
    }

    /// [`parse`](Self::parse) with these variables instead of the environment of this process: for two stores with
    /// different credentials in one program, and for tests.
    ///
    /// ```
    /// # use infeed::source::Source;
    /// let keys = [("AWS_ENDPOINT_URL", "https://minio.example:9000"), ("AWS_PROFILE", "lab")];
    /// # #[cfg(feature = "s3")]
    /// let source = Source::parse_with("s3://photos/train", keys).unwrap();
    /// ```
    pub fn parse_with<K: Into<String>, V: Into<String>>(
        url: &str,
        variables: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        parse(url, || variables.into_iter().collect())
    }

    /// The in-memory store with this name, created by the first call; `memory://name` reads from it.
    ///
    /// It lives as long as the process. The caller puts and deletes its objects.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use infeed::source::Source;
    /// use object_store::{ObjectStoreExt, path::Path};
    ///
    /// let store = Source::memory("doc-example");
    /// store.put(&Path::parse("cats/1.jpg").unwrap(), "not really".into()).await.unwrap();
    /// let source = Source::parse("memory://doc-example").unwrap();
    /// assert_eq!(source.read("cats/1.jpg", 0..3).await.unwrap(), "not");
    /// # });
    /// ```
    #[must_use]
    pub fn memory(name: &str) -> Arc<dyn ObjectStore> {
        memory(name)
    }
}

/// `vars` is called only for remote stores.
fn parse(url: &str, vars: impl FnOnce() -> connect::Vars) -> Result<Source> {
    if url.is_empty() {
        return Err(Error::config("the url is empty").with_hint(KNOWN));
    }
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) else {
        return local(PathBuf::from(url), url);
    };
    match scheme.to_ascii_lowercase().as_str() {
        "file" => local(file_url(url)?, url),
        "memory" => {
            let halves = rest.split_once('/').unwrap_or((rest, ""));
            let (name, prefix) = split(halves, url, "a store's name", "memory://NAME/prefix")?;
            let stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(store) = stores.get(name) else {
                return Err(Error::new(ErrorKind::NotFound, format!("there is no in-memory store named {name:?}"))
                    .at_stage(Stage::Open)
                    .with_hint(match in_rust("make it with Source::memory(name) and put objects into it first") {
                        "" => "name a folder or a remote store: only Rust programs can have in-memory stores",
                        make => make,
                    }));
            };
            Ok(Source::from_store(Arc::<InMemory>::clone(store), prefix, url)
                .sharing_requests(&format!("memory {name} {:016x}", *PROCESS)))
        }
        "s3" => s3(rest, url, vars),
        "hf" => hub(rest, url, vars),
        "s3a" | "s3n" => Err(Error::config(format!("unknown scheme `{scheme}://`"))
            .at_object(url)
            .with_hint("write s3://bucket/prefix")),
        #[cfg(any(feature = "gcs", feature = "azure", feature = "http"))]
        "gs" | "az" | "http" | "https" => {
            let scheme = scheme.to_ascii_lowercase();
            let (store, prefix, name) = connect::open_other(&scheme, rest, url, &vars())?;
            let is_web = scheme.starts_with("http");
            // Messages contain the url, but not its query, which may be a signature.
            let (told, of_one) = match url.split_once('?').filter(|_| is_web) {
                Some((told, _)) => (told, true),
                None => (url, false),
            };
            let (prefix, only) = match (prefix.parent(), prefix.filename()) {
                (Some(parent), Some(name)) if of_one => (parent, Some(name.to_owned())),
                _ if of_one => {
                    return Err(Error::config("a url with a query must name one file, and this url names none")
                        .at_object(told)
                        .with_hint("write https://HOST/FILE?QUERY"));
                }
                _ => (prefix, None),
            };
            let Source(mut inner) = Source::from_store(store, prefix, told).sharing_requests(&name);
            let source = Arc::make_mut(&mut inner);
            (source.web, source.only) = (is_web, only);
            Ok(Source(inner))
        }
        #[cfg(not(any(feature = "gcs", feature = "azure", feature = "http")))]
        "gs" | "az" | "http" | "https" => Err(connect::lacks(scheme)),
        _ => Err(Error::config(format!("unknown scheme `{scheme}://`")).at_object(url).with_hint(KNOWN)),
    }
}

/// RFC 3986: a letter, then letters, digits, `+`, `-`, `.`.
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
}

/// Host and prefix, checked. Nothing is unescaped, because object names may contain any character.
fn split<'a>((host, prefix): (&'a str, &str), url: &str, what: &str, form: &'static str) -> Result<(&'a str, Path)> {
    if host.is_empty() {
        return Err(Error::config(format!("the url does not name {what}"))
            .at_object(url)
            .with_hint(format!("write {form}")));
    }
    let bad = || {
        Error::config("the prefix is not a valid object name")
            .at_object(url)
            .with_hint("write single slashes, and no `.` or `..` between them")
    };
    // `Path` would remove a leading slash and find other objects.
    if prefix.starts_with('/') {
        return Err(bad());
    }
    let prefix = Path::parse(prefix).map_err(|e| bad().with_source(e))?;
    Ok((host, prefix))
}

/// Distinguishes the memory of this process from that of others: no other process can read its objects, whatever their
/// name and version.
static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

static STORES: LazyLock<Mutex<HashMap<String, Arc<InMemory>>>> = LazyLock::new(Mutex::default);

fn memory(name: &str) -> Arc<dyn ObjectStore> {
    let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
    let store = stores.entry(name.to_owned()).or_default();
    Arc::<InMemory>::clone(store)
}

#[cfg(feature = "s3")]
fn s3(rest: &str, url: &str, vars: impl FnOnce() -> connect::Vars) -> Result<Source> {
    let (bucket, prefix) = split(connect::halves(rest), url, "a bucket", "s3://bucket/prefix")?;
    connect::check_bucket(bucket, url)?;
    let vars = vars();
    let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(|name| vars.get(name));
    let store = format!("s3 {} {bucket}", endpoint.unwrap_or_default());
    let remote = connect::Remote::new(bucket, &tidy(url), vars);
    let Source(mut inner) = Source::from_store(Arc::new(remote.clone()), prefix, url).sharing_requests(&store);
    remote.set_patience(PATIENCE);
    Arc::make_mut(&mut inner).remote = Some(remote);
    Ok(Source(inner))
}

#[cfg(not(feature = "s3"))]
fn s3(_rest: &str, _url: &str, _vars: impl FnOnce() -> connect::Vars) -> Result<Source> {
    Err(connect::lacks("s3"))
}

#[cfg(feature = "http")]
fn hub(rest: &str, url: &str, vars: impl FnOnce() -> connect::Vars) -> Result<Source> {
    let (repo, prefix) = connect::Repo::parse(rest, url)?;
    let hub = connect::Hub::new(repo, &tidy(url), vars())?;
    let Source(mut inner) = Source::from_store(Arc::new(hub.clone()), prefix, url).sharing_requests(&hub.store());
    hub.set_patience(PATIENCE);
    Arc::make_mut(&mut inner).hub = Some(hub);
    Ok(Source(inner))
}

#[cfg(not(feature = "http"))]
fn hub(_rest: &str, _url: &str, _vars: impl FnOnce() -> connect::Vars) -> Result<Source> {
    Err(connect::lacks("hf"))
}

fn file_url(url: &str) -> Result<PathBuf> {
    let bad = |what| Err(Error::config(what).at_object(url));
    let Ok(parsed) = url::Url::parse(url) else {
        return bad("not a valid file:// url").map_err(|e: Error| e.with_hint("give the plain path"));
    };
    if parsed.fragment().is_some() || parsed.query().is_some() {
        return bad("`#` and `?` end the path of a url")
            .map_err(|e: Error| e.with_hint("write %23 and %3F, or give the plain path"));
    }
    // Fails if there is a host: `file://data/train` means the folder `train` of the machine `data`.
    parsed.to_file_path().or_else(|()| {
        bad("a file:// url needs an absolute path after three slashes")
            .map_err(|e: Error| e.with_hint("write file:///data/train, or give the plain path"))
    })
}

fn local(path: PathBuf, url: &str) -> Result<Source> {
    let found = std::fs::metadata(&path).map_err(|e| missing(e, &path, url))?;
    let (folder, only) = if found.is_dir() {
        (path, None)
    } else if found.is_file() {
        let name = path.file_name().and_then(|n| n.to_str()).ok_or_else(|| not_unicode().at_object(url))?.to_owned();
        (path.parent().map(path::Path::to_path_buf).unwrap_or_default(), Some(name))
    } else {
        let what = "neither a file nor a folder";
        return Err(Error::new(ErrorKind::Unsupported, what).at_stage(Stage::Open).at_object(url));
    };
    let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
    let folder = folder.canonicalize().map_err(|e| missing(e, &folder, url))?;
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(|e| store_error(e, "cannot be opened").at_stage(Stage::Open).at_object(url))?;
    Ok(Source(Arc::new(Inner {
        store: Arc::new(store),
        prefix: Path::default(),
        url: tidy(url),
        inline: true,
        trust: Arc::default(),
        requests: Requests::new(),
        store_name: "".into(),
        folder: Some(folder),
        believed: Arc::default(),
        patience: PATIENCE,
        web: false,
        only,
        #[cfg(feature = "s3")]
        remote: None,
        #[cfg(feature = "http")]
        hub: None,
    })))
}

/// Reports which part of the path exists: a wrong path is most often one mistyped letter.
fn missing(error: std::io::Error, path: &path::Path, url: &str) -> Error {
    let kind = io_kind(&error);
    if kind != ErrorKind::NotFound {
        return Error::new(kind, "cannot be opened").at_stage(Stage::Open).at_object(url).with_source(error);
    }
    // `s3:/bucket` and `s3//bucket` are also valid paths, if they exist.
    let mistyped = ["s3:", "s3//", "hf:", "hf//", "gs:", "gs//", "az:", "az//", "file:", "http:", "https:"]
        .into_iter()
        .find(|start| url.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start)));
    if let Some(start) = mistyped {
        let scheme = start.trim_end_matches([':', '/']);
        let rest = url[start.len()..].trim_start_matches('/');
        return Error::config("neither a path that exists nor a url")
            .at_object(url)
            .with_hint(format!("write {scheme}://{}{rest}", if scheme == "file" { "/" } else { "" }));
    }
    let there = path.ancestors().skip(1).find(|a| !a.as_os_str().is_empty() && a.exists());
    let hint = match there {
        Some(there) if there.parent().is_some() => format!("check the path; {} exists", there.display()),
        _ => "check the path and the current folder".to_owned(),
    };
    Error::new(kind, "no such file or folder").at_stage(Stage::Open).at_object(url).with_hint(hint).with_source(error)
}
