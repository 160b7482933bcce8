//! Decodes the bytes of data files to voxels in the machine's byte order.

use std::io::{BufRead, Read};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use infeed_core::{
    error::{Error, Result, setting::SKIP},
    types::DType,
};

use super::header::{Coding, DataFiles, VolumeHeader};

/// Decodes the data files of a volume to its voxels: `header.len_bytes()` bytes in the machine's byte order.
///
/// Raw voxels that are already in that order are a slice of the file, without a copy. Memory grows with what the files
/// really hold, not with the sizes in the header.
///
/// ```
/// # let text = "NRRD0004\ntype: uint8\ndimension: 3\nsizes: 4 3 2\nencoding: raw\n\n";
/// # let file = bytes::Bytes::from([text.as_bytes(), &[7; 24]].concat());
/// use infeed::dataset::fuzz::{decode_volume, parse_nrrd};
///
/// let header = parse_nrrd(&file, true)?.expect("the whole header");
/// let voxels = decode_volume(&header, &[file])?;
/// assert_eq!(voxels.len(), 2 * 3 * 4);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `Corrupt` if the files hold fewer or more voxels than the header says, or damaged ones. The error names no object.
pub fn decode_volume(header: &VolumeHeader, files: &[Bytes]) -> Result<Bytes> {
    let (count, skip) = match &header.data {
        DataFiles::Attached(len) => (1, *len),
        DataFiles::Detached(names) => (names.len(), 0),
    };
    if files.len() != count || count == 0 {
        return Err(Error::corrupt(format!("{} data files, expected {count}", files.len())));
    }
    let each = header.len_bytes() / count;
    if count == 1 {
        let data = start(header, &files[0], skip)?;
        if header.coding == Coding::Raw {
            let voxels = raw(header, &data, each)?;
            if !header.is_foreign() {
                return Ok(voxels);
            }
            let mut voxels = voxels.to_vec();
            turn(&mut voxels, header.dtype.size());
            return Ok(voxels.into());
        }
    }
    let mut voxels = Vec::new();
    for file in files {
        let data = start(header, file, skip)?;
        match header.coding {
            Coding::Raw => voxels.extend_from_slice(&raw(header, &data, each)?),
            Coding::Gzip => inflate(MultiGzDecoder::new(&data[..]), header, data.len(), each, &mut voxels)?,
            Coding::Bzip2 => {
                inflate(bzip2::bufread::MultiBzDecoder::new(&data[..]), header, data.len(), each, &mut voxels)?;
            }
            Coding::Text => text(header, &data, each, &mut voxels)?,
            Coding::Hex => hex(header, &data, each, &mut voxels)?,
        }
    }
    if header.is_foreign() && header.coding != Coding::Text {
        turn(&mut voxels, header.dtype.size());
    }
    Ok(voxels.into())
}

fn ends(found: usize, wanted: usize) -> Error {
    Error::corrupt(format!("the voxels end after {found} of {wanted} bytes"))
        .with_hint(format!("fetch the object again or set {SKIP}"))
}

/// The data file without its header and the lines to skip.
fn start(header: &VolumeHeader, file: &Bytes, skip: u64) -> Result<Bytes> {
    let skip =
        usize::try_from(skip).ok().filter(|skip| *skip <= file.len()).ok_or_else(|| ends(0, header.len_bytes()))?;
    let mut data = file.slice(skip..);
    for _ in 0..header.line_skip {
        let mut rest = &data[..];
        let line = rest.skip_until(b'\n').unwrap_or(0);
        if line == 0 {
            return Err(Error::corrupt(format!("there are fewer than {} lines to skip", header.line_skip)));
        }
        data = data.slice(line..);
    }
    Ok(data)
}

fn raw(header: &VolumeHeader, data: &Bytes, len: usize) -> Result<Bytes> {
    let at = match header.byte_skip {
        Some(skip) => usize::try_from(skip).ok(),
        None => data.len().checked_sub(len),
    };
    let range = at.and_then(|at| Some(at..at.checked_add(len)?)).filter(|range| range.end <= data.len());
    range.map(|range| data.slice(range)).ok_or_else(|| ends(data.len(), len))
}

/// The most bytes before voxels that are the last bytes of a compressed file. Headers and their extensions are far
/// shorter.
const MOST_BEFORE: usize = 16 << 20;

/// Decompresses `len` bytes after those to skip, and no more: a file that holds more is damaged, or a decompression
/// bomb.
fn inflate(mut reader: impl Read, header: &VolumeHeader, encoded: usize, len: usize, out: &mut Vec<u8>) -> Result<()> {
    let failed = |e: std::io::Error| {
        Error::corrupt("damaged compressed voxels")
            .with_hint(format!("fetch the object again or set {SKIP}"))
            .with_source(e)
    };
    let Some(skip) = header.byte_skip else {
        // The voxels are the last bytes, as in a `.nii.gz` that a detached header names.
        let mut all = Vec::new();
        all.reserve_exact(len.min(encoded.saturating_mul(1032)));
        reader.by_ref().take((len + MOST_BEFORE) as u64 + 1).read_to_end(&mut all).map_err(failed)?;
        let Some(before) = all.len().checked_sub(len) else { return Err(ends(all.len(), len)) };
        if before > MOST_BEFORE {
            return Err(Error::corrupt(format!("more than {MOST_BEFORE} bytes before the {len} of voxels")));
        }
        out.extend_from_slice(&all[before..]);
        return Ok(());
    };
    let skipped = std::io::copy(&mut reader.by_ref().take(skip), &mut std::io::sink()).map_err(failed)?;
    if skipped < skip {
        return Err(ends(0, len));
    }
    let before = out.len();
    // Deflate makes at most 1032 bytes of one, so a false size reserves no more than the file can fill.
    out.reserve_exact(len.min(encoded.saturating_mul(1032)));
    reader.by_ref().take(len as u64).read_to_end(out).map_err(failed)?;
    if out.len() - before < len {
        return Err(ends(out.len() - before, len));
    }
    // Reading to the end also verifies the checksum.
    if reader.read(&mut [0]).map_err(failed)? > 0 {
        return Err(Error::corrupt(format!("there are more voxels than the {len} bytes that the header says")));
    }
    Ok(())
}

fn text(header: &VolumeHeader, data: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    let data = skip_bytes(header, data, len)?;
    let size = header.dtype.size();
    let words = data.split(|b| b.is_ascii_whitespace() || *b == b',').filter(|word| !word.is_empty());
    let mut count = 0;
    for word in words {
        if count == len {
            return Err(Error::corrupt(format!("there are more than the {} voxels of the header", len / size)));
        }
        let value = std::str::from_utf8(word).ok().filter(|word| number(word, header.dtype, out).is_some());
        if value.is_none() {
            let word: String = String::from_utf8_lossy(word).chars().take(40).collect();
            return Err(Error::corrupt(format!("voxel {} is `{word}`, not a valid {}", count / size, header.dtype)));
        }
        count += size;
    }
    if count < len { Err(ends(count, len)) } else { Ok(()) }
}

fn number(word: &str, dtype: DType, out: &mut Vec<u8>) -> Option<()> {
    macro_rules! parse {
        ($($voxel:ident $rust:ty,)*) => {
            match dtype {
                $(DType::$voxel => out.extend_from_slice(&word.parse::<$rust>().ok()?.to_ne_bytes()),)*
                // No header names these types.
                DType::F16 | DType::Bf16 | DType::Bool => return None,
            }
        };
    }
    parse! { I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64, }
    Some(())
}

fn hex(header: &VolumeHeader, data: &[u8], len: usize, out: &mut Vec<u8>) -> Result<()> {
    let data = skip_bytes(header, data, len)?;
    let digits = data.iter().filter(|b| !b.is_ascii_whitespace());
    let mut high = None;
    let before = out.len();
    for digit in digits {
        let value = (*digit as char)
            .to_digit(16)
            .ok_or_else(|| Error::corrupt(format!("`{}` is not a hex digit", (*digit as char).escape_default())))?
            as u8;
        match high.take() {
            None if out.len() - before == len => {
                return Err(Error::corrupt(format!("there are more than the {len} bytes that the header says")));
            }
            None => high = Some(value),
            Some(high) => out.push(high << 4 | value),
        }
    }
    if out.len() - before < len { Err(ends(out.len() - before, len)) } else { Ok(()) }
}

fn skip_bytes<'a>(header: &VolumeHeader, data: &'a [u8], len: usize) -> Result<&'a [u8]> {
    let skip = header.byte_skip.and_then(|skip| usize::try_from(skip).ok());
    skip.and_then(|skip| data.get(skip..)).ok_or_else(|| ends(0, len))
}

/// Reverses the bytes of each value.
pub(super) fn turn(voxels: &mut [u8], size: usize) {
    match size {
        2 => voxels.as_chunks_mut::<2>().0.iter_mut().for_each(|v| v.reverse()),
        4 => voxels.as_chunks_mut::<4>().0.iter_mut().for_each(|v| v.reverse()),
        8 => voxels.as_chunks_mut::<8>().0.iter_mut().for_each(|v| v.reverse()),
        _ => {}
    }
}

/// Most foreground points that are kept per volume.
const POINTS: usize = 4096;

/// Indices of the voxels of the first channel that are not 0, ascending: all, or at most 4096 spread evenly over them.
/// Each index is a little-endian `u64`.
pub(super) fn foreground(header: &VolumeHeader, voxels: &[u8]) -> Vec<u8> {
    let size = header.dtype.size();
    let ([_, _, pitch], _) = header.pitch();
    let count = header.shape.iter().product::<usize>();
    // Interleaved or not, voxel `at` of a channel is `at * pitch` bytes after its first.
    let is_set = |at: &usize| voxels[at * pitch..at * pitch + size].iter().any(|b| *b != 0);
    let all = (0..count).filter(is_set).count();
    let step = all.div_ceil(POINTS).max(1);
    (0..count).filter(is_set).step_by(step).flat_map(|at| (at as u64).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::volumes::nrrd::parse_nrrd;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut bz = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
        bz.write_all(bytes).unwrap();
        bz.finish().unwrap()
    }

    fn file(fields: &str, data: &[u8]) -> Result<Bytes> {
        let mut file = format!("NRRD0004\ntype: int16\ndimension: 3\nsizes: 3 2 1\n{fields}\n\n").into_bytes();
        let header = parse_nrrd(&file, true)?.unwrap();
        file.extend_from_slice(data);
        decode_volume(&header, &[file.into()])
    }

    const VALUES: [i16; 6] = [1, -2, 300, -400, 5, 0];

    #[test]
    fn every_encoding_gives_the_same_voxels() {
        let native: Vec<u8> = VALUES.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let little: Vec<u8> = VALUES.iter().flat_map(|v| v.to_le_bytes()).collect();
        let big: Vec<u8> = VALUES.iter().flat_map(|v| v.to_be_bytes()).collect();
        let hex: String = big.iter().map(|b| format!("{b:02x} ")).collect();
        let padded = [b"a\nbb\n\x01\x02\x03".as_slice(), &little].concat();
        let before = [b"xyz".as_slice(), &little].concat();
        let lines = [b"x\ny\n".as_slice(), &gzip(&before)].concat();
        let members = [gzip(&little[..5]), gzip(&little[5..])].concat();
        for (fields, data) in [
            ("encoding: raw\nendian: little", &little[..]),
            ("encoding: raw\nendian: big", &big),
            ("encoding: raw\nendian: little\nline skip: 2\nbyte skip: 3", &padded),
            ("encoding: raw\nendian: little\nbyte skip: -1", &before),
            ("encoding: gzip\nendian: little", &gzip(&little)),
            ("encoding: gzip\nendian: little", &members),
            ("encoding: gz\nendian: little\nline skip: 2\nbyte skip: 3", &lines),
            ("encoding: gzip\nendian: little\nbyte skip: -1", &gzip(&before)),
            ("encoding: bzip2\nendian: big\nbyte skip: -1", &bzip2(&[b"header", &big[..]].concat())),
            ("encoding: bzip2\nendian: big", &bzip2(&big)),
            ("encoding: hex\nendian: big", hex.as_bytes()),
            ("encoding: ascii", b"1 -2\n300, -400\t5 0\n"),
            ("encoding: text\nline skip: 1", b"a line\n1 -2 300 -400 5 0"),
        ] {
            let found = file(fields, data).unwrap_or_else(|e| panic!("{fields}: {e}"));
            assert_eq!(found, native, "{fields}");
        }
    }

    #[test]
    fn too_few_and_too_many_voxels_are_errors() {
        let little: Vec<u8> = VALUES.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bomb = gzip(&vec![0; 10 << 20]);
        let damaged = {
            let mut gz = gzip(&little);
            let at = gz.len() - 6;
            gz[at] ^= 1;
            gz
        };
        let says = |fields: &str, data: &[u8], what: &str| {
            let error = file(fields, data).expect_err(what);
            assert!(error.to_string().contains(what), "{error}");
        };
        says("encoding: raw\nendian: little", &little[..11], "end after 11 of 12 bytes");
        says("encoding: raw\nendian: little\nbyte skip: -1", &little[..11], "end after");
        says("encoding: raw\nendian: little\nline skip: 9", &little, "fewer than 9 lines");
        says("encoding: raw\nendian: little\nbyte skip: 99999999999", &little, "end after");
        says("encoding: gzip\nendian: little\nbyte skip: -1", &gzip(&vec![0; 20 << 20]), "bytes before the 12");
        says("encoding: gzip\nendian: little\nbyte skip: -1", &gzip(&little[..11]), "end after 11 of 12");
        says("encoding: gzip\nendian: little", &bomb, "more voxels than the 12 bytes");
        says("encoding: bzip2\nendian: little", &bzip2(&vec![0; 10 << 20]), "more voxels");
        says("encoding: gzip\nendian: little", &gzip(&little[..10]), "end after 10 of 12");
        says("encoding: gzip\nendian: little", &damaged, "damaged");
        says("encoding: gzip\nendian: little", &little, "damaged");
        says("encoding: gzip\nendian: little", &gzip(&little)[..20], "damaged");
        says("encoding: ascii", b"1 2 3 4 5", "end after 10 of 12");
        says("encoding: ascii", b"1 2 3 4 5 6 7", "more than the 6 voxels");
        says("encoding: ascii", b"1 2 3 4 5 70000", "voxel 5 is `70000`, not a valid i16");
        says("encoding: hex\nendian: big", b"0x", "not a hex digit");
        says("encoding: hex\nendian: big", b"00010203", "end after 4 of 12");
        says("encoding: hex\nendian: big", &[b'0'; 26], "more than the 12 bytes");
    }

    #[test]
    fn several_files_are_put_together() {
        let header = b"NRRD0004\ntype: uint8\ndimension: 3\nsizes: 2 2 2\nencoding: raw\ndata file: LIST\na\nb\n";
        let header = parse_nrrd(header, true).unwrap().unwrap();
        let files = [Bytes::from_static(&[1, 2, 3, 4]), Bytes::from_static(&[5, 6, 7, 8])];
        assert_eq!(decode_volume(&header, &files).unwrap()[..], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert!(decode_volume(&header, &files[..1]).is_err());
        assert!(decode_volume(&header, &[files[0].clone(), Bytes::new()]).is_err());
    }

    #[test]
    fn damaged_data_never_panic() {
        let mut draws = infeed_core::random::SampleRng::new(7, 7, 9).op(0);
        let little: Vec<u8> = VALUES.iter().flat_map(|v| v.to_le_bytes()).collect();
        let bases = [
            ("encoding: gzip\nendian: little", gzip(&little)),
            ("encoding: bzip2\nendian: little", bzip2(&little)),
            ("encoding: ascii", b"1 -2\n300, -400\t5 0\n".to_vec()),
            ("encoding: hex\nendian: big", b"00010203 04050607 08090a0b".to_vec()),
        ];
        for (fields, base) in bases {
            for _ in 0..2_000 {
                let mut data = base.clone();
                let at = draws.below(data.len() as u64) as usize;
                data[at] = draws.bits() as u8;
                data.truncate(draws.below(data.len() as u64 + 1) as usize);
                if let Ok(voxels) = file(fields, &data) {
                    assert_eq!(voxels.len(), 12);
                }
            }
        }
    }

    #[test]
    fn foreground_is_spread_over_the_mask() {
        let header = b"NRRD0004\ntype: uint16\ndimension: 3\nsizes: 100 100 2\nencoding: raw\nendian: little\n\n";
        let header = parse_nrrd(header, true).unwrap().unwrap();
        let mut voxels = vec![0; header.len_bytes()];
        assert!(foreground(&header, &voxels).is_empty());
        voxels[2 * 7 + 1] = 1;
        assert_eq!(foreground(&header, &voxels), 7u64.to_le_bytes());
        voxels.fill(1);
        let points = foreground(&header, &voxels);
        assert_eq!(points.len(), 20_000usize.div_ceil(5) * 8);
        assert_eq!(points[8..16], 5u64.to_le_bytes());
    }
}
