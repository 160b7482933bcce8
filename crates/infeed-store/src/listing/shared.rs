//! One listing for all processes of a job: rank 0 lists and writes a file, the others read it.
//!
//! ```text
//! rank 0:  file there? ─ no ─▶ list the store ─▶ write the file ─▶ objects
//!                      └ yes ┐
//! others:  file there? ─ yes ┴▶ decode, ask for some of its objects ─▶ objects
//!             ▲   └ no: wait
//! ```
//!
//! Two things that are easy to get wrong:
//!
//! - **The file is never written again.** If some ranks read an old listing and rank 0 then wrote a newer one, the
//!   ranks would silently train in different orders. So a listing that no longer fits the store is an error for the
//!   rank that detects it, and a new state of the store needs a file with another name.
//! - **Objects added to the store later are not in it**: that is its purpose. Objects that changed or were removed are
//!   an error.
//!
//! For a dataset of the hub, the file begins with the commit that rank 0 found (`commit SHA`, a line before the
//! listing). The others read that commit, without looking up the branch, and without checking files, which can't change
//! within a commit.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::LISTING},
    fingerprint::Fingerprint,
    report::Stage,
};
use object_store::ObjectStoreExt;

use super::format;
use crate::{Beside, Object, Source, answer::with_answer, errors::store_error};

/// Number of objects that rank 0 checks in the store, and that each other rank checks: a thousand ranks check
/// thousands.
const ASKED: [usize; 2] = [16, 2];
/// How long the other ranks wait: listing a bucket of ten million objects takes less.
const PATIENCE: Duration = Duration::from_secs(30 * 60);
/// Time between two looks, at first and at last; and the time after which a wait is logged.
const LOOKS: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(5)];
const TOLD: Duration = Duration::from_secs(30);

/// Where a job keeps its listing.
#[derive(Clone, PartialEq)]
pub struct SharedList {
    /// Path or url of the file.
    pub file: String,
    /// Whether this process makes the file if it does not exist.
    pub makes: bool,
}

impl fmt::Debug for SharedList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.file, if self.makes { "made here" } else { "made by rank 0" })
    }
}

impl SharedList {
    /// All objects of `source`, ordered by name, the same in every process.
    pub async fn objects(&self, source: &Source, manifests: Option<&std::path::Path>) -> Result<Vec<Object>> {
        let at = |error: Error| error.at_stage(Stage::Open);
        if source.only().is_some() {
            return Err(at(Error::config("a listing is of a folder or a prefix, not of one object")
                .at_object(source.url())
                .with_hint(format!("omit {LISTING}"))));
        }
        let bytes = match self.read().await.map_err(at)? {
            Some(bytes) => bytes,
            None if self.makes => return self.make(source, manifests).await,
            None => self.wait().await.map_err(at)?,
        };
        let listing = match commit(&bytes) {
            Some((commit, listing)) => {
                source.pin(commit).map_err(at)?;
                listing
            }
            None => &bytes[..],
        };
        source.connect().await?;
        let objects = format::decode(listing, place(source)).map_err(|wrong| {
            at(Error::corrupt(format!("the listing can't be used: {wrong}, or it is of another place"))
                .at_object(self.file.clone())
                .with_hint("remove it, or name another file"))
        })?;
        if !source.has_commits() {
            self.compare(source, &objects).await.map_err(at)?;
        }
        tracing::info!(objects = objects.len(), file = self.file, "taken from the job's listing");
        Ok(objects)
    }

    /// Lists and writes the file, unless there are no objects. A local folder is always listed again: a wrong size from
    /// a manifest would stay in the file forever.
    async fn make(&self, source: &Source, manifests: Option<&std::path::Path>) -> Result<Vec<Object>> {
        source.connect().await?;
        let objects = source.objects(manifests, None).await?;
        if objects.is_empty() {
            return Ok(objects);
        }
        let (folder, name) = match self.file.rsplit_once('/') {
            Some((folder, name)) if !folder.is_empty() && !folder.ends_with(":/") => (folder, name),
            Some(("", name)) => ("/", name),
            _ if self.file.contains("://") => {
                return Err(Error::config("a listing needs a name within its bucket").at_object(self.file.clone()));
            }
            _ => (".", &self.file[..]),
        };
        let home = Source::create(folder)?;
        home.connect().await?;
        let mut bytes = source.connection().and_then(|it| it.commit).map_or_else(Vec::new, |commit| head(&commit));
        bytes.extend(format::encode(&objects, place(source)));
        home.put(name, bytes.into()).await?;
        tracing::info!(objects = objects.len(), file = self.file, "the job's listing is written");
        Ok(objects)
    }

    /// The content of the file; `None` if it does not exist.
    async fn read(&self) -> Result<Option<bytes::Bytes>> {
        let file = match Source::parse(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound && !self.file.contains("://") => return Ok(None),
            parsed => parsed?,
        };
        file.connect().await?;
        let Some(file) = file.as_object().await? else {
            return match file.folder() {
                None => Ok(None),
                Some(_) => Err(Error::config("this is a folder; name a file for the listing").at_object(file.url())),
            };
        };
        match file.list().try_next().await? {
            Some(object) => Beside::Table.read(&file, &object).await.map(Some),
            None => Ok(None),
        }
    }

    async fn wait(&self) -> Result<bytes::Bytes> {
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(
                Error::config("waiting for the job's listing needs a tokio runtime").at_object(self.file.clone())
            );
        }
        let start = Instant::now();
        let (mut pause, mut told) = (LOOKS[0], TOLD);
        loop {
            tokio::time::sleep(pause).await;
            if let Some(bytes) = self.read().await? {
                return Ok(bytes);
            }
            let waited = start.elapsed();
            if waited >= PATIENCE {
                let what = format!("rank 0 has written no listing for {} minutes", waited.as_secs() / 60);
                return Err(Error::new(ErrorKind::NotFound, what)
                    .at_object(self.file.clone())
                    .with_hint("check that rank 0 runs and may write there, and that all ranks name the same file"));
            }
            if waited >= told {
                told += TOLD;
                tracing::warn!(file = self.file, seconds = waited.as_secs(), "waiting for the listing of rank 0");
            }
            pause = (pause * 2).min(LOOKS[1]);
        }
    }

    /// Checks some of the objects in the store: different ones each time and for each rank.
    async fn compare(&self, source: &Source, objects: &[Object]) -> Result<()> {
        let random = RandomState::new();
        let count = if objects.is_empty() { 0 } else { ASKED[usize::from(!self.makes)] };
        let one = |i| &objects[(random.hash_one(i) % objects.len() as u64) as usize];
        // Collected first, so that each future owns what it needs and borrows nothing from the closure.
        let asked: Vec<_> = (0..count).map(|i| self.ask(source, one(i))).collect();
        stream::iter(asked).buffer_unordered(ASKED[0]).try_collect().await
    }

    async fn ask(&self, source: &Source, object: &Object) -> Result<()> {
        let wrong = match with_answer(source.0.store.head(&source.path(&object.name)?)).await {
            Ok(found) if found.size != object.size => "has another size",
            // A folder gives change times without being asked, but they are not a version.
            Ok(found) if object.etag.is_some() && found.e_tag != object.etag => "has changed",
            Ok(_) => return Ok(()),
            Err(object_store::Error::NotFound { .. }) => "is gone",
            Err(error) => {
                let error = store_error(error, "cannot be looked up");
                return Err(error.at_object(source.display_name(&object.name)));
            }
        };
        let what = format!("{wrong}, and the job's listing was made before that");
        let hint = format!("name a file other than {} to list the present objects", self.file);
        Err(Error::config(what).at_object(source.display_name(&object.name)).with_hint(hint))
    }
}

const COMMIT: &str = "commit ";

fn head(commit: &str) -> Vec<u8> {
    format!("{COMMIT}{commit}\n").into_bytes()
}

/// The commit of a listing, and the listing.
fn commit(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let rest = bytes.strip_prefix(COMMIT.as_bytes())?;
    let end = rest.iter().position(|b| !b.is_ascii_alphanumeric()).filter(|end| *end > 0 && rest[*end] == b'\n')?;
    Some((str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

/// The place of the listing. A folder may be mounted at another path on each machine.
fn place(source: &Source) -> Fingerprint {
    match source.folder() {
        Some(_) => Fingerprint::of("folder of a job's listing").finish(),
        None => match source.connection().and_then(|it| it.commit) {
            // Includes the commit, so that a damaged commit line gives another place.
            Some(commit) => Fingerprint::of("commit of a job's listing").text(&commit).text(source.url()).finish(),
            None => source.place(),
        },
    }
}
