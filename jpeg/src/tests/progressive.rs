//! Progressive files with any scan script give the pixels of baseline files with the same coefficients; damage is an
//! error.

use std::ops::Range;

use super::{
    windows,
    writer::{FACTORS, Picture, Scan, any_script, photo_like, usual_script},
};
use crate::{
    Decoder, Error, ErrorKind, Header, Index, Level, Result, Scratch, Window,
    draws::Draws,
    header::{DHT, EOI, SOS, next_marker, segment},
    index::{Points, Spacing},
};

/// The sampling factors of files that have planes.
const PLANES: usize = 12;

/// An image of any size, and the scans of a file.
pub(super) struct Drawn {
    draws: Draws,
    factors: &'static [u8],
    picture: Picture,
    script: Vec<Scan>,
}

impl Drawn {
    fn new(key: u64) -> Self {
        Self::of(key, PLANES)
    }

    /// Also of files without planes.
    pub(super) fn any(key: u64) -> Self {
        Self::of(key, FACTORS.len())
    }

    fn of(key: u64, kinds: usize) -> Self {
        let mut draws = Draws::new([key, 7, 7]);
        let factors = FACTORS[draws.below(kinds as u64) as usize];
        let [height, width] = [0; 2].map(|_| 1 + draws.below(70) as usize);
        let picture = photo_like(&mut draws, height, width, factors);
        let script = if key.is_multiple_of(4) { usual_script(factors) } else { any_script(&mut draws, factors) };
        Self { draws, factors, picture, script }
    }

    fn baseline(&mut self) -> Vec<u8> {
        self.picture.baseline(self.draws.below(5) as u16, None)
    }

    pub(super) fn blocks_of_a_unit(&self) -> u8 {
        // The factors of a single component do not count.
        if self.factors.len() == 1 { 1 } else { self.factors.iter().map(|f| (f >> 4) * (f & 15)).sum() }
    }

    /// With usual tables, or odd ones.
    pub(super) fn progressive(&mut self) -> Vec<u8> {
        let odd = self.draws.below(2) == 0;
        self.picture.progressive(&self.script, odd.then_some(&mut self.draws))
    }

    /// The number of scans that an image needs at least: until all components have first coefficients.
    fn least(&self) -> usize {
        let first = |n| self.script.iter().position(|scan| scan.components.contains(&n)).unwrap();
        (0..self.factors.len()).map(first).max().unwrap() + 1
    }
}

/// A small colour image with few scans.
pub(super) fn small() -> Picture {
    let mut picture = photo_like(&mut Draws::new([8, 8, 8]), 21, 35, &[0x22, 0x11, 0x11]);
    // Coefficients in all bands.
    picture.components.iter_mut().flat_map(|c| &mut c.blocks).for_each(|block| block[8..].fill(-5));
    picture
}

/// For each scan, the byte of its marker and the range of its data.
fn scans(file: &[u8]) -> Vec<(usize, Range<usize>)> {
    let (mut found, mut at) = (Vec::<(usize, Range<usize>)>::new(), 2);
    loop {
        let (place, marker) = next_marker(file, at).unwrap();
        at = place + 2;
        if matches!(marker, 0xd0..=0xd7) {
            continue;
        }
        if let Some((_, data)) = found.last_mut().filter(|(_, data)| data.end == 0) {
            data.end = place;
        }
        if marker == EOI {
            return found;
        }
        at += segment(file, at).unwrap().len();
        if marker == SOS {
            found.push((place, at..0));
        }
    }
}

/// Checks that the error is damage, at a byte of the file or at its end.
fn assert_damaged(error: &Error, file: &[u8]) {
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.offset().is_some_and(|at| at <= file.len()), "{error}: {:?} of {}", error.offset(), file.len());
}

#[test]
fn files_of_any_script_give_the_pixels_of_a_baseline_file() {
    for key in 0..160 {
        let mut drawn = Drawn::new(key);
        let (baseline, file) = (drawn.baseline(), drawn.progressive());
        let expected = Decoder::new().decode(&baseline).unwrap();
        for level in [Level::Best, Level::Portable] {
            let found = Decoder::new().level(level).decode(&file).unwrap();
            assert!(found == expected, "{key}: {:x?} {level:?} {:?}", drawn.factors, drawn.script);
        }
    }
}

/// The pixels of a window.
fn pixels(decoder: &Decoder, file: &[u8], window: &Window, scratch: &mut Scratch) -> Result<Vec<u8>> {
    let header = Header::parse(file)?;
    let Window { rows, cols, .. } = window;
    let mut out = vec![7; header.len_bytes(rows) as usize];
    decoder.pixels_of_columns(file, &header, [rows.clone(), cols.clone()], scratch, &mut out)?;
    let each = header.channels();
    let within = each * cols.start as usize..each * cols.end as usize;
    Ok(out.chunks(each * header.width() as usize).flat_map(|row| &row[within.clone()]).copied().collect())
}

/// For a plane: its step, the rows and columns that are held, and those of its values that are inside the image.
type Held = ([u32; 2], [Range<u32>; 2], Vec<u8>);

fn planes(decoder: &Decoder, file: &[u8], window: &Window, scratch: &mut Scratch) -> Result<Vec<Held>> {
    let header = Header::parse(file)?;
    let mut data = Vec::new();
    let planes = decoder.planes(file, &header, window, scratch, &mut data)?;
    let held = |plane: &crate::Plane| {
        let [height, width] = [header.height().div_ceil(plane.step[0]), header.width().div_ceil(plane.step[1])];
        let cols = width.saturating_sub(plane.cols.start).min(plane.cols.len() as u32) as usize;
        let rows = plane.rows.start..plane.rows.end.min(height);
        let values = rows.flat_map(|y| &plane.row(&data, y)[..cols]).copied().collect();
        (plane.step, [plane.rows.clone(), plane.cols.clone()], values)
    };
    Ok(planes.as_slice().iter().map(held).collect())
}

#[test]
fn windows_are_those_of_a_baseline_file_whatever_was_decoded_before() {
    let (mut scratch, mut other) = (Scratch::default(), Scratch::default());
    let index = Index::new(1 << 20);
    let decoders = [Decoder::new(), Decoder::new().index(index), Decoder::new().strict(true)];
    for key in 200..280 {
        let mut drawn = Drawn::new(key);
        let (baseline, file) = (drawn.baseline(), drawn.progressive());
        let header = Header::parse(&file).unwrap();
        assert!(header.is_progressive() && header.has_planes(), "{:x?}", drawn.factors);
        for (n, window) in windows(&header, key).take(4).enumerate() {
            let decoder = &decoders[n % 3];
            // An error must not affect the next decode.
            let mut bad = file.clone();
            let data = scans(&file).pop().unwrap().1;
            bad.truncate(data.start + drawn.draws.below(data.len() as u64 + 1) as usize);
            assert!(planes(decoder, &bad, &window, &mut scratch).is_err());
            let words = || format!("{key}: {:x?} {window:?} {:?}", drawn.factors, drawn.script);
            let expected = planes(&Decoder::new(), &baseline, &window, &mut other).unwrap();
            assert!(planes(decoder, &file, &window, &mut scratch).unwrap() == expected, "planes of {}", words());
            assert!(pixels(decoder, &bad, &window, &mut scratch).is_err());
            let expected = pixels(&Decoder::new(), &baseline, &window, &mut other).unwrap();
            assert!(pixels(decoder, &file, &window, &mut scratch).unwrap() == expected, "pixels of {}", words());
        }
    }
}

#[test]
fn what_the_scans_leave_out_is_zero() {
    for key in 300..400 {
        let mut drawn = Drawn::new(key);
        let more = (drawn.script.len() - drawn.least()) as u64;
        let count = drawn.least() + drawn.draws.below(more + 1) as usize;
        drawn.script.truncate(count);
        let expected = Decoder::new().decode(&drawn.picture.known(&drawn.script).baseline(0, None)).unwrap();
        let found = Decoder::new().decode(&drawn.progressive()).unwrap();
        assert!(found == expected, "{key}: {:x?} {:?}", drawn.factors, drawn.script);
    }
}

#[test]
fn runs_are_as_long_as_they_may_be() {
    // More blocks without coefficients than one code can represent.
    let mut picture = photo_like(&mut Draws::new([6, 6, 6]), 1456, 1456, &[0x11]);
    let blocks = &mut picture.components[0].blocks;
    assert!(blocks.len() > 0x7fff + 300);
    blocks.iter_mut().for_each(|block| block[1..].fill(0));
    for at in [3, 0x7fff + 200] {
        blocks[at][1..].fill(-3);
        blocks[at][8] = 200;
    }
    let file = picture.progressive(&usual_script(&[0x11]), None);
    let expected = Decoder::new().decode(&picture.baseline(0, None)).unwrap();
    assert!(Decoder::new().decode(&file).unwrap() == expected);
}

#[test]
fn a_file_that_is_cut_anywhere_is_damaged() {
    let picture = small();
    let mut scratch = Scratch::default();
    for mut script in [usual_script(&[0x22, 0x11, 0x11]), any_script(&mut Draws::new([4, 4, 4]), &[0x22, 0x11, 0x11])] {
        script[0].restart = 2;
        let file = picture.progressive(&script, None);
        let header = Header::parse(&file).unwrap();
        assert!(header.is_whole(&file));
        let expected = Decoder::new().decode(&file).unwrap();
        for len in 0..file.len() {
            let cut = &file[..len];
            assert_damaged(&Decoder::new().decode(cut).unwrap_err(), cut);
            let Ok(header) = Header::parse(cut) else { continue };
            assert!(!header.is_whole(cut));
            // For any window.
            let window = Window::new(&header, 0..1, 0..1).at_scale(8);
            assert_damaged(&planes(&Decoder::new(), cut, &window, &mut scratch).unwrap_err(), cut);
        }
        // Bytes after the end marker are ignored.
        assert_eq!(Decoder::new().decode(&[&file[..], b"\xff\xd8\xff"].concat()).unwrap(), expected);
    }
}

#[test]
fn a_file_that_is_cut_shows_the_scans_before_the_cut_if_asked() {
    for key in 400..430 {
        let mut drawn = Drawn::new(key);
        let file = drawn.progressive();
        let filling = Decoder::new().fill(true);
        let found = scans(&file);
        for _ in 0..5 {
            let start = found[0].1.start as u64;
            let len = start + drawn.draws.below(file.len() as u64 - start);
            let image = filling.decode(&file[..len as usize]);
            assert!(image.is_ok(), "{key}, {len} of {} bytes: {image:?}", file.len());
        }
        let count = drawn.least() + drawn.draws.below((found.len() - drawn.least()) as u64 + 1) as usize;
        let known = drawn.picture.known(&drawn.script[..count]);
        let expected = Decoder::new().decode(&known.baseline(0, None)).unwrap();
        let image = filling.decode(&file[..found[count - 1].1.end]).unwrap();
        assert!(image == expected, "{key}: {:x?} {count} of {:?}", drawn.factors, drawn.script);
    }
}

#[test]
fn scans_that_do_not_add_to_each_other_are_damage() {
    let picture = small();
    let usual = usual_script(&[0x22, 0x11, 0x11]);
    // A change of a script, which of the scans is then wrong, and why.
    type Change = fn(&mut Vec<Scan>);
    let (none, other) = ("its component has no first coefficients yet", "the scans before it omit other bits");
    let (no_scan, bits) = ("a progressive file can't have such a scan", "a scan adds all bits or one bit");
    let changes: [(Change, usize, &str); 15] = [
        (|s| _ = s.remove(0), 0, none),
        (|s| s[0].components = vec![1, 2], 1, none),
        (|s| _ = s.remove(4), 4, other),
        (|s| s.swap(0, 1), 0, none),
        (|s| s.swap(1, 5), 1, other),
        (|s| s.insert(1, s[0].clone()), 1, other),
        (|s| s.push(s[9].clone()), 10, other),
        (|s| s[5].bits = [1, 0], 5, other),
        (|s| s[3].band = [0, 5], 3, no_scan),
        (|s| s[3].band = [5, 3], 3, no_scan),
        (|s| s[3].band = [1, 64], 3, no_scan),
        (|s| s[3].components = vec![1, 2], 3, no_scan),
        (|s| s[0].bits = [0, 14], 0, bits),
        (|s| s[5].bits = [3, 1], 5, bits),
        (|s| s[5].bits = [1, 1], 5, bits),
    ];
    let mut scratch = Scratch::default();
    for (n, (change, wrong, why)) in changes.into_iter().enumerate() {
        let mut script = usual.clone();
        change(&mut script);
        let file = picture.progressive(&script, None);
        let place = scans(&file)[wrong].0;
        let window = Window::new(&Header::parse(&file).unwrap(), 0..1, 0..1);
        for error in [
            Decoder::new().decode(&file).unwrap_err(),
            planes(&Decoder::new().strict(true), &file, &window, &mut scratch).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.offset()), (ErrorKind::Damaged, Some(place)), "{n}: {error}");
            let (text, marker) = (error.to_string(), format!("{why} (FF DA at byte {place})"));
            assert!(text.ends_with(&marker), "{n}: {text}");
        }
    }
    // Missing colour is detected at the end.
    let mut script = usual;
    script.retain(|scan| !scan.components.contains(&2));
    script.insert(0, Scan { components: vec![0, 1], band: [0, 0], bits: [0, 0], restart: 0 });
    let file = picture.progressive(&script, None);
    let error = Decoder::new().decode(&file).unwrap_err();
    assert_eq!(error.to_string(), format!("JPEG lacks a scan (FF D9 at byte {})", file.len() - 2));
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Damaged, Some(file.len() - 2)));
}

#[test]
fn a_table_of_the_last_image_is_none_of_a_progressive_one() {
    let good = small().progressive(&usual_script(&[0x22, 0x11, 0x11]), None);
    let mut bad = good.clone();
    let table = good.windows(2).position(|pair| pair == [0xff, DHT]).unwrap();
    bad[table + 1] = 0xfe;
    let mut scratch = Scratch::default();
    let all = Window::of_rows(&Header::parse(&good).unwrap(), 0..21);
    let expected = pixels(&Decoder::new(), &good, &all, &mut scratch).unwrap();
    let error = pixels(&Decoder::new(), &bad, &all, &mut scratch).unwrap_err();
    assert!(error.to_string().contains("JPEG lacks Huffman table "), "{error}");
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Damaged, Some(scans(&bad)[0].0)));
    assert!(pixels(&Decoder::new(), &good, &all, &mut scratch).unwrap() == expected);
}

#[test]
fn kinds_that_are_not_read_are_named() {
    // A scan for each coefficient, and more that each add a bit: only an attack has so many.
    let picture = photo_like(&mut Draws::new([5, 5, 5]), 20, 20, &[0x11]);
    let scan = |at, bits| Scan { components: vec![0], band: [at; 2], bits, restart: 0 };
    let mut script: Vec<Scan> = (0..64).map(|at| scan(at, [0, 1])).collect();
    script.extend((0..37).map(|at| scan(at, [1, 0])));
    let file = picture.progressive(&script, None);
    let error = Decoder::new().decode(&file).unwrap_err();
    assert_eq!((error.kind(), error.offset()), (ErrorKind::Unsupported, Some(scans(&file)[100].0)), "{error}");
    script.truncate(100);
    let expected = Decoder::new().decode(&picture.known(&script).baseline(0, None)).unwrap();
    let mut file = picture.progressive(&script, None);
    assert!(Decoder::new().decode(&file).unwrap() == expected);

    let frame = file.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap();
    file[frame + 4] = 12;
    let error = Decoder::new().decode(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("12 bits"), "{error}");
}

#[test]
fn damaged_data_gives_pixels_or_an_error_that_names_a_byte() {
    let mut scratch = Scratch::default();
    let mut refused = 0;
    for key in 500..530 {
        let mut drawn = Drawn::new(key);
        let file = drawn.progressive();
        let places: Vec<usize> = scans(&file).into_iter().flat_map(|(_, data)| data).collect();
        let window = windows(&Header::parse(&file).unwrap(), key).next().unwrap();
        for n in 0..100 {
            let mut bad = file.clone();
            let mut has_markers = false;
            for _ in 0..=n % 3 {
                let at = places[drawn.draws.below(places.len() as u64) as usize];
                bad[at] = if n % 4 == 0 { 0xff } else { drawn.draws.below(256) as u8 };
                // A marker in the data may have any effect.
                has_markers |= bad[at] == 0xff || bad[at - 1] == 0xff;
            }
            for found in [
                pixels(&Decoder::new(), &bad, &window, &mut scratch).map(|_| ()),
                planes(&Decoder::new().strict(n % 2 == 0), &bad, &window, &mut scratch).map(|_| ()),
            ] {
                let Err(error) = found else { continue };
                refused += 1;
                if has_markers {
                    assert!(matches!(error.kind(), ErrorKind::Damaged | ErrorKind::Unsupported), "{error}");
                    assert!(error.offset().is_some_and(|at| at <= bad.len()), "{error}");
                } else {
                    assert_damaged(&error, &bad);
                }
            }
            let filled = pixels(&Decoder::new().fill(true), &bad, &window, &mut scratch);
            assert!(has_markers || filled.is_ok(), "{key}, {n}: {filled:?}");
        }
        // Nothing of it may remain.
        let baseline = drawn.baseline();
        let found = planes(&Decoder::new(), &file, &window, &mut scratch).unwrap();
        assert!(found == planes(&Decoder::new(), &baseline, &window, &mut Scratch::default()).unwrap(), "{key}");
    }
    assert!((500..5900).contains(&refused), "{refused} of 6000");
}

/// The data between markers, including restart markers.
fn intervals(file: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (_, Range { mut start, end }) in scans(file) {
        while start <= end {
            let (marker, _) = next_marker(file, start).unwrap();
            found.push(start..marker);
            start = marker + 2;
        }
    }
    found
}

#[test]
fn a_scan_that_ends_early_is_damage() {
    for key in 600..660 {
        let mut drawn = Drawn::new(key);
        let file = drawn.progressive();
        let found = intervals(&file);
        let Range { start, end } = found[drawn.draws.below(found.len() as u64) as usize];
        let from = start + drawn.draws.below((end - start) as u64) as usize;
        let shorter = [&file[..from], &file[end..]].concat();
        assert_damaged(&Decoder::new().decode(&shorter).unwrap_err(), &shorter);
        let filled = Decoder::new().fill(true).decode(&shorter);
        assert!(filled.is_ok(), "{key}: {filled:?}");
    }
}

#[test]
fn bytes_behind_the_last_block_of_a_scan_are_damage_if_asked() {
    let strict = Decoder::new().strict(true);
    for key in 700..760 {
        let mut drawn = Drawn::new(key);
        let file = drawn.progressive();
        let expected = Decoder::new().decode(&file).unwrap();
        assert!(strict.decode(&file).unwrap() == expected, "{key}");
        let found = intervals(&file);
        let end = found[drawn.draws.below(found.len() as u64) as usize].end;
        let longer = [&file[..end], &[0x12, 0x34], &file[end..]].concat();
        assert!(Decoder::new().decode(&longer).unwrap() == expected, "{key}");
        assert_damaged(&strict.decode(&longer).unwrap_err(), &longer);
        // Only a window is decoded, but all data is checked.
        let window = windows(&Header::parse(&longer).unwrap(), key).next().unwrap();
        let error = planes(&strict, &longer, &window, &mut Scratch::default()).unwrap_err();
        assert_damaged(&error, &longer);
    }
}

/// A tall image, so that rows of units have their own points.
fn tall(key: u64, factors: &'static [u8]) -> (Picture, Vec<u8>) {
    let mut draws = Draws::new([key, 3, 1]);
    let picture = photo_like(&mut draws, 400, 900, factors);
    let script = if key.is_multiple_of(2) { usual_script(factors) } else { any_script(&mut draws, factors) };
    let script: Vec<_> = script.into_iter().map(|scan| Scan { restart: 0, ..scan }).collect();
    let file = picture.progressive(&script, None);
    (picture, file)
}

#[test]
fn what_is_known_of_a_progressive_file_changes_no_pixel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    for (key, factors) in (0..).zip([&[0x11][..], &[0x11, 0x11, 0x11], &[0x22, 0x11, 0x11], &[0x12, 0x21, 0x11]]) {
        let (_, file) = tall(key, factors);
        let header = Header::parse(&file).unwrap();
        let index = Index::new(1 << 20);
        let indexed = Decoder::new().index(index.clone());
        let (mut with, mut without) = (Scratch::default(), Scratch::default());
        let mut compare = |decoder: &Decoder, seed: u64| {
            for window in windows(&header, seed).take(12) {
                let expected = planes(&Decoder::new(), &file, &window, &mut without).unwrap();
                assert!(planes(decoder, &file, &window, &mut with).unwrap() == expected, "{factors:x?} {window:?}");
            }
        };
        compare(&indexed, key);
        assert_eq!(index.len(), 1, "{factors:x?}");
        index.save(&path).unwrap();
        // As stored, and with points added later.
        compare(&Decoder::new().index(Index::open(&path, 1 << 20).unwrap()), key + 9);
        std::fs::remove_file(&path).unwrap();
        // A budget for few rows, and then for none.
        compare(&Decoder::new().index(Index::new(index.bytes() / 2)), key);
    }
}

#[test]
fn all_rows_of_a_progressive_file_are_known_once_it_was_learned() {
    let (_, file) = tall(0, &[0x22, 0x11, 0x11]);
    let points = |index: &Index, scans: usize| {
        let mut points = Points::default();
        index.find(Index::key(&file), Spacing::of_scans(scans).units(), false, &mut points);
        points.len()
    };
    let count = scans(&file).len();
    let (index, seen) = (Index::new(1 << 20), Index::new(1 << 20));
    Decoder::new().index(index.clone()).learn(&file, &mut Scratch::default()).unwrap();
    // 25 rows of 57 units of six blocks: a point for each row, and one after the last.
    assert_eq!(points(&index, count), 26 * count);
    // A window records the rows above it. A window at an eighth reads too few of the scans.
    let header = Header::parse(&file).unwrap();
    let window = Window::new(&header, 100..200, 300..400);
    let mut scratch = Scratch::default();
    planes(&Decoder::new().index(seen.clone()), &file, &window.clone().at_scale(8), &mut scratch).unwrap();
    assert_eq!(points(&seen, count), 0);
    planes(&Decoder::new().index(seen.clone()), &file, &window, &mut scratch).unwrap();
    assert_eq!(points(&seen, count), 14 * count);
    // Files with restart markers do not use it.
    let (picture, _) = tall(0, &[0x22, 0x11, 0x11]);
    let script: Vec<_> =
        usual_script(&[0x22, 0x11, 0x11]).into_iter().map(|scan| Scan { restart: 50, ..scan }).collect();
    let restarts = Index::new(1 << 20);
    Decoder::new().index(restarts.clone()).learn(&picture.progressive(&script, None), &mut Scratch::default()).unwrap();
    assert!(restarts.is_empty());
}

#[test]
fn an_index_that_lies_about_a_progressive_file_is_not_believed() {
    let (_, file) = tall(0, &[0x22, 0x11, 0x11]);
    let header = Header::parse(&file).unwrap();
    let spacing = Spacing::of_scans(scans(&file).len());
    let mut draws = Draws::new([1, 0, 0]);
    let mut out = Scratch::default();
    for n in 0..100 {
        let index = Index::new(1 << 20);
        index.lie(&file, (26 * spacing.a_row as usize, spacing), 0, || draws.bits() >> (n % 40));
        for window in windows(&header, n).take(2) {
            // Any pixels or an error: the promise is that it ends, within bounds.
            let _ = planes(&Decoder::new().index(index.clone()), &file, &window, &mut out);
        }
    }
}
