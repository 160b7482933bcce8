//! What the images of a folder are, as the headers of some of them say.

use std::collections::BTreeSet;

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::CHANNELS},
    types::{DType, ImageInfo},
};

use crate::{
    files::Files,
    names::is_tiff,
    schema::{Field, FieldKind},
    tiff::parse_tiff,
};

/// Files of a record, where there are several.
#[derive(Debug)]
pub(super) struct Several {
    pub(super) per: usize,
    /// The first of them are channels of the image; a mask may follow.
    pub(super) channels: usize,
    pub(super) order: Vec<u32>,
}

/// What the headers say of the images and masks: how many channels, which type, and the size where it is one for all
/// that were looked at (the first, the middle and the last record). Only TIFFs are asked: all else becomes RGB.
pub(super) async fn image_fields(files: &Files, groups: Option<&Several>) -> Result<Vec<Field>> {
    let (per, channels) = groups.map_or((1, 1), |g| (g.per, g.channels));
    let records = groups.map_or(files.len(), |g| g.order.len() / g.per);
    let file = |record: usize, n: usize| groups.map_or(record, |g| g.order[record * g.per + n] as usize);
    let all_tiff = |n: usize| (0..records).all(|record| is_tiff(files.name(file(record, n))));
    let image = match all_tiff(0) {
        true => {
            let ImageInfo { height, width, channels: in_file, dtype, .. } =
                probe(files, records, |r| file(r, 0)).await?;
            if channels > 1 && in_file != 1 {
                let name = files.display(file(0, 0));
                let what = format!("{in_file} channels in a file that should hold one");
                return Err(Error::config(what).at_object(name).hint(format!("leave {CHANNELS} out")));
            }
            let channels = if channels > 1 { channels as u8 } else { in_file };
            FieldKind::Image { channels, size: (height > 0).then_some((height, width)), dtype: Some(dtype) }
        }
        false if channels > 1 => FieldKind::Image { channels: channels as u8, size: None, dtype: None },
        false => Field::image().kind,
    };
    let mut fields = vec![Field::new("image", image)];
    if per > channels {
        let mask = match all_tiff(channels) {
            true => {
                let found = probe(files, records, |r| file(r, channels)).await?;
                let size = (found.height > 0).then_some((found.height, found.width));
                FieldKind::Image { channels: found.channels, size, dtype: Some(found.dtype) }
            }
            false => FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) },
        };
        fields.push(Field::mask("mask", mask));
    }
    Ok(fields)
}

/// What the first, the middle and the last file say; height and width are 0 where they differ.
async fn probe(files: &Files, records: usize, file: impl Fn(usize) -> usize) -> Result<ImageInfo> {
    let mut found: Result<ImageInfo> = Err(Error::new(ErrorKind::NotFound, "no images"));
    let mut looked = BTreeSet::new();
    for record in [0, records / 2, records.saturating_sub(1)] {
        let i = file(record);
        if !looked.insert(i) {
            continue;
        }
        let info = match files.extent(i).read().await {
            Ok(bytes) => parse_tiff(&bytes).map(|tiff| tiff.info),
            Err(error) => Err(error),
        };
        let info = info.map_err(|e| e.at_object(files.display(i)));
        found = match (found, info) {
            (Ok(a), Ok(b)) if (a.height, a.width) != (b.height, b.width) => Ok(ImageInfo { height: 0, width: 0, ..a }),
            (Ok(a), _) => Ok(a),
            // A damaged file is a bad sample when its turn comes; another one tells what the rest is.
            (Err(_), Ok(b)) => Ok(b),
            (Err(first), Err(error)) => Err(if looked.len() == 1 { error } else { first }),
        };
    }
    found
}
