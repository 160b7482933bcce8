//! What any bytes may do to the JPEG decoder: give pixels or an error that says where. Pixels are held against the plain
//! decoder, bit for bit. The tests and the fuzz target call this.

use super::plain_jpeg::{self, Refused};
use infeed::{
    ErrorKind, Result,
    codec::{DecodeIndex, ImageCodec, ImageHeader, Jpeg, PixelBuffer, Window},
    dataset::ImageInfo,
    internal::kernels::Level,
};

pub const LEVELS: [Level; 3] = [Level::Best, Level::Avx2, Level::Portable];

fn pixels(codec: &Jpeg, file: &[u8], header: &ImageHeader, out: &mut PixelBuffer) -> Result<Vec<u8>> {
    codec.decode(file, header, 0..header.height, out)?;
    Ok(out.data[..header.len_bytes() as usize].to_vec())
}

/// What a window holds, and what lies between its rows.
fn window(
    codec: &Jpeg,
    file: &[u8],
    header: &ImageHeader,
    window: &Window,
    out: &mut PixelBuffer,
) -> Result<Vec<Vec<u8>>> {
    codec.window(file, header, window, out)?;
    let Some(planes) = out.planes(header) else {
        let held = ImageInfo { height: out.rows.len() as u32, ..header.info };
        return Ok(vec![out.data[..held.len_bytes() as usize].to_vec()]);
    };
    let held = planes.planes.iter().map(|plane| {
        let lines = (0..plane.rows.len()).map(|n| &planes.data[plane.at + n * plane.pitch..][..plane.cols.len()]);
        lines.flatten().copied().collect()
    });
    Ok(held.collect())
}

/// What came of a file.
#[derive(Debug)]
pub struct Checked {
    pub info: ImageInfo,
    pub whole: Result<Vec<u8>>,
    /// What the plain decoder says.
    pub plain: std::result::Result<plain_jpeg::Plain, Refused>,
}

/// Decodes in every way there is: at each level, at each size, with an index, turned, filled. `None` when it would take
/// more than `most_bytes`.
///
/// # Panics
/// When two ways that must agree do not, and when an error does not say where it is.
pub fn check(file: &[u8], most_bytes: u64) -> Option<Result<Checked>> {
    let best = Jpeg::new();
    let header = match best.header(file) {
        Ok(header) => header,
        Err(error) => {
            says_where(&error);
            return Some(Err(error));
        }
    };
    if header.peak_bytes > most_bytes {
        return None;
    }
    let mut out = PixelBuffer::default();
    let whole = pixels(&best, file, &header, &mut out);
    whole.as_ref().err().into_iter().for_each(says_where);
    for level in LEVELS {
        let other = pixels(&Jpeg::new().level(level), file, &header, &mut out);
        assert_eq!(other.as_ref().ok(), whole.as_ref().ok(), "{level:?}");
    }
    let plain = plain_jpeg::decode(file);
    match (&plain, &whole) {
        (Ok(plain), Ok(whole)) => {
            assert_eq!((plain.height, plain.width), (header.height as usize, header.width as usize));
            assert_eq!(plain.channels, usize::from(header.channels));
            assert!(!plain.tame || plain.pixels == *whole, "other pixels than the plain decoder's");
        }
        (Ok(_), Err(error)) => panic!("the plain decoder takes what we refuse: {error:#}"),
        (Err(Refused::Damage), Ok(_)) => panic!("the plain decoder refuses what we take"),
        (Err(_), _) => {}
    }
    filled(file, &header, whole.as_ref().ok(), &mut out);
    windows(file, &header, whole.is_ok(), &mut out);
    Some(Ok(Checked { info: header.info, whole, plain }))
}

fn says_where(error: &infeed::Error) {
    let text = error.to_string();
    let named = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported) && text.contains("byte");
    assert!(named, "{text:?} does not say where");
}

fn filled(file: &[u8], header: &ImageHeader, whole: Option<&Vec<u8>>, out: &mut PixelBuffer) {
    let filled = pixels(&Jpeg::new().fill(true), file, header, out);
    if let Some(whole) = whole {
        assert!(filled.is_ok_and(|filled| filled == *whole), "filling changes a whole file");
    }
    let upright = Jpeg::new().orientation(true);
    let turned = upright.header(file).expect("as known as it is lying");
    let turned = pixels(&upright, file, &turned, out);
    assert_eq!(turned.is_ok(), whole.is_some(), "{turned:?}");
}

fn windows(file: &[u8], header: &ImageHeader, is_good: bool, out: &mut PixelBuffer) {
    let index = DecodeIndex::new(1 << 20);
    // From the bytes, so that a finding repeats.
    let mut draws =
        file.iter().fold(0x9e37_79b9_7f4a_7c15_u64, |n, b| (n ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    let mut range = |size: u32| {
        let mut draw = || {
            draws = draws.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            ((draws >> 33) % u64::from(size)) as u32
        };
        let (a, b) = (draw(), draw());
        a.min(b)..a.max(b) + 1
    };
    for scale in [1, 2, 4, 8] {
        let mut asked = Window::of_rows(header, range(header.height));
        (asked.cols, asked.scale) = (range(header.width), scale);
        let one = window(&Jpeg::new(), file, header, &asked, out);
        assert!(one.is_ok() || !is_good, "{asked:?}: {one:?}");
        for codec in [Jpeg::new().level(Level::Portable), Jpeg::new().index(index.clone())] {
            let other = window(&codec, file, header, &asked, out);
            if is_good {
                assert_eq!(one.as_ref().ok(), other.as_ref().ok(), "{asked:?} {codec:?}");
            }
        }
    }
}
