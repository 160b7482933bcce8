//! `infeed plan`: what training on many machines asks of nodes and store, before any of them is rented.
//!
//! ```text
//! arguments, or a dataset ─▶ Job ─▶ model: an Outcome for each way and number of nodes ─▶ advice: which, and why ─▶ tables, JSON
//!                                     └ cache: hits by next use          └ figures: what was measured, and where
//! ```
//!
//! Nothing here was measured on more than one machine: the figures are of one, and how many add up is arithmetic.

mod advice;
mod cache;
mod figures;
mod model;
mod tables;
mod words;

use std::{collections::HashSet, sync::Arc};

use infeed::{Dataset, Error, dataset::SampleRng};
use serde::Serialize;

use self::{
    advice::Planned,
    figures::{FIGURES, Figure},
    model::{Job, Near},
};
use crate::{
    args::{PlanArgs, Room},
    failure::Failure,
    out::{JsonTarget, Out},
};

/// Records sampled for their size: enough for a mean, and planned in a millisecond.
const SAMPLED: u64 = 1000;

/// The JSON of `plan`. Bytes, seconds, US dollars.
#[derive(Debug, Serialize)]
struct Report<'a> {
    version: u32,
    url: Option<&'a str>,
    job: &'a Job,
    figures: &'a [Figure],
    rows: Vec<Planned>,
}

/// `infeed plan`.
pub(crate) async fn command(args: PlanArgs) -> Result<(), Failure> {
    let out = Out::new(args.json.as_ref());
    args.json.as_ref().map_or(Ok(()), JsonTarget::check)?;
    let data = match (&args.url, args.records, args.record_bytes) {
        (Some(url), ..) => Data::open(url, &args).await?,
        (None, Some(records), Some(bytes)) => {
            if let Some(option) = args.dataset.given() {
                return Err(Failure::Usage(format!("{option} needs a dataset; name one instead of --records")));
            }
            Data {
                records: records as f64,
                record_bytes: bytes.0 as f64,
                objects: args.objects.unwrap_or(records) as f64,
            }
        }
        _ => return Err(Failure::Usage("give --records and --record-bytes, or name a dataset".into())),
    };
    let job = job(&args, &data)?;
    let rows: Vec<Planned> = args
        .nodes
        .iter()
        .map(|nodes| {
            let row = job.row(*nodes);
            Planned { advice: advice::of(&job, &row), row }
        })
        .collect();
    tables::print(&out, &job, &rows)?;
    let report = Report { version: 1, url: args.url.as_deref(), job: &job, figures: &FIGURES, rows };
    args.json.as_ref().map_or(Ok(()), |json| json.write(&report))
}

/// The properties of a dataset that the model needs.
#[derive(Clone, Copy, Debug)]
struct Data {
    records: f64,
    record_bytes: f64,
    objects: f64,
}

impl Data {
    /// Opens a dataset without reading its records.
    async fn open(url: &str, args: &PlanArgs) -> Result<Self, Failure> {
        let dataset = args.dataset.open(url, || Ok(0)).await?;
        let records = dataset.len();
        let mut sample = Looked::default();
        let step = records.div_ceil(SAMPLED).max(1);
        for first in (0..records).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            // Neighbours too: they show whether records share objects.
            (first..records.min(first + step.min(2))).try_for_each(|record| sample.add(&*dataset, record))?;
        }
        if sample.bytes == 0 {
            let what = format!("{url}: its records are in memory or generated, so there is nothing to read");
            return Err(Failure::Usage(format!("{what}; give --records and --record-bytes")));
        }
        if (sample.names.len() as u64) < sample.records {
            // If records share objects, look at all records.
            sample = Looked::default();
            (0..records).try_for_each(|record| sample.add(&*dataset, record))?;
        }
        let of_all = records as f64 / sample.records as f64;
        Ok(Self {
            records: records as f64,
            record_bytes: sample.bytes as f64 / sample.records as f64,
            objects: (sample.names.len() as f64 * of_all).max(1.0),
        })
    }
}

/// Sums over the plans of records.
#[derive(Debug, Default)]
struct Looked {
    records: u64,
    bytes: u64,
    /// Names of objects.
    names: HashSet<Arc<str>>,
}

impl Looked {
    fn add(&mut self, dataset: &dyn Dataset, record: u64) -> Result<(), Error> {
        let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
        self.records += 1;
        self.bytes += plan.by_dataset.unwrap_or(0);
        for extent in &plan.extents {
            self.bytes += extent.len();
            self.names.insert(Arc::clone(&extent.name));
        }
        // An extent that several records share is read once.
        for extent in plan.shared.iter().flat_map(|shared| &shared.extents) {
            if self.names.insert(Arc::clone(&extent.name)) {
                self.bytes += extent.len();
            }
        }
        Ok(())
    }
}

fn job(args: &PlanArgs, data: &Data) -> Result<Job, Failure> {
    let (node, store) = (&args.node, &args.store);
    let batch_size = node.batch_size as f64;
    let rate = match (node.rate, node.step_time) {
        (Some(rate), _) => rate,
        (None, Some(step)) if step.is_zero() => return Err(Failure::Usage("--step-time is 0; use more".into())),
        (None, Some(step)) => batch_size / step.as_secs_f64(),
        (None, None) => figures::RATE,
    };
    for (bytes, option) in [
        (args.record_bytes.map_or(1, |bytes| bytes.0), "--record-bytes"),
        (node.read_ahead.0, "--read-ahead"),
        (store.shard_size.0, "--shard-size"),
    ] {
        if bytes == 0 {
            return Err(Failure::Usage(format!("{option} is 0; use 1 or more")));
        }
    }
    Ok(Job {
        records: data.records,
        record_bytes: data.record_bytes,
        objects: data.objects,
        epochs: args.epochs,
        ranks_per_node: node.ranks_per_node as f64,
        rate,
        batch_size,
        state_every: args.state_every as f64,
        cores: node.cores,
        cpu_seconds: node.ms_per_image.unwrap_or(figures::MS_PER_IMAGE) / 1e3,
        bandwidth: node.bandwidth,
        near: node.cache.map(|room| match room {
            Room::Folder(bytes) => Near::Folder(bytes as f64),
            Room::Ram(bytes) => Near::Ram(bytes as f64),
        }),
        read_ahead: node.read_ahead.0 as f64,
        latency: store.latency.as_secs_f64(),
        connection_bandwidth: store.connection_bandwidth,
        total_bandwidth: store.bandwidth_total,
        prefixes: store.prefixes as f64,
        shared_bandwidth: store.shared_bandwidth,
        usd_per_1000: store.usd_per_1000,
        usd_per_gb: store.usd_per_gb,
        shard_bytes: store.shard_size.0 as f64,
    })
}
