//! The fields of a folder's images, from the headers of some of them.

use std::collections::BTreeSet;

use infeed_core::{
    error::{Error, ErrorKind, Result, setting::CHANNELS},
    types::{DType, ImageInfo},
};

use crate::{
    files::Files,
    names::is_tiff,
    schema::{Field, FieldKind},
    sniff::{depth, wider},
    tiff::parse_tiff,
};

/// The files of a record, if there are several.
#[derive(Debug)]
pub(super) struct Several {
    pub(super) per: usize,
    /// The first of them are channels of the image; a mask may follow.
    pub(super) channels: usize,
    pub(super) order: Vec<u32>,
}

impl Several {
    pub(super) fn records(&self) -> usize {
        self.order.len() / self.per
    }
}

/// The fields of the images and masks, from the headers of the first, middle and last record: number of channels, type,
/// and size if it is the same in these. Of images only TIFF headers are read; all others become RGB. Masks have one
/// channel, unless they are TIFFs with several channels that are not colours.
pub(super) async fn image_fields(files: &Files, groups: Option<&Several>) -> Result<Vec<Field>> {
    let (per, channels) = groups.map_or((1, 1), |g| (g.per, g.channels));
    let records = groups.map_or(files.len(), Several::records);
    let file = |record: usize, n: usize| groups.map_or(record, |g| g.order[record * g.per + n] as usize);
    let all_tiff = |n: usize| {
        for record in 0..records {
            if !is_tiff(&files.get(file(record, n))?.name) {
                return Ok(false);
            }
        }
        Ok::<_, Error>(true)
    };
    let image = match all_tiff(0)? {
        true => {
            let ImageInfo { height, width, channels: in_file, dtype, .. } =
                probe(files, records, |r| file(r, 0), |bytes| Ok(parse_tiff(bytes)?.info), false).await?;
            if channels > 1 && in_file != 1 {
                let name = files.display(file(0, 0));
                let what = format!("{in_file} channels in a file that should hold one");
                return Err(Error::config(what).at_object(name).with_hint(format!("omit {CHANNELS}")));
            }
            let channels = if channels > 1 { channels as u8 } else { in_file };
            FieldKind::Image { channels, size: (height > 0).then_some((height, width)), dtype: Some(dtype) }
        }
        false if channels > 1 => FieldKind::Image { channels: channels as u8, size: None, dtype: None },
        false => Field::image().kind,
    };
    let mut fields = vec![Field::new("image", image)];
    if per > channels {
        let mask = match all_tiff(channels)? {
            true => {
                let found = probe(files, records, |r| file(r, channels), mask_of_tiff, true).await?;
                let size = (found.height > 0).then_some((found.height, found.width));
                FieldKind::Image { channels: found.channels, size, dtype: Some(found.dtype) }
            }
            false => {
                let found = probe(files, records, |r| file(r, channels), mask_of, true).await;
                // A damaged file is a bad sample when it is read.
                let dtype = found.map_or(DType::U8, |found| found.dtype);
                FieldKind::Image { channels: 1, size: None, dtype: Some(dtype) }
            }
        };
        fields.push(Field::mask("mask", mask));
    }
    Ok(fields)
}

/// Equal colour channels count as one; unequal ones are not labels.
fn mask_of_tiff(bytes: &[u8]) -> Result<ImageInfo> {
    let tiff = parse_tiff(bytes)?.labels();
    let channels = if tiff.is_rgb() { 1 } else { tiff.info.channels };
    Ok(ImageInfo { channels, ..tiff.info })
}

/// The type of a mask's labels; its size and channels are not used.
fn mask_of(bytes: &[u8]) -> Result<ImageInfo> {
    Ok(ImageInfo { dtype: depth(bytes)?, ..ImageInfo::interleaved_u8(0, 0, 1) })
}

/// The headers of the first, the middle and the last file, combined. Height and width are 0 if they differ. The type is
/// that of the first file; for masks, if that is u8, the type of another one, because labels keep their values in a
/// larger type.
async fn probe(
    files: &Files,
    records: usize,
    file: impl Fn(usize) -> usize,
    say: impl Fn(&[u8]) -> Result<ImageInfo>,
    mask: bool,
) -> Result<ImageInfo> {
    let mut found: Result<ImageInfo> = Err(Error::new(ErrorKind::NotFound, "no images"));
    let mut looked = BTreeSet::new();
    for record in [0, records / 2, records.saturating_sub(1)] {
        let i = file(record);
        if !looked.insert(i) {
            continue;
        }
        let info = match files.extent(i)?.read().await {
            Ok(bytes) => say(&bytes),
            Err(error) => Err(error),
        };
        let info = info.map_err(|e| e.at_object(files.display(i)));
        found = match (found, info) {
            (Ok(a), Ok(b)) => {
                let (height, width) =
                    if (a.height, a.width) == (b.height, b.width) { (a.height, a.width) } else { (0, 0) };
                let dtype = if mask { wider(a.dtype, b.dtype) } else { a.dtype };
                Ok(ImageInfo { height, width, dtype, ..a })
            }
            (Ok(a), Err(_)) => Ok(a),
            // A damaged file is a bad sample when it is read; another file gives the fields.
            (Err(_), Ok(b)) => Ok(b),
            (Err(first), Err(error)) => Err(if looked.len() == 1 { error } else { first }),
        };
    }
    found
}
