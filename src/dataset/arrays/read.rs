//! Where the arrays of a file lie, and a whole file as one.

use std::ops::Range;

use bytes::Bytes;

use super::header::{Array, parse_directory, parse_end, parse_local, parse_npy, parse_safetensors};
use crate::{
    error::{Error, ErrorKind, Result},
    source::{Extent, Object, Source},
    types::DType,
};

/// Bytes of a file that hold an npy header in all but odd cases; the rest is read when it does not.
const HEAD: u64 = 4 << 10;
/// The most that a header may take: safetensors' own bound.
const LONGEST: u64 = 100 << 20;

async fn read(source: &Source, object: &Object, range: Range<u64>) -> Result<Bytes> {
    let part = Extent { range, ..object.extent(source) };
    part.read().await
}

/// An npy header that begins at `at`, with its data's range in the object.
pub(in crate::dataset) async fn npy_at(source: &Source, object: &Object, at: u64, end: u64) -> Result<Array> {
    let mut len = HEAD;
    loop {
        let head = read(source, object, at..at.saturating_add(len).min(end)).await?;
        match parse_npy(&head) {
            // The header says how long it is.
            Ok(Err(needed)) if needed > head.len() as u64 && needed <= LONGEST && at.saturating_add(needed) <= end => {
                len = needed;
            }
            Ok(Ok(mut array)) => {
                array.data = array.data.start + at..array.data.end.saturating_add(at);
                if array.data.end > end {
                    let (want, have) = (array.data.end - array.data.start, end.saturating_sub(array.data.start));
                    return Err(Error::corrupt(format!("{have} bytes of numbers where the header says {want}"))
                        .hint("the file is cut: fetch it again"));
                }
                return Ok(array);
            }
            Ok(Err(_)) => return Err(Error::corrupt("the header is cut").hint("fetch the file again")),
            Err(error) => return Err(error),
        }
    }
}

/// Names and arrays of a zip file, which numpy stores without packing them.
pub(super) async fn npz(source: &Source, object: &Object) -> Result<Vec<(String, Array)>> {
    let size = object.size;
    // The end record, with the longest comment, and the one for large files before it.
    let tail_start = size.saturating_sub(64 * 1024 + 22 + 20 + 56);
    let tail = read(source, object, tail_start..size).await?;
    let directory = parse_end(&tail, tail_start, size)?;
    if directory.end - directory.start > LONGEST {
        return Err(Error::corrupt("a directory of more than 100 MiB").hint("fetch the file again"));
    }
    let entries = parse_directory(&read(source, object, directory.clone()).await?)?;
    let mut arrays = Vec::new();
    for entry in entries {
        let Some(name) = entry.name.strip_suffix(".npy").filter(|name| !name.is_empty()) else { continue };
        let named = |e: Error| e.at_object(format!("{}[{name}]", source.display_name(&object.name)));
        if entry.packed {
            let what = format!("the array `{name}` is compressed: records can't be read out of it");
            return Err(named(
                Error::new(ErrorKind::Unsupported, what).hint("save it with numpy.savez instead of savez_compressed"),
            ));
        }
        let local = read(source, object, entry.at..entry.at.saturating_add(30).min(directory.start)).await?;
        let start = entry.at + parse_local(&local).map_err(named)?;
        let end = start.checked_add(entry.size).filter(|end| *end <= directory.start);
        let end = end.ok_or_else(|| named(Error::corrupt("the array reaches beyond its file")))?;
        arrays.push((name.to_owned(), npy_at(source, object, start, end).await.map_err(named)?));
    }
    Ok(arrays)
}

pub(super) async fn safetensors(source: &Source, object: &Object) -> Result<Vec<(String, Array)>> {
    let head = read(source, object, 0..object.size.min(8)).await?;
    let bytes: [u8; 8] = head[..].try_into().map_err(|_| Error::corrupt("no safetensors file: it has no header"))?;
    let len = u64::from_le_bytes(bytes);
    if len > LONGEST || len > object.size.saturating_sub(8) {
        let what = format!("a header of {len} bytes in a file of {}", object.size);
        return Err(Error::corrupt(what).hint("it is no safetensors file, or cut: fetch it again"));
    }
    let header = read(source, object, 8..8 + len).await?;
    let mut arrays = parse_safetensors(&header, object.size - 8 - len)?;
    for (_, array) in &mut arrays {
        array.data = array.data.start + 8 + len..array.data.end + 8 + len;
    }
    Ok(arrays)
}

/// Type, shape and numbers of a whole `.npy` file: a slice of it, turned round where this machine's order is another.
pub(in crate::dataset) fn npy_of(file: &Bytes) -> Result<(DType, Vec<usize>, Bytes)> {
    let cut = |needed: u64| {
        Error::corrupt(format!("an array that ends after {} of {needed} bytes", file.len()))
            .hint("fetch the file again, or save it again")
    };
    let Array { dtype, shape, data, swapped } = parse_npy(file)?.map_err(cut)?;
    let range = usize::try_from(data.start).ok().zip(usize::try_from(data.end).ok());
    let range = range.filter(|(start, end)| start <= end && *end <= file.len());
    let (start, end) = range.ok_or_else(|| cut(data.end))?;
    Ok((dtype, shape, in_order(&file.slice(start..end), swapped.then_some(dtype.size()))))
}

/// The same numbers in the machine's order.
pub(super) fn in_order(bytes: &Bytes, swap: Option<usize>) -> Bytes {
    match swap {
        None => bytes.clone(),
        Some(size) => {
            let mut turned = bytes.to_vec();
            turned.chunks_exact_mut(size).for_each(<[u8]>::reverse);
            turned.into()
        }
    }
}
