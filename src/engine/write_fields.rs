//! Writes the values of a sample other than images into its rows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    rows::Rows,
};
use infeed_data::{Instances, Sample, Value};
use infeed_pixels::codec::write_volume;

use super::fields::FieldRows;

/// Writes volumes, labels and arrays of one sample; the decoder writes images. Returns the time for volumes.
pub(super) fn write_fields(
    sample: &mut Sample,
    fields: &[FieldRows],
    rng: SampleRng,
    row: usize,
    rows: &mut [Rows],
) -> Result<Duration> {
    let mut took = Duration::ZERO;
    for ((value, rows), field) in sample.values.iter_mut().zip(rows).zip(fields) {
        let bytes: &[u8] = match value {
            Value::Label(label) => {
                field.check_label(*label).map_err(|error| error.at_stage(Stage::Parse))?;
                &label.to_ne_bytes()
            }
            Value::Array(data) => data,
            // The value travels with the sample: there is no row to write.
            Value::Bytes(data) => match field.most {
                Some(most) if data.len() <= most => continue,
                Some(most) => {
                    let what = format!("{} bytes of `{}`, which has {most} at most", data.len(), field.name);
                    return Err(Error::corrupt(what).at_stage(Stage::Parse));
                }
                None => {
                    let what = format!("bytes in `{}`, a field of another kind", field.name);
                    return Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Parse));
                }
            },
            Value::Volume(volume) => {
                let began = Instant::now();
                write_volume(volume, field.volume.as_ref(), rng, rows.row_mut(row))?;
                // Returned at once, because other threads may wait for the memory.
                volume.channels.clear();
                volume.foreground = Bytes::new();
                took += began.elapsed();
                continue;
            }
            Value::Instances(marked) => {
                check_instances(marked, field)?;
                continue;
            }
            Value::Encoded(_) | Value::Channels(_) | Value::Pixels { .. } => continue,
            // An error, so that values of a new kind are not lost silently.
            other => {
                let what = format!("no row can be made of `{}`, which has {other:?}", field.name);
                return Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Parse).hint("please report this"));
            }
        };
        let place = rows.row_mut(row);
        if place.len() != bytes.len() {
            let what = format!("a field has {} bytes where the schema says {}", bytes.len(), place.len());
            return Err(Error::corrupt(what).at_stage(Stage::Parse));
        }
        place.copy_from_slice(bytes);
    }
    Ok(took)
}

/// Checks instances, which travel with the sample.
fn check_instances(marked: &Instances, field: &FieldRows) -> Result<()> {
    let FieldRows { name, instances, .. } = field;
    let Some((lowered, most)) = instances.as_ref().map(|of| (&of.lowered, of.most)) else {
        let what = format!("instances in `{name}`, a field of another kind");
        return Err(Error::new(ErrorKind::Internal, what).at_stage(Stage::Parse));
    };
    if marked.len() > most {
        let what = format!("{} instances of `{name}`, which has {most} at most", marked.len());
        return Err(Error::corrupt(what).at_stage(Stage::Parse));
    }
    if lowered.has_masks() && marked.masks.is_none() {
        return Err(Error::corrupt(format!("instances of `{name}` without their masks")).at_stage(Stage::Parse));
    }
    Ok(())
}
