//! Tar shards: the samples are those of the files they were packed from; any record is read alone; what is damaged or told
//! wrongly is an error that says where.

use std::{fs, path::Path, sync::Arc};

use bytes::Bytes;
use infeed::{
    DType, Error, ErrorKind, LastBatch, Order, Result, Transform,
    dataset::{Dataset, FieldKind, Open, SampleRng, Value, dataset_contract, open, open_source, write_index},
    source::Source,
};
use object_store::ObjectStoreExt;
use proptest::prelude::*;

use crate::{
    damaged,
    properties::properties,
    support::{builder, drain, store::Tracker, until},
};

/// Files of a tar, in order.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

pub(crate) fn pack(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        // Long names become members of their own, as GNU tar writes them.
        tar.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    tar.into_inner().unwrap()
}

/// A picture that tells its number.
fn picture(i: usize) -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let pixel = image::Rgb([i as u8, (i >> 8) as u8, 7]);
    image::RgbImage::from_pixel(6 + i as u32 % 3, 5, pixel).write_to(&mut file, image::ImageFormat::Png).unwrap();
    file.into_inner()
}

/// `count` samples: picture, label, JSON of another length each.
pub(crate) fn samples(first: usize, count: usize) -> Files {
    (first..first + count)
        .flat_map(|i| {
            let json = format!("{{\"n\": {i}, \"x\": \"{}\"}}", "y".repeat(i % 50));
            [
                (format!("d/{i:05}.png"), picture(i)),
                (format!("d/{i:05}.cls"), (i % 10).to_string().into_bytes()),
                (format!("d/{i:05}.json"), json.into_bytes()),
            ]
        })
        .collect()
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap();
}

/// Shards of 20, 1 and 9 samples.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, first, count) in [("a-0.tar", 0, 20), ("a-1.tar", 20, 1), ("a-2.tar", 21, 9)] {
        write(dir.path(), name, &pack(&samples(first, count)));
    }
    dir
}

/// Writes the index beside the tars.
fn indexed(dir: &tempfile::TempDir) {
    let source = Source::parse(&dir.path().display().to_string()).unwrap();
    futures::executor::block_on(write_index(&source)).unwrap();
}

fn at(dir: &tempfile::TempDir) -> Open {
    open(dir.path().to_str().unwrap())
}

fn opened(open: Open) -> Result<Arc<dyn Dataset>> {
    futures::executor::block_on(open.into_future())
}

fn sound(open: Open) -> Arc<dyn Dataset> {
    let dataset = opened(open).unwrap();
    futures::executor::block_on(dataset_contract(&*dataset)).unwrap();
    dataset
}

fn values(dataset: &dyn Dataset, record: u64) -> Result<Vec<Value>> {
    let plan = dataset.plan(record, SampleRng::new(0, 0, record))?;
    let read: Result<Vec<Bytes>> = plan.extents.iter().map(|e| futures::executor::block_on(e.read())).collect();
    Ok(dataset.parse(record, &plan, &read?)?.values.into_vec())
}

fn error_of(dir: &tempfile::TempDir) -> Error {
    opened(at(dir)).expect_err("bad shards")
}

fn names(dataset: &dyn Dataset) -> Vec<&str> {
    dataset.schema().fields.iter().map(|field| field.name.as_str()).collect()
}

#[test]
fn samples_are_what_was_packed() {
    let dir = folder();
    for round in ["by headers", "by the manifest"] {
        let dataset = sound(at(&dir));
        assert_eq!((dataset.format(), dataset.len()), ("tar", 30), "{round}");
        assert_eq!(names(&*dataset), ["image", "label", "json", "key"]);
        assert_eq!(&dataset.groups().unwrap()[..], [0, 20, 21]);
        for record in 0..30 {
            let i = record as usize;
            let [Value::Encoded(image), Value::Label(label), Value::Bytes(json), Value::Bytes(key)] =
                &values(&*dataset, record).unwrap()[..]
            else {
                panic!("other fields")
            };
            assert_eq!((&image[..], *label), (&picture(i)[..], (i % 10) as i64));
            assert!(json.starts_with(format!("{{\"n\": {i},").as_bytes()));
            assert_eq!(key, format!("d/{i:05}").as_bytes());
        }
        assert!(dataset.object(29).ends_with("a-2.tar"));
        let here = dir.path().join("shards.infeed").exists();
        assert_eq!(here, round == "by the manifest", "opening writes nothing beside the data");
        indexed(&dir);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn shards_stay_open_while_a_stream_reads_from_them_and_no_longer() {
    let dir = folder();
    let root = dir.path().canonicalize().unwrap();
    let open = || {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let files = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        files.filter(|file| file.starts_with(&root) && file.extension().is_some_and(|end| end == "tar")).count()
    };
    let dataset = sound(at(&dir));
    let loader = builder(dataset).batch_size(5).transform(Transform::new().resize_exact(2, 2)).prefetch(6).shuffle(1);
    let loader = loader.build_blocking().unwrap();
    assert_eq!(open(), 0);
    let mut batches = loader.epoch(0).blocking();
    batches.next().unwrap().unwrap();
    until("a shard was not opened, or more than once", || open() == 3);
    // Removed while it is open, it is missed.
    fs::remove_file(dir.path().join("a-0.tar")).unwrap();
    assert_eq!(drain(loader.epoch(1)).unwrap_err().kind(), ErrorKind::NotFound);
    drop(batches);
    until("a shard is still open", || open() == 0);
}

#[test]
fn patterns_name_some_of_the_shards() {
    let dir = folder();
    let at = |pattern: &str| open(format!("{}/{pattern}", dir.path().display()));
    assert_eq!(sound(at("a-{1..2}.tar")).len(), 10);
    assert_eq!(sound(at("a-{0,2}.tar")).len(), 29);
    let twice = format!("{0}/a-1.tar::{0}/a-{{1..2}}.tar", dir.path().display());
    assert_eq!(sound(open(twice)).len(), 11);
    let error = opened(at("a-{2..5}.tar")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("3 of the 4 objects") && error.to_string().contains("a-3.tar"), "{error}");
    assert_eq!(sound(open(dir.path().join("a-2.tar").display().to_string())).len(), 9, "one shard by its name");
}

#[test]
fn fields_are_chosen() {
    let dir = folder();
    let dataset = sound(at(&dir).columns(["label", "key"]));
    assert_eq!(names(&*dataset), ["label", "key"]);
    assert!(dataset.largest_read() < 2000, "pictures are not read: {}", dataset.largest_read());
    let error = opened(at(&dir).columns(["depth"])).unwrap_err().to_string();
    assert!(error.contains("no member is a field `depth`") && error.contains("image, json, label, key"), "{error}");
}

#[test]
fn arrays_pixels_and_many_extensions_are_fields() {
    let npy = |shape: &str, descr: &str, bytes: &[u8]| {
        let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (dict.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], dict.as_bytes(), bytes].concat()
    };
    let sample = |i: u8| {
        let pixels = npy("(2, 1, 3)", "|u1", &[i; 6]);
        let box_ = npy("(2,)", "<f4", &[1.5f32.to_le_bytes(), f32::from(i).to_le_bytes()].concat());
        let list = [
            ("image.npy", pixels),
            ("box.npy", box_),
            ("depth.png", picture(1)),
            ("x.cls", vec![b'4']),
            ("mp4", vec![0]),
        ];
        list.map(|(extension, bytes)| (format!("{i}.{extension}"), bytes))
    };
    let dir = tempfile::tempdir().unwrap();
    let files: Files = (0..3).flat_map(sample).collect();
    write(dir.path(), "x.tar", &pack(&files));
    let dataset = sound(at(&dir));
    assert_eq!(names(&*dataset), ["image", "depth", "x", "box", "key"]);
    let values = values(&*dataset, 2).unwrap();
    assert!(
        matches!(&values[0], Value::Pixels { info, data } if (info.height, info.width) == (2, 1) && data[..] == [2; 6])
    );
    assert!(matches!(&values[2], Value::Label(4)));
    let loader = builder(Arc::clone(&dataset)).batch_size(3).transform(Transform::new().resize_exact(2, 2));
    let batch = drain(loader.build_blocking().unwrap().epoch(0)).unwrap().remove(0);
    assert_eq!((batch["box"].shape(), batch["box"].dtype()), (&[3, 2][..], DType::F32));
    assert_eq!(batch["box"].as_slice::<f32>().unwrap(), [1.5, 0.0, 1.5, 1.0, 1.5, 2.0]);
    assert_eq!(names(&*sound(at(&dir).columns(["mp4"]))), ["mp4"]);

    // Members of another size: lists.
    let other =
        |shape: &str, descr: &str, bytes: usize| pack(&[("9.box.npy".into(), npy(shape, descr, &vec![0; bytes]))]);
    write(dir.path(), "y.tar", &other("(3,)", "<f4", 12));
    let dataset = sound(at(&dir).columns(["box"]));
    let kind = &dataset.schema().fields[0].kind;
    assert!(matches!(kind, FieldKind::List { dtype: DType::F32, item, .. } if item.is_empty()), "{kind:?}");
    let lists = [2, 3].map(|record| self::values(&*dataset, record).unwrap());
    assert!(matches!(&lists[0][..], [Value::List(list)] if list.len() == 8), "{lists:?}");
    assert!(matches!(&lists[1][..], [Value::List(list)] if list.len() == 12), "{lists:?}");
    for (shape, descr, bytes, want) in [
        ("(2,)", "<f8", 16, "numbers of f64 [2], the first record has f32 [2]"),
        ("(3, 1)", "<f4", 12, "numbers of f32 [3, 1], the first record has f32 [2]"),
    ] {
        write(dir.path(), "y.tar", &other(shape, descr, bytes));
        let error = self::values(&*opened(at(&dir).columns(["box"])).unwrap(), 3).unwrap_err().to_string();
        assert!(error.contains(want) && error.contains("save arrays of one type and shape"), "{error}");
    }
    // The sizes are equal in the samples that opening examines, and the largest is the first's.
    let many: Files = (0..600)
        .map(|i| {
            let numbers = if i == 599 { 1 } else { 2 };
            (format!("{i:04}.box.npy"), npy(&format!("({numbers},)"), "<f4", &vec![0; numbers * 4]))
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "x.tar", &pack(&many));
    let error = self::values(&*opened(at(&dir)).unwrap(), 599).unwrap_err().to_string();
    assert!(error.contains(r#"set field("box", ["list"])"#), "{error}");
    let said = sound(at(&dir).field("box", ["list"]));
    assert!(matches!(&self::values(&*said, 599).unwrap()[0], Value::List(list) if list.len() == 4));
}

#[test]
fn masks_are_known_by_their_names_and_take_the_draws_of_the_image() {
    let dir = tempfile::tempdir().unwrap();
    // The mask of each pixel is half of its red.
    let picture = |i: usize, mask: bool| {
        let mut file = std::io::Cursor::new(Vec::new());
        let value = |x: u32, y: u32| ((x + 8 * y) as usize * 2 + i) as u8;
        match mask {
            true => image::DynamicImage::from(image::GrayImage::from_fn(8, 8, |x, y| image::Luma([value(x, y) / 2]))),
            false => image::RgbImage::from_fn(8, 8, |x, y| image::Rgb([value(x, y); 3])).into(),
        }
        .write_to(&mut file, image::ImageFormat::Png)
        .unwrap();
        file.into_inner()
    };
    let of = |i: usize| [(format!("{i}.seg.png"), picture(i, true)), (format!("{i}.png"), picture(i, false))];
    let files: Files = (0..6).flat_map(of).collect();
    write(dir.path(), "x.tar", &pack(&files));
    let dataset = sound(at(&dir));
    assert_eq!(names(&*dataset), ["image", "seg", "key"]);
    assert!(dataset.schema().fields[1].mask);
    let transform = Transform::new().random_crop(4, 0).horizontal_flip(0.5);
    let loader = builder(dataset).batch_size(6).dtype(DType::U8).transform(transform).build_blocking().unwrap();
    let batch = drain(loader.epoch(0)).unwrap().remove(0);
    assert_eq!(batch["seg"].shape(), [6, 1, 4, 4]);
    let (images, masks) = (batch["image"].bytes().unwrap(), batch["seg"].bytes().unwrap());
    for (image, mask) in images.chunks(48).zip(masks.chunks(16)) {
        assert!(image[..16].iter().zip(mask).all(|(image, mask)| image / 2 == *mask), "{image:?} {mask:?}");
    }
}

#[test]
fn two_images_of_one_name_are_fields_by_their_extensions() {
    let dir = tempfile::tempdir().unwrap();
    let image = |value: u8| {
        let mut file = std::io::Cursor::new(Vec::new());
        let image = image::GrayImage::from_pixel(8, 8, image::Luma([value]));
        image.write_to(&mut file, image::ImageFormat::Png).unwrap();
        file.into_inner()
    };
    let of = |i: u8| [(format!("{i}.jpg"), image(100)), (format!("{i}.png"), image(i))];
    write(dir.path(), "a.tar", &pack(&(0..3).flat_map(of).collect::<Files>()));
    let dataset = sound(at(&dir));
    assert_eq!(names(&*dataset), ["jpg", "png", "key"]);
    assert!(dataset.schema().fields.iter().all(|field| !field.mask));
    let loader = builder(sound(at(&dir).field("png", ["mask"]))).batch_size(3).dtype(DType::F32);
    let loader = loader.transform(Transform::new().center_crop(8));
    let batch = drain(loader.build_blocking().unwrap().epoch(0)).unwrap().remove(0);
    assert_eq!(batch["png"].shape(), [3, 1, 8, 8]);
    assert!(batch["png"].bytes().unwrap().chunks(64).zip(0..).all(|(mask, i)| mask == [i; 64]));

    // Samples with the one or the other have one image.
    let either: Files = (0..4).map(|i| of(i)[usize::from(i % 2)].clone()).collect();
    write(dir.path(), "a.tar", &pack(&either));
    assert_eq!(names(&*sound(at(&dir))), ["image", "key"]);
}

#[test]
fn pictures_of_netpbm_are_pixels() {
    let dir = tempfile::tempdir().unwrap();
    let ppm = |i: u8| format!("P6\n2 1\n255\n{}", char::from(b'a' + i).to_string().repeat(6)).into_bytes();
    let files: Vec<_> = (0..3u8)
        .flat_map(|i| [(format!("{i}.ppm"), ppm(i)), (format!("{i}.depth.pgm"), b"P5 1 1 65535 ab".to_vec())])
        .collect();
    write(dir.path(), "a.tar", &pack(&files));
    let dataset = sound(at(&dir));
    assert_eq!(names(&*dataset), ["image", "depth", "key"]);
    let transform = Transform::new().center_crop(1);
    let loader = builder(dataset).batch_size(3).dtype(DType::F32).transform(transform).build_blocking().unwrap();
    let batch = drain(loader.epoch(0)).unwrap().remove(0);
    let values = |field: &str| batch[field].to_vec::<f32>().unwrap();
    assert_eq!(values("image"), [[97.0; 3], [98.0; 3], [99.0; 3]].concat());
    // 16 bits stay 16 bits.
    assert_eq!(values("depth"), [f32::from(u16::from_be_bytes(*b"ab")); 9]);
}

#[test]
fn columns_are_for_shards() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.png", &picture(1));
    let error = opened(at(&dir).columns(["image"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("datasets of the format folder take no columns"), "{error}");
}

#[test]
fn long_names_and_both_kinds_of_headers_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}/picture", "folder/".repeat(40));
    let gnu = pack(&[(format!("{long}1.txt"), b"one".to_vec())]);
    let mut pax = tar::Builder::new(Vec::new());
    let name = format!("{long}2.txt");
    pax.append_pax_extensions([("path", name.as_bytes())]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(3);
    header.set_path("short.txt").unwrap();
    header.set_cksum();
    pax.append(&header, &b"two"[..]).unwrap();
    write(dir.path(), "a.tar", &gnu);
    let dataset = sound(at(&dir));
    assert!(
        matches!(&values(&*dataset, 0).unwrap()[1], Value::Bytes(key) if key[..] == format!("{long}1").as_bytes()[..])
    );
    write(dir.path(), "a.tar", &pax.into_inner().unwrap());
    let dataset = sound(at(&dir));
    assert!(
        matches!(&values(&*dataset, 0).unwrap()[1], Value::Bytes(key) if key[..] == format!("{long}2").as_bytes()[..])
    );
}

#[test]
fn what_is_wrong_with_a_shard_is_told() {
    let dir = folder();
    let a = |bytes: &[u8]| {
        write(dir.path(), "a-1.tar", bytes);
        error_of(&dir).to_string()
    };
    let files = samples(20, 3);
    let whole = pack(&files);
    let picture = files[0].1.len();
    let error = a(&whole[..512 + picture - 5]);
    let says = format!("`d/00020.png` ends after {} of {picture} bytes", picture - 5);
    assert!(error.contains(&says) && error.contains("a-1.tar @ 0.."), "{error}");
    let next = 512 + picture.next_multiple_of(512);
    let error = a(&whole[..next + 100]);
    assert!(error.contains("100 bytes where a header of 512 belongs"), "{error}");
    let mut broken = whole.clone();
    broken[3] ^= 1;
    let error = a(&broken);
    assert!(error.contains("its checksum is wrong") && error.contains("@ 0..512"), "{error}");
    let twice: Files = files.iter().chain(&files[..1]).cloned().collect();
    let error = a(&pack(&twice));
    assert!(error.contains("key `d/00020` comes again after other keys"), "{error}");
    let doubled: Files = [&files[..1], &files[..1]].concat();
    let error = a(&pack(&doubled));
    assert!(error.contains("`d/00020.png` is there twice"), "{error}");
    let error = a(&pack(&[&files[..2], &files[3..]].concat()));
    assert!(error.contains("1 of 32 samples have no `json`, the first is key `d/00020`"), "{error}");
    let error = a(&[0x1f, 0x8b].repeat(1000));
    assert!(error.contains("gzip"), "{error}");
}

#[test]
fn a_tar_without_the_zeros_at_its_end_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut tar = pack(&samples(0, 3));
    tar.truncate(tar.len() - 1024);
    while tar.ends_with(&[0; 512]) {
        tar.truncate(tar.len() - 512);
    }
    write(dir.path(), "a.tar", &tar);
    // Even the padding of the last member may lack.
    tar.truncate(tar.len() - 1);
    write(dir.path(), "b.tar", &tar);
    write(dir.path(), "empty.tar", &[]);
    assert_eq!(sound(at(&dir)).len(), 6);
}

#[test]
fn compressed_tars_are_refused_with_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "x.tar.gz", b"whatever");
    let error = error_of(&dir);
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("x.tar.gz") && error.to_string().contains("infeed stage"), "{error}");
}

#[test]
fn splits_side_by_side_are_not_mixed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "train-0.tar", &pack(&samples(0, 4)));
    write(dir.path(), "val-0.tar", &pack(&samples(0, 3)));
    let error = error_of(&dir);
    assert!(error.to_string().contains("shards of several splits: train, val"), "{error}");
    assert_eq!(sound(at(&dir).split("val")).len(), 3);
    // Behind the name of the dataset, and of TFRecords too.
    let record = damaged::record(&damaged::example(b"\x89PNG"));
    for (names, what) in [
        (["imagenet-train-000.tar", "imagenet-val-000.tar"], "shards"),
        (["train.tfrecord", "val.tfrecord"], "files"),
        (["d-train.tfrecord-00000-of-00001", "d-val.tfrecord-00000-of-00001"], "files"),
        (["train00-100.tfrec", "val00-100.tfrec"], "files"),
        (["train/0.tfrecord", "val/0.tfrecord"], "files"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (name, count) in names.into_iter().zip([4, 3]) {
            let content = if what == "files" { record.repeat(count) } else { pack(&samples(0, count)) };
            fs::create_dir_all(dir.path().join(name).parent().unwrap()).unwrap();
            write(dir.path(), name, &content);
        }
        let error = error_of(&dir).to_string();
        assert!(error.contains(&format!("{what} of several splits: train, val")), "{error}");
        assert_eq!(opened(at(&dir).split("val")).unwrap().len(), 3, "{names:?}");
    }
    // In folders likewise.
    for (split, count) in [("train", 4), ("val", 3)] {
        fs::create_dir(dir.path().join(split)).unwrap();
        fs::remove_file(dir.path().join(format!("{split}-0.tar"))).unwrap();
        write(dir.path(), &format!("{split}/0.tar"), &pack(&samples(0, count)));
    }
    let error = error_of(&dir);
    assert!(error.to_string().contains("shards of several splits: train, val"), "{error}");
    assert_eq!(sound(at(&dir).split("train")).len(), 4);
}

#[test]
fn a_stale_index_is_found_when_the_record_is_read() {
    let dir = folder();
    indexed(&dir);
    // Of the same size, with other members in other places.
    let mut files = samples(0, 20);
    files.rotate_left(3);
    let other = pack(&files);
    assert_eq!(other.len(), fs::read(dir.path().join("a-0.tar")).unwrap().len());
    write(dir.path(), "a-0.tar", &other);
    let dataset = opened(at(&dir)).unwrap();
    let error = values(&*dataset, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(
        error.to_string().contains("the index does not fit the tar") && error.to_string().contains("a-0.tar @"),
        "{error}"
    );
    // Another size is seen at once, and the shard indexed again.
    write(dir.path(), "a-0.tar", &pack(&samples(0, 5)));
    assert_eq!(sound(at(&dir)).len(), 15);
}

#[test]
fn an_index_of_dali_is_read_in_place_of_the_headers() {
    let files: Vec<(String, Bytes)> = vec![
        ("a.tar".into(), pack(&samples(0, 2)).into()),
        ("a.idx".into(), "v1.2 1\npng 512 70 d/00000.png cls 1536 1 d/00000.cls\n".into()),
    ];
    let tracker = Tracker::holding(files);
    let dataset = opened(open_source(tracker.source())).unwrap();
    assert_eq!(dataset.len(), 1, "it is believed");
    assert!(tracker.names().iter().all(|name| name == "a.idx"), "{:?}", tracker.log_of_requests());
}

#[test]
fn a_remote_shard_is_indexed_in_few_requests_and_resumed_without_what_came_before() {
    let tracker = Tracker::holding((0..4).map(|n| (format!("{n}.tar"), pack(&samples(n * 100, 100)))));
    let cache = tempfile::tempdir().unwrap();
    let again = || opened(open_source(tracker.source()).manifests(cache.path())).unwrap();
    let dataset = again();
    assert!(tracker.requests() <= 8, "{:?}", tracker.log_of_requests());
    tracker.reset();
    assert_eq!(again().fingerprint(), dataset.fingerprint());
    assert_eq!(tracker.requests(), 0, "the index was kept");

    let transform = Transform::new().resize_exact(4, 4);
    let loader = builder(dataset).batch_size(10).transform(transform).build_blocking().unwrap();
    let all = drain(loader.epoch(0)).unwrap();
    let read: u64 = tracker.log_of_requests().iter().map(|r| r.range.clone().map_or(0, |r| r.end - r.start)).sum();
    assert!(tracker.requests() <= 44, "neighbours are read together: {}", tracker.requests());
    tracker.reset();
    let rest = drain(loader.resume_epoch(all[36].state()).unwrap()).unwrap();
    assert_eq!(rest.len(), 3);
    for (a, b) in rest.iter().zip(&all[37..]) {
        assert_eq!(
            (a.records(), a["image"].bytes(), a.bytes("json")),
            (b.records(), b["image"].bytes(), b.bytes("json"))
        );
    }
    let log = tracker.log_of_requests();
    assert!(log.iter().all(|r| r.name == "3.tar" && r.range.as_ref().is_some_and(|r| r.start > 50_000)), "{log:?}");
    let resumed: u64 = log.iter().map(|r| r.range.clone().map_or(0, |r| r.end - r.start)).sum();
    assert!(resumed <= read * 30 / 400 * 2, "{resumed} of {read} bytes");
}

/// As the ranks of a machine do.
#[tokio::test]
async fn several_that_open_a_bucket_at_once_read_it_once() {
    let tracker = Tracker::holding((0..4).map(|n| (format!("{n}.tar"), pack(&samples(n * 100, 100)))));
    let (alone, together) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |kept: &tempfile::TempDir| open_source(tracker.source()).manifests(kept.path()).into_future();
    let first = open(&alone).await.unwrap();
    let once = tracker.requests();
    tracker.reset();
    let ranks = futures::future::try_join_all((0..8).map(|_| open(&together))).await.unwrap();
    assert!(ranks.iter().all(|rank| rank.fingerprint() == first.fingerprint()));
    assert_eq!(tracker.requests(), once, "{:?}", tracker.log_of_requests());
}

/// Of a large one a copy is kept for all processes of the machine, in the version that the bucket has.
#[test]
fn an_index_in_a_bucket_is_fetched_once() {
    let (bucket, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = "long/".repeat(10);
    let many = |count: usize| -> Files {
        (0..count)
            .map(|i| {
                (format!("{}/{long}{:x}.cls", i % 7, (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)), b"1".to_vec())
            })
            .collect()
    };
    let tracker = Tracker::holding([] as [(String, Bytes); 0]);
    let put = |count: usize| {
        let _ = fs::remove_file(bucket.path().join("shards.infeed"));
        write(bucket.path(), "a.tar", &pack(&many(count)));
        indexed(&bucket);
        for name in ["a.tar", "shards.infeed"] {
            let (path, bytes) = (name.into(), fs::read(bucket.path().join(name)).unwrap());
            futures::executor::block_on(ObjectStoreExt::put(&*tracker, &path, bytes.into())).unwrap();
        }
    };
    let open = || opened(open_source(tracker.source()).manifests(kept.path())).unwrap();
    let copies = || fs::read_dir(kept.path()).unwrap().count();
    for count in [30_000, 31_000] {
        put(count);
        assert!(fs::metadata(bucket.path().join("shards.infeed")).unwrap().len() > 1 << 20);
        for (opening, requests) in [("first", 1), ("later", 0)] {
            tracker.reset();
            assert_eq!(open().len(), count as u64);
            let asked = tracker.log_of_requests().iter().filter(|request| request.name == "shards.infeed").count();
            assert_eq!(asked, requests, "{opening}");
            assert_eq!((tracker.requests(), copies()), (requests, 1), "{opening}: {:?}", tracker.log_of_requests());
        }
    }
}

#[test]
fn labels_are_known_from_the_index_and_no_record_is_read_for_them() {
    let tracker = Tracker::holding((0..2).map(|n| (format!("{n}.tar"), pack(&samples(n * 100, 50)))));
    let cache = tempfile::tempdir().unwrap();
    let open = || open_source(tracker.source()).manifests(cache.path());
    let dataset = opened(open()).unwrap();
    let read: Vec<i64> = (0..dataset.len())
        .map(|record| match values(&*dataset, record).unwrap()[1] {
            Value::Label(label) => label,
            _ => panic!("the second field is the label"),
        })
        .collect();
    tracker.reset();
    let labels = || futures::executor::block_on(infeed::dataset::labels(&*opened(open()).unwrap())).unwrap();
    assert_eq!(labels(), read);
    let some = opened(open().filter(format!("label={}", read[7]).parse().unwrap())).unwrap();
    assert_eq!(some.len(), read.iter().filter(|label| **label == read[7]).count() as u64);
    assert_eq!(tracker.requests(), 0, "{:?}", tracker.log_of_requests());
}

#[test]
fn a_damaged_index_is_an_error_that_names_it_or_is_made_anew_and_never_other_records() {
    let dir = folder();
    let index = dir.path().join("shards.infeed");
    let all = |dataset: &dyn Dataset| -> Result<Vec<String>> {
        (0..dataset.len()).map(|record| values(dataset, record).map(|values| format!("{values:?}"))).collect()
    };
    let want = all(&*opened(at(&dir)).unwrap()).unwrap();
    indexed(&dir);
    let whole = fs::read(&index).unwrap();
    let mut found = [0; 2];
    for at_byte in (0..whole.len()).step_by(7) {
        let mut damaged = whole.clone();
        damaged[at_byte] ^= 0x40;
        fs::write(&index, if at_byte % 2 == 0 { &damaged } else { &whole[..at_byte] }).unwrap();
        match opened(at(&dir)).and_then(|dataset| all(&*dataset)) {
            Ok(records) => {
                assert_eq!(records, want, "byte {at_byte}");
                found[0] += 1;
            }
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("shards.infeed") && words.contains("remove the index"), "{words}");
                found[1] += 1;
            }
        }
    }
    assert!(found.iter().all(|count| *count > 5), "{found:?}");
    // One that another program cuts short while it is open is an error, and nothing dies of it.
    fs::write(&index, &whole).unwrap();
    let dataset = opened(at(&dir)).unwrap();
    fs::File::options().write(true).open(&index).unwrap().set_len(40).unwrap();
    let error = all(&*dataset).unwrap_err().to_string();
    assert!(error.contains("it ends before the requested bytes"), "{error}");
    // One that is replaced changes nothing.
    fs::write(&index, &whole).unwrap();
    let dataset = opened(at(&dir)).unwrap();
    fs::remove_file(&index).unwrap();
    fs::write(&index, b"another").unwrap();
    assert_eq!(all(&*dataset).unwrap(), want);
}

proptest! {
    #![proptest_config(properties(8, 100))]

    /// However a set is packed, its pictures are those of the folder.
    #[test]
    fn any_packing_gives_the_pictures_of_the_folder(
        cuts in prop::collection::vec(1usize..12, 1..6), blocks in any::<bool>(), workers in 1usize..4,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut first = 0;
        for (n, count) in cuts.iter().enumerate() {
            write(dir.path(), &format!("s-{n}.tar"), &pack(&samples(first, *count)));
            first += count;
        }
        (0..first).for_each(|i| write(folder.path(), &format!("{i:05}.png"), &picture(i)));
        let order = if blocks { Order::Blocks { seed: 3, window: 8, lanes: None } } else { Order::Random { seed: 3 } };
        let pictures = |dir: &tempfile::TempDir| {
            let loader = builder(opened(at(dir)).unwrap()).batch_size(5).workers(workers).order(order.clone());
            let loader = loader.last_batch(LastBatch::Partial).transform(Transform::new().resize_exact(3, 3));
            let batches = drain(loader.build_blocking().unwrap().epoch(0)).unwrap();
            let mut rows = Vec::new();
            for batch in batches {
                let image = &batch["image"];
                let bytes = image.bytes().unwrap().chunks(image.row_bytes());
                rows.extend(batch.records().iter().copied().zip(bytes.map(<[u8]>::to_vec)));
            }
            rows.sort();
            rows
        };
        prop_assert!(pictures(&dir) == pictures(&folder));
    }
}
