//! What a worker is asked to do with a job, and what becomes of it.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use infeed_jpeg::Header;

use super::route::file_of;
use crate::{
    codec::{ClassSet, Finished, Job, Outcome, cuda_raw::table_of, jpeg::JpegHeader, reader::Drawing},
    error::Result,
    report::Stage,
    sys::{kernels::ResampleParams, nvjpeg::Coded},
    transform::Lowered,
    types::DType,
};

/// Takes a class out of the routes.
#[derive(Clone, Debug)]
pub(super) struct Retire {
    pub(super) class: usize,
    pub(super) retired: Arc<AtomicU32>,
}

impl Retire {
    pub(super) fn now(&self) {
        self.retired.fetch_or(ClassSet::only(self.class).0, Ordering::Relaxed);
    }
}

/// The one field that nvJPEG fills.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) field: usize,
    pub(super) table: usize,
    pub(super) lowered: Lowered,
}

/// A file for nvJPEG, and what becomes of its pixels.
pub(super) struct Order<'a> {
    pub(super) header: &'a Header,
    pub(super) coded: Coded<'a>,
    pub(super) params: ResampleParams,
}

impl Target {
    /// `None` when rows need more than one image, a custom step, or other than the three channels that nvJPEG makes.
    pub(super) fn find(programs: &[Option<Lowered>]) -> Option<Self> {
        let mut images = programs.iter().enumerate().filter_map(|(field, program)| Some((field, program.as_ref()?)));
        let (field, lowered) = images.next()?;
        let fits = images.next().is_none() && !lowered.needs_cpu() && lowered.row().channels == 3;
        let table = table_of(programs, field, DType::U8);
        fits.then(|| Self { field, table, lowered: lowered.clone() })
    }

    /// What to do for a job of one sample, whose header was read when it was routed. `None`: it is not for nvJPEG.
    pub(super) fn order<'a>(&self, job: &'a Job) -> Option<Result<Order<'a>>> {
        let [item] = job.items.as_slice() else { return None };
        let sample = match &item.sample {
            Ok(sample) => sample,
            // A failed read is passed on.
            Err(error) => return Some(Err(error.clone())),
        };
        let file = file_of(sample)?;
        let JpegHeader { file: header, turn } = item.header.as_ref()?.own().ok()?;
        if !turn.is_upright() {
            return None;
        }
        let coded = Coded { file, height: header.height(), width: header.width(), height_at: header.height_at() };
        let info = item.header.as_ref()?.info;
        let params = Drawing::of(item.rng, sample).fits(&info).and_then(|()| self.lowered.params(&info, item.rng));
        Some(params.map(|params| Order { header, coded, params }))
    }
}

/// A job with the same outcome for all its items.
pub(super) fn with_outcome(job: Job, outcome: &Outcome) -> Finished {
    let outcomes = job
        .items
        .iter()
        .map(|item| match outcome {
            Outcome::Failed(error) => Outcome::Failed(error.clone().at_stage(Stage::Decode).at_record(item.record)),
            other => other.clone(),
        })
        .collect();
    Finished::new(job, outcomes)
}
