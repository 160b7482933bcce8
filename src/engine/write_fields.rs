//! What a sample has besides images, written into its rows.

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::fields::FieldRows;
use crate::{
    codec::write_volume,
    dataset::{Sample, Value},
    error::{Error, ErrorKind, Result},
    random::SampleRng,
    report::Stage,
    sys::rows::Rows,
};

/// The values of the fields of bytes, in memory of their own: a key must not keep the buffer of the image beside it.
pub(super) fn own_bytes(sample: &Sample) -> Vec<Bytes> {
    let own = |bytes: &Bytes| if bytes.is_unique() { bytes.clone() } else { Bytes::copy_from_slice(bytes) };
    let values = sample.values.iter();
    values.filter_map(|value| if let Value::Bytes(bytes) = value { Some(own(bytes)) } else { None }).collect()
}

/// Writes volumes, labels and arrays of one sample; images are the decoder's. Gives the time that volumes took.
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
            // It rides with the sample: there is no row to write.
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
                // Given back at once: others may wait for the memory.
                volume.channels.clear();
                volume.foreground = Bytes::new();
                took += began.elapsed();
                continue;
            }
            Value::Encoded(_) | Value::Channels(_) | Value::Pixels { .. } => continue,
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
