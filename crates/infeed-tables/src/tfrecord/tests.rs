use crate::open_source;
use futures::executor::block_on;
use infeed_data::{dataset_contract, read_one::read};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use proptest::prelude::*;

use std::ops::Range;

use super::{
    framing::{masked_crc, parse_length},
    *,
};

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
    out
}

/// As TensorFlow writes it: `kind` is 1 for bytes, 2 for floats, 3 for integers.
fn entry(name: &str, kind: u8, list: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name.as_bytes()), field(2, &field(kind, list))].concat())
}

fn example(i: u8) -> Vec<u8> {
    let entries = [
        entry("image/encoded", 1, &field(1, &[i; 200])),
        entry("image/class/label", 3, &field(1, &[i])),
        entry("image/box", 2, &field(1, &[1.5f32.to_le_bytes(), f32::from(i).to_le_bytes()].concat())),
        entry("image/filename", 1, &field(1, format!("{i}.jpg").as_bytes())),
        // Not packed, as old writers do.
        entry("sizes", 3, &[1 << 3, 200, 1, 1 << 3, 7]),
        entry("none", 3, &[]),
    ];
    field(1, &entries.concat())
}

fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    [&length[..], &masked_crc(&length).to_le_bytes(), content, &masked_crc(content).to_le_bytes()].concat()
}

fn source(files: &[(&str, Vec<u8>)]) -> Source {
    let store = InMemory::new();
    for (name, bytes) in files {
        block_on(store.put(&Path::from(*name), bytes.clone().into())).unwrap();
    }
    Source::from_store(Arc::new(store), Path::default(), "test://x")
}

fn file(numbers: Range<u8>) -> Vec<u8> {
    numbers.flat_map(|i| record(&example(i))).collect()
}

#[test]
fn the_crc_is_tensorflows() {
    // The first bytes of a file that TensorFlow wrote: a record of 24 bytes.
    assert_eq!(parse_length(&[24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]).unwrap(), 24);
}

#[test]
fn examples_are_cut_into_fields() {
    let files = [("train-00000-of-00002", file(0..3)), ("train-00001-of-00002", file(3..8))];
    let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!((dataset.len(), dataset.format(), &dataset.groups().unwrap()[..]), (8, "tfrecord", &[0, 3][..]));
    // The identity that states of old runs hold.
    let sizes = files.each_ref().map(|(_, bytes)| bytes.len() as u64);
    let print = Fingerprint::of("tfrecord").number(2).text(files[0].0).number(sizes[0]).number(3);
    assert_eq!(dataset.fingerprint(), print.text(files[1].0).number(sizes[1]).number(8).finish());
    let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["image", "label", "image/box", "image/filename", "sizes"]);
    let plan = dataset.plan(5, SampleRng::new(0, 0, 5)).unwrap();
    let sample = dataset.parse(5, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap();
    assert!(matches!(&sample.values[0], Value::Encoded(bytes) if bytes[..] == [5; 200]));
    assert!(matches!(&sample.values[1], Value::Label(5)));
    assert!(matches!(&sample.values[3], Value::Bytes(name) if name == "5.jpg"));
    let floats = [1.5f32.to_ne_bytes(), 5f32.to_ne_bytes()].concat();
    assert!(matches!(&sample.values[2], Value::Array(values) if values[..] == floats));
    let ints = [200i64.to_ne_bytes(), 7i64.to_ne_bytes()].concat();
    assert!(matches!(&sample.values[4], Value::Array(values) if values[..] == ints));
}

#[test]
fn a_number_alone_is_no_list() {
    let floats = |values: &[f32]| field(1, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>());
    let entries = [entry("one", 2, &floats(&[1.5])), entry("two", 2, &floats(&[1.5, 2.5]))];
    let file = record(&field(1, &entries.concat()));
    let dataset = block_on(open_source(source(&[("a.tfrecord", file)])).into_future()).unwrap();
    let array = |name, shape| Field::new(name, FieldKind::Array { dtype: DType::F32, shape });
    assert_eq!(dataset.schema().fields, [array("one", vec![]), array("two", vec![2])]);
}

#[test]
fn the_first_records_show_that_masks_have_16_bits() {
    let png = |bits: u8| [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01", &[bits][..]].concat();
    let file = |bits: u8| {
        let entries = ["mask", "gt"].map(|name| entry(name, 1, &field(1, &png(bits))));
        record(&field(1, &entries.concat()))
    };
    // The first record of each of some files is examined.
    for files in [&[("a.tfrecord", file(16))][..], &[("a.tfrecord", file(8)), ("b.tfrecord", file(16))]] {
        let dataset = block_on(open_source(source(files)).field("gt", ["mask"]).into_future()).unwrap();
        let wide = |name| Field::mask(name, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U16) });
        assert_eq!(dataset.schema().fields, [wide("gt"), wide("mask")]);
    }
}

#[test]
fn damage_is_told_with_its_place() {
    let whole = file(0..3);
    let open = |bytes: Vec<u8>| block_on(open_source(source(&[("a.tfrecord", bytes)])).into_future());
    let error = open(whole[..whole.len() - 5].to_vec()).unwrap_err().to_string();
    assert!(error.contains("ends after") && error.contains("a.tfrecord @"), "{error}");
    let error = open([0x1f, 0x8b].repeat(100)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("damaged gzip") && error.to_string().contains("a.tfrecord @"), "{error}");
    let entry = || entry("image/encoded", 1, &field(1, &[1; 9]));
    let twice = field(1, &[entry(), self::entry("jpg", 1, &field(1, &[1; 9]))].concat());
    assert!(open(record(&twice)).unwrap_err().to_string().contains("two features are the field `image`"));
    let source = source(&[("a.tfrecord", whole.clone())]);
    let error = block_on(open_source(source).columns(["depth"]).into_future()).unwrap_err().to_string();
    assert!(error.contains("no feature `depth`") && error.contains("there are image, label"), "{error}");
    let error = open([&whole[..], &[1, 2, 3]].concat()).unwrap_err().to_string();
    assert!(error.contains("3 bytes instead of a length"), "{error}");
    let mut lies = whole.clone();
    lies[1] ^= 1;
    assert!(open(lies).unwrap_err().to_string().contains("crc of a record's length"));
    let mut flipped = whole.clone();
    let last = flipped.len() - 9;
    flipped[last] ^= 1;
    let dataset = open(flipped).unwrap();
    let plan = dataset.plan(2, SampleRng::new(0, 0, 2)).unwrap();
    let error = dataset.parse(2, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("the record's crc32c is wrong"), "{error}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[cfg(feature = "packed")]
#[test]
fn compressed_files_give_the_same_records() {
    let plain = block_on(open_source(source(&[("a.tfrec", file(0..8))])).into_future()).unwrap();
    let zlib = {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, &file(3..8)).unwrap();
        encoder.finish().unwrap()
    };
    for (first, second) in [
        (("a.tfrecord.gz", gzip(&file(0..3))), ("b.tfrecord.gz", gzip(&file(3..8)))),
        // Several members, a file as it is, one without records, and names without an ending for it.
        (("a.record", [gzip(&file(0..1)), gzip(&file(1..3))].concat()), ("b.record", file(3..8))),
        (("a.tfrecords", file(0..3)), ("b.tfrecords", zlib)),
    ] {
        let files = [first, ("aa.tfrecord.gz", gzip(&[])), second];
        let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!((dataset.len(), &dataset.groups().unwrap()[..]), (8, &[0, 3][..]));
        assert_eq!(dataset.schema(), plain.schema());
        for record in 0..8 {
            let [a, b] = [&plain, &dataset].map(|dataset| format!("{:?}", read(&**dataset, record).unwrap()));
            assert_eq!(a, b);
        }
    }
    let whole = gzip(&file(0..3));
    let open = |bytes: Vec<u8>| block_on(open_source(source(&[("a.tfrecord.gz", bytes)])).into_future());
    for cut in [20, whole.len() / 2, whole.len() - 1] {
        assert_eq!(open(whole[..cut].to_vec()).unwrap_err().kind(), ErrorKind::Corrupt, "{cut}");
    }
    let error = open(gzip(&file(0..3)[..500])).unwrap_err().to_string();
    assert!(error.contains("ends after") && error.contains("a.tfrecord.gz @"), "{error}");
}

#[test]
fn pictures_and_labels_are_found_that_the_first_record_lacks() {
    let bytes = |name: &str, values: &[&[u8]]| {
        entry(name, 1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<u8>>())
    };
    let label = |n: u8| entry("label", 3, &field(1, &[n]));
    let of = |entries: &[Vec<u8>]| record(&field(1, &entries.concat()));
    let png: &[u8] = b"\x89PNG\r\n\x1a\n and more";
    let without = of(&[bytes("photo", &[png]), bytes("text", &[b"BMW"])]);
    let with = |n| of(&[bytes("photo", &[png]), bytes("text", &[b"BMW"]), label(n)]);
    let names = |dataset: &dyn Dataset| -> Vec<(String, bool)> {
        let fields = dataset.schema().fields.iter();
        fields.map(|f| (f.name.clone(), matches!(f.kind, FieldKind::Image { .. }))).collect()
    };
    let want = [("photo".to_owned(), true), ("label".to_owned(), false), ("text".to_owned(), false)];
    for files in [
        vec![("a.tfrecord", [without.clone(), with(1), with(2)].concat())],
        vec![("a.tfrecord", without.clone()), ("b.tfrecord", with(1)), ("c.tfrecord", with(2))],
        #[cfg(feature = "packed")]
        vec![("a.tfrecord", gzip(&without)), ("b.tfrecord", gzip(&[with(1), with(2)].concat()))],
    ] {
        let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
        assert_eq!(names(&*dataset), want);
        let error = read(&*dataset, 0).unwrap_err().to_string();
        assert!(error.contains("is missing that other records have") && error.contains("feature label"), "{error}");
        let sample = read(&*dataset, 2).unwrap();
        assert!(matches!(&sample.values[..], [Value::Encoded(image), Value::Label(2), Value::Bytes(text)]
            if image[..] == *png && text == "BMW"));
    }
    // Masks by their names.
    let files = [("a.tfrecord", of(&[bytes("image/encoded", &[png]), bytes("image/seg/encoded", &[png])]))];
    let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
    let fields: Vec<_> = dataset.schema().fields.iter().map(|f| (f.name.as_str(), f.mask)).collect();
    assert_eq!(fields, [("image", false), ("image/seg/encoded", true)]);
}

#[test]
fn images_and_texts_of_another_number_in_each_record_are_lists() {
    let png: &[u8] = b"\x89PNG\r\n\x1a\n and more";
    let of = |images: &[&[u8]], texts: &[&[u8]], blobs: &[&[u8]]| {
        let bytes = |name: &str, values: &[&[u8]]| match values {
            [] => Vec::new(),
            values => entry(name, 1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<u8>>()),
        };
        record(&field(1, &[bytes("frames", images), bytes("words", texts), bytes("blobs", blobs)].concat()))
    };
    let raw: &[u8] = &[0xff, 0xfe];
    for first in [of(&[png, png], &[b"a", "\u{fc}".as_bytes()], &[raw, raw]), of(&[png], &[b"a"], &[raw])] {
        let others = [of(&[png, png, png], &[], &[raw]), of(&[], &[b"c"], &[raw, raw])].concat();
        let dataset = block_on(open_source(source(&[("a.tfrecord", [first, others].concat())])).into_future()).unwrap();
        let fields: Vec<_> = dataset.schema().fields.iter().map(|f| (f.name.as_str(), f.kind.name())).collect();
        // Bytes that are no text are left out where their number differs.
        assert_eq!(fields, [("frames", "images"), ("words", "texts")]);
        let counts = |record| match &read(&*dataset, record).unwrap().values[..] {
            [Value::Images(images), Value::Texts(texts)] => (images.len(), texts.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!((counts(1), counts(2)), ((3, 0), (0, 1)));
    }
    // One image in each record that opening examines: a field of one image, unless the user says that it is a list.
    let one = of(&[png], &[b"a"], &[raw]);
    let said = open_source(source(&[("a.tfrecord", one.clone())])).field("frames", ["list"]);
    let dataset = block_on(said.into_future()).unwrap();
    assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Images { .. }));
    let dataset = block_on(open_source(source(&[("a.tfrecord", one)])).into_future()).unwrap();
    assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Image { .. }));
}

#[test]
fn numbers_of_another_count_in_each_record_are_lists_and_later_ones_are_told() {
    let text = |name: &str, values: &[&[u8]]| {
        entry(name, 1, &values.iter().flat_map(|value| field(1, value)).collect::<Vec<u8>>())
    };
    let floats = |name: &str, n: usize| entry(name, 2, &field(1, &0.5f32.to_le_bytes().repeat(n)));
    let ints = |name: &str, n: usize| entry(name, 3, &field(1, &vec![1; n]));
    // `n` objects in the picture of `size` bytes; `late` has another length in the last record but one alone.
    let of = |n: usize, late: usize, size: usize| {
        let words = vec![&b"cat"[..]; n];
        let entries = [
            text("image/encoded", &[&vec![7; size]]),
            entry("image/class/label", 3, &field(1, &[4])),
            floats("image/object/bbox/xmin", 1),
            floats("corners", n),
            ints("ids", n),
            text("words", &words),
            if n == 1 { ints("sometimes", 1) } else { vec![] },
            floats("fixed", 3),
            floats("late", late),
        ];
        record(&field(1, &entries.concat()))
    };
    let names = |dataset: &dyn Dataset| -> Vec<String> {
        dataset.schema().fields.iter().map(|field| field.name.clone()).collect()
    };
    let want = ["image", "label", "corners", "fixed", "ids", "late", "sometimes", "words"];
    let lengths = |dataset: &dyn Dataset, record: u64| -> Vec<(String, usize)> {
        let values = read(dataset, record).unwrap().values;
        let named = dataset.schema().fields.iter().zip(values);
        let lists = named.filter_map(|(field, value)| match (&field.kind, value) {
            (FieldKind::List { dtype, .. }, Value::List(list)) => Some((field.name.clone(), list.len() / dtype.size())),
            _ => None,
        });
        lists.collect()
    };
    for other in [2, 0, 7] {
        let records = [of(1, 2, 9), of(1, 2, 9), of(other, 2, 9), of(1, 2, 9)].concat();
        for files in [
            vec![("a.tfrecord", records.clone())],
            // The first ones of other files are looked at, too, and those at the beginning of what is compressed.
            vec![("a.tfrecord", of(1, 2, 9)), ("b.tfrecord", of(other, 2, 9))],
            #[cfg(feature = "packed")]
            vec![("a.tfrecord.gz", gzip(&records))],
        ] {
            let dataset = block_on(open_source(source(&files)).into_future()).unwrap();
            block_on(dataset_contract(&*dataset)).unwrap();
            assert_eq!(names(&*dataset), want, "{other}");
            for record in 0..dataset.len() {
                let is_other = read(&*dataset, record).is_ok() && record == dataset.len().min(4) / 2;
                let n = if is_other { other } else { 1 };
                let want = [("corners", n), ("ids", n), ("sometimes", usize::from(n == 1))];
                let want = want.map(|(name, items)| (name.to_owned(), items));
                assert_eq!(lengths(&*dataset, record), want, "{other}, {record}");
            }
        }
        // Lists with a value for each object are read if they are named, whatever their lengths are.
        let named = open_source(source(&[("a.tfrecord", records)])).columns(["corners", "image/object/bbox/xmin"]);
        let dataset = block_on(named.into_future()).unwrap();
        let want = [("corners", other), ("image/object/bbox/xmin", 1)].map(|(name, n)| (name.to_owned(), n));
        assert_eq!(lengths(&*dataset, 2), want);
    }
    // Beyond what opening looks into: the record says which feature, both lengths, and what to do.
    let big = 300 << 10;
    let mut late: Vec<Vec<u8>> = (0..12).map(|_| of(1, 2, big)).collect();
    late[9] = of(1, 5, big);
    let dataset = block_on(open_source(source(&[("a.tfrecord", late.concat())])).into_future()).unwrap();
    assert!(read(&*dataset, 8).is_ok());
    let error = read(&*dataset, 9).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let error = error.to_string();
    assert!(error.contains("5 floats, but 2 floats in the first record") && error.contains("feature late"), "{error}");
    assert!(error.contains("set field(\"late\", [\"list\"]) if records have different numbers"), "{error}");
    let said = open_source(source(&[("a.tfrecord", late.concat())])).field("late", ["list"]);
    let dataset = block_on(said.into_future()).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!([8, 9].map(|record| lengths(&*dataset, record)), [2, 5].map(|n| vec![("late".to_owned(), n)]));
    // A first record without a number has no type for it; numbers of two types are left out.
    let of = |entries: &[Vec<u8>]| record(&field(1, &entries.concat()));
    let records = [of(&[ints("n", 1), floats("mixed", 1)]), of(&[ints("n", 1), floats("a", 2), ints("mixed", 1)])];
    let dataset = block_on(open_source(source(&[("a.tfrecord", records.concat())])).into_future()).unwrap();
    assert_eq!(names(&*dataset), ["a", "n"]);
    assert_eq!([0, 1].map(|record| lengths(&*dataset, record)), [0, 2].map(|n| vec![("a".to_owned(), n)]));
}

#[test]
fn lists_of_sequence_examples_are_noticed() {
    assert!(!has_feature_lists(&example(5)) && !has_feature_lists(&[&example(5)[..], &field(2, b"")].concat()));
    assert!(has_feature_lists(&[&example(5)[..], &field(2, b"lists")].concat()));
}

proptest! {
    #[test]
    fn any_bytes_give_features_or_an_error(
        raw in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..300, flip in any::<u8>(), end in 0usize..400,
    ) {
        let _ = parse_example(&raw);
        let _ = parse_length(&raw);
        let mut damaged = example(9);
        let at = at.min(damaged.len() - 1);
        damaged[at] ^= flip;
        damaged.truncate(end);
        if let Ok(features) = parse_example(&damaged) {
            for (_, feature) in features {
                if let Feature::Bytes(texts) = feature {
                    prop_assert!(texts.iter().all(|text| text.start <= text.end && text.end <= damaged.len()));
                }
            }
        }
    }
}

/// As `rank` after `rank` opens them, from a bucket; the places that do not fit are of a file that changed.
#[test]
fn places_are_kept_and_files_that_changed_are_indexed_again() {
    let store = Arc::new(InMemory::new());
    let put = |name: &str, bytes: Vec<u8>| block_on(store.put(&Path::from(name), bytes.into())).unwrap();
    put("a.tfrecord", file(0..5));
    put("b.tfrecord", file(5..9));
    let source = Source::from_store(Arc::<InMemory>::clone(&store), Path::default(), "test://x");
    let kept = tempfile::tempdir().unwrap();
    let open = || block_on(open_source(source.clone()).manifests(kept.path()).into_future()).unwrap();
    let first = open();
    let files = || std::fs::read_dir(kept.path()).unwrap().map(|file| file.unwrap().path());
    let records = || files().find(|path| path.extension().is_some_and(|end| end == "places")).unwrap();
    let written = std::fs::read(records()).unwrap();
    assert_eq!(open().fingerprint(), first.fingerprint());
    assert_eq!(std::fs::read(records()).unwrap(), written);
    put("a.tfrecord", file(0..7));
    let changed = open();
    assert_eq!((changed.len(), first.len()), (11, 9));
    assert!((0..11).all(|record| read(&*changed, record).is_ok()));
    assert_ne!(std::fs::read(records()).unwrap(), written);
    std::fs::write(records(), b"infeed records 1\nother").unwrap();
    assert_eq!(open().fingerprint(), changed.fingerprint());
}

#[test]
fn texts_called_label_are_classes_if_classes_are_given() {
    let labelled = |text: &str| record(&field(1, &entry("label", 1, &field(1, text.as_bytes()))));
    let lines = ["dog", "cat", "cow"].map(labelled).concat();
    // The file next to it holds no records.
    let source = || source(&[("a.tfrecord", lines.clone()), ("map.pbtxt", b"item {}".to_vec())]);
    let given = ["cat", "dog"].map(str::to_owned);
    let dataset = block_on(open_source(source()).format("tfrecord").classes(given).into_future()).unwrap();
    let value = |record| read(&*dataset, record).map(|sample| format!("{:?}", sample.values));
    assert_eq!([0, 1].map(|record| value(record).unwrap()), ["[Label(1)]", "[Label(0)]"]);
    let error = value(2).unwrap_err().to_string();
    assert!(error.contains("label `cow` is no number, and not among the 2 classes"), "{error}");
    let dataset = block_on(open_source(source()).into_future()).unwrap();
    assert_eq!(dataset.schema().fields[0].kind.name(), "bytes");
}
