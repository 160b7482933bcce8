//! The work of a GPU that makes the same row.

use infeed_core::{error::Result, types::DType};

use super::{
    draw::Drawn,
    lower::Lowered,
    pass::{Pass, filling},
};
use crate::kernels::{Program, RowFill, RowPass, RowWork};

impl Lowered {
    /// Writes into `work` how a GPU makes the row of an image of this type. `base` is the number of this transform's
    /// first channel table. Returns `false` if a GPU can't make it, because of custom steps or of its size.
    ///
    /// # Errors
    /// `Internal` if steps and picture do not match.
    #[doc(hidden)]
    pub fn row_work(&self, drawn: &Drawn, image: DType, base: usize, work: &mut RowWork) -> Result<bool> {
        work.clear();
        if self.has_custom() {
            return Ok(false);
        }
        for pass in self.passes(drawn, image) {
            match pass {
                Pass::Resample { params, spec, table, .. } => {
                    work.passes.push(RowPass::Resample { params: *params, table: base + table, spec: *spec });
                }
                Pass::Pixels(_) | Pass::Channels(_) => {
                    if !matches!(work.passes.last(), Some(RowPass::Steps(_))) {
                        let Some(RowPass::Resample { spec, .. }) = work.passes.last() else { return Ok(false) };
                        let Some(program) = Program::new(spec) else { return Ok(false) };
                        work.passes.push(RowPass::Steps(program));
                    }
                    let Some(RowPass::Steps(program)) = work.passes.last_mut() else { return Ok(false) };
                    match pass {
                        Pass::Pixels(ops) => ops.iter().try_for_each(|op| program.add(op))?,
                        Pass::Channels(channels) => program.keep(channels),
                        Pass::Resample { .. } | Pass::Custom(_) => {}
                    }
                }
                Pass::Custom(_) => return Ok(false),
            }
        }
        let row = self.row();
        for (erased, normalized) in &drawn.erased {
            let table = (!normalized).then(|| self.unit_table(image)).flatten();
            let mut filling = filling(row, erased, table);
            let [top, bottom, left, right] = filling.area;
            let (bottom, right) = (bottom.min(row.height), right.min(row.width));
            if top >= bottom || left >= right {
                continue;
            }
            let places = if filling.each { (bottom - top) as usize * (right - left) as usize } else { 1 };
            let channels = row.channels as usize;
            let values =
                (0..channels).flat_map(|c| std::iter::repeat_n(c, places)).map(|c| (filling.next)(c)).collect();
            work.fills.push(RowFill { area: [top, bottom, left, right], values, each: filling.each });
        }
        Ok(true)
    }
}
