//! TIFFs of every kind become the right pixels; hostile ones become errors.

use std::io::Write;

use infeed::{
    DType, ErrorKind, Layout, Transform,
    codec::{ImageCodec, PixelBuffer, Tiff, codec_contract},
    dataset::{FieldKind, ImageInfo, SampleRng},
    internal::kernels::{Level, Pixels, Resampler},
    transform::reference,
};

/// One way to store an image.
#[derive(Clone, Copy, Debug)]
struct Kind {
    height: usize,
    width: usize,
    channels: usize,
    dtype: DType,
    big_endian: bool,
    /// BigTIFF.
    wide: bool,
    planar: bool,
    pages: bool,
    /// Height and width of a chunk; the image's width makes strips.
    chunk: [usize; 2],
    compression: u16,
    predictor: u16,
}

const PLAIN: Kind = Kind {
    height: 37,
    width: 29,
    channels: 5,
    dtype: DType::U8,
    big_endian: false,
    wide: false,
    planar: false,
    pages: false,
    chunk: [37, 29],
    compression: 1,
    predictor: 1,
};

impl Kind {
    fn info(&self) -> ImageInfo {
        let (height, width, channels) = (self.height as u32, self.width as u32, self.channels as u8);
        ImageInfo { height, width, channels, dtype: self.dtype, planar: self.planes() > 1 }
    }

    fn planes(&self) -> usize {
        if self.planar || self.pages { self.channels } else { 1 }
    }

    /// Highest byte first.
    fn value(&self, y: usize, x: usize, c: usize) -> Vec<u8> {
        let bits = infeed::dataset::SampleRng::new(1, c as u64, (y * 4096 + x) as u64).op(0).below(61) as usize;
        let level = y * 3 + x * 2 + c * 17 + bits;
        match self.dtype {
            DType::U16 => (level as u16 * 91).to_be_bytes().to_vec(),
            DType::F32 => (level as f32 * -0.37).to_be_bytes().to_vec(),
            _ => vec![level as u8],
        }
    }

    /// What decoding gives: the machine's order.
    fn pixels(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let each = self.channels / self.planes();
        for plane in 0..self.planes() {
            for (y, x) in (0..self.height).flat_map(|y| (0..self.width).map(move |x| (y, x))) {
                for c in 0..each {
                    let mut value = self.value(y, x, plane * each + c);
                    if cfg!(target_endian = "little") {
                        value.reverse();
                    }
                    out.extend(value);
                }
            }
        }
        out
    }

    /// A chunk's rows as they are stored, before packing. Beyond the image tiles hold zeros.
    fn chunk(&self, plane: usize, top: usize, left: usize) -> Vec<u8> {
        let each = self.channels / self.planes();
        let tiled = self.chunk[1] != self.width;
        let rows = if tiled { self.chunk[0] } else { self.chunk[0].min(self.height - top) };
        let size = self.dtype.size();
        let mut out = Vec::new();
        for y in top..top + rows {
            let mut values: Vec<Vec<u8>> = Vec::new();
            for x in left..left + self.chunk[1] {
                for c in 0..each {
                    let inside = y < self.height && x < self.width;
                    values.push(if inside { self.value(y, x, plane * each + c) } else { vec![0; size] });
                }
            }
            match self.predictor {
                2 => {
                    let number = |v: &[u8]| v.iter().fold(0u32, |n, b| n << 8 | u32::from(*b));
                    for i in (each..values.len()).rev() {
                        let less = number(&values[i]).wrapping_sub(number(&values[i - each]));
                        values[i] = less.to_be_bytes()[4 - size..].to_vec();
                    }
                }
                3 => {
                    let mut row: Vec<u8> = (0..size).flat_map(|b| values.iter().map(move |v| v[b])).collect();
                    for i in (each..row.len()).rev() {
                        row[i] = row[i].wrapping_sub(row[i - each]);
                    }
                    out.extend(row);
                    continue;
                }
                _ => {}
            }
            for mut value in values {
                if !self.big_endian {
                    value.reverse();
                }
                out.extend(value);
            }
        }
        match self.compression {
            5 => weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8).encode(&out).unwrap(),
            8 => {
                let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                deflate.write_all(&out).unwrap();
                deflate.finish().unwrap()
            }
            32773 => out
                .chunks(100)
                .flat_map(|run| {
                    let repeats = run.len() > 1 && run.iter().all(|b| *b == run[0]);
                    if repeats { vec![(257 - run.len()) as u8, run[0]] } else { [&[run.len() as u8 - 1], run].concat() }
                })
                .collect(),
            _ => out,
        }
    }

    fn number(&self, value: u64, bytes: usize) -> Vec<u8> {
        let all = value.to_be_bytes();
        let mut out = all[8 - bytes..].to_vec();
        if !self.big_endian {
            out.reverse();
        }
        out
    }

    /// The file, directories behind the pixels.
    fn file(&self) -> Vec<u8> {
        let word = if self.wide { 8 } else { 4 };
        let mut out = if self.big_endian { b"MM".to_vec() } else { b"II".to_vec() };
        out.extend(self.number(if self.wide { 43 } else { 42 }, 2));
        if self.wide {
            out.extend(self.number(8, 2));
            out.extend(self.number(0, 2));
        }
        // Where the offset of the next directory stands.
        let mut next_at = out.len();
        out.extend(vec![0; word]);
        let (pages, planes) = if self.pages { (self.channels, 1) } else { (1, self.planes()) };
        let samples = self.channels / pages;
        for page in 0..pages {
            let (mut offsets, mut counts) = (Vec::new(), Vec::new());
            for plane in 0..planes {
                for top in (0..self.height).step_by(self.chunk[0]) {
                    for left in (0..self.width).step_by(self.chunk[1]) {
                        let chunk = self.chunk(page + plane, top, left);
                        offsets.push(out.len() as u64);
                        counts.push(chunk.len() as u64);
                        out.extend(chunk);
                    }
                }
            }
            let tiled = self.chunk[1] != self.width;
            let format = if self.dtype == DType::F32 { 3 } else { 1 };
            let bits = vec![8 * self.dtype.size() as u64; samples];
            // Tag, size of a value, values.
            let mut tags = vec![
                (256, 4, vec![self.width as u64]),
                (257, 4, vec![self.height as u64]),
                (258, 2, bits),
                (259, 2, vec![u64::from(self.compression)]),
                (262, 2, vec![1]),
                (277, 2, vec![samples as u64]),
                (284, 2, vec![if self.planar { 2 } else { 1 }]),
                (317, 2, vec![u64::from(self.predictor)]),
                (339, 2, vec![format; samples]),
            ];
            if tiled {
                tags.extend([(322, 4, vec![self.chunk[1] as u64]), (323, 4, vec![self.chunk[0] as u64])]);
                tags.extend([(324, word, offsets), (325, 4, counts)]);
            } else {
                tags.extend([(273, word, offsets), (278, 4, vec![self.chunk[0] as u64]), (279, 4, counts)]);
            }
            tags.sort();
            let mut entries = self.number(tags.len() as u64, if self.wide { 8 } else { 2 });
            for (tag, size, values) in tags {
                let kind = match size {
                    2 => 3,
                    4 => 4,
                    _ => 16,
                };
                entries.extend(self.number(tag, 2));
                entries.extend(self.number(kind, 2));
                entries.extend(self.number(values.len() as u64, word));
                let mut bytes: Vec<u8> = values.iter().flat_map(|v| self.number(*v, size)).collect();
                if bytes.len() > word {
                    entries.extend(self.number(out.len() as u64, word));
                    out.extend(bytes);
                } else {
                    bytes.resize(word, 0);
                    entries.extend(bytes);
                }
            }
            let at = self.number(out.len() as u64, word);
            out[next_at..next_at + word].copy_from_slice(&at);
            out.extend(entries);
            next_at = out.len();
            out.extend(vec![0; word]);
        }
        out
    }
}

/// Each way to lay pixels out, with each way to pack them, in each type.
fn kinds() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (n, dtype) in [DType::U8, DType::U16, DType::F32].into_iter().enumerate() {
        for (m, chunk) in [[37, 29], [8, 29], [1, 29], [16, 16]].into_iter().enumerate() {
            for (k, (planar, pages)) in [(false, false), (true, false), (false, true)].into_iter().enumerate() {
                for (compression, predictor) in
                    [(1, 1), (5, 1), (5, 2), (8, 1), (8, 2), (32773, 1), (8, if dtype == DType::F32 { 3 } else { 2 })]
                {
                    let (big_endian, wide) = ((n + m + k) % 2 == 1, (m + usize::from(compression)) % 3 == 0);
                    kinds.push(Kind { dtype, big_endian, wide, planar, pages, chunk, compression, predictor, ..PLAIN });
                }
            }
        }
    }
    for channels in [1, 2, 3, 4, 255] {
        kinds.push(Kind { channels, height: 3, width: 2, chunk: [3, 2], ..PLAIN });
        kinds.push(Kind { channels, height: 3, width: 2, chunk: [2, 2], pages: true, ..PLAIN });
    }
    kinds
}

fn decode(file: &[u8]) -> infeed::Result<(ImageInfo, Vec<u8>)> {
    let info = Tiff.header(file)?;
    let mut out = PixelBuffer::default();
    Tiff.decode(file, &info, 0..info.height, &mut out)?;
    Ok((info.info, out.data[..info.len_bytes() as usize].to_vec()))
}

#[test]
fn every_kind_gives_its_pixels() {
    for kind in kinds() {
        let (info, pixels) = decode(&kind.file()).unwrap_or_else(|e| panic!("{kind:?}: {e:#}"));
        assert_eq!(info, kind.info(), "{kind:?}");
        assert!(pixels == kind.pixels(), "{kind:?}");
    }
}

#[test]
fn tiffs_keep_the_contract() {
    let some = |n: usize| kinds().into_iter().skip(n).step_by(43);
    let files: Vec<(String, Vec<u8>)> = some(0).chain(some(5)).map(|k| (format!("{k:?}"), k.file())).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, file)| (&**name, &**file)).collect();
    codec_contract(&Tiff, &files);
}

#[test]
fn plain_files_are_read_in_place_and_others_are_not() {
    let in_place = |kind: Kind| Tiff.in_place(&kind.file()).unwrap();
    let native = cfg!(target_endian = "big");
    for dtype in [DType::U8, DType::U16, DType::F32] {
        for chunk in [[37, 29], [8, 29]] {
            let kind = Kind { dtype, chunk, big_endian: native, ..PLAIN };
            let file = kind.file();
            let (info, at) = Tiff.in_place(&file).unwrap().expect("one stretch of plain pixels");
            assert!(info == kind.info() && file[at] == kind.pixels());
            assert!(in_place(Kind { planar: true, ..kind }).is_some());
        }
    }
    for other in [
        Kind { dtype: DType::U16, big_endian: !native, ..PLAIN },
        Kind { chunk: [16, 16], ..PLAIN },
        Kind { compression: 8, ..PLAIN },
        // Directories lie between the pages.
        Kind { pages: true, ..PLAIN },
    ] {
        assert!(in_place(other).is_none(), "{other:?}");
    }
    assert!(in_place(Kind { big_endian: !native, ..PLAIN }).is_some(), "bytes have no order");
}

#[test]
fn another_reader_and_writer_agree() {
    use tiff::{
        decoder::{Decoder, DecodingResult},
        encoder::{Compression, TiffEncoder, colortype},
    };
    for kind in kinds().into_iter().filter(|kind| kind.planes() == 1 && kind.channels == 5 && kind.predictor == 1) {
        let file = kind.file();
        let mut theirs = Decoder::new(std::io::Cursor::new(&file)).unwrap();
        let Ok(image) = theirs.read_image() else { continue };
        let bytes = match image {
            DecodingResult::U8(v) => v,
            DecodingResult::U16(v) => bytemuck::cast_slice(&v).to_vec(),
            DecodingResult::F32(v) => bytemuck::cast_slice(&v).to_vec(),
            _ => panic!("{kind:?}"),
        };
        assert!(bytes == kind.pixels(), "{kind:?}");
    }
    let pixels: Vec<u8> = (0..40 * 30 * 3).map(|i| (i * i / 7) as u8).collect();
    for compression in [
        Compression::Uncompressed,
        Compression::Lzw,
        Compression::Deflate(tiff::encoder::DeflateLevel::Balanced),
        Compression::Packbits,
    ] {
        let mut file = std::io::Cursor::new(Vec::new());
        let mut encoder = TiffEncoder::new(&mut file).unwrap().with_compression(compression);
        encoder.write_image::<colortype::RGB8>(40, 30, &pixels).unwrap();
        let (info, ours) = decode(file.get_ref()).unwrap();
        assert_eq!(info, ImageInfo::interleaved_u8(30, 40, 3));
        assert!(ours == pixels);
    }
}

/// Replaces the first value of a tag in a little-endian classic file.
fn with_tag(file: &[u8], tag: u16, value: u32) -> Vec<u8> {
    let mut file = file.to_vec();
    let at = u32::from_le_bytes(*file[4..].first_chunk().unwrap()) as usize;
    let count = u16::from_le_bytes(*file[at..].first_chunk().unwrap()) as usize;
    let entry = (0..count).map(|n| at + 2 + n * 12).find(|at| file[*at..].starts_with(&tag.to_le_bytes())).unwrap();
    file[entry + 8..entry + 12].copy_from_slice(&value.to_le_bytes());
    file
}

#[test]
fn hostile_headers_are_refused_in_words() {
    let plain = PLAIN.file();
    let directory = u32::from_le_bytes(*plain[4..].first_chunk().unwrap());
    let refused = |file: &[u8], kind: ErrorKind, says: &str| {
        let error = decode(file).expect_err(says);
        assert!(error.to_string().contains(says) && error.kind() == kind, "{error}, not {says}");
    };
    use ErrorKind::{Corrupt, Unsupported};
    let looped = {
        let mut file = plain.clone();
        let end = file.len() - 4;
        file[end..].copy_from_slice(&directory.to_le_bytes());
        file
    };
    refused(&looped, Corrupt, "lead back to an earlier one");
    refused(&with_tag(&plain, 256, 0), Corrupt, "width of 0");
    refused(&with_tag(&plain, 256, u32::MAX), Corrupt, "bytes in chunk 0");
    refused(&with_tag(&plain, 257, u32::MAX), Corrupt, "TIFF");
    refused(&with_tag(&plain, 273, u32::MAX), Corrupt, "beyond its end");
    refused(&with_tag(&plain, 279, u32::MAX), Corrupt, "beyond its end");
    refused(&with_tag(&plain, 278, 0), Corrupt, "strips of 0 rows");
    refused(&with_tag(&plain, 278, 1), Corrupt, "1 of its 37 chunks");
    refused(&with_tag(&plain, 277, 256), Unsupported, "256 samples");
    refused(&with_tag(&plain, 259, 50_001), Unsupported, "compression 50001 (WebP)");
    refused(&with_tag(&plain, 262, 3), Unsupported, "palette");
    refused(&plain[..plain.len() - 60], Corrupt, "TIFF directory at byte");
    refused(b"II*\0", Corrupt, "ends after 4 bytes");
    let mixed = with_tag(&Kind { channels: 2, ..PLAIN }.file(), 258, 8 | 16 << 16);
    refused(&mixed, Unsupported, "channels differ in type");
    // Few bytes that claim many pixels: known before anything is unpacked.
    let bomb = Kind { compression: 8, ..PLAIN }.file();
    let bomb = with_tag(&with_tag(&with_tag(&bomb, 256, 1 << 20), 257, 1 << 20), 278, 1 << 20);
    let info = Tiff.header(&bomb).unwrap();
    assert!(info.peak_bytes > 1 << 40);
    let tile = Kind { chunk: [16, 16], compression: 8, ..PLAIN }.file();
    let tile = with_tag(&with_tag(&tile, 322, 1 << 30), 323, 1 << 30);
    let info = Tiff.header(&tile).unwrap();
    assert!(info.peak_bytes > 1 << 60, "a tile far larger than its image");
    // A tile whose bytes no 64 bits count.
    let tile = Kind { channels: 3, dtype: DType::F32, planar: false, chunk: [16, 16], ..PLAIN }.file();
    refused(&with_tag(&with_tag(&tile, 322, u32::MAX), 323, u32::MAX), Corrupt, "but 18446744073709551615 are needed");
    // Unpacked data that end early, and damaged ones.
    let short = Kind { compression: 32773, ..PLAIN }.file();
    refused(&with_tag(&short, 279, 20), Corrupt, "but 5365 are needed");
}

#[test]
fn images_that_are_made_larger_keep_the_bits_of_the_reference() {
    let cells = Transform::preset("cells").unwrap();
    let normalized = Transform::new().horizontal_flip(1.0).resize_exact(190, 133).normalize([0.3], [0.2]);
    let cropped = Transform::new().random_resized_crop(97).vertical_flip(0.5).to_float();
    // Only the last one draws.
    for (transform, out, seeds) in [(&cells, DType::F32, 1), (&normalized, DType::F16, 1), (&cropped, DType::Bf16, 4)] {
        for dtype in [DType::U8, DType::U16, DType::F32] {
            for (planar, channels) in [(false, 5), (true, 5), (false, 1), (true, 9)] {
                let kind = Kind { height: 50, width: 50, channels, dtype, planar, chunk: [50, 50], ..PLAIN };
                let mut data = kind.pixels();
                if dtype == DType::F32 {
                    // What has no part in a value must not spoil it.
                    let values: &mut [f32] = bytemuck::cast_slice_mut(&mut data);
                    values[1234] = f32::INFINITY;
                    values[777] = f32::NAN;
                }
                let info = kind.info();
                let field = FieldKind::Image { channels: info.channels, size: None, dtype: None };
                let lowered = transform.lower(&field, out, Layout::Nchw).unwrap();
                for seed in 0..seeds {
                    let params = lowered.params(&info, SampleRng::new(seed, 0, 1)).unwrap();
                    let pixels = Pixels { info, rows: 0..50, data: &data };
                    let table = lowered.table(dtype);
                    let want = reference::resample(&pixels, &params, table, lowered.row()).unwrap();
                    for level in [Level::Best, Level::Avx2, Level::Portable] {
                        let mut row = vec![0xaa; lowered.row().len_bytes()];
                        // Twice: the tables of the first are used again.
                        let mut resampler = Resampler::with_level(level);
                        for _ in 0..2 {
                            resampler.run(&pixels, &params, table, lowered.row(), &mut row).unwrap();
                            assert!(same_values(&row, &want, out), "{transform} {out} {dtype} {planar} {level:?}");
                        }
                    }
                }
            }
        }
    }
}

/// The same bits; any NaN for a NaN.
fn same_values(a: &[u8], b: &[u8], dtype: DType) -> bool {
    let is_nan = |v: &[u8]| match dtype {
        DType::F32 => f32::from_ne_bytes([v[0], v[1], v[2], v[3]]).is_nan(),
        DType::F16 => half::f16::from_ne_bytes([v[0], v[1]]).is_nan(),
        _ => half::bf16::from_ne_bytes([v[0], v[1]]).is_nan(),
    };
    let size = dtype.size();
    a.len() == b.len() && a.chunks(size).zip(b.chunks(size)).all(|(a, b)| a == b || is_nan(a) && is_nan(b))
}

#[test]
fn interleaved_pixels_that_are_only_moved_keep_the_bits_of_the_reference() {
    for transform in
        [Transform::new(), Transform::new().center_crop(20).vertical_flip(0.5), Transform::new().random_crop(40, 9)]
    {
        for (dtype, out) in [(DType::U8, DType::U8), (DType::U16, DType::F32), (DType::F32, DType::F16)] {
            let kind = Kind { dtype, ..PLAIN };
            let (info, data) = (kind.info(), kind.pixels());
            let field = FieldKind::Image { channels: 5, size: Some((37, 29)), dtype: None };
            let lowered = transform.lower(&field, out, Layout::Nhwc).unwrap();
            for seed in 0..6 {
                let params = lowered.params(&info, SampleRng::new(seed, 0, 1)).unwrap();
                let pixels = Pixels { info, rows: 0..37, data: &data };
                let want = reference::resample(&pixels, &params, lowered.table(dtype), lowered.row()).unwrap();
                let mut row = vec![0xaa; lowered.row().len_bytes()];
                Resampler::new().run(&pixels, &params, lowered.table(dtype), lowered.row(), &mut row).unwrap();
                assert!(row == want, "{transform} {dtype} to {out}");
            }
        }
    }
}
