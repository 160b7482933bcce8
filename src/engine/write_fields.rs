//! Writes the values of a sample other than images into its rows.

use std::time::{Duration, Instant};

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result, setting::FIELD},
    random::SampleRng,
    report::Stage,
    rows::Rows,
};
use infeed_data::{Instances, Sample, Value};
use infeed_pixels::codec::write_volume;

use super::{
    fields::{FieldRows, Side},
    image_lists::ListMaker,
    list::FieldList,
};

/// Writes volumes, labels and arrays of one sample, and makes the images of its lists; the decoder writes other images.
/// Returns the time for volumes.
pub(super) fn write_fields(
    sample: &mut Sample,
    fields: &[FieldRows],
    rng: SampleRng,
    row: usize,
    rows: &mut [Rows],
    mut lists: Option<&mut ListMaker>,
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
            Value::Bytes(data) => {
                check_bytes(data, field).map_err(|error| error.at_stage(Stage::Parse))?;
                continue;
            }
            Value::Texts(texts) => {
                check_texts(texts, field).map_err(|error| error.at_stage(Stage::Parse))?;
                continue;
            }
            Value::List(data) => {
                check_list(data, field).map_err(|error| error.at_stage(Stage::Parse))?;
                continue;
            }
            Value::Images(images) => {
                let made = make_images(images, field, rng, lists.as_deref_mut());
                *value = Value::List(made.map_err(|error| error.at_stage(Stage::Decode))?);
                continue;
            }
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
                return Err(Error::new(ErrorKind::Internal, what)
                    .at_stage(Stage::Parse)
                    .with_hint("please report this"));
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

/// Checks bytes and texts, which travel with the sample.
fn check_bytes(data: &[u8], field: &FieldRows) -> Result<()> {
    let name = &field.name;
    let Some(Side::Bytes(most) | Side::Text(most)) = field.side else {
        return Err(Error::new(ErrorKind::Internal, format!("bytes in `{name}`, a field of another kind")));
    };
    if data.len() > most {
        return Err(Error::corrupt(format!("{} bytes of `{name}`, which has {most} at most", data.len())));
    }
    if let (Some(Side::Text(_)), Err(error)) = (&field.side, str::from_utf8(data)) {
        let what = format!("the text of `{name}` is not UTF-8 from byte {} on", error.valid_up_to());
        return Err(Error::corrupt(what).with_hint(format!("set {}", FIELD.to_pair(name, "bytes"))));
    }
    Ok(())
}

/// Checks the texts of a sample, which travel with it.
fn check_texts(texts: &[Bytes], field: &FieldRows) -> Result<()> {
    let name = &field.name;
    let Some(Side::Texts(most)) = field.side else {
        return Err(Error::new(ErrorKind::Internal, format!("texts in `{name}`, a field of another kind")));
    };
    let bytes: usize = texts.iter().map(Bytes::len).sum();
    if bytes > most {
        return Err(Error::corrupt(format!("{bytes} bytes of texts in `{name}`, which has {most} at most")));
    }
    let broken = |(n, text): (usize, &Bytes)| str::from_utf8(text).err().map(|error| (n, error.valid_up_to()));
    match texts.iter().enumerate().find_map(broken) {
        Some((n, byte)) => Err(Error::corrupt(format!("text {n} of `{name}` is not UTF-8 from byte {byte} on"))),
        None => Ok(()),
    }
}

/// Makes the images of a list.
fn make_images(images: &[Value], field: &FieldRows, rng: SampleRng, maker: Option<&mut ListMaker>) -> Result<Bytes> {
    let name = field.name.as_str();
    let (Some(Side::List(FieldList { each, most, images: Some(listed), .. })), Some(maker)) = (&field.side, maker)
    else {
        return Err(Error::new(ErrorKind::Internal, format!("images in `{name}`, a field of another kind")));
    };
    match images.len() {
        count if count > *most => Err(Error::corrupt(format!("{count} images of `{name}`, which has {most} at most"))),
        _ => maker.make(images, (name, &listed.lowered), *each, rng),
    }
}

/// Checks a list, which travels with the sample.
fn check_list(data: &[u8], field: &FieldRows) -> Result<()> {
    let name = &field.name;
    let Some(Side::List(FieldList { each, most, .. })) = &field.side else {
        return Err(Error::new(ErrorKind::Internal, format!("a list in `{name}`, a field of another kind")));
    };
    if !data.len().is_multiple_of(*each) {
        return Err(Error::corrupt(format!("{} bytes of `{name}` are not whole items of {each} bytes", data.len())));
    }
    match data.len() / each {
        items if items > *most => Err(Error::corrupt(format!("{items} items of `{name}`, which has {most} at most"))),
        _ => Ok(()),
    }
}

/// Checks instances, which travel with the sample.
fn check_instances(marked: &Instances, field: &FieldRows) -> Result<()> {
    let name = &field.name;
    let Some((lowered, most)) = field.instances().map(|of| (&of.lowered, of.most)) else {
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
