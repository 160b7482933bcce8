//! Reads the attributes that give a dataset's numbers their meaning, such as `scale_factor`, as netCDF writes them.

use infeed_core::error::{ErrorKind, Result};

use super::{
    cursor::Cursor,
    damaged,
    file::File,
    group::most,
    header::{Header, kind},
    heap::Fractal,
    messages::{datatype, space},
    tree,
};
use crate::chunked::{Attributes, Number, wide};

/// What netCDF writes into `NAME` of a dimension without values.
const NO_VALUES: &[u8] = b"This is a netCDF dimension but not a netCDF variable";

/// What the attributes of a dataset say about it.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) attributes: Attributes,
    /// Whether it is only a dimension without values: its numbers mean nothing.
    pub(super) is_dimension: bool,
}

/// Reads the attributes that are needed. Warns of unreadable ones, as one of them may be a scale.
pub(super) async fn known(file: &mut File<'_>, header: &Header, name: &str) -> Result<Known> {
    let mut known = Known::default();
    match all(file, header, &mut known).await {
        Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Corrupt) => {
            tracing::warn!(
                dataset = name,
                why = error.what(),
                "attributes can't be read: if one is a scale_factor, it is not applied and numbers are as stored"
            );
            Ok(Known::default())
        }
        read => read.map(|()| known),
    }
}

async fn all(file: &mut File<'_>, header: &Header, known: &mut Known) -> Result<()> {
    for message in header.messages.iter().filter(|message| message.kind == kind::ATTRIBUTE) {
        one(&message.body, file.lengths, known)?;
    }
    let Some(message) = header.find(kind::ATTRIBUTE_INFO) else { return Ok(()) };
    let mut cursor = Cursor::new(&message.body, "the attribute info of a dataset");
    cursor.version(0, 0)?;
    if cursor.u8()? & 1 != 0 {
        cursor.skip(2)?;
    }
    let (heap, names) = (cursor.address(file.offsets)?, cursor.address(file.offsets)?);
    let (Some(heap), Some(names)) = (heap, names) else { return Ok(()) };
    let heap = Fractal::read(file, heap).await?;
    let tree = tree::second(file, names).await?;
    most(tree.records.len())?;
    for record in tree.records {
        let id = record.get(..8).ok_or_else(|| damaged("an attribute without an address"))?;
        let body = heap.object(file, id).await?;
        one(&body, file.lengths, known)?;
    }
    Ok(())
}

/// Parses one attribute; ignores those that are not needed.
fn one(body: &[u8], lengths: usize, known: &mut Known) -> Result<()> {
    let mut cursor = Cursor::new(body, "an attribute");
    let version = cursor.version(1, 3)?;
    let flags = cursor.u8()?;
    let sizes = [cursor.u16()?, cursor.u16()?, cursor.u16()?].map(usize::from);
    if version == 3 {
        cursor.skip(1)?;
    }
    let padded = |size: usize| if version == 1 { size.next_multiple_of(8) } else { size };
    let name = cursor.take(padded(sizes[0]))?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let of_use: [&[u8]; 6] = [b"scale_factor", b"add_offset", b"_FillValue", b"missing_value", b"_Unsigned", b"NAME"];
    if !of_use.contains(&name) {
        return Ok(());
    }
    let (of_type, of_space) = (cursor.take(padded(sizes[1]))?, cursor.take(padded(sizes[2]))?);
    let data = cursor.take(cursor.left())?;
    if name == b"NAME" {
        known.is_dimension |= data.starts_with(NO_VALUES);
        return Ok(());
    }
    if flags & 3 != 0 {
        return Err(cursor.error("its type is shared with others"));
    }
    if name == b"_Unsigned" {
        // A text of fixed length; those of variable length are stored elsewhere.
        let text = data.split(|byte| *byte == 0).next().unwrap_or_default().to_ascii_lowercase();
        known.attributes.unsigned = match &text[..] {
            b"true" => Some(true),
            b"false" => Some(false),
            _ => return Err(cursor.error("`_Unsigned` is neither true nor false")),
        };
        return Ok(());
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let scales = ["scale_factor", "add_offset"].contains(&&*name);
    let (dtype, big) = match datatype(of_type)? {
        Ok(number) => number,
        Err(_) if scales => return Err(cursor.error(&format!("`{name}` is not a number"))),
        // A missing value that is not a number equals none.
        Err(_) => return Ok(()),
    };
    let shape = space(of_space, lengths)?
        .map_or(Some(0), |space| space.shape.iter().try_fold(1, |n: u64, axis| n.checked_mul(*axis)));
    let bytes = shape.and_then(|count| usize::try_from(count).ok()?.checked_mul(dtype.size()));
    let bytes = bytes.and_then(|len| data.get(..len)).ok_or_else(|| cursor.error("it ends too early"))?;
    let mut bytes = bytes.to_vec();
    if big != cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
    }
    let values = wide(dtype, &bytes)?;
    let only = || match values[..] {
        [value] => Ok(Some(Number { value, dtype })),
        _ => Err(cursor.error(&format!("`{name}` holds {} numbers", values.len()))),
    };
    match &*name {
        "scale_factor" => known.attributes.scale = only()?,
        "add_offset" => known.attributes.offset = only()?,
        _ => known.attributes.missing.extend(values),
    }
    Ok(())
}
