//! What a worker has to do for a job, and its outcome.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use infeed_core::{error::Result, random::SampleRng, report::Stage, types::ImageInfo};
use infeed_jpeg::Header;
use infeed_pixels::{
    codec::{
        ClassSet, Finished, Job, Outcome,
        jpeg::JpegHeader,
        reader::{Drawing, images},
    },
    kernels::RowWork,
    transform::Lowered,
};

use super::route::file_of;
use crate::{decoders::cuda_raw::first_table, nvjpeg::Coded};

/// Removes a class from the routes.
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

/// The fields that nvJPEG fills: one image, in one or several views.
#[derive(Debug)]
pub(super) struct Target {
    views: Vec<View>,
}

/// One of these fields.
#[derive(Debug)]
struct View {
    field: usize,
    table: usize,
    lowered: Lowered,
}

/// A file for nvJPEG, and the rows to make of its pixels.
pub(super) struct Order<'a> {
    pub(super) header: &'a Header,
    pub(super) coded: Coded<'a>,
    /// The work for each of the target's fields, with the field's index.
    pub(super) rows: Vec<(usize, RowWork)>,
}

impl Order<'_> {
    /// The end of the image rows that these rows read.
    pub(super) fn end(&self) -> u32 {
        self.rows.iter().map(|(_, work)| work.reads()[0].end).max().unwrap_or(0)
    }
}

impl Target {
    /// `None` if records have several images, or if rows need the CPU or images without exactly the three channels that
    /// nvJPEG makes.
    pub(super) fn find(programs: &[Option<Lowered>]) -> Option<Self> {
        let [fields] = &images(programs)[..] else { return None };
        let view = |field: usize| {
            let lowered = programs[field].as_ref().filter(|of| !of.needs_cpu() && of.first_channels() == 3)?;
            Some(View { field, table: first_table(programs, field), lowered: lowered.clone() })
        };
        fields.clone().map(view).collect::<Option<_>>().map(|views| Self { views })
    }

    /// The order for a job of one sample, whose header was parsed by the routing. `None` if the job is not for nvJPEG.
    pub(super) fn order<'a>(&self, job: &'a Job) -> Option<Result<Order<'a>>> {
        let [item] = job.items.as_slice() else { return None };
        let sample = match &item.sample {
            Ok(sample) => sample,
            // Pass on the error of a failed read.
            Err(error) => return Some(Err(error.clone())),
        };
        let file = file_of(sample)?;
        let JpegHeader { file: header, turn } = item.header.as_ref()?.own().ok()?;
        if !turn.is_upright() {
            return None;
        }
        let coded = Coded::new(file, header);
        let info = item.header.as_ref()?.info;
        let rows = Drawing::of(item.rng, sample).fits(&info).and_then(|()| self.rows(&info, item.rng));
        match rows {
            Ok(rows) => rows.map(|rows| Ok(Order { header, coded, rows })),
            Err(error) => Some(Err(error)),
        }
    }

    /// The work for the rows; `None` if the GPU can't make them.
    fn rows(&self, info: &ImageInfo, rng: SampleRng) -> Result<Option<Vec<(usize, RowWork)>>> {
        let mut rows = Vec::with_capacity(self.views.len());
        for View { field, table, lowered } in &self.views {
            let (drawn, mut work) = (lowered.draw(info, rng)?, RowWork::default());
            if !lowered.row_work(&drawn, info.dtype, *table, &mut work)? {
                return Ok(None);
            }
            rows.push((*field, work));
        }
        Ok(Some(rows))
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
