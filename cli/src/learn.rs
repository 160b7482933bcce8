//! `infeed inspect --decode-index`: what a decode index can know of a dataset, ahead of the first epoch.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use futures::{StreamExt, stream};
use infeed::{
    Dataset, Error,
    codec::{DecodeIndex, LearnRoom},
    dataset::Value,
};
use serde::Serialize;

use crate::{
    failure::Failure,
    out::{BarOf, Out},
    stats, units,
};

/// Records that are read ahead for each core: files come at once, objects of a bucket after tens of milliseconds.
const READ_AHEAD: usize = 16;
/// Records after which it is looked whether memory is half full: a few MB are learned of so many.
const PART: u64 = 4096;

/// What was learned.
#[derive(Debug, Serialize)]
pub(crate) struct Learned {
    path: String,
    /// JPEGs that were looked at; those that were known before, and those that an index can't help, among them.
    jpegs: u64,
    /// Records and images that could not be read.
    unreadable: u64,
    first_error: Option<String>,
    /// Files that it knows now.
    files: u64,
    /// Of the file.
    bytes: u64,
    seconds: f64,
}

impl Learned {
    pub(crate) fn print(&self, out: &Out) -> Result<(), Failure> {
        let Self { path, jpegs, unreadable, first_error, files, bytes, seconds } = self;
        let (jpegs, files, size) = (units::count(*jpegs), units::count(*files), units::size(*bytes));
        let took = units::time(*seconds);
        out.words(format_args!("{path}: {size}, knows {files} files; {jpegs} JPEGs were looked at in {took}"))?;
        if let Some(error) = first_error {
            out.warn(format_args!("{} could not be read, the first: {error}", units::count(*unreadable)));
        }
        Ok(())
    }
}

/// Looks at all records. Takes at most `budget` bytes of memory: what is learned goes to the file in between.
pub(crate) async fn of(
    dataset: &Arc<dyn Dataset>,
    path: &Path,
    budget: u64,
    out: &mut Out,
) -> Result<Learned, Failure> {
    let start = Instant::now();
    let cores = infeed::internal::machine::cores().get();
    let mut index = DecodeIndex::open(path, budget)?;
    let rooms = Arc::new(Mutex::new(Vec::<LearnRoom>::new()));
    let (mut jpegs, mut unreadable, mut first_error) = (0, 0, None);
    out.start_bar(dataset.len(), BarOf::Things("records"));
    let mut from = 0;
    while from < dataset.len() {
        // The index changes hands only between parts.
        let to = (from + PART).min(dataset.len());
        let records = stream::iter(from..to).map(|record| {
            let (index, rooms) = (index.clone(), Arc::clone(&rooms));
            async move {
                let (record, read) = stats::read(dataset, record).await;
                let learned = match read {
                    Ok(values) => {
                        tokio::task::spawn_blocking(move || learn(&values, &index, &rooms)).await.unwrap_or(Ok(0))
                    }
                    Err(error) => Err(error),
                };
                (record, learned)
            }
        });
        let mut records = records.buffered(READ_AHEAD * cores);
        while let Some((record, learned)) = records.next().await {
            out.bar().inc(1);
            match learned {
                Ok(some) => jpegs += some,
                Err(error) => {
                    unreadable += 1;
                    first_error.get_or_insert_with(|| {
                        format!("{:#}", error.at_record(record).at_object(dataset.object(record)))
                    });
                }
            }
        }
        drop(records);
        from = to;
        if index.bytes() > budget / 2 {
            index.save(path)?;
            index = DecodeIndex::open(path, budget)?;
        }
    }
    out.end_bar();
    index.save(path)?;
    let files = DecodeIndex::open(path, 0)?.len() as u64;
    let bytes = std::fs::metadata(path).map_or(0, |meta| meta.len());
    let seconds = start.elapsed().as_secs_f64();
    Ok(Learned { path: path.display().to_string(), jpegs, unreadable, first_error, files, bytes, seconds })
}

/// Looks at the JPEGs of one record; how many there were.
fn learn(values: &[Value], index: &DecodeIndex, rooms: &Mutex<Vec<LearnRoom>>) -> Result<u64, Error> {
    let rooms = || rooms.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = rooms().pop().unwrap_or_default();
    let files = values.iter().flat_map(|value| match value {
        Value::Encoded(file) => std::slice::from_ref(file),
        Value::Channels(files) => &files[..],
        _ => &[],
    });
    let jpegs = files.filter(|file| file.starts_with(&[0xff, 0xd8]));
    let learned = jpegs.map(|file| index.learn(file, &mut room)).try_fold(0, |sum, learned| learned.map(|()| sum + 1));
    rooms().push(room);
    learned
}
