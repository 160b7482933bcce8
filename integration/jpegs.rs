//! JPEGs that are damaged on purpose: whatever becomes of them is the same at each level and in each way of decoding,
//! and equals what the plain decoder makes of them.

use infeed::{
    ErrorKind,
    codec::{ImageCodec, Jpeg, PixelBuffer},
    dataset::SampleRng,
};
use jpeg_encoder::{ColorType, SamplingFactor};

use crate::{
    codecs::Made,
    support::{
        Draws, cases,
        jpeg_check::{Checked, check},
        jpeg_writer::{FACTORS, Scan, any_script, photo_like, usual_script},
        plain_jpeg::{self, Refused},
    },
};

/// Images of damaged headers may be large; these are skipped.
const MOST_BYTES: u64 = 1 << 20;

/// What is said of components that are no whole part of the finest.
const FRACTIONS: &str = "a sampling factor of 3 with one of 2 or 4";

/// Small files of each kind, so that the headers are a good part of them.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let made = |height, width, sampling| Made::new(height, width, sampling);
    let (full, half, quarter) = (SamplingFactor::F_1_1, SamplingFactor::F_2_1, SamplingFactor::F_2_2);
    vec![
        ("4:4:4", made(16, 11, full).noisy()),
        ("4:2:2, restarts", Made { restarts: 1, ..made(13, 40, half) }.noisy()),
        ("4:2:0", made(19, 33, quarter).noisy()),
        ("4:1:1, three scans", made(10, 35, SamplingFactor::F_4_1).noisy()),
        ("gray, restarts", Made { restarts: 2, colour: ColorType::Luma, ..made(20, 25, full) }.noisy()),
        ("progressive", Made { progressive: true, ..made(17, 18, quarter) }.noisy()),
        ("ink", Made { colour: ColorType::CmykAsYcck, ..made(9, 17, full) }.noisy()),
    ]
}

#[test]
fn whole_files_are_those_of_the_plain_decoder() {
    let mut compared = 0;
    for (name, file) in files() {
        let Checked { whole, plain, .. } = check(&file, MOST_BYTES).expect("small").expect("whole");
        let plain = plain.unwrap();
        assert!(plain.tame && plain.pixels == whole.unwrap(), "{name}");
        compared += 1;
    }
    assert_eq!(compared, 7);
}

/// A file of noise in one scan, by hand: the encoder at hand does not make any sampling factors. Two codes for first
/// coefficients, two for the others.
fn by_hand(factors: [u8; 3], size: [u16; 2], seed: u64) -> Vec<u8> {
    by_hand_as(0xc0, factors, size, seed)
}

/// The same with another frame: of a progressive file (C2), one scan of first coefficients.
fn by_hand_as(frame: u8, factors: [u8; 3], [height, width]: [u16; 2], seed: u64) -> Vec<u8> {
    let mut file = vec![0xff, 0xd8, 0xff, 0xdb, 0, 67, 0];
    file.extend([4; 64]);
    file.extend([0xff, frame, 0, 17, 8]);
    file.extend([height, width].map(u16::to_be_bytes).as_flattened());
    file.push(3);
    file.extend((1..).zip(factors).flat_map(|(id, factors)| [id, factors, 0]));
    for (class, symbols) in [(0x00, [0, 6]), (0x10, [0, 4])] {
        file.extend([0xff, 0xc4, 0, 21, class, 1, 1]);
        file.extend([0; 14]);
        file.extend(symbols);
    }
    let progressive = frame == 0xc2;
    file.extend([0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, if progressive { 0 } else { 63 }, 0]);
    let most = |shift: u32| factors.iter().map(|f| u16::from(f >> shift & 15)).max().unwrap_or(1);
    let units = u32::from(height.div_ceil(8 * most(0))) * u32::from(width.div_ceil(8 * most(4)));
    let blocks: u32 = factors.iter().map(|f| u32::from((f >> 4) * (f & 15))).sum();
    let mut draws = SampleRng::new(12, seed, 0).op(0);
    let mut bits = String::new();
    let mut value = |bits: &mut String, size: usize| *bits += &format!("{:0size$b}", draws.below(1 << size));
    for _ in 0..units * blocks {
        bits.push_str("10");
        value(&mut bits, 6);
        if progressive {
            continue;
        }
        for _ in 0..3 {
            bits.push_str("10");
            value(&mut bits, 4);
        }
        bits.push('0');
    }
    bits += &"1".repeat(7);
    for byte in bits.as_bytes().as_chunks::<8>().0 {
        let byte = byte.iter().fold(0, |byte, bit| byte << 1 | (bit - b'0'));
        file.push(byte);
        if byte == 0xff {
            file.push(0);
        }
    }
    file.extend([0xff, 0xd9]);
    file
}

#[test]
fn any_sampling_gives_the_pixels_of_the_plain_decoder() {
    // Found in a public suite: a first component that is not the widest.
    // Thirds are what `cjpeg -sample 3x1` writes.
    let factors = [0x11, 0x12, 0x21, 0x22, 0x14, 0x41, 0x31, 0x13];
    let (mut compared, mut left, mut fractions) = (0, 0, 0);
    for n in 0..512 {
        let [a, b, c] = [n / 64, n / 8 % 8, n % 8].map(|i| factors[i]);
        let size = [[40, 50], [17, 9], [3, 70], [33, 4]][n % 4];
        let has = |factor: u8| [a, b, c].iter().any(|f| f >> 4 == factor || f & 15 == factor);
        if has(3)
            && [0, 4].iter().any(|shift| {
                let across = [a, b, c].map(|f| f >> shift & 15);
                let most = *across.iter().max().unwrap();
                across.iter().any(|f| most % f > 0)
            })
        {
            // No whole part: libjpeg refuses these, too.
            let error = check(&by_hand([a, b, c], size, n as u64), MOST_BYTES).expect("small").map(drop).unwrap_err();
            assert!(error.kind() == ErrorKind::Unsupported && error.to_string().contains(FRACTIONS), "{error}");
            fractions += 1;
            continue;
        }
        let Checked { whole, plain, .. } =
            check(&by_hand([a, b, c], size, n as u64), MOST_BYTES).expect("small").expect("a header");
        let whole = whole.unwrap_or_else(|e| panic!("{a:x} {b:x} {c:x}: {e:#}"));
        let plain = plain.unwrap_or_else(|e| panic!("{a:x} {b:x} {c:x}: {e:?}"));
        // `check` has compared them, if so.
        compared += usize::from(plain.tame && plain.pixels == whole);
        left += usize::from(!plain.tame);
    }
    assert!(compared + fractions == 512 && compared > 300 && left == 0, "{compared}, {left}, {fractions}");
}

#[test]
fn rare_kinds_are_decoded_unless_they_have_fractions() {
    let fractions = [[0x31, 0x21, 0x11], [0x21, 0x31, 0x11], [0x12, 0x13, 0x11]];
    for (frame, factors) in [0xc0, 0xc2].into_iter().flat_map(|frame| fractions.map(|factors| (frame, factors))) {
        let file = by_hand_as(frame, factors, [24, 48], 1);
        let error = Jpeg::new().info(&file).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{factors:x?}: {error}");
        let scan = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
        let words = format!("{FRACTIONS} (FF DA at byte {scan})");
        assert!(error.to_string().contains(&words), "{error}");
    }
    let same = |name: &str, file: &[u8]| {
        let Checked { whole, plain, .. } = check(file, MOST_BYTES).expect("small").expect("a header");
        let plain = plain.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        assert!(plain.tame && plain.pixels == whole.unwrap(), "{name}");
    };
    let progressive = [
        [0x11, 0x11, 0x11],
        [0x22, 0x11, 0x11],
        [0x41, 0x11, 0x11],
        [0x31, 0x11, 0x11],
        [0x13, 0x11, 0x33],
        [0x11, 0x22, 0x21],
        [0x12, 0x41, 0x14],
    ];
    for factors in progressive {
        same(&format!("{factors:x?}"), &by_hand_as(0xc2, factors, [24, 48], 1));
    }
    // Its black alone is fine.
    for progressive in [false, true] {
        let ink = Made { colour: ColorType::Cmyk, progressive, ..Made::new(24, 48, SamplingFactor::F_2_2) };
        same("ink", &ink.noisy());
    }
}

#[test]
fn every_truncation_is_an_error_that_says_where() {
    for (name, file) in files() {
        let mut errors = 0;
        for length in 0..file.len() {
            match check(&file[..length], MOST_BYTES).expect("small") {
                Err(_) | Ok(Checked { whole: Err(_), .. }) => errors += 1,
                // The end marker, and bits that only fill up the last byte.
                Ok(_) => assert!(length + 3 >= file.len(), "{name}: {length} of {} bytes", file.len()),
            }
        }
        assert!(errors + 3 >= file.len(), "{name}: {errors} of {}", file.len());
    }
}

#[test]
fn lengths_of_segments_that_lie_are_found_out() {
    for (name, file) in files() {
        let (mut at, mut lies) = (2, 0);
        while file[at + 1] != 0xda {
            let length = u16::from_be_bytes([file[at + 2], file[at + 3]]);
            let others = [0, 1, 2, 3, 8, 0x7fff, 0xffff, length - 1, length + 1, length - 2, length + 2, 2 * length];
            for other in others {
                let mut file = file.clone();
                file[at + 2..at + 4].copy_from_slice(&other.to_be_bytes());
                let checked = check(&file, MOST_BYTES);
                if other < 2 {
                    let error = checked.expect("small").map(drop).expect_err(name).to_string();
                    let words = format!("a segment of {other} bytes (FF {:02X} at byte {at})", file[at + 1]);
                    assert!(error.contains(&words), "{name}: {error}");
                }
                lies += 1;
            }
            at += 2 + usize::from(length);
        }
        assert!(lies > 36, "{name}: {lies}");
    }
}

#[test]
fn damaged_files_are_treated_alike_at_each_level() {
    let rounds = if std::env::var_os("INFEED_SLOW_TESTS").is_some() { 10_000 } else { 250 };
    let (mut good, mut bad) = (0, 0);
    for (kind, (_, file)) in files().iter().enumerate() {
        for round in 0..rounds {
            let mut draws = SampleRng::new(11, kind as u64, round).op(0);
            let mut file = file.clone();
            for _ in 0..=draws.below(3) {
                let at = draws.below(file.len() as u64) as usize;
                match draws.below(6) {
                    0 => file[at] ^= 1 << draws.below(8),
                    1 => file[at] = draws.bits() as u8,
                    2 => file[at] = 0xff,
                    3 => drop(file.remove(at)),
                    4 => file.insert(at, draws.bits() as u8),
                    _ => {
                        // A piece of it once more somewhere else.
                        let piece = file[at..file.len().min(at + 1 + draws.below(40) as usize)].to_vec();
                        let to = draws.below(file.len() as u64) as usize;
                        file.splice(to..to, piece);
                    }
                }
            }
            match check(&file, MOST_BYTES) {
                Some(Ok(Checked { whole: Ok(_), .. })) => good += 1,
                _ => bad += 1,
            }
        }
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}

#[test]
fn frames_of_motion_jpeg_have_the_standard_tables() {
    // The encoder at hand writes them unless it is asked for better ones.
    for sampling in [SamplingFactor::F_1_1, SamplingFactor::F_2_2] {
        let file = Made::new(40, 30, sampling).noisy();
        let mut without = file.clone();
        while let Some(at) = without.windows(2).position(|pair| pair == [0xff, 0xc4]) {
            let length = u16::from_be_bytes([without[at + 2], without[at + 3]]);
            without.drain(at..at + 2 + usize::from(length));
        }
        assert!(without.len() + 400 < file.len());
        let pixels = |file: &[u8]| check(file, MOST_BYTES).expect("small").expect("a header").whole.expect("pixels");
        assert!(pixels(&without) == pixels(&file), "{sampling:?}");
    }
}

#[test]
fn what_stands_between_the_scans_of_a_progressive_file_changes_nothing() {
    // Found by fuzzing, in another decoder: it changed its mind about colours.
    let file = Made { progressive: true, ..Made::new(40, 50, SamplingFactor::F_2_2) }.noisy();
    let pixels = |file: &[u8]| check(file, MOST_BYTES).expect("small").expect("a header").whole;
    let expected = pixels(&file).unwrap();
    let first = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap();
    let second = first + 2 + file[first + 2..].windows(2).position(|pair| pair[0] == 0xff && pair[1] >= 0xc0).unwrap();
    let adobe = |transform| [b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat();
    let cases: [(&str, Vec<u8>); 7] = [
        ("JFIF", b"\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec()),
        ("Adobe: ink", adobe(0)),
        ("Adobe: YCbCr", adobe(1)),
        ("Adobe: YCCK", adobe(2)),
        ("another Adobe segment", adobe(9)),
        ("a comment, and bytes behind it", b"\xff\xfe\0\x04hi \0\x12\xff\0junk".to_vec()),
        ("a frame header", file[file.windows(2).position(|pair| pair == [0xff, 0xc2]).unwrap()..][..19].to_vec()),
    ];
    for (name, between) in cases {
        let found = pixels(&[&file[..second], &between, &file[second..]].concat());
        assert!(found.as_ref().is_ok_and(|found| *found == expected), "{name}: {:?}", found.err());
    }
}

#[test]
fn files_of_endless_scans_are_refused() {
    let picture = photo_like(&mut Draws::new([1, 1, 1]), 60, 60, &[0x11]);
    // A scan for each coefficient, and one more: what only an attack has.
    let scan = |at, bits| Scan { components: vec![0], band: [at; 2], bits, restart: 0 };
    let all: Vec<Scan> = (0..64).map(|at| scan(at, [0, 1])).chain((0..64).map(|at| scan(at, [1, 0]))).collect();
    let decode = |file: &[u8], fill| {
        let header = Jpeg::new().header(file).unwrap();
        // However many scans there are.
        assert!(header.peak_bytes < (1 << 20) + 3 * file.len() as u64);
        Jpeg::new().fill(fill).decode(file, &header, 0..60, &mut PixelBuffer::default())
    };
    let most = picture.progressive(&all[..100], None);
    check(&most, MOST_BYTES).unwrap().unwrap().whole.unwrap();
    let place = |file: &[u8], scan: usize| {
        file.windows(2).enumerate().filter(|(_, w)| *w == [0xff, 0xda]).nth(scan - 1).unwrap().0
    };
    let long = picture.progressive(&all, None);
    let error = decode(&long, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let words = format!("JPEG with more than 100 scans (FF DA at byte {})", place(&long, 101));
    assert!(error.to_string().contains(&words), "{error}");
    // Cut off before its end, it is no better, and filling does not help.
    assert_eq!(decode(&long[..long.len() - 2], true).unwrap_err().kind(), ErrorKind::Unsupported);
    // A million scans without data: the first one that tells what is known is the last one that is looked at.
    let tiny = [0xff, 0xda, 0, 8, 1, 1, 0, 1, 1, 1];
    let file = [&most[..most.len() - 2], &tiny.repeat(1_000_000), &[0xff, 0xd9]].concat();
    let error = decode(&file, false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let few = picture.progressive(&all[..64], None);
    let file = [&few[..few.len() - 2], &tiny.repeat(1_000_000), &[0xff, 0xd9]].concat();
    let error = decode(&file, false).unwrap_err();
    let words = format!("the scans before it omit other bits (FF DA at byte {})", few.len() - 2);
    assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(&words), "{error}");
    // Filled: what there was before.
    decode(&file, true).unwrap();
}

#[test]
fn refusals_name_the_marker_and_where_it_is() {
    let file = Made::new(32, 32, SamplingFactor::F_1_1).noisy();
    let find = |file: &[u8], code| file.windows(2).position(|pair| pair == [0xff, code]).unwrap();
    let (frame, tables, scan) = (find(&file, 0xc0), find(&file, 0xc4), find(&file, 0xda));
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let restarts = Made { restarts: 4, ..Made::new(32, 32, SamplingFactor::F_1_1) }.noisy();
    let restart = find(&restarts, 0xd1);
    let without = [&restarts[..restart], &restarts[restart + 2..]].concat();
    let progressive = Made { progressive: true, ..Made::new(32, 32, SamplingFactor::F_1_1) }.noisy();
    let first = find(&progressive, 0xda);
    let scans = progressive.windows(2).filter(|pair| *pair == [0xff, 0xda]).count();
    let second = first + 2 + progressive[first + 2..].windows(2).position(|w| w[0] == 0xff && w[1] > 0).unwrap();
    let mut garbled = progressive.clone();
    // Ones are no code; the second scan stays where it is.
    garbled[first + 10..first + 16].copy_from_slice(&[0xff, 0].repeat(3));
    let four = Made::new(32, 32, SamplingFactor::F_4_1).noisy();
    let last = four.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
    let place = |code: u8, at: usize| format!(" (FF {code:02X} at byte {at})");
    let cases: Vec<(&str, Vec<u8>, ErrorKind, String)> = vec![
        ("no image", vec![0xff, 0xd8, 0xff, 0xd9], ErrorKind::Corrupt, place(0xd9, 2)),
        ("scan first", [&file[..2], &file[scan..]].concat(), ErrorKind::Corrupt, place(0xda, 2)),
        (
            "two frames",
            [&file[..tables], &file[frame..frame + 19], &file[tables..]].concat(),
            ErrorKind::Corrupt,
            place(0xc0, tables),
        ),
        ("12 bits", with(frame + 4, &[12]), ErrorKind::Unsupported, place(0xc0, frame)),
        ("lossless", with(frame + 1, &[0xc3]), ErrorKind::Unsupported, place(0xc3, frame)),
        ("hierarchical", with(frame + 1, &[0xc5]), ErrorKind::Unsupported, place(0xc5, frame)),
        ("arithmetic", with(frame + 1, &[0xc9]), ErrorKind::Unsupported, place(0xc9, frame)),
        ("arithmetic tables", with(tables + 1, &[0xcc]), ErrorKind::Unsupported, place(0xcc, tables)),
        ("no height", with(frame + 5, &[0, 0]), ErrorKind::Unsupported, place(0xc0, frame)),
        ("no width", with(frame + 7, &[0, 0]), ErrorKind::Corrupt, place(0xc0, frame)),
        ("factors", with(frame + 11, &[0x51]), ErrorKind::Corrupt, place(0xc0, frame)),
        ("empty segment", with(tables + 2, &[0, 0]), ErrorKind::Corrupt, place(0xc4, tables)),
        ("cut in tables", file[..tables + 9].to_vec(), ErrorKind::Corrupt, place(0xc4, tables)),
        ("cut before a marker", file[..tables].to_vec(), ErrorKind::Corrupt, format!("from byte {tables} on")),
        ("full tables", with(tables + 5, &[9]), ErrorKind::Corrupt, place(0xc4, tables)),
        ("scan of four", with(scan + 4, &[4]), ErrorKind::Corrupt, place(0xda, scan)),
        ("unknown component", with(scan + 5, &[77]), ErrorKind::Corrupt, place(0xda, scan)),
        ("table that is none", with(scan + 6, &[0x22]), ErrorKind::Corrupt, place(0xda, scan)),
        ("no codes", with(scan + 14, &[0xff, 0].repeat(20)), ErrorKind::Corrupt, format!("FF DA at byte {scan})")),
        ("end too early", with(file.len() - 30, &[0xff, 0xd9]), ErrorKind::Corrupt, place(0xd9, file.len() - 30)),
        ("a restart less", without.clone(), ErrorKind::Corrupt, place(0xd2, find(&without, 0xd2))),
        (
            "cut in the scan",
            file[..file.len() - 30].to_vec(),
            ErrorKind::Corrupt,
            format!("({} bytes)", file.len() - 30),
        ),
        ("cut between scans", four[..last].to_vec(), ErrorKind::Corrupt, format!("after {last} bytes")),
        ("ends between scans", [&four[..last], &[0xff, 0xd9]].concat(), ErrorKind::Corrupt, place(0xd9, last)),
        (
            "progressive, garbled",
            garbled,
            ErrorKind::Corrupt,
            format!("scan 1 of {scans}: no Huffman code at byte {}{}", first + 10, place(0xda, first)),
        ),
        (
            "progressive, a scan too short",
            [&progressive[..first + 14], &progressive[second..]].concat(),
            ErrorKind::Corrupt,
            format!("scan 1 of {scans}: a marker too early at byte {}{}", first + 14, place(0xda, first)),
        ),
        (
            "progressive, cut in the last scan",
            [&progressive[..progressive.len() - 9], &[0xff, 0xd9]].concat(),
            ErrorKind::Corrupt,
            format!("scan {scans} of {scans}: a marker too early at byte {}", progressive.len() - 9),
        ),
        (
            "progressive, cut",
            progressive[..progressive.len() - 9].to_vec(),
            ErrorKind::Corrupt,
            format!("after {} bytes", progressive.len() - 9),
        ),
    ];
    let mut out = PixelBuffer::default();
    for (name, file, kind, words) in cases {
        let info = Jpeg::new().header(&file);
        let error = info.and_then(|info| Jpeg::new().decode(&file, &info, 0..info.height, &mut out)).expect_err(name);
        assert!(error.to_string().contains(&words), "{name}: {error}, not {words}");
        assert_eq!(error.kind(), kind, "{name}: {error}");
    }
}

fn decode(codec: &Jpeg, file: &[u8]) -> infeed::Result<Vec<u8>> {
    let header = codec.header(file)?;
    let mut out = PixelBuffer::default();
    codec.decode(file, &header, 0..header.height, &mut out)?;
    Ok(out.data[..header.len_bytes() as usize].to_vec())
}

#[test]
fn scans_that_do_not_add_to_each_other_are_refused() {
    let file = Made { progressive: true, ..Made::new(40, 50, SamplingFactor::F_2_2) }.noisy();
    let scans: Vec<usize> = file.windows(2).enumerate().filter(|(_, w)| *w == [0xff, 0xda]).map(|(at, _)| at).collect();
    let places: Vec<usize> = scans.iter().map(|at| at + 5 + 2 * usize::from(file[at + 4])).collect();
    // First coefficients of each component, then bands of the others.
    let others = places.iter().position(|at| file[*at] > 0).unwrap();
    let [first, last, bits] = *file[places[others]..].first_chunk().unwrap();
    assert!(others == 3 && last >= first && bits == 0, "{others} {first} {last} {bits:x}");
    let with = |scan: usize, place: usize, value: u8| {
        let mut file = file.clone();
        file[places[scan] + place] = value;
        file
    };
    let all_or_more = "a scan adds all bits or one bit";
    let no_scan = "a progressive file can't have such a scan";
    let other = "the scans before it omit other bits";
    // Without the scan of first coefficients: what follows has nothing to add to.
    let headless = [&file[..scans[0]], &file[scans[1]..]].concat();
    let headless_at = scans[others] - (scans[1] - scans[0]);
    let cases: [(&str, Vec<u8>, &str, usize); 10] = [
        ("first and others", with(0, 1, 5), no_scan, scans[0]),
        ("a band that ends before it begins", with(others, 1, first - 1), no_scan, scans[others]),
        ("a band beyond the block", with(others, 1, 64), no_scan, scans[others]),
        ("first and others of one", with(others, 0, 0), no_scan, scans[others]),
        ("14 bits less", with(others, 2, 0x0e), all_or_more, scans[others]),
        ("two bits more", with(others, 2, 0x20), all_or_more, scans[others]),
        ("a bit more of what is exact", with(others, 2, 0x32), other, scans[others]),
        ("a bit more before the others", with(0, 2, 0x10), other, scans[0]),
        ("no first coefficients", headless, "has no first coefficients yet", headless_at),
        ("a header cut short", file[..places[0]].to_vec(), "byte", scans[0]),
    ];
    let lacking = decode(&Jpeg::new(), &[&file[..scans[1]], &[0xff, 0xd9]].concat()).unwrap_err().to_string();
    assert!(lacking.contains(&format!("JPEG lacks a scan (FF D9 at byte {})", scans[1])), "{lacking}");
    for (name, file, says, at) in cases {
        let error = decode(&Jpeg::new(), &file).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error}");
        assert!(error.to_string().contains(says), "{name}: {error}");
        if says != "byte" {
            assert!(error.to_string().contains(&format!("(FF DA at byte {at})")), "{name}: {error}");
        }
    }
    // Whole and strict.
    assert!(decode(&Jpeg::new().strict(true), &file).is_ok());
}

#[test]
fn a_strict_decoder_takes_no_data_that_its_image_does_not_use() {
    let mut compared = 0;
    for (name, file) in files() {
        let strict = Jpeg::new().strict(true);
        assert_eq!(decode(&strict, &file).unwrap(), decode(&Jpeg::new(), &file).unwrap(), "{name}: a whole file");
        let end = file.len() - 2;
        let with = |more: &[u8]| [&file[..end], more, &file[end..]].concat();
        for (more, left) in [(&[1u8, 2, 3, 4][..], 4), (&[0x55], 1), (&[0xff, 0, 7], 2)] {
            // libjpeg warns of them, and so does nobody who does not ask.
            assert!(decode(&Jpeg::new(), &with(more)).is_ok(), "{name}");
            let error = decode(&strict, &with(more)).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            let says = format!("{left} bytes are left at byte {end}, before a marker");
            assert!(error.to_string().contains(&says), "{name}: {error}");
            assert!(decode(&strict.clone().fill(true), &with(more)).is_ok(), "{name}: filled");
        }
        // Tables between scans; no scan follows these.
        let table = decode(&strict, &with(&[0xff, 0xc4, 0, 2]));
        if name == "progressive" {
            table.expect(name);
        } else {
            let error = table.expect_err(name);
            assert!(error.to_string().contains("its end marker is not there (FF C4 at byte "), "{name}: {error}");
        }
        // Whatever the window: damage below it, and left data behind an interval.
        let header = strict.header(&file).unwrap();
        let mut out = PixelBuffer::default();
        let mut bad = file.clone();
        bad.splice(end - 12..end - 4, [0xff, 0].repeat(4));
        let (mut loose, mut tight) = (0, 0);
        for file in [&bad, &with(&[1, 2, 3])] {
            let header = strict.header(file).unwrap();
            for codec in [Jpeg::new(), Jpeg::new().index(infeed::codec::DecodeIndex::new(1 << 20))] {
                loose += usize::from(codec.decode(file, &header, 0..1, &mut out).is_ok());
                tight += usize::from(codec.strict(true).decode(file, &header, 0..1, &mut out).is_err());
            }
        }
        assert!(tight == 4 && (loose > 0 || header.height < 11), "{name}: {loose} {tight}");
        compared += 1;
    }
    assert_eq!(compared, 7);
    // In the middle: behind an interval that is not the last.
    let file = Made { restarts: 2, ..Made::new(32, 64, SamplingFactor::F_1_1) }.noisy();
    let restart = file.windows(2).position(|pair| pair == [0xff, 0xd1]).unwrap();
    let more = [&file[..restart], &[9, 9], &file[restart..]].concat();
    assert!(decode(&Jpeg::new(), &more).is_ok());
    let error = decode(&Jpeg::new().strict(true), &more).unwrap_err();
    assert!(error.to_string().contains(&format!("2 bytes are left at byte {restart}")), "{error}");
}

/// A file from marker to marker: whatever follows a marker belongs to it, restarts to their scan.
fn pieces(file: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut at = 0;
    while let Some(pair) = file.get(at..at + 2) {
        let start = at;
        at += 2;
        let marker = pair[1];
        if !matches!(marker, 0xd8 | 0xd9) {
            at += usize::from(u16::from_be_bytes([file[at], file[at + 1]]));
        }
        while marker == 0xda && !matches!(file[at..], [0xff, 1..=0xcf | 0xd8.., ..]) {
            at += 1;
        }
        pieces.push(file[start..at].to_vec());
    }
    pieces
}

/// Whether the pixels of a file were compared; the error of one that is refused. `None` where it is too large to be looked at.
///
/// # Panics
/// When ours differs from level to level or from the plain one, and when an error does not say where it is.
fn compared(file: &[u8], what: &str) -> Option<Result<bool, infeed_jpeg::Error>> {
    use infeed_jpeg::{Decoder, Header, Level};

    let decode = |level| {
        let header = Header::parse(file)?;
        (header.peak_bytes() <= MOST_BYTES).then(|| Decoder::new().level(level).decode(file)).transpose()
    };
    let (best, portable) = (decode(Level::Best), decode(Level::Portable));
    let ours = match (&best, &portable) {
        (Ok(best), Ok(portable)) if best == portable => Ok(best.as_ref()?),
        (Err(best), Err(portable)) if best.to_string() == portable.to_string() => Err(best),
        _ => panic!("{what}: one level {:?}, another {:?}", best.map(drop), portable.map(drop)),
    };
    if let Err(error) = ours {
        let names = error.offset().is_some_and(|at| at <= file.len()) && error.to_string().contains("byte");
        assert!(names, "{what}: {error:?} does not say where");
    }
    let plain = plain_jpeg::decode(file);
    let tame = plain.as_ref().is_ok_and(|plain| plain.tame);
    match (plain, ours) {
        (Ok(plain), Ok(image)) => {
            let size = [plain.height, plain.width, plain.channels];
            assert_eq!(size, [image.height as usize, image.width as usize, image.channels], "{what}");
            assert!(!plain.tame || plain.pixels == image.data, "{what}: other pixels than the plain decoder's");
        }
        (Ok(_), Err(error)) => panic!("{what}: the plain decoder takes what we refuse: {error}"),
        (Err(Refused::Damage), Ok(_)) => panic!("{what}: the plain decoder refuses what we take"),
        (Err(_), _) => {}
    }
    Some(ours.map(|_| tame).map_err(Clone::clone))
}

/// Does one thing to a file.
fn damage(draws: &mut Draws, file: &mut Vec<u8>) -> &'static str {
    let below = |draws: &mut Draws, n: usize| draws.below(n as u64) as usize;
    let mut pieces = pieces(file);
    let of = |pieces: &[Vec<u8>], marker: u8| -> Vec<usize> {
        (0..pieces.len()).filter(|n| pieces[*n][1] == marker).collect()
    };
    let (scans, tables) = (of(&pieces, 0xda), of(&pieces, 0xc4));
    let scan = scans[below(draws, scans.len())];
    // Behind the scan's header, which ends with the band and the bits.
    let data = 4 + usize::from(pieces[scan][3]) - 2;
    let in_data = data + below(draws, (pieces[scan].len() - data).max(1));
    let what = match draws.below(16) {
        0 => {
            file.truncate(below(draws, file.len()));
            return "cut";
        }
        1 | 2 => {
            for _ in 0..=draws.below(3) {
                if let Some(byte) = pieces[scan].get_mut(in_data) {
                    *byte ^= 1 << draws.below(8);
                }
            }
            "bits of data"
        }
        3 => {
            if let Some(byte) = pieces[scan].get_mut(in_data) {
                *byte = draws.bits() as u8;
            }
            "a byte of data"
        }
        4 => {
            let at = below(draws, file.len());
            file[at] = if draws.below(3) == 0 { 0xff } else { draws.bits() as u8 };
            return "any byte";
        }
        5 => {
            let again = pieces[scan].clone();
            pieces.insert(scans[below(draws, scans.len())], again);
            "a scan again"
        }
        6 => {
            pieces.swap(scan, scans[below(draws, scans.len())]);
            "two scans swapped"
        }
        7 => {
            pieces.remove(scan);
            "a scan less"
        }
        8 => {
            let place = data - 1 - below(draws, 3);
            pieces[scan][place] = match draws.below(3) {
                0 => draws.below(64) as u8,
                1 => pieces[scan][place].wrapping_add(1),
                _ => (draws.below(4) << 4 | draws.below(4)) as u8,
            };
            "another band, or other bits"
        }
        9 => {
            pieces[scan].truncate(data);
            "a scan without data"
        }
        10 => {
            let interval = [below(draws, 3), below(draws, 12), below(draws, 1 << 16)][below(draws, 3)] as u16;
            let at = 1 + below(draws, pieces.len() - 1);
            pieces.insert(at, [&[0xff, 0xdd, 0, 4][..], &interval.to_be_bytes()].concat());
            "an interval"
        }
        11 if tables.len() > 1 => {
            pieces.swap(tables[below(draws, tables.len())], tables[below(draws, tables.len())]);
            "two tables swapped"
        }
        11 | 12 => {
            // The components' tables, or one of the components.
            let place = 5 + below(draws, data - 3 - 5);
            pieces[scan][place] = (draws.below(4) << 4 | draws.below(5)) as u8;
            "other tables"
        }
        13 | 14 => {
            let with: Vec<usize> = scans.iter().copied().filter(|n| has_restart(&pieces[*n]).is_some()).collect();
            let scan = if with.is_empty() { scan } else { with[below(draws, with.len())] };
            let restart = 0xd0 + draws.below(8) as u8;
            let piece = &mut pieces[scan];
            match (has_restart(piece), draws.below(3)) {
                (Some(at), 0) => _ = piece.drain(at..at + 2),
                (Some(at), 1) => piece[at + 1] = restart,
                _ => _ = piece.splice(in_data.min(piece.len())..in_data.min(piece.len()), [0xff, restart]),
            }
            "a restart"
        }
        _ => {
            let more: Vec<u8> = (0..1 + draws.below(5)).map(|_| draws.bits() as u8).collect();
            let piece = &mut pieces[scan];
            let at = in_data.min(piece.len());
            let left_out = below(draws, 4).min(piece.len() - at);
            piece.splice(at..at + left_out, more);
            "other data"
        }
    };
    *file = pieces.concat();
    what
}

/// Where the first restart marker of a scan is.
fn has_restart(scan: &[u8]) -> Option<usize> {
    scan.windows(2).position(|pair| matches!(pair, [0xff, 0xd0..=0xd7]))
}

#[test]
fn thousands_of_damaged_progressive_files_are_those_of_the_plain_decoder() {
    let files = cases(200, 2500);
    let (mut equal, mut wild, mut bad, mut untouched) = (0, 0, 0, 0);
    for key in 0..files {
        let mut draws = Draws::new([key.into(), 9, 9]);
        let factors = FACTORS[draws.below(FACTORS.len() as u64) as usize];
        let most = if key.is_multiple_of(10) { 60 } else { 24 };
        let [height, width] = [0; 2].map(|_| 1 + draws.below(most) as usize);
        let picture = photo_like(&mut draws, height, width, factors);
        let script = if draws.below(3) == 0 { usual_script(factors) } else { any_script(&mut draws, factors) };
        let odd = draws.below(2) == 0;
        let file = picture.progressive(&script, odd.then_some(&mut draws));
        let words = |what: &str| format!("{key}: {factors:x?} {height}x{width}: {what}");
        compared(&file, &words("whole")).unwrap().unwrap();
        for round in 0..40 {
            let mut damaged = file.clone();
            let what = words(&format!("{round}: {}", damage(&mut draws, &mut damaged)));
            untouched += usize::from(damaged == file);
            match compared(&damaged, &what) {
                Some(Ok(true)) => equal += 1,
                Some(Ok(false)) => wild += 1,
                Some(Err(_)) => bad += 1,
                None => {}
            }
        }
    }
    let all = 40 * files as usize;
    let counts = format!("{equal} equal, {wild} wild and {bad} bad of {all}; {untouched} as they were");
    assert!(
        equal + wild + bad > all * 98 / 100 && equal > all / 5 && bad > all / 3 && untouched < all / 20,
        "{counts}"
    );
}
