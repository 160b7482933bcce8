//! Copies chunks into rows, one contiguous run at a time.

use infeed_core::error::{Error, ErrorKind, Result};
use infeed_data::packed::no_memory;

use super::array::ChunkedArray;

/// `len` bytes of the fill value; if it is empty, of zeros.
pub(super) fn filled(fill: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| no_memory(len))?;
    match fill {
        [first, rest @ ..] if rest.iter().any(|byte| byte != first) => {
            (0..len / fill.len()).for_each(|_| out.extend_from_slice(fill));
        }
        _ => out.resize(len, fill.first().copied().unwrap_or(0)),
    }
    Ok(out)
}

impl ChunkedArray {
    /// Copies one row of chunk `number`, whose bytes are `bytes`, into its place in the row `out` of the array.
    pub(super) fn copy_row(&self, bytes: &[u8], number: u64, out: &mut [u8]) -> Result<()> {
        let grid = self.grid();
        let size = self.dtype.size();
        let axes = self.shape.len();
        // For each axis but the first: the elements to copy, and the strides in bytes in the chunk and in the row.
        let mut counts = vec![0; axes];
        let mut from_steps = vec![0; axes];
        let mut to_steps = vec![0; axes];
        let (mut from_step, mut to_step, mut left, mut to) = (size, size, number, 0);
        for axis in (1..axes).rev() {
            // `check` has made sure that none of these products overflows.
            let (chunk, shape) = (self.chunk[axis] as usize, self.shape[axis] as usize);
            let start = (left % grid[axis]) as usize * chunk;
            left /= grid[axis];
            (from_steps[axis], to_steps[axis]) = (from_step, to_step);
            counts[axis] = chunk.min(shape - start);
            to += start * to_step;
            from_step *= chunk;
            to_step *= shape;
        }
        // Axes that are copied whole are merged into one run with the next.
        let (mut run, mut outer) = (size, axes);
        while outer > 1 {
            outer -= 1;
            run *= counts[outer];
            if counts[outer] as u64 != self.chunk[outer] || counts[outer] as u64 != self.shape[outer] {
                break;
            }
        }
        let mut from = 0;
        let mut index = vec![0; outer];
        loop {
            let run = (bytes.get(from..from + run), out.get_mut(to..to + run));
            let (Some(here), Some(there)) = run else {
                return Err(Error::new(ErrorKind::Internal, "a chunk is shorter than its shape"));
            };
            there.copy_from_slice(here);
            let mut axis = outer;
            loop {
                if axis <= 1 {
                    return Ok(());
                }
                axis -= 1;
                index[axis] += 1;
                from += from_steps[axis];
                to += to_steps[axis];
                if index[axis] < counts[axis] {
                    break;
                }
                from -= from_steps[axis] * index[axis];
                to -= to_steps[axis] * index[axis];
                index[axis] = 0;
            }
        }
    }

    /// Converts the numbers of a chunk from another order of axes to C order.
    pub(super) fn in_order(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let size = self.dtype.size();
        let axes = self.chunk.len();
        let mut steps = vec![0; axes];
        let mut step = size;
        for axis in self.order.iter().rev() {
            steps[*axis] = step;
            step *= self.chunk[*axis] as usize;
        }
        let mut out = Vec::new();
        out.try_reserve_exact(bytes.len()).map_err(|_| no_memory(bytes.len()))?;
        let (last, inner) = (self.chunk[axes - 1] as usize, steps[axes - 1]);
        let mut index = vec![0; axes];
        let mut at = 0;
        while out.len() < bytes.len() {
            for i in 0..last {
                let at = at + i * inner;
                let element = bytes.get(at..at + size);
                out.extend_from_slice(
                    element.ok_or_else(|| Error::new(ErrorKind::Internal, "a chunk is shorter than its shape"))?,
                );
            }
            for axis in (0..axes - 1).rev() {
                index[axis] += 1;
                at += steps[axis];
                if index[axis] < self.chunk[axis] {
                    break;
                }
                at -= steps[axis] * index[axis] as usize;
                index[axis] = 0;
            }
        }
        Ok(out)
    }
}
