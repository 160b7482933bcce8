//! Puts the slices of a series in the order of their positions.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use infeed_store::Extent;

use super::{
    header::{Header, Said},
    pixels::Layout,
    stack::{Slice, Stack},
    syntax::Pixels,
};
use crate::volumes::{
    dataset::File,
    header::{Coding, DataFiles, VolumeHeader},
};

/// One file of a series.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// The name in messages.
    pub(super) name: String,
    /// The whole file.
    pub(super) extent: Extent,
    pub(super) header: Header,
}

/// Doubts about a series that is read all the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Doubt {
    pub(super) gap: Option<String>,
    /// Whether there were no positions to order slices by.
    pub(super) unplaced: bool,
}

/// Slices nearer than this, in millimetres, have the same position. Planes of a microscope, which may be nearer, are
/// not a series.
const SAME_PLACE: f64 = 1e-3;
/// A warning names planes whose distance differs from the usual one by more than this fraction. Rounding to 0.01 mm at
/// 0.5 mm is 2 %; a missing slice is 100 %.
const GAP: f64 = 0.1;
/// Components of the same orientation, written with few digits, differ by less than this.
const SAME_ANGLE: f64 = 1e-3;

struct Placed {
    slice: Slice,
    instance: Option<i64>,
    said: Said,
    /// Position along the normal, in millimetres.
    depth: f64,
}

/// Makes one volume of the files of a series. `members` are in the order of their names.
pub(super) fn volume(name: String, members: &[Member]) -> Result<(File, Doubt)> {
    let first = &members[0];
    for other in members {
        if let Some(what) = differs(&first.header, &other.header) {
            return Err(Error::new(ErrorKind::Unsupported, format!("{what}, unlike other slices of its series"))
                .at_object(other.name.clone())
                .with_hint(format!(
                    "compare it with {}; leave it out, or give it a folder and a pattern",
                    first.name
                )));
        }
    }
    let mut slices = frames(members)?;
    let mut doubt = Doubt::default();
    let (spacing, origin) = order(&mut slices, members, &mut doubt)?;

    // Order the files by their first slices, so that they are read in that order.
    let mut place = vec![u32::MAX; members.len()];
    let mut data = Vec::with_capacity(members.len());
    let mut layouts: Vec<Layout> = Vec::new();
    for placed in &mut slices {
        let member = placed.slice.file as usize;
        if place[member] == u32::MAX {
            place[member] = data.len() as u32;
            let Member { extent, header, .. } = &members[member];
            let range = if header.pixels == Pixels::Deflated { extent.range.clone() } else { header.at.clone() };
            data.push(extent.clone().with_range(range));
            layouts.push(Layout::new(header));
        }
        placed.slice.file = place[member];
    }
    if layouts.iter().all(|layout| *layout == layouts[0]) {
        layouts.truncate(1);
    }
    let own = |said: &Said| [said.slope.unwrap_or(1.0), said.intercept.unwrap_or(0.0)];
    let [slope, intercept] = own(&slices[0].said);
    let uniform = slices.iter().all(|placed| own(&placed.said) == [slope, intercept]);
    if !uniform {
        if matches!(first.header.dtype, DType::F32 | DType::F64) {
            let what = "floating-point pixels with slopes that differ, which are not read";
            return Err(Error::new(ErrorKind::Unsupported, what).at_object(first.name.clone()));
        }
        slices.iter_mut().for_each(|placed| placed.slice.rescale = Some(own(&placed.said)));
    }
    let header = VolumeHeader {
        dtype: if uniform { first.header.dtype } else { DType::F32 },
        // Voxels are byte-swapped when their bits are masked.
        big_endian: cfg!(target_endian = "big"),
        coding: Coding::Raw,
        data: DataFiles::Attached(0),
        line_skip: 0,
        byte_skip: Some(0),
        channels: first.header.channels,
        shape: [slices.len(), first.header.rows, first.header.columns],
        interleaved: first.header.channels > 1,
        spacing,
        origin,
        slope: if uniform { slope } else { 1.0 },
        intercept: if uniform { intercept } else { 0.0 },
        grid: None,
    };
    let header = header.check().map_err(|e| e.at_object(name.clone()))?;
    let stack = Stack { layouts, slices: slices.iter().map(|placed| placed.slice).collect() };
    let raw_at = stack.has_boxes().then_some(0);
    Ok((File { name, header, data: data.into(), raw_at, stack: Some(Box::new(stack)) }, doubt))
}

/// How a file differs from the first of its series.
fn differs(first: &Header, other: &Header) -> Option<String> {
    if (first.rows, first.columns, first.channels) != (other.rows, other.columns, other.channels) {
        return Some(match other.channels == first.channels {
            true => format!("a slice of {} x {} pixels", other.rows, other.columns),
            false => format!("a slice of {} channels", other.channels),
        });
    }
    (first.dtype != other.dtype).then(|| format!("a slice of {}", other.dtype))
}

/// All frames of all files, each with its position, orientation and scaling.
fn frames(members: &[Member]) -> Result<Vec<Placed>> {
    let mut all = Vec::new();
    for (file, Member { header, name, .. }) in members.iter().enumerate() {
        for frame in 0..header.frames {
            let own = header.per_frame.get(frame).copied().unwrap_or_default();
            let mut said = own.or(header.said);
            // A position of all frames is that of the first; the others follow along the normal.
            if own.position.is_none() && frame > 0 {
                let along = match &header.grid {
                    Some(grid) => Some(grid[frame] - grid[0]),
                    None => said.between.filter(|between| *between != 0.0).map(|between| between * frame as f64),
                };
                said.position =
                    said.position.zip(said.orientation).zip(along).map(|((position, orientation), along)| {
                        let normal = normal(&orientation);
                        [0, 1, 2].map(|axis: usize| position[axis] + normal[axis] * along)
                    });
            }
            let index =
                |n: usize| u32::try_from(n).map_err(|_| Error::corrupt(format!("{n} frames")).at_object(name.clone()));
            let slice = Slice { file: index(file)?, frame: index(frame)?, rescale: None };
            all.push(Placed { slice, instance: header.instance, said, depth: 0.0 });
        }
    }
    Ok(all)
}

fn normal([a, b, c, x, y, z]: &[f64; 6]) -> [f64; 3] {
    let cross = [b * z - c * y, c * x - a * z, a * y - b * x];
    let length = cross.iter().map(|n| n * n).sum::<f64>().sqrt();
    cross.map(|n| n / length)
}

/// Puts slices in their order. Returns spacing and origin.
fn order(slices: &mut [Placed], members: &[Member], doubt: &mut Doubt) -> Result<([f32; 3], [f32; 3])> {
    let called = |placed: &Placed| {
        let Member { name, header, .. } = &members[placed.slice.file as usize];
        if header.frames > 1 { format!("frame {} of {name}", placed.slice.frame + 1) } else { name.clone() }
    };
    let object = |placed: &Placed| members[placed.slice.file as usize].name.clone();
    let first = slices[0].said;
    let mut across = f64::from(f32::NAN);
    let placed = slices.iter().all(|placed| placed.said.position.is_some() && placed.said.orientation.is_some());
    if let (true, Some(orientation)) = (placed, first.orientation) {
        let normal = normal(&orientation);
        if normal.iter().any(|n| !n.is_finite()) {
            let what = format!("the orientation {orientation:?} is not valid");
            return Err(Error::corrupt(what).at_object(object(&slices[0])));
        }
        for other in &*slices {
            let turned = other.said.orientation.unwrap_or(orientation);
            if turned.iter().zip(&orientation).any(|(a, b)| (a - b).abs() > SAME_ANGLE) {
                let what = format!("its orientation is not that of {}, in the same series", called(&slices[0]));
                return Err(Error::new(ErrorKind::Unsupported, what).at_object(called(other)).with_hint(
                    "it is a scout or several stacks; leave it out, or give each stack a folder and a pattern",
                ));
            }
        }
        for placed in &mut *slices {
            let position = placed.said.position.unwrap_or_default();
            placed.depth = position.iter().zip(normal).map(|(p, n)| p * n).sum();
        }
        slices.sort_by(|a, b| a.depth.total_cmp(&b.depth));
        let mut gaps: Vec<f64> = slices.windows(2).map(|two| two[1].depth - two[0].depth).collect();
        if let Some(twice) = gaps.iter().position(|gap| *gap < SAME_PLACE) {
            let what = format!("it has the same position as {}, in the same series", called(&slices[twice]));
            return Err(Error::new(ErrorKind::Unsupported, what).at_object(called(&slices[twice + 1])).with_hint(
                "if it is a copy, remove it; give each time, echo or b-value a folder, and use a pattern like {patient}/{field}/",
            ));
        }
        if !gaps.is_empty() {
            across = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let uneven = |usual: f64| gaps.iter().position(|gap| (gap - usual).abs() > GAP * usual);
            if uneven(across).is_some() {
                let all = gaps.clone();
                gaps.sort_by(f64::total_cmp);
                across = gaps[gaps.len() / 2];
                doubt.gap = all.iter().position(|gap| (gap - across).abs() > GAP * across).map(|at| {
                    let (a, b) = (called(&slices[at]), called(&slices[at + 1]));
                    format!("{:.3} mm between {a} and {b}, {across:.3} mm elsewhere", all[at])
                });
            }
        }
    } else if members.len() > 1 {
        doubt.unplaced = true;
        if let Some(none) = slices.iter().find(|placed| placed.instance.is_none()) {
            return Err(Error::corrupt("it has neither a position (0020,0032) nor an instance number (0020,0013)")
                .at_object(object(none))
                .with_hint("the order of its slices is unknown; leave the series out"));
        }
        slices.sort_by_key(|placed| (placed.instance, placed.slice.file, placed.slice.frame));
        let same = |two: &[Placed]| two[0].instance == two[1].instance && two[0].slice.file != two[1].slice.file;
        if let Some(two) = slices.windows(2).find(|two| same(two)) {
            let what =
                format!("it has the instance number of {}, in the same series, and no position", called(&two[0]));
            return Err(Error::new(ErrorKind::Unsupported, what)
                .at_object(called(&two[1]))
                .with_hint("if it is a copy, remove it; give each of several series a folder, and use a pattern like {patient}/{field}/"));
        }
    }
    let said = slices[0].said;
    if across.is_nan() {
        across = said.between.or(said.thickness).unwrap_or(f64::NAN).abs();
    }
    let [down, along] = said.spacing.unwrap_or([f64::NAN; 2]);
    let [x, y, z] = said.position.unwrap_or([f64::NAN; 3]);
    Ok(([across, down, along].map(|n| n as f32), [z, y, x].map(|n| n as f32)))
}
