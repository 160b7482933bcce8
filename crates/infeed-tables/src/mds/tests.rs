use crate::open_source;
use futures::executor::block_on;
use infeed_core::types::DType;
use infeed_data::{Open, dataset_contract, packed::Digest, read_one::read};
use object_store::{ObjectStoreExt, memory::InMemory, path::Path};
use proptest::prelude::*;

use super::{layout::parse_offsets, *};

/// Image, label, text, two floats and a pickle, as MDSWriter lays them out: columns in the order of their names.
const COLUMNS: [(&str, &str, Option<u32>); 5] = [
    ("box", "ndarray:float32:2", Some(8)),
    ("class", "int", Some(8)),
    ("image", "jpeg", None),
    ("odd", "pkl", None),
    ("text", "str", None),
];

fn sample(i: u8) -> Vec<u8> {
    let (image, odd, text) = (vec![i; 100 + usize::from(i)], vec![1, 2], format!("text {i}"));
    let sizes = [image.len(), odd.len(), text.len()].map(|n| (n as u32).to_le_bytes()).concat();
    let floats = [0.5f32.to_le_bytes(), f32::from(i).to_le_bytes()].concat();
    [&sizes[..], &floats, &i64::from(i).to_le_bytes(), &image, &odd, text.as_bytes()].concat()
}

fn shard(numbers: Range<u8>) -> Vec<u8> {
    let samples: Vec<Vec<u8>> = numbers.map(sample).collect();
    let config = b"{\"version\": 2}";
    let mut at = (8 + 4 * samples.len() + config.len()) as u32;
    let mut out = (samples.len() as u32).to_le_bytes().to_vec();
    for sample in &samples {
        out.extend_from_slice(&at.to_le_bytes());
        at += sample.len() as u32;
    }
    out.extend_from_slice(&at.to_le_bytes());
    out.extend_from_slice(config);
    out.extend(samples.concat());
    out
}

fn open(shards: &[(Vec<u8>, u32)], change: impl Fn(&mut serde_json::Value)) -> Open {
    let store = InMemory::new();
    let put = |name: &str, bytes: Vec<u8>| block_on(store.put(&Path::from(name), bytes.into())).unwrap();
    let mut listed = Vec::new();
    for (i, (bytes, samples)) in shards.iter().enumerate() {
        let name = format!("shard.{i:05}.mds");
        put(&name, bytes.clone());
        listed.push(serde_json::json!({
            "format": "mds", "version": 2, "samples": samples, "compression": null, "zip_data": null,
            "column_names": COLUMNS.map(|c| c.0), "column_encodings": COLUMNS.map(|c| c.1),
            "column_sizes": COLUMNS.map(|c| c.2), "raw_data": {"basename": name, "bytes": bytes.len(), "hashes": {}},
        }));
    }
    let mut index = serde_json::json!({"version": 2, "shards": listed});
    change(&mut index);
    put("index.json", index.to_string().into());
    open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))
}

#[test]
fn samples_are_cut_into_columns() {
    let dataset = block_on(open(&[(shard(0..3), 3), (shard(3..8), 5)], |_| ()).into_future()).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    assert_eq!((dataset.len(), dataset.format(), &dataset.groups().unwrap()[..]), (8, "mds", &[0, 3][..]));
    // The identity that states of old runs hold.
    let sizes = [shard(0..3), shard(3..8)].map(|shard| shard.len() as u64);
    let print = Fingerprint::of("mds").number(2).text("shard.00000.mds").number(sizes[0]).number(3);
    assert_eq!(dataset.fingerprint(), print.text("shard.00001.mds").number(sizes[1]).number(8).finish());
    let names: Vec<_> = dataset.schema().fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["box", "label", "image", "text"]);
    let plan = dataset.plan(5, SampleRng::new(0, 0, 5)).unwrap();
    let sample = dataset.parse(5, &plan, &[block_on(plan.extents[0].read()).unwrap()]).unwrap();
    let floats = [0.5f32.to_ne_bytes(), 5f32.to_ne_bytes()].concat();
    assert!(matches!(&sample.values[0], Value::Array(values) if values[..] == floats));
    assert!(matches!(&sample.values[1], Value::Label(5)));
    assert!(matches!(&sample.values[2], Value::Encoded(image) if image[..] == [5; 105]));
    assert!(matches!(&sample.values[3], Value::Bytes(text) if text == "text 5"));
    let some = open(&[(shard(0..3), 3)], |_| ()).columns(["image"]);
    assert_eq!(block_on(some.into_future()).unwrap().schema().fields.len(), 1);
    let label = open(&[(shard(0..3), 3)], |_| ()).columns(["label"]);
    assert_eq!(block_on(label.into_future()).unwrap().schema().fields[0].name, "label");
    let unknown = open(&[(shard(0..3), 3)], |_| ()).columns(["image", "depth"]);
    let error = block_on(unknown.into_future()).unwrap_err().to_string();
    assert!(error.contains("no column `depth`") && error.contains("box, class, image"), "{error}");
}

#[test]
fn what_is_wrong_is_told() {
    let one = shard(0..3);
    let fails = |bytes: &[u8], samples, change: fn(&mut serde_json::Value)| {
        block_on(open(&[(bytes.to_vec(), samples)], change).into_future()).unwrap_err().to_string()
    };
    assert!(fails(&one, 4, |_| ()).contains("has 3 samples, but 4 by index.json"));
    assert!(fails(&one[..one.len() - 1], 3, |_| ()).contains("do not ascend within"));
    assert!(fails(&one[..10], 3, |_| ()).contains("longer than the shard"));
    assert!(fails(&one, u32::MAX, |_| ()).contains("longer than the shard"));
    assert!(fails(&one, 3, |i| i["shards"][0]["raw_data"]["bytes"] = 7.into()).contains("but 7 in index.json"));
    assert!(
        fails(&one, 3, |i| i["shards"][0]["column_sizes"] = serde_json::json!([]))
            .contains("different numbers of column names")
    );
    assert!(fails(&one, 3, |i| i["shards"] = 7.into()).contains("not that of MDS shards"));
    let error = fails(&one, 3, |i| {
        i["shards"][0]["compression"] = "br:11".into();
        i["shards"][0]["raw_data"]["basename"] = "gone.mds".into();
        i["shards"][0]["zip_data"] = serde_json::json!({"basename": "gone.mds.br", "bytes": 7, "hashes": {}});
    });
    assert!(error.contains("compressed with br:11") && error.contains("zstd, gz, bz2 and snappy are read"), "{error}");
    let error = fails(&one, 3, |i| i["shards"][0]["raw_data"]["basename"] = "gone.mds".into());
    assert!(error.contains("is not there") && error.contains("gone.mds"), "{error}");
}

/// A data set of these columns whose only shard is packed, with an index that names hashes of both.
fn packed(kind: &str, hashes: &[&str], change: impl Fn(&mut serde_json::Value, &mut Vec<u8>)) -> Open {
    let raw = shard(0..5);
    let mut zip = pack(kind, &raw);
    let of = |bytes: &[u8]| -> serde_json::Map<String, serde_json::Value> {
        let digest = |name: &&str| {
            let known = Digest::parse(name);
            ((*name).to_owned(), known.map_or("?".to_owned(), |digest| digest.hex(bytes)).into())
        };
        hashes.iter().map(digest).collect()
    };
    let mut index = serde_json::json!({"version": 2, "shards": [{
        "format": "mds", "version": 2, "samples": 5, "compression": kind,
        "column_names": COLUMNS.map(|c| c.0), "column_encodings": COLUMNS.map(|c| c.1), "column_sizes": COLUMNS.map(|c| c.2),
        "raw_data": {"basename": "shard.00000.mds", "bytes": raw.len(), "hashes": of(&raw)},
        "zip_data": {"basename": "shard.00000.mds.zip", "bytes": zip.len(), "hashes": of(&zip)},
    }]});
    change(&mut index, &mut zip);
    let store = InMemory::new();
    let put = |name: &str, bytes: Vec<u8>| block_on(store.put(&Path::from(name), bytes.into())).unwrap();
    put("shard.00000.mds.zip", zip);
    put("index.json", index.to_string().into());
    open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"))
}

fn pack(kind: &str, bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    match kind.split(':').next().unwrap() {
        "zstd" => ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest),
        "gz" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "bz2" => {
            let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        "snappy" => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
        other => panic!("{other}"),
    }
}

#[cfg(feature = "packed")]
#[test]
fn compressed_shards_give_the_same_samples_and_the_same_identity() {
    let plain = block_on(open(&[(shard(0..5), 5)], |_| ()).into_future()).unwrap();
    let hashes = ["sha1", "md5", "sha256", "xxh64", "xxh3_64", "xxh128"];
    for kind in ["zstd", "zstd:7", "gz", "gz:9", "bz2", "snappy"] {
        let dataset = block_on(packed(kind, &hashes, |_, _| ()).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert_eq!((dataset.len(), dataset.fingerprint()), (5, plain.fingerprint()), "{kind}");
        assert_eq!(dataset.schema(), plain.schema(), "{kind}");
        for i in 0..5 {
            let [a, b] = [&plain, &dataset].map(|dataset| format!("{:?}", read(&**dataset, i).unwrap()));
            assert_eq!(a, b, "{kind}, record {i}");
        }
        let shared = dataset.shared_bytes();
        assert_eq!(shared.all, shard(0..5).len() as u64, "{kind}");
    }
}

#[cfg(feature = "packed")]
#[test]
fn hashes_of_the_index_are_checked_before_and_after_unpacking() {
    for hash in ["sha1", "md5", "sha256", "sha512", "xxh32", "xxh64", "xxh3_64", "xxh3_128"] {
        for (file, what) in [("raw_data", "shard"), ("zip_data", "compressed shard")] {
            let open = packed("gz", &[hash], |index, _| {
                let digits = index["shards"][0][file]["hashes"][hash].as_str().unwrap().to_owned();
                let other = if digits.ends_with('0') { '1' } else { '0' };
                index["shards"][0][file]["hashes"][hash] = format!("{}{other}", &digits[..digits.len() - 1]).into();
            });
            let dataset = block_on(open.into_future()).unwrap();
            let error = read(&*dataset, 0).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{hash}");
            assert!(
                text.contains(&format!("{hash} of the {what} is ")) && text.contains("shard.00000.mds.zip"),
                "{text}"
            );
        }
    }
    // One that nobody knows is not checked; the others are.
    let open = packed("gz", &["blake2b", "sha1"], |_, _| ());
    read(&*block_on(open.into_future()).unwrap(), 0).unwrap();
    // A flipped bit of a shard without sums of its own.
    let flip = |hashes: &'static [&'static str]| {
        packed("snappy", hashes, |_, zip| {
            let last = zip.len() - 1;
            zip[last] ^= 1;
        })
    };
    let silent = block_on(flip(&[]).into_future()).unwrap();
    read(&*silent, 4).unwrap();
    let dataset = block_on(flip(&["xxh64"]).into_future()).unwrap();
    assert!(read(&*dataset, 4).unwrap_err().to_string().contains("xxh64 of the compressed shard is"));
    // The compressed file is of another size than the index says.
    let open = packed("zstd", &[], |index, _| index["shards"][0]["zip_data"]["bytes"] = 7.into());
    assert!(block_on(open.into_future()).unwrap_err().to_string().contains("but 7 in index.json"));
    let open = packed("zstd", &[], |index, _| index["shards"][0]["samples"] = 4.into());
    assert!(block_on(open.into_future()).unwrap_err().to_string().contains("has 5 samples, but 4 by index.json"));
}

/// A shard of one column.
fn column(encoding: &str, values: &[Vec<u8>]) -> Open {
    named("image", encoding, values)
}

/// One column alone.
fn named(name: &str, encoding: &str, values: &[Vec<u8>]) -> Open {
    let mut at = (8 + 4 * values.len()) as u32;
    let mut bytes = (values.len() as u32).to_le_bytes().to_vec();
    for value in values {
        bytes.extend(at.to_le_bytes());
        at += 4 + value.len() as u32;
    }
    bytes.extend(at.to_le_bytes());
    bytes.extend(values.iter().flat_map(|value| [&(value.len() as u32).to_le_bytes()[..], value].concat()));
    let (name, encoding) = (name.to_owned(), encoding.to_owned());
    open(&[(bytes, values.len() as u32)], move |index| {
        let listed = &mut index["shards"][0];
        listed["column_names"] = serde_json::json!([name]);
        listed["column_encodings"] = serde_json::json!([encoding]);
        listed["column_sizes"] = serde_json::json!([null]);
    })
}

#[test]
fn pictures_of_pillow_are_pixels() {
    let pil = |mode: &str, width: u32, height: u32, pixels: &[u8]| {
        let head = [width, height, mode.len() as u32].map(u32::to_le_bytes).concat();
        [&head[..], mode.as_bytes(), pixels].concat()
    };
    let gray: Vec<u8> = (0..6).collect();
    let float = [0.5f32, -1.0].map(f32::to_le_bytes).concat();
    for (mode, width, height, stored, channels, dtype, want) in [
        ("L", 3, 2, gray.clone(), 1, DType::U8, gray.clone()),
        ("RGB", 1, 2, gray.clone(), 3, DType::U8, gray.clone()),
        ("RGBA", 1, 1, vec![1, 2, 3, 4], 4, DType::U8, vec![1, 2, 3, 4]),
        ("LA", 2, 1, vec![9, 255, 8, 255], 1, DType::U8, vec![9, 8]),
        (
            "1",
            10,
            2,
            vec![0b1000_0001, 0b0100_0000, 0xff, 0x80],
            1,
            DType::U8,
            [&[255, 0, 0, 0, 0, 0, 0, 255, 0, 255][..], &[255; 9], &[0]].concat(),
        ),
        (
            "I;16",
            3,
            1,
            gray.clone(),
            1,
            DType::U16,
            [u16::from_le_bytes([0, 1]), 0x0302, 0x0504].map(u16::to_ne_bytes).concat(),
        ),
        ("F", 2, 1, float, 1, DType::F32, [0.5f32, -1.0].map(f32::to_ne_bytes).concat()),
    ] {
        let dataset = block_on(column("pil", &[pil(mode, width, height, &stored)]).into_future()).unwrap();
        block_on(dataset_contract(&*dataset)).unwrap();
        assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Image { .. }), "{mode}");
        let found = read(&*dataset, 0).unwrap();
        let Value::Pixels { info, data } = &found.values[0] else { panic!("{mode}: {found:?}") };
        assert_eq!((info.width, info.height, info.channels, info.dtype), (width, height, channels, dtype), "{mode}");
        assert_eq!(data[..], want, "{mode}");
    }
    for (stored, says) in [
        (pil("P", 1, 1, &[0]), "Pillow's mode `P`"),
        (pil("RGB", 2, 2, &[0; 11]), "11 bytes of pixels of 2 x 2"),
        (pil("RGB", u32::MAX, u32::MAX, &[0; 11]), "11 bytes of pixels"),
        (pil("L", 0, 0, &[]), "0 bytes of pixels of 0 x 0"),
        (pil("1", 9, 1, &[0]), "is truncated"),
        (pil("L", 1, 1, &[0])[..9].to_vec(), "is truncated"),
    ] {
        let dataset = block_on(column("pil", &[stored]).into_future()).unwrap();
        let error = read(&*dataset, 0).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("shard.00000.mds, image"), "{error}");
    }
}

#[test]
fn bytes_that_are_pictures_are_images_and_others_stay_bytes() {
    let jpeg = b"\xff\xd8\xff\xe0\0\x10JFIF\0".to_vec();
    for (values, is_image) in [
        (vec![jpeg.clone(), jpeg.clone()], true),
        (vec![vec![], jpeg.clone()], true),
        (vec![b"BMW 320".to_vec(), jpeg.clone()], false),
        (vec![b"GIF89a\x01\0".to_vec()], true),
        (vec![b"P6 4 3 255 ".to_vec()], true),
        (vec![b"\0\0\0\x20ftypavif\0\0\0\0".to_vec()], false),
    ] {
        let dataset = block_on(column("bytes", &values).into_future()).unwrap();
        let kind = &dataset.schema().fields[0].kind;
        assert_eq!(matches!(kind, FieldKind::Image { .. }), is_image, "{values:?}: {kind:?}");
        for (i, value) in values.iter().enumerate() {
            match &read(&*dataset, i as u64).unwrap().values[0] {
                Value::Encoded(found) if is_image => assert_eq!(found, value),
                Value::Bytes(found) if !is_image => assert_eq!(found, value),
                other => panic!("{other:?}"),
            }
        }
        // Texts are texts, whatever they begin with.
        let texts = block_on(column("str", &values).into_future()).unwrap();
        assert!(matches!(texts.schema().fields[0].kind, FieldKind::Text { .. }));
    }
}

/// Of which some samples are bad.
fn damaged(open: Open) -> Arc<dyn Dataset> {
    block_on(open.into_future()).unwrap()
}

fn opens(open: Open) -> Arc<dyn Dataset> {
    let dataset = block_on(open.into_future()).unwrap();
    block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

#[test]
fn pictures_called_as_masks_are_masks_and_so_are_those_that_are_said_to_be() {
    let mask = |name| Field::mask(name, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U8) });
    let image = |name| Field::new(name, Field::image().kind);
    let png = [b"\x89PNG\r\n\x1a\n and more".to_vec()];
    for encoding in ["png", "jpeg:90", "bytes"] {
        for name in ["mask", "label", "segmentation", "tumor_mask", "annotation"] {
            let dataset = opens(named(name, encoding, &png));
            assert_eq!(dataset.schema().fields, [mask(name)], "{encoding}");
            let said = opens(named(name, encoding, &png).field(name, ["image"]));
            assert_eq!(said.schema().fields, [image(name)]);
        }
        let dataset = opens(named("gt", encoding, &png));
        assert_eq!(dataset.schema().fields, [image("gt")]);
        let dataset = opens(named("gt", encoding, &png).field("gt", ["mask"]));
        assert_eq!(dataset.schema().fields, [mask("gt")]);
    }
    let error = block_on(named("gt", "png", &png).field("gtt", ["mask"]).into_future()).unwrap_err().to_string();
    assert!(error.contains("no field `gtt`") && error.contains("did you mean gt? there are gt"), "{error}");
    // The first sample shows that labels have 16 bits.
    let wide = |name| Field::mask(name, FieldKind::Image { channels: 1, size: None, dtype: Some(DType::U16) });
    let head = |bits: u8| [b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01", &[bits][..]].concat();
    let pil = |mode: &[u8], pixels: &[u8]| {
        let head = [1, 1, mode.len() as u32].map(u32::to_le_bytes).concat();
        [&head[..], mode, pixels].concat()
    };
    for (encoding, values) in [
        ("png", [head(16), head(8)]),
        ("bytes", [head(16), head(8)]),
        ("pil", [pil(b"I;16", &[1, 2]), pil(b"L", &[3])]),
    ] {
        assert_eq!(opens(named("mask", encoding, &values)).schema().fields, [wide("mask")], "{encoding}");
        let said = opens(named("gt", encoding, &values).field("gt", ["mask"]));
        assert_eq!(said.schema().fields, [wide("gt")], "{encoding}");
        assert_eq!(opens(named("gt", encoding, &values)).schema().fields, [image("gt")], "{encoding}");
    }
    // A bit of a mask is 0 or 1.
    for (name, white) in [("mask", 1), ("photo", 255)] {
        let sample = read(&*opens(named(name, "pil", &[pil(b"1", &[0x80])])), 0).unwrap();
        assert!(matches!(&sample.values[0], Value::Pixels { data, .. } if data[..] == [white]), "{name}");
    }
    // Indices of a palette that is not there are a mask's values, and no image's.
    let indices = [[&[2u32, 1, 1].map(u32::to_le_bytes).concat()[..], b"P", &[15, 255]].concat()];
    for open in [named("seg", "pil", &indices), named("gt", "pil", &indices).field("gt", ["mask"])] {
        let sample = read(&*opens(open), 0).unwrap();
        assert!(matches!(&sample.values[0], Value::Pixels { data, .. } if data[..] == [15, 255]));
    }
}

#[test]
fn lists_of_one_image_are_images_and_others_lists_of_images() {
    let list = |head: &[u8], images: &[&[u8]]| {
        let sizes = images.iter().flat_map(|image| (image.len() as u32).to_le_bytes());
        let count = (images.len() as u32).to_le_bytes();
        [head, &count, &sizes.collect::<Vec<u8>>(), &images.concat()].concat()
    };
    let pil = [&[1u32, 1, 1].map(u32::to_le_bytes).concat()[..], b"L", &[9]].concat();
    for (encoding, head) in [
        ("jpeg_array", &[][..]),
        ("jpegarray", &[]),
        ("list[jpeg]", &[0; 4]),
        ("list[png]", &[0; 4]),
        ("list[pil]", &[0; 4]),
    ] {
        let image: &[u8] = if encoding == "list[pil]" { &pil } else { b"one image" };
        let one = list(head, &[image]);
        let dataset = opens(column(encoding, &[one.clone(), one.clone()]));
        assert_eq!(dataset.schema().fields, [Field::image()], "{encoding}");
        let sample = read(&*dataset, 1).unwrap();
        match &sample.values[0] {
            Value::Encoded(found) => assert_eq!(found, image),
            Value::Pixels { data, .. } => assert_eq!((encoding, &data[..]), ("list[pil]", &[9][..])),
            other => panic!("{other:?}"),
        }
        let two = list(head, &[image, image]);
        let counts = |dataset: &dyn Dataset, records: std::ops::Range<u64>| -> Vec<usize> {
            let images = records.map(|record| match &read(dataset, record).unwrap().values[0] {
                Value::Images(images) => images.len(),
                other => panic!("{other:?}"),
            });
            images.collect()
        };
        let dataset = opens(column(encoding, &[one.clone(), two.clone(), list(head, &[])]));
        assert!(matches!(dataset.schema().fields[0].kind, FieldKind::Images { usual: 2, .. }), "{encoding}");
        assert_eq!(counts(&*dataset, 0..3), [1, 2, 0], "{encoding}");
        let said = opens(column(encoding, std::slice::from_ref(&one)).field("image", ["list"]));
        assert_eq!(counts(&*said, 0..1), [1]);
        assert!(opens(named("masks", encoding, std::slice::from_ref(&two))).schema().fields[0].mask);
        // Behind what opening looks into, and damaged.
        let mut values = vec![one.clone(); LOOKED_INTO + 2];
        values[LOOKED_INTO] = two;
        values[LOOKED_INTO + 1] = one[..one.len() - 1].to_vec();
        let dataset = damaged(column(encoding, &values));
        let error = |record| read(&*dataset, record).unwrap_err().to_string();
        let other = error(LOOKED_INTO as u64);
        assert!(other.contains("a list of 2 images, but one in the first samples"), "{other}");
        assert!(other.contains("set field(\"image\", [\"list\"]) if samples have different numbers"), "{other}");
        assert!(error(LOOKED_INTO as u64 + 1).contains("a list of images is truncated"));
    }
    let lies = [&u32::MAX.to_le_bytes()[..], &[0; 20]].concat();
    assert!(parse_list(&lies.into(), 0).unwrap_err().to_string().contains("is truncated"));
}

#[test]
fn arrays_that_say_their_shape_are_read_where_it_is_one() {
    let array = |dtype: &[u8], shape: &[u16], numbers: &[i16]| {
        let shape =
            [&[(shape.len() as u8) << 2 | 1][..], &shape.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>()];
        [dtype, &shape.concat(), &numbers.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<_>>()].concat()
    };
    for (encoding, dtype) in [("ndarray:int16", &[][..]), ("ndarray", &[17])] {
        let first = array(dtype, &[2, 3], &[1, -2, 3, 4, 5, 6]);
        let dataset = opens(named("box", encoding, &[first.clone(), first.clone()]));
        let kind = FieldKind::Array { dtype: DType::I16, shape: vec![2, 3] };
        assert_eq!(dataset.schema().fields, [Field::new("box", kind)], "{encoding}");
        let want: Vec<u8> = [1i16, -2, 3, 4, 5, 6].iter().flat_map(|n| n.to_ne_bytes()).collect();
        assert!(matches!(&read(&*dataset, 1).unwrap().values[0], Value::Array(found) if found[..] == want));
        let mut values = vec![first; LOOKED_INTO + 2];
        values[LOOKED_INTO] = array(dtype, &[3], &[1, 2, 3]);
        values[LOOKED_INTO + 1].pop();
        let dataset = damaged(named("box", encoding, &values));
        let error = read(&*dataset, LOOKED_INTO as u64).unwrap_err().to_string();
        assert!(error.contains("an array of i16 [3], but of i16 [2, 3] in the first sample"), "{error}");
        assert!(read(&*dataset, LOOKED_INTO as u64 + 1).unwrap_err().to_string().contains("11 bytes of i16 [2, 3]"));
        values.swap(1, LOOKED_INTO);
        let error = block_on(named("box", encoding, &values).into_future()).unwrap_err().to_string();
        assert!(error.contains("i16 [2, 3] in one sample, i16 [3] in another"), "{error}");
        // Of any length: a list, also of rows of numbers, and without numbers in the first sample.
        for (shapes, item) in
            [(vec![vec![0], vec![2], vec![1]], vec![]), (vec![vec![1, 2], vec![0, 2], vec![3, 2]], vec![2])]
        {
            let made = |shape: &Vec<u16>| array(dtype, shape, &vec![7; shape.iter().product::<u16>().into()]);
            let values: Vec<_> = shapes.iter().map(made).collect();
            let dataset = opens(named("tokens", encoding, &values));
            let kind = &dataset.schema().fields[0].kind;
            assert!(
                matches!(kind, FieldKind::List { dtype: DType::I16, item: found, .. } if *found == item),
                "{kind:?}"
            );
            for (record, shape) in (0..).zip(&shapes) {
                let numbers: usize = shape.iter().product::<u16>().into();
                let value = &read(&*dataset, record).unwrap().values[0];
                assert!(matches!(value, Value::List(found) if found[..] == 7i16.to_ne_bytes().repeat(numbers)));
            }
        }
        // What can't be a list is left out, with its reason.
        for shape in [vec![], vec![2, 0]] {
            let values = [array(dtype, &shape, &vec![7; usize::from(shape.is_empty())])];
            let error =
                block_on(named("tokens", encoding, &values).field("tokens", ["list"]).into_future()).unwrap_err();
            assert!(error.to_string().contains("not a list of numbers"), "{error}");
        }
        // Beyond what opening looks into, the user has to say so; pictures are no lists.
        let mut late = vec![array(dtype, &[2], &[1, 2]); LOOKED_INTO + 1];
        late[LOOKED_INTO] = array(dtype, &[3], &[1, 2, 3]);
        let error = read(&*damaged(named("tokens", encoding, &late)), LOOKED_INTO as u64).unwrap_err().to_string();
        assert!(error.contains("set field(\"tokens\", [\"list\"]) if the first axis"), "{error}");
        let said = opens(named("tokens", encoding, &late).field("tokens", ["list"]));
        assert!(matches!(&read(&*said, LOOKED_INTO as u64).unwrap().values[0], Value::List(found) if found.len() == 6));
    }
    for bytes in [&[][..], &[17], &[17, 1 << 2 | 3, 1], &[200, 4, 1]] {
        assert!(parse_array(bytes, None).is_err());
    }
}

#[test]
fn numbers_as_text_are_numbers_and_images_that_are_not_read_are_no_run_of_labels() {
    let texts = |texts: &[&str]| texts.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
    let dataset = damaged(named("label", "str_int", &texts(&["7", "-1", "x"])));
    assert_eq!(dataset.schema().fields, [Field::label()]);
    assert!(matches!(read(&*dataset, 1).unwrap().values[0], Value::Label(-1)));
    assert!(read(&*dataset, 2).unwrap_err().to_string().contains("`x` is not a valid label"));
    let dataset = opens(named("id", "str_int", &texts(&["123456789012"])));
    let want = 123_456_789_012i64.to_ne_bytes();
    assert!(matches!(&read(&*dataset, 0).unwrap().values[0], Value::Array(found) if found[..] == want));
    let dataset = opens(named("score", "str_float", &texts(&["0.5"])));
    assert!(matches!(&read(&*dataset, 0).unwrap().values[0], Value::Array(found) if found[..] == 0.5f64.to_ne_bytes()));
    let dataset = opens(named("price", "str_decimal", &texts(&["0.10"])));
    assert!(matches!(&read(&*dataset, 0).unwrap().values[0], Value::Bytes(found) if found == "0.10"));
    // The image of the usual columns of another encoding.
    let without = |index: &mut serde_json::Value| index["shards"][0]["column_encodings"][2] = "pkl".into();
    let error = block_on(open(&[(shard(0..3), 3)], without).into_future()).unwrap_err().to_string();
    assert!(error.contains("the images are not read: image (pkl)"), "{error}");
    assert!(error.contains("to read only the others, name them with columns(…): box, label, text"), "{error}");
    let labels = opens(open(&[(shard(0..3), 3)], without).columns(["label"]));
    assert_eq!(labels.schema().fields, [Field::label()]);
    let error = block_on(open(&[(shard(0..3), 3)], without).columns(["image", "label"]).into_future()).unwrap_err();
    assert!(error.to_string().contains("not read: image (pkl)"), "{error}");
}

#[test]
fn integers_of_each_width_are_labels() {
    let labels = |encoding: &str, values: &[&[u8]], name: &str| {
        let values: Vec<Vec<u8>> = values.iter().map(|value| value.to_vec()).collect();
        let dataset = damaged(named(name, encoding, &values));
        assert_eq!(dataset.schema().fields, [Field::label()], "{name}, {encoding}");
        let label = |record| match read(&*dataset, record).map(|sample| sample.values) {
            Ok(values) => match values[..] {
                [Value::Label(label)] => Ok(label),
                _ => panic!("{values:?}"),
            },
            Err(error) => Err(error.to_string()),
        };
        (0..dataset.len()).map(label).collect::<Vec<_>>()
    };
    let (small, minus) = (9i64.to_le_bytes(), (-1i64).to_le_bytes());
    for (encoding, width) in [("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8), ("int", 8)] {
        for name in ["label", "class", "target"] {
            assert_eq!(labels(encoding, &[&small[..width], &minus[..width]], name), [Ok(9), Ok(-1)], "{encoding}");
        }
    }
    for (encoding, width, largest) in [("uint8", 1, 255), ("uint16", 2, 65535), ("uint32", 4, i64::from(u32::MAX))] {
        let found = labels(encoding, &[&small[..width], &minus[..width]], "label");
        assert_eq!(found, [Ok(9), Ok(largest)], "{encoding}");
    }
    let found = labels("uint64", &[&small, &minus, &small[..4]], "label");
    assert_eq!(found[0], Ok(9));
    let error = found[1].clone().unwrap_err();
    assert!(error.contains("label 18446744073709551615 is above 9223372036854775807"), "{error}");
    assert!(found[2].clone().unwrap_err().contains("a label of 4 bytes instead of 8"));
    // Other names, and fractions, are numbers.
    let dataset = opens(named("count", "uint8", &[vec![3]]));
    assert_eq!(dataset.schema().fields, [Field::new("count", FieldKind::Array { dtype: DType::U8, shape: vec![] })]);
    let dataset = opens(named("label", "float32", &[vec![0; 4]]));
    assert_eq!(dataset.schema().fields, [Field::new("label", FieldKind::Array { dtype: DType::F32, shape: vec![] })]);
}

#[test]
fn shards_without_an_index_are_an_error_that_names_it() {
    for names in [&["shard.00000.mds"][..], &["train/shard.00000.mds.zstd", "README.md", "train/stats.json"]] {
        let store = InMemory::new();
        for name in names {
            block_on(store.put(&Path::from(*name), shard(0..3).into())).unwrap();
        }
        let open = open_source(Source::from_store(Arc::new(store), Path::default(), "test://x"));
        let error = block_on(open.into_future()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let error = error.to_string();
        assert!(error.contains("MDS shards without index.json") && error.contains(names[0]), "{error}");
    }
}

proptest! {
    #[test]
    fn any_bytes_give_columns_or_an_error(
        raw in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..150, flip in any::<u8>(), end in 0usize..200,
    ) {
        let sizes = || COLUMNS.iter().map(|column| column.2);
        let mut damaged = sample(9);
        let at = at.min(damaged.len() - 1);
        damaged[at] ^= flip;
        damaged.truncate(end);
        for bytes in [&raw, &damaged] {
            if let Ok(places) = parse_sample(bytes, sizes()) {
                prop_assert!(places.iter().all(|place| place.start <= place.end && place.end <= bytes.len()));
            }
            let _ = parse_offsets(bytes, 3, 1000);
        }
    }
}
