//! The units and blocks of an image that a window needs.

#![forbid(unsafe_code)]

use std::ops::Range;

use smallvec::SmallVec;

use crate::{
    header::Header,
    planes::{Plane, Window},
};

/// The part of one component that the window needs.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    /// Blocks per unit.
    pub(crate) down: usize,
    pub(crate) across: usize,
    /// Pixels per value of the file.
    pub(crate) step: [u32; 2],
    /// Values of a block that are kept, in each direction.
    pub(crate) side: usize,
    pub(crate) plane: Plane,
}

impl Needed {
    /// Blocks of the component in an image of this size, vertical and horizontal, without blocks that only pad units.
    pub(crate) fn blocks(&self, size: [u32; 2]) -> [usize; 2] {
        [0, 1].map(|i| size[i].div_ceil(self.step[i]).div_ceil(8) as usize)
    }
}

/// The whole image in units of the frame (T.81 calls them MCUs), and the units that the window needs.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) components: SmallVec<[Needed; 4]>,
    pub(crate) y: Range<usize>,
    pub(crate) x: Range<usize>,
    pub(crate) size: [u32; 2],
}

impl Grid {
    pub(crate) fn new(header: &Header, window: &Window) -> Self {
        let frame = &header.frame;
        let steps = header.steps();
        let size = [u32::from(frame.height), u32::from(frame.width)];
        let mut components = SmallVec::<[Needed; 4]>::new();
        let mut needs = [[usize::MAX, 0]; 2];
        for (component, step) in frame.components.iter().zip(steps) {
            // Colour has fewer values. They are kept until there are as few of them as of brightness.
            let shrink = (window.scale / step[1]).max(1);
            let side = 8 / shrink as usize;
            let plane = Plane { step: [step[0] * shrink, step[1] * shrink], ..Plane::default() };
            let (down, across) = (usize::from(component.down), usize::from(component.across));
            let needed = |want: &Range<u32>, within: &Range<u32>, step: u32, units: usize| {
                // A pixel between two values of a coarser plane is made of both.
                let more = if step > 1 { step } else { 0 };
                let start = want.start.saturating_sub(more).max(within.start) / step;
                let end = want.end.saturating_add(more).min(within.end).div_ceil(step);
                start as usize / (units * side)..(end as usize).div_ceil(units * side)
            };
            let rows = needed(&window.rows, &window.within[0], plane.step[0], down);
            let cols = needed(&window.cols, &window.within[1], plane.step[1], across);
            for ([start, end], units) in needs.iter_mut().zip([rows, cols]) {
                *start = units.start.min(*start);
                *end = units.end.max(*end);
            }
            components.push(Needed { down, across, step, side, plane });
        }
        let [y, x] = needs.map(|[start, end]| start..end);
        let mut grid = Self { components, y, x, size };
        let units = grid.units();
        // At least one unit: the window may be empty, be outside of the image, or have an end before its start.
        let within = |range: &Range<usize>, units: usize| {
            let start = range.start.min(units - 1);
            start..range.end.clamp(start + 1, units)
        };
        (grid.y, grid.x) = (within(&grid.y, units[0]), within(&grid.x, units[1]));
        let mut at = 0;
        for needed in &mut grid.components {
            let (rows, cols) = (needed.down * needed.side, needed.across * needed.side);
            let held = |units: &Range<usize>, each: usize, size: u32, step: u32| {
                (units.start * each) as u32..((units.end * each) as u32).min(size.div_ceil(step))
            };
            let plane = &mut needed.plane;
            plane.at = at;
            plane.pitch = grid.x.len() * cols;
            plane.rows = held(&grid.y, rows, size[0], plane.step[0]);
            plane.cols = held(&grid.x, cols, size[1], plane.step[1]);
            at += plane.pitch * grid.y.len() * rows;
        }
        grid
    }

    /// Rows of units that have about this many blocks; at least one.
    pub(crate) fn rows_of(&self, blocks: usize) -> usize {
        let a_unit: usize = self.components.iter().map(|needed| needed.down * needed.across).sum();
        (blocks / (self.units()[1] * a_unit)).max(1)
    }

    /// Units of the image, vertical and horizontal.
    pub(crate) fn units(&self) -> [usize; 2] {
        let most = |of: fn(&Needed) -> usize| self.components.iter().map(of).max().unwrap_or(1);
        [
            (self.size[0] as usize).div_ceil(8 * most(|needed| needed.down)),
            (self.size[1] as usize).div_ceil(8 * most(|needed| needed.across)),
        ]
    }

    pub(crate) fn bytes(&self) -> usize {
        let bytes = |needed: &Needed| needed.plane.pitch * self.y.len() * needed.down * needed.side;
        self.components.iter().map(bytes).sum()
    }

    pub(crate) fn into_planes(self) -> SmallVec<[Plane; 4]> {
        self.components.into_iter().map(|needed| needed.plane).collect()
    }
}
