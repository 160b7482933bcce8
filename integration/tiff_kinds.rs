//! What the values of a TIFF mean: colours are made RGB or refused by name, stacks are told from channels.

use std::{collections::BTreeMap, io::Write};

use infeed::{
    DType, ErrorKind,
    codec::{ImageCodec, Jpeg, PixelBuffer, Tiff, codec_contract},
    dataset::ImageInfo,
};
use jpeg_encoder::SamplingFactor;

use crate::codecs::Made;

/// A file of one strip or some tiles, by its tags; little endian.
#[derive(Clone, Debug)]
struct Raw {
    /// Type and values of each tag: 2 text, 3 and 4 whole numbers, 7 bytes.
    tags: BTreeMap<u16, (u16, Vec<u32>)>,
    chunks: Vec<Vec<u8>>,
    tiled: bool,
    pages: usize,
}

const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const PHOTOMETRIC: u16 = 262;
const DESCRIPTION: u16 = 270;
const SAMPLES: u16 = 277;
const PLANAR: u16 = 284;
const PREDICTOR: u16 = 317;
const MAP: u16 = 320;
const EXTRA: u16 = 338;
const FORMAT: u16 = 339;

impl Raw {
    /// Plain pixels of `samples` values of `bits` bits.
    fn new([height, width]: [u32; 2], samples: u32, bits: u32, photometric: u32, pixels: impl Into<Vec<u8>>) -> Self {
        let tags = BTreeMap::from([
            (WIDTH, (4, vec![width])),
            (HEIGHT, (4, vec![height])),
            (BITS, (3, vec![bits; samples as usize])),
            (COMPRESSION, (3, vec![1])),
            (PHOTOMETRIC, (3, vec![photometric])),
            (SAMPLES, (3, vec![samples])),
        ]);
        Self { tags, chunks: vec![pixels.into()], tiled: false, pages: 1 }
    }

    fn with(mut self, tag: u16, values: impl Into<Vec<u32>>) -> Self {
        self.tags.insert(tag, (3, values.into()));
        self
    }

    fn bytes(mut self, tag: u16, kind: u16, bytes: &[u8]) -> Self {
        self.tags.insert(tag, (kind, bytes.iter().map(|b| u32::from(*b)).collect()));
        self
    }

    fn file(&self) -> Vec<u8> {
        let mut out = b"II*\0\0\0\0\0".to_vec();
        let mut next_at = 4;
        for _ in 0..self.pages {
            let mut tags = self.tags.clone();
            let starts: Vec<u32> = self
                .chunks
                .iter()
                .map(|chunk| {
                    out.extend(chunk);
                    (out.len() - chunk.len()) as u32
                })
                .collect();
            let lengths = self.chunks.iter().map(|chunk| chunk.len() as u32).collect();
            let [offsets, counts] = if self.tiled { [324, 325] } else { [273, 279] };
            tags.insert(offsets, (4, starts));
            tags.insert(counts, (4, lengths));
            let mut directory = (tags.len() as u16).to_le_bytes().to_vec();
            for (tag, (kind, values)) in tags {
                let size = [0, 1, 1, 2, 4, 0, 1, 1][usize::from(kind)];
                let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect();
                directory.extend([tag, kind].map(u16::to_le_bytes).as_flattened());
                directory.extend((values.len() as u32).to_le_bytes());
                if bytes.len() > 4 {
                    directory.extend((out.len() as u32).to_le_bytes());
                    out.extend(bytes);
                } else {
                    bytes.resize(4, 0);
                    directory.extend(bytes);
                }
            }
            let at = (out.len() as u32).to_le_bytes();
            out[next_at..next_at + 4].copy_from_slice(&at);
            out.extend(directory);
            next_at = out.len();
            out.extend([0; 4]);
        }
        out
    }

    fn decode(&self) -> infeed::Result<(ImageInfo, Vec<u8>)> {
        let file = self.file();
        let header = Tiff.header(&file)?;
        let mut out = PixelBuffer::default();
        Tiff.decode(&file, &header, 0..header.height, &mut out)?;
        Ok((header.info, out.data[..header.len_bytes() as usize].to_vec()))
    }

    /// u8 pixels.
    fn is(&self, channels: u8, pixels: &[u8]) {
        let (info, found) = self.decode().unwrap_or_else(|e| panic!("{self:?}: {e:#}"));
        let side = |tag| self.tags[&tag].1[0];
        assert_eq!(
            info,
            ImageInfo { planar: info.planar, ..ImageInfo::interleaved_u8(side(HEIGHT), side(WIDTH), channels) }
        );
        assert_eq!(found, pixels);
    }

    fn is_floats(&self, values: &[f32]) {
        let (info, found) = self.decode().unwrap_or_else(|e| panic!("{self:?}: {e:#}"));
        assert_eq!(info.dtype, DType::F32);
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&found), values);
    }

    fn refused(&self, kind: ErrorKind, says: &str) {
        let error = self.decode().expect_err(says);
        assert!(error.to_string().contains(says) && error.kind() == kind, "{error}, not {says}");
    }
}

/// 12 bytes are one row of four pixels of three, three of four, and so on.
fn some(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 53 + 7) as u8).collect()
}

#[test]
fn colours_that_are_not_rgb_are_refused_by_name() {
    use ErrorKind::{Corrupt, Unsupported};
    let pixels = |samples, photometric| Raw::new([2, 3], samples, 8, photometric, some(24));
    pixels(3, 2).is(3, &some(18));
    pixels(4, 2).with(EXTRA, [2]).is(4, &some(24));
    // Not a photograph's: any number of channels.
    pixels(4, 1).is(4, &some(24));
    for (samples, photometric, kind, says) in [
        (4, 5, Unsupported, "inks (photometric interpretation 5: CMYK)"),
        (3, 8, Unsupported, "Lab colours (photometric interpretation 8)"),
        (3, 9, Unsupported, "Lab colours (photometric interpretation 9)"),
        (3, 10, Unsupported, "Lab colours (photometric interpretation 10)"),
        (3, 6, Unsupported, "YCbCr colours"),
        (1, 4, Unsupported, "a transparency mask"),
        (1, 32803, Unsupported, "colour filter array"),
        (3, 34892, Unsupported, "the raw values of a sensor"),
        (3, 32845, Unsupported, "logarithmic colours"),
        (3, 77, Unsupported, "photometric interpretation 77"),
        (1, 2, Corrupt, "RGB (photometric interpretation 2) with 1 samples"),
        (2, 3, Unsupported, "a palette for 2 samples"),
    ] {
        pixels(samples, photometric).refused(kind, says);
        assert!(Tiff.in_place(&pixels(samples, photometric).file()).is_err(), "{photometric} is read in place");
    }
    Raw::new([2, 3], 1, 16, 3, some(12)).refused(Unsupported, "a palette for 1 samples of u16");
}

#[test]
fn few_bits_are_gray_from_black_to_white() {
    // Ten columns: rows end inside a byte.
    let rows = [0b1010_0110, 0b0111_1111, 0b1100_0000, 0b1000_0000];
    let bit = |v: &[u8]| v.iter().map(|v| v * 255).collect::<Vec<_>>();
    let expected = bit(&[1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 0]);
    Raw::new([2, 10], 1, 1, 1, rows).is(1, &expected);
    let white: Vec<u8> = expected.iter().map(|v| 255 - v).collect();
    Raw::new([2, 10], 1, 1, 0, rows).is(1, &white);
    // The tag's own default.
    let mut bare = Raw::new([2, 10], 1, 1, 1, rows);
    bare.tags.remove(&BITS);
    bare.is(1, &expected);
    Raw::new([1, 5], 1, 2, 1, [0b0001_1011, 0b1000_0000]).is(1, &[0, 85, 170, 255, 170]);
    Raw::new([2, 3], 1, 4, 1, [0x0f, 0x70, 0x12, 0x30]).is(1, &[0, 255, 119, 17, 34, 51]);
    // Three values a pixel, packed: 4 + 4 + 4 bits.
    Raw::new([1, 3], 3, 4, 2, [0x01, 0x23, 0x45, 0x67, 0x80]).is(3, &[0, 17, 34, 51, 68, 85, 102, 119, 136]);
    // Tiles of 16 pixels, the second one of which is wider than the image.
    let mut tiled = Raw::new([1, 20], 1, 1, 1, []).with(322, [16]).with(323, [1]);
    (tiled.tiled, tiled.chunks) = (true, vec![vec![0xf0, 0x0f], vec![0xa5, 0xff]]);
    tiled.is(1, &bit(&[1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0]));
    Raw::new([2, 10], 1, 1, 1, &rows[..3]).refused(ErrorKind::Corrupt, "3 bytes in chunk 0, but 4 are needed");
    Raw::new([2, 10], 1, 1, 1, rows)
        .with(COMPRESSION, [5])
        .with(PREDICTOR, [2])
        .refused(ErrorKind::Unsupported, "predictor 2 of values of 1 bit");
}

#[test]
fn palettes_become_rgb() {
    let map = |n: u32, shift: u32| -> Vec<u32> {
        (0..3).flat_map(|c| (0..n).map(move |i| ((i * 40 + c * 60) % 256) << shift)).collect()
    };
    let colour = |i: u8| [0, 60, 120].map(|c: u32| ((u32::from(i) * 40 + c) % 256) as u8);
    let rgb = |indices: &[u8]| indices.iter().flat_map(|i| colour(*i)).collect::<Vec<u8>>();
    for shift in [0, 8] {
        // Of 8 bits, as old writers have it, and of 16.
        Raw::new([2, 3], 1, 8, 3, [0, 1, 2, 3, 200, 255])
            .with(MAP, map(256, shift))
            .is(3, &rgb(&[0, 1, 2, 3, 200, 255]));
        Raw::new([1, 5], 1, 4, 3, [0x0f, 0x12, 0x30]).with(MAP, map(16, shift)).is(3, &rgb(&[0, 15, 1, 2, 3]));
        Raw::new([1, 9], 1, 1, 3, [0x81, 0x80]).with(MAP, map(2, shift)).is(3, &rgb(&[1, 0, 0, 0, 0, 0, 0, 1, 1]));
    }
    let without = Raw::new([1, 2], 1, 8, 3, [0, 1]);
    without.refused(ErrorKind::Corrupt, "without its palette");
    without.clone().with(MAP, map(16, 8)).refused(ErrorKind::Corrupt, "a palette of 48 values, but 768 are needed");
}

#[test]
fn signed_values_and_halves_are_the_same_numbers() {
    let signed: Vec<u8> = [-32768i16, -1, 0, 7, 1234, 32767].iter().flat_map(|v| v.to_le_bytes()).collect();
    let expected = [-32768.0, -1.0, 0.0, 7.0, 1234.0, 32767.0];
    Raw::new([2, 3], 1, 16, 1, signed.clone()).with(FORMAT, [2]).is_floats(&expected);
    // A white 0 is about looks, and these are numbers.
    Raw::new([2, 3], 1, 16, 0, signed).with(FORMAT, [2]).is_floats(&expected);
    // Labels of segmentations, and what is computed in double precision.
    let whole: Vec<u8> = [-3i32, 70_000, 1 << 24].iter().flat_map(|v| v.to_le_bytes()).collect();
    Raw::new([1, 3], 1, 32, 1, whole.clone()).with(FORMAT, [2]).is_floats(&[-3.0, 70_000.0, 16_777_216.0]);
    let differences: Vec<u8> = [-3i32, 70_003, 16_707_216].iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&differences).unwrap();
    let packed = packed.finish().unwrap();
    let predicted = Raw::new([1, 3], 1, 32, 1, packed).with(COMPRESSION, [8]).with(PREDICTOR, [2]).with(FORMAT, [2]);
    predicted.is_floats(&[-3.0, 70_000.0, 16_777_216.0]);
    Raw::new([1, 2], 1, 32, 1, [1, 0, 0, 0, 0, 0, 0, 0x80]).is_floats(&[1.0, f32::powi(2.0, 31)]);
    let long: Vec<u8> = [-9i64, 1 << 40].iter().flat_map(|v| v.to_le_bytes()).collect();
    Raw::new([1, 2], 1, 64, 1, long.clone()).with(FORMAT, [2]).is_floats(&[-9.0, f32::powi(2.0, 40)]);
    let double: Vec<u8> = [0.1f64, -2.5].iter().flat_map(|v| v.to_le_bytes()).collect();
    Raw::new([1, 2], 1, 64, 1, double).with(FORMAT, [3]).is_floats(&[0.1, -2.5]);
    Raw::new([1, 3], 1, 8, 1, [0x80, 0xff, 0x7f]).with(FORMAT, [2]).is_floats(&[-128.0, -1.0, 127.0]);
    let halves: Vec<u8> = [0x3c00u16, 0xc000, 0x0001].iter().flat_map(|v| v.to_le_bytes()).collect();
    Raw::new([1, 3], 1, 16, 1, halves).with(FORMAT, [3]).is_floats(&[1.0, -2.0, f32::powi(2.0, -24)]);
    for (bits, format, says) in [
        (24, 2, "24 bits (signed)"),
        (12, 1, "12 bits (unsigned)"),
        (24, 3, "24 bits (floating-point)"),
        (64, 6, "64 bits (complex)"),
    ] {
        Raw::new([1, 1], 1, bits, 1, [0; 8]).with(FORMAT, [format]).refused(ErrorKind::Unsupported, says);
    }
}

#[test]
fn colours_are_divided_by_the_alpha_that_they_were_multiplied_by() {
    let pixels = [100, 50, 0, 200, 10, 20, 30, 255, 9, 9, 9, 0, 80, 80, 80, 40];
    let expected = [128, 64, 0, 200, 10, 20, 30, 255, 0, 0, 0, 0, 255, 255, 255, 40];
    let alpha = Raw::new([2, 2], 4, 8, 2, pixels).with(EXTRA, [1]);
    alpha.is(4, &expected);
    assert_eq!(Tiff.in_place(&alpha.file()).unwrap(), None, "its pixels are not those of the file");
    // Each colour a plane.
    let planes = |pixels: &[u8]| (0..4).flat_map(|c| (0..4).map(move |p| pixels[4 * p + c])).collect::<Vec<_>>();
    let mut planar = Raw::new([2, 2], 4, 8, 2, []).with(EXTRA, [1]).with(PLANAR, [2]);
    planar.chunks = planes(&pixels).chunks(4).map(<[u8]>::to_vec).collect();
    planar.is(4, &planes(&expected));
    Raw::new([1, 2], 2, 8, 1, [30, 60, 7, 0]).with(EXTRA, [1]).is(2, &[128, 60, 0, 0]);
    let wide: Vec<u8> = [1000u16, 2000, 500, 1000].iter().flat_map(|v| v.to_le_bytes()).collect();
    let (_, found) = Raw::new([1, 2], 2, 16, 1, wide).with(EXTRA, [1]).decode().unwrap();
    assert_eq!(bytemuck::pod_collect_to_vec::<u8, u16>(&found), [32768, 2000, 32768, 1000]);
    let floats: Vec<u8> = [0.25f32, 0.5, 1.0, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    Raw::new([1, 2], 2, 32, 1, floats).with(EXTRA, [1]).with(FORMAT, [3; 2]).is_floats(&[0.5, 0.5, 0.0, 0.0]);
    // Which values it was multiplied by is not known.
    let odd = Raw::new([1, 2], 5, 8, 2, [0; 10]).with(EXTRA, [0, 1]);
    odd.refused(ErrorKind::Unsupported, "a premultiplied alpha among 2 samples after 3 of colour");
}

/// A JPEG's tables as a JPEG without an image, and the rest without them and without markers that tell colours.
fn split(jpeg: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut tables, mut rest, mut at) = (vec![0xff, 0xd8], vec![0xff, 0xd8], 2);
    while jpeg[at + 1] != 0xda {
        let end = at + 2 + usize::from(u16::from_be_bytes([jpeg[at + 2], jpeg[at + 3]]));
        match jpeg[at + 1] {
            0xdb | 0xc4 => tables.extend(&jpeg[at..end]),
            0xe0..=0xef => {}
            _ => rest.extend(&jpeg[at..end]),
        }
        at = end;
    }
    rest.extend(&jpeg[at..]);
    tables.extend([0xff, 0xd9]);
    (tables, rest)
}

/// An image of two strips of 16 and 9 rows, packed as JPEG; and its pixels, of JPEGs that say so themselves.
fn packed_as_jpeg(ycbcr: bool, sampling: SamplingFactor) -> (Raw, Vec<u8>) {
    let (mut chunks, mut pixels, mut tables) = (Vec::new(), Vec::new(), Vec::new());
    for rows in [16, 9] {
        let jpeg = Made::new(rows, 40, sampling).noisy();
        let (of_strip, chunk) = split(&jpeg);
        let adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\0";
        let told = if ycbcr { jpeg } else { [&of_strip[..of_strip.len() - 2], adobe, &chunk[2..]].concat() };
        let header = Jpeg::new().header(&told).unwrap();
        let mut out = PixelBuffer::default();
        Jpeg::new().decode(&told, &header, 0..header.height, &mut out).unwrap();
        pixels.extend_from_slice(&out.data[..header.len_bytes() as usize]);
        (tables, chunks) = (of_strip, [chunks, vec![chunk]].concat());
    }
    let raw = Raw::new([25, 40], 3, 8, if ycbcr { 6 } else { 2 }, []).with(COMPRESSION, [7]).with(278, [16]);
    (Raw { chunks, ..raw.bytes(347, 7, &tables) }, pixels)
}

#[test]
fn chunks_of_jpeg_are_decoded_with_the_tables_of_their_file() {
    for (ycbcr, sampling) in
        [(true, SamplingFactor::F_2_2), (true, SamplingFactor::F_1_1), (false, SamplingFactor::F_1_1)]
    {
        let (raw, pixels) = packed_as_jpeg(ycbcr, sampling);
        raw.is(3, &pixels);
        let mut without = raw.clone();
        without.tags.remove(&347);
        // What the standard codes make of others' bits is damage, as a rule; lacking quantisation tables always is.
        without.refused(ErrorKind::Corrupt, "a chunk that is not the right JPEG");
        raw.clone()
            .with(WIDTH, [39])
            .refused(ErrorKind::Corrupt, "YCbCr of 40x16 pixels".get(5 * usize::from(!ycbcr)..).unwrap());
        let mut cut = raw.clone();
        cut.chunks[1].truncate(100);
        cut.refused(ErrorKind::Corrupt, "JPEG ends");
        raw.with(SAMPLES, [1])
            .with(BITS, [8])
            .with(PHOTOMETRIC, [1])
            .refused(ErrorKind::Corrupt, "where Gray of 40x16 is needed");
    }
}

/// Two tiles side by side, each a frame of Zstandard.
fn packed_as_zstd() -> (Raw, Vec<u8>) {
    let values: Vec<u8> = (0..32 * 16).map(|n| (n / 3) as u8).collect();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let tile = |left: usize| {
        let mut tile: Vec<u8> = (0..16).flat_map(|y| values[y * 32 + left..][..16].to_vec()).collect();
        for row in tile.chunks_mut(16) {
            (1..16).rev().for_each(|x| row[x] = row[x].wrapping_sub(row[x - 1]));
        }
        ruzstd::encoding::compress_to_vec(&tile[..], level)
    };
    let raw = Raw::new([16, 32], 1, 8, 1, []).with(COMPRESSION, [50_000]).with(PREDICTOR, [2]);
    let raw = raw.with(322, [16]).with(323, [16]);
    (Raw { tiled: true, chunks: vec![tile(0), tile(16)], ..raw }, values)
}

#[test]
fn zstandard_is_unpacked() {
    let (raw, values) = packed_as_zstd();
    raw.is(1, &values);
    raw.clone().with(COMPRESSION, [34_926]).is(1, &values);
    let mut damaged = raw.clone();
    damaged.chunks[1][2] ^= 0xff;
    damaged.refused(ErrorKind::Corrupt, "TIFF");
    let mut cut = raw;
    let half = cut.chunks[1].len() / 2;
    cut.chunks[1].truncate(half);
    cut.refused(ErrorKind::Corrupt, "Zstandard");
    // A window of 2 TB, of which nobody sets a byte aside.
    cut.chunks[1] = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8], &[0; 20][..]].concat();
    cut.refused(ErrorKind::Corrupt, "Zstandard");
}

#[test]
fn stacks_are_no_images_of_many_channels() {
    let pages = |count: usize, says: &[u8]| {
        let raw = Raw::new([2, 3], 1, 8, 1, some(6)).bytes(DESCRIPTION, 2, says);
        Raw { pages: count, ..raw }
    };
    let all = |count: usize| some(6).repeat(count);
    pages(12, b"a well plate\0").is(12, &all(12));
    pages(3, b"ImageJ=1.54f\nimages=3\nchannels=3\n\0").is(3, &all(3));
    let ome = |c: u32, z: u32| {
        format!("<OME><Image><Pixels ID=\"x\" SizeC=\"{c}\" SizeT=\"1\" SizeZ=\"{z}\"/></Image></OME>")
    };
    pages(12, ome(12, 1).as_bytes()).is(12, &all(12));
    for (count, text) in [
        (12, ome(3, 4)),
        (12, "ImageJ=1.54f\nimages=12\nchannels=3\nslices=4\n".into()),
        (1, "ImageJ=1.54f\nimages=12\nslices=12\n".into()),
        (12, r#"{"shape": [3, 4, 2, 3]}"#.into()),
    ] {
        pages(count, text.as_bytes()).refused(ErrorKind::Unsupported, "a TIFF that describes itself as ");
    }
    // A description that lies outside the file describes nothing.
    let mut odd = pages(12, b"");
    odd.tags.insert(DESCRIPTION, (4, vec![1; 9]));
    odd.is(12, &all(12));
    pages(1, b"").with(33_629, [1; 12]).refused(ErrorKind::Unsupported, "MetaMorph stack of 12 planes");
}

#[test]
fn every_kind_keeps_the_contract() {
    let files = [
        ("bits", Raw::new([9, 13], 1, 1, 0, some(18)).file()),
        (
            "palette",
            Raw::new([9, 7], 1, 4, 3, some(36)).with(MAP, (0..48).map(|n| n * 1300).collect::<Vec<_>>()).file(),
        ),
        ("signed", Raw::new([9, 7], 1, 16, 1, some(126)).with(FORMAT, [2]).file()),
        ("alpha", Raw::new([9, 7], 4, 8, 2, some(252)).with(EXTRA, [1]).file()),
        ("jpeg", packed_as_jpeg(true, SamplingFactor::F_2_2).0.file()),
        ("zstd", packed_as_zstd().0.file()),
    ];
    codec_contract(&Tiff, &files.each_ref().map(|(name, file)| (*name, &file[..])));
}

/// Files of other writers in the folder `INFEED_TIFFS`: each `x.tif` has its pixels in `x.raw`, or is refused.
#[test]
#[ignore = "compares a folder of files with what another reader made of them: CONTRIBUTING, Measure, says how to run it"]
#[expect(clippy::print_stdout, reason = "that is what it is for")]
fn files_of_other_writers() {
    let folder = std::env::var("INFEED_TIFFS").expect("INFEED_TIFFS names a folder");
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_none_or(|extension| extension != "tif") {
            continue;
        }
        let file = std::fs::read(&entry).unwrap();
        let decoded = Tiff.header(&file).and_then(|header| {
            let mut out = PixelBuffer::default();
            Tiff.decode(&file, &header, 0..header.height, &mut out)?;
            Ok(out.data[..header.len_bytes() as usize].to_vec())
        });
        let words = match (decoded, std::fs::read(entry.with_extension("raw"))) {
            (Ok(pixels), Ok(want)) if pixels == want => "equal".to_owned(),
            (Ok(pixels), Ok(want)) => {
                let most = pixels.iter().zip(&want).map(|(a, b)| a.abs_diff(*b)).max();
                format!("{} bytes, {} wanted, {most:?} levels apart", pixels.len(), want.len())
            }
            (Ok(pixels), Err(_)) => format!("taken: {} bytes", pixels.len()),
            (Err(error), _) => error.to_string(),
        };
        println!("{}: {words}", entry.file_name().unwrap().display());
    }
}
