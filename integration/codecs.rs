//! Image files become the right pixels, or an error that says what is wrong with them.

use image::{DynamicImage, ExtendedColorType, ImageEncoder};
use infeed::{
    DType, Error, ErrorKind,
    codec::{Bmp, ImageCodec, Jpeg, PixelBuffer, Png, Webp, codec_contract},
    dataset::ImageInfo,
};
use jpeg_encoder::{ChromaSubsamplingMethod, ColorType, Encoder, SamplingFactor};

/// Files of libjxl, and what it makes of them: `integration/golden/jxl.py`.
#[test]
fn jpeg_xl_is_what_its_authors_make_of_it() {
    use infeed::codec::Jxl;

    let golden: serde_json::Value = serde_json::from_str(include_str!("golden/jxl.json")).unwrap();
    let bytes = |text: &serde_json::Value| -> Vec<u8> {
        let hex = text.as_str().unwrap().as_bytes();
        hex.as_chunks::<2>().0.iter().map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    };
    let (height, width) = (golden["height"].as_u64().unwrap() as u32, golden["width"].as_u64().unwrap() as u32);
    let mut files = Vec::new();
    for picture in golden["pictures"].as_array().unwrap() {
        let name = picture["name"].as_str().unwrap();
        let (file, want) = (bytes(&picture["file"]), bytes(&picture["pixels"]));
        let (info, pixels) = decode(&Jxl, &file, None).unwrap_or_else(|error| panic!("{name}: {error}"));
        let channels = picture["channels"].as_u64().unwrap() as u8;
        assert_eq!(
            (info.height, info.width, info.channels, info.dtype),
            (height, width, channels, DType::U8),
            "{name}"
        );
        let (_, most) = difference(&pixels, &want);
        // Lossy ones end in floats, which are rounded once.
        let lossy = ["lossy", "jpeg"].contains(&name);
        assert!(most <= u8::from(lossy), "{name}: {most}");
        files.push((name.to_owned(), file));
    }
    assert_eq!(files.len(), 5);
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, file)| (&**name, &**file)).collect();
    codec_contract(&Jxl, &files);
}

/// Smooth colours with a few edges: what lossy codecs keep within a few levels.
fn colours(height: u32, width: u32, channels: usize) -> Vec<u8> {
    let pixel = |y: u32, x: u32| {
        let wave = |speed: f64, phase: f64| {
            let at = f64::from(y) * speed + f64::from(x) * speed * 0.7 + phase;
            (127.5 + 100.0 * at.sin()) as u8
        };
        [wave(0.05, 0.0), wave(0.031, 2.0), wave(0.023, 4.0), wave(0.017, 1.0)]
    };
    let rows = (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(y, x).into_iter().take(channels)));
    rows.collect()
}

/// Colours with noise, so that no block is empty and every row takes bits.
fn noisy(height: u32, width: u32, channels: usize) -> Vec<u8> {
    let mut draws = infeed::dataset::SampleRng::new(1, 2, 3).op(0);
    let mut pixels = colours(height, width, channels);
    pixels.iter_mut().for_each(|b| *b = b.saturating_add(draws.below(24) as u8));
    pixels
}

#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) colour: ColorType,
    pub(crate) sampling: SamplingFactor,
    pub(crate) progressive: bool,
    pub(crate) restarts: u16,
}

impl Made {
    pub(crate) const fn new(height: u32, width: u32, sampling: SamplingFactor) -> Self {
        Self { height, width, colour: ColorType::Rgb, sampling, progressive: false, restarts: 0 }
    }
    fn channels(self) -> usize {
        match self.colour {
            ColorType::Luma => 1,
            ColorType::Rgb => 3,
            _ => 4,
        }
    }
    fn encode(self, pixels: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 92);
        encoder.set_sampling_factor(self.sampling);
        encoder.set_chroma_subsampling_method(ChromaSubsamplingMethod::Average);
        encoder.set_progressive(self.progressive);
        if self.restarts > 0 {
            encoder.set_restart_interval(self.restarts);
        }
        encoder.encode(pixels, self.width as u16, self.height as u16, self.colour).unwrap();
        file
    }
    pub(crate) fn noisy(self) -> Vec<u8> {
        self.encode(&noisy(self.height, self.width, self.channels()))
    }
}

const SAMPLINGS: [(&str, SamplingFactor); 4] = [
    ("4:4:4", SamplingFactor::F_1_1),
    ("4:2:2", SamplingFactor::F_2_1),
    ("4:4:0", SamplingFactor::F_1_2),
    ("4:2:0", SamplingFactor::F_2_2),
];

/// The encoder at hand makes these in several scans, a component each.
const RARE_SAMPLINGS: [(&str, SamplingFactor); 4] = [
    ("4:1:1", SamplingFactor::F_4_1),
    ("4:1:0", SamplingFactor::F_4_2),
    ("4:4:1", SamplingFactor::F_1_4),
    ("4:2:0 tall", SamplingFactor::F_2_4),
];

fn decode(codec: &dyn ImageCodec, file: &[u8], rows: impl Into<Option<u32>>) -> Result<(ImageInfo, Vec<u8>), Error> {
    let header = codec.header(file)?;
    let info = header.info;
    let end = rows.into().unwrap_or(info.height);
    let mut out = PixelBuffer::default();
    codec.decode(file, &header, 0..end, &mut out)?;
    assert!(out.rows.start == 0 && out.rows.end >= end);
    let len = ImageInfo { height: end, ..info }.len_bytes() as usize;
    Ok((info, out.data[..len].to_vec()))
}

fn jpeg(file: &[u8]) -> Vec<u8> {
    decode(&Jpeg::new(), file, None).unwrap().1
}

/// Mean and largest difference.
fn difference(a: &[u8], b: &[u8]) -> (f64, u8) {
    assert_eq!(a.len(), b.len());
    let each = || a.iter().zip(b).map(|(a, b)| a.abs_diff(*b));
    (each().map(f64::from).sum::<f64>() / a.len() as f64, each().max().unwrap_or(0))
}

#[test]
fn jpegs_keep_the_contract() {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for (name, sampling) in SAMPLINGS {
        files.push((name.into(), Made::new(75, 101, sampling).noisy()));
        files.push((format!("{name} restarts"), Made { restarts: 3, ..Made::new(67, 83, sampling) }.noisy()));
        files.push((format!("{name} progressive"), Made { progressive: true, ..Made::new(45, 61, sampling) }.noisy()));
    }
    for (name, colour) in [("gray", ColorType::Luma), ("cmyk", ColorType::Cmyk), ("ycck", ColorType::CmykAsYcck)] {
        for progressive in [false, true] {
            let kind = if progressive { " progressive" } else { "" };
            let made = |sampling| Made { colour, progressive, ..Made::new(77, 53, sampling) };
            files.push((format!("{name}{kind}"), made(SamplingFactor::F_1_1).noisy()));
            files.push((format!("{name} 2x2{kind}"), made(SamplingFactor::F_2_2).noisy()));
        }
    }
    files.push(("1x1".into(), Made::new(1, 1, SamplingFactor::F_2_2).noisy()));
    files.push(("flat".into(), Made::new(64, 64, SamplingFactor::F_1_1).encode(&[90; 64 * 64 * 3])));
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, file)| (&**name, &**file)).collect();
    codec_contract(&Jpeg::new(), &files);
}

#[test]
fn stills_keep_the_contract() {
    let pixels = |channels| colours(37, 29, channels);
    let wide = |channels| colours(37, 29, channels).iter().flat_map(|b| [*b, b.wrapping_mul(7)]).collect::<Vec<u8>>();
    let png = |data: &[u8], colour| {
        let mut file = Vec::new();
        image::codecs::png::PngEncoder::new(&mut file).write_image(data, 29, 37, colour).unwrap();
        file
    };
    let pngs = [
        ("gray", png(&pixels(1), ExtendedColorType::L8)),
        ("gray and alpha", png(&pixels(2), ExtendedColorType::La8)),
        ("rgb", png(&pixels(3), ExtendedColorType::Rgb8)),
        ("rgba", png(&pixels(4), ExtendedColorType::Rgba8)),
        ("gray 16", png(&wide(1), ExtendedColorType::L16)),
        ("gray and alpha 16", png(&wide(2), ExtendedColorType::La16)),
        ("rgb 16", png(&wide(3), ExtendedColorType::Rgb16)),
        ("palette", PALETTE.file()),
        ("interlaced", INTERLACED.file()),
    ];
    codec_contract(&Png, &pngs.each_ref().map(|(name, file)| (*name, &**file)));

    let webp = |data: &[u8], colour| {
        let mut file = Vec::new();
        image::codecs::webp::WebPEncoder::new_lossless(&mut file).write_image(data, 29, 37, colour).unwrap();
        file
    };
    let webps =
        [("rgb", webp(&pixels(3), ExtendedColorType::Rgb8)), ("rgba", webp(&pixels(4), ExtendedColorType::Rgba8))];
    codec_contract(&Webp, &webps.each_ref().map(|(name, file)| (*name, &**file)));

    let bmp = |data: &[u8], colour| {
        let mut file = Vec::new();
        image::codecs::bmp::BmpEncoder::new(&mut file).write_image(data, 29, 37, colour).unwrap();
        file
    };
    let bmps = [
        ("gray", bmp(&pixels(1), ExtendedColorType::L8)),
        ("rgb", bmp(&pixels(3), ExtendedColorType::Rgb8)),
        ("rgba", bmp(&pixels(4), ExtendedColorType::Rgba8)),
    ];
    codec_contract(&Bmp, &bmps.each_ref().map(|(name, file)| (*name, &**file)));
}

/// A PNG written by hand: what the encoder at hand does not make.
struct HandPng {
    height: u32,
    width: u32,
    depth: u8,
    colour: u8,
    interlaced: bool,
    palette: &'static [u8],
    /// Rows with their filter bytes.
    rows: &'static [u8],
}

/// 4 x 2 pixels of 2 bits: palette entries 0, 1, 2, 3 and 3, 2, 1, 0.
const PALETTE: HandPng = HandPng {
    height: 2,
    width: 4,
    depth: 2,
    colour: 3,
    interlaced: false,
    palette: &[10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120],
    rows: &[0, 0b00_01_10_11, 0, 0b11_10_01_00],
};

/// 3 x 3 gray pixels 0 to 8 in the order of Adam7's passes.
const INTERLACED: HandPng = HandPng {
    height: 3,
    width: 3,
    depth: 8,
    colour: 0,
    interlaced: true,
    palette: &[],
    rows: &[0, 0, 0, 2, 0, 6, 8, 0, 1, 0, 7, 0, 3, 4, 5],
};

impl HandPng {
    fn file(&self) -> Vec<u8> {
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut chunk = |name: &[u8; 4], data: &[u8]| {
            file.extend((data.len() as u32).to_be_bytes());
            let body = [name.as_slice(), data].concat();
            let crc = !body.iter().fold(!0u32, |crc, byte| {
                (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
            });
            file.extend(body);
            file.extend(crc.to_be_bytes());
        };
        let mut header = [self.width.to_be_bytes(), self.height.to_be_bytes()].concat();
        header.extend([self.depth, self.colour, 0, 0, u8::from(self.interlaced)]);
        chunk(b"IHDR", &header);
        if !self.palette.is_empty() {
            chunk(b"PLTE", self.palette);
        }
        // One stored block of deflate.
        let length = self.rows.len() as u16;
        let (low, high) = self
            .rows
            .iter()
            .fold((1u32, 0u32), |(a, b), byte| ((a + u32::from(*byte)) % 65521, (b + a + u32::from(*byte)) % 65521));
        let mut data = vec![0x78, 1, 1];
        data.extend(length.to_le_bytes());
        data.extend((!length).to_le_bytes());
        data.extend(self.rows);
        data.extend((high << 16 | low).to_be_bytes());
        chunk(b"IDAT", &data);
        chunk(b"IEND", &[]);
        file
    }
}

#[test]
fn pngs_of_all_kinds_give_their_pixels() {
    let (info, pixels) = decode(&Png, &PALETTE.file(), None).unwrap();
    assert_eq!(info, ImageInfo::interleaved_u8(2, 4, 3));
    let colours: Vec<[u8; 3]> = PALETTE.palette.as_chunks().0.to_vec();
    let expected = [0, 1, 2, 3, 3, 2, 1, 0].map(|n: usize| colours[n]);
    assert_eq!(pixels, expected.as_flattened());

    let (info, pixels) = decode(&Png, &INTERLACED.file(), None).unwrap();
    assert_eq!((info.channels, pixels), (1, (0..9).collect()));

    let mut file = Vec::new();
    let gray_alpha = image::GrayAlphaImage::from_fn(5, 4, |x, y| image::LumaA([(10 * y + x) as u8, 77]));
    DynamicImage::from(gray_alpha.clone())
        .write_to(&mut std::io::Cursor::new(&mut file), image::ImageFormat::Png)
        .unwrap();
    let (info, pixels) = decode(&Png, &file, None).unwrap();
    assert_eq!((info, pixels), (ImageInfo::interleaved_u8(4, 5, 2), gray_alpha.into_raw()));

    let deep: Vec<u16> = (0..6 * 5 * 3).map(|n| n * 700).collect();
    let image = image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(6, 5, deep.clone()).unwrap();
    let mut file = Vec::new();
    DynamicImage::from(image).write_to(&mut std::io::Cursor::new(&mut file), image::ImageFormat::Png).unwrap();
    let (info, pixels) = decode(&Png, &file, None).unwrap();
    assert_eq!((info.channels, info.dtype), (3, DType::U16));
    assert_eq!(pixels, deep.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<u8>>());
}

#[test]
fn lossless_files_give_their_pixels() {
    let pixels = noisy(33, 47, 4);
    let image = DynamicImage::from(image::RgbaImage::from_raw(47, 33, pixels).unwrap());
    let cases: [(&dyn ImageCodec, _); 3] =
        [(&Png, image::ImageFormat::Png), (&Webp, image::ImageFormat::WebP), (&Bmp, image::ImageFormat::Bmp)];
    for (codec, format) in cases {
        for image in [image.clone(), image.to_rgb8().into()] {
            let mut file = Vec::new();
            image.write_to(&mut std::io::Cursor::new(&mut file), format).unwrap();
            let (info, pixels) = decode(codec, &file, None).unwrap();
            assert_eq!(info, ImageInfo::interleaved_u8(33, 47, image.color().channel_count()), "{format:?}");
            assert!(pixels == image.as_bytes(), "{format:?}");
        }
    }
}

#[test]
fn jpegs_of_all_samplings_look_like_their_pixels() {
    for ((name, sampling), progressive) in
        SAMPLINGS.into_iter().chain(RARE_SAMPLINGS).flat_map(|case| [(case, false), (case, true)])
    {
        for (height, width) in [(64, 96), (61, 89), (19, 17), (9, 33), (40, 7), (2, 1)] {
            let pixels = colours(height, width, 3);
            let file = Made { progressive, ..Made::new(height, width, sampling) }.encode(&pixels);
            let (mean, most) = difference(&jpeg(&file), &pixels);
            // Quality 92 alone costs up to 0.8 and 5; rare samplings keep one chroma value for 4 or 8 pixels.
            let bound = if SAMPLINGS.iter().any(|s| s.0 == name) { (1.5, 8) } else { (3.0, 16) };
            assert!(mean < bound.0 && most < bound.1, "{name} {height}x{width} {progressive}: {mean:.2} {most}");
        }
    }
}

#[test]
fn gray_jpegs_give_one_channel_whatever_their_sampling_says() {
    let pixels = colours(50, 70, 1);
    for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_2] {
        let mut file = Made { colour: ColorType::Luma, ..Made::new(50, 70, sampling) }.encode(&pixels);
        let frame = marker(&file, 0xc0);
        file[frame + 11] = 0x22;
        let (info, found) = decode(&Jpeg::new(), &file, None).unwrap();
        assert_eq!(info, ImageInfo::interleaved_u8(50, 70, 1));
        assert!(difference(&found, &pixels).0 < 1.5);
    }
}

#[test]
fn ink_becomes_light() {
    let ink = colours(48, 40, 4);
    let light: Vec<u8> = ink
        .chunks(4)
        .flat_map(|p| [p[0], p[1], p[2]].map(|c| ((255 - u32::from(c)) * (255 - u32::from(p[3])) / 255) as u8))
        .collect();
    for colour in [ColorType::Cmyk, ColorType::CmykAsYcck] {
        let file = Made { colour, ..Made::new(48, 40, SamplingFactor::F_1_1) }.encode(&ink);
        let (info, pixels) = decode(&Jpeg::new(), &file, None).unwrap();
        assert_eq!(info, ImageInfo::interleaved_u8(48, 40, 3));
        let (mean, most) = difference(&pixels, &light);
        assert!(mean < 2.0 && most < 24, "{colour:?}: {mean:.2} {most}");
    }
}

/// Offset of the first segment with this marker.
fn marker(file: &[u8], code: u8) -> usize {
    let mut at = 2;
    while file[at + 1] != code {
        at += 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    }
    at
}

fn with_segment(file: &[u8], code: u8, body: &[u8]) -> Vec<u8> {
    let mut made = vec![0xff, 0xd8, 0xff, code];
    made.extend((body.len() as u16 + 2).to_be_bytes());
    made.extend(body);
    made.extend(&file[2..]);
    made
}

fn without_jfif(file: &[u8]) -> Vec<u8> {
    let at = marker(file, 0xe0);
    let end = at + 2 + usize::from(u16::from_be_bytes([file[at + 2], file[at + 3]]));
    [&file[..at], &file[end..]].concat()
}

#[test]
fn markers_say_what_three_components_mean() {
    // Stored as they are: the file's three components are these values.
    let pixels = colours(40, 56, 3);
    let made = Made { colour: ColorType::Ycbcr, ..Made::new(40, 56, SamplingFactor::F_1_1) };
    let file = made.encode(&pixels);
    let is_rgb = |file: &[u8]| difference(&jpeg(file), &pixels).0 < 2.0;
    let adobe = |transform| [b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat();
    assert!(!is_rgb(&file), "JFIF means YCbCr");
    assert!(!is_rgb(&with_segment(&file, 0xee, &adobe(0))), "JFIF wins over Adobe");
    let bare = without_jfif(&file);
    assert!(!is_rgb(&bare), "YCbCr without any marker");
    assert!(is_rgb(&with_segment(&bare, 0xee, &adobe(0))), "Adobe 0 means RGB");
    assert!(!is_rgb(&with_segment(&bare, 0xee, &adobe(1))), "Adobe 1 means YCbCr");
    let mut named = bare.clone();
    let (frame, scan) = (marker(&bare, 0xc0), marker(&bare, 0xda));
    for (n, id) in b"RGB".iter().enumerate() {
        named[frame + 10 + 3 * n] = *id;
        named[scan + 5 + 2 * n] = *id;
    }
    assert!(is_rgb(&named), "components called R, G, B");
}

#[test]
fn a_cut_decode_equals_the_rows_of_the_whole_one() {
    for (name, sampling) in SAMPLINGS {
        for height in [1, 7, 8, 9, 16, 17, 31, 33, 48, 65, 80] {
            let file = Made::new(height, 37, sampling).noisy();
            let whole = jpeg(&file);
            for end in 1..=height {
                let (info, rows) = decode(&Jpeg::new(), &file, end).unwrap();
                assert_eq!(info.height, height);
                assert!(rows == whole[..rows.len()], "{name}: {end} of {height} rows");
            }
        }
    }
}

#[test]
fn a_decode_ends_with_the_rows_that_are_needed() {
    let file = Made::new(320, 64, SamplingFactor::F_2_2).noisy();
    let mut damaged = file.clone();
    let half = file.len() / 2;
    damaged[half..half + 64].copy_from_slice(&[0xff, 0].repeat(32));
    let mut out = PixelBuffer::default();
    let info = Jpeg::new().header(&file).unwrap();
    Jpeg::new().decode(&damaged, &info, 33..64, &mut out).unwrap();
    assert_eq!(out.rows, 33..64);
    assert!(out.data[..31 * 64 * 3] == jpeg(&file)[33 * 64 * 3..64 * 64 * 3]);
    assert!(decode(&Jpeg::new(), &damaged, None).is_err());
}

#[test]
fn what_stands_around_the_image_does_not_matter() {
    let file = Made::new(45, 67, SamplingFactor::F_2_2).noisy();
    let whole = jpeg(&file);
    let end = file.len();
    let cases = [
        ("damaged EXIF", with_segment(&file, 0xe1, b"Exif\0\0\xff\xd9\xff\xda")),
        ("a thumbnail", with_segment(&file, 0xe1, &[b"Exif\0\0".as_slice(), &file[..600]].concat())),
        ("a damaged Adobe segment", with_segment(&file, 0xee, b"Adobe")),
        ("a comment", with_segment(&file, 0xfe, b"hello")),
        ("bytes between segments", [&file[..2], &[0, 1, 2, 3, 4, 5, 6, 7], &file[2..]].concat()),
        ("fill bytes", [&file[..2], &[0xff; 9], &file[2..]].concat()),
        ("a second image", [&file[..], &file[..]].concat()),
        ("rubbish after the end", [&file[..], &[0xff, 0x10, 0xff, 0xda, 3]].concat()),
        ("no end marker", file[..end - 2].to_vec()),
        ("half an end marker", file[..end - 1].to_vec()),
    ];
    for (name, file) in cases {
        assert!(jpeg(&file) == whole, "{name}");
        assert!(decode(&Jpeg::new(), &file, 20).unwrap().1 == whole[..20 * 67 * 3], "{name}, cut");
    }
}

#[test]
fn bad_jpegs_are_told_apart() {
    let file = Made::new(64, 96, SamplingFactor::F_1_1).noisy();
    let at = |code, offset, value: &[u8]| {
        let mut file = file.clone();
        let start = marker(&file, code) + offset;
        file[start..start + value.len()].copy_from_slice(value);
        file
    };
    let half = file.len() / 2;
    let mut damaged = file.clone();
    damaged[half..half + 64].copy_from_slice(&[0xff, 0].repeat(32));
    let progressive = Made { progressive: true, ..Made::new(64, 96, SamplingFactor::F_1_1) }.noisy();
    let scans = Made::new(64, 96, SamplingFactor::F_4_1).noisy();
    let second = 2 + scans.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
    let cases: [(&str, &[u8], ErrorKind, &str); 20] = [
        (
            "a scan missing",
            &[&scans[..second - 2], &[0xff, 0xd9]].concat(),
            ErrorKind::Corrupt,
            "JPEG lacks a scan (FF D9 at byte ",
        ),
        ("cut between scans", &scans[..second - 2], ErrorKind::Corrupt, "before its last scan"),
        ("cut in the last scan", &scans[..scans.len() - 60], ErrorKind::Corrupt, "JPEG ends after "),
        ("a Huffman table less", &at(0xc4, 1, &[0xfe]), ErrorKind::Corrupt, "JPEG lacks Huffman table "),
        ("a Huffman table too full", &at(0xc4, 5, &[9]), ErrorKind::Corrupt, "JPEG has damaged tables (FF C4 at byte "),
        (
            "a short quantisation table",
            &at(0xdb, 4, &[0x10]),
            ErrorKind::Corrupt,
            "JPEG has damaged tables (FF DB at byte ",
        ),
        ("truncated", &file[..half], ErrorKind::Corrupt, "JPEG ends after 24 of 64 rows ("),
        (
            "truncated, end marker put back",
            &[&file[..half], &[0xff, 0xd9]].concat(),
            ErrorKind::Corrupt,
            "JPEG is damaged after 24 of 64 rows",
        ),
        ("truncated header", &file[..100], ErrorKind::Corrupt, "JPEG ends after 100 bytes, inside its header"),
        ("damaged", &damaged, ErrorKind::Corrupt, "JPEG is damaged after 24 of 64 rows"),
        (
            "truncated progressive",
            &progressive[..progressive.len() - 20],
            ErrorKind::Corrupt,
            "before its last scan is complete",
        ),
        (
            "truncated progressive, end marker put back",
            &[&progressive[..progressive.len() - 20], &[0xff, 0xd9]].concat(),
            ErrorKind::Corrupt,
            "JPEG is damaged in scan ",
        ),
        ("no image", &[0xff, 0xd8, 0xff, 0xd9], ErrorKind::Corrupt, "JPEG has no image"),
        ("empty", &[], ErrorKind::Corrupt, "not a JPEG"),
        ("12 bits", &at(0xc0, 4, &[12]), ErrorKind::Unsupported, "JPEG with 12 bits per value"),
        ("arithmetic", &at(0xc0, 1, &[0xc9]), ErrorKind::Unsupported, "JPEG with arithmetic coding"),
        ("lossless", &at(0xc0, 1, &[0xc3]), ErrorKind::Unsupported, "lossless JPEG"),
        ("height 0", &at(0xc0, 5, &[0, 0]), ErrorKind::Unsupported, "JPEG whose height follows the image"),
        ("width 0", &at(0xc0, 7, &[0, 0]), ErrorKind::Corrupt, "JPEG frame header contradicts itself"),
        ("two components", &at(0xc0, 9, &[2]), ErrorKind::Corrupt, "JPEG frame header contradicts itself"),
    ];
    for (name, file, kind, message) in cases {
        // Damage below the rows that are needed goes unseen: it costs a whole decode to find.
        let windows = if message.contains("is damaged") { &[None][..] } else { &[None, Some(1)] };
        for rows in windows.iter().copied() {
            let error = decode(&Jpeg::new(), file, rows).map(drop).expect_err(name);
            assert!(error.to_string().contains(message), "{name}: {error:#}");
            assert_eq!(error.kind(), kind, "{name}");
        }
    }
}

#[test]
fn a_truncated_file_fails_whatever_rows_are_asked_for() {
    let file = Made::new(128, 64, SamplingFactor::F_2_2).noisy();
    for cut in [file.len() * 9 / 10, file.len() - 40] {
        for end in [1, 16, 128] {
            let error = decode(&Jpeg::new(), &file[..cut], end).map(drop).unwrap_err().to_string();
            assert!(error.contains("JPEG ends after 1") && error.contains(" of 128 rows"), "{error}");
        }
    }
}

#[test]
fn thousands_of_damaged_jpegs_give_errors_or_pixels() {
    let made = |sampling| Made::new(48, 56, sampling);
    let files = [
        made(SamplingFactor::F_1_1).noisy(),
        made(SamplingFactor::F_2_2).noisy(),
        Made { restarts: 2, ..made(SamplingFactor::F_2_1) }.noisy(),
        Made { progressive: true, ..made(SamplingFactor::F_2_2) }.noisy(),
        Made { colour: ColorType::CmykAsYcck, ..made(SamplingFactor::F_2_2) }.noisy(),
    ];
    let mut out = PixelBuffer::default();
    let rounds = if std::env::var_os("INFEED_SLOW_TESTS").is_some() { 20_000 } else { 800 };
    for (kind, file) in files.iter().enumerate() {
        for round in 0..rounds {
            let mut draws = infeed::dataset::SampleRng::new(9, kind as u64, round).op(0);
            let mut file = file.clone();
            for _ in 0..=draws.below(6) {
                let reach = if draws.chance(0.6) { 700 } else { file.len() as u64 };
                file[draws.below(reach) as usize] = draws.bits() as u8;
            }
            if draws.chance(0.2) {
                file.truncate(draws.below(file.len() as u64) as usize);
            }
            let Ok(info) = Jpeg::new().header(&file) else { continue };
            if info.peak_bytes < 8 << 20 {
                let _ = Jpeg::new().decode(&file, &info, 0..1 + draws.below(info.height.into()) as u32, &mut out);
            }
        }
    }
}
