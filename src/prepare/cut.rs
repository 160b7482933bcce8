//! Where shards end; every rank computes this without the others.

use std::num::NonZeroU64;

use infeed_core::{error::Result, random::SampleRng};
use infeed_data::{Dataset, FieldKind};

/// First positions of `parts` shards whose numbers of records differ by one at most; fewer shards when there are fewer
/// records.
pub(super) fn equal(len: u64, parts: NonZeroU64) -> Vec<u64> {
    let parts = parts.get().min(len);
    (0..parts).map(|part| (u128::from(len) * u128::from(part) / u128::from(parts)) as u64).collect()
}

/// First positions of shards that hold up to `most` bytes of the source, or one record.
pub(super) fn by_size(dataset: &dyn Dataset, order: &impl Fn(u64) -> u64, most: u64) -> Result<Vec<u64>> {
    let resident = resident_bytes(dataset);
    let (mut starts, mut held) = (vec![0], 0u64);
    for position in 0..dataset.len() {
        let record = order(position);
        let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
        // For records that only consist of shared parts, such as row groups.
        let in_parts = if plan.extents.is_empty() && !plan.shared.is_empty() { dataset.largest_read() } else { 0 };
        let bytes = plan.len_bytes().max(resident).max(in_parts);
        if held.saturating_add(bytes) > most && held > 0 {
            starts.push(position);
            held = 0;
        }
        held = held.saturating_add(bytes);
    }
    Ok(starts)
}

/// Bytes of a record that is in memory, by the schema.
fn resident_bytes(dataset: &dyn Dataset) -> u64 {
    let of = |kind: &FieldKind| match kind {
        FieldKind::Image { channels, size: Some((height, width)), dtype } => {
            let pixels = u64::from(*height) * u64::from(*width);
            let values = pixels.saturating_mul(u64::from(*channels));
            values.saturating_mul(dtype.map_or(1, |dtype| dtype.size() as u64))
        }
        FieldKind::Array { dtype, shape } => dtype.len_bytes(shape).map_or(u64::MAX, |bytes| bytes as u64),
        _ => 8,
    };
    if dataset.largest_read() > 0 {
        1
    } else {
        dataset.schema().fields.iter().map(|field| of(&field.kind)).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use infeed_data::SyntheticDataset;

    #[test]
    fn parts_are_equal_and_cover_all() {
        let parts = |len, n| equal(len, NonZeroU64::new(n).unwrap());
        assert_eq!(parts(10, 3), [0, 3, 6]);
        assert_eq!(parts(2, 5), [0, 1]);
        assert_eq!(parts(u64::MAX, 2), [0, u64::MAX / 2]);
    }

    #[test]
    fn a_shard_ends_before_the_record_that_is_too_much() {
        // 4x4x3 pixels and a label: 56 bytes.
        let dataset = SyntheticDataset::new(10, 4, 4, 2).unwrap();
        let cut = |most| by_size(&dataset, &|position| position, most).unwrap();
        assert_eq!(cut(56 * 4), [0, 4, 8]);
        assert_eq!(cut(56 * 4 + 55), [0, 4, 8]);
        assert_eq!(cut(1), (0..10).collect::<Vec<_>>());
        assert_eq!(cut(1 << 20), [0]);
    }
}
