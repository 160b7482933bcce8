//! `infeed inspect --decode-index`: fills a decode index for a dataset before the first epoch.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use futures::{StreamExt, stream};
use infeed::{Dataset, Error, codec::DecodeIndex, dataset::Value, spi::LearnScratch};
use serde::Serialize;

use crate::{
    failure::Failure,
    out::{BarOf, Out},
    stats, units,
};

/// Records read ahead per core. Objects of a bucket take tens of milliseconds.
const READ_AHEAD: usize = 16;
/// Records between two checks of the memory: this many add a few MB to the index.
const PART: u64 = 4096;

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Learned {
    path: String,
    /// Scanned JPEGs, including known ones and those that an index does not help.
    jpegs: u64,
    /// Records and images that could not be read.
    unreadable: u64,
    first_error: Option<String>,
    /// Files in the index now.
    files: u64,
    /// Size of the index file.
    bytes: u64,
    seconds: f64,
}

impl Learned {
    pub(crate) fn print(&self, out: &Out) -> Result<(), Failure> {
        let Self { path, jpegs, unreadable, first_error, files, bytes, seconds } = self;
        let (jpegs, files, size) = (units::count(*jpegs), units::count(*files), units::size(*bytes));
        let took = units::time(*seconds);
        out.words(format_args!("{path}: {size}, with entries for {files} files; scanned {jpegs} JPEGs in {took}"))?;
        if let Some(error) = first_error {
            out.warn(format_args!("{} could not be read; first: {error}", units::count(*unreadable)));
        }
        Ok(())
    }
}

/// Scans all records. Takes at most `budget` bytes of memory, by saving entries to the file in between.
pub(crate) async fn of(
    dataset: &Arc<dyn Dataset>,
    path: &Path,
    budget: u64,
    out: &mut Out,
) -> Result<Learned, Failure> {
    let start = Instant::now();
    let cores = infeed::internal::machine::cores().get();
    let mut index = DecodeIndex::open(path, budget)?;
    let rooms = Arc::new(Mutex::new(Vec::<LearnScratch>::new()));
    let (mut jpegs, mut unreadable, mut first_error) = (0, 0, None);
    out.start_bar(dataset.len(), BarOf::Things("records"));
    let mut from = 0;
    while from < dataset.len() {
        // The index is replaced only between parts.
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

/// Scans the JPEGs of one record, and gives their number.
fn learn(values: &[Value], index: &DecodeIndex, rooms: &Mutex<Vec<LearnScratch>>) -> Result<u64, Error> {
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
