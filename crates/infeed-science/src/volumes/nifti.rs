//! NIfTI headers, versions 1 and 2, in one file (`.nii`, `.nii.gz`). The `nifti` crate is not used: it reads whole
//! files into `ndarray`s, but a patch needs ranges.

use infeed_core::{
    error::{Error, ErrorKind, Result},
    types::DType,
};

use super::header::{Coding, DataFiles, Grid, VolumeHeader};

/// Bytes of the longer header, that of version 2.
pub(super) const LEN: usize = 540;

/// Reads the header at the beginning of `bytes`: 348 bytes in version 1, 540 in version 2. The file's axes x, y, z
/// become a volume `[Z, Y, X]`; its axis t counts channels. `coding` is gzip if `bytes` were decompressed from the
/// file, otherwise raw.
///
/// ```
/// # let mut file = vec![0; 352];
/// # let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
/// # put(0, &348i32.to_le_bytes());
/// # put(40, &[3i16, 4, 3, 2].map(i16::to_le_bytes).concat());
/// # put(70, &[2i16, 8].map(i16::to_le_bytes).concat());
/// # put(108, &352f32.to_le_bytes());
/// # put(344, b"n+1\0");
/// use infeed::dataset::fuzz::{Coding, parse_nifti};
///
/// let header = parse_nifti(&file, Coding::Raw)?;
/// assert_eq!(header.shape, [2, 3, 4]);
/// # Ok::<(), infeed::Error>(())
/// ```
///
/// # Errors
/// `Corrupt` for bytes that are not a NIfTI header, `Unsupported` for other types, more axes, and voxels in another
/// file.
pub fn parse_nifti(bytes: &[u8], coding: Coding) -> Result<VolumeHeader> {
    let none = || Error::corrupt("not a NIfTI file: it does not begin with a header of 348 or 540 bytes");
    let start: [u8; 4] = *bytes.first_chunk().ok_or_else(none)?;
    let (two, big_endian) = match (i32::from_le_bytes(start), i32::from_be_bytes(start)) {
        (348, _) => (false, false),
        (_, 348) => (false, true),
        (540, _) => (true, false),
        (_, 540) => (true, true),
        _ => return Err(none()),
    };
    if bytes.len() < if two { 540 } else { 348 } {
        return Err(Error::corrupt(format!("the header ends after {} bytes", bytes.len())));
    }
    let raw = Raw { bytes, big_endian };
    match if two { &bytes[4..7] } else { &bytes[344..347] } {
        b"n+1" | b"n+2" => {}
        b"ni1" | b"ni2" => {
            return Err(Error::new(ErrorKind::Unsupported, "a NIfTI header whose voxels are in an .img file")
                .with_hint("convert the pair to one .nii file"));
        }
        _ => return Err(none()),
    }
    let dim = |i: usize| if two { raw.i64(16 + 8 * i) } else { i64::from(raw.i16(40 + 2 * i)) };
    let axes = dim(0);
    // Trailing axes of one voxel are ignored.
    let many = (1..=7).rev().find(|i| *i <= axes && dim(*i as usize) != 1).unwrap_or(1);
    if !(1..=7).contains(&axes) {
        return Err(Error::corrupt(format!("the header says {axes} axes")));
    }
    if many > 4 {
        return Err(Error::new(ErrorKind::Unsupported, format!("{many} axes")).with_hint("volumes have 1 to 4"));
    }
    let size = |i: usize| match dim(i) {
        _ if i as i64 > axes => Ok(1),
        n if n > 0 => usize::try_from(n).map_err(|_| Error::corrupt(format!("the header says a size of {n}"))),
        n => Err(Error::corrupt(format!("the header says a size of {n}"))),
    };
    let dtype = match raw.i16(if two { 12 } else { 70 }) {
        2 => DType::U8,
        4 => DType::I16,
        8 => DType::I32,
        16 => DType::F32,
        64 => DType::F64,
        256 => DType::I8,
        512 => DType::U16,
        768 => DType::U32,
        1024 => DType::I64,
        1280 => DType::U64,
        other => {
            return Err(Error::new(ErrorKind::Unsupported, format!("voxels of NIfTI datatype {other}"))
                .with_hint("convert them to whole numbers of 8 to 64 bits, float or double"));
        }
    };
    let float = |one: usize, other: usize| if two { raw.f64(other) } else { f64::from(raw.f32(one)) };
    let offset = if two { raw.i64(168) as f64 } else { f64::from(raw.f32(108)) };
    let header = if two { 540.0 } else { 348.0 };
    if !(header..=1e15).contains(&offset) {
        return Err(Error::corrupt(format!("the header says that voxels begin at byte {offset}")));
    }
    let spacing = [3, 2, 1].map(|i| float(76 + 4 * i, 104 + 8 * i).abs() as f32);
    let (qform, sform) =
        if two { (raw.i32(344), raw.i32(348)) } else { (i32::from(raw.i16(252)), i32::from(raw.i16(254))) };
    let origin = [2usize, 1, 0].map(|row| {
        if sform > 0 {
            float(280 + 16 * row + 12, 400 + 32 * row + 24) as f32
        } else if qform > 0 {
            float(268 + 4 * row, 376 + 8 * row) as f32
        } else {
            f32::NAN
        }
    });
    let grid = if sform > 0 {
        let row =
            |row: usize| [0, 1, 2, 3].map(|column| float(280 + 16 * row + 4 * column, 400 + 32 * row + 8 * column));
        let rows = [row(0), row(1), row(2)];
        Some([2usize, 1, 0, 3].map(|column| rows.map(|row| row[column])))
    } else if qform > 0 {
        let quaternion = [0, 1, 2].map(|i| float(256 + 4 * i, 352 + 8 * i));
        let sizes = [0, 1, 2, 3].map(|i| float(76 + 4 * i, 104 + 8 * i));
        let first = [0, 1, 2].map(|i| float(268 + 4 * i, 376 + 8 * i));
        Some(rotated(quaternion, sizes, first))
    } else {
        None
    };
    let (slope, intercept) = (float(112, 176), float(116, 184));
    // A slope of 0, or one that is not a finite number, means that there is no scaling, as in nibabel. With a slope,
    // the intercept has to be finite, or no voxel would be.
    let scaled = slope != 0.0 && slope.is_finite();
    if scaled && !intercept.is_finite() {
        return Err(Error::corrupt(format!("the header scales voxels by {slope} and adds {intercept}"))
            .with_hint("set scl_inter to a number, or scl_slope to 0 for unscaled voxels"));
    }
    VolumeHeader {
        dtype,
        big_endian,
        coding,
        data: DataFiles::Attached(0),
        line_skip: 0,
        byte_skip: Some(offset as u64),
        channels: size(4)?,
        shape: [size(3)?, size(2)?, size(1)?],
        interleaved: false,
        spacing,
        origin,
        slope: if scaled { slope } else { 1.0 },
        intercept: if scaled { intercept } else { 0.0 },
        grid,
    }
    .check()
}

/// The grid of a quaternion whose first number follows from these three. The sign of `sizes[0]` is that of the axis z.
fn rotated([b, c, d]: [f64; 3], sizes: [f64; 4], first: [f64; 3]) -> Grid {
    let a = (1.0 - b * b - c * c - d * d).max(0.0).sqrt();
    let z = if sizes[0] < 0.0 { -sizes[3] } else { sizes[3] };
    let step = |size: f64, direction: [f64; 3]| direction.map(|part| part * size);
    [
        step(z, [2.0 * (b * d + a * c), 2.0 * (c * d - a * b), a * a + d * d - b * b - c * c]),
        step(sizes[2], [2.0 * (b * c - a * d), a * a + c * c - b * b - d * d, 2.0 * (c * d + a * b)]),
        step(sizes[1], [a * a + b * b - c * c - d * d, 2.0 * (b * c + a * d), 2.0 * (b * d - a * c)]),
        first,
    ]
}

struct Raw<'a> {
    bytes: &'a [u8],
    big_endian: bool,
}

macro_rules! numbers {
    ($($name:ident)*) => {$(
        /// The caller has checked that the header is long enough for this field.
        fn $name(&self, at: usize) -> $name {
            let raw = self.bytes[at..].first_chunk().copied().unwrap_or_default();
            if self.big_endian { $name::from_be_bytes(raw) } else { $name::from_le_bytes(raw) }
        }
    )*};
}

impl Raw<'_> {
    numbers! { i16 i32 i64 f32 f64 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes a header of version 1.
    #[doc(hidden)]
    pub(crate) fn one(dims: &[i16], datatype: i16, slope: f32, intercept: f32) -> Vec<u8> {
        let mut bytes = vec![0; 352];
        bytes[..4].copy_from_slice(&348i32.to_le_bytes());
        for (i, n) in [dims.len() as i16].iter().chain(dims).enumerate() {
            bytes[40 + 2 * i..][..2].copy_from_slice(&n.to_le_bytes());
        }
        bytes[70..72].copy_from_slice(&datatype.to_le_bytes());
        for (i, spacing) in [1.0f32, 0.5, 2.0, 3.0].iter().enumerate() {
            bytes[76 + 4 * i..][..4].copy_from_slice(&spacing.to_le_bytes());
        }
        bytes[108..112].copy_from_slice(&352f32.to_le_bytes());
        bytes[112..116].copy_from_slice(&slope.to_le_bytes());
        bytes[116..120].copy_from_slice(&intercept.to_le_bytes());
        bytes[252..254].copy_from_slice(&1i16.to_le_bytes());
        for (i, origin) in [7.0f32, 8.0, 9.0].iter().enumerate() {
            bytes[268 + 4 * i..][..4].copy_from_slice(&origin.to_le_bytes());
        }
        bytes[344..348].copy_from_slice(b"n+1\0");
        bytes
    }

    #[test]
    fn a_header_of_each_version_is_read() {
        let header = parse_nifti(&one(&[5, 4, 3], 4, 2.0, -1.0), Coding::Raw).unwrap();
        assert_eq!((header.shape, header.channels, header.dtype), ([3, 4, 5], 1, DType::I16));
        assert_eq!((header.spacing, header.origin), ([3.0, 2.0, 0.5], [9.0, 8.0, 7.0]));
        assert_eq!((header.slope, header.intercept, header.byte_skip), (2.0, -1.0, Some(352)));
        let header = parse_nifti(&one(&[5, 4, 3, 2, 1], 16, 0.0, 9.0), Coding::Gzip).unwrap();
        assert_eq!((header.channels, header.slope, header.intercept), (2, 1.0, 0.0));

        // As nibabel's `get_slope_inter` returns them.
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for (slope, intercept, want) in [
            (0.0, nan, (1.0, 0.0)),
            (nan, 5.0, (1.0, 0.0)),
            (nan, nan, (1.0, 0.0)),
            (inf, 5.0, (1.0, 0.0)),
            (-inf, inf, (1.0, 0.0)),
            (2.0, 0.0, (2.0, 0.0)),
            (-1.5, -1024.0, (-1.5, -1024.0)),
        ] {
            let header = parse_nifti(&one(&[5, 4, 3], 4, slope, intercept), Coding::Raw).unwrap();
            assert_eq!((header.slope, header.intercept), want, "{slope}, {intercept}");
        }
        for intercept in [nan, inf, -inf] {
            let error = parse_nifti(&one(&[5, 4, 3], 4, 2.0, intercept), Coding::Raw).unwrap_err().to_string();
            assert!(error.contains(&format!("scales voxels by 2 and adds {intercept}")), "{error}");
        }

        let mut two = vec![0; 544];
        two[..4].copy_from_slice(&540i32.to_be_bytes());
        two[4..8].copy_from_slice(b"n+2\0");
        two[12..14].copy_from_slice(&512i16.to_be_bytes());
        for (i, n) in [3i64, 5, 4, 3].iter().enumerate() {
            two[16 + 8 * i..][..8].copy_from_slice(&n.to_be_bytes());
        }
        two[168..176].copy_from_slice(&544i64.to_be_bytes());
        two[348..352].copy_from_slice(&1i32.to_be_bytes());
        two[400 + 24..][..8].copy_from_slice(&6.5f64.to_be_bytes());
        let header = parse_nifti(&two, Coding::Raw).unwrap();
        assert_eq!((header.shape, header.dtype, header.big_endian), ([3, 4, 5], DType::U16, true));
        assert_eq!(header.origin[2], 6.5);
    }

    #[test]
    fn a_grid_is_that_of_nibabel() {
        let put = |bytes: &mut Vec<u8>, at: usize, values: &[f32]| {
            for (i, value) in values.iter().enumerate() {
                bytes[at + 4 * i..][..4].copy_from_slice(&value.to_le_bytes());
            }
        };
        let mut turned = one(&[5, 4, 3], 4, 1.0, 0.0);
        put(&mut turned, 76, &[-1.0, 0.5, 2.0, 3.0]);
        put(&mut turned, 256, &[0.1, -0.3, 0.5]);
        let by_qform = parse_nifti(&turned, Coding::Raw).unwrap();
        // `get_qform`, column by column from the last axis on.
        let want = [
            [1.151_206_44, 1.383_735_51, -2.399_999_96],
            [-1.732_451_55, 0.96, -0.277_509_71],
            [0.159_999_99, 0.373_112_88, 0.291_867_74],
            [7.0, 8.0, 9.0],
        ];
        for (ours, theirs) in by_qform.grid.unwrap().as_flattened().iter().zip(want.as_flattened()) {
            assert!((ours - theirs).abs() < 1e-6, "{:?}", by_qform.grid);
        }

        // The same as rows, which take precedence; then with the axis x the other way round.
        let mut rows = one(&[5, 4, 3], 4, 1.0, 0.0);
        rows[254..256].copy_from_slice(&1i16.to_le_bytes());
        for (row, at) in [280, 296, 312].into_iter().enumerate() {
            put(&mut rows, at, &[2, 1, 0, 3].map(|column: usize| want[column][row] as f32));
        }
        let by_rows = parse_nifti(&rows, Coding::Raw).unwrap();
        assert!(!by_rows.is_elsewhere(&by_qform) && !by_qform.is_elsewhere(&by_rows));
        put(&mut rows, 280, &[-0.16]);
        assert!(parse_nifti(&rows, Coding::Raw).unwrap().is_elsewhere(&by_qform));
        // Half a voxel further up.
        put(&mut turned, 276, &[9.25]);
        assert!(parse_nifti(&turned, Coding::Raw).unwrap().is_elsewhere(&by_qform));
        // Without both, the file does not say where it is.
        turned[252] = 0;
        let nowhere = parse_nifti(&turned, Coding::Raw).unwrap();
        assert!(nowhere.grid.is_none() && !nowhere.is_elsewhere(&by_qform));
    }

    #[test]
    fn damaged_headers_are_errors_and_never_panic() {
        let base = one(&[5, 4, 3], 4, 1.0, 0.0);
        for cut in 0..348 {
            assert!(parse_nifti(&base[..cut], Coding::Raw).is_err());
        }
        for (at, value) in [(40, 9i16), (42, -1), (42, 0), (70, 128), (344, 0)] {
            let mut bytes = base.clone();
            bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            assert!(parse_nifti(&bytes, Coding::Raw).is_err(), "{at}");
        }
        let mut draws = infeed_core::random::SampleRng::new(7, 7, 8).op(0);
        for _ in 0..20_000 {
            let mut bytes = base.clone();
            for _ in 0..1 + draws.below(6) {
                let at = draws.below(bytes.len() as u64) as usize;
                bytes[at] = draws.bits() as u8;
            }
            let _ = parse_nifti(&bytes, Coding::Raw);
        }
    }
}
