mod baseline;
mod progressive;
mod writer;

use std::{ops::Range, sync::atomic::Ordering};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::{Decoder, ErrorKind, Header, Index, Result, Scratch, Window, draws::Draws, header::SOS, index::Spacing};

/// Waves with a little noise.
fn picture(height: u32, width: u32) -> Vec<u8> {
    let mut draws = Draws::new([3, 0, 0]);
    let mut value = |y: u32, x: u32, c: u32| {
        let at = f64::from(y) * 0.21 + f64::from(x) * 0.13 + f64::from(c * 2);
        (128.0 + 90.0 * at.sin() + draws.below(1 << 20) as f64 / f64::from(1 << 20) * 12.0) as u8
    };
    let mut pixels = Vec::new();
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        pixels.extend([0, 1, 2].map(|c| value(y, x, c)));
    }
    pixels
}

fn file(
    height: u32,
    width: u32,
    quality: u8,
    sampling: SamplingFactor,
    change: impl Fn(&mut Encoder<&mut Vec<u8>>),
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, quality);
    encoder.set_sampling_factor(sampling);
    change(&mut encoder);
    encoder.encode(&picture(height, width), width as u16, height as u16, ColorType::Rgb).unwrap();
    file
}

/// All pixels of a file, decoded with memory that may have been used before.
fn pixels(decoder: &Decoder, file: &[u8], scratch: &mut Scratch) -> Result<Vec<u8>> {
    let header = Header::parse(file)?;
    rows(decoder, file, 0..header.height(), scratch)
}

fn rows(decoder: &Decoder, file: &[u8], rows: Range<u32>, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let header = Header::parse(file)?;
    let mut out = vec![7; header.len_bytes(&rows) as usize];
    decoder.pixels(file, &header, rows, scratch, &mut out).map(|()| out)
}

fn ours(file: &[u8]) -> Vec<u8> {
    Decoder::new().decode(file).unwrap().data
}

const SAMPLINGS: [SamplingFactor; 4] =
    [SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_1_2, SamplingFactor::F_2_2];

#[test]
fn separate_scans_and_tables_of_ones_own_change_nothing() {
    for (n, sampling) in (1..=40).flat_map(|n| SAMPLINGS.map(|f| (n, f))) {
        let (height, width, quality) = (n, 41 - n, [15, 50, 75, 98][n as usize % 4]);
        let plain = file(height, width, quality, sampling, |_| {});
        // With this setting, the encoder writes a scan for each component.
        let apart = file(height, width, quality, sampling, |encoder| encoder.set_optimized_huffman_tables(true));
        assert_eq!(apart.windows(2).filter(|pair| pair == &[0xff, SOS]).count(), 3);
        assert!(ours(&plain) == ours(&apart), "{height}x{width} {sampling:?} {quality}");
    }
}

#[test]
fn memory_that_served_other_images_changes_nothing() {
    // Tables are kept from image to image: use other tables, the same, and others again.
    let mut scratch = Scratch::default();
    for round in 0..3 {
        for (n, sampling) in SAMPLINGS.into_iter().enumerate() {
            let file = file(37 + n as u32, 50, 40 + 10 * n as u8, sampling, |encoder| {
                encoder.set_optimized_huffman_tables((n + round) % 2 == 0);
            });
            let again = pixels(&Decoder::new(), &file, &mut scratch).unwrap();
            assert!(again == ours(&file), "round {round}, {sampling:?}");
        }
    }
}

#[test]
fn a_table_of_the_last_image_is_none_of_this_one() {
    let good = file(20, 20, 80, SamplingFactor::F_1_1, |_| {});
    let mut bad = good.clone();
    let table = bad.windows(2).position(|pair| pair == [0xff, 0xc4]).unwrap();
    bad[table + 1] = 0xfe;
    let mut scratch = Scratch::default();
    pixels(&Decoder::new(), &good, &mut scratch).unwrap();
    let error = pixels(&Decoder::new(), &bad, &mut scratch).unwrap_err();
    assert!(error.to_string().contains("JPEG lacks Huffman table "), "{error}");
    let scan = bad.windows(2).position(|pair| pair == [0xff, SOS]);
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Damaged, scan));
    pixels(&Decoder::new(), &good, &mut scratch).unwrap();
}

#[test]
fn what_can_not_be_asked_for_is_refused_in_words() {
    let (one, other) =
        (file(20, 30, 80, SamplingFactor::F_2_2, |_| {}), file(20, 30, 40, SamplingFactor::F_2_2, |_| {}));
    let header = Header::parse(&one).unwrap();
    let mut scratch = Scratch::default();
    let mut ask = |file: &[u8], rows: Range<u32>, len: usize| {
        Decoder::new().pixels(file, &header, rows, &mut scratch, &mut vec![0; len])
    };
    ask(&one, 3..5, 180).unwrap();
    for (what, refused) in [
        ("another file", ask(&other, 3..5, 180)),
        ("a short slice", ask(&one, 3..5, 179)),
        ("rows behind the last", ask(&one, 19..21, 180)),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Misuse, "{what}");
    }
    let mut data = Vec::new();
    for scale in [0, 3, 16] {
        let window = Window::of_rows(&header, 0..20).at_scale(scale);
        let error = Decoder::new().planes(&one, &header, &window, &mut scratch, &mut data).unwrap_err();
        assert_eq!(error.to_string(), format!("a scale of {scale}: use 1, 2, 4 or 8"));
    }
    // Any ranges are a valid window: parts outside of the image are ignored.
    let most = u32::MAX;
    for [rows, cols] in [[[0, 0]; 2], [[5, 2], [9, 1]], [[0, most]; 2], [[900, 901]; 2], [[7, 8], [4, 4]]] {
        let [rows, cols] = [rows, cols].map(|[start, end]| start..end);
        for scale in [1, 2, 4, 8] {
            let window = Window::new(&header, rows.clone(), cols.clone()).at_scale(scale);
            let planes = Decoder::new().planes(&one, &header, &window, &mut scratch, &mut data).unwrap();
            for plane in planes.as_slice() {
                plane.rows.clone().for_each(|y| assert!(plane.row(&data, y).len() <= 32));
            }
        }
    }
}

#[test]
fn a_window_at_a_scale_looks_like_the_image_shrunk() {
    for (sampling, scale) in SAMPLINGS.into_iter().flat_map(|s| [2, 4, 8].map(|scale| (s, scale))) {
        let (height, width) = (96, 128);
        let smooth: Vec<u8> =
            (0..height * width).flat_map(|n| [(n % width) as u8, (n / width) as u8 * 2, 90]).collect();
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 95);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&smooth, width as u16, height as u16, ColorType::Rgb).unwrap();
        let header = Header::parse(&file).unwrap();
        let window = Window::of_rows(&header, 0..height).at_scale(scale);
        let mut data = Vec::new();
        let planes = Decoder::new().planes(&file, &header, &window, &mut Scratch::default(), &mut data).unwrap();
        let planes = planes.as_slice();
        assert_eq!(planes[0].step, [scale; 2]);
        assert!(planes[1..].iter().all(|plane| plane.step[1] == scale), "colour as wide as brightness");
        let luma = |y: u32, x: u32| {
            let at = 3 * (y * width + x) as usize;
            0.299 * f64::from(smooth[at]) + 0.587 * f64::from(smooth[at + 1]) + 0.114 * f64::from(smooth[at + 2])
        };
        for (y, x) in (0..height / scale).flat_map(|y| (0..width / scale).map(move |x| (y, x))) {
            let mut mean = 0.0;
            for (dy, dx) in (0..scale).flat_map(|dy| (0..scale).map(move |dx| (dy, dx))) {
                mean += luma(y * scale + dy, x * scale + dx) / f64::from(scale * scale);
            }
            let found = planes[0].row(&data, y)[x as usize];
            assert!((f64::from(found) - mean).abs() < 3.0, "{sampling:?} {scale}: {found} not {mean:.1} at {y}, {x}");
        }
    }
}

/// The planes of a window, without values outside of it.
fn planes(decoder: &Decoder, file: &[u8], window: &Window, scratch: &mut Scratch) -> Result<Vec<Vec<u8>>> {
    let mut data = Vec::new();
    let planes = decoder.planes(file, &Header::parse(file)?, window, scratch, &mut data)?;
    let held = |plane: &crate::Plane| plane.rows.clone().flat_map(|y| plane.row(&data, y)).copied().collect();
    Ok(planes.as_slice().iter().map(held).collect())
}

fn windows(header: &Header, seed: u64) -> impl Iterator<Item = Window> + use<> {
    let mut draws = Draws::new([seed, 0, 0]);
    let all = Window::of_rows(header, 0..header.height());
    let mut range = move |size: u32| {
        let [a, b] = [0; 2].map(|_| draws.below(size.into()) as u32);
        a.min(b)..a.max(b) + 1
    };
    std::iter::from_fn(move || {
        let (rows, cols) = (range(all.rows.end), range(all.cols.end));
        let scale = [1, 1, 2, 4, 8][(rows.start % 5) as usize];
        Some(Window { rows, cols, scale, ..all.clone() })
    })
}

#[test]
fn what_is_known_of_a_file_changes_no_pixel() {
    let index = Index::new(1 << 20);
    let indexed = Decoder::new().index(index.clone());
    let (mut with, mut without) = (Scratch::default(), Scratch::default());
    for (n, sampling) in SAMPLINGS.into_iter().enumerate() {
        // Wider than the distance of two points, and not a multiple of it.
        let (height, width) = (150, 700 + 13 * n as u32);
        for optimised in [false, true] {
            let file = file(height, width, 85, sampling, |encoder| encoder.set_optimized_huffman_tables(optimised));
            for window in windows(&Header::parse(&file).unwrap(), n as u64).take(60) {
                let expected = planes(&Decoder::new(), &file, &window, &mut without).unwrap();
                assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
            }
        }
    }
    assert_eq!(index.len(), 4, "one of each kind: files with separate scans are not in it");
    assert!(index.bytes() > 4 * 8 * 10, "{index:?}");
}

#[test]
fn sparse_and_stored_points_change_no_pixel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let files: Vec<_> = SAMPLINGS.into_iter().zip(0..).map(|(s, n)| file(150, 900 + 13 * n, 85, s, |_| {})).collect();
    let mut scratch = [(); 2].map(|()| Scratch::default());
    let mut decode_all = |index: &Index, seed: u64| {
        let indexed = Decoder::new().index(index.clone());
        for file in &files {
            for window in windows(&Header::parse(file).unwrap(), seed).take(40) {
                let expected = planes(&Decoder::new(), file, &window, &mut scratch[0]).unwrap();
                assert!(planes(&indexed, file, &window, &mut scratch[1]).unwrap() == expected, "{window:?}");
            }
        }
    };
    // The memory for all of it, and parts of that: with fewer points per file, then with fewer files.
    let all = Index::new(1 << 20);
    decode_all(&all, 1);
    let mut stored = Vec::new();
    for tenths in [10, 6, 4, 3, 2, 1] {
        let index = Index::new(all.bytes() * tenths / 10);
        decode_all(&index, 1);
        assert!(index.bytes() <= all.bytes() * tenths / 10, "{tenths} tenths");
        index.save(&path).unwrap();
        stored.push(std::fs::metadata(&path).unwrap().len());
        decode_all(&Index::open(&path, 0).unwrap(), 2);
        let more = Index::open(&path, 1 << 20).unwrap();
        decode_all(&more, 3);
        more.save(&path).unwrap();
        decode_all(&Index::open(&path, 0).unwrap(), 1);
        std::fs::remove_file(&path).unwrap();
    }
    assert!(stored.is_sorted_by(|a, b| a >= b) && stored[4] < stored[0], "{stored:?}");
}

#[test]
fn a_whole_file_is_known_once_its_last_row_was_read() {
    let index = Index::new(1 << 20);
    let indexed = Decoder::new().index(index.clone());
    let file = file(160, 520, 90, SamplingFactor::F_1_1, |_| {});
    let points = |index: &Index| {
        let mut points = crate::index::Points::default();
        index.find(Index::key(&file), 65, false, &mut points);
        points.len()
    };
    let mut out = Scratch::default();
    rows(&indexed, &file, 0..80, &mut out).unwrap();
    // 65 units per row: nine points. The last point of a row is the first of the next.
    assert_eq!(points(&index), 91);
    rows(&indexed, &file, 0..80, &mut out).unwrap();
    rows(&indexed, &file, 8..16, &mut out).unwrap();
    assert_eq!(points(&index), 91);
    rows(&indexed, &file, 100..101, &mut out).unwrap();
    assert_eq!(points(&index), 13 * 9 + 1);
    rows(&indexed, &file, 0..160, &mut out).unwrap();
    assert_eq!(points(&index), 181);
    // In one call, without decoding pixels.
    let all = Index::new(1 << 20);
    Decoder::new().index(all.clone()).learn(&file, &mut out).unwrap();
    assert_eq!(points(&all), 181);
    // Without an end marker it is not added, and still an error.
    let cut = &file[..file.len() - 2];
    rows(&indexed, cut, 0..160, &mut out).unwrap();
    assert_eq!(index.len(), 1);
}

#[test]
fn an_index_that_lies_is_not_believed() {
    let file = file(96, 96, 90, SamplingFactor::F_2_2, |_| {});
    let all = Window::of_rows(&Header::parse(&file).unwrap(), 50..60);
    let mut out = Scratch::default();
    let mut draws = Draws::new([1, 0, 0]);
    for n in 0..400 {
        let window = Window { cols: 20..40, scale: [1, 4, 8][n % 3], ..all.clone() };
        let index = Index::new(1 << 20);
        let spacing = Spacing::new(3, [6, 6, 7][n % 3]);
        index.lie(&file, (7, spacing), 216 - n % 2, || draws.bits() >> (n % 8));
        // Any pixels or an error: the promise is that it ends, within bounds.
        let _ = planes(&Decoder::new().index(index), &file, &window, &mut out);
    }
}

#[test]
fn lengths_of_blocks_that_are_wrong_change_no_pixel() {
    let mut draws = Draws::new([2, 0, 0]);
    let (mut with, mut without) = (Scratch::default(), Scratch::default());
    for sampling in SAMPLINGS {
        let file = file(96, 400, 90, sampling, |_| {});
        let all = Window::of_rows(&Header::parse(&file).unwrap(), 0..96);
        let [units, blocks] = match sampling {
            SamplingFactor::F_1_1 => [12 * 50, 3],
            SamplingFactor::F_2_1 => [12 * 25, 4],
            SamplingFactor::F_1_2 => [6 * 50, 4],
            _ => [6 * 25, 6],
        };
        for n in 0..30 {
            let window = Window { cols: 20..340, rows: 30..60 + n as u32, scale: [4, 8][n % 2], ..all.clone() };
            let index = Index::new(1 << 20);
            let indexed = Decoder::new().index(index.clone());
            let expected = planes(&Decoder::new(), &file, &window, &mut without).unwrap();
            // All points and lengths are known; then one is replaced by a wrong one.
            planes(&indexed, &file, &all.clone().at_scale(8), &mut with).unwrap();
            assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
            let lengths = index.lengths(Index::key(&file), units * blocks).expect("they were noted");
            assert!(lengths.from(0).iter().filter(|l| l.load(Ordering::Relaxed) > 0).count() > units * blocks / 2);
            let broken = &lengths.from(units / 2 * blocks + draws.below(units as u64 / 4) as usize)[0];
            broken.store(broken.load(Ordering::Relaxed).wrapping_add(1 + draws.below(254) as u8), Ordering::Relaxed);
            assert!(planes(&indexed, &file, &window, &mut with).unwrap() == expected, "{sampling:?} {window:?}");
        }
    }
}

#[test]
fn images_are_turned_as_their_header_says() {
    let exif = crate::orientation::tests::exif(6, true);
    let lying = file(21, 34, 90, SamplingFactor::F_2_2, |encoder| encoder.add_app_segment(1, exif.clone()).unwrap());
    let orientation = Header::parse(&lying).unwrap().orientation();
    let stored = Decoder::new().decode(&lying).unwrap();
    let upright = stored.clone().upright(orientation);
    assert_eq!((upright.height, upright.width), (34, 21));
    let at = |data: &[u8], width: usize, y: usize, x: usize| data[3 * (y * width + x)..][..3].to_vec();
    for (y, x) in (0..34).flat_map(|y| (0..21).map(move |x| (y, x))) {
        assert_eq!(at(&upright.data, 21, y, x), at(&stored.data, 34, 20 - x, y));
    }
    assert_eq!(
        stored.clone().upright(Header::parse(&file(5, 6, 90, SAMPLINGS[0], |_| {})).unwrap().orientation()),
        stored
    );
}

#[test]
fn what_is_missing_is_gray_only_if_asked() {
    let whole = file(64, 64, 90, SamplingFactor::F_1_1, |_| {});
    let cut = &whole[..whole.len() * 2 / 3];
    let error = Decoder::new().decode(cut).unwrap_err();
    assert!(error.to_string().contains("JPEG ends after "), "{error}");
    assert_eq!(error.offset(), Some(cut.len()));
    let filled = Decoder::new().fill(true).decode(cut).unwrap().data;
    let right = ours(&whole);
    assert!(filled[..3 * 64 * 24] == right[..3 * 64 * 24], "rows before the cut");
    assert!(filled[3 * 64 * 56..3 * 64 * 64].iter().all(|&value| value == 128), "rows behind it");
    // Missing headers are not filled.
    assert!(Decoder::new().fill(true).decode(&whole[..100]).is_err());
}

#[test]
fn pixels_of_some_columns_are_those_of_the_whole_image() {
    let mut draws = Draws::new([9, 9, 9]);
    for n in 0..120usize {
        let [height, width] = [1 + draws.below(60) as u32, 1 + draws.below(150) as u32];
        let restarts = (n % 5) as u16;
        let file = file(height, width, 80, SAMPLINGS[n % 4], |encoder| encoder.set_restart_interval(restarts));
        let header = Header::parse(&file).unwrap();
        let whole = ours(&file);
        let mut range = |size: u32| {
            let [a, b] = [draws.below(u64::from(size) + 1) as u32, draws.below(u64::from(size) + 1) as u32];
            a.min(b)..a.max(b)
        };
        let (mut scratch, index) = (Scratch::default(), Index::new(1 << 20));
        for _ in 0..6 {
            let (rows, cols) = (range(height), range(width));
            for decoder in [Decoder::new(), Decoder::new().index(index.clone()), Decoder::new().strict(true)] {
                let mut out = vec![7; header.len_bytes(&rows) as usize];
                decoder
                    .pixels_of_columns(&file, &header, [rows.clone(), cols.clone()], &mut scratch, &mut out)
                    .unwrap();
                let pitch = 3 * width as usize;
                for (y, row) in rows.clone().zip(out.chunks(pitch)) {
                    let within = 3 * cols.start as usize..3 * cols.end as usize;
                    let want = &whole[y as usize * pitch..][within.clone()];
                    assert!(row[within] == *want, "{width}x{height} {rows:?} {cols:?} {:?}", SAMPLINGS[n % 4]);
                }
            }
        }
    }
    let file = file(9, 9, 80, SAMPLINGS[0], |_| {});
    let header = Header::parse(&file).unwrap();
    let error = Decoder::new().pixels_of_columns(&file, &header, [0..9, 0..10], &mut Scratch::default(), &mut [0; 243]);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Misuse);
}

#[test]
fn no_columns_are_no_error_wherever_they_are() {
    // Found by fuzzing: of the last unit, a single value of colour is held, which has no neighbour.
    let mut scratch = Scratch::default();
    for (width, sampling) in (16..=20).flat_map(|width| SAMPLINGS.map(|sampling| (width, sampling))) {
        let file = file(5, width, 80, sampling, |_| {});
        let header = Header::parse(&file).unwrap();
        for col in 0..=width {
            let mut out = vec![0; header.len_bytes(&(1..4)) as usize];
            Decoder::new().pixels_of_columns(&file, &header, [1..4, col..col], &mut scratch, &mut out).unwrap();
        }
    }
}

#[test]
fn a_window_that_ends_before_it_starts_is_not_damage_with_an_index() {
    // Found by fuzzing: units were skipped twice, beyond the end of the data.
    let file = file(20, 33, 90, SamplingFactor::F_1_1, |_| {});
    let header = Header::parse(&file).unwrap();
    let index = Index::new(1 << 20);
    let mut scratch = Scratch::default();
    #[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
    let windows = [
        (0..29, 0..42, 1),
        (7..21, 10..31, 2),
        (0..4, 0..6, 4),
        (22..29, 42..1, 8),
        (19..3, 30..2, 1),
        (9..9, 9..9, 2),
    ];
    for (rows, cols, scale) in windows {
        let window = Window::new(&header, rows, cols).at_scale(scale);
        for decoder in [Decoder::new(), Decoder::new().index(index.clone())] {
            let planes = decoder.planes(&file, &header, &window, &mut scratch, &mut Vec::new());
            assert!(planes.is_ok(), "{window:?}: {planes:?}");
        }
    }
}
