use std::{io::Read, ops::Range, sync::Arc};

use futures::executor::block_on;
use infeed_core::{error::Result, random::SampleRng, types::DType};
use infeed_data::{Dataset, Narrow, Open, Value, Volume, dataset_contract};

use crate::open_source;
use crate::volumes::tests::{Middle, store};

/// Files written by pydicom, with the voxels that it and SimpleITK read from them: `integration/golden/dicom.py`.
const GOLDEN: &str = include_str!("../../../../../integration/golden/dicom.json");

#[derive(serde::Deserialize)]
struct Golden {
    cases: Vec<Case>,
    refused: std::collections::BTreeMap<String, String>,
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    exact: bool,
    shape: [usize; 4],
    crc: u32,
    voxels: Option<String>,
    spacing: Option<[f64; 3]>,
    origin: Option<[f64; 3]>,
    files: Vec<String>,
}

impl Case {
    fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.files.iter().enumerate().map(|(i, file)| (format!("s/{i:03}.dcm"), unpacked(file))).collect()
    }
}

fn golden() -> Golden {
    serde_json::from_str(GOLDEN).unwrap()
}

fn case(name: &str) -> Case {
    golden().cases.into_iter().find(|case| case.name == name).unwrap()
}

fn unpacked(text: &str) -> Vec<u8> {
    let digit = |c: u8| match c {
        b'A'..=b'Z' => u32::from(c - b'A'),
        b'a'..=b'z' => u32::from(c - b'a') + 26,
        b'0'..=b'9' => u32::from(c - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let text = text.trim_end_matches('=').as_bytes();
    let bytes = text.chunks(4).flat_map(|four| {
        let word = four.iter().fold(0, |word, c| word << 6 | digit(*c)) << (6 * (4 - four.len()));
        word.to_be_bytes()[1..four.len()].to_vec()
    });
    let packed: Vec<u8> = bytes.collect();
    let mut out = Vec::new();
    flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut out).unwrap();
    out
}

fn try_open(files: &[(String, Vec<u8>)], with: impl FnOnce(Open) -> Open) -> Result<Arc<dyn Dataset>> {
    let files: Vec<(&str, Vec<u8>)> = files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    block_on(async { with(open_source(store(&files))).await })
}

fn opened(files: &[(String, Vec<u8>)]) -> Arc<dyn Dataset> {
    try_open(files, |open| open).unwrap()
}

/// Reads and decodes a record as a loader does.
fn sample(dataset: &dyn Dataset, record: u64) -> Result<Vec<Value>> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let mut bytes = Vec::new();
    for extent in &plan.extents {
        bytes.push(block_on(extent.read())?);
    }
    for part in &plan.shared {
        let encoded = part.extents.iter().map(|extent| block_on(extent.read())).collect::<Result<Vec<_>>>()?;
        let decoded = dataset.decode_shared(part.key, &encoded)?;
        assert!(decoded.len() as u64 <= part.bytes, "a part longer than was said");
        bytes.push(decoded);
    }
    Ok(dataset.parse(record, &plan, &bytes)?.values.into_iter().collect())
}

fn volume(values: &[Value]) -> &Volume {
    let Value::Volume(volume) = &values[0] else { panic!("no volume") };
    assert!(volume.is_sound());
    volume
}

/// The values of a box, channel after channel.
fn values(volume: &Volume, window: &[Range<usize>; 3]) -> Vec<f32> {
    let mut out = Vec::new();
    for channel in &volume.channels {
        let [z, y, x] = [0, 1, 2].map(|axis: usize| {
            let begin = channel.begin[axis];
            window[axis].start - begin..window[axis].end - begin
        });
        for (z, y, x) in
            z.flat_map(|z| y.clone().map(move |y| (z, y))).flat_map(|(z, y)| x.clone().map(move |x| (z, y, x)))
        {
            let [depth, height, _] = channel.shape;
            let (piece, z, y) = match channel.pieces.len() {
                1 => (0, z, y),
                planes if planes == depth => (z, 0, y),
                lines => {
                    assert_eq!(lines, depth * height);
                    (z * height + y, 0, 0)
                }
            };
            let at = channel.skip + z * channel.pitch[0] + y * channel.pitch[1] + x * channel.pitch[2];
            let bytes = &channel.pieces[piece][at..at + channel.dtype.size()];
            let value = match channel.dtype {
                DType::U8 => f64::from(bytes[0]),
                DType::I16 => f64::from(i16::from_ne_bytes(bytes.try_into().unwrap())),
                DType::U16 => f64::from(u16::from_ne_bytes(bytes.try_into().unwrap())),
                DType::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
                other => panic!("{other}"),
            };
            out.push((value * channel.slope + channel.intercept) as f32);
        }
    }
    out
}

fn all_values(volume: &Volume) -> Vec<f32> {
    values(volume, &volume.shape.map(|len| 0..len))
}

fn numbers(value: &Value) -> [f32; 3] {
    let Value::Array(bytes) = value else { panic!("no array") };
    bytemuck::pod_read_unaligned(bytes)
}

#[test]
fn voxels_places_and_spacing_are_those_of_pydicom_and_simpleitk() {
    for case in golden().cases {
        let name = &case.name;
        let dataset = opened(&case.files());
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!((dataset.format(), dataset.len()), ("dicom", 1), "{name}");
        assert_eq!(dataset.schema().names_of("patient"), Some(&["s".to_owned()][..]));
        let record = sample(&*dataset, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
        let volume = volume(&record);
        assert_eq!([&[volume.channels.len()], &volume.shape[..]].concat(), case.shape, "{name}");
        let found = all_values(volume);
        if case.exact {
            let mut crc = flate2::Crc::new();
            found.iter().for_each(|value| crc.update(&value.to_le_bytes()));
            assert_eq!(crc.sum(), case.crc, "{name}: {:?}", &found[..20]);
        } else {
            // Lossy: decoders round differently.
            let wanted = unpacked(case.voxels.as_ref().unwrap());
            let wanted = wanted.as_chunks().0.iter().map(|v| f32::from(i16::from_le_bytes(*v)));
            assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() <= 1.0), "{name}");
        }
        for (numbers, wanted) in [numbers(&record[1]), numbers(&record[2])].iter().zip([case.spacing, case.origin]) {
            let near = |(a, b): (&f32, f64)| (f64::from(*a) - b).abs() < 1e-3;
            assert!(
                wanted.is_none_or(|wanted| numbers.iter().zip(wanted).all(near)),
                "{name}: {numbers:?}, {wanted:?}"
            );
        }
    }
}

#[test]
fn a_box_is_what_the_whole_has_there_and_reads_less() {
    let mut boxes = 0;
    for case in golden().cases {
        let dataset = opened(&case.files());
        let whole = sample(&*dataset, 0).unwrap();
        for side in [1, 3, 4] {
            let narrow = Arc::new(Middle(side, false));
            let window = narrow.reads(volume(&whole).shape, SampleRng::new(0, 0, 0)).unwrap();
            let narrowed = dataset.narrowed(&(narrow as Arc<dyn Narrow>)).unwrap();
            block_on(dataset_contract(&*narrowed)).unwrap();
            let plan = narrowed.plan(0, SampleRng::new(0, 0, 0)).unwrap();
            let part = sample(&*narrowed, 0).unwrap();
            assert_eq!(values(volume(&part), &window), values(volume(&whole), &window), "{} {side}", case.name);
            if plan.shared.is_empty() {
                boxes += 1;
                assert!(
                    plan.extents.iter().map(infeed_store::Extent::len).sum::<u64>() <= (side * side * side * 4) as u64
                );
            }
        }
    }
    assert!(boxes >= 20, "{boxes}");
}

#[test]
fn damaged_files_are_an_error_or_voxels_and_never_panic() {
    let mut draws = SampleRng::new(5, 5, 5).op(0);
    for case in golden().cases {
        let files = case.files();
        for _ in 0..400 {
            let mut files = files.clone();
            let at = draws.below(files.len() as u64) as usize;
            let file = &mut files[at].1;
            for _ in 0..1 + draws.below(3) {
                // Most of a file is text that is not read, so half of the damage is in its last 700 bytes.
                let len = file.len() as u64;
                let at = if draws.bits() & 1 == 0 { draws.below(len) } else { len - 1 - draws.below(len.min(700)) };
                file[at as usize] = if draws.bits() & 1 == 0 { draws.bits() as u8 } else { 0xff };
            }
            if draws.below(4) == 0 {
                file.truncate(draws.below(file.len() as u64 + 1) as usize);
            }
            if let Ok(dataset) = try_open(&files, |open| open) {
                for record in 0..dataset.len() {
                    let _ = sample(&*dataset, record).map(|record| all_values_of(&record));
                }
            }
        }
    }
}

fn all_values_of(record: &[Value]) -> usize {
    volume(record).channels.iter().map(|channel| channel.pieces.len()).sum()
}

fn says(files: &[(String, Vec<u8>)], what: &[&str]) {
    let error = try_open(files, |open| open).unwrap_err().to_string();
    assert!(what.iter().all(|what| error.contains(what)), "{error}");
}

/// Replaces text in a file by text of the same length.
fn replaced(file: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let at = file.windows(from.len()).position(|part| part == from).unwrap();
    [&file[..at], to, &file[at + to.len()..]].concat()
}

#[test]
fn what_is_not_read_is_refused_by_name() {
    let golden = golden();
    for (name, uid) in [("JPEG 2000", "1.2.840.10008.1.2.4.90"), ("JPEG-LS", "1.2.840.10008.1.2.4.80")] {
        let file = unpacked(&golden.refused[name]);
        says(&[("a/b.dcm".into(), file)], &[&format!("pixels in {name} ({uid})"), "a/b.dcm", "gdcmconv"]);
    }
    let files = case("explicit").files();
    let one = |file: Vec<u8>| [("a/b.dcm".to_owned(), file)];
    says(
        &one(replaced(&files[0].1, b"MONOCHROME2 ", b"PALETTECOLOR")),
        &["pixels of PALETTECOLOR, which are not read"],
    );
    says(&one(b"nothing".to_vec()), &["not a DICOM file", "a/b.dcm"]);
    says(&one(files[0].1[..699].to_vec()), &["a/b.dcm", "cut"]);
    says(&one(files[0].1[..files[0].1.len() - 9].to_vec()), &["the header says 308 bytes of pixels, the file has 299"]);
}

#[test]
fn elements_of_another_form_than_the_transfer_syntax_declares_are_read() {
    let [implicit, explicit] = [&b"\x12\x001.2.840.10008.1.2\0"[..], b"\x14\x001.2.840.10008.1.2.1\0"];
    for (name, from, to) in [("implicit", implicit, explicit), ("explicit", explicit, implicit)] {
        let mut files = case(name).files();
        let wanted = all_values(volume(&sample(&*opened(&files), 0).unwrap()));
        for (_, file) in &mut files {
            let at = file.windows(from.len()).position(|part| part == from).unwrap();
            *file = [&file[..at], to, &file[at + from.len()..]].concat();
        }
        let record = sample(&*opened(&files), 0).unwrap();
        assert!(all_values(volume(&record)) == wanted, "{name}");
    }
}

/// 8 x 8 pixels of these values, as they are stored. All quantisation is 1.
fn jpeg(markers: &[u8], ids: [u8; 3], values: [u8; 3]) -> Vec<u8> {
    let segment = |marker: u8, body: &[u8]| [&[0xff, marker, 0, body.len() as u8 + 2], body].concat();
    let component = |own: [u8; 2]| ids.iter().flat_map(|id| [&[*id][..], &own].concat()).collect::<Vec<u8>>();
    // 12 codes of 4 bits for the categories of DC, and one of a bit that ends a block.
    let dc = [&[0, 0, 0, 0, 12][..], &[0; 12], &(0..12).collect::<Vec<u8>>()].concat();
    let ac = [&[0x10, 1][..], &[0; 15], &[0]].concat();
    let mut bits = String::new();
    for value in values {
        let dc = (i32::from(value) - 128) * 8;
        let category = 32 - dc.unsigned_abs().leading_zeros() as usize;
        let rest = if dc < 0 { dc + (1 << category) - 1 } else { dc };
        bits += &format!("{category:04b}{rest:0category$b}0");
    }
    bits += &"1".repeat(8 - bits.len() % 8);
    let scan: Vec<u8> = bits
        .as_bytes()
        .chunks(8)
        .map(|byte| u8::from_str_radix(str::from_utf8(byte).unwrap(), 2).unwrap())
        .flat_map(|byte| if byte == 0xff { vec![0xff, 0] } else { vec![byte] })
        .collect();
    [
        &[0xff, 0xd8],
        markers,
        &segment(0xdb, &[&[0][..], &[1; 64]].concat()),
        &segment(0xc0, &[&[8, 0, 8, 0, 8, 3][..], &component([0x11, 0])].concat()),
        &segment(0xc4, &dc),
        &segment(0xc4, &ac),
        &segment(0xda, &[&[3][..], &ids.iter().flat_map(|id| [*id, 0]).collect::<Vec<u8>>(), &[0, 63, 0]].concat()),
        &scan,
        &[0xff, 0xd9],
    ]
    .concat()
}

/// A file of one JPEG of 8 x 8 pixels.
fn file_of(colours: &[u8; 12], mut jpeg: Vec<u8>) -> Vec<u8> {
    jpeg.resize(jpeg.len().next_multiple_of(2), 0);
    let element = |group: u16, number: u16, vr: &[u8; 2], value: &[u8]| {
        [&group.to_le_bytes()[..], &number.to_le_bytes(), vr, &(value.len() as u16).to_le_bytes(), value].concat()
    };
    let short = |number: u16, value: u16| element(0x28, number, b"US", &value.to_le_bytes());
    [
        &[0; 128][..],
        b"DICM",
        &element(2, 0x10, b"UI", b"1.2.840.10008.1.2.4.50"),
        &element(0x20, 0xe, b"UI", b"1.2"),
        &short(2, 3),
        &element(0x28, 4, b"CS", colours),
        &short(6, 0),
        &short(0x10, 8),
        &short(0x11, 8),
        &short(0x100, 8),
        &short(0x101, 8),
        &short(0x102, 7),
        &short(0x103, 0),
        b"\xe0\x7f\x10\0OB\0\0\xff\xff\xff\xff\xfe\xff\0\xe0\0\0\0\0\xfe\xff\0\xe0",
        &(jpeg.len() as u32).to_le_bytes(),
        &jpeg,
        b"\xfe\xff\xdd\xe0\0\0\0\0",
    ]
    .concat()
}

/// As pydicom reads its files `SC_jpeg_no_color_transform` (no marker), `SC_rgb_jpeg` (a marker that is too short) and
/// `SC_rgb_jpeg_app14_dcmd` (0).
#[test]
fn markers_of_a_jpeg_decide_about_its_colours_and_without_them_the_header_does() {
    let (stored, converted) = ([93, 125, 204], [200.0, 40.0, 88.0]);
    let adobe = |transform: u8| [&b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0"[..], &[transform]].concat();
    let jfif = b"\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0";
    let short = b"\xff\xee\0\x0cAdobe\0\0\0\0\0";
    let plain = [0, 1, 2];
    let as_stored = stored.map(f32::from);
    let (rgb, ybr) = (b"RGB         ", b"YBR_FULL_422");
    for (colours, markers, ids, wanted) in [
        (rgb, &b""[..], plain, as_stored),
        (rgb, short, plain, as_stored),
        (rgb, &adobe(0), plain, as_stored),
        (rgb, &adobe(1), plain, converted),
        (rgb, jfif, plain, converted),
        (ybr, b"", plain, converted),
        (ybr, b"", *b"RGB", as_stored),
    ] {
        let file = file_of(colours, jpeg(markers, ids, stored));
        let record = sample(&*opened(&[("a/b.dcm".into(), file)]), 0).unwrap();
        let found = all_values(volume(&record));
        let wanted: Vec<f32> = wanted.iter().flat_map(|value| [*value; 64]).collect();
        assert!(found == wanted, "{colours:?} {markers:?} {ids:?}: {:?}", [found[0], found[64], found[128]]);
    }
    let file = file_of(ybr, jpeg(&adobe(0), plain, stored));
    let error = sample(&*opened(&[("a/b.dcm".into(), file)]), 0).unwrap_err().to_string();
    assert!(error.contains("JPEG whose marker declares RGB, in a file that declares YBR"), "{error}");
}

#[test]
fn slices_that_do_not_fit_are_named() {
    let files = case("explicit").files();
    let with = |at: usize, file: Vec<u8>| {
        let mut files = files.clone();
        files[at].1 = file;
        files
    };
    // The number of rows, 11 as u16.
    let rows = |to: u8| {
        replaced(&files[2].1, b"\x28\0\x10\0US\x02\0\x0b", &[b"\x28\0\x10\0US\x02\0".as_slice(), &[to]].concat())
    };
    says(&with(2, rows(10)), &["a slice of 10 x 14 pixels", "s/002.dcm", "s/000.dcm"]);
    says(
        &with(2, files[1].1.clone()),
        &["it has the same position as", "s/001.dcm", "s/002.dcm", "a pattern like {patient}/{field}/"],
    );
    let turned = replaced(&files[2].1, b"1.00000000\\0.00000000", b"0.00000000\\1.00000000");
    says(&with(2, turned), &["its orientation is not that of", "scout"]);
    // A series without one slice is read; its spacing is the median distance.
    let mut less = files.clone();
    less.remove(4);
    let record = sample(&*opened(&less), 0).unwrap();
    assert_eq!((volume(&record).shape[0], numbers(&record[1])), (4, [2.5, 0.75, 1.5]));
}

#[test]
fn without_places_numbers_order_slices() {
    let case = case("explicit");
    let unplaced = |files: Vec<(String, Vec<u8>)>| -> Vec<(String, Vec<u8>)> {
        // Changes the tag of the position to one that is not read.
        let hide = |file: Vec<u8>| replaced(&file, b"\x20\0\x32\0DS", b"\x20\0\x33\0DS");
        files.into_iter().map(|(name, file)| (name, hide(file))).collect()
    };
    let placed = sample(&*opened(&case.files()), 0).unwrap();
    let found = sample(&*opened(&unplaced(case.files())), 0).unwrap();
    // Instance numbers count down in the golden files.
    let plane = |record: &[Value], z: usize| values(volume(record), &[z..z + 1, 0..11, 0..14]);
    assert!((0..5).all(|z| plane(&found, z) == plane(&placed, 4 - z)));
    assert!(numbers(&found[2]).iter().all(|n| n.is_nan()) && numbers(&found[1]) == [5.0, 0.75, 1.5]);
    let mut same = unplaced(case.files());
    same[1].1 = same[0].1.clone();
    says(&same, &["it has the instance number of"]);
}

#[test]
fn series_are_records_and_folders_are_fields_where_a_pattern_says_so() {
    let put = |folder: &str, name: &str| -> Vec<(String, Vec<u8>)> {
        let files = case(name).files().into_iter();
        files.map(|(file, bytes)| (file.replace("s/", &format!("{folder}/")), bytes)).collect()
    };
    let names = |dataset: &dyn Dataset| dataset.schema().names_of("patient").unwrap().to_vec();
    let all =
        [put("p1/ct", "explicit"), put("p1/mask", "bytes"), put("p2/ct", "lossless"), put("p2/mask", "rle")].concat();
    // By series.
    let dataset = opened(&all);
    assert_eq!(names(&*dataset), ["p1/ct", "p1/mask", "p2/ct", "p2/mask"]);
    // All series in one folder: named by their UIDs.
    let flat = [put("x", "explicit"), put("x", "bytes")].concat();
    let flat: Vec<_> = flat.into_iter().enumerate().map(|(i, (_, file))| (format!("x/{i}.dcm"), file)).collect();
    assert_eq!(names(&*opened(&flat)), ["x/1.2.3.2", "x/1.2.3.9"]);
    // Files without endings, and a `DICOMDIR`, which is not read.
    let mut bare: Vec<_> =
        put("x", "explicit").into_iter().map(|(name, file)| (name.replace(".dcm", ""), file)).collect();
    bare.push(("DICOMDIR".into(), vec![0; 200]));
    bare.push(("x/README".into(), b"text".to_vec()));
    assert_eq!(names(&*try_open(&bare, |open| open.format("dicom")).unwrap()), ["x"]);
    assert!(try_open(&bare, |open| open).is_err());

    let only: Vec<_> = all.iter().filter(|(name, _)| !name.contains("p2/mask")).cloned().collect();
    let error = try_open(&only, |open| open.pattern("{patient}/{field}/")).unwrap_err().to_string();
    assert!(error.contains("patient `p2` has no `mask`: there are only ct"), "{error}");
    // The second mask has an intercept, so it does not hold labels.
    let error = try_open(&all, |open| open.pattern("{patient}/{field}/")).unwrap_err().to_string();
    assert!(error.contains("labels are whole numbers"), "{error}");
    let good =
        [put("p1/ct", "explicit"), put("p1/t2", "pet"), put("p2/ct", "lossless"), put("p2/t2", "deflated")].concat();
    let dataset = try_open(&good, |open| open.field("image", ["t2", "ct"]).samples_per_patient(3)).unwrap();
    assert_eq!((dataset.len(), names(&*dataset)), (6, vec!["p1".to_owned(), "p2".to_owned()]));
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!(volume(&sample(&*dataset, 4).unwrap()).channels.len(), 2);
    let mixed =
        [put("p1/ct", "explicit"), put("p1/ct", "pet").into_iter().map(|(n, f)| (format!("{n}.dcm"), f)).collect()]
            .concat();
    let error = try_open(&mixed, |open| open.pattern("{patient}/{field}/")).unwrap_err().to_string();
    assert!(error.contains("it belongs to another series than"), "{error}");
    // Files of several frames: each is a volume.
    let frames = [("p1_ct.dcm".to_owned(), case("enhanced").files().remove(0).1)];
    let dataset = try_open(&frames, |open| open.pattern("{patient}_{field}.dcm")).unwrap();
    assert_eq!((names(&*dataset), &*dataset.schema().fields[0].name), (vec!["p1".to_owned()], "ct"));
}
