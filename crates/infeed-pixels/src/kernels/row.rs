//! Shared by all ways to make a row: its checks, the fill value outside of the image, and the cutout.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::Layout,
};

use super::{
    convert::{Store, is_stored, with_store},
    params::{ChannelTable, ResampleParams, RowSpec},
};

/// Writes the fill value to some columns of a stored row.
pub(super) fn fill_row<S: Store>(
    stored: usize,
    columns: std::ops::Range<usize>,
    table: &ChannelTable,
    row: &RowSpec,
    out: &mut [S::Raw],
) {
    put::<S>(stored, columns, &table.fill, row, out);
}

/// Writes a rectangle (top, bottom, left, right) of a row. `value` returns the value for a channel. It is called plane
/// by plane and line by line, whatever the layout.
///
/// # Errors
/// `Internal` if `out` is not such a row. It is then unchanged.
pub fn fill_rect(row: &RowSpec, area: &[u32; 4], out: &mut [u8], mut value: impl FnMut(usize) -> f32) -> Result<()> {
    let wrong = || Error::new(ErrorKind::Internal, format!("{area:?} of {row:?}")).with_hint("please report it");
    if out.len() != row.len_bytes() || !is_stored(row.dtype) {
        return Err(wrong());
    }
    let [top, bottom] = [area[0], area[1]].map(|edge| edge.min(row.height) as usize);
    let [left, right] = [area[2], area[3]].map(|edge| edge.min(row.width) as usize);
    let (width, height, channels) = (row.width as usize, row.height as usize, row.channels as usize);
    with_store!(row.dtype, S => {
        let out: &mut [<S as Store>::Raw] = bytemuck::try_cast_slice_mut(out).map_err(|_| wrong())?;
        for c in 0..channels {
            for y in top..bottom {
                let (start, every) = match row.layout {
                    Layout::Nchw => ((c * height + y) * width + left, 1),
                    Layout::Nhwc => ((y * width + left) * channels + c, channels),
                };
                let line = out.iter_mut().skip(start).step_by(every);
                line.take(right.saturating_sub(left)).for_each(|stored| *stored = S::of(value(c)));
            }
        }
    }, _ => {});
    Ok(())
}

pub(super) fn cut_out<S: Store>(cutout: &[u32; 4], table: &ChannelTable, row: &RowSpec, out: &mut [S::Raw]) {
    let [top, bottom, left, right] = *cutout;
    let columns = left.min(row.width) as usize..right.min(row.width) as usize;
    for stored in top as usize..bottom.min(row.height) as usize {
        put::<S>(stored, columns.clone(), &table.cutout, row, out);
    }
}

fn put<S: Store>(stored: usize, columns: std::ops::Range<usize>, value: &[f32], row: &RowSpec, out: &mut [S::Raw]) {
    if columns.is_empty() {
        return;
    }
    let (width, height, channels) = (row.width as usize, row.height as usize, row.channels as usize);
    for (c, &value) in value.iter().enumerate() {
        match row.layout {
            Layout::Nchw => out[(c * height + stored) * width..][columns.clone()].fill(S::of(value)),
            Layout::Nhwc => {
                let out = &mut out[stored * width * channels..][columns.start * channels..columns.end * channels];
                out.iter_mut().skip(c).step_by(channels).for_each(|v| *v = S::of(value));
            }
        }
    }
}

/// Checks the row and the windows.
pub(super) fn check_row(
    sizes: [u32; 2],
    params: &ResampleParams,
    table: &ChannelTable,
    row: &RowSpec,
    out: &[u8],
) -> Result<()> {
    let wrong = |what: String| Err(Error::new(ErrorKind::Internal, what).with_hint("please report it"));
    if row.height == 0 || row.width == 0 || out.len() != row.len_bytes() {
        return wrong(format!("a row of {} bytes for {row:?}", out.len()));
    }
    let tables = [&table.scale, &table.bias, &table.fill, &table.cutout];
    if tables.iter().any(|t| t.len() != row.channels as usize) {
        return wrong(format!("a channel table that has not {} channels", row.channels));
    }
    for (axis, size, len) in [(&params.y, sizes[0], row.height), (&params.x, sizes[1], row.width)] {
        let finite = axis.start.is_finite() && axis.step.is_finite();
        if !finite
            || axis.step <= 0.0
            || axis.low >= axis.high
            || axis.high > size
            || axis.from > axis.to
            || axis.to > len
        {
            return wrong(format!("{axis:?} for {size} pixels and {len} outputs"));
        }
    }
    Ok(())
}
