//! The positions of the arrays of a file, and reading a whole file as one array.

use std::ops::Range;

use bytes::Bytes;
use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};
use infeed_store::{Object, Source};

use super::header::{Array, Entry, parse_directory, parse_end, parse_local, parse_npy, parse_safetensors};
use crate::{
    names::ends_with,
    packed::{Packing, inflate, is_crc, no_memory, read_head, supported},
};

/// Enough bytes for nearly all npy headers; if one is longer, the rest is read.
const HEAD: u64 = 4 << 10;
/// Largest header that is accepted: the limit of safetensors.
const LONGEST: u64 = 100 << 20;

async fn read(source: &Source, object: &Object, range: Range<u64>) -> Result<Bytes> {
    let part = object.extent(source).with_range(range);
    part.read().await
}

/// The npy array whose header begins at `at`, with the range of its data in the object.
pub async fn npy_at(source: &Source, object: &Object, at: u64, end: u64) -> Result<Array> {
    let mut len = HEAD;
    loop {
        let head = read(source, object, at..at.saturating_add(len).min(end)).await?;
        match parse_npy(&head) {
            // The header contains its length.
            Ok(Err(needed)) if needed > head.len() as u64 && needed <= LONGEST && at.saturating_add(needed) <= end => {
                len = needed;
            }
            Ok(Ok(mut array)) => {
                array.data = array.data.start + at..array.data.end.saturating_add(at);
                if array.data.end > end {
                    let (want, have) = (array.data.end - array.data.start, end.saturating_sub(array.data.start));
                    return Err(Error::corrupt(format!("{have} bytes of numbers where the header says {want}"))
                        .with_hint("the file is truncated: fetch it again"));
                }
                return Ok(array);
            }
            Ok(Err(_)) => return Err(Error::corrupt("the header is truncated").with_hint("fetch the file again")),
            Err(error) => return Err(error),
        }
    }
}

/// A deflated array of a zip file, as `numpy.savez_compressed` writes it.
#[derive(Clone, Debug)]
pub(super) struct Deflated {
    /// Its range in the object.
    pub(super) range: Range<u64>,
    /// Bytes of the uncompressed `.npy` file, to which the array's range refers.
    pub(super) length: usize,
    crc: u32,
}

impl Deflated {
    /// The whole `.npy` file, checked.
    pub(super) fn inflate(&self, bytes: &[u8]) -> Result<Bytes> {
        inflate(bytes, self.length, self.crc).map(Bytes::from)
    }

    /// Reads the header of the array.
    async fn header(&self, source: &Source, object: &Object) -> Result<Array> {
        let (mut want, mut length) = (HEAD.min(self.length as u64), HEAD);
        loop {
            let end = self.range.end.min(self.range.start.saturating_add(length));
            let bytes = read(source, object, self.range.start..end).await?;
            match read_head(Packing::Deflate, &bytes, want as usize, self.length as u64).map(|head| parse_npy(&head)) {
                Some(Ok(Ok(array))) if array.data.end <= self.length as u64 => return Ok(array),
                Some(Ok(Ok(array))) => {
                    let (numbers, have) = (array.data.end - array.data.start, self.length as u64);
                    return Err(Error::corrupt(format!("{have} bytes where the header says {numbers} of numbers"))
                        .with_hint("the file is truncated: fetch it again"));
                }
                Some(Err(error)) => return Err(error),
                Some(Ok(Err(needed))) if needed > want && needed <= LONGEST.min(self.length as u64) => want = needed,
                Some(Ok(Err(_))) => {
                    return Err(Error::corrupt("the header is truncated").with_hint("fetch the file again"));
                }
                None if end < self.range.end => length = length.saturating_mul(8),
                None => return Err(Error::corrupt("the compressed data is damaged").with_hint("fetch the file again")),
            }
        }
    }
}

/// An array with its name.
#[derive(Debug)]
pub(super) struct FoundArray {
    pub(super) name: String,
    /// The array and its compression if it has one; or the reason why it has no rows of numbers.
    pub(super) stored: std::result::Result<(Array, Option<Deflated>), Error>,
}

/// The arrays among the files of a zip file, with their names.
fn named(entries: &[Entry]) -> impl Iterator<Item = (&str, &Entry)> {
    let named = entries.iter().filter_map(|entry| Some((entry.name.strip_suffix(".npy")?, entry)));
    named.filter(|(name, _)| !name.is_empty())
}

/// Where a file of a zip file is.
enum EntryPlace {
    Stored(Range<u64>),
    Deflated(Deflated),
}

/// The place of an array; `local` begins with its header, `end` is where the directory begins.
fn entry_place(name: &str, entry: &Entry, local: &[u8], end: u64) -> Result<EntryPlace> {
    match entry.method {
        0 => {}
        8 => supported(&format!("the array `{name}` is compressed"))?,
        other => {
            let what = format!("the array `{name}` is compressed by zip's method {other}");
            return Err(Error::new(ErrorKind::Unsupported, what).with_hint("save it with numpy.savez_compressed"));
        }
    }
    let Entry { size, stored, crc, .. } = *entry;
    let start = entry.at.saturating_add(parse_local(local)?);
    let end = start.checked_add(stored).filter(|stop| *stop <= end);
    let end = end.ok_or_else(|| Error::corrupt("the array reaches beyond its file"))?;
    if entry.method == 0 {
        return Ok(EntryPlace::Stored(start..end));
    }
    // Deflate expands a byte to at most 1032.
    let length = usize::try_from(size).ok().filter(|_| size / 1032 <= stored);
    let length = length.ok_or_else(|| Error::corrupt(format!("{stored} compressed bytes can't hold {size}")))?;
    Ok(EntryPlace::Deflated(Deflated { range: start..end, length, crc }))
}

/// The arrays of a zip file: stored, as `numpy.savez` writes them, or deflated.
pub(super) async fn npz(source: &Source, object: &Object) -> Result<Vec<FoundArray>> {
    let size = object.size;
    // The end record with the longest possible comment, and before it the end record of zip64.
    let tail_start = size.saturating_sub(64 * 1024 + 22 + 20 + 56);
    let tail = read(source, object, tail_start..size).await?;
    let directory = parse_end(&tail, tail_start, size)?;
    if directory.end - directory.start > LONGEST {
        return Err(Error::corrupt("a directory of more than 100 MiB").with_hint("fetch the file again"));
    }
    let entries = parse_directory(&read(source, object, directory.clone()).await?)?;
    let mut arrays = Vec::new();
    for (name, entry) in named(&entries) {
        let near = |e: Error| e.at_object(format!("{}[{name}]", source.display_name(&object.name)));
        let local = read(source, object, entry.at..entry.at.saturating_add(30).min(directory.start)).await?;
        let stored = match entry_place(name, entry, &local, directory.start).map_err(near)? {
            EntryPlace::Stored(range) => {
                npy_at(source, object, range.start, range.end).await.map(|array| (array, None))
            }
            EntryPlace::Deflated(deflated) => {
                deflated.header(source, object).await.map(|array| (array, Some(deflated)))
            }
        };
        let stored = match stored {
            // Another type: an error only if the array is wanted.
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(error),
            stored => Ok(stored.map_err(near)?),
        };
        arrays.push(FoundArray { name: name.to_owned(), stored });
    }
    Ok(arrays)
}

/// The length of the header of a safetensors file with this many bytes.
fn header_len(head: &[u8], size: u64) -> Result<u64> {
    let bytes = head.first_chunk().ok_or_else(|| Error::corrupt("not a safetensors file: it has no header"))?;
    let len = u64::from_le_bytes(*bytes);
    if len > LONGEST || len > size.saturating_sub(8) {
        return Err(Error::corrupt(format!("a header of {len} bytes in a file of {size}"))
            .with_hint("it is not a safetensors file, or it is truncated: fetch it again"));
    }
    Ok(len)
}

pub(super) async fn safetensors(source: &Source, object: &Object) -> Result<Vec<FoundArray>> {
    let head = read(source, object, 0..object.size.min(8)).await?;
    let len = header_len(&head, object.size)?;
    let header = read(source, object, 8..8 + len).await?;
    let arrays = parse_safetensors(&header, object.size - 8 - len)?.into_iter().map(|(name, stored)| {
        let stored = stored.map(|mut array| {
            array.data = array.data.start + 8 + len..array.data.end + 8 + len;
            (array, None)
        });
        FoundArray { name, stored }
    });
    Ok(arrays.collect())
}

/// An array of a file that is in memory.
#[derive(Clone, Debug)]
pub(super) struct FileArray {
    pub(super) dtype: DType,
    pub(super) shape: Vec<usize>,
    /// The numbers: a slice of the file if they are stored in this machine's order.
    pub(super) values: Bytes,
}

/// An array with its name, or the reason why it is no numbers.
type NamedArray = (String, Result<FileArray>);

/// The wanted arrays of a file that is in memory: `.npz`, safetensors, or `.npy`, whose array has no name.
pub(super) fn arrays_of(name: &str, file: &Bytes, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<NamedArray>> {
    let array = |(dtype, shape, values)| FileArray { dtype, shape, values };
    // Another type is an error of the array, all else of the file.
    let usable = |array: Result<FileArray>| match array {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(Err(error)),
        array => array.map(Ok),
    };
    if ends_with(name, ".npz") {
        let size = file.len() as u64;
        let directory = parse_end(file, 0, size)?;
        let entries = parse_directory(&sliced(file, directory.clone())?)?;
        let read = |(name, entry): (&str, &Entry)| {
            let local = sliced(file, entry.at..entry.at.saturating_add(30).min(directory.start))?;
            let npy = match entry_place(name, entry, &local, directory.start)? {
                EntryPlace::Stored(range) => {
                    let npy = sliced(file, range)?;
                    if !is_crc(&npy, entry.crc) {
                        return Err(Error::corrupt(format!("the checksum of the array `{name}` is wrong"))
                            .with_hint("fetch the file again"));
                    }
                    npy
                }
                EntryPlace::Deflated(deflated) => deflated.inflate(&sliced(file, deflated.range.clone())?)?,
            };
            Ok((name.to_owned(), usable(npy_of(&npy).map(array))?))
        };
        return named(&entries).filter(|(name, _)| wanted(name)).map(read).collect();
    }
    if ends_with(name, ".safetensors") {
        let start = 8 + header_len(file, file.len() as u64)?;
        let header = parse_safetensors(&sliced(file, 8..start)?, file.len() as u64 - start)?;
        let read = |(name, found): (String, Result<Array>)| {
            let read = |found: Array| {
                let bytes = sliced(file, found.data.start + start..found.data.end + start)?;
                Ok(array((found.dtype, found.shape.clone(), numbers(&found, &bytes)?)))
            };
            Ok((name, usable(found.and_then(read))?))
        };
        return header.into_iter().filter(|(name, _)| wanted(name)).map(read).collect();
    }
    Ok(vec![(String::new(), npy_of(file).map(array))])
}

/// A part of a file that is in memory.
fn sliced(file: &Bytes, range: Range<u64>) -> Result<Bytes> {
    let inside = range.start <= range.end && range.end <= file.len() as u64;
    let cut = || Error::corrupt("the array reaches beyond its file").with_hint("fetch the file again");
    if inside { Ok(file.slice(range.start as usize..range.end as usize)) } else { Err(cut()) }
}

/// Type, shape and numbers of a whole `.npy` file: a slice of it, or a copy if the byte order has to be swapped.
pub fn npy_of(file: &Bytes) -> Result<(DType, Vec<usize>, Bytes)> {
    let cut = |needed: u64| {
        Error::corrupt(format!("an array that ends after {} of {needed} bytes", file.len()))
            .with_hint("fetch the file again, or save it again")
    };
    let array = parse_npy(file)?.map_err(cut)?;
    let data = array.data.clone();
    let range = usize::try_from(data.start).ok().zip(usize::try_from(data.end).ok());
    let range = range.filter(|(start, end)| start <= end && *end <= file.len());
    let (start, end) = range.ok_or_else(|| cut(data.end))?;
    let numbers = numbers(&array, &file.slice(start..end))?;
    Ok((array.dtype, array.shape, numbers))
}

/// All numbers of an array in this machine's byte order, with the last axis contiguous.
pub(super) fn numbers(array: &Array, bytes: &Bytes) -> Result<Bytes> {
    let size = array.dtype.size();
    let bytes = in_order(bytes, array.swapped.then_some(size));
    if array.fortran { transposed(&bytes, &array.shape, size).map(Bytes::from) } else { Ok(bytes) }
}

/// Reorders an array whose first axis is contiguous, so that its last one is.
fn transposed(bytes: &[u8], shape: &[usize], size: usize) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    out.try_reserve_exact(bytes.len()).map_err(|_| no_memory(bytes.len()))?;
    let steps: Vec<usize> = shape
        .iter()
        .scan(size, |step, n| {
            let own = *step;
            // No product exceeds the number of bytes, which was checked.
            *step = step.saturating_mul(*n);
            Some(own)
        })
        .collect();
    let mut index = vec![0; shape.len()];
    let mut at = 0;
    while out.len() < bytes.len() {
        out.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            at += steps[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= steps[axis] * index[axis];
            index[axis] = 0;
        }
    }
    Ok(out)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_of_fortran_is_turned_over() {
        // numpy.arange(24).reshape(2, 3, 4), in the order of its bytes with order="F".
        let of = |i: usize, j: usize, k: usize| (i * 12 + j * 4 + k) as u16;
        let mut fortran = Vec::new();
        for k in 0..4 {
            for j in 0..3 {
                (0..2).for_each(|i| fortran.extend(of(i, j, k).to_ne_bytes()));
            }
        }
        let want: Vec<u8> = (0..24u16).flat_map(u16::to_ne_bytes).collect();
        assert_eq!(transposed(&fortran, &[2, 3, 4], 2).unwrap(), want);
        assert!(transposed(&[], &[2, 0, 4], 2).unwrap().is_empty());
        assert_eq!(transposed(&[1, 2], &[2], 1).unwrap(), [1, 2]);
    }
}
