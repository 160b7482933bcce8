//! What an index knows of a progressive file: where in each scan's data rows of units begin.
//!
//! Points lie as those of a sequential file with as many points a row as there are scans: its place in the scan, and what the
//! blocks behind it build on: the last first coefficients, or how many blocks have ended already. There are no fewer of them when
//! the index is full: they are few.

use crate::{
    grid::Grid,
    index::{Index, Point, Points, Spacing},
};

/// Blocks from point to point of a scan, about.
const BLOCKS: usize = 400;

/// Points that are known, and those that are noted.
#[derive(Debug)]
pub(super) struct Trail<'a> {
    index: &'a Index,
    key: u128,
    scans: usize,
    /// Rows of units from point to point.
    pub(super) every: usize,
    known: &'a Points,
    /// New ones; `None` when nothing is to be noted.
    noted: Option<Vec<Point>>,
}

impl<'a> Trail<'a> {
    /// Looks for a file with so many scans. If not `all` of them are read, nothing is noted.
    pub(super) fn new(
        index: &'a Index,
        bytes: &[u8],
        grid: &Grid,
        scans: usize,
        all: bool,
        known: &'a mut Points,
    ) -> Self {
        let key = Index::key(bytes);
        let spacing = Spacing::of_scans(scans);
        index.find(key, spacing.units(), false, known);
        let every = grid.rows_of(BLOCKS);
        Self { index, key, scans, every, known, noted: all.then(Vec::new) }
    }

    /// How many rows of points are known.
    fn rows(&self) -> usize {
        self.known.len() / self.scans
    }

    /// The row of units that reading begins with, for a window that begins with this one.
    pub(super) fn begin(&self, row: usize) -> usize {
        (row / self.every).min(self.rows().saturating_sub(1)) * self.every
    }

    /// The point of a scan at the beginning of a row of units, if one is known.
    pub(super) fn point(&self, row: usize, scan: usize) -> Option<Point> {
        let row = row.is_multiple_of(self.every).then_some(row / self.every)?;
        self.known.get(row * self.scans + scan)
    }

    /// The row of points that is to be noted next is that of this row of units.
    pub(super) fn wants(&self, row: usize) -> bool {
        let wanted = |noted: &Vec<Point>| (self.rows() + noted.len() / self.scans) * self.every;
        self.noted.as_ref().is_some_and(|noted| wanted(noted) == row)
    }

    /// Whether there are rows before this one that are not known.
    pub(super) fn is_new(&self, row: usize) -> bool {
        self.noted.is_some() && self.rows() * self.every <= row
    }

    /// Notes a point of each scan. What can't be told in a point ends the trail.
    pub(super) fn note(&mut self, points: impl Iterator<Item = Option<Point>>) {
        let Some(noted) = &mut self.noted else { return };
        let whole = noted.len() + self.scans;
        noted.extend(points.map_while(|point| point));
        if noted.len() < whole {
            self.save();
        }
    }

    /// The index keeps what was noted, and nothing more is.
    pub(super) fn save(&mut self) {
        let noted = self.noted.take().unwrap_or_default();
        let whole = noted.len() / self.scans * self.scans;
        if whole == 0 {
            return;
        }
        let known = self.known.iter().take(self.rows() * self.scans);
        let mut points: Vec<_> = known.chain(noted.into_iter().take(whole)).collect();
        self.index.put(self.key, &mut points, Spacing::of_scans(self.scans));
    }
}
