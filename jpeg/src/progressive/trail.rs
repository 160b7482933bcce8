//! The index of a progressive file: where rows of units begin in each scan's data.
//!
//! Points are arranged as in a sequential file with as many points per row as there are scans. A point holds a position
//! in the scan, and the state that the next blocks build on: the last first coefficients, or how many blocks have ended
//! already. These points are few, so they are not thinned when the index is full.

use crate::{
    grid::Grid,
    index::{Index, Point, Points, Spacing},
};

/// About how many blocks of a scan are between two points.
const BLOCKS: usize = 400;

/// Known points, and new ones.
#[derive(Debug)]
pub(super) struct Trail<'a> {
    index: &'a Index,
    key: u128,
    scans: usize,
    /// Rows of units between points.
    pub(super) every: usize,
    known: &'a Points,
    /// New points; `None` if nothing is to be noted.
    noted: Option<Vec<Point>>,
}

impl<'a> Trail<'a> {
    /// Looks up a file with this number of scans. If not `all` of them are read, nothing is noted.
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

    /// Number of known rows of points.
    fn rows(&self) -> usize {
        self.known.len() / self.scans
    }

    /// The row of units at which reading begins, for a window that begins with this row.
    pub(super) fn begin(&self, row: usize) -> usize {
        (row / self.every).min(self.rows().saturating_sub(1)) * self.every
    }

    /// The point of a scan at the beginning of a row of units, if one is known.
    pub(super) fn point(&self, row: usize, scan: usize) -> Option<Point> {
        let row = row.is_multiple_of(self.every).then_some(row / self.every)?;
        self.known.get(row * self.scans + scan)
    }

    /// Whether the next row of points to be noted is that of this row of units.
    pub(super) fn wants(&self, row: usize) -> bool {
        let wanted = |noted: &Vec<Point>| (self.rows() + noted.len() / self.scans) * self.every;
        self.noted.as_ref().is_some_and(|noted| wanted(noted) == row)
    }

    /// Whether rows before this one are unknown.
    pub(super) fn is_new(&self, row: usize) -> bool {
        self.noted.is_some() && self.rows() * self.every <= row
    }

    /// Notes a point of each scan. A position that a point can't hold ends the trail.
    pub(super) fn note(&mut self, points: impl Iterator<Item = Option<Point>>) {
        let Some(noted) = &mut self.noted else { return };
        let whole = noted.len() + self.scans;
        noted.extend(points.map_while(|point| point));
        if noted.len() < whole {
            self.save();
        }
    }

    /// Stores the noted points in the index, and stops noting.
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
